//! DescribeTopicPartitions, version 0: topics in order of name, page by page.
//!
//! An empty topic list means all of them. A page ends after as many partitions as the request and
//! `max.request.partition.size.limit` allow, and says where the next one begins.

use std::collections::BTreeSet;

use walser_machine::metadata::image::TopicImage;
use walser_machine::metadata::topic_name::validate_topic_name;
use walser_protocol::ErrorCode;
use walser_protocol::messages::describe_topic_partitions::{
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic, ResponseCursor,
};

use super::metadata::TOPIC_OPERATIONS;
use super::topics::is_internal;
use super::{Frame, HandlerOutcome, RequestContext};

/// Describes one page of topics.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match DescribeTopicPartitionsRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    if !is_cursor_good(&request) {
        // The response has no place for an error of its own: every topic asked for has it.
        let refused = request.topics.iter().map(|topic| DescribeTopicPartitionsResponseTopic {
            error_code: ErrorCode::InvalidRequest.code(),
            name: Some(topic.name),
            ..DescribeTopicPartitionsResponseTopic::default()
        });
        let topics = refused.collect();
        return context.reply(&DescribeTopicPartitionsResponse { throttle_time_ms: 0, topics, next_cursor: None });
    }
    let image = context.shard.image();
    let limit = context.shard.broker_view(&image).integer("max.request.partition.size.limit");
    let limit = limit.min(i64::from(request.response_partition_limit)).max(1);
    let mut left = usize::try_from(limit).unwrap_or(usize::MAX);
    let names: BTreeSet<&str> = if request.topics.is_empty() {
        image.topics().map(|topic| &*topic.name).collect()
    } else {
        request.topics.iter().map(|topic| topic.name).collect()
    };
    let (first_name, first_index) =
        request.cursor.as_ref().map_or(("", 0), |cursor| (cursor.topic_name, cursor.partition_index));
    let mut topics = Vec::new();
    let mut next_cursor = None;
    for name in names.range(first_name..) {
        if left == 0 {
            next_cursor = Some(ResponseCursor { topic_name: name, partition_index: 0 });
            break;
        }
        let Some(topic) = image.topic(name) else {
            topics.push(unknown(name));
            continue;
        };
        let first = if *name == first_name { usize::try_from(first_index).unwrap_or(0) } else { 0 };
        let described = known(topic, first, left);
        left -= described.partitions.len();
        let next = first + described.partitions.len();
        topics.push(described);
        if next < topic.partitions.len() {
            let partition_index = i32::try_from(next).unwrap_or(i32::MAX);
            next_cursor = Some(ResponseCursor { topic_name: &topic.name, partition_index });
            break;
        }
    }
    context.reply(&DescribeTopicPartitionsResponse { throttle_time_ms: 0, topics, next_cursor })
}

/// A cursor stands on a topic that is asked for; where all are, it may be gone since.
fn is_cursor_good(request: &DescribeTopicPartitionsRequest<'_>) -> bool {
    request.cursor.as_ref().is_none_or(|cursor| {
        let is_asked_for =
            request.topics.is_empty() || request.topics.iter().any(|topic| topic.name == cursor.topic_name);
        is_asked_for && cursor.partition_index >= 0
    })
}

fn known(topic: &TopicImage, first: usize, count_max: usize) -> DescribeTopicPartitionsResponseTopic<'_> {
    let partitions = (0..).zip(&topic.partitions).skip(first).take(count_max).map(|(index, partition)| {
        let error = if partition.leader.is_some() { ErrorCode::None } else { ErrorCode::LeaderNotAvailable };
        DescribeTopicPartitionsResponsePartition {
            error_code: error.code(),
            partition_index: index,
            leader_id: partition.leader.map_or(-1, |leader| leader.get()),
            leader_epoch: partition.leader_epoch.get(),
            replica_nodes: partition.replicas.iter().map(|replica| replica.get()).collect(),
            isr_nodes: partition.in_sync_replicas.iter().map(|replica| replica.get()).collect(),
            eligible_leader_replicas: Some(Vec::new()),
            last_known_elr: Some(Vec::new()),
            offline_replicas: Vec::new(),
        }
    });
    DescribeTopicPartitionsResponseTopic {
        name: Some(&topic.name),
        topic_id: topic.topic_id.get(),
        is_internal: is_internal(&topic.name),
        partitions: partitions.collect(),
        topic_authorized_operations: TOPIC_OPERATIONS,
        ..DescribeTopicPartitionsResponseTopic::default()
    }
}

fn unknown(name: &str) -> DescribeTopicPartitionsResponseTopic<'_> {
    let is_valid = validate_topic_name(name).is_ok();
    let error = if is_valid { ErrorCode::UnknownTopicOrPartition } else { ErrorCode::InvalidTopicException };
    DescribeTopicPartitionsResponseTopic {
        error_code: error.code(),
        name: Some(name),
        is_internal: is_internal(name),
        topic_authorized_operations: TOPIC_OPERATIONS,
        ..DescribeTopicPartitionsResponseTopic::default()
    }
}

#[cfg(test)]
mod tests {
    use walser_protocol::messages::describe_topic_partitions::{RequestCursor, TopicRequest};

    use super::*;

    #[test]
    fn a_cursor_stands_on_what_is_asked_for() {
        // Rule: a cursor on another topic, or before the first partition, is refused; without topics any topic will do.
        for (topics, cursor, want) in [
            (&["a"][..], None, true),
            (&["a", "b"], Some(("b", 0)), true),
            (&["a"], Some(("b", 0)), false),
            (&["a"], Some(("a", -1)), false),
            (&[], Some(("b", 3)), true),
            (&[], Some(("b", -1)), false),
        ] {
            let request = DescribeTopicPartitionsRequest {
                topics: topics.iter().map(|name| TopicRequest { name }).collect(),
                response_partition_limit: 2000,
                cursor: cursor.map(|(topic_name, partition_index)| RequestCursor { topic_name, partition_index }),
            };
            assert_eq!(is_cursor_good(&request), want, "{topics:?} {cursor:?}");
        }
    }
}
