use super::*;

fn subscription(topics: &[&str]) -> Subscription {
    Subscription {
        client_id: "client".into(),
        client_host: "/127.0.0.1".into(),
        topic_names: Arc::new(topics.iter().map(|topic| Arc::from(*topic)).collect()),
        rebalance_timeout_ms: 300_000,
        ..Subscription::default()
    }
}

fn stable(epoch: i32, previous_epoch: i32, assigned: &[(u8, i32, i32)]) -> CurrentAssignment {
    CurrentAssignment {
        epoch,
        previous_epoch,
        state: MemberState::Stable,
        assigned: epochs(assigned),
        pending_revocation: EpochAssignment::default(),
    }
}

#[test]
fn a_first_member_gets_everything_at_once() {
    // Rule: the records of a join, in Kafka's order, and the answer to it.
    let mut bench = Bench::new(&[2]);
    let reply = bench.heartbeat(&join("a", &["t1", "t9"])).expect("a join");
    let want = ConsumerGroupHeartbeatReply {
        heartbeat_interval_ms: 5_000,
        assignment: Some(wire(&[(1, 0), (1, 1)])),
        ..ConsumerGroupHeartbeatReply::of_member("a", 2)
    };
    assert_eq!(reply, want);
    let metadata_hash = bench.topics.hash(&BTreeSet::from(["t1"]));
    assert_ne!(metadata_hash, 0);
    let member_id: Arc<str> = "a".into();
    let target = Arc::new(assignment(&[(1, 0), (1, 1)]));
    let want = [
        Change::Member { member_id: member_id.clone(), subscription: Some(subscription(&["t1", "t9"])) },
        Change::Group(Some(GroupEpoch { epoch: 2, metadata_hash })),
        Change::TargetMember { member_id: member_id.clone(), assignment: Some(target) },
        Change::Target(Some(TargetEpoch { epoch: 2, timestamp_ms: 1_000_000 })),
        Change::CurrentMember { member_id: member_id.clone(), current: Some(stable(2, 0, &[(1, 0, 2), (1, 1, 2)])) },
    ];
    assert_eq!(bench.changes, want);
    assert_eq!(bench.timers, BTreeMap::from([((member_id, TimerKind::Session), 1_045_000)]));
    assert_eq!(bench.group.state(), GroupState::Stable);

    // Nothing new: nothing written, nothing told.
    let reply = bench.heartbeat(&beat("a", 2)).expect("a heartbeat");
    assert_eq!(reply.assignment, None);
    assert_eq!(bench.changes, []);
    // A full request is answered in full.
    let full = ConsumerGroupHeartbeat { member_epoch: 2, ..join("a", &["t1", "t9"]) };
    assert_eq!(bench.heartbeat(&full).expect("a heartbeat").assignment, Some(wire(&[(1, 0), (1, 1)])));
    assert_eq!(bench.changes, []);
}

#[test]
fn a_last_member_leaves_an_empty_group() {
    // Rule: a member that leaves takes its records with it; the group keeps its epochs and may compute a target at once.
    let mut bench = Bench::new(&[2]);
    bench.heartbeat(&join("a", &["t1"])).expect("a join");
    let reply = bench.heartbeat(&beat("a", -1)).expect("a leave");
    assert_eq!(reply.member_id.as_deref(), Some("a"));
    assert_eq!((reply.member_epoch, reply.heartbeat_interval_ms, reply.assignment), (-1, 0, None));
    let member_id: Arc<str> = "a".into();
    let want = [
        Change::CurrentMember { member_id: member_id.clone(), current: None },
        Change::TargetMember { member_id: member_id.clone(), assignment: None },
        Change::Member { member_id, subscription: None },
        Change::Group(Some(GroupEpoch { epoch: 3, metadata_hash: 0 })),
        Change::Target(Some(TargetEpoch { epoch: 3, timestamp_ms: 0 })),
    ];
    assert_eq!(bench.changes, want);
    assert_eq!(bench.timers, BTreeMap::new());
    assert_eq!(bench.group.state(), GroupState::Empty);
    bench.expect_error(&beat("a", -1), ErrorCode::UnknownMemberId);
    bench.expect_error(&beat("a", 2), ErrorCode::UnknownMemberId);
}

