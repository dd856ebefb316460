use walser_protocol::records::batch::LOG_OVERHEAD_BYTES;
use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};
use walser_protocol::records::compression::CompressionType;

use super::*;

const NOW: i64 = 1_700_000_000_000;

fn built(options: BatchOptions, records: &[(i64, Option<&[u8]>)]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options);
    for &(timestamp, key) in records {
        let appended = builder.append(&NewRecord { timestamp, key, value: Some(b"value"), headers: &[] });
        appended.expect("a small record");
    }
    builder.build().expect("a small batch")
}

fn plain() -> Vec<u8> {
    built(BatchOptions::default(), &[(NOW, Some(b"a")), (NOW + 1, None)])
}

/// With a CRC that holds.
fn changed(mut bytes: Vec<u8>, at: usize, value: &[u8]) -> Vec<u8> {
    bytes[at..at + value.len()].copy_from_slice(value);
    BatchMut::parse(&mut bytes).expect("still a batch").0.recompute_crc();
    bytes
}

fn check(bytes: &[u8], config: &ValidateConfig) -> Result<ValidBatch, ValidateError> {
    validate(BytesMut::from(bytes), config, NOW, &mut Vec::new())
}

#[test]
fn headers_are_held_to_kafkas_rules() {
    // Each broken rule has its own error; the valid batch passes unchanged, byte for byte.
    let config = ValidateConfig::default();
    assert_eq!(check(&plain(), &config).expect("valid").into_bytes(), plain());
    let too_large = ValidateError::TooLarge { batch_bytes: plain().len(), max_message_bytes: plain().len() as u32 - 1 };
    let small = ValidateConfig { max_message_bytes: plain().len() as u32 - 1, ..config };
    assert_eq!(check(&plain(), &small).err(), Some(too_large));
    let twice = [plain(), plain()].concat();
    let with_partial = [&plain()[..], &plain()[..40]].concat();
    let mut bad_crc = plain();
    *bad_crc.last_mut().expect("bytes") ^= 1;
    let producer = BatchOptions { producer_id: 7, producer_epoch: 0, base_sequence: -1, ..BatchOptions::default() };
    let control = BatchOptions { control: true, ..BatchOptions::default() };
    let append_time = BatchOptions { log_append_time: Some(NOW), ..BatchOptions::default() };
    let one: &[(i64, Option<&[u8]>)] = &[(NOW, None)];
    for (case, bytes, is_expected) in [
        ("empty", vec![], (|e| matches!(e, ValidateError::NoBatch)) as fn(&ValidateError) -> bool),
        ("cut short", plain()[..50].to_vec(), |e| matches!(e, ValidateError::NoBatch)),
        ("two batches", twice, |e| matches!(e, ValidateError::MoreThanOneBatch { .. })),
        ("magic 1", changed(plain(), 0, &[0]), |_| true),
        ("bad CRC", bad_crc, |e| matches!(e, ValidateError::Corrupt(BatchError::BadCrc { .. }))),
        ("base offset", changed(plain(), 0, &5_i64.to_be_bytes()), |e| {
            matches!(e, ValidateError::BadBaseOffset { base_offset: 5 })
        }),
        ("count", changed(plain(), 57, &3_i32.to_be_bytes()), |e| matches!(e, ValidateError::BadCount { .. })),
        ("no records", changed(plain(), 57, &0_i32.to_be_bytes()), |e| matches!(e, ValidateError::BadCount { .. })),
        ("control", built(control, one), |e| matches!(e, ValidateError::ControlBatch)),
        ("sequence", built(producer, one), |e| matches!(e, ValidateError::BadSequence { producer_id: 7, .. })),
        ("append time", built(append_time, one), |e| matches!(e, ValidateError::LogAppendTimeByProducer)),
    ] {
        match check(&bytes, &config) {
            Err(error) => assert!(is_expected(&error), "{case}: {error:?}"),
            // The byte changed in this case is 0 already.
            Ok(_) => assert_eq!(case, "magic 1"),
        }
    }
    let mut old = plain();
    old[16] = 1;
    assert_eq!(check(&old, &config).err(), Some(ValidateError::OldMagic { magic: 1 }));
    assert_eq!(check(&with_partial, &config).expect("the partial batch is dropped").len(), plain().len());
}

