//! Load over the wire against any Kafka-compatible broker, and what it costs that broker.

pub mod connection;
pub mod consume;
pub mod fill;
pub mod measured;
pub mod produce;
pub mod rounds;
pub mod steady;
pub mod usage;
