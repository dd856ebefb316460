//! What one log must have: a list of what was appended and what was promised of it, without files, tasks or time.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use walser_protocol::records::batch::{BatchView, Batches};
use walser_protocol::records::record::{Records, records_slice};

use crate::producer_state::{BATCHES_REMEMBERED, ProducerEntry};

/// Where a batch has the one field that no checksum covers and nothing else tells.
const EPOCH_AT: std::ops::Range<usize> = 12..16;

/// A record as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub timestamp: i64,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
}

/// Who sent a batch, and how it was numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbered {
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
}

/// An appended batch.
#[derive(Clone, Debug)]
pub struct Batch {
    pub base_offset: i64,
    pub last_offset: i64,
    /// As stored, until compaction changes it.
    pub bytes: Bytes,
    pub leader_epoch: i32,
    pub numbered: Option<Numbered>,
    pub records: Vec<Sent>,
}

/// One of the last batches of a producer: first and last sequence, first and last offset.
pub type Known = (i32, i32, i64, i64);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Producer {
    pub epoch: i16,
    pub batches: VecDeque<Known>,
}

/// What passes of compaction may have done.
#[derive(Clone, Debug, Default)]
struct Compaction {
    /// Exclusive: up to here a pass has begun.
    begun_to: i64,
    /// Up to here a pass has ended well, from where the log began.
    clean: std::ops::Range<i64>,
    /// When the first pass began that met a tombstone, by offset.
    met_ms: BTreeMap<i64, i64>,
    last_pass_ms: i64,
}

#[derive(Clone, Debug)]
pub struct Expected {
    batches: Vec<Batch>,
    end_offset: i64,
    is_compacted: bool,
    delete_retention_ms: i64,
    compaction: Compaction,
    /// The farthest start the log ever had: before it, epochs may be forgotten.
    epochs_from: i64,
    offsets_by_key: BTreeMap<Bytes, Vec<i64>>,
    producers: BTreeMap<i64, Producer>,
    /// What was known of producers when everything was lost, and up to where that was.
    producers_before: BTreeMap<i64, Producer>,
    lost_to: i64,
    /// Exclusive: promised to survive a power cut.
    pub flushed: i64,
    /// Exclusive: promised to survive the process.
    pub written: i64,
    /// Where the log was seen to begin.
    pub log_start: i64,
    /// The log may begin here at most.
    pub start_allowed: i64,
    /// Nothing in a batch tells that its leader epoch has changed on disk.
    pub ignores_epochs: bool,
}

impl Expected {
    pub fn new(is_compacted: bool, delete_retention_ms: i64) -> Self {
        Self {
            batches: Vec::new(),
            end_offset: 0,
            is_compacted,
            delete_retention_ms,
            compaction: Compaction::default(),
            epochs_from: 0,
            offsets_by_key: BTreeMap::new(),
            producers: BTreeMap::new(),
            producers_before: BTreeMap::new(),
            lost_to: 0,
            flushed: 0,
            written: 0,
            log_start: 0,
            start_allowed: 0,
            ignores_epochs: false,
        }
    }

    pub fn end_offset(&self) -> i64 {
        self.end_offset
    }

    /// The log begins here now; a crash may take that back.
    pub fn note_start(&mut self, log_start: i64) {
        self.log_start = log_start;
        self.epochs_from = self.epochs_from.max(log_start);
    }

    /// From here on the log knows the epoch of every batch.
    pub fn epochs_from(&self) -> i64 {
        self.epochs_from
    }

    pub fn is_compacted(&self) -> bool {
        self.is_compacted
    }

    pub fn push(&mut self, batch: Batch) {
        assert_eq!(batch.base_offset, self.end_offset, "offsets follow each other");
        assert_eq!(batch.last_offset - batch.base_offset + 1, batch.records.len() as i64, "one offset for each record");
        self.end_offset = batch.last_offset + 1;
        for (offset, sent) in (batch.base_offset..).zip(&batch.records) {
            if let Some(key) = sent.key.as_ref().filter(|_| self.is_compacted) {
                self.offsets_by_key.entry(key.clone()).or_default().push(offset);
            }
        }
        note_producer(&mut self.producers, &batch);
        self.batches.push(batch);
    }

    /// The log ends here after a crash: what lies behind was not promised, and is forgotten.
    /// A log of a lower level may have lost even what lies in front of its start.
    pub fn cut(&mut self, end_offset: i64, log_start: i64, context: &str) {
        let keep = self.batches.partition_point(|batch| batch.last_offset < end_offset);
        let whole = keep.checked_sub(1).map_or(0, |last| self.batches[last].last_offset + 1);
        let is_end = whole == end_offset || log_start == end_offset;
        assert!(is_end, "{context}: a log ends between batches, at {whole}, and not at {end_offset}");
        if keep < self.batches.len() {
            self.batches.truncate(keep);
            for offsets in self.offsets_by_key.values_mut() {
                offsets.truncate(offsets.partition_point(|offset| *offset < end_offset));
            }
            self.producers = self.producers_before.clone();
            for batch in self.batches.iter().filter(|batch| batch.base_offset >= self.lost_to) {
                note_producer(&mut self.producers, batch);
            }
        }
        self.end_offset = end_offset;
    }

