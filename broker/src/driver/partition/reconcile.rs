//! Makes the shard's logs match a metadata image: opens, creates, reconfigures, deletes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use walser_machine::metadata::image::TopicImage;
use walser_machine::metadata::{MetadataDelta, MetadataImage};
use walser_storage::checkpoint::OffsetCheckpoint;
use walser_storage::compaction::CompactionConfig;
use walser_storage::data_dir::partition::{DELETE_SUFFIX, aside_name, dir_name};
use walser_storage::data_dir::{DataDir, Removal};
use walser_storage::disk::{DirEntry, Disk};
use walser_storage::error::{DiskError, OpenError};
use walser_storage::log::known_end::KnownEnd;
use walser_storage::log::{Log, LogConfig, OpenLog, Retention};
use walser_storage::runtime::Runtime;
use walser_storage::runtime::channel::Closed;

use super::{Partition, PartitionId, Partitions, Waiters};
use crate::config::topic::{Durability, TimestampType, TopicConfig};
use crate::driver::checkpoints::LogOffsets;
use crate::driver::side_by_side::SideBySide;

/// Logs that are opened, closed or deleted at the same time: each is a row of small waits for the disk.
const LOGS_AT_ONCE: usize = 32;

/// From so many logs on one flush of the whole file system is cheaper, even if others write to it.
const SYNC_ALL_FROM: usize = 128;

/// Directories that are listed together: what is in them takes memory until their logs are open.
const LISTED_AT_ONCE: usize = 1024;

/// What the last run left for the logs, read once at start.
#[derive(Debug, Default)]
pub struct Boot {
    /// Directories have just been held against the metadata: those that are there are the topics'.
    pub is_start: bool,
    /// The last stop was a clean one.
    pub is_clean: bool,
    pub recovery_points: OffsetCheckpoint,
    pub log_start_offsets: OffsetCheckpoint,
    pub first_dirty_offsets: OffsetCheckpoint,
    /// What was noted of the ends of logs.
    pub ends: BTreeMap<PartitionId, Arc<[u8]>>,
}

/// What a shard asks the rest of the broker while it reconciles.
pub trait Assignment {
    /// Whether this shard owns the partition.
    fn owns(&self, id: PartitionId) -> bool;
    /// The topic's configs in this image.
    fn topic_config(&self, topic: &str) -> TopicConfig;
}

/// Offsets of a log that was closed, for the checkpoints of a clean stop.
#[derive(Clone, Debug)]
pub struct ClosedLog {
    pub offsets: LogOffsets,
    pub high_watermark: i64,
    /// What is noted of its end.
    pub end: Option<Arc<[u8]>>,
}

#[derive(Debug, thiserror::Error)]
enum PartitionError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// What the partitions of one topic share.
struct TopicConfigs {
    name: Arc<str>,
    topic: Rc<TopicConfig>,
    log: Rc<LogConfig>,
}

impl TopicConfigs {
    /// The last one that was asked for is kept: partitions come topic by topic.
    fn of<'a>(last: &'a mut Option<Self>, name: &Arc<str>, assignment: &impl Assignment) -> &'a Self {
        let known = last.take().filter(|known| known.name == *name);
        last.insert(known.unwrap_or_else(|| {
            let topic = assignment.topic_config(name);
            Self { name: Arc::clone(name), log: Rc::new(log_config(&topic)), topic: Rc::new(topic) }
        }))
    }
}

/// A log that was opened, or why not.
struct Opened<D: Disk, R: Runtime> {
    id: PartitionId,
    topic: Arc<str>,
    leader_epoch: i32,
    config: Rc<TopicConfig>,
    /// With whether it is to be used only once everything is flushed.
    log: Result<(Log<D, R>, bool), PartitionError>,
}

/// What is known before a log is opened.
struct Finding {
    /// What lies in its directory.
    entries: Option<Vec<DirEntry>>,
    /// Everything is flushed once all logs are open.
    defers_sync: bool,
}

type Opening<D, R> = SideBySide<R, Opened<D, R>>;

impl<D: Disk, R: Runtime> Partitions<D, R> {
    /// Opens every partition of the first image, and the journal before.
    pub async fn open_all(&self, image: &MetadataImage, boot: &Boot, assignment: &impl Assignment) {
        self.start_journal().await;
        self.open_topics(image.topics(), boot, assignment).await;
    }

