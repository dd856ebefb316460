//! A topic's configs, typed: what the topic sets, over the broker's.

use std::collections::BTreeMap;

use super::key::{ConfigKey, Value};
use super::keys::TOPIC_KEYS;
use super::view::BrokerView;

/// What an acknowledgement means, `walser.durability`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// On stable storage.
    Flushed,
    /// Handed to the file; lost with the power.
    Written,
    /// In memory; lost with the process.
    Memory,
}

/// What happens to old segments. Neither is Kafka's empty policy: they are kept for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanupPolicy {
    pub delete: bool,
    pub compact: bool,
}

/// How batches are stored, `compression.type` with its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressionPolicy {
    /// As the producer sent them.
    Producer,
    Uncompressed,
    /// -1 is the codec's own default.
    Gzip {
        level: i32,
    },
    Snappy,
    Lz4 {
        level: i32,
    },
    Zstd {
        level: i32,
    },
}

/// Whose clock stamps records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    CreateTime,
    LogAppendTime,
}

/// All of a topic's configs that something depends on. Times in milliseconds, sizes in bytes, as in Kafka.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicConfig {
    pub segment_bytes: i32,
    pub segment_ms: i64,
    pub segment_jitter_ms: i64,
    pub segment_index_bytes: i32,
    pub index_interval_bytes: i32,
    pub preallocate: bool,
    pub file_delete_delay_ms: i64,
    pub max_message_bytes: i32,
    pub max_decompressed_message_bytes: i32,
    pub compression: CompressionPolicy,
    pub timestamp_type: TimestampType,
    pub timestamp_before_max_ms: i64,
    pub timestamp_after_max_ms: i64,
    pub min_insync_replicas: i32,
    pub unclean_leader_election: bool,
    pub durability: Durability,
    pub flush_messages: i64,
    pub flush_ms: i64,
    pub cleanup: CleanupPolicy,
    /// -1 keeps segments whatever their age.
    pub retention_ms: i64,
    /// -1 keeps segments whatever their size.
    pub retention_bytes: i64,
    pub delete_retention_ms: i64,
    pub min_compaction_lag_ms: i64,
    pub max_compaction_lag_ms: i64,
    pub min_cleanable_dirty_ratio: f64,
}

impl TopicConfig {
    /// The configs of a topic with `overrides`. Recomputed whenever the image changes one of its layers.
    pub fn resolve(overrides: &BTreeMap<String, String>, view: &BrokerView<'_>) -> Self {
        let values = TopicValues { overrides, view };
        Self {
            // The internal key is there to test rolls without writing a megabyte first.
            segment_bytes: values
                .find("internal.segment.bytes")
                .map_or_else(|| values.int("segment.bytes"), |_| values.int("internal.segment.bytes")),
            segment_ms: values.long("segment.ms"),
            segment_jitter_ms: values.long("segment.jitter.ms"),
            segment_index_bytes: values.int("segment.index.bytes"),
            index_interval_bytes: values.int("index.interval.bytes"),
            preallocate: values.flag("preallocate"),
            file_delete_delay_ms: values.long("file.delete.delay.ms"),
            max_message_bytes: values.int("max.message.bytes"),
            max_decompressed_message_bytes: values.int("max.decompressed.message.bytes"),
            compression: values.compression(),
            timestamp_type: match values.text("message.timestamp.type").as_str() {
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            timestamp_before_max_ms: values.long("message.timestamp.before.max.ms"),
            timestamp_after_max_ms: values.long("message.timestamp.after.max.ms"),
            min_insync_replicas: values.int("min.insync.replicas"),
            unclean_leader_election: values.flag("unclean.leader.election.enable"),
            durability: match values.text("walser.durability").as_str() {
                "memory" => Durability::Memory,
                "written" => Durability::Written,
                _ => Durability::Flushed,
            },
            flush_messages: values.long("flush.messages"),
            flush_ms: values.long("flush.ms"),
            cleanup: values.cleanup(),
            retention_ms: values.long("retention.ms"),
            retention_bytes: values.long("retention.bytes"),
            delete_retention_ms: values.long("delete.retention.ms"),
            min_compaction_lag_ms: values.long("min.compaction.lag.ms"),
            max_compaction_lag_ms: values.long("max.compaction.lag.ms"),
            min_cleanable_dirty_ratio: values.ratio("min.cleanable.dirty.ratio"),
        }
    }
}

struct TopicValues<'a> {
    overrides: &'a BTreeMap<String, String>,
    view: &'a BrokerView<'a>,
}

