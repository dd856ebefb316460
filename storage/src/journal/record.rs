//! Bytes of one journal record. Every number is big-endian.
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 1 | type: 1 a batch that no record had before, 3 bytes of a segment otherwise |
//! | 1 | 16 | topic id |
//! | 17 | 4 | partition |
//! | 21 | 8 | base offset of the segment |
//! | 29 | 8 | position in the segment's file, in bytes, not aligned |
//! | 37 | | what stands there, to the end of the record |
//!
//! A roll says which logs needed the journal at some moment, and where they ended. All others needed nothing of it. So what a
//! damaged stretch of the journal before it may have cost is known: see `replay::damage`.
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 1 | type: 2 |
//! | 1 | 2 | shards of the broker, which with the journal's number says whose logs are behind it |
//! | 3 | 8 | the moment: records before this sequence were there |
//! | 11 | 36 each | topic id, partition (4), first record needed (8), end offset (8) |

use bytes::{Buf, BufMut, Bytes, BytesMut};
use walser_protocol::types::Uuid;

const BATCH: u8 = 1;
const ROLL: u8 = 2;
const PART: u8 = 3;
pub const HEAD_BYTES: usize = 37;
const ROLL_HEAD_BYTES: usize = 11;
const STANDING_BYTES: usize = 36;
/// `segment.bytes` is an i32, and a batch may be above it by its own length.
const SEGMENT_END_MAX: u64 = (2 << 30) + (16 << 20);

/// Where in which segment the bytes of a record belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentBytes {
    pub topic_id: Uuid,
    pub partition: i32,
    /// Of the segment.
    pub base_offset: i64,
    /// In the segment's file, in bytes.
    pub position: u64,
}

/// What of a segment a record has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A batch, as a whole and for the first time: everything before it in its log had been journalled or flushed.
    Batch,
    /// What a record has already, or the end of a batch whose beginning is in the segment.
    Part,
}

/// What one log needs of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    pub topic_id: Uuid,
    pub partition: i32,
    /// The sequence of the first record it needs.
    pub needs_from: u64,
    /// Everything below was durable no later than the roll, or is by then in records that were there before it.
    pub end_offset: i64,
}

/// The logs that needed the journal at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roll {
    pub shard_count: u16,
    /// Records before this sequence were there.
    pub as_of: u64,
    pub standings: Vec<Standing>,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Bytes(Piece, SegmentBytes, Bytes),
    Roll(Roll),
}

/// Why a payload is no record. Its checksum was right, so it is not damage: somebody wrote it so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRecord {
    #[error("it has type {found}, which only a newer version knows: start the version that wrote it, or a newer one")]
    NewerType { found: u8 },
    #[error("its {len} bytes are no such record")]
    BadLength { len: usize },
    #[error("partition {partition}, base offset {base_offset}, position {position}, {len} bytes: no segment has that")]
    OutOfRange { partition: i32, base_offset: i64, position: u64, len: usize },
}

impl SegmentBytes {
    /// What stands in front of the bytes.
    pub fn encode_head(&self, piece: Piece) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[0] = match piece {
            Piece::Batch => BATCH,
            Piece::Part => PART,
        };
        head[1..17].copy_from_slice(self.topic_id.as_bytes());
        head[17..21].copy_from_slice(&self.partition.to_be_bytes());
        head[21..29].copy_from_slice(&self.base_offset.to_be_bytes());
        head[29..37].copy_from_slice(&self.position.to_be_bytes());
        head
    }
}

impl Roll {
    pub fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(ROLL_HEAD_BYTES + self.standings.len() * STANDING_BYTES);
        bytes.put_u8(ROLL);
        bytes.put_u16(self.shard_count);
        bytes.put_u64(self.as_of);
        for standing in &self.standings {
            bytes.put_slice(standing.topic_id.as_bytes());
            bytes.put_i32(standing.partition);
            bytes.put_u64(standing.needs_from);
            bytes.put_i64(standing.end_offset);
        }
        bytes.freeze()
    }

    fn decode(mut bytes: Bytes) -> Result<Self, BadRecord> {
        let len = bytes.len();
        let is_whole = len.checked_sub(ROLL_HEAD_BYTES).is_some_and(|entries| entries.is_multiple_of(STANDING_BYTES));
        if !is_whole {
            return Err(BadRecord::BadLength { len });
        }
        bytes.advance(1);
        let (shard_count, as_of) = (bytes.get_u16(), bytes.get_u64());
        let mut standings = Vec::with_capacity(bytes.len() / STANDING_BYTES);
        while bytes.has_remaining() {
            let topic_id = take_topic_id(&mut bytes);
            let (partition, needs_from, end_offset) = (bytes.get_i32(), bytes.get_u64(), bytes.get_i64());
            standings.push(Standing { topic_id, partition, needs_from, end_offset });
        }
        Ok(Self { shard_count, as_of, standings })
    }
}

