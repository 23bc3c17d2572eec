//! Sessions, messages, parts and turns onto the wire.

use super::author;
use crate::model::content::{InOrder, Stored, Unreadable, in_order, without_parts};
use crate::model::feed::LoggedOp;
use crate::model::ids::{MessageId, PartId};
use crate::model::infos::{MessageInfo, ProjectInfo, Role, SessionInfo};
use crate::model::permission::{Action, Rule};
use crate::model::session::{Change, FileDiff, ForkedFrom, Model, Todo};
use crate::model::share::{Shown, View};
use crate::model::timeline::Reverted;
use crate::model::turn::{Retry, State, Summary, Turn};
use crate::model::usage::Usage;
use crate::ops::Said;
use crate::ops::set_head::Files;
use crate::queries::{Checkpoint, Plan};
use crate::wire::feed_capnp::event;
use crate::wire::message_capnp::{
    self, file_diff, message, message_body, part, revert, rule, session_change, todo, turn_retry,
};
use crate::wire::root_capnp::project_info;
use crate::wire::session_capnp::{
    checkpoint_info, context_plan, forked_from, session_info, status, turn_info,
};
use capnp::message::Builder;
use capnp::struct_list;

pub(in crate::rpc) fn project_info(info: &ProjectInfo, mut to: project_info::Builder<'_>) {
    to.set_id(info.id.as_str());
    to.set_directory(info.directory.as_str());
    to.set_name(info.name.as_str());
    to.set_created_at_ms(info.created_at_ms);
    to.set_cursor(info.cursor.0);
    to.set_session_count(info.session_count);
    to.set_remote(info.remote.as_str());
    to.set_rest(info.rest.as_str());
    rules(&info.rules, to.reborrow().init_rules(info.rules.len() as u32));
    let mut worktrees = to.init_worktrees(info.worktrees.len() as u32);
    for (at, (directory, opened_at_ms)) in (0..).zip(&info.worktrees) {
        let mut worktree = worktrees.reborrow().get(at);
        worktree.set_directory(directory.as_str());
        worktree.set_opened_at_ms(*opened_at_ms);
    }
}

pub(in crate::rpc) fn session_info(info: &SessionInfo, mut to: session_info::Builder<'_>) {
    let details = &info.details;
    to.set_id(info.id.as_str());
    to.set_project_id(info.project_id.as_str());
    to.set_title(info.title.as_str());
    to.set_created_at_ms(info.created_at_ms);
    to.set_cursor(info.cursor.0);
    to.set_head(info.head.0);
    to.set_parent_id(info.parent.as_ref().map_or("", |parent| parent.as_str()));
    to.set_slug(info.slug.as_str());
    to.set_directory(details.directory.as_str());
    to.set_path(details.path.as_deref().unwrap_or_default());
    to.set_agent(details.agent.as_str());
    model(&details.model, to.reborrow().init_model());
    to.set_version(details.version.as_str());
    to.set_metadata(details.metadata.as_str());
    to.set_rest(details.rest.as_str());
    rules(&details.rules, to.reborrow().init_rules(details.rules.len() as u32));
    to.set_updated_at_ms(info.updated_at_ms);
    to.set_archived(details.archived_at_ms.is_some());
    to.set_archived_at_ms(details.archived_at_ms.unwrap_or(0));
    usage(info.usage, to.reborrow().init_usage());
    summary(info.summary, to.reborrow().init_summary());
    if let Some(reverted) = &info.timeline.reverted {
        revert(reverted, to.reborrow().init_revert());
    }
    if let Some(from) = &info.forked_from {
        forked_from(from, to.reborrow().init_forked_from());
    }
    to.set_todo_count(info.todo_count);
    status(info, to.init_status());
}

fn status(info: &SessionInfo, mut to: status::Builder<'_>) {
    to.set_turns(info.status.running);
    to.set_queued(info.status.queued);
    match (&info.status.retry, info.status.running) {
        (Some((id, waiting)), _) => retry(id.as_str(), waiting, to.init_retry()),
        (None, 0) => to.set_idle(()),
        (None, _) => to.set_busy(()),
    }
}

