use proptest::prelude::*;
use walser_protocol::types::Uuid;

use super::*;

fn topic(number: u8) -> TopicId {
    TopicId::from_wire(Uuid::from_bytes([number + 1; 16])).expect("not zero")
}

/// A group that owns what its members point to.
#[derive(Clone, Debug, Default)]
struct Group {
    members: Vec<Member>,
    partition_counts: BTreeMap<TopicId, usize>,
}

#[derive(Clone, Debug)]
struct Member {
    member_id: String,
    instance_id: Option<String>,
    topics: BTreeSet<TopicId>,
    assigned: Assignment,
}

impl Group {
    fn new(partition_counts: &[usize]) -> Self {
        let counts = (0u8..).zip(partition_counts).map(|(number, count)| (topic(number), *count));
        Self { members: Vec::new(), partition_counts: counts.collect() }
    }

    fn with(mut self, member_id: &str, instance_id: Option<&str>, topics: &[u8]) -> Self {
        self.members.push(Member {
            member_id: member_id.to_owned(),
            instance_id: instance_id.map(str::to_owned),
            topics: topics.iter().copied().map(topic).collect(),
            assigned: Assignment::default(),
        });
        self.members.sort_by(|one, other| one.member_id.cmp(&other.member_id));
        self
    }

    fn spec(&self) -> GroupSpec<'_> {
        let specs = self.members.iter().map(|member| MemberSpec {
            member_id: &member.member_id,
            instance_id: member.instance_id.as_deref(),
            subscribed_topic_ids: &member.topics,
            assigned: &member.assigned,
        });
        GroupSpec { members: specs.collect(), partition_counts: self.partition_counts.clone() }
    }

    /// Assigns, and counts the partitions that a remaining subscriber lost.
    fn assign(&mut self, assignor: Assignor) -> usize {
        let assignments = assignor.assign(&self.spec()).expect("all topics are known");
        assert_eq!(assignments.len(), self.members.len());
        let mut lost = 0;
        for (member, assigned) in self.members.iter_mut().zip(assignments) {
            let left = |(topic_id, index): &(TopicId, i32)| {
                member.topics.contains(topic_id) && !assigned.contains(*topic_id, *index)
            };
            lost += member.assigned.partitions().filter(left).count();
            member.assigned = assigned;
        }
        self.verify();
        lost
    }

    /// Every partition of every topic that somebody subscribes to is assigned once, to a subscriber.
    fn verify(&self) {
        let mut owned: BTreeMap<(TopicId, i32), &str> = BTreeMap::new();
        for member in &self.members {
            for partition in member.assigned.partitions() {
                assert!(member.topics.contains(&partition.0), "{} has {partition:?}", member.member_id);
                let other = owned.insert(partition, &member.member_id);
                assert_eq!(other, None, "{} has {partition:?} too", member.member_id);
            }
        }
        let subscribed: BTreeSet<TopicId> = self.members.iter().flat_map(|member| member.topics.clone()).collect();
        let partitions: usize = subscribed.iter().map(|topic_id| self.partition_counts[topic_id]).sum();
        assert_eq!(owned.len(), partitions);
    }

    fn assigned(&self, member_id: &str) -> Vec<(u8, i32)> {
        let member = self.members.iter().find(|member| member.member_id == member_id).expect("a member");
        let number = |topic_id: TopicId| topic_id.get().as_bytes()[0] - 1;
        member.assigned.partitions().map(|(topic_id, index)| (number(topic_id), index)).collect()
    }

    fn spread(&self) -> usize {
        let lens = || self.members.iter().map(|member| member.assigned.len());
        lens().max().unwrap_or(0) - lens().min().unwrap_or(0)
    }
}

#[test]
fn range_gives_contiguous_ranges_and_the_same_of_every_topic() {
    // Rule: the first members get the longer ranges, and topics of equal size are split alike.
    let mut group = Group::new(&[3, 3]).with("m0", None, &[0, 1]).with("m1", None, &[0, 1]);
    group.assign(Assignor::Range);
    assert_eq!(group.assigned("m0"), [(0, 0), (0, 1), (1, 0), (1, 1)]);
    assert_eq!(group.assigned("m1"), [(0, 2), (1, 2)]);
}

