//! Errors of operations, given Kafka's codes and a text for the client: once, here, exhaustively.

use walser_protocol::ErrorCode;
use walser_protocol::records::batch::TimestampType;
use walser_protocol::records::compression::{Compression, CompressionType};
use walser_storage::error::{AppendError, CommitError, LogOffline, ReadError};
use walser_storage::producer_state::ProducerError;
use walser_storage::validate::{RefusalReason, RefusedRecord, ValidateConfig, ValidateError};

use crate::config::topic::{CompressionPolicy, TopicConfig};

/// Why a partition of a request got nothing, as the response says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: ErrorCode,
    /// For responses that carry a text.
    pub message: Option<String>,
    /// Index in the batch and what is wrong with that record (KIP-467).
    pub record_errors: Vec<(i32, Option<String>)>,
    /// -1 where unknown.
    pub log_start_offset: i64,
}

impl Refusal {
    /// An error that needs no words.
    pub const fn of(code: ErrorCode) -> Self {
        Self { code, message: None, record_errors: Vec::new(), log_start_offset: -1 }
    }

    pub fn with_message(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { message: Some(message.into()), ..Self::of(code) }
    }
}

impl Refusal {
    /// Of a batch that was not accepted as it came.
    pub fn from_validate(error: &ValidateError, log_start_offset: i64) -> Self {
        let code = match error {
            refused if refused.is_timestamp() => ErrorCode::InvalidTimestamp,
            ValidateError::TooLarge { .. } => ErrorCode::MessageTooLarge,
            ValidateError::Corrupt(_) => ErrorCode::CorruptMessage,
            ValidateError::ZstdTooNew => ErrorCode::UnsupportedCompressionType,
            ValidateError::NoBatch
            | ValidateError::MoreThanOneBatch { .. }
            | ValidateError::OldMagic { .. }
            | ValidateError::BadBaseOffset { .. }
            | ValidateError::BadCount { .. }
            | ValidateError::ControlBatch
            | ValidateError::BadSequence { .. }
            | ValidateError::BadEpoch { .. }
            | ValidateError::LogAppendTimeByProducer
            | ValidateError::BadRecords(_)
            | ValidateError::RefusedRecords(_)
            | ValidateError::Recompress(_) => ErrorCode::InvalidRecord,
        };
        let record_errors = if let ValidateError::RefusedRecords(refused) = error {
            refused.iter().map(record_error).collect()
        } else {
            Vec::new()
        };
        // Of these Kafka finds out before it asks the log, or tells it no better.
        let is_said = !matches!(
            error,
            ValidateError::NoBatch
                | ValidateError::MoreThanOneBatch { .. }
                | ValidateError::OldMagic { .. }
                | ValidateError::ZstdTooNew
                | ValidateError::Corrupt(_)
                | ValidateError::TooLarge { .. }
        );
        let log_start_offset = if is_said { log_start_offset } else { -1 };
        Self { log_start_offset, record_errors, ..Self::with_message(code, error.to_string()) }
    }

    /// Of a batch that the log did not take.
    pub fn from_append(error: &AppendError, log_start_offset: i64) -> Self {
        let code = match error {
            AppendError::Producer(error) => match error {
                ProducerError::InvalidEpoch { .. } => ErrorCode::InvalidProducerEpoch,
                ProducerError::OutOfOrderSequence { .. } | ProducerError::NewEpochNotAtZero { .. } => {
                    ErrorCode::OutOfOrderSequenceNumber
                }
                ProducerError::NotTransactional { .. } => ErrorCode::InvalidTxnState,
                ProducerError::CoordinatorFenced { .. } => ErrorCode::TransactionCoordinatorFenced,
            },
            AppendError::BatchExceedsSegment { .. } => ErrorCode::RecordListTooLarge,
            // A produce request names no epoch: leadership lost before or during the write is one error.
            AppendError::StaleLeaderEpoch { .. } => ErrorCode::NotLeaderOrFollower,
            // Both retriable, after a refresh of the metadata that finds the same leader again.
            AppendError::Overloaded { .. } | AppendError::Unavailable(_) => ErrorCode::KafkaStorageError,
            AppendError::OffsetsExhausted => ErrorCode::InvalidRecord,
            AppendError::Offline(error) => offline_code(error),
        };
        let is_said = matches!(error, AppendError::Producer(_) | AppendError::OffsetsExhausted);
        let log_start_offset = if is_said { log_start_offset } else { -1 };
        Self { log_start_offset, ..Self::with_message(code, error.to_string()) }
    }