fn forked_from(from: &ForkedFrom, mut to: forked_from::Builder<'_>) {
    to.set_session_id(from.session.as_str());
    to.set_cursor(from.cursor.0);
    to.set_message_id(from.message.as_ref().map_or("", |message| message.as_str()));
}

fn revert(reverted: &Reverted, mut to: revert::Builder<'_>) {
    to.set_message_id(reverted.message.as_str());
    to.set_part_id(reverted.part.as_ref().map_or("", |part| part.as_str()));
}

fn retry(id: &str, retry: &Retry, mut to: turn_retry::Builder<'_>) {
    to.set_turn_id(id);
    to.set_attempt(retry.attempt);
    to.set_message(retry.message.as_str());
    to.set_next_at_ms(retry.next_at_ms);
}

fn model(model: &Model, mut to: message_capnp::model::Builder<'_>) {
    to.set_provider_id(model.provider_id.as_str());
    to.set_model_id(model.model_id.as_str());
    to.set_variant(model.variant.as_str());
}

fn usage(usage: Usage, mut to: message_capnp::usage::Builder<'_>) {
    to.set_cost(usage.dollars());
    to.set_input(usage.input);
    to.set_output(usage.output);
    to.set_reasoning(usage.reasoning);
    to.set_cache_read(usage.cache_read);
    to.set_cache_write(usage.cache_write);
}

fn summary(summary: Summary, mut to: message_capnp::summary::Builder<'_>) {
    to.set_additions(summary.additions);
    to.set_deletions(summary.deletions);
    to.set_files(summary.files);
}

pub(in crate::rpc) fn action(action: Action) -> message_capnp::Action {
    match action {
        Action::Ask => message_capnp::Action::Ask,
        Action::Allow => message_capnp::Action::Allow,
        Action::Deny => message_capnp::Action::Deny,
    }
}

pub(in crate::rpc) fn rule(from: &Rule, mut to: rule::Builder<'_>) {
    to.set_permission(from.permission.as_str());
    to.set_pattern(from.pattern.as_str());
    to.set_action(action(from.action));
}

fn rules(from: &[Rule], mut to: struct_list::Builder<'_, rule::Owned>) {
    for (at, from) in (0..).zip(from) {
        rule(from, to.reborrow().get(at));
    }
}

pub(in crate::rpc) fn todos(from: &[Todo], mut to: struct_list::Builder<'_, todo::Owned>) {
    for (at, from) in (0..).zip(from) {
        let mut to = to.reborrow().get(at);
        to.set_content(from.content.as_str());
        to.set_status(from.status.as_str());
        to.set_priority(from.priority.as_str());
        to.set_rest(from.rest.as_str());
    }
}

pub(in crate::rpc) fn turn_state(state: State) -> message_capnp::TurnState {
    match state {
        State::Queued => message_capnp::TurnState::Queued,
        State::Streaming => message_capnp::TurnState::Streaming,
        State::Completed => message_capnp::TurnState::Completed,
        State::Failed => message_capnp::TurnState::Failed,
        State::Aborted => message_capnp::TurnState::Aborted,
    }
}

pub(in crate::rpc) fn turn_info(turn: &Turn, mut to: turn_info::Builder<'_>) {
    to.set_id(turn.id.as_str());
    to.set_cursor(turn.cursor.0);
    to.set_message_id(turn.message.as_str());
    to.set_state(turn_state(turn.state));
    to.set_began_at_ms(turn.began_at_ms);
    to.set_ended_at_ms(turn.ended_at_ms.unwrap_or(0));
    to.set_until_ms(turn.until_ms.unwrap_or(0));
    to.set_lease_ms(turn.lease.ms());
    to.set_reason(turn.reason.as_str());
    if let Some(waiting) = &turn.retry {
        retry(turn.id.as_str(), waiting, to.reborrow().init_retry());
    }
    summary(turn.summary, to.reborrow().init_summary());
    usage(turn.usage, to.init_usage());
}

