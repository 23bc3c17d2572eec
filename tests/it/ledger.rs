//! The ledger's rules, told as scripts to the real server, with real crashes between the lines.
//!
//! A line is a batch: `PRODUCER[/EPOCH] [MODE] [ack=N] [epoch=N] [run=INSTANCE] FIRST: OP … -> OUTCOME …`.
//! An op is `put:ID`, `rm:ID`, `title:TEXT` or `bad`, with `@N` behind it if the log must end at N, and
//! `<A,B` if it depends on those numbers. An outcome is a cursor, `=` and a cursor for a repeat, `-` for a
//! repeat without its result, or a code; `!CODE` says why the batch stopped. An error of the whole call is
//! `error CODE`. `crash` kills the server and starts it again. `register PRODUCER/INSTANCE[/EPOCH] ->
//! EPOCH NEXT FLOOR` announces a run.

use crate::support::*;
use bowline::wire::bowline_capnp::{BatchMode, ack, batch, outcome};
use bowline::wire::root_capnp::root;
use bowline::wire::session_capnp::{session, session_op};
use std::collections::BTreeMap;

/// The server a script talks to, in the middle of it.
struct Story {
    dir: tempfile::TempDir,
    server: Option<Server>,
    session: Option<session::Client>,
}

impl Story {
    fn begin() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir, server: None, session: None }
    }

    async fn session(&mut self) -> session::Client {
        if self.session.is_none() {
            let server = Server::start_in(self.dir.path(), &[], &[]);
            let root = root(&server).await;
            self.session = Some(same_session(&root));
            self.server = Some(server);
        }
        self.session.clone().unwrap()
    }

    fn crash(&mut self) {
        self.session = None;
        self.server.take().unwrap().kill_9();
    }
}

/// The same session whenever it is asked for.
fn same_session(root: &root::Client) -> session::Client {
    let mut producer = Producer { id: [250; 16], epoch: 1, next: 1, acked_through: 0 };
    let project = open_project(root, &mut producer, "/tree").pipeline.get_project();
    producer.next = 1;
    create_session(&project, &mut producer, "s").pipeline.get_session()
}

fn id_of(name: &str) -> [u8; 16] {
    let mut id = [b'.'; 16];
    id[..name.len()].copy_from_slice(name.as_bytes());
    id
}

fn fill_op(said: &str, mut op: session_op::Builder<'_>) {
    let (said, depends_on) = said.split_once('<').unwrap_or((said, ""));
    let (said, expects) = said.split_once('@').map_or((said, None), |(s, at)| (s, Some(at)));
    op.set_op_id(&id_of(said));
    if let Some(cursor) = expects {
        op.reborrow().init_expects().set_cursor(cursor.parse().unwrap());
    }
    let depends_on: Vec<u64> = depends_on.split(',').filter_map(|n| n.parse().ok()).collect();
    let mut list = op.reborrow().init_depends_on(depends_on.len() as u32);
    for (at, on) in (0..).zip(depends_on) {
        list.set(at, on);
    }
    match said.split_once(':') {
        Some(("put", id)) => op.init_put_message().set_id(id),
        Some(("rm", id)) => op.set_remove_message(id),
        Some(("title", title)) => op.set_set_title(title),
        _ => op.set_unset(()),
    }
}

fn told(ack: ack::Reader<'_>) -> String {
    let mut said: Vec<String> = Vec::new();
    for outcome in ack.get_outcomes().unwrap() {
        let cursor = outcome.get_cursor();
        said.push(match outcome.which().unwrap() {
            outcome::Applied(()) => cursor.to_string(),
            outcome::Duplicate(()) => format!("={cursor}"),
            outcome::DuplicateDropped(()) => "-".into(),
            outcome::Rejected(refusal) => {
                let refusal = refusal.unwrap();
                let code = refusal.get_code().unwrap().to_str().unwrap();
                assert!(!refusal.get_text().unwrap().is_empty());
                match refusal.get_cursor() {
                    0 => code.to_owned(),
                    actual => format!("{code}@{actual}"),
                }
            }
        });
    }
    if ack.has_stopped() {
        said.push(format!("!{}", ack.get_stopped().unwrap().get_code().unwrap().to_str().unwrap()));
    }
    said.join(" ")
}

async fn register(session: &session::Client, said: &str) -> String {
    let mut words = said.split('/');
    let mut request = session.register_request();
    let mut registration = request.get().init_registration();
    registration.set_producer(&id_of(words.next().unwrap()));
    registration.set_instance(&id_of(words.next().unwrap()));
    registration.set_epoch(words.next().map_or(0, |epoch| epoch.parse().unwrap()));
    match request.send().promise.await {
        Err(error) => format!("error {}", code(&error)),
        Ok(answer) => {
            let at = answer.get().unwrap().get_registered().unwrap();
            assert!(at.get_server_incarnation() > 0);
            format!("{} {} {}", at.get_epoch(), at.get_next_expected_seq(), at.get_floor())
        }
    }
}

