//! Table `sessions`.

use super::{Read, StoreError, Tx, from_sql_int, sql_int};
use crate::model::history::HistoryWish;
use crate::model::ids::{Cursor, GrantKey, LogId, ProjectId, SessionId};
use crate::model::infos::SessionInfo;
use crate::model::listing::{Filter, Token};
use crate::model::page::{Page, Paged};
use crate::model::session::{Details, ForkedFrom};
use crate::model::timeline::Timeline;
use crate::model::usage::Usage;
use rusqlite::{OptionalExtension, Row, params};

const QUERY: &str = "SELECT sessions.id, projects.id, sessions.title, sessions.created_at_ms, sessions.cursor,
       logs.head, sessions.log, above.id, sessions.slug, sessions.details, sessions.forked_from,
       sessions.timeline, logs.updated_at_ms, sessions.cost_nano, sessions.tokens_input,
       sessions.tokens_output, sessions.tokens_reasoning, sessions.tokens_cache_read,
       sessions.tokens_cache_write
     FROM sessions JOIN projects ON projects.log = sessions.project JOIN logs ON logs.id = sessions.log
     LEFT JOIN sessions AS above ON above.log = sessions.parent";

/// A session to be recorded.
#[derive(Debug, Clone, Copy)]
pub struct NewSession<'a> {
    /// Its public name.
    pub id: &'a SessionId,
    /// Its title for people.
    pub title: &'a str,
    /// Where in the project's log it was made.
    pub cursor: Cursor,
    /// When it was made.
    pub created_at_ms: u64,
    /// The session it was made for.
    pub parent: Option<LogId>,
    /// Two words to tell it by.
    pub slug: &'a str,
    /// What is said about it.
    pub details: Option<&'a Details>,
    /// Where it left another one, if it did.
    pub forked_from: Option<&'a ForkedFrom>,
}

/// Records a session. `log` is its own log.
pub fn create(
    tx: &Tx<'_>,
    log: LogId,
    project: LogId,
    info: &NewSession<'_>,
) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "INSERT INTO sessions (log, id, project, title, cursor, created_at_ms, parent, slug, forked_from)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute((
            log.0,
            info.id.as_str(),
            project.0,
            info.title,
            sql_int(info.cursor.0),
            sql_int(info.created_at_ms),
            info.parent.map(|parent| parent.0),
            info.slug,
            info.forked_from.map(super::encoded).transpose()?,
        ))?;
    match info.details {
        Some(details) => set_details(tx, log, details),
        None => Ok(()),
    }
}

/// Records what is said about a session.
pub fn set_details(tx: &Tx<'_>, log: LogId, details: &Details) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "UPDATE sessions SET details = ?, directory = ?, path = ?, archived_at_ms = ? WHERE log = ?",
        )?
        .execute((
            super::encoded(details)?,
            &details.directory,
            &details.path,
            details.archived_at_ms,
            log.0,
        ))?;
    Ok(())
}

/// What is said about a session; none for a log that is no session's.
pub fn details(read: &Read<'_>, log: LogId) -> Result<Option<Details>, StoreError> {
    let found: Option<Option<Vec<u8>>> = read
        .conn
        .prepare_cached("SELECT details FROM sessions WHERE log = ?")?
        .query_row([log.0], |row| row.get(0))
        .optional()?;
    found.map(read_details).transpose()
}

fn read_details(blob: Option<Vec<u8>>) -> Result<Details, StoreError> {
    blob.map_or_else(|| Ok(Details::default()), |blob| super::decoded("sessions", &blob))
}

/// The path of a session's conversation; none for a log that is no session's.
pub fn timeline(read: &Read<'_>, log: LogId) -> Result<Option<Timeline>, StoreError> {
    let found: Option<Option<Vec<u8>>> = read
        .conn
        .prepare_cached("SELECT timeline FROM sessions WHERE log = ?")?
        .query_row([log.0], |row| row.get(0))
        .optional()?;
    found.map(read_timeline).transpose()
}

fn read_timeline(blob: Option<Vec<u8>>) -> Result<Timeline, StoreError> {
    blob.map_or_else(|| Ok(Timeline::default()), |blob| super::decoded("sessions", &blob))
}

