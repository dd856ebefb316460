//! Logs behind one journal, on a disk that fails.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use walser_protocol::records::batch::{BatchMut, BatchView};
use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};
use walser_protocol::types::Uuid;

use super::replay::{Replayed, discard, put_aside, replay, replay_unsettled};
use super::{JOURNAL_DIR, Journal, JournalHandle, JournalOptions, folder};
use crate::cache::tail::TailBudget;
use crate::data_dir::DataDir;
use crate::disk::Disk;
use crate::disk::simulated::{SimulatedDisk, SimulatedDiskOptions};
use crate::error::{AppendError, ReadError};
use crate::log::known_end::{KnownEnd, journaled_through};
use crate::log::tests::read_all;
use crate::log::{Append, Durability, Log, LogConfig, OpenLog, ReadRequest, RecoveryReport};
use crate::open_files::OpenFiles;
use crate::runtime::Runtime;
use crate::runtime::prng::{Prng, seeds};
use crate::runtime::simulated::SimulatedRuntime;
use crate::validate::ValidBatch;

mod behaviour;
mod check;
mod crash;
mod damage;
mod faults;
mod load;
mod moves;
pub(crate) mod records;
mod retention;

const DATA: &str = "/data";
const TOPIC: &str = "topic";
const TOPIC_ID: Uuid = Uuid::from_bytes([7; 16]);
const NOW: i64 = 1_700_000_000_000;
const LEADER_EPOCH: i32 = 3;

type SimulatedLog = Log<SimulatedDisk, SimulatedRuntime>;
type SimulatedJournal = Journal<SimulatedDisk, SimulatedRuntime>;

/// Small enough that everything happens soon.
#[derive(Clone, Copy, Debug)]
struct Shape {
    partitions: i32,
    /// Of each log.
    appenders: usize,
    live_bytes_max: u64,
    staged_bytes_max: usize,
    batch_bytes_max: usize,
    segment_bytes: u32,
    tail_bytes: usize,
    blocks_bytes: usize,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            partitions: 3,
            appenders: 1,
            live_bytes_max: 256 << 10,
            staged_bytes_max: 1 << 20,
            batch_bytes_max: 4 << 10,
            segment_bytes: 1 << 20,
            tail_bytes: 6000,
            blocks_bytes: 0,
        }
    }
}

struct World {
    runtime: SimulatedRuntime,
    disk: SimulatedDisk,
    shape: Shape,
}

/// What is noted of the end of one log.
type Note = Option<Vec<u8>>;

/// What a start makes of the data directory.
struct Running {
    journal: SimulatedJournal,
    logs: Vec<SimulatedLog>,
    reports: Vec<RecoveryReport>,
    replayed: Replayed,
}

impl World {
    fn new(seed: u64, shape: Shape) -> Self {
        let runtime = SimulatedRuntime::new(seed);
        let disk = SimulatedDisk::with_options(&runtime, SimulatedDiskOptions::default());
        let world = Self { runtime, disk, shape };
        world.runtime.block_on(async {
            world.disk.create_dir_all(&Path::new(DATA).join(JOURNAL_DIR)).await.expect("an empty disk");
            for dir in ["/", DATA] {
                world.disk.sync_dir(Path::new(dir)).await.expect("no fault");
            }
        });
        world
    }

    fn data_dir(&self) -> DataDir<SimulatedDisk> {
        DataDir::at(self.disk.clone(), DATA)
    }

    fn config(&self) -> LogConfig {
        LogConfig { segment_bytes: self.shape.segment_bytes, index_interval_bytes: 500, ..LogConfig::default() }
    }

    /// As a broker starts: what the journals hold goes into the segments, then there is a new journal. `points` are the
    /// recovery points, or the ends that a clean stop has left.
    async fn start(&self, is_clean: bool, points: &[Option<i64>]) -> Running {
        self.start_with_notes(is_clean, points, &[]).await
    }

    /// The same with what was noted of the ends of logs.
    async fn start_with_notes(&self, is_clean: bool, points: &[Option<i64>], notes: &[Note]) -> Running {
        let note = |partition: i32| notes.get(usize::try_from(partition).expect("few"))?.as_deref();
        let data_dir = self.data_dir();
        let mut replayed = Replayed::default();
        if !is_clean {
            let locate = |id, _| (id == TOPIC_ID).then(|| TOPIC.to_owned());
            let is_settled =
                |_, partition, sequence| note(partition).is_some_and(|note| sequence <= journaled_through(note));
            let partitions = self.shape.partitions;
            let behind = |_| (0..partitions).map(|partition| (TOPIC_ID, partition)).collect();
            let outcome = replay_unsettled(&data_dir, &self.runtime, locate, is_settled, behind).await;
            replayed = outcome.unwrap_or_else(|error| panic!("{error}"));
            for damaged in &replayed.damaged {
                put_aside(&data_dir, &damaged.folder).await.expect("no fault");
            }
        }
        discard(&data_dir).await.expect("no fault");
        let options = JournalOptions {
            shard_count: 1,
            dir: folder(Path::new(DATA), 0),
            live_bytes_max: self.shape.live_bytes_max,
            staged_bytes_max: self.shape.staged_bytes_max,
            batch_bytes_max: self.shape.batch_bytes_max,
            salt_seed: self.runtime.fork_prng().next_u64(),
        };
        let journal = Journal::open(self.disk.clone(), self.runtime.clone(), options).await.expect("no fault");
        let budget = TailBudget::with_blocks(self.shape.tail_bytes, self.shape.blocks_bytes);
        // Fewer than there are logs.
        let open_files = OpenFiles::new(2);
        let (mut logs, mut reports) = (Vec::new(), Vec::new());
        for partition in 0..self.shape.partitions {
            let dir = data_dir.create_partition(TOPIC, partition, TOPIC_ID).await.expect("no fault");
            let open = OpenLog {
                disk: self.disk.clone(),
                open_files: Rc::clone(&open_files),
                runtime: self.runtime.clone(),
                budget: Rc::clone(&budget),
                journal: Some(JournalHandle { journal: journal.clone(), topic_id: TOPIC_ID, partition }),
                dir,
                config: self.config().into(),
                is_clean,
                recovery_point: points.get(logs.len()).copied().flatten(),
                log_start_offset: None,
                first_dirty_offset: None,
                entries: None,
                defers_sync: false,
                known_end: note(partition).map(|note| Rc::new(KnownEnd::decode(note).expect("a note"))),
                now_ms: NOW,
            };
            let (log, report) = Log::open(open).await.expect("no fault");
            logs.push(log);
            reports.push(report);
        }
        Running { journal, logs, reports, replayed }
    }

