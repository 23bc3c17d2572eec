//! A session gets another title.

use super::create_session::Error;
use super::{Effect, Kind, NotApplied, Place, entry_replacing};
use crate::limits::TITLE_BYTES_MAX;
use crate::model::ledger::Made;
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What somebody wants it to be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetTitle {
    title: String,
}

/// How it stands in the history, version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TitleSet<'a> {
    /// The title from then on.
    pub title: Cow<'a, str>,
}

impl TitleSet<'_> {
    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        store::sessions::set_title(tx, place.log, &self.title, place.cursor)
    }
}

impl SetTitle {
    /// A wish that makes sense.
    pub fn new(title: &str) -> Result<Self, Error> {
        match title.len() {
            bytes if bytes > TITLE_BYTES_MAX => Err(Error::TitleTooLong { bytes }),
            _ => Ok(Self { title: title.to_owned() }),
        }
    }

    pub(super) fn apply(&self, tx: &Tx<'_>, place: Place) -> Result<Effect<'static>, NotApplied> {
        let (before, _) = store::sessions::set_at(tx, place.log)?.unwrap_or_default();
        let set = TitleSet { title: self.title.as_str().into() };
        set.project(tx, place)?;
        let replaced = (before.0 > 0).then_some(before);
        let entry = entry_replacing(replaced, Kind::SetTitle, 1, &set)?;
        Ok(Effect::new(Made::Nothing, entry))
    }
}
