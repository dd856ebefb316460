use std::path::Path;

use walser_machine::ids::TopicId;
use walser_machine::metadata::image::ImageBuilder;
use walser_machine::metadata::records::{BrokerRegistration, MetadataRecord};
use walser_storage::data_dir::log_ends::LogEnds;
use walser_storage::disk::OpenMode;
use walser_storage::disk::simulated::{Operation, SimulatedDisk};
use walser_storage::journal::record::{Piece, SegmentBytes};
use walser_storage::journal::{JOURNAL_DIR, folder};
use walser_storage::log::DamageMark;
use walser_storage::runtime::simulated::SimulatedRuntime;
use walser_storage::wal::{Wal, WalOptions};

use super::*;
use crate::driver::testing::{log_dirs, partition_record};

const NODE: i32 = 1;
const DATA: &str = "/data";

/// Topic "a" with partition 0 here and partition 1 on another node.
fn image(topic_id: TopicId) -> MetadataImage {
    let topic = MetadataRecord::Topic { topic_id, name: "a".into() };
    let mut builder = ImageBuilder::new(&MetadataImage::default());
    builder.replay_batch(&[topic, partition_record(topic_id, 0, NODE), partition_record(topic_id, 1, 2)]).unwrap();
    builder.image().clone()
}

/// One byte at the start of each log.
async fn write_journal(disk: &SimulatedDisk, runtime: &SimulatedRuntime, logs: &[(Uuid, i32)]) {
    let dir = folder(Path::new(DATA), 3);
    let options = WalOptions { dir, first_file_bytes: 64 << 10, file_bytes: 64 << 10, spares_max: 0, salt_seed: 1 };
    let (wal, _) = Wal::open(disk.clone(), runtime.clone(), options, |_, _| {}).await.unwrap();
    for &(topic_id, partition) in logs {
        let head = SegmentBytes { topic_id, partition, base_offset: 0, position: 0 }.encode_head(Piece::Batch);
        wal.append_committed([&head[..], b"x"].concat().into()).await.unwrap();
    }
    wal.close().await.unwrap();
}

#[test]
fn journals_are_replayed_after_a_crash_only_and_gone_in_any_case() {
    // Rule: after a crash a journal puts its bytes into the partitions that the metadata has on this node, and into no
    // others; after a clean stop into none. Then it is gone.
    for is_clean in [false, true] {
        let runtime = SimulatedRuntime::new(1);
        let disk = SimulatedDisk::new(&runtime);
        let topic_id = Uuid::from_bytes([7; 16]);
        let image = image(TopicId::from_wire(topic_id).unwrap());
        let topics = known_topics(&image, NODE);
        let logs = JournalLogs { topics: &topics, may_be_made: true };
        runtime.block_on(async {
            disk.create_dir_all(&Path::new(DATA).join(JOURNAL_DIR)).await.unwrap();
            let other = Uuid::from_bytes([9; 16]);
            write_journal(&disk, &runtime, &[(topic_id, 0), (topic_id, 1), (topic_id, 2), (other, 0)]).await;
            let data_dir = DataDir::at(disk.clone(), DATA);
            let settled = settle_journals(&data_dir, &runtime, logs, &LogEnds::new(), is_clean).await;
            let made = settled.unwrap().made;
            let found = data_dir.list_partitions().await.unwrap();
            assert_eq!(made, found);
            let names: Vec<&str> = found.iter().map(|dir| dir.dir_name.as_str()).collect();
            assert_eq!(names, if is_clean { &[][..] } else { &["a-0"] });
            assert!(disk.list_dir(&Path::new(DATA).join(JOURNAL_DIR)).await.unwrap().is_empty());
        });
    }
}

