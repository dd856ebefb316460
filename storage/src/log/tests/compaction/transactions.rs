//! Histories of transactions and what passes leave of them. A leader appends no markers, so the segments are made here, as
//! they are found in a directory that something else has written.

use std::collections::BTreeSet;

use walser_protocol::records::batch::BatchHeader;
use walser_protocol::records::control::{ControlRecord, EndTransactionMarker, TransactionResult};

use super::*;
use crate::checkpoint::write_file;
use crate::compaction::clean::control_record;
use crate::segment::{LOG_SUFFIX, file_path};

/// One batch of the history.
#[derive(Debug)]
enum Entry {
    Data {
        /// Of a transactional producer; batches of others count at once.
        transaction: Option<usize>,
        sent: Vec<Sent>,
    },
    Marker,
}

/// From its first batch to its marker.
#[derive(Clone, Copy, Debug)]
struct Transaction {
    first_offset: i64,
    /// Of the marker, and whether it is an abort.
    end: Option<(i64, bool)>,
}

/// What the log was made of.
#[derive(Default)]
struct Transacted {
    /// By base offset, with the bytes.
    entries: BTreeMap<i64, (Entry, Bytes)>,
    transactions: Vec<Transaction>,
    end_offset: i64,
}

const PRODUCERS: usize = 4;

impl Transacted {
    /// A random history; every transaction comes to an end.
    fn random(prng: &mut Prng, batches: usize, keys: u64) -> Self {
        let mut history = Self::default();
        let mut open = [None; PRODUCERS];
        let mut sequences = [0; PRODUCERS];
        for at in 0..batches {
            let producer = prng.index(PRODUCERS + 1);
            let is_closing = at + PRODUCERS * 2 > batches;
            if producer == PRODUCERS {
                history.push_data(prng, keys, None, BatchOptions::default());
            } else if let Some(transaction) = open[producer].filter(|_| is_closing || prng.chance(1, 6)) {
                history.push_marker(producer as i64, transaction, prng.chance(1, 2));
                open[producer] = None;
            } else if !is_closing {
                let begun = Transaction { first_offset: history.end_offset, end: None };
                let transaction = *open[producer].get_or_insert_with(|| {
                    history.transactions.push(begun);
                    history.transactions.len() - 1
                });
                let base_sequence = sequences[producer];
                let options = BatchOptions {
                    producer_id: producer as i64,
                    producer_epoch: 0,
                    base_sequence,
                    transactional: true,
                    ..BatchOptions::default()
                };
                sequences[producer] += history.push_data(prng, keys, Some(transaction), options);
            }
        }
        for (producer, transaction) in open.into_iter().enumerate() {
            if let Some(transaction) = transaction {
                history.push_marker(producer as i64, transaction, prng.chance(1, 2));
            }
        }
        history
    }

    /// The count of its records.
    fn push_data(&mut self, prng: &mut Prng, keys: u64, transaction: Option<usize>, options: BatchOptions) -> i32 {
        let base_offset = self.end_offset;
        let count = 1 + prng.index(3);
        let mut builder = BatchBuilder::new(BatchOptions { base_offset, partition_leader_epoch: 3, ..options });
        let mut sent = Vec::new();
        for offset in (base_offset..).take(count) {
            let key = format!("key {}", prng.below(keys));
            let value = format!("value {offset} {}", "x".repeat(prng.index(60)));
            let (timestamp, headers) = (NOW + offset, &[][..]);
            let record = NewRecord { timestamp, key: Some(key.as_bytes()), value: Some(value.as_bytes()), headers };
            builder.append(&record).expect("a small record");
            sent.push((key, Some(value), timestamp));
        }
        let bytes = builder.build().expect("a small batch").into();
        self.entries.insert(base_offset, (Entry::Data { transaction, sent }, bytes));
        self.end_offset += count as i64;
        count as i32
    }

