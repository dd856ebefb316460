//! What a coordinator answers, one variant per command. The handler of the request writes it in the client's version.

use bytes::Bytes;
use walser_protocol::ErrorCode;
use walser_protocol::types::Uuid;

use super::command::LeavingMember;
use super::consumer::request::{ConsumerGroupHeartbeatReply, DescribedConsumerGroup};

/// The answer to the command of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    JoinGroup(JoinGroupReply),
    SyncGroup(SyncGroupReply),
    Heartbeat(ErrorCode),
    LeaveGroup(LeaveGroupReply),
    OffsetCommit(OffsetCommitReply),
    OffsetFetch(OffsetFetchReply),
    OffsetDelete(OffsetDeleteReply),
    DescribeGroups(Vec<DescribedGroup>),
    ListGroups(ListGroupsReply),
    DeleteGroups(Vec<DeletedGroup>),
    ConsumerGroupHeartbeat(ConsumerGroupHeartbeatReply),
    ConsumerGroupDescribe(Vec<DescribedConsumerGroup>),
}

/// To JoinGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinGroupReply {
    pub error: ErrorCode,
    /// -1 with an error.
    pub generation_id: i32,
    pub protocol_type: Option<String>,
    /// Before version 7 null is written as empty.
    pub protocol_name: Option<String>,
    /// Member id; empty with an error.
    pub leader: String,
    /// The leader need not assign anything: the assignment of the generation stands (KIP-814).
    pub skip_assignment: bool,
    pub member_id: String,
    /// All members, for the leader; empty for the others.
    pub members: Vec<JoinedMember>,
}

/// A member as its leader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedMember {
    pub member_id: String,
    pub group_instance_id: Option<String>,
    pub metadata: Bytes,
}

impl JoinGroupReply {
    pub fn failed(member_id: &str, error: ErrorCode) -> Self {
        Self {
            error,
            generation_id: -1,
            protocol_type: None,
            protocol_name: None,
            leader: String::new(),
            skip_assignment: false,
            member_id: member_id.to_owned(),
            members: Vec::new(),
        }
    }
}

/// To SyncGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncGroupReply {
    pub error: ErrorCode,
    pub protocol_type: Option<String>,
    pub protocol_name: Option<String>,
    pub assignment: Bytes,
}

impl SyncGroupReply {
    pub fn failed(error: ErrorCode) -> Self {
        Self { error, protocol_type: None, protocol_name: None, assignment: Bytes::new() }
    }
}

/// To LeaveGroup. Before version 3 the only member's error is the response's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaveGroupReply {
    pub error: ErrorCode,
    pub members: Vec<LeftMember>,
}

/// Whether one member has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftMember {
    pub member_id: String,
    pub group_instance_id: Option<String>,
    pub error: ErrorCode,
}

impl LeftMember {
    pub fn new(member: &LeavingMember, error: ErrorCode) -> Self {
        Self { member_id: member.member_id.clone(), group_instance_id: member.group_instance_id.clone(), error }
    }
}

/// To OffsetCommit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommitReply {
    pub topics: Vec<TopicErrors>,
}

/// An error, or none, per partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicErrors {
    pub name: String,
    pub topic_id: Uuid,
    pub partitions: Vec<PartitionErrors>,
}

/// The error, or none, of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionErrors {
    pub partition_index: i32,
    pub error: ErrorCode,
}

/// To OffsetFetch, for one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetFetchReply {
    pub group_id: String,
    pub error: ErrorCode,
    pub topics: Vec<FetchedTopicOffsets>,
}

impl OffsetFetchReply {
    pub fn failed(group_id: &str, error: ErrorCode) -> Self {
        Self { group_id: group_id.to_owned(), error, topics: Vec::new() }
    }
}

/// Positions in one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedTopicOffsets {
    pub name: String,
    /// As the command had it.
    pub topic_id: Uuid,
    pub partitions: Vec<FetchedOffset>,
}

