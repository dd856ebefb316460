//! Appending to a shard's journal, and telling logs what has become durable.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::time::Duration;

use bytes::Bytes;
use walser_protocol::types::Uuid;

use super::record::{HEAD_BYTES, Piece, SegmentBytes};
use crate::disk::Disk;
use crate::error::{AppendError, DiskError, LogOffline};
use crate::log::Log;
use crate::runtime::channel::{Gate, Notify};
use crate::runtime::{Instant, Runtime};
use crate::wal::{Wal, WalError, WalOptions};

/// Length of the file a journal begins with: short to make.
const FIRST_FILE_BYTES: u64 = 4 << 20;
/// Files of a journal that is as large as it may become.
const FILES: u64 = 8;
const BLOCK_BYTES: u64 = crate::disk::BLOCK_BYTES as u64;

/// Shape of a journal.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// Of this journal alone, and without records: a start has replayed and discarded what was there.
    pub dir: PathBuf,
    /// Bytes of records that are kept at most; appends wait beyond it.
    pub live_bytes_max: u64,
    /// Bytes of batches that are not in segments yet, of all logs; appends wait beyond it. At most a quarter of what the
    /// journal keeps counts: otherwise one commit could fill it.
    pub staged_bytes_max: usize,
    /// Batches of this length and more go straight into their segment.
    pub batch_bytes_max: usize,
    /// Of the broker: with the number of the journal it says whose logs are behind it.
    pub shard_count: u16,
    /// Random, new at every start.
    pub salt_seed: u64,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    #[error(transparent)]
    Wal(#[from] WalError),
    #[error("{} holds records that were not replayed", dir.display())]
    NotReplayed { dir: PathBuf },
}

/// A shard's journal; clones share it.
pub struct Journal<D: Disk, R: Runtime> {
    pub(super) inner: Rc<Inner<D, R>>,
}

impl<D: Disk, R: Runtime> Clone for Journal<D, R> {
    fn clone(&self) -> Self {
        Self { inner: Rc::clone(&self.inner) }
    }
}

pub(super) struct Inner<D: Disk, R: Runtime> {
    pub wal: Wal<D, R>,
    pub runtime: R,
    pub options: JournalOptions,
    /// Batches whose records are not durable yet, in order.
    waiting: RefCell<VecDeque<Waiting<D, R>>>,
    /// Logs that are looked at from time to time because they need records, and when each was looked at.
    pub visits: RefCell<VecDeque<(Instant, Log<D, R>)>>,
    staged_bytes: Cell<usize>,
    /// Logs to ring when there is room.
    lines: RefCell<Vec<Log<D, R>>>,
    commit_count: Cell<u64>,
    /// How many [`DirectRound`]s there are.
    direct_rounds: Rc<Cell<usize>>,
    /// When the last [`Roll`](super::record::Roll) was appended, and what the record behind it was to be.
    pub rolled: Cell<(Instant, u64)>,
    /// There may be something to let go of, or to write back.
    pub work: Notify,
    pub is_timer_armed: Cell<bool>,
    /// Until then nothing more can be let go of.
    pub no_free_until: Cell<Option<Instant>>,
    /// A log that cannot write holds the oldest records.
    pub is_held: Cell<bool>,
    /// Until then no log can write more of what waits in memory.
    pub no_relief_until: Cell<Option<Instant>>,
    /// Up to here records were let go of; their files go when they can.
    pub freed_through: Cell<u64>,
    /// The last record that takes the place of an older one.
    pub anew_through: Cell<u64>,
    pub is_closing: Cell<bool>,
    pub gate: Gate,
}

struct Waiting<D: Disk, R: Runtime> {
    sequence: u64,
    log: Log<D, R>,
    end_offset: i64,
}

/// A log's round with batches that the journal does not take, until it is dropped.
pub(crate) struct DirectRound(Rc<Cell<usize>>);

