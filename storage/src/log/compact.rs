//! One pass of compaction over a log: keys are mapped, segments written anew, and exchanged one group after the other.
//!
//! It reads and writes beside everything else that happens to the log and never touches a segment that is appended to or
//! not finished. Appends, commits and reads wait for none of it: readers keep the segments they have. A pass that ends in
//! the middle, whatever the reason, has changed nothing but whole groups, and the next one begins again.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use walser_protocol::records::batch::{BATCH_HEADER_BYTES, BatchHeader, BatchView};

use crate::checkpoint;
use crate::compaction::HashKey;
use crate::compaction::clean::{
    BatchCleaner, BatchUncleanable, Cleaned, LastBatches, PassSettings, control_record, map_batch,
};
use crate::compaction::offset_map::OffsetMap;
use crate::compaction::plan::{GroupLimits, LogBounds, Plan, SegmentFacts, group_segments, plan_pass};
use crate::compaction::throttle::Throttle;
use crate::compaction::transactions::{AbortedSearch, AbortedTransaction, Transactions};
use crate::disk::{Disk, File, OpenMode};
use crate::error::{CommitError, DiskError, LogOffline, ReadError};
use crate::open_files::OpenFile;
use crate::runtime::channel::Permit;
use crate::runtime::{Instant, Runtime};
use crate::segment::reader::{Scanner, last_offset};
use crate::segment::writer::{BlockWriter, LastBlock};
use crate::segment::{CLEANED_INDEX_SUFFIX, CLEANED_LOG_SUFFIX, CLEANED_TIME_INDEX_SUFFIX, Segment, file_path};

use super::read::SLICE;
use super::recovery::remove_if_there;
use super::swap::Swap;
use super::{Durability, Health, Log};

/// A wait for the throttle is taken in parts of this, so that a log can be closed meanwhile.
const THROTTLE_STEP: Duration = Duration::from_millis(50);
/// Bytes that wait to be written at most, and one batch.
const WRITE_BYTES: usize = 512 << 10;

/// What a pass may use.
pub struct PassLimits<'a> {
    pub hash_key: HashKey,
    /// Of the map of keys.
    pub map_bytes_max: usize,
    /// The part of it that may be filled.
    pub map_load_max: f64,
    /// Read at once.
    pub read_bytes: usize,
    /// No batch is decompressed beyond it.
    pub decompressed_bytes_max: usize,
    pub throttle: &'a Throttle,
}

/// What a pass has done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Compacted {
    /// Everything below is clean now.
    pub end_offset: i64,
    pub bytes_before: u64,
    pub bytes_after: u64,
    pub segments_before: usize,
    pub segments_after: usize,
    pub keys: usize,
    pub map_utilization: f64,
}

/// Why a pass has ended early.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CompactError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("the log is being closed")]
    Closing,
    /// Retention or another pass is at the log's segments.
    #[error("segments of the log are being removed or compacted")]
    Busy,
}

impl From<CommitError> for CompactError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Unavailable(error) | CommitError::Offline(LogOffline::Failed(error)) => Self::Disk(error),
            CommitError::Offline(LogOffline::Corrupt(corruption)) => Self::Read(corruption.into()),
            CommitError::Offline(LogOffline::Closed) => Self::Closing,
        }
    }
}

impl CompactError {
    /// Whether another attempt may do better without anybody mending something.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Closing | Self::Busy => true,
            Self::Disk(error) | Self::Read(ReadError::Disk(error)) => error.is_refusal(),
            Self::Read(ReadError::Corrupt(_) | ReadError::OffsetOutOfRange { .. }) => false,
        }
    }
}

impl<D: Disk, R: Runtime> Log<D, R> {
    /// Everything below was compacted; 0 when nothing ever was. For `cleaner-offset-checkpoint`.
    pub fn first_dirty_offset(&self) -> i64 {
        self.inner.state.borrow().first_dirty_offset
    }

    /// Ends a pass that runs, as soon as what is in flight is done, and lets none begin.
    pub fn stop_compacting(&self) {
        self.inner.state.borrow_mut().is_compacting_over = true;
    }

