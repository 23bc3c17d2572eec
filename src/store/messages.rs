//! Table `messages`: which ops of a session are messages. What they said stays in the op; what was said of them
//! since stands here.

use super::{Read, StoreError, Tx, from_sql_int, sql_int};
use crate::model::ids::{Cursor, GrantKey, LogId, MessageId};
use crate::model::infos::Role;
use crate::model::page::{Page, Paged};
use crate::model::timeline::Segment;
use rusqlite::{OptionalExtension, Row};

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
    /// What was said of it since; none if nothing was.
    pub info: Option<Vec<u8>>,
}

/// A message to be recorded.
#[derive(Debug, Clone, Copy)]
pub struct NewMessage<'a> {
    /// Where it is added.
    pub cursor: Cursor,
    /// Its name in the session.
    pub id: &'a MessageId,
    /// Who said it.
    pub role: Role,
    /// The turn it belongs to; 0 for none.
    pub turn: Cursor,
    /// Whether it is a finished summary.
    pub summing_up: bool,
}

/// Where a message stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Where it was added.
    pub cursor: Cursor,
    /// Who said it.
    pub role: Role,
    /// The turn it belongs to; 0 for none.
    pub turn: Cursor,
    /// Where something was last said of it; 0 if nothing was.
    pub info_at: Cursor,
}

/// Records a message; false, with nothing recorded, if the session has one with this id.
pub fn add(tx: &Tx<'_>, session: LogId, message: NewMessage<'_>) -> Result<bool, StoreError> {
    let added = tx
        .conn
        .prepare_cached(
            "INSERT INTO messages (session, cursor, id, role, turn, summing_up) VALUES (?, ?, ?, ?, ?, ?)
             ON CONFLICT (session, id) DO NOTHING",
        )?
        .execute((
            session.0,
            sql_int(message.cursor.0),
            message.id.as_str(),
            message.role as i64,
            sql_int(message.turn.0),
            message.summing_up,
        ))?;
    Ok(added == 1)
}

/// Records what was said of a message since.
pub fn set_info(
    tx: &Tx<'_>,
    session: LogId,
    cursor: Cursor,
    info: &[u8],
    summing_up: bool,
    at: Cursor,
) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "UPDATE messages SET info = ?, info_at = ?, summing_up = ? WHERE session = ? AND cursor = ?",
        )?
        .execute((info, sql_int(at.0), summing_up, session.0, sql_int(cursor.0)))?;
    Ok(())
}

/// Where in the session's log the message with this id was added.
pub fn cursor_of(
    read: &Read<'_>,
    session: LogId,
    id: &MessageId,
) -> Result<Option<Cursor>, StoreError> {
    Ok(standing(read, session, id)?.map(|message| message.cursor))
}

/// Where the message with this id stands.
pub fn standing(
    read: &Read<'_>,
    session: LogId,
    id: &MessageId,
) -> Result<Option<Standing>, StoreError> {
    read.conn
        .prepare_cached(
            "SELECT cursor, role, turn, info_at FROM messages WHERE session = ? AND id = ?",
        )?
        .query_row((session.0, id.as_str()), |row| Ok(standing_from(row)))
        .optional()?
        .transpose()
}

/// The id of the message at a place.
pub fn id_at(
    read: &Read<'_>,
    session: LogId,
    cursor: Cursor,
) -> Result<Option<MessageId>, StoreError> {
    read.conn
        .prepare_cached("SELECT id FROM messages WHERE session = ? AND cursor = ?")?
        .query_row((session.0, sql_int(cursor.0)), |row| row.get::<_, String>(0))
        .optional()?
        .map(|id| parsed(&id))
        .transpose()
}

