//! Plain values onto the wire.

mod files;
mod session;

pub(super) use files::{
    changes, file_entry, kept, report, sandbox, skipped, snapshot_info, stamp, worktree_info,
};
pub(super) use session::{
    Told, action, checkpoint, file_diff, message, message_for_model, plan, project_info, rule,
    session_info, todos, turn_info, turn_state,
};

use super::{House, object};
use crate::engine::Registered;
use crate::limits::{
    BATCH_OPS_MAX, CAPS_PER_MESSAGE_MAX, DEPENDENCIES_MAX, DURABLE_SUBSCRIPTIONS_PER_LOG_MAX,
    OP_PAYLOAD_BYTES_MAX, PAGE_BYTES_MAX, PAGE_ITEMS_MAX, PRODUCERS_PER_LOG_MAX, WINDOW_OPS_MAX,
};
use crate::model::code::{Code, Coded};
use crate::model::delegation::End;
use crate::model::feed::{LoggedOp, Stretch};
use crate::model::grant::Fallen;
use crate::model::ids::SessionId;
use crate::model::infos::{Author, ObjectKind};
use crate::model::ledger::{Ack, Decision, Outcome};
use crate::model::page::Paged;
use crate::model::rights::{Right, Rights};
use crate::model::share::{ShareInfo, View};
use crate::ops::Said;
use crate::queries::{AuditHead, AuditTold, DelegationInfo, Derived, Grant};
use crate::wire::audit_capnp;
use crate::wire::bowline_capnp::{
    PROTOCOL_VERSION, ack, outcome, page_end, refusal, registered, server_info,
};
use crate::wire::feed_capnp::{self, event};
use crate::wire::grant_capnp;
use crate::wire::message_capnp::author;
use crate::wire::session_capnp::{delegation_info, share_info};

pub(super) fn server_info(house: &House, mut info: server_info::Builder<'_>) {
    info.set_version(env!("CARGO_PKG_VERSION"));
    info.set_protocol(PROTOCOL_VERSION);
    info.set_realm(&house.realm.0);
    info.set_incarnation(house.incarnation);
    info.set_now_ms(house.clock.now_ms());
    let mut limits = info.init_limits();
    let set = &house.limits;
    limits.set_frame_bytes_max(set.frame_bytes_max as u64);
    limits.set_op_payload_bytes_max(OP_PAYLOAD_BYTES_MAX as u64);
    limits.set_batch_ops_max(BATCH_OPS_MAX);
    limits.set_page_items_max(PAGE_ITEMS_MAX);
    limits.set_calls_in_flight_max(u32::try_from(set.calls_in_flight_max).unwrap_or(u32::MAX));
    limits.set_pipeline_depth_max(set.pipeline_depth_max);
    limits.set_objects_max(u32::try_from(set.objects_max).unwrap_or(u32::MAX));
    limits.set_window_ops_max(WINDOW_OPS_MAX as u32);
    limits.set_page_bytes_max(PAGE_BYTES_MAX as u64);
    let answers = u32::try_from(set.answers_unfinished_max).unwrap_or(u32::MAX);
    limits.set_answers_unfinished_max(answers);
    limits.set_call_bytes_in_flight_max(set.call_bytes_in_flight_max as u64);
    limits.set_caps_per_message_max(CAPS_PER_MESSAGE_MAX);
    limits.set_dependencies_max(DEPENDENCIES_MAX);
    limits.set_producers_per_log_max(PRODUCERS_PER_LOG_MAX as u32);
    limits.set_subscriptions_max(u32::try_from(set.subscriptions_max).unwrap_or(u32::MAX));
    limits.set_durable_subscriptions_per_log_max(DURABLE_SUBSCRIPTIONS_PER_LOG_MAX as u32);
}

pub(super) fn ack(ack: &Ack, incarnation: u64, mut to: ack::Builder<'_>) {
    to.set_cursor(ack.cursor.0);
    to.set_next_expected_seq(ack.next_expected_seq);
    to.set_first_seq(ack.first_seq);
    to.set_floor(ack.floor);
    to.set_server_incarnation(incarnation);
    if let Some(stop) = &ack.stopped {
        refusal(stop.code().name(), &stop.to_string(), to.reborrow().init_stopped());
    }
    let mut outcomes = to.init_outcomes(ack.outcomes.len() as u32);
    for (at, outcome) in (0..).zip(&ack.outcomes) {
        self::outcome(outcome, outcomes.reborrow().get(at));
    }
}

