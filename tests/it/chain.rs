//! The way from a sturdy ref to a message on disk: pipelining, order, pages, repeats.

use crate::support::*;
use bowline::wire::bowline_capnp::outcome;
use bowline::wire::message_capnp::{Role, part};
use bowline::wire::root_capnp::root;
use bowline::wire::session_capnp::session;
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
fn a_large_batch_may_travel_with_the_redeem_that_allows_it() {
    let server = Server::start();
    local(async {
        let large = "x".repeat(500_000);
        for _ in 0..10 {
            // All of it is under way before the server knows whom it talks to.
            let root: root::Client = redeem(&connect(&server).await, &server.root_ref());
            let session = fresh_session(&root);
            let ack =
                Producer::new().batch(&session, &[&large, &large]).send().promise.await.unwrap();
            assert_eq!(ack.get().unwrap().get_ack().unwrap().get_cursor(), 2);
        }
        // From one who redeems nothing, it is not taken.
        let vat = connect(&server).await;
        let mut request = vat.redeem_request();
        request.get().set_ref(&large);
        let error = failure(request.send().promise).await;
        assert_eq!(code(&error), "connection-ended", "{error}");
    });
}

#[test]
fn calls_on_one_session_take_effect_in_the_order_they_were_sent() {
    const SESSIONS: usize = 30;
    const BATCHES: usize = 40;
    let server = Server::start();
    local(async {
        let root = root(&server).await;
        let sent: Vec<String> = (0..BATCHES).map(|n| n.to_string()).collect();
        for round in 0..SESSIONS {
            // The first batches are sent before the session exists. Somewhere on the way it comes into
            // being, and the client goes over from the promise to the object itself.
            let session = fresh_session(&root);
            let mut producer = Producer::new();
            let mut acks = Vec::new();
            for (n, text) in sent.iter().enumerate() {
                acks.push(producer.batch(&session, &[text]).send().promise);
                if n % (1 + round % 5) == 0 {
                    tokio::task::yield_now().await;
                }
            }
            for ack in acks {
                let ack = ack.await.unwrap();
                let ack = ack.get().unwrap().get_ack().unwrap();
                assert!(!ack.has_stopped(), "a gap: one call has overtaken another");
            }
            assert_eq!(texts(&session, 7).await, sent);
        }
    });
}

/// Cursors of a page, and whether there is more.
async fn page(
    session: &session::Client,
    after: u64,
    limit: u32,
    newest_first: bool,
) -> (Vec<u64>, bool) {
    let mut request = session.messages_request();
    let mut page = request.get().init_page();
    page.set_after(after);
    page.set_limit(limit);
    page.set_newest_first(newest_first);
    let answer = request.send().promise.await.unwrap();
    let answer = answer.get().unwrap();
    let cursors: Vec<_> =
        answer.get_messages().unwrap().iter().map(|message| message.get_cursor()).collect();
    let end = answer.get_end().unwrap();
    assert_eq!(end.get_next(), *cursors.last().unwrap_or(&after), "where the next page begins");
    (cursors, end.get_more())
}

#[test]
fn pages_go_both_ways_and_end_by_number_or_by_bytes() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let large = "x".repeat(100_000);
        let mut batch = vec!["small"; 10];
        batch.extend([large.as_str(); 5]);
        Producer::new().batch(&session, &batch).send().promise.await.unwrap();

        assert_eq!(page(&session, 0, 4, false).await, (vec![1, 2, 3, 4], true));
        assert_eq!(page(&session, 4, 4, false).await, (vec![5, 6, 7, 8], true));
        assert_eq!(page(&session, 0, 2, true).await, (vec![15, 14], true));
        assert_eq!(page(&session, 3, 5, true).await, (vec![2, 1], false));
        assert_eq!(page(&session, 1, 5, true).await, (vec![], false));
        assert_eq!(page(&session, 15, 5, false).await, (vec![], false));
        assert_eq!(page(&session, u64::MAX, 5, false).await, (vec![], false));
        // A page ends with the item that passes 256 KiB.
        assert_eq!(page(&session, 10, 0, false).await, (vec![11, 12, 13], true));
        assert_eq!(page(&session, 13, 0, false).await, (vec![14, 15], false));
    });
}

#[test]
fn a_question_sees_the_changes_sent_before_it_on_the_same_object() {
    let server = Server::start();
    local(async {
        let root = root(&server).await;
        for round in 0..40 {
            // Nothing is waited for before the last question.
            let directory = format!("/round/{round}");
            let project =
                open_project(&root, &mut Producer::new(), &directory).pipeline.get_project();
            let id = format!("s{round}");
            ignore(create_session(&project, &mut Producer::new(), &id).promise);
            let mut request = project.session_request();
            request.get().set_id(&id);
            let session = request.send().pipeline.get_session();
            ignore(Producer::new().batch(&session, &["x", "y"]).send().promise);
            let info = session.info_request().send().promise;
            assert_eq!(texts(&session, 0).await, ["x", "y"]);
            let info = info.await.unwrap();
            assert_eq!(info.get().unwrap().get_session().unwrap().get_head(), 2);
        }
    });
}

