//! What came of a load.

use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;

/// What a load did while it was measured.
#[derive(Clone, Debug)]
pub struct Measured {
    pub elapsed: Duration,
    pub requests: u64,
    /// Of whole batches, as they stand in the log.
    pub bytes: u64,
    /// Microseconds from handing a request to the kernel to having read its answer.
    pub latency: Histogram<u64>,
    /// Of the broker, over the measured time.
    pub cpu: Option<Duration>,
    pub resident_bytes: Option<u64>,
}

impl Measured {
    /// Seconds of the broker's CPU per 10⁹ bytes.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a run are far below 2^52")]
    pub fn cpu_per_gb(&self) -> Option<f64> {
        self.cpu.map(|cpu| cpu.as_secs_f64() / (self.bytes as f64 / 1e9))
    }
}

pub(crate) fn histogram() -> io::Result<Histogram<u64>> {
    Histogram::new(3).map_err(io::Error::other)
}

/// At least one: a histogram has no zero.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1)
}
