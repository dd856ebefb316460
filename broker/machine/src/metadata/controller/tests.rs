use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::ids::{DirectoryId, LeaderEpoch, TopicId, Uuid};
use crate::metadata::image::ImageBuilder;
use crate::metadata::records::{ConfigResource, LeaderChange, PartitionChangeRecord};

/// A handful of definitions, enough to see that the controller asks and obeys.
struct Rules;

impl ConfigRules for Rules {
    fn is_list(&self, _: &ConfigResource, key: &str) -> bool {
        key == "cleanup.policy"
    }

    fn is_known(&self, _: &ConfigResource, key: &str) -> bool {
        key != "unknown.key"
    }

    fn default_value(&self, _: &ConfigResource, key: &str) -> Option<String> {
        (key == "cleanup.policy").then(|| "delete".to_owned())
    }

    fn validate(
        &self,
        _: &MetadataImage,
        resource: &ConfigResource,
        after: &BTreeMap<String, String>,
    ) -> Result<(), ConfigRejection> {
        let reject = |message| Err(ConfigRejection { kind: ConfigRejectionKind::InvalidConfig, message });
        for (key, value) in after {
            match (key.as_str(), resource) {
                ("retention.ms", _) if value.parse::<i64>().is_ok() => {}
                ("retention.ms", _) => {
                    return reject(format!("Invalid value {value} for configuration {key}: Not a number of type LONG"));
                }
                ("cleanup.policy" | "min.insync.replicas", _) => {}
                (_, ConfigResource::Broker(_) | ConfigResource::DefaultBroker) => {}
                _ => return reject(format!("Unknown topic config name: {key}")),
            }
        }
        Ok(())
    }

    fn is_cordoned(&self, image: &MetadataImage, broker_id: BrokerId) -> bool {
        image.configs(&ConfigResource::Broker(broker_id)).get("cordoned.log.dirs").is_some_and(|dirs| dirs == "*")
    }
}

fn broker(raw: i32) -> BrokerId {
    BrokerId::from_wire(raw).unwrap()
}

fn uuid(byte: u8) -> Uuid {
    Uuid::from_bytes([byte; 16])
}

/// A controller and the image its committed records lead to.
struct Cluster {
    controller: Controller,
    image: Arc<MetadataImage>,
}

impl Cluster {
    fn with_brokers(count: i32) -> Self {
        let settings = ControllerSettings {
            node_id: broker(1),
            num_partitions: 1,
            default_replication_factor: 1,
            delete_topic_enable: true,
        };
        let mut cluster = Self {
            controller: Controller::new(settings, IdGenerator::from_seed([1; 32])),
            image: Arc::new(MetadataImage::default()),
        };
        for id in 1..=count {
            cluster.register(id, id as u8);
        }
        cluster
    }

    fn register(&mut self, id: i32, incarnation: u8) -> RegisteredBroker {
        let reply = self.run(Command::RegisterBroker(RegisterBroker {
            broker_id: broker(id),
            incarnation_id: uuid(incarnation),
            endpoints: Vec::new(),
            rack: None,
            features: Vec::new(),
            directories: vec![DirectoryId::new(uuid(id as u8))],
        }));
        let Reply::RegisterBroker(registered) = reply else { panic!("{reply:?}") };
        registered
    }

    fn run(&mut self, command: Command) -> Reply {
        let (reply, records) = self.controller.handle(&self.image, &Rules, command);
        if !records.is_empty() {
            let mut builder = ImageBuilder::new(&self.image);
            builder.replay_batch(&records).unwrap();
            self.image = builder.finish().0;
        }
        reply
    }

    fn create(&mut self, topics: Vec<CreatableTopic>) -> Vec<(String, Result<CreatedTopic, ControlError>)> {
        let reply = self.run(Command::CreateTopics(CreateTopics { topics, validate_only: false }));
        let Reply::CreateTopics(results) = reply else { panic!("{reply:?}") };
        results.into_iter().map(|result| (result.name, result.result)).collect()
    }

    /// The message of a refusal, or how many partitions and replicas were made.
    fn create_one(&mut self, topic: CreatableTopic) -> String {
        match self.create(vec![topic]).remove(0).1 {
            Ok(created) => format!("{}x{}", created.num_partitions, created.replication_factor),
            Err(error) => error.to_string(),
        }
    }

