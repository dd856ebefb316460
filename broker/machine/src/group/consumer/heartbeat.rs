//! ConsumerGroupHeartbeat: a member joins, tells what it wants and has, and learns what it shall have.
//!
//! 1. The group and the member are found or made, and the member's epoch is checked.
//! 2. What the member says about itself is noted; if it changes what the group subscribes to, the group's epoch goes up.
//! 3. A group whose epoch is above that of its target assignment gets a new one.
//! 4. The member takes its next step towards it.
//!
//! An answer that is lost costs nothing: a member may name its previous epoch as long as it has nothing beyond what it was
//! given since. Every other epoch fences it: it has to give up everything and join again with epoch 0.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::error::ConsumerGroupError;
use super::group::ConsumerGroup;
use super::member::{Member, STATIC_LEAVE_EPOCH, Subscription};
use super::plan::{Effect, Environment, Outcome, Plan, Reconciliation, TimerKind, subscribed_names};
use super::records::{Change, GroupEpoch, ResolvedRegex, assignment};
use super::regex::{REFRESH_INTERVAL_MIN_MS, ResolvedRegexes, TopicRegex};
use super::request::{ConsumerGroupHeartbeat, ConsumerGroupHeartbeatReply, to_topic_partitions};
use super::target::{MemberTarget, preferred_assignor};
use crate::group::assignor::Assignment;

/// Handles a heartbeat that does not leave, of a request that [`ConsumerGroupHeartbeat::validate`] let pass.
pub fn handle_heartbeat(
    group: &ConsumerGroup,
    environment: Environment<'_>,
    request: &ConsumerGroupHeartbeat,
) -> Result<Outcome<ConsumerGroupHeartbeatReply>, ConsumerGroupError> {
    let mut plan = Plan::new(group, environment);
    let owned = request
        .topic_partitions
        .as_ref()
        .map(|topics| assignment(topics.iter().map(|topic| (topic.topic_id, topic.partitions.as_slice()))));
    let before = plan.find_member(request, owned.as_ref())?;
    let mut member = before.clone();
    member.subscription = updated(&before.subscription, request);
    let subscription = plan.note_subscription(&before, &member)?;

    let mut group_epoch = plan.group.group_epoch();
    if subscription.bumps_epoch || plan.group.is_hash_outdated(environment.topics) {
        let names = subscribed_names(plan.group, &before.subscription, &member.subscription);
        group_epoch = plan.update_metadata(subscription.bumps_epoch, &names);
        plan.effects.push(Effect::Hashed { group_epoch });
    }
    let MemberTarget { epoch: target_epoch, assignment: target } = plan.update_target(group_epoch, &before, &member)?;
    let reconciliation = Reconciliation {
        target_epoch,
        target: &target,
        subscription_changed: subscription.changed,
        owned: owned.as_ref(),
    };
    plan.reconcile(&mut member, &reconciliation)?;
    plan.schedule(&member.member_id, TimerKind::Session, environment.settings.session_timeout_ms);

    let told = request.member_epoch == 0 || request.is_full() || before.current.assigned != member.current.assigned;
    let reply = ConsumerGroupHeartbeatReply {
        heartbeat_interval_ms: environment.settings.heartbeat_interval_ms,
        assignment: told.then(|| to_topic_partitions(&member.current.assigned.without_epochs())),
        ..ConsumerGroupHeartbeatReply::of_member(&member.member_id, member.current.epoch)
    };
    Ok(plan.into_outcome(reply))
}

/// What a member said about its subscription, compared with what it said before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SubscriptionUpdate {
    pub(super) changed: bool,
    /// The group needs a new target assignment. Not yet while a new regular expression is unresolved.
    pub(super) bumps_epoch: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegexUpdate {
    Unchanged,
    Unresolved,
    Resolved,
}

impl<'a> Plan<'a> {
    fn find_member(
        &mut self,
        request: &ConsumerGroupHeartbeat,
        owned: Option<&Assignment>,
    ) -> Result<Member, ConsumerGroupError> {
        let instance_id = request.instance_id.as_deref();
        self.verify_not_full(&request.member_id, instance_id)?;
        let member_id = match request.member_id.as_str() {
            "" => request.member_uuid.to_string().into(),
            member_id => Arc::from(member_id),
        };
        let joins = request.member_epoch == 0;
        let Some(instance_id) = instance_id else {
            let member = self.dynamic_member(member_id, joins)?;
            verify_epoch(&member, request.member_epoch, owned)?;
            return Ok(member);
        };
        if joins {
            return self.joining_static_member(&member_id, instance_id, false);
        }
        let member = self.static_member(&member_id, instance_id)?.clone();
        verify_epoch(&member, request.member_epoch, owned)?;
        Ok(member)
    }

