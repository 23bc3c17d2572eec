//! Tables `turns`, `turn_leases` and `diffs`: runs of agents, when they are given up, and what they did to files.

use super::{Read, StoreError, Tx, from_sql_int, sql_int};
use crate::model::ids::{Cursor, GrantKey, LogId, MessageId, TurnId};
use crate::model::page::{Page, Paged};
use crate::model::session::FileDiff;
use crate::model::turn::{Retry, State, Status, Summary, Turn, TurnLease};
use crate::model::usage::Usage;
use rusqlite::{OptionalExtension, Row};

const QUERY: &str = "SELECT turns.cursor, turns.id, turns.message, state, granted, lease_ms, began_at_ms,
       ended_at_ms, reason, retry, additions, deletions, files, until_ms, usage
     FROM turns LEFT JOIN turn_leases ON turn_leases.session = turns.session AND turn = turns.cursor";

/// How a turn ended.
#[derive(Debug, Clone, Copy)]
pub struct Ending<'a> {
    /// How far it came.
    pub state: State,
    /// Why.
    pub reason: &'a str,
    /// What came of it.
    pub summary: Summary,
    /// When.
    pub at_ms: u64,
}

/// Records a turn.
pub fn create(tx: &Tx<'_>, session: LogId, turn: &Turn) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "INSERT INTO turns (session, cursor, id, message, state, granted, lease_ms, began_at_ms)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute((
            session.0,
            sql_int(turn.cursor.0),
            turn.id.as_str(),
            turn.message.as_str(),
            turn.state as i64,
            turn.granted.0,
            sql_int(turn.lease.ms()),
            sql_int(turn.began_at_ms),
        ))?;
    Ok(())
}

/// A turn by its id.
pub fn get(read: &Read<'_>, session: LogId, id: &TurnId) -> Result<Option<Turn>, StoreError> {
    read.conn
        .prepare_cached(&format!("{QUERY} WHERE turns.session = ? AND turns.id = ?"))?
        .query_row((session.0, id.as_str()), |row| Ok(from_row(row)))
        .optional()?
        .transpose()
}

/// A turn by the place where it was begun.
pub fn at(read: &Read<'_>, session: LogId, cursor: Cursor) -> Result<Option<Turn>, StoreError> {
    read.conn
        .prepare_cached(&format!("{QUERY} WHERE turns.session = ? AND turns.cursor = ?"))?
        .query_row((session.0, sql_int(cursor.0)), |row| Ok(from_row(row)))
        .optional()?
        .transpose()
}

/// What a session is doing.
pub fn status(read: &Read<'_>, session: LogId) -> Result<Status, StoreError> {
    let mut query = read.conn.prepare_cached(
        "SELECT state, id, retry FROM turns
         LEFT JOIN turn_leases ON turn_leases.session = turns.session AND turn = turns.cursor
         WHERE turns.session = ? AND state IN (0, 1) ORDER BY state, cursor",
    )?;
    let mut rows = query.query([session.0])?;
    let (mut status, mut waiting) = (Status::default(), 0);
    while let Some(row) = rows.next()? {
        if row.get::<_, i64>(0)? == State::Queued as i64 {
            status.queued += 1;
            continue;
        }
        status.running += 1;
        if let Some(retry) = read_retry(row.get(2)?)? {
            waiting += 1;
            status.retry.get_or_insert((named(row, 1)?, retry));
        }
    }
    // Busy, as long as one of them does something.
    if waiting < status.running {
        status.retry = None;
    }
    Ok(status)
}

/// The turn that has waited longest in a session.
pub fn next_queued(read: &Read<'_>, session: LogId) -> Result<Option<Turn>, StoreError> {
    read.conn
        .prepare_cached(&format!(
            "{QUERY} WHERE turns.session = ? AND state = 0 AND state IN (0, 1) ORDER BY state, turns.cursor LIMIT 1"
        ))?
        .query_row([session.0], |row| Ok(from_row(row)))
        .optional()?
        .transpose()
}

