//! The verbs: one file each, with its input, its rule and its refusals.
//!
//! A rule is handed the open transaction, the time and where its op would stand, and decides. It
//! never awaits, reads no clock and makes no randomness, so the same history always gives the same
//! state. It refuses *before* it writes anything: the engine checks that.

pub mod begin_turn;
pub mod bump_epoch;
pub mod checkpoint;
pub mod create_session;
pub mod delegate;
pub mod drop_left;
pub mod drop_snapshots;
pub mod end_delegation;
pub mod end_share;
pub mod end_turn;
pub mod fork_session;
pub mod found;
pub mod grow;
pub mod heartbeat;
pub mod make_grant;
pub mod measure_turn;
pub mod move_files;
pub mod open_project;
pub mod open_share;
pub mod open_worktree;
pub mod prune_outputs;
pub mod put_message;
pub mod put_part;
pub mod record;
pub mod remove_message;
pub mod remove_part;
pub mod remove_session;
pub mod retry_turn;
pub mod revoke_actor;
pub mod revoke_grant;
pub mod rotate_root;
pub mod said;
pub mod set_head;
pub mod set_history;
pub mod set_message;
pub mod set_rules;
pub mod set_title;
pub mod set_todos;
pub mod take_snapshot;
pub mod update_session;
pub mod upload;
pub mod use_ref;

pub use begin_turn::{BeginTurn, TurnBegan};
pub use bump_epoch::{BumpEpoch, EpochBumped};
pub use checkpoint::{CheckpointDropped, CheckpointMade, MakeCheckpoint};
pub use create_session::{CreateSession, SessionCreated};
pub use delegate::{Delegate, Delegated};
pub use drop_snapshots::{DropSnapshots, SnapshotsDropped};
pub use end_delegation::{CompleteDelegation, DelegationEnded};
pub use end_share::{EndShare, ShareEnded};
pub use end_turn::{EndTurn, TurnEnded, TurnStarted};
pub use fork_session::{ForkSession, Forked};
pub use make_grant::{GrantMade, MakeGrant};
pub use measure_turn::{MeasureTurn, TurnMeasured};
pub use move_files::{MoveFiles, MoveSession};
pub(crate) use open_project::rest_of as rest_of_project;
pub use open_project::{OpenProject, ProjectOpened};
pub use open_share::{OpenShare, ShareOpened};
pub use open_worktree::{OpenWorktree, WorktreeOpened};
pub use prune_outputs::{OutputsPruned, PruneOutputs};
pub use put_message::{MessagePut, PutMessage};
pub use put_part::{NewPart, PartPut, PutPart};
pub use record::{Record, Recorded};
pub use remove_message::{MessageRemoved, RemoveMessage};
pub use remove_part::{PartRemoved, RemovePart};
pub use remove_session::{RemoveSession, SessionRemoved};
pub use retry_turn::{RetryTurn, TurnRetried};
pub use revoke_actor::{ActorRevoked, RevokeActor};
pub use revoke_grant::{GrantRevoked, RevokeGrant};
pub use rotate_root::{RootRotated, RotateRoot};
pub use said::Said;
pub use set_head::{HeadSet, SetHead};
pub use set_history::{HistorySet, SetHistory};
pub use set_message::{MessageSet, SetMessage};
pub use set_rules::{RulesSet, SetRules};
pub use set_title::{SetTitle, TitleSet};
pub use set_todos::{SetTodos, TodosSet};
pub use take_snapshot::{SnapshotNoted, TakeSnapshot};
pub use update_session::{SessionUpdated, UpdateSession};

use crate::limits::{OP_PAYLOAD_BYTES_MAX, REFUSAL_TEXT_BYTES_MAX};
use crate::model::audit;
use crate::model::code::{Code, Coded};
use crate::model::conditions::Conditions;
use crate::model::grant::Fallen;
use crate::model::ids::{Cursor, Digest, GrantKey, LogId, OpId};
use crate::model::ledger::{self, Made, Mode};
use crate::store::{StoreError, Tx};

