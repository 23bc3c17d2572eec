//! Table `ops`: the history. Rows are added and never changed.

use super::producers::ProducerKey;
use super::{StoreError, Tx, sql_int};
use crate::model::ids::{Cursor, GrantKey, LogId, OpId};

/// An op on its way into the history.
#[derive(Debug, Clone, Copy)]
pub struct NewOp<'a> {
    /// In which log.
    pub log: LogId,
    /// Where in it.
    pub cursor: Cursor,
    /// Who wrote it.
    pub producer: ProducerKey,
    /// Under which number.
    pub seq: u64,
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
    /// In full.
    pub payload: &'a [u8],
}

/// Writes an op at the end of its log.
pub fn append(tx: &Tx<'_>, op: &NewOp<'_>) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "INSERT INTO ops (log, cursor, producer, seq, op_id, granted, at_ms, kind, version, payload)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute((
            op.log.0,
            sql_int(op.cursor.0),
            op.producer.0,
            sql_int(op.seq),
            op.op_id.0,
            op.granted.0,
            sql_int(op.at_ms),
            op.kind,
            op.version,
            op.payload,
        ))?;
    Ok(())
}
