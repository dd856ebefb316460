//! A disk in memory that fails in every way a real one does, by seed.
//!
//! * Every operation takes a random time, so completions come in another order than the calls.
//! * A write is in the device's cache when it completes and on the platter only after [`File::sync_data`]. At a power cut
//!   each write that no flush covered, in flight or completed, survives, is lost, is torn at 512-byte sectors, or leaves
//!   only its length.
//! * Names made, renamed or removed are durable only after [`Disk::sync_dir`] of their directory; until then each may be
//!   undone by a power cut, also while later ones survive.
//! * Reads, writes and flushes fail when told to ([`SimulatedDisk::fail_nth`]) or at random ([`FaultRates`]); a failed
//!   flush loses what it should have covered for good. The disk is full at its capacity. Bits rot, writes go astray
//!   ([`SimulatedDisk::misdirect_nth`]), and some operations take very long.
//! * The power is cut at the n-th changing operation ([`SimulatedDisk::cut_power_at`]), so that a test can try them all.
//!
//! It also holds its callers to the contract of [`File`]: unaligned writes and two writes in flight that touch one block
//! panic.

mod content;
mod tree;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use self::tree::{Change, InodeId, Tree};
use super::{BLOCK_BYTES, DirEntry, Disk, File, OpenMode, Space};
use crate::runtime::Runtime;
use crate::runtime::channel::oneshot;
use crate::runtime::prng::Prng;
use crate::runtime::simulated::SimulatedRuntime;

/// What can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read,
    Write,
    SyncData,
    Truncate,
    Allocate,
    /// Of a file or a directory.
    Create,
    Rename,
    Remove,
    SyncDir,
}

impl Operation {
    /// Whether it changes what is there after a power cut, and so counts for [`SimulatedDisk::cut_power_at`].
    fn changes(self) -> bool {
        self != Self::Read
    }
}

/// Failures at random, each out of a million operations of its kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultRates {
    pub read_error: u32,
    /// One bit of what a read returns is flipped; what is stored stays as it is.
    pub read_bit_rot: u32,
    /// Any part of the write may have reached the disk.
    pub write_error: u32,
    pub sync_error: u32,
    /// It takes [`STALL_FACTOR`] times as long.
    pub stall: u32,
}

/// See [`FaultRates::stall`].
const STALL_FACTOR: u64 = 200;

/// Shape of a simulated disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimulatedDiskOptions {
    pub capacity_bytes: u64,
    /// Least and most time of a read or a write.
    pub transfer_us: (u64, u64),
    pub sync_us: (u64, u64),
    pub faults: FaultRates,
    /// Whether it has [`Disk::sync_all`].
    pub syncs_all: bool,
}

impl Default for SimulatedDiskOptions {
    fn default() -> Self {
        let faults = FaultRates::default();
        Self { capacity_bytes: 1 << 40, transfer_us: (20, 400), sync_us: (50, 2_000), faults, syncs_all: false }
    }
}

/// How much was asked of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationCounts {
    pub reads: u64,
    pub writes: u64,
    pub bytes_written: u64,
    pub syncs: u64,
    pub dir_syncs: u64,
}

struct Injected {
    operation: Operation,
    path_contains: String,
    left: u64,
    errno: i32,
}

/// A write that will go somewhere else.
struct Misdirected {
    path_contains: String,
    left: u64,
}

struct InFlight {
    inode: InodeId,
    position: u64,
    bytes: Rc<[u8]>,
    is_astray: bool,
}

impl InFlight {
    /// Whether it writes something of `from..end` of this file where it was told to.
    fn touches(&self, inode: InodeId, from: u64, end: u64) -> bool {
        let is_apart = end <= self.position || self.position + self.bytes.len() as u64 <= from;
        self.inode == inode && !is_apart && !self.is_astray
    }
}

struct State {
    tree: Tree,
    options: SimulatedDiskOptions,
    prng: Prng,
    injected: Vec<Injected>,
    misdirected: Vec<Misdirected>,
    in_flight: BTreeMap<u64, InFlight>,
    next_write: u64,
    changes: u64,
    cut_at: Option<u64>,
    power_lost: bool,
    counts: OperationCounts,
}

