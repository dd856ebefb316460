//! Compression of the records inside a batch.
//!
//! Output is bounded while it is produced: a batch of a few bytes that swells to gigabytes costs no more memory than the
//! caller's limit, and what is not a stream of the named codec is an error, never a panic.

mod lz4;
mod snappy;

use std::io::{Read, Write};

use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use zstd::zstd_safe;

use super::batch::BatchError;

/// Least memory reserved for output whose length is not known.
const OUTPUT_BYTES_MIN: usize = 4 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompressionError {
    #[error("decompresses to more than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("not a valid {codec} stream")]
    Corrupt { codec: CompressionType },
    #[error("{codec} cannot compress this")]
    CannotCompress { codec: CompressionType },
    #[error("{codec} has no level {level}")]
    BadLevel { codec: CompressionType, level: i32 },
}

/// The low three bits of a batch's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompressionType {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl CompressionType {
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// Ids 5 to 7 mean nothing yet.
    pub fn from_id(id: u8) -> Result<Self, BatchError> {
        match id {
            0 => Ok(Self::None),
            1 => Ok(Self::Gzip),
            2 => Ok(Self::Snappy),
            3 => Ok(Self::Lz4),
            4 => Ok(Self::Zstd),
            _ => Err(BatchError::UnknownCompressionType { id }),
        }
    }

    pub fn id(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }

    /// The name in `compression.type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.name() == name)
    }
}

impl std::fmt::Display for CompressionType {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.pad(self.name())
    }
}

/// A codec with a level it knows, as `compression.type` and `compression.*.level` give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    codec: CompressionType,
    level: i32,
}

impl Compression {
    pub const NONE: Self = Self { codec: CompressionType::None, level: 0 };

    /// The codec at Kafka's default level.
    pub fn new(codec: CompressionType) -> Self {
        let level = match codec {
            CompressionType::None | CompressionType::Snappy => 0,
            CompressionType::Gzip => -1,
            CompressionType::Lz4 => 9,
            CompressionType::Zstd => 3,
        };
        Self { codec, level }
    }

    /// gzip has -1 (default) and 1 to 9, lz4 1 to 17, zstd -131072 to 22; the others have none to choose.
    ///
    /// All levels of lz4 give the same output: the encoder knows one way to search.
    pub fn with_level(codec: CompressionType, level: i32) -> Result<Self, CompressionError> {
        let known = match codec {
            CompressionType::None | CompressionType::Snappy => level == 0,
            CompressionType::Gzip => level == -1 || (1..=9).contains(&level),
            CompressionType::Lz4 => (1..=17).contains(&level),
            CompressionType::Zstd => (-131_072..=22).contains(&level),
        };
        if known { Ok(Self { codec, level }) } else { Err(CompressionError::BadLevel { codec, level }) }
    }

    pub fn codec(self) -> CompressionType {
        self.codec
    }

    pub fn level(self) -> i32 {
        self.level
    }
}

