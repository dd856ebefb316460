//! OffsetDelete, version 0: forgets positions of topics that no member of the group is subscribed to.

use walser_machine::group::Command;
use walser_machine::group::command::{DeletedTopicOffsets, OffsetDelete};
use walser_machine::group::reply::{PartitionErrors, TopicErrors};
use walser_machine::metadata::MetadataImage;
use walser_protocol::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteResponse, OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use walser_protocol::types::Uuid;

use super::groups::{merge, reply_as};
use super::topics::NamedTopic;
use super::{Frame, HandlerOutcome, RequestContext};

/// See the module.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match OffsetDeleteRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let image = context.shard.image();
    let (known, mut answered) = split(&image, &request);
    let command = || {
        let (group_id, topics) = (request.group_id.to_owned(), known.clone());
        Command::OffsetDelete(OffsetDelete { group_id, topics })
    };
    let reply = reply_as!(OffsetDelete, context.ask_coordinator(request.group_id, command).await);
    if reply.error.is_error() {
        // As Kafka does: what was found out before does not count any more.
        answered.clear();
    }
    merge(&mut answered, reply.topics);
    let topics = answered.iter().map(|topic| OffsetDeleteResponseTopic {
        name: &topic.name,
        partitions: topic
            .partitions
            .iter()
            .map(|partition| OffsetDeleteResponsePartition {
                partition_index: partition.partition_index,
                error_code: partition.error.code(),
            })
            .collect(),
    });
    let topics = topics.collect();
    context.reply(&OffsetDeleteResponse { error_code: reply.error.code(), throttle_time_ms: 0, topics })
}

/// What the coordinator is asked for, and what is answered already: partitions that are not there.
fn split(image: &MetadataImage, request: &OffsetDeleteRequest<'_>) -> (Vec<DeletedTopicOffsets>, Vec<TopicErrors>) {
    let (mut known, mut refused) = (Vec::new(), Vec::new());
    for topic in &request.topics {
        let named = NamedTopic::by_name(image, topic.name);
        let (mut partition_indexes, mut partitions) = (Vec::new(), Vec::new());
        for partition in &topic.partitions {
            let partition_index = partition.partition_index;
            match named.partition(partition_index) {
                Ok(_) => partition_indexes.push(partition_index),
                Err(error) => partitions.push(PartitionErrors { partition_index, error }),
            }
        }
        let name = topic.name.to_owned();
        if !partition_indexes.is_empty() {
            known.push(DeletedTopicOffsets { name: name.clone(), partition_indexes });
        }
        if !partitions.is_empty() {
            refused.push(TopicErrors { name, topic_id: Uuid::ZERO, partitions });
        }
    }
    (known, refused)
}
