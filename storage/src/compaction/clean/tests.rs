use std::collections::BTreeMap;

use futures_lite::future::block_on;
use walser_protocol::records::batch::{Batches, NO_TIMESTAMP};
use walser_protocol::records::compression::CompressionType;
use walser_protocol::records::control::{EndTransactionMarker, TransactionResult};

use super::*;
use crate::compaction::HashKey;
use crate::compaction::transactions::AbortedTransaction;
use crate::runtime::prng::{Prng, seeds};

const NOW: i64 = 1_700_000_000_000;
const DAY: i64 = 24 * 3600 * 1000;

type KeyAndValue = (&'static str, Option<&'static str>);

fn build(options: BatchOptions, records: &[KeyAndValue]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options);
    let headers = [Header { key: b"h", value: Some(b"1") }, Header { key: b"", value: None }];
    for (at, (key, value)) in (0..).zip(records) {
        let key = (*key != "null").then_some(key.as_bytes());
        let headers = if at % 2 == 0 { &headers[..] } else { &[] };
        let record = NewRecord { timestamp: NOW + at, key, value: value.map(str::as_bytes), headers };
        builder.append(&record).expect("a small record");
    }
    builder.build().expect("a small batch")
}

fn at(base_offset: i64) -> BatchOptions {
    BatchOptions { base_offset, partition_leader_epoch: 3, ..BatchOptions::default() }
}

fn view(bytes: &[u8]) -> BatchView<'_> {
    BatchView::parse_exact(bytes).expect("a batch")
}

fn map_now(
    batch: &BatchView<'_>,
    map: &mut OffsetMap,
    from_offset: i64,
    decompressed_bytes_max: usize,
    scratch: &mut Vec<u8>,
) -> Result<Result<(), Full>, BatchUncleanable> {
    block_on(map_batch(batch, map, from_offset, decompressed_bytes_max, scratch, &async || {}))
}

impl BatchCleaner<'_> {
    fn clean_now(&mut self, batch: &BatchView<'_>, ends_segment: bool) -> Result<Cleaned, BatchUncleanable> {
        block_on(self.clean(batch, ends_segment, &async || {}))
    }
}

fn map_of(batches: &[Vec<u8>]) -> OffsetMap {
    let mut map = OffsetMap::new(HashKey::new([1, 2]), 1 << 16, 0.9, 1000);
    for bytes in batches {
        map_now(&view(bytes), &mut map, 0, 1 << 20, &mut Vec::new()).expect("whole").expect("room");
        map.reach(view(bytes).last_offset());
    }
    map
}

fn settings(now_ms: i64) -> PassSettings {
    PassSettings { now_ms, delete_retention_ms: DAY, end_offset: i64::MAX, decompressed_bytes_max: 1 << 20 }
}

/// Offset, key and value of what is left.
fn left(bytes: &[u8]) -> Vec<(i64, String, Option<String>)> {
    let batch = view(bytes);
    let mut scratch = Vec::new();
    let records = records_slice(&batch, &mut scratch, 1 << 20).expect("readable");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    Records::new(batch.header(), records)
        .map(|record| record.expect("whole"))
        .map(|record| (record.offset, record.key.map(text).unwrap_or_default(), record.value.map(text)))
        .collect()
}

fn rewritten(cleaned: Cleaned) -> Bytes {
    let Cleaned::Rewritten(bytes) = cleaned else { panic!("{cleaned:?} is no batch written anew") };
    view(&bytes).verify_crc().expect("a CRC of its own");
    bytes
}

