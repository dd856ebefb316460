//! The same requests get the same answers as from Kafka 4.4.

use super::*;

const HEARTBEATS: &str = include_str!("kafka_4_4_heartbeats.txt");
const PARTITIONS: i32 = 12;

/// Partitions of `t1`, as the file has them: `-` for null, `none` for an empty list.
fn partitions(text: &str) -> Option<Vec<i32>> {
    match text {
        "-" => None,
        "none" => Some(Vec::new()),
        text => {
            let indexes = text.strip_prefix("t1:").expect("the only topic").split('.');
            Some(indexes.map(|index| index.parse().expect("a number")).collect())
        }
    }
}

fn request(fields: &[&str], topic_id: TopicId) -> ConsumerGroupHeartbeat {
    let &[member_id, epoch, instance_id, rebalance_timeout_ms, topics, owned] = fields else { panic!("{fields:?}") };
    let topic = |partitions: Vec<i32>| TopicPartitions { topic_id: topic_id.get(), partitions };
    let owned = partitions(owned).map(|owned| if owned.is_empty() { Vec::new() } else { vec![topic(owned)] });
    ConsumerGroupHeartbeat {
        member_epoch: epoch.parse().expect("a number"),
        instance_id: (instance_id != "-").then(|| instance_id.to_owned()),
        rebalance_timeout_ms: rebalance_timeout_ms.parse().expect("a number"),
        subscribed_topic_names: (topics != "-").then(|| vec![topics.to_owned()]),
        topic_partitions: owned,
        ..join(member_id, &[])
    }
}

/// Error, epoch and assignment, as the file has them.
fn answer(bench: &mut Bench, request: &ConsumerGroupHeartbeat) -> (i16, i32, Option<Vec<i32>>) {
    match bench.heartbeat(request) {
        Ok(reply) => {
            let assignment =
                reply.assignment.map(|topics| topics.into_iter().flat_map(|topic| topic.partitions).collect());
            (0, reply.member_epoch, assignment)
        }
        Err(error) => (ErrorCode::from(&error).code(), 0, None),
    }
}

fn new_bench(topic_id: TopicId) -> Bench {
    let mut bench = Bench::new(&[]);
    bench.settings.max_size = 4;
    bench.create_topic_as(topic_id, "t1", PARTITIONS);
    bench
}

#[test]
fn heartbeats_are_answered_as_by_kafka() {
    // Rule: errors, epochs and assignments of joins, stale epochs, static members, full groups and leaves are Kafka's.
    let mut topic_id = topic_id(1);
    let mut bench = new_bench(topic_id);
    let mut answered = 0;
    for line in HEARTBEATS.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(' ').collect();
        match fields.as_slice() {
            ["topic", "t1", id] => {
                let raw = u128::from_str_radix(id, 16).expect("hexadecimal").to_be_bytes();
                topic_id = TopicId::from_wire(Uuid::from_bytes(raw)).expect("not zero");
            }
            ["group", _] => bench = new_bench(topic_id),
            [asked @ .., "=>", error, epoch, assignment] => {
                let got = answer(&mut bench, &request(asked, topic_id));
                let number = |text: &str| text.parse::<i32>().expect("a number");
                let want = (number(error), number(epoch), partitions(assignment));
                assert_eq!((i32::from(got.0), got.1, got.2), want, "{line}");
                answered += 1;
            }
            _ => panic!("{line}"),
        }
    }
    assert!(answered > 900);
}
