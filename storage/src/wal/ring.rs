//! The files behind the log: made, handed to the writer, freed and used again, all off the commit path.
//!
//! A file's name is `<generation>-<salt>.wal`; `spare-<number>.wal` waits to be used again, `<number>.tmp` is being made.
//! A file gets its name, durably, before a record goes into it, and its first writes land in blocks that were written
//! before, so that a flush has no metadata to carry. Files are freed oldest first and each durably before the next one:
//! what is there after a power cut has no hole.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::record::FileIdentity;
use super::{Inner, RETRY_WAIT, WalError};
use crate::disk::{BLOCK_BYTES, Disk, File, OpenMode};
use crate::limits::WAL_ZERO_STEP_BYTES;
use crate::runtime::Runtime;

/// Least length of a file that is made where the disk has no room for a long one.
const SHORT_FILE_BYTES: u64 = 256 << 10;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A file with records that may be needed again.
pub(super) struct LiveFile {
    pub path: PathBuf,
    pub len_bytes: u64,
    /// Inclusive; 0 when it has no record that counts. Those stand in front and are freed first, see `recovery`.
    pub last_sequence: u64,
}

/// The file that is written, or the one that comes after it.
pub(super) struct WritableFile<F> {
    pub file: F,
    pub path: PathBuf,
    pub identity: FileIdentity,
    pub len_bytes: u64,
    /// Where the next commit goes.
    pub position: u64,
}

pub(super) struct SpareFile {
    pub path: PathBuf,
    pub len_bytes: u64,
}

pub(super) struct Ring<F> {
    /// Oldest first; the current file is not among them.
    pub live: VecDeque<LiveFile>,
    pub current: WritableFile<F>,
    pub next: Option<WritableFile<F>>,
    pub spares: Vec<SpareFile>,
    pub next_generation: u64,
    /// Set while the writer cannot go on without a file that takes this many bytes.
    pub wanted_bytes: Option<u64>,
    /// Files whose last record is below it may be freed.
    pub truncate_before: u64,
}

pub(super) fn file_name(identity: FileIdentity) -> String {
    format!("{:020}-{:016x}.wal", identity.generation, identity.salt)
}

/// What a name in the log's directory stands for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Name {
    Log(FileIdentity),
    Spare,
    Unfinished,
    Foreign,
}

pub(super) fn parse_name(name: &str) -> Name {
    if name.ends_with(".tmp") {
        return Name::Unfinished;
    }
    let Some(stem) = name.strip_suffix(".wal") else { return Name::Foreign };
    if stem.starts_with("spare-") {
        return Name::Spare;
    }
    let identity = stem.split_once('-').and_then(|(generation, salt)| {
        let generation = generation.parse().ok()?;
        let salt = u64::from_str_radix(salt, 16).ok()?;
        Some(FileIdentity { generation, salt })
    });
    match identity {
        // Written back it must be the same: `+1-01.wal` is none of ours.
        Some(identity) if file_name(identity) == name => Name::Log(identity),
        Some(_) | None => Name::Foreign,
    }
}

/// Mixes the log's random seed and the generation, so that each use of a file has a salt of its own.
pub(super) fn identity(salt_seed: u64, generation: u64) -> FileIdentity {
    let salt = crate::runtime::prng::Prng::new(salt_seed ^ generation.wrapping_mul(0x9E37_79B9_7F4A_7C15)).next_u64();
    FileIdentity { generation, salt }
}