#[test]
fn a_damaged_journal_costs_what_is_behind_it() {
    // Rule: the start goes on; what was in the journal alone is marked, the folder is kept under another name.
    let runtime = SimulatedRuntime::new(1);
    let disk = SimulatedDisk::new(&runtime);
    let data_dir = DataDir::at(disk.clone(), DATA);
    let topic_id = Uuid::from_bytes([7; 16]);
    let image = image(TopicId::from_wire(topic_id).unwrap());
    let topics = known_topics(&image, NODE);
    let logs = JournalLogs { topics: &topics, may_be_made: true };
    runtime.block_on(async {
        disk.create_dir_all(&Path::new(DATA).join(JOURNAL_DIR)).await.unwrap();
        write_journal(&disk, &runtime, &[(topic_id, 0); 3]).await;
        let dir = folder(Path::new(DATA), 3);
        let entries = disk.list_dir(&dir).await.unwrap();
        disk.flip_bit(&dir.join(&entries[0].name), 50, 1).unwrap();
        let settled = settle_journals(&data_dir, &runtime, logs, &LogEnds::new(), false).await.unwrap();
        assert_eq!(settled.damage_count, 1);
        let mark = DamageMark::read(&disk, &data_dir.partition_path("a", 0)).await.unwrap();
        assert!(mark.is_some_and(|mark| mark.end_offset.is_none() && mark.path.starts_with(&dir)));
        let left = disk.list_dir(&Path::new(DATA).join(JOURNAL_DIR)).await.unwrap();
        assert_eq!(left.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), ["3.damaged"]);
        let settled = settle_journals(&data_dir, &runtime, logs, &LogEnds::new(), false).await.unwrap();
        assert_eq!((settled.damage_count, settled.made.len()), (0, 0), "once");
    });
}

#[test]
fn a_journal_serves_the_logs_of_its_shard() {
    // Rule: whose logs are behind a journal follows from the shards of the run that wrote it; without them it may be any.
    let partitions: std::collections::BTreeSet<i32> = (0..6).collect();
    let known = BTreeMap::from([(Uuid::from_bytes([7; 16]), KnownTopic { name: "a".into(), partitions })]);
    let behind = |journal, shard_count| logs_behind(&known, JournalOwner { journal, shard_count });
    let mut all: Vec<_> = (0..3).flat_map(|journal| behind(journal, Some(3))).collect();
    all.sort();
    assert_eq!(all, behind(0, None));
    assert_eq!((all.len(), behind(1, Some(3)).len(), behind(1, Some(1)).len()), (6, 2, 0));
}

/// /a and /b with partitions of one topic, and a journal in each.
struct TwoDirs {
    runtime: SimulatedRuntime,
    disk: SimulatedDisk,
    log_dirs: LogDirs,
    image: Arc<MetadataImage>,
    topic_id: TopicId,
}

impl TwoDirs {
    fn new() -> Self {
        let runtime = SimulatedRuntime::new(1);
        let disk = SimulatedDisk::new(&runtime);
        let topic_id = TopicId::from_wire(Uuid::from_bytes([7; 16])).unwrap();
        let log_dirs = log_dirs(&["/a", "/b"], "/a");
        let mut builder = ImageBuilder::new(&image(topic_id));
        let more = [2, 3].map(|index| partition_record(topic_id, index, NODE));
        builder.replay_batch(&more).unwrap();
        let image = Arc::new(builder.image().clone());
        Self { runtime, disk, log_dirs, image, topic_id }
    }

    fn dir(&self, path: &str) -> DataDir<SimulatedDisk> {
        DataDir::at(self.disk.clone(), path)
    }

    async fn settle(&self) -> Result<Settled<SimulatedDisk>, BootError> {
        let dirs = (0..).map(LogDirIndex::new).zip(["/a", "/b"].map(|path| self.dir(path))).collect();
        settle_all(&self.log_dirs, dirs, &self.runtime, &self.image, NODE).await
    }

    fn id(&self, index: i32) -> PartitionId {
        PartitionId { topic_id: self.topic_id, index }
    }

    async fn make(&self, path: &str, partition: i32) {
        let data_dir = self.dir(path);
        self.disk.create_dir_all(&Path::new(path).join(JOURNAL_DIR)).await.unwrap();
        data_dir.create_partition("a", partition, self.topic_id.get()).await.unwrap();
    }

    async fn journal(&self, path: &str, partitions: &[i32]) {
        let dir = folder(Path::new(path), 0);
        let options = WalOptions { dir, first_file_bytes: 64 << 10, file_bytes: 64 << 10, spares_max: 0, salt_seed: 1 };
        let (wal, _) = Wal::open(self.disk.clone(), self.runtime.clone(), options, |_, _| {}).await.unwrap();
        for &partition in partitions {
            let place = SegmentBytes { topic_id: self.topic_id.get(), partition, base_offset: 0, position: 0 };
            wal.append_committed([&place.encode_head(Piece::Batch)[..], b"x"].concat().into()).await.unwrap();
        }
        wal.close().await.unwrap();
    }

