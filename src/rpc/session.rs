//! `Session`: one log.

use super::error::to_wire;
use super::logged::{logged, registered};
use super::object::{Object, ref_for, under};
use super::scope::Claim;
use super::share::shared;
use super::{append, decided, decode, encode, grant_made, made, share, submit, writer};
use crate::model::feed::Stretch;
use crate::model::grant::Held;
use crate::model::infos::{ObjectInfo, ObjectKind, SessionKey};
use crate::model::rights::Right;
use crate::queries::{Object as Found, Sight};
use crate::wire::session_capnp::session;
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
        drop(params);
        let _turn = self.claim.turn().await;
        let house = self.claim.require_read().await?;
        let sight = Sight { own: self.claim.own_only(), view: None };
        let found = self.claim.ask(house.readers.messages(self.key.log, page, sight)).await?;
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
}
