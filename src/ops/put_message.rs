//! A message at the end of a session.

use super::{Effect, Entry, Kind, NotApplied, Place, found};
use crate::model::code::{Code, Coded};
use crate::model::content::MessageFacts;
use crate::model::ids::{Cursor, MessageId, OpId, TurnId};
use crate::model::infos::Role;
use crate::model::ledger::Made;
use crate::store::messages::NewMessage;
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What somebody wants said. It is kept in the form in which it stands in the history, so that the
/// writer has nothing left to encode, unless there is more to know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutMessage {
    /// The given id, or the one made.
    id: MessageId,
    role: Role,
    said: Said,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Said {
    /// Nothing but what it says: the payload as it is stored.
    Plain(Vec<u8>),
    /// Something the rules act on.
    Rich { turn: Option<TurnId>, facts: MessageFacts, content: Vec<u8> },
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

/// The same in version 2, for a message there is more to know of.
#[derive(Serialize, Deserialize)]
struct HeadV2 {
    id: MessageId,
    role: Role,
    turn: Cursor,
    facts: MessageFacts,
}

/// A message of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessagePut<'a> {
    /// Its id.
    pub id: MessageId,
    /// Who said it.
    pub role: Role,
    /// The turn it belongs to; 0 for none.
    pub turn: Cursor,
    /// What the rules need to know of it.
    pub facts: MessageFacts,
    /// What it says, in the encoding of the wire.
    pub content: Cow<'a, [u8]>,
}

impl<'a> MessagePut<'a> {
    /// From the history. The id is made from the op's name if none was given.
    pub(super) fn read(op: OpId, version: u16, payload: &'a [u8]) -> Result<Self, postcard::Error> {
        if version == 2 {
            let (HeadV2 { id, role, turn, facts }, content) = postcard::take_from_bytes(payload)?;
            return Ok(Self { id, role, turn, facts, content: content.into() });
        }
        let (head, content) = postcard::take_from_bytes::<HeadV1<'_>>(payload)?;
        let id = match head.id {
            Some(id) => {
                MessageId::parse(&id).map_err(|_| postcard::Error::DeserializeBadEncoding)?
            }
            None => MessageId::made_by(op),
        };
        let (role, turn, facts) = (head.role, Cursor(0), MessageFacts::default());
        Ok(Self { id, role, turn, facts, content: content.into() })
    }

    /// From the history, whatever version it is.
    pub fn of(op: OpId, version: u16, payload: &'a [u8]) -> Result<Self, StoreError> {
        match version {
            1 | 2 => Self::read(op, version, payload)
                .map_err(|error| StoreError::Corrupt(format!("a message in the history: {error}"))),
            other => Err(StoreError::Corrupt(format!("a message of unknown version {other}"))),
        }
    }

    /// What an op that put a message says, in the encoding of the wire.
    pub fn of_payload(version: u16, payload: &'a [u8]) -> Result<&'a [u8], StoreError> {
        match Self::of(OpId([0; 16]), version, payload)?.content {
            Cow::Borrowed(content) => Ok(content),
            Cow::Owned(_) => Err(StoreError::Other("a message that is not the payload's".into())),
        }
    }

    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        let message = NewMessage {
            cursor: place.cursor,
            id: &self.id,
            role: self.role,
            turn: self.turn,
            summing_up: self.facts.summing_up,
        };
        if !store::messages::add(tx, place.log, message)? {
            return Err(StoreError::Corrupt(format!("two messages with the id {}", self.id)));
        }
        count(tx, place, self.turn, &self.facts)
    }
}

/// What follows from a message there is more to know of.
fn count(tx: &Tx<'_>, place: Place, turn: Cursor, facts: &MessageFacts) -> Result<(), StoreError> {
    store::sessions::count(tx, place.log, facts.usage, Default::default())?;
    store::turns::count(tx, place.log, turn, facts.usage, Default::default())?;
    found::name_contents(tx, place, &facts.contents)
}

impl PutMessage {
    /// The message an op wants to add; `content` is what it says, in the encoding of the wire.
    pub fn new(op: OpId, id: Option<MessageId>, role: Role, content: &[u8]) -> Self {
        let head = HeadV1 { id: id.as_ref().map(|id| id.as_str().into()), role };
        let room = Vec::with_capacity(content.len() + 64);
        // Encoding a string and a number into memory cannot fail; an empty head would be noticed.
        let mut payload = postcard::to_extend(&head, room).unwrap_or_default();
        payload.extend_from_slice(content);
        let id = id.unwrap_or_else(|| MessageId::made_by(op));
        Self { id, role, said: Said::Plain(payload) }
    }

