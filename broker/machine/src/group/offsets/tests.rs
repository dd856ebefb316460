use std::sync::Arc;

use proptest::prelude::*;
use walser_protocol::ErrorCode;
use walser_protocol::types::Uuid;

use super::super::command::{DeleteGroups, DeletedTopicOffsets, FetchedTopic, OffsetCommit, OffsetDelete, OffsetFetch};
use super::super::harness::{
    GROUP, Harness, TOPIC, TOPIC_ID, WALL_START_MS, commit, committed_topic, fetch_all, join, protocol, subscription,
};
use super::super::record::{GroupRecord, OffsetCommitValue};
use super::super::reply::{DeletedGroup, FetchedOffset, OffsetDeleteReply};
use super::super::{Command, GroupSettings, Reply};
use super::{OffsetKey, Offsets};
use crate::ids::TopicId;
use crate::metadata::image::TopicImage;
use crate::metadata::{MetadataDelta, MetadataImage};

const DAY_MS: u64 = 86_400_000;
const OTHER_ID: Uuid = Uuid::from_bytes([3; 16]);

fn record(group_id: &str, topic: &str, partition_index: i32, value: Option<OffsetCommitValue>) -> GroupRecord {
    GroupRecord::OffsetCommit { group_id: group_id.to_owned(), topic: topic.to_owned(), partition_index, value }
}

fn tombstone(topic: &str, partition_index: i32) -> GroupRecord {
    record(GROUP, topic, partition_index, None)
}

fn removed(group_id: &str) -> GroupRecord {
    GroupRecord::GroupMetadata { group_id: group_id.to_owned(), value: None }
}

fn value(offset: i64) -> OffsetCommitValue {
    OffsetCommitValue {
        offset,
        leader_epoch: 5,
        metadata: String::new(),
        commit_timestamp_ms: WALL_START_MS,
        expire_timestamp_ms: None,
        topic_id: TOPIC_ID,
    }
}

fn of_topic(name: &str, partition_indexes: &[i32]) -> Vec<FetchedTopic> {
    let partition_indexes = partition_indexes.to_vec();
    vec![FetchedTopic { name: name.to_owned(), topic_id: Uuid::ZERO, partition_indexes }]
}

/// A stable group of one member that is subscribed to `topics`.
fn stable(harness: &mut Harness, topics: &[&str]) -> (String, i32) {
    let join = super::super::command::JoinGroup {
        protocols: vec![protocol("range", &subscription(topics))],
        session_timeout_ms: 1_800_000,
        ..join(1)
    };
    let (member_id, request) = harness.join_dynamic(join);
    harness.pass(3_000);
    let generation_id = harness.joined(request).generation_id;
    harness.sync(generation_id, &member_id, &[]);
    assert_eq!(harness.state(), "Stable");
    (member_id, generation_id)
}

fn delete_offsets(harness: &mut Harness, topic: &str, partition_indexes: &[i32]) -> OffsetDeleteReply {
    let topics = vec![DeletedTopicOffsets { name: topic.to_owned(), partition_indexes: partition_indexes.to_vec() }];
    let reply = harness.call(Command::OffsetDelete(OffsetDelete { group_id: GROUP.to_owned(), topics }));
    let Reply::OffsetDelete(reply) = reply else { panic!("{reply:?}") };
    reply
}

fn delete_groups(harness: &mut Harness, group_ids: &[&str]) -> Vec<DeletedGroup> {
    let group_ids = group_ids.iter().map(|group_id| (*group_id).to_owned()).collect();
    let reply = harness.call(Command::DeleteGroups(DeleteGroups { group_ids }));
    let Reply::DeleteGroups(groups) = reply else { panic!("{reply:?}") };
    groups
}

#[test]
fn commits_are_logged_and_fetched() {
    // Rule: one record per partition with the topic's id; what is committed is what is fetched, and nothing is -1.
    let mut harness = Harness::new();
    let topics = vec![committed_topic(TOPIC, TOPIC_ID, &[(0, 7), (3, 9)])];
    let reply = harness.commit(OffsetCommit { topics, ..commit(0) });
    assert_eq!(reply.topics[0].topic_id, TOPIC_ID);
    assert!(reply.topics[0].partitions.iter().all(|partition| partition.error == ErrorCode::None));
    let want = [record(GROUP, TOPIC, 0, Some(value(7))), record(GROUP, TOPIC, 3, Some(value(9)))];
    assert_eq!(harness.take_records(), want);

    let all = harness.fetch(fetch_all());
    assert_eq!(all.topics.len(), 1);
    let fetched = harness.fetch(OffsetFetch { topics: Some(of_topic(TOPIC, &[3, 1])), ..fetch_all() });
    let nine = FetchedOffset {
        partition_index: 3,
        committed_offset: 9,
        committed_leader_epoch: 5,
        metadata: String::new(),
        error: ErrorCode::None,
    };
    assert_eq!(fetched.topics[0].partitions, [nine, FetchedOffset::none(1, ErrorCode::None)]);
    let missing = harness.fetch(OffsetFetch { group_id: "x".to_owned(), ..fetch_all() });
    assert_eq!((missing.error, missing.topics.len()), (ErrorCode::None, 0));
}

