//! What outlives a crash: the disk, what the metadata says, and what is expected of every log.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use walser_protocol::types::Uuid;

use super::Tally;
use super::expect::Expected;
use crate::compaction::CompactionConfig;
use crate::data_dir::DataDir;
use crate::disk::Disk;
use crate::disk::simulated::{FaultRates, SimulatedDisk, SimulatedDiskOptions};
use crate::journal::JOURNAL_DIR;
use crate::log::{Durability, Log, LogConfig, Retention};
use crate::runtime::prng::Prng;
use crate::runtime::simulated::SimulatedRuntime;
use crate::runtime::{Instant, Runtime};

pub(super) type SimulatedLog = Log<SimulatedDisk, SimulatedRuntime>;

pub(super) const DATA: &str = "/data";
const HOUR_MS: i64 = 3_600_000;

/// One partition of one topic, from its creation to its deletion.
pub(super) struct Slot {
    pub name: String,
    pub topic_id: Uuid,
    pub config: RefCell<LogConfig>,
    pub expected: RefCell<Expected>,
    /// Of the metadata: never forgotten.
    pub leader_epoch: Cell<i32>,
    /// As this leader knows it.
    pub high_watermark: Cell<i64>,
    /// While it is open.
    pub log: RefCell<Option<SimulatedLog>>,
    /// What must be in `log-start-offset-checkpoint`.
    pub noted_start: Cell<i64>,
    /// What is in `recovery-point-offset-checkpoint`.
    pub noted_recovery_point: Cell<i64>,
    /// Where the log ended when the note was made that is in `log-end-checkpoint`.
    pub noted_end: Cell<i64>,
    /// A disk operation of this life was told to fail: it may go offline.
    pub may_fail: Cell<bool>,
    /// Where its promises ended when it went offline.
    pub failed_at: Cell<Option<i64>>,
    /// Bits of its closed segments have changed.
    pub is_rotten: Cell<bool>,
    /// A write of it went astray: only what is read is held against what was appended.
    pub is_astray: Cell<bool>,
    /// A journal was damaged that it may have needed.
    pub is_marked: Cell<bool>,
    /// It served only a part after the last start, and will be deleted.
    pub is_condemned: Cell<bool>,
}

impl Slot {
    pub fn key(&self) -> (String, i32) {
        (self.name.clone(), 0)
    }

    pub fn dir(&self) -> PathBuf {
        Path::new(DATA).join(format!("{}-0", self.name))
    }

    pub fn live(&self) -> Option<SimulatedLog> {
        self.log.borrow().clone()
    }

    /// Whether what it acknowledged need not survive a power cut, now or at some other time.
    pub fn is_of_lower_level(&self) -> bool {
        self.name.ends_with('0') || self.config.borrow().durability != Durability::Flushed
    }

    /// Whether what it holds may be damaged.
    pub fn is_damaged(&self) -> bool {
        self.is_rotten.get() || self.is_astray.get()
    }

    /// Whether it may serve only a part.
    pub fn may_serve_part(&self) -> bool {
        self.is_damaged() || self.is_marked.get()
    }

    /// Everything below is known to have been flushed, whatever is lost of it later.
    pub fn noted_to(&self) -> i64 {
        self.noted_recovery_point.get().max(self.noted_end.get())
    }
}

/// How small everything is, so that everything happens soon.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub live_bytes_max: u64,
    pub staged_bytes_max: usize,
    pub batch_bytes_max: usize,
    pub segment_bytes: u32,
    pub tail_bytes: usize,
}

pub(super) struct World {
    pub seed: u64,
    pub runtime: SimulatedRuntime,
    pub disk: RefCell<SimulatedDisk>,
    pub shape: Shape,
    pub prng: RefCell<Prng>,
    pub slots: RefCell<Vec<Rc<Slot>>>,
    /// Directories of topics that the metadata does not know any more may be there.
    pub tally: Rc<RefCell<Tally>>,
    /// An operation of this life was told to fail that others than one log need.
    pub is_failing: Cell<bool>,
    pub is_full: Cell<bool>,
    /// Appends may be refused for a while after there is room again.
    pub room_since: Cell<Option<Instant>>,
    /// What the last life was doing, for the message of a failure.
    pub history: RefCell<std::collections::VecDeque<String>>,
}

