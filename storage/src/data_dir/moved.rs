//! What a partition's directory says of a copy that is to take its place in another data directory.
//!
//! The copy gets the partition's name before the original loses its own, and either may be away at a start. So the original says,
//! durably and before the copy has its name, that it is not the replica any more, behind the topic's id in `partition.metadata`:
//! ```text
//! version: 0
//! topic_id: <id>
//! copying_to: <directory.id of the other data directory> <name of the copy's directory there>
//! moved_to: <the same>
//! ```
//! The first of the two lines is there as long as the copy is that of this log: a start that does not find the copy takes it back, and
//! whatever the copy has is of no use from then on, because nobody knows any more what becomes of the log's segments.
//!
//! A copy's name is used once. While a directory of that name is there the copy has not got the partition's name, and the original is
//! the replica. Otherwise it has, wherever it went since. Taking lines back is cutting them off, which needs no room.

use std::path::Path;

use walser_protocol::types::Uuid;

use super::DataDir;
use super::partition::{PARTITION_METADATA_FILE, encode_metadata};
use crate::checkpoint::{read_file, replace_file, sync_dir};
use crate::disk::{Disk, File, OpenMode};
use crate::error::DiskError;

const COPYING_TO: &str = "copying_to:";
const MOVED_TO: &str = "moved_to:";

/// Where a partition's copy is, or was before it got its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedTo {
    /// Of the data directory; zero where it cannot be read.
    pub directory_id: Uuid,
    /// Name of the copy's directory.
    pub copy: String,
}

/// How far a replica is on its way to another data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage<'a> {
    /// It is on no way.
    Alone,
    Copying(&'a MovedTo),
    /// Its copy is the replica as soon as it has the name.
    Moved(&'a MovedTo),
}

impl Stage<'_> {
    fn encode(self, topic_id: Uuid) -> String {
        let head = encode_metadata(topic_id);
        let line = |key, MovedTo { directory_id, copy }: &MovedTo| format!("\n{key} {directory_id} {copy}");
        match self {
            Self::Alone => head,
            Self::Copying(to) => head + &line(COPYING_TO, to),
            Self::Moved(to) => head + &line(COPYING_TO, to) + &line(MOVED_TO, to),
        }
    }
}

/// Where `partition.metadata` says that the copy is.
pub fn decode_copying_to(content: &[u8]) -> Option<MovedTo> {
    decode(content, COPYING_TO)
}

/// Where `partition.metadata` says that the partition was moved to.
pub fn decode_moved_to(content: &[u8]) -> Option<MovedTo> {
    decode(content, MOVED_TO)
}

/// A line that is damaged names no directory that there is.
fn decode(content: &[u8], key: &str) -> Option<MovedTo> {
    let text = String::from_utf8_lossy(content);
    let line = text.lines().skip(2).find_map(|line| line.strip_prefix(key))?;
    let read = line.strip_prefix(' ').and_then(|line| line.split_once(' '));
    let read = read.and_then(|(id, copy)| Some(MovedTo { directory_id: id.parse().ok()?, copy: copy.to_owned() }));
    Some(read.unwrap_or_else(|| MovedTo { directory_id: Uuid::ZERO, copy: String::new() }))
}

impl<D: Disk> DataDir<D> {
    /// Where a partition's directory says that the partition was moved to.
    pub async fn read_moved_to(&self, dir_name: &str) -> Result<Option<MovedTo>, DiskError> {
        let content = read_file(&self.disk, &self.metadata_path(dir_name)).await?;
        Ok(content.as_deref().and_then(decode_moved_to))
    }

    /// Has a partition's directory say how far it is; durable when this returns. After an error it may say what it said before.
    pub async fn write_stage(&self, dir_name: &str, topic_id: Uuid, stage: Stage<'_>) -> Result<(), DiskError> {
        let path = self.metadata_path(dir_name);
        let wanted = stage.encode(topic_id);
        let found = read_file(&self.disk, &path).await?.unwrap_or_default();
        if !found.starts_with(wanted.as_bytes()) {
            return replace_file(&self.disk, &path, wanted.as_bytes()).await;
        }
        let failed = |operation| {
            let path = path.clone();
            move |e| DiskError::new(operation, path, e)
        };
        let file = self.disk.open(&path, OpenMode::ReadWrite).await.map_err(failed("open"))?;
        file.truncate(wanted.len() as u64).await.map_err(failed("truncate"))?;
        file.sync_data().await.map_err(failed("sync"))?;
        // A killed process may have given the file its name and no more.
        sync_dir(&self.disk, &self.path.join(dir_name)).await
    }

    fn metadata_path(&self, dir_name: &str) -> std::path::PathBuf {
        self.path.join(dir_name).join(Path::new(PARTITION_METADATA_FILE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_dir::partition::decode_metadata;
    use crate::disk::simulated::SimulatedDisk;
    use crate::runtime::simulated::SimulatedRuntime;

    #[test]
    fn what_is_written_is_read_and_taken_back() {
        // Rule: the topic's id is read as before; what is damaged is no directory that there is, and not nothing.
        let runtime = SimulatedRuntime::new(1);
        let disk = SimulatedDisk::new(&runtime);
        let (topic_id, directory_id) = (Uuid::from_bytes([7; 16]), Uuid::from_bytes([9; 16]));
        let moved_to = MovedTo { directory_id, copy: "t-0.0-future".to_owned() };
        runtime.block_on(async {
            disk.create_dir_all(Path::new("/data/t-0")).await.unwrap();
            let data_dir = DataDir::at(disk.clone(), "/data");
            let (copying, moved) = (Stage::Copying(&moved_to), Stage::Moved(&moved_to));
            for stage in [Stage::Alone, copying, moved, moved, copying, moved, Stage::Alone, Stage::Alone] {
                data_dir.write_stage("t-0", topic_id, stage).await.unwrap();
                let is_moved = data_dir.read_moved_to("t-0").await.unwrap().as_ref() == Some(&moved_to);
                assert_eq!(is_moved, stage == moved);
                let content = disk.peek(Path::new("/data/t-0/partition.metadata")).unwrap();
                assert_eq!(decode_copying_to(&content).is_some(), stage != Stage::Alone);
                assert_eq!(decode_metadata(&content), Some(topic_id));
            }
        });
        let head = encode_metadata(topic_id);
        for damage in ["moved_to:", "moved_to: x y", "moved_to: CQkJCQkJCQkJCQkJCQkJCQ"] {
            let read = decode_moved_to(format!("{head}\n{damage}").as_bytes()).map(|read| read.directory_id);
            assert_eq!(read, Some(Uuid::ZERO), "{damage}");
        }
        assert_eq!(decode_moved_to(head.as_bytes()), None);
    }
}
