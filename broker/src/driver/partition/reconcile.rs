//! Makes the shard's logs match a metadata image: opens, creates, reconfigures, deletes.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
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

use super::moves::FoundMove;
use super::{Partition, PartitionId, Partitions, Waiters};
use crate::config::topic::{Durability, TimestampType, TopicConfig};
use crate::driver::checkpoints::LogOffsets;
use crate::driver::side_by_side::SideBySide;
use crate::log_dirs::LogDirIndex;

/// Logs that are opened, closed or deleted at the same time: each is a row of small waits for the disk.
const LOGS_AT_ONCE: usize = 32;

/// From so many logs on one flush of the whole file system is cheaper, even if others write to it.
const SYNC_ALL_FROM: usize = 128;

/// Directories that are listed together: what is in them takes memory until their logs are open.
const LISTED_AT_ONCE: usize = 1024;

/// In which directory each partition's log is, or is to be made. Of a partition that is not there the directory is not online.
pub type Homes = BTreeMap<PartitionId, LogDirIndex>;

/// What the last run left for the logs, read once at start.
#[derive(Debug, Default)]
pub struct Boot {
    /// Directories have just been held against the metadata: those that are there are the topics'.
    pub is_start: bool,
    /// One for each directory; nothing is known of one that is not there.
    pub dirs: Vec<DirBoot>,
    /// Replicas that were on their way to other directories.
    pub moves: BTreeMap<PartitionId, FoundMove>,
    /// Directories of partitions that may have been moved to one that is not there: what is noted of them stays.
    pub held: Homes,
}

/// What it left in one directory.
#[derive(Debug, Default)]
pub struct DirBoot {
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

/// A log that is to be opened.
struct Wanted<'a> {
    id: PartitionId,
    topic: &'a Arc<str>,
    leader_epoch: i32,
    dir: LogDirIndex,
}

/// A log that was opened, or why not.
struct Opened<D: Disk, R: Runtime> {
    id: PartitionId,
    topic: Arc<str>,
    dir: LogDirIndex,
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

/// Where a directory is that was put aside; `None` when it is where it was.
type Aside<D> = Option<(DataDir<D>, String)>;

type Opening<D, R> = SideBySide<R, Opened<D, R>>;

impl<D: Disk, R: Runtime> Partitions<D, R> {
    /// Opens every partition of the first image.
    pub async fn open_all(&self, image: &MetadataImage, boot: &Boot, homes: &Homes, assignment: &impl Assignment) {
        if let [(only, log_dir)] = self.settings.log_dirs.iter().collect::<Vec<_>>()[..]
            && !log_dir.is_offline()
        {
            // It will be needed. Of several directories perhaps not all have logs of this shard.
            self.start_journals([only]).await;
        }
        self.open_topics(image.topics(), boot, homes, assignment).await;
        for (id, found) in boot.moves.iter().filter(|(id, _)| assignment.owns(**id)) {
            self.resume_move(*id, found);
        }
    }

    /// Goes from the image before `delta` to the one after it. `homes` are those of new partitions. When it returns, requests
    /// see the new state.
    pub async fn apply(
        &self,
        image: &MetadataImage,
        delta: &MetadataDelta,
        homes: &Homes,
        assignment: &impl Assignment,
    ) {
        self.delete_topics(delta.topics_deleted.iter()).await;
        let fresh = Boot::default();
        let created = delta.topics_created.iter();
        let changed = delta.topics_changed.iter().map(|change| &change.after);
        self.open_topics(created.chain(changed.clone()), &fresh, homes, assignment).await;
        for topic in changed {
            self.follow_epochs(topic);
        }
        if !delta.configs_changed.is_empty() {
            self.reconfigure(image, assignment);
        }
    }

    /// Closes every log; the offsets of those that closed cleanly, and the directories in which not all did.
    pub async fn close_all(&self) -> (Vec<ClosedLog>, BTreeSet<LogDirIndex>) {
        self.stop_waiting();
        self.tasks.close_and_wait().await;
        let mut closing = SideBySide::new(&self.runtime, LOGS_AT_ONCE);
        let mut results = Vec::new();
        let partitions = self.all();
        for partition in &partitions {
            results.extend(closing.start(close(Rc::clone(partition))).await);
        }
        while let Some(result) = closing.next().await {
            results.push(result);
        }
        let mut unclean: BTreeSet<LogDirIndex> = self.failed.borrow().values().filter_map(|dir| *dir).collect();
        unclean.extend(self.moves.unclean());
        let mut closed = Vec::with_capacity(results.len());
        for (partition, result) in partitions.iter().zip(results) {
            match result.ok().flatten() {
                Some(log) => closed.push(log),
                None => drop(unclean.insert(partition.dir)),
            }
        }
        for (dir, _) in self.settings.log_dirs.iter() {
            if !self.end_journal(dir).await {
                unclean.insert(dir);
            }
        }
        (closed, unclean)
    }

