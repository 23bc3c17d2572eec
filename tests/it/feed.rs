//! Feeds: history, caught up, live; gaps, names, filters; slow and failing sinks.

use crate::support::*;
use bowline::limits::DURABLE_SUBSCRIPTIONS_PER_LOG_MAX;
use bowline::model::ids::ProducerId;
use bowline::wire::feed_capnp::{EventKind, event, event_page, sink, subscription, wish};
use bowline::wire::message_capnp::part;
use bowline::wire::session_capnp::session;
use capnp::capability::FromClientHook;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use tokio::sync::Notify;

/// What a sink has heard, as lines: `3 put one`, `caught-up 3`, `gap 0 5`, `ended shutting-down`.
#[derive(Default)]
pub struct Ears {
    heard: RefCell<Vec<String>>,
    places: RefCell<Vec<u64>>,
    /// Who did what was heard, as `who,on-whose-behalf`.
    pub authors: RefCell<Vec<String>>,
    news: Notify,
    /// Calls do not return while this is set.
    pub stalled: Cell<bool>,
    /// Calls fail while this is set.
    pub failing: Cell<bool>,
    pub go_on: Notify,
    pub calls: Cell<usize>,
    /// The most calls that were waiting at one time.
    pub waiting_max: Cell<usize>,
    waiting: Cell<usize>,
}

impl Ears {
    pub async fn hear(&self, lines: Vec<(String, Option<u64>)>) -> capnp::Result<()> {
        self.calls.set(self.calls.get() + 1);
        if self.failing.get() {
            return Err(capnp::Error::failed("on purpose".into()));
        }
        self.waiting.set(self.waiting.get() + 1);
        self.waiting_max.set(self.waiting_max.get().max(self.waiting.get()));
        for (line, place) in lines {
            self.heard.borrow_mut().push(line);
            self.places.borrow_mut().extend(place);
        }
        self.news.notify_waiters();
        while self.stalled.get() {
            self.go_on.notified().await;
        }
        self.waiting.set(self.waiting.get() - 1);
        Ok(())
    }

    /// Waits until the last line heard is this one; everything heard so far.
    pub async fn until(&self, line: &str) -> Vec<String> {
        loop {
            let news = self.news.notified();
            if self.heard.borrow().last().is_some_and(|last| last == line) {
                return self.heard.borrow().clone();
            }
            news.await;
        }
    }

    /// Waits until what was heard is enough.
    pub async fn heard(&self, enough: impl Fn(&[String]) -> bool) {
        loop {
            let news = self.news.notified();
            if enough(&self.heard.borrow()) {
                return;
            }
            news.await;
        }
    }

    /// Waits until so many events have come; their places.
    pub async fn places(&self, count: usize) -> Vec<u64> {
        loop {
            let news = self.news.notified();
            if self.places.borrow().len() >= count {
                return self.places.borrow().clone();
            }
            news.await;
        }
    }

    pub fn lines(&self) -> Vec<String> {
        self.heard.borrow().clone()
    }

    pub fn first(&self) -> Option<String> {
        self.heard.borrow().first().cloned()
    }

    pub fn events(&self) -> usize {
        self.places.borrow().len()
    }
}

pub struct Sink(pub Rc<Ears>);

