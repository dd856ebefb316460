//! One partition replica's log: batches by offset, appended by a leader, read by whoever knows up to where it may.
//!
//! A [`Log`] is a cheap handle. [`Log::append_as_leader`] is synchronous: it numbers the batch, updates producers and
//! epochs, keeps the bytes in the tail and puts them before the commit task. [`Log::durable`] is the other half of the
//! seam: it resolves when the batch has reached the topic's durability level. A small batch gets there through the shard's
//! [journal](crate::journal), with those of other logs in one commit, and is put into its segment later (`write_back`). A
//! large one, and every one of a log that has no journal or a level below `flushed`, is taken by the log's commit task
//! (`commit`), which writes what has gathered, syncs once and wakes all that wait. What is to be written when is in `round`.
//!
//! What holds: the ends `written` (can be read from segments) and `synced` (would be there without the journal) are at most
//! `durable`, or the level is below `flushed`; `synced` is at most `written`; all only rise while the log is open, and
//! everything below `durable_end_offset` is there after a crash.

mod append;
mod cold;
mod commit;
mod compact;
mod copy;
mod damage;
pub mod known_end;
mod lookup;
mod proof;
mod read;
mod recovery;
mod rest;
mod retention;
mod room;
mod round;
mod seal;
mod settle;
mod swap;
#[cfg(test)]
pub(crate) mod tests;
mod write_back;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;

use crate::cache::tail::{Tail, TailBudget};
use crate::checkpoint;
use crate::compaction::CompactionConfig;
use crate::disk::{Disk, File};
use crate::error::{DiskError, LogOffline};
use crate::journal::JournalHandle;
use crate::leader_epoch::{EpochEndOffset, EpochEntry, LEADER_EPOCH_FILE, LeaderEpochs};
use crate::open_files::Files;
use crate::producer_state::{ProducerEntry, ProducerStates};
use crate::runtime::channel::{Gate, Notify, Semaphore};
use crate::runtime::{Instant, Runtime};
use crate::segment::writer::BlockWriter;
use crate::segment::{RollLimits, Segment};

pub use append::{Append, Appended, COPY_BELOW_BYTES};
pub use compact::{CompactError, Compacted, PassLimits};
pub use copy::{CopiedLog, CopyError, CopyPace, CopyProgress, CopySource, LogCopy};
pub use damage::{DAMAGE_FILE, DamageMark};
pub use lookup::FoundTimestamp;
pub use read::{ReadBatches, ReadRequest};
pub use recovery::{OpenLog, RecoveryReport};
pub(crate) use recovery::{clean_end, remove_if_there};
pub(crate) use retention::DELETED_SUFFIX;
pub use retention::Retention;
pub use room::Place;
pub(crate) use round::GROUP_BYTES_MAX;
pub use seal::Closed;

/// When an append counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// On stable storage: survives a power cut.
    Flushed,
    /// Handed to the disk: survives the process.
    Written,
    /// In memory: survives nothing.
    Memory,
}

/// What a log needs to know of its topic's configuration. May change while the log is open.
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    pub segment_bytes: u32,
    pub segment_ms: i64,
    pub segment_index_bytes: u32,
    pub index_interval_bytes: u32,
    pub durability: Durability,
    /// Records after which a sync is asked for at [`Durability::Written`] and [`Durability::Memory`].
    pub flush_messages: i64,
    /// Milliseconds after which the same is asked for.
    pub flush_ms: i64,
    /// LogAppendTime instead of CreateTime.
    pub is_log_append_time: bool,
    pub producer_id_expiration_ms: i64,
    /// Whether batches read from disk are checked before they are delivered.
    pub verify_crc_on_read: bool,
    pub retention: Retention,
    pub compaction: CompactionConfig,
}

impl Default for LogConfig {
    /// Kafka's topic defaults, durable at once.
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3600 * 1000,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
            durability: Durability::Flushed,
            flush_messages: i64::MAX,
            flush_ms: i64::MAX,
            is_log_append_time: false,
            producer_id_expiration_ms: 24 * 3600 * 1000,
            verify_crc_on_read: true,
            retention: Retention::default(),
            compaction: CompactionConfig::default(),
        }
    }
}

impl LogConfig {
    fn roll_limits(&self) -> RollLimits {
        RollLimits {
            segment_bytes: self.segment_bytes,
            segment_ms: self.segment_ms,
            segment_index_bytes: self.segment_index_bytes,
        }
    }
}

/// One partition replica's log. Clones are handles of the same log.
pub struct Log<D: Disk, R: Runtime> {
    inner: Rc<Inner<D, R>>,
}

impl<D: Disk, R: Runtime> Clone for Log<D, R> {
    fn clone(&self) -> Self {
        Self { inner: Rc::clone(&self.inner) }
    }
}

