//! The state of the cluster after a prefix of the metadata log.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use thiserror::Error;

use super::delta::{DeltaBuilder, MetadataDelta};
use super::records::{
    BrokerRegistration, ConfigResource, LeaderChange, MetadataRecord, PartitionChangeRecord, PartitionRecord,
};
use super::shared_map::SharedMap;
use crate::ids::{BrokerId, DirectoryId, LeaderEpoch, TopicId};

/// Topics, partitions, configs, brokers and features at one point of the metadata log. Immutable once built, `Send` and `Sync`;
/// two successive images share all that did not change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataImage {
    /// Record batches applied so far, over the whole life of the log: the next batch has this offset.
    end_offset: u64,
    cluster_id: String,
    topics_by_name: SharedMap<Arc<str>, Arc<TopicImage>>,
    /// The same topics; an index, never different from the one by name.
    topics_by_id: SharedMap<TopicId, Arc<TopicImage>>,
    configs: SharedMap<ConfigResource, Arc<BTreeMap<String, String>>>,
    brokers: BTreeMap<BrokerId, Arc<BrokerRegistration>>,
    features: BTreeMap<String, i16>,
    next_producer_id: i64,
}

/// One topic and all its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicImage {
    pub topic_id: TopicId,
    pub name: Arc<str>,
    /// The position in the list is the partition index.
    pub partitions: Vec<PartitionImage>,
}

impl TopicImage {
    /// `None` for indexes the topic does not have, negative ones included.
    pub fn partition(&self, partition_index: i32) -> Option<&PartitionImage> {
        self.partitions.get(usize::try_from(partition_index).ok()?)
    }
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionImage {
    pub replicas: Vec<BrokerId>,
    pub in_sync_replicas: Vec<BrokerId>,
    pub leader: Option<BrokerId>,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: i32,
    /// One per replica, in the same order.
    pub directories: Vec<DirectoryId>,
}

/// A record that cannot follow the ones before it: the log is damaged, or was written by something else.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReplayError {
    #[error("a record names topic {topic_id}, which does not exist at this point of the log")]
    UnknownTopic { topic_id: TopicId },
    #[error("topic {name} is created as {topic_id} while {existing} still has the name or the id")]
    TopicExists { name: String, topic_id: TopicId, existing: TopicId },
    #[error(
        "partition {partition_index} of topic {topic_id} is out of order: the topic has {partition_count} partitions"
    )]
    PartitionOutOfOrder { topic_id: TopicId, partition_index: i32, partition_count: usize },
    #[error("the log belongs to cluster {known} and then to {named}")]
    ClusterChanged { known: String, named: String },
    #[error("producer ids go back from {known} to {named}")]
    ProducerIdsWentBack { known: i64, named: i64 },
}

/// A finalized feature is newer than this program.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the metadata has feature {name} at level {level}; this version of walser knows levels up to {level_max}")]
pub struct UnsupportedFeature {
    pub name: String,
    pub level: i16,
    pub level_max: i16,
}

impl MetadataImage {
    /// Record batches applied so far; ascends with every change, so it also serves as the features' epoch.
    pub fn end_offset(&self) -> u64 {
        self.end_offset
    }

    /// Empty before the first record.
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    pub fn topic(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.topics_by_name.get(name)
    }

    pub fn topic_by_id(&self, topic_id: TopicId) -> Option<&Arc<TopicImage>> {
        self.topics_by_id.get(&topic_id)
    }

