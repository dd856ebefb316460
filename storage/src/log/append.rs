//! Appending: everything that happens to a batch before it is on disk, in one synchronous step.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use walser_protocol::records::batch::{BatchHeader, BatchMut};

use crate::cache::tail::TailBatch;
use crate::disk::{Disk, File};
use crate::error::{AppendError, LogOffline};
use crate::producer_state::{BatchMetadata, SequenceCheck};
use crate::runtime::Runtime;
use crate::segment::Segment;
use crate::validate::ValidBatch;

use super::{Health, Log, Staged, State, seal};

/// Batches below this are copied out of the frame they came in, so that a small one does not hold a large one's memory.
pub const COPY_BELOW_BYTES: usize = 16 << 10;

/// What a leader appends.
pub struct Append {
    pub batch: ValidBatch,
    pub leader_epoch: i32,
    /// Wall clock: the LogAppendTime, and the age of segments.
    pub now_ms: i64,
}

/// Where a batch is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub base_offset: i64,
    pub last_offset: i64,
    /// LogAppendTime, -1 on CreateTime topics; of a duplicate the timestamp of the original.
    pub log_append_time_ms: i64,
    pub log_start_offset: i64,
    /// The batch was there already, from an earlier attempt of the same producer.
    pub is_duplicate: bool,
}

impl Appended {
    /// What to wait for with [`Log::durable`], for duplicates too: the first attempt may still be on its way.
    pub fn end_offset(&self) -> i64 {
        self.last_offset + 1
    }
}

impl<D: Disk, R: Runtime> Log<D, R> {
    /// Gives the batch its offsets and puts it into the log; not yet on disk, see [`Log::durable`].
    ///
    /// Base offset, leader epoch and, on LogAppendTime topics, timestamp are changed in the batch's bytes. A batch that
    /// its producer has sent before is not appended again. On an error nothing has changed. Whoever can wait for room
    /// calls [`Self::stand_in_line`] first.
    ///
    /// The bytes are kept as long as the batch is in the tail. Small ones are copied out here; a caller that cuts large
    /// batches from still larger frames copies those that are less than half of their frame.
    pub fn append_as_leader(&self, append: Append) -> Result<Appended, AppendError> {
        let mut state = self.inner.state.borrow_mut();
        let Append { batch, leader_epoch, now_ms } = append;
        state.check_appendable(batch.len(), leader_epoch)?;
        if let SequenceCheck::Duplicate(original) = state.producers.check(batch.header())? {
            return Ok(state.duplicate(&original));
        }
        let handle = self.journal_for(&state, batch.len())?;
        let (bytes, header) = state.number(batch, leader_epoch, now_ms)?;
        let segment = self.segment_for(&mut state, &header, bytes.len() as u64, now_ms);
        let appended = Appended {
            base_offset: header.base_offset,
            last_offset: header.base_offset + i64::from(header.last_offset_delta),
            log_append_time_ms: if state.config.is_log_append_time { now_ms } else { -1 },
            log_start_offset: state.log_start_offset,
            is_duplicate: false,
        };
        let index_interval_bytes = state.config.index_interval_bytes;
        let position = segment.note_batch(&header, bytes.len() as u64, index_interval_bytes);
        state.producers.note_batch(&header, header.base_offset);
        let is_new_epoch =
            state.epochs.assign(leader_epoch, header.base_offset) | std::mem::take(&mut state.has_new_epoch);
        let is_committed = state.config.durability == super::Durability::Memory;
        state.log_end_offset = appended.end_offset();
        state.staged_bytes += bytes.len();
        state.appended_at = Some(self.inner.runtime.now());
        let records = i64::from(header.last_offset_delta) + 1;
        let end_offset = appended.end_offset();
        let sequence =
            handle.map(|handle| handle.append_batch(self, segment.base_offset(), position, &bytes, end_offset));
        if sequence.is_none() {
            state.direct_end_offset = end_offset;
        }
        state.staged.push_back(Staged { segment, bytes: bytes.clone(), end_offset, records, sequence });
        // A roll has asked for a flush.
        let must_commit = sequence.is_none() || state.flush_to > self.inner.synced_end_offset.get();
        drop(state);
        self.note_staged(bytes.len());
        let (base_offset, last_offset) = (appended.base_offset, appended.last_offset);
        self.inner.tail.push(TailBatch { base_offset, last_offset, bytes });
        if is_new_epoch {
            self.save_epochs();
        }
        if must_commit {
            self.start_commit();
        }
        if is_committed {
            self.inner.ring();
        }
        Ok(appended)
    }

