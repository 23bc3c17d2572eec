//! `Root`: the server itself.

use super::error::to_wire;
use super::logged::{logged, registered};
use super::object::Object;
use super::scope::Claim;
use super::share::shared;
use super::{
    cut, decode, encode, grant_made, made, project, session, share, submit, submit_for_object,
};
use crate::model::feed::Stretch;
use crate::model::grant::Held;
use crate::model::ids::LogId;
use crate::model::infos::ObjectKind;
use crate::model::ledger::Made;
use crate::model::rights::Right;
use crate::model::sturdy_ref::SturdyRef;
use crate::wire::root_capnp::root;
use std::rc::Rc;

struct Root {
    claim: Claim,
}

pub(super) fn client(claim: Claim) -> root::Client {
    capnp_rpc::new_client(Root { claim })
}

impl Object for Root {
    fn claim(&self) -> &Claim {
        &self.claim
    }

    fn held(&self) -> Held {
        Held { kind: ObjectKind::Root, log: LogId::ROOT }
    }

    fn id(&self) -> &str {
        ""
    }
}

impl root::Server for Root {
    fn open_project(
        self: Rc<Self>,
        params: root::OpenProjectParams,
        mut results: root::OpenProjectResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let submitted = decode::open_project(params.get())
            .map_err(to_wire)
            .and_then(|(header, op)| submit_for_object(&self.claim, LogId::ROOT, header, op));
        drop(params);
        async move {
            let (submitted, claim) = submitted?;
            let (made, created) = made(submitted.answer().await)?;
            let Made::Project(key) = made else { return Err(super::impossible()) };
            results.get().set_project(project::client(claim, key));
            results.get().set_created(created);
            Ok(())
        }
    }

    async fn project(
        self: Rc<Self>,
        params: root::ProjectParams,
        mut results: root::ProjectResults,
    ) -> capnp::Result<()> {
        let id = decode::project_id(params.get().and_then(|p| p.get_id())).map_err(to_wire)?;
        drop(params);
        let house = self.claim.require_read().await?;
        let key = self.claim.ask(house.readers.project(id)).await?;
        let claim = self.claim.derive().map_err(to_wire)?;
        results.get().set_project(project::client(claim, key));
        Ok(())
    }

    async fn projects(
        self: Rc<Self>,
        params: root::ProjectsParams,
        mut results: root::ProjectsResults,
    ) -> capnp::Result<()> {
        let page = decode::page(params.get().and_then(|p| p.get_page())).map_err(to_wire)?;
        drop(params);
        let _turn = self.claim.turn().await;
        let house = self.claim.require_read().await?;
        let found = self.claim.ask(house.readers.projects(page)).await?;
        let mut results = results.get();
        encode::page_end(&found, results.reborrow().init_end());
        let mut list = results.init_projects(found.items.len() as u32);
        for (at, info) in (0..).zip(&found.items) {
            encode::project_info(info, list.reborrow().get(at));
        }
        Ok(())
    }

    logged!(root, |_: &Rc<Self>| LogId::ROOT, |_: &Rc<Self>| Stretch::Server);
    shared!(root, |_: &Rc<Self>| Stretch::Server);

    async fn list_sessions(
        self: Rc<Self>,
        params: root::ListSessionsParams,
        mut results: root::ListSessionsResults,
    ) -> capnp::Result<()> {
        let _turn = self.claim.turn().await;
        let house = self.claim.require_read().await?;
        let asked = params.get()?;
        let limit = asked.get_limit();
        let (filter, token) =
            decode::list_sessions(asked.get_filter(), asked.get_token()).map_err(to_wire)?;
        drop(params);
        let asked = house.readers.list_sessions(None, filter, token, limit);
        let (found, next) = self.claim.ask(asked).await?;
        let mut results = results.get();
        results.set_more(next.is_some());
        if let Some(next) = next {
            results.set_token(&next.bytes());
        }
        let mut list = results.init_sessions(found.len() as u32);
        for (at, info) in (0..).zip(&found) {
            encode::session_info(info, list.reborrow().get(at));
        }
        Ok(())
    }

    fn set_rules(
        self: Rc<Self>,
        params: root::SetRulesParams,
        results: root::SetRulesResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let submitted =
            decode::root_rules(params.get()).map_err(to_wire).and_then(|(header, op)| {
                submit(&self.claim, Right::Admin, LogId::ROOT, header, vec![op])
            });
        drop((params, results));
        async move {
            made(submitted?.answer().await)?;
            Ok(())
        }
    }

    async fn session(
        self: Rc<Self>,
        params: root::SessionParams,
        mut results: root::SessionResults,
    ) -> capnp::Result<()> {
        let id = decode::session_id(params.get().and_then(|p| p.get_id())).map_err(to_wire)?;
        drop(params);
        let house = self.claim.require_read().await?;
        let key = self.claim.ask(house.readers.any_session(id)).await?;
        let claim = self.claim.derive().map_err(to_wire)?;
        results.get().set_session(session::client(claim, key));
        Ok(())
    }

    fn revoke_actor(
        self: Rc<Self>,
        params: root::RevokeActorParams,
        mut results: root::RevokeActorResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let submitted =
            decode::revoke_actor(params.get()).map_err(to_wire).and_then(|(header, op)| {
                submit(&self.claim, Right::Admin, LogId::ROOT, header, vec![op])
            });
        drop(params);
        async move {
            results.get().set_cut(cut(made(submitted?.answer().await)?)?);
            Ok(())
        }
    }

    fn rotate(
        self: Rc<Self>,
        params: root::RotateParams,
        mut results: root::RotateResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let submitted = self.claim.require(Right::Admin).and_then(|house| {
            let (header, op, secret) =
                decode::rotate(params.get(), &house.verifier_key).map_err(to_wire)?;
            let submitted = submit(&self.claim, Right::Admin, LogId::ROOT, header, vec![op])?;
            Ok((submitted, secret, house))
        });
        drop(params);
        async move {
            let (submitted, secret, house) = submitted?;
            let key = grant_made(made(submitted.answer().await)?)?;
            // This object is dead by now, but whoever asked is to have the new ref.
            let granted = house.readers.granted(key).await.map_err(to_wire)?;
            let rotated =
                SturdyRef { address: house.address.clone(), grant: granted.grant.id, secret };
            // A late repeat must not put a ref into the file that was rotated away since.
            if granted.in_force.is_ok() {
                (house.keep_root_ref)(rotated.clone()).await;
            }
            results.get().set_ref(rotated.reveal().as_str());
            Ok(())
        }
    }
}
