//! Logs, topics made by default, and compaction.

use crate::config::key::Allowed::{Any, AnyList, AtLeast, FilledList, Fraction, ListOf, OneOf};
use crate::config::key::keys;

keys! { KEYS:
    "num.partitions" Int = Some("1"), AtLeast(1), ReadOnly, Acted,
        "Partitions of a topic created without a number of its own.";
    "log.dir" List = Some("walser-data"), FilledList, ReadOnly, Acted,
        "Data directories, when log.dirs is not set.";
    "log.dirs" List = None, AnyList, ReadOnly, Acted,
        "Data directories.";
    "cordoned.log.dirs" List = Some(""), AnyList, PerBroker, Acted,
        "Log directories that take no new partitions; * for all of them.";
    "log.segment.bytes" Int = Some("1073741824"), AtLeast(1048576), ClusterWide, Acted,
        "Size at which a log starts a new segment.";
    "log.roll.ms" Long = None, Any, ClusterWide, Acted,
        "Age at which a log starts a new segment; unset, log.roll.hours counts.";
    "log.roll.hours" Int = Some("168"), AtLeast(1), ReadOnly, Acted,
        "Age in hours at which a log starts a new segment.";
    "log.roll.jitter.ms" Long = None, Any, ClusterWide, Inert,
        "Random time taken off log.roll.ms; unset, log.roll.jitter.hours counts.";
    "log.roll.jitter.hours" Int = Some("0"), AtLeast(0), ReadOnly, Inert,
        "Random hours taken off log.roll.hours.";
    "log.retention.ms" Long = None, Any, ClusterWide, Acted,
        "Age at which segments are deleted, -1 for never; unset, log.retention.minutes counts.";
    "log.retention.minutes" Int = None, Any, ReadOnly, Acted,
        "Age in minutes at which segments are deleted; unset, log.retention.hours counts.";
    "log.retention.hours" Int = Some("168"), Any, ReadOnly, Acted,
        "Age in hours at which segments are deleted.";
    "log.retention.bytes" Long = Some("-1"), Any, ClusterWide, Acted,
        "Size of a partition above which its oldest segments are deleted; -1 for no bound.";
    "log.retention.check.interval.ms" Long = Some("300000"), AtLeast(1), ReadOnly, Acted,
        "Time between looks for segments to delete.";
    "log.cleanup.policy" List = Some("delete"), ListOf(&["compact", "delete"]), ClusterWide, Acted,
        "What happens to old segments: delete, compact, or both.";
    "log.index.size.max.bytes" Int = Some("10485760"), AtLeast(4), ClusterWide, Acted,
        "Largest size of an index file.";
    "log.index.interval.bytes" Int = Some("4096"), AtLeast(0), ClusterWide, Acted,
        "Log bytes between two entries of the offset index.";
    "log.flush.interval.messages" Long = Some("9223372036854775807"), AtLeast(1), ClusterWide, Acted,
        "Records after which a log is flushed; every acknowledged batch already is at durability `flushed`.";
    "log.segment.delete.delay.ms" Long = Some("60000"), AtLeast(0), ClusterWide, Acted,
        "Time between a file's removal from its log and from the disk.";
    "log.flush.scheduler.interval.ms" Long = Some("9223372036854775807"), Any, ReadOnly, Inert,
        "Time between checks whether a log needs a flush.";
    "log.flush.interval.ms" Long = None, Any, ClusterWide, Acted,
        "Longest time records stay unflushed; unset, log.flush.scheduler.interval.ms counts.";
    "log.flush.offset.checkpoint.interval.ms" Int = Some("60000"), AtLeast(0), ReadOnly, Acted,
        "Time between writes of the recovery points.";
    "log.flush.start.offset.checkpoint.interval.ms" Int = Some("60000"), AtLeast(0), ReadOnly, Acted,
        "Time between writes of the log start offsets.";
    "log.preallocate" Boolean = Some("false"), Any, ClusterWide, Inert,
        "Whether segment files are allocated at full size.";
    "num.recovery.threads.per.data.dir" Int = Some("2"), AtLeast(1), ClusterWide, Inert,
        "Threads for recovery; here every shard recovers its own logs.";
    "auto.create.topics.enable" Boolean = Some("true"), Any, ReadOnly, Acted,
        "Whether asking for an unknown topic creates it.";
    "min.insync.replicas" Int = Some("1"), AtLeast(1), ClusterWide, Acted,
        "In-sync replicas a write with acks=all needs.";
    "log.message.timestamp.type" String = Some("CreateTime"), OneOf(&["CreateTime", "LogAppendTime"]), ClusterWide, Acted,
        "Whose clock stamps records: the producer's or the broker's.";
    "log.message.timestamp.before.max.ms" Long = Some("9223372036854775807"), AtLeast(0), ClusterWide, Acted,
        "How far in the past a record's timestamp may lie.";
    "log.message.timestamp.after.max.ms" Long = Some("3600000"), AtLeast(0), ClusterWide, Acted,
        "How far in the future a record's timestamp may lie.";
    "create.topic.policy.class.name" Class = None, Any, ReadOnly, Refused,
        "Plug-in that may refuse the creation of topics.";
    "alter.config.policy.class.name" Class = None, Any, ReadOnly, Refused,
        "Plug-in that may refuse changes of configs.";
    "log.dir.failure.timeout.ms" Long = Some("30000"), AtLeast(1), ReadOnly, Inert,
        "Time to report a failed log directory before the broker stops.";
    "log.initial.task.delay.ms" Long = Some("30000"), AtLeast(0), ReadOnly, Acted hidden,
        "Delay of the first run of background tasks.";
    "log.cleaner.threads" Int = Some("1"), AtLeast(0), ClusterWide, Acted,
        "Threads for compaction: 0 for none, else each shard compacts one log at a time.";
    "log.cleaner.io.max.bytes.per.second" Double = Some("1.7976931348623157E308"), Any, ClusterWide, Acted,
        "Bytes compaction of all logs together may read and write in a second.";
    "log.cleaner.dedupe.buffer.size" Long = Some("134217728"), Any, ClusterWide, Acted,
        "Memory for the maps of keys of all shards together, at most an eighth of walser.memory.";
    "log.cleaner.io.buffer.size" Int = Some("524288"), AtLeast(0), ClusterWide, Acted,
        "Bytes compaction reads at once, at least 16 KiB, at most 4 MiB.";
    "log.cleaner.io.buffer.load.factor" Double = Some("0.9"), Any, ClusterWide, Acted,
        "How full a map of keys may get.";
    "log.cleaner.backoff.ms" Long = Some("15000"), AtLeast(0), ClusterWide, Acted,
        "Pause of compaction when there is nothing to do.";
    "log.cleaner.min.cleanable.ratio" Double = Some("0.5"), Fraction(0.0, 1.0), ClusterWide, Acted,
        "Least share of dirty bytes that makes a log worth compacting.";
    "log.cleaner.enable" Boolean = Some("true"), Any, ReadOnly, Acted,
        "Whether compaction runs.";
    "log.cleaner.delete.retention.ms" Long = Some("86400000"), AtLeast(0), ClusterWide, Acted,
        "How long deletion markers are kept after compaction.";
    "log.cleaner.min.compaction.lag.ms" Long = Some("0"), AtLeast(0), ClusterWide, Acted,
        "Least age of records compaction may touch.";
    "log.cleaner.max.compaction.lag.ms" Long = Some("9223372036854775807"), AtLeast(1), ClusterWide, Acted,
        "Age by which records must have been compacted.";
}
