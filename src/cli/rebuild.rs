//! `bowline rebuild`

use super::upkeep::{Directory, Progress, count, failed};
use crate::clock::{Clock, SystemClock};
use crate::upkeep::rebuild::rebuild;
use clap::Args;
use std::io::{self, Write};
use std::process::ExitCode;

/// Make everything that follows from the history anew
///
/// Projects, sessions and messages are rows derived from the log of ops. This drops them and makes them
/// again, in one transaction: if it is interrupted, everything is as before. The server must be stopped.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  bowline rebuild
  bowline rebuild --data ./data --json && bowline verify --data ./data

Ends with 3 if a server is using the data directory.")]
pub(super) struct Rebuild {
    #[command(flatten)]
    directory: Directory,
}

impl Rebuild {
    pub(super) fn run(self) -> ExitCode {
        let settings = match self.directory.settings(Vec::new()) {
            Ok(settings) => settings,
            Err(code) => return code,
        };
        let progress = Progress::new();
        let rebuilt = rebuild(&settings.data, SystemClock.now_ms(), |step| progress.tell(step));
        drop(progress);
        let rebuilt = match rebuilt {
            Ok(rebuilt) => rebuilt,
            Err(error) => return failed(&error),
        };
        let mut out = io::stdout().lock();
        let _ = match self.directory.json {
            true => {
                writeln!(out, "{}", serde_json::json!({ "ops": rebuilt.ops, "rows": rebuilt.rows }))
            }
            false => writeln!(
                out,
                "made {} rows anew from {} ops",
                count(rebuilt.rows),
                count(rebuilt.ops)
            ),
        };
        ExitCode::SUCCESS
    }
}
