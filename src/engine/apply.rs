//! One command inside an open transaction.

mod batch;
mod own;

use super::command::{
    Answer, Claiming, Command, Compacting, Freed, Growing, Recording, Registered, Registering,
    Subscribing, Uploading,
};
use super::notes::Notes;
use super::queue::Refusal;
use super::trail::Trail;
use crate::limits::{
    DURABLE_SUBSCRIPTIONS_PER_LOG_MAX, DURABLE_SUBSCRIPTIONS_PER_SHARE_MAX, PRODUCERS_PER_LOG_MAX,
    PRODUCERS_PER_SHARE_MAX, TURN_LEASE_MS_DEFAULT, UPLOADS_STEP_MAX,
};
use crate::model::audit::{self, AuditedOps, Entry};
use crate::model::code::Code;
use crate::model::feed;
use crate::model::grant::Fallen;
use crate::model::ids::{Cursor, GrantKey, LogId};
use crate::model::registration;
use crate::model::rights::Rights;
use crate::model::share::{ReadOnlyShare, ShareEnded};
use crate::ops::record::record as record_files;
use crate::ops::{
    Also, Kind, NotApplied, Place, drop_left, end_delegation, end_turn, found, grow, heartbeat,
    upload, use_ref,
};
use crate::store::grants::Force;
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

/// Carries a command out, and notes in the trail what happened.
pub(super) fn run(
    tx: &Tx<'_>,
    now_ms: u64,
    command: &Command,
    trail: &mut Trail,
) -> Result<Answer, Failed> {
    let acted = |kind, grant: GrantKey, log| Entry {
        granted: Some(grant),
        log: Some(log),
        count: 1,
        ..Entry::new(kind)
    };
    Ok(match command {
        Command::Append(batch) => {
            let applied = batch::run(tx, now_ms, batch)?;
            let Applied { ack, grown, cut, written, audited, denied } = applied;
            trail.wrote(audited, Some(batch.grant), batch.object, written);
            if denied > 0 {
                let entry = acted(audit::Kind::Denied, batch.grant, batch.object);
                let code = Code::NotPermitted.name().to_owned();
                trail.note(Entry { count: denied, code, ..entry });
            }
            Answer::Appended { ack, grown, cut }
        }
        Command::Register(registering) => {
            let (registered, changed) = register(tx, now_ms, registering)?;
            if changed {
                trail.note(acted(audit::Kind::Registered, registering.grant, registering.object));
            }
            Answer::Registered(registered)
        }
        Command::Subscribe(subscribing) => {
            let taken = subscribe(tx, now_ms, subscribing)?;
            let stretch = subscribing.stretch;
            trail.note(acted(audit::Kind::SubscriptionTaken, subscribing.grant, stretch.log()));
            Answer::Taken { stretch, taken }
        }
        Command::Acknowledge(ack) => {
            let moved =
                store::subscriptions::acknowledge(tx, ack.key, ack.holder, ack.place, now_ms)?;
            Answer::Done(moved)
        }
        Command::Forget { grant, stretch, name } => {
            authorise(tx, *grant, now_ms)?;
            let key = store::subscriptions::forget(tx, stretch.log(), name)?;
            if key.is_some() {
                trail.note(acted(audit::Kind::SubscriptionForgotten, *grant, stretch.log()));
            }
            Answer::Forgotten { stretch: *stretch, key }
        }
        Command::Compact(compacting) => Answer::Freed(compact(tx, *compacting)?),
        Command::Redeem(grant) => {
            authorise(tx, *grant, now_ms)?;
            let used = use_ref::redeem(tx, *grant, now_ms)?.map_err(Refusal::from)?;
            let subject = Some(used.grant);
            trail.note(Entry { subject, ..acted(audit::Kind::Redeemed, *grant, used.log) });
            Answer::Done(true)
        }
        Command::Claim(Claiming { claim, verifier }) => {
            authorise(tx, *claim, now_ms)?;
            let used = use_ref::exchange(tx, *claim, *verifier, now_ms)?.map_err(Refusal::from)?;
            if used.fresh {
                let subject = Some(used.grant);
                trail.note(Entry { subject, ..acted(audit::Kind::Claimed, *claim, used.log) });
            }
            Answer::Claimed(used.id)
        }
        Command::Grow(growing) => {
            authorise(tx, growing.grant, now_ms)?;
            let Growing { key, offset, text, .. } = growing;
            there(store::logs::get(tx, key.session)?)?;
            let grown = refused(grow::grow(tx, *key, *offset, text, now_ms))?;
            Answer::Grew { length: grown.length, session: key.session, went_on: grown.went_on }
        }
        Command::Upload(uploading) => {
            authorise(tx, uploading.grant, now_ms)?;
            let Uploading { session, content, offset, data, .. } = uploading;
            Answer::Until(refused(upload::upload(tx, *session, *content, *offset, data, now_ms))?)
        }
        Command::TurnHeartbeat { grant, session, turn } => {
            authorise(tx, *grant, now_ms)?;
            let place = Place {
                log: *session,
                cursor: Cursor(0),
                now_ms,
                granted: *grant,
                only_own: false,
            };
            Answer::Until(refused(heartbeat::of_turn(tx, place, *turn))?)
        }
        Command::DropLeft { session, checkpoint } => {
            drop_left_behind(tx, now_ms, *session, *checkpoint, trail)?
        }
        Command::LetGo { before_ms } => {
            Answer::Until(store::contents::forget_unused(tx, *before_ms, UPLOADS_STEP_MAX)?)
        }
        Command::Heartbeat(grant) => {
            authorise(tx, *grant, now_ms)?;
            Answer::Until(heartbeat::heartbeat(tx, *grant, now_ms)?.map_err(Refusal::Op)?)
        }
        Command::EndDue => end_due(tx, now_ms, trail)?,
        Command::Record(recording) => record(tx, now_ms, recording, trail)?,
        Command::Note(notes) => {
            note(tx, now_ms, notes, trail)?;
            Answer::Done(true)
        }
        Command::Prune { through } => {
            let pruned = store::audit::prune(tx, *through)?;
            let any = pruned.is_some();
            pruned.into_iter().for_each(|entry| trail.note(entry));
            Answer::Done(any)
        }
    })
}

