//! The run itself: send, decode, mask, compare, and keep track of what the brokers hold.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use walser_protocol::api::SERVED;
use walser_protocol::messages::api_versions::ApiVersionsRequest;
use walser_protocol::messages::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use walser_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use walser_protocol::messages::find_coordinator::{FindCoordinatorRequest, FindCoordinatorResponse};
use walser_protocol::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use walser_protocol::messages::list_groups::{ListGroupsRequest, ListGroupsResponse};
use walser_protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use walser_protocol::messages::metadata::{MetadataRequest, MetadataResponse};
use walser_protocol::{ApiKey, Uuid};

use super::answers;
use super::generate::{self, Effect, Expect, Request};
use super::masks::{self, Mask};
use super::tree::Tree;
use super::world::{Pair, Session, Topic, World};
use crate::raw_client::{ClientError, RawClient, request_frame};
use crate::topic;

/// Kafka lets a change be seen a moment after it has answered it; a question that changes nothing is asked again so long.
const SETTLE: Duration = Duration::from_secs(60);
/// The same for one answer that differs.
const ASK_AGAIN: Duration = Duration::from_secs(20);
/// A key that has differed so often differs for good, and is not asked again.
const PATIENCE: u64 = 5;
/// Long enough for a virtual machine that stands still for a minute, which is nothing a broker did.
const ANSWER_WAIT: Duration = Duration::from_secs(150);
const SETTLE_PAUSE: Duration = Duration::from_millis(10);
/// What the ballast grows by.
const BALLAST: [u8; 8 << 10] = [0; 8 << 10];
/// Records carry times up to a minute and a half later than this before now.
const RECORDS_BEFORE_NOW_MS: i64 = 600_000;
const RUN_MS_MAX: i64 = 3 * 3_600_000;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Answer(Tree),
    /// An answer to what was no request.
    Some,
    /// Nothing, and the connection goes on.
    Silence,
    Closed,
    Broken(String),
}

impl Outcome {
    fn tree(&self) -> Option<&Tree> {
        match self {
            Self::Answer(tree) => Some(tree),
            Self::Some | Self::Silence | Self::Closed | Self::Broken(_) => None,
        }
    }
}

/// What the run found about one key.
#[derive(Debug, Default)]
pub struct Tally {
    pub requests: u64,
    pub differing: u64,
    pub first: Vec<String>,
    /// Time spent, for whoever wants the run to be shorter.
    pub spent: Duration,
}

pub struct Differential {
    addresses: Pair<String>,
    clients: Pair<Option<RawClient>>,
    world: World,
    pub masks: Vec<Mask>,
    /// When not empty: only these keys are asked.
    pub only: Vec<ApiKey>,
    /// Every version of every key that was asked for.
    asked: BTreeSet<(ApiKey, i16)>,
    /// How often configs had to settle.
    settled: u32,
    pub tallies: BTreeMap<String, Tally>,
    /// Every difference, with the request.
    pub log: String,
    /// On the brokers' disk; grows between their answers about its free space, so that these differ.
    pub ballast: Option<File>,
}

