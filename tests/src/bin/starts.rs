//! Starts and clean stops: `starts ROUNDS`. The broker is the one `WALSER_BIN` names, or the one built beside this.

use std::process::ExitCode;

use walser_tests::process::TempDir;
use walser_tests::starts::{Report, run};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [rounds] = arguments.as_slice() else { return usage() };
    let Ok(rounds) = rounds.parse() else { return usage() };
    match start_and_stop(rounds) {
        Ok(report) => {
            let Report { rounds, records, starting, stopping } = report;
            let each = rounds.max(1);
            println!(
                "{rounds} starts and clean stops, {records} records a partition; {:?} to start, {:?} to stop each",
                starting / each,
                stopping / each
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: starts ROUNDS");
    ExitCode::from(2)
}

fn start_and_stop(rounds: u32) -> Result<Report, String> {
    let dir = TempDir::new("starts").map_err(|error| error.to_string())?;
    run(dir.path(), rounds)
}
