//! Table `grants`: recorded authority.

use super::{Read, StoreError, Tx, from_sql_int, sql_int};
use crate::model::caveats::Caveats;
use crate::model::grant::{Authority, Fallen, claimed};
use crate::model::ids::{Cursor, GrantId, GrantKey, LogId};
use crate::model::infos::{Author, ObjectKind};
use crate::model::page::{Page, Paged};
use crate::model::rights::Rights;
use crate::model::sturdy_ref::Verifier;
use rusqlite::{OptionalExtension, Row, params};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::sync::Arc;

/// A grant as it is stored.
#[derive(Debug, Clone)]
pub struct Grant {
    /// Its row.
    pub key: GrantKey,
    /// What fits the secret that redeems it.
    pub verifier: Verifier,
    /// What kind of object it is for.
    pub kind: ObjectKind,
    /// That object's log.
    pub log: LogId,
    /// What its holder may do.
    pub authority: Authority,
    /// Why it was taken back, if it was.
    pub ended: Option<Fallen>,
    /// And when.
    pub revoked_at_ms: Option<u64>,
    /// The one it was derived from.
    pub parent: Option<GrantKey>,
    /// Its public name.
    pub id: GrantId,
    /// What it is for.
    pub label: String,
    /// Whom it is for.
    pub actor: String,
    /// Whether there is a ref for it.
    pub saved: bool,
    /// When it was made.
    pub created_at_ms: u64,
    /// How often its ref was redeemed.
    pub uses: u32,
    /// When it was last used, to within some seconds.
    pub last_used_at_ms: Option<u64>,
    /// Answers given under it, likewise.
    pub reads: u64,
    /// Whether its ref can only be exchanged.
    pub claim: bool,
    /// Its ref is dead if nobody has used it by then.
    pub unused_until_ms: Option<u64>,
    /// Whose own ref must be shown with it; empty for nobody's.
    pub sealed_to: String,
}

impl Grant {
    /// Why it does not stand, if it does not.
    pub fn fallen(&self, now_ms: u64) -> Option<Fallen> {
        let unused = self.uses == 0 && self.unused_until_ms.is_some_and(|at_ms| at_ms <= now_ms);
        match self.ended {
            Some(why) => Some(why),
            None if self.authority.has_expired(now_ms) => Some(Fallen::Expired),
            None => unused.then_some(Fallen::Unused),
        }
    }

    /// When it ceased to stand, if it did.
    pub fn ended_at_ms(&self, now_ms: u64) -> Option<u64> {
        match self.fallen(now_ms)? {
            Fallen::Expired if self.ended.is_none() => self.authority.expires_at_ms,
            Fallen::Unused => self.unused_until_ms,
            _ => self.revoked_at_ms,
        }
    }

    /// What its caveats take up.
    pub fn caveat_bytes(&self) -> usize {
        self.authority.caveats.bytes()
    }

    /// Whether its ref was used as often as it may be.
    pub fn is_used_up(&self) -> bool {
        self.authority.uses_max.is_some_and(|max| self.uses >= max) || (self.claim && self.uses > 0)
    }
}

/// What is special about a ref.
#[derive(Debug, Clone, Copy, Default)]
pub struct RefTerms<'a> {
    /// Whether it can only be exchanged.
    pub claim: bool,
    /// By when it must be used first.
    pub unused_until_ms: Option<u64>,
    /// Whose own ref must be shown with it; empty for nobody's.
    pub sealed_to: &'a str,
}

/// A grant to be stored.
#[derive(Debug, Clone)]
pub struct NewGrant<'a> {
    /// The public half of its ref.
    pub id: GrantId,
    /// What fits the secret half; none if there is no ref for it.
    pub verifier: Option<Verifier>,
    /// What kind of object it is for.
    pub kind: ObjectKind,
    /// That object's log.
    pub log: LogId,
    /// What its holder may do.
    pub authority: Authority,
    /// What it is for, for people.
    pub label: &'a str,
    /// Whom it is for.
    pub actor: &'a str,
    /// The grant it is derived from.
    pub parent: Option<GrantKey>,
    /// What is special about its ref.
    pub terms: RefTerms<'a>,
}

