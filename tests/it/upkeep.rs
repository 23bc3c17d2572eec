//! `bowline verify`, `rebuild` and `compact`: on healthy data, on damaged data, beside a running server.

use crate::feed::{Ears, Sink, feed, put};
use crate::support::*;
use bowline::wire::message_capnp::history_policy;
use bowline::wire::root_capnp::root;
use bowline::wire::session_capnp::session;
use std::path::Path;
use std::process::Output;
use std::rc::Rc;

/// Runs a command on a data directory.
fn run(data: &Path, args: &[&str]) -> Output {
    command(data).args(args).arg("--data").arg(data).output().unwrap()
}

/// The same, with its report.
fn report(data: &Path, args: &[&str]) -> (Option<i32>, serde_json::Value) {
    let output = run(data, &[args, &["--json"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let value = serde_json::from_str(&text)
        .unwrap_or_else(|_| panic!("{text:?} {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), value)
}

/// The checks of a verify that found something.
fn broken(data: &Path) -> Vec<String> {
    let (code, report) = report(data, &["verify"]);
    let broken: Vec<String> = report["checks"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|check| check["problemCount"] != 0)
        .map(|check| {
            assert!(!check["problems"].as_array().unwrap().is_empty());
            check["name"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(code, Some(if broken.is_empty() { 0 } else { 4 }), "{report}");
    assert_eq!(report["ok"], broken.is_empty());
    broken
}

fn sql(data: &Path, statement: &str) {
    let store = rusqlite::Connection::open(data.join("bowline.db")).unwrap();
    store.pragma_update(None, "foreign_keys", false).unwrap();
    let changed = store.execute(statement, []).unwrap();
    assert!(changed > 0, "{statement} changed nothing");
}

fn session_named(root: &root::Client, id: &str) -> session::Client {
    let mut producer = Producer { id: [9; 16], epoch: 1, next: 1, acked_through: 0 };
    let project = open_project(root, &mut producer, "/tree").pipeline.get_project();
    let mut maker = [0; 16];
    maker[..id.len()].copy_from_slice(id.as_bytes());
    let mut producer = Producer { id: maker, epoch: 1, next: 1, acked_through: 0 };
    create_session(&project, &mut producer, id).pipeline.get_session()
}

async fn op(
    session: &session::Client,
    producer: &mut Producer,
    fill: impl FnOnce(bowline::wire::session_capnp::session_op::Builder<'_>),
) {
    let mut request = producer.batch(session, &["x"]);
    fill(request.get().get_ops().unwrap().get(0));
    request.send().promise.await.unwrap();
}

async fn remove(session: &session::Client, producer: &mut Producer, id: &str) {
    op(session, producer, |mut op| op.set_remove_message(id)).await;
}

async fn title(session: &session::Client, producer: &mut Producer, title: &str) {
    op(session, producer, |mut op| op.set_set_title(title)).await;
}

/// A session in which much was replaced: of messages m0 … m99 the even ones are gone again.
async fn busy(session: &session::Client, producer: &mut Producer) {
    let ids: Vec<String> = (0..100).map(|n| format!("m{n}")).collect();
    put(session, producer, &ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for (n, id) in ids.iter().enumerate().step_by(2) {
        remove(session, producer, id).await;
        title(session, producer, &format!("title {n}")).await;
    }
}

async fn ids(session: &session::Client) -> Vec<String> {
    let mut request = session.messages_request();
    request.get().init_page().set_limit(1000);
    let answer = request.send().promise.await.unwrap();
    let messages = answer.get().unwrap().get_messages().unwrap();
    messages.iter().map(|message| message.get_id().unwrap().to_string().unwrap()).collect()
}

/// A data directory with some history, its server killed.
fn with_history() -> (tempfile::TempDir, Producer) {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), &[], &[]);
    let mut producer = Producer::new();
    local(async {
        let session = session_named(&root(&server).await, "busy");
        busy(&session, &mut producer).await;
        assert_eq!(broken(&server.data), Vec::<String>::new(), "beside the running server");
    });
    server.kill_9();
    (dir, producer)
}

#[test]
fn verify_finds_each_kind_of_damage_and_rebuild_mends_what_can_be_made_again() {
    let damages = [
        ("UPDATE messages SET id = 'other' WHERE cursor = 2", vec!["projections"]),
        ("DELETE FROM messages WHERE cursor = 2", vec!["projections"]),
        ("UPDATE sessions SET title = 'other'", vec!["projections"]),
        ("UPDATE projects SET session_count = 7", vec!["projections"]),
        ("UPDATE logs SET bytes = bytes + 1 WHERE id = 1", vec!["counters"]),
        ("UPDATE logs SET producers = 9 WHERE id = 1", vec!["counters"]),
        ("UPDATE logs SET head = head + 1 WHERE head > 50", vec!["density"]),
        (
            "DELETE FROM ops WHERE cursor = 2",
            vec!["orphans", "density", "counters", "results", "projections"],
        ),
        ("DELETE FROM receipts WHERE first_seq = 101", vec!["results"]),
        ("UPDATE receipts SET receipts = x'ff' WHERE first_seq = 101", vec!["results"]),
        ("UPDATE producers SET high = 150 WHERE high = 200", vec!["producers", "results"]),
        ("UPDATE producers SET acked_through = 900 WHERE high = 200", vec!["producers"]),
        (
            "UPDATE ops SET payload = x'00' WHERE kind = 5 AND cursor = 200",
            vec!["counters", "audit", "projections"],
        ),
        ("UPDATE ops SET kind = 99 WHERE cursor = 150", vec!["audit", "projections"]),
        ("UPDATE ops SET replaces = 3 WHERE cursor = 150", vec!["audit", "projections"]),
        ("UPDATE ops SET replaces = 3 WHERE cursor = 151", vec!["audit", "projections"]),
        ("UPDATE logs SET floor = 100, swept = 100 WHERE head > 50", vec!["density", "counters"]),
        ("UPDATE logs SET project = 1 WHERE head > 50", vec!["orphans"]),
        ("UPDATE receipts SET last_seq = 201 WHERE last_seq = 200", vec!["results"]),
        ("UPDATE producers SET high = 199 WHERE high = 200", vec!["producers", "results"]),
        ("UPDATE ops SET project = 77 WHERE cursor = 2", vec!["orphans", "audit"]),
        ("UPDATE ops SET granted = 2 WHERE cursor = 2", vec!["orphans", "audit"]),
        ("UPDATE ops SET at_ms = 2 WHERE cursor = 2", vec!["audit"]),
        ("INSERT INTO logs (head) VALUES (0)", vec!["orphans"]),
    ];
    let (dir, _) = with_history();
    assert_eq!(broken(dir.path()), Vec::<String>::new());
    let whole = std::fs::read(dir.path().join("bowline.db")).unwrap();
    let wal = std::fs::read(dir.path().join("bowline.db-wal")).unwrap_or_default();
    for (damage, want) in damages {
        let copy = tempfile::tempdir().unwrap();
        std::fs::write(copy.path().join("bowline.db"), &whole).unwrap();
        std::fs::write(copy.path().join("bowline.db-wal"), &wal).unwrap();
        sql(copy.path(), damage);
        assert_eq!(broken(copy.path()), want, "{damage}");
        let mendable = damage.starts_with("UPDATE logs SET bytes")
            || damage.starts_with("UPDATE logs SET producers")
            || (want == ["projections"] && !damage.contains("ops"));
        if mendable {
            let (code, report) = report(copy.path(), &["rebuild"]);
            assert_eq!((code, &report["ops"]), (Some(0), &202.into()), "{damage}");
            assert_eq!(broken(copy.path()), Vec::<String>::new(), "{damage}");
        }
    }
}

#[test]
fn a_damaged_file_is_found_and_what_is_missing_or_in_use_is_explained() {
    let (dir, _) = with_history();
    // Fold the log into the file, then damage a page in the middle of it.
    assert_eq!(run(dir.path(), &["rebuild"]).status.code(), Some(0));
    let path = dir.path().join("bowline.db");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 256].fill(0xa5);
    std::fs::write(&path, bytes).unwrap();
    let output = run(dir.path(), &["verify"]);
    assert!(matches!(output.status.code(), Some(1 | 4)), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("damaged") || said.contains("malformed"), "{said}");

    let empty = tempfile::tempdir().unwrap();
    for command in ["verify", "rebuild", "compact"] {
        let output = run(empty.path(), &[command]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{command}");
        assert!(said.contains("there is no database") && said.contains("--data"), "{said}");
        assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0, "and none was made");
    }

    let old = tempfile::tempdir().unwrap();
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/databases/v0001.db");
    std::fs::copy(golden, old.path().join("bowline.db")).unwrap();
    let output = run(old.path(), &["verify"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("version 1") && said.contains("start the server once"), "{said}");

    let server = Server::start();
    for command in ["rebuild", "compact"] {
        let output = run(&server.data, &[command]);
        assert_eq!(output.status.code(), Some(3), "{command}: the server holds the directory");
    }
    assert_eq!(run(&server.data, &["verify"]).status.code(), Some(0));
}

#[test]
fn compaction_keeps_the_state_the_marks_and_the_results_and_tells_what_it_freed() {
    let (dir, mut producer) = with_history();
    let (code, freed) = report(dir.path(), &["compact", "--limit", "history_bytes_max=1"]);
    assert_eq!(code, Some(0));
    // 50 removed messages, 50 removals, 49 of 50 titles. The last op of all is always kept.
    assert_eq!(freed["opsFreed"], 149, "{freed}");
    assert!(freed["payloadBytesFreed"].as_u64().unwrap() > 1000, "{freed}");
    assert!(freed["fileBytesAfter"].as_u64() < freed["fileBytesBefore"].as_u64(), "{freed}");
    assert_eq!(broken(dir.path()), Vec::<String>::new());
    let (_, again) = report(dir.path(), &["compact", "--limit", "history_bytes_max=1"]);
    assert_eq!(again["opsFreed"], 0, "there is nothing more to free");
    assert_eq!(run(dir.path(), &["rebuild"]).status.code(), Some(0));
    assert_eq!(broken(dir.path()), Vec::<String>::new(), "what is kept gives the state again");

    let server = Server::start_in(dir.path(), &[], &[]);
    local(async {
        let session = session_named(&root(&server).await, "busy");
        let left: Vec<String> = (1..100).step_by(2).map(|n| format!("m{n}")).collect();
        assert_eq!(ids(&session).await, left);
        let answer = session.info_request().send().promise.await.unwrap();
        let info = answer.get().unwrap().get_session().unwrap();
        assert_eq!(
            (info.get_head(), info.get_title().unwrap().to_str().unwrap()),
            (200, "title 98")
        );

        // A result nobody acknowledged is still known, though its op is gone.
        let mut request = batch_at(&producer, 101, &session, &["x"]);
        request.get().get_ops().unwrap().get(0).set_remove_message("m0");
        let answer = request.send().promise.await.unwrap();
        let outcome = answer.get().unwrap().get_ack().unwrap().get_outcomes().unwrap().get(0);
        assert!(matches!(
            outcome.which(),
            Ok(bowline::wire::bowline_capnp::outcome::Duplicate(()))
        ));
        assert_eq!(outcome.get_cursor(), 101);

        // Who asks from below the floor hears of the gap, and gets the state at the floor.
        for after in [0, 150] {
            let ears = Rc::new(Ears::default());
            let _feed = feed(&session, &ears, |mut wish| wish.set_after(after)).await.unwrap();
            let heard = ears.until("caught-up 200").await;
            assert_eq!(heard[0], format!("gap {after} 200"));
            assert_eq!(heard.len(), 1 + 50 + 1 + 1, "{heard:?}");
            assert_eq!(heard[51], "200 title title 98");
        }
        put(&session, &mut producer, &["new"]).await;
        let ears = Rc::new(Ears::default());
        let _feed = feed(&session, &ears, |mut wish| wish.set_after(200)).await.unwrap();
        assert_eq!(ears.until("caught-up 201").await, ["201 put new", "caught-up 201"]);

        // The server's own feed, which joins all logs, says so too.
        let ears = Rc::new(Ears::default());
        let mut request = root(&server).await.feed_request();
        request.get().init_wish().set_after(3);
        request.get().set_sink(capnp_rpc::new_client(Sink(ears.clone())));
        let _all = request.send().promise.await.unwrap();
        let heard = ears.until("caught-up 203").await;
        assert_eq!(heard[..3], ["gap 3 202", "1 project /tree", "2 session busy"]);
        assert_eq!(heard.last().unwrap(), "caught-up 203");
    });
}

#[test]
fn a_long_history_is_compacted_in_steps_and_one_without_replacements_stays_whole() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), &[], &[]);
    local(async {
        let root = root(&server).await;
        let (long, plain) = (session_named(&root, "long"), session_named(&root, "plain"));
        let mut producer = Producer::new();
        for n in 0..10 {
            // 500 titles a batch: each replaces the one before it.
            let texts = vec!["x"; 500];
            let mut request = producer.batch(&long, &texts);
            let mut ops = request.get().get_ops().unwrap();
            for at in 0..500 {
                ops.reborrow().get(at).set_set_title(format!("title {n} {at}").as_str());
            }
            request.get().get_batch().unwrap().set_acked_through(producer.acked_through);
            producer.acked_through = producer.next - 1;
            request.send().promise.await.unwrap();
        }
        put(&plain, &mut Producer::new(), &["a", "b", "c"]).await;
    });
    server.kill_9();
    // In several steps.
    const { assert!(5000 > 2 * bowline::limits::COMPACTION_STEP_OPS_MAX) };
    // The limit comes from where the server would take it, too.
    let output = command(dir.path())
        .args(["compact", "--json", "--data"])
        .arg(dir.path())
        .env("BOWLINE_LIMITS", "history_bytes_max=1")
        .output()
        .unwrap();
    let freed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&freed["opsFreed"], &freed["logsCompacted"]), (&4999.into(), &1.into()), "{freed}");
    assert_eq!(broken(dir.path()), Vec::<String>::new());

    let server = Server::start_in(dir.path(), &[], &[]);
    local(async {
        let root = root(&server).await;
        let ears = Rc::new(Ears::default());
        let _long = feed(&session_named(&root, "long"), &ears, |_| ()).await.unwrap();
        let heard = ears.until("caught-up 5000").await;
        assert_eq!(heard, ["gap 0 5000", "5000 title title 9 499", "caught-up 5000"]);
        let ears = Rc::new(Ears::default());
        let _plain = feed(&session_named(&root, "plain"), &ears, |_| ()).await.unwrap();
        let heard = ears.until("caught-up 3").await;
        assert_eq!(
            heard,
            ["1 put a", "2 put b", "3 put c", "caught-up 3"],
            "no gap where nothing is gone"
        );
    });
}

#[test]
fn a_subscription_of_the_whole_server_holds_back_what_it_has_not_heard_but_not_for_ever() {
    let (dir, _) = with_history();
    let server = Server::start_in(dir.path(), &["--limit", "history_sweep_ms=0"], &[]);
    local(async {
        // Heard up to somewhere in the middle of the titles and removals, and then no more.
        let ears = Rc::new(Ears::default());
        let mut request = root(&server).await.feed_request();
        let mut wish = request.get().init_wish();
        wish.set_name("slow");
        wish.set_after(152);
        ears.stalled.set(true);
        request.get().set_sink(capnp_rpc::new_client(Sink(ears.clone())));
        let _slow = request.send().promise.await.unwrap();
        ears.places(1).await;
    });
    server.kill_9();
    let compact = |limits: &str| report(dir.path(), &["compact", "--limit", limits]).1;
    let freed = compact("history_bytes_max=1");
    // Position 152 is cursor 150 of the session: 25 removals, with what they removed, and 24 titles.
    assert_eq!(freed["opsFreed"], 74, "{freed}");
    assert_eq!(broken(dir.path()), Vec::<String>::new());
    let freed = compact("history_bytes_max=1,subscription_idle_ms_max=1");
    assert_eq!(freed["opsFreed"], 75, "not used for longer than that: {freed}");
    assert_eq!(broken(dir.path()), Vec::<String>::new());
}

#[test]
fn a_running_server_compacts_by_policy_and_leaves_what_somebody_wants_kept() {
    let limits = ["--limit", "history_sweep_ms=20,history_age_ms_max=1"];
    let server = Server::start_with(&limits);
    local(async {
        let root = root(&server).await;
        let (plain, kept, heard) = (
            session_named(&root, "plain"),
            session_named(&root, "kept"),
            session_named(&root, "heard"),
        );
        let forever = |policy: &mut history_policy::Builder<'_>| {
            policy.set_age_ms_max(u64::MAX);
            policy.set_bytes_max(1 << 20);
        };
        let mut producer = Producer::new();
        op(&kept, &mut producer, |op| forever(&mut op.init_set_history())).await;
        // A subscription that hears nothing yet holds the history of its session back.
        let slow = Rc::new(Ears::default());
        slow.stalled.set(true);
        let _slow = feed(&heard, &slow, |mut wish| wish.set_name("slow")).await.unwrap();
        for session in [&plain, &kept, &heard] {
            let mut producer = Producer::new();
            put(session, &mut producer, &["a", "b"]).await;
            remove(session, &mut producer, "a").await;
            put(session, &mut producer, &["c"]).await;
        }
        // Ask until the first line of a feed from the beginning is a gap.
        let first_line = async |session: &session::Client| {
            let ears = Rc::new(Ears::default());
            let _feed = feed(session, &ears, |_| ()).await.unwrap();
            loop {
                if let Some(line) = ears.first() {
                    return line;
                }
                session.info_request().send().promise.await.unwrap();
            }
        };
        while first_line(&plain).await != "gap 0 3" {}
        assert_eq!(ids(&plain).await, ["b", "c"]);
        assert_eq!(first_line(&kept).await, "1 history");
        assert_eq!(first_line(&heard).await, "1 put a");
        // Once it has heard, that history may go too.
        slow.stalled.set(false);
        slow.go_on.notify_waiters();
        slow.until("caught-up 4").await;
        while first_line(&heard).await != "gap 0 3" {}
        assert_eq!(broken(&server.data), Vec::<String>::new());
    });
}
