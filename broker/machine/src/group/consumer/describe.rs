//! ConsumerGroupDescribe.

use walser_protocol::ErrorCode;

use super::group::ConsumerGroup;
use super::member::Member;
use super::plan::Environment;
use super::request::{DescribedConsumerGroup, DescribedConsumerMember, NamedTopicPartitions};
use super::target::preferred_assignor;
use super::topics::Topics;
use crate::group::assignor::Assignment;

const MEMBER_TYPE_CLASSIC: i8 = 0;
const MEMBER_TYPE_CONSUMER: i8 = 1;

/// The group as it is. Partitions of topics that are gone are left out.
pub fn describe(group: &ConsumerGroup, environment: &Environment<'_>) -> DescribedConsumerGroup {
    DescribedConsumerGroup {
        error: ErrorCode::None,
        error_message: None,
        group_id: group.group_id().to_string(),
        group_state: group.state().name().to_owned(),
        group_epoch: group.group_epoch(),
        assignment_epoch: group.target_epoch().epoch,
        assignor_name: preferred_assignor(group, environment, None).name().to_owned(),
        members: group.members().map(|member| describe_member(group, member, environment.topics)).collect(),
    }
}

fn describe_member(group: &ConsumerGroup, member: &Member, topics: &Topics) -> DescribedConsumerMember {
    let subscription = &member.subscription;
    let text = |text: &Option<std::sync::Arc<str>>| text.as_ref().map(ToString::to_string);
    let held: Assignment = member.current.held().collect();
    DescribedConsumerMember {
        member_id: member.member_id.to_string(),
        instance_id: text(&subscription.instance_id),
        rack_id: text(&subscription.rack_id),
        member_epoch: member.current.epoch,
        client_id: subscription.client_id.to_string(),
        client_host: subscription.client_host.to_string(),
        subscribed_topic_names: subscription.topic_names.iter().map(ToString::to_string).collect(),
        subscribed_topic_regex: text(&subscription.topic_regex),
        assignment: named(&held, topics),
        target_assignment: named(&group.target(&member.member_id, None), topics),
        member_type: if member.uses_classic_protocol() { MEMBER_TYPE_CLASSIC } else { MEMBER_TYPE_CONSUMER },
    }
}

fn named(assignment: &Assignment, topics: &Topics) -> Vec<NamedTopicPartitions> {
    let known = assignment.topics().filter_map(|(topic_id, indexes)| {
        let topic_name = topics.name(topic_id)?.to_string();
        Some(NamedTopicPartitions {
            topic_id: topic_id.get(),
            topic_name,
            partitions: indexes.iter().copied().collect(),
        })
    });
    known.collect()
}
