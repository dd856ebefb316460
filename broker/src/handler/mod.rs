//! Requests: one file per API key or close family, and what they have in common.
//!
//! A handler is `pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome`, registered by one line in
//! [`dispatch`]. It is polled once at its turn on the connection. A pipelined one (Produce, Fetch) calls
//! [`RequestContext::order_fixed`] as soon as nothing that follows on the connection can overtake it, which is when its
//! requests to the owner shards are queued; until then, and for every other key to the very end, the connection reads no
//! further. A handler never touches a log: what a shard owns is reached through [`crate::shard::service`].

pub mod alter_configs;
pub mod alter_replica_log_dirs;
pub mod api_versions;
pub mod consumer_group_describe;
pub mod consumer_group_heartbeat;
pub mod create_partitions;
pub mod create_topics;
pub mod delete_groups;
pub mod delete_records;
pub mod delete_topics;
pub mod describe_cluster;
pub mod describe_configs;
pub mod describe_groups;
pub mod describe_log_dirs;
pub mod describe_producers;
pub mod describe_quorum;
pub mod describe_topic_partitions;
pub mod dispatch;
pub mod fetch;
pub mod find_coordinator;
pub mod groups;
pub mod heartbeat;
pub mod init_producer_id;
pub mod join_group;
pub mod leave_group;
pub mod list_config_resources;
pub mod list_groups;
pub mod list_offsets;
pub mod metadata;
pub mod offset_commit;
pub mod offset_delete;
pub mod offset_fetch;
pub mod offset_for_leader_epoch;
pub mod produce;
pub mod sync_group;
pub mod topics;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::BytesMut;
use walser_protocol::header::encode_response;
use walser_protocol::messages::Body;
use walser_protocol::{ApiKey, DecodeError, EncodeError, Reader};
use walser_storage::runtime::Instant;
use walser_storage::runtime::channel::Notify;

use crate::driver::partition::offsets::Answer;
use crate::error::Refusal;
use crate::net::admission::MemoryUnits;
use crate::net::connection::ConnectionInfo;
use crate::net::response_queue::Reply;
use crate::shard::Shard;
use crate::shard::placement::ShardId;
use crate::shard::service::{ShardReply, ShardRequest};

/// One request as it came, after its size prefix. It is the only view of its bytes, so what is split off is not copied.
pub struct Frame {
    bytes: BytesMut,
    body_start: usize,
    elements_max: usize,
    /// Memory the frame was charged before it was read; whoever keeps the bytes keeps the units.
    pub units: MemoryUnits,
}

impl Frame {
    /// `body_start`: length of the request header. `elements_max`: what its arrays may hold together.
    pub fn new(bytes: BytesMut, body_start: usize, elements_max: usize, units: MemoryUnits) -> Self {
        assert!(body_start <= bytes.len());
        Self { bytes, body_start, elements_max, units }
    }

    /// The request behind its header.
    pub fn body(&self) -> &[u8] {
        &self.bytes[self.body_start..]
    }

    /// Over the body; what is decoded from it has no more elements than there is memory for.
    pub fn reader(&self) -> Reader<'_> {
        Reader::with_elements_max(self.body(), self.elements_max)
    }

    /// Bytes of header and body.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Where `part`, a slice of [`Frame::body`], stands in [`Frame::into_bytes`].
    ///
    /// # Panics
    /// When `part` is not a slice of this frame.
    pub fn position_of(&self, part: &[u8]) -> usize {
        let frame = self.bytes.as_ptr_range();
        let part = part.as_ptr_range();
        assert!(frame.start <= part.start && part.end <= frame.end, "a slice of this frame");
        part.start.addr() - frame.start.addr()
    }

    /// Header and body, to split parts off in ascending order of position, and the memory they are charged for.
    pub fn into_bytes(self) -> (BytesMut, MemoryUnits) {
        (self.bytes, self.units)
    }
}

/// Replies up to this are bounded by their number.
const UNCHARGED_BYTES_MAX: usize = 4 << 10;

