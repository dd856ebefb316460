//! The same histories through Apache Kafka and through the broker under test, compacted by both: the same records are left.
//!
//! Compaction is held off by `min.cleanable.dirty.ratio` while a history is written, and let go by altering it, so that both
//! brokers go over the same segments. That they are done is read from their `cleaner-offset-checkpoint`.

mod history;
mod read;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use walser_protocol::messages::produce::{PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData};
use walser_protocol::{ApiKey, ErrorCode};
use walser_storage::runtime::prng::Prng;

use crate::raw_client::RawClient;
use crate::topic::{self, LATEST};
use history::{Case, History};
use read::{Left, read_all, read_one};

/// Kafka takes a moment to notice a changed config, and its cleaner to come round.
const COMPACTION_WAIT: Duration = Duration::from_secs(300);
const POLL_PAUSE: Duration = Duration::from_millis(20);
/// Offsets and times that are asked for after each phase.
const QUESTIONS: usize = 60;
/// Requests that wait for their answers at once: as many as a producer may have.
const IN_FLIGHT: usize = 5;
const PRODUCE_VERSION: i16 = 9;
const NEVER: &str = "1.0";
const AT_ONCE: &str = "0.0";

/// A broker and where its logs are.
pub struct Place {
    pub address: String,
    pub data_dir: PathBuf,
}

struct Broker {
    client: RawClient,
    data_dir: PathBuf,
}

/// What a case has shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    pub written: usize,
    pub left: usize,
}

/// Names of the cases.
pub fn cases() -> Vec<&'static str> {
    Case::ALL.iter().map(|case| case.name()).collect()
}

/// Runs one case on both brokers.
///
/// # Errors
/// What the two disagree about first.
pub fn run(name: &str, places: &[Place; 2], seed: u64) -> Result<Report, String> {
    let case = Case::ALL.into_iter().find(|case| case.name() == name).ok_or("no such case")?;
    let topic = format!("compaction-{name}-{seed}");
    let mut brokers = Vec::new();
    for place in places {
        let client = topic::connect(&place.address)?;
        brokers.push(Broker { client, data_dir: place.data_dir.join(format!("{topic}-0")) });
    }
    let mut configs = vec![
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", NEVER),
        // Smaller than operators may set it, so that little has to be written.
        ("internal.segment.bytes", "65536"),
        ("index.interval.bytes", "512"),
    ];
    let own = case.configs();
    configs.retain(|(name, _)| !own.iter().any(|(other, _)| other == name));
    configs.extend(own);
    for broker in &mut brokers {
        topic::create(&mut broker.client, &topic, 1, &configs)?;
    }
    let mut history = History::new(case, seed);
    let mut report = Report::default();
    for phase in 0..case.phases() {
        let batches = history.next_phase();
        report.written += history.records_written;
        std::thread::scope(|scope| {
            let writing: Vec<_> =
                brokers.iter_mut().map(|broker| scope.spawn(|| write(&mut broker.client, &topic, &batches))).collect();
            writing.into_iter().try_for_each(|writer| writer.join().expect("a writer does not panic"))
        })?;
        let context = |what: String| format!("phase {phase}: {what}");
        for broker in &mut brokers {
            wait_finished(broker).map_err(context)?;
            set_ratio(&mut broker.client, &topic, AT_ONCE)?;
            wait_clean(broker, &topic, history.clean_limit()).map_err(context)?;
            set_ratio(&mut broker.client, &topic, NEVER)?;
            // What comes next is not compacted while it is written.
            let number = case as u32 * 10 + u32::try_from(phase).unwrap_or(0);
            topic::settle_configs(&mut broker.client, number).map_err(|error| context(error.to_string()))?;
        }
        report.left = compare(&mut brokers, &topic, &history, seed).map_err(context)?;
        for batch in history.last_of_producers() {
            compare_duplicates(&mut brokers, &topic, batch).map_err(context)?;
        }
    }
    Ok(report)
}

/// All batches in their order, several on their way at once.
fn write(client: &mut RawClient, topic: &str, batches: &[Vec<u8>]) -> Result<(), String> {
    let mut sent = VecDeque::new();
    for batch in batches {
        sent.push_back(send(client, topic, batch)?);
        if sent.len() == IN_FLIGHT {
            sent.pop_front().map_or(Ok(0), |id| receive(client, id))?;
        }
    }
    sent.into_iter().try_for_each(|id| receive(client, id).map(drop))
}

/// The base offset.
fn produce_at(client: &mut RawClient, topic: &str, batch: &[u8]) -> Result<i64, String> {
    let id = send(client, topic, batch)?;
    receive(client, id)
}

fn send(client: &mut RawClient, topic: &str, batch: &[u8]) -> Result<i32, String> {
    let data = PartitionProduceData { index: 0, records: Some(batch) };
    let topic = TopicProduceData { name: topic, partition_data: vec![data], ..TopicProduceData::default() };
    let request =
        ProduceRequest { acks: -1, timeout_ms: 120_000, topic_data: vec![topic], ..ProduceRequest::default() };
    client.send(ApiKey::Produce, PRODUCE_VERSION, &request).map_err(|error| format!("produce: {error}"))
}

fn receive(client: &mut RawClient, id: i32) -> Result<i64, String> {
    let answer = client.receive(ApiKey::Produce, PRODUCE_VERSION, id).map_err(|error| format!("produce: {error}"))?;
    let answer = ProduceResponse::decode(&mut answer.reader(), PRODUCE_VERSION).map_err(|error| error.to_string())?;
    match answer.responses.first().and_then(|topic| topic.partition_responses.first()) {
        Some(answer) if answer.error_code == ErrorCode::None.code() => Ok(answer.base_offset),
        answer => Err(format!("produce: {answer:?}")),
    }
}