/// Bytes of a segment are at least one.
pub fn decode(payload: Bytes) -> Result<Record, BadRecord> {
    let piece = match payload.first() {
        Some(&BATCH) | None => Piece::Batch,
        Some(&PART) => Piece::Part,
        Some(&ROLL) => return Roll::decode(payload).map(Record::Roll),
        Some(&found) => return Err(BadRecord::NewerType { found }),
    };
    if payload.len() <= HEAD_BYTES {
        return Err(BadRecord::BadLength { len: payload.len() });
    }
    let mut bytes = payload;
    bytes.advance(1);
    let topic_id = take_topic_id(&mut bytes);
    let (partition, base_offset, position) = (bytes.get_i32(), bytes.get_i64(), bytes.get_u64());
    let is_in_range = position.checked_add(bytes.len() as u64).is_some_and(|end| end <= SEGMENT_END_MAX);
    if partition < 0 || base_offset < 0 || !is_in_range {
        return Err(BadRecord::OutOfRange { partition, base_offset, position, len: bytes.len() });
    }
    Ok(Record::Bytes(piece, SegmentBytes { topic_id, partition, base_offset, position }, bytes))
}

fn take_topic_id(bytes: &mut Bytes) -> Uuid {
    let mut topic_id = [0; 16];
    bytes.copy_to_slice(&mut topic_id);
    Uuid::from_bytes(topic_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> SegmentBytes {
        SegmentBytes { topic_id: Uuid::from_bytes([7; 16]), partition: 3, base_offset: 1 << 40, position: 4711 }
    }

    fn encode(place: SegmentBytes, bytes: &[u8]) -> Bytes {
        [&place.encode_head(Piece::Batch)[..], bytes].concat().into()
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        // Rule: what was put in comes back, of every type.
        for piece in [Piece::Batch, Piece::Part] {
            let record: Bytes = [&place().encode_head(piece)[..], b"batch"].concat().into();
            assert_eq!(record.len(), HEAD_BYTES + 5);
            assert_eq!(decode(record), Ok(Record::Bytes(piece, place(), Bytes::from_static(b"batch"))));
        }
        let standing = |partition| Standing {
            topic_id: Uuid::from_bytes([9; 16]),
            partition,
            needs_from: 1 << 50,
            end_offset: 1 << 60,
        };
        for count in [0, 1, 3] {
            let roll = Roll { shard_count: 7, as_of: 12, standings: (0..count).map(standing).collect() };
            assert_eq!(decode(roll.encode()), Ok(Record::Roll(roll)));
        }
    }

    #[test]
    fn anything_else_is_an_error() {
        // Rule: no bytes panic, and a type of a later version is called that.
        let newer = [&[4][..], &[0; 60]].concat();
        let error = decode(newer.into()).unwrap_err();
        assert_eq!(error, BadRecord::NewerType { found: 4 });
        assert!(error.to_string().contains("newer version"));
        for len in 0..=HEAD_BYTES {
            assert_eq!(decode(encode(place(), b"").slice(..len)), Err(BadRecord::BadLength { len }));
        }
        for len in (1..ROLL_HEAD_BYTES).chain([ROLL_HEAD_BYTES + 1, ROLL_HEAD_BYTES + STANDING_BYTES - 1]) {
            let bytes = Bytes::from(vec![ROLL; len]);
            assert_eq!(decode(bytes), Err(BadRecord::BadLength { len }));
        }
        for (case, bad) in [
            ("partition", SegmentBytes { partition: -1, ..place() }),
            ("base offset", SegmentBytes { base_offset: -1, ..place() }),
            ("position", SegmentBytes { position: SEGMENT_END_MAX, ..place() }),
            ("overflow", SegmentBytes { position: u64::MAX, ..place() }),
        ] {
            assert!(matches!(decode(encode(bad, b"x")), Err(BadRecord::OutOfRange { .. })), "{case}");
        }
        let last = SegmentBytes { position: SEGMENT_END_MAX - 1, ..place() };
        let want = Record::Bytes(Piece::Batch, last, Bytes::from_static(b"x"));
        assert_eq!(decode(encode(last, b"x")), Ok(want));
    }
}
