//! Fetch, versions 4 to 18, for consumers.
//!
//! Answered at once when there is `min_bytes` to read, when anything has an error or diverges (KIP-320), when nothing is
//! asked for, or when `max_wait_ms` is 0; else parked until then. Partitions are read in the order of the request or session;
//! the first that has data gives at least one batch whatever its size (KIP-74), the others what still fits. The answer has
//! them in that order, those nobody knows at its end. Sessions (KIP-227) live on the shard that began them. From version 13
//! topics go by id; from 16 on a wrong leader is answered with the right one.
//!
//! Gaps: there are no followers yet, so replica ids, rack ids and preferred replicas change nothing.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use walser_machine::fetch_session::{
    FetchContext, FetchKey, FetchWish, FetchedState, NO_SESSION, SessionAnswer, SessionError, SessionRequest, TopicKey,
};
use walser_machine::metadata::MetadataImage;
use walser_protocol::messages::fetch::{
    AbortedTransaction, EpochEndOffset, FetchRequest, FetchResponse, FetchableTopicResponse, LeaderIdAndEpoch,
    NodeEndpoint, PartitionData,
};
use walser_protocol::records::batch::BatchView;
use walser_protocol::types::{Records, Uuid};
use walser_protocol::{ApiKey, DecodeError, ErrorCode};
use walser_storage::runtime::Runtime;
use walser_storage::runtime::channel::Closed;

use super::topics::NamedTopic;
use super::{Frame, HandlerOutcome, RequestContext};
use crate::driver::partition::PartitionId;
use crate::driver::partition::fetch::{FetchPart, FetchShard, FetchWait, Fetched, FetchedData, is_enough};
use crate::error::Refusal;
use crate::net::admission::MemoryUnits;
use crate::shard::REQUEST_ELEMENT_BYTES;
use crate::shard::placement::ShardId;
use crate::shard::service::{ShardReply, ShardRequest};

/// First version in which topics go by id.
const TOPIC_IDS_FROM: i16 = 13;
/// First version in which a wrong leader is answered with the right one.
const LEADERS_FROM: i16 = 12;
/// First version that says where the reader's history parted from the log's.
const DIVERGING_FROM: i16 = 12;
/// First version with sessions.
const SESSIONS_FROM: i16 = 7;
/// First version in which the broker's endpoints go along.
const ENDPOINTS_FROM: i16 = 16;

/// The request as far as it outlives its frame.
struct Plan {
    session: FetchContext,
    limits: Limits,
    /// One for each partition of the session's context.
    slots: Vec<Slot>,
}

/// What holds for all partitions together.
#[derive(Clone, Copy)]
struct Limits {
    max_wait: Duration,
    min_bytes: usize,
    max_bytes: usize,
    read_committed: bool,
}

struct Slot {
    topic: Rc<NamedTopic>,
    index: i32,
    target: Result<FetchPart, ErrorCode>,
}

/// Reads for one request.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let (request, limits) = match parse(&context, &frame) {
        Ok(parsed) => parsed,
        Err(error) => return context.malformed(&error),
    };
    let session = match begin(&context, request).await {
        Ok(session) => session,
        Err(error) => return refuse(&context, error),
    };
    let plan = plan(&context, session, limits);
    let (bytes, mut units) = frame.into_bytes();
    drop(bytes);
    // A session's request names no partition and works on all of them.
    units.settle(plan.slots.len().saturating_mul(REQUEST_ELEMENT_BYTES));
    let (outcomes, mut memory) = read(&context, &plan).await;
    let states: Vec<FetchedState> = plan.slots.iter().zip(&outcomes).map(fetched_state).collect();
    let told = finish(&context, &plan.session, states).await;
    let outcome = answer(&context, &plan, &outcomes, &told);
    drop(outcomes);
    match outcome {
        HandlerOutcome::Reply(mut reply) => {
            memory.settle(reply.len_bytes());
            reply.units = Some(memory);
            HandlerOutcome::Reply(reply)
        }
        other @ (HandlerOutcome::NoReply | HandlerOutcome::Close(_)) => other,
    }
}

