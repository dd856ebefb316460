//! Makes the shard's logs match a metadata image: opens, creates, reconfigures, deletes.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use walser_machine::metadata::image::TopicImage;
use walser_machine::metadata::{MetadataDelta, MetadataImage};
use walser_storage::checkpoint::OffsetCheckpoint;
use walser_storage::data_dir::DataDir;
use walser_storage::data_dir::partition::{DELETE_SUFFIX, aside_name, dir_name};
use walser_storage::disk::Disk;
use walser_storage::error::{DiskError, OpenError};
use walser_storage::log::{Log, LogConfig, OpenLog};
use walser_storage::runtime::Runtime;
use walser_storage::runtime::channel::{OneshotReceiver, oneshot};

use super::{Partition, PartitionId, Partitions, Waiters};
use crate::config::topic::{Durability, TimestampType, TopicConfig};

/// Logs that are closed at the same time.
const CLOSING_MAX: usize = 32;

/// What the last run left for the logs, read once at start.
#[derive(Debug, Default)]
pub struct Boot {
    /// The last stop was a clean one.
    pub is_clean: bool,
    pub recovery_points: OffsetCheckpoint,
    pub log_start_offsets: OffsetCheckpoint,
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
    pub topic: Arc<str>,
    pub index: i32,
    pub log_start_offset: i64,
    pub recovery_point: i64,
    pub high_watermark: i64,
}

#[derive(Debug, thiserror::Error)]
enum PartitionError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl<D: Disk, R: Runtime> Partitions<D, R> {
    /// Opens every partition of the first image.
    pub async fn open_all(&self, image: &MetadataImage, boot: &Boot, assignment: &impl Assignment) {
        for topic in image.topics() {
            self.open_topic(topic, boot, assignment).await;
        }
    }

    /// Goes from the image before `delta` to the one after it. When it returns, requests see the new state.
    pub async fn apply(&self, image: &MetadataImage, delta: &MetadataDelta, assignment: &impl Assignment) {
        for topic in &delta.topics_deleted {
            self.delete_topic(topic).await;
        }
        let fresh = Boot::default();
        for topic in &delta.topics_created {
            self.open_topic(topic, &fresh, assignment).await;
        }
        for change in &delta.topics_changed {
            self.open_topic(&change.after, &fresh, assignment).await;
            self.follow_epochs(&change.after);
        }
        if !delta.configs_changed.is_empty() {
            self.reconfigure(image, assignment);
        }
    }

    /// Closes every log; the offsets of those that closed cleanly, and whether all did.
    pub async fn close_all(&self) -> (Vec<ClosedLog>, bool) {
        self.stop_waiting();
        self.tasks.close_and_wait().await;
        let mut closed = Vec::new();
        let mut is_clean = true;
        let mut closing = VecDeque::new();
        for partition in self.all() {
            if closing.len() >= CLOSING_MAX {
                is_clean &= take_closed(&mut closing, &mut closed).await;
            }
            closing.push_back(self.start_close(partition));
        }
        while !closing.is_empty() {
            is_clean &= take_closed(&mut closing, &mut closed).await;
        }
        (closed, is_clean && self.failed.borrow().is_empty())
    }

    /// Closing a log is a row of small flushes, which wait for the disk and not for each other.
    fn start_close(&self, partition: Rc<Partition<D, R>>) -> OneshotReceiver<Option<ClosedLog>> {
        let (sender, receiver) = oneshot();
        self.runtime.spawn(async move {
            let closed = match partition.log.close().await {
                Ok(_) => Some(ClosedLog {
                    topic: Arc::clone(&partition.topic),
                    index: partition.id.index,
                    log_start_offset: partition.log.log_start_offset(),
                    recovery_point: partition.log.recovery_point(),
                    high_watermark: partition.log.durable_end_offset(),
                }),
                Err(error) => {
                    tracing::error!(topic = %partition.topic, partition = partition.id.index, %error, "log not closed");
                    None
                }
            };
            // Past the deadline nobody asks any more.
            drop(sender.send(closed));
        });
        receiver
    }

    async fn open_topic(&self, topic: &TopicImage, boot: &Boot, assignment: &impl Assignment) {
        for (index, image) in (0..).zip(&topic.partitions) {
            let id = PartitionId { topic_id: topic.topic_id, index };
            let is_ours = image.leader.is_some_and(|leader| leader.get() == self.settings.node_id);
            if !is_ours || !assignment.owns(id) || self.find(id).is_some() {
                continue;
            }
            let config = assignment.topic_config(&topic.name);
            match self.open(id, topic, boot, &config).await {
                Ok(log) => self.add(id, topic, log, image.leader_epoch.get(), config),
                Err(error) => {
                    tracing::error!(topic = %topic.name, partition = index, %error, "partition is offline");
                    self.failed.borrow_mut().insert(id);
                }
            }
        }
    }

