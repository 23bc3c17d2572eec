//! Where a conversation ends: undo, redo, revert, and back.
//!
//! Nothing is taken away. What lies beyond the end is not shown, and comes back with it, until something new
//! begins; then it is left behind, at a checkpoint.

use super::checkpoint::{CheckpointMade, bounded};
use super::said::whole;
use super::{Also, Effect, Entry, Kind, NotApplied, Place, encoded, found};
use crate::model::code::{Code, Coded};
use crate::model::ids::{Cursor, MessageId, PartId};
use crate::model::infos::Role;
use crate::model::ledger::Made;
use crate::model::timeline::{Boundary, Reverted, Segment, Timeline, shown_of};
use crate::model::worktree::{CallName, FilesReverted};
use crate::store::{self, Read, StoreError, Tx};
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
    /// Files do not go along to a checkpoint.
    #[error(
        "files go along with undo, redo, a message or the end; to a checkpoint only the conversation goes (setHead)"
    )]
    FilesStay,
    /// It does not belong to the conversation any more.
    #[error("message {0} was left behind; a checkpoint may lead there")]
    LeftBehind(MessageId),
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Error::CheckpointNotFound(_) => Code::CheckpointNotFound,
            Error::FilesStay => Code::OpMalformed,
            Error::LeftBehind(_) => Code::MessageNotFound,
        }
    }
}

/// How it stands in the history, version 1; version 2 says also what became of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadSet {
    /// The path of the conversation from then on.
    pub timeline: Timeline,
    /// The checkpoint it went back to; 0 for none.
    pub checkpoint: Cursor,
    /// What became of the files.
    pub files: Files,
    /// The call that said so, if it has a name.
    pub name: Option<CallName>,
}

/// What becomes of the files when a conversation is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Files {
    /// Nothing.
    Stay,
    /// They went along, or came back.
    Are(Option<FilesReverted>),
}

#[derive(Serialize, Deserialize)]
struct HeadSetV1 {
    timeline: Timeline,
    checkpoint: Cursor,
}

#[derive(Serialize, Deserialize)]
struct HeadSetV2 {
    timeline: Timeline,
    checkpoint: Cursor,
    stays: bool,
    files: Option<FilesReverted>,
    name: Option<CallName>,
}

impl HeadSet {
    /// Reads one back.
    pub(super) fn read(version: u16, payload: &[u8]) -> Result<Self, postcard::Error> {
        Ok(match version {
            1 => {
                let HeadSetV1 { timeline, checkpoint } = whole(payload)?;
                Self { timeline, checkpoint, files: Files::Stay, name: None }
            }
            _ => {
                let HeadSetV2 { timeline, checkpoint, stays, files, name } = whole(payload)?;
                let files = if stays { Files::Stay } else { Files::Are(files) };
                Self { timeline, checkpoint, files, name }
            }
        })
    }

    fn entry(&self) -> Result<Entry<'static>, StoreError> {
        let (timeline, checkpoint, name) = (self.timeline.clone(), self.checkpoint, self.name);
        let (stays, files) = match self.files {
            Files::Stay if name.is_none() => {
                return encoded(Kind::SetHead, 1, &HeadSetV1 { timeline, checkpoint });
            }
            Files::Stay => (true, None),
            Files::Are(files) => (false, files),
        };
        encoded(Kind::SetHead, 2, &HeadSetV2 { timeline, checkpoint, stays, files, name })
    }

    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        store::sessions::set_timeline(tx, place.log, &self.timeline)?;
        if let Some(name) = self.name {
            store::snapshots::note_revert(tx, place.log, name)?;
        }
        match self.files {
            Files::Stay => Ok(()),
            Files::Are(files) => store::snapshots::set_reverted(tx, place.log, files.as_ref()),
        }
    }
}

/// Says where a conversation ends from now on; nothing if nothing is different, and nobody has to be known for it.
pub(super) fn say(
    tx: &Tx<'_>,
    place: Place,
    next: Option<Timeline>,
    files: Files,
    name: Option<CallName>,
) -> Result<Option<Entry<'static>>, NotApplied> {
    let timeline = match (next, files) {
        (Some(next), _) => next,
        (None, Files::Stay) if name.is_none() => return Ok(None),
        (None, _) => {
            store::sessions::timeline(tx, place.log)?.ok_or(found::Error::SessionNotFound)?
        }
    };
    let set = HeadSet { timeline, checkpoint: Cursor(0), files, name };
    set.project(tx, place)?;
    Ok(Some(set.entry()?))
}

impl SetHead {
    pub(super) fn apply(&self, tx: &Tx<'_>, place: Place) -> Result<Effect<'static>, NotApplied> {
        if let SetHead::Checkpoint(name) = self {
            let timeline =
                store::sessions::timeline(tx, place.log)?.ok_or(found::Error::SessionNotFound)?;
            found::idle(tx, place.log)?;
            return to_checkpoint(tx, place, &timeline, name);
        }
        let next = self.decide(tx, place)?;
        Ok(Effect::new(Made::Nothing, say(tx, place, next, Files::Stay, None)?))
    }

    /// What the conversation would be like; none if it would stay as it is.
    pub(crate) fn decide(
        &self,
        read: &Read<'_>,
        place: Place,
    ) -> Result<Option<Timeline>, NotApplied> {
        let timeline =
            store::sessions::timeline(read, place.log)?.ok_or(found::Error::SessionNotFound)?;
        found::idle(read, place.log)?;
        let whole = &timeline.segments;
        let next = match self {
            SetHead::End => timeline.unreverted(),
            SetHead::Before(message, part) => {
                timeline.reverted_to(boundary(read, place, whole, message, part.as_ref())?)
            }
            SetHead::Checkpoint(_) => return Err(Error::FilesStay.into()),
            SetHead::Undo => match newest_user(read, place, &before_end(&timeline))? {
                Some((cursor, id)) => timeline.reverted_to(whole_message(place, cursor, id)),
                None => return Ok(None),
            },
            SetHead::Redo => match &timeline.reverted {
                None => return Ok(None),
                Some(reverted) => match next_user(read, place, whole, reverted.boundary.message)? {
                    Some((cursor, id)) => timeline.reverted_to(whole_message(place, cursor, id)),
                    None => timeline.unreverted(),
                },
            },
        };
        let same = match (&next.reverted, &timeline.reverted) {
            (Some(next), Some(before)) => next.boundary == before.boundary,
            (next, before) => next.is_none() && before.is_none(),
        };
        Ok((!same).then_some(next))
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
    tx: &Read<'_>,
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
    tx: &Read<'_>,
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
    tx: &Read<'_>,
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
    let set =
        HeadSet { timeline: next, checkpoint: checkpoint.cursor, files: Files::Stay, name: None };
    let left = CheckpointMade::automatic(tx, place.later(1), path, None)?;
    set.project(tx, place)?;
    let (log, granted) = (place.log, place.granted);
    let also = vec![Also { log, entry: left.make(tx, place.later(1))?, granted }];
    let effect = Effect::new(Made::Nothing, Some(set.entry()?));
    Ok(Effect { also, ..effect })
}
