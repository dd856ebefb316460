//! Partition directories: their names, and the file that says which topic they belong to.
//!
//! ```text
//! <topic>-<partition>                      a partition
//! <topic>-<partition>.<32 hex>-delete      on its way out
//! <topic>-<partition>.<32 hex>-stray       found and not known to the metadata
//! <topic>-<partition>.<32 hex>-future      a copy that is to take the place of the partition in another directory
//! ```
//! `partition.metadata`, text: `version: 0`, `topic_id: <id>`, and what `moved` tells of.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use walser_protocol::types::Uuid;

use crate::checkpoint;
use crate::disk::{Disk, File, OpenMode};
use crate::error::DiskError;
use crate::runtime::side_by_side::side_by_side;
use crate::segment::LOG_SUFFIX;

use super::DataDir;
use super::moved::{MovedTo, decode_copying_to, decode_moved_to};

pub const PARTITION_METADATA_FILE: &str = "partition.metadata";
pub const DELETE_SUFFIX: &str = "-delete";
pub const STRAY_SUFFIX: &str = "-stray";
pub const FUTURE_SUFFIX: &str = "-future";
/// Directories that are looked into at the same time: each look is a row of small waits for the disk.
const DIRS_AT_ONCE: usize = 32;
/// More than there is in a file with a topic's id.
const METADATA_BYTES_MAX: usize = 4096;
/// Longest name a file system takes.
const DIR_NAME_BYTES_MAX: usize = 255;

/// What a directory's name says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirName {
    pub topic: String,
    pub partition: i32,
    pub kind: DirKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirKind {
    Partition,
    /// Renamed so that its files can be removed at leisure; nothing refers to it.
    Deleted,
    /// Put aside: an operator decides.
    Stray,
    /// A copy under way of a partition in another directory.
    Future,
}

/// A partition's directory as found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundDir {
    pub dir_name: String,
    pub name: DirName,
    /// `None` when the file is missing or cannot be read.
    pub topic_id: Option<Uuid>,
    /// A segment with something in it.
    pub has_data: bool,
    /// Where the partition is, unless the copy there has not got its name.
    pub moved_to: Option<MovedTo>,
    /// Where its copy is.
    pub copying_to: Option<MovedTo>,
}

impl FoundDir {
    /// The directory of a replica that has just been made for records that belong into it.
    pub fn made(topic: &str, partition: i32, topic_id: Uuid) -> Self {
        Self {
            dir_name: dir_name(topic, partition),
            name: DirName { topic: topic.to_owned(), partition, kind: DirKind::Partition },
            topic_id: Some(topic_id),
            has_data: true,
            moved_to: None,
            copying_to: None,
        }
    }

    /// Whether what the offset checkpoints say under this name, which is that of a topic with this id if there is one, is about
    /// what lies here. They name topics and not their ids, and speak only of directories whose names and ids are on stable
    /// storage: one that has lost its id with the power is younger than what they say.
    pub fn is_noted_as(&self, topic_id: Option<Uuid>) -> bool {
        match self.topic_id {
            Some(own) => Some(own) == topic_id,
            None => self.has_data,
        }
    }
}

pub fn dir_name(topic: &str, partition: i32) -> String {
    format!("{topic}-{partition}")
}

/// `None` for names that are no partition's.
pub fn parse_dir_name(name: &str) -> Option<DirName> {
    let (stem, kind) = if let Some(stem) = name.strip_suffix(DELETE_SUFFIX) {
        (strip_unique(stem)?, DirKind::Deleted)
    } else if let Some(stem) = name.strip_suffix(STRAY_SUFFIX) {
        (strip_unique(stem)?, DirKind::Stray)
    } else if let Some(stem) = name.strip_suffix(FUTURE_SUFFIX) {
        (strip_unique(stem)?, DirKind::Future)
    } else {
        (name, DirKind::Partition)
    };
    let (topic, partition) = stem.rsplit_once('-')?;
    let is_number = !partition.is_empty() && partition.bytes().all(|b| b.is_ascii_digit());
    let is_topic = !topic.is_empty() && topic.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if !is_number || !is_topic {
        return None;
    }
    Some(DirName { topic: topic.to_owned(), partition: partition.parse().ok()?, kind })
}

/// Drops `.<32 hex>`.
fn strip_unique(stem: &str) -> Option<&str> {
    let (stem, unique) = stem.rsplit_once('.')?;
    (unique.len() == 32 && unique.bytes().all(|b| b.is_ascii_hexdigit())).then_some(stem)
}

