//! Which offset a key was last seen at, in bounded memory: 24 bytes a key.
//!
//! Only a hash of the key is kept, see `key_hash`. Slots are probed one after the other; nothing is ever taken out. Memory
//! comes in chunks as it is needed and goes in chunks, because a large area is slow to get and to give back.

use super::HashKey;

/// Hash and offset.
const SLOT_WORDS: usize = 3;
/// What one key takes.
pub const SLOT_BYTES: usize = SLOT_WORDS * 8;
const CHUNK_SLOTS: usize = 16 << 10;

/// The last offset of every key of a part of a log.
pub struct OffsetMap {
    key: HashKey,
    /// Per slot two words of hash and the offset plus one; 0 there is an empty slot.
    chunks: Vec<Option<Box<[u64]>>>,
    slots: usize,
    len: usize,
    len_max: usize,
    latest_offset: i64,
}

/// No room is left for another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl OffsetMap {
    /// `bytes_max` and `load_max`, the part of them that may be filled, bound the keys it takes; `keys_wanted` lets it be
    /// smaller than that. There is room for one key at least.
    pub fn new(key: HashKey, bytes_max: usize, load_max: f64, keys_wanted: u64) -> Self {
        let load = if load_max > 0.0 && load_max <= 1.0 { load_max } else { 1.0 };
        // A slot more than keys, so that a search always ends.
        let slots_max = (bytes_max / SLOT_BYTES).max(2);
        let slots_wanted = ((keys_wanted as f64 / load).ceil() as usize).saturating_add(2);
        let slots = slots_max.min(slots_wanted);
        let len_max = ((slots as f64 * load) as usize).clamp(1, slots - 1);
        let mut chunks = Vec::new();
        chunks.resize_with(slots.div_ceil(CHUNK_SLOTS), || None);
        Self { key, chunks, slots, len: 0, len_max, latest_offset: -1 }
    }

    /// Keys in it.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The part of its slots that is filled.
    pub fn utilization(&self) -> f64 {
        self.len as f64 / self.slots as f64
    }

    /// Everything up to and including this offset is in the map; -1 before anything is.
    pub fn latest_offset(&self) -> i64 {
        self.latest_offset
    }

    /// Says that there is nothing more to be mapped up to `offset`.
    pub fn reach(&mut self, offset: i64) {
        self.latest_offset = self.latest_offset.max(offset);
    }

    /// Notes that `key` has a record at `offset`, behind all that were noted before.
    ///
    /// # Errors
    /// [`Full`] when no further key is taken, this one's older record noted or not: then nothing has changed.
    pub fn put(&mut self, key: &[u8], offset: i64) -> Result<(), Full> {
        if self.len >= self.len_max {
            return Err(Full);
        }
        let hash = self.key.hash(key);
        let mut slot = self.first_slot(hash);
        loop {
            let [first, second, stored] = self.slot_mut(slot);
            if *stored == 0 || [*first, *second] == hash {
                let is_new = *stored == 0;
                (*first, *second) = (hash[0], hash[1]);
                *stored = (offset + 1) as u64;
                self.len += usize::from(is_new);
                self.reach(offset);
                return Ok(());
            }
            slot = self.next_slot(slot);
        }
    }

    /// The offset of the last record of `key` that was noted.
    pub fn find(&self, key: &[u8]) -> Option<i64> {
        let hash = self.key.hash(key);
        let mut slot = self.first_slot(hash);
        loop {
            let [first, second, stored] = self.slot(slot)?;
            if stored == 0 {
                return None;
            }
            if [first, second] == hash {
                return Some(stored as i64 - 1);
            }
            slot = self.next_slot(slot);
        }
    }

    /// Gives back some of the memory; false when none is left. What was in the map is gone.
    pub fn shed(&mut self) -> bool {
        self.len_max = 0;
        self.chunks.pop().is_some()
    }

    fn first_slot(&self, hash: [u64; 2]) -> usize {
        // The high half of the product is below the number of slots.
        ((u128::from(hash[0]) * self.slots as u128) >> 64) as usize
    }

    fn next_slot(&self, slot: usize) -> usize {
        if slot + 1 == self.slots { 0 } else { slot + 1 }
    }

    /// `None` in a chunk that nothing was put into.
    fn slot(&self, slot: usize) -> Option<[u64; SLOT_WORDS]> {
        let chunk = self.chunks.get(slot / CHUNK_SLOTS)?.as_ref()?;
        let at = slot % CHUNK_SLOTS * SLOT_WORDS;
        chunk.get(at..)?.first_chunk().copied()
    }

    fn slot_mut(&mut self, slot: usize) -> &mut [u64; SLOT_WORDS] {
        let chunk =
            self.chunks[slot / CHUNK_SLOTS].get_or_insert_with(|| vec![0; CHUNK_SLOTS * SLOT_WORDS].into_boxed_slice());
        let at = slot % CHUNK_SLOTS * SLOT_WORDS;
        chunk[at..].first_chunk_mut().expect("a chunk holds whole slots")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::runtime::prng::{Prng, seeds};

    fn map(bytes_max: usize, load_max: f64, keys_wanted: u64) -> OffsetMap {
        OffsetMap::new(HashKey::new([3, 4]), bytes_max, load_max, keys_wanted)
    }

    #[test]
    fn it_is_a_map_of_the_last_offsets() {
        // Rule: whatever is put, each key has the offset of its last record, and keys never put have none.
        for seed in seeds(20) {
            let mut prng = Prng::new(seed);
            let mut model = BTreeMap::new();
            let mut map = map(1 << 20, 0.9, 3000);
            for offset in 0..3000 {
                let key = format!("key-{}", prng.below(2000)).into_bytes();
                map.put(&key, offset).expect("there is room");
                model.insert(key, offset);
            }
            assert_eq!((map.len(), map.latest_offset()), (model.len(), 2999), "seed {seed}");
            for number in 0..2200 {
                let key = format!("key-{number}").into_bytes();
                assert_eq!(map.find(&key), model.get(&key).copied(), "seed {seed}, key {number}");
            }
        }
    }

    #[test]
    fn memory_bounds_it_and_the_load_factor() {
        // Rule: it takes as many keys as fit into its bytes and its load, at least one, and is no larger than is wanted.
        for (bytes_max, load_max, keys_wanted, want) in [
            (24 * 100, 0.9, u64::MAX, 90),
            (24 * 100, 0.5, 1_000_000, 50),
            (24 * 100, 1.0, 1_000_000, 99),
            (24 * 100, 0.9, 10, 12),
            (0, 0.9, 1000, 1),
            (24 * 100, f64::NAN, 1000, 99),
            (24 * 100, 0.0, 1000, 99),
        ] {
            let mut map = map(bytes_max, load_max, keys_wanted);
            let taken = (0..1000_i64).take_while(|offset| map.put(&offset.to_le_bytes(), *offset).is_ok()).count();
            assert_eq!(taken, want, "{bytes_max} bytes, load {load_max}, {keys_wanted} wanted");
            assert_eq!(map.latest_offset(), want as i64 - 1);
            assert_eq!(map.find(&i64::MAX.to_le_bytes()), None, "a search ends in a full map, too");
            assert_eq!(map.put(&0_i64.to_le_bytes(), 5000), Err(Full));
            while map.shed() {}
        }
    }

    #[test]
    fn what_is_not_mapped_can_be_passed() {
        // Rule: control batches and gaps move the end of the map, never back.
        let mut map = map(1 << 10, 0.9, 10);
        map.put(b"a", 5).expect("there is room");
        map.reach(9);
        map.reach(3);
        assert_eq!((map.latest_offset(), map.find(b"a")), (9, Some(5)));
    }
}
