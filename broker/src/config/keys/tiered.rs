//! Tiered storage.

use crate::config::key::Allowed::{Any, AtLeast, Fraction, NonEmpty};
use crate::config::key::keys;

keys! { KEYS:
    "remote.log.storage.system.enable" Boolean = Some("false"), Any, ReadOnly, Refused,
        "Whether old segments move to remote storage.";
    "remote.log.storage.manager.impl.prefix" String = Some("rsm.config."), NonEmpty, ReadOnly, Inert,
        "Prefix of the remote storage plug-in's own keys.";
    "remote.log.metadata.manager.impl.prefix" String = Some("rlmm.config."), NonEmpty, ReadOnly, Inert,
        "Prefix of the remote metadata plug-in's own keys.";
    "remote.log.storage.manager.class.name" String = None, NonEmpty, ReadOnly, Inert,
        "Plug-in that stores segments remotely.";
    "remote.log.storage.manager.class.path" String = None, Any, ReadOnly, Inert,
        "Class path of the remote storage plug-in.";
    "remote.log.metadata.manager.class.name" String = Some("org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"), NonEmpty, ReadOnly, Inert,
        "Plug-in that keeps metadata of remote segments.";
    "remote.log.metadata.manager.class.path" String = None, Any, ReadOnly, Inert,
        "Class path of the remote metadata plug-in.";
    "remote.log.metadata.manager.listener.name" String = None, NonEmpty, ReadOnly, Inert,
        "Listener the remote metadata plug-in connects to.";
    "remote.log.metadata.custom.metadata.max.bytes" Int = Some("128"), AtLeast(0), ReadOnly, Inert,
        "Most plug-in metadata kept per segment.";
    "remote.log.index.file.cache.total.size.bytes" Long = Some("1073741824"), AtLeast(1), ClusterWide, Inert,
        "Local disk space for indexes of remote segments.";
    "remote.log.index.file.cache.ttl.ms" Long = Some("900000"), AtLeast(-1), ReadOnly, Inert hidden,
        "Time after which an unused remote index is dropped.";
    "remote.log.manager.thread.pool.size" Int = Some("2"), AtLeast(1), ReadOnly, Inert,
        "Threads of remote log tasks.";
    "remote.log.manager.copier.thread.pool.size" Int = Some("10"), AtLeast(1), ClusterWide, Inert,
        "Threads that copy segments.";
    "remote.log.manager.expiration.thread.pool.size" Int = Some("10"), AtLeast(1), ClusterWide, Inert,
        "Threads that expire remote segments.";
    "remote.log.manager.follower.thread.pool.size" Int = Some("2"), AtLeast(1), ClusterWide, Inert,
        "Threads of remote tasks of followers.";
    "remote.log.manager.task.interval.ms" Long = Some("30000"), AtLeast(1), ReadOnly, Inert,
        "Time between runs of remote log tasks.";
    "remote.log.manager.task.retry.backoff.ms" Long = Some("500"), AtLeast(1), ReadOnly, Inert hidden,
        "First wait after a failed remote task.";
    "remote.log.manager.task.retry.backoff.max.ms" Long = Some("30000"), AtLeast(1), ReadOnly, Inert hidden,
        "Longest wait after failed remote tasks.";
    "remote.log.manager.task.retry.jitter" Double = Some("0.2"), Fraction(0.0, 0.5), ReadOnly, Inert hidden,
        "Random share of the wait after a failed remote task.";
    "remote.log.reader.threads" Int = Some("10"), AtLeast(1), ClusterWide, Inert,
        "Threads that read remote segments.";
    "remote.log.reader.max.pending.tasks" Int = Some("100"), AtLeast(1), ReadOnly, Inert,
        "Remote reads that may wait.";
    "log.local.retention.ms" Long = Some("-2"), AtLeast(-2), ClusterWide, Inert,
        "Age at which tiered segments leave the local disk; -2 follows retention.ms.";
    "log.local.retention.bytes" Long = Some("-2"), AtLeast(-2), ClusterWide, Inert,
        "Local size above which tiered segments leave the disk; -2 follows retention.bytes.";
    "log.remote.copy.lag.ms" Long = Some("0"), AtLeast(-1), ClusterWide, Inert,
        "Age a segment must reach before it is copied.";
    "log.remote.copy.lag.bytes" Long = Some("-1"), AtLeast(-1), ClusterWide, Inert,
        "Newer bytes that must follow a segment before it is copied.";
    "remote.log.manager.copy.max.bytes.per.second" Long = Some("9223372036854775807"), AtLeast(1), ClusterWide, Inert,
        "Bandwidth of copies to remote storage.";
    "remote.log.manager.copy.quota.window.num" Int = Some("11"), AtLeast(1), ReadOnly, Inert,
        "Samples kept for the copy bandwidth.";
    "remote.log.manager.copy.quota.window.size.seconds" Int = Some("1"), AtLeast(1), ReadOnly, Inert,
        "Length of a copy bandwidth sample.";
    "remote.log.manager.fetch.max.bytes.per.second" Long = Some("9223372036854775807"), AtLeast(1), ClusterWide, Inert,
        "Bandwidth of reads from remote storage.";
    "remote.log.manager.fetch.quota.window.num" Int = Some("11"), AtLeast(1), ReadOnly, Inert,
        "Samples kept for the read bandwidth.";
    "remote.log.manager.fetch.quota.window.size.seconds" Int = Some("1"), AtLeast(1), ReadOnly, Inert,
        "Length of a read bandwidth sample.";
    "remote.fetch.max.wait.ms" Int = Some("500"), AtLeast(1), ClusterWide, Inert,
        "Longest wait for a remote read in a fetch.";
    "remote.list.offsets.request.timeout.ms" Long = Some("30000"), AtLeast(1), ClusterWide, Inert,
        "Longest wait for a remote offset lookup.";
}