impl World {
    pub fn new(seed: u64, tally: Rc<RefCell<Tally>>) -> Rc<Self> {
        let runtime = SimulatedRuntime::new(seed);
        runtime.set_steps_max(u64::MAX);
        let syncs_all = seed.is_multiple_of(2);
        let options =
            SimulatedDiskOptions { sync_us: (30, 900), transfer_us: (10, 200), syncs_all, ..Default::default() };
        let disk = SimulatedDisk::with_options(&runtime, options);
        runtime.block_on(async {
            disk.create_dir_all(&Path::new(DATA).join(JOURNAL_DIR)).await.expect("an empty disk");
            for dir in ["/", DATA] {
                disk.sync_dir(Path::new(dir)).await.expect("no fault");
            }
        });
        let mut prng = runtime.fork_prng();
        let shape = Shape {
            live_bytes_max: prng.between(64 << 10, 256 << 10),
            staged_bytes_max: if prng.chance(1, 4) { 40 << 10 } else { 1 << 20 },
            batch_bytes_max: prng.between(1 << 10, 6 << 10) as usize,
            segment_bytes: prng.between(6 << 10, 60 << 10) as u32,
            tail_bytes: prng.between(2 << 10, 60 << 10) as usize,
        };
        let world = Rc::new(Self {
            seed,
            runtime,
            disk: RefCell::new(disk),
            shape,
            prng: RefCell::new(prng),
            slots: RefCell::default(),
            tally,
            is_failing: Cell::new(false),
            is_full: Cell::new(false),
            room_since: Cell::new(None),
            history: RefCell::default(),
        });
        let count = world.between(2, 5);
        for number in 0..count {
            let slot = world.new_slot(format!("topic-{number}"));
            world.slots.borrow_mut().push(slot);
        }
        world
    }

    /// A topic of some kind.
    pub fn new_slot(&self, name: String) -> Rc<Slot> {
        let mut prng = self.prng.borrow_mut();
        let config = config(&mut prng, self.shape);
        let mut topic_id = [0; 16];
        prng.fill(&mut topic_id);
        drop(prng);
        let LogConfig { durability, retention, flush_messages, flush_ms, .. } = &config;
        self.note(|| {
            format!("{name} is {durability:?} {flush_messages} {flush_ms}, {retention:?}, {:?}", config.compaction)
        });
        let expected = Expected::new(config.compaction.by_policy, config.compaction.delete_retention_ms);
        Rc::new(Slot {
            name,
            topic_id: Uuid::from_bytes(topic_id),
            config: RefCell::new(config),
            expected: RefCell::new(expected),
            leader_epoch: Cell::new(0),
            high_watermark: Cell::new(0),
            log: RefCell::default(),
            noted_start: Cell::new(0),
            noted_recovery_point: Cell::new(0),
            noted_end: Cell::new(0),
            may_fail: Cell::new(false),
            failed_at: Cell::new(None),
            is_rotten: Cell::new(false),
            is_astray: Cell::new(false),
            is_marked: Cell::new(false),
            is_condemned: Cell::new(false),
        })
    }

    pub fn disk(&self) -> SimulatedDisk {
        self.disk.borrow().clone()
    }

    pub fn data_dir(&self) -> DataDir<SimulatedDisk> {
        DataDir::at(self.disk(), DATA)
    }

    pub fn now_ms(&self) -> i64 {
        self.runtime.wall_clock_ms()
    }

    /// Whether a disk operation of this life was told to fail.
    pub fn has_failed(&self) -> bool {
        self.is_failing.get() || self.slots.borrow().iter().any(|slot| slot.may_fail.get())
    }

    /// Whether a refusal for lack of space is to be expected.
    pub fn may_refuse(&self) -> bool {
        let is_recent = |since: Instant| self.runtime.now().saturating_since(since) < Duration::from_secs(10);
        self.is_full.get() || self.room_since.get().is_some_and(is_recent)
    }