impl DirectRound {
    fn begin(count: &Rc<Cell<usize>>) -> Self {
        count.update(|count| count + 1);
        Self(Rc::clone(count))
    }

    /// Whether no other log has one.
    pub(crate) fn is_alone(&self) -> bool {
        self.0.get() == 1
    }
}

impl Drop for DirectRound {
    fn drop(&mut self) {
        self.0.update(|count| count - 1);
    }
}

/// One log's way to the journal.
pub struct JournalHandle<D: Disk, R: Runtime> {
    pub journal: Journal<D, R>,
    pub topic_id: Uuid,
    pub partition: i32,
}

impl<D: Disk, R: Runtime> Journal<D, R> {
    /// Begins a journal.
    ///
    /// # Errors
    /// When a file cannot be made, or when the directory holds records.
    pub async fn open(disk: D, runtime: R, mut options: JournalOptions) -> Result<Self, JournalError> {
        let staged_bytes_max = usize::try_from(options.live_bytes_max / 4).unwrap_or(usize::MAX);
        options.staged_bytes_max = options.staged_bytes_max.min(staged_bytes_max);
        let file_bytes = (options.live_bytes_max / FILES).next_multiple_of(BLOCK_BYTES).max(BLOCK_BYTES);
        let wal_options = WalOptions {
            dir: options.dir.clone(),
            first_file_bytes: FIRST_FILE_BYTES.min(file_bytes),
            file_bytes,
            spares_max: usize::try_from(FILES / 2).expect("a small number"),
            salt_seed: options.salt_seed,
        };
        let (wal, recovered) = Wal::open(disk, runtime.clone(), wal_options, |_, _| {}).await?;
        if recovered.next_sequence != recovered.first_sequence {
            return Err(JournalError::NotReplayed { dir: options.dir });
        }
        let rolled = Cell::new((runtime.now(), wal.next_sequence()));
        let inner = Rc::new(Inner {
            wal,
            rolled,
            runtime,
            options,
            waiting: RefCell::default(),
            visits: RefCell::default(),
            staged_bytes: Cell::new(0),
            lines: RefCell::default(),
            commit_count: Cell::new(0),
            direct_rounds: Rc::default(),
            work: Notify::new(),
            is_timer_armed: Cell::new(false),
            no_free_until: Cell::new(None),
            is_held: Cell::new(false),
            no_relief_until: Cell::new(None),
            freed_through: Cell::new(0),
            anew_through: Cell::new(0),
            is_closing: Cell::new(false),
            gate: Gate::new(),
        });
        let journal: Weak<Inner<D, R>> = Rc::downgrade(&inner);
        inner.wal.set_listener(Rc::new(move || {
            if let Some(inner) = journal.upgrade() {
                inner.advance();
            }
        }));
        let guard = inner.gate.enter().expect("a new gate is open");
        let keeper = Rc::clone(&inner);
        inner.runtime.spawn(async move {
            keeper.keep().await;
            drop(guard);
        });
        Ok(Self { inner })
    }

    /// Ends the journal, whose logs are closed.
    ///
    /// # Errors
    /// When it had failed; what is in it counts at the next start.
    pub async fn close(&self) -> Result<(), WalError> {
        self.inner.is_closing.set(true);
        self.inner.work.notify_one();
        self.inner.gate.close_and_wait().await;
        self.inner.visits.borrow_mut().clear();
        self.inner.wal.close().await
    }

    /// Group commits since this was last asked.
    pub fn take_commit_count(&self) -> u64 {
        self.inner.commit_count.take()
    }

    /// How long the commit that is in flight has taken so far: everybody behind it waits as long.
    pub fn commit_age(&self) -> Duration {
        self.inner.wal.commit_age()
    }

    /// Why nothing is taken any more until a restart.
    pub fn failure(&self) -> Option<DiskError> {
        self.inner.wal.failure().map(|failure| disk_error(&failure))
    }

    /// Nothing is committed until the disk has room.
    pub fn is_stalled(&self) -> bool {
        self.inner.wal.is_stalled()
    }

