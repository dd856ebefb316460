use std::collections::BTreeMap;

use walser_protocol::records::compression::{Compression, CompressionType};
use walser_protocol::records::record::{Records, records_slice};

use super::*;
use crate::compaction::throttle::Throttle;
use crate::compaction::{CompactionConfig, HashKey};
use crate::log::retention::DELETED_SUFFIX;
use crate::runtime::Instant;

mod crash;
mod replay;
mod transactions;

const DAY: i64 = 24 * 3600 * 1000;

/// A record as it was sent: key, value, timestamp.
type Sent = (String, Option<String>, i64);

/// What was appended, offset by offset.
#[derive(Clone, Default)]
struct Written {
    records: Vec<Sent>,
}

impl Written {
    fn end_offset(&self) -> i64 {
        self.records.len() as i64
    }

    /// Offset of the last record of each key below `end_offset`.
    fn last(&self, end_offset: i64) -> BTreeMap<&str, i64> {
        (0..end_offset).map(|offset| (self.records[offset as usize].0.as_str(), offset)).collect()
    }

    /// What a fully compacted log has: the last record of every key below `clean_to`, and everything behind.
    fn compacted(&self, clean_to: i64) -> Vec<(i64, Sent)> {
        let last = self.last(clean_to);
        let stays = |offset: &i64| *offset >= clean_to || last[self.records[*offset as usize].0.as_str()] == *offset;
        (0..self.end_offset()).filter(stays).map(|offset| (offset, self.records[offset as usize].clone())).collect()
    }

    /// What was found is what a fully compacted log has.
    fn check_compacted(&self, found: &[(i64, Sent)], clean_to: i64, case: &str) {
        let want = self.compacted(clean_to);
        let differs = found.iter().zip(&want).position(|(found, want)| found != want);
        let at = differs.unwrap_or(found.len().min(want.len()));
        assert!(
            at == found.len() && at == want.len(),
            "{case}: clean to {clean_to}, {} records, {} wanted, number {at} is {:?}, wanted {:?}",
            found.len(),
            want.len(),
            found.get(at),
            want.get(at),
        );
    }

    /// However far it was cleaned: nothing else is there than was sent, and the last record of every key is.
    fn check_sent(&self, found: &[(i64, Sent)], case: &str) {
        let mut previous = -1;
        for (offset, sent) in found {
            assert!(*offset > previous, "{case}: offsets rise");
            previous = *offset;
            assert_eq!(sent, &self.records[*offset as usize], "{case}: offset {offset}");
        }
        for (key, offset) in self.last(self.end_offset()) {
            let is_there = found.binary_search_by_key(&offset, |(offset, _)| *offset).is_ok();
            assert!(is_there, "{case}: the last record of {key}, at {offset}");
        }
    }

    /// Nothing is missing from `from_offset` on.
    fn check_untouched(&self, found: &[(i64, Sent)], from_offset: i64, case: &str) {
        let there = found.iter().map(|(offset, _)| *offset).filter(|offset| *offset >= from_offset);
        assert!(there.eq(from_offset..self.end_offset()), "{case}: something is missing from {from_offset} on");
    }

    /// No key is there twice below `clean_to`.
    fn check_clean(&self, found: &[(i64, Sent)], clean_to: i64, case: &str) {
        let mut seen = BTreeMap::new();
        for (offset, (key, ..)) in found.iter().filter(|(offset, _)| *offset < clean_to) {
            let older = seen.insert(key, offset);
            assert!(older.is_none(), "{case}: {key} at {older:?} and {offset}");
        }
    }
}

fn compacted_world(seed: u64) -> World {
    let mut world = World::new(seed);
    let compaction = CompactionConfig { by_policy: true, min_dirty_ratio: 0.0, ..CompactionConfig::default() };
    world.config = LogConfig { compaction, segment_bytes: 3000, index_interval_bytes: 200, ..world.config };
    world
}

fn keyed_batch(sent: &[Sent], codec: CompressionType, base_sequence: Option<i32>) -> ValidBatch {
    let producer = match base_sequence {
        Some(base_sequence) => {
            BatchOptions { producer_id: 7, producer_epoch: 0, base_sequence, ..BatchOptions::default() }
        }
        None => BatchOptions::default(),
    };
    let mut builder = BatchBuilder::new(BatchOptions { compression: Compression::new(codec), ..producer });
    for (key, value, timestamp) in sent {
        let (key, value) = (Some(key.as_bytes()), value.as_deref().map(str::as_bytes));
        builder.append(&NewRecord { timestamp: *timestamp, key, value, headers: &[] }).expect("a small record");
    }
    ValidBatch::from_trusted(BytesMut::from(&builder.build().expect("a small batch")[..])).expect("a batch")
}