fn fill_batch(words: &[&str], mut batch: batch::Builder<'_>) {
    let (producer, epoch) = words[0].split_once('/').unwrap_or((words[0], "1"));
    batch.set_producer(&id_of(producer));
    batch.set_producer_epoch(epoch.parse().unwrap());
    for word in &words[1..] {
        match word.split_once('=') {
            Some(("ack", through)) => batch.set_acked_through(through.parse().unwrap()),
            Some(("epoch", epoch)) => batch.set_capability_epoch(epoch.parse().unwrap()),
            Some(("run", instance)) => batch.set_instance(&id_of(instance)),
            _ => match *word {
                "chain" => batch.set_mode(BatchMode::Chain),
                "atomic" => batch.set_mode(BatchMode::Atomic),
                first => batch.set_first_seq(first.parse().unwrap()),
            },
        }
    }
}

async fn send(session: &session::Client, said: &str) -> String {
    let (head, ops) = said.split_once(':').unwrap();
    let mut request = session.append_request();
    fill_batch(&head.split_whitespace().collect::<Vec<_>>(), request.get().init_batch());
    let ops: Vec<_> = ops.split_whitespace().collect();
    let mut list = request.get().init_ops(ops.len() as u32);
    for (at, op) in (0..).zip(&ops) {
        fill_op(op, list.reborrow().get(at));
    }
    match request.send().promise.await {
        Err(error) => format!("error {}", code(&error)),
        Ok(answer) => told(answer.get().unwrap().get_ack().unwrap()),
    }
}

fn check(script: &str) {
    local(async {
        let mut story = Story::begin();
        for line in script.lines().map(|line| line.split("//").next().unwrap().trim()) {
            if line.is_empty() {
                continue;
            }
            if line == "crash" {
                story.session().await.info_request().send().promise.await.unwrap();
                story.crash();
                continue;
            }
            let (said, want) = line.split_once("->").unwrap();
            let session = story.session().await;
            let got = match said.trim().strip_prefix("register ") {
                Some(run) => register(&session, run.trim()).await,
                None => send(&session, said.trim()).await,
            };
            assert_eq!(got, want.trim(), "{line}");
        }
    });
}

#[test]
fn rule_2_a_predecessor_is_shut_out() {
    check(
        "
        a 1: put:x put:y -> 1 2
        a/2 3: put:z -> 3              // a takeover by writing
        a/1 4: put:w -> error producer-fenced
        a/1 1: put:x -> error producer-fenced   // not even a recorded answer
        crash
        a/1 4: put:w -> error producer-fenced
        register a/one -> 3 4 1        // a takeover by registering
        register a/one -> 3 4 1        // sent again: the same epoch
        a/2 4: put:w -> error producer-fenced
        a/3 4: put:w -> 4
        register a/two -> 4 5 1
        register a/one/3 -> error producer-fenced
        a/3 5: put:v -> error producer-fenced
        crash
        register a/two -> 4 5 1
        register a/three/4 -> error producer-fenced   // two runs cannot have one epoch
        a/4 run=three 5: put:v -> error producer-fenced   // nor write under it, if they say who they are
        register a/three/9 -> 9 5 1
        a/9 5: put:v -> 5
        register new/one -> 1 1 1
        register new/one/1 -> 1 1 1
        new/1 1: put:n -> 6
        ",
    );
}

#[test]
fn rule_2_a_successor_never_takes_forgotten_numbers_for_its_own() {
    check(
        "
        a 1: put:x put:y put:z -> 1 2 3
        a ack=2 4: put:w -> 4
        register a/new -> 2 5 3
        a/2 1: put:p put:q -> !seq-forgotten      // a restored copy that thinks it is at 1
        a/2 2: put:q put:z -> !seq-forgotten
        a/2 3: put:z put:w -> =3 =4
        a/2 ack=4 5: put:v -> 5
        a/2 3: put:z -> -                         // what it acknowledged itself it knows
        crash
        a/2 2: put:q -> !seq-forgotten
        a/3 4: put:w -> !seq-forgotten            // the same without registering
        a/3 6: put:u -> 6
        a/3 4: put:w -> !seq-forgotten            // and still so, once it has written
        ",
    );
}