    async fn open_topics<'a>(
        &self,
        topics: impl Iterator<Item = &'a Arc<TopicImage>>,
        boot: &Boot,
        homes: &Homes,
        assignment: &impl Assignment,
    ) {
        let wanted = self.wanted(topics, boot, homes, assignment);
        let used: BTreeSet<LogDirIndex> = wanted.iter().map(|wanted| wanted.dir).collect();
        self.start_journals(used).await;
        let defers_sync = boot.is_start && wanted.len() >= SYNC_ALL_FROM;
        let mut found = Vec::new();
        let mut opening = Opening::new(&self.runtime, LOGS_AT_ONCE);
        let mut config_of: Option<TopicConfigs> = None;
        for part in wanted.chunks(LISTED_AT_ONCE) {
            let path = |Wanted { id, topic, dir, .. }: &Wanted<'_>| self.data_dir(*dir).partition_path(topic, id.index);
            let paths = if boot.is_start { part.iter().map(path).collect() } else { Vec::new() };
            // Where that fails each log finds out for itself what is wrong.
            let mut lists = self.settings.data_dirs[0].disk().list_dirs(paths).await.unwrap_or_default().into_iter();
            for wanted in part {
                let configs = TopicConfigs::of(&mut config_of, wanted.topic, assignment);
                let config = Rc::clone(&configs.topic);
                let defers_sync = defers_sync && self.data_dir(wanted.dir).disk().syncs_all();
                let finding = Finding { entries: lists.next().flatten(), defers_sync };
                let log = self.open(wanted, boot, Rc::clone(&configs.log), finding);
                let Wanted { id, topic, leader_epoch, dir } = *wanted;
                let topic = Arc::clone(topic);
                let opened = async move { Opened { id, topic, dir, leader_epoch, config, log: log.await } };
                // A task that was given up leaves its partition without a log: the broker is ending.
                found.extend(opening.start(opened).await.and_then(Result::ok));
            }
        }
        while let Some(opened) = opening.next().await {
            found.extend(opened.ok());
        }
        self.sync_all(&mut found).await;
        for opened in found {
            self.add(opened);
        }
    }

