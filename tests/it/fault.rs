//! Disks that fail: a commit error is unknown, never a refusal.
//!
//! The real binary runs with a shim before libc that makes `fsync` and `fdatasync` fail while a file
//! exists.

use crate::support::*;
use bowline::wire::bowline_capnp::outcome;
use bowline::wire::session_capnp::session;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Compiles the shim; whoever can build this crate has a C compiler.
fn shim(dir: &Path) -> PathBuf {
    let library = dir.join("sync_fault.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/sync_fault.c");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(compiler)
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(source)
        .status()
        .expect("a C compiler is needed to build this crate, and for this test");
    assert!(status.success());
    library
}

fn start(data: &Path, shim: &Path, fault: &Path) -> Server {
    start_with(data, shim, "SYNC_FAULT_WHILE", fault)
}

fn start_with(data: &Path, shim: &Path, variable: &str, fault: &Path) -> Server {
    let env = [("LD_PRELOAD", shim.to_str().unwrap()), (variable, fault.to_str().unwrap())];
    Server::start_in(data, &[], &env)
}

/// What the writers have been told so far.
#[derive(Default)]
struct Heard {
    acked: Cell<u64>,
    unknown: Cell<u64>,
    overloaded: Cell<u64>,
    news: Notify,
}

/// Appends ops until enough are acknowledged, repeating what is in doubt.
async fn write(
    session: &session::Client,
    producer: Producer,
    heard: &Heard,
    enough: &Cell<bool>,
) -> u64 {
    let mut seq = 1;
    while !enough.get() {
        let text = format!("{}-{seq}", producer.id[0]);
        match batch_at(&producer, seq, session, &[&text]).send().promise.await {
            Ok(answer) => {
                let ack = answer.get().unwrap().get_ack().unwrap();
                let decided = ack.get_outcomes().unwrap().get(0).which().unwrap();
                assert!(
                    matches!(decided, outcome::Applied(()) | outcome::Duplicate(())),
                    "an op heard `rejected`"
                );
                heard.acked.set(heard.acked.get() + 1);
                seq += 1;
            }
            Err(error) => {
                assert_eq!(error.kind, capnp::ErrorKind::Overloaded, "{error}");
                let count = match code(&error) {
                    "outcome-unknown" => &heard.unknown,
                    "overloaded" => &heard.overloaded,
                    other => panic!("heard {other}"),
                };
                count.set(count.get() + 1);
                // What a client does that is told to come back later.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        heard.news.notify_one();
    }
    seq - 1
}

#[test]
fn a_failed_commit_is_unknown_and_the_repeat_finds_the_truth() {
    const FAULTS: u64 = 15;
    const WRITERS: usize = 8;
    let dir = tempfile::tempdir().unwrap();
    let (shim, fault) = (shim(dir.path()), dir.path().join("fault"));
    let mut server = start(&dir.path().join("data"), &shim, &fault);
    local(async {
        let session = fresh_session(&root(&server).await);
        let heard = Heard::default();
        let enough = Cell::new(false);
        let until = async |count: &Cell<u64>, at_least: u64| {
            while count.get() < at_least {
                heard.news.notified().await;
            }
        };
        let break_and_mend = async {
            for _ in 0..FAULTS {
                until(&heard.acked, heard.acked.get() + 40).await;
                std::fs::write(&fault, "").unwrap();
                until(&heard.unknown, heard.unknown.get() + 1).await;
                std::fs::remove_file(&fault).unwrap();
            }
            until(&heard.acked, heard.acked.get() + 40).await;
            enough.set(true);
        };
        let producers: Vec<_> = (0..WRITERS)
            .map(|n| {
                let mut producer = Producer::new();
                producer.id[0] = n as u8;
                producer
            })
            .collect();
        let writers =
            producers.into_iter().map(|producer| write(&session, producer, &heard, &enough));
        let ((), written) = tokio::join!(break_and_mend, futures::future::join_all(writers));

        let found = texts(&session, 1000).await;
        for (n, written) in written.iter().enumerate() {
            let mine: Vec<_> =
                found.iter().filter(|text| text.starts_with(&format!("{n}-"))).collect();
            let want: Vec<_> = (1..=*written).map(|seq| format!("{n}-{seq}")).collect();
            assert_eq!(mine, want.iter().collect::<Vec<_>>(), "every op once, in order");
        }
        assert_eq!(found.len() as u64, written.iter().sum::<u64>());
        assert!(heard.unknown.get() >= FAULTS && heard.overloaded.get() > 0);
        println!(
            "{FAULTS} faults, {} acks, {} unknown, {} overloaded",
            heard.acked.get(),
            heard.unknown.get(),
            heard.overloaded.get()
        );
    });
    assert!(server.is_running());
}

#[test]
fn a_disk_that_stays_broken_ends_the_process_with_a_reason_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (shim, fault) = (shim(dir.path()), dir.path().join("fault"));
    let data = dir.path().join("data");
    let mut server = start(&data, &shim, &fault);
    let producer = Producer::new();
    local(async {
        let root = root(&server).await;
        let project = open_project(&root, &mut Producer::new(), "/w").pipeline.get_project();
        let session = create_session(&project, &mut Producer::new(), "s").pipeline.get_session();
        let ack = batch_at(&producer, 1, &session, &["kept"]).send().promise.await;
        ack.unwrap();
        std::fs::write(&fault, "").unwrap();
        let error = failure(batch_at(&producer, 2, &session, &["doubtful"]).send().promise).await;
        assert_eq!(code(&error), "outcome-unknown");
    });
    assert_eq!(server.ended().code(), Some(1));

    std::fs::remove_file(&fault).unwrap();
    let server = start(&data, &shim, &fault);
    local(async {
        let root = root(&server).await;
        let project = open_project(&root, &mut Producer::new(), "/w").pipeline.get_project();
        let mut request = project.session_request();
        request.get().set_id("s");
        let session = request.send().pipeline.get_session();
        batch_at(&producer, 2, &session, &["doubtful"]).send().promise.await.unwrap();
        assert_eq!(texts(&session, 0).await, ["kept", "doubtful"]);
    });
}

#[test]
fn a_full_disk_is_trouble_that_passes() {
    let dir = tempfile::tempdir().unwrap();
    let (shim, full) = (shim(dir.path()), dir.path().join("full"));
    let mut server = start_with(&dir.path().join("data"), &shim, "DISK_FULL_WHILE", &full);
    local(async {
        let session = fresh_session(&root(&server).await);
        let producer = Producer::new();
        batch_at(&producer, 1, &session, &["one"]).send().promise.await.unwrap();
        std::fs::write(&full, "").unwrap();
        let error = failure(batch_at(&producer, 2, &session, &["two"]).send().promise).await;
        assert_eq!(code(&error), "outcome-unknown");
        // For far longer than a disk that fails otherwise would be forgiven.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(4) {
            let error = failure(batch_at(&producer, 2, &session, &["two"]).send().promise).await;
            assert!(matches!(code(&error), "overloaded" | "outcome-unknown"), "{error}");
            assert_eq!(texts(&session, 0).await, ["one"], "reads go on");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        std::fs::remove_file(&full).unwrap();
        // As a client does that is told to come back later.
        while batch_at(&producer, 2, &session, &["two"]).send().promise.await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(texts(&session, 0).await, ["one", "two"]);
    });
    assert!(server.is_running());
}

/// Nobody could be heard while the disk was full, so that is held against no turn.
#[test]
fn a_turn_outlives_trouble_with_the_disk_that_lasts_longer_than_its_lease() {
    let dir = tempfile::tempdir().unwrap();
    let (shim, full) = (shim(dir.path()), dir.path().join("full"));
    let server = start_with(&dir.path().join("data"), &shim, "DISK_FULL_WHILE", &full);
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut producer = Producer::new();
        let mut request = session.begin_turn_request();
        producer.header(request.get().init_op());
        request.get().init_turn().set_lease_ms(1_500);
        let answer = request.send().promise.await.unwrap();
        let turn = answer.get().unwrap().get_turn().unwrap();
        std::fs::write(&full, "").unwrap();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(4) {
            // A write of somebody else's, so that the trouble is noticed at once.
            let error = failure(batch_at(&producer, 2, &session, &["x"]).send().promise).await;
            assert!(matches!(code(&error), "overloaded" | "outcome-unknown"), "{error}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        std::fs::remove_file(&full).unwrap();
        while batch_at(&producer, 2, &session, &["x"]).send().promise.await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Long enough to be looked at, and not as long as the lease.
        tokio::time::sleep(Duration::from_millis(700)).await;
        turn.heartbeat_request().send().promise.await.unwrap();
    });
}

/// Taking back is a commit like another one: who does not know whether it happened asks again, and once it is
/// answered, nothing under the grant works.
#[test]
fn a_revocation_whose_commit_fails_is_unknown_and_complete_once_it_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let (shim, fault) = (shim(dir.path()), dir.path().join("fault"));
    let data = dir.path().join("data");
    let server = start(&data, &shim, &fault);
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut producer = Producer::new();
        for _ in 0..5 {
            let all = crate::grants::all;
            let (held, grant) =
                crate::grants::attenuate(&session, &mut producer, all).await.unwrap();
            held.info_request().send().promise.await.unwrap();
            std::fs::write(&fault, "").unwrap();
            let again = producer.clone();
            let error = crate::grants::revoke(&session, &mut producer, &grant).await.unwrap_err();
            assert_eq!(code(&error), "outcome-unknown");
            std::fs::remove_file(&fault).unwrap();
            // Whatever is still open now is closed when the answer is there.
            let cut = loop {
                match crate::grants::revoke(&session, &mut again.clone(), &grant).await {
                    Ok(cut) => break cut,
                    Err(error) => assert_eq!(error.kind, capnp::ErrorKind::Overloaded, "{error}"),
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            };
            assert_eq!(cut, 1, "it happened once");
            assert_eq!(code(&failure(held.info_request().send().promise).await), "revoked");
        }
    });
    drop(server);
    let verify = command(&data).args(["verify", "--data"]).arg(&data).output().unwrap();
    assert!(verify.status.success(), "{}", String::from_utf8_lossy(&verify.stdout));
}
