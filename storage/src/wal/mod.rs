//! A write-ahead log: records made durable in groups, kept until they are no longer needed. The metadata log is one.
//!
//! ## Contract
//! * [`Wal::append`] gives the record its sequence and queues it. It is durable when [`Wal::committed`] of that sequence
//!   returns `Ok`, and then it is there after a kill or a power cut, in its place in the order, until
//!   [`Wal::truncate_before`] has let it go. Records that were not committed may be there or not; what is there is a
//!   prefix, and never a record that was not appended. What a start has given to the replay counts as committed.
//! * Group commit has no timer: what arrives while a commit is in flight forms the next one. A commit is one write that
//!   starts at a block, then one flush; one is in flight at a time. No block that holds a committed record is ever written
//!   again while it is needed, but for those of the last commits, which a start writes once more as they are.
//! * A write or a flush that fails poisons the log for ever: every later commit fails, because a later flush that succeeds
//!   proves nothing about the lost one. A restart reads what is really there.
//! * A full disk is not a failure: while there is no file to go on with, or the file's own blocks are refused where the file
//!   system writes them elsewhere, `append` says [`WalError::Stalled`], what is queued waits, and it goes on by itself when
//!   there is room: of the disk, or of a file that is no longer needed.
//! * After a start the replay may also give records that `truncate_before` had let go of; the caller knows by its snapshot
//!   what to skip. It checks that [`Recovered::first_sequence`] leaves no gap behind that snapshot.
//!
//! ## Files
//! A ring of files, each written with zeros before its first use so that a flush carries no metadata, and used again
//! when it is free (see `ring`). The first is small, so that a start is instant; others are made when the current one
//! is half full. The bytes of a record are in `record`, what a start does with what it finds in `recovery`. Every start
//! goes on in a file of a new generation: behind the end of the old one the remains of a torn commit may stand.

mod record;
mod recovery;
mod ring;
mod salvage;

pub use self::recovery::read_all;
pub use self::salvage::{Lost, Salvaged, salvage};

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use self::record::{Header, Kind};
use self::ring::{LiveFile, Ring, Source, WritableFile};
use crate::disk::{BLOCK_BYTES, Disk, File};
use crate::limits::{WAL_COMMIT_BYTES_MAX, WAL_ENCODE_STEP_BYTES, WAL_PAYLOAD_BYTES_MAX, WAL_QUEUE_BYTES_MAX};
use crate::runtime::channel::{Closed, Gate, Notify, OneshotSender, oneshot};
use crate::runtime::{Instant, Runtime};

/// Shape of one log.
#[derive(Clone, Debug)]
pub struct WalOptions {
    /// Only this log's files are in it. Its parent exists and is durable.
    pub dir: PathBuf,
    /// Length of the file made at start, a multiple of 4096.
    pub first_file_bytes: u64,
    /// Length of the others, a multiple of 4096.
    pub file_bytes: u64,
    /// Freed files kept for another use.
    pub spares_max: usize,
    /// Random, new at every start: see `record` on salts.
    pub salt_seed: u64,
}

/// What a start found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Of the oldest record replayed; equals `next_sequence` when there was none.
    pub first_sequence: u64,
    /// What the next append gets.
    pub next_sequence: u64,
    /// Where a commit that nobody was told about ends in the middle.
    pub torn_tail: Option<TornTail>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    pub path: PathBuf,
    pub position: u64,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum WalError {
    #[error(
        "{} is damaged at byte {position}: record {sequence} was acknowledged (everything up to {durable_through} was) and cannot be read",
        path.display()
    )]
    Corrupt { path: PathBuf, position: u64, sequence: u64, durable_through: u64 },
    #[error(
        "{} was written in format {found}, this version knows formats up to {known}: start the version that wrote it, or a newer one",
        path.display()
    )]
    NewerFormat { path: PathBuf, found: u8, known: u8 },
    #[error("{} and {} both claim generation {generation}: one of them is a copy", first.display(), second.display())]
    GenerationTwice { generation: u64, first: PathBuf, second: PathBuf },
    #[error("a record of {len} bytes is above the limit of {WAL_PAYLOAD_BYTES_MAX}")]
    PayloadTooLarge { len: usize },
    #[error("{queued_bytes} bytes wait to be written, no more than {WAL_QUEUE_BYTES_MAX} may")]
    QueueFull { queued_bytes: usize },
    #[error("no file to go on with: {0}")]
    Stalled(Arc<WalError>),
    #[error("the log failed and takes nothing more until a restart: {0}")]
    Failed(Arc<WalError>),
    #[error("the log is closed")]
    Closed,
    #[error("{operation} {}: {source}", path.display())]
    Io { operation: &'static str, path: PathBuf, source: Arc<io::Error> },
}

