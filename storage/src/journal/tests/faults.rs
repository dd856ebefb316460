//! A disk that fails or is full, under logs that share a journal.

use super::*;
use crate::disk::simulated::Operation;
use crate::error::{CommitError, LogOffline};

/// Appends to every log and waits; everything must be acknowledged.
fn append_to_all(world: &World, running: &Running, histories: &mut [History], prng: &mut Prng, batch_bytes: usize) {
    let mut ends = Vec::new();
    for (log, history) in running.logs.iter().zip(histories) {
        ends.push(append(log, history, batch_of(prng, batch_bytes)).expect("no fault"));
    }
    for (log, end_offset) in running.logs.iter().zip(ends) {
        world.runtime.block_on(log.durable(end_offset)).expect("no fault");
    }
}

fn is_offline(log: &SimulatedLog, prng: &mut Prng) -> bool {
    let appended = append(log, &mut History::default(), batch_of(prng, 100));
    matches!(appended, Err(AppendError::Offline(LogOffline::Failed(_))))
}

/// What was durable is there after a restart, and what is there was appended.
fn check_after_restart(mut world: World, running: &Running, mut histories: Vec<History>, context: &str) {
    let ends: Vec<i64> = running.logs.iter().map(|log| log.durable_end_offset()).collect();
    world.end(false);
    let again = world.start_anew();
    for (at, log) in again.logs.iter().enumerate() {
        let context = format!("{context}, log {at}, {:?}", again.replayed);
        assert_eq!(again.reports[at].corruption, None, "{context}");
        assert!(log.log_end_offset() >= ends[at], "{context}: {} of {}", log.log_end_offset(), ends[at]);
        histories[at].cut(log.log_end_offset(), &context);
        let found = world.runtime.block_on(read_all(log, 0));
        assert!(found == histories[at].batches, "{context}");
        append(log, &mut histories[at], batch_of(&mut Prng::new(1), 100)).expect("it takes appends again");
    }
}

#[test]
fn a_failed_journal_ends_appends_to_all_its_logs() {
    // Rule: after a write or a flush of the journal has failed nothing more is acknowledged by any log that had something
    // there, while what was readable stays so; and the next start has everything that was acknowledged. Whatever the logs
    // were doing at that moment.
    for seed in seeds(25) {
        for operation in [Operation::Write, Operation::SyncData] {
            let context = format!("seed {seed} {operation:?}");
            let world = World::new(seed, Shape { live_bytes_max: 16 << 20, segment_bytes: 50_000, ..Shape::default() });
            let running = world.start_anew();
            let mut prng = world.runtime.fork_prng();
            let mut histories = vec![History::default(); running.logs.len()];
            for _ in 0..prng.between(1, 25) {
                let batch_bytes = prng.between(200, 3500) as usize;
                append_to_all(&world, &running, &mut histories, &mut prng, batch_bytes);
            }
            world.runtime.block_on(world.runtime.sleep(Duration::from_micros(prng.below(2_000_000))));
            // Something is on its way to the segments.
            let flushed = running.logs[0].clone();
            world.runtime.spawn(async move { drop(flushed.flush().await) });
            world.runtime.block_on(world.runtime.turn());
            let readable: Vec<i64> = running.logs.iter().map(|log| log.durable_end_offset()).collect();
            world.disk.fail_nth(operation, JOURNAL_DIR, 1, libc::EIO);
            let mut waits = Vec::new();
            for (log, history) in running.logs.iter().zip(&mut histories) {
                waits.push(log.durable(append(log, history, batch_of(&mut prng, 400)).expect("in memory")));
            }
            for wait in waits {
                let outcome = world.runtime.block_on(wait);
                assert!(matches!(outcome, Err(CommitError::Offline(LogOffline::Failed(_)))), "{context}: {outcome:?}");
            }
            world.sleep(Duration::from_secs(3));
            for (at, log) in running.logs.iter().enumerate() {
                assert!(is_offline(log, &mut prng), "{context}");
                assert_eq!(log.durable_end_offset(), readable[at], "{context}: acknowledged after a failure");
                let found = world.runtime.block_on(read_all(log, 0));
                let want = histories[at].from(0).iter().filter(|(_, last, _)| *last < readable[at]);
                assert!(found.iter().take_while(|(_, last, _)| *last < readable[at]).eq(want), "{context}");
            }
            check_after_restart(world, &running, histories, &context);
        }
    }
}

