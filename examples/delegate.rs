//! Hand a piece of work to somebody, let them do it with exactly what they need, hear how it ends, and see
//! afterwards who did what.
//!
//!     cargo run --release -- serve             # in one terminal
//!     cargo run --release --example delegate   # in another
//!
//! Both sides are here, on two connections: the delegator, who holds the root, and the delegate, who holds
//! nothing but the ref it is given.

#![allow(clippy::print_stdout)]

mod common;

use bowline::wire::feed_capnp::{event, sink};
use bowline::wire::grant_capnp::{Right, object};
use bowline::wire::root_capnp::root;
use bowline::wire::session_capnp::session;
use capnp::capability::FromClientHook;
use common::{Result, code, connect, op, op_id, random_id, sturdy_ref};
use std::rc::Rc;
use tokio::sync::Notify;

/// How long the delegate may be silent.
const LEASE_MS: u64 = 30_000;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, delegator())
}

async fn delegator() -> Result<()> {
    let root_ref = sturdy_ref()?;
    let root: root::Client = redeem(&root_ref).await?;
    let producer = random_id()?;
    let mut open = root.open_project_request();
    op(producer, 1, open.get().init_op())?;
    open.get().init_project().set_directory("/examples/delegate");
    let project = open.send().pipeline.get_project();
    let mut create = project.create_session_request();
    op(producer, 1, create.get().init_op())?;
    create.get().init_session().set_title("Ask a helper");
    let session = create.send().pipeline.get_session();

    // However the delegation ends, this hears of it. A named feed would, after any crash, too.
    let over = Rc::new(Notify::new());
    let mut follow = session.feed_request();
    follow.get().set_sink(capnp_rpc::new_client(Ears(over.clone())));
    let _feed = follow.send().promise.await?;

    // A session of its own for the helper, who may read and append there, and do nothing else. The seed is
    // what the ref's secret is made from; a real client stores it with the op before it sends.
    let mut seed = [0; 32];
    getrandom::fill(&mut seed)?;
    let mut ask = session.delegate_request();
    op(producer, 1, ask.get().init_op())?;
    ask.get().set_seed(&seed);
    let mut delegation = ask.get().init_delegation();
    delegation.set_lease_ms(LEASE_MS);
    let mut narrowing = delegation.init_narrowing();
    narrowing.set_actor("helper");
    narrowing.set_label("look something up");
    let mut rights = narrowing.init_rights(2);
    rights.set(0, Right::Read);
    rights.set(1, Right::Append);
    let asked = ask.send();
    // The task is written into it before the answer is there, under the delegator's own authority.
    let task = say(&asked.pipeline.get_session(), "what is the answer?").await?;
    let answer = asked.promise.await?;
    let helpers_ref = answer.get()?.get_ref()?.to_string()?;
    let grant = answer.get()?.get_grant()?.to_vec();
    println!("asked at cursor {task}; the helper gets a ref for that session alone");

    helper(&helpers_ref).await?;
    over.notified().await;

    // What it was given is spent. And what was done with it is written down.
    let dead = redeem::<session::Client>(&helpers_ref).await?.info_request().send().promise.await;
    let error = dead.err().ok_or("the helper can still get in")?;
    println!("its ref is worth nothing any more: {}", code(&error).unwrap_or("?"));
    let object: object::Client = FromClientHook::new(session.client.hook.clone());
    let mut audit = object.audit_request();
    audit.get().init_filter().set_grant(&grant);
    let answer = audit.send().promise.await?;
    for entry in answer.get()?.get_entries()? {
        println!("{:>6}  {:?}", entry.get_number(), entry.get_kind()?);
    }
    Ok(())
}

/// The other side. It could be anywhere: the ref is all it knows.
async fn helper(sturdy_ref: &str) -> Result<()> {
    let session: session::Client = redeem(sturdy_ref).await?;
    session.heartbeat_request().send().promise.await?; // and again, several times within the lease
    say(&session, "42").await?;
    let shares = session.shares_request().send().promise.await;
    let denied = shares.err().ok_or("it was not given that")?;
    println!("the helper answers, and may do nothing else: {}", code(&denied).unwrap_or("?"));
    let mut complete = session.complete_request();
    op(random_id()?, 1, complete.get().init_op())?;
    complete.get().set_result("it is 42");
    complete.send().promise.await?;
    Ok(())
}

/// Hears how the delegation ends.
struct Ears(Rc<Notify>);

impl sink::Server for Ears {
    async fn events(
        self: Rc<Self>,
        params: sink::EventsParams,
        _: sink::EventsResults,
    ) -> capnp::Result<()> {
        for event in params.get()?.get_page()?.get_events()? {
            if let event::DelegationEnded(ended) = event.which()? {
                let ended = ended?;
                let (end, result) = (ended.get_end()?, ended.get_result()?.to_str()?);
                println!("the delegator hears: {end:?}, {result:?}");
                self.0.notify_one();
            }
        }
        Ok(())
    }

    async fn caught_up(
        self: Rc<Self>,
        _: sink::CaughtUpParams,
        _: sink::CaughtUpResults,
    ) -> capnp::Result<()> {
        Ok(())
    }
}

/// The object a ref stands for, on a connection of its own; calls on it can be sent at once.
async fn redeem<T: FromClientHook>(sturdy_ref: &str) -> Result<T> {
    let mut redeem = connect(sturdy_ref).await?.redeem_request();
    redeem.get().set_ref(sturdy_ref);
    Ok(FromClientHook::new(redeem.send().pipeline.get_object().as_cap()))
}

/// One message; where in the log it is.
async fn say(session: &session::Client, text: &str) -> Result<u64> {
    let mut append = session.append_request();
    let mut batch = append.get().init_batch();
    batch.set_producer(&random_id()?);
    batch.set_producer_epoch(1);
    batch.set_first_seq(1);
    let mut said = append.get().init_ops(1).get(0);
    said.set_op_id(&op_id()?);
    said.init_put_message().init_parts(1).get(0).set_text(text);
    let answer = append.send().promise.await?;
    Ok(answer.get()?.get_ack()?.get_cursor())
}
