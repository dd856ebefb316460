//! The disk alone and a broker on it, side by side: how much of what the disk takes a broker makes durable, and how often it
//! writes each byte. In every round each load has a broker of its own, on an empty directory of the same disk.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::broker::{Broker, BrokerOptions};
use crate::measured::Measured;
use crate::plain::{self, Extents, PlainWrites};
use crate::produce::{self, Load};
use crate::tail;

const TOPIC: &str = "write-path";
/// Blocks of the disk alone, and batches.
const SIZES: [usize; 3] = [64 << 10, 256 << 10, 1 << 20];
/// A batch of the largest size is to be one that a broker takes by default.
const RECORD_BYTES: usize = 1024;
/// Bytes that a load keeps under way, and requests at most.
const OPEN_BYTES: usize = 8 << 20;
const OPEN_REQUESTS_MAX: usize = 32;
/// Small appends: so many connections, each with so many open requests of one record.
const SMALL_CONNECTIONS: usize = 8;
const SMALL_DEPTH: usize = 64;
const SMALL_PARTITIONS: i32 = 16;
/// So long the journal's files are new, and written with zeros before they are used.
const SMALL_WARM_UP: Duration = Duration::from_secs(6);

#[derive(Clone, Debug)]
pub struct WritePath {
    pub binary: PathBuf,
    /// On the disk that is measured.
    pub dir: PathBuf,
    pub cpu: usize,
    pub settings: Vec<String>,
    pub rounds: usize,
    /// Partitions of the loads of large batches.
    pub partitions: Vec<i32>,
    pub warm_up: Duration,
    /// Of each load.
    pub measured: Duration,
    /// A consumer keeps up with each load.
    pub follows: bool,
    /// Of what the disk alone is given.
    pub plain_bytes: u64,
}

/// One figure of each round, and what it is.
#[derive(Clone, Debug)]
struct Row {
    name: String,
    figures: Vec<f64>,
}

impl Row {
    fn median(&self) -> f64 {
        let mut sorted = self.figures.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }
}

#[derive(Default)]
struct Table {
    rows: Vec<Row>,
}

impl Table {
    fn put(&mut self, name: String, figure: f64) {
        println!("  {name}: {figure:.3}");
        match self.rows.iter_mut().find(|row| row.name == name) {
            Some(row) => row.figures.push(figure),
            None => self.rows.push(Row { name, figures: vec![figure] }),
        }
    }

    fn print(&self) {
        for row in &self.rows {
            let least = row.figures.iter().copied().fold(f64::INFINITY, f64::min);
            let most = row.figures.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            println!("{}: median {:.3} ({least:.3} to {most:.3})", row.name, row.median());
        }
    }
}

/// Prints each figure as it comes, and all medians at the end.
pub fn run(write_path: &WritePath) -> io::Result<()> {
    let mut table = Table::default();
    for round in 1..=write_path.rounds {
        println!("round {round}");
        for size in SIZES {
            large(write_path, size, &mut table)?;
        }
        small(write_path, &mut table)?;
    }
    println!("medians of {} rounds", write_path.rounds);
    table.print();
    Ok(())
}

fn large(write_path: &WritePath, size: usize, table: &mut Table) -> io::Result<()> {
    let kib = size >> 10;
    let plain = |extents, flushes| {
        plain::run(&PlainWrites {
            dir: write_path.dir.clone(),
            block_bytes: size,
            file_bytes: write_path.plain_bytes,
            extents,
            flushes,
            measured: write_path.measured,
        })
    };
    let disk = plain(Extents::Reserved, false)?;
    table.put(format!("{kib} KiB, disk alone, MB/s"), disk / 1e6);
    let flushed = plain(Extents::Reserved, true)?;
    table.put(format!("{kib} KiB, disk alone, a flush each, MB/s"), flushed / 1e6);
    let written = plain(Extents::Written, true)?;
    table.put(format!("{kib} KiB, disk alone, a flush each, written before, MB/s"), written / 1e6);
    for &partitions in &write_path.partitions {
        let depth = (OPEN_BYTES / size).min(OPEN_REQUESTS_MAX);
        let load = load(write_path, partitions, 1, depth, size);
        let Outcome { measured, consumed, .. } = outcome(write_path, &load)?;
        let name = format!("{kib} KiB, {partitions} partitions");
        let rate = measured.bytes_per_second();
        table.put(format!("{name}, MB/s"), rate / 1e6);
        table.put(format!("{name}, of the disk alone"), rate / disk);
        table.put(format!("{name}, of the disk alone with a flush each"), rate / flushed);
        costs(&name, &measured, consumed, table);
    }
    Ok(())
}

