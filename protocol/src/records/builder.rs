//! Batches made here: by the command line client, by coordinators and markers, by compaction and recompression.

use super::batch::{
    BATCH_HEADER_BYTES, BatchAttributes, BatchHeader, BatchMut, BatchView, LOG_OVERHEAD_BYTES, MAGIC_V2,
    NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, TimestampType,
};
use super::compression::{Compression, CompressionError, compress};
use super::record::{Header, RecordError, records_slice};
use crate::varint;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    #[error(transparent)]
    Compression(#[from] CompressionError),
    #[error("record or batch is larger than 2 GiB")]
    TooLarge,
    #[error("offset {offset} does not follow in a batch based at {base_offset}")]
    BadOffset { offset: i64, base_offset: i64 },
    #[error("timestamps {base} and {timestamp} are too far apart")]
    BadTimestamp { base: i64, timestamp: i64 },
}

/// Everything about a batch but its records. The default is what a plain producer sends.
#[derive(Clone, Copy, Debug)]
pub struct BatchOptions {
    pub compression: Compression,
    pub base_offset: i64,
    pub partition_leader_epoch: i32,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub transactional: bool,
    pub control: bool,
    /// Makes the batch one of LogAppendTime, with this time for all its records.
    pub log_append_time: Option<i64>,
    /// When compaction may drop the batch's tombstones (KIP-534); takes the place of the base timestamp.
    pub delete_horizon_ms: Option<i64>,
}

impl Default for BatchOptions {
    fn default() -> Self {
        Self {
            compression: Compression::NONE,
            base_offset: 0,
            partition_leader_epoch: NO_PARTITION_LEADER_EPOCH,
            producer_id: NO_PRODUCER_ID,
            producer_epoch: NO_PRODUCER_EPOCH,
            base_sequence: NO_SEQUENCE,
            transactional: false,
            control: false,
            log_append_time: None,
            delete_horizon_ms: None,
        }
    }
}

/// A record to be put into a batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewRecord<'a> {
    pub timestamp: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: &'a [Header<'a>],
}

/// Collects records, then builds their batch.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    options: BatchOptions,
    /// A header's worth of room, then the records without compression.
    bytes: Vec<u8>,
    record_count: i32,
    base_timestamp: i64,
    max_timestamp: i64,
    last_offset_delta: i32,
}

impl BatchBuilder {
    pub fn new(options: BatchOptions) -> Self {
        Self {
            options,
            bytes: vec![0; BATCH_HEADER_BYTES],
            record_count: 0,
            base_timestamp: options.delete_horizon_ms.unwrap_or(NO_TIMESTAMP),
            max_timestamp: NO_TIMESTAMP,
            last_offset_delta: -1,
        }
    }

    pub fn record_count(&self) -> i32 {
        self.record_count
    }

    pub fn is_empty(&self) -> bool {
        self.record_count == 0
    }

    /// Bytes of header and records so far, before compression.
    pub fn uncompressed_len(&self) -> usize {
        self.bytes.len()
    }

    /// Puts `record` right behind the one before.
    pub fn append(&mut self, record: &NewRecord<'_>) -> Result<(), BuildError> {
        let delta = self.last_offset_delta.checked_add(1).ok_or(BuildError::TooLarge)?;
        self.append_with_delta(delta, record)
    }

    /// Puts `record` at `offset`, which lies behind the one before; the gap stays. For compaction.
    pub fn append_at(&mut self, offset: i64, record: &NewRecord<'_>) -> Result<(), BuildError> {
        let delta = self.offset_delta(offset)?;
        if delta <= self.last_offset_delta {
            return Err(BuildError::BadOffset { offset, base_offset: self.options.base_offset });
        }
        self.append_with_delta(delta, record)
    }

    /// Lets the batch end at `offset` though its last records are gone. For compaction.
    pub fn extend_to(&mut self, offset: i64) -> Result<(), BuildError> {
        let delta = self.offset_delta(offset)?;
        self.last_offset_delta = self.last_offset_delta.max(delta);
        Ok(())
    }

    /// Gives a batch without records the maximum timestamp of the records it had. For compaction.
    pub fn keep_max_timestamp(&mut self, max_timestamp: i64) {
        self.max_timestamp = self.max_timestamp.max(max_timestamp);
    }

    fn offset_delta(&self, offset: i64) -> Result<i32, BuildError> {
        let base_offset = self.options.base_offset;
        let delta = offset.checked_sub(base_offset).and_then(|delta| i32::try_from(delta).ok());
        delta.filter(|delta| *delta >= 0).ok_or(BuildError::BadOffset { offset, base_offset })
    }

    fn append_with_delta(&mut self, offset_delta: i32, record: &NewRecord<'_>) -> Result<(), BuildError> {
        if self.record_count == 0 {
            self.base_timestamp = self.options.delete_horizon_ms.unwrap_or(record.timestamp);
            self.max_timestamp = record.timestamp;
        }
        let (base, timestamp) = (self.base_timestamp, record.timestamp);
        let timestamp_delta = timestamp.checked_sub(base).ok_or(BuildError::BadTimestamp { base, timestamp })?;
        let body_len = record_body_len(timestamp_delta, offset_delta, record);
        let length = i32::try_from(body_len).map_err(|_| BuildError::TooLarge)?;
        let record_count = self.record_count.checked_add(1).ok_or(BuildError::TooLarge)?;
        self.bytes.reserve(varint::i32_len(length) + body_len);
        put_varint(&mut self.bytes, length);
        write_record_body(&mut self.bytes, timestamp_delta, offset_delta, record);
        self.record_count = record_count;
        self.max_timestamp = self.max_timestamp.max(record.timestamp);
        self.last_offset_delta = offset_delta;
        Ok(())
    }

