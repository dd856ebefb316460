//! Offsets by timestamp.

use walser_protocol::records::batch::BatchHeader;

use crate::producer_state::EndMarker;

/// A record found by its timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundTimestamp {
    pub timestamp: i64,
    pub offset: i64,
    /// Of the batch that holds the record.
    pub leader_epoch: i32,
}

/// What a control batch says about a transaction; `None` for other control batches.
pub(super) fn end_marker(header: &BatchHeader, bytes: &[u8]) -> Option<EndMarker> {
    let _ = (header, bytes);
    None
}
