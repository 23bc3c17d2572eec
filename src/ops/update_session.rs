//! What is known about a session changes.

use super::found;
use super::{Effect, Kind, NotApplied, Place, entry};
use crate::model::ledger::Made;
use crate::model::session::{Change, Malformed};
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};

/// What is to be different, all of it at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateSession {
    changes: Vec<Change>,
}

/// How it stands in the history, version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionUpdated {
    /// What was made different, in order.
    pub changes: Vec<Change>,
}

impl SessionUpdated {
    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        let Some(mut details) = store::sessions::details(tx, place.log)? else { return Ok(()) };
        for change in &self.changes {
            let title = details.change(change).map_err(|error| {
                StoreError::Corrupt(format!("a change in the history: {error}"))
            })?;
            if let Some(title) = title {
                store::sessions::rename(tx, place.log, &title)?;
            }
        }
        store::sessions::set_details(tx, place.log, &details)
    }
}

impl UpdateSession {
    /// Changes that make sense.
    pub fn new(changes: Vec<Change>) -> Result<Self, Malformed> {
        changes.iter().try_for_each(Change::check)?;
        Ok(Self { changes })
    }

    pub(super) fn apply(&self, tx: &Tx<'_>, place: Place) -> Result<Effect<'static>, NotApplied> {
        let Some(mut details) = store::sessions::details(tx, place.log)? else {
            return Err(found::Error::SessionNotFound.into());
        };
        for change in &self.changes {
            details.change(change)?;
        }
        let updated = SessionUpdated { changes: self.changes.clone() };
        updated.project(tx, place)?;
        Ok(Effect::new(Made::Nothing, entry(Kind::UpdateSession, 1, &updated)?))
    }
}