#[test]
fn offsets_of_another_topic_of_the_name_are_none() {
    // Rule: from version 10 on an offset counts only for the topic it was committed for, unless one side does not know the id.
    let mut harness = Harness::new();
    harness.commit(commit(7));
    let mut nameless = commit(8);
    nameless.topics = vec![committed_topic(TOPIC, Uuid::ZERO, &[(1, 8)])];
    harness.commit(nameless);
    for (topic_id, want) in [(TOPIC_ID, [7, 8]), (OTHER_ID, [-1, 8]), (Uuid::ZERO, [7, 8])] {
        let topics = vec![FetchedTopic { topic_id, ..of_topic(TOPIC, &[0, 1]).remove(0) }];
        let reply = harness.fetch(OffsetFetch { topics: Some(topics), ..fetch_all() });
        let found: Vec<i64> = reply.topics[0].partitions.iter().map(|partition| partition.committed_offset).collect();
        assert_eq!(found, want, "{topic_id}");
    }
}

#[test]
fn committers_are_checked() {
    // Rule: who names a generation must be a member of it; who names none may only commit while nobody is there.
    let mut harness = Harness::new();
    let by = |generation_id_or_member_epoch: i32, member_id: &str| OffsetCommit {
        generation_id_or_member_epoch,
        member_id: member_id.to_owned(),
        ..commit(1)
    };
    assert_eq!(harness.commit_error(by(1, "x")), ErrorCode::GroupIdNotFound);
    assert_eq!(harness.commit_error(OffsetCommit { api_version: 8, ..by(1, "x") }), ErrorCode::IllegalGeneration);
    assert_eq!(harness.log.len(), 0);
    assert_eq!(harness.commit_error(by(-1, "")), ErrorCode::None);
    assert_eq!(harness.commit_error(by(-1, "x")), ErrorCode::None, "an empty group takes it from anybody");
    assert_eq!(harness.commit_error(by(1, "x")), ErrorCode::UnknownMemberId);

    let (member_id, generation_id) = stable(&mut harness, &[TOPIC]);
    assert_eq!(harness.commit_error(by(generation_id, &member_id)), ErrorCode::None);
    assert_eq!(harness.commit_error(by(generation_id + 1, &member_id)), ErrorCode::IllegalGeneration);
    assert_eq!(harness.commit_error(by(-1, &member_id)), ErrorCode::IllegalGeneration);
    assert_eq!(harness.commit_error(by(-1, "")), ErrorCode::UnknownMemberId);
    assert_eq!(harness.commit_error(by(generation_id, "x")), ErrorCode::UnknownMemberId);
    let instance = OffsetCommit { group_instance_id: Some("i".to_owned()), ..by(generation_id, &member_id) };
    assert_eq!(harness.commit_error(instance), ErrorCode::UnknownMemberId);

    let pending = harness.join(join(2));
    harness.joined(pending);
    let again = harness.join(super::super::command::JoinGroup { member_id: member_id.clone(), ..join(1) });
    assert_eq!(harness.state(), "PreparingRebalance");
    assert_eq!(harness.commit_error(by(generation_id, &member_id)), ErrorCode::None, "before it joins anew");
    harness.pass(10_000);
    harness.joined(again);
    assert_eq!(harness.state(), "CompletingRebalance");
    assert_eq!(harness.commit_error(by(generation_id + 1, &member_id)), ErrorCode::RebalanceInProgress);
}

#[test]
fn metadata_has_a_most() {
    // Rule: counted as Kafka counts, in UTF-16 units; the other partitions of the request are committed.
    let mut harness = Harness::with(GroupSettings { offset_metadata_max_bytes: 4, ..GroupSettings::default() });
    let mut request = commit(0);
    request.topics = vec![committed_topic(TOPIC, TOPIC_ID, &[(0, 1), (1, 2), (2, 3)])];
    for (partition, metadata) in request.topics[0].partitions.iter_mut().zip(["äöüß", "abcde", "𝄞𝄞"]) {
        partition.committed_metadata = Some(metadata.to_owned());
    }
    let reply = harness.commit(request);
    let errors: Vec<ErrorCode> = reply.topics[0].partitions.iter().map(|partition| partition.error).collect();
    assert_eq!(errors, [ErrorCode::None, ErrorCode::OffsetMetadataTooLarge, ErrorCode::None]);
    assert_eq!(harness.take_records().len(), 2);
    assert_eq!(harness.offset(GROUP, 1), -1);
}

