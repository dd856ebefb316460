//! ListOffsets, versions 1 to 11.
//!
//! -1 the end a reader of this isolation level sees, -2 the start, -3 the first record with the largest timestamp, -4 as -2
//! and -5, -6 "none" without tiering, else the first record at or after the time. A time after all records is no error:
//! timestamp and offset are -1.
//!
//! Gaps: there are no elections yet, so OFFSET_NOT_AVAILABLE never occurs.

use std::collections::{BTreeMap, BTreeSet};

use walser_protocol::ErrorCode;
use walser_protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopicResponse,
};

use super::topics::NamedTopic;
use super::{Frame, HandlerOutcome, RequestContext};
use crate::driver::partition::offsets::{BAD_TIMESTAMP, FoundOffset, OffsetQuery, OffsetSpec};
use crate::error::Refusal;
use crate::shard::placement::ShardId;
use crate::shard::service::{ShardReply, ShardRequest};

/// First version that has leader epochs.
const LEADER_EPOCHS_FROM: i16 = 4;
/// The first versions in which -3, -4, -5 and -6 mean something.
const SPECIAL_FROM: [(OffsetSpec, i16); 4] = [
    (OffsetSpec::MaxTimestamp, 7),
    (OffsetSpec::EarliestLocal, 8),
    (OffsetSpec::LatestTiered, 9),
    (OffsetSpec::EarliestPendingUpload, 11),
];

/// Finds offsets.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match ListOffsetsRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let image = context.shard.image();
    let mut outcomes: Vec<Result<FoundOffset, Refusal>> = Vec::new();
    let mut by_shard: BTreeMap<ShardId, Vec<OffsetQuery>> = BTreeMap::new();
    for topic in &request.topics {
        let named = NamedTopic::by_name(&image, topic.name);
        let twice = twice(&topic.partitions);
        for asked in &topic.partitions {
            let slot = outcomes.len();
            let target = if twice.contains(&asked.partition_index) {
                Err(ErrorCode::InvalidRequest)
            } else {
                spec(&context, asked.timestamp).and_then(|spec| Ok((named.partition(asked.partition_index)?, spec)))
            };
            match target {
                Ok((partition, spec)) => {
                    let query = OffsetQuery {
                        slot,
                        partition,
                        current_leader_epoch: asked.current_leader_epoch,
                        spec,
                        read_committed: request.isolation_level == 1,
                    };
                    by_shard.entry(context.shard.owner(partition)).or_default().push(query);
                    outcomes.push(Err(Refusal::of(ErrorCode::NotLeaderOrFollower)));
                }
                Err(code) => outcomes.push(Err(Refusal::of(code))),
            }
        }
    }
    let answers = |reply| if let ShardReply::OffsetsListed(answers) = reply { Some(answers) } else { None };
    context.ask_owners(by_shard, &mut outcomes, ShardRequest::ListOffsets, answers).await;
    reply(&context, &request, &outcomes)
}

/// What is asked more than once, which is refused.
fn twice(partitions: &[ListOffsetsPartition]) -> BTreeSet<i32> {
    let mut indexes: Vec<i32> = partitions.iter().map(|asked| asked.partition_index).collect();
    indexes.sort_unstable();
    indexes.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect()
}

fn spec(context: &RequestContext, timestamp: i64) -> Result<OffsetSpec, ErrorCode> {
    let spec = OffsetSpec::from_wire(timestamp).ok_or(BAD_TIMESTAMP)?;
    let is_known = SPECIAL_FROM.iter().all(|(special, from)| *special != spec || context.version >= *from);
    if is_known { Ok(spec) } else { Err(ErrorCode::UnsupportedVersion) }
}

fn reply(
    context: &RequestContext,
    request: &ListOffsetsRequest<'_>,
    outcomes: &[Result<FoundOffset, Refusal>],
) -> HandlerOutcome {
    let mut outcomes = outcomes.iter();
    let topics = request
        .topics
        .iter()
        .map(|topic| {
            let twice = twice(&topic.partitions);
            let mut told = BTreeSet::new();
            let partitions = topic
                .partitions
                .iter()
                .zip(outcomes.by_ref())
                // What is asked twice is refused once.
                .filter(|(asked, _)| !twice.contains(&asked.partition_index) || told.insert(asked.partition_index))
                .map(|(asked, outcome)| partition_response(context.version, asked.partition_index, outcome))
                .collect();
            ListOffsetsTopicResponse { name: topic.name, partitions }
        })
        .collect();
    context.reply(&ListOffsetsResponse { throttle_time_ms: 0, topics })
}

fn partition_response(
    version: i16,
    partition_index: i32,
    outcome: &Result<FoundOffset, Refusal>,
) -> ListOffsetsPartitionResponse {
    match outcome {
        Ok(found) => ListOffsetsPartitionResponse {
            partition_index,
            timestamp: found.timestamp,
            offset: found.offset,
            leader_epoch: if version >= LEADER_EPOCHS_FROM { found.leader_epoch } else { -1 },
            ..ListOffsetsPartitionResponse::default()
        },
        Err(refusal) => ListOffsetsPartitionResponse {
            partition_index,
            error_code: refusal.code.code(),
            timestamp: -1,
            offset: -1,
            ..ListOffsetsPartitionResponse::default()
        },
    }
}
