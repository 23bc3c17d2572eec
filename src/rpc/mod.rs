//! The wire's door: one file per interface.
//!
//! A method is a doorman: decode, authorise, call, encode. No rule lives here. `Rc` and everything
//! else that cannot leave its thread ends at this room; what goes on to the engine is plain values.
//!
//! Methods that change something hand their batch to the engine *before* their first await, while the
//! call is being dispatched. That is why calls on one object take effect in the order they were sent;
//! questions wait for the changes sent before them on the same object.
//!
//! Every facet is an object of its own: two interfaces over one `Rc` would share one export, and the
//! holder of the lesser could cast it to the greater.

mod decode;
mod encode;
mod error;
mod feed;
mod logged;
mod object;
mod order;
mod part_writer;
mod project;
mod root;
mod scope;
mod session;
mod share;
mod snapshot;
mod strangers;
mod turn;
mod upload;
mod vat;
mod watcher;
mod worktree;
mod writer;

pub use scope::{Link, Scope};
pub use strangers::{Peer, Strangers};

use crate::clock::Clock;
use crate::engine::{Engine, Refusal, Registered, Registering, Submission, Submitted};
use crate::limits::Limits;
use crate::model::feed::Stretch;
use crate::model::ids::{GrantKey, LogId, RealmId, SubscriptionName};
use crate::model::ledger::{Ack, BatchHeader, Decision, Made, Outcome};
use crate::model::registration::Registration;
use crate::model::rights::Right;
use crate::model::sturdy_ref::{SturdyRef, VerifierKey};
use crate::ops::Op;
use crate::queries::Readers;
use crate::worktrees::Worktrees;
use error::{Denied, to_wire};
use futures::future::BoxFuture;
use order::UnderWay;
use scope::{Carried, Claim};
use std::rc::Rc;
use std::sync::Arc;

/// What every connection is served from; shared by all worker threads.
#[derive(Clone)]
pub struct House {
    /// The only way to change something.
    pub engine: Engine,
    /// The only way to look something up.
    pub readers: Readers,
    /// Whose data this is.
    pub realm: RealmId,
    /// What ref secrets are hashed with.
    pub verifier_key: VerifierKey,
    /// Which start of the server this is.
    pub incarnation: u64,
    /// What a connection may ask for.
    pub limits: Limits,
    /// Where refs say that the server is.
    pub address: String,
    /// What the time is.
    pub clock: Arc<dyn Clock>,
    /// Who shows refs that stand for nothing.
    pub strangers: Arc<Strangers>,
    /// The files agents work on.
    pub worktrees: Worktrees,
    /// Keeps the root's ref where the operator finds it.
    pub keep_root_ref: KeepRootRef,
}

/// See [`House::keep_root_ref`].
pub type KeepRootRef = Arc<dyn Fn(SturdyRef) -> BoxFuture<'static, ()> + Send + Sync>;

/// The object a new connection starts with. It carries no authority.
pub fn bootstrap(scope: Rc<Scope>) -> capnp::capability::Client {
    capnp_rpc::new_client::<crate::wire::bowline_capnp::vat::Client, _>(vat::Vat::new(scope)).client
}

/// A batch on its way to the disk.
struct OnItsWay {
    submitted: Submitted<Ack>,
    incarnation: u64,
    _under_way: UnderWay,
    carried: Carried,
}

impl OnItsWay {
    async fn answer(self) -> Result<(Ack, Carried), Refusal> {
        let Self { submitted, _under_way, carried, .. } = self;
        Ok((submitted.answer().await?, carried))
    }
}

/// Which log a batch is for, and through which object it comes.
#[derive(Clone, Copy)]
struct Target {
    log: LogId,
    object: LogId,
    /// Whether that object is good only for what was written under its own grant.
    only_own: bool,
}

impl From<LogId> for Target {
    fn from(log: LogId) -> Self {
        Self { log, object: log, only_own: false }
    }
}

/// Hands a batch to the engine, if the object carries the right. It is queued when this returns.
fn submit(
    claim: &Claim,
    right: impl Into<Option<Right>>,
    target: impl Into<Target>,
    header: BatchHeader,
    ops: Vec<Op>,
) -> capnp::Result<OnItsWay> {
    let house = match right.into() {
        Some(right) => claim.require(right)?,
        None => claim.house()?,
    };
    let carried = claim.carry(ops.len()).map_err(to_wire)?;
    let under_way = claim.order().begin();
    let Target { log, object, only_own } = target.into();
    let grant = claim.grant();
    let submission = Submission { grant, log, object, only_own, header, ops };
    let submitted = house.engine.submit(submission);
    Ok(OnItsWay { submitted, incarnation: house.incarnation, _under_way: under_way, carried })
}

