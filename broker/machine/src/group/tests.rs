use std::collections::BTreeMap;

use proptest::prelude::*;
use walser_protocol::ErrorCode;
use walser_protocol::types::Uuid;

use super::command::{DescribeGroups, OffsetDelete};
use super::harness::{GROUP, Harness, TOPIC, TOPIC_ID, commit, committed_topic, join, protocol, subscription, sync};
use super::reply::{JoinGroupReply, OffsetDeleteReply};
use super::{Command, Effect, GroupCoordinator, GroupSettings, Now, Reply, RequestId, append_error};

#[test]
fn replies_wait_for_the_records_they_tell_of() {
    // Rule: nothing that is not committed is told to anybody, also not by a later request that only reads.
    let mut harness = Harness::new();
    harness.is_commit_held = true;
    let committing = harness.start(Command::OffsetCommit(commit(7)));
    let describe = DescribeGroups { api_version: 6, group_ids: vec![GROUP.to_owned()] };
    let describing = harness.start(Command::DescribeGroups(describe));
    assert!(harness.is_waiting(committing));
    assert!(harness.is_waiting(describing));
    harness.coordinator.handle_committed(0);
    harness.carry_out();
    assert!(harness.is_waiting(committing), "a high watermark below the record releases nothing");
    harness.coordinator.handle_committed(1);
    harness.carry_out();
    assert!(!harness.is_waiting(committing));
    assert!(!harness.is_waiting(describing));
}

#[test]
fn records_follow_markers_of_transactions() {
    // Rule: a marker that somebody else wrote takes an offset, and replies wait for it like for any other record.
    let now = Now { timer_ms: 0, wall_ms: 0 };
    let mut coordinator = GroupCoordinator::new(GroupSettings::default(), Default::default(), now);
    coordinator.finish_loading(now, 10);
    coordinator.replay_end_transaction(10, 40, true);
    coordinator.handle(now, RequestId(1), Command::OffsetCommit(commit(7)));
    let Some(Effect::Append { base_offset, .. }) = coordinator.poll_effect() else { panic!("a commit is logged") };
    assert_eq!(base_offset, 11);
    coordinator.handle_committed(11);
    assert_eq!(coordinator.poll_effect(), None);
    coordinator.handle_committed(12);
    assert!(matches!(coordinator.poll_effect(), Some(Effect::Reply { request: RequestId(1), .. })));
}

#[test]
fn nothing_is_decided_before_the_log_is_read() {
    // Rule: a loading coordinator refuses, but lets heartbeats pass, so that no member thinks it has been thrown out.
    let now = Now { timer_ms: 5, wall_ms: 6 };
    let mut coordinator = GroupCoordinator::new(GroupSettings::default(), Default::default(), now);
    let heartbeat = super::command::Heartbeat {
        group_id: GROUP.to_owned(),
        generation_id: 1,
        member_id: "m".to_owned(),
        group_instance_id: None,
    };
    coordinator.handle(now, RequestId(1), Command::JoinGroup(join(1)));
    coordinator.handle(now, RequestId(2), Command::Heartbeat(heartbeat));
    let refused = Reply::JoinGroup(JoinGroupReply::failed("", ErrorCode::CoordinatorLoadInProgress));
    assert_eq!(coordinator.poll_effect(), Some(Effect::Reply { request: RequestId(1), reply: refused }));
    let alive = Reply::Heartbeat(ErrorCode::None);
    assert_eq!(coordinator.poll_effect(), Some(Effect::Reply { request: RequestId(2), reply: alive }));
    assert_eq!(coordinator.poll_effect(), None);
}

#[test]
fn who_waits_is_told_when_the_coordinator_goes() {
    // Rule: members that wait for others and replies that wait for the log are answered with the error.
    let mut harness = Harness::new();
    let (member_id, joining) = harness.join_dynamic(join(1));
    harness.is_commit_held = true;
    let committing = harness
        .start(Command::OffsetCommit(super::command::OffsetCommit { group_id: "other".to_owned(), ..commit(7) }));
    let told = harness.reload(ErrorCode::NotCoordinator);
    let failed = JoinGroupReply::failed(&member_id, ErrorCode::NotCoordinator);
    let refused = Reply::OffsetCommit(commit(7).refuse(ErrorCode::NotCoordinator));
    assert_eq!(told, [(committing, refused), (joining, Reply::JoinGroup(failed))]);
}

