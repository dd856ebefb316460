//! A topic that is made again under its old name is another topic, also for whoever starts after a crash.

use walser_protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest, CreateTopicsResponse};
use walser_protocol::messages::delete_topics::{DeleteTopicsRequest, DeleteTopicsResponse};
use walser_protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use walser_protocol::messages::produce::{PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData};
use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};
use walser_protocol::{ApiKey, ErrorCode};
use walser_tests::process::{Broker, BrokerOptions, TempDir};
use walser_tests::raw_client::RawClient;

const TOPIC: &str = "again";

fn create(client: &mut RawClient) {
    let topic = CreatableTopic { name: TOPIC, num_partitions: 1, replication_factor: 1, ..CreatableTopic::default() };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, validate_only: false };
    let answer = client.call(ApiKey::CreateTopics, 5, &request).expect("an answer");
    let answer = CreateTopicsResponse::decode(&mut answer.reader(), 5).expect("well-formed");
    assert_eq!(answer.topics[0].error_code, ErrorCode::None.code());
}

fn delete(client: &mut RawClient) {
    let request =
        DeleteTopicsRequest { topic_names: vec![TOPIC], timeout_ms: 30_000, ..DeleteTopicsRequest::default() };
    let answer = client.call(ApiKey::DeleteTopics, 5, &request).expect("an answer");
    let answer = DeleteTopicsResponse::decode(&mut answer.reader(), 5).expect("well-formed");
    assert_eq!(answer.responses[0].error_code, ErrorCode::None.code());
}

fn produce(client: &mut RawClient, records: usize) -> i64 {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for _ in 0..records {
        builder.append(&NewRecord { value: Some(b"value"), ..NewRecord::default() }).expect("fits");
    }
    let batch = builder.build().expect("a batch");
    let data = PartitionProduceData { index: 0, records: Some(&batch) };
    let topic = TopicProduceData { name: TOPIC, partition_data: vec![data], ..TopicProduceData::default() };
    let request = ProduceRequest { acks: -1, timeout_ms: 30_000, topic_data: vec![topic], ..ProduceRequest::default() };
    let answer = client.call(ApiKey::Produce, 9, &request).expect("an answer");
    let answer = ProduceResponse::decode(&mut answer.reader(), 9).expect("well-formed");
    let partition = &answer.responses[0].partition_responses[0];
    assert_eq!(partition.error_code, ErrorCode::None.code());
    partition.base_offset
}

/// Earliest and latest.
fn offsets(client: &mut RawClient) -> (i64, i64) {
    let mut ask = |timestamp| {
        let partition = ListOffsetsPartition { timestamp, ..ListOffsetsPartition::default() };
        let topic = ListOffsetsTopic { name: TOPIC, partitions: vec![partition] };
        let request = ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..ListOffsetsRequest::default() };
        let answer = client.call(ApiKey::ListOffsets, 5, &request).expect("an answer");
        let answer = ListOffsetsResponse::decode(&mut answer.reader(), 5).expect("well-formed");
        let partition = &answer.topics[0].partitions[0];
        assert_eq!(partition.error_code, ErrorCode::None.code());
        partition.offset
    };
    (ask(-2), ask(-1))
}

fn connect(broker: &Broker) -> RawClient {
    RawClient::connect(broker.address()).expect("the broker is there")
}

#[test]
fn what_a_clean_stop_noted_of_an_old_topic_says_nothing_of_a_new_one() {
    // Rule: checkpoints name topics, and the name may be another topic's by the time they are read.
    let dir = TempDir::new("recreated").expect("a directory");
    let start = || BrokerOptions::new(dir.path()).start().expect("it starts");
    let broker = start();
    let mut client = connect(&broker);
    create(&mut client);
    assert_eq!(produce(&mut client, 500), 0);
    assert!(broker.stop().expect("it ends").0.success());

    let broker = start();
    let mut client = connect(&broker);
    assert_eq!(offsets(&mut client), (0, 500));
    delete(&mut client);
    create(&mut client);
    broker.kill().expect("it dies");

    let broker = start();
    let mut client = connect(&broker);
    assert_eq!(offsets(&mut client), (0, 0));
    assert_eq!(produce(&mut client, 3), 0);
    broker.kill().expect("it dies");

    let broker = start();
    assert_eq!(offsets(&mut connect(&broker)), (0, 3));
}
