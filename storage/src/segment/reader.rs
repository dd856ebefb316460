//! Batches from a segment's file. Everything read is checked before it is believed.

use bytes::Bytes;
use walser_protocol::records::batch::{BATCH_HEADER_BYTES, BatchHeader, BatchView, batch_total_len};

use crate::disk::File;
use crate::error::{Corruption, DiskError, ReadError};
use crate::open_files::OpenFile;

use super::Segment;

/// Read at once at most, unless one batch is larger: what a fetch gets from the disk in one go.
pub const READ_BYTES_MAX: usize = 4 << 20;
/// Read at once at least: one index interval and the batch behind it.
const READ_BYTES_MIN: usize = 16 << 10;
/// A slice that is smaller is copied.
const SHARE_BYTES_MIN: usize = 64 << 10;

/// What of a segment is wanted.
#[derive(Clone, Copy, Debug)]
pub struct ReadBounds {
    /// The first batch is the one that holds this offset, or the next one.
    pub offset: i64,
    /// Exclusive: batches that reach to it or beyond are not read.
    pub upper_bound: i64,
    pub max_bytes: usize,
    /// The first batch whatever its size.
    pub min_one_batch: bool,
    pub verify_crc: bool,
}

/// Whole batches, one behind the other.
#[derive(Clone, Debug, Default)]
pub struct BatchRun {
    /// Each holds one batch or several.
    pub slices: Vec<Bytes>,
    pub bytes: usize,
    /// The offset after the last batch.
    pub end_offset: i64,
}

/// What a scan of a segment found.
#[derive(Clone, Debug)]
pub enum Found {
    Batches(BatchRun),
    /// There is a next batch, but the bounds forbid it.
    Bounded,
    /// No batch at or behind the offset.
    EndOfSegment,
}

/// Where the bytes of a segment come from.
pub trait Source {
    /// At least `least_bytes` from `position` on, less only at the end of the file; at most `most_bytes` where that is more.
    fn read(
        &self,
        position: u64,
        least_bytes: usize,
        most_bytes: usize,
    ) -> impl Future<Output = std::io::Result<Bytes>>;

    /// Whether what follows is mostly in memory before it is asked for, so that a reader does well to go on.
    fn is_ahead(&self) -> bool;
}

impl<F: File> Source for F {
    async fn read(&self, position: u64, least_bytes: usize, most_bytes: usize) -> std::io::Result<Bytes> {
        self.read_at(position, least_bytes.max(most_bytes)).await
    }

    fn is_ahead(&self) -> bool {
        false
    }
}

impl<F: File> Source for OpenFile<F> {
    async fn read(&self, position: u64, least_bytes: usize, most_bytes: usize) -> std::io::Result<Bytes> {
        Source::read(&**self, position, least_bytes, most_bytes).await
    }

    fn is_ahead(&self) -> bool {
        false
    }
}

/// Moves over the batches of a segment, reading ahead.
pub struct Scanner<'a, F, S = F> {
    segment: &'a Segment<F>,
    source: &'a S,
    /// Where the next batch begins.
    position: u64,
    /// Exclusive: nothing is read at or behind it.
    limit: u64,
    window: Bytes,
    /// Position of the window's first byte.
    window_at: u64,
    read_ahead_bytes: usize,
    expected_offset: i64,
    /// Exclusive: no batch has this offset or a later one. `None`: not known.
    end_offset: Option<i64>,
}

impl<'a, F: File, S: Source> Scanner<'a, F, S> {
    /// `position` must be the start of a batch.
    pub fn new(segment: &'a Segment<F>, source: &'a S, position: u64, read_ahead_bytes: usize) -> Self {
        Self {
            segment,
            source,
            position,
            limit: segment.written_bytes(),
            window: Bytes::new(),
            window_at: position,
            read_ahead_bytes: read_ahead_bytes.clamp(READ_BYTES_MIN, READ_BYTES_MAX),
            expected_offset: segment.base_offset(),
            end_offset: Some(segment.end_offset()),
        }
    }

    /// For a file whose end is not known: scans at most `limit` bytes.
    pub fn with_limit(mut self, limit: u64) -> Self {
        (self.limit, self.end_offset) = (limit, None);
        self
    }