#[test]
fn errors_of_the_log_are_translated() {
    // Rule: clients hear of the coordinator, not of its partition.
    let cases = [
        (ErrorCode::NotEnoughReplicas, ErrorCode::CoordinatorNotAvailable),
        (ErrorCode::RequestTimedOut, ErrorCode::CoordinatorNotAvailable),
        (ErrorCode::NotLeaderOrFollower, ErrorCode::NotCoordinator),
        (ErrorCode::KafkaStorageError, ErrorCode::NotCoordinator),
        (ErrorCode::MessageTooLarge, ErrorCode::UnknownServerError),
        (ErrorCode::NotCoordinator, ErrorCode::NotCoordinator),
    ];
    for (error, told) in cases {
        assert_eq!(append_error(error), told, "{error}");
    }
}

#[test]
fn records_that_no_batch_can_hold_change_nothing() {
    // Rule: a command whose records the log cannot take is refused whole, and the coordinator lives on.
    let settings = GroupSettings { max_message_bytes: 200, ..GroupSettings::default() };
    let mut harness = Harness::with(settings);
    assert_eq!(harness.commit_error(commit(7)), ErrorCode::None);
    let mut large = commit(8);
    large.topics[0].partitions[0].committed_metadata = Some("m".repeat(150));
    assert_eq!(harness.commit_error(large), ErrorCode::UnknownServerError);
    assert_eq!(harness.offset(GROUP, 0), 7);
    assert_eq!(harness.log.len(), 1);
}

#[test]
fn missing_groups_have_no_offsets_to_delete() {
    // Rule: OffsetDelete names a group that exists.
    let mut harness = Harness::new();
    let delete = OffsetDelete { group_id: GROUP.to_owned(), topics: Vec::new() };
    let want = OffsetDeleteReply { error: ErrorCode::GroupIdNotFound, topics: Vec::new() };
    assert_eq!(harness.call(Command::OffsetDelete(delete)), Reply::OffsetDelete(want));
}

/// Anything that can happen to a coordinator, from clients that follow no protocol.
#[derive(Clone, Debug)]
enum Step {
    Join { group: u8, number: u8, instance: Option<u8>, api_version: i16, protocols: u8, is_known: bool },
    Sync { group: u8, number: u8, is_late: bool },
    Heartbeat { group: u8, number: u8 },
    Leave { group: u8, number: u8, instance: Option<u8> },
    Commit { group: u8, number: Option<u8>, partition_index: i32, retention_ms: Option<i64> },
    DeleteOffsets { group: u8, partition_index: i32 },
    DeleteGroup { group: u8 },
    Pass { ms: u64 },
    Reload,
}

fn step() -> impl Strategy<Value = Step> {
    let instance = || proptest::option::weighted(0.3, 0_u8..2);
    let join = (0_u8..2, 0_u8..4, instance(), prop_oneof![Just(3_i16), Just(9_i16)], 0_u8..4, any::<bool>());
    let join = join.prop_map(|(group, number, instance, api_version, protocols, is_known)| Step::Join {
        group,
        number,
        instance,
        api_version,
        protocols,
        is_known,
    });
    let sync = (0_u8..2, 0_u8..4, proptest::bool::weighted(0.1));
    let sync = sync.prop_map(|(group, number, is_late)| Step::Sync { group, number, is_late });
    let beat = (0_u8..2, 0_u8..4).prop_map(|(group, number)| Step::Heartbeat { group, number });
    let leave = (0_u8..2, 0_u8..4, instance());
    let leave = leave.prop_map(|(group, number, instance)| Step::Leave { group, number, instance });
    let commit = (0_u8..3, proptest::option::of(0_u8..4), 0_i32..2, proptest::option::weighted(0.2, 0_i64..900_000));
    let commit = commit.prop_map(|(group, number, partition_index, retention_ms)| Step::Commit {
        group,
        number,
        partition_index,
        retention_ms,
    });
    let delete =
        (0_u8..3, 0_i32..2).prop_map(|(group, partition_index)| Step::DeleteOffsets { group, partition_index });
    let times = vec![1_u64, 1_000, 3_000, 6_000, 10_000, 60_000, 700_000, 8 * 86_400_000];
    prop_oneof![
        8 => join,
        6 => sync,
        2 => beat,
        2 => leave,
        4 => commit,
        1 => delete,
        1 => (0_u8..3).prop_map(|group| Step::DeleteGroup { group }),
        6 => proptest::sample::select(times).prop_map(|ms| Step::Pass { ms }),
        1 => Just(Step::Reload),
    ]
}

/// Carries out steps, remembering which ids and generations the members were given.
struct Walk {
    harness: Harness,
    known: BTreeMap<(u8, u8), (String, i32)>,
    waiting: BTreeMap<RequestId, (u8, u8)>,
    next_uuid: u64,
}

impl Walk {
    fn member(&self, group: u8, number: u8) -> (String, i32) {
        self.known.get(&(group, number)).cloned().unwrap_or_else(|| ("nobody".to_owned(), 1))
    }

