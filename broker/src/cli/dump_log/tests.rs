use super::*;
use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};
use walser_protocol::records::control::{EndTransactionMarker, TransactionResult};

/// What is printed for `bytes` and how many faults are found.
fn dumped(read: impl FnOnce(&mut Dump<'_, Vec<u8>>) -> Result<(), CliError>, records: bool) -> (String, usize) {
    let mut out = Vec::new();
    let mut dump = Dump { out: &mut out, json: false, records, file: "test".to_owned(), damage_count: 0 };
    read(&mut dump).unwrap();
    let damage_count = dump.damage_count;
    (String::from_utf8(out).unwrap(), damage_count)
}

fn batch(base_offset: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions { base_offset, ..Default::default() });
    for value in [b"one".as_slice(), b"two\n"] {
        builder.append(&NewRecord { timestamp: 0, key: None, value: Some(value), headers: &[] }).unwrap();
    }
    builder.build().unwrap()
}

fn marker(base_offset: i64) -> Vec<u8> {
    let marker = EndTransactionMarker {
        producer_id: 9,
        producer_epoch: 1,
        result: TransactionResult::Abort,
        coordinator_epoch: 4,
        timestamp: 0,
        base_offset,
        partition_leader_epoch: 0,
    };
    marker.build().unwrap()
}

#[test]
fn batches_records_and_markers_are_printed() {
    // Rule: one line per batch, records on request, markers always, zeros behind the end are no damage.
    let log = [batch(5), marker(7), vec![0; 100]].concat();
    let (text, damage_count) = dumped(|dump| batches::dump(log.as_slice(), dump), true);
    assert_eq!(damage_count, 0, "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 6, "{text}");
    assert!(lines[0].starts_with("position 0: offsets 5..=6  records 2  bytes "), "{text}");
    assert_eq!(lines[2], "  offset 6 1970-01-01T00:00:00.000Z  key (null)  value two\\n");
    assert!(lines[4].ends_with("abort, coordinator epoch 4"), "{text}");
    assert!(lines[5].ends_with("100 bytes of zeros to the end"), "{text}");
}

#[test]
fn a_wrong_crc_is_counted_and_reading_goes_on() {
    // Rule: what can still be found behind a damaged batch is shown.
    let mut log = [batch(0), batch(2)].concat();
    log[70] ^= 1;
    let (text, damage_count) = dumped(|dump| batches::dump(log.as_slice(), dump), false);
    assert_eq!(damage_count, 1);
    assert_eq!(text.lines().count(), 2);
    assert!(text.lines().next().unwrap().ends_with("crc WRONG"));
}

#[test]
fn torn_and_backward_logs_are_damage() {
    // Rule: a batch cut short, an offset that goes back, and data behind zeros are each named once.
    let torn = [batch(0), batch(2)[..80].to_vec()].concat();
    let backward = [batch(4), batch(0)].concat();
    let behind_zeros = [batch(0), vec![0; 61], batch(2)].concat();
    for (log, case) in [(torn, "torn"), (backward, "backward"), (behind_zeros, "behind zeros")] {
        assert_eq!(dumped(|dump| batches::dump(log.as_slice(), dump), false).1, 1, "{case}");
    }
}

#[test]
fn index_entries_are_absolute() {
    // Rule: offsets are printed as they are in the log, and entries must ascend.
    let entry = |offset: i32, position: i32| [offset.to_be_bytes(), position.to_be_bytes()].concat();
    let good = [entry(10, 4096), entry(20, 8192), entry(0, 0)].concat();
    let (text, damage_count) = dumped(|dump| index::dump_offsets(good.as_slice(), 100, dump), false);
    assert_eq!((text.lines().next(), damage_count), (Some("offset 110  position 4096"), 0));
    assert_eq!(text.lines().count(), 3);
    let bad = [entry(10, 4096), entry(10, 8192), vec![1]].concat();
    assert_eq!(dumped(|dump| index::dump_offsets(bad.as_slice(), 100, dump), false).1, 2);
}

#[test]
fn any_bytes_dump_or_err() {
    // Rule: no file panics, whatever it holds.
    let mut state = 1_u32;
    for len in 0..200 {
        let bytes: Vec<u8> = (0..len)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        dumped(|dump| batches::dump(bytes.as_slice(), dump), true);
        dumped(|dump| index::dump_offsets(bytes.as_slice(), 0, dump), true);
        dumped(|dump| index::dump_times(bytes.as_slice(), 0, dump), true);
        dumped(|dump| index::dump_transactions(bytes.as_slice(), dump), true);
        dumped(|dump| index::dump_producers(bytes.as_slice(), dump), true);
    }
}
