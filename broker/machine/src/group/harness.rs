//! A coordinator with a log, a clock and clients' requests, for tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use walser_protocol::ErrorCode;
use walser_protocol::types::Uuid;

use super::command::{
    CommittedPartition, CommittedTopic, DescribeGroups, FetchedTopic, GroupProtocol, Heartbeat, JoinGroup, LeaveGroup,
    LeavingMember, ListGroups, MemberAssignment, OffsetCommit, OffsetFetch, SyncGroup,
};
use super::reply::{
    DescribedGroup, JoinGroupReply, LeaveGroupReply, ListedGroup, OffsetCommitReply, OffsetFetchReply, SyncGroupReply,
};
use super::{Command, Effect, GroupCoordinator, GroupRecord, GroupSettings, Now, Reply, RequestId};
use crate::metadata::MetadataImage;

pub(super) const GROUP: &str = "group";
pub(super) const TOPIC: &str = "topic";
pub(super) const TOPIC_ID: Uuid = Uuid::from_bytes([9; 16]);
/// Wall-clock time when a harness starts its timers at 0.
pub(super) const WALL_START_MS: i64 = 1_700_000_000_000;
pub(super) const SESSION_MS: i32 = 10_000;
pub(super) const REBALANCE_MS: i32 = 60_000;

/// Bytes that are given in hexadecimal.
pub(super) fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|index| u8::from_str_radix(&text[2 * index..2 * index + 2], 16).unwrap()).collect()
}

/// A coordinator whose records become durable at once, unless `is_commit_held`.
pub(super) struct Harness {
    pub(super) coordinator: GroupCoordinator,
    pub(super) settings: GroupSettings,
    pub(super) timer_ms: u64,
    pub(super) wall_ms: i64,
    /// Appended since the last [`Self::take_records`].
    pub(super) fresh: Vec<GroupRecord>,
    /// Everything ever appended: the log.
    pub(super) log: Vec<GroupRecord>,
    pub(super) replies: BTreeMap<RequestId, Reply>,
    pub(super) is_commit_held: bool,
    pub(super) image: Arc<MetadataImage>,
    next_request: u64,
}

impl Harness {
    pub(super) fn new() -> Self {
        Self::with(GroupSettings::default())
    }

    pub(super) fn with(settings: GroupSettings) -> Self {
        let now = Now { timer_ms: 0, wall_ms: WALL_START_MS };
        let mut coordinator = GroupCoordinator::new(settings.clone(), Arc::new(MetadataImage::default()), now);
        coordinator.finish_loading(now, 0);
        Self {
            coordinator,
            settings,
            timer_ms: 0,
            wall_ms: WALL_START_MS,
            fresh: Vec::new(),
            log: Vec::new(),
            replies: BTreeMap::new(),
            is_commit_held: false,
            image: Arc::default(),
            next_request: 1,
        }
    }

    pub(super) fn now(&self) -> Now {
        Now { timer_ms: self.timer_ms, wall_ms: self.wall_ms }
    }

    pub(super) fn start(&mut self, command: Command) -> RequestId {
        let request = RequestId(self.next_request);
        self.next_request += 1;
        self.coordinator.handle(self.now(), request, command);
        self.carry_out();
        request
    }

    /// Carries out every effect, and checks what must hold after any input.
    pub(super) fn carry_out(&mut self) {
        loop {
            while let Some(effect) = self.coordinator.poll_effect() {
                self.carry_out_one(effect);
            }
            let end_offset = i64::try_from(self.log.len()).unwrap();
            if self.is_commit_held {
                break;
            }
            self.coordinator.handle_committed(end_offset);
            match self.coordinator.poll_effect() {
                Some(effect) => self.carry_out_one(effect),
                None => break,
            }
        }
        self.coordinator.verify();
    }

    fn carry_out_one(&mut self, effect: Effect) {
        match effect {
            Effect::Append { base_offset, timestamp_ms, records } => {
                assert_eq!(base_offset, i64::try_from(self.log.len()).unwrap(), "records get the next offsets");
                assert_eq!(timestamp_ms, self.wall_ms);
                for record in records {
                    let decoded = GroupRecord::decode(Some(&record.key), record.value.as_deref());
                    let decoded = decoded.expect("a written record can be read").expect("and is of a known kind");
                    self.fresh.push(decoded.clone());
                    self.log.push(decoded);
                }
            }
            Effect::ResolveRegexes { group_id, regexes, .. } => {
                let image = self.image.clone();
                let resolved = super::resolve_regexes(&regexes, &image, self.wall_ms, &|_| true);
                self.coordinator.handle_regexes_resolved(self.now(), &group_id, Some(resolved));
            }
            Effect::Reply { request, reply } => {
                assert!(self.replies.insert(request, reply).is_none(), "one reply per request");
            }
        }
    }

