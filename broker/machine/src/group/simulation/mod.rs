//! Many clients, a network that loses, delays and repeats, a clock that jumps, and a coordinator that is lost and loaded again: all
//! from one seed.
//!
//! Ten virtual minutes per seed: eight of trouble, two of calm. [`check::Checker`] sees everything that is logged and answered.
//! `WALSER_GROUP_SEEDS` says how many seeds, `WALSER_FIRST_SEED` with which to begin; what fails names its seed.

mod check;
mod client;

use std::collections::BTreeMap;
use std::sync::Arc;

use check::Checker;
use client::{Client, Phase};

use super::harness::WALL_START_MS;
use super::{Command, Effect, GroupCoordinator, GroupRecord, GroupSettings, Now, Reply, RequestId};
use crate::ids::IdGenerator;
use crate::metadata::MetadataImage;
use walser_protocol::ErrorCode;

const TROUBLE_MS: u64 = 8 * 60_000;
const CALM_MS: u64 = 2 * 60_000;
const GROUPS: usize = 3;
const CLIENTS_PER_GROUP: usize = 5;
const PARTITIONS: i32 = 7;
/// A request is given up after this long; its late answer is not heeded.
const REQUEST_TIMEOUT_MS: u64 = 40_000;
/// Longest way through the network, but for what is late on purpose.
const DELAY_MS: usize = 300;
/// Offsets of groups that are empty for this long are removed.
const RETENTION_MS: i64 = 60_000;

enum Event {
    /// A request reaches the coordinator.
    Deliver { client: usize, serial: u64, command: Command },
    /// A reply reaches its client.
    Answer { client: usize, serial: u64, reply: Reply },
    /// A client looks what it has to do.
    Wake { client: usize },
    /// What the coordinator of this number appended up to here is durable.
    Committed { coordinator: u64, end_offset: usize },
    /// Something goes wrong.
    Trouble,
}

/// All of one run.
struct World {
    random: IdGenerator,
    now_ms: u64,
    wall_offset_ms: i64,
    events: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    coordinator: GroupCoordinator,
    /// How many coordinators there have been.
    coordinators: u64,
    settings: GroupSettings,
    log: Vec<GroupRecord>,
    committed_end: usize,
    next_request: u64,
    in_flight: BTreeMap<RequestId, (usize, u64, Command)>,
    clients: Vec<Client>,
    checker: Checker,
}

fn group_id(index: usize) -> String {
    format!("group-{}", index % GROUPS)
}

