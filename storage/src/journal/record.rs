//! Bytes of one journal record: a run of bytes of one segment file. Every number is big-endian.
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 1 | type: 1 segment bytes |
//! | 1 | 16 | topic id |
//! | 17 | 4 | partition |
//! | 21 | 8 | base offset of the segment |
//! | 29 | 8 | position in the segment's file, in bytes, not aligned |
//! | 37 | | what stands there, to the end of the record |

use bytes::{Buf, Bytes};
use walser_protocol::types::Uuid;

const SEGMENT_BYTES: u8 = 1;
pub const HEAD_BYTES: usize = 37;
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

/// Why a payload is no record. Its checksum was right, so it is not damage: somebody wrote it so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRecord {
    #[error("it has type {found}, which only a newer version knows: start the version that wrote it, or a newer one")]
    NewerType { found: u8 },
    #[error("it has {len} bytes, and its head alone has {HEAD_BYTES}")]
    TooShort { len: usize },
    #[error("partition {partition}, base offset {base_offset}, position {position}, {len} bytes: no segment has that")]
    OutOfRange { partition: i32, base_offset: i64, position: u64, len: usize },
}

impl SegmentBytes {
    /// What stands in front of the bytes.
    pub fn encode_head(&self) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[0] = SEGMENT_BYTES;
        head[1..17].copy_from_slice(self.topic_id.as_bytes());
        head[17..21].copy_from_slice(&self.partition.to_be_bytes());
        head[21..29].copy_from_slice(&self.base_offset.to_be_bytes());
        head[29..37].copy_from_slice(&self.position.to_be_bytes());
        head
    }
}

/// The head of a record and the bytes behind it, of which there is at least one.
pub fn decode(payload: Bytes) -> Result<(SegmentBytes, Bytes), BadRecord> {
    match payload.first() {
        Some(&SEGMENT_BYTES) | None => {}
        Some(&found) => return Err(BadRecord::NewerType { found }),
    }
    if payload.len() <= HEAD_BYTES {
        return Err(BadRecord::TooShort { len: payload.len() });
    }
    let mut bytes = payload;
    bytes.advance(1);
    let mut topic_id = [0; 16];
    bytes.copy_to_slice(&mut topic_id);
    let topic_id = Uuid::from_bytes(topic_id);
    let (partition, base_offset, position) = (bytes.get_i32(), bytes.get_i64(), bytes.get_u64());
    let is_in_range = position.checked_add(bytes.len() as u64).is_some_and(|end| end <= SEGMENT_END_MAX);
    if partition < 0 || base_offset < 0 || !is_in_range {
        return Err(BadRecord::OutOfRange { partition, base_offset, position, len: bytes.len() });
    }
    Ok((SegmentBytes { topic_id, partition, base_offset, position }, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> SegmentBytes {
        SegmentBytes { topic_id: Uuid::from_bytes([7; 16]), partition: 3, base_offset: 1 << 40, position: 4711 }
    }

    fn encode(place: SegmentBytes, bytes: &[u8]) -> Bytes {
        [&place.encode_head()[..], bytes].concat().into()
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        // Rule: head and bytes come back as they were put in.
        let record = encode(place(), b"batch");
        assert_eq!(record.len(), HEAD_BYTES + 5);
        assert_eq!(decode(record), Ok((place(), Bytes::from_static(b"batch"))));
    }

    #[test]
    fn anything_else_is_an_error() {
        // Rule: no bytes panic, and a type of a later version is called that.
        let newer = [&[2][..], &[0; 60]].concat();
        let error = decode(newer.into()).unwrap_err();
        assert_eq!(error, BadRecord::NewerType { found: 2 });
        assert!(error.to_string().contains("newer version"));
        for len in 0..=HEAD_BYTES {
            assert_eq!(decode(encode(place(), b"").slice(..len)), Err(BadRecord::TooShort { len }));
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
        assert_eq!(decode(encode(last, b"x")).map(|(place, _)| place), Ok(last));
    }
}
