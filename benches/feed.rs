//! How many events a second do feeds deliver, and does the writer notice?
//!
//!     cargo bench --bench feed
//!     cargo bench --bench feed -- 100         # with so many subscribers alone
//!
//! One writer, and more and more subscribers to the same session, on a few threads and connections.
//!
//! - *delivery*: a fixed number of events is written at once; the clock runs until the last subscriber has
//!   the last of them. Every subscriber checks that it gets each once and in order.
//! - *writer*: it writes for a while as fast as it can while the subscribers are fed behind it, beside the
//!   same with none. Clients and server share the machine's cores, so the writer loses speed to whoever
//!   else needs them; the processor time its thread in the server takes per op tells what subscribers
//!   cost the writer itself.
//!
//! Rounds with and without subscribers are interleaved, and the middle one counts.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout
)]

mod common;

use bowline::wire::feed_capnp::{sink, subscription};
use bowline::wire::session_capnp::session;
use common::{Pipeline, Producer, Server, create_session, local, middle, open_project};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

const SUBSCRIBERS: [usize; 4] = [1, 10, 100, 1000];
const THREADS: usize = 4;
const CONNECTIONS_PER_THREAD: usize = 2;
const EVENTS: usize = 10_240;
const TEXT_BYTES: usize = 100;
const PIPELINE: Pipeline = Pipeline { batch_ops: 64, in_flight: 8 };
const ROUNDS: usize = 3;
const WRITING: Duration = Duration::from_secs(2);
/// How often a client thread looks whether it is told to leave.
const LOOK_EVERY: Duration = Duration::from_millis(20);

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let server = Arc::new(Server::start(&dir.path().join("feed")));
    println!("1 writer, {TEXT_BYTES} bytes an op; subscribers to one session on {THREADS} threads");
    println!("with {CONNECTIONS_PER_THREAD} connections each (unix socket)\n");
    println!(
        "{:>11} {:>12} {:>12} | {:>9} {:>9} {:>8} | {:>12} {:>9} {:>8}",
        "",
        "delivered",
        "each gets",
        "writer",
        "with none",
        "ratio",
        "its thread",
        "with none",
        "ratio"
    );
    println!(
        "{:>11} {:>12} {:>12} | {:>9} {:>9} {:>8} | {:>12} {:>9} {:>8}",
        "subscribers", "events/s", "events/s", "ops/s", "ops/s", "", "cpu µs/op", "cpu µs/op", ""
    );
    let only: Option<usize> = std::env::args().find_map(|arg| arg.parse().ok());
    for subscribers in SUBSCRIBERS {
        if only.is_some_and(|only| only != subscribers) {
            continue;
        }
        let mut delivered = Vec::new();
        let (mut with, mut with_none) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
        for _ in 0..ROUNDS {
            delivered.push(delivery(&server, subscribers));
            for (count, into) in [(0, &mut with_none), (subscribers, &mut with)] {
                let (rate, cpu_us) = writing(&server, count);
                into.0.push(rate);
                into.1.push(cpu_us);
            }
        }
        let delivered = middle(delivered);
        let (rate, cpu_us) = (middle(with.0), middle(with.1));
        let (rate_none, cpu_us_none) = (middle(with_none.0), middle(with_none.1));
        println!(
            "{subscribers:>11} {delivered:>12.0} {:>12.0} | {rate:>9.0} {rate_none:>9.0} {:>7.0}% | \
             {cpu_us:>12.1} {cpu_us_none:>9.1} {:>7.2}x",
            delivered / subscribers as f64,
            100.0 * rate / rate_none,
            cpu_us / cpu_us_none
        );
    }
}

/// Events that reach all sinks together in a second, when a fixed number of them is written at once.
fn delivery(server: &Arc<Server>, subscribers: usize) -> f64 {
    let id = fresh_session(server);
    let audience = Audience::gather(server, &id, subscribers);
    let (begun, ops) = local(async {
        let (session, mut producer) = (session_by_id(server, &id).await, Producer::new());
        let begun = Instant::now();
        let ops = PIPELINE.append(&session, &mut producer, &text(), |n| n < EVENTS).await;
        (begun, ops)
    });
    assert_eq!(ops, EVENTS);
    audience.wait_for(EVENTS as u64);
    (EVENTS * subscribers) as f64 / begun.elapsed().as_secs_f64()
}

/// The writer's ops per second while so many are fed behind it, and the microseconds of processor time
/// the server's writing thread takes for one of them.
fn writing(server: &Arc<Server>, subscribers: usize) -> (f64, f64) {
    let id = fresh_session(server);
    let _audience = Audience::gather(server, &id, subscribers);
    local(async {
        let (session, mut producer) = (session_by_id(server, &id).await, Producer::new());
        let cpu_ms = server.cpu_ms("writer");
        let begun = Instant::now();
        let go_on = |_| begun.elapsed() < WRITING;
        let ops = PIPELINE.append(&session, &mut producer, &text(), go_on).await as f64;
        let rate = ops / begun.elapsed().as_secs_f64();
        (rate, 1000.0 * (server.cpu_ms("writer") - cpu_ms) / ops)
    })
}

