//! ConsumerGroupHeartbeat, versions 0 and 1: all of a member's life in the consumer protocol (KIP-848).
//!
//! It joins, says what it is subscribed to and what it has, learns what it is to have, and leaves. Version 1 brings regular
//! expressions, and ids that the member chooses (KIP-1082). Not served, and said so, where `group.coordinator.rebalance.protocols`
//! is without `consumer`.

use walser_machine::group::record::TopicPartitions;
use walser_machine::group::{Command, ConsumerGroupHeartbeat, ConsumerGroupHeartbeatReply};
use walser_protocol::ErrorCode;
use walser_protocol::messages::consumer_group_heartbeat::{
    Assignment, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, ResponseTopicPartitions,
};

use super::groups::{client_host, reply_as};
use super::{Frame, HandlerOutcome, RequestContext};
use crate::config::group::serves_consumer_protocol;

/// See the module.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match ConsumerGroupHeartbeatRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    if !serves_consumer_protocol(&context.shard.broker_view(&context.shard.image())) {
        return answer(&context, &ConsumerGroupHeartbeatReply::failed(ErrorCode::UnsupportedVersion, None));
    }
    let command = || Command::ConsumerGroupHeartbeat(command(&context, &request));
    let reply = context.ask_coordinator(request.group_id, command).await;
    answer(&context, &reply_as!(ConsumerGroupHeartbeat, reply))
}

fn command(context: &RequestContext, request: &ConsumerGroupHeartbeatRequest<'_>) -> ConsumerGroupHeartbeat {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    let names = request.subscribed_topic_names.as_ref();
    let partitions = request.topic_partitions.as_ref().map(|topics| {
        let topics = topics
            .iter()
            .map(|topic| TopicPartitions { topic_id: topic.topic_id, partitions: topic.partitions.clone() });
        topics.collect()
    });
    ConsumerGroupHeartbeat {
        api_version: context.version,
        group_id: request.group_id.to_owned(),
        member_id: request.member_id.to_owned(),
        member_epoch: request.member_epoch,
        instance_id: owned(request.instance_id),
        rack_id: owned(request.rack_id),
        rebalance_timeout_ms: request.rebalance_timeout_ms,
        subscribed_topic_names: names.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
        subscribed_topic_regex: owned(request.subscribed_topic_regex),
        server_assignor: owned(request.server_assignor),
        topic_partitions: partitions,
        client_id: context.client_id.as_deref().unwrap_or_default().to_owned(),
        client_host: client_host(context.connection.peer.ip()),
        member_uuid: context.shard.member_ids.borrow_mut().uuid(),
    }
}

fn answer(context: &RequestContext, reply: &ConsumerGroupHeartbeatReply) -> HandlerOutcome {
    let assignment = reply.assignment.as_ref().map(|topics| {
        let topics = topics
            .iter()
            .map(|topic| ResponseTopicPartitions { topic_id: topic.topic_id, partitions: topic.partitions.clone() });
        Assignment { topic_partitions: topics.collect() }
    });
    context.reply(&ConsumerGroupHeartbeatResponse {
        throttle_time_ms: 0,
        error_code: reply.error.code(),
        error_message: reply.error_message.as_deref(),
        member_id: reply.member_id.as_deref(),
        member_epoch: reply.member_epoch,
        heartbeat_interval_ms: reply.heartbeat_interval_ms,
        assignment,
    })
}
