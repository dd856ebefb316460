//! The LZ4 frame format, version 1, decoded straight into the output.
//!
//! ```text
//! magic 4 | flags 1 | block size 1 | [content size 8] | [dictionary id 4] | header checksum 1
//! { block length 4, top bit: stored as it is | block | [block checksum 4] } ...
//! 0 4 | [content checksum 4]
//! ```
//! All little-endian. Flags: bits 7-6 version 1, 5 blocks are independent, 4 block checksums, 3 content size, 2 content
//! checksum, 0 dictionary id. Kafka's Java client wants independent blocks, so that is what is written; linked ones
//! are read as well. As there, one frame is read and what follows it is ignored.

use lz4_flex::block::{DecompressError, compress_into, decompress_into_with_dict, get_maximum_output_size};

use super::{CompressionError, CompressionType, grow};

const MAGIC: u32 = 0x184d_2204;
/// Version 1, independent blocks of at most 64 KiB, no checksums: what Kafka's Java client writes.
const HEADER: [u8; 7] = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82];
const BLOCK_BYTES: usize = 64 * 1024;
/// How far back a linked block may refer.
const WINDOW_BYTES: usize = 64 * 1024;
/// A byte of a block adds at most 255 bytes to a literal or match.
const EXPANSION_MAX: usize = 255;
const STORED: u32 = 1 << 31;

const CORRUPT: CompressionError = CompressionError::Corrupt { codec: CompressionType::Lz4 };

