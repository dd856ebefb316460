use super::*;
use crate::log::retention::DELETED_SUFFIX;

/// `count` batches of two records, each at its own millisecond from `NOW` on; about five of them fill a segment.
fn fill(world: &World, log: &SimulatedLog, model: &mut Model, count: i64) {
    for at in 0..count {
        let appended = append(log, model, batch(2, 1000, NOW + 10 * at, None)).expect("no fault");
        world.runtime.block_on(log.durable(appended.end_offset())).expect("no fault");
    }
}

fn keep(log: &SimulatedLog, retention: Retention) {
    log.set_config(LogConfig { retention, ..log.config() });
}

fn remove(world: &World, log: &SimulatedLog, now_ms: i64) -> usize {
    let high_watermark = log.committed_end_offset();
    world.runtime.block_on(log.remove_old_segments(now_ms, high_watermark)).expect("no fault")
}

fn names(world: &World, ending: &str) -> Vec<String> {
    let entries = world.runtime.block_on(world.disk.list_dir(Path::new(DIR))).expect("no fault");
    entries.into_iter().map(|entry| entry.name).filter(|name| name.ends_with(ending)).collect()
}

#[test]
fn segments_go_by_age_size_and_log_start() {
    // Rule: the oldest segments go while they are too old, more than enough is kept without them, or all of them lies below
    // the log start; what is left can be read, and nothing below the log start.
    let no_limit = Retention { ms: -1, ..Retention::default() };
    for (case, retention, now_ms, log_start, want_left) in [
        ("nothing asked", no_limit, NOW + 1_000_000, 0, 5),
        ("by age", Retention { ms: 1000, ..no_limit }, NOW + 1100, 0, 3),
        ("by size", Retention { bytes: 21_000, ..no_limit }, NOW, 0, 3),
        ("not by size when less would be kept", Retention { bytes: 60_000, ..no_limit }, NOW, 0, 5),
        ("by log start", no_limit, NOW, 15, 4),
        ("log start without the policy", Retention { by_policy: false, ms: 0, bytes: 0, ..no_limit }, NOW, 15, 4),
    ] {
        let world = World::new(3);
        let (log, _) = world.runtime.block_on(world.open(false, None));
        let mut model = Model::default();
        fill(&world, &log, &mut model, 25);
        assert_eq!(log.segment_count(), 5, "{case}");
        keep(&log, retention);
        log.raise_log_start(log_start, 50).expect("within the log");
        let removed = remove(&world, &log, now_ms);
        assert_eq!((removed, log.segment_count()), (5 - want_left, want_left), "{case}");
        let first = log.log_start_offset();
        assert!(first >= log_start, "{case}");
        model.batches.retain(|(_, last, _)| *last >= first);
        assert_eq!(world.runtime.block_on(read_all(&log, first)), model.batches, "{case}");
        let request = ReadRequest { offset: first - 1, upper_bound: 50, max_bytes: 1, min_one_batch: true };
        let below = world.runtime.block_on(log.read(request));
        assert!(matches!(below, Err(ReadError::OffsetOutOfRange { .. })), "{case}");
        assert_eq!(names(&world, ".log").len(), want_left, "{case}");
    }
}

#[test]
fn a_log_that_is_all_too_old_ends_where_it_ended() {
    // Rule: the active segment goes too, and the log's end is not forgotten with the last file, after a crash neither.
    let mut world = World::new(5);
    let runtime = world.runtime.clone();
    let (log, _) = runtime.block_on(world.open(false, None));
    let mut model = Model::default();
    fill(&world, &log, &mut model, 7);
    keep(&log, Retention { ms: 1000, ..Retention::default() });
    assert_eq!(remove(&world, &log, NOW + 10_000), 2);
    assert_eq!((log.log_start_offset(), log.log_end_offset(), log.size_bytes()), (14, 14, 0));
    assert_eq!(remove(&world, &log, NOW + 20_000), 0);
    runtime.crash();
    drop(log);
    world.disk = world.disk.crash(&runtime);
    let (log, _) = runtime.block_on(world.open(false, None));
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (14, 14));
    assert_eq!(names(&world, DELETED_SUFFIX), [""; 0]);
    let appended = append(&log, &mut Model { batches: vec![(0, 13, Bytes::new())] }, batch(1, 10, NOW, None));
    assert_eq!(appended.expect("no fault").base_offset, 14);
}

