//! What a consumer group writes into `__consumer_offsets` and takes over from it, in the terms of its state.
//!
//! | type | key | content |
//! | --- | --- | --- |
//! | 3 | group | epoch and metadata hash of the group |
//! | 4 | group | topics of the group, up to Kafka 4.0; only its tombstone is written |
//! | 5 | group, member | what the member asked for |
//! | 6 | group | epoch and time of the target assignment |
//! | 7 | group, member | target assignment of the member |
//! | 8 | group, member | epoch, state and partitions of the member |
//! | 16 | group, regular expression | topics that match it |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use walser_protocol::types::Uuid;

use super::member::{ClassicMember, ClassicProtocol, CurrentAssignment, EpochAssignment, MemberState, Subscription};
use crate::group::assignor::Assignment;
use crate::group::record::{
    ClassicMemberMetadata, ConsumerGroupMemberValue, ConsumerGroupMetadataValue, CurrentAssignmentValue, GroupRecord,
    RegularExpressionValue, TargetAssignmentMetadataValue, TopicPartitionEpochs, TopicPartitions,
};
use crate::ids::TopicId;

/// One record of one group. Where the content is an `Option`, `None` is a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Group(Option<GroupEpoch>),
    /// Whether the group has a record of the old type.
    PartitionMetadata {
        present: bool,
    },
    Member {
        member_id: Arc<str>,
        subscription: Option<Subscription>,
    },
    Target(Option<TargetEpoch>),
    TargetMember {
        member_id: Arc<str>,
        assignment: Option<Arc<Assignment>>,
    },
    CurrentMember {
        member_id: Arc<str>,
        current: Option<CurrentAssignment>,
    },
    Regex {
        regex: Arc<str>,
        resolved: Option<ResolvedRegex>,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupEpoch {
    /// Counts changes of members, subscriptions and subscribed topics.
    pub epoch: i32,
    /// Of the subscribed topics that exist.
    pub metadata_hash: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetEpoch {
    /// The group epoch that the target assignment was computed for.
    pub epoch: i32,
    /// Wall clock; 0 allows the next one at once.
    pub timestamp_ms: i64,
}

/// Topics that matched a regular expression.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedRegex {
    pub topic_names: Arc<BTreeSet<Arc<str>>>,
    /// Of the metadata that was looked at.
    pub version: i64,
    /// Wall clock.
    pub timestamp_ms: i64,
}

impl Change {
    /// Whether it only removes something.
    pub fn is_tombstone(&self) -> bool {
        match self {
            Self::Group(group) => group.is_none(),
            Self::PartitionMetadata { present } => !present,
            Self::Member { subscription, .. } => subscription.is_none(),
            Self::Target(target) => target.is_none(),
            Self::TargetMember { assignment, .. } => assignment.is_none(),
            Self::CurrentMember { current, .. } => current.is_none(),
            Self::Regex { resolved, .. } => resolved.is_none(),
        }
    }

    pub fn to_record(&self, group_id: &str) -> GroupRecord {
        let group_id = group_id.to_owned();
        match self {
            Self::Group(group) => {
                let value = |group: &GroupEpoch| ConsumerGroupMetadataValue {
                    epoch: group.epoch,
                    metadata_hash: group.metadata_hash,
                };
                GroupRecord::ConsumerGroupMetadata { group_id, value: group.as_ref().map(value) }
            }
            Self::PartitionMetadata { present } => {
                GroupRecord::ConsumerGroupPartitionMetadata { group_id, present: *present }
            }
            Self::Member { member_id, subscription } => {
                let value = subscription.as_ref().map(Subscription::to_value);
                GroupRecord::ConsumerGroupMemberMetadata { group_id, member_id: member_id.to_string(), value }
            }
            Self::Target(target) => {
                let value = |target: &TargetEpoch| TargetAssignmentMetadataValue {
                    assignment_epoch: target.epoch,
                    assignment_timestamp_ms: target.timestamp_ms,
                };
                GroupRecord::ConsumerGroupTargetAssignmentMetadata { group_id, value: target.as_ref().map(value) }
            }
            Self::TargetMember { member_id, assignment } => {
                let value = assignment.as_deref().map(target_to_value);
                GroupRecord::ConsumerGroupTargetAssignmentMember { group_id, member_id: member_id.to_string(), value }
            }
            Self::CurrentMember { member_id, current } => {
                let value = current.as_ref().map(CurrentAssignment::to_value);
                GroupRecord::ConsumerGroupCurrentMemberAssignment { group_id, member_id: member_id.to_string(), value }
            }
            Self::Regex { regex, resolved } => {
                let value = resolved.as_ref().map(ResolvedRegex::to_value);
                let regular_expression = regex.to_string();
                GroupRecord::ConsumerGroupRegularExpression { group_id, regular_expression, value }
            }
        }
    }

    /// `None` for a record that is not about a consumer group.
    pub fn from_record(record: &GroupRecord) -> Option<Self> {
        Some(match record {
            GroupRecord::OffsetCommit { .. } | GroupRecord::GroupMetadata { .. } => return None,
            GroupRecord::ConsumerGroupMetadata { value, .. } => {
                Self::Group(value.map(|value| GroupEpoch { epoch: value.epoch, metadata_hash: value.metadata_hash }))
            }
            GroupRecord::ConsumerGroupPartitionMetadata { present, .. } => {
                Self::PartitionMetadata { present: *present }
            }
            GroupRecord::ConsumerGroupMemberMetadata { member_id, value, .. } => {
                let subscription = value.as_ref().map(Subscription::from_value);
                Self::Member { member_id: member_id.as_str().into(), subscription }
            }
            GroupRecord::ConsumerGroupTargetAssignmentMetadata { value, .. } => {
                let target = |value: TargetAssignmentMetadataValue| TargetEpoch {
                    epoch: value.assignment_epoch,
                    timestamp_ms: value.assignment_timestamp_ms,
                };
                Self::Target(value.map(target))
            }
            GroupRecord::ConsumerGroupTargetAssignmentMember { member_id, value, .. } => {
                let assignment = value.as_ref().map(|value| Arc::new(target_from_value(value)));
                Self::TargetMember { member_id: member_id.as_str().into(), assignment }
            }
            GroupRecord::ConsumerGroupCurrentMemberAssignment { member_id, value, .. } => {
                let current = value.as_ref().map(CurrentAssignment::from_value);
                Self::CurrentMember { member_id: member_id.as_str().into(), current }
            }
            GroupRecord::ConsumerGroupRegularExpression { regular_expression, value, .. } => {
                let resolved = value.as_ref().map(ResolvedRegex::from_value);
                Self::Regex { regex: regular_expression.as_str().into(), resolved }
            }
        })
    }
}

impl Subscription {
    fn to_value(&self) -> ConsumerGroupMemberValue {
        let text = |text: &Option<Arc<str>>| text.as_ref().map(ToString::to_string);
        let classic = self.classic.as_ref().map(|classic| ClassicMemberMetadata {
            session_timeout_ms: classic.session_timeout_ms,
            supported_protocols: classic
                .protocols
                .iter()
                .map(|protocol| (protocol.name.to_string(), protocol.metadata.clone()))
                .collect(),
        });
        ConsumerGroupMemberValue {
            instance_id: text(&self.instance_id),
            rack_id: text(&self.rack_id),
            client_id: self.client_id.to_string(),
            client_host: self.client_host.to_string(),
            subscribed_topic_names: self.topic_names.iter().map(ToString::to_string).collect(),
            subscribed_topic_regex: text(&self.topic_regex),
            rebalance_timeout_ms: self.rebalance_timeout_ms,
            server_assignor: text(&self.server_assignor),
            classic,
        }
    }

    fn from_value(value: &ConsumerGroupMemberValue) -> Self {
        let text = |text: &Option<String>| text.as_deref().map(Into::into);
        let classic = value.classic.as_ref().map(|classic| {
            let protocols = classic
                .supported_protocols
                .iter()
                .map(|(name, metadata)| ClassicProtocol { name: name.as_str().into(), metadata: metadata.clone() });
            ClassicMember { session_timeout_ms: classic.session_timeout_ms, protocols: protocols.collect() }
        });
        Self {
            instance_id: text(&value.instance_id),
            rack_id: text(&value.rack_id),
            client_id: value.client_id.as_str().into(),
            client_host: value.client_host.as_str().into(),
            topic_names: Arc::new(value.subscribed_topic_names.iter().map(|name| Arc::from(name.as_str())).collect()),
            topic_regex: text(&value.subscribed_topic_regex),
            rebalance_timeout_ms: value.rebalance_timeout_ms,
            server_assignor: text(&value.server_assignor),
            classic: classic.map(Arc::new),
        }
    }
}

fn target_to_value(assignment: &Assignment) -> Vec<TopicPartitions> {
    let topic = |(topic_id, partitions): (TopicId, &BTreeSet<i32>)| TopicPartitions {
        topic_id: topic_id.get(),
        partitions: partitions.iter().copied().collect(),
    };
    assignment.topics().map(topic).collect()
}

fn target_from_value(value: &[TopicPartitions]) -> Assignment {
    assignment(value.iter().map(|topic| (topic.topic_id, topic.partitions.as_slice())))
}

/// A set of partitions from its parts. The zero id names no topic.
pub fn assignment<'a>(topics: impl IntoIterator<Item = (Uuid, &'a [i32])>) -> Assignment {
    let known =
        topics.into_iter().filter_map(|(topic_id, partitions)| Some((TopicId::from_wire(topic_id)?, partitions)));
    known.flat_map(|(topic_id, partitions)| partitions.iter().map(move |index| (topic_id, *index))).collect()
}

