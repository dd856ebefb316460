//! What is noted of a log's end from time to time, so that a start after a crash need not read what was flushed before.
//!
//! A note says: of the segment at `base_offset` the first `position` bytes hold whole batches, up to `end_offset`, and they
//! are on stable storage; the segments before it are finished. What else a scan of those bytes would have told is in the
//! note, too. A log that is idle has its file cut to just these bytes: a file of that length holds nothing else, so it is
//! not even opened. Notes never become wrong, only old, as long as the segment is not replaced by compaction; that waits
//! until a note of a later segment is kept.
//!
//! | bytes | field |
//! | --- | --- |
//! | 1 | version, 1 |
//! | 8 | base offset of the segment |
//! | 8 | end offset, exclusive |
//! | 8 | position |
//! | 8 | journalled through: what the journal holds of the log up to this sequence is in the segments |
//! | 8 | timestamp of the first batch, `i64::MIN` where it is not known |
//! | 8, 8 | largest timestamp and the offset it is at, `i64::MIN` and 0 for none |
//! | 1 | 1 when the file of leader epochs has them |
//! | 4 | leader epochs; each: 4 epoch, 8 start offset |
//! | 4 | entries of the offset index; each: 4 last offset less the base offset, 4 position |
//! | 4 | entries of the time index; each: 8 timestamp, 4 offset less the base offset |
//! | | producers, see [`ProducerStates::encode_whole`] |
//!
//! The notes of all logs are in one file, which has the checksum: [`crate::data_dir::log_ends`].

use bytes::Buf;

use crate::index::offset::{OFFSET_ENTRY_BYTES, OffsetIndex};
use crate::index::time::{TIME_ENTRY_BYTES, TimeIndex, TimestampOffset};
use crate::leader_epoch::{EpochEntry, LeaderEpochs};
use crate::producer_state::ProducerStates;
use crate::segment::FoundSegment;

const VERSION: u8 = 1;
/// Where the sequence of the journal is.
const JOURNALED_THROUGH: std::ops::Range<usize> = 25..33;
const EPOCH_BYTES: usize = 12;
const NO_TIMESTAMP: i64 = i64::MIN;
/// Index entries in a note are so many bytes of the segment apart, and more in a large one.
const INDEX_STEP_BYTES_MIN: u64 = 256 << 10;
/// Entries of each index at most.
const INDEX_ENTRIES_MAX: u64 = 256;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownEnd {
    pub base_offset: i64,
    pub end_offset: i64,
    pub position: u64,
    pub journaled_through: u64,
    pub first_timestamp: Option<i64>,
    pub largest: Option<TimestampOffset>,
    pub epochs_are_saved: bool,
    pub epochs: LeaderEpochs,
    pub offset_index: OffsetIndex,
    pub time_index: TimeIndex,
    pub producers: ProducerStates,
}

/// Why bytes are no note. The log is scanned then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KnownEndError {
    #[error("version {found} is not supported")]
    BadVersion { found: u8 },
    #[error("cut short, or too long")]
    BadLength,
    #[error("values that no log has")]
    BadValue,
}

/// How far apart index entries are in a note on a segment of this length.
fn index_step_bytes(position: u64) -> u64 {
    (position / INDEX_ENTRIES_MAX).max(INDEX_STEP_BYTES_MIN)
}

impl KnownEnd {
    /// Of indexes that hold everything.
    pub(super) fn thin(offset: &OffsetIndex, time: &TimeIndex, position: u64) -> (OffsetIndex, TimeIndex) {
        let offset = offset.thinned(index_step_bytes(position));
        let time = time.thinned(offset.len());
        (offset, time)
    }

