//! The state of one consumer group: what its records say, and what follows from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::member::{CurrentAssignment, EpochAssignment, LEAVE_EPOCH, Member};
use super::plan::TimerKind;
use super::records::{Change, GroupEpoch, ResolvedRegex, TargetEpoch};
use super::topics::Topics;
use crate::group::assignor::Assignment;
use crate::ids::TopicId;
use crate::timing_wheel::TimerId;

/// Of a group that has no record of its epoch yet. Not 0, for that is what members send who want to join.
const FIRST_EPOCH: GroupEpoch = GroupEpoch { epoch: 1, metadata_hash: 0 };

/// Group epoch ≥ epoch of the target assignment ≥ epoch of each member.
///
/// All but what is marked as soft comes from records and changes by [`Self::replay`] alone.
#[derive(Clone, Debug)]
pub struct ConsumerGroup {
    group_id: Arc<str>,
    group_epoch: GroupEpoch,
    members: BTreeMap<Arc<str>, Member>,
    target_epoch: TargetEpoch,
    targets: BTreeMap<Arc<str>, Arc<Assignment>>,
    regexes: BTreeMap<Arc<str>, ResolvedRegex>,
    /// A record of a type that is not written any more is to be removed.
    has_partition_metadata: bool,
    /// Who has each partition, or has not yet given it up.
    owners: BTreeMap<(TopicId, i32), Arc<str>>,
    /// Member ids by instance id.
    static_members: BTreeMap<Arc<str>, Arc<str>>,
    /// How many members subscribe to a topic by name.
    name_counts: BTreeMap<Arc<str>, usize>,
    /// How many members subscribe by a regular expression.
    regex_counts: BTreeMap<Arc<str>, usize>,
    /// How many members prefer an assignor.
    assignor_counts: BTreeMap<Arc<str>, usize>,
    classic_member_count: usize,
    /// How many members of the classic protocol support each of its assignors.
    classic_protocol_counts: BTreeMap<Arc<str>, usize>,
    /// Soft: version of the topics and group epoch for which the metadata hash was last computed.
    hashed_at: Option<(u64, i32)>,
    /// Soft: regular expressions are being resolved.
    is_resolving: bool,
    /// Soft.
    timers: BTreeMap<(Arc<str>, TimerKind), TimerId>,
}

/// As Kafka's tools print it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    Empty,
    /// The target assignment is older than the group's epoch.
    Assigning,
    /// Some member has not reached the target assignment.
    Reconciling,
    Stable,
}

impl GroupState {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Assigning => "Assigning",
            Self::Reconciling => "Reconciling",
            Self::Stable => "Stable",
        }
    }
}

/// Whether the group is still there after a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Replayed {
    Present,
    Removed,
}

impl ConsumerGroup {
    pub fn new(group_id: Arc<str>) -> Self {
        Self {
            group_id,
            group_epoch: FIRST_EPOCH,
            members: BTreeMap::new(),
            target_epoch: TargetEpoch::default(),
            targets: BTreeMap::new(),
            regexes: BTreeMap::new(),
            has_partition_metadata: false,
            owners: BTreeMap::new(),
            static_members: BTreeMap::new(),
            name_counts: BTreeMap::new(),
            regex_counts: BTreeMap::new(),
            assignor_counts: BTreeMap::new(),
            classic_member_count: 0,
            classic_protocol_counts: BTreeMap::new(),
            hashed_at: None,
            is_resolving: false,
            timers: BTreeMap::new(),
        }
    }

