//! Table `audit`: who did what. Rows are added and never changed; the oldest may be let go of.

use super::grants::Authors;
use super::{Read, StoreError, Tx, from_sql_int, sql_int};
use crate::limits::{AUDIT_LOOK_MAX, PAGE_BYTES_MAX};
use crate::model::audit::{AuditedOp, AuditedOps, Entry, GENESIS, Hash, Kind};
use crate::model::ids::{Cursor, GrantId, GrantKey, LogId};
use crate::model::infos::{Author, ObjectKind};
use crate::model::page::{Page, Paged};
use rusqlite::{OptionalExtension, Row, params};
use std::sync::Arc;

/// The newest entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Its number; 0 if there is none.
    pub number: u64,
    /// Its hash.
    pub hash: Hash,
    /// Its time.
    pub at_ms: u64,
}

/// The newest entry.
pub fn head(read: &Read<'_>) -> Result<Head, StoreError> {
    let found = read
        .conn
        .prepare_cached("SELECT number, hash, at_ms FROM audit ORDER BY number DESC LIMIT 1")?
        .query_row([], |row| {
            let (number, at_ms) = (from_sql_int(row.get(0)?), from_sql_int(row.get(2)?));
            Ok(Head { number, hash: row.get(1)?, at_ms })
        })
        .optional()?;
    Ok(found.unwrap_or(Head { number: 0, hash: GENESIS, at_ms: 0 }))
}

/// Adds entries at the end, chained to the one before them.
pub fn append(tx: &Tx<'_>, entries: Vec<Entry>, now_ms: u64) -> Result<(), StoreError> {
    if entries.is_empty() {
        return Ok(());
    }
    let mut head = head(tx)?;
    let mut insert = tx.conn.prepare_cached(
        "INSERT INTO audit (number, at_ms, kind, granted, log, subject, count, position, code, missing,
                            digest, hash)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )?;
    for mut entry in entries {
        let number = head.number + 1;
        entry.at_ms = now_ms.max(head.at_ms);
        let hash = entry.hash(number, &head.hash);
        insert.execute(params![
            sql_int(number),
            sql_int(entry.at_ms),
            entry.kind,
            entry.granted.map(|key| key.0),
            entry.log.map(|key| key.0),
            entry.subject.map(|key| key.0),
            sql_int(entry.count),
            sql_int(entry.position),
            entry.code,
            entry.missing,
            entry.digest,
            hash,
        ])?;
        head = Head { number, hash, at_ms: entry.at_ms };
    }
    Ok(())
}

/// Writes down that a program begins to work on this store. What was there before the first entry of all, no
/// entry tells of.
pub fn begin(tx: &Tx<'_>, incarnation: u64, now_ms: u64) -> Result<(), StoreError> {
    let position = match head(tx)?.number {
        0 => super::ops::last_position(tx)?,
        _ => 0,
    };
    let started = Entry { count: incarnation, position, ..Entry::new(Kind::Started) };
    append(tx, vec![started], now_ms)
}

/// Which entries somebody wants to see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Under or about this grant.
    pub grant: Option<GrantId>,
    /// And everything derived from it.
    pub derived: bool,
    /// Under grants made for this actor; empty for all.
    pub actor: String,
    /// About the object with this id; empty for all.
    pub object_id: String,
    /// Not before.
    pub from_ms: u64,
    /// Before; none for no end.
    pub until_ms: Option<u64>,
    /// Of these kinds; all if there are none.
    pub kinds: Vec<u16>,
}

/// An entry as it is told.
#[derive(Debug, Clone)]
pub struct Told {
    /// Its number.
    pub number: u64,
    /// What it says.
    pub entry: Entry,
    /// Its hash.
    pub hash: Hash,
    /// Under whose authority.
    pub author: Option<Arc<Author>>,
    /// The public name of the grant it is about.
    pub subject: Option<GrantId>,
    /// What it happened to.
    pub object: Option<(ObjectKind, String)>,
}

