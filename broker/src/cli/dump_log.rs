//! `walser dump-log`: what stands in the files of a partition directory, ours or Kafka's.
//!
//! ```text
//! .log        record batches, then perhaps preallocated zeros
//! .index      { offset relative to the file's name 4 | position in the .log 4 }, ascending, then perhaps zeros
//! .timeindex  { timestamp 8 | relative offset 4 }, ascending, then perhaps zeros
//! .txnindex   { version 2 | producer id 8 | first offset 8 | last offset 8 | last stable offset 8 }
//! .snapshot   version 2 | CRC-32C of what follows 4 | count 4 | { producer id 8 | epoch 2 | last sequence 4 |
//!             last offset 8 | offset delta 4 | timestamp 8 | coordinator epoch 4 | first offset of the open transaction 8 }
//! ```

mod batches;
mod index;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::error::CliError;
use super::output::red;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The name's ending says what a file holds: .log, .index, .timeindex, .txnindex or .snapshot.
Exits with 1 when a CRC, a length or the order of a file is wrong; everything that can be read is printed all the same.

Examples:
  walser dump-log walser-data/orders-0/00000000000000000000.log
  walser dump-log --records --json walser-data/orders-0/*.log")]
pub struct Args {
    /// Files to read
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print the records inside the batches, too
    #[arg(short, long)]
    records: bool,
    /// Print JSON, one object per batch, record or entry and line
    #[arg(long)]
    json: bool,
}

/// How a dump prints, and how much it has found wrong.
struct Dump<'a, W: Write> {
    out: &'a mut W,
    json: bool,
    records: bool,
    /// The file being read, as it was named.
    file: String,
    damage_count: usize,
}

impl<W: Write> Dump<'_, W> {
    /// A fault goes to standard error, after what was read before it.
    fn damage(&mut self, position: u64, what: &str) -> Result<(), CliError> {
        self.damage_count += 1;
        self.out.flush()?;
        eprintln!("{} {} at position {position}: {what}", red("damaged:"), self.file);
        Ok(())
    }

    fn line(&mut self, json: &serde_json::Value, text: impl FnOnce() -> String) -> Result<(), CliError> {
        if self.json {
            writeln!(self.out, "{json}")?;
        } else {
            writeln!(self.out, "{}", text())?;
        }
        Ok(())
    }
}

pub fn run(args: &Args) -> Result<(), CliError> {
    let mut out = BufWriter::with_capacity(64 * 1024, std::io::stdout().lock());
    let mut damage_count = 0;
    for path in &args.files {
        let mut dump = Dump {
            out: &mut out,
            json: args.json,
            records: args.records,
            file: path.display().to_string(),
            damage_count: 0,
        };
        if args.files.len() > 1 && !args.json {
            writeln!(dump.out, "{}:", path.display())?;
        }
        dump_file(path, &mut dump)?;
        damage_count += dump.damage_count;
    }
    out.flush()?;
    if damage_count == 0 { Ok(()) } else { Err(CliError::Damaged { count: damage_count }) }
}

fn dump_file<W: Write>(path: &Path, dump: &mut Dump<'_, W>) -> Result<(), CliError> {
    // Kafka renames what it is about to delete, replace or clean.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name =
        [".deleted", ".cleaned", ".swap"].iter().fold(&*name, |name, end| name.strip_suffix(end).unwrap_or(name));
    let (stem, ending) = name.rsplit_once('.').unwrap_or((name, ""));
    let read_error = |source| CliError::Read { path: path.display().to_string(), source };
    let base_offset = stem.parse::<i64>().ok();
    let named = || {
        let reason = format!("{}: a name that is no offset does not say where it begins", path.display());
        base_offset.ok_or(CliError::Usage(reason))
    };
    let file = open(path).map_err(read_error)?;
    match ending {
        "log" | "checkpoint" => batches::dump(file, dump).map_err(|error| with_path(error, path)),
        "index" => index::dump_offsets(file, named()?, dump).map_err(|error| with_path(error, path)),
        "timeindex" => index::dump_times(file, named()?, dump).map_err(|error| with_path(error, path)),
        "txnindex" => index::dump_transactions(file, dump).map_err(|error| with_path(error, path)),
        "snapshot" => index::dump_producers(file, dump).map_err(|error| with_path(error, path)),
        _ => Err(CliError::Usage(format!(
            "{}: not a .log, .index, .timeindex, .txnindex or .snapshot file",
            path.display()
        ))),
    }
}

#[expect(clippy::disallowed_methods, reason = "a command line tool reads files of any broker, outside of a shard")]
fn open(path: &Path) -> std::io::Result<File> {
    File::open(path)
}

/// Names the file in an error that could not.
fn with_path(error: CliError, path: &Path) -> CliError {
    let CliError::Read { source, .. } = error else { return error };
    CliError::Read { path: path.display().to_string(), source }
}

#[cfg(test)]
mod tests;