    /// What the broker had when it was last registered, by the number of the id.
    fn register(&mut self, dirs: &[u8]) {
        let registration = BrokerRegistration {
            broker_id: BrokerId::from_wire(NODE).unwrap(),
            broker_epoch: 1,
            incarnation_id: Uuid::from_bytes([8; 16]),
            endpoints: Vec::new(),
            rack: None,
            features: Vec::new(),
            directories: dirs.iter().map(|number| DirectoryId::new(Uuid::from_bytes([*number; 16]))).collect(),
            fenced: false,
        };
        let mut builder = ImageBuilder::new(&self.image);
        builder.replay_batch(&[MetadataRecord::RegisterBroker(registration)]).unwrap();
        self.image = Arc::new(builder.image().clone());
    }

    async fn journals(&self, path: &str) -> Vec<String> {
        let entries = self.disk.list_dir(&Path::new(path).join(JOURNAL_DIR)).await.unwrap_or_default();
        entries.into_iter().map(|entry| entry.name).collect()
    }

    async fn has_segment(&self, path: &str, partition: i32) -> bool {
        let dir = self.dir(path).partition_path("a", partition);
        let entries = self.disk.list_dir(&dir).await.unwrap_or_default();
        entries.iter().any(|entry| entry.name.ends_with(".log"))
    }
}

#[test]
fn each_directory_keeps_its_own() {
    // Rule: a journal concerns the logs of its own directory; one that was gone with the power is made anew where its journal
    // is; each directory has its own clean mark.
    let world = TwoDirs::new();
    world.runtime.clone().block_on(async {
        world.make("/a", 0).await;
        world.make("/b", 2).await;
        world.journal("/a", &[0, 2]).await;
        world.journal("/b", &[0, 2, 3]).await;
        let settled = world.settle().await.unwrap();
        let homes = [(0, 0), (2, 1), (3, 1)].map(|(index, dir)| (world.id(index), LogDirIndex::new(dir)));
        assert_eq!(settled.homes, Homes::from(homes));
        for (path, partition, want) in
            [("/a", 0, true), ("/a", 2, false), ("/b", 0, false), ("/b", 2, true), ("/b", 3, true)]
        {
            assert_eq!(world.has_segment(path, partition).await, want, "{path} {partition}");
        }
        world.dir("/b").write_clean_mark(-1).await.unwrap();
        let settled = world.settle().await.unwrap();
        assert_eq!(settled.online.values().map(|dir| dir.is_clean).collect::<Vec<_>>(), [false, true]);
    });
}

#[test]
fn what_checkpoints_say_of_a_directory_that_is_half_made_is_forgotten() {
    // Rule: a directory that has neither id nor data is younger than what was noted under its name, which was another topic's:
    // it is taken over and begins at 0. One with the topic's id, or without one and with data, keeps what was noted.
    let topic_id = Uuid::from_bytes([7; 16]);
    let known = known_topics(&image(TopicId::from_wire(topic_id).unwrap()), NODE);
    for (has_id, has_data, is_kept) in [(false, false, false), (false, true, true), (true, false, true)] {
        let case = format!("id {has_id}, data {has_data}");
        let runtime = SimulatedRuntime::new(1);
        let disk = SimulatedDisk::new(&runtime);
        let data_dir = DataDir::at(disk.clone(), DATA);
        runtime.block_on(async {
            disk.create_dir_all(&data_dir.partition_path("a", 0)).await.unwrap();
            if has_id {
                data_dir.write_topic_id("a-0", topic_id).await.unwrap();
            }
            if has_data {
                let path = data_dir.partition_path("a", 0).join("00000000000000000000.log");
                walser_storage::checkpoint::replace_file(&disk, &path, b"x").await.unwrap();
            }
            let (ours, other) = (("a".to_owned(), 0), ("b".to_owned(), 0));
            for file_name in [RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, CLEANER_OFFSET_FILE] {
                let offsets = BTreeMap::from([(ours.clone(), 15), (other.clone(), 3)]);
                data_dir.write_checkpoint(file_name, &OffsetCheckpoint { offsets }).await.unwrap();
            }
            let found = data_dir.list_partitions().await.unwrap();
            settle(&data_dir, &found, &known).await.unwrap();
            let found = data_dir.list_partitions().await.unwrap();
            assert_eq!(found[0].topic_id, Some(topic_id), "{case}");
            for file_name in [RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, CLEANER_OFFSET_FILE] {
                let offsets = data_dir.read_checkpoint(file_name).await.unwrap().offsets;
                assert_eq!((offsets.contains_key(&ours), offsets[&other]), (is_kept, 3), "{case}: {file_name}");
            }
        });
    }
}

