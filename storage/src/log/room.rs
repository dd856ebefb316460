//! Waiting for room: appends that come faster than the disk takes them.
//!
//! Nobody waits while there is room. Who comes when there is none stands in line, and so does everybody who comes later,
//! however small their batch: what one producer sent stays in its order.

use crate::disk::{Disk, File};
use crate::runtime::Runtime;

use super::{Health, Log, State};

/// Bytes that may wait to be written, per log; an empty queue takes any batch.
pub(super) const STAGED_BYTES_MAX: usize = 64 << 20;

/// A place in the line, left when it is dropped: after the append, or when whoever waited has given up.
#[must_use = "who is behind waits until it is dropped"]
pub struct Place<D: Disk, R: Runtime> {
    log: Log<D, R>,
    number: u64,
    batch_bytes: usize,
}

impl<D: Disk, R: Runtime> Log<D, R> {
    /// `None` when a batch of `batch_bytes` may be appended at once; else it is appended when the place in line has come to
    /// its [`Place::turn`].
    pub fn stand_in_line(&self, batch_bytes: usize) -> Option<Place<D, R>> {
        if self.inner.line.borrow().is_empty() && self.would_answer(batch_bytes) {
            return None;
        }
        let mut line = self.inner.line.borrow_mut();
        let number = line.back().map_or(0, |last| last + 1);
        line.push_back(number);
        Some(Place { log: self.clone(), number, batch_bytes })
    }

    /// Bytes that wait to be written.
    pub fn staged_bytes(&self) -> usize {
        self.inner.state.borrow().staged_bytes
    }

    /// There is room, or an append would fail for another reason: a log that is closed or has failed gets no more room.
    fn would_answer(&self, batch_bytes: usize) -> bool {
        let state = self.inner.state.borrow();
        let cannot = state.is_closing || !matches!(state.health, Health::Good);
        cannot || (state.has_room(batch_bytes) && self.has_room_in_journal(batch_bytes))
    }

    /// Of all logs of the shard together.
    pub(super) fn has_room_in_journal(&self, batch_bytes: usize) -> bool {
        self.inner.journal.as_ref().is_none_or(|handle| handle.journal.has_room(batch_bytes))
    }
}

impl<D: Disk, R: Runtime> Place<D, R> {
    /// Ready when everybody before has gone and an append would not fail for a lack of room.
    pub async fn turn(&self) {
        loop {
            let changed = self.log.inner.progress.notified();
            let is_first = self.log.inner.line.borrow().front() == Some(&self.number);
            if is_first && self.log.would_answer(self.batch_bytes) {
                return;
            }
            if let Some(handle) = &self.log.inner.journal {
                handle.journal.ring_when_there_is_room(&self.log);
            }
            changed.await;
        }
    }
}

impl<D: Disk, R: Runtime> Drop for Place<D, R> {
    fn drop(&mut self) {
        self.log.inner.line.borrow_mut().retain(|number| *number != self.number);
        self.log.inner.progress.notify_all();
    }
}

impl<F: File> State<F> {
    pub(super) fn has_room(&self, batch_bytes: usize) -> bool {
        self.staged.is_empty() || self.staged_bytes + batch_bytes <= STAGED_BYTES_MAX
    }
}
