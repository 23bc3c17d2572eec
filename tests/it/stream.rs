//! `Writer`: ops in a stream, with the client's own flow control.

use crate::support::*;
use bowline::limits::WINDOW_OPS_MAX;
use bowline::wire::bowline_capnp::{ack, outcome};
use bowline::wire::session_capnp::{session, session_op, writer};

pub fn writer_at(session: &session::Client, producer: &Producer, first_seq: u64) -> writer::Client {
    let mut request = session.writer_request();
    let mut draft = request.get().init_producer();
    draft.set_producer(&producer.id);
    draft.set_producer_epoch(producer.epoch);
    draft.set_first_seq(first_seq);
    draft.set_acked_through(producer.acked_through);
    request.send().pipeline.get_writer()
}

/// Writes one text; returns when more may be written.
pub async fn write(
    writer: &writer::Client,
    producer: &Producer,
    seq: u64,
    text: &str,
) -> capnp::Result<()> {
    let mut request = writer.write_request();
    let mut op = request.get().init_op();
    op.set_op_id(&producer.op_id(seq));
    text_message(op, text);
    request.send().await
}

/// `(first, outcomes, next, stopped)`, where an outcome is a cursor or a code.
fn told(ack: ack::Reader<'_>) -> (u64, Vec<String>, u64, String) {
    let outcomes = ack.get_outcomes().unwrap().iter().map(|outcome| {
        let cursor = outcome.get_cursor();
        match outcome.which().unwrap() {
            outcome::Applied(()) => cursor.to_string(),
            outcome::Duplicate(()) => format!("={cursor}"),
            outcome::DuplicateDropped(()) => "-".into(),
            outcome::Rejected(refusal) => refusal.unwrap().get_code().unwrap().to_string().unwrap(),
        }
    });
    let stopped = match ack.has_stopped() {
        true => ack.get_stopped().unwrap().get_code().unwrap().to_string().unwrap(),
        false => String::new(),
    };
    (ack.get_first_seq(), outcomes.collect(), ack.get_next_expected_seq(), stopped)
}

async fn flush(
    writer: &writer::Client,
    acked: u64,
) -> capnp::Result<(u64, Vec<String>, u64, String)> {
    let mut request = writer.flush_request();
    request.get().set_acked_through(acked);
    let answer = request.send().promise.await?;
    Ok(told(answer.get()?.get_ack()?))
}

#[test]
fn a_stream_is_flushed_in_pieces_and_a_new_writer_goes_on() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let producer = Producer::new();
        let writer = writer_at(&session, &producer, 1);
        assert_eq!(
            flush(&writer, 0).await.unwrap(),
            (1, vec![], 1, String::new()),
            "nothing written yet"
        );
        for seq in 1..=3 {
            write(&writer, &producer, seq, &seq.to_string()).await.unwrap();
        }
        // Two flushes on their way at once, each with its own part.
        let first = writer.flush_request().send().promise;
        for seq in 4..=5 {
            write(&writer, &producer, seq, &seq.to_string()).await.unwrap();
        }
        let second = flush(&writer, 3).await.unwrap();
        let first = first.await.unwrap();
        let first = told(first.get().unwrap().get_ack().unwrap());
        let of =
            |range: std::ops::RangeInclusive<u64>| range.map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!((first.0, first.1), (1, of(1..=3)));
        assert_eq!((second.0, second.1, second.2), (4, of(4..=5), 6));

        // Another writer repeats what may have been lost, and goes on.
        let again = writer_at(&session, &producer, 4);
        for seq in 4..=7 {
            write(&again, &producer, seq, &seq.to_string()).await.unwrap();
        }
        let told = flush(&again, 0).await.unwrap();
        assert_eq!(told.1, ["=4", "=5", "6", "7"]);
        assert_eq!(texts(&session, 3).await, ["1", "2", "3", "4", "5", "6", "7"]);
    });
}

