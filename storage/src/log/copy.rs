//! A log is copied into another directory while it is appended to, so that it can go on from there.
//!
//! The copy has the same segments, batch for batch and byte for byte; each batch is checked on its way. What is under its own
//! name in the copy is whole and flushed, so that a copy that was interrupted goes on behind it:
//! ```text
//! <base>.log.copying   grows; flushed, with its indexes beside it, it becomes <base>.log
//! ```
//! While the log is being copied nobody removes or replaces its segments ([`CopySource`]). Pass after pass takes what was
//! appended during the one before; when little is left, whoever wants the copy lets nothing more be appended and has
//! [`CopySource::finish`] take the rest and everything else that belongs to a log. Then the copy is what a clean stop would have left
//! in the old directory.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;

use crate::check::DAMAGED_SUFFIX;
use crate::checkpoint::{self, TEMPORARY_SUFFIX, sync_dir};
use crate::compaction::throttle::Throttle;
use crate::data_dir::partition::PARTITION_METADATA_FILE;
use crate::disk::{Disk, File, OpenMode};
use crate::error::{CommitError, DiskError, LogOffline, ReadError};
use crate::leader_epoch::LEADER_EPOCH_FILE;
use crate::runtime::channel::Permit;
use crate::runtime::{Instant, Runtime};
use crate::segment::reader::Scanner;
use crate::segment::writer::{BlockWriter, LastBlock};
use crate::segment::{
    INDEX_SUFFIX, LOG_SUFFIX, SNAPSHOT_SUFFIX, Segment, TIME_INDEX_SUFFIX, file_path, parse_file_name,
};

use super::Log;
use super::read::SLICE;
use super::recovery::{next_checked, remove_if_there};

/// A segment on its way.
const COPYING_SUFFIX: &str = "log.copying";
/// Read at once, and written at once but for one batch more.
const COPY_BYTES: usize = 512 << 10;
/// A wait for the throttle is taken in parts of this, so that a copy can be given up meanwhile.
const THROTTLE_STEP: Duration = Duration::from_millis(50);

/// Why a copy does not go on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CopyError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// Whoever wanted it does not want it any more.
    #[error("the copy was given up")]
    GivenUp,
}

impl CopyError {
    /// Whether another attempt may do better without anybody mending something.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Disk(error) | Self::Read(ReadError::Disk(error)) => error.is_refusal(),
            Self::Commit(CommitError::Unavailable(_)) => true,
            Self::Commit(CommitError::Offline(_))
            | Self::Read(ReadError::Corrupt(_) | ReadError::OffsetOutOfRange { .. })
            | Self::GivenUp => false,
        }
    }
}

/// How the work is shared with others.
pub struct CopyPace<'a, G> {
    pub throttle: &'a Throttle,
    /// Awaited after every slice of work; returns when the next one may begin.
    pub give_way: &'a G,
    /// The copy is not wanted any more.
    pub is_over: &'a dyn Fn() -> bool,
}

/// The right to copy a log: its segments stay what they are.
pub struct CopySource<D: Disk, R: Runtime> {
    log: Log<D, R>,
    _permit: Permit,
}

/// A copy as far as it has come.
pub struct LogCopy<D: Disk> {
    disk: D,
    dir: PathBuf,
    /// Base offset of the segment that is copied next, or is being copied.
    next: i64,
    current: Option<Copying<D::File>>,
    finished_bytes: u64,
    progress: Rc<CopyProgress>,
}

/// How far a copy has come, for who looks on.
#[derive(Debug, Default)]
pub struct CopyProgress {
    /// Of batches.
    pub bytes: Cell<u64>,
    /// Exclusive: what is copied, flushed or not.
    pub end_offset: Cell<i64>,
}

/// The segment that is being copied.
struct Copying<F: File> {
    segment: Segment<F>,
    file: F,
    writer: BlockWriter,
    pending: Vec<Bytes>,
    pending_bytes: usize,
}

/// A copy that has everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopiedLog {
    pub log_start_offset: i64,
    /// Also the recovery point.
    pub log_end_offset: i64,
    pub first_dirty_offset: i64,
}

impl<D: Disk, R: Runtime> Log<D, R> {
    /// Begins to copy the log, once whoever removes or replaces segments is done.
    ///
    /// # Errors
    /// When the log has failed, or a replacement cannot be ended.
    pub async fn begin_copy(&self) -> Result<CopySource<D, R>, CopyError> {
        if let Some(reason) = self.offline() {
            return Err(CommitError::Offline(reason).into());
        }
        let permit = self.inner.arranging().acquire(1).await;
        self.finish_swap().await?;
        Ok(CopySource { log: self.clone(), _permit: permit })
    }