#[test]
fn requests_are_checked_in_order() {
    // Rule: each condition has its error, and an earlier one hides the later ones.
    let base = || join("a", &["t1"]);
    let invalid = ErrorCode::InvalidRequest;
    let cases: Vec<(&str, ConsumerGroupHeartbeat, ErrorCode)> = vec![
        ("member id", ConsumerGroupHeartbeat { member_id: " ".to_owned(), ..base() }, invalid),
        ("group id", ConsumerGroupHeartbeat { group_id: String::new(), ..base() }, invalid),
        ("instance id", join_static("a", "", &[]), invalid),
        ("rack id", ConsumerGroupHeartbeat { rack_id: Some(String::new()), ..base() }, invalid),
        ("rebalance timeout", ConsumerGroupHeartbeat { rebalance_timeout_ms: -1, ..base() }, invalid),
        ("partitions", ConsumerGroupHeartbeat { topic_partitions: None, ..base() }, invalid),
        ("owned", ConsumerGroupHeartbeat { topic_partitions: Some(wire(&[(1, 0)])), ..base() }, invalid),
        ("subscription", ConsumerGroupHeartbeat { subscribed_topic_names: None, ..base() }, invalid),
        ("no instance", beat("a", -2), invalid),
        ("epoch", beat("a", -3), invalid),
        (
            "assignor",
            ConsumerGroupHeartbeat { server_assignor: Some("sticky".to_owned()), ..base() },
            ErrorCode::UnsupportedAssignor,
        ),
        (
            "first of two",
            ConsumerGroupHeartbeat { server_assignor: Some("sticky".to_owned()), rebalance_timeout_ms: -1, ..base() },
            invalid,
        ),
    ];
    for (case, request, want) in cases {
        let error = request.validate(&ConsumerGroupSettings::default()).expect_err(case);
        assert_eq!(ErrorCode::from(&error), want, "{case}");
    }
    assert_eq!(base().validate(&ConsumerGroupSettings::default()), Ok(()));
    // Version 0 may leave it to the broker how a new member is called, and no other request may.
    let mut bench = Bench::new(&[1]);
    let member_uuid = Uuid::from_bytes([7; 16]);
    let unnamed = ConsumerGroupHeartbeat { api_version: 0, member_id: String::new(), member_uuid, ..base() };
    let reply = bench.heartbeat(&unnamed).expect("a join");
    assert_eq!(reply.member_id, Some(member_uuid.to_string()));
    let unnamed = ConsumerGroupHeartbeat { api_version: 0, member_id: String::new(), ..beat("", 2) };
    bench.expect_error(&unnamed, invalid);
}

#[test]
fn epochs_fence_who_cannot_have_heard_of_them() {
    // Rule: the known epoch, or the one before it without foreign partitions; nothing else but 0.
    let mut bench = Bench::new(&[4]);
    bench.heartbeat(&join("a", &["t1"])).expect("a join");
    bench.heartbeat(&join("b", &["t1"])).expect("a join");
    bench.heartbeat(&beat_with("a", 2, &[(1, 0), (1, 1), (1, 2), (1, 3)])).expect("told to revoke");
    let reply = bench.heartbeat(&beat_with("a", 2, &[(1, 0), (1, 1)])).expect("revoked");
    assert_eq!(reply.member_epoch, 3);
    bench.expect_error(&beat("a", 4), ErrorCode::FencedMemberEpoch);
    bench.expect_error(&beat("a", 1), ErrorCode::FencedMemberEpoch);
    bench.expect_error(&beat("a", 2), ErrorCode::FencedMemberEpoch);
    bench.expect_error(&beat_with("a", 2, &[(1, 0), (1, 2)]), ErrorCode::FencedMemberEpoch);
    bench.expect_error(&beat_with("a", 2, &[(2, 0)]), ErrorCode::FencedMemberEpoch);
    // The answer to the last heartbeat was lost.
    let reply = bench.heartbeat(&beat_with("a", 2, &[(1, 0), (1, 1)])).expect("the previous epoch");
    assert_eq!((reply.member_epoch, reply.assignment), (3, None));
    let full = ConsumerGroupHeartbeat { topic_partitions: Some(wire(&[(1, 0)])), ..join("a", &["t1"]) };
    let full = ConsumerGroupHeartbeat { member_epoch: 2, ..full };
    assert_eq!(bench.heartbeat(&full).expect("a full request").assignment, Some(wire(&[(1, 0), (1, 1)])));
    // Who begins anew keeps its place.
    let reply = bench.heartbeat(&join("a", &["t1"])).expect("joins again");
    assert_eq!((reply.member_epoch, reply.assignment), (3, Some(wire(&[(1, 0), (1, 1)]))));
}

