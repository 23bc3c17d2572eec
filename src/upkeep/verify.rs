//! Whether a database keeps the promises: whole, dense, without orphans, and its projections the ones the
//! history gives.

use super::{Replayed, UpkeepError, audit, database, replay};
use crate::store::check::{self, Findings};
use crate::store::scratch::{self, PROJECTIONS, Scratch};
use crate::store::{StoreError, Tx};
use std::path::Path;

/// Problems that are told in words, per check; the rest is counted.
const SHOWN_MAX: usize = 20;

/// What one check came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Its name.
    pub name: &'static str,
    /// What it asks.
    pub asks: &'static str,
    /// How many rows (or pages) it looked at.
    pub looked_at: u64,
    /// What is wrong, the first few.
    pub problems: Vec<String>,
    /// How much is wrong altogether.
    pub problem_count: u64,
}

/// How far the work is, for whoever waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A check begins.
    Check(&'static str),
    /// Ops replayed so far, of all there are.
    Replayed(u64, u64),
}

type Ask = fn(&Tx<'_>) -> Result<Findings, StoreError>;

/// The checks that are questions to the rows.
const QUESTIONS: [(&str, &str, Ask); 8] = [
    ("integrity", "is the file whole", |tx| check::integrity(tx)),
    ("orphans", "does every row find the rows it names", |tx| check::orphans(tx)),
    ("density", "is every log without gaps from its floor to its head", |tx| check::density(tx)),
    ("producers", "is every number decided once", |tx| check::producers(tx)),
    ("grants", "is every grant as it was made, with no more than the one above it", |tx| {
        check::grants(tx)
    }),
    ("counters", "is what was counted what there is", |tx| check::counters(tx)),
    ("audit", "is the audit trail whole, and does it tell of every op", |tx| audit::chain(tx)),
    ("results", "is every unacknowledged result kept, and true", |tx| check::receipts(tx)),
];

/// Checks a data directory; a server may be using it.
pub fn verify(data: &Path, tell: impl FnMut(Step)) -> Result<Vec<Checked>, UpkeepError> {
    let path = database(data)?;
    check_all(&path, tell).map_err(|error| UpkeepError::Store { path, error })
}

fn check_all(path: &Path, mut tell: impl FnMut(Step)) -> Result<Vec<Checked>, StoreError> {
    let mut scratch = Scratch::open(path)?;
    let look = scratch.look()?;
    let mut checked = Vec::new();
    for (name, asks, ask) in QUESTIONS {
        tell(Step::Check(name));
        let mut findings = match ask(&look) {
            // Damage that stands in the way of the question is an answer to it.
            Err(StoreError::Corrupt(why)) => Findings { looked_at: 0, problems: vec![why] },
            answered => answered?,
        };
        let problem_count = findings.problems.len() as u64;
        findings.problems.truncate(SHOWN_MAX);
        let Findings { looked_at, problems } = findings;
        checked.push(Checked { name, asks, looked_at, problems, problem_count });
    }
    tell(Step::Check("projections"));
    let (projections, grants) = projections(&look, &mut tell)?;
    // The same walk through the history tells what grants should be.
    if let Some(check) = checked.iter_mut().find(|check| check.name == "grants") {
        check.problem_count += grants.len() as u64;
        let room = SHOWN_MAX.saturating_sub(check.problems.len());
        check.problems.extend(grants.into_iter().take(room));
    }
    checked.push(projections);
    Ok(checked)
}

/// Whether the projections are, row for row, those the history gives; and what it says of grants that is not
/// so.
fn projections(
    look: &Tx<'_>,
    tell: &mut impl FnMut(Step),
) -> Result<(Checked, Vec<String>), StoreError> {
    let all = scratch::count(look, "ops")?;
    scratch::begin_projections(look)?;
    let mut checked = Checked {
        name: "projections",
        asks: "does the history give the stored rows again",
        looked_at: 0,
        problems: Vec::new(),
        problem_count: 0,
    };
    let mut grants = Vec::new();
    match replay(look, |done| tell(Step::Replayed(done, all))) {
        Ok(Replayed { ops, mut odd, grants: told, made }) => {
            grants = told;
            grants.extend(check::unmade_grants(look, |grant| made.contains(&grant))?);
            checked.looked_at = ops;
            checked.problem_count = odd.len() as u64;
            odd.truncate(SHOWN_MAX);
            checked.problems = odd;
        }
        // A history that cannot be replayed is a finding, not a failure of the check.
        Err(StoreError::Corrupt(why)) => {
            checked.problems.push(why);
            checked.problem_count = 1;
            return Ok((checked, grants));
        }
        Err(error) => return Err(error),
    }
    for table in PROJECTIONS {
        let room = SHOWN_MAX.saturating_sub(checked.problems.len());
        let (problems, count) = scratch::differences(look, table, room)?;
        checked.problems.extend(problems);
        checked.problem_count += count;
    }
    Ok((checked, grants))
}
