use std::io::ErrorKind::NotFound;
use std::path::Path;
use std::sync::Arc;

use bytes::BytesMut;
use walser_machine::ids::TopicId;
use walser_machine::metadata::MetadataImage;
use walser_machine::metadata::image::ImageBuilder;
use walser_machine::metadata::records::MetadataRecord;
use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};
use walser_protocol::types::Uuid;
use walser_storage::data_dir::DataDir;
use walser_storage::disk::simulated::{Operation, SimulatedDisk};

use walser_storage::log::ReadRequest;
use walser_storage::runtime::prng::Prng;
use walser_storage::runtime::simulated::SimulatedRuntime;

use super::*;
use crate::config::broker::BrokerConfig;
use crate::config::topic::TopicConfig;
use crate::config::view::BrokerView;
use crate::driver::boot::{BootError, seal, settle_all};
use crate::driver::checkpoints::DirCheckpoints;
use crate::driver::homes::Placing;
use crate::driver::partition::offsets::StartQuery;
use crate::driver::partition::produce::{ProducePart, ProduceShard, Records};
use crate::driver::partition::reconcile::{Assignment, Boot, DirBoot};
use crate::driver::testing::{log_dirs, partition_record, partition_settings};
use crate::log_dirs::LogDirs;

const NODE: i32 = 1;
const DIRS: [&str; 3] = ["/a", "/b", "/c"];

type SimulatedPartitions = Partitions<SimulatedDisk, SimulatedRuntime>;

struct EveryPartition;

impl Assignment for EveryPartition {
    fn owns(&self, _: PartitionId) -> bool {
        true
    }

    fn topic_config(&self, _: &str) -> TopicConfig {
        let given = BrokerConfig::from_pairs(&[]).unwrap();
        let configs = BTreeMap::from([("segment.bytes".to_owned(), "1048576".to_owned())]);
        TopicConfig::resolve(&configs, &BrokerView::fixed(&given))
    }
}

/// What outlives a crash: three directories on one disk, none of them with the metadata log, and a topic "t" of one partition in the first of them.
struct World {
    runtime: SimulatedRuntime,
    disk: SimulatedDisk,
    image: Arc<MetadataImage>,
    id: PartitionId,
    /// Offset and value of what was acknowledged.
    acked: RefCell<BTreeMap<i64, Vec<u8>>>,
    sent: Cell<u64>,
}

/// A broker that runs.
struct Life {
    log_dirs: Arc<LogDirs>,
    partitions: Rc<SimulatedPartitions>,
    checkpoints: Rc<DirCheckpoints<SimulatedDisk>>,
    placing: RefCell<Placing>,
}

impl World {
    fn new(seed: u64) -> Self {
        let runtime = SimulatedRuntime::new(seed);
        let disk = SimulatedDisk::new(&runtime);
        runtime.block_on(async {
            for dir in DIRS {
                disk.create_dir_all(Path::new(dir)).await.unwrap();
            }
            disk.sync_dir(Path::new("/")).await.unwrap();
        });
        let topic_id = TopicId::from_wire(Uuid::from_bytes([7; 16])).unwrap();
        let mut builder = ImageBuilder::new(&MetadataImage::default());
        let topic = MetadataRecord::Topic { topic_id, name: "t".into() };
        builder.replay_batch(&[topic, partition_record(topic_id, 0, NODE)]).unwrap();
        let image = Arc::new(builder.image().clone());
        let id = PartitionId { topic_id, index: 0 };
        Self { runtime, disk, image, id, acked: RefCell::default(), sent: Cell::new(0) }
    }

