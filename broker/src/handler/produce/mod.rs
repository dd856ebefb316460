//! Produce, versions 3 to 13.
//!
//! One batch of magic 2 per partition; errors are per partition and do not touch the others, but for records that do not
//! even begin as a batch does, which spoil the request. Acknowledged (acks 1 and -1) when the batch is as durable as its
//! topic asks, on stable storage by default. With acks=0 there is no response, and an error closes the connection, because
//! it is the only way to say it. From version 13 topics go by id (KIP-516); from 10 on a wrong leader is answered with the
//! right one (KIP-951); from 8 on with the records that are wrong (KIP-467).
//!
//! Gaps: transactional batches are refused, since there is no transaction coordinator yet.

mod check;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use walser_protocol::messages::produce::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, ProduceRequest,
    ProduceResponse, TopicProduceResponse,
};
use walser_protocol::{ApiKey, ErrorCode};
use walser_storage::log::COPY_BELOW_BYTES;
use walser_storage::validate::ValidateError;
use walser_storage::validate::framing::{first_batch, one_batch};

use super::topics::{ADMIN_CLIENT_ID, NamedTopic, is_internal};
use super::{CloseReason, Frame, HandlerOutcome, RequestContext};
use crate::driver::partition::PartitionId;
use crate::driver::partition::produce::{ProducePart, ProduceShard, Produced, Records, Stored};
use crate::error::Refusal;
use crate::shard::REQUEST_ELEMENT_BYTES;
use crate::shard::placement::ShardId;
use crate::shard::service::{ShardReply, ShardRequest};

/// First version in which a wrong leader is answered with the right one.
const LEADERS_FROM: i16 = 10;
/// First version whose clients know zstd (KIP-110).
const ZSTD_FROM: i16 = 7;
/// First version in which topics go by id.
const TOPIC_IDS_FROM: i16 = 13;

/// The request without its records.
struct Plan {
    acks: i16,
    timeout: Duration,
    topics: Vec<PlannedTopic>,
    slots: Vec<Slot>,
}

impl Plan {
    /// Which topic a partition belongs to.
    fn topic_of(&self, slot: usize) -> &NamedTopic {
        let after = self.topics.partition_point(|planned| planned.slots.start <= slot);
        &self.topics[after - 1].topic
    }
}

struct PlannedTopic {
    topic: NamedTopic,
    slots: std::ops::Range<usize>,
}

/// One partition of the request.
struct Slot {
    index: i32,
    target: Result<PartitionId, Refusal>,
    /// Where its records begin in the frame, and how long they are.
    position: usize,
    len: usize,
}

/// Appends the batches of one request.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let plan = match plan(&context, &frame) {
        Ok(plan) => plan,
        Err(error) => return context.malformed(&error),
    };
    let (bytes, mut units) = frame.into_bytes();
    units.grow(plan.slots.len().saturating_add(plan.topics.len()).saturating_mul(REQUEST_ELEMENT_BYTES));
    let mut by_shard = split(&context, &plan, bytes);
    check::check(&context, &plan, &mut by_shard).await;
    let mut dispatched = Vec::with_capacity(by_shard.len());
    for (owner, parts) in by_shard {
        let request = ProduceShard { acks: plan.acks, timeout: plan.timeout, parts };
        dispatched.push(context.shard.dispatch(owner, ShardRequest::Produce(request)).await);
    }
    context.order_fixed();
    let mut outcomes: Vec<Option<Result<Stored, Refusal>>> = plan.slots.iter().map(|_| None).collect();
    for dispatched in dispatched {
        // A shard that has stopped leaves its places empty.
        let Ok(ShardReply::Produced(produced)) = dispatched.reply().await else { continue };
        for Produced { slot, outcome } in produced {
            outcomes[slot] = Some(outcome);
        }
    }
    drop(units);
    let outcomes = plan.slots.iter().zip(outcomes).map(|(slot, outcome)| match (&slot.target, outcome) {
        (Err(refusal), _) => Err(refusal.clone()),
        (Ok(_), Some(outcome)) => outcome,
        (Ok(_), None) => Err(Refusal::of(ErrorCode::NotLeaderOrFollower)),
    });
    let outcomes = outcomes.collect::<Vec<_>>();
    count(&context, &outcomes);
    answer(&context, &plan, &outcomes)
}

