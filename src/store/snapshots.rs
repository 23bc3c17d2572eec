//! Tables `snapshots`, `session_snapshots` and `moves`: which states of a work tree are wanted, by whom, and what was
//! put back.

use super::{Read, StoreError, Tx, decoded, encoded, from_sql_int, sql_int};
use crate::model::ids::{Cursor, LogId, ObjectId, SessionId, SnapshotId};
use crate::model::page::{Page, Paged};
use crate::model::worktree::{
    Actor, CallName, FilesReverted, Move, Occasion, Snapshot, SnapshotInfo, SnapshotKey,
};
use rusqlite::{OptionalExtension, Row, params};
use std::collections::HashSet;

const QUERY: &str = "SELECT snapshots.details, number, taken_at_ms, sessions.id FROM snapshots
     LEFT JOIN sessions ON sessions.log = snapshots.session";

/// Records a snapshot.
pub fn create(
    tx: &Tx<'_>,
    snapshot: &Snapshot,
    number: Cursor,
    now_ms: u64,
) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "INSERT INTO snapshots (log, id, worktree, number, name, tree, base, unknown,
                                    base_unknown, occasion, session, turn, details, stored_bytes,
                                    taken_at_ms)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            snapshot.key.log.0,
            snapshot.key.id.as_str(),
            snapshot.key.worktree.0,
            sql_int(number.0),
            snapshot.name.0,
            snapshot.tree.0,
            snapshot.base.map(|base| base.0),
            snapshot.unknown.map(|unknown| unknown.0),
            snapshot.base_unknown.map(|unknown| unknown.0),
            snapshot.occasion as i64,
            snapshot.by.map(|by| by.session.0),
            snapshot.by.map(|by| sql_int(by.turn.0)),
            encoded(snapshot)?,
            sql_int(snapshot.stored_bytes),
            sql_int(now_ms),
        ])?;
    for actor in &snapshot.actors {
        tx.conn
            .prepare_cached(
                "INSERT INTO snapshot_actors (snapshot, session) VALUES (?, ?) ON CONFLICT DO NOTHING",
            )?
            .execute((snapshot.key.log.0, actor.session.0))?;
    }
    Ok(())
}

/// Records where in a session's log a snapshot was taken for it.
pub fn note(tx: &Tx<'_>, session: LogId, cursor: Cursor, note: &Noted) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "INSERT INTO session_snapshots (session, cursor, snapshot, worktree, number, origin, turn)
             VALUES (?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute((
            session.0,
            sql_int(cursor.0),
            note.snapshot.0,
            note.worktree.0,
            sql_int(note.number.0),
            note.by.session.0,
            sql_int(note.by.turn.0),
        ))?;
    Ok(())
}

/// A snapshot as a session knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noted {
    /// Which.
    pub snapshot: LogId,
    /// Of which work tree.
    pub worktree: LogId,
    /// Its number there.
    pub number: Cursor,
    /// For whom it was taken. In a fork, that is the session it was copied from.
    pub by: Actor,
}

