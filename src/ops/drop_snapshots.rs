//! Snapshots nobody names any more are let go of. What they held goes with the next collection.

use super::record::{Recorded, Saying};
use super::{Kind, NotApplied, Place, encoded};
use crate::model::ids::LogId;
use crate::model::worktree::CallName;
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};

/// What is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropSnapshots {
    /// Of which work tree.
    pub worktree: LogId,
    /// Which snapshots.
    pub snapshots: Vec<LogId>,
    /// What calls did to files; they cannot be taken back any more.
    pub moves: Vec<CallName>,
}

/// How it stands in the history, version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotsDropped {
    /// Which snapshots.
    pub snapshots: Vec<LogId>,
    /// Which moves.
    pub moves: Vec<CallName>,
}

impl SnapshotsDropped {
    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        for snapshot in &self.snapshots {
            store::snapshots::forget(tx, *snapshot)?;
        }
        for name in &self.moves {
            store::snapshots::forget_move(tx, place.log, *name)?;
        }
        Ok(())
    }
}

impl DropSnapshots {
    pub(super) fn record(&self, saying: &mut Saying<'_, '_>) -> Result<Recorded, NotApplied> {
        let place = saying.place(self.worktree)?;
        let (snapshots, moves) = (self.snapshots.clone(), self.moves.clone());
        let dropped = SnapshotsDropped { snapshots, moves };
        dropped.project(saying.tx, place)?;
        for snapshot in &dropped.snapshots {
            // It may only be hidden: then its log goes with it.
            if !store::snapshots::is_there(saying.tx, *snapshot)? {
                store::logs::set_removed(saying.tx, *snapshot)?;
            }
        }
        saying.say(self.worktree, encoded(Kind::DropSnapshots, 1, &dropped)?);
        Ok(Recorded::Done)
    }
}
