//! `walser check`: whole data directories verified, and mended with `--repair`, while no broker uses them.

mod print;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use walser_machine::ids::{BrokerId, DirectoryId};
use walser_machine::metadata::MetadataImage;
use walser_protocol::types::Uuid;
use walser_storage::check::repair::{forget_ends, repair_partition};
use walser_storage::check::{Event, Finding, Report, Topics, check};
use walser_storage::checkpoint::read_file;
use walser_storage::data_dir::moved::Stage;
use walser_storage::data_dir::plan::{Decision, KnownTopic, plan_directories};
use walser_storage::data_dir::{DataDir, DataDirError, DirLock, META_PROPERTIES_FILE, MetaProperties};
use walser_storage::disk::Disk;
use walser_storage::error::DiskError;
use walser_storage::runtime::Runtime;
use walser_storage::runtime::glommio::block_on;

use self::print::Printer;
use super::error::CliError;
use crate::driver::boot::{self, JournalLogs, QUORUM_DIR, known_topics, logs_behind};
use crate::driver::homes::{FoundDirs, find_homes, topics_in};
use crate::driver::partition::reconcile::Homes;
use crate::driver::quorum::inspect::inspect;
use crate::log_dirs::LogDirs;
use crate::shard::ShardDisk;
use crate::shard::runtime::ShardRuntime;
use crate::shard::start::StartError;
use crate::start_checks;

/// Verify data directories, and mend them
///
/// Reads everything in them: the metadata log, the journals, and of every partition each batch's framing and CRC-32C, the
/// order of offsets, indexes, producer snapshots, leader epochs and checkpoints. It says what is damaged, by path, position,
/// offset and reason, and what a start would make of it. Without --repair nothing is changed.
///
/// Of a broker with several directories name the one with the metadata log, and any others.
///
/// No broker may use the directories meanwhile. What a broker that was killed leaves is no damage: a start puts what the
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
    /// The data directories, as log.dirs, metadata.log.dir or --data-dir name them
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
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
    let mut locks = Vec::with_capacity(args.dirs.len());
    for dir in &args.dirs {
        if !dir.is_dir() {
            return Err(CliError::Usage(format!("{} is no directory", dir.display())));
        }
        if !dir.join(META_PROPERTIES_FILE).is_file() && !dir.join(QUORUM_DIR).is_dir() {
            let reason = format!("{} is no data directory of walser: it has no {META_PROPERTIES_FILE}", dir.display());
            return Err(CliError::Usage(reason));
        }
        locks.push(DirLock::acquire(dir).map_err(|error| CliError::Unfit(error.to_string()))?);
    }
    // The first one that has a metadata log; where none has, it is missing in the first.
    let quorum_dir = args.dirs.iter().find(|dir| dir.join(QUORUM_DIR).is_dir()).unwrap_or(&args.dirs[0]).clone();
    let printer = Rc::new(Printer::new(args.json));
    let (dirs, repairs) = (args.dirs.clone(), args.repair);
    let telling = Rc::clone(&printer);
    let ran = block_on(async move {
        let data_dirs = dirs.into_iter().map(|dir| DataDir::at(ShardDisk::new(), dir)).collect();
        let tool = Tool { data_dirs, quorum_dir, runtime: ShardRuntime::new(), printer: telling };
        tool.run(repairs).await
    });
    let damage_count = ran.map_err(|source| {
        let error = StartError::Executor { name: "check".to_owned(), source };
        CliError::Unfit(start_checks::explain_start(error).to_string())
    })??;
    printer.finish()?;
    if damage_count == 0 { Ok(()) } else { Err(CliError::Failed(format!("{damage_count} damaged places"))) }
}

/// The directories and what is known of them.
struct Tool<D, R> {
    data_dirs: Vec<DataDir<D>>,
    /// The one with the metadata log.
    quorum_dir: PathBuf,
    runtime: R,
    printer: Rc<Printer>,
}

/// Whose directories they are, and its topics.
struct Metadata {
    /// Of each directory.
    metas: Vec<Option<MetaProperties>>,
    image: Option<Arc<MetadataImage>>,
    /// By directory, the topics as far as it has them.
    topics: Vec<BTreeMap<Uuid, KnownTopic>>,
    findings: Vec<Finding>,
}

