//! Topics that are compacted, in a whole broker.
#![expect(clippy::disallowed_methods, reason = "a client outside of the shards may block and look at the clock")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use walser_broker::http::HttpServer;
use walser_broker::shard::start::{RunningBroker, Stopped};
use walser_protocol::messages::create_topics::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse,
};
use walser_protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use walser_protocol::messages::produce::{PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData};
use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};
use walser_protocol::records::compression::{Compression, CompressionType};
use walser_protocol::{ApiKey, Reader};

#[path = "support/client.rs"]
mod client;
mod support;

use client::{ANSWER_WAIT, Client, scrape};

const POLL_PAUSE: Duration = Duration::from_millis(10);
const INVALID_RECORD: i16 = 87;

/// A topic whose segments hold a few batches; `ratio` is what has to be dirty.
fn create_topic(client: &mut Client, name: &str, ratio: &str) {
    let config = |name, value| CreatableTopicConfig { name, value: Some(value) };
    let configs = vec![
        config("cleanup.policy", "compact"),
        config("internal.segment.bytes", "8192"),
        config("min.cleanable.dirty.ratio", ratio),
    ];
    let topic = CreatableTopic { name, num_partitions: 1, replication_factor: 1, configs, ..CreatableTopic::default() };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, validate_only: false };
    let response = client.call(ApiKey::CreateTopics, 7, &request);
    let response = CreateTopicsResponse::decode(&mut Reader::new(&response), 7).unwrap();
    assert_eq!(response.topics[0].error_code, 0);
}

fn set_ratio(client: &mut Client, topic: &str, ratio: &str) {
    let config = AlterableConfig { name: "min.cleanable.dirty.ratio", config_operation: 0, value: Some(ratio) };
    let resource = AlterConfigsResource { resource_type: 2, resource_name: topic, configs: vec![config] };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    let response = client.call(ApiKey::IncrementalAlterConfigs, 1, &request);
    let response = IncrementalAlterConfigsResponse::decode(&mut Reader::new(&response), 1).unwrap();
    assert_eq!(response.responses[0].error_code, 0);
}

/// Error code, and the indexes of the records that are refused.
fn produce(client: &mut Client, topic: &str, batch: &[u8]) -> (i16, Vec<i32>) {
    let partition = PartitionProduceData { index: 0, records: Some(batch) };
    let topic = TopicProduceData { name: topic, partition_data: vec![partition], ..TopicProduceData::default() };
    let request = ProduceRequest { acks: -1, timeout_ms: 30_000, topic_data: vec![topic], ..ProduceRequest::default() };
    let response = client.call(ApiKey::Produce, 9, &request);
    let response = ProduceResponse::decode(&mut Reader::new(&response), 9).unwrap();
    let answer = &response.responses[0].partition_responses[0];
    (answer.error_code, answer.record_errors.iter().map(|record| record.batch_index).collect())
}

fn batch(keys: &[Option<&str>], codec: CompressionType) -> Vec<u8> {
    let options = BatchOptions { compression: Compression::new(codec), ..BatchOptions::default() };
    let mut builder = BatchBuilder::new(options);
    for key in keys {
        let (key, value) = (key.map(str::as_bytes), Some(&[b'v'; 1000][..]));
        builder.append(&NewRecord { timestamp: 1, key, value, headers: &[] }).unwrap();
    }
    builder.build().unwrap()
}

fn value(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in\n{text}"))
}

fn first_segment(data_dir: &Path, topic: &str) -> PathBuf {
    data_dir.join(format!("{topic}-0")).join("00000000000000000000.log")
}

