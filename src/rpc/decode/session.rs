//! What ops of a session say: messages, parts, turns, and everything else about it.

use super::{BadOp, Permit, canonical, chosen, only_segment};
use crate::limits::{DIFFS_MAX, PARTS_MAX, RESULT_BYTES_MAX, TODOS_MAX};
use crate::model::caveats::Caveats;
use crate::model::content;
use crate::model::ids::{MessageId, OpId, PartId, SessionId, TurnId};
use crate::model::infos::Role;
use crate::model::permission::{Action as Allowed, Rule};
use crate::model::session::{Change, FileDiff, Model, Todo};
use crate::model::turn::{IfBusy, Retry, State, Summary, TurnLease};
use crate::ops::{
    Action, BeginTurn, CreateSession, EndTurn, MakeCheckpoint, NewPart, PruneOutputs, PutMessage,
    PutPart, Refused, RemovePart, RetryTurn, SetHead, SetMessage, SetTodos, UpdateSession,
};
use crate::wire::message_capnp::{
    self, file_diff, head, message_body, part, part_put, part_ref, rule, session_change, todo,
    turn_draft, turn_end, turn_retry,
};
use crate::wire::session_capnp::{session_draft, session_op};
use capnp::struct_list;
use serde::de::IgnoredAny;

/// What an op says, or why it says nothing.
pub(super) type Said<T> = Result<Result<T, Refused>, capnp::Error>;

/// Goes on with what an op says, or returns why it says nothing.
macro_rules! said {
    ($said:expr) => {
        match $said {
            Ok(said) => said,
            Err(refused) => return Ok(Err($crate::ops::Refused::from(refused))),
        }
    };
}
pub(super) use said;

pub(super) fn text<'a>(text: capnp::text::Reader<'a>) -> Result<&'a str, Refused> {
    text.to_str().map_err(|_| BadOp::Utf8.into())
}

/// A JSON object, or nothing.
pub(super) fn object(what: &'static str, json: capnp::text::Reader<'_>) -> Result<String, Refused> {
    let json = text(json)?;
    let is_object =
        json.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(json).is_ok();
    match json.is_empty() || is_object {
        true => Ok(json.to_owned()),
        false => Err(BadOp::Json { what }.into()),
    }
}

/// What an op of a session says.
pub(super) fn action(
    id: OpId,
    op: session_op::Reader<'_>,
    sent: &[u8],
    permit: &Permit<'_>,
) -> Said<Action> {
    let Ok(op) = op.which() else { return Ok(Err(BadOp::Unknown.into())) };
    let about_turns = match &op {
        session_op::BeginTurn(_)
        | session_op::EndTurn(_)
        | session_op::RetryTurn(_)
        | session_op::SetHead(_)
        | session_op::Checkpoint(_) => true,
        session_op::PutPart(part) => !part.clone()?.get_turn_id()?.is_empty(),
        session_op::PutMessage(body) | session_op::SetMessage(body) => {
            !body.clone()?.get_turn_id()?.is_empty()
        }
        _ => false,
    };
    if about_turns && !permit.may_turn {
        return Ok(Err(super::NoTurns.into()));
    }
    match op {
        session_op::PutMessage(body) => put_message(id, body?, sent, permit.caveats),
        session_op::RemoveMessage(id) => Ok(text(id?)
            .and_then(|id| Ok(MessageId::parse(id)?))
            .map(|id| Action::RemoveMessage(crate::ops::RemoveMessage { id }))),
        session_op::SetTitle(title) => Ok(text(title?)
            .and_then(|title| Ok(crate::ops::SetTitle::new(title)?))
            .map(Action::SetTitle)),
        session_op::SetHistory(policy) => {
            let policy = policy?;
            let wish = crate::model::history::HistoryWish {
                age_ms_max: policy.get_age_ms_max(),
                bytes_max: policy.get_bytes_max(),
            };
            Ok(Ok(Action::SetHistory(crate::ops::SetHistory(wish))))
        }
        session_op::Update(list) => {
            let changes = said!(changes(list?)?);
            Ok(UpdateSession::new(changes).map(Action::UpdateSession).map_err(Refused::from))
        }
        session_op::SetTodos(list) => {
            Ok(todos(list?)?.map(|list| Action::SetTodos(SetTodos(list))))
        }
        session_op::SetMessage(body) => set_message(body?),
        session_op::PutPart(put) => put_part(id, put?, permit.caveats),
        session_op::RemovePart(part) => {
            Ok(part_named(part?)?
                .map(|(message, id)| Action::RemovePart(RemovePart { message, id })))
        }
        session_op::BeginTurn(draft) => begin_turn(id, draft?, permit.caveats),
        session_op::EndTurn(end) => end_turn(id, end?, permit.caveats),
        session_op::RetryTurn(retry) => retry_turn(retry?),
        session_op::SetHead(head) => set_head(head?),
        session_op::Checkpoint(name) => Ok(text(name?)
            .and_then(|name| Ok(MakeCheckpoint::new(name)?))
            .map(Action::MakeCheckpoint)),
        session_op::PruneOutputs(list) => {
            let list = list?;
            if list.len() > PARTS_MAX {
                return Ok(Err(BadOp::Parts { parts: list.len() }.into()));
            }
            let mut parts = Vec::new();
            for part in list {
                parts.push(said!(part_named(part)?));
            }
            Ok(Ok(Action::PruneOutputs(PruneOutputs(parts))))
        }
        session_op::Unset(()) => Ok(Err(BadOp::Unknown.into())),
    }
}