/// Records the path of a session's conversation.
pub fn set_timeline(tx: &Tx<'_>, log: LogId, timeline: &Timeline) -> Result<(), StoreError> {
    let timeline = match *timeline == Timeline::default() {
        true => None,
        false => Some(super::encoded(timeline)?),
    };
    tx.conn
        .prepare_cached("UPDATE sessions SET timeline = ? WHERE log = ?")?
        .execute((timeline, log.0))?;
    Ok(())
}

/// What the steps of a session cost.
pub fn usage(read: &Read<'_>, log: LogId) -> Result<Usage, StoreError> {
    Ok(read
        .conn
        .prepare_cached(
            "SELECT cost_nano, tokens_input, tokens_output, tokens_reasoning, tokens_cache_read,
                    tokens_cache_write FROM sessions WHERE log = ?",
        )?
        .query_row([log.0], |row| usage_from(row, 0))
        .optional()?
        .unwrap_or_default())
}

/// Counts steps in, and others out.
pub fn count(tx: &Tx<'_>, log: LogId, more: Usage, less: Usage) -> Result<(), StoreError> {
    if more == less {
        return Ok(());
    }
    let usage = usage(tx, log)?.plus(more).minus(less);
    tx.conn
        .prepare_cached(
            "UPDATE sessions SET cost_nano = ?, tokens_input = ?, tokens_output = ?, tokens_reasoning = ?,
                                 tokens_cache_read = ?, tokens_cache_write = ? WHERE log = ?",
        )?
        .execute(params![
            usage.cost_nano,
            sql_int(usage.input),
            sql_int(usage.output),
            sql_int(usage.reasoning),
            sql_int(usage.cache_read),
            sql_int(usage.cache_write),
            log.0,
        ])?;
    Ok(())
}

fn usage_from(row: &Row<'_>, first: usize) -> rusqlite::Result<Usage> {
    let tokens = |at: usize| row.get(first + at).map(from_sql_int);
    Ok(Usage {
        cost_nano: row.get(first)?,
        input: tokens(1)?,
        output: tokens(2)?,
        reasoning: tokens(3)?,
        cache_read: tokens(4)?,
        cache_write: tokens(5)?,
    })
}

/// The cursors of the last ops that set a session's title and its history; none for a log that is no
/// session's, 0 for what was never set.
pub fn set_at(read: &Read<'_>, log: LogId) -> Result<Option<(Cursor, Cursor)>, StoreError> {
    Ok(read
        .conn
        .prepare_cached("SELECT titled_at, history_at FROM sessions WHERE log = ?")?
        .query_row([log.0], |row| {
            Ok((Cursor(from_sql_int(row.get(0)?)), Cursor(from_sql_int(row.get(1)?))))
        })
        .optional()?)
}

/// Gives a session another title.
pub fn set_title(tx: &Tx<'_>, log: LogId, title: &str, at: Cursor) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached("UPDATE sessions SET title = ?, titled_at = ? WHERE log = ?")?
        .execute((title, sql_int(at.0), log.0))?;
    Ok(())
}

/// The same by a change among others.
pub fn rename(tx: &Tx<'_>, log: LogId, title: &str) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached("UPDATE sessions SET title = ? WHERE log = ?")?
        .execute((title, log.0))?;
    Ok(())
}

/// Takes the row of a session away.
pub fn forget(tx: &Tx<'_>, log: LogId) -> Result<(), StoreError> {
    tx.conn.prepare_cached("DELETE FROM sessions WHERE log = ?")?.execute([log.0])?;
    Ok(())
}

/// Sets how much history is kept of a session.
pub fn set_history(
    tx: &Tx<'_>,
    log: LogId,
    wish: HistoryWish,
    at: Cursor,
) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "UPDATE sessions SET history_age_ms = ?, history_bytes = ?, history_at = ? WHERE log = ?",
        )?
        .execute((sql_int(wish.age_ms_max), sql_int(wish.bytes_max), sql_int(at.0), log.0))?;
    Ok(())
}

/// The log of the session with this id, and the log of its project.
pub fn log_of(read: &Read<'_>, id: &SessionId) -> Result<Option<(LogId, LogId)>, StoreError> {
    Ok(read
        .conn
        .prepare_cached("SELECT log, project FROM sessions WHERE id = ?")?
        .query_row([id.as_str()], |row| Ok((LogId(row.get(0)?), LogId(row.get(1)?))))
        .optional()?)
}

