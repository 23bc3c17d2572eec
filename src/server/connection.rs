//! One connection from its first byte to its last.

use super::Phase;
use crate::rpc::{self, House, Peer, Scope};
use crate::transport::{Control, Link};
use capnp_rpc::rpc_twoparty_capnp::Side;
use capnp_rpc::{RpcSystem, VatNetwork};
use futures::future::LocalBoxFuture;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

/// Serves a peer until it goes, misbehaves or is told to go.
pub(super) async fn serve(
    house: Rc<House>,
    reader: impl AsyncRead + Unpin + 'static,
    writer: impl AsyncWrite + Unpin + 'static,
    peer: Peer,
    phases: watch::Receiver<Phase>,
) {
    let (link, control) = Link::new(reader, writer, Side::Server, &house.limits).into_parts();
    let idle = Duration::from_millis(house.limits.idle_ms_max);
    let stranger_idle = Duration::from_millis(house.limits.stranger_idle_ms_max);
    control.set_stranger(true, stranger_idle);
    let of_scope = ScopeLink { control: control.clone(), idle, stranger_idle, peer };
    let scope = Scope::new(house, of_scope);
    // Also when a method panics: whatever still refers to the scope finds it empty.
    let _closing = CloseOnDrop(scope.clone());
    let cut = until_ending(phases, control.clone(), scope.clone());
    drive(link, control, rpc::bootstrap(scope), cut).await;
}

/// Runs the RPC system of a connection to its end, or until `cut` says so. A panic in a method comes
/// through here and ends this connection's task, with everything that belongs to the connection.
async fn drive(
    link: Box<dyn VatNetwork<Side>>,
    control: Control,
    bootstrap: capnp::capability::Client,
    cut: impl Future<Output = ()>,
) {
    let _hanging_up = HangUpOnDrop(control);
    let rpc = RpcSystem::new(link, Some(bootstrap));
    tokio::select! {
        ended = rpc => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended with an error");
            }
        }
        () = cut => {}
    }
}

/// What the objects of a connection ask of it.
struct ScopeLink {
    control: Control,
    idle: Duration,
    stranger_idle: Duration,
    peer: Peer,
}

impl rpc::Link for ScopeLink {
    fn holding(&self, holding: bool) {
        self.control.set_stranger(!holding, if holding { self.idle } else { self.stranger_idle });
    }

    fn room(&self) -> LocalBoxFuture<'_, ()> {
        Box::pin(self.control.room())
    }

    fn peer(&self) -> Peer {
        self.peer
    }
}

struct HangUpOnDrop(Control);

impl Drop for HangUpOnDrop {
    fn drop(&mut self) {
        self.0.hang_up();
    }
}

struct CloseOnDrop(Rc<Scope>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Lets the connection finish its calls when the server drains, and returns when it must go.
async fn until_ending(mut phases: watch::Receiver<Phase>, control: Control, scope: Rc<Scope>) {
    // An error means that the server is gone, which comes to the same.
    let _ = phases.wait_for(|phase| *phase != Phase::Serving).await;
    scope.dismiss();
    control.drain();
    let _ = phases.wait_for(|phase| *phase == Phase::Ending).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::wire::bowline_capnp::vat;
    use tokio::task::JoinHandle;

    struct Panicking;

    impl vat::Server for Panicking {
        async fn hello(
            self: Rc<Self>,
            _: vat::HelloParams,
            _: vat::HelloResults,
        ) -> capnp::Result<()> {
            Ok(())
        }

        async fn redeem(
            self: Rc<Self>,
            _: vat::RedeemParams,
            _: vat::RedeemResults,
        ) -> capnp::Result<()> {
            panic!("on purpose")
        }
    }

    fn connected() -> (vat::Client, JoinHandle<()>) {
        let limits = Limits::default();
        let (near, far) = tokio::io::duplex(1 << 16);
        let (reader, writer) = tokio::io::split(far);
        let (link, control) = Link::new(reader, writer, Side::Server, &limits).into_parts();
        let server: vat::Client = capnp_rpc::new_client(Panicking);
        let served = drive(link, control, server.client, std::future::pending());
        let task = tokio::task::spawn_local(served);

        let (reader, writer) = tokio::io::split(near);
        let (link, _) = Link::new(reader, writer, Side::Client, &limits).into_parts();
        let mut rpc = RpcSystem::new(link, None);
        let vat = rpc.bootstrap(Side::Server);
        tokio::task::spawn_local(rpc);
        (vat, task)
    }

    #[test]
    fn a_panic_in_a_method_ends_that_connection_only() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let ((one, first), (other, second)) = (connected(), connected());
            one.hello_request().send().promise.await.unwrap();
            other.hello_request().send().promise.await.unwrap();

            let error = one.redeem_request().send().promise.await.err().unwrap();
            assert_eq!(error.kind, capnp::ErrorKind::Disconnected, "{error}");
            assert!(first.await.unwrap_err().is_panic());

            other.hello_request().send().promise.await.expect("the neighbour noticed nothing");
            assert!(!second.is_finished());
        });
    }
}
