//! The end may come at any operation, and everything that was promised is there.

use super::*;
use crate::log::known_end::forget_journal;

/// What everybody works on.
pub(super) struct Work {
    pub runtime: SimulatedRuntime,
    pub logs: Vec<SimulatedLog>,
    pub histories: Rc<RefCell<Vec<History>>>,
    pub shape: Shape,
    /// Whether appenders pause for long at times.
    pub pauses: bool,
    /// Of a failure.
    pub context: String,
    /// As a broker would have them on disk.
    pub notes: Rc<RefCell<Vec<Note>>>,
}

impl Work {
    fn note_acknowledged(&self, at: usize, end_offset: i64) {
        let history = &mut self.histories.borrow_mut()[at];
        match self.logs[at].config().durability {
            Durability::Flushed => history.acknowledged = history.acknowledged.max(end_offset),
            Durability::Written => history.written = history.written.max(end_offset),
            Durability::Memory => {}
        }
    }

    fn batch(&self, prng: &mut Prng) -> ValidBatch {
        let large = self.shape.batch_bytes_max;
        let value_bytes = match prng.below(16) {
            0 => large + prng.index(large),
            1 => 4 * large,
            2..5 => prng.index(large),
            _ => prng.index(400),
        };
        let count = 1 + prng.index(if value_bytes < 400 { 4 } else { 1 });
        let elapsed_us = self.runtime.now().since_start().as_micros();
        batch(prng, count, value_bytes, NOW + i64::try_from(elapsed_us).expect("no long time"))
    }

    /// Appends to one log, some of it without waiting.
    async fn append_some(&self, at: usize, mut prng: Prng, steps: u32) {
        for _ in 0..steps {
            let batch = self.batch(&mut prng);
            let place = self.logs[at].stand_in_line(batch.len());
            if let Some(place) = &place {
                place.turn().await;
            }
            let end_offset = {
                let mut histories = self.histories.borrow_mut();
                append(&self.logs[at], &mut histories[at], batch).expect("no fault")
            };
            drop(place);
            match prng.below(40) {
                0..15 => {
                    self.logs[at].durable(end_offset).await.expect("no fault");
                    self.note_acknowledged(at, end_offset);
                }
                15..20 => self.runtime.sleep(Duration::from_micros(prng.below(3000))).await,
                20 if self.pauses => self.runtime.sleep(Duration::from_millis(prng.below(2500))).await,
                21 if self.pauses && prng.chance(1, 3) => self.runtime.sleep(Duration::from_secs(13)).await,
                _ => {}
            }
        }
    }

    /// What else happens to logs.
    async fn tend(&self, mut prng: Prng, steps: u32, flips: bool) {
        for _ in 0..steps {
            self.runtime.sleep(Duration::from_micros(prng.below(20_000))).await;
            let at = prng.index(self.logs.len());
            let log = &self.logs[at];
            match prng.below(8) {
                0 => {
                    let end_offset = log.log_end_offset();
                    log.flush().await.expect("no fault");
                    let history = &mut self.histories.borrow_mut()[at];
                    history.acknowledged = history.acknowledged.max(end_offset);
                }
                1 => {
                    let durable = log.durable_end_offset();
                    let log_start = log.log_start_offset();
                    let offset = log_start + prng.below((durable - log_start).max(0) as u64 + 1) as i64;
                    let history_start = self.histories.borrow()[at].log_start;
                    self.histories.borrow_mut()[at].log_start = history_start.max(offset);
                    log.raise_log_start(offset, durable).expect("below the high watermark");
                    log.remove_old_segments(NOW, durable).await.expect("no fault");
                }
                2 if flips && at == 0 => {
                    let durability = [Durability::Flushed, Durability::Written, Durability::Memory][prng.index(3)];
                    log.set_config(LogConfig { durability, ..log.config() });
                }
                _ => {}
            }
        }
    }

    /// Notes the ends of logs, and has idle ones give back what they hold for writers.
    async fn note(&self, mut prng: Prng, is_over: Rc<Cell<bool>>) {
        while !is_over.get() {
            self.runtime.sleep(Duration::from_micros(1 + prng.below(30_000))).await;
            let at = prng.index(self.logs.len());
            if prng.chance(1, 4) {
                self.logs[at].rest().await;
            }
            // What is handed out is there from some moment on, unless the power goes before.
            if let Some(note) = self.logs[at].next_note().await.expect("no fault")
                && prng.chance(3, 4)
            {
                self.notes.borrow_mut()[at] = Some(note);
                self.logs[at].notes_are_kept();
            }
        }
    }

