//! What can go wrong in a log, with the numbers a reader needs. Kafka's codes are given at the broker's edge.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::producer_state::ProducerError;

/// A file operation that failed: what was done to which file.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{operation} {}: {source}", path.display())]
pub struct DiskError {
    pub operation: &'static str,
    pub path: PathBuf,
    /// Shared, because everybody who waited for one commit hears of the same failure.
    pub source: Arc<io::Error>,
}

impl DiskError {
    pub fn new(operation: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self { operation, path: path.into(), source: Arc::new(source) }
    }

    /// There was no room.
    pub fn is_full(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// The bytes were refused (disk full, quota used up, no descriptor left): none that were accepted are lost, and the
    /// same call may succeed later. Never true of a sync in this sense: there it means that bytes are lost.
    pub fn is_refusal(&self) -> bool {
        let no_descriptor = matches!(self.source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
        no_descriptor || self.is_full()
    }
}

/// Bytes on disk that are not what was put there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is corrupt at byte {position} (offset {offset}): {reason}", path.display())]
pub struct Corruption {
    pub path: PathBuf,
    pub position: u64,
    /// The offset expected at `position`.
    pub offset: i64,
    pub reason: String,
}

/// Why a log takes no appends, or no longer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogOffline {
    /// A failed write or sync: what was not durable before cannot be trusted, whatever a later call says. Until restart.
    #[error("the log is offline after a failed disk operation: {0}")]
    Failed(DiskError),
    /// Recovery found bytes below what may have been acknowledged that do not verify. Until an operator mends it.
    #[error("the log is offline: {0}")]
    Corrupt(Corruption),
    #[error("the log is closed")]
    Closed,
}

/// Why a batch was not appended. Nothing of it is in the log.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AppendError {
    #[error(transparent)]
    Producer(#[from] ProducerError),
    #[error("a batch of {batch_bytes} bytes does not fit into a segment of {segment_bytes}")]
    BatchExceedsSegment { batch_bytes: usize, segment_bytes: u32 },
    #[error("leader epoch {given} is older than {current}")]
    StaleLeaderEpoch { given: i32, current: i32 },
    /// The disk takes less than is sent: try again.
    #[error("{staged_bytes} bytes wait to be written")]
    Overloaded { staged_bytes: usize },
    /// No space, or no file descriptor, left: try again, the log recovers by itself.
    #[error("the disk takes nothing at present: {0}")]
    Unavailable(DiskError),
    #[error("no offset is left")]
    OffsetsExhausted,
    #[error(transparent)]
    Offline(#[from] LogOffline),
}

/// Why what was appended did not become durable, as far as is known.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitError {
    /// The bytes are kept and written when there is space; a producer that tries again finds them.
    #[error("the disk takes nothing at present: {0}")]
    Unavailable(DiskError),
    #[error(transparent)]
    Offline(#[from] LogOffline),
}

/// Why nothing was read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    #[error("offset {offset} is not in {log_start_offset}..={log_end_offset}")]
    OffsetOutOfRange { offset: i64, log_start_offset: i64, log_end_offset: i64 },
    #[error(transparent)]
    Corrupt(#[from] Corruption),
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Why a log could not be opened or closed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Corrupt(#[from] Corruption),
}
