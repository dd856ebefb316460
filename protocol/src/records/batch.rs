//! One record batch of format 2: its header, and the fields a broker changes in place.
//!
//! ```text
//! position  bytes  field                       inside the CRC
//!        0      8  base offset                 no: the leader assigns it
//!        8      4  length of all that follows  no
//!       12      4  partition leader epoch      no: the leader assigns it
//!       16      1  magic, 2                    no
//!       17      4  CRC-32C                     no
//!       21      2  attributes                  from here to the end
//!       23      4  last offset delta
//!       27      8  base timestamp, or delete horizon (attribute bit 6)
//!       35      8  max timestamp
//!       43      8  producer id, -1 for none
//!       51      2  producer epoch, -1 for none
//!       53      4  base sequence, -1 for none
//!       57      4  record count
//!       61         records, compressed as the attributes say
//! ```
//!
//! Attributes: bits 0-2 compression type, 3 timestamp type (1 = LogAppendTime), 4 transactional, 5 control,
//! 6 the base timestamp is a delete horizon (KIP-534).

use super::compression::CompressionType;
use super::crc::crc32c;

/// Bytes before the first record.
pub const BATCH_HEADER_BYTES: usize = 61;
/// Base offset and length: what the length field does not count.
pub const LOG_OVERHEAD_BYTES: usize = 12;
/// The only format a 4.x client may send.
pub const MAGIC_V2: i8 = 2;

pub const NO_PRODUCER_ID: i64 = -1;
pub const NO_PRODUCER_EPOCH: i16 = -1;
pub const NO_SEQUENCE: i32 = -1;
pub const NO_TIMESTAMP: i64 = -1;
pub const NO_PARTITION_LEADER_EPOCH: i32 = -1;

const PARTITION_LEADER_EPOCH_AT: usize = 12;
const MAGIC_AT: usize = 16;
const CRC_AT: usize = 17;
const ATTRIBUTES_AT: usize = 21;
const MAX_TIMESTAMP_AT: usize = 35;

/// Why bytes are not a batch, or not one to trust.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The bytes end before the batch does: the usual end of a fetch answer, or a torn tail of a file.
    #[error("batch cut short: {have} bytes of at least {need}")]
    Truncated { need: usize, have: usize },
    #[error("batch length {length} is less than a batch header needs")]
    BadLength { length: i32 },
    #[error("batch has magic {magic}, only 2 is supported")]
    UnsupportedMagic { magic: i8 },
    #[error("batch CRC is {stored:#010x}, its bytes give {computed:#010x}")]
    BadCrc { stored: u32, computed: u32 },
    #[error("batch has unknown compression type {id}")]
    UnknownCompressionType { id: u8 },
}

/// What a record's timestamp means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    CreateTime,
    LogAppendTime,
}

/// The 16 attribute bits of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct BatchAttributes(u16);

impl BatchAttributes {
    const COMPRESSION_MASK: u16 = 0b0000_0111;
    const LOG_APPEND_TIME: u16 = 0b0000_1000;
    const TRANSACTIONAL: u16 = 0b0001_0000;
    const CONTROL: u16 = 0b0010_0000;
    const DELETE_HORIZON: u16 = 0b0100_0000;

    pub fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    pub fn bits(self) -> u16 {
        self.0
    }

    pub fn compression_type(self) -> Result<CompressionType, BatchError> {
        // The mask leaves three bits.
        CompressionType::from_id((self.0 & Self::COMPRESSION_MASK) as u8)
    }

    pub fn timestamp_type(self) -> TimestampType {
        if self.0 & Self::LOG_APPEND_TIME == 0 { TimestampType::CreateTime } else { TimestampType::LogAppendTime }
    }

    pub fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    pub fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    pub fn has_delete_horizon(self) -> bool {
        self.0 & Self::DELETE_HORIZON != 0
    }

    #[must_use]
    pub fn with_compression_type(self, codec: CompressionType) -> Self {
        Self((self.0 & !Self::COMPRESSION_MASK) | u16::from(codec.id()))
    }

    #[must_use]
    pub fn with_timestamp_type(self, timestamp_type: TimestampType) -> Self {
        self.with(Self::LOG_APPEND_TIME, timestamp_type == TimestampType::LogAppendTime)
    }

    #[must_use]
    pub fn with_transactional(self, on: bool) -> Self {
        self.with(Self::TRANSACTIONAL, on)
    }