/// Records a grant.
pub fn create(tx: &Tx<'_>, grant: &NewGrant<'_>, now_ms: u64) -> Result<GrantKey, StoreError> {
    // No secret has this hash; whether there is one at all is told apart.
    let nothing = Verifier::from_bytes([0; 32]);
    tx.conn
        .prepare_cached(
            "INSERT INTO grants (public_id, verifier, object_kind, object_log, rights, label, created_at_ms,
                                 parent, depth, actor, expires_at_ms, saved, uses_max, claim, unused_until_ms,
                                 sealed_to, own_messages, tools, paths)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            grant.id.0,
            grant.verifier.unwrap_or(nothing).as_bytes(),
            grant.kind as i64,
            grant.log.0,
            grant.authority.rights.bits(),
            grant.label,
            sql_int(now_ms),
            grant.parent.map(|parent| parent.0),
            grant.authority.depth,
            grant.actor,
            grant.authority.expires_at_ms.map(sql_int),
            grant.verifier.is_some(),
            grant.authority.uses_max,
            grant.terms.claim,
            grant.terms.unused_until_ms.map(sql_int),
            Some(grant.terms.sealed_to).filter(|actor| !actor.is_empty()),
            grant.authority.caveats.only_own,
            listed(grant.authority.caveats.tools.as_ref())?,
            listed(grant.authority.caveats.paths.as_ref())?,
        ])?;
    Ok(GrantKey(tx.conn.last_insert_rowid()))
}

fn listed<T: Serialize>(list: Option<&T>) -> Result<Option<Vec<u8>>, StoreError> {
    let encoded = list.map(postcard::to_stdvec).transpose();
    encoded.map_err(|error| StoreError::Other(format!("a caveat could not be encoded: {error}")))
}

fn from_list<T: DeserializeOwned>(stored: Option<Vec<u8>>) -> Result<Option<T>, StoreError> {
    let decoded = stored.map(|list| postcard::from_bytes(&list)).transpose();
    decoded.map_err(|error| StoreError::odd("grants", error))
}

const COLUMNS: &str = "grants.id, verifier, object_kind, object_log, rights, expires_at_ms, depth,
    revoked_at_ms, public_id, label, actor, saved, created_at_ms, uses_max, uses,
    last_used_at_ms, claim, why, parent, reads, unused_until_ms, sealed_to, own_messages, tools, paths";

/// The grant with this public id.
pub fn by_id(read: &Read<'_>, id: GrantId) -> Result<Option<Grant>, StoreError> {
    read.conn
        .prepare_cached(&format!("SELECT {COLUMNS} FROM grants WHERE public_id = ?"))?
        .query_row([id.0], |row| Ok(from_row(row)))
        .optional()?
        .transpose()
}

/// The grant with this row.
pub fn get(read: &Read<'_>, key: GrantKey) -> Result<Option<Grant>, StoreError> {
    read.conn
        .prepare_cached(&format!("SELECT {COLUMNS} FROM grants WHERE id = ?"))?
        .query_row([key.0], |row| Ok(from_row(row)))
        .optional()?
        .transpose()
}

/// A grant that was derived from another one, and the public name of that one.
#[derive(Debug, Clone)]
pub struct Derived {
    /// The grant.
    pub grant: Grant,
    /// The one right above it.
    pub parent: GrantId,
    /// The public name of its object; empty for the server.
    pub object_id: String,
}

/// A page of everything derived from a grant, in the order it was made; only what is for one object, if that
/// is named.
pub fn derived(
    read: &Read<'_>,
    from: GrantKey,
    object_id: &str,
    page: Page,
) -> Result<Paged<Derived>, StoreError> {
    // All there are stem from the operator's own, so nobody need look which: a page costs what is on it.
    let of_operator = get(read, from)?.is_some_and(|grant| grant.parent.is_none());
    let below = match of_operator {
        true => "SELECT id FROM grants WHERE parent IS NOT NULL AND ?1 = ?1",
        false => {
            "SELECT id FROM grants WHERE parent = ?1
             UNION ALL SELECT grants.id FROM grants JOIN below ON grants.parent = below.id"
        }
    };
    let of_object = match object_id.is_empty() {
        true => "?4 = ''".to_owned(),
        false => format!("object_log IN ({})", super::logs::named(4)),
    };
    let (order, bound) = match page.newest_first() {
        false => ("ORDER BY grants.id", "grants.id >= ?2"),
        true => ("ORDER BY grants.id DESC", "grants.id <= ?2"),
    };
    let mut query = read.conn.prepare_cached(&format!(
        "WITH RECURSIVE below (id) AS ({below})
         SELECT {COLUMNS},
           (SELECT public_id FROM grants AS above WHERE above.id = grants.parent),
           coalesce((SELECT sessions.id FROM sessions WHERE sessions.log = object_log),
                    (SELECT projects.id FROM projects WHERE projects.log = object_log),
                    (SELECT shares.id FROM shares WHERE shares.log = object_log), '')
         FROM below JOIN grants ON grants.id = below.id WHERE {bound} AND {of_object} {order} LIMIT ?3"
    ))?;
    let mut rows = query.query((from.0, page.bound(), page.limit() + 1, object_id))?;
    super::paged(
        &mut rows,
        page,
        |row| {
            Ok(Derived {
                grant: from_row(row)?,
                parent: GrantId(row.get(25)?),
                object_id: row.get(26)?,
            })
        },
        |derived| {
            let grant = &derived.grant;
            let bytes = grant.label.len() + grant.actor.len() + grant.caveat_bytes() + 256;
            (Cursor(from_sql_int(grant.key.0)), bytes)
        },
    )
}