fn role(body: message_body::Reader<'_>) -> Result<Role, Refused> {
    match body.get_role() {
        Ok(message_capnp::Role::User) => Ok(Role::User),
        Ok(message_capnp::Role::Assistant) => Ok(Role::Assistant),
        Ok(message_capnp::Role::System) => Ok(Role::System),
        Ok(message_capnp::Role::Tool) => Ok(Role::Tool),
        Err(_) => Err(BadOp::Role.into()),
    }
}

/// Whether what is said about a message, besides its parts, makes sense.
fn check_info(body: message_body::Reader<'_>) -> Said<()> {
    for (what, json) in [
        ("metadata", body.get_metadata()?),
        ("rest", body.get_rest()?),
        ("the data of an error", body.get_error()?.get_data()?),
    ] {
        said!(object(what, json));
    }
    let model = body.get_model()?;
    for plain in [
        body.get_agent()?,
        body.get_finish()?,
        body.get_error()?.get_name()?,
        model.get_provider_id()?,
        model.get_model_id()?,
        model.get_variant()?,
    ] {
        said!(text(plain));
    }
    for id in [body.get_parent_id()?, body.get_turn_id()?] {
        said!(text(id).and_then(|id| Ok(chosen(id, MessageId::parse)?)));
    }
    Ok(Ok(()))
}