/// A simulated file system; clones are handles to the same one. Paths are taken as absolute; `/` is always there.
#[derive(Clone)]
pub struct SimulatedDisk {
    runtime: SimulatedRuntime,
    state: Rc<RefCell<State>>,
}

/// An open file of a [`SimulatedDisk`].
#[derive(Clone)]
pub struct SimulatedFile {
    disk: SimulatedDisk,
    inode: InodeId,
    path: PathBuf,
    writable: bool,
}

impl SimulatedDisk {
    /// An empty disk whose behaviour follows from the runtime's seed.
    pub fn new(runtime: &SimulatedRuntime) -> Self {
        Self::with_options(runtime, SimulatedDiskOptions::default())
    }

    pub fn with_options(runtime: &SimulatedRuntime, options: SimulatedDiskOptions) -> Self {
        Self::from_tree(runtime, options, Tree::new(), runtime.fork_prng())
    }

    fn from_tree(runtime: &SimulatedRuntime, options: SimulatedDiskOptions, tree: Tree, prng: Prng) -> Self {
        let state = State {
            tree,
            options,
            prng,
            injected: Vec::new(),
            misdirected: Vec::new(),
            in_flight: BTreeMap::new(),
            next_write: 0,
            changes: 0,
            cut_at: None,
            power_lost: false,
            counts: OperationCounts::default(),
        };
        Self { runtime: runtime.clone(), state: Rc::new(RefCell::new(state)) }
    }

    /// The power goes: this disk never answers again, and what a power cut leaves is returned, to be used on `runtime`.
    /// Tasks that used this disk should have been dropped, see [`SimulatedRuntime::crash`].
    pub fn crash(&self, runtime: &SimulatedRuntime) -> Self {
        let mut state = self.state.borrow_mut();
        state.power_lost = true;
        let State { tree, prng, in_flight, .. } = &mut *state;
        submit_in_flight(tree, in_flight, prng, false);
        let tree = tree.after_power_cut(prng);
        let prng = prng.fork();
        Self::from_tree(runtime, state.options, tree, prng)
    }

    /// The process is killed but the machine stays up: nothing that completed is lost, and a write in flight happens as a
    /// whole or not at all. This handle never answers again.
    pub fn kill(&self, runtime: &SimulatedRuntime) -> Self {
        let mut state = self.state.borrow_mut();
        state.power_lost = true;
        let State { tree, prng, in_flight, .. } = &mut *state;
        submit_in_flight(tree, in_flight, prng, true);
        let (tree, prng) = (tree.clone(), prng.fork());
        Self::from_tree(runtime, state.options, tree, prng)
    }

    /// A second disk with the same contents, to try something on.
    pub fn copy(&self, runtime: &SimulatedRuntime) -> Self {
        let mut state = self.state.borrow_mut();
        let (tree, prng) = (state.tree.clone(), state.prng.fork());
        Self::from_tree(runtime, state.options, tree, prng)
    }

    /// Cuts the power in the middle of the `number`-th changing operation from now, counted from 1. Every later
    /// operation hangs; stop the run on [`Self::has_lost_power`], then take [`Self::crash`].
    pub fn cut_power_at(&self, number: u64) {
        let mut state = self.state.borrow_mut();
        state.cut_at = Some(state.changes + number);
    }

    pub fn has_lost_power(&self) -> bool {
        self.state.borrow().power_lost
    }

    /// Changing operations so far: the crash points of the run.
    pub fn change_count(&self) -> u64 {
        self.state.borrow().changes
    }

    pub fn counts(&self) -> OperationCounts {
        self.state.borrow().counts
    }

    /// Lets the `nth` operation of this kind from now (from 1) on a path that contains `path_contains` fail with `errno`.
    /// A failed write may have written any part; a failed flush loses what it should have covered.
    pub fn fail_nth(&self, operation: Operation, path_contains: &str, nth: u64, errno: i32) {
        let path_contains = path_contains.to_owned();
        self.state.borrow_mut().injected.push(Injected { operation, path_contains, left: nth, errno });
    }

