//! Moving replicas from one log directory to another, as AlterReplicaLogDirs asks for (KIP-113, KIP-858).
//!
//! ```text
//! 1  <topic>-<partition>.<id>-future is made in the other directory, and the old one says so, durably: a start that
//!    finds both goes on from there
//! 2  the log is copied while it is appended to and read, pass after pass, until little is left
//! 3  appends wait; the rest is copied and flushed, and the checkpoints of the other directory know the log
//! 4  the old directory says, durably, that it is not the replica once that copy has the partition's name
//! 5  the copy gets the name, durably: from here on it is the replica
//! 6  appends go on, into the copy
//! 7  the old directory is removed as a deleted topic's is, and the old checkpoints forget the log
//! ```
//! When 5 fails without doing anything, what 4 wrote is taken back, durably, before appends go on in the old directory. When it
//! fails half way the replica is offline until a start.
//!
//! What a crash leaves, and what a start does that finds both directories (A the old one, B the other), or one of them:
//!
//! | crash after | A | B | A and B | A only | B only |
//! | --- | --- | --- | --- | --- | --- |
//! | 1, 2, 3 | says it is copied | copy | A serves, the move goes on | A serves, and says so no more | offline |
//! | 4 | says it was moved | copy | A serves, the move goes on | offline | offline |
//! | 5, 6 | says it was moved | replica | B serves, A is removed | offline | B serves |
//! | 7 | | replica | B serves | offline | B serves |
//!
//! A copy of which its replica says nothing is of no use, because segments of the replica may have become others since; a start
//! that knows where the replica is removes it.
//!
//! From 3 to 5 nothing is acknowledged, and all is in the files of both: what A's journal has of the log is not needed. Without B it
//! is not replayed into a new directory either (`walser_storage::journal::replay`). B's name is made durable once more before A is
//! removed, because a process that was killed may have renamed and no more. An old directory that could not be removed goes on saying
//! that it was moved, whatever becomes of the new one, until a start removes it or the
//! partition comes back. The rule for any number
//! of directories is in `homes::moved`.
//!
//! Compaction and retention wait while a replica is on its way, as in Kafka. One replica of a shard is moved at a time, in the
//! order in which that was asked for.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use futures_lite::future::or;
use walser_protocol::ErrorCode;
use walser_storage::compaction::throttle::Throttle;
use walser_storage::data_dir::moved::{MovedTo, Stage};
use walser_storage::data_dir::partition::{dir_name, future_name};
use walser_storage::disk::Disk;
use walser_storage::error::{DiskError, OpenError};
use walser_storage::log::{CopiedLog, CopyError, CopyPace, CopyProgress, CopySource, Log, LogCopy, OpenLog};
use walser_storage::runtime::Runtime;
use walser_storage::runtime::channel::{Notify, Semaphore};

use super::offsets::Answer;
use super::reconcile::{set_aside, unused_name};
use super::{Partition, PartitionId, Partitions};
use crate::driver::checkpoints::LogOffsets;
use crate::error::Refusal;
use crate::log_dirs::LogDirIndex;

/// Appends wait while so much is copied, and for some flushes.
const LAST_BYTES_MAX: u64 = 1 << 20;
/// How long they wait at most; then they go on, and it is tried again.
const SWITCH_WAIT: Duration = Duration::from_secs(5);
/// Between two attempts.
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// A replica on its way to another directory.
pub struct Move {
    /// In the order in which moves were asked for.
    number: u64,
    pub to: LogDirIndex,
    /// Of the copy.
    dir_name: String,
    progress: Rc<CopyProgress>,
    /// It is not wanted any more.
    is_cancelled: Cell<bool>,
    /// It cannot be done, until somebody asks again or the next start.
    has_failed: Cell<bool>,
}

/// The moves of a shard.
pub struct Moves {
    by_id: RefCell<BTreeMap<PartitionId, Rc<Move>>>,
    next_number: Cell<u64>,
    /// There may be something to do.
    wanted: Notify,
    /// Held by whoever changes which directory a replica is in, or is to be in.
    changing: Semaphore,
    /// Replicas whose appends wait, or did and are not through yet.
    switches: RefCell<BTreeMap<PartitionId, Rc<Switch>>>,
    /// Directories with replicas that ended half way from one to another.
    unclean: RefCell<BTreeSet<LogDirIndex>>,
}

