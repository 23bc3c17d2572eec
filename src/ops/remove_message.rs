//! A message is taken away.

use super::{Effect, Kind, NotApplied, NotOwn, Place, entry_replacing};
use crate::model::code::{Code, Coded};
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

/// Why it cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is none.
    #[error("the session has no message {0}")]
    NotFound(MessageId),
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Error::NotFound(_) => Code::MessageNotFound,
        }
    }
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
        store::messages::remove(tx, place.log, self.cursor)
    }
}

impl RemoveMessage {
    pub(super) fn apply(&self, tx: &Tx<'_>, place: Place) -> Result<Effect<'static>, NotApplied> {
        let Some(cursor) = store::messages::cursor_of(tx, place.log, &self.id)? else {
            return Err(Error::NotFound(self.id.clone()).into());
        };
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
        let removed = MessageRemoved { id: self.id.clone(), cursor };
        removed.project(tx, place)?;
        let entry = entry_replacing(Some(cursor), Kind::RemoveMessage, 1, &removed)?;
        Ok(Effect::new(Made::Nothing, entry))
    }
}
