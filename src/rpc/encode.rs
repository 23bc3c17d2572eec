//! Plain values onto the wire.

use super::House;
use crate::limits::{
    BATCH_OPS_MAX, CAPS_PER_MESSAGE_MAX, OP_PAYLOAD_BYTES_MAX, PAGE_BYTES_MAX, PAGE_ITEMS_MAX,
    WINDOW_OPS_MAX,
};
use crate::model::code::Coded;
use crate::model::infos::{MessageInfo, ProjectInfo, SessionInfo};
use crate::model::ledger::{Ack, Decision, Outcome};
use crate::model::page::Paged;
use crate::wire::bowline_capnp::{PROTOCOL_VERSION, ack, outcome, page_end, refusal, server_info};
use crate::wire::root_capnp::project_info;
use crate::wire::session_capnp::{message, session_info, session_op};
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
}

pub(super) fn ack(ack: &Ack, incarnation: u64, mut to: ack::Builder<'_>) {
    to.set_cursor(ack.cursor.0);
    to.set_next_expected_seq(ack.next_expected_seq);
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
        Decision::Applied { cursor, .. } => to.set_cursor(cursor.0),
        Decision::Unchanged { .. } => {}
    }
    match outcome {
        Outcome::Fresh(_) => to.set_applied(()),
        _ => to.set_duplicate(()),
    }
}

fn refusal(code: &str, text: &str, mut to: refusal::Builder<'_>) {
    to.set_code(code);
    to.set_text(text);
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

pub(super) fn message(info: &MessageInfo, mut to: message::Builder<'_>) -> capnp::Result<()> {
    to.set_id(info.id.as_str());
    to.set_cursor(info.cursor.0);
    to.set_created_at_ms(info.created_at_ms);

    // The content is the op as it was sent; a database hands out bytes without alignment.
    let mut words = Word::allocate_zeroed_vec(info.content.len().div_ceil(8));
    Word::words_to_bytes_mut(&mut words)[..info.content.len()].copy_from_slice(&info.content);
    let segments = [Word::words_to_bytes(&words)];
    let sent = capnp::message::Reader::new(SegmentArray::new(&segments), ReaderOptions::new());
    match sent.get_root::<session_op::Reader<'_>>()?.which()? {
        session_op::PutMessage(body) => to.set_body(body?),
        session_op::Unset(()) => Err(capnp::Error::failed("a stored message says nothing".into())),
    }
}
