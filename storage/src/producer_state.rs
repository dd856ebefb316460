//! Idempotent producers and open transactions of one partition. Pure: batches in, verdicts and state out.
//!
//! The rules are those of Kafka's `ProducerStateManager` and `ProducerAppendInfo`: per producer id the epoch, the last
//! five batches and the first offset of an open transaction. A batch whose epoch and sequence range equal one of the five
//! is a duplicate; otherwise sequences follow each other without a gap, from `i32::MAX` to 0, and a new epoch begins at
//! 0. A producer nothing is known of may begin anywhere, because its state may have expired or been deleted.

mod snapshot;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use walser_protocol::records::batch::{BatchHeader, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE};

pub use snapshot::{SNAPSHOT_EMPTY_BYTES, SnapshotError};

/// Batches remembered per producer: as many as a producer may have in flight.
pub const BATCHES_REMEMBERED: usize = 5;
const NO_COORDINATOR_EPOCH: i32 = -1;

/// Why a batch of a producer is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProducerError {
    #[error("epoch {given} of producer {producer_id} is older than the last seen, {current}")]
    InvalidEpoch { producer_id: i64, given: i16, current: i16 },
    #[error("sequence {base_sequence} of producer {producer_id} does not follow {last_sequence} (-1: none)")]
    OutOfOrderSequence { producer_id: i64, base_sequence: i32, last_sequence: i32 },
    #[error(
        "new epoch {epoch} of producer {producer_id} begins at sequence {base_sequence} instead of 0 (last epoch {last_epoch})"
    )]
    NewEpochNotAtZero { producer_id: i64, epoch: i16, last_epoch: i16, base_sequence: i32 },
    #[error("producer {producer_id} has an open transaction and sent a batch outside of it")]
    NotTransactional { producer_id: i64 },
    #[error("coordinator epoch {given} for producer {producer_id} is older than the last seen, {current}")]
    CoordinatorFenced { producer_id: i64, given: i32, current: i32 },
}

/// One appended batch as its producer numbered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchMetadata {
    pub last_sequence: i32,
    pub last_offset: i64,
    /// Last sequence less first, the same in offsets.
    pub offset_delta: i32,
    /// Largest timestamp of the batch.
    pub timestamp: i64,
}

impl BatchMetadata {
    pub fn base_sequence(&self) -> i32 {
        decrement_sequence(self.last_sequence, self.offset_delta)
    }

    pub fn base_offset(&self) -> i64 {
        self.last_offset - i64::from(self.offset_delta)
    }
}

/// What a partition knows of one producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerEntry {
    pub producer_epoch: i16,
    /// Of the last coordinator that ended a transaction here, -1 for none.
    pub coordinator_epoch: i32,
    pub last_timestamp: i64,
    pub current_txn_first_offset: Option<i64>,
    /// The latest [`BATCHES_REMEMBERED`] of the epoch, oldest first.
    batches: VecDeque<BatchMetadata>,
}

impl ProducerEntry {
    pub fn batches(&self) -> impl Iterator<Item = &BatchMetadata> {
        self.batches.iter()
    }

    /// -1 when no batch of this epoch is known.
    pub fn last_sequence(&self) -> i32 {
        self.batches.back().map_or(NO_SEQUENCE, |batch| batch.last_sequence)
    }

    pub fn last_offset(&self) -> Option<i64> {
        self.batches.back().map(|batch| batch.last_offset)
    }

    fn empty() -> Self {
        Self {
            producer_epoch: NO_PRODUCER_EPOCH,
            coordinator_epoch: NO_COORDINATOR_EPOCH,
            last_timestamp: -1,
            current_txn_first_offset: None,
            batches: VecDeque::new(),
        }
    }

    fn adopt_epoch(&mut self, epoch: i16) {
        if self.producer_epoch != epoch {
            self.batches.clear();
            self.producer_epoch = epoch;
        }
    }
}

/// What is to be done with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceCheck {
    Append,
    /// It is in the log already, as this.
    Duplicate(BatchMetadata),
}

