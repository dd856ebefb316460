//! Channels and waits inside one shard.
//!
//! All of these are `Rc` and `RefCell`: they never leave their thread, cost no atomics, and know no executor, so the same
//! code runs on glommio and in the simulator. Every future here may be dropped at any await without losing a wake-up, a
//! permit or a message that was not yet handed over. Wakers are called after the borrow of the state has ended, because a
//! waker may run code that comes back here.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The other end is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other end of the channel is gone")]
pub struct Closed;

// ---- oneshot

struct OneshotState<T> {
    value: Option<T>,
    receiver: Option<Waker>,
    sender_alive: bool,
    receiver_alive: bool,
}

/// Sends one value. Dropped unused, the receiver gets [`Closed`].
pub struct OneshotSender<T> {
    state: Rc<RefCell<OneshotState<T>>>,
}

/// A future of the one value.
pub struct OneshotReceiver<T> {
    state: Rc<RefCell<OneshotState<T>>>,
}

/// A channel for a single value.
pub fn oneshot<T>() -> (OneshotSender<T>, OneshotReceiver<T>) {
    let state = OneshotState { value: None, receiver: None, sender_alive: true, receiver_alive: true };
    let state = Rc::new(RefCell::new(state));
    (OneshotSender { state: state.clone() }, OneshotReceiver { state })
}

impl<T> OneshotSender<T> {
    /// Gives the value back when nobody waits for it any more.
    pub fn send(self, value: T) -> Result<(), T> {
        let mut state = self.state.borrow_mut();
        if !state.receiver_alive {
            return Err(value);
        }
        state.value = Some(value);
        Ok(()) // The drop of `self` wakes the receiver.
    }

    /// Whether the receiver was dropped.
    pub fn is_closed(&self) -> bool {
        !self.state.borrow().receiver_alive
    }
}

impl<T> Drop for OneshotSender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut state = self.state.borrow_mut();
            state.sender_alive = false;
            state.receiver.take()
        };
        wake(waker);
    }
}

impl<T> Future for OneshotReceiver<T> {
    type Output = Result<T, Closed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.state.borrow_mut();
        if let Some(value) = state.value.take() {
            return Poll::Ready(Ok(value));
        }
        if !state.sender_alive {
            return Poll::Ready(Err(Closed));
        }
        state.receiver = Some(context.waker().clone());
        Poll::Pending
    }
}

impl<T> OneshotReceiver<T> {
    /// The value, if it has been sent and not been taken.
    pub fn try_take(&mut self) -> Option<T> {
        self.state.borrow_mut().value.take()
    }
}

impl<T> Drop for OneshotReceiver<T> {
    fn drop(&mut self) {
        let (value, waker) = {
            let mut state = self.state.borrow_mut();
            state.receiver_alive = false;
            (state.value.take(), state.receiver.take())
        };
        drop((value, waker));
    }
}

// ---- bounded, many senders to one receiver

struct ChannelState<T> {
    queue: VecDeque<T>,
    capacity: usize,
    sender_count: usize,
    receiver_alive: bool,
    receiver: Option<Waker>,
    /// Senders that wait for room, by ticket: the first to come is the first to send.
    waiting: BTreeMap<u64, Waker>,
    next_ticket: u64,
}

impl<T> ChannelState<T> {
    fn has_room(&self) -> bool {
        self.queue.len() < self.capacity
    }

    /// The sender whose turn it is. It stays in line until it has sent or was dropped, so its turn is never lost.
    fn next_sender(&self) -> Option<Waker> {
        if !self.has_room() {
            return None;
        }
        self.waiting.first_key_value().map(|(_, waker)| waker.clone())
    }
}

/// What [`Sender::try_send`] gives back.
#[derive(Debug, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// No room, or other senders wait for it.
    Full(T),
    /// The receiver is gone.
    Closed(T),
}

/// Sending end; clones share the channel, the last one dropped closes it.
pub struct Sender<T> {
    state: Rc<RefCell<ChannelState<T>>>,
}

/// Receiving end.
pub struct Receiver<T> {
    state: Rc<RefCell<ChannelState<T>>>,
}

/// A queue of at most `capacity` values, first in, first out.
///
/// # Panics
/// When `capacity` is 0: nothing could ever pass.
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0, "a channel without room passes nothing");
    let state = Rc::new(RefCell::new(ChannelState {
        queue: VecDeque::new(),
        capacity,
        sender_count: 1,
        receiver_alive: true,
        receiver: None,
        waiting: BTreeMap::new(),
        next_ticket: 0,
    }));
    (Sender { state: state.clone() }, Receiver { state })
}

