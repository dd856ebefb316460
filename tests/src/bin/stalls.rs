//! How long a request ever waits beside threads that burn the broker's cores.
//!
//! `stalls SECONDS [LIMIT_MS]` fails when a wait, less what schedulers took, is above the limit. The broker is the one
//! `WALSER_BIN` names, or the one built beside this. That a short preemption timer fails is shown in the broker's own tests.

use std::process::ExitCode;
use std::time::Duration;

use walser_tests::process::{BrokerOptions, TempDir};
use walser_tests::stalls::{Stalls, run};

const USAGE: &str = "usage: stalls SECONDS [LIMIT_MS]";
const LIMIT_MS: u64 = 500;

fn main() -> ExitCode {
    let arguments: Vec<u64> = match std::env::args().skip(1).map(|argument| argument.parse()).collect() {
        Ok(arguments) => arguments,
        Err(_) => return usage(),
    };
    let (seconds, limit_ms) = match arguments.as_slice() {
        [seconds] => (*seconds, LIMIT_MS),
        [seconds, limit_ms] => (*seconds, *limit_ms),
        _ => return usage(),
    };
    match watch(Duration::from_secs(seconds)) {
        Ok(stalls) => {
            println!("{stalls:?}");
            if stalls.longest_stall > Duration::from_millis(limit_ms) {
                eprintln!("a request stalled {:?}", stalls.longest_stall);
                return ExitCode::FAILURE;
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

fn watch(time: Duration) -> Result<Stalls, String> {
    let dir = TempDir::new("stalls").map_err(|error| error.to_string())?;
    let broker = BrokerOptions::new(dir.path()).start().map_err(|error| error.to_string())?;
    let stalls = run(broker.address(), broker.pid(), time)?;
    let (status, _) = broker.stop().map_err(|error| error.to_string())?;
    if status.success() { Ok(stalls) } else { Err(format!("the clean stop ended with {status}")) }
}
