//! `Vat`: what a new connection starts with.

use super::error::to_wire;
use super::scope::{Claim, Powers, Scope};
use super::{House, decode, encode, object};
use crate::engine::{Claiming, Denial, Refusal};
use crate::model::code::Coded;
use crate::model::grant;
use crate::model::ids::GrantKey;
use crate::model::sturdy_ref::{Secret, SturdyRef};
use crate::queries::{Redeemed, Showing, Shown};
use crate::wire::bowline_capnp::vat;
use std::rc::Rc;

pub(super) struct Vat {
    scope: Rc<Scope>,
}

impl Vat {
    pub(super) fn new(scope: Rc<Scope>) -> Self {
        Self { scope }
    }

    /// What a ref stands for. Whoever shows wrong ones is made to wait, and it is noted.
    async fn look_up(
        &self,
        house: &House,
        sturdy_ref: SturdyRef,
        own_ref: Option<SturdyRef>,
        shown_for: Shown,
    ) -> capnp::Result<Redeemed> {
        let (key, now_ms) = (house.verifier_key.clone(), house.clock.now_ms());
        let showing = Showing { sturdy_ref, own_ref, shown_for, key, now_ms };
        let found = house.readers.redeem(showing).await.map_err(to_wire)?;
        if let Err(error) = &found {
            house.engine.deny(Denial {
                granted: error.held(),
                shown: error.guessed(),
                ..Denial::of_stranger(error.code())
            });
            self.scope.wrong_ref(house).await;
        }
        found.map_err(to_wire)
    }
}

impl Vat {
    /// What came of using a ref. One that is used up is like a wrong one: whoever goes on waits.
    async fn used<T>(
        &self,
        house: &House,
        grant: GrantKey,
        used: Result<T, Refusal>,
    ) -> capnp::Result<T> {
        if let Err(Refusal::UsedUp(used_up)) = &used {
            let denial = Denial::of_stranger(used_up.code());
            house.engine.deny(Denial { granted: Some(grant), ..denial });
            self.scope.wrong_ref(house).await;
        }
        used.map_err(to_wire)
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
        let (sturdy_ref, own_ref) = decode::redeem(params.get()).map_err(to_wire)?;
        drop(params);
        let _turn = self.scope.turn_to_redeem().await;
        let house = self.scope.house().map_err(to_wire)?;
        let found = self.look_up(&house, sturdy_ref, own_ref, Shown::Ref).await?;
        let standing = object::stand(&house, found.grant).await?;
        let powers = Powers::new(&found.authority, standing);
        let claim = Claim::new(&self.scope, found.grant, powers).map_err(to_wire)?;
        // Nobody holds an object the audit trail does not know of.
        let redeemed = house.engine.redeem(found.grant).answer().await;
        self.used(&house, found.grant, redeemed).await?;
        claim.house()?;

        let mut results = results.get();
        let (kind, object) = object::client(claim, found.object);
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
        let found = self.look_up(&house, sturdy_ref, None, Shown::Claim).await?;
        let secret = Secret::from_seed(&seed, grant::claimed(found.id), &key);
        let claiming = Claiming { claim: found.grant, verifier: secret.verifier(&key) };
        let exchanged = house.engine.claim(claiming).answer().await;
        let grant = self.used(&house, found.grant, exchanged).await?;
        results.get().set_ref(SturdyRef { address, grant, secret }.reveal().as_str());
        Ok(())
    }
}