fn from_row(row: &Row<'_>) -> Result<Grant, StoreError> {
    let revoked_at_ms = row.get::<_, Option<i64>>(7)?.map(from_sql_int);
    let kind = row.get::<_, i64>(2)?;
    let kind = ObjectKind::from_number(kind)
        .ok_or_else(|| StoreError::odd("grants", format_args!("object kind {kind}")))?;
    Ok(Grant {
        key: GrantKey(row.get(0)?),
        verifier: Verifier::from_bytes(row.get(1)?),
        kind,
        log: LogId(row.get(3)?),
        authority: Authority {
            rights: Rights::from_bits(row.get(4)?),
            expires_at_ms: row.get::<_, Option<i64>>(5)?.map(from_sql_int),
            uses_max: row.get(13)?,
            depth: row.get(6)?,
            caveats: Caveats {
                only_own: row.get(22)?,
                tools: from_list(row.get(23)?)?,
                paths: from_list(row.get(24)?)?,
            },
        },
        ended: revoked_at_ms.map(|_| row.get(17).map(why)).transpose()?,
        revoked_at_ms,
        parent: row.get::<_, Option<i64>>(18)?.map(GrantKey),
        id: GrantId(row.get(8)?),
        label: row.get(9)?,
        actor: row.get(10)?,
        saved: row.get(11)?,
        created_at_ms: from_sql_int(row.get(12)?),
        uses: row.get(14)?,
        last_used_at_ms: row.get::<_, Option<i64>>(15)?.map(from_sql_int),
        claim: row.get(16)?,
        reads: from_sql_int(row.get(19)?),
        unused_until_ms: row.get::<_, Option<i64>>(20)?.map(from_sql_int),
        sealed_to: row.get::<_, Option<String>>(21)?.unwrap_or_default(),
    })
}

/// A reason nobody knows is one all the same.
fn why(number: u8) -> Fallen {
    Fallen::from_number(number).unwrap_or(Fallen::Revoked)
}

/// What must be known of a grant that stands before anything is done under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Force {
    /// When it ends by itself, if it does.
    pub expires_at_ms: Option<u64>,
    /// Whether only what was written under it may be touched.
    pub only_own: bool,
}

/// Whether a grant stands, as far as it was not taken back; one that was never given does not. Whether its
/// time has come is for whoever knows the time.
pub fn in_force(read: &Read<'_>, key: GrantKey) -> Result<Result<Force, Fallen>, StoreError> {
    let found = read
        .conn
        .prepare_cached(
            "SELECT revoked_at_ms IS NOT NULL, why, expires_at_ms, own_messages FROM grants WHERE id = ?",
        )?
        .query_row([key.0], |row| {
            let expires_at_ms = row.get::<_, Option<i64>>(2)?.map(from_sql_int);
            Ok(match row.get(0)? {
                true => Err(why(row.get(1)?)),
                false => Ok(Force { expires_at_ms, only_own: row.get(3)? }),
            })
        })
        .optional()?;
    Ok(found.unwrap_or(Err(Fallen::Revoked)))
}

/// Whose grants are: looked up once, as a page has many ops under few grants.
#[derive(Default)]
pub struct Authors(HashMap<GrantKey, Arc<Author>>);