pub fn said(event: event::Reader<'_>) -> String {
    let text = |text: capnp::Result<capnp::text::Reader<'_>>| text.unwrap().to_string().unwrap();
    let what = match event.which().unwrap() {
        event::Unknown(()) => "unknown".into(),
        event::ProjectOpened(opened) => {
            format!("project {}", text(opened.unwrap().get_directory()))
        }
        event::SessionCreated(created) => format!("session {}", text(created.unwrap().get_id())),
        event::MessagePut(message) => {
            let message = message.unwrap();
            assert_eq!(message.get_cursor(), event.get_cursor());
            format!("put {}", text(message.get_id()))
        }
        event::MessageRemoved(id) => format!("rm {}", text(id)),
        event::TitleSet(title) => format!("title {}", text(title)),
        event::HistorySet(_) => "history".into(),
        event::GrantMade(_) => "granted".into(),
        event::GrantRevoked(_) => "revoked".into(),
        event::EpochBumped(_) => "epoch".into(),
        event::ActorRevoked(_) => "actor".into(),
        event::RootRotated(_) => "rotated".into(),
        event::Delegated(delegated) => {
            format!("delegated {}", text(delegated.unwrap().get_actor()))
        }
        event::DelegationEnded(ended) => {
            let ended = ended.unwrap();
            format!("over {:?} {}", ended.get_end().unwrap(), text(ended.get_result()))
        }
        event::ShareOpened(_) => "shared".into(),
        event::ShareEnded(_) => "unshared".into(),
        event::SessionUpdated(_) => "updated".into(),
        event::TodosSet(todos) => format!("todos {}", todos.unwrap().len()),
        event::MessageSet(body) => format!("set {}", text(body.unwrap().get_id())),
        event::PartPut(put) => {
            let put = put.unwrap();
            let part = text(put.get_part().unwrap().get_id());
            format!("part {} {part}", text(put.get_message_id()))
        }
        event::PartRemoved(part) => format!("rm-part {}", text(part.unwrap().get_part_id())),
        event::TurnBegan(turn) => format!("turn {}", text(turn.unwrap().get_id())),
        event::TurnEnded(turn) => {
            let turn = turn.unwrap();
            format!("ended {} {:?}", text(turn.get_id()), turn.get_state().unwrap())
        }
        event::TurnRetried(retry) => format!("retry {}", retry.unwrap().get_attempt()),
        event::TurnStarted(id) => format!("started {}", text(id)),
        event::HeadSet(set) => {
            let set = set.unwrap();
            format!("head {}", text(set.get_revert().unwrap().get_message_id()))
        }
        event::CheckpointMade(made) => format!("checkpoint {}", text(made.unwrap().get_name())),
        event::CheckpointDropped(at) => format!("dropped {at}"),
        event::WorktreeOpened(opened) => {
            format!("worktree {}", opened.unwrap().get_directory().unwrap().to_str().unwrap())
        }
        event::SnapshotTaken(taken) => format!("snapshot {}", taken.unwrap().get_number()),
        event::SnapshotNoted(noted) => format!("noted {}", noted.unwrap().get_number()),
        event::FilesMoved(moved) => format!("moved {}", moved.unwrap().get_done()),
        event::TurnMeasured(measured) => format!("measured {}", measured.unwrap().get_files()),
        event::SnapshotsDropped(count) => format!("snapshots dropped {count}"),
        event::OutputsPruned(parts) => format!("pruned {}", parts.unwrap().len()),
        event::Forked(forked) => format!("forked {}", text(forked.unwrap().get_session_id())),
        event::SessionRemoved(id) => format!("rm-session {}", text(id)),
        event::RulesSet(rules) => format!("rules {}", rules.unwrap().len()),
    };
    format!("{} {what}", event.get_place())
}

impl sink::Server for Sink {
    async fn events(
        self: Rc<Self>,
        params: sink::EventsParams,
        _: sink::EventsResults,
    ) -> capnp::Result<()> {
        let page = params.get()?.get_page()?;
        for event in page.get_events()? {
            let actors = event.get_author()?.get_actors()?;
            let actors = actors.iter().map(|actor| actor.unwrap().to_string().unwrap());
            self.0.authors.borrow_mut().push(actors.collect::<Vec<_>>().join(","));
        }
        let lines: Vec<_> =
            page.get_events()?.iter().map(|event| (said(event), Some(event.get_place()))).collect();
        assert!(!lines.is_empty(), "an empty page was sent");
        assert!(page.get_through() >= lines.last().unwrap().1.unwrap());
        drop(params);
        self.0.hear(lines).await
    }

    async fn caught_up(
        self: Rc<Self>,
        params: sink::CaughtUpParams,
        _: sink::CaughtUpResults,
    ) -> capnp::Result<()> {
        let line = format!("caught-up {}", params.get()?.get_place());
        drop(params);
        self.0.hear(vec![(line, None)]).await
    }

    async fn gap(
        self: Rc<Self>,
        params: sink::GapParams,
        _: sink::GapResults,
    ) -> capnp::Result<()> {
        let line = format!("gap {} {}", params.get()?.get_after(), params.get()?.get_floor());
        drop(params);
        self.0.hear(vec![(line, None)]).await
    }

