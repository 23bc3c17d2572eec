//! Questions about work trees, their snapshots, and who did what in them.

use super::{QueryError, Readers};
use crate::limits::INTERVALS_MAX;
use crate::model::content::{self, Stored};
use crate::model::ids::{Cursor, LogId, ObjectId, SessionId, SnapshotId, TurnId, WorktreeId};
use crate::model::infos::ProjectKey;
use crate::model::page::{Page, Paged};
use crate::model::timeline::Timeline;
use crate::model::worktree::{
    Actor, CallName, Move, SnapshotInfo, SnapshotKey, WorktreeInfo, WorktreeKey,
};
use crate::ops::{MessagePut, NotApplied, Place, Said, SetHead};
use crate::store::snapshots::{Moved, Noted};
use crate::store::{self, Read, StoreError};
use std::collections::HashSet;

/// Something in the history of a work tree's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// What changed up to a snapshot, and who was at work meanwhile.
    Changed(Box<SnapshotInfo>),
    /// What was put back.
    Moved(Moved),
}

/// What is to be known before a conversation is taken back along with its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewind {
    /// What the conversation would be like; none if it would stay as it is.
    pub planned: Option<Timeline>,
    /// The work tree the session has touched; none if it has touched none.
    pub worktree: Option<WorktreeKey>,
    /// What happened to its files since the place the conversation goes back to.
    pub since: Vec<Happened>,
    /// The sessions whose work is the session's own, and up to which snapshot. A fork has inherited some.
    pub own: Vec<(LogId, Cursor)>,
}

impl Rewind {
    /// Whether a turn at work is the session's own, at a snapshot.
    pub fn is_own(&self, session: LogId, number: Cursor) -> bool {
        self.own.iter().any(|(own, up_to)| *own == session && number <= *up_to)
    }
}

/// What there is to know before a snapshot is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Before {
    /// The last one; none if there is none.
    pub last: Option<SnapshotInfo>,
    /// What was put back since.
    pub moved: Vec<Moved>,
    /// Who was at work since.
    pub actors: Vec<Actor>,
}

impl Readers {
    /// The work tree of a project with this id.
    pub async fn worktree(
        &self,
        project: LogId,
        id: WorktreeId,
    ) -> Result<WorktreeKey, QueryError> {
        self.ask(move |read| match store::trees::by_id(read, &id)? {
            Some(key) if key.project == project => Ok(key),
            _ => Err(QueryError::WorktreeNotFound(id)),
        })
        .await
    }

    /// What is told about a work tree.
    pub async fn worktree_info(&self, log: LogId) -> Result<WorktreeInfo, QueryError> {
        self.ask(move |read| store::trees::info(read, log)?.ok_or(QueryError::WorktreeGone)).await
    }

    /// The work tree of a project's sandbox.
    pub async fn sandbox(
        &self,
        project: LogId,
        name: String,
    ) -> Result<Option<WorktreeInfo>, QueryError> {
        self.ask(move |read| Ok(store::trees::of_sandbox(read, project, &name)?)).await
    }

    /// A work tree by its log.
    pub async fn worktree_key(&self, log: LogId) -> Result<WorktreeKey, QueryError> {
        self.ask(move |read| store::trees::at(read, log)?.ok_or(QueryError::WorktreeGone)).await
    }

    /// A page of a project's work trees.
    pub async fn worktrees(
        &self,
        project: LogId,
        page: Page,
    ) -> Result<Paged<WorktreeInfo>, QueryError> {
        self.ask(move |read| Ok(store::trees::page(read, project, page)?)).await
    }

    /// Every work tree there is.
    pub async fn all_worktrees(&self) -> Result<Vec<WorktreeKey>, QueryError> {
        self.ask(|read| Ok(store::trees::all(read)?)).await
    }

    /// The directory a project was opened in first, and the project.
    pub async fn project_key(&self, log: LogId) -> Result<(ProjectKey, String), QueryError> {
        self.ask(move |read| {
            let info = store::projects::info(read, log)?.ok_or(QueryError::ProjectGone)?;
            Ok((ProjectKey { log, id: info.id }, info.directory))
        })
        .await
    }

