//! What must hold between the rows, asked of the rows themselves.
//!
//! Each question returns what is wrong, in words, and how many rows it looked at.

use super::receipts::decoded;
use super::{Read, StoreError, from_sql_int};
use crate::model::audit;
use crate::model::grant::claimed;
use crate::model::ids::{GrantId, GrantKey};
use crate::model::ledger::Decision;

/// What a check has found.
#[derive(Debug, Default)]
pub struct Findings {
    /// Rows looked at.
    pub looked_at: u64,
    /// What is wrong.
    pub problems: Vec<String>,
}

type Found = Result<Findings, StoreError>;

/// Whether the file itself is whole.
pub fn integrity(read: &Read<'_>) -> Found {
    let mut query = read.conn.prepare("PRAGMA main.integrity_check(100)")?;
    let lines = query.query_map([], |row| row.get::<_, String>(0))?;
    let mut found = Findings::default();
    for line in lines {
        found.problems.push(line?);
    }
    found.problems.retain(|line| line != "ok");
    found.looked_at = from_sql_int(read.conn.query_row("PRAGMA page_count", [], |row| row.get(0))?);
    Ok(found)
}

/// Whether every row that names another one finds it.
pub fn orphans(read: &Read<'_>) -> Found {
    let mut found = Findings::default();
    let mut query = read.conn.prepare("PRAGMA main.foreign_key_check")?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let (table, id, parent): (String, Option<i64>, String) =
            (row.get(0)?, row.get(1)?, row.get(2)?);
        let id = id.map_or("a row".into(), |id| format!("row {id}"));
        found.problems.push(format!("{table}: {id} names a row of {parent} that does not exist"));
    }
    // What foreign keys do not say.
    for (sql, text) in [
        (
            "SELECT messages.session, messages.cursor FROM messages
             LEFT JOIN ops ON ops.log = messages.session AND ops.cursor = messages.cursor
             WHERE ops.position IS NULL",
            "messages: session {} has a message at {} without an op",
        ),
        (
            "SELECT logs.id, 0 FROM logs WHERE id != 1 AND NOT removed AND id NOT IN (SELECT log FROM projects)
             AND id NOT IN (SELECT log FROM sessions) AND id NOT IN (SELECT log FROM shares)
             AND id NOT IN (SELECT log FROM trees) AND id NOT IN (SELECT log FROM snapshots)",
            "logs: log {} belongs to nothing ({})",
        ),
        (
            "SELECT ops.log, ops.cursor FROM ops JOIN logs ON logs.id = ops.log
             WHERE ops.project IS NOT logs.project",
            "ops: in log {} the op at {} names another project than its log",
        ),
        (
            "SELECT logs.id, sessions.project FROM logs JOIN sessions ON sessions.log = logs.id
             WHERE logs.project IS NOT sessions.project
             UNION ALL SELECT logs.id, projects.log FROM logs JOIN projects ON projects.log = logs.id
             WHERE logs.project IS NOT logs.id",
            "logs: log {} does not belong to project {}, as it should",
        ),
    ] {
        pairs(read, sql, text, &mut found)?;
    }
    for table in ["logs", "ops", "messages", "receipts"] {
        found.looked_at += super::scratch::count(read, table)?;
    }
    Ok(found)
}

/// Whether every log is dense above its floor, ends at its head, and rises with the order of commits.
pub fn density(read: &Read<'_>) -> Found {
    let mut found = Findings::default();
    let questions = [
        (
            "SELECT logs.id, logs.head FROM logs
             LEFT JOIN ops ON ops.log = logs.id AND ops.cursor > logs.floor
             GROUP BY logs.id HAVING count(ops.cursor) != logs.head - logs.floor
                OR coalesce(max(ops.cursor), logs.head) != logs.head",
            "log {}: its ops do not reach from the floor to the head at {} without a gap",
        ),
        (
            "SELECT log, cursor FROM (SELECT log, cursor,
                position <= lag(position) OVER (PARTITION BY log ORDER BY cursor) AS fell FROM ops)
             WHERE fell",
            "log {}: the op at {} was committed before the one in front of it",
        ),
        (
            "SELECT low.id, cut.id FROM logs AS cut JOIN logs AS low
               ON low.id = 1 OR low.id = cut.project
             WHERE cut.floor > 0 AND low.wide_floor <
               (SELECT coalesce(max(position), 0) FROM ops WHERE log = cut.id AND cursor <= cut.floor)",
            "log {}: its feed would not tell that log {} was compacted",
        ),
        (
            "SELECT id, head FROM logs WHERE floor > swept OR swept > head",
            "log {}: it is compacted beyond its head at {}",
        ),
    ];
    for (sql, text) in questions {
        pairs(read, sql, text, &mut found)?;
    }
    found.looked_at = super::scratch::count(read, "ops")?;
    Ok(found)
}

