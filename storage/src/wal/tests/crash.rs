//! The power is cut at every operation, and the log is held against a model.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::runtime::prng::{Prng, seeds};

/// What was asked of the log and what it promised.
#[derive(Default)]
struct Model {
    appended: RefCell<BTreeMap<u64, Bytes>>,
    acknowledged: Cell<u64>,
    truncated_before: Cell<u64>,
}

impl Model {
    /// Holds a recovery against the promises and goes on from it.
    fn check(&self, context: &str, recovered: &Recovered, records: &[(u64, Bytes)]) {
        let wanted_from = self.truncated_before.get().max(1);
        assert!(recovered.first_sequence <= wanted_from, "{context}: {recovered:?} but needed from {wanted_from}");
        assert!(recovered.next_sequence > self.acknowledged.get(), "{context}: acknowledged records are gone");
        let sequences = recovered.first_sequence..recovered.next_sequence;
        assert!(records.iter().map(|(sequence, _)| *sequence).eq(sequences), "{context}: order");
        let mut appended = self.appended.borrow_mut();
        for (sequence, bytes) in records {
            assert_eq!(appended.get(sequence), Some(bytes), "{context}: record {sequence} was never appended so");
        }
        // What was not there is free to be something else next time.
        appended.split_off(&recovered.next_sequence);
        self.acknowledged.set(recovered.next_sequence - 1);
    }
}

/// Appends, waits, gives up waiting, truncates; everything by seed.
async fn work(runtime: SimulatedRuntime, wal: SimulatedWal, model: Rc<Model>, mut prng: Prng, steps: u32) {
    for _ in 0..steps {
        let large = prng.chance(1, 6);
        let len = prng.index(if large { 15_000 } else { 400 });
        let mut bytes = vec![0; len];
        prng.fill(&mut bytes);
        let bytes = Bytes::from(bytes);
        let Ok(sequence) = wal.append(bytes.clone()) else { return };
        model.appended.borrow_mut().insert(sequence, bytes);
        let committed = wal.committed(sequence);
        match prng.below(6) {
            0 => {}
            1 => runtime.sleep(Duration::from_micros(prng.below(2000))).await,
            _ => {
                if committed.await.is_err() {
                    return;
                }
                model.acknowledged.set(model.acknowledged.get().max(sequence));
            }
        }
        if prng.chance(1, 5) {
            let before = wal.durable_through().saturating_sub(prng.below(6));
            model.truncated_before.set(model.truncated_before.get().max(before));
            wal.truncate_before(before);
        }
    }
}

/// One life of the process: opens, checks, works with three clients, and dies at the `cut`-th operation if it gets there.
/// Returns the disk after it and the number of operations.
fn live(
    context: &str,
    runtime: &SimulatedRuntime,
    disk: &SimulatedDisk,
    model: &Rc<Model>,
    life: Life,
) -> SimulatedDisk {
    if let Some(cut) = life.cut {
        disk.cut_power_at(cut);
    }
    let (handle, disk_handle, model) = (runtime.clone(), disk.clone(), model.clone());
    let whole = async {
        let (wal, recovered, records) = open(&handle, &disk_handle).await.unwrap_or_else(|e| panic!("{context}: {e}"));
        model.check(context, &recovered, &records);
        if life.large_first {
            let bytes = payload(recovered.next_sequence, 60_000);
            model.appended.borrow_mut().insert(recovered.next_sequence, bytes.clone());
            let sequence = wal.append_committed(bytes).await.unwrap();
            model.acknowledged.set(sequence);
            model.truncated_before.set(sequence);
            wal.truncate_before(sequence);
            handle.sleep(Duration::from_millis(20)).await;
        }
        let gate = Gate::new();
        for _ in 0..3 {
            let work = work(handle.clone(), wal.clone(), model.clone(), handle.fork_prng(), life.steps);
            let guard = gate.enter().unwrap();
            handle.spawn(async move {
                work.await;
                drop(guard);
            });
        }
        gate.close_and_wait().await;
        wal.close().await.unwrap();
    };
    let ended = runtime.block_on_unless(whole, || disk.has_lost_power());
    assert!(ended.is_ok() || disk.has_lost_power(), "{context}: {ended:?}");
    runtime.crash();
    if life.kill { disk.kill(runtime) } else { disk.crash(runtime) }
}

