//! Table `ops`: the history. Rows are added and never changed; compaction takes some away, but never the
//! last one, so that no position is ever used twice.

use super::grants::Authors;
use super::producers::ProducerKey;
use super::{Read, StoreError, Tx, from_sql_int, sql_int};
use crate::limits::PAGE_BYTES_MAX;
use crate::model::audit::{AuditedOp, AuditedOps};
use crate::model::feed::{LoggedOp, Stretch};
use crate::model::ids::{BatchId, Cursor, GrantKey, LogId, OpId, ProducerId};
use crate::model::infos::Author;
use rusqlite::{OptionalExtension, Row};
use std::sync::Arc;

/// An op on its way into the history.
#[derive(Debug, Clone, Copy)]
pub struct NewOp<'a> {
    /// In which log.
    pub log: LogId,
    /// Where in it.
    pub cursor: Cursor,
    /// The project that log belongs to.
    pub project: Option<LogId>,
    /// Who wrote it.
    pub producer: ProducerKey,
    /// Under which number.
    pub seq: u64,
    /// Under which name.
    pub op_id: OpId,
    /// In which batch, if that had a name.
    pub batch: Option<BatchId>,
    /// Under which authority.
    pub granted: GrantKey,
    /// When.
    pub at_ms: u64,
    /// What it says.
    pub kind: u16,
    /// How the payload is written.
    pub version: u16,
    /// The op in the same log whose effect is gone with this one.
    pub replaces: Option<Cursor>,
    /// In full.
    pub payload: &'a [u8],
}

/// Writes an op at the end of its log, and adds it to what the audit trail will tell of.
pub fn append(tx: &Tx<'_>, op: &NewOp<'_>, audited: &mut AuditedOps) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "INSERT INTO ops (log, cursor, project, producer, seq, op_id, batch, granted, at_ms, kind,
                              version, replaces, payload)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute((
            op.log.0,
            sql_int(op.cursor.0),
            op.project.map(|project| project.0),
            op.producer.0,
            sql_int(op.seq),
            op.op_id.0,
            op.batch.map(|batch| batch.0),
            op.granted.0,
            sql_int(op.at_ms),
            op.kind,
            op.version,
            op.replaces.map(|cursor| sql_int(cursor.0)),
            op.payload,
        ))?;
    audited.push(&AuditedOp {
        position: from_sql_int(tx.conn.last_insert_rowid()),
        numbers: [
            from_sql_int(op.log.0),
            op.cursor.0,
            op.project.map_or(0, |project| from_sql_int(project.0)),
            from_sql_int(op.producer.0),
            op.seq,
            from_sql_int(op.granted.0),
            op.at_ms,
            op.kind.into(),
            op.version.into(),
            op.replaces.map_or(0, |cursor| cursor.0),
        ],
        op_id: op.op_id.0,
        batch: op.batch.map_or([0; 16], |batch| batch.0),
        payload: op.payload,
    });
    Ok(())
}

/// The position of the last op of all; 0 if there is none.
pub fn last_position(read: &Read<'_>) -> Result<u64, StoreError> {
    let last: Option<i64> = read
        .conn
        .prepare_cached("SELECT max(position) FROM ops")?
        .query_row([], |row| row.get(0))?;
    Ok(from_sql_int(last.unwrap_or(0)))
}

/// Under which grant the op at a place was written, if it is there.
pub fn granted_at(
    read: &Read<'_>,
    log: LogId,
    cursor: Cursor,
) -> Result<Option<GrantKey>, StoreError> {
    Ok(read
        .conn
        .prepare_cached("SELECT granted FROM ops WHERE log = ? AND cursor = ?")?
        .query_row((log.0, sql_int(cursor.0)), |row| row.get(0).map(GrantKey))
        .optional()?)
}

/// What the op at a place says, if it is there: its version, and its payload.
pub fn payload_at(
    read: &Read<'_>,
    log: LogId,
    cursor: Cursor,
) -> Result<Option<(u16, Vec<u8>)>, StoreError> {
    Ok(read
        .conn
        .prepare_cached("SELECT version, payload FROM ops WHERE log = ? AND cursor = ?")?
        .query_row((log.0, sql_int(cursor.0)), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?)
}

/// An op as it is needed to make again what follows from it.
#[derive(Debug, Clone, Copy)]
pub struct BareOp<'a> {
    /// In which log.
    pub log: LogId,
    /// Where in it.
    pub cursor: Cursor,
    /// Under which name.
    pub op_id: OpId,
    /// Under which authority.
    pub granted: GrantKey,
    /// When.
    pub at_ms: u64,
    /// What it says.
    pub kind: u16,
    /// How the payload is written.
    pub version: u16,
    /// The op in the same log whose effect is gone with this one.
    pub replaces: Option<Cursor>,
    /// In full.
    pub payload: &'a [u8],
}

/// What an op says: its name, kind, version and payload.
pub type Payload = (OpId, u16, u16, Vec<u8>);

