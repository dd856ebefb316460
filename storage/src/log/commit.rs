//! From appended to durable, but for what the journal takes: there it is in `write_back`.
//!
//! One task per log, alive while there is something to do. Each round takes what has gathered, writes it, syncs the files it
//! touched and then publishes the new ends; what is appended meanwhile forms the next round. There is no timer: under load
//! rounds grow, without load a batch is committed alone.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use walser_protocol::records::batch::{BATCH_HEADER_BYTES, BatchHeader};

use crate::checkpoint::sync_dir;
use crate::data_dir::partition::{SyncNamesError, sync_names};
use crate::disk::{Disk, File, OpenMode};
use crate::error::{CommitError, DiskError, LogOffline};
use crate::journal::DirectRound;
use crate::open_files::OpenFile;
use crate::runtime::{Instant, Runtime};
use crate::segment::Segment;
use crate::segment::writer::{BlockWriter, LastBlock};

use super::round::{Part, Round, flush_interval};
use super::{Durability, Health, Log};

/// How long a log that was refused space waits before it tries again.
pub(super) const RETRY_WAIT: Duration = Duration::from_secs(1);

/// What is in the files but not known to be on stable storage.
pub(super) struct Unsynced<F> {
    pub segments: Vec<Rc<Segment<F>>>,
    pub records: i64,
    pub since: Option<Instant>,
    /// The first record of the journal that is needed until then.
    pub pin: Option<u64>,
}

impl<F> Default for Unsynced<F> {
    fn default() -> Self {
        Self { segments: Vec::new(), records: 0, since: None, pin: None }
    }
}

impl<F> Unsynced<F> {
    /// The journal keeps this record, and all behind it, until the sync.
    pub fn need(&mut self, sequence: Option<u64>) {
        self.pin = self.pin.into_iter().chain(sequence).min();
    }
}

/// What a failed step of a round means.
pub(super) enum Failure {
    /// Nothing is lost; the same step is tried again.
    Refused(DiskError),
    /// What was not durable before cannot be trusted any more.
    Lost(DiskError),
}

impl From<DiskError> for Failure {
    /// Of opening and writing. A sync that fails has lost something, whatever its error says.
    fn from(error: DiskError) -> Self {
        if error.is_refusal() { Self::Refused(error) } else { Self::Lost(error) }
    }
}

impl From<SyncNamesError> for Failure {
    fn from(error: SyncNamesError) -> Self {
        match error {
            SyncNamesError::Open(error) => error.into(),
            SyncNamesError::Sync(error) => Self::Lost(error),
        }
    }
}

impl<D: Disk, R: Runtime> Log<D, R> {
    /// Waits until everything below `end_offset` has reached the topic's durability level.
    ///
    /// Fails when the log goes offline, and when the disk is full; in the second case the bytes are kept and written when
    /// there is space. Waiting may be given up at any time.
    pub async fn durable(&self, end_offset: i64) -> Result<(), CommitError> {
        self.wait(|log| log.committed_end_offset() >= end_offset).await
    }

    /// Makes everything appended so far durable in the segments, whatever the topic's level.
    pub async fn flush(&self) -> Result<(), CommitError> {
        let end_offset = {
            let mut state = self.inner.state.borrow_mut();
            state.flush_to = state.log_end_offset;
            state.log_end_offset
        };
        self.start_commit();
        self.wait(|log| log.inner.synced_end_offset.get() >= end_offset).await
    }

    pub(super) async fn wait(&self, is_done: impl Fn(&Self) -> bool) -> Result<(), CommitError> {
        loop {
            let changed = self.inner.progress.notified();
            if is_done(self) {
                return Ok(());
            }
            match &self.inner.state.borrow().health {
                Health::Good => {}
                Health::Unavailable(error) => return Err(CommitError::Unavailable(error.clone())),
                Health::Offline(reason) => return Err(reason.clone().into()),
            }
            changed.await;
        }
    }

    /// Starts the commit task unless it runs.
    pub(super) fn start_commit(&self) {
        let mut state = self.inner.state.borrow_mut();
        if state.is_committing || matches!(state.health, Health::Offline(_)) {
            return;
        }
        let Some(guard) = self.inner.tasks.enter() else { return };
        state.is_committing = true;
        drop(state);
        let log = self.clone();
        self.inner.runtime.spawn(async move {
            let _guard = guard;
            log.commit_until_idle().await;
            log.inner.state.borrow_mut().is_committing = false;
            log.inner.progress.notify_all();
            log.arm_flush_timer();
        });
    }

