//! Where a conversation ends: undo, redo, revert, and back.
//!
//! Nothing is taken away. What lies beyond the end is not shown, and comes back with it, until something new
//! begins; then it is left behind, at a checkpoint.

use super::checkpoint::{CheckpointMade, bounded};
use super::{Also, Effect, Kind, NotApplied, Place, entry, found};
use crate::model::code::{Code, Coded};
use crate::model::ids::{Cursor, MessageId, PartId};
use crate::model::infos::Role;
use crate::model::ledger::Made;
use crate::model::timeline::{Boundary, Reverted, Segment, Timeline, shown_of};
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};

/// Where somebody wants a conversation to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetHead {
    /// Where it ended before anything was reverted.
    End,
    /// Before a message, or a part of one.
    Before(MessageId, Option<PartId>),
    /// As it was at a checkpoint.
    Checkpoint(String),
    /// Before the newest message of a user.
    Undo,
    /// One step of that back.
    Redo,
}

/// Why it cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No such checkpoint.
    #[error("the session has no checkpoint {0:?}")]
    CheckpointNotFound(String),
    /// It does not belong to the conversation any more.
    #[error("message {0} was left behind; a checkpoint may lead there")]
    LeftBehind(MessageId),
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Error::CheckpointNotFound(_) => Code::CheckpointNotFound,
            Error::LeftBehind(_) => Code::MessageNotFound,
        }
    }
}

/// How it stands in the history, version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadSet {
    /// The path of the conversation from then on.
    pub timeline: Timeline,
    /// The checkpoint it went back to; 0 for none.
    pub checkpoint: Cursor,
}

impl HeadSet {
    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        store::sessions::set_timeline(tx, place.log, &self.timeline)
    }
}

impl SetHead {
    pub(super) fn apply(&self, tx: &Tx<'_>, place: Place) -> Result<Effect<'static>, NotApplied> {
        let timeline =
            store::sessions::timeline(tx, place.log)?.ok_or(found::Error::SessionNotFound)?;
        found::idle(tx, place.log)?;
        let whole = &timeline.segments;
        let next = match self {
            SetHead::End => timeline.unreverted(),
            SetHead::Before(message, part) => {
                timeline.reverted_to(boundary(tx, place, whole, message, part.as_ref())?)
            }
            SetHead::Checkpoint(name) => return to_checkpoint(tx, place, &timeline, name),
            SetHead::Undo => match newest_user(tx, place, &before_end(&timeline))? {
                Some((cursor, id)) => timeline.reverted_to(whole_message(place, cursor, id)),
                None => return Ok(Effect::new(Made::Nothing, None)),
            },
            SetHead::Redo => match &timeline.reverted {
                None => return Ok(Effect::new(Made::Nothing, None)),
                Some(reverted) => match next_user(tx, place, whole, reverted.boundary.message)? {
                    Some((cursor, id)) => timeline.reverted_to(whole_message(place, cursor, id)),
                    None => timeline.unreverted(),
                },
            },
        };
        let same = match (&next.reverted, &timeline.reverted) {
            (Some(next), Some(before)) => next.boundary == before.boundary,
            (next, before) => next.is_none() && before.is_none(),
        };
        if same {
            return Ok(Effect::new(Made::Nothing, None));
        }
        let set = HeadSet { timeline: next, checkpoint: Cursor(0) };
        set.project(tx, place)?;
        Ok(Effect::new(Made::Nothing, entry(Kind::SetHead, 1, &set)?))
    }
}

/// What is shown and was there when something was reverted: undoing goes on from there.
fn before_end(timeline: &Timeline) -> Vec<Segment> {
    timeline.shown()
}

/// Before a whole message.
fn whole_message(place: Place, cursor: Cursor, message: MessageId) -> Reverted {
    let boundary = Boundary { message: cursor, part: 0, at: cursor };
    Reverted { boundary, message, part: None, since: place.cursor }
}

/// The boundary before a message or a part: in the middle of a message only if something of it is left then;
/// otherwise before the whole turn.
fn boundary(
    tx: &Tx<'_>,
    place: Place,
    segments: &[Segment],
    message: &MessageId,
    part: Option<&PartId>,
) -> Result<Reverted, NotApplied> {
    let standing = found::message(tx, place.log, message)?;
    let shown = shown_of(segments, standing.cursor)
        .ok_or_else(|| NotApplied::from(Error::LeftBehind(message.clone())))?;
    if let Some(id) = part {
        let found = found::part(tx, place.log, standing.cursor, id)?
            .filter(|found| found.position < shown)
            .ok_or_else(|| found::Error::PartNotFound(message.clone(), id.clone()))?;
        for position in 1..found.position {
            let before = found::part_at(tx, place.log, standing.cursor, position)?;
            let says = before.as_ref().map(found::says_something).transpose()?.unwrap_or(false);
            if says {
                let (part, at) = (found.position, found.added);
                let boundary = Boundary { message: standing.cursor, part, at };
                let (message, part) = (message.clone(), Some(id.clone()));
                return Ok(Reverted { boundary, message, part, since: place.cursor });
            }
        }
    }
    let up_to: Vec<Segment> = segments
        .iter()
        .filter(|segment| segment.from <= standing.cursor)
        .map(|segment| Segment { to: segment.to.min(standing.cursor.next()), ..*segment })
        .collect();
    Ok(match newest_user(tx, place, &up_to)? {
        Some((cursor, id)) => whole_message(place, cursor, id),
        None => whole_message(place, standing.cursor, message.clone()),
    })
}

fn newest_user(
    tx: &Tx<'_>,
    place: Place,
    segments: &[Segment],
) -> Result<Option<(Cursor, MessageId)>, StoreError> {
    for segment in segments.iter().rev() {
        let found = store::messages::newest_in(tx, place.log, *segment, Some(Role::User))?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The first message of a user behind a place.
fn next_user(
    tx: &Tx<'_>,
    place: Place,
    segments: &[Segment],
    behind: Cursor,
) -> Result<Option<(Cursor, MessageId)>, StoreError> {
    for segment in segments {
        let rest = Segment { from: segment.from.max(behind.next()), ..*segment };
        let found = store::messages::oldest_of_user(tx, place.log, rest)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Back to how it was at a checkpoint. What it leads away from can be reached by another one.
fn to_checkpoint(
    tx: &Tx<'_>,
    place: Place,
    timeline: &Timeline,
    name: &str,
) -> Result<Effect<'static>, NotApplied> {
    let checkpoint = store::checkpoints::named(tx, place.log, name)?
        .ok_or_else(|| NotApplied::from(Error::CheckpointNotFound(name.to_owned())))?;
    // All of it: what is reverted, and what was said on top of that.
    let path = timeline.unreverted().closed(place.cursor);
    bounded(&path)?;
    bounded(&checkpoint.path)?;
    // The op that goes back, and the one about what it leads away from.
    let goes_on = place.later(2).cursor;
    let next = Timeline::going_on(checkpoint.path, goes_on);
    let set = HeadSet { timeline: next, checkpoint: checkpoint.cursor };
    let left = CheckpointMade::automatic(tx, place.later(1), path, None)?;
    set.project(tx, place)?;
    let (log, granted) = (place.log, place.granted);
    let also = vec![Also { log, entry: left.make(tx, place.later(1))?, granted }];
    let effect = Effect::new(Made::Nothing, entry(Kind::SetHead, 1, &set)?);
    Ok(Effect { also, ..effect })
}
