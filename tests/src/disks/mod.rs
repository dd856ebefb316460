//! A broker on disks in trouble: what the tests of disk states share.

pub mod full;
pub mod mounts;
pub mod worker;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::process::{Broker, BrokerOptions};

/// Generous: what is waited for happens within seconds, on a machine that does nothing else.
const PATIENCE: Duration = Duration::from_secs(300);
/// Looking costs the broker something, too.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Looks again and again until there is something to see.
///
/// # Panics
/// When that takes far longer than it ever should; `what` is named.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// A broker whose metrics and log lines are looked at.
pub struct Observed {
    pub broker: Broker,
    log: PathBuf,
    http: String,
}

impl Observed {
    /// `log`: a file on a disk that has no faults.
    ///
    /// # Errors
    /// When it does not start, with what it said.
    pub fn start(options: &BrokerOptions, log: &Path) -> Result<Self, String> {
        let before = read_log(log).len();
        let options = options.clone().set("walser.http.listener", "127.0.0.1:0").log_to(log);
        let broker = options.start().map_err(|error| format!("{error}: {}", &read_log(log)[before..]))?;
        let http = wait_for("the address of the metrics", || {
            let text = read_log(log);
            let at = text[before..].find("metrics on http://")? + before;
            let address = text[at..].strip_prefix("metrics on http://")?;
            address.split_once("/metrics").map(|(address, _)| address.to_owned())
        });
        Ok(Self { broker, log: log.to_owned(), http })
    }

    pub fn address(&self) -> &str {
        self.broker.address()
    }

    /// Everything it has logged, earlier runs with the same file included.
    pub fn log(&self) -> String {
        read_log(&self.log)
    }

    /// The value of a metric, summed over shards, or of one shard.
    ///
    /// # Panics
    /// When there is none of that name, or no answer.
    pub fn metric(&self, name: &str, shard: Option<usize>) -> f64 {
        let text = self.scrape().expect("an answer with the metrics");
        let label = shard.map(|shard| format!("{{shard=\"{shard}\"}}"));
        let values: Vec<f64> = text
            .lines()
            .filter_map(|line| {
                let (sample, value) = line.rsplit_once(' ')?;
                let labels = sample.strip_prefix(name)?;
                let is_wanted = label.as_deref().map_or(labels.is_empty() || labels.starts_with('{'), |l| l == labels);
                is_wanted.then(|| value.parse().ok())?
            })
            .collect();
        assert!(!values.is_empty(), "no metric {name} {label:?}");
        values.iter().sum()
    }

    fn scrape(&self) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(&self.http)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: walser\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }
}

fn read_log(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
