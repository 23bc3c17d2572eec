//! Turns: begun, streamed, ended once, and repaired when nobody ends them.

use crate::conversation::{Story, check, told};
use crate::feed::{Ears, feed};
use crate::grants::{only, revoke, save};
use crate::support::*;
use bowline::wire::grant_capnp::Right;
use bowline::wire::message_capnp::{IfBusy, Role, ToolStatus, TurnState};
use bowline::wire::session_capnp::{part_writer, session, turn};
use std::rc::Rc;

/// T1, T5, L1: busy while it runs; what cannot be done beside it says so; idle behind it.
#[test]
fn a_turn_stores_what_it_answers_and_the_session_is_busy_until_it_ends() {
    check(
        "
        status -> idle
        turn t1 u1
        status -> busy
        show -> u1:u1
        turn t2 u2 -> session-busy
        undo -> session-busy
        checkpoint here -> session-busy
        rm u1 -> session-busy
        say t1 a1
        text t1 a1 p1 hello
        show -> u1:u1 a1:hello
        finish t1 completed
        status -> idle
        show -> u1:u1 a1:hello
        finish t1 completed -> turn-ended
        text t1 a1 p2 late -> turn-ended
        say t1 a2 -> turn-ended
        turn t1 u2 -> turn-exists
        turn t2 u1 -> message-exists
        finish t9 completed -> turn-not-found
        turn t2 u2
        finish t2 failed
        status -> idle
        ",
    );
}

/// T6: what is sent while a turn runs is stored at once, and has its turn.
#[test]
fn a_queued_turn_is_stored_at_once_and_runs_when_the_others_have_ended() {
    check(
        "
        turn t1 u1
        turn t2 u2 queued
        turn t3 u3 queued
        status -> busy, 2 queued
        show -> u1:u1 u2:u2 u3:u3
        say t2 a2 -> session-busy       // not before it runs
        turn t4 u4 beside               // unless asked otherwise
        finish t1 completed
        status -> busy, 2 queued        // t4 still runs
        finish t4 completed
        status -> busy, 1 queued
        say t2 a2
        finish t3 aborted               // before it has begun
        finish t2 completed
        status -> idle
        ",
    );
}

/// T2: retry, and busy again with the next thing that is heard.
#[test]
fn a_turn_that_waits_says_so_and_goes_on() {
    check(
        "
        turn t1 u1
        say t1 a1
        retry t1 1
        status -> retry 1
        retry t1 2
        status -> retry 2
        text t1 a1 p1 again
        status -> busy
        retry t1 3
        finish t1 completed
        status -> idle
        retry t1 4 -> turn-ended
        ",
    );
}

/// ST1, ST3, L7: tools go forward only; what is late is refused; what still runs is interrupted.
#[test]
fn tools_go_forward_only_and_late_results_are_refused() {
    check(
        "
        turn t1 u1
        say t1 a1
        tool t1 a1 p1 completed done -> tool-ended   // it never ran
        tool t1 a1 p1 pending
        tool t1 a1 p1 running
        tool t1 a1 p1 pending -> tool-ended
        tool t1 a1 p1 completed done
        tool t1 a1 p1 error twice -> tool-ended
        tool t1 a1 p1 running -> tool-ended
        text t1 a1 p1 other -> tool-ended
        tool t1 a1 p2 running
        open t1 a1 p3
        delta p3 0 half -> 4
        finish t1 aborted
        show -> u1:u1 a1:completed[done],error[Tool-execution-aborted],half!
        tool - a1 p2 completed late -> tool-ended
        delta p3 4 late -> turn-ended
        ",
    );
}