impl TopicValues<'_> {
    fn find(&self, name: &str) -> Option<Value> {
        let key = TOPIC_KEYS.find(name).unwrap_or_else(|| panic!("no topic key {name} is declared"));
        topic_value(key, self.overrides, self.view)
    }

    fn long(&self, name: &str) -> i64 {
        match self.find(name) {
            Some(Value::Integer(number)) => number,
            other => panic!("{name} is no number with a default but {other:?}"),
        }
    }

    fn int(&self, name: &str) -> i32 {
        i32::try_from(self.long(name)).expect("an INT has been checked to fit")
    }

    fn flag(&self, name: &str) -> bool {
        matches!(self.find(name), Some(Value::Boolean(true)))
    }

    fn text(&self, name: &str) -> String {
        self.find(name).map(|value| value.to_string()).unwrap_or_default()
    }

    fn ratio(&self, name: &str) -> f64 {
        match self.find(name) {
            Some(Value::Double(number)) => number,
            other => panic!("{name} is no ratio with a default but {other:?}"),
        }
    }

    fn cleanup(&self) -> CleanupPolicy {
        let Some(Value::List(policies)) = self.find("cleanup.policy") else {
            return CleanupPolicy { delete: true, compact: false };
        };
        let has = |wanted: &str| policies.iter().any(|policy| policy == wanted);
        CleanupPolicy { delete: has("delete"), compact: has("compact") }
    }

    fn compression(&self) -> CompressionPolicy {
        match self.text("compression.type").as_str() {
            "uncompressed" => CompressionPolicy::Uncompressed,
            "gzip" => CompressionPolicy::Gzip { level: self.int("compression.gzip.level") },
            "snappy" => CompressionPolicy::Snappy,
            "lz4" => CompressionPolicy::Lz4 { level: self.int("compression.lz4.level") },
            "zstd" => CompressionPolicy::Zstd { level: self.int("compression.zstd.level") },
            _ => CompressionPolicy::Producer,
        }
    }
}

/// The value of a topic key: the topic's own, else the broker's under its synonym, else the default.
pub(super) fn topic_value(
    key: &ConfigKey,
    overrides: &BTreeMap<String, String>,
    view: &BrokerView<'_>,
) -> Option<Value> {
    if let Some(value) = overrides.get(key.name).and_then(|raw| key.parse(raw).ok()) {
        return Some(value);
    }
    match key.name {
        "segment.ms" => Some(Value::Integer(view.log_roll_ms())),
        "segment.jitter.ms" => Some(Value::Integer(view.log_roll_jitter_ms())),
        "retention.ms" => Some(Value::Integer(view.log_retention_ms())),
        "flush.ms" => Some(Value::Integer(view.log_flush_ms())),
        _ => match key.synonym {
            Some(synonym) => view.value(synonym),
            None => key.default.and_then(|default| key.parse(default).ok()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BrokerConfig;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn every_topic_key_has_a_value() {
        // Rule: resolving a topic that sets nothing gives Kafka's defaults and flushed durability.
        let config = BrokerConfig::from_pairs(&[]).expect("fits");
        let resolved = TopicConfig::resolve(&BTreeMap::new(), &BrokerView::fixed(&config));
        assert_eq!(
            (resolved.segment_bytes, resolved.segment_ms, resolved.max_message_bytes, resolved.durability),
            (1 << 30, 604_800_000, 1_048_588, Durability::Flushed)
        );
        assert_eq!(resolved.cleanup, CleanupPolicy { delete: true, compact: false });
        assert_eq!((resolved.compression, resolved.retention_ms), (CompressionPolicy::Producer, 604_800_000));
    }

    #[test]
    fn topics_override_what_they_inherit() {
        // Rule: a topic's own value counts, and a changed cluster default reaches topics without one.
        let config = BrokerConfig::from_pairs(&[("walser.durability", "memory")]).expect("fits");
        let cluster =
            map(&[("message.max.bytes", "500"), ("compression.type", "zstd"), ("compression.zstd.level", "7")]);
        let view = BrokerView { cluster: &cluster, ..BrokerView::fixed(&config) };
        let overrides =
            map(&[("cleanup.policy", ""), ("walser.durability", "written"), ("internal.segment.bytes", "9000")]);
        let own = TopicConfig::resolve(&overrides, &view);
        assert_eq!(own.cleanup, CleanupPolicy { delete: false, compact: false });
        assert_eq!((own.durability, own.segment_bytes), (Durability::Written, 9000));
        assert_eq!((own.max_message_bytes, own.compression), (500, CompressionPolicy::Zstd { level: 7 }));
        assert_eq!(TopicConfig::resolve(&BTreeMap::new(), &view).durability, Durability::Memory);
    }
}
