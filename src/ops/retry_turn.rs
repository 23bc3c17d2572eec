//! A turn waits before it tries again.

use super::{Effect, Kind, NotApplied, Place, entry_replacing, found};
use crate::model::ids::{Cursor, TurnId};
use crate::model::ledger::Made;
use crate::model::turn::Retry;
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};

/// What somebody has to say about a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryTurn {
    /// Which.
    pub id: TurnId,
    /// What it waits for.
    pub retry: Retry,
}

/// How it stands in the history, version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnRetried {
    /// Its name in the session.
    pub id: TurnId,
    /// Where it was begun.
    pub cursor: Cursor,
    /// What it waits for.
    pub retry: Retry,
}

impl TurnRetried {
    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        store::turns::set_retry_at(tx, place.log, self.cursor, place.cursor)
    }

    /// The op whose effect is gone with this one.
    pub(super) fn replaces(
        &self,
        read: &store::Read<'_>,
        place: Place,
    ) -> Result<Option<Cursor>, StoreError> {
        let at = store::turns::retry_at(read, place.log, &self.id)?;
        Ok(Some(at).filter(|at| at.0 > 0))
    }
}

impl RetryTurn {
    pub(super) fn apply(&self, tx: &Tx<'_>, place: Place) -> Result<Effect<'static>, NotApplied> {
        let turn = found::running(tx, place.log, &self.id)?;
        // While it waits, nothing need be heard of it.
        let until_ms = turn.lease.until_ms(
            place
                .now_ms
                .max(self.retry.next_at_ms.min(place.now_ms + crate::limits::TURN_LEASE_MS_MAX)),
        );
        found::keep(tx, place.log, &turn, until_ms)?;
        store::turns::set_retry(tx, place.log, turn.cursor, Some(&self.retry))?;
        let retry = self.retry.clone();
        let retried = TurnRetried { id: self.id.clone(), cursor: turn.cursor, retry };
        let replaces = retried.replaces(tx, place)?;
        retried.project(tx, place)?;
        let entry = entry_replacing(replaces, Kind::RetryTurn, 1, &retried)?;
        Ok(Effect::new(Made::Nothing, entry))
    }
}
