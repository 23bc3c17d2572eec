//! Table `messages`: which ops of a session are messages. What they say stays in the op.

use super::{Read, StoreError, Tx, from_sql_int, sql_int};
use crate::model::ids::{Cursor, GrantKey, LogId, MessageId};
use crate::model::infos::Role;
use crate::model::page::{Page, Paged};
use rusqlite::OptionalExtension;

/// A message with the op that added it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// Its name in the session.
    pub id: MessageId,
    /// Where it was added.
    pub cursor: Cursor,
    /// When.
    pub at_ms: u64,
    /// Under which grant.
    pub granted: GrantKey,
    /// How the op's payload is written.
    pub version: u16,
    /// The op's payload.
    pub payload: Vec<u8>,
}

/// Records a message; false, with nothing recorded, if the session has one with this id.
pub fn add(
    tx: &Tx<'_>,
    session: LogId,
    cursor: Cursor,
    id: &MessageId,
    role: Role,
) -> Result<bool, StoreError> {
    let added = tx
        .conn
        .prepare_cached(
            "INSERT INTO messages (session, cursor, id, role) VALUES (?, ?, ?, ?)
             ON CONFLICT (session, id) DO NOTHING",
        )?
        .execute((session.0, sql_int(cursor.0), id.as_str(), role as i64))?;
    Ok(added == 1)
}

/// Where in the session's log the message with this id was added.
pub fn cursor_of(
    read: &Read<'_>,
    session: LogId,
    id: &MessageId,
) -> Result<Option<Cursor>, StoreError> {
    Ok(read
        .conn
        .prepare_cached("SELECT cursor FROM messages WHERE session = ? AND id = ?")?
        .query_row((session.0, id.as_str()), |row| Ok(Cursor(from_sql_int(row.get(0)?))))
        .optional()?)
}

/// Takes a message away.
pub fn remove(tx: &Tx<'_>, session: LogId, cursor: Cursor) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached("DELETE FROM messages WHERE session = ? AND cursor = ?")?
        .execute((session.0, sql_int(cursor.0)))?;
    Ok(())
}

/// A page of a session's messages, in the order of its log.
pub fn page(
    read: &Read<'_>,
    session: LogId,
    page: Page,
) -> Result<Paged<StoredMessage>, StoreError> {
    let sql = match page.newest_first() {
        false => {
            "SELECT messages.id, cursor, at_ms, version, payload, granted
             FROM messages JOIN ops USING (cursor)
             WHERE session = ?1 AND log = ?1 AND cursor >= ?2 ORDER BY cursor LIMIT ?3"
        }
        true => {
            "SELECT messages.id, cursor, at_ms, version, payload, granted
             FROM messages JOIN ops USING (cursor)
             WHERE session = ?1 AND log = ?1 AND cursor <= ?2 ORDER BY cursor DESC LIMIT ?3"
        }
    };
    let mut query = read.conn.prepare_cached(sql)?;
    let mut rows = query.query((session.0, page.bound(), page.limit() + 1))?;
    super::paged(
        &mut rows,
        page,
        |row| {
            let id = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
            Ok(StoredMessage {
                id: MessageId::parse(id).map_err(|error| StoreError::odd("messages", error))?,
                cursor: Cursor(from_sql_int(row.get(1)?)),
                at_ms: from_sql_int(row.get(2)?),
                version: row.get(3)?,
                payload: row.get(4)?,
                granted: GrantKey(row.get(5)?),
            })
        },
        |message| (message.cursor, message.payload.len()),
    )
}
