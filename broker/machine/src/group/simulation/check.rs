//! What must never be seen, however many requests are lost, late or repeated.

use std::collections::{BTreeMap, BTreeSet};

use walser_protocol::ErrorCode;

use super::super::command::Command;
use super::super::record::{GroupMetadataValue, GroupRecord};
use super::super::reply::Reply;
use super::RETENTION_MS;
use super::client::error_of;

/// A partition of the one topic, in one group.
type Place = (String, i32);

/// Sees the log as it grows, and every answer as it leaves.
#[derive(Default)]
pub(super) struct Checker {
    /// Offsets in the log.
    committed: BTreeMap<Place, i64>,
    /// Classic groups in the log.
    groups: BTreeMap<String, Option<GroupMetadataValue>>,
    /// The greatest offset that a client was told is committed.
    acknowledged: BTreeMap<Place, i64>,
    /// Who owns a partition in a generation.
    owners: BTreeMap<(Place, i32), String>,
    /// Former incarnations of static members.
    fenced: BTreeSet<String>,
    /// The living incarnation, by group and instance id.
    incarnations: BTreeMap<(String, String), String>,
    /// Acknowledged commits.
    pub(super) commits: u64,
}

impl Checker {
    /// Generations in which somebody owned something.
    pub(super) fn generations(&self) -> u64 {
        let generations: BTreeSet<(&str, i32)> =
            self.owners.keys().map(|((group_id, _), generation_id)| (&**group_id, *generation_id)).collect();
        generations.len() as u64
    }

    pub(super) fn logged(&mut self, wall_ms: i64, record: &GroupRecord) {
        if let GroupRecord::OffsetCommit { group_id, topic, partition_index, value } = record {
            let place = (group_id.clone(), *partition_index);
            match (value, self.committed.get(&place)) {
                (Some(value), Some(known)) => {
                    assert!(value.offset >= *known, "{place:?} goes back from {known} to {}", value.offset);
                }
                (Some(_), None) => {}
                (None, _) => {
                    self.check_expiry(wall_ms, group_id, topic, *partition_index);
                    self.acknowledged.remove(&place);
                }
            }
        } else if let GroupRecord::GroupMetadata { group_id, value } = record {
            self.check_generation(group_id, value.as_ref());
            if value.is_none() {
                // A group of the name that comes later begins at the first generation again.
                self.owners.retain(|((owned, _), _), _| owned != group_id);
            }
        }
        self.put(record);
    }

    /// What the log says now.
    fn put(&mut self, record: &GroupRecord) {
        match record {
            GroupRecord::OffsetCommit { group_id, partition_index, value, .. } => {
                let place = (group_id.clone(), *partition_index);
                match value {
                    Some(value) => drop(self.committed.insert(place, value.offset)),
                    None => drop(self.committed.remove(&place)),
                }
            }
            GroupRecord::GroupMetadata { group_id, value } => {
                self.groups.insert(group_id.clone(), value.clone());
            }
            GroupRecord::ConsumerGroupMetadata { .. }
            | GroupRecord::ConsumerGroupPartitionMetadata { .. }
            | GroupRecord::ConsumerGroupMemberMetadata { .. }
            | GroupRecord::ConsumerGroupTargetAssignmentMetadata { .. }
            | GroupRecord::ConsumerGroupTargetAssignmentMember { .. }
            | GroupRecord::ConsumerGroupCurrentMemberAssignment { .. }
            | GroupRecord::ConsumerGroupRegularExpression { .. } => panic!("nobody speaks KIP-848 here: {record:?}"),
        }
    }

    /// Nobody but time removes offsets here, and only of groups that have no members, and only old ones.
    fn check_expiry(&self, wall_ms: i64, group_id: &str, topic: &str, partition_index: i32) {
        let place = (group_id.to_owned(), partition_index);
        if let Some(Some(group)) = self.groups.get(group_id) {
            assert_eq!(group.members.len(), 0, "{topic} of {group_id} expires though its members read it");
            let empty_ms = wall_ms - group.current_state_timestamp_ms;
            assert!(empty_ms >= RETENTION_MS, "{place:?} expires {empty_ms} ms after the group became empty");
        }
    }

    fn check_generation(&self, group_id: &str, value: Option<&GroupMetadataValue>) {
        let (Some(value), Some(Some(known))) = (value, self.groups.get(group_id)) else { return };
        assert!(value.generation_id >= known.generation_id, "{group_id} goes back to {}", value.generation_id);
    }

    /// What was not durable is gone; what a client was told must be left.
    pub(super) fn reloaded(&mut self, log: &[GroupRecord]) {
        self.committed = BTreeMap::new();
        self.groups = BTreeMap::new();
        let acknowledged = std::mem::take(&mut self.acknowledged);
        log.iter().for_each(|record| self.put(record));
        self.forget_lost_incarnations();
        for (place, offset) in &acknowledged {
            let kept = self.committed.get(place).copied();
            assert!(kept >= Some(*offset), "{place:?}: {offset} was acknowledged, {kept:?} is left");
        }
        self.acknowledged = acknowledged;
    }

    /// A static member that came in a rebalance that was never finished has not taken anybody's place.
    fn forget_lost_incarnations(&mut self) {
        let members = self.groups.values().flatten().flat_map(|group| &group.members);
        let living: BTreeSet<&str> = members.map(|member| &*member.member_id).collect();
        self.fenced.retain(|member_id| !living.contains(&**member_id));
        self.incarnations.retain(|_, member_id| living.contains(&**member_id));
    }

    /// What the coordinator has decided, in the order in which it did.
    pub(super) fn answered(&mut self, command: &Command, reply: &Reply) {
        if error_of(reply) != ErrorCode::None {
            return;
        }
        match (command, reply) {
            (Command::JoinGroup(join), Reply::JoinGroup(joined)) => {
                self.check_incarnation(&joined.member_id);
                let Some(instance_id) = &join.group_instance_id else { return };
                let place = (join.group_id.clone(), instance_id.clone());
                let former = self.incarnations.insert(place, joined.member_id.clone());
                self.fenced.extend(former.filter(|former| *former != joined.member_id));
            }
            (Command::SyncGroup(sync), Reply::SyncGroup(synced)) => {
                self.check_incarnation(&sync.member_id);
                for index in &synced.assignment {
                    let place = (sync.group_id.clone(), i32::from(*index));
                    // A static member owns what its former self owned.
                    let owner = sync.group_instance_id.clone().unwrap_or_else(|| sync.member_id.clone());
                    let known = self.owners.entry((place.clone(), sync.generation_id)).or_insert_with(|| owner.clone());
                    assert_eq!(*known, owner, "{place:?} has two owners in generation {}", sync.generation_id);
                }
            }
            (Command::Heartbeat(heartbeat), Reply::Heartbeat(_)) => self.check_incarnation(&heartbeat.member_id),
            (Command::OffsetCommit(commit), Reply::OffsetCommit(_)) => {
                self.check_incarnation(&commit.member_id);
                self.commits += 1;
                for partition in &commit.topics[0].partitions {
                    let place = (commit.group_id.clone(), partition.partition_index);
                    let known = self.acknowledged.entry(place).or_insert(0);
                    *known = partition.committed_offset.max(*known);
                }
            }
            (_, _) => {}
        }
    }

    fn check_incarnation(&self, member_id: &str) {
        assert!(!self.fenced.contains(member_id), "{member_id} is told all is well, but another has taken its place");
    }
}
