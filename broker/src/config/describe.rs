//! Answers of DescribeConfigs: every key with its value, where that comes from, and what else was given for it.

use std::collections::BTreeMap;

use super::key::{ConfigKey, Mode, Value};
use super::keys::{BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS, broker_synonyms, listener_key};
use super::topic::topic_value;
use super::view::BrokerView;

/// Where a value comes from; the number is the one on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum ConfigSource {
    Topic = 1,
    DynamicBroker = 2,
    DynamicDefaultBroker = 3,
    StaticBroker = 4,
    Default = 5,
    ClientMetrics = 7,
    Group = 8,
}

/// One value given for a key, at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigSynonym {
    pub name: String,
    /// `None` for secrets.
    pub value: Option<String>,
    pub source: ConfigSource,
}

/// One key of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEntry {
    pub name: String,
    /// `None` for secrets and where there is no value.
    pub value: Option<String>,
    pub source: ConfigSource,
    pub read_only: bool,
    pub sensitive: bool,
    /// Number of the type on the wire; 0 for keys nobody declares.
    pub kind: i8,
    pub doc: Option<&'static str>,
    /// The strongest first; the head is what counts.
    pub synonyms: Vec<ConfigSynonym>,
}

/// Of the layers of a [`BrokerView`].
const BROKER_SOURCES: [ConfigSource; 3] =
    [ConfigSource::DynamicBroker, ConfigSource::DynamicDefaultBroker, ConfigSource::StaticBroker];

/// Which layers of the broker are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layers {
    All,
    ClusterOnly,
}

/// All configs of a topic with `overrides`.
pub fn describe_topic(overrides: &BTreeMap<String, String>, view: &BrokerView<'_>) -> Vec<ConfigEntry> {
    let shown = TOPIC_KEYS.iter().filter(|key| !key.hidden || overrides.contains_key(key.name));
    shown.map(|key| entry(key, topic_value(key, overrides, view), overrides, ConfigSource::Topic, view)).collect()
}

/// The same for the answer to its creation: every value as it was given, wherever that was, hours and minutes in milliseconds.
pub fn describe_new_topic(overrides: &BTreeMap<String, String>, view: &BrokerView<'_>) -> Vec<ConfigEntry> {
    let shown = TOPIC_KEYS.iter().filter(|key| !key.hidden || overrides.contains_key(key.name));
    shown
        .map(|key| {
            let (value, source) = given_of_topic(key, overrides, view);
            ConfigEntry {
                name: key.name.to_owned(),
                value,
                source,
                read_only: false,
                sensitive: key.sensitive(),
                kind: key.kind as i8,
                doc: Some(key.doc),
                synonyms: Vec::new(),
            }
        })
        .collect()
}

fn given_of_topic(
    key: &ConfigKey,
    overrides: &BTreeMap<String, String>,
    view: &BrokerView<'_>,
) -> (Option<String>, ConfigSource) {
    if let Some(own) = overrides.get(key.name) {
        return (Some(own.clone()), ConfigSource::Topic);
    }
    let names = key.synonym.map(broker_synonyms).unwrap_or_default();
    for (layer, source) in view.layers().into_iter().zip(BROKER_SOURCES) {
        if let Some((name, raw)) = names.iter().find_map(|name| Some((name, layer.get(*name)?))) {
            return (Some(in_milliseconds(name, raw)), source);
        }
    }
    let default = key.default.and_then(|default| key.parse(default).ok());
    (default.map(|value| value.to_string()), ConfigSource::Default)
}

/// What the value of a key named after another unit is in milliseconds.
fn in_milliseconds(name: &str, raw: &str) -> String {
    let unit_ms: i64 = match name.rsplit_once('.') {
        Some((_, "hours")) => 3_600_000,
        Some((_, "minutes")) => 60_000,
        _ => return raw.to_owned(),
    };
    raw.trim().parse::<i64>().map_or_else(|_| raw.to_owned(), |count| count.saturating_mul(unit_ms).to_string())
}

/// All configs of a consumer, share or streams group with `overrides`.
pub fn describe_group(overrides: &BTreeMap<String, String>, view: &BrokerView<'_>) -> Vec<ConfigEntry> {
    let shown = GROUP_KEYS.iter().filter(|key| !key.hidden || overrides.contains_key(key.name));
    shown
        .map(|key| {
            let own = overrides.get(key.name).and_then(|raw| key.parse(raw).ok());
            let inherited = || key.synonym.and_then(|synonym| view.value(synonym));
            let default = || key.default.and_then(|default| key.parse(default).ok());
            entry(key, own.or_else(inherited).or_else(default), overrides, ConfigSource::Group, view)
        })
        .collect()
}

/// All configs of a client metrics subscription with `overrides`.
pub fn describe_client_metrics(overrides: &BTreeMap<String, String>, view: &BrokerView<'_>) -> Vec<ConfigEntry> {
    let value = |key: &ConfigKey| {
        let raw = overrides.get(key.name).map(String::as_str).or(key.default)?;
        key.parse(raw).ok()
    };
    CLIENT_METRICS_KEYS.iter().map(|key| entry(key, value(key), overrides, ConfigSource::ClientMetrics, view)).collect()
}