    async fn grown(
        self: Rc<Self>,
        params: sink::GrownParams,
        _: sink::GrownResults,
    ) -> capnp::Result<()> {
        let line = |grown: bowline::wire::feed_capnp::grown::Reader<'_>| {
            let text =
                |text: capnp::Result<capnp::text::Reader<'_>>| text.unwrap().to_string().unwrap();
            let (message, part) = (text(grown.get_message_id()), text(grown.get_part_id()));
            format!("grown {message} {part} {} {}", grown.get_offset(), text(grown.get_text()))
        };
        let lines = params.get()?.get_texts()?.iter().map(|it| (line(it), None)).collect();
        drop(params);
        self.0.hear(lines).await
    }

    async fn ended(
        self: Rc<Self>,
        params: sink::EndedParams,
        _: sink::EndedResults,
    ) -> capnp::Result<()> {
        let line = format!("ended {}", params.get()?.get_reason()?.get_code()?.to_str()?);
        drop(params);
        self.0.hear(vec![(line, None)]).await
    }
}

/// Asks a session for a feed.
pub async fn feed(
    session: &session::Client,
    ears: &Rc<Ears>,
    fill: impl FnOnce(wish::Builder<'_>),
) -> capnp::Result<subscription::Client> {
    let mut request = session.feed_request();
    fill(request.get().init_wish());
    request.get().set_sink(capnp_rpc::new_client(Sink(ears.clone())));
    request.send().promise.await?.get()?.get_subscription()
}

/// Appends messages whose ids are their texts.
pub async fn put(session: &session::Client, producer: &mut Producer, ids: &[&str]) {
    let mut request = producer.batch(session, ids);
    let mut ops = request.get().get_ops().unwrap();
    for (at, id) in (0..).zip(ids) {
        ops.reborrow().get(at).init_put_message().set_id(id);
    }
    let answer = request.send().promise.await.unwrap();
    assert!(!answer.get().unwrap().get_ack().unwrap().has_stopped());
}

#[test]
fn history_then_caught_up_then_whatever_happens() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut producer = Producer::new();
        put(&session, &mut producer, &["a", "b", "c"]).await;
        let ears = Rc::new(Ears::default());
        let subscription = feed(&session, &ears, |mut wish| wish.set_after(1)).await.unwrap();
        assert_eq!(ears.until("caught-up 3").await, ["2 put b", "3 put c", "caught-up 3"]);
        put(&session, &mut producer, &["d"]).await;
        put(&session, &mut producer, &["e"]).await;
        ears.places(4).await;
        let heard = ears.until("caught-up 5").await;
        let events: Vec<_> = heard.iter().filter(|line| !line.starts_with("caught-up")).collect();
        assert_eq!(events, ["2 put b", "3 put c", "4 put d", "5 put e"]);

        let answer = subscription.status_request().send().promise.await.unwrap();
        let status = answer.get().unwrap();
        assert_eq!(
            (status.get_place(), status.get_caught_up(), status.has_ended()),
            (5, true, false)
        );

        // Dropping the subscription ends the feed; the session goes on.
        drop((answer, subscription));
        session.info_request().send().promise.await.unwrap();
        let fence = Rc::new(Ears::default());
        let _fence = feed(&session, &fence, |mut wish| wish.set_after(5)).await.unwrap();
        put(&session, &mut producer, &["f"]).await;
        put(&session, &mut producer, &["g"]).await;
        fence.places(2).await;
        assert_eq!(ears.events(), 4, "the other one hears, this one does not");

        let error = feed(&session, &ears, |mut wish| wish.set_after(8)).await.err().unwrap();
        assert_eq!(code(&error), "cursor-ahead");
    });
}

