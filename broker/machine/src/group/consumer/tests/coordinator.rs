//! Consumer groups in their coordinator: commands in, records and replies out, timers, restarts.

use super::*;
use crate::group::command::{OffsetCommit, OffsetFetch};
use crate::group::harness::{self, Harness};
use crate::group::{Command, Reply};
use crate::metadata::MetadataDelta;

fn harness(partition_count: i32) -> Harness {
    let bench = Bench::new(&[partition_count]);
    let mut harness = Harness::new();
    set_topics(&mut harness, &bench);
    harness
}

/// The coordinator hears of all topics of the bench.
fn set_topics(harness: &mut Harness, bench: &Bench) {
    harness.image = bench.topics.image().clone();
    let delta = MetadataDelta { topics_created: harness.image.topics().cloned().collect(), ..MetadataDelta::default() };
    harness.coordinator.handle_image(harness.now(), harness.image.clone(), &delta);
    harness.carry_out();
}

fn call(harness: &mut Harness, request: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeatReply {
    let reply = harness.call(Command::ConsumerGroupHeartbeat(request));
    let Reply::ConsumerGroupHeartbeat(reply) = reply else { panic!("{reply:?}") };
    reply
}

fn described(harness: &mut Harness) -> request::DescribedConsumerGroup {
    describe(harness, harness::GROUP)
}

fn describe(harness: &mut Harness, group_id: &str) -> request::DescribedConsumerGroup {
    let describe = request::ConsumerGroupDescribe { group_ids: vec![group_id.to_owned()] };
    let reply = harness.call(Command::ConsumerGroupDescribe(describe));
    let Reply::ConsumerGroupDescribe(mut groups) = reply else { panic!("{reply:?}") };
    groups.remove(0)
}

#[test]
fn heartbeats_make_keep_and_end_a_group() {
    // Rule: a first heartbeat makes the group, silence ends its members, and the log tells the next coordinator the same.
    let mut harness = harness(4);
    let missing = call(&mut harness, beat("a", 3));
    assert_eq!(missing.error, ErrorCode::GroupIdNotFound);
    assert_eq!(described(&mut harness).error, ErrorCode::GroupIdNotFound);
    assert_eq!(describe(&mut harness, "").error, ErrorCode::InvalidGroupId);
    let reply = call(&mut harness, join("a", &["t1"]));
    assert_eq!((reply.error, reply.member_epoch), (ErrorCode::None, 2));
    assert_eq!(reply.assignment, Some(wire(&[(1, 0), (1, 1), (1, 2), (1, 3)])));
    assert_eq!(harness.take_records().len(), 5);
    assert_eq!(harness.list(&["stable"], &["consumer"]).len(), 1);
    assert_eq!(harness.list(&[], &["classic"]).len(), 0);

    harness.pass(40_000);
    call(&mut harness, beat("a", 2));
    harness.reload(ErrorCode::NotCoordinator);
    harness.pass(44_999);
    assert_eq!(described(&mut harness).members.len(), 1, "sessions begin anew with the coordinator");
    call(&mut harness, beat("a", 2));
    harness.pass(44_999);
    assert_eq!(described(&mut harness).group_state, "Stable");
    harness.pass(1);
    let described = described(&mut harness);
    assert_eq!((described.group_state.as_str(), described.group_epoch, described.assignment_epoch), ("Empty", 3, 3));
}

#[test]
fn a_member_that_gives_nothing_up_is_removed() {
    // Rule: the rebalance timeout counts from when the member was told, and again after a restart of the coordinator.
    let mut harness = harness(4);
    let slow = |member_id| ConsumerGroupHeartbeat { rebalance_timeout_ms: 20_000, ..join(member_id, &["t1"]) };
    call(&mut harness, slow("a"));
    harness.pass(1_000);
    call(&mut harness, slow("b"));
    let told = call(&mut harness, beat("a", 2));
    assert_eq!(told.assignment, Some(wire(&[(1, 0), (1, 1)])));
    harness.pass(10_000);
    call(&mut harness, beat("a", 2));
    call(&mut harness, beat("b", 3));
    harness.reload(ErrorCode::NotCoordinator);
    harness.pass(19_999);
    assert_eq!(described(&mut harness).members.len(), 2);
    harness.pass(1);
    assert_eq!(described(&mut harness).members.len(), 1);
    let reply = call(&mut harness, beat("a", 2));
    assert_eq!(reply.error, ErrorCode::UnknownMemberId);
    let reply = call(&mut harness, beat("b", 3));
    assert_eq!((reply.member_epoch, reply.assignment), (4, Some(wire(&[(1, 0), (1, 1), (1, 2), (1, 3)]))));
}

#[test]
fn offsets_are_committed_by_members_in_their_epoch() {
    // Rule: one partition that may not be committed refuses the whole commit.
    let mut harness = harness(4);
    call(&mut harness, join("a", &["t1"]));
    let commit = |epoch| {
        let mut commit = OffsetCommit {
            api_version: 10,
            group_id: harness::GROUP.to_owned(),
            member_id: "a".to_owned(),
            generation_id_or_member_epoch: epoch,
            ..harness::commit(7)
        };
        commit.topics[0].topic_id = topic_id(1).get();
        commit
    };
    assert_eq!(harness.commit_error(commit(2)), ErrorCode::None);
    assert_eq!(harness.commit_error(commit(1)), ErrorCode::StaleMemberEpoch);
    assert_eq!(harness.commit_error(commit(3)), ErrorCode::StaleMemberEpoch);
    let fetch = |epoch| OffsetFetch {
        group_id: harness::GROUP.to_owned(),
        member_id: Some("a".to_owned()),
        member_epoch: epoch,
        ..harness::fetch_all()
    };
    assert_eq!(harness.fetch(fetch(2)).error, ErrorCode::None);
    assert_eq!(harness.fetch(fetch(1)).error, ErrorCode::StaleMemberEpoch);
    assert_eq!(harness.offset(harness::GROUP, 0), 7);
}

#[test]
fn regular_expressions_are_resolved_by_the_driver() {
    // Rule: the coordinator asks, goes on, and takes the answer as an input; a failed one is asked for again.
    let mut harness = harness(2);
    let by_regex = ConsumerGroupHeartbeat {
        subscribed_topic_names: None,
        subscribed_topic_regex: Some("t.".to_owned()),
        ..join("a", &[])
    };
    assert_eq!(call(&mut harness, by_regex).assignment, Some(Vec::new()));
    harness.pass(1_000);
    assert_eq!(call(&mut harness, beat("a", 1)).assignment, Some(wire(&[(1, 0), (1, 1)])));
    harness.coordinator.handle_regexes_resolved(harness.now(), harness::GROUP, None);
    harness.coordinator.handle_regexes_resolved(harness.now(), "no group", Some(Default::default()));
    harness.carry_out();
}

#[test]
fn an_empty_group_changes_its_protocol() {
    // Rule: without members a name is free for either protocol, and the offsets stay.
    let mut harness = harness(2);
    assert_eq!(harness.commit_error(harness::commit(7)), ErrorCode::None);
    call(&mut harness, join("a", &["t1"]));
    assert_eq!(harness.list(&[], &["consumer"]).len(), 1);
    assert_eq!(harness.offset(harness::GROUP, 0), 7);
    call(&mut harness, beat("a", -1));
    harness.take_records();
    let (_, _joining) = harness.join_dynamic(harness::join(1));
    assert_eq!(harness.list(&[], &["classic"]).len(), 1);
    assert_eq!(harness.offset(harness::GROUP, 0), 7);
    let records = harness.take_records();
    assert!(records.contains(&GroupRecord::ConsumerGroupMetadata { group_id: GROUP.to_owned(), value: None }));
    let reply = call(&mut harness, join("a", &["t1"]));
    assert_eq!(reply.error, ErrorCode::GroupIdNotFound, "a classic group with members keeps its name");
}
