//! The coordinator's side of consumer groups: finds the group, lets it decide, logs what was decided, keeps its timers.

use std::sync::Arc;

use walser_protocol::ErrorCode;

use super::classic;
use super::convert::{self, MigratingGroup, upgrade};
use super::describe::describe;
use super::error::ConsumerGroupError;
use super::group::ConsumerGroup;
use super::heartbeat::{handle_heartbeat, handle_regexes_resolved};
use super::leave::{handle_leave, handle_timeout, tombstones};
use super::member::{Member, MemberState};
use super::plan::{Downgrade, Effect, Environment, Outcome, TimerKind};
use super::records::Change;
use super::regex::ResolvedRegexes;
use super::request::{
    ConsumerGroupDescribe, ConsumerGroupHeartbeat, ConsumerGroupHeartbeatReply, DescribedConsumerGroup,
};
use crate::group::classic::ClassicGroup;
use crate::group::command::{Heartbeat, JoinGroup, LeaveGroup, RequestId, SyncGroup};
use crate::group::context::{Context, Now, Timer};
use crate::group::coordinator::GroupCoordinator;
use crate::group::output::AppendRefused;
use crate::group::record::GroupRecord;
use crate::group::reply::{JoinGroupReply, LeaveGroupReply, Reply, SyncGroupReply};
use crate::group::settings::ConsumerGroupSettings;
use crate::group::state::Group;
use crate::metadata::MetadataImage;
use crate::metadata::records::ConfigResource;

impl GroupCoordinator {
    pub(in super::super) fn consumer_group_heartbeat(
        &mut self,
        request: RequestId,
        heartbeat: &ConsumerGroupHeartbeat,
    ) -> ConsumerGroupHeartbeatReply {
        let reply = heartbeat.validate(&self.settings().consumer).and_then(|()| match heartbeat.member_epoch {
            ..0 => self.leave_consumer_group(heartbeat),
            0.. => self.heartbeat_in_consumer_group(request, heartbeat),
        });
        reply.unwrap_or_else(|error| ConsumerGroupHeartbeatReply::from(&error))
    }

    fn heartbeat_in_consumer_group(
        &mut self,
        request: RequestId,
        heartbeat: &ConsumerGroupHeartbeat,
    ) -> Result<ConsumerGroupHeartbeatReply, ConsumerGroupError> {
        let group_id = heartbeat.group_id.as_str();
        let joins = heartbeat.member_epoch == 0;
        let settings = self.settings_of(group_id);
        let environment = self.environment(&settings);
        let mut records = Vec::new();
        let mut new_group = ConsumerGroup::new(group_id.into());
        let group = match self.group(group_id) {
            Some(Group::Consumer(group)) => group,
            Some(group @ Group::Classic(classic)) if joins => {
                records.extend(group.tombstones(group_id));
                if !group.is_empty() {
                    let upgrade = upgrade(group_id, classic.migrating().as_ref(), &environment)?;
                    records.extend(upgrade.iter().map(|change| change.to_record(group_id)));
                    new_group.replay_all(&upgrade);
                }
                &new_group
            }
            None if joins => &new_group,
            Some(Group::Classic(_)) | None => return Err(not_found(group_id)),
        };
        let outcome = handle_heartbeat(group, environment, heartbeat)?;
        if let Some((Group::Classic(classic), mut context)) = self.group_mut(group_id) {
            classic.abandon_rebalance(&mut context);
        }
        let reply = self.log(group_id, Some(request), records, outcome)?;
        // Members of a classic group have gone over, and begin their sessions.
        let sessions = new_group.members().map(|member| Effect::Schedule {
            member_id: member.member_id.clone(),
            kind: TimerKind::Session,
            delay_ms: session_timeout_ms(member, &settings),
        });
        self.carry_out(group_id, None, sessions.collect());
        Ok(reply)
    }

