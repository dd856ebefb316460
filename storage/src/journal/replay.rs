//! What a start does with the journals of the run before it.
//!
//! After a crash the journals hold bytes that were promised and are not in the segments yet. [`replay`] writes them where
//! they belong and makes them durable, [`discard`] then removes the journals, and only then are logs opened, which look
//! at their segments as after any crash. After a clean stop the segments lack nothing, and the journals are only removed.
//!
//! Replaying twice, or after a crash in the middle of a replay, or what is in the segments already, changes nothing: a
//! position of a segment never gets other bytes within one run of the broker, and a journal is gone before the next run
//! appends. These rules hold it up:
//!
//! 1. Records of a log that the metadata does not know are dropped: the topic was deleted.
//! 2. Let M be the largest base offset of a `.log` file in the log's directory before anything is replayed. Records of
//!    segments below M are void: while the broker runs, a segment's file is made only after its predecessor is wholly
//!    written and flushed, and compaction or retention replace or remove a segment only once its successor's file is
//!    there. So the one below M is complete, or is not to come back. Records of M and above count; without a `.log`
//!    file all do, because nothing of the log was ever in a segment.
//! 3. Segments of a log are written in ascending order, each flushed, its name with it, before the next one's file is
//!    made. So what a crash in the middle leaves is a state that rule 2 is true of.
//! 4. Where records of one segment overlap, the later one wins. What no record covers stays as the file has it; behind
//!    the end of the file that is zeros.
//! 5. A partition's directory was made without waiting for a flush, so it may be gone with the power although a record of
//!    it was acknowledged. It is made anew, and its name and topic id are durable before the first segment's file is made.
//! 6. What compaction is about to put into the log (`.cleaned`, `.swap`) or out of it (`.deleted`) never concerns a
//!    segment that counts. It is left to those who open the log.
//!
//! A log lies in one journal only, so folders are handled one after the other and one folder's records are in memory at
//! a time. Of one that is damaged everything is replayed that can be read. Logs that may have lost something by it are
//! marked ([`DamageMark`]), durably, before the folder is put aside: `damage` has the rule. A hole in a log is never closed
//! by what is behind it, because it is a hole in the file, too; where a log has lost all of its first segment and has no
//! file yet, an empty one is made, so that what comes behind does not look like its beginning.
//!
//! A directory is made only where it is known not to be elsewhere. Until that is known the journal is kept, see `withheld`.

mod damage;
mod redo;
mod withheld;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use walser_protocol::records::batch::BatchView;
use walser_protocol::types::Uuid;

use self::damage::Evidence;
pub(crate) use self::damage::LogKey;
pub(crate) use self::redo::{Content, Run, fill_front};
use self::redo::{LogRecords, Redone, redo_all};
pub use self::withheld::{KeptJournal, settle_kept};
use self::withheld::{WithheldFolder, number_of, read_withheld};
use super::JOURNAL_DIR;
use super::record::{BadRecord, Piece, Record, decode};
use crate::checkpoint::{LOG_START_OFFSET_FILE, RECOVERY_POINT_FILE, sync_dir};
use crate::data_dir::DataDir;
use crate::data_dir::partition::{FoundDir, sync_names};
use crate::disk::{DirEntry, Disk};
use crate::error::DiskError;
use crate::log::DamageMark;
use crate::runtime::Runtime;
use crate::segment::reader::last_offset;
use crate::wal::{Lost, Recovered, Salvaged, WalError, read_all, salvage};

/// Ending of a folder that counts no more and is being removed.
const DISCARDED_SUFFIX: &str = ".discarded";
/// Ending of a folder that is damaged; what could be read of it is in the segments.
pub const DAMAGED_SUFFIX: &str = ".damaged";

/// What a replay has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    pub folders: usize,
    /// Logs that got bytes.
    pub logs: usize,
    /// All that were in the journals.
    pub records: u64,
    /// Of them those of logs that the metadata does not know.
    pub dropped_records: u64,
    /// Of them those of segments that were complete, and those that are known to be in their segments.
    pub void_records: u64,
    /// Written into segments.
    pub bytes: u64,
    /// Journals that end in the middle of a commit that nobody was told about.
    pub torn_tails: usize,
    /// Partition directories that were gone and are there again.
    pub made: Vec<FoundDir>,
    /// Journals that cannot be read as a whole.
    pub damaged: Vec<DamagedJournal>,
    /// Journals with records of logs whose directories are not there and may not be made; and those that were kept for that.
    pub kept: Vec<KeptJournal>,
}

