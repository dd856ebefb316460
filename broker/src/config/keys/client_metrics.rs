//! Configs of client metrics subscriptions.

use crate::config::key::Allowed::{Any, AnyList};
use crate::config::key::keys;

keys! { KEYS:
    "interval.ms" Int = Some("300000"), Any, ClusterWide, Inert,
        "Time between pushes of metrics by matching clients.";
    "match" List = Some(""), AnyList, ClusterWide, Inert,
        "Clients the subscription is for, as key=pattern pairs.";
    "metrics" List = Some(""), AnyList, ClusterWide, Inert,
        "Prefixes of metrics asked for; * for all.";
}
