//! A batch of ops: authority, ledger, conditions, rules, record.

use super::{Failed, authorise, own, published, room_for_producer, same_epoch, there};
use crate::engine::command::{Grown, Submission};
use crate::engine::queue::Refusal;
use crate::model::audit::{self, AuditedOps};
use crate::model::code::Code;
use crate::model::conditions::{Fate, Unmet};
use crate::model::ids::{Cursor, GrantKey, LogId};
use crate::model::ledger::{self, Ack, Decision, Made, Mode, Outcome, ProducerState, Receipt};
use crate::ops::{
    self, Also, Cut, Effect, NotApplied, Op, Place, Refused, end_delegation, end_turn,
};
use crate::store::logs::LogState;
use crate::store::{self, StoreError, Tx, producers::ProducerKey};
use std::collections::BTreeMap;

/// What a batch came to.
pub(super) struct Applied {
    pub(super) ack: Ack,
    /// The logs that have grown.
    pub(super) grown: Vec<Grown>,
    /// Grants that stand no more.
    pub(super) cut: Vec<Cut>,
    /// The ops that were written, one right behind the other.
    pub(super) written: AuditedOps,
    /// What the audit trail calls it.
    pub(super) audited: (audit::Kind, Option<GrantKey>),
    /// Ops that were rejected for want of authority.
    pub(super) denied: u64,
}

/// What was decided about ops that were not decided before.
struct Decided {
    decisions: Vec<Decision>,
    /// Where the log ends then, and how many bytes were added to it.
    head: Cursor,
    bytes: u64,
    cut: Vec<Cut>,
    /// Other logs that have grown.
    others: Vec<Grown>,
    written: AuditedOps,
    audited: (audit::Kind, Option<GrantKey>),
}

impl Decided {
    /// Nothing was, yet.
    fn nothing(head: Cursor, decisions: Vec<Decision>) -> Self {
        Self {
            decisions,
            head,
            bytes: 0,
            cut: Vec::new(),
            others: Vec::new(),
            written: AuditedOps::default(),
            audited: (audit::Kind::Changed, None),
        }
    }
}

/// Applies a batch as far as the ledger lets it.
pub(super) fn run(tx: &Tx<'_>, now_ms: u64, batch: &Submission) -> Result<Applied, Failed> {
    let force = authorise(tx, batch.grant, now_ms)?;
    published(tx, batch.object, batch.log)?;
    let log = there(store::logs::get(tx, batch.log)?)?;
    same_epoch(tx, batch.object, batch.header.capability_epoch)?;

    // It needs no right, so whoever is no delegate must not leave a trace with it.
    if batch.ops.iter().any(Op::ends_delegation) {
        match end_delegation::running(tx, batch.grant) {
            Ok(_) => {}
            Err(NotApplied::Refused(refused)) => return Err(Refusal::Op(refused).into()),
            Err(NotApplied::Store(error)) => return Err(error.into()),
        }
    }

    let header = &batch.header;
    let known = store::producers::get(tx, batch.log, header.producer)?;
    let state = known.map(|(_, state)| state).unwrap_or_default();
    let recorded = match known {
        Some((key, _)) => recorded(tx, key, state, batch)?,
        None => BTreeMap::new(),
    };
    let foreign = foreign(tx, batch.grant, &recorded)?;
    let digests = batch.ops.iter().map(Op::digest);
    // What was made for somebody else's authority is nobody else's op.
    let own = |seq: &u64| !foreign.contains(seq);
    let digest_of = |seq: u64| {
        Some(seq).filter(own).and_then(|seq| recorded.get(&seq)).map(|receipt| receipt.digest)
    };
    let plan = ledger::plan(state, header, digests, digest_of).map_err(Refusal::from)?;

    let mut outcomes: Vec<Outcome> = Vec::with_capacity(plan.repeats + plan.fresh);
    for seq in (header.first_seq..).take(plan.repeats) {
        outcomes.push(match recorded.get(&seq) {
            Some(receipt) => Outcome::Repeat(receipt.decision.clone()),
            None => Outcome::RepeatDropped,
        });
    }

    let (mut decided, mut denied) = (Decided::nothing(log.head, Vec::new()), 0);
    let after = plan.after;
    // A batch that decides nothing leaves no trace, unless it moves the producer on.
    if plan.fresh > 0 || (known.is_some() && after != state) {
        let producer = match known {
            Some((key, _)) => key,
            None => {
                // Taking back must always be possible.
                let share = Some(batch.object).filter(|object| *object != batch.log);
                if !batch.ops.iter().any(Op::takes_back) {
                    room_for_producer(tx, &log, share)?;
                }
                store::producers::create(tx, batch.log, header.producer, after, share)?
            }
        };
        let fresh = Fresh {
            batch,
            log,
            producer,
            first_seq: state.high + 1,
            ops: &batch.ops[plan.repeats..plan.repeats + plan.fresh],
            acked_through: state.acked_through,
            recorded: &recorded,
            only_own: batch.only_own || force.only_own,
        };
        decided = fresh.decide(tx, now_ms)?;
        let decisions = std::mem::take(&mut decided.decisions);
        denied = decisions.iter().filter(|decision| is_denial(decision)).count() as u64;
        if !decisions.is_empty() {
            let receipts: Vec<_> = fresh
                .ops
                .iter()
                .zip(decisions)
                .map(|(op, decision)| Receipt { digest: op.digest(), decision })
                .collect();
            store::receipts::keep(tx, producer, fresh.first_seq, &receipts)?;
            outcomes.extend(receipts.into_iter().map(|receipt| Outcome::Fresh(receipt.decision)));
        }
        if decided.head > log.head {
            store::logs::advance(tx, batch.log, decided.head, decided.bytes, now_ms)?;
        }
        if known.is_some() {
            store::producers::set(tx, producer, after)?;
        }
        if after.acked_through > state.acked_through {
            store::receipts::drop_through(tx, producer, after.acked_through)?;
        }
    }

    let Decided { head, cut, others, written, audited, .. } = decided;
    let ack = Ack {
        cursor: head,
        first_seq: header.first_seq,
        outcomes,
        next_expected_seq: after.high + 1,
        floor: after.acked_through + 1,
        stopped: plan.stop,
    };
    let mut grown = others;
    grown.extend((head > log.head).then_some((batch.log, log.project)));
    Ok(Applied { ack, grown, cut, written, audited, denied })
}

