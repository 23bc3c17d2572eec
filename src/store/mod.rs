//! Memory: one SQLite file, one file of code per table, and the only SQL of the server.
//!
//! The rest of the program sees plain values, [`Store`], [`Tx`], [`Read`] and [`StoreError`], none of
//! which shows a SQLite type, because a second backend will stand behind the same door.
//!
//! Invariants: a [`Tx`] that is dropped without [`Tx::commit`] leaves nothing behind. A commit that
//! returned `Ok` is on disk. A commit that returned an error may be on disk too: SQLite reports I/O
//! errors for commits that did land, so the caller must treat it as unknown.

pub mod audit;
pub mod check;
pub mod checkpoints;
pub mod compaction;
pub mod contents;
pub mod data_dir;
pub mod delegations;
mod error;
pub mod grants;
pub mod logs;
pub mod messages;
pub mod meta;
mod migrations;
pub mod ops;
pub mod parts;
pub mod producers;
pub mod projects;
pub mod receipts;
pub mod removal;
pub mod rulesets;
pub mod scratch;
pub mod sessions;
pub mod shares;
pub mod snapshots;
pub mod streams;
pub mod subscriptions;
pub mod todos;
pub mod trees;
pub mod turns;
pub mod worktrees;

pub use error::StoreError;

use crate::limits::{BUSY_TIMEOUT_MS, PAGE_BYTES_MAX, WAL_CHECKPOINT_PAGES};
use crate::model::ids::Cursor;
use crate::model::page::{Page, Paged};
use rusqlite::{Connection, OpenFlags};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Statements each connection keeps prepared; more than there are in this room.
const STATEMENTS_KEPT: usize = 256;

/// The one connection that writes.
pub struct Store {
    conn: Connection,
    path: PathBuf,
}

impl Store {
    /// Opens the file, makes it if there is none, and brings an older one up to date.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let conn = Connection::open(path)?;
        conn.busy_timeout(Duration::from_millis(BUSY_TIMEOUT_MS))?;
        migrations::recognise(&conn)?;
        let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        if mode != "wal" {
            return Err(StoreError::Other(format!(
                "the file system of {} does not support a write-ahead log (SQLite chose {mode:?})",
                path.display()
            )));
        }
        // FULL, not NORMAL: in WAL mode only FULL syncs each commit before it returns.
        conn.pragma_update(None, "synchronous", "FULL")?;
        conn.pragma_update(None, "foreign_keys", true)?;
        conn.pragma_update(None, "wal_autocheckpoint", WAL_CHECKPOINT_PAGES)?;
        conn.pragma_update(None, "temp_store", "MEMORY")?;
        conn.pragma_update(None, "cache_size", -65_536)?; // KiB
        conn.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
        migrations::bring_up_to_date(&conn)?;
        Ok(Self { conn, path: path.to_owned() })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Begins to write. Fails with [`StoreError::Busy`] while another process holds the write lock.
    pub fn begin(&mut self) -> Result<Tx<'_>, StoreError> {
        self.conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        Ok(Tx { read: Read { conn: &self.conn }, open: true })
    }

    /// Gives the room of deleted rows back to the file system. The whole file is written anew.
    pub fn vacuum(&self) -> Result<(), StoreError> {
        self.conn.execute_batch("VACUUM")?;
        self.settle()
    }

    /// Begins the write-ahead log anew if it has grown beyond `bytes_max`. SQLite does so by itself at a
    /// moment without readers; under steady reads that moment may never come, so here we wait for one.
    pub fn keep_log_short(&self, bytes_max: u64) -> Result<(), StoreError> {
        let mut log = self.path.clone().into_os_string();
        log.push("-wal");
        if std::fs::metadata(log).map_or(0, |log| log.len()) <= bytes_max {
            return Ok(());
        }
        self.settle()
    }

    /// Moves everything committed into the database file itself and syncs it. This is how one proves,
    /// after trouble with a commit, that what can be read is also on disk.
    pub fn settle(&self) -> Result<(), StoreError> {
        let (busy, _, _): (i64, i64, i64) =
            self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })?;
        if busy == 0 { Ok(()) } else { Err(StoreError::Busy) }
    }
}

