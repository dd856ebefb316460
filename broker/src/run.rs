//! The life of the process that serves: start, wait for a signal, stop.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

use crate::config::BrokerConfig;
use crate::config::view::BrokerView;
use crate::shard::ShardSettings;
use crate::shard::start::{RunningBroker, StartError, Stopped};
use crate::start_checks::{self, Unfit};

/// Shortest memory budget for frames: below it a single large request would stop all others.
const FRAME_MEMORY_BYTES_MIN: usize = 16 << 20;
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

impl ShardSettings {
    /// Resolves what the configuration leaves to the machine.
    ///
    /// # Errors
    /// When a host has no address or a CPU is not ours.
    pub fn new(config: Arc<BrokerConfig>) -> Result<Self, Unfit> {
        let memory_bytes = start_checks::memory_bytes(&config);
        Ok(Self {
            cpus: start_checks::shard_cpus(&config)?,
            binds: config.listeners.iter().map(start_checks::bind_address).collect::<Result<_, _>>()?,
            local_host: start_checks::host_name(),
            tail_memory_bytes: usize::try_from(memory_bytes / 4).unwrap_or(usize::MAX),
            frame_memory_bytes: usize::try_from(memory_bytes / 4).unwrap_or(usize::MAX).max(FRAME_MEMORY_BYTES_MIN),
            connections_max: usize::MAX,
            open_files_max: open_files_max(&config),
            connections_per_ip_max: usize::MAX,
            idle_max: config.connection_idle_max.unwrap_or(Duration::ZERO),
            preempt_timer: PREEMPT_TIMER,
            stop_wait: STOP_WAIT,
            metrics: Arc::default(),
            config,
        })
    }
}

fn open_files_max(config: &BrokerConfig) -> usize {
    let configured = BrokerView::fixed(config).maybe_integer("walser.open.files");
    configured.and_then(|count| usize::try_from(count).ok()).unwrap_or(start_checks::OPEN_FILES_MAX)
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
