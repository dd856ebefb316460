//! A file system in user space that loses, on command, whatever was not flushed: power cuts for the release binary.
//!
//! Mounting needs root (or `fusermount3` from Debian's `fuse3`) and `/dev/fuse`.

mod fuse;
pub mod prng;
pub mod store;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use prng::Prng;
use store::{Counts, Flushes, Store};

/// A mounted file system; dropping it unmounts.
pub struct LossyFs {
    store: Arc<Mutex<Store>>,
    mountpoint: PathBuf,
    session: Option<fuser::BackgroundSession>,
}

impl LossyFs {
    /// Mounts an empty file system on `mountpoint`, a directory that exists. Flushes are honest.
    pub fn mount(mountpoint: &Path) -> io::Result<Self> {
        let store = Arc::new(Mutex::new(Store::new(Flushes::Honest)));
        let session = fuse::mount(store.clone(), mountpoint)?;
        Ok(Self { store, mountpoint: mountpoint.to_owned(), session: Some(session) })
    }

    /// What flushes do from here on.
    pub fn set_flushes(&self, flushes: Flushes) {
        self.with_store(|store| store.set_flushes(flushes));
    }

    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// From here on every call fails, until [`LossyFs::power_on`]; what was not flushed is lost, kept or torn by `seed`.
    pub fn power_cut(&self, seed: u64) {
        self.with_store(|store| store.power_cut(&mut Prng::new(seed)));
    }

    /// Call it when no process has a file open any more: the kernel may hold stale pages otherwise.
    pub fn power_on(&self) {
        self.with_store(Store::power_on);
    }

    pub fn counts(&self) -> Counts {
        self.with_store(|store| store.counts())
    }

    fn with_store<T>(&self, act: impl FnOnce(&mut Store) -> T) -> T {
        act(&mut self.store.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for LossyFs {
    fn drop(&mut self) {
        if let Some(session) = self.session.take()
            && let Err(error) = session.umount_and_join()
        {
            eprintln!("unmounting {}: {error}", self.mountpoint.display());
        }
    }
}
