//! Table `projects`.

use super::{Read, StoreError, Tx, from_sql_int, sql_int};
use crate::model::ids::{Cursor, LogId, ProjectId};
use crate::model::infos::{ProjectInfo, ProjectKey};
use crate::model::page::{Page, Paged};
use rusqlite::{OptionalExtension, Row};

const COLUMNS: &str = "id, directory, name, created_at_ms, cursor, session_count";

/// Records a project. `log` is its own log, `info.cursor` a place in the root's.
pub fn create(tx: &Tx<'_>, log: LogId, info: &ProjectInfo) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "INSERT INTO projects (log, id, directory, name, cursor, created_at_ms)
             VALUES (?, ?, ?, ?, ?, ?)",
        )?
        .execute((
            log.0,
            info.id.as_str(),
            &info.directory,
            &info.name,
            sql_int(info.cursor.0),
            sql_int(info.created_at_ms),
        ))?;
    Ok(())
}

/// Counts one more session.
pub fn count_session(tx: &Tx<'_>, log: LogId) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached("UPDATE projects SET session_count = session_count + 1 WHERE log = ?")?
        .execute([log.0])?;
    Ok(())
}

/// The log of the project with this id.
pub fn log_of(read: &Read<'_>, id: &ProjectId) -> Result<Option<LogId>, StoreError> {
    Ok(read
        .conn
        .prepare_cached("SELECT log FROM projects WHERE id = ?")?
        .query_row([id.as_str()], |row| row.get(0).map(LogId))
        .optional()?)
}

/// The project of a directory.
pub fn by_directory(read: &Read<'_>, directory: &str) -> Result<Option<ProjectKey>, StoreError> {
    let row: Option<(i64, String)> = read
        .conn
        .prepare_cached("SELECT log, id FROM projects WHERE directory = ?")?
        .query_row([directory], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    row.map(|(log, id)| Ok(ProjectKey { log: LogId(log), id: parsed(&id)? })).transpose()
}

/// What is told about a project.
pub fn info(read: &Read<'_>, log: LogId) -> Result<Option<ProjectInfo>, StoreError> {
    read.conn
        .prepare_cached(&format!("SELECT {COLUMNS} FROM projects WHERE log = ?"))?
        .query_row([log.0], |row| Ok(from_row(row)))
        .optional()?
        .transpose()
}

/// A page of all projects, in the order of the root's log.
pub fn page(read: &Read<'_>, page: Page) -> Result<Paged<ProjectInfo>, StoreError> {
    let sql = match page.newest_first() {
        false => {
            format!("SELECT {COLUMNS} FROM projects WHERE cursor >= ? ORDER BY cursor LIMIT ?")
        }
        true => {
            format!("SELECT {COLUMNS} FROM projects WHERE cursor <= ? ORDER BY cursor DESC LIMIT ?")
        }
    };
    let mut query = read.conn.prepare_cached(&sql)?;
    // One more than wanted tells whether there is a next page.
    let mut rows = query.query((page.bound(), page.limit() + 1))?;
    super::paged(&mut rows, page, from_row, |info| (info.cursor, info.directory.len()))
}

fn from_row(row: &Row<'_>) -> Result<ProjectInfo, StoreError> {
    Ok(ProjectInfo {
        id: parsed(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?)?,
        directory: row.get(1)?,
        name: row.get(2)?,
        created_at_ms: from_sql_int(row.get(3)?),
        cursor: Cursor(from_sql_int(row.get(4)?)),
        session_count: from_sql_int(row.get(5)?),
    })
}

fn parsed(id: &str) -> Result<ProjectId, StoreError> {
    ProjectId::parse(id).map_err(|error| StoreError::odd("projects", error))
}