#[test]
fn range_goes_by_instance_ids_first() {
    // Rule: static members precede dynamic ones and keep their ranges under new member ids.
    let topics = &[0];
    let mut before =
        Group::new(&[5]).with("a", None, topics).with("b", Some("i1"), topics).with("c", Some("i0"), topics);
    before.assign(Assignor::Range);
    assert_eq!(before.assigned("c"), [(0, 0), (0, 1)]);
    assert_eq!(before.assigned("b"), [(0, 2), (0, 3)]);
    assert_eq!(before.assigned("a"), [(0, 4)]);
    let mut after =
        Group::new(&[5]).with("a", None, topics).with("y", Some("i0"), topics).with("x", Some("i1"), topics);
    after.assign(Assignor::Range);
    assert_eq!(after.assigned("y"), before.assigned("c"));
    assert_eq!(after.assigned("x"), before.assigned("b"));
}

#[test]
fn range_counts_subscribers_of_each_topic() {
    // Rule: a member that does not subscribe to a topic leaves no gap in it; more members than partitions leaves some without.
    let mut group = Group::new(&[2, 4]).with("a", None, &[0, 1]).with("b", None, &[0]).with("c", None, &[0, 1]);
    group.assign(Assignor::Range);
    assert_eq!(group.assigned("a"), [(0, 0), (1, 0), (1, 1)]);
    assert_eq!(group.assigned("b"), [(0, 1)]);
    assert_eq!(group.assigned("c"), [(1, 2), (1, 3)]);
}

#[test]
fn an_unknown_topic_is_an_error_and_an_empty_group_is_none() {
    // Rule: no assignor guesses how many partitions a topic has.
    for assignor in Assignor::ALL {
        let group = Group::new(&[1]).with("a", None, &[0, 7]);
        assert_eq!(assignor.assign(&group.spec()), Err(AssignorError::UnknownTopic { topic_id: topic(7) }));
        assert_eq!(assignor.assign(&Group::new(&[1]).spec()), Ok(Vec::new()));
        assert_eq!(Assignor::from_name(assignor.name()), Some(*assignor));
        let mut idle = Group::new(&[]).with("a", None, &[]).with("b", None, &[]);
        assert_eq!(idle.assign(*assignor), 0);
    }
    assert_eq!(Assignor::from_name("sticky"), None);
}

#[test]
fn uniform_moves_only_what_a_join_needs() {
    // Rule: a balanced group stays as it is, whoever has the extra partition; a third member gets only what is above a quota.
    let mut group = Group::new(&[4, 3]).with("a", None, &[0, 1]).with("b", None, &[0, 1]);
    group.members[1].assigned = (0..4).map(|index| (topic(0), index)).collect();
    group.members[0].assigned = (0..3).map(|index| (topic(1), index)).collect();
    assert_eq!(group.assign(Assignor::Uniform), 0);
    assert_eq!(group.assigned("b").len(), 4);
    let mut group = group.with("c", None, &[0, 1]);
    assert_eq!(group.assign(Assignor::Uniform), 2);
    assert_eq!(group.assigned("a").len(), 3);
    assert_eq!(group.assigned("b"), [(0, 0), (0, 1)]);
    assert_eq!(group.assigned("c"), [(0, 2), (0, 3)]);
}

#[test]
fn uniform_spreads_a_topic_over_its_own_subscribers() {
    // Rule: with different subscriptions the load counts all topics, and who has fewest gets the free partitions.
    let mut group = Group::new(&[6, 2]).with("a", None, &[0]).with("b", None, &[0, 1]).with("c", None, &[1]);
    group.assign(Assignor::Uniform);
    assert_eq!(group.assigned("a").len(), 3);
    assert_eq!(group.assigned("b").len(), 3);
    assert_eq!(group.assigned("c").len(), 2);
    // What only one of them may read cannot be spread.
    let mut lopsided = Group::new(&[9, 1]).with("a", None, &[0]).with("b", None, &[1]);
    lopsided.assign(Assignor::Uniform);
    assert_eq!(lopsided.assigned("a").len(), 9);
}

