use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use walser_protocol::types::Uuid;

use super::*;
use crate::checkpoint::{self, OffsetCheckpoint};
use crate::disk::simulated::{Operation, SimulatedDisk};
use crate::disk::{File, OpenMode};
use crate::journal::folder;
use crate::journal::record::{Piece, SegmentBytes};
use crate::runtime::prng::{Prng, seeds};
use crate::runtime::simulated::SimulatedRuntime;
use crate::segment::{LOG_SUFFIX, file_path};
use crate::wal::{Wal, WalOptions};

mod crash;
mod with_logs;

const DATA: &str = "/data";

fn topic_id(number: u8) -> Uuid {
    Uuid::from_bytes([number; 16])
}

/// Topics 1 to 9 are known, with partitions 0 to 9.
fn locate(id: Uuid, partition: i32) -> Option<String> {
    let [number, ..] = *id.as_bytes();
    ((1..10).contains(&number) && partition < 10).then(|| format!("topic{number}"))
}

fn segment_path(topic: u8, base_offset: i64) -> PathBuf {
    file_path(&Path::new(DATA).join(format!("topic{topic}-0")), base_offset, LOG_SUFFIX)
}

fn random(prng: &mut Prng, len: usize) -> Bytes {
    let mut bytes = vec![0; len];
    prng.fill(&mut bytes);
    bytes.into()
}

/// One record as the running side writes it; always of partition 0.
#[derive(Clone)]
struct Record {
    topic: u8,
    base_offset: i64,
    position: u64,
    bytes: Bytes,
}

impl Record {
    fn encode(&self) -> Bytes {
        let Self { topic, base_offset, position, bytes } = self;
        let topic_id = topic_id(*topic);
        let head = SegmentBytes { topic_id, partition: 0, base_offset: *base_offset, position: *position };
        [&head.encode_head(Piece::Batch)[..], bytes].concat().into()
    }
}

struct World {
    runtime: SimulatedRuntime,
    disk: SimulatedDisk,
}

impl World {
    fn new(seed: u64) -> Self {
        let runtime = SimulatedRuntime::new(seed);
        let disk = SimulatedDisk::new(&runtime);
        runtime.block_on(async {
            disk.create_dir_all(&Path::new(DATA).join(JOURNAL_DIR)).await.unwrap();
            for dir in ["/", DATA] {
                disk.sync_dir(Path::new(dir)).await.unwrap();
            }
        });
        Self { runtime, disk }
    }

    fn data_dir(&self) -> DataDir<SimulatedDisk> {
        DataDir::at(self.disk.clone(), DATA)
    }

    /// Writes a journal and leaves it as a kill does.
    fn journal(&self, number: usize, payloads: &[Bytes]) {
        let salt_seed = self.runtime.fork_prng().next_u64();
        let dir = folder(Path::new(DATA), number);
        let options = WalOptions { dir, first_file_bytes: 64 << 10, file_bytes: 128 << 10, spares_max: 1, salt_seed };
        self.runtime.block_on(async {
            let opened = Wal::open(self.disk.clone(), self.runtime.clone(), options, |_, _| {}).await;
            let (wal, _) = opened.unwrap();
            for payload in payloads {
                wal.append_committed(payload.clone()).await.unwrap();
            }
            // Not closed: nothing of a mark.
        });
        self.runtime.crash();
    }

    fn journal_of(&self, number: usize, records: &[Record]) {
        let payloads: Vec<Bytes> = records.iter().map(Record::encode).collect();
        self.journal(number, &payloads);
    }

    fn make_partition(&self, topic: u8) {
        self.runtime.block_on(async {
            let dir = self.data_dir().create_partition(&format!("topic{topic}"), 0, topic_id(topic)).await.unwrap();
            crate::data_dir::partition::sync_names(&self.disk, &dir).await.map_err(DiskError::from).unwrap();
        });
    }

    fn replay(&self) -> Result<Replayed, ReplayError> {
        self.runtime.block_on(replay(&self.data_dir(), &self.runtime, locate, |_| Vec::new()))
    }

    fn discard(&self) {
        self.runtime.block_on(discard(&self.data_dir())).unwrap();
    }

    fn crash(&mut self) {
        self.runtime.crash();
        self.disk = self.disk.crash(&self.runtime);
    }

    /// A segment's bytes, what stands behind `len` is zeros.
    fn assert_segment(&self, topic: u8, base_offset: i64, want: &[u8], context: &str) {
        let path = segment_path(topic, base_offset);
        let found = self.disk.peek(&path).unwrap_or_else(|error| panic!("{context}: {}: {error}", path.display()));
        let (content, behind) = found.split_at(want.len().min(found.len()));
        assert!(content == want, "{context}: {} is not as it should be", path.display());
        assert!(behind.iter().all(|&byte| byte == 0), "{context}: {} has something behind its data", path.display());
    }
}

