//! "Send it again" on the wire: answers lost at every byte, and producers that do not know they are over.
//!
//! A proxy stands between the stock client and the real server and breaks the link at a chosen byte; the
//! client connects anew and sends the very same ops. A stale producer is a second process, stopped in the
//! middle of its work.

use crate::stream::writer_at;
use crate::support::*;
use bowline::wire::bowline_capnp::{ack, outcome, vat};
use bowline::wire::root_capnp::{project, root};
use bowline::wire::session_capnp::{session, session_op};
use futures::future::{join, join_all, join3};
use futures::stream::{self, StreamExt};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Clients with a broken link at one time. More of them share a commit; too many only wait for each other.
const AT_ONCE: usize = 16;
/// Offsets tried in one go, so that a slow machine is not taken for one that hangs.
const OFFSETS_AT_A_STRETCH: usize = 400;

/// How the ops are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Batches,
    Stream,
}

/// What one client has to do. It is the same, to the last byte, whenever it is sent.
struct Work {
    way: Way,
    directory: String,
    of_root: Producer,
    of_project: Producer,
    of_session: Producer,
}

/// Its ops in the session: three of them are refused, each for a reason of its own.
const TEXTS: [&str; 6] = ["one", "", "two", "three", "four", "five"];
/// What is in the session when all is done.
const EFFECT: [&str; 3] = ["one", "two", "five"];

/// What the ops are besides texts.
fn bend(seq: u64, mut op: session_op::Builder<'_>) {
    match seq {
        2 => op.set_unset(()),
        4 => op.init_expects().set_cursor(0),
        5 => op.init_depends_on(1).set(0, 2),
        _ => {}
    }
}

/// The answers to a piece of work. Only what a repeat must hear again: neither ids, which each piece of
/// work has of its own, nor where the log ended at the time, except in the last one.
fn wanted(way: Way) -> Vec<&'static str> {
    let acks: &[_] = match way {
        Way::Batches => &["1: 1 op-malformed 2 cursor-conflict@2", "5: dependency-failed 3"],
        Way::Stream => &["1: 1 op-malformed 2 cursor-conflict@2 dependency-failed 3"],
    };
    [&["project true", "session"], acks, &["log 3, next 7, floor 1"]].concat()
}

fn told(ack: ack::Reader<'_>) -> String {
    let mut said = format!("{}:", ack.get_first_seq());
    for outcome in ack.get_outcomes().unwrap() {
        let cursor = outcome.get_cursor();
        said += &match outcome.which().unwrap() {
            outcome::Applied(()) => format!(" {cursor}"),
            outcome::Duplicate(()) => format!(" ={cursor}"),
            outcome::DuplicateDropped(()) => " -".into(),
            outcome::Rejected(refusal) => {
                let refusal = refusal.unwrap();
                let code = refusal.get_code().unwrap().to_str().unwrap();
                match refusal.get_cursor() {
                    0 => format!(" {code}"),
                    actual => format!(" {code}@{actual}"),
                }
            }
        };
    }
    if ack.has_stopped() {
        said += &format!(" !{}", ack.get_stopped().unwrap().get_code().unwrap().to_str().unwrap());
    }
    said
}

/// The objects a piece of work led to, and the answers: none where the link broke first.
struct Sent {
    project: project::Client,
    session: session::Client,
    answers: Vec<Option<String>>,
}

impl Sent {
    /// The answers, whoever did it.
    fn either_way(&self) -> Vec<Option<String>> {
        let plain = |answer: &Option<String>| answer.as_ref().map(|said| said.replace('=', ""));
        self.answers.iter().map(plain).collect()
    }
}

/// What was heard; a refusal by the server counts as an answer, and a broken link does not.
fn heard<T>(answer: capnp::Result<T>, say: impl FnOnce(T) -> String) -> Option<String> {
    match answer {
        Ok(answer) => Some(say(answer)),
        Err(error) if error.extra.contains("bowline/") => Some(format!("error {error}")),
        Err(_) => None,
    }
}

