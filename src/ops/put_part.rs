//! A part is added to a message, or put in the place of another one.

use super::found::{self, Base, FoundPart, odd};
use super::{Effect, Entry, Kind, NotApplied, Place};
use crate::limits::{CONTENT_BYTES_MAX, INLINE_TEXT_BYTES_MAX, PARTS_PUT_MAX};
use crate::model::code::{Code, Coded};
use crate::model::content::{Change, ContentRef, PartFacts, Stored, Text, ToolStatus};
use crate::model::ids::{Cursor, MessageId, PartId, TurnId};
use crate::model::infos::Role;
use crate::model::ledger::Made;
use crate::model::turn::Turn;
use crate::store::messages::Standing;
use crate::store::parts::StoredPart;
use crate::store::streams::{Stream, StreamKey};
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::borrow::Cow;

/// A part somebody wants in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutPart {
    /// Which message; none for the newest of the turn.
    pub message: Option<MessageId>,
    /// The turn it is put in, if it is.
    pub turn: Option<TurnId>,
    /// The part.
    pub part: NewPart,
    /// Whether its text is still to come.
    pub open: bool,
}

/// A part on its way into a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPart {
    /// The given id, or the one made.
    pub id: PartId,
    /// What the rules need to know of it.
    pub facts: PartFacts,
    /// Whether it brings a text of its own.
    pub brings_text: bool,
    /// As the wire has it, with its id.
    pub content: Vec<u8>,
}

/// Why it cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is over.
    #[error("the tool has ended as {0:?}; what comes later is not taken")]
    ToolEnded(ToolStatus),
    /// It cannot go there from here.
    #[error("a tool does not go from {0:?} to {1:?}")]
    Backwards(Option<ToolStatus>, ToolStatus),
    /// There was a tool, and there is to be something else.
    #[error("a tool cannot become something else while it runs")]
    NoTool,
    /// It has no output that could be left out.
    #[error("the tool has not completed; only outputs of those that have can be left out")]
    NotCompleted,
    /// More than anybody reads.
    #[error("the message has {PARTS_PUT_MAX} parts, which is the most accepted")]
    TooMany,
    /// An open part belongs to a turn.
    #[error("a part can only be open in a turn that runs: name it")]
    NoTurn,
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Error::ToolEnded(_) | Error::Backwards(..) | Error::NoTool | Error::NotCompleted => {
                Code::ToolEnded
            }
            Error::TooMany => Code::TooManyParts,
            Error::NoTurn => Code::OpMalformed,
        }
    }
}

/// How it stands in the history, version 1: this head, then the part as the wire has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartHead {
    /// Which message.
    pub message: MessageId,
    /// Where that was added.
    pub cursor: Cursor,
    /// Who says it.
    pub role: Role,
    /// Where in it the part stands.
    pub position: u32,
    /// Its id there.
    pub id: PartId,
    /// What the rules need to know of it.
    pub facts: PartFacts,
    /// Whether its text is still to come.
    pub open: bool,
    /// Where it was first put, if this is not it: the op that did so may be gone.
    pub added: Option<Cursor>,
}

/// A part of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartPut<'a> {
    /// Where it stands.
    pub head: PartHead,
    /// As the wire has it.
    pub content: Cow<'a, [u8]>,
}

impl<'a> PartPut<'a> {
    pub(super) fn read(payload: &'a [u8]) -> Result<Self, postcard::Error> {
        let (head, content) = postcard::take_from_bytes(payload)?;
        Ok(Self { head, content: content.into() })
    }

    pub(super) fn entry(&self, replaces: Option<Cursor>) -> Result<Entry<'static>, StoreError> {
        let room = Vec::with_capacity(self.content.len() + 128);
        let mut payload = postcard::to_extend(&self.head, room)
            .map_err(|error| StoreError::Other(format!("a part could not be encoded: {error}")))?;
        payload.extend_from_slice(&self.content);
        Ok(Entry { kind: Kind::PutPart, version: 1, replaces, payload: payload.into() })
    }

    /// The op whose effect is gone with this one.
    pub(super) fn replaces(
        &self,
        read: &store::Read<'_>,
        place: Place,
    ) -> Result<Option<Cursor>, StoreError> {
        let PartHead { cursor, position, .. } = self.head;
        Ok(store::parts::at(read, place.log, cursor, position)?.map(|put| put.at))
    }

    /// What follows from it. A message that is there no more keeps nothing.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        let PartHead { message, cursor, position, id, facts, .. } = &self.head;
        let Some(standing) = store::messages::standing(tx, place.log, message)? else {
            return Ok(());
        };
        let former = found::part_at(tx, place.log, *cursor, *position)?;
        let part = StoredPart {
            message: *cursor,
            position: *position,
            id: id.clone(),
            status: facts.status,
            added: self.head.added.unwrap_or(place.cursor),
            at: place.cursor,
            content: Some(self.content.to_vec()),
        };
        store::parts::put(tx, place.log, &part)?;
        let (more, less) = (facts.usage.unwrap_or_default(), found::usage_of(former.as_ref()));
        store::sessions::count(tx, place.log, more, less)?;
        store::turns::count(tx, place.log, standing.turn, more, less)?;
        found::name_contents(tx, place, &facts.contents)
    }
}

