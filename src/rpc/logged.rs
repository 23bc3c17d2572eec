//! What every object with a log offers: announcing a producer, following it, and forgetting a follower.
//!
//! The three methods are the same for the root, a project and a session; only the generated types differ,
//! so they are written once, here, and put into each interface.

/// Announcing a producer, to a log or through another object.
macro_rules! registered {
    ($interface:ident, $target:expr) => {
        fn register(
            self: Rc<Self>,
            params: $interface::RegisterParams,
            mut results: $interface::RegisterResults,
        ) -> impl Future<Output = capnp::Result<()>> + 'static {
            let asked = decode::registration(params.get().and_then(|p| p.get_registration()));
            let submitted = super::register(&self.claim, $target(&self), asked);
            drop(params);
            async move {
                let (submitted, incarnation) = submitted?;
                let registered = submitted.answer().await.map_err(to_wire)?;
                encode::registered(&registered, incarnation, results.get().init_registered());
                Ok(())
            }
        }
    };
}

/// The methods of one interface, over a log and the stretch its feed tells.
macro_rules! logged {
    ($interface:ident, $log:expr, $stretch:expr) => {
        registered!($interface, $log);

        async fn feed(
            self: Rc<Self>,
            params: $interface::FeedParams,
            mut results: $interface::FeedResults,
        ) -> capnp::Result<()> {
            let asked = params.get().and_then(|p| Ok((p.get_wish()?, p.get_sink()?)));
            let asked = decode::feed(asked).map_err(to_wire)?;
            drop(params);
            let begun = super::feed::begin(&self.claim, $stretch(&self), asked, None).await?;
            results.get().set_subscription(begun);
            Ok(())
        }

        fn forget_subscription(
            self: Rc<Self>,
            params: $interface::ForgetSubscriptionParams,
            mut results: $interface::ForgetSubscriptionResults,
        ) -> impl Future<Output = capnp::Result<()>> + 'static {
            let name = decode::subscription_name(params.get().and_then(|p| p.get_name()));
            let submitted = super::forget(&self.claim, $stretch(&self), name);
            drop(params);
            async move {
                results.get().set_existed(submitted?.answer().await.map_err(to_wire)?);
                Ok(())
            }
        }
    };
}

pub(super) use {logged, registered};
