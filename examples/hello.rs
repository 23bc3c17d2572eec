//! The shortest useful client: redeem the root, open a project, find or make a session, say something,
//! and read it back. Everything up to the acknowledgement travels in one round trip.
//!
//!     cargo run --release -- serve          # in one terminal
//!     cargo run --release --example hello   # in another
//!
//! It reads the root capability from the data directory, so it must run as the user who started the
//! server. Give it another ref with `BOWLINE_REF`.

#![allow(clippy::print_stdout)]

use bowline::wire::bowline_capnp::{op_header, outcome, vat};
use bowline::wire::root_capnp::root;
use bowline::wire::session_capnp::{part, session};
use capnp::capability::FromClientHook;
use capnp_rpc::rpc_twoparty_capnp::Side;
use capnp_rpc::{RpcSystem, twoparty};
use std::error::Error;
use std::path::PathBuf;
use tokio::net::TcpStream;
use tokio_util::compat::{TokioAsyncReadCompatExt, TokioAsyncWriteCompatExt};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

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
    said.set_op_id(&random_id()?);
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

/// The stable code of an error from the server; clients branch on it and show the text.
fn code(error: &capnp::Error) -> Option<&str> {
    // capnp-rpc puts a prefix in front of what the server said.
    error.extra.split("bowline/").nth(1)?.split(':').next()
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

/// From the environment, or from where the server keeps it.
fn sturdy_ref() -> Result<String> {
    if let Ok(given) = std::env::var("BOWLINE_REF") {
        return Ok(given);
    }
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    let data = data.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/share")));
    let file = data.ok_or("neither XDG_DATA_HOME nor HOME is set")?.join("bowline/root.ref");
    std::fs::read_to_string(&file)
        .map(|text| text.trim().to_owned())
        .map_err(|error| format!("{}: {error}; is the server running?", file.display()).into())
}

/// The ref itself says where its server is.
async fn connect(sturdy_ref: &str) -> Result<vat::Client> {
    let address = sturdy_ref.trim_start_matches("bowline://").split('/').next().unwrap_or_default();
    if !address.contains(':') {
        return Err("the server listens on no TCP port, and this example speaks TCP only".into());
    }
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| format!("{address}: {error}; is the server running?"))?;
    stream.set_nodelay(true)?;
    let (reader, writer) = stream.into_split();
    let network = twoparty::VatNetwork::new(
        futures::io::BufReader::new(reader.compat()),
        futures::io::BufWriter::new(writer.compat_write()),
        Side::Client,
        Default::default(),
    );
    let mut system = RpcSystem::new(Box::new(network), None);
    let vat = system.bootstrap(Side::Server);
    tokio::task::spawn_local(system);
    Ok(vat)
}

/// Names one op, so that it could be sent again without being done twice.
fn op(producer: [u8; 16], seq: u64, mut header: op_header::Builder<'_>) -> Result<()> {
    header.set_producer(&producer);
    header.set_producer_epoch(1);
    header.set_seq(seq);
    header.set_op_id(&random_id()?);
    Ok(())
}

fn random_id() -> Result<[u8; 16]> {
    let mut id = [0; 16];
    getrandom::fill(&mut id)?;
    Ok(id)
}