/// Begins where the session lives, which is another shard when the client has come back on another connection.
async fn begin(context: &RequestContext, mut request: SessionRequest) -> Result<FetchContext, SessionError> {
    let Some(home) = home(context, request.session_id) else { return context.shard.begin_fetch(request) };
    if request.is_full() {
        // The new session begins here.
        let closing = ShardRequest::CloseFetchSession(request.session_id);
        request.session_id = NO_SESSION;
        // A shard that has stopped has no sessions.
        drop(context.shard.dispatch(home, closing).await.reply().await);
        return context.shard.begin_fetch(request);
    }
    match context.shard.dispatch(home, ShardRequest::BeginFetch(request)).await.reply().await {
        Ok(ShardReply::FetchBegun(begun)) => begun,
        Ok(_) | Err(Closed) => Err(SessionError::IdNotFound),
    }
}

async fn finish(context: &RequestContext, session: &FetchContext, states: Vec<FetchedState>) -> SessionAnswer {
    let session_id = session.session_id().unwrap_or(NO_SESSION);
    let Some(home) = home(context, session_id) else { return context.shard.finish_fetch(session, &states) };
    let all = vec![true; states.len()];
    let finishing = ShardRequest::FinishFetch(session.clone(), states);
    match context.shard.dispatch(home, finishing).await.reply().await {
        Ok(ShardReply::FetchFinished(told)) => told,
        Ok(_) | Err(Closed) => SessionAnswer { session_id, include: all },
    }
}

/// The other shard that a session lives on.
fn home(context: &RequestContext, session_id: i32) -> Option<ShardId> {
    let place = context.shard.placement.session_ids().place_of(session_id)?;
    Some(ShardId::new(place)).filter(|home| *home != context.shard.id)
}

fn parse(context: &RequestContext, frame: &Frame) -> Result<(SessionRequest, Limits), DecodeError> {
    let mut reader = frame.reader();
    let request = FetchRequest::decode(&mut reader, context.version)?;
    let positive = |raw: i32| usize::try_from(raw).unwrap_or(0);
    let limit = context.shard.fetch_bytes_max().min(context.shard.response_bytes_max());
    let max_bytes = positive(request.max_bytes).min(limit);
    let limits = Limits {
        max_wait: Duration::from_millis(positive(request.max_wait_ms) as u64),
        min_bytes: positive(request.min_bytes).min(max_bytes),
        max_bytes,
        read_committed: request.isolation_level == 1,
    };
    Ok((session_request(context, &request), limits))
}

fn session_request(context: &RequestContext, request: &FetchRequest<'_>) -> SessionRequest {
    let uses_topic_ids = context.version >= TOPIC_IDS_FROM;
    let key = |name: &str, id: Uuid| match uses_topic_ids {
        true => TopicKey::Id(id),
        false => TopicKey::Name(name.into()),
    };
    let mut partitions = Vec::new();
    for topic in &request.topics {
        let topic_key = key(topic.topic, topic.topic_id);
        for partition in &topic.partitions {
            let wish = FetchWish {
                fetch_offset: partition.fetch_offset,
                partition_max_bytes: partition.partition_max_bytes,
                // In this request any negative epoch is none.
                current_leader_epoch: partition.current_leader_epoch.max(-1),
                last_fetched_epoch: partition.last_fetched_epoch,
            };
            partitions.push((FetchKey { topic: topic_key.clone(), partition_index: partition.partition }, wish));
        }
    }
    let mut forgotten = Vec::new();
    for topic in &request.forgotten_topics_data {
        let topic_key = key(topic.topic, topic.topic_id);
        let keys = topic.partitions.iter().map(|index| FetchKey { topic: topic_key.clone(), partition_index: *index });
        forgotten.extend(keys);
    }
    let session_epoch = if context.version >= SESSIONS_FROM { request.session_epoch } else { -1 };
    SessionRequest { session_id: request.session_id, session_epoch, uses_topic_ids, partitions, forgotten }
}

