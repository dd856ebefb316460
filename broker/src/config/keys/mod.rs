//! Every key that is known, by what it belongs to; each is declared once.

mod client_metrics;
mod group;
mod group_resource;
mod log;
mod metrics;
mod quotas;
mod replication;
mod security;
mod server;
mod share;
mod sockets;
mod tiered;
mod topic;
mod transactions;
mod walser;

use std::sync::LazyLock;

use crate::config::key::ConfigKey;

/// A set of keys, sorted by name.
#[derive(Debug)]
pub struct KeyTable(Vec<&'static ConfigKey>);

impl KeyTable {
    fn new(parts: &[&'static [ConfigKey]]) -> Self {
        let mut keys: Vec<&ConfigKey> = parts.iter().flat_map(|part| part.iter()).collect();
        keys.sort_unstable_by_key(|key| key.name);
        Self(keys)
    }

    /// The key called `name`.
    pub fn find(&self, name: &str) -> Option<&'static ConfigKey> {
        let position = self.0.binary_search_by(|key| key.name.cmp(name)).ok()?;
        self.0.get(position).copied()
    }

    /// All keys by name.
    pub fn iter(&self) -> impl Iterator<Item = &'static ConfigKey> + '_ {
        self.0.iter().copied()
    }
}

/// Keys of the broker: `server.properties`, and the broker resource of the config APIs.
pub static BROKER_KEYS: LazyLock<KeyTable> = LazyLock::new(|| {
    KeyTable::new(&[
        sockets::KEYS,
        server::KEYS,
        replication::KEYS,
        log::KEYS,
        group::KEYS,
        share::KEYS,
        transactions::KEYS,
        quotas::KEYS,
        tiered::KEYS,
        metrics::KEYS,
        security::KEYS,
        walser::KEYS,
    ])
});

/// Keys of the topic resource.
pub static TOPIC_KEYS: LazyLock<KeyTable> = LazyLock::new(|| KeyTable::new(&[topic::KEYS]));

/// Keys of the group resource.
pub static GROUP_KEYS: LazyLock<KeyTable> = LazyLock::new(|| KeyTable::new(&[group_resource::KEYS]));

/// Keys of the client metrics resource.
pub static CLIENT_METRICS_KEYS: LazyLock<KeyTable> = LazyLock::new(|| KeyTable::new(&[client_metrics::KEYS]));

/// Broker keys under which the value of `name` may have been given, the one that counts most first: coarser units
/// stand in for milliseconds, and a listener's own key for the one without its prefix.
pub fn broker_synonyms(name: &str) -> Vec<&str> {
    match name {
        "log.roll.ms" | "log.roll.hours" => vec!["log.roll.ms", "log.roll.hours"],
        "log.roll.jitter.ms" | "log.roll.jitter.hours" => vec!["log.roll.jitter.ms", "log.roll.jitter.hours"],
        "log.flush.interval.ms" => vec!["log.flush.interval.ms", "log.flush.scheduler.interval.ms"],
        "log.retention.ms" | "log.retention.minutes" | "log.retention.hours" => {
            vec!["log.retention.ms", "log.retention.minutes", "log.retention.hours"]
        }
        _ => match listener_key(name) {
            Some(base) => vec![name, base],
            None => vec![name],
        },
    }
}

/// The key behind `listener.name.<listener>.`, without the SASL mechanism that may stand before it.
pub fn listener_key(name: &str) -> Option<&str> {
    let (_listener, key) = name.strip_prefix("listener.name.")?.split_once('.')?;
    if BROKER_KEYS.find(key).is_some() {
        return Some(key);
    }
    let mechanism_keys = [
        "sasl.jaas.config",
        "sasl.login.class",
        "sasl.login.callback.handler.class",
        "sasl.server.callback.handler.class",
        "connections.max.reauth.ms",
    ];
    mechanism_keys
        .into_iter()
        .find(|mechanism_key| {
            key.strip_suffix(mechanism_key).is_some_and(|prefix| prefix.len() > 1 && prefix.ends_with('.'))
        })
        .or(Some(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::key::Mode;

    fn tables() -> [&'static KeyTable; 4] {
        [&BROKER_KEYS, &TOPIC_KEYS, &GROUP_KEYS, &CLIENT_METRICS_KEYS]
    }

    #[test]
    fn every_key_is_declared_once_with_a_default_it_allows() {
        // Rule: a default is a value the key itself accepts, and no name is declared twice in a table.
        for table in tables() {
            let mut last = "";
            for key in table.iter() {
                assert_ne!(last, key.name, "declared twice");
                last = key.name;
                assert!(key.doc.ends_with('.'), "{}: the doc is a sentence", key.name);
                if let Some(default) = key.default {
                    let value = key.parse(default).unwrap_or_else(|error| panic!("{}: {error}", key.name));
                    assert_eq!(value.to_string(), default, "{}: a default is in its canonical form", key.name);
                }
            }
        }
    }

    #[test]
    fn every_topic_and_group_key_falls_back_to_a_broker_key() {
        // Rule: a synonym names a broker key that exists and has the same type.
        for table in [&*TOPIC_KEYS, &*GROUP_KEYS] {
            for key in table.iter() {
                let Some(synonym) = key.synonym else {
                    assert!(BROKER_KEYS.find(key.name).is_none(), "{} has a broker key of its own name", key.name);
                    continue;
                };
                let broker_key = BROKER_KEYS.find(synonym).unwrap_or_else(|| panic!("{}: no {synonym}", key.name));
                if key.name != "streams.assignor.name" {
                    assert_eq!(broker_key.kind, key.kind, "{}", key.name);
                }
            }
        }
    }

    #[test]
    fn topic_synonyms_can_be_altered_for_the_whole_cluster() {
        // Rule: topics inherit changed cluster defaults, so each of their broker keys takes one.
        for key in TOPIC_KEYS.iter() {
            if let Some(synonym) = key.synonym {
                let broker_key = BROKER_KEYS.find(synonym).expect("checked by the test above");
                assert_eq!(broker_key.mode, Mode::ClusterWide, "{synonym}");
            }
        }
    }

    #[test]
    fn listener_keys_are_found_behind_their_prefix() {
        // Rule: listener.name.<name>.<key> and listener.name.<name>.<mechanism>.<key> mean <key>.
        for (name, want) in [
            ("listener.name.external.ssl.keystore.location", Some("ssl.keystore.location")),
            ("listener.name.external.scram-sha-256.sasl.jaas.config", Some("sasl.jaas.config")),
            ("listener.name.external.sasl.jaas.config", Some("sasl.jaas.config")),
            ("listener.name.external.foo", Some("foo")),
            ("listener.name.external", None),
            ("listeners", None),
        ] {
            assert_eq!(listener_key(name), want, "{name}");
        }
    }
}