#[test]
fn outcomes_are_told_in_order_when_several_batches_are_answered_at_once() {
    const ROUNDS: usize = 100;
    const WRITERS: u64 = 16;
    const OPS: u64 = 6;
    let server = Server::start();
    local(async {
        let root = root(&server).await;
        for _ in 0..ROUNDS {
            // The first op goes to the disk at once, the flush sends the others behind it; many writers,
            // so that both are often in one commit, and their answers there before anybody looks.
            let round = (0..WRITERS).map(async |_| {
                let session = fresh_session(&root);
                let producer = Producer::new();
                let writer = writer_at(&session, &producer, 1);
                for seq in 1..=OPS {
                    write(&writer, &producer, seq, "x").await.unwrap();
                }
                let wanted: Vec<_> = (1..=OPS).map(|cursor| cursor.to_string()).collect();
                let told = flush(&writer, 0).await.unwrap();
                assert_eq!(told, (1, wanted, OPS + 1, String::new()));
            });
            futures::future::join_all(round).await;
        }
    });
}

#[test]
fn behind_a_stop_nothing_is_looked_at_and_the_flush_says_why() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let producer = Producer::new();
        let early = writer_at(&session, &producer, 3);
        write(&early, &producer, 3, "three").await.unwrap();
        assert_eq!(flush(&early, 0).await.unwrap(), (3, vec![], 1, "seq-gap".into()));
        write(&early, &producer, 4, "four").await.unwrap();
        assert_eq!(flush(&early, 0).await.unwrap().3, "seq-gap", "it stays so");
        assert_eq!(texts(&session, 10).await, Vec::<String>::new());
    });
}

#[test]
fn a_full_window_stops_the_stream_and_acknowledging_opens_it() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let producer = Producer::new();
        let writer = writer_at(&session, &producer, 1);
        for seq in 1..=WINDOW_OPS_MAX + 5 {
            write(&writer, &producer, seq, "x").await.unwrap();
        }
        let told = flush(&writer, 0).await.unwrap();
        assert_eq!(told.1.len() as u64, WINDOW_OPS_MAX);
        assert_eq!((told.2, told.3.as_str()), (WINDOW_OPS_MAX + 1, "window-full"));

        let producer = Producer { acked_through: WINDOW_OPS_MAX, ..producer };
        let writer = writer_at(&session, &producer, WINDOW_OPS_MAX + 1);
        write(&writer, &producer, WINDOW_OPS_MAX + 1, "y").await.unwrap();
        assert_eq!(flush(&writer, 0).await.unwrap().1, [(WINDOW_OPS_MAX + 1).to_string()]);
    });
}

#[test]
fn a_fenced_stream_fails_with_its_code_and_takes_nothing_more() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let old = Producer::new();
        let writer = writer_at(&session, &old, 1);
        write(&writer, &old, 1, "one").await.unwrap();
        flush(&writer, 0).await.unwrap();
        let mut new = Producer { epoch: 2, next: 2, ..old.clone() };
        new.batch(&session, &["two"]).send().promise.await.unwrap();

        // The failing call may return before the disk was asked; one behind it hears.
        let _ = write(&writer, &old, 2, "zombie").await;
        let error = flush(&writer, 0).await.unwrap_err();
        assert_eq!(code(&error), "producer-fenced");
        let error = flush(&writer, 0).await.unwrap_err();
        assert_eq!(code(&error), "producer-fenced", "and stays so");
        session.info_request().send().promise.await.expect("the session itself is not poisoned");
        assert_eq!(texts(&session, 10).await, ["one", "two"]);
    });
}