/// The same for ops of a session, as they were sent.
fn append(
    claim: &Claim,
    target: impl Into<Target>,
    asked: capnp::Result<decode::SentOps<'_>>,
) -> capnp::Result<OnItsWay> {
    let (header, ops) = decode::append(asked, &claim.permit()).map_err(to_wire)?;
    submit(claim, Right::Append, target, header, ops)
}

/// Waits until such ops are decided; what became of them, and which start of the server says so. The turn and
/// the ops' place are given back when the rest is dropped.
async fn decided<'a>(
    claim: &'a Claim,
    sent: capnp::Result<OnItsWay>,
) -> capnp::Result<(Ack, u64, impl Sized + 'a)> {
    let sent = sent?;
    let incarnation = sent.incarnation;
    let (ack, carried) = sent.answer().await.map_err(to_wire)?;
    let turn = claim.turn_to_ack().await;
    Ok((ack, incarnation, (turn, carried)))
}

/// The same for a call that is one op and returns an object: the object's place is taken first, so that
/// a connection that holds too many is told before anything is done.
fn submit_for_object(
    claim: &Claim,
    log: LogId,
    header: BatchHeader,
    op: Op,
) -> capnp::Result<(OnItsWay, Claim)> {
    let place = claim.derive().map_err(to_wire)?;
    Ok((submit(claim, Right::Append, log, header, vec![op])?, place))
}

/// Announces a run of a producer to the log of an object that may append. It is queued when this returns.
fn register(
    claim: &Claim,
    target: impl Into<Target>,
    asked: Result<Registration, decode::Malformed>,
) -> capnp::Result<(Submitted<Registered>, u64)> {
    let registration = asked.map_err(to_wire)?;
    let house = claim.require(Right::Append)?;
    let Target { log, object, .. } = target.into();
    let registering = Registering { grant: claim.grant(), log, object, registration };
    Ok((house.engine.register(registering), house.incarnation))
}

/// Drops a named subscription of an object that may be read. It is queued when this returns.
fn forget(
    claim: &Claim,
    stretch: Stretch,
    name: Result<SubscriptionName, decode::Malformed>,
) -> capnp::Result<Submitted<bool>> {
    let name = name.map_err(to_wire)?;
    let house = claim.require(Right::Read)?;
    Ok(house.engine.forget(claim.grant(), stretch, name))
}

/// What a call that is one op has made or found, and whether the op made it.
fn made(answer: Result<(Ack, Carried), Refusal>) -> capnp::Result<(Made, bool)> {
    let (mut ack, _) = answer.map_err(to_wire)?;
    match (ack.outcomes.pop(), ack.stopped) {
        (Some(Outcome::Fresh(decision) | Outcome::Repeat(decision)), _) => match decision {
            Decision::Applied { made, .. } => Ok((made, true)),
            Decision::AppliedTo { made, .. } | Decision::Unchanged { made } => Ok((made, false)),
            Decision::Rejected { code, text } => Err(error::recorded(&code, &text)),
            Decision::Conflicted(conflict) => Err(to_wire(conflict)),
        },
        (Some(Outcome::RepeatDropped), _) => Err(to_wire(Denied::ResultDropped)),
        (None, Some(stop)) => Err(to_wire(stop)),
        (None, None) => Err(impossible()),
    }
}

/// The grant an op has made.
fn grant_made((made, _): (Made, bool)) -> capnp::Result<GrantKey> {
    match made {
        Made::Grant(key) => Ok(key),
        _ => Err(impossible()),
    }
}

/// How many sessions an op has removed.
fn removed((made, _): (Made, bool)) -> capnp::Result<u64> {
    match made {
        Made::Removed(removed) => Ok(removed),
        _ => Err(impossible()),
    }
}

/// How many grants an op has cut.
fn cut((made, _): (Made, bool)) -> capnp::Result<u64> {
    match made {
        Made::Cut(cut) => Ok(cut),
        _ => Err(impossible()),
    }
}

/// For something in the store that cannot be put on the wire.
fn unreadable(error: capnp::Error) -> capnp::Error {
    tracing::error!(%error, "something stored cannot be read");
    to_wire(Denied::Internal)
}

/// For answers the engine never gives; a client sees `internal`, the log says where.
#[track_caller]
fn impossible() -> capnp::Error {
    tracing::error!(at = %std::panic::Location::caller(), "the engine gave an impossible answer");
    to_wire(Denied::Internal)
}

#[cfg(test)]
mod tests;
