//! What an op of the history says, and making again what follows from it.
//!
//! Every verb writes its projection through the same few lines here and when it is first applied, so a
//! rebuild cannot disagree with what was stored by doing it another way.

use super::create_session::{SessionCreatedV1, SessionCreatedV2};
use super::open_project::{ProjectOpenedV1, ProjectOpenedV2};
use super::{
    ActorRevoked, CheckpointDropped, CheckpointMade, Delegated, DelegationEnded, EpochBumped,
    Forked, GrantMade, GrantRevoked, HeadSet, HistorySet, Kind, MessagePut, MessageRemoved,
    MessageSet, OutputsPruned, PartPut, PartRemoved, Place, ProjectOpened, RootRotated, RulesSet,
    SessionCreated, SessionRemoved, SessionUpdated, ShareEnded, ShareOpened, SnapshotNoted,
    SnapshotsDropped, TitleSet, TodosSet, TurnBegan, TurnEnded, TurnMeasured, TurnRetried,
    TurnStarted, WorktreeOpened, move_files, take_snapshot,
};
use crate::model::history::FOR_EVER;
use crate::model::ids::{Cursor, GrantId, OpId};
use crate::model::share::View;
use crate::model::worktree::{Move, Snapshot};
use crate::store::{self, Read, StoreError, Tx};
use serde::Deserialize;