/// What the file becomes, were it memory.
fn overlay(content: &mut Vec<u8>, position: u64, bytes: &[u8]) {
    let start = usize::try_from(position).unwrap();
    let end = start + bytes.len();
    content.resize(content.len().max(end), 0);
    content[start..end].copy_from_slice(bytes);
}

#[test]
fn segments_get_exactly_the_bytes_of_the_journal() {
    // Rule: whatever the runs, overlaps and edges, a file is what writing the records one by one would have made of it.
    for seed in seeds(60) {
        let mut world = World::new(seed);
        let mut prng = world.runtime.fork_prng();
        world.make_partition(1);
        let path = segment_path(1, 100);
        let mut want = random(&mut prng, 0).to_vec();
        if prng.chance(2, 3) {
            let len = prng.index(30_000);
            want = random(&mut prng, len).to_vec();
            world.disk.plant(&path, 0, &want).unwrap();
        }
        let (mut records, mut end) = (Vec::new(), want.len() as u64);
        for _ in 0..prng.between(1, 40) {
            let len_max = if prng.chance(1, 5) { 20_000 } else { 700 };
            let len = prng.between(1, len_max);
            let position = match prng.below(6) {
                0 => prng.below(60_000),
                1 => end.saturating_sub(prng.below(900)),
                2 => end + prng.below(900),
                _ => end,
            };
            end = position + len;
            let bytes = random(&mut prng, usize::try_from(len).unwrap());
            overlay(&mut want, position, &bytes);
            records.push(Record { topic: 1, base_offset: 100, position, bytes });
        }
        world.journal_of(0, &records);
        let replayed = world.replay().unwrap();
        assert_eq!((replayed.folders, replayed.logs, replayed.records), (1, 1, records.len() as u64), "seed {seed}");
        world.assert_segment(1, 100, &want, &format!("seed {seed}"));
        world.replay().unwrap();
        world.discard();
        world.crash();
        world.assert_segment(1, 100, &want, &format!("seed {seed}, again and after a crash"));
    }
}

#[test]
fn long_runs_are_written_in_pieces() {
    // Rule: a run longer than one write has no seam; and it is written in pieces.
    let world = World::new(1);
    let mut prng = world.runtime.fork_prng();
    let want = random(&mut prng, 3_300_001);
    let step = 100_003;
    let record = |(number, bytes): (u64, &[u8])| {
        let position = number * step as u64;
        Record { topic: 1, base_offset: 0, position, bytes: Bytes::copy_from_slice(bytes) }
    };
    let records: Vec<Record> = (0..).zip(want.chunks(step)).map(record).collect();
    world.journal_of(0, &records);
    let before = world.disk.counts().writes;
    assert_eq!(world.replay().unwrap().bytes, 3_300_001);
    world.assert_segment(1, 0, &want, "long");
    assert_eq!(world.disk.counts().writes - before, 13 + 1, "and the topic id");
}

#[test]
fn what_is_missing_is_made_durably() {
    // Rule: a partition whose directory or file is gone is there after the replay, with its topic id, whatever happens next.
    for (seed, is_made) in seeds(20).zip([true, false].into_iter().cycle()) {
        let mut world = World::new(seed);
        if is_made {
            world.make_partition(1);
        }
        let mut prng = world.runtime.fork_prng();
        let (first, second) = (random(&mut prng, 5000), random(&mut prng, 10));
        let records = [(0, first.clone()), (70, second.clone())].map(|(base_offset, bytes)| Record {
            topic: 1,
            base_offset,
            position: 0,
            bytes,
        });
        world.journal_of(0, &records);
        let made = world.replay().unwrap().made;
        world.discard();
        world.crash();
        let found: Vec<FoundDir> = world.runtime.block_on(world.data_dir().list_partitions()).unwrap();
        let ids: Vec<_> = found.iter().map(|dir| (dir.dir_name.as_str(), dir.topic_id)).collect();
        assert_eq!(ids, [("topic1-0", Some(topic_id(1)))], "seed {seed}");
        assert_eq!(made, if is_made { Vec::new() } else { found }, "seed {seed}");
        world.assert_segment(1, 0, &first, "first");
        world.assert_segment(1, 70, &second, "second");
    }
}