/// A page of the entries under a grant and everything derived from it, or of all there are.
///
/// So much is looked at for one page, and no more: then it ends, and says where the next one goes on.
pub fn page(
    read: &Read<'_>,
    scope: Option<GrantKey>,
    filter: &Filter,
    page: Page,
) -> Result<Paged<Told>, StoreError> {
    let newest = head(read)?.number;
    let (first, last) = window(read, filter, newest)?;
    let of_one_grant = filter.grant.filter(|_| !filter.derived);
    let mut scope = scope;
    if let (Some(grant), Some(top)) = (of_one_grant, scope) {
        let own = match super::grants::by_id(read, grant)? {
            Some(grant) => super::grants::stems_from(read, grant.key, top)?,
            None => false,
        };
        if !own {
            return Ok(Paged { items: Vec::new(), next: page.after(), more: false });
        }
        // Whatever touches the grant is within the scope then.
        scope = None;
    }
    // Entries of one grant or one object are found by an index, however far apart they are; but not where
    // something else must be asked of each.
    let plain = scope.is_none() && filter.actor.is_empty() && filter.kinds.is_empty();
    let indexed = plain && (of_one_grant.is_some() || !filter.object_id.is_empty());
    let look = if indexed { newest } else { u64::from(AUDIT_LOOK_MAX) };
    let (low, high) = match page.newest_first() {
        false => {
            let low = first.max(from_sql_int(page.bound()));
            (low, last.min(low.saturating_add(look)))
        }
        true => {
            let high = last.min(from_sql_int(page.bound()));
            (first.max(high.saturating_sub(look)), high)
        }
    };
    let kinds: Vec<String> = filter.kinds.iter().map(u16::to_string).collect();
    let kinds = match kinds.is_empty() {
        true => String::new(),
        false => format!("AND kind IN ({})", kinds.join(", ")),
    };
    let below = |top: &str| {
        format!(
            "WITH RECURSIVE below (id) AS ({top} UNION ALL
               SELECT grants.id FROM grants JOIN below ON grants.parent = below.id)
             SELECT id FROM below"
        )
    };
    let touches = |set: String| format!("(granted IN ({set}) OR subject IN ({set}))");
    let of_grant = match (filter.grant.is_some(), filter.derived) {
        (false, _) => "?4 IS NULL".to_owned(),
        (true, false) => touches("SELECT id FROM grants WHERE public_id = ?4".into()),
        (true, true) => touches(below("SELECT id FROM grants WHERE public_id = ?4")),
    };
    let of_scope = match scope {
        None => "?3 IS NULL".to_owned(),
        Some(_) => touches(below("SELECT ?3")),
    };
    let of_actor = match filter.actor.is_empty() {
        true => "?5 = ''",
        false => "granted IN (SELECT id FROM grants WHERE actor = ?5)",
    };
    let of_object = match filter.object_id.is_empty() {
        true => "?6 = ''".to_owned(),
        false => format!("log IN ({})", super::logs::named(6)),
    };
    let order = if page.newest_first() { "DESC" } else { "ASC" };
    let mut query = read.conn.prepare(&format!(
        "SELECT {COLUMNS} FROM audit WHERE number >= ?1 AND number <= ?2 AND {of_scope} AND {of_grant}
         AND {of_actor} AND {of_object} {kinds} ORDER BY number {order} LIMIT ?7"
    ))?;
    let mut rows = query.query(params![
        sql_int(low),
        sql_int(high),
        scope.map(|key| key.0),
        filter.grant.map(|id| id.0),
        filter.actor,
        filter.object_id,
        page.limit() + 1,
    ])?;
    let mut authors = Authors::default();
    let mut found = super::paged(&mut rows, page, from_row, |(number, entry, _)| {
        (Cursor(*number), entry.code.len() + 256)
    })?;
    // What was not looked at is on a page behind this one.
    let unlooked = if page.newest_first() { low > first } else { high < last };
    if !found.more && unlooked {
        found.more = true;
        found.next = Cursor(if page.newest_first() { low } else { high });
    }
    let mut items = Vec::with_capacity(found.items.len());
    let mut bytes = 0;
    let mut at = page.after();
    for (number, entry, hash) in found.items {
        // Who did it may take up more than what was done.
        if bytes >= PAGE_BYTES_MAX {
            (found.next, found.more) = (at, true);
            break;
        }
        at = Cursor(number);
        let author = entry.granted.map(|key| authors.of(read, key)).transpose()?;
        bytes += author.as_ref().map_or(0, |author| author.bytes()) + 256;
        let public = |key: GrantKey| super::grants::get(read, key);
        items.push(Told {
            number,
            hash,
            author,
            subject: entry.subject.map(public).transpose()?.flatten().map(|grant| grant.id),
            object: entry.log.map(|log| object(read, log)).transpose()?,
            entry,
        });
    }
    Ok(Paged { items, next: found.next, more: found.more })
}

