//! Record batches, format 2: parse, verify, iterate, build, compress.
//!
//! Everything here reads untrusted bytes: nothing panics, nothing allocates more than the caller's limit.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod batch;
pub mod compression;
pub mod crc;