impl<T> Sender<T> {
    /// Sends without waiting.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let waker = {
            let mut state = self.state.borrow_mut();
            if !state.receiver_alive {
                return Err(TrySendError::Closed(value));
            }
            if !state.has_room() || !state.waiting.is_empty() {
                return Err(TrySendError::Full(value));
            }
            state.queue.push_back(value);
            state.receiver.take()
        };
        wake(waker);
        Ok(())
    }

    /// Waits for room. Dropped before it is done, the value is not sent. An error gives the value back.
    pub fn send(&self, value: T) -> SendFuture<T> {
        SendFuture { state: self.state.clone(), value: Some(value), ticket: None }
    }

    /// Values queued.
    pub fn len(&self) -> usize {
        self.state.borrow().queue.len()
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the receiver was dropped.
    pub fn is_closed(&self) -> bool {
        !self.state.borrow().receiver_alive
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.state.borrow_mut().sender_count += 1;
        Self { state: self.state.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut state = self.state.borrow_mut();
            state.sender_count -= 1;
            if state.sender_count == 0 { state.receiver.take() } else { None }
        };
        wake(waker);
    }
}

/// The future of [`Sender::send`].
pub struct SendFuture<T> {
    state: Rc<RefCell<ChannelState<T>>>,
    value: Option<T>,
    ticket: Option<u64>,
}

// The value is never pinned: it moves into the queue.
impl<T> Unpin for SendFuture<T> {}

impl<T> Future for SendFuture<T> {
    type Output = Result<(), T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut state = this.state.borrow_mut();
        if !state.receiver_alive {
            let value = this.value.take().expect("polled again after it was ready");
            return Poll::Ready(Err(value));
        }
        let first = state.waiting.first_key_value().map(|(ticket, _)| *ticket);
        let my_turn = first.is_none() || first == this.ticket;
        if my_turn && state.has_room() {
            if let Some(ticket) = this.ticket.take() {
                state.waiting.remove(&ticket);
            }
            state.queue.push_back(this.value.take().expect("polled again after it was ready"));
            let wakers = (state.receiver.take(), state.next_sender());
            drop(state);
            wake(wakers.0);
            wake(wakers.1);
            return Poll::Ready(Ok(()));
        }
        let ticket = this.ticket.unwrap_or(state.next_ticket);
        if this.ticket.is_none() {
            state.next_ticket += 1;
            this.ticket = Some(ticket);
        }
        state.waiting.insert(ticket, context.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for SendFuture<T> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let wakers = {
            let mut state = self.state.borrow_mut();
            (state.waiting.remove(&ticket), state.next_sender())
        };
        wake(wakers.1);
    }
}

impl<T> Receiver<T> {
    /// `None` when the queue is empty and every sender is gone.
    pub async fn recv(&mut self) -> Option<T> {
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// For hand-written futures; see [`Receiver::recv`].
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<T>> {
        if let Some(value) = self.try_recv() {
            return Poll::Ready(Some(value));
        }
        let mut state = self.state.borrow_mut();
        if state.sender_count == 0 {
            return Poll::Ready(None);
        }
        state.receiver = Some(context.waker().clone());
        Poll::Pending
    }

    /// The next value if one is queued.
    pub fn try_recv(&mut self) -> Option<T> {
        let (value, waker) = {
            let mut state = self.state.borrow_mut();
            let value = state.queue.pop_front()?;
            (value, state.next_sender())
        };
        wake(waker);
        Some(value)
    }

    /// Values queued.
    pub fn len(&self) -> usize {
        self.state.borrow().queue.len()
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let (queue, waiting) = {
            let mut state = self.state.borrow_mut();
            state.receiver_alive = false;
            (std::mem::take(&mut state.queue), std::mem::take(&mut state.waiting))
        };
        drop(queue);
        for waker in waiting.into_values() {
            waker.wake();
        }
    }
}

// ---- notify

#[derive(Default)]
struct NotifyState {
    /// One `notify_one` that found nobody waiting.
    permit: bool,
    /// Counts `notify_all`; a future made under an older generation is ready.
    generation: u64,
    waiting: BTreeMap<u64, NotifyWaiter>,
    next_ticket: u64,
}

struct NotifyWaiter {
    waker: Waker,
    chosen: bool,
}

/// Says that something has changed; the waiter looks for itself what. Clones share it.
#[derive(Clone, Default)]
pub struct Notify {
    state: Rc<RefCell<NotifyState>>,
}

impl Notify {
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes the waiter that came first; with none, the next one to come does not wait. Two calls without a waiter count
    /// as one.
    pub fn notify_one(&self) {
        let waker = {
            let mut state = self.state.borrow_mut();
            match state.waiting.values_mut().find(|waiter| !waiter.chosen) {
                Some(waiter) => {
                    waiter.chosen = true;
                    Some(waiter.waker.clone())
                }
                None => {
                    state.permit = true;
                    None
                }
            }
        };
        wake(waker);
    }

