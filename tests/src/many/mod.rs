//! Thousands of partitions in one broker: how long they take to make, what an idle one costs, how soon all serve again after
//! `kill -9`, and whether everything is still there.

mod traffic;

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::process::{Broker, BrokerOptions};
use crate::raw_client::RawClient;
use crate::topic;

pub use traffic::{Ends, fetch_all, list_ends, produce_all};

/// Partitions of one topic.
const TOPIC_PARTITIONS: usize = 1000;
/// One batch; larger ones go past the journal, smaller ones through it.
const BATCH_BYTES: usize = 100_000;
const SMALL_BATCH_BYTES: usize = 200;
/// Deaths of which each is timed.
const ROUNDS: usize = 5;
/// After so long nobody writes to a partition any more: what it holds only for writers is given back.
const IDLE: Duration = Duration::from_secs(25);

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub partitions: usize,
    /// Of records, over all partitions.
    pub bytes: u64,
}

/// A topic and how many partitions it has.
pub type Topics = Vec<(String, usize)>;

pub fn topics(partitions: usize) -> Topics {
    let counts = (0..partitions).step_by(TOPIC_PARTITIONS).map(|from| (partitions - from).min(TOPIC_PARTITIONS));
    counts.enumerate().map(|(number, count)| (format!("many-{number}"), count)).collect()
}

/// Makes, fills, kills and starts again, and says how that went.
///
/// # Errors
/// When the broker refuses something, and when something acknowledged is gone.
pub fn run(data_dir: &Path, settings: Settings) -> Result<(), String> {
    let options = BrokerOptions::new(data_dir).set("walser.log.level", "warn");
    let mut broker = options.start().map_err(|error| error.to_string())?;
    let topics = topics(settings.partitions);
    let before = Cost::of(&broker)?;
    let began = Instant::now();
    for (name, partitions) in &topics {
        let count = i32::try_from(*partitions).map_err(|error| error.to_string())?;
        topic::create(&mut connect(&broker)?, name, count, &[])?;
    }
    println!("{} partitions made in {:.2} s", settings.partitions, began.elapsed().as_secs_f64());
    Cost::of(&broker)?.print("empty", before, settings.partitions);

    let mut ends = Ends::default();
    produce_all(&mut connect(&broker)?, &topics, SMALL_BATCH_BYTES, &mut ends)?;
    let began = Instant::now();
    for _ in 0..settings.bytes / (BATCH_BYTES * settings.partitions) as u64 {
        produce_all(&mut connect(&broker)?, &topics, BATCH_BYTES, &mut ends)?;
    }
    println!("{} MiB written in {:.1} s", settings.bytes >> 20, began.elapsed().as_secs_f64());
    produce_all(&mut connect(&broker)?, &topics, SMALL_BATCH_BYTES, &mut ends)?;
    Cost::of(&broker)?.print("written to", before, settings.partitions);
    thread::sleep(IDLE);
    Cost::of(&broker)?.print("idle", before, settings.partitions);

    for round in 0..ROUNDS {
        broker = restart(broker, "idle", &topics, &ends)?;
        Cost::of(&broker)?.print("started again", before, settings.partitions);
        fetch_all(&mut connect(&broker)?, &topics, &ends)?;
        Cost::of(&broker)?.print("read", before, settings.partitions);
        if round % 2 == 1 {
            produce_all(&mut connect(&broker)?, &topics, SMALL_BATCH_BYTES, &mut ends)?;
            broker = restart(broker, "just written to", &topics, &ends)?;
            fetch_all(&mut connect(&broker)?, &topics, &ends)?;
        }
        thread::sleep(IDLE);
    }
    let began = Instant::now();
    broker.stop().map_err(|error| error.to_string())?;
    println!("clean stop in {:.2} s", began.elapsed().as_secs_f64());
    let began = Instant::now();
    let broker = options.start().map_err(|error| error.to_string())?;
    println!("ready after a clean stop in {:.3} s", began.elapsed().as_secs_f64());
    list_ends(&mut connect(&broker)?, &topics, &ends)
}

/// Kills it and has everybody find what was acknowledged.
fn restart(broker: Broker, state: &str, topics: &Topics, ends: &Ends) -> Result<Broker, String> {
    let options = broker.kill().map_err(|error| error.to_string())?;
    let began = Instant::now();
    let broker = options.start().map_err(|error| error.to_string())?;
    println!("ready after kill -9 ({state}) in {:.3} s", began.elapsed().as_secs_f64());
    list_ends(&mut connect(&broker)?, topics, ends)?;
    Ok(broker)
}

fn connect(broker: &Broker) -> Result<RawClient, String> {
    topic::connect(broker.address())
}

/// What the broker takes of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    pub resident_kib: u64,
    pub descriptors: usize,
}

impl Cost {
    pub fn of(broker: &Broker) -> Result<Self, String> {
        let resident_kib = broker.status_kib("VmRSS").map_err(|error| error.to_string())?;
        let open = fs::read_dir(format!("/proc/{}/fd", broker.pid())).map_err(|error| error.to_string())?;
        Ok(Self { resident_kib, descriptors: open.count() })
    }

    fn print(self, state: &str, before: Self, partitions: usize) {
        let more = (self.resident_kib.saturating_sub(before.resident_kib) * 1024) / partitions as u64;
        let Self { resident_kib, descriptors } = self;
        println!("{state}: {resident_kib} KiB resident, {more} bytes more a partition; {descriptors} descriptors");
    }
}
