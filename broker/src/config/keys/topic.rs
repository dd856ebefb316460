//! Configs of topics, each with the broker key it falls back to.

use crate::config::key::Allowed::{Any, AtLeast, Between, Fraction, GzipLevel, ListOf, OneOf, ThrottledReplicas};
use crate::config::key::keys;

keys! { KEYS:
    "segment.bytes" Int = Some("1073741824"), AtLeast(1048576), ClusterWide, Acted ~ "log.segment.bytes",
        "Size at which the log starts a new segment.";
    "segment.ms" Long = Some("604800000"), AtLeast(1), ClusterWide, Acted ~ "log.roll.ms",
        "Age at which the log starts a new segment.";
    "segment.jitter.ms" Long = Some("0"), AtLeast(0), ClusterWide, Inert ~ "log.roll.jitter.ms",
        "Random time taken off segment.ms.";
    "segment.index.bytes" Int = Some("10485760"), AtLeast(4), ClusterWide, Acted ~ "log.index.size.max.bytes",
        "Largest size of an index file.";
    "flush.messages" Long = Some("9223372036854775807"), AtLeast(1), ClusterWide, Acted ~ "log.flush.interval.messages",
        "Records after which the log is flushed; every acknowledged batch already is at durability `flushed`.";
    "flush.ms" Long = Some("9223372036854775807"), AtLeast(0), ClusterWide, Acted ~ "log.flush.interval.ms",
        "Longest time records stay unflushed.";
    "retention.bytes" Long = Some("-1"), Any, ClusterWide, Acted ~ "log.retention.bytes",
        "Size of a partition above which its oldest segments are deleted; -1 for no bound.";
    "retention.ms" Long = Some("604800000"), AtLeast(-1), ClusterWide, Acted ~ "log.retention.ms",
        "Age at which segments are deleted; -1 for never.";
    "max.message.bytes" Int = Some("1048588"), AtLeast(0), ClusterWide, Acted ~ "message.max.bytes",
        "Largest record batch accepted, compressed size with overhead.";
    "max.decompressed.message.bytes" Int = Some("2147483639"), Between(1, 2147483639), ClusterWide, Acted ~ "max.decompressed.message.bytes",
        "Largest size a record batch may have after decompression.";
    "index.interval.bytes" Int = Some("4096"), AtLeast(0), ClusterWide, Acted ~ "log.index.interval.bytes",
        "Log bytes between two entries of the offset index.";
    "delete.retention.ms" Long = Some("86400000"), AtLeast(0), ClusterWide, Acted ~ "log.cleaner.delete.retention.ms",
        "How long deletion markers are kept after compaction.";
    "min.compaction.lag.ms" Long = Some("0"), AtLeast(0), ClusterWide, Acted ~ "log.cleaner.min.compaction.lag.ms",
        "Least age of records compaction may touch.";
    "max.compaction.lag.ms" Long = Some("9223372036854775807"), AtLeast(1), ClusterWide, Acted ~ "log.cleaner.max.compaction.lag.ms",
        "Age by which records must have been compacted.";
    "file.delete.delay.ms" Long = Some("60000"), AtLeast(0), ClusterWide, Acted ~ "log.segment.delete.delay.ms",
        "Time between a file's removal from its log and from the disk.";
    "min.cleanable.dirty.ratio" Double = Some("0.5"), Fraction(0.0, 1.0), ClusterWide, Acted ~ "log.cleaner.min.cleanable.ratio",
        "Least share of dirty bytes that makes the log worth compacting.";
    "cleanup.policy" List = Some("delete"), ListOf(&["compact", "delete"]), ClusterWide, Acted ~ "log.cleanup.policy",
        "What happens to old segments: delete, compact, both, or, when empty, nothing.";
    "unclean.leader.election.enable" Boolean = Some("false"), Any, ClusterWide, Inert ~ "unclean.leader.election.enable",
        "Whether a replica outside the in-sync set may lead when no other is left.";
    "min.insync.replicas" Int = Some("1"), AtLeast(1), ClusterWide, Acted ~ "min.insync.replicas",
        "In-sync replicas a write with acks=all needs.";
    "compression.type" String = Some("producer"), OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]), ClusterWide, Acted ~ "compression.type",
        "Codec batches are stored with; `producer` keeps what was sent.";
    "compression.gzip.level" Int = Some("-1"), GzipLevel, ClusterWide, Acted ~ "compression.gzip.level",
        "Level used when the broker compresses with gzip.";
    "compression.lz4.level" Int = Some("9"), Between(1, 17), ClusterWide, Acted ~ "compression.lz4.level",
        "Level used when the broker compresses with lz4.";
    "compression.zstd.level" Int = Some("3"), Between(-131072, 22), ClusterWide, Acted ~ "compression.zstd.level",
        "Level used when the broker compresses with zstd.";
    "preallocate" Boolean = Some("false"), Any, ClusterWide, Inert ~ "log.preallocate",
        "Whether segment files are allocated at full size.";
    "message.timestamp.type" String = Some("CreateTime"), OneOf(&["CreateTime", "LogAppendTime"]), ClusterWide, Acted ~ "log.message.timestamp.type",
        "Whose clock stamps records: the producer's or the broker's.";
    "message.timestamp.before.max.ms" Long = Some("9223372036854775807"), AtLeast(0), ClusterWide, Acted ~ "log.message.timestamp.before.max.ms",
        "How far in the past a record's timestamp may lie.";
    "message.timestamp.after.max.ms" Long = Some("3600000"), AtLeast(0), ClusterWide, Acted ~ "log.message.timestamp.after.max.ms",
        "How far in the future a record's timestamp may lie.";
    "leader.replication.throttled.replicas" List = Some(""), ThrottledReplicas, ClusterWide, Inert,
        "Replicas whose leaders are throttled, as partition:broker pairs, or * for all.";
    "follower.replication.throttled.replicas" List = Some(""), ThrottledReplicas, ClusterWide, Inert,
        "Replicas whose followers are throttled, as partition:broker pairs, or * for all.";
    "remote.storage.enable" Boolean = Some("false"), Any, ClusterWide, Inert,
        "Whether old segments move to remote storage.";
    "local.retention.ms" Long = Some("-2"), AtLeast(-2), ClusterWide, Inert ~ "log.local.retention.ms",
        "Age at which tiered segments leave the local disk; -2 follows retention.ms.";
    "local.retention.bytes" Long = Some("-2"), AtLeast(-2), ClusterWide, Inert ~ "log.local.retention.bytes",
        "Local size above which tiered segments leave the disk; -2 follows retention.bytes.";
    "remote.log.copy.disable" Boolean = Some("false"), Any, ClusterWide, Inert,
        "Whether tiered data is kept but no more is copied.";
    "remote.copy.lag.ms" Long = Some("0"), AtLeast(-1), ClusterWide, Inert ~ "log.remote.copy.lag.ms",
        "Age a segment must reach before it is copied.";
    "remote.copy.lag.bytes" Long = Some("-1"), AtLeast(-1), ClusterWide, Inert ~ "log.remote.copy.lag.bytes",
        "Newer bytes that must follow a segment before it is copied.";
    "remote.log.delete.on.disable" Boolean = Some("false"), Any, ClusterWide, Inert,
        "Whether tiered data is deleted when tiering is switched off.";
    "errors.deadletterqueue.group.enable" Boolean = Some("false"), Any, ClusterWide, Inert,
        "Whether groups may use this topic for dead letters.";
    "internal.segment.bytes" Int = None, Any, ClusterWide, Acted hidden,
        "Segment size below the public minimum, for tests.";
    "walser.durability" String = Some("flushed"), OneOf(&["flushed", "written", "memory"]), ClusterWide, Acted ~ "walser.durability",
        "What an acknowledgement means: flushed to stable storage, written to the file, or taken into memory.";
}
