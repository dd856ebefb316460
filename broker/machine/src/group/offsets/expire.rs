//! Offsets that go: OffsetDelete, DeleteGroups, deleted topics, and expiry.
//!
//! | group | retention counts from |
//! |---|---|
//! | classic, empty | when it became empty |
//! | classic with protocol type `consumer`, stable | the commit, of topics nobody is subscribed to |
//! | classic, any other with members | nothing expires |
//! | simple, without a protocol type | the commit |
//! | consumer | the commit, of topics nobody is subscribed to |
//!
//! A commit that named its retention time expires by that. Nothing expires that an open transaction has an offset for. A group
//! without members goes with its last offset.

use std::ops::Bound;
use std::sync::Arc;

use walser_protocol::ErrorCode;
use walser_protocol::types::Uuid;

use super::super::command::{DeleteGroups, OffsetDelete};
use super::super::coordinator::GroupCoordinator;
use super::super::record::GroupRecord;
use super::super::reply::{DeletedGroup, OffsetDeleteReply, PartitionErrors, TopicErrors};
use super::{OffsetKey, Offsets};
use crate::metadata::image::TopicImage;

const MS_PER_MINUTE: i64 = 60_000;
/// Groups and offsets that one step of the check for expired ones looks at, but for the rest of the last group. A step takes a
/// tenth of a millisecond where all have expired, and a hundredth where none has.
const EXPIRY_STEPS: usize = 200;

impl GroupCoordinator {
    pub(in super::super) fn offset_delete(&mut self, delete: &OffsetDelete) -> OffsetDeleteReply {
        let failed = |error| OffsetDeleteReply { error, topics: Vec::new() };
        if delete.group_id.is_empty() {
            return failed(ErrorCode::InvalidGroupId);
        }
        let Some(group) = self.group(&delete.group_id) else { return failed(ErrorCode::GroupIdNotFound) };
        if let Err(error) = group.validate_offset_delete() {
            return failed(error);
        }
        let mut records = Vec::new();
        let mut topics = Vec::with_capacity(delete.topics.len());
        for topic in &delete.topics {
            let is_subscribed = group.is_subscribed_to(&topic.name);
            let error = if is_subscribed { ErrorCode::GroupSubscribedToTopic } else { ErrorCode::None };
            let partitions = topic.partition_indexes.iter().map(|partition_index| {
                let key =
                    OffsetKey { group_id: &delete.group_id, topic: &topic.name, partition_index: *partition_index };
                let is_known = self.offsets().committed(key).is_some() || self.offsets().is_pending(key);
                if !is_subscribed && is_known {
                    records.push(tombstone(key));
                }
                PartitionErrors { partition_index: *partition_index, error }
            });
            let partitions = partitions.collect();
            topics.push(TopicErrors { name: topic.name.clone(), topic_id: Uuid::ZERO, partitions });
        }
        match self.append_and_replay(records) {
            Ok(()) => OffsetDeleteReply { error: ErrorCode::None, topics },
            Err(refused) => failed(refused.into()),
        }
    }

    /// All at once: either every group of the command that may go goes, or, where the log cannot hold that, none.
    pub(in super::super) fn delete_groups(&mut self, delete: &DeleteGroups) -> Vec<DeletedGroup> {
        let mut records = Vec::new();
        let mut results = Vec::with_capacity(delete.group_ids.len());
        for group_id in &delete.group_ids {
            let validated = match self.group(group_id) {
                Some(group) => group.validate_delete().map(|()| group),
                None => Err(ErrorCode::GroupIdNotFound),
            };
            let error = match validated {
                Ok(group) => {
                    records.extend(all_tombstones(self.offsets(), group_id));
                    records.extend(group.tombstones(group_id));
                    ErrorCode::None
                }
                Err(error) => error,
            };
            results.push(DeletedGroup { group_id: group_id.clone(), error });
        }
        if let Err(refused) = self.append_and_replay(records) {
            let error = ErrorCode::from(refused);
            results.iter_mut().filter(|result| !result.error.is_error()).for_each(|result| result.error = error);
        }
        results
    }

