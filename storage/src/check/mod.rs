//! Verifying a data directory that no broker uses, and mending what can be mended.
//!
//! [`check`] changes nothing. It reads every journal and every byte of every partition: each batch's framing and CRC, the
//! order of offsets, the indexes against the batches, snapshots and checkpoints. What a crash leaves is no damage: what the
//! journals hold is read as if it were in the segments already (`overlay`), and an end that was never acknowledged is told
//! from one that was, as a start does it. Memory does not grow with the data: a log is read window by window, and besides
//! there are the records of the journals, whose size is bounded, and one log's indexes.
//!
//! [`repair`](repair::repair_partition) gives a log that has bad batches the shape of one that is compacted: what cannot be
//! read is put into a file beside it, and an empty batch takes its place, so that no offset is given twice and everything
//! readable behind it stays.

mod indexes;
mod journals;
mod overlay;
mod partition;
pub mod repair;
mod segment;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use walser_protocol::types::Uuid;

use crate::checkpoint::{
    self, CLEANER_OFFSET_FILE, LOG_START_OFFSET_FILE, OffsetCheckpoint, RECOVERY_POINT_FILE, REPLICATION_OFFSET_FILE,
};
use crate::data_dir::log_ends::{self, LOG_ENDS_FILE, LogEnds};
use crate::data_dir::partition::{DirKind, FoundDir};
use crate::data_dir::{CLEAN_SHUTDOWN_FILE, DataDir};
use crate::disk::Disk;
use crate::error::{Corruption, DiskError};
use crate::journal::replay::{JournalOwner, Run};
use crate::log::DamageMark;
use crate::log::known_end::KnownEnd;
use crate::runtime::Runtime;

pub(crate) use self::partition::DAMAGED_SUFFIX;
pub use self::partition::PartitionReport;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    /// `<topic>-<partition>` where it is about one.
    pub partition: Option<String>,
    pub path: PathBuf,
    pub position: Option<u64>,
    pub offset: Option<i64>,
    pub reason: String,
    /// What a start would do about it.
    pub consequence: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// As a crash or an operator may leave it; nothing is lost.
    Note,
    Damage,
}

impl Finding {
    pub fn damage(path: &Path, reason: impl Into<String>, consequence: impl Into<String>) -> Self {
        Self {
            severity: Severity::Damage,
            partition: None,
            path: path.to_owned(),
            position: None,
            offset: None,
            reason: reason.into(),
            consequence: consequence.into(),
        }
    }

    pub fn note(path: &Path, reason: impl Into<String>, consequence: impl Into<String>) -> Self {
        Self { severity: Severity::Note, ..Self::damage(path, reason, consequence) }
    }

    fn corrupt(corruption: &Corruption, consequence: impl Into<String>) -> Self {
        Self {
            position: Some(corruption.position),
            offset: Some(corruption.offset),
            ..Self::damage(&corruption.path, corruption.reason.clone(), consequence)
        }
    }

    pub fn is_damage(&self) -> bool {
        self.severity == Severity::Damage
    }
}

/// How far a check is.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Bytes that will be read, as far as is known.
    Total(u64),
    /// Bytes that were read.
    Read(u64),
    Found(&'a Finding),
}

/// All that was checked.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub findings: Vec<Finding>,
    pub partitions: u64,
    pub batches: u64,
    pub bytes: u64,
    pub journals: u64,
    /// Records of journals that a start would put into segments.
    pub journal_records: u64,
    /// Checkpoint files that cannot be read.
    pub bad_checkpoints: Vec<PathBuf>,
    /// Of partitions with something to mend.
    pub damaged: Vec<PartitionReport>,
}

impl Report {
    /// Of two directories.
    pub fn merge(&mut self, other: Self) {
        self.findings.extend(other.findings);
        self.partitions += other.partitions;
        self.batches += other.batches;
        self.bytes += other.bytes;
        self.journals += other.journals;
        self.journal_records += other.journal_records;
        self.bad_checkpoints.extend(other.bad_checkpoints);
        self.damaged.extend(other.damaged);
    }

    pub fn damage_count(&self) -> usize {
        self.findings.iter().filter(|finding| finding.is_damage()).count()
    }
}

