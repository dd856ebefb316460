//! `cleanup.policy=compact`: of every key the last record stays, and the offsets of what stays do not change.
//!
//! Pure: what is due (`plan`), which record of a key is the last (`offset_map`), what becomes of a batch (`clean`), whose
//! transactions were aborted (`transactions`), how fast it may go (`throttle`). Reading, writing and the exchange of
//! segments are `log::compact`'s.
//!
//! The rules are those of Kafka's `Cleaner` and `LogCleanerManager`. A pass has two halves: the keys of the dirty part are
//! mapped to the offsets of their last records, as many as memory allows; then everything from the log's start to where
//! the map ends is written anew without what the map says is outdated. One thing is stricter than Kafka, so that a gap at
//! the end of a segment always means damage: the last batch of every segment written stays, empty if need be.

pub mod clean;
mod key_hash;
pub mod offset_map;
pub mod plan;
pub mod throttle;
pub mod transactions;

pub use key_hash::HashKey;

/// What a topic's configuration says about compaction. Times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompactionConfig {
    /// `cleanup.policy` has `compact`.
    pub by_policy: bool,
    /// `min.cleanable.dirty.ratio`: a log is compacted when more than this part of its bytes is dirty.
    pub min_dirty_ratio: f64,
    /// Segments with a younger record than this are left alone.
    pub min_lag_ms: i64,
    /// A log with an older dirty record than this is compacted whatever its dirty ratio.
    pub max_lag_ms: i64,
    /// How long a tombstone stays after the pass that saw it first.
    pub delete_retention_ms: i64,
}

impl Default for CompactionConfig {
    /// Kafka's topic defaults.
    fn default() -> Self {
        Self {
            by_policy: false,
            min_dirty_ratio: 0.5,
            min_lag_ms: 0,
            max_lag_ms: i64::MAX,
            delete_retention_ms: 24 * 3600 * 1000,
        }
    }
}
