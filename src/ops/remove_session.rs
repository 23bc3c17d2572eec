//! A session is taken away for good, with its children.

use super::{Also, Effect, Kind, NotApplied, Place, encoded};
use crate::model::audit;
use crate::model::code::{Code, Coded};
use crate::model::feed::Stretch;
use crate::model::grant::Fallen;
use crate::model::ids::{LogId, SessionId};
use crate::model::infos::SessionKey;
use crate::model::ledger::Made;
use crate::model::page::Page;
use crate::model::share::KeptShare;
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};

/// What somebody wants gone, from the project whose log this op is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoveSession {
    /// Which.
    pub id: SessionId,
}

/// Why it cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the project has no session {0}")]
pub struct NotFound(SessionId);

impl Coded for NotFound {
    fn code(&self) -> Code {
        Code::SessionNotFound
    }
}

/// How it stands in the history, version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRemoved {
    /// The session that was.
    pub key: SessionKey,
    /// Its shares, which are told of for ever.
    pub shares: Vec<KeptShare>,
}

impl SessionRemoved {
    /// What follows from it. Everything else about the session is gone with its log.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        self.keep_shares(tx, place)?;
        store::sessions::forget(tx, self.key.log)?;
        store::snapshots::forget_orphans(tx)?;
        store::projects::uncount_session(tx, place.log)
    }

    /// The ops that told of its shares are gone with its log.
    fn keep_shares(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        for share in &self.shares {
            store::shares::keep(tx, &self.key, place.log, share)?;
        }
        Ok(())
    }
}

impl RemoveSession {
    pub(super) fn apply(&self, tx: &Tx<'_>, place: Place) -> Result<Effect<'static>, NotApplied> {
        let session = match store::sessions::log_of(tx, &self.id)? {
            Some((log, project)) if project == place.log => log,
            _ => return Err(NotFound(self.id.clone()).into()),
        };
        let family = store::removal::family(tx, session)?;
        let removed = family.len() as u64;
        let (mut cut, mut erased, mut also) = (Vec::new(), Vec::new(), Vec::new());
        let mut entry = None;
        for (log, id) in family {
            let shares = shares_of(tx, log, place.now_ms)?;
            let objects = std::iter::once(log).chain(shares.iter().map(|share| share.key.log));
            for object in objects {
                for key in store::grants::of_object(tx, object)? {
                    cut.extend(store::grants::revoke(tx, key, Fallen::Revoked, place.now_ms)?);
                }
            }
            let gone = SessionRemoved { key: SessionKey { log, id }, shares };
            let said = encoded(Kind::RemoveSession, 1, &gone)?;
            // The one that was asked for comes last, and is the op itself.
            match log == session {
                true => entry = Some(said),
                false => also.push(Also { log: place.log, entry: said, granted: place.granted }),
            }
            gone.keep_shares(tx, place)?;
            store::projects::uncount_session(tx, place.log)?;
            erased.push(log);
        }
        let effect = Effect::new(Made::Removed(removed), entry).cutting(cut, Fallen::Revoked);
        Ok(Effect { also, erased, ..effect }.audited(audit::Kind::Changed, None))
    }
}

/// The shares of a session, ended now if they were not before.
fn shares_of(tx: &Tx<'_>, session: LogId, now_ms: u64) -> Result<Vec<KeptShare>, StoreError> {
    let (mut found, mut after) = (Vec::new(), 0);
    loop {
        let page = Page::new(after, u32::MAX, false);
        let shares = store::shares::page(tx, Stretch::Log(session), page)?;
        found.extend(shares.items.into_iter().map(|share| KeptShare {
            key: share.key,
            append: share.append,
            view: share.view,
            created_at_ms: share.created_at_ms,
            ended_at_ms: share.ended_at_ms.unwrap_or(now_ms),
        }));
        match shares.more {
            true => after = shares.next.0,
            false => return Ok(found),
        }
    }
}