#[test]
fn filters_leave_out_and_still_tell_how_far_one_is() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let (mut mine, mut other) = (Producer::new(), Producer::new());
        put(&session, &mut mine, &["a"]).await;
        put(&session, &mut other, &["b"]).await;
        let titled = async |producer: &mut Producer, title: &str| {
            let mut request = producer.batch(&session, &["x"]);
            request.get().get_ops().unwrap().get(0).set_set_title(title);
            request.send().promise.await.unwrap();
        };
        titled(&mut other, "t").await;

        let not_mine = Rc::new(Ears::default());
        let _one =
            feed(&session, &not_mine, |mut wish| wish.set_skip_producer(&mine.id)).await.unwrap();
        assert_eq!(not_mine.until("caught-up 3").await, ["2 put b", "3 title t", "caught-up 3"]);

        let titles = Rc::new(Ears::default());
        let _two = feed(&session, &titles, |wish| wish.init_kinds(1).set(0, EventKind::TitleSet))
            .await
            .unwrap();
        assert_eq!(titles.until("caught-up 3").await, ["3 title t", "caught-up 3"]);
        put(&session, &mut mine, &["c", "d"]).await;
        titles.until("caught-up 5").await;
        not_mine.until("caught-up 5").await;
        assert_eq!((titles.events(), not_mine.events()), (1, 2));
    });
}

#[test]
fn a_named_subscription_survives_both_sides_and_repeats_only_what_was_not_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let mut producer = Producer::new();
    let server = Server::start_in(dir.path(), &[], &[]);
    let session_id = "kept";
    let session_of = async |server: &Server| {
        let root = root(server).await;
        let mut maker = Producer { id: [7; 16], epoch: 1, next: 1, acked_through: 0 };
        let project = open_project(&root, &mut maker, "/tree").pipeline.get_project();
        maker.next = 1;
        create_session(&project, &mut maker, session_id).pipeline.get_session()
    };
    let named = |mut wish: wish::Builder<'_>| wish.set_name("mirror");
    local(async {
        let session = session_of(&server).await;
        put(&session, &mut producer, &["a", "b"]).await;
        let ears = Rc::new(Ears::default());
        let subscription = feed(&session, &ears, named).await.unwrap();
        ears.until("caught-up 2").await;
        // From here on the sink takes events in and never acknowledges them.
        ears.stalled.set(true);
        put(&session, &mut producer, &["c"]).await;
        ears.places(3).await;
        let acknowledged = async || {
            let answer = subscription.status_request().send().promise.await.unwrap();
            answer.get().unwrap().get_acknowledged()
        };
        assert_eq!(acknowledged().await, 2);
        // What was acknowledged is saved by a commit of its own; one more of ours comes behind it.
        put(&session, &mut producer, &["d"]).await;
    });
    server.kill_9();
    let server = Server::start_in(dir.path(), &[], &[]);
    local(async {
        let session = session_of(&server).await;
        let ears = Rc::new(Ears::default());
        let _subscription = feed(&session, &ears, named).await.unwrap();
        assert_eq!(ears.until("caught-up 4").await, ["3 put c", "4 put d", "caught-up 4"]);

        // Whoever takes it up shuts the one before out, though nothing happens.
        let second = Rc::new(Ears::default());
        let taken = feed(&session, &second, named).await.unwrap();
        ears.until("ended subscription-taken").await;
        put(&session, &mut producer, &["e"]).await;
        second.places(1).await;

        let forget = async || {
            let mut request = session.forget_subscription_request();
            request.get().set_name("mirror");
            request.send().promise.await.unwrap().get().unwrap().get_existed()
        };
        assert!(forget().await);
        second.until("ended subscription-taken").await;
        assert!(!forget().await);
        drop(taken);
        let third = Rc::new(Ears::default());
        let _third = feed(&session, &third, named).await.unwrap();
        assert_eq!(third.until("caught-up 5").await.len(), 6, "it begins anew");
    });
}