#[test]
fn a_full_group_takes_no_more_members() {
    // Rule: group.consumer.max.size counts members; those it has may come back.
    let mut bench = Bench::new(&[1]);
    bench.settings.max_size = 2;
    bench.heartbeat(&join("a", &["t1"])).expect("a join");
    bench.heartbeat(&join_static("b", "i", &["t1"])).expect("a join");
    bench.expect_error(&join("c", &["t1"]), ErrorCode::GroupMaxSizeReached);
    bench.heartbeat(&join("a", &["t1"])).expect("joins again");
    bench.heartbeat(&ConsumerGroupHeartbeat { instance_id: Some("i".to_owned()), ..beat("b", -2) }).expect("leaves");
    bench.heartbeat(&join_static("c", "i", &["t1"])).expect("takes the place");
}

#[test]
fn a_static_member_comes_back_to_its_partitions() {
    // Rule: -2 keeps place and partitions for whoever has the instance id; nobody else is moved and no epoch goes up.
    let mut bench = Bench::new(&[4]);
    bench.heartbeat(&join_static("a", "i", &["t1"])).expect("a join");
    let leave = ConsumerGroupHeartbeat { instance_id: Some("i".to_owned()), ..beat("a", -2) };
    bench.expect_error(&join_static("b", "i", &["t1"]), ErrorCode::UnreleasedInstanceId);
    bench.expect_error(
        &ConsumerGroupHeartbeat { member_id: "b".to_owned(), ..leave.clone() },
        ErrorCode::FencedInstanceId,
    );
    bench.expect_error(
        &ConsumerGroupHeartbeat { instance_id: Some("j".to_owned()), ..leave.clone() },
        ErrorCode::UnknownMemberId,
    );
    let reply = bench.heartbeat(&leave).expect("a leave");
    assert_eq!((reply.member_id.as_deref(), reply.member_epoch), (Some("a"), -2));
    let all: Vec<(u8, i32, i32)> = (0..4).map(|index| (1, index, 0)).collect();
    let member_id: Arc<str> = "a".into();
    let gone = CurrentAssignment { epoch: -2, ..stable(-2, 0, &all) };
    assert_eq!(bench.changes, [Change::CurrentMember { member_id: member_id.clone(), current: Some(gone) }]);
    assert!(bench.timers.contains_key(&(member_id.clone(), TimerKind::Session)));

    let reply = bench.heartbeat(&join_static("b", "i", &["t1"])).expect("a replacement");
    assert_eq!((reply.member_epoch, reply.assignment), (2, Some(wire(&[(1, 0), (1, 1), (1, 2), (1, 3)]))));
    let new_id: Arc<str> = "b".into();
    let subscription = Subscription { instance_id: Some("i".into()), ..subscription(&["t1"]) };
    let target = Arc::new(assignment(&[(1, 0), (1, 1), (1, 2), (1, 3)]));
    let want = [
        Change::CurrentMember { member_id: member_id.clone(), current: None },
        Change::TargetMember { member_id: member_id.clone(), assignment: None },
        Change::Member { member_id: member_id.clone(), subscription: None },
        Change::Member { member_id: new_id.clone(), subscription: Some(subscription) },
        Change::TargetMember { member_id: new_id.clone(), assignment: Some(target) },
        Change::CurrentMember { member_id: new_id.clone(), current: Some(stable(0, 0, &all)) },
        Change::CurrentMember { member_id: new_id.clone(), current: Some(stable(2, 0, &all)) },
    ];
    assert_eq!(bench.changes, want);
    assert_eq!(bench.timers.keys().collect::<Vec<_>>(), [&(new_id, TimerKind::Session)]);
    let old = ConsumerGroupHeartbeat { instance_id: Some("i".to_owned()), ..beat("a", 2) };
    bench.expect_error(&old, ErrorCode::FencedInstanceId);
    // One that leaves for good gives its place up.
    bench
        .heartbeat(&ConsumerGroupHeartbeat { instance_id: Some("i".to_owned()), ..beat("b", -1) })
        .expect("leaves for good");
    assert!(bench.group.is_empty());
}

