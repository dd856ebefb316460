//! `log.cleaner.io.max.bytes.per.second`: how fast compaction may read and write.

use std::cell::Cell;
use std::time::Duration;

use crate::runtime::Instant;

/// What may be moved at once after a pause.
const BURST: Duration = Duration::from_millis(100);

/// Bytes per second, for all cleanings of one shard together.
pub struct Throttle {
    bytes_per_second: Cell<f64>,
    /// When everything moved so far is paid for.
    paid_at: Cell<Instant>,
}

impl Throttle {
    /// A rate that is no positive number means no bound.
    pub fn new(bytes_per_second: f64) -> Self {
        let throttle =
            Self { bytes_per_second: Cell::new(0.0), paid_at: Cell::new(Instant::from_start(Duration::ZERO)) };
        throttle.set_rate(bytes_per_second);
        throttle
    }

    pub fn set_rate(&self, bytes_per_second: f64) {
        self.bytes_per_second.set(if bytes_per_second > 0.0 { bytes_per_second } else { f64::INFINITY });
    }

    /// Counts bytes that were moved; how long to wait before more are.
    pub fn note(&self, bytes: usize, now: Instant) -> Duration {
        let seconds = bytes as f64 / self.bytes_per_second.get();
        // Beyond a year the rate stops everything, which is what was asked for.
        let cost = Duration::try_from_secs_f64(seconds.min(365.0 * 86400.0)).unwrap_or_default();
        let earliest = Instant::from_start(now.since_start().saturating_sub(BURST));
        let paid_at = self.paid_at.get().max(earliest).saturating_add(cost);
        self.paid_at.set(paid_at);
        paid_at.saturating_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_holds_over_time() {
        // Rule: whoever waits as told moves no more than the rate and one burst, and without a rate nobody waits.
        let throttle = Throttle::new(1000.0);
        let mut now = Instant::from_start(Duration::from_secs(50));
        let start = now;
        for _ in 0..100 {
            now = now.saturating_add(throttle.note(100, now));
        }
        assert_eq!(now.saturating_since(start), Duration::from_millis(9900));
        throttle.set_rate(f64::MAX);
        assert_eq!(throttle.note(usize::MAX, now.saturating_add(Duration::from_secs(1))), Duration::ZERO);
        for no_bound in [0.0, -1.0, f64::NAN] {
            assert_eq!(Throttle::new(no_bound).note(1 << 40, now), Duration::ZERO, "{no_bound}");
        }
    }
}
