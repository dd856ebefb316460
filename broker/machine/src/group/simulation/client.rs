//! A consumer that behaves: joins, assigns when it leads, syncs, reads on from what is committed, commits, heartbeats.

use std::collections::BTreeMap;

use bytes::Bytes;
use walser_protocol::ErrorCode;
use walser_protocol::types::Uuid;

use super::super::command::{
    Command, FetchedTopic, Heartbeat, JoinGroup, LeaveGroup, LeavingMember, MemberAssignment, OffsetCommit,
    OffsetFetch, SyncGroup,
};
use super::super::harness::{TOPIC, TOPIC_ID, committed_topic, protocol, subscription};
use super::super::reply::{JoinGroupReply, OffsetFetchReply, Reply, SyncGroupReply};
use super::{GROUPS, PARTITIONS, REQUEST_TIMEOUT_MS, group_id};
use crate::ids::IdGenerator;

const HEARTBEAT_MS: u64 = 3_000;
/// In most groups.
const COMMIT_MS: u64 = 1_000;
/// In the last group, whose offsets get older than the retention while they are in use.
const RARE_COMMIT_MS: u64 = 75_000;
const RETRY_MS: u64 = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The process does not run.
    Down,
    Joining,
    Syncing,
    Fetching,
    Working,
}

#[derive(Debug)]
pub(super) struct Client {
    index: usize,
    pub(super) group_id: String,
    pub(super) instance_id: Option<String>,
    api_version: i16,
    session_timeout_ms: i32,
    pub(super) phase: Phase,
    pub(super) member_id: String,
    pub(super) generation_id: i32,
    /// Where it is to read on, of the partitions it owns.
    pub(super) positions: BTreeMap<i32, i64>,
    /// What it assigns if it leads.
    assignments: Vec<MemberAssignment>,
    serial: u64,
    awaited: Option<(u64, u64, Command)>,
    asleep_until_ms: u64,
    next_heartbeat_ms: u64,
    next_commit_ms: u64,
    is_rejoining: bool,
}

impl Client {
    pub(super) fn new(index: usize, random: &mut IdGenerator) -> Self {
        let instance_id = (random.index_below(3) == 0).then(|| format!("instance-{index}"));
        Self {
            index,
            group_id: group_id(index),
            instance_id,
            api_version: if random.index_below(3) == 0 { 3 } else { 9 },
            session_timeout_ms: if random.index_below(2) == 0 { 10_000 } else { 45_000 },
            phase: Phase::Joining,
            member_id: String::new(),
            generation_id: -1,
            positions: BTreeMap::new(),
            assignments: Vec::new(),
            serial: 0,
            awaited: None,
            asleep_until_ms: 0,
            next_heartbeat_ms: 0,
            next_commit_ms: 0,
            is_rejoining: false,
        }
    }

    pub(super) fn crash(&mut self) {
        self.forget();
        self.phase = Phase::Down;
        self.awaited = None;
    }

    pub(super) fn start(&mut self) {
        if self.phase == Phase::Down {
            self.phase = Phase::Joining;
        }
    }

    pub(super) fn start_as(&mut self, instance_id: String) {
        self.instance_id = Some(instance_id);
        self.start();
    }

    pub(super) fn pause(&mut self, until_ms: u64) {
        self.asleep_until_ms = until_ms;
    }

    /// A clean stop; static members just stop.
    pub(super) fn leave(&mut self) -> Option<Command> {
        let is_member = self.phase != Phase::Down && !self.member_id.is_empty();
        let leave = LeaveGroup {
            group_id: self.group_id.clone(),
            members: vec![LeavingMember { member_id: self.member_id.clone(), group_instance_id: None }],
        };
        let is_dynamic = self.instance_id.is_none();
        self.crash();
        (is_member && is_dynamic).then_some(Command::LeaveGroup(leave))
    }

    fn forget(&mut self) {
        self.member_id = String::new();
        self.generation_id = -1;
        self.join_again();
    }

    fn join_again(&mut self) {
        self.phase = Phase::Joining;
        self.is_rejoining = false;
        self.positions = BTreeMap::new();
    }

    pub(super) fn begin_request(&mut self, now_ms: u64, command: &Command) -> u64 {
        self.serial += 1;
        self.awaited = Some((self.serial, now_ms + REQUEST_TIMEOUT_MS, command.clone()));
        self.serial
    }