#[test]
fn a_failed_segment_is_that_logs_alone() {
    // Rule: after a write or a flush of a segment has failed, the log takes nothing more and the others do not notice; what
    // was acknowledged is in the journal until the next start, whatever the others do meanwhile.
    for seed in seeds(20) {
        for operation in [Operation::Write, Operation::SyncData] {
            let context = format!("seed {seed} {operation:?}");
            let world = World::new(seed, Shape { live_bytes_max: 256 << 10, ..Shape::default() });
            let running = world.start_anew();
            let mut prng = world.runtime.fork_prng();
            let mut histories = vec![History::default(); running.logs.len()];
            for _ in 0..prng.between(1, 12) {
                append_to_all(&world, &running, &mut histories, &mut prng, 1500);
            }
            world.runtime.block_on(world.runtime.sleep(Duration::from_micros(prng.below(3_000_000))));
            append_to_all(&world, &running, &mut histories, &mut prng, 3500);
            world.disk.fail_nth(operation, "topic-1/0", 1, libc::EIO);
            let failed = world.runtime.block_on(running.logs[1].flush());
            assert!(matches!(failed, Err(CommitError::Offline(LogOffline::Failed(_)))), "{context}: {failed:?}");
            assert!(is_offline(&running.logs[1], &mut prng), "{context}");
            let found = world.runtime.block_on(read_all(&running.logs[1], 0));
            assert_eq!(found.len(), histories[1].batches.len(), "{context}: it is readable");
            for _ in 0..20 {
                for at in [0, 2] {
                    let log = &running.logs[at];
                    let end_offset = append(log, &mut histories[at], batch_of(&mut prng, 2000)).expect("no fault");
                    world.runtime.block_on(log.durable(end_offset)).expect("no fault");
                }
            }
            check_after_restart(world, &running, histories, &context);
        }
    }
}

#[test]
fn a_full_disk_refuses_until_there_is_room() {
    // Rule: while the disk is full, appends are refused by an error that says so, sooner or later, and nothing is lost; when
    // there is room everything goes on by itself, whatever it was that had found none.
    for seed in seeds(25) {
        let context = format!("seed {seed}");
        let world = World::new(seed, Shape { live_bytes_max: 128 << 10, segment_bytes: 40_000, ..Shape::default() });
        let running = world.start_anew();
        let mut prng = world.runtime.fork_prng();
        let mut histories = vec![History::default(); running.logs.len()];
        append_to_all(&world, &running, &mut histories, &mut prng, 1500);
        world.disk.set_capacity(world.disk.used_bytes() + prng.below(60_000));
        let mut refused = 0;
        for _ in 0..250 {
            let at = prng.index(3);
            let batch = batch_of(&mut prng, [200, 3000, 6000][at]);
            if let Some(place) = running.logs[at].stand_in_line(batch.len()) {
                // Nobody waits for ever for an operator.
                let turn = async {
                    place.turn().await;
                    true
                };
                let timeout = async {
                    world.runtime.sleep(Duration::from_secs(2)).await;
                    false
                };
                if !world.runtime.block_on(futures_lite::future::or(turn, timeout)) {
                    refused += 1;
                    continue;
                }
            }
            match append(&running.logs[at], &mut histories[at], batch) {
                Ok(_) => {}
                Err(AppendError::Unavailable(_)) => refused += 1,
                Err(error) => panic!("{context}: {error}"),
            }
            world.runtime.block_on(world.runtime.sleep(Duration::from_micros(prng.below(100_000))));
        }
        assert!(refused > 0, "{context}: nothing was refused");
        for (log, history) in running.logs.iter().zip(&histories) {
            assert!(world.runtime.block_on(read_all(log, 0)) == history.batches, "{context}: reads go on");
        }
        world.disk.set_capacity(1 << 40);
        world.sleep(Duration::from_secs(4));
        for (at, log) in running.logs.iter().enumerate() {
            let end_offset = append(log, &mut histories[at], batch_of(&mut prng, 100));
            let end_offset = end_offset.unwrap_or_else(|error| panic!("{context}, log {at}: {error}"));
            world.runtime.block_on(log.durable(end_offset)).expect("it takes appends again");
        }
        world.sleep(Duration::from_secs(15));
        assert!(running.logs.iter().all(|log| log.pin().is_none()), "{context}: everything is in segments");
        check_after_restart(world, &running, histories, &context);
    }
}

