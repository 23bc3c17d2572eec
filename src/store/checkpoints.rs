//! Table `checkpoints`: places a conversation can go back to.

use super::{Read, StoreError, Tx, from_sql_int, sql_int};
use crate::model::history::HistoryWish;
use crate::model::ids::{Cursor, LogId};
use crate::model::page::{Page, Paged};
use crate::model::timeline::Segment;
use rusqlite::{OptionalExtension, Row};

/// A place a conversation can go back to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Where it was made.
    pub cursor: Cursor,
    /// What it is called; may be empty.
    pub name: String,
    /// Whether the server made it, because something was left behind.
    pub automatic: bool,
    /// The way there.
    pub path: Vec<Segment>,
    /// The last message then; may be empty.
    pub message: String,
    /// When it was made.
    pub created_at_ms: u64,
}

const COLUMNS: &str =
    "SELECT cursor, name, automatic, path, message, created_at_ms FROM checkpoints";

/// Records a checkpoint.
pub fn create(tx: &Tx<'_>, session: LogId, checkpoint: &Checkpoint) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "INSERT INTO checkpoints (session, cursor, name, automatic, path, message, created_at_ms)
             VALUES (?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute((
            session.0,
            sql_int(checkpoint.cursor.0),
            &checkpoint.name,
            checkpoint.automatic,
            super::encoded(&checkpoint.path)?,
            &checkpoint.message,
            sql_int(checkpoint.created_at_ms),
        ))?;
    Ok(())
}

/// Forgets a checkpoint.
pub fn drop_at(tx: &Tx<'_>, session: LogId, cursor: Cursor) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached("DELETE FROM checkpoints WHERE session = ? AND cursor = ?")?
        .execute((session.0, sql_int(cursor.0)))?;
    Ok(())
}

/// The newest checkpoint of a name. Automatic ones are named by where they were made.
pub fn named(
    read: &Read<'_>,
    session: LogId,
    name: &str,
) -> Result<Option<Checkpoint>, StoreError> {
    read.conn
        .prepare_cached(&format!(
            "{COLUMNS} WHERE session = ? AND name = ? ORDER BY cursor DESC LIMIT 1"
        ))?
        .query_row((session.0, name), |row| Ok(from_row(row)))
        .optional()?
        .transpose()
}

/// The checkpoint that was made at a place.
pub fn at(
    read: &Read<'_>,
    session: LogId,
    cursor: Cursor,
) -> Result<Option<Checkpoint>, StoreError> {
    read.conn
        .prepare_cached(&format!("{COLUMNS} WHERE session = ? AND cursor = ?"))?
        .query_row((session.0, sql_int(cursor.0)), |row| Ok(from_row(row)))
        .optional()?
        .transpose()
}

/// How many checkpoints of a session have a name.
pub fn count_named(read: &Read<'_>, session: LogId) -> Result<u64, StoreError> {
    let count: i64 = read
        .conn
        .prepare_cached("SELECT count(*) FROM checkpoints WHERE session = ? AND automatic = 0")?
        .query_row([session.0], |row| row.get(0))?;
    Ok(from_sql_int(count))
}

/// Hands every checkpoint of a session to `take`, one at a time.
pub fn each(
    read: &Read<'_>,
    session: LogId,
    mut take: impl FnMut(Checkpoint),
) -> Result<(), StoreError> {
    let mut query =
        read.conn.prepare_cached(&format!("{COLUMNS} WHERE session = ? ORDER BY cursor"))?;
    let mut rows = query.query([session.0])?;
    while let Some(row) = rows.next()? {
        take(from_row(row)?);
    }
    Ok(())
}

/// Automatic checkpoints behind one, in the order of their sessions, with when they were made and what their
/// session wishes to keep.
pub fn automatic(
    read: &Read<'_>,
    (session, cursor): (LogId, Cursor),
    limit: u32,
) -> Result<Vec<(LogId, Cursor, u64, HistoryWish)>, StoreError> {
    let mut query = read.conn.prepare_cached(
        "SELECT session, checkpoints.cursor, checkpoints.created_at_ms, history_age_ms, history_bytes
         FROM checkpoints JOIN sessions ON sessions.log = session
         WHERE automatic = 1 AND (session, checkpoints.cursor) > (?, ?)
         ORDER BY session, checkpoints.cursor LIMIT ?",
    )?;
    let found = query.query_map((session.0, sql_int(cursor.0), limit), |row| {
        let wish = HistoryWish {
            age_ms_max: from_sql_int(row.get(3)?),
            bytes_max: from_sql_int(row.get(4)?),
        };
        let at = Cursor(from_sql_int(row.get(1)?));
        Ok((LogId(row.get(0)?), at, from_sql_int(row.get(2)?), wish))
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// A page of a session's checkpoints, in the order they were made.
pub fn page(read: &Read<'_>, session: LogId, page: Page) -> Result<Paged<Checkpoint>, StoreError> {
    let (compared, order) = match page.newest_first() {
        false => (">=", "ASC"),
        true => ("<=", "DESC"),
    };
    let mut query = read.conn.prepare_cached(&format!(
        "{COLUMNS} WHERE session = ? AND cursor {compared} ? ORDER BY cursor {order} LIMIT ?"
    ))?;
    let mut rows = query.query((session.0, page.bound(), page.limit() + 1))?;
    super::paged(&mut rows, page, from_row, |checkpoint| {
        (checkpoint.cursor, checkpoint.name.len() + 16 * checkpoint.path.len())
    })
}

fn from_row(row: &Row<'_>) -> Result<Checkpoint, StoreError> {
    let path = row.get_ref(3)?.as_blob().map_err(rusqlite::Error::from)?;
    Ok(Checkpoint {
        cursor: Cursor(from_sql_int(row.get(0)?)),
        name: row.get(1)?,
        automatic: row.get(2)?,
        path: super::decoded("checkpoints", path)?,
        message: row.get(4)?,
        created_at_ms: from_sql_int(row.get(5)?),
    })
}
