//! Tables `contents`, `content_pieces`, `uploaded` and `content_names`: what is too long for an op, beside the log.
//!
//! Content is known by its hash and stored once, whoever names it. It is there as long as an op names it. A
//! session can only name what it has uploaded itself, or what the server has put into it: knowing a hash is no
//! right to read.

use super::{Read, StoreError, Tx, from_sql_int, sql_int};
use crate::limits::CONTENT_PIECE_BYTES;
use crate::model::content::ContentRef;
use crate::model::ids::{Cursor, LogId};
use rusqlite::OptionalExtension;
use sha2::{Digest, Sha256};

/// The row number of some content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentKey(i64);

/// Content that is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coming {
    /// Which.
    pub key: ContentKey,
    /// What it is to be.
    pub content: ContentRef,
    /// How much of it is there.
    pub received: u64,
}

/// Whole content, if a session may name it: it has uploaded it, or names it already.
pub fn nameable(
    read: &Read<'_>,
    session: LogId,
    content: ContentRef,
) -> Result<Option<ContentKey>, StoreError> {
    Ok(read
        .conn
        .prepare_cached(
            "SELECT id FROM contents WHERE hash = ?1 AND bytes = ?2 AND session IS NULL AND
             (EXISTS (SELECT 1 FROM content_names WHERE content = id AND log = ?3) OR
              EXISTS (SELECT 1 FROM uploaded WHERE content = id AND uploaded.session = ?3))",
        )?
        .query_row((content.hash, sql_int(content.bytes), session.0), |row| {
            row.get(0).map(ContentKey)
        })
        .optional()?)
}

/// Whole content, whoever names it.
pub fn whole(read: &Read<'_>, hash: &[u8; 32]) -> Result<Option<ContentKey>, StoreError> {
    Ok(read
        .conn
        .prepare_cached("SELECT id FROM contents WHERE hash = ? AND session IS NULL")?
        .query_row([hash], |row| row.get(0).map(ContentKey))
        .optional()?)
}

/// A session has uploaded it.
pub fn uploaded(tx: &Tx<'_>, content: ContentKey, session: LogId) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "INSERT INTO uploaded (content, session) VALUES (?, ?) ON CONFLICT DO NOTHING",
        )?
        .execute((content.0, session.0))?;
    Ok(())
}

/// An op names it.
pub fn name(
    tx: &Tx<'_>,
    content: ContentKey,
    log: LogId,
    cursor: Cursor,
) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "INSERT INTO content_names (content, log, cursor) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        )?
        .execute((content.0, log.0, sql_int(cursor.0)))?;
    Ok(())
}

/// Content that a session uploads, if it has begun.
pub fn coming(
    read: &Read<'_>,
    session: LogId,
    hash: &[u8; 32],
) -> Result<Option<Coming>, StoreError> {
    Ok(read
        .conn
        .prepare_cached("SELECT id, received, bytes FROM contents WHERE session = ? AND hash = ?")?
        .query_row((session.0, hash), |row| {
            let received = from_sql_int(row.get(1)?);
            let content = ContentRef { hash: *hash, bytes: from_sql_int(row.get(2)?) };
            Ok(Coming { key: ContentKey(row.get(0)?), content, received })
        })
        .optional()?)
}

/// Begins an upload.
pub fn begin(
    tx: &Tx<'_>,
    session: LogId,
    content: ContentRef,
    now_ms: u64,
) -> Result<Coming, StoreError> {
    tx.conn
        .prepare_cached(
            "INSERT INTO contents (hash, bytes, received, session, touched_at_ms) VALUES (?, ?, 0, ?, ?)",
        )?
        .execute((content.hash, sql_int(content.bytes), session.0, sql_int(now_ms)))?;
    Ok(Coming { key: ContentKey(tx.conn.last_insert_rowid()), content, received: 0 })
}

/// Adds a piece at the end of what is there.
pub fn add(tx: &Tx<'_>, coming: Coming, data: &[u8], now_ms: u64) -> Result<Coming, StoreError> {
    let mut received = coming.received;
    for piece in data.chunks(CONTENT_PIECE_BYTES) {
        tx.conn
            .prepare_cached("INSERT INTO content_pieces (content, offset, data) VALUES (?, ?, ?)")?
            .execute((coming.key.0, sql_int(received), piece))?;
        received += piece.len() as u64;
    }
    tx.conn
        .prepare_cached("UPDATE contents SET received = ?, touched_at_ms = ? WHERE id = ?")?
        .execute((sql_int(received), sql_int(now_ms), coming.key.0))?;
    Ok(Coming { received, ..coming })
}

/// The hash of what is there.
pub fn hash(read: &Read<'_>, content: ContentKey) -> Result<[u8; 32], StoreError> {
    let mut query = read
        .conn
        .prepare_cached("SELECT data FROM content_pieces WHERE content = ? ORDER BY offset")?;
    let mut rows = query.query([content.0])?;
    let mut hasher = Sha256::new();
    while let Some(row) = rows.next()? {
        hasher.update(row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?);
    }
    Ok(hasher.finalize().into())
}

/// Content is in use: it is kept for as long again, also if nothing names it yet.
pub fn touch(tx: &Tx<'_>, content: ContentKey, now_ms: u64) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached("UPDATE contents SET touched_at_ms = ? WHERE id = ?")?
        .execute((sql_int(now_ms), content.0))?;
    Ok(())
}

