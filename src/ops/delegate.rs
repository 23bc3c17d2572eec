//! Work is handed to somebody, under a grant that lasts while something is heard of its holder: in a session
//! of its own, or in the same one.

use super::create_session::CreateSession;
use super::make_grant::derive;
use super::{Also, Effect, Kind, NotApplied, Place, entry};
use crate::model::audit;
use crate::model::delegation::Lease;
use crate::model::grant::{Held, Narrowing};
use crate::model::ids::{GrantId, OpId};
use crate::model::infos::{ObjectKind, SessionKey};
use crate::model::ledger::Made;
use crate::model::sturdy_ref::Verifier;
use crate::store::{self, Tx};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What somebody wants handed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegate {
    /// From which session.
    pub session: SessionKey,
    /// How much of its authority.
    pub narrowing: Narrowing,
    /// What fits the secret of the delegate's ref.
    pub verifier: Verifier,
    /// For how long the delegate may be silent.
    pub lease: Lease,
    /// The session to be made for it; none if it is to work in the same one.
    pub child: Option<CreateSession>,
}

/// How it stands in the history, version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegated<'a> {
    /// The delegate's grant.
    pub id: GrantId,
    /// The session that was made for it.
    pub child: Option<SessionKey>,
    /// Which rights it has, as bits.
    pub rights: u32,
    /// When it ends by itself, if it does.
    pub expires_at_ms: Option<u64>,
    /// How long the delegate may be silent; 0 for ever.
    pub lease_ms: u64,
    /// What it is for.
    pub label: Cow<'a, str>,
    /// Whom it is for.
    pub actor: Cow<'a, str>,
}

impl Delegate {
    pub(super) fn apply(
        &self,
        tx: &Tx<'_>,
        place: Place,
        op: OpId,
    ) -> Result<Effect<'static>, NotApplied> {
        let derivable = derive(tx, place, op, &self.narrowing)?;
        let project = store::logs::get(tx, place.log)?.project.unwrap_or(place.log);
        let child_id = match &self.child {
            Some(child) => Some(child.check(tx, project, op)?),
            None => None,
        };
        // Checked; from here on it is written.
        let mut also = Vec::new();
        let child = match (&self.child, child_id) {
            (Some(child), Some(id)) => {
                let cursor = store::logs::get(tx, project)?.head.next();
                let in_project = Place { log: project, cursor, ..place };
                let (key, created) =
                    child.make(tx, in_project, id, op, Some(self.session.clone()))?;
                let granted = place.granted;
                also.extend(created.map(|entry| Also { log: project, entry, granted }));
                Some(key)
            }
            _ => None,
        };
        let log = child.as_ref().map_or(place.log, |child| child.log);
        let object = Held { kind: ObjectKind::Session, log };
        let key = derivable.make(tx, place, object, &self.narrowing, Some(self.verifier))?;
        let expires_at_ms = derivable.authority.expires_at_ms;
        // Until it is first heard of, it also ends with its ref.
        let ends_at_ms =
            [expires_at_ms, self.narrowing.unused_until_ms].into_iter().flatten().min();
        let until_ms = self.lease.until_ms(place.now_ms, ends_at_ms);
        store::delegations::create(tx, key, place.log, self.lease, until_ms)?;
        let delegated = Delegated {
            id: derivable.id,
            child,
            rights: derivable.authority.rights.bits(),
            expires_at_ms,
            lease_ms: self.lease.ms(),
            label: self.narrowing.label.as_str().into(),
            actor: self.narrowing.actor.as_str().into(),
        };
        let entry = entry(Kind::Delegate, 1, &delegated)?;
        let effect = Effect::new(Made::Grant(key), entry);
        Ok(Effect { also, ..effect }.audited(audit::Kind::Delegated, Some(key)))
    }
}
