use bytes::Bytes;
use walser_protocol::ErrorCode;

use super::super::command::{Heartbeat, JoinGroup};
use super::super::harness::{
    GROUP, Harness, REBALANCE_MS, SESSION_MS, TOPIC, WALL_START_MS, commit, dynamic_id, join, protocol, subscription,
    sync, uuid_text,
};
use super::super::record::{GroupMetadataValue, GroupRecord, MemberMetadata};
use super::super::reply::{JoinGroupReply, JoinedMember, LeftMember, SyncGroupReply};
use super::super::{Command, GroupSettings, Reply, RequestId};

const INITIAL_DELAY_MS: u64 = 3_000;

/// A stable group of dynamic members with these numbers; the first leads. Gives their ids and the generation.
fn stable(harness: &mut Harness, numbers: &[u8]) -> (Vec<String>, i32) {
    stable_of(harness, numbers.iter().map(|number| join(*number)).collect())
}

fn stable_of(harness: &mut Harness, joins: Vec<JoinGroup>) -> (Vec<String>, i32) {
    let requests: Vec<RequestId> = joins
        .into_iter()
        .map(|join| match join.group_instance_id {
            Some(_) => harness.join(join),
            None => harness.join_dynamic(join).1,
        })
        .collect();
    harness.pass(2 * INITIAL_DELAY_MS);
    let replies: Vec<JoinGroupReply> = requests.into_iter().map(|request| harness.joined(request)).collect();
    let ids: Vec<String> = replies.iter().map(|reply| reply.member_id.clone()).collect();
    let generation_id = replies[0].generation_id;
    assert_eq!(replies[0].leader, ids[0]);
    let assignments: Vec<_> = ids.iter().map(|member_id| (member_id.as_str(), member_id.as_str())).collect();
    for member_id in ids.iter().rev() {
        let assignments = if *member_id == ids[0] { &assignments[..] } else { &[] };
        harness.sync(generation_id, member_id, assignments);
    }
    assert_eq!(harness.state(), "Stable");
    harness.replies.clear();
    (ids, generation_id)
}

fn static_join(number: u8, instance_id: &str) -> JoinGroup {
    JoinGroup { group_instance_id: Some(instance_id.to_owned()), ..join(number) }
}

fn known(member_id: &str, join: JoinGroup) -> JoinGroup {
    JoinGroup { member_id: member_id.to_owned(), ..join }
}

fn metadata_record(value: GroupMetadataValue) -> GroupRecord {
    GroupRecord::GroupMetadata { group_id: GROUP.to_owned(), value: Some(value) }
}

fn error_of(harness: &mut Harness, join: JoinGroup) -> ErrorCode {
    let request = harness.join(join);
    harness.joined(request).error
}

#[test]
fn a_first_member_gets_an_id_and_then_a_generation() {
    // Rule: MEMBER_ID_REQUIRED, the initial delay, the join, the sync; records when the group appears and when it is assigned.
    let mut harness = Harness::new();
    let request = harness.join(join(1));
    let want = JoinGroupReply::failed(&dynamic_id(1), ErrorCode::MemberIdRequired);
    assert_eq!(harness.joined(request), want);
    let appeared = GroupMetadataValue {
        protocol_type: String::new(),
        generation_id: 0,
        protocol_name: None,
        leader: None,
        current_state_timestamp_ms: WALL_START_MS,
        members: Vec::new(),
    };
    assert_eq!(harness.take_records(), [metadata_record(appeared)]);

    let request = harness.join(known(&dynamic_id(1), join(1)));
    harness.pass(INITIAL_DELAY_MS - 1);
    assert!(harness.is_waiting(request));
    harness.pass(1);
    let metadata = Bytes::from(subscription(&[TOPIC]));
    let members = vec![JoinedMember { member_id: dynamic_id(1), group_instance_id: None, metadata: metadata.clone() }];
    let want = JoinGroupReply {
        error: ErrorCode::None,
        generation_id: 1,
        protocol_type: Some("consumer".to_owned()),
        protocol_name: Some("range".to_owned()),
        leader: dynamic_id(1),
        skip_assignment: false,
        member_id: dynamic_id(1),
        members,
    };
    assert_eq!(harness.joined(request), want);
    assert_eq!(harness.take_records(), []);

    let request = harness.sync(1, &dynamic_id(1), &[(&dynamic_id(1), "all")]);
    let assigned = GroupMetadataValue {
        protocol_type: "consumer".to_owned(),
        generation_id: 1,
        protocol_name: Some("range".to_owned()),
        leader: Some(dynamic_id(1)),
        current_state_timestamp_ms: WALL_START_MS + 3_000,
        members: vec![MemberMetadata {
            member_id: dynamic_id(1),
            group_instance_id: None,
            client_id: "client-1".to_owned(),
            client_host: "/127.0.0.1".to_owned(),
            rebalance_timeout_ms: REBALANCE_MS,
            session_timeout_ms: SESSION_MS,
            subscription: metadata,
            assignment: Bytes::from_static(b"all"),
        }],
    };
    assert_eq!(harness.take_records(), [metadata_record(assigned)]);
    let want = SyncGroupReply {
        error: ErrorCode::None,
        protocol_type: Some("consumer".to_owned()),
        protocol_name: Some("range".to_owned()),
        assignment: Bytes::from_static(b"all"),
    };
    assert_eq!(harness.synced(request), want);
}

