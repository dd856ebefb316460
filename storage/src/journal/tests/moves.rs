//! Logs are copied into another directory while everything else happens to them.

use super::crash::Work;
use super::*;
use crate::compaction::throttle::Throttle;
use crate::log::{CopiedLog, CopyPace};

const COPY_DIR: &str = "/other/topic-0";

/// A copy of the first log, pass after pass until the others have ended their work, and then of the rest. At times an attempt
/// is given up, and another one goes on with what it has left.
async fn copy_first(world: &World, log: &SimulatedLog, mut prng: Prng, is_over: Rc<Cell<bool>>) -> CopiedLog {
    let runtime = &world.runtime;
    runtime.sleep(Duration::from_micros(prng.below(5000))).await;
    let throttle =
        Throttle::new(if prng.chance(1, 4) { f64::INFINITY } else { prng.between(100_000, 5_000_000) as f64 });
    let others = RefCell::new(prng.fork());
    let give_way = async || {
        let others_us = {
            let mut prng = others.borrow_mut();
            let most_us = [100, 3000, 20_000][prng.index(3)];
            prng.below(most_us)
        };
        runtime.sleep(Duration::from_micros(others_us)).await;
    };
    let pace = CopyPace { throttle: &throttle, give_way: &give_way, is_over: &|| false };
    let source = log.begin_copy().await.expect("a good log");
    let resume = async || source.resume(world.disk.clone(), COPY_DIR.into(), Rc::default()).await.expect("no fault");
    let mut copy = resume().await;
    while !is_over.get() {
        let end_offset = log.log_end_offset();
        source.copy(&mut copy, &pace).await.expect("no fault");
        while !is_over.get() && log.log_end_offset() == end_offset {
            runtime.sleep(Duration::from_micros(1 + prng.below(1000))).await;
        }
        if prng.chance(1, 10) {
            drop(copy);
            copy = resume().await;
        }
    }
    source.finish(&mut copy, &pace).await.expect("no fault")
}

/// As the one that was stopped cleanly.
async fn open_copy(world: &World, copied: CopiedLog) -> SimulatedLog {
    let open = OpenLog {
        disk: world.disk.clone(),
        open_files: OpenFiles::new(2),
        runtime: world.runtime.clone(),
        budget: TailBudget::new(world.shape.tail_bytes),
        journal: None,
        dir: COPY_DIR.into(),
        config: world.config().into(),
        is_clean: true,
        recovery_point: Some(copied.log_end_offset),
        log_start_offset: Some(copied.log_start_offset),
        first_dirty_offset: Some(copied.first_dirty_offset),
        entries: None,
        defers_sync: false,
        known_end: None,
        now_ms: NOW,
    };
    let (log, report) = Log::open(open).await.expect("no fault");
    assert_eq!((report.scanned_bytes, report.corruption), (0, None), "everything is trusted");
    log
}

#[test]
fn a_copy_of_a_busy_log_has_everything() {
    // Rule: whatever is appended, rolled, committed, noted and removed while a log is copied, the copy has it byte for byte once it
    // is finished, also when the power goes then.
    let mut steps = 0;
    for seed in seeds(100) {
        let mut prng = Prng::new(seed ^ 0x30fe);
        let shape = Shape {
            partitions: 1,
            appenders: prng.between(4, 16) as usize,
            live_bytes_max: prng.between(64 << 10, 256 << 10),
            batch_bytes_max: prng.between(500, 1900) as usize,
            segment_bytes: prng.between(8 << 10, 16 << 10) as u32,
            ..Shape::default()
        };
        let mut world = World::new(seed, shape);
        let running = world.start_anew();
        let runtime = world.runtime.clone();
        runtime.block_on(world.disk.create_dir_all(Path::new(COPY_DIR))).expect("no fault");
        for dir in ["/", "/other"] {
            runtime.block_on(world.disk.sync_dir(Path::new(dir))).expect("no fault");
        }
        let work = Rc::new(Work {
            runtime: runtime.clone(),
            logs: running.logs.clone(),
            histories: Rc::new(RefCell::new(vec![History::default(); running.logs.len()])),
            shape,
            pauses: prng.chance(1, 4),
            context: format!("seed {seed}"),
            notes: Rc::new(RefCell::new(vec![None; running.logs.len()])),
        });
        let is_over = Rc::new(Cell::new(false));
        let (busy, over) = (Rc::clone(&work), Rc::clone(&is_over));
        runtime.spawn(async move {
            busy.run(80, false).await;
            over.set(true);
        });
        let copied = runtime.block_on(copy_first(&world, &running.logs[0], prng.fork(), is_over));
        let history = work.histories.borrow()[0].clone();
        steps += history.batches.len();
        let context = format!("seed {seed}, after {steps} steps of all seeds");
        assert_eq!(copied.log_end_offset, history.end_offset(), "{context}");
        drop((running, work));
        world.end(prng.chance(1, 3));
        let moved = runtime.block_on(open_copy(&world, copied));
        let found = runtime.block_on(read_all(&moved, copied.log_start_offset));
        let differs = found.iter().zip(history.from(copied.log_start_offset)).position(|(found, want)| found != want);
        let count = history.from(copied.log_start_offset).len();
        assert_eq!((differs, found.len()), (None, count), "{context}: what was copied is what was appended");
    }
}
