//! The few things most tests do to a topic, each asserted.

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

use crate::process::Broker;
use crate::raw_client::RawClient;

/// Makes a topic of one partition.
pub fn create(client: &mut RawClient, name: &str, configs: &[(&str, &str)]) {
    let configs = configs.iter().map(|(name, value)| CreatableTopicConfig { name, value: Some(value) }).collect();
    let topic = CreatableTopic { name, num_partitions: 1, replication_factor: 1, configs, ..CreatableTopic::default() };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, validate_only: false };
    let answer = client.call(ApiKey::CreateTopics, 5, &request).expect("an answer");
    let answer = CreateTopicsResponse::decode(&mut answer.reader(), 5).expect("well-formed");
    assert_eq!(answer.topics[0].error_code, ErrorCode::None.code());
}

pub fn delete(client: &mut RawClient, name: &str) {
    let request = DeleteTopicsRequest { topic_names: vec![name], timeout_ms: 30_000, ..DeleteTopicsRequest::default() };
    let answer = client.call(ApiKey::DeleteTopics, 5, &request).expect("an answer");
    let answer = DeleteTopicsResponse::decode(&mut answer.reader(), 5).expect("well-formed");
    assert_eq!(answer.responses[0].error_code, ErrorCode::None.code());
}

/// Writes one batch with the time 0 for all its records; where it is.
pub fn produce(client: &mut RawClient, name: &str, records: usize) -> i64 {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for _ in 0..records {
        builder.append(&NewRecord { value: Some(b"value"), ..NewRecord::default() }).expect("fits");
    }
    let batch = builder.build().expect("a batch");
    let data = PartitionProduceData { index: 0, records: Some(&batch) };
    let topic = TopicProduceData { name, partition_data: vec![data], ..TopicProduceData::default() };
    let request = ProduceRequest { acks: -1, timeout_ms: 30_000, topic_data: vec![topic], ..ProduceRequest::default() };
    let answer = client.call(ApiKey::Produce, 9, &request).expect("an answer");
    let answer = ProduceResponse::decode(&mut answer.reader(), 9).expect("well-formed");
    let partition = &answer.responses[0].partition_responses[0];
    assert_eq!(partition.error_code, ErrorCode::None.code());
    partition.base_offset
}

/// Earliest and latest offset.
pub fn offsets(client: &mut RawClient, name: &str) -> (i64, i64) {
    let mut ask = |timestamp| {
        let partition = ListOffsetsPartition { timestamp, ..ListOffsetsPartition::default() };
        let topic = ListOffsetsTopic { name, partitions: vec![partition] };
        let request = ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..ListOffsetsRequest::default() };
        let answer = client.call(ApiKey::ListOffsets, 5, &request).expect("an answer");
        let answer = ListOffsetsResponse::decode(&mut answer.reader(), 5).expect("well-formed");
        let partition = &answer.topics[0].partitions[0];
        assert_eq!(partition.error_code, ErrorCode::None.code());
        partition.offset
    };
    (ask(-2), ask(-1))
}

pub fn connect(broker: &Broker) -> RawClient {
    RawClient::connect(broker.address()).expect("the broker is there")
}

/// Raises the log start; the low watermark.
pub fn delete_records(client: &mut RawClient, name: &str, offset: i64) -> Result<i64, i16> {
    let partition = DeleteRecordsPartition { partition_index: 0, offset };
    let topic = DeleteRecordsTopic { name, partitions: vec![partition] };
    let request = DeleteRecordsRequest { topics: vec![topic], timeout_ms: 30_000 };
    let answer = client.call(ApiKey::DeleteRecords, 2, &request).expect("an answer");
    let answer = DeleteRecordsResponse::decode(&mut answer.reader(), 2).expect("well-formed");
    let partition = &answer.topics[0].partitions[0];
    if partition.error_code == 0 { Ok(partition.low_watermark) } else { Err(partition.error_code) }
}
