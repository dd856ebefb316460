//! What came of a load.

use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::usage::Usage;

/// What a load did while it was measured.
#[derive(Clone, Debug)]
pub struct Measured {
    pub elapsed: Duration,
    pub requests: u64,
    /// Before and after as well.
    pub requests_in_all: u64,
    /// Of whole batches, as they stand in the log.
    pub bytes: u64,
    /// Microseconds from handing a request to the kernel to having read its answer.
    pub latency: Histogram<u64>,
    /// Of the broker over the measured time, where that is known; its memory at the end.
    pub cost: Option<Usage>,
}

impl Measured {
    /// Seconds of the broker's CPU per 10⁹ bytes.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a run are far below 2^52")]
    pub fn cpu_per_gb(&self) -> Option<f64> {
        self.cost.map(|cost| cost.cpu.as_secs_f64() / (self.bytes as f64 / 1e9))
    }

    /// Bytes that the broker wrote to disks for each of a batch. What it writes later is not counted, and what it had not
    /// written before is: so over some seconds of the same load.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a run are far below 2^52")]
    pub fn written_per_byte(&self) -> Option<f64> {
        self.cost.map(|cost| cost.written_bytes as f64 / self.bytes as f64)
    }

    #[expect(clippy::cast_precision_loss, reason = "bytes of a run are far below 2^52")]
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64()
    }
}

pub(crate) fn histogram() -> io::Result<Histogram<u64>> {
    Histogram::new(3).map_err(io::Error::other)
}

/// At least one: a histogram has no zero.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1)
}
