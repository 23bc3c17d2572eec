//! People's door: one file per command. Data goes to stdout, talk to stderr.

mod audit;
mod compact;
mod exchange;
mod logging;
mod rebuild;
mod serve;
mod upkeep;
mod verify;

use clap::{Parser, Subcommand};
use std::io::{self, Write};
use std::process::ExitCode;

/// A capability-RPC server for agent work
///
/// Sessions live behind capabilities: what was acknowledged holds through crashes, lost connections and
/// retries.
#[derive(Debug, Parser)]
#[command(name = "bowline", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Serve),
    Verify(verify::Verify),
    Rebuild(rebuild::Rebuild),
    Compact(compact::Compact),
    Audit(audit::Audit),
    Export(exchange::export::Export),
    Import(exchange::import::Import),
}

impl Cli {
    /// Does what was asked for.
    pub fn run(self) -> ExitCode {
        match self.command {
            Command::Serve(serve) => serve.run(),
            Command::Verify(verify) => verify.run(),
            Command::Rebuild(rebuild) => rebuild.run(),
            Command::Compact(compact) => compact.run(),
            Command::Audit(audit) => audit.run(),
            Command::Export(export) => export.run(),
            Command::Import(import) => import.run(),
        }
    }
}

/// Says on stderr what went wrong.
fn complain(code: u8, why: impl std::fmt::Display) -> ExitCode {
    let _ = writeln!(io::stderr(), "bowline: {why}");
    ExitCode::from(code)
}

/// Exit codes, as `docs/operating.md` lists them.
mod exit {
    /// Something went wrong; stderr says what.
    pub(super) const FAILED: u8 = 1;
    /// Flags, environment or settings file cannot be understood.
    pub(super) const USAGE: u8 = 2;
    /// Another server holds the data directory.
    pub(super) const HELD: u8 = 3;
    /// `verify` has found something wrong, or `import` something that it could not take.
    pub(super) const PROBLEMS: u8 = 4;
}
