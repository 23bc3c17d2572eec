//! Going back in a conversation, and forward again: nothing is ever lost by it.

use crate::conversation::{Story, check};
use crate::support::*;

const THREE_TURNS: &str = "
    turn t1 u1
    say t1 a1
    text t1 a1 p1 one
    finish t1 completed
    turn t2 u2
    say t2 a2
    text t2 a2 p1 two
    tool t2 a2 p2 running
    tool t2 a2 p2 completed out
    text t2 a2 p3 rest
    finish t2 completed
    turn t3 u3
    say t3 a3
    text t3 a3 p1 three
    finish t3 completed
    show -> u1:u1 a1:one u2:u2 a2:two,completed[out],rest u3:u3 a3:three
";

/// V8, V9, D2 turned around: undo and redo, step by step.
#[test]
fn undo_and_redo_go_step_by_step_and_take_todos_along() {
    check(
        "
        todo first
        turn t1 u1
        say t1 a1
        todo first,second
        finish t1 completed
        turn t2 u2
        todo third
        finish t2 completed
        todos -> third
        undo
        show -> u1:u1 a1:
        todos -> first,second
        undo
        show ->
        todos -> first
        undo
        show ->
        show-all -> u1:u1 a1: u2:u2
        redo
        show -> u1:u1 a1:
        todos -> first,second
        redo
        show -> u1:u1 a1: u2:u2
        todos -> third
        redo
        todo ,
        todos ->
        undo
        unrevert
        todos ->
        show -> u1:u1 a1: u2:u2
        unrevert
        ",
    );
}

/// V1, V2, V3: where a boundary falls.
#[test]
fn a_boundary_is_in_the_middle_of_a_message_only_if_something_of_it_is_left() {
    for (revert, shown) in [
        // An assistant's message goes with its turn.
        ("revert a2", "u1:u1 a1:one"),
        ("revert u2", "u1:u1 a1:one"),
        // Its first part is all of it.
        ("revert a2 p1", "u1:u1 a1:one"),
        // Text or a tool before it stays.
        ("revert a2 p2", "u1:u1 a1:one u2:u2 a2:two"),
        ("revert a2 p3", "u1:u1 a1:one u2:u2 a2:two,completed[out]"),
        ("revert u1", ""),
        ("revert a3", "u1:u1 a1:one u2:u2 a2:two,completed[out],rest"),
    ] {
        check(&format!(
            "{THREE_TURNS}\n{revert}\nshow -> {shown}\nunrevert\nshow -> u1:u1 a1:one u2:u2 a2:two,completed[out],rest u3:u3 a3:three"
        ));
    }
}

/// V4 turned around: what is not there is said, and nothing changes.
#[test]
fn what_is_not_there_cannot_be_gone_back_to() {
    check(&format!(
        "{THREE_TURNS}
         revert u9 -> message-not-found
         revert a2 p9 -> part-not-found
         goto nowhere -> checkpoint-not-found
         checkpoint @mine -> op-malformed
         show -> u1:u1 a1:one u2:u2 a2:two,completed[out],rest u3:u3 a3:three"
    ));
}

/// V5, V14: a second revert is counted from the whole, so boundaries move both ways.
#[test]
fn boundaries_move_both_ways() {
    check(&format!(
        "{THREE_TURNS}
         revert u1
         revert u2
         show -> u1:u1 a1:one
         revert u3
         show -> u1:u1 a1:one u2:u2 a2:two,completed[out],rest
         unrevert
         show -> u1:u1 a1:one u2:u2 a2:two,completed[out],rest u3:u3 a3:three"
    ));
}