/// L6 turned around: what was acknowledged is there, and sending it again at any place does no harm.
#[test]
fn texts_grow_by_offsets_and_a_repeat_does_no_harm() {
    check(
        "
        turn t1 u1
        say t1 a1
        open t1 a1 p1
        open t1 a1 p2 reasoning
        delta p1 0 hello -> 5
        delta p1 0 hello -> 5
        delta p1 2 llo -> 5
        delta p1 3 lo, -> 6
        delta p2 0 hm -> 2
        show -> u1:u1 a1:hello,,(hm)
        close t1 a1 p1
        show -> u1:u1 a1:hello,,(hm)
        text t1 a1 p1 other
        show -> u1:u1 a1:other,(hm)
        finish t1 completed
        show -> u1:u1 a1:other,(hm)
        ",
    );
    for (line, want) in [
        ("delta p1 9 x", "delta-gap"),
        ("delta p1 0 world", "delta-conflict"),
        ("delta p1 3 oops", "delta-conflict"),
    ] {
        check(&format!(
            "turn t1 u1
             say t1 a1
             open t1 a1 p1
             delta p1 0 hello -> 5
             {line} -> {want}
             show -> u1:u1 a1:hello"
        ));
    }
    check(
        "turn t1 u1
         say t1 a1
         open t1 a1 p1
         delta p1 0 hello -> 5
         close t1 a1 p1
         delta p1 5 more -> part-closed",
    );
}

pub fn begin(session: &session::Client, producer: &mut Producer, lease_ms: u64) -> turn::Client {
    let mut request = session.begin_turn_request();
    producer.header(request.get().init_op());
    let mut draft = request.get().init_turn();
    draft.set_lease_ms(lease_ms);
    draft.set_if_busy(IfBusy::Beside);
    draft.init_message().set_agent("build");
    request.send().pipeline.get_turn()
}

pub fn add_message(turn: &turn::Client, producer: &mut Producer, id: &str) {
    let mut request = turn.add_message_request();
    producer.header(request.get().init_op());
    let mut body = request.get().init_message();
    body.set_id(id);
    body.set_role(Role::Assistant);
    ignore(request.send().promise);
}

pub fn open_text(turn: &turn::Client, producer: &mut Producer, id: &str) -> part_writer::Client {
    let mut request = turn.put_part_request();
    producer.header(request.get().init_op());
    let mut put = request.get().init_part();
    put.set_open(true);
    let mut part = put.init_part();
    part.set_id(id);
    part.set_text("");
    request.send().pipeline.get_writer()
}

pub fn finish(
    turn: &turn::Client,
    producer: &mut Producer,
    state: TurnState,
) -> capnp::capability::RemotePromise<turn::finish_results::Owned> {
    let mut request = turn.finish_request();
    producer.header(request.get().init_op());
    request.get().init_end().set_state(state);
    request.send()
}

pub async fn state(turn: &turn::Client) -> (TurnState, String) {
    let answer = turn.info_request().send().promise.await.unwrap();
    let info = answer.get().unwrap().get_turn().unwrap();
    (info.get_state().unwrap(), info.get_reason().unwrap().to_string().unwrap())
}

/// The whole of a turn in one round trip: nothing is waited for but the end.
#[test]
fn a_whole_turn_is_one_pipeline() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut producer = Producer::new();
        let turn = begin(&session, &mut producer, 0);
        add_message(&turn, &mut producer, "a1");
        let writer = open_text(&turn, &mut producer, "p1");
        let mut offset = 0;
        for word in ["one ", "two ", "three"] {
            let mut request = writer.delta_request();
            request.get().set_offset(offset);
            request.get().set_text(word);
            offset += word.len() as u64;
            drop(request.send());
        }
        let flushed = writer.flush_request().send().promise.await.unwrap();
        assert_eq!(flushed.get().unwrap().get_offset(), 13);
        finish(&turn, &mut producer, TurnState::Completed).promise.await.unwrap();
        assert_eq!(state(&turn).await.0, TurnState::Completed);
        let shown = Story::new(session).line("show").await;
        assert!(shown.ends_with("a1:one two three"), "{shown}");
    });
}

