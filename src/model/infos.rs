//! What a reader is told about an object.

use crate::model::ids::{Cursor, GrantId, GrantKey, LogId, MessageId, ProjectId, SessionId};
use crate::model::permission::Rule;
use crate::model::session::{Details, ForkedFrom};
use crate::model::timeline::Timeline;
use crate::model::turn::{Status, Summary};
use crate::model::usage::Usage;
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
    /// A work tree.
    Worktree = 4,
    /// A state of one.
    Snapshot = 5,
}

impl ObjectKind {
    /// The kind behind a stored number.
    pub fn from_number(number: i64) -> Option<Self> {
        [Self::Root, Self::Project, Self::Session, Self::Share, Self::Worktree, Self::Snapshot]
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
            ObjectKind::Worktree => "worktree",
            ObjectKind::Snapshot => "snapshot",
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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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
    /// The directories it was opened in, and when.
    pub worktrees: Vec<(String, u64)>,
    /// What agents may do in it without asking.
    pub rules: Vec<Rule>,
    /// Its remote, as it is compared; may be empty.
    pub remote: String,
    /// Whatever else there is to know about it, as a JSON object; may be empty.
    pub rest: String,
}

/// A session as told to a reader.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionInfo {
    /// Its log, which is also its row.
    pub log: LogId,
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
    /// The session it was made for.
    pub parent: Option<SessionId>,
    /// Two words to tell it by.
    pub slug: String,
    /// What is said about it.
    pub details: Details,
    /// Where it left another one, if it did.
    pub forked_from: Option<ForkedFrom>,
    /// Which part of its log is its conversation.
    pub timeline: Timeline,
    /// When something last happened in it.
    pub updated_at_ms: u64,
    /// What its steps cost.
    pub usage: Usage,
    /// What came of its turns.
    pub summary: Summary,
    /// What it is doing.
    pub status: Status,
    /// How many things there are to do.
    pub todo_count: u32,
}

impl SessionInfo {
    /// About how much it takes up when it is told.
    pub fn bytes(&self) -> usize {
        let details = &self.details;
        let rules: usize =
            details.rules.iter().map(|rule| rule.permission.len() + rule.pattern.len() + 24).sum();
        self.title.len()
            + details.metadata.len()
            + details.rest.len()
            + details.directory.len()
            + rules
            + 256
    }
}

/// What is told about any object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectInfo {
    /// About a project.
    Project(ProjectInfo),
    /// About a session.
    Session(Box<SessionInfo>),
}

/// Parts that were put into a message, by their position; none where one was taken away.
pub type PutParts = Vec<(u32, Option<Vec<u8>>)>;

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
    /// What was said of it since, in the encoding of the wire.
    pub info: Option<Vec<u8>>,
    /// Parts that were put since.
    pub parts: PutParts,
    /// Only parts before this position are shown.
    pub parts_end: u32,
    /// Parts behind this position are not told here; 0 if all are.
    pub parts_after: u32,
}

impl Role {
    /// The role behind a stored number.
    pub fn from_number(number: i64) -> Option<Self> {
        [Self::User, Self::Assistant, Self::System, Self::Tool]
            .into_iter()
            .find(|role| *role as i64 == number)
    }
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
