//! `Session`: one log.

use super::error::{Denied, to_wire};
use super::logged::{logged, registered};
use super::object::{Object, ref_for, under};
use super::scope::Claim;
use super::share::shared;
use super::watcher::Watched;
use super::worktree::{ask, watching};
use super::{
    House, append, decided, decode, encode, grant_made, made, share, submit, submit_for_object,
    turn, upload, writer,
};
use crate::model::feed::Stretch;
use crate::model::grant::Held;
use crate::model::infos::{ObjectInfo, ObjectKind, SessionKey};
use crate::model::ledger::Made;
use crate::model::rights::Right;
use crate::queries::{Object as Found, Sight};
use crate::wire::session_capnp::session;
use crate::worktrees::RevertSession;
use capnp::capability::FromClientHook;
use std::rc::Rc;

struct Session {
    claim: Claim,
    key: SessionKey,
}

pub(super) fn client(claim: Claim, key: SessionKey) -> session::Client {
    capnp_rpc::new_client(Session { claim: claim.about(key.log), key })
}

impl Object for Session {
    fn claim(&self) -> &Claim {
        &self.claim
    }

    fn held(&self) -> Held {
        Held { kind: ObjectKind::Session, log: self.key.log }
    }

    fn id(&self) -> &str {
        self.key.id.as_str()
    }
}

impl Session {
    /// How much of what was said its holder may see.
    fn sight(&self) -> Sight {
        Sight { own: self.claim.own_only(), view: None }
    }

    /// Refuses whoever may only see what was written under its own grant: what is asked for tells of others.
    fn sees_all(&self) -> capnp::Result<()> {
        match self.claim.own_only() {
            None => Ok(()),
            Some(_) => Err(to_wire(Denied::OwnOnly)),
        }
    }

    /// Waits for its turn to have a page read, and for the changes that were sent before.
    async fn house_for_page(&self) -> capnp::Result<(Rc<House>, impl Sized + '_)> {
        let turn = self.claim.turn().await;
        Ok((self.claim.require_read().await?, turn))
    }
}

impl session::Server for Session {
    async fn info(
        self: Rc<Self>,
        params: session::InfoParams,
        mut results: session::InfoResults,
    ) -> capnp::Result<()> {
        drop(params);
        let house = self.claim.require_read().await?;
        let live = self.claim.live(&house, self.key.log);
        let asked = live.info(house.readers.session_info(self.key.log)).await;
        let info = self.claim.ask(async { asked }).await?;
        let ObjectInfo::Session(info) = &*info else { return Err(super::impossible()) };
        encode::session_info(info, results.get().init_session());
        Ok(())
    }

    fn append(
        self: Rc<Self>,
        params: session::AppendParams,
        mut results: session::AppendResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let asked = params.get().and_then(|p| Ok((p.get_batch()?, p.get_ops()?)));
        let sent = append(&self.claim, self.key.log, asked);
        drop(params);
        async move {
            let (ack, incarnation, _held) = decided(&self.claim, sent).await?;
            encode::ack(&ack, incarnation, results.get().init_ack());
            Ok(())
        }
    }

    async fn messages(
        self: Rc<Self>,
        params: session::MessagesParams,
        mut results: session::MessagesResults,
    ) -> capnp::Result<()> {
        let page = decode::page(params.get().and_then(|p| p.get_page())).map_err(to_wire)?;
        let reverted = params.get()?.get_reverted();
        drop(params);
        let _turn = self.claim.turn().await;
        let house = self.claim.require_read().await?;
        let sight = self.sight();
        let asked = house.readers.messages(self.key.log, page, reverted, sight);
        let found = self.claim.ask(asked).await?;
        let mut results = results.get();
        encode::page_end(&found, results.reborrow().init_end());
        let mut list = results.init_messages(found.items.len() as u32);
        for (at, message) in (0..).zip(&found.items) {
            encode::message(message, None, list.reborrow().get(at)).map_err(super::unreadable)?;
        }
        Ok(())
    }

    logged!(session, |it: &Rc<Self>| it.key.log, |it: &Rc<Self>| Stretch::Log(it.key.log));

