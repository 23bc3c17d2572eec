//! Table `producers`: how far each writing client has come in each log.

use super::{Read, StoreError, Tx, from_sql_int, sql_int};
use crate::model::ids::{InstanceId, LogId, ProducerId};
use crate::model::ledger::ProducerState;
use rusqlite::OptionalExtension;

/// The row of a producer in one log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerKey(pub(super) i64);

/// What is known about a producer.
pub fn get(
    read: &Read<'_>,
    log: LogId,
    producer: ProducerId,
) -> Result<Option<(ProducerKey, ProducerState)>, StoreError> {
    let row = read
        .conn
        .prepare_cached(
            "SELECT id, epoch, high, acked_through, instance, inherited FROM producers
             WHERE log = ? AND producer = ?",
        )?
        .query_row((log.0, producer.0), |row| {
            let state = ProducerState {
                epoch: row.get(1)?,
                high: from_sql_int(row.get(2)?),
                acked_through: from_sql_int(row.get(3)?),
                instance: row.get::<_, Option<[u8; 16]>>(4)?.map(InstanceId),
                inherited: from_sql_int(row.get(5)?),
            };
            Ok((ProducerKey(row.get(0)?), state))
        })
        .optional()?;
    Ok(row)
}

/// Records a producer that never wrote to this log before, and the share it came through, if it did.
pub fn create(
    tx: &Tx<'_>,
    log: LogId,
    producer: ProducerId,
    state: ProducerState,
    share: Option<LogId>,
) -> Result<ProducerKey, StoreError> {
    tx.conn
        .prepare_cached(
            "INSERT INTO producers (log, producer, epoch, high, acked_through, instance, inherited, share)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute((
            log.0,
            producer.0,
            state.epoch,
            sql_int(state.high),
            sql_int(state.acked_through),
            state.instance.map(|instance| instance.0),
            sql_int(state.inherited),
            share.map(|share| share.0),
        ))?;
    let key = ProducerKey(tx.conn.last_insert_rowid());
    super::logs::count_producer(tx, log)?;
    Ok(key)
}

/// How many came through a share.
pub fn count_of_share(read: &Read<'_>, share: LogId) -> Result<u64, StoreError> {
    let count = read
        .conn
        .prepare_cached("SELECT count(*) FROM producers WHERE share = ?")?
        .query_row([share.0], |row| row.get(0))?;
    Ok(from_sql_int(count))
}

/// Records how far a producer has come.
pub fn set(tx: &Tx<'_>, key: ProducerKey, state: ProducerState) -> Result<(), StoreError> {
    tx.conn
        .prepare_cached(
            "UPDATE producers SET epoch = ?, high = ?, acked_through = ?, instance = ?, inherited = ?
             WHERE id = ?",
        )?
        .execute((
            state.epoch,
            sql_int(state.high),
            sql_int(state.acked_through),
            state.instance.map(|instance| instance.0),
            sql_int(state.inherited),
            key.0,
        ))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing;

    #[test]
    fn a_producer_comes_back_as_it_was() {
        let (_dir, mut store) = testing::store();
        let tx = store.begin().unwrap();
        let id = ProducerId([9; 16]);
        assert_eq!(get(&tx, LogId::ROOT, id).unwrap(), None);
        let first = ProducerState { epoch: 1, ..ProducerState::default() };
        let key = create(&tx, LogId::ROOT, id, first, Some(LogId::ROOT)).unwrap();
        assert_eq!(count_of_share(&tx, LogId::ROOT).unwrap(), 1);
        assert_eq!(get(&tx, LogId::ROOT, id).unwrap(), Some((key, first)));
        let instance = Some(InstanceId([7; 16]));
        let later =
            ProducerState { epoch: u32::MAX, high: 8, acked_through: 5, instance, inherited: 3 };
        set(&tx, key, later).unwrap();
        assert_eq!(get(&tx, LogId::ROOT, id).unwrap(), Some((key, later)));
        assert_eq!(super::super::logs::get(&tx, LogId::ROOT).unwrap().producers, 1);
    }
}
