//! Histories of everything that can happen to a compacted log, against what it must have.

use super::*;

/// A restart of any kind; what survives of the checkpoints may be old.
fn restart(world: &mut World, log: SimulatedLog, prng: &mut Prng, case: &str) -> SimulatedLog {
    let (durable_end, recovery_point) = (log.durable_end_offset(), log.recovery_point());
    let first_dirty_offset = prng.chance(2, 3).then(|| log.first_dirty_offset());
    let how = prng.below(3);
    if how == 0 {
        return reopen(world, log);
    }
    world.runtime.crash();
    drop(log);
    world.disk = if how == 1 { world.disk.kill(&world.runtime) } else { world.disk.crash(&world.runtime) };
    let known = prng.chance(1, 2).then_some(recovery_point);
    let opening = OpenLog { first_dirty_offset, ..world.opening(false, known) };
    let (log, report) = world.runtime.block_on(Log::open(opening)).unwrap_or_else(|e| panic!("{case}: {e}"));
    assert!(report.corruption.is_none() && report.cut.is_none(), "{case}: {report:?}");
    assert_eq!(log.log_end_offset(), durable_end, "{case}");
    log
}

/// A pass in which the power goes.
fn cut_pass(world: &mut World, log: SimulatedLog, prng: &mut Prng, case: &str) -> SimulatedLog {
    let recovery_point = log.recovery_point();
    world.disk.cut_power_at(1 + prng.below(40));
    let disk = world.disk.clone();
    let map_bytes = 24 * (4 + prng.index(60));
    let pass = compact_once(&log, NOW, map_bytes);
    drop(world.runtime.block_on_unless(pass, || disk.has_lost_power()));
    world.runtime.crash();
    drop(log);
    world.disk = world.disk.crash(&world.runtime);
    let known = prng.chance(1, 2).then_some(recovery_point);
    let (log, report) = world.runtime.block_on(world.open(false, known));
    assert!(report.corruption.is_none() && report.cut.is_none(), "{case}: {report:?}");
    log
}

#[test]
fn every_history_leaves_what_it_must() {
    // Rule: after any row of appends, passes with maps of any size, restarts, crashes and power cuts within passes, the log
    // has the last record of every key, everything that is not clean, no key twice below where it is clean, and not one
    // record or offset that was not sent.
    for seed in seeds(18) {
        let mut world = compacted_world(seed);
        world.config.segment_bytes = [1500, 3000, 9000][(seed % 3) as usize];
        let mut prng = Prng::new(seed ^ 0x1ea5e);
        let keys = 5 + prng.below(40);
        let (mut log, _) = world.runtime.block_on(world.open(false, None));
        let mut written = Written::default();
        for step in 0..40 {
            let case = format!("seed {seed}, step {step}");
            match prng.below(10) {
                0 => log = restart(&mut world, log, &mut prng, &case),
                1 => log = cut_pass(&mut world, log, &mut prng, &case),
                2..=4 => {
                    let map_bytes = 24 * (4 + prng.index(100));
                    let pass = world.runtime.block_on(compact_once(&log, NOW, map_bytes));
                    pass.unwrap_or_else(|error| panic!("{case}: {error}"));
                }
                _ => {
                    let batches = 1 + prng.index(12);
                    send_random(&world, &log, &mut written, &mut prng, (batches, keys));
                }
            }
            let found = read_records(&world, &log);
            let active = log.inner.state.borrow().active().base_offset();
            written.check_sent(&found, &case);
            written.check_untouched(&found, active, &case);
            written.check_clean(&found, log.first_dirty_offset(), &case);
        }
    }
}
