//! Requests that wait: for enough bytes, for a change of a partition, or for their time to be over. One per shard.
//!
//! Inputs: [`Purgatory::watch`], [`Purgatory::handle_progress`], [`Purgatory::handle_change`], [`Purgatory::handle_time`],
//! [`Purgatory::cancel`]. Output: [`Purgatory::poll_completed`], each waiter exactly once, in the order in which they completed.
//!
//! The bytes that a waiter still misses are counted down, not looked up: an append wakes nobody who needs more. The count is a
//! hint (limits per partition are not known here), so whoever is woken reads again and may watch again with the same deadline.
//!
//! | waiter | progress of a key, less than missing | progress, the rest | change of a key | deadline | cancelled |
//! | --- | --- | --- | --- | --- | --- |
//! | waiting | waiting, misses less | completed, `Enough` | completed, `Changed` | completed, `Expired` | gone |

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use thiserror::Error;

use crate::timing_wheel::{TimerId, TimingWheel};

/// Names one waiter, for [`Purgatory::cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(u64);

/// Why a waiter waits no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// What it asked for should be there.
    Enough,
    /// One of its keys is not what it was: leader, epoch, log start, an error. It must look again.
    Changed,
    /// Its deadline has come.
    Expired,
}

/// As many waiters as may be; the request is answered with what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{waiters_max} requests wait already")]
pub struct Full {
    pub waiters_max: usize,
}

/// `K`: what is waited for, a partition; `W`: what is handed back, a request.
#[derive(Debug)]
pub struct Purgatory<K, W> {
    waiters: BTreeMap<WaiterId, Waiter<K, W>>,
    by_key: BTreeMap<K, BTreeSet<WaiterId>>,
    deadlines: TimingWheel<WaiterId>,
    completed: VecDeque<(W, Wake)>,
    next_id: u64,
    waiters_max: usize,
}

#[derive(Debug)]
struct Waiter<K, W> {
    keys: Vec<K>,
    /// Never 0.
    missing: u64,
    timer: TimerId,
    value: W,
}

impl<K: Ord + Clone, W> Purgatory<K, W> {
    /// `waiters_max` bounds memory: a waiter holds its request.
    pub fn new(now_ms: u64, waiters_max: usize) -> Self {
        Self {
            waiters: BTreeMap::new(),
            by_key: BTreeMap::new(),
            deadlines: TimingWheel::new(now_ms),
            completed: VecDeque::new(),
            next_id: 0,
            waiters_max,
        }
    }

    /// Waiters that have not completed.
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Waits until `missing` bytes have come over all `keys` together, one of them changes, or `deadline_ms` has come. With
    /// nothing missing it would not wait; that counts as one byte missing.
    ///
    /// # Errors
    /// [`Full`], with the value handed back.
    pub fn watch(
        &mut self,
        keys: impl IntoIterator<Item = K>,
        missing: u64,
        deadline_ms: u64,
        value: W,
    ) -> Result<WaiterId, (Full, W)> {
        if self.waiters.len() >= self.waiters_max {
            return Err((Full { waiters_max: self.waiters_max }, value));
        }
        let id = WaiterId(self.next_id);
        self.next_id += 1;
        let keys: Vec<K> = keys.into_iter().collect();
        for key in &keys {
            self.by_key.entry(key.clone()).or_default().insert(id);
        }
        let timer = self.deadlines.insert(deadline_ms, id);
        self.waiters.insert(id, Waiter { keys, missing: missing.max(1), timer, value });
        Ok(id)
    }

    /// `bytes` more can be read of `key`. The oldest waiters are served first.
    pub fn handle_progress(&mut self, key: &K, bytes: u64) {
        let Some(waiting) = self.by_key.get(key) else { return };
        let mut enough = Vec::new();
        for id in waiting {
            if let Some(waiter) = self.waiters.get_mut(id) {
                waiter.missing = waiter.missing.saturating_sub(bytes);
                if waiter.missing == 0 {
                    enough.push(*id);
                }
            }
        }
        for id in enough {
            self.complete(id, Wake::Enough);
        }
    }

    /// Whoever waits on `key` must look again.
    pub fn handle_change(&mut self, key: &K) {
        let Some(waiting) = self.by_key.get(key) else { return };
        let changed: Vec<WaiterId> = waiting.iter().copied().collect();
        for id in changed {
            self.complete(id, Wake::Changed);
        }
    }

    /// Deadlines up to `now_ms` (inclusive) have come.
    pub fn handle_time(&mut self, now_ms: u64) {
        self.deadlines.advance(now_ms);
        while let Some(id) = self.deadlines.poll_due() {
            self.complete(id, Wake::Expired);
        }
    }