    /// The finished batch, CRC and all. Without records it is an empty batch, such as compaction keeps for a
    /// producer's last sequence.
    pub fn build(self) -> Result<Vec<u8>, BuildError> {
        let options = self.options;
        let attributes = BatchAttributes::default()
            .with_compression_type(options.compression.codec())
            .with_transactional(options.transactional)
            .with_control(options.control)
            .with_delete_horizon(options.delete_horizon_ms.is_some());
        let header = BatchHeader {
            base_offset: options.base_offset,
            batch_length: 0,
            partition_leader_epoch: options.partition_leader_epoch,
            magic: MAGIC_V2,
            crc: 0,
            attributes: match options.log_append_time {
                Some(_) => attributes.with_timestamp_type(TimestampType::LogAppendTime),
                None => attributes,
            },
            last_offset_delta: self.last_offset_delta.max(0),
            base_timestamp: self.base_timestamp,
            max_timestamp: options.log_append_time.unwrap_or(self.max_timestamp),
            producer_id: options.producer_id,
            producer_epoch: options.producer_epoch,
            base_sequence: options.base_sequence,
            record_count: self.record_count,
        };
        if options.compression == Compression::NONE {
            return finish(header, self.bytes);
        }
        let records = self.bytes.get(BATCH_HEADER_BYTES..).unwrap_or_default();
        let mut bytes = vec![0; BATCH_HEADER_BYTES];
        compress(options.compression, records, &mut bytes)?;
        finish(header, bytes)
    }
}

/// The same records under another codec. Offsets, timestamps and producer stay; length, attributes and CRC are new.
/// `scratch` holds the decompressed records, at most `limit` bytes.
pub fn recompress(
    batch: &BatchView<'_>,
    compression: Compression,
    scratch: &mut Vec<u8>,
    limit: usize,
) -> Result<Vec<u8>, RecompressError> {
    let records = records_slice(batch, scratch, limit)?;
    let mut header = *batch.header();
    header.attributes = header.attributes.with_compression_type(compression.codec());
    let mut bytes = vec![0; BATCH_HEADER_BYTES];
    compress(compression, records, &mut bytes).map_err(BuildError::from)?;
    Ok(finish(header, bytes)?)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecompressError {
    #[error(transparent)]
    Read(#[from] RecordError),
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// Writes `header` into the room kept at the front of `bytes`, with the length and CRC that these bytes have.
fn finish(mut header: BatchHeader, mut bytes: Vec<u8>) -> Result<Vec<u8>, BuildError> {
    header.batch_length =
        i32::try_from(bytes.len().saturating_sub(LOG_OVERHEAD_BYTES)).map_err(|_| BuildError::TooLarge)?;
    let mut front = Vec::with_capacity(BATCH_HEADER_BYTES);
    header.write(&mut front);
    let room = bytes.get_mut(..BATCH_HEADER_BYTES).ok_or(BuildError::TooLarge)?;
    room.copy_from_slice(&front);
    let (mut batch, _) = BatchMut::parse(&mut bytes).map_err(|_| BuildError::TooLarge)?;
    batch.recompute_crc();
    Ok(bytes)
}

fn nullable_len(bytes: Option<&[u8]>) -> usize {
    // Lengths beyond i32 are refused as a whole: the record's own length is checked.
    bytes.map_or(1, |bytes| varint::i64_len(bytes.len() as i64) + bytes.len())
}

fn record_body_len(timestamp_delta: i64, offset_delta: i32, record: &NewRecord<'_>) -> usize {
    let headers: usize =
        record.headers.iter().map(|header| nullable_len(Some(header.key)) + nullable_len(header.value)).sum();
    1 + varint::i64_len(timestamp_delta)
        + varint::i32_len(offset_delta)
        + nullable_len(record.key)
        + nullable_len(record.value)
        + varint::i64_len(record.headers.len() as i64)
        + headers
}

fn write_record_body(out: &mut Vec<u8>, timestamp_delta: i64, offset_delta: i32, record: &NewRecord<'_>) {
    out.push(0);
    put_varlong(out, timestamp_delta);
    put_varint(out, offset_delta);
    put_nullable(out, record.key);
    put_nullable(out, record.value);
    put_varlong(out, record.headers.len() as i64);
    for header in record.headers {
        put_nullable(out, Some(header.key));
        put_nullable(out, header.value);
    }
}

fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => put_varint(out, -1),
        Some(bytes) => {
            put_varlong(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
    }
}

fn put_varint(out: &mut Vec<u8>, value: i32) {
    put_varlong(out, i64::from(value));
}

/// Zigzag of 32 and 64 bits agree on every 32-bit value.
fn put_varlong(out: &mut Vec<u8>, value: i64) {
    let (bytes, len) = varint::write_u64(varint::zigzag_i64(value));
    out.extend_from_slice(bytes.get(..len).unwrap_or_default());
}

#[cfg(test)]
mod tests;
