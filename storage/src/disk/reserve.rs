//! Space kept back for a full disk: a file that is given up when names and small files find no room, and made again when
//! there is.
//!
//! With it a broker whose disk is full can still note where logs begin, rename and remove their files, finish segments and
//! go on with its metadata log: all that frees space. What producers send never uses it. While it is given up
//! ([`Reserve::is_given_up`]) nothing new is to be taken, so that what becomes free makes the reserve whole before anything
//! else.

use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};

/// Name of the file, in the data directory.
pub const RESERVE_FILE: &str = ".reserve";
/// Part of a file system that a reserve takes at most.
const SHARE_OF_TOTAL: u64 = 16;

/// The reserve of one data directory, shared by all its disks. Its calls block: they are for helper threads, and for before
/// there are shards.
#[derive(Debug)]
pub struct Reserve {
    path: PathBuf,
    bytes: u64,
    /// The file has its space.
    is_whole: AtomicBool,
    /// It was given up, and is not whole again.
    is_given_up: AtomicBool,
}

#[expect(clippy::disallowed_methods, reason = "runs on helper threads, never on a shard")]
impl Reserve {
    /// What a reserve of `bytes_max` is in this data directory: no more than a sixteenth of the file system, and nothing on
    /// one that is in memory. Nothing is made yet.
    pub fn new(data_dir: &Path, bytes_max: u64) -> Self {
        let is_in_memory = statfs(data_dir).is_ok_and(|about| about.filesystem_type() == TMPFS_MAGIC);
        let total = nix::sys::statvfs::statvfs(data_dir)
            .map_or(u64::MAX, |about| about.blocks().saturating_mul(about.fragment_size()));
        let bytes = if is_in_memory { 0 } else { bytes_max.min(total / SHARE_OF_TOTAL) };
        let (is_whole, is_given_up) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { path: data_dir.join(RESERVE_FILE), bytes, is_whole, is_given_up }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// It has been used and is not whole again: the disk is full, and nothing is to be taken that can wait.
    pub fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }

    /// Makes the reserve, or makes it whole again.
    ///
    /// # Errors
    /// When there is no room for all of it; then the disk keeps none of it, and it counts as given up.
    pub fn make(&self) -> io::Result<()> {
        if self.bytes == 0 {
            self.remove()?;
        } else {
            let mut options = std::fs::OpenOptions::new();
            let file = options.create(true).truncate(false).write(true).mode(0o600).open(&self.path)?;
            file.set_len(file.metadata()?.len().min(self.bytes))?;
            let len = i64::try_from(self.bytes).unwrap_or(i64::MAX);
            match fallocate(&file, FallocateFlags::empty(), 0, len) {
                Ok(()) => self.is_whole.store(true, Ordering::Relaxed),
                // A file system that cannot reserve has no reserve.
                Err(nix::Error::EOPNOTSUPP) => self.remove()?,
                Err(errno) => {
                    self.is_given_up.store(true, Ordering::Relaxed);
                    file.set_len(0)?;
                    return Err(errno.into());
                }
            }
        }
        self.is_given_up.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Gives the space back to the disk; true when there was some.
    pub fn give_up(&self) -> bool {
        if !self.is_whole.swap(false, Ordering::Relaxed) {
            return false;
        }
        self.is_given_up.store(true, Ordering::Relaxed);
        match std::fs::OpenOptions::new().write(true).open(&self.path).and_then(|file| file.set_len(0)) {
            Ok(()) => {
                tracing::warn!(bytes = self.bytes, path = %self.path.display(),
                    "the disk is full: the reserve is given up, and appends are refused until it is whole again");
                true
            }
            Err(error) => {
                tracing::warn!(%error, path = %self.path.display(), "the reserve cannot be given up");
                false
            }
        }
    }

    fn remove(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test makes and removes its own files")]
    fn a_reserve_is_given_up_once_and_made_again() {
        // Rule: what is given up is given up once, says so until it is whole again, and takes its space then.
        let dir = std::env::temp_dir().join(format!("walser-reserve-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let reserve = Reserve::new(&dir, 1 << 20);
        let len = || std::fs::metadata(dir.join(RESERVE_FILE)).map_or(0, |about| about.len());
        assert!(!reserve.give_up(), "there is none yet");
        reserve.make().expect("made");
        assert_eq!((len(), reserve.is_given_up()), (reserve.bytes(), false));
        if reserve.bytes() > 0 {
            assert!(reserve.give_up());
            assert!(!reserve.give_up());
            assert_eq!((len(), reserve.is_given_up()), (0, true));
            reserve.make().expect("made again");
            assert_eq!((len(), reserve.is_given_up()), (reserve.bytes(), false));
        }
        let none = Reserve::new(&dir, 0);
        none.make().expect("nothing to make");
        assert!(!dir.join(RESERVE_FILE).exists(), "what an earlier run kept is free");
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