    /// Takes over one record of this group. What a record removes is gone, whatever the log says of its parts.
    pub fn replay(&mut self, change: &Change) -> Replayed {
        match change {
            Change::Group(Some(group_epoch)) => self.group_epoch = *group_epoch,
            Change::Group(None) => return Replayed::Removed,
            Change::PartitionMetadata { present } => self.has_partition_metadata = *present,
            Change::Member { member_id, subscription: Some(subscription) } => {
                let mut member = self.take_member(member_id);
                self.uncount_subscription(&member);
                member.subscription = subscription.clone();
                self.count_subscription(&member);
                self.members.insert(member_id.clone(), member);
            }
            Change::Member { member_id, subscription: None } => self.replay_member_removed(member_id),
            Change::Target(target_epoch) => {
                self.target_epoch = target_epoch.unwrap_or(TargetEpoch { epoch: -1, timestamp_ms: 0 });
            }
            Change::TargetMember { member_id, assignment: Some(assignment) } => {
                self.targets.insert(member_id.clone(), assignment.clone());
            }
            Change::TargetMember { member_id, assignment: None } => drop(self.targets.remove(member_id)),
            Change::CurrentMember { member_id, current: Some(current) } => {
                self.replay_current(member_id, current.clone());
            }
            Change::CurrentMember { member_id, current: None } => {
                if let Some(member) = self.members.get(member_id) {
                    let gone = CurrentAssignment {
                        epoch: LEAVE_EPOCH,
                        previous_epoch: LEAVE_EPOCH,
                        assigned: EpochAssignment::default(),
                        pending_revocation: EpochAssignment::default(),
                        ..member.current.clone()
                    };
                    self.replay_current(member_id, gone);
                }
            }
            Change::Regex { regex, resolved: Some(resolved) } => {
                self.regexes.insert(regex.clone(), resolved.clone());
            }
            Change::Regex { regex, resolved: None } => drop(self.regexes.remove(regex)),
        }
        Replayed::Present
    }

    /// Takes over records that do not remove the group.
    pub fn replay_all(&mut self, changes: &[Change]) {
        for change in changes {
            let replayed = self.replay(change);
            debug_assert_eq!(replayed, Replayed::Present);
        }
    }

    fn replay_member_removed(&mut self, member_id: &Arc<str>) {
        self.targets.remove(member_id);
        if let Some(member) = self.members.remove(member_id) {
            self.uncount_subscription(&member);
            self.uncount_owned(&member);
        }
    }

    fn replay_current(&mut self, member_id: &Arc<str>, current: CurrentAssignment) {
        let mut member = self.take_member(member_id);
        self.uncount_owned(&member);
        member.current = current;
        self.count_owned(&member);
        self.members.insert(member_id.clone(), member);
    }

    /// A new one where there is none. To be put back.
    fn take_member(&mut self, member_id: &Arc<str>) -> Member {
        self.members.remove(member_id).unwrap_or_else(|| Member::new(member_id.clone()))
    }

    fn count_subscription(&mut self, member: &Member) {
        let Member { member_id, subscription, .. } = member;
        if let Some(instance_id) = &subscription.instance_id {
            self.static_members.insert(instance_id.clone(), member_id.clone());
        }
        subscription.topic_names.iter().for_each(|name| add_one(&mut self.name_counts, name));
        subscription.regex().into_iter().for_each(|regex| add_one(&mut self.regex_counts, regex));
        subscription.server_assignor.iter().for_each(|assignor| add_one(&mut self.assignor_counts, assignor));
        if let Some(classic) = &subscription.classic {
            self.classic_member_count += 1;
            classic.protocols.iter().for_each(|protocol| add_one(&mut self.classic_protocol_counts, &protocol.name));
        }
    }

    fn uncount_subscription(&mut self, member: &Member) {
        let Member { member_id, subscription, .. } = member;
        if let Some(instance_id) = &subscription.instance_id
            && self.static_members.get(instance_id) == Some(member_id)
        {
            self.static_members.remove(instance_id);
        }
        subscription.topic_names.iter().for_each(|name| take_one(&mut self.name_counts, name));
        subscription.regex().into_iter().for_each(|regex| take_one(&mut self.regex_counts, regex));
        subscription.server_assignor.iter().for_each(|assignor| take_one(&mut self.assignor_counts, assignor));
        if let Some(classic) = &subscription.classic {
            self.classic_member_count -= 1;
            classic.protocols.iter().for_each(|protocol| take_one(&mut self.classic_protocol_counts, &protocol.name));
        }
    }

    fn count_owned(&mut self, member: &Member) {
        for partition in member.current.held() {
            self.owners.insert(partition, member.member_id.clone());
        }
    }

    fn uncount_owned(&mut self, member: &Member) {
        for partition in member.current.held() {
            // A log that was compacted in part may have named a later owner before.
            if self.owners.get(&partition) == Some(&member.member_id) {
                self.owners.remove(&partition);
            }
        }
    }

    pub fn group_id(&self) -> &Arc<str> {
        &self.group_id
    }

    pub fn group_epoch(&self) -> i32 {
        self.group_epoch.epoch
    }

    pub fn metadata_hash(&self) -> i64 {
        self.group_epoch.metadata_hash
    }

    /// Epoch and time of the target assignment.
    pub fn target_epoch(&self) -> TargetEpoch {
        self.target_epoch
    }

