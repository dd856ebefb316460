//! Signs of life, and members that leave: Heartbeat 0 to 4, LeaveGroup 0 to 5, sessions that expire.

use std::sync::Arc;

use walser_protocol::ErrorCode;

use super::super::command::{Heartbeat, LeaveGroup, LeavingMember};
use super::super::context::{Context, Timer};
use super::super::coordinator::GroupCoordinator;
use super::super::reply::{LeaveGroupReply, LeftMember, Reply};
use super::super::state::Group;
use super::{ClassicGroup, ClassicMember, ClassicState};

impl GroupCoordinator {
    pub(in super::super) fn heartbeat(&mut self, heartbeat: &Heartbeat) -> ErrorCode {
        if heartbeat.group_id.is_empty() {
            return ErrorCode::InvalidGroupId;
        }
        match self.group_mut(&heartbeat.group_id) {
            Some((Group::Classic(group), mut context)) => {
                group.heartbeat(&mut context, heartbeat).err().unwrap_or(ErrorCode::None)
            }
            Some((Group::Consumer(_), _)) => self.heartbeat_of_classic_member(heartbeat),
            None => ErrorCode::UnknownMemberId,
        }
    }

    pub(in super::super) fn leave_group(&mut self, leave: &LeaveGroup) -> Reply {
        if leave.group_id.is_empty() {
            return Reply::LeaveGroup(LeaveGroupReply { error: ErrorCode::InvalidGroupId, members: Vec::new() });
        }
        let members = match self.group_mut(&leave.group_id) {
            Some((Group::Classic(group), mut context)) => group.leave(&mut context, &leave.members),
            Some((Group::Consumer(_), _)) => return Reply::LeaveGroup(self.leave_by_classic_protocol(leave)),
            None => leave.members.iter().map(|member| LeftMember::new(member, ErrorCode::UnknownMemberId)).collect(),
        };
        Reply::LeaveGroup(LeaveGroupReply { error: ErrorCode::None, members })
    }

    /// A member has been silent for too long.
    pub(in super::super) fn expire_classic_session(&mut self, group_id: &str, member_id: &str) {
        if let Some((Group::Classic(group), mut context)) = self.group_mut(group_id) {
            group.expire_session(&mut context, member_id);
        }
    }
}

impl ClassicGroup {
    fn heartbeat(&mut self, context: &mut Context<'_>, heartbeat: &Heartbeat) -> Result<(), ErrorCode> {
        self.validate_member(&heartbeat.member_id, heartbeat.group_instance_id.as_deref())?;
        if heartbeat.generation_id != self.generation_id {
            return Err(ErrorCode::IllegalGeneration);
        }
        self.keep_alive(context, &heartbeat.member_id);
        match self.state {
            ClassicState::Empty => Err(ErrorCode::UnknownMemberId),
            ClassicState::PreparingRebalance => Err(ErrorCode::RebalanceInProgress),
            ClassicState::CompletingRebalance | ClassicState::Stable => Ok(()),
        }
    }

    /// Who commits is alive.
    pub(in super::super) fn keep_alive_by_commit(&mut self, context: &mut Context<'_>, member_id: &str) {
        if matches!(self.state, ClassicState::Stable | ClassicState::PreparingRebalance) {
            self.keep_alive(context, member_id);
        }
    }

    fn keep_alive(&mut self, context: &mut Context<'_>, member_id: &str) {
        let Some((member_id, _)) = self.members.get_key_value(member_id) else { return };
        let member_id = member_id.clone();
        if let Some(member) = self.members.get_mut(&member_id) {
            member.restart_session(context, &self.group_id, &member_id);
        }
    }

    fn leave(&mut self, context: &mut Context<'_>, members: &[LeavingMember]) -> Vec<LeftMember> {
        let left: Vec<_> =
            members.iter().map(|member| LeftMember::new(member, self.leave_one(context, member))).collect();
        if left.iter().any(|member| !member.error.is_error()) {
            match self.state {
                ClassicState::Stable | ClassicState::CompletingRebalance => self.rebalance_or_complete_join(context),
                ClassicState::PreparingRebalance => self.complete_join_if_all_joined(context),
                ClassicState::Empty => {}
            }
        }
        left
    }

    /// An admin names a static member by its instance id alone.
    fn leave_one(&mut self, context: &mut Context<'_>, member: &LeavingMember) -> ErrorCode {
        let instance_id = member.group_instance_id.as_deref();
        let member_id: Arc<str> = if member.member_id.is_empty() {
            match instance_id.and_then(|instance_id| self.static_members.get(instance_id)) {
                Some(member_id) => member_id.clone(),
                None => return ErrorCode::UnknownMemberId,
            }
        } else {
            member.member_id.as_str().into()
        };
        if !self.pending_members.contains_key(&member_id)
            && let Err(error) = self.validate_member(&member_id, instance_id)
        {
            return error;
        }
        self.remove(context, &member_id);
        ErrorCode::None
    }

    /// Who waits for an answer is excused, but for new members: their first wait is bounded.
    fn expire_session(&mut self, context: &mut Context<'_>, member_id: &str) {
        if self.pending_members.contains_key(member_id) {
            self.remove(context, member_id);
            if self.state == ClassicState::PreparingRebalance && self.has_all_joined() {
                self.complete_join(context);
            }
            return;
        }
        let Some(member) = self.members.get_mut(member_id) else { return };
        member.session_timer = None;
        if !member.is_new && member.is_waiting() {
            return;
        }
        self.remove(context, member_id);
        match self.state {
            ClassicState::Stable | ClassicState::CompletingRebalance => self.rebalance_or_complete_join(context),
            ClassicState::PreparingRebalance if self.has_all_joined() => self.complete_join(context),
            ClassicState::PreparingRebalance | ClassicState::Empty => {}
        }
    }
}

impl ClassicMember {
    /// The session begins anew.
    pub(super) fn restart_session(&mut self, context: &mut Context<'_>, group_id: &Arc<str>, member_id: &Arc<str>) {
        self.restart_session_of(context, self.session_timeout_ms, group_id, member_id);
    }

    pub(super) fn restart_session_of(
        &mut self,
        context: &mut Context<'_>,
        timeout_ms: i32,
        group_id: &Arc<str>,
        member_id: &Arc<str>,
    ) {
        let timer = Timer::ClassicSession { group_id: group_id.clone(), member_id: member_id.clone() };
        context.schedule(&mut self.session_timer, timeout_ms, timer);
    }
}