impl Authors {
    /// Under whose authority something was done, and on whose behalf.
    pub fn of(&mut self, read: &Read<'_>, key: GrantKey) -> Result<Arc<Author>, StoreError> {
        if let Some(known) = self.0.get(&key) {
            return Ok(known.clone());
        }
        let mut above = read
            .conn
            .prepare_cached("SELECT public_id, actor, parent, claim FROM grants WHERE id = ?")?;
        let mut author = Author { grant: GrantId([0; 16]), actors: Vec::new() };
        let (mut next, mut below) = (Some(key.0), GrantId([0; 16]));
        while let Some(at) = next {
            let (id, actor, parent, claim): ([u8; 16], String, Option<i64>, bool) = above
                .query_row([at], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
            if at == key.0 {
                author.grant = GrantId(id);
            }
            // What was exchanged for a claim is the same actor's.
            let exchanged = claim && claimed(GrantId(id)) == below;
            if !actor.is_empty() && !exchanged {
                author.actors.push(actor);
            }
            (next, below) = (parent, GrantId(id));
        }
        let author = Arc::new(author);
        self.0.insert(key, author.clone());
        Ok(author)
    }
}

/// Whether a grant is another one, or was derived from it.
pub fn stems_from(read: &Read<'_>, key: GrantKey, from: GrantKey) -> Result<bool, StoreError> {
    let mut above = read.conn.prepare_cached("SELECT parent FROM grants WHERE id = ?")?;
    let mut next = Some(key.0);
    while let Some(at) = next {
        if at == from.0 {
            return Ok(true);
        }
        next = above.query_row([at], |row| row.get::<_, Option<i64>>(0)).optional()?.flatten();
    }
    Ok(false)
}

/// The claim a grant was exchanged for, if it was. Others may have been derived from the claim while it was
/// held.
pub fn claim_behind(read: &Read<'_>, key: GrantKey) -> Result<Option<Grant>, StoreError> {
    let Some(grant) = get(read, key)? else { return Ok(None) };
    let Some(parent) = grant.parent else { return Ok(None) };
    Ok(get(read, parent)?.filter(|above| above.claim && claimed(above.id) == grant.id))
}

/// Takes a grant back with everything derived from it; those that were still in force.
pub fn revoke(
    tx: &Tx<'_>,
    key: GrantKey,
    why: Fallen,
    now_ms: u64,
) -> Result<Vec<GrantKey>, StoreError> {
    let mut query = tx.conn.prepare_cached(
        "WITH RECURSIVE cut (id) AS (
           SELECT ?1 UNION ALL SELECT grants.id FROM grants JOIN cut ON grants.parent = cut.id)
         UPDATE grants SET revoked_at_ms = ?2, why = ?3 WHERE id IN cut AND revoked_at_ms IS NULL
         RETURNING id",
    )?;
    let cut =
        query.query_map((key.0, sql_int(now_ms), why as u8), |row| row.get(0).map(GrantKey))?;
    Ok(cut.collect::<Result<_, _>>()?)
}

/// Its ref was redeemed.
pub fn use_once(tx: &Tx<'_>, key: GrantKey, now_ms: u64) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached("UPDATE grants SET uses = uses + 1, last_used_at_ms = ? WHERE id = ?")?
        .execute((sql_int(now_ms), key.0))?;
    Ok(())
}

/// Answers were given under it, the last of them then.
pub fn note_reads(
    tx: &Tx<'_>,
    key: GrantKey,
    reads: u64,
    used_at_ms: u64,
) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "UPDATE grants SET reads = reads + ?, last_used_at_ms = max(coalesce(last_used_at_ms, 0), ?)
             WHERE id = ?",
        )?
        .execute((sql_int(reads), sql_int(used_at_ms), key.0))?;
    Ok(())
}

/// How many grants in force are derived from one directly.
pub fn children_in_force(read: &Read<'_>, key: GrantKey) -> Result<u64, StoreError> {
    let count = read
        .conn
        .prepare_cached("SELECT count(*) FROM grants WHERE parent = ? AND revoked_at_ms IS NULL")?
        .query_row([key.0], |row| row.get(0))?;
    Ok(from_sql_int(count))
}

/// The grants for an object that are in force, but for the operator's own.
pub fn of_object(read: &Read<'_>, log: LogId) -> Result<Vec<GrantKey>, StoreError> {
    keys(
        read,
        "SELECT id FROM grants WHERE object_log = ? AND parent IS NOT NULL AND revoked_at_ms IS NULL",
        log.0,
    )
}

