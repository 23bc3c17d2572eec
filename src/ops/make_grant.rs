//! Less of an object's authority is handed on, under a grant of its own.

use super::{Effect, Kind, NotApplied, Place, entry};
use crate::limits::GRANTS_PER_GRANT_MAX;
use crate::model::code::{Code, Coded};
use crate::model::grant::{self, Held, Narrowing};
use crate::model::ids::{GrantId, OpId};
use crate::model::ledger::Made;
use crate::model::sturdy_ref::Verifier;
use crate::store::grants::NewGrant;
use crate::store::{self, Tx};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What somebody wants to hand on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MakeGrant {
    /// Of which object.
    pub object: Held,
    /// How much of it.
    pub narrowing: Narrowing,
    /// What fits the secret of its ref, if there is to be one.
    pub verifier: Option<Verifier>,
}

/// Why it cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Two ops with one name want to make a grant in one log.
    #[error("another op of the same name has made a grant here; every op needs a name of its own")]
    NameReused,
    /// It would be over before it began.
    #[error("the time it would end has passed already")]
    AlreadyOver,
    /// There are enough.
    #[error("{GRANTS_PER_GRANT_MAX} grants in force are derived from this one; revoke some")]
    TooMany,
    /// The grant it would be derived from is not there.
    #[error("the grant this object is held under does not exist any more")]
    Gone,
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Error::NameReused => Code::OpReused,
            Error::AlreadyOver => Code::NarrowingMalformed,
            Error::TooMany => Code::TooManyGrants,
            Error::Gone => Code::Revoked,
        }
    }
}

/// How it stands in the history, version 1. What fits the secret is not in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantMade<'a> {
    /// Its public name.
    pub id: GrantId,
    /// The one it was derived from.
    pub parent: GrantId,
    /// Which rights it has, as bits.
    pub rights: u32,
    /// When it ends by itself, if it does.
    pub expires_at_ms: Option<u64>,
    /// What it is for.
    pub label: Cow<'a, str>,
    /// Whom it is for.
    pub actor: Cow<'a, str>,
    /// Whether there is a ref for it.
    pub saved: bool,
}

impl MakeGrant {
    pub(super) fn apply(
        &self,
        tx: &Tx<'_>,
        place: Place,
        op: OpId,
    ) -> Result<Effect<'static>, NotApplied> {
        let parent = store::grants::get(tx, place.granted)?.ok_or(Error::Gone)?;
        let authority = parent.authority.narrowed(&self.narrowing)?;
        if authority.has_expired(place.now_ms) {
            return Err(Error::AlreadyOver.into());
        }
        if store::grants::children_in_force(tx, parent.key)? >= GRANTS_PER_GRANT_MAX {
            return Err(Error::TooMany.into());
        }
        let id = grant::made_by(place.log, op);
        if store::grants::by_id(tx, id)?.is_some() {
            return Err(Error::NameReused.into());
        }
        let Narrowing { label, actor, .. } = &self.narrowing;
        let grant = NewGrant {
            id,
            verifier: self.verifier,
            kind: self.object.kind,
            log: self.object.log,
            authority,
            label,
            actor,
            parent: Some(parent.key),
            claim: self.narrowing.claim && self.verifier.is_some(),
        };
        let key = store::grants::create(tx, &grant, place.now_ms)?;
        let made = GrantMade {
            id,
            parent: parent.id,
            rights: authority.rights.bits(),
            expires_at_ms: authority.expires_at_ms,
            label: label.as_str().into(),
            actor: actor.as_str().into(),
            saved: self.verifier.is_some(),
        };
        let entry = entry(Kind::MakeGrant, 1, &made)?;
        Ok(Effect { made: Made::Grant(key), entry, cut: Vec::new() })
    }
}
