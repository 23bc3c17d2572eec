//! A message is taken away.

use super::remove_part::PartRemoved;
use super::{Also, Effect, Entry, Kind, NotApplied, NotOwn, Place, encoded, found};
use crate::model::ids::{Cursor, MessageId};
use crate::model::ledger::Made;
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};

/// What somebody wants gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoveMessage {
    /// Which.
    pub id: MessageId,
}

/// How it stands in the history, version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageRemoved {
    /// Its id.
    pub id: MessageId,
    /// Where it had been added.
    pub cursor: Cursor,
}

impl MessageRemoved {
    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        uncount(tx, place, self.cursor)?;
        store::parts::forget_all(tx, place.log, self.cursor)?;
        store::messages::remove(tx, place.log, self.cursor)
    }
}

impl RemoveMessage {
    pub(super) fn apply(&self, tx: &Tx<'_>, place: Place) -> Result<Effect<'static>, NotApplied> {
        let standing = found::message(tx, place.log, &self.id)?;
        let cursor = standing.cursor;
        found::not_under_way(tx, place.log, standing)?;
        if place.only_own {
            let by = store::ops::granted_at(tx, place.log, cursor)?;
            let own = match by {
                Some(by) => store::grants::stems_from(tx, by, place.granted)?,
                None => false,
            };
            if !own {
                return Err(NotOwn.into());
            }
        }
        let (entry, also) = gone(tx, place, &self.id, cursor)?;
        let (log, granted) = (place.log, place.granted);
        let also = also.into_iter().map(|entry| Also { log, entry, granted }).collect();
        Ok(Effect { also, ..Effect::new(Made::Nothing, Some(entry)) })
    }
}

/// Takes a message away; the op that says so, and those about what was put into it since. They go with it, so that
/// nothing of it is kept when history is let go.
pub(super) fn gone(
    tx: &Tx<'_>,
    place: Place,
    id: &MessageId,
    cursor: Cursor,
) -> Result<(Entry<'static>, Vec<Entry<'static>>), StoreError> {
    let mut parts = Vec::new();
    for (position, part, put_at) in store::parts::names(tx, place.log, cursor)? {
        let removed = PartRemoved { message: id.clone(), cursor, position, id: part, put_at };
        let said = encoded(Kind::RemovePart, 1, &removed)?;
        parts.push(Entry { replaces: removed.replaces(), ..said });
    }
    let removed = MessageRemoved { id: id.clone(), cursor };
    removed.project(tx, place)?;
    let said = encoded(Kind::RemoveMessage, 1, &removed)?;
    Ok((Entry { replaces: Some(cursor), ..said }, parts))
}

/// Counts out what the steps of a message have cost.
fn uncount(tx: &Tx<'_>, place: Place, cursor: Cursor) -> Result<(), StoreError> {
    let Some(id) = store::messages::id_at(tx, place.log, cursor)? else { return Ok(()) };
    let Some(standing) = store::messages::standing(tx, place.log, &id)? else { return Ok(()) };
    let less = found::usage_of_message(tx, place.log, cursor)?;
    store::sessions::count(tx, place.log, Default::default(), less)?;
    store::turns::count(tx, place.log, standing.turn, Default::default(), less)
}