    /// As the broker starts.
    async fn start(&self) -> Result<Life, BootError> {
        let log_dirs = Arc::new(log_dirs(&DIRS, "/m"));
        let data_dirs: Vec<_> = DIRS.iter().map(|dir| DataDir::at(self.disk.clone(), *dir)).collect();
        let dirs = log_dirs.iter().map(|(index, _)| index).zip(data_dirs.clone()).collect();
        let settled = settle_all(&log_dirs, dirs, &self.runtime, &self.image, NODE).await?;
        let mut placing = Placing::new(NODE, DIRS.len(), settled.homes, &settled.moves);
        let homeless = placing.homeless(&self.image);
        if log_dirs.iter().all(|(_, dir)| !dir.is_offline()) {
            placing.place(homeless.into_iter().filter(|id| !settled.held.contains_key(id)), &log_dirs, &[]);
        }
        let mut left: Vec<DirBoot> = DIRS.iter().map(|_| DirBoot::default()).collect();
        let mut checkpoints = BTreeMap::new();
        for (index, dir) in settled.online {
            left[index.index()] = crate::driver::boot::read(&dir.checkpoints, dir.is_clean);
            checkpoints.insert(index, dir.checkpoints);
        }
        let settings = partition_settings(data_dirs, Arc::clone(&log_dirs), NODE);
        let partitions = Partitions::new(self.runtime.clone(), settings);
        self.runtime.spawn(Rc::clone(&partitions.timer).run());
        let boot = Boot { is_start: true, dirs: left, moves: settled.moves, held: settled.held };
        partitions.open_all(&self.image, &boot, placing.homes(), &EveryPartition).await;
        let checkpoints = Rc::new(DirCheckpoints::new(Arc::clone(&log_dirs), checkpoints));
        Ok(Life { log_dirs, partitions, checkpoints, placing: RefCell::new(placing) })
    }

    /// Appends a record; what is acknowledged is remembered.
    async fn produce(&self, life: &Life, value_bytes: usize) -> Result<(), ErrorCode> {
        let number = self.sent.replace(self.sent.get() + 1);
        let mut value = number.to_be_bytes().to_vec();
        value.resize(value_bytes, number as u8);
        let mut builder = BatchBuilder::new(BatchOptions::default());
        let record = NewRecord { timestamp: 1, value: Some(&value), ..NewRecord::default() };
        builder.append(&record).unwrap();
        let records = Records::Sent(BytesMut::from(&builder.build().unwrap()[..]));
        let parts = vec![ProducePart { slot: 0, partition: self.id, records }];
        let request = ProduceShard { acks: -1, timeout: Duration::from_secs(30), parts };
        let produced = life.partitions.produce(request).await.remove(0);
        let stored = produced.outcome.map_err(|refusal| refusal.code)?;
        self.acked.borrow_mut().insert(stored.base_offset, value);
        Ok(())
    }

    /// Everything that was acknowledged is there.
    async fn check(&self, life: &Life, case: &str) {
        let partition = life.partitions.find(self.id).unwrap_or_else(|| panic!("{case}: no replica"));
        let mut offset = 0;
        let mut found = BTreeMap::new();
        while offset < partition.log.durable_end_offset() {
            let request = ReadRequest { offset, upper_bound: i64::MAX, max_bytes: 64 << 10, min_one_batch: true };
            let read = partition.log.read(request).await.unwrap_or_else(|error| panic!("{case}: {error}"));
            for slice in &read.slices {
                for batch in walser_protocol::records::batch::Batches::new(slice) {
                    let batch = batch.unwrap();
                    found.insert(batch.base_offset(), batch.bytes().to_vec());
                }
            }
            offset = read.next_offset;
        }
        for (offset, value) in &*self.acked.borrow() {
            let batch = found.get(offset).unwrap_or_else(|| panic!("{case}: offset {offset} is lost"));
            let has_value = batch.windows(value.len()).any(|window| window == value);
            assert!(has_value, "{case}: offset {offset} is another record");
        }
    }

    /// The process is gone, with the power or without.
    fn end(&mut self, loses_power: bool) {
        self.runtime.crash();
        self.disk = if loses_power { self.disk.crash(&self.runtime) } else { self.disk.kill(&self.runtime) };
    }

    /// A directory is away, or there again.
    async fn set_there(&self, at: usize, is_there: bool) {
        let (there, away) = (Path::new(DIRS[at]).to_owned(), format!("/away{}", DIRS[at]));
        self.disk.create_dir_all(Path::new("/away")).await.unwrap();
        let (from, to) = if is_there { (Path::new(&away), &*there) } else { (&*there, Path::new(&away)) };
        self.disk.rename(from, to).await.unwrap();
        for dir in ["/", "/away"] {
            self.disk.sync_dir(Path::new(dir)).await.unwrap();
        }
    }

