//! `Writer`: ops in a stream, cut into batches as they come.
//!
//! A batch is handed to the engine as soon as the one before it is on its way to the disk, or when it is
//! large enough; so a lone op waits for nothing, and a flood goes in large batches. What is held here is
//! bounded for the whole connection: beyond that, `write` returns only when the disk has caught up.

use super::error::to_wire;
use super::scope::{Carried, Claim, Streamed};
use super::{decode, encode};
use crate::engine::{Submission, Submitted};
use crate::limits::{
    BATCH_OPS_MAX, WINDOW_OPS_MAX, WRITER_BATCH_BYTES, WRITER_BATCHES_IN_FLIGHT_MAX,
};
use crate::model::ids::{Cursor, LogId};
use crate::model::ledger::{Ack, BatchHeader, Outcome, Stop};
use crate::model::rights::Right;
use crate::ops::Op;
use crate::wire::session_capnp::writer;
use std::cell::RefCell;
use std::rc::Rc;
use tokio::sync::Notify;

struct Writer {
    stream: Rc<Stream>,
}

pub(super) fn client(claim: Claim, log: LogId, header: BatchHeader) -> writer::Client {
    let state = State {
        next_seq: header.first_seq,
        decided_before: header.first_seq,
        told_from: header.first_seq,
        header,
        pending: Vec::new(),
        held: None,
        begun: 0,
        answered: 0,
        told: Vec::new(),
        cursor: Cursor(0),
        next_expected_seq: header.first_seq,
        floor: 0,
        stopped: None,
        failed: None,
    };
    let stream = Stream { claim, log, state: RefCell::new(state), moved: Notify::new() };
    capnp_rpc::new_client(Writer { stream: Rc::new(stream) })
}

/// What the object and its batches under way share.
struct Stream {
    claim: Claim,
    log: LogId,
    state: RefCell<State>,
    /// A batch was decided.
    moved: Notify,
}

struct State {
    /// Of every batch; its numbers move on.
    header: BatchHeader,
    /// The number of the next op that is written.
    next_seq: u64,
    /// Ops that wait to be handed over.
    pending: Vec<Op>,
    held: Option<Streamed>,
    /// Batches handed over, and those of them that were answered, in the same order.
    begun: u64,
    answered: u64,
    /// All ops below this number are decided.
    decided_before: u64,
    /// Outcomes nobody was told yet, and the number of the first.
    told: Vec<Outcome>,
    told_from: u64,
    cursor: Cursor,
    next_expected_seq: u64,
    floor: u64,
    /// Nothing is looked at any more.
    stopped: Option<Stop>,
    /// Nothing is taken any more.
    failed: Option<capnp::Error>,
}

impl State {
    fn in_flight(&self) -> u64 {
        self.begun - self.answered
    }

    /// Whether what is pending is to be handed over now: at once while nothing is on its way, and otherwise
    /// when it is worth a batch of its own.
    fn is_ready(&self) -> bool {
        let large = self.pending.len() >= BATCH_OPS_MAX as usize
            || self.held.as_ref().is_some_and(|held| held.bytes() >= WRITER_BATCH_BYTES);
        match self.in_flight() {
            0 => !self.pending.is_empty(),
            on_their_way => large && on_their_way < WRITER_BATCHES_IN_FLIGHT_MAX,
        }
    }

    fn is_over(&self) -> bool {
        self.stopped.is_some() || self.failed.is_some()
    }

    /// Takes nothing more; the first reason counts.
    fn fail(&mut self, error: capnp::Error) {
        self.failed.get_or_insert(error);
        self.pending.clear();
        self.held = None;
    }

    fn failed(&self) -> capnp::Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }
}

impl Stream {
    /// Takes an op under the next number.
    fn take(self: &Rc<Self>, op: Op) -> capnp::Result<()> {
        self.claim.require(Right::Append)?;
        let mut state = self.state.borrow_mut();
        state.failed()?;
        state.next_seq += 1;
        if state.stopped.is_some() {
            return Ok(()); // the next flush says why it was not looked at
        }
        match &mut state.held {
            Some(held) => held.add(op.bytes()),
            None => state.held = Some(self.claim.stream(op.bytes())),
        }
        state.pending.push(op);
        let ready = state.is_ready();
        drop(state);
        if ready { self.hand_over() } else { Ok(()) }
    }

