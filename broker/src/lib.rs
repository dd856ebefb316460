//! The broker: network edge, shards, and what runs on them.

pub mod cli;
pub mod config;
pub mod driver;
pub mod error;
pub mod handler;
pub mod http;
pub mod log_dirs;
pub mod metrics;
pub mod net;
pub mod run;
pub mod shard;
pub mod start_checks;
