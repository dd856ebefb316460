//! Small files replaced as a whole: the old content or the new one survives a crash, never a mixture.
//!
//! `recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`, `cleaner-offset-checkpoint` and
//! `replication-offset-checkpoint` in a data directory, text, one partition a line:
//! ```text
//! 0                    version
//! 1                    entries
//! topic 0 4711         topic, partition, offset
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use bytes::Bytes;

use crate::disk::{BLOCK_BYTES, Disk, File, OpenMode};
use crate::error::DiskError;

/// Up to here a log is durable with its indexes: recovery scans from there.
pub const RECOVERY_POINT_FILE: &str = "recovery-point-offset-checkpoint";
/// Where a log begins when that is above its first segment.
pub const LOG_START_OFFSET_FILE: &str = "log-start-offset-checkpoint";
/// Up to where a log is compacted.
pub const CLEANER_OFFSET_FILE: &str = "cleaner-offset-checkpoint";
/// High watermarks.
pub const REPLICATION_OFFSET_FILE: &str = "replication-offset-checkpoint";
/// No small file is read into memory beyond this.
pub const SMALL_FILE_BYTES_MAX: u64 = 256 << 20;
/// Ending of a file that is being written; left over only by a crash.
pub const TEMPORARY_SUFFIX: &str = ".tmp";

/// Replaces `path` by `content`: written beside it, synced, renamed over it, the directory synced. After an error the old
/// content is still there.
pub async fn replace_file<D: Disk>(disk: &D, path: &Path, content: &[u8]) -> Result<(), DiskError> {
    replace_unnamed(disk, path, content).await?;
    sync_dir(disk, path.parent().unwrap_or(Path::new("."))).await
}

/// Makes the names in a directory durable.
pub(crate) async fn sync_dir<D: Disk>(disk: &D, dir: &Path) -> Result<(), DiskError> {
    disk.sync_dir(dir).await.map_err(|e| DiskError::new("sync directory", dir, e))
}

/// As [`replace_file`], but until the directory is synced a power cut may bring back the old content.
pub async fn replace_unnamed<D: Disk>(disk: &D, path: &Path, content: &[u8]) -> Result<(), DiskError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(TEMPORARY_SUFFIX);
    let temporary = Path::new(&temporary);
    write_file(disk, temporary, content).await?;
    disk.rename(temporary, path).await.map_err(|e| DiskError::new("rename to", path, e))
}

/// Writes a file from its start, cut to `content`, and syncs it; not its directory.
pub async fn write_file<D: Disk>(disk: &D, path: &Path, content: &[u8]) -> Result<(), DiskError> {
    let written = match write_unsynced(disk, path, content).await {
        Err(error) if error.is_full() && disk.make_way().await => write_unsynced(disk, path, content).await,
        done => done,
    };
    written?.sync_data().await.map_err(|e| DiskError::new("sync", path, e))
}

/// As [`write_file`], and any part of it may be gone with the power.
pub async fn write_unsynced<D: Disk>(disk: &D, path: &Path, content: &[u8]) -> Result<D::File, DiskError> {
    let failed = |operation| move |e| DiskError::new(operation, path, e);
    let file = disk.open(path, OpenMode::CreateOrOpen).await.map_err(failed("create"))?;
    let mut position = 0;
    for chunk in content.chunks(WRITE_CHUNK_BYTES) {
        let mut buffer = file.allocate(chunk.len());
        buffer[..chunk.len()].copy_from_slice(chunk);
        buffer[chunk.len()..].fill(0);
        file.write_at(buffer, position).await.map_err(failed("write"))?;
        position += chunk.len() as u64;
    }
    file.truncate(content.len() as u64).await.map_err(failed("truncate"))?;
    Ok(file)
}

const WRITE_CHUNK_BYTES: usize = 256 << 10;
const _: () = assert!(WRITE_CHUNK_BYTES.is_multiple_of(BLOCK_BYTES));

/// A whole small file; `None` when there is none.
pub async fn read_file<D: Disk>(disk: &D, path: &Path) -> Result<Option<Bytes>, DiskError> {
    let failed = |operation| move |e| DiskError::new(operation, path, e);
    let file = match disk.open(path, OpenMode::Read).await {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(DiskError::new("open", path, error)),
    };
    let len_bytes = file.len_bytes().await.map_err(failed("read the length of"))?;
    if len_bytes > SMALL_FILE_BYTES_MAX {
        let error = io::Error::new(io::ErrorKind::FileTooLarge, format!("{len_bytes} bytes"));
        return Err(DiskError::new("read", path, error));
    }
    if len_bytes == 0 {
        return Ok(Some(Bytes::new()));
    }
    file.read_at(0, len_bytes as usize).await.map(Some).map_err(failed("read"))
}

/// Why bytes are no offset checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    #[error("not UTF-8 text")]
    NotText,
    #[error("version {found:?} is not supported")]
    BadVersion { found: String },
    #[error("line {line} is not what the format asks for")]
    BadLine { line: usize },
    #[error("{announced} entries announced, {found} found")]
    BadCount { announced: usize, found: usize },
}

/// One offset per partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetCheckpoint {
    pub offsets: BTreeMap<(String, i32), i64>,
}

impl OffsetCheckpoint {
    /// The file's text.
    pub fn encode(&self) -> String {
        let mut text = format!("0\n{}\n", self.offsets.len());
        for ((topic, partition), offset) in &self.offsets {
            writeln!(text, "{topic} {partition} {offset}").expect("a String takes every write");
        }
        text
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, CheckpointError> {
        let text = std::str::from_utf8(bytes).map_err(|_| CheckpointError::NotText)?;
        let mut lines = text.lines();
        let version = lines.next().unwrap_or_default().trim();
        if version != "0" {
            return Err(CheckpointError::BadVersion { found: version.chars().take(20).collect() });
        }
        let count_line = lines.next().unwrap_or_default().trim();
        let announced: usize = count_line.parse().map_err(|_| CheckpointError::BadLine { line: 2 })?;
        let mut checkpoint = Self::default();
        let mut found = 0;
        for (at, line) in lines.enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let (key, offset) = parse_line(line).ok_or(CheckpointError::BadLine { line: at + 3 })?;
            checkpoint.offsets.insert(key, offset);
            found += 1;
        }
        if found == announced { Ok(checkpoint) } else { Err(CheckpointError::BadCount { announced, found }) }
    }
}

fn parse_line(line: &str) -> Option<((String, i32), i64)> {
    let mut words = line.split_ascii_whitespace();
    let topic = words.next()?.to_owned();
    let partition: i32 = words.next()?.parse().ok()?;
    let offset: i64 = words.next()?.parse().ok()?;
    (words.next().is_none() && partition >= 0 && offset >= 0).then_some(((topic, partition), offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_checkpoint_round_trip() {
        // What is written is read back; anything else is an error, not a guess.
        let mut checkpoint = OffsetCheckpoint::default();
        checkpoint.offsets.insert(("a.b_c-1".to_owned(), 3), 4711);
        checkpoint.offsets.insert(("z".to_owned(), 0), 0);
        assert_eq!(checkpoint.encode(), "0\n2\na.b_c-1 3 4711\nz 0 0\n");
        assert_eq!(OffsetCheckpoint::decode(checkpoint.encode().as_bytes()), Ok(checkpoint));
        for bad in ["", "1\n0\n", "0\n", "0\n2\na 0 0\n", "0\n1\na 0\n", "0\n1\na 0 -1\n", "0\n1\na 0 1 2\n"] {
            assert!(OffsetCheckpoint::decode(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
