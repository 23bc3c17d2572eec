//! Table `rulesets`: what agents may do without asking, as the server or a project says.

use super::{Read, StoreError, Tx, from_sql_int, sql_int};
use crate::model::ids::{Cursor, LogId};
use crate::model::permission::Rule;
use rusqlite::OptionalExtension;

/// Sets the rules of the server or a project.
pub fn set(tx: &Tx<'_>, log: LogId, at: Cursor, rules: &[Rule]) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "INSERT INTO rulesets (log, at, rules) VALUES (?, ?, ?)
             ON CONFLICT DO UPDATE SET at = excluded.at, rules = excluded.rules",
        )?
        .execute((log.0, sql_int(at.0), super::encoded(&rules)?))?;
    Ok(())
}

/// The rules of the server or a project, and where they were set; 0 if they never were.
pub fn get(read: &Read<'_>, log: LogId) -> Result<(Cursor, Vec<Rule>), StoreError> {
    let found: Option<(i64, Vec<u8>)> = read
        .conn
        .prepare_cached("SELECT at, rules FROM rulesets WHERE log = ?")?
        .query_row([log.0], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    match found {
        None => Ok((Cursor(0), Vec::new())),
        Some((at, rules)) => Ok((Cursor(from_sql_int(at)), super::decoded("rulesets", &rules)?)),
    }
}