    /// Bytes of files that hold records.
    pub fn live_bytes(&self) -> u64 {
        self.inner.wal.live_bytes()
    }

    /// Bytes of batches that are not in segments yet.
    pub fn staged_bytes(&self) -> usize {
        self.inner.staged_bytes.get()
    }

    /// Whether an append of this length need not wait; a journal that has failed keeps nobody waiting.
    pub(crate) fn has_room(&self, batch_bytes: usize) -> bool {
        self.inner.has_room(batch_bytes)
    }

    /// Rings the log once when there may be room.
    pub(crate) fn ring_when_there_is_room(&self, log: &Log<D, R>) {
        if log.begin_waiting_for_journal() {
            self.inner.lines.borrow_mut().push(log.clone());
            self.inner.relieve_if_pressed();
        }
    }

    pub(crate) fn note_staged(&self, bytes: usize) {
        self.inner.staged_bytes.update(|staged| staged + bytes);
        self.inner.relieve_if_pressed();
    }

    pub(crate) fn note_left_staging(&self, bytes: usize) {
        self.inner.staged_bytes.update(|staged| staged - bytes);
        self.inner.ring_lines();
        // What was on its way is there, so that others may be wanted.
        self.inner.no_relief_until.set(None);
        self.inner.relieve_if_pressed();
    }

    /// It is full and a log that cannot write keeps it so: until that log is gone, all others commit for themselves.
    pub(crate) fn is_clogged(&self) -> bool {
        let inner = &self.inner;
        inner.is_held.get() && inner.wal.live_bytes() >= inner.options.live_bytes_max
    }

    /// Of the record that was appended last; 0 before the first.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.inner.wal.next_sequence() - 1
    }

    /// This record takes the place of an older one, which is needed until it is durable.
    pub(crate) fn note_anew(&self, sequence: u64) {
        self.inner.anew_through.update(|through| through.max(sequence));
    }

    /// A log begins a round with batches that the journal does not take.
    pub(crate) fn begin_direct(&self) -> DirectRound {
        DirectRound::begin(&self.inner.direct_rounds)
    }

    /// Ready when the record is durable.
    pub(crate) fn committed(&self, sequence: u64) -> impl Future<Output = Result<(), WalError>> + 'static {
        self.inner.wal.committed(sequence)
    }
}

impl<D: Disk, R: Runtime> JournalHandle<D, R> {
    /// Whether the batch goes through the journal if the log lets it; an error when the journal takes nothing.
    pub(crate) fn takes(&self, batch_bytes: usize) -> Result<bool, AppendError> {
        if batch_bytes >= self.journal.inner.options.batch_bytes_max {
            return Ok(false);
        }
        match self.journal.inner.wal.check_append(batch_bytes + HEAD_BYTES) {
            Ok(()) => Ok(true),
            Err(WalError::QueueFull { queued_bytes }) => Err(AppendError::Overloaded { staged_bytes: queued_bytes }),
            Err(error) if error.is_refusal() => Err(AppendError::Unavailable(disk_error(&error))),
            Err(error) => Err(LogOffline::Failed(disk_error(&error)).into()),
        }
    }

    /// Queues a batch that [`Self::takes`] has let pass; its record. `log` hears when everything below `end_offset` is durable.
    pub(crate) fn append_batch(
        &self,
        log: &Log<D, R>,
        base_offset: i64,
        position: u64,
        bytes: &Bytes,
        end_offset: i64,
    ) -> u64 {
        let appended = self.append(Piece::Batch, log, base_offset, position, bytes.clone());
        let sequence = appended.expect("just asked");
        let waiting = Waiting { sequence, log: log.clone(), end_offset };
        self.journal.inner.waiting.borrow_mut().push_back(waiting);
        sequence
    }