    /// For a position behind the batches below `offset`.
    pub fn with_expected_offset(mut self, offset: i64) -> Self {
        self.expected_offset = offset;
        self
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    /// Header and size of the next batch; `None` at the end of the data. Its bytes need not be in memory yet.
    pub async fn peek(&mut self) -> Result<Option<(BatchHeader, usize)>, ReadError> {
        if self.position >= self.limit {
            return Ok(None);
        }
        self.fill(BATCH_HEADER_BYTES).await?;
        let view = &self.window[self.offset_in_window()..];
        let Some(header) = BatchHeader::read(view) else {
            return Err(self.corrupt("the file ends inside a batch header").into());
        };
        let total = batch_total_len(view).map_err(|error| self.corrupt(error.to_string()))?;
        self.check(&header, total)?;
        Ok(Some((header, total)))
    }

    /// The batch that [`Self::peek`] announced, whole and checked; its records only where `verifies_crc`.
    pub async fn checked_bytes(
        &mut self,
        header: &BatchHeader,
        total: usize,
        verifies_crc: bool,
    ) -> Result<Bytes, ReadError> {
        let bytes = self.bytes(total).await?;
        let batch = BatchView::parse_exact(&bytes).map_err(|error| self.corrupt(error.to_string()))?;
        if verifies_crc {
            batch.verify_crc().map_err(|error| self.corrupt(error.to_string()))?;
        }
        self.check_follower(header, total).await?;
        Ok(bytes)
    }

    /// No checksum covers a batch's base offset. Where it is not the one that follows, it may be too large: then the next
    /// batch goes on where this one should have been.
    async fn check_follower(&mut self, header: &BatchHeader, total: usize) -> Result<(), ReadError> {
        if header.base_offset <= self.expected_offset {
            return Ok(());
        }
        let behind = |scanner: &Self| scanner.offset_in_window() + total;
        let next = BatchHeader::read(&self.window[behind(self).min(self.window.len())..]);
        let overlaps = |next: &BatchHeader| (self.expected_offset..=last_offset(header)).contains(&next.base_offset);
        let Some(next) = next.filter(overlaps) else { return Ok(()) };
        // What stands there may be none.
        let Ok(next_total) = batch_total_len(&self.window[behind(self)..]) else { return Ok(()) };
        self.fill(total + next_total).await?;
        let from = behind(self).min(self.window.len());
        let bytes = self.window.get(from..from + next_total).unwrap_or_default();
        if BatchView::parse_exact(bytes).is_ok_and(|batch| batch.verify_crc().is_ok()) {
            let reason = format!("batch has offset {}, and the next one {}", header.base_offset, next.base_offset);
            return Err(self.corrupt(reason).into());
        }
        Ok(())
    }

    /// The batch that [`Self::peek`] announced, whole.
    pub async fn bytes(&mut self, total: usize) -> Result<Bytes, ReadError> {
        // With the header of the one behind it, if there is one.
        self.fill(total + BATCH_HEADER_BYTES).await?;
        let from = self.offset_in_window();
        if self.window.len() - from < total {
            return Err(self.corrupt("the file ends inside a batch").into());
        }
        Ok(self.window.slice(from..from + total))
    }

    /// Steps over the batch that [`Self::peek`] announced.
    pub fn advance(&mut self, header: &BatchHeader, total: usize) {
        self.position += total as u64;
        self.expected_offset = header.base_offset + i64::from(header.last_offset_delta) + 1;
    }

    /// How many bytes of what follows are in memory.
    fn ready_bytes(&self) -> usize {
        self.window.len() - self.offset_in_window()
    }

    fn offset_in_window(&self) -> usize {
        // Never below `window_at`; behind the window's end when batches were stepped over unread.
        usize::try_from(self.position - self.window_at).map_or(self.window.len(), |at| at.min(self.window.len()))
    }

    /// Has at least `want_bytes` in memory, or everything up to the limit.
    async fn fill(&mut self, want_bytes: usize) -> Result<(), ReadError> {
        let left = usize::try_from(self.limit.saturating_sub(self.position)).unwrap_or(usize::MAX);
        if self.position - self.window_at <= self.window.len() as u64 && self.ready_bytes() >= want_bytes.min(left) {
            return Ok(());
        }
        let failed = |error| DiskError::new("read", self.segment.path(), error);
        let (least, most) = (want_bytes.min(left), self.read_ahead_bytes.min(left));
        self.window = self.source.read(self.position, least, most).await.map_err(failed)?;
        self.window_at = self.position;
        Ok(())
    }

    fn check(&self, header: &BatchHeader, total: usize) -> Result<(), Corruption> {
        if header.last_offset_delta < 0 || header.base_offset < self.expected_offset {
            return Err(self.corrupt(format!(
                "batch has offsets {} + {}, expected at least {}",
                header.base_offset, header.last_offset_delta, self.expected_offset
            )));
        }
        if self.position + total as u64 > self.limit {
            return Err(self.corrupt(format!("batch of {total} bytes reaches behind the end of the data")));
        }
        if header.base_offset.checked_add(i64::from(header.last_offset_delta) + 1).is_none() {
            return Err(self.corrupt("batch reaches behind the last offset"));
        }
        if let Some(end_offset) = self.end_offset.filter(|end_offset| last_offset(header) >= *end_offset) {
            let last = last_offset(header);
            return Err(self.corrupt(format!("batch reaches to offset {last}, and the segment ends at {end_offset}")));
        }
        Ok(())
    }

    pub fn corrupt(&self, reason: impl Into<String>) -> Corruption {
        Corruption {
            path: self.segment.path().to_path_buf(),
            position: self.position,
            offset: self.expected_offset,
            reason: reason.into(),
        }
    }
}

/// Where a read begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadFrom {
    pub position: u64,
    /// Of the batch that stands there, where an index says so.
    pub last_offset: Option<i64>,
}

