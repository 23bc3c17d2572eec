//! Table `logs`: where each log begins and ends, and whose it is.

use super::{Read, StoreError, Tx, from_sql_int, sql_int};
use crate::model::ids::{Cursor, LogId};
use std::collections::HashMap;

/// What the ledger must know of a log before it takes an op.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogState {
    /// Where it ends.
    pub head: Cursor,
    /// Up to here some ops are gone.
    pub floor: Cursor,
    /// Up to here compaction has looked.
    pub swept: Cursor,
    /// The generation of its object's refs.
    pub epoch: u64,
    /// The project it belongs to: itself for a project's own, none for the root's.
    pub project: Option<LogId>,
    /// How many producers ever wrote to it.
    pub producers: u64,
    /// Whether what it was the log of is gone.
    pub removed: bool,
}

/// Begins the log of a session.
pub fn create(tx: &Tx<'_>, project: LogId) -> Result<LogId, StoreError> {
    tx.conn.prepare_cached("INSERT INTO logs (project) VALUES (?)")?.execute([project.0])?;
    Ok(LogId(tx.conn.last_insert_rowid()))
}

/// Begins the log of a project.
pub fn create_for_project(tx: &Tx<'_>) -> Result<LogId, StoreError> {
    tx.conn.prepare_cached("INSERT INTO logs (head) VALUES (0)")?.execute([])?;
    let id = tx.conn.last_insert_rowid();
    tx.conn.prepare_cached("UPDATE logs SET project = id WHERE id = ?")?.execute([id])?;
    Ok(LogId(id))
}

/// What is known about a log.
pub fn get(read: &Read<'_>, log: LogId) -> Result<LogState, StoreError> {
    Ok(read
        .conn
        .prepare_cached(
            "SELECT head, floor, epoch, project, producers, swept, removed FROM logs WHERE id = ?",
        )?
        .query_row([log.0], |row| {
            Ok(LogState {
                head: Cursor(from_sql_int(row.get(0)?)),
                floor: Cursor(from_sql_int(row.get(1)?)),
                epoch: from_sql_int(row.get(2)?),
                project: row.get::<_, Option<i64>>(3)?.map(LogId),
                producers: from_sql_int(row.get(4)?),
                swept: Cursor(from_sql_int(row.get(5)?)),
                removed: row.get(6)?,
            })
        })?)
}

/// Moves the end of a log, behind ops of so many bytes.
pub fn advance(
    tx: &Tx<'_>,
    log: LogId,
    head: Cursor,
    bytes: u64,
    now_ms: u64,
) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "UPDATE logs SET head = ?, bytes = bytes + ?, updated_at_ms = ? WHERE id = ?",
        )?
        .execute((sql_int(head.0), sql_int(bytes), sql_int(now_ms), log.0))?;
    Ok(())
}

/// The floors of all logs of which something is gone.
pub fn floors(read: &Read<'_>) -> Result<HashMap<LogId, Cursor>, StoreError> {
    let mut query = read.conn.prepare("SELECT id, floor FROM logs WHERE floor > 0")?;
    let floors =
        query.query_map([], |row| Ok((LogId(row.get(0)?), Cursor(from_sql_int(row.get(1)?)))))?;
    Ok(floors.collect::<Result<_, _>>()?)
}

/// A question for the logs of whatever has a public name, which stands in the parameter of this number.
pub(super) fn named(parameter: u8) -> String {
    let of = |table| format!("SELECT log FROM {table} WHERE id = ?{parameter}");
    ["sessions", "projects", "shares", "trees", "snapshots"].map(of).join(" UNION ALL ")
}

/// What it was the log of is gone.
pub fn set_removed(tx: &Tx<'_>, log: LogId) -> Result<(), StoreError> {
    tx.conn.prepare_cached("UPDATE logs SET removed = 1 WHERE id = ?")?.execute([log.0])?;
    Ok(())
}

/// Counts anew what can be counted.
pub fn recount(tx: &Tx<'_>) -> Result<(), StoreError> {
    tx.conn.execute(
        "UPDATE logs SET
           bytes = (SELECT coalesce(sum(length(payload)), 0) FROM ops
                    WHERE log = logs.id AND cursor > logs.swept),
           producers = (SELECT count(*) FROM producers WHERE log = logs.id)",
        [],
    )?;
    Ok(())
}

/// Begins another epoch of the object's refs.
pub fn bump_epoch(tx: &Tx<'_>, log: LogId) -> Result<u64, StoreError> {
    let epoch = tx
        .conn
        .prepare_cached("UPDATE logs SET epoch = epoch + 1 WHERE id = ? RETURNING epoch")?
        .query_row([log.0], |row| row.get(0))?;
    Ok(from_sql_int(epoch))
}

/// Counts one more producer.
pub fn count_producer(tx: &Tx<'_>, log: LogId) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached("UPDATE logs SET producers = producers + 1 WHERE id = ?")?
        .execute([log.0])?;
    Ok(())
}
