//! The single writer, one floor below the wire: authority inside the transaction, and an orderly end.

use crate::model::{Author, Bench, Step, block_on};
use bowline::clock::SystemClock;
use bowline::engine::{Engine, Fallen, Refusal};
use bowline::limits::Limits;
use bowline::store::{Store, grants};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A batch of one op that nobody refuses, under a number.
fn step(first_seq: u64) -> Step {
    let mut step = Author::new().step(&mut |n| n - 1);
    (step.session, step.producer, step.epoch, step.first_seq) = (0, 1, 1, first_seq);
    step.ops.truncate(1);
    step
}

#[test]
fn a_revoked_grant_is_refused_inside_the_transaction_even_for_a_repeat() {
    let mut bench = Bench::new();
    block_on(bench.engine.submit(bench.submission(&step(1))).answer()).unwrap();
    bench.writer.take().unwrap().finish().unwrap();

    let mut store = Store::open(&bench.dir.path().join("bowline.db")).unwrap();
    let tx = store.begin().unwrap();
    for key in grants::operators(&tx).unwrap() {
        grants::revoke(&tx, key, Fallen::Revoked, 1).unwrap();
    }
    tx.commit().unwrap();
    let (engine, _writer) =
        Engine::start(store, &Limits::default(), Arc::new(SystemClock), |_| {}).unwrap();
    for first_seq in [1, 2] {
        let again = bench.submission(&step(first_seq));
        let answer = block_on(engine.submit(again).answer());
        assert_eq!(answer, Err(Refusal::Fallen(Fallen::Revoked)), "seq {first_seq}");
    }
}

#[test]
fn after_the_last_commit_nothing_is_taken_and_everything_taken_was_answered() {
    let mut bench = Bench::new();
    let waiting: Vec<_> =
        (1..=500).map(|n| bench.engine.submit(bench.submission(&step(n)))).collect();
    bench.writer.take().unwrap().finish().unwrap();
    let late = bench.engine.submit(bench.submission(&step(501)));
    block_on(async {
        let mut kinds = BTreeSet::new();
        for answer in waiting {
            kinds.insert(answer.answer().await.is_ok());
        }
        assert_eq!(kinds, BTreeSet::from([true]));
        assert_eq!(late.answer().await, Err(Refusal::Stopping));
    });
}
