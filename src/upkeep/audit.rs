//! The audit trail: writing down what was gathered, letting go of what is old, and checking the chain.

use super::{UpkeepError, database};
use crate::engine::{Engine, Refusal};
use crate::limits::{AUDIT_PRUNE_STEP, Limits, NOTES_EVERY_MS};
use crate::model::audit::{Entry, GENESIS, Hash, Kind};
use crate::model::page::{Page, Paged};
use crate::queries::{QueryError, Readers};
pub use crate::store::audit::{Filter, Head, Told};
use crate::store::check::Findings;
use crate::store::scratch::Scratch;
use crate::store::{self, Read, StoreError};
use std::path::Path;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// Writes down every [`NOTES_EVERY_MS`] what was refused and read, for as long as it is polled.
pub async fn keep_noting(engine: Engine) {
    let mut ticks = tokio::time::interval(Duration::from_millis(NOTES_EVERY_MS));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(refusal) = engine.write_notes().await {
            tracing::warn!(%refusal, "refusals and reads could not be written down yet");
        }
    }
}

/// Why letting go stopped; what is gone is gone, and the next time goes on.
#[derive(Debug, thiserror::Error)]
pub enum PruneError {
    /// The store cannot be read.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The engine takes no work.
    #[error(transparent)]
    Engine(#[from] Refusal),
}

/// Lets go of entries by the policy that is set, step by step; how many.
pub(super) async fn prune(
    engine: &Engine,
    readers: &Readers,
    limits: &Limits,
    now_ms: u64,
) -> Result<u64, PruneError> {
    let bound = |max: u64| Some(max).filter(|max| *max > 0);
    let before_ms = bound(limits.audit_age_ms_max).map(|age_ms| now_ms.saturating_sub(age_ms));
    let entries_max = bound(limits.audit_entries_max);
    let mut gone = 0;
    while let Some((oldest, through)) = readers.prunable(before_ms, entries_max).await? {
        let step = through.min(oldest + AUDIT_PRUNE_STEP - 1);
        engine.prune(step).answer().await?;
        gone += step + 1 - oldest;
        if step == through {
            break;
        }
    }
    Ok(gone)
}

/// A page of the audit trail of a data directory, and its newest entry; a server may be using it.
pub fn look(data: &Path, filter: &Filter, page: Page) -> Result<(Paged<Told>, Head), UpkeepError> {
    let path = database(data)?;
    let look = || {
        let mut scratch = Scratch::open(&path)?;
        let look = scratch.look()?;
        Ok((store::audit::page(&look, None, filter, page)?, store::audit::head(&look)?))
    };
    look().map_err(|error| UpkeepError::Store { path: path.clone(), error })
}

/// What checking the trail came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Entries looked at.
    pub entries: u64,
    /// The oldest there is.
    pub oldest: u64,
    /// The newest.
    pub head: Head,
    /// What is wrong.
    pub problems: Vec<String>,
}

/// An entry somebody wrote down elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// Its number.
    pub number: u64,
    /// Its hash, or the beginning of it, in hexadecimal.
    pub hash: String,
}

