//! Which leader epoch began at which offset (KIP-101, KIP-279), and its file.
//!
//! `leader-epoch-checkpoint`, text, one entry a line, both columns rising:
//! ```text
//! 0                    version
//! 2                    entries
//! 0 0                  epoch, start offset
//! 3 4711
//! ```

use std::fmt::Write as _;

/// The file in a partition's directory.
pub const LEADER_EPOCH_FILE: &str = "leader-epoch-checkpoint";
/// What Kafka answers where no epoch is known.
pub const UNDEFINED_EPOCH: i32 = -1;
/// What Kafka answers where no end offset is known.
pub const UNDEFINED_EPOCH_OFFSET: i64 = -1;

/// One leadership, from its first offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEntry {
    pub epoch: i32,
    pub start_offset: i64,
}

/// The answer to "where does this epoch end": exclusive, and for the largest epoch known that is not above the one asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEndOffset {
    pub epoch: i32,
    pub end_offset: i64,
}

impl EpochEndOffset {
    pub const UNDEFINED: Self = Self { epoch: UNDEFINED_EPOCH, end_offset: UNDEFINED_EPOCH_OFFSET };
}

/// Why bytes are no leader epoch file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EpochFileError {
    #[error("not UTF-8 text")]
    NotText,
    #[error("version {found:?} is not supported")]
    BadVersion { found: String },
    #[error("line {line} is not what the format asks for")]
    BadLine { line: usize },
    #[error("{announced} entries announced, {found} found")]
    BadCount { announced: usize, found: usize },
}

/// The leaderships of one partition. Epochs and start offsets both rise strictly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderEpochs {
    entries: Vec<EpochEntry>,
}

impl LeaderEpochs {
    pub fn latest(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    /// Notes that `epoch` writes from `start_offset` on; entries which that contradicts go. True when something changed.
    pub fn assign(&mut self, epoch: i32, start_offset: i64) -> bool {
        if epoch < 0 || start_offset < 0 {
            return false;
        }
        if let Some(latest) = self.latest()
            && latest.epoch == epoch
            && latest.start_offset <= start_offset
        {
            return false;
        }
        while self.latest().is_some_and(|last| last.epoch >= epoch || last.start_offset >= start_offset) {
            self.entries.pop();
        }
        // There are thousands of logs, and few epochs of each.
        self.entries.reserve_exact(1);
        self.entries.push(EpochEntry { epoch, start_offset });
        true
    }

    /// Where `epoch` ends, as OffsetForLeaderEpoch answers it.
    pub fn end_offset_for(&self, epoch: i32, log_end_offset: i64) -> EpochEndOffset {
        let Some(latest) = self.latest() else { return EpochEndOffset::UNDEFINED };
        if epoch == UNDEFINED_EPOCH || epoch > latest.epoch {
            return EpochEndOffset::UNDEFINED;
        }
        if epoch == latest.epoch {
            return EpochEndOffset { epoch, end_offset: log_end_offset };
        }
        let above = self.entries.partition_point(|entry| entry.epoch <= epoch);
        // `latest` is above, so there is one.
        let end_offset = self.entries.get(above).map_or(log_end_offset, |entry| entry.start_offset);
        // An epoch before the first one known ends where the first begins, under the name it was asked by.
        let epoch = above.checked_sub(1).and_then(|at| self.entries.get(at)).map_or(epoch, |entry| entry.epoch);
        EpochEndOffset { epoch, end_offset }
    }

    /// The epoch that wrote `offset`.
    pub fn epoch_at(&self, offset: i64) -> Option<i32> {
        let above = self.entries.partition_point(|entry| entry.start_offset <= offset);
        above.checked_sub(1).and_then(|at| self.entries.get(at)).map(|entry| entry.epoch)
    }

    /// Forgets leaderships that began at or after `end_offset`. True when something changed.
    pub fn truncate_from_end(&mut self, end_offset: i64) -> bool {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.start_offset < end_offset);
        before != self.entries.len()
    }

    /// Forgets leaderships that ended at or before `start_offset`; the one that spans it then begins there. True when
    /// something changed.
    pub fn truncate_from_start(&mut self, start_offset: i64) -> bool {
        let above = self.entries.partition_point(|entry| entry.start_offset <= start_offset);
        let Some(spanning) = above.checked_sub(1) else { return false };
        let changed = spanning > 0 || self.entries[spanning].start_offset != start_offset;
        self.entries.drain(..spanning);
        self.entries[0].start_offset = start_offset;
        changed
    }

