//! The [`Disk`] of a shard: io_uring and O_DIRECT through glommio.
//!
//! Facts it rests on, each measured or read in the sources of glommio-ng 0.12 and Linux:
//! * Direct I/O wants aligned memory, positions and lengths; 4096 always suffices. `read_at` of glommio returns garbage
//!   behind an unaligned end of file, so reads go through `read_at_aligned` and are sliced here.
//! * glommio queues without bound, so a semaphore stands in front.
//! * A directory is flushed by a full `fsync`: on ext4 a new name in an old block changes no inode field that
//!   `fdatasync` waits for.
//! * On tmpfs glommio opens without O_DIRECT and says nothing. That is fine for tests; nothing there survives anyway.
//! * The executor may sleep through a completion. Every wait here is guarded, see [`guarded`].

use std::io;
use std::ops::{Deref, DerefMut};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_lite::FutureExt as _;
use glommio::GlommioError;
use glommio::io::{DmaBuffer, DmaFile, OpenOptions};

use super::reserve::Reserve;
use super::{BLOCK_BYTES, DirEntry, Disk, File, OpenMode, Space, unless_missing};
use crate::limits::{DISK_OPERATIONS_IN_FLIGHT_MAX, DISK_READ_STEP_BYTES, REMOVAL_PAUSE, REMOVAL_STEP_BYTES};
use crate::runtime::channel::Semaphore;
use crate::runtime::glommio::guarded;
use crate::runtime::side_by_side::side_by_side;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Small files read, or directories listed, in one go on a helper thread: some milliseconds.
const PATHS_PER_BATCH: usize = 256;
/// As many as there are helper threads.
const BATCHES_AT_ONCE: usize = 2;
const _: () = assert!(DISK_READ_STEP_BYTES.is_multiple_of(BLOCK_BYTES));

/// One shard's disk; clones share the bound on operations in flight. It must be used only inside that shard's executor.
#[derive(Clone)]
pub struct GlommioDisk {
    in_flight: Rc<Semaphore>,
    /// Files removed in pieces, one at a time.
    removing: Rc<Semaphore>,
    reserve: Option<Arc<Reserve>>,
}

impl GlommioDisk {
    pub fn new() -> Self {
        let in_flight = Rc::new(Semaphore::new(DISK_OPERATIONS_IN_FLIGHT_MAX));
        Self { in_flight, removing: Rc::new(Semaphore::new(1)), reserve: None }
    }

    /// One that gives up the reserve where a name finds no room.
    pub fn with_reserve(reserve: Arc<Reserve>) -> Self {
        Self { reserve: Some(reserve), ..Self::new() }
    }

    /// Makes the reserve, or makes it whole again, see [`Reserve::make`].
    ///
    /// # Errors
    /// When there is no room.
    pub async fn make_reserve(&self) -> io::Result<()> {
        let Some(reserve) = self.reserve.clone() else { return Ok(()) };
        self.blocking(move || reserve.make()).await
    }

    /// The same call once more where the first one found the disk full and there is more room now.
    async fn with_way<T, F: Future<Output = io::Result<T>>>(&self, call: impl Fn() -> F) -> io::Result<T> {
        match call().await {
            Err(error) if error.kind() == io::ErrorKind::StorageFull && self.make_way().await => call().await,
            done => done,
        }
    }

