//! Something is heard of a delegate, or of a turn, and its lease begins anew.
//!
//! This changes what is kept about a grant and nothing in any log, so it is no op; the engine runs it in the
//! same transactions.

use super::end_delegation::running;
use super::{NotApplied, Place, Refused, found};
use crate::model::ids::{Cursor, GrantKey};
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

/// Until when the lease of a turn lasts now.
pub(crate) fn of_turn(tx: &Tx<'_>, place: Place, turn: Cursor) -> Result<u64, NotApplied> {
    let turn = store::turns::at(tx, place.log, turn)?.ok_or(found::Error::SessionNotFound)?;
    turn.running()?;
    let Some(until_ms) = turn.until_ms else { return Ok(0) };
    if !turn.lease.is_worth_renewing(until_ms, place.now_ms) {
        return Ok(until_ms);
    }
    Ok(found::keep(tx, place.log, &turn, turn.lease.until_ms(place.now_ms))?)
}