    fn grow(&mut self, name: &str, count: i32, assignments: Option<Vec<Vec<i32>>>) -> String {
        let topics = vec![CreatePartitionsTopic { name: name.to_owned(), count, assignments }];
        let reply = self.run(Command::CreatePartitions(CreatePartitions { topics, validate_only: false }));
        let Reply::CreatePartitions(mut results) = reply else { panic!("{reply:?}") };
        results.remove(0).result.map_or_else(|error| error.to_string(), |()| "ok".to_owned())
    }

    fn delete(&mut self, topics: Vec<TopicSelector>) -> Vec<DeletableTopicResult> {
        let reply = self.run(Command::DeleteTopics(DeleteTopics { topics }));
        let Reply::DeleteTopics(results) = reply else { panic!("{reply:?}") };
        results
    }

    fn alter(&mut self, kind: i8, name: &str, operations: &[Operation<'_>]) -> String {
        let operations = operations.iter().map(|(key, operation, value)| ConfigOperation {
            key: (*key).to_owned(),
            operation: *operation,
            value: value.map(str::to_owned),
        });
        let resource = IncrementalAlterConfigsResource {
            resource_type: kind,
            resource_name: name.to_owned(),
            operations: operations.collect(),
        };
        let request = IncrementalAlterConfigs { resources: vec![resource], validate_only: false };
        let reply = self.run(Command::IncrementalAlterConfigs(request));
        let Reply::IncrementalAlterConfigs(mut results) = reply else { panic!("{reply:?}") };
        results.remove(0).result.map_or_else(|error| error.to_string(), |()| "ok".to_owned())
    }

    fn config(&self, resource: &ConfigResource, key: &str) -> Option<String> {
        self.image.configs(resource).get(key).cloned()
    }
}

/// Key, operation, value.
type Operation<'a> = (&'a str, i8, Option<&'a str>);

fn topic(name: &str, num_partitions: i32, replication_factor: i16) -> CreatableTopic {
    CreatableTopic { num_partitions, replication_factor, ..CreatableTopic::with_defaults(name) }
}

fn assigned(name: &str, assignments: &[(i32, &[i32])]) -> CreatableTopic {
    let assignments = assignments.iter().map(|(partition_index, broker_ids)| ManualAssignment {
        partition_index: *partition_index,
        broker_ids: broker_ids.to_vec(),
    });
    CreatableTopic { assignments: assignments.collect(), ..CreatableTopic::with_defaults(name) }
}

fn configured(name: &str, configs: &[(&str, Option<&str>)]) -> CreatableTopic {
    let configs = configs.iter().map(|(key, value)| ((*key).to_owned(), value.map(str::to_owned)));
    CreatableTopic { configs: configs.collect(), ..topic(name, 1, 1) }
}

#[test]
fn create_topics_answers_as_kafka_does() {
    // Rule: numbers, defaults, assignments and configs are checked in Kafka's order and refused in its words.
    let cases = [
        (topic("a", 3, 1), "3x1"),
        (topic("a", 3, 1), "Topic 'a' already exists."),
        (topic("defaults", -1, -1), "1x1"),
        (topic("", 1, 1), "Topic name is invalid: the empty string is not allowed"),
        (topic("__cluster_metadata", 1, 1), "Creation of internal topic __cluster_metadata is prohibited."),
        (topic("p0", 0, 1), "Number of partitions was set to an invalid non-positive value."),
        (topic("p-2", -2, 1), "Number of partitions was set to an invalid non-positive value."),
        (topic("r0", 1, 0), "Replication factor must be larger than 0, or -1 to use the default value."),
        (topic("both", 0, 0), "Replication factor must be larger than 0, or -1 to use the default value."),
        (
            topic("r2", 1, 2),
            "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached because only 1 broker(s) are registered or some brokers have all their log directories cordoned.",
        ),
        (topic("many", 10_001, 1), "Excessively large number of partitions per request."),
        (assigned("m", &[(1, &[1]), (0, &[1])]), "2x1"),
        (assigned("m1", &[(1, &[1])]), "partitions should be a consecutive 0-based integer sequence"),
        (assigned("m2", &[(0, &[1]), (0, &[1])]), "Found multiple manual partition assignments for partition 0"),
        (assigned("m3", &[(0, &[])]), "The manual partition assignment includes an empty replica list."),
        (assigned("m4", &[(0, &[1, 1])]), "The manual partition assignment includes the broker 1 more than once."),
        (
            assigned("m5", &[(0, &[-1])]),
            "The manual partition assignment includes broker -1, but no such broker is registered.",
        ),
        (
            CreatableTopic { replication_factor: 1, ..assigned("m6", &[(0, &[1])]) },
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            CreatableTopic { num_partitions: 1, ..assigned("m7", &[(0, &[1])]) },
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (configured("c1", &[("retention.ms", Some("1000"))]), "1x1"),
        (configured("c2", &[("nope", Some("1"))]), "Unknown topic config name: nope"),
        (configured("c3", &[("retention.ms", None)]), "Null value not supported for topic configs: retention.ms"),
        (
            CreatableTopic { replication_factor: 9, ..configured("c4", &[("nope", Some("1"))]) },
            "Unknown topic config name: nope",
        ),
        (configured("c5", &[("retention.ms", Some("1")), ("retention.ms", Some("2"))]), "1x1"),
    ];
    let mut cluster = Cluster::with_brokers(1);
    for (topic, want) in cases {
        let case = format!("{topic:?}");
        assert_eq!(cluster.create_one(topic), want, "{case}");
    }
    assert_eq!(cluster.config(&ConfigResource::Topic("c5".to_owned()), "retention.ms").as_deref(), Some("2"));
}

#[test]
fn names_collide_with_existing_topics_but_not_within_a_request() {
    // Rule: '.' and '_' are the same in metric names; Kafka compares with what exists, not with the rest of the request.
    let mut cluster = Cluster::with_brokers(1);
    assert_eq!(cluster.create_one(topic("a.b", 1, 1)), "1x1");
    assert_eq!(cluster.create_one(topic("a_b", 1, 1)), "Topic 'a_b' collides with existing topic: a.b");
    assert_eq!(cluster.create_one(topic("a.b", 1, 1)), "Topic 'a.b' already exists.");
    let results = cluster.create(vec![topic("x.y", 1, 1), topic("x_y", 1, 1)]);
    assert!(results.iter().all(|(_, result)| result.is_ok()), "{results:?}");
}

#[test]
fn topics_named_twice_are_refused_once_and_others_made() {
    // Rule: a duplicate is one refusal for all its appearances and does not touch the other topics.
    let mut cluster = Cluster::with_brokers(1);
    let results = cluster.create(vec![topic("dup", 1, 1), topic("single", 1, 1), topic("dup", 2, 1)]);
    assert_eq!(results.len(), 2);
    assert_eq!(results[0], ("dup".to_owned(), Err(ControlError::DuplicateTopicName)));
    assert!(results[1].1.is_ok());
    assert!(cluster.image.topic("dup").is_none() && cluster.image.topic("single").is_some());
}

#[test]
fn a_request_for_too_many_partitions_makes_none() {
    // Rule: 10,000 partitions are counted over the request, and every topic of it is refused.
    let mut cluster = Cluster::with_brokers(1);
    let results = cluster.create(vec![topic("a", 9000, 1), topic("b", 1001, 1)]);
    for (name, result) in results {
        assert_eq!(result, Err(ControlError::TooManyPartitions { requested: 10_001 }), "{name}");
    }
    assert_eq!(cluster.image.topic_count(), 0);
}

#[test]
fn validate_only_answers_and_changes_nothing() {
    // Rule: the answer is that of the real request, the metadata stay as they were.
    let mut cluster = Cluster::with_brokers(1);
    let before = cluster.image.clone();
    let topics = vec![topic("a", 3, 1)];
    let reply = cluster.run(Command::CreateTopics(CreateTopics { topics, validate_only: true }));
    let Reply::CreateTopics(results) = reply else { panic!("{reply:?}") };
    assert_eq!(results[0].result.as_ref().map(|created| created.num_partitions), Ok(3));
    assert_eq!(cluster.image, before);
}

#[test]
fn create_partitions_answers_as_kafka_does() {
    // Rule: the count must grow, assignments must fit; refusals come in Kafka's words.
    let mut cluster = Cluster::with_brokers(1);
    cluster.create_one(topic("a", 3, 1));
    let cases = [
        ("a", 4, None, "ok"),
        ("a", 4, None, "Topic already has 4 partition(s)."),
        ("a", 2, None, "The topic a currently has 4 partition(s); 2 would not be an increase."),
        ("a", -1, None, "The topic a currently has 4 partition(s); -1 would not be an increase."),
        ("none", 4, None, ""),
        ("a", 6, Some(vec![vec![1], vec![1]]), "ok"),
        (
            "a",
            7,
            Some(vec![vec![1], vec![1]]),
            "Attempted to add 1 additional partition(s), but only 2 assignment(s) were specified.",
        ),
        (
            "a",
            7,
            Some(vec![vec![9]]),
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        ("a", 7, Some(vec![vec![]]), "The manual partition assignment includes an empty replica list."),
        ("a", 20_000, None, "Excessively large number of additional partitions per request."),
    ];
    for (name, count, assignments, want) in cases {
        assert_eq!(cluster.grow(name, count, assignments.clone()), want, "{name} {count} {assignments:?}");
    }
    assert_eq!(cluster.image.topic("a").unwrap().partitions.len(), 6);
}

#[test]
fn assignments_of_one_topic_have_one_size() {
    // Rule: every partition of a topic has the same number of replicas.
    let mut cluster = Cluster::with_brokers(2);
    let uneven = assigned("a", &[(0, &[1]), (1, &[1, 2])]);
    assert_eq!(
        cluster.create_one(uneven),
        "The manual partition assignment includes a partition with 2 replica(s), but this is not consistent with previous partitions, which have 1 replica(s)."
    );
    assert_eq!(cluster.create_one(assigned("b", &[(0, &[2, 1])])), "1x2");
    let partition = &cluster.image.topic("b").unwrap().partitions[0];
    assert_eq!(partition.leader, Some(broker(2)));
    assert_eq!(partition.directories, [2, 1].map(|id| DirectoryId::new(uuid(id))));
}

#[test]
fn replicas_are_distinct_and_leaders_spread() {
    // Rule: no broker holds a partition twice; every broker leads its share.
    let mut cluster = Cluster::with_brokers(5);
    assert_eq!(cluster.create_one(topic("a", 50, 3)), "50x3");
    let mut led: BTreeMap<BrokerId, usize> = BTreeMap::new();
    for partition in &cluster.image.topic("a").unwrap().partitions {
        let mut replicas = partition.replicas.clone();
        replicas.sort_unstable();
        replicas.dedup();
        assert_eq!(replicas.len(), 3, "{partition:?}");
        *led.entry(partition.leader.unwrap()).or_default() += 1;
    }
    assert!(led.values().all(|count| *count == 10), "{led:?}");
}

#[test]
fn delete_topics_answers_as_kafka_does() {
    // Rule: by name or by id, never both or neither; a deleted topic takes its configs along.
    let mut cluster = Cluster::with_brokers(1);
    cluster.create(vec![configured("a", &[("retention.ms", Some("1"))]), topic("b", 1, 1), topic("c", 1, 1)]);
    let id = |cluster: &Cluster, name: &str| cluster.image.topic(name).unwrap().topic_id;
    let (a, c) = (id(&cluster, "a"), id(&cluster, "c"));
    let unknown = TopicId::from_wire(uuid(9)).unwrap();
    let results = cluster.delete(vec![
        TopicSelector::by_name("none"),
        TopicSelector::by_id(unknown),
        TopicSelector { name: None, topic_id: Uuid::ZERO },
        TopicSelector { name: Some("a".to_owned()), topic_id: a.get() },
        TopicSelector::by_name("b"),
        TopicSelector::by_name("b"),
        TopicSelector::by_id(c),
        TopicSelector::by_name("c"),
    ]);
    let errors: Vec<_> = results.iter().map(|result| result.result.clone().err()).collect();
    assert_eq!(
        errors,
        [
            Some(ControlError::UnknownTopic),
            Some(ControlError::UnknownTopicId { topic_id: unknown.get() }),
            Some(ControlError::NoTopicNameOrId),
            Some(ControlError::TopicNameAndId),
            Some(ControlError::DuplicateTopicName),
            Some(ControlError::TopicNameAndIdMeet),
        ]
    );
    assert_eq!((results[5].name.as_deref(), results[5].topic_id), (Some("c"), c.get()));
    let both = || TopicSelector { name: Some("c".to_owned()), topic_id: c.get() };
    let results = cluster.delete(vec![both(), both()]);
    assert!(results.len() == 2 && results.iter().all(|one| one.result == Err(ControlError::TopicNameAndId)));
    let by_name = || TopicSelector::by_name("c");
    let results = cluster.delete(vec![by_name(), by_name(), TopicSelector::by_id(c)]);
    assert_eq!(results[0].result, Err(ControlError::DuplicateTopicName));
    assert_eq!((results[1].name.as_deref(), &results[1].result), (Some("c"), &Ok(())));
    let results = cluster.delete(vec![TopicSelector::by_name("a")]);
    assert_eq!((results[0].topic_id, &results[0].result), (a.get(), &Ok(())));
    assert!(cluster.image.topic("a").is_none() && cluster.image.topic_by_id(a).is_none());
    assert!(cluster.image.topic_configs("a").is_empty());
    cluster.create_one(topic("a", 1, 1));
    assert_ne!(id(&cluster, "a"), a);
}

#[test]
fn deletion_can_be_switched_off() {
    // Rule: delete.topic.enable=false refuses every deletion.
    let mut cluster = Cluster::with_brokers(1);
    cluster.create_one(topic("a", 1, 1));
    cluster.controller.settings.delete_topic_enable = false;
    let results = cluster.delete(vec![TopicSelector::by_name("a")]);
    assert_eq!(results[0].result, Err(ControlError::TopicDeletionDisabled));
}

#[test]
fn incremental_alter_configs_answers_as_kafka_does() {
    // Rule: SET, DELETE, APPEND and SUBTRACT as in Kafka, and its refusals.
    let mut cluster = Cluster::with_brokers(1);
    cluster.create_one(topic("a", 1, 1));
    let (set, delete, append, subtract) = (0, 1, 2, 3);
    let cases: Vec<(i8, &str, Vec<Operation<'_>>, &str)> = vec![
        (2, "a", vec![("retention.ms", set, Some("5000"))], "ok"),
        (
            2,
            "a",
            vec![("retention.ms", set, Some("x"))],
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (2, "a", vec![("retention.ms", set, None)], "Null value not supported for : retention.ms"),
        (
            2,
            "a",
            vec![("retention.ms", set, Some("1")), ("retention.ms", delete, None)],
            "Error due to duplicate config keys",
        ),
        (
            2,
            "a",
            vec![("retention.ms", append, Some("1"))],
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            2,
            "a",
            vec![("retention.ms", subtract, Some("1"))],
            "Can't SUBTRACT to key retention.ms because its type is not LIST.",
        ),
        (2, "a", vec![("retention.ms", 9, Some("1"))], ""),
        (2, "a", vec![("cleanup.policy", append, Some("compact"))], "ok"),
        (2, "a", vec![("nope", delete, None)], "ok"),
        (2, "a", vec![("nope", set, Some("1"))], "Unknown topic config name: nope"),
        (2, "a", vec![], "ok"),
        (2, "none", vec![("retention.ms", set, Some("1"))], "The topic 'none' does not exist."),
        (2, "", vec![("retention.ms", set, Some("1"))], "Default topic resources are not allowed."),
        (32, "", vec![], "Default group resources are not allowed."),
        (4, "9", vec![], "Unexpected broker id, expected 1, but received 9"),
        (4, "abc", vec![], "Node id must be an integer, but it is: abc"),
        (4, "1", vec![("unknown.key", set, Some("2"))], "ok"),
        (4, "", vec![("unknown.key", set, Some("3"))], "ok"),
        (4, "1", vec![("unknown.key", append, Some("2"))], "Unknown config name: unknown.key"),
        (
            4,
            "1",
            vec![("num.io.threads", append, Some("2"))],
            "Config value append is not allowed for config key: num.io.threads",
        ),
        (4, "1", vec![("num.io.threads", 9, Some("2"))], "Unknown operations type 9"),
        (2, "a", vec![("a", set, None), ("b", set, None)], "Null value not supported for : a, b"),
        (16, "", vec![], "Subscription name can't be empty"),
        (8, "1", vec![("kafka", set, Some("INFO"))], "Logger kafka does not exist!"),
        (99, "x", vec![("a", set, Some("b"))], "Unknown resource type 99"),
    ];
    for (kind, name, operations, want) in cases {
        assert_eq!(cluster.alter(kind, name, &operations), want, "{kind} {name} {operations:?}");
    }
    let topic = ConfigResource::Topic("a".to_owned());
    assert_eq!(cluster.config(&topic, "cleanup.policy").as_deref(), Some("delete,compact"));
    assert_eq!(cluster.alter(2, "a", &[("cleanup.policy", subtract, Some("delete"))]), "ok");
    assert_eq!(cluster.config(&topic, "cleanup.policy").as_deref(), Some("compact"));
    assert_eq!(cluster.config(&ConfigResource::DefaultBroker, "unknown.key").as_deref(), Some("3"));
    assert_eq!(cluster.alter(2, "a", &[("retention.ms", delete, None), ("cleanup.policy", delete, None)]), "ok");
    assert!(cluster.image.topic_configs("a").is_empty());
}

#[test]
fn a_change_is_checked_before_what_it_changes() {
    // Rule: a wrong operation comes before a bad name, a bad name before a wrong value, and all of them before a missing topic;
    // of a broker an unknown operation comes before all others.
    let mut cluster = Cluster::with_brokers(1);
    let (set, append) = (ConfigOperation::SET, ConfigOperation::APPEND);
    let appended = "Can't APPEND to key retention.ms because its type is not LIST.";
    let value = "Invalid value x for configuration retention.ms: Not a number of type LONG";
    let name = "Topic name is invalid: 'bad/name' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'";
    let cases: [(i8, &str, &[Operation<'_>], &str); 5] = [
        (2, "none", &[("retention.ms", append, Some("1"))], appended),
        (2, "none", &[("retention.ms", set, Some("x"))], value),
        (2, "bad/name", &[("retention.ms", append, Some("1"))], appended),
        (2, "bad/name", &[("retention.ms", set, Some("x"))], name),
        (4, "1", &[("num.io.threads", append, Some("2")), ("x", 9, Some("2"))], "Unknown operations type 9"),
    ];
    for (kind, name, operations, want) in cases {
        assert_eq!(cluster.alter(kind, name, operations), want, "{kind} {name} {operations:?}");
    }
}

#[test]
fn lists_are_taken_apart_at_commas_alone() {
    // Rule: spaces belong to an element, an empty one can be appended, and commas at the end are nothing.
    let mut cluster = Cluster::with_brokers(1);
    cluster.create_one(configured("a", &[("cleanup.policy", Some("compact"))]));
    let topic = ConfigResource::Topic("a".to_owned());
    let (append, subtract) = (ConfigOperation::APPEND, ConfigOperation::SUBTRACT);
    for (operation, value, want) in [
        (append, "", "compact,"),
        (append, ",", "compact"),
        (append, " compact,compact", "compact, compact"),
        (subtract, "compact", " compact"),
    ] {
        assert_eq!(cluster.alter(2, "a", &[("cleanup.policy", operation, Some(value))]), "ok");
        assert_eq!(cluster.config(&topic, "cleanup.policy").as_deref(), Some(want));
    }
}

#[test]
fn alter_configs_replaces_the_whole_set() {
    // Rule: what the request does not name falls back to its default; a resource named twice is refused.
    let mut cluster = Cluster::with_brokers(1);
    cluster.create_one(configured("a", &[("retention.ms", Some("1")), ("cleanup.policy", Some("compact"))]));
    let resource = |value: &str| ReplaceConfigsResource {
        resource_type: 2,
        resource_name: "a".to_owned(),
        configs: vec![("retention.ms".to_owned(), Some(value.to_owned()))],
    };
    let request = AlterConfigs { resources: vec![resource("7")], validate_only: false };
    cluster.run(Command::AlterConfigs(request));
    let want = BTreeMap::from([("retention.ms".to_owned(), "7".to_owned())]);
    assert_eq!(cluster.image.topic_configs("a").as_ref(), &want);
    let request = AlterConfigs { resources: vec![resource("8"), resource("9")], validate_only: false };
    let reply = cluster.run(Command::AlterConfigs(request));
    let Reply::AlterConfigs(results) = reply else { panic!("{reply:?}") };
    assert!(results.iter().all(|result| result.result == Err(ControlError::DuplicateResource)));
    assert_eq!(cluster.image.topic_configs("a").as_ref(), &want);
}

#[test]
fn producer_id_blocks_never_overlap() {
    // Rule: each block begins where the last one ended, whoever asks.
    let mut cluster = Cluster::with_brokers(2);
    for (serial, broker) in [(0, 1), (1, 2), (2, 1)] {
        let reply = cluster.run(Command::AllocateProducerIds { broker_id: self::broker(broker) });
        let want = ProducerIdBlock { first: serial * 1000, len: 1000 };
        assert_eq!(reply, Reply::AllocateProducerIds(Ok(want)));
    }
    let broker_id = broker(9);
    let reply = cluster.run(Command::AllocateProducerIds { broker_id });
    assert_eq!(reply, Reply::AllocateProducerIds(Err(ControlError::BrokerNotRegistered { broker_id })));
}

#[test]
fn a_restarted_broker_starts_a_new_leader_epoch() {
    // Rule: a new incarnation raises the epoch of every partition it leads; the same one announced again changes nothing.
    let mut cluster = Cluster::with_brokers(1);
    cluster.create_one(topic("a", 2, 1));
    let first = cluster.register(1, 1);
    assert_eq!(cluster.image.topic("a").unwrap().partitions[1].leader_epoch, LeaderEpoch::ZERO);
    let second = cluster.register(1, 2);
    assert!(second.broker_epoch > first.broker_epoch);
    for partition in &cluster.image.topic("a").unwrap().partitions {
        assert_eq!((partition.leader_epoch, partition.partition_epoch), (LeaderEpoch::from_wire(1).unwrap(), 1));
        assert_eq!(partition.leader, Some(broker(1)));
    }
}

#[test]
fn a_vacant_partition_gets_its_in_sync_replica_back() {
    // Rule: with nobody leading, a broker that comes up leads only what it is in sync for.
    let mut cluster = Cluster::with_brokers(2);
    cluster.create_one(assigned("a", &[(0, &[1, 2])]));
    let topic_id = cluster.image.topic("a").unwrap().topic_id;
    let mut builder = ImageBuilder::new(&cluster.image);
    let change = PartitionChangeRecord {
        topic_id,
        partition_index: 0,
        in_sync_replicas: Some(vec![broker(2)]),
        leader: Some(LeaderChange::Vacant),
    };
    builder.replay_batch(&[MetadataRecord::PartitionChange(change)]).unwrap();
    cluster.image = builder.finish().0;
    cluster.register(1, 7);
    assert_eq!(cluster.image.topic("a").unwrap().partitions[0].leader, None);
    cluster.register(2, 7);
    assert_eq!(cluster.image.topic("a").unwrap().partitions[0].leader, Some(broker(2)));
}

#[test]
fn a_broker_that_is_cordoned_gets_no_new_replicas() {
    // Rule: it is passed over, and refused by name; without another broker nothing is made, in Kafka's words (KIP-1066).
    let mut cluster = Cluster::with_brokers(2);
    let cordon = |cluster: &mut Cluster, id: &str| {
        assert_eq!(cluster.alter(4, id, &[("cordoned.log.dirs", 0, Some("*"))]), "ok");
    };
    cordon(&mut cluster, "1");
    assert_eq!(cluster.create_one(topic("a", 4, 1)), "4x1");
    let partitions = &cluster.image.topic("a").unwrap().partitions;
    assert!(partitions.iter().all(|partition| partition.replicas == [broker(2)]));
    assert_eq!(
        cluster.create_one(assigned("m", &[(0, &[2]), (1, &[1])])),
        "The manual partition assignment includes broker 1, but all its log directories are cordoned."
    );
    let mut cluster = Cluster::with_brokers(1);
    assert_eq!(cluster.create_one(topic("a", 4, 1)), "4x1");
    cordon(&mut cluster, "1");
    let all = "All brokers are currently fenced, or have all their log directories cordoned.";
    assert_eq!(cluster.create_one(topic("b", 1, 1)), format!("Unable to replicate the partition 1 time(s): {all}"));
    assert_eq!(cluster.grow("a", 5, None), all);
}