struct Inner<D: Disk, R: Runtime> {
    disk: D,
    files: Files<D>,
    runtime: R,
    dir: PathBuf,
    tail: Rc<Tail>,
    readers: RefCell<cold::Readers>,
    state: RefCell<State<D::File>>,
    journal: Option<JournalHandle<D, R>>,
    /// Taken by the commit task while it writes.
    writer: RefCell<Option<BlockWriter>>,
    written_end_offset: Cell<i64>,
    durable_end_offset: Cell<i64>,
    synced_end_offset: Cell<i64>,
    /// The journal is about to ring this log.
    is_to_be_rung: Cell<bool>,
    /// The journal visits this log from time to time.
    is_visited: Cell<bool>,
    /// The journal rings this log when it has room.
    waits_for_journal: Cell<bool>,
    /// Group commits completed and not yet counted by anyone.
    commit_count: Cell<u64>,
    /// Of the round that is written and synced at present.
    commit_began: Cell<Option<Instant>>,
    /// Appends that wait for room, by number; the first in line is the next to be made.
    line: RefCell<VecDeque<u64>>,
    /// Rung when one of the two ends above moves, when somebody leaves the line, and when the log's health changes.
    progress: Notify,
    /// Called then, too.
    listener: RefCell<Option<Rc<dyn Fn()>>>,
    /// Tasks that work on this log's files; closing waits for them.
    tasks: Gate,
    /// Removing and replacing segments, which one task does at a time.
    arranging: OnceCell<Semaphore>,
    /// Writing the leader epochs, likewise.
    saving_epochs: OnceCell<Semaphore>,
}

enum Health {
    Good,
    /// The disk refused the last write, having no space; it is tried again from time to time.
    Unavailable(DiskError),
    Offline(LogOffline),
}

struct State<F> {
    /// Of all logs of a topic the same.
    config: Rc<LogConfig>,
    /// By base offset; never empty. The last one is appended to.
    segments: BTreeMap<i64, Rc<Segment<F>>>,
    log_start_offset: i64,
    log_end_offset: i64,
    epochs: LeaderEpochs,
    epochs_changed: u64,
    /// The latest epoch has no batch yet, and is not in the file.
    has_new_epoch: bool,
    /// As they are in their file, durably.
    saved_epochs: LeaderEpochs,
    producers: ProducerStates,
    staged: VecDeque<Staged<F>>,
    staged_bytes: usize,
    /// Of the first of them, which its last block holds up: what the file has.
    staged_in_file_bytes: usize,
    /// The directory's own name and its topic id are on stable storage. Before that the log has no file of its own.
    is_dir_durable: bool,
    /// What is in the files but not known to be on stable storage.
    unsynced: commit::Unsynced<F>,
    /// Up to here a sync of the segments is wanted whatever the durability level.
    flush_to: i64,
    /// The end of the last batch that the journal did not take.
    direct_end_offset: i64,
    /// The end of the last such batch of which it has the loose end.
    loose_end_offset: i64,
    /// What the journal holds is to be put into segments though it is little.
    is_write_back_due: bool,
    /// The journal wants to let go of its records up to this sequence.
    leaving: Option<u64>,
    /// What had to stay in the journal when the log went offline.
    held_pin: Option<u64>,
    /// When the last batch came.
    appended_at: Option<Instant>,
    /// Segments that take no more batches and whose files are not finished.
    to_seal: VecDeque<Rc<seal::ToSeal<F>>>,
    health: Health,
    is_committing: bool,
    is_sealing: bool,
    is_closing: bool,
    is_flush_timer_armed: bool,
    /// Up to here everything is durable with its indexes.
    recovery_point: i64,
    /// Offsets that `.snapshot` files exist for.
    snapshots: BTreeSet<i64>,
    /// The log end for which all files are as a clean stop leaves them.
    clean_at: Option<i64>,
    /// Everything below has been compacted.
    first_dirty_offset: i64,
    /// No pass of compaction goes on or begins.
    is_compacting_over: bool,
    /// A segment that is taking the place of others.
    swap: Option<Rc<swap::Swap<F>>>,
    /// A segment whose files are on their way out.
    removing: Option<retention::Removing>,
    /// What is noted of the log's end for the next start.
    notes: rest::Notes,
    /// The log is idle and is to give back what it holds for writers.
    is_rest_due: bool,
    /// The log end for which it has.
    rested_at: i64,
    /// Counts replacements of segments: who read in between may have met names that were somebody else's.
    exchanges: u64,
    /// Counts uses of segments, so that the indexes of the least recently used are forgotten first.
    uses: u64,
}

