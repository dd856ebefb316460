//! The few things that most tests do to a topic. An error is a request that was refused, or not answered.

use walser_protocol::messages::create_topics::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse,
};
use walser_protocol::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopic,
};
use walser_protocol::messages::delete_topics::{DeleteTopicsRequest, DeleteTopicsResponse};
use walser_protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use walser_protocol::messages::produce::{PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData};
use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};
use walser_protocol::{ApiKey, ErrorCode};

use crate::raw_client::RawClient;

const TIMEOUT_MS: i32 = 30_000;
/// ListOffsets' words for the log start and for the end.
pub const EARLIEST: i64 = -2;
pub const LATEST: i64 = -1;

pub fn connect(address: &str) -> Result<RawClient, String> {
    RawClient::connect(address).map_err(|error| error.to_string())
}

pub fn create(client: &mut RawClient, name: &str, partitions: i32, configs: &[(&str, &str)]) -> Result<(), String> {
    let configs = configs.iter().map(|(name, value)| CreatableTopicConfig { name, value: Some(value) }).collect();
    let topic = CreatableTopic {
        name,
        num_partitions: partitions,
        replication_factor: 1,
        configs,
        ..CreatableTopic::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: TIMEOUT_MS, validate_only: false };
    let answer = client.call(ApiKey::CreateTopics, 5, &request).map_err(|error| error.to_string())?;
    let answer = CreateTopicsResponse::decode(&mut answer.reader(), 5).map_err(|error| error.to_string())?;
    match answer.topics.first().map(|topic| topic.error_code) {
        Some(code) if code == ErrorCode::None.code() => Ok(()),
        code => Err(format!("CreateTopics {name}: {code:?}")),
    }
}

pub fn delete(client: &mut RawClient, name: &str) -> Result<(), String> {
    let request =
        DeleteTopicsRequest { topic_names: vec![name], timeout_ms: TIMEOUT_MS, ..DeleteTopicsRequest::default() };
    let answer = client.call(ApiKey::DeleteTopics, 5, &request).map_err(|error| error.to_string())?;
    let answer = DeleteTopicsResponse::decode(&mut answer.reader(), 5).map_err(|error| error.to_string())?;
    match answer.responses.first().map(|topic| topic.error_code) {
        Some(code) if code == ErrorCode::None.code() => Ok(()),
        code => Err(format!("DeleteTopics {name}: {code:?}")),
    }
}

/// Writes one batch with the time 1 for all its records and acks=all; where it is.
pub fn produce<V: AsRef<[u8]>>(
    client: &mut RawClient,
    name: &str,
    partition: i32,
    values: impl IntoIterator<Item = V>,
) -> Result<i64, String> {
    let batch = batch(values)?;
    let request = one_batch(name, partition, &batch, -1);
    let answer = client.call(ApiKey::Produce, 9, &request).map_err(|error| format!("produce: {error}"))?;
    let answer = ProduceResponse::decode(&mut answer.reader(), 9).map_err(|error| error.to_string())?;
    match answer.responses.first().and_then(|topic| topic.partition_responses.first()) {
        Some(answer) if answer.error_code == ErrorCode::None.code() => Ok(answer.base_offset),
        answer => Err(format!("produce: {answer:?}")),
    }
}

/// The same with acks=0: there is no answer to wait for.
pub fn send_unanswered<V: AsRef<[u8]>>(
    client: &mut RawClient,
    name: &str,
    partition: i32,
    values: impl IntoIterator<Item = V>,
) -> Result<(), String> {
    let batch = batch(values)?;
    let request = one_batch(name, partition, &batch, 0);
    client.send(ApiKey::Produce, 9, &request).map(|_| ()).map_err(|error| format!("produce: {error}"))
}

fn batch<V: AsRef<[u8]>>(values: impl IntoIterator<Item = V>) -> Result<Vec<u8>, String> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for value in values {
        let record = NewRecord { timestamp: 1, value: Some(value.as_ref()), ..NewRecord::default() };
        builder.append(&record).map_err(|error| error.to_string())?;
    }
    builder.build().map_err(|error| error.to_string())
}

fn one_batch<'a>(name: &'a str, partition: i32, batch: &'a [u8], acks: i16) -> ProduceRequest<'a> {
    let data = PartitionProduceData { index: partition, records: Some(batch) };
    let topic = TopicProduceData { name, partition_data: vec![data], ..TopicProduceData::default() };
    ProduceRequest { acks, timeout_ms: TIMEOUT_MS, topic_data: vec![topic], ..ProduceRequest::default() }
}

/// An offset by timestamp, [`EARLIEST`] and [`LATEST`] among them.
pub fn offset(client: &mut RawClient, name: &str, partition: i32, timestamp: i64) -> Result<i64, String> {
    let wish = ListOffsetsPartition { partition_index: partition, timestamp, ..ListOffsetsPartition::default() };
    let topics = vec![ListOffsetsTopic { name, partitions: vec![wish] }];
    let request = ListOffsetsRequest { replica_id: -1, topics, ..ListOffsetsRequest::default() };
    let answer = client.call(ApiKey::ListOffsets, 5, &request).map_err(|error| error.to_string())?;
    let answer = ListOffsetsResponse::decode(&mut answer.reader(), 5).map_err(|error| error.to_string())?;
    match answer.topics.first().and_then(|topic| topic.partitions.first()) {
        Some(answer) if answer.error_code == ErrorCode::None.code() => Ok(answer.offset),
        answer => Err(format!("ListOffsets: {answer:?}")),
    }
}

/// Raises the log start of partition 0; its low watermark, or the error it was refused with.
pub fn delete_records(client: &mut RawClient, name: &str, offset: i64) -> Result<Result<i64, i16>, String> {
    let partition = DeleteRecordsPartition { partition_index: 0, offset };
    let topic = DeleteRecordsTopic { name, partitions: vec![partition] };
    let request = DeleteRecordsRequest { topics: vec![topic], timeout_ms: TIMEOUT_MS };
    let answer = client.call(ApiKey::DeleteRecords, 2, &request).map_err(|error| error.to_string())?;
    let answer = DeleteRecordsResponse::decode(&mut answer.reader(), 2).map_err(|error| error.to_string())?;
    let partition = answer.topics.first().and_then(|topic| topic.partitions.first()).ok_or("an empty answer")?;
    let is_good = partition.error_code == ErrorCode::None.code();
    Ok(if is_good { Ok(partition.low_watermark) } else { Err(partition.error_code) })
}
