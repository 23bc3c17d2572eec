//! Follows everything that happens on a server, and goes on where it stopped: after a lost connection,
//! after a restart of the server, after a restart of this program.
//!
//!     cargo run --release --example follow            # until Ctrl-C
//!     cargo run --release --example follow -- --once  # until it has caught up
//!
//! The server keeps the place under a name. It is moved on when a call on the sink has returned, so after a
//! crash the last events may come again: this program remembers how far it was, and drops them.

#![allow(clippy::print_stdout)]

mod common;

use bowline::wire::feed_capnp::{event, sink};
use bowline::wire::root_capnp::root;
use capnp::capability::FromClientHook;
use common::{Result, code, connect, sturdy_ref};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;

/// How far this program is, over all its connections.
#[derive(Default)]
struct Progress {
    place: Cell<u64>,
    caught_up: Notify,
    ended: Notify,
}

struct Printer(Rc<Progress>);

impl sink::Server for Printer {
    async fn events(
        self: Rc<Self>,
        params: sink::EventsParams,
        _: sink::EventsResults,
    ) -> capnp::Result<()> {
        let page = params.get()?.get_page()?;
        for event in page.get_events()? {
            if event.get_place() > self.0.place.get() {
                println!("{:>6}  {}", event.get_place(), said(event)?);
            }
        }
        self.0.place.set(self.0.place.get().max(page.get_through()));
        Ok(())
    }

    async fn caught_up(
        self: Rc<Self>,
        _: sink::CaughtUpParams,
        _: sink::CaughtUpResults,
    ) -> capnp::Result<()> {
        self.0.caught_up.notify_one();
        Ok(())
    }

    async fn gap(
        self: Rc<Self>,
        params: sink::GapParams,
        _: sink::GapResults,
    ) -> capnp::Result<()> {
        let params = params.get()?;
        println!(
            "        (history up to {} was compacted; what is kept follows)",
            params.get_floor()
        );
        self.0.place.set(0);
        Ok(())
    }

    async fn ended(
        self: Rc<Self>,
        params: sink::EndedParams,
        _: sink::EndedResults,
    ) -> capnp::Result<()> {
        eprintln!("the feed ended: {}", params.get()?.get_reason()?.get_text()?.to_str()?);
        self.0.ended.notify_one();
        Ok(())
    }
}