/// The name for a directory that is put aside; `unique` keeps it apart from earlier ones. A long topic is cut short.
pub fn aside_name(topic: &str, partition: i32, unique: u128, suffix: &str) -> String {
    let ending = format!("-{partition}.{unique:032x}{suffix}");
    let topic_bytes = topic.len().min(DIR_NAME_BYTES_MAX - ending.len());
    format!("{}{ending}", &topic[..topic.floor_char_boundary(topic_bytes)])
}

/// The name for a copy of a partition; `None` where the topic's is too long for one.
pub fn future_name(topic: &str, partition: i32, unique: u128) -> Option<String> {
    let name = format!("{topic}-{partition}.{unique:032x}{FUTURE_SUFFIX}");
    (name.len() <= DIR_NAME_BYTES_MAX).then_some(name)
}

pub fn encode_metadata(topic_id: Uuid) -> String {
    format!("version: 0\ntopic_id: {topic_id}")
}

/// `None` when it is not what [`encode_metadata`] or Kafka writes.
pub fn decode_metadata(bytes: &[u8]) -> Option<Uuid> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut lines = text.lines();
    let version = lines.next()?.strip_prefix("version:")?.trim();
    let topic_id = lines.next()?.strip_prefix("topic_id:")?.trim();
    (version == "0").then(|| topic_id.parse().ok()).flatten().filter(|id: &Uuid| !id.is_zero())
}

/// Why a directory's name is not known to be durable.
pub(crate) enum SyncNamesError {
    /// Nothing is lost.
    Open(DiskError),
    /// Whatever the error says, what it should have made durable may be gone.
    Sync(DiskError),
}

impl From<SyncNamesError> for DiskError {
    fn from(error: SyncNamesError) -> Self {
        match error {
            SyncNamesError::Open(error) | SyncNamesError::Sync(error) => error,
        }
    }
}

/// What [`DataDir::create_partition`] leaves undone: the directory's own name and its topic id have to be there after a
/// power cut if a record in it is.
pub(crate) async fn sync_names<D: Disk>(disk: &D, dir: &Path) -> Result<(), SyncNamesError> {
    sync_content(disk, dir).await?;
    match dir.parent() {
        Some(parent) => sync_dir(disk, parent).await,
        None => Ok(()),
    }
}

/// As [`sync_names`], but for the directory's own name.
pub(crate) async fn sync_content<D: Disk>(disk: &D, dir: &Path) -> Result<(), SyncNamesError> {
    let path = dir.join(PARTITION_METADATA_FILE);
    match disk.open(&path, OpenMode::ReadWrite).await {
        Ok(file) => file.sync_data().await.map_err(|e| SyncNamesError::Sync(DiskError::new("sync", &path, e)))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(SyncNamesError::Open(DiskError::new("open", &path, error))),
    }
    sync_dir(disk, dir).await
}

async fn sync_dir<D: Disk>(disk: &D, dir: &Path) -> Result<(), SyncNamesError> {
    checkpoint::sync_dir(disk, dir).await.map_err(SyncNamesError::Sync)
}

impl<D: Disk> DataDir<D> {
    pub fn partition_path(&self, topic: &str, partition: i32) -> PathBuf {
        self.path.join(dir_name(topic, partition))
    }

    /// Makes a partition's directory with its topic id inside. One that is there is completed. Neither is durable when this
    /// returns, which would cost every new partition several flushes: the log sees to it before it has something to lose.
    pub async fn create_partition(&self, topic: &str, partition: i32, topic_id: Uuid) -> Result<PathBuf, DiskError> {
        let dir = self.partition_path(topic, partition);
        let metadata = checkpoint::read_file(&self.disk, &dir.join(PARTITION_METADATA_FILE)).await?;
        match metadata.as_deref().and_then(decode_metadata) {
            Some(known) if known == topic_id => return Ok(dir),
            // Of another topic of that name, which could not be put aside: its records are nobody's.
            Some(_) => return Err(DiskError::new("create directory", &dir, io::ErrorKind::AlreadyExists.into())),
            None => {}
        }
        self.disk.create_dir_all(&dir).await.map_err(|e| DiskError::new("create directory", &dir, e))?;
        let path = dir.join(PARTITION_METADATA_FILE);
        checkpoint::write_unsynced(&self.disk, &path, encode_metadata(topic_id).as_bytes()).await?;
        Ok(dir)
    }

