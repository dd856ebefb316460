//! What a disk with a volatile cache holds: two states of every file and directory, the one processes see and the one
//! a power cut leaves behind.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use super::prng::Prng;

/// Files are kept in blocks of this many bytes.
pub const BLOCK_BYTES: usize = 4096;
/// A block tears at multiples of this many bytes.
const SECTOR_BYTES: usize = 512;
/// Unless [`Store::set_capacity`] says otherwise: 64 GiB.
const CAPACITY_BLOCKS: u64 = 16 << 20;
/// Inode number of the root directory, fixed by FUSE.
pub const ROOT: u64 = 1;

type Block = Arc<[u8; BLOCK_BYTES]>;

/// Why an operation was refused: the errno of the call.
pub type Errno = i32;

/// What the store does wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushes {
    /// fsync makes durable what it promises.
    Honest,
    /// fsync answers success and does nothing: a test of the tests.
    Ignored,
}

#[derive(Default)]
struct FileState {
    live: BTreeMap<u64, Block>,
    live_len: u64,
    durable: BTreeMap<u64, Block>,
    durable_len: u64,
    dirty: BTreeSet<u64>,
    /// Blocks below this one have their space, written or not.
    reserved: u64,
    /// Blocks of `live` from there on.
    loose: u64,
    /// Open descriptors.
    open: u64,
    /// No name is left.
    is_orphan: bool,
}

impl FileState {
    fn used_blocks(&self) -> u64 {
        self.reserved + self.loose
    }

    fn recount(&mut self) {
        self.loose = self.live.range(self.reserved..).count() as u64;
    }
}

#[derive(Clone)]
enum NameChange {
    Put(OsString, u64),
    Remove(OsString),
    Rename { from: OsString, to: OsString, ino: u64 },
}

#[derive(Default)]
struct DirState {
    live: BTreeMap<OsString, u64>,
    durable: BTreeMap<OsString, u64>,
    /// Changes of `live` since the last sync, in order.
    pending: Vec<NameChange>,
}

enum Node {
    File(FileState),
    Dir(DirState),
}

/// Counts since the store was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub writes: u64,
    pub bytes_written: u64,
    pub file_syncs: u64,
    pub dir_syncs: u64,
}

/// The attributes FUSE asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    pub ino: u64,
    pub is_dir: bool,
    pub len_bytes: u64,
    pub blocks: u64,
}

pub struct Store {
    nodes: BTreeMap<u64, Node>,
    next_ino: u64,
    flushes: Flushes,
    powered: bool,
    counts: Counts,
    /// Parent and name of every node, the last ones it had.
    places: BTreeMap<u64, (u64, OsString)>,
    capacity_blocks: u64,
    used_blocks: u64,
}

impl Store {
    pub fn set_flushes(&mut self, flushes: Flushes) {
        self.flushes = flushes;
    }

    /// Beyond it, what needs a new block of a file is refused with ENOSPC. Directories take nothing.
    pub fn set_capacity(&mut self, bytes: u64) {
        self.capacity_blocks = bytes / BLOCK_BYTES as u64;
    }

    /// Of all files, in blocks of [`BLOCK_BYTES`].
    pub fn capacity_blocks(&self) -> u64 {
        self.capacity_blocks
    }

    pub fn used_blocks(&self) -> u64 {
        self.used_blocks
    }

    pub fn new(flushes: Flushes) -> Self {
        let mut nodes = BTreeMap::new();
        nodes.insert(ROOT, Node::Dir(DirState::default()));
        Self {
            nodes,
            next_ino: ROOT + 1,
            flushes,
            powered: true,
            counts: Counts::default(),
            places: BTreeMap::new(),
            capacity_blocks: CAPACITY_BLOCKS,
            used_blocks: 0,
        }
    }

    /// Path below the root, without a slash in front.
    pub fn path(&self, ino: u64) -> String {
        let mut names = Vec::new();
        let mut at = ino;
        while let Some((parent, name)) = self.places.get(&at) {
            names.push(name.to_string_lossy().into_owned());
            at = *parent;
        }
        names.reverse();
        names.join("/")
    }