#[test]
fn a_project_and_the_server_are_told_in_the_order_of_commits() {
    let server = Server::start();
    local(async {
        let root = root(&server).await;
        let (server_ears, project_ears) = (Rc::new(Ears::default()), Rc::new(Ears::default()));
        let mut request = root.feed_request();
        request.get().set_sink(capnp_rpc::new_client(Sink(server_ears.clone())));
        let _all = request.send().promise.await.unwrap();
        server_ears.until("caught-up 0").await;

        let mut of_root = Producer::new();
        let one = open_project(&root, &mut of_root, "/one").pipeline.get_project();
        let other = open_project(&root, &mut of_root, "/other").pipeline.get_project();
        let mut request = one.feed_request();
        request.get().set_sink(capnp_rpc::new_client(Sink(project_ears.clone())));
        let _some = request.send().promise.await.unwrap();

        let s1 = create_session(&one, &mut Producer::new(), "s1").pipeline.get_session();
        put(&s1, &mut Producer::new(), &["a"]).await;
        let s2 = create_session(&other, &mut Producer::new(), "s2").pipeline.get_session();
        put(&s2, &mut Producer::new(), &["b"]).await;
        put(&s1, &mut Producer::new(), &["c"]).await;

        server_ears.places(7).await;
        let heard = server_ears.until("caught-up 7").await;
        let events: Vec<_> = heard.iter().filter(|line| !line.starts_with("caught-up")).collect();
        let all = [
            "1 project /one",
            "2 project /other",
            "3 session s1",
            "4 put a",
            "5 session s2",
            "6 put b",
            "7 put c",
        ];
        assert_eq!(events, all);
        project_ears.places(3).await;
        let heard = project_ears.until("caught-up 7").await;
        let events: Vec<_> = heard.iter().filter(|line| !line.starts_with("caught-up")).collect();
        assert_eq!(events, ["3 session s1", "4 put a", "7 put c"]);
    });
}

/// Keeps the first page it hears, as it came.
#[derive(Default)]
struct Keeper(RefCell<Option<capnp::message::Builder<capnp::message::HeapAllocator>>>, Notify);

struct KeepingSink(Rc<Keeper>);

impl sink::Server for KeepingSink {
    async fn events(
        self: Rc<Self>,
        params: sink::EventsParams,
        _: sink::EventsResults,
    ) -> capnp::Result<()> {
        let mut kept = capnp::message::Builder::new_default();
        kept.set_root(params.get()?.get_page()?)?;
        self.0.0.replace(Some(kept));
        self.0.1.notify_one();
        Ok(())
    }
}

#[test]
fn an_event_names_its_op_as_its_producer_did() {
    let server = Server::start();
    local(async {
        let root = root(&server).await;
        let session = fresh_session(&root);
        let producer = Producer::new();
        let mut request = batch_at(&producer, 1, &session, &["hello", "x"]);
        request.get().get_batch().unwrap().set_batch_id(&[8; 16]);
        let mut op = request.get().get_ops().unwrap().get(1);
        let mut policy = op.reborrow().init_set_history();
        policy.set_age_ms_max(5);
        policy.set_bytes_max(u64::MAX);
        request.send().promise.await.unwrap();

        let keeper = Rc::new(Keeper::default());
        let mut request = root.feed_request();
        request.get().init_wish().set_after(2);
        request.get().set_sink(capnp_rpc::new_client(KeepingSink(keeper.clone())));
        let _subscription = request.send().promise.await.unwrap();
        keeper.1.notified().await;
        let kept = keeper.0.take().unwrap();
        let page: event_page::Reader<'_> = kept.get_root_as_reader().unwrap();
        let answer = session.info_request().send().promise.await.unwrap();
        let info = answer.get().unwrap().get_session().unwrap();
        assert_eq!((page.get_through(), page.get_events().unwrap().len()), (4, 2));
        for (seq, event) in (1..).zip(page.get_events().unwrap()) {
            assert_eq!(
                (event.get_place(), event.get_cursor(), event.get_seq()),
                (seq + 2, seq, seq)
            );
            let public = ProducerId(producer.id).public();
            assert_eq!(event.get_producer().unwrap(), public, "not the id itself");
            assert_eq!(event.get_op_id().unwrap(), producer.op_id(seq));
            assert_eq!(event.get_batch_id().unwrap(), [8; 16]);
            assert_eq!(event.get_session_id().unwrap(), info.get_id().unwrap());
            assert_eq!(event.get_project_id().unwrap(), info.get_project_id().unwrap());
            assert!(event.get_at_ms() >= info.get_created_at_ms());
        }
        match page.get_events().unwrap().get(0).which().unwrap() {
            event::MessagePut(message) => {
                let parts = message.unwrap().get_body().unwrap().get_parts().unwrap();
                assert!(
                    matches!(parts.get(0).which(), Ok(part::Text(Ok(text))) if text == "hello")
                );
            }
            _ => panic!("not a message"),
        }
        match page.get_events().unwrap().get(1).which().unwrap() {
            event::HistorySet(policy) => {
                let policy = policy.unwrap();
                assert_eq!((policy.get_age_ms_max(), policy.get_bytes_max()), (5, u64::MAX));
            }
            _ => panic!("not a policy"),
        }
    });
}

