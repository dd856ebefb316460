//! The coordinator of one partition of `__consumer_offsets`: inputs in, effects out.

use std::collections::BTreeMap;
use std::sync::Arc;

use walser_protocol::ErrorCode;

use super::classic::ClassicGroup;
use super::command::{Command, RequestId};
use super::consumer::{Change, ConsumerGroup, Replayed, Topics};
use super::context::{Context, Now, Timer};
use super::offsets::{OffsetKey, Offsets};
use super::output::{AppendRefused, Effect, Output};
use super::record::{GroupRecord, OffsetCommitRef, OffsetCommitValue, RecordError};
use super::reply::Reply;
use super::settings::GroupSettings;
use super::state::Group;
use crate::metadata::{MetadataDelta, MetadataImage};
use crate::timing_wheel::TimingWheel;

/// All groups of one partition of `__consumer_offsets`.
#[derive(Debug)]
pub struct GroupCoordinator {
    settings: GroupSettings,
    topics: Topics,
    now: Now,
    is_loaded: bool,
    groups: BTreeMap<Arc<str>, Group>,
    offsets: Offsets,
    timers: TimingWheel<Timer>,
    /// Where the check for expired offsets goes on, if it is under way.
    expiration_cursor: Option<Arc<str>>,
    output: Output,
}

impl GroupCoordinator {
    /// Loads: every record of the log goes to [`Self::replay_encoded`], then [`Self::finish_loading`] begins the service. Until then
    /// commands are refused.
    pub fn new(settings: GroupSettings, image: Arc<MetadataImage>, now: Now) -> Self {
        Self {
            settings,
            topics: Topics::new(image),
            now,
            is_loaded: false,
            groups: BTreeMap::new(),
            offsets: Offsets::default(),
            timers: TimingWheel::new(now.timer_ms),
            expiration_cursor: None,
            output: Output::default(),
        }
    }

