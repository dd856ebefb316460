//! OffsetFetch, versions 1 to 10: stored positions of one group, from version 8 on of several.
//!
//! No topics at all means all the group has. From version 7 on positions of open transactions can be refused (KIP-447), from 9 on
//! members of KIP-848 prove that they are, from 10 on topics go by id, and those that are gone are left out.

use walser_machine::group::Command;
use walser_machine::group::command::{FetchedTopic, OffsetFetch};
use walser_machine::group::reply::{FetchedOffset, FetchedTopicOffsets, OffsetFetchReply};
use walser_machine::ids::TopicId;
use walser_machine::metadata::MetadataImage;
use walser_protocol::ErrorCode;
use walser_protocol::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponse,
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions, OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
};
use walser_protocol::types::Uuid;

use super::groups::{partition_of, reply_as};
use super::{Frame, HandlerOutcome, RequestContext};

/// First version that asks for several groups.
const GROUPS_FROM: i16 = 8;
/// First version in which topics go by id.
const TOPIC_IDS_FROM: i16 = 10;
/// First version with an error for all of the response; before, each partition has it.
const ERROR_FROM: i16 = 2;

/// One group of the request.
struct Asked {
    fetch: OffsetFetch,
    /// Topics whose ids nobody knows.
    unknown: Vec<FetchedTopicOffsets>,
}

/// See the module.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match OffsetFetchRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let image = context.shard.image();
    let asked: Vec<Asked> = if context.version >= GROUPS_FROM {
        let by_id = context.version >= TOPIC_IDS_FROM;
        request.groups.iter().map(|group| asked(&image, group, by_id, request.require_stable)).collect()
    } else {
        vec![Asked { fetch: single(&request), unknown: Vec::new() }]
    };
    let commands = asked.iter().filter_map(|asked| {
        let partition = partition_of(&image, &asked.fetch.group_id)?;
        Some((partition, Command::OffsetFetch(asked.fetch.clone())))
    });
    let commands: Vec<_> = commands.collect();
    let has_topic = !commands.is_empty();
    let mut outcomes = context.ask_coordinators(commands).await.into_iter();
    let replies = asked.into_iter().map(|asked| {
        let outcome = if has_topic { outcomes.next() } else { None };
        let reply = match outcome.unwrap_or(Err(ErrorCode::NotCoordinator)) {
            Ok(reply) => reply_as!(OffsetFetch, reply),
            Err(error) => OffsetFetchReply::failed(&asked.fetch.group_id, error),
        };
        finish(&image, asked, reply, context.version)
    });
    let replies: Vec<OffsetFetchReply> = replies.collect();
    if context.version >= GROUPS_FROM {
        let groups = replies.iter().map(group_response).collect();
        return context.reply(&OffsetFetchResponse { groups, ..OffsetFetchResponse::default() });
    }
    let response = replies.first().map(|reply| single_response(&context, &request, reply)).unwrap_or_default();
    context.reply(&response)
}

fn single(request: &OffsetFetchRequest<'_>) -> OffsetFetch {
    let topics = request.topics.as_ref().map(|topics| {
        let topic = |topic: &walser_protocol::messages::offset_fetch::OffsetFetchRequestTopic<'_>| FetchedTopic {
            name: topic.name.to_owned(),
            topic_id: Uuid::ZERO,
            partition_indexes: topic.partition_indexes.clone(),
        };
        topics.iter().map(topic).collect()
    });
    OffsetFetch {
        group_id: request.group_id.to_owned(),
        member_id: None,
        member_epoch: -1,
        topics,
        require_stable: request.require_stable,
    }
}

