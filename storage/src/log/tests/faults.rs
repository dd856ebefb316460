use super::*;
use crate::disk::simulated::OperationCounts;

fn log_with(world: &World, batches: i64) -> (SimulatedLog, Model) {
    let mut model = Model::default();
    let (log, _) = world.runtime.block_on(world.open(false, None));
    for at in 0..batches {
        let appended = append(&log, &mut model, batch(2, 700, NOW + at, None)).expect("no fault");
        world.runtime.block_on(log.durable(appended.end_offset())).expect("no fault");
    }
    (log, model)
}

#[test]
fn a_failed_write_or_sync_ends_appends_and_not_reads() {
    // After a failure nothing is acknowledged any more, whatever a later call says; what was readable stays so.
    for operation in [Operation::Write, Operation::SyncData] {
        let world = World::new(5);
        let runtime = world.runtime.clone();
        let (log, mut model) = log_with(&world, 12);
        let readable = model.batches.clone();
        world.disk.fail_nth(operation, ".log", 1, libc::EIO);
        let appended = append(&log, &mut model, batch(1, 10, NOW, None)).expect("in memory");
        let waited = runtime.block_on(log.durable(appended.end_offset()));
        assert!(matches!(waited, Err(CommitError::Offline(LogOffline::Failed(_)))), "{operation:?}: {waited:?}");
        let next = append(&log, &mut model, batch(1, 10, NOW, None));
        assert!(matches!(next, Err(AppendError::Offline(_))), "{operation:?}");
        assert_eq!(log.durable_end_offset(), readable.last().map_or(0, |b| b.1 + 1));
        let mut found = runtime.block_on(read_all(&log, 0));
        found.truncate(readable.len());
        assert_eq!(found, readable, "{operation:?}");
        assert!(runtime.block_on(log.close()).is_err(), "{operation:?}: this is no clean stop");
    }
}

#[test]
fn a_full_disk_refuses_appends_and_recovers_by_itself() {
    // Nothing that was appended is lost, and nobody has to restart anything.
    let world = World::new(6);
    let runtime = world.runtime.clone();
    let (log, mut model) = log_with(&world, 12);
    world.disk.set_capacity(world.disk.used_bytes());
    let mut refused = None;
    for at in 0..8 {
        let appended = append(&log, &mut model, batch(2, 1500, NOW + at, None)).expect("in memory");
        refused = runtime.block_on(log.durable(appended.end_offset())).err();
        if refused.is_some() {
            break;
        }
    }
    assert!(matches!(refused, Some(CommitError::Unavailable(_))), "{refused:?}");
    let next = append(&log, &mut model, batch(1, 10, NOW, None));
    assert!(matches!(next, Err(AppendError::Unavailable(_))), "{next:?}");
    assert_eq!(runtime.block_on(read_all(&log, 0)), model.batches, "reads go on");
    world.disk.set_capacity(1 << 40);
    runtime.block_on(runtime.sleep(std::time::Duration::from_secs(5)));
    assert_eq!(log.durable_end_offset(), model.end_offset(), "what waited is written");
    append(&log, &mut model, batch(1, 10, NOW, None)).expect("it takes appends again");
    let closed = runtime.block_on(log.close()).expect("a clean stop");
    assert_eq!(closed.log_end_offset, model.end_offset());
}

