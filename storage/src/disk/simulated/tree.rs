//! What is on the simulated disk: files and names, each as processes see them and as they would be after a power cut.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path};
use std::rc::Rc;

use super::content::{Content, SECTOR_BYTES};
use crate::disk::BLOCK_BYTES;
use crate::runtime::prng::Prng;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct InodeId(u64);

const ROOT: InodeId = InodeId(0);

/// A change of a file that no flush has covered yet.
#[derive(Clone)]
pub(super) enum Change {
    Write { position: u64, bytes: Rc<[u8]> },
    SetLen(u64),
}

#[derive(Clone, Default)]
pub(super) struct FileState {
    pub visible: Content,
    durable: Content,
    /// In the order they reached the device; the number is the tree's sequence.
    unflushed: Vec<(u64, Change)>,
    reserved_bytes: u64,
    charged_bytes: u64,
    unlinked: bool,
}

#[derive(Clone, Default)]
struct DirState {
    visible: BTreeMap<String, InodeId>,
    durable: BTreeMap<String, InodeId>,
}

#[derive(Clone)]
enum Inode {
    File(FileState),
    Dir(DirState),
}

#[derive(Clone)]
enum NameChange {
    Link { dir: InodeId, name: String, inode: InodeId },
    Unlink { dir: InodeId, name: String, inode: InodeId },
    Rename { from: (InodeId, String), to: (InodeId, String), inode: InodeId },
}

impl NameChange {
    fn inode(&self) -> InodeId {
        match self {
            Self::Link { inode, .. } | Self::Unlink { inode, .. } | Self::Rename { inode, .. } => *inode,
        }
    }

    fn touches(&self, wanted: InodeId) -> bool {
        match self {
            Self::Link { dir, .. } | Self::Unlink { dir, .. } => *dir == wanted,
            Self::Rename { from, to, .. } => from.0 == wanted || to.0 == wanted,
        }
    }
}

/// One file system.
#[derive(Clone)]
pub(super) struct Tree {
    inodes: BTreeMap<InodeId, Inode>,
    pending_names: Vec<(u64, NameChange)>,
    next_inode: u64,
    sequence: u64,
    used_bytes: u64,
}

impl Tree {
    pub fn new() -> Self {
        let inodes = BTreeMap::from([(ROOT, Inode::Dir(DirState::default()))]);
        Self { inodes, pending_names: Vec::new(), next_inode: 1, sequence: 0, used_bytes: 0 }
    }

    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Number of the last change; a flush covers what is up to it when the flush is asked for.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    // ---- names