pub(in crate::rpc) fn file_diff(diff: &FileDiff, mut to: file_diff::Builder<'_>) {
    to.set_file(diff.file.as_str());
    to.set_status(diff.status.as_str());
    to.set_additions(diff.additions);
    to.set_deletions(diff.deletions);
    to.set_patch(diff.patch.as_str());
    to.set_rest(diff.rest.as_str());
}

pub(in crate::rpc) fn checkpoint(from: &Checkpoint, mut to: checkpoint_info::Builder<'_>) {
    to.set_cursor(from.cursor.0);
    to.set_name(from.name.as_str());
    to.set_message_id(from.message.as_str());
    to.set_created_at_ms(from.created_at_ms);
    to.set_automatic(from.automatic);
}

pub(in crate::rpc) fn plan(from: &Plan, mut to: context_plan::Builder<'_>) {
    to.set_usable(from.usable);
    to.set_used(from.used);
    to.set_overflow(from.overflow);
    to.set_tail_start_id(from.tail_start.as_ref().map_or("", |id| id.as_str()));
    to.set_prunable_tokens(from.prunable_tokens);
    part_refs(&from.prunable, to.init_prunable(from.prunable.len() as u32));
}

fn part_refs(
    from: &[(MessageId, PartId)],
    mut to: struct_list::Builder<'_, message_capnp::part_ref::Owned>,
) {
    for (at, (message, part)) in (0..).zip(from) {
        let mut to = to.reborrow().get(at);
        to.set_message_id(message.as_str());
        to.set_part_id(part.as_str());
    }
}

/// A message: all of it, or what a share shows.
pub(in crate::rpc) fn message(
    info: &MessageInfo,
    view: Option<View>,
    mut to: message::Builder<'_>,
) -> capnp::Result<()> {
    to.set_id(info.id.as_str());
    to.set_cursor(info.cursor.0);
    to.set_created_at_ms(info.created_at_ms);
    to.set_parts_after(info.parts_after);
    if view.is_none() {
        author(&info.author, to.reborrow().init_author());
    }
    Told::from(info).body(view, to.init_body())
}

/// A message as a model is to be shown it: without the outputs that were left out.
pub(in crate::rpc) fn message_for_model(
    info: &MessageInfo,
    mut to: message::Builder<'_>,
) -> capnp::Result<()> {
    to.set_id(info.id.as_str());
    to.set_cursor(info.cursor.0);
    to.set_created_at_ms(info.created_at_ms);
    to.set_parts_after(info.parts_after);
    author(&info.author, to.reborrow().init_author());
    Told { for_model: true, ..Told::from(info) }.body(None, to.init_body())
}

/// What is told of a message, from where it stands.
pub(in crate::rpc) struct Told<'a> {
    id: &'a MessageId,
    role: Role,
    /// The op that put it.
    base: Stored,
    /// What was said of it since.
    info: Option<Stored>,
    parts: &'a [(u32, Option<Vec<u8>>)],
    parts_end: u32,
    /// Where parts that did not fit begin.
    parts_after: u32,
    /// Whether outputs that were left out are.
    for_model: bool,
}

impl<'a> From<&'a MessageInfo> for Told<'a> {
    fn from(info: &'a MessageInfo) -> Self {
        Self {
            id: &info.id,
            role: info.role,
            base: Stored::new(&info.content),
            info: info.info.as_deref().map(Stored::new),
            parts: &info.parts,
            parts_end: info.parts_end,
            parts_after: info.parts_after,
            for_model: false,
        }
    }
}

impl<'a> Told<'a> {
    /// As it was put.
    pub(in crate::rpc) fn of_op(content: &[u8], id: &'a MessageId, role: Role) -> Self {
        let base = Stored::new(content);
        Self {
            id,
            role,
            base,
            info: None,
            parts: &[],
            parts_end: u32::MAX,
            parts_after: 0,
            for_model: false,
        }
    }

