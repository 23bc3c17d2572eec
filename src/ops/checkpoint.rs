//! A place in a conversation is given a name, to come back to.

use super::{Effect, Entry, Kind, NotApplied, Place, encoded, found};
use crate::limits::{CHECKPOINTS_MAX, TIMELINE_SEGMENTS_MAX, TITLE_BYTES_MAX};
use crate::model::code::{Code, Coded};
use crate::model::ledger::Made;
use crate::model::timeline::{Segment, Timeline};
use crate::store::checkpoints::Checkpoint;
use crate::store::{self, Read, StoreError, Tx};
use serde::{Deserialize, Serialize};

/// A name somebody wants for where the conversation is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MakeCheckpoint {
    name: String,
}

/// Why it cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Longer than anybody reads.
    #[error("the name is {bytes} bytes long; the most accepted is {TITLE_BYTES_MAX}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Those are the server's own.
    #[error("the name of a checkpoint must not be empty, nor begin with \"@\"")]
    Reserved,
    /// The path is as long as it may be.
    #[error(
        "the conversation has gone back and on {TIMELINE_SEGMENTS_MAX} times, which is the most accepted"
    )]
    TooWinding,
    /// More than anybody goes back to.
    #[error(
        "the session has {CHECKPOINTS_MAX} checkpoints with a name, which is the most accepted"
    )]
    TooMany,
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Error::TooLong { .. } => Code::TitleTooLong,
            Error::Reserved => Code::OpMalformed,
            Error::TooWinding | Error::TooMany => Code::TooManyCheckpoints,
        }
    }
}

/// How it stands in the history, version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointMade {
    /// Its name.
    pub name: String,
    /// Whether the server made it, because something was left behind.
    pub automatic: bool,
    /// The way there.
    pub path: Vec<Segment>,
    /// The last message then; may be empty.
    pub message: String,
    /// The path of the conversation from here on, if that changes.
    pub timeline: Option<Timeline>,
}

/// How letting one go stands in the history, version 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointDropped {
    /// Where it had been made.
    pub cursor: crate::model::ids::Cursor,
}

impl CheckpointDropped {
    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        store::checkpoints::drop_at(tx, place.log, self.cursor)
    }
}

impl CheckpointMade {
    /// Of what is reverted, if something is: it can still be reached when the conversation goes on without it.
    pub(super) fn of_left_behind(
        tx: &Tx<'_>,
        place: Place,
        timeline: &Timeline,
    ) -> Result<Option<Self>, NotApplied> {
        let Some(path) = timeline.hidden() else { return Ok(None) };
        let after = timeline.left_behind();
        bounded(&after.segments)?;
        Self::automatic(tx, place, path, Some(after)).map(Some).map_err(Into::into)
    }

    /// One of the server's own.
    pub(super) fn automatic(
        read: &Read<'_>,
        place: Place,
        path: Vec<Segment>,
        timeline: Option<Timeline>,
    ) -> Result<Self, StoreError> {
        let message = last_message(read, place, &path)?;
        let name = format!("@{}", place.cursor.0);
        Ok(Self { name, automatic: true, path, message, timeline })
    }

    /// Makes it; what goes into the history.
    pub(super) fn make(&self, tx: &Tx<'_>, place: Place) -> Result<Entry<'static>, StoreError> {
        self.project(tx, place)?;
        encoded(Kind::MakeCheckpoint, 1, self)
    }

    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        let checkpoint = Checkpoint {
            cursor: place.cursor,
            name: self.name.clone(),
            automatic: self.automatic,
            path: self.path.clone(),
            message: self.message.clone(),
            created_at_ms: place.now_ms,
        };
        store::checkpoints::create(tx, place.log, &checkpoint)?;
        match &self.timeline {
            Some(timeline) => store::sessions::set_timeline(tx, place.log, timeline),
            None => Ok(()),
        }
    }
}

/// A path that is not too long to be kept.
pub(super) fn bounded(path: &[Segment]) -> Result<(), Error> {
    match path.len() {
        length if length > TIMELINE_SEGMENTS_MAX => Err(Error::TooWinding),
        _ => Ok(()),
    }
}

/// The last message of a path.
fn last_message(read: &Read<'_>, place: Place, path: &[Segment]) -> Result<String, StoreError> {
    for segment in path.iter().rev() {
        if let Some((_, id)) = store::messages::newest_in(read, place.log, *segment, None)? {
            return Ok(id.as_str().to_owned());
        }
    }
    Ok(String::new())
}

impl MakeCheckpoint {
    /// A name that makes sense.
    pub fn new(name: &str) -> Result<Self, Error> {
        match name.len() {
            bytes if bytes > TITLE_BYTES_MAX => Err(Error::TooLong { bytes }),
            0 => Err(Error::Reserved),
            _ if name.starts_with('@') => Err(Error::Reserved),
            _ => Ok(Self { name: name.to_owned() }),
        }
    }

    pub(super) fn apply(&self, tx: &Tx<'_>, place: Place) -> Result<Effect<'static>, NotApplied> {
        let timeline =
            store::sessions::timeline(tx, place.log)?.ok_or(found::Error::SessionNotFound)?;
        found::idle(tx, place.log)?;
        if store::checkpoints::count_named(tx, place.log)? >= CHECKPOINTS_MAX {
            return Err(Error::TooMany.into());
        }
        let path = timeline.closed(place.cursor);
        bounded(&path)?;
        let message = last_message(tx, place, &path)?;
        let name = self.name.clone();
        let made = CheckpointMade { name, automatic: false, path, message, timeline: None };
        let entry = made.make(tx, place)?;
        Ok(Effect::new(Made::Nothing, Some(entry)))
    }
}
