//! The life of one connection: what was handed out through it, and the end of all that.
//!
//! A client can pass the server's own objects back to it and so tie knots that outlive the connection.
//! Therefore nothing relies on objects being dropped: they reach the server only through the scope, and
//! the scope lets go when the connection ends.

use super::House;
use super::error::{Denied, to_wire};
use super::order::Order;
use crate::engine::LiveLog;
use crate::limits::{ACKS_AT_ONCE_MAX, OPS_IN_FLIGHT_MAX, PAGES_AT_ONCE_MAX, REDEEMS_AT_ONCE_MAX};
use crate::model::ids::{GrantKey, LogId};
use crate::model::rights::{Right, Rights};
use futures::future::LocalBoxFuture;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Everything one connection has in common.
pub struct Scope {
    house: RefCell<Option<Rc<House>>>,
    objects: Cell<usize>,
    objects_max: usize,
    /// What objects share with those of other connections, by the number of their claim. It is kept
    /// here and not in the objects, so that it goes with the connection.
    live: RefCell<HashMap<u64, Arc<LiveLog>>>,
    claims: Cell<u64>,
    link: Box<dyn Link>,
    pages: Semaphore,
    acks: Semaphore,
    redeems: Semaphore,
    ops_in_flight: Cell<usize>,
}

/// What a scope asks of the connection it belongs to.
pub trait Link {
    /// The connection begins or ceases to hold objects.
    fn holding(&self, holding: bool);

    /// Waits until the peer has taken enough of what it was sent that it may be sent more.
    fn room(&self) -> LocalBoxFuture<'_, ()>;
}

impl Scope {
    /// A scope that is open until [`Scope::close`].
    pub fn new(house: Rc<House>, link: impl Link + 'static) -> Rc<Self> {
        Rc::new(Self {
            objects_max: house.limits.objects_max,
            house: RefCell::new(Some(house)),
            objects: Cell::new(0),
            live: RefCell::default(),
            claims: Cell::new(0),
            link: Box::new(link),
            pages: Semaphore::new(PAGES_AT_ONCE_MAX),
            acks: Semaphore::new(ACKS_AT_ONCE_MAX),
            redeems: Semaphore::new(REDEEMS_AT_ONCE_MAX),
            ops_in_flight: Cell::new(0),
        })
    }

    /// Ends it: whatever object is still around answers `connection-over` and keeps nothing alive.
    pub fn close(&self) {
        let house = self.house.borrow_mut().take();
        let live = self.live.take();
        drop((house, live));
    }

    /// Waits for its turn to have a ref redeemed.
    pub(super) async fn turn_to_redeem(&self) -> Option<SemaphorePermit<'_>> {
        self.redeems.acquire().await.ok()
    }

    /// The server, while the connection lasts.
    pub(super) fn house(&self) -> Result<Rc<House>, Denied> {
        self.house.borrow().clone().ok_or(Denied::ConnectionOver)
    }
}

/// An object's claim: under which grant it acts, what it may do, and its place among the objects of
/// its connection.
pub(super) struct Claim {
    scope: Rc<Scope>,
    number: u64,
    order: Rc<Order>,
    grant: GrantKey,
    rights: Rights,
}

impl Claim {
    /// A place for one more object.
    pub(super) fn new(scope: &Rc<Scope>, grant: GrantKey, rights: Rights) -> Result<Self, Denied> {
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
        Ok(Self { scope: scope.clone(), number, order: Rc::default(), grant, rights })
    }

    /// A place for an object reached through this one, with the same authority.
    pub(super) fn derive(&self) -> Result<Self, Denied> {
        Self::new(&self.scope, self.grant, self.rights)
    }

    /// The server, if this object may do that.
    pub(super) fn require(&self, right: Right) -> Result<Rc<House>, capnp::Error> {
        if !self.rights.contains(right) {
            return Err(to_wire(Denied::Right(right)));
        }
        self.scope.house().map_err(to_wire)
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
