//! What the machine must have before a broker starts, each said in one sentence with its remedy. Exit code 3.
//!
//! Limits that may be raised are raised here: locked memory and descriptors from their soft to their hard bound.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use thiserror::Error;

use walser_storage::data_dir::create_durably;
use walser_storage::disk::reserve::RESERVE_FILE;

use crate::config::{BrokerConfig, Endpoint};
use crate::shard::runtime::allowed_cpus;
use crate::shard::start::StartError;

mod cgroup;

/// Locked memory an executor's ring needs, and as much again to breathe.
const MEMLOCK_BYTES_MIN: u64 = 1 << 20;
/// Below this a broker could not even keep its internal topics open.
const DESCRIPTORS_MIN: u64 = 512;
/// Share of the descriptors kept for files; the others may become connections.
const FILE_DESCRIPTORS_SHARE: u64 = 4;
/// The metadata log is made at start, and takes less. All else comes up without room, and takes no appends until there is.
const FREE_BYTES_MIN: u64 = 2 << 20;
/// Below this the start takes what the last run kept back for it: journals are begun, and what is in the old ones is written
/// to its place.
const FREE_BYTES_LOW: u64 = 128 << 20;
/// Part of the machine's memory taken when `walser.memory` is not set.
const MEMORY_SHARE: u64 = 4;
/// Memory below which a broker makes no sense.
const MEMORY_BYTES_MIN: u64 = 32 << 20;

/// More of them open do not make a broker faster.
pub const OPEN_FILES_MAX: usize = 1024;

/// Why this machine cannot run the broker as it is configured.
#[derive(Debug, Error)]
pub enum Unfit {
    #[error("io_uring is switched off on this machine; switch it on with: sysctl kernel.io_uring_disabled=0")]
    IoUringDisabled,
    #[error(
        "io_uring is forbidden to this process; allow it in the container's seccomp profile (Docker: --security-opt seccomp=unconfined)"
    )]
    IoUringForbidden,
    #[error("this kernel has no io_uring; Linux 5.11 or newer is needed")]
    IoUringMissing,
    #[error(
        "only {limit} bytes of memory may be locked, {MEMLOCK_BYTES_MIN} are needed; raise `ulimit -l` (systemd: LimitMEMLOCK=infinity)"
    )]
    Memlock { limit: u64 },
    #[error(
        "only {limit} descriptors may be open, {DESCRIPTORS_MIN} are needed; raise `ulimit -n` (systemd: LimitNOFILE=1048576)"
    )]
    Descriptors { limit: u64 },
    #[error(
        "CPU {cpu} of walser.cpus is not allowed to this process, which may use {allowed}; change walser.cpus or the affinity mask"
    )]
    Cpu { cpu: usize, allowed: String },
    #[error("cannot make data directory {}: {error}; make it yourself or choose another with --data-dir", path.display())]
    NoDirectory { path: PathBuf, error: io::Error },
    #[error("{} is not a directory; choose another with --data-dir", path.display())]
    NotADirectory { path: PathBuf },
    #[error("data directory {} belongs to user {owner} and cannot be written by user {user}; run: chown -R {user} {}", path.display(), path.display())]
    NotWritable { path: PathBuf, owner: u32, user: u32 },
    #[error("data directory {} is on a file system mounted read-only; mount it writable or choose another with --data-dir", path.display())]
    ReadOnly { path: PathBuf },
    #[error("the disk of data directory {} is full ({free} bytes free, {FREE_BYTES_MIN} are needed); free some space or choose another with --data-dir", path.display())]
    DiskFull { path: PathBuf, free: u64 },
    #[error(
        "the file system of data directory {} refuses direct I/O (O_DIRECT); choose a directory on ext4, XFS or another that has it",
        path.display()
    )]
    NoDirectIo { path: PathBuf },
    #[error("cannot use data directory {}: {error}", path.display())]
    Directory { path: PathBuf, error: io::Error },
    #[error("{address} is in use by another process; stop that one, or listen elsewhere with --set {key}=…")]
    PortTaken { address: String, key: &'static str },
    #[error("cannot listen on {address}: {error}; {remedy}")]
    Listen { address: String, error: io::Error, remedy: &'static str },
    #[error("host {host} of a listener cannot be resolved: {error}; name an address of this machine")]
    Host { host: String, error: io::Error },
    #[error("cannot ask the system for its limits: {0}")]
    System(io::Error),
    #[error(transparent)]
    Start(StartError),
}

/// What the broker may use of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Fitness {
    /// Most connections the descriptors leave room for.
    pub connections_max: usize,
    /// Most files of segments that should be kept open.
    pub open_files_max: usize,
}

