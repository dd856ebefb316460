use super::*;
use walser_protocol::records::batch::BatchAttributes;

fn batch(producer_id: i64, producer_epoch: i16, base_sequence: i32, count: i32) -> BatchHeader {
    BatchHeader {
        base_offset: 0,
        batch_length: 49,
        partition_leader_epoch: 0,
        magic: 2,
        crc: 0,
        attributes: BatchAttributes::from_bits(0),
        last_offset_delta: count - 1,
        base_timestamp: 1000,
        max_timestamp: 1000,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count: count,
    }
}

fn transactional(mut header: BatchHeader) -> BatchHeader {
    header.attributes = header.attributes.with_transactional(true);
    header
}

fn marker(producer_epoch: i16, coordinator_epoch: i32) -> EndMarker {
    EndMarker { producer_id: 1, producer_epoch, coordinator_epoch, is_aborted: true, timestamp: 2000 }
}

/// Appends single batches of producer 1 one after the other.
fn states(batches: &[BatchHeader]) -> ProducerStates {
    let mut states = ProducerStates::default();
    let mut offset = 0;
    for header in batches {
        states.note_batch(header, offset);
        offset += i64::from(header.last_offset_delta) + 1;
    }
    states
}

#[test]
fn sequences_follow_without_a_gap() {
    // The whole table of Kafka's sequence rules for one known producer.
    let known = states(&[batch(1, 3, 0, 10)]);
    let out_of_order =
        |base_sequence| Err(ProducerError::OutOfOrderSequence { producer_id: 1, base_sequence, last_sequence: 9 });
    let duplicate = BatchMetadata { last_sequence: 9, last_offset: 9, offset_delta: 9, timestamp: 1000 };
    let new_epoch = ProducerError::NewEpochNotAtZero { producer_id: 1, epoch: 4, last_epoch: 3, base_sequence: 10 };
    for (case, header, want) in [
        ("next", batch(1, 3, 10, 5), Ok(SequenceCheck::Append)),
        ("gap", batch(1, 3, 11, 5), out_of_order(11)),
        ("same range", batch(1, 3, 0, 10), Ok(SequenceCheck::Duplicate(duplicate))),
        ("part of a range", batch(1, 3, 0, 5), out_of_order(0)),
        ("new epoch at 0", batch(1, 4, 0, 1), Ok(SequenceCheck::Append)),
        ("new epoch elsewhere", batch(1, 4, 10, 1), Err(new_epoch)),
        ("old epoch", batch(1, 2, 10, 1), Err(ProducerError::InvalidEpoch { producer_id: 1, given: 2, current: 3 })),
        ("unknown producer anywhere", batch(2, 0, 77, 1), Ok(SequenceCheck::Append)),
        ("no producer", batch(-1, -1, -1, 1), Ok(SequenceCheck::Append)),
    ] {
        assert_eq!(known.check(&header), want, "{case}");
    }
}

#[test]
fn five_batches_are_remembered() {
    // A duplicate among the last five is answered, an older one is out of order.
    let sent: Vec<BatchHeader> = (0..6).map(|n| batch(1, 0, n * 2, 2)).collect();
    let known = states(&sent);
    assert!(matches!(known.check(&sent[0]), Err(ProducerError::OutOfOrderSequence { .. })));
    for (n, header) in sent.iter().enumerate().skip(1) {
        let Ok(SequenceCheck::Duplicate(found)) = known.check(header) else { panic!("batch {n} is known") };
        assert_eq!((found.base_offset(), found.base_sequence()), (n as i64 * 2, n as i32 * 2));
    }
}

#[test]
fn sequences_wrap_around() {
    // After i32::MAX comes 0, between batches and inside one.
    let at_end = states(&[batch(1, 0, i32::MAX - 1, 2)]);
    assert_eq!(at_end.check(&batch(1, 0, 0, 1)), Ok(SequenceCheck::Append));
    let inside = states(&[batch(1, 0, i32::MAX - 1, 4)]);
    assert_eq!(inside.producer(1).map(ProducerEntry::last_sequence), Some(1));
    assert_eq!(inside.check(&batch(1, 0, 2, 1)), Ok(SequenceCheck::Append));
    assert!(matches!(inside.check(&batch(1, 0, i32::MAX - 1, 4)), Ok(SequenceCheck::Duplicate(_))));
}

