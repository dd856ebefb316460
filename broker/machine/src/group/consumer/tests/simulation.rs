//! Many clients of one group, of both protocols, over a network that loses requests and answers and repeats requests, with clients that die and
//! come back, topics that come, grow and go, and coordinators that start anew. Everything follows from a seed.

use super::*;
use crate::group::harness;
use crate::group::settings::MigrationPolicy;
use crate::ids::IdGenerator;

pub(super) mod classic_client;

const CLIENTS: usize = 6;
const TOPICS_MAX: u8 = 4;
const STEPS: usize = 250;
/// Heartbeats of every client within which a group left in peace has to be stable: nine until the last session has run out,
/// three until topics have been looked for again, and some to give up and to get, of which classic members need two each.
const ROUNDS_MAX: usize = 26;
const HEARTBEAT_MS: i64 = 5_000;

/// A consumer as the protocol describes it.
struct Client {
    member_id: String,
    instance_id: Option<String>,
    subscription: Vec<String>,
    regex: Option<String>,
    /// `None`: not running.
    session: Option<Session>,
    serial: u32,
    /// It joins by JoinGroup.
    is_classic: bool,
}

#[derive(Default)]
struct Session {
    epoch: i32,
    /// What it reads.
    owned: BTreeSet<(TopicId, i32)>,
    /// The next request says everything: the last one failed, or is the first.
    is_full: bool,
    /// What it has changed since the last request.
    has_changed: bool,
    /// It was removed and has not heard of it: it reads on, and nothing can stop it.
    is_expelled: bool,
}

struct World {
    bench: Bench,
    clients: Vec<Client>,
    random: IdGenerator,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut bytes = [0u8; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let mut random = IdGenerator::from_seed(bytes);
        let mut bench = Bench::new(&[5, 3]);
        bench.settings.assignment_interval_ms = if random.index_below(2) == 0 { 0 } else { 1_000 };
        // A group without a way back to the classic protocol stays what it is, whoever leaves.
        bench.settings.migration_policy = MigrationPolicy::Upgrade;
        let client = |index: usize| Client {
            member_id: format!("c{index}-0"),
            instance_id: (index < 2).then(|| format!("i{index}")),
            subscription: vec!["t1".to_owned(), "t2".to_owned()],
            regex: None,
            session: None,
            serial: 0,
            is_classic: false,
        };
        Self { bench, clients: (0..CLIENTS).map(client).collect(), random }
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.random.index_below(bound) == 0
    }

    fn step(&mut self) {
        let index = self.random.index_below(CLIENTS);
        match self.random.index_below(40) {
            0..24 => self.heartbeat(index, true),
            24..29 => self.start(index),
            29..31 => self.leave(index),
            // Killed: it says nothing any more.
            31 => self.clients[index].session = None,
            32 => self.change_subscription(index),
            33..35 => self.change_topics(),
            35 if self.bench.resolving.is_some() => self.bench.resolve(),
            36 => self.restart_coordinator(),
            _ => {
                let ms = i64::try_from(self.random.index_below(9_000)).unwrap_or(0);
                self.pass(1_000 + ms);
            }
        }
        self.verify();
    }

    /// Time, and what falls due in it.
    fn pass(&mut self, ms: i64) {
        self.bench.wall_ms += ms;
        loop {
            let now_ms = self.bench.wall_ms;
            let due = self.bench.timers.iter().find(|(_, deadline_ms)| **deadline_ms <= now_ms);
            let Some(((member_id, kind), _)) = due.map(|(timer, at)| (timer.clone(), *at)) else { return };
            self.bench.timers.remove(&(member_id.clone(), kind));
            self.bench.time_out(&member_id, kind);
        }
    }

    fn start(&mut self, index: usize) {
        let is_classic = self.one_in(3) && !self.bench.group.is_empty();
        if self.clients[index].session.is_some() {
            return self.intrude(index);
        }
        let client = &mut self.clients[index];
        client.is_classic = is_classic;
        client.serial += 1;
        client.member_id = format!("c{index}-{}", client.serial);
        client.session = Some(Session { is_full: true, ..Session::default() });
        self.heartbeat(index, true);
    }

