//! The journal of a shard: begun before its first log is opened, ended after the last one is closed.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use walser_protocol::types::Uuid;
use walser_storage::disk::Disk;
use walser_storage::journal::{Journal, JournalHandle, JournalOptions, folder};
use walser_storage::runtime::Runtime;

use super::{Partition, PartitionId, Partitions};

/// What a shard's journal may take.
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

/// The journal while there is one.
pub(super) type JournalSlot<D, R> = RefCell<Option<Journal<D, R>>>;

impl<D: Disk, R: Runtime> Partitions<D, R> {
    /// Begins the journal. Without one, because a disk is full for instance, logs commit for themselves: slower, and no less
    /// durable.
    pub(super) async fn start_journal(&self) {
        let settings = self.settings.journal;
        let mut seed = [0; 8];
        let seeded = getrandom::fill(&mut seed);
        let options = JournalOptions {
            dir: folder(self.settings.data_dir.path(), settings.number),
            live_bytes_max: settings.live_bytes_max,
            staged_bytes_max: settings.staged_bytes_max,
            batch_bytes_max: settings.batch_bytes_max,
            shard_count: settings.shard_count,
            salt_seed: u64::from_ne_bytes(seed),
        };
        let opened = match seeded {
            Ok(()) => Journal::open(self.disk.clone(), self.runtime.clone(), options).await.map_err(|e| e.to_string()),
            Err(error) => Err(format!("no random numbers from the kernel: {error}")),
        };
        match opened {
            Ok(journal) => *self.journal.borrow_mut() = Some(journal),
            Err(error) => {
                tracing::error!(
                    journal = settings.number,
                    error,
                    "no journal: every log commits for itself until a restart"
                );
            }
        }
    }

    pub(super) fn journal_of(&self, id: PartitionId) -> Option<JournalHandle<D, R>> {
        let journal = self.journal.borrow().clone()?;
        let topic_id: Uuid = id.topic_id.get();
        Some(JournalHandle { journal, topic_id, partition: id.index })
    }

    /// Ends the journal. False when it had failed.
    pub(super) async fn end_journal(&self) -> bool {
        let journal = self.journal.borrow_mut().take();
        let Some(journal) = journal else { return true };
        match journal.close().await {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(%error, "the journal is not closed; the next start replays it");
                false
            }
        }
    }

    pub(super) fn has_journal_failed(&self) -> bool {
        self.journal.borrow().as_ref().is_some_and(|journal| journal.failure().is_some())
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

    /// What the journal has done and holds.
    pub(super) fn publish_journal(&self) {
        let journal = self.journal.borrow();
        let Some(journal) = journal.as_ref() else { return };
        let metrics = &self.settings.metrics;
        metrics.journal_commits.add(journal.take_commit_count());
        let age = journal.commit_age();
        metrics.journal_commit_age_ms.set(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        metrics.journal_failed.set(u64::from(journal.failure().is_some()));
        metrics.journal_stalled.set(u64::from(journal.is_stalled()));
        if self.is_worth_saying(&self.slow_commit_said, age) {
            let (number, seconds) = (self.settings.journal.number, age.as_secs_f64());
            tracing::warn!(journal = number, seconds, "the disk keeps a commit waiting, and every append behind it");
        }
        metrics.journal_live_bytes.set(journal.live_bytes());
        metrics.journal_staged_bytes.set(journal.staged_bytes() as u64);
    }
}
