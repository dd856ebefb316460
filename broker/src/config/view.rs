//! The broker's configs as they count now: dynamic ones of this broker, over those of the whole cluster, over what the
//! start was given, over defaults.

use std::collections::BTreeMap;

use super::broker::BrokerConfig;
use super::key::{ConfigKey, Value};
use super::keys::BROKER_KEYS;

/// Borrowed from the start's configuration and from one metadata image; cheap to make.
#[derive(Clone, Copy, Debug)]
pub struct BrokerView<'a> {
    pub config: &'a BrokerConfig,
    /// Dynamic configs of this broker.
    pub own: &'a BTreeMap<String, String>,
    /// Dynamic configs of all brokers, kept under the empty broker name.
    pub cluster: &'a BTreeMap<String, String>,
}

static NONE: BTreeMap<String, String> = BTreeMap::new();

impl<'a> BrokerView<'a> {
    /// Of a broker without dynamic configs.
    pub fn fixed(config: &'a BrokerConfig) -> Self {
        Self { config, own: &NONE, cluster: &NONE }
    }

    /// The value of a declared key; `None` where it has none. What was stored is checked before; should a value not
    /// fit any more, the next layer counts.
    ///
    /// # Panics
    /// When no broker key is called `name`.
    pub fn value(&self, name: &str) -> Option<Value> {
        let key = BROKER_KEYS.find(name).unwrap_or_else(|| panic!("no broker key {name} is declared"));
        self.value_of(key, name)
    }

    /// As [`Self::value`], for a key under a name of its own, as behind `listener.name.<listener>.`.
    pub(super) fn value_of(&self, key: &ConfigKey, name: &str) -> Option<Value> {
        self.layers().iter().filter_map(|layer| layer.get(name)).find_map(|raw| key.parse(raw).ok()).or_else(|| {
            let default = key.default?;
            Some(key.parse(default).expect("a test parses every default"))
        })
    }

    /// Layers above the defaults, the strongest first.
    pub(super) fn layers(&self) -> [&'a BTreeMap<String, String>; 3] {
        [self.own, self.cluster, self.config.given()]
    }

    /// A number that has a default.
    pub fn integer(&self, name: &str) -> i64 {
        self.maybe_integer(name).unwrap_or_else(|| panic!("{name} is a number with a default"))
    }

    /// A number that may be missing.
    pub fn maybe_integer(&self, name: &str) -> Option<i64> {
        match self.value(name)? {
            Value::Integer(number) => Some(number),
            other @ (Value::Boolean(_) | Value::Double(_) | Value::Text(_) | Value::List(_)) => {
                panic!("{name} is no number but {other:?}")
            }
        }
    }

    /// A number with a fraction that has a default.
    pub fn double(&self, name: &str) -> f64 {
        match self.value(name) {
            Some(Value::Double(number)) => number,
            other => panic!("{name} is no number with a default but {other:?}"),
        }
    }

    /// A flag that has a default.
    pub fn boolean(&self, name: &str) -> bool {
        match self.value(name) {
            Some(Value::Boolean(flag)) => flag,
            other => panic!("{name} is no flag with a default but {other:?}"),
        }
    }

    /// A text that has a default.
    pub fn text(&self, name: &str) -> String {
        match self.value(name) {
            Some(Value::Text(text)) => text,
            other => panic!("{name} is no text with a default but {other:?}"),
        }
    }

    /// A list that has a default.
    pub fn list(&self, name: &str) -> Vec<String> {
        match self.value(name) {
            Some(Value::List(elements)) => elements,
            other => panic!("{name} is no list with a default but {other:?}"),
        }
    }

    /// Which of `log.dirs`, in their order, take no new replicas (KIP-1066).
    pub fn cordoned(&self) -> Vec<bool> {
        let named = self.list("cordoned.log.dirs");
        let is_named =
            |dir: &std::path::PathBuf| named.iter().any(|name| name == "*" || dir.as_os_str() == name.as_str());
        self.config.log_dirs.iter().map(is_named).collect()
    }

    /// Age in milliseconds at which a log rolls: the finest unit given.
    pub fn log_roll_ms(&self) -> i64 {
        self.maybe_integer("log.roll.ms").unwrap_or_else(|| hours(self.integer("log.roll.hours")))
    }

    /// Jitter of [`Self::log_roll_ms`].
    pub fn log_roll_jitter_ms(&self) -> i64 {
        self.maybe_integer("log.roll.jitter.ms").unwrap_or_else(|| hours(self.integer("log.roll.jitter.hours")))
    }

    /// Age in milliseconds at which segments are deleted; -1 for never.
    pub fn log_retention_ms(&self) -> i64 {
        let minutes = || self.maybe_integer("log.retention.minutes").map(|minutes| minutes.saturating_mul(60_000));
        let ms = self.maybe_integer("log.retention.ms").or_else(minutes);
        let ms = ms.unwrap_or_else(|| hours(self.integer("log.retention.hours")));
        if ms < 0 { -1 } else { ms }
    }

    /// Longest time records stay unflushed.
    pub fn log_flush_ms(&self) -> i64 {
        self.maybe_integer("log.flush.interval.ms").unwrap_or_else(|| self.integer("log.flush.scheduler.interval.ms"))
    }
}

fn hours(count: i64) -> i64 {
    count.saturating_mul(3_600_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_strongest_layer_counts() {
        // Rule: this broker's dynamic value, then the cluster's, then the start's, then the default.
        let given = BrokerConfig::from_pairs(&[("max.connections", "30")]).expect("fits");
        let bare = BrokerConfig::from_pairs(&[]).expect("fits");
        let (own, cluster) = (map(&[("max.connections", "10")]), map(&[("max.connections", "20")]));
        for (config, own, cluster, want) in [
            (&given, &own, &cluster, 10),
            (&given, &NONE, &cluster, 20),
            (&given, &NONE, &NONE, 30),
            (&bare, &NONE, &NONE, 2_147_483_647),
        ] {
            assert_eq!(BrokerView { config, own, cluster }.integer("max.connections"), want);
        }
    }

    #[test]
    fn cordoned_directories_are_told() {
        // Rule: those that are named as log.dirs names them, or all.
        let config = BrokerConfig::from_pairs(&[("log.dirs", "a,/b")]).expect("fits");
        for (value, want) in [("", [false, false]), ("/b", [false, true]), ("/b,a", [true, true]), ("*", [true, true])]
        {
            let own = map(&[("cordoned.log.dirs", value)]);
            assert_eq!(BrokerView { own: &own, ..BrokerView::fixed(&config) }.cordoned(), want, "{value}");
        }
    }

    #[test]
    fn the_finest_unit_counts() {
        // Rule: milliseconds go before minutes, and minutes before hours, whichever layer they come from.
        let hours = BrokerConfig::from_pairs(&[("log.retention.hours", "2"), ("log.roll.hours", "3")]).expect("fits");
        let view = BrokerView::fixed(&hours);
        assert_eq!((view.log_retention_ms(), view.log_roll_ms()), (7_200_000, 10_800_000));
        let cluster = map(&[("log.retention.ms", "5")]);
        assert_eq!(BrokerView { cluster: &cluster, ..view }.log_retention_ms(), 5);
        let minutes = BrokerConfig::from_pairs(&[("log.retention.minutes", "1")]).expect("fits");
        assert_eq!(BrokerView::fixed(&minutes).log_retention_ms(), 60_000);
        assert_eq!(BrokerView::fixed(&minutes).log_flush_ms(), i64::MAX);
    }
}