/// What an op of the history says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said<'a> {
    /// See [`super::open_project`].
    ProjectOpened(ProjectOpened<'a>),
    /// See [`super::create_session`].
    SessionCreated(Box<SessionCreated<'a>>),
    /// See [`super::put_message`].
    MessagePut(MessagePut<'a>),
    /// See [`super::remove_message`].
    MessageRemoved(MessageRemoved),
    /// See [`super::set_title`].
    TitleSet(TitleSet<'a>),
    /// See [`super::set_history`].
    HistorySet(HistorySet),
    /// See [`super::make_grant`].
    GrantMade(GrantMade<'a>),
    /// See [`super::revoke_grant`].
    GrantRevoked(GrantRevoked),
    /// See [`super::bump_epoch`].
    EpochBumped(EpochBumped),
    /// See [`super::revoke_actor`].
    ActorRevoked(ActorRevoked<'a>),
    /// See [`super::rotate_root`].
    RootRotated(RootRotated),
    /// See [`super::delegate`].
    Delegated(Delegated<'a>),
    /// See [`super::end_delegation`].
    DelegationEnded(DelegationEnded<'a>),
    /// See [`super::open_share`].
    ShareOpened(ShareOpened),
    /// See [`super::end_share`].
    ShareEnded(ShareEnded),
    /// See [`super::update_session`].
    SessionUpdated(SessionUpdated),
    /// See [`super::set_todos`].
    TodosSet(TodosSet),
    /// See [`super::set_message`].
    MessageSet(MessageSet<'a>),
    /// See [`super::put_part`].
    PartPut(PartPut<'a>),
    /// See [`super::remove_part`].
    PartRemoved(PartRemoved),
    /// See [`super::begin_turn`].
    TurnBegan(TurnBegan),
    /// See [`super::end_turn`].
    TurnEnded(TurnEnded),
    /// See [`super::retry_turn`].
    TurnRetried(TurnRetried),
    /// See [`super::end_turn`].
    TurnStarted(TurnStarted),
    /// See [`super::set_head`].
    HeadSet(HeadSet),
    /// See [`super::checkpoint`].
    CheckpointMade(CheckpointMade),
    /// See [`super::prune_outputs`].
    OutputsPruned(OutputsPruned),
    /// See [`super::fork_session`].
    Forked(Forked),
    /// See [`super::remove_session`].
    SessionRemoved(SessionRemoved),
    /// See [`super::set_rules`].
    RulesSet(RulesSet),
    /// See [`super::checkpoint`].
    CheckpointDropped(CheckpointDropped),
    /// See [`super::open_worktree`].
    WorktreeOpened(WorktreeOpened),
    /// See [`super::take_snapshot`].
    SnapshotTaken(Box<Snapshot>),
    /// See [`super::take_snapshot`].
    SnapshotNoted(SnapshotNoted),
    /// See [`super::move_files`].
    FilesMoved(Move),
    /// See [`super::measure_turn`].
    TurnMeasured(TurnMeasured),
    /// See [`super::drop_snapshots`].
    SnapshotsDropped(SnapshotsDropped),
}

impl<'a> Said<'a> {
    /// Reads an op back. `op` is its name, which may stand for an id that was made from it.
    pub fn read(op: OpId, kind: u16, version: u16, payload: &'a [u8]) -> Result<Self, StoreError> {
        let odd = |error: postcard::Error| {
            StoreError::Corrupt(format!("an op of kind {kind} in the history: {error}"))
        };
        let readable = |kind: &Kind| match kind {
            Kind::CreateSession | Kind::OpenProject => (1..=3).contains(&version),
            Kind::PutMessage | Kind::SetHead => version == 1 || version == 2,
            _ => version == 1,
        };
        let Some(known) = Kind::from_number(kind).filter(readable) else {
            return Err(StoreError::Corrupt(format!(
                "the history holds an op of unknown kind {kind} or version {version}"
            )));
        };
        let said = match known {
            Kind::OpenProject if version == 1 => whole::<ProjectOpenedV1<'_>>(payload)
                .map(|opened| Said::ProjectOpened(opened.into())),
            Kind::OpenProject if version == 2 => whole::<ProjectOpenedV2<'_>>(payload)
                .map(|opened| Said::ProjectOpened(opened.into())),
            Kind::OpenProject => whole(payload).map(Said::ProjectOpened),
            Kind::CreateSession if version == 1 => whole::<SessionCreatedV1<'_>>(payload)
                .map(|created| Said::SessionCreated(Box::new(created.into()))),
            Kind::CreateSession if version == 2 => whole::<SessionCreatedV2<'_>>(payload)
                .map(|created| Said::SessionCreated(Box::new(created.into()))),
            Kind::CreateSession => whole(payload).map(Box::new).map(Said::SessionCreated),
            Kind::PutMessage => MessagePut::read(op, version, payload).map(Said::MessagePut),
            Kind::RemoveMessage => whole(payload).map(Said::MessageRemoved),
            Kind::SetTitle => whole(payload).map(Said::TitleSet),
            Kind::SetHistory => whole(payload).map(Said::HistorySet),
            Kind::MakeGrant => whole(payload).map(Said::GrantMade),
            Kind::RevokeGrant => whole(payload).map(Said::GrantRevoked),
            Kind::BumpEpoch => whole(payload).map(Said::EpochBumped),
            Kind::RevokeActor => whole(payload).map(Said::ActorRevoked),
            Kind::RotateRoot => whole(payload).map(Said::RootRotated),
            Kind::Delegate => whole(payload).map(Said::Delegated),
            Kind::EndDelegation => whole(payload).map(Said::DelegationEnded),
            Kind::OpenShare => whole(payload).map(Said::ShareOpened),
            Kind::EndShare => whole(payload).map(Said::ShareEnded),
            Kind::UpdateSession => whole(payload).map(Said::SessionUpdated),
            Kind::SetTodos => whole(payload).map(Said::TodosSet),
            Kind::SetMessage => MessageSet::read(payload).map(Said::MessageSet),
            Kind::PutPart => PartPut::read(payload).map(Said::PartPut),
            Kind::RemovePart => whole(payload).map(Said::PartRemoved),
            Kind::BeginTurn => whole(payload).map(Said::TurnBegan),
            Kind::EndTurn => whole(payload).map(Said::TurnEnded),
            Kind::RetryTurn => whole(payload).map(Said::TurnRetried),
            Kind::StartTurn => whole(payload).map(Said::TurnStarted),
            Kind::SetHead => HeadSet::read(version, payload).map(Said::HeadSet),
            Kind::MakeCheckpoint => whole(payload).map(Said::CheckpointMade),
            Kind::PruneOutputs => whole(payload).map(Said::OutputsPruned),
            Kind::ForkSession => whole(payload).map(Said::Forked),
            Kind::RemoveSession => whole(payload).map(Said::SessionRemoved),
            Kind::SetRules => whole(payload).map(Said::RulesSet),
            Kind::DropCheckpoint => whole(payload).map(Said::CheckpointDropped),
            Kind::OpenWorktree => whole(payload).map(Said::WorktreeOpened),
            Kind::TakeSnapshot => whole(payload).map(Box::new).map(Said::SnapshotTaken),
            Kind::NoteSnapshot => whole(payload).map(Said::SnapshotNoted),
            Kind::MoveFiles => whole(payload).map(Said::FilesMoved),
            Kind::MeasureTurn => whole(payload).map(Said::TurnMeasured),
            Kind::DropSnapshots => whole(payload).map(Said::SnapshotsDropped),
        };
        said.map_err(odd)
    }

    /// The op in the same log whose effect is gone with this one, before it is made to follow.
    pub(crate) fn replaces(
        &self,
        read: &Read<'_>,
        place: Place,
    ) -> Result<Option<Cursor>, StoreError> {
        let set_at =
            || Ok::<_, StoreError>(store::sessions::set_at(read, place.log)?.unwrap_or_default());
        let replaced = match self {
            Said::MessageRemoved(removed) => removed.cursor,
            Said::TitleSet(_) => set_at()?.0,
            Said::HistorySet(_) => set_at()?.1,
            Said::MessageSet(set) => return set.replaces(read, place),
            Said::PartPut(put) => return put.replaces(read, place),
            Said::PartRemoved(removed) => removed.put_at,
            Said::TurnRetried(retried) => return retried.replaces(read, place),
            Said::RulesSet(set) => return set.replaces(read, place),
            _ => Cursor(0),
        };
        Ok(Some(replaced).filter(|cursor| cursor.0 > 0))
    }

    /// Whether a share shows an op that stands there.
    pub fn is_shown(&self, view: View, at: Cursor) -> bool {
        match self {
            Said::MessagePut(_) => view.shows(at),
            // However late it is taken away, what was shown is not shown any more.
            Said::MessageRemoved(removed) => view.shows(removed.cursor),
            Said::MessageSet(set) => view.shows(set.head.cursor),
            Said::PartPut(put) => view.shows(put.head.cursor),
            Said::PartRemoved(removed) => view.shows(removed.cursor),
            // Where the conversation ends, so that a guest does not go on showing what was taken back.
            Said::HeadSet(_) => true,
            Said::TitleSet(_) => true,
            _ => false,
        }
    }

    /// What is wrong with the grants, seeing what an op says of them. They are no projection, but the history
    /// tells what they were made with, and that they ended.
    pub(crate) fn contradicted(&self, read: &Read<'_>) -> Result<Option<String>, StoreError> {
        let (id, as_made) = match self {
            Said::GrantMade(made) => {
                (made.id, Some((made.rights, made.expires_at_ms, &made.label, &made.actor)))
            }
            Said::Delegated(made) => {
                (made.id, Some((made.rights, made.expires_at_ms, &made.label, &made.actor)))
            }
            Said::GrantRevoked(revoked) => (revoked.id, None),
            Said::DelegationEnded(ended) => (ended.id, None),
            Said::RootRotated(rotated) => (rotated.former, None),
            _ => return Ok(None),
        };
        let Some(grant) = store::grants::by_id(read, id)? else {
            return Ok(Some(format!(
                "grants: grant {id}, of which the history tells, is not there"
            )));
        };
        let (same, parent) = match (self, as_made) {
            (_, None) => (grant.ended.is_some(), true),
            (said, Some((rights, expires_at_ms, label, actor))) => {
                let authority = &grant.authority;
                let same = authority.rights.bits() == rights
                    && authority.expires_at_ms == expires_at_ms.map(|at_ms| at_ms.min(FOR_EVER))
                    && grant.label == **label
                    && grant.actor == **actor;
                (same, said.has_parent(read, &grant)?)
            }
        };
        Ok((!same || !parent).then(|| {
            format!("grants: grant {id} is not what the history says it was made, or became")
        }))
    }

    /// The grant an op has made, if it has.
    pub(crate) fn made_grant(&self) -> Option<GrantId> {
        match self {
            Said::GrantMade(made) => Some(made.id),
            Said::Delegated(delegated) => Some(delegated.id),
            Said::ShareOpened(opened) => Some(opened.grant),
            Said::RootRotated(rotated) => Some(rotated.id),
            _ => None,
        }
    }

    /// Whether a grant is still derived from the one it was derived from; a root that was rotated hands its
    /// own on to the next.
    fn has_parent(
        &self,
        read: &Read<'_>,
        grant: &store::grants::Grant,
    ) -> Result<bool, StoreError> {
        let Said::GrantMade(made) = self else { return Ok(true) };
        let Some(parent) = grant.parent else { return Ok(false) };
        let (now, then) =
            (store::grants::get(read, parent)?, store::grants::by_id(read, made.parent)?);
        Ok(match (now, then) {
            (Some(now), Some(then)) => {
                now.id == then.id || (now.parent.is_none() && then.parent.is_none())
            }
            _ => false,
        })
    }

    /// Makes what follows from an op of the history. It was decided long ago; nothing is checked.
    pub(crate) fn replay(&self, tx: &Tx<'_>, place: Place) -> Result<(), StoreError> {
        match self {
            Said::ProjectOpened(opened) => opened.project(tx, place),
            Said::SessionCreated(created) => created.project(tx, place),
            Said::MessagePut(put) => put.project(tx, place),
            Said::MessageRemoved(removed) => removed.project(tx, place),
            Said::TitleSet(set) => set.project(tx, place),
            Said::HistorySet(set) => set.project(tx, place),
            Said::ShareOpened(opened) => opened.project(tx, place),
            Said::ShareEnded(ended) => ended.project(tx, place),
            Said::SessionUpdated(said) => said.project(tx, place),
            Said::TodosSet(said) => said.project(tx, place),
            Said::MessageSet(said) => said.project(tx, place),
            Said::PartPut(said) => said.project(tx, place),
            Said::PartRemoved(said) => said.project(tx, place),
            Said::TurnBegan(said) => said.project(tx, place),
            Said::TurnEnded(said) => said.project(tx, place),
            Said::TurnRetried(said) => said.project(tx, place),
            Said::TurnStarted(said) => said.project(tx, place),
            Said::HeadSet(said) => said.project(tx, place),
            Said::CheckpointMade(said) => said.project(tx, place),
            Said::SessionRemoved(said) => said.project(tx, place),
            Said::RulesSet(said) => said.project(tx, place),
            Said::CheckpointDropped(said) => said.project(tx, place),
            Said::WorktreeOpened(said) => said.project(tx, place),
            Said::SnapshotTaken(said) => take_snapshot::project(said, tx, place),
            Said::SnapshotNoted(said) => said.project(tx, place),
            Said::FilesMoved(said) => move_files::project(said, tx, place),
            Said::TurnMeasured(said) => said.project(tx, place),
            Said::SnapshotsDropped(said) => said.project(tx, place),
            // What follows from these, ops of their own say.
            Said::OutputsPruned(_) | Said::Forked(_) => Ok(()),
            // Grants are no projection: what fits their secrets is nowhere in the history. Nor are
            // delegations, which are about them.
            Said::Delegated(_)
            | Said::DelegationEnded(_)
            | Said::GrantMade(_)
            | Said::GrantRevoked(_)
            | Said::EpochBumped(_)
            | Said::ActorRevoked(_)
            | Said::RootRotated(_) => Ok(()),
        }
    }
}

pub(super) fn whole<'a, T: Deserialize<'a>>(payload: &'a [u8]) -> Result<T, postcard::Error> {
    match postcard::take_from_bytes(payload)? {
        (value, []) => Ok(value),
        _ => Err(postcard::Error::DeserializeBadEncoding),
    }
}