    /// Goes from the image before `delta` to the one after it. When it returns, requests see the new state.
    pub async fn apply(&self, image: &MetadataImage, delta: &MetadataDelta, assignment: &impl Assignment) {
        self.delete_topics(delta.topics_deleted.iter()).await;
        let fresh = Boot::default();
        let created = delta.topics_created.iter();
        let changed = delta.topics_changed.iter().map(|change| &change.after);
        self.open_topics(created.chain(changed.clone()), &fresh, assignment).await;
        for topic in changed {
            self.follow_epochs(topic);
        }
        if !delta.configs_changed.is_empty() {
            self.reconfigure(image, assignment);
        }
    }

    /// Closes every log; the offsets of those that closed cleanly, and whether all did.
    pub async fn close_all(&self) -> (Vec<ClosedLog>, bool) {
        self.stop_waiting();
        self.tasks.close_and_wait().await;
        let mut closing = SideBySide::new(&self.runtime, LOGS_AT_ONCE);
        let mut results = Vec::new();
        for partition in self.all() {
            results.extend(closing.start(close(partition)).await);
        }
        while let Some(result) = closing.next().await {
            results.push(result);
        }
        let count = results.len();
        let closed: Vec<_> = results.into_iter().filter_map(|result| result.ok().flatten()).collect();
        let is_ended = self.end_journal().await;
        let is_clean = is_ended && closed.len() == count && self.failed.borrow().is_empty();
        (closed, is_clean)
    }

