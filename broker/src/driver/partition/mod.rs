//! The partitions of one shard: which there are, where each one's log is, who waits for it.
//!
//! Every partition of the image that this broker leads and that [`crate::shard::placement`] gives to this shard has an open
//! log here. Requests come through `shard/service`, one message per shard; what a request changes is changed before its
//! first wait, so requests take effect in the order in which they were dispatched.

pub mod compaction;
pub mod fetch;
pub mod internal;
pub mod journal;
pub mod moves;
pub mod offsets;
pub mod produce;
pub mod reconcile;
mod rest;
mod waiter;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use walser_machine::ids::TopicId;
use walser_protocol::ErrorCode;
use walser_storage::cache::tail::TailBudget;
use walser_storage::data_dir::DataDir;
use walser_storage::disk::Disk;
use walser_storage::log::Log;
use walser_storage::open_files::OpenFiles;
use walser_storage::runtime::channel::Gate;
use walser_storage::runtime::{Instant, Runtime};

use crate::config::topic::{Durability, TopicConfig};
use crate::driver::checkpoints::LogOffsets;
use crate::driver::timer::Timer;
use crate::log_dirs::{LogDirIndex, LogDirs};
use crate::metrics::ShardMetrics;

pub use journal::JournalSettings;
use journal::JournalSlot;
use moves::Moves;
pub use waiter::{Interest, WaitId, Waiter, Waiters};

/// Names a partition wherever it is; a topic made again under an old name is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartitionId {
    pub topic_id: TopicId,
    pub index: i32,
}

/// A partition this broker leads, on the shard that owns it.
pub struct Partition<D: Disk, R: Runtime> {
    pub id: PartitionId,
    pub topic: Arc<str>,
    /// Where its log is.
    pub dir: LogDirIndex,
    pub log: Log<D, R>,
    pub leader_epoch: Cell<i32>,
    config: RefCell<Rc<TopicConfig>>,
    waiters: Rc<Waiters>,
    /// Recovery point, log start and first dirty offset as they were last given to [`Partitions::moved_offsets`].
    noted: Cell<(i64, i64, i64)>,
    /// Compaction has failed in a way that does not pass.
    is_uncleanable: Cell<bool>,
}

impl<D: Disk, R: Runtime> Partition<D, R> {
    pub fn config(&self) -> Rc<TopicConfig> {
        Rc::clone(&self.config.borrow())
    }

    /// Where the log begins, up to where it is durable and compacted.
    pub fn offsets(&self) -> LogOffsets {
        LogOffsets {
            id: self.id,
            dir: self.dir,
            topic: Arc::clone(&self.topic),
            recovery_point: Some(self.log.recovery_point()),
            log_start_offset: self.log.log_start_offset(),
            first_dirty_offset: self.log.first_dirty_offset(),
        }
    }

    /// Exclusive: what consumers may read. With one replica that is what has reached the topic's durability level.
    pub fn high_watermark(&self) -> i64 {
        self.log.committed_end_offset()
    }

    /// Exclusive: what read_committed consumers may read.
    pub fn last_stable_offset(&self) -> i64 {
        let high_watermark = self.high_watermark();
        self.log.first_unstable_offset(high_watermark).map_or(high_watermark, |first| first.min(high_watermark))
    }

    /// Checks the leader epoch a client believes in; -1 believes in none.
    pub fn check_leader_epoch(&self, current_leader_epoch: i32) -> Result<(), ErrorCode> {
        let known = self.leader_epoch.get();
        match current_leader_epoch {
            -1 => Ok(()),
            older if older < known => Err(ErrorCode::FencedLeaderEpoch),
            newer if newer > known => Err(ErrorCode::UnknownLeaderEpoch),
            _ => Ok(()),
        }
    }
}

/// What the partitions of a shard share.
pub struct PartitionSettings<D> {
    /// Those of `log.dirs`, in order, each with a disk of its own.
    pub data_dirs: Vec<DataDir<D>>,
    /// The same, as all shards see them.
    pub log_dirs: Arc<LogDirs>,
    pub node_id: i32,
    /// What the records of one batch may take in memory.
    pub decompressed_bytes_max: usize,
    /// Bytes of recent batches kept in memory.
    pub tail_bytes_max: usize,
    /// Files of segments that are kept open.
    pub open_files_max: usize,
    pub journal: JournalSettings,
    /// Where what is appended is counted.
    pub metrics: Arc<ShardMetrics>,
}

/// All partitions of one shard.
pub struct Partitions<D: Disk, R: Runtime> {
    pub runtime: R,
    /// Deadlines of everything that waits on this shard.
    pub timer: Rc<Timer<R>>,
    pub settings: PartitionSettings<D>,
    by_id: RefCell<BTreeMap<PartitionId, Rc<Partition<D, R>>>>,
    /// Ours, but their logs could not be opened. Without a directory: the one that may have it is not online.
    failed: RefCell<BTreeMap<PartitionId, Option<LogDirIndex>>>,
    budget: Rc<TailBudget>,
    open_files: Rc<OpenFiles<D::File>>,
    /// One for each directory.
    journals: Vec<JournalSlot<D, R>>,
    /// Replicas on their way to other directories.
    moves: Moves,
    /// How slow the journal's commit was that was last spoken of, and a log's own.
    slow_commit_said: Cell<Duration>,
    slow_log_said: Cell<Duration>,
    /// Fetches parked on this shard.
    parked: RefCell<BTreeMap<WaitId, Rc<walser_storage::runtime::channel::Notify>>>,
    /// Opening, closing and deleting of logs.
    tasks: Gate,
    /// When it was last looked whether a log is to be compacted.
    compaction_looked: Cell<Option<Instant>>,
    /// Nothing is waited for any more.
    stopping: Cell<bool>,
}

