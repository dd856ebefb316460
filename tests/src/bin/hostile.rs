//! Attacks a broker over loopback while an honest client uses it.
//!
//! `hostile short|long [SEED [ATTACK]]`: `short` takes a minute or so and gives no verdict on time; `long` does, and stays
//! at each attack for as long as it takes to see. The broker is the one `WALSER_BIN` names, or the one built beside this.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use walser_tests::hostile::{Plan, run};
use walser_tests::process::TempDir;

const USAGE: &str = "usage: hostile short|long [SEED [ATTACK]]";
const SHORT: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(2));
const LONG: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(45));

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (length, seed, only) = match arguments.as_slice() {
        [length] => (length, Ok(1), None),
        [length, seed] => (length, seed.parse(), None),
        [length, seed, only] => (length, seed.parse(), Some(only.clone())),
        _ => return usage(),
    };
    let ((calm, attack), Ok(seed)) = (if length == "long" { LONG } else { SHORT }, seed) else { return usage() };
    if !matches!(length.as_str(), "short" | "long") {
        return usage();
    }
    let is_long = length == "long";
    match raise_descriptors().and_then(|()| TempDir::new("hostile")) {
        Ok(dir) => report(dir, Plan { data_dir: PathBuf::new(), seed, calm, attack, is_long, only }),
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

/// An attacker of ten thousand connections needs as many descriptors.
fn raise_descriptors() -> std::io::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?)
}

fn report(dir: TempDir, plan: Plan) -> ExitCode {
    match run(&Plan { data_dir: dir.path().to_owned(), ..plan }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failures) => {
            eprintln!("{failures}\nkept: {}", dir.path().display());
            std::mem::forget(dir);
            ExitCode::FAILURE
        }
    }
}
