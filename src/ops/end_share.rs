//! A share is ended: nothing is shown through it any more, whoever has a ref for it.

use super::{Also, Effect, Kind, NotApplied, Place, encoded};
use crate::model::audit;
use crate::model::code::{Code, Coded};
use crate::model::grant::Fallen;
use crate::model::ids::ShareId;
use crate::model::ledger::Made;
use crate::model::rights::Right;
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};

/// What somebody wants ended: the share whose log this op is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndShare {
    /// Its public name.
    pub id: ShareId,
}

/// How it stands in the history, version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareEnded {
    /// Its public name.
    pub id: ShareId,
}

impl ShareEnded {
    /// What follows from it, in the share's own log; in the session's it is only told.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        store::shares::end(tx, place.log, place.now_ms).map(drop)
    }
}

/// Why it cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is somebody else's.
    #[error(
        "this share was not made under the grant this object is held under; ending it needs \"admin\""
    )]
    NotOwn,
}

impl Coded for Error {
    fn code(&self) -> Code {
        Code::NotPermitted
    }
}

impl EndShare {
    pub(super) fn apply(&self, tx: &Tx<'_>, place: Place) -> Result<Effect<'static>, NotApplied> {
        let terms = store::shares::terms(tx, place.log)?.filter(|terms| terms.open);
        let Some(terms) = terms else { return Ok(Effect::new(Made::Cut(0), None)) };
        let first = store::grants::first_of_object(tx, place.log)?;
        let own = match first {
            Some(first) => store::grants::stems_from(tx, first, place.granted)?,
            None => false,
        };
        let asker = store::grants::get(tx, place.granted)?;
        if !own && !asker.is_some_and(|it| it.authority.rights.contains(Right::Admin)) {
            return Err(Error::NotOwn.into());
        }
        let mut cut = Vec::new();
        for key in store::grants::of_object(tx, place.log)? {
            cut.extend(store::grants::revoke(tx, key, Fallen::Revoked, place.now_ms)?);
        }
        store::subscriptions::forget_of_share(tx, terms.key.session, &self.id)?;
        let ended = ShareEnded { id: self.id.clone() };
        ended.project(tx, place)?;
        let entry = encoded(Kind::EndShare, 1, &ended)?;
        // The session's log says so, too: that ends the feeds that tell of it through the share.
        let (log, granted) = (terms.key.session, place.granted);
        let also = vec![Also { log, entry: encoded(Kind::EndShare, 1, &ended)?, granted }];
        let made = Made::Cut(cut.len() as u64);
        let effect = Effect::new(made, Some(entry)).cutting(cut, Fallen::Revoked);
        Ok(Effect { also, ..effect }.audited(audit::Kind::ShareEnded, None))
    }
}
