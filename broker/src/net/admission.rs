//! Memory of a shard's frames and replies: taken before a body is read, given back when the last user lets go.
//!
//! One unit is one byte. Requests for units are granted in order of arrival, so that a large frame is not overtaken for
//! ever by small ones; a connection that waits here does not read, so its client is slowed by TCP. Replies whose size is
//! known only when they are made are charged afterwards and may overdraw the budget; then frames wait until it is even.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use walser_storage::runtime::channel::{OneshotReceiver, OneshotSender, oneshot};

/// Frames and replies are charged in these steps, which are also the sizes the allocator serves without waste.
const SIZE_CLASSES: [usize; 6] = [256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10];

/// What `bytes` are charged: the next size class, above the largest the next multiple of it.
pub fn size_class(bytes: usize) -> usize {
    let [.., largest] = SIZE_CLASSES;
    SIZE_CLASSES.into_iter().find(|class| *class >= bytes).unwrap_or_else(|| bytes.next_multiple_of(largest))
}

struct Waiting {
    bytes: usize,
    granted: OneshotSender<()>,
}

struct State {
    budget: usize,
    used: Cell<usize>,
    waiting: RefCell<VecDeque<Waiting>>,
}

/// A shard's budget. Clones share it.
#[derive(Clone)]
pub struct Admission(Rc<State>);

impl Admission {
    /// `budget` in bytes.
    pub fn new(budget: usize) -> Self {
        Self(Rc::new(State { budget, used: Cell::new(0), waiting: RefCell::default() }))
    }

    /// Waits for `bytes`. What exceeds the whole budget is granted when nothing else is held, or it would wait for ever.
    pub async fn acquire(&self, bytes: usize) -> MemoryUnits {
        let bytes = size_class(bytes);
        if self.0.waiting.borrow().is_empty() && self.0.fits(bytes) {
            return self.take(bytes);
        }
        let (granted, mut wait) = oneshot();
        self.0.waiting.borrow_mut().push_back(Waiting { bytes, granted });
        let mut undo = Undo { state: &self.0, bytes, wait: Some(&mut wait) };
        if let Some(wait) = undo.wait.as_mut() {
            // Whoever grants keeps the sender until then, so this cannot fail.
            (&mut **wait).await.ok();
        }
        undo.wait = None;
        drop(undo);
        // Charged by who granted it.
        MemoryUnits { state: Rc::clone(&self.0), bytes }
    }

    /// Charges `bytes` that exist already.
    pub fn charge(&self, bytes: usize) -> MemoryUnits {
        self.take(size_class(bytes))
    }

    /// Bytes held.
    pub fn used(&self) -> usize {
        self.0.used.get()
    }

    /// Frames that wait for units: who holds some and makes no progress is in their way.
    pub fn waiting_count(&self) -> usize {
        self.0.waiting.borrow().len()
    }

    fn take(&self, bytes: usize) -> MemoryUnits {
        self.0.used.set(self.0.used.get().saturating_add(bytes));
        MemoryUnits { state: Rc::clone(&self.0), bytes }
    }
}

impl State {
    fn fits(&self, bytes: usize) -> bool {
        self.used.get() == 0 || self.used.get().saturating_add(bytes) <= self.budget
    }

    fn release(&self, bytes: usize) {
        self.used.set(self.used.get().checked_sub(bytes).expect("units are given back once"));
        self.grant();
    }

    fn grant(&self) {
        loop {
            let next = {
                let mut waiting = self.waiting.borrow_mut();
                match waiting.front() {
                    Some(front) if front.granted.is_closed() => {
                        waiting.pop_front();
                        continue;
                    }
                    Some(front) if self.fits(front.bytes) => waiting.pop_front(),
                    Some(_) | None => None,
                }
            };
            let Some(next) = next else { return };
            self.used.set(self.used.get().saturating_add(next.bytes));
            if next.granted.send(()).is_err() {
                self.used.set(self.used.get() - next.bytes);
            }
        }
    }
}

/// Gives a grant back that came just before its waiter was dropped.
struct Undo<'a> {
    state: &'a State,
    bytes: usize,
    wait: Option<&'a mut OneshotReceiver<()>>,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if let Some(wait) = &mut self.wait
            && wait.try_take().is_some()
        {
            self.state.release(self.bytes);
        }
    }
}

/// Units held; given back when dropped.
pub struct MemoryUnits {
    state: Rc<State>,
    bytes: usize,
}

impl MemoryUnits {
    /// Bytes charged.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for MemoryUnits {
    fn drop(&mut self) {
        self.state.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, poll_once};
    use std::pin::pin;

    #[test]
    fn frames_wait_until_units_come_back() {
        // Rule: what does not fit waits, and is granted when enough was given back.
        block_on(async {
            let admission = Admission::new(64 << 10);
            let first = admission.acquire(40 << 10).await;
            let mut second = pin!(admission.acquire(16 << 10));
            assert!(poll_once(&mut second).await.is_none());
            assert_eq!(admission.waiting_count(), 1);
            drop(first);
            assert_eq!(poll_once(&mut second).await.expect("granted").bytes(), 16 << 10);
            assert_eq!(admission.used(), 0);
        });
    }

    #[test]
    fn order_of_arrival_is_kept() {
        // Rule: a small frame does not overtake a large one that waits.
        block_on(async {
            let admission = Admission::new(64 << 10);
            let held = admission.acquire(16 << 10).await;
            let mut large = pin!(admission.acquire(64 << 10));
            assert!(poll_once(&mut large).await.is_none());
            let mut small = pin!(admission.acquire(1));
            assert!(poll_once(&mut small).await.is_none());
            drop(held);
            let large = poll_once(&mut large).await.expect("first in line");
            assert!(poll_once(&mut small).await.is_none());
            drop(large);
            assert!(poll_once(&mut small).await.is_some());
        });
    }

    #[test]
    fn a_dropped_waiter_leaks_nothing() {
        // Rule: a wait that is given up, granted or not, holds no units and blocks nobody.
        block_on(async {
            let admission = Admission::new(1 << 10);
            let held = admission.acquire(1 << 10).await;
            {
                let mut gone = Box::pin(admission.acquire(256));
                assert!(poll_once(&mut gone).await.is_none());
            }
            let mut granted_then_dropped = Box::pin(admission.acquire(256));
            assert!(poll_once(&mut granted_then_dropped).await.is_none());
            drop(held);
            assert_eq!(admission.used(), 256);
            drop(granted_then_dropped);
            assert_eq!(admission.used(), 0);
            assert_eq!(admission.waiting_count(), 0);
        });
    }

    #[test]
    fn a_frame_above_the_budget_gets_it_alone() {
        // Rule: a frame larger than the budget is read when nothing else is held, never beside others.
        block_on(async {
            let admission = Admission::new(1 << 10);
            let held = admission.charge(1);
            let mut huge = pin!(admission.acquire(1 << 20));
            assert!(poll_once(&mut huge).await.is_none());
            drop(held);
            assert!(poll_once(&mut huge).await.is_some());
        });
    }
}
