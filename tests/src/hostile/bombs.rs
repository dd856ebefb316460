//! Batches of a few kilobytes that swell: in every codec, and inside one another.

use std::time::Duration;

use walser_protocol::ApiKey;
use walser_protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use walser_protocol::records::batch::BatchMut;
use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};
use walser_protocol::records::compression::{Compression, CompressionType, compress};

use super::{ATTACKED, ATTACKED_PARTITIONS, Target};
use crate::raw_client::{RawClient, request_frame};

/// What a bomb swells to; far more than the broker may have.
const SWOLLEN_BYTES: usize = 512 << 20;
/// One below the limit of a batch, which is taken and decompressed in full.
const BIG_BYTES: usize = 24 << 20;
const CONNECTIONS: i32 = 8;
/// Between two bombs of one connection.
const PAUSE: Duration = Duration::from_millis(100);

const CODECS: [CompressionType; 4] =
    [CompressionType::Gzip, CompressionType::Snappy, CompressionType::Lz4, CompressionType::Zstd];

/// Sends every kind of bomb over several connections.
pub fn bombs(target: &Target) -> Result<(), String> {
    let mut batches = Vec::new();
    for codec in CODECS {
        batches.extend(one_of(codec)?);
    }
    let batches = batches.as_slice();
    std::thread::scope(|scope| {
        let throwers: Vec<_> = (0..CONNECTIONS)
            .map(|number| scope.spawn(move || throw(target, batches, number % ATTACKED_PARTITIONS)))
            .collect();
        throwers.into_iter().try_for_each(|thrower| thrower.join().map_err(|_| "a thrower panicked".to_owned())?)
    })
}

/// Bombs of one codec: a record of zeros too large, a record that is a bomb itself, records of no bytes without end.
fn one_of(codec: CompressionType) -> Result<Vec<Vec<u8>>, String> {
    let mut batches = vec![batch_of(codec, &vec![0; BIG_BYTES])?];
    // Snappy and LZ4 shrink zeros to a hundredth or so: theirs are as large as a batch may be.
    let swollen = match codec {
        CompressionType::Gzip | CompressionType::Zstd | CompressionType::Lz4 => SWOLLEN_BYTES / 4,
        CompressionType::None | CompressionType::Snappy => BIG_BYTES * 2,
    };
    let first = batch_of(codec, &vec![0; swollen])?;
    let inside = batch_of(codec, &first)?;
    let mut twice = Vec::new();
    compress(Compression::new(codec), &vec![0; swollen], &mut twice).map_err(|error| error.to_string())?;
    let mut nested = Vec::new();
    compress(Compression::new(codec), &twice, &mut nested).map_err(|error| error.to_string())?;
    batches.extend([first, inside, with_payload(codec, &nested)?, with_payload(codec, &twice)?]);
    batches.retain(|batch| batch.len() <= 1 << 20);
    Ok(batches)
}

fn batch_of(codec: CompressionType, value: &[u8]) -> Result<Vec<u8>, String> {
    let options = BatchOptions { compression: Compression::new(codec), ..BatchOptions::default() };
    let mut builder = BatchBuilder::new(options);
    let record = NewRecord { timestamp: 1, key: None, value: Some(value), headers: &[] };
    builder.append(&record).map_err(|error| error.to_string())?;
    builder.build().map_err(|error| error.to_string())
}

/// A batch whose records are `payload` as it is, with a checksum that holds.
fn with_payload(codec: CompressionType, payload: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = batch_of(codec, b"x")?;
    bytes.truncate(walser_protocol::records::batch::BATCH_HEADER_BYTES);
    bytes.extend(payload);
    let length = i32::try_from(bytes.len() - 12).map_err(|error| error.to_string())?;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    let (mut batch, _) = BatchMut::parse(&mut bytes).map_err(|error| error.to_string())?;
    batch.recompute_crc();
    Ok(bytes)
}

fn throw(target: &Target, batches: &[Vec<u8>], partition: i32) -> Result<(), String> {
    let mut client = RawClient::connect(&target.address).map_err(|error| error.to_string())?;
    for batch in batches.iter().cycle() {
        if target.is_over() {
            return Ok(());
        }
        let request = ProduceRequest {
            transactional_id: None,
            acks: 1,
            timeout_ms: 30_000,
            topic_data: vec![TopicProduceData {
                name: ATTACKED,
                partition_data: vec![PartitionProduceData { index: partition, records: Some(batch) }],
                ..TopicProduceData::default()
            }],
        };
        let frame = request_frame(ApiKey::Produce, 9, 1, &request).map_err(|error| error.to_string())?;
        client.send_raw(&frame).map_err(|error| error.to_string())?;
        client.receive(ApiKey::Produce, 9, 1).map_err(|error| format!("a batch is answered, not dropped: {error}"))?;
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
