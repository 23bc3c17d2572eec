//! Questions: read-only, on connections of their own, never through the ledger.
//!
//! A few reader threads share a bounded queue, so a question never blocks a worker's event loop, a
//! long one holds up nobody but its own thread, and the writer notices none of them.

mod conversation;
mod readers;
mod redeem;
mod sessions;
mod worktrees;

pub use crate::store::audit::{Filter as AuditFilter, Head as AuditHead, Told as AuditTold};
pub use crate::store::checkpoints::Checkpoint;
pub use crate::store::delegations::DelegationInfo;
pub use crate::store::grants::{Derived, Force, Grant};
pub use conversation::{GrownText, Plan};
pub use readers::{Readers, ReadersError};
pub use redeem::{Object, RedeemError, Redeemed, Showing, Shown};
pub use worktrees::{Before, Happened, Rewind};

use crate::limits::FEED_PAGE_ITEMS_MAX;
use crate::model::code::{Code, Coded};
use crate::model::feed::{FeedPage, LoggedOp, Stretch};
use crate::model::grant::Fallen;
use crate::model::history::Policy;
use crate::model::ids::{
    Cursor, GrantKey, LogId, MessageId, PartId, ProjectId, SessionId, ShareId, SnapshotId, TurnId,
    WorktreeId,
};
use crate::model::infos::{
    MessageInfo, ObjectInfo, ProjectInfo, ProjectKey, SessionInfo, SessionKey,
};
use crate::model::page::{Page, Paged};
use crate::model::share::{ShareEnded, ShareInfo, ShareKey, View};
use crate::model::turn::TurnEnded;
use crate::ops::{self, Said};
use crate::store::ops::Bounds;
use crate::store::{self, StoreError};
use std::sync::Arc;

/// A grant as it was found.
#[derive(Debug, Clone)]
pub struct Granted {
    /// What the store says of it.
    pub grant: Grant,
    /// What it is for.
    pub object: Object,
    /// Whether it stands.
    pub in_force: Result<Force, Fallen>,
}

impl Granted {
    /// Whether it is the operator's own, from which all others stem.
    pub fn is_operators(&self) -> bool {
        self.grant.parent.is_none()
    }
}

/// How much of a session somebody is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sight {
    /// Only what was written under this grant, and those derived from it.
    pub own: Option<GrantKey>,
    /// Only what a share shows.
    pub view: Option<View>,
}

