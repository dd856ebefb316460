//! The command line: `walser` alone is `walser start`.

pub mod check;
pub mod client;
pub mod consume;
pub mod dump_log;
pub mod error;
pub mod output;
pub mod produce;
pub mod start;
pub mod topic;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::error::CliError;

/// Exit codes, the same for every command.
pub mod exit {
    /// Failed while running.
    pub const FAILED: u8 = 1;
    /// Bad arguments or configuration.
    pub const USAGE: u8 = 2;
    /// The machine lacks something, or something is taken.
    pub const UNFIT: u8 = 3;
}

/// A Kafka-compatible log broker, and tools that talk to any Kafka-compatible broker.
///
/// Without a command it starts a broker in ./walser-data on 127.0.0.1:9092.
#[derive(Debug, Parser)]
#[command(name = "walser", version, max_term_width = 100, after_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    start: start::Args,
}

const AFTER_HELP: &str = "\
Exit codes: 0 fine, 1 failed while running, 2 bad arguments or configuration, 3 the machine lacks something or something \
is taken. Every command has a --help of its own.";

#[derive(Debug, Subcommand)]
enum Command {
    Start(start::Args),
    /// Create, list, describe, alter and delete topics
    Topic(topic::Args),
    /// Write records, from standard input or the command line
    Produce(produce::Args),
    /// Read records
    Consume(consume::Args),
    /// Print what stands in the files of a partition directory
    DumpLog(dump_log::Args),
    Check(check::Args),
}

/// Reads the arguments of the process and runs what they ask for.
pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { exit::USAGE } else { 0 };
            // A closed standard output is no reason to fail twice.
            error.print().ok();
            return ExitCode::from(code);
        }
    };
    match cli.command {
        Some(Command::Start(args)) => start::run(&args),
        Some(Command::Topic(args)) => finish(topic::run(&args)),
        Some(Command::Produce(args)) => finish(produce::run(&args)),
        Some(Command::Consume(args)) => finish(consume::run(&args)),
        Some(Command::DumpLog(args)) => finish(dump_log::run(&args)),
        Some(Command::Check(args)) => finish(check::run(&args)),
        None => start::run(&cli.start),
    }
}

/// The exit code of a tool, its error on standard error.
fn finish(result: Result<(), CliError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{} {error}", output::red("error:"));
            ExitCode::from(error.exit_code())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_fit_together() {
        // Rule: clap's own check of the declarations passes, and `walser` takes what `walser start` takes.
        use clap::CommandFactory;
        Cli::command().debug_assert();
        for line in [
            &["walser"][..],
            &["walser", "start"],
            &["walser", "topic", "create", "orders", "-p", "6", "-b", "localhost:1", "--json"],
            &["walser", "topic", "alter", "orders", "-s", "retention.ms=-1", "-d", "segment.bytes"],
            &["walser", "produce", "orders", "-k", "1", "-v", "2", "-z", "zstd", "--acks", "-1"],
            &["walser", "consume", "-t", "orders", "-p", "0,1", "-o", "-5", "-c", "3", "-e"],
            &["walser", "dump-log", "--records", "00000000000000000000.log"],
            &["walser", "check", "walser-data", "--repair", "--json"],
            &["walser", "--set", "walser.shards=1", "--set", "node.id=3"],
            &["walser", "start", "--config", "server.properties", "--data-dir", "/tmp/x", "--cpus", "0,2-3"],
        ] {
            assert!(Cli::try_parse_from(line).is_ok(), "{line:?}");
        }
        for line in [&["walser", "fly"][..], &["walser", "start", "--nonsense"], &["walser", "--set"]] {
            assert_eq!(Cli::try_parse_from(line).expect_err("refused").exit_code(), i32::from(exit::USAGE), "{line:?}");
        }
    }
}
