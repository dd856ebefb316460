//! The metadata log as a check reads it: nothing is changed, and what is wrong is said.

use std::path::Path;
use std::sync::Arc;

use walser_machine::metadata::MetadataImage;
use walser_storage::check::Finding;
use walser_storage::disk::Disk;
use walser_storage::runtime::Runtime;
use walser_storage::wal::salvage;

use super::{QuorumError, Replay, SNAPSHOT_SUFFIX, WAL_DIR, read_snapshot, snapshot_path};

const STOPS: &str = "the broker does not start: restore the directory from a backup";

/// What the metadata log says.
#[derive(Debug)]
pub struct Inspection {
    /// The state it leads to; `None` when it cannot be read.
    pub image: Option<Arc<MetadataImage>>,
    pub findings: Vec<Finding>,
}

/// Reads the newest snapshot and what follows it.
pub async fn inspect<D: Disk, R: Runtime>(disk: &D, runtime: &R, dir: &Path) -> Inspection {
    let mut findings = Vec::new();
    let image = match read(disk, runtime, dir, &mut findings).await {
        Ok(image) => Some(image),
        Err((path, error)) => {
            findings.push(Finding::damage(&path, error.to_string(), STOPS));
            None
        }
    };
    let is_damaged = findings.iter().any(Finding::is_damage);
    Inspection { image: image.filter(|_| !is_damaged), findings }
}

async fn read<D: Disk, R: Runtime>(
    disk: &D,
    runtime: &R,
    dir: &Path,
    findings: &mut Vec<Finding>,
) -> Result<Arc<MetadataImage>, (std::path::PathBuf, QuorumError)> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |error| (path, error)
    };
    let listed = disk.list_dir(dir).await;
    let listed = listed.map_err(|error| walser_storage::error::DiskError::new("list", dir, error));
    let entries = listed.map_err(QuorumError::from).map_err(at(dir))?;
    let offset = |name: &str| name.strip_suffix(SNAPSHOT_SUFFIX)?.parse::<u64>().ok();
    let newest = entries.iter().filter_map(|entry| offset(&entry.name)).max();
    let mut replay = Replay::new(MetadataImage::default());
    if let Some(end_offset) = newest {
        let image = read_snapshot(disk, runtime, dir, end_offset).await;
        replay = Replay::new(image.map_err(at(&snapshot_path(dir, end_offset)))?);
    }
    let wal = dir.join(WAL_DIR);
    let salvaged = salvage(disk, runtime, &wal, |sequence, entry| replay.take(sequence, &entry)).await;
    let salvaged = salvaged.map_err(QuorumError::from).map_err(at(&wal))?;
    for lost in salvaged.lost {
        let mut finding = Finding::damage(&lost.path, format!("the metadata log is damaged: {}", lost.reason), STOPS);
        finding.position = Some(lost.position);
        findings.push(finding);
    }
    if let Some(torn) = salvaged.recovered.torn_tail {
        let mut finding =
            Finding::note(&torn.path, "it ends in a commit that nobody was told about", "that end is dropped");
        finding.position = Some(torn.position);
        findings.push(finding);
    }
    let Replay { builder, failure, .. } = replay;
    // A gap in the log shows as one in its offsets, too.
    match failure {
        Some(failure) if findings.iter().all(|finding| !finding.is_damage()) => Err((wal, failure)),
        Some(_) | None => Ok(builder.finish().0),
    }
}