fn asked(image: &MetadataImage, group: &OffsetFetchRequestGroup<'_>, by_id: bool, require_stable: bool) -> Asked {
    let mut unknown = Vec::new();
    let mut known = |topic: &OffsetFetchRequestTopics<'_>| {
        let partition_indexes = topic.partition_indexes.clone();
        if !by_id {
            return Some(FetchedTopic { name: topic.name.to_owned(), topic_id: Uuid::ZERO, partition_indexes });
        }
        let found = TopicId::from_wire(topic.topic_id).and_then(|id| image.topic_by_id(id));
        if let Some(found) = found {
            return Some(FetchedTopic { name: found.name.to_string(), topic_id: topic.topic_id, partition_indexes });
        }
        let none = |index: &i32| FetchedOffset::none(*index, ErrorCode::UnknownTopicId);
        let partitions = partition_indexes.iter().map(none).collect();
        unknown.push(FetchedTopicOffsets { name: String::new(), topic_id: topic.topic_id, partitions });
        None
    };
    let topics = group.topics.as_ref().map(|topics| topics.iter().filter_map(&mut known).collect());
    let fetch = OffsetFetch {
        group_id: group.group_id.to_owned(),
        member_id: group.member_id.map(str::to_owned),
        member_epoch: group.member_epoch,
        topics,
        require_stable,
    };
    Asked { fetch, unknown }
}

/// Puts to the coordinator's answer what it does not know: ids of topics, and which of those asked for there are not.
fn finish(image: &MetadataImage, asked: Asked, mut reply: OffsetFetchReply, version: i16) -> OffsetFetchReply {
    if reply.error.is_error() {
        return reply;
    }
    if version >= TOPIC_IDS_FROM && asked.fetch.topics.is_none() {
        for topic in &mut reply.topics {
            topic.topic_id = image.topic(&topic.name).map_or(Uuid::ZERO, |found| found.topic_id.get());
        }
        reply.topics.retain(|topic| !topic.topic_id.is_zero());
    }
    reply.topics.extend(asked.unknown);
    reply
}

fn group_response(reply: &OffsetFetchReply) -> OffsetFetchResponseGroup<'_> {
    let topics = reply.topics.iter().map(|topic| OffsetFetchResponseTopics {
        name: &topic.name,
        topic_id: topic.topic_id,
        partitions: topic
            .partitions
            .iter()
            .map(|offset| OffsetFetchResponsePartitions {
                partition_index: offset.partition_index,
                committed_offset: offset.committed_offset,
                committed_leader_epoch: offset.committed_leader_epoch,
                metadata: Some(&offset.metadata),
                error_code: offset.error.code(),
            })
            .collect(),
    });
    OffsetFetchResponseGroup { group_id: &reply.group_id, topics: topics.collect(), error_code: reply.error.code() }
}

fn single_response<'a>(
    context: &RequestContext,
    request: &'a OffsetFetchRequest<'_>,
    reply: &'a OffsetFetchReply,
) -> OffsetFetchResponse<'a> {
    if reply.error.is_error() {
        return refused(context, request, reply.error);
    }
    let topics = reply.topics.iter().map(|topic| OffsetFetchResponseTopic {
        name: &topic.name,
        partitions: topic
            .partitions
            .iter()
            .map(|offset| OffsetFetchResponsePartition {
                partition_index: offset.partition_index,
                committed_offset: offset.committed_offset,
                committed_leader_epoch: offset.committed_leader_epoch,
                metadata: Some(&offset.metadata),
                error_code: offset.error.code(),
            })
            .collect(),
    });
    OffsetFetchResponse { topics: topics.collect(), ..OffsetFetchResponse::default() }
}

/// Version 1 has no place for an error but its partitions.
fn refused<'a>(
    context: &RequestContext,
    request: &'a OffsetFetchRequest<'_>,
    error: ErrorCode,
) -> OffsetFetchResponse<'a> {
    let error_code = error.code();
    if context.version >= ERROR_FROM {
        return OffsetFetchResponse { error_code, ..OffsetFetchResponse::default() };
    }
    let topics = request.topics.iter().flatten().map(|topic| OffsetFetchResponseTopic {
        name: topic.name,
        partitions: topic
            .partition_indexes
            .iter()
            .map(|index| OffsetFetchResponsePartition {
                partition_index: *index,
                committed_offset: -1,
                committed_leader_epoch: -1,
                metadata: Some(""),
                error_code,
            })
            .collect(),
    });
    OffsetFetchResponse { topics: topics.collect(), ..OffsetFetchResponse::default() }
}
