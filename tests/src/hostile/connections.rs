//! Connections that cost the broker something and give it nothing to do.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use walser_protocol::ApiKey;
use walser_protocol::messages::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use walser_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use walser_protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};

use super::{ATTACKED, ATTACKED_PARTITIONS, Target};
use crate::raw_client::{RawClient, request_frame};

const SILENT: usize = 10_000;
/// Clients that ask for all there is and read none of it.
const DEAF_CLIENTS: usize = 60;
const DEAF_REQUESTS: usize = 50;
/// What they ask for has to be there.
const RECORD_BYTES: usize = 1_000_000;
const RECORDS_PER_PARTITION: usize = 40;
const HALF_SENT: usize = 200;
/// Large, and allowed.
const HALF_SENT_FRAME_BYTES: usize = 1 << 20;

fn io_error(error: std::io::Error) -> String {
    format!("the attacker's own socket: {error}")
}

fn hold(target: &Target) {
    while !target.is_over() {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Ten thousand that say nothing.
pub fn silent(target: &Target) -> Result<(), String> {
    let count = target.scaled(SILENT);
    let mut held = Vec::with_capacity(count);
    for number in 0..count {
        let stream = TcpStream::connect(&target.address)
            .map_err(|error| format!("connection {number} of {count} was not taken: {error}"))?;
        // They go without a trace, so that the next attack finds ports.
        end_with_reset(&stream)?;
        held.push(stream);
    }
    hold(target);
    Ok(())
}

/// Without it the ports are only free a minute later.
fn end_with_reset(stream: &TcpStream) -> Result<(), String> {
    use nix::sys::socket::{setsockopt, sockopt};
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    setsockopt(stream, sockopt::Linger, &at_once).map_err(|errno| errno.to_string())
}

/// Fills the attacked topic, then asks for everything over and over and reads nothing.
pub fn never_reads(target: &Target) -> Result<(), String> {
    fill(target)?;
    let mut held = Vec::new();
    for _ in 0..DEAF_CLIENTS {
        let stream = TcpStream::connect(&target.address).map_err(io_error)?;
        stream.set_nonblocking(true).map_err(io_error)?;
        held.push(stream);
    }
    let frame = fetch_everything()?;
    for _ in 0..DEAF_REQUESTS {
        for stream in &mut held {
            // When the broker does not read any more there is nothing left to do; it may also have closed.
            drop(stream.write(&frame));
        }
    }
    hold(target);
    Ok(())
}

/// Asks for all configs with their documentation, over and over, and reads nothing.
pub fn never_reads_configs(target: &Target) -> Result<(), String> {
    let resource = || DescribeConfigsResource { resource_type: 4, resource_name: "1", configuration_keys: None };
    let request = DescribeConfigsRequest {
        resources: (0..10).map(|_| resource()).collect(),
        include_synonyms: true,
        include_documentation: true,
    };
    let frame = request_frame(ApiKey::DescribeConfigs, 4, 1, &request).map_err(|error| error.to_string())?;
    let mut held = Vec::new();
    for _ in 0..DEAF_CLIENTS {
        let stream = TcpStream::connect(&target.address).map_err(io_error)?;
        stream.set_nonblocking(true).map_err(io_error)?;
        held.push(stream);
    }
    for _ in 0..DEAF_REQUESTS {
        for stream in &mut held {
            drop(stream.write(&frame));
        }
    }
    hold(target);
    Ok(())
}

fn fetch_everything() -> Result<Vec<u8>, String> {
    let partitions = (0..ATTACKED_PARTITIONS).map(|partition| FetchPartition {
        partition,
        partition_max_bytes: 64 << 20,
        ..FetchPartition::default()
    });
    let request = FetchRequest {
        max_wait_ms: 100,
        min_bytes: 1,
        max_bytes: i32::MAX,
        session_epoch: -1,
        topics: vec![FetchTopic { topic: ATTACKED, partitions: partitions.collect(), ..FetchTopic::default() }],
        ..FetchRequest::default()
    };
    request_frame(ApiKey::Fetch, 11, 1, &request).map(|frame| frame.to_vec()).map_err(|error| error.to_string())
}

fn large_batch() -> Result<Vec<u8>, String> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    let value = vec![b'x'; RECORD_BYTES];
    let record = NewRecord { timestamp: 1, key: None, value: Some(&value), headers: &[] };
    builder.append(&record).map_err(|error| error.to_string())?;
    builder.build().map_err(|error| error.to_string())
}

fn produce(partition: i32, records: &[u8], acks: i16) -> Result<Vec<u8>, String> {
    let request = ProduceRequest {
        transactional_id: None,
        acks,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: ATTACKED,
            partition_data: vec![PartitionProduceData { index: partition, records: Some(records) }],
            ..TopicProduceData::default()
        }],
    };
    request_frame(ApiKey::Produce, 9, 1, &request).map(|frame| frame.to_vec()).map_err(|error| error.to_string())
}

fn fill(target: &Target) -> Result<(), String> {
    let mut client = RawClient::connect(&target.address).map_err(io_error)?;
    let batch = large_batch()?;
    for partition in 0..ATTACKED_PARTITIONS {
        let frame = produce(partition, &batch, 1)?;
        for _ in 0..target.scaled(RECORDS_PER_PARTITION) {
            client.send_raw(&frame).map_err(|error| error.to_string())?;
            client.receive(ApiKey::Produce, 9, 1).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// Large batches of which half is sent: each holds memory for all of it.
pub fn half_sent_batches(target: &Target) -> Result<(), String> {
    let frame = produce(0, &large_batch()?, 1)?;
    let half = &frame[..frame.len().min(HALF_SENT_FRAME_BYTES) / 2];
    let mut held = Vec::new();
    for _ in 0..HALF_SENT {
        let mut stream = TcpStream::connect(&target.address).map_err(io_error)?;
        stream.set_nonblocking(true).map_err(io_error)?;
        // As much as the sockets take; the broker does not read what it has no memory for.
        drop(stream.write(half));
        held.push(stream);
    }
    while !target.is_over() {
        for stream in &mut held {
            drop(stream.write(b"x"));
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    Ok(())
}

/// Comes and goes as fast as it can.
pub fn connects_and_leaves(target: &Target) -> Result<(), String> {
    while !target.is_over() {
        let stream = TcpStream::connect(&target.address).map_err(io_error)?;
        end_with_reset(&stream)?;
        drop(stream);
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}
