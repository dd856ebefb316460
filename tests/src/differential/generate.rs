//! Makes up requests: valid ones, edges, and what a broker has to refuse. Every choice comes from a seeded generator, and a
//! request is made twice, once for each broker, differing only in the ids that the brokers gave out themselves.

mod admin;
mod configs;
mod groups;
mod hostile;
mod reads;
mod records;

use std::fmt::Debug;

use bytes::BytesMut;
use walser_protocol::header::encode_request;
use walser_protocol::messages::Body;
use walser_protocol::{ApiKey, Uuid};

use super::prng::Prng;
use super::world::{Topic, World};

/// What a request does to the world when both brokers have taken it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Topics may have come, gone or grown.
    Topics,
    /// Configs may have changed.
    Configs,
    /// The next sequence of a producer in a partition.
    Sequence { producer: usize, topic: Uuid, partition: i32, next: i32 },
    /// The answer names a new producer id.
    Producer,
    /// The answer names a new fetch session.
    NewSession,
    /// A session's epoch has moved on.
    SessionUsed { session: usize },
    /// Partitions may begin later.
    LogStarts,
}

/// What comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    Answer,
    /// Nothing, or the end of the connection; a request behind it tells which.
    Silence,
    /// The frame is no request: an answer of some kind or the end of the connection.
    Anything,
}

#[derive(Clone, Debug)]
pub struct Request {
    /// `None` for bytes that are no request of a key served here.
    pub key: Option<ApiKey>,
    pub version: i16,
    pub frame: BytesMut,
    pub text: String,
    pub expect: Expect,
    pub effects: Vec<Effect>,
}

/// One request in the making, for one of the two brokers.
pub struct Case<'w> {
    pub rng: Prng,
    pub side: usize,
    pub world: &'w World,
    pub version: i16,
    pub effects: Vec<Effect>,
    pub expect: Expect,
}

/// How often each key comes, in parts of them all.
const WEIGHTS: [(Option<ApiKey>, u64); 35] = [
    (Some(ApiKey::Produce), 190),
    (Some(ApiKey::Fetch), 180),
    (Some(ApiKey::ListOffsets), 80),
    (Some(ApiKey::Metadata), 70),
    (Some(ApiKey::OffsetCommit), 60),
    (Some(ApiKey::OffsetFetch), 60),
    (Some(ApiKey::FindCoordinator), 25),
    (Some(ApiKey::JoinGroup), 40),
    (Some(ApiKey::Heartbeat), 20),
    (Some(ApiKey::LeaveGroup), 25),
    (Some(ApiKey::SyncGroup), 25),
    (Some(ApiKey::DescribeGroups), 30),
    (Some(ApiKey::ListGroups), 25),
    (Some(ApiKey::ApiVersions), 30),
    (Some(ApiKey::CreateTopics), 70),
    (Some(ApiKey::DeleteTopics), 25),
    (Some(ApiKey::DeleteRecords), 30),
    (Some(ApiKey::InitProducerId), 30),
    (Some(ApiKey::OffsetForLeaderEpoch), 40),
    (Some(ApiKey::DescribeConfigs), 50),
    (Some(ApiKey::AlterConfigs), 30),
    (Some(ApiKey::AlterReplicaLogDirs), 15),
    (Some(ApiKey::DescribeLogDirs), 20),
    (Some(ApiKey::CreatePartitions), 30),
    (Some(ApiKey::DeleteGroups), 25),
    (Some(ApiKey::IncrementalAlterConfigs), 50),
    (Some(ApiKey::OffsetDelete), 20),
    (Some(ApiKey::DescribeQuorum), 15),
    (Some(ApiKey::DescribeCluster), 20),
    (Some(ApiKey::DescribeProducers), 25),
    (Some(ApiKey::ConsumerGroupHeartbeat), 40),
    (Some(ApiKey::ConsumerGroupDescribe), 15),
    (Some(ApiKey::ListConfigResources), 15),
    (Some(ApiKey::DescribeTopicPartitions), 30),
    (None, 30),
];

/// The request of step `step` for one side; `None` when the choices made have no encoding in the version chosen.
pub fn request(seed: u64, step: u64, side: usize, world: &World) -> Option<Request> {
    let mut rng = Prng::new(seed ^ step.wrapping_mul(0xd134_2543_de82_ef95));
    let total: u64 = WEIGHTS.iter().map(|(_, weight)| weight).sum();
    let mut ticket = rng.below(total);
    let key = WEIGHTS.iter().find(|(_, weight)| {
        let here = ticket < *weight;
        ticket = ticket.saturating_sub(*weight);
        here
    });
    let Some(key) = key.and_then(|(key, _)| *key) else {
        return Some(hostile::request(&mut rng, world, side));
    };
    let served = key.served()?;
    let version = i16::try_from(rng.between(served.version_min.into(), served.version_max.into())).ok()?;
    let mut case = Case { rng, side, world, version, effects: Vec::new(), expect: Expect::Answer };
    case.generate(key)
}

