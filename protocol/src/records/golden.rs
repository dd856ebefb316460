//! Batches of real clients, as a broker stored them.
//!
//! `golden.log` is a segment written by Apache Kafka 4.4.0 with base offset and leader epoch assigned. Five batches come from
//! the Java client 4.4.0 (its console producer: none, gzip, snappy, lz4, zstd; idempotent by default), five from
//! librdkafka 2.0.2 (kcat 1.7.1: gzip, snappy, two of what was asked to be lz4 and did not shrink, zstd). The same three
//! records were sent each time, with a timestamp of their own.

use super::batch::{BATCH_HEADER_BYTES, BatchView, Batches};
use super::builder::{BatchBuilder, BatchOptions, NewRecord};
use super::compression::CompressionType;
use super::record::{OffsetDeltas, RecordLimits, Records, records_slice, validate_records};

const SEGMENT: &[u8] = include_bytes!("golden.log");
const LIMIT: usize = 1000;

const WANT: [(&[u8], &[u8]); 3] =
    [(b"key-1", b"the quick brown fox the quick brown fox"), (b"key-2", b"jumps over the lazy dog"), (b"key-3", b"")];

fn batches() -> Vec<BatchView<'static>> {
    Batches::new(SEGMENT).map(|batch| batch.unwrap()).collect()
}

#[test]
fn every_clients_records_are_read() {
    // Rule: CRC, codec and layout are those of the Java client and of librdkafka.
    let mut next = 0;
    for batch in batches() {
        batch.verify_crc().unwrap();
        let mut scratch = Vec::new();
        let limits = RecordLimits { decompressed_bytes_max: LIMIT, offset_deltas: OffsetDeltas::Consecutive };
        let info = validate_records(&batch, &mut scratch, limits).unwrap();
        assert_eq!((info.record_count, info.max_timestamp), (batch.record_count(), batch.max_timestamp()));
        let records = records_slice(&batch, &mut scratch, LIMIT).unwrap();
        for record in Records::new(batch.header(), records) {
            let record = record.unwrap();
            assert_eq!(record.offset, next as i64);
            assert_eq!((record.key.unwrap(), record.value.unwrap()), WANT[next % 3], "offset {next}");
            next += 1;
        }
    }
    assert_eq!(next, 27);
}

#[test]
fn the_codecs_are_those_that_were_asked_for() {
    // Rule: attribute bits mean what the clients mean by them.
    use CompressionType::{Gzip, Lz4, None, Snappy, Zstd};
    let codecs: Vec<_> = batches().iter().map(|batch| batch.compression_type().unwrap()).collect();
    assert_eq!(codecs, [None, Gzip, Snappy, Lz4, Zstd, Gzip, Snappy, None, None, Zstd]);
    assert!(batches().iter().take(5).all(BatchView::has_producer_id));
}

#[test]
fn the_same_records_build_the_same_bytes() {
    // Rule: an uncompressed batch from here is the Java client's to the byte.
    let batch = batches()[0];
    let header = batch.header();
    let mut builder = BatchBuilder::new(BatchOptions {
        base_offset: header.base_offset,
        partition_leader_epoch: header.partition_leader_epoch,
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
        ..BatchOptions::default()
    });
    for record in Records::new(header, batch.records_bytes()) {
        let record = record.unwrap();
        let new = NewRecord { timestamp: record.timestamp, key: record.key, value: record.value, headers: &[] };
        builder.append(&new).unwrap();
    }
    let bytes = builder.build().unwrap();
    assert_eq!(bytes, batch.bytes());
    assert!(bytes.len() > BATCH_HEADER_BYTES);
}