/// Whatever became of them; records and bytes are counted where they are appended.
fn count(context: &RequestContext, outcomes: &[Result<Stored, Refusal>]) {
    let metrics = &context.shard.metrics;
    metrics.produce_partitions.add(outcomes.len() as u64);
    for outcome in outcomes {
        match outcome {
            Ok(_) => metrics.count_error(ApiKey::Produce, ErrorCode::None),
            Err(refusal) => {
                metrics.produce_partitions_failed.increment();
                metrics.count_error(ApiKey::Produce, refusal.code);
            }
        }
    }
}

fn plan(context: &RequestContext, frame: &Frame) -> Result<Plan, walser_protocol::DecodeError> {
    let mut reader = frame.reader();
    let request = ProduceRequest::decode(&mut reader, context.version)?;
    let spoilt = spoilt(&request);
    let image = context.shard.image();
    let mut topics = Vec::with_capacity(request.topic_data.len());
    let mut slots = Vec::new();
    for data in &request.topic_data {
        let topic = if context.version >= TOPIC_IDS_FROM {
            NamedTopic::by_id(&image, data.topic_id)
        } else {
            NamedTopic::by_name(&image, data.name)
        };
        let first = slots.len();
        for partition in &data.partition_data {
            let records = partition.records.unwrap_or_default();
            let target = match &spoilt {
                Some(refusal) => Err(refusal.clone()),
                None => target(context, &request, &topic, partition.index, records),
            };
            let position = if records.is_empty() { 0 } else { frame.position_of(records) };
            slots.push(Slot { index: partition.index, target, position, len: records.len() });
        }
        topics.push(PlannedTopic { topic, slots: first..slots.len() });
    }
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    Ok(Plan { acks: request.acks, timeout, topics, slots })
}

/// Kafka frames the first batch of every partition while it holds the whole request, so one that is none fails them all.
fn spoilt(request: &ProduceRequest<'_>) -> Option<Refusal> {
    let mut all = request.topic_data.iter().flat_map(|topic| &topic.partition_data).filter_map(|data| data.records);
    let error = all.find_map(|records| first_batch(records).err())?;
    Some(Refusal::from_validate(&ValidateError::Corrupt(error), -1))
}

/// The partition to write to, or the first thing that is wrong, in the order in which Kafka finds it.
fn target(
    context: &RequestContext,
    request: &ProduceRequest<'_>,
    topic: &NamedTopic,
    index: i32,
    records: &[u8],
) -> Result<PartitionId, Refusal> {
    let partition = topic.partition(index).map_err(Refusal::of)?;
    one_batch(records, context.version >= ZSTD_FROM).map_err(|error| Refusal::from_validate(&error, -1))?;
    if request.transactional_id.is_some() {
        return Err(Refusal::with_message(
            ErrorCode::InvalidTxnState,
            "transactions are not served: there is no transaction coordinator",
        ));
    }
    if !(-1..=1).contains(&request.acks) {
        return Err(Refusal::of(ErrorCode::InvalidRequiredAcks));
    }
    let is_admin = context.client_id.as_deref() == Some(ADMIN_CLIENT_ID);
    if is_internal(topic.known_name()) && !is_admin {
        return Err(Refusal::with_message(
            ErrorCode::InvalidTopicException,
            format!("{} is an internal topic that clients do not write to", topic.known_name()),
        ));
    }
    Ok(partition)
}

