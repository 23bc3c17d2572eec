//! `Session`: one log.

use super::error::to_wire;
use super::logged::logged;
use super::object::Object;
use super::scope::Claim;
use super::{decode, encode, submit, writer};
use crate::model::feed::Stretch;
use crate::model::grant::Held;
use crate::model::infos::{ObjectInfo, ObjectKind, SessionKey};
use crate::model::rights::Right;
use crate::wire::session_capnp::session;
use std::rc::Rc;

struct Session {
    claim: Claim,
    key: SessionKey,
}

pub(super) fn client(claim: Claim, key: SessionKey) -> session::Client {
    capnp_rpc::new_client(Session { claim, key })
}

impl Object for Session {
    fn claim(&self) -> &Claim {
        &self.claim
    }

    fn held(&self) -> Held {
        Held { kind: ObjectKind::Session, log: self.key.log }
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
        let submitted = decode::append(params.get()).map_err(to_wire).and_then(|(header, ops)| {
            submit(&self.claim, Right::Append, self.key.log, header, ops)
        });
        drop(params);
        async move {
            let submitted = submitted?;
            let incarnation = submitted.incarnation;
            let (ack, _carried) = submitted.answer().await.map_err(to_wire)?;
            let _turn = self.claim.turn_to_ack().await;
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
        let found = self.claim.ask(house.readers.messages(self.key.log, page)).await?;
        let mut results = results.get();
        encode::page_end(&found, results.reborrow().init_end());
        let mut list = results.init_messages(found.items.len() as u32);
        for (at, message) in (0..).zip(&found.items) {
            encode::message(message, list.reborrow().get(at)).map_err(super::unreadable)?;
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
}
