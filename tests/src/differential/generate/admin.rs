//! Topics made, enlarged and deleted.

use walser_protocol::messages::create_partitions::{
    CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic,
};
use walser_protocol::messages::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};
use walser_protocol::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use walser_protocol::{ApiKey, Uuid};

use super::{Case, Effect, Request, leak};

/// Few names, so that they are taken, deleted and taken again.
const NAMES: [&str; 14] =
    ["t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9", "with.dot", "with_dot", "with-dash", "UPPER"];

impl Case<'_> {
    pub(super) fn create_topics(&mut self) -> Option<Request> {
        let topics = self.some(Self::creatable_topic);
        let validate_only = self.rng.chance(25);
        if !validate_only {
            self.effects.push(Effect::Topics);
        }
        let timeout_ms = *self.rng.pick(&[30_000, 30_000, 30_000, 60_000]);
        self.finish(ApiKey::CreateTopics, &CreateTopicsRequest { topics, timeout_ms, validate_only })
    }

    fn creatable_topic(&mut self) -> CreatableTopic<'static> {
        let name = match self.rng.below(30) {
            0 => "",
            1 => ".",
            2 => "..",
            3 => "bad/name",
            4 => leak("n".repeat(250)),
            5 => "__cluster_metadata",
            _ => *self.rng.pick(&NAMES),
        };
        let mut topic = CreatableTopic { name, num_partitions: 1, replication_factor: 1, ..CreatableTopic::default() };
        // Version 4 is the first in which the broker's defaults may be asked for.
        topic.num_partitions = *self.rng.pick(&[1, 1, 2, 3, 6, 6, -1, 0, -2]);
        topic.replication_factor = *self.rng.pick(&[1, 1, 1, 1, 1, 1, -1, 0, 2, -2]);
        if self.rng.chance(15) {
            self.assign(&mut topic);
        }
        if self.rng.chance(40) {
            let count = 1 + self.rng.below(3);
            topic.configs = (0..count)
                .map(|_| {
                    let (name, value) = self.topic_config();
                    CreatableTopicConfig { name, value }
                })
                .collect();
        }
        // One that clients see in records, and that would be rare among all others.
        if topic.configs.is_empty() && self.rng.chance(10) {
            topic.configs = vec![CreatableTopicConfig { name: "message.timestamp.type", value: Some("LogAppendTime") }];
        }
        topic
    }

    fn assign(&mut self, topic: &mut CreatableTopic<'static>) {
        if self.rng.chance(80) {
            topic.num_partitions = -1;
            topic.replication_factor = -1;
        }
        let brokers: [&[i32]; 6] = [&[1], &[1], &[1], &[1, 1], &[7], &[]];
        topic.assignments = (0..=self.rng.below(3))
            .map(|index| {
                let partition_index = if self.rng.chance(90) { i32::try_from(index).unwrap_or(0) } else { 5 };
                CreatableReplicaAssignment { partition_index, broker_ids: self.rng.pick(&brokers).to_vec() }
            })
            .collect();
    }

    pub(super) fn delete_topics(&mut self) -> Option<Request> {
        let mut request = DeleteTopicsRequest { timeout_ms: 30_000, ..DeleteTopicsRequest::default() };
        if self.version >= 6 {
            request.topics = self.some(|case| match case.rng.below(10) {
                0 => DeleteTopicState { name: Some(case.topic_name()), topic_id: case.topic_id() },
                1 => DeleteTopicState { name: None, topic_id: Uuid::ZERO },
                2..6 => DeleteTopicState { name: None, topic_id: case.topic_id() },
                _ => DeleteTopicState { name: Some(case.topic_name()), topic_id: Uuid::ZERO },
            });
        } else {
            request.topic_names = self.some(Self::topic_name);
        }
        self.effects.push(Effect::Topics);
        self.finish(ApiKey::DeleteTopics, &request)
    }

    pub(super) fn create_partitions(&mut self) -> Option<Request> {
        let topics = self.some(|case| {
            let name = case.topic_name();
            let now = case.world.topic(name).map_or(1, |topic| topic.partition_count);
            let count = match case.rng.below(8) {
                0 => now,
                1 => now - 1,
                2 => 0,
                3 => -1,
                // Kept small: every partition is a directory on both brokers.
                _ => (now + 1).min(8),
            };
            let brokers: [&[i32]; 5] = [&[1], &[1], &[1, 1], &[7], &[]];
            let assignments = case.rng.chance(20).then(|| {
                (0..=case.rng.below(2))
                    .map(|_| CreatePartitionsAssignment { broker_ids: case.rng.pick(&brokers).to_vec() })
                    .collect()
            });
            CreatePartitionsTopic { name, count, assignments }
        });
        let validate_only = self.rng.chance(30);
        if !validate_only {
            self.effects.push(Effect::Topics);
        }
        self.finish(ApiKey::CreatePartitions, &CreatePartitionsRequest { topics, timeout_ms: 30_000, validate_only })
    }
}