    /// Reads what may be read and holds it against what was appended.
    async fn consume(&self, mut prng: Prng, is_over: Rc<Cell<bool>>) {
        while !is_over.get() {
            let pause_us = if prng.chance(1, 2) { 1 + prng.below(2000) } else { prng.below(400_000) };
            self.runtime.sleep(Duration::from_micros(pause_us)).await;
            self.read(prng.index(self.logs.len()), &mut prng).await;
        }
    }

    /// Looks for records by time.
    async fn seek(&self, mut prng: Prng, is_over: Rc<Cell<bool>>) {
        while !is_over.get() {
            let pause_us = if prng.chance(3, 4) { 1 + prng.below(1000) } else { prng.below(400_000) };
            self.runtime.sleep(Duration::from_micros(pause_us)).await;
            self.look_up(prng.index(self.logs.len()), &mut prng).await;
        }
    }

    async fn read(&self, at: usize, prng: &mut Prng) {
        let log = &self.logs[at];
        let (start, end) = (log.log_start_offset(), log.committed_end_offset());
        if start >= end {
            return;
        }
        let offset = start + prng.below((end - start) as u64) as i64;
        let request = ReadRequest { offset, upper_bound: end, max_bytes: prng.index(20_000), min_one_batch: true };
        let read = match log.read(request).await {
            Err(ReadError::OffsetOutOfRange { log_start_offset, .. }) if log_start_offset > offset => return,
            read => read.unwrap_or_else(|error| panic!("{}, {request:?}: {error}", self.context)),
        };
        let found: Vec<u8> = read.slices.iter().flat_map(|slice| slice.to_vec()).collect();
        let histories = self.histories.borrow();
        let mut want = Vec::new();
        for (_, last, bytes) in histories[at].from(offset) {
            if *last < read.next_offset {
                want.extend_from_slice(bytes);
            }
        }
        // Of the batch that the bound cuts nothing is given.
        let next = histories[at].from(offset).first().filter(|(_, last, _)| *last < end);
        assert!(found == want, "{}, log {at}, {request:?}: {} bytes, not {}", self.context, found.len(), want.len());
        assert!(
            next.is_none() || read.next_offset > offset,
            "{}, log {at}, {request:?}: nothing was read",
            self.context
        );
    }

    /// The time of a record there is, often of one that is hardly acknowledged.
    async fn look_up(&self, at: usize, prng: &mut Prng) {
        let log = &self.logs[at];
        let (start, end) = (log.log_start_offset(), log.committed_end_offset());
        if start >= end {
            return;
        }
        let from = if prng.chance(3, 4) { start.max(end - 20) } else { start };
        let offset = from + prng.below((end - from) as u64) as i64;
        let time_of = |(base, _, bytes): &(i64, i64, Bytes), offset: i64| {
            BatchView::parse_exact(bytes).expect("a batch").base_timestamp() + offset - base
        };
        let timestamp = time_of(&self.histories.borrow()[at].from(offset)[0], offset);
        let found = log.offset_for_timestamp(timestamp, end).await;
        let context = format!("{}, log {at}: the first record from {timestamp} on, below {end}", self.context);
        let found = found.unwrap_or_else(|error| panic!("{context}: {error}"));
        if log.log_start_offset() == start {
            let histories = self.histories.borrow();
            // Within a batch times rise.
            let first = histories[at].from(start).iter().find(|batch| time_of(batch, batch.1) >= timestamp);
            let want = first.and_then(|batch| {
                let mut offsets = batch.0.max(start)..=batch.1;
                offsets
                    .find(|offset| time_of(batch, *offset) >= timestamp)
                    .map(|offset| (offset, time_of(batch, offset)))
            });
            let found = found.map(|found| (found.offset, found.timestamp));
            assert_eq!(found, want, "{context}");
        }
    }

    pub async fn run(self: Rc<Self>, steps: u32, flips: bool) {
        let is_over = Rc::new(Cell::new(false));
        let gate = crate::runtime::channel::Gate::new();
        let consumers = crate::runtime::channel::Gate::new();
        for at in (0..self.logs.len()).flat_map(|at| std::iter::repeat_n(at, self.shape.appenders)) {
            let (work, guard) = (Rc::clone(&self), gate.enter().expect("open"));
            let prng = self.runtime.fork_prng();
            self.runtime.spawn(async move {
                work.append_some(at, prng, steps).await;
                drop(guard);
            });
        }
        let (work, guard, prng) = (Rc::clone(&self), gate.enter().expect("open"), self.runtime.fork_prng());
        self.runtime.spawn(async move {
            work.tend(prng, steps, flips).await;
            drop(guard);
        });
        let (work, guard, prng) = (Rc::clone(&self), consumers.enter().expect("open"), self.runtime.fork_prng());
        let over = Rc::clone(&is_over);
        self.runtime.spawn(async move {
            work.consume(prng, over).await;
            drop(guard);
        });
        let (work, guard, prng) = (Rc::clone(&self), consumers.enter().expect("open"), self.runtime.fork_prng());
        let over = Rc::clone(&is_over);
        self.runtime.spawn(async move {
            work.seek(prng, over).await;
            drop(guard);
        });
        let (work, guard, prng) = (Rc::clone(&self), consumers.enter().expect("open"), self.runtime.fork_prng());
        let over = Rc::clone(&is_over);
        self.runtime.spawn(async move {
            work.note(prng, over).await;
            drop(guard);
        });
        gate.close_and_wait().await;
        is_over.set(true);
        consumers.close_and_wait().await;
    }
}

