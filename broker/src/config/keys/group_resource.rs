//! Configs of groups, each with the broker key it falls back to.

use crate::config::key::Allowed::{Any, AnyList, AtLeast, OffsetReset, OneOf};
use crate::config::key::keys;

keys! { KEYS:
    "consumer.session.timeout.ms" Int = Some("45000"), AtLeast(1), ClusterWide, Acted ~ "group.consumer.session.timeout.ms",
        "Session timeout of the group's members.";
    "consumer.heartbeat.interval.ms" Int = Some("5000"), AtLeast(1), ClusterWide, Acted ~ "group.consumer.heartbeat.interval.ms",
        "Heartbeat interval given to the group's members.";
    "consumer.assignment.interval.ms" Int = Some("1000"), AtLeast(0), ClusterWide, Acted ~ "group.consumer.assignment.interval.ms",
        "Least time between two assignments.";
    "consumer.assignor.offload.enable" Boolean = Some("true"), Any, ClusterWide, Inert hidden ~ "group.consumer.assignor.offload.enable",
        "Whether assignments run outside the coordinator's loop.";
    "share.session.timeout.ms" Int = Some("45000"), AtLeast(1), ClusterWide, Inert ~ "group.share.session.timeout.ms",
        "Session timeout of the share group's members.";
    "share.heartbeat.interval.ms" Int = Some("5000"), AtLeast(1), ClusterWide, Inert ~ "group.share.heartbeat.interval.ms",
        "Heartbeat interval given to the share group's members.";
    "share.record.lock.duration.ms" Int = Some("30000"), AtLeast(1000), ClusterWide, Inert ~ "group.share.record.lock.duration.ms",
        "Time a consumer may hold a record.";
    "share.delivery.count.limit" Int = Some("5"), AtLeast(2), ClusterWide, Inert ~ "group.share.delivery.count.limit",
        "Deliveries after which a record is given up.";
    "share.partition.max.record.locks" Int = Some("2000"), AtLeast(100), ClusterWide, Inert ~ "group.share.partition.max.record.locks",
        "Records of a partition that may be held at a time.";
    "share.auto.offset.reset" String = Some("latest"), OffsetReset, ClusterWide, Inert,
        "Where the group starts without a position of its own.";
    "share.isolation.level" String = Some("read_uncommitted"), OneOf(&["read_committed", "read_uncommitted"]), ClusterWide, Inert,
        "Whether records of aborted transactions are hidden.";
    "share.renew.acknowledge.enable" Boolean = Some("true"), Any, ClusterWide, Inert,
        "Whether consumers may prolong their hold of a record.";
    "share.assignment.interval.ms" Int = Some("1000"), AtLeast(0), ClusterWide, Inert ~ "group.share.assignment.interval.ms",
        "Least time between two assignments.";
    "share.assignor.offload.enable" Boolean = Some("true"), Any, ClusterWide, Inert hidden ~ "group.share.assignor.offload.enable",
        "Whether assignments run outside the coordinator's loop.";
    "streams.session.timeout.ms" Int = Some("45000"), AtLeast(1), ClusterWide, Inert ~ "group.streams.session.timeout.ms",
        "Session timeout of the streams group's members.";
    "streams.heartbeat.interval.ms" Int = Some("5000"), AtLeast(1), ClusterWide, Inert ~ "group.streams.heartbeat.interval.ms",
        "Heartbeat interval given to the streams group's members.";
    "streams.num.standby.replicas" Int = Some("0"), AtLeast(0), ClusterWide, Inert ~ "group.streams.num.standby.replicas",
        "Standby copies of each task.";
    "streams.initial.rebalance.delay.ms" Int = Some("3000"), AtLeast(0), ClusterWide, Inert ~ "group.streams.initial.rebalance.delay.ms",
        "Time a new group waits for more members.";
    "streams.assignment.interval.ms" Int = Some("1000"), AtLeast(0), ClusterWide, Inert ~ "group.streams.assignment.interval.ms",
        "Least time between two assignments.";
    "streams.assignor.offload.enable" Boolean = Some("true"), Any, ClusterWide, Inert hidden ~ "group.streams.assignor.offload.enable",
        "Whether assignments run outside the coordinator's loop.";
    "streams.task.offset.interval.ms" Int = Some("60000"), AtLeast(1), ClusterWide, Inert hidden ~ "group.streams.task.offset.interval.ms",
        "Time between reports of task offsets.";
    "streams.num.warmup.replicas" Int = Some("2"), AtLeast(0), ClusterWide, Inert hidden ~ "group.streams.num.warmup.replicas",
        "Warm-up copies the group may have at a time.";
    "streams.rack.aware.assignment.tags" List = Some(""), AnyList, ClusterWide, Inert ~ "group.streams.rack.aware.assignment.tags",
        "Client tags over which standby tasks are spread.";
    "streams.acceptable.recovery.lag" Long = Some("10000"), AtLeast(0), ClusterWide, Inert hidden ~ "group.streams.acceptable.recovery.lag",
        "Lag up to which a task counts as caught up.";
    "streams.assignor.name" String = None, Any, ClusterWide, Inert ~ "group.streams.assignors",
        "Assignor of the group.";
    "errors.deadletterqueue.topic.name" String = Some(""), Any, ClusterWide, Inert,
        "Topic that takes records the group gave up.";
    "errors.deadletterqueue.copy.record.enable" Boolean = Some("false"), Any, ClusterWide, Inert,
        "Whether the whole record is copied to the dead letter topic.";
}
