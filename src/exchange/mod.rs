//! Sessions as documents, and OpenCode's data: what comes in from elsewhere, and what goes out.
//!
//! Three ways lead in: a document in JSON, a binary one, and OpenCode's own data directory. All three hand
//! one session at a time to a [`Taker`], message by message, so that no session need fit into memory.
//! [`json`] turns what they hand over into what the wire carries, and back again.
//!
//! What always holds: a field without a place of its own is kept byte for byte, so what came in goes out
//! equal. What cannot be taken is told as [`Untaken`] and counted; it never stops the rest.
//!
//! Nothing here talks to a server. Whoever imports or exports does that, with what it gets here.

use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::error::Error;
use std::fmt;

pub mod document;
pub mod json;
pub mod opencode;

/// One message, or one session, with everything that belongs to it. What is longer is not taken: it would
/// have to be held in memory whole.
pub const ITEM_BYTES_MAX: u64 = 256 << 20;

/// Something that could not be taken, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{thing} {id:?} was not taken ({reason}): {text}")]
pub struct Untaken {
    /// What kind of thing it is.
    pub thing: Thing,
    /// Its id where it came from, or where it stood; may be empty.
    pub id: String,
    /// Why, for programs.
    pub reason: Reason,
    /// Why, for people.
    pub text: String,
}

impl Untaken {
    /// Says that something was not taken.
    pub fn new(
        thing: Thing,
        id: impl Into<String>,
        reason: Reason,
        text: impl Into<String>,
    ) -> Self {
        Self { thing, id: id.into(), reason, text: text.into() }
    }
}

/// Kinds of things that are exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Thing {
    /// A project.
    Project,
    /// A session, with all of its messages.
    Session,
    /// A message, with all of its parts.
    Message,
    /// A part of a message.
    Part,
    /// An item of a todo list, or the whole list.
    Todo,
    /// A rule about what an agent may do.
    Rule,
    /// One field of something that was taken otherwise.
    Field,
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Project => "project",
            Self::Session => "session",
            Self::Message => "message",
            Self::Part => "part",
            Self::Todo => "todo",
            Self::Rule => "rule",
            Self::Field => "field",
        })
    }
}

/// Why something was not taken. The words are stable: scripts look for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It cannot be read as JSON.
    NotJson,
    /// It is JSON, but not of the shape it should have.
    Shape,
    /// A message does not say who speaks.
    NoRole,
    /// A message says so in a word nobody knows.
    UnknownRole,
    /// Its id is not one: see `model::ids`.
    IdMalformed,
    /// Something before it has the same id.
    IdRepeated,
    /// It is longer than can be kept.
    TooLarge,
    /// What it belongs to is not there, or was not taken either.
    Orphan,
    /// It could not be read from the disk.
    Unreadable,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 9] = [
        Self::NotJson,
        Self::Shape,
        Self::NoRole,
        Self::UnknownRole,
        Self::IdMalformed,
        Self::IdRepeated,
        Self::TooLarge,
        Self::Orphan,
        Self::Unreadable,
    ];

    /// The stable word.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotJson => "not-json",
            Self::Shape => "shape",
            Self::NoRole => "no-role",
            Self::UnknownRole => "unknown-role",
            Self::IdMalformed => "id-malformed",
            Self::IdRepeated => "id-repeated",
            Self::TooLarge => "too-large",
            Self::Orphan => "orphan",
            Self::Unreadable => "unreadable",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a [`Taker`] wants no more.
pub type Stop = Box<dyn Error + Send + Sync>;

/// Whoever takes sessions in, from wherever they come. The calls for one session come in this order:
/// `diffs` at most once, `session`, any number of `message`, and `todos` at most once. `untaken` may come at
/// any time. An error ends the reading.
pub trait Taker {
    /// What the next session did to files. Only OpenCode keeps that beside the session, and hardly ever.
    fn diffs(&mut self, _diffs: &[Box<RawValue>]) -> Result<(), Stop> {
        Ok(())
    }

    /// What there is to know about a session: see [`json::session_from_json`].
    fn session(&mut self, info: &RawValue) -> Result<(), Stop>;

    /// The next message, with all its parts in order: see [`json::message_from_json`].
    fn message(&mut self, info: &RawValue, parts: &[Box<RawValue>]) -> Result<(), Stop>;

    /// What is to be done, in order: see [`json::todo_from_json`].
    fn todos(&mut self, todos: &[Box<RawValue>]) -> Result<(), Stop>;

    /// Something could not be read.
    fn untaken(&mut self, untaken: Untaken) -> Result<(), Stop>;
}

/// Something long that is kept beside the log: `Content` in the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kept {
    /// SHA-256 of its bytes.
    pub hash: [u8; 32],
    /// How many there are.
    pub bytes: u64,
}

impl Kept {
    /// What these bytes are known by.
    pub fn of(bytes: &[u8]) -> Self {
        Self { hash: Sha256::digest(bytes).into(), bytes: bytes.len() as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_reason_has_a_word_of_its_own() {
        let words: HashSet<_> = Reason::ALL.map(Reason::name).into_iter().collect();
        assert_eq!(words.len(), Reason::ALL.len());
        let untaken = Untaken::new(Thing::Part, "prt_1", Reason::NotJson, "line 1");
        assert_eq!(untaken.to_string(), r#"part "prt_1" was not taken (not-json): line 1"#);
    }

    #[test]
    fn content_is_known_by_its_hash() {
        // The first bytes of SHA-256("abc"), from the standard's own example.
        let kept = Kept::of(b"abc");
        assert_eq!((&kept.hash[..4], kept.bytes), (&[0xba, 0x78, 0x16, 0xbf][..], 3));
    }
}
