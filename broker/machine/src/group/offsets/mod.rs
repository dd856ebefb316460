//! Committed offsets of all groups, and those that open transactions hold.
//!
//! Changed by replay alone. A commit inside a transaction is pending, keyed by its producer, until the transaction's marker
//! is replayed; then the younger of it and what was committed meanwhile stays. Removing an offset removes what is pending
//! for it too.

mod commit;
mod expire;
mod fetch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::record::OffsetCommitValue;

/// A committed offset, and where in the log it was committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CommittedOffset {
    pub(super) record_offset: i64,
    pub(super) value: OffsetCommitValue,
}

/// By index.
pub(super) type Partitions<T> = BTreeMap<i32, T>;
/// By name.
pub(super) type Topics<T> = BTreeMap<Arc<str>, Partitions<T>>;
/// By id.
type Groups<T> = BTreeMap<Arc<str>, Topics<T>>;

/// Names one offset.
#[derive(Clone, Copy, Debug)]
pub(super) struct OffsetKey<'k> {
    pub(super) group_id: &'k str,
    pub(super) topic: &'k str,
    pub(super) partition_index: i32,
}

/// All offsets of one coordinator. No map in it is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Offsets {
    committed: Groups<CommittedOffset>,
    /// By producer id.
    pending: BTreeMap<i64, Groups<CommittedOffset>>,
    /// Which producers have something pending: the index of `pending` the other way round.
    open: Groups<BTreeSet<i64>>,
}

impl Offsets {
    pub(super) fn committed(&self, key: OffsetKey<'_>) -> Option<&CommittedOffset> {
        self.committed.get(key.group_id)?.get(key.topic)?.get(&key.partition_index)
    }

    /// Topics in order of name, partitions in order of index.
    pub(super) fn committed_of(&self, group_id: &str) -> Option<&Topics<CommittedOffset>> {
        self.committed.get(group_id)
    }

    /// Groups in order of id.
    pub(super) fn all_committed(&self) -> impl Iterator<Item = (&Arc<str>, &Topics<CommittedOffset>)> {
        self.committed.iter()
    }

    /// All committed ones, and then those pending in transactions; a group may appear once in each.
    pub(super) fn all_offsets(&self) -> impl Iterator<Item = (&Arc<str>, &Topics<CommittedOffset>)> {
        self.committed.iter().chain(self.pending.values().flatten())
    }

    /// Whether an open transaction has committed an offset there.
    pub(super) fn is_pending(&self, key: OffsetKey<'_>) -> bool {
        let topics = self.open.get(key.group_id);
        let partitions = topics.and_then(|topics| topics.get(key.topic));
        partitions.is_some_and(|partitions| partitions.contains_key(&key.partition_index))
    }

    pub(super) fn has_pending(&self, group_id: &str) -> bool {
        self.open.contains_key(group_id)
    }

    /// A commit; of a transaction where `producer_id` says so. `None` as value removes the offset, pending ones included.
    pub(super) fn replay(
        &mut self,
        record_offset: i64,
        producer_id: Option<i64>,
        key: OffsetKey<'_>,
        value: Option<OffsetCommitValue>,
    ) {
        let Some(value) = value else { return self.remove(key) };
        let offset = CommittedOffset { record_offset, value };
        match producer_id {
            None => put(&mut self.committed, key, offset),
            Some(producer_id) => {
                put(self.pending.entry(producer_id).or_default(), key, offset);
                let producers = entry(&mut self.open, key).or_default();
                producers.insert(producer_id);
            }
        }
    }

    fn remove(&mut self, key: OffsetKey<'_>) {
        take(&mut self.committed, key);
        for producer_id in take(&mut self.open, key).unwrap_or_default() {
            if let Some(groups) = self.pending.get_mut(&producer_id) {
                take(groups, key);
                if groups.is_empty() {
                    self.pending.remove(&producer_id);
                }
            }
        }
    }

