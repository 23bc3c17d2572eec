//! Work trees and their snapshots, as they are told.

use crate::model::code::{Code, Coded};
use crate::model::ids::{Cursor, LogId, ObjectId, SessionId, SnapshotId, WorktreeId};
use serde::{Deserialize, Serialize};

/// The name of a call that touches files: made by the client before it first calls, so that a repeat is known for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallName(pub [u8; 16]);

/// Where a work tree lives: enough to make the same capability again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorktreeKey {
    /// Its log, which is also its row.
    pub log: LogId,
    /// Its public name.
    pub id: WorktreeId,
    /// The project it belongs to.
    pub project: LogId,
}

/// Where a snapshot lives: enough to make the same capability again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotKey {
    /// Its log, which is also its row.
    pub log: LogId,
    /// Its public name.
    pub id: SnapshotId,
    /// The work tree it is of.
    pub worktree: LogId,
}

/// What is told about a work tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorktreeInfo {
    /// Which.
    pub key: WorktreeKey,
    /// The directory.
    pub directory: String,
    /// The sandbox it is, if it was made as one.
    pub sandbox: Option<String>,
    /// When it was first opened.
    pub opened_at_ms: u64,
    /// How many snapshots of it there are.
    pub snapshots: u64,
    /// What they took up on disk when they were made.
    pub bytes: u64,
}

/// Why a snapshot was taken. Numbers are stored; a retired one stays taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Occasion {
    /// Somebody asked for it.
    Asked = 0,
    /// A step of a turn began or ended.
    Step = 1,
    /// A turn had ended.
    TurnEnd = 2,
}

impl Occasion {
    /// The occasion behind a stored number.
    pub fn from_number(number: i64) -> Option<Self> {
        [Self::Asked, Self::Step, Self::TurnEnd].into_iter().find(|it| *it as i64 == number)
    }
}

/// Somebody at work in a work tree: a turn of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Actor {
    /// The session.
    pub session: LogId,
    /// Where in its log the turn was begun.
    pub turn: Cursor,
}

/// A snapshot as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Which.
    pub key: SnapshotKey,
    /// The call that took it.
    pub name: CallName,
    /// What it holds.
    pub tree: ObjectId,
    /// What the one before it held; none if it is the first.
    pub base: Option<ObjectId>,
    /// What there was besides and was not taken, as a list of paths in the store.
    pub unknown: Option<ObjectId>,
    /// The same for the one before it.
    pub base_unknown: Option<ObjectId>,
    /// Why it was taken.
    pub occasion: Occasion,
    /// For whom, if for a turn.
    pub by: Option<Actor>,
    /// Who was at work since the one before it.
    pub actors: Vec<Actor>,
    /// Of the files that changed since, those of which is known who did it, though several were at work: the path, and
    /// which of the actors.
    pub claims: Vec<(Vec<u8>, u32)>,
    /// Files it holds.
    pub files: u64,
    /// How long they are, together.
    pub bytes: u64,
    /// What it took up on disk.
    pub stored_bytes: u64,
    /// What was not taken, by reason.
    pub skipped: Vec<u64>,
}

/// What is told about a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// As it is recorded.
    pub snapshot: Snapshot,
    /// Its number among those of its work tree.
    pub number: Cursor,
    /// When it was taken.
    pub taken_at_ms: u64,
    /// The session it was taken for.
    pub session: Option<SessionId>,
}

/// Something was done to the files of a work tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// The call that did it.
    pub name: CallName,
    /// What it asked for, in short.
    pub asked: [u8; 16],
    /// What stood at the paths it is about.
    pub before: ObjectId,
    /// What stands there now.
    pub after: ObjectId,
    /// For which session, if for one.
    pub session: Option<LogId>,
    /// Where in that session's log it is said; 0 if for none.
    pub session_at: Cursor,
    /// How many paths were changed.
    pub done: u64,
    /// Paths that were left as they were, and why, by the number of the reason; a bounded number of them.
    pub conflicts: Vec<(Vec<u8>, u8)>,
    /// How many there were.
    pub conflict_count: u64,
}

/// Files went along when a conversation was taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesReverted {
    /// The work tree.
    pub worktree: LogId,
    /// Where in its log that began: what was done to files from there on is what there is to take back.
    pub since: Cursor,
}

/// A name of a call that is none.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a call on files is named by 16 bytes, made by you; these are {bytes}")]
pub struct NameMalformed {
    /// How many there were.
    pub bytes: usize,
}

impl Coded for NameMalformed {
    fn code(&self) -> Code {
        Code::OpHeaderMalformed
    }
}
