//! More than the journal may hold: who waits, and for how long.

use super::*;
use crate::journal::record::{Roll, Standing};
use crate::runtime::channel::Gate;

/// What a run under load has shown.
#[derive(Debug, Default)]
struct Seen {
    appended: Cell<u32>,
    waited: Cell<u32>,
    longest_wait: Cell<Duration>,
    live_bytes_max: Cell<u64>,
    staged_bytes_max: Cell<usize>,
}

async fn producer(
    runtime: SimulatedRuntime,
    (journal, log): (SimulatedJournal, SimulatedLog),
    seen: Rc<Seen>,
    mut prng: Prng,
    load: Load,
) {
    let mut ends = Vec::new();
    for _ in 0..load.batches {
        let batch_bytes = prng.between(100, load.batch_bytes_max) as usize;
        let batch = batch(&mut prng, 1, batch_bytes, NOW);
        if let Some(place) = log.stand_in_line(batch.len()) {
            let begun = runtime.now();
            place.turn().await;
            seen.waited.update(|waited| waited + 1);
            seen.longest_wait.update(|longest| longest.max(runtime.now().saturating_since(begun)));
            ends.push(append(&log, &mut History::default(), batch).expect("it is its turn"));
        } else {
            ends.push(append(&log, &mut History::default(), batch).expect("there is room"));
        }
        seen.appended.update(|appended| appended + 1);
        seen.live_bytes_max.update(|most| most.max(journal.live_bytes()));
        seen.staged_bytes_max.update(|most| most.max(journal.staged_bytes()));
        if ends.len() >= load.in_flight {
            log.durable(ends.remove(0)).await.expect("no fault");
        }
        if load.pause_us > 0 {
            runtime.sleep(Duration::from_micros(prng.below(load.pause_us))).await;
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Load {
    batches: u32,
    batch_bytes_max: u64,
    in_flight: usize,
    pause_us: u64,
}

fn run(seed: u64, shape: Shape, load: Load) -> Rc<Seen> {
    let world = World::new(seed, shape);
    let running = world.start_anew();
    let (seen, gate) = (Rc::new(Seen::default()), Gate::new());
    for log in &running.logs {
        let handles = (running.journal.clone(), log.clone());
        let producer = producer(world.runtime.clone(), handles, Rc::clone(&seen), world.runtime.fork_prng(), load);
        let guard = gate.enter().expect("open");
        world.runtime.spawn(async move {
            producer.await;
            drop(guard);
        });
    }
    world.runtime.set_steps_max(10_000_000);
    world.runtime.block_on(gate.close_and_wait());
    for log in &running.logs {
        world.runtime.block_on(log.durable(log.log_end_offset())).expect("no fault");
    }
    seen
}

#[test]
fn a_journal_under_load_stays_within_its_bounds() {
    // Rule: with small appends to many logs for long, files are let go of while it goes on: the journal never holds more
    // than it may, and nobody waits for long.
    for seed in seeds(4) {
        let shape = Shape { partitions: 20, live_bytes_max: 512 << 10, ..Shape::default() };
        let load = Load { batches: 150, batch_bytes_max: 1500, in_flight: 4, pause_us: 4000 };
        let seen = run(seed, shape, load);
        assert!(seen.live_bytes_max.get() <= shape.live_bytes_max, "seed {seed}: {seen:?}");
        assert!(seen.longest_wait.get() < Duration::from_millis(300), "seed {seed}: {seen:?}");
    }
}

#[test]
fn producers_faster_than_the_disk_wait_and_go_on() {
    // Rule: whatever the bounds, who waits for room gets it soon, and all bounds hold.
    for seed in seeds(30) {
        let mut prng = Prng::new(seed);
        let shape = Shape {
            partitions: prng.between(1, 8) as i32,
            live_bytes_max: prng.between(64 << 10, 512 << 10),
            staged_bytes_max: prng.between(20 << 10, 300 << 10) as usize,
            batch_bytes_max: prng.between(2 << 10, 8 << 10) as usize,
            ..Shape::default()
        };
        let load = Load {
            batches: 60,
            batch_bytes_max: prng.between(500, 16_000),
            in_flight: prng.between(1, 60) as usize,
            pause_us: prng.below(3000),
        };
        let seen = run(seed, shape, load);
        let slack = if seen.staged_bytes_max.get() <= 16_100 { 16_100 } else { 0 };
        assert!(seen.staged_bytes_max.get() <= shape.staged_bytes_max + slack, "seed {seed}: {seen:?} {shape:?}");
        assert!(seen.longest_wait.get() < Duration::from_millis(500), "seed {seed}: {seen:?} {shape:?}");
        assert!(seen.live_bytes_max.get() <= shape.live_bytes_max, "seed {seed}: {seen:?} {shape:?}");
    }
}

#[test]
fn one_commit_leaves_the_journal_room() {
    // Rule: however much may wait in memory, what waits for one commit is a part of what the journal may keep; it used to fill
    // all of it, and there was no older file to let go of.
    let shape = Shape { partitions: 6, live_bytes_max: 64 << 10, staged_bytes_max: 300 << 10, ..Shape::default() };
    let load = Load { batches: 60, batch_bytes_max: 3000, in_flight: 60, pause_us: 0 };
    for seed in seeds(10) {
        let seen = run(seed, shape, load);
        assert!(seen.staged_bytes_max.get() <= 16 << 10, "seed {seed}: {seen:?}");
        assert_eq!(seen.appended.get(), 360);
        assert!(seen.longest_wait.get() < Duration::from_millis(500), "seed {seed}: {seen:?}");
    }
}

/// Appends to a log, one after the other, and how many of them in time.
fn append_in_time(world: &World, log: &SimulatedLog, history: &mut History, prng: &mut Prng, count: u32) -> u32 {
    let appended = Cell::new(0);
    let work = async {
        for _ in 0..count {
            let batch = batch_of(prng, 1000);
            let place = log.stand_in_line(batch.len());
            if let Some(place) = &place {
                place.turn().await;
            }
            append(log, history, batch).expect("no fault");
            drop(place);
            log.durable(history.end_offset()).await.expect("no fault");
            appended.update(|appended| appended + 1);
        }
    };
    world.runtime.block_on(futures_lite::future::or(work, world.runtime.sleep(Duration::from_secs(60))));
    appended.get()
}

#[test]
fn a_log_that_failed_does_not_stop_the_others() {
    // Rule: what only the journal has of a log that failed stays there until the next start, and still the others go on,
    // without the journal once it is full; when the log is deleted, with it again.
    for is_killed in [false, true] {
        let shape = Shape { live_bytes_max: 128 << 10, ..Shape::default() };
        let mut world = World::new(1, shape);
        let running = world.start_anew();
        let (mut prng, mut histories) = (Prng::new(1), vec![History::default(); 3]);
        append(&running.logs[1], &mut histories[1], batch_of(&mut prng, 1000)).expect("no fault");
        world.runtime.block_on(running.logs[1].durable(1)).expect("no fault");
        world.disk.fail_nth(crate::disk::simulated::Operation::Write, "topic-1/0", 1, libc::EIO);
        world.runtime.block_on(running.logs[1].flush()).expect_err("the write fails");
        assert_eq!(append_in_time(&world, &running.logs[0], &mut histories[0], &mut prng, 100), 100);
        assert!(running.journal.is_clogged());
        let live_bytes = running.journal.live_bytes();
        assert_eq!(append_in_time(&world, &running.logs[2], &mut histories[2], &mut prng, 100), 100);
        assert_eq!(running.journal.live_bytes(), live_bytes, "nothing more goes into the journal");
        if is_killed {
            world.end(false);
            let again = world.start_anew();
            for (log, history) in again.logs.iter().zip(&histories) {
                assert!(world.runtime.block_on(read_all(log, 0)) == history.batches, "{}", log.dir().display());
            }
        } else {
            running.logs[1].forget_journal();
            world.sleep(Duration::from_secs(3));
            assert!(!running.journal.is_clogged() && running.journal.live_bytes() < 64 << 10);
            let commits = running.journal.take_commit_count();
            assert_eq!(append_in_time(&world, &running.logs[0], &mut histories[0], &mut prng, 100), 100);
            assert!(running.journal.take_commit_count() > 50, "after {commits}");
        }
    }
}

#[test]
fn a_commit_as_large_as_the_journal_keeps_nobody_waiting() {
    // Rule: where the file that is written holds all that the journal may keep and no older one can go, appends go on: with
    // them come other files, and that one goes.
    for before in [0, 3] {
        let shape = Shape { live_bytes_max: 64 << 10, ..Shape::default() };
        let world = World::new(2, shape);
        let running = world.start_anew();
        let (mut prng, mut history) = (Prng::new(2), History::default());
        assert_eq!(append_in_time(&world, &running.logs[0], &mut history, &mut prng, before), before);
        let standing = Standing { topic_id: TOPIC_ID, partition: 0, needs_from: 1, end_offset: 0 };
        let roll = Roll { shard_count: 1, as_of: 1, standings: vec![standing; 2500] };
        let wal = &running.journal.inner.wal;
        let sequence = wal.append(roll.encode()).expect("no fault");
        world.runtime.block_on(wal.committed(sequence)).expect("no fault");
        assert!(running.journal.live_bytes() >= shape.live_bytes_max);
        assert_eq!(append_in_time(&world, &running.logs[0], &mut history, &mut prng, 100), 100, "{before} before");
        world.sleep(Duration::from_secs(3));
        assert!(running.journal.live_bytes() < shape.live_bytes_max, "{before} before");
    }
}