fn small(write_path: &WritePath, table: &mut Table) -> io::Result<()> {
    let load = load(write_path, SMALL_PARTITIONS, SMALL_CONNECTIONS, SMALL_DEPTH, 0);
    let load = Load { warm_up: load.warm_up.max(SMALL_WARM_UP), ..load };
    let Outcome { measured, consumed, requests_per_commit } = outcome(write_path, &load)?;
    let name = "one record of 1 KiB".to_owned();
    #[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^52")]
    let rate = measured.requests as f64 / measured.elapsed.as_secs_f64();
    table.put(format!("{name}, requests/s"), rate);
    table.put(format!("{name}, requests in a commit"), requests_per_commit);
    costs(&name, &measured, consumed, table);
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a run are far below 2^52")]
fn costs(name: &str, measured: &Measured, consumed: Option<u64>, table: &mut Table) {
    let quantile = |quantile| measured.latency.value_at_quantile(quantile) as f64 / 1e3;
    table.put(format!("{name}, p50 ms"), quantile(0.5));
    table.put(format!("{name}, p99 ms"), quantile(0.99));
    if let (Some(cpu), Some(written), Some(cost)) = (measured.cpu_per_gb(), measured.written_per_byte(), measured.cost)
    {
        table.put(format!("{name}, CPU-s/GB"), cpu);
        table.put(format!("{name}, written per byte"), written);
        table.put(format!("{name}, KiB read from the disk"), cost.read_bytes as f64 / 1024.0);
        table.put(format!("{name}, resident MiB"), (cost.resident_bytes >> 20) as f64);
    }
    if let Some(consumed) = consumed {
        table.put(format!("{name}, consumed MB"), consumed as f64 / 1e6);
    }
}

fn load(write_path: &WritePath, partitions: i32, connections: usize, depth: usize, batch_bytes: usize) -> Load {
    Load {
        address: String::new(),
        topic: TOPIC.to_owned(),
        partitions,
        connections,
        depth,
        batch_bytes,
        record_bytes: RECORD_BYTES,
        acks: -1,
        warm_up: write_path.warm_up,
        measured: write_path.measured,
    }
}

struct Outcome {
    measured: Measured,
    consumed: Option<u64>,
    /// Of the journal, from the broker's start on.
    requests_per_commit: f64,
}

/// The load on a broker of its own.
fn outcome(write_path: &WritePath, load: &Load) -> io::Result<Outcome> {
    let broker = Broker::start(&BrokerOptions {
        binary: write_path.binary.clone(),
        dir: write_path.dir.join("broker"),
        cpu: write_path.cpu,
        settings: write_path.settings.clone(),
    })?;
    let load = Load { address: broker.address.clone(), ..load.clone() };
    produce::create_topic(&load.address, &load.topic, load.partitions)?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (is_over, load) = (&is_over, &load);
        let follow = || scope.spawn(move || tail::follow(&load.address, &load.topic, load.partitions, is_over));
        let consumer = write_path.follows.then(follow);
        let measured = produce::run(load, Some(broker.pid()));
        is_over.store(true, Ordering::Relaxed);
        let died = |_| io::Error::other("the consumer's thread died");
        let consumed = consumer.map(|consumer| consumer.join().map_err(died)?).transpose()?;
        let measured = measured?;
        let commits = broker.metric("walser_journal_commits_total")?;
        #[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^52")]
        let requests_per_commit = measured.requests_in_all as f64 / commits;
        Ok(Outcome { measured, consumed, requests_per_commit })
    })
}