    /// A full group takes back members it has, and static members it knows.
    pub(super) fn verify_not_full(&self, member_id: &str, instance_id: Option<&str>) -> Result<(), ConsumerGroupError> {
        let group = self.group;
        let max = self.environment.settings.max_size;
        let is_known = group.member(member_id).is_some()
            || instance_id.is_some_and(|instance_id| group.static_member(instance_id).is_some());
        let is_full = group.member_count() >= usize::try_from(max).unwrap_or(0);
        if is_full && !is_known { Err(ConsumerGroupError::GroupMaxSizeReached { max }) } else { Ok(()) }
    }

    pub(super) fn dynamic_member(&self, member_id: Arc<str>, joins: bool) -> Result<Member, ConsumerGroupError> {
        match self.group.member(&member_id) {
            Some(member) => Ok(member.clone()),
            None if joins => Ok(Member::new(member_id)),
            None => Err(ConsumerGroupError::UnknownMemberId { member_id: member_id.to_string() }),
        }
    }

    /// A new member, or one that takes the place of the one that had its instance id.
    pub(super) fn joining_static_member(
        &mut self,
        member_id: &Arc<str>,
        instance_id: &str,
        uses_classic_protocol: bool,
    ) -> Result<Member, ConsumerGroupError> {
        let Some(existing) = self.group.static_member(instance_id).cloned() else {
            return self.dynamic_member(member_id.clone(), true);
        };
        let both_consumer = !uses_classic_protocol && !existing.uses_classic_protocol();
        if both_consumer && existing.current.epoch != STATIC_LEAVE_EPOCH {
            let owner = existing.member_id;
            return Err(ConsumerGroupError::UnreleasedInstanceId { instance_id: instance_id.to_owned(), owner });
        }
        let mut member = Member { member_id: member_id.clone(), ..existing.clone() };
        member.current.epoch = 0;
        member.current.previous_epoch = 0;
        self.replace_member(&existing, &member);
        Ok(member)
    }

    /// The member with an instance id, if it is the one that asks.
    pub(super) fn static_member(&self, member_id: &str, instance_id: &str) -> Result<&'a Member, ConsumerGroupError> {
        let unknown = || ConsumerGroupError::UnknownInstanceId { instance_id: instance_id.to_owned() };
        let group = self.group;
        let member = group.static_member(instance_id).ok_or_else(unknown)?;
        if *member.member_id != *member_id {
            let owner = member.member_id.clone();
            return Err(ConsumerGroupError::FencedInstanceId { instance_id: instance_id.to_owned(), owner });
        }
        Ok(member)
    }

    fn replace_member(&mut self, existing: &Member, member: &Member) {
        for kind in [TimerKind::Session, TimerKind::Rebalance, TimerKind::Join, TimerKind::Sync] {
            self.cancel(&existing.member_id, kind);
        }
        self.remove_member(&existing.member_id);
        let Member { member_id, subscription, current } = member.clone();
        let target = self.group.target(&existing.member_id, None);
        self.changes.push(Change::Member { member_id: member_id.clone(), subscription: Some(subscription) });
        self.changes.push(Change::TargetMember { member_id: member_id.clone(), assignment: Some(target) });
        self.changes.push(Change::CurrentMember { member_id, current: Some(current) });
    }

    /// Records what the member says, if it is new.
    pub(super) fn note_subscription(
        &mut self,
        before: &Member,
        after: &Member,
    ) -> Result<SubscriptionUpdate, ConsumerGroupError> {
        let (old, new) = (&before.subscription, &after.subscription);
        if old != new {
            let member_id = after.member_id.clone();
            self.changes.push(Change::Member { member_id, subscription: Some(new.clone()) });
        }
        let names_changed = old.topic_names != new.topic_names;
        let regex = self.update_regex(before, after)?;
        let assignor = |change| preferred_assignor(self.group, &self.environment, change);
        let assignor_changed = assignor(None) != assignor(Some((before, after)));
        Ok(SubscriptionUpdate {
            changed: names_changed || regex != RegexUpdate::Unchanged,
            bumps_epoch: names_changed || regex == RegexUpdate::Resolved || assignor_changed,
        })
    }

    fn update_regex(&mut self, before: &Member, after: &Member) -> Result<RegexUpdate, ConsumerGroupError> {
        let group = self.group;
        let (old, new) = (before.subscription.regex(), after.subscription.regex());
        let mut update = RegexUpdate::Unchanged;
        let mut is_new = false;
        if before.subscription.topic_regex != after.subscription.topic_regex {
            update = RegexUpdate::Unresolved;
            if let Some(old) = old.filter(|old| group.regex_count(old) == 1) {
                self.changes.push(Change::Regex { regex: old.clone(), resolved: None });
            }
            match new {
                Some(new) if group.regex_count(new) == 0 => {
                    TopicRegex::new(new)?;
                    is_new = true;
                }
                Some(new) if group.regexes().contains_key(new) => update = RegexUpdate::Resolved,
                Some(_) => {}
                None if old.is_some() => update = RegexUpdate::Resolved,
                None => {}
            }
        }
        self.plan_resolution(before, after, is_new);
        Ok(update)
    }

    /// All expressions of a group are resolved together, so that together they change its subscription.
    fn plan_resolution(&mut self, before: &Member, after: &Member, is_new: bool) {
        let group = self.group;
        if !is_new && group.regex_counts().is_empty() || group.is_resolving() {
            return;
        }
        let now_ms = self.environment.wall_ms;
        let last = group.regexes().values().next();
        // Time since the last one. A clock that was set back must not put the next one off.
        let since_ms = last.map(|last| now_ms.saturating_sub(last.timestamp_ms)).filter(|since_ms| *since_ms >= 0);
        if since_ms.is_some_and(|since_ms| since_ms <= REFRESH_INTERVAL_MIN_MS) {
            return;
        }
        let mut regexes: BTreeSet<Arc<str>> = group.regex_counts().keys().cloned().collect();
        if let Some(old) = before.subscription.regex().filter(|old| group.regex_count(old) == 1) {
            regexes.remove(old);
        }
        regexes.extend(after.subscription.regex().cloned());
        let interval_ms = i64::from(self.environment.settings.regex_refresh_interval_ms);
        let is_due = is_new
            || regexes.len() != group.regexes().len()
            || last.is_some_and(|last| last.version < self.environment.topics.created_at())
            || since_ms.is_none_or(|since_ms| since_ms > interval_ms);
        if is_due && !regexes.is_empty() {
            self.effects.push(Effect::ResolveRegexes { regexes });
        }
    }
}

