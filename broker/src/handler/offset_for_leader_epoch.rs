//! OffsetForLeaderEpoch, versions 2 to 4: where a leader epoch ended (KIP-320).

use std::collections::BTreeMap;

use walser_protocol::ErrorCode;
use walser_protocol::messages::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult,
};

use super::topics::NamedTopic;
use super::{Frame, HandlerOutcome, RequestContext};
use crate::driver::partition::offsets::EpochQuery;
use crate::error::Refusal;
use crate::shard::placement::ShardId;
use crate::shard::service::{ShardReply, ShardRequest};

/// Answers with epoch and end offset, -1 and -1 where the epoch is unknown.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match OffsetForLeaderEpochRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let image = context.shard.image();
    let mut outcomes: Vec<Result<(i32, i64), Refusal>> = Vec::new();
    let mut by_shard: BTreeMap<ShardId, Vec<EpochQuery>> = BTreeMap::new();
    for topic in &request.topics {
        let named = NamedTopic::by_name(&image, topic.topic);
        for asked in &topic.partitions {
            match named.partition(asked.partition) {
                Ok(partition) => {
                    by_shard.entry(context.shard.owner(partition)).or_default().push(EpochQuery {
                        slot: outcomes.len(),
                        partition,
                        current_leader_epoch: asked.current_leader_epoch,
                        leader_epoch: asked.leader_epoch,
                    });
                    outcomes.push(Err(Refusal::of(ErrorCode::NotLeaderOrFollower)));
                }
                Err(code) => outcomes.push(Err(Refusal::of(code))),
            }
        }
    }
    let answers = |reply| if let ShardReply::EpochEnds(answers) = reply { Some(answers) } else { None };
    context.ask_owners(by_shard, &mut outcomes, ShardRequest::EpochEnds, answers).await;
    let mut outcomes = outcomes.into_iter();
    let topics = request
        .topics
        .iter()
        .map(|topic| OffsetForLeaderTopicResult {
            topic: topic.topic,
            partitions: topic
                .partitions
                .iter()
                .zip(outcomes.by_ref())
                .map(|(asked, outcome)| {
                    let (error_code, (leader_epoch, end_offset)) = match outcome {
                        Ok(found) => (ErrorCode::None, found),
                        Err(refusal) => (refusal.code, (-1, -1)),
                    };
                    EpochEndOffset {
                        error_code: error_code.code(),
                        partition: asked.partition,
                        leader_epoch,
                        end_offset,
                    }
                })
                .collect(),
        })
        .collect();
    context.reply(&OffsetForLeaderEpochResponse { throttle_time_ms: 0, topics })
}