impl Default for Moves {
    fn default() -> Self {
        Self {
            by_id: RefCell::default(),
            next_number: Cell::new(0),
            wanted: Notify::new(),
            changing: Semaphore::new(1),
            switches: RefCell::default(),
            unclean: RefCell::default(),
        }
    }
}

/// A copy that is to go on, as a start finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundMove {
    pub to: LogDirIndex,
    pub dir_name: String,
}

impl Move {
    /// Of batches.
    pub(super) fn copied_bytes(&self) -> u64 {
        self.progress.bytes.get()
    }

    /// Exclusive.
    pub(super) fn copied_end_offset(&self) -> i64 {
        self.progress.end_offset.get()
    }
}

impl Moves {
    fn find(&self, id: PartitionId) -> Option<Rc<Move>> {
        self.by_id.borrow().get(&id).cloned()
    }

    /// Whether the replica is on its way.
    pub fn is_moving(&self, id: PartitionId) -> bool {
        self.by_id.borrow().contains_key(&id)
    }

    fn add(&self, id: PartitionId, to: LogDirIndex, dir_name: String) {
        let number = self.next_number.replace(self.next_number.get() + 1);
        let next = Move {
            number,
            to,
            dir_name,
            progress: Rc::default(),
            is_cancelled: Cell::new(false),
            has_failed: Cell::new(false),
        };
        self.by_id.borrow_mut().insert(id, Rc::new(next));
        self.wanted.notify_one();
    }

    /// All copies.
    pub(super) fn copies(&self) -> Vec<(PartitionId, Rc<Move>)> {
        self.by_id.borrow().iter().map(|(id, copy)| (*id, Rc::clone(copy))).collect()
    }

    /// Directories that no stop leaves clean.
    pub(super) fn unclean(&self) -> BTreeSet<LogDirIndex> {
        self.unclean.borrow().clone()
    }

    fn next(&self) -> Option<(PartitionId, Rc<Move>)> {
        let by_id = self.by_id.borrow();
        let open = by_id.iter().filter(|(_, next)| !next.has_failed.get());
        open.min_by_key(|(_, next)| next.number).map(|(id, next)| (*id, Rc::clone(next)))
    }

    /// Forgets a move unless another one has its place.
    fn forget(&self, id: PartitionId, done: &Rc<Move>) {
        let mut by_id = self.by_id.borrow_mut();
        if by_id.get(&id).is_some_and(|known| Rc::ptr_eq(known, done)) {
            by_id.remove(&id);
        }
    }

    fn begin_switch(&self, id: PartitionId) -> Switching {
        let switch: Rc<Switch> = Rc::default();
        self.switches.borrow_mut().insert(id, Rc::clone(&switch));
        Switching(switch)
    }

    /// What appends to the replica wait for; `None` when they need not.
    pub(super) fn switch_of(&self, id: PartitionId) -> Option<Rc<Switch>> {
        let mut switches = self.switches.borrow_mut();
        let switch = switches.get(&id)?;
        if switch.is_over.get() && switch.line.borrow().is_empty() {
            switches.remove(&id);
            return None;
        }
        Some(Rc::clone(switch))
    }
}

/// Appends that wait until a replica is in its new directory, or stays where it is.
#[derive(Default)]
pub(super) struct Switch {
    is_over: Cell<bool>,
    line: RefCell<VecDeque<u64>>,
    changed: Notify,
}

/// A place in the line, left when it is dropped.
pub(super) struct SwitchPlace {
    switch: Rc<Switch>,
    number: u64,
}

impl Switch {
    pub(super) fn stand_in_line(self: &Rc<Self>) -> SwitchPlace {
        let mut line = self.line.borrow_mut();
        let number = line.back().map_or(0, |last| last + 1);
        line.push_back(number);
        SwitchPlace { switch: Rc::clone(self), number }
    }