    async fn writer(
        self: Rc<Self>,
        params: session::WriterParams,
        mut results: session::WriterResults,
    ) -> capnp::Result<()> {
        let header = decode::writer(params.get()).map_err(to_wire)?;
        drop(params);
        self.claim.require(Right::Append)?;
        let claim = self.claim.derive().map_err(to_wire)?;
        results.get().set_writer(writer::client(claim, self.key.log, header));
        Ok(())
    }

    fn delegate(
        self: Rc<Self>,
        params: session::DelegateParams,
        mut results: session::DelegateResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let submitted = self.claim.house().and_then(|house| {
            let (header, op, secret) =
                decode::delegate(params.get(), &self.key, &house.verifier_key).map_err(to_wire)?;
            // The objects' places first: one who holds too many is told before anything is done.
            let own = self.claim.derive().map_err(to_wire)?;
            let place = self.claim.derive().map_err(to_wire)?;
            let log = self.key.log;
            let submitted = submit(&self.claim, Right::Delegate, log, header, vec![op])?;
            Ok((submitted, secret, house, (own, place)))
        });
        drop(params);
        async move {
            let (submitted, secret, house, (own, place)) = submitted?;
            let key = grant_made(made(submitted.answer().await)?)?;
            let (sturdy_ref, granted) = ref_for(&self.claim, &house, key, secret).await?;
            drop(place);
            // A repeat may come when it is over; then the rest is told all the same.
            let delegate = match under(&self.claim, &house, key).await {
                Ok((delegate, _)) => FromClientHook::new(delegate.hook),
                Err(error) if granted.grant.fallen(house.clock.now_ms()).is_some() => {
                    capnp_rpc::new_future_client(async move { Err(error) })
                }
                Err(error) => return Err(error),
            };
            let Found::Session(session) = granted.object else { return Err(super::impossible()) };
            let mut results = results.get();
            results.set_session(client(own, session));
            results.set_delegate(delegate);
            results.set_ref(sturdy_ref.reveal().as_str());
            results.set_grant(&granted.grant.id.0);
            Ok(())
        }
    }

    async fn delegations(
        self: Rc<Self>,
        params: session::DelegationsParams,
        mut results: session::DelegationsResults,
    ) -> capnp::Result<()> {
        let page = decode::page(params.get().and_then(|p| p.get_page())).map_err(to_wire)?;
        drop(params);
        let _turn = self.claim.turn().await;
        self.claim.order().settled().await;
        let house = self.claim.require(Right::Delegate)?;
        let asked = house.readers.delegations(self.key.log, self.claim.grant(), page);
        let found = self.claim.ask(asked).await?;
        let mut results = results.get();
        encode::page_end(&found, results.reborrow().init_end());
        let mut list = results.init_delegations(found.items.len() as u32);
        for (at, info) in (0..).zip(&found.items) {
            encode::delegation_info(info, list.reborrow().get(at));
        }
        Ok(())
    }

    async fn child(
        self: Rc<Self>,
        params: session::ChildParams,
        mut results: session::ChildResults,
    ) -> capnp::Result<()> {
        let id = decode::session_id(params.get().and_then(|p| p.get_id())).map_err(to_wire)?;
        drop(params);
        let house = self.claim.require_read().await?;
        let key = self.claim.ask(house.readers.child(self.key.log, id, self.claim.grant())).await?;
        let claim = self.claim.derive().map_err(to_wire)?;
        results.get().set_session(client(claim, key));
        Ok(())
    }

    fn heartbeat(
        self: Rc<Self>,
        params: session::HeartbeatParams,
        mut results: session::HeartbeatResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        drop(params);
        let submitted = self.claim.house().map(|house| house.engine.heartbeat(self.claim.grant()));
        async move {
            results.get().set_until_ms(submitted?.answer().await.map_err(to_wire)?);
            Ok(())
        }
    }

    fn complete(
        self: Rc<Self>,
        params: session::CompleteParams,
        results: session::CompleteResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let submitted = decode::complete(params.get())
            .map_err(to_wire)
            .and_then(|(header, op)| submit(&self.claim, None, self.key.log, header, vec![op]));
        drop((params, results));
        async move {
            made(submitted?.answer().await)?;
            Ok(())
        }
    }