#[test]
fn uniform_forgets_partitions_that_are_not_there() {
    // Rule: what an old assignment says of partitions a topic does not have, or of two owners, is not believed.
    for topics in [&[0, 1][..], &[0]] {
        let mut group = Group::new(&[2, 1]).with("a", None, &[0, 1]).with("b", None, topics);
        group.members[0].assigned = [(topic(0), 0), (topic(0), 9), (topic(0), -1), (topic(5), 0)].into_iter().collect();
        group.members[1].assigned = [(topic(0), 0), (topic(1), 0)].into_iter().collect();
        group.assign(Assignor::Uniform);
        assert!(group.assigned("a").contains(&(0, 0)));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Join { member: u8, topics: Vec<u8> },
    Leave { member: u8 },
    Grow { topic: u8, by: usize },
}

fn step(topics: u8) -> impl Strategy<Value = Step> {
    let some = proptest::collection::vec(0..topics, 0..4);
    prop_oneof![
        4 => (0u8..12, some).prop_map(|(member, topics)| Step::Join { member, topics }),
        2 => (0u8..12).prop_map(|member| Step::Leave { member }),
        1 => (0..topics, 1usize..5).prop_map(|(topic, by)| Step::Grow { topic, by }),
    ]
}

impl Group {
    fn apply(&mut self, step: &Step, same_topics: bool) {
        match step {
            Step::Join { member, topics } => {
                let member_id = format!("m{member:02}");
                let topics = if same_topics { vec![0, 1, 2, 3] } else { topics.clone() };
                let assigned = self.members.iter().position(|known| known.member_id == member_id);
                let assigned = assigned.map(|index| self.members.remove(index).assigned).unwrap_or_default();
                *self = std::mem::take(self).with(&member_id, None, &topics);
                let joined = self.members.iter_mut().find(|known| known.member_id == member_id).expect("it joined");
                joined.assigned = assigned;
            }
            Step::Leave { member } => {
                let member_id = format!("m{member:02}");
                self.members.retain(|known| known.member_id != member_id);
            }
            Step::Grow { topic: number, by } => *self.partition_counts.entry(topic(*number)).or_default() += by,
        }
    }
}

proptest! {
    #[test]
    fn uniform_is_balanced_and_sticky_when_all_subscribe_alike(steps in proptest::collection::vec(step(4), 1..25)) {
        // Rule: loads differ by one at most, and no more partitions are taken away than are above a quota.
        let mut group = Group::new(&[3, 8, 0, 5]);
        for step in steps {
            group.apply(&step, true);
            let partitions: usize = group.partition_counts.values().sum();
            let members = group.members.len().max(1);
            let lens = group.members.iter().map(|member| member.assigned.len());
            let mut extra = partitions % members;
            // The fewest that must move: everything above the quota, where those above it are given the extra ones.
            let needed: usize = lens.map(|len| {
                let over = len.saturating_sub(partitions / members);
                let kept = over.min(extra.min(1));
                extra -= kept;
                over - kept
            }).sum();
            let lost = group.assign(Assignor::Uniform);
            prop_assert_eq!(lost, needed);
            prop_assert!(group.spread() <= 1, "{:?}", group);
            prop_assert_eq!(group.assign(Assignor::Uniform), 0, "a second time moves something");
        }
    }

    #[test]
    fn uniform_is_balanced_within_each_topic(steps in proptest::collection::vec(step(5), 1..25)) {
        // Rule: no partition could move to a subscriber that has two less; what is balanced does not move.
        let mut group = Group::new(&[3, 8, 1, 5, 12]);
        for step in steps {
            group.apply(&step, false);
            group.assign(Assignor::Uniform);
            for member in &group.members {
                for (topic_id, _) in member.assigned.topics() {
                    for other in group.members.iter().filter(|other| other.topics.contains(&topic_id)) {
                        prop_assert!(member.assigned.len() <= other.assigned.len() + 1, "{:?}", group);
                    }
                }
            }
            prop_assert_eq!(group.assign(Assignor::Uniform), 0, "a second time moves something");
        }
    }

    #[test]
    fn range_is_complete(steps in proptest::collection::vec(step(5), 1..25)) {
        // Rule: every partition is assigned once, in ranges that differ by one within a topic.
        let mut group = Group::new(&[3, 8, 1, 5, 12]);
        for step in steps {
            group.apply(&step, false);
            group.assign(Assignor::Range);
            for topic_id in group.partition_counts.keys() {
                let subscribers = group.members.iter().filter(|member| member.topics.contains(topic_id));
                let lens: Vec<usize> =
                    subscribers.map(|member| member.assigned.topic(*topic_id).map_or(0, BTreeSet::len)).collect();
                let spread = lens.iter().max().unwrap_or(&0) - lens.iter().min().unwrap_or(&0);
                prop_assert!(spread <= 1);
            }
        }
    }
}
