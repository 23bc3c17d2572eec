//! One writer and a thousand subscribers: healthy ones, stalled ones, and those whose connections break.

use crate::support::*;
use bowline::limits::FEED_CALLS_IN_FLIGHT_MAX;
use bowline::wire::bowline_capnp::vat;
use bowline::wire::feed_capnp::{sink, subscription};
use bowline::wire::root_capnp::root;
use bowline::wire::session_capnp::session;
use futures::future::{join, join_all, try_join_all};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::mpsc;
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

/// Client threads. A connection belongs to one of them.
const THREADS: usize = 2;
/// Few enough to leave room below the usual limit of 1024 files, here and in the server.
const CONNECTIONS: usize = 50;
const SUBSCRIBERS_PER_CONNECTION: usize = 20;
/// Connections that break, again and again, and those nobody reads from any more.
const BREAKING: usize = 10;
const DEAF: usize = 2;
/// Of the subscribers of every other connection, so many never return.
const STALLED_PER_CONNECTION: usize = 2;
/// How often a breaking connection breaks.
const BREAKS: u64 = 5;

/// Ops that are there before anybody subscribes, and in all.
const HISTORY: u64 = 500;
const OPS: u64 = 2000;
const BATCH: u64 = 20;
/// How far the writer runs ahead of one healthy subscriber per thread. It could be done long before
/// anybody has heard half of it; then all would be history, and nothing live.
const LEAD: u64 = 100;

/// What the server may grow by.
const GROWTH_KIB_MAX: u64 = 128 << 10;

/// One subscriber, for as long as the test lasts.
#[derive(Default)]
struct Subscriber {
    /// Never returns.
    stalled: bool,
    /// The server keeps its place.
    name: Option<String>,
    /// The place it has processed.
    place: Cell<u64>,
    /// Events that came again.
    repeats: Cell<u64>,
    calls: Cell<usize>,
    /// What is wrong with what it was told.
    wrong: RefCell<Option<String>>,
    moved: Notify,
}

impl Subscriber {
    fn hear(&self, place: u64) {
        match place {
            again if again <= self.place.get() => self.repeats.set(self.repeats.get() + 1),
            next if next == self.place.get() + 1 => self.place.set(next),
            _ => self.goes_wrong(format!("{place} came behind {}", self.place.get())),
        }
    }

    fn goes_wrong(&self, why: String) {
        self.wrong.borrow_mut().get_or_insert(why);
    }

    /// Waits until it has come so far.
    async fn until(&self, place: u64) {
        loop {
            let moved = self.moved.notified();
            if let Some(why) = &*self.wrong.borrow() {
                panic!("{why}");
            }
            if self.place.get() >= place {
                return;
            }
            moved.await;
        }
    }
}

struct Sink(Rc<Subscriber>);

impl Sink {
    async fn returns(&self) -> capnp::Result<()> {
        self.0.calls.set(self.0.calls.get() + 1);
        self.0.moved.notify_waiters();
        match self.0.stalled {
            true => std::future::pending().await,
            false => Ok(()),
        }
    }
}

impl sink::Server for Sink {
    async fn events(
        self: Rc<Self>,
        params: sink::EventsParams,
        _: sink::EventsResults,
    ) -> capnp::Result<()> {
        for event in params.get()?.get_page()?.get_events()? {
            self.0.hear(event.get_place());
        }
        drop(params);
        self.returns().await
    }

    async fn caught_up(
        self: Rc<Self>,
        params: sink::CaughtUpParams,
        _: sink::CaughtUpResults,
    ) -> capnp::Result<()> {
        // A named one may have to be told again what it has.
        let place = params.get()?.get_place();
        if place > self.0.place.get() {
            self.0.goes_wrong(format!("caught up at {place} behind {}", self.0.place.get()));
        }
        drop(params);
        self.returns().await
    }

    async fn gap(self: Rc<Self>, _: sink::GapParams, _: sink::GapResults) -> capnp::Result<()> {
        self.0.goes_wrong("a gap in history that was never compacted".into());
        self.returns().await
    }

    async fn ended(
        self: Rc<Self>,
        params: sink::EndedParams,
        _: sink::EndedResults,
    ) -> capnp::Result<()> {
        let code = params.get()?.get_reason()?.get_code()?.to_string()?;
        self.0.goes_wrong(format!("ended: {code}"));
        drop(params);
        self.returns().await
    }
}

/// A reader that ceases to read once it is told to.
struct Ear {
    stream: OwnedReadHalf,
    deaf: Rc<Cell<bool>>,
}