    fn share(
        self: Rc<Self>,
        params: session::ShareParams,
        mut results: session::ShareResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let submitted = self.claim.house().and_then(|house| {
            let (header, op, secret) =
                decode::share(params.get(), &self.key, &house.verifier_key).map_err(to_wire)?;
            let place = self.claim.derive().map_err(to_wire)?;
            let log = self.key.log;
            let submitted = submit(&self.claim, Right::Share, log, header, vec![op])?;
            Ok((submitted, secret, house, place))
        });
        drop(params);
        async move {
            let (submitted, secret, house, place) = submitted?;
            let key = grant_made(made(submitted.answer().await)?)?;
            let (sturdy_ref, granted) = ref_for(&self.claim, &house, key, secret).await?;
            let Found::Share(opened) = granted.object else { return Err(super::impossible()) };
            let mut results = results.get();
            results.set_share(share::client(place, opened));
            results.set_ref(sturdy_ref.reveal().as_str());
            results.set_grant(&granted.grant.id.0);
            Ok(())
        }
    }

    shared!(session, |it: &Rc<Self>| Stretch::Log(it.key.log));

    async fn parts(
        self: Rc<Self>,
        params: session::PartsParams,
        mut results: session::PartsResults,
    ) -> capnp::Result<()> {
        let (message, after) = decode::parts(params.get()).map_err(to_wire)?;
        drop(params);
        let (house, _turn) = self.house_for_page().await?;
        let asked = house.readers.parts(self.key.log, message, after, self.sight());
        let found = self.claim.ask(asked).await?;
        let mut results = results.get();
        results.set_parts_after(found.parts_after);
        encode::Told::from(&found)
            .parts_behind(after, |count| results.init_parts(count))
            .map_err(super::unreadable)
    }

    async fn content(
        self: Rc<Self>,
        params: session::ContentParams,
        mut results: session::ContentResults,
    ) -> capnp::Result<()> {
        let (hash, offset, bytes_max) = decode::content_piece(params.get()).map_err(to_wire)?;
        drop(params);
        let (house, _turn) = self.house_for_page().await?;
        self.sees_all()?;
        let asked = house.readers.content(self.key.log, hash, offset, bytes_max);
        let (data, bytes) = self.claim.ask(asked).await?;
        results.get().set_data(&data);
        results.get().set_bytes(bytes);
        Ok(())
    }

    async fn upload(
        self: Rc<Self>,
        params: session::UploadParams,
        mut results: session::UploadResults,
    ) -> capnp::Result<()> {
        let content = decode::upload(params.get()).map_err(to_wire)?;
        drop(params);
        let house = self.claim.require(Right::Append)?;
        let offset = self.claim.look_up(house.readers.uploaded(self.key.log, content)).await?;
        let claim = self.claim.derive().map_err(to_wire)?;
        results.get().set_offset(offset);
        results.get().set_upload(upload::client(claim, self.key.log, content));
        Ok(())
    }

    fn begin_turn(
        self: Rc<Self>,
        params: session::BeginTurnParams,
        mut results: session::BeginTurnResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let permit = self.claim.permit();
        let submitted = decode::begin_turn_call(params.get(), &permit).map_err(to_wire).and_then(
            |(header, op)| {
                // The object's place first: one who holds too many is told before anything is done.
                let place = self.claim.derive().map_err(to_wire)?;
                let log = self.key.log;
                Ok((submit(&self.claim, Right::Turn, log, header, vec![op])?, place))
            },
        );
        drop(params);
        async move {
            let (submitted, place) = submitted?;
            let (Made::Turn { cursor, state }, _) = made(submitted.answer().await)? else {
                return Err(super::impossible());
            };
            let house = self.claim.house()?;
            let asked = house.readers.turn_at(self.key.log, cursor);
            let found = self.claim.look_up(asked).await?;
            let mut results = results.get();
            results.set_id(found.id.as_str());
            results.set_state(encode::turn_state(state));
            results.set_turn(turn::client(place, self.key.log, found.id, cursor));
            Ok(())
        }
    }

    async fn turn(
        self: Rc<Self>,
        params: session::TurnParams,
        mut results: session::TurnResults,
    ) -> capnp::Result<()> {
        let id = decode::turn_id(params.get().and_then(|p| p.get_id())).map_err(to_wire)?;
        drop(params);
        self.claim.order().settled().await;
        let house = self.claim.require(Right::Turn)?;
        self.sees_all()?;
        let found = self.claim.look_up(house.readers.turn(self.key.log, id)).await?;
        let claim = self.claim.derive().map_err(to_wire)?;
        results.get().set_turn(turn::client(claim, self.key.log, found.id, found.cursor));
        Ok(())
    }

