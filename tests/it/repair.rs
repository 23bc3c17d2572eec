//! Turns that are cut short at any moment, and turns that many end at once: one end, and everything fits it.

use crate::conversation::{Story, told};
use crate::feed::{Ears, feed};
use crate::grants::{only, revoke, save};
use crate::support::*;
use crate::turns::{add_message, begin, finish, open_text, state};
use bowline::limits::INLINE_TEXT_BYTES_MAX;
use bowline::wire::bowline_capnp::outcome;
use bowline::wire::grant_capnp::Right;
use bowline::wire::message_capnp::{IfBusy, Role, ToolStatus, TurnState, message_body, part};
use bowline::wire::root_capnp::root;
use bowline::wire::session_capnp::{session, session_op, turn};
use sha2::{Digest, Sha256};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;

fn session_of(root: &root::Client, id: &str) -> session::Client {
    let mut request = root.session_request();
    request.get().set_id(id);
    request.send().pipeline.get_session()
}

fn turn_of(session: &session::Client, id: &str) -> turn::Client {
    let mut request = session.turn_request();
    request.get().set_id(id);
    request.send().pipeline.get_turn()
}

async fn id_of(session: &session::Client) -> String {
    let answer = session.info_request().send().promise.await.unwrap();
    let info = answer.get().unwrap().get_session().unwrap();
    info.get_id().unwrap().to_string().unwrap()
}

/// The turns of a session, newest first: id, state, reason.
async fn turns_of(session: &session::Client) -> Vec<(String, TurnState, String)> {
    let mut request = session.turns_request();
    request.get().init_page().set_newest_first(true);
    let answer = request.send().promise.await.unwrap();
    let turns = answer.get().unwrap().get_turns().unwrap();
    let told = turns.iter().map(|turn| {
        let (id, reason) = (turn.get_id().unwrap(), turn.get_reason().unwrap());
        (id.to_string().unwrap(), turn.get_state().unwrap(), reason.to_string().unwrap())
    });
    told.collect()
}

fn assert_verified(data: &Path) {
    let verified = command(data).args(["verify", "--data"]).arg(data).output().unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

/// T3, T4: a crash ends no turn whose lease lasts. It still waits, it can be gone on with from any byte, and it
/// ends as if nothing had been.
#[test]
fn a_turn_is_gone_on_with_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), &[], &[]);
    let id = local(async {
        let session = fresh_session(&root(&server).await);
        let mut story = Story::new(session.clone());
        story.tell("turn t1 u1\nsay t1 a1\nopen t1 a1 p1\ndelta p1 0 hello, -> 6").await;
        story.tell("tool t1 a1 p2 running\nturn t2 u2 queued\nretry t1 3").await;
        story.tell("status -> retry 3, 1 queued").await;
        id_of(&session).await
    });
    server.kill_9();
    let server = Server::start_in(dir.path(), &[], &[]);
    local(async {
        let session = session_of(&root(&server).await, &id);
        let mut story = Story::new(session.clone());
        story
            .tell(
                "status -> retry 3, 1 queued
                 show -> u1:u1 a1:hello,,running[] u2:u2
                 resume t1 a1 p9 -> part-not-found
                 resume t1 a1 p1 -> 6
                 status -> retry 3, 1 queued
                 delta p1 0 hello, -> 6            // from the start
                 status -> busy, 1 queued
                 delta p1 3 lo,world -> 11         // and from the middle
                 delta p1 11 ! -> 12
                 tool t1 a1 p2 completed out
                 finish t1 completed
                 resume t1 a1 p1 -> turn-ended
                 status -> busy
                 show -> u1:u1 a1:hello,world!,completed[out] u2:u2
                 finish t2 completed
                 status -> idle",
            )
            .await;
        let turns = turns_of(&session).await;
        assert!(turns.iter().all(|(_, state, _)| *state == TurnState::Completed), "{turns:?}");
    });
    server.kill_9();
    assert_verified(dir.path());
}