/// What the small files of a data directory say.
struct Checkpoints {
    is_clean: bool,
    recovery_points: OffsetCheckpoint,
    log_start_offsets: OffsetCheckpoint,
    ends: LogEnds,
}

/// What is known of one partition from outside of its directory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    pub is_clean: bool,
    pub recovery_point: Option<i64>,
    pub log_start_offset: Option<i64>,
    pub noted: Option<Noted>,
}

/// What is noted of a log's end: so much of this segment is flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Noted {
    pub base_offset: i64,
    pub end_offset: i64,
    pub position: u64,
}

/// What the journals have for one partition.
#[derive(Default)]
pub(crate) struct FromJournal {
    pub runs: BTreeMap<i64, Vec<Run>>,
    /// What a start would note about it.
    pub mark: Option<DamageMark>,
}

impl Checkpoints {
    fn of(&self, dir: &FoundDir) -> Known {
        let key = (dir.name.topic.clone(), dir.name.partition);
        // Those of another one are forgotten by a start. Whose name it is now is not asked here.
        let is_noted = dir.is_noted_as(dir.topic_id);
        let offset = |checkpoint: &OffsetCheckpoint| checkpoint.offsets.get(&key).copied().filter(|_| is_noted);
        Known {
            is_clean: self.is_clean,
            recovery_point: offset(&self.recovery_points),
            log_start_offset: offset(&self.log_start_offsets),
            noted: self.noted(dir),
        }
    }

    fn noted(&self, dir: &FoundDir) -> Option<Noted> {
        let known = KnownEnd::decode(self.ends.get(&(dir.topic_id?, dir.name.partition))?).ok()?;
        let KnownEnd { base_offset, end_offset, position, .. } = known;
        Some(Noted { base_offset, end_offset, position })
    }
}

/// What the metadata says.
#[derive(Clone, Copy)]
pub struct Topics<'a> {
    /// Ids of all topics; `None` where the metadata cannot be read.
    pub known: Option<&'a BTreeSet<Uuid>>,
    /// All logs that may be behind a journal.
    pub behind: &'a dyn Fn(JournalOwner) -> Vec<(Uuid, i32)>,
}

