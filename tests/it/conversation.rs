//! Sessions as agents use them, told as stories: one line, one call on the real server.
//!
//! A line is a command and, behind an arrow, what comes of it: `ok`, a code, or what was asked for.

use crate::support::*;
use bowline::wire::bowline_capnp::outcome;
use bowline::wire::message_capnp::{
    IfBusy, Role, ToolStatus, TurnState, head, message_body, part, part_put,
};
use bowline::wire::session_capnp::{part_writer, session, session_op, status};
use std::collections::HashMap;

/// A session, and somebody who works in it.
pub struct Story {
    pub session: session::Client,
    pub producer: Producer,
    writers: HashMap<String, part_writer::Client>,
}

impl Story {
    pub fn new(session: session::Client) -> Self {
        Self { session, producer: Producer::new(), writers: HashMap::new() }
    }

    /// One op; `ok`, or the code under which it was rejected.
    pub async fn op(&mut self, fill: impl FnOnce(session_op::Builder<'_>)) -> String {
        let mut request = self.producer.batch(&self.session, &["x"]);
        fill(request.get().get_ops().unwrap().get(0));
        let answer = match request.send().promise.await {
            Ok(answer) => answer,
            Err(error) => return code(&error).to_owned(),
        };
        let ack = answer.get().unwrap().get_ack().unwrap();
        assert!(!ack.has_stopped());
        match ack.get_outcomes().unwrap().get(0).which().unwrap() {
            outcome::Rejected(refusal) => refusal.unwrap().get_code().unwrap().to_string().unwrap(),
            _ => "ok".into(),
        }
    }

    async fn open(&mut self, turn: &str, message: &str, id: &str, kind: &str) -> String {
        let mut request = self.session.turn_request();
        request.get().set_id(turn);
        let turn = request.send().pipeline.get_turn();
        let mut request = turn.put_part_request();
        self.producer.header(request.get().init_op());
        let mut put = request.get().init_part();
        put.set_message_id(message);
        put.set_open(true);
        let mut part = put.init_part();
        part.set_id(id);
        match kind {
            "reasoning" => part.set_reasoning(""),
            "tool" => part.init_tool().set_status(ToolStatus::Running),
            _ => part.set_text(""),
        }
        match request.send().promise.await {
            Err(error) => code(&error).to_owned(),
            Ok(answer) => {
                let writer = answer.get().unwrap().get_writer().unwrap();
                self.writers.insert(id.to_owned(), writer);
                "ok".into()
            }
        }
    }

    /// Goes on with an open part; how long its text is.
    async fn resume(&mut self, turn: &str, message: &str, id: &str) -> String {
        let mut request = self.session.turn_request();
        request.get().set_id(turn);
        let mut request = request.send().pipeline.get_turn().part_writer_request();
        request.get().set_message_id(message);
        request.get().set_part_id(id);
        match request.send().promise.await {
            Err(error) => code(&error).to_owned(),
            Ok(answer) => {
                let answer = answer.get().unwrap();
                self.writers.insert(id.to_owned(), answer.get_writer().unwrap());
                answer.get_offset().to_string()
            }
        }
    }

    /// A piece of text; how long the text is on disk then.
    async fn delta(&mut self, id: &str, offset: u64, text: &str) -> String {
        let writer = &self.writers[id];
        let mut request = writer.delta_request();
        request.get().set_offset(offset);
        request.get().set_text(text);
        if let Err(error) = request.send().await {
            return code(&error).to_owned();
        }
        match writer.flush_request().send().promise.await {
            Ok(answer) => answer.get().unwrap().get_offset().to_string(),
            Err(error) => code(&error).to_owned(),
        }
    }

    /// What the conversation shows: `u1:hello a1:text,tool=completed(out)`.
    async fn show(&self, reverted: bool) -> String {
        let mut shown = Vec::new();
        let mut after = 0;
        loop {
            let mut request = self.session.messages_request();
            request.get().set_reverted(reverted);
            let mut page = request.get().init_page();
            page.set_after(after);
            page.set_limit(3);
            let answer = request.send().promise.await.unwrap();
            let answer = answer.get().unwrap();
            for message in answer.get_messages().unwrap() {
                shown.push(told(message.get_body().unwrap()));
            }
            after = answer.get_end().unwrap().get_next();
            if !answer.get_end().unwrap().get_more() {
                return shown.join(" ");
            }
        }
    }

    async fn context(&self) -> String {
        let answer = self.session.context_request().send().promise.await.unwrap();
        let messages = answer.get().unwrap().get_messages().unwrap();
        let ids = messages.iter().map(|message| text(message.get_id()));
        ids.collect::<Vec<_>>().join(" ")
    }

    async fn status(&self) -> String {
        let answer = self.session.info_request().send().promise.await.unwrap();
        let status = answer.get().unwrap().get_session().unwrap().get_status().unwrap();
        let what = match status.which().unwrap() {
            status::Idle(()) => "idle".into(),
            status::Busy(()) => "busy".into(),
            status::Retry(retry) => format!("retry {}", retry.unwrap().get_attempt()),
        };
        match status.get_queued() {
            0 => what,
            queued => format!("{what}, {queued} queued"),
        }
    }

    async fn todos(&self) -> String {
        let answer = self.session.todos_request().send().promise.await.unwrap();
        let todos = answer.get().unwrap().get_todos().unwrap();
        let list = todos.iter().map(|todo| text(todo.get_content()));
        list.collect::<Vec<_>>().join(",")
    }

    /// What the whole session cost: dollars and input tokens.
    async fn usage(&self) -> String {
        let answer = self.session.info_request().send().promise.await.unwrap();
        let usage = answer.get().unwrap().get_session().unwrap().get_usage().unwrap();
        format!("{} {}", usage.get_cost(), usage.get_input())
    }

    /// Carries one line out.
    pub async fn line(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        match *words {
            ["user", id, said] => self.op(|op| user(op.init_put_message(), id, said)).await,
            ["turn", turn, id] => self.begin(turn, id, IfBusy::Refuse).await,
            ["turn", turn, id, "queued"] => self.begin(turn, id, IfBusy::Queue).await,
            ["turn", turn, id, "beside"] => self.begin(turn, id, IfBusy::Beside).await,
            ["say", turn, id] => {
                self.op(|op| {
                    let mut body = op.init_put_message();
                    body.set_id(id);
                    body.set_role(Role::Assistant);
                    body.set_turn_id(turn);
                })
                .await
            }
            ["open", turn, message, id] => self.open(turn, message, id, "text").await,
            ["open", turn, message, id, kind] => self.open(turn, message, id, kind).await,
            ["resume", turn, message, id] => self.resume(turn, message, id).await,
            ["delta", id, offset, said] => self.delta(id, offset.parse().unwrap(), said).await,
            ["text", turn, message, id, said] => {
                self.op(|op| put(op.init_put_part(), turn, message, id).set_text(said)).await
            }
            ["close", turn, message, id] => {
                self.op(|op| put(op.init_put_part(), turn, message, id).set_text("")).await
            }
            ["tool", turn, message, id, status] => self.tool(turn, message, id, status, "").await,
            ["tool", turn, message, id, status, out] => {
                self.tool(turn, message, id, status, out).await
            }
            ["cost", message, id, dollars, tokens] => {
                self.op(|op| {
                    let part = put(op.init_put_part(), "-", message, id);
                    let mut usage = part.init_step_finish().init_usage();
                    usage.set_cost(dollars.parse().unwrap());
                    usage.set_input(tokens.parse().unwrap());
                })
                .await
            }
            ["compact", id, tail] => {
                self.op(|op| {
                    let mut body = op.init_put_message();
                    body.set_id(id);
                    let compaction = body.init_parts(1).get(0).init_compaction();
                    { compaction }.set_tail_start_id(if tail == "-" { "" } else { tail });
                })
                .await
            }
            ["summary", id, parent, finish] => {
                self.op(|op| {
                    let mut body = op.init_put_message();
                    body.set_id(id);
                    body.set_role(Role::Assistant);
                    body.set_summary(true);
                    body.set_parent_id(parent);
                    body.set_finish(if finish == "-" { "" } else { finish });
                })
                .await
            }
            ["summary", id, parent, finish, turn] => {
                self.op(|op| {
                    let mut body = op.init_put_message();
                    body.set_id(id);
                    body.set_role(Role::Assistant);
                    body.set_summary(true);
                    body.set_parent_id(parent);
                    body.set_finish(if finish == "-" { "" } else { finish });
                    body.set_turn_id(turn);
                })
                .await
            }
            ["set", turn, id, finish] => self.set(turn, id, finish, "").await,
            ["set", turn, id, finish, parent] => self.set(turn, id, finish, parent).await,
            ["rm-part", message, id] => {
                self.op(|op| {
                    let mut part = op.init_remove_part();
                    part.set_message_id(message);
                    part.set_part_id(id);
                })
                .await
            }
            ["rm", id] => self.op(|mut op| op.set_remove_message(id)).await,
            ["finish", turn, state] => {
                self.op(|op| {
                    let mut end = op.init_end_turn();
                    end.set_turn_id(turn);
                    end.set_state(state_of(state));
                })
                .await
            }
            ["retry", turn, attempt] => {
                self.op(|op| {
                    let mut retry = op.init_retry_turn();
                    retry.set_turn_id(turn);
                    retry.set_attempt(attempt.parse().unwrap());
                })
                .await
            }
            ["undo"] => self.head(|mut head| head.set_undo(())).await,
            ["redo"] => self.head(|mut head| head.set_redo(())).await,
            ["unrevert"] => self.head(|mut head| head.set_end(())).await,
            ["revert", message] => {
                self.head(|head| head.init_before().set_message_id(message)).await
            }
            ["revert", message, part] => {
                self.head(|head| {
                    let mut before = head.init_before();
                    before.set_message_id(message);
                    before.set_part_id(part);
                })
                .await
            }
            ["goto", name] => self.head(|mut head| head.set_checkpoint(name)).await,
            ["checkpoint", name] => self.op(|mut op| op.set_checkpoint(name)).await,
            ["todo", list] => {
                self.op(|op| {
                    let list: Vec<_> = list.split(',').filter(|it| !it.is_empty()).collect();
                    let mut todos = op.init_set_todos(list.len() as u32);
                    for (at, todo) in (0..).zip(list) {
                        todos.reborrow().get(at).set_content(todo);
                    }
                })
                .await
            }
            ["show"] => self.show(false).await,
            ["show-all"] => self.show(true).await,
            ["context"] => self.context().await,
            ["status"] => self.status().await,
            ["todos"] => self.todos().await,
            ["usage"] => self.usage().await,
            _ => panic!("what is {line:?}?"),
        }
    }

    async fn begin(&mut self, turn: &str, id: &str, if_busy: IfBusy) -> String {
        self.op(|op| {
            let mut draft = op.init_begin_turn();
            draft.set_id(turn);
            draft.set_if_busy(if_busy);
            user(draft.init_message(), id, id);
        })
        .await
    }

    async fn tool(
        &mut self,
        turn: &str,
        message: &str,
        id: &str,
        status: &str,
        out: &str,
    ) -> String {
        self.op(|op| {
            let mut tool = put(op.init_put_part(), turn, message, id).init_tool();
            tool.set_name("bash");
            tool.set_output(out);
            tool.set_status(match status {
                "pending" => ToolStatus::Pending,
                "running" => ToolStatus::Running,
                "completed" => ToolStatus::Completed,
                _ => ToolStatus::Error,
            });
        })
        .await
    }

    /// Says why a message stopped; with a parent, that it sums up what came before that, too.
    async fn set(&mut self, turn: &str, id: &str, finish: &str, parent: &str) -> String {
        self.op(|op| {
            let mut body = op.init_set_message();
            body.set_id(id);
            body.set_role(Role::Assistant);
            body.set_turn_id(if turn == "-" { "" } else { turn });
            body.set_finish(finish);
            body.set_parent_id(parent);
            body.set_summary(!parent.is_empty());
        })
        .await
    }

    async fn head(&mut self, fill: impl FnOnce(head::Builder<'_>)) -> String {
        self.op(|op| fill(op.init_set_head())).await
    }

    /// Carries a story out, and compares it line by line.
    pub async fn tell(&mut self, script: &str) {
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let line = line.split("//").next().unwrap().trim();
            let (told, want) = line.split_once("->").unwrap_or((line, "ok"));
            let got = self.line(told.trim()).await;
            assert_eq!(got, want.trim(), "{line}");
        }
    }
}

fn user(mut body: message_body::Builder<'_>, id: &str, said: &str) {
    body.set_id(id);
    body.set_agent("build");
    body.init_parts(1).get(0).set_text(said);
}

/// A part in a turn (`-` for none).
fn put<'a>(
    mut put: part_put::Builder<'a>,
    turn: &str,
    message: &str,
    id: &str,
) -> part::Builder<'a> {
    if turn != "-" {
        put.set_turn_id(turn);
    }
    put.set_message_id(message);
    let mut part = put.init_part();
    part.set_id(id);
    part
}

