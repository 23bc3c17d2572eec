//! What several verbs look for before they do anything: a message, one of its parts, a turn that runs.

use super::{MessagePut, NotApplied, Place};
use crate::model::code::{Code, Coded};
use crate::model::content::{self, ContentRef, PartFacts, Stored, ToolStatus};
use crate::model::ids::{Cursor, LogId, MessageId, PartId, TurnId};
use crate::model::turn::{State, Turn};
use crate::model::usage::Usage;
use crate::store::contents::ContentKey;
use crate::store::messages::Standing;
use crate::store::{self, Read, StoreError, Tx};

/// What was looked for and is not there, or not as it would have to be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No such message.
    #[error("the session has no message {0}")]
    MessageNotFound(MessageId),
    /// No such part.
    #[error("message {0} has no part {1}")]
    PartNotFound(MessageId, PartId),
    /// No such turn.
    #[error("the session has no turn {0}")]
    TurnNotFound(TurnId),
    /// The message is another turn's.
    #[error("message {0} does not belong to turn {1}")]
    OtherTurn(MessageId, TurnId),
    /// It has not begun.
    #[error("turn {0} is queued: it begins when the turns before it have ended")]
    Queued(TurnId),
    /// Something runs.
    #[error("a turn runs in this session")]
    Busy,
    /// Content nobody has uploaded here.
    #[error("content {} of {} bytes was not uploaded to this session", data_encoding::HEXLOWER.encode(&.0.hash), .0.bytes)]
    ContentNotFound(ContentRef),
    /// The session is gone.
    #[error("the session does not exist any more")]
    SessionNotFound,
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Error::MessageNotFound(_) => Code::MessageNotFound,
            Error::PartNotFound(..) => Code::PartNotFound,
            Error::TurnNotFound(_) | Error::OtherTurn(..) => Code::TurnNotFound,
            Error::Queued(_) | Error::Busy => Code::SessionBusy,
            Error::ContentNotFound(_) => Code::ContentNotFound,
            Error::SessionNotFound => Code::SessionNotFound,
        }
    }
}

/// The message with this id.
pub(super) fn message(
    read: &Read<'_>,
    session: LogId,
    id: &MessageId,
) -> Result<Standing, NotApplied> {
    store::messages::standing(read, session, id)?
        .ok_or_else(|| Error::MessageNotFound(id.clone()).into())
}

/// The turn with this id, if it runs.
pub(super) fn running(read: &Read<'_>, session: LogId, id: &TurnId) -> Result<Turn, NotApplied> {
    let turn = store::turns::get(read, session, id)?
        .ok_or_else(|| NotApplied::from(Error::TurnNotFound(id.clone())))?;
    turn.running()?;
    match turn.state {
        State::Queued => Err(Error::Queued(id.clone()).into()),
        _ => Ok(turn),
    }
}

/// Something was heard of a turn: its lease begins anew, and it waits no more.
pub(super) fn heard(tx: &Tx<'_>, place: Place, turn: &Turn) -> Result<(), StoreError> {
    if turn.until_ms.is_some_and(|until| turn.lease.is_worth_renewing(until, place.now_ms)) {
        keep(tx, place.log, turn, turn.lease.until_ms(place.now_ms))?;
    }
    went_on(tx, place.log, turn)
}

/// A turn is kept until then, and not longer than the grant lasts that it was begun under. Until when it is.
pub(super) fn keep(
    tx: &Tx<'_>,
    session: LogId,
    turn: &Turn,
    until_ms: u64,
) -> Result<u64, StoreError> {
    let granted = store::grants::in_force(tx, turn.granted)?.ok();
    let expires_at_ms = granted.and_then(|granted| granted.expires_at_ms).unwrap_or(u64::MAX);
    let until_ms = until_ms.min(expires_at_ms);
    if turn.until_ms != Some(until_ms) {
        store::turns::set_lease(tx, session, turn.cursor, until_ms)?;
    }
    Ok(until_ms)
}

/// Whatever a turn waited for, it goes on.
pub(super) fn went_on(tx: &Tx<'_>, session: LogId, turn: &Turn) -> Result<(), StoreError> {
    match turn.retry {
        Some(_) => store::turns::set_retry(tx, session, turn.cursor, None),
        None => Ok(()),
    }
}

/// Refuses while a turn runs or waits.
pub(super) fn idle(read: &Read<'_>, session: LogId) -> Result<(), NotApplied> {
    let status = store::turns::status(read, session)?;
    match status.running + status.queued {
        0 => Ok(()),
        _ => Err(Error::Busy.into()),
    }
}

/// Refuses while the turn a message belongs to runs.
pub(super) fn not_under_way(
    read: &Read<'_>,
    session: LogId,
    message: Standing,
) -> Result<(), NotApplied> {
    let turn = match message.turn.0 {
        0 => None,
        _ => store::turns::at(read, session, message.turn)?,
    };
    match turn {
        Some(turn) if !turn.state.is_final() => Err(Error::Busy.into()),
        _ => Ok(()),
    }
}

/// Content a session may name.
pub(super) fn contents(
    read: &Read<'_>,
    session: LogId,
    named: &[ContentRef],
) -> Result<Vec<ContentKey>, NotApplied> {
    let find = |content: &ContentRef| {
        store::contents::nameable(read, session, *content)?
            .ok_or_else(|| NotApplied::from(Error::ContentNotFound(*content)))
    };
    named.iter().map(find).collect()
}

