//! The database, as OpenCode has kept it since 1.2.

use super::files::diffs_beside;
use super::rows::{self, Fields, data, text};
use super::{Counts, Listed, Project, SourceError};
use crate::exchange::json::with_ids;
use crate::exchange::{ITEM_BYTES_MAX, Reason, Taker, Thing, Untaken};
use rusqlite::{Connection, OpenFlags, Row};
use serde_json::value::RawValue;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long to wait for OpenCode where it is just writing.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The columns nothing can be read without.
const NEEDED: [(&str, &[&str]); 3] = [
    ("session", &["id"]),
    ("message", &["id", "session_id", "data"]),
    ("part", &["id", "message_id", "data"]),
];

/// A database, at one moment: what OpenCode writes while it is read is not seen.
#[derive(Debug)]
pub(super) struct Database {
    conn: Connection,
    path: PathBuf,
    messages_by: &'static str,
    sessions_by: &'static str,
    listed: Vec<&'static str>,
    todos_by: &'static str,
    has_projects: bool,
    has_todos: bool,
}

impl Database {
    pub(super) fn open(path: &Path) -> Result<Self, SourceError> {
        let failed = |error: rusqlite::Error| SourceError::Database {
            path: path.to_owned(),
            error: error.into(),
        };
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(path, flags).map_err(failed)?;
        conn.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
        conn.execute_batch("BEGIN").map_err(failed)?;
        let columns = |table| columns(&conn, table).map_err(failed);
        for (table, needed) in NEEDED {
            let found = columns(table)?;
            let missing = needed.iter().find(|name| !found.iter().any(|found| found == *name));
            let text = match missing {
                _ if found.is_empty() => format!("it has no table {table}"),
                Some(name) => format!("its table {table} has no column {name}"),
                None => continue,
            };
            return Err(SourceError::Foreign { path: path.to_owned(), text });
        }
        // Ids do not tell which came first: they begin anew every two years.
        let by = |columns: Vec<String>, name: &str, yes, no| {
            if columns.iter().any(|column| column == name) { yes } else { no }
        };
        let messages_by = by(columns("message")?, "time_created", "time_created, id", "id");
        let sessions = columns("session")?;
        let listed = ["id", "project_id", "parent_id"];
        let listed =
            listed.into_iter().filter(|name| sessions.iter().any(|it| it == name)).collect();
        let sessions_by = by(sessions, "time_created", "time_created, id", "id");
        let has_projects = columns("project")?.iter().any(|column| column == "id");
        let todos = columns("todo")?;
        let has_todos = todos.iter().any(|column| column == "session_id");
        let todos_by = by(todos, "position", "position", "rowid");
        let path = path.to_owned();
        Ok(Self { conn, path, messages_by, sessions_by, listed, todos_by, has_projects, has_todos })
    }

