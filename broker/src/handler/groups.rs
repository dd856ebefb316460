//! What requests of groups have in common: who coordinates a group, and how it is asked.

use std::collections::BTreeMap;
use std::net::IpAddr;

use walser_machine::group::reply::TopicErrors;
use walser_machine::group::{Command, Reply};
use walser_machine::metadata::MetadataImage;
use walser_machine::metadata::controller::{Command as Control, CreatableTopic, CreateTopics};
use walser_protocol::ErrorCode;

use super::RequestContext;
use crate::config::group::offsets_topic;
use crate::driver::coordinator::{GroupQuery, OFFSETS_TOPIC};
use crate::driver::partition::PartitionId;
use crate::shard::placement::ShardId;
use crate::shard::service::{ShardReply, ShardRequest};

/// What a client may do with a group where nothing forbids it: READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS.
const GROUP_OPERATIONS: i32 = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11;

/// What a description of a group says of them.
pub fn authorized_operations(asked: bool, error: ErrorCode) -> i32 {
    if asked && !error.is_error() { GROUP_OPERATIONS } else { i32::MIN }
}

/// Puts what a coordinator answers to what was answered before it was asked, so that a topic of which only some partitions
/// exist is answered once.
pub fn merge(answered: &mut Vec<TopicErrors>, topics: Vec<TopicErrors>) {
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for (place, topic) in answered.iter().enumerate() {
        places.entry(topic.name.clone()).or_insert(place);
    }
    for topic in topics {
        match places.get(&topic.name) {
            Some(place) => answered[*place].partitions.extend(topic.partitions),
            None => {
                places.insert(topic.name.clone(), answered.len());
                answered.push(topic);
            }
        }
    }
}

/// What a reply says that is of the kind that its command has.
macro_rules! reply_as {
    ($kind:ident, $reply:expr) => {{
        let ::walser_machine::group::Reply::$kind(reply) = $reply else {
            unreachable!("the answer to another command")
        };
        reply
    }};
}
pub(super) use reply_as;

/// The partition whose coordinator has the group; `None` while there is no topic for groups.
pub fn partition_of(image: &MetadataImage, group_id: &str) -> Option<PartitionId> {
    let topic = image.topic(OFFSETS_TOPIC)?;
    let count = i32::try_from(topic.partitions.len()).ok().filter(|count| *count > 0)?;
    Some(PartitionId { topic_id: topic.topic_id, index: partition_index(group_id, count) })
}

/// `Utils.abs` of Kafka is 0 of the least number, which has no counterpart.
fn partition_index(group_id: &str, partition_count: i32) -> i32 {
    java_hash(group_id).checked_abs().unwrap_or(0) % partition_count
}

/// `String.hashCode`, which counts UTF-16 code units.
fn java_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// As Kafka prints an address: a slash, then its digits, those of IPv6 not abbreviated.
pub fn client_host(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => format!("/{address}"),
        IpAddr::V6(address) => {
            let groups = address.segments().map(|group| format!("{group:x}"));
            format!("/{}", groups.join(":"))
        }
    }
}

impl RequestContext {
    /// The reply of the group's coordinator. `command` is made again where none answers.
    pub async fn ask_coordinator(&self, group_id: &str, command: impl Fn() -> Command) -> Reply {
        match self.ask_coordinator_once(group_id, command()).await {
            Ok(reply) => reply,
            Err(error) => command().refuse(error),
        }
    }

    /// The same for who may wait for long, and lets go of the request meanwhile.
    pub async fn ask_coordinator_once(&self, group_id: &str, command: Command) -> Result<Reply, ErrorCode> {
        let Some(partition) = partition_of(&self.shard.image(), group_id) else {
            return Err(ErrorCode::NotCoordinator);
        };
        let mut outcomes = self.ask_coordinators(vec![(partition, command)]).await;
        outcomes.pop().unwrap_or(Err(ErrorCode::NotCoordinator))
    }

    /// Asks several coordinators at a time; outcomes in the order of the commands.
    pub async fn ask_coordinators(&self, commands: Vec<(PartitionId, Command)>) -> Vec<Result<Reply, ErrorCode>> {
        // A shard that has stopped leaves its places as they are.
        let mut outcomes: Vec<_> = commands.iter().map(|_| Err(ErrorCode::NotCoordinator)).collect();
        let mut by_shard: BTreeMap<ShardId, Vec<GroupQuery>> = BTreeMap::new();
        for (slot, (partition, command)) in commands.into_iter().enumerate() {
            let query = GroupQuery { slot, partition, command };
            by_shard.entry(self.shard.owner(partition)).or_default().push(query);
        }
        let mut dispatched = Vec::with_capacity(by_shard.len());
        for (owner, queries) in by_shard {
            dispatched.push(self.shard.dispatch(owner, ShardRequest::Groups(queries)).await);
        }
        for dispatched in dispatched {
            let Ok(ShardReply::GroupsAnswered(answers)) = dispatched.reply().await else { continue };
            for answer in answers {
                outcomes[answer.slot] = answer.outcome;
            }
        }
        outcomes
    }