/// An entry of a resource that falls back to the broker.
fn entry(
    key: &'static ConfigKey,
    value: Option<Value>,
    overrides: &BTreeMap<String, String>,
    own: ConfigSource,
    view: &BrokerView<'_>,
) -> ConfigEntry {
    let mut synonyms = Vec::new();
    let value = value.map(|value| value.to_string());
    if overrides.contains_key(key.name) {
        synonyms.push(ConfigSynonym { name: key.name.to_owned(), value: value.clone(), source: own });
    }
    if let Some(broker_key) = key.synonym {
        synonyms.extend(broker_values(broker_key, view, Layers::All));
    } else if let (ConfigSource::Group, Some(default)) = (own, key.default) {
        // A group's own default is shown, a topic's is not.
        let value = Some(default.to_owned());
        synonyms.push(ConfigSynonym { name: key.name.to_owned(), value, source: ConfigSource::Default });
    }
    ConfigEntry {
        name: key.name.to_owned(),
        value,
        source: synonyms.first().map_or(ConfigSource::Default, |synonym| synonym.source),
        read_only: false,
        sensitive: key.sensitive(),
        kind: key.kind as i8,
        doc: Some(key.doc),
        synonyms,
    }
}

/// All configs of this broker.
pub fn describe_broker(view: &BrokerView<'_>) -> Vec<ConfigEntry> {
    let mut names: Vec<&str> = BROKER_KEYS.iter().filter(|key| !key.hidden).map(|key| key.name).collect();
    for layer in view.layers() {
        names.extend(layer.keys().map(String::as_str));
    }
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(|name| broker_entry(name, view, Layers::All)).collect()
}

/// The configs set for all brokers, the broker resource with the empty name.
pub fn describe_cluster(view: &BrokerView<'_>) -> Vec<ConfigEntry> {
    view.cluster.keys().map(|name| broker_entry(name, view, Layers::ClusterOnly)).collect()
}

fn broker_entry(name: &str, view: &BrokerView<'_>, layers: Layers) -> ConfigEntry {
    let declared = BROKER_KEYS.find(name);
    let key = declared.or_else(|| BROKER_KEYS.find(listener_key(name)?));
    let synonyms = broker_values(name, view, layers);
    // What nobody declares may be a secret of a plug-in.
    let sensitive = key.is_none_or(ConfigKey::sensitive);
    let value = match layers {
        _ if sensitive => None,
        Layers::All => key.and_then(|key| view.value_of(key, name)).map(|value| value.to_string()),
        // As it was set, unread.
        Layers::ClusterOnly => view.cluster.get(name).cloned(),
    };
    ConfigEntry {
        name: name.to_owned(),
        value,
        source: synonyms.first().map_or(ConfigSource::Default, |synonym| synonym.source),
        read_only: declared.is_none_or(|key| key.mode == Mode::ReadOnly),
        sensitive,
        kind: key.map_or(0, |key| key.kind as i8),
        doc: declared.map(|key| key.doc),
        synonyms,
    }
}