/// A follower sees a text as it comes, and the part as a whole when it is closed.
#[test]
fn followers_hear_texts_as_they_come() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut story = Story::new(session.clone());
        story.tell("turn t1 u1\nsay t1 a1\nopen t1 a1 p1\ndelta p1 0 hel -> 3").await;
        let ears = Rc::new(Ears::default());
        let _feed = feed(&session, &ears, |mut wish| wish.set_texts(true)).await.unwrap();
        ears.heard(|lines| lines.iter().any(|line| line == "grown a1 p1 0 hel")).await;
        story.tell("delta p1 3 lo -> 5").await;
        ears.heard(|lines| lines.iter().any(|line| line == "grown a1 p1 3 lo")).await;
        story.tell("finish t1 completed").await;
        ears.heard(|lines| lines.iter().any(|line| line.ends_with("set a1"))).await;
        let ended = ears.lines().iter().position(|line| line.contains("ended t1")).unwrap();
        let part = ears.lines().iter().rposition(|line| line.contains("part a1 p1")).unwrap();
        assert!(part > ended, "{:?}", ears.lines());
    });
}

/// L8 turned around: a turn nobody ends is aborted, its text kept, and the session is usable at once.
#[test]
fn a_turn_nothing_is_heard_of_is_aborted() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut producer = Producer::new();
        let turn = begin(&session, &mut producer, 1_000);
        add_message(&turn, &mut producer, "a1");
        let writer = open_text(&turn, &mut producer, "p1");
        let mut request = writer.delta_request();
        request.get().set_text("kept");
        request.send().await.unwrap();
        writer.flush_request().send().promise.await.unwrap();
        let ears = Rc::new(Ears::default());
        let _feed = feed(&session, &ears, |_| {}).await.unwrap();
        ears.heard(|lines| lines.iter().any(|line| line.contains("Aborted"))).await;
        let (ended, reason) = state(&turn).await;
        assert_eq!(ended, TurnState::Aborted);
        assert!(reason.contains("nothing was heard"), "{reason}");
        let error = turn.heartbeat_request().send().promise.await.err().unwrap();
        assert_eq!(code(&error), "turn-ended");
        let mut story = Story::new(session.clone());
        assert_eq!(story.line("status").await, "idle");
        assert!(story.line("show").await.ends_with("a1:kept!"));
        story.tell("turn t2 u2").await;
    });
}

/// A heartbeat keeps it, and so does every piece of text.
#[test]
fn a_turn_something_is_heard_of_goes_on() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut producer = Producer::new();
        let turn = begin(&session, &mut producer, 1_000);
        add_message(&turn, &mut producer, "a1");
        let writer = open_text(&turn, &mut producer, "p1");
        let begun = now_ms();
        let mut offset = 0;
        while now_ms() < begun + 2_500 {
            let mut request = writer.delta_request();
            request.get().set_offset(offset);
            request.get().set_text("x");
            request.send().await.unwrap();
            let answer = writer.flush_request().send().promise.await.unwrap();
            offset = answer.get().unwrap().get_offset();
            let answer = turn.heartbeat_request().send().promise.await.unwrap();
            assert!(answer.get().unwrap().get_until_ms() > now_ms());
            until_ms(now_ms() + 200).await;
        }
        assert_eq!(state(&turn).await.0, TurnState::Streaming);
    });
}

/// Whoever loses the grant it began a turn under has lost the turn as well, at once.
#[test]
fn with_its_grant_a_turn_ends() {
    let server = Server::start();
    local(async {
        let root = root(&server).await;
        let session = fresh_session(&root);
        let mut producer = Producer::new();
        let rights = only(&[Right::Read, Right::Append, Right::Turn]);
        let (sturdy_ref, grant) = save(&session, &mut producer, rights).await.unwrap();
        let theirs: session::Client = redeem(&connect(&server).await, &sturdy_ref);
        let mut delegate = Producer::new();
        let turn = begin(&theirs, &mut delegate, 0);
        assert_eq!(state(&turn).await.0, TurnState::Streaming);
        let mut story = Story::new(session.clone());
        assert_eq!(story.line("status").await, "busy");
        revoke(&session, &mut producer, &grant).await.unwrap();
        assert_eq!(story.line("status").await, "idle");
        assert_eq!(code(&turn.info_request().send().promise.await.err().unwrap()), "revoked");
    });
}