fn outcome(outcome: &Outcome, mut to: outcome::Builder<'_>) {
    let decision = match outcome {
        Outcome::RepeatDropped => return to.set_duplicate_dropped(()),
        Outcome::Fresh(decision) | Outcome::Repeat(decision) => decision,
    };
    match decision {
        Decision::Rejected { code, text } => return refusal(code, text, to.init_rejected()),
        Decision::Conflicted(conflict) => {
            let mut rejected = to.init_rejected();
            rejected.set_cursor(conflict.actual.0);
            return refusal(conflict.code().name(), &conflict.to_string(), rejected);
        }
        Decision::Applied { cursor, .. } | Decision::AppliedTo { cursor, .. } => {
            to.set_cursor(cursor.0);
        }
        Decision::Unchanged { .. } => {}
    }
    match outcome {
        Outcome::Fresh(_) => to.set_applied(()),
        _ => to.set_duplicate(()),
    }
}

pub(super) fn refusal(code: &str, text: &str, mut to: refusal::Builder<'_>) {
    to.set_code(code);
    to.set_text(text);
    to.set_retryable(Code::named(code).is_some_and(Code::is_retryable));
}

pub(super) fn registered(at: &Registered, incarnation: u64, mut to: registered::Builder<'_>) {
    to.set_epoch(at.epoch);
    to.set_next_expected_seq(at.next_expected_seq);
    to.set_floor(at.floor);
    to.set_cursor(at.cursor.0);
    to.set_server_incarnation(incarnation);
}

pub(super) fn page_end<T>(page: &Paged<T>, mut to: page_end::Builder<'_>) {
    to.set_next(page.next.0);
    to.set_more(page.more);
}

pub(super) fn author(from: &Author, mut to: author::Builder<'_>) {
    to.set_grant(&from.grant.0);
    texts(&from.actors, to.init_actors(from.actors.len() as u32));
}

fn texts(from: &[String], mut to: capnp::text_list::Builder<'_>) {
    for (at, text) in (0..).zip(from) {
        to.set(at, text.as_str());
    }
}

/// An op of the history, as a feed tells it.
pub(super) fn event(
    op: &LoggedOp,
    stretch: Stretch,
    view: Option<View>,
    mut to: event::Builder<'_>,
) -> capnp::Result<()> {
    to.set_place(op.place(stretch));
    to.set_cursor(op.cursor.0);
    to.set_session_id(op.session_id.as_deref().unwrap_or_default());
    to.set_at_ms(op.at_ms);
    // Guests of a share learn what happened, and not who works here and how.
    if view.is_none() {
        author(&op.author, to.reborrow().init_author());
        to.set_project_id(op.project_id.as_deref().unwrap_or_default());
        to.set_producer(&op.producer.public());
        to.set_seq(op.seq);
        to.set_op_id(&op.op_id.0);
        if let Some(batch) = op.batch {
            to.set_batch_id(&batch.0);
        }
    }
    let said = Said::read(op.op_id, op.kind, op.version, &op.payload)
        .map_err(|error| capnp::Error::failed(error.to_string()))?;
    match said {
        Said::ProjectOpened(opened) => {
            let mut to = to.init_project_opened();
            to.set_id(opened.key.id.as_str());
            to.set_directory(&*opened.directory);
            to.set_name(&*opened.name);
        }
        Said::SessionCreated(created) => {
            let mut to = to.init_session_created();
            to.set_id(created.key.id.as_str());
            to.set_title(&*created.title);
            to.set_parent_id(created.parent.as_ref().map_or("", |parent| parent.id.as_str()));
            let forked_from = created.forked_from.as_ref();
            to.set_forked_from(forked_from.map_or("", |from| from.session.as_str()));
        }
        Said::MessagePut(put) => {
            let mut to = to.init_message_put();
            to.set_id(put.id.as_str());
            to.set_cursor(op.cursor.0);
            to.set_created_at_ms(op.at_ms);
            let told = Told::of_op(&put.content, &put.id, put.role);
            told.body(view, to.init_body())?;
        }
        Said::MessageRemoved(removed) => to.set_message_removed(removed.id.as_str()),
        Said::TitleSet(set) => to.set_title_set(&*set.title),
        Said::HistorySet(set) => {
            let mut to = to.init_history_set();
            to.set_age_ms_max(set.0.age_ms_max);
            to.set_bytes_max(set.0.bytes_max);
        }
        Said::GrantMade(made) => {
            let mut to = to.init_grant_made();
            to.set_grant(&made.id.0);
            to.set_parent(&made.parent.0);
            to.set_expires_at_ms(made.expires_at_ms.unwrap_or(0));
            to.set_label(&*made.label);
            to.set_actor(&*made.actor);
            to.set_saved(made.saved);
            let held = Rights::from_bits(made.rights);
            rights(held, to.init_rights(held.each().count() as u32));
        }
        Said::GrantRevoked(revoked) => {
            let mut to = to.init_grant_revoked();
            to.set_grant(&revoked.id.0);
            to.set_cut(revoked.cut);
        }
        Said::EpochBumped(bumped) => {
            let mut to = to.init_epoch_bumped();
            to.set_epoch(bumped.epoch);
            to.set_cut(bumped.cut);
        }
        Said::ActorRevoked(revoked) => {
            let mut to = to.init_actor_revoked();
            to.set_actor(&*revoked.actor);
            to.set_cut(revoked.cut);
        }
        Said::RootRotated(rotated) => {
            let mut to = to.init_root_rotated();
            to.set_grant(&rotated.id.0);
            to.set_former(&rotated.former.0);
        }
        Said::Delegated(delegated) => {
            let mut to = to.init_delegated();
            to.set_grant(&delegated.id.0);
            to.set_session_id(delegated.child.as_ref().map_or("", |child| child.id.as_str()));
            to.set_expires_at_ms(delegated.expires_at_ms.unwrap_or(0));
            to.set_lease_ms(delegated.lease_ms);
            to.set_label(&*delegated.label);
            to.set_actor(&*delegated.actor);
            let held = Rights::from_bits(delegated.rights);
            rights(held, to.init_rights(held.each().count() as u32));
        }
        Said::DelegationEnded(ended) => {
            let mut to = to.init_delegation_ended();
            to.set_grant(&ended.id.0);
            to.set_session_id(ended.session.as_ref().map_or("", SessionId::as_str));
            to.set_end(delegation_end(ended.end));
            to.set_result(&*ended.result);
        }
        Said::ShareOpened(opened) => {
            let mut to = to.init_share_opened();
            to.set_id(opened.key.id.as_str());
            to.set_grant(&opened.grant.0);
        }
        Said::ShareEnded(ended) => to.set_share_ended(ended.id.as_str()),
        said => session::event(&said, op, view, to)?,
    }
    Ok(())
}

