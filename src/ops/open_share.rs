//! A view of a session is published, as an object of its own with a ref to hand out.

use super::make_grant::{self, derive};
use super::{Effect, Kind, NotApplied, Place, entry};
use crate::model::audit;
use crate::model::code::{Code, Coded};
use crate::model::feed::Stretch;
use crate::model::grant::{Held, Narrowing};
use crate::model::ids::{Cursor, GrantId, MessageId, OpId, SessionId, ShareId};
use crate::model::infos::{ObjectKind, SessionKey};
use crate::model::ledger::Made;
use crate::model::rights::Right;
use crate::model::share::{ShareKey, View};
use crate::model::sturdy_ref::Verifier;
use crate::store::shares::NewShare;
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};

/// What somebody wants published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenShare {
    session: SessionKey,
    append: bool,
    up_to: Option<MessageId>,
    tool_outputs: bool,
    reasoning: bool,
    narrowing: Narrowing,
    verifier: Verifier,
}

/// How much of a session somebody wants published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Whether messages may be added through it.
    pub append: bool,
    /// The last message shown; none for all, as they come.
    pub up_to: Option<MessageId>,
    /// Whether what tools gave is shown.
    pub tool_outputs: bool,
    /// Whether reasoning is shown.
    pub reasoning: bool,
}

/// Why it cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is none.
    #[error("the session has no message {0}")]
    MessageNotFound(MessageId),
    /// What is added would not be seen.
    #[error("a share that ends at a message cannot be appended to")]
    EndsAndGrows,
    /// Rights are said otherwise.
    #[error("the rights of a share follow from `append`; leave those of its narrowing empty")]
    Rights,
    /// The session is gone.
    #[error("the session does not exist any more")]
    SessionNotFound,
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Error::MessageNotFound(_) => Code::MessageNotFound,
            Error::EndsAndGrows | Error::Rights => Code::NarrowingMalformed,
            Error::SessionNotFound => Code::SessionNotFound,
        }
    }
}

/// How it stands in the history, version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareOpened {
    /// The share.
    pub key: ShareKey,
    /// The session it shows.
    pub session_id: SessionId,
    /// Whether messages may be added through it.
    pub append: bool,
    /// What it shows.
    pub view: View,
    /// The grant behind the ref that was made with it.
    pub grant: GrantId,
}

impl ShareOpened {
    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        let project = store::logs::get(tx, place.log)?.project.unwrap_or(place.log);
        let share = NewShare {
            key: &self.key,
            session_id: &self.session_id,
            project,
            append: self.append,
            view: self.view,
            created_at_ms: place.now_ms,
        };
        store::shares::create(tx, &share)
    }
}

impl OpenShare {
    /// A wish that makes sense.
    pub fn new(
        session: SessionKey,
        wanted: Wanted,
        narrowing: Narrowing,
        verifier: Verifier,
    ) -> Result<Self, Error> {
        let Wanted { append, up_to, tool_outputs, reasoning } = wanted;
        if append && up_to.is_some() {
            return Err(Error::EndsAndGrows);
        }
        if narrowing.rights.is_some() {
            return Err(Error::Rights);
        }
        let more = append.then_some(Right::Append);
        let rights = Some([Right::Read].into_iter().chain(more).collect());
        let narrowing = Narrowing { rights, ..narrowing };
        Ok(Self { session, append, up_to, tool_outputs, reasoning, narrowing, verifier })
    }

    pub(super) fn apply(
        &self,
        tx: &Tx<'_>,
        place: Place,
        op: OpId,
    ) -> Result<Effect<'static>, NotApplied> {
        let derivable = derive(tx, place, op, &self.narrowing)?;
        let session = store::sessions::info(tx, place.log)?.ok_or(Error::SessionNotFound)?;
        let up_to = match &self.up_to {
            None => Cursor(0),
            Some(id) => store::messages::cursor_of(tx, place.log, id)?
                .ok_or_else(|| Error::MessageNotFound(id.clone()))?,
        };
        let id = ShareId::made_by(op);
        if store::shares::within(tx, Stretch::Server, &id)?.is_some() {
            return Err(make_grant::Error::NameReused.into());
        }
        // Checked; from here on it is written.
        let project = store::logs::get(tx, place.log)?.project.unwrap_or(place.log);
        let log = store::logs::create(tx, project)?;
        let object = Held { kind: ObjectKind::Share, log };
        let key = derivable.make(tx, place, object, &self.narrowing, Some(self.verifier))?;
        let opened = ShareOpened {
            key: ShareKey { log, id, session: self.session.log },
            session_id: session.id,
            append: self.append,
            view: View { up_to, tool_outputs: self.tool_outputs, reasoning: self.reasoning },
            grant: derivable.id,
        };
        opened.project(tx, place)?;
        let entry = entry(Kind::OpenShare, 1, &opened)?;
        Ok(Effect::new(Made::Grant(key), entry).audited(audit::Kind::ShareOpened, Some(key)))
    }
}
