//! Plain values onto the wire.

use super::{House, object};
use crate::engine::Registered;
use crate::limits::{
    BATCH_OPS_MAX, CAPS_PER_MESSAGE_MAX, DEPENDENCIES_MAX, DURABLE_SUBSCRIPTIONS_PER_LOG_MAX,
    OP_PAYLOAD_BYTES_MAX, PAGE_BYTES_MAX, PAGE_ITEMS_MAX, PRODUCERS_PER_LOG_MAX, WINDOW_OPS_MAX,
};
use crate::model::code::{Code, Coded};
use crate::model::feed::{LoggedOp, Stretch};
use crate::model::infos::{MessageInfo, ObjectKind, ProjectInfo, SessionInfo};
use crate::model::ledger::{Ack, Decision, Outcome};
use crate::model::page::Paged;
use crate::model::rights::{Right, Rights};
use crate::ops::Said;
use crate::queries::{Derived, Grant};
use crate::wire::bowline_capnp::{
    PROTOCOL_VERSION, ack, outcome, page_end, refusal, registered, server_info,
};
use crate::wire::feed_capnp::event;
use crate::wire::grant_capnp;
use crate::wire::message_capnp::message;
use crate::wire::root_capnp::project_info;
use crate::wire::session_capnp::{session_info, session_op};
use capnp::Word;
use capnp::message::{ReaderOptions, SegmentArray};

pub(super) fn server_info(house: &House, mut info: server_info::Builder<'_>) {
    info.set_version(env!("CARGO_PKG_VERSION"));
    info.set_protocol(PROTOCOL_VERSION);
    info.set_realm(&house.realm.0);
    info.set_incarnation(house.incarnation);
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
        Decision::Applied { cursor, .. } => to.set_cursor(cursor.0),
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

pub(super) fn project_info(info: &ProjectInfo, mut to: project_info::Builder<'_>) {
    to.set_id(info.id.as_str());
    to.set_directory(info.directory.as_str());
    to.set_name(info.name.as_str());
    to.set_created_at_ms(info.created_at_ms);
    to.set_cursor(info.cursor.0);
    to.set_session_count(info.session_count);
}

pub(super) fn session_info(info: &SessionInfo, mut to: session_info::Builder<'_>) {
    to.set_id(info.id.as_str());
    to.set_project_id(info.project_id.as_str());
    to.set_title(info.title.as_str());
    to.set_created_at_ms(info.created_at_ms);
    to.set_cursor(info.cursor.0);
    to.set_head(info.head.0);
}

pub(super) fn message(info: &MessageInfo, to: message::Builder<'_>) -> capnp::Result<()> {
    stored_message(info.id.as_str(), info.cursor.0, info.created_at_ms, &info.content, to)
}

fn stored_message(
    id: &str,
    cursor: u64,
    at_ms: u64,
    content: &[u8],
    mut to: message::Builder<'_>,
) -> capnp::Result<()> {
    to.set_id(id);
    to.set_cursor(cursor);
    to.set_created_at_ms(at_ms);

    // The content is the op as it was sent; a database hands out bytes without alignment.
    let mut words = Word::allocate_zeroed_vec(content.len().div_ceil(8));
    Word::words_to_bytes_mut(&mut words)[..content.len()].copy_from_slice(content);
    let segments = [Word::words_to_bytes(&words)];
    let sent = capnp::message::Reader::new(SegmentArray::new(&segments), ReaderOptions::new());
    match sent.get_root::<session_op::Reader<'_>>()?.which()? {
        session_op::PutMessage(body) => to.set_body(body?),
        _ => Err(capnp::Error::failed("a stored message says something else".into())),
    }
}

/// An op of the history, as a feed tells it.
pub(super) fn event(
    op: &LoggedOp,
    stretch: Stretch,
    mut to: event::Builder<'_>,
) -> capnp::Result<()> {
    to.set_place(op.place(stretch));
    to.set_cursor(op.cursor.0);
    to.set_project_id(op.project_id.as_deref().unwrap_or_default());
    to.set_session_id(op.session_id.as_deref().unwrap_or_default());
    to.set_producer(&op.producer.public());
    to.set_seq(op.seq);
    to.set_op_id(&op.op_id.0);
    if let Some(batch) = op.batch {
        to.set_batch_id(&batch.0);
    }
    to.set_at_ms(op.at_ms);
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
        }
        Said::MessagePut(put) => {
            let to = to.init_message_put();
            stored_message(put.id.as_str(), op.cursor.0, op.at_ms, &put.content, to)?;
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
    }
    Ok(())
}

pub(super) fn description(
    kind: ObjectKind,
    grant: &Grant,
    mut to: grant_capnp::description::Builder<'_>,
) {
    to.set_kind(object::kind(kind));
    to.set_expires_at_ms(grant.authority.expires_at_ms.unwrap_or(0));
    to.set_label(grant.label.as_str());
    to.set_actor(grant.actor.as_str());
    to.set_grant(&grant.id.0);
    to.set_depth(grant.authority.depth);
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
    to.set_uses(if grant.authority.uses_max.is_some() || grant.claim { grant.uses } else { 0 });
    to.set_last_used_at_ms(grant.last_used_at_ms.unwrap_or(0));
    to.set_claim(grant.claim);
    let used_up = grant.authority.uses_max.is_some_and(|max| grant.uses >= max);
    let exchanged = grant.claim && grant.uses > 0;
    to.set_state(match (grant.revoked, grant.authority.has_expired(now_ms)) {
        (true, _) => grant_capnp::GrantState::Revoked,
        (false, true) => grant_capnp::GrantState::Expired,
        (false, false) if used_up || exchanged => grant_capnp::GrantState::UsedUp,
        (false, false) => grant_capnp::GrantState::Live,
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
