//! Blocks of segments that were read from the disk, kept for whoever reads them next.
//!
//! A block is an aligned piece of a segment's file that will not change any more: appends come behind it, and a segment that
//! compaction has replaced is another segment. One scan through old data does not push out what is read again and again
//! (`quick_cache` keeps new blocks on probation). Whoever wants a block that somebody reads already waits for that one.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use quick_cache::unsync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, Weighter};

use crate::disk::BLOCK_BYTES;
use crate::limits::DISK_READ_STEP_BYTES;
use crate::runtime::channel::{Notify, Semaphore};

/// One read of the disk. The larger the blocks, the fewer batches lie in two of them and have to be put together.
const CACHED_BLOCK_BYTES_MAX: usize = DISK_READ_STEP_BYTES;
/// With fewer blocks there is no cache.
const BLOCKS_MIN: usize = 16;
/// What one block costs beside its bytes.
const BLOCK_OVERHEAD_BYTES: usize = 128;
/// Blocks whose memory is kept for the next ones. Memory that was never touched costs more than what is copied into it.
const SPARE_MAX: usize = 4;
/// Blocks read ahead at the same time for all logs of the shard.
const READ_AHEAD_IN_FLIGHT_MAX: usize = 2;
/// Those, and what waits behind them. Beyond it nothing is read ahead.
const READ_AHEAD_QUEUE_MAX: usize = 8;

/// Which block: of which segment, and the how-manieth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey {
    pub segment: SegmentKey,
    pub index: u64,
}

/// A segment, as the cache of its shard knows it. No two have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentKey(u64);

#[derive(Clone)]
struct Weight;

impl Weighter<BlockKey, Bytes> for Weight {
    fn weight(&self, _key: &BlockKey, block: &Bytes) -> u64 {
        (block.len() + BLOCK_OVERHEAD_BYTES) as u64
    }
}

/// Gives evicted blocks to who inserted another one.
#[derive(Clone)]
struct Evictions;

impl Lifecycle<BlockKey, Bytes> for Evictions {
    type RequestState = Vec<Bytes>;

    fn on_evict(&self, evicted: &mut Vec<Bytes>, _key: BlockKey, block: Bytes) {
        evicted.push(block);
    }
}

/// A block on its way.
#[derive(Default)]
struct Reading {
    bytes: RefCell<Option<Bytes>>,
    is_over: Notify,
}

/// The cache of a shard.
pub struct BlockCache {
    block_bytes: usize,
    blocks: RefCell<Cache<BlockKey, Bytes, Weight, DefaultHashBuilder, Evictions>>,
    /// Memory of blocks that nobody holds any more.
    spare: RefCell<Vec<BytesMut>>,
    reading: RefCell<BTreeMap<BlockKey, Rc<Reading>>>,
    segments: Cell<u64>,
    read_ahead: Semaphore,
    read_ahead_count: Cell<usize>,
    hits: Cell<u64>,
    misses: Cell<u64>,
}

impl BlockCache {
    /// A budget that is too small for a few blocks of a few KiB makes a cache that [is not used](Self::is_used).
    pub fn new(bytes_max: usize) -> Self {
        let fitting = bytes_max / BLOCKS_MIN;
        let power = if fitting == 0 { 0 } else { 1_usize << fitting.ilog2() };
        let block_bytes = if power < BLOCK_BYTES { 0 } else { power.min(CACHED_BLOCK_BYTES_MAX) };
        let blocks_max = bytes_max.checked_div(block_bytes).unwrap_or(0);
        Self {
            block_bytes,
            blocks: RefCell::new(Cache::with(
                blocks_max,
                bytes_max as u64,
                Weight,
                DefaultHashBuilder::default(),
                Evictions,
            )),
            spare: RefCell::default(),
            reading: RefCell::default(),
            segments: Cell::new(0),
            read_ahead: Semaphore::new(READ_AHEAD_IN_FLIGHT_MAX),
            read_ahead_count: Cell::new(0),
            hits: Cell::new(0),
            misses: Cell::new(0),
        }
    }

    /// Whether reads go through it.
    pub fn is_used(&self) -> bool {
        self.block_bytes > 0
    }

    /// Bytes of a whole block.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Bytes kept.
    pub fn used_bytes(&self) -> usize {
        usize::try_from(self.blocks.borrow().weight()).unwrap_or(usize::MAX)
    }

