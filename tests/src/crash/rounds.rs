//! Rounds of: start, produce, die, start again, check.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use super::check::{Verdict, verify};
use super::load::Load;
use super::produce::Stream;
use crate::lossy_fs::LossyFs;
use crate::lossy_fs::prng::Prng;
use crate::lossy_fs::store::Flushes;
use crate::process::{Broker, BrokerOptions};
use crate::topic;

/// A broker that acknowledges nothing for so long dies all the same.
const FIRST_ACK_DEADLINE: Duration = Duration::from_secs(60);

/// How the broker dies.
pub enum Death<'a> {
    /// SIGKILL: what was written stays.
    Killed,
    /// SIGKILL, and what was not flushed goes. From the first round's topic on, flushes are as said.
    PowerCut(&'a LossyFs, Flushes),
}

/// What the rounds do.
pub struct Plan<'a> {
    pub data_dir: &'a Path,
    pub rounds: u32,
    pub seed: u64,
    pub death: Death<'a>,
    pub loads: &'a [Load],
    /// Settings of every start.
    pub settings: &'a [(&'a str, &'a str)],
    /// A round's producing time, from the first acknowledgement on, is drawn below this.
    pub round_ms_max: u64,
}

/// Runs the rounds; the sum of what was checked.
///
/// # Errors
/// The first acknowledged record that is missing or misplaced, with round and seed.
pub fn run(plan: &Plan<'_>) -> Result<Verdict, String> {
    let mut prng = Prng::new(plan.seed);
    let mut streams: Vec<Stream> = Vec::new();
    for load in plan.loads {
        let first_id = u16::try_from(streams.len()).map_err(|error| error.to_string())?;
        streams.extend(load.streams(first_id, plan.seed));
    }
    let mut last = Verdict::default();
    for round in 0..plan.rounds {
        let context = |error: String| format!("round {round} of seed {}: {error}", plan.seed);
        let broker = start(plan, round).map_err(|error| context(error.to_string()))?;
        if round == 0 {
            create_topics(broker.address(), plan.loads).map_err(context)?;
            if let Death::PowerCut(lossy, flushes) = plan.death {
                lossy.set_flushes(flushes);
            }
        }
        let wait = Duration::from_millis(50 + prng.below(plan.round_ms_max));
        let cut_seed = prng.draw();
        produce_until_death(&mut streams, broker, wait, plan, cut_seed).map_err(context)?;
        let broker = start(plan, round + 1).map_err(|error| context(error.to_string()))?;
        last = verify(broker.address(), &streams).map_err(context)?;
        let Verdict { records_read, batches_acked, offsets_gone } = last;
        println!(
            "round {round}: {records_read} records, {batches_acked} acknowledged batches hold, {offsets_gone} offsets cleaned up"
        );
        // The process that was checked dies without notice, too.
        broker.kill().map_err(|error| context(error.to_string()))?;
    }
    Ok(last)
}

fn create_topics(address: &str, loads: &[Load]) -> Result<(), String> {
    let mut client = topic::connect(address)?;
    loads.iter().try_for_each(|load| topic::create(&mut client, load.topic, load.partitions, load.configs))
}

/// The number of shards changes from start to start, where the machine has more than one core.
fn start(plan: &Plan<'_>, round: u32) -> io::Result<Broker> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let shards = 1 + (round as usize) % cores.min(2);
    let options = BrokerOptions::new(plan.data_dir).set("walser.shards", &shards.to_string());
    plan.settings.iter().fold(options, |options, (key, value)| options.set(key, value)).start()
}

fn produce_until_death(
    streams: &mut [Stream],
    broker: Broker,
    wait: Duration,
    plan: &Plan<'_>,
    cut_seed: u64,
) -> Result<(), String> {
    let stop = AtomicBool::new(false);
    let address = broker.address().to_owned();
    std::thread::scope(|scope| {
        let (first_acked, is_acked) = mpsc::channel();
        let run = |stream: &mut Stream, first_acked| stream.run(&address, &stop, first_acked);
        let producers: Vec<_> = streams
            .iter_mut()
            .map(|stream| {
                let first_acked = first_acked.clone();
                scope.spawn(move || run(stream, first_acked))
            })
            .collect();
        drop(first_acked);
        // On a slow machine, too, there is something to lose. When all producers have ended nothing more comes.
        is_acked.recv_timeout(FIRST_ACK_DEADLINE).unwrap_or_default();
        // Not a wait for something: the moment of death is what is drawn.
        std::thread::park_timeout(wait);
        if let Death::PowerCut(lossy, _) = &plan.death {
            lossy.power_cut(cut_seed);
        }
        let killed = broker.kill().map_err(|error| error.to_string());
        stop.store(true, Ordering::Relaxed);
        for producer in producers {
            producer.join().map_err(|_| "a producer panicked".to_owned())??;
        }
        if let Death::PowerCut(lossy, _) = &plan.death {
            lossy.power_on();
        }
        killed.map(drop)
    })
}
