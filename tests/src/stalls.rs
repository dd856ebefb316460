//! Single round trips, one after the other, beside threads that burn the broker's cores: does a shard ever sleep on work?
//!
//! Each round writes a batch and reads it back, over several connections and partitions, so that both a request for the
//! connection's own shard and one that crosses to another are among them. The topic is kept in memory only: nothing here
//! waits for a disk. What the scheduler took from the broker's threads and from this one (`schedstat`), and what the
//! hypervisor took from the machine, is taken off a wait before it counts as a stall.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use walser_protocol::ApiKey;
use walser_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};

use crate::raw_client::RawClient;
use crate::topic;

const TOPIC: &str = "stalls";
const PARTITIONS: i32 = 8;
/// The kernel deals them out to the shards.
const CONNECTIONS: usize = 7;
/// Shorter waits are not looked at further.
const SLOW: Duration = Duration::from_millis(20);

/// What a run has seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stalls {
    /// Requests answered.
    pub requests: u64,
    /// Those that took longer than [`SLOW`].
    pub slow: u64,
    pub longest_wait: Duration,
    /// The longest, less what schedulers took.
    pub longest_stall: Duration,
}

/// Watches the broker at `address`, which is the process `pid`.
///
/// # Errors
/// A request that was refused or not answered.
pub fn run(address: &str, pid: u32, time: Duration) -> Result<Stalls, String> {
    topic::create(&mut topic::connect(address)?, TOPIC, PARTITIONS, &[("walser.durability", "memory")])?;
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(topic::connect(address)?);
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for cpu in allowed_cpus()? {
            let done = &done;
            scope.spawn(move || burn(cpu, done));
        }
        let stalls = scope.spawn(|| watch(&mut clients, pid, time)).join();
        done.store(true, Ordering::Relaxed);
        stalls.map_err(|_| "the client panicked".to_owned())?
    })
}

fn allowed_cpus() -> Result<Vec<usize>, String> {
    let set = sched_getaffinity(Pid::from_raw(0)).map_err(|errno| errno.to_string())?;
    Ok((0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect())
}

fn burn(cpu: usize, done: &AtomicBool) {
    let mut set = CpuSet::new();
    // Unpinned it burns a core all the same.
    if set.set(cpu).is_ok() {
        sched_setaffinity(Pid::from_raw(0), &set).unwrap_or_default();
    }
    while !done.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

fn watch(clients: &mut [RawClient], pid: u32, time: Duration) -> Result<Stalls, String> {
    let own = nix::unistd::gettid().to_string();
    let delays = || -> Result<Duration, String> {
        Ok(run_delays(&format!("/proc/{pid}/task"))? + run_delay(&format!("/proc/self/task/{own}")) + stolen())
    };
    let mut next_offsets = [0_i64; PARTITIONS as usize];
    let mut stalls = Stalls::default();
    let began = Instant::now();
    for (turn, partition) in (0..PARTITIONS).cycle().enumerate() {
        if began.elapsed() > time {
            break;
        }
        let client = &mut clients[turn % CONNECTIONS];
        let next_offset = &mut next_offsets[usize::try_from(partition).unwrap_or(0)];
        for is_write in [true, false] {
            let delayed_before = delays()?;
            let asked = Instant::now();
            if is_write {
                *next_offset = topic::produce(client, TOPIC, partition, ["here and there"])?;
            } else {
                fetch(client, partition, *next_offset)?;
            }
            let took = asked.elapsed();
            stalls.requests += 1;
            stalls.longest_wait = stalls.longest_wait.max(took);
            if took > SLOW {
                stalls.slow += 1;
                let delayed = delays()?.saturating_sub(delayed_before);
                stalls.longest_stall = stalls.longest_stall.max(took.saturating_sub(delayed));
            }
        }
    }
    Ok(stalls)
}

/// Time the scheduler kept runnable shards waiting, all of a process together; others of its threads are not waited for.
fn run_delays(tasks: &str) -> Result<Duration, String> {
    let entries = fs::read_dir(tasks).map_err(|error| format!("the broker is gone: {error}"))?;
    let paths = entries.flatten().map(|task| task.path().to_string_lossy().into_owned());
    let is_shard =
        |path: &String| fs::read_to_string(format!("{path}/comm")).is_ok_and(|name| name.starts_with("shard-"));
    Ok(paths.filter(is_shard).map(|path| run_delay(&path)).sum())
}

/// Time the scheduler kept one thread waiting, by its folder in `/proc`. Zero of a thread that has ended.
pub fn run_delay(task: &str) -> Duration {
    let schedstat = fs::read_to_string(format!("{task}/schedstat")).unwrap_or_default();
    let delay = schedstat.split_whitespace().nth(1).and_then(|field| field.parse().ok());
    Duration::from_nanos(delay.unwrap_or(0))
}

/// Time the hypervisor gave the virtual cores to others, which no thread's account holds.
pub fn stolen() -> Duration {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = stat.lines().next().and_then(|line| line.split_whitespace().nth(8)?.parse::<u64>().ok());
    Duration::from_millis(ticks.unwrap_or(0) * 10)
}

fn fetch(client: &mut RawClient, partition: i32, offset: i64) -> Result<(), String> {
    let wish =
        FetchPartition { partition, fetch_offset: offset, partition_max_bytes: 4096, ..FetchPartition::default() };
    let request = FetchRequest {
        max_wait_ms: 10_000,
        min_bytes: 1,
        max_bytes: 4096,
        session_epoch: -1,
        topics: vec![FetchTopic { topic: TOPIC, partitions: vec![wish], ..FetchTopic::default() }],
        ..FetchRequest::default()
    };
    let response = client.call(ApiKey::Fetch, 11, &request).map_err(|error| format!("fetch: {error}"))?;
    let response = FetchResponse::decode(&mut response.reader(), 11).map_err(|error| error.to_string())?;
    let data = response.responses.first().and_then(|topic| topic.partitions.first());
    let has_records = data.and_then(|data| data.records?.as_whole()).is_some_and(|records: &[u8]| !records.is_empty());
    if has_records { Ok(()) } else { Err(format!("fetch: nothing at offset {offset}: {data:?}")) }
}
