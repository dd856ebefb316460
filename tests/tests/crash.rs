//! The broker dies under load; what it acknowledged is there.
//!
//! A few rounds here; `tests/run --long` does many, with `crash-rounds`.

use walser_tests::crash::plans::{FEW, SMALL_SEGMENTS};
use walser_tests::crash::rounds::{Death, Plan, run};
use walser_tests::lossy_fs::LossyFs;
use walser_tests::lossy_fs::store::Flushes;
use walser_tests::process::TempDir;

/// Acknowledged means there after kill -9, whatever the shard count is next time.
#[test]
fn kill_9_loses_nothing_acknowledged() {
    let dir = TempDir::new("kill").expect("a directory");
    let plan = Plan {
        data_dir: dir.path(),
        rounds: 3,
        seed: 1,
        death: Death::Killed,
        loads: FEW,
        settings: SMALL_SEGMENTS,
        round_ms_max: 600,
    };
    let verdict = run(&plan).unwrap_or_else(|error| panic!("{error}"));
    assert!(verdict.batches_acked > 0, "the rounds were too short to check anything: {verdict:?}");
}

/// Acknowledged means there after a power cut.
#[test]
fn a_power_cut_loses_nothing_acknowledged() {
    let dir = TempDir::new("cut").expect("a directory");
    let lossy = LossyFs::mount(dir.path()).expect("FUSE mounts: needs root and /dev/fuse");
    let data_dir = lossy.mountpoint().join("data");
    let plan = Plan {
        data_dir: &data_dir,
        rounds: 3,
        seed: 2,
        death: Death::PowerCut(&lossy, Flushes::Honest),
        loads: FEW,
        settings: SMALL_SEGMENTS,
        round_ms_max: 600,
    };
    let verdict = run(&plan).unwrap_or_else(|error| panic!("{error}"));
    assert!(verdict.batches_acked > 0, "the rounds were too short to check anything: {verdict:?}");
}

/// The check is one: on a disk whose flushes do nothing, acknowledged records go missing and are missed, by the check or by
/// the broker, which then does not start, or refuses to serve the logs that lack something.
#[test]
fn ignored_flushes_are_caught() {
    let dir = TempDir::new("ignored").expect("a directory");
    let lossy = LossyFs::mount(dir.path()).expect("FUSE mounts: needs root and /dev/fuse");
    let data_dir = lossy.mountpoint().join("data");
    let plan = Plan {
        data_dir: &data_dir,
        rounds: 5,
        seed: 3,
        death: Death::PowerCut(&lossy, Flushes::Ignored),
        loads: FEW,
        settings: SMALL_SEGMENTS,
        round_ms_max: 300,
    };
    let error = run(&plan).expect_err("nothing was missed on a disk that keeps nothing");
    let is_missed = ["was acknowledged", "exit status: 3", "KafkaStorageError"].iter().any(|sign| error.contains(sign));
    assert!(is_missed, "noticed, but not by a record that is gone: {error}");
    println!("caught: {error}");
}
