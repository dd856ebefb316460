//! Disk errors are states: what fails goes offline and nothing else, what is full goes on by itself, what is slow is told.
//!
//! On a file system in user space that fails, holds and fills up on command.

use std::path::Path;

use walser_protocol::ErrorCode;
use walser_tests::disks::worker::Worker;
use walser_tests::disks::{Observed, full, wait_for};
use walser_tests::lossy_fs::LossyFs;
use walser_tests::lossy_fs::faults::{Call, Effect, Fault, FaultId};
use walser_tests::process::{BrokerOptions, TempDir};
use walser_tests::raw_client::RawClient;
use walser_tests::topic;

const TOPIC: &str = "t";
const PARTITIONS: i32 = 8;
/// Goes through the journal, and into its segment at once.
const SMALL: usize = 500;
const LARGE: usize = 200_000;

/// A broker of two shards on a disk with faults.
struct World {
    // Dropped in this order: a broker does not end while the disk holds a call of it.
    holding: Vec<FaultId>,
    observed: Option<Observed>,
    lossy: LossyFs,
    logs: TempDir,
    _dir: TempDir,
}

impl World {
    fn new(name: &str) -> Self {
        let (dir, logs) = (TempDir::new(name).expect("a directory"), TempDir::new("log").expect("a directory"));
        let lossy = LossyFs::mount(dir.path()).expect("FUSE mounts: needs root and /dev/fuse");
        let mut world = Self { holding: Vec::new(), observed: None, lossy, logs, _dir: dir };
        world.start();
        world
    }

    fn start(&mut self) {
        let options = BrokerOptions::new(&self.lossy.mountpoint().join("data"))
            .set("walser.shards", "2")
            .set("log.segment.bytes", "1048576");
        self.observed = Some(Observed::start(&options, &self.log_path()).unwrap_or_else(|error| panic!("{error}")));
    }

    fn log_path(&self) -> std::path::PathBuf {
        self.logs.path().join("log")
    }

    fn observed(&self) -> &Observed {
        self.observed.as_ref().expect("it runs")
    }

    fn connect(&self) -> RawClient {
        topic::connect(self.observed().address()).expect("connected")
    }

    /// Kills the broker and starts it again.
    fn restart(&mut self) -> RawClient {
        self.observed.take().expect("it runs").broker.kill().expect("it dies");
        self.start();
        self.connect()
    }

    fn hold(&mut self, call: Call, pattern: &str) -> FaultId {
        let id = self.lossy.inject(Fault::every(call, pattern, Effect::Hold));
        self.holding.push(id);
        id
    }

    /// The shard whose journal takes what is appended to this partition.
    fn shard_of(&self, client: &mut RawClient, worker: &mut Worker) -> usize {
        let watch = |shard: usize| {
            let count = Fault { skip: u64::MAX, ..Fault::every(Call::Flush, &journal_of(shard), Effect::Fail(0)) };
            self.lossy.inject(count)
        };
        let watches = [0, 1].map(watch);
        let shard = wait_for("a flush of one journal", || {
            let before = watches.map(|id| self.lossy.seen(id));
            worker.produce(client, SMALL).expect("no fault");
            let after = watches.map(|id| self.lossy.seen(id));
            // Something else may be flushed at the same time.
            let moved = [0, 1].map(|shard| after[shard] > before[shard]);
            (moved[0] != moved[1]).then_some(usize::from(moved[1]))
        });
        watches.into_iter().for_each(|id| self.lossy.lift(id));
        shard
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for id in &self.holding {
            self.lossy.lift(*id);
        }
    }
}

fn journal_of(shard: usize) -> String {
    format!("data/journal/{shard}/*")
}