/// The numbers between which a filter's times lie. Times never fall, so both are found by halves.
fn window(read: &Read<'_>, filter: &Filter, newest: u64) -> Result<(u64, u64), StoreError> {
    let oldest = oldest(read)?;
    let from = match filter.from_ms {
        0 => oldest,
        from_ms => first_since(read, from_ms, oldest, newest)?,
    };
    let until = match filter.until_ms {
        None => newest,
        Some(until_ms) => first_since(read, until_ms, oldest, newest)?.saturating_sub(1),
    };
    Ok((from, until))
}

/// The first number at or after a time; one more than the newest if there is none.
fn first_since(read: &Read<'_>, at_ms: u64, oldest: u64, newest: u64) -> Result<u64, StoreError> {
    let mut query = read.conn.prepare_cached("SELECT at_ms FROM audit WHERE number = ?")?;
    let (mut low, mut high) = (oldest, newest + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        let found: i64 = query.query_row([sql_int(middle)], |row| row.get(0))?;
        if from_sql_int(found) < at_ms { low = middle + 1 } else { high = middle }
    }
    Ok(low)
}

/// The number of the oldest entry there is; 1 if there is none.
pub fn oldest(read: &Read<'_>) -> Result<u64, StoreError> {
    let oldest: Option<i64> = read
        .conn
        .prepare_cached("SELECT min(number) FROM audit")?
        .query_row([], |row| row.get(0))?;
    Ok(oldest.map_or(1, from_sql_int))
}

const COLUMNS: &str =
    "number, at_ms, kind, granted, log, subject, count, position, code, missing, digest, hash";

fn from_row(row: &Row<'_>) -> Result<(u64, Entry, Hash), StoreError> {
    let entry = Entry {
        at_ms: from_sql_int(row.get(1)?),
        kind: row.get(2)?,
        granted: row.get::<_, Option<i64>>(3)?.map(GrantKey),
        log: row.get::<_, Option<i64>>(4)?.map(LogId),
        subject: row.get::<_, Option<i64>>(5)?.map(GrantKey),
        count: from_sql_int(row.get(6)?),
        position: from_sql_int(row.get(7)?),
        code: row.get(8)?,
        missing: row.get(9)?,
        digest: row.get(10)?,
    };
    Ok((from_sql_int(row.get(0)?), entry, row.get(11)?))
}

/// What a log is the log of, for people.
fn object(read: &Read<'_>, log: LogId) -> Result<(ObjectKind, String), StoreError> {
    if log == LogId::ROOT {
        return Ok((ObjectKind::Root, String::new()));
    }
    let found = read
        .conn
        .prepare_cached(
            "SELECT 2, id FROM sessions WHERE log = ?1 UNION ALL SELECT 1, id FROM projects WHERE log = ?1
             UNION ALL SELECT 3, id FROM shares WHERE log = ?1
             UNION ALL SELECT 4, id FROM trees WHERE log = ?1
             UNION ALL SELECT 5, id FROM snapshots WHERE log = ?1",
        )?
        .query_row([log.0], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)))
        .optional()?;
    let (kind, id) = found.unwrap_or((ObjectKind::Session as i64, String::new()));
    Ok((ObjectKind::from_number(kind).unwrap_or(ObjectKind::Session), id))
}