impl<D: Disk, R: Runtime> Tool<D, R> {
    /// How many damaged places are left.
    async fn run(&self, repairs: bool) -> Result<usize, CliError> {
        let metadata = self.read_metadata().await?;
        for finding in &metadata.findings {
            self.printer.finding(finding)?;
        }
        let mut report = Report::default();
        for at in 0..self.data_dirs.len() {
            report.merge(self.check(&metadata, at, &|event| self.printer.event(event)).await?);
        }
        let metadata_damage = metadata.findings.iter().filter(|finding| finding.is_damage()).count();
        let damage_count = report.damage_count() + metadata_damage;
        self.printer.summary(&report, metadata.image.as_deref(), damage_count)?;
        if !repairs || damage_count == 0 {
            return Ok(damage_count);
        }
        if let Some(reason) = self.why_not_repaired(&metadata) {
            self.printer.say(&format!("nothing is repaired: {reason}"))?;
            return Ok(damage_count);
        }
        let mut left = metadata_damage;
        for at in 0..self.data_dirs.len() {
            left += self.repair(&metadata, at).await?;
        }
        Ok(left)
    }

    /// A journal may have records of a log that is in another directory by now.
    fn why_not_repaired(&self, metadata: &Metadata) -> Option<&'static str> {
        let metas: Option<Vec<&MetaProperties>> = metadata.metas.iter().map(Option::as_ref).collect();
        let (Some(metas), Some(image)) = (metas, &metadata.image) else {
            return Some("without the metadata it is not known which logs there are");
        };
        let node_id = metas.first().and_then(|meta| BrokerId::from_wire(meta.node_id));
        let broker = node_id.and_then(|node_id| image.broker(node_id));
        let is_here = |id: &DirectoryId| metas.iter().any(|meta| meta.directory_id == id.get());
        let has_all = broker.is_none_or(|broker| broker.directories.iter().all(is_here));
        (!has_all).then_some("the broker has other directories, too; name all of them")
    }

    async fn read_metadata(&self) -> Result<Metadata, CliError> {
        let mut findings = Vec::new();
        let mut metas = Vec::with_capacity(self.data_dirs.len());
        for data_dir in &self.data_dirs {
            metas.push(self.read_meta(data_dir, &mut findings).await?);
        }
        let disk = self.data_dirs[0].disk();
        let inspection = inspect(disk, &self.runtime, &self.quorum_dir.join(QUORUM_DIR)).await;
        findings.extend(inspection.findings);
        let mut topics = vec![BTreeMap::new(); self.data_dirs.len()];
        if let (Some(Some(meta)), Some(image)) = (metas.first(), &inspection.image) {
            topics = self.find_topics(image, meta.node_id, &mut findings).await?;
        }
        Ok(Metadata { metas, image: inspection.image, topics, findings })
    }

    async fn read_meta(
        &self,
        data_dir: &DataDir<D>,
        findings: &mut Vec<Finding>,
    ) -> Result<Option<MetaProperties>, CliError> {
        let path = data_dir.path().join(META_PROPERTIES_FILE);
        let bytes = read_file(data_dir.disk(), &path).await.map_err(failed)?;
        match bytes.map(|bytes| MetaProperties::decode(&path, &bytes)) {
            Some(Ok(meta)) => return Ok(Some(meta)),
            Some(Err(error @ (DataDirError::Kafkas { .. } | DataDirError::NewerFormat { .. }))) => {
                return Err(CliError::Unfit(error.to_string()));
            }
            Some(Err(error)) => {
                findings.push(Finding::damage(&path, error.to_string(), "the broker does not start"));
            }
            None => findings.push(Finding::damage(&path, "missing", "the broker does not start")),
        }
        Ok(None)
    }

    /// The topics by directory, and findings on directories that are not what the metadata says.
    async fn find_topics(
        &self,
        image: &MetadataImage,
        node_id: i32,
        findings: &mut Vec<Finding>,
    ) -> Result<Vec<BTreeMap<Uuid, KnownTopic>>, CliError> {
        let known = known_topics(image, node_id);
        let paths: Vec<PathBuf> = self.data_dirs.iter().map(|data_dir| data_dir.path().to_owned()).collect();
        let log_dirs = LogDirs::new(&paths, &self.quorum_dir, 0);
        let mut found = FoundDirs::new();
        for ((index, _), data_dir) in log_dirs.iter().zip(&self.data_dirs) {
            found.insert(index, data_dir.list_partitions().await.map_err(failed)?);
        }
        let homes = find_homes(&found, &known, &log_dirs).unwrap_or_else(|error| {
            findings.push(Finding::damage(&paths[0], error.to_string(), "the broker does not start"));
            Homes::new()
        });
        let mut topics = Vec::with_capacity(paths.len());
        for (index, _) in log_dirs.iter() {
            let here = topics_in(&known, &homes, index);
            let dirs = found.remove(&index).unwrap_or_default();
            let decisions = plan_directories(&dirs, &here, || 0);
            findings.extend(
                dirs.iter()
                    .zip(decisions)
                    .filter_map(|(dir, decision)| stray_finding(&paths[index.index()].join(&dir.dir_name), &decision)),
            );
            topics.push(here);
        }
        Ok(topics)
    }

    async fn check(&self, metadata: &Metadata, at: usize, observe: &dyn Fn(Event<'_>)) -> Result<Report, CliError> {
        let topics = &metadata.topics[at];
        let is_known = metadata.image.is_some() && metadata.metas.first().is_some_and(Option::is_some);
        let ids: Option<BTreeSet<_>> = is_known.then(|| topics.keys().copied().collect());
        let behind = |owner| logs_behind(topics, owner);
        let topics = Topics { known: ids.as_ref(), behind: &behind };
        check(&self.data_dirs[at], &self.runtime, &topics, observe).await.map_err(failed)
    }

    /// Does what a start does before it opens logs, then mends them; how many damaged places are left.
    async fn repair(&self, metadata: &Metadata, at: usize) -> Result<usize, CliError> {
        let (data_dir, topics) = (&self.data_dirs[at], &metadata.topics[at]);
        let found = data_dir.list_partitions().await.map_err(failed)?;
        let settled = boot::settle(data_dir, &found, topics).await;
        settled.map_err(|error| CliError::Failed(error.to_string()))?;
        // From now on a start looks at every log.
        let is_clean = data_dir.take_clean_mark().await.map_err(failed)?;
        let ends = data_dir.read_log_ends().await.map_err(failed)?;
        // All directories are there.
        let logs = JournalLogs { topics, may_be_made: true };
        let settled = boot::settle_journals(data_dir, &self.runtime, logs, &ends, is_clean).await;
        settled.map_err(|error| CliError::Failed(error.to_string()))?;
        let report = self.check(metadata, at, &|_| {}).await?;
        forget_ends(data_dir).await.map_err(failed)?;
        for path in report.bad_checkpoints.iter().filter(|path| path.is_file()) {
            self.remove(data_dir, path).await?;
            self.printer.rebuilt(None, path)?;
        }
        let mut left = 0;
        for partition in report.damaged {
            let name = &partition.dir.dir_name.clone();
            if let Some(topic_id) = partition.dir.topic_id.filter(|_| partition.dir.copying_to.is_some())
                && partition.dir.moved_to.is_none()
            {
                // Its segments are about to become others.
                data_dir.write_stage(name, topic_id, Stage::Alone).await.map_err(failed)?;
            }
            match repair_partition(data_dir, &self.runtime, partition).await {
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

    async fn remove(&self, data_dir: &DataDir<D>, path: &Path) -> Result<(), CliError> {
        let removed = data_dir.disk().remove_file(path).await;
        removed.map_err(|error| failed(DiskError::new("remove", path, error)))
    }
}

fn stray_finding(path: &Path, decision: &Decision) -> Option<Finding> {
    match decision {
        Decision::PutAside { reason, .. } => {
            Some(Finding::note(path, format!("a stray directory: {reason:?}"), "it is renamed to …-stray"))
        }
        Decision::Delete { new_name: Some(_) } => {
            Some(Finding::note(path, "half made, and needed no more", "it is removed"))
        }
        Decision::Open { .. } | Decision::TakeOver { .. } | Decision::Leave | Decision::Delete { .. } => None,
    }
}

fn failed(error: DiskError) -> CliError {
    CliError::Failed(error.to_string())
}