    /// In order of name.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<TopicImage>> {
        self.topics_by_name.iter().map(|(_, topic)| topic)
    }

    /// In order of name, from `first` on (inclusive; it need not exist).
    pub fn topics_from<'a>(&'a self, first: &str) -> impl Iterator<Item = &'a Arc<TopicImage>> {
        self.topics_by_name.iter_from(first).map(|(_, topic)| topic)
    }

    pub fn topic_count(&self) -> usize {
        self.topics_by_name.len()
    }

    /// Keys set on exactly this resource, in order; empty where none are.
    pub fn configs(&self, resource: &ConfigResource) -> &Arc<BTreeMap<String, String>> {
        static NONE: LazyLock<Arc<BTreeMap<String, String>>> = LazyLock::new(Arc::default);
        self.configs.get(resource).unwrap_or(&NONE)
    }

    pub fn topic_configs(&self, name: &str) -> &Arc<BTreeMap<String, String>> {
        self.configs(&ConfigResource::Topic(name.to_owned()))
    }

    /// Resources that have at least one key, in order.
    pub fn config_resources(&self) -> impl Iterator<Item = &ConfigResource> {
        self.configs.iter().map(|(resource, _)| resource)
    }

    pub fn broker(&self, broker_id: BrokerId) -> Option<&Arc<BrokerRegistration>> {
        self.brokers.get(&broker_id)
    }

    /// In order of id, fenced ones included.
    pub fn brokers(&self) -> impl Iterator<Item = &Arc<BrokerRegistration>> {
        self.brokers.values()
    }

    /// 0 where the feature is not finalized.
    pub fn feature_level(&self, name: &str) -> i16 {
        self.features.get(name).copied().unwrap_or(0)
    }

    /// Finalized features in order of name.
    pub fn features(&self) -> impl Iterator<Item = (&str, i16)> {
        self.features.iter().map(|(name, level)| (name.as_str(), *level))
    }

    /// The lowest producer id that was never given away.
    pub fn next_producer_id(&self) -> i64 {
        self.next_producer_id
    }

    /// `supported`: highest level of every feature this program knows. What it does not know it must not serve.
    pub fn verify_features(&self, supported: &BTreeMap<String, i16>) -> Result<(), UnsupportedFeature> {
        for (name, &level) in &self.features {
            let level_max = supported.get(name).copied().unwrap_or(0);
            if level > level_max {
                return Err(UnsupportedFeature { name: name.clone(), level, level_max });
            }
        }
        Ok(())
    }

    /// The shortest log that leads to this image, but for its offset. What a snapshot holds.
    pub fn to_records(&self) -> Vec<MetadataRecord> {
        let mut records = Vec::new();
        if !self.cluster_id.is_empty() {
            records.push(MetadataRecord::Cluster { cluster_id: self.cluster_id.clone() });
        }
        for (name, &level) in &self.features {
            records.push(MetadataRecord::FeatureLevel { name: name.clone(), level });
        }
        for broker in self.brokers.values() {
            records.push(MetadataRecord::RegisterBroker(broker.as_ref().clone()));
            if self.next_producer_id > 0 && Some(broker.broker_id) == self.brokers.keys().next().copied() {
                records.push(self.producer_ids_record(broker.broker_id, broker.broker_epoch));
            }
        }
        if self.brokers.is_empty() && self.next_producer_id > 0 {
            records.push(self.producer_ids_record(BrokerId::ZERO, -1));
        }
        for topic in self.topics() {
            records.push(MetadataRecord::Topic { topic_id: topic.topic_id, name: topic.name.to_string() });
            records.extend(
                (0..).zip(&topic.partitions).map(|(index, partition)| partition.to_record(topic.topic_id, index)),
            );
        }
        for (resource, configs) in self.configs.iter() {
            records.extend(configs.iter().map(|(key, value)| MetadataRecord::Config {
                resource: resource.clone(),
                key: key.clone(),
                value: Some(value.clone()),
            }));
        }
        records
    }

    fn producer_ids_record(&self, broker_id: BrokerId, broker_epoch: i64) -> MetadataRecord {
        MetadataRecord::ProducerIds { broker_id, broker_epoch, next_producer_id: self.next_producer_id }
    }

    fn put_topic(&mut self, topic: &Arc<TopicImage>) {
        self.topics_by_name.insert(topic.name.clone(), topic.clone());
        self.topics_by_id.insert(topic.topic_id, topic.clone());
    }
}

impl PartitionImage {
    fn to_record(&self, topic_id: TopicId, partition_index: i32) -> MetadataRecord {
        MetadataRecord::Partition(PartitionRecord {
            topic_id,
            partition_index,
            replicas: self.replicas.clone(),
            in_sync_replicas: self.in_sync_replicas.clone(),
            leader: self.leader,
            leader_epoch: self.leader_epoch,
            partition_epoch: self.partition_epoch,
            directories: self.directories.clone(),
        })
    }

