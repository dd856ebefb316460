//! What Kafka sees of a partition's records before it looks the partition up: where its batches begin and end.
//!
//! The look comes in two steps, since they go wrong differently. Of every partition the first batch is framed while the
//! whole request is in hand, so one that cannot be spoils the request for all of them ([`first_batch`]). Whether there is
//! exactly one batch of the format is then asked for each partition alone ([`one_batch`]).

use walser_protocol::records::batch::{BatchAttributes, BatchError, LOG_OVERHEAD_BYTES, MAGIC_V2};
use walser_protocol::records::compression::CompressionType;

use super::ValidateError;

/// Bytes of a record of the oldest format, which is the least that a length may say.
const LENGTH_MIN: i32 = 14;
const LENGTH_AT: usize = 8;
const MAGIC_AT: usize = 16;
const ATTRIBUTES_AT: usize = 21;

/// A batch that is there to its last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framed {
    pub total_bytes: usize,
    pub magic: i8,
}

/// Frames the first batch; `None` when it is not all there.
///
/// # Errors
/// When its length or its magic are none.
pub fn first_batch(bytes: &[u8]) -> Result<Option<Framed>, BatchError> {
    let Some(length) = bytes.get(LENGTH_AT..).and_then(|rest| rest.first_chunk()) else { return Ok(None) };
    let length = i32::from_be_bytes(*length);
    if length < LENGTH_MIN {
        return Err(BatchError::BadLength { length });
    }
    let Some(magic) = bytes.get(MAGIC_AT) else { return Ok(None) };
    let magic = i8::from_be_bytes([*magic]);
    if !(0..=MAGIC_V2).contains(&magic) {
        return Err(BatchError::UnsupportedMagic { magic });
    }
    let total_bytes = LOG_OVERHEAD_BYTES + length.unsigned_abs() as usize;
    Ok((total_bytes <= bytes.len()).then_some(Framed { total_bytes, magic }))
}

/// Length of the one batch of format 2 that a partition may be sent; what follows it may only be the beginning of another,
/// which is dropped as Kafka does. `takes_zstd`: the client's version is one in which zstd was known.
///
/// # Errors
/// When there is no such batch, or more.
pub fn one_batch(bytes: &[u8], takes_zstd: bool) -> Result<usize, ValidateError> {
    let Framed { total_bytes, magic } =
        first_batch(bytes).map_err(ValidateError::Corrupt)?.ok_or(ValidateError::NoBatch)?;
    if magic != MAGIC_V2 {
        return Err(ValidateError::OldMagic { magic });
    }
    if !takes_zstd && codec(bytes) == Some(CompressionType::Zstd) {
        return Err(ValidateError::ZstdTooNew);
    }
    let rest = bytes.get(total_bytes..).unwrap_or_default();
    match first_batch(rest).map_err(ValidateError::Corrupt)? {
        None => Ok(total_bytes),
        Some(_) => Err(ValidateError::MoreThanOneBatch { bytes: rest.len() }),
    }
}

/// What the first batch of format 2 says it is compressed with; `None` when that is no codec, or there is no batch.
pub fn codec(records: &[u8]) -> Option<CompressionType> {
    let attributes = u16::from_be_bytes(*records.get(ATTRIBUTES_AT..)?.first_chunk()?);
    BatchAttributes::from_bits(attributes).compression_type().ok()
}