/// Waits until all segments but the last are finished, of which the producers at their ends are written last.
fn wait_finished(data_dir: &Path, topic: &str) {
    let dir = data_dir.join(format!("{topic}-0"));
    let deadline = Instant::now() + ANSWER_WAIT;
    loop {
        let names: Vec<String> =
            std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        let mut bases: Vec<&str> = names.iter().filter_map(|name| name.strip_suffix(".log")).collect();
        bases.sort_unstable();
        assert!(bases.len() > 1, "{names:?}");
        if bases[1..].iter().all(|base| names.contains(&format!("{base}.snapshot"))) {
            return;
        }
        assert!(Instant::now() < deadline, "{names:?}");
        std::thread::sleep(POLL_PAUSE);
    }
}

#[test]
fn a_log_that_cannot_be_compacted_is_said_and_stops_nobody() {
    // Rule: a damaged log is counted and left out, takes records as before, and the logs after it are compacted.
    let (settings, _data_dir) = support::settings_with(1, &[("log.cleaner.backoff.ms", "100")]);
    let data_dir = settings.config.log_dirs[0].clone();
    let http = HttpServer::bind("127.0.0.1:0").unwrap();
    let http_address = http.address();
    http.serve(Arc::clone(&settings.metrics)).unwrap();
    let broker = RunningBroker::start(&settings).unwrap();
    let mut client = Client::connect(broker.listeners()[0].bound);
    for topic in ["damaged", "sound"] {
        create_topic(&mut client, topic, "1.0");
        for _ in 0..40 {
            assert_eq!(
                produce(&mut client, topic, &batch(&[Some("a"), Some("b")], CompressionType::None)),
                (0, vec![])
            );
        }
    }
    for topic in ["damaged", "sound"] {
        wait_finished(&data_dir, topic);
    }
    let damaged = first_segment(&data_dir, "damaged");
    let mut bytes = std::fs::read(&damaged).unwrap();
    bytes[500] ^= 1;
    std::fs::write(&damaged, &bytes).unwrap();
    std::fs::File::open(&damaged).unwrap().sync_all().unwrap();
    let before = std::fs::metadata(first_segment(&data_dir, "sound")).unwrap().len();
    for topic in ["damaged", "sound"] {
        set_ratio(&mut client, topic, "0.0");
    }
    let deadline = Instant::now() + ANSWER_WAIT;
    loop {
        let text = scrape(http_address);
        let is_said = value(&text, "kafka_log_logcleanermanager_uncleanable_partitions_count") == 1
            && value(&text, "kafka_log_logcleanermanager_uncleanable_bytes") > 0;
        let is_compacted = value(&text, "walser_compaction_passes_total") > 0
            && std::fs::metadata(first_segment(&data_dir, "sound")).is_ok_and(|found| found.len() < before);
        if is_said && is_compacted {
            break;
        }
        assert!(Instant::now() < deadline, "said {is_said}, compacted {is_compacted}, in\n{text}");
        std::thread::sleep(POLL_PAUSE);
    }
    assert_eq!(std::fs::read(&damaged).unwrap(), bytes, "nothing of a damaged log is written anew");
    assert_eq!(produce(&mut client, "damaged", &batch(&[Some("a")], CompressionType::None)), (0, vec![]));
    assert_eq!(broker.stop(), Stopped::Clean);
}

#[test]
fn a_record_without_a_key_is_refused() {
    // Rule: a compacted topic refuses a batch with a record without a key, compressed or not, names it, and takes nothing.
    let (settings, _data_dir) = support::settings(1);
    let broker = RunningBroker::start(&settings).unwrap();
    let mut client = Client::connect(broker.listeners()[0].bound);
    create_topic(&mut client, "keys", "0.5");
    for codec in CompressionType::ALL {
        let refused = produce(&mut client, "keys", &batch(&[Some("a"), None, Some(""), None], codec));
        assert_eq!(refused, (INVALID_RECORD, vec![1, 3]), "{codec:?}");
        assert_eq!(produce(&mut client, "keys", &batch(&[Some("a"), Some("")], codec)), (0, vec![]), "{codec:?}");
    }
    assert_eq!(broker.stop(), Stopped::Clean);
}