#[test]
fn records_of_finished_segments_are_void() {
    // Rule: below the last segment that has a file nothing is touched, also where its file is gone. Files of compaction do
    // not count as segments.
    let world = World::new(1);
    world.make_partition(1);
    world.disk.plant(&segment_path(1, 0), 0, b"compacted").unwrap();
    world.disk.plant(&segment_path(1, 50), 0, b"abc").unwrap();
    let swap = segment_path(1, 90).with_extension("log.swap");
    world.disk.plant(&swap, 0, b"swap").unwrap();
    let record = |base_offset, position| {
        let bytes = Bytes::from_static(b"xyz");
        Record { topic: 1, base_offset, position, bytes }
    };
    world.journal_of(0, &[record(0, 0), record(20, 0), record(50, 3), record(80, 0), record(0, 3)]);
    let replayed = world.replay().unwrap();
    assert_eq!((replayed.records, replayed.void_records, replayed.bytes), (5, 3, 6));
    assert_eq!(world.disk.peek(&segment_path(1, 0)).unwrap(), b"compacted");
    assert!(world.disk.peek(&segment_path(1, 20)).is_err());
    world.assert_segment(1, 50, b"abcxyz", "the last one");
    world.assert_segment(1, 80, b"xyz", "the one behind it");
    assert_eq!(world.disk.peek(&swap).unwrap(), b"swap");
}

#[test]
fn records_of_unknown_logs_are_dropped() {
    // Rule: a deleted topic does not come back, nor does it stop the start.
    let world = World::new(1);
    let record = |topic| Record { topic, base_offset: 0, position: 0, bytes: Bytes::from_static(b"x") };
    world.journal_of(0, &[record(200), record(1), record(200), record(201)]);
    let replayed = world.replay().unwrap();
    assert_eq!((replayed.records, replayed.dropped_records, replayed.logs), (4, 3, 1));
    let found = world.runtime.block_on(world.data_dir().list_partitions()).unwrap();
    assert_eq!(found.len(), 1);
}

#[test]
fn all_folders_are_replayed_whatever_their_numbers() {
    // Rule: the number of shards may have changed; names that are no numbers are left alone, and an empty folder is fine.
    let world = World::new(1);
    let record = |topic| Record { topic, base_offset: 0, position: 0, bytes: Bytes::from_static(b"x") };
    world.journal_of(0, &[record(1), record(2)]);
    world.journal_of(11, &[record(3)]);
    world.journal_of(2, &[]);
    let aside = Path::new(DATA).join(JOURNAL_DIR).join("3.damaged");
    world.runtime.block_on(world.disk.create_dir_all(&aside)).unwrap();
    let replayed = world.replay().unwrap();
    let want =
        Replayed { folders: 3, logs: 3, records: 3, bytes: 3, made: replayed.made.clone(), ..Replayed::default() };
    assert_eq!(replayed, want);
    for topic in 1..4 {
        world.assert_segment(topic, 0, b"x", "a log");
    }
    world.discard();
    assert_eq!(world.replay().unwrap(), Replayed::default());
    let left = world.runtime.block_on(world.disk.list_dir(&Path::new(DATA).join(JOURNAL_DIR))).unwrap();
    assert_eq!(left.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), ["3.damaged"]);
}

#[test]
fn without_journals_there_is_nothing_to_do() {
    // Rule: a data directory that never had a journal starts.
    let runtime = SimulatedRuntime::new(1);
    let disk = SimulatedDisk::new(&runtime);
    runtime.block_on(async {
        disk.create_dir_all(Path::new(DATA)).await.unwrap();
        let data_dir = DataDir::at(disk.clone(), DATA);
        assert_eq!(replay(&data_dir, &runtime, locate, |_| Vec::new()).await.unwrap(), Replayed::default());
        discard(&data_dir).await.unwrap();
    });
}

