//! What a command can be refused for, and the error code each refusal has on the wire.

use thiserror::Error;
use walser_protocol::ErrorCode;
use walser_protocol::reader::STRING_LEN_MAX;

use super::configs::{ConfigRejection, ConfigRejectionKind};
use crate::ids::{BrokerId, Uuid};
use crate::metadata::topic_name::TopicNameError;

/// Why a part of a command was refused. The text is the error message clients see.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ControlError {
    #[error("Duplicate topic name.")]
    DuplicateTopicName,
    #[error("Duplicate topic id.")]
    DuplicateTopicId,
    #[error("The provided topic name maps to an ID that was already supplied.")]
    TopicNameAndIdMeet,
    #[error("Neither topic name nor id were specified.")]
    NoTopicNameOrId,
    #[error("You may not specify both topic name and topic id.")]
    TopicNameAndId,
    #[error("Creation of internal topic {name} is prohibited.")]
    TopicReserved { name: String },
    #[error(transparent)]
    InvalidTopicName(#[from] TopicNameError),
    #[error("Topic '{name}' collides with existing topic: {existing}")]
    TopicNameCollides { name: String, existing: String },
    #[error("Topic '{name}' already exists.")]
    TopicExists { name: String },
    #[error("This server does not host this topic-partition.")]
    UnknownTopic,
    /// The same when partitions are to be added; Kafka answers it without a message.
    #[error("")]
    UnknownTopicToGrow,
    #[error("The topic '{name}' does not exist.")]
    UnknownTopicOfConfig { name: String },
    #[error("This server does not host this topic ID.")]
    UnknownTopicId { topic_id: Uuid },
    #[error("Topic deletion is disabled.")]
    TopicDeletionDisabled,
    #[error("Excessively large number of partitions per request.")]
    TooManyPartitions { requested: i64 },
    #[error("Excessively large number of additional partitions per request.")]
    TooManyAdditionalPartitions { requested: i64 },
    #[error("Number of partitions was set to an invalid non-positive value.")]
    PartitionCountNotPositive { requested: i32 },
    #[error("Topic already has {count} partition(s).")]
    PartitionCountUnchanged { count: usize },
    #[error("The topic {name} currently has {count} partition(s); {requested} would not be an increase.")]
    PartitionCountLower { name: String, count: usize, requested: i32 },
    #[error("Replication factor must be larger than 0, or -1 to use the default value.")]
    ReplicationFactorNotPositive { requested: i16 },
    #[error("Unable to replicate the partition {requested} time(s): {reason}")]
    ReplicationFactorOutOfReach { requested: i16, reason: PlacementProblem },
    /// Of partitions that are added: Kafka says it in fewer words.
    #[error("{0}")]
    NotPlaced(PlacementProblem),
    #[error("A manual partition assignment was specified, but replication factor was not set to -1.")]
    AssignmentWithReplicationFactor,
    #[error("A manual partition assignment was specified, but numPartitions was not set to -1.")]
    AssignmentWithPartitionCount,
    #[error("Found multiple manual partition assignments for partition {partition_index}")]
    AssignmentRepeated { partition_index: i32 },
    #[error("partitions should be a consecutive 0-based integer sequence")]
    AssignmentNotConsecutive,
    #[error("Attempted to add {additional} additional partition(s), but only {given} assignment(s) were specified.")]
    AssignmentCountDiffers { additional: usize, given: usize },
    #[error("The manual partition assignment includes an empty replica list.")]
    AssignmentEmpty,
    #[error("The manual partition assignment includes broker {broker_id}, but all its log directories are cordoned.")]
    AssignmentToCordonedBroker { broker_id: i32 },
    #[error("The manual partition assignment includes broker {broker_id}, but no such broker is registered.")]
    AssignmentToUnknownBroker { broker_id: i32 },
    #[error("The manual partition assignment includes the broker {broker_id} more than once.")]
    AssignmentToSameBroker { broker_id: i32 },
    #[error(
        "The manual partition assignment includes a partition with {given} replica(s), but this is not consistent with previous partitions, which have {expected} replica(s)."
    )]
    AssignmentSizeDiffers { given: usize, expected: usize },
    #[error(
        "All brokers specified in the manual partition assignment for partition {partition_index} are fenced or in controlled shutdown."
    )]
    AssignmentToFencedBrokers { partition_index: i32 },
    #[error("Each resource must appear at most once.")]
    DuplicateResource,
    #[error("Error due to duplicate config keys")]
    DuplicateConfigKeys,
    #[error("Null value not supported for : {keys}")]
    NullConfigValues { keys: String },
    #[error("Null value not supported for topic configs: {keys}")]
    NullTopicConfigValues { keys: String },
    #[error("Unknown resource type {resource_type}")]
    UnknownResourceType { resource_type: i8 },
    #[error("Default {what} resources are not allowed.")]
    DefaultResourceNotAllowed { what: &'static str },
    #[error("Subscription name can't be empty")]
    SubscriptionNameEmpty,
    #[error("Node id must be an integer, but it is: {name}")]
    NodeIdNotANumber { name: String },
    #[error("Unexpected broker id, expected {expected}, but received {received}")]
    UnexpectedBrokerId { expected: BrokerId, received: i32 },
    #[error("Logger {name} does not exist!")]
    UnknownLogger { name: String },
    #[error("Can't {operation} to key {key} because its type is not LIST.")]
    NotAList { operation: &'static str, key: String },
    /// Of a broker: Kafka checks those in another place and says it otherwise.
    #[error("Config value {operation} is not allowed for config key: {key}")]
    NotAListOfBroker { operation: &'static str, key: String },
    #[error("Unknown config name: {key}")]
    UnknownBrokerKey { key: String },
    #[error("Unknown operations type {operation}")]
    UnknownBrokerConfigOperation { operation: i8 },
    #[error("Value of {len} bytes for configuration {key} is longer than {STRING_LEN_MAX} bytes.")]
    ConfigValueTooLong { key: String, len: usize },
    /// Kafka answers an unknown error without a message.
    #[error("")]
    UnknownConfigOperation { operation: i8 },
    #[error("Broker-level min.insync.replicas cannot be altered while ELR is enabled.")]
    BrokerMinInSyncReplicas,
    #[error("Cluster-level min.insync.replicas cannot be removed while ELR is enabled.")]
    ClusterMinInSyncReplicasRemoved,
    #[error("{0}")]
    Config(#[from] ConfigRejection),
    #[error("Broker {broker_id} is not registered.")]
    BrokerNotRegistered { broker_id: BrokerId },
    #[error("The producer ids of this cluster are used up.")]
    ProducerIdsExhausted,
}

/// Why replicas cannot be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PlacementProblem {
    #[error(
        "The target replication factor of {requested} cannot be reached because only {registered} broker(s) are registered or some brokers have all their log directories cordoned."
    )]
    TooFewBrokers { requested: i16, registered: usize },
    #[error("All brokers are currently fenced, or have all their log directories cordoned.")]
    AllFenced,
}

