//! `Vat`: what a new connection starts with.

use super::error::to_wire;
use super::scope::{Claim, Scope};
use super::{decode, encode, project, root, session};
use crate::queries::Object;
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
        let asked = house.readers.redeem(sturdy_ref, house.verifier_key.clone(), now_ms).await;
        let found = asked.map_err(to_wire)?.map_err(to_wire)?;
        // First a place among those a revocation reaches, then the question whether it has come already.
        let standing = house.engine.stand(found.grant);
        let again = house.readers.granted(found.grant).await.map_err(to_wire)?;
        standing.found(again.in_force);
        standing.check(|| house.clock.now_ms()).map_err(to_wire)?;
        let claim =
            Claim::new(&self.scope, found.grant, found.rights, standing).map_err(to_wire)?;

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
}