/// What an op says. Numbers are stored; a retired one stays taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// See [`open_project`].
    OpenProject = 1,
    /// See [`create_session`].
    CreateSession = 2,
    /// See [`put_message`].
    PutMessage = 3,
    /// See [`remove_message`].
    RemoveMessage = 4,
    /// See [`set_title`].
    SetTitle = 5,
    /// See [`set_history`].
    SetHistory = 6,
    /// See [`make_grant`].
    MakeGrant = 7,
    /// See [`revoke_grant`].
    RevokeGrant = 8,
    /// See [`bump_epoch`].
    BumpEpoch = 9,
    /// See [`revoke_actor`].
    RevokeActor = 10,
    /// See [`rotate_root`].
    RotateRoot = 11,
    /// See [`delegate`].
    Delegate = 12,
    /// See [`end_delegation`].
    EndDelegation = 13,
    /// See [`open_share`].
    OpenShare = 14,
    /// See [`end_share`].
    EndShare = 15,
    /// See [`update_session`].
    UpdateSession = 16,
    /// See [`set_todos`].
    SetTodos = 17,
    /// See [`set_message`].
    SetMessage = 18,
    /// See [`put_part`].
    PutPart = 19,
    /// See [`remove_part`].
    RemovePart = 20,
    /// See [`begin_turn`].
    BeginTurn = 21,
    /// See [`end_turn`].
    EndTurn = 22,
    /// See [`retry_turn`].
    RetryTurn = 23,
    /// See [`end_turn`].
    StartTurn = 24,
    /// See [`set_head`].
    SetHead = 25,
    /// See [`checkpoint`].
    MakeCheckpoint = 26,
    /// See [`prune_outputs`].
    PruneOutputs = 27,
    /// See [`fork_session`].
    ForkSession = 28,
    /// See [`remove_session`].
    RemoveSession = 29,
    /// See [`set_rules`].
    SetRules = 30,
    /// See [`checkpoint`].
    DropCheckpoint = 31,
    /// See [`open_worktree`].
    OpenWorktree = 32,
    /// See [`take_snapshot`].
    TakeSnapshot = 33,
    /// See [`take_snapshot`].
    NoteSnapshot = 34,
    /// See [`move_files`].
    MoveFiles = 35,
    /// See [`measure_turn`].
    MeasureTurn = 36,
    /// See [`drop_snapshots`].
    DropSnapshots = 37,
}

impl Kind {
    /// Every kind there is.
    pub const ALL: [Kind; 37] = [
        Kind::OpenProject,
        Kind::CreateSession,
        Kind::PutMessage,
        Kind::RemoveMessage,
        Kind::SetTitle,
        Kind::SetHistory,
        Kind::MakeGrant,
        Kind::RevokeGrant,
        Kind::BumpEpoch,
        Kind::RevokeActor,
        Kind::RotateRoot,
        Kind::Delegate,
        Kind::EndDelegation,
        Kind::OpenShare,
        Kind::EndShare,
        Kind::UpdateSession,
        Kind::SetTodos,
        Kind::SetMessage,
        Kind::PutPart,
        Kind::RemovePart,
        Kind::BeginTurn,
        Kind::EndTurn,
        Kind::RetryTurn,
        Kind::StartTurn,
        Kind::SetHead,
        Kind::MakeCheckpoint,
        Kind::PruneOutputs,
        Kind::ForkSession,
        Kind::RemoveSession,
        Kind::SetRules,
        Kind::DropCheckpoint,
        Kind::OpenWorktree,
        Kind::TakeSnapshot,
        Kind::NoteSnapshot,
        Kind::MoveFiles,
        Kind::MeasureTurn,
        Kind::DropSnapshots,
    ];

    /// The kind behind a stored number.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u16 == number)
    }

    /// Whether ops of a stored number tell who was given what.
    pub fn is_about_grants(number: u16) -> bool {
        matches!(
            Self::from_number(number),
            Some(
                Kind::MakeGrant
                    | Kind::RevokeGrant
                    | Kind::BumpEpoch
                    | Kind::RevokeActor
                    | Kind::RotateRoot
                    | Kind::Delegate
                    | Kind::EndDelegation
                    | Kind::OpenShare
                    | Kind::EndShare
            )
        )
    }

    /// Whether the state still shows such an op as long as nothing has replaced it. One that only takes
    /// away leaves nothing to keep.
    pub fn leaves_state(self) -> bool {
        !matches!(self, Kind::RemoveMessage)
    }
}