fn send(world: &World, log: &SimulatedLog, written: &mut Written, sent: &[Sent], codec: CompressionType) {
    let append = Append { batch: keyed_batch(sent, codec, None), leader_epoch: 3, now_ms: NOW };
    let appended = log.append_as_leader(append).expect("no fault");
    assert_eq!(appended.base_offset, written.end_offset());
    written.records.extend_from_slice(sent);
    world.runtime.block_on(log.durable(appended.end_offset())).expect("no fault");
}

/// Batches of up to six records with keys out of `keys`; a tenth are tombstones.
fn send_random(
    world: &World,
    log: &SimulatedLog,
    written: &mut Written,
    prng: &mut Prng,
    (batches, keys): (usize, u64),
) {
    for _ in 0..batches {
        let sent: Vec<Sent> = (0..=prng.below(5) as i64)
            .map(|at| {
                let offset = written.end_offset() + at;
                let value = (!prng.chance(1, 10)).then(|| format!("value {offset} {}", "x".repeat(prng.index(60))));
                (format!("key {}", prng.below(keys)), value, NOW + offset)
            })
            .collect();
        let codec = CompressionType::ALL[prng.index(5)];
        send(world, log, written, &sent, codec);
    }
}

fn limits(throttle: &Throttle, map_bytes_max: usize) -> PassLimits<'_> {
    PassLimits {
        hash_key: HashKey::new([5, 6]),
        map_bytes_max,
        map_load_max: 0.9,
        read_bytes: 16 << 10,
        decompressed_bytes_max: 1 << 20,
        throttle,
    }
}

/// One pass, if one is due.
async fn compact_once(
    log: &SimulatedLog,
    now_ms: i64,
    map_bytes_max: usize,
) -> Result<Option<Compacted>, CompactError> {
    let plan = log.plan_compaction(now_ms, log.committed_end_offset()).await?.expect("it is compacted by policy");
    if !plan.is_due(&log.config().compaction) {
        return Ok(None);
    }
    let throttle = Throttle::new(f64::INFINITY);
    let runtime = log.inner.runtime.clone();
    log.compact(&plan, now_ms, &limits(&throttle, map_bytes_max), &async || runtime.turn().await).await.map(Some)
}

fn compact_all(world: &World, log: &SimulatedLog, now_ms: i64, map_bytes_max: usize) -> usize {
    // Only what is finished is compacted.
    world.runtime.block_on(log.flush()).expect("no fault");
    world.runtime.block_on(log.wait_sealed()).expect("no fault");
    let mut passes = 0;
    while world.runtime.block_on(compact_once(log, now_ms, map_bytes_max)).expect("no fault").is_some() {
        passes += 1;
        assert!(passes < 1000, "every pass gets on");
    }
    passes
}

fn records_of(batches: &[(i64, i64, Bytes)]) -> Vec<(i64, Sent)> {
    let mut found = Vec::new();
    for (_, _, bytes) in batches {
        let batch = BatchView::parse_exact(bytes).expect("a batch");
        batch.verify_crc().expect("whole");
        let mut scratch = Vec::new();
        let records = records_slice(&batch, &mut scratch, 1 << 20).expect("readable");
        for record in Records::new(batch.header(), records) {
            let record = record.expect("whole");
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
            let key = record.key.map(text).expect("a key");
            found.push((record.offset, (key, record.value.map(text), record.timestamp)));
        }
    }
    found
}

fn read_records(world: &World, log: &SimulatedLog) -> Vec<(i64, Sent)> {
    records_of(&world.runtime.block_on(read_all(log, log.log_start_offset())))
}

fn names(world: &World, ending: &str) -> Vec<String> {
    let entries = world.runtime.block_on(world.disk.list_dir(Path::new(DIR))).expect("no fault");
    entries.into_iter().map(|entry| entry.name).filter(|name| name.ends_with(ending)).collect()
}

