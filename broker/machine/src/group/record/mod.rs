//! What `__consumer_offsets` holds, one variant per kind of record, in Kafka's own formats.
//!
//! A record's key is a type number and a body, its value a version number and a body; no value is a tombstone. Kinds that
//! Kafka writes for share and streams groups are not known here: [`GroupRecord::decode`] passes them over, and they stay in
//! the log.

mod decode;
mod encode;

use bytes::Bytes;
use thiserror::Error;
use walser_protocol::DecodeError;
use walser_protocol::types::Uuid;

pub(super) use decode::OffsetCommitRef;
pub use encode::EncodedRecord;

/// One step of a coordinator's log. `value: None` removes what the key names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupRecord {
    /// Type 1, and 0 of old brokers.
    OffsetCommit { group_id: String, topic: String, partition_index: i32, value: Option<OffsetCommitValue> },
    /// Type 2: a classic group with all its members.
    GroupMetadata { group_id: String, value: Option<GroupMetadataValue> },
    /// Type 3: a consumer group and its epoch.
    ConsumerGroupMetadata { group_id: String, value: Option<ConsumerGroupMetadataValue> },
    /// Type 4, which newer brokers only remove; of what old ones wrote, whether it is there is all that counts.
    ConsumerGroupPartitionMetadata { group_id: String, present: bool },
    /// Type 5: a member's subscription.
    ConsumerGroupMemberMetadata { group_id: String, member_id: String, value: Option<ConsumerGroupMemberValue> },
    /// Type 6: the epoch of the target assignment.
    ConsumerGroupTargetAssignmentMetadata { group_id: String, value: Option<TargetAssignmentMetadataValue> },
    /// Type 7: what a member is to have.
    ConsumerGroupTargetAssignmentMember { group_id: String, member_id: String, value: Option<Vec<TopicPartitions>> },
    /// Type 8: what a member has.
    ConsumerGroupCurrentMemberAssignment { group_id: String, member_id: String, value: Option<CurrentAssignmentValue> },
    /// Type 16: the topics a regular expression stands for.
    ConsumerGroupRegularExpression {
        group_id: String,
        regular_expression: String,
        value: Option<RegularExpressionValue>,
    },
}

/// A committed position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommitValue {
    pub offset: i64,
    /// -1 where unknown.
    pub leader_epoch: i32,
    pub metadata: String,
    pub commit_timestamp_ms: i64,
    /// Of commits that named a retention time. Version 1, which has it, has neither leader epoch nor topic id.
    pub expire_timestamp_ms: Option<i64>,
    /// Zero where unknown.
    pub topic_id: Uuid,
}

/// A classic group as its last finished rebalance left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMetadataValue {
    /// Empty for a group that had no members yet.
    pub protocol_type: String,
    pub generation_id: i32,
    pub protocol_name: Option<String>,
    pub leader: Option<String>,
    /// -1 in records of old brokers.
    pub current_state_timestamp_ms: i64,
    pub members: Vec<MemberMetadata>,
}

/// A classic member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberMetadata {
    pub member_id: String,
    pub group_instance_id: Option<String>,
    pub client_id: String,
    pub client_host: String,
    /// -1 in records of old brokers: the session timeout stands for it.
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
    pub subscription: Bytes,
    pub assignment: Bytes,
}

/// A consumer group's epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerGroupMetadataValue {
    pub epoch: i32,
    /// Of the metadata of all subscribed topics; 0 where none was computed.
    pub metadata_hash: i64,
}

/// A consumer group's member as its last full heartbeat described it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerGroupMemberValue {
    pub instance_id: Option<String>,
    pub rack_id: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub subscribed_topic_names: Vec<String>,
    pub subscribed_topic_regex: Option<String>,
    pub rebalance_timeout_ms: i32,
    pub server_assignor: Option<String>,
    /// Of a member that speaks the classic protocol.
    pub classic: Option<ClassicMemberMetadata>,
}

/// What a classic member of a consumer group said when it joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassicMemberMetadata {
    pub session_timeout_ms: i32,
    /// In the member's order of preference.
    pub supported_protocols: Vec<(String, Bytes)>,
}

/// When the target assignment was computed, and for which group epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetAssignmentMetadataValue {
    pub assignment_epoch: i32,
    pub assignment_timestamp_ms: i64,
}

/// Partitions of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPartitions {
    pub topic_id: Uuid,
    pub partitions: Vec<i32>,
}

/// What a member has, and what it is still to give up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentAssignmentValue {
    pub member_epoch: i32,
    pub previous_member_epoch: i32,
    /// Kafka's number of the member's state.
    pub state: i8,
    pub assigned_partitions: Vec<TopicPartitionEpochs>,
    pub partitions_pending_revocation: Vec<TopicPartitionEpochs>,
}

/// Partitions of one topic, each with the epoch in which the member got it (KIP-1251).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPartitionEpochs {
    pub topic_id: Uuid,
    pub partitions: Vec<i32>,
    /// As many as partitions; `None` in records of older brokers.
    pub assignment_epochs: Option<Vec<i32>>,
}

/// The topics that matched when the expression was last resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegularExpressionValue {
    pub topics: Vec<String>,
    /// Of the metadata it was resolved against.
    pub version: i64,
    pub timestamp_ms: i64,
}

/// A record that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    #[error("a record of __consumer_offsets has no key")]
    NoKey,
    #[error("key of type {record_type}: {source}")]
    Key { record_type: i16, source: DecodeError },
    #[error("value of a record of type {record_type}: {source}")]
    Value { record_type: i16, source: DecodeError },
    #[error("record header: {0}")]
    Header(DecodeError),
}

impl GroupRecord {
    /// The group the record is about.
    pub fn group_id(&self) -> &str {
        match self {
            Self::OffsetCommit { group_id, .. }
            | Self::GroupMetadata { group_id, .. }
            | Self::ConsumerGroupMetadata { group_id, .. }
            | Self::ConsumerGroupPartitionMetadata { group_id, .. }
            | Self::ConsumerGroupMemberMetadata { group_id, .. }
            | Self::ConsumerGroupTargetAssignmentMetadata { group_id, .. }
            | Self::ConsumerGroupTargetAssignmentMember { group_id, .. }
            | Self::ConsumerGroupCurrentMemberAssignment { group_id, .. }
            | Self::ConsumerGroupRegularExpression { group_id, .. } => group_id,
        }
    }
}

#[cfg(test)]
mod tests;