    /// Lets the `nth` write from now (from 1) to a path that contains `path_contains` go to other blocks of its file, where
    /// there are any, and say that all is well. Where it should have gone everything stays as it was.
    pub fn misdirect_nth(&self, path_contains: &str, nth: u64) {
        let path_contains = path_contains.to_owned();
        self.state.borrow_mut().misdirected.push(Misdirected { path_contains, left: nth });
    }

    pub fn set_faults(&self, faults: FaultRates) {
        self.state.borrow_mut().options.faults = faults;
    }

    pub fn set_capacity(&self, capacity_bytes: u64) {
        self.state.borrow_mut().options.capacity_bytes = capacity_bytes;
    }

    /// Bytes taken by files, in whole blocks.
    pub fn used_bytes(&self) -> u64 {
        self.state.borrow().tree.used_bytes()
    }

    /// Flips a bit where it is stored, durably.
    pub fn flip_bit(&self, path: &Path, position: u64, bit: u32) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        let inode = state.tree.lookup(path)?;
        state.tree.flip_bit(inode, position, bit)
    }

    /// The whole file as processes see it, without time or faults.
    pub fn peek(&self, path: &Path) -> io::Result<Vec<u8>> {
        let state = self.state.borrow();
        let file = state.tree.file(state.tree.lookup(path)?)?;
        let len = usize::try_from(file.visible.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        Ok(file.visible.read(0, len))
    }

    /// Names in a directory, without time or faults; none when it is not there.
    pub fn peek_names(&self, path: &Path) -> Vec<String> {
        let found = self.state.borrow().tree.list(path).unwrap_or_default();
        found.into_iter().map(|(name, ..)| name).collect()
    }

    /// Overwrites bytes durably, without time or faults: a test plants what it wants to see refused.
    pub fn plant(&self, path: &Path, position: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        let inode = match state.tree.lookup(path) {
            Ok(inode) => inode,
            Err(_) => state.tree.create_file(path)?,
        };
        state.tree.change_file(inode, Change::Write { position, bytes: Rc::from(bytes) })?;
        let sequence = state.tree.sequence();
        state.tree.sync_file(inode, sequence);
        let parent = state.tree.lookup(path.parent().unwrap_or(Path::new("")))?;
        state.tree.sync_dir(parent, sequence);
        Ok(())
    }

    /// Waits out the operation's time and gives its verdict. Hangs for ever when the power goes.
    async fn perform(&self, operation: Operation, path: &Path) -> io::Result<()> {
        let verdict = self.admit(operation, path).await;
        self.take_time(operation).await;
        verdict
    }

    /// Counts the operation, cuts the power if it is the one, and decides whether it fails.
    async fn admit(&self, operation: Operation, path: &Path) -> io::Result<()> {
        let admitted = self.state.borrow_mut().admit(operation, path);
        match admitted {
            Some(verdict) => verdict,
            None => pending().await,
        }
    }

    async fn take_time(&self, operation: Operation) {
        let wait = {
            let mut state = self.state.borrow_mut();
            let (low, high) = match operation {
                Operation::SyncData | Operation::SyncDir => state.options.sync_us,
                Operation::Read
                | Operation::Write
                | Operation::Truncate
                | Operation::Allocate
                | Operation::Create
                | Operation::Rename
                | Operation::Remove => state.options.transfer_us,
            };
            let rate = state.options.faults.stall;
            let stalls = rate > 0 && state.prng.chance(u64::from(rate), 1_000_000);
            Duration::from_micros(state.prng.between(low, high) * if stalls { STALL_FACTOR } else { 1 })
        };
        self.runtime.sleep(wait).await;
        if self.has_lost_power() {
            pending::<()>().await;
        }
    }
}

/// Writes in flight when the world ends: the device may have any of them, in any order.
fn submit_in_flight(tree: &mut Tree, in_flight: &mut BTreeMap<u64, InFlight>, prng: &mut Prng, whole: bool) {
    let mut writes: Vec<InFlight> = std::mem::take(in_flight).into_values().collect();
    while !writes.is_empty() {
        let write = writes.swap_remove(prng.index(writes.len()));
        if whole && prng.chance(1, 2) {
            continue;
        }
        let change = Change::Write { position: write.position, bytes: write.bytes };
        tree.change_file(write.inode, change).expect("a write in flight has a file");
    }
}