#[test]
fn who_is_not_heard_of_is_removed() {
    // Rule: the session ends a member; the rebalance timeout ends one that has not given up what it must.
    let mut bench = Bench::new(&[4]);
    bench.heartbeat(&join("a", &["t1"])).expect("a join");
    bench.heartbeat(&join("b", &["t1"])).expect("a join");
    let member_id: Arc<str> = "a".into();
    bench.time_out("a", TimerKind::Rebalance);
    assert_eq!(bench.group.member_count(), 2, "it has nothing to give up yet");
    bench.heartbeat(&beat("a", 2)).expect("told to revoke");
    assert_eq!(bench.timers[&(member_id.clone(), TimerKind::Rebalance)], 1_300_000);
    bench.time_out("a", TimerKind::Rebalance);
    assert_eq!(bench.group.member_count(), 1);
    assert!(bench.timers.keys().all(|(timed, _)| *timed != member_id));
    bench.expect_error(&beat("a", 2), ErrorCode::UnknownMemberId);
    bench.heartbeat(&beat("b", 3)).expect("gets everything");
    assert_eq!(bench.member("b").current.assigned.partitions().count(), 4);
    bench.time_out("b", TimerKind::Session);
    assert!(bench.group.is_empty());
    bench.time_out("b", TimerKind::Session);
}

#[test]
fn targets_wait_for_the_assignment_interval() {
    // Rule: within the interval members join without a new target; the first heartbeat after it brings one for all.
    let mut bench = Bench::new(&[4]);
    bench.settings.assignment_interval_ms = 1_000;
    bench.heartbeat(&join("a", &["t1"])).expect("a join");
    bench.wall_ms += 999;
    let reply = bench.heartbeat(&join("b", &["t1"])).expect("a join");
    assert_eq!((reply.member_epoch, reply.assignment), (2, Some(Vec::new())));
    assert_eq!(bench.group.state(), GroupState::Assigning);
    assert_eq!((bench.group.group_epoch(), bench.group.target_epoch().epoch), (3, 2));
    bench.wall_ms += 1;
    bench.heartbeat(&beat("a", 2)).expect("told to revoke");
    assert_eq!(bench.group.target_epoch().epoch, 3);
    // A clock that was set back delays nothing.
    bench.wall_ms -= 500_000;
    bench.heartbeat(&join("c", &["t1"])).expect("a join");
    assert_eq!(bench.group.target_epoch().epoch, 4);
}