    /// What it says, as far as it is shown.
    pub(in crate::rpc) fn body(
        &self,
        view: Option<View>,
        mut to: message_body::Builder<'_>,
    ) -> capnp::Result<()> {
        let copy = |from: message_body::Reader<'_>, to: message_body::Builder<'_>| {
            without_parts(from, to).map(drop)
        };
        let copied = self.base.body(|body| {
            match &self.info {
                Some(info) => info.info(|info| copy(info, to.reborrow()))?,
                None => copy(body, to.reborrow())?,
            }
            // It may have been made; whatever was said of it since, its name and its author stay.
            to.set_id(self.id.as_str());
            to.set_role(body.get_role()?);
            to.set_turn_id(body.get_turn_id()?);
            if view.is_some_and(|view| !view.shows_metadata()) {
                to.set_metadata("");
                to.set_rest("");
                to.reborrow().get_error()?.set_data("");
            }
            let last = if self.parts_after > 0 { self.parts_after } else { u32::MAX };
            let kept: Vec<_> = in_order(body.get_parts()?, self.parts)
                .into_iter()
                .filter(|(position, _)| *position < self.parts_end && *position <= last)
                .collect();
            self.list(kept, view, |count| to.init_parts(count))
        });
        copied.map_err(Unreadable::into_error)
    }

    /// The parts behind a position.
    pub(in crate::rpc) fn parts_behind<'b>(
        &self,
        after: u32,
        to: impl FnOnce(u32) -> struct_list::Builder<'b, part::Owned>,
    ) -> capnp::Result<()> {
        let last = if self.parts_after > 0 { self.parts_after } else { u32::MAX };
        let copied = self.base.body(|body| {
            let kept: Vec<_> = in_order(body.get_parts()?, self.parts)
                .into_iter()
                .filter(|(position, _)| *position > after && *position <= last)
                .filter(|(position, _)| *position < self.parts_end)
                .collect();
            self.list(kept, None, to)
        });
        copied.map_err(Unreadable::into_error)
    }

    fn list<'b>(
        &self,
        kept: Vec<(u32, InOrder<'_, '_>)>,
        view: Option<View>,
        to: impl FnOnce(u32) -> struct_list::Builder<'b, part::Owned>,
    ) -> Result<(), Unreadable> {
        let mut shown = Vec::with_capacity(kept.len());
        for (position, part) in kept {
            let how = match &part {
                InOrder::Base(part) => how_shown(*part, self.role, view)?,
                InOrder::Put(bytes) => {
                    Stored::new(bytes).part(|part| how_shown(part, self.role, view))?
                }
            };
            if how != Shown::Nothing {
                shown.push((position, part, how));
            }
        }
        let mut to = to(shown.len() as u32);
        for (at, (position, part, how)) in (0..).zip(shown) {
            let copy = |part: part::Reader<'_>| match self.for_model && is_left_out(part)? {
                true => copy_without_output(part, &mut to, at),
                false => copy_part(part, how, view, &mut to, at),
            };
            match part {
                InOrder::Base(part) => copy(part)?,
                InOrder::Put(bytes) => Stored::new(bytes).part(copy)?,
            }
            let mut part = to.reborrow().get(at);
            if part.reborrow_as_reader().get_id()?.is_empty() {
                part.set_id(PartId::made_in(self.id, position - 1).as_str());
            }
        }
        Ok(())
    }
}

/// How much of a part is shown through a share.
fn how_shown(part: part::Reader<'_>, role: Role, view: Option<View>) -> Result<Shown, Unreadable> {
    let Some(view) = view else { return Ok(Shown::Whole) };
    Ok(match part.which()? {
        part::Json(json) => view.of_json(role, json?.to_str().unwrap_or_default()),
        part::Reasoning(_) if !view.reasoning => Shown::Nothing,
        part::Tool(_) => Shown::Whole,
        _ => view.of_text(role),
    })
}

fn copy_part(
    from: part::Reader<'_>,
    how: Shown,
    view: Option<View>,
    to: &mut struct_list::Builder<'_, part::Owned>,
    at: u32,
) -> Result<(), Unreadable> {
    if let Shown::Instead(json) = how {
        to.reborrow().get(at).set_json(json.as_str());
        return Ok(());
    }
    to.set_with_caveats(at, from)?;
    if let Some(view) = view {
        shorten(view, to.reborrow().get(at))?;
    }
    Ok(())
}