/// The op at a place in a log, if it is still there.
pub fn at(read: &Read<'_>, log: LogId, cursor: Cursor) -> Result<Option<Payload>, StoreError> {
    Ok(read
        .conn
        .prepare_cached(
            "SELECT op_id, kind, version, payload FROM ops WHERE log = ? AND cursor = ?",
        )?
        .query_row((log.0, sql_int(cursor.0)), |row| {
            Ok((OpId(row.get(0)?), row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .optional()?)
}

/// Hands every op of every log to `take`, in the order in which they were committed.
pub fn each(
    read: &Read<'_>,
    mut take: impl FnMut(BareOp<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut query = read.conn.prepare(
        "SELECT log, cursor, op_id, at_ms, kind, version, payload, replaces, granted
         FROM ops ORDER BY position",
    )?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        take(BareOp {
            log: LogId(row.get(0)?),
            cursor: Cursor(from_sql_int(row.get(1)?)),
            op_id: OpId(row.get(2)?),
            at_ms: from_sql_int(row.get(3)?),
            kind: row.get(4)?,
            version: row.get(5)?,
            payload: row.get_ref(6)?.as_blob().map_err(rusqlite::Error::from)?,
            replaces: row.get::<_, Option<i64>>(7)?.map(|cursor| Cursor(from_sql_int(cursor))),
            granted: GrantKey(row.get(8)?),
        })?;
    }
    Ok(())
}

/// How far a stretch reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Where it ends.
    pub head: u64,
    /// Up to where some of it is gone.
    pub floor: u64,
    /// How often something was taken away.
    pub cuts: u64,
}

/// How far a stretch reaches.
pub fn bounds(read: &Read<'_>, stretch: Stretch) -> Result<Bounds, StoreError> {
    let (head, floor, wide_floor, cuts): (i64, i64, i64, i64) = read
        .conn
        .prepare_cached("SELECT head, floor, wide_floor, cuts FROM logs WHERE id = ?")?
        .query_row([stretch.log().0], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })?;
    let cuts = from_sql_int(cuts);
    let last: Option<i64> = match stretch {
        Stretch::Log(_) => {
            return Ok(Bounds { head: from_sql_int(head), floor: from_sql_int(floor), cuts });
        }
        Stretch::Project(project) => read
            .conn
            .prepare_cached("SELECT max(position) FROM ops WHERE project = ?")?
            .query_row([project.0], |row| row.get(0))?,
        Stretch::Server => Some(sql_int(last_position(read)?)),
    };
    let (last, floor) = (from_sql_int(last.unwrap_or(0)), from_sql_int(wide_floor));
    // The last ops of a project may be gone.
    Ok(Bounds { head: last.max(floor), floor, cuts })
}

/// The ops of a stretch after a place, as many as fit into a page; and whether there are more.
pub fn page(
    read: &Read<'_>,
    stretch: Stretch,
    after: u64,
    items_max: u32,
) -> Result<(Vec<LoggedOp>, bool), StoreError> {
    const COLUMNS: &str =
        "SELECT ops.position, ops.log, ops.cursor, projects.id, sessions.id, producers.producer, ops.seq,
                ops.op_id, ops.batch, ops.at_ms, ops.kind, ops.version, ops.payload, ops.granted
         FROM ops JOIN producers ON producers.id = ops.producer
         LEFT JOIN projects ON projects.log = ops.project
         LEFT JOIN sessions ON sessions.log = ops.log";
    let (which, of) = match stretch {
        Stretch::Server => ("?1 IS NULL AND position > ?2 ORDER BY position", None),
        Stretch::Project(project) => {
            ("ops.project = ?1 AND position > ?2 ORDER BY position", Some(project.0))
        }
        Stretch::Log(log) => ("ops.log = ?1 AND ops.cursor > ?2 ORDER BY ops.cursor", Some(log.0)),
    };
    let mut query = read.conn.prepare_cached(&format!("{COLUMNS} WHERE {which} LIMIT ?3"))?;
    let mut rows = query.query((of, sql_int(after), i64::from(items_max) + 1))?;
    let (mut found, mut bytes, mut authors) = (Vec::new(), 0, Authors::default());
    while let Some(row) = rows.next()? {
        if found.len() == items_max as usize || bytes >= PAGE_BYTES_MAX {
            return Ok((found, true));
        }
        let op = from_row(row, |key| authors.of(read, key))?;
        bytes += op.payload.len() + op.author.bytes();
        found.push(op);
    }
    Ok((found, false))
}

fn from_row(
    row: &Row<'_>,
    author: impl FnOnce(GrantKey) -> Result<Arc<Author>, StoreError>,
) -> Result<LoggedOp, StoreError> {
    let granted = GrantKey(row.get(13)?);
    Ok(LoggedOp {
        granted,
        author: author(granted)?,
        position: from_sql_int(row.get(0)?),
        log: LogId(row.get(1)?),
        cursor: Cursor(from_sql_int(row.get(2)?)),
        project_id: row.get(3)?,
        session_id: row.get(4)?,
        producer: ProducerId(row.get(5)?),
        seq: from_sql_int(row.get(6)?),
        op_id: OpId(row.get(7)?),
        batch: row.get::<_, Option<[u8; 16]>>(8)?.map(BatchId),
        at_ms: from_sql_int(row.get(9)?),
        kind: row.get(10)?,
        version: row.get(11)?,
        payload: row.get(12)?,
    })
}
