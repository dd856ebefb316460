//! Where every log begins, up to where it is durable and up to where compacted, for the next start. On the control executor: Kafka keeps the offsets
//! of all partitions of a data directory in one file each, and the partitions are those of all shards.
//!
//! The files of offsets name topics, not their ids. So what they say of a deleted topic is gone from them before its name can be used
//! again; after a crash in between, the start throws out what the metadata does not know.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use walser_machine::ids::TopicId;
use walser_machine::metadata::{MetadataDelta, MetadataImage};
use walser_storage::checkpoint::{CLEANER_OFFSET_FILE, LOG_START_OFFSET_FILE, OffsetCheckpoint, RECOVERY_POINT_FILE};
use walser_storage::data_dir::DataDir;
use walser_storage::data_dir::log_ends::{self, LogEnds};
use walser_storage::data_dir::partition::{DirKind, DirName, FoundDir};
use walser_storage::disk::Disk;
use walser_storage::error::DiskError;
use walser_storage::log::known_end::forget_journal;
use walser_storage::runtime::channel::Semaphore;

use super::partition::PartitionId;
use crate::log_dirs::LogDirIndex;

mod dirs;

pub use dirs::DirCheckpoints;

/// What is kept of one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOffsets {
    pub id: PartitionId,
    /// Where the log is.
    pub dir: LogDirIndex,
    pub topic: Arc<str>,
    /// `None` where it is not known.
    pub recovery_point: Option<i64>,
    pub log_start_offset: i64,
    /// 0 where nothing was compacted.
    pub first_dirty_offset: i64,
}

impl LogOffsets {
    /// As the files name the log.
    pub fn key(&self) -> (String, i32) {
        (self.topic.to_string(), self.id.index)
    }
}

/// What is noted of the end of one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEnd {
    pub id: PartitionId,
    /// Where the log is.
    pub dir: LogDirIndex,
    pub note: Arc<[u8]>,
}

/// The files of a data directory: three of offsets, and one of notes on the ends of logs.
pub struct Checkpoints<D> {
    data_dir: DataDir<D>,
    image: RefCell<Arc<MetadataImage>>,
    offsets: RefCell<BTreeMap<PartitionId, LogOffsets>>,
    /// Counts changes of `offsets`; and up to where they are in the files.
    changed: Cell<u64>,
    written: Cell<u64>,
    ends: RefCell<BTreeMap<PartitionId, Arc<[u8]>>>,
    /// The same for `ends`.
    ends_changed: Cell<u64>,
    ends_written: Cell<u64>,
    /// One writer at a time.
    writing: Semaphore,
    ended: Cell<bool>,
}