#[test]
fn the_last_record_of_a_key_stays_where_it_was() {
    // Rule: older records of a key go, offsets and everything else about the batch stay, whatever the codec.
    for codec in CompressionType::ALL {
        let options = BatchOptions {
            compression: Compression::new(codec),
            producer_id: 9,
            producer_epoch: 2,
            base_sequence: 40,
            ..at(100)
        };
        let old = build(options, &[("a", Some("1")), ("b", Some("2")), ("c", Some("3")), ("a", Some("4"))]);
        let new = build(at(104), &[("c", Some("5"))]);
        let map = map_of(&[old.clone(), new.clone()]);
        let mut cleaner = BatchCleaner::new(&map, settings(NOW));
        let bytes = rewritten(cleaner.clean_now(&view(&old), false).expect("whole"));
        let want = [(101, "b".to_owned(), Some("2".to_owned())), (103, "a".to_owned(), Some("4".to_owned()))];
        assert_eq!(left(&bytes), want, "{codec:?}");
        let (before, after) = (*view(&old).header(), *view(&bytes).header());
        let same = |header: BatchHeader| {
            let BatchHeader { base_offset, last_offset_delta, producer_id, producer_epoch, base_sequence, .. } = header;
            (base_offset, last_offset_delta, producer_id, producer_epoch, base_sequence, header.partition_leader_epoch)
        };
        assert_eq!(same(after), same(before));
        assert_eq!((after.attributes.compression_type(), after.max_timestamp), (Ok(codec), NOW + 3));
        let again = view(&bytes);
        assert_eq!(cleaner.clean_now(&again, false), Ok(Cleaned::Unchanged), "cleaning twice changes nothing");
        assert_eq!(cleaner.clean_now(&view(&new), false), Ok(Cleaned::Unchanged), "untouched, so byte for byte");
    }
}

#[test]
fn headers_and_times_of_what_stays_are_kept() {
    // Rule: a record that stays is the record that was sent.
    let old = build(at(0), &[("a", Some("1")), ("x", Some("2")), ("b", Some("3"))]);
    let map = map_of(&[old.clone(), build(at(3), &[("x", Some("4"))])]);
    let bytes = rewritten(BatchCleaner::new(&map, settings(NOW)).clean_now(&view(&old), false).expect("whole"));
    let batch = view(&bytes);
    let records: Vec<_> = Records::new(batch.header(), batch.records_bytes()).map(Result::unwrap).collect();
    let seen: Vec<_> = records.iter().map(|record| (record.timestamp, record.headers.count())).collect();
    assert_eq!(seen, [(NOW, 2), (NOW + 2, 2)]);
    let append_time = build(BatchOptions { log_append_time: Some(NOW + 500), ..at(0) }, &[("a", None), ("x", None)]);
    let bytes = rewritten(BatchCleaner::new(&map, settings(NOW)).clean_now(&view(&append_time), false).expect("whole"));
    let header = *view(&bytes).header();
    assert_eq!((header.attributes.timestamp_type(), header.max_timestamp), (TimestampType::LogAppendTime, NOW + 500));
}

#[test]
fn tombstones_stay_until_their_horizon() {
    // Rule: a tombstone gets a horizon when it is seen first, keeps its time, and goes in the first pass after it.
    let old = build(at(0), &[("a", Some("1")), ("a", None), ("b", Some("2"))]);
    let map = map_of(std::slice::from_ref(&old));
    let first = rewritten(BatchCleaner::new(&map, settings(NOW)).clean_now(&view(&old), false).expect("whole"));
    assert_eq!(view(&first).delete_horizon_ms(), Some(NOW + DAY));
    assert_eq!(left(&first), [(1, "a".to_owned(), None), (2, "b".to_owned(), Some("2".to_owned()))]);
    let times =
        Records::new(view(&first).header(), view(&first).records_bytes()).map(|record| record.unwrap().timestamp);
    assert_eq!(times.collect::<Vec<_>>(), [NOW + 1, NOW + 2]);
    let later = |now_ms| BatchCleaner::new(&map, settings(now_ms)).clean_now(&view(&first), false).expect("whole");
    assert_eq!(later(NOW + DAY - 1), Cleaned::Unchanged);
    let second = rewritten(later(NOW + DAY));
    assert_eq!(left(&second), [(2, "b".to_owned(), Some("2".to_owned()))]);
    assert_eq!(view(&second).delete_horizon_ms(), Some(NOW + DAY), "the horizon stays with the batch");
    // A key that is not in the map is clean: its tombstone counts as the last record all the same.
    let other = map_of(&[build(at(50), &[("z", Some("1"))])]);
    let cleaned = BatchCleaner::new(&other, settings(NOW + DAY)).clean_now(&view(&first), false).expect("whole");
    assert_eq!(left(&rewritten(cleaned)), [(2, "b".to_owned(), Some("2".to_owned()))]);
}