fn set_ratio(client: &mut RawClient, topic: &str, ratio: &str) -> Result<(), String> {
    topic::alter_config(client, topic, "min.cleanable.dirty.ratio", ratio)
}

/// Waits until all segments but the active one can be compacted, so that one pass takes them all: a second one would meet the
/// tombstones of the first. The producers at its end are the last that is written of a segment.
fn wait_finished(broker: &Broker) -> Result<(), String> {
    let deadline = Instant::now() + COMPACTION_WAIT;
    loop {
        let bases = base_offsets(&broker.data_dir)?;
        let is_there = |base: &i64| broker.data_dir.join(format!("{base:020}.snapshot")).exists();
        if bases.iter().skip(1).all(is_there) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("segments of {} are not finished", broker.data_dir.display()));
        }
        std::thread::sleep(POLL_PAUSE);
    }
}

/// Waits until the log is compacted up to its active segment, or to the segment that holds `limit` where that comes first.
fn wait_clean(broker: &Broker, topic: &str, limit: Option<i64>) -> Result<(), String> {
    let checkpoint = broker.data_dir.parent().unwrap_or(Path::new(".")).join("cleaner-offset-checkpoint");
    let deadline = Instant::now() + COMPACTION_WAIT;
    loop {
        let bases = base_offsets(&broker.data_dir)?;
        let active = bases.last().copied().unwrap_or(0);
        let holder = limit.and_then(|limit| bases.iter().rev().find(|base| **base <= limit).copied());
        let want = holder.unwrap_or(active).min(active);
        let clean_to = read_checkpoint(&checkpoint, topic);
        if clean_to.is_some_and(|clean_to| clean_to >= want) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("{} says {clean_to:?}, {want} is wanted", checkpoint.display()));
        }
        std::thread::sleep(POLL_PAUSE);
    }
}

fn base_offsets(dir: &Path) -> Result<Vec<i64>, String> {
    let entries = std::fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let names = entries.filter_map(Result::ok).map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut bases: Vec<i64> = names.filter_map(|name| name.strip_suffix(".log")?.parse().ok()).collect();
    bases.sort_unstable();
    Ok(bases)
}

/// `None` while the file does not name the topic, or is being replaced.
fn read_checkpoint(path: &Path, topic: &str) -> Option<i64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{topic} 0 ")))?;
    line.trim().parse().ok()
}

/// What is left, by reading everything, from offsets that are gone, and by time; how many records there are.
fn compare(brokers: &mut [Broker], topic: &str, history: &History, seed: u64) -> Result<usize, String> {
    let mut found = Vec::new();
    for broker in brokers.iter_mut() {
        found.push(read_all(&mut broker.client, topic, history.compares_times())?);
    }
    let (theirs, ours): (&[Left], &[Left]) = (&found[0], &found[1]);
    if theirs != ours {
        return Err(first_difference(theirs, ours));
    }
    let mut prng = Prng::new(seed);
    let end = topic::offset(&mut brokers[1].client, topic, 0, LATEST)?;
    for _ in 0..QUESTIONS {
        let offset = prng.below(end.unsigned_abs()) as i64;
        let answers = ask(brokers, |client| read_one(client, topic, offset, history.compares_times()))?;
        let want = ours.iter().find(|left| left.offset >= offset);
        if answers[0] != answers[1] || answers[1].as_ref() != want {
            return Err(format!("a fetch from {offset} begins with {:?}, Kafka's with {:?}", answers[1], answers[0]));
        }
        if history.compares_times() {
            compare_time(brokers, topic, history.some_time(&mut prng), ours)?;
        }
    }
    Ok(ours.len())
}

/// The first record that is not older than `time`. Kafka looks into one segment only, the first whose index promises one;
/// where that promise was of a record that is gone, it says there is none at all.
fn compare_time(brokers: &mut [Broker], topic: &str, time: i64, left: &[Left]) -> Result<(), String> {
    const NONE: i64 = -1;
    let want = left.iter().find(|left| left.timestamp >= time).map_or(NONE, |left| left.offset);
    let answers = ask(brokers, |client| topic::offset(client, topic, 0, time))?;
    if answers[1] != want || (answers[0] != want && answers[0] != NONE) {
        let (ours, theirs) = (answers[1], answers[0]);
        return Err(format!("the offset for time {time} is {ours}, Kafka's {theirs}, and should be {want}"));
    }
    Ok(())
}

fn ask<T>(
    brokers: &mut [Broker],
    mut question: impl FnMut(&mut RawClient) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    brokers.iter_mut().map(|broker| question(&mut broker.client)).collect()
}

fn first_difference(theirs: &[Left], ours: &[Left]) -> String {
    let at = theirs.iter().zip(ours).position(|(theirs, ours)| theirs != ours).unwrap_or(theirs.len().min(ours.len()));
    let (kept, there) = (ours.len(), theirs.len());
    format!(
        "{kept} records are left, in Kafka {there}; number {at} is {:?}, in Kafka {:?}",
        ours.get(at),
        theirs.get(at)
    )
}

/// A producer's last batch sent again is known, wherever its records have gone.
fn compare_duplicates(brokers: &mut [Broker], topic: &str, batch: &[u8]) -> Result<(), String> {
    let before = ask(brokers, |client| topic::offset(client, topic, 0, LATEST))?;
    let answers = ask(brokers, |client| produce_at(client, topic, batch))?;
    let after = ask(brokers, |client| topic::offset(client, topic, 0, LATEST))?;
    if answers[0] != answers[1] || before != after {
        return Err(format!("a batch sent again is at {answers:?}, the logs end at {before:?} and then at {after:?}"));
    }
    Ok(())
}