    /// Topics are gone: so are the offsets that were committed for them.
    pub(in super::super) fn delete_offsets_of_topics(&mut self, deleted: &[Arc<TopicImage>]) {
        let mut records = Vec::new();
        for topic in deleted {
            for (group_id, topics) in self.offsets().all_offsets() {
                for (partition_index, known) in topics.get(&*topic.name).into_iter().flatten() {
                    if known.value.topic_id.is_zero() || known.value.topic_id == topic.topic_id.get() {
                        let (topic, partition_index) = (&*topic.name, *partition_index);
                        records.push(tombstone(OffsetKey { group_id, topic, partition_index }));
                    }
                }
            }
        }
        self.append_and_replay_in_batches(records);
    }

    /// Removes what has expired, and groups that have nothing left; of some groups, from `first` on. Gives the group to go on
    /// with, or `None` when it has seen them all: a million offsets at once would hold up everybody.
    pub(in super::super) fn expire_offsets(&mut self, first: Option<Arc<str>>) -> Option<Arc<str>> {
        let now_ms = self.now().wall_ms;
        let retention_ms = i64::from(self.settings().offsets_retention_minutes) * MS_PER_MINUTE;
        let mut records = Vec::new();
        let mut looked_at = 0;
        let mut next = None;
        let from = first.map_or(Bound::Unbounded, Bound::Included);
        for (group_id, group) in self.groups().range::<Arc<str>, _>((from, Bound::Unbounded)) {
            if looked_at >= EXPIRY_STEPS {
                next = Some(group_id.clone());
                break;
            }
            let expired = expired_of(self.offsets(), group_id, group, now_ms, retention_ms);
            looked_at += 1 + expired.looked_at;
            let is_all_gone = expired.is_all && !self.offsets().has_pending(group_id);
            records.extend(expired.tombstones);
            if is_all_gone && group.is_empty() {
                records.extend(group.tombstones(group_id));
            }
        }
        self.append_and_replay_in_batches(records);
        next
    }
}

struct Expired {
    tombstones: Vec<GroupRecord>,
    looked_at: usize,
    /// Nothing is left.
    is_all: bool,
}

fn expired_of(
    offsets: &Offsets,
    group_id: &Arc<str>,
    group: &super::super::state::Group,
    now_ms: i64,
    retention_ms: i64,
) -> Expired {
    let mut expired = Expired { tombstones: Vec::new(), looked_at: 0, is_all: true };
    let Some(topics) = offsets.committed_of(group_id) else { return expired };
    let Some(expires_from) = group.offsets_expire_from() else {
        expired.is_all = false;
        return expired;
    };
    for (topic, partitions) in topics {
        if group.is_subscribed_to(topic) {
            expired.is_all = false;
            continue;
        }
        expired.looked_at += partitions.len();
        for (partition_index, committed) in partitions {
            let key = OffsetKey { group_id, topic, partition_index: *partition_index };
            if expires_from.is_expired(&committed.value, now_ms, retention_ms) && !offsets.is_pending(key) {
                expired.tombstones.push(tombstone(key));
            } else {
                expired.is_all = false;
            }
        }
    }
    expired
}

fn all_tombstones(offsets: &Offsets, group_id: &str) -> Vec<GroupRecord> {
    let keys = offsets.keys_of(group_id).into_iter();
    keys.map(|(topic, partition_index)| tombstone(OffsetKey { group_id, topic: &topic, partition_index })).collect()
}

fn tombstone(key: OffsetKey<'_>) -> GroupRecord {
    GroupRecord::OffsetCommit {
        group_id: key.group_id.to_owned(),
        topic: key.topic.to_owned(),
        partition_index: key.partition_index,
        value: None,
    }
}