/// Down for longer than the lease: it is over before anybody can ask.
#[test]
fn a_turn_whose_lease_ran_out_meanwhile_is_over_at_the_first_question() {
    let dir = tempfile::tempdir().unwrap();
    let mut id = String::new();
    for round in 0..3 {
        let server = Server::start_in(dir.path(), &[], &[]);
        id = local(async {
            let root = root(&server).await;
            let session = if round == 0 { fresh_session(&root) } else { session_of(&root, &id) };
            let mut producer = Producer::new();
            let turn = begin(&session, &mut producer, 1_000);
            add_message(&turn, &mut producer, &format!("a{round}"));
            let writer = open_text(&turn, &mut producer, "p1");
            let mut request = writer.delta_request();
            request.get().set_text("kept");
            request.send().await.unwrap();
            writer.flush_request().send().promise.await.unwrap();
            id_of(&session).await
        });
        server.kill_9();
        std::thread::sleep(std::time::Duration::from_millis(1_200));
        let server = Server::start_in(dir.path(), &[], &[]);
        local(async {
            let mut story = Story::new(session_of(&root(&server).await, &id));
            assert_eq!(story.line("status").await, "idle");
            let shown = story.line("show").await;
            assert!(shown.ends_with(&format!("a{round}:kept!")), "{shown}");
        });
        server.kill_9();
    }
    assert_verified(dir.path());
}

/// What a turn under fire consists of, op by op. Repeated with the same numbers it is the same.
const OPS: u64 = 6;

fn fill(n: u64, round: u64, op: session_op::Builder<'_>) {
    let (turn, message) = (format!("t{round}"), format!("a{round}"));
    match n {
        1 | 2 => {
            let mut draft = op.init_begin_turn();
            draft.set_id(if n == 1 { turn } else { format!("q{round}") });
            draft.set_lease_ms(if n == 1 { 1_000 } else { 60_000 });
            draft.set_if_busy(IfBusy::Queue);
            draft.init_message().set_id(format!("{}{round}", if n == 1 { "u" } else { "v" }));
        }
        3 => {
            let mut body = op.init_put_message();
            body.set_id(message);
            body.set_role(Role::Assistant);
            body.set_turn_id(turn);
        }
        4 | 5 => {
            let mut put = op.init_put_part();
            put.set_turn_id(turn);
            put.set_message_id(message);
            put.set_open(n == 4);
            let mut part = put.init_part();
            part.set_id(if n == 4 { "text" } else { "tool" });
            match n {
                4 => part.set_text(""),
                _ => part.init_tool().set_status(ToolStatus::Running),
            }
        }
        _ => {
            let mut end = op.init_end_turn();
            end.set_turn_id(turn);
            end.set_state(TurnState::Completed);
        }
    }
}

/// One of these ops; `ok`, or the code under which it was rejected. None if the connection broke.
async fn send(
    session: &session::Client,
    producer: &Producer,
    n: u64,
    round: u64,
) -> Option<String> {
    let mut request = batch_at(producer, n, session, &["x"]);
    fill(n, round, request.get().get_ops().unwrap().get(0));
    let answer = request.send().promise.await.ok()?;
    let ack = answer.get().unwrap().get_ack().unwrap();
    assert!(!ack.has_stopped());
    Some(match ack.get_outcomes().unwrap().get(0).which().unwrap() {
        outcome::Rejected(refusal) => refusal.unwrap().get_code().unwrap().to_string().unwrap(),
        _ => "ok".into(),
    })
}

/// What was acknowledged before the crash.
#[derive(Default)]
struct Acked {
    ops: Cell<u64>,
    bytes: Cell<u64>,
}

/// Longer than what stands in a part, so that it becomes content with the end of its turn.
fn long_text(round: u64) -> String {
    (0..).map(|n| format!("{round}:{n} ")).take(24_000).collect::<String>()
}

/// Does all of a turn, until the connection breaks.
async fn all_of_a_turn(session: &session::Client, producer: &Producer, round: u64, acked: &Acked) {
    let text = long_text(round);
    for n in 1..=OPS {
        if n == OPS {
            let mut request = turn_of(session, &format!("t{round}")).part_writer_request();
            request.get().set_message_id(format!("a{round}"));
            request.get().set_part_id("text");
            let writer = request.send().pipeline.get_writer();
            let mut offset = 0;
            while offset < text.len() {
                let piece = &text[offset..(offset + 20_000).min(text.len())];
                let mut request = writer.delta_request();
                request.get().set_offset(offset as u64);
                request.get().set_text(piece);
                if request.send().await.is_err() {
                    return;
                }
                let Ok(answer) = writer.flush_request().send().promise.await else { return };
                offset = answer.get().unwrap().get_offset() as usize;
                acked.bytes.set(offset as u64);
            }
        }
        match send(session, producer, n, round).await.as_deref() {
            Some("ok") => acked.ops.set(n),
            None => return,
            Some(other) => panic!("op {n} heard {other}"),
        }
    }
}