/// Limits of turns and parts, each with its code.
#[test]
fn there_are_only_so_many_turns_and_parts() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut story = Story::new(session.clone());
        let lease = |ms: u64| {
            move |op: bowline::wire::session_capnp::session_op::Builder<'_>| {
                let mut draft = op.init_begin_turn();
                draft.set_lease_ms(ms);
                draft.init_message();
            }
        };
        for (ms, want) in [(999, "lease-malformed"), (u64::MAX, "lease-malformed"), (1_000, "ok")] {
            assert_eq!(story.op(lease(ms)).await, want, "{ms}");
        }
        let session = fresh_session(&root(&server).await);
        let mut story = Story::new(session.clone());
        for n in 0..bowline::limits::TURNS_UNDER_WAY_MAX {
            story.tell(&format!("turn t{n} u{n} beside")).await;
        }
        assert_eq!(story.line("turn more more beside").await, "too-many-turns");
        assert_eq!(story.line("turn more more queued").await, "too-many-turns");
        story.tell("finish t0 completed\nturn more more beside\nuser big x").await;

        let (parts, batch) = (bowline::limits::PARTS_PUT_MAX - 1, 1_000);
        let mut put = 0;
        while put < parts {
            let count = batch.min(parts - put);
            let empty = vec!["x"; count as usize];
            story.producer.acked_through = story.producer.next - 1;
            let mut request = story.producer.batch(&session, &empty);
            let mut ops = request.get().get_ops().unwrap();
            for at in 0..count {
                let mut put = ops.reborrow().get(at).init_put_part();
                put.set_message_id("big");
                put.init_part().set_text("p");
            }
            let answer = request.send().promise.await.unwrap();
            assert!(!answer.get().unwrap().get_ack().unwrap().has_stopped());
            put += count;
        }
        assert_eq!(story.line("text - big last x").await, "too-many-parts");
    });
}

/// kill -9 at random points of a streaming turn: no acknowledged byte is lost, and the turn is repaired.
#[test]
fn a_crash_in_the_middle_of_a_sentence_loses_no_acknowledged_word() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random::told();
    let (mut session_id, mut shown_before) = (String::new(), 0);
    for round in 0..14u64 {
        let server = Server::start_in(dir.path(), &[], &[]);
        let lives_ms = 20 + random.below(250);
        let (text, acked) = local(async {
            let root = root(&server).await;
            let session = match session_id.as_str() {
                "" => fresh_session(&root),
                id => {
                    let mut request = root.session_request();
                    request.get().set_id(id);
                    request.send().pipeline.get_session()
                }
            };
            let answer = session.info_request().send().promise.await.unwrap();
            let info = answer.get().unwrap().get_session().unwrap();
            session_id = info.get_id().unwrap().to_string().unwrap();
            let mut producer = Producer::new();
            let turn = begin(&session, &mut producer, 1_000);
            add_message(&turn, &mut producer, &format!("a{round}"));
            let writer = open_text(&turn, &mut producer, "p");
            let mut request = turn.put_part_request();
            producer.header(request.get().init_op());
            let mut part = request.get().init_part().init_part();
            part.set_id("tool");
            part.init_tool().set_status(ToolStatus::Running);
            request.send().promise.await.unwrap();
            let (mut text, mut acked) = (String::new(), 0);
            let stop = now_ms() + lives_ms;
            let mut flushes = Vec::new();
            while now_ms() < stop {
                let word = format!("w{} ", random.below(100_000));
                let mut request = writer.delta_request();
                request.get().set_offset(text.len() as u64);
                request.get().set_text(&word);
                text.push_str(&word);
                request.send().await.unwrap();
                flushes.push(writer.flush_request().send().promise);
                if flushes.len() >= 4 {
                    let answer = flushes.remove(0).await.unwrap();
                    acked = answer.get().unwrap().get_offset();
                }
            }
            rustix::process::kill_process(
                rustix::process::Pid::from_raw(server.pid() as i32).unwrap(),
                rustix::process::Signal::KILL,
            )
            .unwrap();
            for flush in flushes {
                if let Ok(answer) = flush.await {
                    acked = answer.get().unwrap().get_offset();
                }
            }
            (text, acked)
        });
        server.kill_9();
        let server = Server::start_in(dir.path(), &[], &[]);
        local(async {
            let mut request = root(&server).await.session_request();
            request.get().set_id(&session_id);
            let session = request.send().pipeline.get_session();
            let ears = Rc::new(Ears::default());
            let _feed = feed(&session, &ears, |_| {}).await.unwrap();
            // However long it was down: at the start, or when the lease has run out.
            let ends = round as usize + 1;
            ears.heard(|lines| {
                lines.iter().filter(|line| line.contains("Aborted")).count() == ends
            })
            .await;
            let mut story = Story::new(session.clone());
            assert_eq!(story.line("status").await, "idle");
            let answer = {
                let mut request = session.messages_request();
                request.get().init_page().set_newest_first(true);
                request.send().promise.await.unwrap()
            };
            let messages = answer.get().unwrap().get_messages().unwrap();
            let body = messages.get(0).get_body().unwrap();
            let kept = match body.get_parts().unwrap().get(0).which().unwrap() {
                bowline::wire::message_capnp::part::Text(text) => {
                    text.unwrap().to_string().unwrap()
                }
                _ => panic!("no text"),
            };
            assert!(kept.len() as u64 >= acked, "round {round}: {} of {acked}", kept.len());
            assert!(text.starts_with(&kept), "round {round}: something else was kept");
            let told = told(body);
            assert!(
                told.contains("error[Tool-execution-aborted]") && told.ends_with('!'),
                "{told}"
            );
            assert!(messages.len() as usize >= shown_before, "nothing went");
            shown_before = messages.len() as usize;
        });
        server.kill_9();
    }
    let verified = command(dir.path()).args(["verify", "--data"]).arg(dir.path()).output().unwrap();
    let report = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(verified.status.success(), "{report}");
}

