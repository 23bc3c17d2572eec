//! How fast do tokens reach the disk, and what does a long session cost to open?
//!
//!     cargo bench --bench turns
//!     cargo bench --bench turns -- tokens     # one part alone: tokens, pages or list
//!
//! - *tokens*: pieces of text through one turn and through 200 at once, each flushed now and then, beside raw
//!   rusqlite that writes a row for each token and commits as often; and one token at a time, each waited for.
//! - *pages*: the first and the last page of a session with 1,000 and with 50,000 messages.
//! - *list*: the first page of 10,000 sessions, and all pages.
//!
//! Compare the ratios, not the rates: those are the machine's.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout
)]

mod common;

use bowline::wire::message_capnp::{IfBusy, Role};
use bowline::wire::session_capnp::{part_writer, session};
use common::{Pipeline, Producer, Server, header, local, middle, open_project};
use rusqlite::Connection;
use std::path::Path;
use std::time::Instant;

/// What a model says at a time.
const TOKEN: &str = "token ";
const TOKENS: usize = 200_000;
const TURNS: usize = 200;
/// Tokens between two flushes.
const FLUSH_EVERY: usize = 1_000;
const ONE_BY_ONE: usize = 3_000;
const MESSAGES: [usize; 2] = [1_000, 50_000];
const SESSIONS: usize = 10_000;
const ROUNDS: usize = 9;

fn main() {
    type Part = fn(&Path);
    let parts: [(&str, Part); 3] = [("tokens", tokens), ("pages", pages), ("list", list)];
    let only: Vec<String> =
        std::env::args().filter(|arg| parts.iter().any(|part| part.0 == arg)).collect();
    for (name, part) in parts {
        if only.is_empty() || only.iter().any(|it| it == name) {
            let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            println!("\n{name}");
            part(dir.path());
        }
    }
}

/// An open text in a turn of its own.
async fn open(session: &session::Client, producer: &mut Producer) -> part_writer::Client {
    let mut request = session.begin_turn_request();
    header(producer, request.get().init_op());
    let mut draft = request.get().init_turn();
    draft.set_if_busy(IfBusy::Beside);
    draft.init_message();
    let turn = request.send().pipeline.get_turn();
    let mut request = turn.add_message_request();
    header(producer, request.get().init_op());
    request.get().init_message().set_role(Role::Assistant);
    drop(request.send().promise.await.unwrap());
    let mut request = turn.put_part_request();
    header(producer, request.get().init_op());
    let mut put = request.get().init_part();
    put.set_open(true);
    put.init_part().set_text("");
    let answer = request.send().promise.await.unwrap();
    answer.get().unwrap().get_writer().unwrap()
}

/// Streams so many tokens, with a flush every so often.
async fn stream(writer: part_writer::Client, tokens: usize, flush_every: usize) {
    let mut offset = 0;
    for n in 1..=tokens {
        let mut request = writer.delta_request();
        request.get().set_offset(offset);
        request.get().set_text(TOKEN);
        request.send().await.unwrap();
        offset += TOKEN.len() as u64;
        if n % flush_every == 0 || n == tokens {
            let answer = writer.flush_request().send().promise.await.unwrap();
            assert_eq!(answer.get().unwrap().get_offset(), offset);
        }
    }
}

fn tokens(dir: &Path) {
    let server = Server::start(&dir.join("data"));
    let (one, each, many) = local(async {
        let session = server.session().await;
        let mut producer = Producer::new();
        let writer = open(&session, &mut producer).await;
        let began = Instant::now();
        stream(writer, TOKENS, FLUSH_EVERY).await;
        let one = TOKENS as f64 / began.elapsed().as_secs_f64();

        let writer = open(&session, &mut producer).await;
        let began = Instant::now();
        stream(writer, ONE_BY_ONE, 1).await;
        let each = ONE_BY_ONE as f64 / began.elapsed().as_secs_f64();

        let (mut beside, mut apart) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            beside.push(open(&session, &mut producer).await);
            // Each in a session and over a connection of its own.
            apart.push(open(&server.session().await, &mut Producer::new()).await);
        }
        (one, each, [at_once(beside).await, at_once(apart).await])
    });
    server.stop();
    let raw = raw(&dir.join("raw.db"), FLUSH_EVERY);
    let raw_each = raw_each(&dir.join("each.db"));
    println!(
        "  one turn, flushed every {FLUSH_EVERY:>5}       {one:>10.0} tokens/s  {:>4.0} % of raw rows, one commit per flush",
        one / raw * 100.0
    );
    println!(
        "  one turn, every token waited for    {each:>10.0} tokens/s  {:>4.0} % of raw, one commit each",
        each / raw_each * 100.0
    );
    for (many, of) in many.into_iter().zip(["one session", "sessions of their own"]) {
        println!(
            "  {TURNS} turns at once, every {:>5}        {many:>10.0} tokens/s  {:>4.0} % of raw rows, one commit per flush, in {of}",
            FLUSH_EVERY / 10,
            many / raw * 100.0
        );
    }
}