/// Whether a part makes sense, and this caller may say it.
fn check_part(part: part::Reader<'_>, in_tool_message: bool, caveats: &Caveats) -> Said<()> {
    let Ok(which) = part.which() else { return Ok(Err(BadOp::Unknown.into())) };
    let json = match which {
        part::Json(json) => json?.to_str().ok(),
        _ => None,
    };
    let forbidden = match part.which()? {
        part::Tool(tool) => match tool?.get_name()?.to_str() {
            Ok(name) => caveats.forbids_tool(name),
            Err(_) => return Ok(Err(BadOp::Utf8.into())),
        },
        _ => caveats.forbids(json, in_tool_message),
    };
    if let Some(forbidden) = forbidden {
        return Ok(Err(forbidden.into()));
    }
    let long = match part.which()? {
        part::Text(long) | part::Reasoning(long) => Some(said!(text(long?))),
        part::StepStart(snapshot) => Some(said!(text(snapshot?))),
        part::Json(json) => {
            let json = json?;
            if json.is_empty() {
                return Ok(Err(BadOp::Json { what: "a part" }.into()));
            }
            said!(object("a part", json));
            None
        }
        part::Tool(tool) => {
            let tool = tool?;
            if tool.get_status().is_err() {
                return Ok(Err(BadOp::Unknown.into()));
            }
            for (what, json) in [
                ("the input of a tool", tool.get_input()?),
                ("the metadata of a tool", tool.get_metadata()?),
                ("the rest of a tool", tool.get_rest()?),
            ] {
                said!(object(what, json));
            }
            for plain in [tool.get_call_id()?, tool.get_title()?] {
                said!(text(plain));
            }
            Some(said!(text(tool.get_output()?)))
        }
        part::File(file) => {
            let file = file?;
            for plain in [file.get_mime()?, file.get_filename()?] {
                said!(text(plain));
            }
            Some(said!(text(file.get_url()?)))
        }
        part::StepFinish(step) => {
            let step = step?;
            for plain in [step.get_reason()?, step.get_snapshot()?] {
                said!(text(plain));
            }
            None
        }
        part::Patch(patch) => {
            let patch = patch?;
            said!(text(patch.get_hash()?));
            for file in patch.get_files()? {
                said!(text(file?));
            }
            None
        }
        part::Retry(retry) => {
            said!(object("the error of a retry", retry?.get_error()?));
            None
        }
        part::Compaction(compaction) => {
            let tail = compaction?.get_tail_start_id()?;
            said!(text(tail).and_then(|id| Ok(chosen(id, MessageId::parse)?)));
            None
        }
    };
    said!(object("the rest of a part", part.get_rest()?));
    said!(text(part.get_id()?).and_then(|id| Ok(chosen(id, PartId::parse)?)));
    for content in [part.get_content()?, part.get_rest_content()?] {
        let hash = content.get_hash()?;
        if !hash.is_empty() && hash.len() != 32 {
            return Ok(Err(BadOp::Hash.into()));
        }
    }
    let twice = long.is_some_and(|long| !long.is_empty()) && part.get_content()?.has_hash();
    Ok(if twice { Err(BadOp::TextTwice.into()) } else { Ok(()) })
}

fn put_message(
    op: OpId,
    body: message_body::Reader<'_>,
    sent: &[u8],
    caveats: &Caveats,
) -> Said<Action> {
    Ok(message(op, body, sent, caveats)?.map(Action::PutMessage))
}

/// A message that is to be put.
fn message(
    op: OpId,
    body: message_body::Reader<'_>,
    sent: &[u8],
    caveats: &Caveats,
) -> Said<PutMessage> {
    let parts = body.get_parts()?;
    if parts.len() > PARTS_MAX {
        return Ok(Err(BadOp::Parts { parts: parts.len() }.into()));
    }
    let in_tool_message = matches!(body.get_role(), Ok(message_capnp::Role::Tool));
    for part in parts {
        said!(check_part(part, in_tool_message, caveats)?);
    }
    said!(check_info(body)?);
    said!(distinct(parts)?);
    let role = said!(role(body));
    let id = said!(text(body.get_id()?).and_then(|id| Ok(chosen(id, MessageId::parse)?)));
    let turn = said!(text(body.get_turn_id()?).and_then(|id| Ok(chosen(id, TurnId::parse)?)));
    let facts = content::message_facts(body).map_err(content::Unreadable::into_error)?;
    Ok(Ok(match turn.is_none() && facts.is_plain() {
        true => PutMessage::new(op, id, role, sent),
        false => {
            let id = id.unwrap_or_else(|| MessageId::made_by(op));
            PutMessage::rich(id, role, turn, facts, sent)
        }
    }))
}

/// Parts are told apart by their ids.
fn distinct(parts: struct_list::Reader<'_, part::Owned>) -> Said<()> {
    let mut seen = std::collections::HashSet::new();
    for part in parts {
        let id = part.get_id()?.to_str().unwrap_or_default();
        if !id.is_empty() && !seen.insert(id.to_owned()) {
            return Ok(Err(BadOp::SameId.into()));
        }
    }
    Ok(Ok(()))
}

fn set_message(body: message_body::Reader<'_>) -> Said<Action> {
    if !body.get_parts()?.is_empty() {
        return Ok(Err(BadOp::WithParts.into()));
    }
    said!(check_info(body)?);
    let id = said!(text(body.get_id()?).and_then(|id| Ok(MessageId::parse(id)?)));
    said!(role(body));
    let turn = said!(text(body.get_turn_id()?).and_then(|id| Ok(chosen(id, TurnId::parse)?)));
    let info = content::info_bytes(body).map_err(content::Unreadable::into_error)?;
    let summing_up = content::is_finished_summary(body).map_err(content::Unreadable::into_error)?;
    Ok(Ok(Action::SetMessage(SetMessage { id, turn, summing_up, info })))
}

