//! A deterministic executor: virtual time, and a task order that the seed chooses.
//!
//! The same seed and the same program give the same run, to the bit, so a failure is its seed. Time stands still while
//! tasks run and jumps to the next timer when none can. Each step polls one ready task picked at random: an order that a
//! real executor would show once in a million runs comes up within a few seeds.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::prng::Prng;
use super::{Instant, Runtime};

/// Steps after which a run counts as one that never ends.
pub const STEPS_MAX_DEFAULT: u64 = 20_000_000;
/// 2026-01-01 in milliseconds since 1970: where the simulated wall clock starts.
const WALL_CLOCK_START_MS: i64 = 1_767_225_600_000;
/// The future that `block_on` drives.
const MAIN_TASK: u64 = 0;

type BoxedTask = Pin<Box<dyn Future<Output = ()>>>;

/// Why a run stopped before its future was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    #[error("no task is ready and no timer is set: nothing can happen any more")]
    Deadlock,
    #[error("the step limit was reached")]
    StepLimit,
    #[error("the stop condition held")]
    Condition,
}

/// Tasks that were woken. `Waker` asks for `Send + Sync`, hence the lock; only one thread ever takes it.
#[derive(Default)]
struct ReadyList {
    tasks: Mutex<Vec<u64>>,
}

impl ReadyList {
    fn tasks(&self) -> MutexGuard<'_, Vec<u64>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, task: u64) {
        let mut tasks = self.tasks();
        if !tasks.contains(&task) {
            tasks.push(task);
        }
    }
}

struct TaskWaker {
    task: u64,
    ready: Arc<ReadyList>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.ready.push(self.task);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.push(self.task);
    }
}

struct State {
    seed: u64,
    prng: Prng,
    now: Duration,
    /// A task is taken out while it is polled.
    tasks: BTreeMap<u64, BoxedTask>,
    next_task: u64,
    timers: BTreeMap<(Duration, u64), Waker>,
    next_timer: u64,
    steps: u64,
    steps_max: u64,
    wall_clock_offset_ms: i64,
}

/// A seeded single-threaded executor; clones are handles to the same one.
#[derive(Clone)]
pub struct SimulatedRuntime {
    state: Rc<RefCell<State>>,
    ready: Arc<ReadyList>,
}

impl SimulatedRuntime {
    pub fn new(seed: u64) -> Self {
        let state = State {
            seed,
            prng: Prng::new(seed),
            now: Duration::ZERO,
            tasks: BTreeMap::new(),
            next_task: MAIN_TASK + 1,
            timers: BTreeMap::new(),
            next_timer: 0,
            steps: 0,
            steps_max: STEPS_MAX_DEFAULT,
            wall_clock_offset_ms: WALL_CLOCK_START_MS,
        };
        Self { state: Rc::new(RefCell::new(state)), ready: Arc::default() }
    }

    pub fn seed(&self) -> u64 {
        self.state.borrow().seed
    }

    /// Steps after which a run is [`Stopped::StepLimit`].
    pub fn set_steps_max(&self, steps_max: u64) {
        self.state.borrow_mut().steps_max = steps_max;
    }

    /// Polls so far.
    pub fn steps(&self) -> u64 {
        self.state.borrow().steps
    }

    /// A generator for other parts of the simulation; its numbers follow from the seed.
    pub fn fork_prng(&self) -> Prng {
        self.state.borrow_mut().prng.fork()
    }

    /// Moves the wall clock, also backwards, without touching the monotonic one.
    pub fn shift_wall_clock(&self, shift_ms: i64) {
        self.state.borrow_mut().wall_clock_offset_ms += shift_ms;
    }

    /// Spawned tasks that have not ended.
    pub fn task_count(&self) -> usize {
        self.state.borrow().tasks.len()
    }

    /// Runs until `main` is ready. Spawned tasks go on in a later call.
    ///
    /// # Panics
    /// When nothing can happen any more or the step limit is reached; the message holds the seed.
    pub fn block_on<T>(&self, main: impl Future<Output = T>) -> T {
        match self.block_on_unless(main, || false) {
            Ok(output) => output,
            Err(stopped) => panic!("seed {}: {stopped} (after {} steps)", self.seed(), self.steps()),
        }
    }

