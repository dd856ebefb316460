//! Copying a log into another directory while it is appended to.

use super::*;
use crate::compaction::throttle::Throttle;
use crate::disk::Disk;

const COPY_DIR: &str = "/other/topic-0";

fn copied_world(seed: u64) -> World {
    let world = World::new(seed);
    world.runtime.block_on(async {
        world.disk.create_dir_all(Path::new(COPY_DIR)).await.expect("an empty disk");
    });
    world
}

fn append_some(log: &SimulatedLog, model: &mut Model, prng: &mut Prng, count: usize) {
    for _ in 0..count {
        let sequence = i32::try_from(model.end_offset()).expect("few records");
        let (records, bytes) = (prng.between(1, 4) as usize, prng.between(10, 900) as usize);
        append(log, model, batch(records, bytes, NOW + i64::from(sequence), Some(sequence))).expect("no fault");
    }
}

async fn finish(
    source: &CopySource<SimulatedDisk, SimulatedRuntime>,
    copy: &mut LogCopy<SimulatedDisk>,
) -> Result<CopiedLog, CopyError> {
    let throttle = Throttle::new(f64::INFINITY);
    let pace = CopyPace { throttle: &throttle, give_way: &async || {}, is_over: &|| false };
    source.finish(copy, &pace).await
}

async fn pass(
    source: &CopySource<SimulatedDisk, SimulatedRuntime>,
    copy: &mut LogCopy<SimulatedDisk>,
) -> Result<(), CopyError> {
    let throttle = Throttle::new(f64::INFINITY);
    let pace = CopyPace { throttle: &throttle, give_way: &async || {}, is_over: &|| false };
    source.copy(copy, &pace).await
}

async fn open_copy(world: &World, copied: CopiedLog, is_clean: bool) -> SimulatedLog {
    let open = OpenLog {
        dir: COPY_DIR.into(),
        log_start_offset: Some(copied.log_start_offset),
        first_dirty_offset: Some(copied.first_dirty_offset),
        ..world.opening(is_clean, Some(copied.log_end_offset))
    };
    let (log, report) = Log::open(open).await.expect("no fault");
    assert_eq!((report.scanned_bytes, report.corruption.is_none()), (0, true), "everything is trusted");
    log
}

async fn content(world: &World, dir: &str, name: &str) -> Option<Bytes> {
    checkpoint::read_file(&world.disk, &Path::new(dir).join(name)).await.expect("no fault")
}

#[test]
fn a_copy_goes_on_where_the_log_was() {
    // Rule: batch for batch and byte for byte the same, whatever was appended while it was made; producers and epochs are known
    // as before, and so is a batch that is sent again; appends go on.
    for seed in seeds(8) {
        let world = copied_world(seed);
        world.runtime.clone().block_on(async {
            let mut prng = Prng::new(seed);
            let (log, _) = world.open(false, None).await;
            let mut model = Model::default();
            append_some(&log, &mut model, &mut prng, 40);
            let source = log.begin_copy().await.expect("a good log");
            let progress: Rc<CopyProgress> = Rc::default();
            let resumed = source.resume(world.disk.clone(), COPY_DIR.into(), Rc::clone(&progress)).await;
            let mut copy = resumed.expect("no fault");
            for _ in 0..4 {
                append_some(&log, &mut model, &mut prng, 9);
                let end_offset = log.log_end_offset();
                pass(&source, &mut copy).await.expect("no fault");
                assert_eq!(progress.end_offset.get(), end_offset, "seed {seed}");
                assert_eq!((progress.bytes.get(), copy.bytes()), (log.size_bytes(), log.size_bytes()));
            }
            append_some(&log, &mut model, &mut prng, 5);
            let copied = finish(&source, &mut copy).await.expect("no fault");
            assert_eq!(copied.log_end_offset, model.end_offset());
            drop(source);
            let moved = open_copy(&world, copied, true).await;
            moved.take_over(&log);
            assert_eq!(read_all(&moved, 0).await, model.batches, "seed {seed}");
            assert_eq!(moved.producer(7), log.producer(7));
            assert_eq!(moved.latest_epoch(), log.latest_epoch());
            log.close().await.expect("no fault");
            let base_offsets: Vec<i64> = log.inner.state.borrow().segments.keys().copied().collect();
            for base_offset in base_offsets {
                for suffix in [LOG, "index", "timeindex"] {
                    let name = format!("{base_offset:020}.{suffix}");
                    let (one, other) = (content(&world, DIR, &name).await, content(&world, COPY_DIR, &name).await);
                    assert!(suffix != LOG || one == other, "seed {seed}: {name}");
                    assert!(other.is_some(), "seed {seed}: {name}");
                }
            }
            append_some(&moved, &mut model, &mut prng, 20);
            moved.flush().await.expect("no fault");
            assert_eq!(read_all(&moved, 0).await, model.batches, "seed {seed}");
        });
    }
}