/// A transaction that an end marker has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedTransaction {
    pub producer_id: i64,
    pub first_offset: i64,
    /// Offset of the marker.
    pub last_offset: i64,
    pub is_aborted: bool,
}

/// An end-of-transaction marker: who ends what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndMarker {
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub coordinator_epoch: i32,
    pub is_aborted: bool,
    pub timestamp: i64,
}

/// Every producer a partition knows of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProducerStates {
    producers: BTreeMap<i64, ProducerEntry>,
    /// Open transactions: first offset -> producer id.
    ongoing: BTreeMap<i64, i64>,
    /// Closed, but not below the high watermark yet: first offset -> the offset of the marker.
    unreplicated: BTreeMap<i64, i64>,
}

impl ProducerStates {
    pub fn len(&self) -> usize {
        self.producers.len()
    }

    pub fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }

    /// In ascending order of producer id.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &ProducerEntry)> {
        self.producers.iter().map(|(&producer_id, entry)| (producer_id, entry))
    }

    pub fn producer(&self, producer_id: i64) -> Option<&ProducerEntry> {
        self.producers.get(&producer_id)
    }

    /// The verdict on a data batch a client sent. Changes nothing.
    pub fn check(&self, batch: &BatchHeader) -> Result<SequenceCheck, ProducerError> {
        if batch.producer_id == NO_PRODUCER_ID {
            return Ok(SequenceCheck::Append);
        }
        let Some(entry) = self.producers.get(&batch.producer_id) else { return Ok(SequenceCheck::Append) };
        let last_sequence = increment_sequence(batch.base_sequence, batch.last_offset_delta);
        if entry.producer_epoch == batch.producer_epoch {
            let same = |known: &&BatchMetadata| {
                known.base_sequence() == batch.base_sequence && known.last_sequence == last_sequence
            };
            if let Some(known) = entry.batches.iter().find(same) {
                return Ok(SequenceCheck::Duplicate(*known));
            }
        }
        check_epoch(batch.producer_id, batch.producer_epoch, entry)?;
        check_sequence(batch, entry)?;
        if entry.current_txn_first_offset.is_some() && !batch.attributes.is_transactional() {
            return Err(ProducerError::NotTransactional { producer_id: batch.producer_id });
        }
        Ok(SequenceCheck::Append)
    }

    /// Notes a data batch that is in the log at `base_offset`: appended here after [`Self::check`], or found there.
    pub fn note_batch(&mut self, batch: &BatchHeader, base_offset: i64) {
        if batch.producer_id == NO_PRODUCER_ID {
            return;
        }
        let entry = self.producers.entry(batch.producer_id).or_insert_with(ProducerEntry::empty);
        entry.adopt_epoch(batch.producer_epoch);
        entry.last_timestamp = batch.max_timestamp;
        if entry.batches.len() == BATCHES_REMEMBERED {
            entry.batches.pop_front();
        }
        entry.batches.push_back(BatchMetadata {
            last_sequence: increment_sequence(batch.base_sequence, batch.last_offset_delta),
            last_offset: base_offset + i64::from(batch.last_offset_delta),
            offset_delta: batch.last_offset_delta,
            timestamp: batch.max_timestamp,
        });
        if batch.attributes.is_transactional() && entry.current_txn_first_offset.is_none() {
            entry.current_txn_first_offset = Some(base_offset);
            self.ongoing.insert(base_offset, batch.producer_id);
        }
    }

    /// The verdict on a marker a coordinator sent. Changes nothing. `strict`: the epoch must be above the last seen, as
    /// transactions of version 2 ask for (KIP-1228).
    pub fn check_marker(&self, marker: &EndMarker, strict: bool) -> Result<(), ProducerError> {
        let Some(entry) = self.producers.get(&marker.producer_id) else { return Ok(()) };
        check_epoch(marker.producer_id, marker.producer_epoch, entry)?;
        if strict && marker.producer_epoch == entry.producer_epoch {
            return Err(ProducerError::InvalidEpoch {
                producer_id: marker.producer_id,
                given: marker.producer_epoch,
                current: entry.producer_epoch,
            });
        }
        if entry.coordinator_epoch > marker.coordinator_epoch {
            return Err(ProducerError::CoordinatorFenced {
                producer_id: marker.producer_id,
                given: marker.coordinator_epoch,
                current: entry.coordinator_epoch,
            });
        }
        Ok(())
    }

    /// Notes a marker that is in the log at `offset`; the transaction it closed, when one was open.
    pub fn note_marker(&mut self, marker: &EndMarker, offset: i64) -> Option<CompletedTransaction> {
        let entry = self.producers.entry(marker.producer_id).or_insert_with(ProducerEntry::empty);
        entry.adopt_epoch(marker.producer_epoch);
        entry.coordinator_epoch = marker.coordinator_epoch;
        entry.last_timestamp = marker.timestamp;
        let first_offset = entry.current_txn_first_offset.take()?;
        self.ongoing.remove(&first_offset);
        self.unreplicated.insert(first_offset, offset);
        Some(CompletedTransaction {
            producer_id: marker.producer_id,
            first_offset,
            last_offset: offset,
            is_aborted: marker.is_aborted,
        })
    }

    /// Where the first transaction begins that is open, or closed by a marker not yet below the high watermark. The last
    /// stable offset is the smaller of this and the high watermark.
    pub fn first_unstable_offset(&self) -> Option<i64> {
        let open = self.ongoing.first_key_value().map(|(&first, _)| first);
        let closed = self.unreplicated.first_key_value().map(|(&first, _)| first);
        open.into_iter().chain(closed).min()
    }

    /// Markers below the high watermark make their transactions stable.
    pub fn handle_high_watermark(&mut self, high_watermark: i64) {
        self.unreplicated.retain(|_, marker_offset| *marker_offset >= high_watermark);
    }

    /// Forgets producers that have not written for `expiration_ms`; never one with an open transaction. The count forgotten.
    pub fn expire(&mut self, now_ms: i64, expiration_ms: i64) -> usize {
        let before = self.producers.len();
        self.producers.retain(|_, entry| {
            entry.current_txn_first_offset.is_some() || now_ms.saturating_sub(entry.last_timestamp) < expiration_ms
        });
        before - self.producers.len()
    }
}