/// ST2: a tool that goes on keeps when it began and what it was given, where it says nothing new.
#[test]
fn a_tool_keeps_what_it_was_given() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut story = Story::new(session.clone());
        story.tell("turn t1 u1\nsay t1 a1").await;
        let begun = story.op(|op| {
            let mut put = op.init_put_part();
            put.set_turn_id("t1");
            let mut part = put.init_part();
            part.set_id("p1");
            part.set_started_at_ms(77);
            let mut tool = part.init_tool();
            tool.set_name("bash");
            tool.set_call_id("call");
            tool.set_status(ToolStatus::Running);
            tool.set_input(r#"{"command":"ls"}"#);
            tool.set_metadata(r#"{"seen":1}"#);
        });
        assert_eq!(begun.await, "ok");
        let failed = story.op(|op| {
            let mut put = op.init_put_part();
            put.set_turn_id("t1");
            let mut part = put.init_part();
            part.set_id("p1");
            let mut tool = part.init_tool();
            tool.set_status(ToolStatus::Error);
            tool.set_output("no such file");
        });
        assert_eq!(failed.await, "ok");
        let answer = session.messages_request().send().promise.await.unwrap();
        let message = answer.get().unwrap().get_messages().unwrap().get(1);
        let part = message.get_body().unwrap().get_parts().unwrap().get(0);
        assert_eq!(part.get_started_at_ms(), 77);
        let bowline::wire::message_capnp::part::Tool(tool) = part.which().unwrap() else {
            panic!("no tool")
        };
        let tool = tool.unwrap();
        assert_eq!(tool.get_input().unwrap(), r#"{"command":"ls"}"#);
        assert_eq!(tool.get_metadata().unwrap(), r#"{"seen":1}"#);
        assert_eq!(
            (tool.get_name().unwrap(), tool.get_call_id().unwrap()),
            ("bash".into(), "call".into())
        );
        assert_eq!(tool.get_output().unwrap(), "no such file");
    });
}

/// U2, U3: what a turn did to files is stored with it, and the session's sums follow what is shown.
#[test]
fn what_a_turn_did_to_files_is_kept_with_it() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut story = Story::new(session.clone());
        for (turn, user, lines) in [("t1", "u1", 3), ("t2", "u2", 4)] {
            story.tell(&format!("turn {turn} {user}")).await;
            let ended = story.op(|op| {
                let mut end = op.init_end_turn();
                end.set_turn_id(turn);
                end.set_state(TurnState::Completed);
                let mut summary = end.reborrow().init_summary();
                summary.set_additions(lines);
                summary.set_files(1);
                let mut diff = end.init_diffs(1).get(0);
                diff.set_file("src/x.rs");
                diff.set_patch("@@ -1 +1 @@");
                diff.set_rest(r#"{"before":"a"}"#);
            });
            assert_eq!(ended.await, "ok");
        }
        let mut request = session.diffs_request();
        request.get().set_turn_id("t1");
        let answer = request.send().promise.await.unwrap();
        let diffs = answer.get().unwrap().get_diffs().unwrap();
        assert_eq!((diffs.len(), diffs.get(0).get_file().unwrap()), (1, "src/x.rs".into()));
        assert_eq!(diffs.get(0).get_rest().unwrap(), r#"{"before":"a"}"#);
        let additions = async || {
            let answer = session.info_request().send().promise.await.unwrap();
            let info = answer.get().unwrap().get_session().unwrap();
            info.get_summary().unwrap().get_additions()
        };
        assert_eq!(additions().await, 7);
        story.tell("undo").await;
        assert_eq!(additions().await, 3);
        story.tell("redo").await;
        assert_eq!(additions().await, 7);
        let mut request = session.diffs_request();
        request.get().set_turn_id("t9");
        let error = request.send().promise.await.err().unwrap();
        assert_eq!(code(&error), "turn-not-found");
    });
}

