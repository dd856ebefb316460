//! Reading: from the tail in memory, else from the segment that holds the offset.

use std::rc::Rc;

use bytes::Bytes;

use crate::checkpoint;
use crate::disk::{Disk, File, OpenMode};
use crate::error::{DiskError, ReadError};
use crate::index::offset::OffsetIndex;
use crate::index::time::TimeIndex;
use crate::runtime::{Instant, Runtime};
use crate::segment::reader::{Found, ReadBounds, ReadFrom, Scanner, read};
use crate::segment::{INDEX_SUFFIX, Segment, TIME_INDEX_SUFFIX, file_path};

use super::cold::CachedFile;
use super::{Log, State};

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub struct ReadRequest {
    /// The first batch returned is the one that holds it, so it may begin before.
    pub offset: i64,
    /// Exclusive: no batch that reaches to it or beyond.
    pub upper_bound: i64,
    /// All batches together; 0 with `min_one_batch` reads exactly one.
    pub max_bytes: usize,
    /// The first batch whatever its size (KIP-74).
    pub min_one_batch: bool,
}

/// Whole batches, in order, as they stand in the log.
#[derive(Clone, Debug, Default)]
pub struct ReadBatches {
    /// Each slice holds one batch or several.
    pub slices: Vec<Bytes>,
    pub bytes: usize,
    /// The offset after the last batch; the offset asked for when there is none.
    pub next_offset: i64,
}

impl<D: Disk, R: Runtime> Log<D, R> {
    /// Reads whole batches. Empty when the offset is at the end, at or above the bound, or when the first batch does not
    /// fit; more may be there than is returned.
    pub async fn read(&self, request: ReadRequest) -> Result<ReadBatches, ReadError> {
        if let Some(found) = self.read_tail(request)? {
            return Ok(found);
        }
        loop {
            let exchanges = self.exchanges();
            match self.read_segments(request).await {
                // The segment was replaced while it was read.
                Err(_) if self.exchanges() != exchanges => {}
                // The segment was removed while it was read.
                Err(ReadError::Disk(error)) => {
                    self.inner.state.borrow().check_in_range(request.offset)?;
                    return Err(ReadError::Disk(error));
                }
                outcome => return outcome,
            }
        }
    }

    /// Replacements of segments so far. A read that fails while one happens is made again.
    pub(crate) fn exchanges(&self) -> u64 {
        self.inner.state.borrow().exchanges
    }

    /// What memory has; `None` when the disk must be asked.
    pub fn read_tail(&self, request: ReadRequest) -> Result<Option<ReadBatches>, ReadError> {
        let state = self.inner.state.borrow();
        state.check_in_range(request.offset)?;
        let nothing = ReadBatches { next_offset: request.offset, ..ReadBatches::default() };
        if request.offset == state.log_end_offset || request.offset >= request.upper_bound {
            return Ok(Some(nothing));
        }
        let ReadRequest { offset, upper_bound, max_bytes, min_one_batch } = request;
        let Some(batches) = self.inner.tail.read(offset, upper_bound, max_bytes, min_one_batch) else {
            return Ok(None);
        };
        Ok(Some(batches.into_iter().fold(nothing, |mut found, batch| {
            found.next_offset = batch.last_offset + 1;
            found.bytes += batch.bytes.len();
            found.slices.push(batch.bytes);
            found
        })))
    }

    async fn read_segments(&self, request: ReadRequest) -> Result<ReadBatches, ReadError> {
        let bounds = ReadBounds {
            offset: request.offset,
            upper_bound: request.upper_bound,
            max_bytes: request.max_bytes,
            min_one_batch: request.min_one_batch,
            verify_crc: self.inner.state.borrow().config.verify_crc_on_read,
        };
        let nothing = ReadBatches { next_offset: request.offset, ..ReadBatches::default() };
        let goes_on = self.inner.readers.borrow_mut().is_expected(request.offset);
        let mut next = self.segment_at(request.offset);
        while let Some(segment) = next {
            if segment.base_offset() >= request.upper_bound {
                break;
            }
            self.load_indexes(&segment).await?;
            let known = segment.indexes.borrow().offset.entry_before(request.offset);
            let from = known.map_or_else(ReadFrom::default, |(last_offset, position)| ReadFrom {
                position: u64::from(position),
                last_offset: Some(last_offset),
            });
            let cache = self.inner.tail.budget().blocks();
            let found = if cache.is_used() {
                self.read_ahead(&segment, from.position, request.max_bytes, goes_on);
                read(&segment, &CachedFile::new(cache, &segment, &self.inner.files), from, bounds).await?
            } else {
                let file = segment.file(&self.inner.files, OpenMode::ReadWrite).await?;
                read(&segment, &file, from, bounds).await?
            };
            match found {
                Found::Bounded => break,
                Found::EndOfSegment => next = self.segment_behind(&segment),
                Found::Batches(run) => {
                    self.inner.readers.borrow_mut().expect(run.end_offset);
                    return Ok(ReadBatches { slices: run.slices, bytes: run.bytes, next_offset: run.end_offset });
                }
            }
        }
        Ok(nothing)
    }

    /// The segment that would hold `offset`, as far as it has anything to read from its file.
    pub(super) fn segment_at(&self, offset: i64) -> Option<Rc<Segment<D::File>>> {
        let state = self.inner.state.borrow();
        let (_, segment) = state.segments.range(..=offset).next_back().or_else(|| state.segments.first_key_value())?;
        (segment.written_bytes() > 0).then(|| Rc::clone(segment))
    }