#[test]
fn topics_that_appear_grow_or_go_make_a_new_epoch() {
    // Rule: the first heartbeat after a change of a subscribed topic raises the epoch; other topics do not matter.
    let mut bench = Bench::new(&[1]);
    bench.heartbeat(&join("a", &["t1", "t2"])).expect("a join");
    bench.create_topic(3, 5);
    bench.heartbeat(&beat("a", 2)).expect("a heartbeat");
    assert_eq!(bench.changes, []);
    bench.create_topic(2, 2);
    let reply = bench.heartbeat(&beat("a", 2)).expect("a heartbeat");
    assert_eq!((reply.member_epoch, reply.assignment), (3, Some(wire(&[(1, 0), (2, 0), (2, 1)]))));
    bench.grow_topic(1, 1, 3);
    let reply = bench.heartbeat(&beat("a", 3)).expect("a heartbeat");
    assert_eq!(reply.assignment, Some(wire(&[(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)])));
    bench.delete_topic(1);
    let reply = bench.heartbeat(&beat("a", 4)).expect("a heartbeat");
    assert_eq!((reply.member_epoch, reply.assignment), (4, Some(wire(&[(2, 0), (2, 1)]))));
    let reply = bench.heartbeat(&beat_with("a", 4, &[(2, 0), (2, 1)])).expect("revoked");
    assert_eq!(reply.member_epoch, 5);
}

#[test]
fn regular_expressions_are_resolved_beside_the_heartbeat() {
    // Rule: a new expression is compiled at once and resolved by a job; its topics raise the epoch when they are known.
    let mut bench = Bench::new(&[2, 2]);
    let by_regex = |member_id: &str, regex: &str| ConsumerGroupHeartbeat {
        subscribed_topic_names: None,
        subscribed_topic_regex: Some(regex.to_owned()),
        ..join(member_id, &[])
    };
    bench.expect_error(&by_regex("a", "t("), ErrorCode::InvalidRegularExpression);
    let reply = bench.heartbeat(&by_regex("a", "t[0-9]")).expect("a join");
    assert_eq!((reply.member_epoch, reply.assignment), (1, Some(Vec::new())));
    bench.heartbeat(&beat("a", 1)).expect("a heartbeat");
    bench.resolve();
    let names: BTreeSet<Arc<str>> = ["t1", "t2"].map(Arc::from).into();
    let resolved = ResolvedRegex {
        topic_names: Arc::new(names),
        version: bench.topics.metadata_version(),
        timestamp_ms: bench.wall_ms,
    };
    let metadata_hash = bench.topics.hash(&BTreeSet::from(["t1", "t2"]));
    let want = [
        Change::Regex { regex: "t[0-9]".into(), resolved: Some(resolved) },
        Change::Group(Some(GroupEpoch { epoch: 2, metadata_hash })),
    ];
    assert_eq!(bench.changes, want);
    assert!(bench.group.is_subscribed_to("t2") && !bench.group.is_subscribed_to("t3"));
    let reply = bench.heartbeat(&beat("a", 1)).expect("a heartbeat");
    assert_eq!(reply.assignment.map(|topics| topics.len()), Some(2));

    // A topic that is created is found ten seconds after the last look at the earliest, and nothing is resolved without need.
    bench.create_topic(3, 1);
    bench.heartbeat(&beat("a", 2)).expect("a heartbeat");
    assert_eq!(bench.resolving, None);
    bench.wall_ms += 10_001;
    bench.heartbeat(&beat("a", 2)).expect("a heartbeat");
    bench.resolve();
    assert_eq!(bench.group.group_epoch(), 3);
    bench.wall_ms += 10_001;
    bench.heartbeat(&beat("a", 2)).expect("a heartbeat");
    assert_eq!(bench.resolving, None);
    bench.wall_ms += 600_001;
    bench.heartbeat(&beat("a", 3)).expect("a heartbeat");
    bench.resolve();
    assert_eq!(bench.group.group_epoch(), 3, "nothing new was found");

    // One that is known already counts at once; the last member takes it along.
    let reply = bench.heartbeat(&by_regex("b", "t[0-9]")).expect("a join");
    assert_eq!(reply.member_epoch, 4);
    assert_eq!(bench.resolving, None);
    bench.heartbeat(&beat("b", -1)).expect("a leave");
    assert_eq!(bench.group.regexes().len(), 1);
    let names = ConsumerGroupHeartbeat { subscribed_topic_regex: Some(String::new()), ..join("a", &["t1"]) };
    bench.heartbeat(&names).expect("names instead");
    assert!(bench.group.regexes().is_empty());
    assert!(bench.group.is_subscribed_to("t1") && !bench.group.is_subscribed_to("t2"));
}