    async fn commit_until_idle(&self) {
        let mut writer = self.inner.writer.borrow_mut().take().expect("one commit task per log");
        let mut is_busy = false;
        while let Some(round) = self.next_round() {
            self.inner.commit_began.set(Some(self.inner.runtime.now()));
            let committed = self.commit(&mut writer, &round, is_busy).await;
            self.inner.commit_began.set(None);
            is_busy = true;
            match committed {
                Ok(()) => {
                    self.inner.commit_count.update(|count| count + 1);
                    self.set_available();
                    self.start_seal();
                }
                Err(Failure::Refused(error)) => {
                    self.set_unavailable(error);
                    self.ask_again(&round);
                    self.inner.runtime.sleep(RETRY_WAIT).await;
                    if self.inner.state.borrow().is_closing {
                        break;
                    }
                }
                Err(Failure::Lost(error)) => {
                    self.set_offline(LogOffline::Failed(error));
                    break;
                }
            }
        }
        *self.inner.writer.borrow_mut() = Some(writer);
    }

    /// One round. While it writes, a log that `is_busy`, whose last round has just ended, gets more batches: the loose end is
    /// left to the next round then, which spares the journal's write and sync. Not where several logs write at the same
    /// time: they share the journal's commits, and rounds that end later are larger.
    async fn commit(&self, writer: &mut BlockWriter, round: &Round<D::File>, is_busy: bool) -> Result<(), Failure> {
        let direct =
            self.inner.journal.as_ref().filter(|_| round.journals_end).map(|handle| handle.journal.begin_direct());
        let may_leave_end = is_busy && direct.as_ref().is_some_and(DirectRound::is_alone);
        let mut end_record = None;
        for (at, part) in round.parts.iter().enumerate() {
            if self.offline().is_some() {
                // The journal failed meanwhile. The file of another segment would say that what is in front of it is flushed.
                return Ok(());
            }
            let file = self.open_for_writing(&part.segment).await?;
            writer.begin(&part.segment, &file).await?;
            self.cover_tail(writer, part).await?;
            let is_last = at + 1 == round.parts.len();
            let journals_end = round.journals_end && is_last && part.last_block == LastBlock::HeldBack;
            if journals_end && !may_leave_end {
                end_record = self.journal_loose_end(writer, part, 0)?;
            }
            let written = writer.write(&part.segment, &file, &part.batches, part.last_block).await?;
            if let Some(written) = written {
                self.finish_written(part, written, writer.ahead_of(&part.segment));
                self.reserve_ahead(&part.segment, &file);
            }
            if journals_end && may_leave_end && self.inner.state.borrow().direct_end_offset <= part.end_offset {
                end_record = self.journal_loose_end(writer, part, written.unwrap_or(0))?;
            }
        }
        if round.syncs {
            self.sync().await?;
        }
        if let Some(sequence) = end_record {
            self.finish_end(round, sequence).await?;
        }
        if let Some(through) = round.leaving {
            self.journal_anew(writer, through)?;
        }
        if round.gives_back {
            self.give_back(writer).await?;
        }
        Ok(())
    }

    /// Notes that the first `written` batches of a part are in its file, and `ahead_bytes` of the next one.
    fn finish_written(&self, part: &Part<D::File>, written: usize, ahead_bytes: usize) {
        let mut end_offset = self.inner.written_end_offset.get();
        let mut bytes = 0;
        let mut borrowed = self.inner.state.borrow_mut();
        let state = &mut *borrowed;
        if matches!(state.health, Health::Offline(_)) {
            // The journal failed meanwhile: nothing waits any more, and memory has what was readable.
            return;
        }
        for staged in state.staged.drain(..written) {
            assert!(staged.end_offset > end_offset, "writes follow the order of the log");
            end_offset = staged.end_offset;
            bytes += staged.bytes.len();
            state.unsynced.records += staged.records;
            state.unsynced.need(staged.sequence);
        }
        state.staged_bytes -= bytes;
        state.staged_in_file_bytes = ahead_bytes;
        state.unsynced.since.get_or_insert(self.inner.runtime.now());
        if !state.unsynced.segments.iter().any(|known| Rc::ptr_eq(known, &part.segment)) {
            state.unsynced.segments.push(Rc::clone(&part.segment));
        }
        drop(borrowed);
        self.inner.written_end_offset.set(end_offset);
        self.inner.tail.unpin(end_offset);
        self.note_left_staging(bytes);
        self.inner.ring();
    }

    /// Everything written so far, to stable storage.
    async fn sync(&self) -> Result<(), Failure> {
        let segments = self.inner.state.borrow().unsynced.segments.clone();
        // The commit task is the only writer, so this is still the end when the syncs are done.
        let end_offset = self.inner.written_end_offset.get();
        for segment in &segments {
            let file = segment.file(&self.inner.files, OpenMode::ReadWrite).await?;
            file.sync_data().await.map_err(|e| Failure::Lost(DiskError::new("sync", segment.path(), e)))?;
        }
        {
            let mut state = self.inner.state.borrow_mut();
            if matches!(state.health, Health::Offline(_)) {
                // The journal failed meanwhile: from then on nothing is acknowledged.
                return Ok(());
            }
            state.unsynced = Unsynced::default();
        }
        assert!(end_offset >= self.inner.synced_end_offset.get(), "what is durable stays durable");
        self.inner.synced_end_offset.set(end_offset);
        self.inner.durable_end_offset.update(|durable| durable.max(end_offset));
        self.inner.ring();
        Ok(())
    }