#[test]
fn what_lies_behind_the_map_stays() {
    // Rule: when memory ends before the dirty part does, nothing behind is touched; it is the next pass's.
    let old = build(at(0), &[("a", Some("1")), ("a", Some("2")), ("a", Some("3")), ("null", Some("4"))]);
    let mut map = OffsetMap::new(HashKey::new([1, 2]), 1 << 16, 0.9, 1000);
    map.put(b"a", 0).expect("room");
    map.put(b"a", 1).expect("room");
    let bytes = rewritten(BatchCleaner::new(&map, settings(NOW)).clean_now(&view(&old), false).expect("whole"));
    assert_eq!(left(&bytes).iter().map(|(offset, ..)| *offset).collect::<Vec<_>>(), [1, 2, 3]);
    let map = map_of(std::slice::from_ref(&old));
    let bytes = rewritten(BatchCleaner::new(&map, settings(NOW)).clean_now(&view(&old), false).expect("whole"));
    assert_eq!(left(&bytes).iter().map(|(offset, ..)| *offset).collect::<Vec<_>>(), [2], "a record without a key goes");
}

#[test]
fn an_empty_batch_stays_where_its_header_is_needed() {
    // Rule: a producer's last batch, the end of what was compacted and the end of a segment stay, without their records.
    let producer = BatchOptions { producer_id: 9, producer_epoch: 1, base_sequence: 7, ..at(0) };
    let old = build(producer, &[("a", Some("1")), ("b", Some("2"))]);
    let map = map_of(&[old.clone(), build(at(2), &[("a", Some("3")), ("b", Some("4"))])]);
    let mut producers = ProducerStates::default();
    producers.note_batch(view(&old).header(), 0);
    for (case, end_offset, ends_segment, last_batches, is_kept) in [
        ("nobody needs it", 100, false, LastBatches::default(), false),
        ("its producer does", 100, false, LastBatches::of(&producers, 100, 2).expect("it is durable"), true),
        (
            "its producer's last is further up",
            100,
            false,
            LastBatches::of(&producers, 1, 2).expect("it is durable"),
            false,
        ),
        ("end of the pass", 2, false, LastBatches::default(), true),
        ("end of the segment", 100, true, LastBatches::default(), true),
    ] {
        let mut cleaner = BatchCleaner::new(&map, PassSettings { end_offset, ..settings(NOW) });
        cleaner.last_batches = last_batches;
        let cleaned = cleaner.clean_now(&view(&old), ends_segment).expect("whole");
        if !is_kept {
            assert_eq!(cleaned, Cleaned::Gone, "{case}");
            continue;
        }
        let bytes = rewritten(cleaned);
        let header = *view(&bytes).header();
        assert_eq!((header.record_count, header.base_offset, header.last_offset_delta), (0, 0, 1), "{case}");
        assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence), (9, 1, 7), "{case}");
        assert_eq!((header.base_timestamp, header.max_timestamp), (NO_TIMESTAMP, NOW + 1), "{case}");
        assert_eq!(bytes.len(), 61, "{case}");
        assert_eq!(cleaner.clean_now(&view(&bytes), ends_segment), Ok(Cleaned::Unchanged), "{case}");
        assert_eq!(BatchCleaner::new(&map, settings(NOW)).clean_now(&view(&bytes), false), Ok(Cleaned::Gone), "{case}");
    }
}

