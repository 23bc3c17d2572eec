//! Table `grants`: recorded authority.

use super::{Read, StoreError, Tx, sql_int};
use crate::model::ids::{GrantId, GrantKey, LogId};
use crate::model::infos::ObjectKind;
use crate::model::rights::Rights;
use crate::model::sturdy_ref::Verifier;
use rusqlite::OptionalExtension;

/// A grant as it is stored.
#[derive(Debug, Clone)]
pub struct Grant {
    /// Its row.
    pub key: GrantKey,
    /// What fits the secret that redeems it.
    pub verifier: Verifier,
    /// What kind of object it is for.
    pub kind: ObjectKind,
    /// That object's log.
    pub log: LogId,
    /// What its holder may do.
    pub rights: Rights,
    /// Whether it was taken back.
    pub revoked: bool,
}

/// A grant to be stored.
#[derive(Debug, Clone)]
pub struct NewGrant<'a> {
    /// The public half of its ref.
    pub id: GrantId,
    /// What fits the secret half.
    pub verifier: Verifier,
    /// What kind of object it is for.
    pub kind: ObjectKind,
    /// That object's log.
    pub log: LogId,
    /// What its holder may do.
    pub rights: Rights,
    /// What it is for, for people.
    pub label: &'a str,
}

/// Records a grant.
pub fn create(tx: &Tx<'_>, grant: &NewGrant<'_>, now_ms: u64) -> Result<GrantKey, StoreError> {
    tx.conn
        .prepare_cached(
            "INSERT INTO grants (public_id, verifier, object_kind, object_log, rights, label, created_at_ms)
             VALUES (?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute((
            grant.id.0,
            grant.verifier.as_bytes(),
            grant.kind as i64,
            grant.log.0,
            grant.rights.bits(),
            grant.label,
            sql_int(now_ms),
        ))?;
    Ok(GrantKey(tx.conn.last_insert_rowid()))
}

/// The grant with this public id.
pub fn by_id(read: &Read<'_>, id: GrantId) -> Result<Option<Grant>, StoreError> {
    let row = read
        .conn
        .prepare_cached(
            "SELECT id, verifier, object_kind, object_log, rights, revoked_at_ms IS NOT NULL
             FROM grants WHERE public_id = ?",
        )?
        .query_row([id.0], |row| {
            Ok((
                GrantKey(row.get(0)?),
                Verifier::from_bytes(row.get(1)?),
                row.get::<_, i64>(2)?,
                LogId(row.get(3)?),
                Rights::from_bits(row.get(4)?),
                row.get(5)?,
            ))
        })
        .optional()?;
    row.map(|(key, verifier, kind, log, rights, revoked)| {
        let kind = match kind {
            0 => ObjectKind::Root,
            1 => ObjectKind::Project,
            2 => ObjectKind::Session,
            other => return Err(StoreError::odd("grants", format_args!("object kind {other}"))),
        };
        Ok(Grant { key, verifier, kind, log, rights, revoked })
    })
    .transpose()
}

/// Whether a grant is still in force.
pub fn is_live(read: &Read<'_>, key: GrantKey) -> Result<bool, StoreError> {
    Ok(read
        .conn
        .prepare_cached("SELECT revoked_at_ms IS NULL FROM grants WHERE id = ?")?
        .query_row([key.0], |row| row.get(0))
        .optional()?
        .unwrap_or(false))
}

/// Takes back every grant for the root; returns how many were still in force.
pub fn revoke_root(tx: &Tx<'_>, now_ms: u64) -> Result<usize, StoreError> {
    Ok(tx
        .conn
        .prepare_cached(
            "UPDATE grants SET revoked_at_ms = ? WHERE object_kind = 0 AND revoked_at_ms IS NULL",
        )?
        .execute([sql_int(now_ms)])?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sturdy_ref::{Secret, VerifierKey};
    use crate::store::testing;

    #[test]
    fn a_grant_comes_back_as_it_was_and_is_dead_once_revoked() {
        let (_dir, mut store) = testing::store();
        let tx = store.begin().unwrap();
        let verifier = Secret::new([5; 32]).verifier(&VerifierKey([2; 32]));
        let new = NewGrant {
            id: GrantId([3; 16]),
            verifier,
            kind: ObjectKind::Root,
            log: LogId::ROOT,
            rights: Rights::all(),
            label: "operator",
        };
        let key = create(&tx, &new, 1).unwrap();
        let found = by_id(&tx, new.id).unwrap().unwrap();
        assert_eq!((found.key, found.verifier, found.kind), (key, verifier, ObjectKind::Root));
        assert_eq!((found.log, found.rights, found.revoked), (LogId::ROOT, Rights::all(), false));
        assert!(is_live(&tx, key).unwrap());
        assert!(by_id(&tx, GrantId([4; 16])).unwrap().is_none());

        assert_eq!(revoke_root(&tx, 2).unwrap(), 1);
        assert_eq!(revoke_root(&tx, 3).unwrap(), 0);
        assert!(!is_live(&tx, key).unwrap() && by_id(&tx, new.id).unwrap().unwrap().revoked);
        assert!(!is_live(&tx, GrantKey(99)).unwrap(), "an unknown grant is not in force");
    }
}