    /// The file's text.
    pub fn encode(&self) -> String {
        let mut text = format!("0\n{}\n", self.entries.len());
        for entry in &self.entries {
            writeln!(text, "{} {}", entry.epoch, entry.start_offset).expect("a String takes every write");
        }
        text
    }

    /// Entries that contradict an earlier one replace it, as they did when they were made.
    pub fn decode(bytes: &[u8]) -> Result<Self, EpochFileError> {
        let text = std::str::from_utf8(bytes).map_err(|_| EpochFileError::NotText)?;
        let mut lines = text.lines();
        let version = lines.next().unwrap_or_default().trim();
        if version != "0" {
            return Err(EpochFileError::BadVersion { found: version.chars().take(20).collect() });
        }
        let count_line = lines.next().unwrap_or_default().trim();
        let announced: usize = count_line.parse().map_err(|_| EpochFileError::BadLine { line: 2 })?;
        let mut epochs = Self::default();
        let mut found = 0;
        for (at, line) in lines.enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let bad = EpochFileError::BadLine { line: at + 3 };
            let (epoch, start_offset) = line.trim().split_once(' ').ok_or(bad.clone())?;
            let epoch: i32 = epoch.parse().map_err(|_| bad.clone())?;
            let start_offset: i64 = start_offset.trim().parse().map_err(|_| bad.clone())?;
            if epoch < 0 || start_offset < 0 {
                return Err(bad);
            }
            epochs.assign(epoch, start_offset);
            found += 1;
        }
        if found == announced { Ok(epochs) } else { Err(EpochFileError::BadCount { announced, found }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(entries: &[(i32, i64)]) -> LeaderEpochs {
        let mut epochs = LeaderEpochs::default();
        for &(epoch, start_offset) in entries {
            epochs.assign(epoch, start_offset);
        }
        epochs
    }

    #[test]
    fn end_offsets() {
        // The end of an epoch is the start of the next one known; Kafka's table of special cases.
        let known = epochs(&[(2, 10), (4, 20), (7, 50)]);
        for (asked, want_epoch, want_end) in [
            (-1, -1, -1),
            (0, 0, 10),
            (1, 1, 10),
            (2, 2, 20),
            (3, 2, 20),
            (4, 4, 50),
            (6, 4, 50),
            (7, 7, 99),
            (8, -1, -1),
        ] {
            let got = known.end_offset_for(asked, 99);
            assert_eq!(got, EpochEndOffset { epoch: want_epoch, end_offset: want_end }, "asked for {asked}");
        }
        assert_eq!(LeaderEpochs::default().end_offset_for(0, 5), EpochEndOffset::UNDEFINED);
    }

    #[test]
    fn assigning_keeps_both_columns_rising() {
        // A later assignment wins over every entry it contradicts.
        let mut known = epochs(&[(0, 0), (1, 10), (2, 20)]);
        assert!(!known.assign(2, 25));
        assert!(known.assign(3, 10));
        assert_eq!(known, epochs(&[(0, 0), (3, 10)]));
        assert!(!known.assign(-1, 11));
    }

    #[test]
    fn truncation() {
        // The epoch that spans the new start stays, moved; epochs beyond the new end go.
        let mut known = epochs(&[(0, 0), (1, 10), (2, 20)]);
        assert!(known.truncate_from_start(15));
        assert_eq!(known, epochs(&[(1, 15), (2, 20)]));
        assert!(known.truncate_from_end(20));
        assert_eq!(known, epochs(&[(1, 15)]));
        assert_eq!((known.epoch_at(14), known.epoch_at(15)), (None, Some(1)));
    }

    #[test]
    fn file_round_trip() {
        // What is written is read back; anything else is an error, not a guess.
        let known = epochs(&[(0, 0), (3, 4711)]);
        assert_eq!(known.encode(), "0\n2\n0 0\n3 4711\n");
        assert_eq!(LeaderEpochs::decode(known.encode().as_bytes()), Ok(known));
        for bad in ["", "1\n0\n", "0\n", "0\n2\n0 0\n", "0\n1\n0\n", "0\n1\n-1 0\n", "0\n1\nx y\n"] {
            assert!(LeaderEpochs::decode(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