#[test]
fn damage_in_the_middle_is_reported_and_not_cut() {
    // Below the recovery point, or further from the end than anything in flight, a bad batch had been acknowledged.
    let mut world = World::new(7);
    let runtime = world.runtime.clone();
    let (log, model) = log_with(&world, 30);
    let recovery_point = log.recovery_point();
    assert!(recovery_point > 10, "segments were sealed");
    runtime.crash();
    drop(log);
    world.disk = world.disk.kill(&runtime);
    let path = Path::new(DIR).join("00000000000000000000.log");
    let second = model.batches[0].2.len() as u64;
    world.disk.flip_bit(&path, second + 70, 3).expect("the file is there");
    let before = world.disk.peek(&path).expect("the file is there");

    // Trusted segments are not scanned; the read finds it.
    let (log, report) = runtime.block_on(world.open(false, Some(recovery_point)));
    assert_eq!((report.corruption, log.log_end_offset()), (None, model.end_offset()));
    let request = ReadRequest { offset: 2, upper_bound: i64::MAX, max_bytes: 100, min_one_batch: true };
    let Err(ReadError::Corrupt(bad)) = runtime.block_on(log.read(request)) else { panic!("the CRC is wrong") };
    assert_eq!((bad.path.as_path(), bad.position), (path.as_path(), second));
    let rest = runtime.block_on(read_all(&log, 4));
    assert_eq!(rest, model.batches[2..], "the rest stays readable");
    runtime.crash();
    drop(log);

    // A scan stops there, cuts nothing and refuses appends.
    let mut opening = world.opening(false, Some(recovery_point));
    opening.recovery_point = Some(3);
    let (log, report) = runtime.block_on(Log::open(opening)).expect("no fault");
    let bad = report.corruption.expect("damage below the recovery point");
    assert_eq!((bad.position, bad.offset, log.log_end_offset()), (second, 2, 2));
    assert_eq!(runtime.block_on(read_all(&log, 0)), model.batches[..1]);
    let refused = append(&log, &mut Model::default(), batch(1, 1, NOW, None));
    assert!(matches!(refused, Err(AppendError::Offline(LogOffline::Corrupt(_)))), "{refused:?}");
    assert_eq!(world.disk.peek(&path).expect("still there"), before, "nothing is cut");
}

#[test]
fn damage_far_from_the_end_is_told_from_a_torn_end() {
    // Without a recovery point, only the distance to the end says whether bad bytes had been acknowledged.
    for (batches, is_damage) in [(3, false), (80, true)] {
        let mut world = World::new(8);
        world.config.segment_bytes = 1 << 30;
        let runtime = world.runtime.clone();
        let mut model = Model::default();
        let (log, _) = runtime.block_on(world.open(false, None));
        for at in 0..batches {
            let appended = append(&log, &mut model, batch(1, 64 << 10, NOW + at, None)).expect("no fault");
            runtime.block_on(log.durable(appended.end_offset())).expect("no fault");
        }
        runtime.crash();
        drop(log);
        world.disk = world.disk.kill(&runtime);
        let path = Path::new(DIR).join("00000000000000000000.log");
        world.disk.flip_bit(&path, model.batches[0].2.len() as u64 + 100, 0).expect("the file is there");
        let (log, report) = runtime.block_on(world.open(false, None));
        assert_eq!((report.corruption.is_some(), report.cut.is_some()), (is_damage, !is_damage), "{batches} batches");
        assert_eq!(log.log_end_offset(), 1);
        assert_eq!(runtime.block_on(read_all(&log, 0)), model.batches[..1]);
    }
}

#[test]
fn damage_before_a_later_segment_is_no_torn_end() {
    // Rule: a segment is begun when everything before it is flushed. So bad bytes in front of one had been acknowledged, though
    // no checkpoint is left to say so and the end of the log is near.
    let mut world = World::new(13);
    let runtime = world.runtime.clone();
    let (log, model) = log_with(&world, 12);
    assert!(log.segment_count() > 1 && model.batches.iter().map(|(.., bytes)| bytes.len()).sum::<usize>() < 30_000);
    runtime.crash();
    drop(log);
    world.disk = world.disk.kill(&runtime);
    let path = Path::new(DIR).join("00000000000000000000.log");
    let second = model.batches[0].2.len() as u64;
    world.disk.flip_bit(&path, second + 70, 3).expect("the file is there");
    let before = world.disk.peek(&path).expect("the file is there");
    let (log, report) = runtime.block_on(world.open(false, None));
    let bad = report.corruption.expect("it had been acknowledged");
    assert_eq!((bad.position, bad.offset, log.log_end_offset(), report.cut.is_none()), (second, 2, 2, true));
    assert_eq!(world.disk.peek(&path).expect("still there"), before, "nothing is cut");
}