/// The text of a part is this one as far as it goes: how far, here or beside.
fn reaches(part: part::Reader<'_>, text: &str) -> u64 {
    let content = part.get_content().unwrap();
    if content.has_hash() {
        let bytes = content.get_bytes() as usize;
        assert_eq!(content.get_hash().unwrap(), &Sha256::digest(&text[..bytes])[..]);
        return bytes as u64;
    }
    let part::Text(kept) = part.which().unwrap() else { panic!("no text") };
    let kept = kept.unwrap().to_str().unwrap();
    assert!(text.starts_with(kept), "something else was kept");
    kept.len() as u64
}

/// Hands a message of the session to `read`, if it is there.
async fn message<T>(
    session: &session::Client,
    id: &str,
    read: impl FnOnce(message_body::Reader<'_>) -> T,
) -> Option<T> {
    let mut request = session.messages_request();
    request.get().init_page().set_newest_first(true);
    let answer = request.send().promise.await.unwrap();
    let messages = answer.get().unwrap().get_messages().unwrap();
    let found = messages.iter().find(|message| message.get_id().unwrap() == id)?;
    Some(read(found.get_body().unwrap()))
}

/// kill -9 at any moment of a turn, from its first op until its end is on its way: afterwards it has wholly ended,
/// with the next one running, or it is under way and aborted when its lease runs out. Repeating everything gives
/// the answers there were.
#[test]
fn a_crash_at_any_moment_leaves_a_turn_whole_or_aborted() {
    const ROUNDS: u64 = 26;
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random::told();
    let mut id = String::new();
    let (mut completed, mut aborted, mut unbegun) = (0, 0, 0);
    let (mut bytes_acked, mut ops_acked) = (0, 0);
    // How long a turn takes that nobody disturbs, as the first one tells.
    let mut whole_ms = 0;
    let mut server = Server::start_in(dir.path(), &[], &[]);
    for round in 0..ROUNDS {
        let producer = Producer::new();
        let acked = Rc::new(Acked::default());
        local(async {
            let root = root(&server).await;
            let session = if round == 0 { fresh_session(&root) } else { session_of(&root, &id) };
            id = id_of(&session).await;
            let begun = now_ms();
            let under_way = {
                let (session, producer, acked) = (session.clone(), producer.clone(), acked.clone());
                tokio::task::spawn_local(async move {
                    all_of_a_turn(&session, &producer, round, &acked).await;
                })
            };
            match round {
                0 => {
                    under_way.await.unwrap();
                    whole_ms = now_ms() - begun;
                }
                // In the middle of the text, whatever the others do.
                1 => {
                    while acked.bytes.get() == 0 {
                        tokio::task::yield_now().await;
                    }
                }
                _ => until_ms(begun + random.below(whole_ms * 5 / 4)).await,
            }
            let pid = rustix::process::Pid::from_raw(server.pid() as i32).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            // What is still told was acknowledged, too.
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
        });
        server.kill_9();
        bytes_acked += acked.bytes.get();
        ops_acked += acked.ops.get();
        server = Server::start_in(dir.path(), &[], &[]);
        local(async {
            let session = session_of(&root(&server).await, &id);
            let at = format!("round {round}, {} ops", acked.ops.get());
            let text = long_text(round);
            let ends = async || {
                let turns = turns_of(&session).await;
                turns.into_iter().find(|(id, ..)| *id == format!("t{round}"))
            };
            let shown = async || {
                let read = |body: message_body::Reader<'_>| {
                    let parts = body.get_parts().unwrap();
                    let length = match parts.len() {
                        0 => 0,
                        _ => reaches(parts.get(0), &text),
                    };
                    let rest = told(body);
                    (length, rest.ends_with('!'), body.get_completed_at_ms() > 0, rest)
                };
                message(&session, &format!("a{round}"), read).await
            };
            let first = ends().await.map(|(_, state, _)| state);
            match first {
                None => {
                    assert_eq!(acked.ops.get(), 0, "{at}");
                    unbegun += 1;
                }
                Some(TurnState::Streaming) => {
                    assert!(acked.ops.get() < OPS, "{at}: its end was acknowledged");
                    if let Some((length, failed, ended, told)) = shown().await {
                        assert!(!failed && !ended && !told.contains("error["), "{at}: {told}");
                        let least = acked.bytes.get().min(INLINE_TEXT_BYTES_MAX as u64 - 4);
                        assert!(length >= least, "{at}: {length} of {least}");
                    }
                    while ends().await.unwrap().1 == TurnState::Streaming {
                        until_ms(now_ms() + 50).await;
                    }
                }
                Some(_) => {}
            }
            match ends().await {
                None => {}
                Some((_, TurnState::Completed, _)) => {
                    completed += 1;
                    assert!(first == Some(TurnState::Completed), "{at}");
                    let (length, failed, ended, told) = shown().await.unwrap();
                    assert_eq!(length, text.len() as u64, "{at}");
                    assert!(!failed && ended, "{at}: {told}");
                    assert!(told.contains("error[Tool-execution-aborted"), "{at}: {told}");
                }
                Some((_, state, reason)) => {
                    aborted += 1;
                    assert_eq!(state, TurnState::Aborted, "{at}");
                    assert!(reason.contains("nothing was heard"), "{at}: {reason}");
                    assert!(acked.ops.get() < OPS, "{at}: its end was acknowledged");
                    let shown = shown().await;
                    assert!(shown.is_some() || acked.ops.get() < 3, "{at}");
                    if let Some((length, failed, _, told)) = shown {
                        assert!(length >= acked.bytes.get(), "{at}: {length}");
                        assert!(failed && !told.contains("running"), "{at}: {told}");
                        let interrupted = told.contains("error[Tool-execution-aborted");
                        assert!(interrupted || acked.ops.get() < 5, "{at}: {told}");
                    }
                }
            }
            // The one that waited runs, and everything can be repeated: it is the same again.
            let over = ends().await.is_some();
            let queued = format!("q{round}");
            if over
                && let Some((_, state, _)) =
                    turns_of(&session).await.into_iter().find(|(id, ..)| *id == queued)
            {
                assert_eq!(state, TurnState::Streaming, "{at}");
            }
            let aborts = matches!(ends().await, Some((_, TurnState::Aborted, _)));
            for n in 1..=OPS {
                let once = send(&session, &producer, n, round).await.unwrap();
                let elsewhere = session_of(&root(&server).await, &id);
                let twice = send(&elsewhere, &producer, n, round).await.unwrap();
                assert_eq!(once, twice, "{at}: op {n}");
                let fits = match once.as_str() {
                    "ok" => n < OPS || !aborts,
                    // What had not arrived is too late now.
                    "turn-ended" | "message-not-found" => aborts && n > acked.ops.get(),
                    _ => false,
                };
                assert!(fits, "{at}: op {n} heard {once}");
            }
            let mut story = Story::new(session.clone());
            story.tell(&format!("finish {queued} completed\nstatus -> idle")).await;
        });
    }
    println!(
        "{completed} completed, {aborted} aborted, {unbegun} not begun; {ops_acked} ops and \
         {bytes_acked} bytes acknowledged"
    );
    assert!(completed > 0 && aborted > 0);
    assert!(ops_acked > ROUNDS && bytes_acked > 500_000);
    server.kill_9();
    assert_verified(dir.path());
}