/// The first grant ever made for an object.
pub fn first_of_object(read: &Read<'_>, log: LogId) -> Result<Option<GrantKey>, StoreError> {
    Ok(read
        .conn
        .prepare_cached("SELECT id FROM grants WHERE object_log = ? ORDER BY id LIMIT 1")?
        .query_row([log.0], |row| row.get(0).map(GrantKey))
        .optional()?)
}

/// The grants that were made for an actor and are in force.
pub fn of_actor(read: &Read<'_>, actor: &str) -> Result<Vec<GrantKey>, StoreError> {
    keys(read, "SELECT id FROM grants WHERE actor = ? AND revoked_at_ms IS NULL", actor)
}

fn keys(read: &Read<'_>, sql: &str, of: impl rusqlite::ToSql) -> Result<Vec<GrantKey>, StoreError> {
    let mut query = read.conn.prepare_cached(sql)?;
    let keys = query.query_map([of], |row| row.get(0).map(GrantKey))?;
    Ok(keys.collect::<Result<_, _>>()?)
}

/// Puts a grant in the place of another one: what was derived from that goes on under it, and that one
/// alone is taken back.
pub fn succeed(
    tx: &Tx<'_>,
    former: GrantKey,
    by: GrantKey,
    now_ms: u64,
) -> Result<Vec<GrantKey>, StoreError> {
    tx.conn
        .prepare_cached("UPDATE grants SET parent = ? WHERE parent = ?")?
        .execute((by.0, former.0))?;
    revoke(tx, former, Fallen::Revoked, now_ms)
}