    async fn open(
        &self,
        id: PartitionId,
        topic: &TopicImage,
        boot: &Boot,
        config: &TopicConfig,
    ) -> Result<Log<D, R>, PartitionError> {
        let topic_id = id.topic_id.get();
        let data_dir = self.data_dir();
        let dir = data_dir.create_partition(&topic.name, id.index, topic_id).await?;
        let key = (topic.name.to_string(), id.index);
        let (log, report) = Log::open(OpenLog {
            disk: self.disk.clone(),
            runtime: self.runtime.clone(),
            budget: Rc::clone(&self.budget),
            dir,
            config: log_config(config),
            is_clean: boot.is_clean,
            recovery_point: boot.recovery_points.offsets.get(&key).copied(),
            log_start_offset: boot.log_start_offsets.offsets.get(&key).copied(),
            now_ms: self.runtime.wall_clock_ms(),
        })
        .await?;
        if let Some(cut) = &report.cut {
            tracing::warn!(topic = %topic.name, partition = id.index, bytes = cut.bytes, at = %cut.at,
                "an end that was never acknowledged is cut off");
        }
        if let Some(corruption) = &report.corruption {
            tracing::error!(topic = %topic.name, partition = id.index, %corruption, "the log takes no appends");
        }
        Ok(log)
    }

    fn add(&self, id: PartitionId, topic: &TopicImage, log: Log<D, R>, leader_epoch: i32, config: TopicConfig) {
        let waiters = Rc::new(Waiters::default());
        let woken = Rc::clone(&waiters);
        log.set_listener(Rc::new(move || woken.wake_all()));
        log.begin_epoch(leader_epoch);
        let partition = Partition {
            id,
            topic: Arc::clone(&topic.name),
            log,
            leader_epoch: Cell::new(leader_epoch),
            config: RefCell::new(Rc::new(config)),
            waiters,
        };
        self.by_id.borrow_mut().insert(id, Rc::new(partition));
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
        for partition in self.all() {
            let config = assignment.topic_config(&partition.topic);
            if *partition.config() != config {
                partition.log.set_config(log_config(&config));
                *partition.config.borrow_mut() = Rc::new(config);
            }
        }
    }

    async fn delete_topic(&self, topic: &TopicImage) {
        for (index, _) in (0..).zip(&topic.partitions) {
            let id = PartitionId { topic_id: topic.topic_id, index };
            self.failed.borrow_mut().remove(&id);
            let Some(partition) = self.by_id.borrow_mut().remove(&id) else { continue };
            partition.waiters.wake_all();
            self.delete(&partition).await;
        }
    }

    /// The name is free when this returns; the files go in the background.
    async fn delete(&self, partition: &Partition<D, R>) {
        let (topic, index) = (&partition.topic, partition.id.index);
        if let Err(error) = partition.log.close().await {
            tracing::warn!(%topic, partition = index, %error, "deleted log not closed");
        }
        let data_dir = self.data_dir();
        let unique = u128::from_be_bytes(*partition.id.topic_id.get().as_bytes());
        let new_name = aside_name(topic, index, unique, DELETE_SUFFIX);
        if let Err(error) = data_dir.rename_partition_dir(&dir_name(topic, index), &new_name).await {
            tracing::error!(%topic, partition = index, %error, "deleted log keeps its directory until the next start");
            return;
        }
        let Some(guard) = self.tasks.enter() else { return };
        self.runtime.spawn(async move {
            let _guard = guard;
            if let Err(error) = data_dir.remove_partition_dir(&new_name).await {
                tracing::warn!(%error, "deleted log not removed; the next start tries again");
            }
        });
    }

    fn data_dir(&self) -> DataDir<D> {
        self.settings.data_dir.clone()
    }
}

/// Waits for the oldest log that is being closed; false when it could not be.
async fn take_closed(closing: &mut VecDeque<OneshotReceiver<Option<ClosedLog>>>, closed: &mut Vec<ClosedLog>) -> bool {
    let Some(oldest) = closing.pop_front() else { return true };
    let Some(log) = oldest.await.ok().flatten() else { return false };
    closed.push(log);
    true
}

fn log_config(config: &TopicConfig) -> LogConfig {
    let positive = |number: i32| number.unsigned_abs();
    LogConfig {
        segment_bytes: positive(config.segment_bytes),
        segment_ms: config.segment_ms,
        segment_index_bytes: positive(config.segment_index_bytes),
        index_interval_bytes: positive(config.index_interval_bytes),
        durability: match config.durability {
            Durability::Flushed => walser_storage::log::Durability::Flushed,
            Durability::Written => walser_storage::log::Durability::Written,
            Durability::Memory => walser_storage::log::Durability::Memory,
        },
        flush_messages: config.flush_messages,
        flush_ms: config.flush_ms,
        is_log_append_time: config.timestamp_type == TimestampType::LogAppendTime,
        ..LogConfig::default()
    }
}
