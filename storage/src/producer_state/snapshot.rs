//! The `.snapshot` file: producer state at an offset, so that a restart replays only what follows.
//!
//! ```text
//!  0  2  version, 1
//!  2  4  CRC-32C of all that follows
//!  6  4  entries; each:
//!        8  producer id
//!        2  producer epoch
//!        4  last sequence, -1 when no batch is known
//!        8  last offset, -1 when no batch is known
//!        4  offset delta of the last batch
//!        8  timestamp of the last append
//!        4  coordinator epoch, -1 for none
//!        8  first offset of the open transaction, -1 for none
//! ```
//! Only the last batch of each producer is kept, as Kafka does.

use std::collections::VecDeque;

use walser_protocol::records::batch::NO_SEQUENCE;
use walser_protocol::records::crc::crc32c;

use super::{BATCHES_REMEMBERED, BatchMetadata, ProducerEntry, ProducerStates};

/// Length of a snapshot without a producer: nothing to read in it.
pub const SNAPSHOT_EMPTY_BYTES: u64 = 10;
const VERSION: i16 = 1;
const CRC_COVERS_FROM: usize = 6;
const ENTRY_BYTES: usize = 46;

/// Why bytes are no producer snapshot: an older one is used, or the log is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    #[error("cut short")]
    Truncated,
    #[error("version {found} is not supported")]
    BadVersion { found: i16 },
    #[error("CRC is {stored:#010x}, the bytes give {computed:#010x}")]
    BadCrc { stored: u32, computed: u32 },
    #[error("{announced} entries announced, {bytes} bytes follow")]
    BadCount { announced: i32, bytes: usize },
}