#[test]
fn what_was_said_comes_back_as_it_was() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let producer = Producer::new();
        let odd = r#" { "b" : 1.0e2, "a":[null,"\u00e9"] , "b":2 } "#;
        let mut request = batch_at(&producer, 1, &session, &["", "plain"]);
        let mut body = request.get().get_ops().unwrap().get(0).init_put_message();
        body.set_id("my own id/1".replace(' ', "-").as_str());
        body.set_role(Role::Tool);
        body.set_metadata(odd);
        let mut parts = body.init_parts(2);
        parts.reborrow().get(0).set_json(odd);
        parts.get(1).set_text("zwei\n\u{1f980}");
        request.send().promise.await.unwrap();

        let answer = session.messages_request().send().promise.await.unwrap();
        let messages = answer.get().unwrap().get_messages().unwrap();
        let first = messages.get(0);
        assert_eq!(first.get_id().unwrap(), "my-own-id/1");
        let body = first.get_body().unwrap();
        assert_eq!(body.get_role().unwrap(), Role::Tool);
        assert_eq!(body.get_metadata().unwrap(), odd, "byte for byte");
        match body.get_parts().unwrap().get(0).which().unwrap() {
            part::Json(json) => assert_eq!(json.unwrap(), odd, "byte for byte"),
            _ => panic!("something else"),
        }

        // An id that was left to the server is the one the schema says it is.
        let made = messages.get(1).get_id().unwrap().to_string().unwrap();
        let op_id = data_encoding::BASE32HEX_NOPAD.encode(&producer.op_id(2)).to_lowercase();
        assert_eq!(made, format!("msg_{op_id}"));
    });
}

#[test]
fn projects_and_sessions_are_listed_in_the_order_they_were_made() {
    let server = Server::start();
    local(async {
        let root = root(&server).await;
        let mut producer = Producer::new();
        // Ids that would sort otherwise, and one directory opened twice.
        for directory in ["/c", "/a", "/b", "/a/"] {
            open_project(&root, &mut producer, directory).promise.await.unwrap();
        }
        let answer = root.projects_request().send().promise.await.unwrap();
        let projects = answer.get().unwrap().get_projects().unwrap();
        let found: Vec<_> = projects
            .iter()
            .map(|info| (info.get_directory().unwrap().to_string().unwrap(), info.get_cursor()))
            .collect();
        assert_eq!(found, [("/c".into(), 1), ("/a".into(), 2), ("/b".into(), 3)]);

        let mut request = root.project_request();
        request.get().set_id(projects.get(1).get_id().unwrap());
        let project = request.send().pipeline.get_project();
        let mut producer = Producer::new();
        for id in ["z", "m", "a"] {
            create_session(&project, &mut producer, id).promise.await.unwrap();
        }
        let mut request = project.sessions_request();
        request.get().init_page().set_newest_first(true);
        let answer = request.send().promise.await.unwrap();
        let sessions = answer.get().unwrap().get_sessions().unwrap();
        let found: Vec<_> =
            sessions.iter().map(|info| info.get_id().unwrap().to_string().unwrap()).collect();
        assert_eq!(found, ["a", "m", "z"]);
        let answer = project.info_request().send().promise.await.unwrap();
        let info = answer.get().unwrap().get_project().unwrap();
        assert_eq!(info.get_session_count(), 3);
    });
}

#[test]
fn what_is_told_about_a_session_is_never_older_than_what_was_acknowledged() {
    let server = Server::start();
    local(async {
        // Two connections, on two workers.
        let (one, two) = (root(&server).await, root(&server).await);
        let project = |root: &root::Client| {
            open_project(root, &mut Producer::new(), "/w").pipeline.get_project()
        };
        let writing =
            create_session(&project(&one), &mut Producer::new(), "s").pipeline.get_session();
        writing.info_request().send().promise.await.unwrap();
        let mut request = project(&two).session_request();
        request.get().set_id("s");
        let reading = request.send().pipeline.get_session();
        let mut producer = Producer::new();
        for n in 1..=200 {
            producer.batch(&writing, &["x"]).send().promise.await.unwrap();
            for session in [&writing, &reading] {
                let answer = session.info_request().send().promise.await.unwrap();
                assert_eq!(answer.get().unwrap().get_session().unwrap().get_head(), n);
            }
        }
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

#[test]
fn a_server_tells_who_it_is_and_what_time_it_goes_by() {
    let server = Server::start();
    local(async {
        let now_ms = || std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
        let before_ms = now_ms();
        let answer = connect(&server).await.hello_request().send().promise.await.unwrap();
        let told = answer.get().unwrap().get_server().unwrap();
        assert!((before_ms..=now_ms()).contains(&told.get_now_ms()));
        assert_eq!((told.get_incarnation(), told.get_realm().unwrap().len()), (1, 16));
    });
}
