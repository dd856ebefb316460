//! Retention beside appends.

use super::*;
use crate::log::Retention;

const HOUR_MS: i64 = 3_600_000;

#[test]
fn a_segment_is_flushed_before_the_next_one_has_a_file() {
    // Rule: while retention ends the last segment of a log, appends may end the next one and begin a third. Wherever the power
    // goes, what was acknowledged of the second one is there: while only the journal has it, the third one has no file.
    for seed in seeds(20) {
        for cut_at in 1.. {
            let mut world = World::new(1000 * seed + cut_at, Shape { partitions: 1, ..Shape::default() });
            let running = world.start_anew();
            let (log, mut prng) = (running.logs[0].clone(), world.runtime.fork_prng());
            let retention = Retention { ms: 0, ..Retention::default() };
            log.set_config(LogConfig { retention, segment_ms: HOUR_MS / 2, ..log.config() });
            let (history, acknowledged) = (RefCell::new(History::default()), Cell::new(1));
            append(&log, &mut history.borrow_mut(), batch(&mut prng, 1, 300, NOW)).expect("no fault");
            world.runtime.block_on(log.durable(1)).expect("no fault");
            world.disk.cut_power_at(cut_at);
            let appending = async {
                for hour in 1..4 {
                    world.runtime.sleep(Duration::from_micros(prng.below(5_000))).await;
                    let batch = batch(&mut prng, 1, 300, NOW + hour * HOUR_MS);
                    let end_offset = append(&log, &mut history.borrow_mut(), batch).expect("no fault");
                    log.durable(end_offset).await.expect("no fault");
                    acknowledged.set(end_offset);
                }
            };
            let removing = async {
                let removed = log.remove_old_segments(NOW + 24 * HOUR_MS, 1).await.expect("no fault");
                assert_eq!((removed, log.log_start_offset()), (1, 1), "seed {seed}");
            };
            let disk = world.disk.clone();
            let work = futures_lite::future::zip(removing, appending);
            let is_done = world.runtime.block_on_unless(work, || disk.has_lost_power()).is_ok();
            drop((running, log));
            world.end(false);
            let again = world.start_anew();
            let (log, report) = (&again.logs[0], &again.reports[0]);
            let case = format!("seed {seed}, cut at {cut_at}: {report:?}");
            assert!(report.corruption.is_none() && log.log_start_offset() <= 1, "{case}");
            assert!(log.log_end_offset() >= acknowledged.get(), "{case}: {} acknowledged", acknowledged.get());
            let mut history = history.into_inner();
            history.cut(log.log_end_offset(), &case);
            let found = world.runtime.block_on(read_all(log, log.log_start_offset()));
            assert_eq!(found, history.from(log.log_start_offset()), "{case}");
            if is_done {
                assert!(cut_at > 20, "the work does something");
                break;
            }
        }
    }
}
