//! A share is ended: nothing is shown through it any more, whoever has a ref for it.

use super::{Effect, Kind, NotApplied, Place, entry};
use crate::model::audit;
use crate::model::grant::Fallen;
use crate::model::ids::ShareId;
use crate::model::ledger::Made;
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
    /// What follows from it.
    pub(super) fn project(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        store::shares::end(tx, place.log, place.now_ms).map(drop)
    }
}

impl EndShare {
    pub(super) fn apply(&self, tx: &Tx<'_>, place: Place) -> Result<Effect<'static>, NotApplied> {
        let open = store::shares::key(tx, place.log)?.is_some_and(|(_, open)| open);
        let mut cut = Vec::new();
        if open {
            for key in store::grants::of_object(tx, place.log)? {
                cut.extend(store::grants::revoke(tx, key, Fallen::Revoked, place.now_ms)?);
            }
        }
        let made = Made::Cut(cut.len() as u64);
        let ended = ShareEnded { id: self.id.clone() };
        let entry = match open {
            true => {
                ended.project(tx, place)?;
                entry(Kind::EndShare, 1, &ended)?
            }
            false => None,
        };
        let effect = Effect::new(made, entry).cutting(cut, Fallen::Revoked);
        Ok(effect.audited(audit::Kind::ShareEnded, None))
    }
}