impl Differential {
    /// `addresses`: the oracle, then the broker under test.
    pub fn new(addresses: Pair<String>) -> Result<Self, ClientError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?.as_millis();
        let now = i64::try_from(now).map_err(io::Error::other)?;
        let mut world = World {
            base_timestamp: now - RECORDS_BEFORE_NOW_MS,
            clock: now - 60_000..now + RUN_MS_MAX,
            ..World::default()
        };
        for side in [0, 1] {
            let port = addresses[side].rsplit_once(':').and_then(|(_, port)| port.parse().ok());
            world.ports[side] = port.ok_or_else(|| io::Error::other(format!("{} has no port", addresses[side])))?;
            let mut client = connect(&addresses[side])?;
            let answer = client.call(
                ApiKey::Metadata,
                12,
                &MetadataRequest { topics: Some(Vec::new()), ..MetadataRequest::default() },
            )?;
            let metadata = MetadataResponse::decode(&mut answer.reader(), 12)?;
            world.cluster_ids[side] = metadata.cluster_id.unwrap_or_default().to_owned();
        }
        Ok(Self {
            addresses,
            clients: [None, None],
            world,
            masks: masks::all(),
            only: Vec::new(),
            asked: BTreeSet::new(),
            settled: 0,
            tallies: BTreeMap::new(),
            log: String::new(),
            ballast: None,
        })
    }

    /// Sends `count` requests to both.
    pub fn run(&mut self, seed: u64, count: u64) -> Result<(), ClientError> {
        self.warm_up()?;
        self.warm_up_groups()?;
        self.learn_topics()?;
        let mut sent = 0;
        for step in 0.. {
            if sent == count {
                return Ok(());
            }
            let oracle = generate::request(seed, step, 0, &self.world);
            let tested = generate::request(seed, step, 1, &self.world);
            if let (Some(oracle), Some(tested)) = (oracle, tested)
                && (self.only.is_empty() || oracle.key.is_some_and(|key| self.only.contains(&key)))
            {
                sent += 1;
                self.asked.extend(oracle.key.map(|key| (key, oracle.version)));
                self.step(Some(step), &[oracle, tested])?;
            }
        }
        Ok(())
    }

    /// Versions that are served and were never asked for.
    pub fn never_asked(&self) -> Vec<String> {
        SERVED
            .iter()
            .filter(|served| self.only.is_empty() || self.only.contains(&served.key))
            .flat_map(|served| (served.version_min..=served.version_max).map(|version| (served.key, version)))
            .filter(|asked| !self.asked.contains(asked))
            .map(|(key, version)| format!("{key} version {version}"))
            .collect()
    }

    /// Kafka has no producer ids to give until its controller has given it some.
    fn warm_up(&mut self) -> Result<(), ClientError> {
        for side in [0, 1] {
            let deadline = Instant::now() + SETTLE;
            loop {
                let request = InitProducerIdRequest {
                    transactional_id: None,
                    transaction_timeout_ms: 60_000,
                    ..InitProducerIdRequest::default()
                };
                let answer = self.call(side, ApiKey::InitProducerId, 4, &request)?;
                let ready = InitProducerIdResponse::decode(&mut answer.reader(), 4)?.error_code == 0;
                if ready || Instant::now() > deadline {
                    break;
                }
                thread::sleep(SETTLE_PAUSE);
            }
        }
        Ok(())
    }

    /// Kafka makes the topic of groups when the first coordinator is looked for, and has its coordinators a moment later.
    fn warm_up_groups(&mut self) -> Result<(), ClientError> {
        for side in [0, 1] {
            let deadline = Instant::now() + SETTLE;
            loop {
                let request =
                    FindCoordinatorRequest { coordinator_keys: vec!["g0"], ..FindCoordinatorRequest::default() };
                let answer = self.call(side, ApiKey::FindCoordinator, 4, &request)?;
                let found = FindCoordinatorResponse::decode(&mut answer.reader(), 4)?;
                let is_found = found.coordinators.iter().all(|coordinator| coordinator.error_code == 0);
                let answer = self.call(side, ApiKey::ListGroups, 4, &ListGroupsRequest::default())?;
                let is_loaded = ListGroupsResponse::decode(&mut answer.reader(), 4)?.error_code == 0;
                if (is_found && is_loaded) || Instant::now() > deadline {
                    break;
                }
                thread::sleep(SETTLE_PAUSE);
            }
        }
        let (oracle, tested) = (self.topics(0, true)?, self.topics(1, true)?);
        for (name, partition_count, id) in oracle {
            if let Some((_, _, other)) = tested.iter().find(|(other, _, _)| *other == name) {
                let topic = Topic { name: Box::leak(name.into_boxed_str()), partition_count, ids: [id, *other] };
                self.world.internal.push(topic);
            }
        }
        Ok(())
    }

    /// `step`: none for a question of the run's own.
    fn step(&mut self, step: Option<u64>, requests: &Pair<Request>) -> Result<(), ClientError> {
        let name = requests[0].key.map_or_else(|| "unserved".to_owned(), |key| key.name().to_owned());
        let started = Instant::now();
        let deadline = started + ASK_AGAIN;
        // Asking again is no other question when nothing changes by it.
        let patient = self.tallies.get(&name).is_none_or(|tally| tally.differing < PATIENCE);
        let repeatable =
            patient && requests[0].effects.is_empty() && requests[0].expect == Expect::Answer && reads(requests[0].key);
        let mut before = self.masks.clone();
        let (outcomes, differences) = loop {
            let oracle = self.exchange(0, &requests[0])?;
            if let (Some(ApiKey::DescribeLogDirs), Some(ballast)) = (requests[0].key, &mut self.ballast) {
                ballast.write_all(&BALLAST)?;
            }
            let outcomes = [oracle, self.exchange(1, &requests[1])?];
            self.learn_ids(&requests[0], &outcomes);
            let differences = self.compare(&name, &outcomes);
            let closed = outcomes.contains(&Outcome::Closed);
            if differences.is_empty() || closed || !repeatable || Instant::now() > deadline {
                break (outcomes, differences);
            }
            // A mask that an answer of a moment later did not need was not needed.
            self.masks.clone_from(&before);
            thread::sleep(SETTLE_PAUSE);
        };
        before.clear();
        let tally = self.tallies.entry(name).or_default();
        tally.requests += 1;
        tally.spent += started.elapsed();
        if !differences.is_empty() {
            tally.differing += 1;
            let step = step.map_or_else(|| "afterwards".to_owned(), |step| format!("step {step}"));
            let text = format!("{step}: {}", differences.join("; "));
            if tally.first.len() < 3 {
                tally.first.push(text.clone());
            }
            let whole = writeln!(
                self.log,
                "{text}\n  request {}\n  oracle {:?}\n  tested {:?}\n",
                requests[0].text,
                Shown(&outcomes[0]),
                Shown(&outcomes[1])
            );
            whole.map_err(io::Error::other)?;
        }
        self.apply_effects(&requests[0].effects, &outcomes)
    }

    fn compare(&mut self, name: &str, outcomes: &Pair<Outcome>) -> Vec<String> {
        let mut differences = Vec::new();
        if let (Outcome::Answer(oracle), Outcome::Answer(tested)) = (&outcomes[0], &outcomes[1]) {
            let (mut oracle, mut tested) = (oracle.clone(), tested.clone());
            masks::apply(&mut self.masks, &self.world, name, &mut oracle, &mut tested);
            oracle.differences(&tested, name, &mut differences);
        } else if outcomes[0] != outcomes[1] {
            differences.push(format!("{:?} / {:?}", Shown(&outcomes[0]), Shown(&outcomes[1])));
        }
        differences
    }

    fn client(&mut self, side: usize) -> Result<&mut RawClient, ClientError> {
        if self.clients[side].is_none() {
            self.clients[side] = Some(connect(&self.addresses[side])?);
        }
        self.clients[side].as_mut().ok_or(ClientError::Closed)
    }

    fn exchange(&mut self, side: usize, request: &Request) -> Result<Outcome, ClientError> {
        let outcome = match self.client(side)?.send_raw(&request.frame) {
            Ok(()) => self.outcome(side, request),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(outcome) => Ok(outcome),
            Err(ClientError::Closed) => {
                self.clients[side] = None;
                Ok(Outcome::Closed)
            }
            Err(error) => {
                self.clients[side] = None;
                Ok(Outcome::Broken(error.to_string()))
            }
        }
    }

    fn outcome(&mut self, side: usize, request: &Request) -> Result<Outcome, ClientError> {
        let client = self.client(side)?;
        match (request.expect, request.key) {
            (Expect::Answer, Some(key)) => {
                let answer = client.receive(key, request.version, 1)?;
                Ok(Outcome::Answer(answers::decode(key, request.version, answer.bytes())?))
            }
            (Expect::Silence, _) => {
                client.send_raw(&request_frame(ApiKey::ApiVersions, 0, 2, &ApiVersionsRequest::default())?)?;
                client.receive(ApiKey::ApiVersions, 0, 2)?;
                Ok(Outcome::Silence)
            }
            (Expect::Anything | Expect::Answer, _) => {
                client.receive_frame()?;
                Ok(Outcome::Some)
            }
        }
    }

    /// Ids are learnt before the answers that hold them are compared.
    fn learn_ids(&mut self, request: &Request, outcomes: &Pair<Outcome>) {
        let number = |side: usize, field: &str| match outcomes[side].tree()?.field(field)? {
            Tree::Value(text) => text.parse::<i64>().ok(),
            Tree::List(_) | Tree::Fields(_) => None,
        };
        for effect in &request.effects {
            match effect {
                Effect::Producer => {
                    if let (Some(one), Some(other)) = (number(0, "producer_id"), number(1, "producer_id"))
                        && one >= 0
                        && other >= 0
                    {
                        self.world.producers.push([one, other]);
                    }
                }
                Effect::NewSession => {
                    if let (Some(one), Some(other)) = (number(0, "session_id"), number(1, "session_id"))
                        && one != 0
                        && other != 0
                    {
                        let ids = [one, other].map(|id| i32::try_from(id).unwrap_or_default());
                        self.world.sessions.push(Session { ids, next_epoch: 1, version: request.version });
                    }
                }
                _ => {}
            }
        }
        if request.key == Some(ApiKey::CreateTopics) {
            // Their ids are in the answer, and the world learns of the topics only afterwards.
            self.learn_created(outcomes, request.effects.contains(&Effect::Topics));
        }
    }

    /// `real`: the topics are there, and not only validated.
    fn learn_created(&mut self, outcomes: &Pair<Outcome>, real: bool) {
        let topics = |side: usize| match outcomes[side].tree().and_then(|tree| tree.field("topics")) {
            Some(Tree::List(topics)) => topics.as_slice(),
            _ => &[],
        };
        let text = |tree: &Tree, field: &str| match tree.field(field) {
            Some(Tree::Value(text)) => text.trim_matches('"').to_owned(),
            _ => String::new(),
        };
        // The two brokers list them in orders of their own.
        for one in topics(0) {
            let made = |topic: &&Tree| {
                topic.field("name") == one.field("name") && topic.field("error_code") == one.field("error_code")
            };
            let Some(other) = topics(1).iter().find(made) else { continue };
            let ids = [one, other].map(|topic| text(topic, "topic_id").parse().unwrap_or(Uuid::ZERO));
            if ids.iter().any(|id| id.is_zero()) {
                continue;
            }
            if real {
                let name = Box::leak(text(one, "name").into_boxed_str());
                self.world.topics.retain(|topic| topic.name != name);
                self.world.topics.push(Topic { name, partition_count: 1, ids });
            } else {
                self.world.deleted.push(ids);
            }
        }
    }

    fn apply_effects(&mut self, effects: &[Effect], outcomes: &Pair<Outcome>) -> Result<(), ClientError> {
        let fine = outcomes.iter().all(|outcome| outcome.tree().is_some_and(no_error));
        for effect in effects {
            match effect {
                Effect::Topics => self.learn_topics()?,
                Effect::Configs => self.compare_configs()?,
                Effect::Sequence { producer, topic, partition, next } if fine => {
                    self.world.sequences.insert((*producer, *topic, *partition), *next);
                }
                Effect::SessionUsed { session } => self.session_used(*session, outcomes),
                Effect::LogStarts => self.compare_log_starts(outcomes)?,
                Effect::Sequence { .. } | Effect::Producer | Effect::NewSession => {}
            }
        }
        Ok(())
    }

    fn session_used(&mut self, session: usize, outcomes: &Pair<Outcome>) {
        let taken =
            |outcome: &Outcome| outcome.tree().and_then(|tree| tree.field("error_code")) == Some(&Tree::value(0));
        if outcomes.iter().all(taken)
            && let Some(known) = self.world.sessions.get_mut(session)
        {
            known.next_epoch += 1;
        }
    }

    /// Waits until both name the same topics and every partition's leader answers.
    fn learn_topics(&mut self) -> Result<(), ClientError> {
        // Brokers that once did not come to hold the same do not do so later.
        let has_differed = self.tallies.get("topics").is_some_and(|tally| tally.differing > 0);
        let deadline = Instant::now() + if has_differed { Duration::ZERO } else { SETTLE };
        let (mut oracle, mut tested) = loop {
            let (oracle, tested) = (self.topics(0, false)?, self.topics(1, false)?);
            if shape(&oracle) == shape(&tested) || Instant::now() > deadline {
                break (oracle, tested);
            }
            thread::sleep(SETTLE_PAUSE);
        };
        if shape(&oracle) != shape(&tested) {
            let tally = self.tallies.entry("topics".to_owned()).or_default();
            tally.differing += 1;
            tally.first.push(format!("the brokers hold {:?} / {:?}", shape(&oracle), shape(&tested)));
            oracle.retain(|topic| tested.iter().any(|other| other.0 == topic.0));
            tested.retain(|topic| oracle.iter().any(|other| other.0 == topic.0));
        }
        let new: Vec<Topic> = oracle
            .iter()
            .zip(&tested)
            .map(|(one, other)| Topic {
                name: Box::leak(one.0.clone().into_boxed_str()),
                partition_count: one.1.min(other.1),
                ids: [one.2, other.2],
            })
            .collect();
        for gone in std::mem::replace(&mut self.world.topics, new) {
            if !self.world.topics.iter().any(|topic| topic.ids == gone.ids) {
                self.world.deleted.push(gone.ids);
            }
        }
        for side in [0, 1] {
            self.wait_for_leaders(side)?;
        }
        Ok(())
    }

    /// Name, partitions and id of every topic, by name: of clients, or of brokers.
    fn topics(&mut self, side: usize, is_internal: bool) -> Result<Vec<(String, i32, Uuid)>, ClientError> {
        let answer =
            self.call(side, ApiKey::Metadata, 12, &MetadataRequest { topics: None, ..MetadataRequest::default() })?;
        let metadata = MetadataResponse::decode(&mut answer.reader(), 12)?;
        let mut topics: Vec<_> = metadata
            .topics
            .iter()
            .filter(|topic| topic.is_internal == is_internal)
            .map(|topic| {
                let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
                (topic.name.unwrap_or_default().to_owned(), count, topic.topic_id)
            })
            .collect();
        topics.sort();
        Ok(topics)
    }

    fn wait_for_leaders(&mut self, side: usize) -> Result<(), ClientError> {
        let topics = self.world.topics.clone();
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics: topics
                .iter()
                .map(|topic| ListOffsetsTopic {
                    name: topic.name,
                    partitions: (0..topic.partition_count)
                        .map(|partition_index| ListOffsetsPartition {
                            partition_index,
                            current_leader_epoch: -1,
                            timestamp: -1,
                        })
                        .collect(),
                })
                .collect(),
            ..ListOffsetsRequest::default()
        };
        let deadline = Instant::now() + SETTLE;
        loop {
            let answer = self.call(side, ApiKey::ListOffsets, 7, &request)?;
            let offsets = ListOffsetsResponse::decode(&mut answer.reader(), 7)?;
            let ready =
                offsets.topics.iter().flat_map(|topic| &topic.partitions).all(|partition| partition.error_code == 0);
            if ready || Instant::now() > deadline {
                return Ok(());
            }
            thread::sleep(SETTLE_PAUSE);
        }
    }

    fn call(
        &mut self,
        side: usize,
        key: ApiKey,
        version: i16,
        body: &dyn walser_protocol::messages::Body,
    ) -> Result<crate::raw_client::ResponseBody, ClientError> {
        let answer = self.client(side)?.call(key, version, body);
        if answer.is_err() {
            self.clients[side] = None;
        }
        answer
    }

    /// After a change: all configs of all topics, until both brokers say the same.
    fn compare_configs(&mut self) -> Result<(), ClientError> {
        let topics: Vec<&'static str> = self.world.topics.iter().map(|topic| topic.name).collect();
        let resources = topics
            .into_iter()
            .map(|resource_name| DescribeConfigsResource { resource_type: 2, resource_name, configuration_keys: None })
            .collect();
        let body = DescribeConfigsRequest { resources, include_synonyms: true, include_documentation: false };
        let frame = request_frame(ApiKey::DescribeConfigs, 4, 1, &body)?;
        let text = "configs of all topics after a change".to_owned();
        self.ask_both(ApiKey::DescribeConfigs, 4, frame, text)?;
        self.settle_configs()
    }

    fn settle_configs(&mut self) -> Result<(), ClientError> {
        self.settled += 1;
        let number = self.settled;
        for side in [0, 1] {
            let settled = topic::settle_configs(self.client(side)?, number);
            if settled.is_err() {
                self.clients[side] = None;
            }
            settled?;
        }
        Ok(())
    }

    /// After records were deleted: where the partitions begin and end, and what is read there and right before.
    fn compare_log_starts(&mut self, outcomes: &Pair<Outcome>) -> Result<(), ClientError> {
        let Some(answer) = outcomes[0].tree() else { return Ok(()) };
        for (name, partition, start) in log_starts(answer) {
            for timestamp in [-2, -1, -3] {
                let wish = ListOffsetsPartition { partition_index: partition, current_leader_epoch: -1, timestamp };
                let topics = vec![ListOffsetsTopic { name: &name, partitions: vec![wish] }];
                let body = ListOffsetsRequest { replica_id: -1, topics, ..ListOffsetsRequest::default() };
                let frame = request_frame(ApiKey::ListOffsets, 8, 1, &body)?;
                self.ask_both(
                    ApiKey::ListOffsets,
                    8,
                    frame,
                    format!("{name}-{partition}, {timestamp}, of the new log start"),
                )?;
            }
            for fetch_offset in [start, start - 1] {
                let wish = FetchPartition {
                    partition,
                    fetch_offset,
                    partition_max_bytes: 1 << 20,
                    ..FetchPartition::default()
                };
                let topics = vec![FetchTopic { topic: &name, partitions: vec![wish], ..FetchTopic::default() }];
                let body = FetchRequest {
                    replica_id: -1,
                    max_bytes: 1 << 20,
                    session_epoch: -1,
                    topics,
                    ..FetchRequest::default()
                };
                let frame = request_frame(ApiKey::Fetch, 12, 1, &body)?;
                self.ask_both(
                    ApiKey::Fetch,
                    12,
                    frame,
                    format!("{name}-{partition} from {fetch_offset}, at the new log start"),
                )?;
            }
        }
        Ok(())
    }

    /// A question of the run's own, the same for both.
    fn ask_both(&mut self, key: ApiKey, version: i16, frame: BytesMut, text: String) -> Result<(), ClientError> {
        let text = format!("v{version} {text}");
        let request = Request { key: Some(key), version, frame, text, expect: Expect::Answer, effects: Vec::new() };
        self.step(None, &[request.clone(), request])
    }
}

