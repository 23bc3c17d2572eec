//! A delegation is over: the delegate says so, nothing was heard of it for too long, or its grant is gone.
//!
//! However it ends, the log of the session that delegated says so, and the delegate's grant is spent.

use super::{Also, Cut, Effect, Kind, NotApplied, Place, encoded};
use crate::limits::{LEASES_STEP_MAX, RESULT_BYTES_MAX};
use crate::model::audit;
use crate::model::code::{Code, Coded};
use crate::model::delegation::End;
use crate::model::grant::Fallen;
use crate::model::ids::{GrantId, GrantKey, SessionId};
use crate::model::ledger::Made;
use crate::store::delegations::Delegation;
use crate::store::{self, StoreError, Tx};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What a delegate has to say at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompleteDelegation {
    failed: bool,
    result: String,
}

/// Why it cannot be said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Whoever says so is not one.
    #[error("this object is not held under the grant of a delegate")]
    NotADelegate,
    /// It was said before.
    #[error("this delegation is over")]
    Over,
    /// It is longer than anybody reads.
    #[error("the result is {bytes} bytes long; the most accepted is {RESULT_BYTES_MAX}")]
    ResultTooLong {
        /// Its length.
        bytes: usize,
    },
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Error::NotADelegate => Code::DelegationNotFound,
            Error::Over => Code::DelegationEnded,
            Error::ResultTooLong { .. } => Code::OpTooLarge,
        }
    }
}

/// How it stands in the history, version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegationEnded<'a> {
    /// The delegate's grant.
    pub id: GrantId,
    /// The session it worked in.
    pub session: Option<SessionId>,
    /// How it ended.
    pub end: End,
    /// What the delegate said.
    pub result: Cow<'a, str>,
}

/// Delegations that were ended because their time had come.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    pub(crate) count: u64,
    pub(crate) cut: Vec<Cut>,
    /// What is to be said about it.
    pub(crate) told: Vec<Also>,
}

impl CompleteDelegation {
    /// Words that make sense.
    pub fn new(failed: bool, result: &str) -> Result<Self, Error> {
        match result.len() {
            bytes if bytes > RESULT_BYTES_MAX => Err(Error::ResultTooLong { bytes }),
            _ => Ok(Self { failed, result: result.to_owned() }),
        }
    }

    pub(super) fn apply(&self, tx: &Tx<'_>, place: Place) -> Result<Effect<'static>, NotApplied> {
        let delegation = running(tx, place.granted)?;
        let (end, why) = match self.failed {
            false => (End::Completed, Fallen::Completed),
            true => (End::Failed, Fallen::Failed),
        };
        let said = || conclude(tx, &delegation, end, &self.result, place.now_ms);
        let entry = said()?.entry;
        let also = match delegation.log == place.log {
            true => Vec::new(),
            false => vec![said()?],
        };
        let cut = store::grants::revoke(tx, delegation.granted, why, place.now_ms)?;
        let effect = Effect::new(Made::Nothing, Some(entry)).cutting(cut, why);
        let kind = audit::Kind::DelegationEnded;
        Ok(Effect { also, ..effect }.audited(kind, Some(delegation.granted)))
    }
}

/// The delegation under a grant, if it is a delegate's and runs. One that was handed over as a claim is held
/// under the grant the claim was exchanged for.
pub(crate) fn running(tx: &Tx<'_>, granted: GrantKey) -> Result<Delegation, NotApplied> {
    let mut found = store::delegations::get(tx, granted)?;
    if found.is_none()
        && let Some(claim) = store::grants::claim_behind(tx, granted)?
    {
        found = store::delegations::get(tx, claim.key)?;
    }
    match found {
        None => Err(Error::NotADelegate.into()),
        Some(delegation) if delegation.end != End::Running => Err(Error::Over.into()),
        Some(delegation) => Ok(delegation),
    }
}

/// Writes down how a delegation ended; what the log says about it.
fn conclude(
    tx: &Tx<'_>,
    delegation: &Delegation,
    end: End,
    result: &str,
    now_ms: u64,
) -> Result<Also, StoreError> {
    store::delegations::end(tx, delegation.granted, end, result, now_ms)?;
    let grant = store::grants::get(tx, delegation.granted)?
        .ok_or_else(|| StoreError::Corrupt("a delegation without a grant".into()))?;
    let session = store::sessions::id_of(tx, grant.log)?;
    let ended = DelegationEnded { id: grant.id, session, end, result: result.into() };
    let entry = encoded(Kind::EndDelegation, 1, &ended)?;
    Ok(Also { log: delegation.log, entry, granted: delegation.granted })
}

/// Grants were taken back: those among them that were delegates' end their delegations.
pub(crate) fn after(tx: &Tx<'_>, cut: &[Cut], now_ms: u64) -> Result<Vec<Also>, StoreError> {
    let mut told = Vec::new();
    for (key, _) in cut {
        let delegation = store::delegations::get(tx, *key)?;
        if let Some(delegation) = delegation.filter(|it| it.end == End::Running) {
            told.push(conclude(tx, &delegation, End::Revoked, "", now_ms)?);
        }
    }
    Ok(told)
}

/// Ends delegations whose time has come, a bounded number of them.
pub(crate) fn end_due(tx: &Tx<'_>, now_ms: u64) -> Result<Ended, StoreError> {
    let mut ended = Ended::default();
    for delegation in store::delegations::due(tx, now_ms, LEASES_STEP_MAX)? {
        let granted = delegation.granted;
        // One of them may have ended with another one it was derived from.
        let still = store::delegations::get(tx, granted)?.is_some_and(|it| it.end == End::Running);
        if !still {
            continue;
        }
        let fallen = store::grants::get(tx, granted)?.and_then(|grant| grant.fallen(now_ms));
        let (end, why) = match fallen {
            Some(why @ (Fallen::Expired | Fallen::Unused)) => (End::Expired, why),
            _ => (End::Lapsed, Fallen::Lapsed),
        };
        ended.told.push(conclude(tx, &delegation, end, "", now_ms)?);
        let cut: Vec<_> = store::grants::revoke(tx, granted, why, now_ms)?
            .into_iter()
            .map(|key| (key, why))
            .collect();
        ended.told.extend(after(tx, &cut, now_ms)?);
        ended.cut.extend(cut);
        ended.count += 1;
    }
    Ok(ended)
}
