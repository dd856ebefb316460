//! What the control group and the machine allow: CPUs and memory. Both versions of control groups.

use std::path::PathBuf;

#[expect(clippy::disallowed_methods, reason = "files of the kernel's, read before any shard exists")]
fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// CPUs worth of time the control group pays for, rounded up; `None` without a bound.
pub(super) fn cpus_max() -> Option<usize> {
    let unified = files("", "cpu.max").into_iter().filter_map(|text| cpus_of_unified(&text));
    let quotas = files("cpu", "cpu.cfs_quota_us").into_iter();
    let legacy = quotas.zip(files("cpu", "cpu.cfs_period_us")).filter_map(|(quota, period)| cpus(&quota, &period));
    unified.chain(legacy).min()
}

/// Bytes the control group allows; `None` without a bound.
pub(super) fn memory_max() -> Option<u64> {
    let limits = files("", "memory.max").into_iter().chain(files("memory", "memory.limit_in_bytes"));
    // No bound is "max" in version 2, and a number beyond any machine in version 1.
    limits.filter_map(|text| text.trim().parse::<u64>().ok()).filter(|bytes| *bytes < 1 << 60).min()
}

/// Bytes of memory the machine has.
pub(super) fn machine_memory() -> Option<u64> {
    let about = read("/proc/meminfo")?;
    let total = about.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    total.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
}

/// A file of this process's group and of all groups around it, the innermost first. An empty `controller` is version 2.
fn files(controller: &str, name: &str) -> Vec<String> {
    let membership = read("/proc/self/cgroup").unwrap_or_default();
    let Some(group) = group_of(&membership, controller) else { return Vec::new() };
    let root = if controller.is_empty() { "/sys/fs/cgroup".to_owned() } else { format!("/sys/fs/cgroup/{controller}") };
    let group = PathBuf::from(group);
    // Inside a container the group's own path may not be mounted; the root of the mount is the group then.
    group.ancestors().filter_map(|ancestor| read(&format!("{root}{}/{name}", ancestor.display()))).collect()
}

/// The path of a group in `/proc/self/cgroup`, whose lines are `number:controllers:path`.
fn group_of<'a>(membership: &'a str, controller: &str) -> Option<&'a str> {
    membership.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        controllers.split(',').any(|one| one == controller).then_some(path)
    })
}

fn cpus_of_unified(text: &str) -> Option<usize> {
    let (quota, period) = text.trim().split_once(' ')?;
    cpus(quota, period)
}

fn cpus(quota: &str, period: &str) -> Option<usize> {
    let (quota, period): (u64, u64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    if period == 0 { None } else { usize::try_from(quota.div_ceil(period).max(1)).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_quotas_are_read() {
        // Rule: both versions of control groups give a bound, and their words for none give none.
        let membership = "12:cpu,cpuacct:/a\n4:memory:/b:c\n0::/d\n";
        assert_eq!(group_of(membership, "cpu"), Some("/a"));
        assert_eq!(group_of(membership, "memory"), Some("/b:c"));
        assert_eq!(group_of(membership, ""), Some("/d"));
        assert_eq!(group_of(membership, "pids"), None);
        for (text, want) in [("150000 100000", Some(2)), ("50000 100000\n", Some(1)), ("max 100000", None), ("1", None)]
        {
            assert_eq!(cpus_of_unified(text), want, "{text}");
        }
        assert_eq!(cpus("-1", "100000"), None);
        assert!(machine_memory().is_some_and(|bytes| bytes > 1 << 20));
    }
}
