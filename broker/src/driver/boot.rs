//! The data directory before the first shard opens a log, and after the last one has closed.
//!
//! Runs on the control executor. What the directory holds is held against the metadata: an old topic under a new id, topics
//! nobody knows and half-deleted ones are settled here, and said so.

use std::collections::BTreeMap;
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
use walser_storage::data_dir::partition::FoundDir;
use walser_storage::data_dir::plan::{Decision, KnownTopic, plan_directories};
use walser_storage::data_dir::{DataDir, DataDirError, MetaProperties, Removal};
use walser_storage::disk::Disk;
use walser_storage::error::DiskError;
use walser_storage::journal::replay::{
    DamagedJournal, JournalOwner, ReplayError, Replayed, discard, put_aside, replay_unsettled,
};
use walser_storage::runtime::Runtime;

use super::checkpoints::{Checkpoints, encode_ends};
use super::metadata::{MetadataDriver, MetadataError};
use super::partition::PartitionId;
use super::partition::reconcile::{Boot, ClosedLog};
use super::quorum::{Quorum, QuorumError, QuorumOptions};
use crate::config::broker::BrokerConfig;
use crate::config::rules::BrokerRules;
use crate::config::view::BrokerView;
use crate::net::listener::ListenerInfo;
use crate::shard::placement::Placement;

/// The metadata log's place in the data directory.
pub const QUORUM_DIR: &str = "quorum";

/// Why the data directory cannot be used by this broker.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(
        "the data directory belongs to node {found}, and node.id is {configured}; set node.id={found} or use another directory"
    )]
    OtherNode { found: i32, configured: i32 },
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

/// Whose directory it is; a new one becomes this node's, with a cluster of its own.
pub async fn identify<D: Disk>(data_dir: &DataDir<D>, node_id: i32) -> Result<MetaProperties, BootError> {
    if let Some(found) = data_dir.read_meta().await? {
        if found.node_id != node_id {
            return Err(BootError::OtherNode { found: found.node_id, configured: node_id });
        }
        return Ok(found);
    }
    let meta = MetaProperties { cluster_id: random_uuid()?.to_string(), node_id, directory_id: random_uuid()? };
    data_dir.write_meta(&meta).await?;
    Ok(meta)
}

/// The metadata of the last run, with this broker registered in it.
pub async fn metadata<D: Disk, R: Runtime>(
    data_dir: &DataDir<D>,
    runtime: R,
    config: &Arc<BrokerConfig>,
    listeners: &[ListenerInfo],
    meta: &MetaProperties,
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
    let node_id = BrokerId::from_wire(config.node_id).expect("node.id is not negative");
    let settings = ControllerSettings {
        node_id,
        num_partitions: small("num.partitions"),
        default_replication_factor: i16::try_from(small("default.replication.factor")).unwrap_or(i16::MAX),
        delete_topic_enable: view.boolean("delete.topic.enable"),
    };
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(BootError::Random)?;
    let controller = Controller::new(settings, IdGenerator::from_seed(seed));
    let rules = Box::new(BrokerRules(Arc::clone(config)));
    let mut driver = MetadataDriver::new(controller, rules, quorum, image);
    driver.bootstrap(&meta.cluster_id).await?;
    let endpoint = |listener: &ListenerInfo| BrokerEndpoint {
        listener_name: listener.advertised.listener.clone(),
        host: listener.advertised.host.clone(),
        port: listener.advertised.port,
        security_protocol: 0,
    };
    let registration = RegisterBroker {
        broker_id: node_id,
        incarnation_id: random_uuid()?,
        endpoints: listeners.iter().map(endpoint).collect(),
        rack: config.rack.clone(),
        features: Vec::new(),
        directories: vec![DirectoryId::new(meta.directory_id)],
    };
    driver.carry_out(Command::RegisterBroker(registration)).await?;
    Ok(driver)
}