    /// Lets time pass, every timer in its turn.
    pub(super) fn pass(&mut self, ms: u64) {
        let until_ms = self.timer_ms + ms;
        while let Some(next_ms) = self.coordinator.next_deadline_ms().filter(|next_ms| *next_ms <= until_ms) {
            self.move_clock(next_ms.max(self.timer_ms));
            self.coordinator.tick(self.now());
            self.carry_out();
        }
        self.move_clock(until_ms);
    }

    fn move_clock(&mut self, timer_ms: u64) {
        self.wall_ms += i64::try_from(timer_ms - self.timer_ms).unwrap();
        self.timer_ms = timer_ms;
    }

    /// Whoever ends transactions has written the marker; in the log of this harness nothing stands for it.
    pub(super) fn end_transaction(&mut self, producer_id: i64, is_committed: bool) {
        self.coordinator.replay_end_transaction(-1, producer_id, is_committed);
    }

    /// What has been appended since the last call.
    pub(super) fn take_records(&mut self) -> Vec<GroupRecord> {
        std::mem::take(&mut self.fresh)
    }

    pub(super) fn reply(&mut self, request: RequestId) -> Reply {
        self.replies.remove(&request).expect("the request has been answered")
    }

    pub(super) fn is_waiting(&self, request: RequestId) -> bool {
        !self.replies.contains_key(&request)
    }

    pub(super) fn call(&mut self, command: Command) -> Reply {
        let request = self.start(command);
        self.reply(request)
    }

    /// A second coordinator that has read the log of this one.
    pub(super) fn loaded(&self) -> GroupCoordinator {
        let mut coordinator = GroupCoordinator::new(self.settings.clone(), self.image.clone(), self.now());
        for (offset, record) in (0..).zip(&self.log) {
            coordinator.replay(offset, None, record.clone());
        }
        coordinator.finish_loading(self.now(), i64::try_from(self.log.len()).unwrap());
        coordinator
    }

    /// The coordinator is lost, and its log read by the next one. Gives what those who waited are told.
    pub(super) fn reload(&mut self, error: ErrorCode) -> Vec<(RequestId, Reply)> {
        let next = self.loaded();
        let replies = std::mem::replace(&mut self.coordinator, next).unload(error);
        self.carry_out();
        replies
    }

    pub(super) fn join(&mut self, join: JoinGroup) -> RequestId {
        self.start(Command::JoinGroup(join))
    }

    pub(super) fn joined(&mut self, request: RequestId) -> JoinGroupReply {
        let reply = self.reply(request);
        let Reply::JoinGroup(reply) = reply else { panic!("{reply:?}") };
        reply
    }

    /// Gets an id from the group and joins with it.
    pub(super) fn join_dynamic(&mut self, join: JoinGroup) -> (String, RequestId) {
        let request = self.join(join.clone());
        let reply = self.joined(request);
        assert_eq!(reply.error, ErrorCode::MemberIdRequired);
        let request = self.join(JoinGroup { member_id: reply.member_id.clone(), ..join });
        (reply.member_id, request)
    }

    pub(super) fn sync(&mut self, generation_id: i32, member_id: &str, assignments: &[(&str, &str)]) -> RequestId {
        self.start(Command::SyncGroup(sync(generation_id, member_id, assignments)))
    }

    pub(super) fn synced(&mut self, request: RequestId) -> SyncGroupReply {
        let reply = self.reply(request);
        let Reply::SyncGroup(reply) = reply else { panic!("{reply:?}") };
        reply
    }

    pub(super) fn heartbeat(&mut self, generation_id: i32, member_id: &str) -> ErrorCode {
        let heartbeat = Heartbeat {
            group_id: GROUP.to_owned(),
            generation_id,
            member_id: member_id.to_owned(),
            group_instance_id: None,
        };
        let reply = self.call(Command::Heartbeat(heartbeat));
        let Reply::Heartbeat(error) = reply else { panic!("{reply:?}") };
        error
    }

    pub(super) fn leave(&mut self, members: &[(&str, Option<&str>)]) -> LeaveGroupReply {
        let members = members.iter().map(|(member_id, instance_id)| LeavingMember {
            member_id: (*member_id).to_owned(),
            group_instance_id: instance_id.map(str::to_owned),
        });
        let leave = LeaveGroup { group_id: GROUP.to_owned(), members: members.collect() };
        let reply = self.call(Command::LeaveGroup(leave));
        let Reply::LeaveGroup(reply) = reply else { panic!("{reply:?}") };
        reply
    }

    pub(super) fn commit(&mut self, commit: OffsetCommit) -> OffsetCommitReply {
        let reply = self.call(Command::OffsetCommit(commit));
        let Reply::OffsetCommit(reply) = reply else { panic!("{reply:?}") };
        reply
    }

    /// The error of the first partition.
    pub(super) fn commit_error(&mut self, commit: OffsetCommit) -> ErrorCode {
        self.commit(commit).topics[0].partitions[0].error
    }

    pub(super) fn fetch(&mut self, fetch: OffsetFetch) -> OffsetFetchReply {
        let reply = self.call(Command::OffsetFetch(fetch));
        let Reply::OffsetFetch(reply) = reply else { panic!("{reply:?}") };
        reply
    }