/// Hands every entry to `take`, oldest first.
pub fn each(
    read: &Read<'_>,
    mut take: impl FnMut(u64, Entry, Hash) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut query = read.conn.prepare(&format!("SELECT {COLUMNS} FROM audit ORDER BY number"))?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let (number, entry, hash) = from_row(row)?;
        take(number, entry, hash)?;
    }
    Ok(())
}

/// The hash of an entry, if it is there.
pub fn hash_at(read: &Read<'_>, number: u64) -> Result<Option<Hash>, StoreError> {
    Ok(read
        .conn
        .prepare_cached("SELECT hash FROM audit WHERE number = ?")?
        .query_row([sql_int(number)], |row| row.get(0))
        .optional()?)
}

/// The ops between two positions that are still there.
pub fn ops_between(read: &Read<'_>, first: u64, last: u64) -> Result<AuditedOps, StoreError> {
    let mut query = read.conn.prepare_cached(
        "SELECT position, log, cursor, coalesce(project, 0), producer, seq, granted, at_ms, kind, version,
                coalesce(replaces, 0), op_id, coalesce(batch, zeroblob(16)), payload
         FROM ops WHERE position >= ? AND position <= ? ORDER BY position",
    )?;
    let mut rows = query.query((sql_int(first), sql_int(last)))?;
    let mut found = AuditedOps::default();
    while let Some(row) = rows.next()? {
        let mut numbers = [0; 10];
        for (column, number) in (1..).zip(&mut numbers) {
            *number = from_sql_int(row.get(column)?);
        }
        found.push(&AuditedOp {
            position: from_sql_int(row.get(0)?),
            numbers,
            op_id: row.get(11)?,
            batch: row.get(12)?,
            payload: row.get_ref(13)?.as_blob().map_err(rusqlite::Error::from)?,
        });
    }
    Ok(found)
}

/// The last entry that tells of letting go.
pub fn last_pruned(read: &Read<'_>) -> Result<Option<Entry>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM audit WHERE kind = ? ORDER BY number DESC LIMIT 1");
    let mut query = read.conn.prepare(&sql)?;
    let mut rows = query.query([Kind::Pruned as u16])?;
    Ok(rows.next()?.map(from_row).transpose()?.map(|(_, entry, _)| entry))
}

/// The oldest entry, and up to where entries may be let go of: all older than a time, and all but so many.
/// None if there is nothing.
pub fn prunable(
    read: &Read<'_>,
    before_ms: Option<u64>,
    entries_max: Option<u64>,
) -> Result<Option<(u64, u64)>, StoreError> {
    let (oldest, newest) = (oldest(read)?, head(read)?.number);
    let by_age = match before_ms {
        None => 0,
        Some(before_ms) => first_since(read, before_ms, oldest, newest)?.saturating_sub(1),
    };
    // Not for one entry too many: what tells of letting go is one itself.
    let is_worth_it = |max: &u64| newest.saturating_sub(oldest) > max + max / 16 + 1;
    let by_number = entries_max.filter(is_worth_it).map_or(0, |max| newest.saturating_sub(max));
    // The newest one stays: the chain goes on from it.
    let through = by_age.max(by_number).min(newest.saturating_sub(1));
    Ok((through >= oldest).then_some((oldest, through)))
}

