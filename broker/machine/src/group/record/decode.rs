//! Bytes to records, of every version Kafka ever wrote. The bytes come from a disk: anything is possible, nothing panics.

use bytes::Bytes;
use walser_protocol::Reader;
use walser_protocol::messages::records::consumer_offsets as wire;

use super::{
    ClassicMemberMetadata, ConsumerGroupMemberValue, ConsumerGroupMetadataValue, CurrentAssignmentValue,
    GroupMetadataValue, GroupRecord, MemberMetadata, OffsetCommitValue, RecordError, RegularExpressionValue,
    TargetAssignmentMetadataValue, TopicPartitionEpochs, TopicPartitions,
};

/// Keys of type 0 and 1 look alike.
const LEGACY_OFFSET_COMMIT: i16 = wire::LegacyOffsetCommitKey::RECORD_TYPE;
const OFFSET_COMMIT: i16 = wire::OffsetCommitKey::RECORD_TYPE;
const GROUP_METADATA: i16 = wire::GroupMetadataKey::RECORD_TYPE;
const CONSUMER_METADATA: i16 = wire::ConsumerGroupMetadataKey::RECORD_TYPE;
const CONSUMER_PARTITIONS: i16 = wire::ConsumerGroupPartitionMetadataKey::RECORD_TYPE;
const CONSUMER_MEMBER: i16 = wire::ConsumerGroupMemberMetadataKey::RECORD_TYPE;
const CONSUMER_TARGET_METADATA: i16 = wire::ConsumerGroupTargetAssignmentMetadataKey::RECORD_TYPE;
const CONSUMER_TARGET: i16 = wire::ConsumerGroupTargetAssignmentMemberKey::RECORD_TYPE;
const CONSUMER_CURRENT: i16 = wire::ConsumerGroupCurrentMemberAssignmentKey::RECORD_TYPE;
const CONSUMER_REGEX: i16 = wire::ConsumerGroupRegularExpressionKey::RECORD_TYPE;

/// Every key has this version of its body.
const KEY_VERSION: i16 = 0;

/// A committed offset, read in place: a log has millions of them.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct OffsetCommitRef<'r> {
    pub(in super::super) group_id: &'r str,
    pub(in super::super) topic: &'r str,
    pub(in super::super) partition_index: i32,
    pub(in super::super) value: Option<OffsetCommitValue>,
}

impl<'r> OffsetCommitRef<'r> {
    /// `Ok(None)` for a record of any other kind.
    pub(in super::super) fn decode(key: Option<&'r [u8]>, value: Option<&[u8]>) -> Result<Option<Self>, RecordError> {
        let mut key = Reader::new(key.ok_or(RecordError::NoKey)?);
        let record_type = key.i16("record_type").map_err(RecordError::Header)?;
        match record_type {
            LEGACY_OFFSET_COMMIT | OFFSET_COMMIT => decode_offset_commit(&mut key, value).map(Some),
            _ => Ok(None),
        }
    }
}

impl GroupRecord {
    /// `Ok(None)` for a kind this program does not know: newer ones, and those of share and streams groups.
    pub fn decode(key: Option<&[u8]>, value: Option<&[u8]>) -> Result<Option<Self>, RecordError> {
        let mut key = Reader::new(key.ok_or(RecordError::NoKey)?);
        let record_type = key.i16("record_type").map_err(RecordError::Header)?;
        match record_type {
            LEGACY_OFFSET_COMMIT | OFFSET_COMMIT => {
                let commit = decode_offset_commit(&mut key, value)?;
                Ok(Some(Self::OffsetCommit {
                    group_id: commit.group_id.to_owned(),
                    topic: commit.topic.to_owned(),
                    partition_index: commit.partition_index,
                    value: commit.value,
                }))
            }
            GROUP_METADATA => decode_group_metadata(&mut key, value).map(Some),
            CONSUMER_METADATA | CONSUMER_PARTITIONS | CONSUMER_TARGET_METADATA => {
                decode_of_group(record_type, &mut key, value).map(Some)
            }
            CONSUMER_MEMBER | CONSUMER_TARGET | CONSUMER_CURRENT | CONSUMER_REGEX => {
                decode_of_member(record_type, &mut key, value).map(Some)
            }
            _ => Ok(None),
        }
    }
}

