//! The coordinator's side of consumer groups: finds the group, lets it decide, logs what was decided, keeps its timers.

use std::sync::Arc;

use walser_protocol::ErrorCode;

use super::describe::describe;
use super::error::ConsumerGroupError;
use super::group::ConsumerGroup;
use super::heartbeat::{handle_heartbeat, handle_regexes_resolved};
use super::leave::{handle_leave, handle_timeout};
use super::member::MemberState;
use super::plan::{Effect, Environment, Outcome, TimerKind};
use super::regex::ResolvedRegexes;
use super::request::{
    ConsumerGroupDescribe, ConsumerGroupHeartbeat, ConsumerGroupHeartbeatReply, DescribedConsumerGroup,
};
use crate::group::command::RequestId;
use crate::group::context::{Context, Now, Timer};
use crate::group::coordinator::GroupCoordinator;
use crate::group::output::AppendRefused;
use crate::group::record::GroupRecord;
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
        let mut records = Vec::new();
        let settings = self.settings_of(group_id);
        let new_group;
        let group = match self.group(group_id) {
            Some(Group::Consumer(group)) => group,
            // One without members gives its name away.
            Some(group @ Group::Classic(_)) if joins && group.is_empty() => {
                records.extend(group.tombstones(group_id));
                new_group = ConsumerGroup::new(group_id.into());
                &new_group
            }
            None if joins => {
                new_group = ConsumerGroup::new(group_id.into());
                &new_group
            }
            Some(Group::Classic(_)) | None => return Err(not_found(group_id)),
        };
        let outcome = handle_heartbeat(group, self.environment(&settings), heartbeat)?;
        self.log(group_id, Some(request), records, outcome)
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
        Environment { wall_ms: self.now().wall_ms, topics: self.topics(), settings }
    }

    /// Logs and replays what a group decided, `records` before it, and does what is to be done besides.
    fn log<R>(
        &mut self,
        group_id: &str,
        request: Option<RequestId>,
        mut records: Vec<GroupRecord>,
        outcome: Outcome<R>,
    ) -> Result<R, ConsumerGroupError> {
        let Outcome { reply, changes, effects } = outcome;
        records.extend(changes.iter().map(|change| change.to_record(group_id)));
        self.append_and_replay(records)?;
        self.carry_out(group_id, request, effects);
        Ok(reply)
    }

    fn carry_out(&mut self, group_id: &str, request: Option<RequestId>, effects: Vec<Effect>) {
        let version = self.topics().version();
        let Some((Group::Consumer(group), mut context)) = self.group_mut(group_id) else { return };
        for effect in effects {
            match effect {
                Effect::Schedule { member_id, kind, delay_ms } => {
                    group.schedule(&mut context, &member_id, kind, delay_ms)
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
            let classic = member.subscription.classic.as_ref();
            let session_ms = classic.map_or(settings.session_timeout_ms, |classic| classic.session_timeout_ms);
            timers.push((member.member_id.clone(), TimerKind::Session, session_ms));
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

fn not_found(group_id: &str) -> ConsumerGroupError {
    ConsumerGroupError::GroupIdNotFound { group_id: group_id.to_owned() }
}

impl From<AppendRefused> for ConsumerGroupError {
    fn from(refused: AppendRefused) -> Self {
        Self::NotLogged(refused)
    }
}
