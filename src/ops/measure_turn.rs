//! What a turn did to files, as the snapshots tell it, once it has ended.

use super::record::{Recorded, Saying};
use super::{Kind, NotApplied, Place, encoded, found};
use crate::model::ids::{Cursor, LogId};
use crate::model::page::Page;
use crate::model::session::FileDiff;
use crate::model::turn::Summary;
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};

/// What came of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasureTurn {
    /// In which session.
    pub session: LogId,
    /// Where it was begun.
    pub turn: Cursor,
    /// In numbers.
    pub summary: Summary,
    /// And file by file.
    pub diffs: Vec<FileDiff>,
}

/// How it stands in the history, version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnMeasured {
    /// Where it was begun.
    pub cursor: Cursor,
    /// In numbers.
    pub summary: Summary,
    /// And file by file.
    pub diffs: Vec<FileDiff>,
}

impl TurnMeasured {
    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        store::turns::set_summary(tx, place.log, self.cursor, self.summary)?;
        store::turns::set_diffs(tx, place.log, self.cursor, &self.diffs)
    }
}

impl MeasureTurn {
    pub(super) fn record(&self, saying: &mut Saying<'_, '_>) -> Result<Recorded, NotApplied> {
        let turn = store::turns::at(saying.tx, self.session, self.turn)?
            .ok_or(found::Error::SessionNotFound)?;
        // Whoever ended it may have known better.
        let told = store::turns::diffs(saying.tx, self.session, self.turn, Page::new(0, 1, false))?;
        if turn.summary != Summary::default() || !told.items.is_empty() {
            return Ok(Recorded::Done);
        }
        let place = saying.place(self.session)?;
        let measured =
            TurnMeasured { cursor: self.turn, summary: self.summary, diffs: self.diffs.clone() };
        measured.project(saying.tx, place)?;
        saying.say(self.session, encoded(Kind::MeasureTurn, 1, &measured)?);
        Ok(Recorded::Done)
    }
}
