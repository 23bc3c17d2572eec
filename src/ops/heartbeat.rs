//! Something is heard of a delegate, and its lease begins anew.
//!
//! This changes what is kept about a grant and nothing in any log, so it is no op; the engine runs it in the
//! same transactions.

use super::end_delegation::running;
use super::{NotApplied, Refused};
use crate::model::ids::GrantKey;
use crate::store::{self, StoreError, Tx};

/// Until when the lease lasts now; 0 for ever. One that follows shortly on another writes nothing.
pub(crate) fn heartbeat(
    tx: &Tx<'_>,
    granted: GrantKey,
    now_ms: u64,
) -> Result<Result<u64, Refused>, StoreError> {
    let delegation = match running(tx, granted) {
        Ok(delegation) => delegation,
        Err(NotApplied::Refused(refused)) => return Ok(Err(refused)),
        Err(NotApplied::Store(error)) => return Err(error),
    };
    let expires_at_ms =
        store::grants::in_force(tx, granted)?.ok().and_then(|force| force.expires_at_ms);
    let until_ms = delegation.lease.until_ms(now_ms, expires_at_ms);
    if !delegation.lease.is_worth_noting(delegation.until_ms, until_ms) {
        return Ok(Ok(delegation.until_ms.unwrap_or(0)));
    }
    store::delegations::renew(tx, delegation.granted, until_ms)?;
    Ok(Ok(until_ms.unwrap_or(0)))
}
