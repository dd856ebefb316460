//! Background work in slices: compaction, retention, checkpoints, replay and cold reads share what the foreground leaves.
//!
//! One slice is at most [`super::SLICE`] of CPU. The governor lets one run per reactor turn while the shard has nothing
//! else to do, and one per [`BUSY_TURNS`] turns while requests come in; never none, so that background work cannot fall
//! behind for ever.

use std::cell::Cell;

use walser_storage::runtime::Runtime;
use walser_storage::runtime::channel::Semaphore;

/// Reactor turns between two slices while the shard is busy.
const BUSY_TURNS: u32 = 4;

/// One per shard.
pub struct Governor<R> {
    runtime: R,
    /// One slice at a time, in order of asking.
    line: Semaphore,
    /// Foreground requests since the last turn that was looked at.
    foreground: Cell<u64>,
    slices: Cell<u64>,
}

impl<R: Runtime> Governor<R> {
    /// A governor of the executor behind `runtime`.
    pub fn new(runtime: R) -> Self {
        Self { runtime, line: Semaphore::new(1), foreground: Cell::new(0), slices: Cell::new(0) }
    }

    /// A request came in.
    pub fn note_foreground(&self) {
        self.foreground.set(self.foreground.get() + 1);
    }

    /// Slices granted so far.
    pub fn slices(&self) -> u64 {
        self.slices.get()
    }

    /// Waits until the caller may work for one slice.
    pub async fn slice(&self) {
        let _turn = self.line.acquire(1).await;
        for _ in 0..BUSY_TURNS {
            self.foreground.set(0);
            self.runtime.turn().await;
            if self.foreground.get() == 0 {
                break;
            }
        }
        self.slices.set(self.slices.get() + 1);
    }
}
