//! `Object`: what every object offers besides its own methods.

use super::error::to_wire;
use super::scope::{Claim, Powers};
use super::{
    House, cut, decode, encode, grant_made, made, project, root, session, share, snapshot, submit,
    worktree,
};
use crate::engine::Standing;
use crate::model::grant::Held;
use crate::model::ids::GrantKey;
use crate::model::infos::ObjectKind;
use crate::model::ledger::Made;
use crate::model::rights::Right;
use crate::model::sturdy_ref::{Secret, SturdyRef};
use crate::queries::{Granted, Object as Found};
use crate::wire::bowline_capnp;
use crate::wire::grant_capnp::object;
use std::rc::Rc;
use std::sync::Arc;

/// An object that is held under a grant.
pub(super) trait Object: 'static {
    /// Its claim.
    fn claim(&self) -> &Claim;

    /// What it is.
    fn held(&self) -> Held;

    /// Its public name; empty for the server.
    fn id(&self) -> &str;
}

/// A grant's place among those a revocation reaches, if it stands. First the place, then the question
/// whether a revocation has come already: none can slip through in between.
pub(super) async fn stand(house: &House, key: GrantKey) -> capnp::Result<Arc<Standing>> {
    let standing = house.engine.stand(key);
    standing.found(house.readers.in_force(key).await.map_err(to_wire)?);
    standing.check(|| house.clock.now_ms()).map_err(to_wire)?;
    Ok(standing)
}

/// The object a grant is for, with the authority that grant has.
pub(super) async fn under(
    claim: &Claim,
    house: &House,
    key: GrantKey,
) -> capnp::Result<(capnp::capability::Client, Granted)> {
    let standing = stand(house, key).await?;
    let granted = house.readers.granted(key).await.map_err(to_wire)?;
    let powers = Powers::new(&granted.grant.authority, standing);
    let claim = claim.derive_under(key, powers).map_err(to_wire)?;
    let (_, object) = client(claim, granted.object.clone());
    Ok((object, granted))
}

/// The live object for what a grant is for, and what kind it is.
pub(super) fn client(
    claim: Claim,
    object: Found,
) -> (bowline_capnp::ObjectKind, capnp::capability::Client) {
    match object {
        Found::Root => (kind(ObjectKind::Root), root::client(claim).client),
        Found::Project(key) => (kind(ObjectKind::Project), project::client(claim, key).client),
        Found::Session(key) => (kind(ObjectKind::Session), session::client(claim, key).client),
        Found::Share(key) => (kind(ObjectKind::Share), share::client(claim, key).client),
        Found::Worktree(key) => (kind(ObjectKind::Worktree), worktree::client(claim, key).client),
        Found::Snapshot(key) => (kind(ObjectKind::Snapshot), snapshot::client(claim, key).client),
    }
}

/// The ref for a grant that was made, once that is known to be its holder's.
pub(super) async fn ref_for(
    claim: &Claim,
    house: &House,
    key: GrantKey,
    secret: Secret,
) -> capnp::Result<(SturdyRef, Granted)> {
    let granted = claim.look_up(house.readers.granted(key)).await?;
    let sturdy_ref = SturdyRef { address: house.address.clone(), grant: granted.grant.id, secret };
    Ok((sturdy_ref, granted))
}

impl<T: Object> object::Server for T {
    async fn describe(
        self: Rc<Self>,
        params: object::DescribeParams,
        mut results: object::DescribeResults,
    ) -> capnp::Result<()> {
        drop(params);
        let claim = self.claim();
        let house = claim.house()?;
        let granted = claim.ask(house.readers.granted(claim.grant())).await?;
        let object = (self.held().kind, self.id());
        encode::description(object, &granted.grant, results.get().init_description());
        Ok(())
    }

    fn attenuate(
        self: Rc<Self>,
        params: object::AttenuateParams,
        mut results: object::AttenuateResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let submitted = decode::attenuate(params.get(), self.held()).map_err(to_wire).and_then(
            |(header, op)| {
                // The object's place first: one who holds too many is told before anything is done.
                let place = self.claim().derive().map_err(to_wire)?;
                let log = self.held().log;
                Ok((submit(self.claim(), Right::Delegate, log, header, vec![op])?, place))
            },
        );
        drop(params);
        async move {
            let (submitted, place) = submitted?;
            let key = grant_made(made(submitted.answer().await)?)?;
            let house = self.claim().house()?;
            drop(place);
            let (object, granted) = under(self.claim(), &house, key).await?;
            let mut results = results.get();
            results.set_grant(&granted.grant.id.0);
            results.init_object().set_as_capability(object.hook);
            Ok(())
        }
    }

