//! `walser-bench produce|consume|steady|rounds|fill`: load, with what it costs the broker when that runs on this machine;
//! `walser-bench write-path`: a broker's writes beside those of the disk alone.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use hdrhistogram::Histogram;
use walser_bench::consume::{self, Drain};
use walser_bench::fill::{self, Fill};
use walser_bench::measured::Measured;
use walser_bench::produce::{self, Load};
use walser_bench::rounds::{self, Rounds};
use walser_bench::steady::{self, Stream};
use walser_bench::write_path::{self, WritePath};

/// Load over the wire against any Kafka-compatible broker.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Every connection keeps so many produce requests open, one batch each
    Produce(ProduceArguments),
    /// Every connection reads its partitions from the first offset to the end
    Consume(ConsumeArguments),
    /// So many small records a second, and how long each takes to be acknowledged and to be seen by a consumer
    Steady(SteadyArguments),
    /// One request with a record for each partition, again and again
    Rounds(RoundsArguments),
    /// So many records, with keys that come again
    Fill(FillArguments),
    /// How much of what a disk takes a broker makes durable, and how often it writes each byte
    WritePath(WritePathArguments),
}

/// Where the load goes.
#[derive(Debug, clap::Args)]
struct Target {
    /// host:port of the broker
    #[arg(short, long, default_value = "127.0.0.1:9092")]
    broker: String,
    /// Made if it is not there, unless it is to be read
    #[arg(short, long, default_value = "walser-bench")]
    topic: String,
    #[arg(long, default_value_t = 4)]
    partitions: i32,
}

impl Target {
    /// As a topic may have them.
    fn partitions(&self) -> i32 {
        self.partitions.max(1)
    }

    fn create(&self) -> io::Result<()> {
        produce::create_topic(&self.broker, &self.topic, self.partitions())
    }
}

#[derive(Debug, clap::Args)]
struct ProduceArguments {
    #[command(flatten)]
    target: Target,
    /// Process of the broker, for its CPU time and memory
    #[arg(long)]
    pid: Option<u32>,
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Open requests per connection
    #[arg(long, default_value_t = 8)]
    depth: usize,
    /// Largest batch, in bytes
    #[arg(long, default_value_t = 65_536)]
    batch_bytes: usize,
    /// Value of a record, in bytes
    #[arg(long, default_value_t = 1_024)]
    record_bytes: usize,
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    acks: i16,
    /// Seconds before measuring begins
    #[arg(long, default_value_t = 5)]
    warm_up: u64,
    /// Measured seconds
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

#[derive(Debug, clap::Args)]
struct ConsumeArguments {
    #[command(flatten)]
    target: Target,
    /// Process of the broker, for its CPU time and memory
    #[arg(long)]
    pid: Option<u32>,
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// max.partition.fetch.bytes
    #[arg(long, default_value_t = 1 << 20)]
    partition_bytes: i32,
    /// fetch.max.bytes
    #[arg(long, default_value_t = 50 << 20)]
    fetch_bytes: i32,
    /// Offset to begin at
    #[arg(long, default_value_t = 0)]
    from: i64,
}

#[derive(Debug, clap::Args)]
struct SteadyArguments {
    #[command(flatten)]
    target: Target,
    /// Records a second
    #[arg(long, default_value_t = 1_000)]
    rate: u32,
    /// Value of a record, in bytes
    #[arg(long, default_value_t = 100)]
    record_bytes: usize,
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    acks: i16,
    /// Seconds before measuring begins
    #[arg(long, default_value_t = 2)]
    warm_up: u64,
    /// Measured seconds
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

#[derive(Debug, clap::Args)]
struct RoundsArguments {
    #[command(flatten)]
    target: Target,
    /// Value of a record, in bytes
    #[arg(long, default_value_t = 1_024)]
    record_bytes: usize,
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    acks: i16,
    /// Rounds before measuring begins
    #[arg(long, default_value_t = 20)]
    warm_up: u32,
    /// Measured rounds
    #[arg(long, default_value_t = 100)]
    rounds: u32,
}

#[derive(Debug, clap::Args)]
struct FillArguments {
    #[command(flatten)]
    target: Target,
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    #[arg(long, default_value_t = 2_000_000)]
    records: u64,
    /// Value of a record, in bytes
    #[arg(long, default_value_t = 200)]
    record_bytes: usize,
    /// Records of a batch
    #[arg(long, default_value_t = 250)]
    batch_records: u64,
}

#[derive(Debug, clap::Args)]
struct WritePathArguments {
    /// The broker's program; it is started on one CPU, so this program is to run on another
    #[arg(long, default_value = "target/release/walser")]
    binary: PathBuf,
    /// On the disk that is measured; what is put there is removed again
    #[arg(long)]
    dir: PathBuf,
    /// The broker's CPU
    #[arg(long, default_value_t = 1)]
    cpu: usize,
    /// A setting of the broker, key=value
    #[arg(short, long = "set")]
    settings: Vec<String>,
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Of each load of large batches
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4])]
    partitions: Vec<i32>,
    /// Seconds before measuring begins
    #[arg(long, default_value_t = 1)]
    warm_up: u64,
    /// Measured seconds of each load
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// No consumer keeps up with the loads
    #[arg(long)]
    alone: bool,
}

/// Of the file that the disk alone is given.
const PLAIN_BYTES: u64 = 1 << 30;