/// A connection that only reads. It never waits for the writer, nor the writer for it.
pub struct Reader {
    conn: Connection,
}

impl Reader {
    /// Opens a file that a [`Store`] has opened before.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(path, flags)?;
        conn.busy_timeout(Duration::from_millis(BUSY_TIMEOUT_MS))?;
        conn.pragma_update(None, "query_only", true)?;
        conn.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
        Ok(Self { conn })
    }

    /// Looks at one consistent state: what was committed when `look` began to read.
    pub fn look<T>(
        &mut self,
        look: impl FnOnce(&Read<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.conn.prepare_cached("BEGIN DEFERRED")?.execute([])?;
        // As a transaction that is never committed: it ends however `look` ends, by a panic too.
        let state = Tx { read: Read { conn: &self.conn }, open: true };
        look(&state)
    }
}

/// Something that can be read: a state, or a transaction in the middle of making one.
pub struct Read<'c> {
    conn: &'c Connection,
}

/// A change that is not yet made: nobody else sees it before [`Tx::commit`] returns.
pub struct Tx<'c> {
    read: Read<'c>,
    open: bool,
}

impl<'c> Deref for Tx<'c> {
    type Target = Read<'c>;
    fn deref(&self) -> &Read<'c> {
        &self.read
    }
}

impl Tx<'_> {
    /// Makes it durable. After an error it is unknown whether it happened; the store must be opened
    /// again to find out.
    pub fn commit(mut self) -> Result<(), StoreError> {
        // After an error SQLite may still hold the transaction open, and with it the write lock; then
        // dropping it rolls back.
        self.conn.prepare_cached("COMMIT")?.execute([])?;
        self.open = false;
        Ok(())
    }

    /// Makes an attempt of which all is kept or nothing, as it says itself. After an error what it wrote is
    /// still there, and the whole transaction must be given up.
    pub fn attempt<T, E: From<StoreError>>(
        &self,
        attempt: impl FnOnce() -> Result<(T, bool), E>,
    ) -> Result<T, E> {
        let run = |sql| -> Result<(), StoreError> {
            self.conn.prepare_cached(sql)?.execute([])?;
            Ok(())
        };
        run("SAVEPOINT attempt")?;
        let (made, keep) = attempt()?;
        if !keep {
            run("ROLLBACK TO attempt")?;
        }
        run("RELEASE attempt")?;
        Ok(made)
    }

    /// How many rows were written so far; tells whether a refusal left something behind.
    pub fn rows_written(&self) -> u64 {
        self.conn.total_changes()
    }
}

impl Drop for Tx<'_> {
    fn drop(&mut self) {
        // After some errors SQLite has rolled back already, and says so by being in autocommit.
        let end = || self.conn.prepare_cached("ROLLBACK")?.execute([]);
        if self.open && !self.conn.is_autocommit() && end().is_err() {
            tracing::error!("a transaction could not be rolled back");
        }
    }
}

