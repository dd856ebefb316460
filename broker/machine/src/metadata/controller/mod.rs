//! Answers commands against an image and names the records that carry the answer out.
//!
//! The controller keeps no state of the cluster: whoever drives it passes the newest image (with the records of commands that
//! are not yet committed already applied), logs the records it returns, and sends the answer when they are committed. A
//! command that is refused, or only to be validated, returns no records.
//!
//! Validation, its order and its messages are those of Kafka's controller; every answer was compared with a running one.

mod brokers;
mod configs;
mod error;
mod partitions;
mod topics;

pub use brokers::{ProducerIdBlock, RegisterBroker, RegisteredBroker};
pub use configs::{
    AlterConfigs, AlterConfigsResourceResult, ConfigOperation, ConfigRejection, ConfigRejectionKind, ConfigRules,
    IncrementalAlterConfigs, IncrementalAlterConfigsResource, ReplaceConfigsResource,
};
pub use error::{ControlError, PlacementProblem};
pub use partitions::{CreatePartitions, CreatePartitionsResult, CreatePartitionsTopic};
pub use topics::{
    CreatableTopic, CreatableTopicResult, CreateTopics, CreatedTopic, DeletableTopicResult, DeleteTopics,
    ManualAssignment, TopicSelector,
};

use super::image::MetadataImage;
use super::records::MetadataRecord;
use crate::ids::{BrokerId, IdGenerator};

/// More partitions than this in one request are refused, as in Kafka: one command is one batch of the log.
pub const PARTITIONS_PER_REQUEST_MAX: i64 = 10_000;

/// Producer ids are given away in blocks of this many, so that handing one out is rarely a metadata change.
pub const PRODUCER_ID_BLOCK_IDS: i64 = 1000;

/// Broker settings the controller decides by. None of them can change while the broker runs.
#[derive(Clone, Debug)]
pub struct ControllerSettings {
    pub node_id: BrokerId,
    /// `num.partitions`.
    pub num_partitions: i32,
    /// `default.replication.factor`.
    pub default_replication_factor: i16,
    /// `delete.topic.enable`.
    pub delete_topic_enable: bool,
}

/// A change of the cluster's state somebody asks for. Owned, so that it can travel from any shard to the one writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    CreateTopics(CreateTopics),
    DeleteTopics(DeleteTopics),
    CreatePartitions(CreatePartitions),
    IncrementalAlterConfigs(IncrementalAlterConfigs),
    AlterConfigs(AlterConfigs),
    AllocateProducerIds { broker_id: BrokerId },
    RegisterBroker(RegisterBroker),
}

/// The answer to the command of the same name, one element per element asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    CreateTopics(Vec<CreatableTopicResult>),
    DeleteTopics(Vec<DeletableTopicResult>),
    CreatePartitions(Vec<CreatePartitionsResult>),
    IncrementalAlterConfigs(Vec<AlterConfigsResourceResult>),
    AlterConfigs(Vec<AlterConfigsResourceResult>),
    AllocateProducerIds(Result<ProducerIdBlock, ControlError>),
    RegisterBroker(RegisteredBroker),
}

/// The one place that decides changes of the cluster's state.
#[derive(Debug)]
pub struct Controller {
    settings: ControllerSettings,
    ids: IdGenerator,
}

impl Controller {
    pub fn new(settings: ControllerSettings, ids: IdGenerator) -> Self {
        Self { settings, ids }
    }

    pub fn settings(&self) -> &ControllerSettings {
        &self.settings
    }

    /// `image`: the newest state, records of earlier commands applied. The records returned are one batch of the log; none:
    /// nothing changes.
    pub fn handle(
        &mut self,
        image: &MetadataImage,
        rules: &dyn ConfigRules,
        command: Command,
    ) -> (Reply, Vec<MetadataRecord>) {
        match command {
            Command::CreateTopics(request) => {
                let (results, records) = self.create_topics(image, rules, request);
                (Reply::CreateTopics(results), records)
            }
            Command::DeleteTopics(request) => {
                let (results, records) = self.delete_topics(image, request);
                (Reply::DeleteTopics(results), records)
            }
            Command::CreatePartitions(request) => {
                let (results, records) = self.create_partitions(image, rules, request);
                (Reply::CreatePartitions(results), records)
            }
            Command::IncrementalAlterConfigs(request) => {
                let (results, records) = self.incremental_alter_configs(image, rules, request);
                (Reply::IncrementalAlterConfigs(results), records)
            }
            Command::AlterConfigs(request) => {
                let (results, records) = self.alter_configs(image, rules, request);
                (Reply::AlterConfigs(results), records)
            }
            Command::AllocateProducerIds { broker_id } => {
                let (result, records) = self.allocate_producer_ids(image, broker_id);
                (Reply::AllocateProducerIds(result), records)
            }
            Command::RegisterBroker(request) => {
                let (reply, records) = self.register_broker(image, request);
                (Reply::RegisterBroker(reply), records)
            }
        }
    }
}

#[cfg(test)]
mod tests;
