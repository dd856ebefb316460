//! Bytes of a journal to their places in the segments.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::{Located, LogKey, count_records, list_if_there};
use crate::checkpoint::sync_dir;
use crate::data_dir::DataDir;
use crate::data_dir::partition::{FoundDir, sync_content};
use crate::disk::{BLOCK_BYTES, DirEntry, Disk, File, OpenMode};
use crate::error::DiskError;
use crate::runtime::Runtime;
use crate::runtime::side_by_side::side_by_side;
use crate::segment::{LOG_SUFFIX, file_path, parse_file_name};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Largest single write.
const WRITE_BYTES_MAX: u64 = 256 << 10;
const _: () = assert!(WRITE_BYTES_MAX.is_multiple_of(BLOCK));
/// Logs that are written at the same time: most of the time is spent in waiting for flushes, which a file system can do
/// together. Each has one buffer of at most [`WRITE_BYTES_MAX`].
const LOGS_AT_ONCE: usize = 32;
/// From so many logs on one flush of the whole file system is cheaper, even if others write to it. Tests have fewer.
const SYNC_ALL_FROM: usize = if cfg!(test) { 2 } else { 128 };
/// Records ordered before giving way, each in well under a microsecond.
const RECORDS_PER_TURN: usize = 128;

/// The bytes of one record.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// In the segment's file.
    pub position: u64,
    pub bytes: Bytes,
}

/// What a journal holds of one log.
pub(super) struct LogRecords {
    pub key: LogKey,
    pub located: Located,
    /// By the base offset of the segment, in order of sequence.
    pub segments: BTreeMap<i64, Vec<Run>>,
    /// Of a log that may have lost something: where it begins, unless it has a file.
    pub begins_at: Option<i64>,
}

#[derive(Debug, Default)]
pub(super) struct Redone {
    pub logs: usize,
    pub void_records: u64,
    pub bytes: u64,
    /// Directories that were gone.
    pub made: Vec<FoundDir>,
    /// Logs whose directories are gone and may not be made.
    pub withheld: BTreeSet<LogKey>,
}

impl Redone {
    fn add(&mut self, other: Self) {
        self.logs += other.logs;
        self.void_records += other.void_records;
        self.bytes += other.bytes;
        self.made.extend(other.made);
        self.withheld.extend(other.withheld);
    }
}

/// Writes all logs; the first error ends it, when what was begun has ended.
pub(super) async fn redo_all<D: Disk, R: Runtime>(
    data_dir: &DataDir<D>,
    runtime: &R,
    logs: Vec<LogRecords>,
) -> Result<Redone, DiskError> {
    let disk = data_dir.disk();
    let prepared = side_by_side(logs, LOGS_AT_ONCE, async |log| prepare(data_dir, log).await).await?;
    if prepared.iter().any(|log| log.is_new) {
        // Once for all of them, and before the first of their segments' files is made.
        sync_dir(disk, data_dir.path()).await?;
    }
    // Many logs are flushed together. Not one that has a second segment, whose file may be made only once the first one is
    // flushed.
    let is_many = disk.syncs_all() && prepared.len() >= SYNC_ALL_FROM;
    let work = async |log: Prepared| {
        let defers_sync = is_many && log.segments.len() <= 1;
        redo(disk, runtime, log, defers_sync).await
    };
    let mut total = Redone::default();
    for redone in side_by_side(prepared, LOGS_AT_ONCE, work).await? {
        total.add(redone);
    }
    if is_many {
        disk.sync_all(data_dir.path()).await.map_err(|e| DiskError::new("sync all of", data_dir.path(), e))?;
    }
    Ok(total)
}

/// A log whose directory is there.
struct Prepared {
    dir: PathBuf,
    /// Those that count.
    segments: BTreeMap<i64, Vec<Run>>,
    redone: Redone,
    /// The directory's name is not known to be durable.
    is_new: bool,
}

