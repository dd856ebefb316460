//! What is written when, and who waits for what.

use super::*;

/// A world whose logs have a file with something durable in it, so that what comes next is all that a test sees.
fn settled(seed: u64, shape: Shape) -> (World, Running, Vec<History>, Prng) {
    let world = World::new(seed, shape);
    let running = world.start_anew();
    let mut prng = Prng::new(seed ^ 0x5eed);
    let mut histories = vec![History::default(); running.logs.len()];
    for (log, history) in running.logs.iter().zip(&mut histories) {
        append(log, history, batch_of(&mut prng, 500)).expect("no fault");
        world.runtime.block_on(log.flush()).expect("no fault");
    }
    (world, running, histories, prng)
}

fn sizes(world: &World, running: &Running) -> Vec<usize> {
    (0..).zip(&running.logs).map(|(at, _)| world.disk.peek(&world.segment(at, 0)).expect("it is there").len()).collect()
}

#[test]
fn one_commit_is_for_all_logs() {
    // Rule: appends of one turn to any number of logs cost one write and one flush, of the journal.
    let shape = Shape { partitions: 6, ..Shape::default() };
    let (world, running, mut histories, mut prng) = settled(1, shape);
    world.sleep(Duration::from_millis(20));
    running.journal.take_commit_count();
    let (before, sizes_before) = (world.disk.counts(), sizes(&world, &running));
    let mut ends = Vec::new();
    for _ in 0..3 {
        for (log, history) in running.logs.iter().zip(&mut histories) {
            ends.push((log, append(log, history, batch_of(&mut prng, 300)).expect("no fault")));
        }
    }
    for (log, end_offset) in ends {
        world.runtime.block_on(log.durable(end_offset)).expect("no fault");
    }
    let after = world.disk.counts();
    assert_eq!((after.writes - before.writes, after.syncs - before.syncs), (1, 1));
    assert_eq!((after.dir_syncs, running.journal.take_commit_count()), (before.dir_syncs, 1));
    assert_eq!(sizes(&world, &running), sizes_before);
    assert_eq!(running.journal.staged_bytes(), 6 * 3 * 300);
}

#[test]
fn segments_get_full_blocks_after_a_second() {
    // Rule: what the journal holds goes into the segment a second or two later, in whole blocks and without a flush; the
    // rest stays, also where a block that is in the file already is filled.
    let (world, running, mut histories, mut prng) = settled(2, Shape::default());
    let (log, history) = (&running.logs[0], &mut histories[0]);
    for _ in 0..8 {
        let end_offset = append(log, history, batch_of(&mut prng, 1000)).expect("no fault");
        world.runtime.block_on(log.durable(end_offset)).expect("no fault");
    }
    world.sleep(Duration::from_millis(500));
    let file = world.disk.peek(&world.segment(0, 0)).expect("it is there");
    assert_eq!((file.len(), log.written_end_offset(), log.staged_bytes()), (4096, 1, 8000));
    assert!(file[500..].iter().all(|&byte| byte == 0), "nothing is written so soon");
    world.sleep(Duration::from_millis(2000));
    let file = world.disk.peek(&world.segment(0, 0)).expect("it is there");
    let content: Vec<u8> = history.batches.iter().flat_map(|(_, _, bytes)| bytes.to_vec()).collect();
    assert!(file == content[..8192], "two blocks, and no more");
    assert_eq!((log.written_end_offset(), log.durable_end_offset(), log.staged_bytes()), (8, 9, 1000));
    assert!(log.pin().is_some());
}

#[test]
fn segments_get_what_has_come_to_64_kib() {
    // Rule: much is not kept in memory for a second.
    let (world, running, mut histories, mut prng) = settled(3, Shape { live_bytes_max: 16 << 20, ..Shape::default() });
    let (log, history) = (&running.logs[0], &mut histories[0]);
    for _ in 0..22 {
        let end_offset = append(log, history, batch_of(&mut prng, 3000)).expect("no fault");
        world.runtime.block_on(log.durable(end_offset)).expect("no fault");
    }
    world.sleep(Duration::from_millis(20));
    let len = world.disk.peek(&world.segment(0, 0)).expect("it is there").len();
    assert_eq!((len, log.staged_bytes()), (66_500 / 4096 * 4096, 3000));
}

