//! A plain thread that sees whether every shard still runs.
//!
//! Once a second it rings each shard's mesh bell, which makes its receiver count a turn. A shard that does not for
//! [`LOOKS_BEFORE_REPORT`] looks is reported with what it was doing, and counted. The ring also bounds how long a lost wake-up of any kind
//! could last.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::mesh::NodeBell;

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Looks without an answer before a shard is reported.
const LOOKS_BEFORE_REPORT: u32 = 3;

/// What a shard says about itself, readable from every thread.
#[derive(Debug, Default)]
pub struct Pulse {
    /// Looks that were answered.
    answered: AtomicU64,
    /// See [`Doing`].
    doing: AtomicU32,
    /// Stalls reported.
    stalls: AtomicU64,
}

/// What a shard is working on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Nothing that says its name.
    Other,
    /// A request of this API key.
    Request(i16),
    /// A message from another shard.
    Mesh,
    /// A new metadata image.
    Image,
    /// A slice of background work.
    Background,
}

impl Doing {
    const fn to_raw(self) -> u32 {
        match self {
            Self::Other => 0,
            Self::Mesh => 1,
            Self::Image => 2,
            Self::Background => 3,
            Self::Request(api_key) => 0x1_0000 | (api_key as u16 as u32),
        }
    }

    const fn from_raw(raw: u32) -> Self {
        match raw {
            1 => Self::Mesh,
            2 => Self::Image,
            3 => Self::Background,
            raw if raw & 0x1_0000 != 0 => Self::Request(raw as u16 as i16),
            _ => Self::Other,
        }
    }
}

impl Pulse {
    /// Says what the shard works on from now on.
    pub fn set_doing(&self, doing: Doing) {
        self.doing.store(doing.to_raw(), Ordering::Relaxed);
    }

    /// What it worked on last.
    pub fn doing(&self) -> Doing {
        Doing::from_raw(self.doing.load(Ordering::Relaxed))
    }

    /// The shard has taken a turn.
    pub fn note_turn(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// Stalls reported so far.
    pub fn stalls(&self) -> u64 {
        self.stalls.load(Ordering::Relaxed)
    }
}

/// One shard under watch.
pub struct Watched {
    pub name: String,
    pub pulse: Arc<Pulse>,
    pub bell: NodeBell,
}

/// The running thread.
pub struct Watchdog {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Watchdog {
    /// Starts watching.
    ///
    /// # Errors
    /// When the thread cannot be made.
    pub fn start(watched: Vec<Watched>) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("watchdog".into()).spawn(move || watch(&watched, &stopped))?;
        Ok(Self { stop, thread })
    }

    /// Ends the thread.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        drop(self.thread.join());
    }
}

fn watch(watched: &[Watched], stop: &AtomicBool) {
    let mut seen: Vec<(u64, u32)> = watched.iter().map(|_| (u64::MAX, 0)).collect();
    loop {
        std::thread::park_timeout(LOOK_EVERY);
        if stop.load(Ordering::Acquire) {
            return;
        }
        for (shard, (answered, silent_looks)) in watched.iter().zip(&mut seen) {
            let now = shard.pulse.answered.load(Ordering::Relaxed);
            if now == *answered {
                *silent_looks += 1;
                if *silent_looks == LOOKS_BEFORE_REPORT {
                    shard.pulse.stalls.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(shard = shard.name, doing = ?shard.pulse.doing(), seconds = *silent_looks, "makes no progress");
                }
            } else {
                if *silent_looks >= LOOKS_BEFORE_REPORT {
                    tracing::warn!(shard = shard.name, seconds = *silent_looks, "runs again");
                }
                *silent_looks = 0;
            }
            *answered = now;
            shard.bell.nudge();
        }
    }
}

/// Memory of the process.
#[expect(clippy::disallowed_methods, reason = "a file of the kernel's, read on a thread that is no shard")]
pub fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shard_does_survives_the_number() {
        // Rule: the report names what was set.
        for doing in [
            Doing::Other,
            Doing::Mesh,
            Doing::Image,
            Doing::Background,
            Doing::Request(0),
            Doing::Request(94),
            Doing::Request(-1),
        ] {
            assert_eq!(Doing::from_raw(doing.to_raw()), doing);
        }
    }
}