fn check_epoch(producer_id: i64, given: i16, entry: &ProducerEntry) -> Result<(), ProducerError> {
    if given < entry.producer_epoch {
        return Err(ProducerError::InvalidEpoch { producer_id, given, current: entry.producer_epoch });
    }
    Ok(())
}

fn check_sequence(batch: &BatchHeader, entry: &ProducerEntry) -> Result<(), ProducerError> {
    let (producer_id, base_sequence) = (batch.producer_id, batch.base_sequence);
    if entry.producer_epoch == NO_PRODUCER_EPOCH {
        return Ok(());
    }
    if batch.producer_epoch != entry.producer_epoch {
        if base_sequence != 0 {
            let (epoch, last_epoch) = (batch.producer_epoch, entry.producer_epoch);
            return Err(ProducerError::NewEpochNotAtZero { producer_id, epoch, last_epoch, base_sequence });
        }
        return Ok(());
    }
    let last_sequence = entry.last_sequence();
    let follows =
        i64::from(base_sequence) == i64::from(last_sequence) + 1 || (base_sequence == 0 && last_sequence == i32::MAX);
    if follows { Ok(()) } else { Err(ProducerError::OutOfOrderSequence { producer_id, base_sequence, last_sequence }) }
}

/// Sequences count from 0 to `i32::MAX` and begin again.
fn increment_sequence(sequence: i32, increment: i32) -> i32 {
    let sum = i64::from(sequence) + i64::from(increment);
    i32::try_from(sum).unwrap_or_else(|_| (sum - (1 << 31)) as i32)
}

fn decrement_sequence(sequence: i32, decrement: i32) -> i32 {
    let difference = i64::from(sequence) - i64::from(decrement);
    // Both are at least 0, so the sum is at least 1 and fits.
    if difference >= 0 { difference as i32 } else { (difference + (1 << 31)) as i32 }
}