const DIR_SYNC: &str = "flushing the directory";

impl WalError {
    fn io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { operation, path: path.to_owned(), source: Arc::new(source) }
    }

    fn dir_sync(path: &Path, source: io::Error) -> Self {
        Self::io(DIR_SYNC, path, source)
    }

    /// The same may be taken later; nothing is lost.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Stalled(_) | Self::QueueFull { .. })
    }

    fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full(source))
    }

    fn is_dir_sync(&self) -> bool {
        matches!(self, Self::Io { operation: DIR_SYNC, .. })
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Between two attempts when the disk is full or refuses.
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// Most bytes of a payload that are copied when it is queued.
pub const HEAD_BYTES_MAX: usize = 40;

/// A record's content: a few bytes of its own, and others that are shared with whoever appended them.
struct Payload {
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: usize,
    body: Bytes,
}

impl Payload {
    fn new(head: &[u8], body: Bytes) -> Self {
        let mut payload = Self { head: [0; HEAD_BYTES_MAX], head_bytes: head.len(), body };
        payload.head[..head.len()].copy_from_slice(head);
        payload
    }

    fn head(&self) -> &[u8] {
        &self.head[..self.head_bytes]
    }

    fn len(&self) -> usize {
        self.head_bytes + self.body.len()
    }
}

struct State<F> {
    queue: VecDeque<Payload>,
    queued_bytes: usize,
    /// Of the first record in the queue.
    queue_sequence: u64,
    /// Inclusive.
    durable_through: u64,
    /// By the sequence waited for. Dropping the sender says: look again.
    waiters: BTreeMap<u64, Vec<OneshotSender<()>>>,
    failure: Option<Arc<WalError>>,
    stalled: Option<WalError>,
    /// The disk had no room for the commit that is in flight.
    refused: Option<WalError>,
    closing: bool,
    writer_ended: bool,
    ring: Ring<F>,
}

impl<F> State<F> {
    fn next_sequence(&self) -> u64 {
        self.queue_sequence + self.queue.len() as u64
    }

    /// Why nothing is written at present.
    fn stall(&self) -> Option<&WalError> {
        self.refused.as_ref().or(self.stalled.as_ref().filter(|_| self.ring.wanted_bytes.is_some()))
    }

    fn check_append(&self, payload_bytes: usize) -> Result<(), WalError> {
        if let Some(failure) = &self.failure {
            return Err(WalError::Failed(failure.clone()));
        }
        if self.closing {
            return Err(WalError::Closed);
        }
        if let Some(error) = self.stall() {
            return Err(WalError::Stalled(Arc::new(error.clone())));
        }
        if payload_bytes > WAL_PAYLOAD_BYTES_MAX {
            return Err(WalError::PayloadTooLarge { len: payload_bytes });
        }
        if self.queued_bytes > WAL_QUEUE_BYTES_MAX - WAL_PAYLOAD_BYTES_MAX {
            return Err(WalError::QueueFull { queued_bytes: self.queued_bytes });
        }
        Ok(())
    }
}

struct Inner<D: Disk, R: Runtime> {
    disk: D,
    runtime: R,
    options: WalOptions,
    state: RefCell<State<D::File>>,
    /// Something was queued, or the log closes.
    work: Notify,
    /// The queue has become shorter.
    room: Notify,
    ring_work: Notify,
    /// The next file is there, or cannot be made, or the log failed.
    ring_ready: Notify,
    gate: Gate,
    /// Called when records have become durable, when a file was freed, and when the log has failed.
    listener: RefCell<Option<Rc<dyn Fn()>>>,
    /// Of the commit that is in flight.
    commit_began: Cell<Option<Instant>>,
}

/// A handle to the log; clones share it. When the last one is dropped what is queued is still written.
pub struct Wal<D: Disk, R: Runtime> {
    inner: Rc<Inner<D, R>>,
    _closer: Rc<Closer<D, R>>,
}

impl<D: Disk, R: Runtime> Clone for Wal<D, R> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), _closer: self._closer.clone() }
    }
}

struct Closer<D: Disk, R: Runtime>(Rc<Inner<D, R>>);

