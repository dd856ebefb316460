//! Time index: up to which offset no record is younger than a timestamp.
//!
//! `.timeindex`, no header, entries of 12 bytes, timestamps rising strictly:
//! ```text
//! 0  8  largest record timestamp so far in the segment, milliseconds since 1970
//! 8  4  last offset of the batch that holds it less the segment's base offset
//! ```
//! The last entry of a sealed segment names its largest timestamp.

use super::IndexError;

pub const TIME_ENTRY_BYTES: usize = 12;

/// A timestamp and the last offset of the batch that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampOffset {
    pub timestamp: i64,
    pub offset: i64,
}

/// The index of one segment, in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeIndex {
    base_offset: i64,
    entries: Vec<(i64, u32)>,
}

impl TimeIndex {
    pub fn new(base_offset: i64) -> Self {
        Self { base_offset, entries: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn last(&self) -> Option<TimestampOffset> {
        self.entries.last().map(|&entry| self.absolute(entry))
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = TimestampOffset> {
        self.entries.iter().map(|&entry| self.absolute(entry))
    }

    /// Left out unless the timestamp is larger than all before; negative ones (no timestamp) are never kept.
    pub fn append(&mut self, largest: TimestampOffset) {
        let Ok(relative_offset) = u32::try_from(largest.offset - self.base_offset) else { return };
        let rises = self.entries.last().is_none_or(|&(ts, rel)| ts < largest.timestamp && rel <= relative_offset);
        if rises && largest.timestamp >= 0 {
            self.entries.push((largest.timestamp, relative_offset));
        }
    }

    /// Adds the entries of `later`, where they rise.
    pub fn append_all(&mut self, later: &Self) {
        for &entry in &later.entries {
            self.append(later.absolute(entry));
        }
    }

    /// The last entry at or below `timestamp`: every earlier record is not younger than it. `None`: scan from the start.
    pub fn entry_at_or_below(&self, timestamp: i64) -> Option<TimestampOffset> {
        let above = self.entries.partition_point(|&(ts, _)| ts <= timestamp);
        above.checked_sub(1).and_then(|at| self.entries.get(at)).map(|&entry| self.absolute(entry))
    }

    /// At most so many of the entries: fewer, and as right.
    pub fn thinned(&self, entries_max: usize) -> Self {
        let step = self.entries.len().div_ceil(entries_max.max(1)).max(1);
        Self { base_offset: self.base_offset, entries: self.entries.iter().step_by(step).copied().collect() }
    }

    /// Drops entries for offsets at or above `end_offset`.
    pub fn truncate(&mut self, end_offset: i64) {
        let keep = self.entries.partition_point(|&(_, rel)| self.base_offset + i64::from(rel) < end_offset);
        self.entries.truncate(keep);
    }

    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.entries.len() * TIME_ENTRY_BYTES);
        for (timestamp, relative_offset) in &self.entries {
            bytes.extend_from_slice(&timestamp.to_be_bytes());
            bytes.extend_from_slice(&relative_offset.to_be_bytes());
        }
        bytes
    }

    /// `end_offset`: one past the segment's last offset; no entry may name one at or behind it.
    pub fn decode(base_offset: i64, bytes: &[u8], end_offset: i64) -> Result<Self, IndexError> {
        let (chunks, rest) = bytes.as_chunks::<TIME_ENTRY_BYTES>();
        if !rest.is_empty() {
            return Err(IndexError::BadLength { bytes: bytes.len() });
        }
        let mut entries: Vec<(i64, u32)> = Vec::with_capacity(chunks.len());
        for (at, chunk) in chunks.iter().enumerate() {
            let [t0, t1, t2, t3, t4, t5, t6, t7, o0, o1, o2, o3] = *chunk;
            let timestamp = i64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]);
            let relative_offset = u32::from_be_bytes([o0, o1, o2, o3]);
            // Negative ones are never kept.
            let (before, offset_before) = entries.last().copied().unwrap_or((-1, 0));
            if before >= timestamp || offset_before > relative_offset {
                return Err(IndexError::NotRising { at });
            }
            if base_offset.saturating_add(i64::from(relative_offset)) >= end_offset {
                return Err(IndexError::BehindEnd { at });
            }
            entries.push((timestamp, relative_offset));
        }
        Ok(Self { base_offset, entries })
    }

    fn absolute(&self, (timestamp, relative_offset): (i64, u32)) -> TimestampOffset {
        TimestampOffset { timestamp, offset: self.base_offset + i64::from(relative_offset) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookup() {
        // The entry found is at or below the timestamp asked for, so nothing it skips can be the answer.
        let mut index = TimeIndex::new(10);
        for (timestamp, offset) in [(1000, 12), (900, 14), (1000, 15), (2000, 18)] {
            index.append(TimestampOffset { timestamp, offset });
        }
        assert_eq!(index.len(), 2);
        assert_eq!(index.entry_at_or_below(999), None);
        assert_eq!(index.entry_at_or_below(1999), Some(TimestampOffset { timestamp: 1000, offset: 12 }));
        assert_eq!(index.last(), Some(TimestampOffset { timestamp: 2000, offset: 18 }));
        assert_eq!(index.thinned(1).entry_at_or_below(5000), Some(TimestampOffset { timestamp: 1000, offset: 12 }));
        assert_eq!(index.thinned(2), index);
        index.truncate(18);
        assert_eq!(index.last(), Some(TimestampOffset { timestamp: 1000, offset: 12 }));
    }

    #[test]
    fn file_round_trip_and_bad_files() {
        // Entries are checked before they are used.
        let mut index = TimeIndex::new(10);
        index.append(TimestampOffset { timestamp: 1, offset: 12 });
        index.append(TimestampOffset { timestamp: 2, offset: 13 });
        let bytes = index.encode();
        assert_eq!(TimeIndex::decode(10, &bytes, 14), Ok(index));
        assert_eq!(TimeIndex::decode(10, &bytes, 13), Err(IndexError::BehindEnd { at: 1 }));
        assert_eq!(TimeIndex::decode(10, &bytes[..13], 14), Err(IndexError::BadLength { bytes: 13 }));
        assert_eq!(TimeIndex::decode(10, &bytes.repeat(2), 14), Err(IndexError::NotRising { at: 2 }));
        let negative = [[0xff; 8].as_slice(), &bytes[8..12]].concat();
        assert_eq!(TimeIndex::decode(10, &negative, 14), Err(IndexError::NotRising { at: 0 }));
    }
}