/// What the ends of many turns came to.
#[derive(Debug, Default)]
struct Ends {
    completed: u32,
    aborted: u32,
    lapsed: u32,
    /// Tools that gave something before the end.
    tools: u32,
    /// Texts that came before the end.
    texts: u32,
}

/// Who takes part in ending a turn, each over a connection of its own.
const RACERS: usize = 9;

/// Ends one turn from all sides at once. One whose lease runs out meanwhile is raced with that.
async fn race(roots: Rc<Vec<root::Client>>, seed: u64, lapses: bool, ends: Rc<RefCell<Ends>>) {
    let mut random = Random(seed);
    let session = fresh_session(&roots[0]);
    let mut first = Producer::new();
    let turn = begin(&session, &mut first, if lapses { 1_000 } else { 0 });
    add_message(&turn, &mut first, "a1");
    let mut request = turn.put_part_request();
    first.header(request.get().init_op());
    let mut part = request.get().init_part().init_part();
    part.set_id("tool");
    part.init_tool().set_status(ToolStatus::Running);
    ignore(request.send().promise);
    open_text(&turn, &mut first, "text").flush_request().send().promise.await.unwrap();
    let id = id_of(&session).await;
    let turn_id = turns_of(&session).await[0].0.clone();

    // Everybody is there before anybody begins.
    let mut order: Vec<usize> = (0..RACERS).collect();
    for at in (1..RACERS).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    let same = Producer::new();
    let barrier = Rc::new(tokio::sync::Barrier::new(RACERS));
    let fire_ms = Rc::new(Cell::new(0));
    let mut racing = Vec::new();
    for who in order {
        let turn = turn_of(&session_of(&roots[who], &id), &turn_id);
        let mut request = turn.part_writer_request();
        request.get().set_message_id("a1");
        request.get().set_part_id("text");
        let writer = request.send().promise.await.unwrap().get().unwrap().get_writer().unwrap();
        let (barrier, mut producer) = (barrier.clone(), same.clone());
        let fire_ms = fire_ms.clone();
        let jitter_ms = random.below(4);
        racing.push(tokio::task::spawn_local(async move {
            if who < 7 {
                producer = Producer::new();
            }
            barrier.wait().await;
            if lapses {
                until_ms(fire_ms.get() + jitter_ms).await;
            }
            let heard = match who {
                0 => finish(&turn, &mut producer, TurnState::Completed).promise.await.err(),
                1 | 2 => finish(&turn, &mut producer, TurnState::Aborted).promise.await.err(),
                3 | 4 => {
                    let mut request = turn.put_part_request();
                    producer.header(request.get().init_op());
                    let mut part = request.get().init_part().init_part();
                    part.set_id("tool");
                    let mut tool = part.init_tool();
                    tool.set_status(ToolStatus::Completed);
                    tool.set_output("done");
                    request.send().promise.await.err()
                }
                5 => {
                    let mut request = writer.delta_request();
                    request.get().set_text("word");
                    match request.send().await {
                        Err(error) => Some(error),
                        Ok(()) => writer.flush_request().send().promise.await.err(),
                    }
                }
                6 => turn.heartbeat_request().send().promise.await.err(),
                // One op, sent twice.
                _ => finish(&turn, &mut producer, TurnState::Completed).promise.await.err(),
            };
            (who, heard.map(|error| code(&error).to_owned()))
        }));
    }
    // Just now something was heard of it, so its lease runs out in a second.
    fire_ms.set(now_ms() + 950 + random.below(350));
    let (mut enders, mut tools, mut text, mut same) = (Vec::new(), 0, false, Vec::new());
    for racer in racing {
        let (who, heard) = racer.await.unwrap();
        match (who, heard.as_deref()) {
            (7 | 8, _) => same.push(heard),
            (3 | 4, None) => tools += 1,
            (5, None) => text = true,
            (6, None) => {}
            (who, None) => enders.push(who),
            (3 | 4, Some("tool-ended")) | (5, Some("part-closed")) | (_, Some("turn-ended")) => {}
            (who, Some(code)) => panic!("racer {who} heard {code}"),
        }
    }
    assert_eq!(same[0], same[1], "one op has one answer");
    match same[0].as_deref() {
        None => enders.push(7),
        Some(code) => assert_eq!(code, "turn-ended"),
    }
    // With nobody left to end it, its lease does.
    let (now, reason) = loop {
        match state(&turn).await {
            (TurnState::Streaming, _) => until_ms(now_ms() + 50).await,
            ended => break ended,
        }
    };
    {
        let mut ends = ends.borrow_mut();
        match *enders {
            [0 | 7] => {
                assert_eq!(now, TurnState::Completed);
                ends.completed += 1;
            }
            [_] => {
                assert_eq!((now, reason.as_str()), (TurnState::Aborted, ""));
                ends.aborted += 1;
            }
            [] => {
                assert!(lapses && reason.contains("nothing was heard"), "{reason}");
                assert_eq!(now, TurnState::Aborted);
                ends.lapsed += 1;
            }
            _ => panic!("it was ended by {enders:?}"),
        }
        ends.tools += tools;
        ends.texts += u32::from(text);
    }
    let last = message(&session, "a1", told).await.unwrap();
    let tool = if tools > 0 { "completed[done]" } else { "error[Tool-execution-aborted" };
    assert!(tools <= 1 && last.contains(tool), "{tools} {last}");
    assert_eq!(last.contains(",word"), text, "{last}");
    assert_eq!(last.ends_with('!'), now == TurnState::Aborted, "{last}");
    assert_eq!(Story::new(session.clone()).line("status").await, "idle");
    let ears = Rc::new(Ears::default());
    let _feed = feed(&session, &ears, |_| {}).await.unwrap();
    ears.heard(|lines| lines.iter().any(|line| line.starts_with("caught-up"))).await;
    let told = ears.lines().into_iter().filter(|line| line.contains(&format!("ended {turn_id}")));
    assert_eq!(told.count(), 1, "{:?}", ears.lines());
}