/// What a tool gave so far was acknowledged, and stays when it is cut short.
#[test]
fn the_output_of_an_interrupted_tool_stays() {
    check(
        "
        turn t1 u1
        say t1 a1
        open t1 a1 p1 tool
        delta p1 0 half -> 4
        tool t1 a1 p2 running
        finish t1 aborted
        show -> u1:u1 a1:error[half],error[Tool-execution-aborted]!
        ",
    );
    check(
        "
        turn t1 u1
        say t1 a1
        open t1 a1 p1 tool
        delta p1 0 out -> 3
        tool t1 a1 p1 running             // its text is complete
        show -> u1:u1 a1:running[out]
        tool t1 a1 p1 completed           // and stays where nothing else is said
        show -> u1:u1 a1:completed[out]
        finish t1 completed
        ",
    );
}

/// L7: what was cut short says so in its metadata, and keeps what that said before.
#[test]
fn an_interrupted_tool_is_marked() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut story = Story::new(session.clone());
        story.tell("turn t1 u1\nsay t1 a1").await;
        let begun = story.op(|op| {
            let mut put = op.init_put_part();
            put.set_turn_id("t1");
            let mut tool = put.init_part().init_tool();
            tool.set_status(ToolStatus::Running);
            tool.set_output("so far");
            tool.set_metadata(r#"{"seen":1}"#);
        });
        assert_eq!(begun.await, "ok");
        story.tell("finish t1 aborted").await;
        let answer = session.messages_request().send().promise.await.unwrap();
        let message = answer.get().unwrap().get_messages().unwrap().get(1);
        let part = message.get_body().unwrap().get_parts().unwrap().get(0);
        assert!(part.get_ended_at_ms() > 0);
        let bowline::wire::message_capnp::part::Tool(tool) = part.which().unwrap() else {
            panic!("no tool")
        };
        let tool = tool.unwrap();
        assert_eq!(tool.get_status().unwrap(), ToolStatus::Error);
        let metadata = tool.get_metadata().unwrap().to_str().unwrap();
        let metadata: serde_json::Value = serde_json::from_str(metadata).unwrap();
        let want =
            serde_json::json!({"seen": 1, "interrupted": true, "reason": "Tool execution aborted"});
        assert_eq!(metadata, want);
    });
}