/// Topic, partition and new log start of what DeleteRecords has not refused.
fn log_starts(answer: &Tree) -> Vec<(String, i32, i64)> {
    let list = |tree: &Tree, field: &str| match tree.field(field) {
        Some(Tree::List(elements)) => elements.clone(),
        _ => Vec::new(),
    };
    let number = |tree: &Tree, field: &str| match tree.field(field) {
        Some(Tree::Value(text)) => text.parse::<i64>().ok(),
        _ => None,
    };
    let mut found = Vec::new();
    for topic in list(answer, "topics") {
        let Some(Tree::Value(name)) = topic.field("name") else { continue };
        for partition in list(&topic, "partitions") {
            let index = number(&partition, "partition_index").and_then(|index| i32::try_from(index).ok());
            if let (Some(index), Some(start), Some(0)) =
                (index, number(&partition, "low_watermark"), number(&partition, "error_code"))
            {
                found.push((name.trim_matches('"').to_owned(), index, start));
            }
        }
    }
    found
}

fn connect(address: &str) -> Result<RawClient, ClientError> {
    let client = RawClient::connect(address)?;
    client.stream().set_read_timeout(Some(ANSWER_WAIT)).map_err(ClientError::Socket)?;
    Ok(client)
}

type Shape<'a> = Vec<(&'a str, i32)>;