    /// Names of directories of the partition, whatever they are, by log directory.
    async fn names(&self) -> Vec<Vec<String>> {
        let mut names = Vec::new();
        for dir in DIRS {
            let entries = self.disk.list_dir(Path::new(dir)).await.unwrap();
            names.push(entries.into_iter().map(|entry| entry.name).filter(|name| name.starts_with("t-")).collect());
        }
        names
    }
}

impl Life {
    /// Carries out what there is to be moved.
    async fn move_all(&self) {
        let throttle = Throttle::new(f64::INFINITY);
        let settings = MoveSettings { throttle: &throttle, unbound: &throttle };
        let notes = MoveNotes {
            arrival: async |offsets| self.checkpoints.note_arrival(offsets).await,
            departure: async |id, from, to| {
                self.placing.borrow_mut().note_moved(id, to);
                self.checkpoints.note_departure(id, from).await;
            },
        };
        while let Some(wait) = self.partitions.move_next(&settings, &async || {}, &notes).await {
            self.partitions.runtime.sleep(wait).await;
        }
    }

    /// A clean stop, as far as it is one; the directories in which it is not.
    async fn stop(&self, world: &World) -> BTreeSet<LogDirIndex> {
        let (closed, unclean) = self.partitions.close_all().await;
        let mut ends = self.checkpoints.end().await;
        for (at, path) in (0..).zip(DIRS) {
            let closed: Vec<_> = closed.iter().filter(|log| log.offsets.dir == dir(at)).cloned().collect();
            let data_dir = DataDir::at(world.disk.clone(), path);
            let ends = ends.remove(&dir(at)).unwrap_or_default();
            if let Err(error) = seal(&data_dir, &closed, ends, !unclean.contains(&dir(at))).await {
                assert!(error.to_string().contains(path), "only there is an operation told to fail: {error}");
            }
        }
        unclean
    }

    fn home(&self, id: PartitionId) -> usize {
        self.partitions.find(id).expect("a replica").dir.index()
    }
}

fn dir(index: u16) -> LogDirIndex {
    LogDirIndex::new(index)
}

#[test]
fn a_replica_is_moved_while_it_is_used() {
    // Rule: what is produced meanwhile is in the new directory, in its order; the old directory goes, and a start finds the
    // replica where it is, with everything.
    let world = World::new(1);
    world.runtime.clone().block_on(async {
        let life = Rc::new(world.start().await.unwrap());
        for value_bytes in [100, 20_000, 300].repeat(20) {
            world.produce(&life, value_bytes).await.unwrap();
        }
        assert_eq!(life.home(world.id), 0);
        life.partitions.move_replica(world.id, dir(2)).await.unwrap();
        let copies: Vec<_> = life.partitions.log_sizes().into_iter().filter(|log| log.is_future).collect();
        assert_eq!((copies.len(), copies[0].dir, copies[0].offset_lag), (1, dir(2), 60));
        let moving = life.move_all();
        let producing = async {
            for _ in 0..200 {
                world.produce(&life, 500).await.unwrap();
            }
        };
        futures_lite::future::zip(moving, producing).await;
        assert_eq!(life.home(world.id), 2);
        assert!(life.partitions.log_sizes().iter().all(|log| !log.is_future && log.dir == dir(2)));
        world.check(&life, "moved").await;
        world.produce(&life, 700).await.unwrap();
        world.runtime.sleep(Duration::from_secs(5)).await;
        let names = world.names().await;
        assert_eq!(names, [vec![], vec![], vec!["t-0".to_owned()]]);
        let (closed, unclean) = life.partitions.close_all().await;
        assert_eq!((closed.len(), closed[0].offsets.dir, unclean.len()), (1, dir(2), 0));
        let life = world.start().await.unwrap();
        assert_eq!(life.home(world.id), 2);
        world.check(&life, "started again").await;
    });
}