#[test]
fn offsets_of_open_transactions_are_not_stable() {
    // Rule: RequireStable refuses what a transaction holds; the marker settles it, and the younger of two commits stays.
    let mut harness = Harness::new();
    harness.commit(commit(7));
    harness.coordinator.replay(1, Some(40), record(GROUP, TOPIC, 0, Some(value(8))));
    harness.coordinator.replay(2, Some(41), record(GROUP, TOPIC, 1, Some(value(5))));
    let stable = OffsetFetch { topics: Some(of_topic(TOPIC, &[0])), ..fetch_all() };
    let reply = harness.fetch(stable.clone());
    assert_eq!(reply.topics[0].partitions, [FetchedOffset::none(0, ErrorCode::UnstableOffsetCommit)]);
    let reply = harness.fetch(OffsetFetch { require_stable: false, ..stable });
    assert_eq!(reply.topics[0].partitions[0].committed_offset, 7);
    harness.end_transaction(40, true);
    harness.end_transaction(41, false);
    assert_eq!((harness.offset(GROUP, 0), harness.offset(GROUP, 1)), (8, -1));
    harness.coordinator.replay(3, Some(42), record(GROUP, TOPIC, 0, Some(value(9))));
    harness.coordinator.replay(4, None, record(GROUP, TOPIC, 0, Some(value(10))));
    harness.end_transaction(42, true);
    assert_eq!(harness.offset(GROUP, 0), 10);
}

#[test]
fn offsets_are_deleted() {
    // Rule: tombstones for what is known, pending offsets included; not of topics the group is subscribed to.
    let mut harness = Harness::new();
    let topics = vec![committed_topic(TOPIC, TOPIC_ID, &[(0, 7), (1, 8)]), committed_topic("old", OTHER_ID, &[(0, 1)])];
    harness.commit(OffsetCommit { topics, ..commit(0) });
    stable(&mut harness, &[TOPIC]);
    harness.take_records();
    let reply = delete_offsets(&mut harness, TOPIC, &[0]);
    assert_eq!(reply.topics[0].partitions[0].error, ErrorCode::GroupSubscribedToTopic);
    let reply = delete_offsets(&mut harness, "old", &[0, 1]);
    assert!(reply.topics[0].partitions.iter().all(|partition| partition.error == ErrorCode::None));
    assert_eq!(harness.take_records(), [tombstone("old", 0)]);
    let reply = harness.call(Command::OffsetDelete(OffsetDelete { group_id: String::new(), topics: Vec::new() }));
    let want = OffsetDeleteReply { error: ErrorCode::InvalidGroupId, topics: Vec::new() };
    assert_eq!(reply, Reply::OffsetDelete(want));
}

#[test]
fn offsets_of_working_groups_of_other_protocols_stay() {
    // Rule: nobody knows what the members of a group that is not of consumers use.
    let mut harness = Harness::new();
    let join = super::super::command::JoinGroup {
        protocol_type: "connect".to_owned(),
        protocols: vec![protocol("sessioned", b"")],
        ..join(1)
    };
    harness.join_dynamic(join);
    assert_eq!(delete_offsets(&mut harness, TOPIC, &[0]).error, ErrorCode::NonEmptyGroup);
}

#[test]
fn groups_are_deleted_with_their_offsets() {
    // Rule: only empty ones; committed and pending offsets first, then the group.
    let mut harness = Harness::new();
    harness.commit(commit(7));
    harness.coordinator.replay(1, Some(40), record(GROUP, "u", 2, Some(value(8))));
    harness.commit(OffsetCommit { group_id: "busy".to_owned(), ..commit(1) });
    harness.join(super::super::command::JoinGroup { group_id: "busy".to_owned(), api_version: 3, ..join(1) });
    harness.take_records();
    let results = delete_groups(&mut harness, &[GROUP, "busy", "missing"]);
    let errors: Vec<ErrorCode> = results.iter().map(|result| result.error).collect();
    assert_eq!(errors, [ErrorCode::None, ErrorCode::NonEmptyGroup, ErrorCode::GroupIdNotFound]);
    assert_eq!(harness.take_records(), [tombstone(TOPIC, 0), tombstone("u", 2), removed(GROUP)]);
    assert_eq!(harness.describe(GROUP).error, ErrorCode::GroupIdNotFound);
    assert_eq!(harness.offset(GROUP, 0), -1);
    harness.pass(DAY_MS);
    assert_eq!(harness.list(&[], &[]).len(), 1, "no timer of the deleted group is left to surprise anybody");
}

