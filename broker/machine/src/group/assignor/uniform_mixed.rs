//! `uniform` where members subscribe to different topics.
//!
//! 1. Members keep what they have of the topics they subscribe to.
//! 2. Free partitions go to the subscriber that has the fewest, topic by topic; the topics with the most partitions per
//!    subscriber first, since they leave the least choice.
//! 3. Topic by topic, partitions move from the subscriber that has the most to the one that has the fewest, until they differ by
//!    one at most; over and over, until a round moves nothing.
//!
//! The result is even among the subscribers of each topic. Where subscriptions overlap like the links of a chain it may take many
//! rounds to be even along the whole chain, so their number is bounded and the last bit of evenness given up.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::{Assignment, GroupSpec};
use crate::ids::TopicId;

/// Each round about halves what is uneven; sixteen leave nothing of the largest group.
const ROUNDS_MAX: usize = 16;

/// One topic while it is given away. Members are indexes into the group's list.
struct Topic {
    topic_id: TopicId,
    /// In ascending order, at least one.
    subscribers: Vec<usize>,
    /// By partition index.
    owners: Vec<Option<usize>>,
}

pub(super) fn assign(group: &GroupSpec<'_>) -> Vec<Assignment> {
    let mut loads = vec![0usize; group.members.len()];
    let mut topics = topics(group, &mut loads);
    topics.sort_by(compare_topics);
    for topic in &mut topics {
        topic.assign_free(&mut loads);
    }
    balance(&mut topics, &mut loads);

    let mut assignments = vec![Assignment::default(); group.members.len()];
    for topic in &topics {
        for (index, owner) in (0i32..).zip(&topic.owners) {
            let owner = owner.expect("every partition has been given to a subscriber");
            assignments[owner].insert(topic.topic_id, index);
        }
    }
    assignments
}

/// All topics with their subscribers and the owners that stay; what those have is counted in `loads`.
fn topics(group: &GroupSpec<'_>, loads: &mut [usize]) -> Vec<Topic> {
    let mut topics: BTreeMap<TopicId, Topic> = BTreeMap::new();
    for (member, spec) in group.members.iter().enumerate() {
        for topic_id in spec.subscribed_topic_ids {
            let topic = topics.entry(*topic_id).or_insert_with(|| Topic {
                topic_id: *topic_id,
                subscribers: Vec::new(),
                owners: vec![None; group.partition_count(*topic_id)],
            });
            topic.subscribers.push(member);
        }
    }
    for (member, spec) in group.members.iter().enumerate() {
        for (topic_id, indexes) in spec.assigned.topics() {
            let subscribed = spec.subscribed_topic_ids.contains(&topic_id);
            let Some(topic) = topics.get_mut(&topic_id).filter(|_| subscribed) else { continue };
            for index in indexes {
                let owner = usize::try_from(*index).ok().and_then(|index| topic.owners.get_mut(index));
                if let Some(owner @ None) = owner {
                    *owner = Some(member);
                    loads[member] += 1;
                }
            }
        }
    }
    topics.into_values().collect()
}

/// Most partitions per subscriber first, then fewest subscribers, then by id.
fn compare_topics(one: &Topic, other: &Topic) -> Ordering {
    let per_subscriber = |left: &Topic, right: &Topic| left.owners.len() as u128 * right.subscribers.len() as u128;
    let by_share = per_subscriber(other, one).cmp(&per_subscriber(one, other));
    by_share
        .then_with(|| one.subscribers.len().cmp(&other.subscribers.len()))
        .then_with(|| signed(one.topic_id).cmp(&signed(other.topic_id)))
}

/// Kafka compares ids as two signed numbers.
fn signed(topic_id: TopicId) -> (i64, i64) {
    let bits = u128::from_be_bytes(*topic_id.get().as_bytes());
    ((bits >> 64) as i64, bits as i64)
}

/// Rounds over all topics, until one round moves nothing.
fn balance(topics: &mut [Topic], loads: &mut [usize]) {
    let topic_count = topics.len();
    // Topics in a row that had nothing to move.
    let mut still = 0;
    for _ in 0..ROUNDS_MAX {
        for topic in &mut *topics {
            still = if topic.balance(loads) { 0 } else { still + 1 };
            if still >= topic_count {
                return;
            }
        }
    }
}

impl Topic {
    /// Subscribers by load, those of equal load in ascending order. A member's place in it ranks it from then on.
    fn ranked(&self, loads: &[usize]) -> Vec<usize> {
        let mut ranked = self.subscribers.clone();
        ranked.sort_by_key(|member| (loads[*member], *member));
        ranked
    }

    fn assign_free(&mut self, loads: &mut [usize]) {
        if self.owners.iter().all(Option::is_some) {
            return;
        }
        let ranked = self.ranked(loads);
        let mut by_load: BTreeSet<(usize, usize)> =
            ranked.iter().enumerate().map(|(rank, member)| (loads[*member], rank)).collect();
        for owner in self.owners.iter_mut().filter(|owner| owner.is_none()) {
            let (load, rank) = by_load.pop_first().expect("a topic has a subscriber");
            *owner = Some(ranked[rank]);
            loads[ranked[rank]] = load + 1;
            by_load.insert((load + 1, rank));
        }
    }

    /// Whether a partition was moved.
    fn balance(&mut self, loads: &mut [usize]) -> bool {
        let subscriber_loads = self.subscribers.iter().map(|member| loads[*member]);
        let (least, most) =
            subscriber_loads.fold((usize::MAX, 0), |(least, most), load| (least.min(load), most.max(load)));
        if most <= least.saturating_add(1) {
            return false;
        }
        let mut given: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, owner) in self.owners.iter().enumerate() {
            let owner = owner.expect("every partition has been given to a subscriber");
            given.entry(owner).or_default().push(index);
        }
        let ranked = self.ranked(loads);
        let load_of = |rank: usize| (loads[ranked[rank]], rank);
        let mut takers: BTreeSet<(usize, usize)> = (0..ranked.len()).map(load_of).collect();
        // Only those that have something of this topic can give.
        let has_some = |rank: &usize| given.contains_key(&ranked[*rank]);
        let mut givers: BTreeSet<(usize, usize)> = (0..ranked.len()).filter(has_some).map(load_of).collect();
        let mut moved = false;
        while let (Some((most, giver)), Some((least, taker))) = (givers.pop_last(), takers.pop_first()) {
            if most <= least + 1 {
                break;
            }
            let Some(index) = given.get_mut(&ranked[giver]).and_then(Vec::pop) else {
                takers.insert((least, taker));
                continue;
            };
            self.owners[index] = Some(ranked[taker]);
            moved = true;
            takers.remove(&(most, giver));
            takers.insert((most - 1, giver));
            takers.insert((least + 1, taker));
            givers.insert((most - 1, giver));
            if givers.remove(&(least, taker)) {
                givers.insert((least + 1, taker));
            }
            loads[ranked[giver]] = most - 1;
            loads[ranked[taker]] = least + 1;
        }
        moved
    }
}
