//! A broker of its own for one measurement: started on an empty directory and one CPU, killed afterwards.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const LOG_FILE: &str = "broker.log";
const METRICS_PATIENCE: Duration = Duration::from_secs(20);
const METRICS_PAUSE: Duration = Duration::from_millis(10);

/// How to start one.
#[derive(Clone, Debug)]
pub struct BrokerOptions {
    pub binary: PathBuf,
    /// Made, and removed with the broker.
    pub dir: PathBuf,
    /// The CPU it runs on.
    pub cpu: usize,
    /// As `--set` takes them.
    pub settings: Vec<String>,
}

pub struct Broker {
    child: Child,
    dir: PathBuf,
    pub address: String,
    /// Of its metrics.
    metrics: String,
}

impl Broker {
    pub fn start(options: &BrokerOptions) -> io::Result<Self> {
        fs::create_dir(&options.dir)?;
        let log = fs::File::create(options.dir.join(LOG_FILE))?;
        let mut command = Command::new("taskset");
        command.args(["-c", &options.cpu.to_string()]).arg(&options.binary).arg("start");
        command.arg("--data-dir").arg(options.dir.join("data"));
        let own = ["listeners=PLAINTEXT://127.0.0.1:0", "walser.http.listener=127.0.0.1:0"];
        for setting in own.into_iter().chain(options.settings.iter().map(String::as_str)) {
            command.args(["--set", setting]);
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| io::Error::other("no standard output"))?;
        let mut broker = Self { child, dir: options.dir.clone(), address: String::new(), metrics: String::new() };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.split_once("PLAINTEXT://").and_then(|(_, rest)| rest.split([',', ' ']).next());
        broker.address = address.ok_or_else(|| io::Error::other("no ready line"))?.trim().to_owned();
        broker.metrics = find_metrics(&options.dir.join(LOG_FILE))?;
        Ok(broker)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The sum of a metric over all shards.
    pub fn metric(&self, name: &str) -> io::Result<f64> {
        let mut stream = TcpStream::connect(&self.metrics)?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: walser\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let lines = text.lines().filter_map(|line| line.strip_prefix(name));
        let of_it = lines.filter(|rest| rest.starts_with(['{', ' ']));
        Ok(of_it.filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }
}

impl Drop for Broker {
    /// With all it has written, and so that the disk has nothing more to do with it.
    fn drop(&mut self) {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        let removed = fs::remove_dir_all(&self.dir);
        nix::unistd::sync();
        if let Err(error) = killed.map(drop).and(removed) {
            eprintln!("a broker was not taken away: {error}");
        }
    }
}

/// A log line says where they are.
fn find_metrics(log: &Path) -> io::Result<String> {
    let deadline = Instant::now() + METRICS_PATIENCE;
    loop {
        let text = fs::read_to_string(log)?;
        let address = text.split_once("metrics on http://").and_then(|(_, rest)| rest.split_once("/metrics"));
        if let Some((address, _)) = address {
            return Ok(address.to_owned());
        }
        if Instant::now() > deadline {
            return Err(io::Error::other("no line that says where the metrics are"));
        }
        thread::sleep(METRICS_PAUSE);
    }
}
