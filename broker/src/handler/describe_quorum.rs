//! DescribeQuorum, versions 0 to 2: a quorum of one voter, which is this node and always the leader.
//!
//! The log is counted in batches of metadata records, which is what its offsets are here. Every start begins a new epoch.

use walser_machine::metadata::MetadataImage;
use walser_protocol::ErrorCode;
use walser_protocol::messages::describe_quorum::{
    DescribeQuorumRequest, DescribeQuorumResponse, Listener, Node, ReplicaState, ResponsePartitionData,
    ResponseTopicData,
};
use walser_protocol::types::Uuid;
use walser_storage::runtime::Runtime;

use super::{Frame, HandlerOutcome, RequestContext};

/// The only topic of the quorum; it has one partition.
const METADATA_TOPIC: &str = "__cluster_metadata";
/// First version that has directory ids and nodes (KIP-853).
const DIRECTORIES_FROM: i16 = 2;

/// Describes the quorum.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match DescribeQuorumRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let of_metadata = |request: &DescribeQuorumRequest<'_>| {
        matches!(request.topics.as_slice(), [topic] if topic.topic_name == METADATA_TOPIC
            && matches!(topic.partitions.as_slice(), [partition] if partition.partition_index == 0))
    };
    if !of_metadata(&request) {
        return context
            .reply(&DescribeQuorumResponse { topics: unknown(&request), ..DescribeQuorumResponse::default() });
    }
    let image = context.shard.image();
    let partition = partition(&context, &image);
    context.reply(&DescribeQuorumResponse {
        topics: vec![ResponseTopicData { topic_name: METADATA_TOPIC, partitions: vec![partition] }],
        nodes: if context.version >= DIRECTORIES_FROM { nodes(&image) } else { Vec::new() },
        ..DescribeQuorumResponse::default()
    })
}

fn unknown<'a>(request: &DescribeQuorumRequest<'a>) -> Vec<ResponseTopicData<'a>> {
    let error = ErrorCode::UnknownTopicOrPartition;
    let topics = request.topics.iter().map(|topic| ResponseTopicData {
        topic_name: topic.topic_name,
        partitions: topic
            .partitions
            .iter()
            .map(|partition| ResponsePartitionData {
                partition_index: partition.partition_index,
                error_code: error.code(),
                error_message: Some("This server does not host this topic-partition."),
                ..ResponsePartitionData::default()
            })
            .collect(),
    });
    topics.collect()
}

fn partition(context: &RequestContext, image: &MetadataImage) -> ResponsePartitionData<'static> {
    let node_id = context.shard.node_id();
    let end_offset = i64::try_from(image.end_offset()).unwrap_or(i64::MAX);
    let now_ms = context.shard.runtime.wall_clock_ms();
    let registration = image.broker(node_id);
    let directory = registration.and_then(|broker| broker.directories.first());
    ResponsePartitionData {
        leader_id: node_id.get(),
        // Registrations ascend, and there is one per start.
        leader_epoch: registration.map_or(0, |broker| i32::try_from(broker.broker_epoch).unwrap_or(i32::MAX)),
        high_watermark: end_offset,
        current_voters: vec![ReplicaState {
            replica_id: node_id.get(),
            replica_directory_id: match directory {
                Some(directory) if context.version >= DIRECTORIES_FROM => directory.get(),
                Some(_) | None => Uuid::ZERO,
            },
            log_end_offset: end_offset,
            last_fetch_timestamp: now_ms,
            last_caught_up_timestamp: now_ms,
        }],
        ..ResponsePartitionData::default()
    }
}

/// The controller has no listener of its own: it is reached through the broker's.
fn nodes(image: &MetadataImage) -> Vec<Node<'_>> {
    image
        .brokers()
        .map(|broker| Node {
            node_id: broker.broker_id.get(),
            listeners: broker
                .endpoints
                .iter()
                .map(|endpoint| Listener { name: &endpoint.listener_name, host: &endpoint.host, port: endpoint.port })
                .collect(),
        })
        .collect()
}
