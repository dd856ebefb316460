//! Logs on disk: offsets and epochs, neither replicas nor requests.
//!
//! | module | what it is about |
//! | --- | --- |
//! | `disk`, `runtime` | the seams: files and tasks, on glommio and simulated |
//! | `data_dir` | whose directory it is, which partitions lie in it, how it was left |
//! | `log` | one partition: append, commit, read, recovery |
//! | `segment`, `index` | the files of a log |
//! | `validate`, `producer_state`, `leader_epoch` | pure: what may be appended, by whom, in which epoch |
//! | `compaction` | pure: what of a log its keys outdate |
//! | `cache` | recent batches in memory |
//! | `checkpoint` | small files replaced as a whole |
//! | `journal` | small appends of a shard's logs made durable together, and put into segments later |
//! | `wal` | pre-written, recycled files with group commit |
//! | `check` | a whole data directory verified, and mended, while no broker uses it |
//!
//! # Durability
//!
//! `Log::append_as_leader` promises nothing. When `Log::durable` says yes, the batch is, by the topic's level, in memory,
//! handed to the disk, or on stable storage (in the journal or in a segment) with everything before it, the names of its
//! files included. A failed write or
//! sync ends that for the log until the next start: a later call that succeeds proves nothing about the lost one. A disk
//! that refuses bytes for lack of space has lost none; they are kept and written when there is space.
//!
//! After a crash a log holds everything that was acknowledged, perhaps more of what was appended, and nothing else. What
//! recovery cuts off was never acknowledged at level `flushed`; what might have been is reported and left alone.

pub mod cache;
pub mod check;
pub mod checkpoint;
pub mod compaction;
pub mod data_dir;
pub mod disk;
pub mod error;
pub mod index;
pub mod journal;
pub mod leader_epoch;
pub mod limits;
pub mod log;
#[cfg(test)]
mod model;
pub mod open_files;
pub mod producer_state;
pub mod runtime;
pub mod segment;
pub mod validate;
pub mod wal;
