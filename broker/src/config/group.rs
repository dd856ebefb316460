//! What the broker's configs say about groups and their topic.

use std::collections::BTreeMap;

use walser_machine::group::GroupSettings;
use walser_machine::group::assignor::Assignor;
use walser_machine::group::settings::{ConsumerGroupSettings, MigrationPolicy};
use walser_protocol::records::batch::BatchError;
use walser_protocol::records::compression::{Compression, CompressionType};

use super::view::BrokerView;

/// Kafka's class names of the assignors that it and this broker have; it takes both these and their short names.
const ASSIGNOR_CLASSES: [(&str, Assignor); 2] = [
    ("org.apache.kafka.coordinator.group.assignor.UniformAssignor", Assignor::Uniform),
    ("org.apache.kafka.coordinator.group.assignor.RangeAssignor", Assignor::Range),
];

/// The assignor called so in `group.consumer.assignors`; `None` for a plug-in.
pub fn assignor(name: &str) -> Option<Assignor> {
    let class = ASSIGNOR_CLASSES.iter().find(|(class, _)| *class == name).map(|(_, assignor)| *assignor);
    class.or_else(|| Assignor::from_name(name))
}

/// The codec with this number in `offsets.topic.compression.codec`.
pub fn offsets_compression(view: &BrokerView<'_>) -> Result<Compression, BatchError> {
    let id = u8::try_from(view.integer("offsets.topic.compression.codec")).unwrap_or(u8::MAX);
    CompressionType::from_id(id).map(Compression::new)
}

/// Whether groups of KIP-848 are served.
pub fn serves_consumer_protocol(view: &BrokerView<'_>) -> bool {
    view.list("group.coordinator.rebalance.protocols").iter().any(|protocol| protocol == "consumer")
}

/// `max_message_bytes`: that of the offsets topic.
pub fn group_settings(view: &BrokerView<'_>, max_message_bytes: i32) -> GroupSettings {
    let number = |name: &str| i32::try_from(view.integer(name)).expect("an INT has been checked to fit");
    GroupSettings {
        group_min_session_timeout_ms: number("group.min.session.timeout.ms"),
        group_max_session_timeout_ms: number("group.max.session.timeout.ms"),
        group_initial_rebalance_delay_ms: number("group.initial.rebalance.delay.ms"),
        group_max_size: number("group.max.size"),
        offset_metadata_max_bytes: number("offset.metadata.max.bytes"),
        offsets_retention_minutes: number("offsets.retention.minutes"),
        offsets_retention_check_interval_ms: view.integer("offsets.retention.check.interval.ms"),
        max_message_bytes: usize::try_from(max_message_bytes).unwrap_or(0),
        consumer: ConsumerGroupSettings {
            session_timeout_ms: number("group.consumer.session.timeout.ms"),
            min_session_timeout_ms: number("group.consumer.min.session.timeout.ms"),
            max_session_timeout_ms: number("group.consumer.max.session.timeout.ms"),
            heartbeat_interval_ms: number("group.consumer.heartbeat.interval.ms"),
            min_heartbeat_interval_ms: number("group.consumer.min.heartbeat.interval.ms"),
            max_heartbeat_interval_ms: number("group.consumer.max.heartbeat.interval.ms"),
            max_size: number("group.consumer.max.size"),
            assignors: view.list("group.consumer.assignors").iter().filter_map(|name| assignor(name)).collect(),
            migration_policy: migration_policy(&view.text("group.consumer.migration.policy")),
            assignment_interval_ms: number("group.consumer.assignment.interval.ms"),
            regex_refresh_interval_ms: number("group.consumer.regex.refresh.interval.ms"),
        },
        ..GroupSettings::default()
    }
}

fn migration_policy(name: &str) -> MigrationPolicy {
    match name.to_ascii_lowercase().as_str() {
        "disabled" => MigrationPolicy::Disabled,
        "upgrade" => MigrationPolicy::Upgrade,
        "downgrade" => MigrationPolicy::Downgrade,
        _ => MigrationPolicy::Bidirectional,
    }
}

