//! The same requests give the same bytes as Kafka 4.4 wrote.

use super::*;
use crate::group::command::MemberAssignment;
use crate::group::harness::{self, Harness, unhex};
use crate::group::settings::GroupSettings;
use crate::group::{Command, Reply};
use crate::metadata::MetadataDelta;

const GROUP_RECORDS: &str = include_str!("kafka_4_4_group.txt");
const MIGRATION_RECORDS: &str = include_str!("kafka_4_4_migration.txt");
/// Of `t1`, where the records of the group were made.
const TOPIC_ID: [u8; 16] = 0x4bfc_d246_0195_4a95_b3b6_8973_1624_8050_u128.to_be_bytes();

/// Of `t1`, where those of the migration were made.
const MIGRATION_TOPIC_ID: [u8; 16] = 0xe76b_1afd_6ef4_4e44_9237_9b92_5f76_1093_u128.to_be_bytes();

/// A record in hexadecimal.
type HexRecord = (String, Option<String>);

/// The records of each step, in order.
fn steps(records: &'static str) -> BTreeMap<&'static str, Vec<HexRecord>> {
    let mut steps: BTreeMap<&str, Vec<HexRecord>> = BTreeMap::new();
    let mut step = "";
    for line in records.lines().filter(|line| !line.starts_with('#')) {
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

/// When Kafka did the step, as far as its records say.
fn wall_ms(records: &[HexRecord]) -> Option<i64> {
    records.iter().find_map(|(key, value)| {
        let record = GroupRecord::decode(Some(&unhex(key)), value.as_deref().map(unhex).as_deref()).expect("readable");
        let record = record?;
        if let GroupRecord::GroupMetadata { value: Some(value), .. } = &record {
            return Some(value.current_state_timestamp_ms);
        }
        match Change::from_record(&record)? {
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

fn bench(topic_id: [u8; 16]) -> Bench {
    let mut bench = Bench::new(&[]);
    let topic_id = TopicId::from_wire(Uuid::from_bytes(topic_id)).expect("not zero");
    bench.create_topic_as(topic_id, "t1", 4);
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
    let want = steps(GROUP_RECORDS);
    let mut bench = bench(TOPIC_ID);
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

/// What a classic consumer tells of itself.
fn classic_join(member_id: &str, owned: &[i32]) -> JoinGroup {
    let owned: BTreeMap<&str, Vec<i32>> =
        [("t1", owned.to_vec())].into_iter().filter(|(_, all)| !all.is_empty()).collect();
    let metadata = simulation::classic_client::subscription(&["t1"], &owned);
    JoinGroup {
        api_version: 5,
        member_id: member_id.to_owned(),
        client_id: "client".to_owned(),
        protocols: vec![harness::protocol("range", &metadata)],
        member_uuid: Uuid::from_bytes(0xef5a_9890_ae88_4b39_8330_ff5f_3cad_038f_u128.to_be_bytes()),
        ..harness::join(1)
    }
}

/// Sets the clock to when Kafka did a step, does it, and compares what is written. Members are in the order of their ids here.
fn step(harness: &mut Harness, want: &BTreeMap<&str, Vec<HexRecord>>, name: &str, command: Command) -> Reply {
    harness.wall_ms = wall_ms(&want[name]).unwrap_or(harness.wall_ms);
    let reply = harness.call(command);
    let records = harness.take_records().into_iter().map(|record| record.encode().expect("it was encoded before"));
    let written: Vec<HexRecord> = records.map(|record| (hex(&record.key), record.value.as_deref().map(hex))).collect();
    let kinds = |records: &[HexRecord]| records.iter().map(|(key, _)| key[..4].to_owned()).collect::<Vec<_>>();
    assert_eq!(kinds(&written), kinds(&want[name]), "{name}");
    let sorted = |records: &[HexRecord]| records.iter().cloned().collect::<BTreeSet<_>>();
    assert_eq!(sorted(&written), sorted(&want[name]), "{name}");
    reply
}

#[test]
fn a_migration_writes_the_records_of_kafka() {
    // Rule: a classic group goes over, its member follows, and the group comes back, with the bytes of Kafka.
    let want = steps(MIGRATION_RECORDS);
    let mut settings = GroupSettings::default();
    settings.consumer.assignment_interval_ms = 0;
    let mut harness = Harness::with(settings);
    harness.image = bench(MIGRATION_TOPIC_ID).topics.image().clone();
    let delta = MetadataDelta { topics_created: harness.image.topics().cloned().collect(), ..MetadataDelta::default() };
    harness.coordinator.handle_image(harness.now(), harness.image.clone(), &delta);

    let reply = step(&mut harness, &want, "unnamed join", Command::JoinGroup(classic_join("", &[])));
    let Reply::JoinGroup(reply) = reply else { panic!("{reply:?}") };
    let member_id = reply.member_id;
    // The record has the time at which the join phase ended.
    harness.wall_ms = wall_ms(&want["sync"]).expect("a time") - 3_000;
    let joining = harness.join(classic_join(&member_id, &[]));
    harness.pass(3_000);
    assert_eq!(harness.joined(joining).generation_id, 1);
    let assignment = embedded::write_assignment(&all_partitions(&harness), 1, &Topics::new(harness.image.clone()));
    let assignment = assignment.expect("a short name");
    let assignments = vec![MemberAssignment { member_id: member_id.clone(), assignment }];
    let sync = SyncGroup { assignments, ..harness::sync(1, &member_id, &[]) };
    step(&mut harness, &want, "sync", Command::SyncGroup(sync));
    step(&mut harness, &want, "new joins", Command::ConsumerGroupHeartbeat(join("new", &["t1"])));
    for (name, owned) in [("join with all", &[0, 1, 2, 3][..]), ("join with half", &[0, 1])] {
        step(&mut harness, &want, name, Command::JoinGroup(classic_join(&member_id, owned)));
    }
    step(&mut harness, &want, "new beats", Command::ConsumerGroupHeartbeat(beat("new", 2)));
    step(&mut harness, &want, "new leaves", Command::ConsumerGroupHeartbeat(beat("new", -1)));
}

fn all_partitions(harness: &Harness) -> Assignment {
    let topics = harness.image.topics();
    topics.flat_map(|topic| (0..4).map(|index| (topic.topic_id, index)).collect::<Vec<_>>()).collect()
}
