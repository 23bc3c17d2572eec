//! A session gets a history policy of its own.

use super::{Effect, Kind, NotApplied, Place, entry_replacing};
use crate::model::history::HistoryWish;
use crate::model::ledger::Made;
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};

/// What somebody wants kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetHistory(pub HistoryWish);

/// How it stands in the history, version 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistorySet(pub HistoryWish);

impl HistorySet {
    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        store::sessions::set_history(tx, place.log, self.0, place.cursor)
    }
}

impl SetHistory {
    pub(super) fn apply(&self, tx: &Tx<'_>, place: Place) -> Result<Effect<'static>, NotApplied> {
        let (_, before) = store::sessions::set_at(tx, place.log)?.unwrap_or_default();
        let set = HistorySet(self.0);
        set.project(tx, place)?;
        let replaced = (before.0 > 0).then_some(before);
        let entry = entry_replacing(replaced, Kind::SetHistory, 1, &set)?;
        Ok(Effect::new(Made::Nothing, entry))
    }
}
