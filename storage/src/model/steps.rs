//! What happens to logs while a broker runs.

use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use walser_protocol::records::batch::BatchMut;
use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};
use walser_protocol::records::compression::{Compression, CompressionType};

use super::check::{check_epochs, check_lookup, check_read, check_whole, is_same, observe};
use super::expect::{Batch, Numbered, Sent};
use super::life::Life;
use super::world::{SimulatedLog, Slot, World};
use crate::compaction::HashKey;
use crate::compaction::throttle::Throttle;
use crate::error::{AppendError, CommitError, LogOffline, ReadError};
use crate::log::{Append, CompactError, Durability, PassLimits};
use crate::producer_state::ProducerError;
use crate::runtime::Runtime;
use crate::validate::ValidBatch;

const HOUR_MS: i64 = 3_600_000;

/// A batch that a producer sends.
struct Made {
    batch: ValidBatch,
    records: Vec<Sent>,
    numbered: Option<Numbered>,
}

impl Life {
    /// One step; afterwards every log is looked at.
    pub(super) async fn step(&self) {
        let world = &self.world;
        let at = world.index(world.slots.borrow().len());
        let slot = Rc::clone(&world.slots.borrow()[at]);
        let Some(log) = slot.live().filter(|_| !slot.is_condemned.get()) else {
            self.step_of_a_bad_log(at, &slot).await;
            return self.observe();
        };
        match world.below(100) {
            0..34 => self.append(&slot, &log).await,
            34..40 => send_again(world, &slot, &log),
            40..56 => check_read(world, &slot, &log).await,
            56..60 => check_lookup(world, &slot, &log).await,
            60..72 => self.rest().await,
            72..75 => remove_old(world, &slot, &log).await,
            75..78 => raise_start(world, &slot, &log).await,
            78..84 => compact(world, &slot, &log).await,
            84..87 => flush(world, &slot, &log).await,
            87..89 => begin_epoch(&slot, &log),
            89 => change_config(world, &slot, &log),
            90..92 => self.note_offsets().await,
            92 => self.tend_ends().await,
            93..95 => check_whole(world, &slot, &log).await,
            95 => check_state(world, &slot, &log),
            96 => world.runtime.shift_wall_clock(world.below(10 * HOUR_MS as u64) as i64),
            97 if world.chance(1, 2) => self.recreate(at).await,
            _ => self.cause_trouble(at).await,
        }
        self.observe();
    }

    /// It could not be opened, or it serves only a part: at some time it is made anew.
    async fn step_of_a_bad_log(&self, at: usize, slot: &Rc<Slot>) {
        let world = &self.world;
        match (world.below(6), slot.live()) {
            (0, _) if slot.is_condemned.get() => self.recreate(at).await,
            (1..4, Some(log)) => check_whole(world, slot, &log).await,
            _ => world.runtime.sleep(Duration::from_micros(world.below(20_000))).await,
        }
    }

    /// Batches for one log or several, some of which are waited for.
    async fn append(&self, slot: &Rc<Slot>, log: &SimulatedLog) {
        let world = &self.world;
        let mut last = None;
        for _ in 0..1 + world.below(3) {
            last = append(world, slot, log).or(last);
        }
        if world.chance(1, 4) {
            let others = world.slots.borrow().clone();
            for other in others {
                if let Some(log) = other.live().filter(|_| !other.is_condemned.get()) {
                    append(world, &other, &log);
                }
            }
        }
        if let Some(end_offset) = last.filter(|_| world.chance(1, 3)) {
            await_durable(world, slot, log, end_offset).await;
        }
    }

    async fn rest(&self) {
        let world = &self.world;
        let wait_us = match world.below(20) {
            0 => world.below(13_000_000),
            1..3 => world.below(2_500_000),
            3..8 => world.below(50_000),
            _ => world.below(2_000),
        };
        world.runtime.sleep(Duration::from_micros(wait_us)).await;
    }

    async fn note_offsets(&self) {
        let slots = self.world.slots.borrow().clone();
        if let Err(error) = self.write_noted(&slots).await {
            assert!(self.world.may_refuse() || self.world.is_failing.get(), "{error}");
        }
    }

