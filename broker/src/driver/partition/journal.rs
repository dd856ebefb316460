//! The journals of a shard, one in each log directory: begun before the first log there is opened, ended after the last one
//! is closed.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use walser_protocol::types::Uuid;
use walser_storage::disk::Disk;
use walser_storage::journal::{Journal, JournalHandle, JournalOptions, folder};
use walser_storage::runtime::Runtime;
use walser_storage::runtime::channel::Semaphore;

use super::{Partition, PartitionId, Partitions};
use crate::log_dirs::LogDirIndex;

/// What a shard's journal in one directory may take.
#[derive(Clone, Copy, Debug)]
pub struct JournalSettings {
    /// The shard's: its folder.
    pub number: usize,
    /// Of the broker.
    pub shard_count: u16,
    /// On disk.
    pub live_bytes_max: u64,
    /// In memory.
    pub staged_bytes_max: usize,
    /// Batches of this length and more go straight into their segments.
    pub batch_bytes_max: usize,
}

/// A commit that takes so long is spoken of.
const SLOW_COMMIT: Duration = Duration::from_secs(1);

/// The journal of one directory.
pub(super) struct JournalSlot<D: Disk, R: Runtime> {
    state: RefCell<JournalState<D, R>>,
    /// Held by whoever begins or ends it: two in one folder would write over each other.
    changing: Semaphore,
}

impl<D: Disk, R: Runtime> Default for JournalSlot<D, R> {
    fn default() -> Self {
        Self { state: RefCell::default(), changing: Semaphore::new(1) }
    }
}

#[derive(Default)]
pub(super) enum JournalState<D: Disk, R: Runtime> {
    /// No log needed it so far.
    #[default]
    NotBegun,
    Open(Journal<D, R>),
    /// It could not be begun, or has ended.
    Absent,
}

impl<D: Disk, R: Runtime> JournalState<D, R> {
    fn open(&self) -> Option<&Journal<D, R>> {
        match self {
            Self::Open(journal) => Some(journal),
            Self::NotBegun | Self::Absent => None,
        }
    }
}

impl<D: Disk, R: Runtime> Partitions<D, R> {
    /// Begins the journals of directories that have none yet, before the first log in them is opened.
    pub(super) async fn start_journals(&self, dirs: impl IntoIterator<Item = LogDirIndex>) {
        for dir in dirs {
            let slot = &self.journals[dir.index()];
            let _change = slot.changing.acquire(1).await;
            let is_begun = !matches!(*slot.state.borrow(), JournalState::NotBegun);
            if !is_begun {
                let begun = self.start_journal(dir).await;
                slot.state.replace(begun);
            }
        }
    }

    /// Without one, because a disk is full for instance, logs commit for themselves: slower, and no less durable.
    async fn start_journal(&self, dir: LogDirIndex) -> JournalState<D, R> {
        let settings = self.settings.journal;
        let mut seed = [0; 8];
        let seeded = getrandom::fill(&mut seed);
        let data_dir = self.data_dir(dir);
        let options = JournalOptions {
            dir: folder(data_dir.path(), settings.number),
            live_bytes_max: settings.live_bytes_max,
            staged_bytes_max: settings.staged_bytes_max,
            batch_bytes_max: settings.batch_bytes_max,
            shard_count: settings.shard_count,
            salt_seed: u64::from_ne_bytes(seed),
        };
        let path = options.dir.clone();
        let opened = match seeded {
            Ok(()) => {
                Journal::open(data_dir.disk().clone(), self.runtime.clone(), options).await.map_err(|e| e.to_string())
            }
            Err(error) => Err(format!("no random numbers from the kernel: {error}")),
        };
        match opened {
            Ok(journal) => JournalState::Open(journal),
            Err(error) => {
                let path = path.display();
                tracing::error!(%path, error, "no journal: every log commits for itself until a restart");
                JournalState::Absent
            }
        }
    }

    pub(super) fn journal_of(&self, id: PartitionId, dir: LogDirIndex) -> Option<JournalHandle<D, R>> {
        let journal = self.journals[dir.index()].state.borrow().open()?.clone();
        let topic_id: Uuid = id.topic_id.get();
        Some(JournalHandle { journal, topic_id, partition: id.index })
    }

    /// Ends the journal of a directory. False when it had failed.
    pub(super) async fn end_journal(&self, dir: LogDirIndex) -> bool {
        let slot = &self.journals[dir.index()];
        let _change = slot.changing.acquire(1).await;
        let state = slot.state.replace(JournalState::Absent);
        let Some(journal) = state.open() else { return true };
        match journal.close().await {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(%error, "the journal is not closed; the next start replays it");
                false
            }
        }
    }

    /// By directory, whether the shard's journal in it takes nothing any more.
    pub(super) fn failed_journals(&self) -> Vec<bool> {
        let has_failed =
            |slot: &JournalSlot<D, R>| slot.state.borrow().open().is_some_and(|journal| journal.failure().is_some());
        self.journals.iter().map(has_failed).collect()
    }

    /// A round of a log that the disk takes long over; `slowest` of all.
    pub(super) fn publish_slow_log(&self, slowest: Option<(Duration, &Partition<D, R>)>) {
        let Some((age, partition)) = slowest else { return };
        self.settings.metrics.log_commit_age_ms.set(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        if self.is_worth_saying(&self.slow_log_said, age) {
            let (topic, index, seconds) = (&partition.topic, partition.id.index, age.as_secs_f64());
            tracing::warn!(%topic, partition = index, seconds, "the disk keeps a log waiting that writes to its segment");
        }
    }

    /// Once for each commit that is slow, which is counted, and again when it has become much slower.
    fn is_worth_saying(&self, said: &Cell<Duration>, age: Duration) -> bool {
        let last = said.get();
        if age < SLOW_COMMIT {
            said.set(Duration::ZERO);
            return false;
        }
        if last.is_zero() {
            self.settings.metrics.slow_commits.increment();
        }
        let is_worth = age >= last * 10;
        if is_worth {
            said.set(age);
        }
        is_worth
    }

    /// What the journals have done and hold.
    pub(super) fn publish_journals(&self) {
        let metrics = &self.settings.metrics;
        let (mut slowest, mut has_failed, mut is_stalled) = (Duration::ZERO, false, false);
        let (mut live_bytes, mut staged_bytes) = (0, 0);
        for (slot, (_, log_dir)) in self.journals.iter().zip(self.settings.log_dirs.iter()) {
            let slot = slot.state.borrow();
            let Some(journal) = slot.open() else { continue };
            metrics.journal_commits.add(journal.take_commit_count());
            slowest = slowest.max(journal.commit_age());
            if let Some(failure) = journal.failure() {
                has_failed = true;
                log_dir.fail(&failure.to_string());
            }
            is_stalled |= journal.is_stalled();
            live_bytes += journal.live_bytes();
            staged_bytes += journal.staged_bytes() as u64;
        }
        metrics.journal_commit_age_ms.set(u64::try_from(slowest.as_millis()).unwrap_or(u64::MAX));
        metrics.journal_failed.set(u64::from(has_failed));
        metrics.journal_stalled.set(u64::from(is_stalled));
        if self.is_worth_saying(&self.slow_commit_said, slowest) {
            let (number, seconds) = (self.settings.journal.number, slowest.as_secs_f64());
            tracing::warn!(journal = number, seconds, "the disk keeps a commit waiting, and every append behind it");
        }
        metrics.journal_live_bytes.set(live_bytes);
        metrics.journal_staged_bytes.set(staged_bytes);
    }
}
