//! A new session in a project.

use super::{Effect, Entry, Kind, NotApplied, Place, entry};
use crate::limits::TITLE_BYTES_MAX;
use crate::model::code::{Code, Coded};
use crate::model::ids::{LogId, OpId, SessionId};
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

/// How it stands in the history, version 2.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionCreated<'a> {
    /// The session.
    pub key: SessionKey,
    /// Its title then.
    pub title: Cow<'a, str>,
    /// The session it was made for.
    pub parent: Option<SessionKey>,
}

/// How it stood in version 1, before there were children.
#[derive(Deserialize)]
pub(super) struct SessionCreatedV1<'a> {
    key: SessionKey,
    title: Cow<'a, str>,
}

impl<'a> From<SessionCreatedV1<'a>> for SessionCreated<'a> {
    fn from(SessionCreatedV1 { key, title }: SessionCreatedV1<'a>) -> Self {
        Self { key, title, parent: None }
    }
}

impl SessionCreated<'_> {
    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        let info = NewSession {
            id: &self.key.id,
            title: &self.title,
            cursor: place.cursor,
            created_at_ms: place.now_ms,
            parent: self.parent.as_ref().map(|parent| parent.log),
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
        let id = self.check(tx, place.log, op)?;
        let (key, entry) = self.make(tx, place, id, None)?;
        Ok(Effect::new(Made::Session(key), entry))
    }

    /// Whether it can be made, and under which id.
    pub(super) fn check(
        &self,
        tx: &Tx<'_>,
        project: LogId,
        op: OpId,
    ) -> Result<SessionId, NotApplied> {
        let id = self.id.clone().unwrap_or_else(|| SessionId::made_by(op));
        if store::sessions::log_of(tx, &id)?.is_some() {
            return Err(Error::Exists(id).into());
        }
        if store::projects::info(tx, project)?.is_none() {
            return Err(Error::ProjectNotFound.into());
        }
        Ok(id)
    }

    /// Makes it, once it is checked. `place` is in the project's log.
    pub(super) fn make(
        &self,
        tx: &Tx<'_>,
        place: Place,
        id: SessionId,
        parent: Option<SessionKey>,
    ) -> Result<(SessionKey, Option<Entry<'static>>), NotApplied> {
        let key = SessionKey { log: store::logs::create(tx, place.log)?, id };
        let created = SessionCreated { key, title: self.title.as_str().into(), parent };
        created.project(tx, place)?;
        let entry = entry(Kind::CreateSession, 2, &created)?;
        Ok((created.key, entry))
    }
}