#[test]
fn old_clients_join_at_once() {
    // Rule: before version 4 a member need not know its id; in version 0 the session timeout is the rebalance timeout.
    let mut harness = Harness::new();
    let request = harness.join(JoinGroup { api_version: 0, rebalance_timeout_ms: -1, ..join(1) });
    harness.pass(INITIAL_DELAY_MS);
    let reply = harness.joined(request);
    assert_eq!((reply.error, reply.member_id.as_str()), (ErrorCode::None, dynamic_id(1).as_str()));
    harness.take_records();
    harness.sync(1, &dynamic_id(1), &[]);
    let [GroupRecord::GroupMetadata { value: Some(value), .. }] = &harness.take_records()[..] else { panic!() };
    assert_eq!(value.members[0].rebalance_timeout_ms, SESSION_MS);
}

#[test]
fn the_initial_delay_grows_with_newcomers() {
    // Rule: each delay in which somebody came is followed by another, up to the first member's rebalance timeout.
    let mut harness = Harness::new();
    let quick = |number| JoinGroup { rebalance_timeout_ms: 7_000, ..join(number) };
    let (_, first) = harness.join_dynamic(quick(1));
    harness.pass(2_000);
    harness.join_dynamic(quick(2));
    harness.pass(2_000);
    harness.join_dynamic(quick(3));
    harness.pass(2_000);
    assert!(harness.is_waiting(first), "3 s, and 3 s more");
    harness.join_dynamic(quick(4));
    harness.pass(999);
    assert!(harness.is_waiting(first), "and the 1 s that is left of 7");
    harness.pass(1);
    assert_eq!(harness.joined(first).members.len(), 4);
}

#[test]
fn requests_are_checked_in_kafkas_order() {
    // Rule: group id, session timeout, existence of the group, room, protocols, then the member.
    let mut harness = Harness::new();
    let no_group = JoinGroup { group_id: String::new(), session_timeout_ms: 1, ..join(1) };
    assert_eq!(error_of(&mut harness, no_group), ErrorCode::InvalidGroupId);
    for session_timeout_ms in [5_999, 1_800_001] {
        let error = error_of(&mut harness, JoinGroup { session_timeout_ms, ..known("x", join(1)) });
        assert_eq!(error, ErrorCode::InvalidSessionTimeout);
    }
    assert_eq!(error_of(&mut harness, known("x", join(1))), ErrorCode::UnknownMemberId);
    assert_eq!(harness.log.len(), 0, "a stranger's id makes no group");
    let no_protocols = JoinGroup { protocols: Vec::new(), ..join(1) };
    assert_eq!(error_of(&mut harness, no_protocols), ErrorCode::InconsistentGroupProtocol);
    stable(&mut harness, &[1]);
    let connect = JoinGroup { protocol_type: "connect".to_owned(), ..known("x", join(2)) };
    assert_eq!(error_of(&mut harness, connect), ErrorCode::InconsistentGroupProtocol);
    let other = JoinGroup { protocols: vec![protocol("sticky", b"")], ..join(2) };
    assert_eq!(error_of(&mut harness, other), ErrorCode::InconsistentGroupProtocol);
    assert_eq!(error_of(&mut harness, known("x", join(2))), ErrorCode::UnknownMemberId);
    assert_eq!(error_of(&mut harness, known("x", static_join(2, "i"))), ErrorCode::UnknownMemberId);
}

