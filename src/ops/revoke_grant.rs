//! A grant is taken back, with everything derived from it.

use super::{Effect, Kind, NotApplied, Place, entry};
use crate::model::audit;
use crate::model::code::{Code, Coded};
use crate::model::grant::Fallen;
use crate::model::ids::GrantId;
use crate::model::ledger::Made;
use crate::store::{self, Tx};
use serde::{Deserialize, Serialize};

/// What somebody wants taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RevokeGrant {
    /// Which.
    pub id: GrantId,
}

/// Why it cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is none, or it is somebody else's. Which, is not said.
    #[error("no grant {0} was derived from the one this object is held under")]
    NotFound(GrantId),
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Error::NotFound(_) => Code::GrantNotFound,
        }
    }
}

/// How it stands in the history, version 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantRevoked {
    /// Which.
    pub id: GrantId,
    /// How many grants that cut, itself included.
    pub cut: u64,
}

impl RevokeGrant {
    pub(super) fn apply(&self, tx: &Tx<'_>, place: Place) -> Result<Effect<'static>, NotApplied> {
        let found = store::grants::by_id(tx, self.id)?;
        let own = match &found {
            Some(found) => store::grants::stems_from(tx, found.key, place.granted)?,
            None => false,
        };
        let Some(found) = found.filter(|_| own) else {
            return Err(Error::NotFound(self.id).into());
        };
        let cut = store::grants::revoke(tx, found.key, Fallen::Revoked, place.now_ms)?;
        let count = cut.len() as u64;
        let entry = match count {
            0 => None,
            _ => entry(Kind::RevokeGrant, 1, &GrantRevoked { id: self.id, cut: count })?,
        };
        Ok(Effect::new(Made::Cut(count), entry)
            .cutting(cut, Fallen::Revoked)
            .audited(audit::Kind::Revoked, Some(found.key)))
    }
}
