//! What a command does to its group: changes for the log, and what is to be done beside them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::error::ConsumerGroupError;
use super::group::ConsumerGroup;
use super::member::{Member, MemberState, Subscription};
use super::reconcile::Step;
use super::records::{Change, GroupEpoch};
use super::topics::Topics;
use crate::group::assignor::Assignment;
use crate::group::settings::ConsumerGroupSettings;
use crate::ids::TopicId;

/// What commands look at beside their group.
#[derive(Clone, Copy, Debug)]
pub struct Environment<'a> {
    /// Milliseconds since 1970; may jump.
    pub wall_ms: i64,
    pub topics: &'a Topics,
    /// The group's own.
    pub settings: &'a ConsumerGroupSettings,
    /// Most members of a classic group.
    pub classic_max_size: i32,
}

impl Environment<'_> {
    /// Whether a group of so many members may become a classic one.
    pub(super) fn allows_downgrade_of(&self, member_count: usize) -> bool {
        let max = usize::try_from(self.classic_max_size).unwrap_or(0);
        self.settings.migration_policy.is_downgrade_enabled() && member_count <= max
    }
}

/// A timer of one member. Each kind runs once at most per member; starting it again replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimerKind {
    /// The member has to be heard of.
    Session,
    /// The member has to give up partitions.
    Rebalance,
    /// A member of the classic protocol has to join again.
    Join,
    /// A member of the classic protocol has to fetch its assignment.
    Sync,
}

/// What is to be done besides logging. Carried out when the command is, not when its records are durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Schedule {
        member_id: Arc<str>,
        kind: TimerKind,
        delay_ms: i32,
    },
    /// Leaves a timer that runs as it is.
    ScheduleIfAbsent {
        member_id: Arc<str>,
        kind: TimerKind,
        delay_ms: i32,
    },
    Cancel {
        member_id: Arc<str>,
        kind: TimerKind,
    },
    /// The metadata hash of this epoch of the group has been computed from the topics as they are.
    Hashed {
        group_epoch: i32,
    },
    /// To be answered with [`super::heartbeat::handle_regexes_resolved`].
    ResolveRegexes {
        regexes: BTreeSet<Arc<str>>,
    },
}

/// What a command decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome<R> {
    pub reply: R,
    /// To be logged as one, and replayed.
    pub changes: Vec<Change>,
    pub effects: Vec<Effect>,
    /// The group becomes a classic one, once `changes` are replayed: all its members speak that protocol.
    pub downgrade: Option<Downgrade>,
}

/// How a group becomes a classic one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Downgrade {
    /// Members that go with the change.
    pub leaving: BTreeSet<Arc<str>>,
    /// Whether the members have to join anew.
    pub rebalances: bool,
}

/// Changes as they accumulate. The group itself stays as it is until they are replayed.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) group: &'a ConsumerGroup,
    pub(super) environment: Environment<'a>,
    pub(super) changes: Vec<Change>,
    pub(super) effects: Vec<Effect>,
    pub(super) downgrade: Option<Downgrade>,
}

/// One step of one member.
pub(super) struct Reconciliation<'r> {
    pub(super) target_epoch: i32,
    pub(super) target: &'r Assignment,
    pub(super) subscription_changed: bool,
    /// What the member says it has.
    pub(super) owned: Option<&'r Assignment>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(group: &'a ConsumerGroup, environment: Environment<'a>) -> Self {
        Self { group, environment, changes: Vec::new(), effects: Vec::new(), downgrade: None }
    }

    pub(super) fn into_outcome<R>(self, reply: R) -> Outcome<R> {
        Outcome { reply, changes: self.changes, effects: self.effects, downgrade: self.downgrade }
    }

    pub(super) fn schedule(&mut self, member_id: &Arc<str>, kind: TimerKind, delay_ms: i32) {
        self.effects.push(Effect::Schedule { member_id: member_id.clone(), kind, delay_ms });
    }

    pub(super) fn schedule_if_absent(&mut self, member_id: &Arc<str>, kind: TimerKind, delay_ms: i32) {
        self.effects.push(Effect::ScheduleIfAbsent { member_id: member_id.clone(), kind, delay_ms });
    }

    pub(super) fn cancel(&mut self, member_id: &Arc<str>, kind: TimerKind) {
        self.effects.push(Effect::Cancel { member_id: member_id.clone(), kind });
    }

    /// A new epoch of the group if `bump`, or if the topics it subscribes to have changed. Gives the group's epoch.
    pub(super) fn update_metadata(&mut self, bump: bool, names: &BTreeSet<&str>) -> i32 {
        let metadata_hash = self.environment.topics.hash(names);
        let mut epoch = self.group.group_epoch();
        if bump || metadata_hash != self.group.metadata_hash() {
            epoch += 1;
            self.changes.push(Change::Group(Some(GroupEpoch { epoch, metadata_hash })));
        }
        if self.group.has_partition_metadata() {
            self.changes.push(Change::PartitionMetadata { present: false });
        }
        epoch
    }

    /// Brings the member nearer to its target.
    pub(super) fn reconcile(
        &mut self,
        member: &mut Member,
        reconciliation: &Reconciliation<'_>,
    ) -> Result<(), ConsumerGroupError> {
        let Reconciliation { target_epoch, target, subscription_changed, owned } = *reconciliation;
        if !subscription_changed && member.current.is_reconciled_to(target_epoch) {
            return Ok(());
        }
        let subscribed = self.environment.topics.subscribed_ids(&member.subscription, self.group.regexes());
        let is_owned = |topic_id: TopicId, partition_index: i32| self.group.is_owned(topic_id, partition_index);
        let step = Step {
            current: &member.current,
            target_epoch,
            target,
            subscribed: &subscribed,
            subscription_changed,
            owned,
            is_owned_by_any: &is_owned,
        };
        let next = step.next()?;
        if next == member.current {
            return Ok(());
        }
        member.current = next;
        let member_id = member.member_id.clone();
        self.changes
            .push(Change::CurrentMember { member_id: member_id.clone(), current: Some(member.current.clone()) });
        if member.current.state == MemberState::UnrevokedPartitions {
            self.schedule(&member_id, TimerKind::Rebalance, member.subscription.rebalance_timeout_ms);
        } else {
            self.cancel(&member_id, TimerKind::Rebalance);
        }
        Ok(())
    }
}

/// Names that members subscribe to, in any way, when `before` will have become `after`.
pub(super) fn subscribed_names<'n>(
    group: &'n ConsumerGroup,
    before: &Subscription,
    after: &'n Subscription,
) -> BTreeSet<&'n str> {
    let goes = |name: &Arc<str>, count: usize| {
        count == 1 && before.topic_names.contains(name) && !after.topic_names.contains(name)
    };
    let kept = group.name_counts().iter().filter(|(name, count)| !goes(name, **count));
    let mut names: BTreeSet<&str> = kept.map(|(name, _)| name.as_ref()).collect();
    names.extend(after.topic_names.iter().map(AsRef::as_ref));
    let gone = before.regex().filter(|regex| after.regex() != Some(regex) && group.regex_count(regex) == 1);
    for (_, resolved) in group.regexes().iter().filter(|(regex, _)| Some(*regex) != gone) {
        names.extend(resolved.topic_names.iter().map(AsRef::as_ref));
    }
    names
}