#[test]
fn followers_wait_for_the_leader() {
    // Rule: everybody gets what the leader assigned, who was forgotten gets nothing, and the group is stable once it is logged.
    let mut harness = Harness::new();
    let (first, request) = harness.join_dynamic(join(1));
    let (second, _) = harness.join_dynamic(join(2));
    let (third, _) = harness.join_dynamic(join(3));
    harness.pass(2 * INITIAL_DELAY_MS);
    assert_eq!(harness.joined(request).members.len(), 3);
    let waiting = harness.sync(1, &second, &[]);
    assert!(harness.is_waiting(waiting));
    assert_eq!(harness.state(), "CompletingRebalance");
    harness.is_commit_held = true;
    let leading = harness.sync(1, &first, &[(&first, "a"), (&second, "b"), ("stranger", "c")]);
    assert!(harness.is_waiting(leading) && harness.is_waiting(waiting), "not before it is committed");
    harness.is_commit_held = false;
    harness.carry_out();
    assert_eq!(harness.synced(leading).assignment, "a");
    assert_eq!(harness.synced(waiting).assignment, "b");
    let late = harness.sync(1, &third, &[]);
    assert_eq!(harness.synced(late).assignment, "");
    assert_eq!(harness.state(), "Stable");
}

#[test]
fn syncs_are_checked() {
    // Rule: the member, its generation and its protocol must be the group's, and the group must not be joining.
    let mut harness = Harness::new();
    let sync_error = |harness: &mut Harness, sync| {
        let request = harness.start(Command::SyncGroup(sync));
        harness.synced(request).error
    };
    assert_eq!(sync_error(&mut harness, sync(1, "x", &[])), ErrorCode::UnknownMemberId);
    let (ids, generation_id) = stable(&mut harness, &[1, 2]);
    let good = || sync(generation_id, &ids[1], &[]);
    let mut no_group = good();
    no_group.group_id = String::new();
    assert_eq!(sync_error(&mut harness, no_group), ErrorCode::InvalidGroupId);
    assert_eq!(sync_error(&mut harness, sync(generation_id, "x", &[])), ErrorCode::UnknownMemberId);
    assert_eq!(sync_error(&mut harness, sync(generation_id + 1, &ids[1], &[])), ErrorCode::IllegalGeneration);
    let mut other_type = good();
    other_type.protocol_type = Some("connect".to_owned());
    assert_eq!(sync_error(&mut harness, other_type), ErrorCode::InconsistentGroupProtocol);
    let mut other_name = good();
    other_name.protocol_name = Some("sticky".to_owned());
    assert_eq!(sync_error(&mut harness, other_name), ErrorCode::InconsistentGroupProtocol);
    let mut old_client = good();
    (old_client.protocol_type, old_client.protocol_name) = (None, None);
    assert_eq!(sync_error(&mut harness, old_client), ErrorCode::None);
    harness.join_dynamic(join(3));
    assert_eq!(sync_error(&mut harness, good()), ErrorCode::RebalanceInProgress);
}

#[test]
fn a_newcomer_makes_everybody_join_again() {
    // Rule: members hear of it by their heartbeats; when all have joined, the next generation begins at once.
    let mut harness = Harness::new();
    let (ids, generation_id) = stable(&mut harness, &[1, 2]);
    assert_eq!(harness.heartbeat(generation_id, &ids[1]), ErrorCode::None);
    let (third, joining) = harness.join_dynamic(join(3));
    assert_eq!(harness.heartbeat(generation_id, &ids[1]), ErrorCode::RebalanceInProgress);
    let first = harness.join(known(&ids[0], join(1)));
    assert!(harness.is_waiting(first));
    let second = harness.join(known(&ids[1], join(2)));
    for request in [first, second, joining] {
        let reply = harness.joined(request);
        assert_eq!((reply.error, reply.generation_id), (ErrorCode::None, generation_id + 1));
        assert_eq!(reply.leader, ids[0]);
    }
    assert_eq!(harness.heartbeat(generation_id, &third), ErrorCode::IllegalGeneration);
    assert_eq!(harness.heartbeat(generation_id + 1, &third), ErrorCode::None);
    assert_eq!(harness.heartbeat(generation_id + 1, "x"), ErrorCode::UnknownMemberId);
}