impl<D: Disk> Checkpoints<D> {
    /// Reads what the last run left. `found` are the directories there are: what is left of a partition counts where its
    /// directory is that of the topic in `image`, and goes where it is not. `found_ends` are the notes that were found: from
    /// here on they speak of the journals that are about to begin.
    pub async fn open(
        dir: LogDirIndex,
        data_dir: DataDir<D>,
        image: Arc<MetadataImage>,
        found: &[FoundDir],
        found_ends: LogEnds,
    ) -> Result<Rc<Self>, DiskError> {
        let recovery_points = data_dir.read_checkpoint(RECOVERY_POINT_FILE).await?.offsets;
        let log_start_offsets = data_dir.read_checkpoint(LOG_START_OFFSET_FILE).await?.offsets;
        let first_dirty_offsets = data_dir.read_checkpoint(CLEANER_OFFSET_FILE).await?.offsets;
        let mut offsets = BTreeMap::new();
        let mut here = BTreeSet::new();
        for found in found {
            let DirName { topic, partition, kind: DirKind::Partition } = &found.name else { continue };
            let Some(topic) = image.topic(topic) else { continue };
            if found.topic_id.is_some_and(|topic_id| topic_id != topic.topic_id.get()) {
                continue;
            }
            here.insert(PartitionId { topic_id: topic.topic_id, index: *partition });
            let key = (topic.name.to_string(), *partition);
            let (recovery_point, log_start_offset) = (recovery_points.get(&key), log_start_offsets.get(&key));
            let first_dirty_offset = first_dirty_offsets.get(&key);
            if recovery_point.is_none() && log_start_offset.is_none() && first_dirty_offset.is_none() {
                continue;
            }
            let id = PartitionId { topic_id: topic.topic_id, index: *partition };
            let kept = LogOffsets {
                id,
                dir,
                topic: Arc::clone(&topic.name),
                recovery_point: recovery_point.copied(),
                log_start_offset: log_start_offset.copied().unwrap_or(0),
                first_dirty_offset: first_dirty_offset.copied().unwrap_or(0),
            };
            offsets.insert(id, kept);
        }
        let files = [&recovery_points, &log_start_offsets, &first_dirty_offsets];
        let has_ends = !found_ends.is_empty();
        let mut ends = BTreeMap::new();
        for ((topic_id, index), mut note) in found_ends {
            let Some(topic) = TopicId::from_wire(topic_id).and_then(|id| image.topic_by_id(id)) else { continue };
            let id = PartitionId { topic_id: topic.topic_id, index };
            if !here.contains(&id) {
                // What is noted of a log that was moved away is wrong once it comes back.
                continue;
            }
            match Arc::get_mut(&mut note) {
                Some(note) => forget_journal(note),
                None => unreachable!("just read, and nobody else has it"),
            }
            ends.insert(id, note);
        }
        let stale = files.into_iter().any(|file| file.len() > offsets.len());
        let checkpoints = Rc::new(Self {
            data_dir,
            image: RefCell::new(image),
            offsets: RefCell::new(offsets),
            changed: Cell::new(u64::from(stale)),
            written: Cell::new(0),
            ends: RefCell::new(ends),
            ends_changed: Cell::new(u64::from(has_ends)),
            ends_written: Cell::new(0),
            writing: Semaphore::new(1),
            ended: Cell::new(false),
        });
        checkpoints.write().await?;
        checkpoints.write_ends().await?;
        Ok(checkpoints)
    }

    /// As the files have them.
    pub fn recovery_points(&self) -> OffsetCheckpoint {
        self.encode(|kept| kept.recovery_point)
    }

    /// As the files have them.
    pub fn log_start_offsets(&self) -> OffsetCheckpoint {
        self.encode(|kept| Some(kept.log_start_offset))
    }

    /// As the file has them: only logs that were compacted are in it.
    pub fn first_dirty_offsets(&self) -> OffsetCheckpoint {
        self.encode(|kept| Some(kept.first_dirty_offset).filter(|&offset| offset > 0))
    }

    /// Goes with the metadata, before anybody is told of the change: what is kept of deleted topics goes.
    pub async fn follow(&self, image: &Arc<MetadataImage>, delta: &MetadataDelta) -> Result<(), DiskError> {
        *self.image.borrow_mut() = Arc::clone(image);
        if delta.topics_deleted.is_empty() {
            return Ok(());
        }
        let ends_before = self.ends.borrow().len();
        self.ends.borrow_mut().retain(|id, _| image.topic_by_id(id.topic_id).is_some());
        if self.ends.borrow().len() != ends_before {
            self.ends_changed.update(|changed| changed + 1);
        }
        let kept_before = self.offsets.borrow().len();
        self.offsets.borrow_mut().retain(|id, _| image.topic_by_id(id.topic_id).is_some());
        if self.offsets.borrow().len() == kept_before {
            return Ok(());
        }
        self.changed.update(|changed| changed + 1);
        let Err(error) = self.write().await else { return Ok(()) };
        // There may be no room for them. A topic made anew under such a name would begin where the old one ended.
        tracing::warn!(%error, "checkpoints removed: what they say of deleted topics cannot be taken out");
        let _permit = self.writing.acquire(1).await;
        for file_name in [RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, CLEANER_OFFSET_FILE] {
            self.data_dir.remove_checkpoint(file_name).await?;
        }
        Ok(())
    }