    /// What a pass would do now; `None` where there is none to be done. `stable_end_offset`: exclusive, where the first
    /// transaction without an outcome begins, at most the high watermark.
    pub async fn plan_compaction(&self, now_ms: i64, stable_end_offset: i64) -> Result<Option<Plan>, ReadError> {
        let (segments, bounds, config) = {
            let state = self.inner.state.borrow();
            if !state.config.compaction.by_policy || state.is_closing || matches!(state.health, Health::Offline(_)) {
                return Ok(None);
            }
            let active_base_offset = state.active().base_offset();
            // What is not finished is being worked on. Behind a clean stop it may lie below the recovery point.
            let unfinished = state.to_seal.front().map_or(i64::MAX, |next| next.segment.base_offset());
            let finished_end_offset = unfinished.min(state.recovery_point);
            let bounds = LogBounds {
                log_start_offset: state.log_start_offset,
                first_dirty_offset: state.first_dirty_offset,
                stable_end_offset: stable_end_offset.min(finished_end_offset).min(state.notes.compactable_to()),
                active_base_offset,
            };
            let segments: Vec<_> = state.segments.range(..active_base_offset).map(|(_, s)| Rc::clone(s)).collect();
            (segments, bounds, state.config.compaction)
        };
        let first_dirty_offset = bounds.first_dirty_offset.max(bounds.log_start_offset);
        let mut facts = Vec::with_capacity(segments.len());
        for segment in &segments {
            let is_dirty = segment.end_offset() > first_dirty_offset;
            let youngest_ms = if is_dirty && config.min_lag_ms > 0 { self.youngest_ms(segment).await? } else { 0 };
            let asks_age = is_dirty && config.max_lag_ms < i64::MAX;
            let first_batch_ms = if asks_age { self.first_batch_ms(segment).await? } else { None };
            facts.push(facts_of(segment, youngest_ms, first_batch_ms));
        }
        Ok(Some(plan_pass(&facts, bounds, &config, now_ms)))
    }

    async fn youngest_ms(&self, segment: &Segment<D::File>) -> Result<i64, ReadError> {
        let largest = self.largest_timestamp(segment).await?.map_or(-1, |largest| largest.timestamp);
        Ok(if largest >= 0 { largest } else { segment.created_ms() })
    }

    async fn first_batch_ms(&self, segment: &Segment<D::File>) -> Result<Option<i64>, ReadError> {
        if segment.first_timestamp().is_none() && segment.written_bytes() > 0 {
            let file = segment.file(&self.inner.files, OpenMode::ReadWrite).await?;
            let failed = |e| DiskError::new("read", segment.path(), e);
            let bytes = file.read_at(0, BATCH_HEADER_BYTES).await.map_err(failed)?;
            if let Some(header) = BatchHeader::read(&bytes) {
                segment.set_first_timestamp(header.max_timestamp);
            }
        }
        Ok(segment.first_timestamp())
    }

    /// Carries out `plan`, which was just made. `give_way` is awaited after every slice of work and returns when the next
    /// one may begin.
    ///
    /// # Errors
    /// What was finished before stays, and the log is what it was in any case.
    pub async fn compact(
        &self,
        plan: &Plan,
        now_ms: i64,
        limits: &PassLimits<'_>,
        give_way: &impl AsyncFn(),
    ) -> Result<Compacted, CompactError> {
        let _guard = self.inner.tasks.enter().ok_or(CompactError::Closing)?;
        let _permit = self.arrange().ok_or(CompactError::Busy)?;
        if self.inner.state.borrow().swap.is_some() {
            // The plan was made for segments that are there no more.
            self.finish_swap().await?;
            return Err(CompactError::Busy);
        }
        let delete_retention_ms = self.inner.state.borrow().config.compaction.delete_retention_ms;
        let settings = PassSettings {
            now_ms,
            delete_retention_ms,
            end_offset: plan.end_offset,
            decompressed_bytes_max: limits.decompressed_bytes_max,
        };
        let keys_wanted = u64::try_from(plan.end_offset - plan.first_dirty_offset).unwrap_or(0);
        let mut map = OffsetMap::new(limits.hash_key, limits.map_bytes_max, limits.map_load_max, keys_wanted);
        let slice_began = Cell::new(self.inner.runtime.now());
        let pass = Pass { log: self, plan, settings, limits, give_way, slice_began };
        let outcome = pass.run(&mut map).await;
        while map.shed() {
            pass.breathe().await?;
        }
        outcome
    }