fn said(event: event::Reader<'_>) -> capnp::Result<String> {
    let session = event.get_session_id()?.to_string()?;
    Ok(match event.which()? {
        event::ProjectOpened(opened) => format!("project {}", opened?.get_directory()?.to_str()?),
        event::SessionCreated(created) => format!("session {}", created?.get_id()?.to_str()?),
        event::MessagePut(message) => {
            format!("{session}: message {}", message?.get_id()?.to_str()?)
        }
        event::MessageRemoved(id) => format!("{session}: removed {}", id?.to_str()?),
        event::TitleSet(title) => format!("{session}: titled {}", title?.to_str()?),
        event::HistorySet(_) => format!("{session}: another history policy"),
        event::GrantMade(made) => format!("{session}: granted {}", made?.get_label()?.to_str()?),
        event::GrantRevoked(_) => format!("{session}: a grant was revoked"),
        event::EpochBumped(_) => format!("{session}: its refs are stale"),
        event::RootRotated(_) => "the root was rotated".to_owned(),
        event::Delegated(delegated) => {
            format!("{session}: delegated to {}", delegated?.get_actor()?.to_str()?)
        }
        event::DelegationEnded(ended) => format!("{session}: delegation {:?}", ended?.get_end()?),
        event::ShareOpened(opened) => {
            format!("{session}: shared as {}", opened?.get_id()?.to_str()?)
        }
        event::ShareEnded(id) => format!("share {} ended", id?.to_str()?),
        event::ActorRevoked(revoked) => format!("revoked {}", revoked?.get_actor()?.to_str()?),
        event::SessionUpdated(_) => format!("{session}: updated"),
        event::TodosSet(todos) => format!("{session}: {} things to do", todos?.len()),
        event::MessageSet(body) => format!("{session}: about {}", body?.get_id()?.to_str()?),
        event::PartPut(put) => {
            format!("{session}: part of {}", put?.get_message_id()?.to_str()?)
        }
        event::PartRemoved(part) => {
            format!("{session}: removed part {}", part?.get_part_id()?.to_str()?)
        }
        event::TurnBegan(turn) => format!("{session}: turn {} began", turn?.get_id()?.to_str()?),
        event::TurnStarted(id) => format!("{session}: turn {} runs", id?.to_str()?),
        event::TurnRetried(retry) => format!("{session}: attempt {}", retry?.get_attempt()),
        event::TurnEnded(turn) => {
            let turn = turn?;
            format!("{session}: turn {} {:?}", turn.get_id()?.to_str()?, turn.get_state()?)
        }
        event::HeadSet(_) => format!("{session}: went back, or forward again"),
        event::CheckpointMade(made) => {
            format!("{session}: checkpoint {}", made?.get_name()?.to_str()?)
        }
        event::CheckpointDropped(_) => format!("{session}: a checkpoint was let go of"),
        event::OutputsPruned(_) => format!("{session}: outputs left out of the context"),
        event::Forked(forked) => {
            format!("{session}: forked as {}", forked?.get_session_id()?.to_str()?)
        }
        event::SessionRemoved(id) => format!("session {} removed", id?.to_str()?),
        event::RulesSet(_) => format!("{session}: other rules"),
        event::WorktreeOpened(opened) => {
            format!("worktree {}", opened?.get_directory()?.to_str()?)
        }
        event::SnapshotTaken(_) => "files were taken down".to_owned(),
        event::SnapshotNoted(_) => format!("{session}: files were taken down"),
        event::FilesMoved(moved) => format!("{} files were put back", moved?.get_done()),
        event::TurnMeasured(turn) => format!("{session}: {} files changed", turn?.get_files()),
        event::SnapshotsDropped(count) => format!("{count} snapshots were let go of"),
        event::Unknown(()) => "something newer than this program".to_owned(),
    })
}

fn main() -> Result<()> {
    let once = std::env::args().any(|argument| argument == "--once");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let progress = Rc::new(Progress::default());
        loop {
            match follow(&progress, once).await {
                Ok(()) if once => return Ok(()),
                Ok(()) => {}
                Err(error) if once => return Err(error),
                Err(error) => eprintln!("{error}"),
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    })
}

/// Follows until the feed ends, or until it has caught up.
async fn follow(progress: &Rc<Progress>, once: bool) -> Result<()> {
    let sturdy_ref = sturdy_ref()?;
    let vat = connect(&sturdy_ref).await?;
    let mut redeem = vat.redeem_request();
    redeem.get().set_ref(sturdy_ref.as_str());
    let root: root::Client = FromClientHook::new(redeem.send().pipeline.get_object().as_cap());

    let mut request = root.feed_request();
    request.get().init_wish().set_name("follow-example");
    request.get().set_sink(capnp_rpc::new_client(Printer(progress.clone())));
    let answer = request.send().promise.await.map_err(|error| match code(&error) {
        Some("cursor-ahead") => "the server's data is older than what was followed".to_owned(),
        _ => error.to_string(),
    })?;
    // The feed runs for as long as this is held.
    let subscription = answer.get()?.get_subscription()?;
    if once {
        progress.caught_up.notified().await;
        // One more round trip, so that the place is on its way before we go.
        subscription.status_request().send().promise.await?;
        return Ok(());
    }
    loop {
        tokio::select! {
            () = progress.ended.notified() => return Ok(()),
            () = tokio::time::sleep(Duration::from_secs(5)) => {
                // Notices a connection that died without a word.
                subscription.status_request().send().promise.await?;
            }
        }
    }
}