/// A clean stop and a start.
fn reopen(world: &World, log: SimulatedLog) -> SimulatedLog {
    let (first_dirty_offset, log_start_offset) = (Some(log.first_dirty_offset()), Some(log.log_start_offset()));
    let closed = world.runtime.block_on(log.close()).expect("no fault");
    drop(log);
    let opening = OpenLog { first_dirty_offset, log_start_offset, ..world.opening(true, Some(closed.log_end_offset)) };
    let (log, report) = world.runtime.block_on(Log::open(opening)).expect("no fault");
    assert_eq!(report.scanned_bytes, 0, "a clean log is trusted");
    log
}

#[test]
fn the_last_record_of_every_key_is_left() {
    // Rule: below the active segment each key has its last record, at its offset; memory shows no more than the disk does,
    // small segments have become one, and a restart finds the same.
    for seed in seeds(20) {
        let world = compacted_world(seed);
        let mut prng = Prng::new(seed ^ 0x5eed);
        let (log, _) = world.runtime.block_on(world.open(false, None));
        let mut written = Written::default();
        send_random(&world, &log, &mut written, &mut prng, (250, 20));
        let segments = log.segment_count();
        assert!(segments > 4, "seed {seed}: {segments} segments");
        let before = log.size_bytes();
        assert_eq!(compact_all(&world, &log, NOW, 1 << 20), 1, "seed {seed}: one pass does it");
        let clean_to = log.first_dirty_offset();
        written.check_compacted(&read_records(&world, &log), clean_to, &format!("seed {seed}"));
        assert!(log.size_bytes() < before, "seed {seed}");
        assert_eq!((names(&world, ".cleaned"), names(&world, ".swap")), (vec![], vec![]), "seed {seed}");
        assert_eq!(log.log_end_offset(), written.end_offset(), "seed {seed}");
        let log = reopen(&world, log);
        assert_eq!(log.first_dirty_offset(), clean_to, "seed {seed}");
        written.check_compacted(&read_records(&world, &log), clean_to, &format!("seed {seed}, after a restart"));
        send_random(&world, &log, &mut written, &mut prng, (200, 20));
        let segments = log.segment_count();
        compact_all(&world, &log, NOW, 1 << 20);
        assert!(log.first_dirty_offset() > clean_to, "seed {seed}: it is compacted again");
        assert!(log.segment_count() < segments, "seed {seed}: small segments have become one");
        written.check_compacted(&read_records(&world, &log), log.first_dirty_offset(), &format!("seed {seed}, again"));
    }
}

#[test]
fn reads_and_lookups_cross_the_gaps() {
    // Rule: a read of an offset that is gone begins with the next batch there is, and a lookup by time finds the first
    // record there is at or after it.
    let world = compacted_world(3);
    let mut prng = Prng::new(11);
    let (log, _) = world.runtime.block_on(world.open(false, None));
    let mut written = Written::default();
    send_random(&world, &log, &mut written, &mut prng, (200, 15));
    compact_all(&world, &log, NOW, 1 << 20);
    let left = written.compacted(log.first_dirty_offset());
    for log in [log.clone(), reopen(&world, log)] {
        for offset in 0..written.end_offset() {
            let request = ReadRequest { offset, upper_bound: i64::MAX, max_bytes: 1, min_one_batch: true };
            let read = world.runtime.block_on(log.read(request)).expect("readable");
            assert!(read.next_offset > offset, "a read at {offset} gets on");
            let found = world.runtime.block_on(log.offset_for_timestamp(NOW + offset, i64::MAX)).expect("readable");
            let want = left.iter().find(|(at, _)| *at >= offset).map(|(at, _)| *at);
            assert_eq!(found.map(|found| found.offset), want, "by the time of {offset}");
        }
        let first = world.runtime.block_on(read_all(&log, 0)).first().map(|(base, ..)| *base);
        assert_eq!(log.log_start_offset(), 0, "the log begins where it began, though its first batch is {first:?}");
        let largest = world.runtime.block_on(log.max_timestamp()).expect("readable").expect("there is one");
        assert_eq!(largest.offset, written.end_offset() - 1);
    }
}

#[test]
fn a_small_map_takes_several_passes() {
    // Rule: memory for the keys bounds a pass, not what is left in the end.
    for seed in seeds(6) {
        let world = compacted_world(seed);
        let mut prng = Prng::new(seed);
        let (log, _) = world.runtime.block_on(world.open(false, None));
        let mut written = Written::default();
        send_random(&world, &log, &mut written, &mut prng, (120, 60));
        let passes = compact_all(&world, &log, NOW, 24 * 30);
        assert!(passes > 3, "seed {seed}: {passes} passes");
        written.check_compacted(&read_records(&world, &log), log.first_dirty_offset(), &format!("seed {seed}"));
        let active = *log.inner.state.borrow().segments.last_key_value().expect("one").0;
        assert_eq!(log.first_dirty_offset(), active, "seed {seed}: all but the active segment is clean");
    }
}