#[test]
fn offsets_are_noted_of_directories_that_a_power_cut_leaves() {
    // Rule: as long as a partition's directory is not on stable storage nothing is noted under its topic's name; when
    // DeleteRecords is answered it is, id and all, and the new start is there after a power cut.
    for seed in 0..10 {
        let mut world = World::new(seed);
        world.runtime.clone().block_on(async {
            let life = world.start().await.unwrap();
            for value_bytes in [100, 200, 300, 400] {
                world.produce(&life, value_bytes).await.unwrap();
            }
            let partition = life.partitions.find(world.id).unwrap();
            partition.log.raise_log_start(1, 4).unwrap();
            assert_eq!(life.partitions.moved_offsets(), [], "seed {seed}: all of it is in the journal");
            let query = StartQuery { slot: 0, partition: world.id, offset: 3, wait: Duration::from_secs(1) };
            let raised = life.partitions.raise_log_starts(vec![query]).await.remove(0).outcome.unwrap();
            assert_eq!(raised.log_start_offset, 3);
            assert_eq!(life.partitions.moved_offsets(), [partition.offsets()]);
            assert_eq!(life.checkpoints.note(vec![raised]).await, []);
        });
        world.runtime.crash();
        world.disk = world.disk.crash(&world.runtime);
        world.runtime.clone().block_on(async {
            let found = DataDir::at(world.disk.clone(), "/a").list_partitions().await.unwrap();
            let ids: Vec<_> = found.iter().map(|dir| (dir.dir_name.as_str(), dir.topic_id)).collect();
            assert_eq!(ids, [("t-0", Some(world.id.topic_id.get()))], "seed {seed}");
            let life = world.start().await.unwrap();
            let log = &life.partitions.find(world.id).unwrap().log;
            assert_eq!((log.log_start_offset(), log.log_end_offset()), (3, 4), "seed {seed}");
        });
    }
}

#[test]
fn a_move_survives_a_power_cut_at_every_operation() {
    // Rule: whenever the power goes, the replica is in one directory afterwards, with everything that was acknowledged; the
    // move goes on by itself, and nothing else of it is left.
    for seed in 0..2 {
        let mut cut_at = 1;
        loop {
            let case = format!("seed {seed}, cut at {cut_at}");
            let mut world = World::new(seed);
            let life = world.runtime.clone().block_on(async {
                let life = world.start().await.unwrap();
                for value_bytes in [100, 9000, 300] {
                    world.produce(&life, value_bytes).await.unwrap();
                }
                life
            });
            world.disk.cut_power_at(cut_at);
            let disk = world.disk.clone();
            let working = async {
                life.partitions.move_replica(world.id, dir(1)).await.unwrap();
                let producing = async {
                    for value_bytes in [50, 12_000, 70, 80, 90] {
                        // With the power gone there is no answer.
                        world.produce(&life, value_bytes).await.unwrap();
                    }
                };
                futures_lite::future::zip(life.move_all(), producing).await;
                world.produce(&life, 60).await.unwrap();
            };
            let is_done = world.runtime.block_on_unless(working, || disk.has_lost_power()).is_ok();
            world.runtime.crash();
            drop(life);
            world.disk = world.disk.crash(&world.runtime);
            world.runtime.clone().block_on(async {
                let life = world.start().await.unwrap_or_else(|error| panic!("{case}: {error}"));
                world.check(&life, &case).await;
                world.produce(&life, 40).await.unwrap();
                life.move_all().await;
                world.produce(&life, 30).await.unwrap();
                world.check(&life, &case).await;
                world.runtime.sleep(Duration::from_secs(5)).await;
                let names = world.names().await;
                let home = life.home(world.id);
                for (at, names) in names.iter().enumerate() {
                    let want: &[&str] = if at == home { &["t-0"] } else { &[] };
                    assert_eq!(names, want, "{case}: in {}", DIRS[at]);
                }
            });
            if is_done {
                assert!(cut_at > 40, "a move is many operations");
                break;
            }
            cut_at += 1;
        }
    }
}

