//! Taking away history that the state no longer shows.
//!
//! An op names the one it replaces. In the piece that is swept the replaced ops go, and so do those that
//! leave no state of their own. What stays up to the floor gives, replayed, the state at the floor. The cost
//! follows the piece that is swept, not the length of the log.

use super::logs::LogState;
use super::{Read, StoreError, Tx, from_sql_int, sql_int, subscriptions};
use crate::limits::{COMPACTION_STEP_BYTES_MAX, COMPACTION_STEP_OPS_MAX};
use crate::model::history::{HistoryWish, Policy};
use crate::model::ids::{Cursor, LogId};
use rusqlite::OptionalExtension;

/// Takes away what is replaced up to a cursor; how many ops went, and their payload bytes.
///
/// The floor rises only as far as something is really gone: to the last op that replaced another one or
/// left no state. A log in which nothing was replaced stays whole, and its feeds know of no gap.
pub fn sweep(
    tx: &Tx<'_>,
    log: LogId,
    state: LogState,
    through: Cursor,
    stateless: &[u16],
) -> Result<(u64, u64), StoreError> {
    let (from, to) = (sql_int(state.swept.0), sql_int(through.0));
    tx.conn
        .prepare_cached(
            "UPDATE logs SET swept = ?3, bytes = bytes -
               (SELECT coalesce(sum(length(payload)), 0) FROM ops WHERE log = ?1 AND cursor > ?2 AND cursor <= ?3)
             WHERE id = ?1",
        )?
        .execute((log.0, from, to))?;
    // Whatever leaves no state has replaced something, too.
    let last: Option<(i64, i64)> = tx
        .conn
        .prepare_cached(
            "SELECT cursor, position FROM ops WHERE log = ? AND cursor > ? AND cursor <= ?
             AND replaces IS NOT NULL ORDER BY cursor DESC LIMIT 1",
        )?
        .query_row((log.0, from, to), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((floor, position)) = last else { return Ok((0, 0)) };

    let kinds: Vec<String> = stateless.iter().map(u16::to_string).collect();
    let replacing =
        "FROM ops WHERE log = ?1 AND cursor > ?2 AND cursor <= ?3 AND replaces IS NOT NULL";
    let (mut ops, mut bytes) = (0, 0);
    for gone in [
        format!("cursor IN (SELECT replaces {replacing})"),
        format!("cursor IN (SELECT cursor {replacing}) AND kind IN ({})", kinds.join(", ")),
    ] {
        // The highest position is never freed: SQLite gives the next op the one after it.
        let mut delete = tx.conn.prepare_cached(&format!(
            "DELETE FROM ops WHERE log = ?1 AND position < (SELECT max(position) FROM ops) AND {gone}
             RETURNING length(payload)"
        ))?;
        let mut rows = delete.query((log.0, from, to))?;
        while let Some(row) = rows.next()? {
            ops += 1;
            bytes += from_sql_int(row.get(0)?);
        }
    }
    tx.conn.prepare_cached("UPDATE logs SET floor = ? WHERE id = ?")?.execute((floor, log.0))?;
    // Also of the log itself, where it is a project's own or the root's; a session's is not looked at.
    let project = state.project.unwrap_or(LogId::ROOT);
    tx.conn
        .prepare_cached(
            "UPDATE logs SET cuts = cuts + 1, wide_floor = max(wide_floor, ?) WHERE id IN (?, ?, ?)",
        )?
        .execute((position, log.0, project.0, LogId::ROOT.0))?;
    Ok((ops, bytes))
}

/// How far one step of a compaction goes: so many ops, or bytes, from where the last one ended.
pub fn step(
    read: &Read<'_>,
    log: LogId,
    state: LogState,
    through: Cursor,
) -> Result<Cursor, StoreError> {
    let mut query = read.conn.prepare_cached(
        "SELECT cursor, length(payload) FROM ops WHERE log = ? AND cursor > ? AND cursor <= ?
         ORDER BY cursor LIMIT ?",
    )?;
    let limit = sql_int(COMPACTION_STEP_OPS_MAX);
    let mut rows = query.query((log.0, sql_int(state.swept.0), sql_int(through.0), limit))?;
    let (mut reached, mut bytes) = (state.swept, 0);
    while let Some(row) = rows.next()? {
        reached = Cursor(from_sql_int(row.get(0)?));
        bytes += from_sql_int(row.get(1)?);
        if bytes > COMPACTION_STEP_BYTES_MAX {
            break;
        }
    }
    Ok(reached)
}

/// Logs after `after` that have something compaction has not looked at, in the order of their numbers.
pub fn candidates(read: &Read<'_>, after: LogId, limit: u32) -> Result<Vec<LogId>, StoreError> {
    let mut query = read
        .conn
        .prepare_cached("SELECT id FROM logs WHERE id > ? AND head > swept ORDER BY id LIMIT ?")?;
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
    let wish = read
        .conn
        .prepare_cached("SELECT history_age_ms, history_bytes FROM sessions WHERE log = ?")?
        .query_row([log.0], |row| {
            let (age_ms_max, bytes_max) = (from_sql_int(row.get(0)?), from_sql_int(row.get(1)?));
            Ok(HistoryWish { age_ms_max, bytes_max })
        })
        .optional()?
        .unwrap_or_default();
    reach_by(read, log, servers.with(wish), now_ms)
}

/// The same by one policy, whatever the session wishes.
pub fn reach_by(
    read: &Read<'_>,
    log: LogId,
    policy: Policy,
    now_ms: u64,
) -> Result<Option<Cursor>, StoreError> {
    let (head, swept, bytes): (i64, i64, i64) = read
        .conn
        .prepare_cached("SELECT head, swept, bytes FROM logs WHERE id = ?")?
        .query_row([log.0], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let mut query = read.conn.prepare_cached(
        "SELECT cursor, at_ms, length(payload) FROM ops WHERE log = ? AND cursor > ? AND cursor <= ?
         ORDER BY cursor",
    )?;
    let mut rows = query.query((log.0, swept, head))?;
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

/// The last cursor of a log at or below a position. Positions rise with cursors, so it is found by halves.
fn cursor_at(read: &Read<'_>, log: LogId, position: u64) -> Result<Cursor, StoreError> {
    let mut query = read.conn.prepare_cached(
        "SELECT cursor, position FROM ops WHERE log = ? AND cursor <= ? ORDER BY cursor DESC LIMIT 1",
    )?;
    let (mut low, mut high) = (0, super::logs::get(read, log)?.head.0);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        let at: Option<(i64, i64)> = query
            .query_row((log.0, sql_int(middle)), |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        match at {
            Some((cursor, found)) if from_sql_int(found) > position => {
                high = from_sql_int(cursor).saturating_sub(1);
            }
            // There, or gone.
            _ => low = middle,
        }
    }
    Ok(Cursor(low))
}
