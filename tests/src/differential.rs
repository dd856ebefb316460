//! The same requests sent to Apache Kafka and to the broker under test; the decoded answers have to be equal.
//!
//! What differs between two brokers by nature is masked, field by field, each mask with its reason and a count of the times
//! it was needed; a mask that was never needed fails the run, and so does any other difference.

pub mod answers;
pub mod generate;
pub mod masks;
pub mod prng;
pub mod run;
pub mod tree;
pub mod world;