#[test]
fn a_log_that_ends_before_its_recovery_point_takes_no_appends() {
    // Rule: what was flushed once and is gone is not appended over, though nothing looks bad.
    let world = World::new(14);
    let runtime = world.runtime.clone();
    let (log, model) = log_with(&world, 3);
    let closed = runtime.block_on(log.close()).expect("no fault");
    drop(log);
    let path = Path::new(DIR).join("00000000000000000000.log");
    let two: usize = model.batches[..2].iter().map(|(.., bytes)| bytes.len()).sum();
    runtime.block_on(async {
        let file = world.disk.open(&path, OpenMode::ReadWrite).await.expect("it is there");
        file.truncate(two as u64).await.expect("no fault");
    });
    let (log, report) = runtime.block_on(world.open(false, Some(closed.log_end_offset)));
    assert_eq!(report.corruption.map(|bad| (bad.offset, bad.position)), Some((4, two as u64)));
    assert_eq!(runtime.block_on(read_all(&log, 0)), model.batches[..2]);
    let refused = append(&log, &mut Model::default(), batch(1, 1, NOW, None));
    assert!(matches!(refused, Err(AppendError::Offline(LogOffline::Corrupt(_)))), "{refused:?}");
}

async fn empty(disk: &SimulatedDisk, path: &Path) {
    let file = disk.open(path, OpenMode::ReadWrite).await.expect("it is there");
    file.truncate(0).await.expect("no fault");
}

#[test]
fn missing_and_bad_indexes_are_built_anew() {
    // An index only speeds up: without it, or with a wrong one, reads find the same.
    for damage in ["missing", "bad", "empty"] {
        let world = World::new(9);
        let runtime = world.runtime.clone();
        let (log, model) = log_with(&world, 30);
        let closed = runtime.block_on(log.close()).expect("no fault");
        drop(log);
        for entry in runtime.block_on(world.disk.list_dir(Path::new(DIR))).expect("no fault") {
            let path = Path::new(DIR).join(&entry.name);
            if !entry.name.ends_with("index") {
                continue;
            }
            match damage {
                "missing" => runtime.block_on(world.disk.remove_file(&path)).expect("no fault"),
                "bad" => world.disk.plant(&path, 0, &[0xff; 3]).expect("no fault"),
                // As a power cut leaves a file whose name was durable before its bytes.
                _ => runtime.block_on(empty(&world.disk, &path)),
            }
        }
        let (log, _) = runtime.block_on(world.open(true, Some(closed.log_end_offset)));
        for (base_offset, _, bytes) in &model.batches {
            let request =
                ReadRequest { offset: *base_offset, upper_bound: i64::MAX, max_bytes: 0, min_one_batch: true };
            let read = runtime.block_on(log.read(request)).expect("readable");
            assert_eq!((read.slices.len(), &read.slices[0]), (1, bytes), "{damage}");
        }
        let largest = runtime.block_on(log.max_timestamp()).expect("no fault").expect("not empty");
        assert_eq!(largest.timestamp, NOW + 30, "{damage}");
    }
}

#[test]
fn commits_are_shared_and_blocks_are_whole() {
    // What waits for one commit shares the next: many appends, few syncs.
    let world = World::new(10);
    let runtime = world.runtime.clone();
    let (log, mut model) = log_with(&world, 1);
    let before = world.disk.counts();
    let mut end_offset = 0;
    for at in 0..50 {
        end_offset = append(&log, &mut model, batch(1, 50, NOW + at, None)).expect("no fault").end_offset();
    }
    runtime.block_on(log.durable(end_offset)).expect("no fault");
    let after = world.disk.counts();
    assert!(after.syncs - before.syncs <= 2, "{} syncs", after.syncs - before.syncs);
    assert!(after.writes - before.writes <= 3, "{} writes", after.writes - before.writes);
}