#[test]
fn who_does_not_join_in_time_is_out() {
    // Rule: after the longest rebalance timeout the others go on, with a new leader where the old one is gone.
    let mut harness = Harness::new();
    let (ids, generation_id) = stable(&mut harness, &[1, 2]);
    let (third, joining) = harness.join_dynamic(join(3));
    for _ in 0..7 {
        harness.pass(8_000);
        harness.heartbeat(generation_id, &ids[0]);
        harness.heartbeat(generation_id, &ids[1]);
    }
    let second = harness.join(known(&ids[1], join(2)));
    assert!(harness.is_waiting(second));
    harness.pass(4_000);
    let replies = [harness.joined(second), harness.joined(joining)];
    assert_eq!(replies[0].leader, ids[1].clone().min(third));
    assert_eq!(replies.iter().map(|reply| reply.members.len()).max(), Some(2));
    assert_eq!(harness.heartbeat(generation_id + 1, &ids[0]), ErrorCode::UnknownMemberId);
}

#[test]
fn silent_members_are_removed() {
    // Rule: a session without a sign of life ends; the group goes on without the member, and alone it becomes empty.
    let mut harness = Harness::new();
    let (ids, generation_id) = stable(&mut harness, &[1, 2]);
    harness.pass(6_000);
    assert_eq!(harness.heartbeat(generation_id, &ids[0]), ErrorCode::None);
    harness.pass(4_000);
    assert_eq!(harness.state(), "PreparingRebalance", "the second was silent for 10 s");
    let request = harness.join(known(&ids[0], join(1)));
    assert_eq!(harness.joined(request).members.len(), 1);
    harness.sync(generation_id + 1, &ids[0], &[]);
    harness.take_records();
    harness.pass(10_000);
    let emptied = GroupMetadataValue {
        protocol_type: "consumer".to_owned(),
        generation_id: generation_id + 2,
        protocol_name: None,
        leader: None,
        current_state_timestamp_ms: harness.wall_ms,
        members: Vec::new(),
    };
    assert_eq!(harness.take_records(), [metadata_record(emptied)]);
    assert_eq!(harness.heartbeat(generation_id + 2, &ids[0]), ErrorCode::UnknownMemberId);
}

#[test]
fn commits_are_signs_of_life() {
    // Rule: a member that commits keeps its session, also while the group rebalances.
    let mut harness = Harness::new();
    let (ids, generation_id) = stable(&mut harness, &[1]);
    for _ in 0..3 {
        harness.pass(8_000);
        let mut by_member = commit(1);
        by_member.generation_id_or_member_epoch = generation_id;
        by_member.member_id.clone_from(&ids[0]);
        assert_eq!(harness.commit_error(by_member), ErrorCode::None);
    }
    assert_eq!(harness.state(), "Stable");
}

#[test]
fn ids_that_are_never_used_expire() {
    // Rule: a pending member holds up the rebalance until its session ends, and then is forgotten.
    let mut harness = Harness::new();
    let (ids, _) = stable(&mut harness, &[1]);
    let pending = harness.join(join(2));
    assert_eq!(harness.joined(pending).error, ErrorCode::MemberIdRequired);
    let leading = harness.join(known(&ids[0], join(1)));
    assert!(harness.is_waiting(leading), "the pending member may still come");
    harness.pass(u64::try_from(SESSION_MS).unwrap());
    assert_eq!(harness.joined(leading).members.len(), 1);
    assert_eq!(error_of(&mut harness, known(&dynamic_id(2), join(2))), ErrorCode::UnknownMemberId);
}

#[test]
fn a_member_that_does_not_sync_is_removed() {
    // Rule: who has not fetched its assignment within the rebalance timeout is out, and the group rebalances.
    let mut harness = Harness::new();
    let (first, request) = harness.join_dynamic(join(1));
    let (second, _) = harness.join_dynamic(join(2));
    harness.pass(2 * INITIAL_DELAY_MS);
    harness.joined(request);
    harness.sync(1, &first, &[(&second, "b")]);
    for _ in 0..12 {
        harness.pass(5_000);
        harness.heartbeat(1, &first);
        harness.heartbeat(1, &second);
    }
    assert_eq!(harness.heartbeat(1, &second), ErrorCode::UnknownMemberId);
    assert_eq!(harness.heartbeat(1, &first), ErrorCode::RebalanceInProgress);
}

