//! Filling a topic with records that have keys, each key as often as the next one.

use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};

use crate::connection::Connection;
use crate::measured::{Measured, histogram, micros};
use crate::produce::{accepted, frame, noise, now_ms};

/// Requests that are open at a time.
const DEPTH: usize = 8;
/// A large prime: what follows each other is far apart, and every key is met.
const STEP: u64 = 0x9E37_79B1;

#[derive(Clone, Debug)]
pub struct Fill {
    pub address: String,
    pub topic: String,
    pub partitions: i32,
    pub keys: u64,
    pub records: u64,
    /// Of a record's value.
    pub record_bytes: usize,
    pub batch_records: u64,
}

/// Fills a topic that is there; every `keys` records in a row have different keys.
pub fn run(fill: &Fill) -> io::Result<Measured> {
    let keys = fill.keys.max(1);
    let mut connection = Connection::open(&fill.address)?;
    let (mut latency, mut open) = (histogram()?, VecDeque::new());
    let (mut sent, mut requests, mut bytes) = (0, 0i32, 0);
    let value = noise(fill.record_bytes);
    let begin = Instant::now();
    while sent < fill.records || !open.is_empty() {
        if sent < fill.records && open.len() < DEPTH {
            let numbers = sent..fill.records.min(sent + fill.batch_records.max(1));
            sent = numbers.end;
            let batch = batch(numbers.map(|number| number.wrapping_mul(STEP) % keys), &value)?;
            bytes += batch.len() as u64;
            let partition = requests % fill.partitions;
            connection.send(&frame(&fill.topic, partition..partition + 1, -1, requests, &batch)?)?;
            open.push_back((requests, Instant::now()));
            requests += 1;
        } else if let Some((correlation_id, at)) = open.pop_front() {
            accepted(connection.receive()?, correlation_id)?;
            latency.record(micros(at.elapsed())).map_err(io::Error::other)?;
        }
    }
    let requests = requests.unsigned_abs().into();
    Ok(Measured { elapsed: begin.elapsed(), requests, requests_in_all: requests, bytes, latency, cost: None })
}

fn batch(keys: impl Iterator<Item = u64>, value: &[u8]) -> io::Result<Vec<u8>> {
    let timestamp = now_ms()?;
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for key in keys {
        let record = NewRecord { timestamp, key: Some(&key.to_be_bytes()), value: Some(value), ..NewRecord::default() };
        builder.append(&record).map_err(io::Error::other)?;
    }
    builder.build().map_err(io::Error::other)
}