    async fn open_topics<'a>(
        &self,
        topics: impl Iterator<Item = &'a Arc<TopicImage>>,
        boot: &Boot,
        assignment: &impl Assignment,
    ) {
        let mut wanted = Vec::new();
        for topic in topics {
            for (index, image) in (0..).zip(&topic.partitions) {
                let id = PartitionId { topic_id: topic.topic_id, index };
                let is_ours = image.leader.is_some_and(|leader| leader.get() == self.settings.node_id);
                if is_ours && assignment.owns(id) && self.find(id).is_none() {
                    wanted.push((id, &topic.name, image.leader_epoch.get()));
                }
            }
        }
        let defers_sync = boot.is_start && self.disk.syncs_all() && wanted.len() >= SYNC_ALL_FROM;
        let mut found = Vec::new();
        let mut opening = Opening::new(&self.runtime, LOGS_AT_ONCE);
        let mut config_of: Option<TopicConfigs> = None;
        for part in wanted.chunks(LISTED_AT_ONCE) {
            let path =
                |(id, topic, _): &(PartitionId, &Arc<str>, i32)| self.settings.data_dir.partition_path(topic, id.index);
            let paths = if boot.is_start { part.iter().map(path).collect() } else { Vec::new() };
            // Where that fails each log finds out for itself what is wrong.
            let mut lists = self.disk.list_dirs(paths).await.unwrap_or_default().into_iter();
            for &(id, topic, leader_epoch) in part {
                let configs = TopicConfigs::of(&mut config_of, topic, assignment);
                let config = Rc::clone(&configs.topic);
                let finding = Finding { entries: lists.next().flatten(), defers_sync };
                let log = self.open(id, topic, boot, Rc::clone(&configs.log), finding);
                let topic = Arc::clone(topic);
                let opened = async move { Opened { id, topic, leader_epoch, config, log: log.await } };
                // A task that was given up leaves its partition without a log: the broker is ending.
                found.extend(opening.start(opened).await.and_then(Result::ok));
            }
        }
        while let Some(opened) = opening.next().await {
            found.extend(opened.ok());
        }
        let needs_sync = found.iter().any(|opened| opened.log.as_ref().is_ok_and(|(_, needs_sync)| *needs_sync));
        let synced = if needs_sync { self.disk.sync_all(self.settings.data_dir.path()).await } else { Ok(()) };
        for mut opened in found {
            if let (Ok((_, true)), Err(error)) = (&opened.log, &synced) {
                let error = std::io::Error::new(error.kind(), error.to_string());
                opened.log = Err(DiskError::new("sync all of", self.settings.data_dir.path(), error).into());
            }
            self.add(opened);
        }
    }

    /// Everything it needs is its own, so that many can run beside each other.
    fn open(
        &self,
        id: PartitionId,
        topic: &Arc<str>,
        boot: &Boot,
        config: Rc<LogConfig>,
        finding: Finding,
    ) -> impl Future<Output = Result<(Log<D, R>, bool), PartitionError>> + 'static {
        let key = (topic.to_string(), id.index);
        let (data_dir, topic) = (self.data_dir(), Arc::clone(topic));
        let open = OpenLog {
            disk: self.disk.clone(),
            runtime: self.runtime.clone(),
            open_files: Rc::clone(&self.open_files),
            budget: Rc::clone(&self.budget),
            journal: self.journal_of(id),
            dir: PathBuf::new(),
            entries: finding.entries,
            defers_sync: finding.defers_sync,
            known_end: boot.ends.get(&id).and_then(|note| read_note(&topic, id, note)),
            config,
            is_clean: boot.is_clean,
            recovery_point: boot.recovery_points.offsets.get(&key).copied(),
            log_start_offset: boot.log_start_offsets.offsets.get(&key).copied(),
            first_dirty_offset: boot.first_dirty_offsets.offsets.get(&key).copied(),
            now_ms: self.runtime.wall_clock_ms(),
        };
        async move {
            // One that is there was held against the metadata.
            let dir = match &open.entries {
                Some(_) => data_dir.partition_path(&topic, id.index),
                None => data_dir.create_partition(&topic, id.index, id.topic_id.get()).await?,
            };
            let (log, report) = Log::open(OpenLog { dir, ..open }).await?;
            if let Some(cut) = &report.cut {
                tracing::warn!(%topic, partition = id.index, bytes = cut.bytes, at = %cut.at,
                    "an end that was never acknowledged is cut off");
            }
            if let Some(corruption) = &report.corruption {
                tracing::error!(%topic, partition = id.index, %corruption, "the log takes no appends");
            }
            Ok((log, report.needs_sync))
        }
    }

    fn add(&self, opened: Opened<D, R>) {
        let Opened { id, topic, leader_epoch, config, log } = opened;
        let log = match log {
            Ok((log, _)) => log,
            Err(error) => {
                tracing::error!(%topic, partition = id.index, %error, "partition is offline");
                self.failed.borrow_mut().insert(id);
                return;
            }
        };
        let waiters = Rc::new(Waiters::default());
        let woken = Rc::clone(&waiters);
        log.set_listener(Rc::new(move || woken.wake_all()));
        log.begin_epoch(leader_epoch);
        let (leader_epoch, config) = (Cell::new(leader_epoch), RefCell::new(config));
        let partition = Partition {
            id,
            topic,
            log,
            leader_epoch,
            config,
            waiters,
            noted: Cell::new((0, 0, 0)),
            is_uncleanable: Cell::new(false),
        };
        self.by_id.borrow_mut().insert(id, Rc::new(partition));
    }

    /// Removes what retention does not keep, log by log; how many segments.
    pub async fn apply_retention(&self) -> usize {
        let mut removed = 0;
        for partition in self.all() {
            removed += self.apply_retention_to(&partition).await;
        }
        removed
    }

    /// Removes what retention does not keep of one log; how many segments.
    pub async fn apply_retention_to(&self, partition: &Partition<D, R>) -> usize {
        let now_ms = self.runtime.wall_clock_ms();
        match partition.log.remove_old_segments(now_ms, partition.high_watermark()).await {
            Ok(count) => count,
            Err(error) => {
                let (topic, index) = (&partition.topic, partition.id.index);
                tracing::warn!(%topic, partition = index, %error, "old segments not removed");
                0
            }
        }
    }

    fn follow_epochs(&self, topic: &TopicImage) {
        for (index, image) in (0..).zip(&topic.partitions) {
            let Some(partition) = self.find(PartitionId { topic_id: topic.topic_id, index }) else { continue };
            let leader_epoch = image.leader_epoch.get();
            if partition.leader_epoch.replace(leader_epoch) != leader_epoch {
                partition.log.begin_epoch(leader_epoch);
                partition.waiters.wake_all();
            }
        }
    }

    fn reconfigure(&self, _image: &MetadataImage, assignment: &impl Assignment) {
        // A change of the broker's own configs reaches every topic that does not override it.
        let mut config_of = None;
        for partition in self.all() {
            let configs = TopicConfigs::of(&mut config_of, &partition.topic, assignment);
            if partition.config() != configs.topic {
                partition.log.set_config(Rc::clone(&configs.log));
                *partition.config.borrow_mut() = Rc::clone(&configs.topic);
            }
        }
    }

    /// The names are free when this returns; the files go in the background.
    async fn delete_topics<'a>(&self, topics: impl Iterator<Item = &'a Arc<TopicImage>>) {
        let mut deleting = SideBySide::new(&self.runtime, LOGS_AT_ONCE);
        for topic in topics {
            for (index, _) in (0..).zip(&topic.partitions) {
                let id = PartitionId { topic_id: topic.topic_id, index };
                self.failed.borrow_mut().remove(&id);
                let Some(partition) = self.by_id.borrow_mut().remove(&id) else { continue };
                partition.waiters.wake_all();
                self.remove_later(deleting.start(set_aside(self.data_dir(), partition)).await);
            }
        }
        while let Some(aside) = deleting.next().await {
            self.remove_later(Some(aside));
        }
    }

    fn remove_later(&self, aside: Option<Result<Option<String>, Closed>>) {
        let Some(Ok(Some(dir_name))) = aside else { return };
        let data_dir = self.data_dir();
        // A stop does not wait for it.
        self.runtime.spawn(async move {
            if let Err(error) = data_dir.remove_partition_dir(&dir_name, Removal::InSteps).await {
                tracing::warn!(%error, "deleted log not removed; the next start tries again");
            }
        });
    }

    fn data_dir(&self) -> DataDir<D> {
        self.settings.data_dir.clone()
    }
}

