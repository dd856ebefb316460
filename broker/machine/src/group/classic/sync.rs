//! SyncGroup, versions 0 to 5: the leader's assignment goes to the log, and from there to everybody.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use walser_protocol::ErrorCode;

use super::super::command::{MemberAssignment, RequestId, SyncGroup};
use super::super::context::Context;
use super::super::coordinator::GroupCoordinator;
use super::super::reply::{Reply, SyncGroupReply};
use super::super::state::Group;
use super::{ClassicGroup, ClassicState};

impl GroupCoordinator {
    pub(in super::super) fn sync_group(&mut self, request: RequestId, sync: SyncGroup) {
        let error = if sync.group_id.is_empty() {
            ErrorCode::InvalidGroupId
        } else {
            match self.group_mut(&sync.group_id) {
                Some((Group::Classic(group), mut context)) => return group.sync(&mut context, request, sync),
                Some((Group::Consumer(_), _)) => return self.sync_in_consumer_group(request, &sync),
                None => ErrorCode::UnknownMemberId,
            }
        };
        self.reply(request, Reply::SyncGroup(SyncGroupReply::failed(error)));
    }

    /// Members of a group have had long enough to fetch their assignments.
    pub(in super::super) fn expire_classic_sync(&mut self, group_id: &str) {
        if let Some((Group::Classic(group), mut context)) = self.group_mut(group_id) {
            group.sync_timer = None;
            group.remove_unsynced(&mut context);
        }
    }
}

impl ClassicGroup {
    fn sync(&mut self, context: &mut Context<'_>, request: RequestId, sync: SyncGroup) {
        let fail = |context: &mut Context<'_>, error| {
            context.reply(request, Reply::SyncGroup(SyncGroupReply::failed(error)));
        };
        if let Err(error) = self.validate_sync(&sync) {
            return fail(context, error);
        }
        match self.state {
            ClassicState::Empty => fail(context, ErrorCode::UnknownMemberId),
            ClassicState::PreparingRebalance => fail(context, ErrorCode::RebalanceInProgress),
            ClassicState::CompletingRebalance => {
                self.await_sync(context, request, &sync.member_id);
                self.note_synced(context, &sync.member_id);
                if self.is_leader(&sync.member_id) {
                    self.assign(context, sync.assignments);
                }
            }
            ClassicState::Stable => {
                self.note_synced(context, &sync.member_id);
                let assignment = self.members.get(&*sync.member_id).map(|member| member.assignment.clone());
                let reply = self.synced(assignment.unwrap_or_default());
                context.reply(request, Reply::SyncGroup(reply));
            }
        }
    }

    fn validate_sync(&self, sync: &SyncGroup) -> Result<(), ErrorCode> {
        if self.is_empty() {
            return Err(ErrorCode::UnknownMemberId);
        }
        self.validate_member(&sync.member_id, sync.group_instance_id.as_deref())?;
        if sync.generation_id != self.generation_id {
            return Err(ErrorCode::IllegalGeneration);
        }
        let differs =
            |said: &Option<String>, known: &Option<String>| said.is_some() && known.is_some() && said != known;
        let is_inconsistent =
            differs(&sync.protocol_type, &self.protocol_type) || differs(&sync.protocol_name, &self.protocol_name);
        if is_inconsistent { Err(ErrorCode::InconsistentGroupProtocol) } else { Ok(()) }
    }

    /// The member waits with this request; one it waited with before will not hear of the group any more.
    fn await_sync(&mut self, context: &mut Context<'_>, request: RequestId, member_id: &str) {
        let Some(member) = self.members.get_mut(member_id) else { return };
        if let Some(former) = member.awaiting_sync.replace(request) {
            let reply = SyncGroupReply::failed(ErrorCode::RebalanceInProgress);
            context.reply(former, Reply::SyncGroup(reply));
        }
    }

    fn note_synced(&mut self, context: &mut Context<'_>, member_id: &str) {
        self.pending_sync.remove(member_id);
        if self.pending_sync.is_empty() {
            context.cancel(&mut self.sync_timer);
        }
    }

    /// The generation is settled: logged, then told to whoever asks or waits. Members the leader forgot get nothing.
    fn assign(&mut self, context: &mut Context<'_>, assignments: Vec<MemberAssignment>) {
        let mut assignments: BTreeMap<String, Bytes> =
            assignments.into_iter().map(|assigned| (assigned.member_id, assigned.assignment)).collect();
        for (member_id, member) in &mut self.members {
            member.assignment = assignments.remove(&**member_id).unwrap_or_default();
        }
        if let Err(refused) = context.append_image(self.record()) {
            self.fail_syncs(context, refused.into());
            return self.prepare_rebalance(context);
        }
        self.transition_to(ClassicState::Stable, context.now);
        let ids: Vec<Arc<str>> = self.members.keys().cloned().collect();
        for member_id in ids {
            let Some(member) = self.members.get(&member_id) else { continue };
            let reply = self.synced(member.assignment.clone());
            let Some(member) = self.members.get_mut(&member_id) else { continue };
            if let Some(request) = member.awaiting_sync.take() {
                context.reply(request, Reply::SyncGroup(reply));
                member.restart_session(context, &self.group_id, &member_id);
            }
        }
    }

    fn synced(&self, assignment: Bytes) -> SyncGroupReply {
        SyncGroupReply {
            error: ErrorCode::None,
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol_name.clone(),
            assignment,
        }
    }

    /// There will be no assignment of this generation.
    pub(super) fn fail_syncs(&mut self, context: &mut Context<'_>, error: ErrorCode) {
        for (member_id, member) in &mut self.members {
            member.assignment = Bytes::new();
            if let Some(request) = member.awaiting_sync.take() {
                context.reply(request, Reply::SyncGroup(SyncGroupReply::failed(error)));
                member.restart_session(context, &self.group_id, member_id);
            }
        }
    }

    /// Whoever has not fetched its assignment in time is gone.
    fn remove_unsynced(&mut self, context: &mut Context<'_>) {
        let is_assigned = matches!(self.state, ClassicState::CompletingRebalance | ClassicState::Stable);
        if !is_assigned || self.pending_sync.is_empty() {
            return;
        }
        let unsynced = std::mem::take(&mut self.pending_sync);
        unsynced.iter().for_each(|member_id| self.remove(context, member_id));
        self.prepare_rebalance(context);
    }
}
