//! Distrust of bytes: lengths, UTF-8, JSON, unknown numbers. What leaves here is a plain value.
//!
//! What is wrong with a whole call fails the call. What is wrong with one op becomes part of the op: it
//! is refused under its number, so that it cannot hold up the ops behind it.

mod authority;
mod calls;
mod files;
mod session;

pub(super) use calls::{
    add_message, begin_turn_call, content_piece, context_limits, finish, fork, list_sessions,
    part_writer, parts, permits, project_rules, put_part_call, remove_session, root_rules, turn_id,
    upload,
};

pub(super) use files::{
    after, call_name, create_sandbox, files, path, restore, revert, revert_session, revision,
    since, snapshot_id, stamp, stamps, worktree_id,
};

pub(super) use authority::{
    attenuate, audit, bump_epoch, complete, delegate, grants, revoke, revoke_actor, rotate, save,
    share, unpublish,
};

use crate::limits::{
    BATCH_OPS_MAX, DEPENDENCIES_MAX, DIFFS_MAX, PARTS_MAX, PATTERNS_MAX, RESULT_BYTES_MAX,
    TODOS_MAX,
};
use crate::model::caveats::Caveats;
use crate::model::code::{Code, Coded};
use crate::model::conditions::Conditions;
use crate::model::content::{self, only_segment};
use crate::model::feed::Wish;
use crate::model::ids::{
    self, BatchId, Cursor, InstanceId, OpId, ProducerId, ProjectId, SessionId, ShareId,
    SubscriptionName,
};
use crate::model::ledger::{BatchHeader, Mode};
use crate::model::listing;
use crate::model::page::Page;
use crate::model::permission::RULE_TEXT_BYTES_MAX;
use crate::model::registration::Registration;
use crate::model::sturdy_ref::{self, SturdyRef};
use crate::model::worktree::NameMalformed;
use crate::ops::end_delegation;
use crate::ops::{Action, Kind, Op, OpenProject, Refused, Sent};
use crate::wire::bowline_capnp::{BatchMode, batch, op_header, page, registration, vat};
use crate::wire::feed_capnp;
use crate::wire::root_capnp::{project, project_draft, root};
use crate::wire::session_capnp::{self, session_draft, session_op, writer, writer_draft};
use capnp::MessageSize;
use capnp::message::{Builder, HeapAllocator};
use capnp::traits::{Owned, SetterInput};
use session::session_wish;
use zeroize::Zeroizing;

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
    #[error("the batch has a mode only a newer server knows")]
    Mode,
    #[error("producer 0 is the server's own; take 16 random bytes")]
    ServersProducer,
    #[error("a right is one only a newer server knows")]
    Right,
    #[error("`tools` names tools, and `noTools` says there are none")]
    ToolsAndNone,
    #[error(transparent)]
    Completion(#[from] end_delegation::Error),
    #[error("where a delegate is to work is said in a way only a newer server knows")]
    Where,
    #[error("the seed is not 32 bytes")]
    Seed,
    #[error(transparent)]
    Name(#[from] NameMalformed),
    #[error(
        "a path is relative to the worktree, of 1 to 4096 bytes, without empty steps, `.`, `..` and `.git`: {0:?}"
    )]
    Path(String),
    #[error("at most 1000 paths, and 64 pairs of snapshots, in one call")]
    TooManyPaths,
    #[error("{}", .0.text)]
    Op(Refused),
    #[error("a hash is not 32 bytes long")]
    Hash,
    #[error("which sessions are wanted is said in a way only a newer server knows")]
    Filter,
    #[error(transparent)]
    Token(#[from] listing::Malformed),
    #[error("{patterns} patterns are asked about; the most accepted is {PATTERNS_MAX}")]
    Patterns { patterns: u32 },
    #[error("a pattern is {bytes} bytes long; the most accepted is {RULE_TEXT_BYTES_MAX}")]
    PatternTooLong { bytes: usize },
    #[error("the batch holds no ops")]
    BatchEmpty,
    #[error("the batch holds {ops} ops; the most accepted is {BATCH_OPS_MAX}")]
    BatchTooLong { ops: u32 },
}

