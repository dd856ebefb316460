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
}

impl Store {
    pub fn set_flushes(&mut self, flushes: Flushes) {
        self.flushes = flushes;
    }

    pub fn new(flushes: Flushes) -> Self {
        let mut nodes = BTreeMap::new();
        nodes.insert(ROOT, Node::Dir(DirState::default()));
        Self { nodes, next_ino: ROOT + 1, flushes, powered: true, counts: Counts::default() }
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
        Ok(())
    }

    pub fn rename(&mut self, parent: u64, from: &OsStr, new_parent: u64, to: &OsStr) -> Result<(), Errno> {
        let ino = *self.dir(parent)?.live.get(from).ok_or(libc::ENOENT)?;
        self.dir(new_parent)?;
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
        let file = self.file_mut(ino)?;
        let end = position + bytes.len() as u64;
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
        self.counts.writes += 1;
        self.counts.bytes_written += bytes.len() as u64;
        Ok(())
    }

    pub fn set_len(&mut self, ino: u64, len_bytes: u64) -> Result<(), Errno> {
        let file = self.file_mut(ino)?;
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
mod tests {
    use super::*;

    fn name(text: &str) -> &OsStr {
        OsStr::new(text)
    }

    /// What was flushed, with its name, is there after a cut; with flushes ignored, some seed loses it.
    #[test]
    fn flushed_data_survives_and_ignored_flushes_do_not() {
        for (flushes, must_survive) in [(Flushes::Honest, true), (Flushes::Ignored, false)] {
            let survived = (0..64).all(|seed| {
                let mut store = Store::new(flushes);
                let ino = store.create(ROOT, name("log"), false).expect("created").ino;
                store.write(ino, 0, &[7; 10_000]).expect("written");
                store.sync_file(ino).expect("synced");
                store.sync_dir(ROOT).expect("synced");
                store.power_cut(&mut Prng::new(seed));
                assert_eq!(store.lookup(ROOT, name("log")), Err(libc::EIO), "no call works without power");
                store.power_on();
                store.lookup(ROOT, name("log")).is_ok_and(|found| {
                    found.len_bytes == 10_000 && store.read(found.ino, 0, 20_000) == Ok(vec![7; 10_000])
                })
            });
            assert_eq!(survived, must_survive, "{flushes:?}");
        }
    }

    /// A name that no directory sync covered may be gone, and so may a removal.
    #[test]
    fn names_need_a_directory_sync() {
        let outcomes: BTreeSet<(bool, bool)> = (0..64)
            .map(|seed| {
                let mut store = Store::new(Flushes::Honest);
                store.create(ROOT, name("old"), false).expect("created");
                store.sync_dir(ROOT).expect("synced");
                store.remove(ROOT, name("old"), false).expect("removed");
                store.create(ROOT, name("new"), false).expect("created");
                store.power_cut(&mut Prng::new(seed));
                store.power_on();
                (store.lookup(ROOT, name("old")).is_ok(), store.lookup(ROOT, name("new")).is_ok())
            })
            .collect();
        assert_eq!(outcomes, BTreeSet::from([(true, false), (false, false), (false, true)]));
    }

    /// An overwrite that was not flushed leaves, sector by sector, the old or the new bytes.
    #[test]
    fn unflushed_overwrites_tear_at_sectors() {
        let mut torn = 0;
        for seed in 0..64 {
            let mut store = Store::new(Flushes::Honest);
            let ino = store.create(ROOT, name("log"), false).expect("created").ino;
            store.write(ino, 0, &[1; BLOCK_BYTES]).expect("written");
            store.sync_file(ino).expect("synced");
            store.sync_dir(ROOT).expect("synced");
            store.write(ino, 0, &[2; BLOCK_BYTES]).expect("written");
            store.power_cut(&mut Prng::new(seed));
            store.power_on();
            let bytes = store.read(ino, 0, BLOCK_BYTES).expect("read");
            for sector in bytes.chunks(SECTOR_BYTES) {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "seed {seed}: a sector is never mixed");
            }
            torn += u32::from(bytes.contains(&1) && bytes.contains(&2));
        }
        assert!(torn > 5, "only {torn} of 64 cuts tore the block");
    }

    /// Cutting a file zeroes what a later extension shows.
    #[test]
    fn truncation_forgets_the_tail() {
        let mut store = Store::new(Flushes::Honest);
        let ino = store.create(ROOT, name("log"), false).expect("created").ino;
        store.write(ino, 0, &[9; 9000]).expect("written");
        store.set_len(ino, 100).expect("cut");
        store.set_len(ino, 200).expect("extended");
        let mut want = vec![9; 100];
        want.resize(200, 0);
        assert_eq!(store.read(ino, 0, 1000), Ok(want));
    }
}
