//! An object's refs grow old: every grant for it is taken back, and ops made under its former epoch are
//! refused.

use super::{Effect, Kind, NotApplied, Place, entry};
use crate::model::audit;
use crate::model::grant::Fallen;
use crate::model::ledger::Made;
use crate::store::{self, Tx};
use serde::{Deserialize, Serialize};

/// What somebody wants made stale: the object whose log this op is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BumpEpoch;

/// How it stands in the history, version 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochBumped {
    /// The epoch from then on.
    pub epoch: u64,
    /// How many grants that cut.
    pub cut: u64,
}

impl BumpEpoch {
    pub(super) fn apply(&self, tx: &Tx<'_>, place: Place) -> Result<Effect<'static>, NotApplied> {
        let epoch = store::logs::bump_epoch(tx, place.log)?;
        let mut cut = Vec::new();
        for key in store::grants::of_object(tx, place.log)? {
            // Not the authority it is asked under, nor what that was derived from.
            if store::grants::stems_from(tx, place.granted, key)? {
                continue;
            }
            cut.extend(store::grants::revoke(tx, key, Fallen::Stale, place.now_ms)?);
        }
        let bumped = EpochBumped { epoch, cut: cut.len() as u64 };
        let entry = entry(Kind::BumpEpoch, 1, &bumped)?;
        Ok(Effect::new(Made::Epoch { epoch, cut: bumped.cut }, entry)
            .cutting(cut, Fallen::Stale)
            .audited(audit::Kind::EpochBumped, None))
    }
}
