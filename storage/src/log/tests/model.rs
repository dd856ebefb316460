use super::*;

/// A random read, compared with what the model says.
async fn check_read(log: &SimulatedLog, model: &Model, prng: &mut Prng, seed: u64) {
    let end_offset = model.end_offset();
    let request = ReadRequest {
        offset: prng.below(end_offset as u64 + 1) as i64,
        upper_bound: prng.below(end_offset as u64 + 2) as i64,
        max_bytes: prng.index(20_000),
        min_one_batch: prng.chance(1, 2),
    };
    let read = log.read(request).await.expect("no fault");
    let got: Vec<u8> = read.slices.iter().flat_map(|slice| slice.to_vec()).collect();
    let eligible = model
        .batches
        .iter()
        .filter(|(_, last, _)| *last >= request.offset)
        .take_while(|(_, last, _)| *last < request.upper_bound);
    let mut want = Vec::new();
    let mut next_offset = request.offset;
    for (at, (_, last, bytes)) in eligible.enumerate() {
        let fits = want.len() + bytes.len() <= request.max_bytes || (at == 0 && request.min_one_batch);
        // A read may stop early, but not before its first batch.
        if !fits || (at > 0 && want.len() >= got.len()) {
            break;
        }
        want.extend_from_slice(bytes);
        next_offset = last + 1;
    }
    assert_eq!(got, want, "seed {seed}, {request:?}");
    assert_eq!((read.bytes, read.next_offset), (want.len(), next_offset), "seed {seed}, {request:?}");
}

async fn check_lookups(log: &SimulatedLog, model: &Model, prng: &mut Prng, seed: u64) {
    let records: Vec<(i64, i64)> = model
        .batches
        .iter()
        .flat_map(|(base, last, bytes)| {
            let first = BatchView::parse_exact(bytes).expect("a batch").base_timestamp();
            (*base..=*last).map(move |offset| (first + offset - base, offset))
        })
        .collect();
    let wanted = NOW + prng.below(2000) as i64 - 100;
    let upper_bound = prng.below(model.end_offset() as u64 + 2) as i64;
    let found = log.offset_for_timestamp(wanted, upper_bound).await.expect("no fault");
    let want = records.iter().find(|(timestamp, _)| *timestamp >= wanted).filter(|(_, offset)| *offset < upper_bound);
    assert_eq!(found.map(|f| (f.timestamp, f.offset)), want.copied(), "seed {seed}: from {wanted} below {upper_bound}");
    let largest = log.max_timestamp().await.expect("no fault");
    let want = records.iter().max_by_key(|(timestamp, offset)| (*timestamp, -offset));
    assert_eq!(largest.map(|f| (f.timestamp, f.offset)), want.copied(), "seed {seed}: largest");
}

/// Closes, kills or crashes, and opens again; the recovery point in the file may be behind.
fn restart(world: &mut World, log: SimulatedLog, model: &mut Model, prng: &mut Prng, seed: u64) -> SimulatedLog {
    let (durable_end, recovery_point) = (log.durable_end_offset(), log.recovery_point());
    let how = prng.below(3);
    let runtime = world.runtime.clone();
    if how == 0 {
        let closed = runtime.block_on(log.close()).expect("no fault");
        drop(log);
        assert_eq!(closed.log_end_offset, model.end_offset(), "seed {seed}");
        let (log, report) = runtime.block_on(world.open(true, Some(closed.log_end_offset)));
        assert_eq!(report.scanned_bytes, 0, "seed {seed}: a clean log is trusted");
        assert_eq!(log.log_end_offset(), model.end_offset(), "seed {seed}");
        return log;
    }
    runtime.crash();
    drop(log);
    world.disk = if how == 1 { world.disk.kill(&runtime) } else { world.disk.crash(&runtime) };
    let known = prng.chance(1, 2).then_some(recovery_point);
    let (log, report) = runtime.block_on(world.open(false, known));
    assert_eq!(report.corruption, None, "seed {seed}");
    assert!(log.log_end_offset() >= durable_end, "seed {seed}: {durable_end} was durable, {report:?}");
    model.cut(log.log_end_offset());
    log
}

