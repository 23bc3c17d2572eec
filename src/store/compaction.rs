//! Taking away history that the state no longer shows.
//!
//! An op names the one it replaces. Above the old floor and up to the new one, the replaced ops go, and so
//! do those that leave no state of their own. What stays up to the floor gives, replayed, the state at the
//! floor. The cost follows the piece that is compacted, not the length of the log.

use super::logs::LogState;
use super::{Read, StoreError, Tx, from_sql_int, sql_int, subscriptions};
use crate::model::history::{Policy, Wish};
use crate::model::ids::{Cursor, LogId};
use rusqlite::OptionalExtension;

/// Raises the floor of a log; how many ops went, and their payload bytes.
pub fn raise_floor(
    tx: &Tx<'_>,
    log: LogId,
    state: LogState,
    floor: Cursor,
    stateless: &[u16],
) -> Result<(u64, u64), StoreError> {
    let (from, to) = (sql_int(state.floor.0), sql_int(floor.0));
    // The highest position is never freed: SQLite gives the next op the one behind it.
    let spare = "position < (SELECT max(position) FROM ops)";
    let (mut ops, mut bytes) = (0, 0);
    let mut count = |sql: &str, kind: Option<u16>| -> Result<(), StoreError> {
        let mut delete = tx.conn.prepare_cached(sql)?;
        let mut rows = delete.query((log.0, from, to, kind))?;
        while let Some(row) = rows.next()? {
            ops += 1;
            bytes += from_sql_int(row.get(0)?);
        }
        Ok(())
    };
    let position: Option<i64> = tx
        .conn
        .prepare_cached("SELECT max(position) FROM ops WHERE log = ? AND cursor <= ?")?
        .query_row((log.0, to), |row| row.get(0))?;
    // Bytes of history are those above the floor, whether they go or stay as state.
    tx.conn
        .prepare_cached(
            "UPDATE logs SET floor = ?3, bytes = bytes -
               (SELECT coalesce(sum(length(payload)), 0) FROM ops WHERE log = ?1 AND cursor > ?2 AND cursor <= ?3)
             WHERE id = ?1",
        )?
        .execute((log.0, from, to))?;
    count(
        &format!(
            "DELETE FROM ops WHERE log = ?1 AND ?4 IS NULL AND {spare} AND cursor IN
               (SELECT replaces FROM ops WHERE log = ?1 AND cursor > ?2 AND cursor <= ?3
                AND replaces IS NOT NULL)
             RETURNING length(payload)"
        ),
        None,
    )?;
    for kind in stateless {
        count(
            &format!(
                "DELETE FROM ops WHERE log = ?1 AND cursor > ?2 AND cursor <= ?3 AND kind = ?4 AND {spare}
                 RETURNING length(payload)"
            ),
            Some(*kind),
        )?;
    }
    if let Some(position) = position {
        let project = state.project.unwrap_or(LogId::ROOT);
        tx.conn
            .prepare_cached("UPDATE logs SET wide_floor = max(wide_floor, ?) WHERE id IN (?, ?)")?
            .execute((position, project.0, LogId::ROOT.0))?;
    }
    Ok((ops, bytes))
}

/// Logs behind `after` that have history at all, in the order of their numbers.
pub fn candidates(read: &Read<'_>, after: LogId, limit: u32) -> Result<Vec<LogId>, StoreError> {
    let mut query = read
        .conn
        .prepare_cached("SELECT id FROM logs WHERE id > ? AND head > floor ORDER BY id LIMIT ?")?;
    let rows = query.query_map((after.0, limit), |row| row.get(0).map(LogId))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// How far a log may be compacted by a policy: the last cursor it lets go of.
pub fn reach(
    read: &Read<'_>,
    log: LogId,
    servers: Policy,
    now_ms: u64,
) -> Result<Option<Cursor>, StoreError> {
    let (head, floor, bytes): (i64, i64, i64) = read
        .conn
        .prepare_cached("SELECT head, floor, bytes FROM logs WHERE id = ?")?
        .query_row([log.0], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let wish = read
        .conn
        .prepare_cached("SELECT history_age_ms, history_bytes FROM sessions WHERE log = ?")?
        .query_row([log.0], |row| {
            let (age_ms_max, bytes_max) = (from_sql_int(row.get(0)?), from_sql_int(row.get(1)?));
            Ok(Wish { age_ms_max, bytes_max })
        })
        .optional()?
        .unwrap_or_default();
    let policy = servers.with(wish);
    let mut query = read.conn.prepare_cached(
        "SELECT cursor, at_ms, length(payload) FROM ops WHERE log = ? AND cursor > ? AND cursor <= ?
         ORDER BY cursor",
    )?;
    let mut rows = query.query((log.0, floor, head))?;
    let mut to_end = from_sql_int(bytes);
    let mut reached = None;
    while let Some(row) = rows.next()? {
        let (cursor, at_ms, length): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if !policy.lets_go(from_sql_int(at_ms), to_end, now_ms) {
            break;
        }
        to_end = to_end.saturating_sub(from_sql_int(length));
        reached = Some(Cursor(from_sql_int(cursor)));
    }
    Ok(reached)
}

/// How far every named subscription that was used since `since_ms` has heard a log; none if there is none.
pub fn heard(read: &Read<'_>, log: LogId, since_ms: u64) -> Result<Option<Cursor>, StoreError> {
    let project = super::logs::get(read, log)?.project;
    let mut heard = None;
    // Of the log itself the places are cursors. Feeds that join many logs count positions.
    if project.is_some_and(|project| project != log) {
        heard = subscriptions::slowest(read, log, since_ms)?.map(Cursor);
    }
    for wide in project.into_iter().chain([LogId::ROOT]) {
        if let Some(position) = subscriptions::slowest(read, wide, since_ms)? {
            let cursor = cursor_at(read, log, position)?;
            heard = Some(heard.map_or(cursor, |heard: Cursor| heard.min(cursor)));
        }
    }
    Ok(heard)
}

/// The last cursor of a log at or below a position.
fn cursor_at(read: &Read<'_>, log: LogId, position: u64) -> Result<Cursor, StoreError> {
    let cursor: Option<i64> = read
        .conn
        .prepare_cached(
            "SELECT cursor FROM ops WHERE log = ? AND position <= ? ORDER BY cursor DESC LIMIT 1",
        )?
        .query_row((log.0, sql_int(position)), |row| row.get(0))
        .optional()?;
    Ok(Cursor(cursor.map_or(0, from_sql_int)))
}