/// Everything given for a broker key and the names that stand in for it, the strongest first. What comes before the
/// key's own name is left out: it belongs to another key.
fn broker_values(name: &str, view: &BrokerView<'_>, layers: Layers) -> Vec<ConfigSynonym> {
    let names = broker_synonyms(name);
    let mut synonyms = Vec::new();
    let mut push = |name: &str, value: &str, source| {
        let key = BROKER_KEYS.find(name).or_else(|| BROKER_KEYS.find(listener_key(name)?));
        let value = (!key.is_none_or(ConfigKey::sensitive)).then(|| value.to_owned());
        synonyms.push(ConfigSynonym { name: name.to_owned(), value, source });
    };
    for (layer, source) in view.layers().into_iter().zip(BROKER_SOURCES) {
        for name in &names {
            if let Some(value) = layer.get(*name) {
                push(name, value, source);
            }
        }
    }
    for name in &names {
        if let Some(default) = BROKER_KEYS.find(name).and_then(|key| key.default) {
            push(name, default, ConfigSource::Default);
        }
    }
    let own = synonyms.iter().position(|synonym| synonym.name == name).unwrap_or(synonyms.len());
    let synonyms = synonyms.split_off(own);
    match layers {
        Layers::All => synonyms,
        Layers::ClusterOnly => {
            synonyms.into_iter().filter(|synonym| synonym.source == ConfigSource::DynamicDefaultBroker).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BrokerConfig;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    /// `name=value(source number);…` as compact as it gets.
    fn show(entries: &[ConfigEntry], name: &str) -> String {
        let entry = entries.iter().find(|entry| entry.name == name).unwrap_or_else(|| panic!("{name} is not shown"));
        let synonyms: Vec<String> = entry
            .synonyms
            .iter()
            .map(|synonym| {
                let value = synonym.value.as_deref().unwrap_or("null");
                format!("{}={value}({})", synonym.name, synonym.source as i8)
            })
            .collect();
        format!("{} {} {}", entry.value.as_deref().unwrap_or("null"), entry.source as i8, synonyms.join(";"))
    }

    #[test]
    fn topics_show_what_they_inherit() {
        // Rule: sources and synonyms of a topic's configs are Kafka 4.4's, recorded from it.
        let config = BrokerConfig::from_pairs(&[]).expect("fits");
        let own = map(&[("log.retention.ms", "500"), ("log.cleanup.policy", "delete"), ("log.flush.interval.ms", "5")]);
        let cluster = map(&[("log.retention.ms", "500"), ("log.cleanup.policy", "compact")]);
        let view = BrokerView { config: &config, own: &own, cluster: &cluster };
        let overrides = map(&[("retention.ms", " 77 "), ("remote.storage.enable", "false")]);
        let entries = describe_topic(&overrides, &view);
        for (name, want) in [
            (
                "retention.ms",
                "77 1 retention.ms=77(1);log.retention.ms=500(2);log.retention.ms=500(3);log.retention.hours=168(5)",
            ),
            (
                "cleanup.policy",
                "delete 2 log.cleanup.policy=delete(2);log.cleanup.policy=compact(3);log.cleanup.policy=delete(5)",
            ),
            ("flush.ms", "5 2 log.flush.interval.ms=5(2);log.flush.scheduler.interval.ms=9223372036854775807(5)"),
            ("segment.ms", "604800000 5 "),
            ("remote.storage.enable", "false 1 remote.storage.enable=false(1)"),
            ("compression.type", "producer 5 compression.type=producer(5)"),
            ("leader.replication.throttled.replicas", " 5 "),
        ] {
            assert_eq!(show(&entries, name), want, "{name}");
        }
        assert!(entries.iter().all(|entry| entry.name != "internal.segment.bytes" && !entry.read_only));
    }

    #[test]
    fn a_new_topic_shows_what_was_given() {
        // Rule: values are shown unread, from the strongest layer that has any of the names that stand in (KafkaConfigSchema.java).
        let config = BrokerConfig::from_pairs(&[("log.retention.hours", "2"), ("log.roll.hours", "3")]).expect("fits");
        let (own, cluster) = (map(&[("log.retention.ms", "-2")]), map(&[("log.preallocate", "TRUE")]));
        let view = BrokerView { config: &config, own: &own, cluster: &cluster };
        let entries = describe_new_topic(&map(&[("flush.ms", " 5 ")]), &view);
        for (name, want) in [
            ("flush.ms", " 5  1 "),
            ("retention.ms", "-2 2 "),
            ("preallocate", "TRUE 3 "),
            ("segment.ms", "10800000 4 "),
            ("segment.bytes", "1073741824 5 "),
        ] {
            assert_eq!(show(&entries, name), want, "{name}");
        }
    }

    #[test]
    fn brokers_show_every_layer_and_no_secret() {
        // Rule: sources, synonyms, read-only flags and secrets of a broker's configs are Kafka 4.4's.
        let config =
            BrokerConfig::from_pairs(&[("node.id", "1"), ("my.plugin.password", "x"), ("log.retention.hours", "5")])
                .expect("fits");
        let own = map(&[
            ("listener.name.external.max.connections", "5"),
            ("listener.name.external.ssl.keystore.password", "x"),
            ("listener.name.external.foo", "x"),
            ("leader.replication.throttled.rate", "5"),
        ]);
        let cluster = map(&[("max.connections", "10"), ("no.such.config", "x")]);
        let view = BrokerView { config: &config, own: &own, cluster: &cluster };
        let entries = describe_broker(&view);
        for (name, want) in [
            ("node.id", "1 4 node.id=1(4)"),
            ("broker.id", "1 4 broker.id=1(4);broker.id=-1(5)"),
            ("my.plugin.password", "null 4 my.plugin.password=null(4)"),
            ("max.connections", "10 3 max.connections=10(3);max.connections=2147483647(5)"),
            (
                "listener.name.external.max.connections",
                "5 2 listener.name.external.max.connections=5(2);max.connections=10(3);max.connections=2147483647(5)",
            ),
            (
                "listener.name.external.ssl.keystore.password",
                "null 2 listener.name.external.ssl.keystore.password=null(2)",
            ),
            ("leader.replication.throttled.rate", "5 2 leader.replication.throttled.rate=5(2)"),
            ("log.retention.ms", "null 5 "),
            ("log.retention.hours", "5 4 log.retention.hours=5(4);log.retention.hours=168(5)"),
            ("ssl.keystore.password", "null 5 "),
        ] {
            assert_eq!(show(&entries, name), want, "{name}");
        }
        let find = |name: &str| entries.iter().find(|entry| entry.name == name).expect("shown");
        assert!(find("listener.name.external.max.connections").read_only);
        assert!(find("no.such.config").sensitive && find("no.such.config").kind == 0);
        assert!(!find("max.connections").read_only && find("node.id").read_only);
        let cluster_entries = describe_cluster(&view);
        assert_eq!(cluster_entries.len(), 2);
        assert_eq!(show(&cluster_entries, "max.connections"), "10 3 max.connections=10(3)");
    }
}