    /// Asks the coordinator of every group about its own; an answer for each id, in their order. `command` asks about some of
    /// the ids, `answers` has one for each of those.
    pub async fn ask_each<T>(
        &self,
        group_ids: &[&str],
        command: impl Fn(Vec<String>) -> Command,
        answers: fn(Reply) -> Vec<T>,
    ) -> Vec<T> {
        let image = self.shard.image();
        let mut by_partition: BTreeMap<Option<PartitionId>, Vec<usize>> = BTreeMap::new();
        for (index, group_id) in group_ids.iter().enumerate() {
            by_partition.entry(partition_of(&image, group_id)).or_default().push(index);
        }
        let about = |indexes: &[usize]| command(indexes.iter().map(|index| group_ids[*index].to_owned()).collect());
        let asked = by_partition.iter().filter_map(|(partition, indexes)| Some(((*partition)?, about(indexes))));
        let mut outcomes = self.ask_coordinators(asked.collect()).await.into_iter();
        let mut all: Vec<Option<T>> = group_ids.iter().map(|_| None).collect();
        for (partition, indexes) in &by_partition {
            let outcome = partition.and_then(|_| outcomes.next()).unwrap_or(Err(ErrorCode::NotCoordinator));
            let reply = outcome.unwrap_or_else(|error| about(indexes).refuse(error));
            for (index, answer) in indexes.iter().zip(answers(reply)) {
                all[*index] = Some(answer);
            }
        }
        all.into_iter().flatten().collect()
    }

    /// Makes the topic of groups where it is missing, whatever `auto.create.topics.enable` says. What cannot be made stays missing.
    pub async fn create_offsets_topic(&self) {
        let image = self.shard.image();
        if image.topic(OFFSETS_TOPIC).is_some() {
            return;
        }
        let brokers = image.brokers().filter(|broker| !broker.fenced).count();
        let wanted = offsets_topic(&self.shard.broker_view(&image), brokers);
        let topic = CreatableTopic {
            num_partitions: wanted.num_partitions,
            replication_factor: wanted.replication_factor,
            configs: wanted.configs.into_iter().map(|(key, value)| (key, Some(value))).collect(),
            ..CreatableTopic::with_defaults(OFFSETS_TOPIC)
        };
        let command = Control::CreateTopics(CreateTopics { topics: vec![topic], validate_only: false });
        let reply = self.shard.control(command).await;
        if self.shard.image().topic(OFFSETS_TOPIC).is_none() {
            tracing::warn!(?reply, "{OFFSETS_TOPIC} not made");
        }
    }
}

#[cfg(test)]
mod tests {
    use walser_machine::group::reply::PartitionErrors;

    use super::*;

    fn errors(name: &str, partitions: &[(i32, ErrorCode)]) -> TopicErrors {
        let partition = |(partition_index, error): &(i32, ErrorCode)| PartitionErrors {
            partition_index: *partition_index,
            error: *error,
        };
        TopicErrors {
            name: name.to_owned(),
            topic_id: walser_protocol::types::Uuid::ZERO,
            partitions: partitions.iter().map(partition).collect(),
        }
    }

    #[test]
    fn a_topic_is_answered_once() {
        // Rule: partitions refused here come first, those of the coordinator are put to them.
        let mut answered = vec![errors("a", &[(9, ErrorCode::UnknownTopicOrPartition)])];
        merge(&mut answered, vec![errors("b", &[(0, ErrorCode::None)]), errors("a", &[(1, ErrorCode::None)])]);
        let a = errors("a", &[(9, ErrorCode::UnknownTopicOrPartition), (1, ErrorCode::None)]);
        assert_eq!(answered, [a, errors("b", &[(0, ErrorCode::None)])]);
    }

    #[test]
    fn strings_hash_as_in_java() {
        // Rule: what Java's String.hashCode gives, also outside of the basic plane.
        for (text, want) in
            [("", 0), ("a", 97), ("group", 98_629_247), ("polygenelubricants", i32::MIN), ("😀", 1_772_899)]
        {
            assert_eq!(java_hash(text), want, "{text}");
        }
    }

    #[test]
    fn groups_are_where_kafka_has_them() {
        // Rule: of 50 partitions each group has the one in which Kafka 4.4 wrote its offsets, also where its hash is negative.
        for (group_id, want) in [("g1", 42), ("gj", 49), ("ab-çé", 44), ("orders", 31), ("polygenelubricants", 0)] {
            assert_eq!(partition_index(group_id, 50), want, "{group_id}");
        }
    }

    #[test]
    fn hosts_are_printed_as_java_does() {
        // Rule: a slash in front, and nothing of an IPv6 address is left out.
        for (address, want) in
            [("127.0.0.1", "/127.0.0.1"), ("::1", "/0:0:0:0:0:0:0:1"), ("fe80::a0", "/fe80:0:0:0:0:0:0:a0")]
        {
            assert_eq!(client_host(address.parse().unwrap()), want);
        }
    }
}