#[test]
fn a_stalled_sink_is_sent_a_few_calls_and_a_failing_one_none_after_the_first() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut producer = Producer::new();
        let ids: Vec<String> = (0..3000).map(|n| format!("m{n}")).collect();
        for ids in ids.chunks(500) {
            put(&session, &mut producer, &ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
            producer.acked_through = producer.next - 1;
        }
        let slow = Rc::new(Ears::default());
        slow.stalled.set(true);
        let _slow = feed(&session, &slow, |_| ()).await.unwrap();
        let failing = Rc::new(Ears::default());
        failing.failing.set(true);
        let failed = feed(&session, &failing, |_| ()).await.unwrap();
        let quick = Rc::new(Ears::default());
        let _quick = feed(&session, &quick, |_| ()).await.unwrap();
        assert_eq!(quick.places(3000).await, (1..=3000).collect::<Vec<_>>());
        quick.until("caught-up 3000").await;
        assert!(slow.events() < 3000, "the slow one has {} of 3000", slow.events());
        slow.stalled.set(false);
        slow.go_on.notify_waiters();
        assert_eq!(slow.places(3000).await, (1..=3000).collect::<Vec<_>>());
        assert!(slow.waiting_max.get() <= 4, "{} calls at once", slow.waiting_max.get());
        // A few calls were on their way when the first failed, and one that says why none follows.
        assert!((2..=6).contains(&failing.calls.get()), "{} calls", failing.calls.get());
        let answer = failed.status_request().send().promise.await.unwrap();
        let ended = answer.get().unwrap().get_ended().unwrap();
        assert_eq!(ended.get_code().unwrap(), "sink-failed");
        assert!(ended.get_text().unwrap().to_str().unwrap().contains("on purpose"));
    });
}

#[test]
fn a_server_that_stops_says_so_to_its_feeds() {
    let mut server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let ears = Rc::new(Ears::default());
        let _subscription = feed(&session, &ears, |_| ()).await.unwrap();
        ears.until("caught-up 0").await;
        server.signal(rustix::process::Signal::TERM);
        ears.until("ended shutting-down").await;
    });
    assert!(server.ended().success());
}

#[test]
fn a_feed_in_which_nothing_happens_says_so_now_and_then_and_keeps_its_connection() {
    // Silence longer than this ends a connection; a feed speaks three times as often.
    let server = Server::start_with(&["--limit", "idle_ms_max=3000"]);
    local(async {
        let session = fresh_session(&root(&server).await);
        let ears = Rc::new(Ears::default());
        let subscription = feed(&session, &ears, |_| ()).await.unwrap();
        while ears.lines().len() < 5 {
            ears.news.notified().await;
        }
        assert_eq!(ears.lines(), ["caught-up 0"; 5]);
        subscription.status_request().send().promise.await.expect("the connection lives");
    });
}

