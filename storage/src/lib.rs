//! Logs on disk: offsets and epochs, neither replicas nor requests.

pub mod cache;
pub mod checkpoint;
pub mod data_dir;
pub mod disk;
pub mod error;
pub mod index;
pub mod leader_epoch;
pub mod limits;
pub mod log;
pub mod producer_state;
pub mod runtime;
pub mod segment;
pub mod validate;
pub mod wal;