impl State {
    /// `None` when the power is gone.
    fn admit(&mut self, operation: Operation, path: &Path) -> Option<io::Result<()>> {
        if self.power_lost {
            return None;
        }
        self.counts.count(operation);
        if operation.changes() {
            self.changes += 1;
            // The operation itself is still submitted: how much of it happened is for `crash` to decide.
            self.power_lost = self.cut_at.is_some_and(|cut_at| self.changes >= cut_at);
        }
        Some(self.draw_fault(operation, path))
    }

    fn draw_fault(&mut self, operation: Operation, path: &Path) -> io::Result<()> {
        let text = path.to_string_lossy();
        let mut errno = None;
        self.injected.retain_mut(|injected| {
            if injected.operation != operation || !text.contains(&injected.path_contains) {
                return true;
            }
            injected.left = injected.left.saturating_sub(1);
            if injected.left == 0 {
                errno = Some(injected.errno);
            }
            injected.left > 0
        });
        let rate = match operation {
            Operation::Read => self.options.faults.read_error,
            Operation::Write => self.options.faults.write_error,
            Operation::SyncData | Operation::SyncDir => self.options.faults.sync_error,
            Operation::Truncate | Operation::Allocate | Operation::Create | Operation::Rename | Operation::Remove => 0,
        };
        if rate > 0 && self.prng.chance(u64::from(rate), 1_000_000) {
            errno = Some(libc::EIO);
        }
        errno.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }

    fn check_room(&self, inode: InodeId, len: u64) -> io::Result<()> {
        // What was in flight at the same time may have gone beyond the capacity; blocks that are there can be written still.
        let growth = self.tree.growth(inode, len);
        if growth > 0 && self.tree.used_bytes() + growth > self.options.capacity_bytes {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        Ok(())
    }

    fn submit_write(&mut self, inode: InodeId, path: &Path, position: u64, bytes: Rc<[u8]>) -> io::Result<u64> {
        let end = position + bytes.len() as u64;
        self.check_room(inode, end)?;
        let is_free = !self.in_flight.values().any(|other| other.touches(inode, position, end));
        assert!(is_free, "two writes in flight touch one block at {position}");
        self.counts.bytes_written += bytes.len() as u64;
        let number = self.next_write;
        self.next_write += 1;
        let write = InFlight { inode, position, bytes, is_astray: false };
        let write = if self.goes_astray(path) { self.misdirect(write)? } else { write };
        self.in_flight.insert(number, write);
        Ok(number)
    }

    fn goes_astray(&mut self, path: &Path) -> bool {
        let text = path.to_string_lossy();
        let mut goes_astray = false;
        self.misdirected.retain_mut(|misdirected| {
            if text.contains(&misdirected.path_contains) {
                misdirected.left = misdirected.left.saturating_sub(1);
                goes_astray |= misdirected.left == 0;
            }
            misdirected.left > 0
        });
        goes_astray
    }

    /// To blocks that the file has, else nowhere.
    fn misdirect(&mut self, write: InFlight) -> io::Result<InFlight> {
        let blocks = self.tree.file(write.inode)?.visible.len() / BLOCK_BYTES as u64;
        let last = blocks.checked_sub((write.bytes.len() / BLOCK_BYTES) as u64).filter(|last| *last > 0);
        let (position, bytes) = match last {
            Some(last) => (self.prng.between(0, last) * BLOCK_BYTES as u64, write.bytes),
            None => (0, Rc::from([].as_slice())),
        };
        Ok(InFlight { position, bytes, is_astray: true, ..write })
    }

    fn finish_write(&mut self, number: u64, verdict: io::Result<()>) -> io::Result<()> {
        let mut write = self.in_flight.remove(&number).expect("a write finishes once");
        if verdict.is_err() {
            let part = self.prng.index(write.bytes.len() / content::SECTOR_BYTES + 1) * content::SECTOR_BYTES;
            write.bytes = Rc::from(&write.bytes[..part]);
        }
        self.tree.change_file(write.inode, Change::Write { position: write.position, bytes: write.bytes })?;
        verdict
    }

    fn finish_sync(&mut self, inode: InodeId, sequence: u64, verdict: io::Result<()>) -> io::Result<()> {
        match &verdict {
            Ok(()) => self.tree.sync_file(inode, sequence),
            Err(_) => self.tree.fail_sync(inode, sequence, &mut self.prng),
        }
        verdict
    }

    fn read(&mut self, inode: InodeId, position: u64, len_bytes: usize) -> io::Result<Bytes> {
        let mut bytes = self.tree.file(inode)?.visible.read(position, len_bytes);
        let rate = self.options.faults.read_bit_rot;
        if rate > 0 && !bytes.is_empty() && self.prng.chance(u64::from(rate), 1_000_000) {
            let index = self.prng.index(bytes.len());
            bytes[index] ^= 1 << self.prng.below(8);
        }
        Ok(bytes.into())
    }
}

impl OperationCounts {
    fn count(&mut self, operation: Operation) {
        match operation {
            Operation::Read => self.reads += 1,
            Operation::Write => self.writes += 1,
            Operation::SyncData => self.syncs += 1,
            Operation::SyncDir => self.dir_syncs += 1,
            Operation::Truncate | Operation::Allocate | Operation::Create | Operation::Rename | Operation::Remove => {}
        }
    }
}

impl Disk for SimulatedDisk {
    type File = SimulatedFile;

