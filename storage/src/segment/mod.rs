//! One segment: a `.log` file of batches with its offset and time index.
//!
//! ```text
//! <base offset, 20 digits>.log        batches, one behind the other, not aligned
//! <base offset, 20 digits>.index      see `index::offset`
//! <base offset, 20 digits>.timeindex  see `index::time`
//! ```
//! With `.cleaned` or `.swap` behind it, a file is on its way from compaction into the log.
//!
//! While it is appended to, the file has zeros behind its data (whole blocks are written, space is preallocated); it is
//! cut to its data when it is sealed. A batch is never zeros, so a scan ends there.

pub mod preallocate;
pub mod reader;
pub mod writer;

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};

use walser_protocol::records::batch::BatchHeader;

use crate::cache::block::{BlockCache, SegmentKey};
use crate::disk::{Disk, File, OpenMode};
use crate::error::DiskError;
use crate::index::offset::{OFFSET_ENTRY_BYTES, OffsetIndex};
use crate::index::time::{TIME_ENTRY_BYTES, TimeIndex, TimestampOffset};
use crate::log::known_end::KnownEnd;
use crate::open_files::{Files, OpenFile, Remembered};

pub const LOG_SUFFIX: &str = "log";
pub const INDEX_SUFFIX: &str = "index";
pub const TIME_INDEX_SUFFIX: &str = "timeindex";
pub const SNAPSHOT_SUFFIX: &str = "snapshot";
/// A segment that compaction is writing; means nothing after a crash.
pub const CLEANED_LOG_SUFFIX: &str = "log.cleaned";
pub const CLEANED_INDEX_SUFFIX: &str = "index.cleaned";
pub const CLEANED_TIME_INDEX_SUFFIX: &str = "timeindex.cleaned";
/// A segment that compaction has written, which takes the place of those whose offsets it covers, whatever a crash has left
/// of them.
pub const SWAP_LOG_SUFFIX: &str = "log.swap";

/// Path of a file that belongs to `base_offset`.
pub fn file_path(dir: &Path, base_offset: i64, suffix: &str) -> PathBuf {
    dir.join(format!("{base_offset:020}.{suffix}"))
}

/// `("00000000000000000042.log")` -> `(42, "log")`.
pub fn parse_file_name(name: &str) -> Option<(i64, &str)> {
    let (digits, suffix) = name.split_once('.')?;
    let is_offset = digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit());
    is_offset.then(|| digits.parse().ok()).flatten().map(|base_offset| (base_offset, suffix))
}

/// The indexes of a segment as far as they are in memory.
pub struct SegmentIndexes {
    pub offset: OffsetIndex,
    pub time: TimeIndex,
    /// Entries that are in the files and not in memory: (offset, time). `None` when everything is in memory. What is in
    /// memory then follows what is in the files.
    on_disk: Option<(usize, usize)>,
}

impl SegmentIndexes {
    pub fn new(base_offset: i64) -> Self {
        Self { offset: OffsetIndex::new(base_offset), time: TimeIndex::new(base_offset), on_disk: None }
    }

    pub fn is_complete(&self) -> bool {
        self.on_disk.is_none()
    }

    fn offset_bytes(&self) -> usize {
        (self.offset.len() + self.on_disk.map_or(0, |(entries, _)| entries)) * OFFSET_ENTRY_BYTES
    }

    fn time_bytes(&self) -> usize {
        (self.time.len() + self.on_disk.map_or(0, |(_, entries)| entries)) * TIME_ENTRY_BYTES
    }
}

/// What decides when a segment is full, see [`Segment::must_roll`].
#[derive(Clone, Copy, Debug)]
pub struct RollLimits {
    pub segment_bytes: u32,
    pub segment_ms: i64,
    pub segment_index_bytes: u32,
}

/// Where a segment's file is.
enum SegmentFile<F> {
    Closed,
    /// Unless it was closed since, to make room for others.
    Open(Remembered<F>),
    /// Not under its name yet, so that it could not be opened again.
    Held(OpenFile<F>),
}

