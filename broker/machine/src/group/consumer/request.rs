//! ConsumerGroupHeartbeat and ConsumerGroupDescribe, owned, and their answers.

use walser_protocol::ErrorCode;
use walser_protocol::types::Uuid;

use super::error::ConsumerGroupError;
use super::member::STATIC_LEAVE_EPOCH;
use crate::group::assignor::{Assignment, Assignor};
use crate::group::record::TopicPartitions;
use crate::group::settings::ConsumerGroupSettings;

/// ConsumerGroupHeartbeat 0–1 (KIP-848). What has not changed since the member's last request may be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerGroupHeartbeat {
    pub api_version: i16,
    pub group_id: String,
    /// Chosen by the member; version 0 may leave that to the broker.
    pub member_id: String,
    /// 0 joins, -1 leaves, -2 leaves for a while.
    pub member_epoch: i32,
    pub instance_id: Option<String>,
    pub rack_id: Option<String>,
    /// -1 where it has not changed.
    pub rebalance_timeout_ms: i32,
    pub subscribed_topic_names: Option<Vec<String>>,
    /// From version 1 on.
    pub subscribed_topic_regex: Option<String>,
    pub server_assignor: Option<String>,
    /// What the member has.
    pub topic_partitions: Option<Vec<TopicPartitions>>,
    pub client_id: String,
    /// As Kafka prints an address: a slash, then its digits.
    pub client_host: String,
    /// Random: names a member that chose no id.
    pub member_uuid: Uuid,
}

impl ConsumerGroupHeartbeat {
    /// What can be said without looking at the group. The first thing that is wrong is the one that is told.
    pub fn validate(&self, settings: &ConsumerGroupSettings) -> Result<(), ConsumerGroupError> {
        let empty = |text: Option<&str>| text.is_some_and(|text| text.trim().is_empty());
        let needs_member_id = self.api_version >= 1 || self.member_epoch > 0 || self.member_epoch == -1;
        let is_first = self.member_epoch == 0;
        let rules = [
            (needs_member_id && empty(Some(&self.member_id)), "the member id is empty"),
            (empty(Some(&self.group_id)), "the group id is empty"),
            (empty(self.instance_id.as_deref()), "the instance id is empty"),
            (empty(self.rack_id.as_deref()), "the rack id is empty"),
            (is_first && self.rebalance_timeout_ms == -1, "a member that joins has to name its rebalance timeout"),
            (
                is_first && !self.topic_partitions.as_ref().is_some_and(Vec::is_empty),
                "a member that joins has to say that it has no partitions",
            ),
            (
                is_first && self.subscribed_topic_names.is_none() && self.subscribed_topic_regex.is_none(),
                "a member that joins has to subscribe by names or by a regular expression",
            ),
            (
                self.member_epoch == STATIC_LEAVE_EPOCH && self.instance_id.is_none(),
                "only a member with an instance id leaves for a while",
            ),
            (self.member_epoch < STATIC_LEAVE_EPOCH, "the member epoch has no meaning"),
        ];
        if let Some((_, what)) = rules.iter().find(|(is_broken, _)| *is_broken) {
            return Err(ConsumerGroupError::InvalidRequest(what));
        }
        let offers = |name: &str| settings.assignors.iter().any(|assignor| assignor.name() == name);
        match &self.server_assignor {
            Some(name) if !offers(name) => {
                let supported: Vec<&str> =
                    settings.assignors.iter().map(|assignor| Assignor::name(*assignor)).collect();
                Err(ConsumerGroupError::UnsupportedAssignor { name: name.clone(), supported: supported.join(", ") })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether the member says all it can say: it has joined, or does not know whether its last request arrived.
    pub(super) fn is_full(&self) -> bool {
        let subscribes = self.subscribed_topic_names.is_some() || self.subscribed_topic_regex.is_some();
        self.rebalance_timeout_ms != -1 && subscribes && self.topic_partitions.is_some()
    }
}

/// ConsumerGroupDescribe, those groups that are this coordinator's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerGroupDescribe {
    pub group_ids: Vec<String>,
}

/// To ConsumerGroupHeartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerGroupHeartbeatReply {
    pub error: ErrorCode,
    pub error_message: Option<String>,
    /// `None` with an error.
    pub member_id: Option<String>,
    pub member_epoch: i32,
    pub heartbeat_interval_ms: i32,
    /// `None`: as the member knows it.
    pub assignment: Option<Vec<TopicPartitions>>,
}

impl ConsumerGroupHeartbeatReply {
    pub fn failed(error: ErrorCode, error_message: Option<String>) -> Self {
        Self { error, error_message, member_id: None, member_epoch: 0, heartbeat_interval_ms: 0, assignment: None }
    }

    /// To be filled in.
    pub(super) fn of_member(member_id: &str, member_epoch: i32) -> Self {
        Self { member_id: Some(member_id.to_owned()), member_epoch, ..Self::failed(ErrorCode::None, None) }
    }
}

impl From<&ConsumerGroupError> for ConsumerGroupHeartbeatReply {
    fn from(error: &ConsumerGroupError) -> Self {
        Self::failed(error.into(), Some(error.to_string()))
    }
}

/// To ConsumerGroupDescribe, one group. Without the operations the client may do, which the handler knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedConsumerGroup {
    pub error: ErrorCode,
    pub error_message: Option<String>,
    pub group_id: String,
    pub group_state: String,
    pub group_epoch: i32,
    pub assignment_epoch: i32,
    pub assignor_name: String,
    pub members: Vec<DescribedConsumerMember>,
}

impl DescribedConsumerGroup {
    pub fn failed(group_id: &str, error: ErrorCode, error_message: Option<String>) -> Self {
        Self {
            error,
            error_message,
            group_id: group_id.to_owned(),
            group_state: String::new(),
            group_epoch: 0,
            assignment_epoch: 0,
            assignor_name: String::new(),
            members: Vec::new(),
        }
    }
}

/// A member of a consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedConsumerMember {
    pub member_id: String,
    pub instance_id: Option<String>,
    pub rack_id: Option<String>,
    pub member_epoch: i32,
    pub client_id: String,
    pub client_host: String,
    pub subscribed_topic_names: Vec<String>,
    pub subscribed_topic_regex: Option<String>,
    /// What the member may be reading, what it has to give up included.
    pub assignment: Vec<NamedTopicPartitions>,
    pub target_assignment: Vec<NamedTopicPartitions>,
    /// From version 1 on: 0 the classic protocol, 1 the consumer protocol.
    pub member_type: i8,
}

/// Partitions of a topic that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTopicPartitions {
    pub topic_id: Uuid,
    pub topic_name: String,
    pub partitions: Vec<i32>,
}

pub(super) fn to_topic_partitions(assignment: &Assignment) -> Vec<TopicPartitions> {
    let topics = assignment.topics();
    topics
        .map(|(topic_id, indexes)| TopicPartitions {
            topic_id: topic_id.get(),
            partitions: indexes.iter().copied().collect(),
        })
        .collect()
}
