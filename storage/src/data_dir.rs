//! A data directory: whose it is, which partitions lie in it, and how it was left.
//!
//! ```text
//! .lock                              held while a broker runs
//! meta.properties                    cluster, node and directory id; format version
//! .kafka_cleanshutdown               there only after a clean stop
//! recovery-point-offset-checkpoint, log-start-offset-checkpoint, replication-offset-checkpoint
//! journal/<n>/                       what is acknowledged and in no segment yet, see `journal`
//! <topic>-<partition>/               see `partition`
//! ```

pub mod log_ends;
pub mod moved;
pub mod partition;
pub mod plan;

use std::fs::{File as StdFile, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use walser_protocol::types::Uuid;

use crate::checkpoint::{self, CLEANER_OFFSET_FILE, LOG_START_OFFSET_FILE, OffsetCheckpoint, RECOVERY_POINT_FILE};
use crate::disk::Disk;
use crate::error::DiskError;

pub const META_PROPERTIES_FILE: &str = "meta.properties";
pub const CLEAN_SHUTDOWN_FILE: &str = ".kafka_cleanshutdown";
pub const LOCK_FILE: &str = ".lock";
/// What this code writes, and the newest it reads. 2: acknowledged records may be in `journal/` alone, which a program that
/// knows only 1 would not look at.
pub const FORMAT_VERSION: u32 = 2;
const FORMAT_KEY: &str = "walser.format.version";
/// Kafka's version of `meta.properties`.
const META_VERSION: &str = "1";

/// Why a data directory cannot be used. Each text names what to do.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DataDirError {
    #[error("data directory {} is in use by another broker: stop that one, or give this one another directory", path.display())]
    Locked { path: PathBuf },
    #[error(
        "data directory {} has format version {found}, this program knows up to {FORMAT_VERSION}: use the newer program that wrote it",
        path.display()
    )]
    NewerFormat { path: PathBuf, found: u32 },
    #[error(
        "data directory {} belongs to Apache Kafka, whose directories are not taken over yet: use an empty one, and leave this one to Kafka",
        path.display()
    )]
    Kafkas { path: PathBuf },
    #[error("{}: {reason}; restore the file from a backup, or start with an empty data directory", path.display())]
    BadMeta { path: PathBuf, reason: String },
    #[error("data directory {} holds no {META_PROPERTIES_FILE} but partitions of unknown origin, such as {example:?}", path.display())]
    NotOurs { path: PathBuf, example: String },
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Like `mkdir -p`, and the new names are durable: what is acknowledged below a directory is gone with the power if the
/// directory's own name is. At start-up only: it makes blocking calls.
#[expect(clippy::disallowed_methods, reason = "before the first executor starts")]
pub fn create_durably(dir: &Path) -> io::Result<()> {
    let absolute = std::path::absolute(dir)?;
    let missing: Vec<&Path> = absolute.ancestors().take_while(|dir| !dir.exists()).collect();
    std::fs::create_dir_all(&absolute)?;
    for parent in missing.iter().filter_map(|dir| dir.parent()) {
        StdFile::open(parent)?.sync_all()?;
    }
    Ok(())
}

/// Held while a broker uses the directory; the kernel releases it however the process ends.
#[derive(Debug)]
pub struct DirLock {
    _file: StdFile,
}

impl DirLock {
    /// At start-up only: it makes blocking calls. The directory exists.
    pub fn acquire(dir: &Path) -> Result<Self, DataDirError> {
        let path = dir.join(LOCK_FILE);
        let opened = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = opened.map_err(|error| DiskError::new("open", &path, error))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(DataDirError::Locked { path: dir.to_path_buf() }),
            Err(TryLockError::Error(error)) => Err(DiskError::new("lock", &path, error).into()),
        }
    }
}

/// Whose directory this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaProperties {
    pub cluster_id: String,
    pub node_id: i32,
    pub directory_id: Uuid,
}

