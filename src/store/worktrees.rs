//! Tables `worktrees` and `repositories`: what a project is known by.

use super::{Read, StoreError, Tx, from_sql_int, sql_int};
use crate::limits::WORKTREES_MAX;
use crate::model::ids::{Cursor, LogId};
use rusqlite::OptionalExtension;

/// A directory a project was opened in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worktree {
    /// Which.
    pub directory: String,
    /// When it was first opened.
    pub opened_at_ms: u64,
}

/// Records a directory of a project; one that is known stays as it is.
pub fn add(
    tx: &Tx<'_>,
    project: LogId,
    directory: &str,
    cursor: Cursor,
    now_ms: u64,
) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "INSERT INTO worktrees (directory, project, cursor, opened_at_ms) VALUES (?, ?, ?, ?)
             ON CONFLICT DO NOTHING",
        )?
        .execute((directory, project.0, sql_int(cursor.0), sql_int(now_ms)))?;
    Ok(())
}

/// The project that was opened in a directory.
pub fn project_of(read: &Read<'_>, directory: &str) -> Result<Option<LogId>, StoreError> {
    Ok(read
        .conn
        .prepare_cached("SELECT project FROM worktrees WHERE directory = ?")?
        .query_row([directory], |row| row.get(0).map(LogId))
        .optional()?)
}

/// The directories a project was opened in, in that order; a bounded number of them.
pub fn of_project(read: &Read<'_>, project: LogId) -> Result<Vec<Worktree>, StoreError> {
    let mut query = read.conn.prepare_cached(
        "SELECT directory, opened_at_ms FROM worktrees WHERE project = ? ORDER BY cursor LIMIT ?",
    )?;
    let found = query.query_map((project.0, sql_int(WORKTREES_MAX)), |row| {
        Ok(Worktree { directory: row.get(0)?, opened_at_ms: from_sql_int(row.get(1)?) })
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// Records what else a project is known by; the first project of a name keeps it.
pub fn name(tx: &Tx<'_>, project: LogId, name: &str) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "INSERT INTO repositories (name, project) VALUES (?, ?) ON CONFLICT DO NOTHING",
        )?
        .execute((name, project.0))?;
    Ok(())
}

/// The project that is known by a name.
pub fn named(read: &Read<'_>, name: &str) -> Result<Option<LogId>, StoreError> {
    Ok(read
        .conn
        .prepare_cached("SELECT project FROM repositories WHERE name = ?")?
        .query_row([name], |row| row.get(0).map(LogId))
        .optional()?)
}

/// What else a project is known by.
pub fn names_of(read: &Read<'_>, project: LogId) -> Result<Vec<String>, StoreError> {
    let mut query = read
        .conn
        .prepare_cached("SELECT name FROM repositories WHERE project = ? ORDER BY name")?;
    let found = query.query_map([project.0], |row| row.get(0))?;
    Ok(found.collect::<Result<_, _>>()?)
}
