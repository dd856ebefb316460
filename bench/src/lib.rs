//! Load over the wire against any Kafka-compatible broker, and what it costs that broker.

pub mod connection;
pub mod produce;
pub mod usage;
