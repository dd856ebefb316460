//! `differential --oracle HOST:PORT --broker HOST:PORT [--seed N] [--count N] [--log FILE] [--only KEY,KEY] [--idle-masks-allowed]`
//!
//! Sends the same generated requests to Apache Kafka and to the broker under test. Prints one line for each API key, `ok` or
//! `FAIL` with what differed first, then the masks with their hits, and whether every version that
//! is served was asked for; the exit code says whether all was well.

use std::error::Error;
use std::process::ExitCode;

use walser_protocol::ApiKey;
use walser_tests::differential::run::Differential;

struct Arguments {
    oracle: String,
    broker: String,
    seed: u64,
    count: u64,
    log: Option<String>,
    /// Names of keys; none: all.
    only: Vec<String>,
    /// Two brokers of one kind need few masks.
    idle_masks_allowed: bool,
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut found = Arguments {
        oracle: String::new(),
        broker: String::new(),
        seed: 1,
        count: 6000,
        log: None,
        only: Vec::new(),
        idle_masks_allowed: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--idle-masks-allowed" {
            found.idle_masks_allowed = true;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{word} wants a value"))?;
        match word.as_str() {
            "--oracle" => found.oracle = value,
            "--broker" => found.broker = value,
            "--seed" => found.seed = value.parse()?,
            "--count" => found.count = value.parse()?,
            "--only" => found.only = value.split(',').map(str::to_owned).collect(),
            "--log" => found.log = Some(value),
            _ => return Err(format!("what is {word}?").into()),
        }
    }
    if found.oracle.is_empty() || found.broker.is_empty() {
        return Err("--oracle and --broker are needed".into());
    }
    Ok(found)
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = arguments()?;
    let mut run = Differential::new([arguments.oracle, arguments.broker])?;
    run.only = ApiKey::ALL.iter().copied().filter(|key| arguments.only.iter().any(|name| name == key.name())).collect();
    let beside = arguments.log.as_ref().map(|path| format!("{path}.ballast"));
    run.ballast = beside.as_ref().map(std::fs::File::create).transpose()?;
    let ended = run.run(arguments.seed, arguments.count);
    beside.map(std::fs::remove_file).transpose()?;
    if let Some(path) = arguments.log {
        std::fs::write(path, &run.log)?;
    }
    let mut failed = false;
    for (name, tally) in &run.tallies {
        if tally.differing == 0 {
            println!("ok {name}");
        } else {
            failed = true;
            println!(
                "FAIL {name}: {} of {} differ (oracle / tested); {}",
                tally.differing,
                tally.requests,
                tally.first.join(" | ")
            );
        }
    }
    for (name, tally) in &run.tallies {
        println!("  {name}: {} requests in {:.1} s", tally.requests, tally.spent.as_secs_f64());
    }
    for mask in &run.masks {
        println!("  mask {} {:?}: {} hits: {}", mask.path, mask.kind, mask.hits, mask.reason);
    }
    let idle: Vec<_> =
        run.masks.iter().filter(|mask| mask.hits == 0).map(|mask| format!("{} {:?}", mask.path, mask.kind)).collect();
    if idle.is_empty() || arguments.idle_masks_allowed {
        println!("ok masks");
    } else {
        failed = true;
        println!("FAIL masks: never needed: {}", idle.join(", "));
    }
    let never_asked = run.never_asked();
    if never_asked.is_empty() {
        println!("ok versions");
    } else {
        failed = true;
        println!("FAIL versions: never asked for: {}", never_asked.join(", "));
    }
    ended?;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
