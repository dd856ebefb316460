//! What there is, held against what must be.

use std::rc::Rc;

use bytes::Bytes;

use super::life::Life;
use super::world::{SimulatedLog, Slot, World};
use crate::error::{LogOffline, ReadError};
use crate::log::{ReadRequest, RecoveryReport};

impl Life {
    /// What a start has found.
    pub(super) async fn check_opened(&self, slot: &Slot, log: &SimulatedLog, report: &RecoveryReport, is_clean: bool) {
        let world = &self.world;
        let context = format!("{}, opened", world.context(slot));
        let (start, end) = (log.log_start_offset(), log.log_end_offset());
        world.note(|| format!("{} is opened, {start} to {end}, {report:?}", slot.name));
        let serves_part = report.corruption.is_some();
        assert!(!serves_part || slot.may_serve_part(), "{context}: {report:?}");
        self.take_opened(slot, log, report, is_clean, &context);
        check_whole(world, slot, log).await;
        if !slot.is_condemned.get() && !slot.is_damaged() {
            slot.expected.borrow().check_producers(|id| log.producer(id), &context);
            check_epochs(world, slot, log);
        }
    }

    fn take_opened(&self, slot: &Slot, log: &SimulatedLog, report: &RecoveryReport, is_clean: bool, context: &str) {
        let (start, end) = (log.log_start_offset(), log.log_end_offset());
        let serves_part = report.corruption.is_some();
        let mut expected = slot.expected.borrow_mut();
        let promised = expected.flushed.max(expected.written);
        let lost = promised > end;
        // What was written last and went astray is nowhere, and nothing says that it was ever there.
        let is_unknown = slot.is_condemned.get() || (slot.is_astray.get() && end >= slot.noted_to());
        assert!(!lost || serves_part || is_unknown, "{context}: it ends at {end}, {promised} was promised, {report:?}");
        assert!(start <= expected.log_start, "{context}: it starts at {start}, not {}", expected.log_start);
        assert!(
            start >= slot.noted_start.get(),
            "{context}: it starts at {start}, noted is {}",
            slot.noted_start.get()
        );
        // With the recovery point gone, what is damaged of its last segment is found.
        if is_clean && !slot.is_condemned.get() && !serves_part && !slot.is_astray.get() {
            assert_eq!(end, expected.end_offset(), "{context}: a clean stop loses nothing");
            let is_trusted = report.scanned_bytes == 0 || slot.noted_recovery_point.get() < end;
            assert!(is_trusted, "{context}: what was stopped cleanly is trusted");
        }
        if lost || serves_part {
            slot.is_condemned.set(true);
            self.world.tally.borrow_mut().condemned += 1;
        } else {
            slot.is_marked.set(false);
            expected.cut(end, start, context);
            if start == end && slot.is_of_lower_level() {
                // What lay before the start may have been lost with the power.
                expected.lose_all(|id| log.producer(id));
            }
            (expected.flushed, expected.written) = (end, end);
        }
        expected.note_start(start);
        expected.start_allowed = expected.start_allowed.max(start);
        slot.high_watermark.set(slot.high_watermark.get().min(end).max(start));
    }

    /// What holds at every moment, of every log.
    pub(super) fn observe(&self) {
        let world = &self.world;
        for slot in world.slots.borrow().iter() {
            let Some(log) = slot.live() else { continue };
            observe(world, slot, &log);
        }
    }
}

pub(super) fn observe(world: &World, slot: &Slot, log: &SimulatedLog) {
    let mut expected = slot.expected.borrow_mut();
    let context = || world.context(slot);
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    let (durable, committed) = (log.durable_end_offset(), log.committed_end_offset());
    assert!(start >= expected.log_start, "{}: it started at {}, and at {start}", context(), expected.log_start);
    let allowed = expected.start_allowed;
    assert!(start <= allowed, "{}: it starts at {start}, allowed is {allowed}", context());
    expected.note_start(start);
    if !slot.is_condemned.get() {
        assert_eq!(end, expected.end_offset(), "{}: end", context());
        assert!(durable >= expected.flushed, "{}: {} was durable, {durable} is", context(), expected.flushed);
    }
    assert!(durable <= end && committed <= end, "{}: {durable}, {committed} of {end}", context());
    expected.flushed = expected.flushed.max(durable);
    match log.offline() {
        None => {}
        Some(LogOffline::Failed(error)) => {
            assert!(slot.may_fail.get(), "{}: {error}", context());
            let failed_at = *slot.failed_at.get().get_or_insert(durable);
            slot.failed_at.set(Some(failed_at));
            assert_eq!(durable, failed_at, "{}: something is durable after a failure", context());
        }
        Some(LogOffline::Corrupt(error)) => assert!(slot.may_serve_part(), "{}: {error}", context()),
        Some(LogOffline::Closed) => panic!("{}: it is closed", context()),
    }
    // Followers get on, and with them the high watermark.
    let high_watermark = slot.high_watermark.get().max(start);
    if committed > high_watermark && world.chance(1, 2) {
        slot.high_watermark.set(world.between(high_watermark as u64, committed as u64) as i64);
    }
}

/// Whether a read may fail like this.
pub(super) fn is_read_excused(slot: &Slot, log: &SimulatedLog, offset: i64, error: &ReadError) -> bool {
    match error {
        ReadError::OffsetOutOfRange { log_start_offset, .. } => {
            *log_start_offset > offset && log.log_start_offset() > offset
        }
        ReadError::Corrupt(_) => slot.is_damaged(),
        ReadError::Disk(_) => slot.may_fail.get(),
    }
}