    /// The value of a waiter that has not completed: its connection is gone.
    pub fn cancel(&mut self, id: WaiterId) -> Option<W> {
        self.remove(id)
    }

    /// Everything completes as changed: the shard stops.
    pub fn handle_stop(&mut self) {
        let waiting: Vec<WaiterId> = self.waiters.keys().copied().collect();
        for id in waiting {
            self.complete(id, Wake::Changed);
        }
    }

    pub fn poll_completed(&mut self) -> Option<(W, Wake)> {
        self.completed.pop_front()
    }

    /// When to call [`Self::handle_time`] next; `None`: nobody waits.
    pub fn next_wake_ms(&self) -> Option<u64> {
        self.deadlines.next_wake_ms()
    }

    fn complete(&mut self, id: WaiterId, wake: Wake) {
        if let Some(value) = self.remove(id) {
            self.completed.push_back((value, wake));
        }
    }

    fn remove(&mut self, id: WaiterId) -> Option<W> {
        let waiter = self.waiters.remove(&id)?;
        self.deadlines.cancel(waiter.timer);
        for key in &waiter.keys {
            if let Some(waiting) = self.by_key.get_mut(key) {
                waiting.remove(&id);
                if waiting.is_empty() {
                    self.by_key.remove(key);
                }
            }
        }
        Some(waiter.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(purgatory: &mut Purgatory<u32, char>) -> Vec<(char, Wake)> {
        std::iter::from_fn(|| purgatory.poll_completed()).collect()
    }

    #[test]
    fn bytes_add_up_over_partitions() {
        // Rule: a waiter completes when its partitions together have brought what it misses, and only once.
        let mut purgatory = Purgatory::new(0, 10);
        purgatory.watch([1, 2], 100, 500, 'a').unwrap();
        purgatory.watch([2], 1, 500, 'b').unwrap();
        purgatory.handle_progress(&1, 60);
        assert_eq!(completed(&mut purgatory), []);
        purgatory.handle_progress(&2, 40);
        assert_eq!(completed(&mut purgatory), [('a', Wake::Enough), ('b', Wake::Enough)]);
        purgatory.handle_progress(&2, 40);
        purgatory.handle_time(1000);
        assert_eq!(completed(&mut purgatory), []);
        assert!(purgatory.is_empty() && purgatory.next_wake_ms().is_none());
    }

    #[test]
    fn deadlines_and_changes_complete_waiters() {
        // Rule: whatever comes first, the deadline or a change, ends the wait; the other then finds nobody.
        let mut purgatory = Purgatory::new(0, 10);
        purgatory.watch([1], 100, 20, 'a').unwrap();
        purgatory.watch([1, 2], 100, 10, 'b').unwrap();
        purgatory.watch([2], 100, 30, 'c').unwrap();
        purgatory.handle_time(10);
        assert_eq!(completed(&mut purgatory), [('b', Wake::Expired)]);
        purgatory.handle_change(&2);
        assert_eq!(completed(&mut purgatory), [('c', Wake::Changed)]);
        purgatory.handle_time(19);
        assert_eq!(completed(&mut purgatory), []);
        purgatory.handle_time(20);
        assert_eq!(completed(&mut purgatory), [('a', Wake::Expired)]);
        assert!(purgatory.by_key.is_empty());
    }

    #[test]
    fn a_fetch_of_nothing_waits_for_time_alone() {
        // Rule: without keys only the deadline ends a wait.
        let mut purgatory: Purgatory<u32, char> = Purgatory::new(5, 10);
        purgatory.watch([], 0, 6, 'a').unwrap();
        purgatory.handle_time(6);
        assert_eq!(completed(&mut purgatory), [('a', Wake::Expired)]);
    }

    #[test]
    fn waiters_are_bounded_and_can_be_taken_back() {
        // Rule: one too many is handed back; a cancelled waiter makes room and never completes.
        let mut purgatory = Purgatory::new(0, 1);
        let first = purgatory.watch([1], 1, 10, 'a').unwrap();
        assert_eq!(purgatory.watch([1], 1, 10, 'b'), Err((Full { waiters_max: 1 }, 'b')));
        assert_eq!(purgatory.cancel(first), Some('a'));
        assert_eq!(purgatory.cancel(first), None);
        purgatory.watch([1], 1, 10, 'b').unwrap();
        purgatory.handle_stop();
        assert_eq!(completed(&mut purgatory), [('b', Wake::Changed)]);
    }
}
