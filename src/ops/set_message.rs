//! Something else is said about a message: everything but its parts.

use super::found;
use super::{Effect, Entry, Kind, MessagePut, NotApplied, Place};
use crate::model::content::{Stored, message_again};
use crate::model::ids::{Cursor, LogId, MessageId, TurnId};
use crate::model::ledger::Made;
use crate::model::turn::State;
use crate::store::messages::Standing;
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What somebody wants said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetMessage {
    /// Of which message.
    pub id: MessageId,
    /// The turn it is said in, if it is.
    pub turn: Option<TurnId>,
    /// Whether it is a finished summary then.
    pub summing_up: bool,
    /// As the wire has it, without parts.
    pub info: Vec<u8>,
}

/// Where it belongs, as it stands in the history in version 1, before what is said as the wire has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageHead {
    /// Which message.
    pub id: MessageId,
    /// Where that was added.
    pub cursor: Cursor,
    /// Whether it is a finished summary.
    pub summing_up: bool,
}

/// What was said of a message, in the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageSet<'a> {
    /// Where it belongs.
    pub head: MessageHead,
    /// As the wire has it.
    pub info: Cow<'a, [u8]>,
}

impl<'a> MessageSet<'a> {
    pub(super) fn read(payload: &'a [u8]) -> Result<Self, postcard::Error> {
        let (head, info) = postcard::take_from_bytes(payload)?;
        Ok(Self { head, info: info.into() })
    }

    /// Says it; what goes into the history.
    pub(super) fn say(&self, tx: &Tx<'_>, place: Place) -> Result<Entry<'static>, StoreError> {
        let replaces = self.replaces(tx, place)?;
        self.project(tx, place)?;
        let mut payload = postcard::to_stdvec(&self.head).map_err(|error| {
            StoreError::Other(format!("a message could not be encoded: {error}"))
        })?;
        payload.extend_from_slice(&self.info);
        Ok(Entry { kind: Kind::SetMessage, version: 1, replaces, payload: payload.into() })
    }

    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        let MessageHead { cursor, summing_up, .. } = self.head;
        store::messages::set_info(tx, place.log, cursor, &self.info, summing_up, place.cursor)
    }

    /// The op whose effect is gone with this one.
    pub(super) fn replaces(
        &self,
        read: &store::Read<'_>,
        place: Place,
    ) -> Result<Option<Cursor>, StoreError> {
        let standing = store::messages::standing(read, place.log, &self.head.id)?;
        Ok(standing.map(|standing| standing.info_at).filter(|at| at.0 > 0))
    }
}

impl SetMessage {
    pub(super) fn apply(&self, tx: &Tx<'_>, place: Place) -> Result<Effect<'static>, NotApplied> {
        let standing = found::message(tx, place.log, &self.id)?;
        match &self.turn {
            Some(id) => {
                let turn = found::running(tx, place.log, id)?;
                if standing.turn != turn.cursor {
                    return Err(found::Error::OtherTurn(self.id.clone(), turn.id).into());
                }
                found::heard(tx, place, &turn)?;
            }
            None => found::not_under_way(tx, place.log, standing)?,
        }
        let SetMessage { id, info, .. } = self;
        let mut said = (Cow::Borrowed(info.as_slice()), self.summing_up);
        if was_aborted(tx, place.log, standing)? {
            let (info, summing_up) = self.of_aborted(tx, place.log, standing)?;
            said = (info.into(), summing_up);
        }
        let (info, summing_up) = said;
        let head = MessageHead { id: id.clone(), cursor: standing.cursor, summing_up };
        let entry = MessageSet { head, info }.say(tx, place)?;
        Ok(Effect::new(Made::Nothing, Some(entry)))
    }

    /// What is said of a message whose turn was cut short. That it was, and how far it had come, is not for
    /// those to say who come late.
    fn of_aborted(
        &self,
        tx: &Tx<'_>,
        session: LogId,
        standing: Standing,
    ) -> Result<(Vec<u8>, bool), StoreError> {
        let Some(stored) = store::messages::at(tx, session, standing.cursor)? else {
            return Err(StoreError::Corrupt(format!("message {} is not there", self.id)));
        };
        let said = Stored::new(&self.info);
        match &stored.info {
            Some(info) => {
                Stored::new(info).info(|before| said.info(|info| message_again(before, info)))
            }
            None => {
                let put = MessagePut::of_payload(stored.version, &stored.payload)?;
                Stored::new(put).body(|before| said.info(|info| message_again(before, info)))
            }
        }
        .map_err(found::odd)
    }
}

fn was_aborted(tx: &Tx<'_>, session: LogId, message: Standing) -> Result<bool, StoreError> {
    if message.turn.0 == 0 {
        return Ok(false);
    }
    let turn = store::turns::at(tx, session, message.turn)?;
    Ok(turn.is_some_and(|turn| turn.state == State::Aborted))
}
