//! Starts and clean stops, over and over on the same data directory.

use std::path::Path;
use std::time::{Duration, Instant};

use walser_protocol::ApiKey;
use walser_protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest, CreateTopicsResponse};
use walser_protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use walser_protocol::messages::produce::{PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData};
use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};

use crate::process::{Broker, BrokerOptions};
use crate::raw_client::RawClient;

const TOPIC: &str = "starts";
const PARTITIONS: i32 = 3;
/// One round in so many writes something; the others only start and stop.
const WRITES_EVERY: u32 = 3;

/// What the rounds took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    pub rounds: u32,
    pub records: i64,
    pub starting: Duration,
    pub stopping: Duration,
}

/// Starts and stops so many times.
///
/// # Errors
/// A start without a ready line, a stop that is not clean, or a log that does not end where it ended before.
pub fn run(data_dir: &Path, rounds: u32) -> Result<Report, String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut report = Report { rounds, ..Report::default() };
    for round in 0..rounds {
        let context = |error: &dyn std::fmt::Display| format!("round {round}: {error}");
        let shards = 1 + (round as usize) % cores.min(2);
        let options =
            BrokerOptions::new(data_dir).set("walser.log.level", "warn").set("walser.shards", &shards.to_string());
        let began = Instant::now();
        let broker = options.start().map_err(|error| context(&error))?;
        report.starting += began.elapsed();
        if round == 0 {
            create_topic(&broker).map_err(|error| context(&error))?;
        }
        if round % WRITES_EVERY == 0 {
            write(&broker, report.records).map_err(|error| context(&error))?;
            report.records += 1;
        }
        let began = Instant::now();
        let (status, _) = broker.stop().map_err(|error| context(&error))?;
        report.stopping += began.elapsed();
        if status.code() != Some(0) {
            return Err(context(&format!("the clean stop ended with {status}")));
        }
    }
    Ok(report)
}

fn client(broker: &Broker) -> Result<RawClient, String> {
    RawClient::connect(broker.address()).map_err(|error| error.to_string())
}

/// Every log ends at `records`; one more is written to each.
fn write(broker: &Broker, records: i64) -> Result<(), String> {
    let mut client = client(broker)?;
    for partition in 0..PARTITIONS {
        let end = end_offset(&mut client, partition)?;
        if end != records {
            return Err(format!("partition {partition} ends at {end}, not at {records}"));
        }
        produce(&mut client, partition)?;
    }
    Ok(())
}

fn end_offset(client: &mut RawClient, partition: i32) -> Result<i64, String> {
    const LATEST: i64 = -1;
    let wish =
        ListOffsetsPartition { partition_index: partition, timestamp: LATEST, ..ListOffsetsPartition::default() };
    let topics = vec![ListOffsetsTopic { name: TOPIC, partitions: vec![wish] }];
    let request = ListOffsetsRequest { replica_id: -1, topics, ..ListOffsetsRequest::default() };
    let response = client.call(ApiKey::ListOffsets, 5, &request).map_err(|error| error.to_string())?;
    let response = ListOffsetsResponse::decode(&mut response.reader(), 5).map_err(|error| error.to_string())?;
    match response.topics.first().and_then(|topic| topic.partitions.first()) {
        Some(answer) if answer.error_code == 0 => Ok(answer.offset),
        answer => Err(format!("ListOffsets: {answer:?}")),
    }
}

fn produce(client: &mut RawClient, partition: i32) -> Result<(), String> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    let record = NewRecord { timestamp: 1, key: None, value: Some(b"start"), headers: &[] };
    builder.append(&record).map_err(|error| error.to_string())?;
    let bytes = builder.build().map_err(|error| error.to_string())?;
    let request = ProduceRequest {
        transactional_id: None,
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: TOPIC,
            partition_data: vec![PartitionProduceData { index: partition, records: Some(&bytes) }],
            ..TopicProduceData::default()
        }],
    };
    let response = client.call(ApiKey::Produce, 9, &request).map_err(|error| error.to_string())?;
    let response = ProduceResponse::decode(&mut response.reader(), 9).map_err(|error| error.to_string())?;
    match response.responses.first().and_then(|topic| topic.partition_responses.first()) {
        Some(answer) if answer.error_code == 0 => Ok(()),
        answer => Err(format!("produce: {answer:?}")),
    }
}

fn create_topic(broker: &Broker) -> Result<(), String> {
    let mut client = client(broker)?;
    let topic =
        CreatableTopic { name: TOPIC, num_partitions: PARTITIONS, replication_factor: 1, ..CreatableTopic::default() };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, validate_only: false };
    let response = client.call(ApiKey::CreateTopics, 5, &request).map_err(|error| error.to_string())?;
    let response = CreateTopicsResponse::decode(&mut response.reader(), 5).map_err(|error| error.to_string())?;
    match response.topics.first().map(|topic| topic.error_code) {
        Some(0) => Ok(()),
        code => Err(format!("CreateTopics: {code:?}")),
    }
}