fn read_note(topic: &str, id: PartitionId, note: &[u8]) -> Option<Rc<KnownEnd>> {
    match KnownEnd::decode(note) {
        Ok(known) => Some(Rc::new(known)),
        Err(error) => {
            tracing::warn!(topic, partition = id.index, %error, "what is noted of the log's end is not used");
            None
        }
    }
}

/// Offsets of the log once it is closed; `None` when it could not be.
async fn close<D: Disk, R: Runtime>(partition: Rc<Partition<D, R>>) -> Option<ClosedLog> {
    if let Err(error) = partition.log.close().await {
        tracing::error!(topic = %partition.topic, partition = partition.id.index, %error, "log not closed");
        return None;
    }
    // Without one the next start looks for itself.
    let end = partition.log.next_note().await.ok().flatten().map(Arc::from);
    Some(ClosedLog { offsets: partition.offsets(), high_watermark: partition.log.durable_end_offset(), end })
}

/// Closes a deleted log and renames its directory; the new name.
async fn set_aside<D: Disk, R: Runtime>(data_dir: DataDir<D>, partition: Rc<Partition<D, R>>) -> Option<String> {
    let (topic, index) = (&partition.topic, partition.id.index);
    if let Err(error) = partition.log.close().await {
        tracing::warn!(%topic, partition = index, %error, "deleted log not closed");
    }
    partition.log.forget_journal();
    let unique = u128::from_be_bytes(*partition.id.topic_id.get().as_bytes());
    let new_name = aside_name(topic, index, unique, DELETE_SUFFIX);
    match data_dir.rename_partition_dir(&dir_name(topic, index), &new_name).await {
        Ok(()) => Some(new_name),
        Err(error) => {
            tracing::error!(%topic, partition = index, %error, "deleted log keeps its directory until the next start");
            None
        }
    }
}

fn log_config(config: &TopicConfig) -> LogConfig {
    let positive = |number: i32| number.unsigned_abs();
    LogConfig {
        segment_bytes: positive(config.segment_bytes),
        // Only what is in a finished segment can be compacted.
        segment_ms: if config.cleanup.compact {
            config.segment_ms.min(config.max_compaction_lag_ms)
        } else {
            config.segment_ms
        },
        segment_index_bytes: positive(config.segment_index_bytes),
        index_interval_bytes: positive(config.index_interval_bytes),
        durability: match config.durability {
            Durability::Flushed => walser_storage::log::Durability::Flushed,
            Durability::Written => walser_storage::log::Durability::Written,
            Durability::Memory => walser_storage::log::Durability::Memory,
        },
        flush_messages: config.flush_messages,
        flush_ms: config.flush_ms,
        retention: Retention {
            by_policy: config.cleanup.delete,
            ms: config.retention_ms,
            bytes: config.retention_bytes,
            file_delete_delay: Duration::from_millis(u64::try_from(config.file_delete_delay_ms).unwrap_or(0)),
        },
        compaction: CompactionConfig {
            by_policy: config.cleanup.compact,
            min_dirty_ratio: config.min_cleanable_dirty_ratio,
            min_lag_ms: config.min_compaction_lag_ms,
            max_lag_ms: config.max_compaction_lag_ms,
            delete_retention_ms: config.delete_retention_ms,
        },
        is_log_append_time: config.timestamp_type == TimestampType::LogAppendTime,
        ..LogConfig::default()
    }
}