fn main() -> io::Result<()> {
    match Arguments::parse().command {
        Command::Produce(arguments) => run_produce(arguments),
        Command::Consume(arguments) => run_consume(arguments),
        Command::Steady(arguments) => run_steady(arguments),
        Command::Rounds(arguments) => run_rounds(arguments),
        Command::Fill(arguments) => run_fill(arguments),
        Command::WritePath(arguments) => run_write_path(arguments),
    }
}

fn check_acks(acks: i16) -> io::Result<()> {
    if acks == 0 { Err(io::Error::other("there is nothing to wait for without answers: acks 1 or -1")) } else { Ok(()) }
}

fn run_produce(arguments: ProduceArguments) -> io::Result<()> {
    check_acks(arguments.acks)?;
    arguments.target.create()?;
    let load = Load {
        partitions: arguments.target.partitions(),
        address: arguments.target.broker,
        topic: arguments.target.topic,
        connections: arguments.connections.max(1),
        depth: arguments.depth.max(1),
        batch_bytes: arguments.batch_bytes,
        record_bytes: arguments.record_bytes,
        acks: arguments.acks,
        warm_up: Duration::from_secs(arguments.warm_up),
        measured: Duration::from_secs(arguments.seconds.max(1)),
    };
    println!("{}", line(&produce::run(&load, arguments.pid)?));
    Ok(())
}

fn run_consume(arguments: ConsumeArguments) -> io::Result<()> {
    let drain = Drain {
        partitions: arguments.target.partitions(),
        address: arguments.target.broker,
        topic: arguments.target.topic,
        connections: arguments.connections.max(1),
        partition_max_bytes: arguments.partition_bytes,
        max_bytes: arguments.fetch_bytes,
        from_offset: arguments.from,
    };
    println!("{}", line(&consume::run(&drain, arguments.pid)?));
    Ok(())
}

fn run_steady(arguments: SteadyArguments) -> io::Result<()> {
    check_acks(arguments.acks)?;
    arguments.target.create()?;
    let stream = Stream {
        partitions: arguments.target.partitions(),
        address: arguments.target.broker,
        topic: arguments.target.topic,
        records_per_second: arguments.rate.max(1),
        record_bytes: arguments.record_bytes,
        acks: arguments.acks,
        warm_up: Duration::from_secs(arguments.warm_up),
        measured: Duration::from_secs(arguments.seconds.max(1)),
    };
    let latencies = steady::run(&stream)?;
    println!("acknowledged {}", quantiles("records", &latencies.acknowledged));
    println!("consumed     {}", quantiles("records", &latencies.consumed));
    Ok(())
}

fn run_rounds(arguments: RoundsArguments) -> io::Result<()> {
    check_acks(arguments.acks)?;
    arguments.target.create()?;
    let rounds = Rounds {
        partitions: arguments.target.partitions(),
        address: arguments.target.broker,
        topic: arguments.target.topic,
        record_bytes: arguments.record_bytes,
        acks: arguments.acks,
        warm_up: arguments.warm_up,
        measured: arguments.rounds.max(1),
    };
    println!("{}", quantiles("rounds", &rounds::run(&rounds)?));
    Ok(())
}

fn run_fill(arguments: FillArguments) -> io::Result<()> {
    arguments.target.create()?;
    let fill = Fill {
        partitions: arguments.target.partitions(),
        address: arguments.target.broker,
        topic: arguments.target.topic,
        keys: arguments.keys,
        records: arguments.records,
        record_bytes: arguments.record_bytes,
        batch_records: arguments.batch_records,
    };
    println!("{}", line(&fill::run(&fill)?));
    Ok(())
}

fn run_write_path(arguments: WritePathArguments) -> io::Result<()> {
    write_path::run(&WritePath {
        binary: arguments.binary,
        dir: arguments.dir,
        cpu: arguments.cpu,
        settings: arguments.settings,
        rounds: arguments.rounds.max(1),
        partitions: arguments.partitions,
        warm_up: Duration::from_secs(arguments.warm_up),
        measured: Duration::from_secs(arguments.seconds.max(1)),
        follows: !arguments.alone,
        plain_bytes: PLAIN_BYTES,
    })
}

#[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^52")]
fn quantiles(what: &str, latency: &Histogram<u64>) -> String {
    let quantile = |quantile| latency.value_at_quantile(quantile) as f64 / 1000.0;
    format!(
        "{what}={} p50-ms={:.3} p99-ms={:.3} p99.9-ms={:.3} max-ms={:.3}",
        latency.len(),
        quantile(0.5),
        quantile(0.99),
        quantile(0.999),
        latency.max() as f64 / 1000.0,
    )
}

#[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^52")]
fn line(measured: &Measured) -> String {
    let seconds = measured.elapsed.as_secs_f64();
    let cpu = measured.cpu_per_gb().map_or_else(|| "?".to_owned(), |cost| format!("{cost:.3}"));
    let resident = measured.cost.map_or_else(|| "?".to_owned(), |cost| (cost.resident_bytes >> 20).to_string());
    let written = measured.written_per_byte().map_or_else(|| "?".to_owned(), |written| format!("{written:.2}"));
    let read = measured.cost.map_or_else(|| "?".to_owned(), |cost| (cost.read_bytes >> 20).to_string());
    format!(
        "MB/s={:.1} requests/s={:.0} cpu-s/GB={cpu} resident-MiB={resident} written/byte={written} read-MiB={read} {}",
        measured.bytes_per_second() / 1e6,
        measured.requests as f64 / seconds,
        quantiles("requests", &measured.latency),
    )
}