    fn push_marker(&mut self, producer_id: i64, transaction: usize, is_abort: bool) {
        let base_offset = self.end_offset;
        let marker = EndTransactionMarker {
            producer_id,
            producer_epoch: 0,
            result: if is_abort { TransactionResult::Abort } else { TransactionResult::Commit },
            coordinator_epoch: 1,
            timestamp: NOW + base_offset,
            base_offset,
            partition_leader_epoch: 3,
        };
        self.entries.insert(base_offset, (Entry::Marker, marker.build().expect("a marker").into()));
        self.transactions[transaction].end = Some((base_offset, is_abort));
        self.end_offset += 1;
    }

    /// Segments of about `segment_bytes`.
    async fn write(&self, world: &World, segment_bytes: usize) {
        let mut segments: BTreeMap<i64, Vec<u8>> = BTreeMap::new();
        for (base_offset, (_, bytes)) in &self.entries {
            match segments.last_entry() {
                Some(mut last) if last.get().len() + bytes.len() <= segment_bytes => last.get_mut().extend(bytes),
                _ => drop(segments.insert(*base_offset, bytes.to_vec())),
            }
        }
        for (base_offset, content) in &segments {
            let path = file_path(Path::new(DIR), *base_offset, LOG_SUFFIX);
            write_file(&world.disk, &path, content).await.expect("no fault");
        }
        world.disk.sync_dir(Path::new(DIR)).await.expect("no fault");
    }

    /// The last stable offset when the log ended at `end_offset`.
    fn stable_end_offset(&self, end_offset: i64) -> i64 {
        let is_open = |transaction: &&Transaction| {
            transaction.first_offset < end_offset && transaction.end.is_none_or(|(marker, _)| marker >= end_offset)
        };
        self.transactions.iter().find(is_open).map_or(end_offset, |open| open.first_offset)
    }

    fn is_aborted(&self, transaction: Option<usize>) -> bool {
        let ended = transaction.and_then(|transaction| self.transactions[transaction].end);
        ended.is_some_and(|(_, is_abort)| is_abort)
    }

    /// Every record with its offset, and whether its transaction was aborted.
    fn records(&self) -> impl Iterator<Item = (i64, &Sent, bool)> {
        self.entries.iter().flat_map(|(base_offset, (entry, _))| {
            let (sent, is_aborted) = match entry {
                Entry::Data { transaction, sent } => (&sent[..], self.is_aborted(*transaction)),
                Entry::Marker => (&[][..], false),
            };
            (*base_offset..).zip(sent).map(move |(offset, sent)| (offset, sent, is_aborted))
        })
    }

    /// What a consumer may find in a log that begins at `log_start` and is clean below `clean_to`.
    fn check(&self, found: &[(i64, i64, Bytes)], log_start: i64, clean_to: i64, case: &str) {
        let all: BTreeMap<i64, (&Sent, bool)> =
            self.records().map(|(offset, sent, is_aborted)| (offset, (sent, is_aborted))).collect();
        let mut there = BTreeSet::new();
        for (offset, sent, is_aborted) in read_committed(found) {
            let (want, was_aborted) = all[&offset];
            assert_eq!((&sent, is_aborted), (want, was_aborted), "{case}: offset {offset}");
            assert!(!is_aborted || offset >= clean_to, "{case}: {offset} is of an aborted transaction");
            there.insert(offset);
        }
        let mut last: BTreeMap<&str, i64> = BTreeMap::new();
        for (offset, (key, ..), _) in
            self.records().filter(|(offset, _, is_aborted)| *offset >= log_start && !is_aborted)
        {
            last.insert(key, offset);
            assert!(offset < clean_to || there.contains(&offset), "{case}: {offset} is gone before a pass has met it");
        }
        for (key, offset) in last {
            assert!(there.contains(&offset), "{case}: the last committed record of {key}, at {offset}, is gone");
        }
    }
}