fn new_part(id: PartId, part: part::Reader<'_>, caveats: &Caveats) -> Said<NewPart> {
    said!(check_part(part, false, caveats)?);
    let given = said!(text(part.get_id()?).and_then(|id| Ok(chosen(id, PartId::parse)?)));
    let id = given.unwrap_or(id);
    let made = || -> Result<NewPart, content::Unreadable> {
        let bytes = content::part_bytes(part)?;
        Ok(NewPart {
            facts: content::part_facts(part)?,
            brings_text: content::brings_text(part)?,
            content: content::Change { part: &bytes }.named(&id)?,
            id,
        })
    };
    Ok(Ok(made().map_err(content::Unreadable::into_error)?))
}

fn put_part(op: OpId, put: part_put::Reader<'_>, caveats: &Caveats) -> Said<Action> {
    let message =
        said!(text(put.get_message_id()?).and_then(|id| Ok(chosen(id, MessageId::parse)?)));
    let turn = said!(text(put.get_turn_id()?).and_then(|id| Ok(chosen(id, TurnId::parse)?)));
    let part = put.get_part()?;
    if put.get_open() && !matches!(content::has_text(part), Ok(true)) {
        return Ok(Err(BadOp::NoText.into()));
    }
    let part = said!(new_part(PartId::made_by(op), part, caveats)?);
    if put.get_open() && part.brings_text {
        return Ok(Err(BadOp::TextTwice.into()));
    }
    let open = put.get_open();
    Ok(Ok(Action::PutPart(PutPart { message, turn, part, open })))
}

fn part_named(part: part_ref::Reader<'_>) -> Said<(MessageId, PartId)> {
    let message = said!(text(part.get_message_id()?).and_then(|id| Ok(MessageId::parse(id)?)));
    let id = said!(text(part.get_part_id()?).and_then(|id| Ok(PartId::parse(id)?)));
    Ok(Ok((message, id)))
}

fn begin_turn(op: OpId, draft: turn_draft::Reader<'_>, caveats: &Caveats) -> Said<Action> {
    let id = said!(text(draft.get_id()?).and_then(|id| Ok(chosen(id, TurnId::parse)?)));
    let body = draft.get_message()?;
    if !body.get_turn_id()?.is_empty() || said!(role(body)) != Role::User {
        return Ok(Err(BadOp::NotAUsers.into()));
    }
    // The message stands in the history as if it had been put by itself.
    let mut put = capnp::message::Builder::new_default();
    put.init_root::<session_op::Builder<'_>>().set_put_message(body)?;
    let put = put.get_root_as_reader::<session_op::Reader<'_>>()?;
    let sent = canonical::<session_op::Owned>(put, put.total_size()?)?;
    let message = said!(message(op, body, only_segment(&sent), caveats)?);
    let lease = said!(TurnLease::new(draft.get_lease_ms()));
    let if_busy = match draft.get_if_busy() {
        Ok(message_capnp::IfBusy::Refuse) => IfBusy::Refuse,
        Ok(message_capnp::IfBusy::Queue) => IfBusy::Queue,
        Ok(message_capnp::IfBusy::Beside) => IfBusy::Beside,
        Err(_) => return Ok(Err(BadOp::Unknown.into())),
    };
    let id = id.unwrap_or_else(|| TurnId::made_by(op));
    Ok(Ok(Action::BeginTurn(Box::new(BeginTurn { id, message, lease, if_busy }))))
}