/// What the member keeps of its subscription and what the request replaces.
fn updated(known: &Subscription, request: &ConsumerGroupHeartbeat) -> Subscription {
    let text = |given: &Option<String>, known: &Option<Arc<str>>| match given {
        Some(given) if known.as_deref() != Some(given) => Some(given.as_str().into()),
        Some(_) | None => known.clone(),
    };
    let topic_names = match &request.subscribed_topic_names {
        Some(given) => {
            let given: BTreeSet<Arc<str>> = given.iter().map(|name| name.as_str().into()).collect();
            if given == *known.topic_names { known.topic_names.clone() } else { Arc::new(given) }
        }
        None => known.topic_names.clone(),
    };
    Subscription {
        instance_id: text(&request.instance_id, &known.instance_id),
        rack_id: text(&request.rack_id, &known.rack_id),
        client_id: kept(&request.client_id, &known.client_id),
        client_host: kept(&request.client_host, &known.client_host),
        topic_names,
        topic_regex: text(&request.subscribed_topic_regex, &known.topic_regex),
        rebalance_timeout_ms: match request.rebalance_timeout_ms {
            -1 => known.rebalance_timeout_ms,
            given => given,
        },
        server_assignor: text(&request.server_assignor, &known.server_assignor),
        classic: None,
    }
}

/// The text as it is shared already, where it is the same.
fn kept(given: &str, known: &Arc<str>) -> Arc<str> {
    if **known == *given { known.clone() } else { given.into() }
}

fn verify_epoch(member: &Member, given: i32, owned: Option<&Assignment>) -> Result<(), ConsumerGroupError> {
    let current = &member.current;
    let has_only_assigned = |owned: &Assignment| {
        owned.partitions().all(|(topic_id, partition_index)| current.assigned.contains(topic_id, partition_index))
    };
    let lost_answer =
        || given < current.epoch && given == current.previous_epoch && owned.is_some_and(has_only_assigned);
    if given == 0 || given == current.epoch || lost_answer() {
        return Ok(());
    }
    Err(ConsumerGroupError::FencedMemberEpoch { given, known: current.epoch })
}

/// Takes over what became of [`Effect::ResolveRegexes`].
pub fn handle_regexes_resolved(
    group: &ConsumerGroup,
    environment: Environment<'_>,
    resolved: ResolvedRegexes,
) -> Outcome<()> {
    let mut plan = Plan::new(group, environment);
    let mut bump = false;
    let mut names: BTreeSet<&str> = group.name_counts().keys().map(AsRef::as_ref).collect();
    let resolved: Vec<(Arc<str>, ResolvedRegex)> =
        resolved.into_iter().filter(|(regex, _)| group.regex_count(regex) > 0).collect();
    if resolved.is_empty() {
        return plan.into_outcome(());
    }
    for (regex, known) in group.regexes() {
        if !resolved.iter().any(|(new, _)| new == regex) {
            names.extend(known.topic_names.iter().map(AsRef::as_ref));
        }
    }
    for (regex, new) in &resolved {
        let known = group.regexes().get(regex).map(|known| &known.topic_names);
        bump |= known.map_or(!new.topic_names.is_empty(), |known| *known != new.topic_names);
        names.extend(new.topic_names.iter().map(AsRef::as_ref));
        plan.changes.push(Change::Regex { regex: regex.clone(), resolved: Some(new.clone()) });
    }
    let metadata_hash = environment.topics.hash(&names);
    if bump || metadata_hash != group.metadata_hash() {
        let epoch = group.group_epoch() + 1;
        plan.changes.push(Change::Group(Some(GroupEpoch { epoch, metadata_hash })));
    }
    plan.into_outcome(())
}
