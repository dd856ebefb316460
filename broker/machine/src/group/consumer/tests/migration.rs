//! Groups whose members speak both protocols, and the way from one to the other and back.

use super::*;
use crate::group::command::{Heartbeat, JoinGroup, SyncGroup};
use crate::group::harness::{self, Harness};
use crate::group::reply::JoinGroupReply;
use crate::group::settings::{GroupSettings, MigrationPolicy};
use crate::group::{Command, Reply};
use crate::metadata::MetadataDelta;

fn harness(policy: MigrationPolicy) -> Harness {
    let bench = Bench::new(&[4]);
    let mut settings = GroupSettings::default();
    settings.consumer.migration_policy = policy;
    settings.consumer.assignment_interval_ms = 0;
    let mut harness = Harness::with(settings);
    harness.image = bench.topics.image().clone();
    let delta = MetadataDelta { topics_created: harness.image.topics().cloned().collect(), ..MetadataDelta::default() };
    harness.coordinator.handle_image(harness.now(), harness.image.clone(), &delta);
    harness
}

fn call(harness: &mut Harness, request: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeatReply {
    let reply = harness.call(Command::ConsumerGroupHeartbeat(request));
    let Reply::ConsumerGroupHeartbeat(reply) = reply else { panic!("{reply:?}") };
    reply
}

fn classic_join(number: u8) -> JoinGroup {
    let subscription = harness::subscription(&["t1"]);
    JoinGroup { protocols: vec![harness::protocol("range", &subscription)], ..harness::join(number) }
}

/// As SyncGroup carries it: version 1, the partitions of `t1`, no user data.
fn blob(partitions: &[i32]) -> Vec<u8> {
    let mut blob = vec![0, 1];
    blob.extend(i32::from(!partitions.is_empty()).to_be_bytes());
    if !partitions.is_empty() {
        blob.extend([0, 2, b't', b'1']);
        blob.extend(i32::try_from(partitions.len()).expect("few").to_be_bytes());
        partitions.iter().for_each(|index| blob.extend(index.to_be_bytes()));
    }
    blob.extend((-1_i32).to_be_bytes());
    blob
}

/// A stable classic group of one member, which has all of `t1`.
fn stable_classic_group(harness: &mut Harness) -> String {
    let (member_id, joining) = harness.join_dynamic(classic_join(1));
    harness.pass(3_000);
    let joined = harness.joined(joining);
    assert_eq!((joined.error, joined.generation_id), (ErrorCode::None, 1));
    let assignments = vec![crate::group::command::MemberAssignment {
        member_id: member_id.clone(),
        assignment: blob(&[0, 1, 2, 3]).into(),
    }];
    let sync = SyncGroup { assignments, ..harness::sync(1, &member_id, &[]) };
    harness.call(Command::SyncGroup(sync));
    harness.take_records();
    member_id
}

fn join_as_member(harness: &mut Harness, member_id: &str, owned: &[i32]) -> JoinGroupReply {
    let mut subscription = harness::subscription(&["t1"]);
    if !owned.is_empty() {
        subscription.truncate(subscription.len() - 4);
        subscription.extend(1_i32.to_be_bytes());
        subscription.extend([0, 2, b't', b'1']);
        subscription.extend(i32::try_from(owned.len()).expect("few").to_be_bytes());
        owned.iter().for_each(|index| subscription.extend(index.to_be_bytes()));
    }
    let protocols = vec![harness::protocol("range", &subscription)];
    let request = harness.join(JoinGroup { member_id: member_id.to_owned(), protocols, ..classic_join(1) });
    harness.joined(request)
}

fn synced(harness: &mut Harness, generation_id: i32, member_id: &str) -> Result<Vec<u8>, ErrorCode> {
    let request = harness.sync(generation_id, member_id, &[]);
    let reply = harness.synced(request);
    if reply.error.is_error() { Err(reply.error) } else { Ok(reply.assignment.to_vec()) }
}

fn group_type(harness: &mut Harness) -> String {
    harness.list(&[], &[]).remove(0).group_type
}

#[test]
fn a_classic_group_goes_over_member_by_member_and_back() {
    // Rule: the first member of the new protocol converts the group, classic members are served until the last has gone over,
    // and when only classic ones are left the group is classic again.
    let mut harness = harness(MigrationPolicy::Bidirectional);
    let classic = stable_classic_group(&mut harness);
    let reply = call(&mut harness, join("new", &["t1"]));
    assert_eq!((reply.error, reply.member_epoch, reply.assignment), (ErrorCode::None, 2, Some(Vec::new())));
    assert_eq!(group_type(&mut harness), "consumer");
    let records = harness.take_records();
    assert_eq!(records[0], GroupRecord::GroupMetadata { group_id: GROUP.to_owned(), value: None });
    let changes: Vec<Change> =
        records[1..].iter().map(|record| Change::from_record(record).expect("its own")).collect();
    assert!(matches!(&changes[0], Change::Member { member_id, .. } if **member_id == *classic));
    assert!(matches!(&changes[1], Change::Group(Some(GroupEpoch { epoch: 1, .. }))));
    assert!(matches!(&changes[3], Change::Target(Some(TargetEpoch { epoch: 1, timestamp_ms: 0 }))));

    // The classic member hears of it, gives up what it must, and is not disturbed any more.
    assert_eq!(harness.heartbeat(1, &classic), ErrorCode::RebalanceInProgress);
    let joined = join_as_member(&mut harness, &classic, &[0, 1, 2, 3]);
    assert_eq!((joined.error, joined.generation_id, joined.leader.as_str()), (ErrorCode::None, 1, ""));
    assert_eq!(synced(&mut harness, 1, &classic), Ok(blob(&[0, 1])));
    assert_eq!(harness.heartbeat(1, &classic), ErrorCode::RebalanceInProgress);
    let joined = join_as_member(&mut harness, &classic, &[0, 1]);
    assert_eq!(joined.generation_id, 2);
    assert_eq!(synced(&mut harness, 1, &classic), Err(ErrorCode::IllegalGeneration));
    assert_eq!(synced(&mut harness, 2, &classic), Ok(blob(&[0, 1])));
    assert_eq!(harness.heartbeat(2, &classic), ErrorCode::None);
    let reply = call(&mut harness, beat("new", 2));
    assert_eq!(reply.assignment, Some(wire(&[(1, 2), (1, 3)])));
    harness.reload(ErrorCode::NotCoordinator);
    assert_eq!(harness.heartbeat(2, &classic), ErrorCode::None);

    // The new member goes: only classic ones are left.
    harness.take_records();
    call(&mut harness, beat("new", -1));
    assert_eq!(group_type(&mut harness), "classic");
    let records = harness.take_records();
    let Some(GroupRecord::GroupMetadata { value: Some(value), .. }) = records.last() else { panic!("{records:?}") };
    assert_eq!((value.generation_id, value.members.len()), (2, 1));
    assert_eq!(value.members[0].assignment, blob(&[0, 1]));
    assert_eq!(harness.heartbeat(2, &classic), ErrorCode::RebalanceInProgress);
    let request = harness.join(JoinGroup { member_id: classic.clone(), ..classic_join(1) });
    let joined = harness.joined(request);
    assert_eq!((joined.generation_id, joined.leader), (3, classic));
}

#[test]
fn the_policy_says_which_way_a_group_may_go() {
    // Rule: neither, up, down, or both; a group that may not go stays as it is.
    for (policy, up, down) in [
        (MigrationPolicy::Disabled, false, false),
        (MigrationPolicy::Upgrade, true, false),
        (MigrationPolicy::Downgrade, false, true),
        (MigrationPolicy::Bidirectional, true, true),
    ] {
        let mut upward = harness(policy);
        stable_classic_group(&mut upward);
        let reply = call(&mut upward, join("new", &["t1"]));
        let want = if up { ErrorCode::None } else { ErrorCode::GroupIdNotFound };
        assert_eq!(reply.error, want, "{policy:?}");

        let mut downward = harness(policy);
        call(&mut downward, join("new", &["t1"]));
        let request = downward.join(JoinGroup { api_version: 3, ..classic_join(1) });
        let joined = downward.joined(request);
        if policy == MigrationPolicy::Disabled {
            assert_eq!(joined.error, ErrorCode::InconsistentGroupProtocol);
            continue;
        }
        assert_eq!(joined.error, ErrorCode::None, "{policy:?}");
        call(&mut downward, beat("new", -1));
        assert_eq!(group_type(&mut downward), if down { "classic" } else { "consumer" }, "{policy:?}");
    }
}

#[test]
fn classic_members_are_checked_as_in_a_classic_group() {
    // Rule: ids first, then protocols, generations and instance ids; each has its error.
    let mut harness = harness(MigrationPolicy::Bidirectional);
    call(&mut harness, join("new", &["t1"]));
    let request = harness.join(classic_join(1));
    let reply = harness.joined(request);
    assert_eq!(reply.error, ErrorCode::MemberIdRequired);
    let classic = reply.member_id;
    let wrong = |join: JoinGroup, harness: &mut Harness| {
        let request = harness.join(JoinGroup { member_id: classic.clone(), ..join });
        harness.joined(request).error
    };
    let connect = JoinGroup { protocol_type: "connect".to_owned(), ..classic_join(1) };
    assert_eq!(wrong(connect, &mut harness), ErrorCode::InconsistentGroupProtocol);
    let damaged = JoinGroup { protocols: vec![harness::protocol("range", &[0])], ..classic_join(1) };
    assert_eq!(wrong(damaged, &mut harness), ErrorCode::InconsistentGroupProtocol);
    let joined = join_as_member(&mut harness, &classic, &[]);
    assert_eq!((joined.error, joined.generation_id), (ErrorCode::None, 3));
    let other =
        JoinGroup { protocols: vec![harness::protocol("sticky", &harness::subscription(&["t1"]))], ..classic_join(1) };
    assert_eq!(wrong(other, &mut harness), ErrorCode::InconsistentGroupProtocol);
    assert_eq!(harness.heartbeat(2, &classic), ErrorCode::IllegalGeneration);
    assert_eq!(harness.heartbeat(3, "nobody"), ErrorCode::UnknownMemberId);
    assert_eq!(harness.heartbeat(2, "new"), ErrorCode::UnknownMemberId, "it does not speak the classic protocol");
    let named = |harness: &mut Harness, instance_id: &str, member_id: &str| {
        let heartbeat = Heartbeat {
            group_id: GROUP.to_owned(),
            generation_id: 3,
            member_id: member_id.to_owned(),
            group_instance_id: Some(instance_id.to_owned()),
        };
        let reply = harness.call(Command::Heartbeat(heartbeat));
        let Reply::Heartbeat(error) = reply else { panic!("{reply:?}") };
        error
    };
    assert_eq!(named(&mut harness, "i", &classic), ErrorCode::UnknownMemberId);
    call(&mut harness, join_static("static", "i", &["t1"]));
    assert_eq!(named(&mut harness, "i", &classic), ErrorCode::FencedInstanceId);
    let left = harness.leave(&[("nobody", None), ("", Some("i")), (&classic, None)]);
    let errors: Vec<ErrorCode> = left.members.iter().map(|member| member.error).collect();
    assert_eq!(errors, [ErrorCode::UnknownMemberId, ErrorCode::None, ErrorCode::None]);
    assert_eq!(group_type(&mut harness), "consumer");
}

#[test]
fn classic_members_that_do_not_follow_are_removed() {
    // Rule: told to join and not joining, or joined and not syncing, ends a member after its rebalance timeout.
    let mut harness = harness(MigrationPolicy::Bidirectional);
    call(&mut harness, join("new", &["t1"]));
    let (classic, joining) = harness.join_dynamic(classic_join(1));
    assert_eq!(harness.joined(joining).generation_id, 3);
    let keep = |harness: &mut Harness, generation_id: i32, ms: u64| {
        // The other member must not run out of its session meanwhile.
        for _ in 0..ms / 5_000 {
            harness.pass(5_000);
            call(harness, beat_with("new", 3, &[(1, 0), (1, 1)]));
            if harness.heartbeat(generation_id, &classic) == ErrorCode::UnknownMemberId {
                return false;
            }
        }
        true
    };
    call(&mut harness, beat_with("new", 2, &[(1, 0), (1, 1), (1, 2), (1, 3)]));
    call(&mut harness, beat_with("new", 2, &[(1, 0), (1, 1)]));
    assert!(keep(&mut harness, 3, 55_000));
    assert!(!keep(&mut harness, 3, 10_000), "it has not synced");
    assert_eq!(group_type(&mut harness), "consumer");
}

#[test]
fn a_static_member_takes_its_place_in_either_protocol() {
    // Rule: the last member of the new protocol that is replaced by a classic one makes the group classic, without a rebalance.
    let mut harness = harness(MigrationPolicy::Bidirectional);
    call(&mut harness, join_static("new", "i", &["t1"]));
    let request = harness.join(JoinGroup { group_instance_id: Some("i".to_owned()), ..classic_join(1) });
    let joined = harness.joined(request);
    assert_eq!((joined.error, joined.generation_id), (ErrorCode::None, 2));
    assert_eq!(group_type(&mut harness), "classic");
    assert_eq!(harness.state(), "Stable");
    assert_eq!(synced(&mut harness, 2, &joined.member_id), Ok(blob(&[0, 1, 2, 3])));
    // And back: the classic one is replaced while it is still there.
    let reply = call(&mut harness, join_static("newer", "i", &["t1"]));
    assert_eq!((reply.error, group_type(&mut harness).as_str()), (ErrorCode::None, "consumer"));
    assert_eq!(reply.assignment, Some(wire(&[(1, 0), (1, 1), (1, 2), (1, 3)])));
}

#[test]
fn assignors_with_data_of_their_own_keep_a_group_classic() {
    // Rule: what a custom assignor keeps in assignments would be lost, so such a group does not go over.
    let mut harness = harness(MigrationPolicy::Bidirectional);
    let (member_id, joining) = harness.join_dynamic(classic_join(1));
    let reply = call(&mut harness, join("new", &["t1"]));
    assert_eq!(reply.error, ErrorCode::GroupIdNotFound, "no protocol has been chosen yet");
    harness.pass(3_000);
    harness.joined(joining);
    let mut assignment = blob(&[0]);
    assignment.truncate(assignment.len() - 4);
    assignment.extend([0, 0, 0, 1, 7]);
    let assignments =
        vec![crate::group::command::MemberAssignment { member_id: member_id.clone(), assignment: assignment.into() }];
    harness.call(Command::SyncGroup(SyncGroup { assignments, ..harness::sync(1, &member_id, &[]) }));
    let reply = call(&mut harness, join("new", &["t1"]));
    assert_eq!(reply.error, ErrorCode::GroupIdNotFound);
    assert_eq!(harness.heartbeat(1, &member_id), ErrorCode::None);
}
