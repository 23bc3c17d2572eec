//! The life of one connection: what was handed out through it, what it may have under way at one time, and
//! the end of all that.
//!
//! A client can pass the server's own objects back to it and so tie knots that outlive the connection.
//! Therefore nothing relies on objects being dropped: they reach the server only through the scope, and
//! the scope lets go when the connection ends.

use super::House;
use super::decode::Permit;
use super::error::{Denied, to_wire};
use super::feed;
use super::order::Order;
use super::strangers::Peer;
use crate::engine::{Denial, LiveLog, Standing};
use crate::limits::{
    ACKS_AT_ONCE_MAX, FEED_PAGES_AT_ONCE_MAX, OPS_IN_FLIGHT_MAX, PAGES_AT_ONCE_MAX,
    REDEEMS_AT_ONCE_MAX, STREAMED_BYTES_MAX,
};
use crate::model::caveats::Caveats;
use crate::model::code::{Code, Coded};
use crate::model::grant::Authority;
use crate::model::ids::{GrantKey, LogId};
use crate::model::rights::{Right, Rights};
use crate::queries::QueryError;
use crate::wire::feed_capnp::sink;
use futures::future::LocalBoxFuture;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio_util::task::AbortOnDropHandle;

/// Everything one connection has in common.
pub struct Scope {
    house: RefCell<Option<Rc<House>>>,
    objects: Cell<usize>,
    objects_max: usize,
    /// What objects share with those of other connections, by the number of their claim. It is kept
    /// here and not in the objects, so that it goes with the connection.
    live: RefCell<HashMap<u64, Arc<LiveLog>>>,
    claims: Cell<u64>,
    /// The feeds that run, by the number of their claim, for the same reason.
    feeds: RefCell<HashMap<u64, Feeding>>,
    feeds_begun: Cell<usize>,
    feeds_max: usize,
    /// The server is stopping; no more feeds.
    dismissed: Cell<bool>,
    feed_turns: Arc<Semaphore>,
    link: Box<dyn Link>,
    pages: Semaphore,
    acks: Semaphore,
    redeems: Semaphore,
    ops_in_flight: Cell<usize>,
    streamed_bytes: Cell<usize>,
    streamed: Notify,
}

/// What a scope asks of the connection it belongs to.
pub trait Link {
    /// The connection begins or ceases to hold objects.
    fn holding(&self, holding: bool);

    /// Waits until the peer has taken enough of what it was sent that it may be sent more.
    fn room(&self) -> LocalBoxFuture<'_, ()>;

    /// Where the peer comes from.
    fn peer(&self) -> Peer;
}

impl Scope {
    /// A scope that is open until [`Scope::close`].
    pub fn new(house: Rc<House>, link: impl Link + 'static) -> Rc<Self> {
        Rc::new(Self {
            objects_max: house.limits.objects_max,
            feeds_max: house.limits.subscriptions_max,
            feeds: RefCell::default(),
            feeds_begun: Cell::new(0),
            dismissed: Cell::new(false),
            feed_turns: Arc::new(Semaphore::new(FEED_PAGES_AT_ONCE_MAX)),
            house: RefCell::new(Some(house)),
            objects: Cell::new(0),
            live: RefCell::default(),
            claims: Cell::new(0),
            link: Box::new(link),
            pages: Semaphore::new(PAGES_AT_ONCE_MAX),
            acks: Semaphore::new(ACKS_AT_ONCE_MAX),
            redeems: Semaphore::new(REDEEMS_AT_ONCE_MAX),
            ops_in_flight: Cell::new(0),
            streamed_bytes: Cell::new(0),
            streamed: Notify::new(),
        })
    }

    /// Ends it: whatever object is still around answers `connection-over` and keeps nothing alive.
    pub fn close(&self) {
        let house = self.house.borrow_mut().take();
        let live = self.live.take();
        let feeds = self.feeds.take();
        drop((house, live, feeds));
    }

    /// The server is stopping: running feeds end, and are told why.
    pub fn dismiss(&self) {
        self.dismissed.set(true);
        let feeds = self.feeds.take();
        for feeding in feeds.into_values() {
            feed::end(&feeding.sink, Code::ShuttingDown, Code::ShuttingDown.meaning());
        }
    }

    /// Waits for its turn to have a ref redeemed.
    pub(super) async fn turn_to_redeem(&self) -> Option<SemaphorePermit<'_>> {
        self.redeems.acquire().await.ok()
    }

    /// A wrong ref was shown. A peer that goes on with that waits longer each time.
    pub(super) async fn wrong_ref(&self, house: &House) {
        let pause = house.strangers.wrong(self.link.peer(), house.clock.now_ms());
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }

    /// The server, while the connection lasts.
    pub(super) fn house(&self) -> Result<Rc<House>, Denied> {
        self.house.borrow().clone().ok_or(Denied::ConnectionOver)
    }
}

/// What an object may do, for what, and whether it still may.
#[derive(Clone)]
pub(super) struct Powers {
    rights: Rights,
    caveats: Arc<Caveats>,
    standing: Arc<Standing>,
}

