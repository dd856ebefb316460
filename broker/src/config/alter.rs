//! Checks of what AlterConfigs, IncrementalAlterConfigs and CreateTopics would set. Nothing is stored here: the controller
//! writes what these functions allow.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use super::broker::BrokerConfig;
use super::java_pattern::is_java_pattern;
use super::key::{ConfigError, Effect, Mode, Value};
use super::keys::{BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, KeyTable, TOPIC_KEYS, listener_key};
use super::view::BrokerView;

/// What is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    Topic,
    /// One broker.
    Broker,
    /// All brokers, the broker resource with the empty name.
    Cluster,
    Group,
    ClientMetrics,
}

/// Why a change is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AlterError {
    #[error("{0}")]
    Value(ConfigError),
    /// The same of a broker's key, for which Kafka answers another code.
    #[error("{0}")]
    BrokerValue(ConfigError),
    #[error("Unknown topic config name: {0}")]
    UnknownTopicKey(String),
    #[error("Unknown group config name: {0}")]
    UnknownGroupKey(String),
    #[error("Unknown client metrics configuration: {0}")]
    UnknownClientMetricsKey(String),
    #[error("Invalid value {0} for interval.ms, interval must be between 100 and 3600000 (1 hour)")]
    ClientMetricsInterval(i64),
    #[error(
        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
    )]
    Tiering,
    #[error("conflict topic config setting min.compaction.lag.ms ({min}) > max.compaction.lag.ms ({max})")]
    CompactionLag { min: i64, max: i64 },
    #[error("Cannot update these configs dynamically: [{0}]")]
    NotDynamic(String),
    #[error("These security configs can be dynamically updated only per-listener using the listener prefix: [{0}]")]
    PerListener(String),
    #[error("Cannot update these configs at default cluster level, broker id must be specified: [{0}]")]
    PerBroker(String),
    #[error("Dynamic thread count update validation failed for {key}={wanted}: {reason}, and is {current} now")]
    ThreadCount { key: &'static str, current: i64, wanted: i64, reason: &'static str },
    #[error("requirement failed: When cordoned.log.dirs is set to *, it must not contain other values")]
    CordonedStar,
    #[error(
        "requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : {0}"
    )]
    CordonedUnknown(String),
    /// Values that do not go together.
    #[error("{0}")]
    Contradiction(&'static str),
    #[error("{key} must be in the range {least} to {most} inclusive.")]
    GroupRange { key: &'static str, least: i64, most: i64 },
    #[error("{session} must be greater than {heartbeat}")]
    GroupHeartbeat { session: &'static str, heartbeat: &'static str },
    #[error("streams.rack.aware.assignment.tags must not contain duplicate tag keys.")]
    GroupTagTwice,
    #[error("streams.assignor.name '{0}' is not a registered task assignor.")]
    GroupAssignor(String),
    #[error("errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'")]
    GroupDeadLetterTopic,
    #[error("Illegal client matching pattern: {0}")]
    ClientMatch(String),
    #[error("{key} cannot be changed to {value}: {reason}")]
    NotSupported { key: String, value: String, reason: &'static str },
}

/// The error code family of an [`AlterError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlterErrorKind {
    /// INVALID_CONFIG.
    InvalidConfig,
    /// INVALID_REQUEST.
    InvalidRequest,
}

impl AlterError {
    /// Which code Kafka answers.
    pub fn kind(&self) -> AlterErrorKind {
        match self {
            Self::Value(_)
            | Self::UnknownTopicKey(_)
            | Self::UnknownGroupKey(_)
            | Self::Tiering
            | Self::CompactionLag { .. }
            | Self::GroupRange { .. }
            | Self::GroupHeartbeat { .. }
            | Self::GroupTagTwice
            | Self::GroupAssignor(_)
            | Self::GroupDeadLetterTopic
            | Self::ClientMatch(_) => AlterErrorKind::InvalidConfig,
            Self::BrokerValue(_)
            | Self::ClientMetricsInterval(_)
            | Self::UnknownClientMetricsKey(_)
            | Self::NotDynamic(_)
            | Self::PerListener(_)
            | Self::PerBroker(_)
            | Self::ThreadCount { .. }
            | Self::CordonedStar
            | Self::CordonedUnknown(_)
            | Self::Contradiction(_)
            | Self::NotSupported { .. } => AlterErrorKind::InvalidRequest,
        }
    }
}

/// Checks all that would be set after a change; CreateTopics calls it with a new topic's configs.
pub fn validate(
    resource: Resource,
    configs: &BTreeMap<String, String>,
    config: &BrokerConfig,
) -> Result<(), AlterError> {
    match resource {
        Resource::Topic => validate_topic(configs),
        Resource::Group => validate_group(configs, config),
        Resource::ClientMetrics => validate_client_metrics(configs),
        Resource::Broker | Resource::Cluster => validate_broker(resource, configs, config),
    }
}

fn validate_keys(
    configs: &BTreeMap<String, String>,
    table: &KeyTable,
    unknown: fn(String) -> AlterError,
) -> Result<(), AlterError> {
    // Kafka names an unknown key before a bad value.
    if let Some(stranger) = configs.keys().find(|name| table.find(name).is_none()) {
        return Err(unknown(stranger.clone()));
    }
    for (name, raw) in configs {
        if let Some(key) = table.find(name) {
            key.parse(raw).map_err(AlterError::Value)?;
        }
    }
    Ok(())
}

fn validate_client_metrics(configs: &BTreeMap<String, String>) -> Result<(), AlterError> {
    validate_keys(configs, &CLIENT_METRICS_KEYS, AlterError::UnknownClientMetricsKey)?;
    let interval = configs.get("interval.ms").and_then(|raw| raw.trim().parse::<i64>().ok());
    if let Some(ms) = interval.filter(|ms| !(100..=3_600_000).contains(ms)) {
        return Err(AlterError::ClientMetricsInterval(ms));
    }
    let patterns = configs.get("match").map(String::as_str).unwrap_or_default().split(',').map(str::trim);
    match patterns.filter(|pattern| !pattern.is_empty()).find(|pattern| !is_match_pattern(pattern)) {
        Some(pattern) => Err(AlterError::ClientMatch(pattern.to_owned())),
        None => Ok(()),
    }
}

/// What a subscription may look at (KIP-714).
const MATCH_PARAMETERS: [&str; 6] = [
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
];

/// A parameter and a regular expression with one equals sign between them; Kafka overlooks more of them at the end.
fn is_match_pattern(pattern: &str) -> bool {
    let mut halves = pattern.trim_end_matches('=').split('=');
    let (parameter, value, more) = (halves.next(), halves.next(), halves.next());
    parameter.is_some_and(|parameter| MATCH_PARAMETERS.contains(&parameter.trim()))
        && value.is_some_and(|value| is_java_pattern(value.trim()))
        && more.is_none()
}

/// Keys of a group with the broker's keys for the least and the most they may be.
const GROUP_RANGES: [(&str, Option<&str>, Option<&str>); 15] = [
    (
        "consumer.heartbeat.interval.ms",
        Some("group.consumer.min.heartbeat.interval.ms"),
        Some("group.consumer.max.heartbeat.interval.ms"),
    ),
    (
        "consumer.session.timeout.ms",
        Some("group.consumer.min.session.timeout.ms"),
        Some("group.consumer.max.session.timeout.ms"),
    ),
    (
        "consumer.assignment.interval.ms",
        Some("group.consumer.min.assignment.interval.ms"),
        Some("group.consumer.max.assignment.interval.ms"),
    ),
    (
        "share.heartbeat.interval.ms",
        Some("group.share.min.heartbeat.interval.ms"),
        Some("group.share.max.heartbeat.interval.ms"),
    ),
    (
        "share.session.timeout.ms",
        Some("group.share.min.session.timeout.ms"),
        Some("group.share.max.session.timeout.ms"),
    ),
    (
        "share.record.lock.duration.ms",
        Some("group.share.min.record.lock.duration.ms"),
        Some("group.share.max.record.lock.duration.ms"),
    ),
    (
        "share.delivery.count.limit",
        Some("group.share.min.delivery.count.limit"),
        Some("group.share.max.delivery.count.limit"),
    ),
    (
        "share.partition.max.record.locks",
        Some("group.share.min.partition.max.record.locks"),
        Some("group.share.max.partition.max.record.locks"),
    ),
    (
        "share.assignment.interval.ms",
        Some("group.share.min.assignment.interval.ms"),
        Some("group.share.max.assignment.interval.ms"),
    ),
    (
        "streams.heartbeat.interval.ms",
        Some("group.streams.min.heartbeat.interval.ms"),
        Some("group.streams.max.heartbeat.interval.ms"),
    ),
    (
        "streams.session.timeout.ms",
        Some("group.streams.min.session.timeout.ms"),
        Some("group.streams.max.session.timeout.ms"),
    ),
    ("streams.num.standby.replicas", None, Some("group.streams.max.standby.replicas")),
    (
        "streams.assignment.interval.ms",
        Some("group.streams.min.assignment.interval.ms"),
        Some("group.streams.max.assignment.interval.ms"),
    ),
    ("streams.task.offset.interval.ms", Some("group.streams.min.task.offset.interval.ms"), None),
    ("streams.num.warmup.replicas", None, Some("group.streams.max.warmup.replicas")),
];

/// Session timeouts and the heartbeat intervals that have to be shorter, of a group and, behind them, of the broker.
const GROUP_HEARTBEATS: [(&str, &str); 3] = [
    ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"),
    ("share.session.timeout.ms", "share.heartbeat.interval.ms"),
    ("streams.session.timeout.ms", "streams.heartbeat.interval.ms"),
];

/// The limits are the broker's and do not change while it runs.
fn validate_group(configs: &BTreeMap<String, String>, config: &BrokerConfig) -> Result<(), AlterError> {
    validate_keys(configs, &GROUP_KEYS, AlterError::UnknownGroupKey)?;
    let view = BrokerView::fixed(config);
    let own = |name: &str| match GROUP_KEYS.find(name)?.parse(configs.get(name)?).ok()? {
        Value::Integer(number) => Some(number),
        Value::Boolean(_) | Value::Double(_) | Value::Text(_) | Value::List(_) => None,
    };
    for (key, least, most) in GROUP_RANGES {
        let least = least.map_or(i64::MIN, |least| view.integer(least));
        let most = most.map_or(i64::MAX, |most| view.integer(most));
        if own(key).is_some_and(|value| !(least..=most).contains(&value)) {
            return Err(AlterError::GroupRange { key, least, most });
        }
    }
    if let Some(assignor) = configs.get("streams.assignor.name").map(|name| name.trim())
        && !view.list("group.streams.assignors").iter().any(|known| known == assignor)
    {
        return Err(AlterError::GroupAssignor(assignor.to_owned()));
    }
    for (session, heartbeat) in GROUP_HEARTBEATS {
        let counts = |key: &str| own(key).unwrap_or_else(|| view.integer(&format!("group.{key}")));
        let is_set = configs.contains_key(session) || configs.contains_key(heartbeat);
        if is_set && counts(session) <= counts(heartbeat) {
            return Err(AlterError::GroupHeartbeat { session, heartbeat });
        }
    }
    if configs.get("errors.deadletterqueue.topic.name").is_some_and(|name| name.trim().starts_with("__")) {
        return Err(AlterError::GroupDeadLetterTopic);
    }
    let tags = configs.get("streams.rack.aware.assignment.tags").map(String::as_str).unwrap_or_default();
    let mut seen = BTreeSet::new();
    if tags.trim().split(',').all(|tag| seen.insert(tag.trim())) { Ok(()) } else { Err(AlterError::GroupTagTwice) }
}

fn validate_topic(configs: &BTreeMap<String, String>) -> Result<(), AlterError> {
    validate_keys(configs, &TOPIC_KEYS, AlterError::UnknownTopicKey)?;
    let value = |name: &str| {
        let key = TOPIC_KEYS.find(name)?;
        key.parse(configs.get(name).map(String::as_str).or(key.default)?).ok()
    };
    if let (Some(Value::Integer(min)), Some(Value::Integer(max))) =
        (value("min.compaction.lag.ms"), value("max.compaction.lag.ms"))
        && min > max
    {
        return Err(AlterError::CompactionLag { min, max });
    }
    if value("remote.storage.enable") == Some(Value::Boolean(true)) {
        return Err(AlterError::Tiering);
    }
    Ok(())
}

/// Listener keys that may be set for all brokers.
const CLUSTER_LISTENER_KEYS: [&str; 3] = ["max.connection.creation.rate", "max.connections", "num.network.threads"];

/// Keys whose values belong to one listener: a key or trust store.
fn is_per_listener(name: &str) -> bool {
    name.starts_with("ssl.keystore.") || name.starts_with("ssl.truststore.") || name == "ssl.key.password"
}

fn validate_broker(
    resource: Resource,
    configs: &BTreeMap<String, String>,
    config: &BrokerConfig,
) -> Result<(), AlterError> {
    let names_where = |wanted: &dyn Fn(&str) -> bool| {
        let names: Vec<&str> = configs.keys().map(String::as_str).filter(|name| wanted(name)).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let mode = |name: &str| BROKER_KEYS.find(name).map(|key| key.mode);
    if let Some(names) = names_where(&|name| mode(name) == Some(Mode::ReadOnly)) {
        return Err(AlterError::NotDynamic(names));
    }
    if let Some(names) = names_where(&is_per_listener) {
        return Err(AlterError::PerListener(names));
    }
    for (name, raw) in configs {
        check_broker_value(name, raw, config)?;
    }
    if resource == Resource::Cluster {
        let per_broker = |name: &str| match listener_key(name) {
            Some(base) => !CLUSTER_LISTENER_KEYS.contains(&base),
            None => mode(name) == Some(Mode::PerBroker),
        };
        if let Some(names) = names_where(&per_broker) {
            return Err(AlterError::PerBroker(names));
        }
    }
    Ok(())
}

fn check_broker_value(name: &str, raw: &str, config: &BrokerConfig) -> Result<(), AlterError> {
    let base = listener_key(name).unwrap_or(name);
    let Some(key) = BROKER_KEYS.find(base) else { return Ok(()) };
    let value = key.parse(raw).map_err(AlterError::BrokerValue)?;
    let refuse = |reason| Err(AlterError::NotSupported { key: name.to_owned(), value: raw.to_owned(), reason });
    let started_with = config.given().get(base).map(String::as_str).or(key.default);
    let unchanged = started_with.and_then(|raw| key.parse(raw).ok()).as_ref() == Some(&value);
    if matches!(key.name, "listeners" | "listener.security.protocol.map") && !unchanged {
        return refuse("listeners are opened at start only");
    }
    if key.effect == Effect::Refused && !unchanged && !raw.trim().is_empty() {
        return refuse("it is not supported");
    }
    if key.name == "log.roll.ms" && matches!(value, Value::Integer(ms) if ms < 1) {
        return refuse("it must be at least 1");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use walser_machine::ids::{BrokerId, DirectoryId, IdGenerator, Uuid};
    use walser_machine::metadata::controller::{
        Command, ConfigOperation, ControllerSettings, CreatableTopic, CreateTopics, IncrementalAlterConfigs,
        IncrementalAlterConfigsResource, RegisterBroker, Reply,
    };
    use walser_machine::metadata::image::ImageBuilder;
    use walser_machine::metadata::records::ConfigResource;
    use walser_machine::metadata::{Controller, MetadataImage, MetadataRecord};
    use walser_protocol::ErrorCode;

    use super::*;
    use crate::config::rules::BrokerRules;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    const NAME: &str = "x";

    /// The controller that asks these rules, and one resource called [`NAME`], or this broker.
    struct Cluster {
        controller: Controller,
        rules: BrokerRules,
        image: Arc<MetadataImage>,
    }

    impl Cluster {
        fn new() -> Self {
            let node_id = BrokerId::from_wire(1).expect("a broker id");
            let settings = ControllerSettings {
                node_id,
                num_partitions: 1,
                default_replication_factor: 1,
                delete_topic_enable: true,
            };
            let mut cluster = Self {
                controller: Controller::new(settings, IdGenerator::from_seed([1; 32])),
                rules: BrokerRules(Arc::new(BrokerConfig::from_pairs(&[]).expect("fits"))),
                image: Arc::default(),
            };
            cluster.run(Command::RegisterBroker(RegisterBroker {
                broker_id: node_id,
                incarnation_id: Uuid::from_bytes([1; 16]),
                endpoints: Vec::new(),
                rack: None,
                features: Vec::new(),
                directories: vec![DirectoryId::new(Uuid::from_bytes([2; 16]))],
            }));
            cluster
        }

        fn run(&mut self, command: Command) -> (Reply, Vec<MetadataRecord>) {
            let (reply, records) = self.controller.handle(&self.image, &self.rules, command);
            if !records.is_empty() {
                let mut builder = ImageBuilder::new(&self.image);
                builder.replay_batch(&records).expect("the controller's records apply");
                self.image = builder.finish().0;
            }
            (reply, records)
        }
    }

    const SET: i8 = ConfigOperation::SET;
    const DELETE: i8 = ConfigOperation::DELETE;
    const APPEND: i8 = ConfigOperation::APPEND;
    const SUBTRACT: i8 = ConfigOperation::SUBTRACT;

    /// What a change comes to: the values stored, or code and text of the refusal.
    fn plan(resource: Resource, current: &[(&str, &str)], change: (&str, i8, Option<&str>)) -> String {
        let mut cluster = Cluster::new();
        if resource == Resource::Topic {
            let mut topic = CreatableTopic::with_defaults(NAME);
            topic.configs = current.iter().map(|(key, value)| ((*key).to_owned(), Some((*value).to_owned()))).collect();
            cluster.run(Command::CreateTopics(CreateTopics { topics: vec![topic], validate_only: false }));
        } else {
            assert!(current.is_empty());
        }
        let (resource_type, name) = match resource {
            Resource::Topic => (ConfigResource::TYPE_TOPIC, NAME),
            Resource::Broker => (ConfigResource::TYPE_BROKER, "1"),
            Resource::Cluster => (ConfigResource::TYPE_BROKER, ""),
            Resource::Group => (ConfigResource::TYPE_GROUP, NAME),
            Resource::ClientMetrics => (ConfigResource::TYPE_CLIENT_METRICS, NAME),
        };
        let (key, operation, value) = change;
        let changed = IncrementalAlterConfigsResource {
            resource_type,
            resource_name: name.to_owned(),
            operations: vec![ConfigOperation { key: key.to_owned(), operation, value: value.map(str::to_owned) }],
        };
        let command = Command::IncrementalAlterConfigs(IncrementalAlterConfigs {
            resources: vec![changed],
            validate_only: false,
        });
        let (Reply::IncrementalAlterConfigs(results), records) = cluster.run(command) else { panic!("another reply") };
        match &results[0].result {
            Err(error) => format!("{:?}: {error}", ErrorCode::from(error)),
            Ok(()) => records.iter().map(stored).collect::<Vec<_>>().join(";"),
        }
    }

    fn stored(record: &MetadataRecord) -> String {
        let MetadataRecord::Config { key, value, .. } = record else { panic!("{record:?} is no config") };
        format!("{key}={}", value.as_deref().unwrap_or("none"))
    }

    #[test]
    fn topics_are_changed_as_kafka_changes_them() {
        // Rule: operations, refusals and their texts on topics are Kafka 4.4's, recorded from it.
        for (current, change, want) in [
            (&[][..], ("retention.ms", SET, Some(" 77 ")), "retention.ms= 77 "),
            (&[("retention.ms", "5")][..], ("retention.ms", SET, Some("5")), ""),
            (&[("retention.ms", "5")][..], ("retention.ms", DELETE, None), "retention.ms=none"),
            (&[][..], ("retention.ms", DELETE, None), ""),
            (&[][..], ("no.such", DELETE, None), ""),
            (&[][..], ("no.such", SET, Some("1")), "InvalidConfig: Unknown topic config name: no.such"),
            (&[][..], ("retention.ms", SET, None), "InvalidRequest: Null value not supported for : retention.ms"),
            (&[][..], ("cleanup.policy", APPEND, Some("compact")), "cleanup.policy=delete,compact"),
            (&[("cleanup.policy", "compact,delete")][..], ("cleanup.policy", APPEND, Some("delete")), ""),
            (
                &[("cleanup.policy", "compact,delete")][..],
                ("cleanup.policy", SUBTRACT, Some("delete")),
                "cleanup.policy=compact",
            ),
            (&[("cleanup.policy", "compact")][..], ("cleanup.policy", SUBTRACT, Some("compact")), "cleanup.policy="),
            (
                &[][..],
                ("cleanup.policy", APPEND, Some("foo")),
                "InvalidConfig: Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
            ),
            (
                &[][..],
                ("cleanup.policy", APPEND, Some("")),
                "InvalidConfig: Configuration 'cleanup.policy' values must not be empty.",
            ),
            (
                &[][..],
                ("retention.ms", APPEND, Some("5")),
                "InvalidConfig: Can't APPEND to key retention.ms because its type is not LIST.",
            ),
            (
                &[("max.compaction.lag.ms", "1")][..],
                ("min.compaction.lag.ms", SET, Some("10")),
                "InvalidConfig: conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (1)",
            ),
            (
                &[][..],
                ("remote.storage.enable", SET, Some("true")),
                "InvalidConfig: Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.",
            ),
            (&[][..], ("remote.storage.enable", SET, Some("false")), "remote.storage.enable=false"),
            (&[][..], ("local.retention.ms", SET, Some("5")), "local.retention.ms=5"),
        ] {
            assert_eq!(plan(Resource::Topic, current, change), want, "{change:?} on {current:?}");
        }
    }

    #[test]
    fn brokers_are_changed_as_kafka_changes_them() {
        // Rule: what may change while the broker runs, and at which level, is Kafka 4.4's.
        let level = "Cannot update these configs at default cluster level, broker id must be specified";
        let listener = "These security configs can be dynamically updated only per-listener using the listener prefix";
        for (resource, change, want) in [
            (Resource::Broker, ("log.retention.ms", SET, Some("-5")), "log.retention.ms=-5".to_owned()),
            (
                Resource::Cluster,
                ("num.io.threads", SET, Some("0")),
                "InvalidRequest: Invalid value 0 for configuration num.io.threads: Value must be at least 1".to_owned(),
            ),
            (
                Resource::Broker,
                ("node.id", SET, Some("5")),
                "InvalidRequest: Cannot update these configs dynamically: [node.id]".to_owned(),
            ),
            (Resource::Broker, ("node.id", DELETE, None), String::new()),
            (Resource::Cluster, ("no.such.config", SET, Some("1")), "no.such.config=1".to_owned()),
            (
                Resource::Broker,
                ("sasl.enabled.mechanisms", SET, Some("PLAIN")),
                "sasl.enabled.mechanisms=PLAIN".to_owned(),
            ),
            (
                Resource::Cluster,
                ("sasl.enabled.mechanisms", SET, Some("PLAIN")),
                format!("InvalidRequest: {level}: [sasl.enabled.mechanisms]"),
            ),
            (
                Resource::Broker,
                ("ssl.keystore.password", SET, Some("x")),
                format!("InvalidRequest: {listener}: [ssl.keystore.password]"),
            ),
            (
                Resource::Cluster,
                ("listener.name.external.foo", SET, Some("5")),
                format!("InvalidRequest: {level}: [listener.name.external.foo]"),
            ),
            (
                Resource::Cluster,
                ("listener.name.external.max.connections", SET, Some("5")),
                "listener.name.external.max.connections=5".to_owned(),
            ),
            (
                Resource::Broker,
                ("log.retention.ms", APPEND, Some("5")),
                "InvalidConfig: Config value append is not allowed for config key: log.retention.ms".to_owned(),
            ),
            (Resource::Broker, ("log.cleanup.policy", SUBTRACT, Some("delete")), "log.cleanup.policy=".to_owned()),
            (
                Resource::Broker,
                ("listeners", SET, Some("PLAINTEXT://:1")),
                "InvalidRequest: listeners cannot be changed to PLAINTEXT://:1: listeners are opened at start only"
                    .to_owned(),
            ),
            (
                Resource::Broker,
                ("listeners", SET, Some("PLAINTEXT://127.0.0.1:9092")),
                "listeners=PLAINTEXT://127.0.0.1:9092".to_owned(),
            ),
        ] {
            assert_eq!(plan(resource, &[], change), want, "{resource:?} {change:?}");
        }
    }

    #[test]
    fn subscriptions_are_changed_as_kafka_changes_them() {
        // Rule: what a client metrics subscription refuses, and with which code, is Kafka 4.4's.
        for (change, want) in [
            (("interval.ms", SET, Some("5000")), "interval.ms=5000"),
            (
                ("interval.ms", SET, Some("5")),
                "InvalidRequest: Invalid value 5 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
            ),
            (
                ("match", SET, Some("client_id=a, client_source_port = 9=")),
                "match=client_id=a, client_source_port = 9=",
            ),
            (("match", SET, Some("client=a")), "InvalidConfig: Illegal client matching pattern: client=a"),
            (("match", SET, Some("client_id=a=b")), "InvalidConfig: Illegal client matching pattern: client_id=a=b"),
            (("match", SET, Some("client_id=[a")), "InvalidConfig: Illegal client matching pattern: client_id=[a"),
            (("match", SET, Some("client_id=(?!a).*+")), "match=client_id=(?!a).*+"),
            (("match", SET, Some("client_id=")), "InvalidConfig: Illegal client matching pattern: client_id="),
            (
                ("match", APPEND, Some("client_id=a")),
                "InvalidConfig: Can't APPEND to key match because its type is not LIST.",
            ),
            (("nope", SET, Some("5")), "InvalidRequest: Unknown client metrics configuration: nope"),
        ] {
            assert_eq!(plan(Resource::ClientMetrics, &[], change), want, "{change:?}");
        }
    }

    #[test]
    fn groups_stay_within_the_broker_s_limits() {
        // Rule: a group's values lie between the broker's least and most, and members have time for a heartbeat.
        for (key, value, want) in [
            ("consumer.session.timeout.ms", "50000", ""),
            ("consumer.session.timeout.ms", "44999", "must be in the range 45000 to 60000 inclusive."),
            ("consumer.heartbeat.interval.ms", "60001", "must be in the range 5000 to 15000 inclusive."),
            ("share.delivery.count.limit", "11", "must be in the range 2 to 10 inclusive."),
            ("streams.num.standby.replicas", "3", "inclusive."),
            ("streams.assignor.name", "sticky", ""),
            ("streams.assignor.name", "loose", "not a registered task assignor."),
            ("streams.rack.aware.assignment.tags", "a, b", ""),
            ("streams.rack.aware.assignment.tags", "a, a", "duplicate tag keys."),
            ("errors.deadletterqueue.topic.name", "__x", "must not start with '__'"),
            ("nope", "1", "InvalidConfig: Unknown group config name: nope"),
        ] {
            let planned = plan(Resource::Group, &[], (key, SET, Some(value)));
            let fits = if want.is_empty() { planned == format!("{key}={value}") } else { planned.ends_with(want) };
            assert!(fits, "{key}={value}: {planned}");
        }
        let limits = [("group.consumer.max.heartbeat.interval.ms", "50000")];
        let config = BrokerConfig::from_pairs(&limits).expect("fits");
        let refused = validate(Resource::Group, &map(&[("consumer.heartbeat.interval.ms", "45000")]), &config);
        assert!(matches!(refused, Err(AlterError::GroupHeartbeat { .. })), "{refused:?}");
    }
}
