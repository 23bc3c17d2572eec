//! What does it cost a client to bring a hundred thousand ops home, once and again?
//!
//!     cargo bench --bench sync
//!     cargo bench --bench sync -- replay      # one part alone: ways, replay, growth or disk
//!
//! - *ways*: the same ops in batches with several on their way, through a streaming `Writer`, and one call
//!   at a time; beside raw rusqlite committing the same rows on the same disk in the same run.
//! - *replay*: ops that are applied already, sent again, beside the first time they were sent.
//! - *growth*: what an op costs when the log already holds a thousand, a hundred thousand and a million.
//! - *disk*: bytes the database takes up for each byte a client gave it.
//!
//! Rounds of what is compared are interleaved, and the middle one counts. Compare the ratios, not the
//! rates: those are the machine's.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout
)]

mod common;

use bowline::limits::WINDOW_OPS_MAX;
use bowline::wire::bowline_capnp::outcome;
use bowline::wire::session_capnp::{session, writer};
use capnp::capability::Promise;
use common::{Bare, Ids, Pipeline, Producer, Raw, Server, local, middle, raw_payload};
use std::collections::VecDeque;
use std::path::Path;
use std::time::Instant;

const OPS: usize = 100_000;
const TEXT_BYTES: usize = 1024;
const ROUNDS: usize = 5;
/// Eight batches stay well within the window of results a client may leave unacknowledged.
const PIPELINE: Pipeline = Pipeline { batch_ops: 256, in_flight: 8 };
/// Ops between two flushes of a stream, and flushes that wait for their answer. While the ops behind the
/// last flush are written, three times as many may be unacknowledged, which is less than the window.
const FLUSH_OPS: usize = 1024;
const FLUSHES_IN_FLIGHT: usize = 2;
const _: () = assert!((FLUSHES_IN_FLIGHT + 1) * FLUSH_OPS < WINDOW_OPS_MAX as usize);
/// One at a time takes long, and its rate shows soon.
const OPS_ONE_BY_ONE: usize = 3_000;

/// Logs to be measured at, and the ops a measurement adds to each.
const LOG_OPS: [usize; 3] = [1_000, 100_000, 1_000_000];
const LOG_OPS_ADDED: usize = 10_240;
const LOG_ROUNDS: usize = 5;
/// A log is filled with small ops in large batches: only their number matters.
const FILL_TEXT_BYTES: usize = 100;
const FILL: Pipeline = Pipeline { batch_ops: 1000, in_flight: 3 };

fn main() {
    type Part = fn(&Path);
    let parts: [(&str, Part); 4] =
        [("ways", ways), ("replay", replay), ("growth", growth), ("disk", disk)];
    let only: Vec<String> =
        std::env::args().filter(|arg| parts.iter().any(|p| p.0 == arg)).collect();
    for (name, part) in parts {
        if only.is_empty() || only.iter().any(|only| only == name) {
            let dir = tempfile::tempdir().unwrap();
            part(dir.path());
        }
    }
}

