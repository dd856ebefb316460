//! Topics as groups see them: which exist, under which ids, and a hash that tells whether any of them changed.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use twox_hash::XxHash3_64;

use super::member::Subscription;
use super::records::ResolvedRegex;
use crate::ids::TopicId;
use crate::metadata::delta::MetadataDelta;
use crate::metadata::image::{MetadataImage, TopicImage};

/// First byte of what is hashed of a topic: the version of that layout.
const TOPIC_HASH_VERSION: u8 = 0;

/// The metadata a coordinator works with.
#[derive(Debug, Default)]
pub struct Topics {
    image: Arc<MetadataImage>,
    version: u64,
    created_at: i64,
    hashes: RefCell<BTreeMap<TopicId, (Arc<TopicImage>, i64)>>,
}

impl Topics {
    pub fn new(image: Arc<MetadataImage>) -> Self {
        let created_at = metadata_version(&image);
        Self { image, version: 0, created_at, hashes: RefCell::default() }
    }

    /// `delta` is what sets `image` apart from the one before.
    pub fn update(&mut self, image: Arc<MetadataImage>, delta: &MetadataDelta) {
        self.image = image;
        if !delta.topics_created.is_empty() {
            self.created_at = self.metadata_version();
        }
        let topics_changed =
            [!delta.topics_created.is_empty(), !delta.topics_deleted.is_empty(), !delta.topics_changed.is_empty()];
        if topics_changed.contains(&true) || delta.brokers_changed {
            self.version += 1;
        }
        let hashes = self.hashes.get_mut();
        if delta.brokers_changed {
            // Racks may have changed.
            hashes.clear();
        }
        for topic in &delta.topics_deleted {
            hashes.remove(&topic.topic_id);
        }
    }

    pub fn image(&self) -> &Arc<MetadataImage> {
        &self.image
    }

    /// Changes whenever a group's metadata hash may.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Of the metadata in all.
    pub fn metadata_version(&self) -> i64 {
        metadata_version(&self.image)
    }

    /// Version of the metadata when a topic was last created.
    pub fn created_at(&self) -> i64 {
        self.created_at
    }

    pub fn id(&self, name: &str) -> Option<TopicId> {
        self.image.topic(name).map(|topic| topic.topic_id)
    }

    pub fn name(&self, topic_id: TopicId) -> Option<&Arc<str>> {
        self.image.topic_by_id(topic_id).map(|topic| &topic.name)
    }

    pub fn partition_count(&self, topic_id: TopicId) -> Option<usize> {
        self.image.topic_by_id(topic_id).map(|topic| topic.partitions.len())
    }

    /// Topics that exist of those a member subscribes to. A regular expression that is not resolved matches none.
    pub fn subscribed_ids(
        &self,
        subscription: &Subscription,
        regexes: &BTreeMap<Arc<str>, ResolvedRegex>,
    ) -> BTreeSet<TopicId> {
        let resolved = subscription.regex().and_then(|regex| regexes.get(regex));
        let by_regex = resolved.iter().flat_map(|resolved| resolved.topic_names.iter());
        subscription.topic_names.iter().chain(by_regex).filter_map(|name| self.id(name)).collect()
    }

    /// Of the topics that exist, in the order of their names; 0 for none. The same number as Kafka 4.4 has in its records.
    pub fn hash(&self, names: &BTreeSet<&str>) -> i64 {
        let mut bytes = Vec::with_capacity(names.len() * size_of::<i64>());
        for topic in names.iter().filter_map(|name| self.image.topic(name)) {
            bytes.extend(self.topic_hash(topic).to_le_bytes());
        }
        if bytes.is_empty() { 0 } else { hash(&bytes) }
    }

    fn topic_hash(&self, topic: &Arc<TopicImage>) -> i64 {
        let mut hashes = self.hashes.borrow_mut();
        if let Some((hashed, hash)) = hashes.get(&topic.topic_id)
            && Arc::ptr_eq(hashed, topic)
        {
            return *hash;
        }
        let hash = self.compute_topic_hash(topic);
        hashes.insert(topic.topic_id, (topic.clone(), hash));
        hash
    }

