//! `range`: of each topic every subscriber gets one contiguous range, all ranges as long or one longer.
//!
//! Members with an instance id come first, by that id, so that a restarted one, with a new member id, gets its old range again;
//! the others follow by member id. Topics with equally many partitions and the same subscribers are split alike, which is what
//! joins of their partitions need.

use std::collections::BTreeMap;

use super::{Assignment, GroupSpec};
use crate::ids::TopicId;

/// How far one topic has been given away.
struct TopicRange {
    partition_count: usize,
    subscriber_count: usize,
    /// Subscribers served so far.
    served_count: usize,
    /// The first partition not given away.
    next_index: usize,
}

impl TopicRange {
    fn next_range(&mut self) -> std::ops::Range<usize> {
        let extra = usize::from(self.served_count < self.partition_count % self.subscriber_count);
        let first = self.next_index;
        self.next_index = first + self.partition_count / self.subscriber_count + extra;
        self.served_count += 1;
        first..self.next_index
    }
}

pub(super) fn assign(group: &GroupSpec<'_>) -> Vec<Assignment> {
    let mut topics: BTreeMap<TopicId, TopicRange> = BTreeMap::new();
    for topic_id in group.members.iter().flat_map(|member| member.subscribed_topic_ids) {
        let topic = topics.entry(*topic_id).or_insert_with(|| TopicRange {
            partition_count: group.partition_count(*topic_id),
            subscriber_count: 0,
            served_count: 0,
            next_index: 0,
        });
        topic.subscriber_count += 1;
    }

    let mut assignments = vec![Assignment::default(); group.members.len()];
    for index in serving_order(group) {
        for topic_id in group.members[index].subscribed_topic_ids {
            let Some(topic) = topics.get_mut(topic_id) else { continue };
            let range = topic.next_range();
            assignments[index].insert_topic(*topic_id, range.filter_map(|index| i32::try_from(index).ok()).collect());
        }
    }
    assignments
}

/// Indexes of members: static ones by instance id, then the others by member id.
fn serving_order(group: &GroupSpec<'_>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..group.members.len()).collect();
    order.sort_by_key(|index| {
        let member = &group.members[*index];
        (member.instance_id.is_none(), member.instance_id.unwrap_or(member.member_id))
    });
    order
}