    /// One there is more to know of.
    pub fn rich(
        id: MessageId,
        role: Role,
        turn: Option<TurnId>,
        facts: MessageFacts,
        content: &[u8],
    ) -> Self {
        Self { id, role, said: Said::Rich { turn, facts, content: content.to_vec() } }
    }

    /// A copy of one in another session.
    pub(super) fn of_copy(id: MessageId, role: Role, facts: MessageFacts, content: &[u8]) -> Self {
        Self::rich(id, role, None, facts, content)
    }

    /// Its id.
    pub fn id(&self) -> &MessageId {
        &self.id
    }

    /// Whether it could be put.
    pub(super) fn check(&self, tx: &Tx<'_>, place: Place) -> Result<(), NotApplied> {
        if store::messages::cursor_of(tx, place.log, &self.id)?.is_some() {
            return Err(Error::Exists(self.id.clone()).into());
        }
        match &self.said {
            Said::Plain(_) => Ok(()),
            Said::Rich { facts, .. } => found::contents(tx, place.log, &facts.contents).map(drop),
        }
    }

    /// Puts it, once it is checked, into a turn (0 for none); what goes into the history.
    pub(super) fn put_in(
        &self,
        tx: &Tx<'_>,
        place: Place,
        turn: Cursor,
    ) -> Result<Entry<'static>, StoreError> {
        let (facts, content) = match &self.said {
            Said::Plain(payload) => (MessageFacts::default(), MessagePut::of_payload(1, payload)?),
            Said::Rich { facts, content, .. } => (facts.clone(), content.as_slice()),
        };
        let (id, role) = (self.id.clone(), self.role);
        let put = MessagePut { id, role, turn, facts, content: content.into() };
        put.project(tx, place)?;
        let MessagePut { id, role, turn, facts, .. } = put;
        let mut payload =
            postcard::to_stdvec(&HeadV2 { id, role, turn, facts }).map_err(|error| {
                StoreError::Other(format!("a message could not be encoded: {error}"))
            })?;
        payload.extend_from_slice(content);
        Ok(Entry { kind: Kind::PutMessage, version: 2, replaces: None, payload: payload.into() })
    }

    pub(super) fn apply(&self, tx: &Tx<'_>, place: Place) -> Result<Effect<'_>, NotApplied> {
        let payload = match &self.said {
            Said::Plain(payload) => payload,
            Said::Rich { turn, .. } => {
                self.check(tx, place)?;
                let turn = match turn {
                    // Whoever may only touch what is its own has no turn.
                    Some(_) if place.only_own => return Err(super::NotOwn.into()),
                    Some(id) => Some(found::running(tx, place.log, id)?),
                    None => None,
                };
                if let Some(turn) = &turn {
                    found::heard(tx, place, turn)?;
                }
                let at = turn.map_or(Cursor(0), |turn| turn.cursor);
                let entry = self.put_in(tx, place, at)?;
                return Ok(Effect::new(Made::Nothing, Some(entry)));
            }
        };
        let message = NewMessage {
            cursor: place.cursor,
            id: &self.id,
            role: self.role,
            turn: Cursor(0),
            summing_up: false,
        };
        // Adding and looking whether it is there are one walk through the index.
        if !store::messages::add(tx, place.log, message)? {
            return Err(Error::Exists(self.id.clone()).into());
        }
        let payload = Cow::Borrowed(payload.as_slice());
        let entry = Entry { kind: Kind::PutMessage, version: 1, replaces: None, payload };
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
            let Said::Plain(payload) = &message.said else { panic!("it is plain") };
            let read = MessagePut::read(op, 1, payload).unwrap();
            assert_eq!(read.id, id.unwrap_or_else(|| MessageId::made_by(op)));
            assert_eq!((read.role, &*read.content), (Role::Tool, b"content".as_slice()));
        }
        assert!(MessagePut::of(op, 3, b"").is_err());
        assert!(MessagePut::of(op, 2, b"").is_err());
        assert!(MessagePut::of(op, 1, b"").is_err());
    }
}