    /// Runs a query and hands its rows over, until somebody wants no more.
    fn each(
        &self,
        sql: &str,
        id: Option<&str>,
        mut take: impl FnMut(&Row<'_>) -> Result<(), SourceError>,
    ) -> Result<(), SourceError> {
        let mut statement = self.conn.prepare_cached(sql).map_err(|error| self.failed(error))?;
        let rows = match id {
            None => statement.query([]),
            Some(id) => statement.query([id]),
        };
        let mut rows = rows.map_err(|error| self.failed(error))?;
        while let Some(row) = rows.next().map_err(|error| self.failed(error))? {
            take(row)?;
        }
        Ok(())
    }

    fn failed(&self, error: rusqlite::Error) -> SourceError {
        SourceError::Database { path: self.path.clone(), error: error.into() }
    }

    pub(super) fn counts(&self) -> Result<Counts, SourceError> {
        let count = |is_there: bool, table: &str| {
            let sql = format!("SELECT count(*) FROM {table}");
            let mut found = 0;
            if is_there {
                self.each(&sql, None, |row| {
                    let count: i64 = row.get(0).map_err(|error| self.failed(error))?;
                    found = u64::try_from(count).unwrap_or(0);
                    Ok(())
                })?;
            }
            Ok::<_, SourceError>(found)
        };
        Ok(Counts {
            projects: count(self.has_projects, "project")?,
            sessions: count(true, "session")?,
            messages: count(true, "message")?,
            parts: count(true, "part")?,
            todos: count(self.has_todos, "todo")?,
        })
    }

    pub(super) fn projects(
        &self,
        untaken: &mut dyn FnMut(Untaken),
    ) -> Result<Vec<Project>, SourceError> {
        let mut found = Vec::new();
        if self.has_projects {
            self.each("SELECT * FROM project ORDER BY id", None, |row| {
                found.push(rows::project(row, untaken));
                Ok(())
            })?;
        }
        Ok(found)
    }

    pub(super) fn sessions(&self) -> Result<Vec<Listed>, SourceError> {
        let mut found = Vec::new();
        // Sorting carries along whatever is asked for, and a session may have long columns.
        let listed = self.listed.join(", ");
        let sql = format!("SELECT {listed} FROM session ORDER BY {}", self.sessions_by);
        self.each(&sql, None, |row| {
            found.push(Listed {
                id: text(row, "id").unwrap_or_default(),
                project_id: text(row, "project_id").unwrap_or_default(),
                parent_id: text(row, "parent_id"),
                parent_known: false,
            });
            Ok(())
        })?;
        Ok(found)
    }

    pub(super) fn read(&self, listed: &Listed, taker: &mut dyn Taker) -> Result<(), SourceError> {
        if let Some(diffs) = diffs_beside(&self.path, &listed.id) {
            let taken = match diffs {
                Ok(diffs) => taker.diffs(&diffs),
                Err(untaken) => taker.untaken(untaken),
            };
            taken.map_err(SourceError::Stopped)?;
        }
        let id = Some(listed.id.as_str());
        self.each("SELECT * FROM session WHERE id = ?1", id, |row| {
            let mut fields = Fields::new(row, &listed.id);
            let session = rows::session(&mut fields);
            let untaken = std::mem::take(&mut fields.untaken);
            let taken = match with_ids(Thing::Session, &[("id", &listed.id)], &session) {
                Ok(session) => taker.session(&session),
                Err(untaken) => taker.untaken(untaken),
            };
            taken.map_err(SourceError::Stopped)?;
            untaken.into_iter().try_for_each(|it| taker.untaken(it)).map_err(SourceError::Stopped)
        })?;
        let sql =
            format!("SELECT id FROM message WHERE session_id = ?1 ORDER BY {}", self.messages_by);
        self.each(&sql, id, |row| {
            self.message(&listed.id, &text(row, "id").unwrap_or_default(), taker)
        })?;
        self.todos(listed, taker)
    }

    /// Reads one message, with its parts.
    fn message(&self, session: &str, id: &str, taker: &mut dyn Taker) -> Result<(), SourceError> {
        let mut info = None;
        self.each("SELECT data FROM message WHERE id = ?1", Some(id), |row| {
            let ids = [("id", id), ("sessionID", session)];
            info = Some(data(Thing::Message, &ids, row, ITEM_BYTES_MAX));
            Ok(())
        })?;
        let mut parts = Vec::new();
        let mut untaken = Vec::new();
        let mut left = ITEM_BYTES_MAX;
        let is_taken = matches!(info, Some(Ok(_)));
        self.each(
            "SELECT id, data FROM part WHERE message_id = ?1 ORDER BY id",
            Some(id),
            |row| {
                let part = text(row, "id").unwrap_or_default();
                if !is_taken {
                    untaken.push(orphan(Thing::Part, &part, "its message was not taken"));
                    return Ok(());
                }
                let ids = [("id", &*part), ("sessionID", session), ("messageID", id)];
                match data(Thing::Part, &ids, row, left) {
                    Ok(part) => {
                        left = left.saturating_sub(part.get().len() as u64);
                        parts.push(part);
                    }
                    Err(reason) => untaken.push(reason),
                }
                Ok(())
            },
        )?;
        let taken = match info {
            Some(Ok(info)) => taker.message(&info, &parts),
            Some(Err(untaken)) => taker.untaken(untaken),
            None => Ok(()),
        };
        taken.map_err(SourceError::Stopped)?;
        untaken.into_iter().try_for_each(|it| taker.untaken(it)).map_err(SourceError::Stopped)
    }

    fn todos(&self, listed: &Listed, taker: &mut dyn Taker) -> Result<(), SourceError> {
        let mut todos = Vec::new();
        let mut untaken = Vec::new();
        if self.has_todos {
            let sql =
                format!("SELECT * FROM todo WHERE session_id = ?1 ORDER BY {}", self.todos_by);
            self.each(&sql, Some(&listed.id), |row| {
                let mut fields = Fields::new(row, &listed.id);
                todos.extend(RawValue::from_string(rows::todo(&mut fields)).ok());
                untaken.append(&mut fields.untaken);
                Ok(())
            })?;
        }
        if !todos.is_empty() {
            taker.todos(&todos).map_err(SourceError::Stopped)?;
        }
        untaken.into_iter().try_for_each(|it| taker.untaken(it)).map_err(SourceError::Stopped)
    }

    pub(super) fn orphans(&self, untaken: &mut dyn FnMut(Untaken)) -> Result<(), SourceError> {
        let mut tell = |thing, text_of, sql: &str| {
            self.each(sql, None, |row| {
                untaken(orphan(thing, &text(row, "id").unwrap_or_default(), text_of));
                Ok(())
            })
        };
        tell(
            Thing::Message,
            "its session is not there",
            "SELECT id FROM message AS m
             WHERE NOT EXISTS (SELECT 1 FROM session AS s WHERE s.id = m.session_id) ORDER BY id",
        )?;
        tell(
            Thing::Part,
            "its message is not there",
            "SELECT id FROM part AS p
             WHERE NOT EXISTS (SELECT 1 FROM message AS m JOIN session AS s ON s.id = m.session_id
                               WHERE m.id = p.message_id) ORDER BY id",
        )?;
        if self.has_todos {
            tell(
                Thing::Todo,
                "its session is not there",
                "SELECT session_id AS id FROM todo AS t
                 WHERE NOT EXISTS (SELECT 1 FROM session AS s WHERE s.id = t.session_id) ORDER BY id",
            )?;
        }
        Ok(())
    }
}

fn orphan(thing: Thing, id: &str, text: &str) -> Untaken {
    Untaken::new(thing, id, Reason::Orphan, text)
}

fn columns(conn: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = conn.prepare("SELECT name FROM pragma_table_info(?1)")?;
    statement.query_map([table], |row| row.get(0))?.collect()
}
