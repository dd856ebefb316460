use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use walser_protocol::ErrorCode;
use walser_protocol::types::Uuid;

use super::error::ConsumerGroupError;
use super::group::GroupState;
use super::heartbeat::{handle_heartbeat, handle_regexes_resolved};
use super::leave::{handle_leave, handle_timeout, tombstones};
use super::member::{CurrentAssignment, EpochAssignment, Member, MemberState, Subscription};
use super::plan::{Effect, Environment, Outcome};
use super::records::{GroupEpoch, ResolvedRegex, TargetEpoch};
use super::request::{ConsumerGroupHeartbeat, ConsumerGroupHeartbeatReply};
use super::*;
use crate::group::assignor::{Assignment, Assignor};
use crate::group::command::{Heartbeat, JoinGroup, SyncGroup};
use crate::group::record::{GroupRecord, TopicPartitions};
use crate::group::reply::{JoinGroupReply, SyncGroupReply};
use crate::group::settings::ConsumerGroupSettings;
use crate::group::state::Committer;
use crate::ids::{LeaderEpoch, TopicId};
use crate::metadata::image::ImageBuilder;
use crate::metadata::records::{MetadataRecord, PartitionRecord};

mod answers;
mod coordinator;
mod golden;
mod membership;
mod migration;
mod reconciliation;
mod simulation;

const GROUP: &str = "group";

pub(super) fn topic_id(number: u8) -> TopicId {
    TopicId::from_wire(Uuid::from_bytes([number; 16])).expect("not zero")
}

/// One group, its log, and what surrounds it.
pub(super) struct Bench {
    pub(super) group: ConsumerGroup,
    pub(super) topics: Topics,
    pub(super) settings: ConsumerGroupSettings,
    pub(super) wall_ms: i64,
    /// Encoded, as in the log.
    pub(super) log: Vec<(bytes::Bytes, Option<bytes::Bytes>)>,
    pub(super) timers: BTreeMap<(Arc<str>, TimerKind), i64>,
    pub(super) resolving: Option<BTreeSet<Arc<str>>>,
    /// Of the last command.
    pub(super) changes: Vec<Change>,
    /// All invariants after every command.
    pub(super) is_verifying: bool,
}

impl Bench {
    /// Topics `t1`, `t2`, … with these many partitions.
    pub(super) fn new(partition_counts: &[i32]) -> Self {
        let mut bench = Self {
            group: ConsumerGroup::new(GROUP.into()),
            topics: Topics::default(),
            settings: ConsumerGroupSettings { assignment_interval_ms: 0, ..ConsumerGroupSettings::default() },
            wall_ms: 1_000_000,
            log: Vec::new(),
            timers: BTreeMap::new(),
            resolving: None,
            changes: Vec::new(),
            is_verifying: true,
        };
        for (number, count) in (1..).zip(partition_counts) {
            bench.create_topic(number, *count);
        }
        bench
    }

    pub(super) fn change_topics(&mut self, records: &[MetadataRecord]) {
        let mut builder = ImageBuilder::new(self.topics.image());
        builder.replay_batch(records).expect("records that fit");
        let (image, delta) = builder.finish();
        self.topics.update(image, &delta);
    }

    pub(super) fn create_topic(&mut self, number: u8, partition_count: i32) {
        self.create_topic_as(topic_id(number), &format!("t{number}"), partition_count);
    }

    pub(super) fn create_topic_as(&mut self, topic_id: TopicId, name: &str, partition_count: i32) {
        self.change_topics(&[MetadataRecord::Topic { topic_id, name: name.to_owned() }]);
        self.add_partitions(topic_id, 0..partition_count);
    }

    pub(super) fn grow_topic(&mut self, number: u8, from: i32, to: i32) {
        self.add_partitions(topic_id(number), from..to);
    }

    fn add_partitions(&mut self, topic_id: TopicId, indexes: Range<i32>) {
        let partition = |partition_index: i32| {
            MetadataRecord::Partition(PartitionRecord {
                topic_id,
                partition_index,
                replicas: Vec::new(),
                in_sync_replicas: Vec::new(),
                leader: None,
                leader_epoch: LeaderEpoch::ZERO,
                partition_epoch: 0,
                directories: Vec::new(),
            })
        };
        self.change_topics(&indexes.map(partition).collect::<Vec<_>>());
    }