    /// Makes the directory of a copy, with its topic id inside; durable when this returns.
    pub async fn create_future(&self, dir_name: &str, topic_id: Uuid) -> Result<(), DiskError> {
        let dir = self.path.join(dir_name);
        self.disk.create_dir_all(&dir).await.map_err(|e| DiskError::new("create directory", &dir, e))?;
        let path = dir.join(PARTITION_METADATA_FILE);
        checkpoint::replace_file(&self.disk, &path, encode_metadata(topic_id).as_bytes()).await?;
        self.sync().await
    }

    /// Gives a directory its topic id; durable when this returns.
    pub async fn write_topic_id(&self, dir_name: &str, topic_id: Uuid) -> Result<(), DiskError> {
        let path = self.path.join(dir_name).join(PARTITION_METADATA_FILE);
        checkpoint::replace_file(&self.disk, &path, encode_metadata(topic_id).as_bytes()).await
    }

    /// Every partition directory, in order of name.
    pub async fn list_partitions(&self) -> Result<Vec<FoundDir>, DiskError> {
        let names = self.list().await?.into_iter();
        let names: Vec<_> = names.filter_map(|dir_name| Some((parse_dir_name(&dir_name)?, dir_name))).collect();
        let paths = names.iter().map(|(_, dir_name)| self.path.join(dir_name).join(PARTITION_METADATA_FILE)).collect();
        let read = self.disk.read_files(paths, METADATA_BYTES_MAX).await;
        let contents = read.map_err(|e| DiskError::new("read the topic ids in", &self.path, e))?;
        let found: Vec<_> = names.into_iter().zip(contents).collect();
        let look = async |((name, dir_name), metadata)| self.look_into(dir_name, name, metadata).await;
        side_by_side(found, DIRS_AT_ONCE, look).await
    }

    async fn look_into(&self, dir_name: String, name: DirName, metadata: Option<Bytes>) -> Result<FoundDir, DiskError> {
        let dir = self.path.join(&dir_name);
        let topic_id = metadata.as_deref().and_then(decode_metadata);
        // Only where the id is missing does it matter whether there is something to lose.
        let has_data = if topic_id.is_some() {
            true
        } else {
            let entries = self.disk.list_dir(&dir).await.map_err(|e| DiskError::new("list", &dir, e))?;
            entries.iter().any(|entry| entry.name.ends_with(LOG_SUFFIX) && entry.len_bytes > 0)
        };
        let moved_to = metadata.as_deref().and_then(decode_moved_to);
        let copying_to = metadata.as_deref().and_then(decode_copying_to);
        Ok(FoundDir { dir_name, name, topic_id, has_data, moved_to, copying_to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dir_names() {
        // Topics may hold dashes and dots; whatever is no partition's name is left alone.
        let name = |topic: &str, partition, kind| Some(DirName { topic: topic.to_owned(), partition, kind });
        let unique = "0123456789abcdef0123456789abcdef";
        for (text, want) in [
            ("a-0".to_owned(), name("a", 0, DirKind::Partition)),
            ("a-b.c_d-12".to_owned(), name("a-b.c_d", 12, DirKind::Partition)),
            ("__consumer_offsets-49".to_owned(), name("__consumer_offsets", 49, DirKind::Partition)),
            (format!("a-3.{unique}-delete"), name("a", 3, DirKind::Deleted)),
            (format!("a-3.{unique}-stray"), name("a", 3, DirKind::Stray)),
            ("a-delete".to_owned(), None),
            ("quorum".to_owned(), None),
            ("-0".to_owned(), None),
            ("a-".to_owned(), None),
            ("a-99999999999".to_owned(), None),
            ("a b-0".to_owned(), None),
        ] {
            assert_eq!(parse_dir_name(&text), want, "{text}");
        }
    }

    #[test]
    fn aside_names_fit_and_parse() {
        // The longest topic name still gives a name that the file system takes.
        let long = "x".repeat(249);
        let aside = aside_name(&long, 1234, 0xabc, DELETE_SUFFIX);
        assert_eq!(aside.len(), 255);
        assert_eq!(parse_dir_name(&aside).map(|name| (name.partition, name.kind)), Some((1234, DirKind::Deleted)));
    }

    #[test]
    fn metadata_round_trip() {
        // What is written is read back; anything else is no id.
        let id = Uuid::from_bytes([9; 16]);
        assert_eq!(decode_metadata(encode_metadata(id).as_bytes()), Some(id));
        for bad in
            ["", "version: 1\ntopic_id: CQkJCQkJCQkJCQkJCQkJCQ", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "x"]
        {
            assert_eq!(decode_metadata(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