    /// What idle logs hold goes, and what there is to be noted of ends is.
    async fn tend_ends(&self) {
        let world = &self.world;
        let slots = world.slots.borrow().clone();
        let mut noted = Vec::new();
        for slot in slots {
            let Some(log) = slot.live() else { continue };
            if log.may_rest(world.runtime.now()) {
                log.rest().await;
            }
            if log.wants_note() && self.take_note(&slot, &log).await {
                noted.push(log);
            }
        }
        match self.write_ends().await {
            Ok(()) => noted.iter().for_each(SimulatedLog::notes_are_kept),
            Err(error) => assert!(world.may_refuse() || world.is_failing.get(), "{error}"),
        }
    }
}

/// Appends a new batch, in a task of its own where there is no room yet; its end.
fn append(world: &Rc<World>, slot: &Rc<Slot>, log: &SimulatedLog) -> Option<i64> {
    let made = make_batch(world, slot);
    let place = log.stand_in_line(made.batch.len());
    let Some(place) = place else { return append_now(world, slot, log, made) };
    // The batch of an idempotent producer is not numbered until its turn has come.
    let (world, slot, log) = (Rc::clone(world), Rc::clone(slot), log.clone());
    let runtime = world.runtime.clone();
    runtime.spawn(async move {
        place.turn().await;
        if is_same(&slot, &world) && slot.live().is_some() {
            let made = make_batch(&world, &slot);
            append_now(&world, &slot, &log, made);
        }
    });
    None
}

fn append_now(world: &Rc<World>, slot: &Rc<Slot>, log: &SimulatedLog, made: Made) -> Option<i64> {
    let Made { batch, records, numbered } = made;
    let mut bytes = BytesMut::from(batch.as_bytes());
    let leader_epoch = slot.leader_epoch.get();
    let appended = match log.append_as_leader(Append { batch, leader_epoch, now_ms: world.now_ms() }) {
        Ok(appended) => appended,
        Err(error) => {
            assert!(is_refusal_excused(world, slot, &error), "{}: {error}", world.context(slot));
            return None;
        }
    };
    assert!(!appended.is_duplicate, "{}: a new batch is no duplicate", world.context(slot));
    let (mut fields, _) = BatchMut::parse(&mut bytes).expect("a batch");
    fields.set_base_offset(appended.base_offset);
    fields.set_partition_leader_epoch(leader_epoch);
    let mut records = records;
    if appended.log_append_time_ms >= 0 {
        fields.set_log_append_time(appended.log_append_time_ms);
        records.iter_mut().for_each(|record| record.timestamp = appended.log_append_time_ms);
    }
    let (base_offset, last_offset) = (appended.base_offset, appended.last_offset);
    let bytes: Bytes = bytes.freeze();
    slot.expected.borrow_mut().push(Batch { base_offset, last_offset, bytes, leader_epoch, numbered, records });
    let end_offset = appended.end_offset();
    if world.chance(1, 2) {
        let (world, slot, log) = (Rc::clone(world), Rc::clone(slot), log.clone());
        let runtime = world.runtime.clone();
        runtime.spawn(async move { await_durable(&world, &slot, &log, end_offset).await });
    }
    Some(end_offset)
}

/// Remembers the promise once it is made.
async fn await_durable(world: &World, slot: &Slot, log: &SimulatedLog, end_offset: i64) {
    match log.durable(end_offset).await {
        Ok(()) => {
            let mut expected = slot.expected.borrow_mut();
            match log.config().durability {
                Durability::Flushed => expected.flushed = expected.flushed.max(end_offset),
                Durability::Written => expected.written = expected.written.max(end_offset),
                Durability::Memory => {}
            }
        }
        Err(error) => {
            assert!(is_commit_excused(world, slot, &error), "{}: {error}", world.context(slot));
        }
    }
}

pub(super) fn is_commit_excused(world: &World, slot: &Slot, error: &CommitError) -> bool {
    match error {
        CommitError::Unavailable(_) => world.may_refuse() || world.is_failing.get(),
        CommitError::Offline(reason) => is_offline_excused(slot, reason),
    }
}

fn is_offline_excused(slot: &Slot, reason: &LogOffline) -> bool {
    match reason {
        LogOffline::Failed(_) => slot.may_fail.get(),
        LogOffline::Corrupt(_) => slot.may_serve_part(),
        // It is being deleted, or all of them are being stopped.
        LogOffline::Closed => true,
    }
}

