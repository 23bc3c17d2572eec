//! What a reader is told about an object.

use crate::model::ids::{Cursor, GrantId, GrantKey, LogId, MessageId, ProjectId, SessionId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

impl Author {
    /// What it takes up.
    pub fn bytes(&self) -> usize {
        self.actors.iter().map(|actor| actor.len() + 16).sum::<usize>() + 32
    }
}

/// What kind of object a grant stands for. Numbers are stored; a retired one stays taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObjectKind {
    /// The server itself.
    Root = 0,
    /// A project.
    Project = 1,
    /// A session.
    Session = 2,
    /// A published view of one.
    Share = 3,
}

impl ObjectKind {
    /// The kind behind a stored number.
    pub fn from_number(number: i64) -> Option<Self> {
        [Self::Root, Self::Project, Self::Session, Self::Share]
            .into_iter()
            .find(|kind| *kind as i64 == number)
    }

    /// The word people use for it.
    pub const fn word(self) -> &'static str {
        match self {
            ObjectKind::Root => "server",
            ObjectKind::Project => "project",
            ObjectKind::Session => "session",
            ObjectKind::Share => "share",
        }
    }
}

/// Under which authority something was done, as others are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    /// The grant.
    pub grant: GrantId,
    /// Whom it was made for, then on whose behalf, up the tree. Grants without an actor are left out.
    pub actors: Vec<String>,
}

/// Where a project lives: enough to make the same capability again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectKey {
    /// Its log, which is also its row.
    pub log: LogId,
    /// Its public name.
    pub id: ProjectId,
}

/// Where a session lives: enough to make the same capability again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionKey {
    /// Its log, which is also its row.
    pub log: LogId,
    /// Its public name.
    pub id: SessionId,
}

/// A project as told to a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectInfo {
    /// Its public name.
    pub id: ProjectId,
    /// The directory it stands for.
    pub directory: String,
    /// Its name for people.
    pub name: String,
    /// When it was made.
    pub created_at_ms: u64,
    /// Where in the root's log it was made.
    pub cursor: Cursor,
    /// How many sessions it has.
    pub session_count: u64,
}

/// A session as told to a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its public name.
    pub id: SessionId,
    /// The project it belongs to.
    pub project_id: ProjectId,
    /// Its title for people.
    pub title: String,
    /// When it was made.
    pub created_at_ms: u64,
    /// Where in the project's log it was made.
    pub cursor: Cursor,
    /// Where its own log ends.
    pub head: Cursor,
}

/// What is told about any object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectInfo {
    /// About a project.
    Project(ProjectInfo),
    /// About a session.
    Session(SessionInfo),
}

/// A message as told to a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageInfo {
    /// Its name in the session.
    pub id: MessageId,
    /// Where in the session's log it was added.
    pub cursor: Cursor,
    /// When.
    pub created_at_ms: u64,
    /// Under which grant.
    pub granted: GrantKey,
    /// And whose that is.
    pub author: Arc<Author>,
    /// Who said it.
    pub role: Role,
    /// What was said, in the encoding of the wire.
    pub content: Vec<u8>,
}

/// Who said something. Numbers are stored; a retired one stays taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// A person, or an agent in a person's place.
    User = 0,
    /// The agent.
    Assistant = 1,
    /// The frame around both.
    System = 2,
    /// A tool.
    Tool = 3,
}