    pub(super) fn delete_topic(&mut self, number: u8) {
        self.change_topics(&[MetadataRecord::RemoveTopic { topic_id: topic_id(number) }]);
    }

    pub(super) fn environment(&self) -> Environment<'_> {
        Environment {
            wall_ms: self.wall_ms,
            topics: &self.topics,
            settings: &self.settings,
            classic_max_size: i32::MAX,
        }
    }

    pub(super) fn heartbeat(
        &mut self,
        request: &ConsumerGroupHeartbeat,
    ) -> Result<ConsumerGroupHeartbeatReply, ConsumerGroupError> {
        request.validate(&self.settings)?;
        let outcome = match request.member_epoch {
            ..0 => handle_leave(&self.group, self.environment(), request),
            0.. => handle_heartbeat(&self.group, self.environment(), request),
        }?;
        Ok(self.carry_out(outcome))
    }

    pub(super) fn classic_join(&mut self, join: &JoinGroup) -> Result<JoinGroupReply, ConsumerGroupError> {
        let outcome = classic::handle_join(&self.group, self.environment(), join)?;
        assert_eq!(outcome.downgrade, None);
        Ok(self.carry_out(outcome))
    }

    pub(super) fn classic_sync(&mut self, sync: &SyncGroup) -> Result<SyncGroupReply, ConsumerGroupError> {
        let (effects, reply) = classic::handle_sync(&self.group, self.environment(), sync);
        self.carry_out(Outcome { reply: (), changes: Vec::new(), effects, downgrade: None });
        reply
    }

    pub(super) fn classic_heartbeat(&mut self, heartbeat: &Heartbeat) -> Result<(), ConsumerGroupError> {
        let (effects, verdict) = classic::handle_heartbeat(&self.group, self.environment(), heartbeat);
        self.carry_out(Outcome { reply: (), changes: Vec::new(), effects, downgrade: None });
        verdict
    }

    pub(super) fn expect_error(&mut self, request: &ConsumerGroupHeartbeat, want: ErrorCode) {
        let before = self.group.clone();
        let error = self.heartbeat(request).expect_err("an error");
        assert_eq!(ErrorCode::from(&error), want, "{error}");
        let reply = ConsumerGroupHeartbeatReply::from(&error);
        assert_eq!(reply.error, want);
        assert!(reply.error_message.is_some_and(|message| !message.is_empty()));
        assert!(self.group.is_same(&before), "an error changes nothing");
    }

    pub(super) fn time_out(&mut self, member_id: &str, kind: TimerKind) {
        let environment = self.environment();
        if let Some(outcome) = handle_timeout(&self.group, environment, member_id, kind) {
            self.carry_out(outcome);
        }
    }

    /// The regular expressions asked for are resolved.
    pub(super) fn resolve(&mut self) {
        let regexes = self.resolving.as_ref().expect("somebody asked");
        let resolved = regex::resolve(regexes, self.topics.image(), self.wall_ms, &|_| true);
        self.take_resolved(resolved);
    }

    pub(super) fn take_resolved(&mut self, resolved: regex::ResolvedRegexes) {
        self.resolving = None;
        self.group.set_resolving(false);
        let outcome = handle_regexes_resolved(&self.group, self.environment(), resolved);
        self.carry_out(outcome);
    }

    /// Logs and replays, from the bytes in the log, and checks that the log gives the same group again.
    fn carry_out<R>(&mut self, outcome: Outcome<R>) -> R {
        for change in &outcome.changes {
            let encoded = change.to_record(GROUP).encode().expect("a record that fits");
            let record = GroupRecord::decode(Some(&encoded.key), encoded.value.as_deref()).expect("what was encoded");
            let read = Change::from_record(&record.expect("a known type")).expect("of a consumer group");
            assert_eq!(read, *change);
            self.log.push((encoded.key, encoded.value));
            replay(&mut self.group, &read);
        }
        for effect in outcome.effects {
            match effect {
                Effect::Schedule { member_id, kind, delay_ms } => {
                    self.timers.insert((member_id, kind), self.wall_ms + i64::from(delay_ms));
                }
                Effect::ScheduleIfAbsent { member_id, kind, delay_ms } => {
                    let deadline = self.wall_ms + i64::from(delay_ms);
                    self.timers.entry((member_id, kind)).or_insert(deadline);
                }
                Effect::Cancel { member_id, kind } => drop(self.timers.remove(&(member_id, kind))),
                Effect::Hashed { group_epoch } => self.group.set_hashed(self.topics.version(), group_epoch),
                Effect::ResolveRegexes { regexes } => {
                    self.group.set_resolving(true);
                    let other = self.resolving.replace(regexes);
                    assert_eq!(other, None, "one resolution at a time");
                }
            }
        }
        if self.is_verifying {
            self.group.verify();
        }
        self.changes = outcome.changes;
        outcome.reply
    }

    /// What the log says, read by a coordinator that starts.
    pub(super) fn reload(&self) -> ConsumerGroup {
        let mut group = ConsumerGroup::new(GROUP.into());
        for (key, value) in &self.log {
            let record =
                GroupRecord::decode(Some(key), value.as_deref()).expect("what was encoded").expect("a known type");
            replay(&mut group, &Change::from_record(&record).expect("of a consumer group"));
        }
        group
    }

    pub(super) fn member(&self, member_id: &str) -> &Member {
        self.group.member(member_id).expect("a member")
    }
}