    pub fn context(&self, slot: &Slot) -> String {
        format!("{} at {:?}", slot.name, self.runtime.now().since_start())
    }

    pub fn below(&self, end: u64) -> u64 {
        self.prng.borrow_mut().below(end)
    }

    pub fn between(&self, low: u64, high: u64) -> u64 {
        self.prng.borrow_mut().between(low, high)
    }

    pub fn chance(&self, numerator: u64, denominator: u64) -> bool {
        self.prng.borrow_mut().chance(numerator, denominator)
    }

    pub fn index(&self, len: usize) -> usize {
        self.prng.borrow_mut().index(len)
    }

    /// Remembers what happened, for the message of a failure.
    pub fn note(&self, what: impl FnOnce() -> String) {
        let mut history = self.history.borrow_mut();
        if history.len() == 40 {
            history.pop_front();
        }
        history.push_back(format!("{:?} {}", self.runtime.now().since_start(), what()));
    }

    /// The end of everything that runs; what the disk keeps of it is left, and what was promised is remembered.
    pub fn end(&self, is_kill: bool) {
        self.note(|| format!("the end, {}", if is_kill { "killed" } else { "without power" }));
        for slot in self.slots.borrow().iter() {
            if let Some(log) = slot.log.take() {
                let mut expected = slot.expected.borrow_mut();
                expected.flushed = expected.flushed.max(log.durable_end_offset());
                expected.written = expected.written.max(log.written_end_offset());
                expected.note_start(log.log_start_offset());
            }
            if !is_kill {
                // What a killed process has left to the system is gone with the power until a start has flushed it.
                slot.expected.borrow_mut().written = 0;
            }
            slot.may_fail.set(false);
            slot.failed_at.set(None);
        }
        self.runtime.crash();
        let disk = if is_kill { self.disk().kill(&self.runtime) } else { self.disk().crash(&self.runtime) };
        disk.set_faults(FaultRates::default());
        *self.disk.borrow_mut() = disk;
        self.is_failing.set(false);
        // A disk that was full may be so still when the next life begins.
        if !self.is_full.get() || self.chance(2, 3) {
            self.make_room();
        }
        self.room_since.set(None);
    }

    pub fn make_room(&self) {
        self.disk().set_capacity(1 << 40);
        self.is_full.set(false);
        self.room_since.set(Some(self.runtime.now()));
    }
}

fn config(prng: &mut Prng, shape: Shape) -> LogConfig {
    let compacted = prng.chance(2, 5);
    let by_policy = !compacted || prng.chance(1, 4);
    let (mut ms, mut bytes) = (-1, -1);
    match prng.below(3) {
        0 if by_policy => bytes = prng.between(0, 4 * u64::from(shape.segment_bytes)) as i64,
        1 if by_policy => ms = prng.between(1, 24) as i64 * HOUR_MS,
        _ => {}
    }
    let file_delete_delay = Duration::from_millis(prng.below(3000));
    LogConfig {
        segment_bytes: shape.segment_bytes,
        segment_ms: if prng.chance(1, 2) { 2 * HOUR_MS } else { i64::MAX / 2 },
        segment_index_bytes: if prng.chance(1, 6) { 64 } else { 10 << 20 },
        index_interval_bytes: prng.between(100, 1500) as u32,
        durability: match prng.below(12) {
            0 => Durability::Written,
            1 => Durability::Memory,
            _ => Durability::Flushed,
        },
        flush_messages: if prng.chance(1, 6) { prng.between(1, 20) as i64 } else { i64::MAX },
        flush_ms: if prng.chance(1, 6) { prng.between(100, 3000) as i64 } else { i64::MAX },
        is_log_append_time: prng.chance(1, 4),
        producer_id_expiration_ms: i64::MAX,
        retention: Retention { by_policy, ms, bytes, file_delete_delay },
        compaction: CompactionConfig {
            by_policy: compacted,
            min_dirty_ratio: 0.0,
            min_lag_ms: if prng.chance(1, 6) { HOUR_MS } else { 0 },
            delete_retention_ms: prng.below(30) as i64 * HOUR_MS,
            ..CompactionConfig::default()
        },
        ..LogConfig::default()
    }
}