impl CurrentAssignment {
    fn to_value(&self) -> CurrentAssignmentValue {
        CurrentAssignmentValue {
            member_epoch: self.epoch,
            previous_member_epoch: self.previous_epoch,
            state: self.state.number(),
            assigned_partitions: epochs_to_value(&self.assigned),
            partitions_pending_revocation: epochs_to_value(&self.pending_revocation),
        }
    }

    fn from_value(value: &CurrentAssignmentValue) -> Self {
        Self {
            epoch: value.member_epoch,
            previous_epoch: value.previous_member_epoch,
            state: MemberState::from_number(value.state),
            assigned: epochs_from_value(&value.assigned_partitions, value.member_epoch),
            pending_revocation: epochs_from_value(&value.partitions_pending_revocation, value.member_epoch),
        }
    }
}

fn epochs_to_value(assignment: &EpochAssignment) -> Vec<TopicPartitionEpochs> {
    let topic = |(topic_id, partitions): (TopicId, &BTreeMap<i32, i32>)| TopicPartitionEpochs {
        topic_id: topic_id.get(),
        partitions: partitions.keys().copied().collect(),
        assignment_epochs: Some(partitions.values().copied().collect()),
    };
    assignment.topics().map(topic).collect()
}

/// Records of Kafka before 4.3 have no epochs: the member's own stands in, as then.
fn epochs_from_value(topics: &[TopicPartitionEpochs], member_epoch: i32) -> EpochAssignment {
    let mut assignment = EpochAssignment::default();
    for topic in topics {
        let Some(topic_id) = TopicId::from_wire(topic.topic_id) else { continue };
        let epochs = topic.assignment_epochs.as_deref().filter(|epochs| epochs.len() == topic.partitions.len());
        let epoch = |position: usize| epochs.and_then(|epochs| epochs.get(position)).copied().unwrap_or(member_epoch);
        let partitions = topic.partitions.iter().enumerate();
        assignment.insert_topic(topic_id, partitions.map(|(position, index)| (*index, epoch(position))).collect());
    }
    assignment
}

impl ResolvedRegex {
    fn to_value(&self) -> RegularExpressionValue {
        RegularExpressionValue {
            topics: self.topic_names.iter().map(ToString::to_string).collect(),
            version: self.version,
            timestamp_ms: self.timestamp_ms,
        }
    }

    fn from_value(value: &RegularExpressionValue) -> Self {
        Self {
            topic_names: Arc::new(value.topics.iter().map(|name| Arc::from(name.as_str())).collect()),
            version: value.version,
            timestamp_ms: value.timestamp_ms,
        }
    }
}