impl Work {
    fn new(way: Way) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        // As long as any other, so that every exchange has as many bytes.
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Self {
            way,
            directory: format!("/replay/{number:08}"),
            of_root: Producer::new(),
            of_project: Producer::new(),
            of_session: Producer::new(),
        }
    }

    /// The ids that were left to the server.
    fn ids(&self) -> (String, String) {
        let id = |producer: &Producer| {
            data_encoding::BASE32HEX_NOPAD.encode(&producer.op_id(1)).to_lowercase()
        };
        (format!("prj_{}", id(&self.of_root)), format!("ses_{}", id(&self.of_project)))
    }

    /// Sends everything in one go, and waits for the answers.
    async fn send(&self, vat: &vat::Client, sturdy_ref: &str) -> Sent {
        let root: root::Client = redeem(vat, sturdy_ref);
        let opened = open_project(&root, &mut self.of_root.clone(), &self.directory);
        let project = opened.pipeline.get_project();
        let created = create_session(&project, &mut self.of_project.clone(), "");
        let session = created.pipeline.get_session();
        let acks = async {
            match self.way {
                Way::Batches => self.append(&session).await,
                Way::Stream => vec![self.stream(&session).await],
            }
        };
        let (opened, created, acks) = join3(opened.promise, created.promise, acks).await;
        let mut answers = vec![
            heard(opened, |opened| format!("project {}", opened.get().unwrap().get_created())),
            heard(created, |_| "session".into()),
        ];
        let end = acks.last().cloned().flatten();
        answers.extend(acks.into_iter().map(|ack| ack.map(|(said, _)| said)));
        answers.push(end.map(|(_, end)| end));
        Sent { project, session, answers }
    }

    async fn append(&self, session: &session::Client) -> Vec<Option<(String, String)>> {
        let batch = |first: u64, texts: &[&str]| {
            let mut request = batch_at(&self.of_session, first, session, texts);
            let mut ops = request.get().get_ops().unwrap();
            for at in 0..texts.len() as u32 {
                bend(first + u64::from(at), ops.reborrow().get(at));
            }
            let sent = request.send().promise;
            async {
                let answer = sent.await?;
                Ok(ends(answer.get()?.get_ack()?))
            }
        };
        let (first, second) = join(batch(1, &TEXTS[..4]), batch(5, &TEXTS[4..])).await;
        [first, second].map(whole).into()
    }

    async fn stream(&self, session: &session::Client) -> Option<(String, String)> {
        let writer = writer_at(session, &self.of_session, 1);
        let mut written = Vec::new();
        for (seq, text) in (1..).zip(TEXTS) {
            let mut request = writer.write_request();
            let mut op = request.get().init_op();
            op.set_op_id(&self.of_session.op_id(seq));
            text_message(op.reborrow(), text);
            bend(seq, op);
            written.push(request.send());
        }
        let flushed = async {
            let answer = writer.flush_request().send().promise.await?;
            Ok(ends(answer.get()?.get_ack()?))
        };
        let (_, flushed) = join(join_all(written), flushed).await;
        whole(flushed)
    }
}

/// An ack, and where it says things stand.
fn ends(ack: ack::Reader<'_>) -> (String, String) {
    let (cursor, next, floor) = (ack.get_cursor(), ack.get_next_expected_seq(), ack.get_floor());
    (told(ack), format!("log {cursor}, next {next}, floor {floor}"))
}

/// As [`heard`], for an ack.
fn whole(ack: capnp::Result<(String, String)>) -> Option<(String, String)> {
    match ack {
        Ok(ack) => Some(ack),
        Err(error) => {
            heard(Err::<(), _>(error), |()| String::new()).map(|said| (said, String::new()))
        }
    }
}

/// Where a link breaks, both ways at once.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Cut {
    Nowhere,
    /// The server has done everything and sent all its answers; the client gets the first so many bytes.
    AnswersLost {
        given: usize,
        all: usize,
    },
    /// As soon as so many bytes of the answers have passed, wherever the server is by then.
    Answers(usize),
    /// As soon as so many bytes of the calls have passed.
    Calls(usize),
}

/// A link to the server through a proxy, with the bytes counted that the client and the server sent.
struct Link {
    vat: vat::Client,
    calls: Rc<Cell<usize>>,
    answers: Rc<Cell<usize>>,
    _proxy: tokio_util::task::AbortOnDropHandle<()>,
}