/// A batch that waits to be written, or the end of which does.
struct Staged<F> {
    segment: Rc<Segment<F>>,
    bytes: Bytes,
    /// The offset after the batch.
    end_offset: i64,
    records: i64,
    /// The first record of the journal that its unwritten bytes need.
    sequence: Option<u64>,
}

impl<D: Disk, R: Runtime> Log<D, R> {
    fn from_parts(
        files: Files<D>,
        runtime: R,
        dir: PathBuf,
        budget: Rc<TailBudget>,
        journal: Option<JournalHandle<D, R>>,
        state: State<D::File>,
    ) -> Self {
        let log_end_offset = state.log_end_offset;
        let inner = Inner {
            disk: files.disk.clone(),
            files,
            runtime,
            dir,
            tail: Tail::new(budget, log_end_offset),
            readers: RefCell::default(),
            state: RefCell::new(state),
            journal,
            writer: RefCell::new(Some(BlockWriter::default())),
            written_end_offset: Cell::new(log_end_offset),
            durable_end_offset: Cell::new(log_end_offset),
            synced_end_offset: Cell::new(log_end_offset),
            is_to_be_rung: Cell::new(false),
            is_visited: Cell::new(false),
            waits_for_journal: Cell::new(false),
            commit_count: Cell::new(0),
            commit_began: Cell::new(None),
            line: RefCell::default(),
            progress: Notify::new(),
            listener: RefCell::new(None),
            tasks: Gate::new(),
            saving_epochs: OnceCell::new(),
            arranging: OnceCell::new(),
        };
        Self { inner: Rc::new(inner) }
    }

    /// Has `listener` called whenever [`Self::committed_end_offset`] may have moved, or the log's health has changed. It must
    /// not call back into the log; there is one.
    pub fn set_listener(&self, listener: Rc<dyn Fn()>) {
        *self.inner.listener.borrow_mut() = Some(listener);
    }

    /// The partition's directory.
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    /// The first offset that may be read.
    pub fn log_start_offset(&self) -> i64 {
        self.inner.state.borrow().log_start_offset
    }

    /// The offset the next batch gets.
    pub fn log_end_offset(&self) -> i64 {
        self.inner.state.borrow().log_end_offset
    }

    /// Exclusive: what can be read from segments.
    pub fn written_end_offset(&self) -> i64 {
        self.inner.written_end_offset.get()
    }

    /// Exclusive: what survives a power cut, in a segment or in the journal.
    pub fn durable_end_offset(&self) -> i64 {
        self.inner.durable_end_offset.get()
    }

    /// Group commits completed since this was last asked.
    pub fn take_commit_count(&self) -> u64 {
        self.inner.commit_count.take()
    }

    /// Exclusive: what has reached the topic's durability level. This is what may count towards the high watermark.
    pub fn committed_end_offset(&self) -> i64 {
        let state = self.inner.state.borrow();
        match state.config.durability {
            Durability::Flushed => self.inner.durable_end_offset.get(),
            // What was made durable at a higher level may not be in a segment yet.
            Durability::Written => self.inner.written_end_offset.get().max(self.inner.durable_end_offset.get()),
            Durability::Memory => state.log_end_offset,
        }
    }

    /// Up to here everything is durable with its indexes; for `recovery-point-offset-checkpoint`.
    pub fn recovery_point(&self) -> i64 {
        self.inner.state.borrow().recovery_point
    }

    /// Why the log takes no appends for good; `None` when it does, or will again by itself.
    pub fn offline(&self) -> Option<LogOffline> {
        match &self.inner.state.borrow().health {
            Health::Offline(reason) => Some(reason.clone()),
            Health::Good | Health::Unavailable(_) => None,
        }
    }

    /// The disk had no room for the last write; it is tried again from time to time.
    pub fn is_unavailable(&self) -> bool {
        matches!(self.inner.state.borrow().health, Health::Unavailable(_))
    }

    /// How long the disk has taken so far over what the log writes and syncs at present.
    pub fn commit_age(&self) -> Duration {
        let began = self.inner.commit_began.get();
        began.map_or(Duration::ZERO, |began| self.inner.runtime.now().saturating_since(began))
    }

    /// Bytes of batches in all segments.
    pub fn size_bytes(&self) -> u64 {
        self.inner.state.borrow().segments.values().map(|segment| segment.appended_bytes()).sum()
    }

    pub fn segment_count(&self) -> usize {
        self.inner.state.borrow().segments.len()
    }

    pub fn config(&self) -> LogConfig {
        LogConfig::clone(&self.inner.state.borrow().config)
    }

