//! What logs give back when they are idle, and what is noted of their ends.

use std::sync::Arc;

use walser_storage::disk::Disk;
use walser_storage::runtime::Runtime;

use super::{PartitionId, Partitions};
use crate::driver::checkpoints::LogEnd;
use crate::driver::side_by_side::SideBySide;

/// Logs looked at before giving way.
const LOOKS_PER_TURN: usize = 256;
/// Logs that rest at the same time: their flushes are done together, and leave room for those that somebody waits for.
const REST_AT_ONCE: usize = 16;

impl<D: Disk, R: Runtime> Partitions<D, R> {
    /// Has logs that nobody writes to give back what they hold for writers.
    pub async fn rest_idle(&self) {
        let mut resting = SideBySide::new(&self.runtime, REST_AT_ONCE);
        for (at, partition) in (1..).zip(self.all()) {
            if self.stopping.get() {
                break;
            }
            if partition.log.may_rest(self.runtime.now()) {
                resting.start(async move { partition.log.rest().await }).await;
            }
            if usize::is_multiple_of(at, LOOKS_PER_TURN) {
                self.runtime.turn().await;
            }
        }
        while resting.next().await.is_some() {}
    }

    /// Logs whose end is to be noted anew.
    pub fn notes_wanted(&self) -> usize {
        self.by_id.borrow().values().filter(|partition| partition.log.wants_note()).count()
    }

    /// What there is to note of the ends of logs.
    pub async fn next_notes(&self) -> Vec<LogEnd> {
        let mut ends = Vec::new();
        for (at, partition) in (1..).zip(self.all()) {
            if partition.log.wants_note() {
                match partition.log.next_note().await {
                    Ok(Some(note)) => ends.push(LogEnd { id: partition.id, dir: partition.dir, note: Arc::from(note) }),
                    Ok(None) => {}
                    Err(error) => {
                        let (topic, index) = (&partition.topic, partition.id.index);
                        tracing::debug!(%topic, partition = index, %error, "the end of a log is not noted");
                    }
                }
            }
            if usize::is_multiple_of(at, LOOKS_PER_TURN) {
                self.runtime.turn().await;
            }
        }
        ends
    }

    /// The notes of these logs are kept durably.
    pub fn notes_are_kept(&self, ids: impl Iterator<Item = PartitionId>) {
        for id in ids {
            if let Some(partition) = self.find(id) {
                partition.log.notes_are_kept();
            }
        }
    }
}