    /// The work tree a session works in: the one it has touched last; or else that of its directory, or of a directory
    /// above. And its project, with the directory a work tree would be opened for.
    pub async fn session_worktree(
        &self,
        session: LogId,
    ) -> Result<(ProjectKey, Option<WorktreeKey>, String), QueryError> {
        self.ask(move |read| {
            let info = store::sessions::info(read, session)?.ok_or(QueryError::SessionGone)?;
            let project = store::logs::get(read, session)?.project.unwrap_or(session);
            let of = store::projects::info(read, project)?.ok_or(QueryError::ProjectGone)?;
            let key = ProjectKey { log: project, id: of.id };
            let mut directory = info.details.directory;
            if directory.is_empty() {
                directory = of.directory;
            }
            let mut at = directory.as_str();
            loop {
                let found = store::trees::of_directory(read, at)?;
                if let Some(found) = found.filter(|found| found.project == project) {
                    return Ok((key, Some(found), directory));
                }
                if store::worktrees::project_of(read, at)? == Some(project) {
                    return Ok((key, None, at.to_owned()));
                }
                match at.rfind('/') {
                    Some(slash) if slash > 0 => at = &at[..slash],
                    _ => return Ok((key, None, directory)),
                }
            }
        })
        .await
    }

    /// The snapshot of a work tree that a call took, if it did.
    pub async fn snapshot_named(
        &self,
        worktree: LogId,
        name: CallName,
    ) -> Result<Option<SnapshotInfo>, QueryError> {
        self.ask(move |read| Ok(store::snapshots::named(read, worktree, name)?)).await
    }

    /// The snapshot of a work tree with this id.
    pub async fn snapshot(
        &self,
        worktree: LogId,
        id: SnapshotId,
    ) -> Result<SnapshotInfo, QueryError> {
        self.ask(move |read| {
            store::snapshots::within(read, worktree, &id)?.ok_or(QueryError::SnapshotNotFound(id))
        })
        .await
    }

    /// What is told about a snapshot.
    pub async fn snapshot_info(&self, log: LogId) -> Result<SnapshotInfo, QueryError> {
        self.ask(move |read| store::snapshots::info(read, log)?.ok_or(QueryError::SnapshotGone))
            .await
    }

    /// A page of the snapshots of a work tree.
    pub async fn snapshots(
        &self,
        worktree: LogId,
        page: Page,
    ) -> Result<Paged<SnapshotInfo>, QueryError> {
        self.ask(move |read| Ok(store::snapshots::page(read, worktree, page)?)).await
    }

    /// What there is to know before a snapshot is recorded.
    pub async fn before_snapshot(&self, worktree: LogId) -> Result<Before, QueryError> {
        self.ask(move |read| {
            let last = store::snapshots::latest(read, worktree)?;
            let (number, since_ms) =
                last.as_ref().map_or((Cursor(0), 0), |last| (last.number, last.taken_at_ms));
            let moved = store::snapshots::moved_behind(read, worktree, number, INTERVALS_MAX)?;
            let actors = store::snapshots::at_work(read, worktree, since_ms)?;
            Ok(Before { last, moved, actors })
        })
        .await
    }

    /// What a call did to files, if it has; with the trees it is about.
    pub async fn moved(&self, worktree: LogId, name: CallName) -> Result<Option<Move>, QueryError> {
        self.ask(move |read| {
            let Some(at) = store::snapshots::moved_at(read, worktree, name)? else {
                return Ok(None);
            };
            let Some((op, kind, version, payload)) = store::ops::at(read, worktree, at)? else {
                return Ok(None);
            };
            match Said::read(op, kind, version, &payload)? {
                Said::FilesMoved(moved) => Ok(Some(moved)),
                _ => Ok(None),
            }
        })
        .await
    }

    /// The work trees a session has touched.
    pub async fn touched_worktrees(&self, session: LogId) -> Result<Vec<LogId>, QueryError> {
        self.ask(move |read| Ok(store::snapshots::touched(read, session)?)).await
    }

    /// Whether a call has taken a session's conversation back.
    pub async fn was_reverted_by(
        &self,
        session: LogId,
        name: CallName,
    ) -> Result<bool, QueryError> {
        self.ask(move |read| Ok(store::snapshots::was_reverted_by(read, session, name)?)).await
    }

    /// What the files of a work tree have gone through behind a cursor in its log.
    pub async fn happened(
        &self,
        worktree: LogId,
        behind: Cursor,
    ) -> Result<Vec<Happened>, QueryError> {
        self.ask(move |read| happened(read, worktree, behind)).await
    }

