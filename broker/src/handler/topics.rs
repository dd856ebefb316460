//! Topics and partitions as requests name them, found in the metadata image.

use std::sync::Arc;

use walser_machine::ids::TopicId;
use walser_machine::metadata::MetadataImage;
use walser_machine::metadata::image::TopicImage;
use walser_protocol::ErrorCode;
use walser_protocol::types::Uuid;

use crate::driver::coordinator::OFFSETS_TOPIC;
use crate::driver::partition::PartitionId;

/// Topics of coordinators: clients may read them, and only Kafka's own admin client may write to them.
pub const INTERNAL_TOPICS: [&str; 3] = [OFFSETS_TOPIC, "__share_group_state", "__transaction_state"];

/// The client id that may write to internal topics.
pub const ADMIN_CLIENT_ID: &str = "__admin_client";

pub fn is_internal(topic: &str) -> bool {
    INTERNAL_TOPICS.contains(&topic)
}

/// A topic of a request, and what the image says about it.
#[derive(Clone, Debug)]
pub struct NamedTopic {
    /// As the response has to repeat it; empty when it was named by id.
    pub name: Arc<str>,
    /// Zero when it was named by name.
    pub topic_id: Uuid,
    pub found: Result<Arc<TopicImage>, ErrorCode>,
}

impl NamedTopic {
    pub fn by_name(image: &MetadataImage, name: &str) -> Self {
        match image.topic(name) {
            Some(topic) => Self { name: Arc::clone(&topic.name), topic_id: Uuid::ZERO, found: Ok(Arc::clone(topic)) },
            None => Self { name: name.into(), topic_id: Uuid::ZERO, found: Err(ErrorCode::UnknownTopicOrPartition) },
        }
    }

    pub fn by_id(image: &MetadataImage, topic_id: Uuid) -> Self {
        let found = TopicId::from_wire(topic_id).and_then(|id| image.topic_by_id(id));
        Self { name: "".into(), topic_id, found: found.cloned().ok_or(ErrorCode::UnknownTopicId) }
    }

    /// The topic's own name where it is known.
    pub fn known_name(&self) -> &str {
        self.found.as_ref().map_or(&self.name, |topic| &topic.name)
    }

    /// The partition, where the topic has it.
    pub fn partition(&self, index: i32) -> Result<PartitionId, ErrorCode> {
        let topic = self.found.as_ref().map_err(|code| *code)?;
        topic.partition(index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        Ok(PartitionId { topic_id: topic.topic_id, index })
    }

    /// Leader and epoch of a partition, for clients that asked the wrong broker (KIP-951); -1 where unknown.
    pub fn leader(&self, index: i32) -> (i32, i32) {
        let partition = self.found.as_ref().ok().and_then(|topic| topic.partition(index));
        partition.map_or((-1, -1), |partition| {
            (partition.leader.map_or(-1, |leader| leader.get()), partition.leader_epoch.get())
        })
    }
}