#[test]
fn tombstones_go_when_their_time_has_come() {
    // Rule: a tombstone stays for `delete.retention.ms` from the pass that met it, then the next pass takes it.
    let world = compacted_world(9);
    let (log, _) = world.runtime.block_on(world.open(false, None));
    let mut written = Written::default();
    let fill = |written: &mut Written, key: &str, count: i64| {
        for _ in 0..count {
            let timestamp = NOW + written.end_offset();
            send(&world, &log, written, &[(key.into(), Some("x".repeat(300)), timestamp)], CompressionType::None);
        }
    };
    fill(&mut written, "gone", 3);
    send(&world, &log, &mut written, &[("gone".into(), None, NOW + 3)], CompressionType::None);
    fill(&mut written, "kept", 12);
    compact_all(&world, &log, NOW, 1 << 20);
    let has_tombstone = || read_records(&world, &log).iter().any(|(_, (key, ..))| key == "gone");
    assert!(has_tombstone());
    let path = Path::new(DIR).join("00000000000000000000.log");
    let bytes = world.disk.peek(&path).expect("it is there");
    let horizon = Batches::new(&bytes).map(|batch| batch.expect("whole")).find_map(|batch| batch.delete_horizon_ms());
    assert_eq!(horizon, Some(NOW + DAY));
    fill(&mut written, "kept", 12);
    compact_all(&world, &log, NOW + DAY - 1, 1 << 20);
    assert!(has_tombstone());
    fill(&mut written, "kept", 12);
    compact_all(&world, &log, NOW + DAY, 1 << 20);
    assert!(!has_tombstone());
}

#[test]
fn what_did_not_change_is_not_written_again() {
    // Rule: a pass over a segment of which everything stays leaves its file alone.
    let mut world = compacted_world(2);
    world.config.segment_bytes = 1100;
    let (log, _) = world.runtime.block_on(world.open(false, None));
    let mut written = Written::default();
    for at in 0..30 {
        send(&world, &log, &mut written, &[(format!("key {at}"), Some("x".repeat(400)), NOW)], CompressionType::None);
    }
    world.runtime.block_on(log.wait_sealed()).expect("no fault");
    let before = world.disk.counts().bytes_written;
    assert_eq!(compact_all(&world, &log, NOW, 1 << 20), 1);
    assert_eq!(world.disk.counts().bytes_written, before);
    assert_eq!(names(&world, DELETED_SUFFIX), [""; 0]);
    // One key of a segment in the middle is written again: that segment changes, the others do not.
    let names_before = names(&world, ".log");
    send(&world, &log, &mut written, &[("key 12".into(), Some("x".repeat(400)), NOW)], CompressionType::None);
    for at in 0..4 {
        send(&world, &log, &mut written, &[(format!("new {at}"), Some("x".repeat(400)), NOW)], CompressionType::None);
    }
    compact_all(&world, &log, NOW, 1 << 20);
    assert_eq!(names(&world, ".log.deleted").len(), 1);
    assert!(names_before.iter().all(|name| names(&world, ".log").contains(name)));
    written.check_compacted(&read_records(&world, &log), log.first_dirty_offset(), "");
}