    /// Ready when it is decided where the replica is.
    pub(super) async fn over(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_over.get() {
                return;
            }
            changed.await;
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    fn end(&self) {
        self.is_over.set(true);
        self.changed.notify_all();
    }
}

impl SwitchPlace {
    /// Ready when the switch is over and everybody before has gone.
    pub(super) async fn turn(&self) {
        loop {
            let changed = self.switch.changed.notified();
            if self.switch.is_over.get() && self.switch.line.borrow().front() == Some(&self.number) {
                return;
            }
            changed.await;
        }
    }
}

impl Drop for SwitchPlace {
    fn drop(&mut self) {
        self.switch.line.borrow_mut().retain(|number| *number != self.number);
        self.switch.changed.notify_all();
    }
}

/// Ends a switch whatever becomes of it.
struct Switching(Rc<Switch>);

impl Drop for Switching {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Who keeps what is known of logs, per directory.
pub struct MoveNotes<A, B> {
    /// The log is about to be in its new directory: what is kept there of it is this. True when that is on stable storage.
    pub arrival: A,
    /// The log is in the second directory and no more in the first.
    pub departure: B,
}

/// What a shard lets moves use.
pub struct MoveSettings<'a> {
    pub throttle: &'a Throttle,
    /// No bound.
    pub unbound: &'a Throttle,
}

/// Why a replica stays where it is.
#[derive(Debug, thiserror::Error)]
enum MoveError {
    #[error(transparent)]
    Copy(#[from] CopyError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("its offsets could not be noted in the other directory")]
    NotNoted,
    #[error("the disks take too long")]
    Late,
    /// Asked for something else meanwhile, or the broker stops.
    #[error("given up")]
    GivenUp,
}

impl MoveError {
    fn is_passing(&self) -> bool {
        match self {
            Self::Copy(error) => error.is_passing(),
            Self::Disk(error) => error.is_refusal(),
            Self::NotNoted | Self::Late => true,
            Self::GivenUp => false,
        }
    }
}

impl<D: Disk, R: Runtime> Partitions<D, R> {
    /// Goes on with a move that the last run had begun.
    pub(super) fn resume_move(&self, id: PartitionId, found: &FoundMove) {
        if self.find(id).is_some_and(|partition| partition.dir != found.to) {
            self.moves.add(id, found.to, found.dir_name.clone());
        }
    }

    /// Answers AlterReplicaLogDirs, see [`Self::move_replica`].
    pub async fn move_replicas(&self, moves: Vec<(usize, PartitionId, LogDirIndex)>) -> Vec<Answer<()>> {
        let mut answers = Vec::with_capacity(moves.len());
        for (slot, id, to) in moves {
            let outcome = self.move_replica(id, to).await.map_err(Refusal::of);
            answers.push(Answer { slot, outcome });
        }
        answers
    }

    /// Has a replica moved into the directory `to`; where it is there already a move elsewhere ends. Returns when a start would
    /// go on with it.
    pub async fn move_replica(&self, id: PartitionId, to: LogDirIndex) -> Result<(), ErrorCode> {
        let _change = self.moves.changing.acquire(1).await;
        let Some(partition) = self.find(id) else {
            let is_offline = self.failed.borrow().contains_key(&id);
            return Err(if is_offline { ErrorCode::KafkaStorageError } else { ErrorCode::ReplicaNotAvailable });
        };
        match self.moves.find(id) {
            Some(known) if known.to == to && !known.has_failed.get() => return Ok(()),
            Some(known) => {
                if let Err(error) = self.say(&partition, Stage::Alone).await {
                    tracing::warn!(topic = %partition.topic, partition = id.index, %error, "a move is not given up");
                    return Err(ErrorCode::KafkaStorageError);
                }
                self.give_up_move(&partition, &known).await;
            }
            None => {}
        }
        if partition.dir == to {
            return Ok(());
        }
        // As in Kafka: a copy in a directory that is not there would not be found.
        let is_any_offline = self.settings.log_dirs.iter().any(|(_, dir)| !dir.is_good());
        if is_any_offline || partition.log.offline().is_some() {
            return Err(ErrorCode::KafkaStorageError);
        }
        let mut unique = [0; 16];
        getrandom::fill(&mut unique).map_err(|_| ErrorCode::UnknownServerError)?;
        let name = future_name(&partition.topic, id.index, u128::from_be_bytes(unique));
        let name = name.ok_or(ErrorCode::InvalidTopicException)?;
        let made = self.data_dir(to).create_future(&name, id.topic_id.get()).await;
        let begun = match made.map_err(|error| (to, error)) {
            Ok(()) => {
                let copying_to = MovedTo { directory_id: self.settings.log_dirs.dir(to).id(), copy: name.clone() };
                self.say(&partition, Stage::Copying(&copying_to)).await.map_err(|error| (partition.dir, error))
            }
            Err(error) => Err(error),
        };
        // What was made of the copy the next start removes.
        if let Err((dir, error)) = begun {
            tracing::warn!(topic = %partition.topic, partition = id.index, %error, "replica is not moved");
            if !error.is_refusal() {
                self.settings.log_dirs.dir(dir).fail(&error.to_string());
            }
            return Err(ErrorCode::KafkaStorageError);
        }
        self.moves.add(id, to, name);
        Ok(())
    }

