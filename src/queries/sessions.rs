//! Questions about sessions, besides what was said in them.

use super::{QueryError, Readers};
use crate::limits::{CHECKPOINTS_LOOK_MAX, PAGE_BYTES_MAX, PAGE_ITEMS_MAX};
use crate::model::content::ContentRef;
use crate::model::history::{HistoryWish, Policy};
use crate::model::ids::{Cursor, LogId, SessionId, TurnId};
use crate::model::infos::{SessionInfo, SessionKey};
use crate::model::listing::{Filter, Token};
use crate::model::page::{Page, Paged};
use crate::model::permission::{self, Decision, Layers};
use crate::model::session::{FileDiff, Todo};
use crate::model::turn::{Summary, Turn};
use crate::store::checkpoints::Checkpoint;
use crate::store::{self, Read, StoreError};

/// With what follows from other tables.
pub(super) fn with_more(read: &Read<'_>, info: SessionInfo) -> Result<SessionInfo, StoreError> {
    let mut summary = Summary::default();
    let shown = info.timeline.shown();
    for segment in &shown {
        let to = if segment.part > 0 { segment.to.next() } else { segment.to };
        let of = store::turns::summary(read, info.log, segment.from, to)?;
        summary.additions += of.additions;
        summary.deletions += of.deletions;
        summary.files += of.files;
    }
    let todos = last_todos(read, info.log, &info.timeline)?.map_or(0, |(_, list)| list.len());
    Ok(SessionInfo {
        status: store::turns::status(read, info.log)?,
        summary: info.details.summary.unwrap_or(summary),
        todo_count: u32::try_from(todos).unwrap_or(u32::MAX),
        ..info
    })
}