/// The three ways in, and their limits.
fn ways(dir: &Path) {
    println!(
        "{OPS} ops of {TEXT_BYTES} bytes through one connection (unix socket), ops per second\n"
    );
    let server = Server::start(&dir.join("ways"));
    let (mut raw, mut bare) = (Raw::open(&dir.join("raw.db")), Bare::open(&dir.join("bare.db")));
    let text = "x".repeat(TEXT_BYTES);
    let payload = raw_payload(TEXT_BYTES);
    let together = PIPELINE.batch_ops * PIPELINE.in_flight;
    let mut rates: [Vec<f64>; 7] = Default::default();
    for _ in 0..ROUNDS {
        let measured = [
            raw_rate(&mut raw, OPS_ONE_BY_ONE, 1, &payload),
            raw_rate(&mut raw, OPS, PIPELINE.batch_ops, &payload),
            raw_rate(&mut raw, OPS, together, &payload),
            bare_rate(&mut bare, OPS, PIPELINE.batch_ops, &payload),
            local(async {
                let (session, mut producer) = (server.session().await, Producer::new());
                let one = Pipeline { batch_ops: 1, in_flight: 1 };
                rate_of(one.append(&session, &mut producer, &text, |n| n < OPS_ONE_BY_ONE)).await
            }),
            local(async {
                let (session, mut producer) = (server.session().await, Producer::new());
                rate_of(PIPELINE.append(&session, &mut producer, &text, |n| n < OPS)).await
            }),
            local(async {
                let (session, mut producer) = (server.session().await, Producer::new());
                rate_of(stream(&session, &mut producer, &text, OPS)).await
            }),
        ];
        for (rates, rate) in rates.iter_mut().zip(measured) {
            rates.push(rate);
        }
    }
    let [raw_one, raw_batch, raw_together, bare, one, batches, streamed] = rates.map(middle);
    println!("{:>46} {:>8} {:>9} {:>12}", "", "ops/s", "over raw", "over single");
    let print = |what: &str, rate: f64, peer: Option<f64>| {
        let over_raw = peer.map_or(String::new(), |peer| format!("{:.0}%", 100.0 * rate / peer));
        println!("{what:>46} {rate:>8.0} {over_raw:>9} {:>11.1}x", rate / one);
    };
    let batch = PIPELINE.batch_ops;
    print(&format!("raw, {batch} payloads in a transaction, no index"), bare, None);
    print("raw, 1 op in a transaction", raw_one, None);
    print(&format!("raw, {batch} ops in a transaction"), raw_batch, None);
    print(&format!("raw, {together} ops in a transaction"), raw_together, None);
    print("one op per call, each waited for", one, Some(raw_one));
    print(
        &format!("batches of {batch}, {} in flight", PIPELINE.in_flight),
        batches,
        Some(raw_batch),
    );
    print(&format!("a stream, flushed every {FLUSH_OPS} ops"), streamed, Some(raw_batch));
    println!(
        "\n(over raw: a single op over 1 in a transaction, the others over {batch}. The server commits\n\
         together whatever waits, up to {together} ops here, so it can be faster than that.)"
    );
}

/// Ops that are applied already.
fn replay(dir: &Path) {
    println!(
        "\n{OPS} ops of {TEXT_BYTES} bytes that are applied already, sent again in batches of"
    );
    println!("{}, {} in flight, ops per second\n", PIPELINE.batch_ops, PIPELINE.in_flight);
    let server = Server::start(&dir.join("replay"));
    let text = "x".repeat(TEXT_BYTES);
    let mut rates: [Vec<f64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        local(async {
            let (session, mut producer) = (server.session().await, Producer::new());
            let window = WINDOW_OPS_MAX as usize;
            let appended = PIPELINE.append(&session, &mut producer, &text, |n| n < OPS - window);
            let first = rate_of(appended).await;
            // The results of the last window arrive, but the server is not told.
            for _ in 0..window / PIPELINE.batch_ops {
                let batch = producer.batch(&session, &text, PIPELINE.batch_ops);
                batch.send().promise.await.unwrap();
            }
            let (acked_through, last) = (producer.acked_through, producer.next - 1);
            assert_eq!(head(&session).await, last);

            let duplicate = |it: outcome::WhichReader<'_>| matches!(it, outcome::Duplicate(()));
            let open = (acked_through + 1, last);
            let kept = rate_of(repeat(&session, &producer, &text, open, duplicate)).await;
            assert_eq!(head(&session).await, last, "a repeat added something");

            // Now it is told, with one op more.
            producer.acked_through = last;
            producer.batch(&session, &text, 1).send().promise.await.unwrap();
            let dropped =
                |it: outcome::WhichReader<'_>| matches!(it, outcome::DuplicateDropped(()));
            let dropped = rate_of(repeat(&session, &producer, &text, (1, last), dropped)).await;
            assert_eq!(head(&session).await, last + 1, "a repeat added something");
            for (rates, rate) in rates.iter_mut().zip([first, kept, dropped]) {
                rates.push(rate);
            }
        });
    }
    let [first, kept, dropped] = rates.map(middle);
    println!("{:>46} {:>8} {:>15}", "", "ops/s", "over first time");
    for (what, rate) in [
        ("the first time".to_owned(), first),
        (format!("the last {WINDOW_OPS_MAX}, unacknowledged, round and round"), kept),
        ("all, acknowledged".to_owned(), dropped),
    ] {
        println!("{what:>46} {rate:>8.0} {:>14.1}x", rate / first);
    }
    println!("\nno message was added by any of them");
}