#[test]
fn aborted_records_go_and_markers_after_them() {
    // Rule: no record of an aborted transaction stays or outdates another one; a marker without data gets a horizon, then goes.
    let transactional = |base_offset| BatchOptions {
        producer_id: 5,
        producer_epoch: 0,
        base_sequence: 0,
        transactional: true,
        ..at(base_offset)
    };
    let aborted = build(transactional(0), &[("a", Some("1"))]);
    let marker = |base_offset, result| {
        let marker = EndTransactionMarker {
            producer_id: 5,
            producer_epoch: 0,
            result,
            coordinator_epoch: 0,
            timestamp: NOW,
            base_offset,
            partition_leader_epoch: 3,
        };
        marker.build().expect("a marker")
    };
    let (abort, commit) = (marker(1, TransactionResult::Abort), marker(3, TransactionResult::Commit));
    let committed = build(transactional(2), &[("a", Some("2"))]);
    let map = map_of(std::slice::from_ref(&committed));
    let mut cleaner = BatchCleaner::new(&map, settings(NOW));
    cleaner.map = &map;
    let ended = AbortedTransaction { producer_id: 5, first_offset: 0, last_offset: 1 };
    cleaner.transactions = Transactions::new(&[ended], 0);
    let walk =
        [&aborted, &abort, &committed, &commit].map(|bytes| cleaner.clean_now(&view(bytes), false).expect("whole"));
    assert_eq!(walk, [Cleaned::Gone, Cleaned::Unchanged, Cleaned::Unchanged, Cleaned::Unchanged]);
    // The next pass meets the abort marker alone.
    let mut cleaner = BatchCleaner::new(&map, settings(NOW));
    let dated = rewritten(cleaner.clean_now(&view(&abort), false).expect("whole"));
    assert_eq!(view(&dated).delete_horizon_ms(), Some(NOW + DAY));
    assert_eq!(control_record(&view(&dated), &mut Vec::new()), Ok(Some(ControlRecord::Abort { coordinator_epoch: 0 })));
    assert_eq!(BatchCleaner::new(&map, settings(NOW + 1)).clean_now(&view(&dated), false), Ok(Cleaned::Unchanged));
    let mut late = BatchCleaner::new(&map, settings(NOW + DAY));
    assert_eq!(late.clean_now(&view(&dated), false), Ok(Cleaned::Gone));
    // Its producer has nothing but this marker: the epoch in it is still needed.
    let mut producers = ProducerStates::default();
    let known = crate::producer_state::EndMarker {
        producer_id: 5,
        producer_epoch: 0,
        coordinator_epoch: 0,
        is_aborted: true,
        timestamp: NOW,
    };
    producers.note_marker(&known, 1);
    late.last_batches = LastBatches::of(&producers, 100, 0).expect("only a marker");
    let emptied = rewritten(late.clean_now(&view(&dated), false).expect("whole"));
    assert!(view(&emptied).is_control() && view(&emptied).record_count() == 0);
    assert_eq!(control_record(&view(&emptied), &mut Vec::new()), Ok(None));
}

#[test]
fn a_batch_that_may_be_lost_is_no_last_one() {
    // Rule: the batch that holds what is known of a producer is its last durable one, whatever is in flight behind it.
    let batch = |base_offset, base_sequence| {
        let producer = BatchOptions { producer_id: 9, producer_epoch: 1, base_sequence, ..at(base_offset) };
        build(producer, &[("a", Some("1"))])
    };
    let mut producers = ProducerStates::default();
    let batches: Vec<_> = (0..6).map(|offset| batch(offset, offset as i32)).collect();
    for (offset, bytes) in (0..).zip(&batches) {
        producers.note_batch(view(bytes).header(), offset);
    }
    for (durable_end_offset, held) in [(6, Some(5)), (5, Some(4)), (2, Some(1)), (1, None)] {
        let last_batches = LastBatches::of(&producers, 100, durable_end_offset);
        assert_eq!(last_batches.is_some(), held.is_some(), "durable to {durable_end_offset}");
        let Some(last_batches) = last_batches else { continue };
        let found = batches.iter().position(|bytes| last_batches.holds(&view(bytes)));
        assert_eq!(found, held, "durable to {durable_end_offset}");
    }
    assert!(
        LastBatches::of(&producers, 4, 6).is_some_and(|last| !batches.iter().any(|bytes| last.holds(&view(bytes))))
    );
}

#[test]
fn damage_is_not_written_anew() {
    // Rule: a batch whose bytes do not verify is an error, so that no new CRC hides the damage.
    let map = map_of(&[]);
    let mut bytes = build(at(0), &[("a", Some("1"))]);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let cleaned = BatchCleaner::new(&map, settings(NOW)).clean_now(&view(&bytes), false);
    assert!(matches!(cleaned, Err(BatchUncleanable::Batch(BatchError::BadCrc { .. }))));
}