#[test]
fn a_journal_is_begun_once() {
    // Rule: whoever needs it first begins it, and who needs it meanwhile waits for that.
    let world = World::new(10);
    world.runtime.clone().block_on(async {
        let life = world.start().await.unwrap();
        let begin = async |at| life.partitions.start_journals([dir(at)]).await;
        let settled = async || {
            world.runtime.sleep(Duration::from_secs(1)).await;
            world.disk.change_count()
        };
        let before = settled().await;
        begin(1).await;
        let once = settled().await - before;
        futures_lite::future::zip(begin(2), begin(2)).await;
        assert_eq!(settled().await - before, 2 * once);
        assert!(once > 0, "it was not begun before");
    });
}

#[test]
fn minds_are_changed() {
    // Rule: the last wish counts: elsewhere, or back to where the replica is; a copy that is not wanted goes.
    let world = World::new(3);
    world.runtime.clone().block_on(async {
        let life = world.start().await.unwrap();
        world.produce(&life, 9000).await.unwrap();
        let copies = || -> Vec<usize> {
            let sizes = life.partitions.log_sizes();
            sizes.iter().filter(|log| log.is_future).map(|log| log.dir.index()).collect()
        };
        life.partitions.move_replica(world.id, dir(1)).await.unwrap();
        assert_eq!(copies(), [1]);
        life.partitions.move_replica(world.id, dir(2)).await.unwrap();
        assert_eq!(copies(), [2]);
        life.partitions.move_replica(world.id, dir(0)).await.unwrap();
        assert_eq!(copies(), [0; 0]);
        life.move_all().await;
        assert_eq!(life.home(world.id), 0);
        for to in [1, 0, 2, 0] {
            life.partitions.move_replica(world.id, dir(to)).await.unwrap();
            life.move_all().await;
            assert_eq!(life.home(world.id), usize::from(to));
            world.produce(&life, 100).await.unwrap();
            world.check(&life, "there and back").await;
        }
        world.runtime.sleep(Duration::from_secs(5)).await;
        assert_eq!(world.names().await, [vec!["t-0".to_owned()], vec![], vec![]]);
        let unknown = PartitionId { index: 7, ..world.id };
        assert_eq!(life.partitions.move_replica(unknown, dir(1)).await, Err(ErrorCode::ReplicaNotAvailable));
        life.log_dirs.dir(dir(2)).fail("a test");
        assert_eq!(life.partitions.move_replica(world.id, dir(1)).await, Err(ErrorCode::KafkaStorageError));
    });
}

#[test]
fn a_disk_that_fails_leaves_the_replica_where_it_is() {
    // Rule: what is refused is tried again, what fails ends the move; the replica serves on in either case.
    for (operation, path, errno, moves) in [
        (Operation::Write, "-future", libc::ENOSPC, true),
        (Operation::Write, "-future", libc::EIO, false),
        (Operation::SyncData, "-future", libc::EIO, false),
        (Operation::Rename, "-future", libc::EIO, false),
    ] {
        for nth in 1..3 {
            let case = format!("{operation:?} number {nth}: {errno}");
            let world = World::new(4);
            world.runtime.clone().block_on(async {
                let life = world.start().await.unwrap();
                world.produce(&life, 9000).await.unwrap();
                life.partitions.move_replica(world.id, dir(1)).await.unwrap();
                world.disk.fail_nth(operation, path, nth, errno);
                life.move_all().await;
                assert_eq!(life.home(world.id), if moves { 1 } else { 0 }, "{case}");
                world.produce(&life, 100).await.unwrap();
                world.check(&life, &case).await;
            });
        }
    }
}