#[test]
fn a_journal_is_kept_for_logs_that_may_be_elsewhere() {
    // Rule: while a directory is away that the broker had, no log is made, neither of records nor for a mark of damage, and the
    // journal stays, across clean stops, too; other logs get what it has, once. When all directories are there the rest is replayed,
    // and what is then found elsewhere is dropped.
    for is_damaged in [false, true] {
        let mut world = TwoDirs::new();
        world.register(&[1, 2, 3]);
        world.runtime.clone().block_on(async {
            for path in ["/a", "/b"] {
                world.disk.create_dir_all(&Path::new(path).join(JOURNAL_DIR)).await.unwrap();
            }
            world.make("/b", 2).await;
            world.journal("/b", &[2, 0, 3, 3]).await;
            if is_damaged {
                let path = folder(Path::new("/b"), 0);
                let name = &world.disk.list_dir(&path).await.unwrap()[0].name;
                // A byte of the second record, of partition 0, in the third block of its file.
                world.disk.flip_bit(&path.join(name), (2 << 12) + 50, 1).unwrap();
            }
            for is_clean in [false, true, false] {
                if is_clean {
                    world.dir("/b").write_clean_mark(-1).await.unwrap();
                }
                let settled = world.settle().await.unwrap();
                assert_eq!(settled.homes, Homes::from([(world.id(2), LogDirIndex::new(1))]));
                assert!(world.has_segment("/b", 2).await);
                assert_eq!(world.journals("/b").await, ["0.withheld", "0.withheld.logs"], "damage: {is_damaged}");
                // What was replayed once is not again: the log may have gone on.
                let segment = world.dir("/b").partition_path("a", 2).join("00000000000000000000.log");
                world.disk.remove_file(&segment).await.unwrap();
                world.disk.open(&segment, OpenMode::CreateOrOpen).await.unwrap();
                let settled = world.settle().await.unwrap();
                assert_eq!((settled.homes.len(), world.disk.peek(&segment).unwrap().len()), (1, 0));
            }
        });
        world.register(&[1, 2]);
        world.runtime.clone().block_on(async {
            world.make("/a", 0).await;
            let settled = world.settle().await.unwrap();
            let homes = [(0, 0), (2, 1), (3, 1)].map(|(index, dir)| (world.id(index), LogDirIndex::new(dir)));
            assert_eq!(settled.homes, Homes::from(homes));
            assert!(world.has_segment("/b", 3).await && !world.has_segment("/b", 0).await);
            let mark = DamageMark::read(&world.disk, &world.dir("/b").partition_path("a", 3)).await.unwrap();
            assert_eq!(mark.is_some(), is_damaged);
            let left: &[&str] = if is_damaged { &["0.withheld.damaged"] } else { &[] };
            assert_eq!(world.journals("/b").await, left);
            assert_eq!(world.settle().await.unwrap().homes.len(), 3);
        });
    }
}

#[test]
fn what_no_checkpoint_says_is_not_made_up() {
    // Rule: a log that one of the files names has no offset in the others because of that, neither in memory nor on disk.
    let world = TwoDirs::new();
    world.runtime.clone().block_on(async {
        world.make("/a", 0).await;
        world.disk.create_dir_all(Path::new("/b")).await.unwrap();
        let (key, other) = (("a".to_owned(), 0), ("gone".to_owned(), 0));
        let starts = OffsetCheckpoint { offsets: BTreeMap::from([(key.clone(), 3), (other, 4)]) };
        world.dir("/a").write_checkpoint(LOG_START_OFFSET_FILE, &starts).await.unwrap();
        let settled = world.settle().await.unwrap();
        let left = read(&settled.online[&LogDirIndex::new(0)].checkpoints, true);
        assert_eq!(left.log_start_offsets.offsets, BTreeMap::from([(key, 3)]));
        assert_eq!(left.recovery_points, OffsetCheckpoint::default());
        let file = world.dir("/a").read_checkpoint(RECOVERY_POINT_FILE).await.unwrap();
        assert_eq!(file, OffsetCheckpoint::default());
    });
}