    /// A second process with the instance id of one that runs: it gets in only if the group knows that the place is free.
    fn intrude(&mut self, index: usize) {
        let client = &self.clients[index];
        let Some(instance_id) = client.instance_id.clone() else { return };
        let intruder = format!("{}-intruder", client.member_id);
        let existing = self.bench.group.static_member(&instance_id);
        let is_taken = existing.is_some_and(|member| !member.uses_classic_protocol() && member.current.epoch != -2);
        let answer = self.bench.heartbeat(&join_static(&intruder, &instance_id, &["t1"]));
        let want = if is_taken { Some(ErrorCode::UnreleasedInstanceId) } else { None };
        assert_eq!(answer.err().map(|error| ErrorCode::from(&error)), want);
    }

    fn leave(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if client.session.take().is_none() {
            return;
        }
        if client.is_classic {
            // It just says nothing any more.
            return;
        }
        let epoch = if client.instance_id.is_some() { -2 } else { -1 };
        let request =
            ConsumerGroupHeartbeat { instance_id: client.instance_id.clone(), ..beat(&client.member_id, epoch) };
        if !self.one_in(5) {
            let _unknown = self.bench.heartbeat(&request);
        }
    }

    fn change_subscription(&mut self, index: usize) {
        let mut topics: Vec<String> = (1..=TOPICS_MAX).map(|number| format!("t{number}")).collect();
        topics.retain(|_| !self.one_in(3));
        let by_regex = self.one_in(3);
        let regex = ["t[12]", "t.*", "t[34]"][self.random.index_below(3)];
        let client = &mut self.clients[index];
        client.subscription = if by_regex { Vec::new() } else { topics };
        client.regex = Some(if by_regex { regex.to_owned() } else { String::new() });
        if let Some(session) = &mut client.session {
            session.is_full = true;
        }
    }

    fn change_topics(&mut self) {
        let number = u8::try_from(1 + self.random.index_below(usize::from(TOPICS_MAX))).unwrap_or(1);
        match self.bench.topics.partition_count(topic_id(number)) {
            None => self.bench.create_topic(number, 4),
            Some(_) if self.one_in(3) => self.bench.delete_topic(number),
            Some(count) if count < 12 => {
                let count = i32::try_from(count).unwrap_or(0);
                self.bench.grow_topic(number, count, count + 2);
            }
            Some(_) => {}
        }
    }

    /// The group as the log tells it; sessions begin anew, and what was being resolved is forgotten.
    fn restart_coordinator(&mut self) {
        let group = self.bench.reload();
        assert!(group.is_same(&self.bench.group), "replaying the log gives the live state");
        self.bench.group = group;
        self.bench.timers.clear();
        self.bench.resolving = None;
        for member in self.bench.group.members() {
            let deadline_ms = self.bench.wall_ms + 45_000;
            self.bench.timers.insert((member.member_id.clone(), TimerKind::Session), deadline_ms);
            if member.current.state == MemberState::UnrevokedPartitions {
                let deadline_ms = self.bench.wall_ms + i64::from(member.subscription.rebalance_timeout_ms);
                self.bench.timers.insert((member.member_id.clone(), TimerKind::Rebalance), deadline_ms);
            }
        }
    }

    fn request(&mut self, index: usize) -> Option<ConsumerGroupHeartbeat> {
        let client = &mut self.clients[index];
        let session = client.session.as_mut()?;
        let owned = session.owned.iter().map(|(topic_id, index)| (topic_id.get().as_bytes()[0], *index));
        let owned: Vec<(u8, i32)> = owned.collect();
        let mut request = beat(&client.member_id, session.epoch);
        request.instance_id.clone_from(&client.instance_id);
        if session.is_full || session.has_changed {
            request.topic_partitions = Some(wire(&owned));
        }
        if session.is_full {
            request.rebalance_timeout_ms = 60_000;
            request.subscribed_topic_names = Some(client.subscription.clone());
            request.subscribed_topic_regex.clone_from(&client.regex);
        }
        session.is_full = false;
        session.has_changed = false;
        Some(request)
    }

    fn heartbeat(&mut self, index: usize, is_lossy: bool) {
        if self.clients[index].is_classic {
            return self.classic_round(index, is_lossy);
        }
        let Some(request) = self.request(index) else { return };
        let lost = |world: &mut Self| is_lossy && world.one_in(8);
        if lost(self) {
            return self.fail(index);
        }
        let answer = self.bench.heartbeat(&request);
        if lost(self) {
            // It arrives twice; the client hears the first answer.
            let _second = self.bench.heartbeat(&request);
        }
        if lost(self) {
            return self.fail(index);
        }
        self.answer(index, answer);
    }

