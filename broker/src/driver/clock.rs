//! The clocks, for code that runs on no shard: on a shard, ask its runtime.
//!
//! Monotonic time for every wait, wall clock for record timestamps only: it may jump, also backwards.

use walser_storage::runtime::glommio::GlommioRuntime;
use walser_storage::runtime::{Instant, Runtime};

/// Monotonic time since a start that is the same for every thread of this process.
pub fn monotonic() -> Instant {
    GlommioRuntime::new().now()
}

/// Milliseconds since 1970; 0 while the clock stands before that.
pub fn wall_clock_ms() -> i64 {
    GlommioRuntime::new().wall_clock_ms()
}
