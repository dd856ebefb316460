//! What a shard has promised and not yet put into segments.
//!
//! Small appends of many logs become durable together, as records of one write-ahead log per shard; the segments are
//! written later. A record is a run of bytes of one segment file (`record`), so that a start after a crash only has to
//! write those bytes where they belong (`replay`). Journals lie in `<data-dir>/journal/<n>/`, each of one run of the broker.

pub mod record;
pub mod replay;

use std::path::{Path, PathBuf};

/// Directory of all journals in a data directory.
pub const JOURNAL_DIR: &str = "journal";

/// Directory of the `number`-th journal.
pub fn folder(data_dir: &Path, number: usize) -> PathBuf {
    data_dir.join(JOURNAL_DIR).join(number.to_string())
}
