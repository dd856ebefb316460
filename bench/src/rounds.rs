//! Rounds: one request with a record for each partition, and how long until all of it is acknowledged.

use std::io;
use std::time::Instant;

use hdrhistogram::Histogram;

use crate::connection::Connection;
use crate::measured::{histogram, micros};
use crate::produce::{accepted, await_leaders, batch, frame};

#[derive(Clone, Debug)]
pub struct Rounds {
    pub address: String,
    pub topic: String,
    pub partitions: i32,
    /// Of a record's value.
    pub record_bytes: usize,
    pub acks: i16,
    pub warm_up: u32,
    pub measured: u32,
}

/// Runs them on a topic that is there; microseconds of a round.
pub fn run(rounds: &Rounds) -> io::Result<Histogram<u64>> {
    let batch = batch(rounds.record_bytes, 0)?;
    let request = frame(&rounds.topic, 0..rounds.partitions, rounds.acks, 0, &batch)?;
    await_leaders(&rounds.address, std::slice::from_ref(&request))?;
    let mut connection = Connection::open(&rounds.address)?;
    let mut latency = histogram()?;
    for round in 0..rounds.warm_up + rounds.measured {
        let begin = Instant::now();
        connection.send(&request)?;
        accepted(connection.receive()?, 0)?;
        if round >= rounds.warm_up {
            latency.record(micros(begin.elapsed())).map_err(io::Error::other)?;
        }
    }
    Ok(latency)
}