#[test]
fn a_directory_that_cannot_be_read_leaves_the_others() {
    // Rule: it is offline, and nothing in it has a home; not so the one with the metadata log, which stops the start.
    let world = TwoDirs::new();
    world.runtime.clone().block_on(async {
        world.make("/a", 0).await;
        // There is no /b.
        let settled = world.settle().await.unwrap();
        assert_eq!(settled.online.keys().copied().collect::<Vec<_>>(), [LogDirIndex::new(0)]);
        assert_eq!(settled.homes, Homes::from([(world.id(0), LogDirIndex::new(0))]));
        assert!(world.log_dirs.dir(LogDirIndex::new(1)).is_offline());
    });
    let world = TwoDirs::new();
    world.runtime.clone().block_on(async {
        world.make("/b", 2).await;
        assert!(matches!(world.settle().await, Err(BootError::DataDir(DataDirError::Disk(_)))));
    });
}

#[test]
fn what_checkpoints_say_of_a_replaced_topic_goes_before_its_directory() {
    // Rule: wherever the power goes while an old topic's directory is settled, as long as the checkpoints speak of it the
    // directory tells whose offsets they are: nobody takes them for those of the topic that has the name now.
    let (old, topic_id) = (Uuid::from_bytes([9; 16]), Uuid::from_bytes([7; 16]));
    let known = known_topics(&image(TopicId::from_wire(topic_id).unwrap()), NODE);
    for cut_at in 1.. {
        let runtime = SimulatedRuntime::new(cut_at);
        let disk = SimulatedDisk::new(&runtime);
        let data_dir = DataDir::at(disk.clone(), DATA);
        runtime.block_on(async {
            data_dir.create_partition("a", 0, old).await.unwrap();
            disk.sync_dir(Path::new("/")).await.unwrap();
            data_dir.write_topic_id("a-0", old).await.unwrap();
            let offsets = BTreeMap::from([(("a".to_owned(), 0), 15), (("b".to_owned(), 0), 3)]);
            data_dir.write_checkpoint(RECOVERY_POINT_FILE, &OffsetCheckpoint { offsets }).await.unwrap();
        });
        disk.cut_power_at(cut_at);
        let work = async {
            let found = data_dir.list_partitions().await.unwrap();
            settle(&data_dir, &found, &known).await.unwrap();
        };
        let is_finished = runtime.block_on_unless(work, || disk.has_lost_power()).is_ok();
        runtime.crash();
        let data_dir = DataDir::at(disk.crash(&runtime), DATA);
        let (found, offsets) = runtime.block_on(async {
            let found = data_dir.list_partitions().await.unwrap();
            (found, data_dir.read_checkpoint(RECOVERY_POINT_FILE).await.unwrap().offsets)
        });
        let is_told = found.iter().any(|dir| dir.dir_name == "a-0" && dir.topic_id == Some(old));
        assert!(is_told || !offsets.contains_key(&("a".to_owned(), 0)), "cut at {cut_at}");
        assert!(offsets.contains_key(&("b".to_owned(), 0)), "cut at {cut_at}: of another topic");
        if is_finished {
            assert!(cut_at > 5 && !is_told, "the work does something");
            break;
        }
    }
}

#[test]
fn what_is_in_a_directory_that_fails_during_the_start_is_made_nowhere_else() {
    // Rule: whenever a directory fails, nothing in it has a home, its journals stay for the next start, and older records of its
    // partitions in the journals of others make none of them anew.
    const EIO: i32 = 5;
    for fails_at in [(Operation::Read, "/a/journal"), (Operation::Remove, "-future")] {
        let mut world = TwoDirs::new();
        world.log_dirs = log_dirs(&["/a", "/b"], "/b");
        world.runtime.clone().block_on(async {
            world.make("/a", 0).await;
            world.make("/b", 2).await;
            world.disk.create_dir_all(Path::new("/a/a-2.00000000000000000000000000000001-future")).await.unwrap();
            world.journal("/a", &[0]).await;
            world.journal("/b", &[0, 2]).await;
            world.disk.fail_nth(fails_at.0, fails_at.1, 1, EIO);
            let settled = world.settle().await.unwrap();
            assert_eq!(settled.online.keys().copied().collect::<Vec<_>>(), [LogDirIndex::new(1)], "{fails_at:?}");
            assert_eq!(settled.homes, Homes::from([(world.id(2), LogDirIndex::new(1))]), "{fails_at:?}");
            assert_eq!(world.journals("/a").await, ["0"], "{fails_at:?}");
            assert!(world.has_segment("/b", 2).await && !world.has_segment("/b", 0).await, "{fails_at:?}");
        });
    }
}
