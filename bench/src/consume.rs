//! Draining: every connection fetches its partitions from a first offset to where they end, one request at a time, as
//! consumers do.

use std::collections::BTreeMap;
use std::io;
use std::thread;
use std::time::Instant;

use hdrhistogram::Histogram;
use walser_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData};
use walser_protocol::records::batch::Batches;
use walser_protocol::types::Records;
use walser_protocol::{ApiKey, Reader};

use crate::connection::Connection;
use crate::measured::{Measured, histogram, micros};
use crate::usage;

/// The last one that names topics.
pub(crate) const FETCH_VERSION: i16 = 12;

#[derive(Clone, Debug)]
pub struct Drain {
    pub address: String,
    pub topic: String,
    pub partitions: i32,
    pub connections: usize,
    /// Of one partition in one answer.
    pub partition_max_bytes: i32,
    /// Of one answer.
    pub max_bytes: i32,
    pub from_offset: i64,
}

/// Reads everything; with `pid`, says what it cost that process.
pub fn run(drain: &Drain, pid: Option<u32>) -> io::Result<Measured> {
    let before = pid.map(usage::of).transpose()?;
    let begin = Instant::now();
    let (mut requests, mut bytes) = (0, 0);
    let mut latency = histogram()?;
    thread::scope(|scope| {
        let workers: Vec<_> =
            (0..drain.connections).map(|number| scope.spawn(move || drain_own(drain, number))).collect();
        for worker in workers {
            let own = worker.join().map_err(|_| io::Error::other("a connection's thread died"))??;
            requests += own.latency.len();
            bytes += own.bytes;
            latency.add(own.latency).map_err(io::Error::other)?;
        }
        io::Result::Ok(())
    })?;
    let elapsed = begin.elapsed();
    let after = pid.map(usage::of).transpose()?;
    Ok(Measured {
        elapsed,
        requests,
        requests_in_all: requests,
        bytes,
        latency,
        cost: before.zip(after).map(|(before, after)| after.since(before)),
    })
}

struct Own {
    latency: Histogram<u64>,
    bytes: u64,
}

fn drain_own(drain: &Drain, number: usize) -> io::Result<Own> {
    let mut own = Own { latency: histogram()?, bytes: 0 };
    let mut offsets: BTreeMap<i32, i64> =
        (0..drain.partitions).skip(number).step_by(drain.connections).map(|index| (index, drain.from_offset)).collect();
    let mut connection = Connection::open(&drain.address)?;
    while !offsets.is_empty() {
        let partitions: Vec<_> =
            offsets.iter().map(|(index, offset)| fetch_partition(*index, *offset, drain.partition_max_bytes)).collect();
        let request = fetch_request(&drain.topic, partitions, drain.max_bytes, 0);
        let begin = Instant::now();
        let answer = connection.call(ApiKey::Fetch, FETCH_VERSION, &request)?;
        own.latency.record(micros(begin.elapsed())).map_err(io::Error::other)?;
        for data in parts(&answer_of(answer)?)? {
            own.bytes += data.records.map_or(0, Records::len) as u64;
            match next_offset(data)? {
                Some(next) if next < data.high_watermark => drop(offsets.insert(data.partition_index, next)),
                Some(_) => drop(offsets.remove(&data.partition_index)),
                // Others filled the answer, unless the partition has ended.
                None if offsets.get(&data.partition_index).is_some_and(|offset| *offset >= data.high_watermark) => {
                    offsets.remove(&data.partition_index);
                }
                None => {}
            }
        }
    }
    Ok(own)
}

pub(crate) fn fetch_partition(partition: i32, fetch_offset: i64, partition_max_bytes: i32) -> FetchPartition {
    FetchPartition { partition, fetch_offset, partition_max_bytes, ..FetchPartition::default() }
}

pub(crate) fn fetch_request(
    topic: &str,
    partitions: Vec<FetchPartition>,
    max_bytes: i32,
    max_wait_ms: i32,
) -> FetchRequest<'_> {
    let topic = FetchTopic { topic, partitions, ..FetchTopic::default() };
    FetchRequest { max_wait_ms, min_bytes: 1, max_bytes, topics: vec![topic], ..FetchRequest::default() }
}

pub(crate) fn answer_of(answer: &[u8]) -> io::Result<FetchResponse<'_>> {
    FetchResponse::decode(&mut Reader::new(answer), FETCH_VERSION).map_err(io::Error::other)
}

/// The partitions of an answer, if there is no error in it.
pub(crate) fn parts<'a>(answer: &'a FetchResponse<'a>) -> io::Result<Vec<&'a PartitionData<'a>>> {
    let parts: Vec<_> = answer.responses.iter().flat_map(|topic| &topic.partitions).collect();
    let codes = std::iter::once(answer.error_code).chain(parts.iter().map(|part| part.error_code));
    match codes.into_iter().find(|code| *code != 0) {
        Some(code) => Err(io::Error::other(format!("fetch failed with error {code}"))),
        None => Ok(parts),
    }
}

/// Behind the last batch; `None` when there is none.
pub(crate) fn next_offset(data: &PartitionData<'_>) -> io::Result<Option<i64>> {
    let records = data.records.and_then(Records::as_whole).unwrap_or_default();
    let last = Batches::new(records).last().transpose().map_err(io::Error::other)?;
    Ok(last.map(|batch| batch.next_offset()))
}