#[test]
fn rules_3_and_4_a_number_means_one_op_and_none_is_left_out() {
    check(
        "
        a 1: put:x put:y -> 1 2
        a 1: put:x put:y -> =1 =2
        a 2: put:y put:z -> =2 3
        a 5: put:w -> !seq-gap
        a 1: put:x put:other -> =1 !op-reused
        a chain 3: put:z -> !op-reused    // how it is to be taken is part of what it says
        a 3: put:z@2 -> !op-reused        // and so is what it expects
        a 3: put:z<1 -> !op-reused
        crash
        a 1: put:x put:y put:z -> =1 =2 =3
        b 1: put:x -> message-exists
        crash
        b 1: put:x -> message-exists      // a refusal is as lasting as a result
        a ack=2 4: put:v -> 4
        a 1: put:anything put:goes put:z -> - - =3
        ",
    );
}

#[test]
fn rule_5_refusals_use_up_their_number_and_dependents_hear_of_them() {
    check(
        "
        a 1: put:x bad put:y -> 1 op-malformed 2
        a 4: put:p<1 put:q<2 put:r<4 put:s<5 -> 3 dependency-failed 4 dependency-failed
        crash
        a 4: put:p<1 put:q<2 put:r<4 put:s<5 -> =3 dependency-failed =4 dependency-failed
        ",
    );
    check(
        "
        a 1: put:x put:x2<1 put:x3<3 put:x4<9 put:x5<0 -> 1 2 op-malformed op-malformed op-malformed
        a ack=2 6: put:y -> 3
        a 7: put:z<2 -> dependency-forgotten
        a 8: put:z2<6 -> 4
        ",
    );
}

#[test]
fn a_chain_ends_at_its_first_refusal() {
    check(
        "
        a chain 1: put:x put:y bad put:z put:w -> 1 2 op-malformed dependency-failed dependency-failed
        a chain 6: put:z put:w -> 3 4        // the next one begins anew
        a 8: put:v rm:nothing put:u -> 5 message-not-found 6
        crash
        a chain 1: put:x put:y bad put:z put:w -> =1 =2 op-malformed dependency-failed dependency-failed
        ",
    );
}

#[test]
fn rule_7_a_conflict_tells_where_the_log_ended() {
    check(
        "
        a 1: put:x@0 -> 1
        b 1: put:y@0 -> cursor-conflict@1
        b 2: put:y@1 -> 2
        a 2: put:z@1 put:z2@2 put:z3@3 -> cursor-conflict@2 3 4
        crash
        a 2: put:z@1 put:z2@2 put:z3@3 -> cursor-conflict@2 =3 =4   // though 4 is the end by now
        ",
    );
}

#[test]
fn rule_7_an_atomic_batch_happens_whole_or_not_at_all() {
    check(
        "
        a atomic 1: put:x put:y -> 1 2
        a atomic 3: put:p put:q put:x rm:y -> batch-undone batch-undone message-exists batch-undone
        b 1: put:p -> 3                     // nothing of it is there
        crash
        a atomic 3: put:p put:q put:x rm:y -> batch-undone batch-undone message-exists batch-undone
        a atomic 1: put:x put:y -> =1 =2
        a atomic 6: put:other put:r -> !op-reused
        ",
    );
    check(
        "
        a atomic 1: put:x put:y -> 1 2
        a atomic 1: put:x put:y put:z -> =1 =2 !batch-regrouped
        a atomic 3: put:z@2 rm:x title:t -> 3 4 5
        a atomic 6: put:w put:v@3 -> batch-undone cursor-conflict@6
        a atomic 8: put:w put:v@6 -> 6 7
        ",
    );
}

#[test]
fn rule_1_the_epoch_of_the_capability_is_checked_first() {
    let dir = tempfile::tempdir().unwrap();
    let said = async |server: &Server, line: &str| {
        let root = root(server).await;
        send(&same_session(&root), line).await
    };
    local(async {
        let server = Server::start_in(dir.path(), &[], &[]);
        let vat = connect(&server).await;
        let mut request = vat.redeem_request();
        request.get().set_ref(server.root_ref());
        let answer = request.send().promise.await.unwrap();
        assert_eq!(answer.get().unwrap().get_epoch(), 1);
        assert_eq!(said(&server, "a epoch=1 1: put:x").await, "1");
        assert_eq!(said(&server, "a epoch=2 1: put:x").await, "error epoch-stale");
        server.kill_9();
    });
    // Nothing moves an epoch yet but the store itself.
    let store = rusqlite::Connection::open(dir.path().join("bowline.db")).unwrap();
    store.execute("UPDATE logs SET epoch = 7", []).unwrap();
    drop(store);
    local(async {
        let server = Server::start_in(dir.path(), &[], &[]);
        assert_eq!(said(&server, "a epoch=1 1: put:x").await, "error epoch-stale", "a repeat too");
        assert_eq!(said(&server, "a epoch=1 2: put:y").await, "error epoch-stale");
        assert_eq!(
            said(&server, "a epoch=7 1: put:x put:y").await,
            "=1 2",
            "it is no part of the op"
        );
        assert_eq!(said(&server, "a 2: put:y").await, "=2", "who does not care is not asked");
    });
}