    /// The segment that takes the batch: the active one, or a new one when that is full.
    fn segment_for(
        &self,
        state: &mut State<D::File>,
        header: &BatchHeader,
        batch_bytes: u64,
        now_ms: i64,
    ) -> Rc<Segment<D::File>> {
        let active = Rc::clone(state.active());
        let last_offset = header.base_offset + i64::from(header.last_offset_delta);
        let limits = state.config.roll_limits();
        if !active.must_roll(limits, batch_bytes, last_offset, header.max_timestamp, now_ms) {
            return active;
        }
        self.begin_segment(state, header.base_offset, now_ms)
    }

    /// Ends the active segment, which has something in it, and begins one at the log's end.
    pub(super) fn roll(&self, now_ms: i64) -> Rc<Segment<D::File>> {
        let mut state = self.inner.state.borrow_mut();
        let log_end_offset = state.log_end_offset;
        self.begin_segment(&mut state, log_end_offset, now_ms)
    }

    fn begin_segment(&self, state: &mut State<D::File>, base_offset: i64, now_ms: i64) -> Rc<Segment<D::File>> {
        let active = Rc::clone(state.active());
        active.seal();
        let snapshot = state.producers.encode_snapshot();
        // The sealed files are only finished once they are durable.
        state.flush_to = state.flush_to.max(base_offset);
        let next = seal::ToSeal { segment: active, end_offset: base_offset, snapshot };
        state.to_seal.push_back(Rc::new(next));
        let segment = Rc::new(Segment::new(&self.inner.dir, base_offset, now_ms));
        state.segments.insert(base_offset, Rc::clone(&segment));
        segment
    }
}

impl<F: File> State<F> {
    fn check_appendable(&self, batch_bytes: usize, leader_epoch: i32) -> Result<(), AppendError> {
        match &self.health {
            Health::Good => {}
            Health::Unavailable(error) => return Err(AppendError::Unavailable(error.clone())),
            Health::Offline(reason) => return Err(reason.clone().into()),
        }
        if self.is_closing {
            return Err(LogOffline::Closed.into());
        }
        if let Some(latest) = self.epochs.latest()
            && leader_epoch < latest.epoch
        {
            return Err(AppendError::StaleLeaderEpoch { given: leader_epoch, current: latest.epoch });
        }
        let segment_bytes = self.config.segment_bytes;
        if batch_bytes as u64 > u64::from(segment_bytes) {
            return Err(AppendError::BatchExceedsSegment { batch_bytes, segment_bytes });
        }
        if !self.has_room(batch_bytes) {
            return Err(AppendError::Overloaded { staged_bytes: self.staged_bytes });
        }
        Ok(())
    }

    fn duplicate(&self, original: &BatchMetadata) -> Appended {
        Appended {
            base_offset: original.base_offset(),
            last_offset: original.last_offset,
            log_append_time_ms: original.timestamp,
            log_start_offset: self.log_start_offset,
            is_duplicate: true,
        }
    }

    /// The batch's bytes with this log's numbers in them, and the header they now have.
    fn number(&self, batch: ValidBatch, leader_epoch: i32, now_ms: i64) -> Result<(Bytes, BatchHeader), AppendError> {
        let base_offset = self.log_end_offset;
        if base_offset.checked_add(i64::from(batch.header().last_offset_delta) + 1).is_none() {
            return Err(AppendError::OffsetsExhausted);
        }
        let mut bytes: BytesMut = batch.into_bytes();
        if bytes.len() < COPY_BELOW_BYTES {
            bytes = BytesMut::from(&bytes[..]);
        }
        let (mut fields, rest) = BatchMut::parse(&mut bytes).expect("a valid batch has a header");
        assert!(rest.is_empty(), "a valid batch is one batch");
        fields.set_base_offset(base_offset);
        fields.set_partition_leader_epoch(leader_epoch);
        if self.config.is_log_append_time {
            fields.set_log_append_time(now_ms);
        }
        let bytes = bytes.freeze();
        let header = BatchHeader::read(&bytes).expect("a valid batch has a header");
        Ok((bytes, header))
    }
}
