//! DescribeLogDirs, versions 1 to 5: what each data directory holds, and how much more it could. One that is offline or has
//! failed is answered with KAFKA_STORAGE_ERROR, and without what it holds.

use std::collections::BTreeMap;

use walser_protocol::ErrorCode;
use walser_protocol::messages::describe_log_dirs::{
    DescribeLogDirsPartition, DescribeLogDirsRequest, DescribeLogDirsResponse, DescribeLogDirsResult,
    DescribeLogDirsTopic,
};
use walser_storage::disk::{Disk, Space};

use super::{Frame, HandlerOutcome, RequestContext};
use crate::driver::partition::offsets::LogSize;
use crate::log_dirs::LogDirIndex;
use crate::shard::Shard;
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
    let paths: Vec<String> =
        context.shard.partitions.settings.log_dirs.iter().map(|(_, dir)| dir.path().display().to_string()).collect();
    let cordoned = context.shard.broker_view(&context.shard.image()).cordoned();
    let mut results = Vec::with_capacity(paths.len());
    for ((index, _), path) in context.shard.partitions.settings.log_dirs.iter().zip(&paths) {
        let described = describe(&context.shard, index, path, &sizes).await;
        results.push(DescribeLogDirsResult { is_cordoned: cordoned[index.index()], ..described });
    }
    context.reply(&DescribeLogDirsResponse { results, ..DescribeLogDirsResponse::default() })
}

async fn describe<'a>(
    shard: &Shard,
    index: LogDirIndex,
    path: &'a str,
    sizes: &'a [LogSize],
) -> DescribeLogDirsResult<'a> {
    let partitions = &shard.partitions;
    let failed = DescribeLogDirsResult {
        error_code: ErrorCode::KafkaStorageError.code(),
        log_dir: path,
        total_bytes: -1,
        usable_bytes: -1,
        ..DescribeLogDirsResult::default()
    };
    if !partitions.settings.log_dirs.dir(index).is_good() {
        return failed;
    }
    let data_dir = partitions.data_dir(index);
    let Ok(space) = data_dir.disk().space(data_dir.path()).await else { return failed };
    let mut by_topic: BTreeMap<&str, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
    for log in sizes.iter().filter(|log| log.dir == index) {
        by_topic.entry(&log.topic).or_default().push(DescribeLogDirsPartition {
            partition_index: log.partition.index,
            partition_size: i64::try_from(log.bytes).unwrap_or(i64::MAX),
            offset_lag: log.offset_lag,
            is_future_key: log.is_future,
        });
    }
    DescribeLogDirsResult {
        error_code: ErrorCode::None.code(),
        log_dir: path,
        topics: by_topic.into_iter().map(|(name, partitions)| DescribeLogDirsTopic { name, partitions }).collect(),
        total_bytes: wire_bytes(&space, |space| space.total_bytes),
        usable_bytes: wire_bytes(&space, |space| space.usable_bytes),
        is_cordoned: false,
    }
}

fn wire_bytes(space: &Space, which: impl Fn(&Space) -> u64) -> i64 {
    i64::try_from(which(space)).unwrap_or(i64::MAX)
}