    /// Of a log that was opened on a copy of `original`: what only memory had of that.
    pub fn take_over(&self, original: &Self) {
        let (producers, epochs, has_new_epoch) = {
            let state = original.inner.state.borrow();
            (state.producers.clone(), state.epochs.clone(), state.has_new_epoch)
        };
        let mut state = self.inner.state.borrow_mut();
        (state.producers, state.epochs, state.has_new_epoch) = (producers, epochs, has_new_epoch);
    }

    /// Whether appends wait for room.
    pub fn has_line(&self) -> bool {
        !self.inner.line.borrow().is_empty()
    }

    /// Ready when no append waits for room, or the log takes none any more.
    pub async fn line_is_over(&self) {
        loop {
            let changed = self.inner.progress.notified();
            if !self.has_line() || self.offline().is_some() {
                return;
            }
            changed.await;
        }
    }
}

impl<D: Disk, R: Runtime> CopySource<D, R> {
    /// Goes on with what an earlier attempt has left in `dir`, a partition's directory on `disk`.
    pub async fn resume(&self, disk: D, dir: PathBuf, progress: Rc<CopyProgress>) -> Result<LogCopy<D>, CopyError> {
        let entries = disk.list_dir(&dir).await.map_err(|e| DiskError::new("list", &dir, e))?;
        let len_of = |base_offset| {
            let entry = entries.iter().find(|entry| parse_file_name(&entry.name) == Some((base_offset, LOG_SUFFIX)));
            entry.map(|entry| entry.len_bytes)
        };
        let mut copy = LogCopy { disk, dir, next: i64::MIN, current: None, finished_bytes: 0, progress };
        let mut kept = BTreeSet::new();
        {
            let state = self.log.inner.state.borrow();
            let active = state.active().base_offset();
            copy.progress.end_offset.set(state.first_base_offset());
            for (base_offset, segment) in &state.segments {
                copy.next = *base_offset;
                let is_whole = segment.is_fully_written() && len_of(*base_offset) == Some(segment.written_bytes());
                if *base_offset == active || !is_whole {
                    break;
                }
                kept.insert(*base_offset);
                copy.finished_bytes += segment.written_bytes();
                copy.progress.end_offset.set(segment.end_offset());
            }
        }
        copy.progress.bytes.set(copy.finished_bytes);
        for entry in entries.iter().filter(|entry| !entry.is_dir) {
            let is_kept = match parse_file_name(&entry.name) {
                Some((base_offset, LOG_SUFFIX | INDEX_SUFFIX | TIME_INDEX_SUFFIX)) => kept.contains(&base_offset),
                Some(_) => false,
                None => entry.name == PARTITION_METADATA_FILE,
            };
            if !is_kept {
                remove_if_there(&copy.disk, &copy.dir.join(&entry.name)).await?;
            }
        }
        Ok(copy)
    }

    /// Has the copy take everything that was appended before the call.
    ///
    /// # Errors
    /// What was copied before stays.
    pub async fn copy<G: AsyncFn()>(&self, copy: &mut LogCopy<D>, pace: &CopyPace<'_, G>) -> Result<(), CopyError> {
        self.log.flush().await?;
        let segments: Vec<Rc<Segment<D::File>>> = {
            let state = self.log.inner.state.borrow();
            state.segments.range(copy.next..).map(|(_, segment)| Rc::clone(segment)).collect()
        };
        let mut work = Work { runtime: &self.log.inner.runtime, pace, slice_began: self.log.inner.runtime.now() };
        for (at, source) in segments.iter().enumerate() {
            copy.next = source.base_offset();
            self.copy_segment(source, copy, &mut work).await?;
            let Some(behind) = segments.get(at + 1).filter(|_| source.is_fully_written()) else { break };
            if copy.copied_of(source) < source.written_bytes() {
                break;
            }
            copy.finish_segment().await?;
            copy.next = behind.base_offset();
        }
        Ok(())
    }

    async fn copy_segment<G: AsyncFn()>(
        &self,
        source: &Segment<D::File>,
        copy: &mut LogCopy<D>,
        work: &mut Work<'_, R, G>,
    ) -> Result<(), CopyError> {
        let index_interval_bytes = self.log.inner.state.borrow().config.index_interval_bytes;
        let (progress, finished_bytes) = (Rc::clone(&copy.progress), copy.finished_bytes);
        let begun = copy.begin(source).await?;
        if begun.segment.appended_bytes() == source.written_bytes() {
            return Ok(());
        }
        let file = source.file(&self.log.inner.files, OpenMode::ReadWrite).await?;
        let mut scanner = Scanner::new(source, &file, begun.segment.appended_bytes(), COPY_BYTES)
            .with_expected_offset(begun.segment.end_offset());
        while let Some((header, bytes)) = next_checked(&mut scanner).await? {
            scanner.advance(&header, bytes.len());
            begun.segment.note_batch(&header, bytes.len() as u64, index_interval_bytes);
            begun.pending_bytes += bytes.len();
            // A batch is a view of what was read at once.
            begun.pending.push(bytes);
            if begun.pending_bytes >= COPY_BYTES {
                let written = begun.write().await?;
                progress.note(finished_bytes, &begun.segment);
                work.note(written).await?;
            }
        }
        let written = begun.write().await?;
        progress.note(finished_bytes, &begun.segment);
        work.note(written).await
    }

