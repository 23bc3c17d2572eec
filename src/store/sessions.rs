//! Table `sessions`.

use super::{Read, StoreError, Tx, from_sql_int, sql_int};
use crate::model::history::HistoryWish;
use crate::model::ids::{Cursor, GrantKey, LogId, ProjectId, SessionId};
use crate::model::infos::SessionInfo;
use crate::model::page::{Page, Paged};
use rusqlite::{OptionalExtension, Row};

const QUERY: &str = "SELECT sessions.id, projects.id, title, sessions.created_at_ms, sessions.cursor, head
     FROM sessions JOIN projects ON projects.log = sessions.project JOIN logs ON logs.id = sessions.log";

/// A session to be recorded.
#[derive(Debug, Clone, Copy)]
pub struct NewSession<'a> {
    /// Its public name.
    pub id: &'a SessionId,
    /// Its title for people.
    pub title: &'a str,
    /// Where in the project's log it was made.
    pub cursor: Cursor,
    /// When it was made.
    pub created_at_ms: u64,
    /// The session it was made for.
    pub parent: Option<LogId>,
}

/// Records a session. `log` is its own log.
pub fn create(
    tx: &Tx<'_>,
    log: LogId,
    project: LogId,
    info: &NewSession<'_>,
) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "INSERT INTO sessions (log, id, project, title, cursor, created_at_ms, parent)
             VALUES (?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute((
            log.0,
            info.id.as_str(),
            project.0,
            info.title,
            sql_int(info.cursor.0),
            sql_int(info.created_at_ms),
            info.parent.map(|parent| parent.0),
        ))?;
    Ok(())
}

/// The cursors of the last ops that set a session's title and its history; none for a log that is no
/// session's, 0 for what was never set.
pub fn set_at(read: &Read<'_>, log: LogId) -> Result<Option<(Cursor, Cursor)>, StoreError> {
    Ok(read
        .conn
        .prepare_cached("SELECT titled_at, history_at FROM sessions WHERE log = ?")?
        .query_row([log.0], |row| {
            Ok((Cursor(from_sql_int(row.get(0)?)), Cursor(from_sql_int(row.get(1)?))))
        })
        .optional()?)
}

/// Gives a session another title.
pub fn set_title(tx: &Tx<'_>, log: LogId, title: &str, at: Cursor) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached("UPDATE sessions SET title = ?, titled_at = ? WHERE log = ?")?
        .execute((title, sql_int(at.0), log.0))?;
    Ok(())
}

/// Sets how much history is kept of a session.
pub fn set_history(
    tx: &Tx<'_>,
    log: LogId,
    wish: HistoryWish,
    at: Cursor,
) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "UPDATE sessions SET history_age_ms = ?, history_bytes = ?, history_at = ? WHERE log = ?",
        )?
        .execute((sql_int(wish.age_ms_max), sql_int(wish.bytes_max), sql_int(at.0), log.0))?;
    Ok(())
}

/// The log of the session with this id, and the log of its project.
pub fn log_of(read: &Read<'_>, id: &SessionId) -> Result<Option<(LogId, LogId)>, StoreError> {
    Ok(read
        .conn
        .prepare_cached("SELECT log, project FROM sessions WHERE id = ?")?
        .query_row([id.as_str()], |row| Ok((LogId(row.get(0)?), LogId(row.get(1)?))))
        .optional()?)
}

/// The log of the session with this id, if it was made for another one, and the grant of the delegate it was
/// made for.
pub fn child_of(
    read: &Read<'_>,
    parent: LogId,
    id: &SessionId,
) -> Result<Option<(LogId, GrantKey)>, StoreError> {
    Ok(read
        .conn
        .prepare_cached(
            "SELECT sessions.log, granted FROM sessions JOIN grants ON grants.object_log = sessions.log
             JOIN delegations ON granted = grants.id AND delegations.log = sessions.parent
             WHERE sessions.id = ? AND sessions.parent = ? ORDER BY granted LIMIT 1",
        )?
        .query_row((id.as_str(), parent.0), |row| Ok((LogId(row.get(0)?), GrantKey(row.get(1)?))))
        .optional()?)
}

/// The public name of a session.
pub fn id_of(read: &Read<'_>, log: LogId) -> Result<Option<SessionId>, StoreError> {
    let id: Option<String> = read
        .conn
        .prepare_cached("SELECT id FROM sessions WHERE log = ?")?
        .query_row([log.0], |row| row.get(0))
        .optional()?;
    id.map(|id| SessionId::parse(&id))
        .transpose()
        .map_err(|error| StoreError::odd("sessions", error))
}

/// What is told about a session.
pub fn info(read: &Read<'_>, log: LogId) -> Result<Option<SessionInfo>, StoreError> {
    read.conn
        .prepare_cached(&format!("{QUERY} WHERE sessions.log = ?"))?
        .query_row([log.0], |row| Ok(from_row(row)))
        .optional()?
        .transpose()
}

/// A page of a project's sessions, in the order of the project's log.
pub fn page(read: &Read<'_>, project: LogId, page: Page) -> Result<Paged<SessionInfo>, StoreError> {
    let sql = match page.newest_first() {
        false => format!(
            "{QUERY} WHERE sessions.project = ? AND sessions.cursor >= ? ORDER BY sessions.cursor LIMIT ?"
        ),
        true => format!(
            "{QUERY} WHERE sessions.project = ? AND sessions.cursor <= ? ORDER BY sessions.cursor DESC LIMIT ?"
        ),
    };
    let mut query = read.conn.prepare_cached(&sql)?;
    let mut rows = query.query((project.0, page.bound(), page.limit() + 1))?;
    super::paged(&mut rows, page, from_row, |info| (info.cursor, info.title.len()))
}

fn from_row(row: &Row<'_>) -> Result<SessionInfo, StoreError> {
    let text = |column| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
    let odd = |error| StoreError::odd("sessions", error);
    Ok(SessionInfo {
        id: SessionId::parse(text(0)?).map_err(odd)?,
        project_id: ProjectId::parse(text(1)?).map_err(odd)?,
        title: row.get(2)?,
        created_at_ms: from_sql_int(row.get(3)?),
        cursor: Cursor(from_sql_int(row.get(4)?)),
        head: Cursor(from_sql_int(row.get(5)?)),
    })
}
