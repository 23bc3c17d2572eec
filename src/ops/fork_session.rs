//! A session of its own that begins with a copy of another one's conversation.
//!
//! The copy is independent from the first moment on: what becomes of one does not touch the other. It is made
//! message by message, so a long one takes no more memory than a short one.

use super::create_session::CreateSession;
use super::found::{self, odd};
use super::put_message::{MessagePut, PutMessage};
use super::put_part::{PartHead, PartPut};
use super::take_snapshot::SnapshotNoted;
use super::{Also, Effect, Entry, Fill, Kind, NotApplied, NotOwn, Place, encoded, entry};
use crate::limits::PAGE_BYTES_MAX;
use crate::model::content::{ApartPart, Copied, MessageFacts, Whole};
use crate::model::ids::{Cursor, LogId, MessageId, OpId, SessionId};
use crate::model::infos::{Role, SessionKey};
use crate::model::ledger::Made;
use crate::model::page::Page;
use crate::model::session::{Details, ForkedFrom, fork_title};
use crate::model::timeline::{Segment, holds, shown_of};
use crate::store::messages::StoredMessage;
use crate::store::snapshots::Noted;
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// The fork somebody wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkSession {
    /// Of which session.
    pub source: SessionId,
    /// Under which id; none for one that is made.
    pub id: Option<SessionId>,
    /// With which title; none for that of the source, numbered.
    pub title: Option<String>,
    /// Before which message it leaves; none for all of it.
    pub before: Option<MessageId>,
}

/// How it stands in the history of the source, version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forked {
    /// The fork.
    pub session: SessionKey,
    /// Before which message it left.
    pub before: Option<MessageId>,
}

impl ForkSession {
    pub(super) fn apply(
        &self,
        tx: &Tx<'_>,
        place: Place,
        op: OpId,
    ) -> Result<Effect<'static>, NotApplied> {
        if place.only_own {
            return Err(NotOwn.into());
        }
        let info = store::sessions::info(tx, place.log)?.ok_or(found::Error::SessionNotFound)?;
        let mut segments = info.timeline.closed(place.cursor);
        if let Some(before) = &self.before {
            let at = found::message(tx, place.log, before)?.cursor;
            if shown_of(&segments, at).is_none() {
                return Err(found::Error::MessageNotFound(before.clone()).into());
            }
            segments.retain(|segment| segment.from < at);
            for segment in &mut segments {
                if segment.to >= at {
                    (segment.to, segment.part) = (at, 0);
                }
            }
        }
        // A copy of something that is still being said would never be finished.
        for message in store::turns::messages_under_way(tx, place.log)? {
            let at = store::messages::cursor_of(tx, place.log, &message)?;
            if at.is_some_and(|at| shown_of(&segments, at).is_some()) {
                return Err(found::Error::Busy.into());
            }
        }
        let title = self.title.clone().unwrap_or_else(|| fork_title(&info.title));
        let project = store::logs::get(tx, place.log)?.project.unwrap_or(place.log);
        let details = Details {
            directory: info.details.directory,
            path: info.details.path,
            metadata: info.details.metadata,
            version: info.details.version,
            ..Details::default()
        };
        let create = CreateSession::with(self.id.clone(), &title, details)?;
        let id = create.check(tx, project, op)?;
        // Checked; from here on it is written.
        let mut last = None;
        for segment in segments.iter().rev() {
            last = store::messages::newest_in(tx, place.log, *segment, None)?;
            if last.is_some() {
                break;
            }
        }
        let forked_from = ForkedFrom {
            session: self.source.clone(),
            cursor: Cursor(place.cursor.0 - 1),
            message: last.map(|(_, id)| id),
        };
        let cursor = store::logs::get(tx, project)?.head.next();
        let in_project = Place { log: project, cursor, ..place };
        let (key, created) = create.make_fork(tx, in_project, id, op, forked_from)?;
        let granted = place.granted;
        let also = created.map(|entry| Also { log: project, entry, granted }).into_iter().collect();
        let copying = Copying::new(tx, place.log, segments, op)?;
        let fill = Fill::new(key.log, granted, move |tx, place| copying_next(&copying, tx, place));
        let forked = Forked { session: key.clone(), before: self.before.clone() };
        let effect = Effect::new(Made::Session(key), entry(Kind::ForkSession, 1, &forked)?);
        Ok(Effect { also, fill: Some(fill), ..effect })
    }
}