impl ControlError {
    /// The message for the client. `None` where Kafka leaves it out.
    pub fn message(&self) -> Option<String> {
        let text = self.to_string();
        (!text.is_empty()).then_some(text)
    }
}

impl From<&ControlError> for ErrorCode {
    fn from(error: &ControlError) -> Self {
        match error {
            ControlError::DuplicateTopicName
            | ControlError::DuplicateTopicId
            | ControlError::TopicNameAndIdMeet
            | ControlError::NoTopicNameOrId
            | ControlError::TopicNameAndId
            | ControlError::TopicReserved { .. }
            | ControlError::AssignmentWithReplicationFactor
            | ControlError::AssignmentWithPartitionCount
            | ControlError::DuplicateResource
            | ControlError::DuplicateConfigKeys
            | ControlError::NullConfigValues { .. }
            | ControlError::UnknownResourceType { .. }
            | ControlError::DefaultResourceNotAllowed { .. }
            | ControlError::SubscriptionNameEmpty
            | ControlError::NodeIdNotANumber { .. }
            | ControlError::UnexpectedBrokerId { .. }
            | ControlError::UnknownBrokerConfigOperation { .. } => Self::InvalidRequest,
            ControlError::InvalidTopicName(_) | ControlError::TopicNameCollides { .. } => Self::InvalidTopicException,
            ControlError::TopicExists { .. } => Self::TopicAlreadyExists,
            ControlError::UnknownTopic
            | ControlError::UnknownTopicToGrow
            | ControlError::UnknownTopicOfConfig { .. } => Self::UnknownTopicOrPartition,
            ControlError::UnknownTopicId { .. } => Self::UnknownTopicId,
            // Before version 3 of DeleteTopics there was no code for it; the handler answers INVALID_REQUEST there.
            ControlError::TopicDeletionDisabled => Self::TopicDeletionDisabled,
            ControlError::TooManyPartitions { .. } | ControlError::TooManyAdditionalPartitions { .. } => {
                Self::PolicyViolation
            }
            ControlError::PartitionCountNotPositive { .. }
            | ControlError::PartitionCountUnchanged { .. }
            | ControlError::PartitionCountLower { .. } => Self::InvalidPartitions,
            ControlError::ReplicationFactorNotPositive { .. }
            | ControlError::ReplicationFactorOutOfReach { .. }
            | ControlError::NotPlaced(_) => Self::InvalidReplicationFactor,
            ControlError::AssignmentRepeated { .. }
            | ControlError::AssignmentNotConsecutive
            | ControlError::AssignmentCountDiffers { .. }
            | ControlError::AssignmentEmpty
            | ControlError::AssignmentToUnknownBroker { .. }
            | ControlError::AssignmentToSameBroker { .. }
            | ControlError::AssignmentToCordonedBroker { .. }
            | ControlError::AssignmentSizeDiffers { .. }
            | ControlError::AssignmentToFencedBrokers { .. } => Self::InvalidReplicaAssignment,
            ControlError::NullTopicConfigValues { .. }
            | ControlError::UnknownLogger { .. }
            | ControlError::NotAList { .. }
            | ControlError::NotAListOfBroker { .. }
            | ControlError::UnknownBrokerKey { .. }
            | ControlError::ConfigValueTooLong { .. }
            | ControlError::BrokerMinInSyncReplicas
            | ControlError::ClusterMinInSyncReplicasRemoved => Self::InvalidConfig,
            ControlError::Config(rejection) => match rejection.kind {
                ConfigRejectionKind::InvalidConfig => Self::InvalidConfig,
                ConfigRejectionKind::InvalidRequest => Self::InvalidRequest,
            },
            ControlError::BrokerNotRegistered { .. } => Self::BrokerIdNotRegistered,
            ControlError::UnknownConfigOperation { .. } | ControlError::ProducerIdsExhausted => {
                Self::UnknownServerError
            }
        }
    }
}