/// Every record of these batches with its offset, and whether an abort marker follows that is its own.
fn read_committed(found: &[(i64, i64, Bytes)]) -> Vec<(i64, Sent, bool)> {
    let mut records = Vec::new();
    let mut open: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for batch in found {
        let view = BatchView::parse_exact(&batch.2).expect("a batch");
        let header: &BatchHeader = view.header();
        if view.is_control() {
            let of_transaction = open.remove(&header.producer_id).unwrap_or_default();
            let record = control_record(&view, &mut Vec::new()).expect("a marker");
            for at in of_transaction.into_iter().filter(|_| matches!(record, Some(ControlRecord::Abort { .. }))) {
                let (_, _, is_aborted): &mut (i64, Sent, bool) = &mut records[at];
                *is_aborted = true;
            }
            continue;
        }
        for (offset, sent) in records_of(std::slice::from_ref(batch)) {
            if view.is_transactional() {
                open.entry(header.producer_id).or_default().push(records.len());
            }
            records.push((offset, sent, false));
        }
    }
    records
}

/// Some pass over what is stable when the log ends at `end_offset`.
async fn pass(log: &SimulatedLog, stable_end_offset: i64, now_ms: i64, map_bytes_max: usize) {
    let plan = log.plan_compaction(now_ms, stable_end_offset).await.expect("no fault").expect("by policy");
    if plan.is_due(&log.config().compaction) {
        let throttle = Throttle::new(f64::INFINITY);
        log.compact(&plan, now_ms, &limits(&throttle, map_bytes_max), &async || ()).await.expect("no fault");
    }
}

#[test]
fn transactions_count_by_their_outcome_whatever_passes_meet_of_them() {
    // Rule: wherever a pass begins and ends within transactions, and wherever the log start is raised to: the last committed
    // record of every key is there, nothing of an aborted transaction is below where the log is clean, and whoever reads what
    // is left takes every record for what it was.
    let mut steps = 0;
    for seed in seeds(60) {
        let world = compacted_world(seed);
        let mut prng = Prng::new(seed ^ 0xab027);
        let batches = 40 + prng.index(120);
        let keys = 5 + prng.below(30);
        let history = Transacted::random(&mut prng, batches, keys);
        world.runtime.block_on(history.write(&world, 500 + prng.index(2500)));
        let (mut log, report) = world.runtime.block_on(world.open(false, None));
        assert!(report.corruption.is_none() && report.cut.is_none(), "seed {seed}: {report:?}");
        assert_eq!(log.log_end_offset(), history.end_offset, "seed {seed}");
        world.runtime.block_on(log.wait_sealed()).expect("no fault");
        let (mut end_offset, mut now_ms) = (0, NOW);
        for _ in 0..12 {
            steps += 1;
            // Appended and replicated so far.
            end_offset += prng.below((history.end_offset - end_offset) as u64 + 1) as i64;
            let stable_end_offset = history.stable_end_offset(end_offset);
            match prng.below(8) {
                0 => log = reopen(&world, log),
                1 => {
                    let start = log.log_start_offset();
                    let offset = start + prng.below((stable_end_offset - start).max(0) as u64 / 2 + 1) as i64;
                    log.raise_log_start(offset, history.end_offset).expect("within the log");
                    let removed = log.remove_old_segments(now_ms, history.end_offset);
                    world.runtime.block_on(removed).expect("no fault");
                }
                2 => now_ms += DAY,
                _ => {
                    let map_bytes_max = if prng.chance(1, 2) { 24 * (6 + prng.index(20)) } else { 1 << 20 };
                    world.runtime.block_on(pass(&log, stable_end_offset, now_ms, map_bytes_max));
                }
            }
            let found = world.runtime.block_on(read_all(&log, log.log_start_offset()));
            let case = format!("seed {seed}, after {steps} steps of all seeds");
            history.check(&found, log.log_start_offset(), log.first_dirty_offset(), &case);
        }
    }
}
