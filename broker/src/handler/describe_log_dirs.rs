//! DescribeLogDirs, versions 1 to 5: what the data directory holds, and how much more it could.

use std::collections::BTreeMap;

use walser_protocol::ErrorCode;
use walser_protocol::messages::describe_log_dirs::{
    DescribeLogDirsPartition, DescribeLogDirsRequest, DescribeLogDirsResponse, DescribeLogDirsResult,
    DescribeLogDirsTopic,
};
use walser_storage::disk::{Disk, Space};

use super::{Frame, HandlerOutcome, RequestContext};
use crate::driver::partition::offsets::LogSize;
use crate::shard::placement::ShardId;
use crate::shard::service::{ShardReply, ShardRequest};

/// Sizes of every log asked for, of all logs when the list is null.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match DescribeLogDirsRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let mut sizes: Vec<LogSize> = Vec::new();
    for shard in 0..context.shard.placement.shard_count() {
        let dispatched = context.shard.dispatch(ShardId::new(shard), ShardRequest::DescribeLogDirs).await;
        if let Ok(ShardReply::LogSizes(of_shard)) = dispatched.reply().await {
            sizes.extend(of_shard);
        }
    }
    if let Some(topics) = &request.topics {
        sizes.retain(|log| {
            topics.iter().any(|asked| *log.topic == *asked.topic && asked.partitions.contains(&log.partition.index))
        });
    }
    sizes.sort_by(|one, other| (&one.topic, one.partition.index).cmp(&(&other.topic, other.partition.index)));
    let mut by_topic: BTreeMap<&str, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
    for log in &sizes {
        by_topic.entry(&log.topic).or_default().push(DescribeLogDirsPartition {
            partition_index: log.partition.index,
            partition_size: i64::try_from(log.bytes).unwrap_or(i64::MAX),
            offset_lag: 0,
            is_future_key: false,
        });
    }
    let partitions = &context.shard.partitions;
    let data_dir = partitions.settings.data_dir.path();
    let space = partitions.disk.space(data_dir).await;
    let log_dir = data_dir.display().to_string();
    let result = DescribeLogDirsResult {
        error_code: if space.is_ok() { ErrorCode::None.code() } else { ErrorCode::KafkaStorageError.code() },
        log_dir: &log_dir,
        topics: by_topic.into_iter().map(|(name, partitions)| DescribeLogDirsTopic { name, partitions }).collect(),
        total_bytes: space.as_ref().map_or(-1, |space| wire_bytes(space, |space| space.total_bytes)),
        usable_bytes: space.as_ref().map_or(-1, |space| wire_bytes(space, |space| space.usable_bytes)),
        is_cordoned: false,
    };
    context.reply(&DescribeLogDirsResponse { results: vec![result], ..DescribeLogDirsResponse::default() })
}

fn wire_bytes(space: &Space, which: impl Fn(&Space) -> u64) -> i64 {
    i64::try_from(which(space)).unwrap_or(i64::MAX)
}
