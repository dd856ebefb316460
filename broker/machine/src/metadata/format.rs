//! Metadata records as bytes: one batch is one entry of the metadata log, and a snapshot is a row of batches.
//!
//! | bytes | |
//! | --- | --- |
//! | 2 | format version, [`FORMAT_VERSION`] |
//! | 4 | number of records |
//! | per record | |
//! | 2 | record type |
//! | 2 | record version |
//! | 4 | length of the body |
//! | … | body, as `protocol/schema/records/metadata.kmsg` has it |
//!
//! Integers are big-endian. Checksums and padding are the business of the log below. Whatever is newer than this program, the
//! format, a type or a version, is an error: a record that is skipped is a state that never was.

use bytes::{Bytes, BytesMut};
use thiserror::Error;
use walser_protocol::messages::records::metadata as wire;
use walser_protocol::{DecodeError, EncodeError, Reader, Writer};

use super::records::{
    BrokerEndpoint, BrokerRegistration, ConfigResource, LeaderChange, MetadataRecord, PartitionChangeRecord,
    PartitionRecord, SupportedFeature,
};
use crate::ids::{BrokerId, DirectoryId, LeaderEpoch, TopicId, Uuid};

/// Of batches. Raised when an older program could misread what a newer one writes.
pub const FORMAT_VERSION: u16 = 1;

/// Written versions of all record types; a type that gets a second version gets a constant of its own.
const RECORD_VERSION: i16 = 0;

const LEADER_VACANT: i32 = -1;
const LEADER_UNCHANGED: i32 = -2;

/// Type, version and length in front of each body.
const RECORD_HEADER_BYTES: usize = 8;