    /// Blocks that were found here, and those read from the disk.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits.get(), self.misses.get())
    }

    pub fn new_segment(&self) -> SegmentKey {
        self.segments.update(|count| count + 1);
        SegmentKey(self.segments.get())
    }

    /// Whether it is here or on its way.
    pub fn is_coming(&self, key: BlockKey) -> bool {
        self.blocks.borrow().contains_key(&key) || self.reading.borrow().contains_key(&key)
    }

    /// The block, read by `read` into the memory it is given, where nobody has it. What is shorter than `len_bytes` is not
    /// kept: the file ended before its time.
    pub async fn get<Read>(
        &self,
        key: BlockKey,
        len_bytes: usize,
        read: impl FnOnce(BytesMut) -> Read,
    ) -> io::Result<Bytes>
    where
        Read: Future<Output = io::Result<Bytes>>,
    {
        loop {
            if let Some(block) = self.blocks.borrow().get(&key) {
                self.hits.update(|hits| hits + 1);
                return Ok(block.clone());
            }
            let on_its_way = self.reading.borrow().get(&key).cloned();
            let Some(reading) = on_its_way else { break };
            reading.is_over.notified().await;
            if let Some(block) = reading.bytes.borrow().clone() {
                self.hits.update(|hits| hits + 1);
                return Ok(block);
            }
            // The one who read it met an error, or was dropped: this one tries itself.
        }
        self.misses.update(|misses| misses + 1);
        let reader = Reader { cache: self, key, reading: Rc::default() };
        self.reading.borrow_mut().insert(key, Rc::clone(&reader.reading));
        let memory = self.spare.borrow_mut().pop().unwrap_or_else(|| BytesMut::with_capacity(self.block_bytes));
        let block = read(memory).await?;
        if block.len() == len_bytes {
            *reader.reading.bytes.borrow_mut() = Some(block.clone());
            self.keep(key, block.clone());
        }
        Ok(block)
    }

    fn keep(&self, key: BlockKey, block: Bytes) {
        let mut evicted = Vec::new();
        self.blocks.borrow_mut().insert_with_lifecycle(key, block, &mut evicted);
        let mut spare = self.spare.borrow_mut();
        // What an answer still holds is not ours.
        for mut memory in evicted.into_iter().filter_map(|block| block.try_into_mut().ok()) {
            memory.clear();
            if spare.len() < SPARE_MAX && memory.capacity() >= self.block_bytes {
                spare.push(memory);
            }
        }
    }

    /// A place among those who read ahead; `None` when there are too many. The permit is awaited in the task that reads.
    pub fn stand_in_line(self: &Rc<Self>) -> Option<ReadAheadPlace> {
        if self.read_ahead_count.get() >= READ_AHEAD_QUEUE_MAX {
            return None;
        }
        self.read_ahead_count.update(|count| count + 1);
        Some(ReadAheadPlace { cache: Rc::clone(self) })
    }
}

/// See [`BlockCache::stand_in_line`].
pub struct ReadAheadPlace {
    cache: Rc<BlockCache>,
}

impl ReadAheadPlace {
    /// Waits until it is this one's turn to read.
    pub async fn turn(&self) -> crate::runtime::channel::Permit {
        self.cache.read_ahead.acquire(1).await
    }
}

impl Drop for ReadAheadPlace {
    fn drop(&mut self) {
        self.cache.read_ahead_count.update(|count| count - 1);
    }
}