    /// What is to be known before a conversation is taken back along with its files. The refusal, if it cannot be.
    pub async fn rewind(
        &self,
        session: LogId,
        head: SetHead,
    ) -> Result<Result<Rewind, crate::ops::Refused>, QueryError> {
        self.ask(move |read| rewind(read, session, &head)).await
    }

    /// A turn by its id, with who it is.
    pub async fn actor(&self, session: LogId, id: TurnId) -> Result<Actor, QueryError> {
        self.ask(move |read| match store::turns::get(read, session, &id)? {
            Some(turn) => Ok(Actor { session, turn: turn.cursor }),
            None => Err(QueryError::TurnNotFound(id)),
        })
        .await
    }

    /// Turns that have ended and whose files were not taken down since.
    pub async fn unclosed_turns(&self, most: u32) -> Result<Vec<(Actor, LogId)>, QueryError> {
        self.ask(move |read| Ok(store::snapshots::unclosed(read, most)?)).await
    }

    /// What a turn's snapshots were: the first and the last tree, and the history between them.
    pub async fn turn_happened(
        &self,
        actor: Actor,
    ) -> Result<(Option<WorktreeKey>, Vec<Happened>), QueryError> {
        self.ask(move |read| {
            let notes = store::snapshots::notes(read, actor.session, Cursor(u64::MAX >> 1))?;
            let mut own = notes.iter().map(|(_, noted)| noted).filter(|noted| noted.by == actor);
            let Some(first) = own.next() else { return Ok((None, Vec::new())) };
            let last = own.next_back().unwrap_or(first);
            let worktree = store::trees::at(read, first.worktree)?;
            let mut between = happened(read, first.worktree, first.number)?;
            between.retain(|it| match it {
                Happened::Changed(info) => info.number <= last.number,
                Happened::Moved(moved) => moved.at <= last.number,
            });
            Ok((worktree, between))
        })
        .await
    }

    /// Which files the tools of a turn have named.
    pub async fn named_by_tools(&self, actor: Actor) -> Result<HashSet<String>, QueryError> {
        self.ask(move |read| named_by_tools(read, actor)).await
    }

    /// Every tree that is wanted in a project.
    pub async fn wanted_trees(&self, project: LogId) -> Result<HashSet<ObjectId>, QueryError> {
        self.ask(move |read| Ok(store::snapshots::trees_of_project(read, project)?)).await
    }

    /// Snapshots of a work tree and moves that nobody names and that are older than a time.
    pub async fn old_snapshots(
        &self,
        worktree: LogId,
        before_ms: u64,
        most: u32,
    ) -> Result<(Vec<LogId>, Vec<CallName>), QueryError> {
        self.ask(move |read| Ok(store::snapshots::old(read, worktree, before_ms, most)?)).await
    }

    /// How many snapshots a project has.
    pub async fn project_snapshots(&self, project: LogId) -> Result<u64, QueryError> {
        self.ask(move |read| Ok(store::snapshots::count_of_project(read, project)?)).await
    }

    /// How many snapshots were taken for a session, and what they took up.
    pub async fn session_storage(&self, session: LogId) -> Result<(u64, u64), QueryError> {
        self.ask(move |read| Ok(store::snapshots::bytes_of_session(read, session)?)).await
    }

    /// The public name of a session.
    pub async fn session_id(&self, session: LogId) -> Result<Option<SessionId>, QueryError> {
        self.ask(move |read| Ok(store::sessions::id_of(read, session)?)).await
    }
}

/// Where a snapshot is found, and what kind of object it is.
pub(super) fn snapshot_key(read: &Read<'_>, log: LogId) -> Result<SnapshotKey, QueryError> {
    store::snapshots::key(read, log)?.ok_or(QueryError::SnapshotGone)
}

fn happened(read: &Read<'_>, worktree: LogId, behind: Cursor) -> Result<Vec<Happened>, QueryError> {
    let taken = store::snapshots::behind(read, worktree, behind, INTERVALS_MAX)?;
    let moved = store::snapshots::moved_behind(read, worktree, behind, INTERVALS_MAX)?;
    let mut all: Vec<_> = taken.into_iter().map(|info| Happened::Changed(info.into())).collect();
    all.extend(moved.into_iter().map(Happened::Moved));
    all.sort_by_key(|it| match it {
        Happened::Changed(info) => info.number,
        Happened::Moved(moved) => moved.at,
    });
    Ok(all)
}

