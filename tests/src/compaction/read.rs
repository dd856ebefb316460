//! What is left in a log, by fetching it.

use walser_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use walser_protocol::records::batch::Batches;
use walser_protocol::records::record::{Records, records_slice};
use walser_protocol::{ApiKey, ErrorCode};

use crate::raw_client::RawClient;
use crate::topic::{self, LATEST};

const FETCH_BYTES: i32 = 4 << 20;
/// No batch of these tests decompresses to more.
const DECOMPRESSED_BYTES_MAX: usize = 64 << 20;
const NO_LEADER_EPOCH: i32 = -1;

/// A record as a consumer gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    pub offset: i64,
    /// 0 where times are not compared.
    pub timestamp: i64,
    pub key: Vec<u8>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// Every record from the start to the end.
pub fn read_all(client: &mut RawClient, topic: &str, with_times: bool) -> Result<Vec<Left>, String> {
    let end = topic::offset(client, topic, 0, LATEST)?;
    let mut left = Vec::new();
    let mut offset = topic::offset(client, topic, 0, topic::EARLIEST)?;
    while offset < end {
        let (records, next) = fetch(client, topic, offset, FETCH_BYTES, with_times)?;
        if next <= offset {
            return Err(format!("a fetch from {offset} of {end} brings nothing"));
        }
        left.extend(records);
        offset = next;
    }
    Ok(left)
}

/// The first record at or behind `offset`, as a consumer finds it that was there; `None` at the end.
pub fn read_one(
    client: &mut RawClient,
    topic: &str,
    mut offset: i64,
    with_times: bool,
) -> Result<Option<Left>, String> {
    let (asked, end) = (offset, topic::offset(client, topic, 0, LATEST)?);
    while offset < end {
        // One byte: a single batch.
        let (records, next) = fetch(client, topic, offset, 1, with_times)?;
        if next <= offset {
            return Err(format!("a fetch from {offset} of {end} brings nothing"));
        }
        if let Some(record) = records.into_iter().find(|record| record.offset >= asked) {
            return Ok(Some(record));
        }
        offset = next;
    }
    Ok(None)
}

/// Records of one answer, and where the next fetch goes on.
fn fetch(
    client: &mut RawClient,
    topic: &str,
    offset: i64,
    max_bytes: i32,
    with_times: bool,
) -> Result<(Vec<Left>, i64), String> {
    let partition = FetchPartition {
        partition: 0,
        current_leader_epoch: NO_LEADER_EPOCH,
        fetch_offset: offset,
        last_fetched_epoch: NO_LEADER_EPOCH,
        log_start_offset: -1,
        partition_max_bytes: max_bytes,
        ..FetchPartition::default()
    };
    let topics = vec![FetchTopic { topic, partitions: vec![partition], ..FetchTopic::default() }];
    let request = FetchRequest {
        replica_id: -1,
        max_wait_ms: 1000,
        min_bytes: 1,
        max_bytes,
        session_epoch: -1,
        topics,
        ..FetchRequest::default()
    };
    let answer = client.call(ApiKey::Fetch, 12, &request).map_err(|error| format!("fetch: {error}"))?;
    let answer = FetchResponse::decode(&mut answer.reader(), 12).map_err(|error| error.to_string())?;
    let partition = answer.responses.first().and_then(|topic| topic.partitions.first()).ok_or("an empty answer")?;
    if partition.error_code != ErrorCode::None.code() {
        return Err(format!("fetch from {offset}: error {}", partition.error_code));
    }
    let (mut left, mut next) = (Vec::new(), offset);
    let batches = partition.records.and_then(|records| records.as_whole()).unwrap_or_default();
    // An answer may end within a batch.
    for batch in Batches::new(batches).map_while(Result::ok) {
        batch.verify_crc().map_err(|error| format!("batch at {}: {error}", batch.base_offset()))?;
        let mut scratch = Vec::new();
        let records = records_slice(&batch, &mut scratch, DECOMPRESSED_BYTES_MAX).map_err(|error| error.to_string())?;
        for record in Records::new(batch.header(), records) {
            let record = record.map_err(|error| format!("batch at {}: {error}", batch.base_offset()))?;
            if record.offset < offset {
                continue;
            }
            left.push(Left {
                offset: record.offset,
                timestamp: if with_times { record.timestamp } else { 0 },
                key: record.key.ok_or("a record without a key")?.to_vec(),
                value: record.value.map(<[u8]>::to_vec),
                headers: record.headers.map(|header| (header.key.to_vec(), header.value.map(<[u8]>::to_vec))).collect(),
            });
        }
        next = batch.next_offset();
    }
    Ok((left, next))
}