/// However finish, abort, late tools, text, signs of life and a lease race: one end, and everything fits it.
#[test]
fn of_all_who_end_a_turn_at_once_one_does() {
    let mut server = Server::start();
    let data = server.data.clone();
    let mut random = Random::told();
    let ends = Rc::new(RefCell::new(Ends::default()));
    local(async {
        let mut roots = Vec::new();
        for _ in 0..RACERS {
            roots.push(root(&server).await);
        }
        let roots = Rc::new(roots);
        for _ in 0..40 {
            race(roots.clone(), random.next(), false, ends.clone()).await;
        }
        let around_the_lease =
            (0..32).map(|_| race(roots.clone(), random.next(), true, ends.clone()));
        futures::future::join_all(around_the_lease).await;
    });
    let ends = ends.borrow();
    println!("{ends:?}");
    assert!(ends.completed > 0 && ends.aborted > 0 && ends.lapsed > 0, "{ends:?}");
    assert!(ends.tools > 0 && ends.texts > 0, "{ends:?}");
    server.signal(rustix::process::Signal::TERM);
    server.ended();
    assert_verified(&data);
}

/// Beginning and ending take effect once, over whatever connection and after a crash.
#[test]
fn a_turn_begins_once_and_ends_once_however_often_it_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), &[], &[]);
    let producer = Producer::new();
    let begins = async |session: &session::Client, producer: &Producer| {
        let mut request = session.begin_turn_request();
        producer.clone().header(request.get().init_op());
        let mut draft = request.get().init_turn();
        draft.set_if_busy(IfBusy::Queue);
        draft.init_message().set_agent("build");
        let answer = request.send().promise.await.unwrap();
        let answer = answer.get().unwrap();
        let turn = answer.get_turn().unwrap();
        let cursor = turn.info_request().send().promise.await.unwrap();
        let cursor = cursor.get().unwrap().get_turn().unwrap().get_cursor();
        (answer.get_id().unwrap().to_string().unwrap(), answer.get_state().unwrap(), cursor)
    };
    let mut next = producer.clone();
    next.next += 1;
    let (id, turn_id, begun) = local(async {
        let session = fresh_session(&root(&server).await);
        let id = id_of(&session).await;
        let begun = begins(&session, &producer).await;
        let elsewhere = session_of(&root(&server).await, &id);
        // A turn that runs is no reason to queue what is the same.
        assert_eq!(begins(&elsewhere, &producer).await, begun);
        (id, begun.0.clone(), begun)
    });
    server.kill_9();
    let server = Server::start_in(dir.path(), &[], &[]);
    let head = async |session: &session::Client| {
        let answer = session.info_request().send().promise.await.unwrap();
        answer.get().unwrap().get_session().unwrap().get_head()
    };
    let ended_at = local(async {
        let session = session_of(&root(&server).await, &id);
        assert_eq!(begins(&session, &producer).await, begun);
        for _ in 0..2 {
            let turn = turn_of(&session_of(&root(&server).await, &id), &turn_id);
            let ended = finish(&turn, &mut next.clone(), TurnState::Completed);
            ended.promise.await.unwrap();
        }
        head(&session).await
    });
    server.kill_9();
    let server = Server::start_in(dir.path(), &[], &[]);
    local(async {
        let session = session_of(&root(&server).await, &id);
        assert_eq!(begins(&session, &producer).await, begun, "it ran then, and is over now");
        let turn = turn_of(&session, &turn_id);
        finish(&turn, &mut next.clone(), TurnState::Completed).promise.await.unwrap();
        let late = finish(&turn, &mut Producer::new(), TurnState::Completed);
        assert_eq!(code(&late.promise.await.err().unwrap()), "turn-ended");
        assert_eq!(head(&session).await, ended_at, "nothing was written");
    });
    server.kill_9();
    assert_verified(dir.path());
}