fn text() -> String {
    "x".repeat(TEXT_BYTES)
}

fn fresh_session(server: &Server) -> String {
    static SESSIONS: AtomicU64 = AtomicU64::new(0);
    let id = format!("s{}", SESSIONS.fetch_add(1, Ordering::Relaxed));
    local(async {
        let project = open_project(&server.root().await, &mut Producer::new());
        let session = create_session(&project, &mut Producer::new(), &id);
        session.info_request().send().promise.await.unwrap();
    });
    id
}

/// The session on a connection of its own.
async fn session_by_id(server: &Server, id: &str) -> session::Client {
    let project = open_project(&server.root().await, &mut Producer::new());
    let mut request = project.session_request();
    request.get().set_id(id);
    request.send().promise.await.unwrap().get().unwrap().get_session().unwrap()
}

/// What all threads know of each other.
#[derive(Default)]
struct Hall {
    /// Events all sinks have heard, together.
    heard: AtomicU64,
    /// A sink heard something it should not have.
    wrong: AtomicBool,
    /// Everybody may leave.
    over: AtomicBool,
}

/// Subscribers on their threads. They leave when it is dropped.
struct Audience {
    threads: Vec<JoinHandle<()>>,
    subscribers: usize,
    hall: Arc<Hall>,
}

impl Audience {
    /// Returns once all of them have caught up.
    fn gather(server: &Arc<Server>, id: &str, subscribers: usize) -> Self {
        let hall = Arc::<Hall>::default();
        let (ready, is_ready) = mpsc::channel();
        let threads = (0..THREADS.min(subscribers)).map(|thread| {
            let (server, id) = (server.clone(), id.to_owned());
            let (hall, ready) = (hall.clone(), ready.clone());
            // The first threads take what does not divide.
            let own = subscribers / THREADS + usize::from(thread < subscribers % THREADS);
            thread::spawn(move || {
                local(async {
                    let _feeds = subscribe(&server, &id, own, &hall).await;
                    ready.send(()).unwrap();
                    while !hall.over.load(Ordering::Relaxed) {
                        tokio::time::sleep(LOOK_EVERY).await;
                    }
                });
            })
        });
        let threads: Vec<_> = threads.collect();
        for _ in &threads {
            is_ready.recv().unwrap();
        }
        Self { threads, subscribers, hall }
    }

    /// Waits until each has heard so many events.
    fn wait_for(&self, events: u64) {
        let all = events * self.subscribers as u64;
        while self.hall.heard.load(Ordering::Relaxed) < all {
            assert!(!self.hall.wrong.load(Ordering::Relaxed), "a subscriber heard something wrong");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Audience {
    fn drop(&mut self) {
        self.hall.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

/// Subscribes so many sinks, spread over a thread's connections; returns when they have caught up.
async fn subscribe(
    server: &Server,
    id: &str,
    count: usize,
    hall: &Arc<Hall>,
) -> Vec<(session::Client, subscription::Client)> {
    let mut sessions = Vec::new();
    for _ in 0..CONNECTIONS_PER_THREAD.min(count) {
        sessions.push(session_by_id(server, id).await);
    }
    let caught_up = Rc::new(CaughtUp::default());
    let mut feeds = Vec::new();
    for at in 0..count {
        let session = &sessions[at % sessions.len()];
        let sink = Sink { last: Cell::new(0), hall: hall.clone(), caught_up: caught_up.clone() };
        let mut request = session.feed_request();
        request.get().set_sink(capnp_rpc::new_client(sink));
        let answer = request.send().promise.await.unwrap();
        feeds.push((session.clone(), answer.get().unwrap().get_subscription().unwrap()));
    }
    while caught_up.count.get() < count {
        caught_up.news.notified().await;
    }
    feeds
}

/// How many of a thread's sinks were told that they have everything.
#[derive(Default)]
struct CaughtUp {
    count: Cell<usize>,
    news: Notify,
}

/// Looks at every event's place, and at nothing more: this is about the server.
struct Sink {
    last: Cell<u64>,
    hall: Arc<Hall>,
    caught_up: Rc<CaughtUp>,
}

impl sink::Server for Sink {
    async fn events(
        self: Rc<Self>,
        params: sink::EventsParams,
        _: sink::EventsResults,
    ) -> capnp::Result<()> {
        let events = params.get()?.get_page()?.get_events()?;
        for event in events {
            if event.get_place() != self.last.get() + 1 {
                self.hall.wrong.store(true, Ordering::Relaxed);
            }
            self.last.set(event.get_place());
        }
        self.hall.heard.fetch_add(events.len().into(), Ordering::Relaxed);
        Ok(())
    }

    async fn caught_up(
        self: Rc<Self>,
        _: sink::CaughtUpParams,
        _: sink::CaughtUpResults,
    ) -> capnp::Result<()> {
        self.caught_up.count.set(self.caught_up.count.get() + 1);
        self.caught_up.news.notify_one();
        Ok(())
    }

    async fn ended(
        self: Rc<Self>,
        _: sink::EndedParams,
        _: sink::EndedResults,
    ) -> capnp::Result<()> {
        self.hall.wrong.store(true, Ordering::Relaxed);
        Ok(())
    }
}