#[test]
fn transactions_move_the_stable_offset() {
    // Nothing is stable from the first open transaction on; a closed one is once its marker is replicated.
    let mut known = states(&[batch(9, 0, 0, 5), transactional(batch(1, 0, 0, 5))]);
    assert_eq!(known.first_unstable_offset(), Some(5));
    assert_eq!(known.check(&batch(1, 0, 5, 1)), Err(ProducerError::NotTransactional { producer_id: 1 }));
    let done = known.note_marker(&marker(0, 7), 10);
    let want = CompletedTransaction { producer_id: 1, first_offset: 5, last_offset: 10, is_aborted: true };
    assert_eq!(done, Some(want));
    known.handle_high_watermark(10);
    assert_eq!(known.first_unstable_offset(), Some(5));
    known.handle_high_watermark(11);
    assert_eq!(known.first_unstable_offset(), None);
    assert_eq!(known.note_marker(&marker(0, 7), 11), None);
}

#[test]
fn markers_are_fenced() {
    // Old producer epochs and old coordinators end nothing; version 2 asks for a larger epoch.
    let mut known = states(&[transactional(batch(1, 3, 0, 5))]);
    assert!(matches!(known.check_marker(&marker(2, 0), false), Err(ProducerError::InvalidEpoch { .. })));
    assert_eq!(known.check_marker(&marker(3, 0), false), Ok(()));
    assert!(matches!(known.check_marker(&marker(3, 0), true), Err(ProducerError::InvalidEpoch { .. })));
    known.note_marker(&marker(4, 7), 5);
    assert!(matches!(known.check_marker(&marker(4, 6), false), Err(ProducerError::CoordinatorFenced { .. })));
    // The marker's epoch is the producer's now, and it begins at 0.
    assert!(matches!(known.check(&batch(1, 4, 5, 1)), Err(ProducerError::OutOfOrderSequence { .. })));
    assert_eq!(known.check(&batch(1, 4, 0, 1)), Ok(SequenceCheck::Append));
}

#[test]
fn expiration_spares_open_transactions() {
    // A producer is forgotten after its time, unless it has a transaction open.
    let mut known = states(&[batch(9, 0, 0, 5), transactional(batch(1, 0, 0, 5))]);
    assert_eq!(known.expire(1999, 1000), 0);
    assert_eq!(known.expire(2000, 1000), 1);
    assert_eq!(known.iter().map(|(id, _)| id).collect::<Vec<_>>(), [1]);
}

#[test]
fn snapshot_round_trip() {
    // The last batch, the epochs and the open transaction survive; older batches do not, as in Kafka.
    let mut known = states(&[batch(9, 2, 0, 5), transactional(batch(1, 0, 0, 5)), batch(9, 2, 5, 1)]);
    known.note_marker(
        &EndMarker { producer_id: 4, producer_epoch: 1, coordinator_epoch: 3, is_aborted: false, timestamp: 5 },
        11,
    );
    let bytes = known.encode_snapshot();
    let read = ProducerStates::decode_snapshot(&bytes).expect("own snapshot");
    assert_eq!(read.encode_snapshot(), bytes);
    assert_eq!(read.first_unstable_offset(), Some(5));
    assert_eq!(read.producer(9).map(|p| p.batches().count()), Some(1));
    assert_eq!(read.producer(4).map(|p| (p.coordinator_epoch, p.last_sequence())), Some((3, -1)));
    assert_eq!(ProducerStates::default().encode_snapshot().len() as u64, SNAPSHOT_EMPTY_BYTES);
}

#[test]
fn bad_snapshots_are_errors() {
    // Any change of any byte is noticed.
    let bytes = states(&[batch(9, 2, 0, 5)]).encode_snapshot();
    for at in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 1;
        assert!(ProducerStates::decode_snapshot(&bad).is_err(), "byte {at}");
        assert!(ProducerStates::decode_snapshot(&bytes[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn kafkas_snapshot_reads_and_writes_back() {
    // Written by Apache Kafka 4.4.0 on a clean stop, after two idempotent producers of kafka-producer-perf-test.
    let hex = "0001e7d2db9b0000000200000000000000000000\
               00004e1f0000000000004e1f00000021000001a22887b4e0ffffffffffffffffffffffff\
               0000000000000001000000001387\
               00000000000061a700000042000001a22887ed25ffffffffffffffffffffffff";
    let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
    let bytes: Vec<u8> = digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect();
    let states = ProducerStates::decode_snapshot(&bytes).expect("Kafka's own");
    assert_eq!(states.encode_snapshot(), bytes);
    let last: Vec<_> = states.iter().map(|(id, entry)| (id, entry.last_sequence(), entry.last_offset())).collect();
    assert_eq!(last, [(0, 19999, Some(19999)), (1, 4999, Some(24999))]);
}
