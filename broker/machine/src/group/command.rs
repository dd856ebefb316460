//! What clients ask a coordinator for. Owned, so that a command can travel from the shard of the connection to the shard of the
//! group; one per group, but for the requests that name several groups of one coordinator.

use bytes::Bytes;
use walser_protocol::ErrorCode;
use walser_protocol::types::Uuid;

use super::consumer::request::{
    ConsumerGroupDescribe, ConsumerGroupHeartbeat, ConsumerGroupHeartbeatReply, DescribedConsumerGroup,
};
use super::reply::{
    DeletedGroup, DescribedGroup, JoinGroupReply, LeaveGroupReply, LeftMember, ListGroupsReply, OffsetCommitReply,
    OffsetDeleteReply, OffsetFetchReply, PartitionErrors, Reply, SyncGroupReply, TopicErrors,
};

/// Names a command until its reply. The driver gives it and never gives one again while a reply to it is outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// One request to one coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    JoinGroup(JoinGroup),
    SyncGroup(SyncGroup),
    Heartbeat(Heartbeat),
    LeaveGroup(LeaveGroup),
    OffsetCommit(OffsetCommit),
    OffsetFetch(OffsetFetch),
    OffsetDelete(OffsetDelete),
    DescribeGroups(DescribeGroups),
    ListGroups(ListGroups),
    DeleteGroups(DeleteGroups),
    ConsumerGroupHeartbeat(ConsumerGroupHeartbeat),
    ConsumerGroupDescribe(ConsumerGroupDescribe),
}

/// JoinGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinGroup {
    pub api_version: i16,
    pub group_id: String,
    pub session_timeout_ms: i32,
    /// Version 0 has none: the session timeout stands for it.
    pub rebalance_timeout_ms: i32,
    /// Empty for a member that has no id yet.
    pub member_id: String,
    pub group_instance_id: Option<String>,
    pub protocol_type: String,
    /// In the member's order of preference.
    pub protocols: Vec<GroupProtocol>,
    pub client_id: String,
    /// As Kafka prints an address: a slash, then its digits.
    pub client_host: String,
    /// Random: becomes part of the id of a new member.
    pub member_uuid: Uuid,
}

/// A protocol (assignor) a classic member could follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupProtocol {
    pub name: String,
    /// What the member tells the group's leader; of protocol type `consumer` its subscription.
    pub metadata: Bytes,
}

/// SyncGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncGroup {
    pub group_id: String,
    pub generation_id: i32,
    pub member_id: String,
    pub group_instance_id: Option<String>,
    /// `None` before version 5.
    pub protocol_type: Option<String>,
    /// `None` before version 5.
    pub protocol_name: Option<String>,
    /// From the leader: who gets what.
    pub assignments: Vec<MemberAssignment>,
}

/// What the leader assigns to one member, as the protocol writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberAssignment {
    pub member_id: String,
    pub assignment: Bytes,
}

/// Heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    pub group_id: String,
    pub generation_id: i32,
    pub member_id: String,
    pub group_instance_id: Option<String>,
}

/// LeaveGroup; before version 3 of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaveGroup {
    pub group_id: String,
    pub members: Vec<LeavingMember>,
}

/// Who leaves, named by one of its ids or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeavingMember {
    pub member_id: String,
    pub group_instance_id: Option<String>,
}

/// OffsetCommit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommit {
    pub api_version: i16,
    pub group_id: String,
    /// Negative from who is no member.
    pub generation_id_or_member_epoch: i32,
    pub member_id: String,
    pub group_instance_id: Option<String>,
    /// Of versions 2 to 4; `None` for Kafka's -1.
    pub retention_time_ms: Option<i64>,
    pub topics: Vec<CommittedTopic>,
}

/// Positions in one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedTopic {
    pub name: String,
    /// Zero where the client named the topic only by name and the broker does not know it.
    pub topic_id: Uuid,
    pub partitions: Vec<CommittedPartition>,
}

/// The position in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedPartition {
    pub partition_index: i32,
    pub committed_offset: i64,
    /// -1 where unknown.
    pub committed_leader_epoch: i32,
    pub committed_metadata: Option<String>,
}