    /// JoinGroup of a consumer group that has members.
    pub(in super::super) fn join_consumer_group(&mut self, request: RequestId, join: &JoinGroup) {
        let reply = self.joined_consumer_group(join).unwrap_or_else(|error| {
            let given =
                if let ConsumerGroupError::MemberIdRequired { member_id } = &error { Some(member_id) } else { None };
            let member_id = given.unwrap_or(&join.member_id);
            JoinGroupReply::failed(member_id, (&error).into())
        });
        self.reply(request, Reply::JoinGroup(reply));
    }

    fn joined_consumer_group(&mut self, join: &JoinGroup) -> Result<JoinGroupReply, ConsumerGroupError> {
        let group_id = join.group_id.as_str();
        let settings = self.settings_of(group_id);
        let Some(Group::Consumer(group)) = self.group(group_id) else { return Err(not_found(group_id)) };
        let outcome = classic::handle_join(group, self.environment(&settings), join)?;
        self.log(group_id, None, Vec::new(), outcome)
    }

    pub(in super::super) fn sync_in_consumer_group(&mut self, request: RequestId, sync: &SyncGroup) {
        let settings = self.settings_of(&sync.group_id);
        let Some(Group::Consumer(group)) = self.group(&sync.group_id) else { return };
        let (effects, reply) = classic::handle_sync(group, self.environment(&settings), sync);
        self.carry_out(&sync.group_id, None, effects);
        let reply = reply.unwrap_or_else(|error| SyncGroupReply::failed((&error).into()));
        self.reply(request, Reply::SyncGroup(reply));
    }

    pub(in super::super) fn heartbeat_of_classic_member(&mut self, heartbeat: &Heartbeat) -> ErrorCode {
        let settings = self.settings_of(&heartbeat.group_id);
        let Some(Group::Consumer(group)) = self.group(&heartbeat.group_id) else { return ErrorCode::UnknownMemberId };
        let (effects, verdict) = classic::handle_heartbeat(group, self.environment(&settings), heartbeat);
        self.carry_out(&heartbeat.group_id, None, effects);
        verdict.err().map_or(ErrorCode::None, |error| (&error).into())
    }

    pub(in super::super) fn leave_by_classic_protocol(&mut self, leave: &LeaveGroup) -> LeaveGroupReply {
        let settings = self.settings_of(&leave.group_id);
        let error = ErrorCode::UnknownMemberId;
        let Some(Group::Consumer(group)) = self.group(&leave.group_id) else {
            return LeaveGroupReply { error, members: Vec::new() };
        };
        let outcome = classic::handle_leave(group, self.environment(&settings), &leave.members);
        match self.log(&leave.group_id, None, Vec::new(), outcome) {
            Ok(members) => LeaveGroupReply { error: ErrorCode::None, members },
            Err(error) => LeaveGroupReply { error: (&error).into(), members: Vec::new() },
        }
    }

    fn leave_consumer_group(
        &mut self,
        heartbeat: &ConsumerGroupHeartbeat,
    ) -> Result<ConsumerGroupHeartbeatReply, ConsumerGroupError> {
        let group_id = heartbeat.group_id.as_str();
        let settings = self.settings_of(group_id);
        let Some(Group::Consumer(group)) = self.group(group_id) else { return Err(not_found(group_id)) };
        let outcome = handle_leave(group, self.environment(&settings), heartbeat)?;
        self.log(group_id, None, Vec::new(), outcome)
    }

    /// A member has let something pass that it had to do.
    pub(in super::super) fn expire_consumer(&mut self, group_id: &str, member_id: &Arc<str>, kind: TimerKind) {
        let settings = self.settings_of(group_id);
        let Some((Group::Consumer(group), _)) = self.group_mut(group_id) else { return };
        group.timers_mut().remove(&(member_id.clone(), kind));
        let Some(Group::Consumer(group)) = self.group(group_id) else { return };
        let Some(outcome) = handle_timeout(group, self.environment(&settings), member_id, kind) else { return };
        if self.log(group_id, None, Vec::new(), outcome).is_err() {
            // A few records without content, which any log takes: the member stays, and is looked at again.
            let retry = Effect::Schedule { member_id: member_id.clone(), kind, delay_ms: settings.session_timeout_ms };
            self.carry_out(group_id, None, vec![retry]);
        }
    }

