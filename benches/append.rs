//! How fast is a durable append, and what does a call cost?
//!
//!     cargo bench --bench append
//!
//! Every figure stands beside its limit, measured in the same run on the same disk:
//!
//! - appends over the real socket to the real binary, against raw rusqlite committing the same rows for
//!   the same number of sessions, always in groups of `connections × batch`, which is the largest group
//!   the writer could ever find waiting;
//! - one authorised read call, against an empty call to a stock capnp-rpc server.
//!
//! Rounds of both sides are interleaved, and the middle one counts. Compare the ratios, not the rates:
//! those are the machine's.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use bowline::wire::bowline_capnp::vat;
use bowline::wire::root_capnp::root;
use bowline::wire::session_capnp::session;
use capnp::capability::FromClientHook;
use capnp_rpc::rpc_twoparty_capnp::Side;
use capnp_rpc::{RpcSystem, twoparty};
use rusqlite::Connection;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::compat::{TokioAsyncReadCompatExt, TokioAsyncWriteCompatExt};

const TEXT_BYTES: usize = 256;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(700);
const CONNECTIONS: [usize; 4] = [1, 16, 64, 256];
const BATCHES: [usize; 3] = [1, 32, 256];
const CALLS: usize = 3000;

fn main() {
    if let Some(socket) = std::env::args().skip_while(|arg| arg != "--empty-server").nth(1) {
        return local(empty_server(Path::new(&socket)));
    }
    let dir = tempfile::tempdir().unwrap();
    appends(dir.path());
    calls(dir.path());
}

fn appends(dir: &Path) {
    println!("durable acknowledged appends of {TEXT_BYTES} bytes per second (unix socket)\n");
    println!("{:>11} {:>6} {:>10} {:>10} {:>7}", "connections", "batch", "bowline", "raw", "ratio");
    let server = Server::start(&dir.join("appends"));
    let mut raw = Raw::open(&dir.join("raw.db"));
    // `cargo bench --bench append -- 64x32` runs that cell alone.
    let only = std::env::args().find(|arg| arg.contains('x') && !arg.contains('/'));
    for connections in CONNECTIONS {
        for batch in BATCHES {
            if only.as_ref().is_some_and(|only| *only != format!("{connections}x{batch}")) {
                continue;
            }
            let (mut ours, mut limit) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                limit.push(raw.rate(connections, batch));
                ours.push(local(append_rate(&server, connections, batch)));
            }
            let (ours, limit) = (middle(ours), middle(limit));
            let ratio = ours / limit;
            println!(
                "{connections:>11} {batch:>6} {ours:>10.0} {limit:>10.0} {ratio:>6.0}%",
                ratio = ratio * 100.0
            );
        }
    }
}

/// Each connection has one batch under way, and sends the next when it is acknowledged.
async fn append_rate(server: &Server, connections: usize, batch: usize) -> f64 {
    let mut writers = Vec::new();
    for _ in 0..connections {
        let root: root::Client = server.root().await;
        let project = open_project(&root, &mut Producer::new());
        let session = create_session(&project, &mut Producer::new());
        session.info_request().send().promise.await.unwrap();
        writers.push((session, Producer::new()));
    }
    let text = "x".repeat(TEXT_BYTES);
    let begun = Instant::now();
    let tasks: Vec<_> = writers
        .into_iter()
        .map(|(session, mut producer)| {
            let text = text.clone();
            tokio::task::spawn_local(async move {
                let mut done = 0;
                while begun.elapsed() < ROUND {
                    let request = producer.batch(&session, &text, batch);
                    let answer = request.send().promise.await.unwrap();
                    let ack = answer.get().unwrap().get_ack().unwrap();
                    done += ack.get_outcomes().unwrap().len() as usize;
                }
                done
            })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += task.await.unwrap();
    }
    done as f64 / begun.elapsed().as_secs_f64()
}

fn calls(dir: &Path) {
    println!("\nmicroseconds per call, one after the other and 64 in flight (unix socket)\n");
    let server = Server::start(&dir.join("calls"));
    let socket = dir.join("empty.sock");
    let _empty = start_empty_server(&socket);
    let (mut read, mut empty, mut hello) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        empty.push(local(async {
            let vat = connect(&socket).await;
            per_call(move || {
                let call = vat.hello_request().send().promise;
                async move { call.await.map(|_| ()) }
            })
            .await
        }));
        hello.push(local(async {
            let vat = connect(&server.socket).await;
            per_call(move || {
                let call = vat.hello_request().send().promise;
                async move { call.await.map(|_| ()) }
            })
            .await
        }));
        read.push(local(async {
            let root = server.root().await;
            let project = open_project(&root, &mut Producer::new());
            let session = create_session(&project, &mut Producer::new());
            per_call(move || {
                let call = session.info_request().send().promise;
                async move { call.await.map(|_| ()) }
            })
            .await
        }));
    }
    println!("{:>28} {:>10} {:>10}", "", "sequential", "64 flying");
    let print = |what: &str, of: &[(f64, f64)]| {
        let one = middle(of.iter().map(|times| times.0).collect());
        let many = middle(of.iter().map(|times| times.1).collect());
        println!("{what:>28} {one:>10.1} {many:>10.1}");
        (one, many)
    };
    let empty = print("empty call, stock capnp-rpc", &empty);
    print("Vat.hello, no store", &hello);
    let read = print("Session.info, authorised", &read);
    println!("{:>28} {:>9.2}x {:>9.2}x", "read over empty", read.0 / empty.0, read.1 / empty.1);
}

