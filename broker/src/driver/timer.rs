//! Deadlines of a shard: one hierarchical timing wheel, and one armed timer of the executor for whatever is due next.
//!
//! Requests that wait set and cancel many deadlines, few of which come: on the wheel both cost a few instructions, where the
//! executor's timers would be touched each time. Deadlines are coarse, a millisecond, and never early. While nothing waits
//! nothing ticks.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use walser_machine::timing_wheel::{TimerId, TimingWheel};
use walser_storage::runtime::channel::Notify;
use walser_storage::runtime::{Instant, Runtime};

/// What the wheel hands back: who waits, and where it sees that its time has come.
type Waiter = Rc<WaiterState>;

#[derive(Default)]
struct WaiterState {
    due: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// One per shard.
pub struct Timer<R> {
    runtime: R,
    wheel: RefCell<TimingWheel<Waiter>>,
    /// When the armed timer of the executor fires.
    armed_ms: Cell<Option<u64>>,
    earlier: Notify,
}

/// The future of one deadline; dropped, it leaves the wheel.
pub struct Deadline<R> {
    timer: Rc<Timer<R>>,
    id: TimerId,
    waiter: Waiter,
}

impl<R: Runtime> Timer<R> {
    /// [`Timer::run`] has to be started on the same executor.
    pub fn new(runtime: R) -> Rc<Self> {
        let now_ms = whole_ms(runtime.now());
        Rc::new(Self {
            runtime,
            wheel: RefCell::new(TimingWheel::new(now_ms)),
            armed_ms: Cell::new(None),
            earlier: Notify::new(),
        })
    }

    /// Ready `wait` from now, or up to a millisecond and a turn later.
    pub fn after(self: &Rc<Self>, wait: Duration) -> Deadline<R> {
        self.at(self.runtime.now().saturating_add(wait))
    }

    /// Ready at `deadline`, or up to a millisecond and a turn later.
    pub fn at(self: &Rc<Self>, deadline: Instant) -> Deadline<R> {
        let deadline_ms = whole_ms(deadline).saturating_add(1);
        let waiter = Waiter::default();
        let id = self.wheel.borrow_mut().insert(deadline_ms, Rc::clone(&waiter));
        if self.armed_ms.get().is_none_or(|armed_ms| deadline_ms < armed_ms) {
            self.earlier.notify_one();
        }
        Deadline { timer: Rc::clone(self), id, waiter }
    }

    /// Deadlines that have not come.
    pub fn len(&self) -> usize {
        self.wheel.borrow().len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Wakes who is due, for ever; the caller races it against the stop.
    pub async fn run(self: Rc<Self>) {
        loop {
            self.wake_due();
            let next_ms = self.wheel.borrow().next_wake_ms();
            self.armed_ms.set(next_ms);
            let Some(next_ms) = next_ms else {
                self.earlier.notified().await;
                continue;
            };
            let next = Instant::from_start(Duration::from_millis(next_ms));
            let sleep = self.runtime.sleep(next.saturating_since(self.runtime.now()));
            futures_lite::future::or(sleep, self.earlier.notified()).await;
        }
    }

    fn wake_due(&self) {
        let mut wheel = self.wheel.borrow_mut();
        wheel.advance(whole_ms(self.runtime.now()));
        while let Some(waiter) = wheel.poll_due() {
            waiter.due.set(true);
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
    }
}

/// Rounded down: what is due at a millisecond is due once that has begun.
fn whole_ms(instant: Instant) -> u64 {
    u64::try_from(instant.since_start().as_millis()).unwrap_or(u64::MAX)
}

impl<R> Future for Deadline<R> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.waiter.due.get() {
            return Poll::Ready(());
        }
        let mut waker = self.waiter.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl<R> Drop for Deadline<R> {
    fn drop(&mut self) {
        if !self.waiter.due.get() {
            self.timer.wheel.borrow_mut().cancel(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use walser_storage::runtime::simulated::SimulatedRuntime;

    fn timer(runtime: &SimulatedRuntime) -> Rc<Timer<SimulatedRuntime>> {
        let timer = Timer::new(runtime.clone());
        runtime.spawn(Rc::clone(&timer).run());
        timer
    }

    #[test]
    fn deadlines_come_in_order_and_never_early() {
        // Rule: whatever order they are set in, each comes at its time or at most two milliseconds later.
        let runtime = SimulatedRuntime::new(1);
        let timer = timer(&runtime);
        let began = runtime.now();
        let seen = Rc::new(RefCell::new(Vec::new()));
        for wait_ms in [500, 3, 70_000, 0, 64, 65, 3] {
            let deadline = timer.after(Duration::from_millis(wait_ms));
            let (runtime, seen) = (runtime.clone(), Rc::clone(&seen));
            let own = runtime.clone();
            runtime.spawn(async move {
                deadline.await;
                let took = own.now().saturating_since(began);
                assert!(took >= Duration::from_millis(wait_ms), "{wait_ms} came after {took:?}");
                assert!(took <= Duration::from_millis(wait_ms + 2), "{wait_ms} came after {took:?}");
                seen.borrow_mut().push(wait_ms);
            });
        }
        runtime.run_until_idle().unwrap();
        assert_eq!(*seen.borrow(), [0, 3, 3, 64, 65, 500, 70_000]);
        assert!(timer.is_empty());
    }

    #[test]
    fn an_earlier_deadline_rearms() {
        // Rule: a deadline set while a later one is armed does not wait for that.
        let runtime = SimulatedRuntime::new(2);
        let timer = timer(&runtime);
        let _late = timer.after(Duration::from_secs(60));
        runtime.run_until(Instant::from_start(Duration::from_millis(5))).unwrap();
        let began = runtime.now();
        runtime.block_on(timer.after(Duration::from_millis(10)));
        assert!(runtime.now().saturating_since(began) <= Duration::from_millis(12));
    }

    #[test]
    fn a_dropped_deadline_leaves_nothing() {
        // Rule: who stops waiting is taken off the wheel, and an empty wheel does not tick.
        let runtime = SimulatedRuntime::new(3);
        let timer = timer(&runtime);
        for _ in 0..100 {
            drop(timer.after(Duration::from_secs(30)));
        }
        assert!(timer.is_empty());
        runtime.run_until_idle().unwrap();
        let steps = runtime.steps();
        runtime.run_until(runtime.now().saturating_add(Duration::from_secs(3600))).unwrap();
        assert!(runtime.steps() <= steps + 1, "it ticks");
    }
}