/// Puts what cannot be read behind the rest: so Kafka answers, and so a session begins.
fn plan(context: &RequestContext, mut session: FetchContext, limits: Limits) -> Plan {
    let found = find(&context.shard.image(), &session);
    let mut wanted: Vec<_> = std::mem::take(&mut session.partitions).into_iter().zip(found).collect();
    session.known_as.clear();
    wanted.sort_by_key(|(_, (_, partition))| match partition {
        Err(ErrorCode::UnknownTopicId) => 1,
        found if is_unasked(found) => 2,
        Ok(_) | Err(_) => 0,
    });
    let mut slots = Vec::with_capacity(wanted.len());
    for (slot, ((key, wish), (topic, partition))) in wanted.into_iter().enumerate() {
        let target = partition.map(|partition| FetchPart {
            slot,
            partition,
            fetch_offset: wish.fetch_offset,
            max_bytes: usize::try_from(wish.partition_max_bytes).unwrap_or(0),
            current_leader_epoch: wish.current_leader_epoch,
            // A session of a newer client may be gone on with in a version that could not be told of a divergence.
            last_fetched_epoch: if context.version >= DIVERGING_FROM { wish.last_fetched_epoch } else { -1 },
        });
        slots.push(Slot { topic, index: key.partition_index, target });
        session.partitions.push((key, wish));
    }
    Plan { session, limits, slots }
}

/// What the partitions of a session are, one for each, in its order.
fn find(image: &MetadataImage, session: &FetchContext) -> Vec<(Rc<NamedTopic>, Result<PartitionId, ErrorCode>)> {
    let mut last: Option<(&TopicKey, Rc<NamedTopic>)> = None;
    let mut found = Vec::with_capacity(session.partitions.len());
    for (at, (key, _)) in session.partitions.iter().enumerate() {
        let topic = match &last {
            Some((known, topic)) if **known == key.topic => Rc::clone(topic),
            Some(_) | None => Rc::new(match &key.topic {
                TopicKey::Name(name) => NamedTopic::by_name(image, name),
                TopicKey::Id(id) => NamedTopic::by_id(image, *id),
            }),
        };
        last = Some((&key.topic, Rc::clone(&topic)));
        let index = key.partition_index;
        let known_as = session.known_as.get(at).and_then(Option::as_deref);
        let partition = topic.partition(index).map_err(|code| missing(image, code, known_as, index));
        found.push((topic, partition));
    }
    found
}

/// A topic that the session has known and that is gone is no unknown id, least of all when there is another of its name.
fn missing(image: &MetadataImage, code: ErrorCode, known_as: Option<&str>, index: i32) -> ErrorCode {
    match known_as {
        Some(name) if code == ErrorCode::UnknownTopicId => {
            let is_another = image.topic(name).is_some_and(|topic| topic.partition(index).is_some());
            if is_another { ErrorCode::InconsistentTopicId } else { ErrorCode::UnknownTopicOrPartition }
        }
        _ => code,
    }
}

/// Reads every partition, waiting where that is asked for; one outcome for each slot. What is read is held in memory until
/// the client has taken it, so there has to be room for it first; while it is waited for, none is held.
async fn read(context: &RequestContext, plan: &Plan) -> (Vec<Result<FetchedData, Refusal>>, MemoryUnits) {
    let mut by_shard: BTreeMap<ShardId, Vec<FetchPart>> = BTreeMap::new();
    for part in plan.slots.iter().filter_map(|slot| slot.target.as_ref().ok()) {
        let owner = context.shard.owner(part.partition);
        by_shard.entry(owner).or_default().push(*part);
    }
    let may_wait = !plan.limits.max_wait.is_zero()
        && plan.limits.min_bytes > 0
        && !plan.slots.is_empty()
        && plan.slots.iter().all(|slot| slot.target.is_ok());
    let memory = room(context, plan, &by_shard).await;
    if context.connection.is_broken() {
        // Others wait for the memory.
        return (fill(plan, Vec::new()), memory);
    }
    let fetched = fetch_all(context, plan, &by_shard).await;
    if !may_wait || is_enough(&fetched, plan.limits.min_bytes) {
        return (fill(plan, fetched), memory);
    }
    drop(memory);
    wait_any(context, plan, &by_shard, fetched).await;
    let memory = room(context, plan, &by_shard).await;
    (fill(plan, fetch_all(context, plan, &by_shard).await), memory)
}