/// Microseconds a call takes, sequentially and with 64 in flight.
async fn per_call<F: Future<Output = capnp::Result<()>> + 'static>(
    call: impl Fn() -> F + 'static,
) -> (f64, f64) {
    for _ in 0..CALLS / 10 {
        call().await.unwrap();
    }
    let begun = Instant::now();
    for _ in 0..CALLS {
        call().await.unwrap();
    }
    let one = begun.elapsed();
    let call = Rc::new(call);
    let begun = Instant::now();
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let call = call.clone();
            tokio::task::spawn_local(async move {
                for _ in 0..4 * CALLS / 64 {
                    call().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let many = begun.elapsed();
    let micros = |time: Duration, calls: usize| time.as_secs_f64() * 1e6 / calls as f64;
    (micros(one, CALLS), micros(many, 4 * CALLS / 64 * 64))
}

/// The same rows in the same tables, committed in groups by nobody but rusqlite.
struct Raw {
    conn: Connection,
    sessions: i64,
}

impl Raw {
    fn open(path: &Path) -> Self {
        drop(bowline::store::Store::open(path).unwrap());
        let conn = Connection::open(path).unwrap();
        conn.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;
             PRAGMA wal_autocheckpoint = 4000; PRAGMA cache_size = -65536; PRAGMA temp_store = MEMORY;
             INSERT INTO logs (id) VALUES (2);
             INSERT INTO projects (log, id, directory, name, cursor, created_at_ms) VALUES (2, 'p', '/', '', 1, 0);
             INSERT INTO producers (log, producer, epoch, high, acked_through) VALUES (1, zeroblob(16), 1, 0, 0);
             INSERT INTO grants (public_id, verifier, object_kind, object_log, rights, label, created_at_ms)
               VALUES (zeroblob(16), zeroblob(32), 0, 1, 0, '', 0);",
        )
        .unwrap();
        Self { conn, sessions: 2 }
    }

    /// Rows per second, in transactions of `batch` rows for each of `sessions` sessions.
    fn rate(&mut self, sessions: usize, batch: usize) -> f64 {
        let first = self.sessions + 1;
        self.sessions += sessions as i64;
        for session in first..=self.sessions {
            self.conn.execute("INSERT INTO logs (id) VALUES (?)", [session]).unwrap();
            self.conn
                .execute(
                    "INSERT INTO sessions (log, id, project, title, cursor, created_at_ms)
                     VALUES (?1, ?1, 2, '', ?1, 0)",
                    [session],
                )
                .unwrap();
        }
        // What a message op is: its head, the op's id and the text, as the server encodes it.
        let payload = vec![b'x'; TEXT_BYTES + 72];
        let begun = Instant::now();
        let (mut rows, mut cursor) = (0, 0);
        while begun.elapsed() < ROUND {
            let tx = self.conn.transaction().unwrap();
            for session in first..=self.sessions {
                for cursor in cursor + 1..=cursor + batch as i64 {
                    let op_id = scattered(session as u64, cursor as u64);
                    let id = format!("msg_{:026}", u128::from_le_bytes(op_id) >> 64);
                    tx.prepare_cached(
                        "INSERT INTO messages (session, cursor, id, role) VALUES (?, ?, ?, 0)",
                    )
                    .unwrap()
                    .execute((session, cursor, id))
                    .unwrap();
                    tx.prepare_cached(
                        "INSERT INTO ops (log, cursor, producer, seq, op_id, granted, at_ms, kind, version, payload)
                         VALUES (?, ?, 1, ?, ?, 1, 0, 3, 1, ?)",
                    )
                    .unwrap()
                    .execute((session, cursor, cursor, op_id, &payload))
                    .unwrap();
                }
            }
            tx.commit().unwrap();
            cursor += batch as i64;
            rows += sessions * batch;
        }
        rows as f64 / begun.elapsed().as_secs_f64()
    }
}

struct Server {
    child: Child,
    socket: std::path::PathBuf,
    root_ref: String,
}

impl Server {
    fn start(data: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_bowline"))
            .args(["serve", "--json", "--tcp", "off", "--log", "warn", "--data"])
            .arg(data)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let root_ref = std::fs::read_to_string(data.join("root.ref")).unwrap();
        Self { child, socket: data.join("bowline.sock"), root_ref }
    }

    async fn root(&self) -> root::Client {
        let mut request = connect(&self.socket).await.redeem_request();
        request.get().set_ref(self.root_ref.as_str());
        FromClientHook::new(request.send().pipeline.get_object().as_cap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn connect(socket: &Path) -> vat::Client {
    let (reader, writer) = UnixStream::connect(socket).await.unwrap().into_split();
    let network = twoparty::VatNetwork::new(
        futures::io::BufReader::new(reader.compat()),
        futures::io::BufWriter::new(writer.compat_write()),
        Side::Client,
        Default::default(),
    );
    let mut system = RpcSystem::new(Box::new(network), None);
    let vat = system.bootstrap(Side::Server);
    tokio::task::spawn_local(system);
    vat
}

/// A server as capnp-rpc's examples have it, in a process of its own, whose calls do nothing.
async fn empty_server(socket: &Path) {
    struct Empty;
    impl vat::Server for Empty {
        async fn hello(
            self: Rc<Self>,
            _: vat::HelloParams,
            _: vat::HelloResults,
        ) -> capnp::Result<()> {
            Ok(())
        }
    }
    let listener = UnixListener::bind(socket).unwrap();
    println!("ready");
    std::io::stdout().flush().unwrap();
    loop {
        let (reader, writer) = listener.accept().await.unwrap().0.into_split();
        let network = twoparty::VatNetwork::new(
            futures::io::BufReader::new(reader.compat()),
            futures::io::BufWriter::new(writer.compat_write()),
            Side::Server,
            Default::default(),
        );
        let vat: vat::Client = capnp_rpc::new_client(Empty);
        tokio::task::spawn_local(RpcSystem::new(Box::new(network), Some(vat.client)));
    }
}

struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_empty_server(socket: &Path) -> KilledOnDrop {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .arg("--empty-server")
        .arg(socket)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    KilledOnDrop(child)
}

/// Op ids are random in real life, so no index may find them in order (splitmix64).
fn scattered(seed: u64, seq: u64) -> [u8; 16] {
    let half = |n: u64| {
        let mut mixed = seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    (u128::from(half(2 * seq)) | u128::from(half(2 * seq + 1)) << 64).to_le_bytes()
}

struct Producer {
    id: [u8; 16],
    next: u64,
}

impl Producer {
    fn new() -> Self {
        let mut id = [0; 16];
        getrandom::fill(&mut id).unwrap();
        Self { id, next: 1 }
    }

    fn op_id(&self, seq: u64) -> [u8; 16] {
        scattered(u64::from_le_bytes(self.id[..8].try_into().unwrap()), seq)
    }

    fn batch(
        &mut self,
        session: &session::Client,
        text: &str,
        count: usize,
    ) -> capnp::capability::Request<session::append_params::Owned, session::append_results::Owned>
    {
        let mut request = session.append_request();
        let mut params = request.get();
        let mut batch = params.reborrow().init_batch();
        batch.set_producer(&self.id);
        batch.set_producer_epoch(1);
        batch.set_first_seq(self.next);
        batch.set_acked_through(self.next - 1);
        let mut ops = params.init_ops(count as u32);
        for at in 0..count as u32 {
            let mut op = ops.reborrow().get(at);
            op.set_op_id(&self.op_id(self.next + u64::from(at)));
            op.init_put_message().init_parts(1).get(0).set_text(text);
        }
        self.next += count as u64;
        request
    }
}

fn open_project(
    root: &root::Client,
    producer: &mut Producer,
) -> bowline::wire::root_capnp::project::Client {
    let mut request = root.open_project_request();
    header(producer, request.get().init_op());
    request.get().init_project().set_directory("/bench");
    request.send().pipeline.get_project()
}

fn create_session(
    project: &bowline::wire::root_capnp::project::Client,
    producer: &mut Producer,
) -> session::Client {
    let mut request = project.create_session_request();
    header(producer, request.get().init_op());
    request.get().init_session();
    request.send().pipeline.get_session()
}

fn header(producer: &mut Producer, mut op: bowline::wire::bowline_capnp::op_header::Builder<'_>) {
    op.set_producer(&producer.id);
    op.set_producer_epoch(1);
    op.set_seq(producer.next);
    op.set_op_id(&producer.op_id(producer.next));
    producer.next += 1;
}

fn local<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, future)
}

fn middle(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}