/// A log that the metadata knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    pub topic: String,
    /// Its directory is made where it is not there: it is in no other data directory.
    pub may_be_made: bool,
}

impl From<String> for Located {
    fn from(topic: String) -> Self {
        Self { topic, may_be_made: true }
    }
}

/// A journal of which records are lost that were acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedJournal {
    pub folder: PathBuf,
    pub lost: Vec<Lost>,
    /// Topic and partition of the logs that may have lost something, with what is known of it. Whether they have turns out
    /// when they are opened.
    pub marked: Vec<(String, i32, DamageMark)>,
}

/// Whose logs are behind a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalOwner {
    /// Of the folder.
    pub journal: usize,
    /// `None`: not known, so that it may be anybody's.
    pub shard_count: Option<u16>,
}

/// Why the journals could not be replayed. Logs must not be opened then.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("the journal in {} cannot be read: {source}", folder.display())]
    Unreadable { folder: PathBuf, source: WalError },
    #[error("the journal in {} cannot be replayed, because of record {sequence}: {source}", folder.display())]
    BadRecord { folder: PathBuf, sequence: u64, source: BadRecord },
    #[error("what the journals hold could not be written to its place: {0}")]
    Disk(#[from] DiskError),
}

/// Puts into the segments what the journals hold, durably. `locate` gives the name of the topic with this id if the
/// metadata knows the topic and this partition of it, `behind` all logs that the metadata knows of one owner. Directories
/// have been held against the metadata before, so that one with a topic's name is that topic's.
///
/// The folders named in [`Replayed::damaged`] are to be put aside afterwards, see [`put_aside`].
pub async fn replay<D: Disk, R: Runtime>(
    data_dir: &DataDir<D>,
    runtime: &R,
    locate: impl Fn(Uuid, i32) -> Option<String>,
    behind: impl Fn(JournalOwner) -> Vec<(Uuid, i32)>,
) -> Result<Replayed, ReplayError> {
    replay_unsettled(data_dir, runtime, locate, |_, _, _| false, behind).await
}

/// As [`replay`], without the records of which `is_settled` says that they are in their segments, durably: by topic id,
/// partition and sequence. What is in [`Replayed::kept`] is to be settled with [`settle_kept`] afterwards.
pub async fn replay_unsettled<D: Disk, R: Runtime, L: Into<Located>>(
    data_dir: &DataDir<D>,
    runtime: &R,
    locate: impl Fn(Uuid, i32) -> Option<L>,
    is_settled: impl Fn(Uuid, i32, u64) -> bool,
    behind: impl Fn(JournalOwner) -> Vec<(Uuid, i32)>,
) -> Result<Replayed, ReplayError> {
    let mut replayed = Replayed::default();
    let locate = |(topic_id, partition)| locate(topic_id, partition).map(Into::into);
    let folders = find_folders(data_dir).await?.unwrap_or_default();
    for WithheldFolder { number, path } in folders.withheld {
        let Some(logs) = read_withheld(data_dir, &path).await? else {
            // Damage: nobody can say any more which of its records are still of use.
            replayed.kept.push(KeptJournal { folder: path, logs: None });
            continue;
        };
        let found = read_folder(data_dir, runtime, &path, &|_, _, _| false).await?;
        let located = |key| locate(key).filter(|_| logs.contains(&key));
        let marks = found.marks(|shard_count| behind(JournalOwner { journal: number, shard_count }));
        let withheld = replay_folder(data_dir, runtime, &path, (found, marks), &located, &mut replayed).await?;
        replayed.kept.push(KeptJournal { folder: path, logs: Some(withheld) });
    }
    for (number, path) in folders.live {
        let found = read_folder(data_dir, runtime, &path, &is_settled).await?;
        let marks = found.marks(|shard_count| behind(JournalOwner { journal: number, shard_count }));
        let withheld = replay_folder(data_dir, runtime, &path, (found, marks), &locate, &mut replayed).await?;
        if !withheld.is_empty() {
            replayed.kept.push(KeptJournal { folder: path, logs: Some(withheld) });
        }
    }
    Ok(replayed)
}