#[test]
fn a_journal_without_room_for_a_file_uses_its_older_ones() {
    // Rule: where the disk has room for what the logs write and not for another file of the journal, the journal lets go of
    // its records early and goes on in the files it has.
    let world = World::new(3, Shape { live_bytes_max: 1 << 20, ..Shape::default() });
    let running = world.start_anew();
    let mut prng = Prng::new(3);
    let mut histories = vec![History::default(); running.logs.len()];
    append_to_all(&world, &running, &mut histories, &mut prng, 500);
    // One file more, of the eight there might be, and less than another one.
    world.disk.set_capacity(world.disk.used_bytes() + (1 << 20) / 8 + (124 << 10));
    let deadline = world.runtime.now().saturating_add(Duration::from_secs(120));
    let mut appended = 0;
    while appended < 240 {
        assert!(world.runtime.now() < deadline, "{appended} appends, then no more");
        let at = appended % running.logs.len();
        match append(&running.logs[at], &mut histories[at], batch_of(&mut prng, 300)) {
            Ok(end_offset) => {
                world.runtime.block_on(running.logs[at].durable(end_offset)).expect("no fault");
                appended += 1;
            }
            Err(AppendError::Unavailable(_)) => world.sleep(Duration::from_millis(100)),
            Err(error) => panic!("{error}"),
        }
    }
    check_after_restart(world, &running, histories, "a short disk");
}

#[test]
fn a_log_that_was_refused_room_once_takes_appends_again() {
    // Rule: also where what was refused was not pressing: a little that had waited for a second.
    let world = World::new(1, Shape::default());
    let running = world.start_anew();
    let mut prng = Prng::new(1);
    let mut histories = vec![History::default(); running.logs.len()];
    append_to_all(&world, &running, &mut histories, &mut prng, 3000);
    append_to_all(&world, &running, &mut histories, &mut prng, 3000);
    world.disk.set_capacity(world.disk.used_bytes());
    world.sleep(Duration::from_secs(3));
    let refused = append(&running.logs[0], &mut histories[0], batch_of(&mut prng, 100));
    assert!(matches!(refused, Err(AppendError::Unavailable(_))), "{refused:?}");
    world.disk.set_capacity(1 << 40);
    world.sleep(Duration::from_secs(3));
    append_to_all(&world, &running, &mut histories, &mut prng, 100);
}

#[test]
fn a_stop_does_not_wait_for_room() {
    // Rule: closing a log whose journal has found no file to go on with ends with an error; the next start has everything
    // that was acknowledged.
    let world = World::new(2, Shape { live_bytes_max: 128 << 10, ..Shape::default() });
    let running = world.start_anew();
    let mut prng = Prng::new(2);
    let mut histories = vec![History::default(); running.logs.len()];
    append_to_all(&world, &running, &mut histories, &mut prng, 1500);
    world.disk.set_capacity(world.disk.used_bytes());
    while append(&running.logs[0], &mut histories[0], batch_of(&mut prng, 1500)).is_ok() {
        world.sleep(Duration::from_millis(20));
    }
    let close = async {
        let mut failed = 0;
        for log in &running.logs {
            failed += u32::from(log.close().await.is_err());
        }
        (failed, running.journal.close().await.is_err())
    };
    let timeout = async {
        world.runtime.sleep(Duration::from_secs(60)).await;
        (0, false)
    };
    let (failed, _) = world.runtime.block_on(futures_lite::future::or(close, timeout));
    assert!(failed > 0);
    world.disk.set_capacity(1 << 40);
    check_after_restart(world, &running, histories, "a stop");
}

#[test]
fn no_segment_is_begun_after_the_journal_has_failed() {
    // Rule: the file of a segment says that what is in front of it is flushed, and a start takes the journal's records of that
    // for void. So a log whose journal has failed makes no file, whatever it was writing then.
    for seed in seeds(150) {
        let context = format!("seed {seed}");
        let shape = Shape { partitions: 2, live_bytes_max: 16 << 20, segment_bytes: 9_000, ..Shape::default() };
        let world = World::new(seed, shape);
        let running = world.start_anew();
        let mut prng = world.runtime.fork_prng();
        let mut histories = vec![History::default(); 2];
        let log = running.logs[0].clone();
        for _ in 0..3 {
            append(&log, &mut histories[0], batch_of(&mut prng, 2_500)).expect("no fault");
        }
        world.runtime.block_on(log.durable(3)).expect("no fault");
        world.disk.fail_nth(Operation::Write, JOURNAL_DIR, 1, libc::EIO);
        // Into this segment and, as a batch that the journal does not take, into the next one.
        append(&log, &mut histories[0], batch_of(&mut prng, 700)).expect("in memory");
        append(&log, &mut histories[0], batch_of(&mut prng, 5_000)).expect("in memory");
        world.runtime.block_on(world.runtime.sleep(Duration::from_micros(prng.below(3_000))));
        assert!(
            append(&running.logs[1], &mut histories[1], batch_of(&mut prng, 100)).is_ok() || log.offline().is_some()
        );
        world.sleep(Duration::from_secs(1));
        assert!(log.offline().is_some(), "{context}");
        check_after_restart(world, &running, histories, &context);
    }
}