    /// What became of [`crate::group::Effect::ResolveRegexes`]; `None` if it failed, so that a later heartbeat asks again.
    pub fn handle_regexes_resolved(&mut self, now: Now, group_id: &str, resolved: Option<ResolvedRegexes>) {
        self.advance(now);
        let settings = self.settings_of(group_id);
        let Some((Group::Consumer(group), _)) = self.group_mut(group_id) else { return };
        group.set_resolving(false);
        let Some(resolved) = resolved else { return };
        let Some(Group::Consumer(group)) = self.group(group_id) else { return };
        let outcome = handle_regexes_resolved(group, self.environment(&settings), resolved);
        // Names of more topics than the log takes in one batch: the group keeps what it had.
        let _logged = self.log(group_id, None, Vec::new(), outcome).is_ok();
        self.output_mut().release();
    }

    /// Consumer groups; to this request others do not exist.
    pub(in super::super) fn consumer_group_describe(
        &self,
        request: &ConsumerGroupDescribe,
    ) -> Vec<DescribedConsumerGroup> {
        let describe = |group_id: &String| match self.group(group_id) {
            Some(Group::Consumer(group)) => describe(group, &self.environment(&self.settings_of(group_id))),
            Some(Group::Classic(_)) | None if group_id.is_empty() => {
                DescribedConsumerGroup::failed(group_id, ErrorCode::InvalidGroupId, None)
            }
            Some(Group::Classic(_)) | None => {
                let message = not_found(group_id).to_string();
                DescribedConsumerGroup::failed(group_id, ErrorCode::GroupIdNotFound, Some(message))
            }
        };
        request.group_ids.iter().map(describe).collect()
    }

    fn settings_of(&self, group_id: &str) -> ConsumerGroupSettings {
        settings_of(&self.settings().consumer, self.topics().image(), group_id)
    }

    fn environment<'e>(&'e self, settings: &'e ConsumerGroupSettings) -> Environment<'e> {
        Environment {
            wall_ms: self.now().wall_ms,
            topics: self.topics(),
            settings,
            classic_max_size: self.settings().group_max_size,
        }
    }

    /// Logs and replays what a group decided, `records` before it, and does what is to be done besides.
    fn log<R>(
        &mut self,
        group_id: &str,
        request: Option<RequestId>,
        mut records: Vec<GroupRecord>,
        outcome: Outcome<R>,
    ) -> Result<R, ConsumerGroupError> {
        let Outcome { reply, changes, effects, downgrade } = outcome;
        records.extend(changes.iter().map(|change| change.to_record(group_id)));
        let classic = match &downgrade {
            Some(downgrade) => Some(self.downgraded(group_id, &changes, downgrade)?),
            None => None,
        };
        if let Some((classic, tombstones)) = &classic {
            records.extend(tombstones.iter().map(|change| change.to_record(group_id)));
            records.push(classic.migrated_record());
        }
        self.append_and_replay(records)?;
        self.carry_out(group_id, request, effects);
        if let Some(((classic, _), downgrade)) = classic.zip(downgrade) {
            // The record knows of each member only the protocol that was chosen; the members know more.
            self.put_group(group_id, Group::Classic(classic));
            if let Some((Group::Classic(classic), mut context)) = self.group_mut(group_id) {
                classic.finish_migration(&mut context, downgrade.rebalances);
            }
        }
        Ok(reply)
    }

