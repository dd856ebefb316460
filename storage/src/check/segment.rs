//! One segment, batch by batch, also behind what is bad.

use std::path::PathBuf;

use bytes::Bytes;
use walser_protocol::records::batch::{BATCH_HEADER_BYTES, BatchHeader, BatchView, batch_total_len};

use crate::disk::File;
use crate::error::{DiskError, ReadError};
use crate::runtime::Runtime;
use crate::segment::Segment;
use crate::segment::reader::{Scanner, last_offset};

/// Read at once while a batch is looked for.
const WINDOW_BYTES: u64 = 1 << 20;

/// Bytes where a batch should be, and are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    pub start: u64,
    /// Exclusive: where the next good batch begins, or the end of the file.
    pub end: u64,
    /// The offset expected there.
    pub offset: i64,
    /// Of the next good batch.
    pub next_offset: Option<i64>,
    pub reason: String,
    /// The disk does not give them.
    pub is_unreadable: bool,
}

/// What a segment holds.
pub(super) struct Scanned {
    pub path: PathBuf,
    pub base_offset: i64,
    pub bad: Vec<Bad>,
    /// Where zeros begin that reach to the end.
    pub zeros_from: Option<u64>,
    pub len_bytes: u64,
    /// Behind the last good batch.
    pub end_offset: i64,
    pub batches: u64,
}

/// Who hears of every good batch: its position, its header, its bytes.
pub(super) trait Visitor {
    fn visit(&mut self, position: u64, header: &BatchHeader, bytes: &Bytes);
    /// Bytes read since this was last called.
    fn read(&mut self, bytes: u64);
}

/// Reads all of a file. A batch is only taken for one behind something bad when its offsets are at or above what is
/// expected and below `offset_limit`.
pub(super) async fn scan<F: File, R: Runtime>(
    runtime: &R,
    segment: &Segment<F>,
    file: &F,
    len_bytes: u64,
    offset_limit: i64,
    visitor: &mut impl Visitor,
) -> Scanned {
    let mut scanned = Scanned {
        path: segment.path().to_owned(),
        base_offset: segment.base_offset(),
        bad: Vec::new(),
        zeros_from: None,
        len_bytes,
        end_offset: segment.base_offset(),
        batches: 0,
    };
    let mut from = Some(0);
    while let Some(start) = from {
        let mut scanner = Scanner::new(segment, file, start, usize::MAX).with_limit(len_bytes);
        from = run(runtime, &mut scanner, &mut scanned, visitor, (file, offset_limit)).await;
    }
    scanned
}

/// Goes on until something is bad, or to the end; where the next good batch is.
async fn run<F: File, R: Runtime>(
    runtime: &R,
    scanner: &mut Scanner<'_, F>,
    scanned: &mut Scanned,
    visitor: &mut impl Visitor,
    (file, offset_limit): (&F, i64),
) -> Option<u64> {
    let (mut turned, mut told) = (scanner.position(), scanner.position());
    let error = loop {
        let (header, bytes) = match next_batch(scanner, scanned.end_offset, offset_limit, file).await {
            Ok(Some(next)) => next,
            Ok(None) => {
                visitor.read(scanner.position() - told);
                return None;
            }
            Err(error) => break error,
        };
        visitor.visit(scanner.position(), &header, &bytes);
        scanner.advance(&header, bytes.len());
        scanned.end_offset = last_offset(&header) + 1;
        scanned.batches += 1;
        if scanner.position() - turned >= WINDOW_BYTES {
            visitor.read(scanner.position() - told);
            (turned, told) = (scanner.position(), scanner.position());
            runtime.turn().await;
        }
    };
    let start = scanner.position();
    visitor.read(start - told);
    let bad = |end, next_offset, reason, is_unreadable| Bad {
        start,
        end,
        offset: scanned.end_offset,
        next_offset,
        reason,
        is_unreadable,
    };
    let reason = match error {
        ReadError::Corrupt(corruption) => corruption.reason,
        ReadError::Disk(error) => {
            scanned.bad.push(bad(scanned.len_bytes, None, error.to_string(), true));
            return None;
        }
        ReadError::OffsetOutOfRange { .. } => unreachable!("a scan asks for no offset"),
    };
    let search = Search { runtime, file, len_bytes: scanned.len_bytes, offsets: (scanned.end_offset, offset_limit) };
    match search.next_good(start).await {
        Ok(Next::Zeros) => {
            scanned.zeros_from = Some(start);
            None
        }
        Ok(Next::Batch(position, offset)) => {
            visitor.read(position - start);
            scanned.bad.push(bad(position, Some(offset), reason, false));
            Some(position)
        }
        Ok(Next::None) => {
            visitor.read(scanned.len_bytes - start);
            scanned.bad.push(bad(scanned.len_bytes, None, reason, false));
            None
        }
        Err(error) => {
            let error = DiskError::new("read", &scanned.path, error);
            scanned.bad.push(bad(scanned.len_bytes, None, format!("{reason}; {error}"), true));
            None
        }
    }
}