macro_rules! key_of {
    ($reader:expr, $key:ident) => {
        wire::$key::decode($reader, KEY_VERSION)
            .map_err(|source| RecordError::Key { record_type: wire::$key::RECORD_TYPE, source })
    };
}

/// Reads the version in front of a value and then its body; nothing of a tombstone.
macro_rules! value_of {
    ($value:expr, $body:ident, $convert:expr) => {
        $value
            .map(|bytes: &[u8]| {
                let mut reader = Reader::new(bytes);
                let version = reader.i16("version").map_err(RecordError::Header)?;
                wire::$body::decode(&mut reader, version)
                    .map($convert)
                    .map_err(|source| RecordError::Value { record_type: wire::$body::RECORD_TYPE, source })
            })
            .transpose()
    };
}

fn decode_offset_commit<'r>(key: &mut Reader<'r>, value: Option<&[u8]>) -> Result<OffsetCommitRef<'r>, RecordError> {
    let key = key_of!(key, OffsetCommitKey)?;
    let value = value_of!(value, OffsetCommitValue, |value: wire::OffsetCommitValue<'_>| OffsetCommitValue {
        offset: value.offset,
        leader_epoch: value.leader_epoch,
        metadata: value.metadata.to_owned(),
        commit_timestamp_ms: value.commit_timestamp,
        expire_timestamp_ms: (value.expire_timestamp != -1).then_some(value.expire_timestamp),
        topic_id: value.topic_id,
    })?;
    Ok(OffsetCommitRef { group_id: key.group, topic: key.topic, partition_index: key.partition, value })
}

fn decode_group_metadata(key: &mut Reader<'_>, value: Option<&[u8]>) -> Result<GroupRecord, RecordError> {
    let key = key_of!(key, GroupMetadataKey)?;
    let member = |member: wire::MemberMetadata<'_>| MemberMetadata {
        member_id: member.member_id.to_owned(),
        group_instance_id: member.group_instance_id.map(str::to_owned),
        client_id: member.client_id.to_owned(),
        client_host: member.client_host.to_owned(),
        rebalance_timeout_ms: member.rebalance_timeout,
        session_timeout_ms: member.session_timeout,
        subscription: Bytes::copy_from_slice(member.subscription),
        assignment: Bytes::copy_from_slice(member.assignment),
    };
    let value = value_of!(value, GroupMetadataValue, |value: wire::GroupMetadataValue<'_>| GroupMetadataValue {
        protocol_type: value.protocol_type.to_owned(),
        generation_id: value.generation,
        protocol_name: value.protocol.map(str::to_owned),
        leader: value.leader.map(str::to_owned),
        current_state_timestamp_ms: value.current_state_timestamp,
        members: value.members.into_iter().map(member).collect(),
    })?;
    Ok(GroupRecord::GroupMetadata { group_id: key.group.to_owned(), value })
}

/// The kinds whose key is the id of a consumer group.
fn decode_of_group(record_type: i16, key: &mut Reader<'_>, value: Option<&[u8]>) -> Result<GroupRecord, RecordError> {
    // The three keys have the same body.
    let group_id = key_of!(key, ConsumerGroupMetadataKey)?.group_id.to_owned();
    match record_type {
        CONSUMER_METADATA => {
            let value = value_of!(value, ConsumerGroupMetadataValue, |value: wire::ConsumerGroupMetadataValue| {
                ConsumerGroupMetadataValue { epoch: value.epoch, metadata_hash: value.metadata_hash }
            })?;
            Ok(GroupRecord::ConsumerGroupMetadata { group_id, value })
        }
        CONSUMER_TARGET_METADATA => {
            let convert = |value: wire::ConsumerGroupTargetAssignmentMetadataValue| TargetAssignmentMetadataValue {
                assignment_epoch: value.assignment_epoch,
                assignment_timestamp_ms: value.assignment_timestamp,
            };
            let value = value_of!(value, ConsumerGroupTargetAssignmentMetadataValue, convert)?;
            Ok(GroupRecord::ConsumerGroupTargetAssignmentMetadata { group_id, value })
        }
        // What old brokers wrote of partitions is computed anew; only that the group exists follows from its other records.
        _ => Ok(GroupRecord::ConsumerGroupPartitionMetadata { group_id, present: value.is_some() }),
    }
}