/// Where a part goes.
pub(super) struct Goes {
    message: MessageId,
    cursor: Cursor,
    role: Role,
    position: u32,
    former: Option<FoundPart>,
}

impl Goes {
    /// In the place of one that is there.
    pub(super) fn instead_of(message: MessageId, standing: Standing, former: FoundPart) -> Self {
        let Standing { cursor, role, .. } = standing;
        Self { message, cursor, role, position: former.position, former: Some(former) }
    }

    /// Whether nothing stands there yet.
    pub(super) fn is_new(&self) -> bool {
        self.former.is_none()
    }

    /// Where.
    pub(super) fn position(&self) -> u32 {
        self.position
    }
}

impl NewPart {
    /// Whether it can be put there, and where that is.
    pub(super) fn check(
        &self,
        tx: &Tx<'_>,
        place: Place,
        message: &MessageId,
        turn: Option<&Turn>,
    ) -> Result<Goes, NotApplied> {
        let standing = found::message(tx, place.log, message)?;
        if let Some(turn) = turn
            && standing.turn != turn.cursor
        {
            return Err(found::Error::OtherTurn(message.clone(), turn.id.clone()).into());
        }
        if turn.is_none() {
            found::not_under_way(tx, place.log, standing)?;
        }
        found::contents(tx, place.log, &self.facts.contents)?;
        let cursor = standing.cursor;
        let former = found::part(tx, place.log, cursor, &self.id)?;
        // What is written down afterwards, outside a turn, may be at its end already.
        let begins = |status| turn.is_none() || !matches!(status, ToolStatus::Completed);
        match (found::status_of(former.as_ref()), self.facts.status) {
            (Some(before), _) if before.is_final() => return Err(Error::ToolEnded(before).into()),
            (Some(_), None) => return Err(Error::NoTool.into()),
            (Some(before), Some(next)) if !before.leads_to(next) => {
                return Err(Error::Backwards(Some(before), next).into());
            }
            (None, Some(next)) if !begins(next) => return Err(Error::Backwards(None, next).into()),
            _ => {}
        }
        let position = match &former {
            Some(former) => former.position,
            // One that was taken away comes back where it stood.
            None => match store::parts::get(tx, place.log, cursor, &self.id)? {
                Some(gone) => gone.position,
                None => {
                    let base = Base::read(tx, place.log, cursor)?;
                    let base = base.map(|base| base.count()).transpose()?.unwrap_or(0);
                    base.max(store::parts::last_position(tx, place.log, cursor)?) + 1
                }
            },
        };
        if position > PARTS_PUT_MAX {
            return Err(Error::TooMany.into());
        }
        Ok(Goes { message: message.clone(), cursor, role: standing.role, position, former })
    }

    /// Puts it there, once it is checked. `place` is that of the op that says so.
    pub(super) fn put(
        &self,
        tx: &Tx<'_>,
        place: Place,
        goes: Goes,
        opened_in: Option<Cursor>,
    ) -> Result<Entry<'static>, StoreError> {
        let Goes { message, cursor, role, position, former } = goes;
        let key = StreamKey { session: place.log, message: cursor, position };
        let mut content = self.content.clone();
        if let Some(former) = &former
            && former.facts.status.is_some()
        {
            content = Change { part: &content }.following(&former.content).map_err(odd)?;
        }
        let mut facts = self.facts.clone();
        match (opened_in, store::streams::get(tx, key)?) {
            (Some(turn), _) => store::streams::open(tx, key, turn)?,
            (None, Some(stream)) => {
                if !self.brings_text {
                    let folded = fold(tx, place, stream, &content)?;
                    content = folded.0;
                    facts.contents.extend(folded.1);
                }
                store::streams::close(tx, key)?;
            }
            (None, None) => {}
        }
        let (id, open) = (self.id.clone(), opened_in.is_some());
        let added = former.map(|former| former.added);
        let head = PartHead { message, cursor, role, position, id, facts, open, added };
        let put = PartPut { head, content: content.into() };
        let replaces = put.replaces(tx, place)?;
        put.project(tx, place)?;
        put.entry(replaces)
    }
}