/// Streams through all of them at once; tokens a second, together.
async fn at_once(writers: Vec<part_writer::Client>) -> f64 {
    let began = Instant::now();
    let stream = |writer| stream(writer, TOKENS / TURNS, FLUSH_EVERY / 10);
    let tasks: Vec<_> =
        writers.into_iter().map(|writer| tokio::task::spawn_local(stream(writer))).collect();
    for task in tasks {
        task.await.unwrap();
    }
    TOKENS as f64 / began.elapsed().as_secs_f64()
}

fn database(path: &Path) -> Connection {
    let conn = Connection::open(path).unwrap();
    conn.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE deltas (part INTEGER, offset INTEGER, text TEXT, PRIMARY KEY (part, offset))
         WITHOUT ROWID, STRICT;",
    )
    .unwrap();
    conn
}

/// A row for each token, committed every so often, by nobody but rusqlite.
fn raw(path: &Path, every: usize) -> f64 {
    let mut conn = database(path);
    let began = Instant::now();
    for group in 0..TOKENS / every {
        let tx = conn.transaction().unwrap();
        for n in 0..every {
            let offset = (group * every + n) * TOKEN.len();
            tx.prepare_cached("INSERT INTO deltas VALUES (1, ?, ?)")
                .unwrap()
                .execute((offset as i64, TOKEN))
                .unwrap();
        }
        tx.commit().unwrap();
    }
    TOKENS as f64 / began.elapsed().as_secs_f64()
}

fn raw_each(path: &Path) -> f64 {
    let mut conn = database(path);
    let began = Instant::now();
    for n in 0..ONE_BY_ONE {
        let tx = conn.transaction().unwrap();
        tx.execute("INSERT INTO deltas VALUES (1, ?, ?)", (n as i64, TOKEN)).unwrap();
        tx.commit().unwrap();
    }
    ONE_BY_ONE as f64 / began.elapsed().as_secs_f64()
}

fn pages(dir: &Path) {
    let server = Server::start(&dir.join("data"));
    let mut first_of = Vec::new();
    for messages in MESSAGES {
        let times = local(async {
            let session = server.session().await;
            let mut producer = Producer::new();
            let fill = Pipeline { batch_ops: 500, in_flight: 4 };
            fill.append(&session, &mut producer, &"x".repeat(500), |sent| sent < messages).await;
            let mut times = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                for newest in [false, true] {
                    let began = Instant::now();
                    let mut request = session.messages_request();
                    request.get().init_page().set_newest_first(newest);
                    let answer = request.send().promise.await.unwrap();
                    assert_eq!(answer.get().unwrap().get_messages().unwrap().len(), 100);
                    let ms = began.elapsed().as_secs_f64() * 1e3;
                    if newest { times.1.push(ms) } else { times.0.push(ms) }
                }
            }
            (middle(times.0), middle(times.1))
        });
        first_of.push(times.0);
        println!(
            "  {messages:>6} messages: first page of 100 {:>6.2} ms, last {:>6.2} ms (goal 5)",
            times.0, times.1
        );
    }
    println!("  50,000 against 1,000: {:.2} ×", first_of[1] / first_of[0]);
    server.stop();
}

fn list(dir: &Path) {
    let server = Server::start(&dir.join("data"));
    local(async {
        let root = server.root().await;
        let mut producer = Producer::new();
        let project = open_project(&root, &mut producer);
        let mut producer = Producer::new();
        let mut made = std::collections::VecDeque::new();
        for _ in 0..SESSIONS {
            let mut request = project.create_session_request();
            header(&mut producer, request.get().init_op());
            request.get().init_session();
            made.push_back(request.send().promise);
            if made.len() > 200 {
                made.pop_front().unwrap().await.unwrap();
                producer.acked_through += 1;
            }
        }
        for waiting in made {
            waiting.await.unwrap();
        }
        let page = async |token: &[u8]| {
            let mut request = project.list_sessions_request();
            request.get().set_token(token);
            let answer = request.send().promise.await.unwrap();
            let answer = answer.get().unwrap();
            let next = answer.get_more().then(|| answer.get_token().unwrap().to_vec());
            (answer.get_sessions().unwrap().len(), next)
        };
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let began = Instant::now();
            assert_eq!(page(&[]).await.0, 100);
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        let began = Instant::now();
        let (mut count, mut token) = (0, Some(Vec::new()));
        while let Some(at) = token {
            let (found, next) = page(&at).await;
            (count, token) = (count + found, next);
        }
        assert_eq!(count as usize, SESSIONS);
        println!("  first page of 100 of {SESSIONS} sessions {:>6.2} ms", middle(times));
        println!(
            "  all {SESSIONS} sessions                 {:>6.0} ms",
            began.elapsed().as_secs_f64() * 1e3
        );
    });
    server.stop();
}
