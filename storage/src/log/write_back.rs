//! The log's side of the journal: what it hands over, what it still needs there, and how it stops needing it.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;

use crate::disk::{BLOCK_BYTES, Disk, File};
use crate::error::{AppendError, DiskError, LogOffline};
use crate::journal::record::Standing;
use crate::journal::{JournalHandle, disk_error};
use crate::runtime::{Instant, Runtime};
use crate::segment::writer::{BlockWriter, LastBlock};
use crate::wal::WalError;

use super::commit::Failure;
use super::round::{Part, Round, WRITE_BACK_BYTES};
use super::{Durability, Health, Log, State};

/// A log that nobody has written to for so long puts its last block into its segment though it is not full.
pub(super) const IDLE_AFTER: Duration = Duration::from_secs(10);

impl From<WalError> for Failure {
    fn from(error: WalError) -> Self {
        let disk_error = disk_error(&error);
        if error.is_refusal() { Self::Refused(disk_error) } else { Self::Lost(disk_error) }
    }
}

impl<D: Disk, R: Runtime> Log<D, R> {
    /// The journal, where it takes the next batch: everything before that batch is durable or will be through the journal.
    pub(super) fn journal_for(
        &self,
        state: &State<D::File>,
        batch_bytes: usize,
    ) -> Result<Option<&JournalHandle<D, R>>, AppendError> {
        let Some(handle) = self.flushed_journal(state) else { return Ok(None) };
        let follows = state.direct_end_offset <= self.inner.durable_end_offset.get();
        Ok((follows && handle.takes(batch_bytes)?).then_some(handle))
    }

    /// The journal, where the level asks for what it does, and it can.
    pub(super) fn flushed_journal(&self, state: &State<D::File>) -> Option<&JournalHandle<D, R>> {
        let is_flushed = state.config.durability == Durability::Flushed;
        self.inner.journal.as_ref().filter(|handle| is_flushed && !handle.journal.is_clogged())
    }

    pub(super) fn note_staged(&self, bytes: usize) {
        if let Some(handle) = &self.inner.journal {
            handle.journal.note_staged(bytes);
        }
    }

    pub(super) fn note_left_staging(&self, bytes: usize) {
        if let Some(handle) = &self.inner.journal {
            handle.journal.note_left_staging(bytes);
        }
    }

    /// Before a block is written again that acknowledged batches are in, the journal has what is in it.
    pub(super) async fn cover_tail(&self, writer: &BlockWriter, part: &Part<D::File>) -> Result<(), Failure> {
        let (position, tail) = writer.tail();
        let committed = {
            let mut state = self.inner.state.borrow_mut();
            let Some(handle) = self.flushed_journal(&state) else { return Ok(()) };
            if tail.is_empty() || !writer.would_write(&part.segment, &part.batches, part.last_block) {
                return Ok(());
            }
            let tail = Bytes::copy_from_slice(tail);
            let sequence = handle.append_bytes(self, part.segment.base_offset(), position, tail)?;
            state.unsynced.need(Some(sequence));
            handle.journal.committed(sequence)
        };
        Ok(committed.await?)
    }

    /// Has the journal take what does not fill a block of batches that it has not taken, the first `written` of which the
    /// segment has; its record.
    pub(super) fn journal_loose_end(
        &self,
        writer: &BlockWriter,
        part: &Part<D::File>,
        written: usize,
    ) -> Result<Option<u64>, Failure> {
        let (position, bytes) = writer.loose_end(&part.segment, &part.batches[written..]);
        let mut state = self.inner.state.borrow_mut();
        let Some(handle) = self.inner.journal.as_ref().filter(|_| !bytes.is_empty()) else { return Ok(None) };
        let sequence = handle.append_bytes(self, part.segment.base_offset(), position, bytes)?;
        state.loose_end_offset = part.end_offset;
        for staged in state.staged.iter_mut().take_while(|staged| staged.end_offset <= part.end_offset) {
            staged.sequence.get_or_insert(sequence);
        }
        Ok(Some(sequence))
    }

    /// Waits for the record of the loose end; then everything of the round is durable.
    pub(super) async fn finish_end(&self, round: &Round<D::File>, sequence: u64) -> Result<(), Failure> {
        let Some(handle) = &self.inner.journal else { return Ok(()) };
        handle.journal.committed(sequence).await?;
        let Some(end_offset) = round.parts.last().map(|part| part.end_offset) else { return Ok(()) };
        let mut state = self.inner.state.borrow_mut();
        if matches!(state.health, Health::Offline(_)) {
            return Ok(());
        }
        for staged in state.staged.iter_mut().take_while(|staged| staged.end_offset <= end_offset) {
            // Of its other records only what is in the segment now is left.
            staged.sequence = Some(sequence);
        }
        drop(state);
        self.inner.durable_end_offset.update(|durable| durable.max(end_offset));
        self.inner.ring();
        Ok(())
    }

