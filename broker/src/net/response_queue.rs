//! Replies of one connection, in the order of its requests.
//!
//! A request opens a slot when it is dispatched and fills it when it is answered; the writer takes what is ready from the
//! front and sends it at once. Slots and finished bytes are capped: then the connection's reading stops, which is what
//! bounds a client that sends without reading, or a stream of small answers behind a long poll.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use bytes::Bytes;
use walser_storage::runtime::channel::Notify;

use super::admission::MemoryUnits;

/// Requests of one connection that are being worked on or wait to be sent. librdkafka allows itself a million in flight; what
/// is beyond this waits in its socket.
const SLOTS_MAX: usize = 256;
/// Finished bytes of one connection not yet taken by its socket: beyond them nothing more is worked on for it, so that a
/// client which does not read costs little more than the reply it does not take.
const FINISHED_BYTES_MAX: usize = 256 << 10;
/// What is sent at once.
const BATCH_BYTES: usize = 8 << 20;

/// An encoded response: size prefix, header and body, in as many pieces as it was made of.
#[derive(Default)]
pub struct Reply {
    pub segments: VecDeque<Bytes>,
    /// Memory the reply is charged for until it has been sent.
    pub units: Option<MemoryUnits>,
}

impl Reply {
    /// A response in one piece.
    pub fn from_bytes(bytes: Bytes) -> Self {
        Self { segments: VecDeque::from([bytes]), units: None }
    }

    /// Bytes on the wire.
    pub fn len_bytes(&self) -> usize {
        self.segments.iter().map(Bytes::len).sum()
    }
}

enum Slot {
    Waiting,
    Ready(Reply),
}

/// Names a slot of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotId(u64);

#[derive(Default)]
struct State {
    slots: VecDeque<Slot>,
    /// Number of the first slot.
    first: u64,
    waiting_count: usize,
    /// Bytes ready and bytes taken by the writer, until they are sent.
    finished_bytes: usize,
    /// No slot opens any more: the writer ends when it has sent all.
    ended: bool,
    /// Nothing is sent any more.
    broken: bool,
    writer: Option<Waker>,
}

/// The queue of one connection; its reader, its writer and its requests share it.
#[derive(Default)]
pub struct ResponseQueue {
    state: RefCell<State>,
    room: Notify,
    sent_bytes: Cell<u64>,
}

/// What the writer takes at once.
pub struct Batch {
    pub segments: VecDeque<Bytes>,
    /// Charged until the batch has been sent.
    pub units: Vec<MemoryUnits>,
    pub len_bytes: usize,
}

impl ResponseQueue {
    /// Waits until another request may be dispatched; false when the connection is broken.
    pub async fn wait_room(&self) -> bool {
        self.wait(|state| state.slots.len() < SLOTS_MAX && state.finished_bytes < FINISHED_BYTES_MAX).await
    }

    /// Waits until every earlier request has been answered, sent or not; false when the connection is broken.
    pub async fn wait_answered(&self) -> bool {
        self.wait(|state| state.waiting_count == 0).await
    }

    async fn wait(&self, done: impl Fn(&State) -> bool) -> bool {
        loop {
            let changed = self.room.notified();
            {
                let state = self.state.borrow();
                if state.broken {
                    return false;
                }
                if done(&state) {
                    return true;
                }
            }
            changed.await;
        }
    }

    /// The next place in line.
    pub fn open_slot(&self) -> SlotId {
        let mut state = self.state.borrow_mut();
        state.slots.push_back(Slot::Waiting);
        state.waiting_count += 1;
        SlotId(state.first + state.slots.len() as u64 - 1)
    }

    /// Answers a request; `None` when it has no response.
    pub fn fill_slot(&self, slot: SlotId, reply: Option<Reply>) {
        let mut state = self.state.borrow_mut();
        // Broken connections have dropped their slots.
        let Some(index) = slot.0.checked_sub(state.first).and_then(|index| usize::try_from(index).ok()) else { return };
        let reply = reply.unwrap_or_default();
        let len_bytes = reply.len_bytes();
        let Some(place) = state.slots.get_mut(index) else { return };
        *place = Slot::Ready(reply);
        state.waiting_count -= 1;
        state.finished_bytes += len_bytes;
        if index == 0
            && let Some(writer) = state.writer.take()
        {
            writer.wake();
        }
        drop(state);
        self.room.notify_all();
    }

    /// Waits for replies and takes all that are next in line; `None` when no more will come.
    pub async fn next_batch(&self) -> Option<Batch> {
        poll_fn(|context| {
            let mut state = self.state.borrow_mut();
            if state.broken {
                return Poll::Ready(None);
            }
            let mut batch = Batch { segments: VecDeque::new(), units: Vec::new(), len_bytes: 0 };
            while let Some(Slot::Ready(_)) = state.slots.front() {
                let Some(Slot::Ready(reply)) = state.slots.pop_front() else { unreachable!("looked at just now") };
                state.first += 1;
                batch.len_bytes += reply.len_bytes();
                batch.segments.extend(reply.segments.into_iter().filter(|segment| !segment.is_empty()));
                batch.units.extend(reply.units);
                if batch.len_bytes >= BATCH_BYTES {
                    break;
                }
            }
            if !batch.segments.is_empty() {
                return Poll::Ready(Some(batch));
            }
            if state.ended && state.slots.is_empty() {
                return Poll::Ready(None);
            }
            state.writer = Some(context.waker().clone());
            drop(state);
            // Slots without a response were taken out.
            self.room.notify_all();
            Poll::Pending
        })
        .await
    }