pub struct Segment<F> {
    base_offset: i64,
    path: PathBuf,
    file: RefCell<SegmentFile<F>>,
    /// Exclusive: the offset after the last batch.
    end_offset: Cell<i64>,
    /// Bytes of batches, written or not.
    appended_bytes: Cell<u64>,
    /// Bytes of batches that can be read from the file.
    written_bytes: Cell<u64>,
    preallocation: preallocate::Preallocation,
    pub(crate) indexes: RefCell<SegmentIndexes>,
    /// Largest timestamp of the batches seen.
    largest: Cell<Option<TimestampOffset>>,
    /// False where the files of a segment found may know a larger one.
    is_largest_known: Cell<bool>,
    /// Largest timestamp of the first batch: its age decides on `segment.ms`. `None`: not known (yet).
    first_timestamp: Cell<Option<i64>>,
    created_ms: i64,
    bytes_since_index_entry: Cell<u64>,
    /// Takes no more batches.
    is_sealed: Cell<bool>,
    /// Its file is there under its name after a power cut.
    is_name_durable: Cell<bool>,
    /// Another one has taken its place, and its files may have other names.
    is_retired: Cell<bool>,
    pub(crate) last_used: Cell<u64>,
    /// Under which its blocks are kept, once one is.
    cache_key: Cell<Option<SegmentKey>>,
}

impl<F: File> Segment<F> {
    /// A segment without a file yet.
    pub fn new(dir: &Path, base_offset: i64, created_ms: i64) -> Self {
        Self {
            base_offset,
            path: file_path(dir, base_offset, LOG_SUFFIX),
            file: RefCell::new(SegmentFile::Closed),
            end_offset: Cell::new(base_offset),
            appended_bytes: Cell::new(0),
            written_bytes: Cell::new(0),
            preallocation: preallocate::Preallocation::default(),
            indexes: RefCell::new(SegmentIndexes::new(base_offset)),
            largest: Cell::new(None),
            is_largest_known: Cell::new(true),
            first_timestamp: Cell::new(None),
            created_ms,
            bytes_since_index_entry: Cell::new(0),
            is_sealed: Cell::new(false),
            is_name_durable: Cell::new(false),
            is_retired: Cell::new(false),
            last_used: Cell::new(0),
            cache_key: Cell::new(None),
        }
    }

    /// A segment whose files are trusted unread: `index_bytes` are the lengths of its index files.
    pub fn existing(found: &FoundSegment, dir: &Path, end_offset: i64, now_ms: i64) -> Self {
        let segment = Self::new(dir, found.base_offset, now_ms);
        segment.end_offset.set(end_offset);
        segment.appended_bytes.set(found.log_bytes);
        segment.written_bytes.set(found.log_bytes);
        let entries =
            (found.index_bytes as usize / OFFSET_ENTRY_BYTES, found.time_index_bytes as usize / TIME_ENTRY_BYTES);
        segment.is_largest_known.set(false);
        segment.is_name_durable.set(true);
        segment.indexes.borrow_mut().on_disk = (found.log_bytes > 0).then_some(entries);
        segment
    }

    /// A segment of which a part is known and trusted unread.
    pub fn known(known: &KnownEnd, dir: &Path, now_ms: i64) -> Self {
        let segment = Self::new(dir, known.base_offset, now_ms);
        segment.end_offset.set(known.end_offset);
        segment.appended_bytes.set(known.position);
        segment.written_bytes.set(known.position);
        segment.largest.set(known.largest);
        segment.first_timestamp.set(known.first_timestamp);
        segment.is_name_durable.set(true);
        let mut indexes = segment.indexes.borrow_mut();
        (indexes.offset, indexes.time) = (known.offset_index.clone(), known.time_index.clone());
        drop(indexes);
        segment
    }

    pub fn base_offset(&self) -> i64 {
        self.base_offset
    }

