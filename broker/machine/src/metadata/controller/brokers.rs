//! Brokers coming up, and the producer ids they ask for.

use super::{ControlError, Controller, PRODUCER_ID_BLOCK_IDS};
use crate::ids::{BrokerId, DirectoryId, Uuid};
use crate::metadata::image::MetadataImage;
use crate::metadata::records::{
    BrokerEndpoint, BrokerRegistration, LeaderChange, MetadataRecord, PartitionChangeRecord, SupportedFeature,
};

/// A broker process announces itself: where it listens, what it can do, which directories it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterBroker {
    pub broker_id: BrokerId,
    /// Random per process: tells a restart from a repeated announcement.
    pub incarnation_id: Uuid,
    pub endpoints: Vec<BrokerEndpoint>,
    pub rack: Option<String>,
    pub features: Vec<SupportedFeature>,
    pub directories: Vec<DirectoryId>,
}

/// The answer to a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisteredBroker {
    pub broker_epoch: i64,
}

/// Producer ids from `first` on, `len` of them, for one broker alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerIdBlock {
    pub first: i64,
    pub len: i64,
}

impl Controller {
    /// A new incarnation starts a new leader epoch on every partition the broker leads: it may have lost records that were never
    /// flushed, and clients and followers find out by the epoch.
    pub(super) fn register_broker(
        &self,
        image: &MetadataImage,
        request: RegisterBroker,
    ) -> (RegisteredBroker, Vec<MetadataRecord>) {
        let known = image.broker(request.broker_id);
        let broker_epoch = match known {
            Some(known) if known.incarnation_id == request.incarnation_id => known.broker_epoch,
            // The log only grows, so its end has never been the epoch of an earlier registration.
            _ => i64::try_from(image.end_offset()).unwrap_or(i64::MAX),
        };
        let is_restart = known.is_none_or(|known| known.incarnation_id != request.incarnation_id);
        let broker_id = request.broker_id;
        let mut records = vec![MetadataRecord::RegisterBroker(BrokerRegistration {
            broker_id,
            broker_epoch,
            incarnation_id: request.incarnation_id,
            endpoints: request.endpoints,
            rack: request.rack,
            features: request.features,
            directories: request.directories,
            fenced: false,
        })];
        if is_restart {
            for topic in image.topics() {
                for (partition_index, partition) in (0..).zip(&topic.partitions) {
                    // Only an in-sync replica may lead: another one would cut what the in-sync ones have acknowledged.
                    let vacant = partition.leader.is_none() && partition.in_sync_replicas.contains(&broker_id);
                    if partition.leader == Some(broker_id) || vacant {
                        records.push(MetadataRecord::PartitionChange(PartitionChangeRecord {
                            topic_id: topic.topic_id,
                            partition_index,
                            in_sync_replicas: None,
                            leader: Some(LeaderChange::Elected(broker_id)),
                        }));
                    }
                }
            }
        }
        (RegisteredBroker { broker_epoch }, records)
    }

    pub(super) fn allocate_producer_ids(
        &self,
        image: &MetadataImage,
        broker_id: BrokerId,
    ) -> (Result<ProducerIdBlock, ControlError>, Vec<MetadataRecord>) {
        let Some(broker) = image.broker(broker_id) else {
            return (Err(ControlError::BrokerNotRegistered { broker_id }), Vec::new());
        };
        let first = image.next_producer_id();
        let Some(next_producer_id) = first.checked_add(PRODUCER_ID_BLOCK_IDS) else {
            return (Err(ControlError::ProducerIdsExhausted), Vec::new());
        };
        let record = MetadataRecord::ProducerIds { broker_id, broker_epoch: broker.broker_epoch, next_producer_id };
        (Ok(ProducerIdBlock { first, len: PRODUCER_ID_BLOCK_IDS }), vec![record])
    }
}
