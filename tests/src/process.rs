//! A broker as a process of its own: started on a free port, killed, stopped, started again on the same directory.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A start that takes longer has failed; it is generous because test machines are busy.
const READY_DEADLINE: Duration = Duration::from_secs(300);
/// Above the broker's own deadlines for the steps of a stop.
const STOP_DEADLINE: Duration = Duration::from_secs(300);
/// Names the binary to start, in place of the one that was built with the test.
pub const BINARY_VARIABLE: &str = "WALSER_BIN";

/// A directory that is removed with its contents when dropped, unless the thread is panicking: then its logs are wanted.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new(name: &str) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("walser-{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("kept: {}", self.0.display());
        } else if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{} was not removed: {error}", self.0.display());
        }
    }
}

/// How to start a broker. Settings are those of `--set`; the listener is on a free port of the loopback address.
#[derive(Clone, Debug)]
pub struct BrokerOptions {
    pub binary: PathBuf,
    pub data_dir: PathBuf,
    pub settings: Vec<(String, String)>,
    /// Where its log lines go; `None` is this process's standard error.
    pub log: Option<PathBuf>,
    /// Soft and hard limit of its descriptors; `None` is this process's.
    pub descriptors_max: Option<u32>,
}

impl BrokerOptions {
    /// # Panics
    /// When there is no binary: neither [`BINARY_VARIABLE`] nor one in the target directory of this test.
    pub fn new(data_dir: &Path) -> Self {
        let binary =
            find_binary().expect("a walser binary beside this test's (cargo build -p walser-broker), or WALSER_BIN");
        // The times of records in tests are made up, and would be older than what is kept.
        let settings = [("listeners", "PLAINTEXT://127.0.0.1:0"), ("log.retention.ms", "-1")];
        let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
        Self { binary, data_dir: data_dir.to_owned(), settings, log: None, descriptors_max: None }
    }

    pub fn set(mut self, key: &str, value: &str) -> Self {
        self.settings.retain(|(known, _)| known != key);
        self.settings.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Appends its log lines to a file, for those who look into them.
    pub fn log_to(mut self, path: &Path) -> Self {
        self.log = Some(path.to_owned());
        self
    }

    pub fn limit_descriptors(mut self, descriptors_max: u32) -> Self {
        self.descriptors_max = Some(descriptors_max);
        self
    }

    pub fn start(&self) -> io::Result<Broker> {
        let mut command = match self.descriptors_max {
            None => Command::new(&self.binary),
            Some(descriptors_max) => {
                // The shell limits itself and becomes the broker, which keeps its process id.
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("ulimit -n {descriptors_max} && exec \"$0\" \"$@\"")]).arg(&self.binary);
                shell
            }
        };
        if let Some(path) = &self.log {
            command.stderr(fs::File::options().create(true).append(true).open(path)?);
        }
        command.arg("start").arg("--data-dir").arg(&self.data_dir);
        for (key, value) in &self.settings {
            command.arg("--set").arg(format!("{key}={value}"));
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| io::Error::other("no standard output"))?;
        let ready = match wait_until_ready(stdout) {
            Ok(ready) => ready,
            Err(error) => {
                child.kill()?;
                let status = child.wait()?;
                return Err(io::Error::new(error.kind(), format!("{error}; the broker ended with {status}")));
            }
        };
        Ok(Broker { child, ready, options: self.clone() })
    }
}

/// What the ready line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// `host:port` of the first listener.
    pub address: String,
    pub node_id: i32,
    pub shards: usize,
}

impl Ready {
    /// `None` when the line is something else.
    pub fn parse(line: &str) -> Option<Self> {
        let fields = line.strip_prefix("walser ready ")?;
        let field = |name: &str| fields.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        let listener = field("listeners")?.split(',').next()?;
        Some(Self {
            address: listener.split_once("://")?.1.to_owned(),
            node_id: field("node.id")?.parse().ok()?,
            shards: field("shards")?.parse().ok()?,
        })
    }
}

fn wait_until_ready(stdout: ChildStdout) -> io::Result<Ready> {
    let (sender, receiver) = mpsc::channel();
    // Reads on after the ready line, so that the broker never finds the pipe full.
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if let Some(ready) = Ready::parse(&line) {
                // Nobody listens any more when the deadline has passed.
                drop(sender.send(ready));
            }
        }
    });
    receiver.recv_timeout(READY_DEADLINE).map_err(|error| match error {
        mpsc::RecvTimeoutError::Timeout => io::Error::new(io::ErrorKind::TimedOut, "no ready line in time"),
        mpsc::RecvTimeoutError::Disconnected => io::Error::new(io::ErrorKind::UnexpectedEof, "no ready line"),
    })
}

/// A running broker, killed when dropped.
#[derive(Debug)]
pub struct Broker {
    child: Child,
    pub ready: Ready,
    options: BrokerOptions,
}

impl Broker {
    pub fn address(&self) -> &str {
        &self.ready.address
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn options(&self) -> &BrokerOptions {
        &self.options
    }

    /// How it ended, when it has.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// A line of `/proc/<pid>/status` in KiB, such as `VmHWM`, the most memory that was ever resident.
    pub fn status_kib(&self, name: &str) -> io::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        number.ok_or_else(|| io::Error::other(format!("no {name} in the broker's status")))
    }

    /// As `kill -9`: no farewell of any kind.
    pub fn kill(mut self) -> io::Result<BrokerOptions> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(self.options.clone())
    }

    /// A clean stop, as SIGTERM asks for it.
    pub fn stop(mut self) -> io::Result<(ExitStatus, BrokerOptions)> {
        let pid = i32::try_from(self.child.id()).map_err(io::Error::other)?;
        kill(Pid::from_raw(pid), Signal::SIGTERM)?;
        let deadline = Instant::now() + STOP_DEADLINE;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok((status, self.options.clone()));
            }
            if Instant::now() > deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the broker did not stop in time"));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // It may end by itself at this very moment.
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

fn find_binary() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(BINARY_VARIABLE) {
        return Some(path.into());
    }
    // target/debug/deps/test-1234 or target/release/program: look upwards for a walser.
    let this = std::env::current_exe().ok()?;
    this.ancestors().skip(1).take(2).map(|folder| folder.join("walser")).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line_is_read() {
        // Rule: address of the first listener, node id and shards come from the line; any other line is not it.
        let line =
            "walser ready listeners=PLAINTEXT://127.0.0.1:41234,OTHER://[::1]:9 node.id=1 shards=2 data.dir=/tmp/x y";
        let want = Ready { address: "127.0.0.1:41234".to_owned(), node_id: 1, shards: 2 };
        assert_eq!(Ready::parse(line), Some(want));
        assert_eq!(Ready::parse("something else"), None);
        assert_eq!(Ready::parse("walser ready listeners=x node.id=1 shards=2"), None);
    }
}