    pub(super) fn segment_after(&self, base_offset: i64) -> Option<Rc<Segment<D::File>>> {
        let state = self.inner.state.borrow();
        let (_, segment) = state.segments.range(base_offset + 1..).next()?;
        (segment.written_bytes() > 0).then(|| Rc::clone(segment))
    }

    /// What follows a segment that was read to its end: when it was replaced meanwhile, the one that has its place, since
    /// that one may reach further.
    pub(super) fn segment_behind(&self, segment: &Segment<D::File>) -> Option<Rc<Segment<D::File>>> {
        if segment.is_retired() {
            return self.segment_at(segment.base_offset());
        }
        self.segment_after(segment.base_offset())
    }

    /// Where a scan for `offset` begins.
    pub(super) async fn position_before(&self, segment: &Segment<D::File>, offset: i64) -> Result<u64, ReadError> {
        self.load_indexes(segment).await?;
        Ok(u64::from(segment.indexes.borrow().offset.position_before(offset)))
    }

    /// Has the segment's indexes in memory: from their files, or built anew when those are missing or bad.
    pub(super) async fn load_indexes(&self, segment: &Segment<D::File>) -> Result<(), ReadError> {
        let use_count = {
            let mut state = self.inner.state.borrow_mut();
            state.uses += 1;
            state.uses
        };
        segment.last_used.set(use_count);
        if segment.indexes.borrow().is_complete() {
            return Ok(());
        }
        let found = self.read_index_files(segment).await?;
        // The files under its name may be those of the segment that has its place.
        segment.check_not_retired()?;
        match found {
            Some((offset, time)) => segment.complete_indexes(offset, time),
            None => {
                tracing::warn!(path = %segment.path().display(), "indexes missing or bad, built anew");
                let (offset, time) = self.build_indexes(segment).await?;
                segment.complete_indexes(offset, time);
            }
        }
        self.forget_old_indexes();
        Ok(())
    }

    async fn read_index_files(
        &self,
        segment: &Segment<D::File>,
    ) -> Result<Option<(OffsetIndex, TimeIndex)>, DiskError> {
        let base_offset = segment.base_offset();
        let path = |suffix| file_path(&self.inner.dir, base_offset, suffix);
        let offset = checkpoint::read_file(&self.inner.disk, &path(INDEX_SUFFIX)).await?;
        let time = checkpoint::read_file(&self.inner.disk, &path(TIME_INDEX_SUFFIX)).await?;
        let (Some(offset), Some(time)) = (offset, time) else { return Ok(None) };
        let offset = OffsetIndex::decode(base_offset, &offset, segment.written_bytes());
        let time = TimeIndex::decode(base_offset, &time, segment.end_offset());
        // A finished segment's time index names its largest timestamp, so an empty one is a missing one.
        Ok(offset.ok().zip(time.ok()).filter(|(_, time)| !time.is_empty()))
    }

    async fn build_indexes(&self, segment: &Segment<D::File>) -> Result<(OffsetIndex, TimeIndex), ReadError> {
        let interval_bytes = self.inner.state.borrow().config.index_interval_bytes;
        let file = segment.file(&self.inner.files, OpenMode::ReadWrite).await?;
        // Only what the files were to describe: batches appended since have their entries in memory.
        let shadow = Segment::<D::File>::new(&self.inner.dir, segment.base_offset(), 0);
        let mut scanner = Scanner::new(segment, &file, 0, usize::MAX);
        let mut pace = Pace::new(&self.inner.runtime);
        while let Some((header, total)) = scanner.peek().await? {
            shadow.note_batch(&header, total as u64, interval_bytes);
            scanner.advance(&header, total);
            pace.step().await;
        }
        shadow.complete_time_index();
        let indexes = shadow.indexes.borrow();
        Ok((indexes.offset.clone(), indexes.time.clone()))
    }
}

impl<F: File> State<F> {
    fn check_in_range(&self, offset: i64) -> Result<(), ReadError> {
        let (log_start_offset, log_end_offset) = (self.log_start_offset, self.log_end_offset);
        if offset < log_start_offset || offset > log_end_offset {
            return Err(ReadError::OffsetOutOfRange { offset, log_start_offset, log_end_offset });
        }
        Ok(())
    }
}

/// The longest that work on a log goes on before it gives way.
pub(super) const SLICE: std::time::Duration = std::time::Duration::from_micros(100);

/// Lets the shard breathe in long loops.
pub(super) struct Pace<'a, R> {
    runtime: &'a R,
    steps: u32,
    last: Instant,
}

impl<'a, R: Runtime> Pace<'a, R> {
    /// A look at the clock every so many steps of well under a microsecond each.
    const STEPS_PER_LOOK: u32 = 64;

    pub fn new(runtime: &'a R) -> Self {
        Self { runtime, steps: 0, last: runtime.now() }
    }

    pub async fn step(&mut self) {
        self.steps += 1;
        if self.steps < Self::STEPS_PER_LOOK {
            return;
        }
        self.steps = 0;
        if self.runtime.now().saturating_since(self.last) >= SLICE {
            self.runtime.turn().await;
            self.last = self.runtime.now();
        }
    }
}