async fn prepare<D: Disk>(data_dir: &DataDir<D>, log: LogRecords) -> Result<Prepared, DiskError> {
    let LogRecords { key, located, mut segments, begins_at } = log;
    let ((topic_id, partition), Located { topic, may_be_made }) = (key, located);
    let disk = data_dir.disk();
    let dir = data_dir.partition_path(&topic, partition);
    let mut redone = Redone::default();
    let entries = list_if_there(disk, &dir).await?;
    if entries.is_none() && !may_be_made {
        redone.withheld.insert(key);
        return Ok(Prepared { dir, segments: BTreeMap::new(), redone, is_new: false });
    }
    let last = entries.as_deref().and_then(last_segment);
    match last {
        Some(last) => {
            let counting = segments.split_off(&last);
            redone.void_records = count_records(&std::mem::replace(&mut segments, counting));
        }
        None => {
            data_dir.create_partition(&topic, partition, topic_id).await?;
            sync_content(disk, &dir).await?;
            if let Some(begins_at) = begins_at {
                fill_front(&mut segments, begins_at);
            }
        }
    }
    if entries.is_none() {
        redone.made.push(FoundDir::made(&topic, partition, topic_id));
    }
    redone.logs = usize::from(!segments.is_empty());
    Ok(Prepared { dir, segments, redone, is_new: last.is_none() })
}

/// Of a log without a file: the segment it begins with is among its segments, even if all of it was lost.
pub(crate) fn fill_front(segments: &mut BTreeMap<i64, Vec<Run>>, begins_at: i64) {
    if segments.keys().next().is_some_and(|first| begins_at < *first) {
        segments.insert(begins_at, Vec::new());
    }
}

async fn redo<D: Disk, R: Runtime>(
    disk: &D,
    runtime: &R,
    log: Prepared,
    defers_sync: bool,
) -> Result<Redone, DiskError> {
    let Prepared { dir, segments, mut redone, .. } = log;
    for (base_offset, pieces) in segments {
        let content = Content::new(runtime, pieces).await;
        redone.bytes += redo_segment(disk, &dir, base_offset, &content, defers_sync).await?;
    }
    Ok(redone)
}

/// The largest base offset of a segment's file.
fn last_segment(entries: &[DirEntry]) -> Option<i64> {
    let files = entries.iter().filter_map(|entry| parse_file_name(&entry.name));
    files.filter(|(_, suffix)| *suffix == LOG_SUFFIX).map(|(base_offset, _)| base_offset).max()
}

/// Bytes written. All of them, and the file's name, are durable when this returns, unless it `defers_sync`.
async fn redo_segment<D: Disk>(
    disk: &D,
    dir: &Path,
    base_offset: i64,
    content: &Content,
    defers_sync: bool,
) -> Result<u64, DiskError> {
    let path = &file_path(dir, base_offset, LOG_SUFFIX);
    let failed = |operation| move |e| DiskError::new(operation, path, e);
    let file = disk.open(path, OpenMode::CreateOrOpen).await.map_err(failed("open"))?;
    // Also when it was there: a killed process may have made it and not got to flush its name.
    if !defers_sync {
        sync_dir(disk, dir).await?;
    }
    let len_bytes = file.len_bytes().await.map_err(failed("measure"))?;
    for (start, mut end) in content.runs() {
        if end > len_bytes && content.has_end(&file, len_bytes).await.map_err(failed("read"))? {
            end = len_bytes / BLOCK * BLOCK;
        }
        let mut from = start;
        while from < end {
            let to = end.min(from + WRITE_BYTES_MAX);
            let buffer = content.fill(&file, from, to).await.map_err(failed("read"))?;
            file.write_at(buffer, from).await.map_err(failed("write"))?;
            from = to;
        }
    }
    if !defers_sync {
        file.sync_data().await.map_err(failed("sync"))?;
    }
    Ok(content.pieces.values().map(|bytes| bytes.len() as u64).sum())
}

/// What is known of one segment's file.
#[derive(Default)]
pub(crate) struct Content {
    /// By position; not empty, and none reaches into the next.
    pieces: BTreeMap<u64, Bytes>,
}

impl Content {
    /// Of pieces in order of sequence.
    pub async fn new<R: Runtime>(runtime: &R, pieces: Vec<Run>) -> Self {
        let mut content = Self::default();
        for (count, Run { position, bytes }) in (1..).zip(pieces) {
            content.put(position, bytes);
            if usize::is_multiple_of(count, RECORDS_PER_TURN) {
                runtime.turn().await;
            }
        }
        content
    }

    /// Where the last piece ends.
    pub fn end(&self) -> u64 {
        self.pieces.last_key_value().map_or(0, |(start, bytes)| start + bytes.len() as u64)
    }

    /// Whether any piece has something of this stretch.
    pub fn touches(&self, position: u64, len: usize) -> bool {
        self.covering(position, len).next().is_some()
    }

