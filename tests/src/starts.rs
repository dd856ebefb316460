//! Starts and clean stops, over and over on the same data directory.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::process::{Broker, BrokerOptions};
use crate::topic::{self, LATEST};

const TOPIC: &str = "starts";
const PARTITIONS: i32 = 3;
/// One round in so many writes something; the others only start and stop.
const WRITES_EVERY: u32 = 3;

/// What the rounds took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    pub rounds: u32,
    pub records: i64,
    pub starting: Duration,
    pub stopping: Duration,
}

/// Starts and stops so many times.
///
/// # Errors
/// A start without a ready line, a stop that is not clean, or a log that does not end where it ended before.
pub fn run(data_dir: &Path, rounds: u32) -> Result<Report, String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut report = Report { rounds, ..Report::default() };
    for round in 0..rounds {
        let context = |error: &dyn std::fmt::Display| format!("round {round}: {error}");
        let shards = 1 + (round as usize) % cores.min(2);
        let options =
            BrokerOptions::new(data_dir).set("walser.log.level", "warn").set("walser.shards", &shards.to_string());
        let began = Instant::now();
        let broker = options.start().map_err(|error| context(&error))?;
        report.starting += began.elapsed();
        if round == 0 {
            let created = topic::connect(broker.address())
                .and_then(|mut client| topic::create(&mut client, TOPIC, PARTITIONS, &[]));
            created.map_err(|error| context(&error))?;
        }
        if round % WRITES_EVERY == 0 {
            write(&broker, report.records).map_err(|error| context(&error))?;
            report.records += 1;
        }
        let began = Instant::now();
        let (status, _) = broker.stop().map_err(|error| context(&error))?;
        report.stopping += began.elapsed();
        if status.code() != Some(0) {
            return Err(context(&format!("the clean stop ended with {status}")));
        }
    }
    Ok(report)
}

/// Every log ends at `records`; one more is written to each.
fn write(broker: &Broker, records: i64) -> Result<(), String> {
    let mut client = topic::connect(broker.address())?;
    for partition in 0..PARTITIONS {
        let end = topic::offset(&mut client, TOPIC, partition, LATEST)?;
        if end != records {
            return Err(format!("partition {partition} ends at {end}, not at {records}"));
        }
        topic::produce(&mut client, TOPIC, partition, ["start"])?;
    }
    Ok(())
}