impl<D: Disk, R: Runtime> Drop for Closer<D, R> {
    fn drop(&mut self) {
        self.0.begin_close();
    }
}

impl<D: Disk, R: Runtime> Wal<D, R> {
    /// Reads what is there, giving each record to `replay` in order, and goes on behind it. When it fails, what `replay`
    /// was given must not be acted upon.
    pub async fn open(
        disk: D,
        runtime: R,
        options: WalOptions,
        replay: impl FnMut(u64, Bytes),
    ) -> Result<(Self, Recovered), WalError> {
        let block = BLOCK_BYTES as u64;
        assert!(options.first_file_bytes > 0 && options.first_file_bytes.is_multiple_of(block));
        assert!(options.file_bytes > 0 && options.file_bytes.is_multiple_of(block));
        make_dir(&disk, &options.dir).await?;
        let outcome = recovery::recover(&disk, &runtime, &options.dir, replay).await?;
        recovery::settle(&disk, &outcome.unproven).await?;
        let recovery::Outcome { recovered, live, mut empty, mut spares, next_generation, durable_through, .. } =
            outcome;
        let source = match Source::choose(&mut empty, options.first_file_bytes) {
            Source::New { len_bytes } => Source::choose(&mut spares, len_bytes),
            spare @ Source::Spare(_) => spare,
        };
        let identity = ring::identity(options.salt_seed, next_generation);
        let current = ring::prepare(&disk, &runtime, &options.dir, identity, source).await?;
        let without_records =
            empty.into_iter().map(|file| LiveFile { path: file.path, len_bytes: file.len_bytes, last_sequence: 0 });
        let ring = Ring {
            live: without_records.chain(live).collect(),
            current,
            next: None,
            spares,
            next_generation: next_generation + 1,
            wanted_bytes: None,
            truncate_before: 0,
        };
        let state = State {
            queue: VecDeque::new(),
            queued_bytes: 0,
            queue_sequence: recovered.next_sequence,
            durable_through,
            waiters: BTreeMap::new(),
            failure: None,
            stalled: None,
            refused: None,
            closing: false,
            writer_ended: false,
            ring,
        };
        let inner = Rc::new(Inner {
            disk,
            runtime,
            options,
            state: RefCell::new(state),
            work: Notify::new(),
            room: Notify::new(),
            ring_work: Notify::new(),
            ring_ready: Notify::new(),
            gate: Gate::new(),
            listener: RefCell::default(),
            commit_began: Cell::new(None),
        });
        inner.start();
        Ok((Self { _closer: Rc::new(Closer(inner.clone())), inner }, recovered))
    }

    /// Queues a record and returns its sequence. It is durable once [`Self::committed`] says so.
    pub fn append(&self, payload: Bytes) -> Result<u64, WalError> {
        self.append_parts(&[], payload)
    }

    /// The same for a payload of two parts: `head`, of at most [`HEAD_BYTES_MAX`], is copied, `body` is shared.
    pub fn append_parts(&self, head: &[u8], body: Bytes) -> Result<u64, WalError> {
        let payload = Payload::new(head, body);
        let sequence = {
            let mut state = self.inner.state.borrow_mut();
            state.check_append(payload.len())?;
            let sequence = state.next_sequence();
            state.queued_bytes += record::encoded_len(payload.len());
            state.queue.push_back(payload);
            sequence
        };
        self.inner.work.notify_one();
        Ok(sequence)
    }

    /// Whether a payload of this length would be taken now.
    pub fn check_append(&self, payload_bytes: usize) -> Result<(), WalError> {
        self.inner.state.borrow().check_append(payload_bytes)
    }

    /// Has `listener` called when records have become durable, when a file was freed, and when the log has failed.
    /// There is one; it may append.
    pub fn set_listener(&self, listener: Rc<dyn Fn()>) {
        *self.inner.listener.borrow_mut() = Some(listener);
    }

    /// Why nothing is taken any more until a restart.
    pub fn failure(&self) -> Option<Arc<WalError>> {
        self.inner.state.borrow().failure.clone()
    }

    /// Nothing is written until the disk has room.
    pub fn is_stalled(&self) -> bool {
        self.inner.state.borrow().stall().is_some()
    }

    /// The last sequence in files that are not written any more, 0 when there is none. When everything up to it is let go of,
    /// those files are freed.
    pub fn older_through(&self) -> u64 {
        let state = self.inner.state.borrow();
        state.ring.live.iter().map(|file| file.last_sequence).max().unwrap_or(0)
    }