/// Lets entries go up to a number; what is to be written down about it.
pub fn prune(tx: &Tx<'_>, through: u64) -> Result<Option<Entry>, StoreError> {
    let Some(hash) = hash_at(tx, through)? else { return Ok(None) };
    // An earlier entry of this kind tells of ops before itself, so it is not the last one that counts.
    let covered: Option<i64> = tx
        .conn
        .prepare_cached(
            "SELECT max(CASE WHEN digest = x'' OR kind = ?2 THEN position ELSE position + count - 1 END)
             FROM audit WHERE number <= ?1",
        )?
        .query_row((sql_int(through), Kind::Pruned as u16), |row| row.get(0))?;
    // What goes now may tell of no ops at all; then it is as it was.
    let before = last_pruned(tx)?.map_or(0, |pruned| pruned.position);
    let covered = before.max(from_sql_int(covered.unwrap_or(0)));
    tx.conn.prepare_cached("DELETE FROM audit WHERE number <= ?")?.execute([sql_int(through)])?;
    Ok(Some(Entry {
        count: through,
        position: covered,
        digest: hash.to_vec(),
        ..Entry::new(Kind::Pruned)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::grant::Authority;
    use crate::store::grants::{NewGrant, RefTerms};
    use crate::store::testing;

    /// However far apart they are, and from whichever end: every entry comes once, in order, and no page looks
    /// at more than it may.
    #[test]
    fn a_page_ends_after_a_look_and_the_next_goes_on_behind_it() {
        let (_dir, mut store) = testing::store();
        let tx = store.begin().unwrap();
        let grant = |n: u8, parent| {
            let grant = NewGrant {
                id: GrantId([n; 16]),
                verifier: None,
                kind: ObjectKind::Root,
                log: LogId::ROOT,
                authority: Authority::of_operator(),
                label: "",
                actor: "",
                parent,
                terms: RefTerms::default(),
            };
            crate::store::grants::create(&tx, &grant, 1).unwrap()
        };
        let top = grant(1, None);
        let (rare, other) = (grant(2, Some(top)), grant(3, Some(top)));
        let all = u64::from(AUDIT_LOOK_MAX) * 2 + 5_000;
        let is_rare = |number: u64| number % 7_001 == 3;
        let entries = (1..=all)
            .map(|number| Entry {
                granted: Some(if is_rare(number) { rare } else { other }),
                ..Entry::new(Kind::Redeemed)
            })
            .collect();
        append(&tx, entries, 5).unwrap();
        let want: Vec<_> = (1..=all).filter(|number| is_rare(*number)).collect();
        let walk = |scope: Option<GrantKey>, filter: &Filter, newest_first: bool| {
            let (mut found, mut pages, mut after) = (Vec::new(), 0, 0);
            loop {
                let got = page(&tx, scope, filter, Page::new(after, 3, newest_first)).unwrap();
                found.extend(got.items.iter().map(|told| told.number));
                pages += 1;
                if !got.more {
                    break;
                }
                after = got.next.0;
            }
            if newest_first {
                found.reverse();
            }
            (found, pages)
        };
        let of_rare = Filter { grant: Some(GrantId([2; 16])), ..Filter::default() };
        for newest_first in [false, true] {
            let (found, pages) = walk(Some(rare), &Filter::default(), newest_first);
            assert_eq!(found, want, "by its scope, newest first: {newest_first}");
            assert!(pages > 2, "no page looked at all of them");
            // By an index it is found at once, within the scope and without.
            for scope in [None, Some(rare), Some(top)] {
                let (found, pages) = walk(scope, &of_rare, newest_first);
                assert_eq!((found, pages), (want.clone(), want.len().div_ceil(3)));
            }
            assert!(walk(Some(other), &of_rare, newest_first).0.is_empty(), "it is not its own");
            // Something else asked of each entry puts the look back into bounds.
            let kinds = vec![Kind::Redeemed as u16];
            let (found, _) = walk(None, &Filter { kinds, ..of_rare.clone() }, newest_first);
            assert_eq!(found, want);
        }
        let before = Filter { until_ms: Some(5), ..Filter::default() };
        assert!(walk(None, &before, false).0.is_empty(), "nothing is older");
    }
}
