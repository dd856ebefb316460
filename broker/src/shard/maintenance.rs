//! What a shard does for its logs from time to time, whether anybody asks or not.

use std::rc::Rc;
use std::time::Duration;

use futures_lite::future::or;
use walser_storage::runtime::Runtime;

use super::Shard;
use crate::config::view::BrokerView;

/// An interval of 0 would keep the shard busy.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

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
