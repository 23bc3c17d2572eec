//! A new session in a project.

use super::{Effect, Entry, Kind, NotApplied, Place, entry};
use crate::limits::TITLE_BYTES_MAX;
use crate::model::code::{Code, Coded};
use crate::model::ids::{LogId, OpId, SessionId};
use crate::model::infos::SessionKey;
use crate::model::ledger::Made;
use crate::model::session::{self, Change, Details, ForkedFrom, Malformed};
use crate::store::sessions::NewSession;
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What somebody wants made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CreateSession {
    id: Option<SessionId>,
    /// Empty for one that is made.
    title: String,
    parent: Option<SessionId>,
    created_at_ms: Option<u64>,
    details: Details,
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
    /// No such session in the project.
    #[error("the project has no session {0} that this one could be made for")]
    NoParent(SessionId),
    /// Something about it makes no sense.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The project this object stood for is no more.
    #[error("the project does not exist any more")]
    ProjectNotFound,
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Error::TitleTooLong { .. } => Code::TitleTooLong,
            Error::Exists(_) => Code::SessionExists,
            Error::NoParent(_) => Code::SessionNotFound,
            Error::Malformed(malformed) => malformed.code(),
            Error::ProjectNotFound => Code::ProjectNotFound,
        }
    }
}

/// How it stands in the history, version 3.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionCreated<'a> {
    /// The session.
    pub key: SessionKey,
    /// Its title then.
    pub title: Cow<'a, str>,
    /// The session it was made for.
    pub parent: Option<SessionKey>,
    /// Two words to tell it by.
    pub slug: Cow<'a, str>,
    /// When it was made, by the client's account.
    pub created_at_ms: Option<u64>,
    /// What was said about it; none if nothing was.
    pub details: Option<Details>,
    /// Where it left another one, if it did.
    pub forked_from: Option<ForkedFrom>,
}

/// How it stood in version 2, before anything was known about it.
#[derive(Deserialize)]
pub(super) struct SessionCreatedV2<'a> {
    key: SessionKey,
    title: Cow<'a, str>,
    parent: Option<SessionKey>,
}

impl<'a> From<SessionCreatedV2<'a>> for SessionCreated<'a> {
    fn from(SessionCreatedV2 { key, title, parent }: SessionCreatedV2<'a>) -> Self {
        let (slug, created_at_ms, details, forked_from) = ("".into(), None, None, None);
        Self { key, title, parent, slug, created_at_ms, details, forked_from }
    }
}

/// How it stood in version 1, before there were children.
#[derive(Deserialize)]
pub(super) struct SessionCreatedV1<'a> {
    key: SessionKey,
    title: Cow<'a, str>,
}

impl<'a> From<SessionCreatedV1<'a>> for SessionCreated<'a> {
    fn from(SessionCreatedV1 { key, title }: SessionCreatedV1<'a>) -> Self {
        SessionCreatedV2 { key, title, parent: None }.into()
    }
}

impl SessionCreated<'_> {
    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        let info = NewSession {
            id: &self.key.id,
            title: &self.title,
            cursor: place.cursor,
            created_at_ms: self.created_at_ms.unwrap_or(place.now_ms),
            parent: self.parent.as_ref().map(|parent| parent.log),
            slug: &self.slug,
            details: self.details.as_ref(),
            forked_from: self.forked_from.as_ref(),
        };
        store::sessions::create(tx, self.key.log, place.log, &info)?;
        store::projects::count_session(tx, place.log)
    }
}

impl CreateSession {
    /// A wish that makes sense.
    pub fn new(id: Option<SessionId>, title: &str) -> Result<Self, Error> {
        Self::with(id, title, Details::default())
    }

    /// One about which something is known from the start.
    pub(super) fn with(
        id: Option<SessionId>,
        title: &str,
        details: Details,
    ) -> Result<Self, Error> {
        if title.len() > TITLE_BYTES_MAX {
            return Err(Error::TitleTooLong { bytes: title.len() });
        }
        Ok(Self { id, title: title.to_owned(), details, ..Self::default() })
    }

    /// The same, made for another one, at a time its client names, with more that is known about it.
    pub fn known(
        mut self,
        parent: Option<SessionId>,
        created_at_ms: Option<u64>,
        changes: &[Change],
    ) -> Result<Self, Error> {
        for change in changes {
            change.check()?;
            if let Some(title) = self.details.change(change)? {
                self.title = title;
            }
        }
        Ok(Self { parent, created_at_ms, ..self })
    }

    pub(super) fn apply(
        &self,
        tx: &Tx<'_>,
        place: Place,
        op: OpId,
    ) -> Result<Effect<'static>, NotApplied> {
        let id = self.check(tx, place.log, op)?;
        let parent = match &self.parent {
            None => None,
            Some(id) => match store::sessions::log_of(tx, id)? {
                Some((log, project)) if project == place.log => {
                    Some(SessionKey { log, id: id.clone() })
                }
                _ => return Err(Error::NoParent(id.clone()).into()),
            },
        };
        let (key, entry) = self.make(tx, place, id, op, parent)?;
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
        op: OpId,
        parent: Option<SessionKey>,
    ) -> Result<(SessionKey, Option<Entry<'static>>), NotApplied> {
        self.record(tx, place, id, op, (parent, None))
    }

    /// Makes it as a fork.
    pub(super) fn make_fork(
        &self,
        tx: &Tx<'_>,
        place: Place,
        id: SessionId,
        op: OpId,
        forked_from: ForkedFrom,
    ) -> Result<(SessionKey, Option<Entry<'static>>), NotApplied> {
        self.record(tx, place, id, op, (None, Some(forked_from)))
    }

    fn record(
        &self,
        tx: &Tx<'_>,
        place: Place,
        id: SessionId,
        op: OpId,
        (parent, forked_from): (Option<SessionKey>, Option<ForkedFrom>),
    ) -> Result<(SessionKey, Option<Entry<'static>>), NotApplied> {
        let title = match self.title.as_str() {
            "" => session::default_title(parent.is_some(), place.now_ms),
            title => title.to_owned(),
        };
        let created = SessionCreated {
            key: SessionKey { log: store::logs::create(tx, place.log)?, id },
            title: title.into(),
            parent,
            slug: session::slug(op).into(),
            created_at_ms: self.created_at_ms,
            details: Some(self.details.clone()).filter(|known| *known != Details::default()),
            forked_from,
        };
        created.project(tx, place)?;
        let entry = entry(Kind::CreateSession, 3, &created)?;
        Ok((created.key, entry))
    }
}