    /// A record as the log has it, and the producer of its transaction where its batch is of one. Kinds of records that this
    /// program does not know change nothing, nor does one that cannot be read.
    pub fn replay_encoded(
        &mut self,
        record_offset: i64,
        producer_id: Option<i64>,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> Result<(), RecordError> {
        if let Some(commit) = OffsetCommitRef::decode(key, value)? {
            let OffsetCommitRef { group_id, topic, partition_index, value } = commit;
            let key = OffsetKey { group_id, topic, partition_index };
            self.replay_offset_commit(record_offset, producer_id, key, value);
        } else if let Some(record) = GroupRecord::decode(key, value)? {
            self.replay(record_offset, producer_id, record);
        }
        Ok(())
    }

    /// A record of the log, and the producer of its transaction where its batch is of one.
    pub fn replay(&mut self, record_offset: i64, producer_id: Option<i64>, record: GroupRecord) {
        match record {
            GroupRecord::OffsetCommit { group_id, topic, partition_index, value } => {
                let key = OffsetKey { group_id: &group_id, topic: &topic, partition_index };
                self.replay_offset_commit(record_offset, producer_id, key, value);
            }
            GroupRecord::GroupMetadata { group_id, value: Some(value) } => {
                let group = ClassicGroup::from_record(&group_id, value);
                self.put_group(&group_id, Group::Classic(group));
            }
            GroupRecord::GroupMetadata { group_id, value: None } => {
                if matches!(self.groups.get(&*group_id), Some(Group::Classic(_))) {
                    self.remove_group(&group_id);
                }
            }
            record @ (GroupRecord::ConsumerGroupMetadata { .. }
            | GroupRecord::ConsumerGroupPartitionMetadata { .. }
            | GroupRecord::ConsumerGroupMemberMetadata { .. }
            | GroupRecord::ConsumerGroupTargetAssignmentMetadata { .. }
            | GroupRecord::ConsumerGroupTargetAssignmentMember { .. }
            | GroupRecord::ConsumerGroupCurrentMemberAssignment { .. }
            | GroupRecord::ConsumerGroupRegularExpression { .. }) => self.replay_of_consumer_group(&record),
        }
    }

    /// A control record that ends the producer's transaction: of the log, or, of a coordinator that serves, just appended
    /// by who ends transactions.
    pub fn replay_end_transaction(&mut self, record_offset: i64, producer_id: i64, is_committed: bool) {
        self.offsets.replay_end_transaction(producer_id, is_committed);
        self.output.pass_over(record_offset);
    }

    /// The whole log has been replayed; the next record goes to `log_end_offset`. Sessions of members begin anew.
    pub fn finish_loading(&mut self, now: Now, log_end_offset: i64) {
        self.advance(now);
        self.output.begin_at(log_end_offset);
        self.is_loaded = true;
        let mut context = Context { now, settings: &self.settings, timers: &mut self.timers, output: &mut self.output };
        for group in self.groups.values_mut() {
            match group {
                Group::Classic(group) => group.finish_loading(&mut context),
                Group::Consumer(group) => group.finish_loading(&mut context, self.topics.image()),
            }
        }
        self.schedule_expiration(self.settings.offsets_retention_check_interval_ms);
        self.output.release();
    }

    /// A request. Its reply is an effect, at once or later; a group that rebalances lets its members wait.
    pub fn handle(&mut self, now: Now, request: RequestId, command: Command) {
        self.advance(now);
        if !self.is_loaded {
            let refusal = command.refuse(ErrorCode::CoordinatorLoadInProgress);
            self.output.reply(request, refusal);
            return self.output.release();
        }
        match command {
            Command::JoinGroup(join) => self.join_group(request, join),
            Command::SyncGroup(sync) => self.sync_group(request, sync),
            Command::Heartbeat(heartbeat) => {
                let error = self.heartbeat(&heartbeat);
                self.output.reply(request, Reply::Heartbeat(error));
            }
            Command::LeaveGroup(leave) => {
                let reply = self.leave_group(&leave);
                self.output.reply(request, reply);
            }
            Command::OffsetCommit(commit) => {
                let reply = self.offset_commit(&commit);
                self.output.reply(request, reply);
            }
            Command::OffsetFetch(fetch) => {
                let reply = self.offset_fetch(&fetch);
                self.output.reply(request, Reply::OffsetFetch(reply));
            }
            Command::OffsetDelete(delete) => {
                let reply = self.offset_delete(&delete);
                self.output.reply(request, Reply::OffsetDelete(reply));
            }
            Command::DescribeGroups(describe) => {
                let groups = self.describe_groups(&describe);
                self.output.reply(request, Reply::DescribeGroups(groups));
            }
            Command::ListGroups(list) => {
                let groups = self.list_groups(&list);
                self.output.reply(request, Reply::ListGroups(groups));
            }
            Command::ConsumerGroupHeartbeat(heartbeat) => {
                let reply = self.consumer_group_heartbeat(request, &heartbeat);
                self.output.reply(request, Reply::ConsumerGroupHeartbeat(reply));
            }
            Command::ConsumerGroupDescribe(describe) => {
                let groups = self.consumer_group_describe(&describe);
                self.output.reply(request, Reply::ConsumerGroupDescribe(groups));
            }
            Command::DeleteGroups(delete) => {
                let groups = self.delete_groups(&delete);
                self.output.reply(request, Reply::DeleteGroups(groups));
            }
        }
        self.output.release();
    }

    /// Lets everything happen that is due.
    pub fn tick(&mut self, now: Now) {
        self.advance(now);
        while let Some(timer) = self.timers.poll_due() {
            match timer {
                Timer::OffsetExpiration => self.expire_some_offsets(),
                Timer::ClassicSession { group_id, member_id } => self.expire_classic_session(&group_id, &member_id),
                Timer::ClassicJoin { group_id } => self.expire_classic_join(&group_id),
                Timer::ClassicSync { group_id } => self.expire_classic_sync(&group_id),
                Timer::Consumer { group_id, member_id, kind } => self.expire_consumer(&group_id, &member_id, kind),
            }
            self.output.release();
        }
    }

    /// When to call [`Self::tick`] next, on the clock of [`Now::timer_ms`]. `None`: nothing waits.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.timers.next_wake_ms()
    }

    /// Every record below `end_offset` is committed.
    pub fn handle_committed(&mut self, end_offset: i64) {
        self.output.commit(end_offset);
    }

    /// The cluster's metadata has changed.
    pub fn handle_image(&mut self, now: Now, image: Arc<MetadataImage>, delta: &MetadataDelta) {
        self.advance(now);
        self.topics.update(image, delta);
        // A coordinator that still loads sees offsets of topics that are gone as it replays them, and removes them with the
        // topic's next deletion or by expiry, as Kafka does.
        if self.is_loaded {
            self.delete_offsets_of_topics(&delta.topics_deleted);
        }
        self.output.release();
    }