#[test]
fn passes_leave_the_last_record_of_every_key() {
    // Rule: after passes over any history, with maps of any size, what is left is the last record of each key, tombstones
    // included, and offsets are those they had.
    for seed in seeds(40) {
        let mut prng = Prng::new(seed);
        let mut log: Vec<Vec<u8>> = Vec::new();
        let mut model: BTreeMap<String, (i64, Option<String>)> = BTreeMap::new();
        let mut next_offset = 0;
        for _ in 0..30 {
            let codec = CompressionType::ALL[prng.index(5)];
            let options = BatchOptions { compression: Compression::new(codec), ..at(next_offset) };
            let mut builder = BatchBuilder::new(options);
            for _ in 0..=prng.index(6) {
                let key = format!("key-{}", prng.below(25));
                let value = (!prng.chance(1, 5)).then(|| format!("value-{next_offset}"));
                let record = NewRecord {
                    timestamp: NOW + next_offset,
                    key: Some(key.as_bytes()),
                    value: value.as_deref().map(str::as_bytes),
                    headers: &[],
                };
                builder.append(&record).expect("a small record");
                model.insert(key, (next_offset, value));
                next_offset += 1;
            }
            log.push(builder.build().expect("a small batch"));
        }
        let mut dirty_from = 0;
        while dirty_from < next_offset {
            // Some maps hold two keys only.
            let mut map = OffsetMap::new(HashKey::new([seed, 7]), 24 * (4 + prng.index(40)), 0.9, 1000);
            for bytes in log.iter().filter(|bytes| view(bytes).last_offset() >= dirty_from) {
                match map_now(&view(bytes), &mut map, dirty_from, 1 << 20, &mut Vec::new()).expect("whole") {
                    Ok(()) => map.reach(view(bytes).last_offset()),
                    Err(Full) => break,
                }
            }
            assert!(map.latest_offset() >= dirty_from, "seed {seed}: every pass gets on");
            let mut cleaner = BatchCleaner::new(&map, settings(NOW));
            let mut left = Vec::new();
            for bytes in &log {
                match cleaner.clean_now(&view(bytes), false).expect("whole") {
                    Cleaned::Unchanged => left.push(bytes.clone()),
                    Cleaned::Rewritten(bytes) => left.push(bytes.to_vec()),
                    Cleaned::Gone => {}
                }
            }
            dirty_from = map.latest_offset() + 1;
            log = left;
        }
        let whole = log.concat();
        let got: Vec<_> = Batches::new(&whole).flat_map(|batch| left(batch.expect("whole").bytes())).collect();
        let mut want: Vec<_> = model.into_iter().map(|(key, (offset, value))| (offset, key, value)).collect();
        want.sort();
        assert_eq!(got, want, "seed {seed}");
    }
}

#[test]
fn a_large_batch_gives_way() {
    // Rule: however many records a batch has, others get their turn every RECORDS_PER_BREATH of them, in each walk over them.
    let records: Vec<KeyAndValue> =
        (0..1000).map(|at| if at % 2 == 0 { ("a", Some("1")) } else { ("b", Some("2")) }).collect();
    let bytes = build(at(0), &records);
    let breaths = std::cell::Cell::new(0);
    let breathe = async || breaths.set(breaths.get() + 1);
    let mut map = OffsetMap::new(HashKey::new([1, 2]), 1 << 16, 0.9, 1000);
    let want = records.len().div_ceil(RECORDS_PER_BREATH);
    block_on(map_batch(&view(&bytes), &mut map, 0, 1 << 20, &mut Vec::new(), &breathe)).expect("whole").expect("room");
    assert_eq!(breaths.replace(0), want);
    let cleaned =
        block_on(BatchCleaner::new(&map, settings(NOW)).clean(&view(&bytes), false, &breathe)).expect("whole");
    assert!(matches!(cleaned, Cleaned::Rewritten(_)), "two records stay");
    assert_eq!(breaths.get(), 2 * want, "once to look, once to build");
}
