//! What a shard does for its logs from time to time, whether anybody asks or not.

use std::rc::Rc;
use std::time::Duration;

use futures_lite::future::or;
use walser_storage::compaction::HashKey;
use walser_storage::compaction::throttle::Throttle;
use walser_storage::runtime::Runtime;

use super::Shard;
use crate::config::view::BrokerView;
use crate::driver::partition::compaction::CleanerSettings;
use crate::driver::partition::moves::{MoveNotes, MoveSettings};

/// An interval of 0 would keep the shard busy.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// How often logs are looked at that may be idle, or want a note.
const TEND_EVERY: Duration = Duration::from_secs(1);
/// The notes of all logs are written together: many are not made more often than this.
const NOTE_MANY_EVERY: Duration = Duration::from_secs(5);
const FEW_NOTES: usize = 64;

/// Of the memory for frames: as much again may the maps of keys of all shards take, in memory of their own. It is an eighth
/// of `walser.memory`.
const COMPACTION_SHARE: usize = 2;

/// Keeps recovery points and log starts up to date on disk, so that a start after a crash has little to look at.
pub async fn note_offsets(shard: Rc<Shard>) {
    let intervals = ["log.flush.offset.checkpoint.interval.ms", "log.flush.start.offset.checkpoint.interval.ms"];
    let interval = intervals.map(|name| interval(&shard, name)).into_iter().min().unwrap_or(INTERVAL_MIN);
    while pause(&shard, interval).await {
        let moved = shard.partitions.moved_offsets();
        if !moved.is_empty() {
            // A failure is logged where it happens; what has moved further is tried again.
            shard.note_offsets(moved).await;
        }
    }
}

/// Has idle logs give back what they hold for writers, and keeps notes on the ends of all, so that a start after a crash has
/// nothing to read of what was flushed before.
pub async fn tend_ends(shard: Rc<Shard>) {
    shard.wait_image().await;
    let mut noted = shard.runtime.now();
    while pause(&shard, TEND_EVERY).await {
        shard.partitions.rest_idle().await;
        let wanted = shard.partitions.notes_wanted();
        let is_due = shard.runtime.now().saturating_since(noted) >= NOTE_MANY_EVERY;
        if wanted == 0 || (wanted > FEW_NOTES && !is_due) {
            continue;
        }
        let ends = shard.partitions.next_notes().await;
        noted = shard.runtime.now();
        let ids: Vec<_> = ends.iter().map(|end| (end.id, end.dir)).collect();
        if !ids.is_empty() {
            // A failure is logged where it happens; newer notes are to follow.
            let failed = shard.note_ends(ends).await;
            shard.partitions.notes_are_kept(ids.iter().filter(|(_, dir)| !failed.contains(dir)).map(|(id, _)| *id));
        }
    }
}

/// Removes old segments every `log.retention.check.interval.ms`.
pub async fn apply_retention(shard: Rc<Shard>) {
    if !pause(&shard, interval(&shard, "log.initial.task.delay.ms")).await {
        return;
    }
    let interval = interval(&shard, "log.retention.check.interval.ms");
    loop {
        let removed = shard.partitions.apply_retention().await;
        if removed > 0 {
            tracing::info!(shard = %shard.id, segments = removed, "old segments removed");
        }
        if !pause(&shard, interval).await {
            return;
        }
    }
}

/// Compacts logs, the dirtiest first, and waits for `log.cleaner.backoff.ms` when none is due. Settings are looked at before
/// every pass.
pub async fn compact(shard: Rc<Shard>) {
    if !BrokerView::fixed(shard.config()).boolean("log.cleaner.enable") {
        return;
    }
    let mut secret = [0; 16];
    if let Err(error) = getrandom::fill(&mut secret) {
        tracing::error!(shard = %shard.id, %error, "no random numbers: logs are not compacted");
        return;
    }
    let halves = secret.as_chunks::<8>().0;
    let hash_key = HashKey::new([u64::from_ne_bytes(halves[0]), u64::from_ne_bytes(halves[1])]);
    let throttle = Throttle::new(f64::INFINITY);
    shard.wait_image().await;
    while !shard.is_stopping() {
        let wait = compact_once(&shard, hash_key, &throttle).await;
        if let Some(wait) = wait
            && !pause(&shard, wait).await
        {
            return;
        }
    }
}

