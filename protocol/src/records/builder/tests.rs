use super::*;
use crate::records::compression::CompressionType;
use crate::records::record::{OffsetDeltas, RecordLimits, Records, validate_records};
use proptest::prelude::*;

const LIMIT: usize = 1 << 22;

/// A record that owns what it holds, to compare with.
#[derive(Clone, Debug, PartialEq)]
struct Owned {
    offset: i64,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

fn build(options: BatchOptions, records: &[Owned]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options);
    for record in records {
        let headers: Vec<Header<'_>> =
            record.headers.iter().map(|(key, value)| Header { key, value: value.as_deref() }).collect();
        let new = NewRecord {
            timestamp: record.timestamp,
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: &headers,
        };
        builder.append_at(record.offset, &new).unwrap();
    }
    builder.build().unwrap()
}

fn read(bytes: &[u8]) -> Vec<Owned> {
    let batch = BatchView::parse_exact(bytes).unwrap();
    batch.verify_crc().unwrap();
    let mut scratch = Vec::new();
    let records = records_slice(&batch, &mut scratch, LIMIT).unwrap();
    let owned = |record: crate::records::record::Record<'_>| Owned {
        offset: record.offset,
        timestamp: record.timestamp,
        key: record.key.map(<[u8]>::to_vec),
        value: record.value.map(<[u8]>::to_vec),
        headers: record.headers.map(|header| (header.key.to_vec(), header.value.map(<[u8]>::to_vec))).collect(),
    };
    Records::new(batch.header(), records).map(|record| owned(record.unwrap())).collect()
}

fn any_bytes() -> impl Strategy<Value = Option<Vec<u8>>> {
    proptest::option::of(proptest::collection::vec(any::<u8>(), 0..80))
}

prop_compose! {
    fn any_records()(
        raw in proptest::collection::vec((
            1i64..5, -1i64..2_000_000_000_000, any_bytes(), any_bytes(),
            proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..9), any_bytes()), 0..4),
        ), 1..40)
    ) -> Vec<Owned> {
        let mut next = 100;
        raw.into_iter().map(|(gap, timestamp, key, value, headers)| {
            let offset = next;
            next += gap;
            Owned { offset, timestamp, key, value, headers }
        }).collect()
    }
}

proptest! {
    #[test]
    fn built_batches_read_back(records in any_records(), horizon in proptest::option::of(0i64..2_000_000_000_000)) {
        // Rule: decode(encode(x)) = x with every codec, and the header tells the truth about the records.
        for codec in CompressionType::ALL {
            let options = BatchOptions {
                compression: Compression::new(codec),
                base_offset: 100,
                delete_horizon_ms: horizon,
                ..BatchOptions::default()
            };
            let bytes = build(options, &records);
            prop_assert_eq!(&read(&bytes), &records);
            let batch = BatchView::parse_exact(&bytes).unwrap();
            prop_assert_eq!(batch.compression_type(), Ok(codec));
            prop_assert_eq!(batch.delete_horizon_ms(), horizon);
            let limits = RecordLimits { decompressed_bytes_max: LIMIT, offset_deltas: OffsetDeltas::Ascending };
            let info = validate_records(&batch, &mut Vec::new(), limits).unwrap();
            prop_assert_eq!(info.max_timestamp, batch.max_timestamp());
            prop_assert_eq!(Some(info.max_timestamp), records.iter().map(|record| record.timestamp).max());
            prop_assert_eq!(Some(info.min_timestamp), records.iter().map(|record| record.timestamp).min());
            let first_max = records.iter().find(|record| record.timestamp == info.max_timestamp).unwrap();
            prop_assert_eq!(i64::from(info.max_timestamp_offset_delta), first_max.offset - 100);
            let first_null = records.iter().position(|record| record.key.is_none());
            prop_assert_eq!(info.first_null_key, first_null.map(|index| index as i32));
        }
    }

    #[test]
    fn recompression_keeps_all_but_the_codec(records in any_records()) {
        // Rule: a batch under another codec has the same header fields and the same records.
        let options = BatchOptions {
            base_offset: 100, producer_id: 9, producer_epoch: 2, base_sequence: 77, transactional: true,
            ..BatchOptions::default()
        };
        let plain = build(options, &records);
        let before = BatchView::parse_exact(&plain).unwrap();
        for codec in CompressionType::ALL {
            let bytes = recompress(&before, Compression::new(codec), &mut Vec::new(), LIMIT).unwrap();
            let after = BatchView::parse_exact(&bytes).unwrap();
            prop_assert_eq!(&read(&bytes), &records);
            prop_assert_eq!(after.compression_type(), Ok(codec));
            prop_assert!(after.is_transactional());
            prop_assert_eq!((after.producer_id(), after.base_sequence()), (9, 77));
            prop_assert_eq!(after.last_offset(), before.last_offset());
            prop_assert_eq!(recompress(&after, Compression::NONE, &mut Vec::new(), LIMIT).unwrap(), plain.clone());
        }
    }
}

#[test]
fn the_smallest_record_is_seven_bytes() {
    // Rule: the layout, byte by byte.
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(&NewRecord { timestamp: 5, key: None, value: None, headers: &[] }).unwrap();
    builder.append(&NewRecord { timestamp: 4, key: Some(b"k"), value: Some(b""), headers: &[] }).unwrap();
    let bytes = builder.build().unwrap();
    let batch = BatchView::parse_exact(&bytes).unwrap();
    assert_eq!(batch.records_bytes(), [12, 0, 0, 0, 1, 1, 0, 14, 0, 1, 2, 2, b'k', 0, 0]);
    assert_eq!((batch.base_timestamp(), batch.max_timestamp(), batch.last_offset_delta()), (5, 5, 1));
}

#[test]
fn an_empty_batch_keeps_its_place() {
    // Rule: compaction keeps the range of offsets and the producer's sequence of a batch without records.
    let options =
        BatchOptions { base_offset: 50, producer_id: 3, producer_epoch: 0, base_sequence: 8, ..Default::default() };
    let mut builder = BatchBuilder::new(options);
    builder.extend_to(59).unwrap();
    let bytes = builder.build().unwrap();
    let batch = BatchView::parse_exact(&bytes).unwrap();
    batch.verify_crc().unwrap();
    assert_eq!((batch.record_count(), batch.last_offset(), batch.last_sequence()), (0, 59, 17));
    assert!(read(&bytes).is_empty());
}

#[test]
fn offsets_must_ascend() {
    // Rule: no record lands before the base or at or before its predecessor.
    let mut builder = BatchBuilder::new(BatchOptions { base_offset: 10, ..Default::default() });
    let record = NewRecord::default();
    assert_eq!(builder.append_at(9, &record), Err(BuildError::BadOffset { offset: 9, base_offset: 10 }));
    builder.append_at(12, &record).unwrap();
    assert_eq!(builder.append_at(12, &record), Err(BuildError::BadOffset { offset: 12, base_offset: 10 }));
    let far = 10 + (1 << 31);
    assert_eq!(builder.append_at(far, &record), Err(BuildError::BadOffset { offset: far, base_offset: 10 }));
}

#[test]
fn log_append_time_rules_every_record() {
    // Rule: with LogAppendTime the records' own timestamps are not seen.
    let mut builder = BatchBuilder::new(BatchOptions { log_append_time: Some(99), ..Default::default() });
    for timestamp in [1, 500] {
        builder.append(&NewRecord { timestamp, ..Default::default() }).unwrap();
    }
    let bytes = builder.build().unwrap();
    assert_eq!(read(&bytes).iter().map(|record| record.timestamp).collect::<Vec<_>>(), [99, 99]);
}
