//! The mark on a log that may have lost records it had acknowledged, because the journal that held them is damaged.
//!
//! A file in the partition's directory, text:
//! ```text
//! version: 0
//! end_offset: 4711           everything below had been acknowledged; -1 where that is not known
//! position: 8192             where in which file the journal is damaged
//! path: journal/0.damaged/…
//! reason: …
//! ```
//! A marked log takes no appends: the next one would get an offset that somebody may have read another record at. Its mark
//! goes when the log turns out to have all it should have, or when an operator has it repaired.

use std::path::{Path, PathBuf};

use crate::checkpoint;
use crate::disk::Disk;
use crate::error::{Corruption, DiskError};

pub const DAMAGE_FILE: &str = "journal-damage";

/// What is known of the loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamageMark {
    /// Everything below had been acknowledged; `None`: there may have been anything.
    pub end_offset: Option<i64>,
    /// Where the journal is damaged.
    pub path: PathBuf,
    pub position: u64,
    pub reason: String,
}

impl DamageMark {
    pub fn encode(&self) -> String {
        let Self { end_offset, path, position, reason } = self;
        let (end_offset, path) = (end_offset.unwrap_or(-1), path.display());
        format!("version: 0\nend_offset: {end_offset}\nposition: {position}\npath: {path}\nreason: {reason}\n")
    }

    /// What cannot be read says that nothing is known.
    pub fn decode(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let value = |key: &str| {
            let mut pairs = text.lines().filter_map(|line| line.split_once(": "));
            pairs.find_map(|(name, value)| (name == key).then(|| value.to_owned()))
        };
        let end_offset = value("end_offset").and_then(|offset| offset.parse().ok()).filter(|&offset: &i64| offset >= 0);
        Self {
            end_offset,
            path: value("path").unwrap_or_default().into(),
            position: value("position").and_then(|position| position.parse().ok()).unwrap_or(0),
            reason: value("reason").unwrap_or_else(|| "the mark cannot be read".to_owned()),
        }
    }

    /// With what another mark of the same log says, too.
    pub fn and(self, other: &Self) -> Self {
        let end_offset = self.end_offset.zip(other.end_offset).map(|(one, other)| one.max(other));
        Self { end_offset, ..self }
    }

    /// `None` when the log is not marked.
    pub async fn read<D: Disk>(disk: &D, dir: &Path) -> Result<Option<Self>, DiskError> {
        let bytes = checkpoint::read_file(disk, &dir.join(DAMAGE_FILE)).await?;
        Ok(bytes.map(|bytes| Self::decode(&bytes)))
    }

    /// Durable when it returns, the directory's own name aside.
    pub async fn write<D: Disk>(&self, disk: &D, dir: &Path) -> Result<(), DiskError> {
        checkpoint::replace_file(disk, &dir.join(DAMAGE_FILE), self.encode().as_bytes()).await
    }

    /// Takes the mark off, durably.
    pub async fn remove<D: Disk>(disk: &D, dir: &Path) -> Result<(), DiskError> {
        super::recovery::remove_if_there(disk, &dir.join(DAMAGE_FILE)).await?;
        checkpoint::sync_dir(disk, dir).await
    }

    /// Whether bytes that are no batch where `offset` should be had been acknowledged.
    pub fn covers(&self, offset: i64) -> bool {
        self.end_offset.is_none_or(|end_offset| offset < end_offset)
    }

    /// Why a log that ends at `log_end_offset` takes no appends.
    pub fn corruption(&self, log_end_offset: i64) -> Corruption {
        let lost = match self.end_offset {
            Some(end_offset) if end_offset - 1 == log_end_offset => format!("offset {log_end_offset} was in it"),
            Some(end_offset) => format!("offsets {log_end_offset} to {} were in it", end_offset - 1),
            None => format!("records from offset {log_end_offset} on may have been in it"),
        };
        Corruption {
            path: self.path.clone(),
            position: self.position,
            offset: log_end_offset,
            reason: format!("{}; {lost}. `walser check --repair` brings the log back without them", self.reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_round_trip_and_add_up() {
        // Rule: what is written is read back, and whatever else is there forgets nothing.
        let mark = |end_offset| DamageMark {
            end_offset,
            path: "/data/journal/0/a b.wal".into(),
            position: 8192,
            reason: "a record: gone".to_owned(),
        };
        for end_offset in [None, Some(0), Some(4711)] {
            assert_eq!(DamageMark::decode(mark(end_offset).encode().as_bytes()), mark(end_offset));
        }
        for bad in [&b""[..], b"version: 0\n", b"\xff\xfe", b"end_offset: x\n", b"end_offset: -7"] {
            assert_eq!(DamageMark::decode(bad).end_offset, None, "{bad:?}");
        }
        assert_eq!(mark(Some(3)).and(&mark(Some(5))).end_offset, Some(5));
        assert_eq!(mark(Some(3)).and(&mark(None)).end_offset, None);
        assert!(mark(None).covers(i64::MAX) && mark(Some(3)).covers(2) && !mark(Some(3)).covers(3));
    }
}