async fn link(server: &Server, cut: Cut) -> Link {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (near, _) = listener.accept().await.unwrap();
    let far = TcpStream::connect(server.tcp).await.unwrap();
    for socket in [&stream, &near, &far] {
        socket.set_nodelay(true).unwrap();
    }
    let (calls, answers) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    const ALL: usize = usize::MAX;
    let (of_calls, of_answers) = match cut {
        Cut::Nowhere => ((ALL, ALL), (ALL, ALL)),
        Cut::AnswersLost { given, all } => ((ALL, ALL), (given, all)),
        Cut::Answers(given) => ((ALL, ALL), (given, given)),
        Cut::Calls(given) => ((given, given), (ALL, ALL)),
    };
    let (from_client, to_client) = near.into_split();
    let (from_server, to_server) = far.into_split();
    let calling = carry(from_client, to_server, of_calls, calls.clone());
    let answering = carry(from_server, to_client, of_answers, answers.clone());
    // Whichever ends first takes the sockets of both with it: that is the cut.
    let proxy = tokio::task::spawn_local(async move {
        tokio::select! {
            () = calling => {}
            () = answering => {}
        }
    });
    let (reader, writer) = stream.into_split();
    let _proxy = tokio_util::task::AbortOnDropHandle::new(proxy);
    Link { vat: client(reader, writer), calls, answers, _proxy }
}

/// Carries the first `given` bytes, and ends when `all` have been seen.
async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    (given, all): (usize, usize),
    seen: Rc<Cell<usize>>,
) {
    let mut bytes = vec![0; 1 << 14];
    while seen.get() < all {
        let most = bytes.len().min(all - seen.get());
        let Ok(read @ 1..) = from.read(&mut bytes[..most]).await else { return };
        let pass = read.min(given.saturating_sub(seen.get()));
        seen.set(seen.get() + read);
        if to.write_all(&bytes[..pass]).await.is_err() {
            return;
        }
    }
}

/// An exchange without a cut: how many bytes of calls and of answers it has.
async fn record(server: &Server, way: Way) -> (usize, usize) {
    let mut sizes = BTreeSet::new();
    let mut calls = 0;
    for _ in 0..5 {
        let link = link(server, Cut::Nowhere).await;
        let work = Work::new(way);
        let sent = work.send(&link.vat, &server.root_ref()).await;
        sizes.insert(link.answers.get());
        calls = calls.max(link.calls.get());
        let answers: Vec<_> = sent.answers.iter().flatten().collect();
        assert_eq!(answers, wanted(way), "without a cut");
        look(&work, &sent).await;
    }
    assert_eq!(sizes.len(), 1, "every exchange has the same answers: {sizes:?} bytes");
    (calls, sizes.pop_last().unwrap())
}

/// One project, one session, and in it the effect of the work, once.
async fn look(work: &Work, sent: &Sent) {
    let (project_id, session_id) = work.ids();
    let info = sent.session.info_request().send();
    let answer = sent.project.sessions_request().send().promise.await.unwrap();
    let sessions = answer.get().unwrap().get_sessions().unwrap();
    assert_eq!(sessions.len(), 1, "{}", work.directory);
    assert_eq!(sessions.get(0).get_id().unwrap(), session_id.as_str());
    let answer = info.promise.await.unwrap();
    let info = answer.get().unwrap().get_session().unwrap();
    assert_eq!(info.get_id().unwrap(), session_id.as_str());
    assert_eq!(info.get_project_id().unwrap(), project_id.as_str());
    assert_eq!((info.get_cursor(), info.get_head()), (1, EFFECT.len() as u64));
    assert_eq!(texts(&sent.session, 0).await, EFFECT, "{}", work.directory);
}

/// Sends a piece of work over a link that breaks. What was heard by then is right.
async fn send_and_lose(server: &Server, work: &Work, cut: Cut) {
    let link = link(server, cut).await;
    let lost = work.send(&link.vat, &server.root_ref()).await;
    for (answer, wanted) in lost.answers.iter().zip(wanted(work.way)) {
        assert!(answer.is_none() || answer.as_deref() == Some(wanted), "{cut:?}: {answer:?}");
    }
    if let Cut::AnswersLost { given, all } = cut {
        assert_eq!(link.answers.get(), all);
        assert!(given == all || lost.answers.contains(&None), "{cut:?}: nothing was lost");
    }
}

