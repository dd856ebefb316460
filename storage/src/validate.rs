//! What a producer sent, checked before it goes into a log. Pure, and bound by CPU only, so that a caller may run it for
//! large compressed batches wherever it likes.
//!
//! The rules are those of Kafka's `ProduceRequest.validateRecords`, `UnifiedLog.analyzeAndValidateRecords` and
//! `LogValidator` for batches of clients: one batch of magic 2 per partition, numbered from 0, not a control batch, with a
//! CRC and a size that hold, every record whole. Two things are stricter than Kafka: offset deltas in a compressed batch
//! must count up by one, where Kafka writes the batch anew, and decompression is bounded.

pub mod framing;

use bytes::BytesMut;
use walser_protocol::records::batch::{
    BatchError, BatchHeader, BatchMut, BatchView, NO_PRODUCER_ID, NO_TIMESTAMP, TimestampType,
};
use walser_protocol::records::builder::{RecompressError, recompress};
use walser_protocol::records::compression::{Compression, CompressionError};
use walser_protocol::records::record::{
    OffsetDeltas, RecordError, RecordLimits, Records, RecordsInfo, records_slice, validate_records,
};

use framing::one_batch;

/// No batch is decompressed beyond this. A producer fills a batch up to `max.request.size` (1 MiB) before compression, so
/// only a bomb gets there.
pub const DECOMPRESSED_BYTES_MAX: usize = 64 << 20;
/// Refused records that are named one by one, as a response has room for.
const REFUSED_RECORDS_MAX: usize = 1000;

/// What the topic says about batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidateConfig {
    /// `max.message.bytes`: a whole batch, compressed, with its header.
    pub max_message_bytes: u32,
    /// `cleanup.policy` contains `compact`: every record needs a key.
    pub is_compacted: bool,
    pub timestamp_type: TimestampType,
    /// How far a record's timestamp may lie behind and ahead of the clock.
    pub timestamp_before_max_ms: i64,
    pub timestamp_after_max_ms: i64,
    /// `compression.type`; `None` keeps what the producer chose.
    pub compression: Option<Compression>,
    /// The batch whose records decompress to more is refused.
    pub decompressed_bytes_max: usize,
}

impl Default for ValidateConfig {
    /// Kafka's topic defaults.
    fn default() -> Self {
        Self {
            max_message_bytes: 1_048_588,
            is_compacted: false,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            compression: None,
            decompressed_bytes_max: DECOMPRESSED_BYTES_MAX,
        }
    }
}

/// Why one record is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// The topic is compacted.
    NoKey,
    /// `earliest..=latest` is what the topic allows at present.
    Timestamp { timestamp: i64, earliest: i64, latest: i64 },
}

/// One record that makes its batch unacceptable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedRecord {
    /// Counted from 0 in the batch.
    pub index: i32,
    pub reason: RefusalReason,
}

/// Why a batch is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValidateError {
    #[error("no record batch")]
    NoBatch,
    #[error("exactly one record batch is allowed, at least another follows in {bytes} bytes")]
    MoreThanOneBatch { bytes: usize },
    #[error("batch of {batch_bytes} bytes exceeds max.message.bytes, {max_message_bytes}")]
    TooLarge { batch_bytes: usize, max_message_bytes: u32 },
    /// Length, magic, compression type or CRC.
    #[error(transparent)]
    Corrupt(BatchError),
    /// A format of before Kafka 0.11.
    #[error("batch has magic {magic}, only 2 is supported")]
    OldMagic { magic: i8 },
    #[error("zstd is not known to clients of this request version")]
    ZstdTooNew,
    #[error("base offset is {base_offset} instead of 0")]
    BadBaseOffset { base_offset: i64 },
    #[error("record count {record_count} does not fit last offset delta {last_offset_delta}")]
    BadCount { record_count: i32, last_offset_delta: i32 },
    #[error("clients may not write control batches")]
    ControlBatch,
    #[error("producer {producer_id} sent base sequence {base_sequence}")]
    BadSequence { producer_id: i64, base_sequence: i32 },
    /// Kafka takes it as it is, but cannot write it anew.
    #[error("producer {producer_id} sent epoch {producer_epoch}, and the batch is to be compressed anew")]
    BadEpoch { producer_id: i64, producer_epoch: i16 },
    #[error("producers may not set the timestamp type LogAppendTime")]
    LogAppendTimeByProducer,
    #[error(transparent)]
    BadRecords(#[from] RecordError),
    /// In ascending order of index; not all when there are very many. Never empty.
    #[error("{} records are refused", .0.len())]
    RefusedRecords(Vec<RefusedRecord>),
    #[error("recompression: {0}")]
    Recompress(RecompressError),
}

