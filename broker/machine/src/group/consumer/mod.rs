//! A group of KIP-848 as its records describe it.

use std::collections::{BTreeMap, BTreeSet};

use walser_protocol::ErrorCode;

use super::record::{
    ConsumerGroupMemberValue, CurrentAssignmentValue, GroupRecord, RegularExpressionValue, TopicPartitions,
};
use super::state::Committer;

/// Kafka's number of a member that has what it is to have.
const MEMBER_STABLE: i8 = 0;
/// OffsetCommit before it does not know member epochs.
const MEMBER_EPOCH_COMMIT_VERSION: i16 = 9;

/// A consumer group. Changed by replay alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ConsumerGroup {
    group_epoch: i32,
    metadata_hash: i64,
    assignment_epoch: i32,
    assignment_timestamp_ms: i64,
    members: BTreeMap<String, ConsumerGroupMemberValue>,
    target: BTreeMap<String, Vec<TopicPartitions>>,
    current: BTreeMap<String, CurrentAssignmentValue>,
    regular_expressions: BTreeMap<String, RegularExpressionValue>,
}

impl ConsumerGroup {
    /// Whether the record only removes something, so that it makes no group.
    pub(super) fn is_tombstone(record: &GroupRecord) -> bool {
        match record {
            GroupRecord::OffsetCommit { value, .. } => value.is_none(),
            GroupRecord::GroupMetadata { value, .. } => value.is_none(),
            GroupRecord::ConsumerGroupMetadata { value, .. } => value.is_none(),
            GroupRecord::ConsumerGroupPartitionMetadata { .. } => true,
            GroupRecord::ConsumerGroupMemberMetadata { value, .. } => value.is_none(),
            GroupRecord::ConsumerGroupTargetAssignmentMetadata { value, .. } => value.is_none(),
            GroupRecord::ConsumerGroupTargetAssignmentMember { value, .. } => value.is_none(),
            GroupRecord::ConsumerGroupCurrentMemberAssignment { value, .. } => value.is_none(),
            GroupRecord::ConsumerGroupRegularExpression { value, .. } => value.is_none(),
        }
    }

