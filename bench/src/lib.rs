//! Load over the wire against any Kafka-compatible broker, and what it costs that broker.

pub mod broker;
pub mod connection;
pub mod consume;
pub mod fill;
pub mod measured;
pub mod plain;
pub mod produce;
pub mod rounds;
pub mod steady;
pub mod tail;
pub mod usage;
pub mod write_path;