impl ValidateError {
    /// True when the batch is refused for its records' timestamps, which has an error code of its own in Kafka.
    pub fn is_timestamp(&self) -> bool {
        match self {
            Self::LogAppendTimeByProducer => true,
            Self::RefusedRecords(refused) => {
                refused.iter().any(|record| matches!(record.reason, RefusalReason::Timestamp { .. }))
            }
            Self::NoBatch
            | Self::MoreThanOneBatch { .. }
            | Self::TooLarge { .. }
            | Self::Corrupt(_)
            | Self::OldMagic { .. }
            | Self::ZstdTooNew
            | Self::BadBaseOffset { .. }
            | Self::BadCount { .. }
            | Self::ControlBatch
            | Self::BadSequence { .. }
            | Self::BadEpoch { .. }
            | Self::BadRecords(_)
            | Self::Recompress(_) => false,
        }
    }
}

/// One batch that may be appended: all that [`validate`] checks holds.
#[derive(Debug)]
pub struct ValidBatch {
    header: BatchHeader,
    bytes: BytesMut,
}

impl ValidBatch {
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Header and records, in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a batch is never empty")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn into_bytes(self) -> BytesMut {
        self.bytes
    }

    /// A batch made in this process, by a coordinator or another writer of internal topics.
    pub fn from_trusted(bytes: BytesMut) -> Result<Self, BatchError> {
        let header = *BatchView::parse_exact(&bytes)?.header();
        Ok(Self { header, bytes })
    }
}

/// Checks the records field of one partition of a produce request, and makes of it what the topic asks for: another
/// compression, the maximum timestamp its records really have.
///
/// `scratch` is for decompressed records. Its content does not matter.
pub fn validate(
    mut bytes: BytesMut,
    config: &ValidateConfig,
    now_ms: i64,
    scratch: &mut Vec<u8>,
) -> Result<ValidBatch, ValidateError> {
    let header = check(&mut bytes, config, now_ms, scratch)?;
    Ok(ValidBatch { header, bytes })
}

/// As [`validate`], for who cannot wait for long: a batch whose records decompress to more than `small_bytes_max`, and not
/// to more than `config` allows as far as is known, comes back unchecked.
pub fn validate_small(
    mut bytes: BytesMut,
    config: &ValidateConfig,
    now_ms: i64,
    scratch: &mut Vec<u8>,
    small_bytes_max: usize,
) -> Result<Result<ValidBatch, ValidateError>, BytesMut> {
    let small =
        ValidateConfig { decompressed_bytes_max: config.decompressed_bytes_max.min(small_bytes_max), ..*config };
    match check(&mut bytes, &small, now_ms, scratch) {
        Err(ValidateError::BadRecords(RecordError::Compression(CompressionError::TooLarge { limit })))
            if limit < config.decompressed_bytes_max =>
        {
            Err(bytes)
        }
        Err(error) => Ok(Err(error)),
        Ok(header) => Ok(Ok(ValidBatch { header, bytes })),
    }
}

fn check(
    bytes: &mut BytesMut,
    config: &ValidateConfig,
    now_ms: i64,
    scratch: &mut Vec<u8>,
) -> Result<BatchHeader, ValidateError> {
    // What version the client speaks was asked where its request was read.
    bytes.truncate(one_batch(bytes, true)?);
    let batch = BatchView::parse_exact(bytes).map_err(ValidateError::Corrupt)?;
    check_header(&batch, config)?;
    let codec = batch.compression_type().map_err(ValidateError::Corrupt)?;
    let limits = RecordLimits {
        decompressed_bytes_max: config.decompressed_bytes_max,
        offset_deltas: OffsetDeltas::Consecutive,
    };
    let info = validate_records(&batch, scratch, limits)?;
    check_records(&batch, &info, config, now_ms, scratch)?;
    if let Some(target) = config.compression.filter(|target| target.codec() != codec) {
        check_epoch(batch.header())?;
        let recompressed = recompress(&batch, target, scratch, config.decompressed_bytes_max);
        *bytes = BytesMut::from(&recompressed.map_err(ValidateError::Recompress)?[..]);
        check_size(bytes.len(), config)?;
    }
    let (mut fields, _) = BatchMut::parse(bytes).map_err(ValidateError::Corrupt)?;
    // With LogAppendTime the append sets its own.
    if config.timestamp_type == TimestampType::CreateTime {
        fields.set_max_timestamp(info.max_timestamp);
    }
    Ok(*fields.view().map_err(ValidateError::Corrupt)?.header())
}

