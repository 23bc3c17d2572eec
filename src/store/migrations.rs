//! How the file came to look as it does: a list of steps that only grows.
//!
//! A step and the version it leads to commit together, so a crash between two steps is a file of the
//! version in between. A file of a later version is refused untouched.

use super::StoreError;
use rusqlite::Connection;
use std::path::PathBuf;

/// Never edit a step that was released: write a new one.
const STEPS: &[&str] = &[
    include_str!("migrations/0001_foundation.sql"),
    include_str!("migrations/0002_ledger.sql"),
    include_str!("migrations/0003_grants.sql"),
    include_str!("migrations/0004_authority.sql"),
    include_str!("migrations/0005_sessions.sql"),
    include_str!("migrations/0006_snapshots.sql"),
];

/// Marks the file as ours in its header: "BOWL".
const APPLICATION_ID: u32 = 0x424f_574c;

/// Refuses what is not ours or newer than we are, before anything is changed.
pub(super) fn recognise(conn: &Connection) -> Result<(), StoreError> {
    let application: u32 = conn.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let tables: u32 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if application != APPLICATION_ID && tables > 0 {
        return Err(StoreError::Foreign(conn.path().map(PathBuf::from).unwrap_or_default()));
    }
    let (found, known) = (version(conn)?, STEPS.len() as u32);
    if found > known { Err(StoreError::Newer { found, known }) } else { Ok(()) }
}

/// Refuses a file that some step has not been taken for.
pub(super) fn require_present(conn: &Connection) -> Result<(), StoreError> {
    let (found, known) = (version(conn)?, STEPS.len() as u32);
    if found < known { Err(StoreError::Older { found, known }) } else { Ok(()) }
}

/// Takes the steps the file has not seen.
pub(super) fn bring_up_to_date(conn: &Connection) -> Result<(), StoreError> {
    run(conn, STEPS)
}

fn run(conn: &Connection, steps: &[&str]) -> Result<(), StoreError> {
    let found = version(conn)? as usize;
    for (step, version) in steps.iter().zip(1u32..).skip(found) {
        let tx = conn.unchecked_transaction()?;
        tx.execute_batch(step)?;
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        tx.pragma_update(None, "user_version", version)?;
        tx.commit()?;
    }
    Ok(())
}

fn version(conn: &Connection) -> Result<u32, StoreError> {
    Ok(conn.query_row("PRAGMA user_version", [], |row| row.get(0))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[test]
    fn a_newer_file_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bowline.db");
        drop(Store::open(&path).unwrap());
        Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();

        let before = std::fs::read(&path).unwrap();
        let error = Store::open(&path).err().unwrap();
        assert!(matches!(error, StoreError::Newer { found: 99, .. }), "{error}");
        assert!(error.to_string().contains("newer bowline"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    #[test]
    fn another_programs_file_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("other.db");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
        let error = Store::open(&path).err().unwrap();
        assert!(matches!(error, StoreError::Foreign(_)), "{error}");

        std::fs::write(&path, "this is no database, just a text that is long enough").unwrap();
        let error = Store::open(&path).err().unwrap();
        assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
    }

    #[test]
    fn a_step_that_fails_leaves_the_version_before_it() {
        let conn = Connection::open_in_memory().unwrap();
        let steps = ["CREATE TABLE a (x) STRICT", "CREATE TABLE a (x INTEGER) STRICT; nonsense"];
        run(&conn, &["CREATE TABLE a (x INTEGER) STRICT"]).unwrap();
        assert!(run(&conn, &steps).is_err());
        assert_eq!(version(&conn).unwrap(), 1);
        run(&conn, &[steps[0], "CREATE TABLE b (x INTEGER) STRICT"]).unwrap();
        assert_eq!(version(&conn).unwrap(), 2, "and the list can go on from there");
    }

    #[test]
    fn opening_again_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bowline.db");
        drop(Store::open(&path).unwrap());
        drop(Store::open(&path).unwrap());
        assert_eq!(version(&Connection::open(&path).unwrap()).unwrap(), STEPS.len() as u32);
    }
}
