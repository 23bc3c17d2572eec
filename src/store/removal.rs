//! Taking a whole session away: every row that is about it and nothing else.
//!
//! The op that says so must be in the history already: the highest position must never be freed.
//!
//! Its log's number stays taken, and so do the grants for it, ended: audit entries name them.

use super::{Read, StoreError, Tx, contents};
use crate::model::ids::{LogId, SessionId};

/// Tables with rows about a session, by the column that names it. Those that others refer to come last.
const TABLES: [(&str, &str); 16] = [
    ("deltas", "session"),
    ("streams", "session"),
    ("turn_leases", "session"),
    ("diffs", "session"),
    ("turns", "session"),
    ("todos", "session"),
    ("checkpoints", "session"),
    ("parts", "session"),
    ("messages", "session"),
    ("session_snapshots", "session"),
    ("reverts", "session"),
    ("subscriptions", "log"),
    ("ops", "log"),
    ("receipts", "producer"),
    ("producers", "log"),
    ("sessions", "log"),
];

/// Takes away every row about a session.
pub fn remove(tx: &Tx<'_>, session: LogId) -> Result<(), StoreError> {
    let last: Option<i64> = tx
        .conn
        .prepare_cached("SELECT max(position) FROM ops WHERE log = ?")?
        .query_row([session.0], |row| row.get(0))?;
    let project = super::logs::get(tx, session)?.project;
    contents::forget_log(tx, session)?;
    for (table, column) in TABLES {
        let which = match table {
            "receipts" => "producer IN (SELECT id FROM producers WHERE log = ?1)".to_owned(),
            _ => format!("{column} = ?1"),
        };
        tx.conn
            .prepare_cached(&format!("DELETE FROM {table} WHERE {which}"))?
            .execute([session.0])?;
    }
    for snapshot in super::snapshots::forget_orphans(tx)? {
        super::logs::set_removed(tx, snapshot)?;
    }
    tx.conn
        .prepare_cached(
            "UPDATE logs SET floor = head, swept = head, bytes = 0, producers = 0, cuts = cuts + 1,
                             removed = 1 WHERE id = ?",
        )?
        .execute([session.0])?;
    // Whoever follows the project or the server has missed something that cannot be told any more.
    if let (Some(position), Some(project)) = (last, project) {
        tx.conn
            .prepare_cached(
                "UPDATE logs SET cuts = cuts + 1, wide_floor = max(wide_floor, ?) WHERE id IN (?, ?)",
            )?
            .execute((position, project.0, LogId::ROOT.0))?;
    }
    Ok(())
}

/// A session and all below it: those that were made for it, and for those, children first.
pub fn family(read: &Read<'_>, session: LogId) -> Result<Vec<(LogId, SessionId)>, StoreError> {
    let mut query = read.conn.prepare_cached(
        "WITH RECURSIVE family (log, depth) AS (
           SELECT ?1, 0 UNION
           SELECT sessions.log, depth + 1 FROM sessions JOIN family ON sessions.parent = family.log)
         SELECT sessions.log, id FROM family JOIN sessions ON sessions.log = family.log
         ORDER BY depth DESC, sessions.log",
    )?;
    let found = query.query_map([session.0], |row| Ok((LogId(row.get(0)?), row.get(1)?)))?;
    found
        .map(|row| {
            let (log, id): (LogId, String) = row?;
            Ok((log, SessionId::parse(&id).map_err(|error| StoreError::odd("sessions", error))?))
        })
        .collect()
}