#[test]
fn offsets_go_with_their_topic() {
    // Rule: a deleted topic takes the offsets committed for it, and for the name where no id is known.
    let mut harness = Harness::new();
    harness.commit(commit(7));
    let nameless = vec![committed_topic(TOPIC, Uuid::ZERO, &[(1, 8)]), committed_topic("u", TOPIC_ID, &[(0, 4)])];
    harness.commit(OffsetCommit { topics: nameless, ..commit(0) });
    let newer = vec![committed_topic(TOPIC, OTHER_ID, &[(2, 9)])];
    harness.commit(OffsetCommit { topics: newer, ..commit(0) });
    harness.take_records();
    let topic_id = TopicId::from_wire(TOPIC_ID).expect("not zero");
    let deleted = Arc::new(TopicImage { topic_id, name: TOPIC.into(), partitions: Vec::new() });
    let delta = MetadataDelta { topics_deleted: vec![deleted], ..MetadataDelta::default() };
    harness.coordinator.handle_image(harness.now(), Arc::new(MetadataImage::default()), &delta);
    harness.carry_out();
    assert_eq!(harness.take_records(), [tombstone(TOPIC, 0), tombstone(TOPIC, 1)]);
}

#[test]
fn offsets_expire_by_what_the_group_is() {
    // Rule: simple and of topics nobody is subscribed to: since the commit; empty: since it is empty; other: never.
    let mut harness = Harness::new();
    let both = vec![committed_topic(TOPIC, TOPIC_ID, &[(0, 7)]), committed_topic("old", OTHER_ID, &[(0, 1)])];
    harness.commit(OffsetCommit { topics: both, ..commit(0) });
    harness.commit(OffsetCommit { group_id: "simple".to_owned(), ..commit(3) });
    let (member_id, generation_id) = stable(&mut harness, &[TOPIC]);
    let keep_alive = |harness: &mut Harness, ms: u64| {
        for _ in 0..ms / 1_200_000 {
            harness.pass(1_200_000);
            assert_eq!(harness.heartbeat(generation_id, &member_id), ErrorCode::None);
        }
    };
    keep_alive(&mut harness, 7 * DAY_MS - 3_600_000);
    assert_eq!((harness.offset(GROUP, 0), harness.offset("simple", 0)), (7, 3));
    harness.take_records();
    keep_alive(&mut harness, 7_200_000);
    assert_eq!(harness.offset(GROUP, 0), 7, "of a topic that is read");
    let want = [tombstone("old", 0), record("simple", TOPIC, 0, None), removed("simple")];
    assert_eq!(harness.take_records(), want);

    harness.leave(&[(&member_id, None)]);
    harness.take_records();
    harness.pass(7 * DAY_MS - 3_600_000);
    assert_eq!(harness.offset(GROUP, 0), 7, "since it is empty");
    harness.pass(7_200_000);
    assert_eq!(harness.take_records(), [tombstone(TOPIC, 0), removed(GROUP)]);
    assert_eq!(harness.list(&[], &[]), []);
}

#[test]
fn a_commit_may_name_its_retention() {
    // Rule: versions 2 to 4 say how long the offset lives, whatever the broker says; pending transactions hold it.
    let mut harness = Harness::new();
    harness.commit(OffsetCommit { api_version: 4, retention_time_ms: Some(1_000_000), ..commit(7) });
    let [GroupRecord::OffsetCommit { value: Some(committed), .. }] = &harness.take_records()[..] else { panic!() };
    assert_eq!(committed.expire_timestamp_ms, Some(WALL_START_MS + 1_000_000));
    harness.coordinator.replay(1, Some(40), record(GROUP, TOPIC, 0, Some(value(8))));
    harness.pass(1_200_001);
    assert_eq!(harness.take_records(), []);
    harness.end_transaction(40, false);
    harness.pass(600_000);
    assert_eq!(harness.take_records(), [tombstone(TOPIC, 0), removed(GROUP)]);
}