    fn from_record(record: &PartitionRecord) -> Self {
        Self {
            replicas: record.replicas.clone(),
            in_sync_replicas: record.in_sync_replicas.clone(),
            leader: record.leader,
            leader_epoch: record.leader_epoch,
            partition_epoch: record.partition_epoch,
            directories: record.directories.clone(),
        }
    }
}

/// Saturates: an epoch that wrapped would let a fenced leader write again.
fn next_leader_epoch(epoch: LeaderEpoch) -> LeaderEpoch {
    epoch.get().checked_add(1).and_then(LeaderEpoch::from_wire).unwrap_or(epoch)
}

/// Applies records to an image. The image it started from stays as it was.
#[derive(Debug)]
pub struct ImageBuilder {
    next: MetadataImage,
    delta: DeltaBuilder,
}

impl ImageBuilder {
    pub fn new(base: &MetadataImage) -> Self {
        Self { next: base.clone(), delta: DeltaBuilder::default() }
    }

    /// The state so far; a command that follows another one reads it before either is committed.
    pub fn image(&self) -> &MetadataImage {
        &self.next
    }

    /// Applies one batch, all or nothing as far as the log is concerned: after an error the builder is of no more use.
    pub fn replay_batch(&mut self, records: &[MetadataRecord]) -> Result<(), ReplayError> {
        for record in records {
            self.replay_record(record)?;
        }
        self.next.end_offset += 1;
        Ok(())
    }

    /// Applies what a snapshot holds and takes over its offset.
    pub fn replay_snapshot(&mut self, records: &[MetadataRecord], end_offset: u64) -> Result<(), ReplayError> {
        for record in records {
            self.replay_record(record)?;
        }
        self.next.end_offset = end_offset;
        Ok(())
    }

    /// The new image, and what differs from the one this builder started with.
    pub fn finish(self) -> (Arc<MetadataImage>, MetadataDelta) {
        let delta = self.delta.finish(&self.next);
        (Arc::new(self.next), delta)
    }

    fn replay_record(&mut self, record: &MetadataRecord) -> Result<(), ReplayError> {
        match record {
            MetadataRecord::Cluster { cluster_id } => self.replay_cluster(cluster_id),
            MetadataRecord::FeatureLevel { name, level } => {
                if *level == 0 {
                    self.next.features.remove(name);
                } else {
                    self.next.features.insert(name.clone(), *level);
                }
                self.delta.features_changed = true;
                Ok(())
            }
            MetadataRecord::RegisterBroker(registration) => {
                self.next.brokers.insert(registration.broker_id, Arc::new(registration.clone()));
                self.delta.brokers_changed = true;
                Ok(())
            }
            MetadataRecord::Topic { topic_id, name } => self.replay_topic(*topic_id, name),
            MetadataRecord::Partition(partition) => self.replay_partition(partition),
            MetadataRecord::PartitionChange(change) => self.replay_partition_change(change),
            MetadataRecord::RemoveTopic { topic_id } => self.replay_remove_topic(*topic_id),
            MetadataRecord::Config { resource, key, value } => {
                self.replay_config(resource, key, value.as_ref());
                Ok(())
            }
            MetadataRecord::ProducerIds { next_producer_id, .. } => {
                let known = self.next.next_producer_id;
                if *next_producer_id < known {
                    return Err(ReplayError::ProducerIdsWentBack { known, named: *next_producer_id });
                }
                self.next.next_producer_id = *next_producer_id;
                Ok(())
            }
            MetadataRecord::NoOp => Ok(()),
        }
    }

    fn replay_cluster(&mut self, cluster_id: &str) -> Result<(), ReplayError> {
        let known = &self.next.cluster_id;
        if !known.is_empty() && known != cluster_id {
            return Err(ReplayError::ClusterChanged { known: known.clone(), named: cluster_id.to_owned() });
        }
        cluster_id.clone_into(&mut self.next.cluster_id);
        Ok(())
    }