fn rewind(
    read: &Read<'_>,
    session: LogId,
    head: &SetHead,
) -> Result<Result<Rewind, crate::ops::Refused>, QueryError> {
    let state = store::logs::get(read, session)?;
    if state.removed {
        return Err(QueryError::SessionGone);
    }
    let place = Place {
        log: session,
        cursor: state.head.next(),
        now_ms: 0,
        granted: crate::model::ids::GrantKey(0),
        only_own: false,
    };
    let planned = match head.decide(read, place) {
        Ok(planned) => planned,
        Err(NotApplied::Refused(refused)) => return Ok(Err(refused)),
        Err(NotApplied::Store(error)) => return Err(error.into()),
    };
    let timeline = store::sessions::timeline(read, session)?.ok_or(QueryError::SessionGone)?;
    let reverted = store::snapshots::reverted(read, session)?;
    // Where the conversation ends then; the same as now if nothing changes about it.
    let end = planned.as_ref().unwrap_or(&timeline).reverted.as_ref().map(|it| it.boundary.at);
    let notes = store::snapshots::notes(read, session, Cursor(u64::MAX >> 1))?;
    let mut own: Vec<(LogId, Cursor)> = vec![(session, Cursor(u64::MAX))];
    for (_, noted) in notes.iter().filter(|(_, noted)| noted.by.session != session) {
        match own.iter_mut().find(|(origin, _)| *origin == noted.by.session) {
            Some((_, up_to)) => *up_to = (*up_to).max(noted.number),
            None => own.push((noted.by.session, noted.number)),
        }
    }
    let found: Option<(LogId, Cursor)> = match (end, reverted) {
        // Back to where everything was before anything was reverted.
        (None, Some(files)) => Some((files.worktree, Cursor(files.since.0 - 1))),
        (None, None) => None,
        (Some(at), reverted) => {
            let found = began_before(&notes, at, reverted.map(|files| files.worktree));
            match found {
                Some((worktree, number)) => {
                    // What was taken back before that is not done again by going back further.
                    let moved = store::snapshots::last_moved(read, worktree, session, at)?;
                    Some((worktree, number.max(moved.unwrap_or(number))))
                }
                None => None,
            }
        }
    };
    let Some((worktree, behind)) = found else {
        return Ok(Ok(Rewind { planned, worktree: None, since: Vec::new(), own }));
    };
    let since = happened(read, worktree, behind)?;
    let worktree = store::trees::at(read, worktree)?;
    Ok(Ok(Rewind { planned, worktree, since, own }))
}

/// The last snapshot a session knows of before a place in its log; or else the first one behind it. What happened since
/// is to be undone.
fn began_before(
    notes: &[(Cursor, Noted)],
    at: Cursor,
    worktree: Option<LogId>,
) -> Option<(LogId, Cursor)> {
    let of = |(_, noted): &&(Cursor, Noted)| worktree.is_none_or(|it| it == noted.worktree);
    // Of several work trees the one that was touched last counts.
    let touched = notes.iter().rev().find(of)?.1.worktree;
    let mut here = notes.iter().filter(|(_, noted)| noted.worktree == touched);
    let before = here.clone().take_while(|(cursor, _)| *cursor < at).last();
    let (_, noted) = before.or_else(|| here.next())?;
    Some((touched, noted.number))
}

/// Which files the tools of a turn have named: any text in what they were given may be one.
fn named_by_tools(read: &Read<'_>, actor: Actor) -> Result<HashSet<String>, QueryError> {
    let mut named = HashSet::new();
    let odd = |error: content::Unreadable| StoreError::Corrupt(error.to_string());
    for message in store::messages::of_turn(read, actor.session, actor.turn)? {
        store::parts::each(read, actor.session, message, |part| {
            if let Some(content) = part.content {
                let names = Stored::new(&content).part(content::tool_texts).map_err(odd)?;
                named.extend(names);
            }
            Ok(())
        })?;
        if let Some(stored) = store::messages::at(read, actor.session, message)? {
            let put = MessagePut::of_payload(stored.version, &stored.payload)?;
            let names = Stored::new(put).body(|body| {
                let mut names = Vec::new();
                for part in body.get_parts()? {
                    names.extend(content::tool_texts(part)?);
                }
                Ok(names)
            });
            named.extend(names.map_err(odd)?);
        }
    }
    Ok(named)
}
