//! Removing what is too old, too much, or below the log start: `cleanup.policy=delete` and DeleteRecords.
//!
//! Whole segments, the oldest first, and each one's names durable before the next: after a crash at any point what is left
//! is the end of the log without a gap. Files are renamed at once and removed after `file.delete.delay.ms`; what a crash
//! leaves of them is removed when the log is opened.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use crate::checkpoint::sync_dir;
use crate::disk::{Disk, File};
use crate::error::{DiskError, ReadError};
use crate::runtime::Runtime;
use crate::segment::{INDEX_SUFFIX, LOG_SUFFIX, SNAPSHOT_SUFFIX, Segment, TIME_INDEX_SUFFIX, file_path};

use super::recovery::unless_gone;
use super::seal::CloseError;
use super::swap::with_suffix;
use super::{Health, Log, State};

/// What the files of a removed segment end in until they are gone.
pub(crate) const DELETED_SUFFIX: &str = ".deleted";

/// When segments are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// False for logs that are compacted only: age and size do not count, the log start does.
    pub by_policy: bool,
    /// Milliseconds from a segment's youngest record; -1 keeps segments whatever their age.
    pub ms: i64,
    /// Of all segments; -1 keeps them whatever their size. What is kept is at least this much.
    pub bytes: i64,
    pub file_delete_delay: Duration,
}

impl Default for Retention {
    /// Kafka's topic defaults.
    fn default() -> Self {
        let file_delete_delay = Duration::from_secs(60);
        Self { by_policy: true, ms: 7 * 24 * 3600 * 1000, bytes: -1, file_delete_delay }
    }
}

/// A segment that is no part of the log any more, and whose files have their names still.
#[derive(Clone, Copy)]
pub(super) struct Removing {
    base_offset: i64,
    has_snapshot: bool,
}

/// What to do next.
enum Step<F> {
    Remove(Rc<Segment<F>>),
    /// The oldest segment is to go, and its files are not finished.
    Finish,
    /// Everything is to go, and the active segment must be another one first.
    Roll,
}

impl<D: Disk, R: Runtime> Log<D, R> {
    /// Raises the log start offset to `offset`, unless it is there already; the log start offset there is now. What lies
    /// below is not read any more, and its segments go with the next [`Self::remove_old_segments`].
    ///
    /// # Errors
    /// [`ReadError::OffsetOutOfRange`] above `high_watermark`.
    pub fn raise_log_start(&self, offset: i64, high_watermark: i64) -> Result<i64, ReadError> {
        let log_start_offset = {
            let mut state = self.inner.state.borrow_mut();
            if offset > high_watermark || offset < 0 {
                let (log_start_offset, log_end_offset) = (state.log_start_offset, high_watermark);
                return Err(ReadError::OffsetOutOfRange { offset, log_start_offset, log_end_offset });
            }
            if offset <= state.log_start_offset {
                return Ok(state.log_start_offset);
            }
            state.set_log_start(offset);
            state.log_start_offset
        };
        self.save_epochs();
        self.inner.ring();
        Ok(log_start_offset)
    }

    /// Removes every segment that retention does not keep, below `high_watermark`; their count.
    ///
    /// # Errors
    /// When a file could not be renamed: the next call goes on from there.
    pub async fn remove_old_segments(&self, now_ms: i64, high_watermark: i64) -> Result<usize, CloseError> {
        let Some(_guard) = self.inner.tasks.enter() else { return Ok(0) };
        // While the log is compacted its old segments wait.
        let Some(_permit) = self.arrange() else { return Ok(0) };
        self.finish_swap().await?;
        self.finish_removing().await?;
        let mut removed = 0;
        while let Some(step) = self.next_step(now_ms, high_watermark).await? {
            match step {
                Step::Remove(segment) => {
                    self.remove_segment(&segment).await?;
                    removed += 1;
                }
                Step::Finish => {
                    let recovery_point = self.recovery_point();
                    self.flush().await?;
                    self.wait_sealed().await?;
                    if self.recovery_point() == recovery_point {
                        break;
                    }
                }
                Step::Roll => {
                    let begun = self.roll(now_ms);
                    self.flush().await?;
                    self.wait_sealed().await?;
                    // Its name says where the log ends when every other segment is gone. Appends may have begun others by
                    // now: those have their files once this one is flushed, as the journal counts on.
                    self.make_file(&begun).await?;
                }
            }
        }
        Ok(removed)
    }

