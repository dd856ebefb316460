//! A steady stream: so many small records a second whatever the broker does, and how long each took to be acknowledged and to
//! be seen by a consumer that keeps up. A record that had to wait for its turn counts from when its turn was, so that a
//! pause is seen by all that fell into it.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use walser_protocol::ApiKey;
use walser_protocol::records::batch::Batches;
use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};
use walser_protocol::records::record;
use walser_protocol::types::Records;

use crate::connection::Connection;
use crate::consume::{FETCH_VERSION, answer_of, fetch_partition, fetch_request, next_offset, parts};
use crate::measured::{histogram, micros};
use crate::produce::{accepted, now_ms};

/// A consumer's fetch waits so long for records.
const FETCH_WAIT_MS: i32 = 100;
const FETCH_BYTES: i32 = 1 << 20;
/// A record's value begins with the microseconds from the beginning to when it was due.
const RECORD_BYTES_MIN: usize = 8;

#[derive(Clone, Debug)]
pub struct Stream {
    pub address: String,
    pub topic: String,
    pub partitions: i32,
    pub records_per_second: u32,
    /// Of a record's value, at least 8.
    pub record_bytes: usize,
    pub acks: i16,
    pub warm_up: Duration,
    pub measured: Duration,
}

/// Microseconds from when a record was due.
#[derive(Clone, Debug)]
pub struct Latencies {
    pub acknowledged: Histogram<u64>,
    pub consumed: Histogram<u64>,
}

/// Runs the stream on a topic that is there.
pub fn run(stream: &Stream) -> io::Result<Latencies> {
    let ends = ends(stream)?;
    let begin = Instant::now();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let is_over = &is_over;
        let consumer = scope.spawn(move || consume(stream, ends, begin, is_over));
        let acknowledged = produce(stream, begin);
        is_over.store(true, Ordering::Relaxed);
        let died = |_| io::Error::other("the consumer's thread died");
        Ok(Latencies { consumed: consumer.join().map_err(died)??, acknowledged: acknowledged? })
    })
}

/// Where the partitions end now.
fn ends(stream: &Stream) -> io::Result<BTreeMap<i32, i64>> {
    let mut connection = Connection::open(&stream.address)?;
    let partitions = (0..stream.partitions).map(|index| fetch_partition(index, 0, 1)).collect();
    let request = fetch_request(&stream.topic, partitions, 1, 0);
    let answer = answer_of(connection.call(ApiKey::Fetch, FETCH_VERSION, &request)?)?;
    Ok(parts(&answer)?.into_iter().map(|part| (part.partition_index, part.high_watermark)).collect())
}

fn due(stream: &Stream, number: u32) -> Duration {
    Duration::from_secs(1) * number / stream.records_per_second
}

fn is_measured(stream: &Stream, due: Duration) -> bool {
    due >= stream.warm_up && due < stream.warm_up + stream.measured
}

fn produce(stream: &Stream, begin: Instant) -> io::Result<Histogram<u64>> {
    let seconds = (stream.warm_up + stream.measured).as_secs();
    let count = u64::from(stream.records_per_second) * seconds;
    let count = u32::try_from(count).map_err(io::Error::other)?;
    let (mut writing, mut reading) = Connection::open(&stream.address)?.split()?;
    thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut latency = histogram()?;
            for number in 0..count {
                accepted(reading.receive()?, i32::try_from(number).map_err(io::Error::other)?)?;
                let due = due(stream, number);
                if is_measured(stream, due) {
                    latency.record(micros(begin.elapsed().saturating_sub(due))).map_err(io::Error::other)?;
                }
            }
            io::Result::Ok(latency)
        });
        for number in 0..count {
            let due = due(stream, number);
            thread::sleep(due.saturating_sub(begin.elapsed()));
            writing.send(&frame(stream, number, due)?)?;
        }
        reader.join().map_err(|_| io::Error::other("the thread of the answers died"))?
    })
}

/// One record that says when it was due.
fn frame(stream: &Stream, number: u32, due: Duration) -> io::Result<Vec<u8>> {
    let mut value = vec![b'w'; stream.record_bytes.max(RECORD_BYTES_MIN)];
    value[..RECORD_BYTES_MIN].copy_from_slice(&micros(due).to_be_bytes());
    let timestamp = now_ms()?;
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(&NewRecord { timestamp, value: Some(&value), ..NewRecord::default() }).map_err(io::Error::other)?;
    let batch = builder.build().map_err(io::Error::other)?;
    let correlation_id = i32::try_from(number).map_err(io::Error::other)?;
    let partition = correlation_id % stream.partitions;
    crate::produce::frame(&stream.topic, partition..partition + 1, stream.acks, correlation_id, &batch)
}

fn consume(
    stream: &Stream,
    mut offsets: BTreeMap<i32, i64>,
    begin: Instant,
    is_over: &AtomicBool,
) -> io::Result<Histogram<u64>> {
    let mut latency = histogram()?;
    let mut connection = Connection::open(&stream.address)?;
    while !is_over.load(Ordering::Relaxed) {
        let partitions = offsets.iter().map(|(index, offset)| fetch_partition(*index, *offset, FETCH_BYTES)).collect();
        let request = fetch_request(&stream.topic, partitions, FETCH_BYTES, FETCH_WAIT_MS);
        let answer = answer_of(connection.call(ApiKey::Fetch, FETCH_VERSION, &request)?)?;
        let now = begin.elapsed();
        for data in parts(&answer)? {
            for batch in Batches::new(data.records.and_then(Records::as_whole).unwrap_or_default()) {
                let batch = batch.map_err(io::Error::other)?;
                for record in record::Records::new(batch.header(), batch.records_bytes()) {
                    let value = record.map_err(io::Error::other)?.value;
                    let due = due_of(value).ok_or_else(|| io::Error::other("a record of somebody else"))?;
                    if is_measured(stream, due) {
                        latency.record(micros(now.saturating_sub(due))).map_err(io::Error::other)?;
                    }
                }
            }
            if let Some(next) = next_offset(data)? {
                offsets.insert(data.partition_index, next);
            }
        }
    }
    Ok(latency)
}

/// When the record was due, by what it says.
fn due_of(value: Option<&[u8]>) -> Option<Duration> {
    let micros = *value?.first_chunk()?;
    Some(Duration::from_micros(u64::from_be_bytes(micros)))
}