#[test]
fn what_waits_for_its_flush_or_the_high_watermark_stays() {
    // Rule: nothing goes that is not below the high watermark.
    let world = World::new(7);
    let (log, _) = world.runtime.block_on(world.open(false, None));
    fill(&world, &log, &mut Model::default(), 25);
    keep(&log, Retention { ms: 0, ..Retention::default() });
    let removed = world.runtime.block_on(log.remove_old_segments(NOW + 10_000, 25)).expect("no fault");
    assert_eq!(removed, 2);
    assert!(log.raise_log_start(26, 25).is_err());
    assert_eq!(log.raise_log_start(5, 25).expect("lower is no error"), 20);
}

fn largest(world: &World, log: &SimulatedLog) -> Option<(i64, i64)> {
    let found = world.runtime.block_on(log.max_timestamp()).expect("no fault");
    found.map(|found| (found.timestamp, found.offset))
}

#[test]
fn records_without_a_timestamp_have_a_largest_one_too() {
    // Rule: it is -1 then, of the first record there is; an empty log has none.
    let world = World::new(11);
    let (log, _) = world.runtime.block_on(world.open(false, None));
    assert_eq!(largest(&world, &log), None);
    let mut model = Model::default();
    for _ in 0..60 {
        append(&log, &mut model, batch(1, 300, -1, None)).expect("no fault");
    }
    world.runtime.block_on(log.flush()).expect("no fault");
    assert!(log.segment_count() > 1);
    assert_eq!(largest(&world, &log), Some((-1, 0)));
    log.raise_log_start(3, 60).expect("within the log");
    assert_eq!(largest(&world, &log), Some((-1, 0)), "below the log start");
    let end_offset = world.runtime.block_on(log.close()).expect("no fault").log_end_offset;
    let (log, _) = world.runtime.block_on(world.open(true, Some(end_offset)));
    assert_eq!(largest(&world, &log), Some((-1, 0)), "opened again");
}

#[test]
fn the_largest_timestamp_stays_until_its_segment_goes() {
    // Rule: a log start above the record with the largest timestamp changes nothing about it; removing its segment does.
    let world = World::new(10);
    let (log, _) = world.runtime.block_on(world.open(false, None));
    let mut model = Model::default();
    append(&log, &mut model, batch(2, 300, NOW + 9000, None)).expect("no fault");
    fill(&world, &log, &mut model, 25);
    assert_eq!(largest(&world, &log), Some((NOW + 9001, 1)));
    let end_offset = log.log_end_offset();
    log.raise_log_start(end_offset, end_offset).expect("within the log");
    assert_eq!(largest(&world, &log), Some((NOW + 9001, 1)), "below the log start");
    keep(&log, Retention::default());
    assert!(remove(&world, &log, NOW) > 0);
    let left = largest(&world, &log).expect("the active segment has records");
    assert!(left.0 < NOW + 9000, "{left:?}");
}

