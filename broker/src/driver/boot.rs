//! The data directories before the first shard opens a log, and after the last one has closed.
//!
//! Runs on the control executor. What a directory holds is held against the metadata: an old topic under a new id, topics
//! nobody knows and half-deleted ones are settled here, and said so. Which directories there are, and which partition is in
//! which, is in `dirs` and `homes`.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use walser_machine::ids::{BrokerId, DirectoryId, IdGenerator};
use walser_machine::metadata::MetadataImage;
use walser_machine::metadata::controller::{Command, Controller, ControllerSettings, RegisterBroker};
use walser_machine::metadata::records::BrokerEndpoint;
use walser_protocol::types::Uuid;
use walser_storage::checkpoint::{
    CLEANER_OFFSET_FILE, LOG_START_OFFSET_FILE, OffsetCheckpoint, RECOVERY_POINT_FILE, REPLICATION_OFFSET_FILE,
};
use walser_storage::data_dir::log_ends::{LogEnds, is_noted};
use walser_storage::data_dir::partition::{DirKind, FoundDir};
use walser_storage::data_dir::plan::{Decision, KnownTopic, plan_directories};
use walser_storage::data_dir::{DataDir, DataDirError, Removal};
use walser_storage::disk::Disk;
use walser_storage::error::DiskError;
use walser_storage::journal::replay::{
    DamagedJournal, JournalOwner, Located, ReplayError, Replayed, discard, put_aside, replay_unsettled, settle_kept,
};
use walser_storage::runtime::Runtime;

use super::checkpoints::{Checkpoints, encode_ends};
use super::homes::moved::held;
use super::homes::{FoundDirs, HomesError, add_made, find_homes, find_moves, topics_in};
use super::metadata::{MetadataDriver, MetadataError};
use super::partition::PartitionId;
use super::partition::moves::FoundMove;
use super::partition::reconcile::{ClosedLog, DirBoot, Homes};
use super::quorum::{Quorum, QuorumError, QuorumOptions};
use crate::config::broker::BrokerConfig;
use crate::config::rules::BrokerRules;
use crate::config::view::BrokerView;
use crate::log_dirs::{LogDirIndex, LogDirs};
use crate::net::listener::ListenerInfo;
use crate::shard::placement::Placement;

pub mod dirs;
mod moved;

use dirs::DirsError;
use moved::{copying, forget_copies, settle_moved};

/// The metadata log's place in the data directory.
pub const QUORUM_DIR: &str = "quorum";

