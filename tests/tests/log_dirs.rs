//! Several log directories: where partitions go, and what is left when one of the directories fails.
//!
//! On a file system in user space that fails on command.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use walser_protocol::ErrorCode;
use walser_tests::disks::worker::Worker;
use walser_tests::disks::{Observed, wait_for};
use walser_tests::log_dirs::{Described, alter, describe};
use walser_tests::lossy_fs::LossyFs;
use walser_tests::lossy_fs::faults::{Call, Effect, Fault};
use walser_tests::process::{BrokerOptions, TempDir};
use walser_tests::raw_client::RawClient;
use walser_tests::topic;

const TOPIC: &str = "t";
const PARTITIONS: i32 = 6;
const SMALL: usize = 500;
const LARGE: usize = 200_000;
/// In the order of their names, as descriptions are.
const DIRS: [&str; 3] = ["a", "b", "c"];

/// A broker of two shards with three directories.
struct World {
    // Dropped in this order.
    observed: Option<Observed>,
    lossy: LossyFs,
    logs: TempDir,
    _dir: TempDir,
}

impl World {
    fn new(name: &str) -> Self {
        let (dir, logs) = (TempDir::new(name).expect("a directory"), TempDir::new("log").expect("a directory"));
        let lossy = LossyFs::mount(dir.path()).expect("FUSE mounts: needs root and /dev/fuse");
        Self { observed: None, lossy, logs, _dir: dir }
    }

    fn options(&self) -> BrokerOptions {
        let dirs = DIRS.map(|dir| self.path(dir).display().to_string()).join(",");
        BrokerOptions::new(Path::new(&dirs)).set("walser.shards", "2").set("log.segment.bytes", "1048576")
    }

    fn path(&self, dir: &str) -> PathBuf {
        self.lossy.mountpoint().join(dir)
    }

    fn start(&mut self) -> RawClient {
        let observed = Observed::start(&self.options(), &self.logs.path().join("log"));
        self.observed = Some(observed.unwrap_or_else(|error| panic!("{error}")));
        topic::connect(self.observed().address()).expect("connected")
    }

    /// Has a replica moved; what is answered.
    fn alter(&self, client: &mut RawClient, partition: i32, dir: usize) -> ErrorCode {
        let path = self.path(DIRS[dir]).display().to_string();
        alter(client, &path, TOPIC, partition).expect("an answer")
    }

    fn observed(&self) -> &Observed {
        self.observed.as_ref().expect("it runs")
    }

    fn kill(&mut self) {
        self.observed.take().expect("it runs").broker.kill().expect("it dies");
    }

    fn stop(&mut self) {
        let (status, _) = self.observed.take().expect("it runs").broker.stop().expect("it ends");
        assert!(status.success(), "{status}");
    }
}

/// Which directory each partition of the topic is in, by what the broker says.
fn homes(client: &mut RawClient) -> BTreeMap<i32, usize> {
    let described = describe(client).expect("described");
    let of_dir = |(at, dir): (usize, &Described)| -> Vec<(i32, usize)> {
        dir.replicas.keys().filter(|(name, _)| name == TOPIC).map(|(_, index)| (*index, at)).collect()
    };
    described.iter().enumerate().flat_map(of_dir).collect()
}

fn workers(client: &mut RawClient) -> Vec<Worker> {
    topic::create(client, TOPIC, PARTITIONS, &[]).expect("made");
    let mut workers: Vec<Worker> = (0..PARTITIONS).map(|partition| Worker::new(TOPIC, partition)).collect();
    produce_all(client, &mut workers);
    workers
}

fn produce_all(client: &mut RawClient, workers: &mut [Worker]) {
    for worker in workers {
        for value_bytes in [SMALL, SMALL, LARGE, SMALL] {
            worker.produce(client, value_bytes).expect("no fault");
        }
    }
}