    fn save(
        self: Rc<Self>,
        params: object::SaveParams,
        mut results: object::SaveResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let submitted = self.claim().house().and_then(|house| {
            let key = &house.verifier_key;
            let (header, op, secret) =
                decode::save(params.get(), self.held(), key).map_err(to_wire)?;
            let log = self.held().log;
            Ok((submit(self.claim(), Right::Delegate, log, header, vec![op])?, secret, house))
        });
        drop(params);
        async move {
            let (submitted, secret, house) = submitted?;
            let key = grant_made(made(submitted.answer().await)?)?;
            let (sturdy_ref, granted) = ref_for(self.claim(), &house, key, secret).await?;
            let mut results = results.get();
            results.set_grant(&granted.grant.id.0);
            results.set_ref(sturdy_ref.reveal().as_str());
            Ok(())
        }
    }

    async fn grants(
        self: Rc<Self>,
        params: object::GrantsParams,
        mut results: object::GrantsResults,
    ) -> capnp::Result<()> {
        let (page, object_id) = decode::grants(params.get()).map_err(to_wire)?;
        drop(params);
        let claim = self.claim();
        let _turn = claim.turn().await;
        claim.order().settled().await;
        let house = claim.require(Right::Delegate)?;
        let found = claim.ask(house.readers.grants(claim.grant(), object_id, page)).await?;
        let mut results = results.get();
        encode::page_end(&found, results.reborrow().init_end());
        let mut list = results.init_grants(found.items.len() as u32);
        for (at, derived) in (0..).zip(&found.items) {
            encode::grant_info(derived, house.clock.now_ms(), list.reborrow().get(at));
        }
        Ok(())
    }

    fn revoke(
        self: Rc<Self>,
        params: object::RevokeParams,
        mut results: object::RevokeResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let submitted = decode::revoke(params.get()).map_err(to_wire).and_then(|(header, op)| {
            submit(self.claim(), Right::Delegate, self.held().log, header, vec![op])
        });
        drop(params);
        async move {
            results.get().set_cut(cut(made(submitted?.answer().await)?)?);
            Ok(())
        }
    }

    async fn audit(
        self: Rc<Self>,
        params: object::AuditParams,
        mut results: object::AuditResults,
    ) -> capnp::Result<()> {
        let (filter, page) = decode::audit(params.get()).map_err(to_wire)?;
        drop(params);
        let claim = self.claim();
        let _turn = claim.turn().await;
        claim.order().settled().await;
        let house = claim.require(Right::Delegate)?;
        // What was refused a moment ago is to be seen. If it cannot be written down now, it will be.
        if let Err(refusal) = house.engine.write_notes().await {
            tracing::debug!(%refusal, "refusals could not be written down yet");
        }
        let granted = claim.look_up(house.readers.granted(claim.grant())).await?;
        let all = granted.is_operators() && self.held().kind == ObjectKind::Root;
        let scope = (!all).then_some(claim.grant());
        let (found, head) = claim.ask(house.readers.audit(scope, filter, page)).await?;
        let mut results = results.get();
        encode::page_end(&found, results.reborrow().init_end());
        encode::audit_head(&head, results.reborrow().init_head());
        let mut list = results.init_entries(found.items.len() as u32);
        for (at, told) in (0..).zip(&found.items) {
            encode::audit_entry(told, list.reborrow().get(at));
        }
        Ok(())
    }

    fn bump_epoch(
        self: Rc<Self>,
        params: object::BumpEpochParams,
        mut results: object::BumpEpochResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let submitted =
            decode::bump_epoch(params.get()).map_err(to_wire).and_then(|(header, op)| {
                submit(self.claim(), Right::Admin, self.held().log, header, vec![op])
            });
        drop(params);
        async move {
            let (Made::Epoch { epoch, cut }, _) = made(submitted?.answer().await)? else {
                return Err(super::impossible());
            };
            results.get().set_epoch(epoch);
            results.get().set_cut(cut);
            Ok(())
        }
    }
}

/// The kind of an object, on the wire.
pub(super) fn kind(kind: ObjectKind) -> bowline_capnp::ObjectKind {
    match kind {
        ObjectKind::Root => bowline_capnp::ObjectKind::Root,
        ObjectKind::Project => bowline_capnp::ObjectKind::Project,
        ObjectKind::Session => bowline_capnp::ObjectKind::Session,
        ObjectKind::Share => bowline_capnp::ObjectKind::Share,
        ObjectKind::Worktree => bowline_capnp::ObjectKind::Worktree,
        ObjectKind::Snapshot => bowline_capnp::ObjectKind::Snapshot,
    }
}
