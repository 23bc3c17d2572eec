//! What every example needs: the root's ref, a connection, ids, and the code of an error.

#![allow(dead_code)]

use bowline::wire::bowline_capnp::{op_header, vat};
use capnp_rpc::rpc_twoparty_capnp::Side;
use capnp_rpc::{RpcSystem, twoparty};
use std::error::Error;
use std::path::PathBuf;
use tokio::net::TcpStream;
use tokio_util::compat::{TokioAsyncReadCompatExt, TokioAsyncWriteCompatExt};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// From the environment, or from where the server keeps it.
pub(crate) fn sturdy_ref() -> Result<String> {
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
pub(crate) async fn connect(sturdy_ref: &str) -> Result<vat::Client> {
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

/// The stable code of an error from the server; clients branch on it and show the text.
pub(crate) fn code(error: &capnp::Error) -> Option<&str> {
    // capnp-rpc puts a prefix in front of what the server said.
    error.extra.split("bowline/").nth(1)?.split(':').next()
}

/// Names an op: a UUIDv7, which begins with the time. Ids that grow are cheap to keep in order.
pub(crate) fn op_id() -> Result<[u8; 16]> {
    let mut id = random_id()?;
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    id[..6].copy_from_slice(&(since_1970.as_millis() as u64).to_be_bytes()[2..]);
    id[6] = id[6] & 0x0f | 0x70;
    id[8] = id[8] & 0x3f | 0x80;
    Ok(id)
}

/// Names one op, so that it could be sent again without being done twice.
pub(crate) fn op(producer: [u8; 16], seq: u64, mut header: op_header::Builder<'_>) -> Result<()> {
    header.set_producer(&producer);
    header.set_producer_epoch(1);
    header.set_seq(seq);
    header.set_op_id(&op_id()?);
    Ok(())
}

pub(crate) fn random_id() -> Result<[u8; 16]> {
    let mut id = [0; 16];
    getrandom::fill(&mut id)?;
    Ok(id)
}
