use proptest::prelude::*;

use super::super::reconcile::Step;
use super::*;

fn state(
    state: MemberState,
    epoch: i32,
    previous_epoch: i32,
    assigned: &[(u8, i32, i32)],
    pending: &[(u8, i32, i32)],
) -> CurrentAssignment {
    CurrentAssignment { epoch, previous_epoch, state, assigned: epochs(assigned), pending_revocation: epochs(pending) }
}

struct Case {
    name: &'static str,
    current: CurrentAssignment,
    target_epoch: i32,
    target: &'static [(u8, i32)],
    subscribed: &'static [u8],
    subscription_changed: bool,
    owned: Option<&'static [(u8, i32)]>,
    others: &'static [(u8, i32)],
    want: CurrentAssignment,
}

impl Case {
    fn check(&self) {
        let target = assignment(self.target);
        let owned = self.owned.map(assignment);
        let others = assignment(self.others);
        let subscribed = self.subscribed.iter().copied().map(topic_id).collect();
        let is_owned = |topic_id: TopicId, index: i32| {
            others.contains(topic_id, index)
                || self.current.assigned.contains(topic_id, index)
                || self.current.pending_revocation.contains(topic_id, index)
        };
        let step = Step {
            current: &self.current,
            target_epoch: self.target_epoch,
            target: &target,
            subscribed: &subscribed,
            subscription_changed: self.subscription_changed,
            owned: owned.as_ref(),
            is_owned_by_any: &is_owned,
        };
        assert_eq!(step.next(), Ok(self.want.clone()), "{}", self.name);
    }
}

use MemberState::{Stable, UnreleasedPartitions as Unreleased, UnrevokedPartitions as Unrevoked};

/// Stable in epoch 10, and what the cases change of it.
fn had() -> CurrentAssignment {
    state(Stable, 10, 9, &[(1, 1, 5), (1, 2, 9)], &[])
}

/// A target of epoch 11 that gives the member what it has.
fn base() -> Case {
    Case {
        name: "nothing to do",
        current: had(),
        target_epoch: 11,
        target: &[(1, 1), (1, 2)],
        subscribed: &[1, 2],
        subscription_changed: false,
        owned: None,
        others: &[],
        want: state(Stable, 11, 10, &[(1, 1, 5), (1, 2, 9)], &[]),
    }
}

#[test]
fn a_stable_member_goes_to_a_newer_target() {
    // Rule: what must go goes first, in the old epoch; what is free comes with the new one; the rest is waited for.
    let cases = [
        base(),
        Case { name: "the same epoch", target_epoch: 10, target: &[(1, 1)], want: had(), ..base() },
        Case {
            name: "something new",
            target: &[(1, 1), (1, 2), (2, 0)],
            want: state(Stable, 11, 10, &[(1, 1, 5), (1, 2, 9), (2, 0, 11)], &[]),
            ..base()
        },
        Case {
            name: "something to give up",
            target: &[(1, 2), (2, 0)],
            want: state(Unrevoked, 10, 10, &[(1, 2, 9)], &[(1, 1, 5)]),
            ..base()
        },
        Case {
            name: "given up already",
            target: &[(1, 2), (2, 0)],
            owned: Some(&[(1, 2)]),
            want: state(Stable, 11, 10, &[(1, 2, 9), (2, 0, 11)], &[]),
            ..base()
        },
        Case {
            name: "what others have",
            target: &[(1, 1), (1, 2), (2, 0), (2, 1)],
            others: &[(2, 0)],
            want: state(Unreleased, 11, 10, &[(1, 1, 5), (1, 2, 9), (2, 1, 11)], &[]),
            ..base()
        },
    ];
    cases.iter().for_each(Case::check);
}

