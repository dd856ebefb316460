//! The life of the process that serves: start, wait for a signal, stop.

use std::io;
use std::thread;

use nix::sys::signal::{SigSet, Signal};

use crate::shard::Settings;
use crate::shard::start::{RunningBroker, StartError, Stopped};

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

/// Serves until SIGTERM or SIGINT; a second one ends the process at once. `on_ready` is called when every shard serves, and
/// not before.
///
/// # Errors
/// When something needed for the start is missing, or the stop was not clean.
pub fn run(settings: &Settings, on_ready: impl FnOnce(&RunningBroker)) -> Result<(), RunError> {
    let signals = stop_signals();
    // Blocked before the first thread is made: every thread inherits that, and only the one below takes them.
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