    /// Of a batch that is in the log and did not become durable in time.
    pub fn from_commit(error: &CommitError) -> Self {
        let code = match error {
            CommitError::Unavailable(_) => ErrorCode::KafkaStorageError,
            CommitError::Offline(error) => offline_code(error),
        };
        Self::with_message(code, error.to_string())
    }

    /// Of a read.
    pub fn from_read(error: &ReadError) -> Self {
        let code = match error {
            ReadError::OffsetOutOfRange { .. } => ErrorCode::OffsetOutOfRange,
            ReadError::Corrupt(corruption) => {
                tracing::error!(%corruption, "read refused");
                ErrorCode::CorruptMessage
            }
            ReadError::Disk(error) => {
                tracing::error!(%error, "read failed");
                ErrorCode::KafkaStorageError
            }
        };
        Self::with_message(code, error.to_string())
    }
}

fn record_error(refused: &RefusedRecord) -> (i32, Option<String>) {
    let message = match refused.reason {
        RefusalReason::NoKey => "a compacted topic takes no record without a key".to_owned(),
        RefusalReason::Timestamp { timestamp, earliest, latest } => {
            format!("timestamp {timestamp} is not within {earliest} to {latest}")
        }
    };
    (refused.index, Some(message))
}

fn offline_code(error: &LogOffline) -> ErrorCode {
    match error {
        LogOffline::Failed(_) | LogOffline::Corrupt(_) => ErrorCode::KafkaStorageError,
        // Deleted, or the broker stops: the client asks for the metadata and finds out.
        LogOffline::Closed => ErrorCode::NotLeaderOrFollower,
    }
}

/// What storage checks of a batch on a topic with this configuration.
///
/// `memory_bytes_max`: what this broker can spare for the records of one batch.
pub fn validate_config(config: &TopicConfig, memory_bytes_max: usize) -> ValidateConfig {
    let decompressed_bytes_max = usize::try_from(config.max_decompressed_message_bytes).unwrap_or(usize::MAX);
    ValidateConfig {
        max_message_bytes: config.max_message_bytes.unsigned_abs(),
        is_compacted: config.cleanup.compact,
        timestamp_type: match config.timestamp_type {
            crate::config::topic::TimestampType::CreateTime => TimestampType::CreateTime,
            crate::config::topic::TimestampType::LogAppendTime => TimestampType::LogAppendTime,
        },
        timestamp_before_max_ms: config.timestamp_before_max_ms,
        timestamp_after_max_ms: config.timestamp_after_max_ms,
        compression: compression(config.compression),
        decompressed_bytes_max: decompressed_bytes_max.min(memory_bytes_max),
    }
}

/// `compression.type` and its level; `None` keeps what the producer chose. Levels were checked when they were set.
fn compression(policy: CompressionPolicy) -> Option<Compression> {
    let (codec, level) = match policy {
        CompressionPolicy::Producer => return None,
        CompressionPolicy::Uncompressed => (CompressionType::None, 0),
        CompressionPolicy::Gzip { level } => (CompressionType::Gzip, level),
        CompressionPolicy::Snappy => (CompressionType::Snappy, 0),
        CompressionPolicy::Lz4 { level } => (CompressionType::Lz4, level),
        CompressionPolicy::Zstd { level } => (CompressionType::Zstd, level),
    };
    Some(Compression::with_level(codec, level).unwrap_or_else(|_| Compression::new(codec)))
}