/// Whether it is a tool whose output the model is not shown any more.
fn is_left_out(part: part::Reader<'_>) -> Result<bool, Unreadable> {
    match part.which()? {
        part::Tool(tool) => Ok(tool?.get_compacted_at_ms() > 0),
        _ => Ok(false),
    }
}

/// Copies a tool without its output. Not in place: what is emptied there is sent all the same.
fn copy_without_output(
    from: part::Reader<'_>,
    to: &mut struct_list::Builder<'_, part::Owned>,
    at: u32,
) -> Result<(), Unreadable> {
    let mut scratch = Builder::new_default();
    scratch.set_root(from)?;
    let mut part = scratch.get_root::<part::Builder<'_>>()?;
    part.reborrow().init_content();
    if let part::Tool(tool) = part.which()? {
        tool?.set_output("");
    }
    Ok(to.set_with_caveats(at, scratch.get_root_as_reader()?)?)
}

/// Leaves out of a part what a share does not show. Whatever the schema has no word for may hold anything.
fn shorten(view: View, mut part: part::Builder<'_>) -> Result<(), Unreadable> {
    if !view.shows_metadata() {
        part.set_rest("");
        part.reborrow().init_rest_content();
    }
    if view.tool_outputs {
        return Ok(());
    }
    if let part::Tool(tool) = part.reborrow().which()? {
        let mut tool = tool?;
        tool.set_output("");
        tool.set_metadata("");
        tool.set_rest("");
        part.init_content();
    }
    Ok(())
}

fn changes(from: &[Change], mut to: struct_list::Builder<'_, session_change::Owned>) {
    for (at, from) in (0..).zip(from) {
        let mut to = to.reborrow().get(at);
        match from {
            Change::Title(text) => to.set_title(text.as_str()),
            Change::Metadata(text) => to.set_metadata(text.as_str()),
            Change::AddRules(list) => rules(list, to.init_add_rules(list.len() as u32)),
            Change::SetRules(list) => rules(list, to.init_set_rules(list.len() as u32)),
            Change::Archive(at_ms) => to.set_archived_at_ms(*at_ms),
            Change::Unarchive => to.set_unarchive(()),
            Change::Agent(text) => to.set_agent(text.as_str()),
            Change::Model(of) => model(of, to.init_model()),
            Change::Directory(text) => to.set_directory(text.as_str()),
            Change::Path(text) => to.set_path(text.as_str()),
            Change::Version(text) => to.set_version(text.as_str()),
            Change::Rest(text) => to.set_rest(text.as_str()),
            Change::Summary(of) => summary(*of, to.init_summary()),
        }
    }
}