    /// No answer: the next request says everything again.
    fn fail(&mut self, index: usize) {
        if let Some(session) = &mut self.clients[index].session {
            session.is_full = true;
        }
    }

    fn answer(&mut self, index: usize, answer: Result<ConsumerGroupHeartbeatReply, ConsumerGroupError>) {
        let client = &mut self.clients[index];
        let Some(session) = &mut client.session else { return };
        match answer {
            Ok(reply) => {
                session.is_expelled = false;
                session.epoch = reply.member_epoch;
                if let Some(assignment) = reply.assignment {
                    let partitions = assignment.iter().flat_map(|topic| {
                        let topic_id = TopicId::from_wire(topic.topic_id).expect("not zero");
                        topic.partitions.iter().map(move |index| (topic_id, *index))
                    });
                    let assigned: BTreeSet<(TopicId, i32)> = partitions.collect();
                    session.has_changed |= assigned != session.owned;
                    session.owned = assigned;
                }
            }
            Err(error) => {
                let error = ErrorCode::from(&error);
                if [ErrorCode::FencedMemberEpoch, ErrorCode::UnknownMemberId].contains(&error) {
                    // It gives everything up and joins again.
                    *session = Session { is_full: true, ..Session::default() };
                } else {
                    // Another process has its instance id, or has not left yet.
                    assert!([ErrorCode::FencedInstanceId, ErrorCode::UnreleasedInstanceId].contains(&error), "{error}");
                    client.session = None;
                }
            }
        }
    }

    /// No member reads what another one may have; every epoch is one the group has reached.
    fn verify(&mut self) {
        self.bench.group.verify();
        let mut readers: BTreeMap<(TopicId, i32), &str> = BTreeMap::new();
        for client in &mut self.clients {
            let Some(session) = &mut client.session else { continue };
            let Some(member) = self.bench.group.member(&client.member_id) else {
                session.is_expelled = session.epoch != 0;
                continue;
            };
            let may_know = session.epoch == member.current.epoch || session.epoch == member.current.previous_epoch;
            if !may_know || session.is_expelled {
                continue;
            }
            for partition in &session.owned {
                assert!(
                    member.current.held().any(|held| held == *partition),
                    "{} reads {partition:?}, which the group would give to another",
                    client.member_id
                );
                let other = readers.insert(*partition, &client.member_id);
                assert_eq!(other, None, "{} reads {partition:?} too", client.member_id);
            }
        }
    }

    /// Left in peace, the group becomes stable, with every partition read once.
    fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            self.pass(HEARTBEAT_MS);
            for index in 0..CLIENTS {
                self.heartbeat(index, false);
                self.verify();
            }
            if self.bench.resolving.is_some() {
                self.bench.resolve();
            }
        }
        // Those that were killed are forgotten by now.
        let running = self.clients.iter().filter(|client| client.session.is_some()).count();
        assert_eq!(self.bench.group.member_count(), running);
        let state = self.bench.group.state();
        let members: Vec<_> = self.bench.group.members().collect();
        assert!(matches!(state, GroupState::Stable | GroupState::Empty), "{state:?} {members:#?}");
        let mut read = BTreeSet::new();
        let mut wanted = BTreeSet::new();
        for client in &self.clients {
            let Some(session) = &client.session else { continue };
            read.extend(session.owned.iter().copied());
            let subscription = &self.bench.member(&client.member_id).subscription;
            for topic_id in self.bench.topics.subscribed_ids(subscription, self.bench.group.regexes()) {
                let count = self.bench.topics.partition_count(topic_id).unwrap_or(0);
                wanted.extend((0..i32::try_from(count).unwrap_or(0)).map(|index| (topic_id, index)));
            }
        }
        assert_eq!(read, wanted, "every partition that somebody wants is read");
        assert!(self.bench.reload().is_same(&self.bench.group));
    }
}

#[test]
fn no_partition_is_read_twice_and_every_group_settles() {
    // Rule: whatever is lost, repeated or restarted, a partition has one reader, and in peace every partition has one.
    for seed in 0..100 {
        let world = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            for _ in 0..STEPS {
                world.step();
            }
            world.settle();
        });
        assert!(world.is_ok(), "seed {seed}");
    }
}