    /// The node with this path below the root.
    pub fn find(&self, path: &str) -> Result<Attributes, Errno> {
        let mut names = path.split('/').filter(|name| !name.is_empty());
        let root = self.attributes(ROOT)?;
        names.try_fold(root, |at, name| self.lookup(at.ino, OsStr::new(name)))
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Everything not flushed is lost, kept or torn by the seed; every call fails with EIO until [`Store::power_on`].
    pub fn power_cut(&mut self, prng: &mut Prng) {
        self.powered = false;
        for node in self.nodes.values_mut() {
            match node {
                Node::File(file) => cut_file(file, prng),
                Node::Dir(dir) => cut_dir(dir, prng),
            }
        }
        self.drop_unreachable();
        self.used_blocks =
            self.nodes.values().map(|node| if let Node::File(file) = node { file.used_blocks() } else { 0 }).sum();
        self.places.clear();
        for (parent, node) in &self.nodes {
            let Node::Dir(dir) = node else { continue };
            self.places.extend(dir.live.iter().map(|(name, ino)| (*ino, (*parent, name.clone()))));
        }
    }

    pub fn power_on(&mut self) {
        self.powered = true;
    }

    pub fn lookup(&self, parent: u64, name: &OsStr) -> Result<Attributes, Errno> {
        let ino = *self.dir(parent)?.live.get(name).ok_or(libc::ENOENT)?;
        self.attributes(ino)
    }

    pub fn attributes(&self, ino: u64) -> Result<Attributes, Errno> {
        self.check_power()?;
        match self.nodes.get(&ino).ok_or(libc::ENOENT)? {
            Node::File(file) => {
                Ok(Attributes { ino, is_dir: false, len_bytes: file.live_len, blocks: file.live.len() as u64 * 8 })
            }
            Node::Dir(_) => Ok(Attributes { ino, is_dir: true, len_bytes: 4096, blocks: 8 }),
        }
    }

    pub fn create(&mut self, parent: u64, name: &OsStr, is_dir: bool) -> Result<Attributes, Errno> {
        let ino = self.next_ino;
        let dir = self.dir_mut(parent)?;
        if dir.live.contains_key(name) {
            return Err(libc::EEXIST);
        }
        dir.live.insert(name.to_owned(), ino);
        dir.pending.push(NameChange::Put(name.to_owned(), ino));
        self.next_ino += 1;
        self.places.insert(ino, (parent, name.to_owned()));
        let node = if is_dir { Node::Dir(DirState::default()) } else { Node::File(FileState::default()) };
        self.nodes.insert(ino, node);
        self.attributes(ino)
    }

    pub fn remove(&mut self, parent: u64, name: &OsStr, is_dir: bool) -> Result<(), Errno> {
        let ino = *self.dir(parent)?.live.get(name).ok_or(libc::ENOENT)?;
        match self.nodes.get(&ino).ok_or(libc::ENOENT)? {
            Node::Dir(dir) if !dir.live.is_empty() => return Err(libc::ENOTEMPTY),
            Node::Dir(_) if !is_dir => return Err(libc::EISDIR),
            Node::File(_) if is_dir => return Err(libc::ENOTDIR),
            Node::Dir(_) | Node::File(_) => {}
        }
        let dir = self.dir_mut(parent)?;
        dir.live.remove(name);
        dir.pending.push(NameChange::Remove(name.to_owned()));
        self.orphan(ino);
        Ok(())
    }

    /// A descriptor was opened.
    pub fn note_open(&mut self, ino: u64) {
        if let Some(Node::File(file)) = self.nodes.get_mut(&ino) {
            file.open += 1;
        }
    }

    /// A descriptor was closed.
    pub fn note_closed(&mut self, ino: u64) {
        if let Some(Node::File(file)) = self.nodes.get_mut(&ino) {
            file.open = file.open.saturating_sub(1);
        }
        self.free_orphan(ino);
    }

    /// The node has lost its name.
    fn orphan(&mut self, ino: u64) {
        if let Some(Node::File(file)) = self.nodes.get_mut(&ino) {
            file.is_orphan = true;
        }
        self.free_orphan(ino);
    }

    /// Gives back the space of a file without name and descriptors. What of it a power cut might bring back is kept.
    fn free_orphan(&mut self, ino: u64) {
        let Some(Node::File(file)) = self.nodes.get_mut(&ino) else { return };
        if file.is_orphan && file.open == 0 {
            self.used_blocks -= file.used_blocks();
            (file.reserved, file.loose, file.live_len) = (0, 0, file.durable_len);
            file.live.clear();
            file.dirty.clear();
        }
    }

    pub fn rename(&mut self, parent: u64, from: &OsStr, new_parent: u64, to: &OsStr) -> Result<(), Errno> {
        let ino = *self.dir(parent)?.live.get(from).ok_or(libc::ENOENT)?;
        let replaced = self.dir(new_parent)?.live.get(to).copied().filter(|replaced| *replaced != ino);
        self.places.insert(ino, (new_parent, to.to_owned()));
        if let Some(replaced) = replaced {
            self.orphan(replaced);
        }
        if parent == new_parent {
            let dir = self.dir_mut(parent)?;
            dir.live.remove(from);
            dir.live.insert(to.to_owned(), ino);
            dir.pending.push(NameChange::Rename { from: from.to_owned(), to: to.to_owned(), ino });
            return Ok(());
        }
        let old = self.dir_mut(parent)?;
        old.live.remove(from);
        old.pending.push(NameChange::Remove(from.to_owned()));
        let new = self.dir_mut(new_parent)?;
        new.live.insert(to.to_owned(), ino);
        new.pending.push(NameChange::Put(to.to_owned(), ino));
        Ok(())
    }

    pub fn list(&self, ino: u64) -> Result<Vec<(OsString, Attributes)>, Errno> {
        let dir = self.dir(ino)?;
        dir.live.iter().map(|(name, ino)| Ok((name.clone(), self.attributes(*ino)?))).collect()
    }

    pub fn read(&self, ino: u64, position: u64, len_bytes: usize) -> Result<Vec<u8>, Errno> {
        let file = self.file(ino)?;
        let end = file.live_len.min(position.saturating_add(len_bytes as u64));
        let mut out = Vec::with_capacity(end.saturating_sub(position) as usize);
        let mut at = position;
        while at < end {
            let (block, within, take) = block_span(at, end);
            match file.live.get(&block) {
                Some(bytes) => out.extend_from_slice(&bytes[within..within + take]),
                None => out.resize(out.len() + take, 0),
            }
            at += take as u64;
        }
        Ok(out)
    }

    pub fn write(&mut self, ino: u64, position: u64, bytes: &[u8]) -> Result<(), Errno> {
        let free_blocks = self.capacity_blocks.saturating_sub(self.used_blocks);
        let file = self.file_mut(ino)?;
        let end = position + bytes.len() as u64;
        let blocks = position / BLOCK_BYTES as u64..end.div_ceil(BLOCK_BYTES as u64);
        let is_new = |block: &u64| *block >= file.reserved && !file.live.contains_key(block);
        let new_blocks = blocks.filter(is_new).count() as u64;
        if new_blocks > free_blocks {
            return Err(libc::ENOSPC);
        }
        file.loose += new_blocks;
        let mut at = position;
        while at < end {
            let (block, within, take) = block_span(at, end);
            let target = file.live.entry(block).or_insert_with(|| Arc::new([0; BLOCK_BYTES]));
            let from = (at - position) as usize;
            Arc::make_mut(target)[within..within + take].copy_from_slice(&bytes[from..from + take]);
            file.dirty.insert(block);
            at += take as u64;
        }
        file.live_len = file.live_len.max(end);
        self.used_blocks += new_blocks;
        self.counts.writes += 1;
        self.counts.bytes_written += bytes.len() as u64;
        Ok(())
    }

    /// A write of which only some sectors arrive.
    pub fn tear(&mut self, ino: u64, position: u64, bytes: &[u8], prng: &mut Prng) -> Result<(), Errno> {
        for (at, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
            if prng.below(2) == 0 {
                self.write(ino, position + (at * SECTOR_BYTES) as u64, sector)?;
            }
        }
        Ok(())
    }

    /// What fallocate does: space up to `end`, with or without making the file as long.
    pub fn reserve(&mut self, ino: u64, end: u64, keeps_len: bool) -> Result<(), Errno> {
        let free_blocks = self.capacity_blocks.saturating_sub(self.used_blocks);
        let file = self.file_mut(ino)?;
        let before = file.used_blocks();
        let reserved = file.reserved.max(end.div_ceil(BLOCK_BYTES as u64));
        let after = reserved + file.live.range(reserved..).count() as u64;
        if after - before > free_blocks {
            return Err(libc::ENOSPC);
        }
        file.reserved = reserved;
        file.recount();
        if !keeps_len {
            file.live_len = file.live_len.max(end);
        }
        self.used_blocks += after - before;
        Ok(())
    }

    /// Changes one bit, now and for good: what a bad sector that nobody noticed looks like.
    pub fn flip_bit(&mut self, ino: u64, position: u64) -> Result<(), Errno> {
        let file = self.file_mut(ino)?;
        let (block, within, _) = block_span(position, position + 1);
        for blocks in [&mut file.live, &mut file.durable] {
            if let Some(bytes) = blocks.get_mut(&block) {
                Arc::make_mut(bytes)[within] ^= 1;
            }
        }
        Ok(())
    }

    pub fn set_len(&mut self, ino: u64, len_bytes: u64) -> Result<(), Errno> {
        let file = self.file_mut(ino)?;
        let used_before = file.used_blocks();
        if len_bytes < file.live_len {
            let first_gone = len_bytes.div_ceil(BLOCK_BYTES as u64);
            for block in file.live.split_off(&first_gone).into_keys() {
                file.dirty.insert(block);
            }
            let within = (len_bytes % BLOCK_BYTES as u64) as usize;
            if within != 0
                && let Some(last) = file.live.get_mut(&(len_bytes / BLOCK_BYTES as u64))
            {
                Arc::make_mut(last)[within..].fill(0);
                file.dirty.insert(len_bytes / BLOCK_BYTES as u64);
            }
        }
        file.live_len = len_bytes;
        file.reserved = file.reserved.min(len_bytes.div_ceil(BLOCK_BYTES as u64));
        file.recount();
        let used_after = file.used_blocks();
        self.used_blocks = self.used_blocks - used_before + used_after;
        Ok(())
    }

    pub fn sync_file(&mut self, ino: u64) -> Result<(), Errno> {
        let flushes = self.flushes;
        let file = self.file_mut(ino)?;
        if flushes == Flushes::Honest {
            for block in std::mem::take(&mut file.dirty) {
                match file.live.get(&block) {
                    Some(bytes) => drop(file.durable.insert(block, bytes.clone())),
                    None => drop(file.durable.remove(&block)),
                }
            }
            file.durable_len = file.live_len;
        }
        self.counts.file_syncs += 1;
        Ok(())
    }

    pub fn sync_dir(&mut self, ino: u64) -> Result<(), Errno> {
        let flushes = self.flushes;
        let dir = self.dir_mut(ino)?;
        if flushes == Flushes::Honest {
            dir.durable = dir.live.clone();
            dir.pending.clear();
        }
        self.counts.dir_syncs += 1;
        Ok(())
    }

    fn check_power(&self) -> Result<(), Errno> {
        if self.powered { Ok(()) } else { Err(libc::EIO) }
    }

    fn dir(&self, ino: u64) -> Result<&DirState, Errno> {
        self.check_power()?;
        match self.nodes.get(&ino) {
            Some(Node::Dir(dir)) => Ok(dir),
            Some(Node::File(_)) => Err(libc::ENOTDIR),
            None => Err(libc::ENOENT),
        }
    }

    fn dir_mut(&mut self, ino: u64) -> Result<&mut DirState, Errno> {
        self.check_power()?;
        match self.nodes.get_mut(&ino) {
            Some(Node::Dir(dir)) => Ok(dir),
            Some(Node::File(_)) => Err(libc::ENOTDIR),
            None => Err(libc::ENOENT),
        }
    }

    fn file(&self, ino: u64) -> Result<&FileState, Errno> {
        self.check_power()?;
        match self.nodes.get(&ino) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Dir(_)) => Err(libc::EISDIR),
            None => Err(libc::ENOENT),
        }
    }

    fn file_mut(&mut self, ino: u64) -> Result<&mut FileState, Errno> {
        self.check_power()?;
        match self.nodes.get_mut(&ino) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Dir(_)) => Err(libc::EISDIR),
            None => Err(libc::ENOENT),
        }
    }

    /// After a cut no process holds a file open, so a node without a name is gone.
    fn drop_unreachable(&mut self) {
        let mut reachable = BTreeSet::from([ROOT]);
        let mut queue = vec![ROOT];
        while let Some(ino) = queue.pop() {
            if let Some(Node::Dir(dir)) = self.nodes.get(&ino) {
                queue.extend(dir.live.values().filter(|child| reachable.insert(**child)));
            }
        }
        self.nodes.retain(|ino, _| reachable.contains(ino));
    }
}