/// V11, V12, V13: when a turn begins, what was reverted is left behind in one step, and can still be reached.
#[test]
fn what_is_left_behind_can_be_reached_by_a_checkpoint() {
    check(&format!(
        "{THREE_TURNS}
         checkpoint whole
         revert a2 p2
         turn t4 u4
         say t4 a4
         text t4 a4 p1 four
         finish t4 completed
         show -> u1:u1 a1:one u2:u2 a2:two u4:u4 a4:four
         unrevert                               // there is nothing to bring back any more
         show -> u1:u1 a1:one u2:u2 a2:two u4:u4 a4:four
         revert u3 -> message-not-found         // it was left behind
         checkpoint other
         goto whole
         show -> u1:u1 a1:one u2:u2 a2:two,completed[out],rest u3:u3 a3:three
         turn t5 u5
         finish t5 completed
         show -> u1:u1 a1:one u2:u2 a2:two,completed[out],rest u3:u3 a3:three u5:u5
         goto other
         show -> u1:u1 a1:one u2:u2 a2:two u4:u4 a4:four
         undo
         show -> u1:u1 a1:one u2:u2 a2:two"
    ));
}

/// What is said while something is reverted is shown, whoever says it.
#[test]
fn a_message_put_on_top_of_a_revert_is_not_hidden_by_it() {
    check(
        "
        turn t1 u1
        finish t1 completed
        turn t2 u2
        finish t2 completed
        revert u2
        user u3 new
        show -> u1:u1 u3:new
        unrevert
        show -> u1:u1 u2:u2 u3:new
        ",
    );
}

/// C3, C5: what a model is shown, and that nothing said meanwhile is lost.
#[test]
fn a_summed_up_conversation_keeps_its_tail_and_everything_since() {
    check(
        "
        user u1 a
        user u2 b
        user u3 c
        context -> u1 u2 u3
        compact c1 u3
        user u4 meanwhile
        context -> u1 u2 u3 c1 u4
        summary s1 c1 -                       // not finished: does not count
        context -> u1 u2 u3 c1 u4 s1
        summary s2 c1 stop
        user u5 later
        context -> c1 s2 u3 u4 s1 u5
        compact c2 -
        summary s3 c2 stop
        context -> c2 s3
        undo
        context -> c1 s2 u3 u4 s1 u5
        ",
    );
}

/// Totals of a session stay right when parts come, change and go.
#[test]
fn totals_follow_the_parts() {
    check(
        "
        turn t1 u1
        say t1 a1
        finish t1 completed
        cost a1 s1 0.1 10
        cost a1 s2 0.2 20
        usage -> 0.3 30
        cost a1 s2 0.05 5
        usage -> 0.15 15
        rm-part a1 s1
        usage -> 0.05 5
        rm-part a1 s1 -> part-not-found
        cost a1 s1 0.01 1                     // it comes back where it stood
        usage -> 0.06 6
        rm a1
        usage -> 0 0
        ",
    );
}

/// The whole timeline is there again after a crash.
#[test]
fn going_back_survives_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), &[], &[]);
    let id = local(async {
        let session = fresh_session(&root(&server).await);
        let mut story = Story::new(session.clone());
        story.tell(THREE_TURNS).await;
        story.tell("todo a,b\nrevert a2 p3").await;
        let answer = session.info_request().send().promise.await.unwrap();
        answer.get().unwrap().get_session().unwrap().get_id().unwrap().to_string().unwrap()
    });
    server.kill_9();
    let server = Server::start_in(dir.path(), &[], &[]);
    local(async {
        let mut request = root(&server).await.session_request();
        request.get().set_id(&id);
        let mut story = Story::new(request.send().pipeline.get_session());
        story
            .tell(
                "show -> u1:u1 a1:one u2:u2 a2:two,completed[out]
                 todos ->
                 unrevert
                 todos -> a,b
                 show -> u1:u1 a1:one u2:u2 a2:two,completed[out],rest u3:u3 a3:three",
            )
            .await;
    });
}

