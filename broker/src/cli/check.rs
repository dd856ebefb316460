//! `walser check`: a whole data directory verified, and mended with `--repair`, while no broker uses it.

mod print;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use walser_machine::metadata::MetadataImage;
use walser_storage::check::repair::{forget_ends, repair_partition};
use walser_storage::check::{Event, Finding, Report, Topics, check};
use walser_storage::checkpoint::read_file;
use walser_storage::data_dir::plan::{Decision, plan_directories};
use walser_storage::data_dir::{DataDir, DataDirError, DirLock, META_PROPERTIES_FILE, MetaProperties};
use walser_storage::disk::Disk;
use walser_storage::error::DiskError;
use walser_storage::runtime::Runtime;
use walser_storage::runtime::glommio::block_on;

use self::print::Printer;
use super::error::CliError;
use crate::driver::boot::{self, QUORUM_DIR, known_topics, logs_behind};
use crate::driver::quorum::inspect::inspect;
use crate::shard::ShardDisk;
use crate::shard::runtime::ShardRuntime;
use crate::shard::start::StartError;
use crate::start_checks;

/// Verify a data directory, and mend it
///
/// Reads everything in it: the metadata log, the journals, and of every partition each batch's framing and CRC-32C, the
/// order of offsets, indexes, producer snapshots, leader epochs and checkpoints. It says what is damaged, by path, position,
/// offset and reason, and what a start would make of it. Without --repair nothing is changed.
///
/// No broker may use the directory meanwhile. What a broker that was killed leaves is no damage: a start puts what the
/// journals hold into the logs, and an end that was never acknowledged is cut off.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
With --repair:
  - journals are put into the logs as by a start; of a damaged one everything that can be read,
    and it is kept as journal/<n>.damaged
  - batches that do not verify are moved into <segment>.log.<position>.damaged; an empty batch
    takes their offsets, so everything behind them stays and no offset is given twice
  - a log that lost its end with a journal goes on behind what it had acknowledged
  - indexes and leader epochs are written anew, snapshots and checkpoints that cannot be read
    are removed; the metadata log is never touched
It says what was lost, by topic, partition and offsets. Copy the directory first if you can.

Exit codes: 0 nothing is damaged, or all of it was mended; 1 something is damaged; 2 bad
arguments; 3 it cannot run, because a broker uses the directory for instance.

Examples:
  walser check walser-data
  walser check --repair walser-data")]
pub struct Args {
    /// The data directory, as log.dirs or --data-dir names it
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Mend what can be mended, and say what was lost
    #[arg(long)]
    repair: bool,
    /// Print JSON, one object per finding and line, and a summary
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// When something is damaged, or it cannot run.
pub fn run(args: &Args) -> Result<(), CliError> {
    if !args.dir.is_dir() {
        return Err(CliError::Usage(format!("{} is no directory", args.dir.display())));
    }
    if !args.dir.join(META_PROPERTIES_FILE).is_file() && !args.dir.join(QUORUM_DIR).is_dir() {
        let reason = format!("{} is no data directory of walser: it has no {META_PROPERTIES_FILE}", args.dir.display());
        return Err(CliError::Usage(reason));
    }
    let _lock = DirLock::acquire(&args.dir).map_err(|error| CliError::Unfit(error.to_string()))?;
    let printer = Rc::new(Printer::new(args.json));
    let (dir, repairs) = (args.dir.clone(), args.repair);
    let telling = Rc::clone(&printer);
    let ran = block_on(async move {
        let tool =
            Tool { data_dir: DataDir::at(ShardDisk::new(), dir), runtime: ShardRuntime::new(), printer: telling };
        tool.run(repairs).await
    });
    let damage_count = ran.map_err(|source| {
        let error = StartError::Executor { name: "check".to_owned(), source };
        CliError::Unfit(start_checks::explain_start(error).to_string())
    })??;
    printer.finish()?;
    if damage_count == 0 { Ok(()) } else { Err(CliError::Failed(format!("{damage_count} damaged places"))) }
}

/// The directory and what is known of it.
struct Tool<D, R> {
    data_dir: DataDir<D>,
    runtime: R,
    printer: Rc<Printer>,
}

/// Whose directory it is, and its topics.
struct Metadata {
    meta: Option<MetaProperties>,
    image: Option<Arc<MetadataImage>>,
    findings: Vec<Finding>,
}

impl<D: Disk, R: Runtime> Tool<D, R> {
    /// How many damaged places are left.
    async fn run(&self, repairs: bool) -> Result<usize, CliError> {
        let metadata = self.read_metadata().await?;
        for finding in &metadata.findings {
            self.printer.finding(finding)?;
        }
        let report = self.check(&metadata, &|event| self.printer.event(event)).await?;
        let metadata_damage = metadata.findings.iter().filter(|finding| finding.is_damage()).count();
        let damage_count = report.damage_count() + metadata_damage;
        self.printer.summary(&report, metadata.image.as_deref(), damage_count)?;
        if !repairs || damage_count == 0 {
            return Ok(damage_count);
        }
        let (Some(meta), Some(image)) = (&metadata.meta, &metadata.image) else {
            self.printer.say("nothing is repaired: without the metadata it is not known which logs there are")?;
            return Ok(damage_count);
        };
        self.repair(&metadata, meta, image).await.map(|left| left + metadata_damage)
    }

