//! Batches to blocks: what one log writes, one write at a time.
//!
//! A segment's data does not end at a block boundary. Either the last block is written with zeros behind the data, and the
//! next write brings it again: its bytes come from memory and are the same as before, so a torn rewrite leaves them whole,
//! and never are two writes of one block in flight. Or it is held back until it is full, where something else keeps the
//! bytes until then. What is long is written in pieces of whole blocks, two at a time.

use std::cell::RefCell;
use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::disk::{BLOCK_BYTES, File};
use crate::error::DiskError;
use crate::runtime::side_by_side::side_by_side;

use super::Segment;

/// Largest single write: the buffer it needs, and the longest time another write of the shard waits behind it.
const WRITE_BYTES_MAX: usize = 1 << 20;
const _: () = assert!(WRITE_BYTES_MAX.is_multiple_of(BLOCK_BYTES));
/// Of one log, so that the disk has the next piece while the one before it is copied. More would take longer to copy than
/// others should wait.
const WRITES_AT_ONCE: usize = 2;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// Where a log's writes stand.
#[derive(Default)]
pub struct BlockWriter {
    /// Base offset of the segment it writes to.
    segment: Option<i64>,
    /// Everything before is in the file, in whole blocks.
    block_start: u64,
    /// What the file has of the block at `block_start`; empty while that block has not been written.
    tail: Vec<u8>,
}

/// What becomes of a last block that is not full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastBlock {
    Padded,
    HeldBack,
}

impl BlockWriter {
    /// Goes to the end of `segment`, unless it is there.
    pub async fn begin<F: File>(&mut self, segment: &Segment<F>, file: &F) -> Result<(), DiskError> {
        if self.segment == Some(segment.base_offset()) {
            return Ok(());
        }
        let written_bytes = segment.written_bytes();
        let len = (written_bytes % BLOCK) as usize;
        let mut tail = Vec::new();
        if len > 0 {
            let failed = |e| DiskError::new("read", segment.path(), e);
            let bytes = file.read_at(written_bytes - len as u64, len).await.map_err(failed)?;
            if bytes.len() != len {
                return Err(failed(std::io::ErrorKind::UnexpectedEof.into()));
            }
            tail.extend_from_slice(&bytes);
        }
        *self = Self { segment: Some(segment.base_offset()), block_start: written_bytes - len as u64, tail };
        Ok(())
    }

    /// Whether it is at `segment`, after [`Self::begin`].
    pub fn is_at<F: File>(&self, segment: &Segment<F>) -> bool {
        self.segment == Some(segment.base_offset())
    }

    /// The position of the block that is written next, and what the file has of it.
    pub fn tail(&self) -> (u64, &[u8]) {
        (self.block_start, &self.tail)
    }

    /// Bytes that the file has of a batch that is not in it as a whole.
    pub fn ahead_of<F: File>(&self, segment: &Segment<F>) -> usize {
        usize::try_from(self.block_start.saturating_sub(segment.written_bytes())).expect("less than a batch")
    }

    /// Whether writing `batches`, which follow what is written of `segment`, writes a block.
    pub fn would_write<F: File>(&self, segment: &Segment<F>, batches: &[Bytes], last_block: LastBlock) -> bool {
        let end = segment.written_bytes() + total_bytes(batches);
        match last_block {
            LastBlock::Padded => end > self.block_start + self.tail.len() as u64,
            LastBlock::HeldBack => end >= self.block_start + BLOCK,
        }
    }

    /// The end of `batches`, which follow what is written of `segment`, that does not fill a block: what no write that holds
    /// the last block back puts into the file. With its position.
    pub fn loose_end<F: File>(&self, segment: &Segment<F>, batches: &[Bytes]) -> (u64, Bytes) {
        let written_bytes = segment.written_bytes();
        let end = written_bytes + total_bytes(batches);
        let start = self.block_start.max(written_bytes).max(end / BLOCK * BLOCK);
        let mut skip = usize::try_from(start - written_bytes).unwrap_or(usize::MAX);
        let mut bytes = BytesMut::new();
        for batch in batches {
            let skipped = skip.min(batch.len());
            bytes.extend_from_slice(&batch[skipped..]);
            skip -= skipped;
        }
        (start, bytes.freeze())
    }