fn delegation_end(end: End) -> feed_capnp::DelegationEnd {
    match end {
        End::Running => feed_capnp::DelegationEnd::Running,
        End::Completed => feed_capnp::DelegationEnd::Completed,
        End::Failed => feed_capnp::DelegationEnd::Failed,
        End::Lapsed => feed_capnp::DelegationEnd::Lapsed,
        End::Revoked => feed_capnp::DelegationEnd::Revoked,
        End::Expired => feed_capnp::DelegationEnd::Expired,
    }
}

pub(super) fn delegation_info(info: &DelegationInfo, mut to: delegation_info::Builder<'_>) {
    let stored = &info.delegation;
    to.set_number(u64::try_from(stored.granted.0).unwrap_or(0));
    to.set_grant(&info.grant.0);
    to.set_session_id(info.session_id.as_str());
    to.set_label(info.label.as_str());
    to.set_actor(info.actor.as_str());
    to.set_created_at_ms(info.created_at_ms);
    to.set_lease_ms(stored.lease.ms());
    to.set_until_ms(stored.until_ms.unwrap_or(0));
    to.set_end(delegation_end(stored.end));
    to.set_ended_at_ms(info.ended_at_ms.unwrap_or(0));
    to.set_result(info.result.as_str());
}

pub(super) fn share_info(info: &ShareInfo, mut to: share_info::Builder<'_>) {
    to.set_number(u64::try_from(info.key.log.0).unwrap_or(0));
    to.set_id(info.key.id.as_str());
    to.set_session_id(info.session_id.as_str());
    to.set_title(info.title.as_deref().unwrap_or_default());
    to.set_append(info.append);
    to.set_up_to(info.view.up_to.0);
    to.set_tool_outputs(info.view.tool_outputs);
    to.set_reasoning(info.view.reasoning);
    to.set_created_at_ms(info.created_at_ms);
    to.set_ended_at_ms(info.ended_at_ms.unwrap_or(0));
    to.set_cursor(info.view.end(info.head).0);
    to.set_epoch(info.epoch);
}

pub(super) fn audit_head(head: &AuditHead, mut to: audit_capnp::audit_head::Builder<'_>) {
    to.set_number(head.number);
    to.set_hash(&head.hash);
}

