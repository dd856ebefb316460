//! Memory of a shard's frames and replies: taken before a body is read, given back when the last user lets go.
//!
//! One unit is one byte. Frames that are whole and frames of which the rest has still to come are granted apart, each in
//! order of arrival: a client that stops in the middle of a large frame is in nobody's way but of those who send large
//! frames, too. A connection that waits here does not read, so its client is slowed by TCP. What is known only afterwards
//! is charged then and may overdraw the budget; frames wait until it is even.

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

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Bytes that are there: a whole frame, or a reply.
    Whole,
    /// A frame of which the rest may never come.
    Receiving,
}

struct State {
    budget: usize,
    whole: Cell<usize>,
    receiving: Cell<usize>,
    whole_waiting: RefCell<VecDeque<Waiting>>,
    receiving_waiting: RefCell<VecDeque<Waiting>>,
}

/// A shard's budget. Clones share it.
#[derive(Clone)]
pub struct Admission(Rc<State>);

impl Admission {
    /// `budget` in bytes.
    pub fn new(budget: usize) -> Self {
        Self(Rc::new(State {
            budget,
            whole: Cell::new(0),
            receiving: Cell::new(0),
            whole_waiting: RefCell::default(),
            receiving_waiting: RefCell::default(),
        }))
    }

    /// Waits for `bytes`. What exceeds the whole budget is granted when no other is held, or it would wait for ever.
    pub async fn acquire(&self, bytes: usize) -> MemoryUnits {
        self.acquire_for(Class::Whole, bytes).await
    }

    /// Waits for the `bytes` of a frame that has not come yet. All such frames together get half of the budget, so that
    /// frames that never end leave the other half to those that are there. One above it gets it alone.
    pub async fn acquire_receiving(&self, bytes: usize) -> MemoryUnits {
        self.acquire_for(Class::Receiving, bytes).await
    }

    async fn acquire_for(&self, class: Class, bytes: usize) -> MemoryUnits {
        let bytes = size_class(bytes);
        if self.0.waiting(class).borrow().is_empty() && self.0.fits(class, bytes) {
            return self.take(class, bytes);
        }
        let (granted, mut wait) = oneshot();
        self.0.waiting(class).borrow_mut().push_back(Waiting { bytes, granted });
        let mut undo = Undo { state: &self.0, class, bytes, wait: Some(&mut wait) };
        if let Some(wait) = undo.wait.as_mut() {
            // Whoever grants keeps the sender until then, so this cannot fail.
            (&mut **wait).await.ok();
        }
        undo.wait = None;
        drop(undo);
        // Charged by who granted it.
        MemoryUnits { state: Rc::clone(&self.0), class, bytes }
    }

    /// Charges `bytes` that exist already.
    pub fn charge(&self, bytes: usize) -> MemoryUnits {
        self.take(Class::Whole, size_class(bytes))
    }

    /// Whether somebody waits, or would have to for another `bytes` of a frame that is not there.
    pub fn is_short(&self, bytes: usize) -> bool {
        self.waiting_count() > 0 || !self.0.fits(Class::Receiving, size_class(bytes))
    }

    /// Bytes held.
    pub fn used(&self) -> usize {
        self.0.whole.get().saturating_add(self.0.receiving.get())
    }

    /// Frames that wait for units: who holds some and makes no progress is in their way.
    pub fn waiting_count(&self) -> usize {
        self.0.whole_waiting.borrow().len() + self.0.receiving_waiting.borrow().len()
    }

    fn take(&self, class: Class, bytes: usize) -> MemoryUnits {
        self.0.add(class, bytes);
        MemoryUnits { state: Rc::clone(&self.0), class, bytes }
    }
}

impl State {
    const fn used(&self, class: Class) -> &Cell<usize> {
        match class {
            Class::Whole => &self.whole,
            Class::Receiving => &self.receiving,
        }
    }

    const fn waiting(&self, class: Class) -> &RefCell<VecDeque<Waiting>> {
        match class {
            Class::Whole => &self.whole_waiting,
            Class::Receiving => &self.receiving_waiting,
        }
    }

    fn add(&self, class: Class, bytes: usize) {
        self.used(class).set(self.used(class).get().saturating_add(bytes));
    }

