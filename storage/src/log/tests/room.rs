use std::cell::RefCell;
use std::time::Duration;

use super::*;
use crate::log::room::STAGED_BYTES_MAX;

const BATCH_BYTES: usize = 4 << 20;

/// A log that acknowledges from memory, on a disk whose writes take `write_us`.
fn fast_log(seed: u64, write_us: u64) -> (World, SimulatedLog) {
    let mut world = World::new(seed);
    world.disk = SimulatedDisk::with_options(
        &world.runtime,
        SimulatedDiskOptions { transfer_us: (write_us, write_us), ..SimulatedDiskOptions::default() },
    );
    let disk = world.disk.clone();
    world.runtime.block_on(async move { disk.create_dir_all(Path::new(DIR)).await }).expect("an empty disk");
    world.config = LogConfig { durability: Durability::Memory, ..LogConfig::default() };
    let (log, _) = world.runtime.block_on(world.open(false, None));
    (world, log)
}

fn large() -> ValidBatch {
    batch(1, BATCH_BYTES - 100, NOW, None)
}

fn append_large(log: &SimulatedLog) -> Result<i64, AppendError> {
    log.append_as_leader(Append { batch: large(), leader_epoch: 3, now_ms: NOW }).map(|appended| appended.base_offset)
}

#[test]
fn a_producer_faster_than_the_disk_is_slowed() {
    // Rule: with durability `memory` nothing is refused for a lack of room: it waits, in the order in which it came.
    let (world, log) = fast_log(1, 3000);
    let offsets = Rc::new(RefCell::new(Vec::new()));
    let mut waited = 0;
    for number in 0..40 {
        let come = {
            let (log, offsets) = (log.clone(), Rc::clone(&offsets));
            move || {
                let base_offset = append_large(&log).expect("there is room");
                offsets.borrow_mut().push((number, base_offset));
                assert!(log.staged_bytes() <= STAGED_BYTES_MAX);
            }
        };
        match log.stand_in_line(BATCH_BYTES) {
            None => come(),
            Some(place) => {
                waited += 1;
                world.runtime.spawn(async move {
                    place.turn().await;
                    come();
                });
            }
        }
        if number % 8 == 7 {
            let later = world.runtime.now().saturating_add(Duration::from_millis(1));
            world.runtime.run_until(later).expect("it goes on");
        }
    }
    world.runtime.block_on(async {
        while offsets.borrow().len() < 40 {
            world.runtime.turn().await
        }
    });
    let want: Vec<_> = (0..40).map(|number| (number, i64::from(number))).collect();
    assert_eq!(*offsets.borrow(), want);
    assert!(waited > 0);
    assert!(log.stand_in_line(BATCH_BYTES).is_none() || log.staged_bytes() > 0);
}

fn comes_in_time(world: &World, place: &Place<SimulatedDisk, SimulatedRuntime>) -> bool {
    let timeout = async {
        world.runtime.sleep(Duration::from_secs(30)).await;
        false
    };
    let turn = async {
        place.turn().await;
        true
    };
    world.runtime.block_on(futures_lite::future::or(turn, timeout))
}

#[test]
fn a_disk_that_hangs_holds_up_nobody_for_ever() {
    // Rule: waiting may be given up, and who stood behind moves up; without waiting the append is refused, and takes nothing.
    let (world, log) = fast_log(2, 3_600_000_000);
    while log.stand_in_line(BATCH_BYTES).is_none() {
        append_large(&log).expect("there is room");
    }
    let staged_bytes = log.staged_bytes();
    assert!(staged_bytes > STAGED_BYTES_MAX - BATCH_BYTES && staged_bytes <= STAGED_BYTES_MAX);
    let first = log.stand_in_line(BATCH_BYTES).expect("no room");
    let small = log.stand_in_line(10).expect("a small one stands in line too");
    assert!(!comes_in_time(&world, &first));
    assert!(!comes_in_time(&world, &small), "behind one that still stands there");
    drop(first);
    assert!(comes_in_time(&world, &small), "there is room for the small one");
    drop(small);
    assert!(matches!(append_large(&log), Err(AppendError::Overloaded { .. })));
    assert_eq!(log.staged_bytes(), staged_bytes);
}

#[test]
fn a_log_that_fails_lets_those_go_who_wait() {
    // Rule: who waits for room learns that there will be none.
    let (world, log) = fast_log(3, 1000);
    world.disk.fail_nth(Operation::Write, ".log", 1, libc::EIO);
    while log.stand_in_line(BATCH_BYTES).is_none() {
        append_large(&log).expect("there is room");
    }
    let place = log.stand_in_line(BATCH_BYTES).expect("no room");
    world.runtime.block_on(place.turn());
    assert!(matches!(append_large(&log), Err(AppendError::Offline(_))), "{:?}", log.offline());
}
