//! One batch inside an open transaction: authority, ledger, rules, record.

use super::queue::{Refusal, Submission};
use crate::model::ids::Cursor;
use crate::model::ledger::{self, Ack, Decision, Outcome, ProducerState, Receipt};
use crate::ops::{self, NotApplied, Op, Place};
use crate::store::{self, StoreError, Tx, producers::ProducerKey};
use std::collections::BTreeMap;

/// Why a batch has no ack yet.
#[derive(Debug)]
pub(super) enum Failed {
    /// It gets this answer; nothing was written.
    Refused(Refusal),
    /// The store failed in the middle; what was written must be undone.
    Store(StoreError),
    /// A rule wrote and then refused: a fault of ours. What was written must be undone.
    WroteAndRefused,
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Failed::Store(error)
    }
}

/// Applies a batch as far as the ledger lets it.
pub(super) fn run(tx: &Tx<'_>, now_ms: u64, batch: &Submission) -> Result<Ack, Failed> {
    // First of all the grant, also for a repeat: a revoked grant gets no recorded answer back.
    if !store::grants::is_live(tx, batch.grant)? {
        return Err(Failed::Refused(Refusal::Revoked));
    }

    let header = &batch.header;
    let known = store::producers::get(tx, batch.log, header.producer)?;
    let state = known.map(|(_, state)| state).unwrap_or_default();
    let recorded = match known {
        Some((key, _)) => recorded(tx, key, state, batch)?,
        None => BTreeMap::new(),
    };
    let digests = batch.ops.iter().map(Op::digest);
    let digest_of = |seq: u64| recorded.get(&seq).map(|receipt| receipt.digest);
    let plan = ledger::plan(state, header, digests, digest_of)
        .map_err(|fenced| Failed::Refused(fenced.into()))?;

    let mut outcomes: Vec<Outcome> = Vec::with_capacity(plan.repeats + plan.fresh);
    for seq in (header.first_seq..).take(plan.repeats) {
        outcomes.push(match recorded.get(&seq) {
            Some(receipt) => Outcome::Repeat(receipt.decision.clone()),
            None => Outcome::RepeatDropped,
        });
    }

    let mut head = store::logs::head(tx, batch.log)?;
    let after = ProducerState {
        epoch: plan.epoch,
        high: state.high + plan.fresh as u64,
        acked_through: plan.acked_through,
    };
    // A batch that decides nothing leaves no trace, unless it moves the producer on.
    if plan.fresh > 0 || (known.is_some() && after != state) {
        let producer = match known {
            Some((key, _)) => key,
            None => store::producers::create(tx, batch.log, header.producer, after)?,
        };
        let fresh = &batch.ops[plan.repeats..plan.repeats + plan.fresh];
        let first_fresh = state.high + 1;
        let receipts = apply_fresh(tx, now_ms, batch, producer, first_fresh, fresh, &mut head)?;
        if !receipts.is_empty() {
            store::receipts::keep(tx, producer, first_fresh, &receipts)?;
            store::logs::set_head(tx, batch.log, head)?;
        }
        outcomes.extend(receipts.into_iter().map(|receipt| Outcome::Fresh(receipt.decision)));
        if known.is_some() {
            store::producers::set(tx, producer, after)?;
        }
        if after.acked_through > state.acked_through {
            store::receipts::drop_through(tx, producer, after.acked_through)?;
        }
    }

    Ok(Ack {
        cursor: head,
        outcomes,
        next_expected_seq: after.high + 1,
        floor: after.acked_through + 1,
        stopped: plan.stop,
    })
}

/// What is kept about those ops of the batch that are decided and not acknowledged.
fn recorded(
    tx: &Tx<'_>,
    key: ProducerKey,
    state: ProducerState,
    batch: &Submission,
) -> Result<BTreeMap<u64, Receipt>, StoreError> {
    let first = batch.header.first_seq.max(state.acked_through + 1);
    let last = (batch.header.first_seq + batch.ops.len() as u64 - 1).min(state.high);
    if first > last {
        return Ok(BTreeMap::new());
    }
    store::receipts::between(tx, key, first, last)
}

/// Runs the rules of new ops and writes those that changed something into the history.
fn apply_fresh(
    tx: &Tx<'_>,
    now_ms: u64,
    batch: &Submission,
    producer: ProducerKey,
    first_seq: u64,
    ops: &[Op],
    head: &mut Cursor,
) -> Result<Vec<Receipt>, Failed> {
    let mut receipts = Vec::with_capacity(ops.len());
    for (seq, op) in (first_seq..).zip(ops) {
        let place = Place { log: batch.log, cursor: head.next(), now_ms };
        let rows_before = tx.rows_written();
        let decision = match ops::apply(tx, place, op) {
            Ok(effect) => match effect.entry {
                None => Decision::Unchanged { made: effect.made },
                Some(entry) => {
                    let row = store::ops::NewOp {
                        log: batch.log,
                        cursor: place.cursor,
                        producer,
                        seq,
                        op_id: op.id(),
                        granted: batch.grant,
                        at_ms: now_ms,
                        kind: entry.kind as u16,
                        version: entry.version,
                        payload: &entry.payload,
                    };
                    store::ops::append(tx, &row)?;
                    *head = place.cursor;
                    Decision::Applied { cursor: place.cursor, made: effect.made }
                }
            },
            Err(NotApplied::Refused(refused)) => {
                if tx.rows_written() != rows_before {
                    return Err(Failed::WroteAndRefused);
                }
                Decision::Rejected { code: refused.code.name().to_owned(), text: refused.text }
            }
            Err(NotApplied::Store(error)) => return Err(Failed::Store(error)),
        };
        receipts.push(Receipt { digest: op.digest(), decision });
    }
    Ok(receipts)
}
