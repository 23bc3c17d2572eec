//! Table `trees`: work trees as objects.

use super::{Read, StoreError, Tx, from_sql_int, sql_int};
use crate::model::ids::{Cursor, LogId, WorktreeId};
use crate::model::page::{Page, Paged};
use crate::model::worktree::{WorktreeInfo, WorktreeKey};
use rusqlite::{OptionalExtension, Row};

const QUERY: &str = "SELECT trees.log, id, project, directory, sandbox, opened_at_ms,
       (SELECT count(*) FROM snapshots WHERE worktree = trees.log),
       (SELECT coalesce(sum(stored_bytes), 0) FROM snapshots WHERE worktree = trees.log)
     FROM trees";

/// Records a work tree.
pub fn create(
    tx: &Tx<'_>,
    key: &WorktreeKey,
    directory: &str,
    sandbox: Option<&str>,
    now_ms: u64,
) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "INSERT INTO trees (log, id, project, directory, sandbox, opened_at_ms)
             VALUES (?, ?, ?, ?, ?, ?)",
        )?
        .execute((
            key.log.0,
            key.id.as_str(),
            key.project.0,
            directory,
            sandbox,
            sql_int(now_ms),
        ))?;
    Ok(())
}

/// The work tree of a directory.
pub fn of_directory(read: &Read<'_>, directory: &str) -> Result<Option<WorktreeKey>, StoreError> {
    key(read, "SELECT log, id, project FROM trees WHERE directory = ?", directory)
}

/// A work tree by its log.
pub fn at(read: &Read<'_>, log: LogId) -> Result<Option<WorktreeKey>, StoreError> {
    key(read, "SELECT log, id, project FROM trees WHERE log = ?", log.0)
}

/// The work tree with this id.
pub fn by_id(read: &Read<'_>, id: &WorktreeId) -> Result<Option<WorktreeKey>, StoreError> {
    key(read, "SELECT log, id, project FROM trees WHERE id = ?", id.as_str())
}

fn key(
    read: &Read<'_>,
    sql: &str,
    value: impl rusqlite::ToSql,
) -> Result<Option<WorktreeKey>, StoreError> {
    read.conn
        .prepare_cached(sql)?
        .query_row([value], |row| Ok((row.get(0)?, row.get::<_, String>(1)?, row.get(2)?)))
        .optional()?
        .map(|(log, id, project)| {
            let id = WorktreeId::parse(&id).map_err(|error| StoreError::odd("trees", error))?;
            Ok(WorktreeKey { log: LogId(log), id, project: LogId(project) })
        })
        .transpose()
}

/// What is told about a work tree.
pub fn info(read: &Read<'_>, log: LogId) -> Result<Option<WorktreeInfo>, StoreError> {
    read.conn
        .prepare_cached(&format!("{QUERY} WHERE trees.log = ?"))?
        .query_row([log.0], |row| Ok(from_row(row)))
        .optional()?
        .transpose()
}

/// What is told about the work tree of a sandbox.
pub fn of_sandbox(
    read: &Read<'_>,
    project: LogId,
    name: &str,
) -> Result<Option<WorktreeInfo>, StoreError> {
    read.conn
        .prepare_cached(&format!("{QUERY} WHERE project = ? AND sandbox = ?"))?
        .query_row((project.0, name), |row| Ok(from_row(row)))
        .optional()?
        .transpose()
}

/// A page of the work trees of a project, in the order they were opened.
pub fn page(
    read: &Read<'_>,
    project: LogId,
    page: Page,
) -> Result<Paged<WorktreeInfo>, StoreError> {
    let (order, from) = match page.newest_first() {
        false => ("ORDER BY trees.log", "trees.log >= ?2"),
        true => ("ORDER BY trees.log DESC", "trees.log <= ?2"),
    };
    let sql = format!("{QUERY} WHERE project = ?1 AND {from} {order} LIMIT ?3");
    let mut query = read.conn.prepare_cached(&sql)?;
    let mut rows = query.query((project.0, page.bound(), page.limit() + 1))?;
    super::paged(&mut rows, page, from_row, |info| {
        (Cursor(from_sql_int(info.key.log.0)), info.directory.len() + 256)
    })
}

/// Every work tree there is.
pub fn all(read: &Read<'_>) -> Result<Vec<WorktreeKey>, StoreError> {
    let mut query = read.conn.prepare_cached("SELECT log, id, project FROM trees ORDER BY log")?;
    let mut rows = query.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let id = WorktreeId::parse(row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?)
            .map_err(|error| StoreError::odd("trees", error))?;
        found.push(WorktreeKey { log: LogId(row.get(0)?), id, project: LogId(row.get(2)?) });
    }
    Ok(found)
}

fn from_row(row: &Row<'_>) -> Result<WorktreeInfo, StoreError> {
    let id: String = row.get(1)?;
    Ok(WorktreeInfo {
        key: WorktreeKey {
            log: LogId(row.get(0)?),
            id: WorktreeId::parse(&id).map_err(|error| StoreError::odd("trees", error))?,
            project: LogId(row.get(2)?),
        },
        directory: row.get(3)?,
        sandbox: row.get(4)?,
        opened_at_ms: from_sql_int(row.get(5)?),
        snapshots: from_sql_int(row.get(6)?),
        bytes: from_sql_int(row.get(7)?),
    })
}