/// Numbers that have to lie between two others, as `GroupCoordinatorConfig` has it: least, value, greatest.
const BETWEEN: [[&str; 3]; 3] = [
    [
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ],
    [
        "group.consumer.min.session.timeout.ms",
        "group.consumer.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    ],
    [
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
    ],
];

/// A key whose value goes with others', and why it does not.
pub type Contradiction = (&'static str, &'static str);

/// What Kafka checks of several values at its start.
pub fn verify_groups(view: &BrokerView<'_>) -> Result<(), Contradiction> {
    for [least, value, greatest] in BETWEEN {
        if !(view.integer(least)..=view.integer(greatest)).contains(&view.integer(value)) {
            return Err((value, "it must lie between the least and the greatest that groups may set"));
        }
    }
    if view.integer("group.consumer.heartbeat.interval.ms") >= view.integer("group.consumer.session.timeout.ms") {
        return Err(("group.consumer.heartbeat.interval.ms", "it must be less than group.consumer.session.timeout.ms"));
    }
    if view.list("group.consumer.assignors").iter().any(|name| assignor(name).is_none()) {
        return Err(("group.consumer.assignors", "plug-ins are not supported; there are uniform and range"));
    }
    if offsets_compression(view).is_err() {
        return Err(("offsets.topic.compression.codec", "codecs are 0 none, 1 gzip, 2 snappy, 3 lz4 and 4 zstd"));
    }
    Ok(())
}

/// How the offsets topic is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetsTopic {
    pub num_partitions: i32,
    pub replication_factor: i16,
    pub configs: BTreeMap<String, String>,
}

/// `brokers`: no more replicas than there are of them.
pub fn offsets_topic(view: &BrokerView<'_>, brokers: usize) -> OffsetsTopic {
    let wanted = i16::try_from(view.integer("offsets.topic.replication.factor")).unwrap_or(i16::MAX);
    let configs = [
        ("cleanup.policy", "compact".to_owned()),
        ("compression.type", "producer".to_owned()),
        ("segment.bytes", view.integer("offsets.topic.segment.bytes").to_string()),
    ];
    OffsetsTopic {
        num_partitions: i32::try_from(view.integer("offsets.topic.num.partitions")).unwrap_or(i32::MAX),
        replication_factor: wanted.min(i16::try_from(brokers).unwrap_or(i16::MAX)),
        configs: configs.map(|(key, value)| (key.to_owned(), value)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BrokerConfig;

    #[test]
    fn the_defaults_are_those_of_the_machine() {
        // Rule: a broker that is given nothing has Kafka's settings for groups, the same that the machine has by itself.
        let config = BrokerConfig::from_pairs(&[]).expect("fits");
        let view = BrokerView::fixed(&config);
        assert_eq!(group_settings(&view, 1_048_588), GroupSettings::default());
        assert_eq!(offsets_compression(&view), Ok(Compression::NONE));
        assert!(serves_consumer_protocol(&view));
    }

    #[test]
    fn settings_reach_the_groups() {
        // Rule: each key has its own place.
        let config = BrokerConfig::from_pairs(&[
            ("group.initial.rebalance.delay.ms", "0"),
            ("group.max.size", "7"),
            ("group.consumer.assignors", "org.apache.kafka.coordinator.group.assignor.RangeAssignor"),
            ("group.consumer.migration.policy", "Upgrade"),
            ("offsets.topic.compression.codec", "4"),
            ("offsets.topic.num.partitions", "3"),
            ("group.coordinator.rebalance.protocols", "classic"),
        ]);
        let config = config.expect("fits");
        let view = BrokerView::fixed(&config);
        let settings = group_settings(&view, 5);
        assert_eq!((settings.group_initial_rebalance_delay_ms, settings.group_max_size), (0, 7));
        assert_eq!(settings.consumer.assignors, [Assignor::Range]);
        assert_eq!(settings.consumer.migration_policy, MigrationPolicy::Upgrade);
        assert_eq!(settings.max_message_bytes, 5);
        assert_eq!(offsets_compression(&view), Ok(Compression::new(CompressionType::Zstd)));
        assert!(!serves_consumer_protocol(&view));
        let topic = offsets_topic(&view, 1);
        assert_eq!((topic.num_partitions, topic.replication_factor), (3, 1));
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        // Rule: values that Kafka does not start with do not start here, each named.
        for (key, value) in [
            ("group.consumer.session.timeout.ms", "44999"),
            ("group.consumer.session.timeout.ms", "60001"),
            ("group.consumer.heartbeat.interval.ms", "4999"),
            ("group.consumer.assignment.interval.ms", "15001"),
            ("group.consumer.assignors", "uniform,com.example.Mine"),
            ("offsets.topic.compression.codec", "5"),
        ] {
            let error = BrokerConfig::from_pairs(&[(key, value)]).expect_err(key).to_string();
            assert!(error.contains(key), "{key}={value}: {error}");
        }
        let close =
            [("group.consumer.max.heartbeat.interval.ms", "45000"), ("group.consumer.heartbeat.interval.ms", "45000")];
        assert!(BrokerConfig::from_pairs(&close).is_err());
    }
}
