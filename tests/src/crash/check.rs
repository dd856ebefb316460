//! Reads partitions back and holds them against what was acknowledged.

use std::collections::BTreeMap;

use walser_protocol::messages::fetch::FetchResponse;
use walser_protocol::records::batch::BatchView;
use walser_protocol::records::record::{Records, records_slice};
use walser_protocol::{ApiKey, ErrorCode};

use super::load::{Cleanup, stamp, stamped_to};
use super::produce::{BATCH_BYTES_MAX, IN_FLIGHT_MAX, Stream, StreamKind};
use crate::raw_client::RawClient;
use crate::topic::{self, fetch_request};

const FETCH_VERSION: i16 = 11;
const FETCH_BYTES_MAX: i32 = 8 << 20;
const RECORDS_BYTES_MAX: usize = 64 << 20;

/// What a check has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub records_read: u64,
    pub batches_acked: u64,
    /// Offsets that retention or compaction took.
    pub offsets_gone: u64,
}

/// What is in a partition.
#[derive(Debug, Default)]
struct Found {
    start_offset: i64,
    end_offset: i64,
    /// Offset and number of every record, in order.
    records: Vec<(i64, u64)>,
    bytes: u64,
}

/// Checks every stream against its partition.
///
/// # Errors
/// The first thing that does not hold.
pub fn verify(address: &str, streams: &[Stream]) -> Result<Verdict, String> {
    let mut client = RawClient::connect(address).map_err(|error| error.to_string())?;
    let mut verdict = Verdict::default();
    for stream in streams {
        let found = read_partition(&mut client, stream).map_err(|error| format!("reading {stream}: {error}"))?;
        check(stream, &found).map_err(|error| format!("{stream}: {error}"))?;
        verdict.records_read += found.records.len() as u64;
        verdict.batches_acked += stream.acked.len() as u64;
        verdict.offsets_gone += found.end_offset.unsigned_abs() - found.records.len() as u64;
    }
    Ok(verdict)
}

fn check(stream: &Stream, found: &Found) -> Result<(), String> {
    check_gone(stream, found)?;
    check_acked(stream, found)?;
    if stream.kind == StreamKind::Idempotent {
        check_exactly_once(found)?;
    }
    Ok(())
}

/// Nothing is missing but what the topic's cleanup may take.
fn check_gone(stream: &Stream, found: &Found) -> Result<(), String> {
    let next_offsets = std::iter::once(found.start_offset).chain(found.records.iter().map(|(offset, _)| offset + 1));
    let hole = next_offsets.zip(&found.records).find(|(next, (offset, _))| next != offset);
    match stream.load.cleanup {
        Cleanup::OldValues { .. } => return Ok(()),
        Cleanup::Nothing if found.start_offset > 0 => return Err(format!("the log starts at {}", found.start_offset)),
        Cleanup::OldSegments { retention_bytes } => {
            // What was in flight may have counted when the beginning was dropped, and be lost.
            let left_min = retention_bytes.saturating_sub((IN_FLIGHT_MAX * BATCH_BYTES_MAX) as u64);
            if found.start_offset > 0 && found.bytes < left_min {
                return Err(format!(
                    "{} bytes are left from {} on, of {retention_bytes}",
                    found.bytes, found.start_offset
                ));
            }
        }
        Cleanup::Nothing => {}
    }
    match hole {
        Some((next, (offset, _))) => Err(format!("offset {offset} follows, where {next} should")),
        None => Ok(()),
    }
}

/// Every acknowledged record is at the offset the acknowledgement said, unless it may be gone.
fn check_acked(stream: &Stream, found: &Found) -> Result<(), String> {
    let at = |offset: i64| {
        let index = found.records.binary_search_by_key(&offset, |(offset, _)| *offset).ok()?;
        Some(found.records[index].1)
    };
    let keys = found.records.iter().filter_map(|(offset, number)| Some((stream.load.key(*number)?, *offset)));
    let last_by_key: BTreeMap<u64, i64> = keys.collect();
    for acked in &stream.acked {
        for (number, offset) in (acked.first..).zip(acked.base_offset..).take(acked.records as usize) {
            let holds = at(offset);
            let is_replaced = stream.load.key(number).is_some_and(|key| last_by_key.get(&key) > Some(&offset));
            let is_gone = offset < found.start_offset || is_replaced;
            if holds != Some(number) && !(holds.is_none() && is_gone) {
                return Err(format!(
                    "offset {offset} was acknowledged for record {number} and holds {holds:?} (log {} to {})",
                    found.start_offset, found.end_offset
                ));
            }
        }
    }
    Ok(())
}