/// However the turn before it ends, the one that waited runs: also when nothing was heard of it, and when it lost
/// its grant.
#[test]
fn what_waits_runs_when_the_turn_before_it_lapses_or_loses_its_grant() {
    let mut server = Server::start();
    let data = server.data.clone();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut producer = Producer::new();
        let mut story = Story::new(session.clone());
        begin(&session, &mut producer, 1_000).info_request().send().promise.await.unwrap();
        let ears = Rc::new(Ears::default());
        let _feed = feed(&session, &ears, |_| {}).await.unwrap();
        story.tell("turn t1 u1 queued\nstatus -> busy, 1 queued\nsay t1 a1 -> session-busy").await;
        ears.heard(|lines| lines.iter().any(|line| line.ends_with("started t1"))).await;
        story.tell("say t1 a1\nfinish t1 completed\nstatus -> idle").await;

        let rights = only(&[Right::Read, Right::Append, Right::Turn]);
        let (sturdy_ref, grant) = save(&session, &mut producer, rights).await.unwrap();
        let theirs: session::Client = redeem(&connect(&server).await, &sturdy_ref);
        begin(&theirs, &mut Producer::new(), 0).info_request().send().promise.await.unwrap();
        story.tell("turn t2 u2 queued\nturn t3 u3 queued\nstatus -> busy, 2 queued").await;
        revoke(&session, &mut producer, &grant).await.unwrap();
        ears.heard(|lines| lines.iter().any(|line| line.ends_with("started t2"))).await;
        story.tell("say t2 a2\nfinish t2 completed\nsay t3 a3\nfinish t3 completed").await;
        story.tell("status -> idle").await;
    });
    server.signal(rustix::process::Signal::TERM);
    server.ended();
    assert_verified(&data);
}

