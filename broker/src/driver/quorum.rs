//! The metadata log of one node.

use std::sync::Arc;

use walser_machine::metadata::{MetadataImage, MetadataRecord};
use walser_storage::disk::Disk;
use walser_storage::runtime::Runtime;

/// Why the metadata log cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum QuorumError {}

/// Committed records, in order.
pub struct Quorum<D: Disk, R: Runtime> {
    _disk: D,
    _runtime: R,
}

impl<D: Disk, R: Runtime> Quorum<D, R> {
    pub async fn open(
        disk: D,
        runtime: R,
        _dir: std::path::PathBuf,
    ) -> Result<(Self, Arc<MetadataImage>), QuorumError> {
        Ok((Self { _disk: disk, _runtime: runtime }, Arc::default()))
    }

    /// Returns when the records are on stable storage, as one batch.
    pub async fn append(&self, _records: &[MetadataRecord]) -> Result<(), QuorumError> {
        Ok(())
    }

    /// Shortens the log when it has grown.
    pub async fn snapshot_if_due(&self, _image: &MetadataImage) {}
}
