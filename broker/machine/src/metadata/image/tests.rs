use proptest::prelude::*;

use super::*;
use crate::ids::Uuid;

fn broker(raw: i32) -> BrokerId {
    BrokerId::from_wire(raw).unwrap()
}

fn topic_id(raw: u128) -> TopicId {
    TopicId::from_wire(Uuid::from_bytes(raw.to_be_bytes())).unwrap()
}

fn replica_set(seed: u8) -> Vec<BrokerId> {
    (0..=i32::from(seed % 3)).map(broker).collect()
}

/// A step that may or may not be possible; topics are few, so that they are made, changed, deleted and made again.
#[derive(Clone, Debug)]
enum Step {
    Make { name: u8, partitions: u8 },
    Grow { name: u8 },
    Lead { name: u8, leader: Option<i32> },
    Delete { name: u8 },
    Config { name: u8, key: u8, value: Option<u8> },
    Broker { id: u8, port: u16 },
    ProducerIds,
    Feature { level: i16 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u8..6, 0u8..4).prop_map(|(name, partitions)| Step::Make { name, partitions }),
        (0u8..6).prop_map(|name| Step::Grow { name }),
        (0u8..6, proptest::option::of(0i32..3)).prop_map(|(name, leader)| Step::Lead { name, leader }),
        (0u8..6).prop_map(|name| Step::Delete { name }),
        (0u8..6, 0u8..3, proptest::option::of(any::<u8>())).prop_map(|(name, key, value)| Step::Config {
            name,
            key,
            value
        }),
        (0u8..3, any::<u16>()).prop_map(|(id, port)| Step::Broker { id, port }),
        Just(Step::ProducerIds),
        (0i16..3).prop_map(|level| Step::Feature { level }),
    ]
}

fn partition(topic_id: TopicId, partition_index: i32, seed: u8) -> MetadataRecord {
    MetadataRecord::Partition(PartitionRecord {
        topic_id,
        partition_index,
        replicas: replica_set(seed),
        in_sync_replicas: replica_set(seed),
        leader: Some(broker(0)),
        leader_epoch: LeaderEpoch::ZERO,
        partition_epoch: 0,
        directories: replica_set(seed).iter().map(|_| DirectoryId::UNASSIGNED).collect(),
    })
}

fn records_of(image: &MetadataImage, serial: usize, step: &Step) -> Vec<MetadataRecord> {
    let known = |name: u8| image.topic(&format!("topic-{name}")).cloned();
    match *step {
        Step::Make { name, partitions } => {
            if known(name).is_some() {
                return Vec::new();
            }
            let topic_id = topic_id(serial as u128 + 1);
            let topic = MetadataRecord::Topic { topic_id, name: format!("topic-{name}") };
            let partitions = (0..i32::from(partitions)).map(|index| partition(topic_id, index, name));
            std::iter::once(topic).chain(partitions).collect()
        }
        Step::Grow { name } => known(name)
            .map(|topic| vec![partition(topic.topic_id, topic.partitions.len() as i32, name + 1)])
            .unwrap_or_default(),
        Step::Lead { name, leader } => known(name)
            .filter(|topic| !topic.partitions.is_empty())
            .map(|topic| {
                vec![MetadataRecord::PartitionChange(PartitionChangeRecord {
                    topic_id: topic.topic_id,
                    partition_index: 0,
                    in_sync_replicas: leader.map(|id| vec![broker(id)]),
                    leader: Some(leader.map_or(LeaderChange::Vacant, |id| LeaderChange::Elected(broker(id)))),
                })]
            })
            .unwrap_or_default(),
        Step::Delete { name } => {
            known(name).map(|topic| vec![MetadataRecord::RemoveTopic { topic_id: topic.topic_id }]).unwrap_or_default()
        }
        Step::Config { name, key, value } => vec![MetadataRecord::Config {
            resource: match known(name) {
                Some(topic) => ConfigResource::Topic(topic.name.to_string()),
                None => ConfigResource::DefaultBroker,
            },
            key: format!("key-{key}"),
            value: value.map(|value| value.to_string()),
        }],
        Step::Broker { id, port } => vec![MetadataRecord::RegisterBroker(BrokerRegistration {
            broker_id: broker(i32::from(id)),
            broker_epoch: serial as i64,
            incarnation_id: Uuid::from_bytes([id; 16]),
            endpoints: vec![crate::metadata::records::BrokerEndpoint {
                listener_name: "PLAINTEXT".to_owned(),
                host: "localhost".to_owned(),
                port,
                security_protocol: 0,
            }],
            rack: None,
            features: Vec::new(),
            directories: Vec::new(),
            fenced: false,
        })],
        Step::ProducerIds => vec![MetadataRecord::ProducerIds {
            broker_id: broker(0),
            broker_epoch: 0,
            next_producer_id: image.next_producer_id() + 1000,
        }],
        Step::Feature { level } => {
            vec![MetadataRecord::FeatureLevel { name: "metadata.version".to_owned(), level }]
        }
    }
}