    async fn turns(
        self: Rc<Self>,
        params: session::TurnsParams,
        mut results: session::TurnsResults,
    ) -> capnp::Result<()> {
        let page = decode::page(params.get().and_then(|p| p.get_page())).map_err(to_wire)?;
        drop(params);
        let (house, _turn) = self.house_for_page().await?;
        self.sees_all()?;
        let found = self.claim.ask(house.readers.turns(self.key.log, page)).await?;
        let mut results = results.get();
        encode::page_end(&found, results.reborrow().init_end());
        let mut list = results.init_turns(found.items.len() as u32);
        for (at, turn) in (0..).zip(&found.items) {
            encode::turn_info(turn, list.reborrow().get(at));
        }
        Ok(())
    }

    async fn todos(
        self: Rc<Self>,
        params: session::TodosParams,
        mut results: session::TodosResults,
    ) -> capnp::Result<()> {
        drop(params);
        let (house, _turn) = self.house_for_page().await?;
        self.sees_all()?;
        let (cursor, found) = self.claim.ask(house.readers.todos(self.key.log)).await?;
        let mut results = results.get();
        results.set_cursor(cursor.0);
        encode::todos(&found, results.init_todos(found.len() as u32));
        Ok(())
    }

    fn fork(
        self: Rc<Self>,
        params: session::ForkParams,
        mut results: session::ForkResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let submitted =
            decode::fork(params.get(), &self.key).map_err(to_wire).and_then(|(header, op)| {
                self.claim.require(Right::Append)?;
                // A copy of everything is worth as much as reading everything.
                self.claim.require(Right::Read)?;
                submit_for_object(&self.claim, self.key.log, header, op)
            });
        drop(params);
        async move {
            let (submitted, claim) = submitted?;
            let (Made::Session(key), _) = made(submitted.answer().await)? else {
                return Err(super::impossible());
            };
            let mut results = results.get();
            results.set_id(key.id.as_str());
            results.set_session(client(claim, key));
            Ok(())
        }
    }

    async fn children(
        self: Rc<Self>,
        params: session::ChildrenParams,
        mut results: session::ChildrenResults,
    ) -> capnp::Result<()> {
        let page = decode::page(params.get().and_then(|p| p.get_page())).map_err(to_wire)?;
        drop(params);
        let _turn = self.claim.turn().await;
        self.claim.order().settled().await;
        let house = self.claim.require(Right::Delegate)?;
        let found = self.claim.ask(house.readers.children(self.key.log, page)).await?;
        let mut results = results.get();
        encode::page_end(&found, results.reborrow().init_end());
        let mut list = results.init_sessions(found.items.len() as u32);
        for (at, info) in (0..).zip(&found.items) {
            encode::session_info(info, list.reborrow().get(at));
        }
        Ok(())
    }

    async fn context(
        self: Rc<Self>,
        params: session::ContextParams,
        mut results: session::ContextResults,
    ) -> capnp::Result<()> {
        let page = decode::page(params.get().and_then(|p| p.get_page())).map_err(to_wire)?;
        drop(params);
        let (house, _turn) = self.house_for_page().await?;
        let asked = house.readers.context(self.key.log, page, self.sight());
        let found = self.claim.ask(asked).await?;
        let mut results = results.get();
        encode::page_end(&found, results.reborrow().init_end());
        let mut list = results.init_messages(found.items.len() as u32);
        for (at, message) in (0..).zip(&found.items) {
            encode::message_for_model(message, list.reborrow().get(at))
                .map_err(super::unreadable)?;
        }
        Ok(())
    }

    async fn plan(
        self: Rc<Self>,
        params: session::PlanParams,
        mut results: session::PlanResults,
    ) -> capnp::Result<()> {
        let limits = params.get().and_then(|p| p.get_limits());
        let limits = decode::context_limits(limits).map_err(to_wire)?;
        drop(params);
        let (house, _turn) = self.house_for_page().await?;
        self.sees_all()?;
        let found = self.claim.ask(house.readers.plan(self.key.log, limits)).await?;
        encode::plan(&found, results.get().init_plan());
        Ok(())
    }