fn last_todos(
    read: &Read<'_>,
    session: LogId,
    timeline: &crate::model::timeline::Timeline,
) -> Result<Option<(Cursor, Vec<Todo>)>, StoreError> {
    for segment in timeline.shown().iter().rev() {
        let found = store::todos::last(read, session, segment.from, segment.until)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

pub(super) fn page(
    read: &Read<'_>,
    project: LogId,
    parent: Option<LogId>,
    page: Page,
) -> Result<Paged<SessionInfo>, QueryError> {
    let found = store::sessions::page(read, project, parent, page)?;
    let items = found.items.into_iter().map(|info| with_more(read, info));
    let items = items.collect::<Result<_, _>>()?;
    Ok(Paged { items, next: found.next, more: found.more })
}

impl Readers {
    /// A page of the sessions that were made for one.
    pub async fn children(
        &self,
        session: LogId,
        of: Page,
    ) -> Result<Paged<SessionInfo>, QueryError> {
        self.ask(move |read| {
            let project = store::logs::get(read, session)?.project.unwrap_or(session);
            page(read, project, Some(session), of)
        })
        .await
    }

    /// A session by its id, of whatever project.
    pub async fn any_session(&self, id: SessionId) -> Result<SessionKey, QueryError> {
        self.ask(move |read| match store::sessions::log_of(read, &id)? {
            Some((log, _)) => Ok(SessionKey { log, id }),
            None => Err(QueryError::SessionNotFound(id)),
        })
        .await
    }

    /// Sessions of a project or of all, by what happened last; and where the list goes on, if it does.
    pub async fn list_sessions(
        &self,
        project: Option<LogId>,
        filter: Filter,
        token: Option<Token>,
        limit: u32,
    ) -> Result<(Vec<SessionInfo>, Option<Token>), QueryError> {
        self.ask(move |read| {
            let token = match token {
                Some(token) => token,
                None => Token::first(
                    store::sessions::last_update(read, project)?,
                    store::ops::last_position(read)?,
                ),
            };
            let limit = Page::new(0, limit, false).limit().min(PAGE_ITEMS_MAX) as usize;
            let (mut token, mut sessions, mut bytes) = (token, Vec::new(), 0);
            loop {
                // One more than wanted tells whether there is a next page.
                let wanted = (limit + 1 - sessions.len()) as u32;
                let found = store::sessions::list(read, project, &filter, token, wanted)?;
                let all = found.len() < wanted as usize;
                for (info, updated_at_ms, log) in found {
                    if sessions.len() == limit || bytes >= PAGE_BYTES_MAX {
                        return Ok((sessions, Some(token)));
                    }
                    bytes += info.bytes();
                    token = token.behind(updated_at_ms, log.0);
                    sessions.push(with_more(read, info)?);
                }
                match (all, token.second_round) {
                    (true, true) => return Ok((sessions, None)),
                    (true, false) => token = token.second(),
                    (false, _) => return Ok((sessions, Some(token))),
                }
            }
        })
        .await
    }

    /// The list of things to do, and where it was set.
    pub async fn todos(&self, session: LogId) -> Result<(Cursor, Vec<Todo>), QueryError> {
        self.ask(move |read| {
            let timeline =
                store::sessions::timeline(read, session)?.ok_or(QueryError::SessionGone)?;
            Ok(last_todos(read, session, &timeline)?.unwrap_or_default())
        })
        .await
    }

    /// A turn by its id.
    pub async fn turn(&self, session: LogId, id: TurnId) -> Result<Turn, QueryError> {
        self.ask(move |read| {
            store::turns::get(read, session, &id)?.ok_or(QueryError::TurnNotFound(id))
        })
        .await
    }

    /// A turn by where it was begun.
    pub async fn turn_at(&self, session: LogId, cursor: Cursor) -> Result<Turn, QueryError> {
        self.ask(move |read| {
            store::turns::at(read, session, cursor)?.ok_or(QueryError::SessionGone)
        })
        .await
    }

    /// A page of a session's turns.
    pub async fn turns(&self, session: LogId, page: Page) -> Result<Paged<Turn>, QueryError> {
        self.ask(move |read| Ok(store::turns::page(read, session, page)?)).await
    }

    /// A page of what a turn did to files.
    pub async fn diffs(
        &self,
        session: LogId,
        turn: TurnId,
        page: Page,
    ) -> Result<Paged<(Cursor, FileDiff)>, QueryError> {
        self.ask(move |read| {
            let turn =
                store::turns::get(read, session, &turn)?.ok_or(QueryError::TurnNotFound(turn))?;
            Ok(store::turns::diffs(read, session, turn.cursor, page)?)
        })
        .await
    }

    /// A page of a session's checkpoints.
    pub async fn checkpoints(
        &self,
        session: LogId,
        page: Page,
    ) -> Result<Paged<Checkpoint>, QueryError> {
        self.ask(move |read| Ok(store::checkpoints::page(read, session, page)?)).await
    }

    /// Automatic checkpoints behind one that a policy lets go of; and the last one looked at.
    pub async fn droppable(
        &self,
        after: (LogId, Cursor),
        policy: Policy,
        now_ms: u64,
    ) -> Result<(Vec<(LogId, Cursor)>, Option<(LogId, Cursor)>), QueryError> {
        self.ask(move |read| {
            let found = store::checkpoints::automatic(read, after, CHECKPOINTS_LOOK_MAX)?;
            let last = found.last().map(|(session, cursor, ..)| (*session, *cursor));
            let old = |(_, _, made_at_ms, wish): &(LogId, Cursor, u64, HistoryWish)| {
                policy.with(*wish).lets_go(*made_at_ms, 0, now_ms)
            };
            let droppable = found.into_iter().filter(old).map(|it| (it.0, it.1)).collect();
            Ok((droppable, last))
        })
        .await
    }

    /// A piece of content a session names, and how long all of it is.
    pub async fn content(
        &self,
        session: LogId,
        hash: [u8; 32],
        offset: u64,
        bytes_max: usize,
    ) -> Result<(Vec<u8>, u64), QueryError> {
        self.ask(move |read| {
            store::contents::read(read, session, &hash, offset, bytes_max)?
                .ok_or(QueryError::ContentNotFound)
        })
        .await
    }

    /// How much of some content a session has uploaded.
    pub async fn uploaded(&self, session: LogId, content: ContentRef) -> Result<u64, QueryError> {
        self.ask(move |read| {
            if store::contents::nameable(read, session, content)?.is_some() {
                return Ok(content.bytes);
            }
            let coming = store::contents::coming(read, session, &content.hash)?;
            let same = coming.filter(|coming| coming.content.bytes == content.bytes);
            Ok(same.map_or(0, |coming| coming.received))
        })
        .await
    }

    /// What the rules say. Those of a session that was made for another one can only make it stricter.
    pub async fn permits(
        &self,
        session: LogId,
        permission: String,
        patterns: Vec<String>,
    ) -> Result<Decision, QueryError> {
        self.ask(move |read| {
            let project = store::logs::get(read, session)?.project.unwrap_or(session);
            let server = store::rulesets::get(read, LogId::ROOT)?.1;
            let project = store::rulesets::get(read, project)?.1;
            let mut line = store::sessions::line(read, session)?;
            if line.is_empty() {
                return Err(QueryError::SessionGone);
            }
            let own = line.remove(0);
            let permission = permission::permission_of_tool(&permission);
            let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
            let layers =
                Layers { server: &server, project: &project, session: &own, delegate: &[] };
            let mut decision = permission::decide(&layers, permission, &patterns);
            for delegate in &line {
                let layers = Layers { delegate, ..layers };
                let stricter = permission::decide(&layers, permission, &patterns);
                if stricter.action.is_stricter_than(decision.action) {
                    decision = stricter;
                }
            }
            Ok(decision)
        })
        .await
    }
}