/// The answer of a rule that is no op's.
fn refused<T>(decided: Result<T, NotApplied>) -> Result<T, Failed> {
    match decided {
        Ok(decided) => Ok(decided),
        Err(NotApplied::Refused(refused)) => Err(Refusal::Op(refused).into()),
        Err(NotApplied::Store(error)) => Err(error.into()),
    }
}

/// Nothing is done in a session that is gone.
fn there(log: LogState) -> Result<LogState, Failed> {
    match log.removed {
        false => Ok(log),
        true => Err(Refusal::Op(found::Error::SessionNotFound.into()).into()),
    }
}

/// Ends delegations and turns whose time has come, and says so in the logs of those who delegated, and of the
/// sessions.
fn end_due(tx: &Tx<'_>, now_ms: u64, trail: &mut Trail) -> Result<Answer, Failed> {
    let ended = end_delegation::end_due(tx, now_ms)?;
    let mut grown = Vec::new();
    for Also { log, entry, granted } in &ended.told {
        let mut written = AuditedOps::default();
        let state = own::append(tx, now_ms, *log, *granted, entry, &mut written)?;
        grown.push((*log, state.project));
        let audited = (audit::Kind::DelegationEnded, Some(*granted));
        trail.wrote(audited, None, *log, written);
    }
    let mut count = ended.count;
    let cut = end_turn::begun_under(tx, &ended.cut)?;
    let cut = cut.into_iter().map(|turn| (turn, end_turn::Why::Cut));
    let due = end_turn::lapsed(tx, now_ms)?;
    let due = due.into_iter().map(|turn| (turn, end_turn::Why::Due));
    for ((log, turn), why) in cut.chain(due) {
        let state = store::logs::get(tx, log)?;
        let granted = GrantKey(0);
        let place = Place { log, cursor: state.head.next(), now_ms, granted, only_own: false };
        count += u64::from(why == end_turn::Why::Due);
        // One that cannot be ended must not keep all others from their end.
        let ended = tx.attempt(|| {
            Ok::<_, StoreError>(match end_turn::abort(tx, place, turn, why) {
                Ok(ended) => (Ok(ended), true),
                Err(error) => (Err(error), false),
            })
        })?;
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(%error, log = log.0, turn = turn.0, "a turn cannot be ended");
                store::turns::set_lease(tx, log, turn, now_ms + TURN_LEASE_MS_DEFAULT)?;
                continue;
            }
        };
        let Some(ended) = ended else { continue };
        let granted = store::turns::at(tx, log, turn)?.map_or(granted, |turn| turn.granted);
        let mut written = AuditedOps::default();
        let first = Also { log, entry: ended.entry, granted };
        for Also { log, entry, granted } in std::iter::once(first).chain(ended.also) {
            own::append(tx, now_ms, log, granted, &entry, &mut written)?;
        }
        grown.push((log, state.project));
        trail.wrote((audit::Kind::Changed, None), None, log, written);
    }
    Ok(Answer::Ended { count, grown, cut: ended.cut })
}