    /// Batches from the one that holds `offset`.
    pub fn from(&self, offset: i64) -> &[Batch] {
        &self.batches[self.batches.partition_point(|batch| batch.last_offset < offset)..]
    }

    fn record(&self, offset: i64) -> Option<&Sent> {
        let batch = self.from(offset).first().filter(|batch| batch.base_offset <= offset)?;
        batch.records.get((offset - batch.base_offset) as usize)
    }

    // ---- compaction

    /// A pass over everything below `end_offset` begins: from now on it may have happened.
    pub fn begin_pass(&mut self, end_offset: i64, now_ms: i64) {
        assert!(end_offset <= self.flushed, "only what is durable is compacted");
        self.compaction.begun_to = self.compaction.begun_to.max(end_offset);
        self.compaction.last_pass_ms = self.compaction.last_pass_ms.max(now_ms);
        for batch in &self.batches {
            for (offset, sent) in (batch.base_offset..end_offset).zip(&batch.records) {
                if sent.value.is_none() {
                    self.compaction.met_ms.entry(offset).or_insert(now_ms);
                }
            }
        }
    }

    /// The log began at `log_start` when the pass began.
    pub fn end_pass(&mut self, log_start: i64, end_offset: i64) {
        let clean = &mut self.compaction.clean;
        *clean = clean.start.max(log_start)..clean.end.max(end_offset);
    }

    /// Whether compaction may have taken this record: a later one of its key has been compacted with it, or it is a
    /// tombstone whose time has come.
    fn may_be_gone(&self, offset: i64, sent: &Sent) -> bool {
        let Compaction { begun_to, met_ms, last_pass_ms, .. } = &self.compaction;
        if offset < self.lost_to {
            return true;
        }
        if !self.is_compacted || offset >= *begun_to {
            return false;
        }
        let Some(key) = &sent.key else { return true };
        let offsets = self.offsets_by_key.get(key).map_or(&[][..], Vec::as_slice);
        let has_later = offsets[..offsets.partition_point(|other| other < begun_to)].last() > Some(&offset);
        let is_due = || met_ms.get(&offset).is_some_and(|met| met + self.delete_retention_ms <= *last_pass_ms);
        has_later || (sent.value.is_none() && is_due())
    }

    // ---- what was found

    /// What a read from `offset` has given is what was appended, nothing is missing up to `next_offset`.
    pub fn check_found(&self, slices: &[Bytes], offset: i64, next_offset: i64, context: &str) {
        if self.is_compacted || offset < self.lost_to {
            let records = records_of(slices, context);
            return self.check_records(&records, offset, next_offset, context);
        }
        let mut found = slices.iter().flat_map(|slice| slice.iter());
        for batch in self.from(offset).iter().take_while(|batch| batch.last_offset < next_offset) {
            let differs = batch.bytes.iter().position(|byte| found.next() != Some(byte));
            let is_excused = |at: usize| self.ignores_epochs && EPOCH_AT.contains(&at);
            let is_same = differs.is_none_or(is_excused);
            assert!(is_same, "{context}: byte {differs:?} is not what was appended at {}", batch.base_offset);
            if let Some(at) = differs {
                let rest = batch.bytes.len() - at - 1;
                assert!(found.by_ref().take(rest).count() == rest, "{context}: short at {}", batch.base_offset);
            }
        }
        assert!(found.next().is_none(), "{context}: more was read than was appended");
        let is_end =
            next_offset <= offset || self.from(next_offset).first().is_none_or(|b| b.base_offset == next_offset);
        assert!(is_end, "{context}: {next_offset} is no end of a batch");
    }

    fn check_records(&self, found: &[(i64, Sent)], offset: i64, next_offset: i64, context: &str) {
        let mut next = offset;
        for (at, sent) in found {
            assert_eq!(self.record(*at), Some(sent), "{context}: offset {at}");
            if *at < offset {
                continue;
            }
            self.check_gone(next, *at, context);
            next = at + 1;
        }
        assert!(next <= next_offset, "{context}: read to {next}, not {next_offset}");
        self.check_gone(next, next_offset, context);
    }

    /// Everything in this range may be gone.
    fn check_gone(&self, from: i64, end_offset: i64, context: &str) {
        for batch in self.from(from).iter().take_while(|batch| batch.base_offset < end_offset) {
            for (offset, sent) in (batch.base_offset..end_offset).zip(&batch.records) {
                let is_excused = offset < from || self.may_be_gone(offset, sent);
                assert!(is_excused, "{context}: offset {offset} is gone: {sent:?}, {:?}", self.compaction);
            }
        }
    }

    /// No key is there twice in what a pass has cleaned. `slices`: the whole log.
    pub fn check_clean(&self, slices: &[Bytes], context: &str) {
        let mut seen = BTreeMap::new();
        for (offset, sent) in records_of(slices, context) {
            if let Some(key) = sent.key.filter(|_| self.compaction.clean.contains(&offset)) {
                let older = seen.insert(key.clone(), offset);
                assert_eq!(older, None, "{context}: {key:?} is there twice, again at {offset}");
            }
        }
    }

