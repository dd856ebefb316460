//! Attacks on a broker over its sockets, while somebody honest uses it.
//!
//! Whatever is sent: the broker's resident memory stays below [`RESIDENT_KIB_MAX`] with [`MEMORY`] to work with, it does
//! not die, nothing panics, the honest client's records are right, and who comes after an attack is served. How much
//! slower the honest client gets is printed, and held against [`SLOWER_MAX`] where a run is asked to.

pub mod bombs;
pub mod connections;
pub mod descriptors;
pub mod frames;
pub mod honest;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use walser_protocol::ApiKey;
use walser_protocol::messages::api_versions::ApiVersionsRequest;

use crate::process::{Broker, BrokerOptions};
use crate::raw_client::RawClient;
use crate::topic;
use honest::{Honest, Latencies};

/// What the broker is told to make do with.
pub const MEMORY: &str = "128MB";
/// What it may really take, all told.
pub const RESIDENT_KIB_MAX: u64 = 256 << 10;
/// How much longer the honest client's p99 may be during an attack.
pub const SLOWER_MAX: f64 = 2.0;
/// Topic of the attackers, and its partitions.
pub const ATTACKED: &str = "attacked";
pub const ATTACKED_PARTITIONS: i32 = 4;
/// Somebody new is served in this time, attack or not; what is measured is the honest client's time.
const SERVED_DEADLINE: Duration = Duration::from_secs(120);

/// What is attacked, and for how long.
#[derive(Debug)]
pub struct Target {
    pub address: String,
    pub seed: u64,
    lasts: Duration,
    is_long: bool,
    until: OnceLock<Instant>,
}

impl Target {
    /// How many of something: a quarter in a short run.
    pub fn scaled(&self, count: usize) -> usize {
        if self.is_long { count } else { count / 4 }
    }

    /// The time begins when this is first asked: what an attack prepares before is not counted.
    pub fn is_over(&self) -> bool {
        Instant::now() >= *self.until.get_or_init(|| Instant::now() + self.lasts)
    }
}

/// Attacks until the target's time is over. An error is something that does not hold, not a connection that was closed.
type Attack = fn(&Target) -> Result<(), String>;

const ATTACKS: &[(&str, Attack)] = &[
    ("huge-array", frames::huge_array),
    ("frame-sizes", frames::frame_sizes),
    ("half-a-frame", frames::half_a_frame),
    ("half-frames-of-many", frames::half_frames_of_many),
    ("byte-at-a-time", frames::byte_at_a_time),
    ("million-elements", frames::million_elements),
    ("garbage", frames::garbage),
    ("bombs", bombs::bombs),
    ("silent-connections", connections::silent),
    ("never-reads", connections::never_reads),
    ("never-reads-configs", connections::never_reads_configs),
    ("half-sent-batches", connections::half_sent_batches),
    ("connects-and-leaves", connections::connects_and_leaves),
];

/// How a run goes.
#[derive(Clone, Debug)]
pub struct Plan {
    pub data_dir: PathBuf,
    pub seed: u64,
    /// Without an attack, to compare with.
    pub calm: Duration,
    /// Of each attack.
    pub attack: Duration,
    /// With all that an attack has, and the honest client's time held against [`SLOWER_MAX`].
    pub is_long: bool,
    /// Only those whose names contain it.
    pub only: Option<String>,
}

