//! OffsetCommit, versions 2 to 10: checks who commits, and names the records.

use walser_protocol::ErrorCode;
use walser_protocol::types::Uuid;

use super::super::command::{CommittedPartition, OffsetCommit};
use super::super::coordinator::GroupCoordinator;
use super::super::record::{GroupRecord, OffsetCommitValue};
use super::super::reply::{OffsetCommitReply, PartitionErrors, Reply, TopicErrors};
use super::super::state::{Committer, Group};

/// From here on a missing group is said to be missing, and consumer groups may commit.
const GROUP_ID_NOT_FOUND_VERSION: i16 = 9;

impl GroupCoordinator {
    pub(in super::super) fn offset_commit(&mut self, commit: &OffsetCommit) -> Reply {
        if let Err(error) = self.validate_offset_commit(commit) {
            return Reply::OffsetCommit(commit.refuse(error));
        }
        let now_ms = self.now().wall_ms;
        let expire_timestamp_ms = commit.retention_time_ms.map(|retention_ms| now_ms.saturating_add(retention_ms));
        let mut records = Vec::new();
        let mut topics = Vec::with_capacity(commit.topics.len());
        for topic in &commit.topics {
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for partition in &topic.partitions {
                let partition_index = partition.partition_index;
                if is_metadata_too_long(partition, self.settings().offset_metadata_max_bytes) {
                    partitions.push(PartitionErrors { partition_index, error: ErrorCode::OffsetMetadataTooLarge });
                    continue;
                }
                // The log keeps either the time of expiry or these two; what it will not give back is not known now either.
                let (leader_epoch, topic_id) = match expire_timestamp_ms {
                    Some(_) => (-1, Uuid::ZERO),
                    None => (partition.committed_leader_epoch, topic.topic_id),
                };
                let value = OffsetCommitValue {
                    offset: partition.committed_offset,
                    leader_epoch,
                    metadata: partition.committed_metadata.clone().unwrap_or_default(),
                    commit_timestamp_ms: now_ms,
                    expire_timestamp_ms,
                    topic_id,
                };
                records.push(GroupRecord::OffsetCommit {
                    group_id: commit.group_id.clone(),
                    topic: topic.name.clone(),
                    partition_index,
                    value: Some(value),
                });
                partitions.push(PartitionErrors { partition_index, error: ErrorCode::None });
            }
            topics.push(TopicErrors { name: topic.name.clone(), topic_id: topic.topic_id, partitions });
        }
        match self.append_and_replay(records) {
            Ok(()) => Reply::OffsetCommit(OffsetCommitReply { topics }),
            Err(refused) => Reply::OffsetCommit(commit.refuse(refused.into())),
        }
    }

    /// A commit of a member is a sign of life too.
    fn validate_offset_commit(&mut self, commit: &OffsetCommit) -> Result<(), ErrorCode> {
        let Some((group, mut context)) = self.group_mut(&commit.group_id) else {
            // Whoever commits without a generation makes a simple group: its first record will.
            return match commit.generation_id_or_member_epoch {
                ..0 => Ok(()),
                0.. if commit.api_version >= GROUP_ID_NOT_FOUND_VERSION => Err(ErrorCode::GroupIdNotFound),
                0.. => Err(ErrorCode::IllegalGeneration),
            };
        };
        let committer = Committer {
            api_version: commit.api_version,
            member_id: &commit.member_id,
            group_instance_id: commit.group_instance_id.as_deref(),
            generation_id_or_member_epoch: commit.generation_id_or_member_epoch,
            is_transactional: false,
        };
        group.validate_offset_commit(&committer)?;
        let max = context.settings.offset_metadata_max_bytes;
        for topic in &commit.topics {
            for partition in topic.partitions.iter().filter(|partition| !is_metadata_too_long(partition, max)) {
                group.validate_committed_partition(&committer, topic.topic_id, partition.partition_index)?;
            }
        }
        if let Group::Classic(group) = group {
            group.keep_alive_by_commit(&mut context, &commit.member_id);
        }
        Ok(())
    }
}

fn is_metadata_too_long(partition: &CommittedPartition, bytes_max: i32) -> bool {
    let max = usize::try_from(bytes_max).unwrap_or(0);
    let metadata = partition.committed_metadata.as_deref().unwrap_or_default();
    // UTF-8 has at least as many bytes as UTF-16 has units.
    metadata.len() > max && metadata.encode_utf16().count() > max
}