/// Whether an op was rejected because its author may not do that.
fn is_denial(decision: &Decision) -> bool {
    matches!(decision, Decision::Rejected { code, .. } if code == Code::NotPermitted.name())
}

/// The numbers under which grants were made that do not stem from the one a batch comes under. A repeat
/// would hand its sender authority that nobody gave it.
fn foreign(
    tx: &Tx<'_>,
    grant: GrantKey,
    recorded: &BTreeMap<u64, Receipt>,
) -> Result<Vec<u64>, StoreError> {
    let mut foreign = Vec::new();
    for (seq, receipt) in recorded {
        let (Decision::Applied { made: Made::Grant(key), .. }
        | Decision::Unchanged { made: Made::Grant(key) }) = receipt.decision
        else {
            continue;
        };
        if !store::grants::stems_from(tx, key, grant)? {
            foreign.push(*seq);
        }
    }
    Ok(foreign)
}

/// What is kept about those ops that are decided and not acknowledged, as far as the batch repeats them or
/// depends on them.
fn recorded(
    tx: &Tx<'_>,
    key: ProducerKey,
    state: ProducerState,
    batch: &Submission,
) -> Result<BTreeMap<u64, Receipt>, StoreError> {
    let kept = state.acked_through + 1..=state.high;
    let first = batch.header.first_seq.max(*kept.start());
    let last = (batch.header.first_seq + batch.ops.len() as u64 - 1).min(state.high);
    let mut recorded = match first <= last {
        true => store::receipts::between(tx, key, first, last)?,
        false => BTreeMap::new(),
    };
    // Receipts are kept by the batch: whatever else was decided with a dependency comes along.
    for on in batch.ops.iter().flat_map(|op| &op.conditions().depends_on) {
        if kept.contains(on) && !recorded.contains_key(on) {
            recorded.extend(store::receipts::around(tx, key, *on)?);
        }
    }
    Ok(recorded)
}

/// The ops of a batch that are not decided yet.
struct Fresh<'a> {
    batch: &'a Submission,
    log: LogState,
    producer: ProducerKey,
    first_seq: u64,
    ops: &'a [Op],
    acked_through: u64,
    recorded: &'a BTreeMap<u64, Receipt>,
    only_own: bool,
}