/// What becomes of a request.
pub enum HandlerOutcome {
    /// The encoded response.
    Reply(Reply),
    /// There is none by protocol: Produce with acks=0 that went well.
    NoReply,
    /// The connection is closed without an answer, with the reason for the log.
    Close(CloseReason),
}

/// Why a connection is closed.
#[derive(Debug, thiserror::Error)]
pub enum CloseReason {
    #[error("frame of {len} bytes; allowed are 0 to {len_max}")]
    FrameSize { len: i64, len_max: usize },
    #[error("malformed request header: {0}")]
    Header(DecodeError),
    #[error("API key {api_key} version {api_version} is not served")]
    Unsupported { api_key: i16, api_version: i16 },
    #[error("malformed {api} version {version}: {source}")]
    Malformed { api: ApiKey, version: i16, source: DecodeError },
    /// acks=0 has no response that could carry it.
    #[error("produce with acks=0 failed: {0}")]
    UnansweredError(String),
    #[error("{api} version {version}: response could not be encoded: {source}")]
    Encode { api: ApiKey, version: i16, source: EncodeError },
}

/// Tells the connection when a pipelined request can no longer be overtaken.
#[derive(Default)]
pub struct OrderStage {
    fixed: Cell<bool>,
    changed: Notify,
}

impl OrderStage {
    /// Ready once the order is fixed.
    pub async fn wait_fixed(&self) {
        while !self.fixed.get() {
            self.changed.notified().await;
        }
    }

    /// For the connection: a handler that has ended can no longer be overtaken either.
    pub fn set_fixed(&self) {
        self.fixed.set(true);
        self.changed.notify_all();
    }
}

/// What a handler knows beside the request itself.
#[derive(Clone)]
pub struct RequestContext {
    pub shard: Rc<Shard>,
    pub connection: Rc<ConnectionInfo>,
    pub api_key: ApiKey,
    pub version: i16,
    pub correlation_id: i32,
    /// Null and empty are different on the wire, and the same to quotas and logs.
    pub client_id: Option<Rc<str>>,
    /// When the last byte of the frame had come.
    pub received_at: Instant,
    order: Rc<OrderStage>,
}

impl RequestContext {
    /// Asks every owner shard for its part; answers go to their places. A shard that has stopped leaves its own as they are.
    pub async fn ask_owners<Q, T>(
        &self,
        by_shard: BTreeMap<ShardId, Vec<Q>>,
        outcomes: &mut [Result<T, Refusal>],
        ask: fn(Vec<Q>) -> ShardRequest,
        answers: fn(ShardReply) -> Option<Vec<Answer<T>>>,
    ) {
        for (owner, queries) in by_shard {
            let reply = self.shard.dispatch(owner, ask(queries)).await.reply().await;
            for answer in reply.ok().and_then(answers).unwrap_or_default() {
                outcomes[answer.slot] = answer.outcome;
            }
        }
    }

    /// Nothing that follows on this connection can overtake this request any more.
    pub fn order_fixed(&self) {
        self.order.set_fixed();
    }

    /// Encodes the response.
    pub fn reply(&self, body: &dyn Body) -> HandlerOutcome {
        self.reply_in_version(self.version, body)
    }

    /// Encodes a response in another version than that of the request; only ApiVersions needs that.
    pub fn reply_in_version(&self, version: i16, body: &dyn Body) -> HandlerOutcome {
        match encode_response(self.api_key, version, self.correlation_id, body) {
            Ok(bytes) => {
                let mut reply = Reply::from_bytes(bytes.freeze());
                if reply.len_bytes() > UNCHARGED_BYTES_MAX {
                    reply.units = Some(self.shard.replies.charge(reply.len_bytes()));
                }
                HandlerOutcome::Reply(reply)
            }
            Err(source) => HandlerOutcome::Close(CloseReason::Encode { api: self.api_key, version, source }),
        }
    }

    /// The answer to a body that cannot be decoded: none, and the end of the connection, as in Kafka.
    pub fn malformed(&self, source: &DecodeError) -> HandlerOutcome {
        HandlerOutcome::Close(CloseReason::Malformed { api: self.api_key, version: self.version, source: *source })
    }
}