#[test]
fn members_leave() {
    // Rule: each is answered by itself; pending members may leave; an instance id alone is enough for an admin.
    let mut harness = Harness::new();
    let (ids, generation_id) = stable_of(&mut harness, vec![join(1), static_join(2, "two"), static_join(3, "three")]);
    let pending = harness.join(join(4));
    let pending = harness.joined(pending).member_id;
    let reply = harness.leave(&[
        (&ids[0], None),
        ("", Some("two")),
        ("x", Some("three")),
        ("x", None),
        ("", None),
        ("", Some("four")),
        (&pending, None),
    ]);
    let errors: Vec<ErrorCode> = reply.members.iter().map(|member| member.error).collect();
    let (none, unknown) = (ErrorCode::None, ErrorCode::UnknownMemberId);
    assert_eq!(errors, [none, none, ErrorCode::FencedInstanceId, unknown, unknown, unknown, none]);
    assert_eq!(reply.error, ErrorCode::None);
    let two = LeftMember { member_id: String::new(), group_instance_id: Some("two".to_owned()), error: none };
    assert_eq!(reply.members[1], two);
    assert_eq!(harness.state(), "PreparingRebalance");
    let request = harness.join(known(&ids[2], static_join(3, "three")));
    assert_eq!(harness.joined(request).generation_id, generation_id + 1);
    harness.leave(&[(&ids[2], None)]);
    assert_eq!(harness.state(), "Empty");
    assert_eq!(harness.leave(&[("x", None)]).members[0].error, ErrorCode::UnknownMemberId);
}

#[test]
fn a_static_member_comes_back_without_a_rebalance() {
    // Rule: a new id in the old place, logged; the former incarnation is fenced; nobody else notices.
    let mut harness = Harness::new();
    let (ids, generation_id) = stable_of(&mut harness, vec![static_join(1, "one"), static_join(2, "two")]);
    harness.take_records();
    let request = harness.join(static_join(7, "two"));
    let reply = harness.joined(request);
    let new_id = format!("two-{}", uuid_text(7));
    assert_eq!((reply.error, reply.generation_id), (ErrorCode::None, generation_id));
    assert_eq!((&reply.member_id, &reply.leader, reply.skip_assignment), (&new_id, &ids[0], false));
    assert_eq!(reply.members, []);
    let [GroupRecord::GroupMetadata { value: Some(value), .. }] = &harness.take_records()[..] else { panic!() };
    let replaced = value.members.iter().find(|member| member.member_id == new_id).expect("the new id is logged");
    assert_eq!(replaced.assignment, ids[1], "with the assignment of the old one");
    assert_eq!((value.members.len(), value.generation_id), (2, generation_id));
    assert_eq!(harness.state(), "Stable");

    let beat = |member_id: &str| {
        Command::Heartbeat(Heartbeat {
            group_id: GROUP.to_owned(),
            generation_id,
            member_id: member_id.to_owned(),
            group_instance_id: Some("two".to_owned()),
        })
    };
    assert_eq!(harness.call(beat(&ids[1])), Reply::Heartbeat(ErrorCode::FencedInstanceId));
    assert_eq!(harness.call(beat(&new_id)), Reply::Heartbeat(ErrorCode::None));
    assert_eq!(error_of(&mut harness, known(&ids[1], static_join(2, "two"))), ErrorCode::FencedInstanceId);
    let synced = harness.sync(generation_id, &new_id, &[]);
    assert_eq!(harness.synced(synced).assignment, ids[1]);
}

#[test]
fn a_static_leader_skips_the_assignment() {
    // Rule: from version 9 on the leader is told who it leads and that nothing is to be assigned; before, that it does not lead.
    let mut harness = Harness::new();
    let (ids, _) = stable_of(&mut harness, vec![static_join(1, "one"), static_join(2, "two")]);
    let request = harness.join(static_join(7, "one"));
    let reply = harness.joined(request);
    assert!(reply.skip_assignment);
    assert_eq!((reply.leader.as_str(), reply.members.len()), (reply.member_id.as_str(), 2));
    let request = harness.join(JoinGroup { api_version: 8, ..static_join(8, "one") });
    let old = harness.joined(request);
    assert_eq!((old.leader, old.skip_assignment, old.members.len()), (reply.member_id, false, 0));
    assert_eq!(harness.heartbeat(1, &ids[0]), ErrorCode::UnknownMemberId);
}

