//! Metadata, versions 0 to 13.
//!
//! A null topic list (in version 0 an empty one) means all topics. Topics that do not exist are made where both the broker
//! (`auto.create.topics.enable`) and the request allow it; the answer then has them already, where Kafka has its clients ask
//! again. From version 12 on topics may be asked for by id. Endpoints are those of the listener the request came through.
//!
//! Of the internal topics that of groups is made like others, in its own way. Gaps: there is no authorizer, so everybody may do
//! everything; the other internal topics are not made, since nothing would write to them; a cluster id or node id of another broker is told by ApiVersions (KIP-1242).

use std::collections::BTreeSet;

use walser_machine::metadata::MetadataImage;
use walser_machine::metadata::controller::{Command, CreatableTopic, CreateTopics, Reply};
use walser_machine::metadata::image::{PartitionImage, TopicImage};
use walser_machine::metadata::records::BrokerRegistration;
use walser_machine::metadata::topic_name::validate_topic_name;
use walser_protocol::ErrorCode;
use walser_protocol::messages::metadata::{
    MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use walser_protocol::types::Uuid;

use super::topics::{NamedTopic, is_internal};
use super::{Frame, HandlerOutcome, RequestContext};
use crate::driver::coordinator::OFFSETS_TOPIC;
use crate::shard::Image;

/// What a client may do with a topic where nothing forbids it: READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE,
/// DESCRIBE_CONFIGS and ALTER_CONFIGS.
pub const TOPIC_OPERATIONS: i32 = 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 11;
/// The same of the cluster: CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE.
pub const CLUSTER_OPERATIONS: i32 = 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12;
/// First version in which topics may be asked for by id.
const TOPIC_IDS_FROM: i16 = 12;

/// What is asked for, once.
enum Wanted {
    All,
    Names(Vec<String>),
    Ids(Vec<Uuid>),
}

/// Describes brokers and topics.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match MetadataRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let Some(wanted) = wanted(&request, context.version) else {
        return refuse(&context, &request);
    };
    if let Wanted::Names(names) = &wanted
        && request.allow_auto_topic_creation
    {
        create_missing(&context, names).await;
    }
    let image = context.shard.image();
    let topics = topics(&image, &wanted, request.include_topic_authorized_operations);
    let mut response = MetadataResponse {
        brokers: brokers(&context, &image),
        cluster_id: Some(image.cluster_id()),
        controller_id: context.shard.node_id().get(),
        topics,
        ..MetadataResponse::default()
    };
    if request.include_cluster_authorized_operations {
        response.cluster_authorized_operations = CLUSTER_OPERATIONS;
    }
    context.reply(&response)
}

/// A request that makes no sense is told nothing, not even about the brokers.
fn refuse(context: &RequestContext, request: &MetadataRequest<'_>) -> HandlerOutcome {
    let error_code = ErrorCode::InvalidRequest.code();
    let refused = request.topics.iter().flatten().map(|topic| MetadataResponseTopic {
        error_code,
        name: Some(topic.name.unwrap_or_default()),
        topic_id: topic.topic_id,
        ..MetadataResponseTopic::default()
    });
    context.reply(&MetadataResponse { topics: refused.collect(), error_code, ..MetadataResponse::default() })
}

/// `None` where the request makes no sense.
fn wanted(request: &MetadataRequest<'_>, version: i16) -> Option<Wanted> {
    let Some(topics) = &request.topics else { return Some(Wanted::All) };
    if version == 0 && topics.is_empty() {
        return Some(Wanted::All);
    }
    let by_id = topics.iter().any(|topic| !topic.topic_id.is_zero());
    if by_id && version >= TOPIC_IDS_FROM {
        // One id is enough for names to be overlooked, and what has no id with them.
        let mut seen = BTreeSet::new();
        let ids = topics.iter().map(|topic| topic.topic_id);
        return Some(Wanted::Ids(ids.filter(|id| !id.is_zero() && seen.insert(*id)).collect()));
    }
    if by_id {
        return None;
    }
    let mut seen = BTreeSet::new();
    let mut names = Vec::new();
    for topic in topics {
        let name = topic.name?;
        if seen.insert(name) {
            names.push(name.to_owned());
        }
    }
    Some(Wanted::Names(names))
}

/// Makes what is asked for and does not exist. What cannot be made stays missing, which the answer says.
async fn create_missing(context: &RequestContext, names: &[String]) {
    let image = context.shard.image();
    let missing: Vec<CreatableTopic> = names
        .iter()
        .filter(|name| image.topic(name).is_none() && !is_internal(name) && validate_topic_name(name).is_ok())
        .map(|name| CreatableTopic::with_defaults(name))
        .collect();
    if !context.shard.broker_view(&image).boolean("auto.create.topics.enable") {
        return;
    }
    if names.iter().any(|name| name == OFFSETS_TOPIC) {
        context.create_offsets_topic().await;
    }
    if missing.is_empty() {
        return;
    }
    let command = Command::CreateTopics(CreateTopics { topics: missing, validate_only: false });
    if let Some(Reply::CreateTopics(results)) = context.shard.control(command).await {
        for refused in results.iter().filter(|result| result.result.is_err()) {
            tracing::debug!(topic = %refused.name, "topic not made: {:?}", refused.result);
        }
    }
}