#[test]
fn a_replica_that_is_stuck_between_two_directories_is_whole_in_both() {
    // Rule: when the new name cannot be made durable or the copy cannot be opened, a stop leaves neither directory clean, and
    // whichever of the two a start finds has everything that was acknowledged.
    let mut stuck = 0;
    for (operation, path, count) in [(Operation::SyncDir, "/b", 12), (Operation::Read, "/b/t-0/", 2)] {
        for nth in 1..count {
            let case = format!("{operation:?} number {nth} in {path}");
            let mut world = World::new(5);
            let was_stuck = world.runtime.clone().block_on(async {
                let life = world.start().await.unwrap();
                for value_bytes in [100, 9000, 300, 200] {
                    world.produce(&life, value_bytes).await.unwrap();
                }
                world.disk.fail_nth(operation, path, nth, libc::EIO);
                let asked = life.partitions.move_replica(world.id, dir(1)).await;
                assert!(asked.is_ok() || operation == Operation::SyncDir, "{case}: {asked:?}");
                life.move_all().await;
                let is_stuck = life.partitions.find(world.id).is_none();
                let unclean = life.stop(&world).await;
                assert_eq!(
                    unclean,
                    if is_stuck { BTreeSet::from([dir(0), dir(1)]) } else { BTreeSet::new() },
                    "{case}"
                );
                is_stuck
            });
            stuck += usize::from(was_stuck);
            world.runtime.crash();
            world.disk = world.disk.kill(&world.runtime);
            world.runtime.clone().block_on(async {
                let rename = async |from: &str, to: &str| world.disk.rename(Path::new(from), Path::new(to)).await;
                if was_stuck {
                    rename("/b", "/gone").await.unwrap();
                    let life = world.start().await.unwrap();
                    if life.partitions.find(world.id).is_some() {
                        world.check(&life, &format!("{case}, without the new directory")).await;
                    }
                    life.partitions.close_all().await;
                    rename("/gone", "/b").await.unwrap();
                }
                let life = world.start().await.unwrap();
                world.check(&life, &case).await;
                world.produce(&life, 100).await.unwrap();
                world.check(&life, &case).await;
            });
        }
    }
    assert!(stuck > 1, "{stuck} times");
}

#[test]
fn what_was_moved_away_is_not_made_anew_from_an_old_journal() {
    // Rule: while a directory is away, a log that is nowhere is not made from what a journal still has of it, however often the
    // broker starts; once the directory is there again the replica is there with everything, and the journal is not kept.
    for stops in [false, true] {
        let mut world = World::new(6);
        world.runtime.clone().block_on(async {
            let life = world.start().await.unwrap();
            world.produce(&life, 100).await.unwrap();
            life.partitions.move_replica(world.id, dir(1)).await.unwrap();
            life.move_all().await;
            world.produce(&life, 200).await.unwrap();
        });
        world.end(false);
        world.runtime.clone().block_on(world.set_there(1, false));
        for _ in 0..2 {
            world.runtime.clone().block_on(async {
                let life = world.start().await.unwrap();
                assert!(life.partitions.find(world.id).is_none(), "an older replica serves");
                assert_eq!(world.disk.list_dir(Path::new("/a/t-0")).await.map_err(|e| e.kind()).err(), Some(NotFound));
                if stops {
                    life.stop(&world).await;
                }
            });
            world.end(false);
        }
        world.runtime.clone().block_on(async {
            world.set_there(1, true).await;
            let life = world.start().await.unwrap();
            assert_eq!(life.home(world.id), 1);
            world.check(&life, "there again").await;
            let journals = world.disk.list_dir(Path::new("/a/journal")).await.unwrap();
            assert!(journals.iter().all(|entry| !entry.name.contains("withheld")), "{journals:?}");
        });
    }
}

