//! `compaction --oracle HOST:PORT=DATA-DIR --broker HOST:PORT=DATA-DIR [--seed N] [--only CASE]`
//!
//! Writes the same histories to Apache Kafka and to the broker under test, has both compact them, and compares what is
//! left. Prints one line for each case, `ok` or `FAIL` with the first difference. Both want a small
//! `log.cleaner.backoff.ms`, and one of `log.cleaner.dedupe.buffer.size` makes several passes necessary.

use std::process::ExitCode;

use walser_tests::compaction::{Place, cases, run};

struct Arguments {
    places: [Place; 2],
    seed: u64,
    only: Option<String>,
}

fn arguments() -> Option<Arguments> {
    let (mut oracle, mut broker, mut seed, mut only) = (None, None, 1, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next()?;
        let place = || {
            let (address, data_dir) = value.split_once('=')?;
            Some(Place { address: address.to_owned(), data_dir: data_dir.into() })
        };
        match word.as_str() {
            "--oracle" => oracle = Some(place()?),
            "--broker" => broker = Some(place()?),
            "--seed" => seed = value.parse().ok()?,
            "--only" => only = Some(value),
            _ => return None,
        }
    }
    Some(Arguments { places: [oracle?, broker?], seed, only })
}

fn main() -> ExitCode {
    let Some(Arguments { places, seed, only }) = arguments() else {
        eprintln!("usage: compaction --oracle HOST:PORT=DATA-DIR --broker HOST:PORT=DATA-DIR [--seed N] [--only CASE]");
        return ExitCode::from(2);
    };
    let mut code = ExitCode::SUCCESS;
    for case in cases().into_iter().filter(|case| only.as_deref().is_none_or(|only| only == *case)) {
        match run(case, &places, seed) {
            Ok(report) => {
                println!("ok {case}");
                eprintln!("{case}: {} records written, {} left", report.written, report.left);
            }
            Err(error) => {
                println!("FAIL {case}: {error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}