    pub fn end_offset(&self) -> i64 {
        self.end_offset.get()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn appended_bytes(&self) -> u64 {
        self.appended_bytes.get()
    }

    pub fn written_bytes(&self) -> u64 {
        self.written_bytes.get()
    }

    /// When it was begun, or found by this process.
    pub fn created_ms(&self) -> i64 {
        self.created_ms
    }

    pub fn is_sealed(&self) -> bool {
        self.is_sealed.get()
    }

    pub(crate) fn is_name_durable(&self) -> bool {
        self.is_name_durable.get()
    }

    pub(crate) fn note_name_durable(&self) {
        self.is_name_durable.set(true);
    }

    pub fn is_fully_written(&self) -> bool {
        self.written_bytes.get() == self.appended_bytes.get()
    }

    /// Of all batches when `is_largest_known`, else of those appended since.
    pub fn largest_timestamp(&self) -> Option<TimestampOffset> {
        self.largest.get()
    }

    /// Entries of the time index that are not in memory; `None` when all are.
    pub(crate) fn time_entries_on_disk(&self) -> Option<usize> {
        self.indexes.borrow().on_disk.map(|(_, entries)| entries)
    }

    pub(crate) fn is_largest_known(&self) -> bool {
        self.is_largest_known.get()
    }

    /// Takes the last entry of the time index file, which is older than what is in memory.
    pub(crate) fn learn_largest(&self, last: TimestampOffset) {
        if self.largest.get().is_none_or(|largest| largest.timestamp <= last.timestamp) {
            self.largest.set(Some(last));
        }
        self.is_largest_known.set(true);
    }

    pub(crate) fn preallocation(&self) -> &preallocate::Preallocation {
        &self.preallocation
    }

    pub(crate) fn first_timestamp(&self) -> Option<i64> {
        self.first_timestamp.get()
    }

    pub(crate) fn set_first_timestamp(&self, timestamp: i64) {
        self.first_timestamp.set(Some(timestamp));
    }

    pub(crate) fn set_written_bytes(&self, bytes: u64) {
        assert!(bytes <= self.appended_bytes.get(), "only what was appended is written");
        self.written_bytes.set(bytes);
    }

    /// True when the batch must go into a new segment, by Kafka's rules.
    pub fn must_roll(
        &self,
        limits: RollLimits,
        batch_bytes: u64,
        last_offset: i64,
        timestamp: i64,
        now_ms: i64,
    ) -> bool {
        let size = self.appended_bytes.get();
        if size == 0 {
            return last_offset - self.base_offset > i64::from(i32::MAX);
        }
        let age_ms = match self.first_timestamp.get() {
            Some(first) if first >= 0 && timestamp >= 0 => timestamp.saturating_sub(first),
            _ => now_ms.saturating_sub(self.created_ms),
        };
        let indexes = self.indexes.borrow();
        let index_bytes_max = limits.segment_index_bytes as usize;
        size + batch_bytes > u64::from(limits.segment_bytes)
            || age_ms > limits.segment_ms
            || indexes.offset_bytes() + OFFSET_ENTRY_BYTES > index_bytes_max
            || indexes.time_bytes() + TIME_ENTRY_BYTES > index_bytes_max
            || last_offset - self.base_offset > i64::from(i32::MAX)
    }

    /// Takes a batch that will be, or was, written at the end of the data; the position where it begins.
    pub fn note_batch(&self, header: &BatchHeader, batch_bytes: u64, index_interval_bytes: u32) -> u64 {
        let position = self.appended_bytes.get();
        let last_offset = header.base_offset + i64::from(header.last_offset_delta);
        assert!(header.base_offset >= self.end_offset.get(), "offsets rise");
        if self.largest.get().is_none_or(|largest| largest.timestamp < header.max_timestamp) {
            self.largest.set(Some(TimestampOffset { timestamp: header.max_timestamp, offset: last_offset }));
        }
        if position == 0 {
            self.first_timestamp.set(Some(header.max_timestamp));
        }
        if self.bytes_since_index_entry.get() > u64::from(index_interval_bytes) {
            self.append_index_entries(last_offset, position);
            self.bytes_since_index_entry.set(0);
        }
        self.bytes_since_index_entry.update(|bytes| bytes + batch_bytes);
        self.appended_bytes.set(position + batch_bytes);
        self.end_offset.set(last_offset + 1);
        position
    }

    fn append_index_entries(&self, last_offset: i64, position: u64) {
        let mut indexes = self.indexes.borrow_mut();
        // Segments are smaller than 2 GiB, as `segment.bytes` is an i32.
        if let Ok(position) = u32::try_from(position) {
            indexes.offset.append(last_offset, position);
        }
        if let Some(largest) = self.largest.get() {
            indexes.time.append(largest);
        }
    }

    /// A segment found before another one.
    pub(crate) fn mark_sealed(&self) {
        self.is_sealed.set(true);
    }

    /// No more batches. The time index ends with the largest timestamp, so that it can be found without a scan.
    pub fn seal(&self) {
        self.is_sealed.set(true);
        self.complete_time_index();
    }

    /// Adds the largest timestamp to the time index.
    pub fn complete_time_index(&self) {
        if let Some(largest) = self.largest.get() {
            self.indexes.borrow_mut().time.append(largest);
        }
    }

    /// Another segment has taken its place. Readers that have its file go on; nobody opens it by name any more, because the
    /// name may be the other one's.
    pub(crate) fn retire(&self) {
        self.is_retired.set(true);
    }

    pub(crate) fn check_not_retired(&self) -> Result<(), DiskError> {
        if self.is_retired.get() {
            return Err(DiskError::new("open", &self.path, std::io::ErrorKind::NotFound.into()));
        }
        Ok(())
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired.get()
    }

    /// Bytes of its offset and its time index, as they are or would be in files.
    pub(crate) fn index_bytes(&self) -> (usize, usize) {
        let indexes = self.indexes.borrow();
        (indexes.offset_bytes(), indexes.time_bytes())
    }

    /// Puts the entries of the files before those in memory.
    pub fn complete_indexes(&self, mut offset: OffsetIndex, mut time: TimeIndex) {
        let mut indexes = self.indexes.borrow_mut();
        if indexes.is_complete() {
            return;
        }
        offset.append_all(&indexes.offset);
        time.append_all(&indexes.time);
        if let Some(last) = time.last() {
            self.learn_largest(last);
        }
        *indexes = SegmentIndexes { offset, time, on_disk: None };
    }

    /// Frees the memory of indexes that are in their files.
    pub fn forget_indexes(&self) {
        let mut indexes = self.indexes.borrow_mut();
        if indexes.is_complete() {
            let entries = (indexes.offset.len(), indexes.time.len());
            *indexes = SegmentIndexes::new(self.base_offset);
            indexes.on_disk = Some(entries);
        }
    }

    pub(crate) fn cache_key(&self, cache: &BlockCache) -> SegmentKey {
        let key = self.cache_key.get().unwrap_or_else(|| cache.new_segment());
        self.cache_key.set(Some(key));
        key
    }

    /// Up to here the file will not change, in blocks of `block_bytes` but for the last of a finished segment.
    pub(crate) fn settled_bytes(&self, block_bytes: u64) -> u64 {
        let written = self.written_bytes.get();
        if self.is_sealed.get() && self.is_fully_written() { written } else { written / block_bytes * block_bytes }
    }

    /// The open file, opened when needed.
    pub async fn file<D: Disk<File = F>>(&self, files: &Files<D>, mode: OpenMode) -> Result<OpenFile<F>, DiskError> {
        if let Some(file) = self.open_file() {
            return Ok(file);
        }
        self.check_not_retired()?;
        let file = files.disk.open(&self.path, mode).await.map_err(|e| DiskError::new("open", &self.path, e))?;
        // It may have been replaced meanwhile, and the file be the other one's.
        self.check_not_retired()?;
        // Somebody else may have opened it meanwhile: one of the two is kept.
        if let Some(file) = self.open_file() {
            return Ok(file);
        }
        let file = files.open.add(file);
        *self.file.borrow_mut() = SegmentFile::Open(file.remember());
        Ok(file)
    }

    fn open_file(&self) -> Option<OpenFile<F>> {
        match &*self.file.borrow() {
            SegmentFile::Closed => None,
            SegmentFile::Open(known) => known.find(),
            SegmentFile::Held(file) => Some(file.clone()),
        }
    }

    /// Takes a file that was opened under another name, and holds it open.
    pub(crate) fn hold_file(&self, file: OpenFile<F>) {
        *self.file.borrow_mut() = SegmentFile::Held(file);
    }

    pub fn has_file(&self) -> bool {
        match &*self.file.borrow() {
            SegmentFile::Closed => false,
            SegmentFile::Open(known) => known.is_open(),
            SegmentFile::Held(_) => true,
        }
    }

    /// Those who work on it go on.
    pub fn close_file(&self) {
        if let SegmentFile::Open(known) = self.file.replace(SegmentFile::Closed) {
            known.close();
        }
    }
}

impl<F> Drop for Segment<F> {
    /// The file of a segment that is gone takes nobody's place.
    fn drop(&mut self) {
        if let SegmentFile::Open(known) = self.file.replace(SegmentFile::Closed) {
            known.close();
        }
    }
}

/// What a directory says about a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundSegment {
    pub base_offset: i64,
    pub log_bytes: u64,
    pub index_bytes: u64,
    pub time_index_bytes: u64,
}