#[test]
fn of_a_damaged_journal_the_rest_is_replayed_and_logs_are_marked() {
    // Rule: what can be read is in the segments, what cannot is a hole; without a roll behind it all logs behind the journal
    // are marked, and one that had a batch behind it with its end. Then the folder can be put aside, and what it had counts
    // no more.
    let mut world = World::new(1);
    let mut prng = world.runtime.fork_prng();
    let records: Vec<Record> = (0..5)
        .map(|number| {
            let bytes = random(&mut prng, 3000);
            Record { topic: 1, base_offset: 0, position: number * 3000, bytes }
        })
        .collect();
    world.journal_of(4, &records);
    let dir = folder(Path::new(DATA), 4);
    let entries = world.runtime.block_on(world.disk.list_dir(&dir)).unwrap();
    world.disk.flip_bit(&dir.join(&entries[0].name), 4096 + 500, 1).unwrap();
    let behind = |owner| {
        assert_eq!(owner, JournalOwner { journal: 4, shard_count: None });
        vec![(topic_id(1), 0), (topic_id(2), 3), (topic_id(77), 0)]
    };
    for round in 0..2 {
        let replayed = world.runtime.block_on(replay(&world.data_dir(), &world.runtime, locate, behind)).unwrap();
        let [damaged] = &replayed.damaged[..] else { panic!("{replayed:?}") };
        assert_eq!((damaged.folder.as_path(), replayed.records), (dir.as_path(), 4));
        let lost: Vec<_> = damaged.lost.iter().map(|lost| (lost.position, lost.sequences.clone())).collect();
        assert_eq!(lost, [(4096, 2..3)]);
        let marked: Vec<_> = damaged.marked.iter().map(|(topic, partition, _)| (topic.as_str(), *partition)).collect();
        assert_eq!(marked, [("topic1", 0), ("topic2", 3)]);
        let mut want: Vec<u8> = records.iter().flat_map(|record| record.bytes.to_vec()).collect();
        want[3000..6000].fill(0);
        world.assert_segment(1, 0, &want, "with a hole");
        world.crash();
        let found = world.runtime.block_on(world.data_dir().list_partitions()).unwrap();
        assert_eq!(found.len(), 2, "round {round}");
        assert_eq!(replayed.made.len(), if round == 0 { 2 } else { 0 });
        for (topic, partition) in [("topic1", 0), ("topic2", 3)] {
            let dir = world.data_dir().partition_path(topic, partition);
            let mark = world.runtime.block_on(DamageMark::read(&world.disk, &dir)).unwrap().expect("marked");
            assert_eq!((mark.end_offset, mark.position), (None, 4096));
        }
    }
    let aside = world.runtime.block_on(put_aside(&world.data_dir(), &dir)).unwrap();
    assert_eq!(aside, dir.with_file_name("4.damaged"));
    world.crash();
    assert_eq!(world.replay().unwrap(), Replayed::default());
    world.journal_of(4, &records);
    let aside = world.runtime.block_on(put_aside(&world.data_dir(), &dir)).unwrap();
    assert_eq!(aside, dir.with_file_name("4.damaged-1"));
}

#[test]
fn a_log_that_has_lost_its_first_segment_has_a_file_of_it() {
    // Rule: what is left of a damaged journal does not look like the beginning of a log, however often it is replayed. Where
    // nothing was lost of a log, and where it has a file, what there is is its beginning.
    let mut world = World::new(1);
    let record = |topic, base_offset| Record { topic, base_offset, position: 0, bytes: Bytes::from_static(b"xy") };
    let whole: Vec<Record> = [(1, 0), (1, 100), (2, 100), (3, 100)].map(|(topic, base)| record(topic, base)).into();
    world.make_partition(3);
    world.runtime.block_on(checkpoint::write_file(&world.disk, &segment_path(3, 100), b"")).unwrap();
    let starts = OffsetCheckpoint { offsets: BTreeMap::from([(("topic2".to_owned(), 0), 40)]) };
    world.runtime.block_on(world.data_dir().write_checkpoint(LOG_START_OFFSET_FILE, &starts)).unwrap();
    world.journal_of(4, &whole);
    let dir = folder(Path::new(DATA), 4);
    let entries = world.runtime.block_on(world.disk.list_dir(&dir)).unwrap();
    world.disk.flip_bit(&dir.join(&entries[0].name), 45, 1).unwrap();
    let behind = |_| vec![(topic_id(1), 0), (topic_id(2), 0), (topic_id(3), 0)];
    for _ in 0..2 {
        let replayed = world.runtime.block_on(replay(&world.data_dir(), &world.runtime, locate, behind)).unwrap();
        assert_eq!(replayed.damaged.len(), 1);
        world.crash();
        world.assert_segment(1, 0, b"", "lost");
        world.assert_segment(1, 100, b"xy", "behind what was lost");
        world.assert_segment(2, 40, b"", "where the log is noted to begin");
        world.assert_segment(3, 100, b"xy", "the first that is there");
        assert!(world.disk.peek(&segment_path(3, 0)).is_err());
    }
    let whole = World::new(2);
    whole.journal_of(4, &[record(1, 100)]);
    whole.replay().unwrap();
    assert!(whole.disk.peek(&segment_path(1, 0)).is_err());
}

