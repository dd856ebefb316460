//! AlterReplicaLogDirs, versions 1 and 2: moves replicas of this broker between its log directories (KIP-113).
//!
//! Answered when a start would go on with the move; DescribeLogDirs shows how far it is. A replica that is already where it is
//! wanted is answered with success, and a move of it elsewhere ends. One that is not there yet is answered with
//! UNKNOWN_TOPIC_OR_PARTITION and made where it was wanted when its topic is created. A cordoned directory takes nothing,
//! not even what is in it already (INVALID_REPLICA_ASSIGNMENT), as in Kafka.

use std::collections::BTreeMap;

use walser_protocol::ErrorCode;
use walser_protocol::messages::alter_replica_log_dirs::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult, AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
};
use walser_storage::data_dir::partition::future_name;

use super::topics::NamedTopic;
use super::{Frame, HandlerOutcome, RequestContext};
use crate::driver::partition::PartitionId;
use crate::error::Refusal;
use crate::log_dirs::{LogDirIndex, LogDirs};
use crate::shard::placement::ShardId;
use crate::shard::service::{ShardReply, ShardRequest, Wish};

/// One answer for each replica asked about.
pub async fn handle(context: RequestContext, frame: Frame) -> HandlerOutcome {
    let mut reader = frame.reader();
    let request = match AlterReplicaLogDirsRequest::decode(&mut reader, context.version) {
        Ok(request) => request,
        Err(error) => return context.malformed(&error),
    };
    let wanted = wanted(&request);
    let image = context.shard.image();
    let log_dirs = &context.shard.partitions.settings.log_dirs;
    let cordoned = context.shard.broker_view(&image).cordoned();
    let mut outcomes: Vec<Result<(), Refusal>> = Vec::with_capacity(wanted.len());
    let mut by_shard: BTreeMap<ShardId, Vec<(usize, PartitionId, LogDirIndex)>> = BTreeMap::new();
    let (mut wishes, mut moves) = (Vec::new(), Vec::new());
    for ((topic, index), path) in &wanted {
        let slot = outcomes.len();
        let found = check(log_dirs, &cordoned, topic, *index, path)
            .map(|dir| (dir, NamedTopic::by_name(&image, topic).partition(*index).ok()));
        match found {
            Ok((dir, Some(partition))) => {
                by_shard.entry(context.shard.owner(partition)).or_default().push((slot, partition, dir));
                moves.push((slot, partition, dir));
                outcomes.push(Err(Refusal::of(ErrorCode::ReplicaNotAvailable)));
            }
            Ok((dir, None)) => {
                wishes.push(Wish::Make((*topic).to_owned(), *index, dir));
                outcomes.push(Err(Refusal::of(ErrorCode::UnknownTopicOrPartition)));
            }
            Err(code) => outcomes.push(Err(Refusal::of(code))),
        }
    }
    let answers = |reply| if let ShardReply::ReplicasMoved(answers) = reply { Some(answers) } else { None };
    context.ask_owners(by_shard, &mut outcomes, ShardRequest::MoveReplicas, answers).await;
    wishes.extend(moves.into_iter().filter(|(slot, ..)| outcomes[*slot].is_ok()).map(|(_, id, to)| Wish::Move(id, to)));
    if !wishes.is_empty() {
        context.shard.note_wishes(wishes).await;
    }
    let mut by_topic: BTreeMap<&str, Vec<AlterReplicaLogDirPartitionResult>> = BTreeMap::new();
    for ((topic, partition_index), outcome) in wanted.into_keys().zip(outcomes) {
        let error_code = outcome.map_or_else(|refusal| refusal.code, |()| ErrorCode::None).code();
        by_topic.entry(topic).or_default().push(AlterReplicaLogDirPartitionResult { partition_index, error_code });
    }
    let results = by_topic
        .into_iter()
        .map(|(topic_name, partitions)| AlterReplicaLogDirTopicResult { topic_name, partitions })
        .collect();
    context.reply(&AlterReplicaLogDirsResponse { throttle_time_ms: 0, results })
}

/// Paths by topic and partition; as in Kafka the last one counts of a partition that comes twice.
fn wanted<'a>(request: &AlterReplicaLogDirsRequest<'a>) -> BTreeMap<(&'a str, i32), &'a str> {
    let mut wanted = BTreeMap::new();
    for dir in &request.dirs {
        for topic in &dir.topics {
            wanted.extend(topic.partitions.iter().map(|index| ((topic.name, *index), dir.path)));
        }
    }
    wanted
}

/// The directory that is named, in Kafka's order of looking at things.
fn check(log_dirs: &LogDirs, cordoned: &[bool], topic: &str, index: i32, path: &str) -> Result<LogDirIndex, ErrorCode> {
    if future_name(topic, index, 0).is_none() {
        return Err(ErrorCode::InvalidTopicException);
    }
    let dir = log_dirs.find(path).ok_or(ErrorCode::LogDirNotFound)?;
    if cordoned.get(dir.index()).is_some_and(|is_cordoned| *is_cordoned) {
        return Err(ErrorCode::InvalidReplicaAssignment);
    }
    if log_dirs.dir(dir).is_good() { Ok(dir) } else { Err(ErrorCode::KafkaStorageError) }
}

#[cfg(test)]
mod tests {
    use walser_protocol::messages::alter_replica_log_dirs::{AlterReplicaLogDir, AlterReplicaLogDirTopic};

    use super::*;

    #[test]
    fn the_last_directory_of_a_replica_counts() {
        // Rule: what comes twice is one, with the directory that came last.
        let dir = |path, topics: &[(&'static str, &[i32])]| AlterReplicaLogDir {
            path,
            topics: topics
                .iter()
                .map(|(name, partitions)| AlterReplicaLogDirTopic { name, partitions: partitions.to_vec() })
                .collect(),
        };
        let dirs = vec![dir("/a", &[("t", &[0, 1]), ("u", &[0])]), dir("/b", &[("t", &[1])])];
        let request = AlterReplicaLogDirsRequest { dirs };
        let want = [(("t", 0), "/a"), (("t", 1), "/b"), (("u", 0), "/a")];
        assert_eq!(wanted(&request), BTreeMap::from(want));
    }

    #[test]
    fn directories_are_named_as_they_are_described() {
        // Rule: Kafka's codes, in Kafka's order: a name too long, a directory that is none, one that has failed.
        let log_dirs = LogDirs::new(&["/no/a".into(), "/no/b".into(), "/no/c".into()], "/no/a".as_ref(), 0);
        log_dirs.dir(LogDirIndex::new(1)).fail("a test");
        let check = |topic: &str, path| check(&log_dirs, &[false, false, true], topic, 0, path);
        assert_eq!(check("t", "/no/a"), Ok(LogDirIndex::new(0)));
        assert_eq!(check("t", "/no/b"), Err(ErrorCode::KafkaStorageError));
        assert_eq!(check("t", "/no/c"), Err(ErrorCode::InvalidReplicaAssignment));
        assert_eq!(check("t", "/no/a/"), Err(ErrorCode::LogDirNotFound));
        assert_eq!(check(&"t".repeat(249), "/no/d"), Err(ErrorCode::InvalidTopicException));
    }
}
