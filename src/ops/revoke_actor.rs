//! Everything an actor was ever given is taken back.

use super::{Effect, Kind, NotApplied, Place, entry};
use crate::model::audit;
use crate::model::grant::Fallen;
use crate::model::ledger::Made;
use crate::store::{self, Tx};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Whose grants somebody wants taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevokeActor {
    /// Whom they were made for.
    pub actor: String,
}

/// How it stands in the history, version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorRevoked<'a> {
    /// Whose.
    pub actor: Cow<'a, str>,
    /// How many grants that cut, with those derived from them.
    pub cut: u64,
}

impl RevokeActor {
    pub(super) fn apply(&self, tx: &Tx<'_>, place: Place) -> Result<Effect<'static>, NotApplied> {
        let mut cut = Vec::new();
        for key in store::grants::of_actor(tx, &self.actor)? {
            // Only what was derived from the authority of whoever asks.
            if key != place.granted && store::grants::stems_from(tx, key, place.granted)? {
                cut.extend(store::grants::revoke(tx, key, Fallen::Revoked, place.now_ms)?);
            }
        }
        let count = cut.len() as u64;
        let revoked = ActorRevoked { actor: self.actor.as_str().into(), cut: count };
        let entry = match count {
            0 => None,
            _ => entry(Kind::RevokeActor, 1, &revoked)?,
        };
        Ok(Effect::new(Made::Cut(count), entry)
            .cutting(cut, Fallen::Revoked)
            .audited(audit::Kind::ActorRevoked, None))
    }
}