fn end_turn(op: OpId, end: turn_end::Reader<'_>, caveats: &Caveats) -> Said<Action> {
    let id = said!(text(end.get_turn_id()?).and_then(|id| Ok(TurnId::parse(id)?)));
    let state = match end.get_state() {
        Ok(message_capnp::TurnState::Completed) => State::Completed,
        Ok(message_capnp::TurnState::Failed) => State::Failed,
        Ok(message_capnp::TurnState::Aborted) => State::Aborted,
        _ => return Ok(Err(BadOp::NoEnd.into())),
    };
    let body = end.get_message()?;
    said!(check_info(body)?);
    let message = said!(text(body.get_id()?).and_then(|id| Ok(chosen(id, MessageId::parse)?)));
    let said = match end.has_message() {
        false => None,
        true => Some(said_of(body).map_err(content::Unreadable::into_error)?),
    };
    if body.get_parts()?.len() > PARTS_MAX {
        return Ok(Err(BadOp::Parts { parts: body.get_parts()?.len() }.into()));
    }
    said!(distinct(body.get_parts()?)?);
    let mut parts = Vec::new();
    for (part, n) in body.get_parts()?.iter().zip(0..) {
        let made = PartId::made_in(&MessageId::made_by(op), n);
        parts.push(said!(new_part(made, part, caveats)?));
    }
    let reason = said!(text(end.get_reason()?)).to_owned();
    if reason.len() > RESULT_BYTES_MAX {
        return Ok(Err(BadOp::ReasonTooLong { bytes: reason.len() }.into()));
    }
    let list = end.get_diffs()?;
    if list.len() > DIFFS_MAX {
        return Ok(Err(BadOp::Diffs { diffs: list.len() }.into()));
    }
    let mut diffs = Vec::new();
    for diff in list {
        diffs.push(said!(file_diff(diff)?));
    }
    let summary = summary(end.get_summary()?);
    let end = EndTurn { id, state, message, said, parts, reason, summary, diffs };
    Ok(Ok(Action::EndTurn(Box::new(end))))
}

/// What is said of a message, without its parts.
fn said_of(body: message_body::Reader<'_>) -> Result<Vec<u8>, content::Unreadable> {
    let mut message = capnp::message::Builder::new_default();
    content::without_parts(body, message.init_root())?;
    content::info_bytes(message.get_root_as_reader()?)
}

fn summary(summary: message_capnp::summary::Reader<'_>) -> Summary {
    Summary {
        additions: summary.get_additions(),
        deletions: summary.get_deletions(),
        files: summary.get_files(),
    }
}

fn file_diff(diff: file_diff::Reader<'_>) -> Said<FileDiff> {
    Ok(Ok(FileDiff {
        file: said!(text(diff.get_file()?)).to_owned(),
        status: said!(text(diff.get_status()?)).to_owned(),
        additions: diff.get_additions(),
        deletions: diff.get_deletions(),
        patch: said!(text(diff.get_patch()?)).to_owned(),
        rest: said!(object("the rest of a diff", diff.get_rest()?)),
    }))
}

fn retry_turn(retry: turn_retry::Reader<'_>) -> Said<Action> {
    let id = said!(text(retry.get_turn_id()?).and_then(|id| Ok(TurnId::parse(id)?)));
    let message = said!(text(retry.get_message()?)).to_owned();
    if message.len() > RESULT_BYTES_MAX {
        return Ok(Err(BadOp::ReasonTooLong { bytes: message.len() }.into()));
    }
    let (attempt, next_at_ms) = (retry.get_attempt(), retry.get_next_at_ms());
    let retry = Retry { attempt, message, next_at_ms };
    Ok(Ok(Action::RetryTurn(RetryTurn { id, retry })))
}

fn set_head(head: head::Reader<'_>) -> Said<Action> {
    Ok(head_of(head)?.map(Action::SetHead))
}

/// Where a conversation is to end.
pub(super) fn head_of(head: head::Reader<'_>) -> Said<SetHead> {
    let head = match head.which() {
        Err(_) => return Ok(Err(BadOp::Unknown.into())),
        Ok(head::End(())) => SetHead::End,
        Ok(head::Undo(())) => SetHead::Undo,
        Ok(head::Redo(())) => SetHead::Redo,
        Ok(head::Checkpoint(name)) => SetHead::Checkpoint(said!(text(name?)).to_owned()),
        Ok(head::Before(before)) => {
            let before = before?;
            let message =
                said!(text(before.get_message_id()?).and_then(|id| Ok(MessageId::parse(id)?)));
            let part =
                said!(text(before.get_part_id()?).and_then(|id| Ok(chosen(id, PartId::parse)?)));
            SetHead::Before(message, part)
        }
    };
    Ok(Ok(head))
}

