//! Reading segments through the block cache of the shard, and ahead of those who read on and on.

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};

use crate::cache::block::{BlockCache, BlockKey};
use crate::disk::{Disk, File, OpenMode};
use crate::open_files::Files;
use crate::runtime::Runtime;
use crate::segment::Segment;
use crate::segment::reader::{READ_BYTES_MAX, Source};

use super::Log;

/// Readers of one log whose next read is recognised.
const READERS_MAX: usize = 16;
/// Read ahead of one reader at most.
const READ_AHEAD_BYTES_MAX: usize = 1 << 20;

/// Where those who read old batches have got to: who reads from there goes on in order, and is read ahead of.
#[derive(Default)]
pub(super) struct Readers(VecDeque<i64>);

impl Readers {
    /// Whether somebody has read up to `offset`.
    pub fn is_expected(&mut self, offset: i64) -> bool {
        let found = self.0.iter().position(|next| *next == offset);
        found.and_then(|at| self.0.remove(at)).is_some()
    }

    pub fn expect(&mut self, next_offset: i64) {
        if self.0.len() == READERS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(next_offset);
    }
}

/// A segment's file behind the cache, opened when that has not what is wanted.
pub(super) struct CachedFile<'a, D: Disk> {
    cache: &'a BlockCache,
    segment: &'a Segment<D::File>,
    files: &'a Files<D>,
}

impl<'a, D: Disk> CachedFile<'a, D> {
    pub fn new(cache: &'a BlockCache, segment: &'a Segment<D::File>, files: &'a Files<D>) -> Self {
        Self { cache, segment, files }
    }

    async fn read_file(&self, memory: BytesMut, position: u64, len_bytes: usize) -> std::io::Result<Bytes> {
        read_into(self.segment, self.files, memory, position, len_bytes).await
    }

    /// From `position` to the end of its block, or of the file.
    async fn rest_of_block(&self, position: u64, most_bytes: usize) -> std::io::Result<Bytes> {
        let Some((key, start, len)) = block_at(self.cache, self.segment, position) else {
            // What will change is not kept.
            return self.read_file(BytesMut::new(), position, most_bytes).await;
        };
        let block = self.cache.get(key, len, |memory| self.read_file(memory, start, len)).await?;
        let from = usize::try_from(position - start).unwrap_or(usize::MAX).min(block.len());
        Ok(block.slice(from..))
    }
}

impl<D: Disk> Source for CachedFile<'_, D> {
    async fn read(&self, position: u64, least_bytes: usize, most_bytes: usize) -> std::io::Result<Bytes> {
        let first = self.rest_of_block(position, least_bytes.max(most_bytes)).await?;
        if first.len() >= least_bytes || first.is_empty() {
            return Ok(first);
        }
        // A batch that lies in two blocks, or several, is put together.
        let mut whole = BytesMut::with_capacity(least_bytes);
        whole.extend_from_slice(&first);
        while whole.len() < least_bytes {
            let missing = least_bytes - whole.len();
            let piece = self.rest_of_block(position + whole.len() as u64, missing).await?;
            if piece.is_empty() {
                break;
            }
            whole.extend_from_slice(&piece[..piece.len().min(missing)]);
        }
        Ok(whole.freeze())
    }

    fn is_ahead(&self) -> bool {
        true
    }
}

async fn read_into<D: Disk>(
    segment: &Segment<D::File>,
    files: &Files<D>,
    memory: BytesMut,
    position: u64,
    len_bytes: usize,
) -> std::io::Result<Bytes> {
    let opened = segment.file(files, OpenMode::ReadWrite).await;
    let file = opened.map_err(|error| std::io::Error::new(error.source.kind(), error))?;
    file.read_into(memory, position, len_bytes).await
}

/// Key, position and length of the block that holds `position`, where that is settled.
fn block_at<F: File>(cache: &BlockCache, segment: &Segment<F>, position: u64) -> Option<(BlockKey, u64, usize)> {
    let block_bytes = cache.block_bytes() as u64;
    let index = position / block_bytes;
    let start = index * block_bytes;
    let end = (start + block_bytes).min(segment.settled_bytes(block_bytes));
    let len = usize::try_from(end.checked_sub(start)?).ok()?;
    (position < end).then(|| (BlockKey { segment: segment.cache_key(cache), index }, start, len))
}

impl<D: Disk, R: Runtime> Log<D, R> {
    /// Begins to read what a reader at `position` of `segment` will want: `bytes` from there on, and as much again of what
    /// follows when it `goes_on`.
    pub(super) fn read_ahead(&self, segment: &Rc<Segment<D::File>>, position: u64, bytes: usize, goes_on: bool) {
        let ahead = if goes_on { bytes.min(READ_AHEAD_BYTES_MAX) } else { 0 };
        let mut left = bytes.min(READ_BYTES_MAX) + ahead;
        let cache = self.inner.tail.budget().blocks();
        let (mut segment, mut position) = (Rc::clone(segment), position);
        while left > 0 {
            let Some((key, start, len)) = block_at(cache, &segment, position) else {
                // The rest of a segment that is appended to, or the beginning of the next one.
                let is_read = position >= segment.written_bytes();
                let Some(next) = self.segment_behind(&segment).filter(|_| is_read) else { return };
                (segment, position) = (next, 0);
                continue;
            };
            if !cache.is_coming(key) && !self.read_block_ahead(&segment, key, start, len) {
                return;
            }
            left = left.saturating_sub(len);
            position = start + len as u64;
        }
    }

    /// False when too much is being read ahead.
    fn read_block_ahead(&self, segment: &Rc<Segment<D::File>>, key: BlockKey, start: u64, len: usize) -> bool {
        let cache = self.inner.tail.budget().blocks();
        let (Some(place), Some(guard)) = (cache.stand_in_line(), self.inner.tasks.enter()) else { return false };
        let (log, segment, cache) = (self.clone(), Rc::clone(segment), Rc::clone(cache));
        self.inner.runtime.spawn(async move {
            let permit = place.turn().await;
            // Whoever wants the block may not have waited for this one.
            if !log.inner.state.borrow().is_closing && !cache.is_coming(key) {
                let read = |memory| read_into(&segment, &log.inner.files, memory, start, len);
                if let Err(error) = cache.get(key, len, read).await {
                    // Who needs the block will meet it.
                    tracing::debug!(path = %segment.path().display(), start, %error, "not read ahead");
                }
            }
            drop((permit, place, guard));
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::Readers;

    #[test]
    fn who_goes_on_where_somebody_stopped_is_recognised() {
        // Rule: each place is good for one reader, and the oldest are forgotten.
        let mut readers = Readers::default();
        assert!(!readers.is_expected(0));
        readers.expect(10);
        readers.expect(10);
        assert_eq!([readers.is_expected(10), readers.is_expected(10), readers.is_expected(10)], [true, true, false]);
        for next in 0..20 {
            readers.expect(next);
        }
        assert!(!readers.is_expected(3) && readers.is_expected(4));
    }
}