#[test]
fn records_are_named_that_are_refused() {
    // A compacted topic takes no record without a key; no topic takes one from too far away.
    let compacted = ValidateConfig { is_compacted: true, ..ValidateConfig::default() };
    let no_key = |index| RefusedRecord { index, reason: RefusalReason::NoKey };
    assert_eq!(check(&plain(), &compacted).err(), Some(ValidateError::RefusedRecords(vec![no_key(1)])));
    for codec in CompressionType::ALL {
        let options = BatchOptions { compression: Compression::new(codec), ..BatchOptions::default() };
        let keys = [None, Some(&b"k"[..]), None, Some(b"")];
        let bytes = built(options, &keys.map(|key| (NOW, key)));
        let refused = ValidateError::RefusedRecords(vec![no_key(0), no_key(2)]);
        assert_eq!(check(&bytes, &compacted).err(), Some(refused), "{codec:?}");
    }
    let near = ValidateConfig { timestamp_before_max_ms: 100, timestamp_after_max_ms: 10, ..ValidateConfig::default() };
    let records = [(NOW - 100, None), (NOW + 11, None), (NOW + 10, None), (-1, None), (NOW - 101, None)];
    let far = |index, timestamp| RefusedRecord {
        index,
        reason: RefusalReason::Timestamp { timestamp, earliest: NOW - 100, latest: NOW + 10 },
    };
    let refused = check(&built(BatchOptions::default(), &records), &near).expect_err("two are too far away");
    assert_eq!(refused, ValidateError::RefusedRecords(vec![far(1, NOW + 11), far(4, NOW - 101)]));
    assert!(refused.is_timestamp());
    let append_time = ValidateConfig { timestamp_type: TimestampType::LogAppendTime, ..near };
    assert!(check(&built(BatchOptions::default(), &records), &append_time).is_ok());
    assert!(check(&built(BatchOptions::default(), &records[2..4]), &near).is_ok());
}

#[test]
fn compression_changes_only_when_the_topic_asks_for_another() {
    // The producer's bytes are kept wherever they can be; the records are the same in any case.
    let value = vec![b'x'; 4000];
    for from in CompressionType::ALL {
        let mut builder =
            BatchBuilder::new(BatchOptions { compression: Compression::new(from), ..BatchOptions::default() });
        let record = NewRecord { timestamp: NOW, key: Some(b"k"), value: Some(&value), headers: &[] };
        builder.append(&record).expect("a small record");
        let bytes = builder.build().expect("a small batch");
        for to in [None, Some(CompressionType::None), Some(CompressionType::Zstd), Some(CompressionType::Gzip)] {
            let config = ValidateConfig { compression: to.map(Compression::new), ..ValidateConfig::default() };
            let valid = check(&bytes, &config).expect("valid");
            assert_eq!(valid.header().attributes.compression_type(), Ok(to.unwrap_or(from)), "{from:?} to {to:?}");
            let is_same = to.is_none_or(|to| to == from);
            let valid = valid.into_bytes();
            assert_eq!(valid[..] == bytes[..], is_same, "{from:?} to {to:?}");
            let batch = BatchView::parse_exact(&valid).expect("a batch");
            assert_eq!(batch.verify_crc(), Ok(()));
            let mut scratch = Vec::new();
            let records = records_slice(&batch, &mut scratch, 1 << 20).expect("records");
            let read: Vec<_> = Records::new(batch.header(), records).map(|r| r.expect("whole").value).collect();
            assert_eq!(read, [Some(&value[..])]);
        }
    }
    let small =
        ValidateConfig { compression: Some(Compression::NONE), max_message_bytes: 1000, ..ValidateConfig::default() };
    let mut builder = BatchBuilder::new(BatchOptions {
        compression: Compression::new(CompressionType::Zstd),
        ..BatchOptions::default()
    });
    builder.append(&NewRecord { timestamp: NOW, key: None, value: Some(&value), headers: &[] }).expect("small");
    let refused = check(&builder.build().expect("small"), &small).err();
    assert!(matches!(refused, Some(ValidateError::TooLarge { .. })), "{refused:?}");
}

#[test]
fn a_producer_without_an_epoch_is_not_written_anew() {
    // Rule: with a producer id and no epoch a batch is taken as it is, and refused where it would be compressed anew.
    let producer = BatchOptions { producer_id: 7, producer_epoch: -1, base_sequence: 0, ..BatchOptions::default() };
    let bytes = built(producer, &[(NOW, None)]);
    assert!(check(&bytes, &ValidateConfig::default()).is_ok());
    let compression = Some(Compression::new(CompressionType::Gzip));
    let refused = check(&bytes, &ValidateConfig { compression, ..ValidateConfig::default() }).err();
    assert_eq!(refused, Some(ValidateError::BadEpoch { producer_id: 7, producer_epoch: -1 }));
}