    /// The copy goes as a deleted topic's log does. The replica says nothing of it any more, unless it goes, too.
    pub(super) async fn give_up_move(&self, partition: &Partition<D, R>, given_up: &Rc<Move>) {
        given_up.is_cancelled.set(true);
        self.moves.forget(partition.id, given_up);
        let data_dir = self.data_dir(given_up.to).clone();
        let aside = unused_name(&partition.topic, partition.id);
        match data_dir.rename_partition_dir(&given_up.dir_name, &aside).await {
            Ok(()) => self.remove_later(data_dir, aside),
            Err(error) => {
                let (topic, index) = (&partition.topic, partition.id.index);
                tracing::warn!(%topic, partition = index, %error, "an unfinished copy stays until the next start");
            }
        }
    }

    /// Ends the move of a replica that is deleted.
    pub(super) async fn end_move_of(&self, partition: &Partition<D, R>) {
        if let Some(known) = self.moves.find(partition.id) {
            self.give_up_move(partition, &known).await;
        }
    }

    /// Held while replicas change, so that none is at the moment in which it is in two directories.
    pub(super) async fn hold_moves(&self) -> walser_storage::runtime::channel::Permit {
        self.moves.changing.acquire(1).await
    }

    /// Ready when there may be a replica to move.
    pub async fn move_is_wanted(&self) {
        self.moves.wanted.notified().await;
    }

    /// Moves one replica, or tries to; how long to wait before the next attempt. `None`: there is nothing to do.
    pub async fn move_next(
        &self,
        settings: &MoveSettings<'_>,
        give_way: &impl AsyncFn(),
        notes: &MoveNotes<impl AsyncFn(LogOffsets) -> bool, impl AsyncFn(PartitionId, LogDirIndex, LogDirIndex)>,
    ) -> Option<Duration> {
        let (id, next) = self.moves.next()?;
        let Some(partition) = self.find(id) else {
            self.moves.forget(id, &next);
            return Some(Duration::ZERO);
        };
        let (topic, index) = (&partition.topic, id.index);
        let to = self.settings.log_dirs.dir(next.to).path().display();
        match self.carry_out(&partition, &next, settings, give_way, notes).await {
            Ok(()) => {
                tracing::info!(%topic, partition = index, %to, "replica moved");
                Some(Duration::ZERO)
            }
            Err(MoveError::GivenUp | MoveError::Copy(CopyError::GivenUp)) => Some(Duration::ZERO),
            Err(_) if next.is_cancelled.get() => Some(Duration::ZERO),
            Err(error) if error.is_passing() => {
                tracing::warn!(%topic, partition = index, %to, %error, "replica not moved; tried again");
                Some(RETRY_WAIT)
            }
            Err(error) => {
                tracing::error!(%topic, partition = index, %to, %error,
                    "replica cannot be moved: it stays where it is, until it is asked for again or the next start");
                next.has_failed.set(true);
                Some(Duration::ZERO)
            }
        }
    }

