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

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout
)]

mod common;

use common::{Producer, Raw, Server, StockServer, connect, local, middle, per_call, raw_payload};
use std::path::Path;
use std::time::{Duration, Instant};

const TEXT_BYTES: usize = 256;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(700);
const CONNECTIONS: [usize; 4] = [1, 16, 64, 256];
const BATCHES: [usize; 3] = [1, 32, 256];

fn main() {
    if common::is_stock_server() {
        return;
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
                limit.push(raw_rate(&mut raw, connections, batch));
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
        writers.push((server.session().await, Producer::new()));
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
                    done += producer.take(answer.get().unwrap().get_ack().unwrap());
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
    let _stock = StockServer::start(&socket);
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
            let session = server.session().await;
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

/// Rows per second, in transactions of `batch` rows for each of `sessions` sessions.
fn raw_rate(raw: &mut Raw, sessions: usize, batch: usize) -> f64 {
    let sessions = raw.make_sessions(sessions);
    let payload = raw_payload(TEXT_BYTES);
    let begun = Instant::now();
    let mut cursor = 0;
    while begun.elapsed() < ROUND {
        raw.commit(sessions.clone(), cursor, batch, &payload);
        cursor += batch as i64;
    }
    let rows = cursor as usize * sessions.count();
    rows as f64 / begun.elapsed().as_secs_f64()
}