/// Replays one folder; the logs whose directories are not there and may not be made.
async fn replay_folder<D: Disk, R: Runtime>(
    data_dir: &DataDir<D>,
    runtime: &R,
    folder: &Path,
    (found, marks): (Found, BTreeMap<LogKey, DamageMark>),
    locate: &impl Fn(LogKey) -> Option<Located>,
    replayed: &mut Replayed,
) -> Result<BTreeSet<LogKey>, ReplayError> {
    replayed.folders += 1;
    replayed.void_records += found.settled_records;
    replayed.records += found.records;
    replayed.torn_tails += usize::from(found.recovered.torn_tail.is_some());
    let beginnings = if marks.is_empty() { BTreeMap::new() } else { noted_beginnings(data_dir).await? };
    let mut logs = Vec::new();
    for (key, segments) in found.logs {
        match locate(key) {
            Some(located) => {
                let is_marked = marks.contains_key(&key);
                let noted = || beginnings.get(&(located.topic.clone(), key.1)).copied().unwrap_or(0);
                let begins_at = is_marked.then(noted);
                logs.push(LogRecords { key, located, segments, begins_at });
            }
            None => replayed.dropped_records += count_records(&segments),
        }
    }
    let Redone { logs, void_records, bytes, made, mut withheld } = redo_all(data_dir, runtime, logs).await?;
    replayed.logs += logs;
    replayed.void_records += void_records;
    replayed.bytes += bytes;
    replayed.made.extend(made);
    if found.lost.is_empty() {
        return Ok(withheld);
    }
    let mut damaged = DamagedJournal { folder: folder.to_owned(), lost: found.lost, marked: Vec::new() };
    for (key, mark) in marks {
        let Some(located) = locate(key) else { continue };
        match mark_log(data_dir, key, &located, mark).await? {
            Some((mark, made)) => {
                replayed.made.extend(made);
                damaged.marked.push((located.topic, key.1, mark));
            }
            None => drop(withheld.insert(key)),
        }
    }
    replayed.damaged.push(damaged);
    Ok(withheld)
}

/// Where logs without a file begin, by topic and partition; at 0 where nothing is noted.
async fn noted_beginnings<D: Disk>(data_dir: &DataDir<D>) -> Result<BTreeMap<(String, i32), i64>, DiskError> {
    let mut beginnings = data_dir.read_checkpoint(LOG_START_OFFSET_FILE).await?.offsets;
    for (key, recovery_point) in data_dir.read_checkpoint(RECOVERY_POINT_FILE).await?.offsets {
        let beginning = beginnings.entry(key).or_default();
        *beginning = recovery_point.max(*beginning);
    }
    Ok(beginnings)
}

/// Notes durably that a log may have lost something. The directory, when it was made for that. `None`: it is not there, and
/// may not be made.
async fn mark_log<D: Disk>(
    data_dir: &DataDir<D>,
    (topic_id, partition): LogKey,
    Located { topic, may_be_made }: &Located,
    mark: DamageMark,
) -> Result<Option<(DamageMark, Option<FoundDir>)>, DiskError> {
    let disk = data_dir.disk();
    let dir = data_dir.partition_path(topic, partition);
    let is_there = list_if_there(disk, &dir).await?.is_some();
    if !is_there && !may_be_made {
        return Ok(None);
    }
    data_dir.create_partition(topic, partition, topic_id).await?;
    let mark = match DamageMark::read(disk, &dir).await? {
        Some(earlier) => mark.and(&earlier),
        None => mark,
    };
    mark.write(disk, &dir).await?;
    sync_names(disk, &dir).await?;
    let made = (!is_there).then(|| FoundDir::made(topic, partition, topic_id));
    Ok(Some((mark, made)))
}

/// Gives a damaged folder a name under which it counts no more and is kept; the new name. What could be read of it was
/// replayed.
pub async fn put_aside<D: Disk>(data_dir: &DataDir<D>, folder: &Path) -> Result<PathBuf, DiskError> {
    let aside = free_path(data_dir, folder, DAMAGED_SUFFIX).await?;
    data_dir.disk().rename(folder, &aside).await.map_err(|e| DiskError::new("rename", folder, e))?;
    sync_dir(data_dir.disk(), &data_dir.path().join(JOURNAL_DIR)).await?;
    Ok(aside)
}

