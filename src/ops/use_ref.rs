//! A ref is shown: redeemed as often as it may be, or, if it is a claim, exchanged once.
//!
//! These change what is kept about a grant and nothing in any log, so they are no ops; the engine runs them
//! in the same transactions.

use crate::model::code::{Code, Coded};
use crate::model::grant::{self, Authority};
use crate::model::ids::{GrantId, GrantKey};
use crate::model::sturdy_ref::Verifier;
use crate::store::grants::NewGrant;
use crate::store::{self, StoreError, Tx};

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
) -> Result<Result<(), UsedUp>, StoreError> {
    let found = store::grants::get(tx, key)?;
    if found.is_some_and(|it| it.authority.uses_max.is_some_and(|max| it.uses >= max)) {
        return Ok(Err(UsedUp));
    }
    store::grants::use_once(tx, key, now_ms)?;
    Ok(Ok(()))
}

/// The first to show a claim gets a grant in exchange; the same one hears the same again.
pub(crate) fn exchange(
    tx: &Tx<'_>,
    key: GrantKey,
    verifier: Verifier,
    now_ms: u64,
) -> Result<Result<GrantId, UsedUp>, StoreError> {
    let claim = store::grants::get(tx, key)?.filter(|grant| grant.claim);
    let Some(claim) = claim else { return Ok(Err(UsedUp)) };
    let id = grant::claimed(claim.id);
    match store::grants::by_id(tx, id)? {
        Some(exchanged) if exchanged.verifier == verifier => return Ok(Ok(id)),
        Some(_) => return Ok(Err(UsedUp)),
        None => {}
    }
    let depth = claim.authority.depth + 1;
    let exchanged = NewGrant {
        id,
        verifier: Some(verifier),
        kind: claim.kind,
        log: claim.log,
        authority: Authority { depth, ..claim.authority },
        label: &claim.label,
        actor: &claim.actor,
        parent: Some(claim.key),
        claim: false,
    };
    store::grants::create(tx, &exchanged, now_ms)?;
    store::grants::use_once(tx, claim.key, now_ms)?;
    Ok(Ok(id))
}
