//! Table `todos`: every list of things to do there was.

use super::{Read, StoreError, Tx, from_sql_int, sql_int};
use crate::model::ids::{Cursor, LogId};
use crate::model::session::Todo;
use rusqlite::OptionalExtension;

/// Records a list.
pub fn set(tx: &Tx<'_>, session: LogId, at: Cursor, list: &[Todo]) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached("INSERT INTO todos (session, cursor, list) VALUES (?, ?, ?)")?
        .execute((session.0, sql_int(at.0), super::encoded(&list)?))?;
    Ok(())
}

/// The last list that was set within a stretch.
pub fn last(
    read: &Read<'_>,
    session: LogId,
    from: Cursor,
    until: Cursor,
) -> Result<Option<(Cursor, Vec<Todo>)>, StoreError> {
    let found: Option<(i64, Vec<u8>)> = read
        .conn
        .prepare_cached(
            "SELECT cursor, list FROM todos WHERE session = ? AND cursor >= ? AND cursor < ?
             ORDER BY cursor DESC LIMIT 1",
        )?
        .query_row((session.0, sql_int(from.0), sql_int(until.0)), |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    found
        .map(|(cursor, list)| Ok((Cursor(from_sql_int(cursor)), super::decoded("todos", &list)?)))
        .transpose()
}
