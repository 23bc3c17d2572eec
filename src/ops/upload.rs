//! Something long is handed over, piece by piece, before a part names it.
//!
//! Like a text that grows, this is no op: it is known by its hash, and every piece says where it belongs.

use super::{NotApplied, found};
use crate::limits::CONTENT_BYTES_MAX;
use crate::model::code::{Code, Coded};
use crate::model::content::ContentRef;
use crate::model::ids::LogId;
use crate::store::{self, Tx};

/// Why it cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Longer than the server takes.
    #[error("the content is {bytes} bytes long; the most accepted is {CONTENT_BYTES_MAX}")]
    TooLarge {
        /// How long.
        bytes: u64,
    },
    /// Something is missing before it.
    #[error(
        "{received} bytes are there, so nothing can stand at {offset} yet; go on at {received}"
    )]
    Gap {
        /// How much is there.
        received: u64,
        /// Where this was to go.
        offset: u64,
    },
    /// More came than was said.
    #[error("more came than the {bytes} bytes it was said to be")]
    TooMuch {
        /// How long it was said to be.
        bytes: u64,
    },
    /// It was begun as something else.
    #[error("an upload under this hash was begun with another length; it is let go of after a day")]
    OtherLength,
    /// Something else came.
    #[error("what came does not have the hash it was said to have; it was let go of")]
    OtherHash,
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Error::TooLarge { .. } => Code::ContentTooLarge,
            Error::Gap { .. } => Code::ContentGap,
            Error::TooMuch { .. } | Error::OtherLength | Error::OtherHash => Code::ContentMalformed,
        }
    }
}

/// Takes a piece of content for a session; how much of it is there then. When all of it is, it is checked, and
/// the session may name it.
pub(crate) fn upload(
    tx: &Tx<'_>,
    session: LogId,
    content: ContentRef,
    offset: u64,
    data: &[u8],
    now_ms: u64,
) -> Result<u64, NotApplied> {
    if content.bytes > CONTENT_BYTES_MAX {
        return Err(Error::TooLarge { bytes: content.bytes }.into());
    }
    if store::sessions::id_of(tx, session)?.is_none() {
        return Err(found::Error::SessionNotFound.into());
    }
    if let Some(known) = store::contents::nameable(tx, session, content)? {
        store::contents::touch(tx, known, now_ms)?;
        return Ok(content.bytes);
    }
    let begun = store::contents::coming(tx, session, &content.hash)?;
    if begun.is_some_and(|begun| begun.content.bytes != content.bytes) {
        return Err(Error::OtherLength.into());
    }
    let received = begun.map_or(0, |begun| begun.received);
    if offset > received {
        return Err(Error::Gap { received, offset }.into());
    }
    let known = usize::try_from(received - offset).unwrap_or(usize::MAX);
    let fresh = data.get(known..).unwrap_or_default();
    if received + fresh.len() as u64 > content.bytes {
        return Err(Error::TooMuch { bytes: content.bytes }.into());
    }
    // Only asked how much is there.
    if fresh.is_empty() && received < content.bytes {
        return Ok(received);
    }
    let begun = match begun {
        Some(begun) => begun,
        None => store::contents::begin(tx, session, content, now_ms)?,
    };
    let coming = store::contents::add(tx, begun, fresh, now_ms)?;
    if coming.received < content.bytes {
        return Ok(coming.received);
    }
    if store::contents::hash(tx, coming.key)? != content.hash {
        store::contents::forget(tx, coming.key)?;
        return Ok(REFUSED);
    }
    let key = store::contents::settle(tx, coming, now_ms)?;
    store::contents::uploaded(tx, key, session)?;
    Ok(content.bytes)
}

/// What is told in place of a length when all came and was something else: that is written down, so it cannot be
/// a refusal.
pub const REFUSED: u64 = u64::MAX;
