//! The life of one connection: what was handed out through it, and the end of all that.
//!
//! A client can pass the server's own objects back to it and so tie knots that outlive the connection.
//! Therefore nothing relies on objects being dropped: they reach the server only through the scope, and
//! the scope lets go when the connection ends.

use super::House;
use super::error::{Denied, to_wire};
use crate::model::ids::GrantKey;
use crate::model::rights::{Right, Rights};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Everything one connection has in common.
pub struct Scope {
    house: RefCell<Option<Rc<House>>>,
    objects: Cell<usize>,
    objects_max: usize,
    /// Told when the connection begins and ceases to hold objects.
    on_holding: Box<dyn Fn(bool)>,
}

impl Scope {
    /// A scope that is open until [`Scope::close`].
    pub fn new(house: Rc<House>, on_holding: impl Fn(bool) + 'static) -> Rc<Self> {
        Rc::new(Self {
            objects_max: house.limits.objects_max,
            house: RefCell::new(Some(house)),
            objects: Cell::new(0),
            on_holding: Box::new(on_holding),
        })
    }

    /// Ends it: whatever object is still around answers `connection-over` and keeps nothing alive.
    pub fn close(&self) {
        let house = self.house.borrow_mut().take();
        drop(house);
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
            (scope.on_holding)(true);
        }
        Ok(Self { scope: scope.clone(), grant, rights })
    }

    /// A place for an object reached through this one, with the same authority, and the server it is
    /// served from.
    pub(super) fn derive(&self) -> Result<(Rc<House>, Self), Denied> {
        let house = self.scope.house()?;
        Ok((house, Self::new(&self.scope, self.grant, self.rights)?))
    }

    /// The server, if this object may do that.
    pub(super) fn require(&self, right: Right) -> Result<Rc<House>, capnp::Error> {
        if !self.rights.contains(right) {
            return Err(to_wire(Denied::Right(right)));
        }
        self.scope.house().map_err(to_wire)
    }

    /// Under which grant it acts.
    pub(super) fn grant(&self) -> GrantKey {
        self.grant
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let held = self.scope.objects.get().saturating_sub(1);
        self.scope.objects.set(held);
        if held == 0 {
            (self.scope.on_holding)(false);
        }
    }
}
