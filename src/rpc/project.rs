//! `Project`: a directory and its sessions.

use super::error::to_wire;
use super::logged::{logged, registered};
use super::object::Object;
use super::scope::Claim;
use super::share::shared;
use super::{decode, encode, made, removed, session, share, submit, submit_for_object};
use crate::model::feed::Stretch;
use crate::model::grant::Held;
use crate::model::infos::{ObjectInfo, ObjectKind, ProjectKey};
use crate::model::ledger::Made;
use crate::model::rights::Right;
use crate::wire::root_capnp::project;
use std::rc::Rc;

struct Project {
    claim: Claim,
    key: ProjectKey,
}

pub(super) fn client(claim: Claim, key: ProjectKey) -> project::Client {
    capnp_rpc::new_client(Project { claim: claim.about(key.log), key })
}

impl Object for Project {
    fn claim(&self) -> &Claim {
        &self.claim
    }

    fn held(&self) -> Held {
        Held { kind: ObjectKind::Project, log: self.key.log }
    }

    fn id(&self) -> &str {
        self.key.id.as_str()
    }
}

impl project::Server for Project {
    async fn info(
        self: Rc<Self>,
        params: project::InfoParams,
        mut results: project::InfoResults,
    ) -> capnp::Result<()> {
        drop(params);
        let house = self.claim.require_read().await?;
        let live = self.claim.live(&house, self.key.log);
        let asked = live.info(house.readers.project_info(self.key.log)).await;
        let info = self.claim.ask(async { asked }).await?;
        let ObjectInfo::Project(info) = &*info else { return Err(super::impossible()) };
        encode::project_info(info, results.get().init_project());
        Ok(())
    }

    fn create_session(
        self: Rc<Self>,
        params: project::CreateSessionParams,
        mut results: project::CreateSessionResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let submitted = decode::create_session(params.get())
            .map_err(to_wire)
            .and_then(|(header, op)| submit_for_object(&self.claim, self.key.log, header, op));
        drop(params);
        async move {
            let (submitted, claim) = submitted?;
            let (made, _) = made(submitted.answer().await)?;
            let Made::Session(key) = made else { return Err(super::impossible()) };
            results.get().set_session(session::client(claim, key));
            Ok(())
        }
    }

    async fn session(
        self: Rc<Self>,
        params: project::SessionParams,
        mut results: project::SessionResults,
    ) -> capnp::Result<()> {
        let id = decode::session_id(params.get().and_then(|p| p.get_id())).map_err(to_wire)?;
        drop(params);
        let house = self.claim.require_read().await?;
        let key = self.claim.ask(house.readers.session(self.key.log, id)).await?;
        let claim = self.claim.derive().map_err(to_wire)?;
        results.get().set_session(session::client(claim, key));
        Ok(())
    }

    async fn sessions(
        self: Rc<Self>,
        params: project::SessionsParams,
        mut results: project::SessionsResults,
    ) -> capnp::Result<()> {
        let page = decode::page(params.get().and_then(|p| p.get_page())).map_err(to_wire)?;
        drop(params);
        let _turn = self.claim.turn().await;
        let house = self.claim.require_read().await?;
        let found = self.claim.ask(house.readers.sessions(self.key.log, page)).await?;
        let mut results = results.get();
        encode::page_end(&found, results.reborrow().init_end());
        let mut list = results.init_sessions(found.items.len() as u32);
        for (at, info) in (0..).zip(&found.items) {
            encode::session_info(info, list.reborrow().get(at));
        }
        Ok(())
    }

    logged!(project, |it: &Rc<Self>| it.key.log, |it: &Rc<Self>| Stretch::Project(it.key.log));
    shared!(project, |it: &Rc<Self>| Stretch::Project(it.key.log));

    async fn list_sessions(
        self: Rc<Self>,
        params: project::ListSessionsParams,
        mut results: project::ListSessionsResults,
    ) -> capnp::Result<()> {
        let _turn = self.claim.turn().await;
        let house = self.claim.require_read().await?;
        let asked = params.get()?;
        let limit = asked.get_limit();
        let (filter, token) =
            decode::list_sessions(asked.get_filter(), asked.get_token()).map_err(to_wire)?;
        drop(params);
        let asked = house.readers.list_sessions(Some(self.key.log), filter, token, limit);
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
        params: project::SetRulesParams,
        results: project::SetRulesResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let submitted =
            decode::project_rules(params.get()).map_err(to_wire).and_then(|(header, op)| {
                submit(&self.claim, Right::Admin, self.key.log, header, vec![op])
            });
        drop((params, results));
        async move {
            made(submitted?.answer().await)?;
            Ok(())
        }
    }

    fn remove_session(
        self: Rc<Self>,
        params: project::RemoveSessionParams,
        mut results: project::RemoveSessionResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let submitted =
            decode::remove_session(params.get()).map_err(to_wire).and_then(|(header, op)| {
                submit(&self.claim, Right::Admin, self.key.log, header, vec![op])
            });
        drop(params);
        async move {
            results.get().set_removed(removed(made(submitted?.answer().await)?)?);
            Ok(())
        }
    }
}