    async fn open_once(&self, path: &Path, options: &OpenOptions) -> io::Result<GlommioFile> {
        let _permit = self.in_flight.acquire(1).await;
        // Between opening and asking for the file system's type glommio panics if the name has gone meanwhile.
        let opening = AssertUnwindSafe(options.dma_open(path)).catch_unwind();
        match guarded(opening).await {
            Ok(Ok(file)) => {
                Ok(GlommioFile { file: Rc::new(file), path: path.to_owned(), in_flight: self.in_flight.clone() })
            }
            Ok(Err(error)) => Err(explain_open(io_error(error), path)),
            Err(_panic) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Runs a system call that may block on the executor's pool of helper threads.
    async fn blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let _permit = self.in_flight.acquire(1).await;
        guarded(glommio::executor().spawn_blocking(call)).await
    }
}

impl GlommioDisk {
    /// The same call for many paths: most of what one costs is the way to a helper thread and back.
    async fn in_batches<T: Send + 'static>(
        &self,
        paths: Vec<PathBuf>,
        call: impl Fn(&Path) -> io::Result<T> + Clone + Send + 'static,
    ) -> io::Result<Vec<T>> {
        let mut results = Vec::with_capacity(paths.len());
        let batches: Vec<Vec<PathBuf>> = paths.chunks(PATHS_PER_BATCH).map(<[PathBuf]>::to_vec).collect();
        let work = async |batch: Vec<PathBuf>| {
            let call = call.clone();
            self.blocking(move || batch.iter().map(|path| call(path)).collect::<io::Result<Vec<T>>>()).await
        };
        for batch in side_by_side(batches, BATCHES_AT_ONCE, work).await? {
            results.extend(batch);
        }
        Ok(results)
    }
}

impl Default for GlommioDisk {
    fn default() -> Self {
        Self::new()
    }
}

/// glommio's errors carry the operating system's inside; its number is what callers decide by.
fn io_error<T>(error: GlommioError<T>) -> io::Error {
    if let GlommioError::EnhancedIoError { source, .. } = error { source } else { error.into() }
}

impl Disk for GlommioDisk {
    type File = GlommioFile;

    async fn open(&self, path: &Path, mode: OpenMode) -> io::Result<GlommioFile> {
        let mut options = OpenOptions::new();
        options.read(true).write(mode != OpenMode::Read);
        options.create(mode == OpenMode::CreateOrOpen).create_new(mode == OpenMode::CreateNew);
        options.mode(0o644);
        self.with_way(|| self.open_once(path, &options)).await
    }

    async fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let make = || {
            let path = path.to_owned();
            self.blocking(move || blocking::create_dir_all(&path))
        };
        self.with_way(make).await
    }

    async fn make_way(&self) -> bool {
        let Some(reserve) = self.reserve.clone() else { return false };
        self.blocking(move || Ok(reserve.give_up())).await.unwrap_or(false)
    }

    fn is_short(&self) -> bool {
        self.reserve.as_ref().is_some_and(|reserve| reserve.is_given_up())
    }

    async fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let path = path.to_owned();
        self.blocking(move || blocking::list_dir(&path)).await
    }

    async fn list_dirs(&self, dirs: Vec<PathBuf>) -> io::Result<Vec<Option<Vec<DirEntry>>>> {
        self.in_batches(dirs, |dir| unless_missing(blocking::list_dir(dir))).await
    }

    async fn read_files(&self, paths: Vec<PathBuf>, bytes_max: usize) -> io::Result<Vec<Option<Bytes>>> {
        self.in_batches(paths, move |path| unless_missing(blocking::read_file(path, bytes_max))).await
    }

    async fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let rename = || {
            let (from, to) = (from.to_owned(), to.to_owned());
            self.blocking(move || blocking::rename(&from, &to))
        };
        self.with_way(rename).await
    }

    async fn remove_file(&self, path: &Path) -> io::Result<()> {
        let path = path.to_owned();
        self.blocking(move || blocking::remove_file(&path)).await
    }

    async fn remove_in_steps(&self, path: &Path) -> io::Result<()> {
        let _turn = self.removing.acquire(1).await;
        loop {
            let path = path.to_owned();
            if self.blocking(move || blocking::remove_piece(&path)).await? {
                return Ok(());
            }
            glommio::timer::sleep(REMOVAL_PAUSE).await;
        }
    }

    async fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let path = path.to_owned();
        self.blocking(move || std::fs::remove_dir(path)).await
    }

    async fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let path = path.to_owned();
        self.blocking(move || blocking::sync_dir(&path)).await
    }

    fn syncs_all(&self) -> bool {
        true
    }

    async fn sync_all(&self, path: &Path) -> io::Result<()> {
        let path = path.to_owned();
        self.blocking(move || blocking::sync_all(&path)).await
    }

    async fn space(&self, path: &Path) -> io::Result<Space> {
        let path = path.to_owned();
        self.blocking(move || blocking::space(&path)).await
    }
}