/// How long to wait before the next look; `None` when there may be more to do at once.
async fn compact_once(shard: &Rc<Shard>, hash_key: HashKey, throttle: &Throttle) -> Option<Duration> {
    let image = shard.image();
    let view = shard.broker_view(&image);
    let ms = |name| Duration::from_millis(u64::try_from(view.integer(name)).unwrap_or(0)).max(INTERVAL_MIN);
    let backoff = ms("log.cleaner.backoff.ms");
    if view.integer("log.cleaner.threads") == 0 {
        return Some(backoff);
    }
    let shard_count = usize::from(shard.placement.shard_count());
    let bytes = |name| usize::try_from(view.integer(name)).unwrap_or(0);
    throttle.set_rate(view.double("log.cleaner.io.max.bytes.per.second") / shard_count as f64);
    let map_bytes_max =
        bytes("log.cleaner.dedupe.buffer.size").min(shard.settings.frame_memory_bytes / COMPACTION_SHARE);
    let settings = CleanerSettings {
        hash_key,
        map_bytes_max: map_bytes_max / shard_count,
        map_load_max: view.double("log.cleaner.io.buffer.load.factor"),
        read_bytes: bytes("log.cleaner.io.buffer.size"),
        throttle,
    };
    let compacted = shard.partitions.compact_dirtiest(&settings, &async || shard.governor.slice().await).await;
    let Some(partition) = compacted else { return Some(backoff) };
    // Retention leaves a log alone that is being compacted.
    shard.partitions.apply_retention_to(&partition).await;
    shard.note_offsets(vec![partition.offsets()]).await;
    None
}

/// Moves replicas between log directories, as fast as `replica.alter.log.dirs.io.max.bytes.per.second` lets all shards
/// together.
pub async fn move_replicas(shard: Rc<Shard>) {
    shard.wait_image().await;
    let (throttle, unbound) = (Throttle::new(f64::INFINITY), Throttle::new(f64::INFINITY));
    let settings = MoveSettings { throttle: &throttle, unbound: &unbound };
    let notes = MoveNotes {
        arrival: async |offsets| shard.note_arrival(offsets).await,
        departure: async |id, from, to| shard.note_departure(id, from, to).await,
    };
    let give_way = async || {
        set_move_rate(&shard, &throttle);
        shard.governor.slice().await;
    };
    while !shard.is_stopping() {
        let wanted = shard.partitions.move_is_wanted();
        set_move_rate(&shard, &throttle);
        match shard.partitions.move_next(&settings, &give_way, &notes).await {
            Some(wait) if wait.is_zero() => {}
            Some(wait) => {
                if !pause(&shard, wait).await {
                    return;
                }
            }
            None => or(wanted, shard.stopping()).await,
        }
    }
}

fn set_move_rate(shard: &Shard, throttle: &Throttle) {
    let image = shard.image();
    let rate = shard.broker_view(&image).maybe_integer("replica.alter.log.dirs.io.max.bytes.per.second");
    throttle.set_rate(rate.map_or(f64::INFINITY, |rate| rate as f64 / f64::from(shard.placement.shard_count())));
}

fn interval(shard: &Shard, name: &str) -> Duration {
    let ms = BrokerView::fixed(shard.config()).integer(name);
    Duration::from_millis(u64::try_from(ms).unwrap_or(0)).max(INTERVAL_MIN)
}

/// False when the broker stops meanwhile.
async fn pause(shard: &Rc<Shard>, interval: Duration) -> bool {
    let slept = async {
        shard.runtime.sleep(interval).await;
        true
    };
    let stopped = async {
        shard.stopping().await;
        false
    };
    or(slept, stopped).await
}
