//! `Vat`: what a new connection starts with.

use super::error::to_wire;
use super::scope::{Claim, Scope};
use super::{decode, encode, object, project, root, session};
use crate::engine::Claiming;
use crate::model::grant::{self, Noting};
use crate::model::sturdy_ref::{Secret, SturdyRef};
use crate::queries::{Object, Shown};
use crate::wire::bowline_capnp::{ObjectKind, vat};
use std::rc::Rc;

pub(super) struct Vat {
    scope: Rc<Scope>,
}

impl Vat {
    pub(super) fn new(scope: Rc<Scope>) -> Self {
        Self { scope }
    }
}

impl vat::Server for Vat {
    async fn hello(
        self: Rc<Self>,
        params: vat::HelloParams,
        mut results: vat::HelloResults,
    ) -> capnp::Result<()> {
        drop(params);
        let house = self.scope.house().map_err(to_wire)?;
        encode::server_info(&house, results.get().init_server());
        Ok(())
    }

    async fn redeem(
        self: Rc<Self>,
        params: vat::RedeemParams,
        mut results: vat::RedeemResults,
    ) -> capnp::Result<()> {
        let sturdy_ref = decode::sturdy_ref(params.get()).map_err(to_wire)?;
        drop(params);
        let _turn = self.scope.turn_to_redeem().await;
        let house = self.scope.house().map_err(to_wire)?;

        let now_ms = house.clock.now_ms();
        let asked =
            house.readers.redeem(sturdy_ref, house.verifier_key.clone(), Shown::Ref, now_ms).await;
        let found = self.scope.shown(asked.map_err(to_wire)?).await.map_err(to_wire)?;
        let standing = object::stand(&house, found.grant).await?;
        let claim =
            Claim::new(&self.scope, found.grant, found.rights, standing).map_err(to_wire)?;
        match found.found.authority.noting(found.found.last_used_at_ms, now_ms) {
            Noting::Counted => {
                house.engine.redeem(found.grant).answer().await.map_err(to_wire)?;
            }
            // Nobody waits for it.
            Noting::Noted => drop(house.engine.redeem(found.grant)),
            Noting::Nothing => {}
        }

        let mut results = results.get();
        let (kind, object) = match found.object {
            Object::Root => (ObjectKind::Root, root::client(claim).client),
            Object::Project(key) => (ObjectKind::Project, project::client(claim, key).client),
            Object::Session(key) => (ObjectKind::Session, session::client(claim, key).client),
        };
        results.set_kind(kind);
        results.set_epoch(found.epoch);
        results.init_object().set_as_capability(object.hook);
        Ok(())
    }

    async fn claim(
        self: Rc<Self>,
        params: vat::ClaimParams,
        mut results: vat::ClaimResults,
    ) -> capnp::Result<()> {
        let (sturdy_ref, seed) = decode::claim(params.get()).map_err(to_wire)?;
        drop(params);
        let _turn = self.scope.turn_to_redeem().await;
        let house = self.scope.house().map_err(to_wire)?;
        let (address, key) = (house.address.clone(), house.verifier_key.clone());
        let asked =
            house.readers.redeem(sturdy_ref, key.clone(), Shown::Claim, house.clock.now_ms()).await;
        let found = self.scope.shown(asked.map_err(to_wire)?).await.map_err(to_wire)?;
        let secret = Secret::from_seed(&seed, grant::claimed(found.found.id), &key);
        let claiming = Claiming { claim: found.grant, verifier: secret.verifier(&key) };
        let grant = house.engine.claim(claiming).answer().await.map_err(to_wire)?;
        results.get().set_ref(SturdyRef { address, grant, secret }.reveal().as_str());
        Ok(())
    }
}