    fn start_anew(&self) -> Running {
        self.runtime.block_on(self.start(false, &[]))
    }

    /// The end of everything that runs; what the disk keeps of it is left.
    fn end(&mut self, is_kill: bool) {
        self.runtime.crash();
        self.disk = if is_kill { self.disk.kill(&self.runtime) } else { self.disk.crash(&self.runtime) };
    }

    fn sleep(&self, wait: Duration) {
        self.runtime.block_on(self.runtime.sleep(wait));
    }

    /// The file of a partition's first segment.
    fn segment(&self, partition: i32, base_offset: i64) -> std::path::PathBuf {
        let dir = self.data_dir().partition_path(TOPIC, partition);
        crate::segment::file_path(&dir, base_offset, crate::segment::LOG_SUFFIX)
    }
}

impl Running {
    /// A clean stop; the ends of the logs, and what there is to note of them.
    async fn stop_with_notes(self) -> (Vec<Option<i64>>, Vec<Note>) {
        let (mut ends, mut notes) = (Vec::new(), Vec::new());
        for log in &self.logs {
            let closed = log.close().await.unwrap_or_else(|error| panic!("{}: {error}", log.dir().display()));
            ends.push(Some(closed.log_end_offset));
            notes.push(log.next_note().await.expect("no fault"));
        }
        self.journal.close().await.expect("no fault");
        (ends, notes)
    }
}

/// What was appended to one log, and what it has promised.
#[derive(Clone, Default)]
struct History {
    /// (base offset, last offset, bytes as stored)
    batches: Vec<(i64, i64, Bytes)>,
    /// Exclusive: promised to survive a power cut.
    acknowledged: i64,
    /// Exclusive: promised to survive the process.
    written: i64,
    log_start: i64,
}

impl History {
    fn end_offset(&self) -> i64 {
        self.batches.last().map_or(0, |(_, last, _)| last + 1)
    }

    /// Forgets what lies at or behind `end_offset`, which must be the start of a batch or the end.
    fn cut(&mut self, end_offset: i64, context: &str) {
        self.batches.retain(|(_, last, _)| *last < end_offset);
        assert_eq!(self.end_offset(), end_offset, "{context}: a log ends between batches, and not behind the last");
    }

    fn from(&self, offset: i64) -> &[(i64, i64, Bytes)] {
        let at = self.batches.partition_point(|(_, last, _)| *last < offset);
        &self.batches[at..]
    }
}

/// A batch of `count` records with random values, `value_bytes` each.
fn batch(prng: &mut Prng, count: usize, value_bytes: usize, timestamp: i64) -> ValidBatch {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    let mut value = vec![0; value_bytes];
    for at in 0..count {
        prng.fill(&mut value);
        let record = NewRecord { timestamp: timestamp + at as i64, key: None, value: Some(&value), headers: &[] };
        builder.append(&record).expect("a small record");
    }
    let bytes = builder.build().expect("a small batch");
    ValidBatch::from_trusted(BytesMut::from(&bytes[..])).expect("a batch")
}

/// A batch of one record that has this length.
fn batch_of(prng: &mut Prng, batch_bytes: usize) -> ValidBatch {
    let least = batch(prng, 1, 0, NOW).len();
    // Two lengths inside the record grow with it.
    let sizes = (batch_bytes - least - 6..=batch_bytes - least).rev();
    let found = sizes.map(|size| batch(prng, 1, size, NOW)).find(|batch| batch.len() == batch_bytes);
    found.expect("one size fits")
}

/// Appends at once and notes it; the offset behind the batch.
fn append(log: &SimulatedLog, history: &mut History, batch: ValidBatch) -> Result<i64, AppendError> {
    let mut bytes = BytesMut::from(batch.as_bytes());
    let appended = log.append_as_leader(Append { batch, leader_epoch: LEADER_EPOCH, now_ms: NOW })?;
    let (mut fields, _) = BatchMut::parse(&mut bytes).expect("a batch");
    fields.set_base_offset(appended.base_offset);
    fields.set_partition_leader_epoch(LEADER_EPOCH);
    history.batches.push((appended.base_offset, appended.last_offset, bytes.freeze()));
    Ok(appended.end_offset())
}
