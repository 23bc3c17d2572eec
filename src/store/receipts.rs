//! Table `receipts`: what was decided about ops whose results are not acknowledged yet.
//!
//! One row per batch rather than per op: a batch of 256 costs one row of a few kilobytes.

use super::producers::ProducerKey;
use super::{Read, StoreError, Tx, from_sql_int, sql_int};
use crate::model::ledger::Receipt;
use std::collections::BTreeMap;

/// How the blob is written; its first byte. Never reuse a number.
const POSTCARD_V1: u8 = 1;

/// Keeps the receipts of consecutive ops.
pub fn keep(
    tx: &Tx<'_>,
    producer: ProducerKey,
    first_seq: u64,
    receipts: &[Receipt],
) -> Result<(), StoreError> {
    let blob = postcard::to_extend(receipts, vec![POSTCARD_V1])
        .map_err(|error| StoreError::odd("receipts", error))?;
    let last_seq = first_seq + receipts.len() as u64 - 1;
    tx.conn
        .prepare_cached(
            "INSERT INTO receipts (producer, first_seq, last_seq, receipts) VALUES (?, ?, ?, ?)",
        )?
        .execute((producer.0, sql_int(first_seq), sql_int(last_seq), blob))?;
    Ok(())
}

/// The receipts kept for the numbers from `first` to `last`.
pub fn between(
    read: &Read<'_>,
    producer: ProducerKey,
    first: u64,
    last: u64,
) -> Result<BTreeMap<u64, Receipt>, StoreError> {
    let mut query = read.conn.prepare_cached(
        "SELECT first_seq, receipts FROM receipts
         WHERE producer = ?1 AND first_seq <= ?3 AND first_seq >= coalesce(
           (SELECT max(first_seq) FROM receipts WHERE producer = ?1 AND first_seq <= ?2), 0)",
    )?;
    let mut rows = query.query((producer.0, sql_int(first), sql_int(last)))?;
    let mut found = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let seqs = from_sql_int(row.get(0)?)..;
        let receipts = decoded(row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?)?;
        found.extend(seqs.zip(receipts).filter(|(seq, _)| (first..=last).contains(seq)));
    }
    Ok(found)
}

/// The receipts of the batch a number was decided in.
pub fn around(
    read: &Read<'_>,
    producer: ProducerKey,
    seq: u64,
) -> Result<BTreeMap<u64, Receipt>, StoreError> {
    let mut query = read.conn.prepare_cached(
        "SELECT first_seq, receipts FROM receipts WHERE producer = ? AND first_seq <= ?
         ORDER BY first_seq DESC LIMIT 1",
    )?;
    let mut rows = query.query((producer.0, sql_int(seq)))?;
    let Some(row) = rows.next()? else { return Ok(BTreeMap::new()) };
    let seqs = from_sql_int(row.get(0)?)..;
    let receipts = decoded(row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?)?;
    Ok(seqs.zip(receipts).collect())
}

/// Drops the receipts of batches that were acknowledged to their last op.
pub fn drop_through(tx: &Tx<'_>, producer: ProducerKey, acked: u64) -> Result<(), StoreError> {
    let acked = sql_int(acked);
    tx.conn
        .prepare_cached(
            "DELETE FROM receipts WHERE producer = ? AND first_seq <= ? AND last_seq <= ?",
        )?
        .execute((producer.0, acked, acked))?;
    Ok(())
}

/// Reads a row back.
pub(super) fn decoded(blob: &[u8]) -> Result<Vec<Receipt>, StoreError> {
    match blob.split_first() {
        Some((&POSTCARD_V1, rest)) => {
            postcard::from_bytes(rest).map_err(|error| StoreError::odd("receipts", error))
        }
        other => {
            Err(StoreError::odd("receipts", format_args!("begins with {:?}", other.map(|o| o.0))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{Cursor, Digest, LogId, ProducerId, SessionId};
    use crate::model::infos::SessionKey;
    use crate::model::ledger::{Decision, Made, ProducerState};
    use crate::store::{producers, testing};

    fn receipt(n: u64) -> Receipt {
        let decision = match n % 3 {
            0 => Decision::Applied { cursor: Cursor(n), made: Made::Nothing },
            1 => Decision::Rejected { code: "message-exists".into(), text: "no".into() },
            _ => Decision::Unchanged {
                made: Made::Session(SessionKey {
                    log: LogId(4),
                    id: SessionId::parse("s").unwrap(),
                }),
            },
        };
        Receipt { digest: Digest([n as u8; 16]), decision }
    }

    #[test]
    fn receipts_are_found_by_number_until_they_are_acknowledged() {
        let (_dir, mut store) = testing::store();
        let tx = store.begin().unwrap();
        let state = ProducerState::default();
        let of =
            |n: u8| producers::create(&tx, LogId::ROOT, ProducerId([n; 16]), state, None).unwrap();
        let (one, other) = (of(1), of(2));
        let batch = |seqs: std::ops::RangeInclusive<u64>| seqs.map(receipt).collect::<Vec<_>>();
        for seqs in [1..=3, 4..=4, 5..=9] {
            keep(&tx, one, *seqs.start(), &batch(seqs.clone())).unwrap();
        }
        keep(&tx, other, 1, &batch(1..=2)).unwrap();

        let check = |first, last, want: &[u64]| {
            let got = between(&tx, one, first, last).unwrap();
            assert_eq!(got.keys().copied().collect::<Vec<_>>(), want, "{first}..={last}");
            assert!(got.iter().all(|(seq, found)| *found == receipt(*seq)));
        };
        check(1, 9, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        check(2, 5, &[2, 3, 4, 5]);
        check(4, 4, &[4]);
        check(7, 20, &[7, 8, 9]);
        check(10, 20, &[]);

        let seqs = |seq| around(&tx, one, seq).unwrap().into_keys().collect::<Vec<_>>();
        assert_eq!((seqs(2), seqs(4), seqs(9)), (vec![1, 2, 3], vec![4], vec![5, 6, 7, 8, 9]));
        drop_through(&tx, one, 6).unwrap();
        check(1, 9, &[5, 6, 7, 8, 9]); // the batch that holds 7 stays whole
        assert_eq!(between(&tx, other, 1, 9).unwrap().len(), 2, "the other's are left alone");
    }
}
