//! ConsumerGroupDescribe, versions 0 and 1: groups of the consumer protocol, and their members (KIP-848).

use walser_machine::group::{
    Command, ConsumerGroupDescribe, DescribedConsumerGroup, DescribedConsumerMember, NamedTopicPartitions,
};
use walser_protocol::ErrorCode;
use walser_protocol::messages::consumer_group_describe::{
    Assignment, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, DescribedGroup, Member, TopicPartitions,
};

use super::groups::{authorized_operations, reply_as};
use super::{Frame, HandlerOutcome, RequestContext};
use crate::config::group::serves_consumer_protocol;

/// See the module.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match ConsumerGroupDescribeRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let groups = if serves_consumer_protocol(&context.shard.broker_view(&context.shard.image())) {
        let command = |group_ids| Command::ConsumerGroupDescribe(ConsumerGroupDescribe { group_ids });
        let answers = |reply| reply_as!(ConsumerGroupDescribe, reply);
        context.ask_each(&request.group_ids, command, answers).await
    } else {
        let refused = |id: &&str| DescribedConsumerGroup::failed(id, ErrorCode::UnsupportedVersion, None);
        request.group_ids.iter().map(refused).collect()
    };
    let groups = groups.iter().map(|group| described(group, request.include_authorized_operations)).collect();
    context.reply(&ConsumerGroupDescribeResponse { throttle_time_ms: 0, groups })
}

fn described(group: &DescribedConsumerGroup, with_operations: bool) -> DescribedGroup<'_> {
    DescribedGroup {
        error_code: group.error.code(),
        error_message: group.error_message.as_deref(),
        group_id: &group.group_id,
        group_state: &group.group_state,
        group_epoch: group.group_epoch,
        assignment_epoch: group.assignment_epoch,
        assignor_name: &group.assignor_name,
        members: group.members.iter().map(member).collect(),
        authorized_operations: authorized_operations(with_operations, group.error),
    }
}

fn member(member: &DescribedConsumerMember) -> Member<'_> {
    Member {
        member_id: &member.member_id,
        instance_id: member.instance_id.as_deref(),
        rack_id: member.rack_id.as_deref(),
        member_epoch: member.member_epoch,
        client_id: &member.client_id,
        client_host: &member.client_host,
        subscribed_topic_names: member.subscribed_topic_names.iter().map(String::as_str).collect(),
        subscribed_topic_regex: member.subscribed_topic_regex.as_deref(),
        assignment: assignment(&member.assignment),
        target_assignment: assignment(&member.target_assignment),
        member_type: member.member_type,
    }
}

fn assignment(topics: &[NamedTopicPartitions]) -> Assignment<'_> {
    let topics = topics.iter().map(|topic| TopicPartitions {
        topic_id: topic.topic_id,
        topic_name: &topic.topic_name,
        partitions: topic.partitions.clone(),
    });
    Assignment { topic_partitions: topics.collect() }
}