    /// The socket has taken a batch of `len_bytes`.
    pub fn batch_sent(&self, len_bytes: usize) {
        {
            let mut state = self.state.borrow_mut();
            state.finished_bytes = state.finished_bytes.saturating_sub(len_bytes);
        }
        self.sent_bytes.set(self.sent_bytes.get() + len_bytes as u64);
        self.room.notify_all();
    }

    /// No request follows; what was dispatched is still answered.
    pub fn end(&self) {
        let mut state = self.state.borrow_mut();
        state.ended = true;
        let writer = state.writer.take();
        drop(state);
        if let Some(writer) = writer {
            writer.wake();
        }
    }

    /// Nothing can be sent any more: drops what waits and wakes everybody.
    pub fn break_off(&self) {
        let (dropped, writer) = {
            let mut state = self.state.borrow_mut();
            state.broken = true;
            state.waiting_count = 0;
            state.finished_bytes = 0;
            state.first += state.slots.len() as u64;
            (std::mem::take(&mut state.slots), state.writer.take())
        };
        drop(dropped);
        if let Some(writer) = writer {
            writer.wake();
        }
        self.room.notify_all();
    }

    /// Whether [`ResponseQueue::break_off`] was called.
    pub fn is_broken(&self) -> bool {
        self.state.borrow().broken
    }

    /// Whether something is answered and has not been taken by the socket.
    pub fn has_unsent(&self) -> bool {
        self.state.borrow().finished_bytes > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, poll_once};
    use std::pin::pin;

    fn reply(text: &'static str) -> Option<Reply> {
        Some(Reply::from_bytes(Bytes::from_static(text.as_bytes())))
    }

    fn text(batch: Option<Batch>) -> Option<String> {
        batch.map(|batch| batch.segments.iter().map(|segment| String::from_utf8_lossy(segment)).collect())
    }

    #[test]
    fn replies_leave_in_request_order() {
        // Rule: what is answered early waits for what was asked before it, and leaves with it in one batch.
        block_on(async {
            let queue = ResponseQueue::default();
            let (first, second, third) = (queue.open_slot(), queue.open_slot(), queue.open_slot());
            let mut batch = pin!(queue.next_batch());
            assert!(poll_once(&mut batch).await.is_none());
            queue.fill_slot(second, reply("b"));
            assert!(poll_once(&mut batch).await.is_none());
            queue.fill_slot(first, reply("a"));
            assert_eq!(text(batch.await).as_deref(), Some("ab"));
            queue.fill_slot(third, reply("c"));
            queue.end();
            assert_eq!(text(queue.next_batch().await).as_deref(), Some("c"));
            assert_eq!(text(queue.next_batch().await), None);
        });
    }

    #[test]
    fn a_request_without_response_takes_no_place() {
        // Rule: acks=0 frees its slot and does not hold up what follows.
        block_on(async {
            let queue = ResponseQueue::default();
            let (silent, loud) = (queue.open_slot(), queue.open_slot());
            queue.fill_slot(loud, reply("x"));
            queue.fill_slot(silent, None);
            assert_eq!(text(queue.next_batch().await).as_deref(), Some("x"));
        });
    }

    #[test]
    fn slots_and_bytes_are_capped() {
        // Rule: reading stops at the cap of slots and at the cap of unsent bytes, and goes on when they are sent.
        block_on(async {
            let queue = ResponseQueue::default();
            let first = queue.open_slot();
            for _ in 1..SLOTS_MAX {
                queue.open_slot();
            }
            let mut room = Box::pin(queue.wait_room());
            assert!(poll_once(&mut room).await.is_none());
            let big = Reply::from_bytes(Bytes::from(vec![0; FINISHED_BYTES_MAX]));
            queue.fill_slot(first, Some(big));
            let batch = queue.next_batch().await.unwrap();
            assert!(poll_once(&mut room).await.is_none(), "not sent yet");
            queue.batch_sent(batch.len_bytes);
            assert_eq!(poll_once(&mut room).await, Some(true));
        });
    }

    #[test]
    fn a_broken_connection_lets_everybody_go() {
        // Rule: when the socket is gone nobody waits for it, and late answers are dropped.
        block_on(async {
            let queue = ResponseQueue::default();
            let slot = queue.open_slot();
            let mut answered = pin!(queue.wait_answered());
            assert!(poll_once(&mut answered).await.is_none());
            queue.break_off();
            assert!(!answered.await);
            queue.fill_slot(slot, reply("late"));
            assert!(queue.next_batch().await.is_none());
        });
    }
}