pub(super) fn compress(input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressionError> {
    let failed = CompressionError::CannotCompress { codec: CompressionType::Lz4 };
    out.extend_from_slice(&HEADER);
    let mut block = vec![0; get_maximum_output_size(BLOCK_BYTES.min(input.len()))];
    for chunk in input.chunks(BLOCK_BYTES) {
        let len = compress_into(chunk, &mut block).map_err(|_| failed)?;
        // A block that did not shrink goes as it is.
        let (len, block, flag) = match block.get(..len) {
            Some(block) if len < chunk.len() => (len, block, 0),
            _ => (chunk.len(), chunk, STORED),
        };
        let len = u32::try_from(len).map_err(|_| failed)?;
        out.extend_from_slice(&(len | flag).to_le_bytes());
        out.extend_from_slice(block);
    }
    out.extend_from_slice(&0_u32.to_le_bytes());
    Ok(())
}

pub(super) fn decompress(input: &[u8], out: &mut Vec<u8>, limit: usize) -> Result<(), CompressionError> {
    // No stream at all stands for no bytes at all.
    if input.is_empty() {
        return Ok(());
    }
    let mut left = input;
    let frame = FrameHeader::read(&mut left)?;
    loop {
        let length = take_u32(&mut left)?;
        if length == 0 {
            break;
        }
        let len = (length & !STORED) as usize;
        if len > frame.block_bytes_max {
            return Err(CORRUPT);
        }
        let (block, rest) = left.split_at_checked(len).ok_or(CORRUPT)?;
        left = rest;
        if frame.block_checksums && take_u32(&mut left)? != xxh32(block) {
            return Err(CORRUPT);
        }
        if length & STORED == 0 {
            frame.decompress_block(block, out, limit)?;
        } else {
            if len > limit.saturating_sub(out.len()) {
                return Err(CompressionError::TooLarge { limit });
            }
            let start = out.len();
            grow(out, len, limit);
            out.get_mut(start..).unwrap_or_default().copy_from_slice(block);
        }
    }
    if frame.content_bytes.is_some_and(|content| content != out.len() as u64) {
        return Err(CORRUPT);
    }
    if frame.content_checksum && take_u32(&mut left)? != xxh32(out) {
        return Err(CORRUPT);
    }
    Ok(())
}

struct FrameHeader {
    blocks_independent: bool,
    block_checksums: bool,
    content_checksum: bool,
    content_bytes: Option<u64>,
    block_bytes_max: usize,
}

impl FrameHeader {
    fn read(left: &mut &[u8]) -> Result<Self, CompressionError> {
        if take_u32(left)? != MAGIC {
            return Err(CORRUPT);
        }
        let descriptor = *left;
        let [flags, block_size] = take(left)?;
        let has_dictionary = flags & 0b1 != 0;
        if flags >> 6 != 1 || flags & 0b10 != 0 || has_dictionary {
            return Err(CORRUPT);
        }
        let block_bytes_max = match block_size {
            0x40 => 64 << 10,
            0x50 => 256 << 10,
            0x60 => 1 << 20,
            0x70 => 4 << 20,
            _ => return Err(CORRUPT),
        };
        let content_bytes = if flags & 0b1000 == 0 { None } else { Some(u64::from_le_bytes(take(left)?)) };
        let descriptor = descriptor.get(..descriptor.len() - left.len()).unwrap_or_default();
        let [checksum] = take(left)?;
        if checksum != (xxh32(descriptor) >> 8) as u8 {
            return Err(CORRUPT);
        }
        Ok(Self {
            blocks_independent: flags & 0b10_0000 != 0,
            block_checksums: flags & 0b1_0000 != 0,
            content_checksum: flags & 0b100 != 0,
            content_bytes,
            block_bytes_max,
        })
    }

    fn decompress_block(&self, block: &[u8], out: &mut Vec<u8>, limit: usize) -> Result<(), CompressionError> {
        let start = out.len();
        let possible = self.block_bytes_max.min(block.len().saturating_mul(EXPANSION_MAX));
        let allowed = limit.saturating_sub(start);
        grow(out, possible.min(allowed), limit);
        let (done, free) = out.split_at_mut_checked(start).ok_or(CORRUPT)?;
        let window = if self.blocks_independent { start } else { start.saturating_sub(WINDOW_BYTES) };
        let window = done.get(window..).unwrap_or_default();
        match decompress_into_with_dict(block, free, window) {
            Ok(len) => {
                out.truncate(start.saturating_add(len));
                Ok(())
            }
            Err(DecompressError::OutputTooSmall { .. }) if allowed < possible => {
                Err(CompressionError::TooLarge { limit })
            }
            Err(_) => Err(CORRUPT),
        }
    }
}

fn take<const N: usize>(left: &mut &[u8]) -> Result<[u8; N], CompressionError> {
    let (head, tail) = left.split_first_chunk().ok_or(CORRUPT)?;
    *left = tail;
    Ok(*head)
}

fn take_u32(left: &mut &[u8]) -> Result<u32, CompressionError> {
    take(left).map(u32::from_le_bytes)
}

/// xxHash of 32 bits with seed 0: every checksum of the frame format.
fn xxh32(bytes: &[u8]) -> u32 {
    const PRIME_1: u32 = 0x9e37_79b1;
    const PRIME_2: u32 = 0x85eb_ca77;
    const PRIME_3: u32 = 0xc2b2_ae3d;
    const PRIME_4: u32 = 0x27d4_eb2f;
    const PRIME_5: u32 = 0x1656_67b1;
    let round =
        |lane: u32, word: u32| lane.wrapping_add(word.wrapping_mul(PRIME_2)).rotate_left(13).wrapping_mul(PRIME_1);

    let (stripes, mut left) = bytes.as_chunks::<16>();
    let mut hash = if stripes.is_empty() {
        PRIME_5
    } else {
        let mut lanes = [PRIME_1.wrapping_add(PRIME_2), PRIME_2, 0, 0_u32.wrapping_sub(PRIME_1)];
        for stripe in stripes {
            let (words, _) = stripe.as_chunks::<4>();
            for (lane, word) in lanes.iter_mut().zip(words) {
                *lane = round(*lane, u32::from_le_bytes(*word));
            }
        }
        let [one, two, three, four] = lanes;
        let pair = one.rotate_left(1).wrapping_add(two.rotate_left(7));
        pair.wrapping_add(three.rotate_left(12)).wrapping_add(four.rotate_left(18))
    };
    // The format counts the length modulo 2^32.
    hash = hash.wrapping_add(bytes.len() as u32);
    while let Some((word, rest)) = left.split_first_chunk() {
        let word = u32::from_le_bytes(*word).wrapping_mul(PRIME_3);
        hash = hash.wrapping_add(word).rotate_left(17).wrapping_mul(PRIME_4);
        left = rest;
    }
    for byte in left {
        let byte = u32::from(*byte).wrapping_mul(PRIME_5);
        hash = hash.wrapping_add(byte).rotate_left(11).wrapping_mul(PRIME_1);
    }
    hash = (hash ^ (hash >> 15)).wrapping_mul(PRIME_2);
    hash = (hash ^ (hash >> 13)).wrapping_mul(PRIME_3);
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xxh32_matches_the_published_values() {
        // Rule: the checksum is xxHash; the first lengths below, at and above a stripe.
        assert_eq!(xxh32(b""), 0x02cc_5d05);
        assert_eq!(xxh32(b"a"), 0x550d_7456);
        assert_eq!(xxh32(b"abc"), 0x32d1_53ff);
        assert_eq!((xxh32(&[0x60, 0x40]) >> 8) as u8, 0x82);
        assert_eq!(xxh32(b"Nobody inspects the spammish repetition"), 0xe229_3b2f);
    }
}
