//! Table `delegations`: work handed to somebody, and until when it is waited for.

use super::{Read, StoreError, Tx, from_sql_int, sql_int};
use crate::model::delegation::{End, Lease};
use crate::model::ids::{Cursor, GrantId, GrantKey, LogId};
use crate::model::page::{Page, Paged};
use rusqlite::{OptionalExtension, Row};

/// A delegation that is looked at to be moved on or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delegation {
    /// The delegate's grant.
    pub granted: GrantKey,
    /// The session that delegated.
    pub log: LogId,
    /// How long the delegate may be silent.
    pub lease: Lease,
    /// When it is over, unless something is heard.
    pub until_ms: Option<u64>,
    /// How it ended.
    pub end: End,
}

/// A delegation as it is told.
#[derive(Debug, Clone)]
pub struct DelegationInfo {
    /// What is stored.
    pub delegation: Delegation,
    /// The public name of the delegate's grant.
    pub grant: GrantId,
    /// The public name of the session it works in.
    pub session_id: String,
    /// What it is for.
    pub label: String,
    /// Whom it is for.
    pub actor: String,
    /// When it was made.
    pub created_at_ms: u64,
    /// When it ended, if it did.
    pub ended_at_ms: Option<u64>,
    /// What the delegate said at the end.
    pub result: String,
}

const COLUMNS: &str = "delegations.granted, delegations.log, lease_ms, until_ms, delegations.end, ended_at_ms, result";

/// Records a delegation.
pub fn create(
    tx: &Tx<'_>,
    granted: GrantKey,
    log: LogId,
    lease: Lease,
    until_ms: Option<u64>,
) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "INSERT INTO delegations (granted, log, lease_ms, until_ms) VALUES (?, ?, ?, ?)",
        )?
        .execute((granted.0, log.0, sql_int(lease.ms()), until_ms.map(sql_int)))?;
    Ok(())
}

/// The delegation under a grant, if it is one's.
pub fn get(read: &Read<'_>, granted: GrantKey) -> Result<Option<Delegation>, StoreError> {
    read.conn
        .prepare_cached(&format!("SELECT {COLUMNS} FROM delegations WHERE granted = ?"))?
        .query_row([granted.0], |row| Ok(from_row(row)))
        .optional()?
        .transpose()
}

/// Something was heard of the delegate.
pub fn renew(tx: &Tx<'_>, granted: GrantKey, until_ms: Option<u64>) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached("UPDATE delegations SET until_ms = ? WHERE granted = ? AND end = 0")?
        .execute((until_ms.map(sql_int), granted.0))?;
    Ok(())
}

/// It is over.
pub fn end(
    tx: &Tx<'_>,
    granted: GrantKey,
    end: End,
    result: &str,
    now_ms: u64,
) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "UPDATE delegations SET end = ?, ended_at_ms = ?, result = ? WHERE granted = ? AND end = 0",
        )?
        .execute((end as u8, sql_int(now_ms), result, granted.0))?;
    Ok(())
}

/// Delegations nothing was heard of in time, a few of them.
pub fn due(read: &Read<'_>, now_ms: u64, limit: u32) -> Result<Vec<Delegation>, StoreError> {
    let mut query = read.conn.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM delegations WHERE end = 0 AND until_ms <= ? ORDER BY until_ms LIMIT ?"
    ))?;
    let mut rows = query.query((sql_int(now_ms), limit))?;
    let mut due = Vec::new();
    while let Some(row) = rows.next()? {
        due.push(from_row(row)?);
    }
    Ok(due)
}

/// Nobody could be heard while the server was not there: every lease begins anew. How many were moved.
pub fn begin_anew(tx: &Tx<'_>, now_ms: u64) -> Result<u64, StoreError> {
    let moved = tx.conn.execute(
        "UPDATE delegations SET until_ms = max(until_ms, min(?1 + lease_ms,
           coalesce((SELECT expires_at_ms FROM grants WHERE grants.id = granted), ?1 + lease_ms)))
         WHERE end = 0 AND lease_ms > 0",
        [sql_int(now_ms)],
    )?;
    Ok(moved as u64)
}

/// A page of the delegations made from a session under a grant, in the order they were made.
pub fn page(
    read: &Read<'_>,
    log: LogId,
    from: GrantKey,
    page: Page,
) -> Result<Paged<DelegationInfo>, StoreError> {
    let (order, bound) = match page.newest_first() {
        false => ("ORDER BY granted", "granted >= ?2"),
        true => ("ORDER BY granted DESC", "granted <= ?2"),
    };
    let mut query = read.conn.prepare_cached(&format!(
        "SELECT {COLUMNS}, public_id, label, actor, created_at_ms,
           (SELECT sessions.id FROM sessions WHERE sessions.log = object_log)
         FROM delegations JOIN grants ON grants.id = granted
         WHERE delegations.log = ?1 AND {bound} AND EXISTS (
           WITH RECURSIVE above (id) AS (
             SELECT granted UNION ALL
             SELECT parent FROM grants JOIN above ON grants.id = above.id WHERE parent IS NOT NULL)
           SELECT 1 FROM above WHERE id = ?4)
         {order} LIMIT ?3"
    ))?;
    let mut rows = query.query((log.0, page.bound(), page.limit() + 1, from.0))?;
    super::paged(
        &mut rows,
        page,
        |row| {
            Ok(DelegationInfo {
                delegation: from_row(row)?,
                ended_at_ms: row.get::<_, Option<i64>>(5)?.map(from_sql_int),
                result: row.get(6)?,
                grant: GrantId(row.get(7)?),
                label: row.get(8)?,
                actor: row.get(9)?,
                created_at_ms: from_sql_int(row.get(10)?),
                session_id: row.get::<_, Option<String>>(11)?.unwrap_or_default(),
            })
        },
        |info| {
            let bytes = info.label.len() + info.result.len() + 128;
            (Cursor(from_sql_int(info.delegation.granted.0)), bytes)
        },
    )
}

fn from_row(row: &Row<'_>) -> Result<Delegation, StoreError> {
    let odd =
        |what: &str, number: i64| StoreError::odd("delegations", format_args!("{what} {number}"));
    let (lease_ms, end): (i64, u8) = (row.get(2)?, row.get(4)?);
    Ok(Delegation {
        granted: GrantKey(row.get(0)?),
        log: LogId(row.get(1)?),
        lease: Lease::new(from_sql_int(lease_ms)).map_err(|_| odd("lease", lease_ms))?,
        until_ms: row.get::<_, Option<i64>>(3)?.map(from_sql_int),
        end: End::from_number(end).ok_or_else(|| odd("end", end.into()))?,
    })
}
