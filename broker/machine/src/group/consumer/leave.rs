//! Members go: by their own word, because nobody heard of them, or because they did not give up what they had to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::error::ConsumerGroupError;
use super::group::ConsumerGroup;
use super::member::{Member, MemberState, STATIC_LEAVE_EPOCH};
use super::plan::{Downgrade, Environment, Outcome, Plan, TimerKind};
use super::records::{Change, GroupEpoch, TargetEpoch};
use super::request::{ConsumerGroupHeartbeat, ConsumerGroupHeartbeatReply};

/// Handles a heartbeat with epoch -1 or -2.
pub fn handle_leave(
    group: &ConsumerGroup,
    environment: Environment<'_>,
    request: &ConsumerGroupHeartbeat,
) -> Result<Outcome<ConsumerGroupHeartbeatReply>, ConsumerGroupError> {
    let mut plan = Plan::new(group, environment);
    let reply = ConsumerGroupHeartbeatReply::of_member(&request.member_id, request.member_epoch);
    let member = match &request.instance_id {
        Some(instance_id) => plan.static_member(&request.member_id, instance_id)?.clone(),
        None => plan.dynamic_member(request.member_id.as_str().into(), false)?,
    };
    if request.member_epoch == STATIC_LEAVE_EPOCH {
        let current = Some(member.current.left_for_a_while());
        plan.cancel(&member.member_id, TimerKind::Rebalance);
        plan.changes.push(Change::CurrentMember { member_id: member.member_id, current });
    } else {
        plan.fence(&[&member]);
    }
    Ok(plan.into_outcome(reply))
}

/// A timer of a member that runs out. `None`: it does not matter any more.
pub fn handle_timeout(
    group: &ConsumerGroup,
    environment: Environment<'_>,
    member_id: &str,
    kind: TimerKind,
) -> Option<Outcome<()>> {
    let member = group.member(member_id)?;
    if kind == TimerKind::Rebalance && member.current.state != MemberState::UnrevokedPartitions {
        return None;
    }
    Some(remove_members(group, environment, &[member]))
}

/// Removes members, with all that follows for the group.
pub fn remove_members(group: &ConsumerGroup, environment: Environment<'_>, members: &[&Member]) -> Outcome<()> {
    let mut plan = Plan::new(group, environment);
    plan.fence(members);
    plan.into_outcome(())
}

impl Plan<'_> {
    /// Removes members; the group gets a new epoch, and with it a new target assignment as soon as another member asks.
    pub(super) fn fence(&mut self, members: &[&Member]) {
        if members.is_empty() {
            return;
        }
        let group = self.group;
        if may_downgrade(group, &self.environment, members) {
            let leaving = members.iter().map(|member| member.member_id.clone()).collect();
            self.downgrade = Some(Downgrade { leaving, rebalances: true });
            return;
        }
        for member in members {
            self.remove_member(&member.member_id);
        }
        let gone = regexes_gone(group, members);
        for regex in &gone {
            self.changes.push(Change::Regex { regex: (*regex).clone(), resolved: None });
        }
        let metadata_hash = self.environment.topics.hash(&names_left(group, members, &gone));
        let epoch = group.group_epoch() + 1;
        self.changes.push(Change::Group(Some(GroupEpoch { epoch, metadata_hash })));
        if members.len() == group.member_count() {
            self.changes.push(Change::Target(Some(TargetEpoch { epoch, timestamp_ms: 0 })));
        }
        for member in members {
            for kind in [TimerKind::Session, TimerKind::Rebalance, TimerKind::Join, TimerKind::Sync] {
                self.cancel(&member.member_id, kind);
            }
        }
    }

    pub(super) fn remove_member(&mut self, member_id: &Arc<str>) {
        let member_id = || member_id.clone();
        self.changes.push(Change::CurrentMember { member_id: member_id(), current: None });
        self.changes.push(Change::TargetMember { member_id: member_id(), assignment: None });
        self.changes.push(Change::Member { member_id: member_id(), subscription: None });
    }
}

/// Whether the group becomes a classic one when these members go: it has others, and all of them speak the classic protocol.
fn may_downgrade(group: &ConsumerGroup, environment: &Environment<'_>, leaving: &[&Member]) -> bool {
    let left = group.member_count() - leaving.len();
    left > 0 && group.is_classic_without(leaving) && environment.allows_downgrade_of(left)
}

/// Expressions that nobody else has.
fn regexes_gone<'a>(group: &ConsumerGroup, members: &'a [&Member]) -> BTreeSet<&'a Arc<str>> {
    let mut counts: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
    for regex in members.iter().filter_map(|member| member.subscription.regex()) {
        *counts.entry(regex).or_default() += 1;
    }
    let gone = counts.into_iter().filter(|(regex, count)| group.regex_count(regex) == *count);
    gone.map(|(regex, _)| regex).collect()
}

fn names_left<'a>(
    group: &'a ConsumerGroup,
    members: &[&Member],
    regexes_gone: &BTreeSet<&Arc<str>>,
) -> BTreeSet<&'a str> {
    let mut counts = group.name_counts().clone();
    for name in members.iter().flat_map(|member| member.subscription.topic_names.iter()) {
        if let Some(count) = counts.get_mut(name) {
            *count -= 1;
        }
    }
    let by_name = group.name_counts().keys().filter(|name| counts.get(*name).is_some_and(|count| *count > 0));
    let resolved = group.regexes().iter().filter(|(regex, _)| !regexes_gone.contains(regex));
    let by_regex = resolved.flat_map(|(_, resolved)| resolved.topic_names.iter());
    by_name.chain(by_regex).map(AsRef::as_ref).collect()
}

/// Records that remove a group and everything in it, but its offsets.
pub fn tombstones(group: &ConsumerGroup) -> Vec<Change> {
    let ids = || group.members().map(|member| member.member_id.clone());
    let current = ids().map(|member_id| Change::CurrentMember { member_id, current: None });
    let targets = ids().map(|member_id| Change::TargetMember { member_id, assignment: None });
    let members = ids().map(|member_id| Change::Member { member_id, subscription: None });
    let regexes = group.regexes().keys().map(|regex| Change::Regex { regex: regex.clone(), resolved: None });
    let mut changes: Vec<Change> = current.chain(targets).collect();
    changes.push(Change::Target(None));
    changes.extend(members.chain(regexes));
    changes.push(Change::PartitionMetadata { present: false });
    changes.push(Change::Group(None));
    changes
}