#[test]
fn partitions_are_spread_and_found_again() {
    // Rule: each goes where there are fewest; each directory has its own id, journals and checkpoints; after a kill and after a
    // clean stop every partition is where it was, with everything that was acknowledged.
    let mut world = World::new("log-dirs");
    let mut client = world.start();
    let mut workers = workers(&mut client);
    let spread = homes(&mut client);
    let mut counts = [0; DIRS.len()];
    spread.values().for_each(|dir| counts[*dir] += 1);
    assert_eq!((spread.len(), counts), (6, [2, 2, 2]));
    for (partition, dir) in &spread {
        assert!(world.path(DIRS[*dir]).join(format!("{TOPIC}-{partition}")).is_dir());
    }
    let described = describe(&mut client).expect("described");
    let paths: Vec<PathBuf> = described.iter().map(|dir| PathBuf::from(&dir.path)).collect();
    assert_eq!(paths, DIRS.map(|dir| world.path(dir)));
    assert!(described.iter().all(|dir| dir.error == ErrorCode::None && !dir.is_cordoned && dir.total_bytes > 0));
    assert!(described.iter().all(|dir| dir.replicas.values().all(|r| r.bytes > LARGE as i64 && !r.is_future)));
    world.kill();
    let mut client = world.start();
    assert_eq!(homes(&mut client), spread);
    produce_all(&mut client, &mut workers);
    world.stop();
    let mut ids: Vec<String> = Vec::new();
    for dir in DIRS {
        let read = |name: &str| fs::read_to_string(world.path(dir).join(name)).expect("it is there");
        let meta = read("meta.properties");
        ids.extend(meta.lines().find_map(|line| line.strip_prefix("directory.id=").map(str::to_owned)));
        assert!(world.path(dir).join(".kafka_cleanshutdown").exists());
        assert_eq!(read("recovery-point-offset-checkpoint").lines().nth(1), Some("2"), "{dir}");
        assert_eq!(world.path(dir).join("quorum").exists(), dir == DIRS[0]);
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), DIRS.len());
    let mut client = world.start();
    assert_eq!(homes(&mut client), spread);
    for worker in &workers {
        worker.check(&mut client);
    }
}

#[test]
fn a_failed_journal_is_its_directorys() {
    // Rule: what is behind it takes nothing more and stays readable; the directory is told as failed and gets no new
    // partitions; everything in the others serves, on the same shard too.
    let mut world = World::new("log-dirs-journal");
    let mut client = world.start();
    let mut workers = workers(&mut client);
    let spread = homes(&mut client);
    for shard in ["0", "1"] {
        world.lossy.inject(Fault::every(Call::Flush, &format!("b/journal/{shard}/*"), Effect::Fail(libc::EIO)));
    }
    for worker in &mut workers {
        let outcome = worker.produce(&mut client, SMALL);
        let is_there = spread[&worker.partition] == 1;
        assert_eq!(outcome.is_err(), is_there, "{outcome:?}");
        assert!(outcome.is_ok() || outcome == Err(ErrorCode::KafkaStorageError));
    }
    for worker in &workers {
        worker.check(&mut client);
    }
    wait_for("a directory that has failed", || {
        let errors: Vec<ErrorCode> = describe(&mut client).expect("described").iter().map(|dir| dir.error).collect();
        (errors == [ErrorCode::None, ErrorCode::KafkaStorageError, ErrorCode::None]).then_some(())
    });
    wait_for("the metric", || {
        (world.observed().metric("kafka_log_logmanager_offlinelogdirectorycount", None) == 1.0).then_some(())
    });
    topic::create(&mut client, "new", 4, &[]).expect("made");
    let described = describe(&mut client).expect("described");
    let new = |dir: &Described| dir.replicas.keys().filter(|(name, _)| name == "new").count();
    assert_eq!((new(&described[0]), new(&described[2])), (2, 2));
    for partition in 0..4 {
        Worker::new("new", partition).produce(&mut client, SMALL).expect("it is served");
    }
}