#[test]
fn a_static_member_with_other_protocols_rebalances() {
    // Rule: where the group would choose another protocol, everybody joins again.
    let mut harness = Harness::new();
    let both = |number, instance_id, names: [&str; 2]| JoinGroup {
        protocols: names.iter().map(|name| protocol(name, b"m")).collect(),
        ..static_join(number, instance_id)
    };
    let first = both(1, "one", ["range", "roundrobin"]);
    stable_of(&mut harness, vec![first, both(2, "two", ["range", "roundrobin"])]);
    let request = harness.join(both(7, "one", ["roundrobin", "range"]));
    harness.joined(request);
    assert_eq!(harness.state(), "Stable", "range still wins the tie");
    let request = harness.join(both(8, "two", ["roundrobin", "range"]));
    assert!(harness.is_waiting(request));
    assert_eq!(harness.state(), "PreparingRebalance");
}

#[test]
fn waiting_incarnations_are_fenced() {
    // Rule: a static member that joins while its former self waits takes over, in the join phase and in the sync phase.
    let mut harness = Harness::new();
    let former = harness.join(static_join(1, "one"));
    let request = harness.join(static_join(2, "one"));
    let fenced = JoinGroupReply::failed(&format!("one-{}", uuid_text(1)), ErrorCode::FencedInstanceId);
    assert_eq!(harness.joined(former), fenced);
    harness.pass(INITIAL_DELAY_MS);
    let first = harness.joined(request).member_id;
    let other = harness.join(static_join(3, "two"));
    let again = harness.join(known(&first, static_join(2, "one")));
    let reply = harness.joined(again);
    let second = harness.joined(other).member_id;
    assert_eq!(reply.leader, first);
    let syncing = harness.sync(reply.generation_id, &second, &[]);
    let request = harness.join(static_join(4, "two"));
    assert_eq!(harness.synced(syncing), SyncGroupReply::failed(ErrorCode::FencedInstanceId));
    assert!(harness.is_waiting(request), "nobody has been assigned anything yet: the group joins again");
    assert_eq!(harness.state(), "PreparingRebalance");
}

#[test]
fn static_members_outlast_a_rebalance_they_sleep_through() {
    // Rule: only their session timeout removes them; with nobody else there, the join phase begins anew.
    let mut harness = Harness::new();
    let sleeping = JoinGroup { session_timeout_ms: 200_000, ..static_join(1, "one") };
    let (ids, generation_id) = stable_of(&mut harness, vec![sleeping, join(2)]);
    harness.leave(&[(&ids[1], None)]);
    assert_eq!(harness.state(), "PreparingRebalance");
    harness.pass(u64::try_from(REBALANCE_MS).unwrap() + 1);
    assert_eq!(harness.state(), "PreparingRebalance");
    let (_, joining) = harness.join_dynamic(join(3));
    harness.pass(u64::try_from(REBALANCE_MS).unwrap());
    let reply = harness.joined(joining);
    assert_eq!((reply.generation_id, reply.members.len()), (generation_id + 1, 2), "the sleeper keeps its place");
    assert_eq!(reply.leader, dynamic_id(3), "but does not lead");
}

#[test]
fn leaders_and_changed_members_start_a_rebalance_by_joining() {
    // Rule: a follower that joins as it was is told the generation; a leader, or a changed follower, wants a new one.
    let mut harness = Harness::new();
    let (ids, generation_id) = stable(&mut harness, &[1, 2]);
    let request = harness.join(known(&ids[1], join(2)));
    let reply = harness.joined(request);
    assert_eq!((reply.error, reply.generation_id, reply.members.len()), (ErrorCode::None, generation_id, 0));
    let changed = JoinGroup { protocols: vec![protocol("range", &subscription(&["u"]))], ..join(2) };
    let request = harness.join(known(&ids[1], changed));
    assert!(harness.is_waiting(request));
    let leading = harness.join(known(&ids[0], join(1)));
    assert_eq!(harness.joined(leading).generation_id, generation_id + 1);
    harness.joined(request);
    let again = harness.join(known(&ids[0], join(1)));
    assert_eq!(harness.joined(again).members.len(), 2, "while the group is to sync the leader is told again");
}

#[test]
fn a_repeated_request_replaces_the_first() {
    // Rule: every request is answered; the one a member no longer waits with hears that there is a rebalance.
    let mut harness = Harness::new();
    let (member_id, first) = harness.join_dynamic(join(1));
    let second = harness.join(known(&member_id, join(1)));
    assert_eq!(harness.joined(first).error, ErrorCode::RebalanceInProgress);
    harness.pass(INITIAL_DELAY_MS);
    assert_eq!(harness.joined(second).error, ErrorCode::None);
}