/// Raises limits, makes and probes the data directory, and refuses what would fail later.
///
/// # Errors
/// The first thing that is missing.
pub fn check(config: &BrokerConfig) -> Result<Fitness, Unfit> {
    check_io_uring()?;
    check_memlock()?;
    let descriptors = raise(Resource::RLIMIT_NOFILE)?;
    if descriptors < DESCRIPTORS_MIN {
        return Err(Unfit::Descriptors { limit: descriptors });
    }
    check_directory(&config.metadata_log_dir)?;
    for path in config.log_dirs.iter().filter(|path| **path != config.metadata_log_dir) {
        check_other_directory(path)?;
    }
    let for_connections = descriptors - descriptors / FILE_DESCRIPTORS_SHARE;
    // Others are for files that are read and written as a whole, journals, and what the runtime needs.
    let for_segments = (descriptors - for_connections) / 2;
    Ok(Fitness {
        connections_max: usize::try_from(for_connections).unwrap_or(usize::MAX),
        open_files_max: usize::try_from(for_segments).unwrap_or(usize::MAX).min(OPEN_FILES_MAX),
    })
}

#[expect(clippy::disallowed_methods, reason = "a file of the kernel's, read before any shard exists")]
fn check_io_uring() -> Result<(), Unfit> {
    // 1 leaves it to privileged processes: whether this is one shows when the first ring is made.
    match std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled") {
        Ok(level) if level.trim() == "2" => Err(Unfit::IoUringDisabled),
        _ => Ok(()),
    }
}

fn check_memlock() -> Result<(), Unfit> {
    let limit = raise(Resource::RLIMIT_MEMLOCK)?;
    if limit < MEMLOCK_BYTES_MIN { Err(Unfit::Memlock { limit }) } else { Ok(()) }
}

/// Raises the soft limit to the hard one; what counts afterwards.
fn raise(resource: Resource) -> Result<u64, Unfit> {
    let system = |errno: nix::Error| Unfit::System(errno.into());
    let (soft, hard) = getrlimit(resource).map_err(system)?;
    if soft < hard && setrlimit(resource, hard, hard).is_err() {
        return Ok(soft);
    }
    Ok(hard)
}

/// CPU of each shard: those configured or allowed, no more than the control group pays for unless asked for. The same CPU
/// comes again where more shards than CPUs were asked for.
///
/// # Errors
/// When a CPU that was configured is not allowed.
pub fn shard_cpus(config: &BrokerConfig) -> Result<Vec<usize>, Unfit> {
    choose_cpus(config, &allowed_cpus().map_err(Unfit::System)?)
}

fn choose_cpus(config: &BrokerConfig, allowed: &[usize]) -> Result<Vec<usize>, Unfit> {
    let cpus = match &config.cpus {
        Some(cpus) => {
            if let Some(cpu) = cpus.iter().copied().find(|cpu| !allowed.contains(cpu)) {
                let allowed = allowed.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
                return Err(Unfit::Cpu { cpu, allowed });
            }
            cpus.as_slice()
        }
        None => allowed,
    };
    let paid = cgroup::cpus_max().unwrap_or(usize::MAX);
    let count = config.shards.unwrap_or_else(|| cpus.len().min(paid)).max(1);
    if count > cpus.len() {
        tracing::warn!(shards = count, cpus = cpus.len(), "more shards than CPUs: some share one");
    }
    Ok(cpus.iter().copied().cycle().take(count).collect())
}

/// Memory of the whole broker: `walser.memory`, else a quarter of what the machine or the control group has.
pub fn memory_bytes(config: &BrokerConfig) -> u64 {
    config.memory_bytes.unwrap_or_else(default_memory).max(MEMORY_BYTES_MIN)
}

fn default_memory() -> u64 {
    let machine = cgroup::machine_memory().unwrap_or(MEMORY_BYTES_MIN * MEMORY_SHARE);
    machine.min(cgroup::memory_max().unwrap_or(u64::MAX)) / MEMORY_SHARE
}

fn check_directory(path: &Path) -> Result<(), Unfit> {
    make_directory(path)?;
    let probe = path.join(".probe");
    let opened = OpenOptions::new().create(true).truncate(true).write(true).custom_flags(libc::O_DIRECT).open(&probe);
    let outcome = opened.map(drop).map_err(|error| explain_directory(path, error));
    remove_probe(&probe);
    match outcome {
        // Nothing on a tmpfs survives the power anyway, so that buffered writes lose nothing more.
        Err(Unfit::NoDirectIo { .. }) if is_tmpfs(path) => {
            tracing::warn!(path = %path.display(), "the data directory is on a tmpfs: nothing survives a power cut");
        }
        outcome => outcome?,
    }
    if free_bytes(path)? < FREE_BYTES_LOW {
        // It is made again once there is room.
        remove_probe(&path.join(RESERVE_FILE));
    }
    let free = free_bytes(path)?;
    if free < FREE_BYTES_MIN {
        return Err(Unfit::DiskFull { path: path.to_path_buf(), free });
    }
    Ok(())
}

