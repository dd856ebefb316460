//! Records to bytes, in the versions Kafka 4.4 writes.

use bytes::Bytes;
use walser_protocol::messages::Body;
use walser_protocol::messages::records::consumer_offsets as wire;
use walser_protocol::{EncodeError, Writer};

use super::{
    ConsumerGroupMemberValue, ConsumerGroupMetadataValue, CurrentAssignmentValue, GroupMetadataValue, GroupRecord,
    OffsetCommitValue, RegularExpressionValue, TargetAssignmentMetadataValue, TopicPartitionEpochs, TopicPartitions,
};

/// Has the topic id and the leader epoch.
const OFFSET_COMMIT_VERSION: i16 = 4;
/// The only version with a time of expiry; it has neither of the two.
const OFFSET_COMMIT_EXPIRING_VERSION: i16 = 1;
/// Version 4 says the same in another coding.
const GROUP_METADATA_VERSION: i16 = 3;
/// Of all other kinds.
const FIRST_VERSION: i16 = 0;

/// A record as it goes into a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedRecord {
    pub key: Bytes,
    /// `None`: a tombstone.
    pub value: Option<Bytes>,
}

impl EncodedRecord {
    /// At most what the record takes in an uncompressed batch: key, value, and the numbers around them.
    pub fn batch_bytes_max(&self) -> usize {
        const AROUND_BYTES: usize = 32;
        self.key.len() + self.value.as_ref().map_or(0, Bytes::len) + AROUND_BYTES
    }
}

impl GroupRecord {
    /// Fails where a text is longer than the format can hold.
    pub fn encode(&self) -> Result<EncodedRecord, EncodeError> {
        match self {
            Self::OffsetCommit { group_id, topic, partition_index, value } => {
                let key = wire::OffsetCommitKey { group: group_id, topic, partition: *partition_index };
                let version = value.as_ref().map_or(OFFSET_COMMIT_VERSION, OffsetCommitValue::version);
                pair(wire::OffsetCommitKey::RECORD_TYPE, &key, version, value.as_ref().map(OffsetCommitValue::wire))
            }
            Self::GroupMetadata { group_id, value } => {
                let key = wire::GroupMetadataKey { group: group_id };
                let value = value.as_ref().map(GroupMetadataValue::wire);
                pair(wire::GroupMetadataKey::RECORD_TYPE, &key, GROUP_METADATA_VERSION, value)
            }
            Self::ConsumerGroupMetadata { group_id, value } => {
                let key = wire::ConsumerGroupMetadataKey { group_id };
                let value = value.map(ConsumerGroupMetadataValue::wire);
                pair(wire::ConsumerGroupMetadataKey::RECORD_TYPE, &key, FIRST_VERSION, value)
            }
            Self::ConsumerGroupPartitionMetadata { group_id, present } => {
                let key = wire::ConsumerGroupPartitionMetadataKey { group_id };
                let value = present.then(wire::ConsumerGroupPartitionMetadataValue::default);
                pair(wire::ConsumerGroupPartitionMetadataKey::RECORD_TYPE, &key, FIRST_VERSION, value)
            }
            Self::ConsumerGroupMemberMetadata { group_id, member_id, value } => {
                let key = wire::ConsumerGroupMemberMetadataKey { group_id, member_id };
                let value = value.as_ref().map(ConsumerGroupMemberValue::wire);
                pair(wire::ConsumerGroupMemberMetadataKey::RECORD_TYPE, &key, FIRST_VERSION, value)
            }
            Self::ConsumerGroupTargetAssignmentMetadata { group_id, value } => {
                let key = wire::ConsumerGroupTargetAssignmentMetadataKey { group_id };
                let value = value.map(TargetAssignmentMetadataValue::wire);
                pair(wire::ConsumerGroupTargetAssignmentMetadataKey::RECORD_TYPE, &key, FIRST_VERSION, value)
            }
            Self::ConsumerGroupTargetAssignmentMember { group_id, member_id, value } => {
                let key = wire::ConsumerGroupTargetAssignmentMemberKey { group_id, member_id };
                let value = value.as_ref().map(|topics| target_wire(topics));
                pair(wire::ConsumerGroupTargetAssignmentMemberKey::RECORD_TYPE, &key, FIRST_VERSION, value)
            }
            Self::ConsumerGroupCurrentMemberAssignment { group_id, member_id, value } => {
                let key = wire::ConsumerGroupCurrentMemberAssignmentKey { group_id, member_id };
                let value = value.as_ref().map(CurrentAssignmentValue::wire);
                pair(wire::ConsumerGroupCurrentMemberAssignmentKey::RECORD_TYPE, &key, FIRST_VERSION, value)
            }
            Self::ConsumerGroupRegularExpression { group_id, regular_expression, value } => {
                let key = wire::ConsumerGroupRegularExpressionKey { group_id, regular_expression };
                let value = value.as_ref().map(RegularExpressionValue::wire);
                pair(wire::ConsumerGroupRegularExpressionKey::RECORD_TYPE, &key, FIRST_VERSION, value)
            }
        }
    }
}

fn pair(
    record_type: i16,
    key: &dyn Body,
    version: i16,
    value: Option<impl Body>,
) -> Result<EncodedRecord, EncodeError> {
    // Keys have one version, and the number in front of them is their type.
    let key = prefixed(record_type, key, FIRST_VERSION)?;
    let value = value.map(|value| prefixed(version, &value, version)).transpose()?;
    Ok(EncodedRecord { key, value })
}