/// Reads whole batches from the first that reaches to `bounds.offset`; the scan begins at `from`.
pub async fn read<F: File, S: Source>(
    segment: &Segment<F>,
    source: &S,
    from: ReadFrom,
    bounds: ReadBounds,
) -> Result<Found, ReadError> {
    let mut scanner = Scanner::new(segment, source, from.position, bounds.max_bytes.saturating_add(READ_BYTES_MIN));
    let first = loop {
        let Some((header, total)) = scanner.peek().await? else { return Ok(Found::EndOfSegment) };
        let indexed = from.last_offset.filter(|_| scanner.position() == from.position);
        if let Some(indexed) = indexed.filter(|indexed| *indexed != last_offset(&header)) {
            let reason = format!("batch ends at offset {}, and by the index at {indexed}", last_offset(&header));
            return Err(scanner.corrupt(reason).into());
        }
        if last_offset(&header) >= bounds.offset {
            break (header, total);
        }
        scanner.advance(&header, total);
    };
    let (header, total) = first;
    if last_offset(&header) >= bounds.upper_bound || (total > bounds.max_bytes && !bounds.min_one_batch) {
        return Ok(Found::Bounded);
    }
    let mut pieces = Pieces::default();
    pieces.take(&mut scanner, &header, total, bounds.verify_crc).await?;
    let bytes_max = bounds.max_bytes.min(READ_BYTES_MAX);
    while pieces.bytes < bytes_max {
        // What is in memory already is taken along; else another read is the next fetch's.
        if !source.is_ahead() && scanner.ready_bytes() < BATCH_HEADER_BYTES {
            break;
        }
        // What is bad behind good ones is the next read's error: what is good is delivered.
        let Ok(Some((header, total))) = scanner.peek().await else { break };
        let is_ready = source.is_ahead() || scanner.ready_bytes() >= total;
        if last_offset(&header) >= bounds.upper_bound || pieces.bytes + total > bounds.max_bytes || !is_ready {
            break;
        }
        if pieces.take(&mut scanner, &header, total, bounds.verify_crc).await.is_err() {
            break;
        }
    }
    let (bytes, end_offset) = (pieces.bytes, scanner.expected_offset);
    Ok(Found::Batches(BatchRun { slices: pieces.finish(), bytes, end_offset }))
}

/// Batches on their way into a [`BatchRun`]: what lies together in one window becomes one slice.
#[derive(Default)]
struct Pieces {
    slices: Vec<Bytes>,
    bytes: usize,
    /// Of the last slice: the window it is of, where that begins, and what of it is taken.
    open: Option<(Bytes, u64, std::ops::Range<usize>)>,
}

impl Pieces {
    /// The batch that was announced, if it is what it should be.
    async fn take<F: File, S: Source>(
        &mut self,
        scanner: &mut Scanner<'_, F, S>,
        header: &BatchHeader,
        total: usize,
        verify_crc: bool,
    ) -> Result<(), ReadError> {
        scanner.checked_bytes(header, total, verify_crc).await?;
        let from = scanner.offset_in_window();
        match &mut self.open {
            Some((_, window_at, range)) if *window_at == scanner.window_at => range.end = from + total,
            _ => {
                self.close();
                self.open = Some((scanner.window.clone(), scanner.window_at, from..from + total));
            }
        }
        self.bytes += total;
        scanner.advance(header, total);
        Ok(())
    }

    fn close(&mut self) {
        let Some((window, _, range)) = self.open.take() else { return };
        // A little of it must not hold a large piece of memory; a copy is nothing beside a read of the disk.
        let is_much = range.len() > window.len() / 2 && range.len() >= SHARE_BYTES_MIN;
        self.slices.push(if is_much { window.slice(range) } else { Bytes::copy_from_slice(&window[range]) });
    }

    fn finish(mut self) -> Vec<Bytes> {
        self.close();
        self.slices
    }
}

pub fn last_offset(header: &BatchHeader) -> i64 {
    header.base_offset.saturating_add(i64::from(header.last_offset_delta))
}
