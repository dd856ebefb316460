//! Members of a consumer group that speak the classic protocol: while a group moves from one protocol to the other, some do.
//!
//! The coordinator assigns, so nobody leads: JoinGroup takes the member's step towards its target and answers with its epoch as
//! the generation, SyncGroup hands out what it has, and Heartbeat tells it to join again when there is more to be done. A
//! member that is told so and does not join, or joins and does not sync, within its rebalance timeout is removed.

use std::sync::Arc;

use walser_protocol::ErrorCode;

use super::embedded;
use super::error::ConsumerGroupError;
use super::group::ConsumerGroup;
use super::member::{ClassicMember, ClassicProtocol, Member, MemberState, Subscription};
use super::plan::{Downgrade, Effect, Environment, Outcome, Plan, Reconciliation, TimerKind, subscribed_names};
use super::target::{MemberTarget, may_compute};
use crate::group::CONSUMER_PROTOCOL_TYPE;
use crate::group::assignor::Assignment;
use crate::group::command::{Heartbeat, JoinGroup, LeavingMember, SyncGroup};
use crate::group::reply::{JoinGroupReply, LeftMember, SyncGroupReply};
use crate::group::settings::MigrationPolicy;

/// From here on a member is given its id first, and joins with it (KIP-394).
const MEMBER_ID_REQUIRED_VERSION: i16 = 4;

/// JoinGroup of a group that has members.
pub fn handle_join(
    group: &ConsumerGroup,
    environment: Environment<'_>,
    join: &JoinGroup,
) -> Result<Outcome<JoinGroupReply>, ConsumerGroupError> {
    let mut plan = Plan::new(group, environment);
    plan.verify_may_join(join)?;
    let instance_id = join.group_instance_id.as_deref();
    let existing = instance_id.and_then(|instance_id| group.static_member(instance_id));
    let before = plan.find_joining(join)?;
    let first = join.protocols.first().ok_or(ConsumerGroupError::InconsistentGroupProtocol)?;
    let embedded = embedded::subscription(&first.metadata);
    let embedded = embedded.map_err(|_| ConsumerGroupError::InconsistentGroupProtocol)?;
    let topic_names = embedded.topics.iter().map(|name| Arc::from(*name)).collect();
    let owned = embedded::owned_partitions(&embedded, environment.topics);

    let mut member = before.clone();
    member.subscription = updated(&before.subscription, join, embedded.rack_id);
    if topic_names != *before.subscription.topic_names {
        member.subscription.topic_names = Arc::new(topic_names);
    }
    let changed = plan.note_subscription(&before, &member)?.changed;
    let mut group_epoch = group.group_epoch();
    if changed || group.is_hash_outdated(environment.topics) {
        let names = subscribed_names(group, &before.subscription, &member.subscription);
        group_epoch = plan.update_metadata(changed, &names);
        plan.effects.push(Effect::Hashed { group_epoch });
    }
    let step = |target_epoch, target: &Arc<Assignment>| (target_epoch, target.clone());
    let downgrades = existing.is_some_and(|existing| plan.may_downgrade_for(existing));
    let (target_epoch, target) = if downgrades {
        step(group.target_epoch().epoch, &group.target(&member.member_id, instance_id))
    } else {
        let MemberTarget { epoch, assignment } = plan.update_target(group_epoch, &before, &member)?;
        step(epoch, &assignment)
    };
    // A group that goes over with an assignment that is out of date rebalances anyway.
    let is_stale = downgrades && target_epoch < group_epoch;
    if !is_stale {
        let owned = Some(&owned);
        let reconciliation = Reconciliation { target_epoch, target: &target, subscription_changed: changed, owned };
        plan.reconcile(&mut member, &reconciliation)?;
    }
    if downgrades {
        plan.downgrade = Some(Downgrade { leaving: Default::default(), rebalances: is_stale });
    } else {
        plan.cancel(&member.member_id, TimerKind::Join);
        plan.schedule(&member.member_id, TimerKind::Session, join.session_timeout_ms);
        plan.schedule(&member.member_id, TimerKind::Sync, join.rebalance_timeout_ms);
    }
    let reply = JoinGroupReply {
        error: ErrorCode::None,
        generation_id: member.current.epoch,
        protocol_type: Some(CONSUMER_PROTOCOL_TYPE.to_owned()),
        protocol_name: Some(first.name.clone()),
        leader: String::new(),
        skip_assignment: false,
        member_id: member.member_id.to_string(),
        members: Vec::new(),
    };
    Ok(plan.into_outcome(reply))
}

/// SyncGroup: what the member has.
pub fn handle_sync(
    group: &ConsumerGroup,
    environment: Environment<'_>,
    sync: &SyncGroup,
) -> (Vec<Effect>, Result<SyncGroupReply, ConsumerGroupError>) {
    let mut plan = Plan::new(group, environment);
    let reply = plan.sync(sync);
    (plan.effects, reply)
}

