//! Finishing files: of a segment that is full, and of everything when the log is closed. All of it off the ack path.
//!
//! A finished segment is cut to its data and has its index files and the producer state at its end beside it; only then
//! does the recovery point pass it.

use std::rc::Rc;

use crate::checkpoint;
use crate::disk::{Disk, File, OpenMode};
use crate::error::{CommitError, DiskError, LogOffline, ReadError};
use crate::leader_epoch::LEADER_EPOCH_FILE;
use crate::runtime::Runtime;
use crate::segment::{INDEX_SUFFIX, SNAPSHOT_SUFFIX, Segment, TIME_INDEX_SUFFIX, file_path};

use super::commit::RETRY_WAIT;
use super::{Health, Log, State};

/// Sealed segments of a log whose indexes stay in memory: a segment of 1 GiB has 5 MiB of them.
const LOADED_INDEXES_MAX: usize = 4;

/// A segment that takes no more batches.
pub(super) struct ToSeal<F> {
    pub segment: Rc<Segment<F>>,
    /// Where the next segment begins.
    pub end_offset: i64,
    /// Producer state at `end_offset`.
    pub snapshot: Vec<u8>,
}

/// What a clean stop leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    pub log_start_offset: i64,
    /// Also the recovery point now.
    pub log_end_offset: i64,
}

/// Why a log's files are not as a clean stop leaves them.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CloseError {
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("a full segment could not be finished")]
    NotSealed,
}

impl<D: Disk, R: Runtime> Log<D, R> {
    /// Starts the task that finishes full segments, unless it runs or there is nothing to finish yet.
    pub(super) fn start_seal(&self) {
        let mut state = self.inner.state.borrow_mut();
        let is_ready = state.to_seal.front().is_some_and(|next| next.end_offset <= self.inner.synced_end_offset.get());
        if state.is_sealing || !is_ready {
            return;
        }
        let Some(guard) = self.inner.tasks.enter() else { return };
        state.is_sealing = true;
        drop(state);
        let log = self.clone();
        self.inner.runtime.spawn(async move {
            let _guard = guard;
            log.seal_all().await;
            log.inner.state.borrow_mut().is_sealing = false;
            log.inner.ring();
        });
    }

    async fn seal_all(&self) {
        while let Some(next) = self.next_to_seal() {
            match self.seal(&next).await {
                Ok(()) => self.finish_sealed(&next),
                Err(_) if !self.is_there(&next.segment) => self.finish_removed(&next),
                Err(error) => {
                    // The data is durable: what is missing is rebuilt by a recovery if it comes to that.
                    tracing::warn!(%error, "a full segment is not finished");
                    if self.inner.state.borrow().is_closing {
                        // Nobody should wait for another attempt.
                        return;
                    }
                    self.inner.runtime.sleep(RETRY_WAIT).await;
                }
            }
        }
    }

    fn is_there(&self, segment: &Rc<Segment<D::File>>) -> bool {
        let state = self.inner.state.borrow();
        state.segments.get(&segment.base_offset()).is_some_and(|there| Rc::ptr_eq(there, segment))
    }

    fn finish_sealed(&self, next: &Rc<ToSeal<D::File>>) {
        self.inner.state.borrow_mut().snapshots.insert(next.end_offset);
        self.finish_removed(next);
        self.forget_old_indexes();
    }

    /// The segment has gone meanwhile: nothing of it is wanted any more.
    fn finish_removed(&self, next: &Rc<ToSeal<D::File>>) {
        let mut state = self.inner.state.borrow_mut();
        state.to_seal.retain(|waiting| !Rc::ptr_eq(waiting, next));
        state.recovery_point = state.recovery_point.max(next.end_offset);
    }

    /// It stays the first in line until it is finished, so that nobody else works on it.
    fn next_to_seal(&self) -> Option<Rc<ToSeal<D::File>>> {
        let state = self.inner.state.borrow();
        let synced_end_offset = self.inner.synced_end_offset.get();
        state.to_seal.front().filter(|next| next.end_offset <= synced_end_offset).cloned()
    }

    async fn seal(&self, next: &ToSeal<D::File>) -> Result<(), CloseError> {
        self.finish_segment(&next.segment).await?;
        // Below the recovery point nobody looks into batches for their epochs.
        self.replace_epochs().await?;
        self.write_snapshot(next.end_offset, &next.snapshot).await
    }

    /// Cuts the file to its data and writes its indexes.
    async fn finish_segment(&self, segment: &Segment<D::File>) -> Result<(), CloseError> {
        while segment.preallocation().is_running() {
            self.inner.runtime.turn().await;
        }
        self.load_indexes(segment).await?;
        segment.complete_time_index();
        let failed = |operation| move |e| DiskError::new(operation, segment.path(), e);
        let file = segment.file(&self.inner.files, OpenMode::ReadWrite).await?;
        file.truncate(segment.written_bytes()).await.map_err(failed("truncate"))?;
        file.sync_data().await.map_err(failed("sync"))?;
        let (offset, time) = {
            let indexes = segment.indexes.borrow();
            (indexes.offset.encode(), indexes.time.encode())
        };
        let path = |suffix| file_path(&self.inner.dir, segment.base_offset(), suffix);
        checkpoint::write_file(&self.inner.disk, &path(INDEX_SUFFIX), &offset).await?;
        checkpoint::write_file(&self.inner.disk, &path(TIME_INDEX_SUFFIX), &time).await?;
        Ok(())
    }

    async fn write_snapshot(&self, end_offset: i64, content: &[u8]) -> Result<(), CloseError> {
        let path = file_path(&self.inner.dir, end_offset, SNAPSHOT_SUFFIX);
        // Replacing syncs the directory, and with it the names of the index files.
        Ok(checkpoint::replace_file(&self.inner.disk, &path, content).await?)
    }