/// Records that an op names content. When it was decided, the content was there.
pub(super) fn name_contents(
    tx: &Tx<'_>,
    place: Place,
    named: &[ContentRef],
) -> Result<(), StoreError> {
    for content in named {
        if let Some(key) = store::contents::whole(tx, &content.hash)? {
            store::contents::name(tx, key, place.log, place.cursor)?;
        }
    }
    Ok(())
}

/// A part, wherever it stands.
#[derive(Debug)]
pub(super) struct FoundPart {
    pub(super) position: u32,
    /// Where it was first put.
    pub(super) added: Cursor,
    pub(super) facts: PartFacts,
    pub(super) content: Vec<u8>,
}

/// What a message came with.
pub(super) struct Base {
    /// As the wire has it.
    stored: Stored,
    id: MessageId,
    cursor: Cursor,
}

impl Base {
    pub(super) fn read(
        read: &Read<'_>,
        session: LogId,
        cursor: Cursor,
    ) -> Result<Option<Base>, StoreError> {
        let Some(message) = store::messages::at(read, session, cursor)? else { return Ok(None) };
        let put = MessagePut::of_payload(message.version, &message.payload)?;
        Ok(Some(Base { stored: Stored::new(put), id: message.id, cursor }))
    }

    /// How many parts it came with.
    pub(super) fn count(&self) -> Result<u32, StoreError> {
        self.stored.body(|body| Ok(body.get_parts()?.len())).map_err(odd)
    }

    /// The one at a position, or with an id.
    fn part(&self, is_it: impl Fn(u32, &str) -> bool) -> Result<Option<FoundPart>, StoreError> {
        self.stored
            .body(|body| {
                for (position, part) in (1..).zip(body.get_parts()?) {
                    if is_it(position, part.get_id()?.to_str()?) {
                        return Ok(Some(FoundPart {
                            position,
                            added: self.cursor,
                            facts: content::part_facts(part)?,
                            content: content::part_bytes(part)?,
                        }));
                    }
                }
                Ok(None)
            })
            .map_err(odd)
    }

    fn with_id(&self, id: &PartId) -> Result<Option<FoundPart>, StoreError> {
        self.part(|position, given| match given {
            "" => PartId::made_in(&self.id, position - 1) == *id,
            given => given == id.as_str(),
        })
    }
}

/// Something stored that cannot be read.
pub(super) fn odd(error: content::Unreadable) -> StoreError {
    StoreError::Corrupt(error.to_string())
}

/// The part of a message with this id.
pub(super) fn part(
    read: &Read<'_>,
    session: LogId,
    message: Cursor,
    id: &PartId,
) -> Result<Option<FoundPart>, StoreError> {
    if let Some(put) = store::parts::get(read, session, message, id)? {
        return from_put(put);
    }
    let Some(base) = Base::read(read, session, message)? else { return Ok(None) };
    let Some(found) = base.with_id(id)? else { return Ok(None) };
    // Something else may stand in its place by now.
    match store::parts::at(read, session, message, found.position)? {
        Some(_) => Ok(None),
        None => Ok(Some(found)),
    }
}

/// The part of a message at a position.
pub(super) fn part_at(
    read: &Read<'_>,
    session: LogId,
    message: Cursor,
    position: u32,
) -> Result<Option<FoundPart>, StoreError> {
    if let Some(put) = store::parts::at(read, session, message, position)? {
        return from_put(put);
    }
    match Base::read(read, session, message)? {
        Some(base) => base.part(|at, _| at == position),
        None => Ok(None),
    }
}

fn from_put(put: store::parts::StoredPart) -> Result<Option<FoundPart>, StoreError> {
    let store::parts::StoredPart { position, added, content, .. } = put;
    let Some(content) = content else { return Ok(None) };
    let facts = Stored::new(&content).part(content::part_facts).map_err(odd)?;
    Ok(Some(FoundPart { position, added, facts, content }))
}

/// What a part that is there no more has cost.
pub(super) fn usage_of(part: Option<&FoundPart>) -> Usage {
    part.and_then(|part| part.facts.usage).unwrap_or_default()
}

/// What the steps of a message have cost, together.
pub(super) fn usage_of_message(
    read: &Read<'_>,
    session: LogId,
    message: Cursor,
) -> Result<Usage, StoreError> {
    let (mut sum, mut put) = (Usage::default(), std::collections::HashSet::new());
    store::parts::each(read, session, message, |part| {
        put.insert(part.position);
        sum = sum.plus(usage_of(from_put(part)?.as_ref()));
        Ok(())
    })?;
    // What a plain message came with has cost nothing.
    let stored = store::messages::at(read, session, message)?;
    if stored.is_some_and(|stored| stored.version > 1)
        && let Some(base) = Base::read(read, session, message)?
    {
        for position in (1..=base.count()?).filter(|position| !put.contains(position)) {
            sum = sum.plus(usage_of(base.part(|at, _| at == position)?.as_ref()));
        }
    }
    Ok(sum)
}

/// Whether a part says something itself: text, or a tool.
pub(super) fn says_something(part: &FoundPart) -> Result<bool, StoreError> {
    Stored::new(&part.content).part(content::says_something).map_err(odd)
}

/// How far a tool is.
pub(super) fn status_of(part: Option<&FoundPart>) -> Option<ToolStatus> {
    part.and_then(|part| part.facts.status)
}