#[test]
fn most_members_choose_the_assignor() {
    // Rule: what most members name, else the broker's first; a change of it raises the epoch.
    let mut bench = Bench::new(&[4, 4]);
    let with = |member_id: &str, name: &str| ConsumerGroupHeartbeat {
        server_assignor: Some(name.to_owned()),
        ..join(member_id, &["t1", "t2"])
    };
    bench.heartbeat(&with("a", "range")).expect("a join");
    bench.heartbeat(&join("b", &["t1", "t2"])).expect("a join");
    assert_eq!(*bench.group.target("a", None), assignment(&[(1, 0), (1, 1), (2, 0), (2, 1)]));
    assert_eq!(describe::describe(&bench.group, &bench.environment()).assignor_name, "range");
    let epoch = bench.group.group_epoch();
    bench.heartbeat(&with("a", "uniform")).expect("changes its mind");
    assert_eq!(bench.group.group_epoch(), epoch + 1);
    bench.settings.assignors = vec![Assignor::Range, Assignor::Uniform];
    bench.heartbeat(&beat("a", -1)).expect("a leave");
    assert_eq!(describe::describe(&bench.group, &bench.environment()).assignor_name, "range");
}

#[test]
fn commits_need_an_epoch_in_which_the_partition_was_had() {
    // Rule: KIP-1251: an older epoch may commit for what the member has had since then, a newer one for nothing.
    let mut bench = Bench::new(&[2, 2]);
    bench.heartbeat(&join("a", &["t1"])).expect("a join");
    bench.heartbeat(&ConsumerGroupHeartbeat { member_epoch: 2, ..join("a", &["t1", "t2"]) }).expect("one topic more");
    assert_eq!(bench.member("a").current.assigned, epochs(&[(1, 0, 2), (1, 1, 2), (2, 0, 3), (2, 1, 3)]));
    let committer = |member_id, epoch| Committer {
        api_version: 9,
        member_id,
        group_instance_id: None,
        generation_id_or_member_epoch: epoch,
        is_transactional: false,
    };
    let verify = |committer: Committer<'_>, number: u8, index: i32| {
        let permit = bench.group.verify_offset_commit(&committer)?;
        permit.verify(Some(topic_id(number)), index)
    };
    let code = |result: Result<(), ConsumerGroupError>| result.err().map(|error| ErrorCode::from(&error));
    let stale = Some(ErrorCode::StaleMemberEpoch);
    assert_eq!(code(verify(committer("a", 3), 2, 0)), None);
    assert_eq!(code(verify(committer("a", 3), 9, 0)), None, "the current epoch is not asked what it has");
    assert_eq!(code(verify(committer("a", 2), 1, 0)), None);
    assert_eq!(code(verify(committer("a", 2), 2, 0)), stale);
    assert_eq!(code(verify(committer("a", 2), 9, 0)), stale);
    assert_eq!(code(verify(committer("a", 4), 1, 0)), stale);
    assert_eq!(code(verify(committer("b", 3), 1, 0)), Some(ErrorCode::UnknownMemberId));
    assert_eq!(code(verify(committer("", -1), 1, 0)), Some(ErrorCode::UnknownMemberId));
    let old = Committer { api_version: 8, ..committer("a", 3) };
    assert_eq!(code(verify(old, 1, 0)), Some(ErrorCode::UnsupportedVersion));
    let producer = Committer { is_transactional: true, ..committer("", -1) };
    assert_eq!(code(verify(producer, 1, 0)), None);
    let fetch = |member_id, epoch| code(bench.group.verify_offset_fetch(member_id, epoch));
    assert_eq!(fetch(None, -1), None);
    assert_eq!(fetch(Some("a"), 3), None);
    assert_eq!(fetch(Some("a"), 2), stale);
    assert_eq!(fetch(Some("b"), 3), Some(ErrorCode::UnknownMemberId));
    let empty = Bench::new(&[]);
    assert!(empty.group.verify_offset_commit(&committer("", -1)).is_ok(), "anybody may, while there are no members");
}

