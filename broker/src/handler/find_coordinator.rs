//! FindCoordinator, versions 0 to 6: the broker that coordinates a group.
//!
//! From version 4 on for several keys, each with an error of its own (KIP-699). The topic of groups is made when it is first asked
//! for, and is there when the answer leaves; where it cannot be made the answer is COORDINATOR_NOT_AVAILABLE.
//!
//! Gaps: there are no coordinators of transactions and of share partitions: they are answered INVALID_REQUEST, which clients
//! do not try again.

use walser_protocol::ErrorCode;
use walser_protocol::messages::find_coordinator::{Coordinator, FindCoordinatorRequest, FindCoordinatorResponse};

use super::groups::partition_of;
use super::metadata::endpoint;
use super::{Frame, HandlerOutcome, RequestContext};
use crate::driver::coordinator::OFFSETS_TOPIC;
use crate::shard::Image;

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
/// First version that asks for several keys.
const KEYS_FROM: i16 = 4;

/// Why there is no coordinator.
type Refused = (ErrorCode, &'static str);

/// A broker as the client reaches it.
struct Node<'a> {
    node_id: i32,
    host: &'a str,
    port: u16,
}

/// Names coordinators.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match FindCoordinatorRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let several = context.version >= KEYS_FROM;
    if request.key_type == GROUP && !(several && request.coordinator_keys.is_empty()) {
        context.create_offsets_topic().await;
    }
    let image = context.shard.image();
    if several {
        let coordinators = request.coordinator_keys.iter().map(|key| {
            let mut coordinator = Coordinator { key, node_id: -1, port: -1, ..Coordinator::default() };
            match find(&context, &image, request.key_type, key) {
                Ok(node) => {
                    (coordinator.node_id, coordinator.host) = (node.node_id, node.host);
                    (coordinator.port, coordinator.error_message) = (i32::from(node.port), Some(""));
                }
                Err((error, message)) => {
                    (coordinator.error_code, coordinator.error_message) = (error.code(), Some(message));
                }
            }
            coordinator
        });
        return context.reply(&FindCoordinatorResponse {
            coordinators: coordinators.collect(),
            ..FindCoordinatorResponse::default()
        });
    }
    let mut response = FindCoordinatorResponse { node_id: -1, port: -1, ..FindCoordinatorResponse::default() };
    match find(&context, &image, request.key_type, request.key) {
        Ok(node) => {
            (response.node_id, response.host, response.port) = (node.node_id, node.host, i32::from(node.port));
            // Kafka says the name of the code, also of this one.
            response.error_message = Some(ErrorCode::None.name());
        }
        Err((error, message)) => {
            (response.error_code, response.error_message) = (error.code(), Some(message));
        }
    }
    context.reply(&response)
}

fn find<'a>(context: &'a RequestContext, image: &'a Image, key_type: i8, key: &str) -> Result<Node<'a>, Refused> {
    match key_type {
        GROUP => {}
        TRANSACTION => return Err((ErrorCode::InvalidRequest, "transactions are not served")),
        _ => return Err((ErrorCode::InvalidRequest, "there are no coordinators of this type")),
    }
    let partition = partition_of(image, key);
    let partition = partition.and_then(|id| image.topic(OFFSETS_TOPIC)?.partition(id.index));
    let leader = partition.and_then(|partition| partition.leader).and_then(|leader| image.broker(leader));
    let node = leader.and_then(|leader| {
        let (host, port) = endpoint(context, leader)?;
        Some(Node { node_id: leader.broker_id.get(), host, port })
    });
    node.ok_or((ErrorCode::CoordinatorNotAvailable, "The coordinator is not available."))
}
