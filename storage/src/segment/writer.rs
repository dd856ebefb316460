//! Batches to blocks: what one log writes, one commit at a time.
//!
//! A segment's data does not end at a block boundary, so the last block is rewritten by the next commit. Its bytes come
//! from memory and are the same as before, so a torn rewrite leaves them whole; and never are two writes of one block in
//! flight, because there is one writer per log and it waits for each write.

use bytes::Bytes;

use crate::disk::{BLOCK_BYTES, File};
use crate::error::DiskError;

use super::Segment;

/// Largest single write: the buffer it needs, and the longest time another write of the shard waits behind it.
const WRITE_BYTES_MAX: usize = 1 << 20;
const _: () = assert!(WRITE_BYTES_MAX.is_multiple_of(BLOCK_BYTES));

/// The last, partly filled block of the segment a log writes to.
#[derive(Default)]
pub struct BlockWriter {
    /// Base offset of the segment that `tail` belongs to.
    segment: Option<i64>,
    tail: Vec<u8>,
}

impl BlockWriter {
    /// Writes `batches` behind what `segment` has. After an error the file may hold any part of them, and nothing is
    /// counted as written; the same call may be made again.
    pub async fn write<F: File>(&mut self, segment: &Segment<F>, file: &F, batches: &[Bytes]) -> Result<(), DiskError> {
        self.load_tail(segment, file).await?;
        let start = segment.written_bytes() - self.tail.len() as u64;
        let total: usize = self.tail.len() + batches.iter().map(Bytes::len).sum::<usize>();
        let mut source =
            Source { pieces: std::iter::once(&self.tail[..]).chain(batches.iter().map(|b| &b[..])), left: &[] };
        let mut done = 0;
        let mut last_block = Vec::new();
        while done < total {
            let len = (total - done).min(WRITE_BYTES_MAX);
            let mut buffer = file.allocate(len);
            source.fill(&mut buffer[..len]);
            buffer[len..].fill(0);
            if done + len == total {
                last_block = buffer[len - len % BLOCK_BYTES..len].to_vec();
            }
            let position = start + done as u64;
            file.write_at(buffer, position).await.map_err(|e| DiskError::new("write", segment.path(), e))?;
            done += len;
        }
        self.tail = last_block;
        segment.set_written_bytes(start + total as u64);
        Ok(())
    }

    /// The partial block of a segment that was written before this writer.
    async fn load_tail<F: File>(&mut self, segment: &Segment<F>, file: &F) -> Result<(), DiskError> {
        if self.segment == Some(segment.base_offset()) {
            return Ok(());
        }
        self.tail.clear();
        let len = (segment.written_bytes() % BLOCK_BYTES as u64) as usize;
        if len > 0 {
            let failed = |e| DiskError::new("read", segment.path(), e);
            let bytes = file.read_at(segment.written_bytes() - len as u64, len).await.map_err(failed)?;
            if bytes.len() != len {
                return Err(failed(std::io::ErrorKind::UnexpectedEof.into()));
            }
            self.tail.extend_from_slice(&bytes);
        }
        self.segment = Some(segment.base_offset());
        Ok(())
    }
}

/// Several slices as one stream.
struct Source<'a, I> {
    pieces: I,
    left: &'a [u8],
}

impl<'a, I: Iterator<Item = &'a [u8]>> Source<'a, I> {
    /// The pieces hold at least as many bytes as are asked for.
    fn fill(&mut self, mut target: &mut [u8]) {
        while !target.is_empty() {
            if self.left.is_empty() {
                let Some(next) = self.pieces.next() else { unreachable!("the caller has counted the bytes") };
                self.left = next;
            }
            let count = target.len().min(self.left.len());
            let (now, later) = std::mem::take(&mut target).split_at_mut(count);
            let (bytes, left) = self.left.split_at(count);
            now.copy_from_slice(bytes);
            (target, self.left) = (later, left);
        }
    }
}