/// Memory for the most that may be read.
async fn room(context: &RequestContext, plan: &Plan, by_shard: &BTreeMap<ShardId, Vec<FetchPart>>) -> MemoryUnits {
    let wished = by_shard.values().flatten().fold(0_usize, |sum, part| sum.saturating_add(part.max_bytes));
    context.shard.wait_for_memory(context.shard.replies.acquire(wished.min(plan.limits.max_bytes))).await
}

fn fetch_shard(plan: &Plan, parts: &[FetchPart]) -> FetchShard {
    let Limits { max_bytes, read_committed, .. } = plan.limits;
    FetchShard { parts: parts.to_vec(), max_bytes, read_committed }
}

/// One message to every owner; the answers in no order.
async fn fetch_all(
    context: &RequestContext,
    plan: &Plan,
    by_shard: &BTreeMap<ShardId, Vec<FetchPart>>,
) -> Vec<Fetched> {
    let mut dispatched = Vec::with_capacity(by_shard.len());
    for (owner, parts) in by_shard {
        let request = ShardRequest::Fetch(fetch_shard(plan, parts));
        dispatched.push(context.shard.dispatch(*owner, request).await);
    }
    context.order_fixed();
    let mut fetched = Vec::with_capacity(plan.slots.len());
    for dispatched in dispatched {
        if let Ok(ShardReply::Fetched(parts)) = dispatched.reply().await {
            fetched.extend(parts);
        }
    }
    fetched
}