    /// The first record from `log_start` on that is not older than `timestamp`, below `upper_bound`.
    pub fn check_lookup(&self, found: Option<(i64, i64)>, timestamp: i64, bounds: std::ops::Range<i64>, context: &str) {
        for batch in self.from(bounds.start) {
            for (offset, sent) in (batch.base_offset..).zip(&batch.records) {
                if offset < bounds.start || sent.timestamp < timestamp {
                    continue;
                }
                if found == Some((sent.timestamp, offset)) {
                    assert!(offset < bounds.end, "{context}: {offset} is not below {}", bounds.end);
                    return;
                }
                if !self.may_be_gone(offset, sent) {
                    let want = Some((sent.timestamp, offset)).filter(|_| offset < bounds.end);
                    assert_eq!(found, want, "{context}: first at or after {timestamp} in {bounds:?}");
                    return;
                }
            }
        }
        assert_eq!(found, None, "{context}: nothing is as young as {timestamp} in {bounds:?}");
    }

    // ---- producers

    pub fn producer(&self, producer_id: i64) -> Option<&Producer> {
        self.producers.get(&producer_id)
    }

    /// What a log knows of its producers: their last batch in any case, and before it nothing that they did not send. More
    /// than the last one is not in a snapshot.
    pub fn check_producers(&self, mut entry: impl FnMut(i64) -> Option<ProducerEntry>, context: &str) {
        for (producer_id, want) in &self.producers {
            let Some(found) = entry(*producer_id) else { panic!("{context}: producer {producer_id} is not known") };
            assert_eq!(found.producer_epoch, want.epoch, "{context}: epoch of producer {producer_id}");
            let known: VecDeque<Known> = found
                .batches()
                .map(|batch| (batch.base_sequence(), batch.last_sequence, batch.base_offset(), batch.last_offset))
                .collect();
            assert_eq!(known.back(), want.batches.back(), "{context}: last batch of producer {producer_id}");
            let is_sent = known.iter().all(|batch| want.batches.contains(batch) || self.was_sent(*producer_id, *batch));
            assert!(is_sent, "{context}: producer {producer_id} sent {:?}, not {known:?}", want.batches);
        }
    }
}

impl Expected {
    /// All that was appended may be gone, and what the log says of its producers is what is known of them.
    pub fn lose_all(&mut self, entry: impl Fn(i64) -> Option<ProducerEntry>) {
        let known = |id: i64| {
            let entry = entry(id)?;
            let batches = entry
                .batches()
                .map(|batch| (batch.base_sequence(), batch.last_sequence, batch.base_offset(), batch.last_offset));
            Some((id, Producer { epoch: entry.producer_epoch, batches: batches.collect() }))
        };
        self.producers = self.producers.keys().filter_map(|id| known(*id)).collect();
        self.producers_before = self.producers.clone();
        self.lost_to = self.end_offset;
    }

    /// Compaction takes batches, so that what is known of a producer may go farther back.
    fn was_sent(&self, producer_id: i64, (base_sequence, _, base_offset, last_offset): Known) -> bool {
        self.from(base_offset).first().is_some_and(|batch| {
            let is_numbered = |n: Numbered| n.producer_id == producer_id && n.base_sequence == base_sequence;
            (batch.base_offset, batch.last_offset) == (base_offset, last_offset)
                && batch.numbered.is_some_and(is_numbered)
        })
    }
}

fn note_producer(producers: &mut BTreeMap<i64, Producer>, batch: &Batch) {
    let Some(Numbered { producer_id, producer_epoch, base_sequence }) = batch.numbered else { return };
    let new = || Producer { epoch: producer_epoch, batches: VecDeque::new() };
    let producer = producers.entry(producer_id).or_insert_with(new);
    if producer.epoch != producer_epoch {
        *producer = new();
    }
    let last_sequence = base_sequence + (batch.last_offset - batch.base_offset) as i32;
    producer.batches.push_back((base_sequence, last_sequence, batch.base_offset, batch.last_offset));
    if producer.batches.len() > BATCHES_REMEMBERED {
        producer.batches.pop_front();
    }
}

/// What is in these batches, each of which must verify.
fn records_of(slices: &[Bytes], context: &str) -> Vec<(i64, Sent)> {
    let mut found = Vec::new();
    let mut scratch = Vec::new();
    for batch in slices.iter().flat_map(|slice| Batches::new(slice)) {
        let batch: BatchView<'_> = batch.unwrap_or_else(|error| panic!("{context}: {error}"));
        batch.verify_crc().unwrap_or_else(|error| panic!("{context}: {error}"));
        let records = records_slice(&batch, &mut scratch, 16 << 20).expect("it verifies");
        for record in Records::new(batch.header(), records) {
            let record = record.expect("it verifies");
            let (key, value) = (record.key.map(Bytes::copy_from_slice), record.value.map(Bytes::copy_from_slice));
            found.push((record.offset, Sent { timestamp: record.timestamp, key, value }));
        }
    }
    found
}