/// The position in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedOffset {
    pub partition_index: i32,
    /// -1 where there is none.
    pub committed_offset: i64,
    /// -1 where unknown.
    pub committed_leader_epoch: i32,
    pub metadata: String,
    pub error: ErrorCode,
}

impl FetchedOffset {
    /// No position: `error` says why, or that there simply is none.
    pub fn none(partition_index: i32, error: ErrorCode) -> Self {
        Self { partition_index, committed_offset: -1, committed_leader_epoch: -1, metadata: String::new(), error }
    }
}

/// To OffsetDelete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetDeleteReply {
    pub error: ErrorCode,
    pub topics: Vec<TopicErrors>,
}

/// To DescribeGroups, one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedGroup {
    pub error: ErrorCode,
    /// From version 6 on.
    pub error_message: Option<String>,
    pub group_id: String,
    pub group_state: String,
    pub protocol_type: String,
    /// The protocol the group has chosen; only when it is stable.
    pub protocol_data: String,
    pub members: Vec<DescribedMember>,
}

impl DescribedGroup {
    pub fn failed(group_id: &str, error: ErrorCode) -> Self {
        Self {
            error,
            error_message: None,
            group_id: group_id.to_owned(),
            group_state: String::new(),
            protocol_type: String::new(),
            protocol_data: String::new(),
            members: Vec::new(),
        }
    }
}

/// A classic member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedMember {
    pub member_id: String,
    pub group_instance_id: Option<String>,
    pub client_id: String,
    pub client_host: String,
    /// Only when the group is stable.
    pub member_metadata: Bytes,
    pub member_assignment: Bytes,
}

/// To ListGroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListGroupsReply {
    pub error: ErrorCode,
    /// In order of group id.
    pub groups: Vec<ListedGroup>,
}

/// A group in brief.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedGroup {
    pub group_id: String,
    pub protocol_type: String,
    pub group_state: String,
    pub group_type: String,
}

/// To DeleteGroups, one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedGroup {
    pub group_id: String,
    pub error: ErrorCode,
}

impl Reply {
    /// This reply, had its records not become durable.
    pub fn failed(self, error: ErrorCode) -> Self {
        match self {
            Self::JoinGroup(reply) => Self::JoinGroup(JoinGroupReply::failed(&reply.member_id, error)),
            Self::SyncGroup(_) => Self::SyncGroup(SyncGroupReply::failed(error)),
            Self::Heartbeat(_) => Self::Heartbeat(error),
            Self::LeaveGroup(_) => Self::LeaveGroup(LeaveGroupReply { error, members: Vec::new() }),
            Self::OffsetCommit(mut reply) => {
                reply.topics.iter_mut().for_each(|topic| topic.set_error(error));
                Self::OffsetCommit(reply)
            }
            Self::OffsetFetch(reply) => Self::OffsetFetch(OffsetFetchReply::failed(&reply.group_id, error)),
            Self::OffsetDelete(_) => Self::OffsetDelete(OffsetDeleteReply { error, topics: Vec::new() }),
            Self::DescribeGroups(groups) => {
                let failed = groups.iter().map(|group| DescribedGroup::failed(&group.group_id, error));
                Self::DescribeGroups(failed.collect())
            }
            Self::ListGroups(_) => Self::ListGroups(ListGroupsReply { error, groups: Vec::new() }),
            Self::DeleteGroups(mut groups) => {
                groups.iter_mut().for_each(|group| group.error = error);
                Self::DeleteGroups(groups)
            }
            Self::ConsumerGroupHeartbeat(_) => {
                Self::ConsumerGroupHeartbeat(ConsumerGroupHeartbeatReply::failed(error, None))
            }
            Self::ConsumerGroupDescribe(groups) => {
                let failed = groups.iter().map(|group| DescribedConsumerGroup::failed(&group.group_id, error, None));
                Self::ConsumerGroupDescribe(failed.collect())
            }
        }
    }
}

impl TopicErrors {
    fn set_error(&mut self, error: ErrorCode) {
        self.partitions.iter_mut().for_each(|partition| partition.error = error);
    }
}
