//! A consumer that keeps up with producers, and counts what it gets.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use walser_protocol::ApiKey;
use walser_protocol::types::Records;

use crate::connection::Connection;
use crate::consume::{FETCH_VERSION, answer_of, fetch_partition, fetch_request, next_offset, parts};

/// A fetch waits so long for records.
const FETCH_WAIT_MS: i32 = 100;
const PARTITION_BYTES: i32 = 4 << 20;
const FETCH_BYTES: i32 = 16 << 20;

/// Reads the topic from where its partitions end now, until `is_over`; the bytes of batches.
pub fn follow(address: &str, topic: &str, partitions: i32, is_over: &AtomicBool) -> io::Result<u64> {
    let mut connection = Connection::open(address)?;
    let mut offsets: BTreeMap<i32, i64> = (0..partitions).map(|index| (index, 0)).collect();
    let first = fetch(&mut connection, topic, &offsets, 1, 0, |part| Ok((part.high_watermark, 0)))?;
    offsets.extend(first.into_iter().map(|(index, (end, _))| (index, end)));
    let mut bytes = 0;
    while !is_over.load(Ordering::Relaxed) {
        let found = fetch(&mut connection, topic, &offsets, PARTITION_BYTES, FETCH_WAIT_MS, |part| {
            Ok((next_offset(part)?.unwrap_or(-1), part.records.map_or(0, Records::len) as u64))
        })?;
        for (index, (next, found_bytes)) in found {
            bytes += found_bytes;
            if next >= 0 {
                offsets.insert(index, next);
            }
        }
    }
    Ok(bytes)
}

/// One request; what `look` finds in the answer's parts.
fn fetch(
    connection: &mut Connection,
    topic: &str,
    offsets: &BTreeMap<i32, i64>,
    partition_bytes: i32,
    wait_ms: i32,
    look: impl Fn(&walser_protocol::messages::fetch::PartitionData<'_>) -> io::Result<(i64, u64)>,
) -> io::Result<Vec<(i32, (i64, u64))>> {
    let partitions = offsets.iter().map(|(index, offset)| fetch_partition(*index, *offset, partition_bytes)).collect();
    let request = fetch_request(topic, partitions, FETCH_BYTES, wait_ms);
    let answer = answer_of(connection.call(ApiKey::Fetch, FETCH_VERSION, &request)?)?;
    parts(&answer)?.into_iter().map(|part| Ok((part.partition_index, look(part)?))).collect()
}