/// Why bytes are not a batch of metadata records.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    #[error("metadata format {found}; this version of walser reads up to {FORMAT_VERSION}")]
    NewerFormat { found: u16 },
    #[error("metadata record type {record_type} version {version}, which this version of walser does not know")]
    NewerRecord { record_type: i16, version: i16 },
    #[error("metadata record type {record_type}: {source}")]
    Malformed { record_type: i16, source: DecodeError },
    #[error("metadata batch: {0}")]
    Truncated(#[from] DecodeError),
    #[error("metadata record type {record_type}: {field} is {value}")]
    OutOfRange { record_type: i16, field: &'static str, value: i64 },
}

/// One batch. Fails where a text is longer than the format can hold; nothing is written then.
pub fn encode_batch(records: &[MetadataRecord]) -> Result<Bytes, EncodeError> {
    let mut writer = Writer::with_capacity(64 + 64 * records.len());
    writer.u16(FORMAT_VERSION);
    writer.u32(u32::try_from(records.len()).unwrap_or(u32::MAX));
    for record in records {
        encode_record(record, &mut writer)?;
    }
    Ok(BytesMut::freeze(writer.into_inner()))
}

/// The records of one batch. Reads only what [`encode_batch`] of this or an older version can have written.
pub fn decode_batch(bytes: &[u8]) -> Result<Vec<MetadataRecord>, FormatError> {
    let mut reader = Reader::new(bytes);
    let found = reader.u16("format")?;
    if found > FORMAT_VERSION {
        return Err(FormatError::NewerFormat { found });
    }
    let count = reader.u32("count")? as usize;
    let mut records = Vec::with_capacity(count.min(bytes.len() / RECORD_HEADER_BYTES));
    for _ in 0..count {
        let record_type = reader.i16("record type")?;
        let version = reader.i16("record version")?;
        let len = reader.u32("record length")? as usize;
        let body = reader.take(len, "record")?;
        records.push(decode_record(record_type, version, body)?);
    }
    reader.expect_end()?;
    Ok(records)
}

/// `$body` behind its header.
macro_rules! put {
    ($writer:ident, $type:ident, $body:expr) => {{
        let body: wire::$type = $body;
        let len = body.encoded_len(RECORD_VERSION)?;
        $writer.i16(wire::$type::RECORD_TYPE);
        $writer.i16(RECORD_VERSION);
        $writer.u32(u32::try_from(len).unwrap_or(u32::MAX));
        body.encode($writer, RECORD_VERSION)
    }};
}

fn encode_record(record: &MetadataRecord, writer: &mut Writer) -> Result<(), EncodeError> {
    match record {
        MetadataRecord::Cluster { cluster_id } => put!(writer, ClusterRecord, wire::ClusterRecord { cluster_id }),
        MetadataRecord::FeatureLevel { name, level } => {
            put!(writer, FeatureLevelRecord, wire::FeatureLevelRecord { name, feature_level: *level })
        }
        MetadataRecord::RegisterBroker(broker) => put!(writer, RegisterBrokerRecord, broker_to_wire(broker)),
        MetadataRecord::Topic { topic_id, name } => {
            put!(writer, TopicRecord, wire::TopicRecord { name, topic_id: topic_id.get() })
        }
        MetadataRecord::Partition(partition) => put!(writer, PartitionRecord, partition_to_wire(partition)),
        MetadataRecord::PartitionChange(change) => put!(writer, PartitionChangeRecord, change_to_wire(change)),
        MetadataRecord::RemoveTopic { topic_id } => {
            put!(writer, RemoveTopicRecord, wire::RemoveTopicRecord { topic_id: topic_id.get() })
        }
        MetadataRecord::Config { resource, key, value } => {
            let resource_name = resource.name();
            let body = wire::ConfigRecord {
                resource_type: resource.type_number(),
                resource_name: &resource_name,
                name: key,
                value: value.as_deref(),
            };
            put!(writer, ConfigRecord, body)
        }
        MetadataRecord::ProducerIds { broker_id, broker_epoch, next_producer_id } => {
            let body = wire::ProducerIdsRecord {
                broker_id: broker_id.get(),
                broker_epoch: *broker_epoch,
                next_producer_id: *next_producer_id,
            };
            put!(writer, ProducerIdsRecord, body)
        }
        MetadataRecord::NoOp => put!(writer, NoOpRecord, wire::NoOpRecord {}),
    }
}

fn decode_record(record_type: i16, version: i16, body: &[u8]) -> Result<MetadataRecord, FormatError> {
    let mut reader = Reader::new(body);
    let malformed = |source| {
        if matches!(source, DecodeError::UnsupportedVersion { .. }) {
            FormatError::NewerRecord { record_type, version }
        } else {
            FormatError::Malformed { record_type, source }
        }
    };
    macro_rules! body {
        ($type:ident) => {
            wire::$type::decode(&mut reader, version).map_err(malformed)?
        };
    }
    let record = match record_type {
        wire::FeatureLevelRecord::RECORD_TYPE => {
            let body = body!(FeatureLevelRecord);
            MetadataRecord::FeatureLevel { name: body.name.to_owned(), level: body.feature_level }
        }
        wire::RegisterBrokerRecord::RECORD_TYPE => {
            MetadataRecord::RegisterBroker(broker_from_wire(&body!(RegisterBrokerRecord))?)
        }
        wire::TopicRecord::RECORD_TYPE => {
            let body = body!(TopicRecord);
            MetadataRecord::Topic { topic_id: topic_id(record_type, body.topic_id)?, name: body.name.to_owned() }
        }
        wire::PartitionRecord::RECORD_TYPE => MetadataRecord::Partition(partition_from_wire(&body!(PartitionRecord))?),
        wire::PartitionChangeRecord::RECORD_TYPE => {
            MetadataRecord::PartitionChange(change_from_wire(&body!(PartitionChangeRecord))?)
        }
        wire::RemoveTopicRecord::RECORD_TYPE => {
            MetadataRecord::RemoveTopic { topic_id: topic_id(record_type, body!(RemoveTopicRecord).topic_id)? }
        }
        wire::ConfigRecord::RECORD_TYPE => {
            let body = body!(ConfigRecord);
            let value = i64::from(body.resource_type);
            let resource = ConfigResource::from_wire(body.resource_type, body.resource_name)
                .ok_or(FormatError::OutOfRange { record_type, field: "resource", value })?;
            MetadataRecord::Config { resource, key: body.name.to_owned(), value: body.value.map(str::to_owned) }
        }
        wire::ProducerIdsRecord::RECORD_TYPE => {
            let body = body!(ProducerIdsRecord);
            MetadataRecord::ProducerIds {
                broker_id: broker_id(record_type, body.broker_id)?,
                broker_epoch: body.broker_epoch,
                next_producer_id: body.next_producer_id,
            }
        }
        wire::NoOpRecord::RECORD_TYPE => {
            let wire::NoOpRecord {} = body!(NoOpRecord);
            MetadataRecord::NoOp
        }
        wire::ClusterRecord::RECORD_TYPE => {
            MetadataRecord::Cluster { cluster_id: body!(ClusterRecord).cluster_id.to_owned() }
        }
        _ => return Err(FormatError::NewerRecord { record_type, version }),
    };
    reader.expect_end().map_err(malformed)?;
    Ok(record)
}

fn broker_to_wire(broker: &BrokerRegistration) -> wire::RegisterBrokerRecord<'_> {
    let end_points = broker.endpoints.iter().map(|endpoint| wire::BrokerEndpoint {
        name: &endpoint.listener_name,
        host: &endpoint.host,
        port: endpoint.port,
        security_protocol: endpoint.security_protocol,
    });
    let features = broker.features.iter().map(|feature| wire::BrokerFeature {
        name: &feature.name,
        min_supported_version: feature.level_min,
        max_supported_version: feature.level_max,
    });
    wire::RegisterBrokerRecord {
        broker_id: broker.broker_id.get(),
        broker_epoch: broker.broker_epoch,
        incarnation_id: broker.incarnation_id,
        end_points: end_points.collect(),
        features: features.collect(),
        rack: broker.rack.as_deref(),
        log_dirs: broker.directories.iter().map(|directory| directory.get()).collect(),
        fenced: broker.fenced,
    }
}