/// C1, C2, C4, C8: what the rules say about a context, and what leaving outputs out does.
#[test]
fn the_plan_follows_the_rules() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut story = Story::new(session.clone());
        for n in 0..4 {
            story.tell(&format!("turn t{n} u{n}\nsay t{n} a{n}\ntool t{n} a{n} p1 running")).await;
            let output = "x".repeat(120_000);
            story
                .tell(&format!("tool t{n} a{n} p1 completed {output}\nfinish t{n} completed"))
                .await;
        }
        let plan = async |context: u64| {
            let mut request = session.plan_request();
            let mut limits = request.get().init_limits();
            limits.set_context(context);
            limits.set_output(1_000);
            limits.set_auto(true);
            let answer = request.send().promise.await.unwrap();
            let plan = answer.get().unwrap().get_plan().unwrap();
            let prunable: Vec<_> = plan
                .get_prunable()
                .unwrap()
                .iter()
                .map(|part| part.get_message_id().unwrap().to_string().unwrap())
                .collect();
            (plan.get_overflow(), plan.get_usable(), plan.get_used(), prunable)
        };
        let (overflow, usable, used, prunable) = plan(200_000).await;
        assert_eq!((overflow, usable), (false, 199_000));
        assert!((120_000..121_000).contains(&used), "{used}");
        // The last two turns and 40,000 tokens of outputs are kept; what is older can go.
        assert_eq!(prunable, ["a0"]);
        assert!(plan(100_000).await.0, "more than is usable");
        let pruned = story.op(|op| {
            let mut part = op.init_prune_outputs(1).get(0);
            part.set_message_id("a0");
            part.set_part_id("p1");
        });
        assert_eq!(pruned.await, "ok");
        let (_, _, used, prunable) = plan(200_000).await;
        assert!(used < 91_000 && prunable.is_empty(), "{used} {prunable:?}");
        // The model is not shown it; whoever reads the conversation is.
        let answer = session.context_request().send().promise.await.unwrap();
        let messages = answer.get().unwrap().get_messages().unwrap();
        let outputs: Vec<_> = messages.iter().filter_map(output).collect();
        assert_eq!(outputs[..2], [(true, 0), (false, 120_000)]);
        let answer = session.messages_request().send().promise.await.unwrap();
        let message = answer.get().unwrap().get_messages().unwrap().get(1);
        let part = message.get_body().unwrap().get_parts().unwrap().get(0);
        let bowline::wire::message_capnp::part::Tool(tool) = part.which().unwrap() else {
            panic!("no tool")
        };
        let tool = tool.unwrap();
        assert!(tool.get_compacted_at_ms() > 0);
        assert_eq!(tool.get_output().unwrap().len(), 120_000, "it stays stored");
    });
}

/// The first tool of a message: whether its output was left out, and how long that is, here and beside.
fn output(message: bowline::wire::message_capnp::message::Reader<'_>) -> Option<(bool, u64)> {
    let parts = message.get_body().unwrap().get_parts().unwrap();
    parts.iter().find_map(|part| {
        let bowline::wire::message_capnp::part::Tool(tool) = part.which().unwrap() else {
            return None;
        };
        let tool = tool.unwrap();
        let beside = part.get_content().unwrap().get_bytes();
        let bytes = tool.get_output().unwrap().len() as u64 + beside;
        Some((tool.get_compacted_at_ms() > 0, bytes))
    })
}