impl Powers {
    /// Those of a grant that was found to stand.
    pub(super) fn new(authority: &Authority, standing: Arc<Standing>) -> Self {
        let caveats = standing.caveats(&authority.caveats);
        Self { rights: authority.rights, caveats, standing }
    }
}

/// An object's claim: under which grant it acts, what it may do, and its place among the objects of
/// its connection.
pub(super) struct Claim {
    scope: Rc<Scope>,
    number: u64,
    order: Rc<Order>,
    grant: GrantKey,
    powers: Powers,
    /// The object itself, for the audit trail.
    about: LogId,
}

impl Claim {
    /// A place for one more object, held under a grant that was found to stand.
    pub(super) fn new(scope: &Rc<Scope>, grant: GrantKey, powers: Powers) -> Result<Self, Denied> {
        let held = scope.objects.get();
        if held >= scope.objects_max {
            return Err(Denied::TooManyObjects);
        }
        scope.objects.set(held + 1);
        if held == 0 {
            scope.link.holding(true);
        }
        let number = scope.claims.get();
        scope.claims.set(number + 1);
        let (scope, order, about) = (scope.clone(), Rc::default(), LogId::ROOT);
        Ok(Self { scope, number, order, grant, powers, about })
    }

    /// The same for an object that is known.
    pub(super) fn about(self, log: LogId) -> Self {
        // A claim has a drop of its own, so its parts cannot be moved into another one.
        let mut claim = self;
        claim.about = log;
        claim
    }

    /// A place for an object reached through this one, with the same authority.
    pub(super) fn derive(&self) -> Result<Self, Denied> {
        let derived = self.derive_under(self.grant, self.powers.clone());
        derived.map(|derived| derived.about(self.about))
    }

    /// A place for an object reached through this one, under a grant of its own.
    pub(super) fn derive_under(&self, grant: GrantKey, powers: Powers) -> Result<Self, Denied> {
        Self::new(&self.scope, grant, powers)
    }

    /// The server, if the grant still stands.
    pub(super) fn house(&self) -> Result<Rc<House>, capnp::Error> {
        let house = self.scope.house().map_err(to_wire)?;
        match self.powers.standing.check(|| house.clock.now_ms()) {
            Ok(()) => Ok(house),
            Err(fallen) => {
                self.denied(&house, fallen.code(), None);
                Err(to_wire(fallen))
            }
        }
    }

    /// Notes that somebody was refused.
    fn denied(&self, house: &House, code: Code, missing: Option<Right>) {
        let granted = Some(self.grant);
        house.engine.deny(Denial {
            granted,
            log: Some(self.about),
            missing,
            ..Denial::of_stranger(code)
        });
    }

    /// Waits for the answer to a question. Whoever lost the authority meanwhile does not get it.
    pub(super) async fn ask<T>(
        &self,
        question: impl Future<Output = Result<T, QueryError>>,
    ) -> capnp::Result<T> {
        let answer = self.look_up(question).await?;
        self.powers.standing.count_read();
        Ok(answer)
    }

    /// The same for something that is not given to whoever asks, and is no read of its own.
    pub(super) async fn look_up<T>(
        &self,
        question: impl Future<Output = Result<T, QueryError>>,
    ) -> capnp::Result<T> {
        let answer = question.await;
        self.house()?;
        answer.map_err(to_wire)
    }

    /// Whether this object carries a right, for what is told and not for what is done.
    pub(super) fn carries(&self, right: Right) -> bool {
        self.powers.rights.contains(right)
    }

    /// For what it may be used.
    pub(super) fn caveats(&self) -> &Caveats {
        &self.powers.caveats
    }

