//! From a frame to its handler.
//!
//! [`ROUTES`] holds every API key that is served: its ordering class and its handler. A key that is not there, or a version
//! outside of what [`walser_protocol::api::SERVED`] says, closes the connection, as in Kafka; only ApiVersions is answered
//! in any version, because its answer is how a client learns what to ask for.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use bytes::BytesMut;
use walser_protocol::api::ServedApi;
use walser_protocol::header::RequestHeader;
use walser_protocol::{ApiKey, Reader};
use walser_storage::runtime::Runtime;

use super::{
    CloseReason, Frame, HandlerOutcome, OrderStage, RequestContext, alter_configs, alter_replica_log_dirs,
    api_versions, consumer_group_describe, consumer_group_heartbeat, create_partitions, create_topics, delete_groups,
    delete_records, delete_topics, describe_cluster, describe_configs, describe_groups, describe_log_dirs,
    describe_producers, describe_quorum, describe_topic_partitions, fetch, find_coordinator, heartbeat,
    init_producer_id, join_group, leave_group, list_config_resources, list_groups, list_offsets, metadata,
    offset_commit, offset_delete, offset_fetch, offset_for_leader_epoch, produce, sync_group,
};
use crate::net::admission::MemoryUnits;
use crate::net::connection::ConnectionInfo;
use crate::shard::Shard;

/// Bytes a request other than Produce is charged for each of its own, beside themselves.
const DECODED_FACTOR: usize = 8;

/// What may be worked on beside what on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordering {
    /// Several at a time, begun in order.
    Pipelined,
    /// Alone: after everything before it was answered, and before anything behind it begins. Kafka works on one request of
    /// a connection at a time, so whatever changes state must not overtake and not be overtaken.
    Barrier,
}

/// A started handler.
pub type Handling = Pin<Box<dyn Future<Output = HandlerOutcome>>>;

/// One API key that is served.
#[derive(Clone, Copy)]
pub struct Route {
    pub key: ApiKey,
    pub ordering: Ordering,
    start: fn(RequestContext, Frame) -> Handling,
}

macro_rules! route {
    ($key:ident, $ordering:ident, $handler:path) => {
        Route {
            key: ApiKey::$key,
            ordering: Ordering::$ordering,
            start: |context, frame| Box::pin($handler(context, frame)),
        }
    };
}

/// Every API key that is served, in the order of the keys.
pub const ROUTES: &[Route] = &[
    route!(Produce, Pipelined, produce::handle),
    route!(Fetch, Pipelined, fetch::handle),
    route!(ListOffsets, Barrier, list_offsets::handle),
    route!(Metadata, Barrier, metadata::handle),
    route!(OffsetCommit, Barrier, offset_commit::handle),
    route!(OffsetFetch, Barrier, offset_fetch::handle),
    route!(FindCoordinator, Barrier, find_coordinator::handle),
    route!(JoinGroup, Barrier, join_group::handle),
    route!(Heartbeat, Barrier, heartbeat::handle),
    route!(LeaveGroup, Barrier, leave_group::handle),
    route!(SyncGroup, Barrier, sync_group::handle),
    route!(DescribeGroups, Barrier, describe_groups::handle),
    route!(ListGroups, Barrier, list_groups::handle),
    route!(ApiVersions, Barrier, api_versions::handle),
    route!(CreateTopics, Barrier, create_topics::handle),
    route!(DeleteTopics, Barrier, delete_topics::handle),
    route!(DeleteRecords, Barrier, delete_records::handle),
    route!(InitProducerId, Barrier, init_producer_id::handle),
    route!(OffsetForLeaderEpoch, Barrier, offset_for_leader_epoch::handle),
    route!(DescribeConfigs, Barrier, describe_configs::handle),
    route!(AlterConfigs, Barrier, alter_configs::handle),
    route!(AlterReplicaLogDirs, Barrier, alter_replica_log_dirs::handle),
    route!(DescribeLogDirs, Barrier, describe_log_dirs::handle),
    route!(CreatePartitions, Barrier, create_partitions::handle),
    route!(DeleteGroups, Barrier, delete_groups::handle),
    route!(IncrementalAlterConfigs, Barrier, alter_configs::handle_incremental),
    route!(OffsetDelete, Barrier, offset_delete::handle),
    route!(DescribeQuorum, Barrier, describe_quorum::handle),
    route!(DescribeCluster, Barrier, describe_cluster::handle),
    route!(DescribeProducers, Barrier, describe_producers::handle),
    route!(ConsumerGroupHeartbeat, Barrier, consumer_group_heartbeat::handle),
    route!(ConsumerGroupDescribe, Barrier, consumer_group_describe::handle),
    route!(ListConfigResources, Barrier, list_config_resources::handle),
    route!(DescribeTopicPartitions, Barrier, describe_topic_partitions::handle),
];

