//! Record batches, format 2: parse, verify, iterate, build, compress.
//!
//! Everything here reads untrusted bytes: nothing panics, nothing allocates more than the caller's limit.

pub mod batch;
pub mod builder;
pub mod compression;
pub mod control;
pub mod crc;
pub mod record;

#[cfg(test)]
mod golden;