    /// Like [`Self::block_on`], but an error says why it stopped, and it stops as soon as `stop` holds after a step.
    pub fn block_on_unless<T>(
        &self,
        main: impl Future<Output = T>,
        mut stop: impl FnMut() -> bool,
    ) -> Result<T, Stopped> {
        let mut main = pin!(main);
        let main_waker = self.waker(MAIN_TASK);
        self.ready.push(MAIN_TASK);
        loop {
            if stop() {
                return Err(Stopped::Condition);
            }
            self.count_step()?;
            match self.pick_ready() {
                Some(MAIN_TASK) => {
                    let mut context = Context::from_waker(&main_waker);
                    if let Poll::Ready(output) = main.as_mut().poll(&mut context) {
                        return Ok(output);
                    }
                }
                Some(task) => self.poll_task(task),
                None if self.fire_next_timer(None) => {}
                None => return Err(Stopped::Deadlock),
            }
        }
    }

    /// Runs everything that is due up to and including `deadline`, and leaves the clock there.
    pub fn run_until(&self, deadline: Instant) -> Result<(), Stopped> {
        loop {
            self.count_step()?;
            match self.pick_ready() {
                Some(task) => self.poll_task(task),
                None if self.fire_next_timer(Some(deadline.since_start())) => {}
                None => break,
            }
        }
        let mut state = self.state.borrow_mut();
        state.now = state.now.max(deadline.since_start());
        Ok(())
    }

    /// Runs until no task is ready and no timer is set.
    pub fn run_until_idle(&self) -> Result<(), Stopped> {
        loop {
            self.count_step()?;
            match self.pick_ready() {
                Some(task) => self.poll_task(task),
                None if self.fire_next_timer(None) => {}
                None => return Ok(()),
            }
        }
    }

    /// The process dies: every task and timer is dropped where it stands. The clock goes on from here.
    pub fn crash(&self) {
        // Dropping a task may wake or spawn others, so nothing is borrowed meanwhile, and it is done until none is left.
        loop {
            let (tasks, timers) = {
                let mut state = self.state.borrow_mut();
                (std::mem::take(&mut state.tasks), std::mem::take(&mut state.timers))
            };
            if tasks.is_empty() && timers.is_empty() {
                break;
            }
            drop(tasks);
            drop(timers);
        }
        self.ready.tasks().clear();
    }

    fn waker(&self, task: u64) -> Waker {
        Waker::from(Arc::new(TaskWaker { task, ready: self.ready.clone() }))
    }

    fn count_step(&self) -> Result<(), Stopped> {
        let mut state = self.state.borrow_mut();
        state.steps += 1;
        if state.steps > state.steps_max { Err(Stopped::StepLimit) } else { Ok(()) }
    }

    fn pick_ready(&self) -> Option<u64> {
        let mut tasks = self.ready.tasks();
        if tasks.is_empty() {
            return None;
        }
        let index = self.state.borrow_mut().prng.index(tasks.len());
        Some(tasks.swap_remove(index))
    }

    fn poll_task(&self, task: u64) {
        // A late wake-up of a task that has ended finds nothing.
        let Some(mut future) = self.state.borrow_mut().tasks.remove(&task) else { return };
        let waker = self.waker(task);
        if future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            self.state.borrow_mut().tasks.insert(task, future);
        }
    }

    /// Moves the clock to the next timer and wakes all that are due then. False when there is none up to `deadline`.
    fn fire_next_timer(&self, deadline: Option<Duration>) -> bool {
        let due = {
            let mut state = self.state.borrow_mut();
            let Some(((at, _), _)) = state.timers.first_key_value() else { return false };
            let at = *at;
            if deadline.is_some_and(|deadline| at > deadline) {
                return false;
            }
            state.now = state.now.max(at);
            let later = state.timers.split_off(&(at + Duration::from_nanos(1), 0));
            std::mem::replace(&mut state.timers, later)
        };
        due.into_values().for_each(Waker::wake);
        true
    }
}

