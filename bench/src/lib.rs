//! Load over the wire against any Kafka-compatible broker, and what it costs that broker.

pub mod connection;
pub mod consume;
pub mod measured;
pub mod produce;
pub mod steady;
pub mod usage;