#[test]
fn durability_levels_wait_for_no_more_than_they_promise() {
    // `memory` never waits, `written` never syncs before a flush is asked for, and `flush` makes both durable.
    for (durability, syncs) in [(Durability::Memory, 0), (Durability::Written, 0), (Durability::Flushed, 1)] {
        let mut world = World::new(11);
        world.config.durability = durability;
        let runtime = world.runtime.clone();
        let (log, mut model) = log_with(&world, 1);
        runtime.block_on(runtime.sleep(std::time::Duration::from_millis(50)));
        let before = world.disk.counts().syncs;
        let appended = append(&log, &mut model, batch(1, 50, NOW, None)).expect("no fault");
        assert_eq!(log.committed_end_offset() == appended.end_offset(), durability == Durability::Memory);
        runtime.block_on(log.durable(appended.end_offset())).expect("no fault");
        assert_eq!(world.disk.counts().syncs - before, syncs, "{durability:?}");
        assert_eq!(log.durable_end_offset() == appended.end_offset(), durability == Durability::Flushed);
        runtime.block_on(log.flush()).expect("no fault");
        assert_eq!(log.durable_end_offset(), appended.end_offset(), "{durability:?}");
    }
}

#[test]
fn flush_settings_ask_for_syncs() {
    // With `flush.messages` and `flush.ms` what is only written becomes durable by itself.
    let flush_messages = LogConfig { durability: Durability::Written, flush_messages: 3, ..LogConfig::default() };
    let flush_ms = LogConfig { durability: Durability::Written, flush_ms: 1000, ..LogConfig::default() };
    for config in [flush_messages, flush_ms] {
        let mut world = World::new(12);
        world.config = config.clone();
        let runtime = world.runtime.clone();
        let (log, _) = log_with(&world, 1);
        assert_eq!(log.durable_end_offset(), 0, "{config:?}");
        if config.flush_messages == 3 {
            append(&log, &mut Model::default(), batch(1, 50, NOW, None)).expect("no fault");
        }
        runtime.block_on(runtime.sleep(std::time::Duration::from_millis(1500)));
        assert_eq!(log.durable_end_offset(), log.log_end_offset(), "{config:?}");
    }
}

#[test]
fn a_log_that_was_never_written_to_costs_a_stop_nothing() {
    // Neither a clean stop nor a start after a crash asks the disk to make anything durable for it.
    let world = World::new(12);
    let runtime = world.runtime.clone();
    let before = world.disk.counts();
    for is_clean in [false, true, false] {
        let (log, _) = runtime.block_on(world.open(is_clean, is_clean.then_some(0)));
        log.begin_epoch(3);
        let closed = runtime.block_on(log.close()).expect("no fault");
        assert_eq!((closed.log_start_offset, closed.log_end_offset, log.recovery_point()), (0, 0, 0));
    }
    let listed = OperationCounts { reads: before.reads + 3, ..before };
    assert_eq!(world.disk.counts(), listed, "nothing but a look into the directory at each start");
    let (log, report) = runtime.block_on(world.open(true, Some(0)));
    assert_eq!((log.log_end_offset(), report.scanned_bytes), (0, 0));
    let appended = append(&log, &mut Model::default(), batch(1, 50, NOW, None)).expect("no fault");
    assert_eq!(appended.base_offset, 0);
}