impl Case<'_> {
    fn generate(&mut self, key: ApiKey) -> Option<Request> {
        match key {
            ApiKey::Produce => self.produce(),
            ApiKey::Fetch => self.fetch(),
            ApiKey::ListOffsets => self.list_offsets(),
            ApiKey::Metadata => self.metadata(),
            ApiKey::OffsetCommit => self.offset_commit(),
            ApiKey::OffsetFetch => self.offset_fetch(),
            ApiKey::FindCoordinator => self.find_coordinator(),
            ApiKey::JoinGroup => self.join_group(),
            ApiKey::Heartbeat => self.heartbeat(),
            ApiKey::LeaveGroup => self.leave_group(),
            ApiKey::SyncGroup => self.sync_group(),
            ApiKey::DescribeGroups => self.describe_groups(),
            ApiKey::ListGroups => self.list_groups(),
            ApiKey::ApiVersions => self.api_versions(),
            ApiKey::CreateTopics => self.create_topics(),
            ApiKey::DeleteTopics => self.delete_topics(),
            ApiKey::DeleteRecords => self.delete_records(),
            ApiKey::InitProducerId => self.init_producer_id(),
            ApiKey::OffsetForLeaderEpoch => self.offset_for_leader_epoch(),
            ApiKey::DescribeConfigs => self.describe_configs(),
            ApiKey::AlterConfigs => self.alter_configs(),
            ApiKey::AlterReplicaLogDirs => self.alter_replica_log_dirs(),
            ApiKey::DescribeLogDirs => self.describe_log_dirs(),
            ApiKey::CreatePartitions => self.create_partitions(),
            ApiKey::DeleteGroups => self.delete_groups(),
            ApiKey::IncrementalAlterConfigs => self.incremental_alter_configs(),
            ApiKey::OffsetDelete => self.offset_delete(),
            ApiKey::DescribeQuorum => self.describe_quorum(),
            ApiKey::DescribeCluster => self.describe_cluster(),
            ApiKey::DescribeProducers => self.describe_producers(),
            ApiKey::ConsumerGroupHeartbeat => self.consumer_group_heartbeat(),
            ApiKey::ConsumerGroupDescribe => self.consumer_group_describe(),
            ApiKey::ListConfigResources => self.list_config_resources(),
            ApiKey::DescribeTopicPartitions => self.describe_topic_partitions(),
            _ => None,
        }
    }

    fn finish(&mut self, key: ApiKey, body: &(impl Body + Debug)) -> Option<Request> {
        // A value that the version has no field for is a choice that came to nothing.
        let frame = encode_request(key, self.version, 1, Some("walser-tests"), body).ok()?;
        let text = format!("v{} {body:?}", self.version);
        let effects = std::mem::take(&mut self.effects);
        Some(Request { key: Some(key), version: self.version, frame, text, expect: self.expect, effects })
    }

    /// A topic that is there, when there is one.
    fn topic(&mut self) -> Option<&Topic> {
        if self.world.topics.is_empty() {
            return None;
        }
        let world = self.world;
        Some(self.rng.pick(&world.topics))
    }

    /// Mostly the name of a topic that is there.
    fn topic_name(&mut self) -> &'static str {
        match (self.rng.below(20), self.topic().map(|topic| topic.name)) {
            (0, _) => "",
            (1, _) => "bad/name",
            (2, _) => leak("n".repeat(250)),
            (3, _) => "__not_there",
            (4 | 5, _) | (_, None) => "nowhere",
            (_, Some(name)) => name,
        }
    }

    /// Mostly the id of a topic that is there.
    fn topic_id(&mut self) -> Uuid {
        let side = self.side;
        match (self.rng.below(20), self.topic().map(|topic| topic.ids[side])) {
            (0, _) => Uuid::ZERO,
            (1 | 2, _) | (_, None) => Uuid::from_bytes([7; 16]),
            (3, _) if !self.world.deleted.is_empty() => {
                let world = self.world;
                self.rng.pick(&world.deleted)[side]
            }
            (_, Some(id)) => id,
        }
    }

    /// Name and id of one topic: the two agree, or neither is known.
    fn topic_both(&mut self) -> (&'static str, Uuid) {
        let side = self.side;
        if self.rng.chance(90)
            && let Some(topic) = self.topic()
        {
            return (topic.name, topic.ids[side]);
        }
        (self.topic_name(), self.topic_id())
    }

    /// Mostly a partition that topics have.
    fn partition(&mut self) -> i32 {
        match self.rng.below(20) {
            0 => -1,
            1 => 100,
            2 => i32::MAX,
            3..8 => i32::try_from(self.rng.below(6)).unwrap_or(0),
            _ => i32::try_from(self.rng.below(2)).unwrap_or(0),
        }
    }

    /// -1 for "not said", the epoch of every partition here, or one that is wrong.
    fn leader_epoch(&mut self) -> i32 {
        *self.rng.pick(&[-1, -1, -1, 0, 0, 0, 1, 7, -2])
    }

    fn offset(&mut self) -> i64 {
        match self.rng.below(12) {
            0 => -1,
            1 => i64::MAX,
            2 => 1_000_000,
            3 => -7,
            _ => self.rng.between(0, 30),
        }
    }

    /// One to three things, rarely none.
    fn some<T>(&mut self, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = if self.rng.chance(3) { 0 } else { 1 + self.rng.below(3) };
        (0..count).map(|_| make(self)).collect()
    }
}

/// Messages borrow their strings; a run makes a few megabytes of them.
fn leak(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use walser_protocol::api::SERVED;

    use super::*;

    #[test]
    fn every_served_version_is_made() {
        // Rule: what is served is asked for, in every version of it, and rarely enough is rare enough for a short run.
        let mut world = World::default();
        world.topics.push(Topic { name: "t0", partition_count: 1, ids: [Uuid::from_bytes([1; 16]); 2] });
        let made: BTreeSet<(ApiKey, i16)> = (0..6000)
            .filter_map(|step| request(1, step, 0, &world))
            .filter_map(|made| Some((made.key?, made.version)))
            .collect();
        for served in SERVED {
            for version in served.version_min..=served.version_max {
                assert!(made.contains(&(served.key, version)), "{} version {version}", served.key);
            }
        }
    }
}
