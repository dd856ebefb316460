//! JoinGroup, versions 0 to 9.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use walser_protocol::ErrorCode;
use walser_protocol::types::Uuid;

use super::super::command::{GroupProtocol, JoinGroup, RequestId};
use super::super::context::{Context, Timer};
use super::super::coordinator::GroupCoordinator;
use super::super::reply::{JoinGroupReply, Reply, SyncGroupReply};
use super::super::state::Group;
use super::{ClassicGroup, ClassicMember, ClassicState};

/// From here on a member is given its id first, and joins with it (KIP-394).
const MEMBER_ID_REQUIRED_VERSION: i16 = 4;
/// From here on the leader may be told to leave the assignment as it is (KIP-814).
const SKIP_ASSIGNMENT_VERSION: i16 = 9;
/// Ids given away to members of one group that have not joined. Kafka has no bound; a flood of first joins must not fill the memory.
const PENDING_MEMBERS_MAX: usize = 10_000;
/// A dash and the text of a UUID.
const MEMBER_ID_SUFFIX_BYTES: usize = 37;
/// Of strings in all versions of the protocol and of the log.
const MEMBER_ID_BYTES_MAX: usize = i16::MAX as usize;

impl GroupCoordinator {
    pub(in super::super) fn join_group(&mut self, request: RequestId, mut join: JoinGroup) {
        let settings = self.settings();
        let sessions = settings.group_min_session_timeout_ms..=settings.group_max_session_timeout_ms;
        if join.group_id.is_empty() {
            return self.fail_join(request, &join.member_id, ErrorCode::InvalidGroupId);
        }
        if !sessions.contains(&join.session_timeout_ms) {
            return self.fail_join(request, &join.member_id, ErrorCode::InvalidSessionTimeout);
        }
        if join.api_version == 0 {
            join.rebalance_timeout_ms = join.session_timeout_ms;
        }
        let mut names = BTreeSet::new();
        join.protocols.retain(|protocol| names.insert(protocol.name.clone()));
        if matches!(self.group(&join.group_id), Some(group @ Group::Consumer(_)) if !group.is_empty()) {
            return self.join_consumer_group(request, &join);
        }
        if let Err(error) = self.make_way_for_classic_group(&join.group_id) {
            return self.fail_join(request, "", error);
        }
        let is_new_group = self.group(&join.group_id).is_none();
        if is_new_group {
            if !join.member_id.is_empty() {
                return self.fail_join(request, &join.member_id, ErrorCode::UnknownMemberId);
            }
            let group = ClassicGroup::new(&join.group_id, self.now().wall_ms);
            self.put_group(&join.group_id, Group::Classic(group));
        }
        let Some((Group::Classic(group), mut context)) = self.group_mut(&join.group_id) else { return };
        if is_new_group && let Err(refused) = context.append_image(group.empty_record()) {
            let group_id = join.group_id;
            self.remove_group(&group_id);
            return self.fail_join(request, "", refused.into());
        }
        group.join(&mut context, request, join);
    }

    fn fail_join(&mut self, request: RequestId, member_id: &str, error: ErrorCode) {
        self.reply(request, Reply::JoinGroup(JoinGroupReply::failed(member_id, error)));
    }

    /// A consumer group without members gives its name to a classic one.
    fn make_way_for_classic_group(&mut self, group_id: &str) -> Result<(), ErrorCode> {
        match self.group(group_id) {
            Some(group @ Group::Consumer(_)) => {
                let tombstones = group.tombstones(group_id);
                self.append_and_replay(tombstones).map_err(ErrorCode::from)
            }
            Some(Group::Classic(_)) | None => Ok(()),
        }
    }
}