#[test]
fn a_directory_that_is_not_there_leaves_the_others() {
    // Rule: its partitions are offline and are not made anew, whether it cannot be read or another one is in its place; the
    // others serve. Once it is there again, everything is.
    let mut world = World::new("log-dirs-gone");
    let mut client = world.start();
    let mut workers = workers(&mut client);
    let spread = homes(&mut client);
    world.stop();
    let (there, aside) = (world.path("c"), world.path("aside"));
    fs::rename(&there, &aside).expect("renamed");
    fs::write(&there, b"no directory").expect("written");
    let check = |client: &mut RawClient, workers: &mut [Worker]| {
        for worker in workers {
            if spread[&worker.partition] == 2 {
                assert_eq!(worker.produce(client, SMALL), Err(ErrorCode::KafkaStorageError));
                let fetched = topic::fetch(client, TOPIC, worker.partition, 0).expect("an answer");
                assert_eq!(fetched.map(|_| ()), Err(ErrorCode::KafkaStorageError));
            } else {
                worker.produce(client, SMALL).expect("it serves");
                worker.check(client);
            }
        }
    };
    let mut client = world.start();
    check(&mut client, &mut workers);
    let errors: Vec<ErrorCode> = describe(&mut client).expect("described").iter().map(|dir| dir.error).collect();
    assert_eq!(errors, [ErrorCode::None, ErrorCode::None, ErrorCode::KafkaStorageError]);
    world.stop();
    fs::remove_file(&there).expect("removed");
    fs::create_dir(&there).expect("made");
    let mut client = world.start();
    check(&mut client, &mut workers);
    assert!(homes(&mut client).values().all(|dir| *dir != 2), "nothing of it is made anew");
    world.kill();
    let mut client = world.start();
    check(&mut client, &mut workers);
    world.stop();
    fs::remove_dir_all(&there).expect("removed");
    fs::rename(&aside, &there).expect("renamed");
    let mut client = world.start();
    assert_eq!(homes(&mut client), spread);
    for worker in &mut workers {
        worker.check(&mut client);
        worker.produce(&mut client, SMALL).expect("all serve again");
    }
}

#[test]
fn a_broker_needs_the_directory_of_its_metadata() {
    // Rule: without it the start is refused with a sentence; one partition in two directories is refused, too.
    let mut world = World::new("log-dirs-metadata");
    let mut client = world.start();
    let _workers = workers(&mut client);
    let spread = homes(&mut client);
    world.stop();
    let log = world.logs.path().join("refused");
    let refuse = |part: &str| {
        let Err(error) = Observed::start(&world.options(), &log) else { panic!("it started") };
        assert!(error.contains(part), "{error}");
    };
    let partition = spread.iter().find(|(_, dir)| **dir == 1).map(|(partition, _)| *partition).expect("two are there");
    let name = format!("{TOPIC}-{partition}");
    fs::create_dir(world.path("c").join(&name)).expect("made");
    for entry in fs::read_dir(world.path("b").join(&name)).expect("a directory") {
        let path = entry.expect("an entry").path();
        fs::copy(&path, world.path("c").join(&name).join(path.file_name().expect("a name"))).expect("copied");
    }
    refuse(&format!("partition {name} is in"));
    fs::remove_dir_all(world.path("c").join(&name)).expect("removed");
    fs::rename(world.path("a"), world.path("aside")).expect("renamed");
    refuse("is to hold the metadata log and is empty");
    fs::remove_dir_all(world.path("a")).expect("removed");
    fs::rename(world.path("aside"), world.path("a")).expect("renamed");
    let mut client = world.start();
    assert_eq!(homes(&mut client), spread);
}