/// Waits on every owner until one of them has its share of what is missing.
async fn wait_any(
    context: &RequestContext,
    plan: &Plan,
    by_shard: &BTreeMap<ShardId, Vec<FetchPart>>,
    fetched: Vec<Fetched>,
) {
    let mut have = vec![0; plan.slots.len()];
    for Fetched { slot, outcome } in fetched {
        have[slot] = outcome.map_or(0, |data| data.bytes);
    }
    let missing = plan.limits.min_bytes.saturating_sub(have.iter().sum()).max(1);
    let waited = context.shard.runtime.now().saturating_since(context.received_at);
    let wait = FetchWait {
        id: (context.connection.id, context.shard.next_wait()),
        min_bytes: 0,
        wait: plan.limits.max_wait.saturating_sub(waited),
    };
    let mut waiting = Vec::with_capacity(by_shard.len());
    for (owner, parts) in by_shard {
        // The owner counts what it has already given, too.
        let given: usize = parts.iter().map(|part| have[part.slot]).sum();
        let mine = given + missing.div_ceil(by_shard.len());
        let wait = FetchWait { min_bytes: mine, ..wait };
        let request = ShardRequest::WaitForData(fetch_shard(plan, parts), wait);
        waiting.push(context.shard.dispatch(*owner, request).await);
    }
    let guard = CancelOnDrop { context, owners: by_shard.keys().copied().collect(), wait };
    let mut replies: Vec<_> = waiting.into_iter().map(|dispatched| Box::pin(dispatched.reply())).collect();
    std::future::poll_fn(|task| {
        let is_any = replies.iter_mut().any(|reply| reply.as_mut().poll(task).is_ready());
        if is_any { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    drop(guard);
}

/// Ends parked waits on other shards when the fetch is answered from elsewhere or its connection goes.
struct CancelOnDrop<'a> {
    context: &'a RequestContext,
    owners: Vec<ShardId>,
    wait: FetchWait,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        for owner in self.owners.drain(..) {
            self.context.shard.cancel_wait(owner, self.wait.id);
        }
    }
}

/// One outcome for each slot, within the byte limit in the order of the request.
fn fill(plan: &Plan, fetched: Vec<Fetched>) -> Vec<Result<FetchedData, Refusal>> {
    let mut outcomes: Vec<Result<FetchedData, Refusal>> = plan
        .slots
        .iter()
        .map(|slot| match &slot.target {
            Ok(_) => Err(Refusal::of(ErrorCode::NotLeaderOrFollower)),
            Err(code) => Err(Refusal::of(*code)),
        })
        .collect();
    for Fetched { slot, outcome } in fetched {
        outcomes[slot] = outcome;
    }
    let mut left = plan.limits.max_bytes;
    let mut is_first = true;
    for (slot, outcome) in plan.slots.iter().zip(&mut outcomes) {
        let (Ok(part), Ok(data)) = (&slot.target, outcome) else { continue };
        // Each owner read as if it were alone: what is too much together is given up again, whole batches at a time.
        let allowed = part.max_bytes.min(left);
        if data.bytes == 0 {
            data.is_first_cut &= allowed > 0;
            continue;
        }
        if data.bytes > allowed {
            let read_bytes = data.bytes;
            keep_whole_batches(data, allowed, is_first);
            data.is_first_cut = data.bytes == 0 && allowed > 0;
            data.is_cut = data.bytes > 0 && (data.is_cut || data.bytes < read_bytes);
        }
        is_first &= data.bytes == 0;
        left = left.saturating_sub(data.charged_bytes(allowed));
    }
    outcomes
}

/// Keeps the batches that fit into `max_bytes`, and the first in any case when `min_one_batch`.
fn keep_whole_batches(data: &mut FetchedData, max_bytes: usize, min_one_batch: bool) {
    let mut kept = 0;
    let mut slices: Vec<Bytes> = Vec::new();
    for slice in &data.slices {
        let mut end = 0;
        while let Some(Ok((batch, _))) = slice.get(end..).filter(|rest| !rest.is_empty()).map(BatchView::parse) {
            let total = batch.total_len();
            let is_fitting = kept + total <= max_bytes || (min_one_batch && kept == 0);
            if !is_fitting {
                break;
            }
            end += total;
            kept += total;
        }
        if end > 0 {
            slices.push(slice.slice(..end));
        }
        if end < slice.len() {
            break;
        }
    }
    data.slices = slices;
    data.bytes = kept;
}

fn refuse(context: &RequestContext, error: SessionError) -> HandlerOutcome {
    let code = match error {
        SessionError::IdNotFound => ErrorCode::FetchSessionIdNotFound,
        SessionError::InvalidEpoch => ErrorCode::InvalidFetchSessionEpoch,
        SessionError::TopicIdError => ErrorCode::FetchSessionTopicIdError,
    };
    context.shard.metrics.count_error(ApiKey::Fetch, code);
    context.reply(&FetchResponse { error_code: code.code(), ..FetchResponse::default() })
}

fn answer(
    context: &RequestContext,
    plan: &Plan,
    outcomes: &[Result<FetchedData, Refusal>],
    told: &SessionAnswer,
) -> HandlerOutcome {
    count(context, outcomes);
    let mut responses: Vec<FetchableTopicResponse<'_>> = Vec::new();
    let mut last: Option<&NamedTopic> = None;
    let mut is_led_elsewhere = false;
    for ((slot, outcome), _) in plan.slots.iter().zip(outcomes).zip(&told.include).filter(|(_, include)| **include) {
        let is_same = |topic: &NamedTopic| topic.topic_id == slot.topic.topic_id && topic.name == slot.topic.name;
        if !last.is_some_and(is_same) {
            responses.push(FetchableTopicResponse {
                topic: &slot.topic.name,
                topic_id: slot.topic.topic_id,
                partitions: Vec::new(),
            });
            last = Some(&slot.topic);
        }
        let data = partition_data(context.version, slot, outcome, plan.limits.read_committed);
        is_led_elsewhere |= data.error_code == ErrorCode::NotLeaderOrFollower.code();
        if let Some(topic) = responses.last_mut() {
            topic.partitions.push(data);
        }
    }
    let listener = &context.connection.listener;
    let mut node_endpoints = Vec::new();
    if is_led_elsewhere && context.version >= ENDPOINTS_FROM {
        node_endpoints.push(NodeEndpoint {
            node_id: context.shard.settings.config.node_id,
            host: &listener.advertised.host,
            port: i32::from(listener.advertised.port),
            rack: context.shard.settings.config.rack.as_deref(),
        });
    }
    let session_id = told.session_id;
    context.reply(&FetchResponse { session_id, responses, node_endpoints, ..FetchResponse::default() })
}

/// Counted here, where what a wait read before and what did not fit is gone.
fn count(context: &RequestContext, outcomes: &[Result<FetchedData, Refusal>]) {
    let metrics = &context.shard.metrics;
    metrics.fetch_partitions.add(outcomes.len() as u64);
    for outcome in outcomes {
        match outcome {
            Ok(data) => {
                metrics.fetched_bytes.add(data.bytes as u64);
                metrics.count_error(ApiKey::Fetch, ErrorCode::None);
            }
            Err(refusal) => {
                metrics.fetch_partitions_failed.increment();
                metrics.count_error(ApiKey::Fetch, refusal.code);
            }
        }
    }
}

fn fetched_state((slot, outcome): (&Slot, &Result<FetchedData, Refusal>)) -> FetchedState {
    let is_by_id = !slot.topic.topic_id.is_zero();
    let topic_name = slot.topic.found.as_ref().ok().filter(|_| is_by_id).map(|topic| Arc::clone(&topic.name));
    match outcome {
        Ok(data) => FetchedState {
            has_records: data.bytes > 0,
            high_watermark: data.high_watermark,
            log_start_offset: data.log_start_offset,
            must_respond: data.diverging.is_some(),
            is_error: false,
            topic_name,
        },
        Err(_) => FetchedState {
            has_records: false,
            high_watermark: -1,
            log_start_offset: -1,
            must_respond: true,
            is_error: true,
            topic_name,
        },
    }
}

/// The error was found without the log; one log of the same name was still looked at.
fn is_unasked<T>(target: &Result<T, ErrorCode>) -> bool {
    target.as_ref().is_err_and(|code| *code != ErrorCode::InconsistentTopicId)
}

fn partition_data<'a>(
    version: i16,
    slot: &Slot,
    outcome: &'a Result<FetchedData, Refusal>,
    read_committed: bool,
) -> PartitionData<'a> {
    match outcome {
        Ok(data) => {
            let (epoch, end_offset) = data.diverging.unwrap_or((-1, -1));
            // Kafka names the aborted ones of what it reads, even if that is nothing.
            let is_read = read_committed && data.diverging.is_none() && !data.is_first_cut;
            let aborted = || {
                let one = |(producer_id, first_offset): &(i64, i64)| AbortedTransaction {
                    producer_id: *producer_id,
                    first_offset: *first_offset,
                };
                data.aborted.iter().map(one).collect()
            };
            PartitionData {
                partition_index: slot.index,
                high_watermark: data.high_watermark,
                last_stable_offset: data.last_stable_offset,
                log_start_offset: data.log_start_offset,
                diverging_epoch: EpochEndOffset { epoch, end_offset },
                aborted_transactions: is_read.then(aborted),
                records: Some(Records::Chunks(&data.slices)),
                ..PartitionData::default()
            }
        }
        Err(refusal) => {
            let is_elsewhere = matches!(refusal.code, ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch);
            let (leader_id, leader_epoch) =
                if is_elsewhere && version >= LEADERS_FROM { slot.topic.leader(slot.index) } else { (-1, -1) };
            PartitionData {
                partition_index: slot.index,
                error_code: refusal.code.code(),
                high_watermark: -1,
                last_stable_offset: -1,
                log_start_offset: -1,
                current_leader: LeaderIdAndEpoch { leader_id, leader_epoch },
                // A partition that was not even asked for has none; of one that could not be read they are not known.
                aborted_transactions: is_unasked(&slot.target).then(Vec::new),
                records: Some(Records::default()),
                ..PartitionData::default()
            }
        }
    }
}
