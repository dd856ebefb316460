//! Rounds of producing until the broker dies, starting it again and checking what it acknowledged.
//!
//! `crash-rounds ROUNDS SEED kill|cut|ignored [many]`: kill -9; kill -9 with a power cut on a file system that keeps only what
//! was flushed; the same with flushes that do nothing, which has to be caught. With `many`, 200 partitions with records of all
//! sizes, most of them under retention or compaction. The broker is the one `WALSER_BIN` names.

use std::path::Path;
use std::process::ExitCode;

use walser_tests::crash::plans::{BUSY_CLEANUP, FEW, MANY, SMALL_SEGMENTS};
use walser_tests::crash::rounds::{Death, Plan, run};
use walser_tests::lossy_fs::LossyFs;
use walser_tests::lossy_fs::store::Flushes;
use walser_tests::process::TempDir;

const USAGE: &str = "usage: crash-rounds ROUNDS SEED kill|cut|ignored [many]";
const ROUND_MS_MAX: u64 = 1500;
/// So many producers need longer to get going.
const ROUND_MS_MAX_MANY: u64 = 4000;

/// What was asked for.
#[derive(Clone, Copy)]
struct Wish {
    rounds: u32,
    seed: u64,
    has_many: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((wish, death)) = parse(&arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let outcome = match death {
        "kill" => kill(wish),
        "cut" => cut(wish, Flushes::Honest),
        _ => match cut(wish, Flushes::Ignored) {
            Ok(()) => Err("a disk that keeps nothing was not noticed".to_owned()),
            Err(caught) => {
                println!("caught: {caught}");
                Ok(())
            }
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Option<(Wish, &str)> {
    let (required, has_many) = match arguments {
        [required @ .., last] if last == "many" => (required, true),
        required => (required, false),
    };
    let [rounds, seed, death] = required else { return None };
    let is_known = ["kill", "cut", "ignored"].contains(&death.as_str());
    is_known.then_some((Wish { rounds: rounds.parse().ok()?, seed: seed.parse().ok()?, has_many }, death))
}

fn kill(wish: Wish) -> Result<(), String> {
    let dir = TempDir::new("crash-kill").map_err(|error| error.to_string())?;
    run(&plan(wish, dir.path(), Death::Killed)).map(drop)
}

fn cut(wish: Wish, flushes: Flushes) -> Result<(), String> {
    let dir = TempDir::new("crash-cut").map_err(|error| error.to_string())?;
    let lossy = LossyFs::mount(dir.path()).map_err(|error| format!("FUSE: {error}"))?;
    let data_dir = lossy.mountpoint().join("data");
    run(&plan(wish, &data_dir, Death::PowerCut(&lossy, flushes))).map(drop)
}

fn plan<'a>(wish: Wish, data_dir: &'a Path, death: Death<'a>) -> Plan<'a> {
    let Wish { rounds, seed, has_many } = wish;
    let (loads, settings, round_ms_max) =
        if has_many { (MANY, BUSY_CLEANUP, ROUND_MS_MAX_MANY) } else { (FEW, SMALL_SEGMENTS, ROUND_MS_MAX) };
    Plan { data_dir, rounds, seed, death, loads, settings, round_ms_max }
}