fn state_of(state: &str) -> TurnState {
    match state {
        "completed" => TurnState::Completed,
        "failed" => TurnState::Failed,
        _ => TurnState::Aborted,
    }
}

fn text(text: capnp::Result<capnp::text::Reader<'_>>) -> String {
    text.unwrap().to_string().unwrap()
}

/// A message as a story tells it; `!` behind one that ended with an error.
pub fn told(body: message_body::Reader<'_>) -> String {
    let parts = body.get_parts().unwrap().iter().map(|part| match part.which().unwrap() {
        part::Text(said) => text(said),
        part::Reasoning(said) => format!("({})", text(said)),
        part::Tool(tool) => {
            let tool = tool.unwrap();
            let status = format!("{:?}", tool.get_status().unwrap()).to_lowercase();
            let output = text(tool.get_output());
            format!("{status}[{}]", output.replace(' ', "-"))
        }
        part::StepFinish(_) => "step".into(),
        part::Compaction(_) => "compaction".into(),
        _ => "other".into(),
    });
    let parts = parts.collect::<Vec<_>>().join(",");
    let error = body.get_error().unwrap().get_name().unwrap().is_empty();
    format!("{}:{parts}{}", text(body.get_id()), if error { "" } else { "!" })
}

/// A story in a session of its own on a server of its own; afterwards the data must be as they must be.
pub fn check(script: &str) {
    let mut server = Server::start();
    local(async {
        let mut story = Story::new(fresh_session(&root(&server).await));
        story.tell(script).await;
    });
    server.signal(rustix::process::Signal::TERM);
    server.ended();
    let data = server.data.clone();
    let verified = command(&data).args(["verify", "--data"]).arg(&data).output().unwrap();
    let report = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(verified.status.success(), "{report}");
    drop(server);
}
