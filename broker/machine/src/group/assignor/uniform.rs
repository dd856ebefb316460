//! `uniform` where all members subscribe to the same topics.
//!
//! Of P partitions and M members, P mod M members get one more than P div M. Those who have more than P div M already are the
//! first to keep one more, so a group that is balanced is left as it is, and a partition moves only from a member above its
//! quota or from nobody.

use std::collections::{BTreeMap, BTreeSet};

use super::{Assignment, GroupSpec};
use crate::ids::TopicId;

pub(super) fn assign(group: &GroupSpec<'_>) -> Vec<Assignment> {
    let Some(first) = group.members.first() else { return Vec::new() };
    let topic_ids = first.subscribed_topic_ids;
    let partition_count: usize = topic_ids.iter().map(|topic_id| group.partition_count(*topic_id)).sum();

    let mut kept = kept_partitions(group, topic_ids);
    let quotas = quotas(&kept, partition_count);
    let free = free_partitions(group, topic_ids, &kept);
    let over: Vec<(TopicId, i32)> =
        kept.iter_mut().zip(&quotas).flat_map(|(assignment, quota)| shrink(assignment, *quota)).collect();
    let mut free = free.into_iter().chain(over);
    for (assignment, quota) in kept.iter_mut().zip(&quotas) {
        let missing = quota - assignment.len();
        for (topic_id, partition_index) in free.by_ref().take(missing) {
            assignment.insert(topic_id, partition_index);
        }
    }
    assert!(free.next().is_none(), "quotas add up to the partitions there are");
    kept
}

/// What each member has and still subscribes to; of a partition that two have, the first of them.
fn kept_partitions(group: &GroupSpec<'_>, topic_ids: &BTreeSet<TopicId>) -> Vec<Assignment> {
    let mut taken = Assignment::default();
    let keep = |topic_id: TopicId, partition_index: i32, taken: &mut Assignment| {
        let exists = usize::try_from(partition_index).is_ok_and(|index| index < group.partition_count(topic_id));
        topic_ids.contains(&topic_id) && exists && taken.insert(topic_id, partition_index)
    };
    let kept = |assigned: &Assignment| {
        assigned.partitions().filter(|(topic_id, index)| keep(*topic_id, *index, &mut taken)).collect()
    };
    group.members.iter().map(|member| member.assigned).map(kept).collect()
}

/// How many partitions each member gets.
fn quotas(kept: &[Assignment], partition_count: usize) -> Vec<usize> {
    let quota_min = partition_count / kept.len();
    let mut extra_left = partition_count % kept.len();
    let mut quotas = vec![quota_min; kept.len()];
    let lens: Vec<usize> = kept.iter().map(Assignment::len).collect();
    for has_extra in [true, false] {
        for (quota, _) in quotas.iter_mut().zip(&lens).filter(|(_, len)| (**len > quota_min) == has_extra) {
            let extra = extra_left.min(1);
            *quota += extra;
            extra_left -= extra;
        }
    }
    quotas
}

/// Takes the last partitions away.
fn shrink(assignment: &mut Assignment, quota: usize) -> Vec<(TopicId, i32)> {
    let over: Vec<(TopicId, i32)> = assignment.partitions().skip(quota).collect();
    for (topic_id, partition_index) in &over {
        assignment.remove(*topic_id, *partition_index);
    }
    over
}

/// What nobody has.
fn free_partitions(group: &GroupSpec<'_>, topic_ids: &BTreeSet<TopicId>, kept: &[Assignment]) -> Vec<(TopicId, i32)> {
    let vacant = |topic_id: &TopicId| (*topic_id, vec![true; group.partition_count(*topic_id)]);
    let mut topics: BTreeMap<TopicId, Vec<bool>> = topic_ids.iter().map(vacant).collect();
    for (topic_id, index) in kept.iter().flat_map(Assignment::partitions) {
        let indexes = topics.get_mut(&topic_id);
        if let Some(is_free) = indexes.zip(usize::try_from(index).ok()).and_then(|(all, index)| all.get_mut(index)) {
            *is_free = false;
        }
    }
    let free = |(topic_id, is_free): (TopicId, Vec<bool>)| {
        let indexes = (0i32..).zip(is_free).filter(|(_, is_free)| *is_free);
        indexes.map(move |(index, _)| (topic_id, index))
    };
    topics.into_iter().flat_map(free).collect()
}
