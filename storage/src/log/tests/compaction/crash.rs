//! The power goes, the disk fails or is full while a pass runs.

use super::*;
use crate::compaction::clean::BatchUncleanable;

/// A log with dirty segments of which some become one and some change alone.
fn dirty(seed: u64, batches: usize) -> (World, SimulatedLog, Written) {
    let world = compacted_world(seed);
    let (log, _) = world.runtime.block_on(world.open(false, None));
    let mut written = Written::default();
    send_random(&world, &log, &mut written, &mut Prng::new(seed), (batches, 9));
    world.runtime.block_on(log.flush()).expect("no fault");
    world.runtime.block_on(log.wait_sealed()).expect("no fault");
    (world, log, written)
}

fn open_again(world: &World, recovery_point: Option<i64>, case: &str) -> SimulatedLog {
    let opened = world.runtime.block_on(Log::open(world.opening(false, recovery_point)));
    let (log, report) = opened.unwrap_or_else(|error| panic!("{case}: {error}"));
    assert!(report.corruption.is_none() && report.cut.is_none(), "{case}: {report:?}");
    log
}

#[test]
fn a_power_cut_at_every_operation_loses_nothing() {
    // Rule: cut at every operation of a pass, the log opens without damage; the last record of every key and everything
    // that was not to be compacted is there, at its offset, and the next pass finishes. The same when the start after it
    // is cut, too.
    for seed in seeds(16) {
        let mut cut_at = 1;
        loop {
            let case = format!("seed {seed}, cut at {cut_at}");
            let (mut world, log, written) = dirty(seed, 45);
            let known = (cut_at % 2 == 0).then(|| log.recovery_point());
            let dirty_end = *log.inner.state.borrow().segments.last_key_value().expect("one").0;
            world.disk.cut_power_at(cut_at);
            let disk = world.disk.clone();
            let outcome = world.runtime.block_on_unless(compact_once(&log, NOW, 1 << 20), || disk.has_lost_power());
            world.runtime.crash();
            drop(log);
            world.disk = world.disk.crash(&world.runtime);
            if cut_at % 3 == 0 {
                world.disk.cut_power_at(1 + cut_at % 11);
                let disk = world.disk.clone();
                let opened = world.runtime.block_on_unless(world.open(false, known), || disk.has_lost_power());
                world.runtime.crash();
                drop(opened);
                world.disk = world.disk.crash(&world.runtime);
            }
            let log = open_again(&world, known, &case);
            assert_eq!(log.log_end_offset(), written.end_offset(), "{case}");
            let found = read_records(&world, &log);
            written.check_sent(&found, &case);
            written.check_untouched(&found, dirty_end, &case);
            assert_eq!((names(&world, ".cleaned"), names(&world, ".swap")), (vec![], vec![]), "{case}");
            compact_all(&world, &log, NOW, 1 << 20);
            written.check_compacted(
                &read_records(&world, &log),
                log.first_dirty_offset(),
                &format!("{case}, finished"),
            );
            let log = reopen(&world, log);
            written.check_compacted(
                &read_records(&world, &log),
                log.first_dirty_offset(),
                &format!("{case}, reopened"),
            );
            if outcome.is_ok() {
                assert!(cut_at > 20, "the pass does something");
                break;
            }
            cut_at += 1;
        }
    }
}

#[test]
fn a_full_disk_ends_a_pass_and_the_next_one_does_it() {
    // Rule: a pass that is refused space changes nothing, leaves nothing, and is made again.
    for nth in 1..4 {
        let (world, log, written) = dirty(2, 60);
        world.disk.fail_nth(Operation::Write, ".cleaned", nth, libc::ENOSPC);
        let mut refusals = 0;
        loop {
            match world.runtime.block_on(compact_once(&log, NOW, 1 << 20)) {
                Ok(None) => break,
                Ok(Some(_)) => {}
                Err(error) => {
                    assert!(error.is_passing(), "{error}");
                    assert_eq!(names(&world, ".cleaned"), [""; 0]);
                    written.check_sent(&read_records(&world, &log), "refused");
                    refusals += 1;
                }
            }
        }
        assert_eq!(refusals, 1);
        written.check_compacted(&read_records(&world, &log), log.first_dirty_offset(), "after refusals");
    }
}

