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

use super::store::{Attributes, Errno, Store};

const UNCACHED: Duration = Duration::ZERO;
/// Capacity the file system claims: 64 GiB.
const BLOCKS_CLAIMED: u64 = 16 << 20;

pub(super) fn mount(store: Arc<Mutex<Store>>, mountpoint: &Path) -> io::Result<BackgroundSession> {
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("lossy".into()), MountOption::NoAtime];
    fuser::spawn_mount(Lossy { store, born: SystemTime::now() }, mountpoint, &config)
}

struct Lossy {
    store: Arc<Mutex<Store>>,
    born: SystemTime,
}

impl Lossy {
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
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
        let found = self.store().lookup(parent.0, name);
        self.reply_entry(found, reply);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let found = self.store().attributes(ino.0);
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
        let mut store = self.store();
        let resized = size.map_or(Ok(()), |size| store.set_len(ino.0, size));
        let found = resized.and_then(|()| store.attributes(ino.0));
        drop(store);
        match found {
            Ok(found) => reply.attr(&UNCACHED, &self.file_attr(found)),
            Err(errno) => reply.error(fuser::Errno::from_i32(errno)),
        }
    }

    fn mkdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, _mode: u32, _umask: u32, reply: ReplyEntry) {
        let made = self.store().create(parent.0, name, true);
        self.reply_entry(made, reply);
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.store().remove(parent.0, name, false);
        reply_empty(done, reply);
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.store().remove(parent.0, name, true);
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
        let done = self.store().rename(parent.0, name, newparent.0, newname);
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
        let made = self.store().create(parent.0, name, false);
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

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
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
        let found = self.store().read(ino.0, offset, size as usize);
        match found {
            Ok(bytes) => reply.data(&bytes),
            Err(errno) => reply.error(fuser::Errno::from_i32(errno)),
        }
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
        let done = self.store().write(ino.0, offset, data);
        match done {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(errno) => reply.error(fuser::Errno::from_i32(errno)),
        }
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let done = self.store().sync_file(ino.0);
        reply_empty(done, reply);
    }

    fn fsyncdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let done = self.store().sync_dir(ino.0);
        reply_empty(done, reply);
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listed = self.store().list(ino.0);
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
        reply.statfs(BLOCKS_CLAIMED, BLOCKS_CLAIMED, BLOCKS_CLAIMED, 1 << 20, 1 << 20, 4096, 255, 4096);
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
        let mut store = self.store();
        let done = match mode {
            0 => store.attributes(ino.0).and_then(|found| {
                if offset + length > found.len_bytes { store.set_len(ino.0, offset + length) } else { Ok(()) }
            }),
            libc::FALLOC_FL_KEEP_SIZE => Ok(()),
            _ => Err(libc::EOPNOTSUPP),
        };
        drop(store);
        reply_empty(done, reply);
    }
}
