//! What a partition's directory says of a copy that is to take its place in another data directory.
//!
//! The copy gets the partition's name before the original loses its own, and either may be away at a start. So the original says,
//! durably and before the copy has its name, that it is not the replica any more, behind the topic's id in `partition.metadata`:
//! ```text
//! version: 0
//! topic_id: <id>
//! moved_to: <directory.id of the other data directory> <name of the copy's directory there>
//! ```
//! A copy's name is used once. While a directory of that name is there the copy has not got the partition's name, and the original is
//! the replica. Otherwise it has, wherever it went since. Taking the line back is cutting it off, which needs no room.

use std::path::Path;

use walser_protocol::types::Uuid;

use super::DataDir;
use super::partition::{PARTITION_METADATA_FILE, encode_metadata};
use crate::checkpoint::{read_file, replace_file, sync_dir};
use crate::disk::{Disk, File, OpenMode};
use crate::error::DiskError;

const MOVED_TO: &str = "moved_to: ";

/// Where a partition's copy was to get its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedTo {
    /// Of the data directory; zero where it cannot be read.
    pub directory_id: Uuid,
    /// Name of the copy's directory.
    pub copy: String,
}

impl MovedTo {
    fn encode(&self) -> String {
        format!("\n{MOVED_TO}{} {}", self.directory_id, self.copy)
    }
}

/// What the content of `partition.metadata` says. A line that is damaged names no directory that there is.
pub fn decode_moved_to(content: &[u8]) -> Option<MovedTo> {
    let text = String::from_utf8_lossy(content);
    let line = text.lines().skip(2).find_map(|line| line.strip_prefix(MOVED_TO.trim_end()))?;
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

    /// Has a partition's directory say so, or that it was not moved; durable when this returns. After an error it may say either.
    pub async fn write_moved_to(
        &self,
        dir_name: &str,
        topic_id: Uuid,
        moved_to: Option<&MovedTo>,
    ) -> Result<(), DiskError> {
        let path = self.metadata_path(dir_name);
        let wanted = encode_metadata(topic_id) + &moved_to.map(MovedTo::encode).unwrap_or_default();
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
            for wanted in [None, Some(&moved_to), Some(&moved_to), None, None] {
                data_dir.write_moved_to("t-0", topic_id, wanted).await.unwrap();
                assert_eq!(data_dir.read_moved_to("t-0").await.unwrap().as_ref(), wanted);
                let content = disk.peek(Path::new("/data/t-0/partition.metadata")).unwrap();
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