/// The workers of a new topic, with something in each partition.
fn workers(client: &mut RawClient) -> Vec<Worker> {
    topic::create(client, TOPIC, PARTITIONS, &[]).expect("made");
    let mut workers: Vec<Worker> = (0..PARTITIONS).map(|partition| Worker::new(TOPIC, partition)).collect();
    for worker in &mut workers {
        for _ in 0..5 {
            worker.produce(client, SMALL).expect("no fault");
        }
        worker.produce(client, LARGE).expect("no fault");
        worker.produce(client, SMALL).expect("no fault");
    }
    workers
}

#[test]
fn a_failed_segment_is_that_logs_alone() {
    // Rule: after a write or a flush of a segment has failed or was torn, that log takes nothing more until the next start and
    // stays readable; others serve; everything acknowledged is there after the start.
    for (call, effect) in
        [(Call::Write, Effect::Fail(libc::EIO)), (Call::Write, Effect::Tear(5)), (Call::Flush, Effect::Fail(libc::EIO))]
    {
        let mut world = World::new("eio-segment");
        let mut client = world.connect();
        let mut workers = workers(&mut client);
        let fault = world.lossy.inject(Fault::next(call, &format!("data/{TOPIC}-3/*.log"), effect));
        assert_eq!(workers[3].produce(&mut client, LARGE), Err(ErrorCode::KafkaStorageError), "{call:?} {effect:?}");
        assert_eq!(world.lossy.hits(fault), 1);
        world.lossy.lift(fault);
        for value_bytes in [SMALL, LARGE] {
            let refused = workers[3].produce(&mut client, value_bytes);
            assert_eq!(refused, Err(ErrorCode::KafkaStorageError), "a later success proves nothing");
        }
        for worker in workers.iter_mut().filter(|worker| worker.partition != 3) {
            worker.produce(&mut client, LARGE).expect("others serve");
            worker.produce(&mut client, SMALL).expect("others serve");
        }
        for worker in &workers {
            worker.check(&mut client);
        }
        wait_for("the metric", || (world.observed().metric("walser_partitions_offline", None) == 1.0).then_some(()));
        let mut client = world.restart();
        for worker in &mut workers {
            worker.check(&mut client);
            worker.produce(&mut client, SMALL).expect("it takes appends again");
            worker.check(&mut client);
        }
    }
}

#[test]
fn a_failed_journal_takes_its_shard_offline_and_no_other() {
    // Rule: after a write or a flush of a journal has failed or was torn, no log behind it acknowledges anything until the next
    // start, all stay readable, and the other shard's logs do not notice.
    for (call, effect) in
        [(Call::Write, Effect::Fail(libc::EIO)), (Call::Write, Effect::Tear(6)), (Call::Flush, Effect::Fail(libc::EIO))]
    {
        let mut world = World::new("eio-journal");
        let mut client = world.connect();
        let mut workers = workers(&mut client);
        let shards: Vec<usize> = workers.iter_mut().map(|worker| world.shard_of(&mut client, worker)).collect();
        let failing = shards[0];
        let fault = world.lossy.inject(Fault::next(call, &journal_of(failing), effect));
        assert_eq!(workers[0].produce(&mut client, SMALL), Err(ErrorCode::KafkaStorageError), "{call:?} {effect:?}");
        assert_eq!(world.lossy.hits(fault), 1);
        world.lossy.lift(fault);
        for (worker, shard) in workers.iter_mut().zip(&shards) {
            for value_bytes in [SMALL, LARGE] {
                let outcome = worker.produce(&mut client, value_bytes);
                let is_refused = outcome == Err(ErrorCode::KafkaStorageError);
                assert_eq!(is_refused, *shard == failing, "{call:?} {effect:?}: {outcome:?}");
            }
        }
        for worker in &workers {
            worker.check(&mut client);
        }
        let behind = shards.iter().filter(|shard| **shard == failing).count() as f64;
        wait_for("the metrics", || {
            let observed = world.observed();
            let offline = observed.metric("walser_partitions_offline", Some(failing));
            (offline == behind && observed.metric("walser_journal_failed", Some(failing)) == 1.0).then_some(())
        });
        assert_eq!(world.observed().metric("walser_partitions_offline", Some(1 - failing)), 0.0);
        let mut client = world.restart();
        for worker in &mut workers {
            worker.check(&mut client);
            worker.produce(&mut client, SMALL).expect("it takes appends again");
        }
    }
}