fn broker_from_wire(body: &wire::RegisterBrokerRecord<'_>) -> Result<BrokerRegistration, FormatError> {
    let endpoints = body.end_points.iter().map(|endpoint| BrokerEndpoint {
        listener_name: endpoint.name.to_owned(),
        host: endpoint.host.to_owned(),
        port: endpoint.port,
        security_protocol: endpoint.security_protocol,
    });
    let features = body.features.iter().map(|feature| SupportedFeature {
        name: feature.name.to_owned(),
        level_min: feature.min_supported_version,
        level_max: feature.max_supported_version,
    });
    Ok(BrokerRegistration {
        broker_id: broker_id(wire::RegisterBrokerRecord::RECORD_TYPE, body.broker_id)?,
        broker_epoch: body.broker_epoch,
        incarnation_id: body.incarnation_id,
        endpoints: endpoints.collect(),
        rack: body.rack.map(str::to_owned),
        features: features.collect(),
        directories: body.log_dirs.iter().copied().map(DirectoryId::new).collect(),
        fenced: body.fenced,
    })
}

fn partition_to_wire(partition: &PartitionRecord) -> wire::PartitionRecord {
    wire::PartitionRecord {
        topic_id: partition.topic_id.get(),
        partition_id: partition.partition_index,
        replicas: partition.replicas.iter().map(|broker| broker.get()).collect(),
        isr: partition.in_sync_replicas.iter().map(|broker| broker.get()).collect(),
        leader: partition.leader.map_or(LEADER_VACANT, BrokerId::get),
        leader_epoch: partition.leader_epoch.get(),
        partition_epoch: partition.partition_epoch,
        directories: partition.directories.iter().map(|directory| directory.get()).collect(),
    }
}

