//! `walser-bench produce`: closed-loop load, with what it costs the broker when that runs on this machine.

use std::io;
use std::time::Duration;

use clap::{Parser, Subcommand};
use walser_bench::produce::{self, Load, Measured};

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
}

#[derive(Debug, clap::Args)]
struct ProduceArguments {
    /// host:port of the broker
    #[arg(short, long, default_value = "127.0.0.1:9092")]
    broker: String,
    /// Process of the broker, for its CPU time and memory
    #[arg(long)]
    pid: Option<u32>,
    /// Made if it is not there
    #[arg(short, long, default_value = "walser-bench")]
    topic: String,
    #[arg(long, default_value_t = 4)]
    partitions: i32,
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

fn main() -> io::Result<()> {
    let Command::Produce(arguments) = Arguments::parse().command;
    if arguments.acks == 0 {
        return Err(io::Error::other("a closed loop needs answers: acks 1 or -1"));
    }
    let load = Load {
        address: arguments.broker,
        topic: arguments.topic,
        partitions: arguments.partitions.max(1),
        connections: arguments.connections.max(1),
        depth: arguments.depth.max(1),
        batch_bytes: arguments.batch_bytes,
        record_bytes: arguments.record_bytes,
        acks: arguments.acks,
        warm_up: Duration::from_secs(arguments.warm_up),
        measured: Duration::from_secs(arguments.seconds.max(1)),
    };
    produce::create_topic(&load)?;
    println!("{}", line(&produce::run(&load, arguments.pid)?));
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^52")]
fn line(measured: &Measured) -> String {
    let seconds = measured.elapsed.as_secs_f64();
    let quantile = |quantile| measured.latency.value_at_quantile(quantile) as f64 / 1000.0;
    let cpu = measured.cpu_per_gb().map_or_else(|| "?".to_owned(), |cost| format!("{cost:.3}"));
    let resident = measured.resident_bytes.map_or_else(|| "?".to_owned(), |bytes| (bytes >> 20).to_string());
    format!(
        "MB/s={:.1} requests/s={:.0} cpu-s/GB={cpu} resident-MiB={resident} p50-ms={:.3} p99-ms={:.3} p99.9-ms={:.3} max-ms={:.3}",
        measured.bytes as f64 / 1e6 / seconds,
        measured.requests as f64 / seconds,
        quantile(0.5),
        quantile(0.99),
        quantile(0.999),
        measured.latency.max() as f64 / 1000.0,
    )
}