fn todos(list: struct_list::Reader<'_, todo::Owned>) -> Said<Vec<Todo>> {
    if list.len() > TODOS_MAX {
        return Ok(Err(BadOp::Todos { todos: list.len() }.into()));
    }
    let mut todos = Vec::new();
    for todo in list {
        todos.push(Todo {
            content: said!(text(todo.get_content()?)).to_owned(),
            status: said!(text(todo.get_status()?)).to_owned(),
            priority: said!(text(todo.get_priority()?)).to_owned(),
            rest: said!(object("the rest of a todo", todo.get_rest()?)),
        });
    }
    Ok(Ok(todos))
}

pub(super) fn rules(list: struct_list::Reader<'_, rule::Owned>) -> Said<Vec<Rule>> {
    let mut rules = Vec::new();
    // One more than is accepted is enough to be refused by.
    for rule in list.iter().take(crate::model::permission::RULES_MAX + 1) {
        let action = match rule.get_action() {
            Ok(message_capnp::Action::Ask) => Allowed::Ask,
            Ok(message_capnp::Action::Allow) => Allowed::Allow,
            Ok(message_capnp::Action::Deny) => Allowed::Deny,
            Err(_) => return Ok(Err(BadOp::Unknown.into())),
        };
        rules.push(Rule {
            permission: said!(text(rule.get_permission()?)).to_owned(),
            pattern: said!(text(rule.get_pattern()?)).to_owned(),
            action,
        });
    }
    Ok(Ok(rules))
}

fn changes(list: struct_list::Reader<'_, session_change::Owned>) -> Said<Vec<Change>> {
    if list.len() > PARTS_MAX {
        return Ok(Err(BadOp::Changes { changes: list.len() }.into()));
    }
    let mut changes = Vec::new();
    for change in list {
        let Ok(change) = change.which() else { return Ok(Err(BadOp::Unknown.into())) };
        let owned = |given: capnp::Result<capnp::text::Reader<'_>>| -> Said<String> {
            Ok(text(given?).map(str::to_owned))
        };
        changes.push(match change {
            session_change::Unset(()) => return Ok(Err(BadOp::Unknown.into())),
            session_change::Title(title) => Change::Title(said!(owned(title)?)),
            session_change::Metadata(json) => Change::Metadata(said!(object("metadata", json?))),
            session_change::AddRules(list) => Change::AddRules(said!(rules(list?)?)),
            session_change::SetRules(list) => Change::SetRules(said!(rules(list?)?)),
            session_change::ArchivedAtMs(at_ms) => Change::Archive(at_ms),
            session_change::Unarchive(()) => Change::Unarchive,
            session_change::Agent(agent) => Change::Agent(said!(owned(agent)?)),
            session_change::Model(model) => {
                let model = model?;
                Change::Model(Model {
                    provider_id: said!(owned(model.get_provider_id())?),
                    model_id: said!(owned(model.get_model_id())?),
                    variant: said!(owned(model.get_variant())?),
                })
            }
            session_change::Directory(directory) => Change::Directory(said!(owned(directory)?)),
            session_change::Path(path) => Change::Path(said!(owned(path)?)),
            session_change::Version(version) => Change::Version(said!(owned(version)?)),
            session_change::Rest(json) => Change::Rest(said!(object("rest", json?))),
            session_change::Summary(of) => Change::Summary(summary(of?)),
        });
    }
    Ok(Ok(changes))
}

/// A session that is to be made.
pub(super) fn session_wish(draft: session_draft::Reader<'_>) -> Said<CreateSession> {
    let title = said!(text(draft.get_title()?));
    let id = said!(text(draft.get_id()?).and_then(|id| Ok(chosen(id, SessionId::parse)?)));
    let parent =
        said!(text(draft.get_parent_id()?).and_then(|id| Ok(chosen(id, SessionId::parse)?)));
    let created_at_ms = Some(draft.get_created_at_ms()).filter(|at_ms| *at_ms > 0);
    let changes = said!(changes(draft.get_changes()?)?);
    Ok(CreateSession::new(id, title)
        .and_then(|wish| wish.known(parent, created_at_ms, &changes))
        .map_err(Refused::from))
}