    /// Has the copy take what is left, durably, and everything else that belongs to the log. Nothing is appended meanwhile.
    ///
    /// # Errors
    /// The log is what it was.
    pub async fn finish<G: AsyncFn()>(
        &self,
        copy: &mut LogCopy<D>,
        pace: &CopyPace<'_, G>,
    ) -> Result<CopiedLog, CopyError> {
        self.copy(copy, pace).await?;
        let (log, epochs, snapshot, has_active_file) = {
            let state = self.log.inner.state.borrow();
            let log = CopiedLog {
                log_start_offset: state.log_start_offset,
                log_end_offset: state.log_end_offset,
                first_dirty_offset: state.first_dirty_offset,
            };
            let has_active_file = state.active().appended_bytes() > 0 || state.log_end_offset > 0;
            (log, state.epochs.encode(), state.producers.encode_snapshot(), has_active_file)
        };
        if has_active_file {
            copy.finish_segment().await?;
        } else {
            copy.give_up_segment().await?;
        }
        if copy.next != self.log.inner.state.borrow().active().base_offset() {
            // Something was appended after all.
            return Err(CommitError::Offline(LogOffline::Closed).into());
        }
        self.copy_others(copy, pace).await?;
        let write = async |name: &Path, content: &[u8]| checkpoint::write_file(&copy.disk, name, content).await;
        if log.log_end_offset > 0 {
            write(&file_path(&copy.dir, log.log_end_offset, SNAPSHOT_SUFFIX), &snapshot).await?;
            write(&copy.dir.join(LEADER_EPOCH_FILE), epochs.as_bytes()).await?;
        }
        sync_dir(&copy.disk, &copy.dir).await?;
        Ok(log)
    }

    /// Snapshots, and what somebody else has put into the directory.
    async fn copy_others<G: AsyncFn()>(&self, copy: &LogCopy<D>, pace: &CopyPace<'_, G>) -> Result<(), CopyError> {
        let (disk, dir) = (&self.log.inner.disk, &self.log.inner.dir);
        let entries = disk.list_dir(dir).await.map_err(|e| DiskError::new("list", dir, e))?;
        let mut work = Work { runtime: &self.log.inner.runtime, pace, slice_began: self.log.inner.runtime.now() };
        for entry in entries.iter().filter(|entry| !entry.is_dir && is_other(&entry.name)) {
            let (from, to) = (dir.join(&entry.name), copy.dir.join(&entry.name));
            let failed = |operation| move |e| DiskError::new(operation, dir.join(&entry.name), e);
            let source = disk.open(&from, OpenMode::Read).await.map_err(failed("open"))?;
            let target = copy.disk.open(&to, OpenMode::CreateOrOpen).await;
            let target = target.map_err(|e| DiskError::new("create", &to, e))?;
            let len_bytes = source.len_bytes().await.map_err(failed("read the length of"))?;
            let mut position = 0;
            while position < len_bytes {
                let bytes = source.read_at(position, COPY_BYTES).await.map_err(failed("read"))?;
                if bytes.is_empty() {
                    break;
                }
                let mut buffer = target.allocate(bytes.len());
                buffer[..bytes.len()].copy_from_slice(&bytes);
                buffer[bytes.len()..].fill(0);
                target.write_at(buffer, position).await.map_err(|e| DiskError::new("write", &to, e))?;
                position += bytes.len() as u64;
                work.note(bytes.len()).await?;
            }
            target.truncate(len_bytes).await.map_err(|e| DiskError::new("truncate", &to, e))?;
            target.sync_data().await.map_err(|e| DiskError::new("sync", &to, e))?;
        }
        Ok(())
    }
}

/// What is copied as it is.
fn is_other(name: &str) -> bool {
    let is_made = [PARTITION_METADATA_FILE, LEADER_EPOCH_FILE].contains(&name);
    let is_left_over = name.ends_with(TEMPORARY_SUFFIX) || name.ends_with(super::DELETED_SUFFIX);
    match parse_file_name(name) {
        Some((_, SNAPSHOT_SUFFIX)) => true,
        Some((_, suffix)) => suffix.ends_with(DAMAGED_SUFFIX),
        None => !is_made && !is_left_over,
    }
}

