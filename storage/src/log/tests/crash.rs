use super::*;

/// Appends with rolls and waits for some of it; the acknowledged end is noted outside, because the power goes in between.
async fn workload(log: SimulatedLog, model: Rc<RefCell<Model>>, acknowledged: Rc<Cell<i64>>, seed: u64) {
    let mut prng = Prng::new(seed);
    for at in 0..24 {
        let new = batch(1 + prng.index(4), prng.index(2500), NOW + at, None);
        let appended = append(&log, &mut model.borrow_mut(), new).expect("no fault");
        if prng.chance(2, 3) {
            log.durable(appended.end_offset()).await.expect("no fault");
            acknowledged.set(acknowledged.get().max(appended.end_offset()));
        }
    }
    let end_offset = log.log_end_offset();
    log.close().await.expect("no fault");
    acknowledged.set(end_offset);
}

#[test]
fn what_was_acknowledged_survives_a_power_cut_at_every_operation() {
    // Every write, flush, rename and directory sync of append, roll and close is cut once; nothing acknowledged is lost and
    // nothing that was never appended is read.
    for seed in seeds(3) {
        let mut cut_at = 1;
        loop {
            let mut world = World::new(seed);
            let runtime = world.runtime.clone();
            let (log, _) = runtime.block_on(world.open(false, None));
            let (model, acknowledged) = (Rc::new(RefCell::new(Model::default())), Rc::new(Cell::new(0)));
            world.disk.cut_power_at(cut_at);
            let disk = world.disk.clone();
            let run = workload(log.clone(), Rc::clone(&model), Rc::clone(&acknowledged), seed);
            let outcome = runtime.block_on_unless(run, || disk.has_lost_power());
            if outcome.is_ok() {
                assert!(cut_at > 30, "the workload does something");
                break;
            }
            let recovery_point = log.recovery_point();
            runtime.crash();
            drop(log);
            world.disk = world.disk.crash(&runtime);
            let mut model = model.borrow().clone();
            check_recovered(&mut world, &mut model, acknowledged.get(), recovery_point, (seed, cut_at));
            cut_at += 1;
        }
    }
}

fn check_recovered(world: &mut World, model: &mut Model, acknowledged: i64, recovery_point: i64, case: (u64, u64)) {
    let runtime = world.runtime.clone();
    let known = case.1.is_multiple_of(2).then_some(recovery_point);
    let (log, report) = runtime.block_on(world.open(false, known));
    assert_eq!(report.corruption, None, "{case:?}");
    assert!(log.log_end_offset() >= acknowledged, "{case:?}: {acknowledged} acknowledged, {report:?}");
    model.cut(log.log_end_offset());
    assert_eq!(runtime.block_on(read_all(&log, 0)), model.batches, "{case:?}");
    for at in 0..6 {
        let appended = append(&log, model, batch(2, 1500, NOW + 100 + at, None)).expect("it takes appends again");
        runtime.block_on(log.durable(appended.end_offset())).expect("no fault");
    }
    // Once more: what the recovery itself did must survive too.
    runtime.crash();
    drop(log);
    world.disk = world.disk.crash(&runtime);
    let (log, _) = runtime.block_on(world.open(false, known));
    assert_eq!(runtime.block_on(read_all(&log, 0)), model.batches, "{case:?}, again");
    let closed = runtime.block_on(log.close()).expect("no fault");
    drop(log);
    let (log, report) = runtime.block_on(world.open(true, Some(closed.log_end_offset)));
    assert_eq!(report.scanned_bytes, 0, "{case:?}");
    assert_eq!(runtime.block_on(read_all(&log, 0)), model.batches, "{case:?}, after a clean stop");
}