/// What the turns under way in a session answer.
pub fn messages_under_way(read: &Read<'_>, session: LogId) -> Result<Vec<MessageId>, StoreError> {
    let mut query = read
        .conn
        .prepare_cached("SELECT message FROM turns WHERE session = ? AND state IN (0, 1)")?;
    let found = query.query_map([session.0], |row| row.get::<_, String>(0))?;
    found
        .map(|id| MessageId::parse(&id?).map_err(|error| StoreError::odd("turns", error)))
        .collect()
}

/// Turns under way that were begun under a grant, with their sessions.
pub fn begun_under(read: &Read<'_>, grant: GrantKey) -> Result<Vec<(LogId, Cursor)>, StoreError> {
    let mut query = read.conn.prepare_cached(
        "SELECT session, cursor FROM turns WHERE granted = ? AND state IN (0, 1)",
    )?;
    let found = query
        .query_map([grant.0], |row| Ok((LogId(row.get(0)?), Cursor(from_sql_int(row.get(1)?)))))?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// A turn that waited runs now.
pub fn start(tx: &Tx<'_>, session: LogId, cursor: Cursor) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached("UPDATE turns SET state = 1 WHERE session = ? AND cursor = ?")?
        .execute((session.0, sql_int(cursor.0)))?;
    Ok(())
}

/// A turn is over.
pub fn end(
    tx: &Tx<'_>,
    session: LogId,
    cursor: Cursor,
    ending: Ending<'_>,
) -> Result<(), StoreError> {
    let Summary { additions, deletions, files } = ending.summary;
    tx.conn
        .prepare_cached(
            "UPDATE turns SET state = ?, reason = ?, ended_at_ms = ?, additions = ?, deletions = ?, files = ?
             WHERE session = ? AND cursor = ?",
        )?
        .execute((
            ending.state as i64,
            ending.reason,
            sql_int(ending.at_ms),
            sql_int(additions),
            sql_int(deletions),
            sql_int(files),
            session.0,
            sql_int(cursor.0),
        ))?;
    Ok(())
}

/// A turn waits, or goes on.
pub fn set_retry(
    tx: &Tx<'_>,
    session: LogId,
    cursor: Cursor,
    retry: Option<&Retry>,
) -> Result<(), StoreError> {
    let retry = retry.map(super::encoded).transpose()?;
    tx.conn
        .prepare_cached("UPDATE turn_leases SET retry = ? WHERE session = ? AND turn = ?")?
        .execute((retry, session.0, sql_int(cursor.0)))?;
    Ok(())
}

/// Notes where it was last said that a turn waits.
pub fn set_retry_at(
    tx: &Tx<'_>,
    session: LogId,
    cursor: Cursor,
    at: Cursor,
) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached("UPDATE turns SET retry_at = ? WHERE session = ? AND cursor = ?")?
        .execute((sql_int(at.0), session.0, sql_int(cursor.0)))?;
    Ok(())
}

/// Where it was last said that a turn waits; 0 if it never was.
pub fn retry_at(read: &Read<'_>, session: LogId, id: &TurnId) -> Result<Cursor, StoreError> {
    let at: Option<i64> = read
        .conn
        .prepare_cached("SELECT retry_at FROM turns WHERE session = ? AND id = ?")?
        .query_row((session.0, id.as_str()), |row| row.get(0))
        .optional()?;
    Ok(Cursor(from_sql_int(at.unwrap_or(0))))
}

/// Counts steps of a turn in, and others out.
pub fn count(
    tx: &Tx<'_>,
    session: LogId,
    turn: Cursor,
    more: Usage,
    less: Usage,
) -> Result<(), StoreError> {
    if turn.0 == 0 || more == less {
        return Ok(());
    }
    let found: Option<Option<Vec<u8>>> = tx
        .conn
        .prepare_cached("SELECT usage FROM turns WHERE session = ? AND cursor = ?")?
        .query_row((session.0, sql_int(turn.0)), |row| row.get(0))
        .optional()?;
    let Some(found) = found else { return Ok(()) };
    let usage = read_usage(found)?.plus(more).minus(less);
    tx.conn
        .prepare_cached("UPDATE turns SET usage = ? WHERE session = ? AND cursor = ?")?
        .execute((
            // As if nothing had ever been counted: it must not matter how zero was reached.
            (usage != Usage::default()).then(|| super::encoded(&usage)).transpose()?,
            session.0,
            sql_int(turn.0),
        ))?;
    Ok(())
}