/// The one start-up failure that the errno alone does not explain.
fn explain_open(error: io::Error, path: &Path) -> io::Error {
    if error.raw_os_error() != Some(libc::EINVAL) {
        return error;
    }
    let advice = format!(
        "the file system of {} refuses direct I/O (O_DIRECT); put the data directory on ext4, XFS or another that has it",
        path.display()
    );
    io::Error::new(io::ErrorKind::Unsupported, advice)
}

#[expect(clippy::disallowed_methods, reason = "runs on helper threads, never on a shard")]
mod blocking {
    use std::io::{self, Read as _};
    use std::path::Path;

    use bytes::Bytes;

    use super::{DirEntry, REMOVAL_STEP_BYTES, Space};

    pub fn create_dir_all(path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(path)
    }

    pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    pub fn remove_file(path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    /// Whether the file is gone with it.
    pub fn remove_piece(path: &Path) -> io::Result<bool> {
        if shorten(path, REMOVAL_STEP_BYTES)? {
            return Ok(false);
        }
        remove_file(path).map(|()| true)
    }

    /// Takes so much off the end; false when there is no more than that.
    pub fn shorten(path: &Path, step_bytes: u64) -> io::Result<bool> {
        let file = std::fs::OpenOptions::new().write(true).open(path)?;
        let len_bytes = file.metadata()?.len();
        if len_bytes <= step_bytes {
            return Ok(false);
        }
        file.set_len(len_bytes - step_bytes)?;
        Ok(true)
    }

    pub fn sync_dir(path: &Path) -> io::Result<()> {
        std::fs::File::open(path)?.sync_all()
    }

    pub fn list_dir(path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            // Nothing of ours has such a name.
            let Ok(name) = entry.file_name().into_string() else { continue };
            // Thousands of directories need not be asked for a length that they have not.
            if entry.file_type()?.is_dir() {
                entries.push(DirEntry { name, is_dir: true, len_bytes: 0 });
                continue;
            }
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                // Removed since it was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            entries.push(DirEntry { name, is_dir: metadata.is_dir(), len_bytes: metadata.len() });
        }
        entries.sort();
        Ok(entries)
    }

    pub fn sync_all(path: &Path) -> io::Result<()> {
        // What could not be written is told since Linux 5.8.
        Ok(nix::unistd::syncfs(std::fs::File::open(path)?)?)
    }

    pub fn read_file(path: &Path, bytes_max: usize) -> io::Result<Bytes> {
        let mut content = Vec::new();
        std::fs::File::open(path)?.take(bytes_max as u64).read_to_end(&mut content)?;
        Ok(content.into())
    }

    pub fn space(path: &Path) -> io::Result<Space> {
        let stat = nix::sys::statvfs::statvfs(path)?;
        let unit = stat.fragment_size();
        Ok(Space {
            total_bytes: stat.blocks().saturating_mul(unit),
            usable_bytes: stat.blocks_available().saturating_mul(unit),
        })
    }
}

/// An open file; clones share the descriptor.
#[derive(Clone)]
pub struct GlommioFile {
    file: Rc<DmaFile>,
    path: PathBuf,
    in_flight: Rc<Semaphore>,
}

/// Memory the kernel can use for direct I/O.
pub struct GlommioBuffer(DmaBuffer);

impl Deref for GlommioBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl DerefMut for GlommioBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_bytes_mut()
    }
}

impl GlommioFile {
    /// At most `len_bytes`; less only where the file ends. Both are multiples of a block.
    async fn read_aligned(&self, position: u64, len_bytes: usize) -> io::Result<glommio::io::ReadResult> {
        let _permit = self.in_flight.acquire(1).await;
        guarded(self.file.read_at_aligned(position, len_bytes)).await.map_err(io_error)
    }