#[test]
fn the_protocol_most_members_prefer_wins() {
    // Rule: among the protocols all support, each member votes for its first; ties go as in Kafka.
    let named = |names: &[&str]| names.iter().map(|name| protocol(name, b"")).collect::<Vec<_>>();
    let cases: [(&[&[&str]], &str); 6] = [
        (&[&["a", "b"], &["b", "a"], &["b", "a"]], "b"),
        (&[&["a", "b", "c"], &["c", "a"], &["c", "a"]], "c"),
        (&[&["a", "b"], &["b"], &["a", "b"]], "b"),
        (&[&["range", "roundrobin"], &["roundrobin", "range"]], "range"),
        (&[&["sticky", "cooperative-sticky"], &["cooperative-sticky", "sticky"]], "sticky"),
        (&[&["range", "sticky"], &["sticky", "range"]], "sticky"),
    ];
    for (members, want) in cases {
        let mut harness = Harness::new();
        let joins = (1..).zip(members).map(|(number, names)| JoinGroup { protocols: named(names), ..join(number) });
        let requests: Vec<_> = joins.map(|join| harness.join_dynamic(join).1).collect();
        harness.pass(2 * INITIAL_DELAY_MS);
        assert_eq!(harness.joined(requests[0]).protocol_name.as_deref(), Some(want), "{members:?}");
    }
}

#[test]
fn groups_have_a_most() {
    // Rule: group.max.size members; a member that is in stays in, and one that comes too late in a join phase is out.
    let mut harness = Harness::with(GroupSettings { group_max_size: 2, ..GroupSettings::default() });
    let (ids, _) = stable(&mut harness, &[1, 2]);
    assert_eq!(error_of(&mut harness, join(3)), ErrorCode::GroupMaxSizeReached);
    let leading = harness.join(known(&ids[0], join(1)));
    let request = harness.join(join(3));
    let pending = harness.joined(request);
    assert_eq!(pending.error, ErrorCode::MemberIdRequired);
    harness.join(known(&pending.member_id, join(3)));
    assert_eq!(error_of(&mut harness, known(&ids[1], join(2))), ErrorCode::GroupMaxSizeReached);
    assert!(harness.is_waiting(leading));
}

#[test]
fn groups_are_described_and_listed() {
    // Rule: metadata only of a stable group; missing groups are dead, and from version 6 on an error; filters ignore case.
    let mut harness = Harness::new();
    assert_eq!(harness.describe(GROUP).error, ErrorCode::GroupIdNotFound);
    assert_eq!(harness.describe(GROUP).error_message.as_deref(), Some("Group group not found."));
    assert_eq!(harness.describe(GROUP).group_state, "Dead");
    let old = super::super::command::DescribeGroups { api_version: 5, group_ids: vec![GROUP.to_owned()] };
    let Reply::DescribeGroups(groups) = harness.call(Command::DescribeGroups(old)) else { panic!() };
    assert_eq!((groups[0].error, groups[0].group_state.as_str()), (ErrorCode::None, "Dead"));

    let (ids, _) = stable(&mut harness, &[1]);
    let described = harness.describe(GROUP);
    assert_eq!((described.protocol_type.as_str(), described.protocol_data.as_str()), ("consumer", "range"));
    assert_eq!(described.members[0].member_metadata, subscription(&[TOPIC]));
    assert_eq!(described.members[0].member_assignment, ids[0]);
    harness.join(join(2));
    harness.join(known(&ids[0], join(1)));
    let described = harness.describe(GROUP);
    assert_eq!((described.group_state.as_str(), described.protocol_data.as_str()), ("PreparingRebalance", ""));
    assert_eq!(described.members[0].member_metadata, "");

    let mut simple = commit(1);
    simple.group_id = "simple".to_owned();
    harness.commit(simple);
    let ids = |harness: &mut Harness, states: &[&str], types: &[&str]| -> Vec<String> {
        harness.list(states, types).into_iter().map(|group| group.group_id).collect()
    };
    assert_eq!(ids(&mut harness, &[], &[]), [GROUP, "simple"]);
    assert_eq!(ids(&mut harness, &[" preparingREBALANCE"], &["Classic"]), [GROUP]);
    assert_eq!(ids(&mut harness, &["Empty", "Dead"], &[]), ["simple"]);
    assert_eq!(ids(&mut harness, &[], &["consumer"]), [""; 0]);
    assert_eq!(harness.list(&["Empty"], &[])[0].protocol_type, "");
}