/// OffsetFetch, one of its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetFetch {
    pub group_id: String,
    pub member_id: Option<String>,
    /// -1 from who is no member.
    pub member_epoch: i32,
    /// `None`: all the group has.
    pub topics: Option<Vec<FetchedTopic>>,
    /// Refuses partitions with offsets of open transactions (KIP-447).
    pub require_stable: bool,
}

/// Partitions of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedTopic {
    pub name: String,
    /// Zero before version 10.
    pub topic_id: Uuid,
    pub partition_indexes: Vec<i32>,
}

/// OffsetDelete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetDelete {
    pub group_id: String,
    pub topics: Vec<DeletedTopicOffsets>,
}

/// Partitions of one topic whose offsets go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedTopicOffsets {
    pub name: String,
    pub partition_indexes: Vec<i32>,
}

/// DescribeGroups, those groups that are this coordinator's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribeGroups {
    pub api_version: i16,
    pub group_ids: Vec<String>,
}

/// ListGroups. An empty filter lets everything pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListGroups {
    pub states_filter: Vec<String>,
    pub types_filter: Vec<String>,
}

/// DeleteGroups, those groups that are this coordinator's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteGroups {
    pub group_ids: Vec<String>,
}

impl Command {
    /// The reply to a command that no coordinator took. Heartbeats count while the coordinator loads, so that members stay.
    pub fn refuse(&self, error: ErrorCode) -> Reply {
        match self {
            Self::JoinGroup(_) => Reply::JoinGroup(JoinGroupReply::failed("", error)),
            Self::SyncGroup(_) => Reply::SyncGroup(SyncGroupReply::failed(error)),
            Self::Heartbeat(_) if error == ErrorCode::CoordinatorLoadInProgress => Reply::Heartbeat(ErrorCode::None),
            Self::Heartbeat(_) => Reply::Heartbeat(error),
            Self::LeaveGroup(leave) if error == ErrorCode::UnknownMemberId => {
                let members = leave.members.iter().map(|member| LeftMember::new(member, error));
                Reply::LeaveGroup(LeaveGroupReply { error: ErrorCode::None, members: members.collect() })
            }
            Self::LeaveGroup(_) => Reply::LeaveGroup(LeaveGroupReply { error, members: Vec::new() }),
            Self::OffsetCommit(commit) => Reply::OffsetCommit(commit.refuse(error)),
            Self::OffsetFetch(fetch) => Reply::OffsetFetch(OffsetFetchReply::failed(&fetch.group_id, error)),
            Self::OffsetDelete(_) => Reply::OffsetDelete(OffsetDeleteReply { error, topics: Vec::new() }),
            Self::DescribeGroups(describe) => {
                let groups = describe.group_ids.iter().map(|group_id| DescribedGroup::failed(group_id, error));
                Reply::DescribeGroups(groups.collect())
            }
            Self::ListGroups(_) => Reply::ListGroups(ListGroupsReply { error, groups: Vec::new() }),
            Self::DeleteGroups(delete) => {
                let groups = delete.group_ids.iter().map(|id| DeletedGroup { group_id: id.clone(), error });
                Reply::DeleteGroups(groups.collect())
            }
            Self::ConsumerGroupHeartbeat(_) => {
                Reply::ConsumerGroupHeartbeat(ConsumerGroupHeartbeatReply::failed(error, None))
            }
            Self::ConsumerGroupDescribe(describe) => {
                let groups = describe.group_ids.iter().map(|id| DescribedConsumerGroup::failed(id, error, None));
                Reply::ConsumerGroupDescribe(groups.collect())
            }
        }
    }
}

impl OffsetCommit {
    /// The same error for every partition.
    pub fn refuse(&self, error: ErrorCode) -> OffsetCommitReply {
        let topics = self.topics.iter().map(|topic| TopicErrors {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            partitions: topic
                .partitions
                .iter()
                .map(|partition| PartitionErrors { partition_index: partition.partition_index, error })
                .collect(),
        });
        OffsetCommitReply { topics: topics.collect() }
    }
}
