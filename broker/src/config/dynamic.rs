//! What a running broker's configs may become, given what they are: rules that look at more than one value.

use super::alter::AlterError;
use super::keys::BROKER_KEYS;
use super::view::BrokerView;

/// A running pool is resized step by step: at most doubled, at least halved (`DynamicThreadPool.java`, `LogCleaner.java`,
/// `DynamicRemoteLogConfig.java`).
const THREAD_COUNTS: [&str; 10] = [
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
];

/// Least share of `log.cleaner.dedupe.buffer.size` for each cleaner thread, in bytes; exclusive.
const CLEANER_BUFFER_BYTES_MIN: i64 = 1 << 20;

/// Whether a broker whose configs are `now` can go over to `next`.
pub fn verify_update(now: &BrokerView<'_>, next: &BrokerView<'_>) -> Result<(), AlterError> {
    verify_values(next)?;
    verify_cordoned(&next.list("cordoned.log.dirs"), &next.config.log_dirs)?;
    verify_local_retention(next)?;
    for key in THREAD_COUNTS {
        verify_thread_count(key, now, next)?;
    }
    Ok(())
}

fn verify_thread_count(key: &'static str, now: &BrokerView<'_>, next: &BrokerView<'_>) -> Result<(), AlterError> {
    assert!(BROKER_KEYS.find(key).is_some());
    let (current, wanted) = (now.integer(key), next.integer(key));
    let reason = if wanted == current {
        return Ok(());
    } else if wanted < 1 {
        "it must be at least 1"
    } else if wanted < current / 2 {
        "it can at most be halved at a time"
    } else if wanted > current * 2 {
        "it can at most be doubled at a time"
    } else {
        return Ok(());
    };
    Err(AlterError::ThreadCount { key, current, wanted, reason })
}

/// What `KafkaConfig` checks of several values, as far as they can change while the broker runs.
fn verify_values(next: &BrokerView<'_>) -> Result<(), AlterError> {
    let contradiction = |reason| Err(AlterError::Contradiction(reason));
    if next.log_roll_ms() < 1 {
        return contradiction("log.roll.ms must be at least 1");
    }
    if next.log_roll_jitter_ms() < 0 {
        return contradiction("log.roll.jitter.ms must not be negative");
    }
    if next.log_retention_ms() == 0 {
        return contradiction("log.retention.ms must be at least 1, or -1");
    }
    let cleaner_threads = next.integer("log.cleaner.threads");
    if cleaner_threads > 0
        && next.integer("log.cleaner.dedupe.buffer.size") / cleaner_threads <= CLEANER_BUFFER_BYTES_MIN
    {
        return contradiction("log.cleaner.dedupe.buffer.size must be more than 1 MiB for each of log.cleaner.threads");
    }
    if next.integer("max.connections.per.ip") == 0 && next.text("max.connections.per.ip.overrides").is_empty() {
        return contradiction("max.connections.per.ip can be 0 only where max.connections.per.ip.overrides is set");
    }
    Ok(())
}

/// All of `log.dirs`, or some of them by their names there.
pub fn verify_cordoned(named: &[String], log_dirs: &[std::path::PathBuf]) -> Result<(), AlterError> {
    if named.iter().any(|name| name == "*") {
        return if named.len() == 1 { Ok(()) } else { Err(AlterError::CordonedStar) };
    }
    let is_missing = |name: &&String| !log_dirs.iter().any(|dir| dir.as_os_str() == name.as_str());
    let missing: Vec<&str> = named.iter().filter(is_missing).map(String::as_str).collect();
    if missing.is_empty() { Ok(()) } else { Err(AlterError::CordonedUnknown(missing.join(","))) }
}

/// What stays on the local disk is part of what stays at all; -2 is all of it, -1 is for ever.
fn verify_local_retention(next: &BrokerView<'_>) -> Result<(), AlterError> {
    for (whole, local, reason) in [
        (next.log_retention_ms(), "log.local.retention.ms", "log.local.retention.ms must not exceed log.retention.ms"),
        (
            next.integer("log.retention.bytes"),
            "log.local.retention.bytes",
            "log.local.retention.bytes must not exceed log.retention.bytes",
        ),
    ] {
        let local = next.integer(local);
        if whole > -1 && local != -2 && (local == -1 || local > whole) {
            return Err(AlterError::Contradiction(reason));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::BrokerConfig;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn thread_counts_change_by_two_at_most() {
        // Rule: from what counts now, whichever layer that comes from, a pool doubles or halves and no more.
        let config = BrokerConfig::from_pairs(&[]).expect("fits");
        let cluster = map(&[("background.threads", "5")]);
        let now = BrokerView { cluster: &cluster, ..BrokerView::fixed(&config) };
        for (value, fits) in [("1", false), ("2", true), ("5", true), ("10", true), ("11", false)] {
            let own = map(&[("background.threads", value)]);
            assert_eq!(verify_update(&now, &BrokerView { own: &own, ..now }).is_ok(), fits, "{value}");
        }
        let own = map(&[("log.cleaner.threads", "0")]);
        assert!(verify_update(&now, &BrokerView { own: &own, ..now }).is_err());
        assert!(verify_update(&now, &BrokerView::fixed(&config)).is_ok(), "10 is twice 5");
    }

    #[test]
    fn only_log_directories_are_cordoned() {
        // Rule: names that log.dirs has, or the star alone; the star is not a name among others.
        let config = BrokerConfig::from_pairs(&[("log.dirs", "/a,/b")]).expect("fits");
        let now = BrokerView::fixed(&config);
        for (value, want) in [
            ("", None),
            ("/b,/a", None),
            ("*", None),
            ("*,/a", Some("requirement failed: When cordoned.log.dirs is set to *, it must not contain other values")),
            (
                "/a,/c,a",
                Some(
                    "requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : /c,a",
                ),
            ),
        ] {
            let own = map(&[("cordoned.log.dirs", value)]);
            let verified = verify_update(&now, &BrokerView { own: &own, ..now });
            assert_eq!(verified.err().map(|error| error.to_string()).as_deref(), want, "{value}");
        }
    }

    #[test]
    fn values_that_contradict_each_other_are_refused() {
        // Rule: rules over several values look at all layers together.
        let config = BrokerConfig::from_pairs(&[("max.connections.per.ip.overrides", "127.0.0.1:5")]).expect("fits");
        let bare = BrokerConfig::from_pairs(&[]).expect("fits");
        for (config, own, fits) in [
            (&config, map(&[("max.connections.per.ip", "0")]), true),
            (&bare, map(&[("max.connections.per.ip", "0")]), false),
            (&bare, map(&[("log.retention.ms", "0")]), false),
            (&bare, map(&[("log.retention.ms", "-5")]), true),
            (&bare, map(&[("log.roll.ms", "0")]), false),
            (&bare, map(&[("log.cleaner.dedupe.buffer.size", "1048576")]), false),
            (&bare, map(&[("log.local.retention.ms", "604800001")]), false),
            (&bare, map(&[("log.local.retention.ms", "604800000")]), true),
            (&bare, map(&[("log.local.retention.ms", "-1")]), false),
            (&bare, map(&[("log.local.retention.ms", "-1"), ("log.retention.ms", "-1")]), true),
            (&bare, map(&[("log.local.retention.bytes", "5"), ("log.retention.bytes", "4")]), false),
        ] {
            let now = BrokerView::fixed(config);
            assert_eq!(verify_update(&now, &BrokerView { own: &own, ..now }).is_ok(), fits, "{own:?}");
        }
    }
}
