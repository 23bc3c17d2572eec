//! Questions: read-only, on connections of their own, never through the ledger.
//!
//! A few reader threads share a bounded queue, so a question never blocks a worker's event loop, a
//! long one holds up nobody but its own thread, and the writer notices none of them.

mod readers;
mod redeem;

pub use crate::store::grants::{Derived, Grant};
pub use readers::{Readers, ReadersError};
pub use redeem::{Object, RedeemError, Redeemed, Shown};

use crate::limits::FEED_PAGE_ITEMS_MAX;
use crate::model::code::{Code, Coded};
use crate::model::feed::{FeedPage, Stretch};
use crate::model::history::Policy;
use crate::model::ids::{Cursor, GrantKey, LogId, ProjectId, SessionId};
use crate::model::infos::{
    MessageInfo, ObjectInfo, ProjectInfo, ProjectKey, SessionInfo, SessionKey,
};
use crate::model::page::{Page, Paged};
use crate::model::sturdy_ref::{SturdyRef, VerifierKey};
use crate::ops::PutMessage;
use crate::store::ops::Bounds;
use crate::store::{self, StoreError};

/// A grant as it was found.
#[derive(Debug, Clone)]
pub struct Granted {
    /// What the store says of it.
    pub grant: Grant,
    /// What it is for.
    pub object: Object,
    /// Whether it stands, and until when.
    pub in_force: Option<Option<u64>>,
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
    #[error("this project has no session {0}")]
    SessionNotFound(SessionId),
    /// The project asked about is no more.
    #[error("the project does not exist any more")]
    ProjectGone,
    /// The session asked about is no more.
    #[error("the session does not exist any more")]
    SessionGone,
    /// The grant asked about is no more.
    #[error("the grant does not exist any more")]
    GrantGone,
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
            QueryError::GrantGone => Code::GrantNotFound,
            QueryError::Store(_) => Code::StorageFailed,
            QueryError::Panicked => Code::Internal,
        }
    }
}

impl Readers {
    /// What a sturdy ref stands for.
    pub async fn redeem(
        &self,
        sturdy_ref: SturdyRef,
        key: VerifierKey,
        shown_for: Shown,
        now_ms: u64,
    ) -> Result<Result<Redeemed, RedeemError>, QueryError> {
        self.ask(move |read| redeem::redeem(read, &sturdy_ref, &key, shown_for, now_ms)).await
    }

    /// Whether a grant stands, and until when.
    pub async fn in_force(&self, key: GrantKey) -> Result<Option<Option<u64>>, QueryError> {
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

    /// A page of everything derived from a grant.
    pub async fn grants(&self, from: GrantKey, page: Page) -> Result<Paged<Derived>, QueryError> {
        self.ask(move |read| Ok(store::grants::derived(read, from, page)?)).await
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
            let found = store::projects::info(read, log)?.ok_or(QueryError::ProjectGone)?;
            Ok(ObjectInfo::Project(found))
        })
        .await
    }

    /// A page of all projects.
    pub async fn projects(&self, page: Page) -> Result<Paged<ProjectInfo>, QueryError> {
        self.ask(move |read| Ok(store::projects::page(read, page)?)).await
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
            Ok(ObjectInfo::Session(found))
        })
        .await
    }

    /// A page of a project's sessions.
    pub async fn sessions(
        &self,
        project: LogId,
        page: Page,
    ) -> Result<Paged<SessionInfo>, QueryError> {
        self.ask(move |read| Ok(store::sessions::page(read, project, page)?)).await
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

    /// A page of a session's messages.
    pub async fn messages(
        &self,
        session: LogId,
        page: Page,
    ) -> Result<Paged<MessageInfo>, QueryError> {
        self.ask(move |read| {
            let found = store::messages::page(read, session, page)?;
            let items = found.items.into_iter().map(|message| {
                let content = PutMessage::content(message.version, &message.payload)?.to_vec();
                Ok(MessageInfo {
                    id: message.id,
                    cursor: message.cursor,
                    created_at_ms: message.at_ms,
                    content,
                })
            });
            let items = items.collect::<Result<_, StoreError>>()?;
            Ok(Paged { items, next: found.next, more: found.more })
        })
        .await
    }
}
