//! Settles the directories of partitions that say they were moved, see [`crate::driver::homes::moved`].

use std::collections::BTreeMap;

use walser_machine::ids::TopicId;
use walser_protocol::types::Uuid;
use walser_storage::data_dir::DataDir;
use walser_storage::data_dir::moved::Stage;
use walser_storage::data_dir::partition::{DELETE_SUFFIX, DirKind, FoundDir, aside_name};
use walser_storage::data_dir::plan::KnownTopic;
use walser_storage::disk::Disk;

use super::{BootError, Settled, SettledDir, random_uuid, unless_offline};
use crate::driver::homes::FoundDirs;
use crate::driver::homes::moved::{Step, each, next_step};
use crate::driver::partition::PartitionId;
use crate::driver::partition::reconcile::Homes;
use crate::log_dirs::{LogDirIndex, LogDirs};

/// Takes step after step until there is none. `found` is what lies there afterwards; a directory that failed is not in it.
pub async fn settle_moved<D: Disk>(
    log_dirs: &LogDirs,
    dirs: &BTreeMap<LogDirIndex, DataDir<D>>,
    found: &mut FoundDirs,
    known: &BTreeMap<Uuid, KnownTopic>,
) -> Result<(), BootError> {
    let ids = |found: &FoundDirs| found.keys().map(|index| (log_dirs.dir(*index).id(), *index)).collect();
    while let Some(step) = next_step(found, known, &ids(found)) {
        let (Step::Stay { dir, ref dir_name } | Step::Leave { dir, ref dir_name, .. }) = step;
        let Some(moved) = find(found, dir, dir_name) else { unreachable!("it was just found") };
        let data_dir = &dirs[&dir];
        let settled = match step {
            Step::Stay { .. } => stay(data_dir, moved).await,
            Step::Leave { replica, .. } => {
                // A killed process may have given it its name and no more: with the power it would be gone, and the old one, too.
                let synced = dirs[&replica].sync().await.map_err(BootError::from);
                if unless_offline(log_dirs, replica, synced)?.is_none() {
                    found.remove(&replica);
                    continue;
                }
                leave(data_dir, moved).await
            }
        };
        if unless_offline(log_dirs, dir, settled)?.is_none() {
            found.remove(&dir);
        }
    }
    Ok(())
}

fn find<'a>(found: &'a mut FoundDirs, dir: LogDirIndex, dir_name: &str) -> Option<&'a mut FoundDir> {
    found.get_mut(&dir)?.iter_mut().find(|found| found.dir_name == dir_name)
}

async fn stay<D: Disk>(data_dir: &DataDir<D>, moved: &mut FoundDir) -> Result<(), BootError> {
    let name = &moved.dir_name;
    if let Some(topic_id) = moved.topic_id {
        let stage = moved.copying_to.as_ref().map_or(Stage::Alone, Stage::Copying);
        data_dir.write_stage(name, topic_id, stage).await?;
    }
    tracing::info!(directory = %data_dir.path().join(name).display(), "a replica that was about to be moved stays");
    moved.moved_to = None;
    Ok(())
}

async fn leave<D: Disk>(data_dir: &DataDir<D>, moved: &mut FoundDir) -> Result<(), BootError> {
    let unique = u128::from_be_bytes(*random_uuid()?.as_bytes());
    let aside = aside_name(&moved.name.topic, moved.name.partition, unique, DELETE_SUFFIX);
    let path = data_dir.path().join(&moved.dir_name);
    tracing::info!(directory = %path.display(), "an old replica that was moved away is removed");
    data_dir.rename_partition_dir(&moved.dir_name, &aside).await?;
    (moved.name.kind, moved.dir_name, moved.moved_to) = (DirKind::Deleted, aside, None);
    Ok(())
}

/// Directories of replicas that say they are being copied, by partition: with the name and what that is said of.
pub type Copying = BTreeMap<PartitionId, (LogDirIndex, String)>;

/// The replicas that say so.
pub fn copying(found: &FoundDirs, homes: &Homes) -> Copying {
    let copying = each(found).filter(|(_, found)| found.copying_to.is_some() && found.moved_to.is_none());
    let by_id = copying.filter_map(|(dir, found)| {
        let topic_id = found.topic_id.and_then(TopicId::from_wire)?;
        Some((PartitionId { topic_id, index: found.name.partition }, (dir, found.dir_name.clone())))
    });
    by_id.filter(|(id, (dir, _))| homes.get(id) == Some(dir)).collect()
}

/// What is copied no more says so, before anything is appended to it.
pub async fn forget_copies<D: Disk>(
    log_dirs: &LogDirs,
    settled: &mut Settled<D>,
    copying: Copying,
) -> Result<(), BootError> {
    for (id, (dir, dir_name)) in copying {
        let Some(SettledDir { data_dir, .. }) = settled.online.get(&dir).filter(|_| !settled.moves.contains_key(&id))
        else {
            continue;
        };
        tracing::info!(directory = %data_dir.path().join(&dir_name).display(), "a copy that is not there is given up");
        let written = data_dir.write_stage(&dir_name, id.topic_id.get(), Stage::Alone).await.map_err(BootError::from);
        if unless_offline(log_dirs, dir, written)?.is_none() {
            settled.online.remove(&dir);
            settled.homes.retain(|_, home| *home != dir);
            settled.moves.retain(|id, copy| copy.to != dir && settled.homes.contains_key(id));
        }
    }
    Ok(())
}
