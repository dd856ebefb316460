//! Share groups and their coordinator.

use crate::config::key::Allowed::{Any, AtLeast, Between};
use crate::config::key::keys;

keys! { KEYS:
    "group.share.delivery.count.limit" Int = Some("5"), Between(2, 10), ReadOnly, Inert,
        "Deliveries after which a share group gives a record up.";
    "group.share.max.delivery.count.limit" Int = Some("10"), Between(5, 25), ReadOnly, Inert,
        "Greatest delivery limit a share group may set.";
    "group.share.min.delivery.count.limit" Int = Some("2"), Between(2, 5), ReadOnly, Inert,
        "Least delivery limit a share group may set.";
    "group.share.record.lock.duration.ms" Int = Some("30000"), Between(1000, 3600000), ReadOnly, Inert,
        "Time a share consumer may hold a record.";
    "group.share.min.record.lock.duration.ms" Int = Some("15000"), Between(1000, 30000), ReadOnly, Inert,
        "Least lock duration a share group may set.";
    "group.share.max.record.lock.duration.ms" Int = Some("60000"), Between(30000, 3600000), ReadOnly, Inert,
        "Greatest lock duration a share group may set.";
    "group.share.partition.max.record.locks" Int = Some("2000"), Between(100, 10000), ReadOnly, Inert,
        "Records of a partition that may be held at a time.";
    "group.share.max.partition.max.record.locks" Int = Some("4000"), Between(2000, 10000), ReadOnly, Inert,
        "Greatest record lock bound a share group may set.";
    "group.share.min.partition.max.record.locks" Int = Some("100"), Between(100, 2000), ReadOnly, Inert,
        "Least record lock bound a share group may set.";
    "share.fetch.purgatory.purge.interval.requests" Int = Some("1000"), Any, ReadOnly, Inert,
        "Finished waits of share fetches gathered before they are purged.";
    "group.share.max.share.sessions" Int = Some("2000"), AtLeast(1), ReadOnly, Inert,
        "Share sessions kept at a time.";
    "group.share.persister.class.name" String = Some("org.apache.kafka.server.share.persister.DefaultStatePersister"), Any, ReadOnly, Inert hidden,
        "Store of share group state.";
    "group.share.dlq.manager.class.name" String = Some("org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager"), Any, ReadOnly, Inert hidden,
        "Writer of dead letter records.";
    "share.coordinator.state.topic.num.partitions" Int = Some("50"), AtLeast(1), ReadOnly, Inert,
        "Partitions of __share_group_state.";
    "share.coordinator.state.topic.replication.factor" Short = Some("3"), AtLeast(1), ReadOnly, Inert,
        "Replicas of __share_group_state; never more than there are brokers.";
    "share.coordinator.state.topic.min.isr" Short = Some("2"), AtLeast(1), ReadOnly, Inert,
        "In-sync replicas writes to __share_group_state need.";
    "share.coordinator.state.topic.segment.bytes" Int = Some("104857600"), AtLeast(1), ReadOnly, Inert,
        "Segment size of __share_group_state.";
    "share.coordinator.threads" Int = Some("1"), AtLeast(1), ReadOnly, Inert,
        "Threads of the share coordinator.";
    "share.coordinator.snapshot.update.records.per.snapshot" Int = Some("500"), Between(0, 500), ReadOnly, Inert,
        "Update records between two snapshots of share state.";
    "share.coordinator.load.buffer.size" Int = Some("5242880"), AtLeast(1), ReadOnly, Inert,
        "Bytes read at once when a share coordinator loads its partition.";
    "share.coordinator.state.topic.compression.codec" Int = Some("0"), Any, ReadOnly, Inert,
        "Codec of __share_group_state by number; 0 is none.";
    "share.coordinator.append.linger.ms" Int = Some("-1"), AtLeast(-1), ReadOnly, Inert,
        "Time share records are gathered before they are written; -1 adapts.";
    "share.coordinator.write.timeout.ms" Int = Some("5000"), AtLeast(1), ReadOnly, Inert,
        "Longest wait for share state to be replicated.";
    "share.coordinator.state.topic.prune.interval.ms" Int = Some("300000"), AtLeast(1), ReadOnly, Inert hidden,
        "Time between prunings of __share_group_state.";
    "share.coordinator.cold.partition.snapshot.interval.ms" Int = Some("300000"), AtLeast(1), ReadOnly, Inert hidden,
        "Time between snapshots of idle share partitions.";
    "share.coordinator.cached.buffer.max.bytes" Int = Some("1048588"), AtLeast(524288), ClusterWide, Inert,
        "Largest buffer a share coordinator keeps for its next write.";
}