#[test]
fn producers_are_known_by_what_is_left() {
    // Rule: after a crash without a snapshot the state of a producer follows from the batches compaction has kept.
    for seed in seeds(10) {
        let mut world = compacted_world(seed);
        let (log, _) = world.runtime.block_on(world.open(false, None));
        let same = |at: i64| vec![("key".to_owned(), Some(format!("{at} {}", "x".repeat(300))), NOW + at)];
        let append = |log: &SimulatedLog, sequence: i64| {
            let batch = keyed_batch(&same(sequence), CompressionType::None, Some(sequence as i32));
            log.append_as_leader(Append { batch, leader_epoch: 3, now_ms: NOW })
        };
        for sequence in 0..5 {
            append(&log, sequence).expect("in sequence");
        }
        let mut written = Written { records: (0..5).flat_map(same).collect() };
        for at in 5..40 {
            send(&world, &log, &mut written, &same(at), CompressionType::None);
        }
        compact_all(&world, &log, NOW, 1 << 20);
        let recovery_point = log.recovery_point();
        let state = log.producer(7).expect("it is known");
        world.runtime.block_on(log.flush()).expect("no fault");
        world.runtime.crash();
        drop(log);
        world.disk = world.disk.crash(&world.runtime);
        for name in names(&world, ".snapshot") {
            world.runtime.block_on(world.disk.remove_file(&Path::new(DIR).join(name))).expect("no fault");
        }
        let (log, report) = world.runtime.block_on(world.open(false, Some(recovery_point)));
        assert!(report.corruption.is_none() && report.cut.is_none(), "seed {seed}: {report:?}");
        let found = log.producer(7).expect("its last batch was kept, empty");
        assert_eq!((found.last_sequence(), found.last_offset()), (state.last_sequence(), state.last_offset()));
        assert!(append(&log, 4).expect("known").is_duplicate, "seed {seed}");
        assert!(matches!(append(&log, 6), Err(AppendError::Producer(_))), "seed {seed}");
        assert!(!append(&log, 5).expect("it follows").is_duplicate, "seed {seed}");
    }
}

#[test]
fn readers_meet_no_error_while_segments_are_exchanged() {
    // Rule: whatever is read while a pass runs is what was sent, and nothing that must be there is missed.
    for seed in seeds(5) {
        let world = compacted_world(seed);
        let mut prng = Prng::new(seed ^ 0xfeed);
        let (log, _) = world.runtime.block_on(world.open(false, None));
        let mut written = Written::default();
        send_random(&world, &log, &mut written, &mut prng, (120, 12));
        // Nothing in memory: indexes and files are opened while they are exchanged.
        let log = reopen(&world, log);
        let is_done = Rc::new(Cell::new(false));
        let written = Rc::new(written);
        for reader in 0..4 {
            let (log, is_done, written) = (log.clone(), Rc::clone(&is_done), Rc::clone(&written));
            let runtime = world.runtime.clone();
            world.runtime.spawn(async move {
                while !is_done.get() {
                    if reader == 3 {
                        let found = log.offset_for_timestamp(NOW + 40, i64::MAX).await.expect("no fault");
                        let last = written.last(written.end_offset());
                        let latest = last.values().copied().filter(|offset| *offset >= 40).min();
                        assert!(
                            found.map(|found| found.offset) <= latest,
                            "{found:?}, {latest:?} is there in any case"
                        );
                    } else {
                        let records = records_of(&read_all(&log, 0).await);
                        written.check_sent(&records, "while a pass runs");
                    }
                    runtime.turn().await;
                }
            });
        }
        compact_all(&world, &log, NOW, 24 * 40);
        is_done.set(true);
        world.runtime.block_on(log.inner.runtime.sleep(std::time::Duration::from_secs(1)));
        written.check_compacted(&read_records(&world, &log), log.first_dirty_offset(), &format!("seed {seed}"));
    }
}

#[test]
fn closing_ends_a_pass_and_nothing_is_lost() {
    // Rule: a stop waits for no more than what is in flight, however slow the rate is, and the next start goes on.
    let world = compacted_world(4);
    let mut prng = Prng::new(4);
    let (log, _) = world.runtime.block_on(world.open(false, None));
    let mut written = Written::default();
    send_random(&world, &log, &mut written, &mut prng, (100, 10));
    let passing = log.clone();
    let outcome = Rc::new(RefCell::new(None));
    let told = Rc::clone(&outcome);
    world.runtime.spawn(async move {
        let plan = passing.plan_compaction(NOW, i64::MAX).await.expect("no fault").expect("by policy");
        let throttle = Throttle::new(1.0);
        let compacted = passing.compact(&plan, NOW, &limits(&throttle, 1 << 20), &async || ()).await;
        *told.borrow_mut() = Some(compacted);
    });
    world.runtime.run_until(Instant::from_start(std::time::Duration::from_secs(20))).expect("it runs");
    assert!(outcome.borrow().is_none(), "a byte a second is slow");
    let before = world.runtime.now();
    let log = reopen(&world, log);
    assert!(world.runtime.now().saturating_since(before) < std::time::Duration::from_secs(1));
    assert!(matches!(outcome.take(), Some(Err(CompactError::Closing))));
    assert_eq!(names(&world, ".cleaned"), [""; 0]);
    compact_all(&world, &log, NOW, 1 << 20);
    written.check_compacted(&read_records(&world, &log), log.first_dirty_offset(), "");
}