#[test]
fn a_member_that_waits_goes_on_when_it_can() {
    // Rule: unrevoked until the member names nothing of it any more, then towards the newest target; unreleased until all is there.
    let cases = [
        Case {
            name: "unrevoked, still there",
            current: state(Unrevoked, 10, 10, &[(1, 2, 9)], &[(1, 1, 5)]),
            owned: Some(&[(1, 1), (1, 2)]),
            want: state(Unrevoked, 10, 10, &[(1, 2, 9)], &[(1, 1, 5)]),
            ..base()
        },
        Case {
            name: "unrevoked, not said",
            current: state(Unrevoked, 10, 10, &[(1, 2, 9)], &[(1, 1, 5)]),
            want: state(Unrevoked, 10, 10, &[(1, 2, 9)], &[(1, 1, 5)]),
            ..base()
        },
        Case {
            name: "unrevoked, done, and given back by a newer target",
            current: state(Unrevoked, 10, 10, &[(1, 2, 9)], &[(1, 1, 5)]),
            owned: Some(&[(1, 2)]),
            target_epoch: 12,
            want: state(Stable, 12, 10, &[(1, 1, 12), (1, 2, 9)], &[]),
            ..base()
        },
        Case {
            name: "unrevoked, done, and more to give up",
            current: state(Unrevoked, 10, 10, &[(1, 2, 9)], &[(1, 1, 5)]),
            owned: Some(&[(1, 2)]),
            target: &[(2, 0)],
            want: state(Unrevoked, 10, 10, &[], &[(1, 2, 9)]),
            ..base()
        },
        Case {
            name: "unreleased, released",
            current: state(Unreleased, 11, 10, &[(1, 1, 5)], &[]),
            want: state(Stable, 11, 11, &[(1, 1, 5), (1, 2, 11)], &[]),
            ..base()
        },
        Case {
            name: "unreleased, not yet",
            current: state(Unreleased, 11, 11, &[(1, 1, 5)], &[]),
            others: &[(1, 2)],
            want: state(Unreleased, 11, 11, &[(1, 1, 5)], &[]),
            ..base()
        },
    ];
    cases.iter().for_each(Case::check);
}

#[test]
fn a_subscription_takes_topics_away_at_once() {
    // Rule: whatever the target says, a member has only topics it subscribes to; an unknown state starts anew without any.
    let cases = [
        Case {
            name: "topics that are not subscribed to are not given",
            subscribed: &[2],
            target: &[(1, 1), (2, 0)],
            owned: Some(&[]),
            want: state(Stable, 11, 10, &[(2, 0, 11)], &[]),
            ..base()
        },
        Case {
            name: "a subscription without the topic takes it away at once",
            target_epoch: 10,
            subscribed: &[2],
            subscription_changed: true,
            want: state(Unrevoked, 10, 10, &[], &[(1, 1, 5), (1, 2, 9)]),
            ..base()
        },
        Case {
            name: "a subscription with the topic takes nothing",
            target_epoch: 10,
            subscription_changed: true,
            want: had(),
            ..base()
        },
        Case {
            name: "more is taken away while something is given up",
            current: state(Unrevoked, 10, 9, &[(1, 2, 9), (2, 0, 3)], &[(1, 1, 5)]),
            subscribed: &[2],
            subscription_changed: true,
            want: state(Unrevoked, 10, 10, &[(2, 0, 3)], &[(1, 1, 5), (1, 2, 9)]),
            ..base()
        },
        Case {
            name: "an unknown state without partitions",
            current: state(MemberState::Unknown, 10, 9, &[(1, 1, 5)], &[]),
            owned: Some(&[]),
            want: state(Stable, 11, 10, &[(1, 1, 5), (1, 2, 11)], &[]),
            ..base()
        },
    ];
    cases.iter().for_each(Case::check);
}

#[test]
fn a_second_member_gets_what_the_first_has_given_up() {
    // Rule: revoke, then assign, member by member; nobody else waits.
    let mut bench = Bench::new(&[4]);
    bench.heartbeat(&join("a", &["t1"])).expect("a join");
    let reply = bench.heartbeat(&join("b", &["t1"])).expect("a join");
    assert_eq!((reply.member_epoch, reply.assignment), (3, Some(Vec::new())));
    assert_eq!(bench.member("b").current.state, MemberState::UnreleasedPartitions);
    let reply = bench.heartbeat(&beat("a", 2)).expect("a heartbeat");
    assert_eq!((reply.member_epoch, reply.assignment), (2, Some(wire(&[(1, 0), (1, 1)]))));
    let reply = bench.heartbeat(&beat("b", 3)).expect("a heartbeat");
    assert_eq!((reply.member_epoch, reply.assignment), (3, None));
    let reply = bench.heartbeat(&beat_with("a", 2, &[(1, 0), (1, 1)])).expect("a heartbeat");
    assert_eq!((reply.member_epoch, reply.assignment), (3, None));
    let reply = bench.heartbeat(&beat("b", 3)).expect("a heartbeat");
    assert_eq!((reply.member_epoch, reply.assignment), (3, Some(wire(&[(1, 2), (1, 3)]))));
    assert_eq!(bench.group.state(), GroupState::Stable);
    assert!(bench.reload().is_same(&bench.group));
}