/// Lets a piece of what was left behind go, and says so in the session's log.
fn drop_left_behind(
    tx: &Tx<'_>,
    now_ms: u64,
    log: LogId,
    checkpoint: Cursor,
    trail: &mut Trail,
) -> Result<Answer, Failed> {
    let state = store::logs::get(tx, log)?;
    // Under the authority the checkpoint was made with, as long as the history knows it.
    let granted = match store::ops::granted_at(tx, log, checkpoint)? {
        Some(granted) => Some(granted),
        None => store::grants::operators(tx)?.into_iter().next(),
    };
    let Some(granted) = granted.filter(|_| !state.removed) else {
        return Ok(Answer::Ended { count: 0, grown: Vec::new(), cut: Vec::new() });
    };
    let place = Place { log, cursor: state.head.next(), now_ms, granted, only_own: false };
    let (said, all) = drop_left::drop_left(tx, place, checkpoint)?;
    let mut written = AuditedOps::default();
    for Also { log, entry, granted } in &said {
        own::append(tx, now_ms, *log, *granted, entry, &mut written)?;
    }
    let grown = if said.is_empty() { Vec::new() } else { vec![(log, state.project)] };
    trail.wrote((audit::Kind::Changed, None), None, log, written);
    Ok(Answer::Ended { count: u64::from(!all), grown, cut: Vec::new() })
}

/// Writes down what was done to the files of a work tree.
fn record(
    tx: &Tx<'_>,
    now_ms: u64,
    recording: &Recording,
    trail: &mut Trail,
) -> Result<Answer, Failed> {
    let Recording { grant, record } = recording;
    let granted = match grant {
        Some(grant) => {
            authorise(tx, *grant, now_ms)?;
            *grant
        }
        // What the server does of its own accord it does for the operator.
        None => store::grants::operators(tx)?.into_iter().next().unwrap_or(GrantKey(0)),
    };
    there(store::logs::get(tx, record.log())?)?;
    let (recorded, said) = refused(record_files(tx, now_ms, granted, record))?;
    let (mut written, mut grown) = (AuditedOps::default(), Vec::new());
    for Also { log, entry, granted } in &said {
        let state = own::append(tx, now_ms, *log, *granted, entry, &mut written)?;
        grown.push((*log, state.project));
    }
    trail.wrote((audit::Kind::Changed, None), *grant, record.log(), written);
    Ok(Answer::Recorded { recorded, grown })
}

/// Writes down what was gathered.
fn note(tx: &Tx<'_>, now_ms: u64, notes: &Notes, trail: &mut Trail) -> Result<(), Failed> {
    for (key, reads) in &notes.uses {
        store::grants::note_reads(tx, *key, *reads, now_ms)?;
    }
    for (denial, count) in &notes.denials {
        trail.note(Entry {
            granted: denial.granted,
            log: denial.log,
            subject: denial.shown,
            count: *count,
            code: denial.code.name().to_owned(),
            missing: denial.missing.into_iter().collect::<Rights>().bits(),
            ..Entry::new(audit::Kind::Denied)
        });
    }
    Ok(())
}

/// First of all the grant, also for a repeat: a revoked grant gets no recorded answer back.
fn authorise(tx: &Tx<'_>, grant: GrantKey, now_ms: u64) -> Result<Force, Failed> {
    match store::grants::in_force(tx, grant)? {
        Err(why) => Err(Refusal::Fallen(why).into()),
        Ok(force) if force.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms) => {
            Err(Refusal::Fallen(Fallen::Expired).into())
        }
        Ok(force) => Ok(force),
    }
}