    async fn read_metadata(&self) -> Result<Metadata, CliError> {
        let (disk, path) = (self.data_dir.disk(), self.data_dir.path().join(META_PROPERTIES_FILE));
        let mut findings = Vec::new();
        let bytes = read_file(disk, &path).await.map_err(failed)?;
        let meta = match bytes.map(|bytes| MetaProperties::decode(&path, &bytes)) {
            Some(Ok(meta)) => Some(meta),
            Some(Err(error @ (DataDirError::Kafkas { .. } | DataDirError::NewerFormat { .. }))) => {
                return Err(CliError::Unfit(error.to_string()));
            }
            Some(Err(error)) => {
                findings.push(Finding::damage(&path, error.to_string(), "the broker does not start"));
                None
            }
            None => {
                findings.push(Finding::damage(&path, "missing", "the broker does not start"));
                None
            }
        };
        let inspection = inspect(disk, &self.runtime, &self.data_dir.path().join(QUORUM_DIR)).await;
        findings.extend(inspection.findings);
        if let (Some(meta), Some(image)) = (&meta, &inspection.image) {
            findings.extend(self.plan_directories(image, meta.node_id).await?);
        }
        Ok(Metadata { meta, image: inspection.image, findings })
    }

    /// Directories that are not what the metadata says.
    async fn plan_directories(&self, image: &MetadataImage, node_id: i32) -> Result<Vec<Finding>, CliError> {
        let found = self.data_dir.list_partitions().await.map_err(failed)?;
        let decisions = plan_directories(&found, &known_topics(image, node_id), || 0);
        let finding = |(dir, decision): (&walser_storage::data_dir::partition::FoundDir, Decision)| {
            let path = self.data_dir.path().join(&dir.dir_name);
            match decision {
                Decision::PutAside { reason, .. } => {
                    Some(Finding::note(&path, format!("a stray directory: {reason:?}"), "it is renamed to …-stray"))
                }
                Decision::Delete { new_name: Some(_) } => {
                    Some(Finding::note(&path, "half made, of a topic that is gone", "it is removed"))
                }
                Decision::Open { .. } | Decision::TakeOver { .. } | Decision::Leave | Decision::Delete { .. } => None,
            }
        };
        Ok(found.iter().zip(decisions).filter_map(finding).collect())
    }

    async fn check(&self, metadata: &Metadata, observe: &dyn Fn(Event<'_>)) -> Result<Report, CliError> {
        let topics = metadata.meta.as_ref().zip(metadata.image.as_ref());
        let topics = topics.map(|(meta, image)| known_topics(image, meta.node_id));
        let ids: Option<BTreeSet<_>> = topics.as_ref().map(|topics| topics.keys().copied().collect());
        let behind = |owner| topics.as_ref().map(|topics| logs_behind(topics, owner)).unwrap_or_default();
        let topics = Topics { known: ids.as_ref(), behind: &behind };
        check(&self.data_dir, &self.runtime, &topics, observe).await.map_err(failed)
    }

    /// Does what a start does before it opens logs, then mends them; how many damaged places are left.
    async fn repair(
        &self,
        metadata: &Metadata,
        meta: &MetaProperties,
        image: &MetadataImage,
    ) -> Result<usize, CliError> {
        let found = self.data_dir.list_partitions().await.map_err(failed)?;
        let settled = boot::settle(&self.data_dir, &found, image, meta.node_id).await;
        settled.map_err(|error| CliError::Failed(error.to_string()))?;
        // From now on a start looks at every log.
        let is_clean = self.data_dir.take_clean_mark().await.map_err(failed)?;
        let ends = self.data_dir.read_log_ends().await.map_err(failed)?;
        let settled = boot::settle_journals(&self.data_dir, &self.runtime, image, meta.node_id, &ends, is_clean).await;
        settled.map_err(|error| CliError::Failed(error.to_string()))?;
        let report = self.check(metadata, &|_| {}).await?;
        forget_ends(&self.data_dir).await.map_err(failed)?;
        for path in report.bad_checkpoints.iter().filter(|path| path.is_file()) {
            self.remove(path).await?;
            self.printer.rebuilt(None, path)?;
        }
        let mut left = 0;
        for partition in report.damaged {
            let name = &partition.dir.dir_name.clone();
            match repair_partition(&self.data_dir, &self.runtime, partition).await {
                Ok(repaired) => {
                    for path in &repaired.rebuilt {
                        self.printer.rebuilt(Some(name), path)?;
                    }
                    for loss in &repaired.losses {
                        self.printer.loss(name, loss)?;
                    }
                }
                Err(error) => {
                    left += 1;
                    self.printer.say(&format!("{name} is not repaired: {error}"))?;
                }
            }
        }
        Ok(left)
    }

    async fn remove(&self, path: &Path) -> Result<(), CliError> {
        let removed = self.data_dir.disk().remove_file(path).await;
        removed.map_err(|error| failed(DiskError::new("remove", path, error)))
    }
}

fn failed(error: DiskError) -> CliError {
    CliError::Failed(error.to_string())
}