#[test]
fn a_record_of_a_newer_version_stops_the_start() {
    // Rule: what is not understood is not passed over.
    let world = World::new(1);
    let record = Record { topic: 1, base_offset: 0, position: 0, bytes: Bytes::from_static(b"x") };
    let mut newer = BytesMut::from(&record.encode()[..]);
    newer[0] = 9;
    world.journal(0, &[record.encode(), newer.freeze()]);
    let error = world.replay().unwrap_err();
    let want = "the journal in /data/journal/0 cannot be replayed, because of record 2: it has type 9, which only a newer version knows: start the version that wrote it, or a newer one";
    assert_eq!(error.to_string(), want);
    assert!(world.disk.peek(&segment_path(1, 0)).is_err());
}

#[test]
fn a_torn_tail_is_left_out() {
    // Rule: the end of a commit that nobody was told about counts for nothing, and is counted.
    let world = World::new(1);
    let record = |position| Record { topic: 1, base_offset: 0, position, bytes: Bytes::from_static(b"xy") };
    world.journal_of(0, &[record(0), record(2)]);
    let dir = folder(Path::new(DATA), 0);
    let entries = world.runtime.block_on(world.disk.list_dir(&dir)).unwrap();
    world.disk.flip_bit(&dir.join(&entries[0].name), 4096 + 45, 1).unwrap();
    let replayed = world.replay().unwrap();
    assert_eq!((replayed.records, replayed.torn_tails), (1, 1));
    world.assert_segment(1, 0, b"xy", "the first record");
}

#[test]
fn a_replay_that_fails_can_be_made_again() {
    // Rule: after any failed operation the journals are still there, and another start puts everything right.
    let operations = [Operation::Read, Operation::Write, Operation::SyncData, Operation::Create, Operation::SyncDir];
    for operation in operations {
        for nth in 1..4 {
            let mut world = World::new(nth);
            let record = |topic| Record { topic, base_offset: 0, position: 7, bytes: Bytes::from_static(b"xy") };
            world.journal_of(0, &(1..7).map(record).collect::<Vec<_>>());
            world.disk.fail_nth(operation, "/topic", nth, libc::EIO);
            let outcome = world.replay();
            if operation != Operation::Read {
                assert!(matches!(outcome, Err(ReplayError::Disk(_))), "{operation:?} {nth}: {outcome:?}");
            }
            world.crash();
            world.replay().unwrap();
            for topic in 1..7 {
                world.assert_segment(topic, 0, b"\0\0\0\0\0\0\0xy", &format!("{operation:?} {nth}"));
            }
        }
    }
}

#[test]
fn it_runs_on_a_real_disk() {
    // Rule: on glommio and a real file system, with direct I/O and files that end anywhere, segments get their bytes.
    use crate::disk::glommio::GlommioDisk;
    use crate::runtime::glommio::{GlommioRuntime, block_on};
    let data = std::env::temp_dir().join(format!("walser-replay-{}", std::process::id()));
    let made = data.clone();
    block_on(async move {
        let (disk, runtime) = (GlommioDisk::new(), GlommioRuntime::new());
        disk.create_dir_all(&made.join(JOURNAL_DIR)).await.unwrap();
        let data_dir = DataDir::at(disk.clone(), &made);
        let dir = data_dir.create_partition("topic1", 0, topic_id(1)).await.unwrap();
        let mut prng = Prng::new(5);
        let mut want = random(&mut prng, 9_001).to_vec();
        let path = file_path(&dir, 0, LOG_SUFFIX);
        crate::checkpoint::write_file(&disk, &path, &want).await.unwrap();
        let options = WalOptions {
            dir: folder(&made, 0),
            first_file_bytes: 1 << 20,
            file_bytes: 1 << 20,
            spares_max: 1,
            salt_seed: 3,
        };
        let (wal, _) = Wal::open(disk.clone(), runtime, options, |_, _| {}).await.unwrap();
        for position in [9_001, 12_000, 14_999, 100] {
            let bytes = random(&mut prng, 2999);
            overlay(&mut want, position, &bytes);
            let record = Record { topic: 1, base_offset: 0, position, bytes };
            wal.append_committed(record.encode()).await.unwrap();
        }
        wal.close().await.unwrap();
        let replayed = replay(&data_dir, &runtime, locate, |_| Vec::new()).await.unwrap();
        assert_eq!((replayed.logs, replayed.records), (1, 4));
        discard(&data_dir).await.unwrap();
        let file = disk.open(&path, OpenMode::Read).await.unwrap();
        let found = file.read_at(0, 1 << 20).await.unwrap();
        assert!(found[..want.len()] == want && found[want.len()..].iter().all(|&byte| byte == 0));
    })
    .unwrap();
    remove_tree(&data);
}

#[expect(clippy::disallowed_methods, reason = "cleans up behind a test on a real disk")]
fn remove_tree(path: &Path) {
    std::fs::remove_dir_all(path).unwrap();
}