#[test]
fn an_older_replica_does_not_serve_in_the_place_of_a_newer_one() {
    // Rule: once the copy has the partition's name the old directory is no replica, and takes nothing while the new one is away;
    // before, it is one.
    let mut in_both = 0;
    // Of the renames that end a move one gives the old directory another name.
    for nth in 0..12 {
        let mut world = World::new(8);
        let serves = world.runtime.clone().block_on(async {
            let life = world.start().await.unwrap();
            world.produce(&life, 9000).await.unwrap();
            life.partitions.move_replica(world.id, dir(1)).await.unwrap();
            if nth == 0 {
                return Some(true);
            }
            world.disk.fail_nth(Operation::Rename, "/a/t-0", nth, libc::EIO);
            life.move_all().await;
            world.produce(&life, 200).await.unwrap();
            (world.names().await[..2] == [["t-0"], ["t-0"]]).then_some(false)
        });
        let Some(serves) = serves else { continue };
        in_both += usize::from(!serves);
        for is_there in [false, true] {
            world.end(true);
            world.runtime.clone().block_on(async {
                let rename = async |from, to| world.disk.rename(Path::new(from), Path::new(to)).await;
                if is_there { rename("/gone", "/b").await } else { rename("/b", "/gone").await }.unwrap();
                world.disk.sync_dir(Path::new("/")).await.unwrap();
                let life = world.start().await.unwrap();
                assert_eq!(life.partitions.find(world.id).is_some(), serves || is_there);
                if serves || is_there {
                    world.check(&life, "a replica").await;
                    world.produce(&life, 100).await.unwrap();
                }
            });
        }
    }
    assert_eq!(in_both, 1);
}

#[test]
fn a_replica_leaves_a_directory_again_and_again() {
    // Rule: what is left of earlier stays, on its way out or unable to go, is in the way of no move and of no start.
    let mut in_both = 0;
    for nth in 0..12 {
        let mut world = World::new(9);
        let is_of_use = world.runtime.clone().block_on(async {
            let life = world.start().await.unwrap();
            world.produce(&life, 9000).await.unwrap();
            if nth > 0 {
                life.partitions.move_replica(world.id, dir(1)).await.unwrap();
                world.disk.fail_nth(Operation::Rename, "/a/t-0", nth, libc::EIO);
                life.move_all().await;
                if world.names().await[..2] != [["t-0"], ["t-0"]] {
                    return false;
                }
                in_both += 1;
            }
            for to in [1, 0, 1, 0, 1] {
                world.produce(&life, 9000).await.unwrap();
                // None of what has left is removed before the next start.
                world.disk.fail_nth(Operation::Remove, "-delete/", 1, libc::EIO);
                life.partitions.move_replica(world.id, dir(to)).await.unwrap();
                life.move_all().await;
                assert_eq!(life.home(world.id), usize::from(to), "{nth}");
                world.check(&life, "moved again").await;
            }
            true
        });
        if !is_of_use {
            continue;
        }
        world.end(true);
        world.runtime.clone().block_on(async {
            let life = world.start().await.unwrap();
            assert_eq!(life.home(world.id), 1, "{nth}");
            world.check(&life, "started").await;
            assert_eq!(world.names().await, [vec![], vec!["t-0".to_owned()], vec![]], "{nth}");
        });
    }
    assert_eq!(in_both, 1);
}

#[test]
fn a_copy_goes_on_only_where_every_run_knew_of_it() {
    // Rule: after a start that did not find the copy nothing of it is believed, not even a segment of the right length; it is
    // removed, and the replica stays where it is until somebody asks again.
    for is_known in [true, false] {
        let mut world = World::new(12);
        world.runtime.clone().block_on(async {
            let life = world.start().await.unwrap();
            for _ in 0..25 {
                world.produce(&life, 60_000).await.unwrap();
            }
            life.partitions.move_replica(world.id, dir(1)).await.unwrap();
        });
        world.end(false);
        if !is_known {
            world.runtime.clone().block_on(async {
                world.set_there(1, false).await;
                let life = world.start().await.unwrap();
                world.produce(&life, 100).await.unwrap();
            });
            world.end(true);
            world.runtime.clone().block_on(async {
                world.set_there(1, true).await;
                // As long as the log's first segment, and not the same.
                let mut segment = world.disk.peek(Path::new("/a/t-0/00000000000000000000.log")).unwrap();
                segment[1000] ^= 1;
                let copy = Path::new("/b").join(&world.names().await[1][0]).join("00000000000000000000.log");
                walser_storage::checkpoint::replace_file(&world.disk, &copy, &segment).await.unwrap();
            });
        }
        world.runtime.clone().block_on(async {
            let life = world.start().await.unwrap();
            life.move_all().await;
            assert_eq!(life.home(world.id), usize::from(is_known));
            world.check(&life, "after all").await;
            life.partitions.move_replica(world.id, dir(1)).await.unwrap();
            life.move_all().await;
            assert_eq!(life.home(world.id), 1);
            world.check(&life, "asked again").await;
            world.runtime.sleep(Duration::from_secs(5)).await;
            assert_eq!(world.names().await[1], ["t-0"]);
        });
    }
}

