//! Bytes to values and back: Kafka's messages, headers, frames and record batches. No I/O.
//!
//! What is decoded borrows from the frame it came in. No input panics, and a decoded message takes at most
//! [`reader::MEMORY_FACTOR_MAX`] times the memory of its frame.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

pub mod api;
pub mod error_code;
pub mod frame;
pub mod header;
pub mod messages;
pub mod reader;
pub mod records;
pub mod types;
pub mod varint;
pub mod writer;

pub use api::ApiKey;
pub use error_code::ErrorCode;
pub use reader::{DecodeError, Reader};
pub use types::Uuid;
pub use writer::{EncodeError, Writer};
