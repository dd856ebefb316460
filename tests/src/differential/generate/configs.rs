//! Configs described and altered.

use walser_protocol::ApiKey;
use walser_protocol::messages::alter_configs::{AlterConfigsRequest, AlterConfigsResource, AlterableConfig};
use walser_protocol::messages::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use walser_protocol::messages::incremental_alter_configs as incremental;

use super::{Case, Effect, Request};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const CLIENT_METRICS: i8 = 16;
const GROUP: i8 = 32;

/// Values good and bad. Nothing here makes a broker delete or rewrite records while the run lasts, for two brokers would
/// not do that at the same moment; recompression is left out because two libraries do not make the same bytes.
const TOPIC_CONFIGS: [(&str, &[&str]); 26] = [
    ("cleanup.policy", &["delete", "delete", "compact", "compact,delete", "", "shred"]),
    ("compression.type", &["producer", "uncompressed", "rar"]),
    ("compression.gzip.level", &["1", "9", "-1", "0", "10"]),
    ("compression.lz4.level", &["1", "17", "0", "18"]),
    ("compression.zstd.level", &["3", "22", "23"]),
    ("delete.retention.ms", &["86400000", "0", "-1"]),
    ("file.delete.delay.ms", &["60000", "0", "-1"]),
    ("flush.messages", &["1", "1000", "0", "x"]),
    ("flush.ms", &["1000", "0", "-1"]),
    ("index.interval.bytes", &["4096", "0", "-1"]),
    ("max.compaction.lag.ms", &["1000000", "0"]),
    ("max.message.bytes", &["1048588", "1048588", "300", "0", "-1", "99999999999"]),
    ("message.timestamp.type", &["CreateTime", "LogAppendTime", "createtime"]),
    ("message.timestamp.before.max.ms", &["9223372036854775807", "1000", "-1"]),
    ("message.timestamp.after.max.ms", &["3600000", "0", "-1"]),
    ("min.cleanable.dirty.ratio", &["0.5", "0", "1", "1.1", "-0.1", "x"]),
    ("min.compaction.lag.ms", &["0", "1000", "-1"]),
    ("min.insync.replicas", &["1", "1", "2", "0"]),
    ("preallocate", &["true", "false", "TRUE", "yes"]),
    ("retention.bytes", &["-1", "99999999999", "x"]),
    ("retention.ms", &["-1", "604800000", " 604800000 ", "-2"]),
    // Of 4, which is allowed, Kafka can make no index, and the partition none of its logs.
    ("segment.index.bytes", &["10485760", "4096", "3"]),
    ("segment.jitter.ms", &["0", "-1"]),
    ("unclean.leader.election.enable", &["true", "false", "maybe"]),
    ("remote.storage.enable", &["false", "true", "x"]),
    ("no.such.config", &["1"]),
];

/// Described but not set: they have a value of their own on both brokers.
const OTHER_TOPIC_KEYS: [&str; 6] = [
    "segment.bytes",
    "segment.ms",
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
    "local.retention.ms",
    "local.retention.bytes",
];

/// Dynamic ones that change nothing in what the other requests see, and some that are refused.
const BROKER_CONFIGS: [(&str, &[&str]); 18] = [
    ("log.cleaner.threads", &["1", "2", "4", "0", "-1", "x"]),
    ("log.cleaner.backoff.ms", &["15000", "1000", "-1"]),
    ("log.retention.ms", &["604800000", "-1", "-2", "0"]),
    ("log.local.retention.ms", &["-2", "-1", "1000", "99999999999"]),
    ("log.cleaner.delete.retention.ms", &["86400000", "-1"]),
    ("log.index.interval.bytes", &["4096", "8192", "-1"]),
    ("log.segment.delete.delay.ms", &["60000", "70000", "-1"]),
    ("max.connections", &["2147483647", "10000", "-1"]),
    ("max.connections.per.ip", &["2147483647", "10000", "0", "-1"]),
    ("min.insync.replicas", &["1", "0"]),
    ("background.threads", &["10", "20", "5", "4", "21", "0"]),
    ("num.io.threads", &["8", "9", "3", "17", "0"]),
    // Never another number than there are: with a network thread that is one too many go its connections.
    ("num.network.threads", &["3", "7", "0"]),
    ("num.recovery.threads.per.data.dir", &["2", "4", "1", "9", "0"]),
    ("log.cleanup.policy", &["delete", "shred"]),
    ("node.id", &["7"]),
    ("process.roles", &["broker"]),
    ("no.such.config", &["1"]),
];

