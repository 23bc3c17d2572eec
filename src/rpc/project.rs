//! `Project`: a directory and its sessions.

use super::error::{Denied, to_wire};
use super::logged::{logged, registered};
use super::object::Object;
use super::scope::Claim;
use super::share::shared;
use super::{
    House, decode, encode, made, removed, session, share, submit, submit_for_object, worktree,
};
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

impl Project {
    /// Sandboxes are whole work trees: nobody has a part of one.
    fn sandboxing(&self) -> capnp::Result<Rc<House>> {
        let house = self.claim.require(Right::Restore)?;
        match self.claim.caveats().paths {
            None => Ok(house),
            Some(_) => Err(to_wire(Denied::Paths)),
        }
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

    async fn worktree(
        self: Rc<Self>,
        params: project::WorktreeParams,
        mut results: project::WorktreeResults,
    ) -> capnp::Result<()> {
        let directory = params.get()?.get_directory()?.to_str()?.to_owned();
        drop(params);
        self.claim.order().settled().await;
        let house = self.claim.require(Right::Snapshot)?;
        let place = self.claim.derive().map_err(to_wire)?;
        let (project, first) = self.claim.look_up(house.readers.project_key(self.key.log)).await?;
        let directory = match directory.trim_end_matches('/') {
            "" => first,
            given => given.to_owned(),
        };
        let opened = house.worktrees.open(self.claim.grant(), project, directory).await;
        let key = opened.map_err(to_wire)?;
        let mut results = results.get();
        results.set_id(key.id.as_str());
        results.set_worktree(worktree::client(place, key));
        Ok(())
    }

    async fn worktrees(
        self: Rc<Self>,
        params: project::WorktreesParams,
        mut results: project::WorktreesResults,
    ) -> capnp::Result<()> {
        let page = decode::page(params.get().and_then(|p| p.get_page())).map_err(to_wire)?;
        drop(params);
        let _turn = self.claim.turn().await;
        let house = self.claim.require_read().await?;
        let found = self.claim.ask(house.readers.worktrees(self.key.log, page)).await?;
        let stored = match found.items.is_empty() {
            true => 0,
            false => house.worktrees.stored_bytes(self.key.log).await.map_err(to_wire)?,
        };
        let mut results = results.get();
        encode::page_end(&found, results.reborrow().init_end());
        let mut list = results.init_worktrees(found.items.len() as u32);
        for (at, info) in (0..).zip(&found.items) {
            encode::worktree_info(info, self.key.id.as_str(), stored, list.reborrow().get(at));
        }
        Ok(())
    }

    async fn opened_worktree(
        self: Rc<Self>,
        params: project::OpenedWorktreeParams,
        mut results: project::OpenedWorktreeResults,
    ) -> capnp::Result<()> {
        let id = decode::worktree_id(params.get().and_then(|p| p.get_id())).map_err(to_wire)?;
        drop(params);
        self.claim.order().settled().await;
        let house = self.claim.require(Right::Snapshot)?;
        let key = self.claim.ask(house.readers.worktree(self.key.log, id)).await?;
        let place = self.claim.derive().map_err(to_wire)?;
        results.get().set_worktree(worktree::client(place, key));
        Ok(())
    }

    async fn create_sandbox(
        self: Rc<Self>,
        params: project::CreateSandboxParams,
        mut results: project::CreateSandboxResults,
    ) -> capnp::Result<()> {
        let (call, name, from) = decode::create_sandbox(params.get()).map_err(to_wire)?;
        drop(params);
        let house = self.sandboxing()?;
        let place = self.claim.derive().map_err(to_wire)?;
        let (grant, log) = (self.claim.grant(), self.key.log);
        let made = house.worktrees.create_sandbox(grant, log, call, name, from).await;
        self.claim.house()?;
        let (sandbox, state, key) = made.map_err(to_wire)?;
        let mut results = results.get();
        encode::sandbox(&sandbox, &state, results.reborrow().init_sandbox());
        results.set_worktree(worktree::client(place, key));
        Ok(())
    }

    async fn sandboxes(
        self: Rc<Self>,
        params: project::SandboxesParams,
        mut results: project::SandboxesResults,
    ) -> capnp::Result<()> {
        drop(params);
        let house = self.claim.require_read().await?;
        let found = house.worktrees.sandboxes(self.key.log).await;
        self.claim.house()?;
        let found = found.map_err(to_wire)?;
        let mut list = results.get().init_sandboxes(found.len() as u32);
        for (at, (sandbox, state)) in (0..).zip(&found) {
            encode::sandbox(sandbox, state, list.reborrow().get(at));
        }
        Ok(())
    }

    async fn reset_sandbox(
        self: Rc<Self>,
        params: project::ResetSandboxParams,
        mut results: project::ResetSandboxResults,
    ) -> capnp::Result<()> {
        let asked = params.get()?;
        let name = asked.get_sandbox()?.to_str()?.to_owned();
        let to = decode::revision(asked.get_to()).map_err(to_wire)?;
        let discard = asked.get_discard();
        drop(params);
        let house = self.sandboxing()?;
        let kept = house
            .worktrees
            .reset_sandbox(self.claim.grant(), self.key.log, name, to, discard)
            .await;
        self.claim.house()?;
        let kept = kept.map_err(to_wire)?;
        let mut list = results.get().init_kept(kept.len() as u32);
        for (at, kept) in (0..).zip(&kept) {
            encode::kept(kept, list.reborrow().get(at));
        }
        Ok(())
    }

    async fn remove_sandbox(
        self: Rc<Self>,
        params: project::RemoveSandboxParams,
        mut results: project::RemoveSandboxResults,
    ) -> capnp::Result<()> {
        let asked = params.get()?;
        let name = asked.get_sandbox()?.to_str()?.to_owned();
        let discard = asked.get_discard();
        drop(params);
        let house = self.sandboxing()?;
        let removed =
            house.worktrees.remove_sandbox(self.claim.grant(), self.key.log, name, discard).await;
        self.claim.house()?;
        let (existed, kept) = removed.map_err(to_wire)?;
        let mut results = results.get();
        results.set_existed(existed);
        let mut list = results.init_kept(kept.len() as u32);
        for (at, kept) in (0..).zip(&kept) {
            encode::kept(kept, list.reborrow().get(at));
        }
        Ok(())
    }

    async fn storage(
        self: Rc<Self>,
        params: project::StorageParams,
        mut results: project::StorageResults,
    ) -> capnp::Result<()> {
        drop(params);
        let house = self.claim.require_read().await?;
        let snapshots = self.claim.ask(house.readers.project_snapshots(self.key.log)).await?;
        let bytes = match snapshots {
            0 => 0,
            _ => house.worktrees.stored_bytes(self.key.log).await.map_err(to_wire)?,
        };
        results.get().set_bytes(bytes);
        results.get().set_snapshots(snapshots);
        Ok(())
    }
}