    async fn carry_out(
        &self,
        partition: &Rc<Partition<D, R>>,
        next: &Rc<Move>,
        settings: &MoveSettings<'_>,
        give_way: &impl AsyncFn(),
        notes: &MoveNotes<impl AsyncFn(LogOffsets) -> bool, impl AsyncFn(PartitionId, LogDirIndex, LogDirIndex)>,
    ) -> Result<(), MoveError> {
        self.start_journals([next.to]).await;
        let source = partition.log.begin_copy().await?;
        let data_dir = self.data_dir(next.to);
        let mut copy = source
            .resume(data_dir.disk().clone(), data_dir.path().join(&next.dir_name), Rc::clone(&next.progress))
            .await?;
        let is_over = || next.is_cancelled.get() || self.stopping.get();
        let pace = CopyPace { throttle: settings.throttle, give_way, is_over: &is_over };
        loop {
            source.copy(&mut copy, &pace).await?;
            if partition.log.size_bytes().saturating_sub(copy.bytes()) <= LAST_BYTES_MAX {
                break;
            }
        }
        let _change = self.moves.changing.acquire(1).await;
        if is_over() {
            return Err(MoveError::GivenUp);
        }
        let switching = self.moves.begin_switch(partition.id);
        let late = async {
            self.timer.after(SWITCH_WAIT).await;
            Err(MoveError::Late)
        };
        let copied =
            or(self.copy_rest(partition, next, &source, &mut copy, settings.unbound, &notes.arrival), late).await?;
        let has_moved = self.publish(partition, next, copied).await?;
        self.moves.forget(partition.id, next);
        drop((switching, source));
        if has_moved {
            let aside = set_aside(self.data_dir(partition.dir).clone(), Rc::clone(partition)).await;
            if let Some((data_dir, name)) = aside {
                self.remove_later(data_dir, name);
            }
            (notes.departure)(partition.id, partition.dir, next.to).await;
        } else {
            end_half_way(partition).await;
        }
        Ok(())
    }

    /// Once appends wait: the copy gets everything, durably, and the other directory knows of it.
    async fn copy_rest(
        &self,
        partition: &Partition<D, R>,
        next: &Move,
        source: &CopySource<D, R>,
        copy: &mut LogCopy<D>,
        unbound: &Throttle,
        note_arrival: &impl AsyncFn(LogOffsets) -> bool,
    ) -> Result<CopiedLog, MoveError> {
        // Those that stood in line before.
        partition.log.line_is_over().await;
        let pace = CopyPace { throttle: unbound, give_way: &async || {}, is_over: &|| false };
        let copied = source.finish(copy, &pace).await?;
        let offsets = LogOffsets {
            id: partition.id,
            dir: next.to,
            topic: partition.topic.clone(),
            recovery_point: Some(copied.log_end_offset),
            log_start_offset: copied.log_start_offset,
            first_dirty_offset: copied.first_dirty_offset,
        };
        if note_arrival(offsets).await { Ok(copied) } else { Err(MoveError::NotNoted) }
    }

