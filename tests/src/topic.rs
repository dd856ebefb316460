//! The few things that most tests do to a topic. An error is a request that was refused, or not answered.

use std::thread;
use std::time::{Duration, Instant};

use walser_protocol::messages::create_topics::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse,
};
use walser_protocol::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopic,
};
use walser_protocol::messages::delete_topics::{DeleteTopicsRequest, DeleteTopicsResponse};
use walser_protocol::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse,
};
use walser_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use walser_protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use walser_protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use walser_protocol::messages::produce::{PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData};
use walser_protocol::records::batch::BatchView;
use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};
use walser_protocol::records::record::{Records, records_slice};
use walser_protocol::{ApiKey, ErrorCode};

use crate::raw_client::{ClientError, RawClient};

/// What is to succeed may take long where the machine is slow.
const TIMEOUT_MS: i32 = 120_000;
const FETCH_BYTES_MAX: i32 = 8 << 20;
/// ListOffsets' words for the log start and for the end.
pub const EARLIEST: i64 = -2;
pub const LATEST: i64 = -1;
/// Types of what configs belong to.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const CLIENT_METRICS: i8 = 16;
const SET: i8 = 0;
/// A config that nothing depends on, and its resource.
const SETTLED: (&str, &str) = ("settled", "interval.ms");
const SETTLE: Duration = Duration::from_secs(60);
const SETTLE_PAUSE: Duration = Duration::from_millis(10);

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
    let produced = try_produce(client, name, partition, values, TIMEOUT_MS)?;
    produced.map_err(|code| format!("produce: {code:?}"))
}

/// As [`produce`], with a limit for the broker; the error it answered is none of the connection's.
pub fn try_produce<V: AsRef<[u8]>>(
    client: &mut RawClient,
    name: &str,
    partition: i32,
    values: impl IntoIterator<Item = V>,
    timeout_ms: i32,
) -> Result<Result<i64, ErrorCode>, String> {
    let correlation_id = send_produce(client, name, partition, values, timeout_ms)?;
    receive_produced(client, correlation_id)
}

/// The first half of [`try_produce`]: what [`receive_produced`] waits for.
pub fn send_produce<V: AsRef<[u8]>>(
    client: &mut RawClient,
    name: &str,
    partition: i32,
    values: impl IntoIterator<Item = V>,
    timeout_ms: i32,
) -> Result<i32, String> {
    let batch = batch(values)?;
    let request = ProduceRequest { timeout_ms, ..one_batch(name, partition, &batch, -1) };
    client.send(ApiKey::Produce, 9, &request).map_err(|error| format!("produce: {error}"))
}

/// Where the batch is, or why it is not acknowledged.
pub fn receive_produced(client: &mut RawClient, correlation_id: i32) -> Result<Result<i64, ErrorCode>, String> {
    let answer = client.receive(ApiKey::Produce, 9, correlation_id).map_err(|error| format!("produce: {error}"))?;
    let answer = ProduceResponse::decode(&mut answer.reader(), 9).map_err(|error| error.to_string())?;
    let partition = answer.responses.first().and_then(|topic| topic.partition_responses.first());
    let partition = partition.ok_or("an empty answer")?;
    match ErrorCode::from_wire(partition.error_code) {
        Some(ErrorCode::None) => Ok(Ok(partition.base_offset)),
        Some(code) => Ok(Err(code)),
        None => Err(format!("produce: unknown error {}", partition.error_code)),
    }
}

/// What one fetch found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    pub high_watermark: i64,
    /// Offset and value, from the offset asked for on.
    pub records: Vec<(i64, Vec<u8>)>,
}

/// A request for one partition.
pub fn fetch_request(
    topic: &str,
    partition: i32,
    fetch_offset: i64,
    max_bytes: i32,
    max_wait_ms: i32,
) -> FetchRequest<'_> {
    let wish = FetchPartition { partition, fetch_offset, partition_max_bytes: max_bytes, ..FetchPartition::default() };
    FetchRequest {
        max_wait_ms,
        min_bytes: 1,
        max_bytes,
        session_epoch: -1,
        topics: vec![FetchTopic { topic, partitions: vec![wish], ..FetchTopic::default() }],
        ..FetchRequest::default()
    }
}