    async fn open(&self, path: &Path, mode: OpenMode) -> io::Result<SimulatedFile> {
        let found = self.state.borrow().tree.lookup(path);
        let inode = match (found, mode) {
            (Ok(_), OpenMode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Ok(inode), OpenMode::Read | OpenMode::ReadWrite | OpenMode::CreateOrOpen) => inode,
            (Err(error), OpenMode::Read | OpenMode::ReadWrite) => return Err(error),
            (Err(_), OpenMode::CreateOrOpen | OpenMode::CreateNew) => {
                self.admit(Operation::Create, path).await?;
                let created = self.state.borrow_mut().tree.create_file(path);
                self.take_time(Operation::Create).await;
                created?
            }
        };
        self.state.borrow().tree.file(inode)?;
        let writable = mode != OpenMode::Read;
        Ok(SimulatedFile { disk: self.clone(), inode, path: path.to_owned(), writable })
    }

    async fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.admit(Operation::Create, path).await?;
        let made = self.state.borrow_mut().tree.create_dir_all(path);
        self.take_time(Operation::Create).await;
        made.map(|_| ())
    }

    async fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.perform(Operation::Read, path).await?;
        let entries = self.state.borrow().tree.list(path)?;
        Ok(entries.into_iter().map(|(name, is_dir, len_bytes)| DirEntry { name, is_dir, len_bytes }).collect())
    }

    async fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.admit(Operation::Rename, from).await?;
        let renamed = self.state.borrow_mut().tree.rename(from, to);
        self.take_time(Operation::Rename).await;
        renamed
    }

    async fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.admit(Operation::Remove, path).await?;
        let removed = self.state.borrow_mut().tree.remove(path, false);
        self.take_time(Operation::Remove).await;
        removed
    }

    async fn remove_in_steps(&self, path: &Path) -> io::Result<()> {
        self.open(path, OpenMode::ReadWrite).await?.truncate(0).await?;
        self.remove_file(path).await
    }

    async fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.admit(Operation::Remove, path).await?;
        let removed = self.state.borrow_mut().tree.remove(path, true);
        self.take_time(Operation::Remove).await;
        removed
    }

    async fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let dir = self.state.borrow().tree.lookup(path)?;
        let sequence = self.state.borrow().tree.sequence();
        self.perform(Operation::SyncDir, path).await?;
        self.state.borrow_mut().tree.sync_dir(dir, sequence);
        Ok(())
    }

    fn syncs_all(&self) -> bool {
        self.state.borrow().options.syncs_all
    }

    async fn sync_all(&self, path: &Path) -> io::Result<()> {
        let sequence = self.state.borrow().tree.sequence();
        let verdict = self.perform(Operation::SyncData, path).await;
        let mut state = self.state.borrow_mut();
        let State { tree, prng, .. } = &mut *state;
        match &verdict {
            Ok(()) => tree.sync_all(sequence),
            Err(_) => tree.fail_sync_all(sequence, prng),
        }
        verdict
    }

    async fn space(&self, _path: &Path) -> io::Result<Space> {
        let state = self.state.borrow();
        let total_bytes = state.options.capacity_bytes;
        Ok(Space { total_bytes, usable_bytes: total_bytes.saturating_sub(state.tree.used_bytes()) })
    }
}