    /// The marker of a transaction: what was pending becomes committed or is forgotten.
    pub(super) fn replay_end_transaction(&mut self, producer_id: i64, is_committed: bool) {
        for (group_id, topics) in self.pending.remove(&producer_id).unwrap_or_default() {
            for (topic, partitions) in topics {
                for (partition_index, offset) in partitions {
                    let key = OffsetKey { group_id: &group_id, topic: &topic, partition_index };
                    self.close(key, producer_id);
                    let is_newer = self.committed(key).is_none_or(|known| offset.record_offset > known.record_offset);
                    if is_committed && is_newer {
                        put(&mut self.committed, key, offset);
                    }
                }
            }
        }
    }

    /// The producer has nothing pending there any more.
    fn close(&mut self, key: OffsetKey<'_>, producer_id: i64) {
        let topics = self.open.get_mut(key.group_id);
        let partitions = topics.and_then(|topics| topics.get_mut(key.topic));
        let Some(producers) = partitions.and_then(|partitions| partitions.get_mut(&key.partition_index)) else {
            return;
        };
        producers.remove(&producer_id);
        if producers.is_empty() {
            take(&mut self.open, key);
        }
    }

    /// Every offset of the group, committed or only pending, in order.
    pub(super) fn keys_of(&self, group_id: &str) -> Vec<(Arc<str>, i32)> {
        let keys = |topics: &mut dyn Iterator<Item = (Arc<str>, Vec<i32>)>| {
            topics.flat_map(|(topic, indexes)| indexes.into_iter().map(move |index| (topic.clone(), index))).collect()
        };
        let committed = self.committed.get(group_id).into_iter().flatten();
        let mut all: BTreeSet<(Arc<str>, i32)> =
            keys(&mut committed.map(|(topic, partitions)| (topic.clone(), partitions.keys().copied().collect())));
        let open = self.open.get(group_id).into_iter().flatten();
        all.append(&mut keys(
            &mut open.map(|(topic, partitions)| (topic.clone(), partitions.keys().copied().collect())),
        ));
        all.into_iter().collect()
    }

    /// Panics where an invariant does not hold.
    #[cfg(test)]
    pub(super) fn verify(&self) {
        let maps = |groups: &Groups<CommittedOffset>| {
            groups.values().all(|topics| !topics.is_empty() && topics.values().all(|known| !known.is_empty()))
        };
        assert!(maps(&self.committed) && self.pending.values().all(maps), "no map is empty");
        for (producer_id, groups) in &self.pending {
            for (group_id, topic, partition_index) in groups.iter().flat_map(|(group_id, topics)| {
                topics.iter().flat_map(move |(topic, known)| known.keys().map(move |index| (group_id, topic, *index)))
            }) {
                let open = &self.open[group_id][topic][&partition_index];
                assert!(open.contains(producer_id), "what is pending is open");
            }
        }
    }
}

fn entry<'m, T>(groups: &'m mut Groups<T>, key: OffsetKey<'_>) -> std::collections::btree_map::Entry<'m, i32, T> {
    // Two look-ups where the group or the topic is known, for a key is only made where it is not.
    if !groups.contains_key(key.group_id) {
        groups.insert(key.group_id.into(), BTreeMap::new());
    }
    let topics = groups.get_mut(key.group_id).expect("inserted above");
    if !topics.contains_key(key.topic) {
        topics.insert(key.topic.into(), BTreeMap::new());
    }
    topics.get_mut(key.topic).expect("inserted above").entry(key.partition_index)
}

fn put<T>(groups: &mut Groups<T>, key: OffsetKey<'_>, value: T) {
    // Most commits are to where there was one before.
    let known = groups.get_mut(key.group_id).and_then(|topics| topics.get_mut(key.topic));
    match known {
        Some(partitions) => drop(partitions.insert(key.partition_index, value)),
        None => drop(entry(groups, key).insert_entry(value)),
    }
}

/// Removes the value, and the maps that it leaves empty.
fn take<T>(groups: &mut Groups<T>, key: OffsetKey<'_>) -> Option<T> {
    let topics = groups.get_mut(key.group_id)?;
    let partitions = topics.get_mut(key.topic)?;
    let value = partitions.remove(&key.partition_index)?;
    if partitions.is_empty() {
        topics.remove(key.topic);
        if topics.is_empty() {
            groups.remove(key.group_id);
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests;