#[test]
fn many_feeds_of_one_connection_do_not_outrun_it_together() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut producer = Producer::new();
        let text = "x".repeat(32 << 10);
        for _ in 0..32 {
            let mut request = producer.batch(&session, &[text.as_str(); 8]);
            producer.acked_through = producer.next - 1;
            request.get().get_batch().unwrap().set_acked_through(producer.acked_through);
            request.send().promise.await.unwrap();
        }
        // A peer that asks for a lot and reads nothing: 900 feeds of 8 MiB each.
        let stream = tokio::net::TcpStream::connect(server.tcp).await.unwrap();
        let (reader, writer) = stream.into_split();
        let gate = Rc::new(Gate::default());
        let reader = Gated { gate: gate.clone(), inner: reader };
        let deaf = redeem::<bowline::wire::root_capnp::root::Client>(
            &client(reader, writer),
            &server.root_ref(),
        );
        let mut find = deaf.projects_request();
        find.get().init_page();
        let answer = find.send().promise.await.unwrap();
        let id = answer.get().unwrap().get_projects().unwrap().get(0).get_id().unwrap().to_string();
        let mut find = deaf.project_request();
        find.get().set_id(id.unwrap().as_str());
        let project = find.send().pipeline.get_project();
        let mut asked = Vec::new();
        let before = server.resident_kib();
        gate.closed.set(true);
        for _ in 0..900 {
            let mut request = project.feed_request();
            request.get().set_sink(capnp_rpc::new_client(Sink(Rc::new(Ears::default()))));
            asked.push(request.send().promise);
        }
        let waiting: Vec<_> = asked.into_iter().map(tokio::task::spawn_local).collect();
        // Others are served as before while the server fills what it may for that peer.
        let quick = Rc::new(Ears::default());
        let _quick = feed(&session, &quick, |_| ()).await.unwrap();
        quick.places(256).await;
        let mut peak = 0;
        for _ in 0..200 {
            session.info_request().send().promise.await.unwrap();
            peak = peak.max(server.resident_kib());
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let grown = peak.saturating_sub(before);
        println!("900 feeds nobody reads: the server grew by {grown} KiB");
        assert!(grown < 40 << 10, "the server grew by {grown} KiB");
        waiting.iter().for_each(|waiting| waiting.abort());
    });
}

/// A reading half that can be held shut.
#[derive(Default)]
struct Gate {
    closed: Cell<bool>,
}

struct Gated<R> {
    gate: Rc<Gate>,
    inner: R,
}

impl<R: tokio::io::AsyncRead + Unpin> tokio::io::AsyncRead for Gated<R> {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        match self.gate.closed.get() {
            true => std::task::Poll::Pending, // for good: nobody opens it again
            false => std::pin::Pin::new(&mut self.inner).poll_read(cx, buffer),
        }
    }
}

#[test]
fn what_a_feed_cannot_be_asked_for() {
    let server = Server::start_with(&["--limit", "subscriptions_max=2"]);
    local(async {
        let session = fresh_session(&root(&server).await);
        let ears = Rc::new(Ears::default());
        let (one, two) = (feed(&session, &ears, |_| ()).await, feed(&session, &ears, |_| ()).await);
        assert!(one.is_ok() && two.is_ok());
        let error = feed(&session, &ears, |_| ()).await.err().unwrap();
        assert_eq!(code(&error), "too-many-subscriptions");
        drop(two);
        session.info_request().send().promise.await.unwrap();
        let error = feed(&session, &ears, |mut wish| {
            wish.set_after(u64::MAX);
            wish.set_name("ahead");
        });
        assert_eq!(code(&error.await.err().unwrap()), "cursor-ahead");
        let bad_name = feed(&session, &ears, |mut wish| wish.set_name("a b")).await.err().unwrap();
        assert_eq!(code(&bad_name), "id-malformed");
        let error =
            feed(&session, &ears, |mut wish| wish.set_skip_producer(&[1; 3])).await.err().unwrap();
        assert_eq!(code(&error), "op-header-malformed");
        let request = session.feed_request();
        assert_eq!(code(&failure(request.send().promise).await), "message-malformed", "no sink");

        let mut named = Vec::new();
        let error = loop {
            let name = format!("n{}", named.len());
            match feed(&session, &ears, |mut wish| wish.set_name(&name)).await {
                Ok(subscription) => drop(subscription),
                Err(error) => break error,
            }
            named.push(name);
        };
        assert_eq!(code(&error), "too-many-subscriptions");
        assert_eq!(named.len() as u64, DURABLE_SUBSCRIPTIONS_PER_LOG_MAX);
        feed(&session, &ears, |mut wish| wish.set_name("n7"))
            .await
            .expect("a known one is taken up");

        // The server's own object as a sink: refused by its own nature, and nothing is tied.
        let mut request = session.feed_request();
        request.get().set_sink(FromClientHook::new(session.client.hook.clone()));
        let _knot = request.send().promise.await.unwrap();
        session.info_request().send().promise.await.unwrap();
    });
}
