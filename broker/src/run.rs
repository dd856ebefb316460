//! The life of the process that serves: start, wait for a signal, stop.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

use crate::config::{BrokerConfig, BrokerView, Endpoint};
use crate::shard::ShardSettings;
use crate::shard::runtime::allowed_cpus;
use crate::shard::start::{RunningBroker, StartError, Stopped};

/// Shortest memory budget for frames: below it a single large request would stop all others.
const FRAME_MEMORY_BYTES_MIN: usize = 16 << 20;
/// What counts as the machine's memory when nothing says how much there is.
const MEMORY_BYTES_DEFAULT: u64 = 1 << 30;
/// How long each step of a clean stop may take.
const STOP_WAIT: Duration = Duration::from_secs(10);
/// See [`crate::shard::runtime`]: a short one lets shards sleep on work.
const PREEMPT_TIMER: Duration = Duration::from_secs(3600);

/// Why the broker ended other than by a clean stop.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("cannot take over signals: {0}")]
    Signals(io::Error),
    #[error("the stop took too long; what was not finished was cut")]
    StoppedLate,
}

/// Why the configuration does not fit this machine.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("cannot resolve the host of listener {endpoint}: {source}")]
    Host { endpoint: Endpoint, source: io::Error },
    #[error("cannot find out which CPUs this process may use: {0}")]
    Cpus(io::Error),
    #[error("walser.cpus names CPU {cpu}, which this process may not use; allowed are {allowed:?}")]
    CpuNotAllowed { cpu: usize, allowed: Vec<usize> },
    #[error("walser.shards is {shards}, but only {allowed} CPUs are allowed; lower it or allow more CPUs")]
    TooManyShards { shards: usize, allowed: usize },
}

impl ShardSettings {
    /// Resolves what the configuration leaves to the machine.
    ///
    /// # Errors
    /// When a host has no address or a CPU is not ours.
    pub fn new(config: Arc<BrokerConfig>) -> Result<Self, SettingsError> {
        let view = BrokerView::fixed(&config);
        let count = |key| usize::try_from(view.integer(key)).unwrap_or(0);
        let memory_bytes = config.memory_bytes.unwrap_or(MEMORY_BYTES_DEFAULT);
        Ok(Self {
            cpus: shard_cpus(&config)?,
            binds: config.listeners.iter().map(resolve).collect::<Result<_, _>>()?,
            local_host: local_host(),
            tail_memory_bytes: usize::try_from(memory_bytes / 4).unwrap_or(usize::MAX),
            frame_memory_bytes: usize::try_from(memory_bytes / 4).unwrap_or(usize::MAX).max(FRAME_MEMORY_BYTES_MIN),
            connections_max: count("max.connections"),
            connections_per_ip_max: count("max.connections.per.ip"),
            idle_max: config.connection_idle_max.unwrap_or(Duration::ZERO),
            preempt_timer: PREEMPT_TIMER,
            stop_wait: STOP_WAIT,
            metrics: Arc::default(),
            config,
        })
    }
}

fn shard_cpus(config: &BrokerConfig) -> Result<Vec<usize>, SettingsError> {
    let allowed = allowed_cpus().map_err(SettingsError::Cpus)?;
    let mut cpus = config.cpus.clone().unwrap_or_else(|| allowed.clone());
    if let Some(cpu) = cpus.iter().copied().find(|cpu| !allowed.contains(cpu)) {
        return Err(SettingsError::CpuNotAllowed { cpu, allowed });
    }
    if let Some(shards) = config.shards {
        if shards > cpus.len() {
            return Err(SettingsError::TooManyShards { shards, allowed: cpus.len() });
        }
        cpus.truncate(shards);
    }
    Ok(cpus)
}

fn resolve(endpoint: &Endpoint) -> Result<SocketAddr, SettingsError> {
    let host = if endpoint.host.is_empty() { "::" } else { endpoint.host.as_str() };
    let failed = |source| SettingsError::Host { endpoint: endpoint.clone(), source };
    let mut addresses = (host, endpoint.port).to_socket_addrs().map_err(failed)?;
    addresses.next().ok_or_else(|| failed(io::Error::other("the name has no address")))
}

/// What a listener on every interface tells clients: the machine's name when it resolves to more than loopback, as Kafka
/// does, else loopback.
fn local_host() -> String {
    let name = nix::sys::utsname::uname().ok().and_then(|names| names.nodename().to_str().map(str::to_owned));
    let name = name.unwrap_or_default();
    let reachable = (name.as_str(), 0)
        .to_socket_addrs()
        .is_ok_and(|mut addresses| addresses.any(|address| !IpAddr::is_unspecified(&address.ip())));
    if reachable { name } else { "localhost".into() }
}

/// Serves until SIGTERM or SIGINT; a second one ends the process at once. `on_ready` is called when every shard serves, and
/// not before. Call it before any other thread is made.
///
/// # Errors
/// When something needed for the start is missing, or the stop was not clean.
pub fn run(settings: &ShardSettings, on_ready: impl FnOnce(&RunningBroker)) -> Result<(), RunError> {
    let signals = stop_signals();
    // Blocked before the first thread is made: every thread inherits that, and only the two waits below take them.
    signals.thread_block().map_err(|errno| RunError::Signals(errno.into()))?;
    let broker = RunningBroker::start(settings)?;
    on_ready(&broker);
    let signal = signals.wait().map_err(|errno| RunError::Signals(errno.into()))?;
    tracing::info!("{signal}: stopping");
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            if let Ok(signal) = signals.wait() {
                tracing::warn!("{signal}: ending at once");
                std::process::exit(1);
            }
        })
        .map_err(RunError::Signals)?;
    match broker.stop() {
        Stopped::Clean => Ok(()),
        Stopped::Late => Err(RunError::StoppedLate),
    }
}

fn stop_signals() -> SigSet {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    signals
}