/// Makes a file of zeros and gives it its name, or gives a spare one a new name.
pub(super) async fn prepare<D: Disk, R: Runtime>(
    disk: &D,
    runtime: &R,
    dir: &Path,
    identity: FileIdentity,
    source: Source,
) -> Result<WritableFile<D::File>, WalError> {
    let path = dir.join(file_name(identity));
    let (from, len_bytes) = match source {
        Source::Spare(spare) => (spare.path, spare.len_bytes),
        Source::New { len_bytes } => {
            let temporary = dir.join(format!("{}.tmp", identity.generation));
            if let Err(source) = write_zeros(disk, runtime, &temporary, len_bytes).await {
                // The next start removes what stays; the first error is the one to tell.
                let removed = disk.remove_file(&temporary).await;
                tracing::debug!(?removed, path = %temporary.display(), "gave up a file in the making");
                return Err(WalError::io("making", &temporary, source));
            }
            (temporary, len_bytes)
        }
    };
    disk.rename(&from, &path).await.map_err(|source| WalError::io("renaming", &from, source))?;
    disk.sync_dir(dir).await.map_err(|source| WalError::dir_sync(dir, source))?;
    let file = disk.open(&path, OpenMode::ReadWrite).await.map_err(|source| WalError::io("opening", &path, source))?;
    Ok(WritableFile { file, path, identity, len_bytes, position: 0 })
}

pub(super) enum Source {
    Spare(SpareFile),
    New { len_bytes: u64 },
}

impl Source {
    /// A spare file that is large enough, else a new one.
    pub fn choose(spares: &mut Vec<SpareFile>, min_bytes: u64) -> Self {
        match spares.iter().position(|spare| spare.len_bytes >= min_bytes) {
            Some(index) => Self::Spare(spares.swap_remove(index)),
            None => Self::New { len_bytes: min_bytes },
        }
    }
}