    /// Gives the copy the partition's name and opens it. False when that fails half way: the replica is offline then, because
    /// only a start can tell which one it is.
    async fn publish(
        &self,
        partition: &Rc<Partition<D, R>>,
        next: &Move,
        copied: CopiedLog,
    ) -> Result<bool, MoveError> {
        let data_dir = self.data_dir(next.to);
        let name = dir_name(&partition.topic, partition.id.index);
        self.make_way(partition, next.to, &name).await?;
        let moved_to = MovedTo { directory_id: self.settings.log_dirs.dir(next.to).id(), copy: next.dir_name.clone() };
        if let Err(error) = self.say(partition, Stage::Moved(&moved_to)).await {
            self.take_back(partition, &moved_to).await;
            return Err(error.into());
        }
        if let Err(error) = data_dir.rename_unsynced(&next.dir_name, &name).await {
            self.take_back(partition, &moved_to).await;
            return Err(error.into());
        }
        let opened = match data_dir.sync().await {
            Ok(()) => self.open_copy(partition, next.to, copied).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let mut by_id = self.by_id.borrow_mut();
        match opened {
            Ok(log) => {
                let moved = partition.moved_to(next.to, log);
                by_id.insert(partition.id, Rc::new(moved));
                drop(by_id);
                partition.waiters.wake_all();
                Ok(true)
            }
            Err(error) => {
                by_id.remove(&partition.id);
                drop(by_id);
                self.failed.borrow_mut().insert(partition.id, Some(next.to));
                self.moves.unclean.borrow_mut().extend([partition.dir, next.to]);
                self.settings.log_dirs.dir(next.to).fail(&error);
                partition.waiters.wake_all();
                Ok(false)
            }
        }
    }

    /// An old directory that could not be removed after an earlier move has the name no more.
    async fn make_way(&self, partition: &Partition<D, R>, to: LogDirIndex, name: &str) -> Result<(), DiskError> {
        let data_dir = self.data_dir(to).clone();
        if data_dir.read_moved_to(name).await?.is_none() {
            return Ok(());
        }
        let aside = unused_name(&partition.topic, partition.id);
        data_dir.rename_partition_dir(name, &aside).await?;
        self.remove_later(data_dir, aside);
        Ok(())
    }

    /// Has the directory of a replica say how far that is on its way.
    async fn say(&self, partition: &Partition<D, R>, stage: Stage<'_>) -> Result<(), DiskError> {
        let name = dir_name(&partition.topic, partition.id.index);
        self.data_dir(partition.dir).write_stage(&name, partition.id.topic_id.get(), stage).await
    }

    /// The copy has not got the name.
    async fn take_back(&self, partition: &Partition<D, R>, copying_to: &MovedTo) {
        if let Err(error) = self.say(partition, Stage::Copying(copying_to)).await {
            let (topic, index) = (&partition.topic, partition.id.index);
            tracing::warn!(%topic, partition = index, %error,
                "a replica that stays says that it was moved: a start needs the other directory, too");
        }
    }

    async fn open_copy(
        &self,
        partition: &Partition<D, R>,
        to: LogDirIndex,
        copied: CopiedLog,
    ) -> Result<Log<D, R>, OpenError> {
        let (id, data_dir) = (partition.id, self.data_dir(to));
        let open = OpenLog {
            disk: data_dir.disk().clone(),
            runtime: self.runtime.clone(),
            open_files: Rc::clone(&self.open_files),
            budget: Rc::clone(&self.budget),
            journal: self.journal_of(id, to),
            dir: data_dir.partition_path(&partition.topic, id.index),
            entries: None,
            known_end: None,
            config: Rc::new(partition.log.config()),
            // It has just been made what a clean stop leaves.
            is_clean: true,
            defers_sync: false,
            recovery_point: Some(copied.log_end_offset),
            log_start_offset: Some(copied.log_start_offset),
            first_dirty_offset: Some(copied.first_dirty_offset),
            now_ms: self.runtime.wall_clock_ms(),
        };
        let (log, _report) = Log::open(open).await?;
        log.take_over(&partition.log);
        Ok(log)
    }
}

/// Nobody uses the old replica any more, and a start may find it to be the only one: it gets everything into its files.
async fn end_half_way<D: Disk, R: Runtime>(old: &Partition<D, R>) {
    match old.log.close().await {
        Ok(_) => old.log.forget_journal(),
        Err(error) => {
            let (topic, index) = (&old.topic, old.id.index);
            tracing::warn!(%topic, partition = index, %error, "the old log of a replica that was moved is not closed");
        }
    }
}

impl<D: Disk, R: Runtime> Partition<D, R> {
    /// The same replica in another directory.
    fn moved_to(&self, dir: LogDirIndex, log: Log<D, R>) -> Self {
        let woken = Rc::clone(&self.waiters);
        log.set_listener(Rc::new(move || woken.wake_all()));
        // They may have changed while it was opened.
        log.set_config(self.log.config());
        log.begin_epoch(self.leader_epoch.get());
        Self {
            id: self.id,
            topic: self.topic.clone(),
            dir,
            log,
            leader_epoch: Cell::new(self.leader_epoch.get()),
            config: RefCell::new(self.config()),
            waiters: Rc::clone(&self.waiters),
            noted: Cell::new((0, 0, 0)),
            is_uncleanable: Cell::new(self.is_uncleanable.get()),
        }
    }
}

#[cfg(test)]
mod tests;
