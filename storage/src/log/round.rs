//! What the commit task does next.
//!
//! | why | up to | last block | sync |
//! | --- | --- | --- | --- |
//! | the level is below `flushed`, or there is no journal | everything | padded | at level `flushed`; else by `flush.messages`, `flush.ms` |
//! | a batch that the journal did not take | that batch | held back, its bytes are journalled | yes |
//! | a flush: roll, close, retention, an idle log | where it was asked for | padded | yes |
//! | enough that the journal holds, or some for long | what is durable | held back | no |
//! | the journal wants to let go of records | what is durable | held back, its bytes are journalled anew | yes |
//! | the log is idle | where it ends | padded, and cut off with the file | yes |
//!
//! Where one log alone is busy, the bytes that its large batches leave over are not journalled when more such batches wait by
//! then: the next round writes them, and the batch they belong to is durable with that round.
//!
//! A journal that a log which failed keeps full is as none.
//!
//! A sealed segment's last block is padded in any case. So a log with a journal never writes a block again that an
//! acknowledged batch is in, but for one that was padded; before that the journal gets what the file has of it.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;

use crate::disk::{Disk, File};
use crate::runtime::{Instant, Runtime};
use crate::segment::Segment;
use crate::segment::writer::LastBlock;

use super::{Durability, Health, Log, State};

/// Bytes of one round, unless one batch is larger. What is not acknowledged when the power goes is never more than this,
/// so recovery can tell a torn end from damage in the middle.
pub const GROUP_BYTES_MAX: usize = 4 << 20;
/// What the journal holds of a log is put into its segment when it has come to this.
pub(super) const WRITE_BACK_BYTES: usize = 64 << 10;

/// Consecutive batches of one segment.
pub(super) struct Part<F> {
    pub segment: Rc<Segment<F>>,
    pub batches: Vec<Bytes>,
    /// The offset after the last batch.
    pub end_offset: i64,
    pub last_block: LastBlock,
}

pub(super) struct Round<F> {
    pub parts: Vec<Part<F>>,
    pub syncs: bool,
    /// The unwritten end of the last part goes into the journal, and everything is durable then.
    pub journals_end: bool,
    /// Afterwards the journal gets anew what it holds of the unwritten end up to this sequence.
    pub leaving: Option<u64>,
    /// The log is idle: once all this is done its file is cut to its data.
    pub gives_back: bool,
}

impl<D: Disk, R: Runtime> Log<D, R> {
    /// What there is to do; `None` when nothing is. Batches stay queued until they are written, so that a full disk loses
    /// nothing.
    pub(super) fn next_round(&self) -> Option<Round<D::File>> {
        let mut state = self.inner.state.borrow_mut();
        if matches!(state.health, Health::Offline(_)) {
            return None;
        }
        let (written, durable) = (self.inner.written_end_offset.get(), self.inner.durable_end_offset.get());
        let synced = self.inner.synced_end_offset.get();
        let is_flushed = state.config.durability == Durability::Flushed;
        let is_journaled = self.flushed_journal(&state).is_some();
        let flushes = state.flush_to > synced;
        let is_direct = state.direct_end_offset > durable;
        let leaving = state.leaving.take();
        let is_write_back = std::mem::take(&mut state.is_write_back_due) || leaving.is_some();
        let write_to = match is_journaled {
            false => state.log_end_offset,
            true if flushes && is_direct => state.flush_to.max(state.direct_end_offset),
            true if flushes => state.flush_to,
            true if is_direct => state.direct_end_offset,
            true if is_write_back || state.durable_unwritten_bytes(durable) >= WRITE_BACK_BYTES => durable,
            true => written,
        };
        let mut parts = state.parts_to(write_to);
        let end_offset = parts.last().map_or(written, |part| part.end_offset);
        let pads = !is_journaled || (flushes && end_offset == state.flush_to);
        for part in &mut parts {
            let is_whole = part.segment.is_sealed() && part.end_offset == part.segment.end_offset();
            part.last_block = if pads || is_whole { LastBlock::Padded } else { LastBlock::HeldBack };
        }
        let journals_end = is_journaled && is_direct && !pads && end_offset > durable;
        let has_unsynced = !state.unsynced.segments.is_empty() || !parts.is_empty();
        let is_overdue = !is_flushed && state.must_sync(&parts, self.inner.runtime.now());
        let syncs = has_unsynced && ((is_flushed && is_direct) || flushes || leaving.is_some() || is_overdue);
        let gives_back = std::mem::take(&mut state.is_rest_due);
        let is_nothing = parts.is_empty() && !syncs && leaving.is_none() && !gives_back;
        (!is_nothing).then_some(Round { parts, syncs, journals_end, leaving, gives_back })
    }

    /// After a refusal: what was only asked for once is wanted still, and a log that has nothing to do would never find out
    /// that the disk takes writes again.
    pub(super) fn ask_again(&self, round: &Round<D::File>) {
        let mut state = self.inner.state.borrow_mut();
        state.is_write_back_due = true;
        state.leaving = state.leaving.max(round.leaving);
    }
}

impl<F: File> State<F> {
    /// Bytes that are durable and wait to be written.
    fn durable_unwritten_bytes(&self, durable_end_offset: i64) -> usize {
        let is_durable = |staged: &&super::Staged<F>| staged.end_offset <= durable_end_offset;
        let staged: usize = self.staged.iter().take_while(is_durable).map(|staged| staged.bytes.len()).sum();
        staged.saturating_sub(self.staged_in_file_bytes)
    }

    /// Bytes that wait to be written.
    pub(super) fn unwritten_bytes(&self) -> usize {
        self.staged_bytes - self.staged_in_file_bytes
    }

    fn parts_to(&self, end_offset: i64) -> Vec<Part<F>> {
        let mut parts: Vec<Part<F>> = Vec::new();
        let mut round_bytes = 0;
        for staged in self.staged.iter().take_while(|staged| staged.end_offset <= end_offset) {
            if round_bytes > 0 && round_bytes + staged.bytes.len() > GROUP_BYTES_MAX {
                break;
            }
            round_bytes += staged.bytes.len();
            if parts.last().is_none_or(|part| !Rc::ptr_eq(&part.segment, &staged.segment)) {
                let segment = Rc::clone(&staged.segment);
                parts.push(Part { segment, batches: Vec::new(), end_offset: 0, last_block: LastBlock::HeldBack });
            }
            let part = parts.last_mut().expect("just made sure of");
            part.batches.push(staged.bytes.clone());
            part.end_offset = staged.end_offset;
        }
        parts
    }

    /// By `flush.messages` and `flush.ms`, once `parts` are written.
    fn must_sync(&self, parts: &[Part<F>], now: Instant) -> bool {
        let end_offset = parts.last().map_or(i64::MIN, |part| part.end_offset);
        let records: i64 =
            self.staged.iter().take_while(|staged| staged.end_offset <= end_offset).map(|staged| staged.records).sum();
        let age = self.unsynced.since.map_or(Duration::ZERO, |since| now.saturating_since(since));
        self.unsynced.records + records >= self.config.flush_messages
            || flush_interval(self.config.flush_ms).is_some_and(|interval| age >= interval)
    }
}

/// `None` when `flush.ms` never asks for anything.
pub(super) fn flush_interval(flush_ms: i64) -> Option<Duration> {
    const NEVER_MS: u64 = 1000 * 365 * 24 * 3600 * 1000;
    u64::try_from(flush_ms).ok().filter(|&ms| ms < NEVER_MS).map(Duration::from_millis)
}
