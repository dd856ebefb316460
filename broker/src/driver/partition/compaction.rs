//! Which log of the shard is compacted next, and what becomes of those that cannot be.
//!
//! One log at a time, the one with the largest dirty part first, as Kafka's `LogCleanerManager` chooses. A log that fails for
//! a reason that will not pass is left out until the next start, and said so; the others go on.

use std::rc::Rc;

use walser_storage::compaction::HashKey;
use walser_storage::compaction::plan::Plan;
use walser_storage::compaction::throttle::Throttle;
use walser_storage::disk::Disk;
use walser_storage::log::{CompactError, Compacted, PassLimits};
use walser_storage::runtime::{Instant, Runtime};
use walser_storage::validate::DECOMPRESSED_BYTES_MAX;

use super::{Partition, Partitions};

/// Logs looked at between two slices.
const LOGS_PER_SLICE: usize = 16;

/// What compaction may use on this shard at present.
pub struct CleanerSettings<'a> {
    pub hash_key: HashKey,
    /// Of the map of keys.
    pub map_bytes_max: usize,
    pub map_load_max: f64,
    pub read_bytes: usize,
    pub throttle: &'a Throttle,
}

/// A log that may be compacted now.
struct Due<D: Disk, R: Runtime> {
    partition: Rc<Partition<D, R>>,
    plan: Plan,
}

impl<D: Disk, R: Runtime> Partitions<D, R> {
    /// One pass over the dirtiest log that is due; its partition, or `None` when there was none to be done.
    pub async fn compact_dirtiest(
        &self,
        settings: &CleanerSettings<'_>,
        give_way: &impl AsyncFn(),
    ) -> Option<Rc<Partition<D, R>>> {
        self.compaction_looked.set(Some(self.runtime.now()));
        let now_ms = self.runtime.wall_clock_ms();
        for Due { partition, plan } in self.due(now_ms, give_way).await {
            let began = self.runtime.now();
            let limits = PassLimits {
                hash_key: settings.hash_key,
                map_bytes_max: settings.map_bytes_max,
                map_load_max: settings.map_load_max,
                read_bytes: settings.read_bytes,
                // What was taken once can be read again, whatever the bound is now.
                decompressed_bytes_max: self.settings.decompressed_bytes_max.max(DECOMPRESSED_BYTES_MAX),
                throttle: settings.throttle,
            };
            match partition.log.compact(&plan, now_ms, &limits, give_way).await {
                Ok(compacted) => {
                    self.note_pass(&partition, &compacted, began);
                    // Were it said again at once that this one is due, nothing else would get a turn.
                    if compacted.end_offset > plan.first_dirty_offset {
                        return Some(partition);
                    }
                }
                Err(CompactError::Closing) => return None,
                Err(error) => self.note_failure(&partition, &error),
            }
        }
        None
    }

    /// The dirtiest first.
    async fn due(&self, now_ms: i64, give_way: &impl AsyncFn()) -> Vec<Due<D, R>> {
        let (mut due, mut dirtiest, mut uncleanable, mut uncleanable_bytes) = (Vec::new(), 0.0_f64, 0, 0);
        for (at, partition) in self.all().into_iter().enumerate() {
            if at % LOGS_PER_SLICE == 0 {
                give_way().await;
            }
            let config = partition.config();
            if !config.cleanup.compact || self.moves.is_moving(partition.id) {
                continue;
            }
            let plan = match partition.log.plan_compaction(now_ms, partition.last_stable_offset()).await {
                Ok(Some(plan)) => plan,
                Ok(None) => continue,
                Err(error) => {
                    self.note_failure(&partition, &error.into());
                    continue;
                }
            };
            if partition.is_uncleanable.get() {
                uncleanable += 1;
                uncleanable_bytes += plan.dirty_bytes;
                continue;
            }
            dirtiest = dirtiest.max(plan.dirty_ratio());
            if plan.is_due(&partition.log.config().compaction) {
                due.push(Due { partition, plan });
            }
        }
        let metrics = &self.settings.metrics;
        metrics.compaction_max_dirty_percent.set((dirtiest * 100.0) as u64);
        metrics.compaction_uncleanable.set(uncleanable);
        metrics.compaction_uncleanable_bytes.set(uncleanable_bytes);
        due.sort_by(|one, other| other.plan.dirty_ratio().total_cmp(&one.plan.dirty_ratio()));
        due
    }

    fn note_pass(&self, partition: &Partition<D, R>, compacted: &Compacted, began: Instant) {
        let took = self.runtime.now().saturating_since(began);
        let (topic, index) = (&partition.topic, partition.id.index);
        tracing::info!(%topic, partition = index, ?took, end_offset = compacted.end_offset, keys = compacted.keys,
            bytes_before = compacted.bytes_before, bytes_after = compacted.bytes_after,
            segments_before = compacted.segments_before, segments_after = compacted.segments_after, "compacted");
        let metrics = &self.settings.metrics;
        metrics.compaction_passes.increment();
        metrics.compaction_bytes_before.add(compacted.bytes_before);
        metrics.compaction_bytes_after.add(compacted.bytes_after);
        metrics.compaction_buffer_percent.set((compacted.map_utilization * 100.0) as u64);
        let recopied = compacted.bytes_after.saturating_mul(100).checked_div(compacted.bytes_before);
        metrics.compaction_recopy_percent.set(recopied.unwrap_or(0));
        metrics.compaction_seconds.set(took.as_secs());
    }

    fn note_failure(&self, partition: &Partition<D, R>, error: &CompactError) {
        let (topic, index) = (&partition.topic, partition.id.index);
        if error.is_passing() {
            tracing::warn!(%topic, partition = index, %error, "not compacted; tried again later");
        } else if !partition.is_uncleanable.replace(true) {
            tracing::error!(%topic, partition = index, %error,
                "the log cannot be compacted; it grows, and is left out until the next start");
        }
    }

    /// Ends a pass that runs, and lets none begin.
    pub fn stop_compacting(&self) {
        for partition in self.by_id.borrow().values() {
            partition.log.stop_compacting();
        }
    }

    /// How long ago logs were last looked at; `None` where none ever were.
    pub(super) fn compaction_idle_ms(&self) -> Option<u64> {
        let idle = self.runtime.now().saturating_since(self.compaction_looked.get()?);
        Some(u64::try_from(idle.as_millis()).unwrap_or(u64::MAX))
    }
}