/// Heartbeat: a sign of life, and whether the member has to join again.
pub fn handle_heartbeat(
    group: &ConsumerGroup,
    environment: Environment<'_>,
    heartbeat: &Heartbeat,
) -> (Vec<Effect>, Result<(), ConsumerGroupError>) {
    let mut plan = Plan::new(group, environment);
    let verdict = plan.beat(heartbeat);
    (plan.effects, verdict)
}

/// LeaveGroup, members of either protocol.
pub fn handle_leave(
    group: &ConsumerGroup,
    environment: Environment<'_>,
    members: &[LeavingMember],
) -> Outcome<Vec<LeftMember>> {
    let mut plan = Plan::new(group, environment);
    let mut leaving: Vec<&Member> = Vec::new();
    let mut left = Vec::new();
    for named in members {
        let error = match find_leaving(group, named) {
            Ok(member) => {
                if !leaving.iter().any(|known| known.member_id == member.member_id) {
                    leaving.push(member);
                }
                ErrorCode::None
            }
            Err(error) => ErrorCode::from(&error),
        };
        left.push(LeftMember::new(named, error));
    }
    plan.fence(&leaving);
    plan.into_outcome(left)
}

/// An admin names a static member by its instance id alone.
fn find_leaving<'g>(group: &'g ConsumerGroup, named: &LeavingMember) -> Result<&'g Member, ConsumerGroupError> {
    let unknown = || ConsumerGroupError::UnknownMemberId { member_id: named.member_id.clone() };
    let Some(instance_id) = &named.group_instance_id else {
        return group.member(&named.member_id).ok_or_else(unknown);
    };
    let member = group.static_member(instance_id).ok_or_else(unknown)?;
    if !named.member_id.is_empty() && *named.member_id != *member.member_id {
        let owner = member.member_id.clone();
        return Err(ConsumerGroupError::FencedInstanceId { instance_id: instance_id.clone(), owner });
    }
    Ok(member)
}

impl<'a> Plan<'a> {
    fn verify_may_join(&self, join: &JoinGroup) -> Result<(), ConsumerGroupError> {
        if self.environment.settings.migration_policy == MigrationPolicy::Disabled {
            return Err(ConsumerGroupError::InconsistentGroupProtocol);
        }
        self.verify_not_full(&join.member_id, join.group_instance_id.as_deref())?;
        let supports = |name: &str| self.group.supports_classic_protocol(name);
        let is_supported = join.protocols.iter().any(|protocol| supports(&protocol.name));
        if join.protocol_type != CONSUMER_PROTOCOL_TYPE || !is_supported {
            return Err(ConsumerGroupError::InconsistentGroupProtocol);
        }
        let is_unnamed = join.member_id.is_empty() && join.group_instance_id.is_none();
        if is_unnamed && join.api_version >= MEMBER_ID_REQUIRED_VERSION {
            return Err(ConsumerGroupError::MemberIdRequired { member_id: join.member_uuid.to_string() });
        }
        Ok(())
    }

    fn find_joining(&mut self, join: &JoinGroup) -> Result<Member, ConsumerGroupError> {
        let is_unnamed = join.member_id.is_empty();
        let member_id: Arc<str> =
            if is_unnamed { join.member_uuid.to_string().into() } else { join.member_id.as_str().into() };
        match &join.group_instance_id {
            None => self.dynamic_member(member_id, true),
            Some(instance_id) if is_unnamed => self.joining_static_member(&member_id, instance_id, true),
            Some(instance_id) => self.static_member(&member_id, instance_id).cloned(),
        }
    }

    /// Whether the group becomes a classic one when a classic member takes the place of this one.
    fn may_downgrade_for(&self, replaced: &Member) -> bool {
        !replaced.uses_classic_protocol()
            && self.group.is_classic_without(&[replaced])
            && self.environment.allows_downgrade_of(self.group.member_count())
    }