/// The operator's own grants that are in force.
pub fn operators(read: &Read<'_>) -> Result<Vec<GrantKey>, StoreError> {
    keys(
        read,
        "SELECT id FROM grants WHERE parent IS NULL AND object_kind = ? AND revoked_at_ms IS NULL",
        ObjectKind::Root as i64,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sturdy_ref::{Secret, VerifierKey};
    use crate::store::testing;
    use proptest::prelude::*;

    #[test]
    fn a_grant_comes_back_as_it_was_and_is_dead_once_revoked() {
        let (_dir, mut store) = testing::store();
        let tx = store.begin().unwrap();
        let verifier = Secret::new([5; 32]).verifier(&VerifierKey([2; 32]));
        let caveats = Caveats {
            tools: Some(vec!["grep".into()]),
            paths: Some(vec![b"src/\xff".to_vec()]),
            only_own: true,
        };
        let authority = Authority { expires_at_ms: Some(9), caveats, ..Authority::of_operator() };
        let new = |n: u8, parent: Option<GrantKey>| NewGrant {
            id: GrantId([n; 16]),
            verifier: Some(verifier).filter(|_| n == 3),
            kind: ObjectKind::Root,
            log: LogId::ROOT,
            authority: authority.clone(),
            label: "operator",
            actor: "ada",
            parent,
            terms: RefTerms { claim: false, unused_until_ms: Some(40), sealed_to: "eve" },
        };
        let make = |n, parent| create(&tx, &new(n, parent), 1).unwrap();
        let top = make(3, None);
        let found = by_id(&tx, GrantId([3; 16])).unwrap().unwrap();
        assert_eq!((found.key, found.verifier, found.kind), (top, verifier, ObjectKind::Root));
        assert_eq!((found.log, &found.authority, found.ended), (LogId::ROOT, &authority, None));
        assert_eq!((found.unused_until_ms, &*found.sealed_to), (Some(40), "eve"));
        assert_eq!((found.fallen(8), found.fallen(9)), (None, Some(Fallen::Expired)));
        let unused = Grant { authority: Authority::of_operator(), ..found.clone() };
        assert_eq!((unused.fallen(39), unused.fallen(40)), (None, Some(Fallen::Unused)));
        assert_eq!(Grant { uses: 1, ..unused }.fallen(40), None, "it was used in time");
        assert_eq!((&*found.label, &*found.actor, found.saved), ("operator", "ada", true));
        let force = Ok(Force { expires_at_ms: Some(9), only_own: true });
        assert_eq!(in_force(&tx, top).unwrap(), force);
        assert!(by_id(&tx, GrantId([4; 16])).unwrap().is_none());

        // top → a → b, top → c
        let (a, c) = (make(5, Some(top)), make(7, Some(top)));
        let b = make(6, Some(a));
        assert!(stems_from(&tx, b, top).unwrap() && stems_from(&tx, b, b).unwrap());
        assert!(!stems_from(&tx, a, b).unwrap() && !stems_from(&tx, b, c).unwrap());
        let page = |limit| derived(&tx, top, "", Page::new(0, limit, false)).unwrap();
        let keys: Vec<_> = page(10).items.iter().map(|it| (it.grant.key, it.parent.0[0])).collect();
        assert_eq!(keys, [(a, 3), (c, 3), (b, 5)]);
        assert!(page(2).more && !page(3).more);
        note_reads(&tx, a, 3, 7).unwrap();
        use_once(&tx, a, 5).unwrap();
        note_reads(&tx, a, 2, 6).unwrap();
        let noted = get(&tx, a).unwrap().unwrap();
        assert_eq!((noted.reads, noted.uses, noted.last_used_at_ms), (5, 1, Some(6)));
        let author = Authors::default().of(&tx, b).unwrap();
        assert_eq!((author.grant.0[0], author.actors.join(",")), (6, "ada,ada,ada".into()));
        let mut cut = revoke(&tx, a, Fallen::Lapsed, 2).unwrap();
        cut.sort_by_key(|key| key.0);
        assert_eq!(cut, [a, b]);
        let again = revoke(&tx, a, Fallen::Revoked, 3).unwrap();
        assert_eq!(again, [], "there is nothing left to cut");
        assert_eq!(
            (in_force(&tx, b).unwrap(), in_force(&tx, c).unwrap()),
            (Err(Fallen::Lapsed), force)
        );

        assert_eq!(operators(&tx).unwrap(), [top]);
        let next = make(9, None);
        assert_eq!(succeed(&tx, top, next, 3).unwrap(), [top], "it alone is taken back");
        assert!(stems_from(&tx, c, next).unwrap() && in_force(&tx, c).unwrap().is_ok());
        assert_eq!(operators(&tx).unwrap(), [next]);
        let unknown = in_force(&tx, GrantKey(99)).unwrap();
        assert_eq!(unknown, Err(Fallen::Revoked), "an unknown grant is not in force");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

        /// In any tree, taking a grant back cuts exactly what stems from it.
        #[test]
        fn revoking_any_node_cuts_exactly_its_subtree(
            parents in prop::collection::vec(any::<prop::sample::Index>(), 1..40),
            nodes in prop::collection::vec(any::<prop::sample::Index>(), 1..6),
        ) {
            let (_dir, mut store) = testing::store();
            let tx = store.begin().unwrap();
            let authority = Authority::of_operator();
            let make = |n: u8, parent| {
                let id = GrantId([n; 16]);
                let (kind, log) = (ObjectKind::Root, LogId::ROOT);
                let (label, actor, verifier) = ("", "", None);
                let (authority, terms) = (authority.clone(), RefTerms::default());
                create(&tx, &NewGrant { id, verifier, kind, log, authority, label, actor, parent, terms }, 1)
            };
            let mut tree = vec![(make(0, None).unwrap(), None::<usize>)];
            for (n, parent) in (1u8..).zip(&parents) {
                let at = parent.index(tree.len());
                tree.push((make(n, Some(tree[at].0)).unwrap(), Some(at)));
            }
            let mut dead = vec![false; tree.len()];
            for node in nodes {
                let node = node.index(tree.len());
                let below = |mut at: usize| loop {
                    match (at == node, tree[at].1) {
                        (true, _) => return true,
                        (false, Some(parent)) => at = parent,
                        (false, None) => return false,
                    }
                };
                let mut want: Vec<_> = (0..tree.len()).filter(|at| below(*at) && !dead[*at]).collect();
                let mut cut = revoke(&tx, tree[node].0, Fallen::Revoked, 2).unwrap();
                cut.sort_by_key(|key| key.0);
                want.sort_by_key(|at| tree[*at].0.0);
                prop_assert_eq!(cut, want.iter().map(|at| tree[*at].0).collect::<Vec<_>>());
                want.into_iter().for_each(|at| dead[at] = true);
                for (at, (key, _)) in tree.iter().enumerate() {
                    prop_assert_eq!(in_force(&tx, *key).unwrap().is_err(), dead[at]);
                }
            }
        }
    }
}