    fn fits(&self, class: Class, bytes: usize) -> bool {
        let (whole, receiving) = (self.whole.get(), self.receiving.get());
        let half = self.budget / 2;
        match class {
            Class::Receiving if receiving == 0 && whole <= half => true,
            Class::Receiving => {
                let receiving = receiving.saturating_add(bytes);
                receiving <= half && whole.saturating_add(receiving) <= self.budget
            }
            Class::Whole => {
                // Those who wait to receive get their half, too.
                let next = self.receiving_waiting.borrow().front().map_or(0, |waiting| waiting.bytes);
                let kept = receiving.saturating_add(next).min(half);
                whole == 0 || whole.saturating_add(bytes) <= self.budget - kept
            }
        }
    }

    fn release(&self, class: Class, bytes: usize) {
        let used = self.used(class);
        used.set(used.get().checked_sub(bytes).expect("units are given back once"));
        self.grant();
    }

    fn grant(&self) {
        while self.grant_next(Class::Whole) || self.grant_next(Class::Receiving) {}
    }

    /// Lets the first of a class go on; false when there is none or it does not fit.
    fn grant_next(&self, class: Class) -> bool {
        loop {
            let next = {
                let mut waiting = self.waiting(class).borrow_mut();
                match waiting.front().map(|front| (front.granted.is_closed(), front.bytes)) {
                    None => return false,
                    Some((true, _)) => {
                        waiting.pop_front();
                        continue;
                    }
                    Some((false, bytes)) => {
                        drop(waiting);
                        if !self.fits(class, bytes) {
                            return false;
                        }
                        self.waiting(class).borrow_mut().pop_front()
                    }
                }
            };
            let Some(next) = next else { return false };
            self.add(class, next.bytes);
            if next.granted.send(()).is_err() {
                self.used(class).set(self.used(class).get() - next.bytes);
            }
            return true;
        }
    }
}

/// Gives a grant back that came just before its waiter was dropped.
struct Undo<'a> {
    state: &'a State,
    class: Class,
    bytes: usize,
    wait: Option<&'a mut OneshotReceiver<()>>,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if let Some(wait) = &mut self.wait
            && wait.try_take().is_some()
        {
            self.state.release(self.class, self.bytes);
        }
    }
}

/// Units held; given back when dropped.
pub struct MemoryUnits {
    state: Rc<State>,
    class: Class,
    bytes: usize,
}

impl MemoryUnits {
    /// Bytes charged.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The frame is whole now.
    pub fn note_received(&mut self) {
        if self.class == Class::Receiving {
            self.class = Class::Whole;
            self.state.add(Class::Whole, self.bytes);
            self.state.release(Class::Receiving, self.bytes);
        }
    }

    /// Charges what has been made of the bytes, too.
    pub fn grow(&mut self, bytes: usize) {
        self.state.add(self.class, bytes);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Charges what was needed in the end, in place of what was asked for.
    pub fn settle(&mut self, bytes: usize) {
        let (bytes, held) = (size_class(bytes), self.bytes);
        self.bytes = bytes;
        self.state.add(self.class, bytes);
        self.state.release(self.class, held);
    }
}

impl Drop for MemoryUnits {
    fn drop(&mut self) {
        self.state.release(self.class, self.bytes);
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
            assert!(admission.is_short(1));
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
    fn half_sent_frames_leave_half_the_budget_to_whole_ones() {
        // Rule: frames that never end do not keep out frames that are there, and those do not keep out new ones for ever.
        block_on(async {
            let admission = Admission::new(128 << 10);
            let mut held = Vec::new();
            for _ in 0..4 {
                held.push(admission.acquire_receiving(16 << 10).await);
            }
            let mut fifth = pin!(admission.acquire_receiving(16 << 10));
            assert!(poll_once(&mut fifth).await.is_none());
            for _ in 0..4 {
                drop(admission.acquire(64 << 10).await);
            }
            let first = admission.acquire(64 << 10).await;
            let mut second = pin!(admission.acquire(256));
            assert!(poll_once(&mut second).await.is_none(), "one half is for receiving");
            held[0].note_received();
            assert!(poll_once(&mut fifth).await.is_none(), "what was received is still held");
            drop(first);
            assert!(poll_once(&mut fifth).await.is_some());
            assert!(poll_once(&mut second).await.is_some());
        });
    }

    #[test]
    fn what_is_needed_in_the_end_is_charged() {
        // Rule: units follow what they stand for, and nothing is left when they are gone.
        block_on(async {
            let admission = Admission::new(128 << 10);
            let mut units = admission.acquire(64 << 10).await;
            units.settle(1000);
            assert_eq!((units.bytes(), admission.used()), (1024, 1024));
            units.grow(500);
            assert_eq!((units.bytes(), admission.used()), (1524, 1524));
            drop(units);
            assert_eq!(admission.used(), 0);
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