/// Nobody reaches into a turn that runs without naming it, and a fork does not copy half of one.
#[test]
fn a_turn_that_runs_is_left_alone() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut story = Story::new(session.clone());
        story.tell("turn t0 u0\nfinish t0 completed\nturn t1 u1\nsay t1 a1\nopen t1 a1 p1").await;
        story.tell("delta p1 0 hello -> 5\ntext - a1 p1 mine -> session-busy").await;
        let fork = |before: &str, story: &mut Story| {
            let mut request = story.session.fork_request();
            story.producer.header(request.get().init_op());
            request.get().init_fork().set_before(before);
            request.send().promise
        };
        let error = fork("", &mut story).await.err().unwrap();
        assert_eq!(code(&error), "session-busy");
        assert!(fork("u1", &mut story).await.is_ok(), "before it, it is no matter");
        story.tell("delta p1 5 , -> 6\nfinish t1 completed\nshow -> u0:u0 u1:u1 a1:hello,").await;
    });
}

/// What is said of a message is said in its turn while that runs; what a turn was cut short with, stays.
#[test]
fn nothing_late_is_said_of_a_message() {
    check(
        "
        turn t1 u1
        say t1 a1
        set - a1 stop -> session-busy
        set - u1 stop -> session-busy
        set t1 a1 tool-calls
        retry t1 1
        set t1 a1 tool-calls
        status -> busy                    // something was heard of it
        turn t2 u2 beside
        set t2 a1 stop -> turn-not-found  // it is another turn's
        set t9 a1 stop -> turn-not-found
        finish t2 completed
        finish t1 aborted
        show -> u1:u1 a1:! u2:u2
        set t1 a1 stop -> turn-ended
        set - a1 stop
        show -> u1:u1 a1:! u2:u2
        set - u2 stop
        ",
    );
    check(
        "
        user u1 a
        turn t1 c1
        summary s1 c1 - t1
        finish t1 aborted
        context -> u1 c1 s1
        set - s1 stop c1                  // it was cut short, so it sums nothing up
        context -> u1 c1 s1
        turn t2 c2
        summary s2 c2 - t2
        say t2 a2
        finish t2 aborted
        set - s2 stop c2                  // nor does a step before its last
        context -> u1 c1 s1 c2 s2 a2
        ",
    );
}

/// Asking where to go on is a sign of life.
#[test]
fn asking_where_to_go_on_keeps_a_turn() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut story = Story::new(session.clone());
        let mut producer = Producer::new();
        let turn = begin(&session, &mut producer, 1_000);
        add_message(&turn, &mut producer, "a1");
        open_text(&turn, &mut producer, "p1").flush_request().send().promise.await.unwrap();
        let begun = now_ms();
        while now_ms() < begun + 2_500 {
            let mut request = turn.part_writer_request();
            request.get().set_message_id("a1");
            request.get().set_part_id("p1");
            let answer = request.send().promise.await.unwrap();
            assert_eq!(answer.get().unwrap().get_offset(), 0);
            until_ms(now_ms() + 200).await;
        }
        assert_eq!(story.line("status").await, "busy");
    });
}

/// A retry ends with the next piece of text, too.
#[test]
fn a_piece_of_text_says_that_a_turn_goes_on() {
    check(
        "
        turn t1 u1
        say t1 a1
        open t1 a1 p1
        retry t1 1
        status -> retry 1
        delta p1 0 x -> 1
        status -> busy
        finish t1 completed
        ",
    );
}

