use super::*;
use proptest::prelude::*;

/// Three records' worth of header in front of `records`, with a CRC that holds.
fn sample(records: &[u8]) -> Vec<u8> {
    let header = BatchHeader {
        base_offset: 7,
        batch_length: (BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES + records.len()) as i32,
        partition_leader_epoch: NO_PARTITION_LEADER_EPOCH,
        magic: MAGIC_V2,
        crc: 0,
        attributes: BatchAttributes::default().with_compression_type(CompressionType::Lz4),
        last_offset_delta: 2,
        base_timestamp: 1000,
        max_timestamp: 1010,
        producer_id: 5,
        producer_epoch: 1,
        base_sequence: i32::MAX,
        record_count: 3,
    };
    let mut bytes = Vec::new();
    header.write(&mut bytes);
    bytes.extend_from_slice(records);
    BatchMut::parse(&mut bytes).unwrap().0.recompute_crc();
    bytes
}

#[test]
fn parse_reads_every_field_and_leaves_what_follows() {
    // Rule: a header written field by field reads back the same, and the rest of the slice is untouched.
    let mut bytes = sample(b"records");
    bytes.extend_from_slice(b"tail");
    let (batch, rest) = BatchView::parse(&bytes).unwrap();
    assert_eq!(rest, b"tail");
    assert_eq!(batch.records_bytes(), b"records");
    assert_eq!((batch.base_offset(), batch.last_offset(), batch.next_offset()), (7, 9, 10));
    assert_eq!((batch.base_sequence(), batch.last_sequence()), (i32::MAX, 1));
    assert_eq!(batch.compression_type(), Ok(CompressionType::Lz4));
    assert_eq!(batch.timestamp_type(), TimestampType::CreateTime);
    assert!(batch.has_producer_id() && !batch.is_transactional() && !batch.is_control());
    assert_eq!(batch.total_len(), BATCH_HEADER_BYTES + 7);
    batch.verify_crc().unwrap();
}

#[test]
fn a_length_that_lies_is_an_error() {
    // Rule: the length field is checked before a byte behind it is touched.
    let bytes = sample(b"records");
    for (length, want) in [
        (-1, BatchError::BadLength { length: -1 }),
        (0, BatchError::BadLength { length: 0 }),
        (48, BatchError::BadLength { length: 48 }),
        (i32::MIN, BatchError::BadLength { length: i32::MIN }),
        (i32::MAX, BatchError::Truncated { need: i32::MAX as usize + 12, have: bytes.len() }),
        (57, BatchError::Truncated { need: 69, have: 68 }),
    ] {
        let mut bytes = bytes.clone();
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        assert_eq!(BatchView::parse(&bytes).map(|_| ()), Err(want), "length {length}");
        assert_eq!(BatchMut::parse(&mut bytes).map(|_| ()), Err(want), "length {length}");
    }
}

#[test]
fn other_magics_are_named() {
    // Rule: formats 0 and 1 are refused as such, not as corruption.
    for magic in [0, 1, 3, -1] {
        let mut bytes = sample(b"");
        bytes[16] = magic as u8;
        assert_eq!(BatchView::parse(&bytes).map(|_| ()), Err(BatchError::UnsupportedMagic { magic }));
    }
}

#[test]
fn leader_fields_lie_outside_the_crc() {
    // Rule: assigning offset and epoch changes no other byte and keeps the client's CRC.
    let before = sample(b"records");
    let mut after = before.clone();
    let (mut batch, _) = BatchMut::parse(&mut after).unwrap();
    batch.set_base_offset(123_456_789_012);
    batch.set_partition_leader_epoch(42);
    let view = batch.view().unwrap();
    assert_eq!((view.base_offset(), view.partition_leader_epoch()), (123_456_789_012, 42));
    view.verify_crc().unwrap();
    assert_eq!(before[8..12], after[8..12]);
    assert_eq!(before[16..], after[16..]);
}

#[test]
fn log_append_time_is_set_under_a_new_crc() {
    // Rule: attribute bit and maximum timestamp change together, and the batch still verifies.
    let mut bytes = sample(b"records");
    let (mut batch, _) = BatchMut::parse(&mut bytes).unwrap();
    batch.set_log_append_time(5555);
    let view = batch.view().unwrap();
    assert_eq!((view.timestamp_type(), view.max_timestamp()), (TimestampType::LogAppendTime, 5555));
    assert_eq!((view.base_timestamp(), view.compression_type()), (1000, Ok(CompressionType::Lz4)));
    view.verify_crc().unwrap();
    batch.set_max_timestamp(77);
    let view = batch.view().unwrap();
    assert_eq!((view.timestamp_type(), view.max_timestamp()), (TimestampType::CreateTime, 77));
    view.verify_crc().unwrap();
}

#[test]
fn a_flipped_bit_inside_the_crc_is_found() {
    // Rule: every byte from the attributes on is covered.
    let good = sample(b"records");
    for position in ATTRIBUTES_AT..good.len() {
        let mut bytes = good.clone();
        bytes[position] ^= 0x10;
        let (batch, _) = BatchView::parse(&bytes).unwrap();
        assert!(matches!(batch.verify_crc(), Err(BatchError::BadCrc { .. })), "position {position}");
    }
}

#[test]
fn iteration_stops_at_a_torn_tail_and_says_where() {
    // Rule: whole batches come first, then one Truncated, then nothing; position is the end of the last whole one.
    let mut bytes = sample(b"one");
    bytes.extend_from_slice(&sample(b"two two"));
    let whole = bytes.len();
    bytes.extend_from_slice(&sample(b"three")[..40]);
    let mut batches = Batches::new(&bytes);
    assert_eq!(batches.next().unwrap().unwrap().records_bytes(), b"one");
    assert_eq!(batches.next().unwrap().unwrap().records_bytes(), b"two two");
    assert_eq!(batches.next().unwrap().unwrap_err(), BatchError::Truncated { need: 66, have: 40 });
    assert!(batches.next().is_none());
    assert_eq!((batches.position(), batches.rest().len()), (whole, 40));
}

#[test]
fn sequences_wrap_at_two_to_the_31() {
    // Rule: the sequence after 2^31 - 1 is 0, forwards and backwards.
    for (base, count, want) in [(0, 0, 0), (0, 5, 5), (i32::MAX, 1, 0), (i32::MAX - 1, 3, 1), (5, i32::MAX, 4)] {
        assert_eq!(sequence_add(base, count), want, "{base} + {count}");
        assert_eq!(sequence_subtract(want, count), base, "{want} - {count}");
    }
}

proptest! {
    #[test]
    fn any_bytes_parse_or_err(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        // Rule: no input panics, and what parses lies inside the input.
        for batch in Batches::new(&bytes).flatten() {
            prop_assert!(batch.total_len() <= bytes.len());
            let _ = (batch.verify_crc(), batch.last_offset(), batch.next_offset(), batch.last_sequence());
        }
    }

    #[test]
    fn any_header_parses_or_errs(mut bytes in proptest::collection::vec(any::<u8>(), 61..120), length in -60i32..120) {
        // Rule: no header that has the right magic panics.
        bytes[16] = 2;
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        if let Ok((mut batch, _)) = BatchMut::parse(&mut bytes) {
            batch.set_log_append_time(1);
            batch.view().unwrap().verify_crc().unwrap();
        }
    }
}
