//! Every code there is: listed in `docs/errors.md`, and heard over the wire from the real server.

use crate::support::*;
use bowline::limits::{
    BATCH_OPS_MAX, OP_PAYLOAD_BYTES_MAX, PARTS_MAX, TITLE_BYTES_MAX, WINDOW_OPS_MAX,
};
use bowline::model::code::{Advice, Code};
use bowline::wire::bowline_capnp::{ObjectKind, outcome};
use bowline::wire::message_capnp::Role;
use bowline::wire::root_capnp::project;
use bowline::wire::session_capnp::{session, session_op};
use capnp::ErrorKind;
use std::collections::BTreeSet;
use std::fs;

#[test]
fn the_docs_list_every_code_with_its_advice_and_meaning() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/errors.md");
    let docs = fs::read_to_string(path).unwrap();
    let rows: Vec<_> = docs.lines().filter(|line| line.starts_with("| `")).collect();
    let want: Vec<_> = Code::ALL
        .iter()
        .map(|code| format!("| `{code}` | {} | {} |", code.advice().word(), code.meaning()))
        .collect();
    assert_eq!(rows, want.iter().map(String::as_str).collect::<Vec<_>>());
}

/// Codes that are heard in other tests, because they need a broken disk, a hostile peer, a server that
/// stops, or a story. Nobody can bring `internal` about from outside.
const ELSEWHERE: &[(&str, &str)] = &[
    ("worktree-not-found", "tests/it/files_edges.rs"),
    ("worktree-not-allowed", "tests/it/files_edges.rs"),
    ("worktree-unreadable", "tests/it/files_edges.rs"),
    ("worktree-too-large", "tests/it/files_edges.rs"),
    ("snapshot-not-found", "tests/it/files_edges.rs"),
    ("snapshot-budget", "tests/it/files_edges.rs"),
    ("file-not-found", "tests/it/files_edges.rs"),
    ("file-changed", "tests/it/files_edges.rs"),
    ("path-malformed", "tests/it/files_edges.rs"),
    ("path-leased", "tests/it/files_edges.rs"),
    ("cancelled", "tests/it/files_edges.rs"),
    ("sandbox-not-found", "tests/it/files_edges.rs"),
    ("sandbox-exists", "tests/it/files_edges.rs"),
    ("sandbox-unmerged", "tests/it/files_edges.rs"),
    ("sandbox-malformed", "tests/it/files_edges.rs"),
    ("snapshot-store-failed", "tests/it/files_crash.rs"),
    ("outcome-unknown", "tests/it/fault.rs"),
    ("overloaded", "tests/it/fault.rs"),
    ("storage-failed", "tests/it/operate.rs"),
    ("too-many-calls", "tests/it/hostile.rs"),
    ("too-many-answers", "tests/it/hostile.rs"),
    ("pipeline-too-deep", "tests/it/hostile.rs"),
    ("connection-ended", "tests/it/hostile.rs"),
    ("too-many-connections", "tests/it/operate.rs"),
    ("shutting-down", "tests/it/operate.rs"),
    ("connection-over", "src/rpc/tests.rs"),
    ("not-permitted", "src/rpc/tests.rs"),
    ("batch-regrouped", "tests/it/ledger.rs"),
    ("batch-undone", "tests/it/ledger.rs"),
    ("cursor-conflict", "tests/it/ledger.rs"),
    ("dependency-failed", "tests/it/ledger.rs"),
    ("dependency-forgotten", "tests/it/ledger.rs"),
    ("epoch-stale", "tests/it/ledger.rs"),
    ("message-not-found", "tests/it/ledger.rs"),
    ("too-many-producers", "tests/it/ledger.rs"),
    ("cursor-ahead", "tests/it/feed.rs"),
    ("sink-failed", "tests/it/feed.rs"),
    ("sealed", "tests/it/caveats.rs"),
    ("delegation-ended", "tests/it/delegation.rs"),
    ("delegation-not-found", "tests/it/delegation.rs"),
    ("share-ended", "tests/it/shares.rs"),
    ("share-not-found", "tests/it/shares.rs"),
    ("expired", "tests/it/grants.rs"),
    ("grant-not-found", "tests/it/grants.rs"),
    ("narrowing-malformed", "tests/it/grants.rs"),
    ("too-deep", "tests/it/grants.rs"),
    ("used-up", "tests/it/grants.rs"),
    ("too-many-grants", "tests/it/grants.rs"),
    ("subscription-taken", "tests/it/feed.rs"),
    ("too-many-subscriptions", "tests/it/feed.rs"),
    ("session-busy", "tests/it/turns.rs"),
    ("turn-exists", "tests/it/turns.rs"),
    ("turn-not-found", "tests/it/turns.rs"),
    ("turn-ended", "tests/it/turns.rs"),
    ("too-many-turns", "tests/it/turns.rs"),
    ("too-many-checkpoints", "tests/it/timeline.rs"),
    ("lease-malformed", "tests/it/turns.rs"),
    ("part-not-found", "tests/it/timeline.rs"),
    ("part-closed", "tests/it/turns.rs"),
    ("too-many-parts", "tests/it/turns.rs"),
    ("tool-ended", "tests/it/turns.rs"),
    ("checkpoint-not-found", "tests/it/timeline.rs"),
    ("delta-gap", "tests/it/turns.rs"),
    ("delta-conflict", "tests/it/turns.rs"),
    ("content-not-found", "tests/it/sessions.rs"),
    ("content-malformed", "tests/it/sessions.rs"),
    ("content-too-large", "tests/it/sessions.rs"),
    ("content-gap", "tests/it/sessions.rs"),
    ("rules-malformed", "tests/it/sessions.rs"),
    ("token-malformed", "tests/it/sessions.rs"),
];