    async fn checkpoints(
        self: Rc<Self>,
        params: session::CheckpointsParams,
        mut results: session::CheckpointsResults,
    ) -> capnp::Result<()> {
        let page = decode::page(params.get().and_then(|p| p.get_page())).map_err(to_wire)?;
        drop(params);
        let (house, _turn) = self.house_for_page().await?;
        self.sees_all()?;
        let found = self.claim.ask(house.readers.checkpoints(self.key.log, page)).await?;
        let mut results = results.get();
        encode::page_end(&found, results.reborrow().init_end());
        let mut list = results.init_checkpoints(found.items.len() as u32);
        for (at, checkpoint) in (0..).zip(&found.items) {
            encode::checkpoint(checkpoint, list.reborrow().get(at));
        }
        Ok(())
    }

    async fn diffs(
        self: Rc<Self>,
        params: session::DiffsParams,
        mut results: session::DiffsResults,
    ) -> capnp::Result<()> {
        let id = decode::turn_id(params.get().and_then(|p| p.get_turn_id())).map_err(to_wire)?;
        let page = decode::page(params.get().and_then(|p| p.get_page())).map_err(to_wire)?;
        drop(params);
        let (house, _turn) = self.house_for_page().await?;
        self.sees_all()?;
        let mut found = self.claim.ask(house.readers.diffs(self.key.log, id, page)).await?;
        if self.claim.caveats().paths.is_some() {
            let asked = house.readers.session_worktree(self.key.log);
            let (_, _, directory) = self.claim.look_up(asked).await?;
            found.items.retain(|(_, diff)| {
                let path = diff.file.strip_prefix(&directory);
                let path = path.and_then(|path| path.strip_prefix('/'));
                path.is_some_and(|path| self.claim.caveats().allows_path(path.as_bytes()))
            });
        }
        let mut results = results.get();
        encode::page_end(&found, results.reborrow().init_end());
        let mut list = results.init_diffs(found.items.len() as u32);
        for (at, (_, diff)) in (0..).zip(&found.items) {
            encode::file_diff(diff, list.reborrow().get(at));
        }
        Ok(())
    }

    async fn permits(
        self: Rc<Self>,
        params: session::PermitsParams,
        mut results: session::PermitsResults,
    ) -> capnp::Result<()> {
        let (permission, patterns) = decode::permits(params.get()).map_err(to_wire)?;
        drop(params);
        let (house, _turn) = self.house_for_page().await?;
        let asked = house.readers.permits(self.key.log, permission, patterns);
        let decided = self.claim.ask(asked).await?;
        let mut results = results.get();
        results.set_action(encode::action(decided.action));
        if let Some(rule) = &decided.rule {
            encode::rule(rule, results.init_rule());
        }
        Ok(())
    }

    async fn revert(
        self: Rc<Self>,
        params: session::RevertParams,
        mut results: session::RevertResults,
    ) -> capnp::Result<()> {
        let (name, head, force) = decode::revert_session(params.get()).map_err(to_wire)?;
        let asked = params.get()?;
        let watcher = watching(asked.has_watcher(), asked.get_watcher());
        drop(params);
        self.claim.order().settled().await;
        self.claim.require(Right::Turn)?;
        let house = self.claim.require(Right::Restore)?;
        self.sees_all()?;
        let watched = Watched::new();
        let (ask, caveats) = (ask(&self.claim, name, &watched), self.claim.caveats().clone());
        let revert = RevertSession { ask, session: self.key.log, head, force, caveats };
        let work = house.worktrees.revert_session(revert);
        let report = watched.wait(watcher, &self.claim, work).await;
        self.claim.house()?;
        let report = report.map_err(to_wire)?;
        encode::report(&report, self.claim.caveats(), results.get().init_report());
        Ok(())
    }

    async fn storage(
        self: Rc<Self>,
        params: session::StorageParams,
        mut results: session::StorageResults,
    ) -> capnp::Result<()> {
        drop(params);
        let house = self.claim.require_read().await?;
        let asked = house.readers.session_storage(self.key.log);
        let (snapshots, bytes) = self.claim.ask(asked).await?;
        results.get().set_bytes(bytes);
        results.get().set_snapshots(snapshots);
        Ok(())
    }
}
