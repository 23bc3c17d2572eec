//! The shortest useful client: redeem the root, open a project, find or make a session, say something,
//! and read it back. Everything up to the acknowledgement travels in one round trip.
//!
//!     cargo run --release -- serve          # in one terminal
//!     cargo run --release --example hello   # in another
//!
//! It reads the root capability from the data directory, so it must run as the user who started the
//! server. Give it another ref with `BOWLINE_REF`.

#![allow(clippy::print_stdout)]

mod common;

use bowline::wire::bowline_capnp::outcome;
use bowline::wire::message_capnp::part;
use bowline::wire::root_capnp::root;
use bowline::wire::session_capnp::session;
use capnp::capability::FromClientHook;
use common::{Result, code, connect, op, op_id, random_id, sturdy_ref};

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // capnp-rpc's clients stay on one thread, so they run on a local task set.
    tokio::task::LocalSet::new().block_on(&runtime, hello())
}

async fn hello() -> Result<()> {
    let sturdy_ref = sturdy_ref()?;
    let vat = connect(&sturdy_ref).await?;

    // None of these waits for an answer: each call goes to the promised result of the one before.
    let mut redeem = vat.redeem_request();
    redeem.get().set_ref(sturdy_ref.as_str());
    let root: root::Client = FromClientHook::new(redeem.send().pipeline.get_object().as_cap());

    // A real client keeps its producer id and its numbers on disk; this one is new every time.
    let producer = random_id()?;
    let mut open = root.open_project_request();
    op(producer, 1, open.get().init_op())?;
    open.get().init_project().set_directory("/examples/hello");
    let project = open.send().pipeline.get_project();

    // The first run makes the session. Later ones hear `session-exists`, and find it.
    let mut create = project.create_session_request();
    op(producer, 1, create.get().init_op())?;
    let mut draft = create.get().init_session();
    draft.set_id("hello");
    draft.set_title("The first session");
    let created = create.send().promise;
    let mut find = project.session_request();
    find.get().set_id("hello");
    let session = find.send().pipeline.get_session();

    let mut append = session.append_request();
    let mut batch = append.get().init_batch();
    batch.set_producer(&producer);
    batch.set_producer_epoch(1);
    batch.set_first_seq(1);
    let mut said = append.get().init_ops(1).get(0);
    said.set_op_id(&op_id()?);
    said.init_put_message().init_parts(1).get(0).set_text("hello from an agent");
    let answer = append.send().promise.await?;

    let ack = answer.get()?.get_ack()?;
    if let outcome::Rejected(refusal) = ack.get_outcomes()?.get(0).which()? {
        return Err(refusal?.get_text()?.to_string()?.into());
    }
    println!("on disk at cursor {}", ack.get_cursor());
    match created.await {
        Err(error) if code(&error) != Some("session-exists") => return Err(error.into()),
        _ => {}
    }
    print_messages(&session).await
}

async fn print_messages(session: &session::Client) -> Result<()> {
    let answer = session.messages_request().send().promise.await?;
    for message in answer.get()?.get_messages()? {
        for part in message.get_body()?.get_parts()? {
            if let part::Text(text) = part.which()? {
                println!("{:>4}  {}", message.get_cursor(), text?.to_str()?);
            }
        }
    }
    Ok(())
}