/// And with it the epoch of the object it came through, if the author of the op named one.
fn same_epoch(tx: &Tx<'_>, object: LogId, believed: Option<u64>) -> Result<(), Failed> {
    let Some(got) = believed else { return Ok(()) };
    let current = store::logs::get(tx, object)?.epoch;
    match got == current {
        true => Ok(()),
        false => Err(Refusal::EpochStale { current, got }.into()),
    }
}

/// Through a share only while it is published, and if it can be appended to. Any other object is its own
/// log.
fn published(tx: &Tx<'_>, object: LogId, log: LogId) -> Result<(), Failed> {
    if object == log {
        return Ok(());
    }
    match store::shares::terms(tx, object)?.filter(|terms| terms.open) {
        None => Err(Refusal::Op(ShareEnded.into()).into()),
        Some(terms) if !terms.append => Err(Refusal::Op(ReadOnlyShare.into()).into()),
        Some(_) => Ok(()),
    }
}

/// Guests of a share have a part of the places, so that they cannot take the owner's.
fn room_for_producer(tx: &Tx<'_>, state: &LogState, share: Option<LogId>) -> Result<(), Failed> {
    let within = |count: u64, max: u64| match count >= max {
        true => Err(Failed::from(Refusal::TooManyProducers { max })),
        false => Ok(()),
    };
    if let Some(share) = share {
        within(store::producers::count_of_share(tx, share)?, PRODUCERS_PER_SHARE_MAX)?;
    }
    within(state.producers, PRODUCERS_PER_LOG_MAX)
}

fn subscribe(tx: &Tx<'_>, now_ms: u64, subscribing: &Subscribing) -> Result<Taken, Failed> {
    let Subscribing { grant, stretch, name, after, idle_ms_max } = subscribing;
    authorise(tx, *grant, now_ms)?;
    let (known, all) = store::subscriptions::count(tx, stretch.log(), name)?;
    if !known {
        // First all that may be refused: a refusal leaves nothing behind.
        let head = store::ops::bounds(tx, *stretch)?.head;
        feed::exists(*after, head).map_err(Refusal::from)?;
        if let Some(share) = name.share() {
            let guests = store::subscriptions::count_of_share(tx, stretch.log(), &share)?;
            let max = DURABLE_SUBSCRIPTIONS_PER_SHARE_MAX;
            if guests >= max {
                return Err(Refusal::TooManySubscriptions { max }.into());
            }
        }
        let max = DURABLE_SUBSCRIPTIONS_PER_LOG_MAX;
        let since_ms = now_ms.saturating_sub(*idle_ms_max);
        if all >= max && store::subscriptions::forget_unused(tx, stretch.log(), since_ms)? == 0 {
            return Err(Refusal::TooManySubscriptions { max }.into());
        }
    }
    Ok(store::subscriptions::take(tx, stretch.log(), name, *after, now_ms)?)
}

/// Where the run stands, and whether that is new.
fn register(
    tx: &Tx<'_>,
    now_ms: u64,
    registering: &Registering,
) -> Result<(Registered, bool), Failed> {
    let Registering { grant, log, object, registration: asked } = registering;
    authorise(tx, *grant, now_ms)?;
    published(tx, *object, *log)?;
    let state = there(store::logs::get(tx, *log)?)?;
    same_epoch(tx, *object, asked.capability_epoch)?;
    let known = store::producers::get(tx, *log, asked.producer)?;
    let before = known.map(|(_, state)| state).unwrap_or_default();
    let after = registration::register(before, asked).map_err(Refusal::from)?;
    match known {
        None => {
            let share = Some(*object).filter(|object| object != log);
            room_for_producer(tx, &state, share)?;
            store::producers::create(tx, *log, asked.producer, after, share)?;
        }
        Some((key, before)) if before != after => {
            store::producers::set(tx, key, after)?;
            store::receipts::drop_through(tx, key, after.acked_through)?;
        }
        Some(_) => {}
    }
    let registered = Registered {
        epoch: after.epoch,
        next_expected_seq: after.high + 1,
        floor: after.acked_through + 1,
        cursor: state.head,
    };
    Ok((registered, known.is_none_or(|(_, before)| before != after)))
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
    if ops > 0 {
        store::contents::sweep_log(tx, log)?;
    }
    Ok(Freed { swept: through, ops, bytes })
}