    /// The segment's file, made when there is none yet. A new file's name is durable before anything in it is acknowledged,
    /// and the segments before it are: what the journal has of those is void once the file is there, and a start knows that
    /// all of it had been acknowledged.
    async fn open_for_writing(&self, segment: &Segment<D::File>) -> Result<OpenFile<D::File>, Failure> {
        if segment.is_name_durable() {
            let file = segment.file(&self.inner.files, OpenMode::ReadWrite).await?;
            if segment.first_timestamp().is_none() && segment.written_bytes() > 0 {
                learn_first_timestamp(segment, &file).await;
            }
            return Ok(file);
        }
        if !self.inner.state.borrow().unsynced.segments.is_empty() {
            self.sync().await?;
        }
        if !self.inner.state.borrow().is_dir_durable {
            self.sync_names().await?;
        }
        let made = self.make_file(segment).await;
        // A sync that fails has lost something, whatever its error says.
        made.map_err(|error| if segment.has_file() { Failure::Lost(error) } else { error.into() })
    }

    /// Makes the segment's file if there is none, and its name durable.
    pub(super) async fn make_file(&self, segment: &Segment<D::File>) -> Result<OpenFile<D::File>, DiskError> {
        let file = segment.file(&self.inner.files, OpenMode::CreateOrOpen).await?;
        sync_dir(&self.inner.disk, &self.inner.dir).await?;
        segment.note_name_durable();
        Ok(file)
    }

    async fn sync_names(&self) -> Result<(), Failure> {
        sync_names(&self.inner.disk, &self.inner.dir).await?;
        self.inner.state.borrow_mut().is_dir_durable = true;
        self.save_epochs();
        Ok(())
    }

    fn reserve_ahead(&self, segment: &Rc<Segment<D::File>>, file: &D::File) {
        let segment_bytes = self.inner.state.borrow().config.segment_bytes;
        if segment.is_sealed() {
            return;
        }
        // Entered before the plan is made: a plan counts as running until it has been carried out.
        let Some(guard) = self.inner.tasks.enter() else { return };
        let Some(target_bytes) = segment.preallocation().plan(segment.written_bytes(), segment_bytes) else { return };
        let (segment, file) = (Rc::clone(segment), file.clone());
        self.inner.runtime.spawn(async move {
            let _guard = guard;
            segment.preallocation().run(&file, target_bytes).await;
        });
    }

    /// With `flush.ms` what is written is synced in time even when nothing follows it.
    fn arm_flush_timer(&self) {
        let mut state = self.inner.state.borrow_mut();
        let Some(interval) = flush_interval(state.config.flush_ms) else { return };
        // What was acknowledged as flushed waits for no sync of its segment.
        let is_flushed = state.config.durability == Durability::Flushed;
        if is_flushed || state.unsynced.segments.is_empty() || state.is_flush_timer_armed {
            return;
        }
        state.is_flush_timer_armed = true;
        // A task may run at once.
        drop(state);
        let timer = self.inner.runtime.sleep(interval);
        let log = Rc::downgrade(&self.inner);
        self.inner.runtime.spawn(async move {
            timer.await;
            if let Some(inner) = log.upgrade() {
                inner.state.borrow_mut().is_flush_timer_armed = false;
                // Younger writes arm the timer again when the task has looked at their age.
                Self { inner }.start_commit();
            }
        });
    }

    fn set_available(&self) {
        let mut state = self.inner.state.borrow_mut();
        if matches!(state.health, Health::Unavailable(_)) {
            tracing::info!(dir = %self.inner.dir.display(), "the disk takes writes again");
            state.health = Health::Good;
        }
    }

    fn set_unavailable(&self, error: DiskError) {
        if !self.is_unavailable() {
            tracing::warn!(%error, "appends are refused until the disk takes writes again");
        }
        self.inner.state.borrow_mut().health = Health::Unavailable(error);
        self.inner.ring();
    }

    /// For good: until the next start, which recovers what is really there.
    pub(super) fn set_offline(&self, reason: LogOffline) {
        tracing::error!(dir = %self.inner.dir.display(), %reason, "the log takes no more appends");
        let mut state = self.inner.state.borrow_mut();
        // Only the journal has it, so the next start needs it.
        state.held_pin = state.pin();
        state.health = Health::Offline(reason);
        self.note_left_staging(state.staged_bytes);
        state.staged.clear();
        (state.staged_bytes, state.staged_in_file_bytes) = (0, 0);
        drop(state);
        self.inner.ring();
    }
}

/// Only decides when the segment is rolled, so a failure is left to whoever reads that batch.
pub(super) async fn learn_first_timestamp<F: File>(segment: &Segment<F>, file: &F) {
    let read: io::Result<Bytes> = file.read_at(0, BATCH_HEADER_BYTES).await;
    if let Some(header) = read.ok().and_then(|bytes| BatchHeader::read(&bytes)) {
        segment.set_first_timestamp(header.max_timestamp);
    }
}