/// The versions that are answered, for every key that has a handler.
pub fn served() -> impl Iterator<Item = ServedApi> {
    ROUTES.iter().filter_map(|route| route.key.served())
}

/// A request whose handler has not been started.
pub struct Request {
    route: Route,
    context: RequestContext,
    frame: Frame,
}

impl Request {
    /// Its class.
    pub const fn ordering(&self) -> Ordering {
        self.route.ordering
    }

    /// Its key.
    pub const fn api_key(&self) -> ApiKey {
        self.route.key
    }

    /// Tells when it can no longer be overtaken.
    pub fn order(&self) -> Rc<OrderStage> {
        Rc::clone(&self.context.order)
    }

    /// Makes its future; nothing happens before that is polled.
    pub fn start(self) -> Handling {
        (self.route.start)(self.context, self.frame)
    }
}

/// Finds out what a frame, without its size, asks for.
///
/// # Errors
/// When the connection has to be closed.
pub fn parse(
    shard: &Rc<Shard>,
    connection: &Rc<ConnectionInfo>,
    bytes: BytesMut,
    mut units: MemoryUnits,
) -> Result<Request, CloseReason> {
    let mut reader = Reader::new(&bytes);
    let header = RequestHeader::decode(&mut reader).map_err(CloseReason::Header)?;
    let body_start = bytes.len() - reader.left().len();
    let (api_key, api_version) = (header.api_key, header.api_version);
    let route = find(api_key, api_version).ok_or(CloseReason::Unsupported { api_key, api_version })?;
    if route.key != ApiKey::Produce {
        // All of it is elements, and each becomes more than it was; of a produce request most is records.
        units.grow(bytes.len().saturating_mul(DECODED_FACTOR));
    }
    let context = RequestContext {
        shard: Rc::clone(shard),
        connection: Rc::clone(connection),
        api_key: route.key,
        version: api_version,
        correlation_id: header.correlation_id,
        client_id: connection.client_id(header.client_id),
        received_at: shard.runtime.now(),
        order: Rc::default(),
    };
    Ok(Request { route, context, frame: Frame::new(bytes, body_start, shard.request_elements_max(), units) })
}

fn find(api_key: i16, api_version: i16) -> Option<Route> {
    #[cfg(test)]
    if let Some(route) = tests::faulty_route(api_key) {
        return Some(route);
    }
    let key = ApiKey::from_wire(api_key)?;
    let route = ROUTES.iter().find(|route| route.key == key)?;
    let answers = key == ApiKey::ApiVersions || key.served().is_some_and(|served| served.answers(api_version));
    answers.then_some(*route)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Routes of handlers with a bug, for keys no broker serves: a panic at once, and one after others were let pass.
    pub(super) fn faulty_route(api_key: i16) -> Option<Route> {
        const AT_ONCE: i16 = ApiKey::SaslHandshake.code();
        const LATER: i16 = ApiKey::SaslAuthenticate.code();
        match api_key {
            AT_ONCE => Some(route!(SaslHandshake, Barrier, panic_at_once)),
            LATER => Some(route!(SaslAuthenticate, Pipelined, panic_later)),
            _ => None,
        }
    }

    async fn panic_at_once(_: RequestContext, _: Frame) -> HandlerOutcome {
        panic!("as a bug would")
    }

    async fn panic_later(context: RequestContext, _: Frame) -> HandlerOutcome {
        context.order_fixed();
        crate::shard::runtime::turn().await;
        panic!("as a bug would")
    }

    #[test]
    fn what_has_a_handler_has_versions() {
        // Rule: no key is served without a row in the table of versions, and none twice.
        for route in ROUTES {
            assert!(route.key.served().is_some(), "{}", route.key);
        }
        assert!(ROUTES.windows(2).all(|pair| pair[0].key < pair[1].key));
    }

    #[test]
    fn only_api_versions_is_answered_in_any_version() {
        // Rule: unknown keys and versions find no handler, ApiVersions always does.
        assert!(find(18, 99).is_some());
        assert!(find(18, -1).is_some());
        assert!(find(4, 0).is_none());
        assert!(find(-1, 0).is_none());
        assert!(find(i16::MAX, 0).is_none());
    }
}