    /// Whether these, the segments that are not trusted otherwise, hold what is noted and no more.
    pub(super) fn is_all_of(&self, untrusted: &[FoundSegment]) -> bool {
        match untrusted {
            [] => true,
            [last] => last.log_bytes == self.position,
            _ => false,
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        for number in [self.base_offset, self.end_offset] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        for number in [self.position, self.journaled_through] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        let largest = self.largest.unwrap_or(TimestampOffset { timestamp: NO_TIMESTAMP, offset: 0 });
        for number in [self.first_timestamp.unwrap_or(NO_TIMESTAMP), largest.timestamp, largest.offset] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.push(u8::from(self.epochs_are_saved));
        put_count(&mut bytes, self.epochs.entries().len());
        for entry in self.epochs.entries() {
            bytes.extend_from_slice(&entry.epoch.to_be_bytes());
            bytes.extend_from_slice(&entry.start_offset.to_be_bytes());
        }
        put_count(&mut bytes, self.offset_index.len());
        bytes.extend_from_slice(&self.offset_index.encode());
        put_count(&mut bytes, self.time_index.len());
        bytes.extend_from_slice(&self.time_index.encode());
        self.producers.encode_whole(&mut bytes);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, KnownEndError> {
        let left = &mut &bytes[..];
        let [version] = take(left)?;
        if version != VERSION {
            return Err(KnownEndError::BadVersion { found: version });
        }
        let (base_offset, end_offset) = (take_i64(left)?, take_i64(left)?);
        let (position, journaled_through) = (take_u64(left)?, take_u64(left)?);
        let first_timestamp = Some(take_i64(left)?).filter(|&timestamp| timestamp != NO_TIMESTAMP);
        let largest = TimestampOffset { timestamp: take_i64(left)?, offset: take_i64(left)? };
        let largest = Some(largest).filter(|largest| largest.timestamp != NO_TIMESTAMP);
        if base_offset < 0 || end_offset < base_offset || (position == 0) != (end_offset == base_offset) {
            return Err(KnownEndError::BadValue);
        }
        let [epochs_are_saved] = take(left)?;
        let mut epochs = LeaderEpochs::default();
        let mut entries = take_entries(left, EPOCH_BYTES)?;
        while !entries.is_empty() {
            let (epoch, start_offset) = (entries.get_i32(), entries.get_i64());
            epochs.assign(epoch, start_offset);
            if epochs.latest() != Some(EpochEntry { epoch, start_offset }) {
                return Err(KnownEndError::BadValue);
            }
        }
        let offset_index = OffsetIndex::decode(base_offset, take_entries(left, OFFSET_ENTRY_BYTES)?, position);
        let time_index = TimeIndex::decode(base_offset, take_entries(left, TIME_ENTRY_BYTES)?, end_offset);
        Ok(Self {
            base_offset,
            end_offset,
            position,
            journaled_through,
            first_timestamp,
            largest,
            epochs_are_saved: epochs_are_saved == 1,
            epochs,
            offset_index: offset_index.map_err(|_| KnownEndError::BadValue)?,
            time_index: time_index.map_err(|_| KnownEndError::BadValue)?,
            producers: ProducerStates::decode_whole(left).ok_or(KnownEndError::BadValue)?,
        })
    }
}

/// What the journal holds of the log up to this sequence is in the segments; 0 for bytes that are no note.
pub fn journaled_through(note: &[u8]) -> u64 {
    let sequence = note.get(JOURNALED_THROUGH).and_then(|bytes| bytes.try_into().ok());
    sequence.map_or(0, u64::from_be_bytes)
}

/// Says that a journal begins from which nothing is in the segments yet.
pub fn forget_journal(note: &mut [u8]) {
    if let Some(bytes) = note.get_mut(JOURNALED_THROUGH) {
        bytes.fill(0);
    }
}

fn put_count(bytes: &mut Vec<u8>, count: usize) {
    bytes.extend_from_slice(&u32::try_from(count).expect("four billion entries do not fit into memory").to_be_bytes());
}

fn take<const N: usize>(left: &mut &[u8]) -> Result<[u8; N], KnownEndError> {
    let (head, tail) = left.split_first_chunk().ok_or(KnownEndError::BadLength)?;
    *left = tail;
    Ok(*head)
}

fn take_i64(left: &mut &[u8]) -> Result<i64, KnownEndError> {
    take(left).map(i64::from_be_bytes)
}

fn take_u64(left: &mut &[u8]) -> Result<u64, KnownEndError> {
    take(left).map(u64::from_be_bytes)
}

/// A count and so many entries.
fn take_entries<'a>(left: &mut &'a [u8], entry_bytes: usize) -> Result<&'a [u8], KnownEndError> {
    let count = u32::from_be_bytes(take(left)?);
    let len = usize::try_from(count).ok().and_then(|count| count.checked_mul(entry_bytes));
    let (entries, rest) = len.and_then(|len| left.split_at_checked(len)).ok_or(KnownEndError::BadLength)?;
    *left = rest;
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use walser_protocol::records::batch::BatchHeader;

    fn known() -> KnownEnd {
        let mut epochs = LeaderEpochs::default();
        epochs.assign(0, 5);
        epochs.assign(3, 70);
        let (mut offset_index, mut time_index) = (OffsetIndex::new(50), TimeIndex::new(50));
        offset_index.append(60, 4000);
        offset_index.append(80, 9000);
        time_index.append(TimestampOffset { timestamp: 1000, offset: 60 });
        let mut producers = ProducerStates::default();
        for (at, base_sequence) in (0..7).zip((0..).step_by(2)) {
            let header = BatchHeader {
                producer_id: 7,
                producer_epoch: 1,
                base_sequence,
                last_offset_delta: 1,
                max_timestamp: 1000 + at,
                ..BatchHeader::read(&[0; 61]).expect("a header's length")
            };
            producers.note_batch(&header, 50 + 2 * at);
        }
        KnownEnd {
            base_offset: 50,
            end_offset: 90,
            position: 10_000,
            journaled_through: 17,
            first_timestamp: Some(-1),
            largest: Some(TimestampOffset { timestamp: 1006, offset: 63 }),
            epochs_are_saved: true,
            epochs,
            offset_index,
            time_index,
            producers,
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        // Rule: every batch that a producer may send again is known after a restart, not the last one only.
        let whole = known();
        assert_eq!(whole.producers.producer(7).map(|producer| producer.batches().count()), Some(5));
        assert_eq!(KnownEnd::decode(&whole.encode()), Ok(whole.clone()));
        let without = KnownEnd { first_timestamp: None, largest: None, producers: ProducerStates::default(), ..whole };
        assert_eq!(KnownEnd::decode(&without.encode()), Ok(without.clone()));
        let mut note = without.encode();
        assert_eq!(journaled_through(&note), 17);
        forget_journal(&mut note);
        assert_eq!(KnownEnd::decode(&note), Ok(KnownEnd { journaled_through: 0, ..without }));
    }

    #[test]
    fn anything_else_is_an_error() {
        // Rule: no bytes panic.
        let bytes = known().encode();
        for len in 0..bytes.len() {
            assert!(KnownEnd::decode(&bytes[..len]).is_err(), "{len} bytes");
        }
        for at in 0..bytes.len() {
            for value in [0, 0x7f, 0xff] {
                let mut bad = bytes.clone();
                bad[at] = value;
                drop(KnownEnd::decode(&bad));
            }
        }
    }
}