    /// The request that is answered, unless it has been given up.
    pub(super) fn end_request(&mut self, serial: u64) -> Option<Command> {
        let (awaited, _, _) = self.awaited.as_ref()?;
        if *awaited != serial {
            return None;
        }
        self.awaited.take().map(|(_, _, command)| command)
    }

    /// What to ask now, if anything.
    pub(super) fn next_command(&mut self, now_ms: u64, random: &mut IdGenerator) -> Option<Command> {
        if self.phase == Phase::Down || now_ms < self.asleep_until_ms {
            return None;
        }
        if self.awaited.as_ref().is_some_and(|(_, deadline_ms, _)| now_ms < *deadline_ms) {
            return None;
        }
        self.awaited = None;
        match self.phase {
            Phase::Down => None,
            Phase::Joining => Some(self.join()),
            Phase::Syncing => Some(self.sync()),
            Phase::Fetching => Some(self.fetch()),
            Phase::Working => {
                for position in self.positions.values_mut() {
                    *position += i64::try_from(random.index_below(4)).unwrap();
                }
                // Who has slept for long may do either first.
                if now_ms >= self.next_heartbeat_ms && random.index_below(2) == 0 {
                    self.next_heartbeat_ms = now_ms + HEARTBEAT_MS;
                    return Some(self.heartbeat());
                }
                if now_ms >= self.next_commit_ms && !self.positions.is_empty() {
                    self.next_commit_ms = now_ms + self.commit_interval_ms();
                    return Some(self.commit());
                }
                None
            }
        }
    }

    fn commit_interval_ms(&self) -> u64 {
        if self.index % GROUPS == GROUPS - 1 { RARE_COMMIT_MS } else { COMMIT_MS }
    }

    fn join(&self) -> Command {
        Command::JoinGroup(JoinGroup {
            api_version: self.api_version,
            group_id: self.group_id.clone(),
            session_timeout_ms: self.session_timeout_ms,
            rebalance_timeout_ms: 15_000,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance_id.clone(),
            protocol_type: "consumer".to_owned(),
            protocols: vec![protocol("range", &subscription(&[TOPIC]))],
            client_id: format!("client-{}", self.index),
            client_host: "/127.0.0.1".to_owned(),
            member_uuid: Uuid::ZERO,
        })
    }

    fn sync(&self) -> Command {
        Command::SyncGroup(SyncGroup {
            group_id: self.group_id.clone(),
            generation_id: self.generation_id,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance_id.clone(),
            protocol_type: Some("consumer".to_owned()),
            protocol_name: Some("range".to_owned()),
            assignments: self.assignments.clone(),
        })
    }

    fn heartbeat(&self) -> Command {
        Command::Heartbeat(Heartbeat {
            group_id: self.group_id.clone(),
            generation_id: self.generation_id,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance_id.clone(),
        })
    }

    fn commit(&self) -> Command {
        let offsets: Vec<(i32, i64)> = self.positions.iter().map(|(index, position)| (*index, *position)).collect();
        Command::OffsetCommit(OffsetCommit {
            api_version: 9,
            group_id: self.group_id.clone(),
            generation_id_or_member_epoch: self.generation_id,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance_id.clone(),
            retention_time_ms: None,
            topics: vec![committed_topic(TOPIC, TOPIC_ID, &offsets)],
        })
    }

    fn fetch(&self) -> Command {
        let topic = FetchedTopic {
            name: TOPIC.to_owned(),
            topic_id: TOPIC_ID,
            partition_indexes: self.positions.keys().copied().collect(),
        };
        Command::OffsetFetch(OffsetFetch {
            group_id: self.group_id.clone(),
            member_id: None,
            member_epoch: -1,
            topics: Some(vec![topic]),
            require_stable: true,
        })
    }

    /// Takes the answer; gives what to ask at once.
    pub(super) fn hear(&mut self, now_ms: u64, command: &Command, reply: Reply) -> Option<Command> {
        if self.phase == Phase::Down {
            return None;
        }
        let is = |errors: &[ErrorCode]| errors.contains(&error_of(&reply));
        if is(&[ErrorCode::None]) {
            return self.go_on(now_ms, reply);
        }
        if is(&[ErrorCode::RebalanceInProgress]) {
            return self.give_up_partitions(command);
        }
        if is(&[ErrorCode::UnknownMemberId, ErrorCode::IllegalGeneration, ErrorCode::GroupIdNotFound]) {
            self.forget();
        } else if is(&[ErrorCode::FencedInstanceId]) {
            self.crash();
        } else if is(&[ErrorCode::NotCoordinator]) {
            self.asleep_until_ms = self.asleep_until_ms.max(now_ms + RETRY_MS);
        } else {
            let Reply::JoinGroup(JoinGroupReply { error: ErrorCode::MemberIdRequired, member_id, .. }) = reply else {
                panic!("{reply:?} to {command:?} of {self:?}");
            };
            self.member_id = member_id;
            return Some(self.join());
        }
        None
    }

