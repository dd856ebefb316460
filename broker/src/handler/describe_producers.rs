//! DescribeProducers, version 0: who has written to a partition (KIP-664).

use std::collections::BTreeMap;

use walser_machine::metadata::topic_name::validate_topic_name;
use walser_protocol::ErrorCode;
use walser_protocol::messages::describe_producers::{
    DescribeProducersRequest, DescribeProducersResponse, PartitionResponse, ProducerState, TopicResponse,
};

use super::topics::NamedTopic;
use super::{Frame, HandlerOutcome, RequestContext};
use crate::driver::partition::PartitionId;
use crate::driver::partition::offsets::ActiveProducer;
use crate::error::Refusal;
use crate::shard::placement::ShardId;
use crate::shard::service::{ShardReply, ShardRequest};

/// Lists producers in ascending order of id.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match DescribeProducersRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let image = context.shard.image();
    let mut outcomes: Vec<Result<Vec<ActiveProducer>, Refusal>> = Vec::new();
    let mut by_shard: BTreeMap<ShardId, Vec<(usize, PartitionId)>> = BTreeMap::new();
    for topic in &request.topics {
        let named = NamedTopic::by_name(&image, topic.name);
        for index in &topic.partition_indexes {
            match named.partition(*index) {
                Ok(partition) => {
                    by_shard.entry(context.shard.owner(partition)).or_default().push((outcomes.len(), partition));
                    outcomes.push(Err(Refusal::of(ErrorCode::NotLeaderOrFollower)));
                }
                Err(code) => outcomes.push(Err(missing(topic.name, code))),
            }
        }
    }
    let answers = |reply| if let ShardReply::Producers(answers) = reply { Some(answers) } else { None };
    context.ask_owners(by_shard, &mut outcomes, ShardRequest::DescribeProducers, answers).await;
    let mut outcomes = outcomes.iter();
    let topics = request
        .topics
        .iter()
        .map(|topic| TopicResponse {
            name: topic.name,
            partitions: topic
                .partition_indexes
                .iter()
                .zip(outcomes.by_ref())
                .map(|(index, outcome)| partition_response(*index, outcome))
                .collect(),
        })
        .collect();
    context.reply(&DescribeProducersResponse { throttle_time_ms: 0, topics })
}

/// What no topic can be named is another error than a topic that is not there.
fn missing(topic: &str, code: ErrorCode) -> Refusal {
    match validate_topic_name(topic) {
        Ok(()) => Refusal::of(code),
        Err(error) => Refusal::with_message(ErrorCode::InvalidTopicException, error.to_string()),
    }
}

fn partition_response(index: i32, outcome: &Result<Vec<ActiveProducer>, Refusal>) -> PartitionResponse<'_> {
    match outcome {
        Ok(producers) => PartitionResponse {
            partition_index: index,
            active_producers: producers
                .iter()
                .map(|producer| ProducerState {
                    producer_id: producer.producer_id,
                    producer_epoch: i32::from(producer.producer_epoch),
                    last_sequence: producer.last_sequence,
                    last_timestamp: producer.last_timestamp,
                    coordinator_epoch: producer.coordinator_epoch,
                    current_txn_start_offset: producer.current_txn_start_offset,
                })
                .collect(),
            ..PartitionResponse::default()
        },
        Err(refusal) => PartitionResponse {
            partition_index: index,
            error_code: refusal.code.code(),
            error_message: Some(refusal.message.as_deref().unwrap_or(refusal.code.meaning())),
            ..PartitionResponse::default()
        },
    }
}
