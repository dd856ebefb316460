//! The data directories of the process: those of `log.dirs`, and the one that holds the metadata log, which may be one of
//! them.
//!
//! A directory is online from the start on, or until the next start not at all. One that fails later is said to have failed:
//! nothing new is put into it, and DescribeLogDirs tells. What of it is lost by that is up to the logs in it: each finds out
//! with its own files or with the journal that it is behind.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use walser_protocol::types::Uuid;
use walser_storage::disk::reserve::Reserve;

/// Names one of `log.dirs`, counted from 0 in the order of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogDirIndex(u16);

impl LogDirIndex {
    /// `index` counts from 0.
    pub const fn new(index: u16) -> Self {
        Self(index)
    }

    /// Counted from 0.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Why a directory has failed, and whether anything of it was ever served.
#[derive(Clone, Debug)]
struct Failure {
    reason: String,
    /// At the start: nothing in it can be used.
    is_offline: bool,
}

/// One directory, shared by all executors.
#[derive(Debug)]
pub struct LogDir {
    path: PathBuf,
    reserve: Arc<Reserve>,
    /// Known once it is online.
    id: OnceLock<Uuid>,
    /// Once it has failed it stays so until the next start, whatever works again meanwhile.
    failure: OnceLock<Failure>,
}

impl LogDir {
    /// `path`: absolute. A reserve of `reserve_bytes` is kept in it for when its disk is full.
    pub fn new(path: PathBuf, reserve_bytes: u64) -> Self {
        let reserve = Arc::new(Reserve::new(&path, reserve_bytes));
        Self { path, reserve, id: OnceLock::new(), failure: OnceLock::new() }
    }

    /// Absolute: as clients see it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn reserve(&self) -> &Arc<Reserve> {
        &self.reserve
    }

    /// Its `directory.id`.
    ///
    /// # Panics
    /// Before it is known, when nothing in it is used.
    pub fn id(&self) -> Uuid {
        *self.id.get().expect("a directory that is used has an id")
    }

    /// Learns the id, once.
    pub fn set_id(&self, id: Uuid) {
        assert_eq!(*self.id.get_or_init(|| id), id, "a directory keeps its id");
    }

    /// Nothing has failed that concerns all of it.
    pub fn is_good(&self) -> bool {
        self.failure.get().is_none()
    }

    /// It could not be used at the start, so that nothing in it is served.
    pub fn is_offline(&self) -> bool {
        self.failure.get().is_some_and(|failure| failure.is_offline)
    }

    /// It cannot be used: for before anything in it is.
    pub fn take_offline(&self, reason: &str) {
        self.note(Failure { reason: reason.to_owned(), is_offline: true });
    }

    /// Something of it failed that is more than one log's.
    pub fn fail(&self, reason: &str) {
        self.note(Failure { reason: reason.to_owned(), is_offline: false });
    }

    fn note(&self, failure: Failure) {
        let Failure { reason, is_offline } = &failure;
        if self.failure.get().is_some() {
            return;
        }
        let path = self.path.display();
        if *is_offline {
            tracing::error!(%path, reason, "log directory is offline until the next start, with everything in it");
        } else {
            tracing::error!(%path, reason, "log directory has failed: it gets no new partitions until the next start");
        }
        // Somebody else may have been quicker, with a reason as good.
        self.failure.set(failure).ok();
    }
}

/// Where the metadata log is.
#[derive(Debug)]
enum MetadataDir {
    Among(LogDirIndex),
    /// In a directory without logs.
    Alone(LogDir),
}

/// All directories of the process.
#[derive(Debug)]
pub struct LogDirs {
    dirs: Vec<LogDir>,
    metadata: MetadataDir,
}

impl LogDirs {
    /// `paths`: absolute, at least one, no two the same. The metadata log is in `metadata_path`.
    ///
    /// # Panics
    /// When there are more than an index can name, which the configuration forbids.
    pub fn new(paths: &[PathBuf], metadata_path: &Path, reserve_bytes: u64) -> Self {
        assert!(!paths.is_empty(), "at least one log directory");
        let dirs: Vec<LogDir> = paths.iter().map(|path| LogDir::new(path.clone(), reserve_bytes)).collect();
        let metadata = match paths.iter().position(|path| path == metadata_path) {
            Some(at) => MetadataDir::Among(LogDirIndex(u16::try_from(at).expect("the configuration bounds them"))),
            None => MetadataDir::Alone(LogDir::new(metadata_path.to_owned(), reserve_bytes)),
        };
        Self { dirs, metadata }
    }

    /// Of `log.dirs`, whether they are online or not.
    pub fn len(&self) -> usize {
        self.dirs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.dirs.is_empty()
    }

    /// Of `log.dirs`, in order.
    pub fn iter(&self) -> impl Iterator<Item = (LogDirIndex, &LogDir)> {
        (0..).map(LogDirIndex).zip(&self.dirs)
    }

    /// # Panics
    /// When there is no such directory.
    pub fn dir(&self, index: LogDirIndex) -> &LogDir {
        &self.dirs[index.index()]
    }

    /// The directory of this path, as clients name it.
    pub fn find(&self, path: &str) -> Option<LogDirIndex> {
        self.iter().find(|(_, dir)| dir.path.as_os_str() == path).map(|(index, _)| index)
    }

    /// The directory with the metadata log.
    pub fn metadata_dir(&self) -> &LogDir {
        match &self.metadata {
            MetadataDir::Among(index) => self.dir(*index),
            MetadataDir::Alone(dir) => dir,
        }
    }

    /// Which of `log.dirs` has the metadata log; `None` where it has a directory of its own.
    pub fn metadata_index(&self) -> Option<LogDirIndex> {
        match &self.metadata {
            MetadataDir::Among(index) => Some(*index),
            MetadataDir::Alone(_) => None,
        }
    }

    /// Of `log.dirs`, those that are not good.
    pub fn failed_count(&self) -> usize {
        self.dirs.iter().filter(|dir| !dir.is_good()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirs(metadata: &str) -> LogDirs {
        LogDirs::new(&["/no/such/a".into(), "/no/such/b".into()], Path::new(metadata), 0)
    }

    #[test]
    fn the_metadata_log_has_a_directory() {
        // Rule: it is one of log.dirs, or one of its own that is none of them.
        let among = dirs("/no/such/b");
        assert_eq!((among.metadata_index(), among.len()), (Some(LogDirIndex::new(1)), 2));
        assert_eq!(among.metadata_dir().path(), Path::new("/no/such/b"));
        let alone = dirs("/no/such/c");
        assert_eq!((alone.metadata_index(), alone.len()), (None, 2));
        assert_eq!(alone.metadata_dir().path(), Path::new("/no/such/c"));
        assert_eq!((alone.find("/no/such/b"), alone.find("/no/such/c")), (Some(LogDirIndex::new(1)), None));
    }

    #[test]
    fn the_first_failure_counts() {
        // Rule: a directory that has failed stays as it is, and the others are good.
        let dirs = dirs("/no/such/a");
        let first = dirs.dir(LogDirIndex::new(0));
        first.fail("a flush");
        first.take_offline("later");
        assert!(!first.is_good() && !first.is_offline());
        let second = dirs.dir(LogDirIndex::new(1));
        assert!(second.is_good());
        second.take_offline("not there");
        assert!(second.is_offline() && !second.is_good());
        assert_eq!(dirs.failed_count(), 2);
    }
}
