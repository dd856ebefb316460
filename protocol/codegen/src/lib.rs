//! Message schemas (`.kmsg` text) to Rust source. Pure: text in, text out; `build.rs` of the protocol crate does the files.
//!
//! # The format
//!
//! One file per API key (`NN_name.kmsg`, request and response) or per family of record types (`records/*.kmsg`).
//! Indentation by two spaces nests, `#` begins a comment line.
//!
//! ```text
//! api 3 Metadata                                          only in files of API keys
//!
//! message MetadataRequest versions 0-13 flexible 9+       a top-level message; `flexible never` and `hot` exist too
//!   topics []MetadataRequestTopic 0+ nullable 1+          field: name, type, versions, then any of the options
//!     topic_id uuid 10+ ignorable                         deeper lines: the fields of the struct named just above
//!     name string 0+ nullable 10+
//!   struct Shared                                         a struct that several fields of this message use
//!     epoch int32 0+ default -1
//!
//! message TopicRecord type 2 versions 0 flexible 0+       `type`: the record type number in front of a record's body
//! ```
//!
//! Types: `bool int8 int16 uint16 int32 uint32 int64 float64 string bytes records uuid`, a struct's name, or `[]` and one of
//! these. Versions: `N`, `N-M` or `N+`. `hot` gives every version straight-line code of its own, in the direction a broker
//! goes: requests decoded, responses encoded. Options of a field:
//! - `nullable V`: null is legal in these versions; the Rust type becomes an `Option`.
//! - `tag N`: a tagged field; written only when it differs from its default.
//! - `default X`: `null`, `true` or a number; without it zero, empty or a struct of defaults.
//! - `ignorable`: encoding at a version without the field drops a value that is not the default, instead of failing.
//!
//! # What comes out
//!
//! A module per file, named after it; in it every struct with public fields, `Default`, `decode`, `encode`, and for the
//! top-level ones `encoded_len` and their versions. A struct borrows (`<'a>`) when anything inside it does.
//!
//! Array counts are checked against the least number of bytes an element can take in that version, computed here; a
//! constant assertion beside every struct keeps its size in memory within [`MEMORY_FACTOR_MAX`] times that.

mod emit;
mod layout;
mod sample;
mod schema;

pub use emit::{Module, generate_api_table, generate_message_list, generate_module};
pub use sample::{Sampler, Style};
pub use schema::{Api, Default, Field, Message, ParseError, Schema, Struct, Type, Versions, parse};

/// Memory a decoded message may take, per byte of its frame.
pub const MEMORY_FACTOR_MAX: usize = 32;