/// A part with the text that came for it, and what that stands in if it is long.
fn fold(
    tx: &Tx<'_>,
    place: Place,
    stream: Stream,
    part: &[u8],
) -> Result<(Vec<u8>, Option<ContentRef>), StoreError> {
    let change = Change { part };
    if stream.bytes <= INLINE_TEXT_BYTES_MAX as u64 {
        let mut text = String::with_capacity(usize::try_from(stream.bytes).unwrap_or(0));
        store::streams::each(tx, stream.key, |piece| {
            text.push_str(piece);
            Ok(())
        })?;
        return Ok((change.with_text(Text::Whole(&text)).map_err(odd)?, None));
    }
    let mut hasher = Sha256::new();
    store::streams::each(tx, stream.key, |piece| {
        hasher.update(piece.as_bytes());
        Ok(())
    })?;
    let content = ContentRef { hash: hasher.finalize().into(), bytes: stream.bytes };
    let key = match store::contents::whole(tx, &content.hash)? {
        Some(key) => key,
        None => {
            // Whatever somebody has begun to upload under this hash, this is what it is.
            if let Some(begun) = store::contents::coming(tx, place.log, &content.hash)? {
                store::contents::forget(tx, begun.key)?;
            }
            let mut coming = store::contents::begin(tx, place.log, content, place.now_ms)?;
            let mut piece_of = String::new();
            store::streams::each(tx, stream.key, |piece| {
                piece_of.push_str(piece);
                if piece_of.len() >= crate::limits::CONTENT_PIECE_BYTES {
                    coming = store::contents::add(tx, coming, piece_of.as_bytes(), place.now_ms)?;
                    piece_of.clear();
                }
                Ok(())
            })?;
            coming = store::contents::add(tx, coming, piece_of.as_bytes(), place.now_ms)?;
            store::contents::settle(tx, coming, place.now_ms)?
        }
    };
    store::contents::name(tx, key, place.log, place.cursor)?;
    let text = Text::Beside(content);
    Ok((change.with_text(text).map_err(odd)?, Some(content)))
}

/// Closes a part whose text was still coming, as far as it came; of a tool that ran, as interrupted.
pub(super) fn close(
    tx: &Tx<'_>,
    place: Place,
    stored: StoredPart,
    interrupted: Option<&str>,
) -> Result<Option<Entry<'static>>, StoreError> {
    let Some(mut content) = stored.content else { return Ok(None) };
    let key = StreamKey { session: place.log, message: stored.message, position: stored.position };
    let mut folded = None;
    if let Some(stream) = store::streams::get(tx, key)? {
        (content, folded) = fold(tx, place, stream, &content)?;
        store::streams::close(tx, key)?;
    }
    let runs = stored.status.is_some_and(|status| !status.is_final());
    if runs && let Some(why) = interrupted {
        content = Change { part: &content }.interrupted(why, place.now_ms).map_err(odd)?;
    }
    let mut facts = Stored::new(&content).part(crate::model::content::part_facts).map_err(odd)?;
    facts.contents.extend(folded.filter(|folded| !facts.contents.contains(folded)));
    let message = store::messages::id_at(tx, place.log, stored.message)?;
    let standing = match &message {
        Some(message) => store::messages::standing(tx, place.log, message)?,
        None => None,
    };
    let (Some(message), Some(standing)) = (message, standing) else { return Ok(None) };
    let role = standing.role;
    let (cursor, position, id) = (stored.message, stored.position, stored.id);
    let (open, added) = (false, Some(stored.added));
    let head = PartHead { message, cursor, role, position, id, facts, open, added };
    let put = PartPut { head, content: content.into() };
    put.project(tx, place)?;
    put.entry(Some(stored.at)).map(Some)
}

impl PutPart {
    pub(super) fn apply(&self, tx: &Tx<'_>, place: Place) -> Result<Effect<'static>, NotApplied> {
        let turn = match &self.turn {
            Some(id) => Some(found::running(tx, place.log, id)?),
            None => None,
        };
        if self.open && turn.is_none() {
            return Err(Error::NoTurn.into());
        }
        let message = match (&self.message, &turn) {
            (Some(message), _) => message.clone(),
            (None, Some(turn)) => store::messages::newest_of_turn(tx, place.log, turn.cursor)?
                .unwrap_or_else(|| turn.message.clone()),
            (None, None) => return Err(Error::NoTurn.into()),
        };
        let goes = self.part.check(tx, place, &message, turn.as_ref())?;
        if let Some(turn) = &turn {
            found::heard(tx, place, turn)?;
        }
        let made = Made::Part { message: goes.cursor, position: goes.position };
        let opened_in = turn.filter(|_| self.open).map(|turn| turn.cursor);
        let entry = self.part.put(tx, place, goes, opened_in)?;
        Ok(Effect::new(made, Some(entry)))
    }
}

/// How long the text of a part can become.
pub(super) const TEXT_BYTES_MAX: u64 = CONTENT_BYTES_MAX;