#[test]
fn a_flood_is_taken_in_at_the_disks_pace_and_memory_stays_bounded() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let before = server.resident_kib();
        let text = "x".repeat(32 << 10);
        let producer = Producer::new();
        let writer = writer_at(&session, &producer, 1);
        let mut peak = 0;
        for seq in 1..=3000 {
            write(&writer, &producer, seq, &text).await.unwrap();
            if seq % 100 == 0 {
                peak = peak.max(server.resident_kib());
            }
        }
        let told = flush(&writer, 0).await.unwrap();
        assert_eq!(told.1.len(), 3000);
        println!("93 MiB streamed in; the server grew by {} KiB", peak.saturating_sub(before));
        assert!(peak - before < 128 << 10, "the server grew by {} KiB", peak - before);
    });
}

/// What an op of a stream looks like, by the name of what is wrong with it.
fn fill(what: &str, mut op: session_op::Builder<'_>, producer: &Producer, seq: u64) {
    op.set_op_id(&producer.op_id(seq));
    match what {
        "fine" => {}
        "nothing" => return,
        "conflict" => op.reborrow().init_expects().set_cursor(77),
        "depends" => op.reborrow().init_depends_on(1).set(0, seq - 1),
        other => panic!("{other}"),
    }
    op.init_put_message();
}

#[test]
fn a_rejected_op_does_not_stop_the_stream_and_conditions_hold_in_it() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let producer = Producer::new();
        let writer = writer_at(&session, &producer, 1);
        let wanted = ["fine", "nothing", "depends", "conflict", "fine", "depends"];
        for (seq, what) in (1..).zip(wanted) {
            let mut request = writer.write_request();
            fill(what, request.get().init_op(), &producer, seq);
            request.send().await.unwrap();
        }
        let told = flush(&writer, 0).await.unwrap();
        let codes = ["1", "op-malformed", "dependency-failed", "cursor-conflict", "2", "3"];
        assert_eq!((told.1, told.3.as_str()), (codes.map(str::to_owned).to_vec(), ""));
    });
}

#[test]
fn what_is_wrong_with_a_whole_stream_is_heard_with_its_code() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let producer = Producer::new();

        let mut request = session.writer_request();
        request.get().init_producer().set_producer(&[1; 3]);
        let draft = failure(request.send().promise).await;
        assert_eq!(code(&draft), "op-header-malformed");

        let writer = writer_at(&session, &producer, 1);
        let mut request = writer.write_request();
        request.get().init_op().set_op_id(&[1; 3]);
        let _ = request.send().await;
        let error = flush(&writer, 0).await.unwrap_err();
        assert_eq!(code(&error), "op-header-malformed", "an op without a name");

        let mut request = session.writer_request();
        let mut draft = request.get().init_producer();
        draft.set_producer(&producer.id);
        draft.set_producer_epoch(1);
        draft.set_first_seq(1);
        draft.set_capability_epoch(99);
        let writer = request.send().pipeline.get_writer();
        let _ = write(&writer, &producer, 1, "x").await;
        assert_eq!(code(&flush(&writer, 0).await.unwrap_err()), "epoch-stale");
        assert_eq!(texts(&session, 10).await, Vec::<String>::new(), "and nothing was done");
    });
}

#[test]
fn a_stream_of_repeats_must_be_flushed_too() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut producer = Producer::new();
        let count = WINDOW_OPS_MAX + 2000;
        let writer = writer_at(&session, &producer, 1);
        for seq in 1..=count {
            write(&writer, &producer, seq, "x").await.unwrap();
            if seq % 1000 == 0 {
                flush(&writer, seq - 1).await.unwrap();
            }
        }
        flush(&writer, count - 1).await.unwrap();
        // Everything is acknowledged, so the server's own window is empty; what is untold piles up here.
        producer.acked_through = count;
        let again = writer_at(&session, &producer, 1);
        for seq in 1..=count {
            write(&again, &producer, seq, "x").await.unwrap();
        }
        let told = flush(&again, 0).await.unwrap();
        assert_eq!(told.3, "window-full");
        assert!((told.1.len() as u64) < count, "{} outcomes in one ack", told.1.len());
        assert!(told.1.iter().all(|outcome| outcome == "-"));
    });
}
