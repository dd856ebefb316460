//! Order under load: several connections with five requests in flight each, on a broker of two shards.
//!
//! Replies of a connection come in the order of its requests, and what a connection appends to a partition stands there in
//! the order it was sent, whichever shards the connection and the partition are on. Every shard works meanwhile.

mod consumer;
mod producer;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::process::{Broker, BrokerOptions};
use crate::topic;
use consumer::Consumer;
use producer::{Acks, Producer};

const TOPIC: &str = "order";
const PARTITIONS: i32 = 64;
const SHARDS: usize = 2;
/// Requests of one connection that are not answered.
const IN_FLIGHT: usize = 5;
/// Producers: idempotent and plain, with each kind of acknowledgement that they may have.
const PRODUCERS: [(bool, Acks); 6] = [
    (false, Acks::None),
    (false, Acks::Leader),
    (false, Acks::All),
    (true, Acks::All),
    (true, Acks::All),
    (false, Acks::All),
];
/// Each reads a part of the partitions while they are written.
const CONSUMERS: i32 = 2;
/// A shard that has used less of what both used together has not done its part.
const SHARE_MIN: f64 = 0.15;
/// Of what was sent without acknowledgements.
const FLUSH_DEADLINE: Duration = Duration::from_secs(120);

/// What a run has done.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub requests: u64,
    pub batches: u64,
    pub records_read: u64,
    /// CPU of each shard's thread, in clock ticks.
    pub shard_ticks: Vec<u64>,
}

/// Produces and fetches for `time`, then reads everything back.
///
/// # Errors
/// The first thing out of order.
pub fn run(data_dir: &Path, seed: u64, time: Duration) -> Result<Report, String> {
    let options = BrokerOptions::new(data_dir).set("walser.shards", &SHARDS.to_string());
    let broker = options.start().map_err(|error| error.to_string())?;
    if broker.ready.shards != SHARDS {
        return Err(format!("{} shards instead of {SHARDS}", broker.ready.shards));
    }
    topic::create(&mut topic::connect(broker.address())?, TOPIC, PARTITIONS, &[])?;
    let before = shard_ticks(&broker).map_err(|error| error.to_string())?;
    let stop = AtomicBool::new(false);
    let mut producers = Vec::new();
    for (number, (is_idempotent, acks)) in (0..).zip(PRODUCERS) {
        producers.push(Producer::connect(broker.address(), number, is_idempotent, acks, seed)?);
    }
    let mut report = Report::default();
    let mut consumers: Vec<Consumer> = (0..CONSUMERS).map(|number| Consumer::new(number, CONSUMERS)).collect();
    std::thread::scope(|scope| {
        let producing: Vec<_> = producers.iter_mut().map(|producer| scope.spawn(|| producer.run(&stop))).collect();
        let address = broker.address();
        let consuming: Vec<_> = consumers.iter_mut().map(|each| scope.spawn(|| each.run(address, &stop))).collect();
        std::thread::park_timeout(time);
        stop.store(true, Ordering::Relaxed);
        let results = producing.into_iter().chain(consuming);
        results.map(|thread| thread.join().map_err(|_| "a client panicked".to_owned())?).try_for_each(|done| done)
    })?;
    let after = shard_ticks(&broker).map_err(|error| error.to_string())?;
    report.shard_ticks = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    report.requests = producers.iter().map(|producer| producer.requests).sum::<u64>()
        + consumers.iter().map(|consumer| consumer.requests).sum::<u64>();
    let sent = producers.iter().map(Producer::sent).sum();
    report.records_read = read_all(broker.address(), &mut consumers, sent)?;
    verify(&producers, &consumers, &mut report)?;
    verify_shares(&report.shard_ticks)?;
    let (status, _) = broker.stop().map_err(|error| error.to_string())?;
    if status.success() { Ok(report) } else { Err(format!("the clean stop ended with {status}")) }
}

/// Reads on until everything sent is there, or has had its time; how many records there are. What is not acknowledged is to
/// be read when it is flushed, and nothing says when that is.
fn read_all(address: &str, consumers: &mut [Consumer], sent: u64) -> Result<u64, String> {
    let deadline = Instant::now() + FLUSH_DEADLINE;
    loop {
        for consumer in &mut *consumers {
            consumer.read_to_end(address)?;
        }
        let found = consumers.iter().map(Consumer::records).sum();
        if found >= sent || Instant::now() > deadline {
            return Ok(found);
        }
    }
}

/// What was read of every partition holds each producer's records in the order sent, every acknowledged one where the
/// acknowledgement said, and nothing twice.
fn verify(producers: &[Producer], consumers: &[Consumer], report: &mut Report) -> Result<(), String> {
    let mut last: BTreeMap<(u16, i32), u64> = BTreeMap::new();
    let mut counts: BTreeMap<u16, u64> = BTreeMap::new();
    for consumer in consumers {
        for (partition, found) in consumer.partitions() {
            for (offset, stamp) in found.iter().enumerate() {
                *counts.entry(stamp.producer).or_default() += 1;
                let before = last.insert((stamp.producer, partition), stamp.number);
                if before.is_some_and(|before| before >= stamp.number) {
                    return Err(format!(
                        "partition {partition}, offset {offset}: record {} of producer {} follows its record {before:?}",
                        stamp.number, stamp.producer
                    ));
                }
            }
            for producer in producers {
                report.batches += producer.verify(partition, found)?;
            }
        }
    }
    // Those that are not acknowledged are there, too: an error would have closed the connection.
    for producer in producers {
        let found = counts.get(&producer.number()).copied().unwrap_or(0);
        if found != producer.sent() {
            return Err(format!("producer {} sent {} records, {found} are there", producer.number(), producer.sent()));
        }
    }
    Ok(())
}

fn verify_shares(ticks: &[u64]) -> Result<(), String> {
    let all: u64 = ticks.iter().sum();
    let is_idle = |ticks: &u64| (*ticks as f64) < all as f64 * SHARE_MIN;
    if ticks.len() != SHARDS || ticks.iter().any(is_idle) {
        return Err(format!("not every shard was busy: {ticks:?} ticks"));
    }
    Ok(())
}

/// User and system time of the threads called `shard-…`, by name.
fn shard_ticks(broker: &Broker) -> io::Result<Vec<u64>> {
    let mut by_name = BTreeMap::new();
    for task in fs::read_dir(format!("/proc/{}/task", broker.pid()))? {
        let stat = fs::read_to_string(task?.path().join("stat"))?;
        let Some((name, fields)) = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')')) else { continue };
        if !name.starts_with("shard-") {
            continue;
        }
        let fields: Vec<&str> = fields.split_whitespace().collect();
        // Fields 14 and 15 of the file, of which the first two are gone.
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        // Helper threads may share the name: the busiest one is the shard.
        let most = by_name.entry(name.to_owned()).or_insert(0);
        *most = ticks(11).saturating_add(ticks(12)).max(*most);
    }
    Ok(by_name.into_values().collect())
}
