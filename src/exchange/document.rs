//! One session as one document.
//!
//! In JSON it has the shape of what `opencode export` writes, with two keys more (`bowline`, `todos`), so each
//! program reads what the other wrote. The binary one holds what the wire carries, packed, with long content
//! beside it and a hash at its end, so that damage to it does not go unnoticed.
//!
//! Both are written and read as a stream. At any time one message is held in memory, and not more.

mod binary;
mod json;

pub use binary::{BinaryWriter, WireTaker, read_binary};
pub use json::{JsonWriter, read};

use super::Stop;
use std::io;

/// The version of the documents written here. Older ones are read for ever, newer ones are refused.
pub const VERSION: u32 = 1;

/// The longest record of a binary document.
pub const RECORD_BYTES_MAX: usize = 64 << 20;

/// What kind of document it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// See [`read`].
    Json,
    /// See [`read_binary`].
    Binary,
}

impl Format {
    /// How many bytes are enough to tell.
    pub const START_BYTES: usize = 64;

    /// Tells from the first bytes of a document; nothing for something else.
    pub fn of(start: &[u8]) -> Option<Self> {
        if start.starts_with(binary::FAMILY) {
            return Some(Self::Binary);
        }
        let first = start.iter().find(|byte| !byte.is_ascii_whitespace());
        (first == Some(&b'{')).then_some(Self::Json)
    }
}

/// How much a document holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages, those that could not be taken as well.
    pub messages: u64,
    /// Items of the todo list.
    pub todos: u64,
}

/// A document cannot be read or written. What came before in it may have been taken already.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The file, or what stands for it, says no.
    #[error("the document cannot be read or written: {0}")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("this is not a session document: {0}")]
    Foreign(String),
    /// It ends too early.
    #[error("the document is not complete: it ends in the middle")]
    Truncated,
    /// It is not as it was written.
    #[error("the document is damaged: {0}")]
    Damaged(String),
    /// It was written by a newer version.
    #[error("the document is of version {found}; this program knows versions up to {VERSION}")]
    Newer {
        /// Its version.
        found: u64,
    },
    /// The session must come before what belongs to it, since it is taken as it is read.
    #[error("in the document, {0:?} comes before \"info\"; write \"info\" first and try again")]
    Order(&'static str),
    /// One item is too long to be held in memory.
    #[error("an item of the document is longer than {bytes_max} bytes")]
    TooLarge {
        /// The longest that is taken.
        bytes_max: u64,
    },
    /// Whoever takes it wants no more.
    #[error("the session could not be taken: {0}")]
    Stopped(Stop),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_known_by_its_first_bytes() {
        for (start, expected) in [
            (&b"bowline1\x01"[..], Some(Format::Binary)),
            (b"bowline9", Some(Format::Binary)),
            (b" \n{\"info\"", Some(Format::Json)),
            (b"[]", None),
            (b"SQLite format 3\0", None),
            (b"", None),
        ] {
            assert_eq!(Format::of(start), expected);
        }
    }
}