#[test]
fn a_failed_metadata_log_refuses_changes_and_nothing_else() {
    // Rule: after a write or a flush of the metadata log has failed, nothing is changed until the next start, and records are
    // written and read as before. What was refused is not there then, but for what the disk may have got all the same.
    for call in [Call::Write, Call::Flush] {
        let mut world = World::new("eio-metadata");
        let mut client = world.connect();
        let mut workers = workers(&mut client);
        let fault = world.lossy.inject(Fault::next(call, "data/quorum/wal/*", Effect::Fail(libc::EIO)));
        topic::create(&mut client, "failed", 1, &[]).expect_err("the log has not got it");
        assert_eq!(world.lossy.hits(fault), 1);
        world.lossy.lift(fault);
        topic::create(&mut client, "refused", 1, &[]).expect_err("nobody knows what the log has");
        topic::delete(&mut client, TOPIC).expect_err("nobody knows what the log has");
        wait_for("a line of the log", || world.observed().log().contains("metadata not changed").then_some(()));
        for worker in &mut workers {
            worker.produce(&mut client, SMALL).expect("records are no metadata");
            worker.check(&mut client);
        }
        let mut client = world.restart();
        for worker in &mut workers {
            worker.check(&mut client);
            worker.produce(&mut client, SMALL).expect("it takes appends");
        }
        topic::create(&mut client, "refused", 1, &[]).expect("it is not there, and the log takes it");
    }
}

#[test]
fn a_slow_flush_is_told_and_bounded() {
    // Rule: while the disk takes long over a flush of a journal, requests are answered when their time is up, a metric and a log
    // line say so, and the other shard goes on; afterwards everything does.
    let mut world = World::new("slow-journal");
    let mut client = world.connect();
    let mut workers = workers(&mut client);
    let shards: Vec<usize> = workers.iter_mut().map(|worker| world.shard_of(&mut client, worker)).collect();
    let slow = shards[0];
    let other = shards.iter().position(|shard| *shard != slow).expect("eight partitions are on both shards");
    let held = world.hold(Call::Flush, &journal_of(slow));

    let mut waiting = world.connect();
    let sent = topic::send_produce(&mut waiting, TOPIC, 0, ["held"], 2000).expect("sent");
    let answer = topic::receive_produced(&mut waiting, sent).expect("an answer while the disk has none");
    assert_eq!(answer, Err(ErrorCode::RequestTimedOut));
    wait_for("five seconds of one commit", || {
        workers[other].produce(&mut client, SMALL).expect("the other shard serves");
        // A commit that may be under way there began after this produce, so after the one that is held.
        let other_age_ms = world.observed().metric("walser_journal_commit_age_ms", Some(1 - slow));
        let age_ms = world.observed().metric("walser_journal_commit_age_ms", Some(slow));
        // Each shard says it in its own time, up to a second late: only now the ages are far enough apart to compare.
        let is_long = age_ms >= 5000.0;
        assert!(!is_long || other_age_ms < age_ms, "{other_age_ms} ms on the other shard, {age_ms} ms on the slow one");
        is_long.then_some(())
    });
    // What is in memory and on disk is readable all the while.
    for worker in &workers {
        worker.check(&mut client);
    }
    wait_for("a slow commit that is counted", || {
        (world.observed().metric("walser_slow_commits_total", Some(slow)) >= 1.0).then_some(())
    });
    wait_for("a line of the log", || world.observed().log().contains("the disk keeps a commit waiting").then_some(()));

    world.lossy.lift(held);
    for worker in &mut workers {
        worker.produce(&mut client, SMALL).expect("it goes on");
        worker.check(&mut client);
    }
    // Of one log's own segment, likewise.
    let held = world.hold(Call::Flush, &format!("data/{TOPIC}-0/*.log"));
    let sent = topic::send_produce(&mut waiting, TOPIC, 0, ["x".repeat(LARGE)], 1000).expect("sent");
    let answer = topic::receive_produced(&mut waiting, sent).expect("an answer while the disk has none");
    assert_eq!(answer, Err(ErrorCode::RequestTimedOut));
    for worker in workers.iter_mut().filter(|worker| worker.partition != 0) {
        worker.produce(&mut client, SMALL).expect("others serve, of the same shard too");
    }
    wait_for("a log that waits for its segment", || {
        (world.observed().metric("walser_log_commit_age_ms", Some(slow)) >= 1000.0).then_some(())
    });
    wait_for("a line of the log", || world.observed().log().contains("the disk keeps a log waiting").then_some(()));
    world.lossy.lift(held);
    for worker in &mut workers {
        worker.produce(&mut client, SMALL).expect("it goes on");
        worker.check(&mut client);
    }
    assert_eq!(world.observed().metric("walser_partitions_offline", None), 0.0, "slow is not failed");
}