const GROUP_CONFIGS: [(&str, &[&str]); 15] = [
    ("consumer.session.timeout.ms", &["45000", "60000", "44999", "60001", "0"]),
    ("consumer.heartbeat.interval.ms", &["5000", "15000", "4999", "15001", "x"]),
    ("consumer.assignment.interval.ms", &["1000", "0", "-1", "15001"]),
    ("share.session.timeout.ms", &["45000", "44999"]),
    ("share.heartbeat.interval.ms", &["5000", "15001"]),
    ("share.record.lock.duration.ms", &["30000", "60000", "14999", "60001", "999"]),
    ("share.delivery.count.limit", &["5", "10", "11", "1"]),
    ("share.auto.offset.reset", &["earliest", "latest", "none", "by_duration:PT1H", "by_duration:1h"]),
    ("share.isolation.level", &["read_committed", "read_all"]),
    ("streams.session.timeout.ms", &["45000", "60001"]),
    ("streams.num.standby.replicas", &["0", "2", "3", "-1"]),
    ("streams.assignor.name", &["sticky", "loose", ""]),
    ("streams.rack.aware.assignment.tags", &["zone,cluster", "zone,zone", "", "zone,"]),
    ("errors.deadletterqueue.topic.name", &["", "letters", "__letters"]),
    ("no.such.config", &["1"]),
];

const CLIENT_METRICS_CONFIGS: [(&str, &[&str]); 4] = [
    ("interval.ms", &["300000", "100", "3600000", "99", "3600001", "x"]),
    ("metrics", &["org.apache.kafka.producer.,org.apache.kafka.consumer.", "*", "", "a,,b"]),
    (
        "match",
        &[
            "client_id=a",
            "client_id=a,client_source_port=9092",
            "client_id",
            "client_id=",
            "other=a",
            "client_id=a=b",
            "client_id=^(web|app)-\\d{2}.*$",
            "client_id=(?!test).*+",
            "client_id=a**",
            "client_id=[a",
            "client_id=a),client_source_port=1",
            "",
        ],
    ),
    ("no.such.config", &["1"]),
];