    /// The classic group that a consumer group becomes after `changes`, and what removes the consumer group.
    fn downgraded(
        &self,
        group_id: &str,
        changes: &[Change],
        downgrade: &Downgrade,
    ) -> Result<(ClassicGroup, Vec<Change>), ConsumerGroupError> {
        let Some(Group::Consumer(group)) = self.group(group_id) else { return Err(not_found(group_id)) };
        let mut after = group.clone();
        after.replay_all(changes);
        let settings = self.settings_of(group_id);
        let migrating = convert::downgrade(&after, downgrade, &self.environment(&settings));
        let migrating = migrating.ok_or_else(|| not_found(group_id))?;
        let generation_id = group.group_epoch();
        let classic = ClassicGroup::migrated(group_id, MigratingGroup { generation_id, ..migrating }, self.now());
        Ok((classic, tombstones(&after)))
    }

    fn carry_out(&mut self, group_id: &str, request: Option<RequestId>, effects: Vec<Effect>) {
        let version = self.topics().version();
        let Some((Group::Consumer(group), mut context)) = self.group_mut(group_id) else { return };
        for effect in effects {
            match effect {
                Effect::Schedule { member_id, kind, delay_ms } => {
                    group.schedule(&mut context, &member_id, kind, delay_ms)
                }
                Effect::ScheduleIfAbsent { member_id, kind, delay_ms } => {
                    if !group.timers_mut().contains_key(&(member_id.clone(), kind)) {
                        group.schedule(&mut context, &member_id, kind, delay_ms);
                    }
                }
                Effect::Cancel { member_id, kind } => {
                    context.cancel(&mut group.timers_mut().remove(&(member_id, kind)));
                }
                Effect::Hashed { group_epoch } => group.set_hashed(version, group_epoch),
                Effect::ResolveRegexes { regexes } => {
                    if let Some(request) = request {
                        group.set_resolving(true);
                        context.output.resolve_regexes(request, group.group_id().clone(), regexes);
                    }
                }
            }
        }
    }
}

impl ConsumerGroup {
    fn schedule(&mut self, context: &mut Context<'_>, member_id: &Arc<str>, kind: TimerKind, delay_ms: i32) {
        let group_id = self.group_id().clone();
        let timer = Timer::Consumer { group_id, member_id: member_id.clone(), kind };
        let key = (member_id.clone(), kind);
        let mut slot = self.timers_mut().remove(&key);
        context.schedule(&mut slot, delay_ms, timer);
        self.timers_mut().extend(slot.map(|id| (key, id)));
    }

    /// Sessions begin anew, and with them the time members have to give up what they must.
    pub(in super::super) fn finish_loading(&mut self, context: &mut Context<'_>, image: &MetadataImage) {
        let settings = settings_of(&context.settings.consumer, image, self.group_id());
        let mut timers = Vec::new();
        for member in self.members() {
            timers.push((member.member_id.clone(), TimerKind::Session, session_timeout_ms(member, &settings)));
            if member.current.state == MemberState::UnrevokedPartitions {
                let delay_ms = member.subscription.rebalance_timeout_ms;
                timers.push((member.member_id.clone(), TimerKind::Rebalance, delay_ms));
            }
        }
        for (member_id, kind, delay_ms) in timers {
            self.schedule(context, &member_id, kind, delay_ms);
        }
    }

    pub(in super::super) fn cancel_timers(&mut self, context: &mut Context<'_>) {
        for (_, timer) in std::mem::take(self.timers_mut()) {
            context.cancel(&mut Some(timer));
        }
    }
}

fn settings_of(broker: &ConsumerGroupSettings, image: &MetadataImage, group_id: &str) -> ConsumerGroupSettings {
    broker.for_group(image.configs(&ConfigResource::Group(group_id.to_owned())))
}

/// A member of the classic protocol has brought its own.
fn session_timeout_ms(member: &Member, settings: &ConsumerGroupSettings) -> i32 {
    let classic = member.subscription.classic.as_ref();
    classic.map_or(settings.session_timeout_ms, |classic| classic.session_timeout_ms)
}

fn not_found(group_id: &str) -> ConsumerGroupError {
    ConsumerGroupError::GroupIdNotFound { group_id: group_id.to_owned() }
}

impl From<AppendRefused> for ConsumerGroupError {
    fn from(refused: AppendRefused) -> Self {
        Self::NotLogged(refused)
    }
}