#[test]
fn replicas_are_moved_while_they_are_used() {
    // Rule: each is in its new directory, with everything that was acknowledged before and meanwhile, and in no other; a kill in
    // the middle loses nothing, and the move goes on by itself. Directories and replicas that are not there are told from each
    // other, in Kafka's codes.
    let mut world = World::new("log-dirs-moves");
    let mut client = world.start();
    let mut workers = workers(&mut client);
    let spread = homes(&mut client);
    let to = |partition: i32| (spread[&partition] + 1) % DIRS.len();
    assert_eq!(alter(&mut client, "/no/such", TOPIC, 0), Ok(ErrorCode::LogDirNotFound));
    assert_eq!(world.alter(&mut client, 99, 0), ErrorCode::UnknownTopicOrPartition);
    assert_eq!(world.alter(&mut client, 0, spread[&0]), ErrorCode::None, "it is there");
    for partition in 0..PARTITIONS {
        assert_eq!(world.alter(&mut client, partition, to(partition)), ErrorCode::None);
    }
    let is_moved = |client: &mut RawClient| homes(client).iter().all(|(partition, dir)| *dir == to(*partition));
    wait_for("replicas in their new directories", || {
        produce_all(&mut client, &mut workers);
        let described = describe(&mut client).expect("described");
        let is_moving = described.iter().any(|dir| dir.replicas.values().any(|replica| replica.is_future));
        (!is_moving && is_moved(&mut client)).then_some(())
    });
    for worker in &mut workers {
        worker.check(&mut client);
        worker.produce(&mut client, SMALL).expect("it goes on");
    }
    wait_for("old directories that are gone", || {
        let is_there = |dir: &str, partition: i32| {
            let entries = fs::read_dir(world.path(dir)).expect("a directory");
            let prefix = format!("{TOPIC}-{partition}");
            entries.filter_map(Result::ok).any(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        };
        let is_gone =
            |partition: i32| (0..DIRS.len()).all(|dir| is_there(DIRS[dir], partition) == (dir == to(partition)));
        (0..PARTITIONS).all(is_gone).then_some(())
    });
    for partition in 0..PARTITIONS {
        assert_eq!(world.alter(&mut client, partition, spread[&partition]), ErrorCode::None);
    }
    world.kill();
    let mut client = world.start();
    wait_for("replicas in their old directories", || (homes(&mut client) == spread).then_some(()));
    for worker in &mut workers {
        worker.check(&mut client);
        worker.produce(&mut client, SMALL).expect("it goes on");
    }
    world.stop();
    let mut client = world.start();
    assert_eq!(homes(&mut client), spread);
    for worker in &workers {
        worker.check(&mut client);
    }
}

#[test]
fn cordoned_directories_take_nothing() {
    // Rule: new partitions go elsewhere and replicas are not moved there; where all are cordoned no topic is made; what is there
    // serves on (KIP-1066).
    let mut world = World::new("log-dirs-cordoned");
    let mut client = world.start();
    let mut workers = workers(&mut client);
    let spread = homes(&mut client);
    let cordon =
        |client: &mut RawClient, value: &str| topic::alter_broker_config(client, "1", "cordoned.log.dirs", value);
    assert!(cordon(&mut client, "/no/such").is_err());
    let two = [0, 1].map(|dir| world.path(DIRS[dir]).display().to_string()).join(",");
    cordon(&mut client, &two).expect("cordoned");
    topic::create(&mut client, "new", 3, &[]).expect("made");
    let described = describe(&mut client).expect("described");
    assert_eq!([0, 1, 2].map(|at: usize| described[at].is_cordoned), [true, true, false]);
    let new = |dir: &Described| dir.replicas.keys().filter(|(name, _)| name == "new").count();
    assert_eq!([0, 1, 2].map(|at: usize| new(&described[at])), [0, 0, 3]);
    assert_eq!(world.alter(&mut client, 0, 0), ErrorCode::InvalidReplicaAssignment);
    cordon(&mut client, "*").expect("cordoned");
    let refused = topic::create(&mut client, "none", 1, &[]).expect_err("nowhere to go");
    assert!(refused.contains(&ErrorCode::InvalidReplicationFactor.code().to_string()), "{refused}");
    produce_all(&mut client, &mut workers);
    assert!(spread.iter().all(|(partition, dir)| homes(&mut client)[partition] == *dir));
    cordon(&mut client, "").expect("as before");
    topic::create(&mut client, "none", 1, &[]).expect("made");
}
