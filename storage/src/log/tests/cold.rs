use std::time::Duration;

use super::*;
use crate::segment::{LOG_SUFFIX, file_path};

/// A log of several segments, most of which is in no memory.
fn old_log(seed: u64) -> (World, SimulatedLog, Model) {
    let world = World::new(seed);
    let mut model = Model::default();
    let (log, _) = world.runtime.block_on(world.open(false, None));
    for at in 0..60 {
        let appended = append(&log, &mut model, batch(1, 800, NOW + at, None)).expect("no fault");
        world.runtime.block_on(log.durable(appended.end_offset())).expect("no fault");
    }
    world.runtime.block_on(log.flush()).expect("no fault");
    (world, log, model)
}

fn misses(log: &SimulatedLog) -> u64 {
    log.inner.tail.budget().blocks().hits_and_misses().1
}

#[test]
fn old_batches_come_from_the_disk_once() {
    // Rule: a second reader of what fits into the cache costs the disk nothing.
    let (world, log, model) = old_log(1);
    let blocks = log.inner.state.borrow().segments.values().map(|segment| segment.written_bytes().div_ceil(4096)).sum();
    assert_eq!(world.runtime.block_on(read_all(&log, 0)), model.batches);
    let first = misses(&log);
    assert!(first > 4 && first <= blocks, "{first} of {blocks} blocks");
    assert_eq!(world.runtime.block_on(read_all(&log, 0)), model.batches);
    assert_eq!(misses(&log), first);
}

#[test]
fn who_reads_on_is_read_ahead_of() {
    // Rule: the second read in order finds what follows it on its way, over the end of a segment too; a lone read does not
    // fetch more than it may use.
    let (world, log, _) = old_log(1);
    let read = |offset| {
        let request = ReadRequest { offset, upper_bound: i64::MAX, max_bytes: 4000, min_one_batch: true };
        world.runtime.block_on(async {
            let next_offset = log.read(request).await.expect("no fault").next_offset;
            // What was begun comes to its end.
            world.runtime.sleep(Duration::from_secs(1)).await;
            next_offset
        })
    };
    let next = read(0);
    let alone = misses(&log);
    assert!(alone <= 2, "{alone} blocks for a lone read");
    let mut next = read(next);
    assert!(misses(&log) > alone, "more for one that goes on");
    for _ in 0..6 {
        let before = misses(&log);
        let hits = log.inner.tail.budget().blocks().hits_and_misses().0;
        next = read(next);
        let now = log.inner.tail.budget().blocks().hits_and_misses();
        assert!(now.0 > hits && now.1 - before <= 2, "{before} -> {now:?} at {next}");
    }
}

#[test]
fn a_response_does_not_hold_the_blocks_it_is_from() {
    // Rule: a small answer is a copy, so that many of them do not pin a cache each.
    let (world, log, model) = old_log(1);
    let request = ReadRequest { offset: 0, upper_bound: i64::MAX, max_bytes: 1000, min_one_batch: true };
    let read = world.runtime.block_on(log.read(request)).expect("no fault");
    assert_eq!(read.slices, [model.batches[0].2.clone()]);
    let mut slices = read.slices;
    assert!(slices.remove(0).try_into_mut().is_ok(), "nobody else holds its memory");
}

#[test]
fn a_damaged_block_is_an_error_each_time() {
    // Rule: the cache does not make damage good, and what lies before it is served.
    let (world, log, model) = old_log(1);
    let path = file_path(Path::new(DIR), 0, LOG_SUFFIX);
    world.disk.flip_bit(&path, 5000, 3).expect("a file");
    let end = model.batches.iter().scan(0, |at, (_, last, bytes)| {
        *at += bytes.len();
        Some((*at, *last))
    });
    let good = end.take_while(|(at, _)| *at <= 5000).last().map_or(0, |(_, last)| last + 1);
    for _ in 0..2 {
        let request = |offset| ReadRequest { offset, upper_bound: i64::MAX, max_bytes: 20_000, min_one_batch: true };
        let read = world.runtime.block_on(log.read(request(0))).expect("what is good is delivered");
        assert_eq!(read.next_offset, good);
        world.runtime.block_on(log.read(request(good))).expect_err("the damaged batch");
    }
}