/// What was heard, with its exception type.
#[derive(Default)]
struct Heard(BTreeSet<&'static str>);

impl Heard {
    #[track_caller]
    fn error(&mut self, want: &'static str, error: capnp::Error) {
        assert_eq!(code(&error), want, "{error}");
        let known = Code::ALL.iter().find(|known| known.name() == want).unwrap();
        let kind = match known.advice() {
            Advice::No => ErrorKind::Failed,
            Advice::Later => ErrorKind::Overloaded,
            Advice::Reconnect => ErrorKind::Disconnected,
        };
        assert_eq!(error.kind, kind, "{error}");
        self.0.insert(want);
    }
}

/// One op of the caller's making, in a batch of its own; the rejection it gets.
async fn rejected(
    session: &session::Client,
    producer: &mut Producer,
    fill: impl FnOnce(session_op::Builder<'_>),
) -> String {
    let mut request = producer.batch(session, &["x"]);
    let mut ops = request.get().get_ops().unwrap();
    fill(ops.reborrow().get(0));
    let answer = request.send().promise.await.unwrap();
    let ack = answer.get().unwrap().get_ack().unwrap();
    assert!(!ack.has_stopped());
    match ack.get_outcomes().unwrap().get(0).which().unwrap() {
        outcome::Rejected(refusal) => refusal.unwrap().get_code().unwrap().to_string().unwrap(),
        _ => "accepted".into(),
    }
}

#[test]
fn every_code_can_be_heard() {
    let server = Server::start_with(&["--limit", "objects_max=8"]);
    let mut heard = Heard::default();
    local(async {
        refs(&server, &mut heard).await;
        ids(&server, &mut heard).await;
        batches(&server, &mut heard).await;
        single_ops(&server, &mut heard).await;
    });
    for (code, file) in ELSEWHERE {
        let text = fs::read_to_string(format!("{}/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert!(text.contains(code), "{file} does not name {code}");
    }
    heard.0.insert("internal");
    let elsewhere: BTreeSet<_> = ELSEWHERE.iter().map(|(code, _)| *code).collect();
    let all: BTreeSet<_> = Code::ALL.iter().map(|code| code.name()).collect();
    let both: BTreeSet<_> = heard.0.union(&elsewhere).copied().collect();
    assert_eq!(both, all, "a code nobody hears, or one that does not exist");
    assert!(heard.0.is_disjoint(&elsewhere), "heard here after all");
}

async fn refs(server: &Server, heard: &mut Heard) {
    let vat = connect(server).await;
    let redeem = async |text: &str| {
        let mut request = vat.redeem_request();
        request.get().set_ref(text);
        request.send().promise.await
    };
    let good = server.root_ref();
    for malformed in ["", "hello", &good[..good.len() - 2]] {
        heard.error("ref-malformed", failure(redeem(malformed)).await);
    }
    // A ref of another server: well-formed, but nothing here.
    let other = Server::start();
    heard.error("ref-refused", failure(redeem(&other.root_ref())).await);

    let answer = redeem(&good).await.unwrap();
    assert_eq!(answer.get().unwrap().get_kind().unwrap(), ObjectKind::Root);

    let mut kept = Vec::new();
    let error = loop {
        match redeem(&good).await {
            Ok(answer) => kept.push(answer),
            Err(error) => break error,
        }
    };
    heard.error("too-many-objects", error);
    assert_eq!(kept.len(), 7, "the first one is still held");
    drop((kept, answer));
    redeem(&good).await.expect("room again");

    // The root's file is lost; the next start makes another, and the former ref is dead.
    let dir = tempfile::tempdir().unwrap();
    let first = Server::start_in(dir.path(), &[], &[]);
    let lost = first.root_ref();
    first.kill_9();
    fs::remove_file(dir.path().join("root.ref")).unwrap();
    let second = Server::start_in(dir.path(), &[], &[]);
    let vat = connect(&second).await;
    let mut request = vat.redeem_request();
    request.get().set_ref(&lost);
    heard.error("revoked", failure(request.send().promise).await);
}

async fn ids(server: &Server, heard: &mut Heard) {
    let root = root(server).await;
    let find = |id: &str| {
        let mut request = root.project_request();
        request.get().set_id(id);
        request.send()
    };
    heard.error("id-malformed", failure(find("").promise).await);
    heard.error("id-malformed", failure(find("a b").promise).await);
    heard.error("project-not-found", failure(find("nobody").promise).await);

    let mut producer = Producer::new();
    let project = open_project(&root, &mut producer, "/ids").pipeline.get_project();
    let mut request = project.session_request();
    request.get().set_id("nobody");
    heard.error("session-not-found", failure(request.send().promise).await);
    // A session of another project is not to be had through this one.
    let other = open_project(&root, &mut producer, "/other").pipeline.get_project();
    create_session(&other, &mut Producer::new(), "theirs").promise.await.unwrap();
    let mut request = project.session_request();
    request.get().set_id("theirs");
    heard.error("session-not-found", failure(request.send().promise).await);

    let mut request = root.open_project_request();
    producer.header(request.get().init_op());
    request.get().init_project().set_directory("not/absolute");
    heard.error("directory-malformed", failure(request.send().promise).await);

    let long = "x".repeat(TITLE_BYTES_MAX + 1);
    let mut request = root.open_project_request();
    producer.header(request.get().init_op());
    let mut draft = request.get().init_project();
    draft.set_directory("/long");
    draft.set_name(&long);
    heard.error("name-too-long", failure(request.send().promise).await);

    let mut request = root.open_project_request();
    producer.header(request.get().init_op());
    let mut draft = request.get().init_project();
    draft.set_directory("/ids");
    draft.set_id("another-id");
    heard.error("project-exists", failure(request.send().promise).await);
    let taken = project.info_request().send().promise.await.unwrap();
    let taken = taken.get().unwrap().get_project().unwrap().get_id().unwrap();
    let mut request = root.open_project_request();
    producer.header(request.get().init_op());
    let mut draft = request.get().init_project();
    draft.set_directory("/another/directory");
    draft.set_id(taken);
    heard.error("project-exists", failure(request.send().promise).await);

    let mut sessions = Producer::new();
    let mut request = project.create_session_request();
    sessions.header(request.get().init_op());
    request.get().init_session().set_title(&long);
    heard.error("title-too-long", failure(request.send().promise).await);
    heard.error(
        "session-exists",
        failure(create_session(&project, &mut sessions, "theirs").promise).await,
    );
    // Refusals are recorded, and use up their number: the repeat hears the same, another op does not
    // get the number, and the next number is free.
    sessions.next -= 1;
    let repeat = create_session(&project, &mut sessions, "theirs").promise;
    heard.error("session-exists", failure(repeat).await);
    sessions.next -= 1;
    let other = create_session(&project, &mut sessions, "mine").promise;
    heard.error("op-reused", failure(other).await);
    create_session(&project, &mut sessions, "mine").promise.await.unwrap();
    sessions.next += 5;
    let early = create_session(&project, &mut sessions, "later").promise;
    heard.error("seq-gap", failure(early).await);
}

async fn batches(server: &Server, heard: &mut Heard) {
    let session = fresh_session(&root(server).await);
    let mut producer = Producer::new();
    heard.error("batch-empty", failure(batch_at(&producer, 1, &session, &[]).send().promise).await);
    let long = vec!["x"; BATCH_OPS_MAX as usize + 1];
    heard.error(
        "batch-too-long",
        failure(batch_at(&producer, 1, &session, &long).send().promise).await,
    );
    for (seq, epoch, id_bytes) in [(0, 1, 16), (u64::MAX, 1, 16), (1, 0, 16), (1, 1, 15), (1, 1, 0)]
    {
        let mut request = batch_at(&producer, seq.min(1 << 62), &session, &["x"]);
        let mut batch = request.get().get_batch().unwrap();
        batch.set_first_seq(seq);
        batch.set_producer_epoch(epoch);
        batch.set_producer(&[7; 16][..id_bytes]);
        heard.error("op-header-malformed", failure(request.send().promise).await);
    }

    let not_utf8 = capnp::text::Reader(&[b'a', 0xff]);
    let mut request = root(server).await.project_request();
    request.get().set_id(not_utf8);
    heard.error("message-malformed", failure(request.send().promise).await);

    let mut heard_inside = |want: &'static str, got: String| {
        assert_eq!(got, want);
        heard.0.insert(want);
    };
    let put = |op: session_op::Builder<'_>, id: &str, json: &str| {
        let mut body = op.init_put_message();
        body.set_id(id);
        body.init_parts(1).get(0).set_json(json);
    };
    let got = rejected(&session, &mut producer, |mut op| op.set_unset(())).await;
    heard_inside("op-malformed", got);
    for json in ["", "[]", "1", "{", "{}x", &"{\"a\":".repeat(5000)] {
        let got = rejected(&session, &mut producer, |op| put(op, "", json)).await;
        heard_inside("op-malformed", got);
    }
    let got = rejected(&session, &mut producer, |op| {
        op.init_put_message().init_parts(PARTS_MAX + 1);
    })
    .await;
    heard_inside("op-malformed", got);
    let got =
        rejected(&session, &mut producer, |op| op.init_put_message().set_metadata("[1]")).await;
    heard_inside("op-malformed", got);
    let got = rejected(&session, &mut producer, |op| {
        op.init_put_message().init_parts(1).get(0).set_text(not_utf8);
    })
    .await;
    heard_inside("op-malformed", got);
    let got = rejected(&session, &mut producer, |op| put(op, "a b", "{}")).await;
    assert_eq!(got, "id-malformed");
    let large = "x".repeat(OP_PAYLOAD_BYTES_MAX);
    let got = rejected(&session, &mut producer, |op| text_message(op, &large)).await;
    heard_inside("op-too-large", got);
    let got = rejected(&session, &mut producer, |op| put(op, "m1", " {\"type\": \"x\"}")).await;
    assert_eq!(got, "accepted");
    let got = rejected(&session, &mut producer, |op| {
        let mut body = op.init_put_message();
        body.set_role(Role::Tool);
        body.set_id("m1");
    })
    .await;
    heard_inside("message-exists", got);

    let stopped = async |first_seq: u64, texts: &[&str], producer: &Producer| {
        let answer = batch_at(producer, first_seq, &session, texts).send().promise.await.unwrap();
        let ack = answer.get().unwrap().get_ack().unwrap();
        let code = ack.get_stopped().unwrap().get_code().unwrap().to_string().unwrap();
        (code, ack.get_outcomes().unwrap().len(), ack.get_next_expected_seq())
    };
    let fresh = Producer::new();
    assert_eq!(stopped(5, &["x"], &fresh).await, ("seq-gap".into(), 0, 1));
    heard.0.insert("seq-gap");
    batch_at(&fresh, 1, &session, &["a", "b"]).send().promise.await.unwrap();
    assert_eq!(stopped(1, &["a", "x"], &fresh).await, ("op-reused".into(), 1, 3));
    heard.0.insert("op-reused");

    let newer = Producer { epoch: 2, ..fresh.clone() };
    batch_at(&newer, 3, &session, &["c"]).send().promise.await.unwrap();
    let fenced = batch_at(&fresh, 4, &session, &["d"]).send().promise;
    heard.error("producer-fenced", failure(fenced).await);

    // A successor with an older state goes back to what the predecessor has acknowledged.
    let acked = Producer { acked_through: 3, ..newer.clone() };
    batch_at(&acked, 4, &session, &["d"]).send().promise.await.unwrap();
    let restored = Producer { epoch: 3, ..fresh.clone() };
    assert_eq!(stopped(2, &["another b"], &restored).await, ("seq-forgotten".into(), 0, 5));
    heard.0.insert("seq-forgotten");

    let mut hoarder = Producer::new();
    let full = vec!["x"; BATCH_OPS_MAX as usize];
    for _ in 0..WINDOW_OPS_MAX / u64::from(BATCH_OPS_MAX) {
        hoarder.batch(&session, &full).send().promise.await.unwrap();
    }
    let (code, outcomes, next) = stopped(hoarder.next, &["y"], &hoarder).await;
    assert_eq!((code.as_str(), outcomes, next), ("window-full", 0, WINDOW_OPS_MAX + 1));
    heard.0.insert("window-full");
    hoarder.acked_through = WINDOW_OPS_MAX;
    hoarder.batch(&session, &["y"]).send().promise.await.unwrap();
}

async fn single_ops(server: &Server, heard: &mut Heard) {
    let root = root(server).await;
    let mut producer = Producer::new();
    open_project(&root, &mut producer, "/single").promise.await.unwrap();
    producer.acked_through = 1;
    open_project(&root, &mut producer, "/single/2").promise.await.unwrap();
    producer.next = 1;
    heard.error(
        "result-dropped",
        failure(open_project(&root, &mut producer, "/single").promise).await,
    );
    let project: project::Client =
        open_project(&root, &mut Producer::new(), "/single").pipeline.get_project();
    let info = project.info_request().send().promise.await.unwrap();
    let info = info.get().unwrap().get_project().unwrap();
    assert_eq!(info.get_directory().unwrap().to_str().unwrap(), "/single");
}
