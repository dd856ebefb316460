//! The checkpoints of all directories. What one of them cannot keep is no matter of the others.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use walser_machine::metadata::{MetadataDelta, MetadataImage};
use walser_storage::disk::Disk;
use walser_storage::error::DiskError;

use super::{Checkpoints, LogEnd, LogOffsets};
use crate::driver::partition::PartitionId;
use crate::log_dirs::{LogDirIndex, LogDirs};

/// See the module.
pub struct DirCheckpoints<D> {
    log_dirs: Arc<LogDirs>,
    /// Of directories that are online.
    online: BTreeMap<LogDirIndex, Rc<Checkpoints<D>>>,
}

impl<D: Disk> DirCheckpoints<D> {
    pub fn new(log_dirs: Arc<LogDirs>, online: BTreeMap<LogDirIndex, Rc<Checkpoints<D>>>) -> Self {
        Self { log_dirs, online }
    }

    /// Goes with the metadata, see [`Checkpoints::follow`].
    pub async fn follow(&self, image: &Arc<MetadataImage>, delta: &MetadataDelta) {
        for (dir, checkpoints) in &self.online {
            if let Err(error) = checkpoints.follow(image, delta).await {
                // The next start finds out by the ids of the directories.
                tracing::warn!(%error, "offsets of deleted topics are still in the checkpoints");
                self.note_failure(*dir, &error);
            }
        }
    }

    /// Keeps newer offsets durably; the directories that do not.
    pub async fn note(&self, newer: Vec<LogOffsets>) -> Vec<LogDirIndex> {
        let mut by_dir: BTreeMap<LogDirIndex, Vec<LogOffsets>> = BTreeMap::new();
        for offsets in newer {
            by_dir.entry(offsets.dir).or_default().push(offsets);
        }
        let mut failed = Vec::new();
        for (dir, offsets) in by_dir {
            let noted = match self.online.get(&dir) {
                Some(checkpoints) => checkpoints.note(offsets).await,
                None => unreachable!("a log is in a directory that is online"),
            };
            if let Err(error) = noted {
                tracing::error!(%error, "offsets of logs are not noted");
                self.note_failure(dir, &error);
                failed.push(dir);
            }
        }
        failed
    }

    /// Keeps newer notes on the ends of logs durably; the directories that do not.
    pub async fn note_ends(&self, newer: Vec<LogEnd>) -> Vec<LogDirIndex> {
        let mut by_dir: BTreeMap<LogDirIndex, Vec<LogEnd>> = BTreeMap::new();
        for end in newer {
            by_dir.entry(end.dir).or_default().push(end);
        }
        let mut failed = Vec::new();
        for (dir, ends) in by_dir {
            let noted = match self.online.get(&dir) {
                Some(checkpoints) => checkpoints.note_ends(ends).await,
                None => unreachable!("a log is in a directory that is online"),
            };
            if let Err(error) = noted {
                tracing::warn!(%error, "ends of logs are not noted");
                self.note_failure(dir, &error);
                failed.push(dir);
            }
        }
        failed
    }

    /// See [`Checkpoints::note_arrival`]; false when it is not kept.
    pub async fn note_arrival(&self, offsets: LogOffsets) -> bool {
        let dir = offsets.dir;
        let Some(checkpoints) = self.online.get(&dir) else { return false };
        let noted = checkpoints.note_arrival(offsets).await;
        if let Err(error) = &noted {
            tracing::error!(%error, "offsets of a log that is moved are not noted");
            self.note_failure(dir, error);
        }
        noted.is_ok()
    }

    /// See [`Checkpoints::note_departure`].
    pub async fn note_departure(&self, id: PartitionId, from: LogDirIndex) {
        let Some(checkpoints) = self.online.get(&from) else { return };
        if let Err(error) = checkpoints.note_departure(id).await {
            // The next start finds out by the directories.
            tracing::warn!(%error, "offsets of a log that was moved are still in the checkpoints");
            self.note_failure(from, &error);
        }
    }

    /// Writes no more, see [`Checkpoints::end`]; every note that is kept in each directory.
    pub async fn end(&self) -> BTreeMap<LogDirIndex, BTreeMap<PartitionId, Arc<[u8]>>> {
        let mut ends = BTreeMap::new();
        for (dir, checkpoints) in &self.online {
            checkpoints.end().await;
            ends.insert(*dir, checkpoints.ends());
        }
        ends
    }

    fn note_failure(&self, dir: LogDirIndex, error: &DiskError) {
        if !error.is_refusal() {
            self.log_dirs.dir(dir).fail(&error.to_string());
        }
    }
}
