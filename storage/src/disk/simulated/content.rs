//! Bytes of one simulated file: sparse blocks that clones share, so that an image of a whole disk costs little.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::disk::BLOCK_BYTES;

/// What a device writes whole or not at all; a block of eight may be torn between any two.
pub(super) const SECTOR_BYTES: usize = 512;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// A block that is not there reads as zeros.
#[derive(Clone, Default)]
pub(super) struct Content {
    len: u64,
    blocks: BTreeMap<u64, Rc<[u8]>>,
}

impl Content {
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Shorter than asked only at the end of the file.
    pub fn read(&self, position: u64, len_bytes: usize) -> Vec<u8> {
        let end = position.saturating_add(len_bytes as u64).min(self.len);
        let mut bytes = Vec::new();
        let mut at = position;
        while at < end {
            let offset = (at % BLOCK) as usize;
            let take = (BLOCK_BYTES - offset).min((end - at) as usize);
            match self.blocks.get(&(at / BLOCK)) {
                Some(block) => bytes.extend_from_slice(&block[offset..offset + take]),
                None => bytes.resize(bytes.len() + take, 0),
            }
            at += take as u64;
        }
        bytes
    }

    /// Anywhere, any length; extends the file.
    pub fn write(&mut self, position: u64, bytes: &[u8]) {
        let mut written = 0;
        while written < bytes.len() {
            let at = position + written as u64;
            let offset = (at % BLOCK) as usize;
            let take = (BLOCK_BYTES - offset).min(bytes.len() - written);
            let source = &bytes[written..written + take];
            let block = if take == BLOCK_BYTES {
                Rc::from(source)
            } else {
                let mut whole = self.blocks.get(&(at / BLOCK)).map_or_else(|| vec![0; BLOCK_BYTES], |b| b.to_vec());
                whole[offset..offset + take].copy_from_slice(source);
                Rc::from(whole)
            };
            self.blocks.insert(at / BLOCK, block);
            written += take;
        }
        self.len = self.len.max(position + bytes.len() as u64);
    }

    /// Cuts or extends with zeros.
    pub fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.blocks.split_off(&len.div_ceil(BLOCK));
            let tail = (len % BLOCK) as usize;
            if let Some(block) = self.blocks.get_mut(&(len / BLOCK)).filter(|_| tail > 0) {
                let mut whole = block.to_vec();
                whole[tail..].fill(0);
                *block = Rc::from(whole);
            }
        }
        self.len = len;
    }

    /// Flips one bit of the byte at `position`.
    pub fn flip_bit(&mut self, position: u64, bit: u32) {
        if let Some(byte) = self.read(position, 1).first() {
            let len = self.len;
            self.write(position, &[byte ^ (1 << (bit % 8))]);
            self.len = len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_vector_of_bytes() {
        // Rule: sparse blocks read, write and cut exactly like a plain vector.
        let mut prng = crate::runtime::prng::Prng::new(1);
        let (mut content, mut model) = (Content::default(), Vec::<u8>::new());
        for round in 0..500 {
            let position = prng.index(20_000);
            let mut bytes = vec![0; prng.index(9_000)];
            prng.fill(&mut bytes);
            if prng.chance(1, 5) {
                content.set_len(position as u64);
                model.resize(position, 0);
            } else if !bytes.is_empty() {
                content.write(position as u64, &bytes);
                let end = position + bytes.len();
                model.resize(model.len().max(end), 0);
                model[position..end].copy_from_slice(&bytes);
            }
            assert_eq!(content.len() as usize, model.len(), "round {round}");
            assert_eq!(content.read(0, 100_000), model, "round {round}");
            let from = prng.index(model.len() + 1);
            assert_eq!(content.read(from as u64, 100), model[from..model.len().min(from + 100)], "round {round}");
        }
    }
}