    fn replay_topic(&mut self, topic_id: TopicId, name: &str) -> Result<(), ReplayError> {
        if let Some(existing) = self.next.topic(name).or_else(|| self.next.topic_by_id(topic_id)) {
            return Err(ReplayError::TopicExists { name: name.to_owned(), topic_id, existing: existing.topic_id });
        }
        let topic = Arc::new(TopicImage { topic_id, name: name.into(), partitions: Vec::new() });
        self.delta.touch_topic(topic_id, None);
        self.next.put_topic(&topic);
        Ok(())
    }

    fn replay_partition(&mut self, record: &PartitionRecord) -> Result<(), ReplayError> {
        let partition = PartitionImage::from_record(record);
        self.change_topic(record.topic_id, |topic| {
            let partition_count = topic.partitions.len();
            let index = usize::try_from(record.partition_index).unwrap_or(usize::MAX);
            match topic.partitions.get_mut(index) {
                Some(known) => *known = partition,
                None if index == partition_count => topic.partitions.push(partition),
                None => {
                    return Err(ReplayError::PartitionOutOfOrder {
                        topic_id: record.topic_id,
                        partition_index: record.partition_index,
                        partition_count,
                    });
                }
            }
            Ok(())
        })
    }

    fn replay_partition_change(&mut self, change: &PartitionChangeRecord) -> Result<(), ReplayError> {
        self.change_topic(change.topic_id, |topic| {
            let partition_count = topic.partitions.len();
            let known = usize::try_from(change.partition_index).ok().and_then(|index| topic.partitions.get_mut(index));
            let Some(partition) = known else {
                return Err(ReplayError::PartitionOutOfOrder {
                    topic_id: change.topic_id,
                    partition_index: change.partition_index,
                    partition_count,
                });
            };
            if let Some(in_sync_replicas) = &change.in_sync_replicas {
                partition.in_sync_replicas.clone_from(in_sync_replicas);
            }
            if let Some(leader) = change.leader {
                partition.leader = match leader {
                    LeaderChange::Vacant => None,
                    LeaderChange::Elected(broker) => Some(broker),
                };
                partition.leader_epoch = next_leader_epoch(partition.leader_epoch);
            }
            partition.partition_epoch = partition.partition_epoch.saturating_add(1);
            Ok(())
        })
    }

    fn replay_remove_topic(&mut self, topic_id: TopicId) -> Result<(), ReplayError> {
        let Some(topic) = self.next.topics_by_id.remove(&topic_id) else {
            return Err(ReplayError::UnknownTopic { topic_id });
        };
        self.next.topics_by_name.remove(topic.name.as_ref());
        let configs = ConfigResource::Topic(topic.name.to_string());
        if self.next.configs.remove(&configs).is_some() {
            self.delta.configs_changed.insert(configs);
        }
        self.delta.touch_topic(topic_id, Some(topic));
        Ok(())
    }

    fn replay_config(&mut self, resource: &ConfigResource, key: &str, value: Option<&String>) {
        let mut configs = self.next.configs.remove(resource).unwrap_or_default();
        let map = Arc::make_mut(&mut configs);
        match value {
            Some(value) => drop(map.insert(key.to_owned(), value.clone())),
            None => drop(map.remove(key)),
        }
        if !configs.is_empty() {
            self.next.configs.insert(resource.clone(), configs);
        }
        self.delta.configs_changed.insert(resource.clone());
    }

    fn change_topic(
        &mut self,
        topic_id: TopicId,
        change: impl FnOnce(&mut TopicImage) -> Result<(), ReplayError>,
    ) -> Result<(), ReplayError> {
        // Both indexes let go of the topic first, so that a batch that makes a thousand partitions copies nothing a thousand times.
        let Some(mut topic) = self.next.topics_by_id.remove(&topic_id) else {
            return Err(ReplayError::UnknownTopic { topic_id });
        };
        self.next.topics_by_name.remove(topic.name.as_ref());
        self.delta.touch_topic_before_change(&topic);
        let outcome = change(Arc::make_mut(&mut topic));
        self.next.put_topic(&topic);
        outcome
    }
}

#[cfg(test)]
mod tests;