/// R1: a session is removed with the turns that run in it, and nobody waits for their end.
#[test]
fn a_session_goes_with_the_turns_that_run_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(dir.path(), &[], &[]);
    local(async {
        let root = root(&server).await;
        let mut producer = Producer::new();
        let project = open_project(&root, &mut producer, "/w").pipeline.get_project();
        let session = create_session(&project, &mut Producer::new(), "s").pipeline.get_session();
        let mut numbers = Producer::new();
        let turn = begin(&session, &mut numbers, 1_000);
        add_message(&turn, &mut numbers, "a1");
        let writer = open_text(&turn, &mut numbers, "p1");
        let mut request = writer.delta_request();
        request.get().set_text("gone");
        request.send().await.unwrap();
        writer.flush_request().send().promise.await.unwrap();
        begin(&session, &mut numbers, 60_000).info_request().send().promise.await.unwrap();
        let mut request = project.remove_session_request();
        Producer::new().header(request.get().init_op());
        request.get().set_id("s");
        request.send().promise.await.unwrap();
        let error = turn.heartbeat_request().send().promise.await.err().unwrap();
        assert_eq!(code(&error), "session-not-found");
        let error = writer.flush_request().send().promise.await.err().unwrap();
        assert_eq!(code(&error), "session-not-found");
        let late = finish(&turn, &mut numbers, TurnState::Completed);
        assert_eq!(code(&late.promise.await.err().unwrap()), "session-not-found");
        // Past the lease.
        until_ms(now_ms() + 1_500).await;
        let session = create_session(&project, &mut Producer::new(), "s").pipeline.get_session();
        Story::new(session).tell("status -> idle\nturn t1 u1\nfinish t1 completed").await;
    });
    server.signal(rustix::process::Signal::TERM);
    assert!(server.ended().success());
    assert_verified(dir.path());
}
