//! Groups of the classic protocol: members join, the leader assigns, everybody syncs.
//!
//! | state | holds while | leaves when |
//! |---|---|---|
//! | Empty | no members; perhaps offsets | a member joins: PreparingRebalance, after an initial delay |
//! | PreparingRebalance | members are to join | all have, or the longest rebalance timeout has passed: CompletingRebalance; Empty if none is left |
//! | CompletingRebalance | the leader is to assign | its SyncGroup is logged: Stable; a member comes, changes or goes, or the rebalance timeout passes: PreparingRebalance |
//! | Stable | everybody works | a member comes, changes or goes: PreparingRebalance |
//!
//! Unlike everything else in a coordinator, a classic group lives in memory and is only mirrored to the log: when a generation
//! is assigned, when the group becomes empty, and when a static member takes the place of its former self. A coordinator that
//! loads the log finds the last of these. Members that are joining are lost with the process, and join again.
//!
//! Invariants: `awaiting_join` counts the members that wait for JoinGroup; every static member is in `static_members` under its
//! instance id and nobody else is; a pending member is no member; the leader is a member.

mod describe;
mod join;
mod migrate;
mod rebalance;
mod record;
mod session;
mod sync;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use walser_protocol::ErrorCode;

use super::CONSUMER_PROTOCOL_TYPE;
use super::command::{GroupProtocol, RequestId};
use super::context::{Context, Now};
use super::output::Output;
use super::reply::{JoinGroupReply, JoinedMember, Reply, SyncGroupReply};
use super::state::{Committer, ExpiresFrom};
use crate::timing_wheel::TimerId;

/// Where a classic group is in its rebalance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClassicState {
    Empty,
    PreparingRebalance,
    CompletingRebalance,
    Stable,
}

impl ClassicState {
    /// Kafka's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

/// A member: somebody who has joined, or is joining.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClassicMember {
    group_instance_id: Option<String>,
    client_id: String,
    client_host: String,
    rebalance_timeout_ms: i32,
    session_timeout_ms: i32,
    /// In order of preference; no name twice.
    protocols: Vec<GroupProtocol>,
    assignment: Bytes,
    /// Has never been answered a JoinGroup: it does not stay however long it waits.
    is_new: bool,
    awaiting_join: Option<RequestId>,
    awaiting_sync: Option<RequestId>,
    session_timer: Option<TimerId>,
}

/// A classic group.
#[derive(Clone, Debug)]
pub(super) struct ClassicGroup {
    group_id: Arc<str>,
    state: ClassicState,
    previous_state: ClassicState,
    /// Wall-clock time of the last change of state; `None` in records of old brokers.
    state_since_ms: Option<i64>,
    /// `None` for a simple group.
    protocol_type: Option<String>,
    protocol_name: Option<String>,
    generation_id: i32,
    leader: Option<Arc<str>>,
    members: BTreeMap<Arc<str>, ClassicMember>,
    /// Member ids by group instance id.
    static_members: BTreeMap<String, Arc<str>>,
    /// Ids given away by MEMBER_ID_REQUIRED, with their session timers.
    pending_members: BTreeMap<Arc<str>, Option<TimerId>>,
    awaiting_join: usize,
    /// How many members support a protocol.
    supported: BTreeMap<String, usize>,
    /// Who has not sent SyncGroup in this generation.
    pending_sync: BTreeSet<Arc<str>>,
    /// Of protocol type `consumer`; `None` where a subscription cannot be read.
    subscribed_topics: Option<BTreeSet<String>>,
    /// A member has come during the initial delay.
    is_member_added: bool,
    initial_delay: Option<rebalance::InitialDelay>,
    join_timer: Option<TimerId>,
    sync_timer: Option<TimerId>,
}