impl ClassicGroup {
    fn join(&mut self, context: &mut Context<'_>, request: RequestId, join: JoinGroup) {
        let fail = |context: &mut Context<'_>, member_id: &str, error| {
            context.reply(request, Reply::JoinGroup(JoinGroupReply::failed(member_id, error)));
        };
        if !self.has_room_for(&join.member_id, context.settings.group_max_size) {
            self.remove(context, &join.member_id);
            return fail(context, "", ErrorCode::GroupMaxSizeReached);
        }
        if !self.supports_any(&join.protocol_type, &join.protocols) {
            return fail(context, &join.member_id, ErrorCode::InconsistentGroupProtocol);
        }
        if join.member_id.is_empty() {
            return self.join_without_id(context, request, join);
        }
        if self.pending_members.contains_key(&*join.member_id) {
            if join.group_instance_id.is_some() {
                // Only dynamic members are ever pending.
                return fail(context, "", ErrorCode::UnknownServerError);
            }
            let member_id: Arc<str> = join.member_id.as_str().into();
            return self.add_member(context, request, member_id, join);
        }
        match self.validate_member(&join.member_id, join.group_instance_id.as_deref()) {
            Ok(()) => self.rejoin(context, request, join),
            Err(error) => fail(context, &join.member_id, error),
        }
    }

    /// A member's first request.
    fn join_without_id(&mut self, context: &mut Context<'_>, request: RequestId, join: JoinGroup) {
        let prefix = join.group_instance_id.as_deref().unwrap_or(&join.client_id);
        if prefix.len() + MEMBER_ID_SUFFIX_BYTES > MEMBER_ID_BYTES_MAX {
            let reply = JoinGroupReply::failed("", ErrorCode::UnknownServerError);
            return context.reply(request, Reply::JoinGroup(reply));
        }
        if let Some(instance_id) = &join.group_instance_id {
            let member_id = new_member_id(instance_id, join.member_uuid);
            return match self.static_members.get(instance_id).cloned() {
                Some(former) => self.replace_static_member(context, request, &former, member_id, join),
                None => self.add_member(context, request, member_id, join),
            };
        }
        let member_id = new_member_id(&join.client_id, join.member_uuid);
        if join.api_version < MEMBER_ID_REQUIRED_VERSION {
            return self.add_member(context, request, member_id, join);
        }
        if self.pending_members.len() >= PENDING_MEMBERS_MAX {
            let reply = JoinGroupReply::failed("", ErrorCode::GroupMaxSizeReached);
            return context.reply(request, Reply::JoinGroup(reply));
        }
        let mut session_timer = None;
        let timer = Timer::ClassicSession { group_id: self.group_id.clone(), member_id: member_id.clone() };
        context.schedule(&mut session_timer, join.session_timeout_ms, timer);
        let reply = JoinGroupReply::failed(&member_id, ErrorCode::MemberIdRequired);
        self.pending_members.insert(member_id, session_timer);
        context.reply(request, Reply::JoinGroup(reply));
    }

    /// A known member joins again: into the rebalance that is under way, or, if it has changed or leads, into a new one.
    fn rejoin(&mut self, context: &mut Context<'_>, request: RequestId, join: JoinGroup) {
        let Some(member) = self.members.get(&*join.member_id) else { return };
        let is_same = member.protocols == join.protocols;
        let is_answered = match self.state {
            ClassicState::PreparingRebalance => false,
            ClassicState::CompletingRebalance => is_same,
            ClassicState::Stable => is_same && !self.is_leader(&join.member_id),
            ClassicState::Empty => {
                let reply = JoinGroupReply::failed(&join.member_id, ErrorCode::UnknownMemberId);
                return context.reply(request, Reply::JoinGroup(reply));
            }
        };
        if is_answered {
            return context.reply(request, Reply::JoinGroup(self.joined(&join.member_id)));
        }
        self.update_member(context, request, &join);
        self.rebalance_or_complete_join(context);
    }

    fn add_member(&mut self, context: &mut Context<'_>, request: RequestId, member_id: Arc<str>, join: JoinGroup) {
        if self.state == ClassicState::PreparingRebalance && self.previous_state == ClassicState::Empty {
            self.is_member_added = true;
        }
        if self.members.is_empty() {
            self.protocol_type = Some(join.protocol_type);
        }
        if let Some(mut timer) = self.pending_members.remove(&member_id) {
            context.cancel(&mut timer);
        }
        if let Some(instance_id) = &join.group_instance_id {
            self.static_members.insert(instance_id.clone(), member_id.clone());
        }
        let mut member = ClassicMember {
            group_instance_id: join.group_instance_id,
            client_id: join.client_id,
            client_host: join.client_host,
            rebalance_timeout_ms: join.rebalance_timeout_ms,
            session_timeout_ms: join.session_timeout_ms,
            protocols: join.protocols,
            assignment: Bytes::new(),
            is_new: true,
            awaiting_join: Some(request),
            awaiting_sync: None,
            session_timer: None,
        };
        let timeout_ms = context.settings.group_new_member_join_timeout_ms;
        member.restart_session_of(context, timeout_ms, &self.group_id, &member_id);
        self.count_protocols(&member.protocols, true);
        self.awaiting_join += 1;
        self.leader.get_or_insert_with(|| member_id.clone());
        self.members.insert(member_id, member);
        self.rebalance_or_complete_join(context);
    }

    /// The member waits with the new request; one it waited with before will not hear of the group any more.
    fn update_member(&mut self, context: &mut Context<'_>, request: RequestId, join: &JoinGroup) {
        let Some(member) = self.members.get_mut(&*join.member_id) else { return };
        match member.awaiting_join.replace(request) {
            None => self.awaiting_join += 1,
            Some(former) => {
                let reply = JoinGroupReply::failed(&join.member_id, ErrorCode::RebalanceInProgress);
                context.reply(former, Reply::JoinGroup(reply));
            }
        }
        member.rebalance_timeout_ms = join.rebalance_timeout_ms;
        member.session_timeout_ms = join.session_timeout_ms;
        let former = std::mem::replace(&mut member.protocols, join.protocols.clone());
        self.count_protocols(&former, false);
        self.count_protocols(&join.protocols, true);
    }

    /// A static member has started again and takes its place under a new id (KIP-345). In a stable group nobody else notices,
    /// as long as the group would still choose the same protocol.
    fn replace_static_member(
        &mut self,
        context: &mut Context<'_>,
        request: RequestId,
        former_id: &Arc<str>,
        member_id: Arc<str>,
        mut join: JoinGroup,
    ) {
        if !self.fits_into_log(context, &join) {
            let reply = JoinGroupReply::failed("", ErrorCode::UnknownServerError);
            return context.reply(request, Reply::JoinGroup(reply));
        }
        let Some(mut member) = self.members.remove(former_id) else { return };
        self.fence(context, former_id, &mut member);
        let former_leader = self.leader.clone();
        if self.is_leader(former_id) {
            self.leader = Some(member_id.clone());
        }
        if self.pending_sync.remove(former_id) {
            self.pending_sync.insert(member_id.clone());
        }
        if let Some(instance_id) = &join.group_instance_id {
            self.static_members.insert(instance_id.clone(), member_id.clone());
        }
        member.is_new = false;
        member.restart_session(context, &self.group_id, &member_id);
        self.members.insert(member_id.clone(), member);
        join.member_id = member_id.to_string();
        self.update_member(context, request, &join);
        match self.state {
            ClassicState::Stable if self.protocol_name == self.select_protocol() => {
                self.answer_replaced(context, request, &join, former_leader.as_deref());
            }
            ClassicState::Stable => self.rebalance_or_complete_join(context),
            ClassicState::CompletingRebalance => self.prepare_rebalance(context),
            ClassicState::PreparingRebalance | ClassicState::Empty => self.complete_join_if_all_joined(context),
        }
    }

    /// Whether the group's record with the joining member in it could be logged. Asked before anything changes.
    fn fits_into_log(&self, context: &Context<'_>, join: &JoinGroup) -> bool {
        let protocol_name = self.protocol_name.as_deref().unwrap_or_default();
        let chosen = join.protocols.iter().find(|protocol| protocol.name == protocol_name);
        let added = chosen.map_or(0, |protocol| protocol.metadata.len()) + MEMBER_ID_BYTES_MAX;
        self.state != ClassicState::Stable || self.record_bytes() + added <= context.settings.max_message_bytes
    }

    /// Whoever still speaks for the former incarnation is fenced.
    fn fence(&mut self, context: &mut Context<'_>, former_id: &str, member: &mut ClassicMember) {
        if let Some(former) = member.awaiting_join.take() {
            self.awaiting_join -= 1;
            let reply = JoinGroupReply::failed(former_id, ErrorCode::FencedInstanceId);
            context.reply(former, Reply::JoinGroup(reply));
        }
        if let Some(former) = member.awaiting_sync.take() {
            context.reply(former, Reply::SyncGroup(SyncGroupReply::failed(ErrorCode::FencedInstanceId)));
        }
    }

    /// The new incarnation goes on in the generation of the former one.
    fn answer_replaced(
        &mut self,
        context: &mut Context<'_>,
        request: RequestId,
        join: &JoinGroup,
        former_leader: Option<&str>,
    ) {
        self.subscribed_topics = self.read_subscribed_topics();
        if let Some(member) = self.members.get_mut(&*join.member_id) {
            member.awaiting_join = None;
            self.awaiting_join -= 1;
        }
        let mut reply = self.joined(&join.member_id);
        if let Err(refused) = context.append_image(self.record()) {
            reply = JoinGroupReply::failed("", refused.into());
        } else if join.api_version >= SKIP_ASSIGNMENT_VERSION {
            reply.skip_assignment = self.is_leader(&join.member_id);
        } else {
            // An old leader must not think it leads: it would assign anew what the others hold already.
            reply.leader = former_leader.unwrap_or_default().to_owned();
            reply.members = Vec::new();
        }
        context.reply(request, Reply::JoinGroup(reply));
    }

    fn has_room_for(&self, member_id: &str, size_max: i32) -> bool {
        let size_max = usize::try_from(size_max).unwrap_or(0);
        match self.state {
            ClassicState::Empty => true,
            ClassicState::PreparingRebalance => {
                let is_waiting = self.members.get(member_id).is_some_and(|member| member.awaiting_join.is_some());
                is_waiting || self.awaiting_join < size_max
            }
            ClassicState::CompletingRebalance | ClassicState::Stable => {
                self.members.contains_key(member_id) || self.members.len() < size_max
            }
        }
    }

    /// Whether every member could follow one of the protocols.
    fn supports_any(&self, protocol_type: &str, protocols: &[GroupProtocol]) -> bool {
        if self.is_empty() {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        let is_common = |name: &str| self.supported.get(name).copied().unwrap_or(0) == self.members.len();
        self.protocol_type.as_deref() == Some(protocol_type)
            && protocols.iter().any(|protocol| is_common(&protocol.name))
    }

    pub(super) fn count_protocols(&mut self, protocols: &[GroupProtocol], is_added: bool) {
        for protocol in protocols {
            let count = self.supported.entry(protocol.name.clone()).or_default();
            *count = if is_added { *count + 1 } else { count.saturating_sub(1) };
            if *count == 0 {
                self.supported.remove(&protocol.name);
            }
        }
    }

    /// Takes a member out, whatever it waits for.
    pub(super) fn remove(&mut self, context: &mut Context<'_>, member_id: &str) {
        if let Some(mut member) = self.members.remove(member_id) {
            context.cancel(&mut member.session_timer);
            self.count_protocols(&member.protocols, false);
            if let Some(instance_id) = &member.group_instance_id {
                self.static_members.remove(instance_id);
            }
            if let Some(request) = member.awaiting_join {
                self.awaiting_join -= 1;
                let reply = JoinGroupReply::failed("", ErrorCode::UnknownMemberId);
                context.reply(request, Reply::JoinGroup(reply));
            }
            if let Some(request) = member.awaiting_sync {
                let reply = SyncGroupReply::failed(ErrorCode::UnknownMemberId);
                context.reply(request, Reply::SyncGroup(reply));
            }
        }
        if let Some(mut timer) = self.pending_members.remove(member_id) {
            context.cancel(&mut timer);
        }
        self.pending_sync.remove(member_id);
        if self.is_leader(member_id) {
            self.leader = self.members.keys().next().cloned();
        }
    }
}

/// The text before it says whose it is; the random part makes it the only one.
fn new_member_id(prefix: &str, uuid: Uuid) -> Arc<str> {
    let mut member_id = String::with_capacity(prefix.len() + MEMBER_ID_SUFFIX_BYTES);
    member_id.push_str(prefix);
    for (index, byte) in uuid.as_bytes().iter().enumerate() {
        if matches!(index, 0 | 4 | 6 | 8 | 10) {
            member_id.push('-');
        }
        write!(member_id, "{byte:02x}").expect("a string takes everything");
    }
    member_id.into()
}
