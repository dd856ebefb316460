//! The records inside a batch.
//!
//! ```text
//! length varint | attributes 1 | timestamp delta varlong | offset delta varint
//! key length varint, -1 for null | key | value length varint, -1 for null | value
//! header count varint | { key length varint | key | value length varint, -1 for null | value } ...
//! ```
//! Varints are zigzag. Attributes mean nothing yet.

use super::batch::{BatchError, BatchHeader, BatchView, NO_TIMESTAMP, TimestampType};
use super::compression::{CompressionError, CompressionType, decompress};
use crate::varint;

/// Why the records of a batch are not what its header says. `index` counts records from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error(transparent)]
    Compression(#[from] CompressionError),
    #[error("record {index} ends before its {field}")]
    Truncated { index: i32, field: &'static str },
    #[error("record {index} has a {field} of {length}")]
    BadLength { index: i32, field: &'static str, length: i32 },
    #[error("record {index} has {left} bytes behind its last header")]
    TrailingBytesInRecord { index: i32, left: usize },
    #[error("record {index} has an offset delta of {found}")]
    BadOffsetDelta { index: i32, found: i32 },
    #[error("record {index} has a timestamp out of range")]
    BadTimestamp { index: i32 },
    #[error("batch claims {count} records")]
    BadRecordCount { count: i32 },
    #[error("{left} bytes behind the last record")]
    TrailingBytes { left: usize },
}

/// One record. Key, value and headers borrow from the decompressed batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub attributes: i8,
    pub offset_delta: i32,
    /// Saturates where the base offset of a batch not yet appended is nonsense.
    pub offset: i64,
    /// What a consumer sees: with LogAppendTime the batch's, else the record's own.
    pub timestamp: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
    /// Bytes on the wire, the length in front included.
    pub encoded_len: usize,
}

/// A header of a record. The key is text by agreement, not by check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
}

/// The headers of a record, walked once already: iterating meets no error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Headers<'a> {
    left: &'a [u8],
    count: i32,
}

impl Headers<'_> {
    /// Headers not yet taken.
    pub fn count_left(&self) -> usize {
        usize::try_from(self.count).unwrap_or(0)
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        if self.count <= 0 {
            return None;
        }
        self.count -= 1;
        let mut cursor = Cursor { left: self.left, index: 0 };
        let header = cursor.header().ok()?;
        self.left = cursor.left;
        Some(header)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count_left(), Some(self.count_left()))
    }
}

/// The records of a batch as bytes, decompressed into `scratch` where needed: at most `limit` bytes.
pub fn records_slice<'a>(
    batch: &BatchView<'a>,
    scratch: &'a mut Vec<u8>,
    limit: usize,
) -> Result<&'a [u8], RecordError> {
    let codec = batch.compression_type()?;
    if codec == CompressionType::None {
        return Ok(batch.records_bytes());
    }
    decompress(codec, batch.records_bytes(), scratch, limit)?;
    Ok(scratch)
}

/// Iterates over the records of a batch; the first error ends it.
///
/// Yields as many records as the header says, then [`RecordError::TrailingBytes`] if anything is left.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    header: BatchHeader,
    cursor: Cursor<'a>,
    failed: bool,
}

impl<'a> Records<'a> {
    /// `records` is what [`records_slice`] gave for the batch of `header`.
    pub fn new(header: &BatchHeader, records: &'a [u8]) -> Self {
        Self { header: *header, cursor: Cursor { left: records, index: 0 }, failed: false }
    }

    fn read(&mut self) -> Result<Record<'a>, RecordError> {
        let index = self.cursor.index;
        let before = self.cursor.left.len();
        let length = self.cursor.i32("length")?;
        let bytes = match usize::try_from(length) {
            Ok(len) => self.cursor.take(len, "length")?,
            Err(_) => return Err(RecordError::BadLength { index, field: "length", length }),
        };
        let encoded_len = before - self.cursor.left.len();
        let mut body = Cursor { left: bytes, index };
        let attributes = body.i8("attributes")?;
        let timestamp_delta = body.i64("timestamp")?;
        let offset_delta = body.i32("offset delta")?;
        let key = body.nullable_bytes("key length")?;
        let value = body.nullable_bytes("value length")?;
        let headers = body.headers()?;
        if !body.left.is_empty() {
            return Err(RecordError::TrailingBytesInRecord { index, left: body.left.len() });
        }
        let timestamp = match self.header.attributes.timestamp_type() {
            TimestampType::LogAppendTime => self.header.max_timestamp,
            TimestampType::CreateTime => {
                let sum = self.header.base_timestamp.checked_add(timestamp_delta);
                sum.ok_or(RecordError::BadTimestamp { index })?
            }
        };
        let offset = self.header.base_offset.saturating_add(i64::from(offset_delta));
        Ok(Record { attributes, offset_delta, offset, timestamp, key, value, headers, encoded_len })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        if self.header.record_count < 0 {
            self.failed = true;
            return Some(Err(RecordError::BadRecordCount { count: self.header.record_count }));
        }
        if self.cursor.index == self.header.record_count {
            self.failed = true;
            let left = self.cursor.left.len();
            return (left > 0).then_some(Err(RecordError::TrailingBytes { left }));
        }
        let record = self.read();
        self.failed = record.is_err();
        self.cursor.index += 1;
        Some(record)
    }
}

/// What offset deltas a batch may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetDeltas {
    /// 0, 1, 2 … up to the header's last: a batch as a producer sends it.
    Consecutive,
    /// Ascending within the header's last: a batch that compaction has been at.
    Ascending,
}

