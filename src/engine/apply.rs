//! One command inside an open transaction.

mod batch;

use super::command::{
    Answer, Claiming, Command, Compacting, Freed, Registered, Registering, Subscribing,
};
use super::queue::Refusal;
use super::standing::Fallen;
use crate::limits::{DURABLE_SUBSCRIPTIONS_PER_LOG_MAX, PRODUCERS_PER_LOG_MAX};
use crate::model::feed;
use crate::model::ids::GrantKey;
use crate::model::registration;
use crate::ops::{Kind, use_ref};
use crate::store::logs::LogState;
use crate::store::subscriptions::Taken;
use crate::store::{self, StoreError, Tx};
use batch::Applied;

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
            let Applied { ack, log, cut } = batch::run(tx, now_ms, batch)?;
            let grown = (ack.cursor > log.head).then_some((batch.log, log.project));
            Answer::Appended { ack, grown, cut }
        }
        Command::Register(registering) => Answer::Registered(register(tx, now_ms, registering)?),
        Command::Subscribe(subscribing) => Answer::Taken {
            stretch: subscribing.stretch,
            taken: subscribe(tx, now_ms, subscribing)?,
        },
        Command::Acknowledge(ack) => {
            let moved =
                store::subscriptions::acknowledge(tx, ack.key, ack.holder, ack.place, now_ms)?;
            Answer::Done(moved)
        }
        Command::Forget { grant, stretch, name } => {
            authorise(tx, *grant, now_ms)?;
            let key = store::subscriptions::forget(tx, stretch.log(), name)?;
            Answer::Forgotten { stretch: *stretch, key }
        }
        Command::Compact(compacting) => Answer::Freed(compact(tx, *compacting)?),
        Command::Redeem(grant) => {
            authorise(tx, *grant, now_ms)?;
            use_ref::redeem(tx, *grant, now_ms)?.map_err(Refusal::from)?;
            Answer::Done(true)
        }
        Command::Claim(Claiming { claim, verifier }) => {
            authorise(tx, *claim, now_ms)?;
            let exchanged = use_ref::exchange(tx, *claim, *verifier, now_ms)?;
            Answer::Claimed(exchanged.map_err(Refusal::from)?)
        }
    })
}

/// First of all the grant, also for a repeat: a revoked grant gets no recorded answer back.
fn authorise(tx: &Tx<'_>, grant: GrantKey, now_ms: u64) -> Result<(), Failed> {
    match store::grants::in_force(tx, grant)? {
        None => Err(Refusal::Fallen(Fallen::Revoked).into()),
        Some(Some(at_ms)) if at_ms <= now_ms => Err(Refusal::Fallen(Fallen::Expired).into()),
        Some(_) => Ok(()),
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

fn subscribe(tx: &Tx<'_>, now_ms: u64, subscribing: &Subscribing) -> Result<Taken, Failed> {
    let Subscribing { grant, stretch, name, after, idle_ms_max } = subscribing;
    authorise(tx, *grant, now_ms)?;
    let (known, all) = store::subscriptions::count(tx, stretch.log(), name)?;
    if !known {
        if all >= DURABLE_SUBSCRIPTIONS_PER_LOG_MAX {
            let since_ms = now_ms.saturating_sub(*idle_ms_max);
            if store::subscriptions::forget_unused(tx, stretch.log(), since_ms)? == 0 {
                return Err(Refusal::TooManySubscriptions.into());
            }
        }
        let head = store::ops::bounds(tx, *stretch)?.head;
        feed::exists(*after, head).map_err(Refusal::from)?;
    }
    Ok(store::subscriptions::take(tx, stretch.log(), name, *after, now_ms)?)
}

fn register(tx: &Tx<'_>, now_ms: u64, registering: &Registering) -> Result<Registered, Failed> {
    let Registering { grant, log, registration: asked } = registering;
    authorise(tx, *grant, now_ms)?;
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
    let through = store::compaction::step(tx, log, state, through.min(state.head))?;
    if through <= state.swept {
        return Ok(Freed { swept: state.swept, ..Freed::default() });
    }
    let stateless: Vec<u16> =
        Kind::ALL.into_iter().filter(|kind| !kind.leaves_state()).map(|kind| kind as u16).collect();
    let (ops, bytes) = store::compaction::sweep(tx, log, state, through, &stateless)?;
    Ok(Freed { swept: through, ops, bytes })
}
