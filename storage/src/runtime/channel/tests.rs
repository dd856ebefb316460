use std::time::Duration;

use super::*;
use crate::runtime::Runtime;
use crate::runtime::simulated::SimulatedRuntime;

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn oneshot_delivers_or_says_closed() {
    // Rule: a value sent arrives even when the sender is long gone; a sender dropped unused is an error, not a hang.
    let (sender, mut receiver) = oneshot();
    assert!(poll_once(&mut receiver).is_pending());
    assert_eq!(sender.send(5), Ok(()));
    assert_eq!(poll_once(&mut receiver), Poll::Ready(Ok(5)));
    let (sender, mut receiver) = oneshot::<u8>();
    drop(sender);
    assert_eq!(poll_once(&mut receiver), Poll::Ready(Err(Closed)));
    let (sender, receiver) = oneshot();
    drop(receiver);
    assert!(sender.is_closed());
    assert_eq!(sender.send(6), Err(6));
}

#[test]
fn bounded_keeps_order_and_bound_under_any_schedule() {
    // Rule: never more than the capacity is queued, each sender's values arrive in its order, none is lost.
    for seed in 0..50 {
        let runtime = SimulatedRuntime::new(seed);
        let (sender, mut receiver) = bounded(3);
        for name in 0..4u32 {
            let (sender, handle) = (sender.clone(), runtime.clone());
            runtime.spawn(async move {
                for number in 0..25u32 {
                    sender.send((name, number)).await.unwrap();
                    if number % 7 == name {
                        handle.turn().await;
                    }
                }
            });
        }
        drop(sender);
        let received = runtime.block_on(async move {
            let mut next = [0u32; 4];
            while let Some((name, number)) = receiver.recv().await {
                assert!(receiver.len() <= 3);
                assert_eq!(next[name as usize], number, "seed {seed}");
                next[name as usize] += 1;
            }
            next
        });
        assert_eq!(received, [25; 4], "seed {seed}");
    }
}

#[test]
fn a_dropped_send_passes_its_turn_on() {
    // Rule: a sender that was woken and then dropped does not leave the next one waiting beside free room.
    let (sender, mut receiver) = bounded(1);
    sender.try_send(1).unwrap();
    let mut first = sender.send(2);
    let mut second = sender.send(3);
    assert!(poll_once(&mut first).is_pending());
    assert!(poll_once(&mut second).is_pending());
    assert_eq!(receiver.try_recv(), Some(1));
    assert_eq!(sender.try_send(9), Err(TrySendError::Full(9)), "those who wait come first");
    drop(first);
    assert_eq!(poll_once(&mut second), Poll::Ready(Ok(())));
    assert_eq!(receiver.try_recv(), Some(3));
    drop(receiver);
    assert_eq!(sender.try_send(4), Err(TrySendError::Closed(4)));
    assert_eq!(poll_once(&mut sender.send(4)), Poll::Ready(Err(4)));
}

#[test]
fn notify_misses_nothing() {
    // Rule: what is notified between `notified()` and its first poll counts, and a dropped waiter passes its wake-up on.
    let notify = Notify::new();
    let mut early = notify.notified();
    notify.notify_all();
    assert!(poll_once(&mut early).is_ready());
    assert!(poll_once(&mut notify.notified()).is_pending(), "notify_all leaves no permit");
    notify.notify_one();
    assert!(poll_once(&mut notify.notified()).is_ready());
    let (mut first, mut second) = (notify.notified(), notify.notified());
    assert!(poll_once(&mut first).is_pending());
    assert!(poll_once(&mut second).is_pending());
    notify.notify_one();
    drop(first);
    assert!(poll_once(&mut second).is_ready());
}

#[test]
fn semaphore_is_fair_and_gives_back() {
    // Rule: a large request is not overtaken; units of dropped futures and permits come back, each exactly once.
    let semaphore = Semaphore::new(4);
    let held = semaphore.try_acquire(3).unwrap();
    let mut large = semaphore.acquire(4);
    assert!(poll_once(&mut large).is_pending());
    assert!(semaphore.try_acquire(1).is_none(), "somebody waits");
    let mut small = semaphore.acquire(1);
    assert!(poll_once(&mut small).is_pending());
    drop(large);
    let Poll::Ready(mut small) = poll_once(&mut small) else { panic!("the one in front is gone") };
    small.merge(held);
    assert_eq!(small.count(), 4);
    small.shrink_to(2);
    assert_eq!(semaphore.available(), 2);
    let mut granted = semaphore.acquire(3);
    assert!(poll_once(&mut granted).is_pending());
    drop(small);
    assert_eq!(semaphore.available(), 1, "granted before it was polled");
    drop(granted);
    assert_eq!(semaphore.available(), 4);
}

#[test]
fn gate_waits_for_all_and_lets_nobody_in() {
    // Rule: closing is told to those inside, waits for the last of them, and lets no new one in.
    let runtime = SimulatedRuntime::new(3);
    let gate = Gate::new();
    let ended = Rc::new(Cell::new(0));
    for _ in 0..5 {
        let guard = gate.enter().unwrap();
        let (gate, handle, ended) = (gate.clone(), runtime.clone(), ended.clone());
        runtime.spawn(async move {
            gate.closing().await;
            handle.sleep(Duration::from_millis(5)).await;
            ended.set(ended.get() + 1);
            drop(guard);
        });
    }
    assert_eq!(gate.inside_count(), 5);
    let closing = gate.close_and_wait();
    assert!(gate.enter().is_none());
    runtime.block_on(closing);
    assert_eq!(ended.get(), 5);
}
