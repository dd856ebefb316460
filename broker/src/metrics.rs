//! What is counted. Every shard counts in cells of its own; the HTTP thread reads them all.
//!
//! Cells are relaxed atomics: each number is right by itself, two numbers read together may be an instant apart. They are
//! never shared by two writers that could be in each other's way: a shard writes its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use walser_protocol::api::ApiKey;
use walser_protocol::error_code::ErrorCode;

/// API keys are numbered below this; a test holds it against the table of keys.
const API_KEYS_MAX: usize = 96;
/// Error codes, -1 included, are numbered below this after adding one; a test holds it against the table of codes.
const ERROR_CODES_MAX: usize = 144;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub fn increment(&self) {
        self.add(1);
    }

    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that is replaced.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The cells of one shard.
#[derive(Debug)]
pub struct ShardMetrics {
    // The network edge.
    pub connections_opened: Counter,
    pub connections_closed: Counter,
    /// Closed at once because of `max.connections` or `max.connections.per.ip`.
    pub connections_over_limit: Counter,
    /// Closed for what they sent.
    pub connections_refused: Counter,
    /// Panics that closed a connection.
    pub connection_panics: Counter,
    /// Pauses of accepting because descriptors or kernel memory ran out.
    pub accept_pauses: Counter,
    pub received_bytes: Counter,
    pub sent_bytes: Counter,
    // Records.
    /// Records appended by producers.
    pub messages_in: Counter,
    /// Bytes of batches appended by producers.
    pub produced_bytes: Counter,
    /// Bytes of batches sent to consumers.
    pub fetched_bytes: Counter,
    /// Bytes of batches refused for their size.
    pub rejected_bytes: Counter,
    /// Partitions of produce requests, whatever became of them.
    pub produce_partitions: Counter,
    pub produce_partitions_failed: Counter,
    pub fetch_partitions: Counter,
    pub fetch_partitions_failed: Counter,
    pub message_crc_failures: Counter,
    pub no_key_compacted_records: Counter,
    // The shard itself.
    /// Messages a guard found undelivered.
    pub guard_rescues: Gauge,
    /// Stalls the watchdog reported.
    pub stalls: Gauge,
    /// Bytes of frames and replies held.
    pub frame_memory_used: Gauge,
    /// Frames that wait for memory.
    pub frame_memory_waiting: Gauge,
    /// Partitions this shard leads.
    pub partitions_led: Gauge,
    /// Partitions whose log is offline.
    pub partitions_offline: Gauge,
    /// Bytes of all logs of this shard.
    pub log_bytes: Gauge,
    /// Commits that logs made for themselves, and write-backs of what the journal holds.
    pub commits: Counter,
    /// Group commits of the journal.
    pub journal_commits: Counter,
    /// Of the commit in flight, so far.
    pub journal_commit_age_ms: Gauge,
    /// Of the log that waits longest for the disk, so far.
    pub log_commit_age_ms: Gauge,
    /// Commits of journal and logs that took a second and more.
    pub slow_commits: Counter,
    /// The journal has failed, and every log behind it.
    pub journal_failed: Gauge,
    /// The journal waits for room on the disk.
    pub journal_stalled: Gauge,
    /// Logs for which the disk has no room.
    pub logs_without_room: Gauge,
    /// What is kept back for a full disk is given up, and nothing is appended until it is whole again.
    pub disk_short: Gauge,
    /// Bytes of journal files that hold records.
    pub journal_live_bytes: Gauge,
    /// Bytes of batches that are in no segment yet.
    pub journal_staged_bytes: Gauge,
    /// Memory of recent batches and of blocks of old ones.
    pub tail_bytes: Gauge,
    pub block_cache_bytes: Gauge,
    /// Blocks of old batches found in memory, and those read from the disk.
    pub block_cache_hits: Gauge,
    pub block_cache_misses: Gauge,
    // Compaction.
    pub compaction_passes: Counter,
    /// Bytes of the segments that passes went over, before and after.
    pub compaction_bytes_before: Counter,
    pub compaction_bytes_after: Counter,
    /// Logs that cannot be compacted, and their dirty bytes.
    pub compaction_uncleanable: Gauge,
    pub compaction_uncleanable_bytes: Gauge,
    /// Of the dirtiest log.
    pub compaction_max_dirty_percent: Gauge,
    /// Since logs were last looked at.
    pub compaction_idle_ms: Gauge,
    /// Of the last pass: how full its map was, which part of the bytes stayed, how long it took.
    pub compaction_buffer_percent: Gauge,
    pub compaction_recopy_percent: Gauge,
    pub compaction_seconds: Gauge,
    pub fetch_purgatory: Gauge,
    pub produce_purgatory: Gauge,
    pub fetch_sessions: Gauge,
    requests: Box<[Counter]>,
    errors: Box<[Counter]>,
}