impl Case<'_> {
    /// A topic config and a value, rarely null.
    pub(super) fn topic_config(&mut self) -> (&'static str, Option<&'static str>) {
        let (name, values) = *self.rng.pick(&TOPIC_CONFIGS);
        (name, if self.rng.chance(4) { None } else { Some(*self.rng.pick(values)) })
    }

    fn broker_config(&mut self) -> (&'static str, Option<&'static str>) {
        let (name, values) = *self.rng.pick(&BROKER_CONFIGS);
        (name, if self.rng.chance(4) { None } else { Some(*self.rng.pick(values)) })
    }

    fn group_config(&mut self) -> (&'static str, Option<&'static str>) {
        let (name, values) = *self.rng.pick(&GROUP_CONFIGS);
        (name, if self.rng.chance(4) { None } else { Some(*self.rng.pick(values)) })
    }

    fn client_metrics_config(&mut self) -> (&'static str, Option<&'static str>) {
        let (name, values) = *self.rng.pick(&CLIENT_METRICS_CONFIGS);
        (name, if self.rng.chance(4) { None } else { Some(*self.rng.pick(values)) })
    }

    /// Type and name of a resource; the types are those served, and one that nobody knows.
    fn resource(&mut self) -> (i8, &'static str) {
        match self.rng.below(14) {
            0..8 => (TOPIC, self.topic_name()),
            8 | 9 => (BROKER, *self.rng.pick(&["1", "1", "1", "", "7", "x"])),
            10 => (BROKER, ""),
            11 => (GROUP, *self.rng.pick(&["group", "group", "other group", ""])),
            12 => (CLIENT_METRICS, *self.rng.pick(&["subscription", "subscription", "other one", ""])),
            _ => (*self.rng.pick(&[0, 1, 99]), "x"),
        }
    }

    /// Resources without one that comes twice, but for a few.
    fn resources(&mut self) -> Vec<(i8, &'static str)> {
        let mut all: Vec<(i8, &'static str)> = Vec::new();
        for one in self.some(Self::resource) {
            if !all.contains(&one) || self.rng.chance(5) {
                all.push(one);
            }
        }
        all
    }

    pub(super) fn describe_configs(&mut self) -> Option<Request> {
        let mut resources = Vec::new();
        for (resource_type, resource_name) in self.resources() {
            let configuration_keys = match (resource_type, self.rng.below(3)) {
                // All that a broker says of itself is about where it runs and what it is.
                (TOPIC, 0) => None,
                (BROKER, 0) if resource_name.is_empty() => None,
                (GROUP | CLIENT_METRICS, 0) => None,
                (GROUP | CLIENT_METRICS, _) => Some(vec![self.config_of(resource_type).0]),
                (BROKER, _) => Some(vec![self.broker_config().0, self.broker_config().0]),
                (_, 1) => Some(vec![*self.rng.pick(&OTHER_TOPIC_KEYS), "no.such.config"]),
                _ => Some((0..3).map(|_| self.topic_config().0).collect()),
            };
            resources.push(DescribeConfigsResource { resource_type, resource_name, configuration_keys });
        }
        let request = DescribeConfigsRequest {
            resources,
            include_synonyms: self.rng.chance(50),
            include_documentation: self.version >= 3 && self.rng.chance(30),
        };
        self.finish(ApiKey::DescribeConfigs, &request)
    }

    fn changes_configs(&mut self, validate_only: bool) {
        if !validate_only {
            self.effects.push(Effect::Configs);
        }
    }

    fn config_of(&mut self, resource_type: i8) -> (&'static str, Option<&'static str>) {
        match resource_type {
            BROKER => self.broker_config(),
            GROUP => self.group_config(),
            CLIENT_METRICS => self.client_metrics_config(),
            _ => self.topic_config(),
        }
    }

    pub(super) fn alter_configs(&mut self) -> Option<Request> {
        let mut resources: Vec<AlterConfigsResource<'_>> = Vec::new();
        for (resource_type, resource_name) in self.resources() {
            // Kafka stumbles over a resource that comes twice and never answers; types it does not know are one to it.
            let known = |number: i8| if (TOPIC..=GROUP).contains(&number) { number } else { 0 };
            if resources
                .iter()
                .any(|other| other.resource_name == resource_name && known(other.resource_type) == known(resource_type))
            {
                continue;
            }
            let configs = self.some(|case| {
                let (name, value) = case.config_of(resource_type);
                AlterableConfig { name, value }
            });
            resources.push(AlterConfigsResource { resource_type, resource_name, configs });
        }
        let validate_only = self.rng.chance(40);
        self.changes_configs(validate_only);
        self.finish(ApiKey::AlterConfigs, &AlterConfigsRequest { resources, validate_only })
    }

    pub(super) fn incremental_alter_configs(&mut self) -> Option<Request> {
        let mut resources = Vec::new();
        for (resource_type, resource_name) in self.resources() {
            let configs = self.some(|case| {
                let (name, value) = case.config_of(resource_type);
                let config_operation = *case.rng.pick(match (resource_type, name) {
                    // Kafka stumbles over a list that has no default.
                    (_, "process.roles") => &[0, 1],
                    // Set, delete, append, subtract, and an operation that does not exist.
                    (BROKER, _) => &[0, 0, 0, 0, 1, 1, 2, 3, 4],
                    // Over the last one Kafka's controller loses its leadership, if it is not of a broker.
                    _ => &[0, 0, 0, 0, 1, 1, 2, 3],
                });
                incremental::AlterableConfig { name, config_operation, value }
            });
            resources.push(incremental::AlterConfigsResource { resource_type, resource_name, configs });
        }
        let validate_only = self.rng.chance(25);
        self.changes_configs(validate_only);
        let request = incremental::IncrementalAlterConfigsRequest { resources, validate_only };
        self.finish(ApiKey::IncrementalAlterConfigs, &request)
    }
}
