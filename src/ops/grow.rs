//! An open part has more text.
//!
//! This changes what is kept beside the log and nothing in it, so it is no op: every piece says where it
//! belongs, and what is there already does no harm. It becomes a part of the history when the part is closed.

use super::put_part::TEXT_BYTES_MAX;
use super::{NotApplied, found};
use crate::limits::DELTA_BYTES_MAX;
use crate::model::code::{Code, Coded};
use crate::model::turn::TurnEnded;
use crate::store::streams::{Stream, StreamKey};
use crate::store::{self, StoreError, Tx};

/// Why it cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Something is missing before it.
    #[error(
        "the text is {length} bytes long, so nothing can stand at {offset} yet; go on at {length}"
    )]
    Gap {
        /// Where it ends.
        length: u64,
        /// Where this was to go.
        offset: u64,
    },
    /// Something else stands there.
    #[error("another text stands at {offset}")]
    Conflict {
        /// Where.
        offset: u64,
    },
    /// It is closed, or was never open.
    #[error("the part is not open")]
    Closed,
    /// Longer than anybody reads.
    #[error("the text would be {bytes} bytes long; the most accepted is {TEXT_BYTES_MAX}")]
    TooLong {
        /// How long.
        bytes: u64,
    },
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Error::Gap { .. } => Code::DeltaGap,
            Error::Conflict { .. } => Code::DeltaConflict,
            Error::Closed => Code::PartClosed,
            Error::TooLong { .. } => Code::ContentTooLarge,
        }
    }
}

/// What became of a piece.
pub(crate) struct Grown {
    /// How long the text is now.
    pub(crate) length: u64,
    /// Whether its turn had waited.
    pub(crate) went_on: bool,
}

/// Adds what is new of a piece. With nothing it only tells how long the text is.
pub(crate) fn grow(
    tx: &Tx<'_>,
    key: StreamKey,
    offset: u64,
    text: &str,
    now_ms: u64,
) -> Result<Grown, NotApplied> {
    let Some(stream) = store::streams::get(tx, key)? else { return Err(closed(tx, key)?.into()) };
    let length = stream.bytes;
    if offset > length {
        return Err(Error::Gap { length, offset }.into());
    }
    let known = usize::try_from(length - offset).unwrap_or(usize::MAX).min(text.len());
    if known > 0 && !stands_there(tx, stream, offset, &text.as_bytes()[..known])? {
        return Err(Error::Conflict { offset }.into());
    }
    let Some(fresh) = text.get(known..) else { return Err(Error::Conflict { offset }.into()) };
    let bytes = length + fresh.len() as u64;
    if bytes > TEXT_BYTES_MAX {
        return Err(Error::TooLong { bytes }.into());
    }
    if !fresh.is_empty() {
        store::streams::grow(tx, stream, fresh)?;
    }
    let turn = store::turns::at(tx, key.session, stream.turn)?;
    let went_on = turn.as_ref().is_some_and(|turn| turn.retry.is_some());
    if let Some(turn) = turn {
        if turn.until_ms.is_some_and(|until| turn.lease.is_worth_renewing(until, now_ms)) {
            found::keep(tx, key.session, &turn, turn.lease.until_ms(now_ms))?;
        }
        found::went_on(tx, key.session, &turn)?;
    }
    Ok(Grown { length: bytes, went_on })
}

/// Why a text does not grow any more.
fn closed(tx: &Tx<'_>, key: StreamKey) -> Result<super::Refused, StoreError> {
    let id = store::messages::id_at(tx, key.session, key.message)?;
    let standing = match &id {
        Some(id) => store::messages::standing(tx, key.session, id)?,
        None => None,
    };
    let turn = match standing {
        Some(standing) => store::turns::at(tx, key.session, standing.turn)?,
        None => None,
    };
    Ok(match turn.filter(|turn| turn.state.is_final()) {
        Some(turn) => TurnEnded { id: turn.id, state: turn.state }.into(),
        None => Error::Closed.into(),
    })
}

/// Whether these bytes stand at a place of the text.
fn stands_there(
    tx: &Tx<'_>,
    stream: Stream,
    offset: u64,
    bytes: &[u8],
) -> Result<bool, StoreError> {
    // What is read begins with the piece this stands in.
    let enough = bytes.len() + DELTA_BYTES_MAX;
    let (begins, text) = store::streams::read(tx, stream.key, offset, enough)?;
    let skipped = usize::try_from(offset - begins).unwrap_or(usize::MAX);
    Ok(text.as_bytes().get(skipped..).is_some_and(|there| there.starts_with(bytes)))
}
