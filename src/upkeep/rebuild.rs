//! Making the projections anew from the history.

use super::verify::Step;
use super::{UpkeepError, hold, replay};
use crate::store::{Store, StoreError, logs, scratch};
use std::path::Path;

/// What was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rebuilt {
    /// Ops replayed.
    pub ops: u64,
    /// Rows written.
    pub rows: u64,
}

/// Writes every projection of a data directory anew, in one transaction: a crash in the middle leaves what
/// was there. No server may be using it.
pub fn rebuild(data: &Path, now_ms: u64, tell: impl FnMut(Step)) -> Result<Rebuilt, UpkeepError> {
    let (_held, path, mut store) = hold(data, now_ms)?;
    write_anew(&mut store, tell).map_err(|error| UpkeepError::Store { path, error })
}

fn write_anew(store: &mut Store, mut tell: impl FnMut(Step)) -> Result<Rebuilt, StoreError> {
    let tx = store.begin()?;
    let all = scratch::count(&tx, "ops")?;
    tell(Step::Check("projections"));
    scratch::clear_projections(&tx)?;
    let ops = replay(&tx, |done| tell(Step::Replayed(done, all)))?.ops;
    logs::recount(&tx)?;
    let mut rows = 0;
    for table in scratch::PROJECTIONS {
        rows += scratch::count(&tx, table)?;
    }
    tx.commit()?;
    Ok(Rebuilt { ops, rows })
}
