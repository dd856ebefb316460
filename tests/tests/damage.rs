//! Damage on the disk: what a consumer sees of it, what `walser check` says, and what its repair brings back.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use walser_protocol::Uuid;
use walser_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use walser_protocol::records::batch::Batches;
use walser_protocol::{ApiKey, ErrorCode};
use walser_tests::process::{Broker, BrokerOptions, TempDir};
use walser_tests::raw_client::RawClient;
use walser_tests::topic::{self, LATEST};

const FETCH_VERSION: i16 = 12;
/// The least a topic's segment may have.
const SEGMENT_BYTES: &str = "1048576";
/// What the journal has of a log that is idle for so long goes into its segment.
const IDLE_AFTER: Duration = Duration::from_secs(10);
const ATTEMPTS: usize = 20;

fn connect(broker: &Broker) -> RawClient {
    topic::connect(broker.address()).expect("the broker is there")
}

/// (base offset, last offset, records) of whole batches.
type Fetched = Result<Vec<(i64, i64, i32)>, ErrorCode>;

fn fetch(client: &mut RawClient, name: &str, offset: i64) -> Fetched {
    let partition = FetchPartition {
        partition: 0,
        current_leader_epoch: -1,
        fetch_offset: offset,
        last_fetched_epoch: -1,
        log_start_offset: -1,
        partition_max_bytes: 64 << 10,
        ..FetchPartition::default()
    };
    let topics = vec![FetchTopic { topic: name, partitions: vec![partition], ..FetchTopic::default() }];
    let request = FetchRequest {
        replica_id: -1,
        max_wait_ms: 0,
        max_bytes: 64 << 10,
        session_epoch: -1,
        topics,
        ..FetchRequest::default()
    };
    let answer = client.call(ApiKey::Fetch, FETCH_VERSION, &request).expect("answered");
    let answer = FetchResponse::decode(&mut answer.reader(), FETCH_VERSION).expect("a fetch response");
    let partition = answer.responses.first().and_then(|topic| topic.partitions.first()).expect("one partition");
    match ErrorCode::from_wire(partition.error_code).expect("a known code") {
        ErrorCode::None => {}
        error => return Err(error),
    }
    let bytes = partition.records.and_then(|records| records.as_whole()).unwrap_or_default();
    let batches = Batches::new(bytes).map_while(Result::ok);
    Ok(batches.map(|batch| (batch.base_offset(), batch.last_offset(), batch.record_count())).collect())
}

/// All batches from `offset` to the end.
fn fetch_all(client: &mut RawClient, name: &str, mut offset: i64) -> Fetched {
    let end = topic::offset(client, name, 0, LATEST).expect("found");
    let mut found = Vec::new();
    while offset < end {
        let batches = fetch(client, name, offset)?;
        offset = batches.last().expect("something is there").1 + 1;
        found.extend(batches);
    }
    Ok(found)
}

/// Exit code, and what stands on standard output and on standard error.
fn check(data_dir: &Path, options: &[&str]) -> (Option<i32>, String) {
    let binary = BrokerOptions::new(data_dir).binary;
    let output = Command::new(binary).arg("check").arg(data_dir).args(options).output().expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).expect("text"))
}

fn flip_bit(path: &Path, position: u64) -> io::Result<()> {
    let file = fs::File::options().read(true).write(true).open(path)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, position)?;
    file.write_all_at(&[byte[0] ^ 0x10], position)
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// Where these bytes stand in any file of a directory.
fn find(dir: &Path, wanted: &[u8]) -> Option<(PathBuf, u64)> {
    let files = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
    files.filter(|path| path.is_file()).find_map(|path| {
        let bytes = fs::read(&path).expect("it can be read");
        let position = position(&bytes, wanted)?;
        Some((path, position as u64))
    })
}

/// The same, in whichever journal.
fn find_in_journals(data_dir: &Path, wanted: &[u8]) -> Option<(PathBuf, u64)> {
    let folders = ["journal/0", "journal/1"].map(|folder| data_dir.join(folder));
    folders.iter().filter(|folder| folder.is_dir()).find_map(|folder| find(folder, wanted))
}

