//! Rounds of producing until the broker dies, starting it again and checking what it acknowledged.
//!
//! `crash-rounds ROUNDS SEED kill|cut|ignored`: kill -9; kill -9 with a power cut on a file system that keeps only what was
//! flushed; the same with flushes that do nothing, which has to be caught. The broker is the one `WALSER_BIN` names.

use std::process::ExitCode;

use walser_tests::crash::rounds::{Death, Plan, run};
use walser_tests::lossy_fs::LossyFs;
use walser_tests::lossy_fs::store::Flushes;
use walser_tests::process::TempDir;

const USAGE: &str = "usage: crash-rounds ROUNDS SEED kill|cut|ignored";
/// Many rolls in a short time.
const SETTINGS: &[(&str, &str)] = &[("log.segment.bytes", "1048576")];
const ROUND_MS_MAX: u64 = 1500;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [rounds, seed, death] => match (rounds.parse(), seed.parse(), death.as_str()) {
            (Ok(rounds), Ok(seed), "kill") => report(kill(rounds, seed)),
            (Ok(rounds), Ok(seed), "cut") => report(cut(rounds, seed, Flushes::Honest)),
            (Ok(rounds), Ok(seed), "ignored") => match cut(rounds, seed, Flushes::Ignored) {
                Ok(()) => report(Err("a disk that keeps nothing was not noticed".to_owned())),
                Err(caught) => {
                    println!("caught: {caught}");
                    ExitCode::SUCCESS
                }
            },
            _ => usage(),
        },
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

fn report(outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn kill(rounds: u32, seed: u64) -> Result<(), String> {
    let dir = TempDir::new("crash-kill").map_err(|error| error.to_string())?;
    let death = Death::Killed;
    let plan = Plan { data_dir: dir.path(), rounds, seed, death, settings: SETTINGS, round_ms_max: ROUND_MS_MAX };
    run(&plan).map(drop)
}

fn cut(rounds: u32, seed: u64, flushes: Flushes) -> Result<(), String> {
    let dir = TempDir::new("crash-cut").map_err(|error| error.to_string())?;
    let lossy = LossyFs::mount(dir.path()).map_err(|error| format!("FUSE: {error}"))?;
    let data_dir = lossy.mountpoint().join("data");
    let death = Death::PowerCut(&lossy, flushes);
    let plan = Plan { data_dir: &data_dir, rounds, seed, death, settings: SETTINGS, round_ms_max: ROUND_MS_MAX };
    run(&plan).map(drop)
}
