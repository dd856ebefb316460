//! What a log gives back when nobody writes to it, and the notes that let a start after a crash trust what was flushed: see
//! [`known_end`](super::known_end).

use std::rc::Rc;

use crate::disk::{Disk, File, OpenMode};
use crate::error::{DiskError, ReadError};
use crate::runtime::{Instant, Runtime};
use crate::segment::Segment;
use crate::segment::writer::BlockWriter;

use super::commit::Failure;
use super::known_end::KnownEnd;
use super::write_back::IDLE_AFTER;
use super::{Health, Log, State};

/// Notes of one log.
#[derive(Default)]
pub(super) struct Notes {
    /// Made, and what it says is not all flushed yet.
    pending: Option<Box<KnownEnd>>,
    /// The end of the log in the latest one that was made.
    made_at: Option<i64>,
    /// Segment of the latest one that was handed out, and of the oldest one that may be what a start finds.
    handed_out: Option<i64>,
    kept: Option<i64>,
}

impl Notes {
    /// A start has found one, and does without it where it is not of use. Another start may use it, where more is lost by then.
    pub fn found(known: &KnownEnd, is_used: bool) -> Self {
        let base_offset = Some(known.base_offset);
        let made_at = is_used.then_some(known.end_offset);
        Self { pending: None, made_at, handed_out: base_offset, kept: base_offset }
    }

    /// Segments from here on may not be replaced: a note may speak of them, one that is yet to be handed out too.
    pub fn compactable_to(&self) -> i64 {
        let pending = self.pending.as_ref().map(|pending| pending.base_offset);
        self.kept.into_iter().chain(pending).min().unwrap_or(i64::MAX)
    }
}

impl<D: Disk, R: Runtime> Log<D, R> {
    /// Whether [`Self::rest`] has something to do.
    pub fn may_rest(&self, now: Instant) -> bool {
        self.inner.state.borrow().may_rest(now)
    }

    /// Of a log that nobody writes to any more: everything flushed, its file closed and cut to its data, and no memory held
    /// for writers.
    pub async fn rest(&self) {
        {
            let mut state = self.inner.state.borrow_mut();
            state.is_rest_due = true;
            state.flush_to = state.log_end_offset;
        }
        self.start_commit();
        let is_over = |log: &Self| {
            let state = log.inner.state.borrow();
            !state.is_rest_due && !state.is_committing
        };
        if let Err(error) = self.wait(is_over).await {
            tracing::debug!(dir = %self.inner.dir.display(), %error, "an idle log keeps what it holds for writers");
        }
        self.inner.state.borrow_mut().is_rest_due = false;
    }

    /// The commit task's part of it, so that nobody writes meanwhile. Nothing where something came in between.
    pub(super) async fn give_back(&self, writer: &mut BlockWriter) -> Result<(), Failure> {
        let active = {
            let mut state = self.inner.state.borrow_mut();
            state.is_rest_due = false;
            let is_flushed = self.inner.synced_end_offset.get() == state.log_end_offset;
            let active = Rc::clone(state.active());
            if !is_flushed || !active.is_fully_written() || !active.is_name_durable() || active.is_sealed() {
                return Ok(());
            }
            active
        };
        while active.preallocation().is_running() {
            self.inner.runtime.turn().await;
        }
        let path = active.path();
        let failed = |operation| move |e| Failure::Lost(DiskError::new(operation, path, e));
        let file = active.file(&self.inner.files, OpenMode::ReadWrite).await?;
        file.truncate(active.written_bytes()).await.map_err(failed("truncate"))?;
        file.sync_data().await.map_err(failed("sync"))?;
        active.preallocation().forget();
        active.close_file();
        *writer = BlockWriter::default();
        let mut state = self.inner.state.borrow_mut();
        state.rested_at = active.end_offset();
        if state.staged.is_empty() {
            state.staged.shrink_to_fit();
        }
        drop(state);
        self.inner.tail.shrink();
        Ok(())
    }