    fn dir(&self, inode: InodeId) -> io::Result<&DirState> {
        match self.inodes.get(&inode) {
            Some(Inode::Dir(dir)) => Ok(dir),
            Some(Inode::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn dir_mut(&mut self, inode: InodeId) -> &mut DirState {
        match self.inodes.get_mut(&inode) {
            Some(Inode::Dir(dir)) => dir,
            Some(Inode::File(_)) | None => panic!("a name change names a directory that is none"),
        }
    }

    pub fn file(&self, inode: InodeId) -> io::Result<&FileState> {
        match self.inodes.get(&inode) {
            Some(Inode::File(file)) => Ok(file),
            Some(Inode::Dir(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn file_mut(&mut self, inode: InodeId) -> io::Result<&mut FileState> {
        match self.inodes.get_mut(&inode) {
            Some(Inode::File(file)) => Ok(file),
            Some(Inode::Dir(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub fn lookup(&self, path: &Path) -> io::Result<InodeId> {
        let mut inode = ROOT;
        for component in path.components() {
            let Component::Normal(name) = component else { continue };
            let entries = &self.dir(inode)?.visible;
            inode = *entries.get(&name_of(name)?).ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(inode)
    }

    /// The directory that holds the last component, and that component.
    fn parent(&self, path: &Path) -> io::Result<(InodeId, String)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = self.lookup(path.parent().unwrap_or(Path::new("")))?;
        self.dir(parent)?;
        Ok((parent, name_of(name)?))
    }

    /// Name, whether it is a directory, length.
    pub fn list(&self, path: &Path) -> io::Result<Vec<(String, bool, u64)>> {
        let dir = self.dir(self.lookup(path)?)?;
        let entry = |(name, inode): (&String, &InodeId)| match self.inodes.get(inode) {
            Some(Inode::File(file)) => (name.clone(), false, file.visible.len()),
            Some(Inode::Dir(_)) | None => (name.clone(), true, 0),
        };
        Ok(dir.visible.iter().map(entry).collect())
    }

    fn add_inode(&mut self, inode: Inode) -> InodeId {
        let id = InodeId(self.next_inode);
        self.next_inode += 1;
        self.inodes.insert(id, inode);
        id
    }

    pub fn create_file(&mut self, path: &Path) -> io::Result<InodeId> {
        let (dir, name) = self.parent(path)?;
        if self.dir(dir)?.visible.contains_key(&name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = self.add_inode(Inode::File(FileState::default()));
        self.change_name(NameChange::Link { dir, name, inode });
        Ok(inode)
    }

    /// Whether there was anything to make.
    pub fn create_dir_all(&mut self, path: &Path) -> io::Result<bool> {
        let (mut dir, mut made) = (ROOT, false);
        for component in path.components() {
            let Component::Normal(name) = component else { continue };
            let name = name_of(name)?;
            dir = match self.dir(dir)?.visible.get(&name) {
                Some(inode) => *inode,
                None => {
                    let inode = self.add_inode(Inode::Dir(DirState::default()));
                    self.change_name(NameChange::Link { dir, name, inode });
                    made = true;
                    inode
                }
            };
        }
        self.dir(dir).map(|_| made)
    }

    pub fn remove(&mut self, path: &Path, want_dir: bool) -> io::Result<()> {
        let (dir, name) = self.parent(path)?;
        let inode = *self.dir(dir)?.visible.get(&name).ok_or(io::ErrorKind::NotFound)?;
        if want_dir {
            if !self.dir(inode)?.visible.is_empty() {
                return Err(io::ErrorKind::DirectoryNotEmpty.into());
            }
        } else {
            self.file(inode)?;
        }
        self.change_name(NameChange::Unlink { dir, name, inode });
        self.release(inode);
        Ok(())
    }

    pub fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (from_dir, from_name) = self.parent(from)?;
        let (to_dir, to_name) = self.parent(to)?;
        let inode = *self.dir(from_dir)?.visible.get(&from_name).ok_or(io::ErrorKind::NotFound)?;
        let replaced = self.dir(to_dir)?.visible.get(&to_name).copied();
        if replaced == Some(inode) {
            return Ok(());
        }
        if let Some(replaced) = replaced {
            match self.dir(replaced) {
                Ok(dir) if !dir.visible.is_empty() => return Err(io::ErrorKind::DirectoryNotEmpty.into()),
                Ok(_) | Err(_) => self.release(replaced),
            }
        }
        self.change_name(NameChange::Rename { from: (from_dir, from_name), to: (to_dir, to_name), inode });
        Ok(())
    }

    fn change_name(&mut self, change: NameChange) {
        self.apply_name(&change, |dir| &mut dir.visible);
        let sequence = self.next_sequence();
        self.pending_names.push((sequence, change));
    }

    fn apply_name(&mut self, change: &NameChange, side: fn(&mut DirState) -> &mut BTreeMap<String, InodeId>) {
        let unlink = |entries: &mut BTreeMap<String, InodeId>, name: &String, inode: InodeId| {
            // Something else may stand there when the change before this one was lost.
            if entries.get(name) == Some(&inode) {
                entries.remove(name);
            }
        };
        match change {
            NameChange::Link { dir, name, inode } => {
                side(self.dir_mut(*dir)).insert(name.clone(), *inode);
            }
            NameChange::Unlink { dir, name, inode } => unlink(side(self.dir_mut(*dir)), name, *inode),
            NameChange::Rename { from, to, inode } => {
                unlink(side(self.dir_mut(from.0)), &from.1, *inode);
                side(self.dir_mut(to.0)).insert(to.1.clone(), *inode);
            }
        }
    }

    /// Makes the name changes of one directory up to `sequence` durable, in their order, and with each what happened to
    /// the same file before.
    pub fn sync_dir(&mut self, dir: InodeId, sequence: u64) {
        let mut settled = Vec::new();
        let mut keep = Vec::new();
        let mut done = BTreeSet::new();
        for (number, change) in std::mem::take(&mut self.pending_names).into_iter().rev() {
            if number <= sequence && (change.touches(dir) || done.contains(&change.inode())) {
                done.insert(change.inode());
                settled.push(change);
            } else {
                keep.push((number, change));
            }
        }
        keep.reverse();
        self.pending_names = keep;
        for change in settled.iter().rev() {
            self.apply_name(change, |dir| &mut dir.durable);
        }
    }

    /// A file never has both its old and its new name, so what survives of one file's changes is a prefix. Over several
    /// files it is one too on a journalling file system (half of the seeds), and anything on others.
    fn settle_names(&mut self, prng: &mut Prng) {
        let pending = std::mem::take(&mut self.pending_names);
        let cut = prng.index(pending.len() + 1);
        let in_order = prng.chance(1, 2);
        let mut survived = Vec::new();
        let mut later = BTreeSet::new();
        for (number, (_, change)) in pending.into_iter().enumerate().rev() {
            let survives = if in_order { number < cut } else { later.contains(&change.inode()) || prng.chance(1, 2) };
            if survives {
                later.insert(change.inode());
                survived.push(change);
            }
        }
        for change in survived.iter().rev() {
            self.apply_name(change, |dir| &mut dir.durable);
        }
    }

    // ---- contents

    pub fn change_file(&mut self, inode: InodeId, change: Change) -> io::Result<()> {
        let sequence = self.next_sequence();
        let file = self.file_mut(inode)?;
        apply(&mut file.visible, &change);
        file.unflushed.push((sequence, change));
        self.charge(inode);
        Ok(())
    }

    pub fn reserve(&mut self, inode: InodeId, len: u64) -> io::Result<()> {
        let file = self.file_mut(inode)?;
        file.reserved_bytes = file.reserved_bytes.max(len);
        self.charge(inode);
        Ok(())
    }

    /// Bytes that a file of this length would take beyond what it takes.
    pub fn growth(&self, inode: InodeId, len: u64) -> u64 {
        self.file(inode).map_or(0, |file| whole_blocks(len).saturating_sub(file.charged_bytes))
    }

    fn charge(&mut self, inode: InodeId) {
        let Ok(file) = self.file_mut(inode) else { return };
        let before = file.charged_bytes;
        let after = if file.unlinked { 0 } else { whole_blocks(file.visible.len().max(file.reserved_bytes)) };
        file.charged_bytes = after;
        self.used_bytes = self.used_bytes + after - before;
    }

    fn release(&mut self, inode: InodeId) {
        if let Ok(file) = self.file_mut(inode) {
            file.unlinked = true;
            self.charge(inode);
        }
    }

    /// Makes the changes up to `sequence` durable.
    pub fn sync_file(&mut self, inode: InodeId, sequence: u64) {
        let Ok(file) = self.file_mut(inode) else { return };
        let keep_from = file.unflushed.partition_point(|(number, _)| *number <= sequence);
        for (_, change) in file.unflushed.drain(..keep_from) {
            apply(&mut file.durable, &change);
        }
    }

    /// A flush failed: of the changes it covers some reached the disk; the others never will, and nobody is told again.
    pub fn fail_sync(&mut self, inode: InodeId, sequence: u64, prng: &mut Prng) {
        let Ok(file) = self.file_mut(inode) else { return };
        let keep_from = file.unflushed.partition_point(|(number, _)| *number <= sequence);
        for (_, change) in file.unflushed.drain(..keep_from) {
            settle(&mut file.durable, &change, prng);
        }
    }

    /// Makes all changes up to `sequence` durable, of contents and of names.
    pub fn sync_all(&mut self, sequence: u64) {
        let ids: Vec<InodeId> = self.inodes.keys().copied().collect();
        for id in ids {
            self.sync_file(id, sequence);
        }
        let settled = self.pending_names.partition_point(|(number, _)| *number <= sequence);
        let settled: Vec<_> = self.pending_names.drain(..settled).collect();
        for (_, change) in &settled {
            self.apply_name(change, |dir| &mut dir.durable);
        }
    }

    /// As [`Self::fail_sync`], of all files.
    pub fn fail_sync_all(&mut self, sequence: u64, prng: &mut Prng) {
        let ids: Vec<InodeId> = self.inodes.keys().copied().collect();
        for id in ids {
            self.fail_sync(id, sequence, prng);
        }
    }

    pub fn flip_bit(&mut self, inode: InodeId, position: u64, bit: u32) -> io::Result<()> {
        let file = self.file_mut(inode)?;
        file.visible.flip_bit(position, bit);
        file.durable.flip_bit(position, bit);
        Ok(())
    }

    /// What is there after a power cut: of each unflushed change all, a part or nothing.
    pub fn after_power_cut(&self, prng: &mut Prng) -> Self {
        let mut tree = self.clone();
        tree.settle_names(prng);
        tree.used_bytes = 0;
        for inode in tree.inodes.values_mut() {
            match inode {
                Inode::Dir(dir) => dir.visible = dir.durable.clone(),
                Inode::File(file) => {
                    for (_, change) in std::mem::take(&mut file.unflushed) {
                        settle(&mut file.durable, &change, prng);
                    }
                    file.visible = file.durable.clone();
                    file.charged_bytes = 0;
                    file.reserved_bytes = 0;
                    file.unlinked = true;
                }
            }
        }
        tree.drop_unreachable();
        tree
    }

    /// Files and directories that no name leads to are gone; the rest is charged anew.
    fn drop_unreachable(&mut self) {
        let mut reached: BTreeMap<InodeId, Inode> = BTreeMap::new();
        let mut next = vec![ROOT];
        while let Some(id) = next.pop() {
            let Some(mut inode) = self.inodes.remove(&id) else { continue };
            match &mut inode {
                Inode::Dir(dir) => next.extend(dir.visible.values()),
                Inode::File(file) => file.unlinked = false,
            }
            reached.insert(id, inode);
        }
        self.inodes = reached;
        let ids: Vec<InodeId> = self.inodes.keys().copied().collect();
        ids.into_iter().for_each(|id| self.charge(id));
    }
}

fn name_of(name: &OsStr) -> io::Result<String> {
    name.to_str().map(str::to_owned).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn whole_blocks(len: u64) -> u64 {
    len.next_multiple_of(BLOCK_BYTES as u64)
}

fn apply(content: &mut Content, change: &Change) {
    match change {
        Change::Write { position, bytes } => content.write(*position, bytes),
        Change::SetLen(len) => content.set_len(*len),
    }
}

/// Fate of a change that was not flushed when the power went.
fn settle(durable: &mut Content, change: &Change, prng: &mut Prng) {
    match (change, prng.below(8)) {
        (_, 0..=2) => {}
        (_, 3..=4) | (Change::SetLen(_), _) => apply(durable, change),
        (Change::Write { position, bytes }, 5..=6) => {
            // Torn: each sector by itself, in no order.
            for (number, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                if prng.chance(1, 2) {
                    durable.write(position + (number * SECTOR_BYTES) as u64, sector);
                }
            }
        }
        // The length is there, the bytes are not: a file system that writes its own metadata first.
        (Change::Write { position, bytes }, _) => {
            let end = position + bytes.len() as u64;
            if end > durable.len() {
                durable.set_len(end);
            }
        }
    }
}