impl Default for ShardMetrics {
    fn default() -> Self {
        let counters = |count: usize| (0..count).map(|_| Counter::default()).collect();
        Self {
            connections_opened: Counter::default(),
            connections_closed: Counter::default(),
            connections_over_limit: Counter::default(),
            connections_refused: Counter::default(),
            connection_panics: Counter::default(),
            accept_pauses: Counter::default(),
            received_bytes: Counter::default(),
            sent_bytes: Counter::default(),
            messages_in: Counter::default(),
            produced_bytes: Counter::default(),
            fetched_bytes: Counter::default(),
            rejected_bytes: Counter::default(),
            produce_partitions: Counter::default(),
            produce_partitions_failed: Counter::default(),
            fetch_partitions: Counter::default(),
            fetch_partitions_failed: Counter::default(),
            message_crc_failures: Counter::default(),
            no_key_compacted_records: Counter::default(),
            guard_rescues: Gauge::default(),
            stalls: Gauge::default(),
            frame_memory_used: Gauge::default(),
            frame_memory_waiting: Gauge::default(),
            partitions_led: Gauge::default(),
            partitions_offline: Gauge::default(),
            log_bytes: Gauge::default(),
            commits: Counter::default(),
            journal_commits: Counter::default(),
            journal_commit_age_ms: Gauge::default(),
            log_commit_age_ms: Gauge::default(),
            slow_commits: Counter::default(),
            journal_failed: Gauge::default(),
            journal_stalled: Gauge::default(),
            logs_without_room: Gauge::default(),
            disk_short: Gauge::default(),
            journal_live_bytes: Gauge::default(),
            journal_staged_bytes: Gauge::default(),
            tail_bytes: Gauge::default(),
            block_cache_bytes: Gauge::default(),
            block_cache_hits: Gauge::default(),
            block_cache_misses: Gauge::default(),
            compaction_passes: Counter::default(),
            compaction_bytes_before: Counter::default(),
            compaction_bytes_after: Counter::default(),
            compaction_uncleanable: Gauge::default(),
            compaction_uncleanable_bytes: Gauge::default(),
            compaction_max_dirty_percent: Gauge::default(),
            compaction_idle_ms: Gauge::default(),
            compaction_buffer_percent: Gauge::default(),
            compaction_recopy_percent: Gauge::default(),
            compaction_seconds: Gauge::default(),
            fetch_purgatory: Gauge::default(),
            produce_purgatory: Gauge::default(),
            fetch_sessions: Gauge::default(),
            requests: counters(API_KEYS_MAX),
            errors: counters(API_KEYS_MAX * ERROR_CODES_MAX),
        }
    }
}

impl ShardMetrics {
    /// A request was dispatched.
    pub fn count_request(&self, key: ApiKey) {
        if let Some(counter) = self.requests.get(api_index(key)) {
            counter.increment();
        }
    }

    /// An answer, or a part of one, carries `code`. Success is counted too, as Kafka does.
    pub fn count_error(&self, key: ApiKey, code: ErrorCode) {
        if let Some(counter) = self.errors.get(error_index(key, code)) {
            counter.increment();
        }
    }

    fn requests_of(&self, key: ApiKey) -> u64 {
        self.requests.get(api_index(key)).map_or(0, Counter::value)
    }

    fn errors_of(&self, key: ApiKey, code: ErrorCode) -> u64 {
        self.errors.get(error_index(key, code)).map_or(0, Counter::value)
    }
}

fn api_index(key: ApiKey) -> usize {
    usize::try_from(key.code()).expect("an API key is no negative number")
}

fn error_index(key: ApiKey, code: ErrorCode) -> usize {
    let code = usize::try_from(i32::from(code.code()) + 1).expect("no code is below -1");
    api_index(key) * ERROR_CODES_MAX + code
}

/// What the controller knows; written when a metadata image is published.
#[derive(Debug, Default)]
pub struct ClusterMetrics {
    pub active_controller: Gauge,
    pub brokers: Gauge,
    pub fenced_brokers: Gauge,
    pub topics: Gauge,
    pub partitions: Gauge,
    pub offline_partitions: Gauge,
    pub under_replicated_partitions: Gauge,
    pub under_min_isr_partitions: Gauge,
    pub preferred_replica_imbalance: Gauge,
    /// Offset of the last metadata record applied.
    pub metadata_offset: Gauge,
}

/// All cells of the process.
#[derive(Debug, Default)]
pub struct Metrics {
    shards: Mutex<Vec<Arc<ShardMetrics>>>,
    pub cluster: ClusterMetrics,
    /// Stretches of the last run's journals that cannot be read, found at the start.
    pub journal_damage: Gauge,
    /// Log directories that are offline or have failed.
    pub failed_log_dirs: Gauge,
}

impl Metrics {
    /// The cells of a shard, made when they are asked for first. Asked for once, at start.
    pub fn shard(&self, index: usize) -> Arc<ShardMetrics> {
        let mut shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        while shards.len() <= index {
            shards.push(Arc::default());
        }
        Arc::clone(&shards[index])
    }

    /// The cells of all shards in their order.
    pub fn shards(&self) -> Vec<Arc<ShardMetrics>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Sum over all shards.
pub(crate) fn requests(shards: &[Arc<ShardMetrics>], key: ApiKey) -> u64 {
    shards.iter().map(|shard| shard.requests_of(key)).sum()
}

/// Sum over all shards.
pub(crate) fn errors(shards: &[Arc<ShardMetrics>], key: ApiKey, code: ErrorCode) -> u64 {
    shards.iter().map(|shard| shard.errors_of(key, code)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_and_code_has_a_cell_of_its_own() {
        // Rule: no request or error is counted in another's cell, or in none.
        let metrics = ShardMetrics::default();
        for key in ApiKey::ALL {
            metrics.count_request(key);
            for code in ErrorCode::ALL {
                metrics.count_error(key, *code);
            }
        }
        for key in ApiKey::ALL {
            assert_eq!(metrics.requests_of(key), 1, "{key}");
            for code in ErrorCode::ALL {
                assert_eq!(metrics.errors_of(key, *code), 1, "{key} {code}");
            }
        }
    }

    #[test]
    fn a_shard_keeps_its_cells() {
        // Rule: whoever asks for a shard's cells gets the same ones.
        let metrics = Metrics::default();
        metrics.shard(1).messages_in.add(3);
        assert_eq!(metrics.shard(1).messages_in.value(), 3);
        assert_eq!(metrics.shards().len(), 2);
    }
}
