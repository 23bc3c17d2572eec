//! A server to talk to, a client to talk with, and a producer that numbers its ops.

use bowline::wire::bowline_capnp::{op_header, vat};
use bowline::wire::root_capnp::{project, root};
use bowline::wire::session_capnp::{session, session_op};
use capnp::capability::{FromClientHook, Promise};
use capnp_rpc::rpc_twoparty_capnp::Side;
use capnp_rpc::{RpcSystem, twoparty};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::AbortHandle;
use tokio_util::compat::{TokioAsyncReadCompatExt, TokioAsyncWriteCompatExt};

/// Nothing here takes this long unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The real binary, serving from a directory of its own.
pub struct Server {
    child: Child,
    pub data: PathBuf,
    pub tcp: SocketAddr,
    pub unix: PathBuf,
    _dir: Option<tempfile::TempDir>,
}

/// How to start the binary.
pub fn command(data: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bowline"));
    // The settings of whoever runs the tests must not matter.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("BOWLINE_") {
            command.env_remove(name);
        }
    }
    command.env("HOME", data).env_remove("XDG_CONFIG_HOME").env_remove("XDG_DATA_HOME");
    command
}

impl Server {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut server = Self::start_in(dir.path(), flags, &[]);
        server._dir = Some(dir);
        server
    }

    /// Starts in a directory the caller keeps.
    pub fn start_in(data: &Path, flags: &[&str], env: &[(&str, &str)]) -> Self {
        let mut child = command(data)
            .args(["serve", "--json", "--tcp", "127.0.0.1:0", "--log", "warn", "--data"])
            .arg(data)
            .args(flags)
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: serde_json::Value = serde_json::from_str(&line)
            .unwrap_or_else(|_| panic!("the server did not start; it said {line:?}"));
        let listening = |scheme: &str| {
            let mut found = ready["listening"].as_array().unwrap().iter();
            let found = found.find_map(|at| at.as_str().unwrap().strip_prefix(scheme));
            found.unwrap_or_default().to_owned()
        };
        Self {
            child,
            data: data.to_owned(),
            tcp: listening("tcp:").parse().unwrap(),
            unix: listening("unix:").into(),
            _dir: None,
        }
    }

    pub fn root_ref(&self) -> String {
        std::fs::read_to_string(self.data.join("root.ref")).unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn kill_9(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for the process to end by itself.
    pub fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Resident memory right now, in KiB.
    pub fn resident_kib(&self) -> u64 {
        self.status_kib("VmRSS:")
    }

    /// The most resident memory there ever was, in KiB.
    pub fn resident_peak_kib(&self) -> u64 {
        self.status_kib("VmHWM:")
    }

    fn status_kib(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a client on a thread-local task set, with a limit to everyone's patience.
pub fn local<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let patient = async { tokio::time::timeout(PATIENCE, future).await.expect("nothing happens") };
    tokio::task::LocalSet::new().block_on(&runtime, patient)
}

/// The stock client over any stream.
pub fn client<R, W>(reader: R, writer: W) -> vat::Client
where
    R: AsyncRead + Unpin + 'static,
    W: AsyncWrite + Unpin + 'static,
{
    // It goes on for as long as anything that came through it is held.
    client_to_cut(reader, writer).0
}

/// The same, with a handle that drops it, and with it the stream, whatever is under way.
pub fn client_to_cut<R, W>(reader: R, writer: W) -> (vat::Client, AbortHandle)
where
    R: AsyncRead + Unpin + 'static,
    W: AsyncWrite + Unpin + 'static,
{
    let network = twoparty::VatNetwork::new(
        futures::io::BufReader::new(reader.compat()),
        writer.compat_write(),
        Side::Client,
        Default::default(),
    );
    let mut system = RpcSystem::new(Box::new(network), None);
    let vat = system.bootstrap(Side::Server);
    let running = tokio::task::spawn_local(system);
    (vat, running.abort_handle())
}

pub async fn connect_to_cut(server: &Server) -> (vat::Client, AbortHandle) {
    let stream = TcpStream::connect(server.tcp).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (reader, writer) = stream.into_split();
    client_to_cut(reader, writer)
}

pub async fn connect(server: &Server) -> vat::Client {
    connect_to_cut(server).await.0
}

pub async fn connect_unix(server: &Server) -> vat::Client {
    let (reader, writer) = UnixStream::connect(&server.unix).await.unwrap().into_split();
    client(reader, writer)
}

/// `redeem` without waiting for the answer.
pub fn redeem<T: FromClientHook>(vat: &vat::Client, sturdy_ref: &str) -> T {
    let mut request = vat.redeem_request();
    request.get().set_ref(sturdy_ref);
    FromClientHook::new(request.send().pipeline.get_object().as_cap())
}

pub async fn root(server: &Server) -> root::Client {
    redeem(&connect(server).await, &server.root_ref())
}

/// The server's clock, which is this machine's.
pub fn now_ms() -> u64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64
}

/// Waits for a moment; for tests in which time itself is the subject.
pub async fn until_ms(at_ms: u64) {
    tokio::time::sleep(Duration::from_millis(at_ms.saturating_sub(now_ms()) + 1)).await;
}

/// Why a ref is refused.
pub async fn refused(server: &Server, sturdy_ref: &str) -> String {
    let mut request = connect(server).await.redeem_request();
    request.get().set_ref(sturdy_ref);
    code(&failure(request.send().promise).await).to_owned()
}

/// The code of an error from the server.
pub fn code(error: &capnp::Error) -> &str {
    let text = error.extra.as_str();
    let start = text.find("bowline/").unwrap_or_else(|| panic!("no code in {text:?}")) + 8;
    text[start..].split(':').next().unwrap()
}

/// What a call failed with.
pub async fn failure<T: capnp::traits::Pipelined + capnp::traits::Owned>(
    promise: impl Future<Output = capnp::Result<capnp::capability::Response<T>>>,
) -> capnp::Error {
    match promise.await {
        Ok(_) => panic!("the call succeeded"),
        Err(error) => error,
    }
}

/// One writing client, numbering its ops in one log.
#[derive(Debug, Clone)]
pub struct Producer {
    pub id: [u8; 16],
    pub epoch: u32,
    pub next: u64,
    pub acked_through: u64,
}

static PRODUCERS: AtomicU64 = AtomicU64::new(1);

impl Producer {
    /// Different from every other producer of this test run.
    pub fn new() -> Self {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&PRODUCERS.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        id[8..12].copy_from_slice(&std::process::id().to_le_bytes());
        Self { id, epoch: 1, next: 1, acked_through: 0 }
    }

    /// The name of its op number `seq`.
    pub fn op_id(&self, seq: u64) -> [u8; 16] {
        let mut id = self.id;
        for (at, byte) in seq.to_be_bytes().into_iter().enumerate() {
            id[8 + at] ^= byte;
        }
        id
    }

    /// Fills in the header of its next op.
    pub fn header(&mut self, mut header: op_header::Builder<'_>) {
        header.set_producer(&self.id);
        header.set_producer_epoch(self.epoch);
        header.set_seq(self.next);
        header.set_op_id(&self.op_id(self.next));
        header.set_acked_through(self.acked_through);
        self.next += 1;
    }

    /// A batch of text messages under the next numbers.
    pub fn batch(
        &mut self,
        session: &session::Client,
        texts: &[&str],
    ) -> capnp::capability::Request<session::append_params::Owned, session::append_results::Owned>
    {
        let request = batch_at(self, self.next, session, texts);
        self.next += texts.len() as u64;
        request
    }
}

/// A batch under numbers of the caller's choice, as a repeat would have it.
pub fn batch_at(
    producer: &Producer,
    first_seq: u64,
    session: &session::Client,
    texts: &[&str],
) -> capnp::capability::Request<session::append_params::Owned, session::append_results::Owned> {
    let mut request = session.append_request();
    let mut params = request.get();
    let mut batch = params.reborrow().init_batch();
    batch.set_producer(&producer.id);
    batch.set_producer_epoch(producer.epoch);
    batch.set_first_seq(first_seq);
    batch.set_acked_through(producer.acked_through);
    let mut ops = params.init_ops(texts.len() as u32);
    for (at, text) in (0..).zip(texts) {
        let mut op = ops.reborrow().get(at);
        op.set_op_id(&producer.op_id(first_seq + u64::from(at)));
        text_message(op, text);
    }
    request
}

/// A message of one text.
pub fn text_message(op: session_op::Builder<'_>, text: &str) {
    op.init_put_message().init_parts(1).get(0).set_text(text);
}

/// `Root.openProject`.
pub fn open_project(
    root: &root::Client,
    producer: &mut Producer,
    directory: &str,
) -> capnp::capability::RemotePromise<root::open_project_results::Owned> {
    let mut request = root.open_project_request();
    producer.header(request.get().init_op());
    request.get().init_project().set_directory(directory);
    request.send()
}

/// `Project.createSession`.
pub fn create_session(
    project: &project::Client,
    producer: &mut Producer,
    id: &str,
) -> capnp::capability::RemotePromise<project::create_session_results::Owned> {
    let mut request = project.create_session_request();
    producer.header(request.get().init_op());
    request.get().init_session().set_id(id);
    request.send()
}

/// A fresh session, made in one round trip.
pub fn fresh_session(root: &root::Client) -> session::Client {
    let mut producer = Producer::new();
    let project = open_project(root, &mut producer, "/tree").pipeline.get_project();
    create_session(&project, &mut Producer::new(), "").pipeline.get_session()
}

/// All texts of a session, by pages of `limit`.
pub async fn texts(session: &session::Client, limit: u32) -> Vec<String> {
    let mut found = Vec::new();
    let mut after = 0;
    loop {
        let mut request = session.messages_request();
        let mut page = request.get().init_page();
        page.set_after(after);
        page.set_limit(limit);
        let answer = request.send().promise.await.unwrap();
        let answer = answer.get().unwrap();
        for message in answer.get_messages().unwrap() {
            let parts = message.get_body().unwrap().get_parts().unwrap();
            match parts.get(0).which().unwrap() {
                bowline::wire::message_capnp::part::Text(text) => {
                    found.push(text.unwrap().to_string().unwrap());
                }
                _ => panic!("not a text"),
            }
        }
        let end = answer.get_end().unwrap();
        after = end.get_next();
        if !end.get_more() {
            return found;
        }
    }
}

/// Numbers from a seed that the test prints (splitmix64).
pub struct Random(pub u64);

impl Random {
    /// Seeded anew in every run, and told, so that a bad day can be repeated.
    pub fn told() -> Self {
        let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
        println!("SEED={seed}");
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, below: u64) -> u64 {
        self.next() % below
    }
}

/// A promise nobody waits for.
pub fn ignore<T: 'static>(promise: Promise<T, capnp::Error>) {
    tokio::task::spawn_local(async move {
        let _ = promise.await;
    });
}