/// A page of a session's turns, in the order they were begun.
pub fn page(read: &Read<'_>, session: LogId, page: Page) -> Result<Paged<Turn>, StoreError> {
    let (compared, order) = match page.newest_first() {
        false => (">=", "ASC"),
        true => ("<=", "DESC"),
    };
    let mut query = read.conn.prepare_cached(&format!(
        "{QUERY} WHERE turns.session = ? AND turns.cursor {compared} ?
         ORDER BY turns.cursor {order} LIMIT ?"
    ))?;
    let mut rows = query.query((session.0, page.bound(), page.limit() + 1))?;
    super::paged(&mut rows, page, from_row, |turn| (turn.cursor, turn.reason.len()))
}

/// What the turns came to, together, whose messages stand in a stretch.
pub fn summary(
    read: &Read<'_>,
    session: LogId,
    from: Cursor,
    to: Cursor,
) -> Result<Summary, StoreError> {
    Ok(read
        .conn
        .prepare_cached(
            "SELECT coalesce(sum(additions), 0), coalesce(sum(deletions), 0), coalesce(sum(files), 0)
             FROM turns INDEXED BY turns_with_files CROSS JOIN messages
             ON messages.session = turns.session AND messages.id = turns.message
             WHERE turns.session = ? AND additions + deletions + files > 0
               AND messages.cursor >= ? AND messages.cursor < ?",
        )?
        .query_row((session.0, sql_int(from.0), sql_int(to.0)), |row| {
            Ok(Summary {
                additions: from_sql_int(row.get(0)?),
                deletions: from_sql_int(row.get(1)?),
                files: from_sql_int(row.get(2)?),
            })
        })?)
}

/// Records what a turn did to files, in numbers.
pub fn set_summary(
    tx: &Tx<'_>,
    session: LogId,
    turn: Cursor,
    summary: Summary,
) -> Result<(), StoreError> {
    let Summary { additions, deletions, files } = summary;
    tx.conn
        .prepare_cached(
            "UPDATE turns SET additions = ?, deletions = ?, files = ? WHERE session = ? AND cursor = ?",
        )?
        .execute((
            sql_int(additions),
            sql_int(deletions),
            sql_int(files),
            session.0,
            sql_int(turn.0),
        ))?;
    Ok(())
}

/// Records what a turn did to files.
pub fn set_diffs(
    tx: &Tx<'_>,
    session: LogId,
    turn: Cursor,
    diffs: &[FileDiff],
) -> Result<(), StoreError> {
    for (position, diff) in (1u32..).zip(diffs) {
        tx.conn
            .prepare_cached(
                "INSERT INTO diffs (session, turn, position, diff) VALUES (?, ?, ?, ?)",
            )?
            .execute((session.0, sql_int(turn.0), position, super::encoded(diff)?))?;
    }
    Ok(())
}

/// A page of what a turn did to files, in the order it was told.
pub fn diffs(
    read: &Read<'_>,
    session: LogId,
    turn: Cursor,
    page: Page,
) -> Result<Paged<(Cursor, FileDiff)>, StoreError> {
    let mut query = read.conn.prepare_cached(
        "SELECT position, diff FROM diffs WHERE session = ? AND turn = ? AND position >= ?
         ORDER BY position LIMIT ?",
    )?;
    let place = (session.0, sql_int(turn.0), page.bound(), page.limit() + 1);
    let mut rows = query.query(place)?;
    super::paged(
        &mut rows,
        page,
        |row| {
            let diff = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
            let diff: FileDiff = super::decoded("diffs", diff)?;
            Ok((Cursor(from_sql_int(row.get(0)?)), diff))
        },
        |(at, diff)| (*at, diff.patch.len() + diff.file.len() + diff.rest.len()),
    )
}