    /// Waits until a record of any length may be queued, or until waiting has no purpose any more.
    pub async fn room(&self) {
        loop {
            let notified = self.inner.room.notified();
            {
                let state = self.inner.state.borrow();
                let full = state.queued_bytes > WAL_QUEUE_BYTES_MAX - WAL_PAYLOAD_BYTES_MAX;
                if !full || state.failure.is_some() || state.closing {
                    return;
                }
            }
            notified.await;
        }
    }

    /// Waits until every record up to `sequence` is durable. It may be dropped at any time.
    pub fn committed(&self, sequence: u64) -> impl Future<Output = Result<(), WalError>> + 'static {
        let inner = self.inner.clone();
        async move {
            loop {
                let receiver = {
                    let mut state = inner.state.borrow_mut();
                    if sequence <= state.durable_through {
                        return Ok(());
                    }
                    if let Some(failure) = &state.failure {
                        return Err(WalError::Failed(failure.clone()));
                    }
                    if state.writer_ended {
                        return Err(WalError::Closed);
                    }
                    let (sender, receiver) = oneshot();
                    state.waiters.entry(sequence).or_default().push(sender);
                    receiver
                };
                match receiver.await {
                    // Nothing is ever sent: the drop says to look at the state again.
                    Ok(()) | Err(Closed) => {}
                }
            }
        }
    }

    /// Appends and waits. Dropped meanwhile, the record may still be written.
    pub async fn append_committed(&self, payload: Bytes) -> Result<u64, WalError> {
        self.room().await;
        let sequence = self.append(payload)?;
        self.committed(sequence).await?;
        Ok(sequence)
    }

    /// Records before `sequence` are no longer needed; their files are freed in the background. The caller has made
    /// durable what replaces them.
    ///
    /// # Panics
    /// When records from `sequence` on are not yet durable and so could not have been replaced.
    pub fn truncate_before(&self, sequence: u64) {
        {
            let mut state = self.inner.state.borrow_mut();
            assert!(sequence <= state.durable_through + 1, "truncated beyond what is durable");
            state.ring.truncate_before = state.ring.truncate_before.max(sequence);
        }
        self.inner.ring_work.notify_one();
    }

    /// What the next append gets.
    pub fn next_sequence(&self) -> u64 {
        self.inner.state.borrow().next_sequence()
    }

    /// The last durable sequence, 0 when there is none.
    pub fn durable_through(&self) -> u64 {
        self.inner.state.borrow().durable_through
    }

    /// How long the commit that is in flight has taken so far.
    pub fn commit_age(&self) -> Duration {
        let began = self.inner.commit_began.get();
        began.map_or(Duration::ZERO, |began| self.inner.runtime.now().saturating_since(began))
    }

    /// Bytes of records that wait for their commit.
    pub fn queued_bytes(&self) -> usize {
        self.inner.state.borrow().queued_bytes
    }

    /// Files that hold records or did, the current one and spare ones not counted.
    pub fn live_files(&self) -> usize {
        self.inner.state.borrow().ring.live.len()
    }

    /// Bytes of the files that hold records, spare ones not counted.
    pub fn live_bytes(&self) -> u64 {
        let state = self.inner.state.borrow();
        let current = state.ring.current.position;
        state.ring.live.iter().map(|file| file.len_bytes).sum::<u64>() + current
    }

    /// Writes what is queued, marks the log as complete and waits until nothing of it runs any more. An error says that
    /// not everything that was queued is durable.
    pub async fn close(&self) -> Result<(), WalError> {
        self.inner.begin_close();
        self.inner.gate.close_and_wait().await;
        let state = self.inner.state.borrow();
        match &state.failure {
            Some(failure) => Err(WalError::Failed(failure.clone())),
            None => Ok(()),
        }
    }
}

async fn make_dir<D: Disk>(disk: &D, dir: &Path) -> Result<(), WalError> {
    disk.create_dir_all(dir).await.map_err(|error| WalError::io("making", dir, error))?;
    match dir.parent() {
        Some(parent) => disk.sync_dir(parent).await.map_err(|error| WalError::dir_sync(parent, error)),
        None => Ok(()),
    }
}

impl<D: Disk, R: Runtime> Inner<D, R> {
    fn start(self: &Rc<Self>) {
        let guard = self.gate.enter().expect("a new gate is open");
        let (writer, writer_guard) = (self.clone(), guard.clone());
        self.runtime.spawn(async move {
            writer.write_groups().await;
            writer.end_writer();
            drop(writer_guard);
        });
        let keeper = self.clone();
        self.runtime.spawn(async move {
            keeper.keep_ring().await;
            drop(guard);
        });
    }

