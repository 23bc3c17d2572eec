//! Flags in, exit code out.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    bowline::cli::Cli::parse().run()
}
