//! What a producer sent, checked before it goes into a log. Pure, and bound by CPU only, so that a caller may run it for
//! large compressed batches wherever it likes.
//!
//! The rules are those of Kafka's `LogValidator` and `UnifiedLog.analyzeAndValidateRecords` for batches of clients: one
//! batch of magic 2 per partition, numbered from 0, not a control batch, with a CRC and a size that hold.

use bytes::BytesMut;
use walser_protocol::records::batch::{
    BatchError, BatchHeader, BatchView, LOG_OVERHEAD_BYTES, NO_PRODUCER_ID, TimestampType,
};

/// What the topic says about batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidateConfig {
    /// `max.message.bytes`: a whole batch, compressed, with its header.
    pub max_message_bytes: u32,
    pub is_compacted: bool,
    pub timestamp_type: TimestampType,
    pub timestamp_before_max_ms: i64,
    pub timestamp_after_max_ms: i64,
}

/// Why a batch is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValidateError {
    #[error("no record batch")]
    NoBatch,
    #[error("{bytes} bytes follow the record batch, exactly one is allowed")]
    MoreThanOneBatch { bytes: usize },
    #[error("batch of {batch_bytes} bytes exceeds max.message.bytes, {max_message_bytes}")]
    TooLarge { batch_bytes: usize, max_message_bytes: u32 },
    #[error(transparent)]
    Corrupt(BatchError),
    #[error("batch has magic {magic}, only 2 is supported")]
    UnsupportedMagic { magic: i8 },
    #[error("base offset is {base_offset} instead of 0")]
    BadBaseOffset { base_offset: i64 },
    #[error("record count {record_count} does not fit last offset delta {last_offset_delta}")]
    BadCount { record_count: i32, last_offset_delta: i32 },
    #[error("clients may not write control batches")]
    ControlBatch,
    #[error("producer {producer_id} sent base sequence {base_sequence}")]
    BadSequence { producer_id: i64, base_sequence: i32 },
    #[error("producers may not set the timestamp type LogAppendTime")]
    LogAppendTimeByProducer,
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

    pub fn into_bytes(self) -> BytesMut {
        self.bytes
    }
}

/// Checks the records field of one partition of a produce request.
pub fn validate(bytes: BytesMut, config: &ValidateConfig, now_ms: i64) -> Result<ValidBatch, ValidateError> {
    let _ = now_ms;
    let header = validate_header(&bytes, config)?;
    Ok(ValidBatch { header, bytes })
}

fn validate_header(bytes: &[u8], config: &ValidateConfig) -> Result<BatchHeader, ValidateError> {
    if bytes.len() < LOG_OVERHEAD_BYTES {
        return Err(ValidateError::NoBatch);
    }
    let (batch, rest) = BatchView::parse(bytes).map_err(|error| match error {
        BatchError::UnsupportedMagic { magic } => ValidateError::UnsupportedMagic { magic },
        BatchError::Truncated { .. }
        | BatchError::BadLength { .. }
        | BatchError::BadCrc { .. }
        | BatchError::UnknownCompressionType { .. } => ValidateError::Corrupt(error),
    })?;
    if !rest.is_empty() {
        return Err(ValidateError::MoreThanOneBatch { bytes: rest.len() });
    }
    let header = *batch.header();
    if header.base_offset != 0 {
        return Err(ValidateError::BadBaseOffset { base_offset: header.base_offset });
    }
    let batch_bytes = batch.total_len();
    if batch_bytes as u64 > u64::from(config.max_message_bytes) {
        return Err(ValidateError::TooLarge { batch_bytes, max_message_bytes: config.max_message_bytes });
    }
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
    Ok(header)
}