/// The log of the session with this id, if it was made for another one, and the grant of the delegate it was
/// made for.
pub fn child_of(
    read: &Read<'_>,
    parent: LogId,
    id: &SessionId,
) -> Result<Option<(LogId, GrantKey)>, StoreError> {
    Ok(read
        .conn
        .prepare_cached(
            "SELECT sessions.log, granted FROM sessions JOIN grants ON grants.object_log = sessions.log
             JOIN delegations ON granted = grants.id AND delegations.log = sessions.parent
             WHERE sessions.id = ? AND sessions.parent = ? ORDER BY granted LIMIT 1",
        )?
        .query_row((id.as_str(), parent.0), |row| Ok((LogId(row.get(0)?), GrantKey(row.get(1)?))))
        .optional()?)
}

/// The log of the session with this id, if it was forked from another one under a grant or one derived from it.
pub fn fork_of(
    read: &Read<'_>,
    source: LogId,
    id: &SessionId,
    from: GrantKey,
) -> Result<Option<LogId>, StoreError> {
    let found: Option<(i64, Option<Vec<u8>>, Option<i64>)> = read
        .conn
        .prepare_cached(
            "SELECT log, forked_from, (SELECT granted FROM ops WHERE ops.log = sessions.project
               AND ops.cursor = sessions.cursor) FROM sessions WHERE id = ?",
        )?
        .query_row([id.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((log, Some(forked_from), Some(granted))) = found else { return Ok(None) };
    let forked_from: ForkedFrom = super::decoded("sessions", &forked_from)?;
    let of_source = id_of(read, source)?.is_some_and(|source| source == forked_from.session);
    let own = super::grants::stems_from(read, GrantKey(granted), from)?;
    Ok((of_source && own).then_some(LogId(log)))
}

/// The public name of a session.
pub fn id_of(read: &Read<'_>, log: LogId) -> Result<Option<SessionId>, StoreError> {
    let id: Option<String> = read
        .conn
        .prepare_cached("SELECT id FROM sessions WHERE log = ?")?
        .query_row([log.0], |row| row.get(0))
        .optional()?;
    id.map(|id| SessionId::parse(&id))
        .transpose()
        .map_err(|error| StoreError::odd("sessions", error))
}

/// What is told about a session.
pub fn info(read: &Read<'_>, log: LogId) -> Result<Option<SessionInfo>, StoreError> {
    read.conn
        .prepare_cached(&format!("{QUERY} WHERE sessions.log = ?"))?
        .query_row([log.0], |row| Ok(from_row(row)))
        .optional()?
        .transpose()
}

/// A page of a project's sessions, in the order of the project's log; or of those made for one session.
pub fn page(
    read: &Read<'_>,
    project: LogId,
    parent: Option<LogId>,
    page: Page,
) -> Result<Paged<SessionInfo>, StoreError> {
    let (compared, order) = match page.newest_first() {
        false => (">=", "ASC"),
        true => ("<=", "DESC"),
    };
    let which = match parent {
        None => "sessions.project = ?1",
        Some(_) => "sessions.parent = ?4 AND sessions.project = ?1",
    };
    let mut query = read.conn.prepare_cached(&format!(
        "{QUERY} WHERE {which} AND sessions.cursor {compared} ?2 AND (?4 IS NULL OR 1)
         ORDER BY sessions.cursor {order} LIMIT ?3"
    ))?;
    let parent = parent.map(|parent| parent.0);
    let mut rows = query.query((project.0, page.bound(), page.limit() + 1, parent))?;
    super::paged(&mut rows, page, from_row, |info| (info.cursor, info.bytes()))
}

/// When something last happened in any session, of a project or of all.
pub fn last_update(read: &Read<'_>, project: Option<LogId>) -> Result<u64, StoreError> {
    let last: Option<i64> = match project {
        Some(project) => read
            .conn
            .prepare_cached("SELECT max(updated_at_ms) FROM logs WHERE project = ?")?
            .query_row([project.0], |row| row.get(0))?,
        None => read
            .conn
            .prepare_cached("SELECT max(updated_at_ms) FROM logs")?
            .query_row([], |row| row.get(0))?,
    };
    Ok(from_sql_int(last.unwrap_or(0)))
}

/// Sessions a filter lets through, the one something happened in last first: those behind a place in that
/// order, and up to the moment the list was begun. Then, as a second round, those something has happened in
/// since.
pub fn list(
    read: &Read<'_>,
    project: Option<LogId>,
    filter: &Filter,
    token: Token,
    limit: u32,
) -> Result<Vec<(SessionInfo, u64, LogId)>, StoreError> {
    let (project_is, by) = match project {
        Some(_) => ("logs.project = ?1 AND ", "logs.updated_at_ms"),
        None => ("?1 IS NULL AND ", "logs.updated_at_ms"),
    };
    let (bounds, order) = match token.second_round {
        false => (
            "(logs.updated_at_ms, logs.id) < (?2, ?3) AND logs.updated_at_ms <= ?4",
            "logs.updated_at_ms DESC, logs.id DESC",
        ),
        true => (
            "(logs.updated_at_ms, logs.id) > (?2, ?3) AND logs.updated_at_ms >= ?4 AND EXISTS
               (SELECT 1 FROM ops WHERE ops.log = logs.id AND ops.cursor = logs.head
                AND position > ?12)",
            "logs.updated_at_ms, logs.id",
        ),
    };
    let mut query = read.conn.prepare_cached(&format!(
        "{QUERY} WHERE {project_is} {bounds} AND {by} >= ?5
         AND (?6 = '' OR CASE WHEN ?7 = '' OR sessions.path IS NULL THEN sessions.directory = ?6 ELSE 1 END)
         AND (?7 = '' OR sessions.path IS NULL OR sessions.path = ?7 OR
              substr(sessions.path, 1, length(?7) + 1) = ?7 || '/')
         AND (?7 = '' OR sessions.path IS NOT NULL OR ?6 != '')
         AND (NOT ?8 OR sessions.parent IS NULL)
         AND (?9 = '' OR instr(lower(sessions.title), lower(?9)) > 0)
         AND (?10 = 1 OR (sessions.archived_at_ms IS NOT NULL) = (?10 = 2))
         AND ?12 >= 0 ORDER BY {order} LIMIT ?11"
    ))?;
    let mut rows = query.query(params![
        project.map(|project| project.0),
        sql_int(token.updated_at_ms),
        sql_int(token.log),
        sql_int(token.as_of_ms),
        sql_int(filter.start_ms),
        filter.directory,
        filter.path,
        filter.roots,
        filter.search,
        filter.archived as i64,
        limit,
        sql_int(token.position),
    ])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let info = from_row(row)?;
        let place = (info.updated_at_ms, LogId(row.get(6)?));
        found.push((info, place.0, place.1));
    }
    Ok(found)
}

