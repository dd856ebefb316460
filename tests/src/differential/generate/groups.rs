//! Groups as single requests see them: positions without members, members that nobody knows, groups described and deleted.
//!
//! Members that really join need several requests, and time: they are no matter of this run.

use walser_protocol::messages::consumer_group_describe::ConsumerGroupDescribeRequest;
use walser_protocol::messages::consumer_group_heartbeat::{ConsumerGroupHeartbeatRequest, RequestTopicPartitions};
use walser_protocol::messages::delete_groups::DeleteGroupsRequest;
use walser_protocol::messages::describe_groups::DescribeGroupsRequest;
use walser_protocol::messages::find_coordinator::FindCoordinatorRequest;
use walser_protocol::messages::heartbeat::HeartbeatRequest;
use walser_protocol::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol};
use walser_protocol::messages::leave_group::{LeaveGroupRequest, MemberIdentity};
use walser_protocol::messages::list_groups::ListGroupsRequest;
use walser_protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use walser_protocol::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use walser_protocol::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use walser_protocol::messages::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment};
use walser_protocol::{ApiKey, Uuid};

use super::{Case, Request, leak};

/// Few, so that they meet again.
const GROUPS: [&str; 6] = ["g0", "g1", "g2", "g3", "g4", "größe"];
/// First version in which a member that comes without an id has to come again, and nothing begins by its coming.
const MEMBER_ID_REQUIRED_FROM: i16 = 4;
const STATIC_MEMBERS_FROM: [(ApiKey, i16); 4] =
    [(ApiKey::JoinGroup, 5), (ApiKey::Heartbeat, 3), (ApiKey::SyncGroup, 3), (ApiKey::OffsetCommit, 7)];