impl AsyncRead for Ear {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        match self.deaf.get() {
            true => Poll::Pending,
            false => Pin::new(&mut self.stream).poll_read(context, buffer),
        }
    }
}

/// Where the session is.
#[derive(Clone)]
struct Address {
    server: SocketAddr,
    sturdy_ref: String,
}

/// A connection with its feeds running. The objects belong to the subscriptions: without them the feeds
/// would end.
struct Listening {
    _subscriptions: Vec<subscription::Client>,
    deaf: Rc<Cell<bool>>,
    link: AbortHandle,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.link.abort();
    }
}

fn session(vat: &vat::Client, sturdy_ref: &str) -> session::Client {
    let root: root::Client = redeem(vat, sturdy_ref);
    let project = open_project(&root, &mut Producer::new(), "/fanout").pipeline.get_project();
    // The first makes it; the others are refused and find it.
    ignore(create_session(&project, &mut Producer::new(), "s").promise);
    let mut request = project.session_request();
    request.get().set_id("s");
    request.send().pipeline.get_session()
}

/// Connects, and asks for every subscriber's feed from where it is.
async fn listen(address: &Address, subscribers: &[Rc<Subscriber>]) -> Listening {
    let stream = TcpStream::connect(address.server).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (stream, writer) = stream.into_split();
    let deaf = Rc::new(Cell::new(false));
    let (vat, link) = client_to_cut(Ear { stream, deaf: deaf.clone() }, writer);
    let session = session(&vat, &address.sturdy_ref);
    let begun = subscribers.iter().map(|subscriber| {
        let mut request = session.feed_request();
        let mut wish = request.get().init_wish();
        match &subscriber.name {
            Some(name) => wish.set_name(name),
            None => wish.set_after(subscriber.place.get()),
        }
        request.get().set_sink(capnp_rpc::new_client(Sink(subscriber.clone())));
        let sent = request.send().promise;
        async { sent.await?.get()?.get_subscription() }
    });
    let _subscriptions = try_join_all(begun).await.unwrap();
    Listening { _subscriptions, deaf, link }
}

/// The subscribers of one connection, until the healthy ones have heard everything.
struct Party {
    number: usize,
    subscribers: Vec<Rc<Subscriber>>,
}

impl Party {
    fn new(number: usize) -> Self {
        let subscribers = (0..SUBSCRIBERS_PER_CONNECTION).map(|n| {
            let breaking = number < BREAKING;
            // Of those that come back, every other one leaves it to the server to know where it was.
            let name = (breaking && n % 2 == 1).then(|| format!("c{number}-{n}"));
            let stalled = !breaking && n < STALLED_PER_CONNECTION;
            Rc::new(Subscriber { name, stalled, ..Subscriber::default() })
        });
        Self { number, subscribers: subscribers.collect() }
    }

    fn is_breaking(&self) -> bool {
        self.number < BREAKING
    }

    fn is_deaf(&self) -> bool {
        (BREAKING..BREAKING + DEAF).contains(&self.number)
    }

    fn healthy(&self) -> impl Iterator<Item = &Rc<Subscriber>> {
        self.subscribers.iter().filter(|subscriber| !subscriber.stalled && !self.is_deaf())
    }

    /// Hears everything; the connection as it is then.
    async fn attend(&self, address: &Address, mut listening: Listening) -> Listening {
        if self.is_breaking() {
            for cut in 1..=BREAKS {
                // Not all at the same place.
                let place = HISTORY + cut * (OPS - HISTORY) / (BREAKS + 1) + self.number as u64;
                let one = &self.subscribers[self.number % SUBSCRIBERS_PER_CONNECTION];
                one.until(place).await;
                drop(listening);
                listening = listen(address, &self.subscribers).await;
            }
        }
        join_all(self.healthy().map(|subscriber| subscriber.until(OPS))).await;
        listening
    }
}

/// What came of a thread's subscribers.
#[derive(Default)]
struct Told {
    healthy: usize,
    stalled: usize,
    repeats: u64,
    calls: usize,
}