    /// Whether [`Self::next_note`] may have one.
    pub fn wants_note(&self) -> bool {
        let state = self.inner.state.borrow();
        match &state.notes.pending {
            Some(pending) => pending.end_offset <= self.inner.synced_end_offset.get(),
            None => state.notes.made_at != Some(state.log_end_offset) && state.is_notable(),
        }
    }

    /// A note on the log's end, where there is one that was not handed out yet. It is to replace the one before.
    ///
    /// # Errors
    /// When indexes that are not in memory cannot be read.
    pub async fn next_note(&self) -> Result<Option<Vec<u8>>, ReadError> {
        if let Some(active) = self.to_note() {
            if !active.indexes.borrow().is_complete() {
                self.load_indexes(&active).await?;
            }
            self.largest_timestamp(&active).await?;
            if active.first_timestamp().is_none() {
                let file = active.file(&self.inner.files, OpenMode::ReadWrite).await?;
                super::commit::learn_first_timestamp(&active, &file).await;
            }
            self.make_note(&active);
        }
        let mut state = self.inner.state.borrow_mut();
        let synced_end_offset = self.inner.synced_end_offset.get();
        let Some(note) = state.notes.pending.take_if(|note| note.end_offset <= synced_end_offset) else {
            return Ok(None);
        };
        state.notes.handed_out = Some(note.base_offset);
        state.notes.kept.get_or_insert(note.base_offset);
        Ok(Some(note.encode()))
    }

    /// The notes handed out so far are kept durably.
    pub fn notes_are_kept(&self) {
        let mut state = self.inner.state.borrow_mut();
        state.notes.kept = state.notes.handed_out;
    }

    /// The active segment, where there is something new to say of it.
    fn to_note(&self) -> Option<Rc<Segment<D::File>>> {
        let state = self.inner.state.borrow();
        let is_new = state.notes.pending.is_none() && state.notes.made_at != Some(state.log_end_offset);
        (is_new && state.is_notable()).then(|| Rc::clone(state.active()))
    }

    fn make_note(&self, active: &Segment<D::File>) {
        let mut state = self.inner.state.borrow_mut();
        // Things may have moved while something was read.
        let is_active = state.active().base_offset() == active.base_offset();
        let indexes = active.indexes.borrow();
        if !is_active || !state.is_notable() || !indexes.is_complete() {
            return;
        }
        let position = active.appended_bytes();
        let (offset_index, time_index) = KnownEnd::thin(&indexes.offset, &indexes.time, position);
        let note = KnownEnd {
            base_offset: active.base_offset(),
            end_offset: state.log_end_offset,
            position,
            journaled_through: self.inner.journal.as_ref().map_or(0, |handle| handle.journal.last_sequence()),
            first_timestamp: active.first_timestamp(),
            largest: active.largest_timestamp(),
            epochs_are_saved: state.epochs == state.saved_epochs,
            epochs: state.epochs.clone(),
            offset_index,
            time_index,
            producers: state.producers.clone(),
        };
        state.notes.made_at = Some(note.end_offset);
        state.notes.pending = Some(Box::new(note));
    }
}

impl<F: File> State<F> {
    fn may_rest(&self, now: Instant) -> bool {
        let is_idle = self.appended_at.is_none_or(|at| now.saturating_since(at) >= IDLE_AFTER);
        let is_open = matches!(self.health, Health::Good) && !self.is_closing;
        is_idle && is_open && self.rested_at < self.log_end_offset && !self.is_rest_due
    }

    /// Every segment before the active one is finished, so that one place is all there is to say.
    fn is_notable(&self) -> bool {
        let active = self.active();
        let is_good = match &self.health {
            Health::Good => true,
            Health::Unavailable(_) => false,
            Health::Offline(_) => self.clean_at == Some(self.log_end_offset),
        };
        let is_finished = self.to_seal.is_empty() && !self.is_sealing && self.recovery_point >= active.base_offset();
        is_good && is_finished && active.is_name_durable() && active.appended_bytes() > 0 && self.swap.is_none()
    }
}