    async fn write_once(&self, buffer: Rc<DmaBuffer>, position: u64) -> io::Result<usize> {
        let _permit = self.in_flight.acquire(1).await;
        guarded(self.file.write_rc_at(buffer, position)).await.map_err(io_error)
    }
}

impl File for GlommioFile {
    type Buffer = GlommioBuffer;

    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    fn allocate(&self, len_bytes: usize) -> GlommioBuffer {
        GlommioBuffer(self.file.alloc_dma_buffer(len_bytes.next_multiple_of(BLOCK_BYTES).max(BLOCK_BYTES)))
    }

    async fn read_into(&self, memory: BytesMut, position: u64, len_bytes: usize) -> io::Result<Bytes> {
        let end = position.saturating_add(len_bytes as u64);
        let mut bytes = memory;
        let mut at = position;
        while at < end {
            let start = at / BLOCK * BLOCK;
            let head = usize::try_from(at - start).expect("below a block");
            let wanted = usize::try_from(end - start).unwrap_or(usize::MAX).min(DISK_READ_STEP_BYTES);
            let step = wanted.next_multiple_of(BLOCK_BYTES);
            let read = self.read_aligned(start, step).await?;
            let useful = read.get(head..read.len().min(wanted)).unwrap_or_default();
            bytes.extend_from_slice(useful);
            // A read ends inside a block only where the file does; at a block boundary only the next read tells.
            let ended = useful.is_empty() || (read.len() < step && !read.len().is_multiple_of(BLOCK_BYTES));
            if ended {
                break;
            }
            at += useful.len() as u64;
        }
        Ok(bytes.freeze())
    }

    async fn write_at(&self, buffer: GlommioBuffer, position: u64) -> io::Result<()> {
        assert!(position.is_multiple_of(BLOCK), "write at unaligned position {position}");
        assert!(buffer.len().is_multiple_of(BLOCK_BYTES), "write of unaligned length {}", buffer.len());
        let buffer = Rc::new(buffer.0);
        let written = self.write_once(buffer.clone(), position).await?;
        if written == buffer.len() {
            return Ok(());
        }
        // A short write keeps its reason to itself, mostly a full disk; the rest, written alone, gets to hear it.
        let whole = written / BLOCK_BYTES * BLOCK_BYTES;
        let mut rest = self.allocate(buffer.len() - whole);
        rest.copy_from_slice(&buffer.as_bytes()[whole..]);
        let rest_len = rest.len();
        let written = self.write_once(Rc::new(rest.0), position + whole as u64).await?;
        if written == rest_len { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    async fn sync_data(&self) -> io::Result<()> {
        let _permit = self.in_flight.acquire(1).await;
        guarded(self.file.fdatasync()).await.map_err(io_error)
    }

    async fn truncate(&self, len_bytes: u64) -> io::Result<()> {
        let _permit = self.in_flight.acquire(1).await;
        guarded(self.file.truncate(len_bytes)).await.map_err(io_error)
    }

    async fn preallocate(&self, len_bytes: u64, keep_len: bool) -> io::Result<()> {
        if len_bytes == 0 {
            return Ok(());
        }
        let reserved = {
            let _permit = self.in_flight.acquire(1).await;
            guarded(self.file.pre_allocate(len_bytes, keep_len)).await.map_err(io_error)
        };
        match reserved {
            // Some file systems cannot reserve. Then writes allocate as they go, which costs time but nothing else.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                if !keep_len && self.len_bytes().await? < len_bytes {
                    self.truncate(len_bytes).await?;
                }
                Ok(())
            }
            other => other,
        }
    }

    async fn len_bytes(&self) -> io::Result<u64> {
        guarded(self.file.file_size()).await.map_err(io_error)
    }
}

#[cfg(test)]
mod tests;
