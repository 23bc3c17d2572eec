//! A ref is shown: redeemed as often as it may be, or, if it is a claim, exchanged once.
//!
//! These change what is kept about a grant and nothing in any log, so they are no ops; the engine runs them
//! in the same transactions.

use crate::model::code::{Code, Coded};
use crate::model::grant::{self, Authority};
use crate::model::ids::{GrantId, GrantKey, LogId};
use crate::model::sturdy_ref::Verifier;
use crate::store::grants::{Grant, NewGrant, RefTerms};
use crate::store::{self, StoreError, Tx};

/// A ref was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Used {
    /// The object it is for.
    pub(crate) log: LogId,
    /// The grant it gave.
    pub(crate) grant: GrantKey,
    /// That one's public name.
    pub(crate) id: GrantId,
    /// Whether it was given just now, and not before.
    pub(crate) fresh: bool,
}

/// It was used as often as it may be, or somebody else was quicker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this ref was used as often as it may be, or exchanged by somebody else")]
pub struct UsedUp;

impl Coded for UsedUp {
    fn code(&self) -> Code {
        Code::UsedUp
    }
}

/// Counts one more use.
pub(crate) fn redeem(
    tx: &Tx<'_>,
    key: GrantKey,
    now_ms: u64,
) -> Result<Result<Used, UsedUp>, StoreError> {
    let found = store::grants::get(tx, key)?.filter(|grant| !grant.is_used_up());
    let Some(found) = found else { return Ok(Err(UsedUp)) };
    store::grants::use_once(tx, key, now_ms)?;
    heard_of(tx, &found, now_ms)?;
    Ok(Ok(Used { log: found.log, grant: key, id: found.id, fresh: true }))
}

/// The first to show a claim gets a grant in exchange; the same one hears the same again.
pub(crate) fn exchange(
    tx: &Tx<'_>,
    key: GrantKey,
    verifier: Verifier,
    now_ms: u64,
) -> Result<Result<Used, UsedUp>, StoreError> {
    let claim = store::grants::get(tx, key)?.filter(|grant| grant.claim);
    let Some(claim) = claim else { return Ok(Err(UsedUp)) };
    let id = grant::claimed(claim.id);
    match store::grants::by_id(tx, id)? {
        Some(exchanged) if exchanged.verifier == verifier => {
            return Ok(Ok(Used { log: claim.log, grant: exchanged.key, id, fresh: false }));
        }
        Some(_) => return Ok(Err(UsedUp)),
        None => {}
    }
    let depth = claim.authority.depth + 1;
    let exchanged = NewGrant {
        id,
        verifier: Some(verifier),
        kind: claim.kind,
        log: claim.log,
        authority: Authority { depth, ..claim.authority.clone() },
        label: &claim.label,
        actor: &claim.actor,
        parent: Some(claim.key),
        // It was used in time; who it is sealed to, it stays sealed to.
        terms: RefTerms { sealed_to: &claim.sealed_to, ..RefTerms::default() },
    };
    let key = store::grants::create(tx, &exchanged, now_ms)?;
    store::grants::use_once(tx, claim.key, now_ms)?;
    heard_of(tx, &claim, now_ms)?;
    Ok(Ok(Used { log: claim.log, grant: key, id, fresh: true }))
}

/// A delegate that shows its ref is heard of.
fn heard_of(tx: &Tx<'_>, grant: &Grant, now_ms: u64) -> Result<(), StoreError> {
    match store::delegations::get(tx, grant.key)? {
        None => Ok(()),
        Some(delegation) => {
            let until_ms = delegation.lease.until_ms(now_ms, grant.authority.expires_at_ms);
            store::delegations::renew(tx, grant.key, until_ms)
        }
    }
}