impl Coded for Malformed {
    fn code(&self) -> Code {
        match self {
            Malformed::Message(_) | Malformed::Utf8(_) | Malformed::Filter => {
                Code::MessageMalformed
            }
            Malformed::Hash => Code::ContentMalformed,
            Malformed::Token(token) => token.code(),
            Malformed::Patterns { .. } | Malformed::PatternTooLong { .. } => Code::RulesMalformed,
            Malformed::NotSixteen { .. }
            | Malformed::Number { .. }
            | Malformed::ServersProducer
            | Malformed::Mode => Code::OpHeaderMalformed,
            Malformed::Right | Malformed::Seed | Malformed::ToolsAndNone | Malformed::Where => {
                Code::NarrowingMalformed
            }
            Malformed::Id(error) => error.code(),
            Malformed::Name(error) => error.code(),
            Malformed::Path(_) | Malformed::TooManyPaths => Code::PathMalformed,
            Malformed::Op(refused) => refused.code,
            Malformed::Completion(error) => error.code(),
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
    #[error("the hash of some content is not 32 bytes long")]
    Hash,
    #[error("a part brings its text twice, or brings one and is to be open")]
    TextTwice,
    #[error("such a part has no text that could still come")]
    NoText,
    #[error("two parts have the same id")]
    SameId,
    #[error("parts are not changed like this; see `putPart` and `removePart`")]
    WithParts,
    #[error("a turn answers a message of a user that belongs to no other turn")]
    NotAUsers,
    #[error("a turn ends as completed, failed or aborted")]
    NoEnd,
    #[error("the reason is {bytes} bytes long; the most accepted is {RESULT_BYTES_MAX}")]
    ReasonTooLong { bytes: usize },
    #[error("{diffs} files are told of; the most accepted is {DIFFS_MAX}")]
    Diffs { diffs: u32 },
    #[error("there are {changes} changes; the most accepted is {PARTS_MAX}")]
    Changes { changes: u32 },
    #[error("there are {todos} things to do; the most accepted is {TODOS_MAX}")]
    Todos { todos: u32 },
}

impl Coded for BadOp {
    fn code(&self) -> Code {
        Code::OpMalformed
    }
}

/// What ops may say through an object.
pub(super) struct Permit<'a> {
    /// For what it may be used.
    pub(super) caveats: &'a Caveats,
    /// Whether it carries the right to run turns.
    pub(super) may_turn: bool,
}

/// An op that is about turns, through an object that has nothing to do with them.
#[derive(Debug, thiserror::Error)]
#[error("this object does not carry the right \"turn\"")]
struct NoTurns;

impl Coded for NoTurns {
    fn code(&self) -> Code {
        Code::NotPermitted
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

pub(super) fn share_id(text: Read<capnp::text::Reader<'_>>) -> Result<ShareId, Malformed> {
    Ok(ShareId::parse(text?.to_str()?)?)
}

/// `Vat.redeem`: the ref, and one of whoever shows it.
pub(super) fn redeem(
    params: Read<vat::redeem_params::Reader<'_>>,
) -> Result<(SturdyRef, Option<SturdyRef>), Malformed> {
    let params = params?;
    let own = chosen(params.get_as()?.to_str()?, SturdyRef::parse)?;
    Ok((SturdyRef::parse(params.get_ref()?.to_str()?)?, own))
}

/// `Vat.claim`.
pub(super) fn claim(
    params: Read<vat::claim_params::Reader<'_>>,
) -> Result<(SturdyRef, [u8; 32]), Malformed> {
    let params = params?;
    let seed = params.get_seed()?.try_into().map_err(|_| Malformed::Seed)?;
    Ok((SturdyRef::parse(params.get_ref()?.to_str()?)?, seed))
}

/// A batch of ops for a session, as it was sent.
pub(super) type SentOps<'a> =
    (batch::Reader<'a>, capnp::struct_list::Reader<'a, session_op::Owned>);

/// `Session.append` and `Share.appendOps`.
pub(super) fn append(
    asked: Read<SentOps<'_>>,
    permit: &Permit<'_>,
) -> Result<(BatchHeader, Vec<Op>), Malformed> {
    let (header, ops) = asked?;
    let header = batch_header(header, ops.len())?;
    let ops = ops.iter().map(|op| session_op(op, header.mode, permit)).collect::<Result<_, _>>()?;
    Ok((header, ops))
}

/// `Session.writer`: the header of the first batch.
pub(super) fn writer(
    params: Read<session_capnp::session::writer_params::Reader<'_>>,
) -> Result<BatchHeader, Malformed> {
    let draft: writer_draft::Reader<'_> = params?.get_producer()?;
    let producer = producer(draft.get_producer()?)?;
    let epoch = numbered("producerEpoch", draft.get_producer_epoch().into())? as u32;
    let first_seq = numbered("firstSeq", draft.get_first_seq())?;
    Ok(BatchHeader {
        instance: instance(draft.get_instance()?)?,
        acked_through: draft.get_acked_through(),
        capability_epoch: given(draft.get_capability_epoch()),
        ..BatchHeader::plain(producer, epoch, first_seq)
    })
}

/// `Writer.write`.
pub(super) fn write(
    params: Read<writer::write_params::Reader<'_>>,
    permit: &Permit<'_>,
) -> Result<Op, Malformed> {
    session_op(params?.get_op()?, Mode::Each, permit)
}

/// `register`, of any object.
pub(super) fn registration(
    asked: Read<registration::Reader<'_>>,
) -> Result<Registration, Malformed> {
    let asked = asked?;
    Ok(Registration {
        producer: producer(asked.get_producer()?)?,
        instance: InstanceId(sixteen("instance", asked.get_instance()?)?),
        epoch: Some(asked.get_epoch()).filter(|epoch| *epoch > 0),
        acked_through: asked.get_acked_through(),
        capability_epoch: given(asked.get_capability_epoch()),
    })
}

/// `feed`, of any object.
pub(super) fn feed(
    asked: Read<(feed_capnp::wish::Reader<'_>, feed_capnp::sink::Client)>,
) -> Result<(Wish, feed_capnp::sink::Client), Malformed> {
    let (wish, sink) = asked?;
    let wish = Wish {
        after: wish.get_after(),
        name: chosen(wish.get_name()?.to_str()?, SubscriptionName::parse)?,
        // A set: however long the list, there are only so many kinds. One that only a newer server knows is
        // one that nothing here is of.
        kinds: wish.get_kinds()?.iter().map(|kind| kind.map_or(u16::MAX, kind_number)).collect(),
        skip: match wish.get_skip_producer()? {
            [] => None,
            id => Some(ProducerId(sixteen("skipProducer", id)?)),
        },
        texts: wish.get_texts(),
    };
    Ok((wish, sink))
}

/// The number under which events of a kind are stored; the schema has its own.
fn kind_number(kind: feed_capnp::EventKind) -> u16 {
    match kind {
        feed_capnp::EventKind::Unknown => u16::MAX,
        feed_capnp::EventKind::ProjectOpened => Kind::OpenProject as u16,
        feed_capnp::EventKind::SessionCreated => Kind::CreateSession as u16,
        feed_capnp::EventKind::MessagePut => Kind::PutMessage as u16,
        feed_capnp::EventKind::MessageRemoved => Kind::RemoveMessage as u16,
        feed_capnp::EventKind::TitleSet => Kind::SetTitle as u16,
        feed_capnp::EventKind::HistorySet => Kind::SetHistory as u16,
        feed_capnp::EventKind::GrantMade => Kind::MakeGrant as u16,
        feed_capnp::EventKind::GrantRevoked => Kind::RevokeGrant as u16,
        feed_capnp::EventKind::EpochBumped => Kind::BumpEpoch as u16,
        feed_capnp::EventKind::ActorRevoked => Kind::RevokeActor as u16,
        feed_capnp::EventKind::RootRotated => Kind::RotateRoot as u16,
        feed_capnp::EventKind::Delegated => Kind::Delegate as u16,
        feed_capnp::EventKind::DelegationEnded => Kind::EndDelegation as u16,
        feed_capnp::EventKind::ShareOpened => Kind::OpenShare as u16,
        feed_capnp::EventKind::ShareEnded => Kind::EndShare as u16,
        feed_capnp::EventKind::SessionUpdated => Kind::UpdateSession as u16,
        feed_capnp::EventKind::TodosSet => Kind::SetTodos as u16,
        feed_capnp::EventKind::MessageSet => Kind::SetMessage as u16,
        feed_capnp::EventKind::PartPut => Kind::PutPart as u16,
        feed_capnp::EventKind::PartRemoved => Kind::RemovePart as u16,
        feed_capnp::EventKind::TurnBegan => Kind::BeginTurn as u16,
        feed_capnp::EventKind::TurnEnded => Kind::EndTurn as u16,
        feed_capnp::EventKind::TurnRetried => Kind::RetryTurn as u16,
        feed_capnp::EventKind::TurnStarted => Kind::StartTurn as u16,
        feed_capnp::EventKind::HeadSet => Kind::SetHead as u16,
        feed_capnp::EventKind::CheckpointMade => Kind::MakeCheckpoint as u16,
        feed_capnp::EventKind::OutputsPruned => Kind::PruneOutputs as u16,
        feed_capnp::EventKind::Forked => Kind::ForkSession as u16,
        feed_capnp::EventKind::SessionRemoved => Kind::RemoveSession as u16,
        feed_capnp::EventKind::RulesSet => Kind::SetRules as u16,
        feed_capnp::EventKind::CheckpointDropped => Kind::DropCheckpoint as u16,
        feed_capnp::EventKind::WorktreeOpened => Kind::OpenWorktree as u16,
        feed_capnp::EventKind::SnapshotTaken => Kind::TakeSnapshot as u16,
        feed_capnp::EventKind::SnapshotNoted => Kind::NoteSnapshot as u16,
        feed_capnp::EventKind::FilesMoved => Kind::MoveFiles as u16,
        feed_capnp::EventKind::TurnMeasured => Kind::MeasureTurn as u16,
        feed_capnp::EventKind::SnapshotsDropped => Kind::DropSnapshots as u16,
    }
}

/// `forgetSubscription`, of any object.
pub(super) fn subscription_name(
    text: Read<capnp::text::Reader<'_>>,
) -> Result<SubscriptionName, Malformed> {
    Ok(SubscriptionName::parse(text?.to_str()?)?)
}

/// `Root.openProject`.
pub(super) fn open_project(
    params: Read<root::open_project_params::Reader<'_>>,
) -> Result<(BatchHeader, Op), Malformed> {
    let params = params?;
    let single = Single::read(params.get_op()?)?;
    let draft = params.get_project()?;
    let sent = canonical::<project_draft::Owned>(draft, draft.total_size()?)?;
    let (directory, name) = (draft.get_directory()?.to_str()?, draft.get_name()?.to_str()?);
    let (remote, root_commit) = (draft.get_remote()?.to_str()?, draft.get_root_commit()?.to_str()?);
    let rest = draft.get_rest()?;
    let action = chosen(draft.get_id()?.to_str()?, ProjectId::parse)
        .map_err(Refused::from)
        .and_then(|id| Ok(OpenProject::new(directory, id, name)?))
        .and_then(|wish| Ok(wish.with_rest(session::object("rest", rest)?)?))
        .map(|wish| Action::OpenProject(wish.of_repository(remote, root_commit)));
    Ok(single.op(only_segment(&sent), action))
}

/// `Project.createSession`.
pub(super) fn create_session(
    params: Read<project::create_session_params::Reader<'_>>,
) -> Result<(BatchHeader, Op), Malformed> {
    let params = params?;
    let single = Single::read(params.get_op()?)?;
    let draft = params.get_session()?;
    let sent = canonical::<session_draft::Owned>(draft, draft.total_size()?)?;
    let action = session_wish(draft)?.map(Action::CreateSession);
    Ok(single.op(only_segment(&sent), action))
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
        producer: producer(header.get_producer()?)?,
        epoch: numbered("producerEpoch", header.get_producer_epoch().into())? as u32,
        instance: instance(header.get_instance()?)?,
        first_seq,
        acked_through: header.get_acked_through(),
        capability_epoch: given(header.get_capability_epoch()),
        mode: match header.get_mode() {
            Ok(BatchMode::Each) => Mode::Each,
            Ok(BatchMode::Chain) => Mode::Chain,
            Ok(BatchMode::Atomic) => Mode::Atomic,
            Err(_) => return Err(Malformed::Mode),
        },
        batch: match header.get_batch_id()? {
            [] => None,
            id => Some(BatchId(sixteen("batchId", id)?)),
        },
    })
}

/// The header of a call that is one op.
struct Single {
    header: BatchHeader,
    id: OpId,
    conditions: Conditions,
}

impl Single {
    fn read(header: op_header::Reader<'_>) -> Result<Self, Malformed> {
        let batch = BatchHeader {
            producer: producer(header.get_producer()?)?,
            epoch: numbered("producerEpoch", header.get_producer_epoch().into())? as u32,
            instance: instance(header.get_instance()?)?,
            first_seq: numbered("seq", header.get_seq())?,
            acked_through: header.get_acked_through(),
            capability_epoch: given(header.get_capability_epoch()),
            mode: Mode::Each,
            batch: None,
        };
        let expects = match header.get_expects().which() {
            Ok(op_header::expects::Cursor(cursor)) => Some(Cursor(cursor)),
            Ok(op_header::expects::Anything(())) | Err(_) => None,
        };
        let depends_on = dependencies(header.get_depends_on()?);
        let id = OpId(sixteen("opId", header.get_op_id()?)?);
        Ok(Self { header: batch, id, conditions: Conditions { depends_on, expects } })
    }