    /// Version, id, name, partitions, and of each partition the racks of its replicas. Integers are little-endian, strings
    /// UTF-16 with their length behind.
    fn compute_topic_hash(&self, topic: &TopicImage) -> i64 {
        let mut bytes = vec![TOPIC_HASH_VERSION];
        let id = topic.topic_id.get();
        let (most, least) = id.as_bytes().split_at(8);
        bytes.extend(most.iter().rev().chain(least.iter().rev()));
        put_string(&mut bytes, &topic.name);
        put_len(&mut bytes, topic.partitions.len());
        for (index, partition) in topic.partitions.iter().enumerate() {
            put_len(&mut bytes, index);
            let brokers = partition.replicas.iter().filter_map(|replica| self.image.broker(*replica));
            let mut racks: Vec<&str> = brokers.filter_map(|broker| broker.rack.as_deref()).collect();
            racks.sort_unstable();
            for rack in racks {
                put_len(&mut bytes, rack.encode_utf16().count());
                put_string(&mut bytes, rack);
            }
        }
        hash(&bytes)
    }
}

fn metadata_version(image: &MetadataImage) -> i64 {
    i64::try_from(image.end_offset()).unwrap_or(i64::MAX)
}

fn hash(bytes: &[u8]) -> i64 {
    XxHash3_64::oneshot(bytes).cast_signed()
}

fn put_string(bytes: &mut Vec<u8>, text: &str) {
    text.encode_utf16().for_each(|unit| bytes.extend(unit.to_le_bytes()));
    put_len(bytes, text.encode_utf16().count());
}

fn put_len(bytes: &mut Vec<u8>, len: usize) {
    bytes.extend(i32::try_from(len).unwrap_or(i32::MAX).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{BrokerId, LeaderEpoch};
    use crate::metadata::image::{ImageBuilder, PartitionImage};
    use crate::metadata::records::{BrokerRegistration, MetadataRecord};
    use walser_protocol::types::Uuid;

    fn broker(node_id: i32, rack: &str) -> MetadataRecord {
        MetadataRecord::RegisterBroker(BrokerRegistration {
            broker_id: BrokerId::from_wire(node_id).expect("not negative"),
            broker_epoch: 0,
            incarnation_id: Uuid::ZERO,
            endpoints: Vec::new(),
            rack: Some(rack.to_owned()),
            features: Vec::new(),
            directories: Vec::new(),
            fenced: false,
        })
    }

    fn topic(name: &str, replicas: &[&[i32]]) -> TopicImage {
        let id = Uuid::from_bytes(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10_u128.to_be_bytes());
        let partition = |replicas: &&[i32]| PartitionImage {
            replicas: replicas.iter().map(|id| BrokerId::from_wire(*id).expect("not negative")).collect(),
            in_sync_replicas: Vec::new(),
            leader: None,
            leader_epoch: LeaderEpoch::ZERO,
            partition_epoch: 0,
            directories: Vec::new(),
        };
        TopicImage {
            topic_id: TopicId::from_wire(id).expect("not zero"),
            name: name.into(),
            partitions: replicas.iter().map(partition).collect(),
        }
    }

    #[test]
    fn hashes_are_those_that_kafka_computes() {
        // Rule: the numbers are what hash4j's xxh3_64 gives for the same fields, as Kafka 4.4 feeds it.
        let mut builder = ImageBuilder::new(&MetadataImage::default());
        builder.replay_batch(&[broker(0, "rack0"), broker(1, "rack1"), broker(2, "rack2")]).expect("brokers");
        let topics = Topics::new(builder.finish().0);
        assert_eq!(topics.compute_topic_hash(&topic("foo", &[&[1, 0], &[1, 2]])), -7_881_643_745_322_667_710);
        assert_eq!(hash(&(-7_881_643_745_322_667_710_i64).to_le_bytes()), -4_165_538_910_685_952_493);
        let long = "a-topic-with-a-name-that-is-rather-long-so-that-other-branches-of-the-hash-are-taken-0123456789-0123456789-0123456789";
        assert_eq!(topics.compute_topic_hash(&topic(long, &[&[] as &[i32]; 40])), 4_449_230_237_002_700_058);
        assert_eq!(topics.hash(&BTreeSet::from(["no-such-topic"])), 0);
    }
}