/// Tells those who wait, however the read ends.
struct Reader<'a> {
    cache: &'a BlockCache,
    key: BlockKey,
    reading: Rc<Reading>,
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.cache.reading.borrow_mut().remove(&self.key);
        self.reading.is_over.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Runtime;
    use crate::runtime::simulated::SimulatedRuntime;
    use std::time::Duration;

    fn block(byte: u8) -> Bytes {
        Bytes::from(vec![byte; 4096])
    }

    fn cache(blocks: usize) -> Rc<BlockCache> {
        Rc::new(BlockCache::new(blocks * (4096 + BLOCK_OVERHEAD_BYTES)))
    }

    async fn get(cache: &BlockCache, key: BlockKey) -> Bytes {
        cache.get(key, 4096, |_| async move { Ok(block(key.index as u8)) }).await.expect("no fault")
    }

    #[test]
    fn a_budget_gives_blocks_that_fit_into_it() {
        // Rule: a small cache has small blocks, a tiny one is none, and no block is larger than one read.
        for (bytes_max, want) in
            [(0, 0), (6000, 0), (64 << 10, 4096), (1 << 20, 64 << 10), (4 << 20, 256 << 10), (1 << 30, 1 << 20)]
        {
            let cache = BlockCache::new(bytes_max);
            assert_eq!((cache.block_bytes(), cache.is_used()), (want, want > 0), "{bytes_max}");
        }
    }

    #[test]
    fn one_read_serves_all_who_want_the_block() {
        // Rule: a block is read from the disk once, also when it is wanted while it is read.
        let runtime = SimulatedRuntime::new(1);
        let cache = cache(16);
        let key = BlockKey { segment: cache.new_segment(), index: 7 };
        let reads = Rc::new(Cell::new(0));
        for _ in 0..3 {
            let (cache, reads, sleeper) = (Rc::clone(&cache), Rc::clone(&reads), runtime.clone());
            runtime.spawn(async move {
                let read = |_| async {
                    reads.set(reads.get() + 1);
                    sleeper.sleep(Duration::from_millis(1)).await;
                    Ok(block(7))
                };
                assert_eq!(cache.get(key, 4096, read).await.expect("no fault"), block(7));
            });
        }
        let end = runtime.clone();
        runtime.block_on(async move { end.sleep(Duration::from_millis(5)).await });
        assert_eq!((reads.get(), cache.hits_and_misses()), (1, (2, 1)));
    }

    #[test]
    fn who_waits_tries_itself_when_the_read_fails() {
        // Rule: an error is told to the one who met it; a short block is not kept.
        let runtime = SimulatedRuntime::new(1);
        let cache = cache(16);
        let key = BlockKey { segment: cache.new_segment(), index: 0 };
        let (failing, sleeper) = (Rc::clone(&cache), runtime.clone());
        runtime.spawn(async move {
            let read = |_| async {
                sleeper.sleep(Duration::from_millis(1)).await;
                Err(io::ErrorKind::UnexpectedEof.into())
            };
            failing.get(key, 4096, read).await.expect_err("the read fails");
        });
        let (waiting, other) = (Rc::clone(&cache), runtime.clone());
        runtime.block_on(async move {
            other.turn().await;
            assert!(waiting.is_coming(key), "the first one reads");
            let short = waiting.get(key, 4096, |_| async { Ok(Bytes::from_static(b"short")) }).await.expect("read");
            assert_eq!(short, Bytes::from_static(b"short"));
            assert!(!waiting.is_coming(key), "a short block is not kept");
            assert_eq!(get(&waiting, key).await, block(0));
            assert!(waiting.is_coming(key), "a whole one is");
        });
    }

    #[test]
    fn a_scan_leaves_what_is_used_often() {
        // Rule: the budget is held, and one pass over many blocks does not push out those that are read again and again.
        let runtime = SimulatedRuntime::new(1);
        let cache = cache(64);
        let segment = cache.new_segment();
        runtime.block_on(async {
            for _ in 0..4 {
                for index in 0..8 {
                    get(&cache, BlockKey { segment, index }).await;
                }
            }
            for index in 100..1000 {
                get(&cache, BlockKey { segment, index }).await;
            }
        });
        assert!(cache.used_bytes() <= 64 * (4096 + BLOCK_OVERHEAD_BYTES), "{} bytes", cache.used_bytes());
        let kept = (0..8).filter(|index| cache.is_coming(BlockKey { segment, index: *index })).count();
        assert_eq!(kept, 8, "blocks used four times");
    }

    #[test]
    fn evicted_blocks_give_their_memory_to_new_ones() {
        // Rule: a drain touches no new memory once the cache is full; what somebody still holds is left alone.
        let runtime = SimulatedRuntime::new(1);
        let cache = cache(16);
        let segment = cache.new_segment();
        let read = |index: u64| {
            let cache = Rc::clone(&cache);
            async move {
                let read = |mut memory: BytesMut| async move {
                    memory.extend_from_slice(&block(index as u8));
                    Ok(memory.freeze())
                };
                cache.get(BlockKey { segment, index }, 4096, read).await.expect("no fault")
            }
        };
        runtime.block_on(async {
            let held = read(0).await;
            let mut places = std::collections::BTreeSet::new();
            for index in 1..200 {
                let block = read(index).await;
                assert_ne!(block.as_ptr(), held.as_ptr());
                places.insert(block.as_ptr() as usize);
            }
            assert!(places.len() <= 32, "{} places", places.len());
            assert_eq!(held, block(0));
        });
    }

    #[test]
    fn the_line_of_those_who_read_ahead_is_bounded() {
        // Rule: reading ahead gives up where it would only pile up.
        let cache = cache(16);
        let mut places: Vec<_> = (0..READ_AHEAD_QUEUE_MAX).filter_map(|_| cache.stand_in_line()).collect();
        assert_eq!(places.len(), READ_AHEAD_QUEUE_MAX);
        assert!(cache.stand_in_line().is_none(), "the line is full");
        places.pop();
        assert!(cache.stand_in_line().is_some(), "a place is free again");
    }
}
