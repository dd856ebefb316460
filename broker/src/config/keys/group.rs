//! Groups and their coordinator.

use crate::config::key::Allowed::{Any, AnyList, AtLeast, Between, FilledList, FilledListOf, OneOfIgnoringCase};
use crate::config::key::keys;

keys! { KEYS:
    "group.coordinator.rebalance.protocols" List = Some("classic,consumer,streams"), FilledListOf(&["consumer", "classic", "share", "streams"]), ReadOnly, Acted,
        "Group protocols that are served.";
    "group.coordinator.threads" Int = Some("4"), AtLeast(1), ReadOnly, Inert,
        "Threads of the group coordinator; here it runs on the shard of its partition.";
    "group.coordinator.background.threads" Int = Some("2"), AtLeast(1), ReadOnly, Inert,
        "Threads for long assignments.";
    "group.coordinator.append.linger.ms" Int = Some("-1"), AtLeast(-1), ReadOnly, Inert,
        "Time coordinator records are gathered before they are written; -1 adapts.";
    "offsets.commit.timeout.ms" Int = Some("5000"), AtLeast(1), ReadOnly, Acted,
        "Longest wait for an offset commit to be replicated.";
    "offsets.load.buffer.size" Int = Some("5242880"), AtLeast(1), ReadOnly, Acted,
        "Bytes read at once when a coordinator loads its partition.";
    "offsets.topic.replication.factor" Short = Some("3"), AtLeast(1), ReadOnly, Acted,
        "Replicas of __consumer_offsets; never more than there are brokers.";
    "offsets.topic.num.partitions" Int = Some("50"), AtLeast(1), ReadOnly, Acted,
        "Partitions of __consumer_offsets.";
    "offsets.topic.segment.bytes" Int = Some("104857600"), AtLeast(1), ReadOnly, Acted,
        "Segment size of __consumer_offsets.";
    "offsets.topic.compression.codec" Int = Some("0"), Any, ReadOnly, Acted,
        "Codec of __consumer_offsets by number; 0 is none.";
    "group.coordinator.cached.buffer.max.bytes" Int = Some("1048588"), AtLeast(524288), ClusterWide, Inert,
        "Largest buffer a coordinator keeps for its next write.";
    "offset.metadata.max.bytes" Int = Some("4096"), Any, ReadOnly, Acted,
        "Longest metadata text of a committed offset.";
    "offsets.retention.minutes" Int = Some("10080"), AtLeast(1), ReadOnly, Acted,
        "Age at which offsets of an empty group are forgotten.";
    "offsets.retention.check.interval.ms" Long = Some("600000"), AtLeast(1), ReadOnly, Acted,
        "Time between looks for offsets to forget.";
    "group.min.session.timeout.ms" Int = Some("6000"), Any, ReadOnly, Acted,
        "Shortest session timeout a classic member may ask for.";
    "group.max.session.timeout.ms" Int = Some("1800000"), Any, ReadOnly, Acted,
        "Longest session timeout a classic member may ask for.";
    "group.initial.rebalance.delay.ms" Int = Some("3000"), Any, ReadOnly, Acted,
        "Time a new classic group waits for more members.";
    "group.max.size" Int = Some("2147483647"), AtLeast(1), ReadOnly, Acted,
        "Most members of a classic group.";
    "group.consumer.session.timeout.ms" Int = Some("45000"), AtLeast(1), ReadOnly, Acted,
        "Session timeout of consumer group members.";
    "group.consumer.min.session.timeout.ms" Int = Some("45000"), AtLeast(1), ReadOnly, Acted,
        "Least session timeout a consumer group may set.";
    "group.consumer.max.session.timeout.ms" Int = Some("60000"), AtLeast(1), ReadOnly, Acted,
        "Greatest session timeout a consumer group may set.";
    "group.consumer.heartbeat.interval.ms" Int = Some("5000"), AtLeast(1), ReadOnly, Acted,
        "Heartbeat interval given to consumer group members.";
    "group.consumer.min.heartbeat.interval.ms" Int = Some("5000"), AtLeast(1), ReadOnly, Acted,
        "Least heartbeat interval a consumer group may set.";
    "group.consumer.max.heartbeat.interval.ms" Int = Some("15000"), AtLeast(1), ReadOnly, Acted,
        "Greatest heartbeat interval a consumer group may set.";
    "group.consumer.max.size" Int = Some("2147483647"), AtLeast(1), ReadOnly, Acted,
        "Most members of a consumer group.";
    "group.consumer.assignors" List = Some("uniform,range"), FilledList, ReadOnly, Acted,
        "Server-side assignors; the first is the default.";
    "group.consumer.migration.policy" String = Some("bidirectional"), OneOfIgnoringCase(&["DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"]), ReadOnly, Acted,
        "Whether groups may move between the classic and the consumer protocol.";
    "group.consumer.assignment.interval.ms" Int = Some("1000"), AtLeast(0), ClusterWide, Acted,
        "Least time between two assignments of a consumer group.";
    "group.consumer.min.assignment.interval.ms" Int = Some("0"), AtLeast(0), ReadOnly, Acted,
        "Least assignment interval a consumer group may set.";
    "group.consumer.max.assignment.interval.ms" Int = Some("15000"), AtLeast(0), ReadOnly, Acted,
        "Greatest assignment interval a consumer group may set.";
    "group.consumer.assignor.offload.enable" Boolean = Some("true"), Any, ClusterWide, Inert hidden,
        "Whether assignments of consumer groups run outside the coordinator's loop.";
    "group.consumer.regex.refresh.interval.ms" Int = Some("600000"), AtLeast(10000), ReadOnly, Acted hidden,
        "Time between evaluations of subscribed patterns.";
    "group.share.session.timeout.ms" Int = Some("45000"), AtLeast(1), ReadOnly, Inert,
        "Session timeout of share group members.";
    "group.share.min.session.timeout.ms" Int = Some("45000"), AtLeast(1), ReadOnly, Inert,
        "Least session timeout a share group may set.";
    "group.share.max.session.timeout.ms" Int = Some("60000"), AtLeast(1), ReadOnly, Inert,
        "Greatest session timeout a share group may set.";
    "group.share.heartbeat.interval.ms" Int = Some("5000"), AtLeast(1), ReadOnly, Inert,
        "Heartbeat interval given to share group members.";
    "group.share.min.heartbeat.interval.ms" Int = Some("5000"), AtLeast(1), ReadOnly, Inert,
        "Least heartbeat interval a share group may set.";
    "group.share.max.heartbeat.interval.ms" Int = Some("15000"), AtLeast(1), ReadOnly, Inert,
        "Greatest heartbeat interval a share group may set.";
    "group.share.max.size" Int = Some("200"), Between(1, 1000), ReadOnly, Inert,
        "Most members of a share group.";
    "group.share.assignors" List = Some("simple"), FilledList, ReadOnly, Inert,
        "Server-side assignors of share groups.";
    "group.share.assignment.interval.ms" Int = Some("1000"), AtLeast(0), ClusterWide, Inert,
        "Least time between two assignments of a share group.";
    "group.share.min.assignment.interval.ms" Int = Some("0"), AtLeast(0), ReadOnly, Inert,
        "Least assignment interval a share group may set.";
    "group.share.max.assignment.interval.ms" Int = Some("15000"), AtLeast(0), ReadOnly, Inert,
        "Greatest assignment interval a share group may set.";
    "group.share.assignor.offload.enable" Boolean = Some("true"), Any, ClusterWide, Inert hidden,
        "Whether assignments of share groups run outside the coordinator's loop.";
    "group.share.initialize.retry.interval.ms" Int = Some("30000"), AtLeast(1), ReadOnly, Inert hidden,
        "Time before share state initialisation is tried again.";
    "errors.deadletterqueue.auto.create.topics.enable" Boolean = Some("false"), Any, ClusterWide, Inert,
        "Whether missing dead letter topics are created.";
    "errors.deadletterqueue.topic.name.prefix" String = Some("dlq."), Any, ClusterWide, Inert,
        "Prefix every dead letter topic must have.";
    "group.streams.session.timeout.ms" Int = Some("45000"), AtLeast(1), ReadOnly, Inert,
        "Session timeout of streams group members.";
    "group.streams.min.session.timeout.ms" Int = Some("45000"), AtLeast(1), ReadOnly, Inert,
        "Least session timeout a streams group may set.";
    "group.streams.max.session.timeout.ms" Int = Some("60000"), AtLeast(1), ReadOnly, Inert,
        "Greatest session timeout a streams group may set.";
    "group.streams.heartbeat.interval.ms" Int = Some("5000"), AtLeast(1), ReadOnly, Inert,
        "Heartbeat interval given to streams group members.";
    "group.streams.min.heartbeat.interval.ms" Int = Some("5000"), AtLeast(1), ReadOnly, Inert,
        "Least heartbeat interval a streams group may set.";
    "group.streams.max.heartbeat.interval.ms" Int = Some("15000"), AtLeast(1), ReadOnly, Inert,
        "Greatest heartbeat interval a streams group may set.";
    "group.streams.max.size" Int = Some("2147483647"), AtLeast(1), ReadOnly, Inert,
        "Most members of a streams group.";
    "group.streams.num.standby.replicas" Int = Some("0"), AtLeast(0), ReadOnly, Inert,
        "Standby copies of each task of a streams group.";
    "group.streams.max.standby.replicas" Int = Some("2"), AtLeast(0), ReadOnly, Inert,
        "Most standby copies a streams group may set.";
    "group.streams.initial.rebalance.delay.ms" Int = Some("3000"), AtLeast(0), ReadOnly, Inert,
        "Time a new streams group waits for more members.";
    "group.streams.assignment.interval.ms" Int = Some("1000"), AtLeast(0), ClusterWide, Inert,
        "Least time between two assignments of a streams group.";
    "group.streams.min.assignment.interval.ms" Int = Some("0"), AtLeast(0), ReadOnly, Inert,
        "Least assignment interval a streams group may set.";
    "group.streams.max.assignment.interval.ms" Int = Some("15000"), AtLeast(0), ReadOnly, Inert,
        "Greatest assignment interval a streams group may set.";
    "group.streams.assignors" List = Some("sticky"), FilledList, ReadOnly, Inert,
        "Server-side assignors of streams groups; the first is the default.";
    "group.streams.assignor.offload.enable" Boolean = Some("true"), Any, ClusterWide, Inert hidden,
        "Whether assignments of streams groups run outside the coordinator's loop.";
    "group.streams.task.offset.interval.ms" Int = Some("60000"), AtLeast(1), ReadOnly, Inert hidden,
        "Time between reports of task offsets.";
    "group.streams.min.task.offset.interval.ms" Int = Some("15000"), AtLeast(1), ReadOnly, Inert hidden,
        "Least task offset interval a streams group may set.";
    "group.streams.num.warmup.replicas" Int = Some("2"), AtLeast(0), ReadOnly, Inert hidden,
        "Warm-up copies a streams group may have at a time.";
    "group.streams.max.warmup.replicas" Int = Some("20"), AtLeast(0), ReadOnly, Inert hidden,
        "Most warm-up copies a streams group may set.";
    "group.streams.rack.aware.assignment.tags" List = Some(""), AnyList, ReadOnly, Inert,
        "Client tags over which standby tasks are spread.";
    "group.streams.topology.description.plugin.class" Class = None, Any, ReadOnly, Inert,
        "Plug-in that stores topology descriptions.";
    "group.streams.acceptable.recovery.lag" Long = Some("10000"), AtLeast(0), ReadOnly, Inert hidden,
        "Lag up to which a task counts as caught up.";
}