    /// Counts from the next input on; what is scheduled stays as it is.
    pub fn update_settings(&mut self, settings: GroupSettings) {
        self.settings = settings;
    }

    /// What to do next, in order.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.output.poll()
    }

    /// Gives up the partition: everybody who waits, for other members or for records to be committed, is answered with the
    /// error. NOT_COORDINATOR where the partition has another leader; [`append_error`] says what an append failed with.
    pub fn unload(mut self, error: ErrorCode) -> Vec<(RequestId, Reply)> {
        for group in self.groups.values_mut() {
            match group {
                Group::Classic(group) => group.unload(&mut self.output, error),
                Group::Consumer(_) => {}
            }
        }
        self.output.fail(error)
    }

    /// Every committed offset: group, topic, partition, position. In order.
    pub fn committed_offsets(&self) -> impl Iterator<Item = (&str, &str, i32, i64)> {
        self.offsets.all_committed().flat_map(|(group_id, topics)| {
            topics.iter().flat_map(move |(topic, partitions)| {
                let offsets = partitions.iter();
                offsets.map(move |(index, committed)| (&**group_id, &**topic, *index, committed.value.offset))
            })
        })
    }
}

/// What a group's client is told when an append failed with `error`.
pub fn append_error(error: ErrorCode) -> ErrorCode {
    let told = [
        (ErrorCode::UnknownTopicOrPartition, ErrorCode::CoordinatorNotAvailable),
        (ErrorCode::NotEnoughReplicas, ErrorCode::CoordinatorNotAvailable),
        (ErrorCode::RequestTimedOut, ErrorCode::CoordinatorNotAvailable),
        (ErrorCode::NotLeaderOrFollower, ErrorCode::NotCoordinator),
        (ErrorCode::KafkaStorageError, ErrorCode::NotCoordinator),
        (ErrorCode::MessageTooLarge, ErrorCode::UnknownServerError),
        (ErrorCode::RecordListTooLarge, ErrorCode::UnknownServerError),
        (ErrorCode::InvalidFetchSize, ErrorCode::UnknownServerError),
    ];
    told.iter().find(|(of_log, _)| *of_log == error).map_or(error, |(_, of_group)| *of_group)
}

/// What the groups' own files use.
impl GroupCoordinator {
    pub(super) fn now(&self) -> Now {
        self.now
    }

    pub(super) fn settings(&self) -> &GroupSettings {
        &self.settings
    }

    pub(super) fn offsets(&self) -> &Offsets {
        &self.offsets
    }

    /// In order of id.
    pub(super) fn groups(&self) -> &BTreeMap<Arc<str>, Group> {
        &self.groups
    }

    pub(super) fn group(&self, group_id: &str) -> Option<&Group> {
        self.groups.get(group_id)
    }

    /// The group, and what it needs to handle an input.
    pub(super) fn group_mut(&mut self, group_id: &str) -> Option<(&mut Group, Context<'_>)> {
        let group = self.groups.get_mut(group_id)?;
        let context =
            Context { now: self.now, settings: &self.settings, timers: &mut self.timers, output: &mut self.output };
        Some((group, context))
    }

    pub(super) fn topics(&self) -> &Topics {
        &self.topics
    }

    pub(super) fn output_mut(&mut self) -> &mut Output {
        &mut self.output
    }

    pub(super) fn reply(&mut self, request: RequestId, reply: Reply) {
        self.output.reply(request, reply);
    }

    /// Logs the records of one command as one batch and changes the state by them.
    pub(super) fn append_and_replay(&mut self, records: Vec<GroupRecord>) -> Result<(), AppendRefused> {
        let base_offset = self.output.append(self.now.wall_ms, self.settings.max_message_bytes, &records)?;
        for (record_offset, record) in (base_offset..).zip(records) {
            self.replay(record_offset, None, record);
        }
        Ok(())
    }

    /// The same where a part may become durable without the rest: in as many batches as it takes. A record that no batch can
    /// hold is left out.
    pub(super) fn append_and_replay_in_batches(&mut self, records: Vec<GroupRecord>) {
        const RECORDS_PER_BATCH: usize = 1_000;
        let mut records = records.into_iter().peekable();
        while records.peek().is_some() {
            let batch: Vec<_> = records.by_ref().take(RECORDS_PER_BATCH).collect();
            if self.append_and_replay(batch.clone()).is_ok() {
                continue;
            }
            // Ids and names of groups may be very long.
            for record in batch {
                if self.append_and_replay(vec![record]).is_err() {
                    continue;
                }
            }
        }
    }

