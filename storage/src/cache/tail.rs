//! Recent batches of every log of a shard, under one budget with the [blocks](super::block) of old ones; consumers that keep
//! up never touch the disk.
//!
//! The oldest batch of the shard goes first, whichever log it belongs to. What is not in its segment yet is pinned: it
//! counts against the budget but stays, so the budget is exceeded by at most what waits to be written. A log that nobody
//! reads keeps little: the next batches then come into memory that the processor's caches still have, which memory that was
//! last touched a gigabyte ago they have not.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use bytes::Bytes;

use super::block::BlockCache;

/// What one kept batch costs beside its bytes.
const BATCH_OVERHEAD_BYTES: usize = 96;
/// Pinned batches looked at before an insertion gives up making room: keeps an append O(1).
const EVICTION_ATTEMPTS_MAX: usize = 32;

/// Appended without a read in between: nobody reads the log.
const UNREAD_BYTES: usize = 64 << 20;
/// What such a log keeps.
const UNREAD_KEPT_BYTES: usize = 2 << 20;

/// Blocks of old segments may take this part of the budget.
const BLOCKS_SHARE: usize = 4;

/// The budget of a shard.
pub struct TailBudget {
    bytes_max: usize,
    blocks: Rc<BlockCache>,
    used_bytes: Cell<usize>,
    kept_batches: Cell<usize>,
    /// One place per kept batch, oldest first, and some of batches that are gone.
    order: RefCell<VecDeque<Weak<Tail>>>,
}

impl TailBudget {
    pub fn new(bytes_max: usize) -> Rc<Self> {
        Self::with_blocks(bytes_max, bytes_max / BLOCKS_SHARE)
    }

    /// Of `bytes_max`, blocks may take `blocks_bytes_max`.
    pub fn with_blocks(bytes_max: usize, blocks_bytes_max: usize) -> Rc<Self> {
        Rc::new(Self {
            bytes_max,
            blocks: Rc::new(BlockCache::new(blocks_bytes_max)),
            used_bytes: Cell::new(0),
            kept_batches: Cell::new(0),
            order: RefCell::default(),
        })
    }

    /// Of the batches.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.get()
    }

    /// What was read from the disk, which counts against the budget too.
    pub fn blocks(&self) -> &Rc<BlockCache> {
        &self.blocks
    }

    fn make_room(&self) {
        for _ in 0..EVICTION_ATTEMPTS_MAX {
            if self.used_bytes.get() + self.blocks.used_bytes() <= self.bytes_max {
                return;
            }
            let Some(oldest) = self.order.borrow_mut().pop_front() else { return };
            let Some(tail) = oldest.upgrade() else { continue };
            if !tail.gives_up_place() && !tail.evict_oldest_in_turn() {
                self.order.borrow_mut().push_back(oldest);
            }
        }
    }

    /// Batches have gone before their turn. Their places are given up together, when they are more than half of all.
    fn tidy(&self) {
        if self.order.borrow().len() > 2 * self.kept_batches.get() {
            let is_held = |tail: &Weak<Tail>| tail.upgrade().is_some_and(|tail| !tail.gives_up_place());
            self.order.borrow_mut().retain(is_held);
        }
    }
}

/// A batch as it stands, or will stand, in a segment.
#[derive(Clone, Debug)]
pub struct TailBatch {
    pub base_offset: i64,
    pub last_offset: i64,
    pub bytes: Bytes,
}

/// The recent batches of one log: a suffix of it without a gap.
pub struct Tail {
    budget: Rc<TailBudget>,
    batches: RefCell<VecDeque<TailBatch>>,
    kept_bytes: Cell<usize>,
    /// Batches from this offset on are not in a segment yet.
    pinned_from: Cell<i64>,
    /// Appended since somebody read; much until anybody has.
    unread_bytes: Cell<usize>,
    /// In the budget's queue. When there are more than batches, the oldest are those of batches that are gone.
    places: Cell<usize>,
}

impl Tail {
    /// `log_end_offset`: where the first batch kept will begin.
    pub fn new(budget: Rc<TailBudget>, log_end_offset: i64) -> Rc<Self> {
        Rc::new(Self {
            budget,
            batches: RefCell::default(),
            kept_bytes: Cell::new(0),
            pinned_from: Cell::new(log_end_offset),
            unread_bytes: Cell::new(UNREAD_BYTES),
            places: Cell::new(0),
        })
    }

    pub fn budget(&self) -> &TailBudget {
        &self.budget
    }

    /// Keeps the batch that follows all others, pinned.
    pub fn push(self: &Rc<Self>, batch: TailBatch) {
        if let Some(last) = self.batches.borrow().back() {
            assert!(last.last_offset < batch.base_offset, "batches are kept in the order of the log");
        }
        let cost = cost_bytes(&batch);
        self.budget.used_bytes.update(|used| used + cost);
        self.budget.kept_batches.update(|kept| kept + 1);
        self.kept_bytes.update(|kept| kept + cost);
        self.places.update(|places| places + 1);
        self.unread_bytes.update(|unread| unread.saturating_add(cost));
        self.batches.borrow_mut().push_back(batch);
        self.budget.order.borrow_mut().push_back(Rc::downgrade(self));
        self.budget.make_room();
    }