/// Takes the records out of the frame and deals them to the shards that own their partitions.
fn split(context: &RequestContext, plan: &Plan, mut bytes: BytesMut) -> BTreeMap<ShardId, Vec<ProducePart>> {
    let mut by_shard: BTreeMap<ShardId, Vec<ProducePart>> = BTreeMap::new();
    let mut taken = 0;
    let frame_len = bytes.len();
    for (slot, planned) in plan.slots.iter().enumerate() {
        let Ok(partition) = planned.target else { continue };
        let records = if planned.len == 0 {
            BytesMut::new()
        } else {
            bytes.advance(planned.position - taken);
            taken = planned.position + planned.len;
            let records = bytes.split_to(planned.len);
            // A batch is kept long after its request, and would keep all of the frame. Small ones are copied by the log.
            let is_piece = planned.len >= COPY_BELOW_BYTES && planned.len < frame_len / 2;
            if is_piece { BytesMut::from(&records[..]) } else { records }
        };
        let owner = context.shard.owner(partition);
        by_shard.entry(owner).or_default().push(ProducePart { slot, partition, records: Records::Sent(records) });
    }
    by_shard
}

fn answer(context: &RequestContext, plan: &Plan, outcomes: &[Result<Stored, Refusal>]) -> HandlerOutcome {
    if plan.acks == 0 {
        let failed = plan.slots.iter().zip(outcomes).find_map(|(slot, outcome)| Some((slot, outcome.as_ref().err()?)));
        return match failed {
            None => HandlerOutcome::NoReply,
            Some((slot, refusal)) => HandlerOutcome::Close(CloseReason::UnansweredError(format!(
                "partition {}: {}{}",
                slot.index,
                refusal.code.name(),
                refusal.message.as_deref().map(|message| format!(" ({message})")).unwrap_or_default()
            ))),
        };
    }
    let mut is_led_elsewhere = false;
    let responses = plan
        .topics
        .iter()
        .map(|PlannedTopic { topic, slots }| TopicProduceResponse {
            name: &topic.name,
            topic_id: topic.topic_id,
            partition_responses: slots
                .clone()
                .map(|slot| {
                    let response = partition_response(context.version, topic, plan.slots[slot].index, &outcomes[slot]);
                    is_led_elsewhere |= response.error_code == ErrorCode::NotLeaderOrFollower.code();
                    response
                })
                .collect(),
        })
        .collect();
    let listener = &context.connection.listener;
    let mut node_endpoints = Vec::new();
    if is_led_elsewhere && context.version >= LEADERS_FROM {
        node_endpoints.push(NodeEndpoint {
            node_id: context.shard.settings.config.node_id,
            host: &listener.advertised.host,
            port: i32::from(listener.advertised.port),
            rack: context.shard.settings.config.rack.as_deref(),
        });
    }
    context.reply(&ProduceResponse { responses, throttle_time_ms: 0, node_endpoints })
}

fn partition_response<'a>(
    version: i16,
    topic: &NamedTopic,
    index: i32,
    outcome: &'a Result<Stored, Refusal>,
) -> PartitionProduceResponse<'a> {
    match outcome {
        Ok(stored) => PartitionProduceResponse {
            index,
            base_offset: stored.base_offset,
            log_append_time_ms: stored.log_append_time_ms,
            log_start_offset: stored.log_start_offset,
            ..PartitionProduceResponse::default()
        },
        Err(refusal) => {
            let is_elsewhere = refusal.code == ErrorCode::NotLeaderOrFollower;
            let (leader_id, leader_epoch) =
                if is_elsewhere && version >= LEADERS_FROM { topic.leader(index) } else { (-1, -1) };
            PartitionProduceResponse {
                index,
                error_code: refusal.code.code(),
                base_offset: -1,
                log_append_time_ms: -1,
                log_start_offset: refusal.log_start_offset,
                record_errors: refusal
                    .record_errors
                    .iter()
                    .map(|(batch_index, message)| BatchIndexAndErrorMessage {
                        batch_index: *batch_index,
                        batch_index_error_message: message.as_deref(),
                    })
                    .collect(),
                error_message: refusal.message.as_deref(),
                current_leader: LeaderIdAndEpoch { leader_id, leader_epoch },
            }
        }
    }
}