/// Logs that may be compacted.
#[derive(Debug)]
pub struct Compactable {
    /// The last log looked at; none if there was none.
    pub last: Option<LogId>,
    /// How many were looked at.
    pub looked_at: u64,
    /// Which of them may be compacted, and up to where.
    pub logs: Vec<(LogId, Cursor)>,
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// As many questions wait as may wait.
    #[error("the server has as many questions waiting as it takes; try again")]
    Overloaded,
    /// The readers have stopped.
    #[error("the server is stopping")]
    Stopping,
    /// No such project.
    #[error("there is no project {0}")]
    ProjectNotFound(ProjectId),
    /// No such session in the project asked.
    #[error("there is no session {0} here")]
    SessionNotFound(SessionId),
    /// The project asked about is no more.
    #[error("the project does not exist any more")]
    ProjectGone,
    /// The session asked about is no more.
    #[error("the session does not exist any more")]
    SessionGone,
    /// No such message in the session asked.
    #[error("the session has no message {0}")]
    MessageNotFound(MessageId),
    /// No such part of a message.
    #[error("message {0} has no part {1}")]
    PartNotFound(MessageId, PartId),
    /// Its text is complete.
    #[error("the part is not open")]
    PartClosed,
    /// No such turn in the session asked.
    #[error("the session has no turn {0}")]
    TurnNotFound(TurnId),
    /// It is over.
    #[error(transparent)]
    TurnEnded(#[from] TurnEnded),
    /// No such work tree in the project asked.
    #[error("the project has no worktree {0}")]
    WorktreeNotFound(WorktreeId),
    /// The work tree asked about is no more.
    #[error("the worktree does not exist any more")]
    WorktreeGone,
    /// No such snapshot of the work tree asked.
    #[error("the worktree has no snapshot {0}")]
    SnapshotNotFound(SnapshotId),
    /// The snapshot asked about is no more.
    #[error("the snapshot does not exist any more")]
    SnapshotGone,
    /// No such content in the session asked.
    #[error("nothing in this session names such content")]
    ContentNotFound,
    /// The grant asked about is no more.
    #[error("the grant does not exist any more")]
    GrantGone,
    /// No such share within the object asked.
    #[error("there is no share {0} here")]
    ShareNotFound(ShareId),
    /// The share asked about is no more.
    #[error("the share does not exist any more")]
    ShareGone,
    /// It was ended.
    #[error(transparent)]
    ShareEnded(#[from] ShareEnded),
    /// The store failed.
    #[error("the store could not be read; the server's log says more")]
    Store(#[from] StoreError),
    /// A fault of ours.
    #[error("the server made a mistake answering this; its log says more")]
    Panicked,
}

impl Coded for QueryError {
    fn code(&self) -> Code {
        match self {
            QueryError::Overloaded => Code::Overloaded,
            QueryError::Stopping => Code::ShuttingDown,
            QueryError::ProjectNotFound(_) => Code::ProjectNotFound,
            QueryError::SessionNotFound(_) => Code::SessionNotFound,
            QueryError::ProjectGone => Code::ProjectNotFound,
            QueryError::SessionGone => Code::SessionNotFound,
            QueryError::MessageNotFound(_) => Code::MessageNotFound,
            QueryError::PartNotFound(..) => Code::PartNotFound,
            QueryError::PartClosed => Code::PartClosed,
            QueryError::TurnNotFound(_) => Code::TurnNotFound,
            QueryError::TurnEnded(ended) => ended.code(),
            QueryError::ContentNotFound => Code::ContentNotFound,
            QueryError::WorktreeNotFound(_) | QueryError::WorktreeGone => Code::WorktreeNotFound,
            QueryError::SnapshotNotFound(_) | QueryError::SnapshotGone => Code::SnapshotNotFound,
            QueryError::GrantGone => Code::GrantNotFound,
            QueryError::ShareNotFound(_) | QueryError::ShareGone => Code::ShareNotFound,
            QueryError::ShareEnded(ended) => ended.code(),
            QueryError::Store(_) => Code::StorageFailed,
            QueryError::Panicked => Code::Internal,
        }
    }
}

impl Readers {
    /// What a sturdy ref stands for.
    pub async fn redeem(
        &self,
        showing: Showing,
    ) -> Result<Result<Redeemed, RedeemError>, QueryError> {
        self.ask(move |read| redeem::redeem(read, &showing)).await
    }

    /// Whether a grant stands.
    pub async fn in_force(&self, key: GrantKey) -> Result<Result<Force, Fallen>, QueryError> {
        self.ask(move |read| Ok(store::grants::in_force(read, key)?)).await
    }

    /// A grant, and whether it stands.
    pub async fn granted(&self, key: GrantKey) -> Result<Granted, QueryError> {
        self.ask(move |read| {
            let grant = store::grants::get(read, key)?.ok_or(QueryError::GrantGone)?;
            let object = redeem::object(read, grant.kind, grant.log)?;
            Ok(Granted { in_force: store::grants::in_force(read, key)?, object, grant })
        })
        .await
    }

    /// A page of everything derived from a grant, for any object or for one.
    pub async fn grants(
        &self,
        from: GrantKey,
        object_id: String,
        page: Page,
    ) -> Result<Paged<Derived>, QueryError> {
        self.ask(move |read| Ok(store::grants::derived(read, from, &object_id, page)?)).await
    }

    /// Which ops of a page were written under a grant or those derived from it, or take away what was.
    pub async fn own(&self, from: GrantKey, page: Arc<FeedPage>) -> Result<Vec<bool>, QueryError> {
        self.ask(move |read| {
            let own = |op: &LoggedOp| {
                let stems = |key| store::grants::stems_from(read, key, from);
                let removed = match Said::read(op.op_id, op.kind, op.version, &op.payload)? {
                    Said::MessageRemoved(removed) => {
                        store::ops::granted_at(read, op.log, removed.cursor)?
                    }
                    _ => None,
                };
                Ok(stems(op.granted)? || removed.map(stems).transpose()?.unwrap_or(false))
            };
            page.ops.iter().map(own).collect()
        })
        .await
    }

    /// A page of the delegations made from a session under a grant.
    pub async fn delegations(
        &self,
        session: LogId,
        from: GrantKey,
        page: Page,
    ) -> Result<Paged<DelegationInfo>, QueryError> {
        self.ask(move |read| Ok(store::delegations::page(read, session, from, page)?)).await
    }

    /// Whether a delegation's or a turn's time has come.
    pub async fn is_due(&self, now_ms: u64) -> Result<bool, QueryError> {
        self.ask(move |read| {
            let delegations = !store::delegations::due(read, now_ms, 1)?.is_empty();
            Ok(delegations || !store::turns::due(read, now_ms, 1)?.is_empty())
        })
        .await
    }

    /// A session that was made for another one, under a grant or one derived from it.
    pub async fn child(
        &self,
        parent: LogId,
        id: SessionId,
        from: GrantKey,
    ) -> Result<SessionKey, QueryError> {
        self.ask(move |read| {
            if let Some(log) = store::sessions::fork_of(read, parent, &id, from)? {
                return Ok(SessionKey { log, id });
            }
            let found = store::sessions::child_of(read, parent, &id)?;
            match found {
                Some((log, delegate)) if store::grants::stems_from(read, delegate, from)? => {
                    Ok(SessionKey { log, id })
                }
                _ => Err(QueryError::SessionNotFound(id)),
            }
        })
        .await
    }

    /// A share of the server, of a project or of a session.
    pub async fn sharing(&self, of: Stretch, id: ShareId) -> Result<ShareKey, QueryError> {
        self.ask(move |read| {
            store::shares::within(read, of, &id)?.ok_or(QueryError::ShareNotFound(id))
        })
        .await
    }

    /// What is told about a share.
    pub async fn share_info(&self, log: LogId) -> Result<ShareInfo, QueryError> {
        self.ask(move |read| store::shares::info(read, log)?.ok_or(QueryError::ShareGone)).await
    }

    /// What a share shows, while it is published.
    pub async fn view(&self, log: LogId) -> Result<View, QueryError> {
        self.ask(move |read| {
            let info = store::shares::info(read, log)?.ok_or(QueryError::ShareGone)?;
            match info.ended_at_ms {
                None => Ok(info.view),
                Some(_) => Err(ShareEnded.into()),
            }
        })
        .await
    }

    /// A page of the shares of the server, of a project or of a session.
    pub async fn shares(&self, of: Stretch, page: Page) -> Result<Paged<ShareInfo>, QueryError> {
        self.ask(move |read| Ok(store::shares::page(read, of, page)?)).await
    }

    /// A page of the audit trail: of all there is, or of what was done under a grant and those derived from
    /// it; and the newest entry.
    pub async fn audit(
        &self,
        scope: Option<GrantKey>,
        filter: AuditFilter,
        page: Page,
    ) -> Result<(Paged<AuditTold>, AuditHead), QueryError> {
        self.ask(move |read| {
            Ok((store::audit::page(read, scope, &filter, page)?, store::audit::head(read)?))
        })
        .await
    }

    /// The oldest audit entry, and up to where a policy lets them go.
    pub async fn prunable(
        &self,
        before_ms: Option<u64>,
        entries_max: Option<u64>,
    ) -> Result<Option<(u64, u64)>, QueryError> {
        self.ask(move |read| Ok(store::audit::prunable(read, before_ms, entries_max)?)).await
    }

    /// A project by its id.
    pub async fn project(&self, id: ProjectId) -> Result<ProjectKey, QueryError> {
        self.ask(move |read| match store::projects::log_of(read, &id)? {
            Some(log) => Ok(ProjectKey { log, id }),
            None => Err(QueryError::ProjectNotFound(id)),
        })
        .await
    }

    /// What is told about a project.
    pub async fn project_info(&self, log: LogId) -> Result<ObjectInfo, QueryError> {
        self.ask(move |read| {
            let mut found = store::projects::info(read, log)?.ok_or(QueryError::ProjectGone)?;
            found.rest = ops::rest_of_project(read, found.cursor)?;
            Ok(ObjectInfo::Project(found))
        })
        .await
    }

    /// A page of all projects.
    pub async fn projects(&self, page: Page) -> Result<Paged<ProjectInfo>, QueryError> {
        self.ask(move |read| {
            let mut found = store::projects::page(read, page)?;
            for project in &mut found.items {
                project.rest = ops::rest_of_project(read, project.cursor)?;
            }
            Ok(found)
        })
        .await
    }

    /// A session of a project by its id.
    pub async fn session(&self, project: LogId, id: SessionId) -> Result<SessionKey, QueryError> {
        self.ask(move |read| match store::sessions::log_of(read, &id)? {
            Some((log, owner)) if owner == project => Ok(SessionKey { log, id }),
            _ => Err(QueryError::SessionNotFound(id)),
        })
        .await
    }

    /// What is told about a session.
    pub async fn session_info(&self, log: LogId) -> Result<ObjectInfo, QueryError> {
        self.ask(move |read| {
            let found = store::sessions::info(read, log)?.ok_or(QueryError::SessionGone)?;
            Ok(ObjectInfo::Session(sessions::with_more(read, found)?.into()))
        })
        .await
    }

    /// A page of a project's sessions.
    pub async fn sessions(
        &self,
        project: LogId,
        page: Page,
    ) -> Result<Paged<SessionInfo>, QueryError> {
        self.ask(move |read| sessions::page(read, project, None, page)).await
    }

    /// Where a feed ends.
    pub async fn head(&self, stretch: Stretch) -> Result<u64, QueryError> {
        self.ask(move |read| Ok(store::ops::bounds(read, stretch)?.head)).await
    }

    /// A piece of a feed: what lies behind a place.
    pub async fn feed(&self, stretch: Stretch, after: u64) -> Result<FeedPage, QueryError> {
        self.ask(move |read| {
            let Bounds { head, floor, cuts } = store::ops::bounds(read, stretch)?;
            let (ops, more) = store::ops::page(read, stretch, after, FEED_PAGE_ITEMS_MAX)?;
            let last = ops.last().map(|op| op.place(stretch));
            let through = match last {
                Some(last) if more => last,
                _ => head.max(after),
            };
            Ok(FeedPage { after, ops, through, head, floor, cuts })
        })
        .await
    }

    /// Logs after `after` that a policy lets compact, and how far. Named subscriptions that were used since
    /// `since_ms` keep what they have not heard, if it is no older than that.
    pub async fn compactable(
        &self,
        after: LogId,
        limit: u32,
        policy: Policy,
        now_ms: u64,
        since_ms: u64,
    ) -> Result<Compactable, QueryError> {
        self.ask(move |read| {
            let candidates = store::compaction::candidates(read, after, limit)?;
            let mut found = Compactable {
                last: candidates.last().copied(),
                looked_at: candidates.len() as u64,
                logs: Vec::new(),
            };
            for log in candidates {
                let Some(reach) = store::compaction::reach(read, log, policy, now_ms)? else {
                    continue;
                };
                // What was not heard is held back, but not for ever.
                let heard = store::compaction::heard(read, log, since_ms)?.unwrap_or(reach);
                let since = Policy { age_ms_max: Some(now_ms - since_ms), bytes_max: None };
                let waited_for = store::compaction::reach_by(read, log, since, now_ms)?;
                let through = reach.min(heard.max(waited_for.unwrap_or_default()));
                if through > store::logs::get(read, log)?.swept {
                    found.logs.push((log, through));
                }
            }
            Ok(found)
        })
        .await
    }

    /// A page of a session's messages; of all, also those that are reverted, if that is wanted.
    pub async fn messages(
        &self,
        session: LogId,
        page: Page,
        reverted: bool,
        sight: Sight,
    ) -> Result<Paged<MessageInfo>, QueryError> {
        self.ask(move |read| conversation::messages(read, session, page, reverted, sight)).await
    }
}