#[test]
fn bombs_and_lies_are_refused() {
    // Decompression ends at its bound, and what the header claims is checked against the records.
    let value = vec![0; 1 << 20];
    let compression = Compression::new(CompressionType::Gzip);
    let mut builder = BatchBuilder::new(BatchOptions { compression, ..BatchOptions::default() });
    builder.append(&NewRecord { timestamp: NOW, key: None, value: Some(&value), headers: &[] }).expect("fits");
    let bomb = builder.build().expect("compresses");
    let config = ValidateConfig { decompressed_bytes_max: 100_000, ..ValidateConfig::default() };
    assert!(matches!(check(&bomb, &config), Err(ValidateError::BadRecords(RecordError::Compression(_)))));
    // The maximum timestamp is that of the records, whatever the producer claims.
    let lied = changed(plain(), 35, &(NOW + 999).to_be_bytes());
    assert_eq!(check(&lied, &ValidateConfig::default()).expect("valid").into_bytes(), plain());
    // A record that ends early.
    let at = LOG_OVERHEAD_BYTES + 49;
    let short = changed(plain(), at, &[2]);
    assert!(matches!(check(&short, &ValidateConfig::default()), Err(ValidateError::BadRecords(_))));
}

#[test]
fn what_is_too_long_to_check_here_comes_back_as_it_was() {
    // Rule: who cannot wait gets a verdict on small batches, and large ones back to be checked elsewhere; what no batch may
    // be is refused here already, and the two verdicts are the same.
    let records: Vec<(i64, Option<&[u8]>)> = (0..1000).map(|_| (NOW, Some(&b"key"[..]))).collect();
    let config = ValidateConfig::default();
    for codec in [CompressionType::Gzip, CompressionType::Snappy, CompressionType::Lz4, CompressionType::Zstd] {
        let options = BatchOptions { compression: Compression::new(codec), ..BatchOptions::default() };
        let bytes = built(options, &records);
        let here = |config: &ValidateConfig, small_bytes_max| {
            validate_small(BytesMut::from(&bytes[..]), config, NOW, &mut Vec::new(), small_bytes_max)
        };
        assert_eq!(here(&config, 1000).expect_err("too long"), bytes, "{codec:?}");
        let checked = here(&config, 1 << 20).expect("short").expect("valid");
        assert_eq!(checked.into_bytes(), check(&bytes, &config).expect("valid").into_bytes());
        let tight = ValidateConfig { decompressed_bytes_max: 1000, ..config };
        let refused = here(&tight, 1000).expect("no batch may be so long").expect_err("too long");
        assert_eq!(Some(refused), check(&bytes, &tight).err());
    }
}

#[test]
fn a_batch_is_framed_as_kafka_frames_it() {
    // A length or magic that is none is an error once it can be read, whatever follows; bytes that end early are no batch.
    use framing::{Framed, first_batch};
    let whole = plain();
    assert_eq!(first_batch(&whole), Ok(Some(Framed { total_bytes: whole.len(), magic: 2 })));
    for cut in [0, 11, 12, 16, 17, whole.len() - 1] {
        assert_eq!(first_batch(&whole[..cut]), Ok(None), "{cut} bytes");
    }
    let mut short = whole.clone();
    short[8..12].copy_from_slice(&13_i32.to_be_bytes());
    assert_eq!(first_batch(&short[..12]), Err(BatchError::BadLength { length: 13 }));
    let mut future = whole.clone();
    future[16] = 3;
    assert_eq!(first_batch(&future[..16]), Ok(None));
    assert_eq!(first_batch(&future[..17]), Err(BatchError::UnsupportedMagic { magic: 3 }));
}

#[test]
fn zstd_is_for_clients_that_know_it() {
    // Kafka takes no zstd from clients of a version that is older than it.
    let mut builder = BatchBuilder::new(BatchOptions {
        compression: Compression::new(CompressionType::Zstd),
        ..BatchOptions::default()
    });
    builder.append(&NewRecord { timestamp: NOW, key: None, value: None, headers: &[] }).expect("a small record");
    let bytes = builder.build().expect("a small batch");
    assert_eq!(framing::one_batch(&bytes, true), Ok(bytes.len()));
    assert_eq!(framing::one_batch(&bytes, false), Err(ValidateError::ZstdTooNew));
    assert_eq!(framing::one_batch(&plain(), false), Ok(plain().len()));
}
