//! What changes nothing: Fetch, ListOffsets, Metadata and the describing requests.

use walser_protocol::messages::alter_replica_log_dirs::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic, AlterReplicaLogDirsRequest,
};
use walser_protocol::messages::api_versions::ApiVersionsRequest;
use walser_protocol::messages::describe_cluster::DescribeClusterRequest;
use walser_protocol::messages::describe_log_dirs::{DescribableLogDirTopic, DescribeLogDirsRequest};
use walser_protocol::messages::describe_producers::{DescribeProducersRequest, TopicRequest as ProducersTopic};
use walser_protocol::messages::describe_quorum::{DescribeQuorumRequest, RequestPartitionData, RequestTopicData};
use walser_protocol::messages::describe_topic_partitions::{
    DescribeTopicPartitionsRequest, RequestCursor, TopicRequest as PartitionsTopic,
};
use walser_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic, ForgottenTopic};
use walser_protocol::messages::list_config_resources::ListConfigResourcesRequest;
use walser_protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use walser_protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use walser_protocol::messages::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use walser_protocol::{ApiKey, Uuid};

use super::super::world::SESSIONS_MAX;
use super::{Case, Effect, Request, leak};

impl Case<'_> {
    pub(super) fn fetch(&mut self) -> Option<Request> {
        let mut request = FetchRequest {
            replica_id: -1,
            max_wait_ms: *self.rng.pick(&[0, 0, 5, 20]),
            min_bytes: *self.rng.pick(&[0, 1, 1, 100]),
            max_bytes: *self.rng.pick(&[i32::MAX, 1 << 20, 1000, 100, 1, 0]),
            isolation_level: *self.rng.pick(&[0, 0, 1]),
            session_id: 0,
            session_epoch: -1,
            ..FetchRequest::default()
        };
        if self.version < 7 {
            request.session_epoch = FetchRequest::default().session_epoch;
        } else if self.rng.chance(30) {
            self.session(&mut request);
        }
        request.topics = self.fetch_topics();
        if self.version >= 11 && self.rng.chance(20) {
            request.rack_id = "rack-1";
        }
        self.finish(ApiKey::Fetch, &request)
    }

    fn fetch_topics(&mut self) -> Vec<FetchTopic<'static>> {
        let by_id = self.version >= 13;
        let mut topics = Vec::new();
        let mut seen = Vec::new();
        for (topic, topic_id) in self.some(Self::topic_both) {
            let (topic, topic_id) = if by_id { ("", topic_id) } else { (topic, Uuid::ZERO) };
            // What comes twice is answered by what Kafka's maps do with it; clients never ask that. On the id of no topic
            // Kafka fails within itself.
            if seen.contains(&(topic, topic_id)) || (by_id && topic_id.is_zero()) {
                continue;
            }
            seen.push((topic, topic_id));
            let mut partitions: Vec<FetchPartition> = Vec::new();
            for _ in 0..=self.rng.below(3) {
                let partition = self.partition();
                if partitions.iter().all(|one| one.partition != partition) {
                    partitions.push(self.fetch_partition(partition));
                }
            }
            topics.push(FetchTopic { topic, topic_id, partitions });
        }
        topics
    }

    fn fetch_partition(&mut self, partition: i32) -> FetchPartition {
        let mut one = FetchPartition {
            partition,
            fetch_offset: self.offset(),
            partition_max_bytes: *self.rng.pick(&[1 << 20, 1 << 20, 5000, 500, 1, 0]),
            ..FetchPartition::default()
        };
        if self.version >= 9 {
            one.current_leader_epoch = self.leader_epoch();
        }
        if self.version >= 12 && self.rng.chance(20) {
            one.last_fetched_epoch = *self.rng.pick(&[0, 1, 7]);
        }
        one
    }

    /// Opens a session, goes on with one, or gets one wrong.
    fn session(&mut self, request: &mut FetchRequest<'static>) {
        // No client falls back to another version within a session, and on a divergence of which the older version cannot
        // tell Kafka fails within itself.
        let tells = |version: i16| version >= 12;
        let fit: Vec<usize> = (0..self.world.sessions.len())
            .filter(|session| tells(self.world.sessions[*session].version) == tells(self.version))
            .collect();
        let opens = self.rng.chance(40) || fit.is_empty();
        if opens && self.world.sessions.len() == SESSIONS_MAX {
            return;
        }
        if opens {
            request.session_epoch = 0;
            self.effects.push(Effect::NewSession);
            return;
        }
        let session = *self.rng.pick(&fit);
        let known = &self.world.sessions[session];
        request.session_id = known.ids[self.side];
        request.session_epoch = known.next_epoch;
        match self.rng.below(10) {
            0 => request.session_epoch += 3,
            1 => request.session_id = 12345,
            2 => request.session_epoch = -1,
            _ => self.effects.push(Effect::SessionUsed { session }),
        }
        if self.rng.chance(20) {
            let (topic, topic_id) = self.topic_both();
            let (topic, topic_id) = if self.version >= 13 { ("", topic_id) } else { (topic, Uuid::ZERO) };
            request.forgotten_topics_data = vec![ForgottenTopic { topic, topic_id, partitions: vec![0, 1] }];
        }
    }

    pub(super) fn list_offsets(&mut self) -> Option<Request> {
        let mut topics = self.some(|case| {
            let mut partitions: Vec<ListOffsetsPartition> = Vec::new();
            for _ in 0..=case.rng.below(3) {
                let partition_index = case.partition();
                // KIP-79: a partition that comes twice is an error of its own, and an edge worth asking for.
                if case.rng.chance(10) || partitions.iter().all(|one| one.partition_index != partition_index) {
                    partitions.push(case.list_offsets_partition(partition_index));
                }
            }
            ListOffsetsTopic { name: case.topic_name(), partitions }
        });
        once(&mut topics, |topic| topic.name);
        let request = ListOffsetsRequest {
            replica_id: -1,
            isolation_level: if self.version >= 2 { *self.rng.pick(&[0, 1]) } else { 0 },
            topics,
            timeout_ms: if self.version >= 10 { 1000 } else { ListOffsetsRequest::default().timeout_ms },
        };
        self.finish(ApiKey::ListOffsets, &request)
    }

    fn list_offsets_partition(&mut self, partition_index: i32) -> ListOffsetsPartition {
        let timestamp = match self.rng.below(4) {
            0 => *self.rng.pick(&[-1, -2]),
            1 => *self.rng.pick(&[-1, -2, -3, -4, -5, -6, -7, -100]),
            2 => self.world.base_timestamp + self.rng.between(-1000, 70_000),
            _ => *self.rng.pick(&[0, i64::MAX, self.world.base_timestamp]),
        };
        let current_leader_epoch = if self.version >= 4 { self.leader_epoch() } else { -1 };
        ListOffsetsPartition { partition_index, current_leader_epoch, timestamp }
    }

    pub(super) fn metadata(&mut self) -> Option<Request> {
        let topics = match self.rng.below(6) {
            0 => None,
            1 => Some(Vec::new()),
            _ => Some(self.some(|case| {
                // Ids are asked for from version 10 on, and answered from 12 on.
                if case.version >= 10 && case.rng.chance(30) {
                    let topic_id = case.topic_id();
                    // Kafka stumbles over what has neither.
                    let named = case.rng.chance(10) || (case.version >= 12 && topic_id.is_zero());
                    MetadataRequestTopic { topic_id, name: named.then(|| case.topic_name()) }
                } else {
                    MetadataRequestTopic { topic_id: Uuid::ZERO, name: Some(case.topic_name()) }
                }
            })),
        };
        let allow_auto_topic_creation = self.version < 4 || self.rng.chance(50);
        let mut request = MetadataRequest { topics, allow_auto_topic_creation, ..MetadataRequest::default() };
        if (8..=10).contains(&self.version) {
            request.include_cluster_authorized_operations = self.rng.chance(30);
        }
        if self.version >= 8 {
            request.include_topic_authorized_operations = self.rng.chance(30);
        }
        self.finish(ApiKey::Metadata, &request)
    }

    pub(super) fn api_versions(&mut self) -> Option<Request> {
        let mut request = ApiVersionsRequest::default();
        if self.version >= 3 {
            request.client_software_name =
                *self.rng.pick(&["walser-tests", "walser-tests", "", "no spaces", "-x", "a.b-1"]);
            request.client_software_version = *self.rng.pick(&["1.0", "1.0", "", "1,0"]);
        }
        if self.version >= 5 {
            let own = leak(self.world.cluster_ids[self.side].clone());
            request.cluster_id = *self.rng.pick(&[None, Some(own), Some(own), Some("another")]);
            request.node_id = *self.rng.pick(&[-1, 1, 1, 2]);
        }
        self.finish(ApiKey::ApiVersions, &request)
    }

    pub(super) fn offset_for_leader_epoch(&mut self) -> Option<Request> {
        let mut topics = self.some(|case| {
            let topic = case.topic_name();
            let partitions = case.some(|case| OffsetForLeaderPartition {
                partition: case.partition(),
                current_leader_epoch: case.leader_epoch(),
                leader_epoch: *case.rng.pick(&[-1, 0, 0, 0, 1, 7, -2]),
            });
            OffsetForLeaderTopic { topic, partitions }
        });
        once(&mut topics, |topic| topic.topic);
        let replica_id = if self.version >= 3 {
            *self.rng.pick(&[-1, -2])
        } else {
            OffsetForLeaderEpochRequest::default().replica_id
        };
        self.finish(ApiKey::OffsetForLeaderEpoch, &OffsetForLeaderEpochRequest { replica_id, topics })
    }

    /// To directories that neither broker has: what they have is called differently.
    pub(super) fn alter_replica_log_dirs(&mut self) -> Option<Request> {
        let mut dirs = self.some(|case| {
            let path = *case.rng.pick(&["/no/such/directory", "relative", "", "/tmp"]);
            let topics = case.some(|case| {
                let partitions = case.some(Self::partition);
                AlterReplicaLogDirTopic { name: case.topic_name(), partitions }
            });
            AlterReplicaLogDir { path, topics }
        });
        // Kafka's own request takes a path as a key.
        once(&mut dirs, |dir| dir.path);
        self.finish(ApiKey::AlterReplicaLogDirs, &AlterReplicaLogDirsRequest { dirs })
    }

    pub(super) fn describe_log_dirs(&mut self) -> Option<Request> {
        let topics = if self.rng.chance(30) {
            None
        } else {
            Some(self.some(|case| {
                let partitions = case.some(Self::partition);
                DescribableLogDirTopic { topic: case.topic_name(), partitions }
            }))
        };
        self.finish(ApiKey::DescribeLogDirs, &DescribeLogDirsRequest { topics })
    }

    pub(super) fn describe_quorum(&mut self) -> Option<Request> {
        let topics = match self.rng.below(4) {
            0 => self.some(|case| {
                let partitions = case.some(|case| RequestPartitionData { partition_index: case.partition() });
                RequestTopicData { topic_name: case.topic_name(), partitions }
            }),
            _ => vec![RequestTopicData {
                topic_name: "__cluster_metadata",
                partitions: vec![RequestPartitionData { partition_index: 0 }],
            }],
        };
        self.finish(ApiKey::DescribeQuorum, &DescribeQuorumRequest { topics })
    }

    pub(super) fn describe_cluster(&mut self) -> Option<Request> {
        let include_cluster_authorized_operations = self.rng.chance(40);
        let mut request =
            DescribeClusterRequest { include_cluster_authorized_operations, ..DescribeClusterRequest::default() };
        if self.version >= 1 {
            request.endpoint_type = *self.rng.pick(&[1, 1, 1, 2, 0, 3]);
        }
        if self.version >= 2 {
            request.include_fenced_brokers = self.rng.chance(50);
        }
        self.finish(ApiKey::DescribeCluster, &request)
    }

    pub(super) fn describe_producers(&mut self) -> Option<Request> {
        let mut topics = self.some(|case| {
            let partition_indexes = case.some(Self::partition);
            ProducersTopic { name: case.topic_name(), partition_indexes }
        });
        once(&mut topics, |topic| topic.name);
        self.finish(ApiKey::DescribeProducers, &DescribeProducersRequest { topics })
    }

    pub(super) fn list_config_resources(&mut self) -> Option<Request> {
        let resource_types = match self.rng.below(3) {
            0 => Vec::new(),
            _ if self.version == 0 => Vec::new(),
            _ => self.some(|case| *case.rng.pick(&[2, 4, 8, 16, 32, 0, 1, 64, -1])),
        };
        self.finish(ApiKey::ListConfigResources, &ListConfigResourcesRequest { resource_types })
    }

    pub(super) fn describe_topic_partitions(&mut self) -> Option<Request> {
        let topics = if self.rng.chance(20) {
            Vec::new()
        } else {
            // Kafka stumbles over an empty name, and with it over all others of the request.
            let topics = self.some(|case| PartitionsTopic { name: case.topic_name() });
            topics.into_iter().filter(|topic| !topic.name.is_empty()).collect()
        };
        // With the greatest partition there is Kafka counts past the end of its numbers.
        let cursor = self.rng.chance(30).then(|| RequestCursor {
            topic_name: self.topic_name(),
            partition_index: self.partition().min(i32::MAX - 5000),
        });
        let response_partition_limit = *self.rng.pick(&[2000, 2000, 1, 3, 0, -1, 5000]);
        let request = DescribeTopicPartitionsRequest { topics, response_partition_limit, cursor };
        self.finish(ApiKey::DescribeTopicPartitions, &request)
    }
}

/// Keeps the first of those with the same name: what comes twice is answered by what Kafka's maps do with it.
fn once<T>(topics: &mut Vec<T>, name: impl Fn(&T) -> &'static str) {
    let mut seen = Vec::new();
    topics.retain(|topic| {
        let new = !seen.contains(&name(topic));
        seen.push(name(topic));
        new
    });
}