    /// Commits what it has read of its partitions, and joins.
    fn give_up_partitions(&mut self, command: &Command) -> Option<Command> {
        let is_first = self.phase == Phase::Working && !self.is_rejoining && !self.positions.is_empty();
        if is_first && !matches!(command, Command::OffsetCommit(_)) {
            self.is_rejoining = true;
            return Some(self.commit());
        }
        self.join_again();
        None
    }

    fn go_on(&mut self, now_ms: u64, reply: Reply) -> Option<Command> {
        match reply {
            Reply::JoinGroup(reply) if self.phase == Phase::Joining => Some(self.joined(reply)),
            Reply::SyncGroup(reply) if self.phase == Phase::Syncing => Some(self.synced(&reply)),
            Reply::OffsetFetch(reply) if self.phase == Phase::Fetching => {
                self.fetched(now_ms, &reply);
                None
            }
            Reply::OffsetCommit(_) if self.is_rejoining => {
                self.join_again();
                None
            }
            Reply::JoinGroup(_)
            | Reply::SyncGroup(_)
            | Reply::Heartbeat(_)
            | Reply::LeaveGroup(_)
            | Reply::OffsetCommit(_)
            | Reply::OffsetFetch(_)
            | Reply::OffsetDelete(_)
            | Reply::DescribeGroups(_)
            | Reply::ListGroups(_)
            | Reply::DeleteGroups(_)
            | Reply::ConsumerGroupHeartbeat(_)
            | Reply::ConsumerGroupDescribe(_) => None,
        }
    }

    fn joined(&mut self, reply: JoinGroupReply) -> Command {
        self.assignments = Vec::new();
        if reply.leader == reply.member_id && !reply.skip_assignment {
            let count = reply.members.len();
            for (place, member) in reply.members.iter().enumerate() {
                let mine = (0..PARTITIONS).filter(|index| usize::try_from(*index).unwrap() % count == place);
                let assignment: Vec<u8> = mine.map(|index| u8::try_from(index).unwrap()).collect();
                let assignment = Bytes::from(assignment);
                self.assignments.push(MemberAssignment { member_id: member.member_id.clone(), assignment });
            }
        }
        self.member_id = reply.member_id;
        self.generation_id = reply.generation_id;
        self.phase = Phase::Syncing;
        self.sync()
    }

    fn synced(&mut self, reply: &SyncGroupReply) -> Command {
        self.positions = reply.assignment.iter().map(|index| (i32::from(*index), 0)).collect();
        self.phase = Phase::Fetching;
        self.fetch()
    }

    fn fetched(&mut self, now_ms: u64, reply: &OffsetFetchReply) {
        for partition in &reply.topics[0].partitions {
            self.positions.insert(partition.partition_index, partition.committed_offset.max(0));
        }
        self.phase = Phase::Working;
        self.next_heartbeat_ms = now_ms + HEARTBEAT_MS;
        self.next_commit_ms = now_ms + self.commit_interval_ms();
    }
}

pub(super) fn error_of(reply: &Reply) -> ErrorCode {
    match reply {
        Reply::JoinGroup(reply) => reply.error,
        Reply::SyncGroup(reply) => reply.error,
        Reply::Heartbeat(error) => *error,
        Reply::LeaveGroup(reply) => reply.error,
        Reply::OffsetCommit(reply) => reply.topics[0].partitions[0].error,
        Reply::OffsetFetch(reply) => reply.error,
        Reply::OffsetDelete(reply) => reply.error,
        Reply::DescribeGroups(groups) => groups[0].error,
        Reply::ListGroups(reply) => reply.error,
        Reply::DeleteGroups(groups) => groups[0].error,
        Reply::ConsumerGroupHeartbeat(reply) => reply.error,
        Reply::ConsumerGroupDescribe(groups) => groups[0].error,
    }
}
