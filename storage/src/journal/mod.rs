//! What a shard has promised and not yet put into segments.
//!
//! Small appends of many logs become durable together, as records of one write-ahead log per shard (`commit`); the segments
//! are written later. A record is a run of bytes of one segment file (`record`), so that a start after a crash only has to
//! write those bytes where they belong (`replay`). Journals lie in `<data-dir>/journal/<n>/`, each of one run of the broker.
//!
//! Records are let go of file by file. Before that the logs they belong to write what they can to their segments and flush
//! them; what does not fill a block is journalled anew (`checkpoint`). A log that nobody writes to for a while gives up its
//! last block, too, and then needs nothing here.
//!
//! The rules that make a replay right:
//! * Bytes of a segment never change, so writing them again does no harm, whatever of them the file has.
//! * A segment's file is made when everything before it is durable in segments, and a segment is removed or replaced only
//!   when the one behind it has its file. So records of a segment that is not a log's last one count for nothing.

mod checkpoint;
mod commit;
pub mod record;
pub mod replay;
#[cfg(test)]
pub(crate) mod tests;

use std::path::{Path, PathBuf};

pub(crate) use commit::{DirectRound, disk_error};
pub use commit::{Journal, JournalError, JournalHandle, JournalOptions};

/// Directory of all journals in a data directory.
pub const JOURNAL_DIR: &str = "journal";

/// Directory of the `number`-th journal.
pub fn folder(data_dir: &Path, number: usize) -> PathBuf {
    data_dir.join(JOURNAL_DIR).join(number.to_string())
}
