//! Quotas and delegation tokens.

use crate::config::key::Allowed::{Any, AtLeast};
use crate::config::key::keys;

keys! { KEYS:
    "quota.window.num" Int = Some("11"), AtLeast(1), ReadOnly, Inert,
        "Samples kept for client quotas.";
    "replication.quota.window.num" Int = Some("11"), AtLeast(1), ReadOnly, Inert,
        "Samples kept for replication quotas.";
    "alter.log.dirs.replication.quota.window.num" Int = Some("11"), AtLeast(1), ReadOnly, Inert,
        "Samples kept for quotas of moves between log directories.";
    "controller.quota.window.num" Int = Some("11"), AtLeast(1), ReadOnly, Inert,
        "Samples kept for controller mutation quotas.";
    "quota.window.size.seconds" Int = Some("1"), AtLeast(1), ReadOnly, Inert,
        "Length of a client quota sample.";
    "replication.quota.window.size.seconds" Int = Some("1"), AtLeast(1), ReadOnly, Inert,
        "Length of a replication quota sample.";
    "alter.log.dirs.replication.quota.window.size.seconds" Int = Some("1"), AtLeast(1), ReadOnly, Inert,
        "Length of a sample for moves between log directories.";
    "controller.quota.window.size.seconds" Int = Some("1"), AtLeast(1), ReadOnly, Inert,
        "Length of a controller mutation quota sample.";
    "client.quota.callback.class" Class = None, Any, ReadOnly, Refused,
        "Plug-in that computes client quotas.";
    "delegation.token.secret.key" Password = None, Any, ReadOnly, Inert,
        "Secret that signs delegation tokens.";
    "delegation.token.max.lifetime.ms" Long = Some("604800000"), AtLeast(1), ReadOnly, Inert,
        "Longest life of a delegation token.";
    "delegation.token.expiry.time.ms" Long = Some("86400000"), AtLeast(1), ReadOnly, Inert,
        "Time after which a delegation token must be renewed.";
    "delegation.token.expiry.check.interval.ms" Long = Some("3600000"), AtLeast(1), ReadOnly, Inert,
        "Time between looks for expired delegation tokens.";
    "leader.replication.throttled.rate" Long = None, AtLeast(0), ClusterWide, Inert hidden,
        "Bytes per second a leader sends to throttled replicas.";
    "follower.replication.throttled.rate" Long = None, AtLeast(0), ClusterWide, Inert hidden,
        "Bytes per second a throttled follower fetches.";
    "replica.alter.log.dirs.io.max.bytes.per.second" Long = None, AtLeast(0), ClusterWide, Acted hidden,
        "Bytes per second moved between log directories.";
}