    /// Has the journal take again what it holds up to `through` and no segment has, so that the older record can go.
    pub(super) fn journal_anew(&self, writer: &BlockWriter, through: u64) -> Result<(), Failure> {
        let mut state = self.inner.state.borrow_mut();
        let is_old = |staged: &super::Staged<D::File>| staged.sequence.is_some_and(|sequence| sequence <= through);
        let Some(last) = state.staged.iter().rposition(is_old) else { return Ok(()) };
        let Some(handle) = &self.inner.journal else { return Ok(()) };
        let segment = Rc::clone(&state.staged[0].segment);
        let batches: Vec<Bytes> = state.staged.range(..=last).map(|staged| staged.bytes.clone()).collect();
        let is_one_segment = state.staged.range(..=last).all(|staged| Rc::ptr_eq(&staged.segment, &segment));
        let would_write = || writer.would_write(&segment, &batches, LastBlock::HeldBack);
        if !is_one_segment || !writer.is_at(&segment) || would_write() {
            // More than a round could take: what is left is written first.
            state.leaving = Some(through);
            return Ok(());
        }
        let (position, bytes) = writer.loose_end(&segment, &batches);
        match handle.append_bytes(self, segment.base_offset(), position, bytes) {
            Ok(sequence) => {
                handle.journal.note_anew(sequence);
                for staged in state.staged.range_mut(..=last) {
                    staged.sequence = Some(sequence);
                }
            }
            // Then the segment takes it.
            Err(error) if error.is_refusal() => {
                state.flush_to = state.flush_to.max(self.inner.durable_end_offset.get());
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// The first record that the log needs.
    pub(crate) fn pin(&self) -> Option<u64> {
        self.inner.state.borrow().pin()
    }

    /// What the log needs of the journal, and where it ends; `None` when it needs nothing.
    pub(crate) fn standing(&self) -> Option<Standing> {
        let JournalHandle { topic_id, partition, .. } = self.inner.journal.as_ref()?;
        let state = self.inner.state.borrow();
        let needs_from = state.pin()?;
        let durable = self.inner.durable_end_offset.get();
        // Behind a batch that goes straight into its segment nothing is journalled before that one is durable, but for its own
        // loose end: without that record the batch would be lost.
        let end_offset = match &state.health {
            Health::Offline(_) => durable,
            Health::Good | Health::Unavailable(_) if state.direct_end_offset > durable => {
                durable.max(state.loose_end_offset)
            }
            Health::Good | Health::Unavailable(_) => state.log_end_offset,
        };
        Some(Standing { topic_id: *topic_id, partition: *partition, needs_from, end_offset })
    }

    /// Puts into segments what it needs of the journal up to `through`, as far as it can.
    pub(crate) async fn leave_journal(&self, through: u64) {
        {
            let mut state = self.inner.state.borrow_mut();
            state.leaving = state.leaving.max(Some(through));
        }
        self.start_commit();
        loop {
            let changed = self.inner.progress.notified();
            {
                let state = self.inner.state.borrow();
                let has_left = state.pin().is_none_or(|pin| pin > through);
                if has_left || !state.is_committing || !matches!(state.health, Health::Good) {
                    return;
                }
            }
            changed.await;
        }
    }

    /// Writes back what waits for long.
    pub(crate) async fn visit(&self, now: Instant) {
        let is_idle = {
            let mut state = self.inner.state.borrow_mut();
            if !matches!(state.health, Health::Good) {
                return;
            }
            let is_idle = state.appended_at.is_none_or(|at| now.saturating_since(at) >= IDLE_AFTER);
            state.is_write_back_due = !is_idle && state.unwritten_bytes() >= BLOCK_BYTES;
            if !is_idle && !state.is_write_back_due {
                return;
            }
            is_idle
        };
        if is_idle {
            if let Err(error) = self.flush().await {
                tracing::debug!(dir = %self.inner.dir.display(), %error, "an idle log still needs the journal");
            }
        } else {
            self.start_commit();
        }
    }

    /// Everything below `end_offset` is durable. True when the log is to be rung for it and was not before. A log that failed
    /// meanwhile acknowledges nothing any more.
    pub(crate) fn note_journaled(&self, end_offset: i64) -> bool {
        if self.offline().is_some() {
            return false;
        }
        self.inner.durable_end_offset.update(|durable| durable.max(end_offset));
        !self.inner.is_to_be_rung.replace(true)
    }

    /// Wakes who waits for what became durable.
    pub(crate) fn ring_journaled(&self) {
        self.inner.is_to_be_rung.set(false);
        if self.inner.state.borrow().unwritten_bytes() >= WRITE_BACK_BYTES {
            self.start_commit();
        }
        self.inner.ring();
    }

    /// Has the journal keep nothing for this log, which is closed and whose topic is deleted.
    pub fn forget_journal(&self) {
        let mut state = self.inner.state.borrow_mut();
        state.held_pin = None;
        state.unsynced.pin = None;
        for staged in &mut state.staged {
            staged.sequence = None;
        }
    }

    /// The journal has failed, and with it everything behind it.
    pub(crate) fn fail(&self, error: DiskError) {
        if self.offline().is_none() {
            self.set_offline(LogOffline::Failed(error));
        }
    }

    /// False when the journal visits it already.
    pub(crate) fn begin_visits(&self) -> bool {
        !self.inner.is_visited.replace(true)
    }

    /// True when the log needs no visits any more.
    pub(crate) fn end_visits(&self) -> bool {
        let ends = self.pin().is_none();
        self.inner.is_visited.set(!ends);
        ends
    }

    /// False when it waits already.
    pub(crate) fn begin_waiting_for_journal(&self) -> bool {
        !self.inner.waits_for_journal.replace(true)
    }

    pub(crate) fn ring_for_room(&self) {
        self.inner.waits_for_journal.set(false);
        self.inner.progress.notify_all();
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.inner, &other.inner)
    }
}

impl<F: File> State<F> {
    pub(super) fn pin(&self) -> Option<u64> {
        let staged = self.staged.iter().filter_map(|staged| staged.sequence).min();
        [self.held_pin, self.unsynced.pin, staged].into_iter().flatten().min()
    }
}