/// Why the data directories cannot be used by this broker.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    Dirs(#[from] DirsError),
    #[error(transparent)]
    Homes(#[from] HomesError),
    #[error(transparent)]
    Quorum(#[from] QuorumError),
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    #[error(transparent)]
    Journal(#[from] ReplayError),
    #[error("no random numbers from the kernel: {0}")]
    Random(getrandom::Error),
}

impl From<DiskError> for BootError {
    fn from(error: DiskError) -> Self {
        Self::DataDir(error.into())
    }
}

/// The metadata of the last run.
pub async fn metadata<D: Disk, R: Runtime>(
    data_dir: &DataDir<D>,
    runtime: R,
    config: &Arc<BrokerConfig>,
    cluster_id: &str,
) -> Result<MetadataDriver<D, R>, BootError> {
    let view = BrokerView::fixed(config);
    let snapshot_after_bytes = view.integer("metadata.log.max.record.bytes.between.snapshots");
    let mut salt = [0; 8];
    getrandom::fill(&mut salt).map_err(BootError::Random)?;
    let options = QuorumOptions {
        dir: data_dir.path().join(QUORUM_DIR),
        salt_seed: u64::from_ne_bytes(salt),
        snapshot_after_bytes: u64::try_from(snapshot_after_bytes).unwrap_or(0),
        features: BTreeMap::new(),
    };
    let (quorum, image) = Quorum::open(data_dir.disk().clone(), runtime, options).await?;
    let small = |key| i32::try_from(view.integer(key)).unwrap_or(i32::MAX);
    let settings = ControllerSettings {
        node_id: node_id(config),
        num_partitions: small("num.partitions"),
        default_replication_factor: i16::try_from(small("default.replication.factor")).unwrap_or(i16::MAX),
        delete_topic_enable: view.boolean("delete.topic.enable"),
    };
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(BootError::Random)?;
    let controller = Controller::new(settings, IdGenerator::from_seed(seed));
    let rules = Box::new(BrokerRules(Arc::clone(config)));
    let mut driver = MetadataDriver::new(controller, rules, quorum, image);
    driver.bootstrap(cluster_id).await?;
    Ok(driver)
}

/// Registers this broker, a new incarnation of it, in the metadata.
pub async fn register<D: Disk, R: Runtime>(
    driver: &mut MetadataDriver<D, R>,
    config: &BrokerConfig,
    listeners: &[ListenerInfo],
    directories: Vec<DirectoryId>,
) -> Result<(), BootError> {
    let endpoint = |listener: &ListenerInfo| BrokerEndpoint {
        listener_name: listener.advertised.listener.clone(),
        host: listener.advertised.host.clone(),
        port: listener.advertised.port,
        security_protocol: 0,
    };
    let registration = RegisterBroker {
        broker_id: node_id(config),
        incarnation_id: random_uuid()?,
        endpoints: listeners.iter().map(endpoint).collect(),
        rack: config.rack.clone(),
        features: Vec::new(),
        directories,
    };
    driver.carry_out(Command::RegisterBroker(registration)).await?;
    Ok(())
}

/// This broker.
pub fn node_id(config: &BrokerConfig) -> BrokerId {
    BrokerId::from_wire(config.node_id).expect("node.id is not negative")
}

/// What the last run left in a directory, as far as it noted it.
pub fn read<D: Disk>(checkpoints: &Checkpoints<D>, is_clean: bool) -> DirBoot {
    DirBoot {
        recovery_points: checkpoints.recovery_points(),
        log_start_offsets: checkpoints.log_start_offsets(),
        first_dirty_offsets: checkpoints.first_dirty_offsets(),
        ends: checkpoints.ends(),
        is_clean,
    }
}

/// What the directories are after the start has settled everything in them.
pub struct Settled<D> {
    pub online: BTreeMap<LogDirIndex, SettledDir<D>>,
    /// Of the partitions that were found.
    pub homes: Homes,
    /// Replicas that were on their way to other directories.
    pub moves: BTreeMap<PartitionId, FoundMove>,
    /// Partitions that are in these directories and were moved to one that is not there, or may have been.
    pub held: Homes,
    /// There was any directory of a partition.
    pub has_partitions: bool,
    /// Stretches of journals that were acknowledged and cannot be read.
    pub damage_count: u64,
}

/// One directory, ready for its logs to be opened.
pub struct SettledDir<D> {
    pub data_dir: DataDir<D>,
    /// The last stop was a clean one.
    pub is_clean: bool,
    pub checkpoints: Rc<Checkpoints<D>>,
}

/// Holds all directories against the metadata and puts into the logs what the journals of the last run promised. A directory
/// that the disk refuses is taken offline, with the partitions in it, unless it has the metadata log.
pub async fn settle_all<D: Disk, R: Runtime>(
    log_dirs: &LogDirs,
    dirs: Vec<(LogDirIndex, DataDir<D>)>,
    runtime: &R,
    image: &Arc<MetadataImage>,
    node_id: i32,
) -> Result<Settled<D>, BootError> {
    let known = known_topics(image, node_id);
    let mut found = FoundDirs::new();
    for (index, data_dir) in &dirs {
        let listed = data_dir.list_partitions().await.map_err(BootError::from);
        found.extend(unless_offline(log_dirs, *index, listed)?.map(|listed| (*index, listed)));
    }
    let dirs: BTreeMap<_, _> = dirs.into_iter().collect();
    settle_moved(log_dirs, &dirs, &mut found, &known).await?;
    let mut homes = find_homes(&found, &known, log_dirs)?;
    let held = held(&found, &known, &homes);
    report_held(log_dirs, &found, &held);
    let (mut moves, useless) = find_moves(&found, &known, &homes, |dir| log_dirs.dir(dir).id());
    let copying = copying(&found, &homes);
    for (index, data_dir) in &dirs {
        for (_, name) in useless.iter().filter(|(dir, _)| dir == index) {
            tracing::info!(directory = name, "a copy that is of no use removed");
            let removed = data_dir.remove_partition_dir(name, Removal::AtOnce).await.map_err(BootError::from);
            unless_offline(log_dirs, *index, removed)?;
        }
    }
    let has_partitions = found.values().any(|found| !found.is_empty());
    let mut settled = Settled {
        online: BTreeMap::new(),
        homes: Homes::new(),
        moves: BTreeMap::new(),
        held: Homes::new(),
        has_partitions,
        damage_count: 0,
    };
    for (index, data_dir) in dirs {
        let Some(found) = found.remove(&index).filter(|_| !log_dirs.dir(index).is_offline()) else { continue };
        // Also those in a directory that has failed meanwhile: nothing of them is made here.
        let places = homes.iter().chain(&held).map(|(id, dir)| (*id, *dir)).collect();
        let topics = topics_in(&known, &places, index);
        // What is nowhere may be in a directory that is not there.
        let logs = JournalLogs { topics: &topics, may_be_made: !is_any_away(log_dirs, image, node_id) };
        let outcome = settle_dir(index, data_dir, runtime, image, logs, found).await;
        let Some((dir, journals)) = unless_offline(log_dirs, index, outcome)? else { continue };
        add_made(&mut homes, index, &journals.made);
        settled.damage_count += journals.damage_count;
        settled.online.insert(index, dir);
    }
    homes.retain(|_, home| settled.online.contains_key(home));
    moves.retain(|id, copy| settled.online.contains_key(&copy.to) && homes.contains_key(id));
    settled.homes = homes;
    settled.held = held;
    settled.moves = moves;
    forget_copies(log_dirs, &mut settled, copying).await?;
    Ok(settled)
}

fn report_held(log_dirs: &LogDirs, found: &FoundDirs, held: &Homes) {
    for (id, dir) in held {
        let is_it = |found: &&FoundDir| {
            found.moved_to.is_some() && found.topic_id == Some(id.topic_id.get()) && found.name.partition == id.index
        };
        let Some(found) = found.get(dir).and_then(|found| found.iter().find(is_it)) else { continue };
        let path = log_dirs.dir(*dir).path().join(&found.dir_name);
        let to = found.moved_to.as_ref().map(|to| to.directory_id.to_string()).unwrap_or_default();
        tracing::error!(
            directory = %path.display(),
            directory_id = to,
            "a partition is offline: it was moved to a directory that is not there; if that is lost, remove the line moved_to from partition.metadata in this older one"
        );
    }
}

/// Whether one of the directories that this broker has, or had, is not there.
fn is_any_away(log_dirs: &LogDirs, image: &MetadataImage, node_id: i32) -> bool {
    let node = BrokerId::from_wire(node_id).and_then(|id| image.broker(id));
    let had = node.map(|broker| &broker.directories[..]).unwrap_or_default();
    let online: BTreeSet<Uuid> =
        log_dirs.iter().filter(|(_, dir)| !dir.is_offline()).map(|(_, dir)| dir.id()).collect();
    online.len() < log_dirs.len() || had.iter().any(|id| !online.contains(&id.get()))
}

/// `None` when the directory cannot be used and the others can do without.
fn unless_offline<T>(
    log_dirs: &LogDirs,
    index: LogDirIndex,
    outcome: Result<T, BootError>,
) -> Result<Option<T>, BootError> {
    match outcome {
        Ok(done) => Ok(Some(done)),
        Err(error @ (BootError::DataDir(DataDirError::Disk(_)) | BootError::Journal(_)))
            if log_dirs.metadata_index() != Some(index) =>
        {
            log_dirs.dir(index).take_offline(&error.to_string());
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn settle_dir<D: Disk, R: Runtime>(
    index: LogDirIndex,
    data_dir: DataDir<D>,
    runtime: &R,
    image: &Arc<MetadataImage>,
    logs: JournalLogs<'_>,
    mut found: Vec<FoundDir>,
) -> Result<(SettledDir<D>, SettledJournals), BootError> {
    settle(&data_dir, &found, logs.topics).await?;
    // From now on a crash counts as one.
    let is_clean = data_dir.take_clean_mark().await?;
    let ends = data_dir.read_log_ends().await?;
    let journals = settle_journals(&data_dir, runtime, logs, &ends, is_clean).await?;
    // Where another topic's directory had the name, what the checkpoints say is of that one.
    let is_new = |made: &&FoundDir| found.binary_search_by(|known| known.dir_name.cmp(&made.dir_name)).is_err();
    let made: Vec<FoundDir> = journals.made.iter().filter(is_new).cloned().collect();
    found.extend(made);
    let checkpoints = Checkpoints::open(index, data_dir.clone(), Arc::clone(image), &found, ends).await?;
    Ok((SettledDir { data_dir, is_clean, checkpoints }, journals))
}

/// What became of the journals of the last run.
#[derive(Debug, Default)]
pub struct SettledJournals {
    /// Directories that were gone and are there again.
    pub made: Vec<FoundDir>,
    /// Stretches that were acknowledged and cannot be read.
    pub damage_count: u64,
}

/// Whose records of a directory's journals count.
#[derive(Clone, Copy)]
pub struct JournalLogs<'a> {
    /// Those whose logs are in this directory, or may have been.
    pub topics: &'a BTreeMap<Uuid, KnownTopic>,
    /// What has no directory anywhere gets one here.
    pub may_be_made: bool,
}

/// Puts what a directory's journals of the last run promised into the segments, unless a clean stop has done so or `ends` say
/// that it is there, and removes the journals, but for what is withheld. After the directories are settled and before any log is
/// opened. A journal that is damaged is put aside, and logs that may have lost something are marked: they find out when they are
/// opened.
///
/// After a clean stop a crash before the removal lets the next start replay what the segments have already, which changes
/// nothing.
pub async fn settle_journals<D: Disk, R: Runtime>(
    data_dir: &DataDir<D>,
    runtime: &R,
    logs: JournalLogs<'_>,
    ends: &LogEnds,
    is_clean: bool,
) -> Result<SettledJournals, BootError> {
    if is_clean {
        discard(data_dir).await?;
    }
    let replayed = replay_journals(data_dir, runtime, logs, ends).await?;
    let mut kept = BTreeSet::new();
    for journal in &replayed.kept {
        let is_damaged = replayed.damaged.iter().any(|damaged| damaged.folder == journal.folder);
        kept.insert(&journal.folder);
        if let Some(path) = settle_kept(data_dir, journal, is_damaged).await? {
            let logs = journal.logs.as_ref().map_or(0, BTreeSet::len);
            tracing::warn!(logs, folder = %path.display(), "journal kept: it has records of partitions that may be in a directory that is not there");
        }
    }
    let mut settled = SettledJournals { made: replayed.made, damage_count: 0 };
    for damaged in &replayed.damaged {
        settled.damage_count += damaged.lost.len() as u64;
        report_damage(damaged);
        if !kept.contains(&damaged.folder) {
            let aside = put_aside(data_dir, &damaged.folder).await?;
            tracing::warn!(folder = %aside.display(), "damaged journal put aside; what could be read of it is in the logs");
        }
    }
    discard(data_dir).await?;
    Ok(settled)
}

async fn replay_journals<D: Disk, R: Runtime>(
    data_dir: &DataDir<D>,
    runtime: &R,
    JournalLogs { topics: known, may_be_made }: JournalLogs<'_>,
    ends: &LogEnds,
) -> Result<Replayed, BootError> {
    let locate = |topic_id, partition| {
        let topic = known.get(&topic_id)?;
        topic.partitions.contains(&partition).then(|| Located { topic: topic.name.clone(), may_be_made })
    };
    let is_settled = |topic_id, partition, sequence| is_noted(ends, topic_id, partition, sequence);
    let behind = |owner| logs_behind(known, owner);
    let replayed = replay_unsettled(data_dir, runtime, locate, is_settled, behind).await?;
    if replayed.records > 0 {
        let Replayed { folders, logs, records, dropped_records, void_records, bytes, torn_tails, .. } = &replayed;
        tracing::info!(
            folders,
            logs,
            records,
            dropped_records,
            void_records,
            bytes,
            torn_tails,
            "journals replayed into the logs"
        );
    }
    Ok(replayed)
}

/// All logs that a journal may have served.
pub fn logs_behind(known: &BTreeMap<Uuid, KnownTopic>, owner: JournalOwner) -> Vec<(Uuid, i32)> {
    let placement = owner.shard_count.filter(|count| *count > 0).map(Placement::new);
    let is_behind = |topic_id: Uuid, partition| {
        let shard = placement.as_ref().map(|placement| placement.owner(*topic_id.as_bytes(), partition).index());
        shard.is_none_or(|shard| shard == owner.journal)
    };
    let all = known.iter().flat_map(|(id, topic)| topic.partitions.iter().map(|partition| (*id, *partition)));
    all.filter(|(topic_id, partition)| is_behind(*topic_id, *partition)).collect()
}

fn report_damage(damaged: &DamagedJournal) {
    for lost in &damaged.lost {
        tracing::error!(
            path = %lost.path.display(),
            position = lost.position,
            reason = lost.reason,
            records = lost.sequences.end - lost.sequences.start,
            "a journal is damaged: acknowledged records are lost, unless their logs have them"
        );
    }
    let logs = damaged.marked.len();
    tracing::warn!(logs, "logs that may have lost something are looked at; those that have everything serve");
}

/// Settles every directory of partitions that is none of the topics that are `known`.
pub async fn settle<D: Disk>(
    data_dir: &DataDir<D>,
    found: &[FoundDir],
    known: &BTreeMap<Uuid, KnownTopic>,
) -> Result<(), BootError> {
    let mut random = Vec::with_capacity(found.len());
    for _ in found {
        random.push(u128::from_be_bytes(*random_uuid()?.as_bytes()));
    }
    let is_new = |dir: &&FoundDir| {
        let current = known.iter().find(|(_, topic)| topic.name == dir.name.topic).map(|(id, _)| *id);
        dir.name.kind == DirKind::Partition && !dir.is_noted_as(current)
    };
    let new: BTreeSet<_> =
        found.iter().filter(is_new).map(|dir| (dir.name.topic.as_str(), dir.name.partition)).collect();
    if !new.is_empty() {
        // Later, nothing would tell whose offsets they were.
        data_dir.forget_offsets(|topic, partition| new.contains(&(topic, partition))).await?;
    }
    if found.iter().any(|dir| dir.name.kind == DirKind::Deleted) {
        // A killed process may have renamed them and no more: half removed, none of them may come back under its old name.
        data_dir.sync().await?;
    }
    let decisions = plan_directories(found, known, || random.pop().unwrap_or_default());
    for (dir, decision) in found.iter().zip(decisions) {
        let name = dir.dir_name.as_str();
        match decision {
            Decision::Open { .. } | Decision::Leave => {}
            Decision::TakeOver { topic_id } => {
                tracing::info!(directory = name, %topic_id, "directory without a topic id taken over");
                data_dir.write_topic_id(name, topic_id).await?;
            }
            Decision::PutAside { new_name, reason } => {
                tracing::warn!(directory = name, new_name, ?reason, "stray directory put aside");
                data_dir.rename_partition_dir(name, &new_name).await?;
            }
            Decision::Delete { new_name } => {
                tracing::info!(directory = name, "directory of a deleted topic removed");
                if let Some(new_name) = &new_name {
                    data_dir.rename_partition_dir(name, new_name).await?;
                }
                data_dir.remove_partition_dir(new_name.as_deref().unwrap_or(name), Removal::AtOnce).await?;
            }
        }
    }
    Ok(())
}

/// The last writes of a clean stop in one directory, in which the logs that were `closed` are. Without `is_clean` the next
/// start looks at the logs itself. `ends` are the notes kept so far.
pub async fn seal<D: Disk>(
    data_dir: &DataDir<D>,
    closed: &[ClosedLog],
    mut ends: BTreeMap<PartitionId, Arc<[u8]>>,
    is_clean: bool,
) -> Result<(), BootError> {
    let checkpoint = |offset: fn(&ClosedLog) -> Option<i64>| OffsetCheckpoint {
        offsets: closed.iter().filter_map(|log| Some((log.offsets.key(), offset(log)?))).collect(),
    };
    let files = [
        (RECOVERY_POINT_FILE, checkpoint(|log| log.offsets.recovery_point)),
        (LOG_START_OFFSET_FILE, checkpoint(|log| Some(log.offsets.log_start_offset))),
        (CLEANER_OFFSET_FILE, checkpoint(|log| Some(log.offsets.first_dirty_offset).filter(|&offset| offset > 0))),
    ];
    for (file_name, mut offsets) in files {
        if !is_clean {
            // What is known of a log that could not be closed: without it, its damage would pass for a torn end.
            for (key, offset) in data_dir.read_checkpoint(file_name).await?.offsets {
                offsets.offsets.entry(key).or_insert(offset);
            }
        }
        data_dir.write_checkpoint(file_name, &offsets).await?;
    }
    data_dir.write_checkpoint(REPLICATION_OFFSET_FILE, &checkpoint(|log| Some(log.high_watermark))).await?;
    ends.extend(closed.iter().filter_map(|log| Some((log.offsets.id, Arc::clone(log.end.as_ref()?)))));
    data_dir.write_log_ends(&encode_ends(&ends)).await?;
    if is_clean {
        data_dir.write_clean_mark(-1).await?;
    }
    Ok(())
}

/// Topics with the partitions that this node has.
pub fn known_topics(image: &MetadataImage, node_id: i32) -> BTreeMap<Uuid, KnownTopic> {
    let ours = |topic: &walser_machine::metadata::image::TopicImage| {
        (0..)
            .zip(&topic.partitions)
            .filter(|(_, partition)| partition.replicas.iter().any(|replica| replica.get() == node_id))
            .map(|(index, _)| index)
            .collect()
    };
    image
        .topics()
        .map(|topic| {
            let known = KnownTopic { name: topic.name.to_string(), partitions: ours(topic) };
            (topic.topic_id.get(), known)
        })
        .collect()
}

/// As Kafka makes ids: random, version 4.
pub fn random_uuid() -> Result<Uuid, BootError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(BootError::Random)?;
    Ok(Uuid::from_random(bytes))
}

#[cfg(test)]
mod tests;