    /// The next part of the check for expired offsets, and when the one after that is due.
    fn expire_some_offsets(&mut self) {
        let cursor = self.expiration_cursor.take();
        self.expiration_cursor = self.expire_offsets(cursor);
        let is_done = self.expiration_cursor.is_none();
        self.schedule_expiration(if is_done { self.settings.offsets_retention_check_interval_ms } else { 1 });
    }

    fn schedule_expiration(&mut self, delay_ms: i64) {
        let delay_ms = u64::try_from(delay_ms).unwrap_or(0);
        self.timers.insert(self.now.timer_ms.saturating_add(delay_ms), Timer::OffsetExpiration);
    }

    pub(super) fn put_group(&mut self, group_id: &str, group: Group) {
        self.remove_group(group_id);
        self.groups.insert(group_id.into(), group);
    }

    /// Takes the group out of memory, and its timers with it.
    pub(super) fn remove_group(&mut self, group_id: &str) {
        let Some(mut group) = self.groups.remove(group_id) else { return };
        let mut context =
            Context { now: self.now, settings: &self.settings, timers: &mut self.timers, output: &mut self.output };
        group.cancel_timers(&mut context);
    }

    /// What a coordinator that loads the log must find too, as text: every offset, and every group that a record of the log
    /// tells of, but for those named.
    #[cfg(test)]
    pub(super) fn durable(&self, without: &[String]) -> String {
        let groups = self.groups.iter().filter(|(group_id, _)| !without.iter().any(|other| **other == ***group_id));
        let groups = groups.filter_map(|(group_id, group)| match group {
            // Nobody misses it.
            Group::Classic(_) if group.protocol_type().is_empty() && self.offsets.keys_of(group_id).is_empty() => None,
            Group::Classic(group) => Some(format!("{group_id}: {}", group.durable())),
            Group::Consumer(group) => Some(format!("{group_id}: {group:#?}")),
        });
        format!("{}\n{:#?}", groups.collect::<Vec<_>>().join("\n"), self.offsets)
    }

    /// Groups of which the log has only what they were before.
    #[cfg(test)]
    pub(super) fn rebalancing(&self) -> Vec<String> {
        let is_rebalancing = |group: &Group| matches!(group, Group::Classic(group) if group.is_rebalancing());
        self.groups.iter().filter(|(_, group)| is_rebalancing(group)).map(|(id, _)| id.to_string()).collect()
    }

    /// Panics where an invariant does not hold.
    #[cfg(test)]
    pub(super) fn verify(&self) {
        for group in self.groups.values() {
            match group {
                Group::Classic(group) => group.verify(),
                Group::Consumer(group) => group.verify(),
            }
        }
        self.offsets.verify();
    }

    pub(super) fn advance(&mut self, now: Now) {
        self.now = now;
        self.timers.advance(now.timer_ms);
    }

    fn replay_offset_commit(
        &mut self,
        record_offset: i64,
        producer_id: Option<i64>,
        key: OffsetKey<'_>,
        value: Option<OffsetCommitValue>,
    ) {
        if value.is_some() && !self.groups.contains_key(key.group_id) {
            let group = ClassicGroup::new(key.group_id, self.now.wall_ms);
            self.groups.insert(key.group_id.into(), Group::Classic(group));
        }
        self.offsets.replay(record_offset, producer_id, key, value);
    }

    /// A record of a consumer group makes one of a simple group: offsets of it may come first in the log.
    fn replay_of_consumer_group(&mut self, record: &GroupRecord) {
        let Some(change) = Change::from_record(record) else { return };
        let group_id = record.group_id();
        let is_free = match self.groups.get(group_id) {
            None => true,
            Some(Group::Classic(group)) => group.is_simple(),
            Some(Group::Consumer(_)) => false,
        };
        if is_free && !change.is_tombstone() {
            self.put_group(group_id, Group::Consumer(ConsumerGroup::new(group_id.into())));
        }
        let Some(Group::Consumer(group)) = self.groups.get_mut(group_id) else { return };
        if group.replay(&change) == Replayed::Removed {
            self.remove_group(group_id);
        }
    }
}