/// Some of the parties. Says when all of them listen, how far one healthy subscriber is, and when all of
/// those have heard everything; holds on to the others until it is let go.
async fn attend(
    numbers: Vec<usize>,
    address: Address,
    say: mpsc::Sender<()>,
    at: watch::Sender<u64>,
    mut let_go: watch::Receiver<bool>,
) -> Told {
    let parties: Vec<_> = numbers.into_iter().map(Party::new).collect();
    let listening = join_all(parties.iter().map(async |party| {
        let listening = listen(&address, &party.subscribers).await;
        listening.deaf.set(party.is_deaf());
        listening
    }));
    let listening = listening.await;
    say.send(()).unwrap();
    let heard = parties.iter().zip(listening);
    let heard = join_all(heard.map(|(party, listening)| party.attend(&address, listening)));
    let one = parties.last().and_then(|party| party.healthy().last()).unwrap();
    let saying = async {
        for place in (HISTORY..=OPS).step_by(BATCH as usize) {
            one.until(place).await;
            at.send_replace(place);
        }
    };
    let (heard, ()) = join(heard, saying).await;
    say.send(()).unwrap();
    let_go.wait_for(|let_go| *let_go).await.unwrap();
    drop(heard);

    let mut told = Told::default();
    for party in &parties {
        for subscriber in party.healthy() {
            assert_eq!(*subscriber.wrong.borrow(), None);
            assert_eq!(subscriber.place.get(), OPS);
            // Who asks from a place of its own hears nothing twice.
            assert!(subscriber.name.is_some() || subscriber.repeats.get() == 0);
            told.healthy += 1;
            told.repeats += subscriber.repeats.get();
            told.calls += subscriber.calls.get();
        }
        for subscriber in party.subscribers.iter().filter(|subscriber| subscriber.stalled) {
            assert!(subscriber.calls.get() <= FEED_CALLS_IN_FLIGHT_MAX);
            assert!(subscriber.place.get() < OPS, "it has stalled");
            told.stalled += 1;
        }
    }
    told
}

/// Appends ops in batches, each after the one before, and none too far ahead of those who are waited for.
async fn write(
    session: &session::Client,
    producer: &mut Producer,
    through: u64,
    waited_for: &mut [watch::Receiver<u64>],
) {
    while producer.next <= through {
        for at in waited_for.iter_mut() {
            at.wait_for(|at| at + LEAD >= producer.next).await.expect("its thread is well");
        }
        let end = (producer.next + BATCH - 1).min(through);
        let texts: Vec<_> = (producer.next..=end).map(|seq| seq.to_string()).collect();
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let answer = producer.batch(session, &texts).send().promise.await.unwrap();
        let ack = answer.get().unwrap().get_ack().unwrap();
        assert_eq!((ack.get_cursor(), ack.has_stopped()), (end, false));
        producer.acked_through = end;
    }
}

#[test]
fn a_thousand_subscribers_hear_everything_once_in_order_whatever_their_neighbours_do() {
    let server = Server::start();
    let address = Address { server: server.tcp, sturdy_ref: server.root_ref() };
    let mut producer = Producer::new();
    local(async {
        let session = session(&connect(&server).await, &address.sturdy_ref);
        write(&session, &mut producer, HISTORY, &mut []).await;
    });
    let before = server.resident_kib();

    let told = std::thread::scope(|scope| {
        // Whoever panics hangs up, and then nobody waits for anybody.
        let (say, said) = mpsc::channel();
        let (let_go, going) = watch::channel(false);
        let mut waited_for = Vec::new();
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let numbers = (0..CONNECTIONS).filter(|n| n % THREADS == thread).collect();
                let (at, is_at) = watch::channel(0);
                waited_for.push(is_at);
                let (address, say, going) = (address.clone(), say.clone(), going.clone());
                scope.spawn(move || local(attend(numbers, address, say, at, going)))
            })
            .collect();
        drop(say);
        let all_say = |what: &str| threads.iter().for_each(|_| said.recv().expect(what));
        all_say("everybody listens");
        let begun = Instant::now();
        local(async {
            let session = session(&connect(&server).await, &address.sturdy_ref);
            write(&session, &mut producer, OPS, &mut waited_for).await;
        });
        let written = begun.elapsed();
        all_say("the healthy ones hear everything");
        println!("{} ops written in {written:?}, heard in {:?}", OPS - HISTORY, begun.elapsed());
        let_go.send(true).unwrap();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });

    let sum = |count: fn(&Told) -> usize| told.iter().map(count).sum::<usize>();
    let (healthy, stalled) = (sum(|told| told.healthy), sum(|told| told.stalled));
    let deaf = DEAF * (SUBSCRIBERS_PER_CONNECTION - STALLED_PER_CONNECTION);
    assert_eq!(healthy + stalled + deaf, 1000);
    let repeats: u64 = told.iter().map(|told| told.repeats).sum();
    println!(
        "{healthy} heard {OPS} events each in {} calls, {repeats} of them again; {} stood still",
        sum(|told| told.calls),
        stalled + deaf
    );
    let grown = server.resident_peak_kib().saturating_sub(before);
    println!("the server grew from {before} by at most {grown} KiB");
    assert!(grown < GROWTH_KIB_MAX, "the server grew by {grown} KiB");
}