/// One that the others can do without: where something is wrong with it the start goes on, and says so when it comes to it.
fn check_other_directory(path: &Path) -> Result<(), Unfit> {
    match check_directory(path) {
        // Nothing that passes, and nothing of the disk's.
        Err(unfit @ Unfit::NoDirectIo { .. }) => Err(unfit),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn free_bytes(path: &Path) -> Result<u64, Unfit> {
    let space = nix::sys::statvfs::statvfs(path).map_err(|errno| Unfit::System(errno.into()))?;
    Ok(space.blocks_available().saturating_mul(space.fragment_size()))
}

fn make_directory(path: &Path) -> Result<(), Unfit> {
    match create_durably(path) {
        Ok(()) => Ok(()),
        Err(_) if path.exists() && !path.is_dir() => Err(Unfit::NotADirectory { path: path.to_path_buf() }),
        Err(error) => Err(Unfit::NoDirectory { path: path.to_path_buf(), error }),
    }
}

#[expect(clippy::disallowed_methods, reason = "removed before any shard exists")]
fn remove_probe(probe: &Path) {
    // The next start makes it again: what remains of it does no harm.
    std::fs::remove_file(probe).ok();
}

fn is_tmpfs(path: &Path) -> bool {
    statfs(path).is_ok_and(|about| about.filesystem_type() == TMPFS_MAGIC)
}

fn explain_directory(path: &Path, error: io::Error) -> Unfit {
    let path = path.to_path_buf();
    match error.raw_os_error() {
        Some(libc::EINVAL) => Unfit::NoDirectIo { path },
        Some(libc::EACCES | libc::EPERM) => {
            let owner = path.metadata().map_or(u32::MAX, |about| about.uid());
            Unfit::NotWritable { path, owner, user: nix::unistd::geteuid().as_raw() }
        }
        Some(libc::EROFS) => Unfit::ReadOnly { path },
        Some(libc::ENOSPC | libc::EDQUOT) => Unfit::DiskFull { path, free: 0 },
        _ => Unfit::Directory { path, error },
    }
}

/// The sentence for what went wrong while shards were started.
pub fn explain_start(error: StartError) -> Unfit {
    match error {
        StartError::Bind { address, source } => explain_listen(address.to_string(), "listeners", source),
        StartError::Executor { name, source } => match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Unfit::IoUringForbidden,
            Some(libc::ENOSYS) => Unfit::IoUringMissing,
            Some(libc::ENOMEM) => Unfit::Memlock { limit: memlock_now() },
            _ => Unfit::Start(StartError::Executor { name, source }),
        },
        StartError::DataDir { path, source } => explain_directory(&path, source),
        other @ (StartError::Listen(_)
        | StartError::Thread(_)
        | StartError::SameDirectory { .. }
        | StartError::Boot(_)
        | StartError::Ended) => Unfit::Start(other),
    }
}

fn memlock_now() -> u64 {
    getrlimit(Resource::RLIMIT_MEMLOCK).map_or(0, |(soft, _)| soft)
}

/// The sentence for an address that could not be bound; `key` is the setting that names it.
pub fn explain_listen(address: String, key: &'static str, error: io::Error) -> Unfit {
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => Unfit::PortTaken { address, key },
        Some(libc::EADDRNOTAVAIL) => {
            Unfit::Listen { address, error, remedy: "it is no address of this machine, name one that is" }
        }
        Some(libc::EACCES) => {
            Unfit::Listen { address, error, remedy: "ports below 1024 need CAP_NET_BIND_SERVICE, choose one above" }
        }
        _ => Unfit::Listen { address, error, remedy: "choose another address" },
    }
}

