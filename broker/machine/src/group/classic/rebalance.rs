//! The join phase: how it begins, how long it lasts, and what the next generation follows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use walser_protocol::messages::records::consumer_protocol::ConsumerProtocolSubscription;
use walser_protocol::{ErrorCode, Reader};

use super::super::context::{Context, Timer};
use super::super::coordinator::GroupCoordinator;
use super::super::reply::Reply;
use super::super::state::Group;
use super::{ClassicGroup, ClassicMember, ClassicState};

/// Of the first rebalance of an empty group: it waits a little, and a little longer while members keep coming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InitialDelay {
    delay_ms: i32,
    /// Left of the rebalance timeout of whoever came first.
    remaining_ms: i32,
}

impl GroupCoordinator {
    /// The join phase of a group has lasted long enough.
    pub(in super::super) fn expire_classic_join(&mut self, group_id: &str) {
        if let Some((Group::Classic(group), mut context)) = self.group_mut(group_id) {
            group.join_timer = None;
            match group.initial_delay.take() {
                Some(delay) => group.extend_initial_delay(&mut context, delay),
                None => group.complete_join(&mut context),
            }
        }
    }
}

impl ClassicGroup {
    /// Something has changed: whoever is in a generation begins a new one; a join phase may be over now.
    pub(super) fn rebalance_or_complete_join(&mut self, context: &mut Context<'_>) {
        match self.state {
            ClassicState::Empty | ClassicState::Stable | ClassicState::CompletingRebalance => {
                self.prepare_rebalance(context);
            }
            ClassicState::PreparingRebalance => self.complete_join_if_all_joined(context),
        }
    }

    /// Begins a join phase.
    pub(super) fn prepare_rebalance(&mut self, context: &mut Context<'_>) {
        if self.state == ClassicState::CompletingRebalance {
            self.fail_syncs(context, ErrorCode::RebalanceInProgress);
        }
        self.pending_sync.clear();
        context.cancel(&mut self.sync_timer);
        let is_initial = self.state == ClassicState::Empty;
        self.transition_to(ClassicState::PreparingRebalance, context.now);
        if is_initial {
            let delay_ms = context.settings.group_initial_rebalance_delay_ms;
            let remaining_ms = self.rebalance_timeout_ms().saturating_sub(delay_ms).max(0);
            self.begin_initial_delay(context, InitialDelay { delay_ms, remaining_ms });
        } else if self.has_all_joined() {
            self.complete_join(context);
        } else {
            self.schedule_join(context, self.rebalance_timeout_ms());
        }
    }

    fn begin_initial_delay(&mut self, context: &mut Context<'_>, delay: InitialDelay) {
        self.initial_delay = Some(delay);
        self.schedule_join(context, delay.delay_ms);
    }

    fn extend_initial_delay(&mut self, context: &mut Context<'_>, delay: InitialDelay) {
        if !self.is_member_added || delay.remaining_ms == 0 {
            return self.complete_join(context);
        }
        self.is_member_added = false;
        let delay_ms = context.settings.group_initial_rebalance_delay_ms.min(delay.remaining_ms);
        let remaining_ms = delay.remaining_ms.saturating_sub(delay.delay_ms).max(0);
        self.begin_initial_delay(context, InitialDelay { delay_ms, remaining_ms });
    }

    fn schedule_join(&mut self, context: &mut Context<'_>, delay_ms: i32) {
        let timer = Timer::ClassicJoin { group_id: self.group_id.clone() };
        context.schedule(&mut self.join_timer, delay_ms, timer);
    }

    pub(super) fn has_all_joined(&self) -> bool {
        self.members.len() == self.awaiting_join && self.pending_members.is_empty()
    }

    /// The first rebalance of an empty group waits out its delay even so.
    pub(super) fn complete_join_if_all_joined(&mut self, context: &mut Context<'_>) {
        let is_initial = self.previous_state == ClassicState::Empty;
        if self.state == ClassicState::PreparingRebalance && !is_initial && self.has_all_joined() {
            self.complete_join(context);
        }
    }

    /// Ends the join phase without the dynamic members that have not joined; static ones stay, whatever they do.
    pub(super) fn complete_join(&mut self, context: &mut Context<'_>) {
        context.cancel(&mut self.join_timer);
        self.initial_delay = None;
        let is_lost = |member: &ClassicMember| member.awaiting_join.is_none() && member.group_instance_id.is_none();
        let lost = self.members.iter().filter(|(_, member)| is_lost(member));
        let lost: Vec<Arc<str>> = lost.map(|(member_id, _)| member_id.clone()).collect();
        lost.iter().for_each(|member_id| self.remove(context, member_id));
        if self.members.is_empty() {
            return self.become_empty(context);
        }
        if !self.elect_joined_leader() {
            // Nobody is there but static members that have not joined: they get as long again.
            return self.schedule_join(context, self.rebalance_timeout_ms());
        }
        self.begin_generation(context);
    }

