//! Less of an object's authority is handed on, under a grant of its own.

use super::{Effect, Kind, NotApplied, Place, entry};
use crate::limits::GRANTS_PER_GRANT_MAX;
use crate::model::audit;
use crate::model::code::{Code, Coded};
use crate::model::grant::{self, Authority, Held, Narrowing};
use crate::model::ids::{GrantId, GrantKey, OpId};
use crate::model::infos::ObjectKind;
use crate::model::ledger::Made;
use crate::model::share::ShareEnded;
use crate::model::sturdy_ref::Verifier;
use crate::store::grants::{Grant, NewGrant, RefTerms};
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

/// A grant that may be made, and is not yet.
pub(super) struct Derivable {
    pub(super) id: GrantId,
    pub(super) parent: Grant,
    pub(super) authority: Authority,
}

/// Whether so much may be handed on, and under which name it would be.
pub(super) fn derive(
    tx: &Tx<'_>,
    place: Place,
    op: OpId,
    narrowing: &Narrowing,
) -> Result<Derivable, NotApplied> {
    let parent = store::grants::get(tx, place.granted)?.ok_or(Error::Gone)?;
    let authority = parent.authority.narrowed(narrowing)?;
    let unused = narrowing.unused_until_ms.is_some_and(|at_ms| at_ms <= place.now_ms);
    if authority.has_expired(place.now_ms) || unused {
        return Err(Error::AlreadyOver.into());
    }
    if store::grants::children_in_force(tx, parent.key)? >= GRANTS_PER_GRANT_MAX {
        return Err(Error::TooMany.into());
    }
    let id = grant::made_by(place.log, op);
    if store::grants::by_id(tx, id)?.is_some() {
        return Err(Error::NameReused.into());
    }
    Ok(Derivable { id, parent, authority })
}

impl Derivable {
    /// Makes it, for an object.
    pub(super) fn make(
        &self,
        tx: &Tx<'_>,
        place: Place,
        object: Held,
        narrowing: &Narrowing,
        verifier: Option<Verifier>,
    ) -> Result<GrantKey, NotApplied> {
        let saved = verifier.is_some();
        let grant = NewGrant {
            id: self.id,
            verifier,
            kind: object.kind,
            log: object.log,
            authority: self.authority.clone(),
            label: &narrowing.label,
            actor: &narrowing.actor,
            parent: Some(self.parent.key),
            terms: RefTerms {
                claim: narrowing.claim && saved,
                unused_until_ms: narrowing.unused_until_ms.filter(|_| saved),
                sealed_to: if saved { &narrowing.sealed_to } else { "" },
            },
        };
        Ok(store::grants::create(tx, &grant, place.now_ms)?)
    }
}

impl MakeGrant {
    /// Through a share only what it was made for can be handed on, whatever its owner may do besides.
    fn within_share(&self, tx: &Tx<'_>, place: Place) -> Result<Narrowing, NotApplied> {
        let terms = store::shares::terms(tx, self.object.log)?.filter(|terms| terms.open);
        let most = terms.ok_or(ShareEnded)?.rights();
        let rights = match self.narrowing.rights {
            Some(rights) => match rights.lacking(most) {
                Some(beyond) => return Err(grant::Error::Widened(beyond).into()),
                None => rights,
            },
            None => {
                let held = store::grants::get(tx, place.granted)?.ok_or(Error::Gone)?;
                held.authority.rights.each().filter(|right| most.contains(*right)).collect()
            }
        };
        Ok(Narrowing { rights: Some(rights), ..self.narrowing.clone() })
    }

    pub(super) fn apply(
        &self,
        tx: &Tx<'_>,
        place: Place,
        op: OpId,
    ) -> Result<Effect<'static>, NotApplied> {
        let narrowing = match self.object.kind {
            ObjectKind::Share => self.within_share(tx, place)?,
            _ => self.narrowing.clone(),
        };
        let derivable = derive(tx, place, op, &narrowing)?;
        let key = derivable.make(tx, place, self.object, &narrowing, self.verifier)?;
        let made = GrantMade {
            id: derivable.id,
            parent: derivable.parent.id,
            rights: derivable.authority.rights.bits(),
            expires_at_ms: derivable.authority.expires_at_ms,
            label: self.narrowing.label.as_str().into(),
            actor: self.narrowing.actor.as_str().into(),
            saved: self.verifier.is_some(),
        };
        let entry = entry(Kind::MakeGrant, 1, &made)?;
        let kind = match made.saved {
            true => audit::Kind::Saved,
            false => audit::Kind::Attenuated,
        };
        Ok(Effect::new(Made::Grant(key), entry).audited(kind, Some(key)))
    }
}
