//! Journals that are kept because of logs that may be in a data directory which is not there.
//!
//! A log of which a journal has records and which has no directory beside the journal may have lost that with the power, or
//! it was moved into another data directory and the records are old. While one of those is away nobody can tell: were the log
//! made anew, the older replica would hide the newer one. So the start does without the log and keeps the journal:
//! ```text
//! journal/<n>.withheld[-<k>]        the folder
//! journal/<n>.withheld[-<k>].logs   the logs for which it is kept, as `log-end-checkpoint` names them, with empty notes
//! ```
//! The file is durable before the folder has its name; in a folder with another name all records count. Each start looks again. A log
//! that is found elsewhere, or is not known any more, or got its directory from the folder, is taken out of the file, durably and
//! before any log is opened, so that what the folder has of it is never put over something newer. With the last log the folder
//! goes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{LogKey, discard_folders, free_path, put_aside};
use crate::checkpoint::{read_file, replace_file, sync_dir};
use crate::data_dir::{DataDir, log_ends};
use crate::disk::Disk;
use crate::error::DiskError;
use crate::journal::JOURNAL_DIR;
use crate::log::remove_if_there;

/// Part of the name of a folder that is kept.
const WITHHELD_SUFFIX: &str = ".withheld";
/// Ending of the file beside it.
const LOGS_SUFFIX: &str = ".logs";

/// A folder that an earlier start has kept.
pub(super) struct WithheldFolder {
    /// Of the journal.
    pub number: usize,
    pub path: PathBuf,
}

/// What is left in a journal after a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptJournal {
    pub folder: PathBuf,
    /// The logs whose records are withheld. `None`: it was kept earlier, and for which logs cannot be read.
    pub logs: Option<BTreeSet<LogKey>>,
}

/// The number of the journal that was kept under this name.
pub(super) fn number_of(name: &str) -> Option<usize> {
    let (number, rest) = name.split_once(WITHHELD_SUFFIX)?;
    let is_ours = rest.is_empty() || rest.strip_prefix('-').is_some_and(|at| at.parse::<usize>().is_ok());
    number.parse().ok().filter(|_| is_ours)
}

/// For which logs a folder is kept; `None` when that is damaged.
pub(super) async fn read_withheld<D: Disk>(
    data_dir: &DataDir<D>,
    folder: &Path,
) -> Result<Option<BTreeSet<LogKey>>, DiskError> {
    let content = read_file(data_dir.disk(), &logs_path(folder)).await?;
    let logs = content.and_then(|content| log_ends::decode(&content));
    Ok(logs.map(|logs| logs.into_keys().collect()))
}

/// Keeps a journal as far as it is needed, or removes it when it was kept and is needed no more, durably; where it is kept. After a
/// replay, and before [`super::discard`]. What was kept and `is_damaged` is put aside.
pub async fn settle_kept<D: Disk>(
    data_dir: &DataDir<D>,
    kept: &KeptJournal,
    is_damaged: bool,
) -> Result<Option<PathBuf>, DiskError> {
    let folder = &kept.folder;
    let is_kept = folder.file_name().is_some_and(|name| number_of(&name.to_string_lossy()).is_some());
    match &kept.logs {
        Some(logs) if !logs.is_empty() => {
            let path = if is_kept { folder.clone() } else { free_path(data_dir, folder, WITHHELD_SUFFIX).await? };
            let logs = logs.iter().map(|(topic_id, partition)| (*topic_id, *partition, &[][..]));
            let logs: Vec<_> = logs.collect();
            replace_file(data_dir.disk(), &logs_path(&path), &log_ends::encode(logs.into_iter())).await?;
            if !is_kept {
                let renamed = data_dir.disk().rename(folder, &path).await;
                renamed.map_err(|e| DiskError::new("rename", folder, e))?;
                sync_dir(data_dir.disk(), &data_dir.path().join(JOURNAL_DIR)).await?;
            }
            Ok(Some(path))
        }
        Some(_) if !is_damaged => {
            discard_folders(data_dir, std::iter::once(folder.clone())).await?;
            remove_if_there(data_dir.disk(), &logs_path(folder)).await?;
            Ok(None)
        }
        Some(_) | None => {
            put_aside(data_dir, folder).await?;
            remove_if_there(data_dir.disk(), &logs_path(folder)).await?;
            Ok(None)
        }
    }
}

fn logs_path(folder: &Path) -> PathBuf {
    let mut path = folder.as_os_str().to_owned();
    path.push(LOGS_SUFFIX);
    PathBuf::from(path)
}