impl<D: Disk> LogCopy<D> {
    /// Of batches, copied so far.
    pub fn bytes(&self) -> u64 {
        self.progress.bytes.get()
    }

    /// Bytes of a segment that are copied.
    fn copied_of(&self, source: &Segment<D::File>) -> u64 {
        let current = self.current.as_ref().filter(|current| current.segment.base_offset() == source.base_offset());
        current.map_or(0, |current| current.segment.written_bytes())
    }

    /// The copy of `source`, which is the current one or the next.
    async fn begin(&mut self, source: &Segment<D::File>) -> Result<&mut Copying<D::File>, DiskError> {
        if self.current.as_ref().is_none_or(|current| current.segment.base_offset() != source.base_offset()) {
            assert!(self.current.is_none(), "one segment after the other");
            let path = file_path(&self.dir, source.base_offset(), COPYING_SUFFIX);
            let file = self.disk.open(&path, OpenMode::CreateOrOpen).await;
            let file = file.map_err(|e| DiskError::new("create", &path, e))?;
            self.current = Some(Copying {
                segment: Segment::new(&self.dir, source.base_offset(), source.created_ms()),
                file,
                writer: BlockWriter::default(),
                pending: Vec::new(),
                pending_bytes: 0,
            });
        }
        Ok(self.current.as_mut().expect("just made sure of"))
    }

    /// Flushes the current segment and gives it and its indexes their names.
    async fn finish_segment(&mut self) -> Result<(), DiskError> {
        let Some(Copying { segment, file, .. }) = self.current.take() else { return Ok(()) };
        let base_offset = segment.base_offset();
        let path = |suffix| file_path(&self.dir, base_offset, suffix);
        let copying = path(COPYING_SUFFIX);
        let failed = |operation| {
            let copying = copying.clone();
            move |e| DiskError::new(operation, copying, e)
        };
        file.truncate(segment.written_bytes()).await.map_err(failed("truncate"))?;
        file.sync_data().await.map_err(failed("sync"))?;
        segment.complete_time_index();
        let (offset, time) = {
            let indexes = segment.indexes.borrow();
            (indexes.offset.encode(), indexes.time.encode())
        };
        checkpoint::write_file(&self.disk, &path(INDEX_SUFFIX), &offset).await?;
        checkpoint::write_file(&self.disk, &path(TIME_INDEX_SUFFIX), &time).await?;
        self.disk.rename(&copying, &path(LOG_SUFFIX)).await.map_err(failed("rename"))?;
        self.finished_bytes += segment.written_bytes();
        Ok(())
    }

    /// Of a log that never had anything.
    async fn give_up_segment(&mut self) -> Result<(), DiskError> {
        let Some(Copying { segment, .. }) = self.current.take() else { return Ok(()) };
        remove_if_there(&self.disk, &file_path(&self.dir, segment.base_offset(), COPYING_SUFFIX)).await
    }
}

impl CopyProgress {
    fn note<F: File>(&self, finished_bytes: u64, current: &Segment<F>) {
        self.bytes.set(finished_bytes + current.written_bytes());
        self.end_offset.set(current.end_offset().max(self.end_offset.get()));
    }
}

impl<F: File> Copying<F> {
    /// Bytes written.
    async fn write(&mut self) -> Result<usize, DiskError> {
        let (pending, bytes) = (std::mem::take(&mut self.pending), std::mem::take(&mut self.pending_bytes));
        if !pending.is_empty() {
            self.writer.write(&self.segment, &self.file, &pending, LastBlock::Padded).await?;
        }
        Ok(bytes)
    }
}

/// What is done in slices.
struct Work<'a, R, G> {
    runtime: &'a R,
    pace: &'a CopyPace<'a, G>,
    slice_began: Instant,
}

impl<R: Runtime, G: AsyncFn()> Work<'_, R, G> {
    /// After bytes were copied: waits where the rate asks for it, and gives way when the slice is over.
    async fn note(&mut self, bytes: usize) -> Result<(), CopyError> {
        let mut wait = self.pace.throttle.note(bytes, self.runtime.now());
        while !wait.is_zero() && !(self.pace.is_over)() {
            let step = wait.min(THROTTLE_STEP);
            self.runtime.sleep(step).await;
            wait -= step;
        }
        if (self.pace.is_over)() {
            return Err(CopyError::GivenUp);
        }
        if self.runtime.now().saturating_since(self.slice_began) >= SLICE {
            (self.pace.give_way)().await;
            self.slice_began = self.runtime.now();
        }
        Ok(())
    }
}
