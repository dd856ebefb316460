//! Background work in slices: compaction, retention, checkpoints, replay and cold reads share what the foreground leaves.
//!
//! One slice is at most [`super::SLICE`] of CPU. The governor lets one run per reactor turn while the shard has nothing
//! else to do. While somebody waits for an append, whose steps would each wait behind a slice, and while requests come in,
//! it holds the next slice back, but for no longer than [`HELD_BACK_MAX`], so that background work cannot fall behind for
//! ever. The pieces of large responses give way in the same manner, to small appends.

use std::cell::Cell;
use std::time::Duration;

use walser_storage::runtime::Runtime;
use walser_storage::runtime::channel::Semaphore;

/// A shard that never has nothing to do gives a tenth of its time to background work.
const HELD_BACK_MAX: Duration = Duration::from_millis(1);
/// Between two looks while a slice is held back.
const LOOK: Duration = Duration::from_micros(20);
/// Appends of fewer bytes, all that are awaited together, are small ones: what counts is when they are answered. Of more,
/// what counts is how much gets through, readers included.
const SMALL_BYTES: usize = 256 << 10;

/// One per shard.
pub struct Governor<R> {
    runtime: R,
    /// One slice at a time, in order of asking.
    line: Semaphore,
    /// Requests that came in since the last turn that was looked at.
    arrived: Cell<u64>,
    /// Requests that somebody waits for, and their bytes.
    awaited: Cell<(usize, usize)>,
    slices: Cell<u64>,
}

/// A request that somebody waits for, until it is dropped.
pub struct Awaited<'a> {
    awaited: &'a Cell<(usize, usize)>,
    bytes: usize,
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        let (count, bytes) = self.awaited.get();
        self.awaited.set((count - 1, bytes - self.bytes));
    }
}

impl<R: Runtime> Governor<R> {
    /// A governor of the executor behind `runtime`.
    pub fn new(runtime: R) -> Self {
        let (arrived, awaited, slices) = (Cell::new(0), Cell::new((0, 0)), Cell::new(0));
        Self { runtime, line: Semaphore::new(1), arrived, awaited, slices }
    }

    /// A request came in.
    pub fn note_foreground(&self) {
        self.arrived.set(self.arrived.get() + 1);
    }

    /// Somebody waits for an append of so many bytes, until what this returns is dropped.
    pub fn await_foreground(&self, bytes: usize) -> Awaited<'_> {
        let (count, others) = self.awaited.get();
        self.awaited.set((count + 1, others + bytes));
        Awaited { awaited: &self.awaited, bytes }
    }

    /// Slices granted so far.
    pub fn slices(&self) -> u64 {
        self.slices.get()
    }

    /// Waits until the caller may work for one slice.
    pub async fn slice(&self) {
        let _turn = self.line.acquire(1).await;
        self.arrived.set(0);
        self.turn_and_while(|| self.is_busy()).await;
        self.slices.set(self.slices.get() + 1);
    }

    /// Between two pieces of a large response: others get a turn, and small appends that are awaited are served first.
    pub async fn next_piece(&self) {
        self.turn_and_while(|| self.has_small_appends()).await;
    }

    /// Gives way for a turn, and for as long as others are to go first, but no longer than [`HELD_BACK_MAX`].
    async fn turn_and_while(&self, others_first: impl Fn() -> bool) {
        let asked = self.runtime.now();
        self.runtime.turn().await;
        while others_first() && self.runtime.now().saturating_since(asked) < HELD_BACK_MAX {
            self.runtime.sleep(LOOK).await;
        }
    }

    fn has_small_appends(&self) -> bool {
        let (count, bytes) = self.awaited.get();
        count > 0 && bytes < SMALL_BYTES
    }

    /// Somebody waits, or has asked for something since the last look.
    fn is_busy(&self) -> bool {
        self.arrived.replace(0) > 0 || self.awaited.get().0 > 0
    }
}

#[cfg(test)]
mod tests {
    use walser_storage::runtime::prng::Prng;
    use walser_storage::runtime::simulated::SimulatedRuntime;

    use super::*;

    /// How long the next slice takes to be granted while requests are awaited as `foreground` does it.
    fn granted_after(seed: u64, foreground: impl AsyncFn(&Governor<SimulatedRuntime>, &SimulatedRuntime)) -> Duration {
        let runtime = SimulatedRuntime::new(seed);
        let governor = Governor::new(runtime.clone());
        runtime.block_on(async {
            let began = runtime.now();
            let slice = async {
                governor.slice().await;
                runtime.now().saturating_since(began)
            };
            futures_lite::future::zip(foreground(&governor, &runtime), slice).await.1
        })
    }

    #[test]
    fn a_slice_waits_for_those_who_are_awaited_but_not_for_ever() {
        // Rule: a slice is granted at once where nobody is awaited, when the last one is served otherwise, and always after
        // a while.
        for seed in 0..50 {
            let wait = Duration::from_micros(Prng::new(seed).below(3000));
            let idle = granted_after(seed, async |_, _| {});
            assert!(idle < LOOK, "seed {seed}: {idle:?}");
            let busy = granted_after(seed, async |governor, runtime| {
                let _served = governor.await_foreground(1);
                let _other = governor.await_foreground(SMALL_BYTES);
                runtime.sleep(wait).await;
            });
            let (least, most) = (wait.min(HELD_BACK_MAX), wait.min(HELD_BACK_MAX) + 10 * LOOK);
            assert!((least..=most).contains(&busy), "seed {seed}: {busy:?} of {wait:?}");
        }
    }

    #[test]
    fn a_piece_waits_for_small_appends_only() {
        // Rule: the next piece of a large response leaves after the small appends that are awaited, and beside large ones.
        let wait = Duration::from_micros(700);
        for (bytes, held_back) in [(0, true), (SMALL_BYTES - 1, true), (SMALL_BYTES, false)] {
            let runtime = SimulatedRuntime::new(bytes as u64);
            let governor = Governor::new(runtime.clone());
            let took = runtime.block_on(async {
                let began = runtime.now();
                let append = async {
                    let _awaited = governor.await_foreground(bytes);
                    runtime.sleep(wait).await;
                };
                let piece = async {
                    governor.next_piece().await;
                    runtime.now().saturating_since(began)
                };
                futures_lite::future::zip(append, piece).await.1
            });
            assert_eq!(took >= wait, held_back, "{bytes} bytes: {took:?}");
        }
    }

    #[test]
    fn an_arrival_holds_a_slice_back_for_a_look() {
        // Rule: what has just come in has a turn of its own before the next slice.
        for seed in 0..20 {
            let arrived = granted_after(seed, async |governor, runtime| {
                for _ in 0..5 {
                    governor.note_foreground();
                    runtime.turn().await;
                }
            });
            assert!(arrived >= LOOK, "seed {seed}: {arrived:?}");
        }
    }
}
