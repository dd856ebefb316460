//! A broker in this process, in a directory of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use walser_broker::config::BrokerConfig;
use walser_broker::shard::ShardSettings;

/// Removed with what is in it when dropped.
pub struct DataDir(PathBuf);

impl DataDir {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("broker-{}-{number}", std::process::id())))
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        // It may never have been made.
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// A free port, small frames, `shards` shards; more shards than cores share them.
pub fn settings(shards: usize) -> (ShardSettings, DataDir) {
    settings_with(shards, &[])
}

/// With more of the broker's own settings.
pub fn settings_with(shards: usize, more: &[(&str, &str)]) -> (ShardSettings, DataDir) {
    let data_dir = DataDir::new();
    let mut pairs = vec![
        ("listeners", "PLAINTEXT://127.0.0.1:0"),
        ("socket.request.max.bytes", "1048576"),
        ("log.dirs", data_dir.0.to_str().unwrap()),
    ];
    pairs.extend_from_slice(more);
    let config = BrokerConfig::from_pairs(&pairs).unwrap();
    let mut settings = ShardSettings::new(Arc::new(config)).unwrap();
    settings.cpus = settings.cpus.iter().copied().cycle().take(shards).collect();
    settings.frame_memory_bytes = 64 << 20;
    (settings, data_dir)
}