async fn write_zeros<D: Disk, R: Runtime>(disk: &D, runtime: &R, path: &Path, len_bytes: u64) -> io::Result<()> {
    match disk.remove_file(path).await {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let file = disk.open(path, OpenMode::CreateNew).await?;
    file.preallocate(len_bytes, true).await?;
    let mut position = 0;
    while position < len_bytes {
        let step = usize::try_from(len_bytes - position).unwrap_or(usize::MAX).min(WAL_ZERO_STEP_BYTES);
        let mut zeros = file.allocate(step);
        zeros.fill(0);
        file.write_at(zeros, position).await?;
        position += step as u64;
        runtime.turn().await;
    }
    file.sync_data().await
}

enum Work {
    /// Of this length; shorter if need be where somebody waits for so many bytes.
    Prepare {
        len_bytes: u64,
        wanted_bytes: Option<u64>,
    },
    Free(LiveFile),
    Nothing,
    Stop,
}

impl<D: Disk, R: Runtime> Inner<D, R> {
    /// The task that keeps the ring: makes the next file before it is needed and frees those that no longer are.
    pub(super) async fn keep_ring(self: Rc<Self>) {
        loop {
            let notified = self.ring_work.notified();
            let done = match self.plan_ring_work() {
                Work::Prepare { len_bytes, wanted_bytes } => self.prepare_next(len_bytes, wanted_bytes).await,
                Work::Free(file) => self.free(file).await,
                Work::Nothing => {
                    notified.await;
                    Ok(())
                }
                Work::Stop => return,
            };
            match done {
                Ok(()) => self.set_stalled(None),
                // A directory whose flush failed may hold any set of names, now and after later flushes that succeed.
                Err(error) if error.is_dir_sync() => self.fail(error),
                Err(error) => {
                    if self.state.borrow().stalled.is_none() {
                        tracing::warn!(%error, "a file of the write-ahead log could not be made or freed; trying again");
                    }
                    self.set_stalled(Some(error));
                    self.runtime.sleep(RETRY_WAIT).await;
                }
            }
        }
    }

    fn plan_ring_work(&self) -> Work {
        let mut state = self.state.borrow_mut();
        if state.failure.is_some() || state.writer_ended {
            return Work::Stop;
        }
        let durable_through = state.durable_through;
        let file_bytes = self.options.file_bytes;
        let was_refused = state.stalled.is_some();
        let ring = &mut state.ring;
        // The file with the last durable record stays: it tells the next start where the sequence is.
        let bound = ring.truncate_before.min(durable_through);
        let is_free = |oldest: &LiveFile| oldest.last_sequence == 0 || oldest.last_sequence < bound;
        let may_free = ring.live.front().is_some_and(is_free);
        let half_full = ring.current.position >= ring.current.len_bytes / 2;
        let wanted_bytes = ring.wanted_bytes;
        if ring.next.is_none() && (wanted_bytes.is_some() || half_full) {
            let len_bytes = wanted_bytes.unwrap_or(0).max(file_bytes);
            let has_spare = ring.spares.iter().any(|spare| spare.len_bytes >= len_bytes);
            // Where the disk had no room, what is no longer needed is used again, or makes room, before anything is made.
            if has_spare || !was_refused || !may_free {
                return Work::Prepare { len_bytes, wanted_bytes };
            }
        }
        if may_free { Work::Free(ring.live.pop_front().expect("just seen")) } else { Work::Nothing }
    }

    fn next_generation(&self) -> u64 {
        let ring = &mut self.state.borrow_mut().ring;
        ring.next_generation += 1;
        ring.next_generation - 1
    }

    async fn prepare_next(&self, mut len_bytes: u64, wanted_bytes: Option<u64>) -> Result<(), WalError> {
        let least = wanted_bytes.map(|wanted| wanted.max(SHORT_FILE_BYTES));
        let prepared = loop {
            let identity = identity(self.options.salt_seed, self.next_generation());
            let source = Source::choose(&mut self.state.borrow_mut().ring.spares, len_bytes);
            let error = match prepare(&self.disk, &self.runtime, &self.options.dir, identity, source).await {
                Ok(prepared) => break prepared,
                Err(error) => error,
            };
            match least.filter(|_| error.is_full()) {
                Some(least) if least < len_bytes => len_bytes = (len_bytes / 4 / BLOCK * BLOCK).max(least),
                Some(_) if self.disk.make_way().await => {}
                Some(_) | None => return Err(error),
            }
        };
        self.state.borrow_mut().ring.next = Some(prepared);
        self.ring_ready.notify_all();
        Ok(())
    }

    /// Keeps the file for another use, or removes it when enough are kept or it is a small one.
    async fn free(&self, file: LiveFile) -> Result<(), WalError> {
        let keep = {
            let spares = &self.state.borrow().ring.spares;
            file.len_bytes >= self.options.file_bytes && spares.len() < self.options.spares_max
        };
        let dir = &self.options.dir;
        let (operation, outcome, spare) = if keep {
            let spare = dir.join(format!("spare-{:020}.wal", self.next_generation()));
            ("renaming", self.disk.rename(&file.path, &spare).await, Some(spare))
        } else {
            ("removing", self.disk.remove_file(&file.path).await, None)
        };
        if let Err(source) = outcome {
            let error = WalError::io(operation, &file.path, source);
            self.state.borrow_mut().ring.live.push_front(file);
            return Err(error);
        }
        self.disk.sync_dir(dir).await.map_err(|source| WalError::dir_sync(dir, source))?;
        if let Some(path) = spare {
            self.state.borrow_mut().ring.spares.push(SpareFile { path, len_bytes: file.len_bytes });
        }
        self.call_listener();
        Ok(())
    }

    fn set_stalled(&self, error: Option<WalError>) {
        let changed = {
            let mut state = self.state.borrow_mut();
            let changed = state.stalled.is_some() || error.is_some();
            state.stalled = error;
            changed
        };
        if changed {
            self.ring_ready.notify_all();
            // Who uses the log may let go of records, which makes room.
            self.call_listener();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_exactly() {
        // Rule: only names this module writes are taken for log files.
        let ours = FileIdentity { generation: 12, salt: 0xAB };
        assert_eq!(file_name(ours), "00000000000000000012-00000000000000ab.wal");
        assert_eq!(parse_name(&file_name(ours)), Name::Log(ours));
        assert_eq!(parse_name("spare-00000000000000000012.wal"), Name::Spare);
        assert_eq!(parse_name("7.tmp"), Name::Unfinished);
        for foreign in ["+12-ab.wal", "12-ab.wal", "snapshot", "x.wal", "-.wal", ""] {
            assert_eq!(parse_name(foreign), Name::Foreign, "{foreign}");
        }
    }
}
