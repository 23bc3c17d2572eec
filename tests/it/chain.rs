//! The way from a sturdy ref to a message on disk: pipelining, order, pages, repeats.

use crate::support::*;
use bowline::wire::bowline_capnp::outcome;
use bowline::wire::root_capnp::root;
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

#[test]
fn a_session_is_made_and_filled_over_both_sockets() {
    let server = Server::start();
    local(async {
        for vat in [connect(&server).await, connect_unix(&server).await] {
            let root: root::Client = redeem(&vat, &server.root_ref());
            let session = fresh_session(&root);
            let mut producer = Producer::new();
            let ack = producer.batch(&session, &["hello", "world"]).send().promise.await.unwrap();
            let ack = ack.get().unwrap().get_ack().unwrap();
            assert_eq!((ack.get_cursor(), ack.get_next_expected_seq(), ack.get_floor()), (2, 3, 1));
            assert!(!ack.has_stopped());
            assert_eq!(texts(&session, 0).await, ["hello", "world"]);
        }
    });
}

/// A link with a delay that counts round trips: what the client sends belongs to the trip after the
/// latest answer it has seen, and an answer belongs to the latest trip the server had seen by then.
struct SlowLink {
    stream: TcpStream,
    /// The trip of the latest answer the client has got.
    answered: Rc<Cell<u32>>,
}

const HALF_TRIP: Duration = Duration::from_millis(50);

async fn slow_link(server: &Server) -> SlowLink {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (near, _) = listener.accept().await.unwrap();
    let far = TcpStream::connect(server.tcp).await.unwrap();
    let (from_client, to_client) = near.into_split();
    let (from_server, to_server) = far.into_split();
    let (sent, answered) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    delay(from_client, to_server, answered.clone(), 1, sent.clone());
    delay(from_server, to_client, sent, 0, answered.clone());
    SlowLink { stream, answered }
}

/// Carries bytes half a trip. They leave in trip `seen + plus`, and are `noted` when they arrive.
fn delay(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    seen: Rc<Cell<u32>>,
    plus: u32,
    noted: Rc<Cell<u32>>,
) {
    let (under_way, mut arriving) = tokio::sync::mpsc::unbounded_channel();
    tokio::task::spawn_local(async move {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(read @ 1..) = from.read(&mut bytes).await {
            let at = tokio::time::Instant::now() + HALF_TRIP;
            let _ = under_way.send((at, seen.get() + plus, bytes[..read].to_vec()));
        }
    });
    tokio::task::spawn_local(async move {
        while let Some((at, trip, bytes)) = arriving.recv().await {
            tokio::time::sleep_until(at).await;
            noted.set(noted.get().max(trip));
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
}

#[test]
fn the_whole_chain_is_one_round_trip() {
    let server = Server::start();
    local(async {
        let link = slow_link(&server).await;
        let (reader, writer) = link.stream.into_split();
        let begun = Instant::now();

        let vat = client(reader, writer);
        let root: root::Client = redeem(&vat, &server.root_ref());
        let project = open_project(&root, &mut Producer::new(), "/w").pipeline.get_project();
        let session = create_session(&project, &mut Producer::new(), "s").pipeline.get_session();
        let ack = Producer::new().batch(&session, &["hello"]).send().promise.await.unwrap();

        assert_eq!(ack.get().unwrap().get_ack().unwrap().get_cursor(), 1);
        assert_eq!(
            link.answered.get(),
            1,
            "bootstrap, redeem, open, create and append travel together"
        );
        let trip = HALF_TRIP * 2;
        assert!(begun.elapsed() >= trip, "the link is slow indeed");

        // The counter can count: a call made after the answer is a second trip.
        session.info_request().send().promise.await.unwrap();
        assert_eq!(link.answered.get(), 2);
    });
}

#[test]
fn calls_on_one_session_take_effect_in_the_order_they_were_sent() {
    let server = Server::start();
    local(async {
        let root = root(&server).await;
        // Sent before the session exists, and after.
        let session = fresh_session(&root);
        let mut producer = Producer::new();
        let texts_sent: Vec<String> = (0..200).map(|n| n.to_string()).collect();
        let mut acks = Vec::new();
        for (n, text) in texts_sent.iter().enumerate() {
            acks.push(producer.batch(&session, &[text]).send().promise);
            if n == 100 {
                acks.pop().unwrap().await.unwrap();
            }
        }
        for ack in acks {
            let ack = ack.await.unwrap();
            assert!(!ack.get().unwrap().get_ack().unwrap().has_stopped(), "a gap: order was lost");
        }
        assert_eq!(texts(&session, 7).await, texts_sent);
    });
}

#[test]
fn a_repeat_gets_the_first_answer_over_any_connection_and_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), &[], &[]);
    let mut producer = Producer::new();
    let project_producer = Producer::new();
    let root_producer = Producer::new();
    let open = |root: &root::Client| {
        let project = open_project(root, &mut root_producer.clone(), "/w").pipeline.get_project();
        create_session(&project, &mut project_producer.clone(), "").pipeline.get_session()
    };
    local(async {
        let session = open(&root(&server).await);
        producer.batch(&session, &["a", "b"]).send().promise.await.unwrap();
    });
    let server = {
        server.kill_9();
        Server::start_in(dir.path(), &[], &[])
    };
    local(async {
        let session = open(&root(&server).await);
        assert_eq!(texts(&session, 0).await, ["a", "b"], "the repeat names the same session");

        let again =
            batch_at(&producer, 1, &session, &["a", "b", "c"]).send().promise.await.unwrap();
        let ack = again.get().unwrap().get_ack().unwrap();
        let outcomes: Vec<_> = ack
            .get_outcomes()
            .unwrap()
            .iter()
            .map(|outcome| match outcome.which().unwrap() {
                outcome::Applied(()) => ("applied", outcome.get_cursor()),
                outcome::Duplicate(()) => ("duplicate", outcome.get_cursor()),
                _ => ("other", 0),
            })
            .collect();
        assert_eq!(outcomes, [("duplicate", 1), ("duplicate", 2), ("applied", 3)]);
        assert_eq!(texts(&session, 0).await, ["a", "b", "c"]);
    });
}