    /// Wakes everybody whose [`Notify::notified`] was called before, polled or not; who comes later waits.
    pub fn notify_all(&self) {
        let waiting = {
            let mut state = self.state.borrow_mut();
            state.generation += 1;
            std::mem::take(&mut state.waiting)
        };
        for waiter in waiting.into_values() {
            waiter.waker.wake();
        }
    }

    /// Call it before looking at what may change, and await it after: nothing is missed in between.
    pub fn notified(&self) -> Notified {
        Notified { generation: self.state.borrow().generation, notify: self.clone(), ticket: None }
    }
}

/// The future of [`Notify::notified`].
pub struct Notified {
    notify: Notify,
    generation: u64,
    ticket: Option<u64>,
}

impl Future for Notified {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let mut state = this.notify.state.borrow_mut();
        let chosen = this.ticket.and_then(|ticket| state.waiting.get(&ticket)).is_some_and(|waiter| waiter.chosen);
        let permit = this.ticket.is_none() && state.permit && state.generation == this.generation;
        if state.generation != this.generation || chosen || permit {
            if permit {
                state.permit = false;
            }
            if let Some(ticket) = this.ticket.take() {
                state.waiting.remove(&ticket);
            }
            return Poll::Ready(());
        }
        let ticket = this.ticket.unwrap_or(state.next_ticket);
        if this.ticket.is_none() {
            state.next_ticket += 1;
            this.ticket = Some(ticket);
        }
        state.waiting.insert(ticket, NotifyWaiter { waker: context.waker().clone(), chosen: false });
        Poll::Pending
    }
}

impl Drop for Notified {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let removed = self.notify.state.borrow_mut().waiting.remove(&ticket);
        // Chosen but never polled again: the wake-up belongs to the next in line.
        if removed.is_some_and(|waiter| waiter.chosen) {
            self.notify.notify_one();
        }
    }
}

// ---- semaphore

struct SemaphoreState {
    capacity: usize,
    available: usize,
    waiting: BTreeMap<u64, SemaphoreWaiter>,
    /// Granted, not yet picked up: ticket to count.
    granted: BTreeMap<u64, usize>,
    next_ticket: u64,
}

struct SemaphoreWaiter {
    count: usize,
    waker: Waker,
}

impl SemaphoreState {
    /// Grants in order of arrival: a large request is not overtaken for ever by small ones.
    fn grant(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while let Some(first) = self.waiting.first_entry() {
            if first.get().count > self.available {
                break;
            }
            let (ticket, waiter) = first.remove_entry();
            self.available -= waiter.count;
            self.granted.insert(ticket, waiter.count);
            wakers.push(waiter.waker);
        }
        wakers
    }
}

/// A budget of `capacity` units: bytes, operations, slots. Clones share it.
#[derive(Clone)]
pub struct Semaphore {
    state: Rc<RefCell<SemaphoreState>>,
}

impl Semaphore {
    pub fn new(capacity: usize) -> Self {
        let state = SemaphoreState {
            capacity,
            available: capacity,
            waiting: BTreeMap::new(),
            granted: BTreeMap::new(),
            next_ticket: 0,
        };
        Self { state: Rc::new(RefCell::new(state)) }
    }

    /// Waits for `count` units, in order of arrival.
    ///
    /// # Panics
    /// When `count` is more than the capacity: it would wait for ever. Clamp what comes from outside.
    pub fn acquire(&self, count: usize) -> Acquire {
        let capacity = self.capacity();
        assert!(count <= capacity, "{count} units asked of a semaphore of {capacity}");
        Acquire { semaphore: self.clone(), count, ticket: None }
    }

    /// `None` when it would have to wait.
    pub fn try_acquire(&self, count: usize) -> Option<Permit> {
        let mut state = self.state.borrow_mut();
        if !state.waiting.is_empty() || count > state.available {
            return None;
        }
        state.available -= count;
        drop(state);
        Some(Permit { semaphore: self.clone(), count })
    }

    /// All units, free or taken.
    pub fn capacity(&self) -> usize {
        self.state.borrow().capacity
    }

    /// Units nobody holds.
    pub fn available(&self) -> usize {
        self.state.borrow().available
    }

    /// Requests that wait.
    pub fn waiting_count(&self) -> usize {
        self.state.borrow().waiting.len()
    }