impl MetaProperties {
    /// The file's text, as Java's `Properties` read it.
    pub fn encode(&self) -> String {
        let Self { cluster_id, node_id, directory_id } = self;
        format!(
            "#\ncluster.id={cluster_id}\ndirectory.id={directory_id}\nnode.id={node_id}\nversion={META_VERSION}\n{FORMAT_KEY}={FORMAT_VERSION}\n"
        )
    }

    /// `path` is for the errors. A file without our format version is Kafka's own; its directories are not taken over.
    pub fn decode(path: &Path, bytes: &[u8]) -> Result<Self, DataDirError> {
        let bad = |reason: String| DataDirError::BadMeta { path: path.to_path_buf(), reason };
        let text = std::str::from_utf8(bytes).map_err(|_| bad("not UTF-8 text".to_owned()))?;
        let value = |key: &str| {
            let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', '!']));
            let mut pairs = lines.filter_map(|line| line.split_once('='));
            pairs.find_map(|(name, value)| (name.trim() == key).then(|| value.trim().to_owned()))
        };
        let needed = |key: &str| value(key).ok_or_else(|| bad(format!("{key} is missing")));
        let version = needed("version")?;
        if version != META_VERSION {
            return Err(bad(format!("version is {version:?}, only 1 is supported")));
        }
        let dir = || path.parent().unwrap_or(path).to_path_buf();
        let Some(format) = value(FORMAT_KEY) else { return Err(DataDirError::Kafkas { path: dir() }) };
        let found: u32 = format.parse().map_err(|_| bad(format!("{FORMAT_KEY} is {format:?}")))?;
        if found > FORMAT_VERSION {
            return Err(DataDirError::NewerFormat { path: dir(), found });
        }
        let node_id = needed("node.id")?;
        let directory_id = needed("directory.id")?;
        Ok(Self {
            cluster_id: needed("cluster.id")?,
            node_id: node_id.parse().map_err(|_| bad(format!("node.id is {node_id:?}")))?,
            directory_id: directory_id.parse().map_err(|_| bad(format!("directory.id is {directory_id:?}")))?,
        })
    }
}

/// How files of a partition that is gone are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// While nobody writes.
    AtOnce,
    /// Beside others that commit.
    InSteps,
}

/// One data directory on one disk.
#[derive(Clone, Debug)]
pub struct DataDir<D> {
    disk: D,
    path: PathBuf,
}

impl<D: Disk> DataDir<D> {
    /// Makes the directory when there is none.
    pub async fn open(disk: D, path: impl Into<PathBuf>) -> Result<Self, DataDirError> {
        let path = path.into();
        disk.create_dir_all(&path).await.map_err(|e| DiskError::new("create directory", &path, e))?;
        Ok(Self { disk, path })
    }

