//! What is kept in memory of what is in the logs, bounded in bytes.

pub mod block;
pub mod tail;
