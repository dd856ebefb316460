//! The broker on the file systems there are: each works, or the start says in one sentence why not.
//!
//! On images mounted through loop devices: needs root, and says so where it cannot be had.

use walser_tests::disks::mounts::{Kind, Mounted};
use walser_tests::disks::worker::Worker;
use walser_tests::disks::{Observed, full};
use walser_tests::process::{BrokerOptions, TempDir};
use walser_tests::topic;

const IMAGE_BYTES: u64 = 400 << 20;

/// `None`, with a line that says why, where it cannot be had here.
fn mount(kind: Kind, bytes: u64, dir: &TempDir) -> Option<Mounted> {
    match Mounted::new(kind, bytes, dir.path()) {
        Ok(mounted) => Some(mounted),
        Err(error) => {
            println!("skipped: no {kind:?} here: {error}");
            None
        }
    }
}

/// Produces, consumes, dies, starts again; or the sentence the start was refused with.
fn live(kind: Kind, mounted: &Mounted, logs: &TempDir) -> Result<(), String> {
    let options = BrokerOptions::new(&mounted.path().join("data")).set("log.segment.bytes", "1048576");
    let log = logs.path().join(format!("{kind:?}"));
    let mut workers: Vec<Worker> = (0..4).map(|partition| Worker::new("t", partition)).collect();
    for round in 0..3 {
        let observed = Observed::start(&options, &log)?;
        let mut client = topic::connect(observed.address())?;
        if round == 0 {
            topic::create(&mut client, "t", 4, &[])?;
        }
        for worker in &mut workers {
            worker.check(&mut client);
            for value_bytes in [500, 200_000, 500, 700_000, 20_000] {
                worker.produce(&mut client, value_bytes).map_err(|code| format!("{code:?}"))?;
            }
            worker.check(&mut client);
        }
        if round == 1 {
            observed.broker.stop().map_err(|error| error.to_string())?;
        } else {
            observed.broker.kill().map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

#[test]
fn each_file_system_works_or_is_refused_with_a_sentence() {
    // Rule: records are there after kill -9 and after a clean stop, wherever the broker starts; where it does not, it ends with
    // exit code 3 and says why.
    for kind in Kind::ALL {
        let (dir, logs) = (TempDir::new("fs").expect("a directory"), TempDir::new("log").expect("a directory"));
        let Some(mounted) = mount(kind, IMAGE_BYTES, &dir) else { continue };
        match live(kind, &mounted, &logs) {
            Ok(()) => println!("{kind:?}: works"),
            Err(error) => {
                assert!(error.contains("exit status: 3"), "{kind:?}: {error}");
                println!("{kind:?}: refused: {error}");
                assert_ne!(kind, Kind::Ext4, "what everybody has works");
            }
        }
        drop(mounted);
    }
}

#[test]
fn a_full_ext4_is_a_state() {
    // Rule: see `full::fill_and_free`, on a file system of the kernel.
    fill(Kind::Ext4);
}

#[test]
#[ignore = "minutes: `tests/run --long --only disks` runs it"]
fn other_full_file_systems_are_states() {
    // Rule: the same, wherever else it runs.
    for kind in [Kind::Xfs, Kind::Btrfs, Kind::Tmpfs] {
        fill(kind);
    }
}

fn fill(kind: Kind) {
    let (dir, logs) = (TempDir::new("full").expect("a directory"), TempDir::new("log").expect("a directory"));
    let Some(mounted) = mount(kind, IMAGE_BYTES, &dir) else { return };
    full::fill_and_free(&mounted.path().join("data"), &logs.path().join("log"));
    println!("{kind:?}: filled and freed");
    drop(mounted);
}
