//! The operator's own grant is replaced by a new one; what was derived from it goes on under that.

use super::{Effect, Kind, NotApplied, Place, entry};
use crate::model::audit;
use crate::model::code::{Code, Coded};
use crate::model::grant::{self, Fallen};
use crate::model::ids::{GrantId, LogId, OpId};
use crate::model::infos::ObjectKind;
use crate::model::ledger::Made;
use crate::model::sturdy_ref::Verifier;
use crate::store::grants::{NewGrant, RefTerms};
use crate::store::{self, Tx};
use serde::{Deserialize, Serialize};

/// The new one, by what fits its secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RotateRoot {
    /// What fits the secret of its ref.
    pub verifier: Verifier,
}

/// Why it cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Whoever asks was only given a part.
    #[error("only the operator's own root can be rotated, not one that was derived from it")]
    NotTheOperators,
    /// Two ops with one name want to make a grant.
    #[error("another op of the same name has made a grant here; every op needs a name of its own")]
    NameReused,
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Error::NotTheOperators => Code::NotPermitted,
            Error::NameReused => Code::OpReused,
        }
    }
}

/// How it stands in the history, version 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootRotated {
    /// The grant from then on.
    pub id: GrantId,
    /// The grant that is dead since.
    pub former: GrantId,
}

impl RotateRoot {
    pub(super) fn apply(
        &self,
        tx: &Tx<'_>,
        place: Place,
        op: OpId,
    ) -> Result<Effect<'static>, NotApplied> {
        let former = store::grants::get(tx, place.granted)?
            .filter(|grant| grant.kind == ObjectKind::Root && grant.authority.depth == 0)
            .ok_or(Error::NotTheOperators)?;
        let id = grant::made_by(place.log, op);
        if store::grants::by_id(tx, id)?.is_some() {
            return Err(Error::NameReused.into());
        }
        let grant = NewGrant {
            id,
            verifier: Some(self.verifier),
            kind: ObjectKind::Root,
            log: LogId::ROOT,
            authority: former.authority.clone(),
            label: &former.label,
            actor: &former.actor,
            parent: None,
            terms: RefTerms::default(),
        };
        let key = store::grants::create(tx, &grant, place.now_ms)?;
        let cut = store::grants::succeed(tx, former.key, key, place.now_ms)?;
        let entry = entry(Kind::RotateRoot, 1, &RootRotated { id, former: former.id })?;
        Ok(Effect::new(Made::Grant(key), entry)
            .cutting(cut, Fallen::Revoked)
            .audited(audit::Kind::RootRotated, Some(key)))
    }
}