impl Runtime for SimulatedRuntime {
    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let id = {
            let mut state = self.state.borrow_mut();
            let id = state.next_task;
            state.next_task += 1;
            state.tasks.insert(id, Box::pin(task));
            id
        };
        self.ready.push(id);
    }

    fn now(&self) -> Instant {
        Instant::from_start(self.state.borrow().now)
    }

    fn wall_clock_ms(&self) -> i64 {
        let state = self.state.borrow();
        let elapsed_ms = i64::try_from(state.now.as_millis()).unwrap_or(i64::MAX);
        state.wall_clock_offset_ms.saturating_add(elapsed_ms)
    }

    fn sleep(&self, wait: Duration) -> impl Future<Output = ()> + 'static {
        Sleep { runtime: self.clone(), wait, timer: None }
    }

    fn turn(&self) -> impl Future<Output = ()> + 'static {
        self.sleep(Duration::from_micros(1))
    }
}

/// Counted from its first poll, as on glommio.
struct Sleep {
    runtime: SimulatedRuntime,
    wait: Duration,
    timer: Option<(Duration, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let mut state = this.runtime.state.borrow_mut();
        let timer = match this.timer {
            Some(timer) => timer,
            None => {
                let timer = (state.now.saturating_add(this.wait), state.next_timer);
                state.next_timer += 1;
                this.timer = Some(timer);
                timer
            }
        };
        if timer.0 <= state.now && !this.wait.is_zero() {
            state.timers.remove(&timer);
            return Poll::Ready(());
        }
        if this.wait.is_zero() {
            // Even a wait of nothing lets others run once.
            this.wait = Duration::from_nanos(1);
        }
        state.timers.insert(timer, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            // The waker is dropped after the borrow: it may hold the last handle of something that comes back here.
            let waker = self.runtime.state.borrow_mut().timers.remove(&timer);
            drop(waker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::channel;

    #[test]
    fn time_jumps_to_the_next_timer() {
        // Rule: virtual time moves only when no task can run, and exactly to the timer that is due.
        let runtime = SimulatedRuntime::new(1);
        let handle = runtime.clone();
        runtime.block_on(async move {
            handle.sleep(Duration::from_secs(3600)).await;
            assert_eq!(handle.now().since_start(), Duration::from_secs(3600));
            handle.sleep(Duration::ZERO).await;
            assert_eq!(handle.now().since_start(), Duration::from_secs(3600));
        });
    }

    fn order_of(seed: u64) -> Vec<u32> {
        let runtime = SimulatedRuntime::new(seed);
        let order = Rc::new(RefCell::new(Vec::new()));
        for number in 0..8 {
            let (order, handle) = (order.clone(), runtime.clone());
            runtime.spawn(async move {
                handle.turn().await;
                order.borrow_mut().push(number);
            });
        }
        runtime.run_until_idle().unwrap();
        order.take()
    }

    #[test]
    fn the_seed_decides_the_order() {
        // Rule: the same seed gives the same run; other seeds give other orders.
        assert_eq!(order_of(7), order_of(7));
        assert!((0..20).any(|seed| order_of(seed) != order_of(7)));
    }

    #[test]
    fn a_crash_drops_every_task() {
        // Rule: after a crash nothing of the old process runs or holds memory.
        let runtime = SimulatedRuntime::new(1);
        let held = Rc::new(());
        let (task_held, handle) = (held.clone(), runtime.clone());
        runtime.spawn(async move {
            let _held = task_held;
            handle.sleep(Duration::from_secs(1)).await;
            unreachable!("ran after the crash");
        });
        runtime.run_until(Instant::from_start(Duration::from_millis(10))).unwrap();
        runtime.crash();
        assert_eq!(Rc::strong_count(&held), 1);
        runtime.run_until_idle().unwrap();
    }

    #[test]
    fn a_run_that_cannot_go_on_says_so() {
        // Rule: deadlock, step limit and stop condition are told apart.
        let runtime = SimulatedRuntime::new(1);
        let (sender, receiver) = channel::oneshot::<()>();
        assert_eq!(runtime.block_on_unless(receiver, || false), Err(Stopped::Deadlock));
        drop(sender);
        let handle = runtime.clone();
        let for_ever = async move {
            loop {
                handle.turn().await;
            }
        };
        assert_eq!(runtime.block_on_unless(for_ever, || runtime.steps() > 100), Err(Stopped::Condition));
        runtime.set_steps_max(200);
        assert_eq!(runtime.block_on_unless(std::future::pending::<()>(), || false), Err(Stopped::Deadlock));
        let handle = runtime.clone();
        let for_ever = async move {
            loop {
                handle.turn().await;
            }
        };
        assert_eq!(runtime.block_on_unless(for_ever, || false), Err(Stopped::StepLimit));
    }
}