/// Begins or renews the lease of a turn.
pub fn set_lease(
    tx: &Tx<'_>,
    session: LogId,
    turn: Cursor,
    until_ms: u64,
) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "INSERT INTO turn_leases (session, turn, until_ms) VALUES (?, ?, ?)
             ON CONFLICT DO UPDATE SET until_ms = excluded.until_ms",
        )?
        .execute((session.0, sql_int(turn.0), sql_int(until_ms)))?;
    Ok(())
}

/// Nobody could be heard while the disk failed: every lease begins anew. How many were moved.
pub fn begin_anew(tx: &Tx<'_>, now_ms: u64) -> Result<u64, StoreError> {
    let moved = tx.conn.execute(
        "UPDATE turn_leases SET until_ms = max(until_ms, coalesce((
           SELECT min(?1 + lease_ms, coalesce(expires_at_ms, ?1 + lease_ms))
           FROM turns LEFT JOIN grants ON grants.id = turns.granted
           WHERE turns.session = turn_leases.session AND turns.cursor = turn_leases.turn), 0))",
        [sql_int(now_ms)],
    )?;
    Ok(moved as u64)
}

/// The turn needs no lease any more.
pub fn drop_lease(tx: &Tx<'_>, session: LogId, turn: Cursor) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached("DELETE FROM turn_leases WHERE session = ? AND turn = ?")?
        .execute((session.0, sql_int(turn.0)))?;
    Ok(())
}

/// Turns whose lease has run out, the longest overdue first.
pub fn due(read: &Read<'_>, now_ms: u64, limit: u32) -> Result<Vec<(LogId, Cursor)>, StoreError> {
    let mut query = read.conn.prepare_cached(
        "SELECT session, turn FROM turn_leases WHERE until_ms <= ? ORDER BY until_ms LIMIT ?",
    )?;
    let found = query.query_map((sql_int(now_ms), limit), |row| {
        Ok((LogId(row.get(0)?), Cursor(from_sql_int(row.get(1)?))))
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

fn read_usage(blob: Option<Vec<u8>>) -> Result<Usage, StoreError> {
    blob.map_or_else(|| Ok(Usage::default()), |blob| super::decoded("turns", &blob))
}

fn read_retry(blob: Option<Vec<u8>>) -> Result<Option<Retry>, StoreError> {
    blob.map(|blob| super::decoded("turns", &blob)).transpose()
}

fn named(row: &Row<'_>, column: usize) -> Result<TurnId, StoreError> {
    let id = row.get_ref(column)?.as_str().map_err(rusqlite::Error::from)?;
    TurnId::parse(id).map_err(|error| StoreError::odd("turns", error))
}

fn from_row(row: &Row<'_>) -> Result<Turn, StoreError> {
    let message = row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?;
    let state: i64 = row.get(3)?;
    Ok(Turn {
        cursor: Cursor(from_sql_int(row.get(0)?)),
        id: named(row, 1)?,
        message: MessageId::parse(message).map_err(|error| StoreError::odd("turns", error))?,
        state: State::from_number(state)
            .ok_or_else(|| StoreError::Corrupt(format!("a turn in state {state}")))?,
        granted: GrantKey(row.get(4)?),
        lease: TurnLease::stored(from_sql_int(row.get(5)?)),
        began_at_ms: from_sql_int(row.get(6)?),
        ended_at_ms: row.get::<_, Option<i64>>(7)?.map(from_sql_int),
        reason: row.get(8)?,
        retry: read_retry(row.get(9)?)?,
        summary: Summary {
            additions: from_sql_int(row.get(10)?),
            deletions: from_sql_int(row.get(11)?),
            files: from_sql_int(row.get(12)?),
        },
        usage: read_usage(row.get(14)?)?,
        until_ms: row.get::<_, Option<i64>>(13)?.map(from_sql_int),
    })
}