impl ClassicGroup {
    pub(super) fn new(group_id: &str, now_ms: i64) -> Self {
        Self {
            group_id: group_id.into(),
            state: ClassicState::Empty,
            previous_state: ClassicState::Empty,
            state_since_ms: Some(now_ms),
            protocol_type: None,
            protocol_name: None,
            generation_id: 0,
            leader: None,
            members: BTreeMap::new(),
            static_members: BTreeMap::new(),
            pending_members: BTreeMap::new(),
            awaiting_join: 0,
            supported: BTreeMap::new(),
            pending_sync: BTreeSet::new(),
            subscribed_topics: None,
            is_member_added: false,
            initial_delay: None,
            join_timer: None,
            sync_timer: None,
        }
    }

    pub(super) fn state(&self) -> ClassicState {
        self.state
    }

    pub(super) fn protocol_type(&self) -> Option<&str> {
        self.protocol_type.as_deref()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state == ClassicState::Empty
    }

    /// Never had members: it only keeps offsets.
    pub(super) fn is_simple(&self) -> bool {
        self.protocol_type.is_none() && self.is_empty() && self.pending_members.is_empty()
    }

    pub(super) fn uses_consumer_protocol(&self) -> bool {
        self.protocol_type.as_deref() == Some(CONSUMER_PROTOCOL_TYPE)
    }

    /// A group of consumers whose subscriptions cannot be read counts as subscribed to everything.
    pub(super) fn is_subscribed_to(&self, topic: &str) -> bool {
        match &self.subscribed_topics {
            Some(topics) => topics.contains(topic),
            None => self.uses_consumer_protocol(),
        }
    }

    pub(super) fn offsets_expire_from(&self) -> Option<ExpiresFrom> {
        if self.protocol_type.is_none() {
            return Some(ExpiresFrom::Commit);
        }
        match self.state {
            ClassicState::Empty => Some(self.state_since_ms.map_or(ExpiresFrom::Commit, ExpiresFrom::Time)),
            ClassicState::Stable if self.subscribed_topics.is_some() => Some(ExpiresFrom::Commit),
            ClassicState::Stable | ClassicState::PreparingRebalance | ClassicState::CompletingRebalance => None,
        }
    }

    pub(super) fn validate_offset_commit(&self, committer: &Committer<'_>) -> Result<(), ErrorCode> {
        let generation_id = committer.generation_id_or_member_epoch;
        if generation_id < 0 && self.is_empty() {
            return Ok(());
        }
        if generation_id >= 0 || !committer.member_id.is_empty() || committer.group_instance_id.is_some() {
            self.validate_member(committer.member_id, committer.group_instance_id)?;
            if generation_id != self.generation_id {
                return Err(ErrorCode::IllegalGeneration);
            }
        } else if !committer.is_transactional && !self.is_empty() {
            return Err(ErrorCode::UnknownMemberId);
        }
        if !committer.is_transactional && self.state == ClassicState::CompletingRebalance {
            return Err(ErrorCode::RebalanceInProgress);
        }
        Ok(())
    }

    /// Whether the ids name a member; of a static one, its present incarnation.
    fn validate_member(&self, member_id: &str, group_instance_id: Option<&str>) -> Result<(), ErrorCode> {
        if let Some(instance_id) = group_instance_id {
            match self.static_members.get(instance_id) {
                None => return Err(ErrorCode::UnknownMemberId),
                Some(known) if &**known != member_id => return Err(ErrorCode::FencedInstanceId),
                Some(_) => {}
            }
        }
        if self.members.contains_key(member_id) { Ok(()) } else { Err(ErrorCode::UnknownMemberId) }
    }

    fn is_leader(&self, member_id: &str) -> bool {
        self.leader.as_deref() == Some(member_id)
    }

    /// The longest any member may take to join again.
    fn rebalance_timeout_ms(&self) -> i32 {
        self.members.values().map(|member| member.rebalance_timeout_ms).max().unwrap_or(0)
    }

    fn transition_to(&mut self, state: ClassicState, now: Now) {
        self.previous_state = self.state;
        self.state = state;
        self.state_since_ms = Some(now.wall_ms);
    }

