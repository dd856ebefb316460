//! Reads partitions back and holds them against what was acknowledged.

use std::io;

use walser_protocol::messages::fetch::FetchResponse;
use walser_protocol::records::batch::BatchView;
use walser_protocol::records::record::{Records, records_slice};
use walser_protocol::{ApiKey, ErrorCode};

use super::produce::{STAMP_BYTES, Stream, StreamKind, stamped};
use crate::raw_client::RawClient;
use crate::topic::fetch_request;

const FETCH_VERSION: i16 = 11;
const FETCH_BYTES_MAX: i32 = 8 << 20;
const RECORDS_BYTES_MAX: usize = 64 << 20;

/// What a check has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub records_read: u64,
    pub batches_acked: u64,
}

/// One record of a partition: stream and number.
type Found = (u64, u64);

/// Checks every stream against its partition.
///
/// # Errors
/// The first thing that does not hold.
pub fn verify(address: &str, streams: &[Stream]) -> Result<Verdict, String> {
    let mut client = RawClient::connect(address).map_err(|error| error.to_string())?;
    let mut verdict = Verdict::default();
    for stream in streams {
        let found = read_partition(&mut client, &stream.topic, stream.partition)
            .map_err(|error| format!("reading {}-{}: {error}", stream.topic, stream.partition))?;
        verdict.records_read += found.len() as u64;
        verdict.batches_acked += stream.acked.len() as u64;
        check_acked(stream, &found)?;
        if stream.kind == StreamKind::Idempotent {
            check_exactly_once(stream, &found)?;
        }
    }
    Ok(verdict)
}

/// Every acknowledged record is at the offset the acknowledgement said.
fn check_acked(stream: &Stream, found: &[Found]) -> Result<(), String> {
    for acked in &stream.acked {
        for step in 0..u64::from(acked.records) {
            let offset = acked.base_offset as u64 + step;
            let want = (stream.id, acked.first + step);
            let got = usize::try_from(offset).ok().and_then(|offset| found.get(offset));
            if got != Some(&want) {
                return Err(format!(
                    "{}-{}: offset {offset} was acknowledged for record {want:?} and holds {got:?} (log end {})",
                    stream.topic,
                    stream.partition,
                    found.len()
                ));
            }
        }
    }
    Ok(())
}

/// An idempotent stream is in the log in order, each record once, without a gap.
fn check_exactly_once(stream: &Stream, found: &[Found]) -> Result<(), String> {
    for (offset, (id, number)) in found.iter().enumerate() {
        if (*id, *number) != (stream.id, offset as u64) {
            return Err(format!(
                "{}-{}: offset {offset} holds record {number} of stream {id}, not record {offset} of stream {}",
                stream.topic, stream.partition, stream.id
            ));
        }
    }
    Ok(())
}

fn read_partition(client: &mut RawClient, topic: &str, partition: i32) -> Result<Vec<Found>, String> {
    let mut found = Vec::new();
    loop {
        let before = found.len();
        let end_offset = read_some(client, topic, partition, &mut found)?;
        if found.len() as u64 >= end_offset {
            return Ok(found);
        }
        if found.len() == before {
            return Err(format!("nothing at offset {before}, below the end {end_offset}"));
        }
    }
}

/// Reads from the offset after `found`; the high watermark.
fn read_some(client: &mut RawClient, topic: &str, partition: i32, found: &mut Vec<Found>) -> Result<u64, String> {
    let request = fetch_request(topic, partition, found.len() as i64, FETCH_BYTES_MAX, 0);
    let response = client.call(ApiKey::Fetch, FETCH_VERSION, &request).map_err(|error| error.to_string())?;
    let response = FetchResponse::decode(&mut response.reader(), FETCH_VERSION).map_err(|error| error.to_string())?;
    let data = response.responses.first().and_then(|topic| topic.partitions.first()).ok_or("an empty answer")?;
    if data.error_code != ErrorCode::None.code() {
        return Err(format!("{:?}", ErrorCode::from_wire(data.error_code)));
    }
    let mut left = data.records.and_then(|records| records.as_whole()).unwrap_or_default();
    while !left.is_empty() {
        let (batch, rest) = BatchView::parse(left).map_err(|error| error.to_string())?;
        batch.verify_crc().map_err(|error| format!("at offset {}: {error}", found.len()))?;
        take_batch(&batch, found)?;
        left = rest;
    }
    u64::try_from(data.high_watermark).map_err(io::Error::other).map_err(|error| error.to_string())
}

fn take_batch(batch: &BatchView<'_>, found: &mut Vec<Found>) -> Result<(), String> {
    let mut scratch = Vec::new();
    let records = records_slice(batch, &mut scratch, RECORDS_BYTES_MAX).map_err(|error| error.to_string())?;
    for record in Records::new(batch.header(), records) {
        let record = record.map_err(|error| error.to_string())?;
        if record.offset != found.len() as i64 {
            return Err(format!("offset {} follows {} records", record.offset, found.len()));
        }
        let value = record.value.unwrap_or_default();
        let stamp = value.first_chunk::<STAMP_BYTES>().ok_or("a record without a stamp")?;
        let number = |at: usize| u64::from_be_bytes(std::array::from_fn(|index| stamp[at + index]));
        let (stream, number) = (number(0), number(8));
        if value != stamped(stream, number) {
            return Err(format!("offset {} holds a changed value", record.offset));
        }
        found.push((stream, number));
    }
    Ok(())
}