#[test]
fn groups_are_described_with_all_that_members_hold() {
    // Rule: what a member has to give up is still among what it has; topics that are gone are not listed.
    let mut bench = Bench::new(&[4]);
    bench.heartbeat(&join("a", &["t1"])).expect("a join");
    bench.heartbeat(&join("b", &["t1"])).expect("a join");
    bench.heartbeat(&beat("a", 2)).expect("told to revoke");
    let described = describe::describe(&bench.group, &bench.environment());
    assert_eq!(
        (described.group_state.as_str(), described.group_epoch, described.assignment_epoch),
        ("Reconciling", 3, 3)
    );
    let counts = |member: &request::DescribedConsumerMember| {
        let count = |topics: &[request::NamedTopicPartitions]| topics.iter().map(|topic| topic.partitions.len()).sum();
        let counts: (usize, usize) = (count(&member.assignment), count(&member.target_assignment));
        counts
    };
    assert_eq!(described.members.iter().map(counts).collect::<Vec<_>>(), [(4, 2), (0, 2)]);
    assert_eq!(described.members[0].assignment[0].topic_name, "t1");
    assert_eq!((described.members[0].member_epoch, described.members[0].member_type), (2, 1));
    bench.delete_topic(1);
    let described = describe::describe(&bench.group, &bench.environment());
    assert!(described.members[0].assignment.is_empty());
}

#[test]
fn a_group_is_removed_as_a_whole() {
    // Rule: tombstones of everything, the group's own last; what is removed is gone with all its parts.
    let mut bench = Bench::new(&[4]);
    bench.heartbeat(&join("a", &["t1"])).expect("a join");
    bench.heartbeat(&join_static("b", "i", &["t1"])).expect("a join");
    let mut group = bench.group.clone();
    let replayed: Vec<Replayed> = tombstones(&bench.group).iter().map(|change| group.replay(change)).collect();
    assert_eq!(replayed.iter().filter(|replayed| **replayed == Replayed::Removed).count(), 1);
    assert_eq!(replayed.last(), Some(&Replayed::Removed));
    assert!(group.is_empty() && group.targets().is_empty());
    // A member's own tombstone alone leaves nothing of it.
    let gone = Change::Member { member_id: "a".into(), subscription: None };
    assert_eq!(bench.group.replay(&gone), Replayed::Present);
    bench.group.verify();
    assert_eq!(bench.group.member_count(), 1);
}

#[test]
fn records_without_epochs_and_of_unknown_states_are_read() {
    // Rule: before KIP-1251 the member's epoch stands for those of its partitions; an unknown state starts anew without any.
    let mut bench = Bench::new(&[2]);
    bench.heartbeat(&join("a", &["t1"])).expect("a join");
    let mut record = bench.changes.last().expect("a record").to_record(GROUP);
    if let GroupRecord::ConsumerGroupCurrentMemberAssignment { value: Some(value), .. } = &mut record {
        value.assigned_partitions[0].assignment_epochs = None;
        value.state = 77;
        value.member_epoch = 2;
    }
    let change = Change::from_record(&record).expect("of a consumer group");
    replay(&mut bench.group, &change);
    assert_eq!(bench.member("a").current.state, MemberState::Unknown);
    assert_eq!(bench.member("a").current.assigned, epochs(&[(1, 0, 2), (1, 1, 2)]));
    bench.expect_error(&beat("a", 2), ErrorCode::FencedMemberEpoch);
    let reply = bench.heartbeat(&join("a", &["t1"])).expect("joins again");
    assert_eq!((reply.member_epoch, bench.member("a").current.state), (2, MemberState::Stable));
}