    /// All members with what they told the leader.
    fn joined_members(&self) -> Vec<JoinedMember> {
        let protocol_name = self.protocol_name.as_deref().unwrap_or_default();
        let members = self.members.iter().map(|(member_id, member)| JoinedMember {
            member_id: member_id.to_string(),
            group_instance_id: member.group_instance_id.clone(),
            metadata: member.metadata(protocol_name),
        });
        members.collect()
    }

    /// What a member of the current generation is told; the leader also who else there is.
    fn joined(&self, member_id: &str) -> JoinGroupReply {
        let is_leader = self.is_leader(member_id);
        JoinGroupReply {
            error: ErrorCode::None,
            generation_id: self.generation_id,
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol_name.clone(),
            leader: self.leader.as_deref().unwrap_or_default().to_owned(),
            skip_assignment: false,
            member_id: member_id.to_owned(),
            members: if is_leader { self.joined_members() } else { Vec::new() },
        }
    }

    pub(super) fn cancel_timers(&mut self, context: &mut Context<'_>) {
        context.cancel(&mut self.join_timer);
        context.cancel(&mut self.sync_timer);
        self.members.values_mut().for_each(|member| context.cancel(&mut member.session_timer));
        self.pending_members.values_mut().for_each(|timer| context.cancel(timer));
    }

    /// Answers everybody who waits.
    pub(super) fn unload(&mut self, output: &mut Output, error: ErrorCode) {
        for (member_id, member) in &mut self.members {
            if let Some(request) = member.awaiting_join.take() {
                output.reply(request, Reply::JoinGroup(JoinGroupReply::failed(member_id, error)));
            }
            if let Some(request) = member.awaiting_sync.take() {
                output.reply(request, Reply::SyncGroup(SyncGroupReply::failed(error)));
            }
        }
        self.awaiting_join = 0;
    }

    /// Panics where an invariant does not hold.
    #[cfg(test)]
    pub(super) fn verify(&self) {
        let waiting = self.members.values().filter(|member| member.awaiting_join.is_some()).count();
        assert_eq!(self.awaiting_join, waiting, "awaiting_join counts who waits");
        for (member_id, member) in &self.members {
            if let Some(instance_id) = &member.group_instance_id {
                assert_eq!(self.static_members.get(instance_id), Some(member_id), "static members are indexed");
            }
            assert!(!self.pending_members.contains_key(member_id), "a pending member is no member");
            assert!(member.session_timer.is_some() || member.is_waiting(), "a member that is silent expires");
        }
        let statics = self.members.values().filter(|member| member.group_instance_id.is_some()).count();
        assert_eq!(self.static_members.len(), statics, "nobody else is a static member");
        if let Some(leader) = &self.leader {
            assert!(self.members.contains_key(leader), "the leader is a member");
        }
        for (name, count) in &self.supported {
            let voters = self.members.values().filter(|member| member.supports(name)).count();
            assert_eq!(*count, voters, "votes for {name}");
        }
        match self.state {
            ClassicState::Empty => assert!(self.members.is_empty(), "an empty group has no members"),
            ClassicState::PreparingRebalance => assert!(self.join_timer.is_some(), "a join phase ends"),
            ClassicState::CompletingRebalance | ClassicState::Stable => {
                assert!(!self.members.is_empty(), "a generation has members");
                assert_eq!(self.awaiting_join, 0, "nobody joins outside of a join phase");
            }
        }
    }
}

impl ClassicMember {
    /// Empty for a protocol it does not support.
    fn metadata(&self, protocol_name: &str) -> Bytes {
        let protocol = self.protocols.iter().find(|protocol| protocol.name == protocol_name);
        protocol.map(|protocol| protocol.metadata.clone()).unwrap_or_default()
    }

    #[cfg(test)]
    fn supports(&self, protocol_name: &str) -> bool {
        self.protocols.iter().any(|protocol| protocol.name == protocol_name)
    }

    fn is_waiting(&self) -> bool {
        self.awaiting_join.is_some() || self.awaiting_sync.is_some()
    }
}

#[cfg(test)]
mod tests;