fn from_row(row: &Row<'_>) -> Result<SessionInfo, StoreError> {
    let text = |column| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
    let odd = |error| StoreError::odd("sessions", error);
    let parent: Option<String> = row.get(7)?;
    let forked_from: Option<Vec<u8>> = row.get(10)?;
    Ok(SessionInfo {
        log: LogId(row.get(6)?),
        id: SessionId::parse(text(0)?).map_err(odd)?,
        project_id: ProjectId::parse(text(1)?).map_err(odd)?,
        title: row.get(2)?,
        created_at_ms: from_sql_int(row.get(3)?),
        cursor: Cursor(from_sql_int(row.get(4)?)),
        head: Cursor(from_sql_int(row.get(5)?)),
        parent: parent.map(|id| SessionId::parse(&id)).transpose().map_err(odd)?,
        slug: row.get(8)?,
        details: read_details(row.get(9)?)?,
        forked_from: forked_from.map(|blob| super::decoded("sessions", &blob)).transpose()?,
        timeline: read_timeline(row.get(11)?)?,
        updated_at_ms: from_sql_int(row.get(12)?),
        usage: usage_from(row, 13)?,
        ..SessionInfo::default()
    })
}

/// The rules of a session and of those it was made for, the first of them first; empty if there is none.
pub fn line(
    read: &Read<'_>,
    log: LogId,
) -> Result<Vec<Vec<crate::model::permission::Rule>>, StoreError> {
    let (mut line, mut next) = (Vec::new(), Some(log.0));
    while let Some(log) = next {
        let found: Option<(Option<Vec<u8>>, Option<i64>)> = read
            .conn
            .prepare_cached("SELECT details, parent FROM sessions WHERE log = ?")?
            .query_row([log], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((details, parent)) = found else { break };
        line.push(read_details(details)?.rules);
        // Parents are older; so this ends, whatever stands there.
        next = parent.filter(|parent| *parent < log);
    }
    line.reverse();
    Ok(line)
}