/// The kinds whose key is the id of a consumer group and the name of something in it.
fn decode_of_member(record_type: i16, key: &mut Reader<'_>, value: Option<&[u8]>) -> Result<GroupRecord, RecordError> {
    // The four keys have the same body.
    let key = key_of!(key, ConsumerGroupMemberMetadataKey)?;
    let (group_id, member_id) = (key.group_id.to_owned(), key.member_id.to_owned());
    match record_type {
        CONSUMER_MEMBER => {
            let value = value_of!(value, ConsumerGroupMemberMetadataValue, member_value)?;
            Ok(GroupRecord::ConsumerGroupMemberMetadata { group_id, member_id, value })
        }
        CONSUMER_TARGET => {
            let convert = |value: wire::ConsumerGroupTargetAssignmentMemberValue| {
                let topics = value.topic_partitions.into_iter();
                topics.map(|topic| TopicPartitions { topic_id: topic.topic_id, partitions: topic.partitions }).collect()
            };
            let value = value_of!(value, ConsumerGroupTargetAssignmentMemberValue, convert)?;
            Ok(GroupRecord::ConsumerGroupTargetAssignmentMember { group_id, member_id, value })
        }
        CONSUMER_CURRENT => {
            let convert = |value: wire::ConsumerGroupCurrentMemberAssignmentValue| CurrentAssignmentValue {
                member_epoch: value.member_epoch,
                previous_member_epoch: value.previous_member_epoch,
                state: value.state,
                assigned_partitions: partition_epochs(value.assigned_partitions),
                partitions_pending_revocation: partition_epochs(value.partitions_pending_revocation),
            };
            let value = value_of!(value, ConsumerGroupCurrentMemberAssignmentValue, convert)?;
            Ok(GroupRecord::ConsumerGroupCurrentMemberAssignment { group_id, member_id, value })
        }
        _ => {
            let convert = |value: wire::ConsumerGroupRegularExpressionValue<'_>| RegularExpressionValue {
                topics: value.topics.iter().map(|topic| (*topic).to_owned()).collect(),
                version: value.version,
                timestamp_ms: value.timestamp,
            };
            let value = value_of!(value, ConsumerGroupRegularExpressionValue, convert)?;
            Ok(GroupRecord::ConsumerGroupRegularExpression { group_id, regular_expression: member_id, value })
        }
    }
}

fn member_value(value: wire::ConsumerGroupMemberMetadataValue<'_>) -> ConsumerGroupMemberValue {
    let classic = value.classic_member_metadata.map(|classic| ClassicMemberMetadata {
        session_timeout_ms: classic.session_timeout_ms,
        supported_protocols: classic
            .supported_protocols
            .iter()
            .map(|protocol| (protocol.name.to_owned(), Bytes::copy_from_slice(protocol.metadata)))
            .collect(),
    });
    ConsumerGroupMemberValue {
        instance_id: value.instance_id.map(str::to_owned),
        rack_id: value.rack_id.map(str::to_owned),
        client_id: value.client_id.to_owned(),
        client_host: value.client_host.to_owned(),
        subscribed_topic_names: value.subscribed_topic_names.iter().map(|name| (*name).to_owned()).collect(),
        subscribed_topic_regex: value.subscribed_topic_regex.map(str::to_owned),
        rebalance_timeout_ms: value.rebalance_timeout_ms,
        server_assignor: value.server_assignor.map(str::to_owned),
        classic,
    }
}

fn partition_epochs(
    topics: Vec<wire::ConsumerGroupCurrentMemberAssignmentTopicPartitions>,
) -> Vec<TopicPartitionEpochs> {
    let convert = |topic: wire::ConsumerGroupCurrentMemberAssignmentTopicPartitions| TopicPartitionEpochs {
        topic_id: topic.topic_id,
        // A list of another length says nothing about which partition an epoch belongs to.
        assignment_epochs: topic.assignment_epochs.filter(|epochs| epochs.len() == topic.partitions.len()),
        partitions: topic.partitions,
    };
    topics.into_iter().map(convert).collect()
}
