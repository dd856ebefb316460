//! What a start after a clean stop or a crash makes of what there is.

use std::path::Path;
use std::time::{Duration, Instant};

use walser_protocol::ErrorCode;
use walser_tests::process::{Broker, BrokerOptions, TempDir};
use walser_tests::raw_client::RawClient;
use walser_tests::topic::{self, EARLIEST, LATEST};

const TOPIC: &str = "again";

fn connect(broker: &Broker) -> RawClient {
    topic::connect(broker.address()).expect("the broker is there")
}

/// A topic of one partition.
fn create(client: &mut RawClient, name: &str, configs: &[(&str, &str)]) {
    topic::create(client, name, 1, configs).expect("made");
}

fn produce(client: &mut RawClient, records: usize) -> i64 {
    topic::produce(client, TOPIC, 0, std::iter::repeat_n("value", records)).expect("written")
}

/// Earliest and latest.
fn offsets(client: &mut RawClient) -> (i64, i64) {
    let [earliest, latest] = [EARLIEST, LATEST].map(|which| topic::offset(client, TOPIC, 0, which).expect("found"));
    (earliest, latest)
}

fn delete_records(client: &mut RawClient, name: &str, offset: i64) -> Result<i64, i16> {
    topic::delete_records(client, name, offset).expect("answered")
}

#[test]
fn a_clean_stop_waits_for_nothing_that_does_not_end() {
    // Rule: every task ends when its executor does; one that did not would cost each stop the time it is waited for.
    let (dir, logs) = (TempDir::new("stop").expect("a directory"), TempDir::new("log").expect("a directory"));
    let log = logs.path().join("log");
    let broker = BrokerOptions::new(dir.path()).set("walser.shards", "2").log_to(&log).start().expect("it starts");
    create(&mut connect(&broker), TOPIC, &[]);
    assert!(broker.stop().expect("it ends").0.success());
    let said = std::fs::read_to_string(&log).expect("a log");
    assert!(said.contains("stopping") && !said.contains("leaves tasks behind"), "{said}");
}

#[test]
fn what_a_clean_stop_noted_of_an_old_topic_says_nothing_of_a_new_one() {
    // Rule: checkpoints name topics, and the name may be another topic's by the time they are read.
    let dir = TempDir::new("recreated").expect("a directory");
    let start = || BrokerOptions::new(dir.path()).start().expect("it starts");
    let broker = start();
    let mut client = connect(&broker);
    create(&mut client, TOPIC, &[]);
    assert_eq!(produce(&mut client, 500), 0);
    assert!(broker.stop().expect("it ends").0.success());

    let broker = start();
    let mut client = connect(&broker);
    assert_eq!(offsets(&mut client), (0, 500));
    topic::delete(&mut client, TOPIC).expect("deleted");
    create(&mut client, TOPIC, &[]);
    broker.kill().expect("it dies");

    let broker = start();
    let mut client = connect(&broker);
    assert_eq!(offsets(&mut client), (0, 0));
    assert_eq!(produce(&mut client, 3), 0);
    broker.kill().expect("it dies");

    let broker = start();
    assert_eq!(offsets(&mut connect(&broker)), (0, 3));
}

#[test]
fn deleted_records_stay_deleted() {
    // Rule: the log start that DeleteRecords answers is there after kill -9; what cannot be deleted is refused.
    let dir = TempDir::new("delete-records").expect("a directory");
    let start = || BrokerOptions::new(dir.path()).start().expect("it starts");
    let broker = start();
    let mut client = connect(&broker);
    create(&mut client, TOPIC, &[]);
    create(&mut client, "compacted", &[("cleanup.policy", "compact")]);
    produce(&mut client, 500);
    assert_eq!(delete_records(&mut client, TOPIC, 300), Ok(300));
    assert_eq!(delete_records(&mut client, TOPIC, 100), Ok(300));
    assert_eq!(delete_records(&mut client, TOPIC, 501), Err(ErrorCode::OffsetOutOfRange.code()));
    assert_eq!(delete_records(&mut client, TOPIC, -2), Err(ErrorCode::OffsetOutOfRange.code()));
    assert_eq!(delete_records(&mut client, "nowhere", 1), Err(ErrorCode::UnknownTopicOrPartition.code()));
    assert_eq!(delete_records(&mut client, "compacted", 0), Err(ErrorCode::PolicyViolation.code()));
    broker.kill().expect("it dies");

    let broker = start();
    let mut client = connect(&broker);
    assert_eq!(offsets(&mut client), (300, 500));
    assert_eq!(delete_records(&mut client, TOPIC, -1), Ok(500));
    assert_eq!(produce(&mut client, 1), 500);
    broker.kill().expect("it dies");

    let broker = start();
    assert_eq!(offsets(&mut connect(&broker)), (500, 501));
}

#[test]
fn deletion_waits_for_what_was_sent_before() {
    // Rule: records sent with acks=0 on the same connection are deleted by their offset and by -1, flushed or not yet.
    let dir = TempDir::new("delete-unflushed").expect("a directory");
    let broker = BrokerOptions::new(dir.path()).start().expect("it starts");
    let mut client = connect(&broker);
    create(&mut client, TOPIC, &[]);
    for round in 0..10 {
        let end_offset = (round + 1) * 7;
        topic::send_unanswered(&mut client, TOPIC, 0, std::iter::repeat_n("value", 7)).expect("sent");
        let offset = if round % 2 == 0 { -1 } else { end_offset };
        assert_eq!(delete_records(&mut client, TOPIC, offset), Ok(end_offset), "{offset}");
    }
    assert_eq!(delete_records(&mut client, TOPIC, 71), Err(ErrorCode::OffsetOutOfRange.code()));
}

#[test]
fn old_segments_go_while_the_broker_runs() {
    // Rule: retention is looked at without being asked, and a log that is emptied goes on where it ended, after kill -9 too.
    let dir = TempDir::new("retention").expect("a directory");
    let options = BrokerOptions::new(dir.path())
        .set("log.retention.check.interval.ms", "100")
        .set("log.initial.task.delay.ms", "0");
    let broker = options.start().expect("it starts");
    let mut client = connect(&broker);
    create(&mut client, TOPIC, &[("retention.ms", "1000"), ("file.delete.delay.ms", "0")]);
    produce(&mut client, 500);
    let deadline = Instant::now() + Duration::from_secs(300);
    while offsets(&mut client) != (500, 500) {
        assert!(Instant::now() < deadline, "{:?}", offsets(&mut client));
    }
    while has(dir.path(), "00000000000000000000.log") {
        assert!(Instant::now() < deadline, "the segment is still there");
    }
    broker.kill().expect("it dies");

    let broker = options.start().expect("it starts");
    let mut client = connect(&broker);
    assert_eq!(offsets(&mut client), (500, 500));
    assert_eq!(produce(&mut client, 1), 500);
}

fn has(data_dir: &Path, name: &str) -> bool {
    let path = data_dir.join(format!("{TOPIC}-0"));
    path.read_dir()
        .expect("a partition's directory")
        .any(|entry| entry.expect("an entry").file_name().to_string_lossy().starts_with(name))
}