fn is_refusal_excused(world: &World, slot: &Slot, error: &AppendError) -> bool {
    match error {
        AppendError::BatchExceedsSegment { .. } | AppendError::Overloaded { .. } => true,
        AppendError::Unavailable(_) => world.may_refuse() || world.is_failing.get(),
        AppendError::Offline(reason) => is_offline_excused(slot, reason),
        AppendError::Producer(_) | AppendError::StaleLeaderEpoch { .. } | AppendError::OffsetsExhausted => false,
    }
}

fn make_batch(world: &World, slot: &Slot) -> Made {
    let shape = world.shape;
    let large = shape.batch_bytes_max;
    let value_bytes = match world.below(64) {
        0 => 70 << 10,
        1..3 => 4 * large + world.index(4096),
        3..6 => large + world.index(large),
        6..16 => world.index(large),
        _ => world.index(300),
    };
    let value_bytes = value_bytes.min(shape.segment_bytes as usize);
    let count = 1 + if value_bytes < 400 { world.index(5) } else { 0 };
    let records: Vec<Sent> = (0..count).map(|_| make_record(world, slot, value_bytes)).collect();
    let numbered = world.chance(1, 3).then(|| next_numbers(world, slot));
    Made { batch: build(&records, numbered, world), records, numbered }
}

fn make_record(world: &World, slot: &Slot, value_bytes: usize) -> Sent {
    let is_compacted = slot.expected.borrow().is_compacted();
    let key = (is_compacted || world.chance(1, 3)).then(|| Bytes::from(format!("key {}", world.below(12))));
    let value = (!is_compacted || !world.chance(1, 6)).then(|| {
        let mut value = vec![0; value_bytes];
        world.prng.borrow_mut().fill(&mut value);
        Bytes::from(value)
    });
    let early_ms = if world.chance(1, 8) { world.below(60_000) as i64 } else { 0 };
    Sent { timestamp: world.now_ms() - early_ms, key, value }
}

fn build(records: &[Sent], numbered: Option<Numbered>, world: &World) -> ValidBatch {
    let codec = if world.chance(1, 5) { CompressionType::ALL[world.index(5)] } else { CompressionType::None };
    let mut options = BatchOptions { compression: Compression::new(codec), ..BatchOptions::default() };
    if let Some(Numbered { producer_id, producer_epoch, base_sequence }) = numbered {
        options = BatchOptions { producer_id, producer_epoch, base_sequence, ..options };
    }
    let mut builder = BatchBuilder::new(options);
    for Sent { timestamp, key, value } in records {
        let (key, value) = (key.as_deref(), value.as_deref());
        builder.append(&NewRecord { timestamp: *timestamp, key, value, headers: &[] }).expect("a small record");
    }
    ValidBatch::from_trusted(BytesMut::from(&builder.build().expect("a small batch")[..])).expect("a batch")
}

/// Of the next batch of one of the producers; at times of a new epoch of it.
fn next_numbers(world: &World, slot: &Slot) -> Numbered {
    let producer_id = 1000 + world.below(3) as i64;
    let expected = slot.expected.borrow();
    let Some(producer) = expected.producer(producer_id) else {
        return Numbered { producer_id, producer_epoch: 0, base_sequence: 0 };
    };
    if world.chance(1, 20) {
        return Numbered { producer_id, producer_epoch: producer.epoch + 1, base_sequence: 0 };
    }
    let base_sequence = producer.batches.back().map_or(0, |last| last.1 + 1);
    Numbered { producer_id, producer_epoch: producer.epoch, base_sequence }
}

/// A batch that was sent before, one out of sequence, or one of an old epoch.
fn send_again(world: &World, slot: &Slot, log: &SimulatedLog) {
    let producer_id = 1000 + world.below(3) as i64;
    let Some(producer) = slot.expected.borrow().producer(producer_id).cloned() else { return };
    let Some(last) = producer.batches.back().copied() else { return };
    let known = producer.batches[world.index(producer.batches.len())];
    let how = world.below(3);
    let (epoch, base_sequence, count) = match how {
        0 => (producer.epoch, known.0, known.1 - known.0 + 1),
        1 => (producer.epoch, last.1 + 2 + world.below(5) as i32, 1),
        _ => (producer.epoch - 1, last.1 + 1, 1),
    };
    if epoch < 0 {
        return;
    }
    let records: Vec<Sent> = (0..count).map(|_| make_record(world, slot, 10)).collect();
    let numbered = Numbered { producer_id, producer_epoch: epoch, base_sequence };
    let batch = build(&records, Some(numbered), world);
    let append = Append { batch, leader_epoch: slot.leader_epoch.get(), now_ms: world.now_ms() };
    let context = format!("{}, {numbered:?} of {producer:?}", world.context(slot));
    match (how, log.append_as_leader(append)) {
        (0, Ok(found)) => {
            assert!(found.is_duplicate, "{context}: appended twice");
            assert_eq!((found.base_offset, found.last_offset), (known.2, known.3), "{context}");
        }
        // Only the last one is remembered after a start.
        (0, Err(AppendError::Producer(ProducerError::OutOfOrderSequence { .. }))) if known != last => {}
        (1, Err(AppendError::Producer(ProducerError::OutOfOrderSequence { .. }))) => {}
        (2, Err(AppendError::Producer(ProducerError::InvalidEpoch { .. }))) => {}
        (_, Ok(found)) => panic!("{context}: appended as {found:?}"),
        (_, Err(error)) => assert!(is_refusal_excused(world, slot, &error), "{context}: {error}"),
    }
}