#[test]
fn a_thousand_members_share_five_thousand_partitions() {
    // Rule: every member of a large group reaches its share, and one more that joins is served by moving a few partitions.
    let mut bench = Bench::new(&[5_000]);
    bench.is_verifying = false;
    bench.settings.assignment_interval_ms = 1_000;
    let name = |number: i32| format!("member-{number:04}");
    for number in 0..1_000 {
        bench.heartbeat(&join(&name(number), &["t1"])).expect("a join");
    }
    bench.wall_ms += 1_000;
    let settle = |bench: &mut Bench, count: i32| {
        for _ in 0..3 {
            for number in 0..count {
                let member = bench.member(&name(number));
                let owned: Vec<(u8, i32)> = member.current.assigned.partitions().map(|(_, index)| (1, index)).collect();
                let request = beat_with(&name(number), member.current.epoch, &owned);
                bench.heartbeat(&request).expect("a heartbeat");
            }
        }
        bench.group.verify();
        assert_eq!(bench.group.state(), GroupState::Stable);
    };
    settle(&mut bench, 1_000);
    assert!(bench.group.members().all(|member| member.current.assigned.partitions().count() == 5));
    bench.wall_ms += 1_000;
    bench.heartbeat(&join(&name(1_000), &["t1"])).expect("a join");
    let moved = bench.changes.iter().filter(|change| matches!(change, Change::TargetMember { .. })).count();
    assert_eq!(moved, 5, "four give one each");
    settle(&mut bench, 1_001);
}

proptest! {
    #[test]
    fn a_step_keeps_what_is_kept_and_invents_nothing(
        assigned in proptest::collection::btree_set((1u8..4, 0i32..4), 0..8),
        pending in proptest::collection::btree_set((1u8..4, 0i32..4), 0..4),
        target in proptest::collection::btree_set((1u8..4, 0i32..4), 0..8),
        others in proptest::collection::btree_set((1u8..4, 0i32..4), 0..6),
        owned in proptest::option::of(proptest::collection::btree_set((1u8..4, 0i32..4), 0..8)),
        subscribed in proptest::collection::btree_set(1u8..4, 0..4),
        number in 0i8..3,
        ahead in 0i32..2,
        subscription_changed in any::<bool>(),
    ) {
        // Rule: a member never gets what another has, and loses nothing of its target but by its subscription.
        let current = CurrentAssignment {
            epoch: 5,
            previous_epoch: 4,
            state: MemberState::from_number(number),
            assigned: epochs(&assigned.iter().map(|(topic, index)| (*topic, *index, 3)).collect::<Vec<_>>()),
            pending_revocation: epochs(
                &pending.difference(&assigned).filter(|_| number == 1).map(|(topic, index)| (*topic, *index, 2)).collect::<Vec<_>>(),
            ),
        };
        let held: Assignment = current.held().collect();
        let others: Vec<(u8, i32)> =
            others.into_iter().filter(|(topic, index)| !held.contains(topic_id(*topic), *index)).collect();
        let others = assignment(&others);
        let target = assignment(&target.into_iter().collect::<Vec<_>>());
        let owned = owned.map(|owned| assignment(&owned.into_iter().collect::<Vec<_>>()));
        let subscribed: BTreeSet<TopicId> = subscribed.into_iter().map(topic_id).collect();
        let is_owned = |topic_id: TopicId, index: i32| others.contains(topic_id, index) || held.contains(topic_id, index);
        let step = Step {
            current: &current,
            target_epoch: 5 + ahead,
            target: &target,
            subscribed: &subscribed,
            subscription_changed,
            owned: owned.as_ref(),
            is_owned_by_any: &is_owned,
        };
        let next = step.next().expect("a known state");
        prop_assert!(next.epoch == 5 || next.epoch == 5 + ahead);
        for (topic_id, index) in next.held() {
            prop_assert!(!others.contains(topic_id, index), "taken from another");
            prop_assert!(held.contains(topic_id, index) || target.contains(topic_id, index), "from nowhere");
        }
        for (topic_id, index) in current.assigned.partitions() {
            if target.contains(topic_id, index) && subscribed.contains(&topic_id) {
                prop_assert_eq!(next.assigned.epoch(topic_id, index), Some(3), "kept with its epoch");
            }
        }
        if next.state == MemberState::Stable && next != current && next.epoch != 5 {
            let subscribed_target: Assignment =
                target.partitions().filter(|(topic_id, _)| subscribed.contains(topic_id)).collect();
            prop_assert_eq!(next.assigned.without_epochs(), subscribed_target);
        }
        // What the member may still have is not let go.
        for (topic_id, index) in current.held() {
            let may_have = owned.as_ref().is_none_or(|owned| owned.contains(topic_id, index));
            prop_assert!(!may_have || next.held().any(|held| held == (topic_id, index)));
        }
    }
}
