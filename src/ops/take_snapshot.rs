//! A state of a work tree was taken down, and is wanted from now on.

use super::record::{Recorded, Saying};
use super::{Kind, NotApplied, Place, encoded, found};
use crate::model::code::{Code, Coded};
use crate::model::ids::{Cursor, LogId, ObjectId, OpId, SnapshotId};
use crate::model::turn::State;
use crate::model::worktree::{Actor, CallName, Occasion, Snapshot, SnapshotKey};
use crate::store::snapshots::Noted;
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};

/// A snapshot that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakeSnapshot {
    /// Of which work tree.
    pub worktree: LogId,
    /// By which call.
    pub name: CallName,
    /// What it holds.
    pub tree: ObjectId,
    /// What the one before it held, with what was put back since.
    pub base: Option<ObjectId>,
    /// What there was besides, and was not taken.
    pub unknown: Option<ObjectId>,
    /// The same for the one before it.
    pub base_unknown: Option<ObjectId>,
    /// Why it was taken.
    pub occasion: Occasion,
    /// For whom, if for a turn.
    pub by: Option<Actor>,
    /// Who was at work since.
    pub actors: Vec<Actor>,
    /// Who did what, as far as that is known though several were at work.
    pub claims: Vec<(Vec<u8>, u32)>,
    /// Files it holds.
    pub files: u64,
    /// How long they are.
    pub bytes: u64,
    /// What it took up.
    pub stored_bytes: u64,
    /// What was not taken.
    pub skipped: Vec<u64>,
}

/// Why it is not wanted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the worktree does not exist any more")]
struct WorktreeGone;

impl Coded for WorktreeGone {
    fn code(&self) -> Code {
        Code::WorktreeNotFound
    }
}

/// How it stands in the history of a session it was taken for, version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotNoted {
    /// Which.
    pub key: SnapshotKey,
    /// Its number among those of its work tree.
    pub number: Cursor,
    /// What it holds.
    pub tree: ObjectId,
    /// For whom.
    pub by: Actor,
}

impl SnapshotNoted {
    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        let (snapshot, worktree) = (self.key.log, self.key.worktree);
        let noted = Noted { snapshot, worktree, number: self.number, by: self.by };
        store::snapshots::note(tx, place.log, place.cursor, &noted)
    }
}

/// What follows from a snapshot.
pub(super) fn project(snapshot: &Snapshot, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
    store::snapshots::create(tx, snapshot, place.cursor, place.now_ms)
}

impl TakeSnapshot {
    pub(super) fn record(&self, saying: &mut Saying<'_, '_>) -> Result<Recorded, NotApplied> {
        let tx = saying.tx;
        if let Some(known) = store::snapshots::named(tx, self.worktree, self.name)? {
            return Ok(Recorded::Snapshot(known.snapshot.key, known.number));
        }
        let of = store::trees::at(tx, self.worktree)?.ok_or(WorktreeGone)?;
        if let Some(by) = self.by {
            self.check_turn(tx, by)?;
        }
        let place = saying.place(self.worktree)?;
        let log = store::logs::create(tx, of.project)?;
        let mut hasher = blake3::Hasher::new_derive_key("bowline snapshot id v1");
        hasher.update(of.id.as_str().as_bytes()).update(&self.name.0);
        let mut id = [0; 16];
        hasher.finalize_xof().fill(&mut id);
        let id = SnapshotId::made_by(OpId(id));
        let key = SnapshotKey { log, id, worktree: self.worktree };
        let snapshot = Snapshot {
            key: key.clone(),
            name: self.name,
            tree: self.tree,
            base: self.base,
            unknown: self.unknown,
            base_unknown: self.base_unknown,
            occasion: self.occasion,
            by: self.by,
            actors: self.actors.clone(),
            claims: self.claims.clone(),
            files: self.files,
            bytes: self.bytes,
            stored_bytes: self.stored_bytes,
            skipped: self.skipped.clone(),
        };
        project(&snapshot, tx, place)?;
        saying.say(self.worktree, encoded(Kind::TakeSnapshot, 1, &snapshot)?);
        if let Some(by) = self.by {
            let at = saying.place(by.session)?;
            let noted =
                SnapshotNoted { key: key.clone(), number: place.cursor, tree: self.tree, by };
            noted.project(tx, at)?;
            saying.say(by.session, encoded(Kind::NoteSnapshot, 1, &noted)?);
        }
        Ok(Recorded::Snapshot(key, place.cursor))
    }

    /// While a turn runs, its steps are taken down; once it has ended, only that.
    fn check_turn(&self, tx: &Tx<'_>, by: Actor) -> Result<(), NotApplied> {
        let turn = match store::logs::get(tx, by.session)?.removed {
            true => return Err(found::Error::SessionNotFound.into()),
            false => store::turns::at(tx, by.session, by.turn)?,
        };
        let turn = turn.ok_or(found::Error::SessionNotFound)?;
        if self.occasion == Occasion::TurnEnd {
            return Ok(());
        }
        turn.running()?;
        match turn.state {
            State::Queued => Err(found::Error::Queued(turn.id).into()),
            _ => Ok(()),
        }
    }
}