/// A change somebody wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// See [`open_project`].
    OpenProject(OpenProject),
    /// See [`create_session`].
    CreateSession(CreateSession),
    /// See [`put_message`].
    PutMessage(PutMessage),
    /// See [`remove_message`].
    RemoveMessage(RemoveMessage),
    /// See [`set_title`].
    SetTitle(SetTitle),
    /// See [`set_history`].
    SetHistory(SetHistory),
    /// See [`make_grant`].
    MakeGrant(MakeGrant),
    /// See [`revoke_grant`].
    RevokeGrant(RevokeGrant),
    /// See [`bump_epoch`].
    BumpEpoch(BumpEpoch),
    /// See [`revoke_actor`].
    RevokeActor(RevokeActor),
    /// See [`rotate_root`].
    RotateRoot(RotateRoot),
    /// See [`delegate`].
    Delegate(Box<Delegate>),
    /// See [`end_delegation`].
    CompleteDelegation(CompleteDelegation),
    /// See [`open_share`].
    OpenShare(Box<OpenShare>),
    /// See [`end_share`].
    EndShare(EndShare),
    /// See [`update_session`].
    UpdateSession(UpdateSession),
    /// See [`set_todos`].
    SetTodos(SetTodos),
    /// See [`set_message`].
    SetMessage(SetMessage),
    /// See [`put_part`].
    PutPart(PutPart),
    /// See [`remove_part`].
    RemovePart(RemovePart),
    /// See [`begin_turn`].
    BeginTurn(Box<BeginTurn>),
    /// See [`end_turn`].
    EndTurn(Box<EndTurn>),
    /// See [`retry_turn`].
    RetryTurn(RetryTurn),
    /// See [`set_head`].
    SetHead(SetHead),
    /// See [`checkpoint`].
    MakeCheckpoint(MakeCheckpoint),
    /// See [`prune_outputs`].
    PruneOutputs(PruneOutputs),
    /// See [`fork_session`].
    ForkSession(Box<ForkSession>),
    /// See [`remove_session`].
    RemoveSession(RemoveSession),
    /// See [`set_rules`].
    SetRules(SetRules),
}

impl Action {
    /// Whether it concerns only what its author has written, as far as can be told before it is tried.
    fn is_of_own(&self) -> bool {
        use Action::{
            BeginTurn, BumpEpoch, EndTurn, ForkSession, MakeCheckpoint, PruneOutputs, PutPart,
            RemovePart, RetryTurn, SetHead, SetHistory, SetMessage, SetTitle, SetTodos,
            UpdateSession,
        };
        !matches!(
            self,
            SetTitle(_)
                | SetHistory(_)
                | BumpEpoch(_)
                | UpdateSession(_)
                | SetTodos(_)
                | SetMessage(_)
                | PutPart(_)
                | RemovePart(_)
                | BeginTurn(_)
                | EndTurn(_)
                | RetryTurn(_)
                | SetHead(_)
                | MakeCheckpoint(_)
                | PruneOutputs(_)
                | ForkSession(_)
        )
    }
}

/// One op as the engine takes it: the change wanted, and what the ledger knows it by.
#[derive(Debug, Clone)]
pub struct Op {
    id: OpId,
    digest: Digest,
    bytes: usize,
    conditions: Conditions,
    action: Result<Action, Refused>,
}

/// What a client sent, as the ledger compares it.
#[derive(Debug, Clone, Copy)]
pub struct Sent<'a> {
    /// In a form that is the same whenever the same is sent.
    pub bytes: &'a [u8],
    /// Whatever else belongs to the op and is not among the bytes.
    pub beside: &'a [u8],
    /// How its batch is to be taken.
    pub mode: Mode,
}

impl Op {
    /// An op whose meaning is `action`, or the reason why it has none, to be tried under `conditions`.
    ///
    /// A bad argument becomes an op too: it is refused under its number, so that it does not hold up
    /// the ops behind it.
    pub fn new<E: Into<Refused>>(
        id: OpId,
        sent: Sent<'_>,
        conditions: Conditions,
        action: Result<Action, E>,
    ) -> Self {
        let digest = ledger::digest(id, sent.bytes, sent.mode, sent.beside);
        let action = match sent.bytes.len() {
            bytes if bytes > OP_PAYLOAD_BYTES_MAX => Err(TooLarge { bytes }.into()),
            _ => action.map_err(Into::into),
        };
        Self { id, digest, bytes: sent.bytes.len(), conditions, action }
    }

    /// Its name.
    pub fn id(&self) -> OpId {
        self.id
    }

    /// What the ledger compares.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Under which conditions it may be tried.
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// Whether it takes authority back. Room is kept for such ops where there is none for others.
    pub fn takes_back(&self) -> bool {
        matches!(
            &self.action,
            Ok(Action::RevokeGrant(_)
                | Action::RevokeActor(_)
                | Action::BumpEpoch(_)
                | Action::RotateRoot(_)
                | Action::EndShare(_))
        )
    }

    /// Whether only a delegate can mean it.
    pub(crate) fn ends_delegation(&self) -> bool {
        matches!(&self.action, Ok(Action::CompleteDelegation(_)))
    }