    fn begin_close(&self) {
        self.state.borrow_mut().closing = true;
        self.work.notify_all();
        self.work.notify_one();
        self.room.notify_all();
        self.ring_ready.notify_all();
    }

    fn end_writer(&self) {
        let waiters = {
            let mut state = self.state.borrow_mut();
            state.writer_ended = true;
            std::mem::take(&mut state.waiters)
        };
        drop(waiters);
        self.ring_work.notify_one();
        self.room.notify_all();
    }

    /// Poisons the log.
    fn fail(&self, error: WalError) {
        self.commit_began.set(None);
        let waiters = {
            let mut state = self.state.borrow_mut();
            if state.failure.is_none() {
                tracing::error!(%error, "the write-ahead log failed and takes nothing more until a restart");
                state.failure = Some(Arc::new(error));
            }
            std::mem::take(&mut state.waiters)
        };
        drop(waiters);
        self.work.notify_one();
        self.room.notify_all();
        self.ring_work.notify_one();
        self.ring_ready.notify_all();
        self.call_listener();
    }

    fn call_listener(&self) {
        let listener = self.listener.borrow().clone();
        if let Some(listener) = listener {
            listener();
        }
    }

    /// The task that commits, one group after the other.
    async fn write_groups(&self) {
        loop {
            let notified = self.work.notified();
            if self.state.borrow().failure.is_some() {
                return;
            }
            let (sequence, payloads) = self.take_group();
            let closing = self.state.borrow().closing;
            let outcome = match (payloads.is_empty(), closing) {
                (false, _) => self.commit(sequence, payloads).await,
                (true, true) => {
                    if let Err(error) = self.mark().await {
                        self.fail(error);
                    }
                    return;
                }
                (true, false) => {
                    notified.await;
                    Ok(())
                }
            };
            if let Err(error) = outcome {
                self.fail(error);
            }
        }
    }

    /// What is queued, up to the size of one commit.
    fn take_group(&self) -> (u64, Vec<Payload>) {
        let mut state = self.state.borrow_mut();
        let first_sequence = state.queue_sequence;
        let (mut payloads, mut group_bytes) = (Vec::new(), 0);
        while let Some(payload) = state.queue.front() {
            let bytes = record::encoded_len(payload.len());
            if !payloads.is_empty() && group_bytes + bytes > WAL_COMMIT_BYTES_MAX {
                break;
            }
            group_bytes += bytes;
            payloads.extend(state.queue.pop_front());
            state.queue_sequence += 1;
        }
        state.queued_bytes -= group_bytes;
        drop(state);
        if group_bytes > 0 {
            self.room.notify_all();
        }
        (first_sequence, payloads)
    }

    async fn commit(&self, first_sequence: u64, payloads: Vec<Payload>) -> Result<(), WalError> {
        let record_bytes: usize = payloads.iter().map(|payload| record::encoded_len(payload.len())).sum();
        self.make_room(record_bytes.next_multiple_of(BLOCK_BYTES) as u64).await?;
        let records = payloads.iter().enumerate().map(|(index, payload)| (first_sequence + index as u64, payload));
        self.write(Kind::Data, record_bytes, records).await?;
        let last_sequence = first_sequence + payloads.len() as u64 - 1;
        let (woken, half_full) = {
            let mut state = self.state.borrow_mut();
            state.durable_through = last_sequence;
            let waiting = state.waiters.split_off(&(last_sequence + 1));
            let woken = std::mem::replace(&mut state.waiters, waiting);
            let ring = &state.ring;
            (woken, ring.next.is_none() && ring.current.position >= ring.current.len_bytes / 2)
        };
        drop(woken);
        self.call_listener();
        if half_full || !self.state.borrow().ring.live.is_empty() {
            self.ring_work.notify_one();
        }
        Ok(())
    }

    /// Says on disk that all records are durable, so that damage to the last ones is not taken for a torn commit. Not
    /// worth another file when this one is full.
    async fn mark(&self) -> Result<(), WalError> {
        let next_sequence = {
            let state = self.state.borrow();
            let current = &state.ring.current;
            if current.position == 0 || current.position + BLOCK_BYTES as u64 > current.len_bytes {
                return Ok(());
            }
            state.durable_through + 1
        };
        let nothing = Payload::new(&[], Bytes::new());
        self.write(Kind::Mark, record::encoded_len(0), std::iter::once((next_sequence, &nothing))).await
    }

