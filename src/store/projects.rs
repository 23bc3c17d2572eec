//! Table `projects`.

use super::{Read, StoreError, Tx, from_sql_int, sql_int};
use crate::model::ids::{Cursor, LogId, ProjectId};
use crate::model::infos::{ProjectInfo, ProjectKey};
use crate::model::page::{Page, Paged};
use rusqlite::{OptionalExtension, Row};

const COLUMNS: &str = "id, directory, name, created_at_ms, cursor, session_count, log";

/// Records a project. `log` is its own log, `cursor` a place in the root's.
pub fn create(
    tx: &Tx<'_>,
    log: LogId,
    id: &ProjectId,
    directory: &str,
    name: &str,
    cursor: Cursor,
    now_ms: u64,
) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "INSERT INTO projects (log, id, directory, name, cursor, created_at_ms)
             VALUES (?, ?, ?, ?, ?, ?)",
        )?
        .execute((log.0, id.as_str(), directory, name, sql_int(cursor.0), sql_int(now_ms)))?;
    Ok(())
}

/// Counts one more session.
pub fn count_session(tx: &Tx<'_>, log: LogId) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached("UPDATE projects SET session_count = session_count + 1 WHERE log = ?")?
        .execute([log.0])?;
    Ok(())
}

/// Counts one session less.
pub fn uncount_session(tx: &Tx<'_>, log: LogId) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached("UPDATE projects SET session_count = session_count - 1 WHERE log = ?")?
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

/// Where a project lives, by its log.
pub fn key_of(read: &Read<'_>, log: LogId) -> Result<Option<ProjectKey>, StoreError> {
    let id: Option<String> = read
        .conn
        .prepare_cached("SELECT id FROM projects WHERE log = ?")?
        .query_row([log.0], |row| row.get(0))
        .optional()?;
    id.map(|id| Ok(ProjectKey { log, id: parsed(&id)? })).transpose()
}

/// What is told about a project.
pub fn info(read: &Read<'_>, log: LogId) -> Result<Option<ProjectInfo>, StoreError> {
    let found = read
        .conn
        .prepare_cached(&format!("SELECT {COLUMNS} FROM projects WHERE log = ?"))?
        .query_row([log.0], |row| Ok(from_row(row)))
        .optional()?
        .transpose()?;
    found.map(|found| with_more(read, log, found)).transpose()
}

/// With what stands in other tables.
fn with_more(read: &Read<'_>, log: LogId, info: ProjectInfo) -> Result<ProjectInfo, StoreError> {
    let worktrees = super::worktrees::of_project(read, log)?
        .into_iter()
        .map(|worktree| (worktree.directory, worktree.opened_at_ms))
        .collect();
    let names = super::worktrees::names_of(read, log)?;
    let remote = names.iter().find_map(|name| name.strip_prefix("remote:"));
    Ok(ProjectInfo {
        worktrees,
        rules: super::rulesets::get(read, log)?.1,
        remote: remote.unwrap_or_default().to_owned(),
        ..info
    })
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
    super::paged(
        &mut rows,
        page,
        |row| with_more(read, LogId(row.get(6)?), from_row(row)?),
        |info| {
            let worktrees: usize = info.worktrees.iter().map(|(path, _)| path.len() + 24).sum();
            (info.cursor, info.directory.len() + worktrees + 64 * info.rules.len())
        },
    )
}

fn from_row(row: &Row<'_>) -> Result<ProjectInfo, StoreError> {
    Ok(ProjectInfo {
        id: parsed(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?)?,
        directory: row.get(1)?,
        name: row.get(2)?,
        created_at_ms: from_sql_int(row.get(3)?),
        cursor: Cursor(from_sql_int(row.get(4)?)),
        session_count: from_sql_int(row.get(5)?),
        worktrees: Vec::new(),
        rules: Vec::new(),
        remote: String::new(),
        // It stays in the op.
        rest: String::new(),
    })
}

fn parsed(id: &str) -> Result<ProjectId, StoreError> {
    ProjectId::parse(id).map_err(|error| StoreError::odd("projects", error))
}
