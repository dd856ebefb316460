//! Requests that name many partitions at once.

use walser_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use walser_protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use walser_protocol::messages::produce::{PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData};
use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};
use walser_protocol::{ApiKey, ErrorCode};

use super::Topics;
use crate::raw_client::RawClient;
use crate::topic::LATEST;

/// Bytes of one Produce.
const REQUEST_BYTES_MAX: usize = 1 << 20;
const TIMEOUT_MS: i32 = 120_000;

/// Records acknowledged, of every partition as many.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ends {
    pub records: i64,
}

/// One record to every partition, in batches of about this length.
///
/// # Errors
/// When one is refused, or lies elsewhere than behind all before it.
pub fn produce_all(client: &mut RawClient, topics: &Topics, batch_bytes: usize, ends: &mut Ends) -> Result<(), String> {
    let value = vec![7; batch_bytes.saturating_sub(80)];
    let mut builder = BatchBuilder::new(BatchOptions::default());
    let record = NewRecord { timestamp: 1, value: Some(&value), ..NewRecord::default() };
    builder.append(&record).map_err(|error| error.to_string())?;
    let batch = builder.build().map_err(|error| error.to_string())?;
    let at_once = (REQUEST_BYTES_MAX / batch.len()).clamp(1, 500);
    for (name, partitions) in topics {
        let indexes: Vec<i32> = (0..i32::try_from(*partitions).unwrap_or(i32::MAX)).collect();
        for part in indexes.chunks(at_once) {
            let data = part.iter().map(|&index| PartitionProduceData { index, records: Some(&batch) }).collect();
            let topic = TopicProduceData { name, partition_data: data, ..TopicProduceData::default() };
            let request = ProduceRequest {
                acks: -1,
                timeout_ms: TIMEOUT_MS,
                topic_data: vec![topic],
                ..ProduceRequest::default()
            };
            let answer = client.call(ApiKey::Produce, 9, &request).map_err(|error| format!("{name}: {error}"))?;
            let answer = ProduceResponse::decode(&mut answer.reader(), 9).map_err(|error| error.to_string())?;
            let answers: Vec<_> = answer.responses.iter().flat_map(|topic| &topic.partition_responses).collect();
            if answers.len() != part.len() {
                return Err(format!("{name}: {} answers to {} batches", answers.len(), part.len()));
            }
            let is_good = |answer: &&_| is_behind(answer, ends.records);
            if let Some(bad) = answers.into_iter().find(|answer| !is_good(answer)) {
                return Err(format!("{name}: {bad:?}, not at {}", ends.records));
            }
        }
    }
    ends.records += 1;
    Ok(())
}

fn is_behind(answer: &walser_protocol::messages::produce::PartitionProduceResponse<'_>, records: i64) -> bool {
    answer.error_code == ErrorCode::None.code() && answer.base_offset == records
}

/// Has every partition end where it should.
///
/// # Errors
/// When one ends elsewhere.
pub fn list_ends(client: &mut RawClient, topics: &Topics, ends: &Ends) -> Result<(), String> {
    for (name, partitions) in topics {
        let wish = |partition_index| ListOffsetsPartition {
            partition_index,
            timestamp: LATEST,
            ..ListOffsetsPartition::default()
        };
        let partitions = (0..i32::try_from(*partitions).unwrap_or(i32::MAX)).map(wish).collect();
        let topics = vec![ListOffsetsTopic { name, partitions }];
        let request = ListOffsetsRequest { replica_id: -1, topics, ..ListOffsetsRequest::default() };
        let answer = client.call(ApiKey::ListOffsets, 5, &request).map_err(|error| error.to_string())?;
        let answer = ListOffsetsResponse::decode(&mut answer.reader(), 5).map_err(|error| error.to_string())?;
        for partition in answer.topics.iter().flat_map(|topic| &topic.partitions) {
            if partition.error_code != ErrorCode::None.code() || partition.offset != ends.records {
                return Err(format!("{name}: {partition:?}, not {}", ends.records));
            }
        }
    }
    Ok(())
}

/// Reads the first and the last record of every partition.
///
/// # Errors
/// When there is none.
pub fn fetch_all(client: &mut RawClient, topics: &Topics, ends: &Ends) -> Result<(), String> {
    for offset in [0, ends.records - 1] {
        for (name, partitions) in topics {
            for index in 0..i32::try_from(*partitions).unwrap_or(i32::MAX) {
                fetch(client, name, index, offset)?;
            }
        }
    }
    Ok(())
}

fn fetch(client: &mut RawClient, name: &str, partition: i32, fetch_offset: i64) -> Result<(), String> {
    let wish = FetchPartition { partition, fetch_offset, partition_max_bytes: 1, ..FetchPartition::default() };
    let topics = vec![FetchTopic { topic: name, partitions: vec![wish], ..FetchTopic::default() }];
    let request = FetchRequest { max_wait_ms: 0, max_bytes: 1, topics, ..FetchRequest::default() };
    let answer = client.call(ApiKey::Fetch, 11, &request).map_err(|error| error.to_string())?;
    let answer = FetchResponse::decode(&mut answer.reader(), 11).map_err(|error| error.to_string())?;
    let found = answer.responses.iter().flat_map(|topic| &topic.partitions).next();
    let is_good = found.is_some_and(|found| {
        found.error_code == ErrorCode::None.code() && found.records.is_some_and(|records| !records.is_empty())
    });
    if is_good { Ok(()) } else { Err(format!("{name}-{partition} at {fetch_offset}: {found:?}")) }
}