/// Connects anew and sends the same again: one effect, and the answers of an exchange without a cut.
async fn send_again(server: &Server, work: &Work, cut: Cut) {
    let again = work.send(&connect(server).await, &server.root_ref()).await;
    let answers = match cut {
        // Nothing was left to do.
        Cut::AnswersLost { .. } => {
            let acks = again.answers.iter().flatten().filter(|said| said.contains(": "));
            let outcomes = acks.flat_map(|said| said.split(' ').skip(1));
            let done = outcomes.filter(|said| said.starts_with(|c: char| c.is_ascii_digit()));
            assert_eq!(done.count(), 0, "{cut:?}: done twice: {:?}", again.answers);
            again.either_way()
        }
        _ => again.either_way(),
    };
    let answers: Vec<_> = answers.iter().map(|said| said.as_deref().unwrap_or("nothing")).collect();
    assert_eq!(answers, wanted(work.way), "{cut:?}");
    look(work, &again).await;
}

/// Says which cut it is that hangs.
async fn in_time(what: &str, cut: Cut, future: impl Future<Output = ()>) {
    let done = tokio::time::timeout(PATIENCE / 3, future).await;
    done.unwrap_or_else(|_| panic!("{what}, {cut:?}: nothing happens"));
}

/// Tries every cut with a piece of work of its own, all on one server.
fn at_each(way: Way, cuts: impl FnOnce(usize, usize) -> Vec<Cut>) {
    let server = Server::start();
    let (calls, answers) = local(record(&server, way));
    let cuts = cuts(calls, answers);
    println!("{way:?}: {calls} bytes of calls, {answers} of answers, {} cuts", cuts.len());
    for cuts in cuts.chunks(OFFSETS_AT_A_STRETCH) {
        local(stream::iter(cuts).for_each_concurrent(AT_ONCE, async |cut| {
            let work = Work::new(way);
            in_time("lost", *cut, send_and_lose(&server, &work, *cut)).await;
            in_time("sent again", *cut, send_again(&server, &work, *cut)).await;
        }));
    }
    // No cut has left anything behind that no repeat found.
    let directories = local(async { directories(&root(&server).await).await });
    let once: BTreeSet<_> = directories.iter().collect();
    assert_eq!(directories.len(), once.len(), "a project was made twice");
    assert_eq!(directories.len(), cuts.len() + 5, "and those of the recording");
}

/// The directories of all projects.
async fn directories(root: &root::Client) -> Vec<String> {
    let mut found = Vec::new();
    let mut after = 0;
    loop {
        let mut request = root.projects_request();
        request.get().init_page().set_after(after);
        let answer = request.send().promise.await.unwrap();
        let answer = answer.get().unwrap();
        for project in answer.get_projects().unwrap() {
            found.push(project.get_directory().unwrap().to_string().unwrap());
        }
        after = answer.get_end().unwrap().get_next();
        if !answer.get_end().unwrap().get_more() {
            return found;
        }
    }
}

fn lost(_: usize, all: usize) -> Vec<Cut> {
    (0..=all).map(|given| Cut::AnswersLost { given, all }).collect()
}

fn cut_short(_: usize, answers: usize) -> Vec<Cut> {
    (0..=answers).map(Cut::Answers).collect()
}

#[test]
fn whatever_part_of_the_answers_is_lost_the_repeat_hears_all_of_them() {
    at_each(Way::Batches, lost);
}

#[test]
fn wherever_in_the_answers_the_link_breaks_the_repeat_completes_the_work() {
    at_each(Way::Batches, cut_short);
}

#[test]
fn wherever_in_the_calls_the_link_breaks_the_repeat_completes_the_work() {
    at_each(Way::Batches, |calls, _| (0..=calls).map(Cut::Calls).collect());
}

#[test]
fn whatever_part_of_a_streams_answers_is_lost_the_repeat_hears_all_of_them() {
    at_each(Way::Stream, lost);
}

#[test]
fn wherever_in_its_answers_a_stream_breaks_the_repeat_completes_it() {
    at_each(Way::Stream, cut_short);
}