    /// The right to remove or replace segments; `None` while somebody else has it.
    pub(super) fn arrange(&self) -> Option<Permit> {
        self.inner.arranging().try_acquire(1)
    }
}

fn facts_of<F: File>(segment: &Segment<F>, youngest_ms: i64, first_batch_ms: Option<i64>) -> SegmentFacts {
    let (offset_index_bytes, time_index_bytes) = segment.index_bytes();
    SegmentFacts {
        base_offset: segment.base_offset(),
        bytes: segment.written_bytes(),
        offset_index_bytes,
        time_index_bytes,
        youngest_ms,
        first_batch_ms,
    }
}

/// One pass while it runs.
struct Pass<'a, D: Disk, R: Runtime, G> {
    log: &'a Log<D, R>,
    plan: &'a Plan,
    settings: PassSettings,
    limits: &'a PassLimits<'a>,
    give_way: &'a G,
    slice_began: Cell<Instant>,
}

type Segments<F> = [Rc<Segment<F>>];

impl<D: Disk, R: Runtime, G: AsyncFn()> Pass<'_, D, R, G> {
    async fn run(&self, map: &mut OffsetMap) -> Result<Compacted, CompactError> {
        let segments: Vec<_> = {
            let state = self.log.inner.state.borrow();
            state.segments.range(..self.plan.end_offset).map(|(_, segment)| Rc::clone(segment)).collect()
        };
        let mut aborted = None;
        self.map_keys(&segments, map, &mut aborted).await?;
        let end_offset = map.latest_offset().saturating_add(1).max(self.plan.first_dirty_offset);
        let reached = segments.partition_point(|segment| segment.base_offset() < end_offset);
        let segments = &segments[..reached];
        let limits = {
            let state = self.log.inner.state.borrow();
            GroupLimits {
                segment_bytes: u64::from(state.config.segment_bytes),
                index_bytes: state.config.segment_index_bytes as usize,
                end_offset: self.plan.end_offset,
            }
        };
        let facts: Vec<_> = segments.iter().map(|segment| facts_of(segment, 0, None)).collect();
        let groups = group_segments(&facts, limits);
        let mut compacted = Compacted {
            end_offset,
            bytes_before: facts.iter().map(|segment| segment.bytes).sum(),
            segments_before: segments.len(),
            segments_after: groups.len(),
            keys: map.len(),
            map_utilization: map.utilization(),
            ..Compacted::default()
        };
        let mut cleaner = BatchCleaner::new(map, self.settings);
        if let Some(aborted) = &aborted {
            cleaner.transactions = Transactions::new(aborted, i64::MIN);
        }
        for group in groups {
            compacted.bytes_after += self.clean_group(&segments[group], &mut cleaner, &mut aborted).await?;
        }
        self.log.inner.state.borrow_mut().first_dirty_offset = end_offset;
        Ok(compacted)
    }

    /// Maps the keys of the dirty part, as many as there is room for.
    async fn map_keys(
        &self,
        segments: &Segments<D::File>,
        map: &mut OffsetMap,
        aborted: &mut Option<Vec<AbortedTransaction>>,
    ) -> Result<(), CompactError> {
        let from_offset = self.plan.first_dirty_offset;
        let mut transactions = Transactions::default();
        let mut scratch = Vec::new();
        map.reach(from_offset - 1);
        for segment in segments.iter().filter(|segment| segment.end_offset() > from_offset) {
            let position = self.log.position_before(segment, from_offset).await?;
            let file = segment.file(&self.log.inner.files, OpenMode::ReadWrite).await?;
            let mut scanner = Scanner::new(segment, &file, position, self.limits.read_bytes);
            while let Some((header, total)) = scanner.peek().await? {
                self.note_moved(total).await?;
                if last_offset(&header) >= from_offset {
                    if is_transactional(&header) && aborted.is_none() {
                        let found = self.find_aborted().await?;
                        transactions = Transactions::new(&found, header.base_offset);
                        *aborted = Some(found);
                    }
                    let bytes = scanner.bytes(total).await?;
                    let mapped = self.map_one(&bytes, &mut transactions, map, &mut scratch).await;
                    if !mapped.map_err(|error| ReadError::Corrupt(scanner.corrupt(error.to_string())))? {
                        return Ok(());
                    }
                    map.reach(last_offset(&header));
                }
                scanner.advance(&header, total);
            }
            map.reach(segment.end_offset() - 1);
        }
        Ok(())
    }

    /// False when there is no room for all its keys.
    async fn map_one(
        &self,
        bytes: &[u8],
        transactions: &mut Transactions,
        map: &mut OffsetMap,
        scratch: &mut Vec<u8>,
    ) -> Result<bool, BatchUncleanable> {
        let batch = BatchView::parse_exact(bytes)?;
        batch.verify_crc()?;
        if batch.is_control() {
            let record = control_record(&batch, scratch)?;
            transactions.note_marker(batch.header(), record);
            return Ok(true);
        }
        if transactions.note_batch(batch.header()) {
            return Ok(true);
        }
        let decompressed_bytes_max = self.limits.decompressed_bytes_max;
        let (from_offset, give_way) = (self.plan.first_dirty_offset, async || self.give_way().await);
        let mapped = map_batch(&batch, map, from_offset, decompressed_bytes_max, scratch, &give_way).await?;
        Ok(mapped.is_ok())
    }

    /// Every transaction with an abort marker. Logs without transactions are never asked.
    async fn find_aborted(&self) -> Result<Vec<AbortedTransaction>, CompactError> {
        let segments: Vec<_> = self.log.inner.state.borrow().segments.values().cloned().collect();
        let mut search = AbortedSearch::default();
        let mut scratch = Vec::new();
        for segment in segments.iter().filter(|segment| segment.written_bytes() > 0) {
            let file = segment.file(&self.log.inner.files, OpenMode::ReadWrite).await?;
            let mut scanner = Scanner::new(segment, &file, 0, self.limits.read_bytes);
            while let Some((header, total)) = scanner.peek().await? {
                self.note_moved(total).await?;
                if header.attributes.is_control() {
                    let bytes = scanner.bytes(total).await?;
                    let record = BatchView::parse_exact(&bytes)
                        .map_err(BatchUncleanable::from)
                        .and_then(|batch| control_record(&batch, &mut scratch));
                    let record = record.map_err(|error| ReadError::Corrupt(scanner.corrupt(error.to_string())))?;
                    search.note_marker(&header, record);
                } else {
                    search.note_batch(&header);
                }
                scanner.advance(&header, total);
            }
        }
        Ok(search.finish())
    }

    /// Writes a group of segments into one and exchanges them; the bytes there are now.
    async fn clean_group(
        &self,
        old: &Segments<D::File>,
        cleaner: &mut BatchCleaner<'_>,
        aborted: &mut Option<Vec<AbortedTransaction>>,
    ) -> Result<u64, CompactError> {
        let (Some(first), Some(last)) = (old.first(), old.last()) else { return Ok(0) };
        let Some(last_filled) = old.iter().rfind(|segment| segment.written_bytes() > 0) else { return Ok(0) };
        cleaner.last_batches = self.last_batches(last.end_offset()).await?;
        let dir = &self.log.inner.dir;
        let segment = Rc::new(Segment::new(dir, first.base_offset(), last.created_ms()));
        let mut writing = Writing::new(self.log, Rc::clone(&segment), (old.len() == 1).then(|| Rc::clone(first)));
        let written: Result<bool, CompactError> = async {
            writing.remove_left_over().await?;
            for source in old {
                let ends_at = if Rc::ptr_eq(source, last_filled) { source.written_bytes() } else { u64::MAX };
                self.clean_into(source, ends_at, cleaner, &mut writing, aborted).await?;
            }
            writing.finish().await
        }
        .await;
        match written {
            Ok(true) => {
                let swap = Rc::new(Swap::new(Rc::clone(&segment), old.to_vec()));
                self.log.inner.state.borrow_mut().swap = Some(swap);
                self.log.finish_swap().await?;
                Ok(segment.written_bytes())
            }
            Ok(false) => Ok(first.written_bytes()),
            Err(error) => {
                // A start would remove them, too.
                if let Err(error) = writing.remove_left_over().await {
                    tracing::debug!(%error, "an unfinished segment is still there");
                }
                Err(error)
            }
        }
    }

    /// Below `end_offset`. Where all that is remembered of a producer is in flight, it is waited for.
    async fn last_batches(&self, end_offset: i64) -> Result<LastBatches, CompactError> {
        let log = self.log;
        loop {
            let (log_end_offset, durability) = {
                let state = log.inner.state.borrow();
                let found = LastBatches::of(&state.producers, end_offset, log.durable_end_offset());
                if let Some(last_batches) = found {
                    return Ok(last_batches);
                }
                (state.log_end_offset, state.config.durability)
            };
            if durability != Durability::Flushed {
                log.flush().await?;
            }
            log.wait(|log| log.durable_end_offset() >= log_end_offset).await?;
        }
    }

    /// `ends_at`: where the last batch of the group ends.
    async fn clean_into(
        &self,
        source: &Rc<Segment<D::File>>,
        ends_at: u64,
        cleaner: &mut BatchCleaner<'_>,
        writing: &mut Writing<'_, D, R>,
        aborted: &mut Option<Vec<AbortedTransaction>>,
    ) -> Result<(), CompactError> {
        let file = source.file(&self.log.inner.files, OpenMode::ReadWrite).await?;
        let mut scanner = Scanner::new(source, &file, 0, self.limits.read_bytes);
        while let Some((header, total)) = scanner.peek().await? {
            if is_transactional(&header) && aborted.is_none() {
                let found = self.find_aborted().await?;
                cleaner.transactions = Transactions::new(&found, i64::MIN);
                *aborted = Some(found);
            }
            let bytes = scanner.bytes(total).await?;
            let ends_segment = scanner.position() + total as u64 == ends_at;
            let cleaned = match BatchView::parse_exact(&bytes) {
                Ok(batch) => cleaner.clean(&batch, ends_segment, &async || self.give_way().await).await,
                Err(error) => Err(error.into()),
            };
            let cleaned = cleaned.map_err(|error| ReadError::Corrupt(scanner.corrupt(error.to_string())))?;
            let written = match cleaned {
                Cleaned::Unchanged => writing.keep(&header, bytes).await?,
                Cleaned::Rewritten(bytes) => {
                    self.begin_change(writing, &file).await?;
                    let header = BatchHeader::read(&bytes).expect("a batch built here has a header");
                    writing.keep(&header, bytes).await?
                }
                Cleaned::Gone => {
                    self.begin_change(writing, &file).await?;
                    0
                }
            };
            scanner.advance(&header, total);
            self.note_moved(total + written).await?;
        }
        Ok(())
    }

    /// What follows is not what is in the only source any more: what was the same is written after all.
    async fn begin_change(&self, writing: &mut Writing<'_, D, R>, source: &D::File) -> Result<(), CompactError> {
        let Some(same_as) = writing.same_as.take() else { return Ok(()) };
        let end = writing.segment.appended_bytes();
        let mut position = 0;
        while position < end {
            let len = (end - position).min(WRITE_BYTES as u64) as usize;
            let failed = |e| DiskError::new("read", same_as.path(), e);
            let bytes = source.read_at(position, len).await.map_err(failed)?;
            if bytes.len() != len {
                return Err(failed(std::io::ErrorKind::UnexpectedEof.into()).into());
            }
            writing.pending.push(bytes);
            writing.flush().await?;
            position += len as u64;
            self.note_moved(2 * len).await?;
        }
        Ok(())
    }

    /// After bytes were read or written: ends the pass when the log is closed, waits where the rate asks for it, and gives
    /// way when the slice is over.
    async fn note_moved(&self, bytes: usize) -> Result<(), CompactError> {
        let runtime = &self.log.inner.runtime;
        let mut wait = self.limits.throttle.note(bytes, runtime.now());
        while !wait.is_zero() {
            self.check_open()?;
            let step = wait.min(THROTTLE_STEP);
            runtime.sleep(step).await;
            wait -= step;
        }
        self.breathe().await
    }

    async fn breathe(&self) -> Result<(), CompactError> {
        self.check_open()?;
        self.give_way().await;
        Ok(())
    }

    /// Where the slice is over.
    async fn give_way(&self) {
        let runtime = &self.log.inner.runtime;
        if runtime.now().saturating_since(self.slice_began.get()) >= SLICE {
            (self.give_way)().await;
            self.slice_began.set(runtime.now());
        }
    }

    fn check_open(&self) -> Result<(), CompactError> {
        let state = self.log.inner.state.borrow();
        if state.is_closing || state.is_compacting_over { Err(CompactError::Closing) } else { Ok(()) }
    }
}