/// What [`validate_records`] holds a batch to.
#[derive(Clone, Copy, Debug)]
pub struct RecordLimits {
    pub decompressed_bytes_max: usize,
    pub offset_deltas: OffsetDeltas,
}

/// What one pass over the records of a batch has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordsInfo {
    pub record_count: i32,
    /// Bytes of the records without compression.
    pub decompressed_bytes: usize,
    /// [`NO_TIMESTAMP`] in an empty batch.
    pub min_timestamp: i64,
    /// [`NO_TIMESTAMP`] in an empty batch.
    pub max_timestamp: i64,
    /// Of the first record that has the maximum; -1 in an empty batch.
    pub max_timestamp_offset_delta: i32,
    /// Index of the first record without a key: compacted topics refuse the batch.
    pub first_null_key: Option<i32>,
    pub null_key_count: i32,
}

/// Reads every record of a batch and holds it against the header. Allocates nothing but `scratch`, and that only for
/// compressed batches.
pub fn validate_records(
    batch: &BatchView<'_>,
    scratch: &mut Vec<u8>,
    limits: RecordLimits,
) -> Result<RecordsInfo, RecordError> {
    let records = records_slice(batch, scratch, limits.decompressed_bytes_max)?;
    let mut info = RecordsInfo {
        record_count: batch.record_count(),
        decompressed_bytes: records.len(),
        min_timestamp: NO_TIMESTAMP,
        max_timestamp: NO_TIMESTAMP,
        max_timestamp_offset_delta: -1,
        first_null_key: None,
        null_key_count: 0,
    };
    let mut previous_delta = -1;
    for (index, record) in (0..).zip(Records::new(batch.header(), records)) {
        let record = record?;
        let in_order = match limits.offset_deltas {
            OffsetDeltas::Consecutive => record.offset_delta == index,
            OffsetDeltas::Ascending => record.offset_delta > previous_delta,
        };
        if !in_order || record.offset_delta > batch.last_offset_delta() {
            return Err(RecordError::BadOffsetDelta { index, found: record.offset_delta });
        }
        previous_delta = record.offset_delta;
        info.note(index, &record);
    }
    let last_is_missing = previous_delta != batch.last_offset_delta();
    if limits.offset_deltas == OffsetDeltas::Consecutive && last_is_missing {
        return Err(RecordError::BadRecordCount { count: batch.record_count() });
    }
    Ok(info)
}

impl RecordsInfo {
    fn note(&mut self, index: i32, record: &Record<'_>) {
        if index == 0 || record.timestamp > self.max_timestamp {
            self.max_timestamp = record.timestamp;
            self.max_timestamp_offset_delta = record.offset_delta;
        }
        if index == 0 || record.timestamp < self.min_timestamp {
            self.min_timestamp = record.timestamp;
        }
        if record.key.is_none() {
            self.first_null_key.get_or_insert(index);
            self.null_key_count += 1;
        }
    }
}

/// Bytes of one record, or of all of them; errors name the record they are in.
#[derive(Clone, Debug)]
struct Cursor<'a> {
    left: &'a [u8],
    index: i32,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn take(&mut self, len: usize, field: &'static str) -> Result<&'a [u8], RecordError> {
        let truncated = RecordError::Truncated { index: self.index, field };
        let (taken, rest) = self.left.split_at_checked(len).ok_or(truncated)?;
        self.left = rest;
        Ok(taken)
    }

    #[inline]
    fn i8(&mut self, field: &'static str) -> Result<i8, RecordError> {
        let taken = self.take(1, field)?;
        Ok(taken.first().map_or(0, |byte| i8::from_be_bytes([*byte])))
    }

    #[inline]
    fn i32(&mut self, field: &'static str) -> Result<i32, RecordError> {
        let truncated = RecordError::Truncated { index: self.index, field };
        let (value, len) = varint::read_i32(self.left).ok_or(truncated)?;
        self.take(len, field)?;
        Ok(value)
    }

    #[inline]
    fn i64(&mut self, field: &'static str) -> Result<i64, RecordError> {
        let truncated = RecordError::Truncated { index: self.index, field };
        let (value, len) = varint::read_i64(self.left).ok_or(truncated)?;
        self.take(len, field)?;
        Ok(value)
    }

    #[inline]
    fn nullable_bytes(&mut self, field: &'static str) -> Result<Option<&'a [u8]>, RecordError> {
        let length = self.i32(field)?;
        match usize::try_from(length) {
            Ok(len) => self.take(len, field).map(Some),
            Err(_) if length == -1 => Ok(None),
            Err(_) => Err(RecordError::BadLength { index: self.index, field, length }),
        }
    }

    fn header(&mut self) -> Result<Header<'a>, RecordError> {
        let null_key = RecordError::BadLength { index: self.index, field: "header key length", length: -1 };
        let key = self.nullable_bytes("header key length")?.ok_or(null_key)?;
        let value = self.nullable_bytes("header value length")?;
        Ok(Header { key, value })
    }

    /// Walks all headers, so that who iterates later meets no error.
    #[inline]
    fn headers(&mut self) -> Result<Headers<'a>, RecordError> {
        let count = self.i32("header count")?;
        if count < 0 {
            return Err(RecordError::BadLength { index: self.index, field: "header count", length: count });
        }
        let start = self.left;
        // Each header takes two bytes at least, so a count that lies ends with the bytes.
        for _ in 0..count {
            self.header()?;
        }
        Ok(Headers { left: start, count })
    }
}

#[cfg(test)]
mod tests;