/// Sends the ops from the first to the last number again, and from the start when it is through, until as
/// many as [`OPS`] were sent; every outcome must be as expected.
async fn repeat(
    session: &session::Client,
    producer: &Producer,
    text: &str,
    (first, last): (u64, u64),
    expected: impl Fn(outcome::WhichReader<'_>) -> bool,
) -> usize {
    let mut flying = VecDeque::new();
    let (mut next, mut sent, mut heard) = (first, 0, 0);
    loop {
        if sent < OPS && flying.len() < PIPELINE.in_flight {
            let count = PIPELINE.batch_ops.min((last + 1 - next) as usize).min(OPS - sent);
            flying.push_back(producer.batch_at(next, session, text, count).send().promise);
            sent += count;
            next = if next + count as u64 > last { first } else { next + count as u64 };
            continue;
        }
        let Some(oldest) = flying.pop_front() else { break };
        let answer = oldest.await.unwrap();
        let ack = answer.get().unwrap().get_ack().unwrap();
        assert!(!ack.has_stopped(), "a repeat was stopped");
        let outcomes = ack.get_outcomes().unwrap();
        heard += outcomes.len() as usize;
        for outcome in outcomes {
            assert!(expected(outcome.which().unwrap()), "a repeat got another answer");
        }
    }
    assert_eq!(heard, OPS);
    heard
}

/// Ops at the end of short and long logs. All logs are in one database, so what differs is the log alone.
fn growth(dir: &Path) {
    for (name, ids) in [("random", Ids::Scattered), ("in order", Ids::InOrder)] {
        growth_with(&dir.join(name), name, ids);
    }
}

fn growth_with(dir: &Path, name: &str, ids: Ids) {
    println!(
        "\n{LOG_OPS_ADDED} further ops of {TEXT_BYTES} bytes, by how many the log already holds;"
    );
    println!("op ids {name}\n");
    std::fs::create_dir(dir).unwrap();
    let server = Server::start(&dir.join("growth"));
    let mut raw = Raw::open(&dir.join("raw.db"));
    raw.ids = ids;
    let (text, fill) = ("x".repeat(TEXT_BYTES), "x".repeat(FILL_TEXT_BYTES));
    let (payload, fill_payload) = (raw_payload(TEXT_BYTES), raw_payload(FILL_TEXT_BYTES));
    let (ours, limits) = local(async {
        let filled = async |ops: usize| {
            let session = server.session().await;
            let mut producer = Producer { ids, ..Producer::new() };
            FILL.append(&session, &mut producer, &fill, |n| n < ops).await;
            (session, producer)
        };
        let mut logs = Vec::new();
        let mut raw_logs = Vec::new();
        for ops in LOG_OPS {
            // A round would make the shortest log many times as long, so each has one of its own.
            let logs_wanted = if ops < LOG_OPS_ADDED { LOG_ROUNDS } else { 1 };
            let mut of_size = VecDeque::new();
            let mut raw_of_size = VecDeque::new();
            for _ in 0..logs_wanted {
                of_size.push_back(filled(ops).await);
                let sessions = raw.make_sessions(1);
                for at in 0..ops / FILL.batch_ops {
                    let after = (at * FILL.batch_ops) as i64;
                    raw.commit(sessions.clone(), after, FILL.batch_ops, &fill_payload);
                }
                raw_of_size.push_back((sessions, ops as i64));
            }
            logs.push(of_size);
            raw_logs.push(raw_of_size);
        }
        let mut ours: [(Vec<f64>, Vec<f64>); LOG_OPS.len()] = Default::default();
        let mut limits: [Vec<f64>; LOG_OPS.len()] = Default::default();
        for _ in 0..LOG_ROUNDS {
            for at in 0..LOG_OPS.len() {
                // The next log of this size, or the only one.
                logs[at].rotate_left(1);
                let (session, producer) = &mut logs[at][0];
                let written = server.written_bytes();
                let appended = PIPELINE.append(session, producer, &text, |n| n < LOG_OPS_ADDED);
                ours[at].0.push(rate_of(appended).await);
                let written = server.written_bytes() - written;
                ours[at].1.push(written as f64 / LOG_OPS_ADDED as f64);

                raw_logs[at].rotate_left(1);
                let (sessions, after) = &mut raw_logs[at][0];
                let begun = Instant::now();
                for _ in 0..LOG_OPS_ADDED / PIPELINE.batch_ops {
                    raw.commit(sessions.clone(), *after, PIPELINE.batch_ops, &payload);
                    *after += PIPELINE.batch_ops as i64;
                }
                limits[at].push(LOG_OPS_ADDED as f64 / begun.elapsed().as_secs_f64());
            }
        }
        (ours, limits)
    });
    println!(
        "{:>10} {:>8} {:>14} {:>8} {:>14} {:>8} {:>16}",
        "in the log",
        "ops/s",
        "cost over 10^3",
        "raw",
        "cost over 10^3",
        "over raw",
        "KiB written/op"
    );
    let (shortest, shortest_raw) = (middle(ours[0].0.clone()), middle(limits[0].clone()));
    for ((ops, (rates, written)), limit) in LOG_OPS.into_iter().zip(ours).zip(limits) {
        let (rate, limit) = (middle(rates), middle(limit));
        println!(
            "{ops:>10} {rate:>8.0} {:>13.2}x {limit:>8.0} {:>13.2}x {:>7.0}% {:>16.1}",
            shortest / rate,
            shortest_raw / limit,
            100.0 * rate / limit,
            middle(written) / 1024.0
        );
    }
}

/// What stays on the disk of an op.
fn disk(dir: &Path) {
    println!("\nbytes on disk after an orderly end, everything acknowledged\n");
    println!(
        "{:>10} {:>10} {:>12} {:>16}",
        "ops", "text bytes", "bytes per op", "per payload byte"
    );
    for text_bytes in [TEXT_BYTES, FILL_TEXT_BYTES] {
        let server = Server::start(&dir.join(format!("disk-{text_bytes}")));
        let text = "x".repeat(text_bytes);
        local(async {
            let (session, mut producer) = (server.session().await, Producer::new());
            stream(&session, &mut producer, &text, OPS).await;
        });
        let per_op = server.stop() as f64 / OPS as f64;
        let per_byte = per_op / text_bytes as f64;
        println!("{OPS:>10} {text_bytes:>10} {per_op:>12.0} {per_byte:>15.2}x");
    }
}

/// Streams the producer's next ops; every one is applied when this returns. The ops behind a flush follow
/// without waiting for its answer.
async fn stream(
    session: &session::Client,
    producer: &mut Producer,
    text: &str,
    count: usize,
) -> usize {
    let mut request = session.writer_request();
    let mut draft = request.get().init_producer();
    draft.set_producer(&producer.id);
    draft.set_producer_epoch(1);
    draft.set_first_seq(producer.next);
    draft.set_acked_through(producer.acked_through);
    let writer = request.send().promise.await.unwrap().get().unwrap().get_writer().unwrap();
    let mut flushes = VecDeque::new();
    let mut applied = 0;
    for at in 1..=count {
        let mut request = writer.write_request();
        producer.message(producer.next, text, request.get().init_op());
        producer.next += 1;
        request.send().await.unwrap();
        if at % FLUSH_OPS == 0 || at == count {
            if flushes.len() == FLUSHES_IN_FLIGHT {
                applied += flushed(producer, flushes.pop_front().unwrap()).await;
            }
            let mut request = writer.flush_request();
            request.get().set_acked_through(producer.acked_through);
            flushes.push_back(request.send().promise);
        }
    }
    for flush in flushes {
        applied += flushed(producer, flush).await;
    }
    assert_eq!(applied, count);
    applied
}

type Flush = Promise<capnp::capability::Response<writer::flush_results::Owned>, capnp::Error>;

async fn flushed(producer: &mut Producer, flush: Flush) -> usize {
    producer.take(flush.await.unwrap().get().unwrap().get_ack().unwrap())
}

async fn head(session: &session::Client) -> u64 {
    let answer = session.info_request().send().promise.await.unwrap();
    answer.get().unwrap().get_session().unwrap().get_head()
}

/// How many of something are done in a second.
async fn rate_of(done: impl Future<Output = usize>) -> f64 {
    let begun = Instant::now();
    let done = done.await;
    done as f64 / begun.elapsed().as_secs_f64()
}

fn raw_rate(raw: &mut Raw, rows: usize, batch: usize, payload: &[u8]) -> f64 {
    let session = raw.make_sessions(1);
    let begun = Instant::now();
    let mut done = 0;
    while done < rows {
        raw.commit(session.clone(), done as i64, batch, payload);
        done += batch;
    }
    done as f64 / begun.elapsed().as_secs_f64()
}

fn bare_rate(bare: &mut Bare, rows: usize, batch: usize, payload: &[u8]) -> f64 {
    let begun = Instant::now();
    let mut done = 0;
    while done < rows {
        bare.commit(batch, payload);
        done += batch;
    }
    done as f64 / begun.elapsed().as_secs_f64()
}