fn partition_from_wire(body: &wire::PartitionRecord) -> Result<PartitionRecord, FormatError> {
    let record_type = wire::PartitionRecord::RECORD_TYPE;
    let leader = match body.leader {
        LEADER_VACANT => None,
        leader => Some(broker_id(record_type, leader)?),
    };
    let epoch_value = i64::from(body.leader_epoch);
    Ok(PartitionRecord {
        topic_id: topic_id(record_type, body.topic_id)?,
        partition_index: body.partition_id,
        replicas: broker_ids(record_type, &body.replicas)?,
        in_sync_replicas: broker_ids(record_type, &body.isr)?,
        leader,
        leader_epoch: LeaderEpoch::from_wire(body.leader_epoch).ok_or(FormatError::OutOfRange {
            record_type,
            field: "leader_epoch",
            value: epoch_value,
        })?,
        partition_epoch: body.partition_epoch,
        directories: body.directories.iter().copied().map(DirectoryId::new).collect(),
    })
}

fn change_to_wire(change: &PartitionChangeRecord) -> wire::PartitionChangeRecord {
    let isr = change.in_sync_replicas.as_ref();
    wire::PartitionChangeRecord {
        topic_id: change.topic_id.get(),
        partition_id: change.partition_index,
        isr: isr.map(|replicas| replicas.iter().map(|broker| broker.get()).collect()),
        leader: match change.leader {
            None => LEADER_UNCHANGED,
            Some(LeaderChange::Vacant) => LEADER_VACANT,
            Some(LeaderChange::Elected(broker)) => broker.get(),
        },
    }
}

fn change_from_wire(body: &wire::PartitionChangeRecord) -> Result<PartitionChangeRecord, FormatError> {
    let record_type = wire::PartitionChangeRecord::RECORD_TYPE;
    Ok(PartitionChangeRecord {
        topic_id: topic_id(record_type, body.topic_id)?,
        partition_index: body.partition_id,
        in_sync_replicas: body.isr.as_deref().map(|isr| broker_ids(record_type, isr)).transpose()?,
        leader: match body.leader {
            LEADER_UNCHANGED => None,
            LEADER_VACANT => Some(LeaderChange::Vacant),
            leader => Some(LeaderChange::Elected(broker_id(record_type, leader)?)),
        },
    })
}

fn topic_id(record_type: i16, raw: Uuid) -> Result<TopicId, FormatError> {
    TopicId::from_wire(raw).ok_or(FormatError::OutOfRange { record_type, field: "topic_id", value: 0 })
}

fn broker_id(record_type: i16, raw: i32) -> Result<BrokerId, FormatError> {
    BrokerId::from_wire(raw).ok_or(FormatError::OutOfRange { record_type, field: "broker", value: i64::from(raw) })
}