    fn release(&self, count: usize) {
        let wakers = {
            let mut state = self.state.borrow_mut();
            state.available += count;
            assert!(state.available <= state.capacity);
            state.grant()
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// The future of [`Semaphore::acquire`].
pub struct Acquire {
    semaphore: Semaphore,
    count: usize,
    ticket: Option<u64>,
}

impl Future for Acquire {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit> {
        let this = &mut *self;
        let mut state = this.semaphore.state.borrow_mut();
        let done = match this.ticket {
            Some(ticket) => state.granted.remove(&ticket).is_some(),
            None if state.waiting.is_empty() && this.count <= state.available => {
                state.available -= this.count;
                true
            }
            None => false,
        };
        if done {
            this.ticket = None;
            drop(state);
            return Poll::Ready(Permit { semaphore: this.semaphore.clone(), count: this.count });
        }
        let ticket = this.ticket.unwrap_or(state.next_ticket);
        if this.ticket.is_none() {
            state.next_ticket += 1;
            this.ticket = Some(ticket);
        }
        state.waiting.insert(ticket, SemaphoreWaiter { count: this.count, waker: context.waker().clone() });
        Poll::Pending
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let granted = {
            let mut state = self.semaphore.state.borrow_mut();
            state.waiting.remove(&ticket);
            state.granted.remove(&ticket).unwrap_or(0)
        };
        // Also with nothing to give back: the one behind may have waited only for this one.
        self.semaphore.release(granted);
    }
}

/// Units held; given back when dropped.
#[must_use = "a permit dropped at once limits nothing"]
pub struct Permit {
    semaphore: Semaphore,
    count: usize,
}

impl Permit {
    /// Units held.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Gives back all but `count` units: what was reserved turned out larger than what is needed.
    pub fn shrink_to(&mut self, count: usize) {
        let surplus = self.count.saturating_sub(count);
        self.count -= surplus;
        self.semaphore.release(surplus);
    }

    /// Takes over the units of `other`, which belongs to the same semaphore.
    pub fn merge(&mut self, mut other: Self) {
        assert!(Rc::ptr_eq(&self.semaphore.state, &other.semaphore.state), "permits of two semaphores");
        self.count += std::mem::take(&mut other.count);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.semaphore.release(self.count);
    }
}

// ---- gate

#[derive(Default)]
struct GateState {
    closed: Cell<bool>,
    inside_count: Cell<usize>,
    /// Made for those who wait: there are thousands of gates that nobody waits at.
    closing: OnceCell<Notify>,
    empty: OnceCell<Notify>,
}

/// Keeps count of the tasks that own something, so that shutdown can tell them to end and wait until they have. Clones
/// share it.
#[derive(Clone, Default)]
pub struct Gate {
    state: Rc<GateState>,
}

impl Gate {
    pub fn new() -> Self {
        Self::default()
    }

    /// `None` once the gate is closed: do not start.
    pub fn enter(&self) -> Option<GateGuard> {
        if self.state.closed.get() {
            return None;
        }
        self.state.inside_count.set(self.state.inside_count.get() + 1);
        Some(GateGuard { gate: self.clone() })
    }

    /// Lets nobody in any more and tells those inside, see [`Gate::closing`].
    pub fn close(&self) {
        if !self.state.closed.replace(true) {
            notify_made(&self.state.closing);
        }
    }

    pub fn is_closed(&self) -> bool {
        self.state.closed.get()
    }

    /// Guards not yet dropped.
    pub fn inside_count(&self) -> usize {
        self.state.inside_count.get()
    }

    /// Ready when [`Gate::close`] is called, at once if it was: tasks race their work against it.
    pub async fn closing(&self) {
        let notified = self.state.closing.get_or_init(Notify::new).notified();
        if !self.is_closed() {
            notified.await;
        }
    }

    /// Waits until nobody is inside; without [`Gate::close`] others may come in right after.
    pub async fn wait_empty(&self) {
        loop {
            let notified = self.state.empty.get_or_init(Notify::new).notified();
            if self.inside_count() == 0 {
                return;
            }
            notified.await;
        }
    }

    /// Closes and waits until nobody is inside. It closes even if the future is dropped before it is ready.
    pub fn close_and_wait(&self) -> impl Future<Output = ()> + use<> {
        self.close();
        let gate = self.clone();
        async move { gate.wait_empty().await }
    }
}

/// One task inside a gate; dropping it leaves.
#[must_use = "a guard dropped at once guards nothing"]
pub struct GateGuard {
    gate: Gate,
}

impl Clone for GateGuard {
    /// Who is inside may bring others in, also while the gate closes: they finish what was begun.
    fn clone(&self) -> Self {
        let state = &self.gate.state;
        state.inside_count.set(state.inside_count.get() + 1);
        Self { gate: self.gate.clone() }
    }
}

impl Drop for GateGuard {
    fn drop(&mut self) {
        let state = &self.gate.state;
        state.inside_count.set(state.inside_count.get() - 1);
        if state.inside_count.get() == 0 {
            notify_made(&state.empty);
        }
    }
}

fn notify_made(notify: &OnceCell<Notify>) {
    if let Some(notify) = notify.get() {
        notify.notify_all();
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests;