/// What a session knows of snapshots, in the order of its log, up to a cursor.
pub fn notes(
    read: &Read<'_>,
    session: LogId,
    before: Cursor,
) -> Result<Vec<(Cursor, Noted)>, StoreError> {
    let mut query = read.conn.prepare_cached(
        "SELECT cursor, snapshot, worktree, number, origin, turn FROM session_snapshots
         WHERE session = ? AND cursor < ? ORDER BY cursor",
    )?;
    let found = query.query_map((session.0, sql_int(before.0)), |row| {
        let by = Actor { session: LogId(row.get(4)?), turn: Cursor(from_sql_int(row.get(5)?)) };
        let noted = Noted {
            snapshot: LogId(row.get(1)?),
            worktree: LogId(row.get(2)?),
            number: Cursor(from_sql_int(row.get(3)?)),
            by,
        };
        Ok((Cursor(from_sql_int(row.get(0)?)), noted))
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// The snapshot of a work tree that a call took.
pub fn named(
    read: &Read<'_>,
    worktree: LogId,
    name: CallName,
) -> Result<Option<SnapshotInfo>, StoreError> {
    one(read, "worktree = ?1 AND name = ?2", (worktree.0, name.0))
}

/// What is told about a snapshot.
pub fn info(read: &Read<'_>, log: LogId) -> Result<Option<SnapshotInfo>, StoreError> {
    one(read, "snapshots.log = ?1 AND hidden = 0", [log.0])
}

/// The snapshot of a work tree with this id.
pub fn within(
    read: &Read<'_>,
    worktree: LogId,
    id: &SnapshotId,
) -> Result<Option<SnapshotInfo>, StoreError> {
    one(read, "worktree = ?1 AND snapshots.id = ?2 AND hidden = 0", (worktree.0, id.as_str()))
}

/// The last snapshot of a work tree.
pub fn latest(read: &Read<'_>, worktree: LogId) -> Result<Option<SnapshotInfo>, StoreError> {
    one(read, "worktree = ?1 ORDER BY number DESC LIMIT 1", [worktree.0])
}

fn one(
    read: &Read<'_>,
    which: &str,
    values: impl rusqlite::Params,
) -> Result<Option<SnapshotInfo>, StoreError> {
    read.conn
        .prepare_cached(&format!("{QUERY} WHERE {which}"))?
        .query_row(values, |row| Ok(from_row(row)))
        .optional()?
        .transpose()
}

/// A page of the snapshots of a work tree, in the order they were taken.
pub fn page(
    read: &Read<'_>,
    worktree: LogId,
    page: Page,
) -> Result<Paged<SnapshotInfo>, StoreError> {
    let (order, from) = match page.newest_first() {
        false => ("ORDER BY number", "number >= ?2"),
        true => ("ORDER BY number DESC", "number <= ?2"),
    };
    let sql = format!("{QUERY} WHERE worktree = ?1 AND hidden = 0 AND {from} {order} LIMIT ?3");
    let mut query = read.conn.prepare_cached(&sql)?;
    let mut rows = query.query((worktree.0, page.bound(), page.limit() + 1))?;
    super::paged(&mut rows, page, from_row, |info| (info.number, 512))
}

/// Those taken behind one, in order; a bounded number of them.
pub fn behind(
    read: &Read<'_>,
    worktree: LogId,
    number: Cursor,
    most: u64,
) -> Result<Vec<SnapshotInfo>, StoreError> {
    let sql = format!("{QUERY} WHERE worktree = ? AND number > ? ORDER BY number LIMIT ?");
    let mut query = read.conn.prepare_cached(&sql)?;
    let mut rows = query.query((worktree.0, sql_int(number.0), sql_int(most)))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(from_row(row)?);
    }
    Ok(found)
}

fn from_row(row: &Row<'_>) -> Result<SnapshotInfo, StoreError> {
    let session: Option<String> = row.get(3)?;
    let session = session.map(|id| SessionId::parse(&id)).transpose();
    Ok(SnapshotInfo {
        snapshot: decoded("snapshots", row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?)?,
        number: Cursor(from_sql_int(row.get(1)?)),
        taken_at_ms: from_sql_int(row.get(2)?),
        session: session.map_err(|error| StoreError::odd("snapshots", error))?,
    })
}

/// How far back snapshots are looked at to find who is at work: a turn that has taken none for so long is not.
const AT_WORK_LOOK: i64 = 10_000;

/// The turns that were at work in a work tree since a time: they have taken snapshots of it, and had not ended by then.
pub fn at_work(read: &Read<'_>, worktree: LogId, since_ms: u64) -> Result<Vec<Actor>, StoreError> {
    let mut query = read.conn.prepare_cached(
        "SELECT DISTINCT noted.session, noted.turn FROM session_snapshots AS noted
         JOIN turns ON turns.session = noted.session AND turns.cursor = noted.turn
         WHERE noted.worktree = ?1 AND noted.origin = noted.session
           AND noted.number > (SELECT coalesce(max(number), 0) FROM snapshots WHERE worktree = ?1) - ?3
           AND (turns.state = 1 OR turns.ended_at_ms > ?2)
         ORDER BY noted.session, noted.turn",
    )?;
    let found = query.query_map((worktree.0, sql_int(since_ms), AT_WORK_LOOK), |row| {
        Ok(Actor { session: LogId(row.get(0)?), turn: Cursor(from_sql_int(row.get(1)?)) })
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// Turns that have ended, whose files were taken down while they ran and not since; a bounded number of them.
pub fn unclosed(read: &Read<'_>, most: u32) -> Result<Vec<(Actor, LogId)>, StoreError> {
    let mut query = read.conn.prepare_cached(
        "SELECT noted.session, noted.turn, max(noted.worktree) FROM session_snapshots AS noted
         JOIN turns ON turns.session = noted.session AND turns.cursor = noted.turn
         WHERE noted.origin = noted.session AND turns.state NOT IN (0, 1)
         GROUP BY noted.session, noted.turn
         HAVING max(CASE WHEN (SELECT occasion FROM snapshots WHERE log = noted.snapshot) = ?
                    THEN 1 ELSE 0 END) = 0
         LIMIT ?",
    )?;
    let found = query.query_map((Occasion::TurnEnd as i64, most), |row| {
        let turn = Cursor(from_sql_int(row.get(1)?));
        Ok((Actor { session: LogId(row.get(0)?), turn }, LogId(row.get(2)?)))
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// Somebody's work that is still there changed up to it.
const AT_WORK: &str = "EXISTS (SELECT 1 FROM snapshot_actors AS actor
     JOIN sessions ON sessions.log = actor.session WHERE actor.snapshot = snapshots.log)";

/// Lets go of a snapshot. As long as somebody's work is told by it, it is only hidden. Whether it is gone.
pub fn forget(tx: &Tx<'_>, log: LogId) -> Result<bool, StoreError> {
    tx.conn.prepare_cached("DELETE FROM session_snapshots WHERE snapshot = ?")?.execute([log.0])?;
    tx.conn.prepare_cached("UPDATE snapshots SET hidden = 1 WHERE log = ?")?.execute([log.0])?;
    let sql = format!("DELETE FROM snapshots WHERE log = ? AND NOT {AT_WORK}");
    let gone = tx.conn.prepare_cached(&sql)?.execute([log.0])? == 1;
    if gone {
        forget_actors(tx, log)?;
    }
    Ok(gone)
}

fn forget_actors(tx: &Tx<'_>, log: LogId) -> Result<(), StoreError> {
    tx.conn.prepare_cached("DELETE FROM snapshot_actors WHERE snapshot = ?")?.execute([log.0])?;
    Ok(())
}

/// Takes away what was taken for sessions that are gone, or was let go of, where no other one knows of it or has its
/// work told by it. Tells whose logs those were.
pub fn forget_orphans(tx: &Tx<'_>) -> Result<Vec<LogId>, StoreError> {
    let sql = format!(
        "DELETE FROM snapshots
         WHERE (hidden = 1 OR (session IS NOT NULL AND session NOT IN (SELECT log FROM sessions)))
           AND log NOT IN (SELECT snapshot FROM session_snapshots) AND NOT {AT_WORK}
         RETURNING log"
    );
    let gone: Vec<LogId> = tx
        .conn
        .prepare_cached(&sql)?
        .query_map([], |row| row.get(0).map(LogId))?
        .collect::<Result<_, _>>()?;
    for log in &gone {
        forget_actors(tx, *log)?;
    }
    tx.conn
        .prepare_cached(
            // They are nobody's then, but the next snapshot is told by what they did.
            "UPDATE moves SET session = NULL
             WHERE session IS NOT NULL AND session NOT IN (SELECT log FROM sessions)",
        )?
        .execute([])?;
    Ok(gone)
}

/// The work trees a session has touched.
pub fn touched(read: &Read<'_>, session: LogId) -> Result<Vec<LogId>, StoreError> {
    let mut query = read
        .conn
        .prepare_cached("SELECT DISTINCT worktree FROM session_snapshots WHERE session = ?")?;
    let found = query.query_map([session.0], |row| row.get(0).map(LogId))?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// Whether it is there, hidden or not.
pub fn is_there(read: &Read<'_>, log: LogId) -> Result<bool, StoreError> {
    Ok(read.conn.prepare_cached("SELECT 1 FROM snapshots WHERE log = ?")?.exists([log.0])?)
}

/// Records that a call took a session's conversation back.
pub fn note_revert(tx: &Tx<'_>, session: LogId, name: CallName) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached("INSERT INTO reverts (session, name) VALUES (?, ?) ON CONFLICT DO NOTHING")?
        .execute((session.0, name.0))?;
    Ok(())
}

/// Whether a call has taken a session's conversation back.
pub fn was_reverted_by(
    read: &Read<'_>,
    session: LogId,
    name: CallName,
) -> Result<bool, StoreError> {
    Ok(read
        .conn
        .prepare_cached("SELECT 1 FROM reverts WHERE session = ? AND name = ?")?
        .exists((session.0, name.0))?)
}

/// Snapshots of a work tree that no session knows of and that are older than a time, and older moves; a bounded
/// number of each. The last one stays: the next one is told by what is different.
pub fn old(
    read: &Read<'_>,
    worktree: LogId,
    before_ms: u64,
    most: u32,
) -> Result<(Vec<LogId>, Vec<CallName>), StoreError> {
    let mut query = read.conn.prepare_cached(
        "SELECT log FROM snapshots WHERE worktree = ?1 AND taken_at_ms < ?2 AND hidden = 0
           AND log NOT IN (SELECT snapshot FROM session_snapshots)
           AND number < (SELECT max(number) FROM snapshots WHERE worktree = ?1)
         ORDER BY number LIMIT ?3",
    )?;
    let at = (worktree.0, sql_int(before_ms), most);
    let snapshots = query.query_map(at, |row| row.get(0).map(LogId))?.collect::<Result<_, _>>()?;
    let mut query = read.conn.prepare_cached(
        "SELECT name FROM moves WHERE worktree = ?1 AND at_ms < ?2
           AND at < (SELECT coalesce(max(number), 0) FROM snapshots WHERE worktree = ?1)
         ORDER BY at LIMIT ?3",
    )?;
    let moves = query.query_map(at, |row| row.get(0).map(CallName))?.collect::<Result<_, _>>()?;
    Ok((snapshots, moves))
}

/// Records something that was done to files.
pub fn create_move(
    tx: &Tx<'_>,
    worktree: LogId,
    done: &Move,
    at: Cursor,
    now_ms: u64,
) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "INSERT INTO moves (worktree, name, at, before, after, session, session_at, at_ms)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            worktree.0,
            done.name.0,
            sql_int(at.0),
            done.before.0,
            done.after.0,
            done.session.map(|session| session.0),
            sql_int(done.session_at.0),
            sql_int(now_ms),
        ])?;
    Ok(())
}

/// Where something that a call did to files was recorded.
pub fn moved_at(
    read: &Read<'_>,
    worktree: LogId,
    name: CallName,
) -> Result<Option<Cursor>, StoreError> {
    Ok(read
        .conn
        .prepare_cached("SELECT at FROM moves WHERE worktree = ? AND name = ?")?
        .query_row((worktree.0, name.0), |row| row.get(0).map(from_sql_int).map(Cursor))
        .optional()?)
}

/// Something that was done to files, as it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Where in the work tree's log it was recorded.
    pub at: Cursor,
    /// What stood there before.
    pub before: ObjectId,
    /// What stood there after.
    pub after: ObjectId,
    /// For which session, if for one.
    pub session: Option<LogId>,
}

/// What was done to the files of a work tree behind a cursor, in order; a bounded number of them.
pub fn moved_behind(
    read: &Read<'_>,
    worktree: LogId,
    behind: Cursor,
    most: u64,
) -> Result<Vec<Moved>, StoreError> {
    let mut query = read.conn.prepare_cached(
        "SELECT at, before, after, session FROM moves WHERE worktree = ? AND at > ?
         ORDER BY at LIMIT ?",
    )?;
    let found = query.query_map((worktree.0, sql_int(behind.0), sql_int(most)), |row| {
        Ok(Moved {
            at: Cursor(from_sql_int(row.get(0)?)),
            before: ObjectId(row.get(1)?),
            after: ObjectId(row.get(2)?),
            session: row.get::<_, Option<i64>>(3)?.map(LogId),
        })
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// Where the last thing a session has done to the files of a work tree is recorded, of those it has said before a place
/// in its own log.
pub fn last_moved(
    read: &Read<'_>,
    worktree: LogId,
    session: LogId,
    before: Cursor,
) -> Result<Option<Cursor>, StoreError> {
    Ok(read
        .conn
        .prepare_cached(
            "SELECT max(at) FROM moves WHERE worktree = ? AND session = ? AND session_at < ?",
        )?
        .query_row((worktree.0, session.0, sql_int(before.0)), |row| {
            Ok(row.get::<_, Option<i64>>(0)?.map(from_sql_int).map(Cursor))
        })?)
}

/// Lets go of what was done to files by a call.
pub fn forget_move(tx: &Tx<'_>, worktree: LogId, name: CallName) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached("DELETE FROM moves WHERE worktree = ? AND name = ?")?
        .execute((worktree.0, name.0))?;
    Ok(())
}

/// The files that went along when a session's conversation was taken back.
pub fn reverted(read: &Read<'_>, session: LogId) -> Result<Option<FilesReverted>, StoreError> {
    let found: Option<Vec<u8>> = read
        .conn
        .prepare_cached("SELECT files_reverted FROM sessions WHERE log = ?")?
        .query_row([session.0], |row| row.get(0))
        .optional()?
        .flatten();
    found.map(|bytes| decoded("sessions", &bytes)).transpose()
}

/// Records that.
pub fn set_reverted(
    tx: &Tx<'_>,
    session: LogId,
    files: Option<&FilesReverted>,
) -> Result<(), StoreError> {
    let files = files.map(encoded).transpose()?;
    tx.conn
        .prepare_cached("UPDATE sessions SET files_reverted = ? WHERE log = ?")?
        .execute((files, session.0))?;
    Ok(())
}

/// What went along when a session's conversation was taken back does not come back with it any more.
pub fn leave_behind(tx: &Tx<'_>, session: LogId) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "UPDATE sessions SET files_reverted = NULL WHERE log = ? AND files_reverted IS NOT NULL",
        )?
        .execute([session.0])?;
    Ok(())
}

/// Every tree that is wanted in a project.
pub fn trees_of_project(read: &Read<'_>, project: LogId) -> Result<HashSet<ObjectId>, StoreError> {
    let mut query = read.conn.prepare_cached(
        "SELECT tree FROM snapshots JOIN trees ON trees.log = worktree WHERE project = ?1
         UNION SELECT base FROM snapshots JOIN trees ON trees.log = worktree
           WHERE project = ?1 AND base IS NOT NULL
         UNION SELECT unknown FROM snapshots JOIN trees ON trees.log = worktree
           WHERE project = ?1 AND unknown IS NOT NULL
         UNION SELECT base_unknown FROM snapshots JOIN trees ON trees.log = worktree
           WHERE project = ?1 AND base_unknown IS NOT NULL
         UNION SELECT before FROM moves JOIN trees ON trees.log = worktree WHERE project = ?1
         UNION SELECT after FROM moves JOIN trees ON trees.log = worktree WHERE project = ?1",
    )?;
    let found = query.query_map([project.0], |row| row.get(0).map(ObjectId))?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// How many snapshots a project has.
pub fn count_of_project(read: &Read<'_>, project: LogId) -> Result<u64, StoreError> {
    Ok(read
        .conn
        .prepare_cached(
            "SELECT count(*) FROM snapshots JOIN trees ON trees.log = worktree WHERE project = ?",
        )?
        .query_row([project.0], |row| row.get(0).map(from_sql_int))?)
}

/// How much the snapshots that were taken for a session took up.
pub fn bytes_of_session(read: &Read<'_>, session: LogId) -> Result<(u64, u64), StoreError> {
    Ok(read
        .conn
        .prepare_cached(
            "SELECT count(*), coalesce(sum(stored_bytes), 0) FROM snapshots WHERE session = ?",
        )?
        .query_row([session.0], |row| Ok((from_sql_int(row.get(0)?), from_sql_int(row.get(1)?))))?)
}

/// A key as it is recorded.
pub fn key(read: &Read<'_>, log: LogId) -> Result<Option<SnapshotKey>, StoreError> {
    Ok(info(read, log)?.map(|info| info.snapshot.key))
}