    /// One that is there already.
    pub fn at(disk: D, path: impl Into<PathBuf>) -> Self {
        Self { disk, path: path.into() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// `None` in a new directory. One with partitions but without the file is refused: it may be anybody's. One of an older
    /// format gets the present version here, before anything of the new format is written to it.
    pub async fn read_meta(&self) -> Result<Option<MetaProperties>, DataDirError> {
        let path = self.path.join(META_PROPERTIES_FILE);
        if let Some(bytes) = checkpoint::read_file(&self.disk, &path).await? {
            let meta = MetaProperties::decode(&path, &bytes)?;
            let present = format!("{FORMAT_KEY}={FORMAT_VERSION}");
            if !bytes.split(|byte| *byte == b'\n').any(|line| line == present.as_bytes()) {
                self.write_meta(&meta).await?;
            }
            return Ok(Some(meta));
        }
        let entries = self.list().await?;
        match entries.iter().find(|name| partition::parse_dir_name(name).is_some()) {
            Some(example) => Err(DataDirError::NotOurs { path: self.path.clone(), example: example.clone() }),
            None => Ok(None),
        }
    }

    pub async fn write_meta(&self, meta: &MetaProperties) -> Result<(), DiskError> {
        checkpoint::replace_file(&self.disk, &self.path.join(META_PROPERTIES_FILE), meta.encode().as_bytes()).await
    }

    /// Whether the last broker here stopped cleanly. Asked once, at start: the mark is gone afterwards, durably, so that a
    /// crash from now on is seen as one.
    pub async fn take_clean_mark(&self) -> Result<bool, DiskError> {
        let path = self.path.join(CLEAN_SHUTDOWN_FILE);
        let was_clean = match self.disk.remove_file(&path).await {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(DiskError::new("remove", &path, error)),
        };
        // A killed process may have made directories whose names are not durable yet: they are from here on.
        self.sync().await?;
        Ok(was_clean)
    }

    /// The last step of a clean stop: every log is closed and the checkpoints are written.
    pub async fn write_clean_mark(&self, broker_epoch: i64) -> Result<(), DiskError> {
        let content = format!("{{\"version\":0,\"brokerEpoch\":{broker_epoch}}}");
        checkpoint::replace_file(&self.disk, &self.path.join(CLEAN_SHUTDOWN_FILE), content.as_bytes()).await
    }

    /// One of the three offset checkpoints; empty when there is none, or none that can be read: the logs are scanned then.
    pub async fn read_checkpoint(&self, file_name: &str) -> Result<OffsetCheckpoint, DiskError> {
        let path = self.path.join(file_name);
        let Some(bytes) = checkpoint::read_file(&self.disk, &path).await? else {
            return Ok(OffsetCheckpoint::default());
        };
        Ok(OffsetCheckpoint::decode(&bytes).unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "checkpoint not used");
            OffsetCheckpoint::default()
        }))
    }

    pub async fn write_checkpoint(&self, file_name: &str, offsets: &OffsetCheckpoint) -> Result<(), DiskError> {
        checkpoint::replace_file(&self.disk, &self.path.join(file_name), offsets.encode().as_bytes()).await
    }

    /// Takes out of the offset checkpoints, durably, what they say of these partitions. They name topics and not their ids: before
    /// a directory loses its name, or another topic gets it.
    pub async fn forget_offsets(&self, is_gone: impl Fn(&str, i32) -> bool) -> Result<(), DiskError> {
        for file_name in [RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, CLEANER_OFFSET_FILE] {
            let mut offsets = self.read_checkpoint(file_name).await?;
            let count = offsets.offsets.len();
            offsets.offsets.retain(|(topic, partition), _| !is_gone(topic, *partition));
            if offsets.offsets.len() == count {
                continue;
            }
            match self.write_checkpoint(file_name, &offsets).await {
                Err(error) if error.is_full() => self.remove_checkpoint(file_name).await?,
                written => written?,
            }
        }
        Ok(())
    }

    /// Removes a checkpoint, durably, where it cannot be written anew and says what is not true any more: without it logs
    /// are scanned.
    pub async fn remove_checkpoint(&self, file_name: &str) -> Result<(), DiskError> {
        let path = self.path.join(file_name);
        match self.disk.remove_file(&path).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(DiskError::new("remove", &path, error)),
            Ok(()) | Err(_) => self.sync().await,
        }
    }

    /// Removes a directory with the files in it; there are no directories inside. Again, when it was interrupted.
    pub async fn remove_partition_dir(&self, dir_name: &str, removal: Removal) -> Result<(), DiskError> {
        let dir = self.path.join(dir_name);
        let failed = |operation| move |e| DiskError::new(operation, self.path.join(dir_name), e);
        for entry in self.disk.list_dir(&dir).await.map_err(failed("list"))? {
            let path = dir.join(&entry.name);
            let removed = match removal {
                Removal::AtOnce => self.disk.remove_file(&path).await,
                Removal::InSteps => self.disk.remove_in_steps(&path).await,
            };
            removed.map_err(|e| DiskError::new("remove", &path, e))?;
        }
        self.disk.remove_dir(&dir).await.map_err(failed("remove directory"))?;
        self.sync().await
    }

    /// Gives a partition's directory another name, durably.
    pub async fn rename_partition_dir(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.rename_unsynced(from, to).await?;
        self.sync().await
    }

    /// The same, but until [`Self::sync`] a power cut may bring back the old name. After an error nothing has changed.
    pub async fn rename_unsynced(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let (from, to) = (self.path.join(from), self.path.join(to));
        self.disk.rename(&from, &to).await.map_err(|e| DiskError::new("rename", &from, e))
    }

    async fn list(&self) -> Result<Vec<String>, DiskError> {
        let entries = self.disk.list_dir(&self.path).await.map_err(|e| DiskError::new("list", &self.path, e))?;
        Ok(entries.into_iter().filter(|entry| entry.is_dir).map(|entry| entry.name).collect())
    }

    /// Makes the names in the directory durable.
    pub async fn sync(&self) -> Result<(), DiskError> {
        checkpoint::sync_dir(&self.disk, &self.path).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> MetaProperties {
        MetaProperties {
            cluster_id: "B9Zi3MSbREGcvXozlIn8xQ".to_owned(),
            node_id: 1,
            directory_id: Uuid::from_bytes([7; 16]),
        }
    }

    #[test]
    fn meta_round_trip() {
        // What is written is read back; a file of Kafka's is refused as such.
        let path = Path::new("/data/meta.properties");
        assert_eq!(MetaProperties::decode(path, meta().encode().as_bytes()).expect("own text"), meta());
        let kafka = "#\n#Sun Nov 29 17:27:24 UTC 2026\ncluster.id=abc\ndirectory.id=2l7CexmXqNFmyOvXSg0skg\nnode.id=1\nversion=1\n";
        let refused = MetaProperties::decode(path, kafka.as_bytes());
        assert!(matches!(refused, Err(DataDirError::Kafkas { .. })), "{refused:?}");
    }

    #[test]
    fn a_newer_or_bad_meta_is_refused_with_a_sentence() {
        // A directory that this program does not understand is left alone.
        let path = Path::new("/data/meta.properties");
        let newer = meta().encode().replace("format.version=2", "format.version=3");
        let error = MetaProperties::decode(path, newer.as_bytes()).expect_err("newer");
        assert!(matches!(error, DataDirError::NewerFormat { found: 3, .. }));
        assert!(error.to_string().starts_with("data directory /data has format version 3"), "{error}");
        for bad in [
            "",
            "version=1\nwalser.format.version=1\n",
            "version=0\ncluster.id=a\nnode.id=1\ndirectory.id=2l7CexmXqNFmyOvXSg0skg\n",
        ] {
            assert!(
                matches!(MetaProperties::decode(path, bad.as_bytes()), Err(DataDirError::BadMeta { .. })),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn an_older_directory_gets_the_present_version() {
        // Rule: a program that would not look at the journal refuses the directory from the first start on.
        use crate::disk::simulated::SimulatedDisk;
        use crate::runtime::simulated::SimulatedRuntime;

        let runtime = SimulatedRuntime::new(1);
        let disk = SimulatedDisk::new(&runtime);
        runtime.block_on(async {
            let data_dir = DataDir::open(disk, "/data").await.expect("an empty disk");
            let path = data_dir.path().join(META_PROPERTIES_FILE);
            let older = meta().encode().replace("format.version=2", "format.version=1");
            checkpoint::replace_file(data_dir.disk(), &path, older.as_bytes()).await.expect("no fault");
            assert_eq!(data_dir.read_meta().await.expect("readable"), Some(meta()));
            let bytes = checkpoint::read_file(data_dir.disk(), &path).await.expect("no fault");
            assert_eq!(bytes.as_deref(), Some(meta().encode().as_bytes()));
        });
    }

    #[test]
    fn a_second_broker_is_locked_out() {
        // Two brokers on one directory would destroy it.
        let dir = std::env::temp_dir().join(format!("walser-lock-{}", std::process::id()));
        let made = std::fs::create_dir(&dir);
        assert!(made.is_ok(), "{made:?}");
        let first = DirLock::acquire(&dir).expect("nobody holds it");
        let second = DirLock::acquire(&dir).expect_err("held");
        assert!(second.to_string().contains("in use by another broker"), "{second}");
        drop(first);
        assert!(DirLock::acquire(&dir).is_ok());
    }
}
