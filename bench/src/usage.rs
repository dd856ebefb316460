//! What a process costs, from procfs: kernel and user time of all its threads, kernel workers of its rings included, memory,
//! and what it has the disks do.

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
    /// From disks; what the page cache gave is not counted.
    pub read_bytes: u64,
    /// To disks.
    pub written_bytes: u64,
}

impl Usage {
    /// What was used since `before`; the memory is that of now.
    pub fn since(self, before: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            resident_bytes: self.resident_bytes,
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
        }
    }
}

/// Of the process `pid` up to now.
pub fn of(pid: u32) -> io::Result<Usage> {
    let bad = || io::Error::other(format!("/proc/{pid} is not as expected"));
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, behind) = stat.rsplit_once(") ").ok_or_else(bad)?;
    let ticks: u64 = behind.split(' ').skip(UTIME_AT).take(2).filter_map(|word| word.parse::<u64>().ok()).sum();
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = field(&status, "VmRSS:").ok_or_else(bad)?;
    let io = fs::read_to_string(format!("/proc/{pid}/io"))?;
    let (read_bytes, written_bytes) = field(&io, "read_bytes:").zip(field(&io, "write_bytes:")).ok_or_else(bad)?;
    #[expect(clippy::cast_precision_loss, reason = "ticks of a run are far below 2^52")]
    let cpu = Duration::from_secs_f64(ticks as f64 / TICKS_PER_SECOND);
    Ok(Usage { cpu, resident_bytes: kib << 10, read_bytes, written_bytes })
}

/// A number from a file of names and numbers.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().trim_end_matches(" kB").parse().ok()
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