    fn take(&mut self, step: &Step) {
        let group_id = |group: u8| format!("g{group}");
        let instance_id = |instance: Option<u8>| instance.map(|instance| format!("i{instance}"));
        match *step {
            Step::Join { group, number, instance, api_version, protocols, is_known } => {
                let names = [&["a", "b"][..], &["b", "a"], &["b"], &["a"]][usize::from(protocols)];
                let metadata = subscription(&[["topic", "other"][usize::from(number % 2)]]);
                let member_id = if is_known { self.member(group, number).0 } else { String::new() };
                let request = self.harness.join(super::command::JoinGroup {
                    api_version,
                    group_id: group_id(group),
                    member_id,
                    group_instance_id: instance_id(instance),
                    protocols: names.iter().map(|name| protocol(name, &metadata)).collect(),
                    member_uuid: Uuid::from_bytes(u128::from(self.next_uuid).to_be_bytes()),
                    ..join(number)
                });
                self.next_uuid += 1;
                self.waiting.insert(request, (group, number));
            }
            Step::Sync { group, number, is_late } => {
                let (member_id, generation_id) = self.member(group, number);
                let mut sync = sync(generation_id - i32::from(is_late), &member_id, &[(&member_id, "mine")]);
                sync.group_id = group_id(group);
                (sync.protocol_type, sync.protocol_name) = (None, None);
                self.harness.start(Command::SyncGroup(sync));
            }
            Step::Heartbeat { group, number } => {
                let (member_id, generation_id) = self.member(group, number);
                let group_id = group_id(group);
                let beat = super::command::Heartbeat { group_id, generation_id, member_id, group_instance_id: None };
                self.harness.start(Command::Heartbeat(beat));
            }
            Step::Leave { group, number, instance } => {
                let member_id = if instance.is_some() { String::new() } else { self.member(group, number).0 };
                let leaving = super::command::LeavingMember { member_id, group_instance_id: instance_id(instance) };
                let leave = super::command::LeaveGroup { group_id: group_id(group), members: vec![leaving] };
                self.harness.start(Command::LeaveGroup(leave));
            }
            Step::Commit { group, number, partition_index, retention_ms } => {
                let (member_id, generation) = number.map_or((String::new(), -1), |number| self.member(group, number));
                let offset = i64::try_from(self.harness.log.len()).unwrap();
                self.harness.start(Command::OffsetCommit(super::command::OffsetCommit {
                    group_id: group_id(group),
                    generation_id_or_member_epoch: generation,
                    member_id,
                    retention_time_ms: retention_ms,
                    topics: vec![committed_topic(TOPIC, TOPIC_ID, &[(partition_index, offset)])],
                    ..commit(0)
                }));
            }
            Step::DeleteOffsets { group, partition_index } => {
                let topic = super::command::DeletedTopicOffsets {
                    name: TOPIC.to_owned(),
                    partition_indexes: vec![partition_index],
                };
                let delete = OffsetDelete { group_id: group_id(group), topics: vec![topic] };
                self.harness.start(Command::OffsetDelete(delete));
            }
            Step::DeleteGroup { group } => {
                let delete = super::command::DeleteGroups { group_ids: vec![group_id(group)] };
                self.harness.start(Command::DeleteGroups(delete));
            }
            Step::Pass { ms } => self.harness.pass(ms),
            Step::Reload => {
                let told = self.harness.reload(ErrorCode::NotCoordinator);
                self.harness.replies.extend(told);
            }
        }
        self.learn();
    }

    fn learn(&mut self) {
        for (request, reply) in std::mem::take(&mut self.harness.replies) {
            let place = self.waiting.remove(&request);
            if let (Some(place), Reply::JoinGroup(reply)) = (place, reply)
                && matches!(reply.error, ErrorCode::None | ErrorCode::MemberIdRequired)
            {
                self.known.insert(place, (reply.member_id, reply.generation_id));
            }
        }
    }
}

proptest! {
    #[test]
    fn the_log_tells_all_that_must_last(steps in proptest::collection::vec(step(), 1..80)) {
        // Rule: replaying the records gives the live state: every offset, every group that is not in a rebalance.
        let mut walk = Walk { harness: Harness::new(), known: BTreeMap::new(), waiting: BTreeMap::new(), next_uuid: 0 };
        for step in &steps {
            walk.take(step);
            let live = &walk.harness.coordinator;
            let rebalancing = live.rebalancing();
            let loaded = walk.harness.loaded();
            prop_assert_eq!(live.durable(&rebalancing), loaded.durable(&rebalancing), "after {:?}", step);
        }
        walk.harness.pass(40 * 86_400_000);
        walk.learn();
        prop_assert_eq!(walk.waiting.len(), 0, "every request is answered");
        let left = walk.harness.list(&[], &[]);
        prop_assert_eq!(left.len(), 0, "who is silent goes, and its offsets with it");
    }
}
