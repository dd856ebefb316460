//! Where a partition was before it was moved from one data directory to another.
//!
//! The copy gets its name before the original loses its own, so after a crash in between there are two. The file
//! `moved-from` in the copy, durable before it has its name, says which one is the original:
//! ```text
//! version: 0
//! directory_id: <directory.id of the other data directory>
//! ```
//! It is gone once the original is, and before the partition is moved again.

use std::path::Path;

use walser_protocol::types::Uuid;

use crate::checkpoint::{read_file, sync_dir};
use crate::disk::Disk;
use crate::error::DiskError;
use crate::log::remove_if_there;

pub const MOVED_FROM_FILE: &str = "moved-from";

pub fn encode_moved_from(directory_id: Uuid) -> String {
    format!("version: 0\ndirectory_id: {directory_id}\n")
}

/// `None` when it is not what [`encode_moved_from`] writes.
pub fn decode_moved_from(bytes: &[u8]) -> Option<Uuid> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut lines = text.lines();
    let is_known = lines.next()? == "version: 0";
    let directory_id = lines.next()?.strip_prefix("directory_id: ")?;
    is_known.then(|| directory_id.parse().ok()).flatten()
}

/// What the file in a partition's directory says.
pub async fn read_moved_from<D: Disk>(disk: &D, dir: &Path) -> Result<Option<Uuid>, DiskError> {
    let content = read_file(disk, &dir.join(MOVED_FROM_FILE)).await?;
    Ok(content.as_deref().and_then(decode_moved_from))
}

/// Removes the file from a partition's directory, durably.
pub async fn remove_moved_from<D: Disk>(disk: &D, dir: &Path) -> Result<(), DiskError> {
    remove_if_there(disk, &dir.join(MOVED_FROM_FILE)).await?;
    sync_dir(disk, dir).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        // Rule: anything else names no directory.
        let id = Uuid::from_bytes([9; 16]);
        assert_eq!(decode_moved_from(encode_moved_from(id).as_bytes()), Some(id));
        for bad in
            ["", "version: 0", "version: 1\ndirectory_id: CQkJCQkJCQkJCQkJCQkJCQ\n", "version: 0\ndirectory_id: x\n"]
        {
            assert_eq!(decode_moved_from(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