/// Runs every attack.
///
/// # Errors
/// Everything that does not hold, a line each.
pub fn run(plan: &Plan) -> Result<(), String> {
    let log = plan.data_dir.join("log");
    let mut failures = Vec::new();
    attack_all(plan, &log, &mut failures).map_err(|error| format!("{error}; the log is {}", log.display()))?;
    let is_wanted = plan.only.as_ref().is_none_or(|part| "descriptors".contains(part.as_str()));
    if is_wanted && let Err(error) = descriptors::run_out(plan, &log) {
        failures.push(format!("descriptors: {error}"));
    }
    failures.extend(panics(&log).map_err(|error| error.to_string())?);
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

fn attack_all(plan: &Plan, log: &Path, failures: &mut Vec<String>) -> Result<(), String> {
    let options = BrokerOptions::new(&plan.data_dir.join("data")).set("walser.memory", MEMORY).log_to(log);
    let mut broker = options.start().map_err(|error| error.to_string())?;
    topic::create(&mut topic::connect(broker.address())?, ATTACKED, ATTACKED_PARTITIONS, &[])?;
    let honest = Honest::start(broker.address())?;
    std::thread::sleep(plan.calm);
    let calm = honest.latencies();
    println!("{:<22} {calm}, resident {} MiB", "calm", resident_mib(&broker)?);
    let is_wanted = |name: &str| plan.only.as_ref().is_none_or(|part| name.contains(part.as_str()));
    for (name, attack) in ATTACKS.iter().filter(|(name, _)| is_wanted(name)) {
        reset_peak(&broker).map_err(|error| error.to_string())?;
        honest.latencies();
        let target = Target {
            address: broker.address().to_owned(),
            seed: plan.seed,
            lasts: plan.attack,
            is_long: plan.is_long,
            until: OnceLock::new(),
        };
        if let Err(error) = attack(&target) {
            failures.push(format!("{name}: {error}"));
        }
        let during = honest.latencies();
        let held = check(&mut broker, plan, (calm, during));
        println!("{name:<22} {during} ({:.1} times), resident {} MiB", during.p99_ratio(calm), resident_mib(&broker)?);
        failures.extend(held?.into_iter().map(|failure| format!("{name}: {failure}")));
    }
    let records = honest.finish()?;
    println!("honest client: {records} records written and read");
    let (status, _) = broker.stop().map_err(|error| error.to_string())?;
    if !status.success() {
        failures.push(format!("the clean stop ended with {status}"));
    }
    Ok(())
}

/// What does not hold after an attack; an error when it is no use to go on.
fn check(broker: &mut Broker, plan: &Plan, (calm, during): (Latencies, Latencies)) -> Result<Vec<String>, String> {
    let mut failures = Vec::new();
    if let Some(status) = broker.ended().map_err(|error| error.to_string())? {
        return Err(format!("the broker died: {status}"));
    }
    wait_until_served(broker.address())?;
    let peak = broker.status_kib("VmHWM").map_err(|error| error.to_string())?;
    if peak > RESIDENT_KIB_MAX {
        failures.push(format!("{} MiB were resident, {} are allowed", peak >> 10, RESIDENT_KIB_MAX >> 10));
    }
    if plan.is_long && during.p99_ratio(calm) > SLOWER_MAX {
        failures.push(format!("the honest client's p99 was {:.1} times what it was before", during.p99_ratio(calm)));
    }
    Ok(failures)
}

fn resident_mib(broker: &Broker) -> Result<u64, String> {
    broker.status_kib("VmHWM").map(|kib| kib >> 10).map_err(|error| format!("the broker died: {error}"))
}

/// Lets the kernel count the peak of resident memory anew, so that each attack shows its own.
fn reset_peak(broker: &Broker) -> io::Result<()> {
    fs::write(format!("/proc/{}/clear_refs", broker.pid()), "5")
}

/// Connects and asks until somebody answers.
fn wait_until_served(address: &str) -> Result<(), String> {
    let deadline = Instant::now() + SERVED_DEADLINE;
    loop {
        match ask(address) {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(format!("a new client is not served: {error}")),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// A connection of its own and one question.
fn ask(address: &str) -> Result<(), String> {
    let mut client = RawClient::connect(address).map_err(|error| error.to_string())?;
    client.stream().set_read_timeout(Some(SERVED_DEADLINE)).map_err(|error| error.to_string())?;
    client.call(ApiKey::ApiVersions, 0, &ApiVersionsRequest::default()).map(drop).map_err(|error| error.to_string())
}

/// Lines of the broker's log that speak of a panic.
fn panics(log: &Path) -> io::Result<Vec<String>> {
    let text = fs::read_to_string(log)?;
    Ok(text.lines().filter(|line| line.contains("panic")).map(|line| format!("log: {line}")).collect())
}