fn is_transactional(header: &BatchHeader) -> bool {
    header.attributes.is_transactional() || header.attributes.is_control()
}

/// A segment that is being written.
struct Writing<'a, D: Disk, R: Runtime> {
    log: &'a Log<D, R>,
    segment: Rc<Segment<D::File>>,
    /// The only source, while nothing of it has changed: it would be written for nothing.
    same_as: Option<Rc<Segment<D::File>>>,
    file: Option<OpenFile<D::File>>,
    writer: BlockWriter,
    pending: Vec<Bytes>,
    pending_bytes: usize,
    index_interval_bytes: u32,
}

impl<'a, D: Disk, R: Runtime> Writing<'a, D, R> {
    fn new(log: &'a Log<D, R>, segment: Rc<Segment<D::File>>, same_as: Option<Rc<Segment<D::File>>>) -> Self {
        let index_interval_bytes = log.inner.state.borrow().config.index_interval_bytes;
        let (writer, pending) = (BlockWriter::default(), Vec::new());
        Self { log, segment, same_as, file: None, writer, pending, pending_bytes: 0, index_interval_bytes }
    }

    /// Takes a batch; the bytes that are written for it, at once or later.
    async fn keep(&mut self, header: &BatchHeader, bytes: Bytes) -> Result<usize, DiskError> {
        let total = bytes.len();
        self.segment.note_batch(header, total as u64, self.index_interval_bytes);
        if self.same_as.is_some() {
            return Ok(0);
        }
        self.pending_bytes += total;
        // A batch is a view of what was read at once, which it would keep in memory.
        self.pending.push(if total < WRITE_BYTES / 2 { Bytes::copy_from_slice(&bytes) } else { bytes });
        if self.pending_bytes >= WRITE_BYTES {
            self.flush().await?;
        }
        Ok(total)
    }

