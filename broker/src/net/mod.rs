//! The network edge: sockets to frames, replies to sockets.

pub mod admission;
pub mod connection;
pub mod connection_limits;
pub mod listener;
pub mod response_queue;

use std::cell::Cell;
use std::time::Duration;

use walser_storage::runtime::Instant;

/// Log lines about clients' faults: one in this time per shard and kind, with the number of those left out.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// Keeps a client from filling the log.
#[derive(Default)]
pub struct RateLimitedLog {
    last: Cell<Option<Instant>>,
    left_out: Cell<u64>,
}

impl RateLimitedLog {
    /// `Some` with the number of lines left out before this one when it may be written.
    pub fn admit(&self, now: Instant) -> Option<u64> {
        if self.last.get().is_some_and(|last| now.saturating_since(last) < LOG_EVERY) {
            self.left_out.set(self.left_out.get() + 1);
            return None;
        }
        self.last.set(Some(now));
        Some(self.left_out.replace(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second() {
        // Rule: a flood of faults gives one line a second, and the next line says how many are missing.
        let log = RateLimitedLog::default();
        let at = |ms| Instant::from_start(Duration::from_millis(ms));
        assert_eq!(log.admit(at(0)), Some(0));
        assert_eq!(log.admit(at(1)), None);
        assert_eq!(log.admit(at(999)), None);
        assert_eq!(log.admit(at(1000)), Some(2));
        assert_eq!(log.admit(at(2001)), Some(0));
    }
}
