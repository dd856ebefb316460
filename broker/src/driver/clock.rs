//! The only clock calls of the broker.
//!
//! Monotonic time for every wait, wall clock for record timestamps only: it may jump, also backwards.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use walser_storage::runtime::Instant;

/// Monotonic time since the first call in this process.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the monotonic clock")]
pub fn monotonic() -> Instant {
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    Instant::from_start(START.get_or_init(std::time::Instant::now).elapsed())
}

/// Milliseconds since 1970; 0 while the clock stands before that.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub fn wall_clock_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}