    /// Everything below `written_end_offset` can be read from its segment now.
    pub fn unpin(&self, written_end_offset: i64) {
        self.pinned_from.set(written_end_offset);
        if self.unread_bytes.get() >= UNREAD_BYTES {
            while self.kept_bytes.get() > UNREAD_KEPT_BYTES && self.evict_oldest() {}
            self.budget.tidy();
        }
        self.budget.make_room();
    }

    /// Forgets batches that reach to or beyond `end_offset`.
    pub fn truncate(&self, end_offset: i64) {
        let mut batches = self.batches.borrow_mut();
        while batches.back().is_some_and(|batch| batch.last_offset >= end_offset) {
            if let Some(batch) = batches.pop_back() {
                self.note_gone(&batch);
            }
        }
        self.pinned_from.set(self.pinned_from.get().min(end_offset));
    }

    /// Forgets batches that end below `end_offset`, which can all be read from segments: compaction may have changed them.
    pub fn forget_below(&self, end_offset: i64) {
        assert!(end_offset <= self.pinned_from.get(), "what is not in a segment stays");
        let is_below = || self.batches.borrow().front().is_some_and(|batch| batch.last_offset < end_offset);
        while is_below() && self.evict_oldest() {}
        self.budget.tidy();
    }

    /// Whether the oldest place of this log in the queue is one of a batch that is gone; it is given up then.
    fn gives_up_place(&self) -> bool {
        let is_void = self.places.get() > self.batches.borrow().len();
        self.places.update(|places| places - usize::from(is_void));
        is_void
    }

    /// With its place, which is the one in turn.
    fn evict_oldest_in_turn(&self) -> bool {
        let is_evicted = self.evict_oldest();
        self.places.update(|places| places - usize::from(is_evicted));
        is_evicted
    }

    /// `None` when `offset` lies before everything kept, so that the segments must be asked.
    ///
    /// Whole batches, from the one that holds `offset`, that end before `upper_bound`; together at most `max_bytes`, but
    /// with `min_one_batch` the first one whatever its size.
    pub fn read(&self, offset: i64, upper_bound: i64, max_bytes: usize, min_one_batch: bool) -> Option<Vec<TailBatch>> {
        self.unread_bytes.set(0);
        let batches = self.batches.borrow();
        if batches.front().is_none_or(|first| first.base_offset > offset) {
            return None;
        }
        let mut left_bytes = max_bytes;
        let mut found = Vec::new();
        let from = batches.partition_point(|batch| batch.last_offset < offset);
        for batch in batches.range(from..) {
            let fits = batch.bytes.len() <= left_bytes || (found.is_empty() && min_one_batch);
            if batch.last_offset >= upper_bound || !fits {
                break;
            }
            left_bytes = left_bytes.saturating_sub(batch.bytes.len());
            found.push(batch.clone());
        }
        Some(found)
    }

    /// Gives back memory that is there for more batches.
    pub fn shrink(&self) {
        self.batches.borrow_mut().shrink_to_fit();
    }

    /// False when the oldest batch is pinned, and when there is none.
    fn evict_oldest(&self) -> bool {
        let mut batches = self.batches.borrow_mut();
        match batches.front() {
            Some(oldest) if oldest.last_offset >= self.pinned_from.get() => false,
            Some(oldest) => {
                self.note_gone(oldest);
                batches.pop_front();
                true
            }
            None => false,
        }
    }

    fn note_gone(&self, batch: &TailBatch) {
        let cost = cost_bytes(batch);
        self.budget.used_bytes.update(|used| used - cost);
        self.budget.kept_batches.update(|kept| kept - 1);
        self.kept_bytes.update(|kept| kept - cost);
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.budget.used_bytes.update(|used| used - self.kept_bytes.get());
        self.budget.kept_batches.update(|kept| kept - self.batches.get_mut().len());
        self.budget.tidy();
    }
}

