//! Fetches that wait for partitions to move.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use walser_storage::runtime::channel::Notify;

/// Names a parked fetch: the connection's id and a count of its own.
pub type WaitId = (u64, u64);

/// One fetch that waits for any of several partitions.
#[derive(Default)]
pub struct Waiter {
    moved: Notify,
    /// Which of its partitions have moved since it last looked.
    dirty: RefCell<Vec<usize>>,
}

impl Waiter {
    /// Takes the partitions that have moved; waits until there is one. Woken without one by [`Waiters::wake_all`].
    pub async fn next(&self) -> Vec<usize> {
        loop {
            let moved = self.moved.notified();
            let dirty = std::mem::take(&mut *self.dirty.borrow_mut());
            if !dirty.is_empty() {
                return dirty;
            }
            moved.await;
        }
    }
}

/// Who waits for one partition.
#[derive(Default)]
pub struct Waiters {
    entries: RefCell<Entries>,
}

#[derive(Default)]
struct Entries {
    next_id: u64,
    waiters: BTreeMap<u64, (Rc<Waiter>, usize)>,
}

/// Ends a waiter's interest in one partition when dropped.
pub struct Interest {
    waiters: Rc<Waiters>,
    id: u64,
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.waiters.entries.borrow_mut().waiters.remove(&self.id);
    }
}

impl Waiters {
    /// `index`: how the waiter calls this partition.
    pub fn join(self: &Rc<Self>, waiter: &Rc<Waiter>, index: usize) -> Interest {
        let mut entries = self.entries.borrow_mut();
        let id = entries.next_id;
        entries.next_id += 1;
        entries.waiters.insert(id, (Rc::clone(waiter), index));
        Interest { waiters: Rc::clone(self), id }
    }

    /// The partition has moved: its high watermark, its start, its health, or it is gone.
    pub fn wake_all(&self) {
        for (waiter, index) in self.entries.borrow().waiters.values() {
            let mut dirty = waiter.dirty.borrow_mut();
            if !dirty.contains(index) {
                dirty.push(*index);
            }
            drop(dirty);
            waiter.moved.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A waiter hears once of each partition that moved, and of none it no longer cares for.
    #[test]
    fn wakes_name_what_moved() {
        let (first, second) = (Rc::new(Waiters::default()), Rc::new(Waiters::default()));
        let waiter = Rc::new(Waiter::default());
        let kept = first.join(&waiter, 0);
        let left = second.join(&waiter, 1);
        first.wake_all();
        first.wake_all();
        second.wake_all();
        assert_eq!(futures_lite::future::block_on(waiter.next()), [0, 1]);
        drop(left);
        second.wake_all();
        first.wake_all();
        assert_eq!(futures_lite::future::block_on(waiter.next()), [0]);
        drop(kept);
        assert!(first.entries.borrow().waiters.is_empty());
    }
}
