//! FUSE calls to the store. No cache in the kernel: attributes and names are asked for every time, data is direct.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use super::World;
use super::faults::{Call, Effect};
use super::prng::Prng;
use super::store::{Attributes, Errno, Store};

const UNCACHED: Duration = Duration::ZERO;

pub(super) fn mount(world: Arc<Mutex<World>>, mountpoint: &Path) -> io::Result<BackgroundSession> {
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("lossy".into()), MountOption::NoAtime];
    fuser::spawn_mount(Lossy { world, born: SystemTime::now() }, mountpoint, &config)
}

struct Lossy {
    world: Arc<Mutex<World>>,
    born: SystemTime,
}

impl Lossy {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out a call and answers it, unless a fault says otherwise. `act` gets the seed to tear its write by.
    fn carry_out<T: 'static>(
        &self,
        call: Call,
        ino: INodeNo,
        act: impl FnOnce(&mut Store, Option<u64>) -> Result<T, Errno> + Send + 'static,
        answer: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        let mut world = self.world();
        let path = if world.faults.is_empty() { String::new() } else { world.store.path(ino.0) };
        let done = match world.faults.meet(call, &path) {
            None => act(&mut world.store, None),
            Some((_, Effect::Fail(errno))) => Err(errno),
            Some((_, Effect::Tear(seed))) if call == Call::Write => act(&mut world.store, Some(seed)),
            Some((_, Effect::Tear(_))) => Err(libc::EIO),
            Some((id, Effect::Hold)) => {
                let late = move |store: &mut Store| answer(act(store, None));
                world.held.push((id, Box::new(late)));
                return;
            }
        };
        drop(world);
        answer(done);
    }

    fn file_attr(&self, found: Attributes) -> FileAttr {
        FileAttr {
            ino: INodeNo(found.ino),
            size: found.len_bytes,
            blocks: found.blocks,
            atime: self.born,
            mtime: self.born,
            ctime: self.born,
            crtime: self.born,
            kind: if found.is_dir { FileType::Directory } else { FileType::RegularFile },
            perm: if found.is_dir { 0o755 } else { 0o644 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn reply_entry(&self, found: Result<Attributes, Errno>, reply: ReplyEntry) {
        match found {
            Ok(found) => reply.entry(&UNCACHED, &self.file_attr(found), Generation(0)),
            Err(errno) => reply.error(fuser::Errno::from_i32(errno)),
        }
    }
}

fn reply_empty(done: Result<(), Errno>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(fuser::Errno::from_i32(errno)),
    }
}

impl Filesystem for Lossy {
    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.world().store.lookup(parent.0, name);
        self.reply_entry(found, reply);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let found = self.world().store.attributes(ino.0);
        match found {
            Ok(found) => reply.attr(&UNCACHED, &self.file_attr(found)),
            Err(errno) => reply.error(fuser::Errno::from_i32(errno)),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut world = self.world();
        let resized = size.map_or(Ok(()), |size| world.store.set_len(ino.0, size));
        let found = resized.and_then(|()| world.store.attributes(ino.0));
        drop(world);
        match found {
            Ok(found) => reply.attr(&UNCACHED, &self.file_attr(found)),
            Err(errno) => reply.error(fuser::Errno::from_i32(errno)),
        }
    }

    fn mkdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, _mode: u32, _umask: u32, reply: ReplyEntry) {
        let made = self.world().store.create(parent.0, name, true);
        self.reply_entry(made, reply);
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.world().store.remove(parent.0, name, false);
        reply_empty(done, reply);
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.world().store.remove(parent.0, name, true);
        reply_empty(done, reply);
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let done = self.world().store.rename(parent.0, name, newparent.0, newname);
        reply_empty(done, reply);
    }

    fn create(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let mut world = self.world();
        let made = world.store.create(parent.0, name, false);
        if let Ok(made) = &made {
            world.store.note_open(made.ino);
        }
        drop(world);
        match made {
            Ok(made) => reply.created(
                &UNCACHED,
                &self.file_attr(made),
                Generation(0),
                FileHandle(0),
                FopenFlags::FOPEN_DIRECT_IO,
            ),
            Err(errno) => reply.error(fuser::Errno::from_i32(errno)),
        }
    }

    fn open(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.world().store.note_open(ino.0);
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = move |store: &mut Store, _| store.read(ino.0, offset, size as usize);
        self.carry_out(Call::Read, ino, read, |found| match found {
            Ok(bytes) => reply.data(&bytes),
            Err(errno) => reply.error(fuser::Errno::from_i32(errno)),
        });
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (data, len) = (data.to_vec(), u32::try_from(data.len()).unwrap_or(u32::MAX));
        let write = move |store: &mut Store, torn_by: Option<u64>| match torn_by {
            None => store.write(ino.0, offset, &data),
            Some(seed) => store.tear(ino.0, offset, &data, &mut Prng::new(seed)).and(Err(libc::EIO)),
        };
        self.carry_out(Call::Write, ino, write, move |done| match done {
            Ok(()) => reply.written(len),
            Err(errno) => reply.error(fuser::Errno::from_i32(errno)),
        });
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.world().store.note_closed(ino.0);
        reply.ok();
    }

    fn fsync(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let sync = move |store: &mut Store, _| store.sync_file(ino.0);
        self.carry_out(Call::Flush, ino, sync, |done| reply_empty(done, reply));
    }

    fn fsyncdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let sync = move |store: &mut Store, _| store.sync_dir(ino.0);
        self.carry_out(Call::Flush, ino, sync, |done| reply_empty(done, reply));
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listed = self.world().store.list(ino.0);
        match listed {
            Ok(entries) => {
                for (index, (name, found)) in entries.into_iter().enumerate().skip(offset as usize) {
                    let kind = if found.is_dir { FileType::Directory } else { FileType::RegularFile };
                    if reply.add(INodeNo(found.ino), index as u64 + 1, kind, &name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(errno) => reply.error(fuser::Errno::from_i32(errno)),
        }
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let world = self.world();
        let total = world.store.capacity_blocks();
        let free = total.saturating_sub(world.store.used_blocks());
        drop(world);
        reply.statfs(total, free, free, 1 << 20, 1 << 20, 4096, 255, 4096);
    }

    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let done = match mode {
            0 | libc::FALLOC_FL_KEEP_SIZE => self.world().store.reserve(ino.0, offset + length, mode != 0),
            _ => Err(libc::EOPNOTSUPP),
        };
        reply_empty(done, reply);
    }
}