/// C8: an output that is content is left out like any other, also of a message that came with it.
#[test]
fn long_outputs_are_left_out_of_the_context_too() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut story = Story::new(session.clone());
        let output_text = "x".repeat(200_000);
        story.tell("turn t1 u1\nsay t1 a1\nopen t1 a1 p1 tool").await;
        story.tell(&format!("delta p1 0 {output_text} -> 200000")).await;
        story.tell("tool t1 a1 p1 completed\nfinish t1 completed").await;
        let put = story.op(|op| {
            let mut body = op.init_put_message();
            body.set_id("a2");
            body.set_role(bowline::wire::message_capnp::Role::Assistant);
            let mut tool = body.init_parts(1).get(0).init_tool();
            tool.set_status(bowline::wire::message_capnp::ToolStatus::Completed);
            tool.set_output("came with it");
            tool.set_compacted_at_ms(1);
        });
        assert_eq!(put.await, "ok");
        let shown = async || {
            let answer = session.context_request().send().promise.await.unwrap();
            let messages = answer.get().unwrap().get_messages().unwrap();
            messages.iter().filter_map(output).collect::<Vec<_>>()
        };
        assert_eq!(shown().await, [(false, 200_000), (true, 0)]);
        let pruned = story.op(|op| {
            let mut part = op.init_prune_outputs(1).get(0);
            part.set_message_id("a1");
            part.set_part_id("p1");
        });
        assert_eq!(pruned.await, "ok");
        assert_eq!(shown().await, [(true, 0), (true, 0)]);
        let answer = session.messages_request().send().promise.await.unwrap();
        let messages = answer.get().unwrap().get_messages().unwrap();
        let kept: Vec<_> = messages.iter().filter_map(output).collect();
        assert_eq!(kept, [(true, 200_000), (true, 12)], "they stay stored");
    });
}

/// C2: what steps told before a summary, and what the summary itself took, says nothing about what is shown
/// since.
#[test]
fn a_conversation_that_was_just_summed_up_does_not_overflow() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut story = Story::new(session.clone());
        let plan = async || {
            let mut request = session.plan_request();
            let mut limits = request.get().init_limits();
            limits.set_context(100_000);
            limits.set_output(1_000);
            limits.set_auto(true);
            let answer = request.send().promise.await.unwrap();
            let plan = answer.get().unwrap().get_plan().unwrap();
            (plan.get_overflow(), plan.get_used())
        };
        story.tell("turn t1 u1\nsay t1 a1\nfinish t1 completed\ncost a1 s1 0.1 99000").await;
        assert_eq!(plan().await, (true, 99_000));
        // The kept tail has the step that overflowed.
        story.tell("compact c1 u1\nsummary m1 c1 stop\ncontext -> c1 m1 u1 a1").await;
        assert!(!plan().await.0, "{:?}", plan().await);
        // And so has the summary.
        story.tell("cost m1 s1 0.1 99500").await;
        assert!(!plan().await.0, "{:?}", plan().await);
        story.tell("turn t2 u2\nsay t2 a2\nfinish t2 completed\ncost a2 s1 0.1 1200").await;
        assert_eq!(plan().await, (false, 1_200));
        story.tell("turn t3 u3\nsay t3 a3\nfinish t3 completed\ncost a3 s1 0.1 99001").await;
        assert_eq!(plan().await, (true, 99_001));
    });
}

/// What was left behind goes by the history policy, and nothing else does.
#[test]
fn what_was_left_behind_goes_when_the_history_does() {
    let flags = ["--limit", "history_sweep_ms=200", "--limit", "history_age_ms_max=300"];
    let mut server = Server::start_with(&flags);
    let data = server.data.clone();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut story = Story::new(session.clone());
        let ears = std::rc::Rc::new(crate::feed::Ears::default());
        story.tell(THREE_TURNS).await;
        story.tell("checkpoint kept\nrevert u3\nturn t4 u4\nfinish t4 completed").await;
        story.tell("revert a2 p2\nturn t5 u5\nfinish t5 completed").await;
        let _feed = crate::feed::feed(&session, &ears, |_| {}).await.unwrap();
        ears.heard(|lines| lines.iter().filter(|line| line.contains("dropped")).count() == 2).await;
        story.tell("show -> u1:u1 a1:one u2:u2 a2:two u5:u5").await;
        // u4 was reachable only by an automatic one; u3 still is by the one with a name.
        story
            .tell("goto kept\nshow -> u1:u1 a1:one u2:u2 a2:two,completed[out],rest u3:u3 a3:three")
            .await;
        let answer = session.checkpoints_request().send().promise.await.unwrap();
        let left = answer.get().unwrap().get_checkpoints().unwrap();
        let names: Vec<_> =
            left.iter().map(|it| it.get_name().unwrap().to_string().unwrap()).collect();
        assert!(names.contains(&"kept".to_owned()), "{names:?}");
        assert_eq!(story.line("user u4 again").await, "ok", "its id can be used again");
    });
    server.signal(rustix::process::Signal::TERM);
    server.ended();
    let verified = command(&data).args(["verify", "--data"]).arg(&data).output().unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

