//! The [`Runtime`] of a shard: the glommio executor of this thread.
//!
//! The executor runs with a preempt timer of an hour (a short one puts it to sleep on runnable tasks), so nothing ever asks a
//! task to give way. A task that works for longer awaits [`Runtime::turn`]: a timer of one microsecond is the shortest
//! wait that reaches the reactor, and so sockets, disk and other timers. `yield_now` and a sleep of zero never do. Tasks
//! that ask for a turn before it comes share one, because a timer costs several system calls.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::OnceLock;
use std::task::Poll;
use std::time::Duration;

use super::channel::Notify;
use super::{Instant, Runtime};
use crate::limits::COMPLETION_GUARD_WAIT;

/// What is below it does not reach the reactor.
const TURN: Duration = Duration::from_micros(1);
/// See the module's comment.
const PREEMPT_TIMER: Duration = Duration::from_secs(3600);
/// Measured to be enough for a shard with thousands of connections; more brought nothing.
const RING_DEPTH: usize = 1024;
/// Registered buffers; beyond them the heap is used.
const IO_MEMORY_BYTES: usize = 4 << 20;

/// Handle to the executor that runs on this thread. It must be used only inside one.
#[derive(Clone, Copy, Debug)]
pub struct GlommioRuntime {
    start: std::time::Instant,
}

impl GlommioRuntime {
    /// All shards of a process count from the same start, so their instants compare.
    pub fn new() -> Self {
        static START: OnceLock<std::time::Instant> = OnceLock::new();
        Self { start: *START.get_or_init(monotonic_now) }
    }
}

impl Default for GlommioRuntime {
    fn default() -> Self {
        Self::new()
    }
}

impl Runtime for GlommioRuntime {
    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        // One type for all tasks: the executor's part would be compiled anew for each.
        let task: Pin<Box<dyn Future<Output = ()>>> = Box::pin(task);
        glommio::spawn_local(task).detach();
    }

    fn now(&self) -> Instant {
        Instant::from_start(monotonic_now().duration_since(self.start))
    }

    #[expect(clippy::disallowed_methods, reason = "this is where the wall clock enters")]
    fn wall_clock_ms(&self) -> i64 {
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX)
    }

    fn sleep(&self, wait: Duration) -> impl Future<Output = ()> + 'static {
        glommio::timer::sleep(wait.max(TURN))
    }

    fn turn(&self) -> impl Future<Output = ()> + 'static {
        take_turn()
    }
}

/// Waits for `work`, which the kernel or another thread completes. The executor may sleep through such a completion, so while
/// a thread waits for any it is woken every [`COMPLETION_GUARD_WAIT`]: reaching the reactor is all it takes to find one.
pub async fn guarded<T>(work: impl Future<Output = T>) -> T {
    let _watched = Watched::start();
    work.await
}

/// What the guard of a thread knows: one timer for whatever is awaited, because a timer each costs more than most completions.
#[derive(Default)]
struct Guard {
    awaited: Cell<usize>,
    is_ticking: Cell<bool>,
}

impl Guard {
    fn reset(&self) {
        self.awaited.set(0);
        self.is_ticking.set(false);
    }
}

thread_local! {
    static GUARD: Guard = Guard::default();
}

/// One completion that is awaited.
struct Watched;

impl Watched {
    fn start() -> Self {
        let is_ticking = GUARD.with(|guard| {
            guard.awaited.update(|count| count + 1);
            guard.is_ticking.replace(true)
        });
        if !is_ticking {
            glommio::spawn_local(tick()).detach();
        }
        Self
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // What an earlier executor of the thread left behind may be dropped after the reset.
        GUARD.with(|guard| guard.awaited.update(|count| count.saturating_sub(1)));
    }
}

async fn tick() {
    while GUARD.with(|guard| guard.awaited.get() > 0) {
        glommio::timer::sleep(COMPLETION_GUARD_WAIT).await;
    }
    GUARD.with(|guard| guard.is_ticking.set(false));
}

/// The turn that tasks of this thread wait for.
#[derive(Clone)]
struct NextTurn {
    is_asked_for: Rc<Cell<bool>>,
    came: Notify,
}

thread_local! {
    static NEXT_TURN: NextTurn = NextTurn { is_asked_for: Rc::default(), came: Notify::new() };
}

/// Also when who asked for the turn has given up: nobody else would say that it came.
struct LetGo(NextTurn);

impl Drop for LetGo {
    fn drop(&mut self) {
        self.0.is_asked_for.set(false);
        self.0.came.notify_all();
    }
}