#[test]
fn compaction_and_retention_go_together() {
    // Rule: with `compact,delete` old segments go as a whole, and what is left is compacted.
    let world = compacted_world(6);
    let mut prng = Prng::new(6);
    let (log, _) = world.runtime.block_on(world.open(false, None));
    let mut written = Written::default();
    send_random(&world, &log, &mut written, &mut prng, (100, 200));
    compact_all(&world, &log, NOW, 1 << 20);
    let retention = Retention { by_policy: true, ms: -1, bytes: 5000, ..Retention::default() };
    log.set_config(LogConfig { retention, ..log.config() });
    let removed = world.runtime.block_on(log.remove_old_segments(NOW, log.committed_end_offset())).expect("no fault");
    let start = log.log_start_offset();
    assert!(removed > 0 && start > 0);
    send_random(&world, &log, &mut written, &mut prng, (60, 200));
    compact_all(&world, &log, NOW, 1 << 20);
    let want: Vec<_> =
        written.compacted(log.first_dirty_offset()).into_iter().filter(|(offset, _)| *offset >= start).collect();
    assert_eq!(read_records(&world, &log), want);
    assert_eq!(log.log_start_offset(), start);
}

#[test]
fn a_segment_is_finished_before_it_is_compacted() {
    // Rule: who finishes a segment and who compacts it are not at its files together, also where the recovery point of a
    // clean stop lies behind the segment already.
    let world = compacted_world(1);
    let runtime = world.runtime.clone();
    let mut written = Written::default();
    let sent = |at: usize, bytes: usize| [(format!("key-{}", at % 3), Some("v".repeat(bytes)), NOW)];
    let (log, _) = runtime.block_on(world.open(false, None));
    for at in 0..10 {
        send(&world, &log, &mut written, &sent(at, 700), CompressionType::None);
    }
    let closed = runtime.block_on(log.close()).expect("no fault");
    drop(log);
    let (log, _) = runtime.block_on(world.open(true, Some(closed.log_end_offset)));
    let unfinished = log.inner.state.borrow().active().base_offset();
    let too_large = keyed_batch(&sent(0, 2800), CompressionType::None, None);
    log.append_as_leader(Append { batch: too_large, leader_epoch: 3, now_ms: NOW }).expect("no fault");
    assert!(log.inner.state.borrow().active().base_offset() > unfinished, "it does not fit");
    let plan = runtime.block_on(log.plan_compaction(NOW + DAY, log.log_end_offset())).expect("no fault");
    let end_offset = plan.map_or(0, |plan| plan.end_offset);
    assert!(end_offset > 0 && end_offset <= unfinished, "compacts to {end_offset}, {unfinished} is not finished");
}

#[test]
fn the_segment_of_a_note_stays_though_the_note_was_not_used() {
    // Rule: a note that is kept may be used by a later start, also where this one had better to go by. Until another note has
    // taken its place its segment is not replaced.
    use crate::log::known_end::KnownEnd;

    let world = compacted_world(31);
    let runtime = world.runtime.clone();
    let (log, _) = runtime.block_on(world.open(false, None));
    let (mut written, mut prng) = (Written::default(), Prng::new(31));
    send_random(&world, &log, &mut written, &mut prng, (2, 3));
    runtime.block_on(log.flush()).expect("no fault");
    let note = runtime.block_on(log.next_note()).expect("no fault").expect("all is flushed");
    let known = KnownEnd::decode(&note).expect("a note");
    send_random(&world, &log, &mut written, &mut prng, (150, 300));
    let closed = runtime.block_on(log.close()).expect("no fault");
    drop(log);
    let opening =
        OpenLog { known_end: Some(known.clone().into()), ..world.opening(false, Some(closed.log_end_offset)) };
    let (log, report) = runtime.block_on(Log::open(opening)).expect("no fault");
    assert!(log.segment_count() > 3 && report.scanned_bytes > 0);
    let planned = |log: &SimulatedLog| {
        let plan = runtime.block_on(log.plan_compaction(NOW, log.log_end_offset())).expect("no fault");
        plan.map(|plan| plan.end_offset)
    };
    assert_eq!(planned(&log), Some(known.base_offset));
    runtime.block_on(log.next_note()).expect("no fault").expect("all is flushed");
    assert_eq!(planned(&log), Some(known.base_offset), "the new note is not kept yet");
    log.notes_are_kept();
    assert!(planned(&log) > Some(known.base_offset));
}