#[test]
fn a_full_disk_is_a_state() {
    // Rule: see `full::fill_and_free`.
    let (dir, logs) = (TempDir::new("full").expect("a directory"), TempDir::new("log").expect("a directory"));
    let lossy = LossyFs::mount(dir.path()).expect("FUSE mounts: needs root and /dev/fuse");
    lossy.set_capacity(160 << 20);
    full::fill_and_free(&lossy.mountpoint().join("data"), &logs.path().join("log"));
}

#[test]
fn a_flipped_bit_is_an_error_and_not_garbage() {
    // Rule: a consumer that meets a damaged batch of a closed segment gets CORRUPT_MESSAGE; what is before and behind it, and
    // every other partition, is served.
    let mut world = World::new("bit");
    let mut client = world.connect();
    let mut workers = workers(&mut client);
    for _ in 0..15 {
        workers[0].produce(&mut client, LARGE).expect("no fault");
    }
    let (status, _) = world.observed.take().expect("it runs").broker.stop().expect("it ends");
    assert!(status.success());
    let first = format!("data/{TOPIC}-0/00000000000000000000.log");
    let segments = count_segments(&world.lossy.mountpoint().join(format!("data/{TOPIC}-0")));
    assert!(segments >= 3, "{segments} segments");
    // In the second of the large batches; the small ones before the first take less than 10,000 bytes.
    world.lossy.flip_bit(&first, 10_000 + LARGE as u64 + 500).expect("flipped");
    world.start();
    let mut client = world.connect();
    let damaged = topic::fetch(&mut client, TOPIC, 0, 7).expect("an answer");
    assert_eq!(damaged, Err(ErrorCode::CorruptMessage));
    let before = topic::fetch(&mut client, TOPIC, 0, 0).expect("an answer").expect("what is before it");
    assert!(before.records.len() >= 5, "{} records", before.records.len());
    let behind = topic::fetch(&mut client, TOPIC, 0, 8).expect("an answer").expect("what is behind it");
    assert_eq!(behind.records.first().map(|(offset, _)| *offset), Some(8));
    for worker in workers.iter_mut().filter(|worker| worker.partition != 0) {
        worker.check(&mut client);
    }
    for worker in &mut workers {
        worker.produce(&mut client, SMALL).expect("it takes appends");
    }
    wait_for("a line of the log", || {
        world.observed().log().contains("00000000000000000000.log is corrupt at byte").then_some(())
    });
}

fn count_segments(partition_dir: &Path) -> usize {
    let entries = std::fs::read_dir(partition_dir).expect("a partition's directory");
    entries.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().extension() == Some("log".as_ref()))).count()
}