    /// Keeps the indexes of the most recently used sealed segments only.
    pub(super) fn forget_old_indexes(&self) {
        let state = self.inner.state.borrow();
        let active = state.active().base_offset();
        // What takes another one's place is not to be found under its name yet.
        let arriving = state.swap.as_ref().map(|swap| swap.base_offset());
        let waiting = |base_offset| state.to_seal.iter().any(|next| next.segment.base_offset() == base_offset);
        let mut loaded: Vec<&Rc<Segment<D::File>>> = state
            .segments
            .values()
            .filter(|segment| segment.base_offset() != active && Some(segment.base_offset()) != arriving)
            .filter(|segment| segment.indexes.borrow().is_complete())
            .filter(|segment| segment.base_offset() < state.recovery_point && !waiting(segment.base_offset()))
            .collect();
        loaded.sort_by_key(|segment| std::cmp::Reverse(segment.last_used.get()));
        for segment in loaded.into_iter().skip(LOADED_INDEXES_MAX) {
            segment.forget_indexes();
            segment.close_file();
        }
    }

    /// Ends the log: nothing is appended any more, everything appended becomes durable, and all files are as Kafka's tools
    /// expect them. After an error the next start recovers. Reads go on until the last handle is dropped.
    pub async fn close(&self) -> Result<Closed, CloseError> {
        self.inner.state.borrow_mut().is_closing = true;
        let outcome = self.finish_all().await;
        self.inner.tasks.close_and_wait().await;
        let mut state = self.inner.state.borrow_mut();
        if !matches!(state.health, Health::Offline(_)) {
            state.health = Health::Offline(LogOffline::Closed);
        }
        drop(state);
        self.inner.ring();
        outcome
    }

    async fn finish_all(&self) -> Result<Closed, CloseError> {
        self.flush().await?;
        if let Some(reason) = self.offline() {
            return Err(CommitError::Offline(reason).into());
        }
        self.wait_sealed().await?;
        let (log_start_offset, log_end_offset, is_clean) = {
            let state = self.inner.state.borrow();
            (state.log_start_offset, state.log_end_offset, state.clean_at == Some(state.log_end_offset))
        };
        if !is_clean && self.inner.state.borrow().is_untouched() {
            self.finish_clean(log_end_offset);
        } else if !is_clean {
            let (active, snapshot) = {
                let state = self.inner.state.borrow();
                (Rc::clone(state.active()), state.producers.encode_snapshot())
            };
            if active.written_bytes() > 0 || active.has_file() {
                self.finish_segment(&active).await?;
            }
            self.replace_epochs().await?;
            self.write_snapshot(log_end_offset, &snapshot).await?;
            self.inner.state.borrow_mut().snapshots.insert(log_end_offset);
            self.finish_clean(log_end_offset);
        }
        self.remove_old_snapshots().await?;
        Ok(Closed { log_start_offset, log_end_offset })
    }

    fn finish_clean(&self, log_end_offset: i64) {
        let mut state = self.inner.state.borrow_mut();
        state.recovery_point = log_end_offset;
        state.clean_at = Some(log_end_offset);
    }

    /// Writes the leader epochs unless their file has them. Its name is durable once the directory is synced next.
    async fn replace_epochs(&self) -> Result<(), DiskError> {
        let _permit = self.inner.saving_epochs().acquire(1).await;
        let epochs = {
            let state = self.inner.state.borrow();
            if state.epochs == state.saved_epochs {
                return Ok(());
            }
            state.epochs.clone()
        };
        let path = self.inner.dir.join(LEADER_EPOCH_FILE);
        checkpoint::replace_unnamed(&self.inner.disk, &path, epochs.encode().as_bytes()).await?;
        self.inner.state.borrow_mut().saved_epochs = epochs;
        Ok(())
    }

    /// Waits for what can be finished by now: there may be later segments that are full and not flushed yet.
    pub(super) async fn wait_sealed(&self) -> Result<(), CloseError> {
        let end_offset = self.inner.synced_end_offset.get();
        self.start_seal();
        loop {
            let changed = self.inner.progress.notified();
            {
                let state = self.inner.state.borrow();
                let is_left = state.to_seal.front().is_some_and(|next| next.end_offset <= end_offset);
                match (is_left, state.is_sealing) {
                    (false, false) => return Ok(()),
                    (true, false) => return Err(CloseError::NotSealed),
                    (_, true) => {}
                }
            }
            changed.await;
        }
    }

    /// Snapshots are kept at the starts of segments, and the latest one.
    async fn remove_old_snapshots(&self) -> Result<(), CloseError> {
        let old: Vec<i64> = {
            let state = self.inner.state.borrow();
            let latest = state.snapshots.last().copied();
            let is_old = |offset: &&i64| !state.segments.contains_key(offset) && Some(**offset) != latest;
            state.snapshots.iter().filter(is_old).copied().collect()
        };
        for offset in old {
            let path = file_path(&self.inner.dir, offset, SNAPSHOT_SUFFIX);
            self.inner.disk.remove_file(&path).await.map_err(|e| DiskError::new("remove", &path, e))?;
            self.inner.state.borrow_mut().snapshots.remove(&offset);
        }
        Ok(())
    }
}

impl<F: File> State<F> {
    /// Nothing was ever written to the log: a directory without a file of its own says the same of it as one with an empty
    /// snapshot would.
    fn is_untouched(&self) -> bool {
        !self.is_dir_durable && self.log_end_offset == 0
    }
}