    #[must_use]
    pub fn with_control(self, on: bool) -> Self {
        self.with(Self::CONTROL, on)
    }

    #[must_use]
    pub fn with_delete_horizon(self, on: bool) -> Self {
        self.with(Self::DELETE_HORIZON, on)
    }

    fn with(self, bit: u16, on: bool) -> Self {
        if on { Self(self.0 | bit) } else { Self(self.0 & !bit) }
    }
}

/// The fields of a batch header, as they stand on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    pub base_offset: i64,
    /// Bytes after this field; see [`LOG_OVERHEAD_BYTES`].
    pub batch_length: i32,
    pub partition_leader_epoch: i32,
    pub magic: i8,
    pub crc: u32,
    pub attributes: BatchAttributes,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub record_count: i32,
}

impl BatchHeader {
    /// `None` when `bytes` is shorter than a header.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut left = bytes;
        Some(Self {
            base_offset: i64::from_be_bytes(take(&mut left)?),
            batch_length: i32::from_be_bytes(take(&mut left)?),
            partition_leader_epoch: i32::from_be_bytes(take(&mut left)?),
            magic: i8::from_be_bytes(take(&mut left)?),
            crc: u32::from_be_bytes(take(&mut left)?),
            attributes: BatchAttributes::from_bits(u16::from_be_bytes(take(&mut left)?)),
            last_offset_delta: i32::from_be_bytes(take(&mut left)?),
            base_timestamp: i64::from_be_bytes(take(&mut left)?),
            max_timestamp: i64::from_be_bytes(take(&mut left)?),
            producer_id: i64::from_be_bytes(take(&mut left)?),
            producer_epoch: i16::from_be_bytes(take(&mut left)?),
            base_sequence: i32::from_be_bytes(take(&mut left)?),
            record_count: i32::from_be_bytes(take(&mut left)?),
        })
    }

    /// The header's bytes, CRC included as it stands in the field.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.base_offset.to_be_bytes());
        out.extend_from_slice(&self.batch_length.to_be_bytes());
        out.extend_from_slice(&self.partition_leader_epoch.to_be_bytes());
        out.extend_from_slice(&self.magic.to_be_bytes());
        out.extend_from_slice(&self.crc.to_be_bytes());
        out.extend_from_slice(&self.attributes.bits().to_be_bytes());
        out.extend_from_slice(&self.last_offset_delta.to_be_bytes());
        out.extend_from_slice(&self.base_timestamp.to_be_bytes());
        out.extend_from_slice(&self.max_timestamp.to_be_bytes());
        out.extend_from_slice(&self.producer_id.to_be_bytes());
        out.extend_from_slice(&self.producer_epoch.to_be_bytes());
        out.extend_from_slice(&self.base_sequence.to_be_bytes());
        out.extend_from_slice(&self.record_count.to_be_bytes());
    }
}

fn take<const N: usize>(left: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = left.split_first_chunk()?;
    *left = tail;
    Some(*head)
}

/// One whole batch: its length and magic hold, nothing else of it has been believed.
#[derive(Clone, Copy, Debug)]
pub struct BatchView<'a> {
    header: BatchHeader,
    bytes: &'a [u8],
}

