//! A look at a whole database, with room to make its projections a second time beside the first.
//!
//! The file is opened for reading only, so a server may be running. The second projections are temporary
//! tables of the same names: whatever is written through this room's functions goes to those, because
//! SQLite finds a temporary table before a stored one.

use super::{Read, StoreError, Tx, migrations};
use crate::limits::BUSY_TIMEOUT_MS;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::time::Duration;

/// Tables that follow from the history.
pub const PROJECTIONS: [&str; 19] = [
    "projects",
    "worktrees",
    "repositories",
    "rulesets",
    "sessions",
    "messages",
    "parts",
    "turns",
    "diffs",
    "todos",
    "checkpoints",
    "shares",
    "content_names",
    "trees",
    "snapshots",
    "session_snapshots",
    "snapshot_actors",
    "reverts",
    "moves",
];

/// One consistent state of a database.
pub struct Scratch {
    conn: Connection,
}

impl Scratch {
    /// Opens a database of the present version.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        conn.busy_timeout(Duration::from_millis(BUSY_TIMEOUT_MS))?;
        migrations::recognise(&conn)?;
        migrations::require_present(&conn)?;
        conn.pragma_update(None, "foreign_keys", false)?;
        conn.set_prepared_statement_cache_capacity(super::STATEMENTS_KEPT);
        Ok(Self { conn })
    }

    /// Begins to look; everything is seen as it is now.
    pub fn look(&mut self) -> Result<Tx<'_>, StoreError> {
        self.conn.execute_batch("BEGIN DEFERRED")?;
        // The first read is what settles which state is seen.
        let _: i64 = self.conn.query_row("SELECT count(*) FROM meta", [], |row| row.get(0))?;
        Ok(Tx { read: Read { conn: &self.conn }, open: true })
    }
}

/// Makes empty projections for this look alone.
pub fn begin_projections(look: &Tx<'_>) -> Result<(), StoreError> {
    for table in PROJECTIONS {
        let sql: String = look.conn.query_row(
            "SELECT sql FROM main.sqlite_schema WHERE type = 'table' AND name = ?",
            [table],
            |row| row.get(0),
        )?;
        look.conn.execute_batch(&sql.replacen("CREATE TABLE", "CREATE TEMP TABLE", 1))?;
    }
    Ok(())
}

/// Empties the stored projections, to make them anew.
pub fn clear_projections(tx: &Tx<'_>) -> Result<(), StoreError> {
    // Rows of one refer to rows of another, and all of them come back.
    tx.conn.execute_batch("PRAGMA defer_foreign_keys = ON")?;
    for table in PROJECTIONS {
        tx.conn.execute(&format!("DELETE FROM {table}"), [])?;
    }
    Ok(())
}

/// Rows that are in only one of the two projections of a table: a few of them, and how many there are.
pub fn differences(
    look: &Tx<'_>,
    table: &str,
    shown_max: usize,
) -> Result<(Vec<String>, u64), StoreError> {
    let mut found = (Vec::new(), 0);
    for (this, other, what) in [
        ("main", "temp", "stored, but not in the log"),
        ("temp", "main", "in the log, but not stored"),
    ] {
        let sql = format!("SELECT * FROM {this}.{table} EXCEPT SELECT * FROM {other}.{table}");
        let mut query = look.conn.prepare(&sql)?;
        let columns: Vec<String> = query.column_names().into_iter().map(str::to_owned).collect();
        let mut rows = query.query([])?;
        while let Some(row) = rows.next()? {
            found.1 += 1;
            if found.0.len() < shown_max {
                let mut text = format!("{table}: {what}:");
                for (at, column) in columns.iter().enumerate() {
                    let value = row.get_ref(at)?;
                    let value = value.as_str().map_or_else(
                        |_| value.as_i64().map_or_else(|_| "…".to_owned(), |n| n.to_string()),
                        |text| format!("{text:?}"),
                    );
                    text.push_str(&format!(" {column}={value}"));
                }
                found.0.push(text);
            }
        }
    }
    Ok(found)
}

/// How many rows a table has.
pub fn count(read: &Read<'_>, table: &str) -> Result<u64, StoreError> {
    let count = read
        .conn
        .query_row(&format!("SELECT count(*) FROM main.{table}"), [], |row| row.get::<_, i64>(0))?;
    Ok(super::from_sql_int(count))
}
