//! Closed-loop produce: every connection keeps so many requests open, each one batch for one partition.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use walser_protocol::header::{ResponseHeader, encode_request};
use walser_protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest, CreateTopicsResponse};
use walser_protocol::messages::produce::{PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData};
use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};
use walser_protocol::{ApiKey, ErrorCode, Reader};

use crate::connection::{CLIENT_ID, Connection};
use crate::measured::{Measured, histogram, micros};
use crate::usage;

/// Names topics, and is what clients of the last years send.
const PRODUCE_VERSION: i16 = 9;
const CREATE_VERSION: i16 = 5;
const TIMEOUT_MS: i32 = 30_000;
/// Where a request's correlation id stands: behind size, key and version.
const CORRELATION_ID_AT: usize = 8;
/// Leaders appear a moment after the topic.
const LEADER_PATIENCE: Duration = Duration::from_secs(20);
const LEADER_PAUSE: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
pub struct Load {
    pub address: String,
    pub topic: String,
    pub partitions: i32,
    pub connections: usize,
    /// Requests that a connection keeps open.
    pub depth: usize,
    /// Records are put into a batch until one more would make it larger than this.
    pub batch_bytes: usize,
    /// Bytes of a record's value.
    pub record_bytes: usize,
    pub acks: i16,
    pub warm_up: Duration,
    pub measured: Duration,
}

/// Makes the topic, unless it is there.
pub fn create_topic(address: &str, name: &str, num_partitions: i32) -> io::Result<()> {
    let topic = CreatableTopic { name, num_partitions, replication_factor: 1, ..CreatableTopic::default() };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: TIMEOUT_MS, ..CreateTopicsRequest::default() };
    let mut connection = Connection::open(address)?;
    let answer = connection.call(ApiKey::CreateTopics, CREATE_VERSION, &request)?;
    let answer = CreateTopicsResponse::decode(&mut Reader::new(answer), CREATE_VERSION).map_err(io::Error::other)?;
    let code = answer.topics.first().map_or(0, |topic| topic.error_code);
    if code == 0 || code == ErrorCode::TopicAlreadyExists.code() {
        return Ok(());
    }
    Err(io::Error::other(format!("the topic was not made: error {code}")))
}

/// Runs the load; with `pid`, says what it cost that process.
pub fn run(load: &Load, pid: Option<u32>) -> io::Result<Measured> {
    let batch = batch(load.record_bytes, load.batch_bytes)?;
    let frames: Vec<Vec<u8>> = (0..load.partitions)
        .map(|partition| frame(&load.topic, partition..partition + 1, load.acks, 0, &batch))
        .collect::<io::Result<_>>()?;
    await_leaders(&load.address, &frames)?;
    let measuring_from = Instant::now() + load.warm_up;
    let until = measuring_from + load.measured;
    let (requests, requests_in_all) = (AtomicU64::new(0), AtomicU64::new(0));
    let (latency, before, after) = thread::scope(|scope| {
        let workers: Vec<_> = (0..load.connections)
            .map(|number| {
                let frames = own_frames(load, number, &frames);
                let counts = (&requests, &requests_in_all);
                scope.spawn(move || worker(load, frames, measuring_from, until, counts))
            })
            .collect();
        thread::sleep(measuring_from.saturating_duration_since(Instant::now()));
        let before = pid.map(usage::of).transpose()?;
        thread::sleep(until.saturating_duration_since(Instant::now()));
        let after = pid.map(usage::of).transpose()?;
        let mut whole = histogram()?;
        for worker in workers {
            let one = worker.join().map_err(|_| io::Error::other("a connection's thread died"))??;
            whole.add(one).map_err(io::Error::other)?;
        }
        io::Result::Ok((whole, before, after))
    })?;
    let requests = requests.into_inner();
    let batch_bytes = u64::try_from(batch.len()).map_err(io::Error::other)?;
    Ok(Measured {
        elapsed: load.measured,
        requests,
        requests_in_all: requests_in_all.into_inner(),
        bytes: requests * batch_bytes,
        latency,
        cost: before.zip(after).map(|(before, after)| after.since(before)),
    })
}

/// A batch of as many records as fit, and of one at least.
pub(crate) fn batch(record_bytes: usize, batch_bytes: usize) -> io::Result<Vec<u8>> {
    let timestamp = now_ms()?;
    let value = noise(record_bytes);
    let mut builder = BatchBuilder::new(BatchOptions::default());
    loop {
        builder
            .append(&NewRecord { timestamp, value: Some(&value), ..NewRecord::default() })
            .map_err(io::Error::other)?;
        let record = builder.uncompressed_len() / usize::try_from(builder.record_count()).map_err(io::Error::other)?;
        if builder.uncompressed_len() + record > batch_bytes {
            return builder.build().map_err(io::Error::other);
        }
    }
}

