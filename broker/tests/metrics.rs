//! What `/metrics` shows of a broker that was produced to and fetched from.
#![expect(clippy::disallowed_methods, reason = "a client outside of the shards may block and look at the clock")]

use std::sync::Arc;
use std::time::Instant;

use walser_broker::http::HttpServer;
use walser_broker::shard::start::{RunningBroker, Stopped};
use walser_protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest, CreateTopicsResponse};
use walser_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use walser_protocol::messages::produce::{PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData};
use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};
use walser_protocol::{ApiKey, Reader};

#[path = "support/client.rs"]
mod client;
mod support;

use client::{ANSWER_WAIT, Client, scrape};

const TOPIC: &str = "counted";

fn create_topic(client: &mut Client) {
    let topic = CreatableTopic { name: TOPIC, num_partitions: 1, replication_factor: 1, ..CreatableTopic::default() };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..CreateTopicsRequest::default() };
    let response = client.call(ApiKey::CreateTopics, 7, &request);
    let response = CreateTopicsResponse::decode(&mut Reader::new(&response), 7).unwrap();
    assert_eq!(response.topics[0].error_code, 0);
}

fn produce(client: &mut Client, batch: &[u8]) -> i16 {
    let partition = PartitionProduceData { index: 0, records: Some(batch) };
    let topic = TopicProduceData { name: TOPIC, partition_data: vec![partition], ..TopicProduceData::default() };
    let request = ProduceRequest { acks: -1, timeout_ms: 30_000, topic_data: vec![topic], ..ProduceRequest::default() };
    let response = client.call(ApiKey::Produce, 9, &request);
    let response = ProduceResponse::decode(&mut Reader::new(&response), 9).unwrap();
    response.responses[0].partition_responses[0].error_code
}

/// Opens a fetch session.
fn fetch(client: &mut Client, partition: i32) -> i16 {
    let partition =
        FetchPartition { partition, fetch_offset: 0, partition_max_bytes: 1 << 20, ..FetchPartition::default() };
    let topic = FetchTopic { topic: TOPIC, partitions: vec![partition], ..FetchTopic::default() };
    let request = FetchRequest {
        max_wait_ms: 0,
        min_bytes: 1,
        max_bytes: 1 << 20,
        session_epoch: 0,
        topics: vec![topic],
        ..FetchRequest::default()
    };
    let response = client.call(ApiKey::Fetch, 12, &request);
    let response = FetchResponse::decode(&mut Reader::new(&response), 12).unwrap();
    response.responses[0].partitions[0].error_code
}

fn batch(records: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for _ in 0..records {
        builder.append(&NewRecord { timestamp: 1, value: Some(b"value"), ..NewRecord::default() }).unwrap();
    }
    builder.build().unwrap()
}

/// Sum over all samples of a family, or of one with its labels.
fn value(text: &str, name: &str) -> u64 {
    let lines = text.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn produce_and_fetch_are_counted() {
    // Rule: what dashboards ask for moves with the traffic: records, bytes, partitions, failures, logs and sessions.
    let (settings, _data_dir) = support::settings(2);
    let http = HttpServer::bind("127.0.0.1:0").unwrap();
    let http_address = http.address();
    http.serve(Arc::clone(&settings.metrics)).unwrap();
    let broker = RunningBroker::start(&settings).unwrap();
    let mut client = Client::connect(broker.listeners()[0].bound);
    create_topic(&mut client);
    let good = batch(3);
    let bytes = good.len() as u64;
    assert_eq!(produce(&mut client, &good), 0);
    let mut damaged = good;
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(produce(&mut client, &damaged), 2);
    assert_eq!(fetch(&mut client, 0), 0);
    assert_eq!(fetch(&mut client, 7), 3);

    let topics = "kafka_server_brokertopicmetrics";
    let requests = "kafka_network_requestmetrics";
    let wanted = [
        (format!("{topics}_messagesin_total"), 3),
        (format!("{topics}_bytesin_total"), bytes),
        (format!("{topics}_bytesout_total"), bytes),
        (format!("{topics}_totalproducerequests_total"), 2),
        (format!("{topics}_failedproducerequests_total"), 1),
        (format!("{topics}_totalfetchrequests_total"), 2),
        (format!("{topics}_failedfetchrequests_total"), 1),
        (format!("{topics}_invalidmessagecrcrecords_total"), 1),
        (format!("{requests}_requests_total{{request=\"Produce\"}}"), 2),
        (format!("{requests}_errors_total{{request=\"Produce\",error=\"CORRUPT_MESSAGE\"}}"), 1),
        (format!("{requests}_errors_total{{request=\"Fetch\",error=\"NONE\"}}"), 1),
        ("kafka_server_fetchsessioncache_numincrementalfetchsessions".to_owned(), 2),
        ("walser_partitions_led".to_owned(), 1),
        ("walser_partitions_offline".to_owned(), 0),
        ("walser_log_size_bytes".to_owned(), bytes),
        ("walser_commits_total".to_owned(), 1),
    ];
    // The gauges follow within a second.
    let deadline = Instant::now() + ANSWER_WAIT;
    loop {
        let text = scrape(http_address);
        let wrong: Vec<_> = wanted.iter().filter(|(name, want)| value(&text, name) != *want).collect();
        if wrong.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "{wrong:?} in\n{text}");
    }
    assert_eq!(broker.stop(), Stopped::Clean);
}
