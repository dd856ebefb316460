//! Topics, partitions, configs and brokers: one replicated state, changed only by replay.
//!
//! ```text
//! command ──Controller──▶ records ──log, committed──▶ ImageBuilder ──▶ MetadataImage + MetadataDelta ──▶ every shard
//!    ▲                                                    │
//!    └────────────────── reads ───────────────────────────┘
//! ```
//!
//! - [`controller`]: reads an image, answers a command and names the records that carry it out. Changes nothing itself.
//! - [`records`]: those records. [`format`](mod@format): the bytes in which a batch of them, one command's, is logged.
//! - [`image`]: the state after some prefix of the log; immutable, cheap to derive the next one from, shared by threads.
//! - [`delta`]: what one step changed, so that a shard touches only what is new.
//!
//! Invariant: replaying [`image::MetadataImage::to_records`] into an empty image gives the same image again; it is what
//! makes a snapshot and a truncated log equal to the whole log.

pub mod controller;
pub mod delta;
pub mod format;
pub mod image;
pub mod records;
pub mod shared_map;
pub mod topic_name;

pub use controller::Controller;
pub use delta::MetadataDelta;
pub use image::MetadataImage;
pub use records::MetadataRecord;