fn prefixed(prefix: i16, body: &dyn Body, version: i16) -> Result<Bytes, EncodeError> {
    let mut measured = Writer::measuring();
    body.encode(&mut measured, version)?;
    let mut writer = Writer::with_capacity(measured.len() + size_of::<i16>());
    writer.i16(prefix);
    body.encode(&mut writer, version)?;
    Ok(writer.into_inner().freeze())
}

impl OffsetCommitValue {
    fn version(&self) -> i16 {
        if self.expire_timestamp_ms.is_some() { OFFSET_COMMIT_EXPIRING_VERSION } else { OFFSET_COMMIT_VERSION }
    }

    fn wire(&self) -> wire::OffsetCommitValue<'_> {
        wire::OffsetCommitValue {
            offset: self.offset,
            leader_epoch: self.leader_epoch,
            metadata: &self.metadata,
            commit_timestamp: self.commit_timestamp_ms,
            expire_timestamp: self.expire_timestamp_ms.unwrap_or(-1),
            topic_id: self.topic_id,
        }
    }
}

impl GroupMetadataValue {
    fn wire(&self) -> wire::GroupMetadataValue<'_> {
        let members = self.members.iter().map(|member| wire::MemberMetadata {
            member_id: &member.member_id,
            group_instance_id: member.group_instance_id.as_deref(),
            client_id: &member.client_id,
            client_host: &member.client_host,
            rebalance_timeout: member.rebalance_timeout_ms,
            session_timeout: member.session_timeout_ms,
            subscription: &member.subscription,
            assignment: &member.assignment,
        });
        wire::GroupMetadataValue {
            protocol_type: &self.protocol_type,
            generation: self.generation_id,
            protocol: self.protocol_name.as_deref(),
            leader: self.leader.as_deref(),
            current_state_timestamp: self.current_state_timestamp_ms,
            members: members.collect(),
        }
    }
}

impl ConsumerGroupMetadataValue {
    fn wire(self) -> wire::ConsumerGroupMetadataValue {
        wire::ConsumerGroupMetadataValue { epoch: self.epoch, metadata_hash: self.metadata_hash }
    }
}

impl ConsumerGroupMemberValue {
    fn wire(&self) -> wire::ConsumerGroupMemberMetadataValue<'_> {
        let classic = self.classic.as_ref().map(|classic| wire::ClassicMemberMetadata {
            session_timeout_ms: classic.session_timeout_ms,
            supported_protocols: classic
                .supported_protocols
                .iter()
                .map(|(name, metadata)| wire::ClassicProtocol { name, metadata })
                .collect(),
        });
        wire::ConsumerGroupMemberMetadataValue {
            instance_id: self.instance_id.as_deref(),
            rack_id: self.rack_id.as_deref(),
            client_id: &self.client_id,
            client_host: &self.client_host,
            subscribed_topic_names: self.subscribed_topic_names.iter().map(|name| &**name).collect(),
            subscribed_topic_regex: self.subscribed_topic_regex.as_deref(),
            rebalance_timeout_ms: self.rebalance_timeout_ms,
            server_assignor: self.server_assignor.as_deref(),
            classic_member_metadata: classic,
        }
    }
}

impl TargetAssignmentMetadataValue {
    fn wire(self) -> wire::ConsumerGroupTargetAssignmentMetadataValue {
        wire::ConsumerGroupTargetAssignmentMetadataValue {
            assignment_epoch: self.assignment_epoch,
            assignment_timestamp: self.assignment_timestamp_ms,
        }
    }
}

fn target_wire(topics: &[TopicPartitions]) -> wire::ConsumerGroupTargetAssignmentMemberValue {
    let topics = topics.iter().map(|topic| wire::ConsumerGroupTargetAssignmentMemberTopicPartition {
        topic_id: topic.topic_id,
        partitions: topic.partitions.clone(),
    });
    wire::ConsumerGroupTargetAssignmentMemberValue { topic_partitions: topics.collect() }
}

impl CurrentAssignmentValue {
    fn wire(&self) -> wire::ConsumerGroupCurrentMemberAssignmentValue {
        wire::ConsumerGroupCurrentMemberAssignmentValue {
            member_epoch: self.member_epoch,
            previous_member_epoch: self.previous_member_epoch,
            state: self.state,
            assigned_partitions: epochs_wire(&self.assigned_partitions),
            partitions_pending_revocation: epochs_wire(&self.partitions_pending_revocation),
        }
    }
}

fn epochs_wire(topics: &[TopicPartitionEpochs]) -> Vec<wire::ConsumerGroupCurrentMemberAssignmentTopicPartitions> {
    let topics = topics.iter().map(|topic| wire::ConsumerGroupCurrentMemberAssignmentTopicPartitions {
        topic_id: topic.topic_id,
        partitions: topic.partitions.clone(),
        assignment_epochs: topic.assignment_epochs.clone(),
    });
    topics.collect()
}

impl RegularExpressionValue {
    fn wire(&self) -> wire::ConsumerGroupRegularExpressionValue<'_> {
        wire::ConsumerGroupRegularExpressionValue {
            topics: self.topics.iter().map(|topic| &**topic).collect(),
            version: self.version,
            timestamp: self.timestamp_ms,
        }
    }
}
