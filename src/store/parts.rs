//! Table `parts`: parts that were put after their message was, or in the place of one it came with.

use super::{Read, StoreError, Tx, from_sql_int, sql_int};
use crate::model::content::ToolStatus;
use crate::model::ids::{Cursor, LogId, PartId};
use rusqlite::{OptionalExtension, Row};

/// A part as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPart {
    /// Where its message was added.
    pub message: Cursor,
    /// Its place among the parts of the message.
    pub position: u32,
    /// Its name there.
    pub id: PartId,
    /// How far it is, if it is a tool.
    pub status: Option<ToolStatus>,
    /// Where it was first put.
    pub added: Cursor,
    /// Where it was last put.
    pub at: Cursor,
    /// As the wire has it; none if it was taken away.
    pub content: Option<Vec<u8>>,
}

const COLUMNS: &str = "SELECT message, position, id, status, added, at, content FROM parts";

/// Puts a part at its place.
pub fn put(tx: &Tx<'_>, session: LogId, part: &StoredPart) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "INSERT INTO parts (session, message, position, id, status, added, at, content)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?)
             ON CONFLICT (session, message, position) DO UPDATE
             SET id = excluded.id, status = excluded.status, added = excluded.added, at = excluded.at,
                 content = excluded.content",
        )?
        .execute((
            session.0,
            sql_int(part.message.0),
            part.position,
            part.id.as_str(),
            part.status.map_or(0, |status| status as i64),
            sql_int(part.added.0),
            sql_int(part.at.0),
            &part.content,
        ))?;
    Ok(())
}

/// Forgets a part that was put.
pub fn forget(
    tx: &Tx<'_>,
    session: LogId,
    message: Cursor,
    position: u32,
) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached("DELETE FROM parts WHERE session = ? AND message = ? AND position = ?")?
        .execute((session.0, sql_int(message.0), position))?;
    Ok(())
}

/// Forgets all parts that were put into a message.
pub fn forget_all(tx: &Tx<'_>, session: LogId, message: Cursor) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached("DELETE FROM parts WHERE session = ? AND message = ?")?
        .execute((session.0, sql_int(message.0)))?;
    Ok(())
}

/// The part of a message with this id, if one was put under it.
pub fn get(
    read: &Read<'_>,
    session: LogId,
    message: Cursor,
    id: &PartId,
) -> Result<Option<StoredPart>, StoreError> {
    read.conn
        .prepare_cached(&format!("{COLUMNS} WHERE session = ? AND message = ? AND id = ?"))?
        .query_row((session.0, sql_int(message.0), id.as_str()), |row| Ok(from_row(row)))
        .optional()?
        .transpose()
}

/// The part at a place, if one was put there.
pub fn at(
    read: &Read<'_>,
    session: LogId,
    message: Cursor,
    position: u32,
) -> Result<Option<StoredPart>, StoreError> {
    read.conn
        .prepare_cached(&format!("{COLUMNS} WHERE session = ? AND message = ? AND position = ?"))?
        .query_row((session.0, sql_int(message.0), position), |row| Ok(from_row(row)))
        .optional()?
        .transpose()
}

/// The highest place in a message a part was put at; 0 if none was.
pub fn last_position(read: &Read<'_>, session: LogId, message: Cursor) -> Result<u32, StoreError> {
    let last: Option<u32> = read
        .conn
        .prepare_cached("SELECT max(position) FROM parts WHERE session = ? AND message = ?")?
        .query_row((session.0, sql_int(message.0)), |row| row.get(0))?;
    Ok(last.unwrap_or(0))
}

/// Parts that were put into a message behind a place, in order, until together they pass so many bytes.
pub fn of_message(
    read: &Read<'_>,
    session: LogId,
    message: Cursor,
    after: u32,
    bytes_max: usize,
) -> Result<(Vec<StoredPart>, bool), StoreError> {
    let mut query = read.conn.prepare_cached(&format!(
        "{COLUMNS} WHERE session = ? AND message = ? AND position > ? ORDER BY position"
    ))?;
    let mut rows = query.query((session.0, sql_int(message.0), after))?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        if bytes >= bytes_max {
            return Ok((found, true));
        }
        let part = from_row(row)?;
        bytes += part.content.as_ref().map_or(0, Vec::len);
        found.push(part);
    }
    Ok((found, false))
}

/// Where parts that were put into a message stand, their ids, and where they were last put; without those that
/// were taken away.
pub fn names(
    read: &Read<'_>,
    session: LogId,
    message: Cursor,
) -> Result<Vec<(u32, PartId, Cursor)>, StoreError> {
    let mut query = read.conn.prepare_cached(
        "SELECT position, id, at FROM parts WHERE session = ? AND message = ? AND content IS NOT NULL
         ORDER BY position",
    )?;
    let mut rows = query.query((session.0, sql_int(message.0)))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let id = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
        let id = PartId::parse(id).map_err(|error| StoreError::odd("parts", error))?;
        found.push((row.get(0)?, id, Cursor(from_sql_int(row.get(2)?))));
    }
    Ok(found)
}

/// Hands every part that was put into a message to `take`, one at a time.
pub fn each(
    read: &Read<'_>,
    session: LogId,
    message: Cursor,
    mut take: impl FnMut(StoredPart) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut query = read.conn.prepare_cached(&format!(
        "{COLUMNS} WHERE session = ? AND message = ? ORDER BY position"
    ))?;
    let mut rows = query.query((session.0, sql_int(message.0)))?;
    while let Some(row) = rows.next()? {
        take(from_row(row)?)?;
    }
    Ok(())
}

/// Tools of a turn's messages that are under way.
pub fn under_way(
    read: &Read<'_>,
    session: LogId,
    turn: Cursor,
) -> Result<Vec<StoredPart>, StoreError> {
    let mut query = read.conn.prepare_cached(
        "SELECT parts.message, position, parts.id, status, added, at, content
         FROM parts INDEXED BY parts_under_way CROSS JOIN messages
           ON messages.session = parts.session AND messages.cursor = parts.message
         WHERE parts.session = ? AND messages.turn = ? AND status IN (1, 2)
         ORDER BY parts.message, position",
    )?;
    let mut rows = query.query((session.0, sql_int(turn.0)))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(from_row(row)?);
    }
    Ok(found)
}

fn from_row(row: &Row<'_>) -> Result<StoredPart, StoreError> {
    let id = row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?;
    Ok(StoredPart {
        message: Cursor(from_sql_int(row.get(0)?)),
        position: row.get(1)?,
        id: PartId::parse(id).map_err(|error| StoreError::odd("parts", error))?,
        status: ToolStatus::from_number(row.get(3)?),
        added: Cursor(from_sql_int(row.get(4)?)),
        at: Cursor(from_sql_int(row.get(5)?)),
        content: row.get(6)?,
    })
}
