//! Table `subscriptions`: how far each named feed has been taken in.

use super::{Read, StoreError, Tx, from_sql_int, sql_int};
use crate::model::ids::{LogId, ShareId, SubscriptionName};
use rusqlite::OptionalExtension;

/// The row of a named subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SubscriptionKey(pub(super) i64);

/// A named subscription somebody has taken up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Its row.
    pub key: SubscriptionKey,
    /// Everything up to here was acknowledged.
    pub place: u64,
    /// Which of all who took it up this is.
    pub holder: u64,
}

/// Takes a subscription up, begins it behind `after` if there is none yet. Whoever had it before has it no
/// more.
pub fn take(
    tx: &Tx<'_>,
    log: LogId,
    name: &SubscriptionName,
    after: u64,
    now_ms: u64,
) -> Result<Taken, StoreError> {
    let taken = tx
        .conn
        .prepare_cached(
            "INSERT INTO subscriptions (log, name, place, holder, used_at_ms) VALUES (?, ?, ?, 1, ?)
             ON CONFLICT (log, name) DO UPDATE SET holder = holder + 1, used_at_ms = excluded.used_at_ms
             RETURNING id, place, holder",
        )?
        .query_row((log.0, name.as_str(), sql_int(after), sql_int(now_ms)), |row| {
            Ok(Taken {
                key: SubscriptionKey(row.get(0)?),
                place: from_sql_int(row.get(1)?),
                holder: from_sql_int(row.get(2)?),
            })
        })?;
    Ok(taken)
}

/// Moves a subscription on; it never goes back. False if somebody else has it by now, or nobody.
pub fn acknowledge(
    tx: &Tx<'_>,
    key: SubscriptionKey,
    holder: u64,
    place: u64,
    now_ms: u64,
) -> Result<bool, StoreError> {
    let moved = tx
        .conn
        .prepare_cached(
            "UPDATE subscriptions SET place = max(place, ?), used_at_ms = ? WHERE id = ? AND holder = ?",
        )?
        .execute((sql_int(place), sql_int(now_ms), key.0, sql_int(holder)))?;
    Ok(moved == 1)
}

/// Drops a subscription; which, if there was one.
pub fn forget(
    tx: &Tx<'_>,
    log: LogId,
    name: &SubscriptionName,
) -> Result<Option<SubscriptionKey>, StoreError> {
    let dropped = tx
        .conn
        .prepare_cached("DELETE FROM subscriptions WHERE log = ? AND name = ? RETURNING id")?
        .query_row((log.0, name.as_str()), |row| row.get(0).map(SubscriptionKey))
        .optional()?;
    Ok(dropped)
}

/// Drops those that were not used since then; how many.
pub fn forget_unused(tx: &Tx<'_>, log: LogId, since_ms: u64) -> Result<usize, StoreError> {
    Ok(tx
        .conn
        .prepare_cached("DELETE FROM subscriptions WHERE log = ? AND used_at_ms < ?")?
        .execute((log.0, sql_int(since_ms)))?)
}

/// Drops all of a share, among those of the session it shows.
pub fn forget_of_share(tx: &Tx<'_>, session: LogId, share: &ShareId) -> Result<(), StoreError> {
    let (from, to) = range_of_share(share);
    tx.conn
        .prepare_cached("DELETE FROM subscriptions WHERE log = ? AND name >= ? AND name < ?")?
        .execute((session.0, from, to))?;
    Ok(())
}

/// How many a share has, among those of the session it shows.
pub fn count_of_share(read: &Read<'_>, session: LogId, share: &ShareId) -> Result<u64, StoreError> {
    let (from, to) = range_of_share(share);
    let count = read
        .conn
        .prepare_cached(
            "SELECT count(*) FROM subscriptions WHERE log = ? AND name >= ? AND name < ?",
        )?
        .query_row((session.0, from, to), |row| row.get(0))?;
    Ok(from_sql_int(count))
}

/// Between which names those of a share lie: see `SubscriptionName::in_share`.
fn range_of_share(share: &ShareId) -> (String, String) {
    (format!("{share} "), format!("{share}!"))
}

/// Whether there is one of this name, and how many there are besides.
pub fn count(
    read: &Read<'_>,
    log: LogId,
    name: &SubscriptionName,
) -> Result<(bool, u64), StoreError> {
    let known = read
        .conn
        .prepare_cached("SELECT 1 FROM subscriptions WHERE log = ? AND name = ?")?
        .exists((log.0, name.as_str()))?;
    let all = read
        .conn
        .prepare_cached("SELECT count(*) FROM subscriptions WHERE log = ?")?
        .query_row([log.0], |row| row.get(0))?;
    Ok((known, from_sql_int(all)))
}

/// How far the slowest of a log's subscriptions is that was in use since `since_ms`.
pub fn slowest(read: &Read<'_>, log: LogId, since_ms: u64) -> Result<Option<u64>, StoreError> {
    let place: Option<i64> = read
        .conn
        .prepare_cached("SELECT min(place) FROM subscriptions WHERE log = ? AND used_at_ms >= ?")?
        .query_row((log.0, sql_int(since_ms)), |row| row.get(0))
        .optional()?
        .flatten();
    Ok(place.map(from_sql_int))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing;

    #[test]
    fn a_subscription_is_taken_up_moved_on_and_forgotten() {
        let (_dir, mut store) = testing::store();
        let tx = store.begin().unwrap();
        let name = SubscriptionName::parse("mirror").unwrap();
        let root = LogId::ROOT;
        let first = take(&tx, root, &name, 7, 100).unwrap();
        assert_eq!((first.place, first.holder), (7, 1));
        assert!(acknowledge(&tx, first.key, first.holder, 9, 101).unwrap());
        assert!(acknowledge(&tx, first.key, first.holder, 8, 102).unwrap());

        let second = take(&tx, root, &name, 0, 103).unwrap();
        assert_eq!((second.key, second.place, second.holder), (first.key, 9, 2));
        assert!(!acknowledge(&tx, first.key, first.holder, 20, 104).unwrap(), "no longer its own");
        assert_eq!(count(&tx, root, &name).unwrap(), (true, 1));
        assert_eq!(slowest(&tx, root, 103).unwrap(), Some(9));
        assert_eq!(slowest(&tx, root, 104).unwrap(), None, "not in use any more");

        assert_eq!(forget(&tx, root, &name).unwrap(), Some(second.key));
        assert_eq!(forget(&tx, root, &name).unwrap(), None);
        assert!(!acknowledge(&tx, second.key, second.holder, 20, 105).unwrap());
        let other = SubscriptionName::parse("other").unwrap();
        take(&tx, root, &other, 0, 90).unwrap();
        assert_eq!(forget_unused(&tx, root, 90).unwrap(), 0);
        assert_eq!(forget_unused(&tx, root, 91).unwrap(), 1);
        let third = take(&tx, root, &name, 0, 106).unwrap();
        assert_ne!(third.key, second.key, "a row number is never used again");
    }
}