fn check_header(batch: &BatchView<'_>, config: &ValidateConfig) -> Result<(), ValidateError> {
    let header = batch.header();
    if header.base_offset != 0 {
        return Err(ValidateError::BadBaseOffset { base_offset: header.base_offset });
    }
    check_size(batch.total_len(), config)?;
    batch.verify_crc().map_err(ValidateError::Corrupt)?;
    let (record_count, last_offset_delta) = (header.record_count, header.last_offset_delta);
    if record_count <= 0 || last_offset_delta.checked_add(1) != Some(record_count) {
        return Err(ValidateError::BadCount { record_count, last_offset_delta });
    }
    if header.attributes.is_control() {
        return Err(ValidateError::ControlBatch);
    }
    if header.producer_id != NO_PRODUCER_ID && header.base_sequence < 0 {
        let (producer_id, base_sequence) = (header.producer_id, header.base_sequence);
        return Err(ValidateError::BadSequence { producer_id, base_sequence });
    }
    if header.attributes.timestamp_type() == TimestampType::LogAppendTime {
        return Err(ValidateError::LogAppendTimeByProducer);
    }
    Ok(())
}

fn check_epoch(header: &BatchHeader) -> Result<(), ValidateError> {
    let (producer_id, producer_epoch) = (header.producer_id, header.producer_epoch);
    if producer_id != NO_PRODUCER_ID && producer_epoch < 0 {
        return Err(ValidateError::BadEpoch { producer_id, producer_epoch });
    }
    Ok(())
}

fn check_size(batch_bytes: usize, config: &ValidateConfig) -> Result<(), ValidateError> {
    let max_message_bytes = config.max_message_bytes;
    if batch_bytes as u64 > u64::from(max_message_bytes) {
        return Err(ValidateError::TooLarge { batch_bytes, max_message_bytes });
    }
    Ok(())
}

fn check_records(
    batch: &BatchView<'_>,
    info: &RecordsInfo,
    config: &ValidateConfig,
    now_ms: i64,
    scratch: &mut Vec<u8>,
) -> Result<(), ValidateError> {
    let bounds = TimestampBounds::new(config, now_ms);
    let timestamps_fit = bounds.allow(info.max_timestamp) && bounds.allow(info.min_timestamp);
    // A record without a timestamp hides the smallest one of the others.
    let is_min_hidden = info.min_timestamp == NO_TIMESTAMP && bounds.earliest > 0;
    let lacks_key = config.is_compacted && info.first_null_key.is_some();
    if timestamps_fit && !is_min_hidden && !lacks_key {
        return Ok(());
    }
    let refused = refused_records(batch, config, bounds, scratch)?;
    if refused.is_empty() { Ok(()) } else { Err(ValidateError::RefusedRecords(refused)) }
}

#[derive(Clone, Copy)]
struct TimestampBounds {
    earliest: i64,
    latest: i64,
}

impl TimestampBounds {
    /// A broker's own time is always allowed.
    fn new(config: &ValidateConfig, now_ms: i64) -> Self {
        match config.timestamp_type {
            TimestampType::LogAppendTime => Self { earliest: i64::MIN, latest: i64::MAX },
            TimestampType::CreateTime => Self {
                earliest: now_ms.saturating_sub(config.timestamp_before_max_ms),
                latest: now_ms.saturating_add(config.timestamp_after_max_ms),
            },
        }
    }

    fn allow(self, timestamp: i64) -> bool {
        timestamp == NO_TIMESTAMP || (self.earliest..=self.latest).contains(&timestamp)
    }
}

fn refused_records(
    batch: &BatchView<'_>,
    config: &ValidateConfig,
    bounds: TimestampBounds,
    scratch: &mut Vec<u8>,
) -> Result<Vec<RefusedRecord>, ValidateError> {
    let TimestampBounds { earliest, latest } = bounds;
    let records = records_slice(batch, scratch, config.decompressed_bytes_max)?;
    let mut refused = Vec::new();
    for (index, record) in (0..).zip(Records::new(batch.header(), records)) {
        let record = record?;
        let reason = if config.is_compacted && record.key.is_none() {
            RefusalReason::NoKey
        } else if !bounds.allow(record.timestamp) {
            RefusalReason::Timestamp { timestamp: record.timestamp, earliest, latest }
        } else {
            continue;
        };
        refused.push(RefusedRecord { index, reason });
        if refused.len() == REFUSED_RECORDS_MAX {
            break;
        }
    }
    Ok(refused)
}

#[cfg(test)]
mod tests;