/// What an op about a session says, as a feed tells it. Through a share only some of them come here.
pub(super) fn event(
    said: &Said<'_>,
    op: &LoggedOp,
    view: Option<View>,
    mut to: event::Builder<'_>,
) -> capnp::Result<()> {
    let unread = Unreadable::into_error;
    match said {
        Said::SessionUpdated(updated) => {
            changes(&updated.changes, to.init_session_updated(updated.changes.len() as u32));
        }
        Said::TodosSet(set) => todos(&set.todos, to.init_todos_set(set.todos.len() as u32)),
        Said::MessageSet(set) => {
            let mut to = to.init_message_set();
            Stored::new(&set.info)
                .info(|info| without_parts(info, to.reborrow()).map(drop))
                .map_err(unread)?;
            to.set_id(set.head.id.as_str());
            if view.is_some_and(|view| !view.shows_metadata()) {
                to.set_metadata("");
                to.set_rest("");
                to.get_error()?.set_data("");
            }
        }
        Said::PartPut(put) => {
            let mut to = to.init_part_put();
            to.set_message_id(put.head.message.as_str());
            to.set_open(put.head.open);
            Stored::new(&put.content)
                .part(|part| {
                    match how_shown(part, put.head.role, view)? {
                        // What is not shown at all leaves only its name behind.
                        Shown::Nothing => drop(to.reborrow().init_part()),
                        Shown::Instead(json) => to.reborrow().init_part().set_json(json.as_str()),
                        Shown::Whole => {
                            to.set_part(part)?;
                            if let Some(view) = view {
                                shorten(view, to.reborrow().get_part()?)?;
                            }
                        }
                    }
                    Ok(())
                })
                .map_err(unread)?;
            to.get_part()?.set_id(put.head.id.as_str());
        }
        Said::PartRemoved(removed) => {
            let mut to = to.init_part_removed();
            to.set_message_id(removed.message.as_str());
            to.set_part_id(removed.id.as_str());
        }
        Said::TurnBegan(began) => {
            let mut to = to.init_turn_began();
            to.set_id(began.id.as_str());
            to.set_queued(began.queued);
            to.set_message_id(began.message.as_str());
            to.set_lease_ms(began.lease_ms);
            to.set_left_behind(began.left_behind.0);
        }
        Said::TurnEnded(ended) => {
            let mut to = to.init_turn_ended();
            to.set_id(ended.id.as_str());
            to.set_state(turn_state(ended.state));
            to.set_reason(ended.reason.as_str());
            to.set_files(ended.diffs.len() as u32);
            to.set_lapsed(ended.lapsed);
            summary(ended.summary, to.init_summary());
        }
        Said::TurnRetried(retried) => {
            retry(retried.id.as_str(), &retried.retry, to.init_turn_retried());
        }
        Said::TurnStarted(started) => to.set_turn_started(started.id.as_str()),
        Said::HeadSet(set) => {
            let mut to = to.init_head_set();
            to.set_checkpoint(set.checkpoint.0);
            to.set_files(!matches!(set.files, Files::Stay));
            if let Some(reverted) = &set.timeline.reverted {
                revert(reverted, to.init_revert());
            }
        }
        Said::CheckpointMade(made) => {
            let mut to = to.init_checkpoint_made();
            to.set_name(made.name.as_str());
            to.set_automatic(made.automatic);
        }
        Said::CheckpointDropped(dropped) => to.set_checkpoint_dropped(dropped.cursor.0),
        Said::OutputsPruned(pruned) => {
            part_refs(&pruned.parts, to.init_outputs_pruned(pruned.parts.len() as u32));
        }
        Said::Forked(forked) => {
            let mut to = to.init_forked();
            to.set_session_id(forked.session.id.as_str());
            to.set_before(forked.before.as_ref().map_or("", |id| id.as_str()));
        }
        Said::SessionRemoved(removed) => to.set_session_removed(removed.key.id.as_str()),
        Said::WorktreeOpened(opened) => {
            let mut to = to.init_worktree_opened();
            to.set_id(opened.key.id.as_str());
            to.set_directory(opened.directory.as_str());
            to.set_sandbox(opened.sandbox.as_deref().unwrap_or_default());
        }
        Said::SnapshotTaken(taken) => {
            let mut to = to.init_snapshot_taken();
            to.set_id(taken.key.id.as_str());
            to.set_number(op.cursor.0);
            to.set_hash(taken.tree.to_string());
        }
        Said::SnapshotNoted(noted) => {
            let mut to = to.init_snapshot_noted();
            to.set_id(noted.key.id.as_str());
            to.set_number(noted.number.0);
            to.set_hash(noted.tree.to_string());
        }
        Said::FilesMoved(moved) => {
            let mut to = to.init_files_moved();
            to.set_name(&moved.name.0);
            to.set_done(moved.done);
            to.set_conflicts(moved.conflict_count);
        }
        Said::TurnMeasured(measured) => {
            let mut to = to.init_turn_measured();
            to.set_files(measured.diffs.len() as u32);
            summary(measured.summary, to.init_summary());
        }
        Said::SnapshotsDropped(dropped) => {
            to.set_snapshots_dropped(dropped.snapshots.len() as u32);
        }
        Said::RulesSet(set) => rules(&set.rules, to.init_rules_set(set.rules.len() as u32)),
        _ => {
            tracing::error!(kind = op.kind, "an op has no words on the wire");
            to.set_unknown(());
        }
    }
    Ok(())
}