/// One life of a broker.
#[derive(Clone, Copy, Debug)]
struct Life {
    steps: u32,
    /// The operation at which it ends, counted from the moment when everything is open.
    cut: Option<u64>,
    is_kill: bool,
    flips: bool,
    stops: bool,
}

/// How a life ended.
struct End {
    /// The recovery points as they were last noted; after a clean stop the ends.
    points: Vec<Option<i64>>,
    notes: Vec<Note>,
    is_clean: bool,
    operations: u64,
}

fn live(world: &mut World, histories: &Rc<RefCell<Vec<History>>>, before: &End, life: Life, context: &str) -> End {
    let runtime = world.runtime.clone();
    let running = runtime.block_on(world.start_with_notes(before.is_clean, &before.points, &before.notes));
    check_start(world, &running, histories, before, context);
    let logs = running.logs.clone();
    let mut notes = before.notes.clone();
    notes.resize(logs.len(), None);
    // They speak of the journals before, which are gone.
    notes.iter_mut().flatten().for_each(|note| forget_journal(note));
    let notes = Rc::new(RefCell::new(notes));
    let work = Rc::new(Work {
        runtime: runtime.clone(),
        notes: Rc::clone(&notes),
        logs: logs.clone(),
        histories: Rc::clone(histories),
        shape: world.shape,
        pauses: true,
        context: context.to_owned(),
    });
    let first = world.disk.change_count();
    if let Some(cut) = life.cut {
        world.disk.cut_power_at(cut);
    }
    if life.flips {
        let last = logs.last().expect("there are logs");
        last.set_config(LogConfig { durability: Durability::Written, ..last.config() });
    }
    let disk = world.disk.clone();
    let run = async {
        Rc::clone(&work).run(life.steps, life.flips).await;
        if life.stops { Some(running.stop_with_notes().await) } else { None }
    };
    let outcome = runtime.block_on_unless(run, || disk.has_lost_power());
    assert!(outcome.is_ok() || disk.has_lost_power(), "{context}: {outcome:?}");
    let operations = world.disk.change_count() - first;
    let points = logs.iter().map(|log| Some(log.recovery_point())).collect();
    if let Ok(Some((points, ends))) = outcome {
        for (log, history) in logs.iter().zip(histories.borrow_mut().iter_mut()) {
            history.acknowledged = log.log_end_offset();
        }
        world.end(life.is_kill);
        let notes = ends.into_iter().zip(notes.take()).map(|(end, kept)| end.or(kept)).collect();
        return End { points, notes, is_clean: true, operations };
    }
    for (log, history) in logs.iter().zip(histories.borrow_mut().iter_mut()) {
        history.acknowledged = history.acknowledged.max(log.durable_end_offset());
        history.written = history.written.max(log.written_end_offset());
    }
    world.end(life.is_kill);
    if life.is_kill {
        for history in histories.borrow_mut().iter_mut() {
            history.acknowledged = history.acknowledged.max(history.written);
        }
    }
    End { points, notes: notes.take(), is_clean: false, operations }
}

/// Holds what a start has found against the promises, and goes on from there.
fn check_start(world: &World, running: &Running, histories: &Rc<RefCell<Vec<History>>>, before: &End, context: &str) {
    for (at, log) in running.logs.iter().enumerate() {
        let context = format!("{context}, log {at} ({:?})", running.replayed);
        let report = &running.reports[at];
        assert_eq!(report.corruption, None, "{context}");
        let mut history = histories.borrow()[at].clone();
        let (start, end) = (log.log_start_offset(), log.log_end_offset());
        assert!(end >= history.acknowledged, "{context}: ends at {end} of {}, {report:?}", history.acknowledged);
        assert!(start <= history.log_start, "{context}: starts at {start}, not {}", history.log_start);
        if before.is_clean {
            assert_eq!((report.scanned_bytes, end), (0, history.end_offset()), "{context}: a clean log is trusted");
        }
        history.cut(end, &context);
        let found = world.runtime.block_on(read_all(log, start));
        assert!(found == history.from(start), "{context}: from {start} to {end} is not what was appended");
        (history.acknowledged, history.written, history.log_start) = (end, end, start);
        histories.borrow_mut()[at] = history;
    }
}