/// DeleteRecords.
async fn raise_start(world: &World, slot: &Slot, log: &SimulatedLog) {
    if !log.is_dir_durable() && world.chance(2, 3) {
        flush(world, slot, log).await;
    }
    let (start, high_watermark) = (log.log_start_offset(), slot.high_watermark.get().max(log.log_start_offset()));
    let offset = world.between(start as u64, high_watermark as u64 + 1) as i64;
    let context = format!("{}, start to {offset} of {high_watermark}", world.context(slot));
    match log.raise_log_start(offset, high_watermark) {
        Ok(found) => assert!(offset <= high_watermark && found == offset.max(start), "{context}: {found}"),
        Err(ReadError::OffsetOutOfRange { .. }) => assert!(offset > high_watermark, "{context}"),
        Err(error) => panic!("{context}: {error}"),
    }
    let mut expected = slot.expected.borrow_mut();
    if offset <= high_watermark {
        expected.start_allowed = expected.start_allowed.max(offset);
    }
}

/// Retention, at times beside everything else.
async fn remove_old(world: &Rc<World>, slot: &Rc<Slot>, log: &SimulatedLog) {
    let is_all_old = world.chance(1, 6) && slot.config.borrow().retention.ms >= 0 && log.flush().await.is_ok();
    if is_all_old {
        slot.high_watermark.set(log.committed_end_offset());
        world.runtime.shift_wall_clock(25 * HOUR_MS);
    }
    let (task_world, task_slot, task_log) = (Rc::clone(world), Rc::clone(slot), log.clone());
    let work = async move { remove_old_now(&task_world, &task_slot, &task_log).await };
    if !is_all_old && !world.chance(1, 3) {
        return work.await;
    }
    world.runtime.spawn(work);
    if is_all_old {
        // Batches hours apart end the segments that retention begins.
        for _ in 0..world.between(2, 4) {
            world.runtime.sleep(Duration::from_micros(world.below(3_000))).await;
            world.runtime.shift_wall_clock(3 * HOUR_MS);
            append(world, slot, log);
        }
    }
}

async fn remove_old_now(world: &World, slot: &Slot, log: &SimulatedLog) {
    let (now_ms, high_watermark) = (world.now_ms(), slot.high_watermark.get());
    let retention = log.config().retention;
    let deleted_to = {
        let mut expected = slot.expected.borrow_mut();
        let deleted_to = expected.start_allowed;
        if retention.by_policy && (retention.ms >= 0 || retention.bytes >= 0) {
            expected.start_allowed = deleted_to.max(high_watermark);
        }
        deleted_to
    };
    let outcome = log.remove_old_segments(now_ms, high_watermark).await;
    let context = format!("{}, retention {retention:?} below {high_watermark}", world.context(slot));
    if let Err(error) = &outcome {
        let is_excused = world.may_refuse() || slot.may_fail.get() || slot.is_damaged() || slot.live().is_none();
        assert!(is_excused, "{context}: {error}");
    }
    world.tally.borrow_mut().segments_removed += outcome.unwrap_or(0) as u64;
    let start = log.log_start_offset();
    let mut expected = slot.expected.borrow_mut();
    if start <= deleted_to.max(expected.log_start) {
        return;
    }
    // Neither a client nor an earlier call has asked for it.
    let from = deleted_to.max(expected.log_start);
    expected.note_start(start);
    let kept: usize = expected.from(start).iter().map(|batch| batch.bytes.len()).sum();
    let is_much = retention.bytes >= 0 && kept as i64 >= retention.bytes;
    // Another call may have removed it meanwhile, by a later time.
    let is_old = |sent: &Sent| world.now_ms() - sent.timestamp > retention.ms;
    let gone = expected.from(from).iter().take_while(|batch| batch.last_offset < start);
    let are_old = retention.ms >= 0 && gone.flat_map(|batch| &batch.records).all(is_old);
    // What a compacted log had there is not known.
    assert!(
        is_much || are_old || expected.is_compacted(),
        "{context}: {from} to {start} is gone, {kept} bytes are left"
    );
}