#[test]
fn below_the_recovery_point_the_epochs_are_on_disk() {
    // Rule: what a start trusts unread it does not ask for epochs, so they are in their file by then, whatever has kept an
    // earlier attempt from writing them. Found with a disk that was full for a while.
    let mut world = World::new(14);
    let runtime = world.runtime.clone();
    for nth in 1..5 {
        world.disk.fail_nth(Operation::Write, "leader-epoch", nth, libc::ENOSPC);
    }
    let (log, _) = log_with(&world, 30);
    runtime.block_on(log.flush()).expect("no fault");
    runtime.block_on(log.wait_sealed()).expect("it is tried again");
    let recovery_point = log.recovery_point();
    assert!(recovery_point > 10, "segments were sealed");
    runtime.crash();
    drop(log);
    world.disk = world.disk.crash(&runtime);
    let (log, report) = runtime.block_on(world.open(false, Some(recovery_point)));
    assert_eq!(report.corruption, None);
    assert_eq!((log.epoch_at(0), log.epoch_at(recovery_point)), (Some(3), Some(3)));
}

#[test]
fn a_clean_stop_writes_the_leader_epochs_only_where_they_have_changed() {
    // Two flushes for the epochs' file, the one of its content and that of its name, are saved in all other stops.
    let world = World::new(13);
    let runtime = world.runtime.clone();
    let (log, mut model) = log_with(&world, 1);
    runtime.block_on(log.close()).expect("no fault");
    let mut stop = |leader_epoch: i32| {
        let (log, _) = runtime.block_on(world.open(true, Some(model.end_offset())));
        append(&log, &mut model, batch(1, 50, NOW, None)).expect("no fault");
        runtime.block_on(log.flush()).expect("no fault");
        log.inner.state.borrow_mut().epochs.assign(leader_epoch, model.end_offset());
        let before = world.disk.counts();
        runtime.block_on(log.close()).expect("no fault");
        let after = world.disk.counts();
        drop(log);
        let (log, _) = runtime.block_on(world.open(true, Some(model.end_offset())));
        assert_eq!(log.latest_epoch().map(|latest| latest.epoch), Some(leader_epoch));
        (after.syncs - before.syncs, after.dir_syncs - before.dir_syncs)
    };
    // Segment, two indexes, snapshot; and the epochs where they are new.
    assert_eq!(stop(3), (4, 1));
    assert_eq!(stop(4), (5, 1));
}

#[test]
fn a_batch_with_another_base_offset_is_not_served() {
    // Rule: no checksum covers the base offset. Whichever bit of it flips, whichever batch it is, and however it is read, what
    // is served has the offsets it was appended at; and a start takes such a batch for damage.
    let world = World::new(15);
    let runtime = world.runtime.clone();
    let (log, model) = log_with(&world, 30);
    let closed = runtime.block_on(log.close()).expect("no fault");
    drop(log);
    let first = model.batches[0].2.len() as u64;
    for (at, position) in [(0, 0), (1, first), (2, 2 * first)] {
        for bit in 0..63 {
            let world = World { disk: world.disk.copy(&runtime), runtime: runtime.clone(), ..World::new(15) };
            let path = Path::new(DIR).join("00000000000000000000.log");
            world.disk.flip_bit(&path, position + 7 - bit / 8, bit as u32 % 8).expect("it is there");
            for is_clean in [true, false] {
                let context = format!("batch {at}, bit {bit}, clean {is_clean}");
                let recovery_point = is_clean.then_some(closed.log_end_offset);
                let (log, report) = runtime.block_on(world.open(is_clean, recovery_point));
                assert_eq!(report.corruption.is_some(), !is_clean, "{context}");
                for offset in 0..12 {
                    let request = ReadRequest { offset, upper_bound: i64::MAX, max_bytes: 9000, min_one_batch: true };
                    let Ok(read) = runtime.block_on(log.read(request)) else { continue };
                    let wanted =
                        model.batches.iter().filter(|(_, last, _)| *last >= offset).map(|(.., bytes)| &bytes[..]);
                    let wanted: Vec<u8> = wanted.flatten().copied().collect();
                    assert!(wanted.starts_with(&read.slices.concat()), "{context}, offset {offset}");
                }
            }
        }
    }
}
