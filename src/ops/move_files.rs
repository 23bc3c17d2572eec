//! Files of a work tree were put back; perhaps along with the conversation that had changed them.
//!
//! The files are as they are to be when this is decided. If it is refused, whoever moved them puts them back.

use super::record::{Recorded, Saying};
use super::set_head::{self, Files, SetHead};
use super::{Kind, NotApplied, Place, encoded};
use crate::model::code::{Code, Coded};
use crate::model::ids::LogId;
use crate::model::timeline::Timeline;
use crate::model::worktree::{FilesReverted, Move};
use crate::store::{self, StoreError, Tx};

/// Something that was done to files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveFiles {
    /// Of which work tree.
    pub worktree: LogId,
    /// What was done.
    pub done: Move,
}

/// The same along with a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveSession {
    /// Of which session.
    pub session: LogId,
    /// Where its conversation is to end.
    pub head: SetHead,
    /// What the conversation was to be like when the files were looked at; none if it was to stay as it is. If that is
    /// something else by now, nothing is done.
    pub planned: Option<Timeline>,
    /// Of which work tree; none if the session has touched none.
    pub worktree: Option<LogId>,
    /// What was done.
    pub done: Move,
}

/// Why it cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The work tree is gone.
    #[error("the worktree does not exist any more")]
    WorktreeGone,
    /// The conversation went on meanwhile.
    #[error("something happened in the session meanwhile; try again")]
    MovedOn,
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Error::WorktreeGone => Code::WorktreeNotFound,
            Error::MovedOn => Code::SessionBusy,
        }
    }
}

/// What follows from something that was done to files.
pub(super) fn project(done: &Move, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
    store::snapshots::create_move(tx, place.log, done, place.cursor, place.now_ms)
}

fn say(saying: &mut Saying<'_, '_>, worktree: LogId, done: &Move) -> Result<Recorded, NotApplied> {
    store::trees::at(saying.tx, worktree)?.ok_or(Error::WorktreeGone)?;
    let place = saying.place(worktree)?;
    project(done, saying.tx, place)?;
    saying.say(worktree, encoded(Kind::MoveFiles, 1, done)?);
    Ok(Recorded::Moved(place.cursor))
}

impl MoveFiles {
    pub(super) fn record(&self, saying: &mut Saying<'_, '_>) -> Result<Recorded, NotApplied> {
        if let Some(at) = store::snapshots::moved_at(saying.tx, self.worktree, self.done.name)? {
            return Ok(Recorded::Moved(at));
        }
        say(saying, self.worktree, &self.done)
    }
}

impl MoveSession {
    pub(super) fn record(&self, saying: &mut Saying<'_, '_>) -> Result<Recorded, NotApplied> {
        let (tx, name) = (saying.tx, self.done.name);
        if store::snapshots::was_reverted_by(tx, self.session, name)? {
            let at = match self.worktree {
                Some(worktree) => store::snapshots::moved_at(tx, worktree, name)?,
                None => None,
            };
            return Ok(at.map_or(Recorded::Done, Recorded::Moved));
        }
        let place = saying.place(self.session)?;
        let before = store::snapshots::reverted(tx, self.session)?;
        let moved = self.done.done > 0;
        let files = match (self.worktree, before, matches!(self.head, SetHead::End)) {
            // Everything is where it was.
            (_, Some(_), true) => Files::Are(None),
            (Some(worktree), None, false) if moved => {
                let since = saying.place(worktree)?.cursor;
                Files::Are(Some(FilesReverted { worktree, since }))
            }
            _ => Files::Stay,
        };
        // A refusal comes before anything is written.
        let next = self.head.decide(tx, place)?;
        let end = |timeline: &Option<Timeline>| {
            let reverted = timeline.as_ref().map(|it| it.reverted.as_ref().map(|it| it.boundary));
            (timeline.as_ref().map(|it| it.segments.clone()), reverted)
        };
        if end(&next) != end(&self.planned) {
            return Err(Error::MovedOn.into());
        }
        let files = if self.worktree.is_some() { files } else { Files::Stay };
        if let Some(entry) = set_head::say(tx, place, next, files, Some(name))? {
            saying.say(self.session, entry);
        }
        let recorded = match self.worktree {
            Some(worktree) => {
                let done = Move { session_at: place.cursor, ..self.done.clone() };
                say(saying, worktree, &done)?
            }
            None => Recorded::Done,
        };
        Ok(recorded)
    }
}
