//! What the rounds are run with.

use super::load::{Cleanup, Load, Sizes};

const UNLIMITED: u64 = u64::MAX;
const KEYS: u64 = 30;
const RETENTION_BYTES: u64 = 10 << 20;

/// A few partitions at full rate, nothing ever cleaned up.
pub const FEW: &[Load] = &[Load {
    topic: "crash",
    partitions: 6,
    configs: &[],
    cleanup: Cleanup::Nothing,
    sizes: Sizes::Small,
    round_bytes_max: UNLIMITED,
}];

/// Two hundred, most of them with retention or compaction running all the while.
pub const MANY: &[Load] = &[
    // Every round reads all of it again, so it stays small.
    Load { topic: "crash-kept", partitions: 60, round_bytes_max: 128 << 10, ..FEW[0] },
    Load {
        topic: "crash-retained",
        partitions: 70,
        configs: &[("retention.bytes", "10485760")],
        cleanup: Cleanup::OldSegments { retention_bytes: RETENTION_BYTES },
        sizes: Sizes::Mixed,
        round_bytes_max: UNLIMITED,
    },
    Load {
        topic: "crash-compacted",
        partitions: 70,
        configs: &[("cleanup.policy", "compact")],
        cleanup: Cleanup::OldValues { keys: KEYS },
        sizes: Sizes::Mixed,
        round_bytes_max: UNLIMITED,
    },
];

/// Many rolls in a short time.
pub const SMALL_SEGMENTS: &[(&str, &str)] = &[("log.segment.bytes", "1048576")];

/// As well, and no pause in which nothing is cleaned up.
pub const BUSY_CLEANUP: &[(&str, &str)] = &[
    ("log.segment.bytes", "1048576"),
    ("log.retention.check.interval.ms", "100"),
    ("log.initial.task.delay.ms", "0"),
    ("log.segment.delete.delay.ms", "10"),
    ("log.cleaner.backoff.ms", "10"),
    ("log.cleaner.min.cleanable.ratio", "0.01"),
];
