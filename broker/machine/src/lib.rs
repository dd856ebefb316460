//! The broker's decisions, free of I/O.
//!
//! A machine takes inputs (and `now`, where time matters), changes its state and hands back effects or records; it never
//! waits, reads a clock, draws randomness, opens a file or walks a hash table in its own order. The same inputs give the same
//! outputs to the bit, so a whole cluster of machines runs under one seed. The crate's dependencies keep that promise.
//!
//! | module | decides |
//! | --- | --- |
//! | [`metadata`] | topics, partitions, configs, brokers: commands to records, records to images, images to deltas |
//! | [`fetch_session`] | KIP-227: which partitions an incremental fetch asks for and which of them its answer names |
//! | [`group`] | consumer groups and committed offsets: commands to records and replies, records to state |
//! | [`timing_wheel`] | deadlines, in constant time |

#![forbid(unsafe_code)]

pub mod fetch_session;
pub mod group;
pub mod ids;
pub mod metadata;
pub mod timing_wheel;