impl Fresh<'_> {
    /// Decides about them.
    fn decide(&self, tx: &Tx<'_>, now_ms: u64) -> Result<Decided, Failed> {
        if self.batch.header.mode != Mode::Atomic || self.ops.is_empty() {
            return self.try_each(tx, now_ms);
        }
        tx.attempt(|| {
            let tried = self.try_each(tx, now_ms)?;
            if tried.decisions.iter().all(Decision::happened) {
                return Ok((tried, true));
            }
            let decisions = ledger::all_or_nothing(self.first_seq, tried.decisions);
            Ok((Decided::nothing(self.log.head, decisions), false))
        })
    }

    /// Runs the rules of the ops and writes those that changed something into the history.
    fn try_each(&self, tx: &Tx<'_>, now_ms: u64) -> Result<Decided, Failed> {
        let mut so_far = Decided::nothing(self.log.head, Vec::with_capacity(self.ops.len()));
        for (seq, op) in (self.first_seq..).zip(self.ops) {
            let decision = match self.unmet(seq, op, so_far.head, &so_far.decisions) {
                Some(Unmet::Conflict(conflict)) => Decision::Conflicted(conflict),
                Some(unmet) => rejected(unmet.into()),
                None => self.attempt(tx, now_ms, seq, op, &mut so_far)?,
            };
            so_far.decisions.push(decision);
        }
        Ok(so_far)
    }

    fn unmet(&self, seq: u64, op: &Op, head: Cursor, decided: &[Decision]) -> Option<Unmet> {
        let fate = |on: u64| match on.checked_sub(self.first_seq) {
            Some(at) => decided.get(at as usize).map_or(Fate::Forgotten, Fate::from),
            None if on <= self.acked_through => Fate::Forgotten,
            None => self.recorded.get(&on).map_or(Fate::Forgotten, |kept| (&kept.decision).into()),
        };
        let header = &self.batch.header;
        op.conditions().check(seq, header.first_seq, header.mode, head, fate).err()
    }

    fn attempt(
        &self,
        tx: &Tx<'_>,
        now_ms: u64,
        seq: u64,
        op: &Op,
        so_far: &mut Decided,
    ) -> Result<Decision, Failed> {
        let place = Place {
            log: self.batch.log,
            cursor: so_far.head.next(),
            now_ms,
            granted: self.batch.grant,
            only_own: self.only_own,
        };
        let rows_before = tx.rows_written();
        match ops::apply(tx, place, op) {
            Ok(effect) => match &effect.entry {
                None => Ok(Decision::Unchanged { made: effect.made }),
                Some(entry) => {
                    let row = store::ops::NewOp {
                        log: self.batch.log,
                        cursor: place.cursor,
                        project: self.log.project,
                        producer: self.producer,
                        seq,
                        op_id: op.id(),
                        batch: self.batch.header.batch,
                        granted: self.batch.grant,
                        at_ms: now_ms,
                        kind: entry.kind as u16,
                        version: entry.version,
                        replaces: entry.replaces,
                        payload: &entry.payload,
                    };
                    store::ops::append(tx, &row, &mut so_far.written)?;
                    so_far.head = place.cursor;
                    so_far.bytes += entry.payload.len() as u64;
                    let found = effect.found;
                    let made = self.follow_up(tx, now_ms, effect, so_far)?;
                    Ok(match found {
                        false => Decision::Applied { cursor: place.cursor, made },
                        true => Decision::AppliedTo { cursor: place.cursor, made },
                    })
                }
            },
            Err(NotApplied::Refused(_)) if tx.rows_written() != rows_before => {
                Err(Failed::WroteAndRefused)
            }
            Err(NotApplied::Refused(refused)) => Ok(rejected(refused)),
            Err(NotApplied::Store(error)) => Err(Failed::Store(error)),
        }
    }

    /// What an op that was applied leads to: the server's own words about it, in this log and in others.
    fn follow_up(
        &self,
        tx: &Tx<'_>,
        now_ms: u64,
        effect: Effect<'_>,
        so_far: &mut Decided,
    ) -> Result<Made, Failed> {
        let Effect { made, cut, mut also, audited, fill, erased, .. } = effect;
        if audited.0 != audit::Kind::Changed {
            so_far.audited = audited;
        }
        also.extend(end_delegation::after(tx, &cut, now_ms)?);
        for also in also.into_iter().filter(|also| !erased.contains(&also.log)) {
            self.say(tx, now_ms, also, so_far)?;
        }
        for (log, turn) in end_turn::begun_under(tx, &cut)? {
            if !erased.contains(&log) {
                self.abort(tx, now_ms, log, turn, so_far)?;
            }
        }
        so_far.cut.extend(cut);
        if let Some(fill) = fill {
            let state = own::fill(tx, now_ms, &fill, &mut so_far.written)?;
            so_far.others.push((fill.log, state.project));
        }
        for log in erased {
            store::removal::remove(tx, log)?;
            so_far.others.push((log, self.log.project));
        }
        Ok(made)
    }

    /// Says something of the server's own.
    fn say(
        &self,
        tx: &Tx<'_>,
        now_ms: u64,
        Also { log, entry, granted }: Also,
        so_far: &mut Decided,
    ) -> Result<(), Failed> {
        if log == self.batch.log {
            let state = LogState { head: so_far.head, ..self.log };
            own::write(tx, now_ms, log, state, granted, &entry, &mut so_far.written)?;
            so_far.head = so_far.head.next();
            so_far.bytes += entry.payload.len() as u64;
        } else {
            let state = own::append(tx, now_ms, log, granted, &entry, &mut so_far.written)?;
            so_far.others.push((log, state.project));
        }
        Ok(())
    }

    /// The grant a turn was begun under is gone, and so it ends.
    fn abort(
        &self,
        tx: &Tx<'_>,
        now_ms: u64,
        log: LogId,
        turn: Cursor,
        so_far: &mut Decided,
    ) -> Result<(), Failed> {
        let head = match log == self.batch.log {
            true => so_far.head,
            false => store::logs::get(tx, log)?.head,
        };
        let granted = self.batch.grant;
        let place = Place { log, cursor: head.next(), now_ms, granted, only_own: false };
        if let Some(ended) = end_turn::abort(tx, place, turn, end_turn::Why::Cut)? {
            let first = Also { log, entry: ended.entry, granted };
            for also in std::iter::once(first).chain(ended.also) {
                self.say(tx, now_ms, also, so_far)?;
            }
        }
        Ok(())
    }
}

fn rejected(refused: Refused) -> Decision {
    Decision::Rejected { code: refused.code.name().to_owned(), text: refused.text }
}
