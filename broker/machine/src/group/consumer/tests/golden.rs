//! The same requests give the same bytes as Kafka 4.4 wrote.

use super::*;
use crate::metadata::records::{MetadataRecord, PartitionRecord};

const RECORDS: &str = include_str!("kafka_4_4.txt");
/// Of `t1`, where the records were made.
const TOPIC_ID: [u8; 16] = 0x4bfc_d246_0195_4a95_b3b6_8973_1624_8050_u128.to_be_bytes();

/// The records of each step, in order.
fn steps() -> BTreeMap<&'static str, Vec<(String, Option<String>)>> {
    let mut steps: BTreeMap<&str, Vec<(String, Option<String>)>> = BTreeMap::new();
    let mut step = "";
    for line in RECORDS.lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix("step ") {
            step = name;
            continue;
        }
        let (key, value) = line.split_once(' ').expect("a key and a value");
        let value = (value != "-").then(|| value.to_owned());
        steps.entry(step).or_default().push((key.to_owned(), value));
    }
    steps
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
    digits.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal")).collect()
}

/// When Kafka did the step, as far as its records say.
fn wall_ms(records: &[(String, Option<String>)]) -> Option<i64> {
    records.iter().find_map(|(key, value)| {
        let record = GroupRecord::decode(Some(&bytes(key)), value.as_deref().map(bytes).as_deref()).expect("readable");
        match Change::from_record(&record?)? {
            Change::Target(Some(TargetEpoch { timestamp_ms, .. })) => Some(timestamp_ms).filter(|ms| *ms != 0),
            Change::Regex { resolved: Some(resolved), .. } => Some(resolved.timestamp_ms),
            Change::Group(_)
            | Change::PartitionMetadata { .. }
            | Change::Member { .. }
            | Change::Target(_)
            | Change::TargetMember { .. }
            | Change::CurrentMember { .. }
            | Change::Regex { .. } => None,
        }
    })
}

fn bench() -> Bench {
    let mut bench = Bench::new(&[]);
    let topic_id = TopicId::from_wire(Uuid::from_bytes(TOPIC_ID)).expect("not zero");
    let partition = |partition_index: i32| {
        MetadataRecord::Partition(PartitionRecord {
            topic_id,
            partition_index,
            replicas: Vec::new(),
            in_sync_replicas: Vec::new(),
            leader: None,
            leader_epoch: LeaderEpoch::ZERO,
            partition_epoch: 0,
            directories: Vec::new(),
        })
    };
    let topic = MetadataRecord::Topic { topic_id, name: "t1".to_owned() };
    bench.change_topics(&[topic, partition(0), partition(1), partition(2), partition(3)]);
    bench
}

fn owning(request: ConsumerGroupHeartbeat, partitions: &[i32]) -> ConsumerGroupHeartbeat {
    let topic = TopicPartitions { topic_id: Uuid::from_bytes(TOPIC_ID), partitions: partitions.to_vec() };
    ConsumerGroupHeartbeat { topic_partitions: Some(vec![topic]), ..request }
}

#[test]
fn records_are_those_of_kafka_byte_for_byte() {
    // Rule: epochs, hash, states, order and layout of all records of a group's life are Kafka's.
    let leave_static =
        |member_id, epoch| ConsumerGroupHeartbeat { instance_id: Some("i".to_owned()), ..beat(member_id, epoch) };
    let by_regex = ConsumerGroupHeartbeat {
        subscribed_topic_names: None,
        subscribed_topic_regex: Some("t.*".to_owned()),
        ..join("r", &[])
    };
    let to_range = ConsumerGroupHeartbeat {
        member_epoch: 3,
        server_assignor: Some("range".to_owned()),
        ..owning(join("b", &["t1", "t2"]), &[2, 3])
    };
    let requests = [
        ("a joins", join("a", &["t1"])),
        ("b joins", join("b", &["t1"])),
        ("a beats", beat("a", 2)),
        ("a revoked", owning(beat("a", 2), &[0, 1])),
        ("b beats", beat("b", 3)),
        ("s joins", join_static("s", "i", &["t1"])),
        ("s leaves for a while", leave_static("s", -2)),
        ("s2 joins", join_static("s2", "i", &["t1"])),
        ("r joins", by_regex),
        ("r beats", beat("r", 4)),
        ("b range", to_range),
        ("a leaves", beat("a", -1)),
        ("b leaves", beat("b", -1)),
        ("r leaves", beat("r", -1)),
        ("s2 leaves", leave_static("s2", -1)),
    ];
    let want = steps();
    let mut bench = bench();
    let check = |bench: &Bench, from: usize, step: &str| {
        let written = bench.log[from..].iter().map(|(key, value)| (hex(key), value.as_deref().map(hex)));
        assert_eq!(written.collect::<Vec<_>>(), want[step], "{step}");
    };
    for (step, request) in requests {
        bench.wall_ms = wall_ms(&want[step]).unwrap_or(bench.wall_ms);
        let from = bench.log.len();
        bench.heartbeat(&request).unwrap_or_else(|error| panic!("{step}: {error}"));
        check(&bench, from, step);
        if let Some(regexes) = bench.resolving.clone() {
            let step = "the expression is resolved";
            bench.wall_ms = wall_ms(&want[step]).expect("a time");
            let resolved = regex::resolve(&regexes, bench.topics.image(), bench.wall_ms, &|_| true);
            // Kafka's metadata has had another number of records.
            let resolved =
                resolved.into_iter().map(|(regex, resolved)| (regex, ResolvedRegex { version: 29, ..resolved }));
            let from = bench.log.len();
            bench.take_resolved(resolved.collect());
            check(&bench, from, step);
        }
    }
}
