use super::*;
use crate::records::batch::BatchMut;
use crate::records::builder::{BatchBuilder, BatchOptions, NewRecord};
use crate::records::compression::{Compression, CompressionType};
use proptest::prelude::*;

const LIMITS: RecordLimits = RecordLimits { decompressed_bytes_max: 1 << 20, offset_deltas: OffsetDeltas::Consecutive };

/// An uncompressed batch of `count` records whose record bytes are `records`.
fn batch_of(count: i32, records: &[u8]) -> Vec<u8> {
    let mut bytes = BatchBuilder::new(BatchOptions::default()).build().unwrap();
    bytes.extend_from_slice(records);
    let length = (bytes.len() - 12) as i32;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    bytes[23..27].copy_from_slice(&(count - 1).max(0).to_be_bytes());
    bytes[57..61].copy_from_slice(&count.to_be_bytes());
    BatchMut::parse(&mut bytes).unwrap().0.recompute_crc();
    bytes
}

fn validate(bytes: &[u8]) -> Result<RecordsInfo, RecordError> {
    validate_records(&BatchView::parse_exact(bytes).unwrap(), &mut Vec::new(), LIMITS)
}

#[test]
fn records_that_lie_are_named() {
    // Rule: each length, count and delta is held against the bytes there are.
    let truncated = |field| RecordError::Truncated { index: 0, field };
    let bad = |field, length| RecordError::BadLength { index: 0, field, length };
    let cases: [(&str, i32, &[u8], RecordError); 18] = [
        ("no bytes", 1, &[], truncated("length")),
        ("negative length", 1, &[1], bad("length", -1)),
        ("length beyond the batch", 1, &[14, 0, 0, 0, 1, 1, 0], truncated("length")),
        ("endless varint", 1, &[0x80; 12], truncated("length")),
        ("no attributes", 1, &[0], truncated("attributes")),
        ("no timestamp", 1, &[2, 0], truncated("timestamp")),
        ("no offset delta", 1, &[4, 0, 0], truncated("offset delta")),
        ("no key", 1, &[6, 0, 0, 0], truncated("key length")),
        ("key length -2", 1, &[8, 0, 0, 0, 3], bad("key length", -2)),
        ("key beyond the record", 1, &[12, 0, 0, 0, 40, 1, 0], truncated("key length")),
        ("value beyond the record", 1, &[12, 0, 0, 0, 1, 40, 0], truncated("value length")),
        ("negative header count", 1, &[12, 0, 0, 0, 1, 1, 1], bad("header count", -1)),
        ("header count beyond the record", 1, &[12, 0, 0, 0, 1, 1, 2], truncated("header key length")),
        ("null header key", 1, &[16, 0, 0, 0, 1, 1, 2, 1, 1], bad("header key length", -1)),
        (
            "bytes behind the headers",
            1,
            &[14, 0, 0, 0, 1, 1, 0, 9],
            RecordError::TrailingBytesInRecord { index: 0, left: 1 },
        ),
        ("bytes behind the records", 1, &[12, 0, 0, 0, 1, 1, 0, 9], RecordError::TrailingBytes { left: 1 }),
        ("offset delta 1 first", 1, &[12, 0, 0, 2, 1, 1, 0], RecordError::BadOffsetDelta { index: 0, found: 1 }),
        ("negative record count", -1, &[], RecordError::BadRecordCount { count: -1 }),
    ];
    for (case, count, records, want) in cases {
        assert_eq!(validate(&batch_of(count, records)), Err(want), "{case}");
    }
}

#[test]
fn the_last_offset_must_be_there() {
    // Rule: a producer's batch has exactly as many records as offsets.
    let mut bytes = batch_of(1, &[12, 0, 0, 0, 1, 1, 0]);
    assert!(validate(&bytes).is_ok());
    bytes[26] = 4;
    assert_eq!(validate(&bytes), Err(RecordError::BadRecordCount { count: 1 }));
    let ascending = RecordLimits { offset_deltas: OffsetDeltas::Ascending, ..LIMITS };
    let batch = BatchView::parse_exact(&bytes).unwrap();
    assert!(validate_records(&batch, &mut Vec::new(), ascending).is_ok());
}

#[test]
fn a_timestamp_past_the_end_of_time_is_refused() {
    // Rule: base and delta come from the wire; their sum is checked.
    let mut bytes = batch_of(1, &[12, 0, 2, 0, 1, 1, 0]);
    bytes[27..35].copy_from_slice(&i64::MAX.to_be_bytes());
    assert_eq!(validate(&bytes), Err(RecordError::BadTimestamp { index: 0 }));
}

#[test]
fn uncompressed_batches_touch_no_scratch() {
    // Rule: validating a batch without compression allocates nothing.
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for timestamp in 0..100 {
        builder.append(&NewRecord { timestamp, value: Some(&[7; 100]), ..Default::default() }).unwrap();
    }
    let bytes = builder.build().unwrap();
    let mut scratch = Vec::new();
    let info = validate_records(&BatchView::parse_exact(&bytes).unwrap(), &mut scratch, LIMITS).unwrap();
    assert_eq!(scratch.capacity(), 0);
    assert_eq!((info.record_count, info.null_key_count, info.first_null_key), (100, 100, Some(0)));
    assert_eq!((info.min_timestamp, info.max_timestamp, info.max_timestamp_offset_delta), (0, 99, 99));
}

#[test]
fn a_bomb_in_a_batch_is_an_error() {
    // Rule: the caller's limit holds for compressed records.
    for codec in [CompressionType::Gzip, CompressionType::Snappy, CompressionType::Lz4, CompressionType::Zstd] {
        let mut builder =
            BatchBuilder::new(BatchOptions { compression: Compression::new(codec), ..Default::default() });
        let value = vec![0; 2 << 20];
        builder.append(&NewRecord { value: Some(&value), ..Default::default() }).unwrap();
        let bytes = builder.build().unwrap();
        let want = RecordError::Compression(CompressionError::TooLarge { limit: 1 << 20 });
        assert_eq!(validate(&bytes), Err(want), "{codec}");
    }
}

proptest! {
    #[test]
    fn any_record_bytes_validate_or_err(
        records in proptest::collection::vec(any::<u8>(), 0..200), count in -2i32..20, attributes in any::<u8>()
    ) {
        // Rule: no bytes behind a header panic, in any codec.
        let mut bytes = batch_of(count, &records);
        bytes[22] = attributes;
        let batch = BatchView::parse_exact(&bytes).unwrap();
        let _ = validate_records(&batch, &mut Vec::new(), LIMITS);
        for record in Records::new(batch.header(), &records).flatten() {
            prop_assert_eq!(record.headers.count(), record.headers.count_left());
        }
    }

    #[test]
    fn a_damaged_batch_validates_or_errs(flips in proptest::collection::vec((0usize..140, any::<u8>()), 1..5)) {
        // Rule: a batch that was good once does not panic either, when bytes in it change.
        let mut builder = BatchBuilder::new(BatchOptions::default());
        let headers = [Header { key: b"trace", value: Some(b"1") }, Header { key: b"", value: None }];
        for timestamp in 0..4 {
            builder.append(&NewRecord { timestamp, key: Some(b"key"), value: Some(b"value"), headers: &headers }).unwrap();
        }
        let mut bytes = builder.build().unwrap();
        for (position, value) in flips {
            let position = position % bytes.len();
            bytes[position] = value;
        }
        if let Ok((batch, _)) = BatchView::parse(&bytes) {
            let _ = validate_records(&batch, &mut Vec::new(), LIMITS);
        }
    }
}
