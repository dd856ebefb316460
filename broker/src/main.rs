//! The `walser` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    walser_broker::cli::run()
}