    /// What of these topics is this shard's and has no log. What has no directory is noted as failed.
    fn wanted<'a>(
        &self,
        topics: impl Iterator<Item = &'a Arc<TopicImage>>,
        boot: &Boot,
        homes: &Homes,
        assignment: &impl Assignment,
    ) -> Vec<Wanted<'a>> {
        let mut wanted = Vec::new();
        for topic in topics {
            for (index, image) in (0..).zip(&topic.partitions) {
                let id = PartitionId { topic_id: topic.topic_id, index };
                let is_ours = image.leader.is_some_and(|leader| leader.get() == self.settings.node_id);
                if !is_ours || !assignment.owns(id) || self.find(id).is_some() {
                    continue;
                }
                match homes.get(&id) {
                    Some(&dir) => {
                        let leader_epoch = image.leader_epoch.get();
                        wanted.push(Wanted { id, topic: &topic.name, leader_epoch, dir });
                    }
                    None => drop(self.failed.borrow_mut().entry(id).or_insert(boot.held.get(&id).copied())),
                }
            }
        }
        wanted
    }

    /// Flushes file systems once for all logs in them that left that to it.
    async fn sync_all(&self, found: &mut [Opened<D, R>]) {
        let needs_sync = |opened: &Opened<D, R>| opened.log.as_ref().is_ok_and(|(_, needs_sync)| *needs_sync);
        let dirs: BTreeSet<LogDirIndex> = found.iter().filter(|o| needs_sync(o)).map(|opened| opened.dir).collect();
        for dir in dirs {
            let data_dir = self.data_dir(dir);
            let Err(error) = data_dir.disk().sync_all(data_dir.path()).await else { continue };
            for opened in found.iter_mut().filter(|opened| opened.dir == dir && needs_sync(opened)) {
                let error = std::io::Error::new(error.kind(), error.to_string());
                opened.log = Err(DiskError::new("sync all of", data_dir.path(), error).into());
            }
        }
    }

    /// Everything it needs is its own, so that many can run beside each other.
    fn open(
        &self,
        wanted: &Wanted<'_>,
        boot: &Boot,
        config: Rc<LogConfig>,
        finding: Finding,
    ) -> impl Future<Output = Result<(Log<D, R>, bool), PartitionError>> + 'static {
        let Wanted { id, topic, dir, .. } = *wanted;
        let key = (topic.to_string(), id.index);
        let (data_dir, topic) = (self.data_dir(dir).clone(), Arc::clone(topic));
        let unknown = DirBoot::default();
        let left = boot.dirs.get(dir.index()).unwrap_or(&unknown);
        let open = OpenLog {
            disk: data_dir.disk().clone(),
            runtime: self.runtime.clone(),
            open_files: Rc::clone(&self.open_files),
            budget: Rc::clone(&self.budget),
            journal: self.journal_of(id, dir),
            dir: PathBuf::new(),
            entries: finding.entries,
            defers_sync: finding.defers_sync,
            known_end: left.ends.get(&id).and_then(|note| read_note(&topic, id, note)),
            config,
            is_clean: left.is_clean,
            recovery_point: left.recovery_points.offsets.get(&key).copied(),
            log_start_offset: left.log_start_offsets.offsets.get(&key).copied(),
            first_dirty_offset: left.first_dirty_offsets.offsets.get(&key).copied(),
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
        let Opened { id, topic, dir, leader_epoch, config, log } = opened;
        let log = match log {
            Ok((log, _)) => log,
            Err(error) => {
                tracing::error!(%topic, partition = id.index, %error, "partition is offline");
                if let PartitionError::Disk(error) = &error
                    && !error.is_refusal()
                {
                    // Not even an empty log can be made there.
                    self.settings.log_dirs.dir(dir).fail(&error.to_string());
                }
                self.failed.borrow_mut().insert(id, Some(dir));
                return;
            }
        };
        self.failed.borrow_mut().remove(&id);
        let waiters = Rc::new(Waiters::default());
        let woken = Rc::clone(&waiters);
        log.set_listener(Rc::new(move || woken.wake_all()));
        log.begin_epoch(leader_epoch);
        let (leader_epoch, config) = (Cell::new(leader_epoch), RefCell::new(config));
        let partition = Partition {
            id,
            topic,
            dir,
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
        let _change = self.hold_moves().await;
        for topic in topics {
            for (index, _) in (0..).zip(&topic.partitions) {
                let id = PartitionId { topic_id: topic.topic_id, index };
                self.failed.borrow_mut().remove(&id);
                let Some(partition) = self.by_id.borrow_mut().remove(&id) else { continue };
                partition.waiters.wake_all();
                self.end_move_of(&partition).await;
                let data_dir = self.data_dir(partition.dir).clone();
                let done = deleting.start(set_aside(data_dir, partition)).await;
                self.remove_when_aside(done);
            }
        }
        while let Some(aside) = deleting.next().await {
            self.remove_when_aside(Some(aside));
        }
    }

    fn remove_when_aside(&self, aside: Option<Result<Aside<D>, Closed>>) {
        if let Some(Ok(Some((data_dir, dir_name)))) = aside {
            self.remove_later(data_dir, dir_name);
        }
    }

    pub(super) fn remove_later(&self, data_dir: DataDir<D>, dir_name: String) {
        // A stop does not wait for it.
        self.runtime.spawn(async move {
            if let Err(error) = data_dir.remove_partition_dir(&dir_name, Removal::InSteps).await {
                tracing::warn!(%error, "deleted log not removed; the next start tries again");
            }
        });
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

/// A name for a directory that is to be removed. A replica may leave the same directory again before it is.
pub(super) fn unused_name(topic: &str, id: PartitionId) -> String {
    let mut unique = *id.topic_id.get().as_bytes();
    if let Err(error) = getrandom::fill(&mut unique) {
        tracing::debug!(%error, "a directory is named after its topic's id");
    }
    aside_name(topic, id.index, u128::from_be_bytes(unique), DELETE_SUFFIX)
}

/// Closes a log that is not wanted any more and renames its directory; where it is now.
pub(super) async fn set_aside<D: Disk, R: Runtime>(data_dir: DataDir<D>, partition: Rc<Partition<D, R>>) -> Aside<D> {
    let (topic, index) = (&partition.topic, partition.id.index);
    if let Err(error) = partition.log.close().await {
        tracing::warn!(%topic, partition = index, %error, "deleted log not closed");
    }
    partition.log.forget_journal();
    let new_name = unused_name(topic, partition.id);
    match data_dir.rename_partition_dir(&dir_name(topic, index), &new_name).await {
        Ok(()) => Some((data_dir, new_name)),
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