async fn next_batch<F: File>(
    scanner: &mut Scanner<'_, F>,
    expected: i64,
    offset_limit: i64,
    file: &F,
) -> Result<Option<(BatchHeader, Bytes)>, ReadError> {
    let Some((header, total)) = scanner.peek().await? else { return Ok(None) };
    let bytes = scanner.bytes(total).await?;
    let verdict = BatchView::parse_exact(&bytes).and_then(|batch| batch.verify_crc());
    verdict.map_err(|error| scanner.corrupt(error.to_string()))?;
    if header.base_offset < expected || last_offset(&header) >= offset_limit {
        let (first, last) = (header.base_offset, last_offset(&header));
        let reason = format!("batch has offsets {first} to {last}, and only {expected} to {} fit", offset_limit - 1);
        return Err(scanner.corrupt(reason).into());
    }
    // No checksum covers the base offset. One that is too large shows by the next batch, which goes on where this one should.
    if header.base_offset > expected {
        let behind = scanner.position() + total as u64;
        let next =
            file.read_at(behind, BATCH_HEADER_BYTES).await.map_err(|e| DiskError::new("read", file.path(), e))?;
        let is_batch = batch_total_len(&next).is_ok();
        let next = BatchHeader::read(&next).filter(|_| is_batch).map_or(i64::MAX, |next| next.base_offset);
        if next >= expected && next <= last_offset(&header) {
            let reason = format!("batch has offset {}, and the next one {next}", header.base_offset);
            return Err(scanner.corrupt(reason).into());
        }
    }
    Ok(Some((header, bytes)))
}

enum Next {
    /// Position and base offset.
    Batch(u64, i64),
    /// Nothing but zeros up to the end.
    Zeros,
    None,
}

struct Search<'a, F, R> {
    runtime: &'a R,
    file: &'a F,
    len_bytes: u64,
    /// From, and exclusive end.
    offsets: (i64, i64),
}

impl<F: File, R: Runtime> Search<'_, F, R> {
    async fn next_good(&self, start: u64) -> std::io::Result<Next> {
        let mut is_zeros = true;
        // Where the bad batch itself says that it ends comes first: its records may hold a batch, too.
        let header = self.file.read_at(start, BATCH_HEADER_BYTES).await?;
        if let Ok(total) = batch_total_len(&header)
            && let Some(offset) = self.batch_at(start + total as u64).await?
        {
            return Ok(Next::Batch(start + total as u64, offset));
        }
        let mut position = start + 1;
        is_zeros &= header.first().is_none_or(|byte| *byte == 0);
        while position < self.len_bytes {
            let len = usize::try_from(WINDOW_BYTES.min(self.len_bytes - position)).unwrap_or(usize::MAX);
            let window = self.file.read_at(position, len).await?;
            if window.is_empty() {
                break;
            }
            is_zeros &= window.iter().all(|byte| *byte == 0);
            for (at, bytes) in window.windows(BATCH_HEADER_BYTES).enumerate() {
                if self.is_plausible(bytes)
                    && let Some(offset) = self.batch_at(position + at as u64).await?
                {
                    return Ok(Next::Batch(position + at as u64, offset));
                }
            }
            let step = window.len().saturating_sub(BATCH_HEADER_BYTES - 1).max(1);
            position += step as u64;
            self.runtime.turn().await;
        }
        Ok(if is_zeros { Next::Zeros } else { Next::None })
    }

    fn is_plausible(&self, bytes: &[u8]) -> bool {
        const MAGIC_AT: usize = 16;
        let (from, limit) = self.offsets;
        bytes.get(MAGIC_AT) == Some(&2)
            && BatchHeader::read(bytes).is_some_and(|header| {
                header.base_offset >= from && header.last_offset_delta >= 0 && last_offset(&header) < limit
            })
    }

    /// The base offset of the batch that begins there, if one does.
    async fn batch_at(&self, position: u64) -> std::io::Result<Option<i64>> {
        if position >= self.len_bytes {
            return Ok(None);
        }
        let bytes = self.file.read_at(position, BATCH_HEADER_BYTES).await?;
        let Ok(total) = batch_total_len(&bytes) else { return Ok(None) };
        if !self.is_plausible(&bytes) || position + total as u64 > self.len_bytes {
            return Ok(None);
        }
        let bytes = self.file.read_at(position, total).await?;
        let verdict = BatchView::parse_exact(&bytes).and_then(|batch| batch.verify_crc().map(|()| batch.base_offset()));
        Ok(verdict.ok())
    }
}