impl SimulatedFile {
    fn check_writable(&self) -> io::Result<()> {
        if self.writable { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EBADF)) }
    }

    /// Runs as a task of its own: a caller that gives up does not stop the device.
    async fn detached<T: 'static>(&self, work: impl Future<Output = io::Result<T>> + 'static) -> io::Result<T> {
        let (sender, receiver) = oneshot();
        self.disk.runtime.spawn(async move {
            // Nobody listening any more is the caller's choice.
            drop(sender.send(work.await));
        });
        match receiver.await {
            Ok(result) => result,
            // The simulated process is being torn down.
            Err(_) => pending().await,
        }
    }
}

impl File for SimulatedFile {
    type Buffer = Vec<u8>;

    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    fn allocate(&self, len_bytes: usize) -> Vec<u8> {
        // Not zeros: whoever forgets to fill the padding sees it on disk.
        vec![0xA5; len_bytes.next_multiple_of(BLOCK_BYTES)]
    }

    async fn read_into(&self, mut memory: BytesMut, position: u64, len_bytes: usize) -> io::Result<Bytes> {
        self.disk.perform(Operation::Read, &self.path).await?;
        memory.extend_from_slice(&self.disk.state.borrow_mut().read(self.inode, position, len_bytes)?);
        Ok(memory.freeze())
    }

    async fn write_at(&self, buffer: Vec<u8>, position: u64) -> io::Result<()> {
        assert!(position.is_multiple_of(BLOCK_BYTES as u64), "write at unaligned position {position}");
        assert!(buffer.len().is_multiple_of(BLOCK_BYTES), "write of unaligned length {}", buffer.len());
        assert!(!buffer.is_empty(), "write of nothing");
        self.check_writable()?;
        let verdict = self.disk.admit(Operation::Write, &self.path).await;
        let number = self.disk.state.borrow_mut().submit_write(self.inode, &self.path, position, Rc::from(buffer))?;
        let disk = self.disk.clone();
        self.detached(async move {
            disk.take_time(Operation::Write).await;
            disk.state.borrow_mut().finish_write(number, verdict)
        })
        .await
    }

    async fn sync_data(&self) -> io::Result<()> {
        let sequence = self.disk.state.borrow().tree.sequence();
        let verdict = self.disk.admit(Operation::SyncData, &self.path).await;
        let (disk, inode) = (self.disk.clone(), self.inode);
        self.detached(async move {
            disk.take_time(Operation::SyncData).await;
            disk.state.borrow_mut().finish_sync(inode, sequence, verdict)
        })
        .await
    }

    async fn truncate(&self, len_bytes: u64) -> io::Result<()> {
        self.check_writable()?;
        self.disk.admit(Operation::Truncate, &self.path).await?;
        {
            let mut state = self.disk.state.borrow_mut();
            let overlaps = state.in_flight.values().any(|write| write.touches(self.inode, len_bytes, u64::MAX));
            assert!(!overlaps, "truncated under a write in flight");
            state.check_room(self.inode, len_bytes)?;
            state.tree.change_file(self.inode, Change::SetLen(len_bytes))?;
        }
        self.disk.take_time(Operation::Truncate).await;
        Ok(())
    }

    async fn preallocate(&self, len_bytes: u64, keep_len: bool) -> io::Result<()> {
        self.check_writable()?;
        self.disk.admit(Operation::Allocate, &self.path).await?;
        {
            let mut state = self.disk.state.borrow_mut();
            state.check_room(self.inode, len_bytes)?;
            state.tree.reserve(self.inode, len_bytes)?;
            let len = state.tree.file(self.inode)?.visible.len();
            if !keep_len && len < len_bytes {
                state.tree.change_file(self.inode, Change::SetLen(len_bytes))?;
            }
        }
        self.disk.take_time(Operation::Allocate).await;
        Ok(())
    }

    async fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.disk.state.borrow().tree.file(self.inode)?.visible.len())
    }
}

#[cfg(test)]
mod tests;