/// Reads a partition from `offset`; the error it answered is none of the connection's.
pub fn fetch(
    client: &mut RawClient,
    name: &str,
    partition: i32,
    offset: i64,
) -> Result<Result<Fetched, ErrorCode>, String> {
    let request = fetch_request(name, partition, offset, FETCH_BYTES_MAX, 0);
    let answer = client.call(ApiKey::Fetch, 11, &request).map_err(|error| format!("fetch: {error}"))?;
    let answer = FetchResponse::decode(&mut answer.reader(), 11).map_err(|error| error.to_string())?;
    let data = answer.responses.first().and_then(|topic| topic.partitions.first()).ok_or("an empty answer")?;
    match ErrorCode::from_wire(data.error_code) {
        Some(ErrorCode::None) => {}
        Some(code) => return Ok(Err(code)),
        None => return Err(format!("fetch: unknown error {}", data.error_code)),
    }
    let mut fetched = Fetched { high_watermark: data.high_watermark, records: Vec::new() };
    let mut left = data.records.and_then(|records| records.as_whole()).unwrap_or_default();
    while !left.is_empty() {
        let (batch, rest) = BatchView::parse(left).map_err(|error| error.to_string())?;
        batch.verify_crc().map_err(|error| format!("after offset {offset}: {error}"))?;
        let mut scratch = Vec::new();
        let records =
            records_slice(&batch, &mut scratch, FETCH_BYTES_MAX as usize).map_err(|error| error.to_string())?;
        for record in Records::new(batch.header(), records) {
            let record = record.map_err(|error| error.to_string())?;
            if record.offset >= offset {
                fetched.records.push((record.offset, record.value.unwrap_or_default().to_vec()));
            }
        }
        left = rest;
    }
    Ok(Ok(fetched))
}

/// Sets one config of a topic.
pub fn alter_config(client: &mut RawClient, name: &str, key: &str, value: &str) -> Result<(), String> {
    alter_resource(client, TOPIC, name, key, value)
}

/// Sets one config of a broker.
pub fn alter_broker_config(client: &mut RawClient, broker: &str, key: &str, value: &str) -> Result<(), String> {
    alter_resource(client, BROKER, broker, key, value)
}

fn alter_resource(client: &mut RawClient, resource_type: i8, name: &str, key: &str, value: &str) -> Result<(), String> {
    let config = AlterableConfig { name: key, config_operation: SET, value: Some(value) };
    let resource = AlterConfigsResource { resource_type, resource_name: name, configs: vec![config] };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    let answer = client.call(ApiKey::IncrementalAlterConfigs, 1, &request).map_err(|error| error.to_string())?;
    let answer = IncrementalAlterConfigsResponse::decode(&mut answer.reader(), 1).map_err(|error| error.to_string())?;
    match answer.responses.first().map(|resource| resource.error_code) {
        Some(code) if code == ErrorCode::None.code() => Ok(()),
        code => Err(format!("IncrementalAlterConfigs {name}: {code:?}")),
    }
}

/// Waits until a broker goes by all configs that were altered before. Kafka shows a config before its logs go by it, and
/// nothing says when they do. It acts upon one change after the other, though: when a later one is to be seen, the earlier
/// one has been acted upon. `number`: another one each time.
pub fn settle_configs(client: &mut RawClient, number: u32) -> Result<(), ClientError> {
    let value = (1000 + number % 1000).to_string();
    let config = AlterableConfig { name: SETTLED.1, config_operation: SET, value: Some(&value) };
    let resource =
        AlterConfigsResource { resource_type: CLIENT_METRICS, resource_name: SETTLED.0, configs: vec![config] };
    let change = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    client.call(ApiKey::IncrementalAlterConfigs, 1, &change)?;
    let resource = DescribeConfigsResource {
        resource_type: CLIENT_METRICS,
        resource_name: SETTLED.0,
        configuration_keys: Some(vec![SETTLED.1]),
    };
    let question = DescribeConfigsRequest { resources: vec![resource], ..DescribeConfigsRequest::default() };
    let deadline = Instant::now() + SETTLE;
    loop {
        let answer = client.call(ApiKey::DescribeConfigs, 4, &question)?;
        let answer = DescribeConfigsResponse::decode(&mut answer.reader(), 4)?;
        let mut configs = answer.results.iter().flat_map(|result| &result.configs);
        if configs.any(|config| config.value == Some(&value)) || Instant::now() > deadline {
            return Ok(());
        }
        thread::sleep(SETTLE_PAUSE);
    }
}

/// As [`produce`], with acks=0: there is no answer to wait for.
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
