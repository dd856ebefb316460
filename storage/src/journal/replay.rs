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
//! a time. One that is damaged ends the replay. The folders before it are in the segments by then, which is no harm: the
//! next start does it again.

mod redo;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use walser_protocol::types::Uuid;

use self::redo::{LogRecords, Piece, Redone, redo_all};
use super::JOURNAL_DIR;
use super::record::{BadRecord, decode};
use crate::checkpoint::sync_dir;
use crate::data_dir::DataDir;
use crate::data_dir::partition::FoundDir;
use crate::disk::{DirEntry, Disk};
use crate::error::DiskError;
use crate::runtime::Runtime;
use crate::wal::{Recovered, WalError, read_all};

/// Ending of a folder that counts no more and is being removed.
const DISCARDED_SUFFIX: &str = ".discarded";

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
}

/// Why the journals could not be replayed. Logs must not be opened then.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(
        "the journal in {} is damaged, and records that were acknowledged are missing: {source}; restore the folder from a backup, or move it out of the data directory to start without them",
        folder.display()
    )]
    Damaged { folder: PathBuf, source: WalError },
    #[error("the journal in {} cannot be read: {source}", folder.display())]
    Unreadable { folder: PathBuf, source: WalError },
    #[error("the journal in {} cannot be replayed, because of record {sequence}: {source}", folder.display())]
    BadRecord { folder: PathBuf, sequence: u64, source: BadRecord },
    #[error("what the journals hold could not be written to its place: {0}")]
    Disk(#[from] DiskError),
}

impl ReplayError {
    fn of_folder(folder: &Path, source: WalError) -> Self {
        let folder = folder.to_path_buf();
        match &source {
            WalError::Corrupt { .. } => Self::Damaged { folder, source },
            WalError::NewerFormat { .. }
            | WalError::GenerationTwice { .. }
            | WalError::PayloadTooLarge { .. }
            | WalError::QueueFull { .. }
            | WalError::Stalled(_)
            | WalError::Failed(_)
            | WalError::Closed
            | WalError::Io { .. } => Self::Unreadable { folder, source },
        }
    }
}

/// Puts into the segments what the journals hold, durably. `locate` gives the name of the topic with this id if the
/// metadata knows the topic and this partition of it. Directories have been held against the metadata before, so that one
/// with a topic's name is that topic's.
pub async fn replay<D: Disk, R: Runtime>(
    data_dir: &DataDir<D>,
    runtime: &R,
    locate: impl Fn(Uuid, i32) -> Option<String>,
) -> Result<Replayed, ReplayError> {
    replay_unsettled(data_dir, runtime, locate, |_, _, _| false).await
}

/// As [`replay`], without the records of which `is_settled` says that they are in their segments, durably: by topic id,
/// partition and sequence.
pub async fn replay_unsettled<D: Disk, R: Runtime>(
    data_dir: &DataDir<D>,
    runtime: &R,
    locate: impl Fn(Uuid, i32) -> Option<String>,
    is_settled: impl Fn(Uuid, i32, u64) -> bool,
) -> Result<Replayed, ReplayError> {
    let mut replayed = Replayed::default();
    for folder in find_folders(data_dir).await?.unwrap_or_default().live {
        let found = read_folder(data_dir, runtime, &folder, &is_settled).await?;
        replayed.folders += 1;
        replayed.void_records += found.settled_records;
        replayed.records += found.records;
        replayed.torn_tails += usize::from(found.recovered.torn_tail.is_some());
        let mut logs = Vec::new();
        for ((topic_id, partition), segments) in found.logs {
            match locate(topic_id, partition) {
                Some(topic) => logs.push(LogRecords { topic_id, topic, partition, segments }),
                None => replayed.dropped_records += count_records(&segments),
            }
        }
        let Redone { logs, void_records, bytes, made } = redo_all(data_dir, runtime, logs).await?;
        replayed.logs += logs;
        replayed.void_records += void_records;
        replayed.bytes += bytes;
        replayed.made.extend(made);
    }
    Ok(replayed)
}

/// Removes all journals. What is in them is not needed any more: the last stop was a clean one, or they were replayed. A
/// crash in the middle leaves journals that are whole, or none.
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
    // Files that vanish one by one would look like damage: first the whole folder stops to count.
    let mut discarded = Vec::with_capacity(folders.live.len());
    for folder in folders.live {
        let mut aside = folder.as_os_str().to_owned();
        aside.push(DISCARDED_SUFFIX);
        let aside = PathBuf::from(aside);
        data_dir.disk().rename(&folder, &aside).await.map_err(|e| DiskError::new("rename", &folder, e))?;
        discarded.push(aside);
    }
    sync_dir(data_dir.disk(), &root).await?;
    for folder in &discarded {
        remove_folder(data_dir.disk(), folder).await?;
    }
    Ok(())
}

#[derive(Default)]
struct Folders {
    /// By number.
    live: Vec<PathBuf>,
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
        match (entry.name.parse::<usize>(), entry.name.strip_suffix(DISCARDED_SUFFIX)) {
            (Ok(number), _) if number.to_string() == entry.name => {
                live.insert(number, root.join(&entry.name));
            }
            (_, Some(number)) if number.parse::<usize>().is_ok() => folders.discarded.push(root.join(&entry.name)),
            (Ok(_) | Err(_), _) => tracing::warn!(name = entry.name, "not a journal of this broker; left alone"),
        }
    }
    folders.live = live.into_values().collect();
    Ok(Some(folders))
}

/// What a journal holds, by log and segment and within a segment in order of sequence.
struct Found {
    logs: BTreeMap<(Uuid, i32), BTreeMap<i64, Vec<Piece>>>,
    records: u64,
    settled_records: u64,
    recovered: Recovered,
}

async fn read_folder<D: Disk, R: Runtime>(
    data_dir: &DataDir<D>,
    runtime: &R,
    folder: &Path,
    is_settled: &impl Fn(Uuid, i32, u64) -> bool,
) -> Result<Found, ReplayError> {
    let mut logs = BTreeMap::<_, BTreeMap<_, Vec<Piece>>>::new();
    let (mut records, mut settled_records, mut bad) = (0, 0, None);
    let mut take = |sequence: u64, payload: Bytes| match decode(payload) {
        Ok((place, bytes)) => {
            records += 1;
            if is_settled(place.topic_id, place.partition, sequence) {
                settled_records += 1;
                return;
            }
            let segments = logs.entry((place.topic_id, place.partition)).or_default();
            segments.entry(place.base_offset).or_default().push(Piece { position: place.position, bytes });
        }
        Err(source) => {
            bad.get_or_insert((sequence, source));
        }
    };
    let recovered = read_all(data_dir.disk(), runtime, folder, &mut take).await;
    let recovered = recovered.map_err(|source| ReplayError::of_folder(folder, source))?;
    match bad {
        Some((sequence, source)) => Err(ReplayError::BadRecord { folder: folder.to_path_buf(), sequence, source }),
        None => Ok(Found { logs, records, settled_records, recovered }),
    }
}

fn count_records(segments: &BTreeMap<i64, Vec<Piece>>) -> u64 {
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