#[test]
fn the_pieces_of_a_large_round_are_where_they_belong() {
    // Rule: a round that is written in pieces, several at a time, is there as a whole once it is acknowledged, in whatever
    // order they got to the disk and wherever the power goes; before that it may be there or not.
    for seed in seeds(3) {
        let mut cut_at = 1;
        loop {
            let mut world = World::new(seed);
            world.config.segment_bytes = 64 << 20;
            let runtime = world.runtime.clone();
            let (log, _) = runtime.block_on(world.open(false, None));
            let (model, acknowledged) = (RefCell::new(Model::default()), Cell::new(0));
            world.disk.cut_power_at(cut_at);
            let run = async {
                for value_bytes in [2_600_000, 700, 1_100_000] {
                    let new = batch(1, value_bytes, NOW + acknowledged.get(), None);
                    let appended = append(&log, &mut model.borrow_mut(), new).expect("no fault");
                    log.durable(appended.end_offset()).await.expect("no fault");
                    acknowledged.set(appended.end_offset());
                }
            };
            let disk = world.disk.clone();
            let outcome = runtime.block_on_unless(run, || disk.has_lost_power());
            runtime.crash();
            drop(log);
            world.disk = world.disk.crash(&runtime);
            let (log, report) = runtime.block_on(world.open(false, None));
            let context = format!("seed {seed}, cut at {cut_at}: {report:?}");
            assert!(report.corruption.is_none() && log.log_end_offset() >= acknowledged.get(), "{context}");
            let mut model = model.into_inner();
            model.cut(log.log_end_offset());
            assert!(runtime.block_on(read_all(&log, 0)) == model.batches, "{context}");
            if outcome.is_ok() {
                assert!(cut_at > 10, "the work does something");
                break;
            }
            cut_at += 1;
        }
    }
}

#[test]
fn a_recovery_that_is_cut_itself_recovers() {
    // Opening after a crash may be interrupted at any operation.
    for cut_at in 1..12 {
        let mut world = World::new(cut_at);
        let runtime = world.runtime.clone();
        let mut model = Model::default();
        let (log, _) = runtime.block_on(world.open(false, None));
        let mut acknowledged = 0;
        for at in 0..20 {
            let appended = append(&log, &mut model, batch(2, 700, NOW + at, None)).expect("no fault");
            if at < 15 {
                runtime.block_on(log.durable(appended.end_offset())).expect("no fault");
                acknowledged = appended.end_offset();
            }
        }
        runtime.crash();
        drop(log);
        world.disk = world.disk.crash(&runtime);
        world.disk.cut_power_at(cut_at);
        let disk = world.disk.clone();
        let opened = runtime.block_on_unless(world.open(false, None), || disk.has_lost_power());
        runtime.crash();
        drop(opened);
        world.disk = world.disk.crash(&runtime);
        check_recovered(&mut world, &mut model, acknowledged, 0, (cut_at, cut_at));
    }
}

#[test]
fn what_was_cut_off_does_not_come_back() {
    // A batch behind a torn one must not reappear when new batches have grown to where it was. Blocks are written whole and
    // filled with zeros, so this takes batches that end at block boundaries.
    let value_bytes = (0..4096).find(|&n| batch(1, n, NOW, None).len() == 4096).expect("one size fits");
    for seed in seeds(5) {
        let mut world = World::new(seed);
        world.config.segment_bytes = 1 << 20;
        let runtime = world.runtime.clone();
        let (log, _) = runtime.block_on(world.open(false, None));
        let mut model = Model::default();
        for at in 0..3 {
            append(&log, &mut model, batch(1, value_bytes, NOW + at, None)).expect("no fault");
        }
        runtime.block_on(log.durable(3)).expect("no fault");
        runtime.crash();
        drop(log);
        world.disk = world.disk.kill(&runtime);
        let path = Path::new(DIR).join("00000000000000000000.log");
        world.disk.flip_bit(&path, 4096 + 100, 0).expect("the file is there");
        let (log, report) = runtime.block_on(world.open(false, None));
        assert!(report.cut.is_some());
        model.cut(1);
        let appended = append(&log, &mut model, batch(1, value_bytes, NOW + 9, None)).expect("no fault");
        runtime.block_on(log.durable(appended.end_offset())).expect("no fault");
        runtime.crash();
        drop(log);
        world.disk = world.disk.crash(&runtime);
        let (log, _) = runtime.block_on(world.open(false, None));
        assert_eq!(runtime.block_on(read_all(&log, 0)), model.batches, "seed {seed}");
    }
}

#[test]
fn what_recovery_found_is_durable() {
    // A killed process may have made a file whose name, or content, no flush covered; once it is served it must stay.
    for seed in seeds(40) {
        let mut world = World::new(seed);
        let runtime = world.runtime.clone();
        let content = {
            let other = World::new(1000 + seed);
            let (log, _) = other.runtime.block_on(other.open(false, None));
            append(&log, &mut Model::default(), batch(3, 100, NOW, None)).expect("no fault");
            other.runtime.block_on(log.durable(3)).expect("no fault");
            other.disk.peek(&Path::new(DIR).join("00000000000000000000.log")).expect("the file is there")
        };
        let path = Path::new(DIR).join("00000000000000000000.log");
        runtime.block_on(async {
            let file = world.disk.open(&path, OpenMode::CreateNew).await.expect("no fault");
            let mut buffer = file.allocate(content.len());
            buffer.copy_from_slice(&content);
            file.write_at(buffer, 0).await.expect("no fault");
        });
        world.disk = world.disk.kill(&runtime);
        let (log, _) = runtime.block_on(world.open(false, None));
        let served = runtime.block_on(read_all(&log, 0));
        assert_eq!(log.log_end_offset(), 3);
        runtime.crash();
        drop(log);
        world.disk = world.disk.crash(&runtime);
        let (log, _) = runtime.block_on(world.open(false, None));
        assert_eq!(runtime.block_on(read_all(&log, 0)), served, "seed {seed}");
    }
}