/// No byte sequence that a file system or a device could make smaller.
pub(crate) fn noise(len_bytes: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..len_bytes).map(next).collect()
}

/// A request with this batch for each of the partitions.
pub(crate) fn frame(
    topic: &str,
    partitions: Range<i32>,
    acks: i16,
    correlation_id: i32,
    batch: &[u8],
) -> io::Result<Vec<u8>> {
    let partition_data = partitions.map(|index| PartitionProduceData { index, records: Some(batch) }).collect();
    let topic = TopicProduceData { name: topic, partition_data, ..TopicProduceData::default() };
    let request = ProduceRequest { acks, timeout_ms: TIMEOUT_MS, topic_data: vec![topic], ..ProduceRequest::default() };
    let frame = encode_request(ApiKey::Produce, PRODUCE_VERSION, correlation_id, Some(CLIENT_ID), &request);
    frame.map(|frame| frame.to_vec()).map_err(io::Error::other)
}

pub(crate) fn now_ms() -> io::Result<i64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
    i64::try_from(now.as_millis()).map_err(io::Error::other)
}

/// Sends each of the requests, again until there are leaders for it.
pub(crate) fn await_leaders(address: &str, frames: &[Vec<u8>]) -> io::Result<()> {
    let mut connection = Connection::open(address)?;
    let deadline = Instant::now() + LEADER_PATIENCE;
    for frame in frames {
        loop {
            connection.send(frame)?;
            let Err(error) = accepted(connection.receive()?, 0) else { break };
            if Instant::now() > deadline {
                return Err(error);
            }
            thread::sleep(LEADER_PAUSE);
        }
    }
    Ok(())
}

/// Fails unless the answer is to that request and without error.
pub(crate) fn accepted(answer: &[u8], correlation_id: i32) -> io::Result<()> {
    let mut reader = Reader::new(answer);
    let header = ResponseHeader::decode(&mut reader, ApiKey::Produce.response_header_version(PRODUCE_VERSION))
        .map_err(io::Error::other)?;
    if header.correlation_id != correlation_id {
        return Err(io::Error::other(format!("answer to {}, want {correlation_id}", header.correlation_id)));
    }
    let answer = ProduceResponse::decode(&mut reader, PRODUCE_VERSION).map_err(io::Error::other)?;
    let codes = answer.responses.iter().flat_map(|topic| topic.partition_responses.iter().map(|one| one.error_code));
    match codes.into_iter().find(|code| *code != 0) {
        Some(code) => Err(io::Error::other(format!("produce failed with error {code}"))),
        None => Ok(()),
    }
}

/// The partitions of connection `number`: every one has a share, and no connection is without.
fn own_frames(load: &Load, number: usize, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let own: Vec<_> = frames.iter().skip(number).step_by(load.connections).cloned().collect();
    if own.is_empty() { vec![frames[number % frames.len()].clone()] } else { own }
}

fn worker(
    load: &Load,
    mut frames: Vec<Vec<u8>>,
    measuring_from: Instant,
    until: Instant,
    (requests, requests_in_all): (&AtomicU64, &AtomicU64),
) -> io::Result<Histogram<u64>> {
    let mut connection = Connection::open(&load.address)?;
    let mut latency = histogram()?;
    let mut open = VecDeque::with_capacity(load.depth);
    let mut sent = 0i32;
    loop {
        let now = Instant::now();
        while now < until && open.len() < load.depth {
            let slot = usize::try_from(sent).map_err(io::Error::other)? % frames.len();
            let frame = &mut frames[slot];
            frame[CORRELATION_ID_AT..CORRELATION_ID_AT + 4].copy_from_slice(&sent.to_be_bytes());
            open.push_back((sent, Instant::now()));
            connection.send(frame)?;
            sent = sent.wrapping_add(1) & i32::MAX;
        }
        let Some((correlation_id, at)) = open.pop_front() else { return Ok(latency) };
        accepted(connection.receive()?, correlation_id)?;
        requests_in_all.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        if now >= measuring_from && now < until {
            requests.fetch_add(1, Ordering::Relaxed);
            latency.record(micros(now - at)).map_err(io::Error::other)?;
        }
    }
}