impl<D: Disk, R: Runtime> Partitions<D, R> {
    pub fn new(runtime: R, settings: PartitionSettings<D>) -> Rc<Self> {
        let budget = TailBudget::new(settings.tail_bytes_max);
        let open_files = OpenFiles::new(settings.open_files_max);
        let journals = settings.data_dirs.iter().map(|_| JournalSlot::default()).collect();
        Rc::new(Self {
            timer: Timer::new(runtime.clone()),
            runtime,
            settings,
            by_id: RefCell::default(),
            failed: RefCell::default(),
            budget,
            open_files,
            journals,
            moves: Moves::default(),
            slow_commit_said: Cell::new(Duration::ZERO),
            slow_log_said: Cell::new(Duration::ZERO),
            parked: RefCell::default(),
            tasks: Gate::new(),
            compaction_looked: Cell::new(None),
            stopping: Cell::new(false),
        })
    }

    /// The partition, where this shard owns it and leads it.
    pub fn find(&self, id: PartitionId) -> Option<Rc<Partition<D, R>>> {
        self.by_id.borrow().get(&id).cloned()
    }

    /// The partition a request names; what is not here has moved or is gone, which one error says.
    pub fn leader(&self, id: PartitionId) -> Result<Rc<Partition<D, R>>, ErrorCode> {
        self.find(id).ok_or_else(|| {
            let is_offline = self.failed.borrow().contains_key(&id);
            if is_offline { ErrorCode::KafkaStorageError } else { ErrorCode::NotLeaderOrFollower }
        })
    }

    /// A directory, with its disk.
    ///
    /// # Panics
    /// When there is no such directory.
    pub fn data_dir(&self, dir: LogDirIndex) -> &DataDir<D> {
        &self.settings.data_dirs[dir.index()]
    }

    /// In ascending order of topic id and index.
    pub fn all(&self) -> Vec<Rc<Partition<D, R>>> {
        self.by_id.borrow().values().cloned().collect()
    }

    pub fn len(&self) -> usize {
        self.by_id.borrow().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets the gauges that are the sum of what the partitions are. It walks them all: for once in a while.
    pub fn publish_gauges(&self) {
        let metrics = &self.settings.metrics;
        let (mut log_bytes, mut offline, mut without_room) = (0, self.failed.borrow().len(), 0_usize);
        let mut slowest: Option<(Duration, &Partition<D, R>)> = None;
        let has_failed = self.failed_journals();
        let by_id = self.by_id.borrow();
        for partition in by_id.values() {
            let log = &partition.log;
            log_bytes += log.size_bytes();
            // Of a log behind a journal that has failed the next append finds out.
            let is_behind = has_failed[partition.dir.index()] && partition.config().durability == Durability::Flushed;
            offline += usize::from(is_behind || log.offline().is_some());
            without_room += usize::from(log.is_unavailable());
            metrics.commits.add(log.take_commit_count());
            let age = log.commit_age();
            if slowest.is_none_or(|(known, _)| age > known) {
                slowest = Some((age, partition));
            }
        }
        metrics.partitions_led.set(by_id.len() as u64);
        metrics.partitions_offline.set(offline as u64);
        metrics.logs_without_room.set(without_room as u64);
        let is_short = self.settings.data_dirs.iter().any(|data_dir| data_dir.disk().is_short());
        metrics.disk_short.set(u64::from(is_short));
        metrics.log_bytes.set(log_bytes);
        metrics.compaction_idle_ms.set(self.compaction_idle_ms().unwrap_or(0));
        self.publish_slow_log(slowest);
        self.publish_journals();
        self.publish_caches();
        self.settings.metrics.fetch_purgatory.set(self.parked.borrow().len() as u64);
    }

    fn publish_caches(&self) {
        let (metrics, blocks) = (&self.settings.metrics, self.budget.blocks());
        metrics.tail_bytes.set(self.budget.used_bytes() as u64);
        metrics.block_cache_bytes.set(blocks.used_bytes() as u64);
        let (hits, misses) = blocks.hits_and_misses();
        metrics.block_cache_hits.set(hits);
        metrics.block_cache_misses.set(misses);
    }

    /// Where logs begin, up to where they are durable and compacted, of those where that has moved since it was last asked and
    /// whose directories a power cut would leave.
    pub fn moved_offsets(&self) -> Vec<LogOffsets> {
        let mut moved = Vec::new();
        for partition in self.by_id.borrow().values().filter(|partition| partition.log.is_dir_durable()) {
            let log = &partition.log;
            let now = (log.recovery_point(), log.log_start_offset(), log.first_dirty_offset());
            if partition.noted.replace(now) != now {
                moved.push(partition.offsets());
            }
        }
        moved
    }

    /// Answers everything that waits with what there is.
    pub fn stop_waiting(&self) {
        self.stopping.set(true);
        self.stop_compacting();
        for partition in self.by_id.borrow().values() {
            partition.waiters.wake_all();
        }
    }
}
