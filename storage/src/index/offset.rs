//! Offset index: where in the segment a batch begins.
//!
//! `.index`, no header, entries of 8 bytes, both columns rising strictly:
//! ```text
//! 0  4  last offset of the batch less the segment's base offset
//! 4  4  position of the batch in the segment, bytes
//! ```

use super::IndexError;

pub const OFFSET_ENTRY_BYTES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    relative_offset: u32,
    position: u32,
}

/// The index of one segment, in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetIndex {
    base_offset: i64,
    entries: Vec<Entry>,
}

impl OffsetIndex {
    pub fn new(base_offset: i64) -> Self {
        Self { base_offset, entries: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Last offset and position of the batches it knows.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (i64, u32)> {
        self.entries.iter().map(|entry| (self.base_offset + i64::from(entry.relative_offset), entry.position))
    }

    /// Notes the batch at `position` by its last offset. An entry that does not rise is left out: the index stays sparse
    /// but right.
    pub fn append(&mut self, last_offset: i64, position: u32) {
        let Ok(relative_offset) = u32::try_from(last_offset - self.base_offset) else { return };
        let rises = self.entries.last().is_none_or(|e| e.relative_offset < relative_offset && e.position < position);
        if rises {
            self.entries.push(Entry { relative_offset, position });
        }
    }

    /// Adds the entries of `later`, where they rise.
    pub fn append_all(&mut self, later: &Self) {
        for entry in &later.entries {
            self.append(later.base_offset + i64::from(entry.relative_offset), entry.position);
        }
    }

    /// A position from which a scan finds `offset`: that of the last batch known to end at or before it, else 0.
    pub fn position_before(&self, offset: i64) -> u32 {
        self.entry_before(offset).map_or(0, |(_, position)| position)
    }

    /// Last offset and position of the last batch known to end at or before `offset`.
    pub fn entry_before(&self, offset: i64) -> Option<(i64, u32)> {
        let last_offset = |entry: &Entry| self.base_offset + i64::from(entry.relative_offset);
        let above = self.entries.partition_point(|entry| last_offset(entry) <= offset);
        let entry = self.entries.get(above.checked_sub(1)?)?;
        Some((last_offset(entry), entry.position))
    }

    /// Entries that are at least `step_bytes` apart: fewer, and as right.
    pub fn thinned(&self, step_bytes: u64) -> Self {
        let mut next = 0;
        let far_enough = |entry: &&Entry| {
            let is_far_enough = u64::from(entry.position) >= next;
            if is_far_enough {
                next = u64::from(entry.position) + step_bytes;
            }
            is_far_enough
        };
        Self { base_offset: self.base_offset, entries: self.entries.iter().filter(far_enough).copied().collect() }
    }

    /// Drops entries for positions at or behind `position`.
    pub fn truncate(&mut self, position: u32) {
        let keep = self.entries.partition_point(|entry| entry.position < position);
        self.entries.truncate(keep);
    }

    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.entries.len() * OFFSET_ENTRY_BYTES);
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.relative_offset.to_be_bytes());
            bytes.extend_from_slice(&entry.position.to_be_bytes());
        }
        bytes
    }

    /// `data_bytes`: length of the segment's data; no entry may point at or behind it.
    pub fn decode(base_offset: i64, bytes: &[u8], data_bytes: u64) -> Result<Self, IndexError> {
        let (chunks, rest) = bytes.as_chunks::<OFFSET_ENTRY_BYTES>();
        if !rest.is_empty() {
            return Err(IndexError::BadLength { bytes: bytes.len() });
        }
        let mut entries: Vec<Entry> = Vec::with_capacity(chunks.len());
        for (at, chunk) in chunks.iter().enumerate() {
            let raw = u64::from_be_bytes(*chunk);
            let entry = Entry { relative_offset: (raw >> 32) as u32, position: (raw & 0xffff_ffff) as u32 };
            if entries
                .last()
                .is_some_and(|e| e.relative_offset >= entry.relative_offset || e.position >= entry.position)
            {
                return Err(IndexError::NotRising { at });
            }
            if u64::from(entry.position) >= data_bytes {
                return Err(IndexError::BehindEnd { at });
            }
            entries.push(entry);
        }
        Ok(Self { base_offset, entries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookup_never_passes_the_batch() {
        // A scan from the position found must meet the batch that holds the offset.
        let mut index = OffsetIndex::new(100);
        for (last_offset, position) in [(109, 500), (119, 1000), (129, 2000)] {
            index.append(last_offset, position);
        }
        for (offset, want) in [(0, 0), (100, 0), (108, 0), (109, 500), (110, 500), (119, 1000), (500, 2000)] {
            assert_eq!(index.position_before(offset), want, "offset {offset}");
        }
        assert_eq!(index.thinned(900).position_before(119), 500);
        assert_eq!(index.thinned(900).position_before(129), 2000);
        index.truncate(2000);
        assert_eq!(index.position_before(500), 1000);
    }

    #[test]
    fn file_round_trip_and_bad_files() {
        // Entries are checked before they are used: a bad index is rebuilt, never followed.
        let mut index = OffsetIndex::new(7);
        index.append(10, 64);
        index.append(20, 128);
        index.append(20, 256);
        let bytes = index.encode();
        assert_eq!(bytes, [0, 0, 0, 3, 0, 0, 0, 64, 0, 0, 0, 13, 0, 0, 0, 128]);
        assert_eq!(OffsetIndex::decode(7, &bytes, 1000), Ok(index));
        assert_eq!(OffsetIndex::decode(7, &bytes[..9], 1000), Err(IndexError::BadLength { bytes: 9 }));
        assert_eq!(OffsetIndex::decode(7, &bytes, 128), Err(IndexError::BehindEnd { at: 1 }));
        assert_eq!(OffsetIndex::decode(7, &bytes.repeat(2), 1000), Err(IndexError::NotRising { at: 2 }));
    }
}