/// A name with this ending that nothing has, for a folder that is kept.
async fn free_path<D: Disk>(data_dir: &DataDir<D>, folder: &Path, suffix: &str) -> Result<PathBuf, DiskError> {
    let root = data_dir.path().join(JOURNAL_DIR);
    let taken = list_if_there(data_dir.disk(), &root).await?.unwrap_or_default();
    let number = folder.file_name().unwrap_or_default().to_string_lossy();
    let names = (0..=taken.len()).map(|at| match at {
        0 => format!("{number}{suffix}"),
        _ => format!("{number}{suffix}-{at}"),
    });
    let mut free = names.filter(|name| !taken.iter().any(|entry| entry.name == *name));
    Ok(root.join(free.next().expect("one more than are taken")))
}

/// Removes all journals but those that are withheld. What is in them is not needed any more: the last stop was a clean one, or
/// they were replayed. A crash in the middle leaves journals that are whole, or none.
pub async fn discard<D: Disk>(data_dir: &DataDir<D>) -> Result<(), DiskError> {
    let Some(folders) = find_folders(data_dir).await? else { return Ok(()) };
    let root = data_dir.path().join(JOURNAL_DIR);
    // A process that was killed in here may have taken folders out of sight without a flush. Were they to come back after
    // the next run has appended, their bytes would be written over newer ones.
    sync_dir(data_dir.disk(), &root).await?;
    for leftover in &folders.discarded {
        remove_folder(data_dir.disk(), leftover).await?;
    }
    if folders.live.is_empty() {
        return Ok(());
    }
    discard_folders(data_dir, folders.live.into_iter().map(|(_, folder)| folder)).await
}

/// Removes folders. Files that vanish one by one would look like damage: first the whole folder stops to count.
async fn discard_folders<D: Disk>(
    data_dir: &DataDir<D>,
    folders: impl Iterator<Item = PathBuf>,
) -> Result<(), DiskError> {
    let mut discarded = Vec::new();
    for folder in folders {
        let mut aside = folder.as_os_str().to_owned();
        aside.push(DISCARDED_SUFFIX);
        let aside = PathBuf::from(aside);
        data_dir.disk().rename(&folder, &aside).await.map_err(|e| DiskError::new("rename", &folder, e))?;
        discarded.push(aside);
    }
    sync_dir(data_dir.disk(), &data_dir.path().join(JOURNAL_DIR)).await?;
    for folder in &discarded {
        remove_folder(data_dir.disk(), folder).await?;
    }
    Ok(())
}

#[derive(Default)]
struct Folders {
    /// With their numbers, by which they are sorted.
    live: Vec<(usize, PathBuf)>,
    /// Of earlier runs.
    withheld: Vec<WithheldFolder>,
    discarded: Vec<PathBuf>,
}

/// Whatever the number of shards was; `None` where there never was a journal. Names that are none of ours are left alone, so a
/// folder can be put aside.
async fn find_folders<D: Disk>(data_dir: &DataDir<D>) -> Result<Option<Folders>, DiskError> {
    let root = data_dir.path().join(JOURNAL_DIR);
    let Some(entries) = list_if_there(data_dir.disk(), &root).await? else { return Ok(None) };
    let mut folders = Folders::default();
    let mut live = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.is_dir) {
        if let Some(number) = number_of(&entry.name) {
            folders.withheld.push(WithheldFolder { number, path: root.join(&entry.name) });
            continue;
        }
        match (entry.name.parse::<usize>(), entry.name.strip_suffix(DISCARDED_SUFFIX)) {
            (Ok(number), _) if number.to_string() == entry.name => {
                live.insert(number, root.join(&entry.name));
            }
            (_, Some(name)) if name.parse::<usize>().is_ok() || number_of(name).is_some() => {
                folders.discarded.push(root.join(&entry.name));
            }
            _ if entry.name.contains(DAMAGED_SUFFIX) => {}
            (Ok(_) | Err(_), _) => tracing::warn!(name = entry.name, "not a journal of this broker; left alone"),
        }
    }
    folders.live = live.into_iter().collect();
    Ok(Some(folders))
}

