//! `bowline verify`

use super::exit;
use super::upkeep::{Directory, Progress, count, failed};
use crate::upkeep::verify::{Checked, verify};
use clap::Args;
use std::io::{self, Write};
use std::process::ExitCode;

/// Check that a data directory keeps the promises
///
/// Looks at the whole database: that the file is whole, that no log has a gap and no number was used twice,
/// that every unacknowledged result is kept, that no grant has more than the one above it, that no row lost
/// the one it belongs to, that the audit trail is whole and tells of every op, and that the history gives
/// every stored project, session, message and share again, row for row.
///
/// It only reads, and the server may go on meanwhile: one moment is checked.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  bowline verify
  bowline verify --data ./data --json

Ends with 0 if everything is as it must be, with 4 if something is not, and with 1 if it could not be
checked. If only `projections` and `counters` have problems, `bowline rebuild` mends them.")]
pub(super) struct Verify {
    #[command(flatten)]
    directory: Directory,
}

impl Verify {
    pub(super) fn run(self) -> ExitCode {
        let settings = match self.directory.settings(Vec::new()) {
            Ok(settings) => settings,
            Err(code) => return code,
        };
        let progress = Progress::new();
        let checked = verify(&settings.data, |step| progress.tell(step));
        drop(progress);
        let checked = match checked {
            Ok(checked) => checked,
            Err(error) => return failed(&error),
        };
        let fine = checked.iter().all(|check| check.problem_count == 0);
        let mut out = io::stdout().lock();
        // A reader that went away does not change what was found.
        let _ = match self.directory.json {
            true => report_json(&mut out, &checked, fine),
            false => report(&mut out, &checked, fine),
        };
        if fine { ExitCode::SUCCESS } else { ExitCode::from(exit::PROBLEMS) }
    }
}

fn report(out: &mut impl Write, checked: &[Checked], fine: bool) -> io::Result<()> {
    for check in checked {
        let verdict = match check.problem_count {
            0 => "ok".to_owned(),
            1 => "1 problem".to_owned(),
            problems => format!("{} problems", count(problems)),
        };
        let looked_at = count(check.looked_at).to_string();
        writeln!(out, "{:<12} {verdict:<12} {looked_at:>12}  {}", check.name, check.asks)?;
        for problem in &check.problems {
            writeln!(out, "    {problem}")?;
        }
        let untold = check.problem_count - check.problems.len() as u64;
        if untold > 0 {
            writeln!(out, "    … and {} more", count(untold))?;
        }
    }
    let mendable = ["projections", "counters"];
    let mendable =
        checked.iter().all(|check| check.problem_count == 0 || mendable.contains(&check.name));
    writeln!(
        out,
        "{}",
        match (fine, mendable) {
            (true, _) => "everything is as it must be",
            (false, true) => "the history is whole: `bowline rebuild` makes the rest anew",
            (false, false) => "the database is damaged: keep a copy of it, and restore a backup",
        }
    )
}

fn report_json(out: &mut impl Write, checked: &[Checked], fine: bool) -> io::Result<()> {
    let checks: Vec<_> = checked
        .iter()
        .map(|check| {
            serde_json::json!({
                "name": check.name,
                "lookedAt": check.looked_at,
                "problemCount": check.problem_count,
                "problems": check.problems,
            })
        })
        .collect();
    writeln!(out, "{}", serde_json::json!({ "ok": fine, "checks": checks }))
}