/// Names are for people, so there are only so many; and a conversation goes back and on only so often.
#[test]
fn there_are_only_so_many_checkpoints() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut story = Story::new(session.clone());
        story.tell("turn t1 u1\nfinish t1 completed").await;
        let texts = vec!["x"; 1_000];
        assert_eq!(texts.len() as u64, bowline::limits::CHECKPOINTS_MAX);
        let mut request = story.producer.batch(&session, &texts);
        let mut ops = request.get().get_ops().unwrap();
        for at in 0..ops.len() {
            ops.reborrow().get(at).set_checkpoint("here");
        }
        let answer = request.send().promise.await.unwrap();
        assert!(!answer.get().unwrap().get_ack().unwrap().has_stopped());
        story.tell("checkpoint more -> too-many-checkpoints\ngoto here\nshow -> u1:u1").await;
    });
}

/// What was said on top of a revert can be reached, also if one goes elsewhere from there.
#[test]
fn going_elsewhere_while_something_is_reverted_loses_nothing() {
    check(
        "
        turn t1 u1
        finish t1 completed
        checkpoint one
        turn t2 u2
        finish t2 completed
        revert u2
        user x on-top
        show -> u1:u1 x:on-top
        goto one
        show -> u1:u1
        goto @11
        show -> u1:u1 u2:u2 x:on-top
        ",
    );
}

/// History is let go of, and what is left still gives the same rows: parts, totals, and all.
#[test]
fn a_compacted_session_with_parts_is_as_it_was() {
    let flags = ["--limit", "history_sweep_ms=100", "--limit", "history_age_ms_max=1"];
    let mut server = Server::start_with(&flags);
    let data = server.data.clone();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut story = Story::new(session.clone());
        story
            .tell(
                "turn t1 u1\nsay t1 a1\ntext t1 a1 p1 one\ntext t1 a1 p1 two\ntext t1 a1 p2 three
                 tool t1 a1 p3 running\ntool t1 a1 p3 completed out\nopen t1 a1 p4
                 delta p4 0 grown -> 5\nfinish t1 completed
                 cost a1 s1 0.5 5\nrm-part a1 s1\nrm-part a1 p2\ntext - a1 p2 again
                 user gone x\ntext - gone p9 y\nrm gone
                 retry t1 1 -> turn-ended",
            )
            .await;
        let ears = std::rc::Rc::new(crate::feed::Ears::default());
        // Somebody who begins anew is told that some of it is gone.
        loop {
            let _feed = crate::feed::feed(&session, &ears, |mut w| w.set_after(1)).await.unwrap();
            ears.heard(|lines| lines.iter().any(|line| line.starts_with("caught-up"))).await;
            if ears.lines().iter().any(|line| line.starts_with("gap")) {
                break;
            }
            until_ms(now_ms() + 50).await;
        }
        story.tell("show -> u1:u1 a1:two,again,completed[out],grown\nusage -> 0 0").await;
    });
    server.signal(rustix::process::Signal::TERM);
    server.ended();
    for _ in 0..2 {
        let verified = command(&data).args(["verify", "--data"]).arg(&data).output().unwrap();
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
        let rebuilt = command(&data).args(["rebuild", "--data"]).arg(&data).output().unwrap();
        assert!(rebuilt.status.success());
    }
}