    /// Writes `batches` behind what `segment` has. What of them the file has in whole counts as written; their number. The
    /// others are to come again at the start of the next call. `None` when nothing was to be written. After an error the file may hold any part of them, and nothing
    /// is counted; the same call may be made again.
    pub async fn write<F: File>(
        &mut self,
        segment: &Segment<F>,
        file: &F,
        batches: &[Bytes],
        last_block: LastBlock,
    ) -> Result<Option<usize>, DiskError> {
        self.begin(segment, file).await?;
        if !self.would_write(segment, batches, last_block) {
            return Ok(None);
        }
        let written_bytes = segment.written_bytes();
        let end = written_bytes + total_bytes(batches);
        let data_end = match last_block {
            LastBlock::Padded => end,
            LastBlock::HeldBack => end / BLOCK * BLOCK,
        };
        let mut source =
            Source { pieces: std::iter::once(&self.tail[..]).chain(batches.iter().map(|b| &b[..])), left: &[] };
        source.skip(self.block_start.saturating_sub(written_bytes) as usize);
        let last_bytes = write_pieces(segment, file, source, self.block_start..data_end).await?;
        self.block_start = data_end / BLOCK * BLOCK;
        self.tail = last_bytes;
        let mut whole_end = written_bytes;
        let whole = batches.iter().map(|batch| {
            whole_end += batch.len() as u64;
            whole_end
        });
        let complete: Vec<u64> = whole.take_while(|end| *end <= data_end).collect();
        if let Some(end) = complete.last() {
            segment.set_written_bytes(*end);
        }
        Ok(Some(complete.len()))
    }
}

/// Writes what comes next of `source` to these positions, the last block padded; what is in that one if it is not full. When it
/// returns, no write is under way, also after an error; one that says that something is lost goes before one that does not.
async fn write_pieces<'a, F: File>(
    segment: &Segment<F>,
    file: &F,
    source: Source<'a, impl Iterator<Item = &'a [u8]>>,
    positions: Range<u64>,
) -> Result<Vec<u8>, DiskError> {
    let (source, last_bytes) = (RefCell::new(source), RefCell::new(Vec::new()));
    let lost = RefCell::new(None);
    let starts: Vec<u64> = positions.clone().step_by(WRITE_BYTES_MAX).collect();
    // They are begun in their order, and each takes its bytes when it is begun.
    let written = side_by_side(starts, WRITES_AT_ONCE, async |position: u64| {
        let len = usize::try_from(positions.end - position).unwrap_or(usize::MAX).min(WRITE_BYTES_MAX);
        let mut buffer = file.allocate(len);
        source.borrow_mut().fill(&mut buffer[..len]);
        buffer[len..].fill(0);
        if position + len as u64 == positions.end {
            *last_bytes.borrow_mut() = buffer[len - len % BLOCK_BYTES..len].to_vec();
        }
        let written = file.write_at(buffer, position).await.map_err(|e| DiskError::new("write", segment.path(), e));
        if let Some(error) = written.as_ref().err().filter(|error| !error.is_refusal()) {
            lost.borrow_mut().get_or_insert_with(|| error.clone());
        }
        written
    });
    match written.await {
        Ok(_) => Ok(last_bytes.into_inner()),
        Err(error) => Err(lost.into_inner().unwrap_or(error)),
    }
}

fn total_bytes(batches: &[Bytes]) -> u64 {
    batches.iter().map(|batch| batch.len() as u64).sum()
}

/// Several slices as one stream.
struct Source<'a, I> {
    pieces: I,
    left: &'a [u8],
}

impl<'a, I: Iterator<Item = &'a [u8]>> Source<'a, I> {
    /// The pieces hold at least as many bytes as are asked for, here and in `fill`.
    fn skip(&mut self, mut count: usize) {
        while count > 0 {
            self.refill();
            let now = count.min(self.left.len());
            self.left = &self.left[now..];
            count -= now;
        }
    }

    fn refill(&mut self) {
        while self.left.is_empty() {
            let Some(next) = self.pieces.next() else { unreachable!("the caller has counted the bytes") };
            self.left = next;
        }
    }

    fn fill(&mut self, mut target: &mut [u8]) {
        while !target.is_empty() {
            self.refill();
            let count = target.len().min(self.left.len());
            let (now, later) = std::mem::take(&mut target).split_at_mut(count);
            let (bytes, left) = self.left.split_at(count);
            now.copy_from_slice(bytes);
            (target, self.left) = (later, left);
        }
    }
}