const LOG: &str = "log";

#[test]
fn a_copy_that_was_interrupted_goes_on() {
    // Rule: cut off at any operation, what is whole in the copy is kept and nothing else is believed; the finished copy has
    // everything, and the log itself loses nothing.
    for seed in seeds(4) {
        let mut cut_at = 1;
        loop {
            let case = format!("seed {seed}, cut at {cut_at}");
            let mut world = copied_world(seed);
            let mut model = Model::default();
            let (log, _) = world.runtime.block_on(world.open(false, None));
            append_some(&log, &mut model, &mut Prng::new(seed), 50);
            world.runtime.block_on(log.flush()).expect("no fault");
            world.disk.cut_power_at(cut_at);
            let disk = world.disk.clone();
            let copying = async {
                let source = log.begin_copy().await?;
                let mut copy = source.resume(world.disk.clone(), COPY_DIR.into(), Rc::default()).await?;
                finish(&source, &mut copy).await
            };
            let outcome = world.runtime.block_on_unless(copying, || disk.has_lost_power());
            world.runtime.crash();
            drop(log);
            world.disk = world.disk.crash(&world.runtime);
            world.runtime.clone().block_on(async {
                // A start makes sure of it.
                world.disk.create_dir_all(Path::new(COPY_DIR)).await.expect("no fault");
                let (log, report) = world.open(false, None).await;
                assert!(report.corruption.is_none(), "{case}: {report:?}");
                assert_eq!(read_all(&log, 0).await, model.batches, "{case}");
                append_some(&log, &mut model, &mut Prng::new(9), 5);
                let source = log.begin_copy().await.expect("a good log");
                let resumed = source.resume(world.disk.clone(), COPY_DIR.into(), Rc::default()).await;
                let mut copy = resumed.expect("no fault");
                let copied = finish(&source, &mut copy).await.expect("no fault");
                let moved = open_copy(&world, copied, true).await;
                assert_eq!(read_all(&moved, 0).await, model.batches, "{case}");
            });
            if matches!(outcome, Ok(Ok(_))) {
                assert!(cut_at > 15, "a copy is many operations");
                break;
            }
            cut_at += 1;
        }
    }
}

#[test]
fn damage_is_not_copied() {
    // Rule: a batch that does not verify ends the copy with its place; the log serves on as before.
    let world = copied_world(1);
    world.runtime.clone().block_on(async {
        let (log, _) = world.open(false, None).await;
        let mut model = Model::default();
        append_some(&log, &mut model, &mut Prng::new(1), 40);
        log.flush().await.expect("no fault");
        world.disk.flip_bit(&Path::new(DIR).join(format!("{:020}.log", 0)), 700, 1).expect("it is there");
        let source = log.begin_copy().await.expect("a good log");
        let mut copy = source.resume(world.disk.clone(), COPY_DIR.into(), Rc::default()).await.expect("no fault");
        let error = pass(&source, &mut copy).await.expect_err("damage");
        assert!(matches!(error, CopyError::Read(ReadError::Corrupt(_))) && !error.is_passing(), "{error}");
        drop(source);
        append_some(&log, &mut model, &mut Prng::new(2), 3);
        log.flush().await.expect("appends go on");
    });
}

#[test]
fn segments_stay_while_they_are_copied() {
    // Rule: retention waits until the copy is done or given up; a full disk refuses the copy and no append.
    let world = copied_world(3);
    world.runtime.clone().block_on(async {
        let (log, _) = world.open(false, None).await;
        let mut model = Model::default();
        append_some(&log, &mut model, &mut Prng::new(3), 60);
        log.flush().await.expect("no fault");
        let count = log.segment_count();
        log.raise_log_start(model.end_offset() - 1, model.end_offset()).expect("within the log");
        let source = log.begin_copy().await.expect("a good log");
        world.disk.fail_nth(Operation::Write, COPY_DIR, 2, libc::ENOSPC);
        let mut copy = source.resume(world.disk.clone(), COPY_DIR.into(), Rc::default()).await.expect("no fault");
        assert!(finish(&source, &mut copy).await.expect_err("no room").is_passing());
        assert_eq!(log.remove_old_segments(NOW, model.end_offset()).await.expect("no fault"), 0);
        assert_eq!(log.segment_count(), count);
        let mut copy = source.resume(world.disk.clone(), COPY_DIR.into(), Rc::default()).await.expect("no fault");
        let copied = finish(&source, &mut copy).await.expect("there is room");
        assert_eq!(copied.log_start_offset, model.end_offset() - 1);
        drop((source, copy));
        assert!(log.remove_old_segments(NOW, model.end_offset()).await.expect("no fault") > 0);
    });
}
