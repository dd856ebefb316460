//! OffsetCommit, versions 2 to 10: stores positions of a group.
//!
//! Partitions that do not exist are answered here, all others by the coordinator, when the positions are on stable storage. From
//! version 10 on topics go by id. Retention times, of versions 2 to 4, count.

use walser_machine::group::Command;
use walser_machine::group::command::{CommittedPartition, CommittedTopic, OffsetCommit};
use walser_machine::group::reply::{PartitionErrors, TopicErrors};
use walser_machine::metadata::MetadataImage;
use walser_protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestTopic, OffsetCommitResponse, OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
};

use super::groups::{merge, reply_as};
use super::topics::NamedTopic;
use super::{Frame, HandlerOutcome, RequestContext};

/// First version in which topics go by id.
const TOPIC_IDS_FROM: i16 = 10;

/// See the module.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match OffsetCommitRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let image = context.shard.image();
    let (known, mut answered) = split(&image, &request, context.version >= TOPIC_IDS_FROM);
    if !known.is_empty() {
        let command = || Command::OffsetCommit(command(&context, &request, known.clone()));
        let reply = reply_as!(OffsetCommit, context.ask_coordinator(request.group_id, command).await);
        merge(&mut answered, reply.topics);
    }
    let topics = answered.iter().map(|topic| OffsetCommitResponseTopic {
        name: &topic.name,
        topic_id: topic.topic_id,
        partitions: topic
            .partitions
            .iter()
            .map(|partition| OffsetCommitResponsePartition {
                partition_index: partition.partition_index,
                error_code: partition.error.code(),
            })
            .collect(),
    });
    context.reply(&OffsetCommitResponse { throttle_time_ms: 0, topics: topics.collect() })
}

/// What the coordinator is asked for, and what is answered already: partitions that are not there.
fn split(
    image: &MetadataImage,
    request: &OffsetCommitRequest<'_>,
    by_id: bool,
) -> (Vec<CommittedTopic>, Vec<TopicErrors>) {
    let (mut known, mut refused) = (Vec::new(), Vec::new());
    for topic in &request.topics {
        let named =
            if by_id { NamedTopic::by_id(image, topic.topic_id) } else { NamedTopic::by_name(image, topic.name) };
        let mut exist = Vec::with_capacity(topic.partitions.len());
        let mut errors = Vec::new();
        for partition in &topic.partitions {
            match named.partition(partition.partition_index) {
                Ok(_) => exist.push(CommittedPartition {
                    partition_index: partition.partition_index,
                    committed_offset: partition.committed_offset,
                    committed_leader_epoch: partition.committed_leader_epoch,
                    committed_metadata: partition.committed_metadata.map(str::to_owned),
                }),
                Err(error) => errors.push(PartitionErrors { partition_index: partition.partition_index, error }),
            }
        }
        let is_refused = !errors.is_empty() || (exist.is_empty() && named.found.is_err());
        if is_refused {
            refused.push(refusal(topic, &named, errors));
        }
        if let (Ok(found), false) = (&named.found, exist.is_empty()) {
            let (name, topic_id) = (found.name.to_string(), found.topic_id.get());
            known.push(CommittedTopic { name, topic_id, partitions: exist });
        }
    }
    (known, refused)
}

fn refusal(topic: &OffsetCommitRequestTopic<'_>, named: &NamedTopic, partitions: Vec<PartitionErrors>) -> TopicErrors {
    TopicErrors { name: named.known_name().to_owned(), topic_id: topic.topic_id, partitions }
}

fn command(context: &RequestContext, request: &OffsetCommitRequest<'_>, topics: Vec<CommittedTopic>) -> OffsetCommit {
    OffsetCommit {
        api_version: context.version,
        group_id: request.group_id.to_owned(),
        generation_id_or_member_epoch: request.generation_id_or_member_epoch,
        member_id: request.member_id.to_owned(),
        group_instance_id: request.group_instance_id.map(str::to_owned),
        retention_time_ms: (request.retention_time_ms != -1).then_some(request.retention_time_ms),
        topics,
    }
}