#[test]
fn many_offsets_expire_step_by_step() {
    // Rule: the check goes on a millisecond later where it has looked at enough, and in the end has seen every group.
    let mut harness = Harness::new();
    for group in 0..5 {
        let offsets: Vec<(i32, i64)> = (0..300).map(|index| (index, 1)).collect();
        let topics = vec![committed_topic(TOPIC, TOPIC_ID, &offsets)];
        harness.commit(OffsetCommit { group_id: format!("g{group}"), topics, ..commit(0) });
    }
    harness.pass(7 * DAY_MS - 1);
    harness.take_records();
    let mut removed_count = 0;
    while removed_count < 5 * 301 {
        let due_ms = harness.coordinator.next_deadline_ms().expect("a check is always due");
        harness.pass(due_ms - harness.timer_ms);
        let step = harness.take_records().len();
        assert!(step <= 301, "{step} of one group at most");
        assert!(step > 0 || removed_count == 0, "what has begun goes on until it is done");
        removed_count += step;
    }
    assert_eq!(harness.list(&[], &[]), []);
}

#[test]
fn a_group_nobody_joined_after_all_is_removed() {
    // Rule: an empty group without offsets goes at the next check.
    let mut harness = Harness::new();
    harness.join(join(1));
    harness.pass(600_000);
    assert_eq!(harness.take_records().pop(), Some(removed(GROUP)));
}

/// A step of a log of offsets.
#[derive(Clone, Debug)]
enum Step {
    Commit { producer_id: Option<i64>, group: u8, topic: u8, partition_index: i32 },
    Remove { group: u8, topic: u8, partition_index: i32 },
    End { producer_id: i64, is_committed: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0_u8..3, 0_u8..2, 0_i32..2);
    let commit =
        (proptest::option::of(0_i64..3), place()).prop_map(|(producer_id, (group, topic, partition_index))| {
            Step::Commit { producer_id, group, topic, partition_index }
        });
    let remove = place().prop_map(|(group, topic, partition_index)| Step::Remove { group, topic, partition_index });
    let end = (0_i64..3, any::<bool>()).prop_map(|(producer_id, is_committed)| Step::End { producer_id, is_committed });
    prop_oneof![4 => commit, 1 => remove, 2 => end]
}

proptest! {
    #[test]
    fn transactions_settle_as_in_a_model(steps in proptest::collection::vec(step(), 0..60)) {
        // Rule: committed is the last commit that counts, pending what open transactions hold: as in two plain lists.
        type Place = (u8, u8, i32);
        let mut offsets = Offsets::default();
        let mut committed: std::collections::BTreeMap<Place, i64> = Default::default();
        let mut pending: std::collections::BTreeMap<(i64, Place), i64> = Default::default();
        for (at, step) in (0_i64..).zip(steps) {
            let names = |(group, topic, _): Place| (format!("g{group}"), format!("t{topic}"));
            match step {
                Step::Commit { producer_id, group, topic, partition_index } => {
                    let (group_id, name) = names((group, topic, 0));
                    let key = OffsetKey { group_id: &group_id, topic: &name, partition_index };
                    offsets.replay(at, producer_id, key, Some(value(at)));
                    let place = (group, topic, partition_index);
                    match producer_id {
                        None => drop(committed.insert(place, at)),
                        Some(producer_id) => drop(pending.insert((producer_id, place), at)),
                    }
                }
                Step::Remove { group, topic, partition_index } => {
                    let (group_id, name) = names((group, topic, 0));
                    let key = OffsetKey { group_id: &group_id, topic: &name, partition_index };
                    offsets.replay(at, None, key, None);
                    let place = (group, topic, partition_index);
                    committed.remove(&place);
                    pending.retain(|(_, held), _| *held != place);
                }
                Step::End { producer_id, is_committed } => {
                    offsets.replay_end_transaction(producer_id, is_committed);
                    for ((_, place), held) in pending.iter().filter(|((owner, _), _)| *owner == producer_id) {
                        let known = committed.get(place).copied().unwrap_or(-1);
                        if is_committed && *held > known {
                            committed.insert(*place, *held);
                        }
                    }
                    pending.retain(|(owner, _), _| *owner != producer_id);
                }
            }
            offsets.verify();
            for group in 0..3 {
                for (topic, partition_index) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                    let place = (group, topic, partition_index);
                    let (group_id, name) = names(place);
                    let key = OffsetKey { group_id: &group_id, topic: &name, partition_index };
                    let found = offsets.committed(key).map(|found| found.value.offset);
                    prop_assert_eq!(found, committed.get(&place).copied());
                    prop_assert_eq!(offsets.is_pending(key), pending.keys().any(|(_, held)| *held == place));
                }
            }
        }
    }
}