/// What the last run left, as far as it noted it.
pub fn read<D: Disk>(checkpoints: &Checkpoints<D>, is_clean: bool) -> Boot {
    Boot {
        recovery_points: checkpoints.recovery_points(),
        log_start_offsets: checkpoints.log_start_offsets(),
        first_dirty_offsets: checkpoints.first_dirty_offsets(),
        ends: checkpoints.ends(),
        is_clean,
        is_start: true,
    }
}

/// What became of the journals of the last run.
#[derive(Debug, Default)]
pub struct SettledJournals {
    /// Directories that were gone and are there again.
    pub made: Vec<FoundDir>,
    /// Stretches that were acknowledged and cannot be read.
    pub damage_count: u64,
}

/// Puts what the journals of the last run promised into the segments, unless a clean stop has done so or `ends` say that it
/// is there, and removes the journals. After the directories are settled and before any log is opened. A journal that is
/// damaged is put aside, and logs that may have lost something are marked: they find out when they are opened.
///
/// After a clean stop a crash before the removal lets the next start replay what the segments have already, which changes
/// nothing.
pub async fn settle_journals<D: Disk, R: Runtime>(
    data_dir: &DataDir<D>,
    runtime: &R,
    image: &MetadataImage,
    node_id: i32,
    ends: &LogEnds,
    is_clean: bool,
) -> Result<SettledJournals, BootError> {
    let mut settled = SettledJournals::default();
    if !is_clean {
        let replayed = replay_journals(data_dir, runtime, image, node_id, ends).await?;
        for damaged in &replayed.damaged {
            settled.damage_count += damaged.lost.len() as u64;
            report_damage(damaged);
            let aside = put_aside(data_dir, &damaged.folder).await?;
            tracing::warn!(folder = %aside.display(), "damaged journal put aside; what could be read of it is in the logs");
        }
        settled.made = replayed.made;
    }
    discard(data_dir).await?;
    Ok(settled)
}

async fn replay_journals<D: Disk, R: Runtime>(
    data_dir: &DataDir<D>,
    runtime: &R,
    image: &MetadataImage,
    node_id: i32,
    ends: &LogEnds,
) -> Result<Replayed, BootError> {
    let known = known_topics(image, node_id);
    let locate = |topic_id, partition| {
        let topic = known.get(&topic_id)?;
        topic.partitions.contains(&partition).then(|| topic.name.clone())
    };
    let is_settled = |topic_id, partition, sequence| is_noted(ends, topic_id, partition, sequence);
    let behind = |owner| logs_behind(&known, owner);
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

/// Settles every directory that is not a live partition of `image`.
pub async fn settle<D: Disk>(
    data_dir: &DataDir<D>,
    found: &[FoundDir],
    image: &MetadataImage,
    node_id: i32,
) -> Result<(), BootError> {
    let mut random = Vec::with_capacity(found.len());
    for _ in found {
        random.push(u128::from_be_bytes(*random_uuid()?.as_bytes()));
    }
    let known = known_topics(image, node_id);
    let decisions = plan_directories(found, &known, || random.pop().unwrap_or_default());
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

/// The last writes of a clean stop. Without `is_clean` the next start looks at the logs itself. `ends` are the notes kept so
/// far.
pub async fn seal<D: Disk>(
    data_dir: &DataDir<D>,
    closed: &[ClosedLog],
    mut ends: BTreeMap<PartitionId, Arc<[u8]>>,
    is_clean: bool,
) -> Result<(), BootError> {
    let checkpoint = |offset: fn(&ClosedLog) -> i64| OffsetCheckpoint {
        offsets: closed.iter().map(|log| (log.offsets.key(), offset(log))).collect(),
    };
    let mut first_dirty_offsets = checkpoint(|log| log.offsets.first_dirty_offset);
    first_dirty_offsets.offsets.retain(|_, offset| *offset > 0);
    let files = [
        (RECOVERY_POINT_FILE, checkpoint(|log| log.offsets.recovery_point)),
        (LOG_START_OFFSET_FILE, checkpoint(|log| log.offsets.log_start_offset)),
        (CLEANER_OFFSET_FILE, first_dirty_offsets),
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
    data_dir.write_checkpoint(REPLICATION_OFFSET_FILE, &checkpoint(|log| log.high_watermark)).await?;
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