    pub fn has_partition_metadata(&self) -> bool {
        self.has_partition_metadata
    }

    /// Walks all members until one is found that is not reconciled.
    pub fn state(&self) -> GroupState {
        let mut members = self.members.values();
        if self.members.is_empty() {
            GroupState::Empty
        } else if self.group_epoch.epoch > self.target_epoch.epoch {
            GroupState::Assigning
        } else if members.all(|member| member.current.is_reconciled_to(self.target_epoch.epoch)) {
            GroupState::Stable
        } else {
            GroupState::Reconciling
        }
    }

    /// In the order of their ids.
    pub fn members(&self) -> impl ExactSizeIterator<Item = &Member> {
        self.members.values()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub fn member_count(&self) -> usize {
        self.members.len()
    }

    pub fn member(&self, member_id: &str) -> Option<&Member> {
        self.members.get(member_id)
    }

    pub fn static_member(&self, instance_id: &str) -> Option<&Member> {
        self.members.get(self.static_members.get(instance_id)?)
    }

    /// What the target assignment gives to the member; to the one whose place it takes, where it is a new static member.
    pub fn target(&self, member_id: &str, instance_id: Option<&str>) -> Arc<Assignment> {
        let member_id = match instance_id {
            None => Some(member_id),
            Some(instance_id) => self.static_members.get(instance_id).map(AsRef::as_ref),
        };
        member_id.and_then(|member_id| self.targets.get(member_id)).cloned().unwrap_or_default()
    }

    pub fn targets(&self) -> &BTreeMap<Arc<str>, Arc<Assignment>> {
        &self.targets
    }

    pub fn is_owned(&self, topic_id: TopicId, partition_index: i32) -> bool {
        self.owners.contains_key(&(topic_id, partition_index))
    }

    pub fn regexes(&self) -> &BTreeMap<Arc<str>, ResolvedRegex> {
        &self.regexes
    }

    /// How many members subscribe by each regular expression, resolved or not.
    pub fn regex_counts(&self) -> &BTreeMap<Arc<str>, usize> {
        &self.regex_counts
    }

    pub fn regex_count(&self, regex: &str) -> usize {
        self.regex_counts.get(regex).copied().unwrap_or(0)
    }

    pub fn name_counts(&self) -> &BTreeMap<Arc<str>, usize> {
        &self.name_counts
    }

    pub fn assignor_counts(&self) -> &BTreeMap<Arc<str>, usize> {
        &self.assignor_counts
    }

    /// Whether all members speak the classic protocol, these left aside.
    pub fn is_classic_without(&self, others: &[&Member]) -> bool {
        let classic = others.iter().filter(|member| member.uses_classic_protocol()).count();
        self.classic_member_count - classic == self.members.len() - others.len()
    }

    /// Whether every member of the classic protocol supports one of its assignors.
    pub fn supports_classic_protocol(&self, name: &str) -> bool {
        self.classic_protocol_counts.get(name).copied().unwrap_or(0) == self.classic_member_count
    }

    /// Whether a member subscribes to the topic, by name or by a regular expression.
    pub fn is_subscribed_to(&self, topic_name: &str) -> bool {
        self.name_counts.contains_key(topic_name)
            || self.regexes.values().any(|resolved| resolved.topic_names.contains(topic_name))
    }

    /// Whether topics have changed since the metadata hash was computed, or it was never computed for this epoch.
    pub fn is_hash_outdated(&self, topics: &Topics) -> bool {
        let is_current = |(version, epoch)| version == topics.version() && self.group_epoch.epoch >= epoch;
        !self.hashed_at.is_some_and(is_current)
    }

    pub(super) fn set_hashed(&mut self, topics_version: u64, group_epoch: i32) {
        self.hashed_at = Some((topics_version, group_epoch));
    }

    /// Timers of members, for the coordinator to keep.
    pub(super) fn timers_mut(&mut self) -> &mut BTreeMap<(Arc<str>, TimerKind), TimerId> {
        &mut self.timers
    }

    pub fn is_resolving(&self) -> bool {
        self.is_resolving
    }

    pub(super) fn set_resolving(&mut self, is_resolving: bool) {
        self.is_resolving = is_resolving;
    }
}

fn add_one(counts: &mut BTreeMap<Arc<str>, usize>, key: &Arc<str>) {
    *counts.entry(key.clone()).or_default() += 1;
}

fn take_one(counts: &mut BTreeMap<Arc<str>, usize>, key: &Arc<str>) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod invariants;