    async fn flush(&mut self) -> Result<(), DiskError> {
        let file = self.open().await?;
        let pending = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        if pending.is_empty() {
            return Ok(());
        }
        match self.writer.write(&self.segment, &file, &pending, LastBlock::Padded).await {
            // What compaction writes becomes room before long.
            Err(error) if error.is_full() && self.log.inner.disk.make_way().await => {
                self.writer.write(&self.segment, &file, &pending, LastBlock::Padded).await?;
            }
            written => drop(written?),
        }
        Ok(())
    }

    async fn open(&mut self) -> Result<OpenFile<D::File>, DiskError> {
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        let path = self.path(CLEANED_LOG_SUFFIX);
        let opened = self.log.inner.disk.open(&path, OpenMode::CreateNew).await;
        let file = OpenFile::uncounted(opened.map_err(|e| DiskError::new("create", &path, e))?);
        self.file = Some(file.clone());
        self.segment.hold_file(file.clone());
        Ok(file)
    }

    /// Makes log and indexes durable under their `.cleaned` names; false when there is nothing to exchange.
    async fn finish(&mut self) -> Result<bool, CompactError> {
        if self.same_as.is_some() {
            return Ok(false);
        }
        self.flush().await?;
        let file = self.open().await?;
        let path = self.segment.path();
        let failed = |operation| move |e| DiskError::new(operation, path, e);
        assert_eq!(self.segment.written_bytes(), self.segment.appended_bytes(), "everything kept is written");
        file.truncate(self.segment.written_bytes()).await.map_err(failed("truncate"))?;
        file.sync_data().await.map_err(failed("sync"))?;
        self.segment.seal();
        let (offset, time) = {
            let indexes = self.segment.indexes.borrow();
            (indexes.offset.encode(), indexes.time.encode())
        };
        let disk = &self.log.inner.disk;
        checkpoint::write_file(disk, &self.path(CLEANED_INDEX_SUFFIX), &offset).await?;
        checkpoint::write_file(disk, &self.path(CLEANED_TIME_INDEX_SUFFIX), &time).await?;
        Ok(true)
    }

    /// Removes what an attempt has left.
    async fn remove_left_over(&self) -> Result<(), DiskError> {
        for suffix in [CLEANED_LOG_SUFFIX, CLEANED_INDEX_SUFFIX, CLEANED_TIME_INDEX_SUFFIX] {
            remove_if_there(&self.log.inner.disk, &self.path(suffix)).await?;
        }
        Ok(())
    }

    fn path(&self, suffix: &str) -> std::path::PathBuf {
        file_path(&self.log.inner.dir, self.segment.base_offset(), suffix)
    }
}