fn shape(topics: &[(String, i32, Uuid)]) -> Shape<'_> {
    topics.iter().map(|(name, count, _)| (name.as_str(), *count)).collect()
}

fn reads(key: Option<ApiKey>) -> bool {
    !matches!(
        key,
        Some(
            ApiKey::Produce
                | ApiKey::CreateTopics
                | ApiKey::DeleteTopics
                | ApiKey::DeleteRecords
                | ApiKey::CreatePartitions
                | ApiKey::AlterConfigs
                | ApiKey::IncrementalAlterConfigs
                | ApiKey::InitProducerId
                | ApiKey::OffsetCommit
                | ApiKey::OffsetDelete
                | ApiKey::JoinGroup
                | ApiKey::LeaveGroup
                | ApiKey::DeleteGroups
                | ApiKey::ConsumerGroupHeartbeat
        )
    )
}

/// No `error_code` anywhere but 0.
fn no_error(tree: &Tree) -> bool {
    match tree {
        Tree::Value(_) => true,
        Tree::List(elements) => elements.iter().all(no_error),
        Tree::Fields(fields) => fields
            .iter()
            .all(|(name, value)| if name == "error_code" { *value == Tree::value(0) } else { no_error(value) }),
    }
}

/// An outcome as a report shows it.
struct Shown<'a>(&'a Outcome);

impl std::fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Outcome::Answer(tree) => write!(f, "{tree}"),
            Outcome::Some => f.write_str("some answer"),
            Outcome::Silence => f.write_str("silence"),
            Outcome::Closed => f.write_str("connection closed"),
            Outcome::Broken(why) => write!(f, "broken: {why}"),
        }
    }
}
