//! Target assignments: what members shall have, once all have given up what is not theirs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::error::ConsumerGroupError;
use super::group::ConsumerGroup;
use super::member::{Member, Subscription};
use super::plan::{Environment, Plan};
use super::records::{Change, TargetEpoch};
use crate::group::assignor::{Assignment, Assignor, GroupSpec, MemberSpec};
use crate::ids::TopicId;

/// The target assignment of one member.
pub(super) struct MemberTarget {
    pub(super) epoch: i32,
    pub(super) assignment: Arc<Assignment>,
}

impl Plan<'_> {
    /// A new target assignment where the group's epoch has gone beyond that of the last one; else the last one. Not more often
    /// than the group's assignment interval allows: members that join together are given their partitions together (KIP-1263).
    pub(super) fn update_target(
        &mut self,
        group_epoch: i32,
        before: &Member,
        after: &Member,
    ) -> Result<MemberTarget, ConsumerGroupError> {
        let group = self.group;
        let last = group.target_epoch();
        if group_epoch <= last.epoch || !may_compute(last, &self.environment) {
            let instance_id = after.subscription.instance_id.as_deref();
            return Ok(MemberTarget { epoch: last.epoch, assignment: group.target(&after.member_id, instance_id) });
        }
        let assignor = preferred_assignor(group, &self.environment, Some((before, after)));
        let members = Candidates::new(group, after);
        let mut own = Arc::default();
        for (candidate, assignment) in members.members.iter().zip(members.assign(assignor, group, &self.environment)?) {
            let assignment = Arc::new(assignment);
            if *candidate.member_id == after.member_id {
                own = assignment.clone();
            }
            if candidate.target != Some(&assignment) {
                let member_id = candidate.member_id.clone();
                self.changes.push(Change::TargetMember { member_id, assignment: Some(assignment) });
            }
        }
        let target_epoch = TargetEpoch { epoch: group_epoch, timestamp_ms: self.environment.wall_ms };
        self.changes.push(Change::Target(Some(target_epoch)));
        Ok(MemberTarget { epoch: group_epoch, assignment: own })
    }
}

/// Whether the assignment interval has passed. A clock that was set back does not keep a group waiting.
pub(super) fn may_compute(last: TargetEpoch, environment: &Environment<'_>) -> bool {
    let interval_ms = i64::from(environment.settings.assignment_interval_ms);
    let since_ms = environment.wall_ms.saturating_sub(last.timestamp_ms);
    last.timestamp_ms == 0 || interval_ms == 0 || since_ms < 0 || since_ms >= interval_ms
}

/// What most members ask for that ask for any, when the first of `change` will have become the second; else the broker's
/// first. Of equally many the last by name.
pub(super) fn preferred_assignor(
    group: &ConsumerGroup,
    environment: &Environment<'_>,
    change: Option<(&Member, &Member)>,
) -> Assignor {
    let mut counts: BTreeMap<&str, usize> =
        group.assignor_counts().iter().map(|(name, count)| (name.as_ref(), *count)).collect();
    if let Some((before, after)) = change {
        if let Some(name) = &before.subscription.server_assignor
            && let Some(count) = counts.get_mut(name.as_ref())
        {
            *count -= 1;
        }
        if let Some(name) = &after.subscription.server_assignor {
            *counts.entry(name).or_default() += 1;
        }
    }
    let known = counts.into_iter().filter(|(_, count)| *count > 0);
    let preferred = known.max_by_key(|(_, count)| *count).and_then(|(name, _)| Assignor::from_name(name));
    preferred.or_else(|| environment.settings.assignors.first().copied()).unwrap_or(Assignor::Uniform)
}

/// A member that takes part, with its last target.
struct Candidate<'a> {
    member_id: &'a Arc<str>,
    subscription: &'a Subscription,
    target: Option<&'a Arc<Assignment>>,
}

/// What topics a subscription stands for depends on.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Subscribed<'a> {
    topic_names: &'a BTreeSet<Arc<str>>,
    regex: Option<&'a Arc<str>>,
}

impl<'a> Subscribed<'a> {
    fn of(subscription: &'a Subscription) -> Self {
        Self { topic_names: &subscription.topic_names, regex: subscription.regex() }
    }
}

struct Candidates<'a> {
    members: Vec<Candidate<'a>>,
}

impl<'a> Candidates<'a> {
    /// The group's members with `after` among them. As a static member it takes over the target of the one it replaces.
    fn new(group: &'a ConsumerGroup, after: &'a Member) -> Self {
        let instance_id = after.subscription.instance_id.as_deref();
        let replaced =
            instance_id.and_then(|instance_id| group.static_member(instance_id)).map(|member| &member.member_id);
        let stays = |member: &&Member| member.member_id != after.member_id && Some(&member.member_id) != replaced;
        let target = |member_id: &Arc<str>| group.targets().get(member_id);
        let mut members: Vec<Candidate<'a>> = group
            .members()
            .filter(stays)
            .map(|member| Candidate {
                member_id: &member.member_id,
                subscription: &member.subscription,
                target: target(&member.member_id),
            })
            .collect();
        let place = members.partition_point(|candidate| *candidate.member_id < after.member_id);
        let own = replaced.map_or_else(|| target(&after.member_id), target);
        let own = Candidate { member_id: &after.member_id, subscription: &after.subscription, target: own };
        members.insert(place, own);
        Self { members }
    }

    fn assign(
        &self,
        assignor: Assignor,
        group: &ConsumerGroup,
        environment: &Environment<'_>,
    ) -> Result<Vec<Assignment>, ConsumerGroupError> {
        let topics = environment.topics;
        // Members with equal subscriptions share one set, which is also how the assignor sees that they are equal.
        let mut resolved: BTreeMap<Subscribed<'_>, BTreeSet<TopicId>> = BTreeMap::new();
        for Candidate { subscription, .. } in &self.members {
            let subscribed = || topics.subscribed_ids(subscription, group.regexes());
            resolved.entry(Subscribed::of(subscription)).or_insert_with(subscribed);
        }
        let known = |topic_id: &TopicId| Some((*topic_id, topics.partition_count(*topic_id)?));
        let partition_counts = resolved.values().flatten().filter_map(known).collect();
        let nothing = Assignment::default();
        let members = self.members.iter().map(|candidate| MemberSpec {
            member_id: candidate.member_id,
            instance_id: candidate.subscription.instance_id.as_deref(),
            subscribed_topic_ids: &resolved[&Subscribed::of(candidate.subscription)],
            assigned: candidate.target.map_or(&nothing, |target| target),
        });
        Ok(assignor.assign(&GroupSpec { members: members.collect(), partition_counts })?)
    }
}