/// What a journal holds.
struct Found {
    /// By log and segment and within a segment in order of sequence.
    logs: BTreeMap<LogKey, BTreeMap<i64, Vec<Run>>>,
    /// Of segments.
    records: u64,
    settled_records: u64,
    recovered: Recovered,
    lost: Vec<Lost>,
    evidence: Evidence,
}

/// Takes records in order.
struct Collector<'a, S> {
    is_settled: &'a S,
    logs: BTreeMap<LogKey, BTreeMap<i64, Vec<Run>>>,
    records: u64,
    settled_records: u64,
    /// Collected where records are lost.
    evidence: Option<Evidence>,
    bad: Option<(u64, BadRecord)>,
}

impl<'a, S: Fn(Uuid, i32, u64) -> bool> Collector<'a, S> {
    fn new(is_settled: &'a S, wants_evidence: bool) -> Self {
        Self {
            is_settled,
            logs: BTreeMap::new(),
            records: 0,
            settled_records: 0,
            evidence: wants_evidence.then(Evidence::default),
            bad: None,
        }
    }

    fn take(&mut self, sequence: u64, payload: Bytes) {
        match decode(payload) {
            Ok(Record::Bytes(piece, place, bytes)) => {
                self.records += 1;
                let key = (place.topic_id, place.partition);
                if let (Some(evidence), Piece::Batch) = (&mut self.evidence, piece)
                    && let Ok(batch) = BatchView::parse_exact(&bytes)
                {
                    let end_offset = last_offset(batch.header()).saturating_add(1);
                    evidence.last_batches.insert(key, (sequence, end_offset));
                }
                if (self.is_settled)(place.topic_id, place.partition, sequence) {
                    self.settled_records += 1;
                    return;
                }
                let segments = self.logs.entry(key).or_default();
                segments.entry(place.base_offset).or_default().push(Run { position: place.position, bytes });
            }
            Ok(Record::Roll(roll)) => {
                if let Some(evidence) = &mut self.evidence {
                    evidence.rolls.push((sequence, roll));
                }
            }
            Err(source) => {
                self.bad.get_or_insert((sequence, source));
            }
        }
    }
}

/// A journal as a check sees it.
pub(crate) struct JournalContent {
    pub folder: PathBuf,
    pub found: Result<ReadableContent, ReplayError>,
}

pub(crate) struct ReadableContent {
    pub logs: BTreeMap<LogKey, BTreeMap<i64, Vec<Run>>>,
    pub lost: Vec<Lost>,
    pub has_torn_tail: bool,
    /// What a replay would mark.
    pub marks: BTreeMap<LogKey, DamageMark>,
}

/// What the journals hold; `behind` as in [`replay`]. Changes nothing.
pub(crate) async fn read_journals<D: Disk, R: Runtime>(
    data_dir: &DataDir<D>,
    runtime: &R,
    is_settled: &impl Fn(Uuid, i32, u64) -> bool,
    behind: &dyn Fn(JournalOwner) -> Vec<LogKey>,
) -> Result<Vec<JournalContent>, DiskError> {
    let mut journals = Vec::new();
    for (number, folder) in find_folders(data_dir).await?.unwrap_or_default().live {
        let mut collector = Collector::new(is_settled, true);
        let take = |sequence, payload| collector.take(sequence, payload);
        let salvaged = salvage(data_dir.disk(), runtime, &folder, take).await;
        let Collector { logs, bad, records, settled_records, evidence, .. } = collector;
        let found = match (salvaged, bad) {
            (Ok(Salvaged { lost, recovered, .. }), None) => {
                let has_torn_tail = recovered.torn_tail.is_some();
                let evidence = evidence.unwrap_or_default();
                let found = Found { logs, records, settled_records, recovered, lost, evidence };
                let marks = found.marks(|shard_count| behind(JournalOwner { journal: number, shard_count }));
                Ok(ReadableContent { logs: found.logs, lost: found.lost, has_torn_tail, marks })
            }
            (Ok(_), Some((sequence, source))) => {
                Err(ReplayError::BadRecord { folder: folder.clone(), sequence, source })
            }
            (Err(source), _) => Err(ReplayError::Unreadable { folder: folder.clone(), source }),
        };
        journals.push(JournalContent { folder, found });
    }
    Ok(journals)
}