    /// What it takes up in a queue.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// An op larger than the server takes.
#[derive(Debug, thiserror::Error)]
#[error("the op is {bytes} bytes long; the most accepted is {OP_PAYLOAD_BYTES_MAX}")]
struct TooLarge {
    bytes: usize,
}

impl Coded for TooLarge {
    fn code(&self) -> Code {
        Code::OpTooLarge
    }
}

/// A deterministic "no", as it is recorded and told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The stable code.
    pub code: Code,
    /// For people.
    pub text: String,
}

impl<E: Coded> From<E> for Refused {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        // It is kept until it is acknowledged, and may quote what was sent.
        let mut end = text.len().min(REFUSAL_TEXT_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        Self { code: error.code(), text }
    }
}

/// Where an op would stand if it is applied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) log: LogId,
    pub(crate) cursor: Cursor,
    pub(crate) now_ms: u64,
    /// Under which authority.
    pub(crate) granted: GrantKey,
    /// Whether that is good only for what was written under it.
    pub(crate) only_own: bool,
}

impl Place {
    /// Where the how-manieth op of the server's own stands that follows on this one in the same log.
    fn later(self, n: u64) -> Self {
        Self { cursor: Cursor(self.cursor.0 + n), ..self }
    }
}

/// What an op did.
#[derive(Debug)]
pub(crate) struct Effect<'a> {
    pub(crate) made: Made,
    /// What goes into the history; none if nothing changed.
    pub(crate) entry: Option<Entry<'a>>,
    /// Grants that stand no more.
    pub(crate) cut: Vec<Cut>,
    /// What the server itself has to say about it.
    pub(crate) also: Vec<Also>,
    /// What a log that was made with it is filled with.
    pub(crate) fill: Option<Fill>,
    /// Logs of which nothing is left.
    pub(crate) erased: Vec<LogId>,
    /// Whether what it made was there before, though something about it is new.
    pub(crate) found: bool,
    /// What the audit trail calls it, and the grant it is about.
    pub(crate) audited: (audit::Kind, Option<GrantKey>),
}

/// Something the server itself has to say.
#[derive(Debug)]
pub(crate) struct Also {
    /// In which log.
    pub(crate) log: LogId,
    pub(crate) entry: Entry<'static>,
    /// Under which grant the one acts whom it is about.
    pub(crate) granted: GrantKey,
}

/// What a log that was just made is filled with, one op after another.
pub(crate) struct Fill {
    /// Which log.
    pub(crate) log: LogId,
    /// Under which grant.
    pub(crate) granted: GrantKey,
    next: Box<NextEntry>,
}

type NextEntry = dyn Fn(&Tx<'_>, Place) -> Result<Option<Entry<'static>>, StoreError>;

impl Fill {
    fn new(
        log: LogId,
        granted: GrantKey,
        next: impl Fn(&Tx<'_>, Place) -> Result<Option<Entry<'static>>, StoreError> + 'static,
    ) -> Self {
        Self { log, granted, next: Box::new(next) }
    }

    /// The next op, to stand there; none if that was all.
    pub(crate) fn next(
        &self,
        tx: &Tx<'_>,
        place: Place,
    ) -> Result<Option<Entry<'static>>, StoreError> {
        (self.next)(tx, place)
    }
}

impl std::fmt::Debug for Fill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fill").field("log", &self.log).finish_non_exhaustive()
    }
}

/// A grant that stands no more, and why.
pub(crate) type Cut = (GrantKey, Fallen);

impl<'a> Effect<'a> {
    /// Of an op that touches no grant.
    fn new(made: Made, entry: Option<Entry<'a>>) -> Self {
        Self {
            made,
            entry,
            cut: Vec::new(),
            also: Vec::new(),
            fill: None,
            erased: Vec::new(),
            found: false,
            audited: (audit::Kind::Changed, None),
        }
    }

    /// What the audit trail calls it.
    fn audited(self, kind: audit::Kind, subject: Option<GrantKey>) -> Self {
        Self { audited: (kind, subject), ..self }
    }

    /// What it made was there before.
    fn found(self) -> Self {
        Self { found: true, ..self }
    }

    /// What it takes back.
    fn cutting(self, keys: Vec<GrantKey>, why: Fallen) -> Self {
        Self { cut: keys.into_iter().map(|key| (key, why)).collect(), ..self }
    }
}

/// Somebody who may only touch what was written under his own grant reaches further.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("this object may only add messages, and remove those that were added under its own grant")]
pub(crate) struct NotOwn;