fn cost_bytes(batch: &TailBatch) -> usize {
    batch.bytes.len() + BATCH_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(base_offset: i64, last_offset: i64, len: usize) -> TailBatch {
        TailBatch { base_offset, last_offset, bytes: Bytes::from(vec![0; len]) }
    }

    fn void_places(budget: &TailBudget) -> usize {
        budget.order.borrow().len() - budget.kept_batches.get()
    }

    fn offsets(found: Option<Vec<TailBatch>>) -> Option<Vec<i64>> {
        found.map(|batches| batches.iter().map(|batch| batch.base_offset).collect())
    }

    #[test]
    fn reads_whole_batches_within_both_bounds() {
        // A read begins with the batch that holds the offset and never splits one.
        let tail = Tail::new(TailBudget::new(1 << 20), 0);
        for at in 0..4 {
            tail.push(batch(10 + at * 10, 19 + at * 10, 100));
        }
        for (case, offset, upper_bound, max_bytes, min_one, want) in [
            ("before everything kept", 9, 50, 1000, true, None),
            ("inside a batch", 15, 50, 1000, false, Some(vec![10, 20, 30, 40])),
            ("bytes", 20, 50, 250, false, Some(vec![20, 30])),
            ("upper bound inside a batch", 10, 45, 1000, false, Some(vec![10, 20, 30])),
            ("first one too large", 10, 50, 50, false, Some(vec![])),
            ("first one whatever its size", 10, 50, 50, true, Some(vec![10])),
            ("at the end", 50, 50, 1000, true, Some(vec![])),
        ] {
            assert_eq!(offsets(tail.read(offset, upper_bound, max_bytes, min_one)), want, "{case}");
        }
    }

    #[test]
    fn the_oldest_of_the_shard_goes_first_and_pinned_ones_stay() {
        // What is not in a segment cannot be forgotten; everything else obeys the budget.
        let budget = TailBudget::new(1000);
        let (first, second) = (Tail::new(Rc::clone(&budget), 0), Tail::new(Rc::clone(&budget), 0));
        for at in 0..10 {
            first.push(batch(at, at, 104));
        }
        assert_eq!(budget.used_bytes(), 2000);
        first.unpin(10);
        assert_eq!(budget.used_bytes(), 1000);
        assert_eq!(offsets(first.read(4, 10, 1000, true)), None);
        second.push(batch(0, 0, 104));
        assert_eq!(offsets(first.read(5, 10, 1000, true)), None);
        drop(first);
        assert_eq!(budget.used_bytes(), 200);
        drop(second);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn what_is_forgotten_leaves_nothing_behind() {
        // A tail that forgets its oldest batches gives back their budget and their places in the queue.
        let budget = TailBudget::new(1000);
        let (first, second) = (Tail::new(Rc::clone(&budget), 0), Tail::new(Rc::clone(&budget), 0));
        for at in 0..3 {
            first.push(batch(at * 10, at * 10 + 9, 104));
            second.push(batch(at, at, 104));
        }
        first.unpin(30);
        first.forget_below(25);
        assert_eq!(offsets(first.read(15, 30, 1000, true)), None);
        assert_eq!(offsets(first.read(20, 30, 1000, true)), Some(vec![20]));
        assert_eq!((budget.used_bytes(), budget.order.borrow().len()), (800, 5));
        assert_eq!(offsets(second.read(0, 3, 1000, true)), Some(vec![0, 1, 2]));
        first.forget_below(30);
        second.unpin(3);
        second.forget_below(1);
        assert_eq!((budget.used_bytes(), budget.order.borrow().len(), void_places(&budget)), (400, 2, 0));
        assert_eq!(offsets(second.read(1, 3, 1000, true)), Some(vec![1, 2]));
    }

    #[test]
    fn a_log_nobody_reads_keeps_little() {
        // Rule: the budget is for logs that are read; what waits to be written stays in any case.
        let batches = i64::try_from(2 * UNREAD_BYTES / 100_000).expect("few");
        for (reads_from, is_written, keeps) in [
            // Never, in every step, for a while, without a segment.
            (0..0, true, 0..=UNREAD_KEPT_BYTES),
            (0..batches, true, 2 * UNREAD_BYTES - 100_000..=2 * UNREAD_BYTES),
            (0..9, true, 0..=UNREAD_KEPT_BYTES),
            (batches - 9..batches, true, 0..=UNREAD_KEPT_BYTES + 1_000_000),
            (0..0, false, 2 * UNREAD_BYTES - 100_000..=2 * UNREAD_BYTES),
        ] {
            let budget = TailBudget::new(1 << 30);
            let tail = Tail::new(Rc::clone(&budget), 0);
            let bytes = Bytes::from(vec![0; 100_000 - BATCH_OVERHEAD_BYTES]);
            for at in 0..batches {
                tail.push(TailBatch { base_offset: at, last_offset: at, bytes: bytes.clone() });
                tail.unpin(if is_written { at + 1 } else { 0 });
                if reads_from.contains(&at) {
                    tail.read(at, at + 1, 1000, true);
                }
            }
            let (used, places) = (budget.used_bytes(), budget.order.borrow().len());
            assert!(keeps.contains(&used), "{reads_from:?}: {used}");
            assert!(places <= 2 * used / 100_000 + 1, "{reads_from:?}: {places} places");
            drop(tail);
            assert_eq!((budget.used_bytes(), void_places(&budget)), (0, 0));
        }
    }

    #[test]
    fn truncation_returns_the_budget() {
        // A batch that reaches beyond the new end goes whole.
        let budget = TailBudget::new(1000);
        let tail = Tail::new(Rc::clone(&budget), 0);
        tail.push(batch(0, 4, 104));
        tail.push(batch(5, 9, 104));
        tail.truncate(7);
        assert_eq!((budget.used_bytes(), offsets(tail.read(0, 10, 1000, true))), (200, Some(vec![0])));
    }
}