/// How far the copy is.
struct Copying {
    source: LogId,
    segments: Vec<Segment>,
    op: OpId,
    after: Cell<u64>,
    ready: RefCell<VecDeque<StoredMessage>>,
    /// Parts of a message that is too large for one op, to be put one by one.
    parts: RefCell<VecDeque<Entry<'static>>>,
    /// A message more parts of which are to come.
    under_way: RefCell<Option<Large>>,
    /// Snapshots the source knows of, that are not told yet.
    notes: RefCell<VecDeque<(Cursor, Noted)>>,
}

/// A message that is copied piece by piece.
struct Large {
    message: StoredMessage,
    /// Its copy.
    id: MessageId,
    role: Role,
    cursor: Cursor,
    /// Parts up to this position are copied.
    after: u32,
    /// And so many they were.
    copied: u32,
}

impl Copying {
    fn new(
        tx: &Tx<'_>,
        source: LogId,
        segments: Vec<Segment>,
        op: OpId,
    ) -> Result<Self, StoreError> {
        let (after, ready, parts, under_way) = Default::default();
        let mut notes = store::snapshots::notes(tx, source, Cursor(u64::MAX >> 1))?;
        notes.retain(|(cursor, _)| holds(&segments, *cursor));
        let notes = RefCell::new(notes.into());
        Ok(Self { source, segments, op, after, ready, parts, under_way, notes })
    }

    /// The next snapshot, if it was taken before the next message was added.
    fn next_note(&self, tx: &Tx<'_>) -> Result<Option<Noted>, StoreError> {
        let next = self.next(tx)?;
        let message = next.as_ref().map(|message| message.cursor);
        // It is not its turn yet, or not alone.
        next.into_iter().for_each(|message| self.ready.borrow_mut().push_front(message));
        let mut notes = self.notes.borrow_mut();
        let due = notes.front().is_some_and(|(at, _)| message.is_none_or(|message| *at < message));
        Ok(if due { notes.pop_front().map(|(_, noted)| noted) } else { None })
    }

    fn next(&self, tx: &Tx<'_>) -> Result<Option<StoredMessage>, StoreError> {
        let mut ready = self.ready.borrow_mut();
        if ready.is_empty() {
            let page = Page::new(self.after.get(), 0, false);
            let found = store::messages::page(tx, self.source, &self.segments, page)?;
            self.after.set(found.next.0);
            ready.extend(found.items);
        }
        Ok(ready.pop_front())
    }

    /// A copy of a message with its parts behind a position, as many as are held in memory at a time; and behind
    /// which the next ones are, if there are more.
    fn piece(
        &self,
        tx: &Tx<'_>,
        message: &StoredMessage,
        id: &MessageId,
        (after, first): (u32, u32),
    ) -> Result<(Copied, Option<u32>), StoreError> {
        let source = self.source;
        let limit = shown_of(&self.segments, message.cursor).unwrap_or(u32::MAX);
        let (put, cut) =
            store::parts::of_message(tx, source, message.cursor, after, PAGE_BYTES_MAX)?;
        let last = put.last().filter(|_| cut).map_or(u32::MAX, |part| part.position);
        let base = MessagePut::of_payload(message.version, &message.payload)?;
        let count = found::Base::read(tx, source, message.cursor)?
            .map(|base| base.count())
            .transpose()?
            .unwrap_or(0);
        // What lies beyond the end of a message that is kept in part is left out, and what is not in this piece.
        let (from, to) = (after + 1, last.min(limit.saturating_sub(1)));
        let mut parts: Vec<_> = (1..=count.min(after)).map(|position| (position, None)).collect();
        let here = put.into_iter().map(|part| (part.position, part.content));
        parts.extend(here.filter(|(position, _)| (from..=to).contains(position)));
        parts.extend((from.max(to.saturating_add(1))..=count).map(|position| (position, None)));
        let known = |original: &str| {
            let original = MessageId::parse(original).ok()?;
            let at: Cursor = store::messages::cursor_of(tx, source, &original).ok()??;
            shown_of(&self.segments, at)?;
            Some(MessageId::copied_by(self.op, original.as_str()).as_str().to_owned())
        };
        let whole = Whole { base, info: message.info.as_deref(), parts: &parts, first };
        Ok((
            whole.copied(id, known).map_err(odd)?,
            (cut && last < limit.saturating_sub(1)).then_some(last),
        ))
    }