/// Folders that were put aside because they are damaged.
pub(crate) async fn damaged_folders<D: Disk>(data_dir: &DataDir<D>) -> Result<Vec<PathBuf>, DiskError> {
    let root = data_dir.path().join(JOURNAL_DIR);
    let entries = list_if_there(data_dir.disk(), &root).await?.unwrap_or_default();
    let aside = entries.into_iter().filter(|entry| entry.is_dir && entry.name.contains(DAMAGED_SUFFIX));
    Ok(aside.map(|entry| root.join(entry.name)).collect())
}

async fn read_folder<D: Disk, R: Runtime>(
    data_dir: &DataDir<D>,
    runtime: &R,
    folder: &Path,
    is_settled: &impl Fn(Uuid, i32, u64) -> bool,
) -> Result<Found, ReplayError> {
    let unreadable = |source| ReplayError::Unreadable { folder: folder.to_path_buf(), source };
    let mut collector = Collector::new(is_settled, false);
    let read = read_all(data_dir.disk(), runtime, folder, |sequence, payload| collector.take(sequence, payload)).await;
    let (recovered, lost) = match read {
        Ok(recovered) => (recovered, Vec::new()),
        // Also what the disk does not give: most of it is elsewhere.
        Err(WalError::Corrupt { .. } | WalError::Io { .. }) => {
            collector = Collector::new(is_settled, true);
            let take = |sequence, payload| collector.take(sequence, payload);
            let salvaged = salvage(data_dir.disk(), runtime, folder, take).await;
            let Salvaged { recovered, lost, .. } = salvaged.map_err(unreadable)?;
            (recovered, lost)
        }
        Err(error) => return Err(unreadable(error)),
    };
    let Collector { logs, records, settled_records, evidence, bad, .. } = collector;
    match bad {
        Some((sequence, source)) => Err(ReplayError::BadRecord { folder: folder.to_path_buf(), sequence, source }),
        None => Ok(Found { logs, records, settled_records, recovered, lost, evidence: evidence.unwrap_or_default() }),
    }
}

impl Found {
    /// Of every log that may have lost something.
    fn marks(&self, behind: impl FnOnce(Option<u16>) -> Vec<LogKey>) -> BTreeMap<LogKey, DamageMark> {
        let concerned = self.evidence.concerned(&self.lost);
        let mark = |at: usize, end_offset| {
            let Lost { path, position, reason, .. } = &self.lost[at];
            DamageMark { end_offset, path: path.clone(), position: *position, reason: reason.clone() }
        };
        let known = concerned.known.iter().map(|(key, (end_offset, at))| (*key, mark(*at, Some(*end_offset))));
        let mut marks: BTreeMap<_, _> = known.collect();
        if let Some((at, sequence)) = concerned.all {
            for key in behind(self.evidence.shard_count()) {
                let mark = mark(at, self.evidence.end_offset(key, sequence));
                let mark = match marks.get(&key) {
                    Some(known) => mark.and(known),
                    None => mark,
                };
                marks.insert(key, mark);
            }
        }
        marks
    }
}

fn count_records(segments: &BTreeMap<i64, Vec<Run>>) -> u64 {
    segments.values().map(|pieces| pieces.len() as u64).sum()
}

/// What a directory holds; `None` when there is no such directory.
async fn list_if_there<D: Disk>(disk: &D, dir: &Path) -> Result<Option<Vec<DirEntry>>, DiskError> {
    match disk.list_dir(dir).await {
        Ok(entries) => Ok(Some(entries)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DiskError::new("list", dir, error)),
    }
}

async fn remove_folder<D: Disk>(disk: &D, folder: &Path) -> Result<(), DiskError> {
    let failed = |operation| move |e| DiskError::new(operation, folder, e);
    for entry in disk.list_dir(folder).await.map_err(failed("list"))? {
        let path = folder.join(&entry.name);
        disk.remove_file(&path).await.map_err(|e| DiskError::new("remove", &path, e))?;
    }
    disk.remove_dir(folder).await.map_err(failed("remove directory"))
}

#[cfg(test)]
mod tests;