async fn take_turn() {
    let next = NEXT_TURN.with(NextTurn::clone);
    if next.is_asked_for.get() {
        return next.came.notified().await;
    }
    next.is_asked_for.set(true);
    let _let_go = LetGo(next);
    reach_reactor().await;
}

/// A timer that is over before it is first looked at has not reached the reactor: then a longer one is taken.
async fn reach_reactor() {
    let mut wait = TURN;
    let mut timer = Box::pin(glommio::timer::sleep(wait));
    let mut is_armed = false;
    poll_fn(move |context| {
        while timer.as_mut().poll(context).is_ready() {
            if is_armed {
                return Poll::Ready(());
            }
            wait *= 2;
            timer = Box::pin(glommio::timer::sleep(wait));
        }
        is_armed = true;
        Poll::Pending
    })
    .await;
}

#[expect(clippy::disallowed_methods, reason = "this is where the monotonic clock enters")]
fn monotonic_now() -> std::time::Instant {
    std::time::Instant::now()
}

/// Runs `main` to its end on a new, unpinned executor of this thread: for tools and tests. Shards have their own set-up.
pub fn block_on<T: 'static>(main: impl Future<Output = T> + 'static) -> io::Result<T> {
    let executor = glommio::LocalExecutorBuilder::new(glommio::Placement::Unbound)
        .name("tool")
        .preempt_timer(PREEMPT_TIMER)
        .ring_depth(RING_DEPTH)
        .io_memory(IO_MEMORY_BYTES)
        .make()
        .map_err(io::Error::from)?;
    // An executor takes its tasks with it when it ends, and this thread may have had one.
    GUARD.with(Guard::reset);
    Ok(executor.run(main))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::channel;

    #[test]
    fn a_turn_is_shared_and_never_lost() {
        // Rule: whoever waits for a turn gets one, also when the task that asked for it is gone.
        let count = block_on(async {
            let taken = Rc::new(Cell::new(0));
            for _ in 0..100 {
                let mut given_up = Box::pin(take_turn());
                assert!(futures_lite::future::poll_once(&mut given_up).await.is_none());
                let mut waiting = Vec::new();
                for _ in 0..3 {
                    let taken = Rc::clone(&taken);
                    let (sender, receiver) = channel::oneshot();
                    GlommioRuntime::new().spawn(async move {
                        take_turn().await;
                        taken.set(taken.get() + 1);
                        sender.send(()).unwrap();
                    });
                    waiting.push(receiver);
                }
                drop(given_up);
                for receiver in waiting {
                    receiver.await.unwrap();
                }
            }
            taken.get()
        });
        assert_eq!(count.unwrap(), 300);
    }

    #[test]
    fn one_timer_guards_all_completions() {
        // Rule: while a thread waits for completions one timer ticks, none when it does not, and in its next executor too.
        let counts = || GUARD.with(|guard| (guard.awaited.get(), guard.is_ticking.get()));
        for _ in 0..2 {
            let (began, ended) = block_on(async move {
                let mut first = Box::pin(guarded(std::future::pending::<()>()));
                let mut second = Box::pin(guarded(std::future::pending::<()>()));
                assert!(futures_lite::future::poll_once(&mut first).await.is_none());
                assert!(futures_lite::future::poll_once(&mut second).await.is_none());
                glommio::timer::sleep(COMPLETION_GUARD_WAIT * 2).await;
                let began = counts();
                drop((first, second));
                while counts().1 {
                    glommio::timer::sleep(COMPLETION_GUARD_WAIT).await;
                }
                // The next executor of the thread starts in the middle of this one's wait.
                let left = Box::leak(Box::new(Box::pin(guarded(std::future::pending::<()>()))));
                let ended = counts();
                assert!(futures_lite::future::poll_once(left).await.is_none());
                (began, ended)
            })
            .unwrap();
            assert_eq!((began, ended), ((2, true), (0, false)));
        }
    }

    #[test]
    fn spawn_sleep_and_turn() {
        // Rule: a spawned task runs beside its parent, a sleep waits at least its time, and clocks go forward.
        let elapsed = block_on(async {
            let runtime = GlommioRuntime::new();
            let before = runtime.now();
            let (sender, receiver) = channel::oneshot();
            runtime.spawn(async move {
                GlommioRuntime::new().turn().await;
                sender.send(7).unwrap();
            });
            assert_eq!(receiver.await, Ok(7));
            runtime.sleep(Duration::from_millis(2)).await;
            runtime.sleep(Duration::ZERO).await;
            assert!(runtime.wall_clock_ms() > 1_700_000_000_000);
            runtime.now().saturating_since(before)
        })
        .unwrap();
        assert!(elapsed >= Duration::from_millis(2));
    }
}
