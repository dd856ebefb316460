//! A client that does nothing wrong: it writes a batch at a steady rate, reads it back and compares.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use walser_protocol::messages::fetch::FetchResponse;
use walser_protocol::records::batch::BatchView;
use walser_protocol::records::record::{Records, records_slice};
use walser_protocol::{ApiKey, ErrorCode};

use crate::crash::load::stamped;
use crate::raw_client::RawClient;
use crate::topic;

const TOPIC: &str = "honest";
/// On every shard, whichever the connection is on.
const PARTITIONS: i32 = 4;
const EVERY: Duration = Duration::from_millis(20);
const RECORDS: u64 = 4;
/// An attack may slow this client; one that keeps it waiting longer has won.
const ANSWER_DEADLINE: Duration = Duration::from_secs(120);
const FETCH_BYTES_MAX: i32 = 1 << 20;

/// How long its rounds took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latencies {
    pub rounds: usize,
    pub p50: Duration,
    pub p99: Duration,
    pub longest: Duration,
}

impl Latencies {
    fn of(mut rounds: Vec<Duration>) -> Self {
        rounds.sort_unstable();
        let at = |percent: usize| rounds.get(rounds.len() * percent / 100).copied().unwrap_or_default();
        Self { rounds: rounds.len(), p50: at(50), p99: at(99), longest: rounds.last().copied().unwrap_or_default() }
    }

    pub fn p99_ratio(self, before: Self) -> f64 {
        self.p99.as_secs_f64() / before.p99.as_secs_f64().max(1e-6)
    }
}

impl fmt::Display for Latencies {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, p50, p99, longest } = self;
        write!(formatter, "{rounds:>5} rounds, p50 {p50:>9.1?}, p99 {p99:>9.1?}, longest {longest:>9.1?}")
    }
}

/// What the client's thread tells.
#[derive(Default)]
struct Rounds {
    took: Vec<Duration>,
    /// When the round that is not over was to begin.
    due: Option<Instant>,
}

/// The client, in a thread of its own.
pub struct Honest {
    stop: Arc<AtomicBool>,
    rounds: Arc<Mutex<Rounds>>,
    thread: JoinHandle<Result<u64, String>>,
}

impl Honest {
    pub fn start(address: &str) -> Result<Self, String> {
        let mut client = topic::connect(address)?;
        topic::create(&mut client, TOPIC, PARTITIONS, &[])?;
        client.stream().set_read_timeout(Some(ANSWER_DEADLINE)).map_err(|error| error.to_string())?;
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::default()));
        let (until, into) = (Arc::clone(&stop), Arc::clone(&rounds));
        let thread = std::thread::spawn(move || work(client, &until, &into));
        Ok(Self { stop, rounds, thread })
    }

    /// Of the rounds since this was last asked, and of the one that is not over as far as it is late.
    pub fn latencies(&self) -> Latencies {
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        let mut took = std::mem::take(&mut rounds.took);
        took.extend(rounds.due.map(|due| due.elapsed()).filter(|late| *late > EVERY));
        Latencies::of(took)
    }

    /// Records written and read.
    ///
    /// # Errors
    /// The first thing that was not as it should be.
    pub fn finish(self) -> Result<u64, String> {
        self.stop.store(true, Ordering::Relaxed);
        let outcome = self.thread.join().map_err(|_| "the honest client panicked".to_owned())?;
        outcome.map_err(|error| format!("honest client: {error}"))
    }
}

/// A round begins when its time has come, however late the last one was answered, and its time counts from there.
fn work(mut client: RawClient, stop: &AtomicBool, rounds: &Mutex<Rounds>) -> Result<u64, String> {
    let mut due = Instant::now();
    let mut next_offsets = [0_i64; PARTITIONS as usize];
    let mut written = 0;
    for partition in (0..PARTITIONS).cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        rounds.lock().unwrap_or_else(PoisonError::into_inner).due = Some(due);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let next_offset = &mut next_offsets[usize::try_from(partition).unwrap_or(0)];
        let base_offset = topic::produce(
            &mut client,
            TOPIC,
            partition,
            (written..written + RECORDS).map(|number| stamped(0, number)),
        )?;
        if base_offset != *next_offset {
            return Err(format!("partition {partition}: written at {base_offset}, not at {next_offset}"));
        }
        read_back(&mut client, partition, base_offset, written)?;
        *next_offset += RECORDS as i64;
        written += RECORDS;
        rounds.lock().unwrap_or_else(PoisonError::into_inner).took.push(due.elapsed());
        // After a long wait it does not make up for what it missed.
        due = (due + EVERY).max(Instant::now().checked_sub(EVERY).unwrap_or(due));
    }
    Ok(written)
}

fn read_back(client: &mut RawClient, partition: i32, offset: i64, first: u64) -> Result<(), String> {
    let request = topic::fetch_request(TOPIC, partition, offset, FETCH_BYTES_MAX, 500);
    let response = client.call(ApiKey::Fetch, 11, &request).map_err(|error| format!("fetch: {error}"))?;
    let response = FetchResponse::decode(&mut response.reader(), 11).map_err(|error| error.to_string())?;
    let data = response.responses.first().and_then(|topic| topic.partitions.first()).ok_or("an empty answer")?;
    if data.error_code != ErrorCode::None.code() {
        return Err(format!("fetch: error {}", data.error_code));
    }
    let records = data.records.and_then(|records| records.as_whole()).unwrap_or_default();
    let batch = BatchView::parse_exact(records).map_err(|error| format!("{partition} at {offset}: {error}"))?;
    batch.verify_crc().map_err(|error| error.to_string())?;
    let mut scratch = Vec::new();
    let slice = records_slice(&batch, &mut scratch, FETCH_BYTES_MAX as usize).map_err(|error| error.to_string())?;
    let mut numbers = first..first + RECORDS;
    for record in Records::new(batch.header(), slice) {
        let record = record.map_err(|error| error.to_string())?;
        let want = numbers.next().map(|number| stamped(0, number));
        if record.value != want.as_deref() {
            return Err(format!("partition {partition}: the record at {} is not the one written", record.offset));
        }
    }
    if numbers.next().is_some() { Err(format!("partition {partition}: records are missing")) } else { Ok(()) }
}