/// Whether a journal says behind its last batch of a topic, which holds `last`, that the topic's log needs it.
fn is_noted(data_dir: &Path, topic: &str, last: &[u8]) -> bool {
    let metadata = fs::read_to_string(data_dir.join(format!("{topic}-0/partition.metadata"))).expect("it is there");
    let id = metadata.lines().find_map(|line| line.strip_prefix("topic_id: ")).expect("it names the topic's id");
    let id: Uuid = id.parse().expect("an id");
    let (path, batch_at) = find_in_journals(data_dir, last).expect("it is in a journal");
    let bytes = fs::read(path).expect("it can be read");
    position(&bytes[usize::try_from(batch_at).expect("a small file")..], id.as_bytes()).is_some()
}

/// Kills a broker when only a journal has the batches of `hit`, behind which it says so. How many records `well` has, which
/// was written to all the while; `None` when that took too long, and `hit` may be in its segment.
fn die_with_a_needle(data_dir: &Path, options: &BrokerOptions) -> Option<i64> {
    let broker = options.start().expect("it starts");
    let mut client = connect(&broker);
    for name in ["hit", "well", "idle"] {
        topic::create(&mut client, name, 1, &[]).expect("made");
    }
    assert_eq!(check(data_dir, &[]).0, Some(3));
    let begun = Instant::now();
    assert_eq!(topic::produce(&mut client, "hit", 0, ["before it"]), Ok(0));
    assert_eq!(topic::produce(&mut client, "hit", 0, ["the needle", "and its eye"]), Ok(1));
    assert_eq!(topic::produce(&mut client, "hit", 0, ["behind it"]), Ok(3));
    let mut end = 0;
    // The journal notes once in a second which logs need it.
    while begun.elapsed() < IDLE_AFTER {
        end = topic::produce(&mut client, "well", 0, ["well"]).expect("written") + 1;
        if is_noted(data_dir, "hit", b"behind it") {
            break;
        }
    }
    broker.kill().expect("it dies");
    (begun.elapsed() < IDLE_AFTER).then_some(end)
}

