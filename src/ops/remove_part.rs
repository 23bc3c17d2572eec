//! A part is taken out of a message.

use super::found;
use super::{Effect, Kind, NotApplied, NotOwn, Place, entry_replacing};
use crate::model::ids::{Cursor, MessageId, PartId};
use crate::model::ledger::Made;
use crate::store::parts::StoredPart;
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};

/// What somebody wants gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovePart {
    /// Of which message.
    pub message: MessageId,
    /// Which.
    pub id: PartId,
}

/// How it stands in the history, version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRemoved {
    /// Of which message.
    pub message: MessageId,
    /// Where that was added.
    pub cursor: Cursor,
    /// Where in it the part stood.
    pub position: u32,
    /// Its id there.
    pub id: PartId,
    /// The op that had put it; 0 for one that came with its message.
    pub put_at: Cursor,
}

impl PartRemoved {
    /// What follows from it. A message that is there no more keeps nothing.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        let Some(standing) = store::messages::standing(tx, place.log, &self.message)? else {
            return Ok(());
        };
        let former = found::part_at(tx, place.log, self.cursor, self.position)?;
        // Where it stood stays marked: what the message came with is still in its op.
        let gone = StoredPart {
            message: self.cursor,
            position: self.position,
            id: self.id.clone(),
            status: None,
            added: place.cursor,
            at: place.cursor,
            content: None,
        };
        store::parts::put(tx, place.log, &gone)?;
        let less = found::usage_of(former.as_ref());
        store::sessions::count(tx, place.log, Default::default(), less)?;
        store::turns::count(tx, place.log, standing.turn, Default::default(), less)
    }

    /// The op whose effect is gone with this one.
    pub(super) fn replaces(&self) -> Option<Cursor> {
        Some(self.put_at).filter(|at| at.0 > 0)
    }
}

impl RemovePart {
    pub(super) fn apply(&self, tx: &Tx<'_>, place: Place) -> Result<Effect<'static>, NotApplied> {
        let standing = found::message(tx, place.log, &self.message)?;
        found::not_under_way(tx, place.log, standing)?;
        let found = found::part(tx, place.log, standing.cursor, &self.id)?
            .ok_or_else(|| found::Error::PartNotFound(self.message.clone(), self.id.clone()))?;
        if place.only_own {
            return Err(NotOwn.into());
        }
        let removed = PartRemoved {
            message: self.message.clone(),
            cursor: standing.cursor,
            position: found.position,
            id: self.id.clone(),
            put_at: store::parts::at(tx, place.log, standing.cursor, found.position)?
                .map_or(Cursor(0), |put| put.at),
        };
        let replaces = removed.replaces();
        removed.project(tx, place)?;
        let entry = entry_replacing(replaces, Kind::RemovePart, 1, &removed)?;
        Ok(Effect::new(Made::Nothing, entry))
    }
}
