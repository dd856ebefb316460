//! Which shard owns a partition: one pure function, asked by everybody.
//!
//! Nothing on disk names a shard, so the shard count may change at any restart.

use std::collections::BTreeMap;

use walser_machine::fetch_session::IdRanges;

/// One shard, counted from 0. The control executor comes after the last shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(u16);

impl ShardId {
    /// `index` counts from 0.
    pub const fn new(index: u16) -> Self {
        Self(index)
    }

    /// Counted from 0.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Counted from 0.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl std::fmt::Display for ShardId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(formatter)
    }
}

/// The rule and its exceptions; equal on every shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    shard_count: u16,
    /// Partitions that were moved by hand, by topic id and partition.
    exceptions: BTreeMap<([u8; 16], i32), ShardId>,
}

impl Placement {
    /// # Panics
    /// When there is no shard.
    pub fn new(shard_count: u16) -> Self {
        assert!(shard_count > 0, "at least one shard");
        Self { shard_count, exceptions: BTreeMap::new() }
    }

    /// Number of shards; the control executor is not one.
    pub const fn shard_count(&self) -> u16 {
        self.shard_count
    }

    /// Which shard keeps which fetch sessions.
    pub fn session_ids(&self) -> IdRanges {
        IdRanges::new(self.shard_count)
    }

    /// Keeps one partition on a shard of the caller's choice; `None` when there is no such shard.
    pub fn pin(&mut self, topic_id: [u8; 16], partition: i32, shard: ShardId) -> Option<()> {
        (shard.0 < self.shard_count).then(|| {
            self.exceptions.insert((topic_id, partition), shard);
        })
    }

    /// The owner of a partition. Partitions of one topic are dealt in turn, so that a topic with as many partitions as
    /// shards uses every shard; where the deal begins depends on the topic id, so that small topics spread too.
    pub fn owner(&self, topic_id: [u8; 16], partition: i32) -> ShardId {
        if !self.exceptions.is_empty()
            && let Some(shard) = self.exceptions.get(&(topic_id, partition))
        {
            return *shard;
        }
        let first = mix(u128::from_le_bytes(topic_id)) % u64::from(self.shard_count);
        // A negative partition names nothing; it still has to land somewhere to be refused.
        let turn = u64::from(partition.unsigned_abs()) % u64::from(self.shard_count);
        let owner = (first + turn) % u64::from(self.shard_count);
        ShardId(u16::try_from(owner).expect("below the shard count"))
    }
}

/// Finalizer of SplitMix64 over both halves: topic ids that were made one after the other differ in few bits.
fn mix(id: u128) -> u64 {
    let mut value = (id as u64) ^ ((id >> 64) as u64).rotate_left(32);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(number: u128) -> [u8; 16] {
        number.to_le_bytes()
    }

    #[test]
    fn a_topic_uses_every_shard() {
        // Rule: as many consecutive partitions as shards have as many owners.
        for shard_count in 1..9 {
            let placement = Placement::new(shard_count);
            let owners: std::collections::BTreeSet<_> =
                (0..i32::from(shard_count)).map(|partition| placement.owner(topic(7), partition)).collect();
            assert_eq!(owners.len(), usize::from(shard_count), "{shard_count} shards");
        }
    }

    #[test]
    fn single_partition_topics_spread() {
        // Rule: topics with one partition do not pile up on one shard.
        let placement = Placement::new(4);
        let mut counts = [0_u32; 4];
        for number in 0..4000 {
            counts[placement.owner(topic(number << 64), 0).index()] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }

    #[test]
    fn an_exception_wins() {
        // Rule: a pinned partition stays where it was pinned, its neighbours do not move, and no unknown shard is taken.
        let mut placement = Placement::new(3);
        let before = placement.owner(topic(1), 1);
        let elsewhere = ShardId::new((u16::try_from(placement.owner(topic(1), 0).index()).unwrap() + 1) % 3);
        placement.pin(topic(1), 0, elsewhere).unwrap();
        assert_eq!(placement.owner(topic(1), 0), elsewhere);
        assert_eq!(placement.owner(topic(1), 1), before);
        assert_eq!(placement.pin(topic(1), 0, ShardId::new(3)), None);
    }

    #[test]
    fn any_partition_number_has_an_owner() {
        // Rule: numbers from the wire never overflow.
        let placement = Placement::new(3);
        for partition in [i32::MIN, -1, 0, i32::MAX] {
            assert!(placement.owner(topic(u128::MAX), partition).index() < 3);
        }
    }
}