    fn covering(&self, position: u64, len: usize) -> impl Iterator<Item = (u64, &Bytes)> {
        let end = position + len as u64;
        let before = self.pieces.range(..position).next_back();
        let pieces = before.into_iter().chain(self.pieces.range(position..end));
        pieces.map(|(&start, bytes)| (start, bytes)).filter(move |(start, bytes)| start + bytes.len() as u64 > position)
    }

    /// Puts what there is over bytes that begin at `position`.
    pub fn lay_over(&self, position: u64, target: &mut [u8]) {
        let end = position + target.len() as u64;
        for (start, bytes) in self.covering(position, target.len()) {
            let (first, last) = (start.max(position), (start + bytes.len() as u64).min(end));
            let source = &bytes[distance(start, first)..distance(start, last)];
            target[distance(position, first)..distance(position, last)].copy_from_slice(source);
        }
    }

    /// Takes the place of what is there.
    fn put(&mut self, position: u64, bytes: Bytes) {
        let end = position + bytes.len() as u64;
        if let Some((&start, before)) = self.pieces.range_mut(..position).next_back() {
            let whole = before.clone();
            if start + whole.len() as u64 > position {
                *before = whole.slice(..distance(start, position));
                self.put_rest(start, &whole, end);
            }
        }
        while let Some((&start, _)) = self.pieces.range(position..end).next() {
            let covered = self.pieces.remove(&start).unwrap_or_default();
            self.put_rest(start, &covered, end);
        }
        self.pieces.insert(position, bytes);
    }

    /// What of a piece lies behind `end`.
    fn put_rest(&mut self, start: u64, whole: &Bytes, end: u64) {
        if start + whole.len() as u64 > end {
            self.pieces.insert(end, whole.slice(distance(start, end)..));
        }
    }

    /// Whole blocks that hold something, (start, end); runs do not touch.
    fn runs(&self) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (&position, bytes) in &self.pieces {
            let start = position / BLOCK * BLOCK;
            let end = (position + bytes.len() as u64).next_multiple_of(BLOCK);
            match runs.last_mut() {
                Some(run) if run.1 >= start => run.1 = run.1.max(end),
                Some(_) | None => runs.push((start, end)),
            }
        }
        runs
    }

    /// Whether the file ends inside a block that has everything which belongs there. Such a block is not written: whole, it
    /// would put zeros behind a finished segment's data, and below the recovery point nobody looks for those.
    async fn has_end<F: File>(&self, file: &F, len_bytes: u64) -> io::Result<bool> {
        let ends_within = |(start, bytes): (&u64, &Bytes)| start + bytes.len() as u64 <= len_bytes;
        if !self.pieces.last_key_value().is_some_and(ends_within) {
            return Ok(false);
        }
        let start = len_bytes / BLOCK * BLOCK;
        let wanted = self.fill(file, start, start + BLOCK).await?;
        let found = file.read_at(start, distance(start, len_bytes)).await?;
        Ok(found[..] == wanted[..distance(start, len_bytes)])
    }

    /// Whole blocks as they are to be in the file.
    async fn fill<F: File>(&self, file: &F, from: u64, to: u64) -> io::Result<F::Buffer> {
        let mut buffer = file.allocate(distance(from, to));
        let before = self.pieces.range(..from).next_back();
        let mut at = from;
        for (&start, bytes) in before.into_iter().chain(self.pieces.range(from..to)) {
            let end = start + bytes.len() as u64;
            let (first, last) = (start.max(from), end.min(to));
            if first >= last {
                continue;
            }
            fill_from_file(file, &mut buffer[distance(from, at)..distance(from, first)], at).await?;
            let target = &mut buffer[distance(from, first)..distance(from, last)];
            target.copy_from_slice(&bytes[distance(start, first)..distance(start, last)]);
            at = last;
        }
        fill_from_file(file, &mut buffer[distance(from, at)..], at).await?;
        Ok(buffer)
    }
}

/// What no piece covers: as the file has it, and zeros behind its end.
async fn fill_from_file<F: File>(file: &F, target: &mut [u8], position: u64) -> io::Result<()> {
    if target.is_empty() {
        return Ok(());
    }
    let found = file.read_at(position, target.len()).await?;
    let (known, behind) = target.split_at_mut(found.len().min(target.len()));
    known.copy_from_slice(&found[..known.len()]);
    behind.fill(0);
    Ok(())
}

/// From one position to a later one of the same segment.
fn distance(from: u64, to: u64) -> usize {
    usize::try_from(to - from).expect("a segment fits into memory addresses")
}
