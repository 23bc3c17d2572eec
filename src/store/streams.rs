//! Tables `streams` and `deltas`: texts that are still coming, piece by piece.

use super::{Read, StoreError, Tx, from_sql_int, sql_int};
use crate::model::ids::{Cursor, LogId};
use rusqlite::OptionalExtension;

/// Which text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamKey {
    /// In which session.
    pub session: LogId,
    /// In which message.
    pub message: Cursor,
    /// At which place in it.
    pub position: u32,
}

/// A text that is still coming.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// Which.
    pub key: StreamKey,
    /// The turn it belongs to.
    pub turn: Cursor,
    /// How long it is.
    pub bytes: u64,
}

/// Begins a text; one that was begun stays as it is.
pub fn open(tx: &Tx<'_>, key: StreamKey, turn: Cursor) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "INSERT INTO streams (session, message, position, turn, bytes) VALUES (?, ?, ?, ?, 0)
             ON CONFLICT DO NOTHING",
        )?
        .execute((key.session.0, sql_int(key.message.0), key.position, sql_int(turn.0)))?;
    Ok(())
}

/// A text, if it is still coming.
pub fn get(read: &Read<'_>, key: StreamKey) -> Result<Option<Stream>, StoreError> {
    Ok(read
        .conn
        .prepare_cached(
            "SELECT turn, bytes FROM streams WHERE session = ? AND message = ? AND position = ?",
        )?
        .query_row((key.session.0, sql_int(key.message.0), key.position), |row| {
            Ok(Stream {
                key,
                turn: Cursor(from_sql_int(row.get(0)?)),
                bytes: from_sql_int(row.get(1)?),
            })
        })
        .optional()?)
}

/// The texts of a session that are still coming, of one turn or of all.
pub fn of_session(
    read: &Read<'_>,
    session: LogId,
    turn: Option<Cursor>,
) -> Result<Vec<Stream>, StoreError> {
    let mut query = read.conn.prepare_cached(
        "SELECT message, position, turn, bytes FROM streams
         WHERE session = ?1 AND (?2 IS NULL OR turn = ?2) ORDER BY message, position",
    )?;
    let found = query.query_map((session.0, turn.map(|turn| sql_int(turn.0))), |row| {
        let message = Cursor(from_sql_int(row.get(0)?));
        Ok(Stream {
            key: StreamKey { session, message, position: row.get(1)? },
            turn: Cursor(from_sql_int(row.get(2)?)),
            bytes: from_sql_int(row.get(3)?),
        })
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// Adds a piece at the end of a text.
pub fn grow(tx: &Tx<'_>, stream: Stream, text: &str) -> Result<(), StoreError> {
    let StreamKey { session, message, position } = stream.key;
    tx.conn
        .prepare_cached(
            "INSERT INTO deltas (session, message, position, offset, text) VALUES (?, ?, ?, ?, ?)",
        )?
        .execute((session.0, sql_int(message.0), position, sql_int(stream.bytes), text))?;
    let bytes = stream.bytes + text.len() as u64;
    tx.conn
        .prepare_cached(
            "UPDATE streams SET bytes = ? WHERE session = ? AND message = ? AND position = ?",
        )?
        .execute((sql_int(bytes), session.0, sql_int(message.0), position))?;
    Ok(())
}

/// The text from a byte on, until it passes so many bytes. It may begin a little before: pieces are not cut.
pub fn read(
    read: &Read<'_>,
    key: StreamKey,
    from: u64,
    bytes_max: usize,
) -> Result<(u64, String), StoreError> {
    let mut query = read.conn.prepare_cached(
        "SELECT offset, text FROM deltas WHERE session = ?1 AND message = ?2 AND position = ?3
         AND offset >= coalesce((SELECT max(offset) FROM deltas WHERE session = ?1 AND message = ?2
                                 AND position = ?3 AND offset <= ?4), 0)
         ORDER BY offset",
    )?;
    let place = (key.session.0, sql_int(key.message.0), key.position, sql_int(from));
    let mut rows = query.query(place)?;
    let (mut begins, mut text) = (None, String::new());
    while let Some(row) = rows.next()? {
        begins.get_or_insert(from_sql_int(row.get(0)?));
        text.push_str(row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?);
        if text.len() >= bytes_max {
            break;
        }
    }
    Ok((begins.unwrap_or(from), text))
}

/// Hands the whole text to `take`, piece by piece.
pub fn each(
    read: &Read<'_>,
    key: StreamKey,
    mut take: impl FnMut(&str) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut query = read.conn.prepare_cached(
        "SELECT text FROM deltas WHERE session = ? AND message = ? AND position = ? ORDER BY offset",
    )?;
    let mut rows = query.query((key.session.0, sql_int(key.message.0), key.position))?;
    while let Some(row) = rows.next()? {
        take(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?)?;
    }
    Ok(())
}

/// Forgets a text, once it is kept elsewhere.
pub fn close(tx: &Tx<'_>, key: StreamKey) -> Result<(), StoreError> {
    for table in ["streams", "deltas"] {
        tx.conn
            .prepare_cached(&format!(
                "DELETE FROM {table} WHERE session = ? AND message = ? AND position = ?"
            ))?
            .execute((key.session.0, sql_int(key.message.0), key.position))?;
    }
    Ok(())
}