/// Where a listener binds. A host without a name is every interface, of both address families where there are two.
///
/// # Errors
/// When a name cannot be resolved.
pub fn bind_address(endpoint: &Endpoint) -> Result<SocketAddr, Unfit> {
    let host = endpoint.host.as_str();
    if host.is_empty() {
        let both = std::net::UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
        let every: IpAddr = if both { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        return Ok(SocketAddr::new(every, endpoint.port));
    }
    let unresolved = |error| Unfit::Host { host: host.to_owned(), error };
    let found: Vec<SocketAddr> = (host, endpoint.port).to_socket_addrs().map_err(unresolved)?.collect();
    let best = found.iter().find(|address| address.is_ipv4()).or_else(|| found.first());
    best.copied().ok_or_else(|| unresolved(ErrorKind::NotFound.into()))
}

/// What a listener on every interface tells clients: the machine's name when it resolves to an address, as Kafka does,
/// else loopback.
pub fn host_name() -> String {
    let name = nix::sys::utsname::uname().ok().and_then(|names| names.nodename().to_str().map(str::to_owned));
    let resolves = |name: &String| {
        (name.as_str(), 0)
            .to_socket_addrs()
            .is_ok_and(|mut addresses| addresses.any(|address| !address.ip().is_unspecified()))
    };
    name.filter(resolves).unwrap_or_else(|| "localhost".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("walser-start-checks-{}-{name}", std::process::id()))
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test makes and removes its own files")]
    fn a_missing_directory_is_made() {
        // Rule: a missing data directory is made, and the probe leaves nothing behind.
        let path = scratch("made/deep");
        check_directory(&path).expect("made");
        assert_eq!(std::fs::read_dir(&path).expect("a directory").count(), 0);
        check_directory(&path).expect("there already");
        std::fs::remove_dir_all(scratch("made")).expect("removed");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test makes and removes its own files")]
    fn a_file_is_no_directory() {
        // Rule: what cannot hold data is named, with a remedy.
        let path = scratch("file");
        std::fs::write(&path, b"x").expect("written");
        let refused = check_directory(&path).expect_err("a file");
        assert!(matches!(&refused, Unfit::NotADirectory { .. }), "{refused}");
        assert!(matches!(check_directory(&path.join("below")), Err(Unfit::NoDirectory { .. })));
        std::fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn errors_of_the_system_become_sentences() {
        // Rule: each failure names its remedy.
        let path = Path::new("/data");
        for (errno, part) in [
            (libc::EINVAL, "O_DIRECT"),
            (libc::EACCES, "chown -R"),
            (libc::EROFS, "read-only"),
            (libc::ENOSPC, "is full"),
            (libc::EDQUOT, "is full"),
        ] {
            let text = explain_directory(path, io::Error::from_raw_os_error(errno)).to_string();
            assert!(text.contains(part), "{text}");
        }
        let executor =
            |errno| StartError::Executor { name: "shard-0".into(), source: io::Error::from_raw_os_error(errno) };
        for (errno, part) in [(libc::EPERM, "seccomp"), (libc::ENOSYS, "no io_uring"), (libc::ENOMEM, "ulimit -l")] {
            let text = explain_start(executor(errno)).to_string();
            assert!(text.contains(part), "{text}");
        }
        for (errno, part) in [(libc::EADDRINUSE, "in use by another process"), (libc::EACCES, "below 1024")] {
            let text = explain_listen("h:1".into(), "listeners", io::Error::from_raw_os_error(errno)).to_string();
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn shards_take_allowed_cpus() {
        // Rule: configured CPUs must be allowed; shards beyond them share.
        let config = |pairs: &[(&str, &str)]| BrokerConfig::from_pairs(pairs).expect("fits");
        let allowed = [1, 3, 5];
        assert_eq!(choose_cpus(&config(&[("walser.shards", "2")]), &allowed).expect("allowed"), [1, 3]);
        assert_eq!(choose_cpus(&config(&[("walser.shards", "4")]), &allowed).expect("allowed"), [1, 3, 5, 1]);
        let chosen = config(&[("walser.cpus", "3,5"), ("walser.shards", "2")]);
        assert_eq!(choose_cpus(&chosen, &allowed).expect("allowed"), [3, 5]);
        let refused = choose_cpus(&config(&[("walser.cpus", "0-1")]), &allowed).expect_err("0 is not allowed");
        assert!(refused.to_string().contains("CPU 0"), "{refused}");
    }

    #[test]
    fn listeners_bind_where_they_say() {
        // Rule: an empty host is every interface; names and addresses of both families are resolved.
        let bind = |host: &str| bind_address(&Endpoint { listener: "A".into(), host: host.into(), port: 7 });
        assert!(bind("").expect("every interface").ip().is_unspecified());
        assert_eq!(bind("127.0.0.1").expect("IPv4"), "127.0.0.1:7".parse().expect("an address"));
        assert_eq!(bind("::1").expect("IPv6"), "[::1]:7".parse().expect("an address"));
        assert!(bind("localhost").expect("a name").ip().is_loopback());
        assert!(matches!(bind("no.such.host.invalid"), Err(Unfit::Host { .. })));
    }
}
