//! A segment written by compaction takes the place of those it was written from.
//!
//! At every moment either the old segments are whole under their names, or the new one is whole under a name that says
//! what it is, so that a start after a crash knows what to do:
//! ```text
//! 1  <base>.log.cleaned, .index.cleaned, .timeindex.cleaned are written and flushed
//! 2  <base>.log.cleaned becomes <base>.log.swap, durably   before: the old ones count; from here on the new one
//! 3  readers in memory are given the new segment
//! 4  the old files get .deleted behind their names, durably
//! 5  <base>.log.swap becomes <base>.log, the indexes follow, durably
//! ```
//! A start that finds `.cleaned` removes it; one that finds `.swap` removes what is left of the segments it covers and goes
//! on with step 5. Which those are is in the file: the last batch of what a pass has written reaches to where the segments
//! it replaces ended.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::checkpoint::{self, sync_dir};
use crate::disk::{Disk, File, OpenMode};
use crate::error::{DiskError, OpenError, ReadError};
use crate::runtime::Runtime;
use crate::segment::reader::Scanner;
use crate::segment::{
    CLEANED_INDEX_SUFFIX, CLEANED_LOG_SUFFIX, CLEANED_TIME_INDEX_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, SNAPSHOT_SUFFIX,
    SWAP_LOG_SUFFIX, Segment, TIME_INDEX_SUFFIX, file_path,
};

use super::Log;
use super::read::Pace;
use super::recovery::{OpenLog, next_checked, open_error, remove_if_there};
use super::retention::DELETED_SUFFIX;

/// A replacement that has begun. A step that was refused for lack of space is tried again; after any other failure nobody
/// knows what the directory would look like after a crash, and it stays where it is until the next start.
pub(super) struct Swap<F> {
    /// Has its file open and its indexes in memory, since neither is to be found under its name yet.
    pub segment: Rc<Segment<F>>,
    /// In order, without a gap between them.
    pub old: Vec<Rc<Segment<F>>>,
    stage: Cell<Stage>,
    failed: RefCell<Option<DiskError>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nobody but the pass knows of it.
    Cleaned,
    /// Its file is called `.swap`, durably or not.
    Named,
    /// Readers have the new segment, and so has a start after a crash.
    Exchanged,
    /// The old files are out of the way.
    Retired,
    /// Its file is called `.log`, durably or not.
    Published,
}

impl<F: File> Swap<F> {
    pub fn new(segment: Rc<Segment<F>>, old: Vec<Rc<Segment<F>>>) -> Self {
        Self { segment, old, stage: Cell::new(Stage::Cleaned), failed: RefCell::default() }
    }

    pub fn base_offset(&self) -> i64 {
        self.segment.base_offset()
    }
}

impl<D: Disk, R: Runtime> Log<D, R> {
    /// Goes on with a replacement from where it stands, if there is one. One caller at a time.
    pub(super) async fn finish_swap(&self) -> Result<(), DiskError> {
        let Some(swap) = self.inner.state.borrow().swap.clone() else { return Ok(()) };
        if let Some(failed) = swap.failed.borrow().clone() {
            return Err(failed);
        }
        let outcome = self.go_on(&swap).await;
        if let Err(error) = &outcome
            && !error.is_refusal()
        {
            *swap.failed.borrow_mut() = Some(error.clone());
        }
        outcome
    }

    async fn go_on(&self, swap: &Swap<D::File>) -> Result<(), DiskError> {
        let (disk, dir, base_offset) = (&self.inner.disk, &self.inner.dir, swap.base_offset());
        let path = |suffix| file_path(dir, base_offset, suffix);
        if swap.stage.get() == Stage::Cleaned {
            if let Some(last) = swap.old.last() {
                self.make_file_behind(last).await?;
            }
            rename(disk, &path(CLEANED_LOG_SUFFIX), &path(SWAP_LOG_SUFFIX)).await?;
            swap.stage.set(Stage::Named);
        }
        if swap.stage.get() == Stage::Named {
            sync_dir(disk, dir).await?;
            self.exchange(swap);
            swap.stage.set(Stage::Exchanged);
        }
        if swap.stage.get() == Stage::Exchanged {
            let renamed = self.rename_old(&swap.old).await?;
            sync_dir(disk, dir).await?;
            swap.stage.set(Stage::Retired);
            self.remove_later(renamed);
        }
        if swap.stage.get() == Stage::Retired {
            rename(disk, &path(SWAP_LOG_SUFFIX), &path(LOG_SUFFIX)).await?;
            swap.stage.set(Stage::Published);
        }
        rename_if_there(disk, &path(CLEANED_INDEX_SUFFIX), &path(INDEX_SUFFIX)).await?;
        rename_if_there(disk, &path(CLEANED_TIME_INDEX_SUFFIX), &path(TIME_INDEX_SUFFIX)).await?;
        sync_dir(disk, dir).await?;
        // It is found under its name now.
        swap.segment.close_file();
        self.inner.state.borrow_mut().swap = None;
        self.forget_old_indexes();
        Ok(())
    }