const NOTHING: End = End { points: Vec::new(), notes: Vec::new(), is_clean: false, operations: 0 };

/// A crash at `cut`, another one soon after the restart, and a clean stop.
fn crash_twice(seed: u64, shape: Shape, life: Life) -> u64 {
    let context = format!("seed {seed} {life:?} {shape:?}");
    let mut world = World::new(seed, shape);
    let partitions = usize::try_from(shape.partitions).expect("few");
    let histories = Rc::new(RefCell::new(vec![History::default(); partitions]));
    let mut end = live(&mut world, &histories, &NOTHING, life, &context);
    let operations = end.operations;
    let mut prng = world.runtime.fork_prng();
    if prng.chance(1, 2) && !end.is_clean {
        end.points.clear();
    }
    if prng.chance(1, 4) {
        end.notes.clear();
    }
    let soon =
        Life { steps: 3, cut: Some(prng.between(1, 20)), is_kill: prng.chance(1, 3), flips: false, stops: false };
    let end = live(&mut world, &histories, &end, soon, &format!("{context}, restarted"));
    let stop = Life { steps: 2, cut: None, is_kill: false, flips: false, stops: true };
    let end = live(&mut world, &histories, &end, stop, &format!("{context}, restarted twice"));
    live(&mut world, &histories, &end, Life { steps: 0, ..stop }, &format!("{context}, after a clean stop"));
    operations
}

fn shape(seed: u64) -> Shape {
    let mut prng = Prng::new(seed ^ 0x5ade);
    Shape {
        partitions: prng.between(3, 6) as i32,
        appenders: 1,
        live_bytes_max: prng.between(64 << 10, 256 << 10),
        staged_bytes_max: if prng.chance(1, 3) { 40 << 10 } else { 1 << 20 },
        batch_bytes_max: prng.between(2 << 10, 8 << 10) as usize,
        segment_bytes: if prng.chance(1, 2) { 40 << 10 } else { 100 << 10 },
        tail_bytes: 6000,
        blocks_bytes: if prng.chance(1, 2) { 128 << 10 } else { 0 },
    }
}

#[test]
fn what_was_acknowledged_survives_an_end_at_every_operation() {
    // Rule: wherever the power goes or the process is killed, also soon after the restart, every log has what it has
    // acknowledged, byte for byte, and nothing that was not appended; and a clean stop is trusted.
    for seed in seeds(2) {
        for cut in 1.. {
            let life = Life { steps: 8, cut: Some(cut), is_kill: cut % 4 == 0, flips: seed % 2 == 1, stops: true };
            if crash_twice(seed, shape(seed), life) < cut {
                assert!(cut > 100, "the workload does something");
                break;
            }
        }
    }
}

#[test]
fn long_lives_end_anywhere() {
    // Rule: the same after many rolls, checkpoints, rests and removals, and with logs of other levels among them.
    for seed in seeds(60) {
        let cut = Prng::new(seed).between(100, 1500);
        let life = Life { steps: 80, cut: Some(cut), is_kill: seed % 5 == 4, flips: seed % 3 == 2, stops: true };
        crash_twice(seed, shape(seed), life);
    }
}

#[test]
fn a_busy_log_has_promised_no_end_that_nobody_wrote() {
    // Rule: the same where the journal takes hardly anything: a batch whose end is left to the next round is not durable.
    for seed in seeds(100) {
        let mut prng = Prng::new(seed ^ 0xb05e);
        let batch_bytes_max = prng.between(100, 1000) as usize;
        let shape = Shape { partitions: 1, appenders: 4, batch_bytes_max, segment_bytes: 400 << 10, ..shape(seed) };
        let cut = prng.between(20, 300);
        let life = Life { steps: 40, cut: Some(cut), is_kill: seed % 5 == 4, flips: false, stops: true };
        crash_twice(seed, shape, life);
    }
}

#[test]
fn a_segment_has_no_successor_before_it_is_flushed() {
    // Rule: the same where segments roll all the time, so that an end often falls between the making of a file and
    // what its predecessor still lacks.
    for seed in seeds(150) {
        let mut prng = Prng::new(seed ^ 0x7011);
        let batch_bytes_max = prng.between(500, 1500) as usize;
        let segment_bytes = prng.between(8 << 10, 24 << 10) as u32;
        let shape = Shape { partitions: 2, appenders: 2, batch_bytes_max, segment_bytes, ..shape(seed) };
        let cut = prng.between(20, 400);
        let life = Life { steps: 60, cut: Some(cut), is_kill: false, flips: false, stops: true };
        crash_twice(seed, shape, life);
    }
}
