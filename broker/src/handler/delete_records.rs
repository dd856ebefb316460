//! DeleteRecords, versions 0 to 2: raises where partitions begin.
//!
//! What lies below is gone for every reader when the answer comes, and after a crash too: the new log start is on stable
//! storage by then. The files go with the next look at retention. Each partition's shard raises it, the control executor
//! keeps it. What was appended before is waited for, as long as the request allows: with acks=0 it may not be committed yet.

use std::collections::BTreeMap;
use std::time::Duration;

use walser_protocol::ErrorCode;
use walser_protocol::messages::delete_records::{
    DeleteRecordsPartitionResult, DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopicResult,
};

use super::topics::{NamedTopic, is_internal};
use super::{Frame, HandlerOutcome, RequestContext};
use crate::driver::checkpoints::LogOffsets;
use crate::driver::partition::offsets::StartQuery;
use crate::error::Refusal;
use crate::log_dirs::LogDirIndex;
use crate::shard::placement::ShardId;
use crate::shard::service::{ShardReply, ShardRequest};

/// Answers with the first offset that is left, -1 with an error.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match DeleteRecordsRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let image = context.shard.image();
    let wanted = log_starts(&request);
    let wait = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let mut outcomes: Vec<Result<LogOffsets, Refusal>> = Vec::new();
    let mut by_shard: BTreeMap<ShardId, Vec<StartQuery>> = BTreeMap::new();
    for (name, partitions) in &wanted {
        let named = NamedTopic::by_name(&image, name);
        for (partition_index, offset) in partitions {
            let (slot, offset) = (outcomes.len(), *offset);
            let found = named.partition(*partition_index).and_then(|partition| {
                if is_internal(name) { Err(ErrorCode::InvalidTopicException) } else { Ok(partition) }
            });
            match found {
                Ok(partition) => {
                    let query = StartQuery { slot, partition, offset, wait };
                    by_shard.entry(context.shard.owner(partition)).or_default().push(query);
                    outcomes.push(Err(Refusal::of(ErrorCode::NotLeaderOrFollower)));
                }
                Err(code) => outcomes.push(Err(Refusal::of(code))),
            }
        }
    }
    let answers = |reply| if let ShardReply::LogStartsRaised(answers) = reply { Some(answers) } else { None };
    context.ask_owners(by_shard, &mut outcomes, ShardRequest::RaiseLogStarts, answers).await;
    let raised: Vec<LogOffsets> = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok().cloned()).collect();
    // Only what is on stable storage is answered.
    let failed = if raised.is_empty() { Vec::new() } else { context.shard.note_offsets(raised).await };
    let mut outcomes = outcomes.into_iter();
    let topics = wanted.iter().map(|(name, partitions)| DeleteRecordsTopicResult {
        name,
        partitions: partitions
            .keys()
            .zip(outcomes.by_ref())
            .map(|(partition_index, outcome)| result(*partition_index, outcome, &failed))
            .collect(),
    });
    let topics = topics.collect();
    context.reply(&DeleteRecordsResponse { throttle_time_ms: 0, topics })
}

/// Offsets by topic and partition. As in Kafka the last one counts of a partition that comes twice, it is answered once, and
/// a topic without partitions is not answered.
fn log_starts<'a>(request: &DeleteRecordsRequest<'a>) -> BTreeMap<&'a str, BTreeMap<i32, i64>> {
    let mut wanted: BTreeMap<&str, BTreeMap<i32, i64>> = BTreeMap::new();
    for topic in &request.topics {
        for asked in &topic.partitions {
            wanted.entry(topic.name).or_default().insert(asked.partition_index, asked.offset);
        }
    }
    wanted
}

/// `failed`: directories in which offsets could not be kept.
fn result(
    partition_index: i32,
    outcome: Result<LogOffsets, Refusal>,
    failed: &[LogDirIndex],
) -> DeleteRecordsPartitionResult {
    let (error_code, low_watermark) = match outcome {
        Ok(raised) if !failed.contains(&raised.dir) => (ErrorCode::None, raised.log_start_offset),
        Ok(_) => (ErrorCode::KafkaStorageError, -1),
        Err(refusal) => (refusal.code, -1),
    };
    DeleteRecordsPartitionResult { partition_index, low_watermark, error_code: error_code.code() }
}

#[cfg(test)]
mod tests {
    use walser_protocol::messages::delete_records::{DeleteRecordsPartition, DeleteRecordsTopic};

    use super::*;

    #[test]
    fn the_last_offset_of_a_partition_counts() {
        // Rule: what comes twice is one, with the offset that came last; a topic without partitions is none.
        let topic = |name, partitions: &[(i32, i64)]| DeleteRecordsTopic {
            name,
            partitions: partitions
                .iter()
                .map(|(partition_index, offset)| DeleteRecordsPartition {
                    partition_index: *partition_index,
                    offset: *offset,
                })
                .collect(),
        };
        let topics = vec![
            topic("b", &[(1, 9), (0, 3), (1, 2)]),
            topic("empty", &[]),
            topic("a", &[(0, -1)]),
            topic("b", &[(0, 7)]),
        ];
        let wanted = log_starts(&DeleteRecordsRequest { topics, timeout_ms: 0 });
        let want = [("a", BTreeMap::from([(0, -1)])), ("b", BTreeMap::from([(0, 7), (1, 2)]))];
        assert_eq!(wanted, BTreeMap::from(want));
    }
}
