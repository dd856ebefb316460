//! What is kept in memory of what is in the logs, bounded in bytes.

pub mod tail;