/// An idempotent stream is in the log in order, each record once, without a gap.
fn check_exactly_once(found: &Found) -> Result<(), String> {
    match found.records.iter().find(|(offset, number)| u64::try_from(*offset) != Ok(*number)) {
        Some((offset, number)) => Err(format!("offset {offset} holds record {number}")),
        None => Ok(()),
    }
}

fn read_partition(client: &mut RawClient, stream: &Stream) -> Result<Found, String> {
    let (name, partition) = (stream.load.topic, stream.partition);
    let mut offset = topic::offset(client, name, partition, topic::EARLIEST)?;
    let end_offset = topic::offset(client, name, partition, topic::LATEST)?;
    let mut found = Found { start_offset: offset, end_offset, ..Found::default() };
    while offset < end_offset {
        let before = offset;
        read_some(client, stream, &mut offset, &mut found)?;
        if offset == before {
            return Err(format!("nothing at offset {before}, below the end {end_offset}"));
        }
    }
    // Retention may have gone on meanwhile; it takes from the beginning.
    Ok(found)
}

/// Reads from `offset` on, and moves it behind what was read.
fn read_some(client: &mut RawClient, stream: &Stream, offset: &mut i64, found: &mut Found) -> Result<(), String> {
    let request = fetch_request(stream.load.topic, stream.partition, *offset, FETCH_BYTES_MAX, 0);
    let response = client.call(ApiKey::Fetch, FETCH_VERSION, &request).map_err(|error| error.to_string())?;
    let response = FetchResponse::decode(&mut response.reader(), FETCH_VERSION).map_err(|error| error.to_string())?;
    let data = response.responses.first().and_then(|topic| topic.partitions.first()).ok_or("an empty answer")?;
    match ErrorCode::from_wire(data.error_code) {
        Some(ErrorCode::None) => {}
        // The beginning went while it was read.
        Some(ErrorCode::OffsetOutOfRange) if *offset < data.log_start_offset => {
            *found = Found { start_offset: data.log_start_offset, end_offset: found.end_offset, ..Found::default() };
            *offset = data.log_start_offset;
            return Ok(());
        }
        code => return Err(format!("{code:?}")),
    }
    let mut left = data.records.and_then(|records| records.as_whole()).unwrap_or_default();
    while !left.is_empty() {
        let (batch, rest) = BatchView::parse(left).map_err(|error| error.to_string())?;
        batch.verify_crc().map_err(|error| format!("at offset {offset}: {error}"))?;
        take_batch(&batch, stream, found)?;
        *offset = batch.last_offset() + 1;
        found.bytes += batch.total_len() as u64;
        left = rest;
    }
    Ok(())
}

fn take_batch(batch: &BatchView<'_>, stream: &Stream, found: &mut Found) -> Result<(), String> {
    let mut scratch = Vec::new();
    let records = records_slice(batch, &mut scratch, RECORDS_BYTES_MAX).map_err(|error| error.to_string())?;
    for record in Records::new(batch.header(), records) {
        let record = record.map_err(|error| error.to_string())?;
        let next = found.records.last().map_or(0, |(offset, _)| offset + 1);
        if record.offset < next {
            return Err(format!("offset {} comes where {next} should", record.offset));
        }
        let value = record.value.unwrap_or_default();
        let (id, number) = stamp(value)?;
        if id != stream.id || value != stamped_to(id, number, stream.load.value_bytes(number)) {
            return Err(format!("offset {} holds a changed value, or one of stream {id}", record.offset));
        }
        found.records.push((record.offset, number));
    }
    Ok(())
}