    /// Hands what is pending to the engine; nothing, if there is nothing, which only moves `ackedThrough`
    /// on and asks where the log ends.
    fn hand_over(self: &Rc<Self>) -> capnp::Result<()> {
        let (submitted, batch) = {
            let house = self.claim.require(Right::Append)?;
            let mut state = self.state.borrow_mut();
            let count = state.pending.len().min(BATCH_OPS_MAX as usize);
            let carried = match self.claim.carry(count) {
                Ok(carried) => carried,
                Err(denied) => {
                    let error = to_wire(denied);
                    state.fail(error.clone());
                    return Err(error);
                }
            };
            let rest = state.pending.split_off(count);
            let ops = std::mem::replace(&mut state.pending, rest);
            let held = match state.pending.is_empty() {
                true => state.held.take(),
                false => {
                    state.held.as_mut().map(|held| held.split(ops.iter().map(Op::bytes).sum()))
                }
            };
            let (header, number) = (state.header, state.begun);
            state.header.first_seq += count as u64;
            state.begun += 1;
            let submission = Submission::plain(self.claim.grant(), self.log, header, ops);
            (house.engine.submit(submission), (number, carried, held))
        };
        // The batch is on its way whoever still waits; what becomes of it is noted for the next flush.
        tokio::task::spawn_local(self.clone().note(submitted, batch));
        Ok(())
    }

    async fn note(
        self: Rc<Self>,
        submitted: Submitted<Ack>,
        (number, carried, held): (u64, Carried, Option<Streamed>),
    ) {
        let answer = submitted.answer().await;
        drop((carried, held));
        // The engine answers in order, but who is polled first is not said.
        self.until(|state| state.answered == number).await;
        let go_on = {
            let mut state = self.state.borrow_mut();
            state.answered += 1;
            match answer {
                Err(refusal) => state.fail(to_wire(refusal)),
                Ok(ack) if state.stopped.is_none() => {
                    state.decided_before = ack.first_seq + ack.outcomes.len() as u64;
                    state.told.extend(ack.outcomes);
                    state.cursor = ack.cursor;
                    state.next_expected_seq = ack.next_expected_seq;
                    state.floor = ack.floor;
                    state.stopped = ack.stopped;
                    // Repeats do not count against the server's window; what nobody was told does.
                    if state.told.len() as u64 > WINDOW_OPS_MAX {
                        let next = state.decided_before;
                        state.stopped.get_or_insert(Stop::WindowFull { next });
                    }
                }
                // Behind a stop there is a gap; the first reason counts.
                Ok(_) => {}
            }
            if state.is_over() {
                state.pending.clear();
                state.held = None;
            }
            state.is_ready()
        };
        if go_on && let Err(error) = self.hand_over() {
            self.state.borrow_mut().fail(error);
        }
        self.moved.notify_waiters();
    }

    /// Waits until every op below this number is decided and so many batches are answered, or none will
    /// be.
    async fn decided(&self, before: u64, batches: u64) {
        self.until(|state| {
            let all = state.decided_before >= before || state.stopped.is_some();
            state.failed.is_some() || (all && state.answered >= batches)
        })
        .await;
    }

    async fn until(&self, reached: impl Fn(&State) -> bool) {
        loop {
            let moved = self.moved.notified();
            if reached(&self.state.borrow()) {
                return;
            }
            moved.await;
        }
    }

    /// What became of the ops below this number that nobody was told about yet.
    fn tell(&self, before: u64) -> capnp::Result<Ack> {
        let mut state = self.state.borrow_mut();
        state.failed()?;
        let count = usize::try_from(before.saturating_sub(state.told_from)).unwrap_or(usize::MAX);
        let count = count.min(state.told.len());
        let rest = state.told.split_off(count);
        let outcomes = std::mem::replace(&mut state.told, rest);
        let first_seq = state.told_from;
        state.told_from += outcomes.len() as u64;
        Ok(Ack {
            cursor: state.cursor,
            first_seq,
            outcomes,
            next_expected_seq: state.next_expected_seq,
            floor: state.floor,
            stopped: state.stopped,
        })
    }
}

impl writer::Server for Writer {
    fn write(
        self: Rc<Self>,
        params: writer::WriteParams,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let permit = self.stream.claim.permit();
        let taken = decode::write(params.get(), &permit)
            .map_err(to_wire)
            .and_then(|op| self.stream.take(op));
        drop(params);
        async move {
            taken?;
            self.stream.claim.stream_room().await;
            self.stream.state.borrow().failed()
        }
    }

    fn flush(
        self: Rc<Self>,
        params: writer::FlushParams,
        mut results: writer::FlushResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let stream = self.stream.clone();
        let begun = params.get().map_err(decode::Malformed::from).map_err(to_wire);
        let begun = begun.and_then(|params| {
            let house = stream.claim.require(Right::Append)?;
            let before = {
                let mut state = stream.state.borrow_mut();
                state.failed()?;
                let acked = state.header.acked_through.max(params.get_acked_through());
                state.header.acked_through = acked;
                state.next_seq
            };
            let hurry = {
                let state = stream.state.borrow();
                !state.is_over() && (!state.pending.is_empty() || state.in_flight() == 0)
            };
            if hurry {
                stream.hand_over()?;
            }
            let batches = stream.state.borrow().begun;
            Ok((before, batches, house.incarnation))
        });
        drop(params);
        async move {
            let (before, batches, incarnation) = begun?;
            stream.decided(before, batches).await;
            let _turn = stream.claim.turn_to_ack().await;
            let ack = stream.tell(before)?;
            encode::ack(&ack, incarnation, results.get().init_ack());
            Ok(())
        }
    }
}