/// Whether what is counted beside the rows is what one counts among them.
pub fn counters(read: &Read<'_>) -> Found {
    let mut found = Findings::default();
    let questions = [
        (
            "SELECT logs.id, logs.bytes FROM logs
             LEFT JOIN ops ON ops.log = logs.id AND ops.cursor > logs.swept
             GROUP BY logs.id HAVING coalesce(sum(length(ops.payload)), 0) != logs.bytes",
            "log {}: its history does not have the {} bytes it is said to have",
        ),
        (
            "SELECT logs.id, logs.producers FROM logs LEFT JOIN producers ON producers.log = logs.id
             GROUP BY logs.id HAVING count(producers.id) != logs.producers",
            "log {}: it does not have the {} producers it is said to have",
        ),
    ];
    for (sql, text) in questions {
        pairs(read, sql, text, &mut found)?;
    }
    found.looked_at = super::scratch::count(read, "logs")?;
    Ok(found)
}

/// Whether every op stands under a number its producer was decided about, and no number twice.
pub fn producers(read: &Read<'_>) -> Found {
    let mut found = Findings::default();
    let questions = [
        (
            "SELECT producer, seq FROM ops GROUP BY producer, seq HAVING count(*) > 1",
            "producer {}: number {} is in the log twice",
        ),
        (
            "SELECT producers.id, ops.seq FROM ops JOIN producers ON producers.id = ops.producer
             WHERE ops.seq > producers.high OR ops.log != producers.log",
            "producer {}: an op {} is in a log where the producer was never decided about it",
        ),
        (
            "SELECT id, high FROM producers WHERE acked_through > high",
            "producer {}: acknowledged more than was decided, {}",
        ),
        (
            "SELECT subscriptions.log, place FROM subscriptions JOIN logs ON logs.id = subscriptions.log
             WHERE place > CASE WHEN logs.project IS NULL OR logs.project = logs.id
               THEN max(wide_floor, (SELECT coalesce(max(position), 0) FROM ops)) ELSE head END",
            "log {}: a subscription was acknowledged up to {}, after the end",
        ),
    ];
    for (sql, text) in questions {
        pairs(read, sql, text, &mut found)?;
    }
    found.looked_at = super::scratch::count(read, "producers")?;
    Ok(found)
}

/// Whether no grant has more than the one it was derived from, or outlived it.
pub fn grants(read: &Read<'_>) -> Found {
    let mut found = Findings::default();
    let unknown_root = format!(
        "SELECT id, depth FROM grants WHERE parent IS NULL
         AND created_at_ms > (SELECT at_ms FROM audit ORDER BY number LIMIT 1)
         AND id NOT IN (SELECT subject FROM audit WHERE kind = {} AND subject IS NOT NULL)",
        audit::Kind::RootRotated as u16
    );
    let questions = [
        (
            "SELECT below.id, above.id FROM grants AS below JOIN grants AS above ON above.id = below.parent
             WHERE below.rights & ~above.rights != 0 OR below.depth != above.depth + 1
                OR coalesce(below.expires_at_ms > above.expires_at_ms,
                            above.expires_at_ms IS NOT NULL AND below.expires_at_ms IS NULL)",
            "grant {} has more than grant {}, which it was derived from",
        ),
        (
            "SELECT below.id, above.id FROM grants AS below JOIN grants AS above ON above.id = below.parent
             WHERE above.revoked_at_ms IS NOT NULL AND below.revoked_at_ms IS NULL",
            "grant {} is in force, though grant {}, which it was derived from, was revoked",
        ),
        (
            "SELECT id, depth FROM grants WHERE parent IS NULL AND (depth != 0 OR object_kind != 0)",
            "grant {} of depth {} was derived from none",
        ),
        (
            &unknown_root,
            "grant {} of depth {} is the operator's, and the audit trail does not know it",
        ),
        (
            "SELECT granted, delegations.end FROM delegations JOIN grants ON grants.id = granted
             WHERE (delegations.end = 0) = (revoked_at_ms IS NOT NULL)",
            "grant {} and its delegation, which stands at {}, do not end together",
        ),
        (
            "SELECT grants.id, shares.log FROM grants JOIN shares ON shares.log = object_log
             WHERE ended_at_ms IS NOT NULL AND revoked_at_ms IS NULL",
            "grant {} is in force, though the share {} it is for was ended",
        ),
    ];
    for (sql, text) in questions {
        pairs(read, sql, text, &mut found)?;
    }
    // Caveats are lists; whether one is within another is not for SQL to say.
    let mut query = read.conn.prepare("SELECT id, parent FROM grants WHERE parent IS NOT NULL")?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let (id, parent): (i64, i64) = (row.get(0)?, row.get(1)?);
        let (below, above) = (grant_of(read, id)?, grant_of(read, parent)?);
        let (Some(below), Some(above)) = (below, above) else { continue };
        let (below, above) = (below.authority.caveats, above.authority.caveats);
        if above.narrowed(&below).ok() != Some(below) {
            found.problems.push(format!("grant {id} has lost a caveat of grant {parent}"));
        }
    }
    found.looked_at = super::scratch::count(read, "grants")?;
    Ok(found)
}

