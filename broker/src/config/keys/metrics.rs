//! Metrics and client telemetry.

use crate::config::key::Allowed::{Any, AnyList, AtLeast};
use crate::config::key::keys;

keys! { KEYS:
    "metrics.num.samples" Int = Some("2"), AtLeast(1), ReadOnly, Inert,
        "Samples kept for windowed metrics.";
    "metrics.sample.window.ms" Long = Some("30000"), AtLeast(1), ReadOnly, Inert,
        "Length of a metric sample.";
    "metric.reporters" List = Some("org.apache.kafka.common.metrics.JmxReporter"), AnyList, ClusterWide, Inert,
        "Plug-ins that export metrics; here they are served over HTTP.";
    "metrics.recording.level" String = Some("INFO"), Any, ReadOnly, Inert,
        "Level of detail of metrics.";
    "kafka.metrics.reporters" List = Some(""), AnyList, ReadOnly, Inert,
        "Older plug-ins that export metrics.";
    "kafka.metrics.polling.interval.secs" Int = Some("10"), AtLeast(1), ReadOnly, Inert,
        "Polling interval of older metric plug-ins.";
    "telemetry.max.bytes" Int = Some("1048576"), AtLeast(1), ReadOnly, Inert,
        "Largest metrics payload a client may push.";
}