#[test]
fn rule_8_a_log_remembers_so_many_producers_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    local(async {
        let server = Server::start_in(dir.path(), &[], &[]);
        let session = same_session(&root(&server).await);
        assert_eq!(send(&session, "a 1: put:x").await, "1");
        server.kill_9();
    });
    let store = rusqlite::Connection::open(dir.path().join("bowline.db")).unwrap();
    let most = bowline::limits::PRODUCERS_PER_LOG_MAX as i64;
    store.execute("UPDATE logs SET producers = ?", [most]).unwrap();
    drop(store);
    local(async {
        let server = Server::start_in(dir.path(), &[], &[]);
        let session = same_session(&root(&server).await);
        assert_eq!(send(&session, "b 1: put:y").await, "error too-many-producers");
        assert_eq!(register(&session, "b/one").await, "error too-many-producers");
        assert_eq!(send(&session, "a 2: put:y").await, "2", "those who are known go on");
    });
}

#[test]
fn what_is_replaced_or_removed_shows() {
    let server = Server::start();
    local(async {
        let session = same_session(&root(&server).await);
        let sent = send(&session, "a 1: put:x put:y title:one rm:x put:x title:two").await;
        assert_eq!(sent, "1 2 3 4 5 6");
        let answer = session.info_request().send().promise.await.unwrap();
        let info = answer.get().unwrap().get_session().unwrap();
        assert_eq!(info.get_title().unwrap(), "two");
        assert_eq!(info.get_head(), 6);
        let answer = session.messages_request().send().promise.await.unwrap();
        let messages = answer.get().unwrap().get_messages().unwrap();
        let found: BTreeMap<u64, String> = messages
            .iter()
            .map(|message| (message.get_cursor(), message.get_id().unwrap().to_string().unwrap()))
            .collect();
        assert_eq!(found, BTreeMap::from([(2, "y".into()), (5, "x".into())]));
    });
}

#[test]
fn single_ops_have_the_same_conditions() {
    let server = Server::start();
    local(async {
        let root = root(&server).await;
        let open = async |seq: u64, directory: &str, expects: Option<u64>, on: &[u64]| {
            let mut request = root.open_project_request();
            let mut op = request.get().init_op();
            op.set_producer(&id_of("p"));
            op.set_producer_epoch(1);
            op.set_seq(seq);
            op.set_op_id(&id_of(&seq.to_string()));
            if let Some(cursor) = expects {
                op.reborrow().init_expects().set_cursor(cursor);
            }
            let mut list = op.init_depends_on(on.len() as u32);
            for (at, on) in (0..).zip(on) {
                list.set(at, *on);
            }
            request.get().init_project().set_directory(directory);
            match request.send().promise.await {
                Ok(answer) => answer.get().unwrap().get_created().to_string(),
                Err(error) => error.extra,
            }
        };
        assert_eq!(open(1, "/a", Some(0), &[]).await, "true");
        let conflict = open(2, "/b", Some(0), &[]).await;
        assert!(
            conflict.contains("bowline/cursor-conflict") && conflict.contains("ended at 1"),
            "{conflict}"
        );
        assert_eq!(open(2, "/b", Some(0), &[]).await, conflict, "a repeat hears the same");
        let reused = open(2, "/b", Some(1), &[]).await;
        assert!(reused.contains("bowline/op-reused"), "{reused}");
        assert!(open(3, "/c", None, &[2]).await.contains("bowline/dependency-failed"));
        assert_eq!(open(4, "/c", None, &[1]).await, "true");
    });
}

#[test]
fn the_root_and_projects_register_producers_in_logs_of_their_own() {
    let server = Server::start();
    local(async {
        let root = root(&server).await;
        let mut producer = Producer::new();
        let project = open_project(&root, &mut producer, "/tree").pipeline.get_project();
        create_session(&project, &mut Producer { next: 1, ..producer.clone() }, "s")
            .promise
            .await
            .unwrap();
        create_session(&project, &mut Producer { next: 2, ..producer.clone() }, "t")
            .promise
            .await
            .unwrap();
        macro_rules! registered {
            ($object:expr) => {{
                let mut request = $object.register_request();
                let mut registration = request.get().init_registration();
                registration.set_producer(&producer.id);
                registration.set_instance(&[1; 16]);
                let answer = request.send().promise.await.unwrap();
                let at = answer.get().unwrap().get_registered().unwrap();
                (at.get_epoch(), at.get_next_expected_seq(), at.get_cursor())
            }};
        }
        assert_eq!(registered!(root), (2, 2, 1), "one project was made");
        assert_eq!(registered!(project), (2, 3, 2), "two sessions were");
        let error = failure(open_project(&root, &mut producer, "/other").promise).await;
        assert_eq!(code(&error), "producer-fenced");
    });
}
