//! What the server writes down of the files of work trees, once something was done to them.
//!
//! Looking through a work tree takes its time, and putting files back does. So these are no ops of a producer, with a
//! number for which others would wait: they are known by the name of the call, and a repeat finds what was recorded.

use super::drop_snapshots::DropSnapshots;
use super::measure_turn::MeasureTurn;
use super::move_files::{MoveFiles, MoveSession};
use super::open_worktree::OpenWorktree;
use super::take_snapshot::TakeSnapshot;
use super::{Also, NotApplied, Place};
use crate::model::ids::{Cursor, GrantKey, LogId};
use crate::model::worktree::{SnapshotKey, WorktreeKey};
use crate::store::{self, StoreError, Tx};

/// Something to be written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// See [`super::open_worktree`].
    OpenWorktree(OpenWorktree),
    /// See [`super::take_snapshot`].
    TakeSnapshot(Box<TakeSnapshot>),
    /// See [`super::move_files`].
    MoveFiles(Box<MoveFiles>),
    /// See [`super::move_files`].
    MoveSession(Box<MoveSession>),
    /// See [`super::measure_turn`].
    MeasureTurn(Box<MeasureTurn>),
    /// See [`super::drop_snapshots`].
    DropSnapshots(DropSnapshots),
}

/// What was written down, now or before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recorded {
    /// A work tree is known.
    Worktree(WorktreeKey),
    /// A snapshot was taken, under this number.
    Snapshot(SnapshotKey, Cursor),
    /// Files were changed; where in the work tree's log that stands.
    Moved(Cursor),
    /// Nothing more to tell.
    Done,
}

/// What is written into which log, gathered as it is decided.
pub(super) struct Saying<'a, 't> {
    pub(super) tx: &'a Tx<'t>,
    pub(super) now_ms: u64,
    pub(super) granted: GrantKey,
    pub(super) said: Vec<Also>,
}

impl Saying<'_, '_> {
    /// Where the next op in a log stands.
    pub(super) fn place(&self, log: LogId) -> Result<Place, StoreError> {
        let head = store::logs::get(self.tx, log)?.head.0;
        let said = self.said.iter().filter(|also| also.log == log).count() as u64;
        let (now_ms, granted) = (self.now_ms, self.granted);
        Ok(Place { log, cursor: Cursor(head + said + 1), now_ms, granted, only_own: false })
    }

    /// Says it there.
    pub(super) fn say(&mut self, log: LogId, entry: super::Entry<'static>) {
        self.said.push(Also { log, entry, granted: self.granted });
    }
}

impl Record {
    /// Which log it is for, first of all.
    pub fn log(&self) -> LogId {
        match self {
            Record::OpenWorktree(open) => open.project.log,
            Record::TakeSnapshot(take) => take.worktree,
            Record::MoveFiles(moved) => moved.worktree,
            Record::MoveSession(moved) => moved.session,
            Record::MeasureTurn(measure) => measure.session,
            Record::DropSnapshots(dropped) => dropped.worktree,
        }
    }

    /// About how much it takes up.
    pub fn bytes(&self) -> usize {
        let conflicts = |paths: &[(Vec<u8>, u8)]| paths.iter().map(|it| it.0.len() + 16).sum();
        match self {
            Record::TakeSnapshot(take) => {
                take.claims.iter().map(|it| it.0.len() + 16).sum::<usize>() + 1024
            }
            Record::MoveFiles(moved) => conflicts(&moved.done.conflicts),
            Record::MoveSession(moved) => conflicts(&moved.done.conflicts),
            Record::MeasureTurn(measure) => {
                measure.diffs.iter().map(|it| it.file.len() + it.patch.len() + 64).sum()
            }
            Record::OpenWorktree(_) | Record::DropSnapshots(_) => 1024,
        }
    }
}

/// Writes it down, and tells what stands in which log about it.
pub(crate) fn record(
    tx: &Tx<'_>,
    now_ms: u64,
    granted: GrantKey,
    record: &Record,
) -> Result<(Recorded, Vec<Also>), NotApplied> {
    let mut saying = Saying { tx, now_ms, granted, said: Vec::new() };
    let recorded = match record {
        Record::OpenWorktree(open) => open.record(&mut saying)?,
        Record::TakeSnapshot(take) => take.record(&mut saying)?,
        Record::MoveFiles(moved) => moved.record(&mut saying)?,
        Record::MoveSession(moved) => moved.record(&mut saying)?,
        Record::MeasureTurn(measure) => measure.record(&mut saying)?,
        Record::DropSnapshots(dropped) => dropped.record(&mut saying)?,
    };
    Ok((recorded, saying.said))
}