    /// From now on the new segment is read.
    fn exchange(&self, swap: &Swap<D::File>) {
        let mut state = self.inner.state.borrow_mut();
        for old in &swap.old {
            let removed = state.segments.remove(&old.base_offset());
            assert!(removed.is_some_and(|removed| Rc::ptr_eq(&removed, old)), "only compaction replaces segments");
            old.retire();
        }
        state.segments.insert(swap.base_offset(), Rc::clone(&swap.segment));
        state.exchanges += 1;
        drop(state);
        // What is in memory of them would show consumers what is gone.
        self.inner.tail.forget_below(swap.segment.end_offset());
        self.inner.ring();
    }

    async fn rename_old(&self, old: &[Rc<Segment<D::File>>]) -> Result<Vec<PathBuf>, DiskError> {
        let mut renamed = Vec::new();
        for (at, segment) in old.iter().enumerate() {
            let base_offset = segment.base_offset();
            let mut suffixes = vec![LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX];
            // No segment begins there any more.
            if at > 0 && self.inner.state.borrow_mut().snapshots.remove(&base_offset) {
                suffixes.push(SNAPSHOT_SUFFIX);
            }
            for suffix in suffixes {
                let path = file_path(&self.inner.dir, base_offset, suffix);
                let aside = with_suffix(&path, DELETED_SUFFIX);
                if rename_if_there(&self.inner.disk, &path, &aside).await? {
                    renamed.push(aside);
                }
            }
        }
        Ok(renamed)
    }
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

async fn rename<D: Disk>(disk: &D, from: &Path, to: &Path) -> Result<(), DiskError> {
    disk.rename(from, to).await.map_err(|error| DiskError::new("rename", from, error))
}

/// False when there is nothing under the name: an earlier attempt has done it.
async fn rename_if_there<D: Disk>(disk: &D, from: &Path, to: &Path) -> Result<bool, DiskError> {
    match disk.rename(from, to).await {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(DiskError::new("rename", from, error)),
    }
}

impl<D: Disk, R: Runtime> OpenLog<D, R> {
    /// Ends a replacement that a crash has interrupted. `segments`: base offsets of the segments there are.
    ///
    /// # Errors
    /// [`OpenError::Corrupt`] when the new segment does not verify: nothing is removed then.
    pub(super) async fn finish_found_swap(&self, base_offset: i64, segments: &[i64]) -> Result<(), OpenError> {
        let (disk, dir) = (&self.disk, &self.dir);
        let path = |suffix| file_path(dir, base_offset, suffix);
        let swap_path = path(SWAP_LOG_SUFFIX);
        let found = self.scan_swap(base_offset, &swap_path).await?;
        let end_offset = found.end_offset();
        tracing::warn!(path = %swap_path.display(), end_offset, "compaction was interrupted: its segment takes its place");
        for &old in segments.iter().filter(|old| (base_offset..end_offset).contains(old)) {
            for suffix in [LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX] {
                remove_if_there(disk, &file_path(dir, old, suffix)).await?;
            }
        }
        for suffix in [INDEX_SUFFIX, TIME_INDEX_SUFFIX] {
            remove_if_there(disk, &path(suffix)).await?;
        }
        sync_dir(disk, dir).await?;
        found.complete_time_index();
        let (offset, time) = {
            let indexes = found.indexes.borrow();
            (indexes.offset.encode(), indexes.time.encode())
        };
        checkpoint::write_file(disk, &path(INDEX_SUFFIX), &offset).await?;
        checkpoint::write_file(disk, &path(TIME_INDEX_SUFFIX), &time).await?;
        rename(disk, &swap_path, &path(LOG_SUFFIX)).await?;
        sync_dir(disk, dir).await?;
        Ok(())
    }

    /// The segment with its indexes; every batch is checked.
    async fn scan_swap(&self, base_offset: i64, path: &Path) -> Result<Segment<D::File>, OpenError> {
        let failed = |operation| move |e| DiskError::new(operation, path, e);
        let file = self.disk.open(path, OpenMode::Read).await.map_err(failed("open"))?;
        let len_bytes = file.len_bytes().await.map_err(failed("read the length of"))?;
        let segment = Segment::new(&self.dir, base_offset, self.now_ms);
        let mut scanner = Scanner::new(&segment, &file, 0, usize::MAX).with_limit(len_bytes);
        let mut pace = Pace::new(&self.runtime);
        while let Some((header, bytes)) = next_checked(&mut scanner).await.map_err(|error| in_file(error, path))? {
            segment.note_batch(&header, bytes.len() as u64, self.config.index_interval_bytes);
            scanner.advance(&header, bytes.len());
            pace.step().await;
        }
        Ok(segment)
    }
}

/// The scanner knows the segment by the name it will have.
fn in_file(error: ReadError, path: &Path) -> OpenError {
    match open_error(error) {
        OpenError::Corrupt(corruption) => {
            OpenError::Corrupt(crate::error::Corruption { path: path.to_path_buf(), ..corruption })
        }
        OpenError::Disk(error) => OpenError::Disk(error),
    }
}