#[test]
fn a_partition_is_there_when_its_first_record_is() {
    // Rule: making a partition waits for no flush, and yet its name and its topic id are there after a power cut, wherever it
    // falls, once a record of it was acknowledged.
    use crate::data_dir::DataDir;
    use walser_protocol::types::Uuid;

    let topic_id = Uuid::from_bytes([7; 16]);
    for cut_at in 1.. {
        let runtime = SimulatedRuntime::new(cut_at);
        let disk = SimulatedDisk::new(&runtime);
        runtime.block_on(async {
            disk.create_dir_all(Path::new("/data")).await.expect("an empty disk");
            disk.sync_dir(Path::new("/")).await.expect("no fault");
        });
        let mut world =
            World { runtime, disk, config: LogConfig::default(), tail_bytes: 6000, blocks_bytes: BLOCKS_BYTES };
        world.disk.cut_power_at(cut_at);
        let acknowledged = Cell::new(0);
        let work = async {
            let dir = DataDir::at(world.disk.clone(), "/data").create_partition("topic", 0, topic_id).await?;
            assert_eq!(dir, Path::new(DIR));
            let (log, _) = world.open(false, None).await;
            log.begin_epoch(3);
            let appended = append(&log, &mut Model::default(), batch(2, 100, NOW, None)).expect("no fault");
            if log.durable(appended.end_offset()).await.is_ok() {
                acknowledged.set(appended.end_offset());
            }
            log.close().await.ok();
            Ok::<_, DiskError>(())
        };
        let is_finished = world.runtime.block_on_unless(work, || world.disk.has_lost_power()).is_ok();
        world.runtime.crash();
        world.disk = world.disk.crash(&world.runtime);
        if acknowledged.get() > 0 {
            let found = world.runtime.block_on(DataDir::at(world.disk.clone(), "/data").list_partitions());
            let found = found.expect("no fault");
            assert_eq!(found.first().and_then(|found| found.topic_id), Some(topic_id), "cut at {cut_at}");
            let (log, _) = world.runtime.block_on(world.open(false, None));
            assert_eq!(
                (log.log_end_offset(), log.latest_epoch().map(|epoch| epoch.epoch)),
                (2, Some(3)),
                "cut at {cut_at}"
            );
        }
        if is_finished {
            assert!(cut_at > 8, "the work does something");
            break;
        }
    }
}

#[test]
fn what_a_start_believes_stays() {
    // Rule: what a start has found is there after a power cut, though the flush that should have covered it failed in the
    // run before.
    for seed in seeds(40) {
        let mut world = World::new(seed);
        let runtime = world.runtime.clone();
        let (log, _) = runtime.block_on(world.open(false, None));
        let mut model = Model::default();
        for at in 0..2 {
            append(&log, &mut model, batch(2, 700, NOW + at, None)).expect("no fault");
            runtime.block_on(log.durable(model.end_offset())).expect("no fault");
        }
        world.disk.fail_nth(Operation::SyncData, ".log", 1, libc::EIO);
        append(&log, &mut model, batch(2, 3000, NOW + 2, None)).expect("in memory");
        assert!(runtime.block_on(log.durable(model.end_offset())).is_err(), "seed {seed}");
        runtime.crash();
        drop(log);
        world.disk = world.disk.kill(&runtime);
        let (log, _) = runtime.block_on(world.open(false, None));
        let believed = runtime.block_on(read_all(&log, 0));
        assert_eq!(believed, model.batches, "seed {seed}");
        runtime.crash();
        drop(log);
        world.disk = world.disk.crash(&runtime);
        let (log, report) = runtime.block_on(world.open(false, None));
        assert_eq!(runtime.block_on(read_all(&log, 0)), believed, "seed {seed}: {report:?}");
    }
}