#[test]
fn a_failure_of_the_disk_leaves_a_log_that_can_be_read() {
    // Rule: whichever step of a pass fails, appends and reads go on, and a start after a crash finds every record that
    // counts.
    let steps = [
        (Operation::Create, ".cleaned"),
        (Operation::Write, ".log.cleaned"),
        (Operation::SyncData, ".log.cleaned"),
        (Operation::Write, ".index.cleaned"),
        (Operation::Rename, ".log.cleaned"),
        (Operation::Rename, ".log.swap"),
        (Operation::Rename, "00.log"),
        (Operation::Rename, ".index.cleaned"),
        (Operation::SyncDir, DIR),
    ];
    for (operation, path) in steps {
        for nth in 1..4 {
            let case = format!("{operation:?} number {nth} of {path}");
            let (mut world, log, mut written) = dirty(5, 60);
            let recovery_point = log.recovery_point();
            world.disk.fail_nth(operation, path, nth, libc::EIO);
            let failed = match world.runtime.block_on(compact_once(&log, NOW, 1 << 20)) {
                Ok(_) => false,
                Err(error) => {
                    assert!(!error.is_passing(), "{case}: {error}");
                    true
                }
            };
            assert!(failed || nth > 1, "{case} happens");
            written.check_sent(&read_records(&world, &log), &case);
            send_random(&world, &log, &mut written, &mut Prng::new(1), (10, 9));
            assert!(log.offline().is_none(), "{case}");
            written.check_sent(&read_records(&world, &log), &case);
            world.runtime.crash();
            drop(log);
            world.disk = world.disk.crash(&world.runtime);
            let log = open_again(&world, Some(recovery_point), &case);
            written.check_sent(&read_records(&world, &log), &case);
            compact_all(&world, &log, NOW, 1 << 20);
            written.check_compacted(&read_records(&world, &log), log.first_dirty_offset(), &case);
        }
    }
}

#[test]
fn damage_ends_a_pass_and_is_not_covered_up() {
    // Rule: a batch that does not verify is reported with its place, and nothing of it is written anew.
    let (world, log, _) = dirty(8, 60);
    let path = Path::new(DIR).join("00000000000000000000.log");
    let before = world.disk.peek(&path).expect("it is there");
    world.disk.flip_bit(&path, before.len() as u64 / 2, 3).expect("it is there");
    let error = world.runtime.block_on(compact_once(&log, NOW, 1 << 20)).expect_err("it is damaged");
    assert!(matches!(&error, CompactError::Read(ReadError::Corrupt(found)) if found.path == path), "{error}");
    assert!(!error.is_passing());
    assert_eq!(names(&world, ".cleaned"), [""; 0]);
    assert_eq!(world.disk.peek(&path).expect("it is there").len(), before.len());
    let reason = BatchUncleanable::from(walser_protocol::records::batch::BatchError::BadLength { length: 1 });
    assert!(!reason.to_string().is_empty());
}

#[test]
fn a_swapped_segment_that_does_not_verify_is_left_alone() {
    // Rule: what compaction has written takes nobody's place when it is damaged, and nothing is removed for it.
    let (mut world, log, _) = dirty(8, 60);
    // The second renaming is that of an old file, when the new one has its name.
    world.disk.fail_nth(Operation::Rename, "00.log", 2, libc::EIO);
    world.runtime.block_on(compact_once(&log, NOW, 1 << 20)).expect_err("a file keeps its name");
    world.runtime.crash();
    drop(log);
    world.disk = world.disk.kill(&world.runtime);
    let swap = names(&world, ".swap");
    assert_eq!(swap.len(), 1);
    let path = Path::new(DIR).join(&swap[0]);
    let last = world.disk.peek(&path).expect("it is there").len() as u64 - 1;
    world.disk.flip_bit(&path, last, 3).expect("it is there");
    let before = names(&world, "");
    let opened = world.runtime.block_on(Log::open(world.opening(false, None)));
    assert!(matches!(opened, Err(crate::error::OpenError::Corrupt(_))));
    assert_eq!(names(&world, ""), before);
}
