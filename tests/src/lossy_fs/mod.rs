//! A file system in user space that loses, on command, whatever was not flushed: power cuts for the release binary. Chosen
//! calls fail, tear or wait ([`faults`]), and it fills up.
//!
//! Mounting needs root (or `fusermount3` from Debian's `fuse3`) and `/dev/fuse`.

pub mod faults;
mod fuse;
pub mod prng;
pub mod store;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use faults::{Fault, FaultId, Faults};
use prng::Prng;
use store::{BLOCK_BYTES, Counts, Flushes, Store};

/// Carries out a call that was held, and answers it.
type Held = Box<dyn FnOnce(&mut Store) + Send>;

/// What is behind the mount.
struct World {
    store: Store,
    faults: Faults,
    /// Calls that wait until their fault is lifted, in the order they came.
    held: Vec<(FaultId, Held)>,
}

/// A mounted file system; dropping it unmounts.
pub struct LossyFs {
    world: Arc<Mutex<World>>,
    mountpoint: PathBuf,
    session: Option<fuser::BackgroundSession>,
}

impl LossyFs {
    /// Mounts an empty file system on `mountpoint`, a directory that exists. Flushes are honest.
    pub fn mount(mountpoint: &Path) -> io::Result<Self> {
        let world = World { store: Store::new(Flushes::Honest), faults: Faults::default(), held: Vec::new() };
        let world = Arc::new(Mutex::new(world));
        let session = fuse::mount(world.clone(), mountpoint)?;
        Ok(Self { world, mountpoint: mountpoint.to_owned(), session: Some(session) })
    }

    /// What flushes do from here on.
    pub fn set_flushes(&self, flushes: Flushes) {
        self.with_world(|world| world.store.set_flushes(flushes));
    }

    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// From here on every call fails, until [`LossyFs::power_on`]; what was not flushed is lost, kept or torn by `seed`.
    pub fn power_cut(&self, seed: u64) {
        self.with_world(|world| world.store.power_cut(&mut Prng::new(seed)));
    }

    /// Call it when no process has a file open any more: the kernel may hold stale pages otherwise.
    pub fn power_on(&self) {
        self.with_world(|world| world.store.power_on());
    }

    pub fn counts(&self) -> Counts {
        self.with_world(|world| world.store.counts())
    }

    /// Has calls go wrong from here on.
    pub fn inject(&self, fault: Fault) -> FaultId {
        self.with_world(|world| world.faults.inject(fault))
    }

    /// Ends a fault; the calls it holds are carried out and answered.
    pub fn lift(&self, id: FaultId) {
        self.with_world(|world| {
            world.faults.lift(id);
            let (lifted, left) = std::mem::take(&mut world.held).into_iter().partition(|(held, _)| *held == id);
            world.held = left;
            let lifted: Vec<(FaultId, Held)> = lifted;
            for (_, late) in lifted {
                late(&mut world.store);
            }
        });
    }

    /// How many calls a fault has hit so far.
    pub fn hits(&self, id: FaultId) -> u64 {
        self.with_world(|world| world.faults.hits(id))
    }

    /// How many calls a fault has looked at, hit or not.
    pub fn seen(&self, id: FaultId) -> u64 {
        self.with_world(|world| world.faults.seen(id))
    }

    /// Beyond so many bytes of files the file system is full. It may be raised and lowered at any time.
    pub fn set_capacity(&self, bytes: u64) {
        self.with_world(|world| world.store.set_capacity(bytes));
    }

    /// Bytes that files take, reserved ones included.
    pub fn used_bytes(&self) -> u64 {
        self.with_world(|world| world.store.used_blocks() * BLOCK_BYTES as u64)
    }

    /// Changes a bit of a file, by its path below the mount point.
    pub fn flip_bit(&self, path: &str, position: u64) -> io::Result<()> {
        self.with_world(|world| {
            let ino = world.store.find(path).map_err(io::Error::from_raw_os_error)?.ino;
            world.store.flip_bit(ino, position).map_err(io::Error::from_raw_os_error)
        })
    }

    fn with_world<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        act(&mut self.world.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for LossyFs {
    fn drop(&mut self) {
        // A process that still waits for an answer could not be ended, nor the file system unmounted.
        self.with_world(|world| {
            world.faults = Faults::default();
            for (_, late) in std::mem::take(&mut world.held) {
                late(&mut world.store);
            }
        });
        if let Some(session) = self.session.take()
            && let Err(error) = session.umount_and_join()
        {
            eprintln!("unmounting {}: {error}", self.mountpoint.display());
        }
    }
}