fn replay(group: &mut ConsumerGroup, change: &Change) {
    match group.replay(change) {
        Replayed::Present => {}
        Replayed::Removed => *group = ConsumerGroup::new(GROUP.into()),
    }
}

/// A first heartbeat.
pub(super) fn join(member_id: &str, topics: &[&str]) -> ConsumerGroupHeartbeat {
    ConsumerGroupHeartbeat {
        api_version: 1,
        group_id: GROUP.to_owned(),
        member_id: member_id.to_owned(),
        member_epoch: 0,
        rebalance_timeout_ms: 300_000,
        subscribed_topic_names: Some(topics.iter().map(|topic| (*topic).to_owned()).collect()),
        topic_partitions: Some(Vec::new()),
        client_id: "client".to_owned(),
        client_host: "/127.0.0.1".to_owned(),
        ..ConsumerGroupHeartbeat::default()
    }
}

pub(super) fn join_static(member_id: &str, instance_id: &str, topics: &[&str]) -> ConsumerGroupHeartbeat {
    ConsumerGroupHeartbeat { instance_id: Some(instance_id.to_owned()), ..join(member_id, topics) }
}

/// A heartbeat that says nothing new.
pub(super) fn beat(member_id: &str, member_epoch: i32) -> ConsumerGroupHeartbeat {
    ConsumerGroupHeartbeat {
        member_epoch,
        rebalance_timeout_ms: -1,
        subscribed_topic_names: None,
        topic_partitions: None,
        ..join(member_id, &[])
    }
}

/// One that says what the member has.
pub(super) fn beat_with(member_id: &str, member_epoch: i32, owned: &[(u8, i32)]) -> ConsumerGroupHeartbeat {
    ConsumerGroupHeartbeat { topic_partitions: Some(wire(owned)), ..beat(member_id, member_epoch) }
}

pub(super) fn wire(partitions: &[(u8, i32)]) -> Vec<TopicPartitions> {
    let mut topics: BTreeMap<u8, Vec<i32>> = BTreeMap::new();
    for (number, index) in partitions {
        topics.entry(*number).or_default().push(*index);
    }
    let topic = |(number, partitions): (u8, Vec<i32>)| TopicPartitions { topic_id: topic_id(number).get(), partitions };
    topics.into_iter().map(topic).collect()
}

pub(super) fn assignment(partitions: &[(u8, i32)]) -> Assignment {
    partitions.iter().map(|(number, index)| (topic_id(*number), *index)).collect()
}

/// Partitions with the epochs in which they were assigned.
pub(super) fn epochs(partitions: &[(u8, i32, i32)]) -> EpochAssignment {
    let mut assignment = EpochAssignment::default();
    for (number, index, epoch) in partitions {
        assignment.insert(topic_id(*number), *index, *epoch);
    }
    assignment
}
