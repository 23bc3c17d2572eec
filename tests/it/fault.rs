//! Disks that fail: a commit error is unknown, never a refusal.
//!
//! The real binary runs with a shim before libc that makes `fsync` and `fdatasync` fail while a file
//! exists.

use crate::support::*;
use bowline::wire::bowline_capnp::outcome;
use bowline::wire::session_capnp::session;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

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
    let env = [
        ("LD_PRELOAD", shim.to_str().unwrap()),
        ("SYNC_FAULT_WHILE", fault.to_str().unwrap()),
    ];
    Server::start_in(data, &[], &env)
}

/// Appends op `seq` until it is acknowledged, and counts the codes heard on the way.
async fn append_until_acked(
    session: &session::Client,
    producer: &Producer,
    seq: u64,
    heard: &mut BTreeMap<String, u32>,
) {
    loop {
        let text = seq.to_string();
        match batch_at(producer, seq, session, &[&text]).send().promise.await {
            Ok(answer) => {
                let ack = answer.get().unwrap().get_ack().unwrap();
                let decided = ack.get_outcomes().unwrap().get(0).which().unwrap();
                assert!(
                    matches!(decided, outcome::Applied(()) | outcome::Duplicate(())),
                    "an op heard `rejected`"
                );
                return;
            }
            Err(error) => {
                assert_eq!(error.kind, capnp::ErrorKind::Overloaded, "{error}");
                *heard.entry(code(&error).to_owned()).or_default() += 1;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

#[test]
fn a_failed_commit_is_unknown_and_the_repeat_finds_the_truth() {
    const FAULTS: u64 = 12;
    let dir = tempfile::tempdir().unwrap();
    let (shim, fault) = (shim(dir.path()), dir.path().join("fault"));
    let mut server = start(&dir.path().join("data"), &shim, &fault);
    local(async {
        let session = fresh_session(&root(&server).await);
        session.info_request().send().promise.await.unwrap();
        let producer = Producer::new();
        let mut heard = BTreeMap::new();
        let mut seq = 0;
        for _ in 0..FAULTS {
            for _ in 0..5 {
                seq += 1;
                append_until_acked(&session, &producer, seq, &mut heard).await;
            }
            std::fs::write(&fault, "").unwrap();
            seq += 1;
            let error = failure(batch_at(&producer, seq, &session, &[&seq.to_string()]).send().promise).await;
            assert_eq!(code(&error), "outcome-unknown");
            std::fs::remove_file(&fault).unwrap();
            append_until_acked(&session, &producer, seq, &mut heard).await;
        }
        let want: Vec<_> = (1..=seq).map(|seq| seq.to_string()).collect();
        assert_eq!(texts(&session, 1000).await, want, "every op once, in order");
        println!("{FAULTS} faults, heard {heard:?}");
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
