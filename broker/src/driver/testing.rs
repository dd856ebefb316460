//! What tests of drivers start with.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use walser_machine::ids::{BrokerId, DirectoryId, LeaderEpoch, TopicId};
use walser_machine::metadata::records::{MetadataRecord, PartitionRecord};
use walser_protocol::types::Uuid;
use walser_storage::data_dir::DataDir;

use super::partition::{JournalSettings, PartitionSettings};
use crate::log_dirs::LogDirs;

/// A partition of which `node` has the only replica.
pub fn partition_record(topic_id: TopicId, partition_index: i32, node: i32) -> MetadataRecord {
    let node = BrokerId::from_wire(node).unwrap();
    MetadataRecord::Partition(PartitionRecord {
        topic_id,
        partition_index,
        replicas: vec![node],
        in_sync_replicas: vec![node],
        leader: Some(node),
        leader_epoch: LeaderEpoch::ZERO,
        partition_epoch: 0,
        directories: vec![DirectoryId::UNASSIGNED],
    })
}

/// Data directories whose ids are 1, 2 and so on in every byte.
pub fn log_dirs(paths: &[&str], metadata: &str) -> LogDirs {
    let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
    let log_dirs = LogDirs::new(&paths, Path::new(metadata), 0);
    for (number, (_, dir)) in (1..).zip(log_dirs.iter()) {
        dir.set_id(Uuid::from_bytes([number; 16]));
    }
    log_dirs
}

/// One shard with little memory, and journals that are soon full.
pub fn partition_settings<D>(data_dirs: Vec<DataDir<D>>, log_dirs: Arc<LogDirs>, node_id: i32) -> PartitionSettings<D> {
    PartitionSettings {
        data_dirs,
        log_dirs,
        node_id,
        decompressed_bytes_max: 1 << 20,
        tail_bytes_max: 16 << 10,
        open_files_max: 8,
        journal: JournalSettings {
            number: 0,
            shard_count: 1,
            live_bytes_max: 1 << 20,
            staged_bytes_max: 1 << 20,
            batch_bytes_max: 8 << 10,
        },
        metrics: Arc::default(),
    }
}