    fn sync(&mut self, sync: &SyncGroup) -> Result<SyncGroupReply, ConsumerGroupError> {
        let (member, classic) = self.find_classic(&sync.member_id, sync.group_instance_id.as_deref())?;
        verify_generation(member, sync.generation_id)?;
        let first = classic.protocols.first().ok_or(ConsumerGroupError::InconsistentGroupProtocol)?;
        let is_other = |named: &Option<String>, known: &str| named.as_deref().is_some_and(|named| named != known);
        if is_other(&sync.protocol_type, CONSUMER_PROTOCOL_TYPE) || is_other(&sync.protocol_name, &first.name) {
            return Err(ConsumerGroupError::InconsistentGroupProtocol);
        }
        let rebalance_timeout_ms = member.subscription.rebalance_timeout_ms;
        let is_behind = self.group.target_epoch().epoch > member.current.epoch;
        if is_behind && member.current.state != MemberState::UnrevokedPartitions {
            self.schedule_if_absent(&member.member_id, TimerKind::Join, rebalance_timeout_ms);
            return Err(ConsumerGroupError::RebalanceInProgress);
        }
        self.cancel(&member.member_id, TimerKind::Sync);
        self.schedule(&member.member_id, TimerKind::Session, classic.session_timeout_ms);
        let version = embedded::version(&first.metadata).unwrap_or(0);
        let assigned = member.current.assigned.without_epochs();
        let assignment = embedded::write_assignment(&assigned, version, self.environment.topics);
        Ok(SyncGroupReply {
            error: ErrorCode::None,
            protocol_type: sync.protocol_type.clone(),
            protocol_name: sync.protocol_name.clone(),
            assignment: assignment.unwrap_or_default(),
        })
    }

    fn beat(&mut self, heartbeat: &Heartbeat) -> Result<(), ConsumerGroupError> {
        let (member, classic) = self.find_classic(&heartbeat.member_id, heartbeat.group_instance_id.as_deref())?;
        verify_generation(member, heartbeat.generation_id)?;
        self.schedule(&member.member_id, TimerKind::Session, classic.session_timeout_ms);
        let is_behind = member.current.epoch < self.group.target_epoch().epoch;
        let has_more = match member.current.state {
            MemberState::UnrevokedPartitions => true,
            MemberState::UnreleasedPartitions => !self.waits_for_others(member),
            MemberState::Stable | MemberState::Unknown => false,
        };
        if is_behind || has_more || self.is_left_to_classic_members() {
            self.schedule_if_absent(&member.member_id, TimerKind::Join, member.subscription.rebalance_timeout_ms);
            return Err(ConsumerGroupError::RebalanceInProgress);
        }
        Ok(())
    }

    /// Whether a new target assignment is due and no heartbeat of the consumer protocol will bring it. Kafka waits for somebody
    /// to join, and leaves the partitions of a member that has gone unread until then.
    fn is_left_to_classic_members(&self) -> bool {
        let last = self.group.target_epoch();
        let is_due = self.group.group_epoch() > last.epoch && may_compute(last, &self.environment);
        is_due && self.group.is_classic_without(&[])
    }

    /// Whether something of the member's target is still with others.
    fn waits_for_others(&self, member: &Member) -> bool {
        let target = self.group.target(&member.member_id, None);
        let is_missing = |(topic_id, index)| {
            !member.current.assigned.contains(topic_id, index) && self.group.is_owned(topic_id, index)
        };
        target.partitions().any(is_missing)
    }

    fn find_classic(
        &self,
        member_id: &str,
        instance_id: Option<&str>,
    ) -> Result<(&'a Member, &'a ClassicMember), ConsumerGroupError> {
        let group = self.group;
        let member = match instance_id {
            None => {
                let unknown = || ConsumerGroupError::UnknownMemberId { member_id: member_id.to_owned() };
                group.member(member_id).ok_or_else(unknown)?
            }
            Some(instance_id) => self.static_member(member_id, instance_id)?,
        };
        let classic = member.subscription.classic.as_deref().ok_or(ConsumerGroupError::NotClassic)?;
        Ok((member, classic))
    }
}

fn verify_generation(member: &Member, given: i32) -> Result<(), ConsumerGroupError> {
    if member.current.epoch == given {
        return Ok(());
    }
    Err(ConsumerGroupError::IllegalGeneration { given, reason: "the member is in another epoch" })
}

/// Everything that JoinGroup says, but the topics.
fn updated(known: &Subscription, join: &JoinGroup, rack_id: Option<&str>) -> Subscription {
    let protocols = join
        .protocols
        .iter()
        .map(|protocol| ClassicProtocol { name: protocol.name.as_str().into(), metadata: protocol.metadata.clone() });
    let classic = ClassicMember { session_timeout_ms: join.session_timeout_ms, protocols: protocols.collect() };
    Subscription {
        instance_id: join.group_instance_id.as_deref().map(Into::into).or_else(|| known.instance_id.clone()),
        rack_id: rack_id.map(Into::into).or_else(|| known.rack_id.clone()),
        client_id: join.client_id.as_str().into(),
        client_host: join.client_host.as_str().into(),
        topic_names: known.topic_names.clone(),
        topic_regex: Some("".into()),
        rebalance_timeout_ms: if join.rebalance_timeout_ms == -1 {
            known.rebalance_timeout_ms
        } else {
            join.rebalance_timeout_ms
        },
        server_assignor: known.server_assignor.clone(),
        classic: Some(Arc::new(classic)),
    }
}
