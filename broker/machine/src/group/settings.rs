//! What the broker's configuration says about groups. Fields have Kafka's names, with underscores for dots.

use std::collections::BTreeMap;

use super::assignor::Assignor;

/// Settings of a coordinator, the same for all its groups. [`Default`] has Kafka's defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    pub group_min_session_timeout_ms: i32,
    pub group_max_session_timeout_ms: i32,
    pub group_initial_rebalance_delay_ms: i32,
    /// Most members of a classic group.
    pub group_max_size: i32,
    /// How long a new member may wait for its first answer to JoinGroup, whatever its session timeout.
    pub group_new_member_join_timeout_ms: i32,
    /// Counted in UTF-16 code units, as Kafka does.
    pub offset_metadata_max_bytes: i32,
    pub offsets_retention_minutes: i32,
    pub offsets_retention_check_interval_ms: i64,
    /// `max.message.bytes` of `__consumer_offsets`: no batch of records may be larger.
    pub max_message_bytes: usize,
    pub consumer: ConsumerGroupSettings,
}

/// `group.consumer.*`: the groups of KIP-848.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerGroupSettings {
    pub session_timeout_ms: i32,
    pub min_session_timeout_ms: i32,
    pub max_session_timeout_ms: i32,
    pub heartbeat_interval_ms: i32,
    pub min_heartbeat_interval_ms: i32,
    pub max_heartbeat_interval_ms: i32,
    pub max_size: i32,
    /// The first is the default.
    pub assignors: Vec<Assignor>,
    pub migration_policy: MigrationPolicy,
    pub assignment_interval_ms: i32,
    pub regex_refresh_interval_ms: i32,
}

/// `group.consumer.migration.policy`: which way a group that is not empty may change its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrationPolicy {
    Disabled,
    /// Classic to consumer.
    Upgrade,
    /// Consumer to classic.
    Downgrade,
    Bidirectional,
}

impl MigrationPolicy {
    pub fn is_upgrade_enabled(self) -> bool {
        matches!(self, Self::Upgrade | Self::Bidirectional)
    }

    pub fn is_downgrade_enabled(self) -> bool {
        matches!(self, Self::Downgrade | Self::Bidirectional)
    }
}

impl Default for GroupSettings {
    fn default() -> Self {
        Self {
            group_min_session_timeout_ms: 6_000,
            group_max_session_timeout_ms: 1_800_000,
            group_initial_rebalance_delay_ms: 3_000,
            group_max_size: i32::MAX,
            group_new_member_join_timeout_ms: 300_000,
            offset_metadata_max_bytes: 4_096,
            offsets_retention_minutes: 7 * 24 * 60,
            offsets_retention_check_interval_ms: 600_000,
            max_message_bytes: 1_048_588,
            consumer: ConsumerGroupSettings::default(),
        }
    }
}

impl Default for ConsumerGroupSettings {
    fn default() -> Self {
        Self {
            session_timeout_ms: 45_000,
            min_session_timeout_ms: 45_000,
            max_session_timeout_ms: 60_000,
            heartbeat_interval_ms: 5_000,
            min_heartbeat_interval_ms: 5_000,
            max_heartbeat_interval_ms: 15_000,
            max_size: i32::MAX,
            assignors: vec![Assignor::Uniform, Assignor::Range],
            migration_policy: MigrationPolicy::Bidirectional,
            assignment_interval_ms: 1_000,
            regex_refresh_interval_ms: 600_000,
        }
    }
}

impl ConsumerGroupSettings {
    /// With what the group's own configuration (resource type GROUP) says instead. It was checked when it was set; what does
    /// not parse all the same is left as it was, and numbers stay within what the broker allows now.
    pub fn for_group(&self, configs: &BTreeMap<String, String>) -> Self {
        let number = |key: &str| configs.get(key).and_then(|value| value.trim().parse::<i32>().ok());
        let mut settings = self.clone();
        if let Some(value) = number("consumer.session.timeout.ms") {
            settings.session_timeout_ms = bounded(value, self.min_session_timeout_ms, self.max_session_timeout_ms);
        }
        if let Some(value) = number("consumer.heartbeat.interval.ms") {
            settings.heartbeat_interval_ms =
                bounded(value, self.min_heartbeat_interval_ms, self.max_heartbeat_interval_ms);
        }
        if let Some(value) = number("consumer.assignment.interval.ms") {
            settings.assignment_interval_ms = value.max(0);
        }
        settings
    }
}

/// `clamp`, but without its panic where the bounds cross.
fn bounded(value: i32, min: i32, max: i32) -> i32 {
    value.max(min).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_overrides_within_the_brokers_bounds() {
        // Rule: a group's own settings win, bounded by the broker's least and most; what does not parse changes nothing.
        let broker = ConsumerGroupSettings::default();
        let configs = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            broker.for_group(&pairs.collect())
        };
        assert_eq!(configs(&[]), broker);
        assert_eq!(configs(&[("consumer.session.timeout.ms", "50000")]).session_timeout_ms, 50_000);
        assert_eq!(configs(&[("consumer.session.timeout.ms", "1")]).session_timeout_ms, 45_000);
        assert_eq!(configs(&[("consumer.heartbeat.interval.ms", "999999")]).heartbeat_interval_ms, 15_000);
        assert_eq!(configs(&[("consumer.assignment.interval.ms", "x")]).assignment_interval_ms, 1_000);
    }
}
