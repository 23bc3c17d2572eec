//! One command inside an open transaction.

mod batch;

use super::command::{Answer, Command, Compacting, Freed, Registered, Registering, Subscribing};
use super::queue::Refusal;
use crate::limits::{
    COMPACTION_STEP_OPS_MAX, DURABLE_SUBSCRIPTIONS_PER_LOG_MAX, PRODUCERS_PER_LOG_MAX,
};
use crate::model::ids::{Cursor, GrantKey};
use crate::model::registration;
use crate::ops::Kind;
use crate::store::logs::LogState;
use crate::store::{self, StoreError, Tx};

/// Why a command has no answer yet.
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

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Failed::Refused(refusal)
    }
}

/// Carries a command out.
pub(super) fn run(tx: &Tx<'_>, now_ms: u64, command: &Command) -> Result<Answer, Failed> {
    Ok(match command {
        Command::Append(batch) => {
            let (ack, log) = batch::run(tx, now_ms, batch)?;
            let grown = (ack.cursor > log.head).then_some((batch.log, log.project));
            Answer::Appended { ack, grown }
        }
        Command::Register(registering) => Answer::Registered(register(tx, registering)?),
        Command::Subscribe(subscribing) => {
            let Subscribing { grant, log, name, after } = subscribing;
            authorise(tx, *grant)?;
            let (known, all) = store::subscriptions::count(tx, *log, name)?;
            if !known && all >= DURABLE_SUBSCRIPTIONS_PER_LOG_MAX {
                return Err(Refusal::TooManySubscriptions.into());
            }
            Answer::Taken(store::subscriptions::take(tx, *log, name, *after, now_ms)?)
        }
        Command::Acknowledge(ack) => {
            let moved =
                store::subscriptions::acknowledge(tx, ack.key, ack.holder, ack.place, now_ms)?;
            Answer::Done(moved)
        }
        Command::Forget { grant, log, name } => {
            authorise(tx, *grant)?;
            Answer::Done(store::subscriptions::forget(tx, *log, name)?)
        }
        Command::Compact(compacting) => Answer::Freed(compact(tx, *compacting)?),
    })
}

/// First of all the grant, also for a repeat: a revoked grant gets no recorded answer back.
fn authorise(tx: &Tx<'_>, grant: GrantKey) -> Result<(), Failed> {
    match store::grants::is_live(tx, grant)? {
        true => Ok(()),
        false => Err(Refusal::Revoked.into()),
    }
}

/// And with it the object's epoch, if the author of the op named one.
fn same_epoch(log: &LogState, believed: Option<u64>) -> Result<(), Failed> {
    match believed {
        Some(got) if got != log.epoch => {
            Err(Refusal::EpochStale { current: log.epoch, got }.into())
        }
        _ => Ok(()),
    }
}

fn room_for_producer(log: &LogState) -> Result<(), Failed> {
    match log.producers >= PRODUCERS_PER_LOG_MAX {
        true => Err(Refusal::TooManyProducers.into()),
        false => Ok(()),
    }
}

fn register(tx: &Tx<'_>, registering: &Registering) -> Result<Registered, Failed> {
    let Registering { grant, log, registration: asked } = registering;
    authorise(tx, *grant)?;
    let state = store::logs::get(tx, *log)?;
    same_epoch(&state, asked.capability_epoch)?;
    let known = store::producers::get(tx, *log, asked.producer)?;
    let before = known.map(|(_, state)| state).unwrap_or_default();
    let after = registration::register(before, asked).map_err(Refusal::from)?;
    match known {
        None => {
            room_for_producer(&state)?;
            store::producers::create(tx, *log, asked.producer, after)?;
        }
        Some((key, before)) if before != after => {
            store::producers::set(tx, key, after)?;
            store::receipts::drop_through(tx, key, after.acked_through)?;
        }
        Some(_) => {}
    }
    Ok(Registered {
        epoch: after.epoch,
        next_expected_seq: after.high + 1,
        floor: after.acked_through + 1,
        cursor: state.head,
    })
}

/// One step: a bounded piece above the floor.
fn compact(tx: &Tx<'_>, compacting: Compacting) -> Result<Freed, Failed> {
    let Compacting { log, through } = compacting;
    let state = store::logs::get(tx, log)?;
    let through = through.min(state.head).min(Cursor(state.floor.0 + COMPACTION_STEP_OPS_MAX));
    if through <= state.floor {
        return Ok(Freed { floor: state.floor, ..Freed::default() });
    }
    let stateless: Vec<u16> =
        Kind::ALL.into_iter().filter(|kind| !kind.leaves_state()).map(|kind| kind as u16).collect();
    let (ops, bytes) = store::compaction::raise_floor(tx, log, state, through, &stateless)?;
    Ok(Freed { floor: through, ops, bytes })
}