    /// Queues bytes of a segment that are no batch the journal lacks.
    pub(crate) fn append_bytes(
        &self,
        log: &Log<D, R>,
        base_offset: i64,
        position: u64,
        bytes: Bytes,
    ) -> Result<u64, WalError> {
        self.append(Piece::Part, log, base_offset, position, bytes)
    }

    fn append(
        &self,
        piece: Piece,
        log: &Log<D, R>,
        base_offset: i64,
        position: u64,
        bytes: Bytes,
    ) -> Result<u64, WalError> {
        let place = SegmentBytes { topic_id: self.topic_id, partition: self.partition, base_offset, position };
        let inner = &self.journal.inner;
        let sequence = inner.wal.append_parts(&place.encode_head(piece), bytes)?;
        if log.begin_visits() {
            inner.visits.borrow_mut().push_back((inner.runtime.now(), log.clone()));
            inner.arm_timer();
        }
        Ok(sequence)
    }
}

impl<D: Disk, R: Runtime> Inner<D, R> {
    fn has_room(&self, batch_bytes: usize) -> bool {
        let staged = self.staged_bytes.get();
        // What is in the file that is written can be let go of once there is another one, for which somebody has to append.
        let is_all_current = self.wal.older_through() == 0;
        let has_room = (staged == 0 || staged + batch_bytes <= self.options.staged_bytes_max)
            && (self.is_held.get() || is_all_current || self.wal.live_bytes() < self.options.live_bytes_max);
        match self.wal.check_append(batch_bytes + HEAD_BYTES) {
            Ok(()) => has_room,
            Err(WalError::QueueFull { .. }) => false,
            Err(_) => true,
        }
    }

    /// So much waits for its segment that it is written before its time.
    pub(super) fn is_pressed(&self) -> bool {
        // What waits for its commit would not get to its segment faster.
        let waits_for_segment = self.staged_bytes.get().saturating_sub(self.wal.queued_bytes());
        let is_wanted = !self.lines.borrow().is_empty();
        waits_for_segment > if is_wanted { 0 } else { self.options.staged_bytes_max / 2 }
    }

    fn relieve_if_pressed(&self) {
        if self.is_pressed() {
            self.work.notify_one();
        }
    }

    pub(super) fn ring_lines(&self) {
        if self.lines.borrow().is_empty() || !self.has_room(0) {
            return;
        }
        let lines = self.lines.take();
        for log in lines {
            log.ring_for_room();
        }
    }

    /// Something has happened to the write-ahead log.
    fn advance(&self) {
        if let Some(failure) = self.wal.failure() {
            self.fail(&WalError::Failed(failure));
            return;
        }
        let through = self.wal.durable_through();
        let mut woken = Vec::new();
        loop {
            let mut waiting = self.waiting.borrow_mut();
            if waiting.front().is_none_or(|next| next.sequence > through) {
                break;
            }
            let next = waiting.pop_front().expect("just seen");
            drop(waiting);
            if next.log.note_journaled(next.end_offset) {
                woken.push(next.log);
            }
        }
        if !woken.is_empty() {
            self.commit_count.update(|count| count + 1);
        }
        for log in woken {
            log.ring_journaled();
        }
        if self.must_free() {
            self.work.notify_one();
        }
        self.ring_lines();
    }

    /// No log behind this journal takes anything more.
    fn fail(&self, error: &WalError) {
        let waiting = self.waiting.take();
        for log in waiting.into_iter().map(|waiting| waiting.log).chain(self.visited()) {
            log.fail(disk_error(error));
        }
        self.ring_lines();
        self.work.notify_one();
    }
}

/// What went wrong with which file.
pub(crate) fn disk_error(error: &WalError) -> DiskError {
    if let WalError::Failed(error) | WalError::Stalled(error) = error {
        return disk_error(error);
    }
    if let WalError::Io { operation, path, source } = error {
        return DiskError { operation, path: path.clone(), source: source.clone() };
    }
    DiskError::new("journal", PathBuf::new(), std::io::Error::other(error.to_string()))
}