/// An upload that says something else of the same bytes cannot keep a turn from its end.
#[test]
fn a_crafted_upload_does_not_pin_a_turn() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut story = Story::new(session.clone());
        story.tell("turn t1 u1\nsay t1 a1\nopen t1 a1 p1").await;
        let text = "z".repeat(200 << 10);
        let hash = {
            use sha2::Digest;
            sha2::Sha256::digest(&text)
        };
        let length = text.len().to_string();
        assert_eq!(story.line(&format!("delta p1 0 {text}")).await, length);
        let mut request = session.upload_request();
        let mut content = request.get().init_content();
        content.set_hash(&hash);
        content.set_bytes(text.len() as u64 + 1);
        let answer = request.send().promise.await.unwrap();
        let upload = answer.get().unwrap().get_upload().unwrap();
        let mut request = upload.write_request();
        request.get().set_data(b"z");
        request.send().await.unwrap();
        upload.finish_request().send().promise.await.unwrap();
        story.tell("finish t1 completed\nstatus -> idle").await;
    });
}

/// L1: agent and model stand on the disk before anything runs, also of a turn that waits.
#[test]
fn a_turn_stores_agent_and_model_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), &[], &[]);
    let id = local(async {
        let session = fresh_session(&root(&server).await);
        let mut story = Story::new(session.clone());
        for id in ["u1", "u2"] {
            let begun = story.op(|op| {
                let mut draft = op.init_begin_turn();
                draft.set_if_busy(IfBusy::Queue);
                let mut body = draft.init_message();
                body.set_id(id);
                body.set_agent("plan");
                let mut model = body.init_model();
                model.set_provider_id("anthropic");
                model.set_model_id("claude-x");
                model.set_variant("high");
            });
            assert_eq!(begun.await, "ok");
        }
        let answer = session.info_request().send().promise.await.unwrap();
        answer.get().unwrap().get_session().unwrap().get_id().unwrap().to_string().unwrap()
    });
    server.kill_9();
    let server = Server::start_in(dir.path(), &[], &[]);
    local(async {
        let mut request = root(&server).await.session_request();
        request.get().set_id(&id);
        let session = request.send().pipeline.get_session();
        let answer = session.messages_request().send().promise.await.unwrap();
        let messages = answer.get().unwrap().get_messages().unwrap();
        assert_eq!(messages.len(), 2);
        for message in messages {
            let body = message.get_body().unwrap();
            assert_eq!(
                (body.get_role().unwrap(), body.get_agent().unwrap()),
                (Role::User, "plan".into())
            );
            let model = body.get_model().unwrap();
            assert_eq!(model.get_provider_id().unwrap(), "anthropic");
            assert_eq!(model.get_model_id().unwrap(), "claude-x");
            assert_eq!(model.get_variant().unwrap(), "high");
        }
    });
}

/// What is longer than a limit is refused by name, and changes nothing; and what happens is told.
#[test]
fn lists_and_pieces_have_limits_and_changes_are_told() {
    use bowline::limits::{DIFFS_MAX, TODOS_MAX, WRITER_BATCH_BYTES};
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut story = Story::new(session.clone());
        let ears = Rc::new(Ears::default());
        let _feed = feed(&session, &ears, |_| {}).await.unwrap();
        story.tell("todo one,two\nturn t1 u1\nturn t2 u2 queued\nsay t1 a1\nopen t1 a1 p1").await;
        story.tell("retry t1 2").await;
        let todos = story.op(|op| {
            let mut list = op.init_set_todos(TODOS_MAX + 1);
            list.reborrow().get(0).set_content("x");
        });
        assert_eq!(todos.await, "op-malformed");
        let diffs = story.op(|op| {
            let mut end = op.init_end_turn();
            end.set_turn_id("t1");
            end.set_state(TurnState::Completed);
            end.init_diffs(DIFFS_MAX + 1);
        });
        assert_eq!(diffs.await, "op-malformed");
        let long = "x".repeat(WRITER_BATCH_BYTES + 1);
        assert_eq!(story.line(&format!("delta p1 0 {long}")).await, "op-too-large");
        story.tell("todos -> one,two\nresume t1 a1 p1 -> 0\nfinish t1 completed\nsay t2 a2").await;
        for told in ["todos 2", "retry 2", "ended t1 Completed", "started t2"] {
            ears.heard(|lines| lines.iter().any(|line| line.ends_with(told))).await;
        }
    });
}