/// Block number, position within it, and bytes up to `end` or the block's end.
fn block_span(at: u64, end: u64) -> (u64, usize, usize) {
    let block = at / BLOCK_BYTES as u64;
    let within = (at % BLOCK_BYTES as u64) as usize;
    (block, within, (BLOCK_BYTES - within).min((end - at) as usize))
}

fn cut_file(file: &mut FileState, prng: &mut Prng) {
    let mut after = std::mem::take(&mut file.durable);
    for block in std::mem::take(&mut file.dirty) {
        match (prng.below(3), file.live.get(&block)) {
            (0, _) => {}
            (1, Some(bytes)) => drop(after.insert(block, bytes.clone())),
            (1, None) => drop(after.remove(&block)),
            (_, live) => {
                let mut torn = after.get(&block).map_or([0; BLOCK_BYTES], |bytes| **bytes);
                let new = live.map_or([0; BLOCK_BYTES], |bytes| **bytes);
                for sector in (0..BLOCK_BYTES).step_by(SECTOR_BYTES) {
                    if prng.below(2) == 0 {
                        torn[sector..sector + SECTOR_BYTES].copy_from_slice(&new[sector..sector + SECTOR_BYTES]);
                    }
                }
                after.insert(block, Arc::new(torn));
            }
        }
    }
    let len = if prng.below(2) == 0 { file.durable_len } else { file.live_len };
    after.split_off(&len.div_ceil(BLOCK_BYTES as u64));
    file.live = after.clone();
    file.durable = after;
    file.live_len = len;
    file.durable_len = len;
    (file.open, file.is_orphan) = (0, false);
    file.reserved = file.reserved.min(len.div_ceil(BLOCK_BYTES as u64));
    file.recount();
}

/// File systems journal names in order, so a prefix of the changes survives.
fn cut_dir(dir: &mut DirState, prng: &mut Prng) {
    let pending = std::mem::take(&mut dir.pending);
    let kept = prng.below(pending.len() as u64 + 1) as usize;
    for change in pending.into_iter().take(kept) {
        match change {
            NameChange::Put(name, ino) => drop(dir.durable.insert(name, ino)),
            NameChange::Remove(name) => drop(dir.durable.remove(&name)),
            NameChange::Rename { from, to, ino } => {
                dir.durable.remove(&from);
                dir.durable.insert(to, ino);
            }
        }
    }
    dir.live = dir.durable.clone();
}

#[cfg(test)]
mod tests;