#[test]
fn a_loaded_group_is_as_it_was() {
    // Rule: members, assignments, leader and generation come back from the log, and sessions begin anew.
    let mut harness = Harness::new();
    let (ids, generation_id) = stable_of(&mut harness, vec![join(1), static_join(2, "two")]);
    let before = harness.describe(GROUP);
    harness.pass(5_000);
    harness.reload(ErrorCode::NotCoordinator);
    assert_eq!(harness.describe(GROUP), before);
    harness.pass(9_000);
    assert_eq!(harness.heartbeat(generation_id, &ids[0]), ErrorCode::None);
    let request = harness.join(static_join(5, "two"));
    assert_eq!(harness.joined(request).leader, ids[0]);
    harness.pass(1_001);
    assert_eq!(harness.state(), "Stable");
}

#[test]
fn a_loaded_group_that_is_too_large_rebalances() {
    // Rule: where group.max.size has become less, members join again, and those that come first stay.
    let mut harness = Harness::new();
    stable(&mut harness, &[1, 2, 3]);
    harness.settings.group_max_size = 2;
    harness.reload(ErrorCode::NotCoordinator);
    assert_eq!(harness.state(), "PreparingRebalance");
}

#[test]
fn damaged_groups_are_loaded_as_far_as_they_make_sense() {
    // Rule: a leader that is no member, an instance id twice, a chosen protocol that is missing: nothing panics.
    let mut harness = Harness::new();
    let member = |member_id: &str| MemberMetadata {
        member_id: member_id.to_owned(),
        group_instance_id: Some("same".to_owned()),
        client_id: String::new(),
        client_host: String::new(),
        rebalance_timeout_ms: -1,
        session_timeout_ms: -7,
        subscription: Bytes::from_static(b"?"),
        assignment: Bytes::new(),
    };
    harness.log.push(metadata_record(GroupMetadataValue {
        protocol_type: "consumer".to_owned(),
        generation_id: i32::MAX,
        protocol_name: None,
        leader: Some("stranger".to_owned()),
        current_state_timestamp_ms: -1,
        members: vec![member("a"), member("b")],
    }));
    harness.reload(ErrorCode::NotCoordinator);
    assert_eq!(harness.describe(GROUP).members.len(), 1);
    harness.pass(1);
    assert_eq!(harness.state(), "Empty");
    let Some(GroupRecord::GroupMetadata { value: Some(value), .. }) = harness.take_records().pop() else { panic!() };
    assert_eq!(value.generation_id, 0, "the generation after the last one is the first");
}

#[test]
fn assignments_that_no_batch_can_hold_are_refused() {
    // Rule: the members learn that it failed and join again; the group lives on.
    let mut harness = Harness::with(GroupSettings { max_message_bytes: 2_000, ..GroupSettings::default() });
    let (first, request) = harness.join_dynamic(join(1));
    harness.pass(INITIAL_DELAY_MS);
    harness.joined(request);
    let large = "x".repeat(2_000);
    let request = harness.sync(1, &first, &[(&first, &large)]);
    assert_eq!(harness.synced(request).error, ErrorCode::UnknownServerError);
    assert_eq!(harness.state(), "PreparingRebalance");
    let request = harness.join(known(&first, join(1)));
    assert_eq!(harness.joined(request).generation_id, 2);
    harness.sync(2, &first, &[(&first, "small")]);
    assert_eq!(harness.state(), "Stable");
}

#[test]
fn new_members_do_not_wait_for_ever() {
    // Rule: a member that has never been answered is removed after five minutes, though it waits.
    let mut harness = Harness::new();
    let patient = |number| JoinGroup { rebalance_timeout_ms: 1_000_000, ..join(number) };
    let (ids, generation_id) = stable_of(&mut harness, vec![patient(1)]);
    let (_, joining) = harness.join_dynamic(patient(2));
    for _ in 0..60 {
        assert!(harness.is_waiting(joining));
        harness.heartbeat(generation_id, &ids[0]);
        harness.pass(5_000);
    }
    assert_eq!(harness.joined(joining).error, ErrorCode::UnknownMemberId);
}