impl World {
    fn new(seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8] = 1;
        let mut random = IdGenerator::from_seed(bytes);
        let settings = GroupSettings {
            group_initial_rebalance_delay_ms: 1_000,
            offsets_retention_minutes: i32::try_from(RETENTION_MS / 60_000).unwrap(),
            offsets_retention_check_interval_ms: 5_000,
            ..GroupSettings::default()
        };
        let clients = (0..GROUPS * CLIENTS_PER_GROUP).map(|index| Client::new(index, &mut random)).collect();
        let mut world = Self {
            coordinator: GroupCoordinator::new(
                settings.clone(),
                Arc::new(MetadataImage::default()),
                Now { timer_ms: 0, wall_ms: WALL_START_MS },
            ),
            random,
            now_ms: 0,
            wall_offset_ms: WALL_START_MS,
            events: BTreeMap::new(),
            next_event: 0,
            coordinators: 0,
            settings,
            log: Vec::new(),
            committed_end: 0,
            next_request: 0,
            in_flight: BTreeMap::new(),
            clients,
            checker: Checker::default(),
        };
        world.coordinator.finish_loading(world.now(), 0);
        for client in 0..GROUPS * CLIENTS_PER_GROUP {
            let start_ms = world.below(30_000);
            world.at(start_ms, Event::Wake { client });
        }
        world.at(1, Event::Trouble);
        world
    }

    fn now(&self) -> Now {
        Now { timer_ms: self.now_ms, wall_ms: self.wall_offset_ms + i64::try_from(self.now_ms).unwrap() }
    }

    fn below(&mut self, bound: usize) -> u64 {
        self.random.index_below(bound) as u64
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.random.index_below(bound) == 0
    }

    fn is_calm(&self) -> bool {
        self.now_ms >= TROUBLE_MS
    }

    fn at(&mut self, delay_ms: u64, event: Event) {
        self.events.insert((self.now_ms + delay_ms, self.next_event), event);
        self.next_event += 1;
    }

    fn run(&mut self) {
        while self.now_ms < TROUBLE_MS + CALM_MS {
            let event_ms = self.events.keys().next().map_or(u64::MAX, |(at_ms, _)| *at_ms);
            let timer_ms = self.coordinator.next_deadline_ms().unwrap_or(u64::MAX);
            self.now_ms = event_ms.min(timer_ms).max(self.now_ms);
            if timer_ms <= event_ms {
                self.coordinator.tick(self.now());
                self.carry_out();
            } else if let Some((_, event)) = self.events.pop_first() {
                self.happen(event);
            }
        }
        self.check_convergence();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Deliver { client, serial, mut command } => {
                // The broker draws it anew for every request, also for a repeated one.
                if let Command::JoinGroup(join) = &mut command {
                    join.member_uuid = self.random.uuid();
                }
                let request = RequestId(self.next_request);
                self.next_request += 1;
                self.in_flight.insert(request, (client, serial, command.clone()));
                self.coordinator.handle(self.now(), request, command);
                self.carry_out();
            }
            Event::Answer { client, serial, reply } => self.answer(client, serial, reply),
            Event::Wake { client } => self.wake(client),
            Event::Committed { coordinator, end_offset } if coordinator == self.coordinators => {
                self.committed_end = self.committed_end.max(end_offset);
                self.coordinator.handle_committed(i64::try_from(end_offset).unwrap());
                self.carry_out();
            }
            Event::Committed { .. } => {}
            Event::Trouble => self.make_trouble(),
        }
    }

    fn carry_out(&mut self) {
        while let Some(effect) = self.coordinator.poll_effect() {
            match effect {
                Effect::Append { base_offset, records, .. } => {
                    assert_eq!(usize::try_from(base_offset), Ok(self.log.len()), "records get the next offsets");
                    for record in records {
                        let decoded = GroupRecord::decode(Some(&record.key), record.value.as_deref());
                        let decoded = decoded.expect("it can be read").expect("it is of a known kind");
                        self.checker.logged(self.now().wall_ms, &decoded);
                        self.log.push(decoded);
                    }
                    let delay_ms = 1 + self.below(400);
                    let (coordinator, end_offset) = (self.coordinators, self.log.len());
                    self.at(delay_ms, Event::Committed { coordinator, end_offset });
                }
                Effect::Reply { request, reply } => self.send_reply(request, reply),
                Effect::ResolveRegexes { .. } => {
                    panic!("no client of the simulation subscribes by a regular expression")
                }
            }
        }
        self.coordinator.verify();
    }

    fn send_reply(&mut self, request: RequestId, reply: Reply) {
        let (client, serial, command) = self.in_flight.remove(&request).expect("one reply per request");
        self.checker.answered(&command, &reply);
        let is_lost = !self.is_calm() && self.one_in(60);
        if !is_lost {
            let delay_ms = self.below(DELAY_MS);
            self.at(delay_ms, Event::Answer { client, serial, reply });
        }
    }

    /// Commits come once and in order, as over one connection: a repeated one might rightly take an offset back.
    fn send(&mut self, client: usize, command: Command) {
        let serial = self.clients[client].begin_request(self.now_ms, &command);
        let is_ordered = matches!(command, Command::OffsetCommit(_) | Command::OffsetFetch(_));
        let delay_ms = self.below(DELAY_MS);
        if !self.is_calm() {
            if self.one_in(60) {
                return;
            }
            if !is_ordered && self.one_in(40) {
                let late_ms = delay_ms + self.below(30_000);
                self.at(late_ms, Event::Deliver { client, serial, command: command.clone() });
            }
        }
        self.at(delay_ms, Event::Deliver { client, serial, command });
    }

    fn wake(&mut self, client: usize) {
        if let Some(command) = self.clients[client].next_command(self.now_ms, &mut self.random) {
            self.send(client, command);
        }
        let again_ms = 200 + self.below(300);
        self.at(again_ms, Event::Wake { client });
    }

    fn answer(&mut self, client: usize, serial: u64, reply: Reply) {
        let now_ms = self.now_ms;
        let member = &mut self.clients[client];
        let Some(command) = member.end_request(serial) else { return };
        if let Some(next) = member.hear(now_ms, &command, reply) {
            self.send(client, next);
        }
    }

    fn make_trouble(&mut self) {
        if self.is_calm() {
            return;
        }
        let client = self.random.index_below(self.clients.len());
        match self.below(12) {
            0 | 1 => self.reload(),
            2 => self.wall_offset_ms += 30_000 - i64::try_from(self.below(60_000)).unwrap(),
            3 | 4 => self.clients[client].crash(),
            5 => {
                if let Some(command) = self.clients[client].leave() {
                    self.send(client, command);
                }
            }
            6 => {
                let ms = self.below(50_000);
                self.clients[client].pause(self.now_ms + ms);
            }
            7 => self.start_twin(client),
            _ => self.clients[client].start(),
        }
        let again_ms = 500 + self.below(6_000);
        self.at(again_ms, Event::Trouble);
    }

    /// A static member is started a second time while the first, unaware, goes on.
    fn start_twin(&mut self, client: usize) {
        let Some(instance_id) = self.clients[client].instance_id.clone() else { return };
        // The next client of the same group.
        let twin = (client + GROUPS) % self.clients.len();
        self.clients[twin].crash();
        self.clients[twin].start_as(instance_id);
    }

    /// The coordinator is lost with what was not durable; the next one reads the log.
    fn reload(&mut self) {
        let whole = self.load(self.log.len());
        let rebalancing = self.coordinator.rebalancing();
        let live = self.coordinator.durable(&rebalancing);
        assert_eq!(live, whole.durable(&rebalancing), "replaying the log gives the live state");
        let kept = self.committed_end + self.random.index_below(self.log.len() - self.committed_end + 1);
        self.log.truncate(kept);
        self.checker.reloaded(&self.log);
        self.committed_end = kept;
        self.coordinators += 1;
        let next = self.load(kept);
        let told = std::mem::replace(&mut self.coordinator, next).unload(ErrorCode::NotCoordinator);
        for (request, reply) in told {
            self.send_reply(request, reply);
        }
        assert!(self.in_flight.is_empty(), "everybody who waited is told: {:?}", self.in_flight);
        self.carry_out();
    }

    fn load(&self, end: usize) -> GroupCoordinator {
        let image = Arc::new(MetadataImage::default());
        let mut coordinator = GroupCoordinator::new(self.settings.clone(), image, self.now());
        for (offset, record) in (0..).zip(&self.log[..end]) {
            let encoded = record.encode().expect("it came from bytes");
            let replayed = coordinator.replay_encoded(offset, None, Some(&encoded.key), encoded.value.as_deref());
            replayed.expect("it can be read");
        }
        coordinator.finish_loading(self.now(), i64::try_from(end).unwrap());
        coordinator
    }

    /// After the calm every group that has clients is stable, and every partition is somebody's.
    fn check_convergence(&mut self) {
        for index in 0..GROUPS {
            let group_id = group_id(index);
            let alive: Vec<&Client> = self
                .clients
                .iter()
                .filter(|client| client.group_id == group_id && client.phase != Phase::Down)
                .collect();
            let mut owned: Vec<i32> = Vec::new();
            for client in &alive {
                assert_eq!(client.phase, Phase::Working, "{group_id} has not converged: {client:?}");
                owned.extend(client.positions.keys());
            }
            owned.sort_unstable();
            if !alive.is_empty() {
                assert_eq!(owned, (0..PARTITIONS).collect::<Vec<_>>(), "every partition of {group_id} has one owner");
            }
        }
    }
}

#[test]
fn many_clients_never_see_a_group_go_wrong() {
    // Rule: no partition has two owners in one generation, what is acknowledged lasts, offsets never go back, and calm brings order.
    let number_of = |variable: &str| std::env::var(variable).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number_of("WALSER_FIRST_SEED").unwrap_or(0);
    let mut commits = 0;
    let mut generations = 0;
    let seeds = number_of("WALSER_GROUP_SEEDS").unwrap_or(20);
    for seed in first..first + seeds {
        let outcome = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            world.run();
            (world.checker.commits, world.checker.generations())
        });
        match outcome {
            Ok((committed, begun)) => (commits, generations) = (commits + committed, generations + begun),
            Err(panic) => {
                println!(
                    "again: WALSER_FIRST_SEED={seed} WALSER_GROUP_SEEDS=1 cargo test -p walser-machine simulation"
                );
                std::panic::resume_unwind(panic);
            }
        }
    }
    assert!(commits > 300 * seeds && generations > 10 * seeds, "{commits} commits in {generations} generations");
}