    /// Takes effect with the next append, read or commit.
    pub fn set_config(&self, config: impl Into<Rc<LogConfig>>) {
        self.inner.state.borrow_mut().config = config.into();
        self.inner.ring();
        // A higher level asks something of what is there already.
        self.start_commit();
    }

    /// The epoch that wrote last, and where it began.
    pub fn latest_epoch(&self) -> Option<EpochEntry> {
        self.inner.state.borrow().epochs.latest()
    }

    /// Answers OffsetForLeaderEpoch.
    pub fn end_offset_for_epoch(&self, leader_epoch: i32) -> EpochEndOffset {
        let state = self.inner.state.borrow();
        state.epochs.end_offset_for(leader_epoch, state.log_end_offset)
    }

    /// The epoch that wrote the batch at `offset`.
    pub fn epoch_at(&self, offset: i64) -> Option<i32> {
        self.inner.state.borrow().epochs.epoch_at(offset)
    }

    /// Notes that this replica leads in `leader_epoch` from the log's end on.
    pub fn begin_epoch(&self, leader_epoch: i32) {
        let mut state = self.inner.state.borrow_mut();
        let log_end_offset = state.log_end_offset;
        // Written with the first batch: an epoch without one says nothing, and after a start thousands of logs have one.
        let is_new = state.epochs.assign(leader_epoch, log_end_offset);
        state.has_new_epoch |= is_new;
    }

    /// Looks at the producers, in ascending order of id.
    pub fn with_producers<T>(&self, look: impl FnOnce(&ProducerStates) -> T) -> T {
        look(&self.inner.state.borrow().producers)
    }

    /// Whether the directory's name and topic id are on stable storage. Only then may offsets of the log be noted under its
    /// topic's name: after a power cut they could be taken for those of another topic with that name. With the first flush
    /// they are.
    pub fn is_dir_durable(&self) -> bool {
        self.inner.state.borrow().is_dir_durable
    }

    /// What is known of one producer.
    pub fn producer(&self, producer_id: i64) -> Option<ProducerEntry> {
        self.inner.state.borrow().producers.producer(producer_id).cloned()
    }

    /// Forgets producers that have not written for long; the count forgotten.
    pub fn expire_producers(&self, now_ms: i64) -> usize {
        let mut state = self.inner.state.borrow_mut();
        let expiration_ms = state.config.producer_id_expiration_ms;
        state.producers.expire(now_ms, expiration_ms)
    }

    /// Where the first transaction begins whose outcome is not settled below `high_watermark`. The last stable offset is
    /// the smaller of this and the high watermark.
    pub fn first_unstable_offset(&self, high_watermark: i64) -> Option<i64> {
        let mut state = self.inner.state.borrow_mut();
        state.producers.handle_high_watermark(high_watermark);
        state.producers.first_unstable_offset()
    }

    /// Writes the leader epochs in a task of their own. They are found again in the batches, so nobody waits for it. Those
    /// of a log that never had a batch are written with its first one.
    fn save_epochs(&self) {
        let version = {
            let mut state = self.inner.state.borrow_mut();
            if !state.is_dir_durable {
                return;
            }
            state.epochs_changed += 1;
            state.epochs_changed
        };
        let Some(guard) = self.inner.tasks.enter() else { return };
        let log = self.clone();
        self.inner.runtime.spawn(async move {
            let _guard = guard;
            let _permit = log.inner.saving_epochs().acquire(1).await;
            // Of several changes in one turn only the last is written.
            if log.inner.state.borrow().epochs_changed != version {
                return;
            }
            if let Err(error) = log.write_epochs().await {
                tracing::warn!(%error, "leader epochs not written");
            }
        });
    }

    /// By one task at a time.
    async fn write_epochs(&self) -> Result<(), DiskError> {
        let epochs = self.inner.state.borrow().epochs.clone();
        let path = self.inner.dir.join(LEADER_EPOCH_FILE);
        checkpoint::replace_file(&self.inner.disk, &path, epochs.encode().as_bytes()).await?;
        self.inner.state.borrow_mut().saved_epochs = epochs;
        Ok(())
    }
}

impl<D: Disk, R: Runtime> Inner<D, R> {
    fn arranging(&self) -> &Semaphore {
        self.arranging.get_or_init(|| Semaphore::new(1))
    }

    fn saving_epochs(&self) -> &Semaphore {
        self.saving_epochs.get_or_init(|| Semaphore::new(1))
    }

    fn ring(&self) {
        self.progress.notify_all();
        let listener = self.listener.borrow().clone();
        if let Some(listener) = listener {
            listener();
        }
    }
}

impl<F: File> State<F> {
    fn active(&self) -> &Rc<Segment<F>> {
        let (_, segment) = self.segments.last_key_value().expect("a log has at least one segment");
        segment
    }
}
