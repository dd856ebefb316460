//! Thousands of partitions: `many-partitions PARTITIONS MEGABYTES`. The broker is the one `WALSER_BIN` names, or the one
//! built beside this; `taskset -c 0` before it keeps both on one core. What it prints is for people.

use std::process::ExitCode;

use walser_tests::many::{Settings, run};
use walser_tests::process::TempDir;

fn main() -> ExitCode {
    let numbers: Result<Vec<u64>, _> = std::env::args().skip(1).map(|argument| argument.parse()).collect();
    let Ok([partitions, megabytes]) = numbers.as_deref() else {
        eprintln!("usage: many-partitions PARTITIONS MEGABYTES");
        return ExitCode::from(2);
    };
    let settings = Settings { partitions: usize::try_from(*partitions).unwrap_or(0), bytes: megabytes << 20 };
    let dir = TempDir::new("many");
    match dir.map_err(|error| error.to_string()).and_then(|dir| run(dir.path(), settings)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
