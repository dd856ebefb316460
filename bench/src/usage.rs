//! What a process costs, from procfs: kernel and user time of all its threads, kernel workers of its rings included, and memory.

use std::fs;
use std::io;
use std::time::Duration;

/// Ticks per second of the times in procfs; the same on every Linux that Rust runs on.
const TICKS_PER_SECOND: f64 = 100.0;
/// Position of utime behind the command's closing parenthesis in `/proc/PID/stat`.
const UTIME_AT: usize = 11;

#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub cpu: Duration,
    pub resident_bytes: u64,
}

/// Of the process `pid` up to now.
pub fn of(pid: u32) -> io::Result<Usage> {
    let bad = || io::Error::other(format!("/proc/{pid} is not as expected"));
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, behind) = stat.rsplit_once(") ").ok_or_else(bad)?;
    let ticks: u64 = behind.split(' ').skip(UTIME_AT).take(2).filter_map(|word| word.parse::<u64>().ok()).sum();
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or_else(bad)?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().map_err(|_| bad())?;
    #[expect(clippy::cast_precision_loss, reason = "ticks of a run are far below 2^52")]
    let cpu = Duration::from_secs_f64(ticks as f64 / TICKS_PER_SECOND);
    Ok(Usage { cpu, resident_bytes: kib << 10 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_costs_time() {
        // Rule: the time read is that of the process, and grows as it works.
        let pid = std::process::id();
        let before = of(pid).unwrap();
        assert!(before.resident_bytes > 0);
        let mut sum = 0u64;
        while of(pid).unwrap().cpu == before.cpu {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
    }
}