#[test]
fn a_log_is_a_vector() {
    // Whatever is appended, read, rolled, closed, killed and crashed: the log is the list of its batches.
    for seed in seeds(60) {
        let mut world = World::new(seed);
        let mut prng = Prng::new(seed ^ 0x5eed);
        let mut model = Model::default();
        let runtime = world.runtime.clone();
        let (mut log, _) = runtime.block_on(world.open(false, None));
        for _ in 0..120 {
            match prng.below(20) {
                0 => log = restart(&mut world, log, &mut model, &mut prng, seed),
                1 => runtime.block_on(check_lookups(&log, &model, &mut prng, seed)),
                2..=8 => runtime.block_on(check_read(&log, &model, &mut prng, seed)),
                what => {
                    let new = batch(1 + prng.index(5), prng.index(900), NOW + prng.below(1000) as i64, None);
                    let appended = append(&log, &mut model, new).expect("no fault");
                    if what < 12 {
                        runtime.block_on(log.durable(appended.end_offset())).expect("no fault");
                        assert!(log.durable_end_offset() >= appended.end_offset());
                    }
                }
            }
        }
        assert_eq!(runtime.block_on(read_all(&log, 0)), model.batches, "seed {seed}");
        assert!(log.segment_count() > 1 || model.batches.len() < 40, "seed {seed} rolls");
    }
}

#[test]
fn producers_survive_restarts() {
    // A batch sent again is answered with its first offset, also after a restart, and appended once.
    for seed in seeds(30) {
        let mut world = World::new(seed);
        let mut prng = Prng::new(seed ^ 0x5eed);
        let mut model = Model::default();
        let runtime = world.runtime.clone();
        let (mut log, _) = runtime.block_on(world.open(false, None));
        let mut sequence = 0;
        for _ in 0..60 {
            let (count, value_bytes, timestamp) = (1 + prng.index(5), prng.index(900), NOW + prng.below(1000) as i64);
            let first =
                append(&log, &mut model, batch(count, value_bytes, timestamp, Some(sequence))).expect("in sequence");
            runtime.block_on(log.durable(first.end_offset())).expect("no fault");
            if prng.chance(1, 10) {
                log = restart(&mut world, log, &mut model, &mut prng, seed);
            }
            let again = append(&log, &mut model, batch(count, value_bytes, timestamp, Some(sequence))).expect("known");
            assert!(again.is_duplicate, "seed {seed}");
            assert_eq!((again.base_offset, again.last_offset), (first.base_offset, first.last_offset), "seed {seed}");
            sequence += count as i32;
            let gap = append(&log, &mut model, batch(1, 1, NOW, Some(sequence + 1)));
            assert!(matches!(gap, Err(AppendError::Producer(_))), "seed {seed}");
        }
    }
}

#[test]
fn epochs_survive_restarts() {
    // The end of an epoch is found after a crash from the batches alone.
    let mut world = World::new(1);
    let runtime = world.runtime.clone();
    let (log, _) = runtime.block_on(world.open(false, None));
    for leader_epoch in [3, 3, 5, 9] {
        let new = Append { batch: batch(10, 10, NOW, None), leader_epoch, now_ms: NOW };
        let appended = log.append_as_leader(new).expect("no fault");
        runtime.block_on(log.durable(appended.end_offset())).expect("no fault");
    }
    let stale = Append { batch: batch(1, 10, NOW, None), leader_epoch: 8, now_ms: NOW };
    assert!(matches!(log.append_as_leader(stale), Err(AppendError::StaleLeaderEpoch { given: 8, current: 9 })));
    runtime.crash();
    drop(log);
    world.disk = world.disk.crash(&runtime);
    let (log, _) = runtime.block_on(world.open(false, None));
    for (asked, want) in [(3, (3, 20)), (4, (3, 20)), (5, (5, 30)), (9, (9, 40)), (10, (-1, -1))] {
        let end = log.end_offset_for_epoch(asked);
        assert_eq!((end.epoch, end.end_offset), want, "epoch {asked}");
    }
}

#[test]
fn an_epoch_begins_with_its_first_batch_that_is_left() {
    // Rule: the file of epochs is written before their batches are durable. What it says of batches that were lost does not
    // count for those that came after them.
    let mut world = World::new(2);
    let runtime = world.runtime.clone();
    let (log, _) = runtime.block_on(world.open(false, None));
    for leader_epoch in [3, 5] {
        let new = Append { batch: batch(10, 10, NOW, None), leader_epoch, now_ms: NOW };
        let appended = log.append_as_leader(new).expect("no fault");
        runtime.block_on(log.durable(appended.end_offset())).expect("no fault");
    }
    runtime.crash();
    drop(log);
    world.disk = world.disk.crash(&runtime);
    let path = Path::new(DIR).join(LEADER_EPOCH_FILE);
    runtime.block_on(checkpoint::replace_file(&world.disk, &path, b"0\n3\n3 0\n5 40\n6 50\n")).expect("no fault");
    let (log, _) = runtime.block_on(world.open(false, None));
    assert_eq!(log.latest_epoch(), Some(EpochEntry { epoch: 5, start_offset: 10 }));
    assert_eq!((log.epoch_at(9), log.epoch_at(10), log.end_offset_for_epoch(3).end_offset), (Some(3), Some(5), 10));
}