fn brokers<'a>(context: &'a RequestContext, image: &'a MetadataImage) -> Vec<MetadataResponseBroker<'a>> {
    let response = |broker: &'a BrokerRegistration| {
        let (host, port) = endpoint(context, broker)?;
        Some(MetadataResponseBroker {
            node_id: broker.broker_id.get(),
            host,
            port: i32::from(port),
            rack: broker.rack.as_deref(),
        })
    };
    image.brokers().filter(|broker| !broker.fenced).filter_map(|broker| response(broker)).collect()
}

/// Host and port of a broker for whoever came through this connection's listener.
pub fn endpoint<'a>(context: &'a RequestContext, broker: &'a BrokerRegistration) -> Option<(&'a str, u16)> {
    let listener = &context.connection.listener.advertised;
    if broker.broker_id == context.shard.node_id() {
        return Some((&listener.host, listener.port));
    }
    let endpoint = broker.endpoints.iter().find(|endpoint| endpoint.listener_name == listener.listener)?;
    Some((&endpoint.host, endpoint.port))
}

fn topics<'a>(image: &'a Image, wanted: &'a Wanted, with_operations: bool) -> Vec<MetadataResponseTopic<'a>> {
    let operations = if with_operations { TOPIC_OPERATIONS } else { i32::MIN };
    match wanted {
        Wanted::All => image.topics().map(|topic| known(topic, operations)).collect(),
        Wanted::Names(names) => names
            .iter()
            .map(|name| match image.topic(name) {
                Some(topic) => known(topic, operations),
                None => unknown(name, operations),
            })
            .collect(),
        Wanted::Ids(ids) => ids
            .iter()
            .map(|id| match NamedTopic::by_id(image, *id).found {
                Ok(topic) => match image.topic(&topic.name) {
                    Some(topic) => known(topic, operations),
                    None => unknown_id(*id),
                },
                Err(_) => unknown_id(*id),
            })
            .collect(),
    }
}

fn known(topic: &TopicImage, topic_authorized_operations: i32) -> MetadataResponseTopic<'_> {
    MetadataResponseTopic {
        name: Some(&topic.name),
        topic_id: topic.topic_id.get(),
        is_internal: is_internal(&topic.name),
        partitions: (0..)
            .zip(&topic.partitions)
            .map(|(index, partition)| partition_response(index, partition))
            .collect(),
        topic_authorized_operations,
        ..MetadataResponseTopic::default()
    }
}

fn partition_response(index: i32, partition: &PartitionImage) -> MetadataResponsePartition {
    let error = if partition.leader.is_some() { ErrorCode::None } else { ErrorCode::LeaderNotAvailable };
    MetadataResponsePartition {
        error_code: error.code(),
        partition_index: index,
        leader_id: partition.leader.map_or(-1, |leader| leader.get()),
        leader_epoch: partition.leader_epoch.get(),
        replica_nodes: partition.replicas.iter().map(|replica| replica.get()).collect(),
        isr_nodes: partition.in_sync_replicas.iter().map(|replica| replica.get()).collect(),
        offline_replicas: Vec::new(),
    }
}

fn unknown(name: &str, topic_authorized_operations: i32) -> MetadataResponseTopic<'_> {
    let is_valid = validate_topic_name(name).is_ok();
    let error = if is_valid { ErrorCode::UnknownTopicOrPartition } else { ErrorCode::InvalidTopicException };
    MetadataResponseTopic {
        error_code: error.code(),
        name: Some(name),
        is_internal: is_internal(name),
        topic_authorized_operations,
        ..MetadataResponseTopic::default()
    }
}

fn unknown_id(topic_id: Uuid) -> MetadataResponseTopic<'static> {
    MetadataResponseTopic {
        error_code: ErrorCode::UnknownTopicId.code(),
        name: None,
        topic_id,
        ..MetadataResponseTopic::default()
    }
}

#[cfg(test)]
mod tests {
    use walser_protocol::messages::metadata::MetadataRequestTopic;

    use super::*;

    #[test]
    fn topics_are_asked_for_by_name_or_by_id() {
        // Rule: ids count from version 12 on and rule out names; before that they, and a missing name, are refused.
        let (zero, id) = (Uuid::ZERO, Uuid::from_bytes([7; 16]));
        let show = |wanted: Option<Wanted>| match wanted {
            None => "refused".to_owned(),
            Some(Wanted::All) => "all".to_owned(),
            Some(Wanted::Names(names)) => names.join(","),
            Some(Wanted::Ids(ids)) => format!("{} ids", ids.len()),
        };
        for (version, topics, want) in [
            (0, Some(&[][..]), "all"),
            (1, Some(&[]), ""),
            (1, None, "all"),
            (12, Some(&[(Some("a"), zero), (Some("b"), zero), (Some("a"), zero)]), "a,b"),
            (12, Some(&[(None, id), (None, id), (Some("a"), zero), (None, zero)]), "1 ids"),
            (12, Some(&[(None, zero), (Some("a"), zero)]), "refused"),
            (11, Some(&[(None, id)]), "refused"),
            (10, Some(&[(Some("a"), id)]), "refused"),
            (10, Some(&[(None, zero)]), "refused"),
        ] {
            let one = |(name, topic_id): &(Option<&'static str>, Uuid)| MetadataRequestTopic {
                name: *name,
                topic_id: *topic_id,
            };
            let request = MetadataRequest {
                topics: topics.map(|topics: &[_]| topics.iter().map(one).collect()),
                ..MetadataRequest::default()
            };
            assert_eq!(show(wanted(&request, version)), want, "version {version}, {topics:?}");
        }
    }
}