impl<'a> BatchView<'a> {
    /// Splits the first batch off `bytes`; the second half of the answer is what follows it.
    ///
    /// Checks length and magic. The CRC is [`Self::verify_crc`]'s, the records are
    /// [`super::record::validate_records`]'s business.
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), BatchError> {
        let total_len = batch_total_len(bytes)?;
        let truncated = BatchError::Truncated { need: total_len, have: bytes.len() };
        let (batch, rest) = bytes.split_at_checked(total_len).ok_or(truncated)?;
        let header = BatchHeader::read(batch).ok_or(truncated)?;
        Ok((Self { header, bytes: batch }, rest))
    }

    /// As [`Self::parse`], for bytes that must hold one batch and nothing more.
    pub fn parse_exact(bytes: &'a [u8]) -> Result<Self, BatchError> {
        let (batch, rest) = Self::parse(bytes)?;
        if rest.is_empty() { Ok(batch) } else { Err(BatchError::BadLength { length: batch.batch_length() }) }
    }

    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The whole batch.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Header and records, in bytes.
    pub fn total_len(&self) -> usize {
        self.bytes.len()
    }

    /// What follows the header: the records, compressed or not.
    pub fn records_bytes(&self) -> &'a [u8] {
        self.bytes.get(BATCH_HEADER_BYTES..).unwrap_or_default()
    }

    pub fn base_offset(&self) -> i64 {
        self.header.base_offset
    }

    /// Bytes after the length field: [`Self::total_len`] less [`LOG_OVERHEAD_BYTES`].
    pub fn batch_length(&self) -> i32 {
        self.header.batch_length
    }

    pub fn partition_leader_epoch(&self) -> i32 {
        self.header.partition_leader_epoch
    }

    pub fn magic(&self) -> i8 {
        self.header.magic
    }

    pub fn crc(&self) -> u32 {
        self.header.crc
    }

    pub fn attributes(&self) -> BatchAttributes {
        self.header.attributes
    }

    pub fn last_offset_delta(&self) -> i32 {
        self.header.last_offset_delta
    }

    /// The raw field; a delete horizon when the attributes say so.
    pub fn base_timestamp(&self) -> i64 {
        self.header.base_timestamp
    }

    pub fn max_timestamp(&self) -> i64 {
        self.header.max_timestamp
    }

    pub fn producer_id(&self) -> i64 {
        self.header.producer_id
    }

    pub fn producer_epoch(&self) -> i16 {
        self.header.producer_epoch
    }

    pub fn base_sequence(&self) -> i32 {
        self.header.base_sequence
    }

    pub fn record_count(&self) -> i32 {
        self.header.record_count
    }

    /// Offset of the last record (after compaction: of the last the batch once had). Saturates on nonsense.
    pub fn last_offset(&self) -> i64 {
        self.base_offset().saturating_add(i64::from(self.last_offset_delta()))
    }

    /// Offset of what follows the batch.
    pub fn next_offset(&self) -> i64 {
        self.last_offset().saturating_add(1)
    }

    /// Sequence of the last record; [`NO_SEQUENCE`] without a producer.
    pub fn last_sequence(&self) -> i32 {
        match self.base_sequence() {
            ..0 => NO_SEQUENCE,
            base => sequence_add(base, self.last_offset_delta()),
        }
    }

    /// The batch came from an idempotent or transactional producer.
    pub fn has_producer_id(&self) -> bool {
        self.producer_id() > NO_PRODUCER_ID
    }

    pub fn compression_type(&self) -> Result<CompressionType, BatchError> {
        self.attributes().compression_type()
    }

    pub fn timestamp_type(&self) -> TimestampType {
        self.attributes().timestamp_type()
    }

    pub fn is_transactional(&self) -> bool {
        self.attributes().is_transactional()
    }

    pub fn is_control(&self) -> bool {
        self.attributes().is_control()
    }

    /// The time after which compaction may drop the batch's tombstones (KIP-534).
    pub fn delete_horizon_ms(&self) -> Option<i64> {
        self.attributes().has_delete_horizon().then_some(self.base_timestamp())
    }

    pub fn computed_crc(&self) -> u32 {
        crc32c(self.bytes.get(ATTRIBUTES_AT..).unwrap_or_default())
    }

    pub fn verify_crc(&self) -> Result<(), BatchError> {
        let (stored, computed) = (self.crc(), self.computed_crc());
        if stored == computed { Ok(()) } else { Err(BatchError::BadCrc { stored, computed }) }
    }
}

/// Length of the batch at the start of `bytes`, header included, though not all of it need be there.
///
/// Seventeen bytes are enough for an answer, so that a reader of a file learns how much to read.
pub fn batch_total_len(bytes: &[u8]) -> Result<usize, BatchError> {
    let truncated = BatchError::Truncated { need: BATCH_HEADER_BYTES, have: bytes.len() };
    let magic = i8::from_be_bytes([*bytes.get(MAGIC_AT).ok_or(truncated)?]);
    if magic != MAGIC_V2 {
        return Err(BatchError::UnsupportedMagic { magic });
    }
    let length = bytes.get(8..).and_then(|tail| tail.first_chunk()).ok_or(truncated)?;
    let length = i32::from_be_bytes(*length);
    match usize::try_from(length) {
        Ok(after) if after >= BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES => Ok(LOG_OVERHEAD_BYTES.saturating_add(after)),
        _ => Err(BatchError::BadLength { length }),
    }
}

/// Consecutive batches of a slice. The first error ends the iteration: what follows a bad batch cannot be found.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    left: &'a [u8],
    position: usize,
    failed: bool,
}