    /// Lets the parts of a piece follow one by one.
    fn follow(&self, large: &mut Large, parts: Vec<ApartPart>) -> Result<(), StoreError> {
        for (part, facts, content) in parts {
            let (message, cursor, open, added) = (large.id.clone(), large.cursor, false, None);
            large.copied += 1;
            let (role, position) = (large.role, large.copied);
            let head = PartHead { message, cursor, role, position, id: part, facts, open, added };
            let put = PartPut { head, content: content.into() };
            self.parts.borrow_mut().push_back(put.entry(None)?);
        }
        Ok(())
    }

    /// The next part of a message that is copied piece by piece.
    fn next_part(&self, tx: &Tx<'_>) -> Result<Option<Entry<'static>>, StoreError> {
        loop {
            if let Some(part) = self.parts.borrow_mut().pop_front() {
                return Ok(Some(part));
            }
            let Some(mut large) = self.under_way.take() else { return Ok(None) };
            let place = (large.after, large.copied);
            let (copied, more) = self.piece(tx, &large.message, &large.id, place)?;
            self.follow(&mut large, copied.apart().map_err(odd)?.1)?;
            if let Some(after) = more {
                self.under_way.replace(Some(Large { after, ..large }));
            }
        }
    }
}

/// The next message of a copy, as the op that puts it.
fn copying_next(
    copying: &Copying,
    tx: &Tx<'_>,
    place: Place,
) -> Result<Option<Entry<'static>>, StoreError> {
    if let Some(part) = copying.next_part(tx)? {
        // Decided with its message, and made to follow where it stands.
        PartPut::read(&part.payload).map_err(unreadable)?.project(tx, place)?;
        return Ok(Some(part));
    }
    if let Some(noted) = copying.next_note(tx)?
        && let Some(info) = store::snapshots::info(tx, noted.snapshot)?
    {
        let (key, tree) = (info.snapshot.key, info.snapshot.tree);
        let noted = SnapshotNoted { key, number: noted.number, tree, by: noted.by };
        noted.project(tx, place)?;
        return encoded(Kind::NoteSnapshot, 1, &noted).map(Some);
    }
    let Some(message) = copying.next(tx)? else { return Ok(None) };
    let id = MessageId::copied_by(copying.op, message.id.as_str());
    let (copied, more) = copying.piece(tx, &message, &id, (0, 0))?;
    let role = store::messages::standing(tx, copying.source, &message.id)?
        .map_or(Role::User, |standing| standing.role);
    if more.is_none() && !copied.is_large() {
        let put = PutMessage::of_copy(id, role, copied.facts, &copied.content);
        return put.put_in(tx, place, Cursor(0)).map(Some);
    }
    let (content, parts) = copied.apart().map_err(odd)?;
    let facts = MessageFacts { summing_up: copied.facts.summing_up, ..MessageFacts::default() };
    let entry = PutMessage::of_copy(id.clone(), role, facts, &content);
    let mut large = Large { message, id, role, cursor: place.cursor, after: 0, copied: 0 };
    copying.follow(&mut large, parts)?;
    if let Some(after) = more {
        copying.under_way.replace(Some(Large { after, ..large }));
    }
    entry.put_in(tx, place, Cursor(0)).map(Some)
}

fn unreadable(error: postcard::Error) -> StoreError {
    StoreError::Corrupt(format!("a part that was just written: {error}"))
}
