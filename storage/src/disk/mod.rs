//! Files as the logs see them: aligned, direct, and able to fail in every way a real disk does.

pub mod glommio;
pub mod reserve;
pub mod simulated;

use std::future::Future;
use std::io;
use std::ops::DerefMut;
use std::path::{Path, PathBuf};

/// Every position and length written is a multiple of this, whatever the device says: logical blocks are often 512
/// bytes, physical ones 4096.
pub const BLOCK_BYTES: usize = 4096;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Must exist; only read.
    Read,
    /// Must exist; read and written.
    ReadWrite,
    /// Made when missing, kept when there; read and written.
    CreateOrOpen,
    /// Must not exist; read and written.
    CreateNew,
}

/// What a directory holds under one name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// The last path component.
    pub name: String,
    pub is_dir: bool,
    /// 0 for directories.
    pub len_bytes: u64,
}

/// One shard's way to the file system. The names are durable only after [`Disk::sync_dir`] of the directory that holds them.
pub trait Disk: Clone + 'static {
    type File: File;

    fn open(&self, path: &Path, mode: OpenMode) -> impl Future<Output = io::Result<Self::File>>;
    /// Like `mkdir -p`.
    fn create_dir_all(&self, path: &Path) -> impl Future<Output = io::Result<()>>;
    /// Entries in ascending order of name.
    fn list_dir(&self, path: &Path) -> impl Future<Output = io::Result<Vec<DirEntry>>>;
    /// As [`Disk::list_dir`], for many; `None` for those that are not there.
    fn list_dirs(&self, dirs: Vec<PathBuf>) -> impl Future<Output = io::Result<Vec<Option<Vec<DirEntry>>>>> {
        async move {
            let mut lists = Vec::with_capacity(dirs.len());
            for dir in dirs {
                lists.push(unless_missing(self.list_dir(&dir).await)?);
            }
            Ok(lists)
        }
    }
    /// Whole small files; `None` for those that are not there. One that is longer than `bytes_max` comes cut off there.
    fn read_files(
        &self,
        paths: Vec<PathBuf>,
        bytes_max: usize,
    ) -> impl Future<Output = io::Result<Vec<Option<bytes::Bytes>>>> {
        async move {
            let mut contents = Vec::with_capacity(paths.len());
            for path in paths {
                let content = match unless_missing(self.open(&path, OpenMode::Read).await)? {
                    Some(file) => Some(file.read_at(0, bytes_max).await?),
                    None => None,
                };
                contents.push(content);
            }
            Ok(contents)
        }
    }
    fn rename(&self, from: &Path, to: &Path) -> impl Future<Output = io::Result<()>>;
    fn remove_file(&self, path: &Path) -> impl Future<Output = io::Result<()>>;
    /// Removes a file that is not needed any more, one file at a time and a large one in pieces, so that who waits for the
    /// disk meanwhile does not wait long. A crash may leave the beginning of it.
    fn remove_in_steps(&self, path: &Path) -> impl Future<Output = io::Result<()>>;
    /// Has the disk give up what it keeps back for when it is full; true when there is more room now. For what must go on
    /// then: names, small files, the metadata log.
    fn make_way(&self) -> impl Future<Output = bool> {
        std::future::ready(false)
    }
    /// It has given that up and not got it back: nothing is to be taken that can wait.
    fn is_short(&self) -> bool {
        false
    }
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> impl Future<Output = io::Result<()>>;
    /// Makes names made, renamed or removed in this directory durable.
    fn sync_dir(&self, path: &Path) -> impl Future<Output = io::Result<()>>;
    /// Whether there is [`Disk::sync_all`].
    fn syncs_all(&self) -> bool {
        false
    }
    /// Makes everything durable that was written to or named on the file system that holds `path` before the call, whoever
    /// did it: instead of very many flushes.
    fn sync_all(&self, path: &Path) -> impl Future<Output = io::Result<()>> {
        let _ = path;
        async { Err(io::ErrorKind::Unsupported.into()) }
    }
    /// Total and free bytes of the file system that holds `path`.
    fn space(&self, path: &Path) -> impl Future<Output = io::Result<Space>>;
}

fn unless_missing<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Capacity of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub total_bytes: u64,
    /// What this process may still use.
    pub usable_bytes: u64,
}

/// An open file. Clones share it; the last one dropped closes it.
pub trait File: Clone + 'static {
    /// Memory that the disk can read and write without a copy. Not zeroed when allocated.
    type Buffer: DerefMut<Target = [u8]> + 'static;

    fn path(&self) -> PathBuf;
    /// `len_bytes` is rounded up to whole blocks.
    fn allocate(&self, len_bytes: usize) -> Self::Buffer;
    /// Reads from any position; shorter than `len_bytes` only at the end of the file.
    fn read_at(&self, position: u64, len_bytes: usize) -> impl Future<Output = io::Result<bytes::Bytes>> {
        self.read_into(bytes::BytesMut::new(), position, len_bytes)
    }
    /// The same into memory that is there, and empty; into other memory where it is too small.
    fn read_into(
        &self,
        memory: bytes::BytesMut,
        position: u64,
        len_bytes: usize,
    ) -> impl Future<Output = io::Result<bytes::Bytes>>;
    /// Writes the whole buffer at a block boundary, or fails; a short write is `WriteZero`. Two writes that touch the same
    /// block must not be in flight together. A dropped future may still write.
    fn write_at(&self, buffer: Self::Buffer, position: u64) -> impl Future<Output = io::Result<()>>;
    /// Makes everything written before the call durable, and the file's length with it. After an error nothing that was not
    /// durable before can be trusted, whatever a later call says.
    fn sync_data(&self) -> impl Future<Output = io::Result<()>>;
    /// Cuts or extends with zeros.
    fn truncate(&self, len_bytes: u64) -> impl Future<Output = io::Result<()>>;
    /// Reserves space up to `len_bytes` without changing the visible length when `keep_len`.
    fn preallocate(&self, len_bytes: u64, keep_len: bool) -> impl Future<Output = io::Result<()>>;
    fn len_bytes(&self) -> impl Future<Output = io::Result<u64>>;
}