/// One pass, at times beside everything else.
async fn compact(world: &Rc<World>, slot: &Rc<Slot>, log: &SimulatedLog) {
    let (task_world, task_slot, task_log) = (Rc::clone(world), Rc::clone(slot), log.clone());
    let work = async move { compact_now(&task_world, &task_slot, &task_log).await };
    if world.chance(1, 3) { world.runtime.spawn(work) } else { work.await }
}

async fn compact_now(world: &World, slot: &Slot, log: &SimulatedLog) {
    let (now_ms, log_start) = (world.now_ms(), log.log_start_offset());
    let outcome = match log.plan_compaction(now_ms, slot.high_watermark.get()).await {
        Ok(None) => return,
        Ok(Some(plan)) if !plan.is_due(&log.config().compaction) => return,
        Ok(Some(plan)) => {
            {
                let mut expected = slot.expected.borrow_mut();
                expected.flushed = expected.flushed.max(log.durable_end_offset());
                expected.begin_pass(plan.end_offset, now_ms);
            }
            let throttle = Throttle::new(f64::INFINITY);
            let limits = PassLimits {
                hash_key: HashKey::new([world.seed, 6]),
                map_bytes_max: if world.chance(1, 3) { 24 * 20 } else { 1 << 20 },
                map_load_max: 0.9,
                read_bytes: 16 << 10,
                decompressed_bytes_max: 1 << 20,
                throttle: &throttle,
            };
            log.compact(&plan, now_ms, &limits, &async || world.runtime.turn().await).await
        }
        Err(error) => Err(CompactError::Read(error)),
    };
    let context = format!("{}, compaction", world.context(slot));
    match outcome {
        Ok(compacted) => {
            world.tally.borrow_mut().passes += 1;
            slot.expected.borrow_mut().end_pass(log_start, compacted.end_offset);
            world.note(|| format!("{} is compacted, {compacted:?}", slot.name));
        }
        Err(CompactError::Closing | CompactError::Busy) => {}
        Err(error) => {
            let is_excused = slot.may_fail.get() || slot.is_damaged() || slot.live().is_none() || world.may_refuse();
            assert!(is_excused, "{context}: {error}");
        }
    }
}

async fn flush(world: &World, slot: &Slot, log: &SimulatedLog) {
    let end_offset = log.log_end_offset();
    match log.flush().await {
        Ok(()) => {
            let mut expected = slot.expected.borrow_mut();
            expected.flushed = expected.flushed.max(end_offset);
        }
        Err(error) => assert!(is_commit_excused(world, slot, &error), "{}: {error}", world.context(slot)),
    }
}

fn begin_epoch(slot: &Slot, log: &SimulatedLog) {
    slot.leader_epoch.update(|epoch| epoch + 1);
    log.begin_epoch(slot.leader_epoch.get());
}

/// The level only of the logs that are not at the default one for ever.
fn change_config(world: &World, slot: &Slot, log: &SimulatedLog) {
    let mut config = log.config();
    match world.below(5) {
        0 => config.segment_bytes = world.between(6 << 10, 60 << 10) as u32,
        1 => config.index_interval_bytes = world.between(100, 1500) as u32,
        3 => config.is_log_append_time ^= true,
        _ if slot.name.ends_with('0') => {
            config.durability = [Durability::Flushed, Durability::Written, Durability::Memory][world.index(3)];
        }
        _ => return,
    }
    *slot.config.borrow_mut() = config.clone();
    log.set_config(config);
}

/// Producers and epochs.
fn check_state(world: &World, slot: &Slot, log: &SimulatedLog) {
    observe(world, slot, log);
    if slot.is_condemned.get() || slot.is_damaged() {
        return;
    }
    slot.expected.borrow().check_producers(|id| log.producer(id), &world.context(slot));
    check_epochs(world, slot, log);
}
