//! Calls on sessions, turns and lists of sessions.

use super::session::{Said, action, rules, said, text};
use super::{Malformed, Permit, Read, Single, canonical, chosen, only_segment};
use crate::limits::PATTERNS_MAX;
use crate::model::content::{self, ContentRef};
use crate::model::context;
use crate::model::ids::{MessageId, OpId, PartId, SessionId, TurnId};
use crate::model::infos::SessionKey;
use crate::model::ledger::BatchHeader;
use crate::model::listing::{Archived, Filter, Token};
use crate::ops::{Action, ForkSession, Op, Refused, RemoveSession, SetRules};
use crate::wire::message_capnp::rule;
use crate::wire::root_capnp::{project, root};
use crate::wire::session_capnp::{
    context_limits, fork_draft, session, session_filter, session_op, turn,
};
use capnp::struct_list;

/// The op of a call that says what an op of a session can say, written there by `say`.
fn as_op(
    header: crate::wire::bowline_capnp::op_header::Reader<'_>,
    permit: &Permit<'_>,
    say: impl FnOnce(session_op::Builder<'_>) -> capnp::Result<()>,
) -> Result<(BatchHeader, Op), Malformed> {
    let single = Single::read(header)?;
    let mut message = capnp::message::Builder::new_default();
    say(message.init_root())?;
    let op = message.get_root_as_reader::<session_op::Reader<'_>>()?;
    let sent = canonical::<session_op::Owned>(op, op.total_size()?)?;
    let action = action(single.id, op, only_segment(&sent), permit)?;
    Ok(single.op(only_segment(&sent), action))
}

/// `Session.beginTurn`.
pub(in crate::rpc) fn begin_turn_call(
    params: Read<session::begin_turn_params::Reader<'_>>,
    permit: &Permit<'_>,
) -> Result<(BatchHeader, Op), Malformed> {
    let params = params?;
    as_op(params.get_op()?, permit, |mut op| op.set_begin_turn(params.get_turn()?))
}

/// `Turn.addMessage`.
pub(in crate::rpc) fn add_message(
    params: Read<turn::add_message_params::Reader<'_>>,
    turn: &TurnId,
    permit: &Permit<'_>,
) -> Result<(BatchHeader, Op, MessageId), Malformed> {
    let params = params?;
    let id = OpId(super::sixteen("opId", params.get_op()?.get_op_id()?)?);
    let (header, op) = as_op(params.get_op()?, permit, |mut op| {
        op.set_put_message(params.get_message()?)?;
        let session_op::PutMessage(body) = op.which()? else { return Ok(()) };
        body?.set_turn_id(turn.as_str());
        Ok(())
    })?;
    let given = chosen(params.get_message()?.get_id()?.to_str()?, MessageId::parse)?;
    Ok((header, op, given.unwrap_or_else(|| MessageId::made_by(id))))
}

/// `Turn.putPart`.
pub(in crate::rpc) fn put_part_call(
    params: Read<turn::put_part_params::Reader<'_>>,
    turn: &TurnId,
    permit: &Permit<'_>,
) -> Result<(BatchHeader, Op, PartId), Malformed> {
    let params = params?;
    let id = OpId(super::sixteen("opId", params.get_op()?.get_op_id()?)?);
    let (header, op) = as_op(params.get_op()?, permit, |mut op| {
        op.set_put_part(params.get_part()?)?;
        let session_op::PutPart(part) = op.which()? else { return Ok(()) };
        part?.set_turn_id(turn.as_str());
        Ok(())
    })?;
    let given = params.get_part()?.get_part()?.get_id()?.to_str()?;
    let given = chosen(given, PartId::parse)?;
    Ok((header, op, given.unwrap_or_else(|| PartId::made_by(id))))
}

/// `Turn.finish`.
pub(in crate::rpc) fn finish(
    params: Read<turn::finish_params::Reader<'_>>,
    turn: &TurnId,
    permit: &Permit<'_>,
) -> Result<(BatchHeader, Op), Malformed> {
    let params = params?;
    as_op(params.get_op()?, permit, |mut op| {
        op.set_end_turn(params.get_end()?)?;
        let session_op::EndTurn(end) = op.which()? else { return Ok(()) };
        end?.set_turn_id(turn.as_str());
        Ok(())
    })
}

/// `Turn.partWriter`.
pub(in crate::rpc) fn part_writer(
    params: Read<turn::part_writer_params::Reader<'_>>,
) -> Result<(MessageId, PartId), Malformed> {
    let params = params?;
    let message = MessageId::parse(params.get_message_id()?.to_str()?)?;
    Ok((message, PartId::parse(params.get_part_id()?.to_str()?)?))
}

/// `Session.turn`, and others that name one.
pub(in crate::rpc) fn turn_id(text: Read<capnp::text::Reader<'_>>) -> Result<TurnId, Malformed> {
    Ok(TurnId::parse(text?.to_str()?)?)
}

/// `Session.parts`.
pub(in crate::rpc) fn parts(
    params: Read<session::parts_params::Reader<'_>>,
) -> Result<(MessageId, u32), Malformed> {
    let params = params?;
    Ok((MessageId::parse(params.get_message_id()?.to_str()?)?, params.get_after()))
}

/// `Session.content`.
pub(in crate::rpc) fn content_piece(
    params: Read<session::content_params::Reader<'_>>,
) -> Result<([u8; 32], u64, usize), Malformed> {
    let params = params?;
    let hash = params.get_hash()?.try_into().map_err(|_| Malformed::Hash)?;
    let bytes_max = match params.get_bytes_max() {
        0 => crate::limits::CONTENT_PIECE_BYTES,
        n => (n as usize).min(crate::limits::CONTENT_PIECE_BYTES),
    };
    Ok((hash, params.get_offset(), bytes_max))
}

/// `Session.upload`.
pub(in crate::rpc) fn upload(
    params: Read<session::upload_params::Reader<'_>>,
) -> Result<ContentRef, Malformed> {
    let content = content::content_ref(params?.get_content()?);
    content.map_err(content::Unreadable::into_error)?.ok_or(Malformed::Hash)
}

/// `Session.fork`.
pub(in crate::rpc) fn fork(
    params: Read<session::fork_params::Reader<'_>>,
    source: &SessionKey,
) -> Result<(BatchHeader, Op), Malformed> {
    let params = params?;
    let single = Single::read(params.get_op()?)?;
    let draft: fork_draft::Reader<'_> = params.get_fork()?;
    let sent = canonical::<fork_draft::Owned>(draft, draft.total_size()?)?;
    let wish = || -> Said<Action> {
        let id = said!(text(draft.get_id()?).and_then(|id| Ok(chosen(id, SessionId::parse)?)));
        let before =
            said!(text(draft.get_before()?).and_then(|id| Ok(chosen(id, MessageId::parse)?)));
        let title = Some(said!(text(draft.get_title()?)).to_owned()).filter(|it| !it.is_empty());
        let source = source.id.clone();
        Ok(Ok(Action::ForkSession(Box::new(ForkSession { source, id, title, before }))))
    };
    Ok(single.op_with(only_segment(&sent), b"fork", wish()?))
}

/// `Project.removeSession`.
pub(in crate::rpc) fn remove_session(
    params: Read<project::remove_session_params::Reader<'_>>,
) -> Result<(BatchHeader, Op), Malformed> {
    let params = params?;
    let single = Single::read(params.get_op()?)?;
    let id = params.get_id()?.to_str()?;
    let action = SessionId::parse(id)
        .map(|id| Action::RemoveSession(RemoveSession { id }))
        .map_err(Refused::from);
    Ok(single.op_with(id.as_bytes(), b"removeSession", action))
}

/// `Root.setRules`.
pub(in crate::rpc) fn root_rules(
    params: Read<root::set_rules_params::Reader<'_>>,
) -> Result<(BatchHeader, Op), Malformed> {
    let params = params?;
    set_rules(Single::read(params.get_op()?)?, params.get_rules()?)
}

/// `Project.setRules`.
pub(in crate::rpc) fn project_rules(
    params: Read<project::set_rules_params::Reader<'_>>,
) -> Result<(BatchHeader, Op), Malformed> {
    let params = params?;
    set_rules(Single::read(params.get_op()?)?, params.get_rules()?)
}

fn set_rules(
    single: Single,
    list: struct_list::Reader<'_, rule::Owned>,
) -> Result<(BatchHeader, Op), Malformed> {
    let rules = rules(list)?;
    // Rules are compared by what they say.
    let sent = rules.as_ref().ok().and_then(|rules| postcard::to_stdvec(rules).ok());
    let action = rules.and_then(|rules| Ok(SetRules::new(rules)?)).map(Action::SetRules);
    Ok(single.op_with(&sent.unwrap_or_default(), b"setRules", action))
}

/// `listSessions`, of any object.
pub(in crate::rpc) fn list_sessions(
    filter: Read<session_filter::Reader<'_>>,
    token: Read<&[u8]>,
) -> Result<(Filter, Option<Token>), Malformed> {
    let filter = filter?;
    let archived = match filter.get_archived() {
        Ok(crate::wire::session_capnp::Archived::LeaveOut) => Archived::LeaveOut,
        Ok(crate::wire::session_capnp::Archived::Include) => Archived::Include,
        Ok(crate::wire::session_capnp::Archived::Only) => Archived::Only,
        Err(_) => return Err(Malformed::Filter),
    };
    let filter = Filter {
        directory: filter.get_directory()?.to_str()?.to_owned(),
        path: filter.get_path()?.to_str()?.trim_matches('/').to_owned(),
        roots: filter.get_roots(),
        start_ms: filter.get_start(),
        search: filter.get_search()?.to_str()?.to_owned(),
        archived,
    };
    let token = match token? {
        [] => None,
        token => Some(Token::parse(token)?),
    };
    Ok((filter, token))
}

/// `Session.plan`.
pub(in crate::rpc) fn context_limits(
    limits: Read<context_limits::Reader<'_>>,
) -> Result<context::Limits, Malformed> {
    let limits = limits?;
    let said = |number: u64| Some(number).filter(|number| *number > 0);
    Ok(context::Limits {
        context: limits.get_context(),
        input: limits.get_input(),
        output: limits.get_output(),
        reserved: said(limits.get_reserved()),
        preserve_recent: said(limits.get_preserve_recent()),
        tail_turns: Some(limits.get_tail_turns()).filter(|turns| *turns > 0),
        auto: limits.get_auto(),
    })
}

/// `Session.permits`.
pub(in crate::rpc) fn permits(
    params: Read<session::permits_params::Reader<'_>>,
) -> Result<(String, Vec<String>), Malformed> {
    let params = params?;
    let list = params.get_patterns()?;
    if list.len() > PATTERNS_MAX {
        return Err(Malformed::Patterns { patterns: list.len() });
    }
    let mut patterns = Vec::new();
    for pattern in list {
        let pattern = pattern?.to_str()?;
        if pattern.len() > crate::model::permission::RULE_TEXT_BYTES_MAX {
            return Err(Malformed::PatternTooLong { bytes: pattern.len() });
        }
        patterns.push(pattern.to_owned());
    }
    Ok((params.get_permission()?.to_str()?.to_owned(), patterns))
}