    async fn next_step(&self, now_ms: i64, high_watermark: i64) -> Result<Option<Step<D::File>>, CloseError> {
        let (oldest, retention) = {
            let state = self.inner.state.borrow();
            // A log for which the disk has no room is one to remove something of.
            if state.is_closing || matches!(state.health, Health::Offline(_)) {
                return Ok(None);
            }
            let Some((_, oldest)) = state.segments.first_key_value() else { return Ok(None) };
            (Rc::clone(oldest), state.config.retention)
        };
        let is_old = retention.by_policy && retention.ms >= 0 && {
            let youngest = self.largest_timestamp(&oldest).await?.map_or(-1, |largest| largest.timestamp);
            // Records without a time are as old as their segment.
            let written_ms = if youngest >= 0 { youngest } else { oldest.created_ms() };
            now_ms.saturating_sub(written_ms) > retention.ms
        };
        let state = self.inner.state.borrow();
        let next = state.segments.range(oldest.base_offset() + 1..).next().map(|(base_offset, _)| *base_offset);
        let bytes: u64 = state.segments.values().map(|segment| segment.appended_bytes()).sum();
        let kept = bytes.saturating_sub(oldest.appended_bytes());
        let is_much = retention.by_policy && u64::try_from(retention.bytes).is_ok_and(|least| kept >= least);
        let is_below = next.is_some_and(|next| next <= state.log_start_offset);
        let end_offset = next.unwrap_or(state.log_end_offset);
        if !(is_old || is_much || is_below) || end_offset > high_watermark {
            return Ok(None);
        }
        match next {
            Some(next) if next <= state.recovery_point => Ok(Some(Step::Remove(oldest))),
            Some(_) => Ok(Some(Step::Finish)),
            None => Ok((oldest.appended_bytes() > 0).then_some(Step::Roll)),
        }
    }

    /// Before a finished segment goes, or another one takes its place, the one behind it has its file: the journal may still
    /// have what was written to the old one, and where there is a later file it counts for nothing.
    pub(super) async fn make_file_behind(&self, segment: &Segment<D::File>) -> Result<(), DiskError> {
        let behind = {
            let state = self.inner.state.borrow();
            state.segments.range(segment.base_offset() + 1..).next().map(|(_, behind)| Rc::clone(behind))
        };
        match behind.filter(|behind| self.inner.journal.is_some() && !behind.is_name_durable()) {
            Some(behind) => self.make_file(&behind).await.map(drop),
            None => Ok(()),
        }
    }

    async fn remove_segment(&self, segment: &Segment<D::File>) -> Result<(), DiskError> {
        self.make_file_behind(segment).await?;
        let base_offset = segment.base_offset();
        {
            let mut state = self.inner.state.borrow_mut();
            state.segments.remove(&base_offset);
            let first = state.first_base_offset();
            if first > state.log_start_offset {
                state.set_log_start(first);
            }
            let is_latest = state.snapshots.last() == Some(&base_offset);
            let has_snapshot = !is_latest && state.snapshots.remove(&base_offset);
            state.removing = Some(Removing { base_offset, has_snapshot });
        }
        self.save_epochs();
        self.inner.ring();
        segment.close_file();
        self.finish_removing().await
    }

    /// Has the files of a segment that was removed out of the way, durably. If they stayed while later ones go, a start would
    /// find a log with a hole.
    async fn finish_removing(&self) -> Result<(), DiskError> {
        let Some(Removing { base_offset, has_snapshot }) = self.inner.state.borrow().removing else { return Ok(()) };
        let mut suffixes = vec![LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX];
        if has_snapshot {
            suffixes.push(SNAPSHOT_SUFFIX);
        }
        let mut renamed = Vec::with_capacity(suffixes.len());
        for suffix in suffixes {
            let path = file_path(&self.inner.dir, base_offset, suffix);
            let aside = with_suffix(&path, DELETED_SUFFIX);
            match self.inner.disk.rename(&path, &aside).await {
                Ok(()) => renamed.push(aside),
                // Not there, or renamed by an earlier attempt.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => renamed.push(aside),
                Err(error) => return Err(DiskError::new("rename", path, error)),
            }
        }
        sync_dir(&self.inner.disk, &self.inner.dir).await?;
        self.inner.state.borrow_mut().removing = None;
        self.remove_later(renamed);
        Ok(())
    }

    /// Nobody waits for it, a clean stop neither: the next start removes what is left.
    pub(super) fn remove_later(&self, paths: Vec<PathBuf>) {
        let delay = self.inner.state.borrow().config.retention.file_delete_delay;
        let (disk, runtime) = (self.inner.disk.clone(), self.inner.runtime.clone());
        self.inner.runtime.spawn(async move {
            runtime.sleep(delay).await;
            for path in paths {
                // The whole topic may have been deleted meanwhile.
                if let Err(error) = unless_gone(&path, disk.remove_in_steps(&path).await) {
                    tracing::warn!(%error, "a file of a removed segment is still there");
                }
            }
        });
    }
}

impl<F: File> State<F> {
    fn set_log_start(&mut self, offset: i64) {
        assert!(offset > self.log_start_offset && offset <= self.log_end_offset, "the log start rises within the log");
        self.log_start_offset = offset;
        self.epochs.truncate_from_start(offset);
    }

    /// Base offset of the oldest segment.
    pub(super) fn first_base_offset(&self) -> i64 {
        self.segments.first_key_value().map_or(self.log_end_offset, |(base_offset, _)| *base_offset)
    }
}