impl Case<'_> {
    fn group_id(&mut self) -> &'static str {
        match self.rng.below(20) {
            0 => "",
            1 => "not-there",
            _ => self.rng.pick::<&str>(&GROUPS),
        }
    }

    /// Of nobody who has joined.
    fn member_id(&mut self) -> &'static str {
        self.rng.pick::<&str>(&["", "nobody", "walser-tests-00000000-0000-0000-0000-000000000000"])
    }

    fn instance_id(&mut self, key: ApiKey) -> Option<&'static str> {
        let is_known = STATIC_MEMBERS_FROM.iter().any(|(of, from)| *of == key && self.version >= *from);
        (is_known && self.rng.chance(20)).then_some("instance")
    }

    /// Each once: what comes twice is answered by what Kafka's maps do with it.
    fn partitions(&mut self) -> Vec<i32> {
        let mut partitions = self.some(Self::partition);
        partitions.sort_unstable();
        partitions.dedup();
        partitions
    }

    /// Names or, in their place, ids of topics, each once.
    fn topics_of_group(&mut self, by_id: bool) -> Vec<(&'static str, Uuid)> {
        let mut topics: Vec<(&'static str, Uuid)> = Vec::new();
        for (name, id) in self.some(|case| (case.topic_name(), case.topic_id())) {
            let topic = if by_id { ("", id) } else { (name, Uuid::ZERO) };
            if !topics.contains(&topic) {
                topics.push(topic);
            }
        }
        topics
    }

    pub(super) fn find_coordinator(&mut self) -> Option<Request> {
        let mut request = FindCoordinatorRequest::default();
        if self.version >= 1 && self.rng.chance(8) {
            // Types that nobody knows; transactions and shares have coordinators in Kafka only.
            request.key_type = *self.rng.pick(&[3, 77, -1]);
        }
        if self.version >= 4 {
            request.coordinator_keys = self.some(Self::group_id);
        } else {
            request.key = self.group_id();
        }
        self.finish(ApiKey::FindCoordinator, &request)
    }

    pub(super) fn offset_commit(&mut self) -> Option<Request> {
        // Of a commit of which nothing counts Kafka makes a group that some requests see and others do not.
        let is_long = self.rng.chance(10);
        let topics = self.topics_of_group(self.version >= 10).into_iter().map(|(name, topic_id)| {
            let partitions = self.partitions().into_iter().map(|partition_index| OffsetCommitRequestPartition {
                partition_index,
                committed_offset: self.offset(),
                committed_leader_epoch: if self.version >= 6 { self.leader_epoch() } else { -1 },
                committed_metadata: match self.rng.below(6) {
                    0 => None,
                    1 => Some("x"),
                    2 | 3 if is_long => Some(leak("é".repeat(4097))),
                    4 if is_long => Some(leak("é".repeat(4096))),
                    _ => Some(""),
                },
            });
            OffsetCommitRequestTopic { name, topic_id, partitions: partitions.collect() }
        });
        let topics = topics.collect();
        let mut request = OffsetCommitRequest {
            group_id: if is_long { "long" } else { self.group_id() },
            generation_id_or_member_epoch: -1,
            retention_time_ms: -1,
            topics,
            ..OffsetCommitRequest::default()
        };
        if self.rng.chance(15) {
            request.generation_id_or_member_epoch = *self.rng.pick(&[0, 1, -2]);
            request.member_id = self.member_id();
            request.group_instance_id = self.instance_id(ApiKey::OffsetCommit);
        }
        if (2..=4).contains(&self.version) && self.rng.chance(30) {
            request.retention_time_ms = 86_400_000;
        }
        self.finish(ApiKey::OffsetCommit, &request)
    }

    pub(super) fn offset_fetch(&mut self) -> Option<Request> {
        let mut request = OffsetFetchRequest {
            require_stable: self.version >= 7 && self.rng.chance(50),
            ..OffsetFetchRequest::default()
        };
        if self.version >= 8 {
            let mut seen = Vec::new();
            for group_id in self.some(Self::group_id) {
                if !seen.contains(&group_id) {
                    seen.push(group_id);
                    request.groups.push(self.fetched_group(group_id));
                }
            }
            return self.finish(ApiKey::OffsetFetch, &request);
        }
        request.group_id = self.group_id();
        let is_all = self.version >= 2 && self.rng.chance(30);
        request.topics = (!is_all).then(|| {
            let topics = self.topics_of_group(false).into_iter();
            topics.map(|(name, _)| OffsetFetchRequestTopic { name, partition_indexes: self.partitions() }).collect()
        });
        self.finish(ApiKey::OffsetFetch, &request)
    }

    fn fetched_group(&mut self, group_id: &'static str) -> OffsetFetchRequestGroup<'static> {
        let mut group = OffsetFetchRequestGroup { group_id, member_epoch: -1, ..OffsetFetchRequestGroup::default() };
        if self.version >= 9 && self.rng.chance(15) {
            group.member_id = Some(self.member_id());
            group.member_epoch = *self.rng.pick(&[-1, 0, 5]);
        }
        let is_all = self.rng.chance(30);
        group.topics = (!is_all).then(|| {
            let topics = self.topics_of_group(self.version >= 10).into_iter().map(|(name, topic_id)| {
                OffsetFetchRequestTopics { name, topic_id, partition_indexes: self.partitions() }
            });
            topics.collect()
        });
        group
    }

    pub(super) fn offset_delete(&mut self) -> Option<Request> {
        let topics = self.topics_of_group(false).into_iter().map(|(name, _)| OffsetDeleteRequestTopic {
            name,
            partitions: self
                .partitions()
                .into_iter()
                .map(|partition_index| OffsetDeleteRequestPartition { partition_index })
                .collect(),
        });
        let topics = topics.collect();
        let group_id = self.group_id();
        self.finish(ApiKey::OffsetDelete, &OffsetDeleteRequest { group_id, topics })
    }

    pub(super) fn join_group(&mut self) -> Option<Request> {
        let mut protocols: Vec<JoinGroupRequestProtocol<'_>> = Vec::new();
        for name in self.some(|case| *case.rng.pick(&["range", "roundrobin", "x"])) {
            if protocols.iter().all(|known| known.name != name) {
                protocols.push(JoinGroupRequestProtocol { name, metadata: b"\0\0\0\0\0\0\0\0\0\0" });
            }
        }
        let mut request = JoinGroupRequest {
            group_id: self.group_id(),
            session_timeout_ms: *self.rng.pick(&[10_000, 10_000, 10_000, 0, 5_999, 1_800_001, -1]),
            member_id: self.member_id(),
            group_instance_id: self.instance_id(ApiKey::JoinGroup),
            protocol_type: self.rng.pick::<&str>(&["consumer", "consumer", "connect", ""]),
            protocols,
            ..JoinGroupRequest::default()
        };
        if self.version >= 1 {
            request.rebalance_timeout_ms = 60_000;
        }
        if self.version >= 8 && self.rng.chance(50) {
            request.reason = Some("a test");
        }
        let begins = self.version < MEMBER_ID_REQUIRED_FROM || request.group_instance_id.is_some();
        if begins && request.member_id.is_empty() {
            request.member_id = "nobody";
        }
        self.finish(ApiKey::JoinGroup, &request)
    }

    pub(super) fn sync_group(&mut self) -> Option<Request> {
        let mut request = SyncGroupRequest {
            group_id: self.group_id(),
            generation_id: *self.rng.pick(&[-1, 0, 1]),
            member_id: self.member_id(),
            group_instance_id: self.instance_id(ApiKey::SyncGroup),
            ..SyncGroupRequest::default()
        };
        if self.version >= 5 && self.rng.chance(80) {
            request.protocol_type = Some("consumer");
            request.protocol_name = Some("range");
        }
        if self.rng.chance(30) {
            request.assignments = vec![SyncGroupRequestAssignment { member_id: "nobody", assignment: b"x" }];
        }
        self.finish(ApiKey::SyncGroup, &request)
    }

    pub(super) fn heartbeat(&mut self) -> Option<Request> {
        let request = HeartbeatRequest {
            group_id: self.group_id(),
            generation_id: *self.rng.pick(&[-1, 0, 1]),
            member_id: self.member_id(),
            group_instance_id: self.instance_id(ApiKey::Heartbeat),
        };
        self.finish(ApiKey::Heartbeat, &request)
    }

    pub(super) fn leave_group(&mut self) -> Option<Request> {
        let mut request = LeaveGroupRequest { group_id: self.group_id(), ..LeaveGroupRequest::default() };
        if self.version >= 3 {
            request.members = self.some(|case| MemberIdentity {
                member_id: case.member_id(),
                group_instance_id: case.rng.chance(30).then_some("instance"),
                reason: (case.version >= 5 && case.rng.chance(50)).then_some("a test"),
            });
        } else {
            request.member_id = self.member_id();
        }
        self.finish(ApiKey::LeaveGroup, &request)
    }

    pub(super) fn describe_groups(&mut self) -> Option<Request> {
        let mut groups = self.some(Self::group_id);
        groups.sort_unstable();
        groups.dedup();
        let include_authorized_operations = self.version >= 3 && self.rng.chance(40);
        self.finish(ApiKey::DescribeGroups, &DescribeGroupsRequest { groups, include_authorized_operations })
    }

    pub(super) fn list_groups(&mut self) -> Option<Request> {
        let mut request = ListGroupsRequest::default();
        if self.version >= 4 && self.rng.chance(50) {
            request.states_filter = self.some(|case| *case.rng.pick(&["Empty", "Stable", "empty", "Dead", "x"]));
        }
        if self.version >= 5 && self.rng.chance(50) {
            request.types_filter = self.some(|case| *case.rng.pick(&["classic", "Consumer", "share", "x"]));
        }
        self.finish(ApiKey::ListGroups, &request)
    }

    pub(super) fn delete_groups(&mut self) -> Option<Request> {
        let mut groups_names = self.some(Self::group_id);
        groups_names.sort_unstable();
        groups_names.dedup();
        self.finish(ApiKey::DeleteGroups, &DeleteGroupsRequest { groups_names })
    }

    /// Heartbeats that are refused: who really joins is assigned partitions by and by.
    pub(super) fn consumer_group_heartbeat(&mut self) -> Option<Request> {
        let mut request = ConsumerGroupHeartbeatRequest {
            group_id: self.group_id(),
            member_id: self.member_id(),
            member_epoch: *self.rng.pick(&[1, 7, -1, -2, -3]),
            instance_id: self.rng.chance(20).then_some("instance"),
            rack_id: self.rng.chance(20).then_some(""),
            rebalance_timeout_ms: *self.rng.pick(&[-1, 60_000]),
            ..ConsumerGroupHeartbeatRequest::default()
        };
        if self.rng.chance(40) {
            // It joins, but something is missing.
            request.member_epoch = 0;
            match self.rng.below(5) {
                0 => request.rebalance_timeout_ms = -1,
                1 => request.topic_partitions = None,
                2 => request.server_assignor = Some("nobody's"),
                3 if self.version >= 1 => request.subscribed_topic_regex = Some("("),
                _ => request.group_id = "",
            }
            let is_whole = request.server_assignor.is_some() || request.subscribed_topic_regex.is_some();
            if is_whole || request.group_id.is_empty() {
                request.rebalance_timeout_ms = 60_000;
                request.topic_partitions = Some(Vec::new());
            }
            if request.subscribed_topic_regex.is_none() {
                request.subscribed_topic_names = Some(vec!["t0"]);
            }
            return self.finish(ApiKey::ConsumerGroupHeartbeat, &request);
        }
        if self.rng.chance(30) {
            let topic_id = self.topic_id();
            request.topic_partitions = Some(vec![RequestTopicPartitions { topic_id, partitions: vec![0] }]);
        }
        self.finish(ApiKey::ConsumerGroupHeartbeat, &request)
    }

    pub(super) fn consumer_group_describe(&mut self) -> Option<Request> {
        let mut group_ids = self.some(Self::group_id);
        group_ids.sort_unstable();
        group_ids.dedup();
        let include_authorized_operations = self.rng.chance(40);
        let request = ConsumerGroupDescribeRequest { group_ids, include_authorized_operations };
        self.finish(ApiKey::ConsumerGroupDescribe, &request)
    }
}