#[test]
fn a_segment_whose_files_stay_leaves_no_hole() {
    // Rule: where the files of a segment cannot be renamed or their names not be made durable, nothing behind it goes before
    // they are out of the way: whenever the process ends, what is left is the end of the log without a gap.
    for (operation, path, nth) in [
        (Operation::Rename, "00000000000000000000.log", 1),
        (Operation::Rename, "00000000000000000000.index", 1),
        (Operation::Rename, "00000000000000000010.log", 1),
        (Operation::SyncDir, DIR, 1),
        (Operation::SyncDir, DIR, 2),
    ] {
        for is_kill in [true, false] {
            let case = format!("{operation:?} {nth} of {path}, killed: {is_kill}");
            let mut world = World::new(3);
            let runtime = world.runtime.clone();
            let (log, _) = runtime.block_on(world.open(false, None));
            let mut model = Model::default();
            fill(&world, &log, &mut model, 25);
            keep(&log, Retention { ms: 1000, ..Retention::default() });
            world.disk.fail_nth(operation, path, nth, libc::EIO);
            let failed = runtime.block_on(log.remove_old_segments(NOW + 1100, 50));
            // The leader epochs are written beside it.
            assert!(failed.is_err() || operation == Operation::SyncDir, "{case}");
            remove(&world, &log, NOW + 1100);
            let first = log.log_start_offset();
            assert_eq!((first, log.segment_count()), (20, 3), "{case}");
            runtime.crash();
            drop(log);
            world.disk = if is_kill { world.disk.kill(&runtime) } else { world.disk.crash(&runtime) };
            let (log, report) = runtime.block_on(world.open(false, None));
            assert!(report.corruption.is_none(), "{case}: {report:?}");
            let first = log.log_start_offset();
            model.batches.retain(|(_, last, _)| *last >= first);
            assert_eq!(runtime.block_on(read_all(&log, first)), model.batches, "{case}");
        }
    }
}

#[test]
fn files_go_after_their_delay() {
    // Rule: removed segments keep their bytes for `file.delete.delay.ms` under another name, then they are gone.
    let world = World::new(9);
    let (log, _) = world.runtime.block_on(world.open(false, None));
    fill(&world, &log, &mut Model::default(), 25);
    let file_delete_delay = std::time::Duration::from_secs(60);
    keep(&log, Retention { ms: 1000, file_delete_delay, ..Retention::default() });
    assert_eq!(remove(&world, &log, NOW + 1100), 2);
    assert!(names(&world, DELETED_SUFFIX).len() >= 6);
    world.runtime.block_on(world.runtime.sleep(file_delete_delay * 2));
    assert_eq!(names(&world, DELETED_SUFFIX), [""; 0]);
}

#[test]
fn a_power_cut_while_segments_go_leaves_no_gap() {
    // Rule: cut at every operation of the removal, the log opens without damage, ends where it ended, and has everything
    // from its new start on.
    for seed in 0..3 {
        let mut cut_at = 1;
        loop {
            let mut world = World::new(seed);
            let runtime = world.runtime.clone();
            let (log, _) = runtime.block_on(world.open(false, None));
            let mut model = Model::default();
            fill(&world, &log, &mut model, 23);
            let recovery_point = log.recovery_point();
            // Every third run removes everything.
            let ms = if cut_at % 3 == 0 { 0 } else { 1000 };
            keep(&log, Retention { ms, ..Retention::default() });
            world.disk.cut_power_at(cut_at);
            let disk = world.disk.clone();
            let removing = log.remove_old_segments(NOW + 1150, 46);
            let is_done = runtime.block_on_unless(removing, || disk.has_lost_power()).is_ok();
            runtime.crash();
            drop(log);
            world.disk = world.disk.crash(&runtime);
            let (log, report) = runtime.block_on(world.open(false, Some(recovery_point)));
            assert_eq!((report.corruption, report.cut.is_none()), (None, true), "seed {seed}, cut at {cut_at}");
            assert_eq!(log.log_end_offset(), 46, "seed {seed}, cut at {cut_at}");
            let first = log.log_start_offset();
            model.batches.retain(|(_, last, _)| *last >= first);
            assert_eq!(runtime.block_on(read_all(&log, first)), model.batches, "seed {seed}, cut at {cut_at}");
            if is_done {
                assert!(cut_at > 8, "the removal does something");
                break;
            }
            cut_at += 1;
        }
    }
}