    fn op(self, sent: &[u8], action: Result<Action, Refused>) -> (BatchHeader, Op) {
        self.op_with(sent, &[], action)
    }

    /// The conditions stand in the header, so they are compared beside what was sent, as is whatever else
    /// belongs to the call.
    fn op_with(
        self,
        sent: &[u8],
        tag: &[u8],
        action: Result<Action, Refused>,
    ) -> (BatchHeader, Op) {
        let mut beside = Zeroizing::new(tag.to_vec());
        if self.conditions != Conditions::default() {
            // Numbers into memory: that cannot fail.
            beside.extend(postcard::to_stdvec(&self.conditions).unwrap_or_default());
        }
        let sent = Sent { bytes: sent, beside: &beside, mode: Mode::Each };
        (self.header, Op::new(self.id, sent, self.conditions, action))
    }
}

/// One more than is accepted is enough to be refused by.
fn dependencies(list: capnp::primitive_list::Reader<'_, u64>) -> Vec<u64> {
    list.iter().take(DEPENDENCIES_MAX as usize + 1).collect()
}

/// A run that may be left unsaid.
fn instance(data: &[u8]) -> Result<Option<InstanceId>, Malformed> {
    match data {
        [] => Ok(None),
        id => Ok(Some(InstanceId(sixteen("instance", id)?))),
    }
}

/// A number of which 0 says nothing.
fn given(number: u64) -> Option<u64> {
    Some(number).filter(|number| *number > 0)
}

fn session_op(
    op: session_op::Reader<'_>,
    mode: Mode,
    permit: &Permit<'_>,
) -> Result<Op, Malformed> {
    let id = OpId(sixteen("opId", op.get_op_id()?)?);
    let sent = canonical::<session_op::Owned>(op, op.total_size()?)?;
    let expects = match op.get_expects().which() {
        Ok(session_op::expects::Cursor(cursor)) => Some(Cursor(cursor)),
        Ok(session_op::expects::Anything(())) | Err(_) => None,
    };
    let conditions = Conditions { depends_on: dependencies(op.get_depends_on()?), expects };
    // Looked at in our own copy: how often a caller's is read is limited.
    let action = session::action(id, sent.get_root_as_reader()?, only_segment(&sent), permit)?;
    let sent = Sent { bytes: only_segment(&sent), beside: &[], mode };
    Ok(Op::new(id, sent, conditions, action))
}

/// An id that may be left to the server.
fn chosen<T, E>(text: &str, parse: impl FnOnce(&str) -> Result<T, E>) -> Result<Option<T>, E> {
    if text.is_empty() { Ok(None) } else { parse(text).map(Some) }
}

fn producer(data: &[u8]) -> Result<ProducerId, Malformed> {
    match ProducerId(sixteen("producer", data)?) {
        ProducerId::SERVER => Err(Malformed::ServersProducer),
        producer => Ok(producer),
    }
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

/// See [`content::canonical`].
fn canonical<T: Owned>(
    reader: impl SetterInput<T>,
    size: MessageSize,
) -> capnp::Result<Builder<HeapAllocator>> {
    content::canonical(reader, size.word_count)
}
