//! The executor as storage and the broker's drivers see it.
//!
//! Everything that spawns, sleeps, reads a clock or gives way goes through [`Runtime`], so that the same code runs on a
//! shard's glommio executor and, deterministically, in the simulator. All of it is single-threaded: futures are not
//! `Send`, state is `Rc` and `Cell`.

pub mod channel;
pub mod glommio;
pub mod prng;
pub mod side_by_side;
pub mod simulated;

use std::future::Future;
use std::time::Duration;

/// A point on the monotonic clock, counted from an arbitrary start of this process (or simulation).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    /// `since_start`: time since the clock's start.
    pub const fn from_start(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// Time since the clock's start.
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// Zero when `earlier` is later.
    pub fn saturating_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Saturates at the end of time instead of wrapping.
    pub fn saturating_add(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }
}

/// One shard's executor: glommio's in the broker, a seeded one in tests.
pub trait Runtime: Clone + 'static {
    /// Starts a task on this executor and lets it run to its end. Tasks that own state are kept by a gate, so that
    /// shutdown can wait for them.
    fn spawn(&self, task: impl Future<Output = ()> + 'static);

    /// Monotonic time; the same for the whole of a simulated turn.
    fn now(&self) -> Instant;

    /// Milliseconds since 1970, for record timestamps only: it may jump, also backwards.
    fn wall_clock_ms(&self) -> i64;

    /// Waits at least `wait`.
    fn sleep(&self, wait: Duration) -> impl Future<Output = ()> + 'static;

    /// Gives way to sockets, disk, timers and every other task. Long work awaits one at least every 250 us of CPU.
    fn turn(&self) -> impl Future<Output = ()> + 'static;
}