impl ProducerStates {
    /// The file's bytes, producers in ascending order of id.
    pub fn encode_snapshot(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(4 + self.producers.len() * ENTRY_BYTES);
        let count = i32::try_from(self.producers.len()).expect("two billion producers do not fit into memory");
        body.extend_from_slice(&count.to_be_bytes());
        for (producer_id, entry) in &self.producers {
            let last = entry.batches.back();
            body.extend_from_slice(&producer_id.to_be_bytes());
            body.extend_from_slice(&entry.producer_epoch.to_be_bytes());
            body.extend_from_slice(&last.map_or(NO_SEQUENCE, |batch| batch.last_sequence).to_be_bytes());
            body.extend_from_slice(&last.map_or(-1, |batch| batch.last_offset).to_be_bytes());
            body.extend_from_slice(&last.map_or(0, |batch| batch.offset_delta).to_be_bytes());
            body.extend_from_slice(&entry.last_timestamp.to_be_bytes());
            body.extend_from_slice(&entry.coordinator_epoch.to_be_bytes());
            body.extend_from_slice(&entry.current_txn_first_offset.unwrap_or(-1).to_be_bytes());
        }
        let mut bytes = Vec::with_capacity(CRC_COVERS_FROM + body.len());
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        bytes.extend_from_slice(&crc32c(&body).to_be_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    pub fn decode_snapshot(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let mut left = bytes;
        let version = i16::from_be_bytes(take(&mut left)?);
        if version != VERSION {
            return Err(SnapshotError::BadVersion { found: version });
        }
        let stored = u32::from_be_bytes(take(&mut left)?);
        let computed = crc32c(left);
        if stored != computed {
            return Err(SnapshotError::BadCrc { stored, computed });
        }
        let announced = i32::from_be_bytes(take(&mut left)?);
        if usize::try_from(announced).ok().and_then(|count| count.checked_mul(ENTRY_BYTES)) != Some(left.len()) {
            return Err(SnapshotError::BadCount { announced, bytes: left.len() });
        }
        let mut states = Self::default();
        while !left.is_empty() {
            let (producer_id, entry) = decode_entry(&mut left)?;
            if let Some(first_offset) = entry.current_txn_first_offset {
                states.ongoing.insert(first_offset, producer_id);
            }
            states.producers.insert(producer_id, entry);
        }
        Ok(states)
    }
}

fn decode_entry(left: &mut &[u8]) -> Result<(i64, ProducerEntry), SnapshotError> {
    let producer_id = i64::from_be_bytes(take(left)?);
    let producer_epoch = i16::from_be_bytes(take(left)?);
    let last_sequence = i32::from_be_bytes(take(left)?);
    let last_offset = i64::from_be_bytes(take(left)?);
    let offset_delta = i32::from_be_bytes(take(left)?);
    let timestamp = i64::from_be_bytes(take(left)?);
    let coordinator_epoch = i32::from_be_bytes(take(left)?);
    let txn_first_offset = i64::from_be_bytes(take(left)?);
    let mut batches = VecDeque::new();
    if last_offset >= 0 && last_sequence >= 0 && offset_delta >= 0 {
        batches.push_back(BatchMetadata { last_sequence, last_offset, offset_delta, timestamp });
    }
    let entry = ProducerEntry {
        producer_epoch,
        coordinator_epoch,
        last_timestamp: timestamp,
        current_txn_first_offset: (txn_first_offset >= 0).then_some(txn_first_offset),
        batches,
    };
    Ok((producer_id, entry))
}

fn take<const N: usize>(left: &mut &[u8]) -> Result<[u8; N], SnapshotError> {
    let (head, tail) = left.split_first_chunk().ok_or(SnapshotError::Truncated)?;
    *left = tail;
    Ok(*head)
}

/// Bytes of a producer in [`ProducerStates::encode_whole`] before its batches.
const WHOLE_ENTRY_BYTES: usize = 8 + 2 + 4 + 8 + 8 + 1;
const WHOLE_BATCH_BYTES: usize = 4 + 8 + 4 + 8;

impl ProducerStates {
    /// As [`Self::encode_snapshot`], but all of it, for a start after a crash: a producer may send again whatever it was not
    /// answered. 4 bytes count; each producer: 8 id, 2 epoch, 4 coordinator epoch, 8 last timestamp, 8 first offset of the
    /// open transaction or -1, 1 number of batches; each batch: 4 last sequence, 8 last offset, 4 offset delta, 8 timestamp.
    pub fn encode_whole(&self, bytes: &mut Vec<u8>) {
        let count = u32::try_from(self.producers.len()).expect("four billion producers do not fit into memory");
        bytes.extend_from_slice(&count.to_be_bytes());
        for (producer_id, entry) in &self.producers {
            bytes.extend_from_slice(&producer_id.to_be_bytes());
            bytes.extend_from_slice(&entry.producer_epoch.to_be_bytes());
            bytes.extend_from_slice(&entry.coordinator_epoch.to_be_bytes());
            bytes.extend_from_slice(&entry.last_timestamp.to_be_bytes());
            bytes.extend_from_slice(&entry.current_txn_first_offset.unwrap_or(-1).to_be_bytes());
            bytes.push(u8::try_from(entry.batches.len()).expect("a handful is remembered"));
            for batch in &entry.batches {
                bytes.extend_from_slice(&batch.last_sequence.to_be_bytes());
                bytes.extend_from_slice(&batch.last_offset.to_be_bytes());
                bytes.extend_from_slice(&batch.offset_delta.to_be_bytes());
                bytes.extend_from_slice(&batch.timestamp.to_be_bytes());
            }
        }
    }

    /// `None` when the bytes are not exactly what [`Self::encode_whole`] writes.
    pub fn decode_whole(mut left: &[u8]) -> Option<Self> {
        let left = &mut left;
        let count = u32::from_be_bytes(take(left).ok()?);
        let mut states = Self::default();
        for _ in 0..count {
            // Nothing is made for entries that cannot be there.
            if left.len() < WHOLE_ENTRY_BYTES {
                return None;
            }
            let producer_id = i64::from_be_bytes(take(left).ok()?);
            let producer_epoch = i16::from_be_bytes(take(left).ok()?);
            let coordinator_epoch = i32::from_be_bytes(take(left).ok()?);
            let last_timestamp = i64::from_be_bytes(take(left).ok()?);
            let txn_first_offset = i64::from_be_bytes(take(left).ok()?);
            let [batch_count] = take(left).ok()?;
            if usize::from(batch_count) > BATCHES_REMEMBERED
                || left.len() < usize::from(batch_count) * WHOLE_BATCH_BYTES
            {
                return None;
            }
            let mut batches = VecDeque::with_capacity(usize::from(batch_count));
            for _ in 0..batch_count {
                batches.push_back(BatchMetadata {
                    last_sequence: i32::from_be_bytes(take(left).ok()?),
                    last_offset: i64::from_be_bytes(take(left).ok()?),
                    offset_delta: i32::from_be_bytes(take(left).ok()?),
                    timestamp: i64::from_be_bytes(take(left).ok()?),
                });
            }
            let current_txn_first_offset = (txn_first_offset >= 0).then_some(txn_first_offset);
            if let Some(first_offset) = current_txn_first_offset {
                states.ongoing.insert(first_offset, producer_id);
            }
            let entry =
                ProducerEntry { producer_epoch, coordinator_epoch, last_timestamp, current_txn_first_offset, batches };
            states.producers.insert(producer_id, entry);
        }
        left.is_empty().then_some(states)
    }
}