    /// One write, one flush.
    async fn write<'a>(
        &self,
        kind: Kind,
        record_bytes: usize,
        records: impl Iterator<Item = (u64, &'a Payload)> + Clone,
    ) -> Result<(), WalError> {
        let (file, path, identity, position, durable_through) = {
            let state = self.state.borrow();
            let current = &state.ring.current;
            (current.file.clone(), current.path.clone(), current.identity, current.position, state.durable_through)
        };
        let written_bytes = loop {
            let mut buffer = file.allocate(record_bytes);
            let (mut filled, mut turned_at) = (0, 0);
            for (sequence, payload) in records.clone() {
                let header = Header { kind, sequence, durable_through, payload_len: payload.len() };
                filled += record::encode(&mut buffer[filled..], identity, header, payload.head(), &payload.body);
                if filled - turned_at >= WAL_ENCODE_STEP_BYTES {
                    turned_at = filled;
                    self.runtime.turn().await;
                }
            }
            assert_eq!(filled, record_bytes);
            buffer[filled..].fill(0);
            let written_bytes = buffer.len() as u64;
            self.commit_began.set(Some(self.runtime.now()));
            match file.write_at(buffer, position).await {
                Ok(()) => break written_bytes,
                // Nothing is lost: the same bytes are written to the same place again.
                Err(error) if is_full(&error) => self.wait_refused(WalError::io("writing", &path, error)).await?,
                Err(error) => return Err(WalError::io("writing", &path, error)),
            }
        };
        self.set_refused(None);
        file.sync_data().await.map_err(|error| WalError::io("flushing", &path, error))?;
        self.commit_began.set(None);
        self.state.borrow_mut().ring.current.position += written_bytes;
        Ok(())
    }

    /// Waits before the next attempt to write what the disk had no room for. A close does not wait.
    async fn wait_refused(&self, error: WalError) -> Result<(), WalError> {
        self.commit_began.set(None);
        if self.state.borrow().closing {
            return Err(error);
        }
        if self.disk.make_way().await {
            return Ok(());
        }
        self.set_refused(Some(error));
        self.runtime.sleep(RETRY_WAIT).await;
        Ok(())
    }

    fn set_refused(&self, error: Option<WalError>) {
        let was_refused = std::mem::replace(&mut self.state.borrow_mut().refused, error.clone()).is_some();
        match error {
            Some(error) if !was_refused => tracing::warn!(%error, "the write-ahead log waits for room"),
            None if was_refused => tracing::info!("the write-ahead log is written again"),
            Some(_) | None => return,
        }
        self.call_listener();
    }

    /// Goes on in the next file when the current one has too little room, and waits for it if need be.
    async fn make_room(&self, bytes: u64) -> Result<(), WalError> {
        loop {
            let ready = self.ring_ready.notified();
            {
                let mut state = self.state.borrow_mut();
                if let Some(failure) = &state.failure {
                    return Err(WalError::Failed(failure.clone()));
                }
                if state.fits_current(bytes) || state.rotate(bytes) {
                    state.ring.wanted_bytes = None;
                    return Ok(());
                }
                state.ring.wanted_bytes = Some(bytes);
                // A close does not wait for an operator to make room.
                if let (true, Some(error)) = (state.closing, &state.stalled) {
                    return Err(WalError::Stalled(Arc::new(error.clone())));
                }
            }
            self.ring_work.notify_one();
            ready.await;
        }
    }
}

impl<F> State<F> {
    fn fits_current(&self, bytes: u64) -> bool {
        self.ring.current.position + bytes <= self.ring.current.len_bytes
    }

    /// Whether the next file is there and large enough; then it is the current one.
    fn rotate(&mut self, bytes: u64) -> bool {
        let last_sequence = self.durable_through;
        let ring = &mut self.ring;
        let Some(next) = ring.next.take() else { return false };
        let fits = bytes <= next.len_bytes;
        let WritableFile { path, len_bytes, position, .. } = std::mem::replace(&mut ring.current, next);
        if position > 0 {
            ring.live.push_back(LiveFile { path, len_bytes, last_sequence });
        } else {
            // Without a record it must not become the oldest file, see `recovery`.
            ring.live.push_front(LiveFile { path, len_bytes, last_sequence: 0 });
        }
        fits
    }
}

#[cfg(test)]
mod tests;
