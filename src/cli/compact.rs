//! `bowline compact`

use super::upkeep::{Directory, Progress, count, failed};
use crate::clock::SystemClock;
use crate::config::LimitOverride;
use crate::upkeep::compaction::{Compacted, compact_directory};
use crate::upkeep::verify::Step;
use clap::Args;
use indicatif::HumanBytes;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

/// Let history go that nobody needs, and shrink the database file
///
/// A running server does this by itself, but gives no room back to the file system. What goes is history
/// by the policy that is set (history_age_ms_max, history_bytes_max, and what single sessions wish): ops
/// whose effect a later op has replaced; and audit entries (audit_age_ms_max, audit_entries_max). What
/// messages say, titles, and results nobody acknowledged stay.
/// The server must be stopped.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  bowline compact
  bowline compact --limit history_age_ms_max=86400000
  bowline compact --data ./data --json

Ends with 3 if a server is using the data directory.")]
pub(super) struct Compact {
    #[command(flatten)]
    directory: Directory,

    /// Change a limit for this once; may be given several times. Give it those the server has
    #[arg(
        long = "limit",
        value_name = "NAME=VALUE",
        env = "BOWLINE_LIMITS",
        value_delimiter = ','
    )]
    limits: Vec<LimitOverride>,
}

impl Compact {
    pub(super) fn run(self) -> ExitCode {
        let settings = match self.directory.settings(self.limits.clone()) {
            Ok(settings) => settings,
            Err(code) => return code,
        };
        let progress = Progress::new();
        progress.tell(Step::Check("compacting"));
        let done = compact_directory(&settings.data, &settings.limits, Arc::new(SystemClock));
        drop(progress);
        let Compacted { swept, file_bytes: (before, after) } = match done {
            Ok(done) => done,
            Err(error) => return failed(&error),
        };
        let mut out = io::stdout().lock();
        let _ = match self.directory.json {
            true => writeln!(
                out,
                "{}",
                serde_json::json!({
                    "logs": swept.logs,
                    "logsCompacted": swept.compacted,
                    "opsFreed": swept.ops,
                    "payloadBytesFreed": swept.bytes,
                    "auditEntriesFreed": swept.audited,
                    "fileBytesBefore": before,
                    "fileBytesAfter": after,
                })
            ),
            false => writeln!(
                out,
                "{} of {} logs compacted: {} ops with {} and {} audit entries are gone; the file went from {} to {}",
                count(swept.compacted),
                count(swept.logs),
                count(swept.ops),
                HumanBytes(swept.bytes),
                count(swept.audited),
                HumanBytes(before),
                HumanBytes(after),
            ),
        };
        ExitCode::SUCCESS
    }
}
