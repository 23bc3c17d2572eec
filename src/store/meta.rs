//! Table `meta`: who this store is.

use super::{Read, StoreError, Tx, from_sql_int, sql_int};
use crate::model::ids::RealmId;
use crate::model::sturdy_ref::VerifierKey;
use rusqlite::OptionalExtension;

/// The one row.
#[derive(Debug, Clone)]
pub struct Meta {
    /// Names the data.
    pub realm: RealmId,
    /// Keys the hashes of ref secrets. It is in the same file as the hashes on purpose: one file is a
    /// whole backup, and 256 random bits need no second secret to stay unguessable.
    pub verifier_key: VerifierKey,
    /// Starts counted so far.
    pub incarnation: u64,
}

/// The row, if the store has been used before.
pub fn get(read: &Read<'_>) -> Result<Option<Meta>, StoreError> {
    let row = read
        .conn
        .prepare_cached("SELECT realm, verifier_key, incarnation FROM meta")?
        .query_row([], |row| {
            Ok(Meta {
                realm: RealmId(row.get(0)?),
                verifier_key: VerifierKey(row.get(1)?),
                incarnation: from_sql_int(row.get(2)?),
            })
        })
        .optional()?;
    Ok(row)
}

/// Names a new store.
pub fn create(
    tx: &Tx<'_>,
    realm: RealmId,
    verifier_key: &[u8; 32],
    now_ms: u64,
) -> Result<(), StoreError> {
    tx.conn.execute(
        "INSERT INTO meta (one, realm, verifier_key, incarnation, created_at_ms) VALUES (1, ?, ?, 0, ?)",
        (realm.0, verifier_key, sql_int(now_ms)),
    )?;
    Ok(())
}

/// Counts one more start.
pub fn count_start(tx: &Tx<'_>) -> Result<(), StoreError> {
    tx.conn.execute("UPDATE meta SET incarnation = incarnation + 1", [])?;
    Ok(())
}
