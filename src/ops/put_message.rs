//! A message at the end of a session.

use super::{Effect, Entry, Kind, NotApplied, Place};
use crate::model::code::{Code, Coded};
use crate::model::ids::{MessageId, OpId};
use crate::model::infos::Role;
use crate::model::ledger::Made;
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What somebody wants said. It is kept in the form in which it stands in the history, so that the
/// writer has nothing left to encode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutMessage {
    /// The given id, or the one made.
    id: MessageId,
    role: Role,
    payload: Vec<u8>,
}

/// Why it cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The id is another message's.
    #[error("the session already has a message {0}")]
    Exists(MessageId),
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Error::Exists(_) => Code::MessageExists,
        }
    }
}

/// How it stands in the history, version 1: this head, then the content as the wire has it.
#[derive(Serialize, Deserialize)]
struct HeadV1<'a> {
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    role: Role,
}

/// A message of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessagePut<'a> {
    /// Its id.
    pub id: MessageId,
    /// Who said it.
    pub role: Role,
    /// What it says, in the encoding of the wire.
    pub content: Cow<'a, [u8]>,
}

impl<'a> MessagePut<'a> {
    /// From the history. The id is made from the op's name if none was given.
    pub(super) fn read(op: OpId, payload: &'a [u8]) -> Result<Self, postcard::Error> {
        let (head, content) = postcard::take_from_bytes::<HeadV1<'_>>(payload)?;
        let id = match head.id {
            Some(id) => {
                MessageId::parse(&id).map_err(|_| postcard::Error::DeserializeBadEncoding)?
            }
            None => MessageId::made_by(op),
        };
        Ok(Self { id, role: head.role, content: content.into() })
    }

    /// From the history, whatever version it is.
    pub fn of(op: OpId, version: u16, payload: &'a [u8]) -> Result<Self, StoreError> {
        match version {
            1 => Self::read(op, payload)
                .map_err(|error| StoreError::Corrupt(format!("a message in the history: {error}"))),
            other => Err(StoreError::Corrupt(format!("a message of unknown version {other}"))),
        }
    }

    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        match store::messages::add(tx, place.log, place.cursor, &self.id, self.role)? {
            true => Ok(()),
            false => Err(StoreError::Corrupt(format!("two messages with the id {}", self.id))),
        }
    }
}

impl PutMessage {
    /// The message an op wants to add; `content` is what it says, in the encoding of the wire.
    pub fn new(op: OpId, id: Option<MessageId>, role: Role, content: &[u8]) -> Self {
        let head = HeadV1 { id: id.as_ref().map(|id| id.as_str().into()), role };
        let room = Vec::with_capacity(content.len() + 64);
        // Encoding a string and a number into memory cannot fail; an empty head would be noticed.
        let mut payload = postcard::to_extend(&head, room).unwrap_or_default();
        payload.extend_from_slice(content);
        Self { id: id.unwrap_or_else(|| MessageId::made_by(op)), role, payload }
    }

    pub(super) fn apply(&self, tx: &Tx<'_>, place: Place) -> Result<Effect<'_>, NotApplied> {
        // Adding and looking whether it is there are one walk through the index.
        if !store::messages::add(tx, place.log, place.cursor, &self.id, self.role)? {
            return Err(Error::Exists(self.id.clone()).into());
        }
        let entry = Entry {
            kind: Kind::PutMessage,
            version: 1,
            replaces: None,
            payload: Cow::Borrowed(&self.payload),
        };
        Ok(Effect::new(Made::Nothing, Some(entry)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_comes_back_as_it_was() {
        let op = OpId([1; 16]);
        for id in [None, Some(MessageId::parse("m1").unwrap())] {
            let message = PutMessage::new(op, id.clone(), Role::Tool, b"content");
            let read = MessagePut::read(op, &message.payload).unwrap();
            assert_eq!(read.id, id.unwrap_or_else(|| MessageId::made_by(op)));
            assert_eq!((read.role, &*read.content), (Role::Tool, b"content".as_slice()));
        }
        assert!(MessagePut::of(op, 2, b"").is_err());
        assert!(MessagePut::of(op, 1, b"").is_err());
    }
}