    /// What ops may say through it.
    pub(super) fn permit(&self) -> Permit<'_> {
        Permit { caveats: self.caveats(), may_turn: self.carries(Right::Turn) }
    }

    /// The grant whose messages alone it may see, if it is so.
    pub(super) fn own_only(&self) -> Option<GrantKey> {
        self.powers.caveats.only_own.then_some(self.grant)
    }

    /// What is shared by all who hold something under the same grant.
    pub(super) fn standing(&self) -> &Arc<Standing> {
        &self.powers.standing
    }

    /// The server, if this object may do that.
    pub(super) fn require(&self, right: Right) -> Result<Rc<House>, capnp::Error> {
        let house = self.house()?;
        match self.powers.rights.contains(right) {
            true => Ok(house),
            false => {
                self.denied(&house, Code::NotPermitted, Some(right));
                Err(to_wire(Denied::Right(right)))
            }
        }
    }

    /// The server, if this object may be read, once the changes sent before through this object are
    /// decided. The right is checked after the wait.
    pub(super) async fn require_read(&self) -> Result<Rc<House>, capnp::Error> {
        self.order.settled().await;
        self.require(Right::Read)
    }

    /// Waits for its turn to have a page read. Whatever was checked before must be checked after.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.turn_in(&self.scope.pages).await
    }

    /// Waits for its turn to have an ack written.
    pub(super) async fn turn_to_ack(&self) -> Option<SemaphorePermit<'_>> {
        self.turn_in(&self.scope.acks).await
    }

    async fn turn_in<'a>(&self, turns: &'a Semaphore) -> Option<SemaphorePermit<'a>> {
        // The semaphores are never closed; without a permit there would just be no waiting.
        let permit = turns.acquire().await.ok();
        self.scope.link.room().await;
        permit
    }

    /// A place for ops on their way to the disk and back.
    pub(super) fn carry(&self, ops: usize) -> Result<Carried, Denied> {
        let all = self.scope.ops_in_flight.get() + ops;
        if all > OPS_IN_FLIGHT_MAX {
            return Err(Denied::TooManyOps);
        }
        self.scope.ops_in_flight.set(all);
        Ok(Carried { scope: self.scope.clone(), ops })
    }

    /// A place for one more feed.
    pub(super) fn feed(&self) -> Result<FeedPlace, Denied> {
        if self.scope.dismissed.get() {
            return Err(Denied::Stopping);
        }
        let begun = self.scope.feeds_begun.get();
        if begun >= self.scope.feeds_max {
            return Err(Denied::TooManyFeeds);
        }
        self.scope.feeds_begun.set(begun + 1);
        Ok(FeedPlace { scope: self.scope.clone() })
    }

    /// Keeps the feed of this object until it ends, or the object or the connection does.
    pub(super) fn keep_feed(&self, feeding: Feeding) {
        if self.scope.dismissed.get() {
            return feed::end(&feeding.sink, Code::ShuttingDown, Code::ShuttingDown.meaning());
        }
        let before = self.scope.feeds.borrow_mut().insert(self.number, feeding);
        drop(before);
    }

    /// The feed of this object, if it has one, is over.
    pub(super) fn end_feed(&self) {
        let feeding = self.scope.feeds.borrow_mut().remove(&self.number);
        drop(feeding);
    }

    /// Waits for its turn to send something to a sink.
    pub(super) async fn turn_to_feed(&self) -> FeedTurn {
        // The semaphore is never closed; without a permit there would just be no waiting.
        let permit = self.scope.feed_turns.clone().acquire_owned().await.ok();
        self.scope.link.room().await;
        FeedTurn { _permit: permit }
    }

    /// Bytes that were streamed in and are not on disk yet.
    pub(super) fn stream(&self, bytes: usize) -> Streamed {
        let mut streamed = Streamed { scope: self.scope.clone(), bytes: 0 };
        streamed.add(bytes);
        streamed
    }

    /// Waits until more may be streamed in through this connection.
    pub(super) async fn stream_room(&self) {
        loop {
            let streamed = self.scope.streamed.notified();
            if self.scope.streamed_bytes.get() <= STREAMED_BYTES_MAX {
                return;
            }
            streamed.await;
        }
    }

    /// What is known about the object's log without asking the store.
    pub(super) fn live(&self, house: &House, log: LogId) -> Arc<LiveLog> {
        let mut live = self.scope.live.borrow_mut();
        live.entry(self.number).or_insert_with(|| house.engine.hold(log)).clone()
    }

    /// The changes under way through this object.
    pub(super) fn order(&self) -> &Rc<Order> {
        &self.order
    }

    /// Under which grant it acts.
    pub(super) fn grant(&self) -> GrantKey {
        self.grant
    }
}

/// Ops on their way; given back when dropped.
pub(super) struct Carried {
    scope: Rc<Scope>,
    ops: usize,
}

impl Drop for Carried {
    fn drop(&mut self) {
        self.scope.ops_in_flight.set(self.scope.ops_in_flight.get() - self.ops);
    }
}

/// A feed that runs.
pub(super) struct Feeding {
    pub(super) _task: AbortOnDropHandle<()>,
    pub(super) sink: sink::Client,
    pub(super) _place: FeedPlace,
}

/// A feed's turn to send something; over when dropped.
pub(super) struct FeedTurn {
    _permit: Option<OwnedSemaphorePermit>,
}

/// A place among the feeds of a connection; given back when dropped.
pub(super) struct FeedPlace {
    scope: Rc<Scope>,
}

impl Drop for FeedPlace {
    fn drop(&mut self) {
        self.scope.feeds_begun.set(self.scope.feeds_begun.get() - 1);
    }
}

/// Bytes streamed in; given back when dropped.
pub(super) struct Streamed {
    scope: Rc<Scope>,
    bytes: usize,
}

impl Streamed {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.scope.streamed_bytes.set(self.scope.streamed_bytes.get() + bytes);
    }

    /// A part of them, to be given back separately.
    pub(super) fn split(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { scope: self.scope.clone(), bytes }
    }
}

impl Drop for Streamed {
    fn drop(&mut self) {
        self.scope.streamed_bytes.set(self.scope.streamed_bytes.get() - self.bytes);
        self.scope.streamed.notify_waiters();
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let live = self.scope.live.borrow_mut().remove(&self.number);
        drop(live);
        let held = self.scope.objects.get().saturating_sub(1);
        self.scope.objects.set(held);
        if held == 0 {
            self.scope.link.holding(false);
        }
    }
}