#[test]
fn the_end_of_a_large_batch_waits_in_peace() {
    // Rule: what counts is what the file lacks, not the length of the batch whose end it lacks; a task that looked at the
    // length would never end.
    let shape = Shape { segment_bytes: 1 << 20, live_bytes_max: 16 << 20, ..Shape::default() };
    let (world, running, mut histories, mut prng) = settled(6, shape);
    let (log, history) = (&running.logs[0], &mut histories[0]);
    let end_offset = append(log, history, batch_of(&mut prng, 100_000)).expect("no fault");
    world.runtime.block_on(log.durable(end_offset)).expect("no fault");
    world.sleep(Duration::from_millis(20));
    assert_eq!((log.written_end_offset(), log.staged_bytes()), (1, 100_000), "a block is not full");
    let end_offset = append(log, history, batch_of(&mut prng, 1000)).expect("no fault");
    world.runtime.block_on(log.durable(end_offset)).expect("no fault");
    let counts = world.disk.counts();
    world.sleep(Duration::from_millis(20));
    assert_eq!(world.disk.counts(), counts, "a little more is no reason to write");
}

#[test]
fn a_busy_log_needs_no_journal_for_the_ends_of_its_large_batches() {
    // Rule: while more large batches come, the end that does not fill a block is written by the next round, so that a round
    // costs one flush; when nothing comes any more the journal has it. Not where several logs share the journal.
    for (busy, journaled) in [(1, 1..=4), (3, 10..=100)] {
        let shape = Shape { segment_bytes: 8 << 20, live_bytes_max: 16 << 20, ..Shape::default() };
        let (mut world, running, mut histories, mut prng) = settled(9, shape);
        world.sleep(Duration::from_millis(20));
        let before = running.journal.inner.wal.durable_through();
        for _ in 0..300 {
            for (log, history) in running.logs.iter().zip(&mut histories).take(busy) {
                append(log, history, batch_of(&mut prng, 10_000)).expect("no fault");
            }
            world.sleep(Duration::from_micros(50));
        }
        for (log, history) in running.logs.iter().zip(&mut histories).take(busy) {
            world.runtime.block_on(log.durable(history.end_offset())).expect("no fault");
            history.acknowledged = history.end_offset();
        }
        let records = running.journal.inner.wal.durable_through() - before;
        assert!(journaled.contains(&records), "{busy} logs: {records} records");
        world.end(false);
        let again = world.start_anew();
        for (log, history) in again.logs.iter().zip(&histories).take(busy) {
            assert_eq!(world.runtime.block_on(read_all(log, 0)), history.batches);
        }
    }
}

#[test]
fn the_largest_timestamp_is_found_where_it_is() {
    // Rule: also below the log start, and while no segment has a file.
    let world = World::new(7, Shape::default());
    let running = world.start_anew();
    let (log, mut history, mut prng) = (&running.logs[0], History::default(), Prng::new(7));
    for _ in 0..3 {
        let end_offset = append(log, &mut history, batch_of(&mut prng, 500)).expect("no fault");
        world.runtime.block_on(log.durable(end_offset)).expect("no fault");
    }
    let before = world.runtime.block_on(log.max_timestamp()).expect("readable");
    assert!(before.is_some() && world.disk.peek(&world.segment(0, 0)).is_err());
    log.raise_log_start(3, 3).expect("within the log");
    assert_eq!(world.runtime.block_on(log.max_timestamp()).expect("readable"), before);
    assert_eq!(world.runtime.block_on(log.offset_for_timestamp(0, 3)).expect("readable"), None);
    world.runtime.block_on(log.flush()).expect("no fault");
    assert_eq!(world.runtime.block_on(log.max_timestamp()).expect("readable"), before);
}