fn broker_ids(record_type: i16, raw: &[i32]) -> Result<Vec<BrokerId>, FormatError> {
    raw.iter().map(|raw| broker_id(record_type, *raw)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn every_kind() -> Vec<MetadataRecord> {
        let broker = |raw| BrokerId::from_wire(raw).unwrap();
        let id = TopicId::from_wire(Uuid::from_bytes([3; 16])).unwrap();
        vec![
            MetadataRecord::Cluster { cluster_id: "cluster".to_owned() },
            MetadataRecord::FeatureLevel { name: "metadata.version".to_owned(), level: 30 },
            MetadataRecord::RegisterBroker(BrokerRegistration {
                broker_id: broker(1),
                broker_epoch: 7,
                incarnation_id: Uuid::from_bytes([1; 16]),
                endpoints: vec![BrokerEndpoint {
                    listener_name: "PLAINTEXT".to_owned(),
                    host: "::1".to_owned(),
                    port: 9092,
                    security_protocol: 0,
                }],
                rack: Some("r1".to_owned()),
                features: vec![SupportedFeature { name: "kraft.version".to_owned(), level_min: 0, level_max: 1 }],
                directories: vec![DirectoryId::new(Uuid::from_bytes([2; 16]))],
                fenced: true,
            }),
            MetadataRecord::Topic { topic_id: id, name: "orders".to_owned() },
            MetadataRecord::Partition(PartitionRecord {
                topic_id: id,
                partition_index: 2,
                replicas: vec![broker(1), broker(2)],
                in_sync_replicas: vec![broker(2)],
                leader: None,
                leader_epoch: LeaderEpoch::from_wire(4).unwrap(),
                partition_epoch: 9,
                directories: vec![DirectoryId::UNASSIGNED, DirectoryId::UNASSIGNED],
            }),
            MetadataRecord::PartitionChange(PartitionChangeRecord {
                topic_id: id,
                partition_index: 0,
                in_sync_replicas: Some(vec![broker(0)]),
                leader: Some(LeaderChange::Elected(broker(0))),
            }),
            MetadataRecord::PartitionChange(PartitionChangeRecord {
                topic_id: id,
                partition_index: 0,
                in_sync_replicas: None,
                leader: Some(LeaderChange::Vacant),
            }),
            MetadataRecord::PartitionChange(PartitionChangeRecord {
                topic_id: id,
                partition_index: 0,
                in_sync_replicas: None,
                leader: None,
            }),
            MetadataRecord::RemoveTopic { topic_id: id },
            config(ConfigResource::Topic("orders".to_owned()), Some("1")),
            config(ConfigResource::Broker(broker(3)), Some("")),
            config(ConfigResource::DefaultBroker, None),
            config(ConfigResource::Group("g".to_owned()), Some("x")),
            config(ConfigResource::ClientMetrics("m".to_owned()), Some("x")),
            MetadataRecord::ProducerIds { broker_id: broker(1), broker_epoch: 3, next_producer_id: 2000 },
            MetadataRecord::NoOp,
        ]
    }

    fn config(resource: ConfigResource, value: Option<&str>) -> MetadataRecord {
        MetadataRecord::Config { resource, key: "key".to_owned(), value: value.map(str::to_owned) }
    }

    #[test]
    fn every_kind_of_record_survives() {
        // Rule: decode(encode(records)) == records.
        let records = every_kind();
        assert_eq!(decode_batch(&encode_batch(&records).unwrap()), Ok(records));
        assert_eq!(decode_batch(&encode_batch(&[]).unwrap()), Ok(Vec::new()));
    }

    #[test]
    fn what_is_newer_is_refused() {
        // Rule: a newer format, type or version is an error that says so, never a record left out.
        let bytes = encode_batch(&[MetadataRecord::NoOp]).unwrap();
        let mut newer = bytes.to_vec();
        newer[1] += 1;
        assert_eq!(decode_batch(&newer), Err(FormatError::NewerFormat { found: FORMAT_VERSION + 1 }));
        let mut kind = bytes.to_vec();
        kind[7] = 99;
        assert_eq!(decode_batch(&kind), Err(FormatError::NewerRecord { record_type: 99, version: 0 }));
        let mut version = bytes.to_vec();
        version[9] = 1;
        assert_eq!(decode_batch(&version), Err(FormatError::NewerRecord { record_type: 8, version: 1 }));
    }

    #[test]
    fn a_text_that_does_not_fit_is_an_error() {
        // Rule: what cannot be read back is not written.
        let long = "x".repeat(usize::from(u16::MAX));
        assert!(encode_batch(&[config(ConfigResource::DefaultBroker, Some(&long))]).is_err());
    }

    proptest! {
        #[test]
        fn damaged_bytes_never_panic(position in any::<prop::sample::Index>(), value in any::<u8>(), cut in any::<prop::sample::Index>()) {
            // Rule: any bytes decode or are an error.
            let mut bytes = encode_batch(&every_kind()).unwrap().to_vec();
            let len = bytes.len();
            bytes[position.index(len)] = value;
            drop(decode_batch(&bytes));
            drop(decode_batch(&bytes[..cut.index(len)]));
        }
    }
}
