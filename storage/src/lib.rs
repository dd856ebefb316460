//! Logs on disk: offsets and epochs, neither replicas nor requests.

pub mod disk;
pub mod runtime;
