//! Table `logs`: where each log ends.

use super::{Read, StoreError, Tx, from_sql_int, sql_int};
use crate::model::ids::{Cursor, LogId};

/// Begins a log.
pub fn create(tx: &Tx<'_>) -> Result<LogId, StoreError> {
    tx.conn.prepare_cached("INSERT INTO logs (head) VALUES (0)")?.execute([])?;
    Ok(LogId(tx.conn.last_insert_rowid()))
}

/// Where a log ends.
pub fn head(read: &Read<'_>, log: LogId) -> Result<Cursor, StoreError> {
    let head = read
        .conn
        .prepare_cached("SELECT head FROM logs WHERE id = ?")?
        .query_row([log.0], |row| row.get(0))?;
    Ok(Cursor(from_sql_int(head)))
}

/// Moves the end of a log.
pub fn set_head(tx: &Tx<'_>, log: LogId, head: Cursor) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached("UPDATE logs SET head = ? WHERE id = ?")?
        .execute((sql_int(head.0), log.0))?;
    Ok(())
}