    fn become_empty(&mut self, context: &mut Context<'_>) {
        self.next_generation();
        self.protocol_name = None;
        self.subscribed_topics = self.read_subscribed_topics();
        self.transition_to(ClassicState::Empty, context.now);
        self.pending_sync.clear();
        // Where the log cannot even take a group without members, the next coordinator finds it as it last was, and its
        // sessions end there.
        context.append_image(self.record()).unwrap_or_default();
    }

    fn begin_generation(&mut self, context: &mut Context<'_>) {
        self.next_generation();
        self.protocol_name = self.select_protocol();
        self.subscribed_topics = self.read_subscribed_topics();
        self.transition_to(ClassicState::CompletingRebalance, context.now);
        self.pending_sync = self.members.keys().cloned().collect();
        let ids: Vec<Arc<str>> = self.members.keys().cloned().collect();
        for member_id in ids {
            let reply = self.joined(&member_id);
            let Some(member) = self.members.get_mut(&member_id) else { continue };
            if let Some(request) = member.awaiting_join.take() {
                self.awaiting_join -= 1;
                context.reply(request, Reply::JoinGroup(reply));
            }
            member.is_new = false;
            member.restart_session(context, &self.group_id, &member_id);
        }
        let timer = Timer::ClassicSync { group_id: self.group_id.clone() };
        let timeout_ms = self.rebalance_timeout_ms();
        context.schedule(&mut self.sync_timer, timeout_ms, timer);
    }

    fn next_generation(&mut self) {
        // After two thousand million rebalances it begins anew, for no client takes a negative one.
        self.generation_id = self.generation_id.checked_add(1).unwrap_or(0);
    }

    /// A leader that has not joined gives way to a member that has. Whether there is a leader now that has joined.
    fn elect_joined_leader(&mut self) -> bool {
        let has_joined =
            |member_id: &Arc<str>| self.members.get(member_id).is_some_and(|member| member.awaiting_join.is_some());
        if self.leader.as_ref().is_some_and(has_joined) {
            return true;
        }
        let joined = self.members.keys().find(|member_id| has_joined(member_id)).cloned();
        let is_found = joined.is_some();
        self.leader = joined.or(self.leader.take());
        is_found
    }

    /// What most members prefer of what all of them support. `None` only where no protocol is common to all, which no member can
    /// bring about by joining.
    pub(super) fn select_protocol(&self) -> Option<String> {
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        let is_common = |name: &str| self.supported.get(name) == Some(&self.members.len());
        for member in self.members.values() {
            let preferred = member.protocols.iter().find(|protocol| is_common(&protocol.name));
            if let Some(protocol) = preferred {
                *votes.entry(&protocol.name).or_default() += 1;
            }
        }
        // Of equal ones the first in the order in which Kafka's hash table has them.
        let ranked = votes.iter().max_by_key(|(name, count)| (**count, std::cmp::Reverse(java_hash_bucket(name))));
        ranked.map(|(name, _)| (*name).to_owned())
    }

    /// The topics that the members' subscriptions name, where they are consumers and all can be read.
    pub(super) fn read_subscribed_topics(&self) -> Option<BTreeSet<String>> {
        if !self.uses_consumer_protocol() {
            return None;
        }
        if self.members.is_empty() {
            return Some(BTreeSet::new());
        }
        let protocol_name = self.protocol_name.as_deref()?;
        let mut topics = BTreeSet::new();
        for member in self.members.values() {
            let metadata = member.metadata(protocol_name);
            let mut reader = Reader::new(&metadata);
            // Later versions only add fields at the end.
            let version = reader.i16("version").ok()?;
            let subscription = ConsumerProtocolSubscription::decode(&mut reader, 0).ok().filter(|_| version >= 0)?;
            topics.extend(subscription.topics.iter().map(|topic| (*topic).to_owned()));
        }
        Some(topics)
    }
}

/// Where `java.util.HashMap` with its first sixteen buckets keeps a string. Groups of consumers that cannot agree must choose as
/// they did with Kafka.
fn java_hash_bucket(text: &str) -> u32 {
    let hash = text.encode_utf16().fold(0_u32, |hash, unit| hash.wrapping_mul(31).wrapping_add(u32::from(unit)));
    (hash ^ (hash >> 16)) % 16
}