/// Checks journals, checkpoints and all partitions. `observe` hears of findings as they are made.
///
/// # Errors
/// When a directory cannot be listed or a small file not be read.
pub async fn check<D: Disk, R: Runtime>(
    data_dir: &DataDir<D>,
    runtime: &R,
    topics: &Topics<'_>,
    observe: &dyn Fn(Event<'_>),
) -> Result<Report, DiskError> {
    let mut report = Report::default();
    let checkpoints = read_checkpoints(data_dir, &mut report, observe).await?;
    let mut journals = journals::read(data_dir, runtime, &checkpoints, topics, &mut report, observe).await?;
    let found = data_dir.list_partitions().await?;
    observe(Event::Total(total_bytes(data_dir, &found).await?));
    for dir in &found {
        if dir.name.kind != DirKind::Partition {
            let path = data_dir.path().join(&dir.dir_name);
            let finding = match dir.name.kind {
                DirKind::Stray => {
                    Finding::note(&path, "a stray directory, put aside", "nothing: it is yours to remove")
                }
                DirKind::Future => {
                    let reason = "a copy of a partition that is being moved here";
                    Finding::note(&path, reason, "the move goes on")
                }
                DirKind::Deleted | DirKind::Partition => {
                    Finding::note(&path, "what is left of a deleted topic", "it is removed")
                }
            };
            report.add(finding, observe);
            continue;
        }
        let key = dir.topic_id.map(|topic_id| (topic_id, dir.name.partition));
        let runs = key.and_then(|key| journals.logs.remove(&key)).unwrap_or_default();
        let journal = FromJournal { runs, mark: key.and_then(|key| journals.marks.remove(&key)) };
        let known = checkpoints.of(dir);
        let partition = partition::check(data_dir, runtime, dir, known, journal, observe).await?;
        report.take(partition, observe);
    }
    Ok(report)
}

/// Checks one partition as it is in its directory alone; for who repairs it.
pub(crate) async fn check_again<D: Disk, R: Runtime>(
    data_dir: &DataDir<D>,
    runtime: &R,
    dir: &FoundDir,
) -> Result<PartitionReport, DiskError> {
    let checkpoints = read_checkpoints(data_dir, &mut Report::default(), &|_| {}).await?;
    partition::check(data_dir, runtime, dir, checkpoints.of(dir), FromJournal::default(), &|_| {}).await
}

impl Report {
    fn add(&mut self, finding: Finding, observe: &dyn Fn(Event<'_>)) {
        observe(Event::Found(&finding));
        self.findings.push(finding);
    }

    fn take(&mut self, mut partition: PartitionReport, observe: &dyn Fn(Event<'_>)) {
        self.partitions += 1;
        self.batches += partition.batches;
        self.bytes += partition.bytes;
        let is_damaged = partition.findings.iter().any(Finding::is_damage);
        for finding in std::mem::take(&mut partition.findings) {
            self.add(finding, observe);
        }
        if is_damaged {
            self.damaged.push(partition);
        }
    }
}

async fn total_bytes<D: Disk>(data_dir: &DataDir<D>, found: &[FoundDir]) -> Result<u64, DiskError> {
    let mut total = 0;
    for dir in found.iter().filter(|dir| dir.name.kind == DirKind::Partition) {
        let path = data_dir.path().join(&dir.dir_name);
        let entries = data_dir.disk().list_dir(&path).await.map_err(|e| DiskError::new("list", &path, e))?;
        total += entries.iter().filter(|entry| entry.name.ends_with(".log")).map(|entry| entry.len_bytes).sum::<u64>();
    }
    Ok(total)
}

async fn read_checkpoints<D: Disk>(
    data_dir: &DataDir<D>,
    report: &mut Report,
    observe: &dyn Fn(Event<'_>),
) -> Result<Checkpoints, DiskError> {
    let clean = checkpoint::read_file(data_dir.disk(), &data_dir.path().join(CLEAN_SHUTDOWN_FILE)).await?;
    let mut files = Vec::new();
    for (name, consequence) in [
        (RECOVERY_POINT_FILE, "it is not used: every log is read from its beginning"),
        (LOG_START_OFFSET_FILE, "it is not used: deleted records may be there again"),
        (CLEANER_OFFSET_FILE, "it is not used: logs are compacted from their beginning"),
        (REPLICATION_OFFSET_FILE, "it is not used"),
    ] {
        let path = data_dir.path().join(name);
        let bytes = checkpoint::read_file(data_dir.disk(), &path).await?;
        files.push(match bytes.map(|bytes| OffsetCheckpoint::decode(&bytes)) {
            Some(Ok(checkpoint)) => checkpoint,
            Some(Err(error)) => {
                report.add(Finding::damage(&path, error.to_string(), consequence), observe);
                report.bad_checkpoints.push(path);
                OffsetCheckpoint::default()
            }
            None => OffsetCheckpoint::default(),
        });
    }
    let mut next = files.into_iter();
    let mut take = || next.next().unwrap_or_default();
    Ok(Checkpoints {
        is_clean: clean.is_some(),
        recovery_points: take(),
        log_start_offsets: take(),
        ends: read_ends(data_dir, report, observe).await?,
    })
}

/// Notes that can be read.
async fn read_ends<D: Disk>(
    data_dir: &DataDir<D>,
    report: &mut Report,
    observe: &dyn Fn(Event<'_>),
) -> Result<LogEnds, DiskError> {
    let path = data_dir.path().join(LOG_ENDS_FILE);
    let Some(bytes) = checkpoint::read_file(data_dir.disk(), &path).await? else { return Ok(LogEnds::new()) };
    let ends = log_ends::decode(&bytes);
    let is_whole = ends.as_ref().is_some_and(|ends| ends.values().all(|note| KnownEnd::decode(note).is_ok()));
    if !is_whole {
        let consequence = "it is not used: more of the logs is read";
        report.add(
            Finding::damage(&path, "its content is not what its checksum says, or no notes", consequence),
            observe,
        );
        report.bad_checkpoints.push(path);
    }
    Ok(ends.unwrap_or_default())
}