    /// One record of this group.
    pub(super) fn replay(&mut self, record: GroupRecord) {
        match record {
            GroupRecord::ConsumerGroupMetadata { value, .. } => {
                self.group_epoch = value.map_or(0, |value| value.epoch);
                self.metadata_hash = value.map_or(0, |value| value.metadata_hash);
            }
            GroupRecord::ConsumerGroupMemberMetadata { member_id, value, .. } => {
                set(&mut self.members, member_id, value);
            }
            GroupRecord::ConsumerGroupTargetAssignmentMetadata { value, .. } => {
                self.assignment_epoch = value.map_or(-1, |value| value.assignment_epoch);
                self.assignment_timestamp_ms = value.map_or(0, |value| value.assignment_timestamp_ms);
            }
            GroupRecord::ConsumerGroupTargetAssignmentMember { member_id, value, .. } => {
                set(&mut self.target, member_id, value);
            }
            GroupRecord::ConsumerGroupCurrentMemberAssignment { member_id, value, .. } => {
                set(&mut self.current, member_id, value);
            }
            GroupRecord::ConsumerGroupRegularExpression { regular_expression, value, .. } => {
                set(&mut self.regular_expressions, regular_expression, value);
            }
            GroupRecord::OffsetCommit { .. }
            | GroupRecord::GroupMetadata { .. }
            | GroupRecord::ConsumerGroupPartitionMetadata { .. } => {}
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Kafka's name of the state, which follows from the epochs.
    pub(super) fn state_name(&self) -> &'static str {
        let is_reconciled = |member_id: &String| {
            let current = self.current.get(member_id);
            current
                .is_some_and(|current| current.state == MEMBER_STABLE && current.member_epoch == self.assignment_epoch)
        };
        if self.is_empty() {
            "Empty"
        } else if self.group_epoch > self.assignment_epoch {
            "Assigning"
        } else if self.members.keys().all(is_reconciled) {
            "Stable"
        } else {
            "Reconciling"
        }
    }

    pub(super) fn is_subscribed_to(&self, topic: &str) -> bool {
        let named: BTreeSet<&str> =
            self.members.values().flat_map(|member| &member.subscribed_topic_names).map(|name| &**name).collect();
        let matched = self.regular_expressions.values().flat_map(|resolved| &resolved.topics);
        named.contains(topic) || matched.into_iter().any(|name| name == topic)
    }

    pub(super) fn validate_offset_commit(&self, committer: &Committer<'_>) -> Result<(), ErrorCode> {
        let epoch = committer.generation_id_or_member_epoch;
        let is_anonymous = committer.member_id.is_empty() && committer.group_instance_id.is_none();
        if (epoch < 0 && self.is_empty()) || (committer.is_transactional && epoch == -1 && is_anonymous) {
            return Ok(());
        }
        let member = self.members.get(committer.member_id).ok_or(ErrorCode::UnknownMemberId)?;
        let is_classic = member.classic.is_some();
        if !committer.is_transactional && !is_classic && committer.api_version < MEMBER_EPOCH_COMMIT_VERSION {
            return Err(ErrorCode::UnsupportedVersion);
        }
        self.validate_member_epoch(committer.member_id, epoch, is_classic)
    }

    pub(super) fn validate_offset_fetch(&self, member_id: Option<&str>, member_epoch: i32) -> Result<(), ErrorCode> {
        if member_id.is_none() && member_epoch < 0 {
            return Ok(());
        }
        let member_id = member_id.unwrap_or_default();
        let member = self.members.get(member_id).ok_or(ErrorCode::UnknownMemberId)?;
        self.validate_member_epoch(member_id, member_epoch, member.classic.is_some())
    }

    fn validate_member_epoch(&self, member_id: &str, epoch: i32, is_classic: bool) -> Result<(), ErrorCode> {
        match self.current.get(member_id) {
            Some(current) if current.member_epoch == epoch => Ok(()),
            _ if is_classic => Err(ErrorCode::IllegalGeneration),
            _ => Err(ErrorCode::StaleMemberEpoch),
        }
    }

    /// Records that remove the group, in the order in which Kafka writes them.
    pub(super) fn tombstones(&self, group_id: &str) -> Vec<GroupRecord> {
        let group_id = || group_id.to_owned();
        let members = self.members.keys();
        let current = members.clone().map(|member_id| GroupRecord::ConsumerGroupCurrentMemberAssignment {
            group_id: group_id(),
            member_id: member_id.clone(),
            value: None,
        });
        let target = members.clone().map(|member_id| GroupRecord::ConsumerGroupTargetAssignmentMember {
            group_id: group_id(),
            member_id: member_id.clone(),
            value: None,
        });
        let metadata = members.map(|member_id| GroupRecord::ConsumerGroupMemberMetadata {
            group_id: group_id(),
            member_id: member_id.clone(),
            value: None,
        });
        let regular_expressions =
            self.regular_expressions.keys().map(|regular_expression| GroupRecord::ConsumerGroupRegularExpression {
                group_id: group_id(),
                regular_expression: regular_expression.clone(),
                value: None,
            });
        let mut records: Vec<_> = current.chain(target).collect();
        records.push(GroupRecord::ConsumerGroupTargetAssignmentMetadata { group_id: group_id(), value: None });
        records.extend(metadata.chain(regular_expressions));
        records.push(GroupRecord::ConsumerGroupPartitionMetadata { group_id: group_id() });
        records.push(GroupRecord::ConsumerGroupMetadata { group_id: group_id(), value: None });
        records
    }
}

fn set<T>(map: &mut BTreeMap<String, T>, key: String, value: Option<T>) {
    match value {
        Some(value) => {
            map.insert(key, value);
        }
        None => {
            map.remove(&key);
        }
    }
}