    /// Keeps newer offsets; when it returns they are on stable storage. Those of topics that are gone are not kept.
    pub async fn note(&self, newer: Vec<LogOffsets>) -> Result<(), DiskError> {
        for kept in newer {
            let is_known = self.image.borrow().topic_by_id(kept.id.topic_id).is_some();
            let mut offsets = self.offsets.borrow_mut();
            if is_known && offsets.get(&kept.id) != Some(&kept) {
                offsets.insert(kept.id, kept);
                self.changed.update(|changed| changed + 1);
            }
        }
        self.write().await
    }

    /// Keeps newer notes on the ends of logs; when it returns they are on stable storage.
    pub async fn note_ends(&self, newer: Vec<LogEnd>) -> Result<(), DiskError> {
        for LogEnd { id, note, .. } in newer {
            if self.image.borrow().topic_by_id(id.topic_id).is_some() {
                self.ends.borrow_mut().insert(id, note);
                self.ends_changed.update(|changed| changed + 1);
            }
        }
        self.write_ends().await
    }

    /// A log that is about to be moved into the directory: keeps its offsets, and nothing that was noted of an earlier stay of
    /// it. When it returns that is on stable storage.
    pub async fn note_arrival(&self, offsets: LogOffsets) -> Result<(), DiskError> {
        if self.ends.borrow_mut().remove(&offsets.id).is_some() {
            self.ends_changed.update(|changed| changed + 1);
        }
        self.write_ends().await?;
        self.note(vec![offsets]).await
    }

    /// A log is in another directory: forgets it.
    pub async fn note_departure(&self, id: PartitionId) -> Result<(), DiskError> {
        if self.ends.borrow_mut().remove(&id).is_some() {
            self.ends_changed.update(|changed| changed + 1);
        }
        if self.offsets.borrow_mut().remove(&id).is_some() {
            self.changed.update(|changed| changed + 1);
        }
        self.write_ends().await?;
        self.write().await
    }

    /// Every note that is kept.
    pub fn ends(&self) -> BTreeMap<PartitionId, Arc<[u8]>> {
        self.ends.borrow().clone()
    }

    async fn write_ends(&self) -> Result<(), DiskError> {
        let wanted = self.ends_changed.get();
        let _permit = self.writing.acquire(1).await;
        if self.ends_written.get() >= wanted || self.ended.get() {
            return Ok(());
        }
        let changed = self.ends_changed.get();
        let encoded = encode_ends(&self.ends.borrow());
        self.data_dir.write_log_ends(&encoded).await?;
        self.ends_written.set(changed);
        Ok(())
    }

    /// Writes no more: what a clean stop leaves is written by [`super::boot::seal`], from logs that are closed.
    pub async fn end(&self) {
        let _permit = self.writing.acquire(1).await;
        self.ended.set(true);
    }

    /// Writes the files, unless all changes so far are in them.
    async fn write(&self) -> Result<(), DiskError> {
        let wanted = self.changed.get();
        let _permit = self.writing.acquire(1).await;
        if self.written.get() >= wanted || self.ended.get() {
            return Ok(());
        }
        let changed = self.changed.get();
        let (recovery_points, log_start_offsets) = (self.recovery_points(), self.log_start_offsets());
        let first_dirty_offsets = self.first_dirty_offsets();
        self.data_dir.write_checkpoint(RECOVERY_POINT_FILE, &recovery_points).await?;
        self.data_dir.write_checkpoint(LOG_START_OFFSET_FILE, &log_start_offsets).await?;
        self.data_dir.write_checkpoint(CLEANER_OFFSET_FILE, &first_dirty_offsets).await?;
        self.written.set(changed);
        Ok(())
    }

    fn encode(&self, offset: impl Fn(&LogOffsets) -> Option<i64>) -> OffsetCheckpoint {
        let offsets = self.offsets.borrow();
        let entry = |kept: &LogOffsets| offset(kept).map(|offset| (kept.key(), offset));
        OffsetCheckpoint { offsets: offsets.values().filter_map(entry).collect() }
    }
}

/// The content of the file.
pub fn encode_ends(ends: &BTreeMap<PartitionId, Arc<[u8]>>) -> Vec<u8> {
    log_ends::encode(ends.iter().map(|(id, note)| (id.topic_id.get(), id.index, &note[..])))
}