#[test]
fn flush_ms_asks_nothing_of_what_is_flushed() {
    // Rule: what the journal has made durable is not flushed again by time, nor is a timer set that finds nothing to do.
    let (world, running, mut histories, mut prng) = settled(8, Shape { live_bytes_max: 16 << 20, ..Shape::default() });
    let (log, history) = (&running.logs[0], &mut histories[0]);
    log.set_config(LogConfig { flush_ms: 0, ..log.config() });
    for _ in 0..22 {
        let end_offset = append(log, history, batch_of(&mut prng, 3000)).expect("no fault");
        world.runtime.block_on(log.durable(end_offset)).expect("no fault");
    }
    world.sleep(Duration::from_millis(20));
    let (counts, written) = (world.disk.counts(), log.written_end_offset());
    assert!(written > 1, "something is in the segment and not flushed");
    world.sleep(Duration::from_millis(20));
    assert_eq!(world.disk.counts(), counts);
}

#[test]
fn an_idle_log_needs_no_journal() {
    // Rule: ten seconds after its last batch a log has everything in its segment, durable, and nothing in the journal,
    // while one that is written to every few seconds keeps its last block there.
    let (world, running, mut histories, mut prng) = settled(4, Shape::default());
    for (log, history) in running.logs.iter().zip(&mut histories) {
        append(log, history, batch_of(&mut prng, 1000)).expect("no fault");
    }
    for second in 0..13 {
        world.sleep(Duration::from_secs(1));
        if second % 4 == 0 {
            let log = &running.logs[1];
            let end_offset = append(log, &mut histories[1], batch_of(&mut prng, 100)).expect("no fault");
            world.runtime.block_on(log.durable(end_offset)).expect("no fault");
        }
        if second < 8 {
            assert!(running.logs.iter().all(|log| log.pin().is_some()), "after {second} seconds");
        }
    }
    let pins: Vec<bool> = running.logs.iter().map(|log| log.pin().is_some()).collect();
    assert_eq!(pins, [false, true, false]);
    for at in [0, 2] {
        assert_eq!(running.logs[at].staged_bytes(), 0);
        let content: Vec<u8> = histories[at].batches.iter().flat_map(|(_, _, bytes)| bytes.to_vec()).collect();
        let file = world.disk.peek(&world.segment(at as i32, 0)).expect("it is there");
        assert!(file[..content.len()] == content);
    }
    // The last roll.
    world.sleep(Duration::from_millis(1500));
    let counts = world.disk.counts();
    world.sleep(Duration::from_secs(6));
    assert_eq!(world.disk.counts(), counts, "nothing is left to do");
}

#[test]
fn a_finished_segment_ends_with_its_data_after_a_replay_too() {
    // Rule: what is below the recovery point is trusted unread, so a replay puts no zeros behind it, also when the next
    // segment has no file yet; nor does a replay that is made twice.
    for kills in [false, true] {
        let shape = Shape { segment_bytes: 10_000, ..Shape::default() };
        let (mut world, running, mut histories, mut prng) = settled(5, shape);
        for _ in 0..11 {
            let end_offset = append(&running.logs[0], &mut histories[0], batch_of(&mut prng, 1000)).expect("no fault");
            world.runtime.block_on(running.logs[0].durable(end_offset)).expect("no fault");
        }
        world.sleep(Duration::from_millis(50));
        let points = [Some(running.logs[0].recovery_point()), None, None];
        assert_eq!(points[0], Some(10), "the first segment is finished");
        assert!(world.disk.peek(&world.segment(0, 10)).is_err(), "the second one is in the journal alone");
        world.end(kills);
        let locate = |_, _| Some(TOPIC.to_owned());
        world.runtime.block_on(replay(&world.data_dir(), &world.runtime, locate, |_| Vec::new())).expect("no fault");
        world.end(kills);
        let again = world.runtime.block_on(world.start(false, &points));
        assert_eq!(world.disk.peek(&world.segment(0, 0)).expect("it is there").len(), 9500);
        assert!(again.reports[0].scanned_bytes < 9500, "the first segment is trusted");
        assert_eq!(world.runtime.block_on(read_all(&again.logs[0], 0)), histories[0].batches);
    }
}