#[test]
fn after_a_lost_answer_and_a_crash_the_repeat_finds_the_same_session() {
    const PARTS: usize = 6;
    for way in [Way::Batches, Way::Stream] {
        let dir = tempfile::tempdir().unwrap();
        let mut server = Server::start_in(dir.path(), &[], &[]);
        let (_, all) = local(record(&server, way));
        let cuts = (0..=PARTS).map(|part| all * part / PARTS);
        let cuts = cuts.flat_map(|given| [Cut::AnswersLost { given, all }, Cut::Answers(given)]);
        for cut in cuts {
            let work = Work::new(way);
            local(send_and_lose(&server, &work, cut));
            server.kill_9();
            server = Server::start_in(dir.path(), &[], &[]);
            local(async {
                if let Cut::AnswersLost { .. } = cut {
                    // It is there before anybody asks for it again.
                    let root = root(&server).await;
                    let (project_id, session_id) = work.ids();
                    let mut request = root.project_request();
                    request.get().set_id(&project_id);
                    let project = request.send().pipeline.get_project();
                    let mut request = project.session_request();
                    request.get().set_id(&session_id);
                    let session = request.send().pipeline.get_session();
                    look(&work, &Sent { project, session, answers: Vec::new() }).await;
                }
                send_again(&server, &work, cut).await;
            });
        }
    }
}

/// What the process below is told.
const STALE_SERVER: &str = "STALE_PRODUCER_SERVER";
const STALE_REF: &str = "STALE_PRODUCER_REF";
const STALE_ID: &str = "STALE_PRODUCER_ID";
const STALE_WAY: &str = "STALE_PRODUCER_WAY";
/// Ops of one batch, or between two flushes.
const STALE_OPS: u64 = 3;
/// Batches under way, so that some are between the two sides whenever it is stopped.
const STALE_BATCHES: usize = 4;
/// What the process is stopped after.
const STALE_ACKS: u64 = 30;

/// The session of the two who believe to be the same producer.
fn contested(root: &root::Client) -> session::Client {
    let project = open_project(root, &mut Producer::new(), "/contested").pipeline.get_project();
    // The first makes it; the others are refused and find it.
    ignore(create_session(&project, &mut Producer::new(), "s").promise);
    let mut request = project.session_request();
    request.get().set_id("s");
    request.send().pipeline.get_session()
}

/// Announces this process as the one that writes; the producer as it stands.
async fn take_over(session: &session::Client, id: [u8; 16]) -> Producer {
    let mut instance = [0; 16];
    instance[..4].copy_from_slice(&std::process::id().to_le_bytes());
    let mut request = session.register_request();
    let mut registration = request.get().init_registration();
    registration.set_producer(&id);
    registration.set_instance(&instance);
    let answer = request.send().promise.await.unwrap();
    let at = answer.get().unwrap().get_registered().unwrap();
    let next = at.get_next_expected_seq();
    Producer { id, epoch: at.get_epoch(), next, acked_through: next - 1 }
}

/// Writes until it is refused: a process that the tests below start. Alone it has nothing to do.
#[test]
#[ignore = "a process of its own, for the tests below"]
fn the_stale_producer_writes_until_it_is_refused() {
    let told = [STALE_SERVER, STALE_REF, STALE_ID, STALE_WAY].map(|name| std::env::var(name).ok());
    let [Some(server), Some(sturdy_ref), Some(id), Some(way)] = told else { return };
    let id = data_encoding::HEXLOWER.decode(id.as_bytes()).unwrap().try_into().unwrap();
    let refused = local(async {
        let stream = TcpStream::connect(server.parse::<SocketAddr>().unwrap()).await.unwrap();
        let (reader, writer) = stream.into_split();
        let session = contested(&redeem(&client(reader, writer), &sturdy_ref));
        let producer = take_over(&session, id).await;
        match way.as_str() {
            "Stream" => stream_until_refused(&session, producer).await,
            _ => append_until_refused(&session, producer).await,
        }
    });
    // The runner may have begun a line of its own.
    println!("\n@refused {}", code(&refused));
}

fn old(seq: u64) -> String {
    format!("old-{seq}")
}

async fn append_until_refused(session: &session::Client, mut producer: Producer) -> capnp::Error {
    let mut under_way = std::collections::VecDeque::new();
    loop {
        while under_way.len() < STALE_BATCHES {
            let texts: Vec<_> = (producer.next..).take(STALE_OPS as usize).map(old).collect();
            let texts: Vec<_> = texts.iter().map(String::as_str).collect();
            let ack = producer.batch(session, &texts).send().promise;
            under_way.push_back((producer.next - 1, ack));
        }
        let (last, ack) = under_way.pop_front().unwrap();
        match ack.await {
            Err(error) => return error,
            Ok(answer) => assert!(!answer.get().unwrap().get_ack().unwrap().has_stopped()),
        }
        println!("\n@acked {last}");
        producer.acked_through = last;
    }
}