    /// The committed offset of one partition of [`TOPIC`], -1 for none.
    pub(super) fn offset(&mut self, group_id: &str, partition_index: i32) -> i64 {
        let topics = vec![FetchedTopic {
            name: TOPIC.to_owned(),
            topic_id: Uuid::ZERO,
            partition_indexes: vec![partition_index],
        }];
        let reply = self.fetch(OffsetFetch { group_id: group_id.to_owned(), topics: Some(topics), ..fetch_all() });
        reply.topics[0].partitions[0].committed_offset
    }

    pub(super) fn describe(&mut self, group_id: &str) -> DescribedGroup {
        let describe = DescribeGroups { api_version: 6, group_ids: vec![group_id.to_owned()] };
        let reply = self.call(Command::DescribeGroups(describe));
        let Reply::DescribeGroups(mut groups) = reply else { panic!("{reply:?}") };
        groups.remove(0)
    }

    pub(super) fn state(&mut self) -> String {
        self.describe(GROUP).group_state
    }

    pub(super) fn list(&mut self, states: &[&str], types: &[&str]) -> Vec<ListedGroup> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let list = ListGroups { states_filter: owned(states), types_filter: owned(types) };
        let reply = self.call(Command::ListGroups(list));
        let Reply::ListGroups(reply) = reply else { panic!("{reply:?}") };
        reply.groups
    }
}

/// Of protocol type `consumer` with the protocol `range`, from the newest client.
pub(super) fn join(number: u8) -> JoinGroup {
    JoinGroup {
        api_version: 9,
        group_id: GROUP.to_owned(),
        session_timeout_ms: SESSION_MS,
        rebalance_timeout_ms: REBALANCE_MS,
        member_id: String::new(),
        group_instance_id: None,
        protocol_type: "consumer".to_owned(),
        protocols: vec![protocol("range", &subscription(&[TOPIC]))],
        client_id: format!("client-{number}"),
        client_host: "/127.0.0.1".to_owned(),
        member_uuid: Uuid::from_bytes([number; 16]),
    }
}

pub(super) fn protocol(name: &str, metadata: &[u8]) -> GroupProtocol {
    GroupProtocol { name: name.to_owned(), metadata: Bytes::copy_from_slice(metadata) }
}

/// Version 1 of the blob a consumer sends, without owned partitions.
pub(super) fn subscription(topics: &[&str]) -> Vec<u8> {
    let mut blob = vec![0, 1];
    blob.extend(i32::try_from(topics.len()).unwrap().to_be_bytes());
    for topic in topics {
        blob.extend(i16::try_from(topic.len()).unwrap().to_be_bytes());
        blob.extend(topic.as_bytes());
    }
    blob.extend((-1_i32).to_be_bytes());
    blob.extend(0_i32.to_be_bytes());
    blob
}

/// The id that a member of this number gets.
pub(super) fn dynamic_id(number: u8) -> String {
    format!("client-{number}-{}", uuid_text(number))
}

pub(super) fn uuid_text(number: u8) -> String {
    let pair = format!("{number:02x}");
    [4, 2, 2, 2, 6].map(|count| pair.repeat(count)).join("-")
}

pub(super) fn sync(generation_id: i32, member_id: &str, assignments: &[(&str, &str)]) -> SyncGroup {
    let assignments = assignments.iter().map(|(member_id, assignment)| MemberAssignment {
        member_id: (*member_id).to_owned(),
        assignment: Bytes::copy_from_slice(assignment.as_bytes()),
    });
    SyncGroup {
        group_id: GROUP.to_owned(),
        generation_id,
        member_id: member_id.to_owned(),
        group_instance_id: None,
        protocol_type: Some("consumer".to_owned()),
        protocol_name: Some("range".to_owned()),
        assignments: assignments.collect(),
    }
}

/// By nobody in particular, of partition 0 of [`TOPIC`].
pub(super) fn commit(offset: i64) -> OffsetCommit {
    OffsetCommit {
        api_version: 10,
        group_id: GROUP.to_owned(),
        generation_id_or_member_epoch: -1,
        member_id: String::new(),
        group_instance_id: None,
        retention_time_ms: None,
        topics: vec![committed_topic(TOPIC, TOPIC_ID, &[(0, offset)])],
    }
}

pub(super) fn committed_topic(name: &str, topic_id: Uuid, offsets: &[(i32, i64)]) -> CommittedTopic {
    let partitions = offsets.iter().map(|(partition_index, committed_offset)| CommittedPartition {
        partition_index: *partition_index,
        committed_offset: *committed_offset,
        committed_leader_epoch: 5,
        committed_metadata: None,
    });
    CommittedTopic { name: name.to_owned(), topic_id, partitions: partitions.collect() }
}

pub(super) fn fetch_all() -> OffsetFetch {
    OffsetFetch { group_id: GROUP.to_owned(), member_id: None, member_epoch: -1, topics: None, require_stable: true }
}