/// Everything from the start to the end, in steps.
pub(super) async fn check_whole(world: &World, slot: &Slot, log: &SimulatedLog) {
    let context = format!("{}, as a whole", world.context(slot));
    let start = log.log_start_offset();
    let mut offset = start;
    let mut all: Vec<Bytes> = Vec::new();
    let exchanges = log.exchanges();
    while offset < log.log_end_offset() {
        let request = ReadRequest { offset, upper_bound: i64::MAX, max_bytes: 20_000, min_one_batch: true };
        let read = match log.read(request).await {
            Ok(read) => read,
            Err(error) => {
                assert!(is_read_excused(slot, log, offset, &error), "{context}, offset {offset}: {error}");
                return;
            }
        };
        assert!(read.next_offset > offset, "{context}: a read makes progress at {offset}");
        slot.expected.borrow().check_found(&read.slices, offset, read.next_offset, &context);
        offset = read.next_offset;
        all.extend(read.slices);
    }
    let expected = slot.expected.borrow();
    // What was read before a segment was exchanged may be older than what follows.
    if expected.is_compacted() && log.exchanges() == exchanges && !slot.is_damaged() {
        expected.check_clean(&all, &context);
    }
}

/// A random read within the bounds of a consumer.
pub(super) async fn check_read(world: &World, slot: &Slot, log: &SimulatedLog) {
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    let offset = world.between(start as u64, end as u64) as i64;
    let upper_bound = match world.below(3) {
        0 => slot.high_watermark.get(),
        1 => log.committed_end_offset(),
        _ => world.between(0, end as u64 + 1) as i64,
    };
    let max_bytes = world.below(30_000) as usize;
    let request = ReadRequest { offset, upper_bound, max_bytes, min_one_batch: world.chance(2, 3) };
    let context = format!("{}, {request:?}", world.context(slot));
    let read = match log.read(request).await {
        Ok(read) => read,
        Err(error) => {
            assert!(is_read_excused(slot, log, offset, &error), "{context}: {error}");
            return;
        }
    };
    let bytes: usize = read.slices.iter().map(Bytes::len).sum();
    assert_eq!(bytes, read.bytes, "{context}: length");
    assert!(bytes == 0 || read.next_offset <= upper_bound, "{context}: read to {}", read.next_offset);
    let expected = slot.expected.borrow();
    expected.check_found(&read.slices, offset, read.next_offset, &context);
    let first = expected.from(offset).first().filter(|batch| batch.last_offset < upper_bound);
    if request.min_one_batch && first.is_some() && !expected.is_compacted() {
        assert!(read.next_offset > offset, "{context}: nothing was read");
    }
}

/// By time.
pub(super) async fn check_lookup(world: &World, slot: &Slot, log: &SimulatedLog) {
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    let some = slot.expected.borrow().from(world.between(start as u64, end as u64) as i64).first().map(|batch| {
        let record = world.index(batch.records.len());
        batch.records[record].timestamp
    });
    let timestamp = some.unwrap_or_else(|| world.now_ms()) + world.below(3) as i64 - 1;
    let upper_bound = world.between(start as u64, end as u64 + 1) as i64;
    let context = format!("{}, lookup of {timestamp} below {upper_bound}", world.context(slot));
    match log.offset_for_timestamp(timestamp, upper_bound).await {
        // What stands in the way to what is wanted is not read whole.
        Ok(_) if slot.is_damaged() => {}
        Ok(found) if log.log_start_offset() == start => {
            let found = found.map(|found| (found.timestamp, found.offset));
            slot.expected.borrow().check_lookup(found, timestamp, start..upper_bound, &context);
        }
        Ok(_) => {}
        Err(error) => assert!(is_read_excused(slot, log, start, &error), "{context}: {error}"),
    }
}

/// The epoch of every batch is that which it was appended in, and epochs end where others begin.
pub(super) fn check_epochs(world: &World, slot: &Slot, log: &SimulatedLog) {
    let expected = slot.expected.borrow();
    let context = || format!("{}, epochs", world.context(slot));
    let start = log.log_start_offset().max(expected.epochs_from());
    let mut later = None;
    for batch in expected.from(start).iter().rev() {
        let offset = batch.base_offset.max(start);
        let epoch = batch.leader_epoch;
        // Of a compacted log the first batch of an epoch may be gone, and where the epoch began with it.
        let is_known = expected.is_compacted() || log.epoch_at(offset) == Some(epoch);
        assert!(
            is_known,
            "{}: at {offset} it is {:?}, not {epoch}; the latest is {:?}",
            context(),
            log.epoch_at(offset),
            log.latest_epoch()
        );
        if let Some((later_epoch, begins)) = later
            && later_epoch > epoch
            && !expected.is_compacted()
        {
            let end = log.end_offset_for_epoch(epoch);
            assert_eq!(end.epoch, epoch, "{}: end of {epoch}", context());
            let is_between = batch.last_offset < end.end_offset && end.end_offset <= begins;
            assert!(is_between, "{}: {epoch} ends at {}, not at {begins}", context(), end.end_offset);
        }
        if later.is_none_or(|(later_epoch, _)| later_epoch >= epoch) {
            later = Some((epoch, batch.base_offset));
        }
    }
    let latest = log.latest_epoch().map(|latest| latest.epoch);
    assert!(later.is_none() || latest >= expected.from(start).last().map(|batch| batch.leader_epoch), "{}", context());
}

/// The log of a slot, while it is the one that was open.
pub(super) fn is_same(slot: &Rc<Slot>, world: &World) -> bool {
    world.slots.borrow().iter().any(|other| Rc::ptr_eq(other, slot))
}
