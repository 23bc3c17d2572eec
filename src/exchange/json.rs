//! Between the JSON of OpenCode's sessions and what the wire carries, both ways.
//!
//! A field that has a place in the schema goes there only if it comes back exactly as it was. Everything
//! else is kept as it was written, in `rest`: fields nobody knows, fields of another type than they should
//! have, numbers written in an odd way, empty texts and zeros where the wire cannot tell them from nothing.
//! Of an object with a place of its own (`time`, `tokens`, `state`) only the odd members are kept there,
//! under the same key.
//!
//! On the way out, what stands in a place of its own counts, and `rest` says the rest of it. So a text that
//! was changed since is never undone by what `rest` once kept.
//!
//! The ids of a session and of a message are not kept inside what belongs to them: they are written again.

mod message;
mod number;
mod object;
mod out;
mod part;
mod session;
mod todo;
mod tool;
mod usage;

#[cfg(test)]
mod tests;

pub use message::{Place, message_from_json, message_to_json};
pub use object::with_ids;
pub use part::{part_from_json, part_to_json};
pub use session::{Reverted, Taken, session_from_json, session_to_json};
pub use todo::{rule_from_json, rules_to_json, todo_from_json, todo_to_json};

pub(in crate::exchange) use number::script_number;
pub(in crate::exchange) use object::quoted;

use super::Kept;
use crate::wire::message_capnp;
use std::io;

/// The longest text that stands in a part itself; what is longer is content.
const INLINE_BYTES_MAX: usize = message_capnp::INLINE_TEXT_BYTES_MAX as usize;

/// The longest name, word or path that stands in a place of its own; what is longer is kept in `rest`. With
/// it, one part is never longer than one op may be.
const SHORT_BYTES_MAX: usize = 4096;

/// Puts something long away, and says what it is known by.
pub type Keep<'a> = dyn FnMut(&[u8]) -> Kept + 'a;

/// Brings it back: the hash, the length.
pub type Fetch<'a> = dyn FnMut(&[u8], u64) -> io::Result<Vec<u8>> + 'a;

/// Something on the wire could not be told as JSON.
#[derive(Debug, thiserror::Error)]
pub enum Untold {
    /// It cannot be read.
    #[error("what was received cannot be read: {0}")]
    Wire(#[from] capnp::Error),
    /// It is of a kind, or has a value, that only a newer version knows.
    #[error("what was received says something only a newer version knows")]
    Newer(#[from] capnp::NotInSchema),
    /// What should be a JSON object is not.
    #[error("{what} is not a JSON object")]
    NotAnObject {
        /// Which one.
        what: &'static str,
    },
    /// What should be text is not.
    #[error("the content of {what} is not text")]
    NotText {
        /// Whose.
        what: &'static str,
    },
    /// Content could not be fetched.
    #[error("the content of {what} cannot be had: {error}")]
    Fetch {
        /// Whose.
        what: &'static str,
        /// Why.
        error: io::Error,
    },
}
