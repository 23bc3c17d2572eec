//! What the server itself has to say, in a log: under its own producer, next to what it follows from.

use crate::model::audit::AuditedOps;
use crate::model::ids::{Cursor, GrantKey, LogId, OpId, ProducerId};
use crate::model::ledger::ProducerState;
use crate::ops::{Entry, Fill, Place};
use crate::store::logs::LogState;
use crate::store::producers::ProducerKey;
use crate::store::{self, StoreError, Tx};

/// Writes an op of the server's own at the end of a log whose state is known, and moves the server's own
/// numbering on. Moving the end of the log is for whoever knows its state.
pub(super) fn write(
    tx: &Tx<'_>,
    now_ms: u64,
    log: LogId,
    state: LogState,
    granted: GrantKey,
    entry: &Entry<'_>,
    audited: &mut AuditedOps,
) -> Result<(), StoreError> {
    let known = store::producers::get(tx, log, ProducerId::SERVER)?;
    let before = known.map_or(ProducerState { epoch: 1, ..ProducerState::default() }, |it| it.1);
    let seq = before.high + 1;
    // Nobody waits for a result.
    let after = ProducerState { high: seq, acked_through: seq, ..before };
    let producer = match known {
        Some((key, _)) => {
            store::producers::set(tx, key, after)?;
            key
        }
        None => store::producers::create(tx, log, ProducerId::SERVER, after, None)?,
    };
    let place = (log, state.head.next(), state.project);
    append_as(tx, place, (producer, seq), granted, now_ms, entry, audited)
}

/// The same for a log nobody else is writing to at the moment.
pub(super) fn append(
    tx: &Tx<'_>,
    now_ms: u64,
    log: LogId,
    granted: GrantKey,
    entry: &Entry<'_>,
    audited: &mut AuditedOps,
) -> Result<LogState, StoreError> {
    let state = store::logs::get(tx, log)?;
    write(tx, now_ms, log, state, granted, entry, audited)?;
    store::logs::advance(tx, log, state.head.next(), entry.payload.len() as u64, now_ms)?;
    Ok(state)
}

/// Fills a log that was just made, op by op.
pub(super) fn fill(
    tx: &Tx<'_>,
    now_ms: u64,
    fill: &Fill,
    audited: &mut AuditedOps,
) -> Result<LogState, StoreError> {
    let (log, granted) = (fill.log, fill.granted);
    let state = store::logs::get(tx, log)?;
    let first = ProducerState { epoch: 1, ..ProducerState::default() };
    let (mut producer, mut head, mut seq, mut bytes) = (None, state.head, 0, 0);
    let at = |cursor| Place { log, cursor, now_ms, granted, only_own: false };
    while let Some(entry) = fill.next(tx, at(head.next()))? {
        let producer = match producer {
            Some(producer) => producer,
            None => *producer.insert(store::producers::create(
                tx,
                log,
                ProducerId::SERVER,
                first,
                None,
            )?),
        };
        seq += 1;
        head = head.next();
        bytes += entry.payload.len() as u64;
        append_as(
            tx,
            (log, head, state.project),
            (producer, seq),
            granted,
            now_ms,
            &entry,
            audited,
        )?;
    }
    if let Some(producer) = producer {
        let after = ProducerState { high: seq, acked_through: seq, ..first };
        store::producers::set(tx, producer, after)?;
        store::logs::advance(tx, log, head, bytes, now_ms)?;
    }
    Ok(state)
}

/// Writes one op of the server's own.
fn append_as(
    tx: &Tx<'_>,
    (log, cursor, project): (LogId, Cursor, Option<LogId>),
    (producer, seq): (ProducerKey, u64),
    granted: GrantKey,
    now_ms: u64,
    entry: &Entry<'_>,
    audited: &mut AuditedOps,
) -> Result<(), StoreError> {
    store::ops::append(
        tx,
        &store::ops::NewOp {
            log,
            cursor,
            project,
            producer,
            seq,
            op_id: name(log, seq),
            batch: None,
            granted,
            at_ms: now_ms,
            kind: entry.kind as u16,
            version: entry.version,
            replaces: entry.replaces,
            payload: &entry.payload,
        },
        audited,
    )
}

fn name(log: LogId, seq: u64) -> OpId {
    let mut hasher = blake3::Hasher::new_derive_key("bowline own op id v1");
    hasher.update(&log.0.to_le_bytes()).update(&seq.to_le_bytes());
    let mut id = [0; 16];
    hasher.finalize_xof().fill(&mut id);
    OpId(id)
}