/// Starts without some of the directories, appends where there is a replica, and ends in one way or another; then starts with all
/// of them.
fn start_with_some(world: &mut World, prng: &mut Prng, case: &str) {
    let mut away = BTreeSet::new();
    for round in 0..prng.between(1, 4) {
        for at in 0..DIRS.len() {
            let is_wanted = prng.chance(1, 2);
            if is_wanted == away.contains(&at) {
                world.runtime.clone().block_on(world.set_there(at, is_wanted));
                if is_wanted {
                    away.remove(&at)
                } else {
                    away.insert(at)
                };
            }
        }
        let case = format!("{case}, start {round} without {away:?}");
        // At times the power goes during the start, too.
        if prng.chance(1, 3) {
            world.disk.cut_power_at(prng.between(1, 40));
        }
        let disk = world.disk.clone();
        let stops = prng.chance(1, 3);
        let working = async {
            let life = world.start().await.unwrap_or_else(|error| panic!("{case}: {error}"));
            if life.partitions.find(world.id).is_some() {
                world.check(&life, &case).await;
                // What is not acknowledged when the power goes is in nobody's book.
                world.produce(&life, 40).await.unwrap();
                if away.is_empty() {
                    life.move_all().await;
                    world.produce(&life, 41).await.unwrap();
                }
            }
            if stops {
                life.stop(world).await;
            }
        };
        let is_done = world.runtime.clone().block_on_unless(working, || disk.has_lost_power()).is_ok();
        let loses_power = !is_done || prng.chance(1, 2);
        world.end(loses_power);
    }
    for at in away {
        world.runtime.clone().block_on(world.set_there(at, true));
    }
}

#[test]
fn whatever_directories_a_start_finds_nothing_newer_is_hidden() {
    // Rule: the power goes anywhere in moves from the first directory to the second and on to the third and back, or the process
    // is killed there; whichever directories the next starts find, none is refused, a replica that serves has everything that was
    // acknowledged, and with all directories there is one, and nothing else of the partition.
    let mut cut_at = 1;
    let mut prng = Prng::new(77);
    loop {
        let case = format!("cut at {cut_at}");
        let mut world = World::new(cut_at);
        let life = world.runtime.clone().block_on(async {
            let life = world.start().await.unwrap();
            for value_bytes in [100, 9000] {
                world.produce(&life, value_bytes).await.unwrap();
            }
            life
        });
        world.disk.cut_power_at(cut_at);
        let disk = world.disk.clone();
        let working = async {
            for to in [1, 2, 0] {
                life.partitions.move_replica(world.id, dir(to)).await.unwrap();
                let producing = async {
                    for value_bytes in [50, 60] {
                        world.produce(&life, value_bytes).await.unwrap();
                    }
                };
                futures_lite::future::zip(life.move_all(), producing).await;
            }
        };
        let is_done = world.runtime.clone().block_on_unless(working, || disk.has_lost_power()).is_ok();
        drop(life);
        world.end(true);
        start_with_some(&mut world, &mut prng, &case);
        world.runtime.clone().block_on(async {
            let life = world.start().await.unwrap_or_else(|error| panic!("{case}: {error}"));
            world.check(&life, &case).await;
            world.produce(&life, 40).await.unwrap();
            life.move_all().await;
            world.check(&life, &case).await;
            world.runtime.sleep(Duration::from_secs(5)).await;
            let home = life.home(world.id);
            for (at, names) in world.names().await.iter().enumerate() {
                let want: &[&str] = if at == home { &["t-0"] } else { &[] };
                assert_eq!(names, want, "{case}: in {}", DIRS[at]);
            }
        });
        if is_done {
            assert!(cut_at > 120, "moves are many operations");
            break;
        }
        cut_at += 1;
    }
}
