use walser_protocol::ErrorCode;

use super::command::{DescribeGroups, OffsetDelete};
use super::harness::{GROUP, Harness, commit, join};
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
