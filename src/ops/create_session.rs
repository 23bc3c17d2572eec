//! A new session in a project.

use super::{Effect, Kind, NotApplied, Place, entry};
use crate::limits::TITLE_BYTES_MAX;
use crate::model::code::{Code, Coded};
use crate::model::ids::{OpId, SessionId};
use crate::model::infos::SessionKey;
use crate::model::ledger::Made;
use crate::store::sessions::NewSession;
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What somebody wants made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateSession {
    id: Option<SessionId>,
    title: String,
}

/// Why it cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Longer than anybody reads.
    #[error("the title is {bytes} bytes long; the most accepted is {TITLE_BYTES_MAX}")]
    TitleTooLong {
        /// Its length.
        bytes: usize,
    },
    /// The id is another session's.
    #[error("session id {0} is taken")]
    Exists(SessionId),
    /// The project this object stood for is no more.
    #[error("the project does not exist any more")]
    ProjectNotFound,
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Error::TitleTooLong { .. } => Code::TitleTooLong,
            Error::Exists(_) => Code::SessionExists,
            Error::ProjectNotFound => Code::ProjectNotFound,
        }
    }
}

/// How it stands in the history, version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionCreated<'a> {
    /// The session.
    pub key: SessionKey,
    /// Its title then.
    pub title: Cow<'a, str>,
}

impl SessionCreated<'_> {
    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        let info = NewSession {
            id: &self.key.id,
            title: &self.title,
            cursor: place.cursor,
            created_at_ms: place.now_ms,
        };
        store::sessions::create(tx, self.key.log, place.log, &info)?;
        store::projects::count_session(tx, place.log)
    }
}

impl CreateSession {
    /// A wish that makes sense.
    pub fn new(id: Option<SessionId>, title: &str) -> Result<Self, Error> {
        if title.len() > TITLE_BYTES_MAX {
            return Err(Error::TitleTooLong { bytes: title.len() });
        }
        Ok(Self { id, title: title.to_owned() })
    }

    pub(super) fn apply(
        &self,
        tx: &Tx<'_>,
        place: Place,
        op: OpId,
    ) -> Result<Effect<'static>, NotApplied> {
        let id = self.id.clone().unwrap_or_else(|| SessionId::made_by(op));
        if store::sessions::log_of(tx, &id)?.is_some() {
            return Err(Error::Exists(id).into());
        }
        if store::projects::info(tx, place.log)?.is_none() {
            return Err(Error::ProjectNotFound.into());
        }
        let key = SessionKey { log: store::logs::create(tx, place.log)?, id };
        let created = SessionCreated { key, title: self.title.as_str().into() };
        created.project(tx, place)?;
        let entry = entry(Kind::CreateSession, 1, &created)?;
        Ok(Effect { made: Made::Session(created.key), entry, cut: Vec::new() })
    }
}
