//! Table `shares`: published views of sessions. It follows from the history, and outlives the sessions.

use super::{Read, StoreError, Tx, from_sql_int, sql_int};
use crate::model::feed::Stretch;
use crate::model::ids::{Cursor, LogId, SessionId, ShareId};
use crate::model::infos::SessionKey;
use crate::model::page::{Page, Paged};
use crate::model::share::{KeptShare, ShareInfo, ShareKey, Terms, View};
use rusqlite::{OptionalExtension, Row, params};

const QUERY: &str = "SELECT shares.log, shares.id, shares.session, session_id, append, up_to, tool_outputs,
       reasoning, shares.created_at_ms, ended_at_ms, sessions.title, coalesce(of_session.head, 0), own.epoch
     FROM shares JOIN logs AS own ON own.id = shares.log
     LEFT JOIN sessions ON sessions.log = shares.session
     LEFT JOIN logs AS of_session ON of_session.id = sessions.log";

/// A share to be recorded.
#[derive(Debug, Clone, Copy)]
pub struct NewShare<'a> {
    /// Where it lives.
    pub key: &'a ShareKey,
    /// The public name of the session it shows.
    pub session_id: &'a SessionId,
    /// That session's project.
    pub project: LogId,
    /// Whether messages may be added through it.
    pub append: bool,
    /// What it shows.
    pub view: View,
    /// When it was made.
    pub created_at_ms: u64,
}

/// Records a share.
pub fn create(tx: &Tx<'_>, share: &NewShare<'_>) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "INSERT INTO shares (log, id, session, session_id, project, append, up_to, tool_outputs,
                                 reasoning, created_at_ms)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            share.key.log.0,
            share.key.id.as_str(),
            share.key.session.0,
            share.session_id.as_str(),
            share.project.0,
            share.append,
            sql_int(share.view.up_to.0),
            share.view.tool_outputs,
            share.view.reasoning,
            sql_int(share.created_at_ms),
        ])?;
    Ok(())
}

/// Ends a share; false if it was ended before.
pub fn end(tx: &Tx<'_>, log: LogId, now_ms: u64) -> Result<bool, StoreError> {
    let ended = tx
        .conn
        .prepare_cached("UPDATE shares SET ended_at_ms = ? WHERE log = ? AND ended_at_ms IS NULL")?
        .execute((sql_int(now_ms), log.0))?;
    Ok(ended == 1)
}

/// Records what there is to tell of a share whose session is gone.
pub fn keep(
    tx: &Tx<'_>,
    session: &SessionKey,
    project: LogId,
    share: &KeptShare,
) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "INSERT INTO shares (log, id, session, session_id, project, append, up_to, tool_outputs,
                                 reasoning, created_at_ms, ended_at_ms)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
             ON CONFLICT (log) DO UPDATE SET ended_at_ms = excluded.ended_at_ms",
        )?
        .execute(params![
            share.key.log.0,
            share.key.id.as_str(),
            share.key.session.0,
            session.id.as_str(),
            project.0,
            share.append,
            sql_int(share.view.up_to.0),
            share.view.tool_outputs,
            share.view.reasoning,
            sql_int(share.created_at_ms),
            sql_int(share.ended_at_ms),
        ])?;
    Ok(())
}

/// What is told about a share.
pub fn info(read: &Read<'_>, log: LogId) -> Result<Option<ShareInfo>, StoreError> {
    read.conn
        .prepare_cached(&format!("{QUERY} WHERE shares.log = ?"))?
        .query_row([log.0], |row| Ok(from_row(row)))
        .optional()?
        .transpose()
}

/// What counts when something is to be done with a share, if there is one.
pub fn terms(read: &Read<'_>, log: LogId) -> Result<Option<Terms>, StoreError> {
    let found = read
        .conn
        .prepare_cached(
            "SELECT id, session, ended_at_ms IS NULL, append FROM shares WHERE log = ?",
        )?
        .query_row([log.0], |row| {
            Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .optional()?;
    found
        .map(|(id, session, open, append)| {
            let id = ShareId::parse(&id).map_err(|error| StoreError::odd("shares", error))?;
            Ok(Terms { key: ShareKey { log, id, session: LogId(session) }, open, append })
        })
        .transpose()
}

/// The share with this id, if it is one of the server's, of a project's or of a session's.
pub fn within(read: &Read<'_>, of: Stretch, id: &ShareId) -> Result<Option<ShareKey>, StoreError> {
    let found = read
        .conn
        .prepare_cached(&format!(
            "SELECT log, session FROM shares WHERE id = ?2 AND {}",
            bound(of)
        ))?
        .query_row((of.log().0, id.as_str()), |row| {
            Ok(ShareKey { log: LogId(row.get(0)?), id: id.clone(), session: LogId(row.get(1)?) })
        })
        .optional()?;
    Ok(found)
}

/// A page of the shares of the server, of a project or of a session, in the order they were made.
pub fn page(read: &Read<'_>, of: Stretch, page: Page) -> Result<Paged<ShareInfo>, StoreError> {
    let (order, from) = match page.newest_first() {
        false => ("ORDER BY shares.log", "shares.log >= ?2"),
        true => ("ORDER BY shares.log DESC", "shares.log <= ?2"),
    };
    let sql = format!("{QUERY} WHERE {} AND {from} {order} LIMIT ?3", bound(of));
    let mut query = read.conn.prepare_cached(&sql)?;
    let mut rows = query.query((of.log().0, page.bound(), page.limit() + 1))?;
    super::paged(&mut rows, page, from_row, |share| {
        let bytes = share.title.as_ref().map_or(0, String::len) + 256;
        (Cursor(from_sql_int(share.key.log.0)), bytes)
    })
}

fn bound(of: Stretch) -> &'static str {
    match of {
        Stretch::Server => "?1 = ?1",
        Stretch::Project(_) => "shares.project = ?1",
        Stretch::Log(_) => "shares.session = ?1",
    }
}

fn from_row(row: &Row<'_>) -> Result<ShareInfo, StoreError> {
    let text = |column| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
    let odd = |error| StoreError::odd("shares", error);
    Ok(ShareInfo {
        key: ShareKey {
            log: LogId(row.get(0)?),
            id: ShareId::parse(text(1)?).map_err(odd)?,
            session: LogId(row.get(2)?),
        },
        session_id: SessionId::parse(text(3)?).map_err(odd)?,
        append: row.get(4)?,
        view: View {
            up_to: Cursor(from_sql_int(row.get(5)?)),
            tool_outputs: row.get(6)?,
            reasoning: row.get(7)?,
        },
        created_at_ms: from_sql_int(row.get(8)?),
        ended_at_ms: row.get::<_, Option<i64>>(9)?.map(from_sql_int),
        title: row.get(10)?,
        head: Cursor(from_sql_int(row.get(11)?)),
        epoch: from_sql_int(row.get(12)?),
    })
}