/// SQLite's integers are signed. Counters start at 0 and would need 292 million years at a thousand a
/// millisecond to reach the end.
fn sql_int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn from_sql_int(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// Something that stands in one column in one piece.
fn encoded<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, StoreError> {
    postcard::to_stdvec(value)
        .map_err(|error| StoreError::Other(format!("a value could not be encoded: {error}")))
}

/// And back.
fn decoded<T: serde::de::DeserializeOwned>(
    table: &'static str,
    bytes: &[u8],
) -> Result<T, StoreError> {
    postcard::from_bytes(bytes)
        .map_err(|error| StoreError::Corrupt(format!("a row of {table}: {error}")))
}

/// Takes rows until a page is full by number or by bytes. The query asks for one row more than the
/// page may hold: finding it tells that there is a next page. A page always holds at least one item,
/// however large, or a reader could never get past it.
fn paged<T>(
    rows: &mut rusqlite::Rows<'_>,
    page: Page,
    from_row: impl Fn(&rusqlite::Row<'_>) -> Result<T, StoreError>,
    place_and_bytes: impl Fn(&T) -> (Cursor, usize),
) -> Result<Paged<T>, StoreError> {
    let mut found = Paged { items: Vec::new(), next: Cursor(0), more: false };
    let mut bytes_sum = 0;
    while let Some(row) = rows.next()? {
        if found.items.len() == page.limit() as usize || bytes_sum >= PAGE_BYTES_MAX {
            found.more = true;
            break;
        }
        let item = from_row(row)?;
        let (cursor, bytes) = place_and_bytes(&item);
        bytes_sum += bytes;
        found.next = cursor;
        found.items.push(item);
    }
    if found.items.is_empty() {
        found.next = page.after();
    }
    Ok(found)
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// A fresh store in a directory that goes away with the returned guard.
    pub(crate) fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(&dir.path().join("bowline.db")).unwrap();
        let tx = store.begin().unwrap();
        meta::create(&tx, crate::model::ids::RealmId([1; 16]), &[2; 32], 1).unwrap();
        tx.commit().unwrap();
        (dir, store)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_opened_for_durability() {
        let (_dir, store) = testing::store();
        let ask = |pragma: &str| -> String {
            store
                .conn
                .query_row(&format!("PRAGMA {pragma}"), [], |row| {
                    row.get::<_, rusqlite::types::Value>(0)
                })
                .map(|value| format!("{value:?}"))
                .unwrap()
        };
        assert_eq!(ask("journal_mode"), r#"Text("wal")"#);
        assert_eq!(ask("synchronous"), "Integer(2)"); // FULL
        assert_eq!(ask("foreign_keys"), "Integer(1)");
    }

    #[test]
    fn every_table_is_strict() {
        let (_dir, store) = testing::store();
        let lax: Vec<String> = store
            .conn
            .prepare("SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND NOT strict AND name NOT LIKE 'sqlite%'")
            .unwrap()
            .query_map([], |row| row.get(0))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert_eq!(lax, Vec::<String>::new());
    }

    #[test]
    fn what_is_not_committed_leaves_nothing_and_readers_see_whole_states() {
        let (dir, mut store) = testing::store();
        let mut reader = Reader::open(&dir.path().join("bowline.db")).unwrap();
        let mut head = || {
            reader.look(|read| Ok(logs::get(read, crate::model::ids::LogId::ROOT)?.head)).unwrap()
        };

        let tx = store.begin().unwrap();
        logs::advance(&tx, crate::model::ids::LogId::ROOT, crate::model::ids::Cursor(5), 0, 1)
            .unwrap();
        assert_eq!(head().0, 0, "an open transaction is not seen, and does not block");
        drop(tx);
        assert_eq!(head().0, 0);

        let tx = store.begin().unwrap();
        logs::advance(&tx, crate::model::ids::LogId::ROOT, crate::model::ids::Cursor(7), 0, 1)
            .unwrap();
        tx.commit().unwrap();
        assert_eq!(head().0, 7);
    }

    #[test]
    fn a_long_read_does_not_block_the_writer() {
        let (dir, mut store) = testing::store();
        let mut reader = Reader::open(&dir.path().join("bowline.db")).unwrap();
        let root = crate::model::ids::LogId::ROOT;
        reader
            .look(|read| {
                let before = logs::get(read, root)?.head;
                let tx = store.begin()?;
                logs::advance(&tx, root, crate::model::ids::Cursor(9), 0, 1)?;
                tx.commit()?;
                assert_eq!(logs::get(read, root)?.head, before, "one look sees one state");
                Ok(())
            })
            .unwrap();
        assert_eq!(reader.look(|read| logs::get(read, root)).unwrap().head.0, 9);
    }

    #[test]
    fn readers_cannot_write() {
        let (dir, _store) = testing::store();
        let reader = Reader::open(&dir.path().join("bowline.db")).unwrap();
        assert!(reader.conn.execute("UPDATE logs SET head = 1", []).is_err());
    }
}
