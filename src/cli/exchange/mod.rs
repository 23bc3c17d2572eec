//! What `export` and `import` have in common: a way to the server, and words for what it says.

pub(super) mod export;
pub(super) mod import;
mod into_session;
mod opencode;

use super::{complain, exit};
use crate::clock::SystemClock;
use crate::config::Settings;
use crate::model::content::without_parts;
use crate::server::{self, ServeError};
use crate::wire::bowline_capnp::vat;
use crate::wire::message_capnp::{message, part};
use crate::wire::root_capnp::root;
use crate::wire::session_capnp::session;
use capnp::capability::FromClientHook;
use capnp::message::{Builder, HeapAllocator};
use capnp_rpc::rpc_twoparty_capnp::Side;
use capnp_rpc::{RpcSystem, twoparty};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio_util::compat::{TokioAsyncReadCompatExt, TokioAsyncWriteCompatExt};

/// Why it did not work.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error("the server said no: {0}")]
    Server(#[from] capnp::Error),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("{0}")]
    Other(String),
}

impl From<capnp::NotInSchema> for Trouble {
    fn from(error: capnp::NotInSchema) -> Self {
        Self::Server(error.into())
    }
}

impl Trouble {
    fn exit(&self) -> ExitCode {
        complain(exit::FAILED, self)
    }
}

/// The server of a data directory: the one that runs, or one for as long as this lasts.
pub(super) struct Door {
    runtime: tokio::runtime::Runtime,
    local: LocalSet,
    root: root::Client,
    own: Option<OwnServer>,
}

/// A server of our own, because none was running.
struct OwnServer {
    stop: mpsc::Sender<()>,
    thread: thread::JoinHandle<Result<(), ServeError>>,
}

impl Door {
    /// Goes to the server that runs, or starts one that listens on the Unix socket only.
    pub(super) fn open(settings: Settings) -> Result<Self, Trouble> {
        let socket = settings.unix.clone().ok_or_else(|| {
            Trouble::Other("the Unix socket is off in the settings, and this needs it".into())
        })?;
        let ref_file = settings.data.join("root.ref");
        let own = match std::os::unix::net::UnixStream::connect(&socket) {
            Ok(_) => None,
            Err(_) => Some(OwnServer::start(Settings { tcp: None, ..settings })?),
        };
        let sturdy_ref = std::fs::read_to_string(&ref_file).map_err(|error| {
            Trouble::Other(format!(
                "the root's ref in {} cannot be read: {error}",
                ref_file.display()
            ))
        })?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let local = LocalSet::new();
        let root = local.block_on(&runtime, async {
            let vat = connect(UnixStream::connect(&socket).await?);
            let mut request = vat.redeem_request();
            request.get().set_ref(sturdy_ref.trim());
            let answer = request.send().promise.await?;
            let object: capnp::capability::Client =
                answer.get()?.get_object().get_as_capability()?;
            Ok::<_, Trouble>(FromClientHook::new(object.hook))
        })?;
        Ok(Self { runtime, local, root, own })
    }

    /// The server itself.
    pub(super) fn root(&self) -> &root::Client {
        &self.root
    }

    /// Waits for something the server does.
    pub(super) fn wait<T, E>(&self, what: impl Future<Output = Result<T, E>>) -> Result<T, Trouble>
    where
        Trouble: From<E>,
    {
        Ok(self.local.block_on(&self.runtime, what)?)
    }

    /// Leaves; a server of our own finishes what it took.
    pub(super) fn close(self) -> Result<(), Trouble> {
        let Self { runtime, local, root, own } = self;
        drop((root, local, runtime));
        match own {
            None => Ok(()),
            Some(own) => own.stop(),
        }
    }
}

