//! `Share`: a published view of a session.

use super::error::to_wire;
use super::feed::begin;
use super::logged::registered;
use super::object::Object;
use super::scope::Claim;
use super::{Target, append, cut, decided, decode, encode, made, submit};
use crate::model::feed::Stretch;
use crate::model::grant::Held;
use crate::model::infos::ObjectKind;
use crate::model::rights::Right;
use crate::model::share::ShareKey;
use crate::queries::Sight;
use crate::wire::session_capnp::share;
use std::rc::Rc;

struct Share {
    claim: Claim,
    key: ShareKey,
}

pub(super) fn client(claim: Claim, key: ShareKey) -> share::Client {
    capnp_rpc::new_client(Share { claim: claim.about(key.log), key })
}

impl Object for Share {
    fn claim(&self) -> &Claim {
        &self.claim
    }

    fn held(&self) -> Held {
        Held { kind: ObjectKind::Share, log: self.key.log }
    }

    fn id(&self) -> &str {
        self.key.id.as_str()
    }
}

impl Share {
    /// Where ops that come through it go: into the session's log, by the share's own epoch, and only as
    /// far as they concern what came the same way.
    fn target(&self) -> Target {
        Target { log: self.key.session, object: self.key.log, only_own: true }
    }
}

impl share::Server for Share {
    async fn info(
        self: Rc<Self>,
        params: share::InfoParams,
        mut results: share::InfoResults,
    ) -> capnp::Result<()> {
        drop(params);
        let house = self.claim.require_read().await?;
        let info = self.claim.ask(house.readers.share_info(self.key.log)).await?;
        encode::share_info(&info, results.get().init_share());
        Ok(())
    }

    async fn read(
        self: Rc<Self>,
        params: share::ReadParams,
        mut results: share::ReadResults,
    ) -> capnp::Result<()> {
        let page = decode::page(params.get().and_then(|p| p.get_page())).map_err(to_wire)?;
        drop(params);
        let _turn = self.claim.turn().await;
        let house = self.claim.require_read().await?;
        let view = self.claim.look_up(house.readers.view(self.key.log)).await?;
        let sight = Sight { own: self.claim.own_only(), view: Some(view) };
        let asked = house.readers.messages(self.key.session, page, false, sight);
        let found = self.claim.ask(asked).await?;
        let mut results = results.get();
        encode::page_end(&found, results.reborrow().init_end());
        let mut list = results.init_messages(found.items.len() as u32);
        for (at, message) in (0..).zip(&found.items) {
            encode::message(message, Some(view), list.reborrow().get(at))
                .map_err(super::unreadable)?;
        }
        Ok(())
    }

    async fn feed(
        self: Rc<Self>,
        params: share::FeedParams,
        mut results: share::FeedResults,
    ) -> capnp::Result<()> {
        let asked = params.get().and_then(|p| Ok((p.get_wish()?, p.get_sink()?)));
        let (mut wish, sink) = decode::feed(asked).map_err(to_wire)?;
        drop(params);
        let house = self.claim.require_read().await?;
        let view = self.claim.look_up(house.readers.view(self.key.log)).await?;
        wish.name = wish.name.map(|name| name.in_share(&self.key.id));
        let stretch = Stretch::Log(self.key.session);
        let begun =
            begin(&self.claim, stretch, (wish, sink), Some((view, self.key.id.clone()))).await?;
        results.get().set_subscription(begun);
        Ok(())
    }

    fn append_ops(
        self: Rc<Self>,
        params: share::AppendOpsParams,
        mut results: share::AppendOpsResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let asked = params.get().and_then(|p| Ok((p.get_batch()?, p.get_ops()?)));
        let sent = append(&self.claim, self.target(), asked);
        drop(params);
        async move {
            let (ack, incarnation, _held) = decided(&self.claim, sent).await?;
            encode::ack(&ack, incarnation, results.get().init_ack());
            Ok(())
        }
    }

    registered!(share, |it: &Rc<Self>| it.target());

    fn forget_subscription(
        self: Rc<Self>,
        params: share::ForgetSubscriptionParams,
        mut results: share::ForgetSubscriptionResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let name = decode::subscription_name(params.get().and_then(|p| p.get_name()))
            .map(|name| name.in_share(&self.key.id));
        let submitted = super::forget(&self.claim, Stretch::Log(self.key.session), name);
        drop(params);
        async move {
            results.get().set_existed(submitted?.answer().await.map_err(to_wire)?);
            Ok(())
        }
    }

    fn unpublish(
        self: Rc<Self>,
        params: share::UnpublishParams,
        mut results: share::UnpublishResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let submitted = decode::unpublish(params.get(), &self.key.id).map_err(to_wire).and_then(
            |(header, op)| submit(&self.claim, Right::Share, self.key.log, header, vec![op]),
        );
        drop(params);
        async move {
            results.get().set_cut(cut(made(submitted?.answer().await)?)?);
            Ok(())
        }
    }
}

/// What every object that has shares below it offers: a list of them, and each by its id.
macro_rules! shared {
    ($interface:ident, $stretch:expr) => {
        async fn shares(
            self: Rc<Self>,
            params: $interface::SharesParams,
            mut results: $interface::SharesResults,
        ) -> capnp::Result<()> {
            let page = decode::page(params.get().and_then(|p| p.get_page())).map_err(to_wire)?;
            drop(params);
            let _turn = self.claim.turn().await;
            self.claim.order().settled().await;
            let house = self.claim.require(Right::Share)?;
            let found = self.claim.ask(house.readers.shares($stretch(&self), page)).await?;
            let mut results = results.get();
            encode::page_end(&found, results.reborrow().init_end());
            let mut list = results.init_shares(found.items.len() as u32);
            for (at, info) in (0..).zip(&found.items) {
                encode::share_info(info, list.reborrow().get(at));
            }
            Ok(())
        }

        async fn sharing(
            self: Rc<Self>,
            params: $interface::SharingParams,
            mut results: $interface::SharingResults,
        ) -> capnp::Result<()> {
            let id = decode::share_id(params.get().and_then(|p| p.get_id())).map_err(to_wire)?;
            drop(params);
            self.claim.order().settled().await;
            let house = self.claim.require(Right::Share)?;
            let key = self.claim.ask(house.readers.sharing($stretch(&self), id)).await?;
            let claim = self.claim.derive().map_err(to_wire)?;
            results.get().set_share(share::client(claim, key));
            Ok(())
        }
    };
}

pub(super) use shared;
