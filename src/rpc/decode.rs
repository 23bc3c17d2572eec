//! Distrust of bytes: lengths, UTF-8, JSON, unknown numbers. What leaves here is a plain value.
//!
//! What is wrong with a whole call fails the call. What is wrong with one op becomes part of the op: it
//! is refused under its number, so that it cannot hold up the ops behind it.

use crate::limits::{BATCH_OPS_MAX, PARTS_MAX};
use crate::model::code::{Code, Coded};
use crate::model::ids::{self, MessageId, OpId, ProducerId, ProjectId, SessionId};
use crate::model::infos::Role;
use crate::model::ledger::BatchHeader;
use crate::model::page::Page;
use crate::model::sturdy_ref::{self, SturdyRef};
use crate::ops::{Action, CreateSession, Op, OpenProject, PutMessage, Refused};
use crate::wire::bowline_capnp::{batch, op_header, page, vat};
use crate::wire::root_capnp::{project, project_draft, root};
use crate::wire::session_capnp::{self, message_body, part, session, session_draft, session_op};
use capnp::MessageSize;
use capnp::message::{Builder, HeapAllocator};
use capnp::traits::{Owned, SetterInput};
use serde::de::IgnoredAny;

/// What is wrong with a call as a whole.
#[derive(Debug, thiserror::Error)]
pub(super) enum Malformed {
    #[error("the call's parameters cannot be read: {0}")]
    Message(#[from] capnp::Error),
    #[error("a text is not UTF-8")]
    Utf8(#[from] std::str::Utf8Error),
    #[error("{what} is {bytes} bytes long; it must be 16")]
    NotSixteen { what: &'static str, bytes: usize },
    #[error("{what} is {number}; it must be at least 1, and numbers end at 9223372036854775807")]
    Number { what: &'static str, number: u64 },
    #[error(transparent)]
    Id(#[from] ids::Malformed),
    #[error(transparent)]
    Ref(#[from] sturdy_ref::Malformed),
    #[error("the batch holds no ops")]
    BatchEmpty,
    #[error("the batch holds {ops} ops; the most accepted is {BATCH_OPS_MAX}")]
    BatchTooLong { ops: u32 },
}

impl Coded for Malformed {
    fn code(&self) -> Code {
        match self {
            Malformed::Message(_) | Malformed::Utf8(_) => Code::MessageMalformed,
            Malformed::NotSixteen { .. } | Malformed::Number { .. } => Code::OpHeaderMalformed,
            Malformed::Id(error) => error.code(),
            Malformed::Ref(error) => error.code(),
            Malformed::BatchEmpty => Code::BatchEmpty,
            Malformed::BatchTooLong { .. } => Code::BatchTooLong,
        }
    }
}

/// What is wrong with one op.
#[derive(Debug, thiserror::Error)]
enum BadOp {
    #[error("the op says nothing, or something only a newer server knows")]
    Unknown,
    #[error("the message has a role only a newer server knows")]
    Role,
    #[error("the message has {parts} parts; the most accepted is {PARTS_MAX}")]
    Parts { parts: u32 },
    #[error("{what} is not a JSON object")]
    Json { what: &'static str },
    #[error("a text is not UTF-8")]
    Utf8,
}

impl Coded for BadOp {
    fn code(&self) -> Code {
        Code::OpMalformed
    }
}

/// What `params.get()` gives: reading the parameters may fail already.
type Read<T> = capnp::Result<T>;

pub(super) fn page(page: Read<page::Reader<'_>>) -> Result<Page, Malformed> {
    let page = page?;
    Ok(Page::new(page.get_after(), page.get_limit(), page.get_newest_first()))
}

pub(super) fn project_id(text: Read<capnp::text::Reader<'_>>) -> Result<ProjectId, Malformed> {
    Ok(ProjectId::parse(text?.to_str()?)?)
}

pub(super) fn session_id(text: Read<capnp::text::Reader<'_>>) -> Result<SessionId, Malformed> {
    Ok(SessionId::parse(text?.to_str()?)?)
}

/// `Vat.redeem`.
pub(super) fn sturdy_ref(
    params: Read<vat::redeem_params::Reader<'_>>,
) -> Result<SturdyRef, Malformed> {
    Ok(SturdyRef::parse(params?.get_ref()?.to_str()?)?)
}

/// `Session.append`.
pub(super) fn append(
    params: Read<session::append_params::Reader<'_>>,
) -> Result<(BatchHeader, Vec<Op>), Malformed> {
    let params = params?;
    let ops = params.get_ops()?;
    let header = batch_header(params.get_batch()?, ops.len())?;
    let ops = ops.iter().map(session_op).collect::<Result<_, _>>()?;
    Ok((header, ops))
}

/// `Root.openProject`.
pub(super) fn open_project(
    params: Read<root::open_project_params::Reader<'_>>,
) -> Result<(BatchHeader, Op), Malformed> {
    let params = params?;
    let (header, id) = single(params.get_op()?)?;
    let draft = params.get_project()?;
    let sent = canonical::<project_draft::Owned>(draft, draft.total_size()?)?;
    let (directory, name) = (draft.get_directory()?.to_str()?, draft.get_name()?.to_str()?);
    let action = chosen(draft.get_id()?.to_str()?, ProjectId::parse)
        .map_err(Refused::from)
        .and_then(|id| Ok(OpenProject::new(directory, id, name)?))
        .map(Action::OpenProject);
    Ok((header, Op::new(id, only_segment(&sent), action)))
}

/// `Project.createSession`.
pub(super) fn create_session(
    params: Read<project::create_session_params::Reader<'_>>,
) -> Result<(BatchHeader, Op), Malformed> {
    let params = params?;
    let (header, id) = single(params.get_op()?)?;
    let draft = params.get_session()?;
    let sent = canonical::<session_draft::Owned>(draft, draft.total_size()?)?;
    let title = draft.get_title()?.to_str()?;
    let action = chosen(draft.get_id()?.to_str()?, SessionId::parse)
        .map_err(Refused::from)
        .and_then(|id| Ok(CreateSession::new(id, title)?))
        .map(Action::CreateSession);
    Ok((header, Op::new(id, only_segment(&sent), action)))
}

fn batch_header(header: batch::Reader<'_>, ops: u32) -> Result<BatchHeader, Malformed> {
    match ops {
        0 => return Err(Malformed::BatchEmpty),
        ops if ops > BATCH_OPS_MAX => return Err(Malformed::BatchTooLong { ops }),
        _ => {}
    }
    let first_seq = numbered("firstSeq", header.get_first_seq())?;
    numbered("the last seq of the batch", first_seq + u64::from(ops) - 1)?;
    Ok(BatchHeader {
        producer: ProducerId(sixteen("producer", header.get_producer()?)?),
        epoch: numbered("producerEpoch", header.get_producer_epoch().into())? as u32,
        first_seq,
        acked_through: header.get_acked_through(),
    })
}

/// The header of a call that is one op.
fn single(header: op_header::Reader<'_>) -> Result<(BatchHeader, OpId), Malformed> {
    let batch = BatchHeader {
        producer: ProducerId(sixteen("producer", header.get_producer()?)?),
        epoch: numbered("producerEpoch", header.get_producer_epoch().into())? as u32,
        first_seq: numbered("seq", header.get_seq())?,
        acked_through: header.get_acked_through(),
    };
    Ok((batch, OpId(sixteen("opId", header.get_op_id()?)?)))
}

fn session_op(op: session_op::Reader<'_>) -> Result<Op, Malformed> {
    let id = OpId(sixteen("opId", op.get_op_id()?)?);
    let sent = canonical::<session_op::Owned>(op, op.total_size()?)?;
    let action = match op.which() {
        Ok(session_op::PutMessage(body)) => put_message(id, body?, only_segment(&sent))?,
        Ok(session_op::Unset(())) | Err(_) => Err(BadOp::Unknown.into()),
    };
    Ok(Op::new(id, only_segment(&sent), action))
}

fn put_message(
    op: OpId,
    body: message_body::Reader<'_>,
    sent: &[u8],
) -> Result<Result<Action, Refused>, capnp::Error> {
    let parts = body.get_parts()?;
    if parts.len() > PARTS_MAX {
        return Ok(Err(BadOp::Parts { parts: parts.len() }.into()));
    }
    for part in parts {
        let fault = match part.which() {
            Ok(part::Text(text)) => text?.to_str().err().map(|_| BadOp::Utf8),
            Ok(part::Json(text)) => not_an_object("a part", text?),
            Err(_) => Some(BadOp::Unknown),
        };
        if let Some(fault) = fault {
            return Ok(Err(fault.into()));
        }
    }
    let metadata = body.get_metadata()?;
    if let Some(fault) =
        (!metadata.is_empty()).then(|| not_an_object("metadata", metadata)).flatten()
    {
        return Ok(Err(fault.into()));
    }
    let role = match body.get_role() {
        Ok(session_capnp::Role::User) => Role::User,
        Ok(session_capnp::Role::Assistant) => Role::Assistant,
        Ok(session_capnp::Role::System) => Role::System,
        Ok(session_capnp::Role::Tool) => Role::Tool,
        Err(_) => return Ok(Err(BadOp::Role.into())),
    };
    let Ok(id) = body.get_id()?.to_str() else {
        return Ok(Err(BadOp::Utf8.into()));
    };
    Ok(match chosen(id, MessageId::parse) {
        Ok(id) => Ok(Action::PutMessage(PutMessage::new(op, id, role, sent))),
        Err(malformed) => Err(malformed.into()),
    })
}

fn not_an_object(what: &'static str, text: capnp::text::Reader<'_>) -> Option<BadOp> {
    let Ok(text) = text.to_str() else { return Some(BadOp::Utf8) };
    let is_object =
        text.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok();
    (!is_object).then_some(BadOp::Json { what })
}

/// An id that may be left to the server.
fn chosen<T, E>(text: &str, parse: impl FnOnce(&str) -> Result<T, E>) -> Result<Option<T>, E> {
    if text.is_empty() { Ok(None) } else { parse(text).map(Some) }
}

fn sixteen(what: &'static str, data: &[u8]) -> Result<[u8; 16], Malformed> {
    data.try_into().map_err(|_| Malformed::NotSixteen { what, bytes: data.len() })
}

fn numbered(what: &'static str, number: u64) -> Result<u64, Malformed> {
    match number {
        1..=0x7fff_ffff_ffff_ffff => Ok(number),
        _ => Err(Malformed::Number { what, number }),
    }
}

/// A struct in Cap'n Proto's canonical form: the same bytes whenever the same is said, however the
/// sender's library happened to lay it out.
fn canonical<T: Owned>(
    reader: impl SetterInput<T>,
    size: MessageSize,
) -> capnp::Result<Builder<HeapAllocator>> {
    let words = u32::try_from(size.word_count + 1).unwrap_or(u32::MAX);
    let mut message = Builder::new(HeapAllocator::new().first_segment_words(words));
    message.set_root_canonical(reader)?;
    Ok(message)
}

/// The bytes of a canonical message: it has one segment by definition.
fn only_segment(message: &Builder<HeapAllocator>) -> &[u8] {
    message.get_segments_for_output().first().copied().unwrap_or_default()
}