/// Checks the trail of a data directory, and that it still holds what somebody wrote down; a server may be
/// using it.
pub fn verify(data: &Path, expected: &[Expected]) -> Result<Verified, UpkeepError> {
    let path = database(data)?;
    let check = || {
        let mut scratch = Scratch::open(&path)?;
        let look = scratch.look()?;
        let mut found = chain(&look)?;
        for Expected { number, hash } in expected {
            match store::audit::hash_at(&look, *number)? {
                None if *number < store::audit::oldest(&look)? => found.problems.push(format!(
                    "entry {number}, which you expect, was let go of by policy; expect a newer one"
                )),
                None => found.problems.push(format!(
                    "entry {number}, which you expect, is not there: the trail was made anew"
                )),
                Some(is) if !hex(&is).starts_with(&hash.to_ascii_lowercase()) => {
                    found.problems.push(format!(
                        "entry {number} has another hash than you expect: the trail was made anew"
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(Verified {
            entries: found.looked_at,
            oldest: store::audit::oldest(&look)?,
            head: store::audit::head(&look)?,
            problems: found.problems,
        })
    };
    check().map_err(|error| UpkeepError::Store { path: path.clone(), error })
}

/// A hash for people.
pub fn hex(hash: &Hash) -> String {
    data_encoding::HEXLOWER.encode(hash)
}

/// Whether every entry is chained to the one before it, and every op stands in one, as it was.
pub(super) fn chain(read: &Read<'_>) -> Result<Findings, StoreError> {
    let mut found = Findings::default();
    let mut walk = Walk::begin(read, &mut found.problems)?;
    store::audit::each(read, |number, entry, hash| {
        found.looked_at += 1;
        walk.step(read, number, &entry, hash, &mut found.problems)
    })?;
    let last = store::ops::last_position(read)?;
    if found.looked_at == 0 && store::meta::get(read)?.is_some() {
        found.problems.push("audit: there is not one entry, though a server has run here".into());
    }
    if let Some(covered) = walk.covered.filter(|covered| *covered != last) {
        found.problems.push(format!(
            "ops: the history ends at position {last}, but the audit trail tells of {covered}"
        ));
    }
    Ok(found)
}

/// How far the chain was walked.
struct Walk {
    next: u64,
    before: Hash,
    at_ms: u64,
    /// Ops up to here stand in an entry, or are older than the trail.
    covered: Option<u64>,
}

impl Walk {
    fn begin(read: &Read<'_>, problems: &mut Vec<String>) -> Result<Self, StoreError> {
        let oldest = store::audit::oldest(read)?;
        let mut walk = Self { next: oldest, before: GENESIS, at_ms: 0, covered: None };
        if oldest == 1 {
            return Ok(walk);
        }
        // The last entry that tells of letting go says how the chain begins now.
        match store::audit::last_pruned(read)? {
            Some(pruned) if pruned.count.saturating_add(1) == oldest => {
                walk.before = pruned.digest.try_into().unwrap_or(GENESIS);
                walk.covered = Some(pruned.position);
            }
            _ => {
                problems.push(format!(
                    "audit: the entries before {oldest} are gone, and none says why"
                ));
                walk.before = store::audit::hash_at(read, oldest)?.unwrap_or(GENESIS);
            }
        }
        Ok(walk)
    }

    fn step(
        &mut self,
        read: &Read<'_>,
        number: u64,
        entry: &Entry,
        hash: Hash,
        problems: &mut Vec<String>,
    ) -> Result<(), StoreError> {
        if number != self.next {
            let last = number.saturating_sub(1);
            problems.push(format!("audit: entries {} to {last} are missing", self.next));
        }
        if entry.hash(number, &self.before) != hash {
            problems.push(format!("audit: entry {number} or the one before it was changed"));
        }
        if entry.at_ms < self.at_ms {
            problems.push(format!("audit: entry {number} is older than the one before it"));
        }
        (self.next, self.before, self.at_ms) = (number.saturating_add(1), hash, entry.at_ms);
        if entry.kind == Kind::Started as u16 && number == 1 {
            self.covered = Some(entry.position);
        }
        if entry.kind == Kind::Pruned as u16 || entry.digest.is_empty() {
            return Ok(());
        }
        let last = entry.position.saturating_add(entry.count).saturating_sub(1);
        if self.covered.is_some_and(|covered| covered.saturating_add(1) != entry.position) {
            problems.push(format!(
                "ops: entry {number} begins at position {}, which does not follow on the one before it",
                entry.position
            ));
        }
        self.covered = Some(last);
        let ops = store::audit::ops_between(read, entry.position, last)?;
        // What was compacted cannot be compared; that nothing else is missing, the density of logs tells.
        if ops.count() == entry.count && ops.digest().as_slice() != entry.digest {
            problems.push(format!(
                "ops: those from position {} to {last} are not what entry {number} says they were",
                entry.position
            ));
        }
        Ok(())
    }
}