async fn stream_until_refused(session: &session::Client, mut producer: Producer) -> capnp::Error {
    let writer = writer_at(session, &producer, producer.next);
    let mut under_way = std::collections::VecDeque::new();
    loop {
        while under_way.len() < STALE_BATCHES {
            for seq in (producer.next..).take(STALE_OPS as usize) {
                // If it fails, so will the flush behind it.
                let _ = crate::stream::write(&writer, &producer, seq, &old(seq)).await;
            }
            producer.next += STALE_OPS;
            let mut request = writer.flush_request();
            request.get().set_acked_through(producer.acked_through);
            under_way.push_back((producer.next - 1, request.send().promise));
        }
        let (last, ack) = under_way.pop_front().unwrap();
        match ack.await {
            Err(error) => return error,
            Ok(answer) => assert!(!answer.get().unwrap().get_ack().unwrap().has_stopped()),
        }
        println!("\n@acked {last}");
        producer.acked_through = last;
    }
}

/// The other process, and what it says.
struct StaleProducer {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl StaleProducer {
    fn start(server: &Server, id: [u8; 16], way: Way) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "replay::the_stale_producer_writes_until_it_is_refused"])
            .args(["--ignored", "--nocapture"])
            .env(STALE_SERVER, server.tcp.to_string())
            .env(STALE_REF, server.root_ref())
            .env(STALE_ID, data_encoding::HEXLOWER.encode(&id))
            .env(STALE_WAY, format!("{way:?}"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops it, and returns when it stands still.
    fn stop(&self) {
        self.signal(Signal::STOP);
        let pid = Pid::from_child(&self.child);
        let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped(), "{status:?}");
    }

    /// The next thing it says, of either kind: the number it knows to be on disk, or why it gave up.
    fn says(&mut self) -> Option<Result<u64, String>> {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some(acked) = line.trim().strip_prefix("@acked ") {
                return Some(Ok(acked.parse().unwrap()));
            }
            if let Some(code) = line.trim().strip_prefix("@refused ") {
                return Some(Err(code.to_owned()));
            }
        }
    }
}

impl Drop for StaleProducer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that was stopped, and goes on when another has taken its place.
fn check_that_a_stale_one_is_fenced(way: Way) {
    const NEW_OPS: u64 = 40;
    let server = Server::start();
    let id = Producer::new().id;
    let mut stale = StaleProducer::start(&server, id, way);
    let mut acked = 0;
    while acked < STALE_ACKS {
        acked = stale.says().expect("it writes").expect("nobody has refused it yet");
    }
    stale.stop();

    let write = async |session: &session::Client, producer: &mut Producer| {
        for _ in 0..NEW_OPS / 2 {
            let text = format!("new-{}", producer.next);
            let answer = producer.batch(session, &[&text]).send().promise.await.unwrap();
            let ack = answer.get().unwrap().get_ack().unwrap();
            assert_eq!((ack.get_next_expected_seq(), ack.has_stopped()), (producer.next, false));
        }
    };
    let (first, mut producer) = local(async {
        let session = contested(&root(&server).await);
        let mut producer = take_over(&session, id).await;
        let first = producer.next;
        write(&session, &mut producer).await;
        (first, producer)
    });

    stale.signal(Signal::CONT);
    local(async { write(&contested(&root(&server).await), &mut producer).await });
    let refused = loop {
        match stale.says().expect("it is refused") {
            Ok(more) => acked = more,
            Err(code) => break code,
        }
    };
    assert_eq!(refused, "producer-fenced");
    assert!(stale.child.wait().unwrap().success());
    assert!(acked < first, "{acked} was acknowledged to it, but {first} is its successor's");
    println!("{way:?}: {acked} acknowledged, {} taken, then fenced", first - 1);

    let found = local(async { texts(&contested(&root(&server).await), 1000).await });
    let new = (first..first + NEW_OPS).map(|seq| format!("new-{seq}"));
    assert_eq!(found, (1..first).map(old).chain(new).collect::<Vec<_>>());
}

#[test]
fn a_producer_that_slept_through_its_succession_is_fenced() {
    check_that_a_stale_one_is_fenced(Way::Batches);
}

#[test]
fn a_stream_that_slept_through_its_succession_is_fenced() {
    check_that_a_stale_one_is_fenced(Way::Stream);
}