/// Content is whole. If it was there already, this copy of it goes.
pub fn settle(tx: &Tx<'_>, coming: Coming, now_ms: u64) -> Result<ContentKey, StoreError> {
    if let Some(known) = whole(tx, &coming.content.hash)? {
        forget(tx, coming.key)?;
        touch(tx, known, now_ms)?;
        return Ok(known);
    }
    tx.conn
        .prepare_cached("UPDATE contents SET session = NULL WHERE id = ?")?
        .execute([coming.key.0])?;
    Ok(coming.key)
}

/// Content goes, whoever names it.
pub fn forget(tx: &Tx<'_>, content: ContentKey) -> Result<(), StoreError> {
    for sql in [
        "DELETE FROM content_names WHERE content = ?",
        "DELETE FROM uploaded WHERE content = ?",
        "DELETE FROM content_pieces WHERE content = ?",
        "DELETE FROM contents WHERE id = ?",
    ] {
        tx.conn.prepare_cached(sql)?.execute([content.0])?;
    }
    Ok(())
}

/// Names of ops that are gone go with them, and so does content nobody names any more.
pub fn sweep_log(tx: &Tx<'_>, log: LogId) -> Result<u64, StoreError> {
    let mut query = tx.conn.prepare_cached(
        "DELETE FROM content_names WHERE log = ?1 AND NOT EXISTS
         (SELECT 1 FROM ops WHERE ops.log = ?1 AND ops.cursor = content_names.cursor)
         RETURNING content",
    )?;
    let freed: Vec<i64> = query.query_map([log.0], |row| row.get(0))?.collect::<Result<_, _>>()?;
    forget_unnamed(tx, &freed)
}

/// All names a log gives go, and so does content nobody names any more.
pub fn forget_log(tx: &Tx<'_>, log: LogId) -> Result<u64, StoreError> {
    let mut query =
        tx.conn.prepare_cached("DELETE FROM content_names WHERE log = ? RETURNING content")?;
    let mut freed: Vec<i64> =
        query.query_map([log.0], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for sql in [
        "DELETE FROM uploaded WHERE session = ? RETURNING content",
        "SELECT id FROM contents WHERE session = ?",
    ] {
        let mut query = tx.conn.prepare_cached(sql)?;
        let others = query.query_map([log.0], |row| row.get::<_, i64>(0))?;
        freed.extend(others.collect::<Result<Vec<_>, _>>()?);
    }
    forget_unnamed(tx, &freed)
}

fn forget_unnamed(tx: &Tx<'_>, contents: &[i64]) -> Result<u64, StoreError> {
    let mut gone = 0;
    for content in contents {
        let named: bool = tx
            .conn
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM content_names WHERE content = ?1)
                     OR EXISTS (SELECT 1 FROM uploaded WHERE content = ?1)",
            )?
            .query_row([content], |row| row.get(0))?;
        if !named {
            forget(tx, ContentKey(*content))?;
            gone += 1;
        }
    }
    Ok(gone)
}

/// Uploads that were begun or ended before this time and never named; a bounded number of them goes.
pub fn forget_unused(tx: &Tx<'_>, before_ms: u64, limit: u32) -> Result<u64, StoreError> {
    let mut query = tx.conn.prepare_cached(
        "SELECT id FROM contents WHERE touched_at_ms < ?1 AND
           (session IS NOT NULL OR NOT EXISTS
             (SELECT 1 FROM content_names WHERE content = id)) LIMIT ?2",
    )?;
    let unused: Vec<i64> = query
        .query_map((sql_int(before_ms), limit), |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for content in &unused {
        forget(tx, ContentKey(*content))?;
    }
    Ok(unused.len() as u64)
}

/// A piece of content a session names, from a byte on; and how long all of it is.
pub fn read(
    read: &Read<'_>,
    session: LogId,
    hash: &[u8; 32],
    offset: u64,
    bytes_max: usize,
) -> Result<Option<(Vec<u8>, u64)>, StoreError> {
    let found: Option<(i64, i64)> = read
        .conn
        .prepare_cached(
            "SELECT id, bytes FROM contents WHERE hash = ? AND session IS NULL AND EXISTS
             (SELECT 1 FROM content_names WHERE content = id AND log = ?)",
        )?
        .query_row((hash, session.0), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((id, bytes)) = found else { return Ok(None) };
    let mut query = read.conn.prepare_cached(
        "SELECT offset, data FROM content_pieces WHERE content = ?1 AND offset >=
           coalesce((SELECT max(offset) FROM content_pieces WHERE content = ?1 AND offset <= ?2), 0)
         ORDER BY offset",
    )?;
    let mut rows = query.query((id, sql_int(offset)))?;
    let mut data = Vec::new();
    while let Some(row) = rows.next()? {
        let begins = from_sql_int(row.get(0)?);
        let piece = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        let skipped = usize::try_from(offset.saturating_sub(begins)).unwrap_or(usize::MAX);
        let room = bytes_max - data.len();
        data.extend(piece.iter().skip(skipped).take(room));
        if data.len() >= bytes_max {
            break;
        }
    }
    Ok(Some((data, from_sql_int(bytes))))
}