#[test]
fn a_flipped_bit_in_a_closed_segment() {
    // Rule: the consumer gets an error and no garbage, everything else is served; the check names path, position and
    // offsets; the repair loses that batch and no other.
    let dir = TempDir::new("flipped").expect("a directory");
    let options = BrokerOptions::new(dir.path());
    let broker = options.start().expect("it starts");
    let mut client = connect(&broker);
    topic::create(&mut client, "a", 1, &[("segment.bytes", SEGMENT_BYTES)]).expect("made");
    for number in 0..30 {
        let values = [format!("{number:_>50000}"), format!("{number:->50000}")];
        assert_eq!(topic::produce(&mut client, "a", 0, values), Ok(number * 2));
    }
    assert!(broker.stop().expect("it ends").0.success());
    assert_eq!(check(dir.path(), &[]).0, Some(0));

    let partition = dir.path().join("a-0");
    let (path, position) = find(&partition, format!("{:_>50000}", 4).as_bytes()).expect("it is in a segment");
    assert!(
        path.ends_with("00000000000000000000.log")
            && find(&partition, format!("{:_>50000}", 29).as_bytes()).expect("there").0 != path
    );
    flip_bit(&path, position + 1000).expect("it is there");
    let (code, text) = check(dir.path(), &[]);
    assert_eq!(code, Some(1), "{text}");
    for part in [path.to_str().expect("text"), "offsets 8 to 9", "offset 8", "1 place is damaged"] {
        assert!(text.contains(part), "{part}: {text}");
    }

    let broker = options.start().expect("it starts");
    let mut client = connect(&broker);
    assert_eq!(fetch(&mut client, "a", 6), Ok(vec![(6, 7, 2)]));
    for offset in [8, 9] {
        assert_eq!(fetch(&mut client, "a", offset), Err(ErrorCode::CorruptMessage));
    }
    assert_eq!(fetch_all(&mut client, "a", 10).expect("readable").len(), 25);
    assert_eq!(topic::produce(&mut client, "a", 0, ["more"]), Ok(60));
    let (code, text) = check(dir.path(), &[]);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("is in use by another broker"), "{text}");
    assert!(broker.stop().expect("it ends").0.success());

    let (code, text) = check(dir.path(), &["--repair"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("a-0: offsets 8 to 9 are lost; what is left of them is in"), "{text}");
    let (code, text) = check(dir.path(), &["--json"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("\"damaged_places\":0"), "{text}");
    let broker = options.start().expect("it starts");
    let mut client = connect(&broker);
    let mut want: Vec<_> =
        (0..30).map(|number| (number * 2, number * 2 + 1, if number == 4 { 0 } else { 2 })).collect();
    want.push((60, 60, 1));
    assert_eq!(fetch_all(&mut client, "a", 0), Ok(want));
    assert_eq!(topic::produce(&mut client, "a", 0, ["more"]), Ok(61));
}

#[test]
fn a_flipped_bit_in_a_journal() {
    // Rule: the broker starts; the log whose records were there refuses appends, reads what is before them and says of
    // what is not that it is the storage; all others serve. The repair brings it back behind the offsets that were given.
    let made = (0..ATTEMPTS).find_map(|_| {
        let dir = TempDir::new("journal-damage").expect("a directory");
        let options = BrokerOptions::new(dir.path());
        let end = die_with_a_needle(dir.path(), &options)?;
        Some((dir, options, end))
    });
    let (dir, options, end) = made.expect("a journal says in time who needs it");
    let (code, text) = check(dir.path(), &[]);
    assert_eq!(code, Some(0), "what a kill leaves is no damage: {text}");
    assert!(text.contains("records to put into logs at a start: "), "{text}");

    let (path, position) = find_in_journals(dir.path(), b"the needle").expect("it is in a journal");
    flip_bit(&path, position + 2).expect("it is there");
    let (code, text) = check(dir.path(), &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(path.to_str().expect("text")), "{text}");

    let broker = options.start().expect("it starts all the same");
    let mut client = connect(&broker);
    let refused = topic::produce(&mut client, "hit", 0, ["more"]).expect_err("it may have lost something");
    assert!(refused.contains("KafkaStorageError"), "{refused}");
    assert_eq!(fetch(&mut client, "hit", 0), Ok(vec![(0, 0, 1)]));
    for offset in 1..5 {
        assert_eq!(fetch(&mut client, "hit", offset), Err(ErrorCode::KafkaStorageError), "{offset}");
    }
    assert_eq!(topic::produce(&mut client, "well", 0, ["well"]), Ok(end));
    assert_eq!(topic::produce(&mut client, "idle", 0, ["idle"]), Ok(0));
    assert_eq!(topic::offset(&mut client, "well", 0, LATEST), Ok(end + 1));
    broker.kill().expect("it dies");

    let (code, text) = check(dir.path(), &["--repair"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("hit-0: offsets 1 to 2 are lost"), "{text}");
    let (code, text) = check(dir.path(), &[]);
    assert_eq!(code, Some(0), "{text}");
    let broker = options.start().expect("it starts");
    let mut client = connect(&broker);
    assert_eq!(fetch_all(&mut client, "hit", 0), Ok(vec![(0, 0, 1), (1, 2, 0), (3, 3, 1)]));
    assert_eq!(topic::produce(&mut client, "hit", 0, ["more"]), Ok(4));
    assert_eq!(fetch_all(&mut client, "well", 0).expect("readable").len() as i64, end + 1);
}

#[test]
fn what_is_no_data_directory_is_left_alone() {
    // Rule: a path that cannot be meant is a bad argument, and nothing is made there.
    let dir = TempDir::new("nothing").expect("a directory");
    assert_eq!(check(dir.path(), &["--repair"]).0, Some(2));
    assert_eq!(check(&dir.path().join("nowhere"), &[]).0, Some(2));
    assert_eq!(fs::read_dir(dir.path()).expect("it is there").count(), 0);
}