/// Where the messages of a turn stand.
pub fn of_turn(read: &Read<'_>, session: LogId, turn: Cursor) -> Result<Vec<Cursor>, StoreError> {
    let mut query = read.conn.prepare_cached(
        "SELECT cursor FROM messages WHERE session = ? AND turn = ? ORDER BY cursor",
    )?;
    let found = query
        .query_map((session.0, sql_int(turn.0)), |row| row.get(0).map(from_sql_int).map(Cursor))?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// The newest message of a turn.
pub fn newest_of_turn(
    read: &Read<'_>,
    session: LogId,
    turn: Cursor,
) -> Result<Option<MessageId>, StoreError> {
    read.conn
        .prepare_cached(
            "SELECT id FROM messages WHERE session = ? AND turn = ? ORDER BY cursor DESC LIMIT 1",
        )?
        .query_row((session.0, sql_int(turn.0)), |row| row.get::<_, String>(0))
        .optional()?
        .map(|id| parsed(&id))
        .transpose()
}

/// The newest message of a stretch, or the newest of one role.
pub fn newest_in(
    read: &Read<'_>,
    session: LogId,
    segment: Segment,
    role: Option<Role>,
) -> Result<Option<(Cursor, MessageId)>, StoreError> {
    nearest(read, session, segment, role, "DESC")
}

/// The oldest user's message of a stretch.
pub fn oldest_of_user(
    read: &Read<'_>,
    session: LogId,
    segment: Segment,
) -> Result<Option<(Cursor, MessageId)>, StoreError> {
    nearest(read, session, segment, Some(Role::User), "ASC")
}

fn nearest(
    read: &Read<'_>,
    session: LogId,
    segment: Segment,
    role: Option<Role>,
    order: &str,
) -> Result<Option<(Cursor, MessageId)>, StoreError> {
    let found: Option<(i64, String)> = read
        .conn
        .prepare_cached(&format!(
            "SELECT cursor, id FROM messages WHERE session = ?1 AND cursor >= ?2
             AND (cursor < ?3 OR (cursor = ?3 AND ?4)) AND (?5 IS NULL OR role = ?5)
             ORDER BY cursor {order} LIMIT 1"
        ))?
        .query_row(
            (
                session.0,
                sql_int(segment.from.0),
                sql_int(segment.to.0),
                segment.part > 0,
                role.map(|role| role as i64),
            ),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?;
    found.map(|(cursor, id)| Ok((Cursor(from_sql_int(cursor)), parsed(&id)?))).transpose()
}

/// The newest finished summary of a stretch.
pub fn newest_summary(
    read: &Read<'_>,
    session: LogId,
    segment: Segment,
) -> Result<Option<Cursor>, StoreError> {
    Ok(read
        .conn
        .prepare_cached(
            "SELECT cursor FROM messages WHERE session = ? AND summing_up = 1 AND cursor >= ?
             AND cursor < ? ORDER BY cursor DESC LIMIT 1",
        )?
        .query_row((session.0, sql_int(segment.from.0), sql_int(segment.to.0)), |row| row.get(0))
        .optional()?
        .map(|cursor: i64| Cursor(from_sql_int(cursor))))
}

/// Takes a message away.
pub fn remove(tx: &Tx<'_>, session: LogId, cursor: Cursor) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached("DELETE FROM messages WHERE session = ? AND cursor = ?")?
        .execute((session.0, sql_int(cursor.0)))?;
    Ok(())
}

const QUERY: &str = "SELECT messages.id, cursor, at_ms, version, payload, granted, info
     FROM messages JOIN ops USING (cursor) WHERE session = ?1 AND log = ?1";

/// One message.
pub fn at(
    read: &Read<'_>,
    session: LogId,
    cursor: Cursor,
) -> Result<Option<StoredMessage>, StoreError> {
    read.conn
        .prepare_cached(&format!("{QUERY} AND cursor = ?2"))?
        .query_row((session.0, sql_int(cursor.0)), |row| Ok(from_row(row)))
        .optional()?
        .transpose()
}

/// A page of a session's messages, in the order of its log, as far as they lie in these stretches.
pub fn page(
    read: &Read<'_>,
    session: LogId,
    segments: &[Segment],
    page: Page,
) -> Result<Paged<StoredMessage>, StoreError> {
    let newest_first = page.newest_first();
    let order = if newest_first { "DESC" } else { "ASC" };
    let mut query = read.conn.prepare_cached(&format!(
        "{QUERY} AND cursor BETWEEN ?2 AND ?3 ORDER BY cursor {order} LIMIT ?4"
    ))?;
    let mut found = Paged { items: Vec::new(), next: page.after(), more: false };
    let mut bytes = 0;
    let forward = segments.iter();
    let stretches: Box<dyn Iterator<Item = &Segment>> =
        if newest_first { Box::new(forward.rev()) } else { Box::new(forward) };
    for segment in stretches {
        let (from, to) = (sql_int(segment.from.0), last_of(*segment));
        let (from, to) = match newest_first {
            false => (from.max(page.bound()), to),
            true => (from, to.min(page.bound())),
        };
        // One more than wanted tells whether there is a next page.
        let wanted = i64::from(page.limit()) + 1 - found.items.len() as i64;
        let mut rows = query.query((session.0, from, to, wanted))?;
        while let Some(row) = rows.next()? {
            if found.items.len() == page.limit() as usize || bytes >= crate::limits::PAGE_BYTES_MAX
            {
                found.more = true;
                return Ok(found);
            }
            let message = from_row(row)?;
            bytes += message.payload.len() + message.info.as_ref().map_or(0, Vec::len);
            found.next = message.cursor;
            found.items.push(message);
        }
    }
    Ok(found)
}

/// The last cursor at which a message of a stretch can stand.
fn last_of(segment: Segment) -> i64 {
    match segment.part {
        0 => sql_int(segment.to.0).saturating_sub(1),
        _ => sql_int(segment.to.0),
    }
}

fn standing_from(row: &Row<'_>) -> Result<Standing, StoreError> {
    let role: i64 = row.get(1)?;
    Ok(Standing {
        cursor: Cursor(from_sql_int(row.get(0)?)),
        role: Role::from_number(role)
            .ok_or_else(|| StoreError::Corrupt(format!("a message of role {role}")))?,
        turn: Cursor(from_sql_int(row.get(2)?)),
        info_at: Cursor(from_sql_int(row.get(3)?)),
    })
}

fn parsed(id: &str) -> Result<MessageId, StoreError> {
    MessageId::parse(id).map_err(|error| StoreError::odd("messages", error))
}

fn from_row(row: &Row<'_>) -> Result<StoredMessage, StoreError> {
    Ok(StoredMessage {
        id: parsed(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?)?,
        cursor: Cursor(from_sql_int(row.get(1)?)),
        at_ms: from_sql_int(row.get(2)?),
        version: row.get(3)?,
        payload: row.get(4)?,
        granted: GrantKey(row.get(5)?),
        info: row.get(6)?,
    })
}
