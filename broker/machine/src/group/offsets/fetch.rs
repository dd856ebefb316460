//! OffsetFetch, versions 1 to 10, one group at a time.

use walser_protocol::ErrorCode;
use walser_protocol::types::Uuid;

use super::super::command::{FetchedTopic, OffsetFetch};
use super::super::coordinator::GroupCoordinator;
use super::super::reply::{FetchedOffset, FetchedTopicOffsets, OffsetFetchReply};
use super::{CommittedOffset, OffsetKey, Offsets};

impl GroupCoordinator {
    pub(in super::super) fn offset_fetch(&self, fetch: &OffsetFetch) -> OffsetFetchReply {
        let group = self.group(&fetch.group_id);
        let allowed = group.map(|group| group.validate_offset_fetch(fetch.member_id.as_deref(), fetch.member_epoch));
        if let Some(Err(error)) = allowed {
            return OffsetFetchReply::failed(&fetch.group_id, error);
        }
        let offsets = self.offsets();
        let topics = match &fetch.topics {
            Some(topics) => topics.iter().map(|topic| fetch_topic(offsets, fetch, topic)).collect(),
            None => fetch_all(offsets, fetch),
        };
        OffsetFetchReply { group_id: fetch.group_id.clone(), error: ErrorCode::None, topics }
    }
}

/// What a group that does not exist has committed is nothing, and no error.
fn fetch_topic(offsets: &Offsets, fetch: &OffsetFetch, topic: &FetchedTopic) -> FetchedTopicOffsets {
    let fetch_one = |partition_index: &i32| {
        let key = OffsetKey { group_id: &fetch.group_id, topic: &topic.name, partition_index: *partition_index };
        // Offsets of a topic that had the name before are none of this topic's.
        let committed = offsets.committed(key).filter(|found| is_same_topic(found.value.topic_id, topic.topic_id));
        fetch_offset(offsets, fetch, key, committed)
    };
    FetchedTopicOffsets {
        name: topic.name.clone(),
        topic_id: topic.topic_id,
        partitions: topic.partition_indexes.iter().map(fetch_one).collect(),
    }
}

fn fetch_all(offsets: &Offsets, fetch: &OffsetFetch) -> Vec<FetchedTopicOffsets> {
    let topics = offsets.committed_of(&fetch.group_id).into_iter().flatten();
    let topics = topics.map(|(topic, partitions)| {
        let partitions = partitions.iter().map(|(partition_index, committed)| {
            let key = OffsetKey { group_id: &fetch.group_id, topic, partition_index: *partition_index };
            fetch_offset(offsets, fetch, key, Some(committed))
        });
        FetchedTopicOffsets { name: topic.to_string(), topic_id: Uuid::ZERO, partitions: partitions.collect() }
    });
    topics.collect()
}

fn fetch_offset(
    offsets: &Offsets,
    fetch: &OffsetFetch,
    key: OffsetKey<'_>,
    committed: Option<&CommittedOffset>,
) -> FetchedOffset {
    if fetch.require_stable && offsets.is_pending(key) {
        return FetchedOffset::none(key.partition_index, ErrorCode::UnstableOffsetCommit);
    }
    let Some(committed) = committed else { return FetchedOffset::none(key.partition_index, ErrorCode::None) };
    FetchedOffset {
        partition_index: key.partition_index,
        committed_offset: committed.value.offset,
        committed_leader_epoch: committed.value.leader_epoch,
        metadata: committed.value.metadata.clone(),
        error: ErrorCode::None,
    }
}

/// An unknown id is that of any topic.
fn is_same_topic(one: Uuid, other: Uuid) -> bool {
    one.is_zero() || other.is_zero() || one == other
}