pub(super) fn audit_entry(told: &AuditTold, mut to: audit_capnp::audit_entry::Builder<'_>) {
    let entry = &told.entry;
    to.set_number(told.number);
    to.set_at_ms(entry.at_ms);
    // The schema has the stored numbers.
    let kind = audit_capnp::AuditKind::try_from(entry.kind);
    to.set_kind(kind.unwrap_or(audit_capnp::AuditKind::Unknown));
    if let Some(author) = &told.author {
        to.set_grant(&author.grant.0);
        let actors = to.reborrow().init_actors(author.actors.len() as u32);
        texts(&author.actors, actors);
    }
    if let Some((kind, id)) = &told.object {
        to.set_object_kind(object::kind(*kind));
        to.set_object_id(id.as_str());
    }
    if let Some(subject) = told.subject {
        to.set_subject(&subject.0);
    }
    to.set_count(entry.count);
    to.set_first_position(entry.position);
    to.set_code(entry.code.as_str());
    let missing = Rights::from_bits(entry.missing).each().next();
    to.set_right(missing.map_or("", Right::word));
    to.set_hash(&told.hash);
}

fn caveats(grant: &Grant, mut to: grant_capnp::caveats::Builder<'_>) {
    let held = &grant.authority.caveats;
    to.set_uses_max(grant.authority.uses_max.unwrap_or(0));
    to.set_expires_if_unused_at_ms(grant.unused_until_ms.unwrap_or(0));
    to.set_sealed_to(grant.sealed_to.as_str());
    to.set_only_own_messages(held.only_own);
    to.set_tools_limited(held.tools.is_some());
    if let Some(tools) = &held.tools {
        texts(tools, to.reborrow().init_tools(tools.len() as u32));
    }
    to.set_paths_limited(held.paths.is_some());
    if let Some(paths) = &held.paths {
        let mut list = to.init_paths(paths.len() as u32);
        for (at, path) in (0..).zip(paths) {
            list.set(at, path);
        }
    }
}

pub(super) fn description(
    (kind, id): (ObjectKind, &str),
    grant: &Grant,
    mut to: grant_capnp::description::Builder<'_>,
) {
    to.set_kind(object::kind(kind));
    to.set_object_id(id);
    to.set_expires_at_ms(grant.authority.expires_at_ms.unwrap_or(0));
    to.set_label(grant.label.as_str());
    to.set_actor(grant.actor.as_str());
    to.set_grant(&grant.id.0);
    to.set_depth(grant.authority.depth);
    caveats(grant, to.reborrow().init_caveats());
    let held = grant.authority.rights;
    rights(held, to.init_rights(held.each().count() as u32));
}

pub(super) fn grant_info(
    derived: &Derived,
    now_ms: u64,
    mut to: grant_capnp::grant_info::Builder<'_>,
) {
    let Derived { grant, parent, object_id } = derived;
    to.set_number(u64::try_from(grant.key.0).unwrap_or(0));
    to.set_grant(&grant.id.0);
    to.set_parent(&parent.0);
    to.set_depth(grant.authority.depth);
    to.set_kind(object::kind(grant.kind));
    to.set_object_id(object_id.as_str());
    to.set_expires_at_ms(grant.authority.expires_at_ms.unwrap_or(0));
    to.set_label(grant.label.as_str());
    to.set_actor(grant.actor.as_str());
    to.set_saved(grant.saved);
    to.set_created_at_ms(grant.created_at_ms);
    to.set_uses_max(grant.authority.uses_max.unwrap_or(0));
    to.set_uses(grant.uses);
    to.set_last_used_at_ms(grant.last_used_at_ms.unwrap_or(0));
    to.set_claim(grant.claim);
    to.set_reads(grant.reads);
    to.set_ended_at_ms(grant.ended_at_ms(now_ms).unwrap_or(0));
    caveats(grant, to.reborrow().init_caveats());
    to.set_state(match grant.fallen(now_ms) {
        Some(Fallen::Revoked) => grant_capnp::GrantState::Revoked,
        Some(Fallen::Stale) => grant_capnp::GrantState::Stale,
        Some(Fallen::Completed | Fallen::Failed | Fallen::Lapsed) => grant_capnp::GrantState::Ended,
        Some(Fallen::Expired | Fallen::Unused) => grant_capnp::GrantState::Expired,
        None if grant.is_used_up() => grant_capnp::GrantState::UsedUp,
        None => grant_capnp::GrantState::Live,
    });
    let held = grant.authority.rights;
    rights(held, to.init_rights(held.each().count() as u32));
}

fn rights(held: Rights, mut to: capnp::enum_list::Builder<'_, grant_capnp::Right>) {
    for (at, right) in (0..).zip(held.each()) {
        to.set(
            at,
            match right {
                Right::Read => grant_capnp::Right::Read,
                Right::Append => grant_capnp::Right::Append,
                Right::Turn => grant_capnp::Right::Turn,
                Right::Snapshot => grant_capnp::Right::Snapshot,
                Right::Restore => grant_capnp::Right::Restore,
                Right::Share => grant_capnp::Right::Share,
                Right::Delegate => grant_capnp::Right::Delegate,
                Right::Admin => grant_capnp::Right::Admin,
            },
        );
    }
}