/// What must hold of every image.
fn verify(image: &MetadataImage) {
    assert_eq!(image.topics_by_name.len(), image.topics_by_id.len());
    for topic in image.topics() {
        let by_id = image.topic_by_id(topic.topic_id).expect("indexed by id");
        assert!(Arc::ptr_eq(topic, by_id), "both indexes hold the same topic");
    }
}

proptest! {
    #[test]
    fn a_snapshot_replays_to_the_same_image(steps in proptest::collection::vec(step(), 0..60)) {
        // Rule: replay(snapshot(image)) == image, at any point of any log.
        let mut image = Arc::new(MetadataImage::default());
        for (serial, step) in steps.iter().enumerate() {
            let records = records_of(&image, serial, step);
            let mut builder = ImageBuilder::new(&image);
            builder.replay_batch(&records).unwrap();
            image = builder.finish().0;
            verify(&image);
        }
        let mut builder = ImageBuilder::new(&MetadataImage::default());
        builder.replay_snapshot(&image.to_records(), image.end_offset()).unwrap();
        prop_assert_eq!(builder.finish().0, image);
    }

    #[test]
    fn a_delta_names_exactly_what_differs(
        first in proptest::collection::vec(step(), 0..30),
        second in proptest::collection::vec(step(), 0..10),
    ) {
        // Rule: old topics minus deleted plus created plus changed are the new topics; the old image stays as it was.
        let mut builder = ImageBuilder::new(&MetadataImage::default());
        for (serial, step) in first.iter().enumerate() {
            let records = records_of(builder.image(), serial, step);
            builder.replay_batch(&records).unwrap();
        }
        let old = builder.finish().0;
        let kept: Vec<_> = old.topics().map(|topic| topic.as_ref().clone()).collect();
        let mut builder = ImageBuilder::new(&old);
        for (serial, step) in second.iter().enumerate() {
            let records = records_of(builder.image(), 1000 + serial, step);
            builder.replay_batch(&records).unwrap();
        }
        let (new, delta) = builder.finish();
        prop_assert!(old.topics().map(AsRef::as_ref).eq(&kept));
        let mut topics: BTreeMap<TopicId, Arc<TopicImage>> =
            old.topics().map(|topic| (topic.topic_id, topic.clone())).collect();
        for deleted in &delta.topics_deleted {
            prop_assert_eq!(topics.remove(&deleted.topic_id), Some(deleted.clone()));
        }
        for created in &delta.topics_created {
            prop_assert!(topics.insert(created.topic_id, created.clone()).is_none());
        }
        for change in &delta.topics_changed {
            prop_assert_ne!(&change.before, &change.after);
            prop_assert_eq!(topics.insert(change.after.topic_id, change.after.clone()), Some(change.before.clone()));
        }
        let want: BTreeMap<TopicId, Arc<TopicImage>> =
            new.topics().map(|topic| (topic.topic_id, topic.clone())).collect();
        prop_assert_eq!(topics, want);
        for (resource, configs) in new.configs.iter() {
            if old.configs(resource) != configs {
                prop_assert!(delta.configs_changed.contains(resource));
            }
        }
    }
}

#[test]
fn records_that_cannot_follow_are_errors() {
    // Rule: a log that contradicts itself is refused, never half believed.
    let (topic_id, other) = (topic_id(1), topic_id(2));
    let topic = MetadataRecord::Topic { topic_id, name: "a".to_owned() };
    let cases = [
        (vec![partition(topic_id, 0, 0)], ReplayError::UnknownTopic { topic_id }),
        (
            vec![topic.clone(), MetadataRecord::Topic { topic_id: other, name: "a".to_owned() }],
            ReplayError::TopicExists { name: "a".to_owned(), topic_id: other, existing: topic_id },
        ),
        (
            vec![topic.clone(), partition(topic_id, 1, 0)],
            ReplayError::PartitionOutOfOrder { topic_id, partition_index: 1, partition_count: 0 },
        ),
        (
            vec![
                MetadataRecord::Cluster { cluster_id: "one".to_owned() },
                MetadataRecord::Cluster { cluster_id: "two".to_owned() },
            ],
            ReplayError::ClusterChanged { known: "one".to_owned(), named: "two".to_owned() },
        ),
    ];
    for (records, want) in cases {
        let mut builder = ImageBuilder::new(&MetadataImage::default());
        assert_eq!(builder.replay_batch(&records), Err(want), "{records:?}");
    }
}

#[test]
fn features_newer_than_the_program_are_refused() {
    // Rule: a finalized level this program does not know stops it; it would serve something else than what was promised.
    let mut builder = ImageBuilder::new(&MetadataImage::default());
    let feature = |level| MetadataRecord::FeatureLevel { name: "metadata.version".to_owned(), level };
    builder.replay_batch(&[feature(3)]).unwrap();
    let image = builder.finish().0;
    let known = |level| BTreeMap::from([("metadata.version".to_owned(), level)]);
    assert_eq!(image.verify_features(&known(3)), Ok(()));
    assert!(image.verify_features(&known(2)).is_err());
    assert!(image.verify_features(&BTreeMap::new()).is_err());
}
