//! Letting go of records: the task that has logs write back what the journal holds for them.
//!
//! One task per journal and one log at a time, so that its writes and flushes take little from the commits. It does nothing
//! while no log needs a record.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::commit::Inner;
use super::record::Roll;
use crate::disk::Disk;
use crate::log::Log;
use crate::runtime::{Instant, Runtime};

/// How long a log may leave in the journal what would fill a block.
const VISIT_EVERY: Duration = Duration::from_secs(1);
/// How long the journal goes on without a roll: what is damaged behind the last one concerns all logs.
const ROLL_EVERY: Duration = VISIT_EVERY;
/// Visits that cause no wait of their own before the task gives way.
const VISITS_PER_TURN: u32 = 32;
/// Nothing could be let go of: until the next attempt.
const RETRY_WAIT: Duration = Duration::from_secs(1);

impl<D: Disk, R: Runtime> Inner<D, R> {
    pub(super) async fn keep(self: Rc<Self>) {
        loop {
            let work = self.work.notified();
            if self.is_closing.get() || self.wal.failure().is_some() {
                return;
            }
            if self.must_free() {
                self.free().await;
            } else if self.must_relieve() {
                self.relieve().await;
            } else {
                self.visit_due().await;
                self.call_roll().await;
                if !self.must_free() && !self.must_relieve() {
                    self.arm_timer();
                    work.await;
                }
            }
        }
    }

    fn is_yet_to_come(&self, until: &Cell<Option<Instant>>) -> bool {
        until.get().is_some_and(|until| self.runtime.now() < until)
    }

    fn retry_at(&self) -> Option<Instant> {
        Some(self.runtime.now().saturating_add(RETRY_WAIT))
    }

    /// Half of what may be kept is, or there is no room for more, and there is a file that could go.
    pub(super) fn must_free(&self) -> bool {
        let is_much = self.wal.live_bytes() >= self.options.live_bytes_max / 2 || self.wal.is_stalled();
        is_much && self.wal.older_through() > self.freed_through.get() && !self.is_yet_to_come(&self.no_free_until)
    }

    fn must_relieve(&self) -> bool {
        self.is_pressed() && !self.is_yet_to_come(&self.no_relief_until)
    }

    /// Logs that need records, those first that were not looked at for longest.
    pub(super) fn visited(&self) -> Vec<Log<D, R>> {
        self.visits.borrow().iter().map(|(_, log)| log.clone()).collect()
    }

    /// Frees every file but the one that is written.
    async fn free(&self) {
        let through = self.wal.older_through();
        for log in &self.visited() {
            if log.pin().is_some_and(|pin| pin <= through) {
                log.leave_journal(through).await;
            }
        }
        // What was journalled anew is durable before what it replaces goes. Nothing else is waited for: where the disk has no
        // room, what is queued waits for the files that are freed here.
        if self.wal.committed(self.anew_through.get()).await.is_err() {
            return;
        }
        let needed = self.visits.borrow().iter().filter_map(|(_, log)| log.pin()).min();
        let end = self.wal.durable_through() + 1;
        self.wal.truncate_before(needed.map_or(end, |needed| needed.min(end)));
        let is_held = needed.is_some_and(|needed| needed <= through);
        self.is_held.set(is_held);
        if is_held {
            tracing::warn!(
                live_bytes = self.wal.live_bytes(),
                "the journal cannot let go of its oldest records: a log has not put them into its segments"
            );
            self.no_free_until.set(self.retry_at());
            self.ring_lines();
        } else {
            self.freed_through.set(through);
        }
    }

    /// Has logs write what waits in memory, those first that were not looked at for longest.
    async fn relieve(&self) {
        let mut is_relieved = false;
        for log in self.visited().iter().filter(|log| log.staged_bytes() > 0) {
            if !self.is_pressed() || self.must_free() {
                return;
            }
            // The last block, too: the memory of many small ends is what is wanted back.
            match log.flush().await {
                Ok(()) => is_relieved = true,
                Err(error) => tracing::debug!(dir = %log.dir().display(), %error, "nothing written back"),
            }
        }
        // What is left is on its way, or nobody can have it.
        if !is_relieved {
            self.no_relief_until.set(self.retry_at());
        }
    }

    async fn visit_due(&self) {
        for at in 1.. {
            let now = self.runtime.now();
            let is_due = |(at, _): &(_, Log<D, R>)| now.saturating_since(*at) >= VISIT_EVERY;
            let log = {
                let mut visits = self.visits.borrow_mut();
                let Some((_, log)) = visits.front().filter(|next| is_due(next)) else { return };
                let log = log.clone();
                visits.pop_front();
                visits.push_back((now, log.clone()));
                log
            };
            log.visit(now).await;
            if log.end_visits() {
                let mut visits = self.visits.borrow_mut();
                // Nearly always the last one.
                if let Some(at) = visits.iter().rposition(|(_, visited)| visited.is_same(&log)) {
                    visits.remove(at);
                }
            }
            if self.must_free() {
                return;
            }
            if at % VISITS_PER_TURN == 0 {
                self.runtime.turn().await;
            }
        }
    }

    /// Notes in the journal which logs need it, when something was appended since that was done.
    async fn call_roll(&self) {
        let (now, as_of) = (self.runtime.now(), self.wal.next_sequence());
        let (rolled, behind) = self.rolled.get();
        if as_of == behind || now.saturating_since(rolled) < ROLL_EVERY {
            return;
        }
        let mut standings = Vec::new();
        for (at, log) in (1..).zip(self.visited()) {
            // Of a log that begins to need the journal meanwhile, all records are behind `as_of`.
            standings.extend(log.standing());
            if at % VISITS_PER_TURN == 0 {
                self.runtime.turn().await;
            }
        }
        let roll = Roll { shard_count: self.options.shard_count, as_of, standings };
        // It is tried again when the journal takes something again.
        if let Ok(sequence) = self.wal.append(roll.encode()) {
            // What came meanwhile is for the next one.
            let next = if sequence == as_of { sequence + 1 } else { as_of };
            self.rolled.set((now, next));
        }
    }

    fn owes_roll(&self) -> bool {
        self.wal.next_sequence() != self.rolled.get().1
    }

    /// Wakes the task when a log is due, or a roll, or another attempt.
    pub(super) fn arm_timer(self: &Rc<Self>) {
        let retries = self.is_yet_to_come(&self.no_free_until) || self.is_yet_to_come(&self.no_relief_until);
        let is_idle = self.visits.borrow().is_empty() && !retries && !self.owes_roll();
        if is_idle || self.is_timer_armed.replace(true) {
            return;
        }
        let (inner, timer) = (Rc::downgrade(self), self.runtime.sleep(VISIT_EVERY));
        self.runtime.spawn(async move {
            timer.await;
            if let Some(inner) = inner.upgrade() {
                inner.is_timer_armed.set(false);
                inner.work.notify_one();
            }
        });
    }
}
