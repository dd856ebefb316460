//! What the metadata log says, one variant per kind of record. Kinds and fields follow Kafka's metadata records.

use crate::ids::{BrokerId, DirectoryId, LeaderEpoch, TopicId, Uuid};

/// One step of the metadata log. Records of one command are logged as one batch, which is applied whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataRecord {
    /// Which cluster this log belongs to. The first record of every log; never changes.
    Cluster { cluster_id: String },
    /// A feature has been finalized at this level; 0 withdraws it.
    FeatureLevel { name: String, level: i16 },
    /// A broker came up, or came up again: it replaces what was known of the same id.
    RegisterBroker(BrokerRegistration),
    /// A topic without partitions yet; its partitions follow in the same batch.
    Topic { topic_id: TopicId, name: String },
    /// A partition with its whole state. Indexes of one topic appear in order without gaps.
    Partition(PartitionRecord),
    /// A partition has another leader or other in-sync replicas.
    PartitionChange(PartitionChangeRecord),
    /// The topic, its partitions and its configs are gone.
    RemoveTopic { topic_id: TopicId },
    /// `value: None` removes the key.
    Config { resource: ConfigResource, key: String, value: Option<String> },
    /// Every producer id below `next_producer_id` has been given away.
    ProducerIds { broker_id: BrokerId, broker_epoch: i64, next_producer_id: i64 },
    /// Nothing; keeps a log alive.
    NoOp,
}

/// A broker as it registered itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerRegistration {
    pub broker_id: BrokerId,
    /// Ascends with every registration; fences requests of an earlier life of the same broker.
    pub broker_epoch: i64,
    /// Random per process.
    pub incarnation_id: Uuid,
    pub endpoints: Vec<BrokerEndpoint>,
    pub rack: Option<String>,
    /// Feature levels this broker can serve.
    pub features: Vec<SupportedFeature>,
    /// Online log directories.
    pub directories: Vec<DirectoryId>,
    /// A fenced broker is known but leads nothing and gets no new replicas.
    pub fenced: bool,
}

/// Where one listener of a broker is reached from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerEndpoint {
    pub listener_name: String,
    pub host: String,
    pub port: u16,
    /// Kafka's number: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    pub security_protocol: i16,
}

/// Both levels inclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupportedFeature {
    pub name: String,
    pub level_min: i16,
    pub level_max: i16,
}

/// A partition's state in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionRecord {
    pub topic_id: TopicId,
    pub partition_index: i32,
    pub replicas: Vec<BrokerId>,
    pub in_sync_replicas: Vec<BrokerId>,
    /// `None`: no replica may lead now.
    pub leader: Option<BrokerId>,
    pub leader_epoch: LeaderEpoch,
    /// Counts every change of the partition, also those that keep the leader.
    pub partition_epoch: i32,
    /// One per replica, in the same order.
    pub directories: Vec<DirectoryId>,
}

/// What changes in a partition; `None` stays as it is. Always raises the partition epoch, and the leader epoch with a leader named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionChangeRecord {
    pub topic_id: TopicId,
    pub partition_index: i32,
    pub in_sync_replicas: Option<Vec<BrokerId>>,
    pub leader: Option<LeaderChange>,
}

/// A new leadership, even where the same broker keeps it (it may have lost unflushed records since the last one).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaderChange {
    /// Nobody leads.
    Vacant,
    Elected(BrokerId),
}

/// What a config belongs to. Numbers on the wire are Kafka's resource types.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfigResource {
    /// Type 2.
    Topic(String),
    /// Type 4 with a node id.
    Broker(BrokerId),
    /// Type 4 with the empty name: the default of every broker.
    DefaultBroker,
    /// Type 16.
    ClientMetrics(String),
    /// Type 32.
    Group(String),
}

impl ConfigResource {
    pub const TYPE_TOPIC: i8 = 2;
    pub const TYPE_BROKER: i8 = 4;
    pub const TYPE_BROKER_LOGGER: i8 = 8;
    pub const TYPE_CLIENT_METRICS: i8 = 16;
    pub const TYPE_GROUP: i8 = 32;

    /// `None` for types that have no configs in the metadata and for broker names that are no node id.
    pub fn from_wire(resource_type: i8, resource_name: &str) -> Option<Self> {
        match resource_type {
            Self::TYPE_TOPIC => Some(Self::Topic(resource_name.to_owned())),
            Self::TYPE_BROKER if resource_name.is_empty() => Some(Self::DefaultBroker),
            Self::TYPE_BROKER => resource_name.parse().ok().and_then(BrokerId::from_wire).map(Self::Broker),
            Self::TYPE_CLIENT_METRICS => Some(Self::ClientMetrics(resource_name.to_owned())),
            Self::TYPE_GROUP => Some(Self::Group(resource_name.to_owned())),
            _ => None,
        }
    }

    /// Kafka's number of the resource type.
    pub fn type_number(&self) -> i8 {
        match self {
            Self::Topic(_) => Self::TYPE_TOPIC,
            Self::Broker(_) | Self::DefaultBroker => Self::TYPE_BROKER,
            Self::ClientMetrics(_) => Self::TYPE_CLIENT_METRICS,
            Self::Group(_) => Self::TYPE_GROUP,
        }
    }

    /// The name on the wire; empty for the default of all brokers.
    pub fn name(&self) -> String {
        match self {
            Self::Topic(name) | Self::ClientMetrics(name) | Self::Group(name) => name.clone(),
            Self::Broker(id) => id.to_string(),
            Self::DefaultBroker => String::new(),
        }
    }
}