impl<'a> Batches<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes, position: 0, failed: false }
    }

    /// End of the last whole batch, in bytes from the start of the slice.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The bytes behind the last whole batch.
    pub fn rest(&self) -> &'a [u8] {
        self.left
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<BatchView<'a>, BatchError>;

    /// A tail that is not a whole batch comes as [`BatchError::Truncated`], once.
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.left.is_empty() {
            return None;
        }
        match BatchView::parse(self.left) {
            Ok((batch, rest)) => {
                self.position += batch.total_len();
                self.left = rest;
                Some(Ok(batch))
            }
            Err(error) => {
                self.failed = true;
                Some(Err(error))
            }
        }
    }
}

/// The fields a broker writes into a batch it has accepted. All else stays byte for byte as sent.
#[derive(Debug)]
pub struct BatchMut<'a> {
    bytes: &'a mut [u8],
}

impl<'a> BatchMut<'a> {
    /// Splits the first batch off `bytes`, with the checks of [`BatchView::parse`].
    pub fn parse(bytes: &'a mut [u8]) -> Result<(Self, &'a mut [u8]), BatchError> {
        let total_len = batch_total_len(bytes)?;
        let truncated = BatchError::Truncated { need: total_len, have: bytes.len() };
        let (batch, rest) = bytes.split_at_mut_checked(total_len).ok_or(truncated)?;
        Ok((Self { bytes: batch }, rest))
    }

    /// The batch as it now stands.
    pub fn view(&self) -> Result<BatchView<'_>, BatchError> {
        BatchView::parse_exact(self.bytes)
    }

    /// Outside the CRC.
    pub fn set_base_offset(&mut self, base_offset: i64) {
        self.put(0, &base_offset.to_be_bytes());
    }

    /// Outside the CRC.
    pub fn set_partition_leader_epoch(&mut self, leader_epoch: i32) {
        self.put(PARTITION_LEADER_EPOCH_AT, &leader_epoch.to_be_bytes());
    }

    /// Makes the batch one of LogAppendTime: every record then has `max_timestamp`, whatever its delta says.
    pub fn set_log_append_time(&mut self, max_timestamp: i64) {
        self.set_timestamp(TimestampType::LogAppendTime, max_timestamp);
    }

    /// Makes the batch one of CreateTime with the maximum its records really have.
    pub fn set_max_timestamp(&mut self, max_timestamp: i64) {
        self.set_timestamp(TimestampType::CreateTime, max_timestamp);
    }

    /// The CRC covers both fields; it is computed anew only when one changes.
    fn set_timestamp(&mut self, timestamp_type: TimestampType, max_timestamp: i64) {
        let Some(header) = BatchHeader::read(self.bytes) else { return };
        if header.attributes.timestamp_type() == timestamp_type && header.max_timestamp == max_timestamp {
            return;
        }
        let attributes = header.attributes.with_timestamp_type(timestamp_type);
        self.put(ATTRIBUTES_AT, &attributes.bits().to_be_bytes());
        self.put(MAX_TIMESTAMP_AT, &max_timestamp.to_be_bytes());
        self.recompute_crc();
    }

    /// For bytes made here: a batch from a client keeps the CRC it was checked with.
    pub fn recompute_crc(&mut self) {
        let crc = crc32c(self.bytes.get(ATTRIBUTES_AT..).unwrap_or_default());
        self.put(CRC_AT, &crc.to_be_bytes());
    }

    fn put(&mut self, position: usize, value: &[u8]) {
        // The batch is at least a header long, so the field is there.
        if let Some(field) = self.bytes.get_mut(position..position + value.len()) {
            field.copy_from_slice(value);
        }
    }
}

/// The sequence `count` records after `sequence`; sequences run from 0 to 2^31 - 1 and then start at 0 again.
pub fn sequence_add(sequence: i32, count: i32) -> i32 {
    sequence_wrap(i64::from(sequence) + i64::from(count))
}

/// The sequence `count` records before `sequence`.
pub fn sequence_subtract(sequence: i32, count: i32) -> i32 {
    sequence_wrap(i64::from(sequence) - i64::from(count))
}

fn sequence_wrap(sum: i64) -> i32 {
    const SEQUENCES: i64 = 1 << 31;
    // The remainder is below 2^31.
    sum.rem_euclid(SEQUENCES) as i32
}

#[cfg(test)]
mod tests;