/// Grants that were derived from another one, though the history tells of nobody who did.
pub fn unmade_grants(
    read: &Read<'_>,
    made: impl Fn(GrantId) -> bool,
) -> Result<Vec<String>, StoreError> {
    let mut query = read.conn.prepare(
        "SELECT grants.id, grants.public_id, above.public_id, above.claim
         FROM grants JOIN grants AS above ON above.id = grants.parent
         -- What was said about a session that is gone is gone, too.
         WHERE grants.object_log NOT IN (SELECT id FROM logs WHERE removed)
           AND grants.object_log NOT IN (SELECT shares.log FROM shares JOIN logs ON logs.id = shares.session
                                         WHERE removed)",
    )?;
    let mut rows = query.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let (id, above) = (GrantId(row.get(1)?), GrantId(row.get(2)?));
        let exchanged = row.get(3)? && claimed(above) == id;
        if !exchanged && !made(id) {
            found.push(format!("grant {} was made by nobody", row.get::<_, i64>(0)?));
        }
    }
    Ok(found)
}

fn grant_of(read: &Read<'_>, id: i64) -> Result<Option<super::grants::Grant>, StoreError> {
    super::grants::get(read, GrantKey(id))
}

/// Whether every result that was not acknowledged is kept, can be read, and is true.
pub fn receipts(read: &Read<'_>) -> Found {
    let mut found = Findings::default();
    let mut producers = read.conn.prepare(
        "SELECT producers.id, log, high, acked_through, floor FROM producers JOIN logs ON logs.id = log",
    )?;
    let mut kept = read.conn.prepare(
        "SELECT first_seq, last_seq, receipts FROM receipts WHERE producer = ? ORDER BY first_seq",
    )?;
    let mut op = read.conn.prepare("SELECT producer, seq FROM ops WHERE log = ? AND cursor = ?")?;
    let mut rows = producers.query([])?;
    while let Some(row) = rows.next()? {
        let [id, log, high, acked, floor]: [i64; 5] =
            [row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?];
        let mut next = None;
        let mut batches = kept.query([id])?;
        while let Some(batch) = batches.next()? {
            let (first, last): (i64, i64) = (batch.get(0)?, batch.get(1)?);
            let receipts =
                match decoded(batch.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?) {
                    Ok(receipts) => receipts,
                    Err(error) => {
                        found
                            .problems
                            .push(format!("producer {id}: results from {first} on: {error}"));
                        continue;
                    }
                };
            found.looked_at += receipts.len() as u64;
            if next.is_some_and(|next| next != first) || last - first + 1 != receipts.len() as i64 {
                found.problems.push(format!("producer {id}: results around {first} are missing"));
            }
            if next.is_none() && first > acked + 1 {
                found.problems.push(format!("producer {id}: results before {first} are missing"));
            }
            next = Some(last + 1);
            for (seq, receipt) in (first..).zip(receipts) {
                let (Decision::Applied { cursor, .. } | Decision::AppliedTo { cursor, .. }) =
                    receipt.decision
                else {
                    continue;
                };
                let place = super::sql_int(cursor.0);
                let stands: Option<(i64, i64)> = op
                    .query_map((log, place), |row| Ok((row.get(0)?, row.get(1)?)))?
                    .next()
                    .transpose()?;
                // Below the floor the op may be compacted, and its result still be wanted.
                let fits = match stands {
                    Some(stands) => stands == (id, seq),
                    None => place <= floor,
                };
                if !fits {
                    found.problems.push(format!(
                        "producer {id}: op {seq} was acknowledged at {place}, where it is not"
                    ));
                }
            }
        }
        match next.unwrap_or(high + 1) - 1 {
            last if last < high || (next.is_none() && acked < high) => {
                found.problems.push(format!("producer {id}: results up to {high} are missing"));
            }
            last if last > high => {
                found
                    .problems
                    .push(format!("producer {id}: there are results after the last, {high}"));
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Adds a problem for each row of a question that has two numbers to tell.
fn pairs(read: &Read<'_>, sql: &str, text: &str, found: &mut Findings) -> Result<(), StoreError> {
    let mut query = read.conn.prepare(sql)?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let (one, other): (i64, i64) = (row.get(0)?, row.get(1)?);
        let text = text.replacen("{}", &one.to_string(), 1).replacen("{}", &other.to_string(), 1);
        found.problems.push(text);
    }
    Ok(())
}