#[derive(Clone, Copy)]
struct Life {
    cut: Option<u64>,
    kill: bool,
    steps: u32,
    /// Begins with a record that no prepared file can take, then lets go of everything before it.
    large_first: bool,
}

#[test]
fn the_power_may_go_at_any_operation() {
    // Rule: after a cut at every single operation all that was acknowledged is there, in order, and nothing else.
    for seed in seeds(6) {
        let steps = 12;
        let total = {
            let (runtime, disk) = world(seed);
            live("whole", &runtime, &disk, &Rc::default(), Life { cut: None, kill: false, steps, large_first: false });
            disk.change_count()
        };
        for cut in 1..=total {
            let context = format!("seed {seed} cut {cut}");
            let (runtime, disk) = world(seed);
            let model = Rc::default();
            let disk = live(
                &context,
                &runtime,
                &disk,
                &model,
                Life { cut: Some(cut), kill: cut % 4 == 0, steps, large_first: false },
            );
            let disk =
                live(&context, &runtime, &disk, &model, Life { cut: None, kill: false, steps: 2, large_first: false });
            live(&context, &runtime, &disk, &model, Life { cut: None, kill: false, steps: 0, large_first: false });
        }
    }
}

#[test]
fn many_lives_that_all_end_badly() {
    // Rule: remains of earlier lives, torn, stale and recycled, never come back, however many pile up.
    for seed in 100..160 {
        let (runtime, mut disk) = world(seed);
        let model = Rc::default();
        let mut prng = runtime.fork_prng();
        for number in 0..12 {
            let context = format!("seed {seed} life {number}");
            let life = Life { cut: Some(prng.between(1, 120)), kill: prng.chance(1, 4), steps: 15, large_first: false };
            disk = live(&context, &runtime, &disk, &model, life);
        }
        live(
            &format!("seed {seed} at the end"),
            &runtime,
            &disk,
            &model,
            Life { cut: None, kill: false, steps: 1, large_first: false },
        );
    }
}

#[test]
fn files_without_records_go_before_older_ones() {
    // Rule: freeing files, cut anywhere, never leaves a start that takes an unused file for a damaged one.
    for seed in 200..206 {
        let mut cut = 0;
        loop {
            cut += 1;
            let context = format!("seed {seed} cut {cut}");
            let (runtime, disk) = world(seed);
            let model = Rc::default();
            let whole = Life { cut: None, kill: false, steps: 6, large_first: false };
            let mut disk = live(&context, &runtime, &disk, &model, whole);
            // Lives that write nothing leave files without records.
            for quiet_cut in [9, 7] {
                disk = live(&context, &runtime, &disk, &model, Life { cut: Some(quiet_cut), steps: 0, ..whole });
            }
            let large = Life { cut: Some(cut), kill: false, steps: 0, large_first: true };
            let after = live(&context, &runtime, &disk, &model, large);
            live(&context, &runtime, &after, &model, Life { cut: None, kill: false, steps: 2, large_first: false });
            if disk.change_count() < cut {
                break;
            }
        }
    }
}

#[test]
fn what_a_start_has_given_stays() {
    // Rule: a record that a start has replayed is there after a power cut, though the flush that should have covered it
    // failed in the run before.
    for seed in seeds(40) {
        let (runtime, disk) = world(seed);
        let (wal, ..) = runtime.block_on(open(&runtime, &disk)).unwrap();
        runtime.block_on(append_all(&wal, 1..3, 300));
        disk.fail_nth(Operation::SyncData, ".wal", 1, libc::EIO);
        assert!(runtime.block_on(wal.append_committed(payload(3, 300))).is_err());
        runtime.crash();
        let disk = disk.kill(&runtime);
        let (_, _, given) = runtime.block_on(open(&runtime, &disk)).unwrap();
        runtime.crash();
        let disk = disk.crash(&runtime);
        let (_, _, found) = runtime.block_on(open(&runtime, &disk)).unwrap();
        assert_eq!(found, given, "seed {seed}");
    }
}