impl Coded for NotOwn {
    fn code(&self) -> Code {
        Code::NotPermitted
    }
}

/// An op's line in the history.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) kind: Kind,
    pub(crate) version: u16,
    /// The op in the same log whose effect is gone with this one.
    pub(crate) replaces: Option<Cursor>,
    pub(crate) payload: std::borrow::Cow<'a, [u8]>,
}

/// Why an op was not applied.
#[derive(Debug)]
pub(crate) enum NotApplied {
    /// It never will be.
    Refused(Refused),
    /// The store failed; nothing was decided.
    Store(StoreError),
}

impl<E: Into<Refused>> From<E> for NotApplied {
    fn from(error: E) -> Self {
        NotApplied::Refused(error.into())
    }
}

impl From<StoreError> for NotApplied {
    fn from(error: StoreError) -> Self {
        NotApplied::Store(error)
    }
}

/// Runs the rule of one op.
pub(crate) fn apply<'a>(tx: &Tx<'_>, place: Place, op: &'a Op) -> Result<Effect<'a>, NotApplied> {
    match &op.action {
        Err(refused) => Err(NotApplied::Refused(refused.clone())),
        Ok(action) if place.only_own && !action.is_of_own() => Err(NotOwn.into()),
        Ok(Action::OpenProject(action)) => action.apply(tx, place, op.id),
        Ok(Action::CreateSession(action)) => action.apply(tx, place, op.id),
        Ok(Action::PutMessage(action)) => action.apply(tx, place),
        Ok(Action::RemoveMessage(action)) => action.apply(tx, place),
        Ok(Action::SetTitle(action)) => action.apply(tx, place),
        Ok(Action::SetHistory(action)) => action.apply(tx, place),
        Ok(Action::MakeGrant(action)) => action.apply(tx, place, op.id),
        Ok(Action::RevokeGrant(action)) => action.apply(tx, place),
        Ok(Action::BumpEpoch(action)) => action.apply(tx, place),
        Ok(Action::RevokeActor(action)) => action.apply(tx, place),
        Ok(Action::RotateRoot(action)) => action.apply(tx, place, op.id),
        Ok(Action::Delegate(action)) => action.apply(tx, place, op.id),
        Ok(Action::CompleteDelegation(action)) => action.apply(tx, place),
        Ok(Action::OpenShare(action)) => action.apply(tx, place, op.id),
        Ok(Action::EndShare(action)) => action.apply(tx, place),
        Ok(Action::UpdateSession(action)) => action.apply(tx, place),
        Ok(Action::SetTodos(action)) => action.apply(tx, place),
        Ok(Action::SetMessage(action)) => action.apply(tx, place),
        Ok(Action::PutPart(action)) => action.apply(tx, place),
        Ok(Action::RemovePart(action)) => action.apply(tx, place),
        Ok(Action::BeginTurn(action)) => action.apply(tx, place),
        Ok(Action::EndTurn(action)) => action.apply(tx, place),
        Ok(Action::RetryTurn(action)) => action.apply(tx, place),
        Ok(Action::SetHead(action)) => action.apply(tx, place),
        Ok(Action::MakeCheckpoint(action)) => action.apply(tx, place),
        Ok(Action::PruneOutputs(action)) => action.apply(tx, place),
        Ok(Action::ForkSession(action)) => action.apply(tx, place, op.id),
        Ok(Action::RemoveSession(action)) => action.apply(tx, place),
        Ok(Action::SetRules(action)) => action.apply(tx, place),
    }
}

/// The history's form of an op that is not just what was sent.
fn entry<T: serde::Serialize>(
    kind: Kind,
    version: u16,
    payload: &T,
) -> Result<Option<Entry<'static>>, NotApplied> {
    entry_replacing(None, kind, version, payload)
}

/// The same for an op that makes an earlier one in the same log count no more.
fn entry_replacing<T: serde::Serialize>(
    replaces: Option<Cursor>,
    kind: Kind,
    version: u16,
    payload: &T,
) -> Result<Option<Entry<'static>>, NotApplied> {
    Ok(Some(Entry { replaces, ..encoded(kind, version, payload)? }))
}

fn encoded<T: serde::Serialize>(
    kind: Kind,
    version: u16,
    payload: &T,
) -> Result<Entry<'static>, StoreError> {
    let payload = postcard::to_stdvec(payload)
        .map_err(|error| StoreError::Other(format!("an op could not be encoded: {error}")))?;
    Ok(Entry { kind, version, replaces: None, payload: payload.into() })
}