/// Appends the compressed form of `input` to `out`.
pub fn compress(compression: Compression, input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressionError> {
    match compression.codec {
        CompressionType::None => {
            out.extend_from_slice(input);
            Ok(())
        }
        CompressionType::Gzip => compress_gzip(compression.level, input, out),
        CompressionType::Snappy => snappy::compress(input, out),
        CompressionType::Lz4 => lz4::compress(input, out),
        CompressionType::Zstd => compress_zstd(compression.level, input, out),
    }
}

/// Replaces `out` with what `input` decompresses to, at most `limit` bytes. After an error `out` is empty.
pub fn decompress(
    codec: CompressionType,
    input: &[u8],
    out: &mut Vec<u8>,
    limit: usize,
) -> Result<(), CompressionError> {
    out.clear();
    let done = match codec {
        CompressionType::None if input.len() > limit => Err(CompressionError::TooLarge { limit }),
        CompressionType::None => {
            out.extend_from_slice(input);
            Ok(())
        }
        CompressionType::Gzip => decompress_gzip(input, out, limit),
        CompressionType::Snappy => snappy::decompress(input, out, limit),
        CompressionType::Lz4 => lz4::decompress(input, out, limit),
        CompressionType::Zstd => decompress_zstd(input, out, limit),
    };
    if done.is_err() {
        out.clear();
    }
    done
}

fn compress_gzip(level: i32, input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressionError> {
    let level = u32::try_from(level).map_or_else(|_| flate2::Compression::default(), flate2::Compression::new);
    let mut encoder = GzEncoder::new(out, level);
    let written = encoder.write_all(input).and_then(|()| encoder.finish().map(|_| ()));
    written.map_err(|_| CompressionError::CannotCompress { codec: CompressionType::Gzip })
}

fn decompress_gzip(input: &[u8], out: &mut Vec<u8>, limit: usize) -> Result<(), CompressionError> {
    // Several members in a row are one stream.
    let mut decoder = MultiGzDecoder::new(input);
    let mut filled = 0;
    loop {
        if filled == out.len() {
            // One byte more than the limit, so that a stream of exactly the limit is told from a longer one.
            let room = next_capacity(filled, input.len(), limit.saturating_add(1));
            out.reserve_exact(room.saturating_sub(out.len()));
            out.resize(room, 0);
        }
        let free = out.get_mut(filled..).unwrap_or_default();
        match decoder.read(free) {
            Ok(0) => break,
            Ok(len) => filled += len,
            Err(_) => return Err(CompressionError::Corrupt { codec: CompressionType::Gzip }),
        }
        if filled > limit {
            return Err(CompressionError::TooLarge { limit });
        }
    }
    out.truncate(filled);
    Ok(())
}

fn compress_zstd(level: i32, input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressionError> {
    let failed = CompressionError::CannotCompress { codec: CompressionType::Zstd };
    // The encoder writes a `Vec` from its start, so the output is appended by hand.
    let mut compressed: Vec<u8> = Vec::with_capacity(zstd_safe::compress_bound(input.len()));
    let mut context = zstd_safe::CCtx::try_create().ok_or(failed)?;
    context.compress(&mut compressed, input, level).map_err(|_| failed)?;
    out.extend_from_slice(&compressed);
    Ok(())
}

/// Straight into `out`, never through a window: a frame may ask for a window of gigabytes, but all of its output is
/// at hand here. The price is a second try where a frame does not say how long its content is.
fn decompress_zstd(input: &[u8], out: &mut Vec<u8>, limit: usize) -> Result<(), CompressionError> {
    let corrupt = CompressionError::Corrupt { codec: CompressionType::Zstd };
    let mut context = zstd_safe::DCtx::try_create().ok_or(corrupt)?;
    let mut room = match zstd_safe::get_frame_content_size(input) {
        Err(_) => return Err(corrupt),
        Ok(Some(len)) => match usize::try_from(len) {
            Ok(len) if len <= limit => len,
            _ => return Err(CompressionError::TooLarge { limit }),
        },
        Ok(None) => next_capacity(0, input.len(), limit),
    };
    loop {
        if out.capacity() < room {
            // Nothing to keep: a new vector, so that old and new are not both alive.
            *out = Vec::new();
            out.reserve_exact(room);
        }
        out.clear();
        match context.decompress(out, input) {
            Ok(_) if out.len() > limit => return Err(CompressionError::TooLarge { limit }),
            Ok(_) => return Ok(()),
            Err(code) => {
                let too_small = zstd_safe::zstd_sys::ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall;
                if !zstd_safe::is_error_kind(code, too_small) {
                    return Err(corrupt);
                }
                if out.capacity() >= limit {
                    return Err(CompressionError::TooLarge { limit });
                }
                room = next_capacity(out.capacity().saturating_mul(2), input.len(), limit);
            }
        }
    }
}

/// How much output to make room for when `have` bytes of room are used up: twice that, within the limit.
fn next_capacity(have: usize, input_len: usize, limit: usize) -> usize {
    let least = input_len.saturating_mul(4).max(OUTPUT_BYTES_MIN);
    have.saturating_mul(2).max(least).min(limit)
}

/// Makes room for `more` bytes behind those in `out`; the caller has held them against the limit.
fn grow(out: &mut Vec<u8>, more: usize, limit: usize) {
    let need = out.len().saturating_add(more);
    if need > out.capacity() {
        let room = out.capacity().saturating_mul(2).min(limit).max(need);
        out.reserve_exact(room.saturating_sub(out.len()));
    }
    out.resize(need, 0);
}

#[cfg(test)]
mod tests;
