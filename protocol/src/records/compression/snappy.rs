//! Snappy as Kafka's clients send it: blocks in the framing of Xerial's snappy-java, or one bare block.
//!
//! ```text
//! 0x82 "SNAPPY" 0x00 | version 4 | least compatible version 4 | { length 4 | block } ...
//! ```

use super::{CompressionError, CompressionType, grow};

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// Magic and both versions.
const HEADER_BYTES: usize = 16;
const VERSION: [u8; 4] = 1_u32.to_be_bytes();
/// Input of one block; what Kafka's Java client uses.
const BLOCK_BYTES: usize = 32 * 1024;
/// A block of n bytes gives fewer than 22 n: the best it has is 64 bytes of output from 3. More is a lie.
const EXPANSION_MAX: usize = 32;

const CORRUPT: CompressionError = CompressionError::Corrupt { codec: CompressionType::Snappy };

pub(super) fn compress(input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressionError> {
    let failed = CompressionError::CannotCompress { codec: CompressionType::Snappy };
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION);
    out.extend_from_slice(&VERSION);
    let mut encoder = snap::raw::Encoder::new();
    let mut block = vec![0; snap::raw::max_compress_len(BLOCK_BYTES.min(input.len()))];
    for chunk in input.chunks(BLOCK_BYTES) {
        let len = encoder.compress(chunk, &mut block).map_err(|_| failed)?;
        let block = block.get(..len).ok_or(failed)?;
        let len = u32::try_from(len).map_err(|_| failed)?;
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(block);
    }
    Ok(())
}

pub(super) fn decompress(input: &[u8], out: &mut Vec<u8>, limit: usize) -> Result<(), CompressionError> {
    if input.len() < HEADER_BYTES || !input.starts_with(&MAGIC) {
        return decompress_block(input, out, limit);
    }
    let mut left = input;
    while !left.is_empty() {
        if left.starts_with(&MAGIC) {
            // A stream made by joining streams has a header before each.
            left = left.get(HEADER_BYTES..).ok_or(CORRUPT)?;
            continue;
        }
        let (len, rest) = left.split_first_chunk().ok_or(CORRUPT)?;
        let len = usize::try_from(i32::from_be_bytes(*len)).map_err(|_| CORRUPT)?;
        let (block, rest) = rest.split_at_checked(len).ok_or(CORRUPT)?;
        decompress_block(block, out, limit)?;
        left = rest;
    }
    Ok(())
}

fn decompress_block(block: &[u8], out: &mut Vec<u8>, limit: usize) -> Result<(), CompressionError> {
    let len = snap::raw::decompress_len(block).map_err(|_| CORRUPT)?;
    if len > limit.saturating_sub(out.len()) {
        return Err(CompressionError::TooLarge { limit });
    }
    if len > block.len().saturating_mul(EXPANSION_MAX) {
        return Err(CORRUPT);
    }
    let start = out.len();
    grow(out, len, limit);
    let free = out.get_mut(start..).unwrap_or_default();
    match snap::raw::Decoder::new().decompress(block, free) {
        Ok(written) if written == len => Ok(()),
        _ => Err(CORRUPT),
    }
}