impl OwnServer {
    fn start(settings: Settings) -> Result<Self, Trouble> {
        let (stop, on_stop) = mpsc::channel(2);
        let (ready, on_ready) = std_mpsc::channel();
        let thread = thread::Builder::new().name("server".into()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let told = move |_: &server::Ready| {
                let _ = ready.send(());
            };
            runtime.block_on(server::run(settings, Arc::new(SystemClock), told, on_stop))
        })?;
        let own = Self { stop, thread };
        match on_ready.recv() {
            Ok(()) => Ok(own),
            // It has ended before it was ready, and says why.
            Err(_) => match own.stop() {
                Ok(()) => Err(Trouble::Other("the server ended before it was ready".into())),
                Err(trouble) => Err(trouble),
            },
        }
    }

    fn stop(self) -> Result<(), Trouble> {
        let _ = self.stop.try_send(());
        match self.thread.join() {
            Ok(ended) => Ok(ended?),
            Err(_) => Err(Trouble::Other("the server panicked; its log says more".into())),
        }
    }
}

fn connect(stream: UnixStream) -> vat::Client {
    let (reader, writer) = stream.into_split();
    let mut options = capnp::message::ReaderOptions::new();
    // It is our own server, and its pages are bounded.
    options.traversal_limit_in_words(None);
    let network = twoparty::VatNetwork::new(
        futures::io::BufReader::new(reader.compat()),
        futures::io::BufWriter::new(writer.compat_write()),
        Side::Client,
        options,
    );
    let mut system = RpcSystem::new(Box::new(network), None);
    let vat = system.bootstrap(Side::Server);
    tokio::task::spawn_local(system);
    vat
}

/// A progress bar on a terminal, and nothing elsewhere.
fn bar(length: u64, what: &'static str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(length);
    // The template is ours and known to be good; the default would do as well.
    if let Ok(style) =
        ProgressStyle::with_template("{msg} [{bar:30}] {human_pos} of {human_len}, {eta} left")
    {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(what);
    bar
}

/// The stable code of something the server said.
fn code(error: &capnp::Error) -> &str {
    let said = error.extra.split_once("bowline/").map_or("", |(_, said)| said);
    said.split(':').next().unwrap_or_default()
}

/// A JSON object with one member more, in front. What is no object has none.
fn with_member(object: &str, name: &str, json: &str) -> String {
    let others = object.trim_start().strip_prefix('{').unwrap_or("}");
    let comma = if others.trim_start().starts_with('}') { "" } else { "," };
    format!(r#"{{"{name}":{json}{comma}{others}"#)
}

/// A message with all its parts, and when the server took it.
struct Taken {
    id: String,
    created_at_ms: u64,
    body: Builder<HeapAllocator>,
}

/// A message with the parts that did not fit into its page.
fn whole(
    door: &Door,
    session: &session::Client,
    message: message::Reader<'_>,
) -> Result<Taken, Trouble> {
    let from = message.get_body()?;
    let id = message.get_id()?.to_string().unwrap_or_default();
    let (mut after, mut more) = (message.get_parts_after(), Vec::new());
    while after > 0 {
        let mut request = session.parts_request();
        request.get().set_message_id(id.as_str());
        request.get().set_after(after);
        let answer = door.wait(request.send().promise)?;
        after = answer.get()?.get_parts_after();
        for part in answer.get()?.get_parts()? {
            let mut copy = Builder::new_default();
            copy.set_root(part)?;
            more.push(copy);
        }
    }
    let mut body = Builder::new_default();
    let mut to = without_parts(from, body.init_root()).map_err(|error| error.into_error())?;
    let first = from.get_parts()?;
    let mut parts = to.reborrow().init_parts(first.len() + more.len() as u32);
    for (at, part) in (0..).zip(first) {
        parts.set_with_caveats(at, part)?;
    }
    for (at, part) in (first.len()..).zip(&more) {
        parts.set_with_caveats(at, part.get_root_as_reader::<part::Reader<'_>>()?)?;
    }
    Ok(Taken { id, created_at_ms: message.get_created_at_ms(), body })
}
