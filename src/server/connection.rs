//! One connection from its first byte to its last.

use super::Phase;
use crate::rpc::{self, House, Scope};
use crate::transport::{Control, Link};
use capnp_rpc::RpcSystem;
use capnp_rpc::rpc_twoparty_capnp::Side;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

/// Serves a peer until it goes, misbehaves or is told to go.
pub(super) async fn serve(
    house: Rc<House>,
    reader: impl AsyncRead + Unpin + 'static,
    writer: impl AsyncWrite + Unpin + 'static,
    phases: watch::Receiver<Phase>,
) {
    let (network, control) = Link::new(reader, writer, Side::Server, &house.limits).into_parts();
    let idle = Duration::from_millis(house.limits.idle_ms_max);
    let stranger_idle = Duration::from_millis(house.limits.stranger_idle_ms_max);
    control.set_idle(stranger_idle);
    let scope = Scope::new(house, {
        let control = control.clone();
        move |holding| control.set_idle(if holding { idle } else { stranger_idle })
    });
    // Also when a method panics: whatever still refers to the scope finds it empty.
    let _closing = CloseOnDrop(scope.clone());

    let rpc = RpcSystem::new(network, Some(rpc::bootstrap(scope)));
    tokio::select! {
        ended = rpc => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended with an error");
            }
        }
        () = until_ending(phases, control) => {}
    }
}

struct CloseOnDrop(Rc<Scope>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Lets the connection finish its calls when the server drains, and returns when it must go.
async fn until_ending(mut phases: watch::Receiver<Phase>, control: Control) {
    // An error means that the server is gone, which comes to the same.
    let _ = phases.wait_for(|phase| *phase != Phase::Serving).await;
    control.drain();
    let _ = phases.wait_for(|phase| *phase == Phase::Ending).await;
}
