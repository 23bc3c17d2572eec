//! Work handed to others: in a session of its own or in the same one, for as long as something is heard of
//! them; and what the delegator hears at the end, whatever it is.

use crate::feed::{Ears, feed, put};
use crate::grants::{as_object, made, only, revoke};
use crate::support::*;
use bowline::limits::RESULT_BYTES_MAX;
use bowline::wire::grant_capnp::{Right, narrowing};
use bowline::wire::root_capnp::root;
use bowline::wire::session_capnp::{delegation_draft, session};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, UNIX_EPOCH};

/// What `Session.delegate` returned.
pub struct Delegated {
    /// The delegator's own way to the session.
    pub session: session::Client,
    /// The delegate's.
    pub delegate: session::Client,
    pub sturdy_ref: String,
    pub grant: Vec<u8>,
}

pub async fn delegate(
    of: &session::Client,
    producer: &mut Producer,
    fill: impl FnOnce(delegation_draft::Builder<'_>),
) -> capnp::Result<Delegated> {
    let mut request = of.delegate_request();
    request.get().set_seed(&[producer.next as u8; 32]);
    producer.header(request.get().init_op());
    fill(request.get().init_delegation());
    let answer = request.send().promise.await?;
    let answer = answer.get()?;
    Ok(Delegated {
        session: answer.get_session()?,
        delegate: answer.get_delegate()?,
        sturdy_ref: answer.get_ref()?.to_string()?,
        grant: answer.get_grant()?.to_vec(),
    })
}

async fn complete(
    of: &session::Client,
    producer: &mut Producer,
    result: &str,
) -> capnp::Result<()> {
    let mut request = of.complete_request();
    producer.header(request.get().init_op());
    request.get().set_result(result);
    request.send().promise.await.map(|_| ())
}

/// The delegations of a session, as lines: actor, how it ended, what it said.
async fn listed(session: &session::Client) -> Vec<String> {
    let answer = session.delegations_request().send().promise.await.unwrap();
    let infos = answer.get().unwrap().get_delegations().unwrap();
    let line = |info: bowline::wire::session_capnp::delegation_info::Reader<'_>| {
        let (actor, result) = (info.get_actor().unwrap(), info.get_result().unwrap());
        format!(
            "{} {:?} {}",
            actor.to_str().unwrap(),
            info.get_end().unwrap(),
            result.to_str().unwrap()
        )
    };
    infos.iter().map(line).collect()
}

async fn dead(session: &session::Client) -> String {
    code(&failure(as_object(session).describe_request().send().promise).await).to_owned()
}

fn named(actor: &'static str) -> impl Fn(delegation_draft::Builder<'_>) {
    move |draft| draft.init_narrowing().set_actor(actor)
}

/// Events of a feed, without the caught-ups and without their places.
fn events(ears: &Ears) -> Vec<String> {
    let lines = ears.lines().into_iter().filter(|line| !line.starts_with("caught-up"));
    lines.map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
}

/// Lines that say so, behind their places.
fn count(lines: &[String], what: &str) -> usize {
    lines
        .iter()
        .filter(|line| line.split_once(' ').is_some_and(|(_, it)| it.starts_with(what)))
        .count()
}

#[test]
fn a_delegate_works_in_a_child_session_and_its_completion_reaches_the_delegators_feed() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), &[], &[]);
    let mut producer = Producer::new();
    let again = producer.clone();
    let (sturdy_ref, grant) = local(async {
        let root = root(&server).await;
        let (project, session) = made(&root);
        let ears = Rc::new(Ears::default());
        let durable =
            |mut wish: bowline::wire::feed_capnp::wish::Builder<'_>| wish.set_name("news");
        let _feed = feed(&session, &ears, durable).await.unwrap();
        let done = delegate(&session, &mut producer, |mut draft| {
            draft.set_lease_ms(60_000);
            let mut narrowing = draft.reborrow().init_narrowing();
            narrowing.set_actor("helper");
            narrowing.set_label("look it up");
            only(&[Right::Read, Right::Append])(narrowing);
            draft.get_where().init_child().set_id("child");
        })
        .await
        .unwrap();
        // The delegator writes the task into the child under its own authority.
        put(&done.session, &mut Producer::new(), &["task"]).await;
        let answer = done.session.info_request().send().promise.await.unwrap();
        let info = answer.get().unwrap().get_session().unwrap();
        assert_eq!(info.get_id().unwrap().to_str().unwrap(), "child");

        // The delegate, elsewhere, has what it was given and no more.
        let held: session::Client = redeem(&connect(&server).await, &done.sturdy_ref);
        assert_eq!(texts_of(&held).await, ["task"]);
        let mut delegates = Producer::new();
        put(&held, &mut delegates, &["answer"]).await;
        let error = delegate(&held, &mut delegates.clone(), |_| ()).await.err().unwrap();
        assert_eq!(code(&error), "not-permitted");
        let until = held.heartbeat_request().send().promise.await.unwrap();
        let until_ms = until.get().unwrap().get_until_ms();
        let left = Duration::from_millis(until_ms) - UNIX_EPOCH.elapsed().unwrap();
        assert!(left > Duration::from_secs(50) && left <= Duration::from_secs(60), "{left:?}");
        done.delegate.heartbeat_request().send().promise.await.unwrap();
        // The child is found through its parent, and through the project.
        let mut find = session.child_request();
        find.get().set_id("child");
        find.send().pipeline.get_session().info_request().send().promise.await.unwrap();
        let mut find = session.child_request();
        find.get().set_id("no-child");
        assert_eq!(code(&failure(find.send().promise).await), "session-not-found");
        let mut find = project.session_request();
        find.get().set_id("child");
        find.send().pipeline.get_session().info_request().send().promise.await.unwrap();

        assert_eq!(listed(&session).await, ["helper Running "]);
        let long = "x".repeat(RESULT_BYTES_MAX + 1);
        let error = complete(&held, &mut delegates.clone(), &long).await;
        assert_eq!(code(&error.unwrap_err()), "op-too-large");
        complete(&held, &mut delegates, "found it").await.unwrap();
        assert_eq!(listed(&session).await, ["helper Completed found it"]);
        // What it was given is spent, on every connection, and says why.
        assert_eq!(dead(&held).await, "delegation-ended");
        assert_eq!(dead(&done.delegate).await, "delegation-ended");
        let error = complete(&held, &mut delegates, "found it").await.unwrap_err();
        assert_eq!(code(&error), "delegation-ended");
        assert!(error.extra.contains("completed"), "a repeat hears how it ended: {error}");
        assert_eq!(refused(&server, &done.sturdy_ref).await, "delegation-ended");
        ears.until("caught-up 2").await;
        assert_eq!(events(&ears), ["delegated helper", "over Completed found it"]);
        // In the child's own log, too; and its history is the delegator's to read.
        let in_child = Rc::new(Ears::default());
        let _child_feed = feed(&done.session, &in_child, |_| ()).await.unwrap();
        in_child.until("caught-up 3").await;
        assert_eq!(events(&in_child), ["put task", "put answer", "over Completed found it"]);
        (done.sturdy_ref, done.grant)
    });
    server.kill_9();
    let server = Server::start_in(dir.path(), &[], &[]);
    local(async {
        let (_, session) = found(&root(&server).await).await;
        // The op once more after the crash: the same delegation, and nothing happens a second time.
        let repeated = delegate(&session, &mut again.clone(), |mut draft| {
            draft.set_lease_ms(60_000);
            let mut narrowing = draft.reborrow().init_narrowing();
            narrowing.set_actor("helper");
            narrowing.set_label("look it up");
            only(&[Right::Read, Right::Append])(narrowing);
            draft.get_where().init_child().set_id("child");
        })
        .await;
        let repeated = repeated.unwrap();
        assert_eq!(repeated.grant, grant);
        let secret = |text: &str| text.split('#').next_back().unwrap().to_owned();
        assert_eq!(secret(&repeated.sturdy_ref), secret(&sturdy_ref));
        assert_eq!(texts_of(&repeated.session).await, ["task", "answer"]);
        assert_eq!(dead(&repeated.delegate).await, "delegation-ended", "it is over");
        assert_eq!(listed(&session).await, ["helper Completed found it"]);
        assert_eq!(refused(&server, &sturdy_ref).await, "delegation-ended");
        assert_eq!(revoke(&session, &mut Producer::new(), &grant).await.unwrap(), 0);
    });
    assert_verified(dir.path());
}

async fn texts_of(session: &session::Client) -> Vec<String> {
    let answer = session.messages_request().send().promise.await.unwrap();
    let messages = answer.get().unwrap().get_messages().unwrap();
    messages.iter().map(|message| message.get_id().unwrap().to_string().unwrap()).collect()
}

/// The project and the session `made` made, after a restart.
async fn found(
    root: &root::Client,
) -> (bowline::wire::root_capnp::project::Client, session::Client) {
    let project = open_project(root, &mut Producer::new(), "/tree").pipeline.get_project();
    let answer = project.sessions_request().send().promise.await.unwrap();
    let first = answer.get().unwrap().get_sessions().unwrap().get(0);
    let mut request = project.session_request();
    request.get().set_id(first.get_id().unwrap());
    let session = request.send().pipeline.get_session();
    (project, session)
}

fn assert_verified(data: &std::path::Path) {
    let output = command(data).args(["verify", "--data"]).arg(data).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_delegate_that_falls_silent_lapses_and_one_that_beats_does_not_also_across_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), &[], &[]);
    let leased = |actor: &'static str| {
        move |mut draft: delegation_draft::Builder<'_>| {
            draft.set_lease_ms(2_000);
            draft.reborrow().init_narrowing().set_actor(actor);
            draft.get_where().set_here(());
        }
    };
    let (kept_ref, survivor_ref) = local(async {
        let (_, session) = made(&root(&server).await);
        let ears = Rc::new(Ears::default());
        let _feed = feed(&session, &ears, |_| ()).await.unwrap();
        let mut producer = Producer::new();
        let kept = delegate(&session, &mut producer, leased("kept")).await.unwrap();
        let silent = delegate(&session, &mut producer, leased("silent")).await.unwrap();
        // One that was derived from the silent one goes with it, and its own delegate with that.
        let below = delegate(&silent.delegate, &mut producer, named("below")).await.unwrap();
        let beating = tokio::task::spawn_local({
            let kept = kept.delegate.clone();
            async move {
                loop {
                    kept.heartbeat_request().send().promise.await.unwrap();
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        });
        ears.heard(|lines| count(lines, "over") == 2).await;
        let heard = events(&ears);
        assert!(heard.contains(&"over Lapsed ".to_owned()), "{heard:?}");
        assert!(heard.contains(&"over Revoked ".to_owned()), "the one below: {heard:?}");
        assert_eq!(dead(&silent.delegate).await, "delegation-ended");
        assert_eq!(dead(&below.delegate).await, "delegation-ended");
        assert_eq!(refused(&server, &silent.sturdy_ref).await, "delegation-ended");
        kept.delegate.info_request().send().promise.await.expect("it was heard of");
        beating.abort();
        let survivor = delegate(&session, &mut producer, leased("survivor")).await.unwrap();
        (kept.sturdy_ref, survivor.sturdy_ref)
    });
    server.kill_9();
    // Nobody could be heard meanwhile, so that is held against nobody.
    std::thread::sleep(Duration::from_millis(2_500));
    let server = Server::start_in(dir.path(), &[], &[]);
    local(async {
        let held: session::Client = redeem(&connect(&server).await, &survivor_ref);
        held.heartbeat_request().send().promise.await.expect("its lease began anew");
        let (_, session) = found(&root(&server).await).await;
        let beating = tokio::task::spawn_local(async move {
            loop {
                held.heartbeat_request().send().promise.await.unwrap();
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        // Its neighbour is silent, and the history says so.
        let ears = Rc::new(Ears::default());
        let _feed = feed(&session, &ears, |_| ()).await.unwrap();
        ears.heard(|lines| count(lines, "over Lapsed") == 2).await;
        let want = ["kept Lapsed ", "silent Lapsed ", "below Revoked ", "survivor Running "];
        assert_eq!(listed(&session).await, want);
        assert_eq!(refused(&server, &kept_ref).await, "delegation-ended");
        beating.abort();
    });
    assert_verified(dir.path());
}

#[test]
fn a_delegate_that_is_revoked_or_expires_is_told_of_and_others_are_no_delegates() {
    let server = Server::start();
    local(async {
        let root = root(&server).await;
        let (_, session) = made(&root);
        let ears = Rc::new(Ears::default());
        let _feed = feed(&session, &ears, |_| ()).await.unwrap();
        let mut producer = Producer::new();
        let one = delegate(&session, &mut producer, named("one")).await.unwrap();
        assert_eq!(revoke(&session, &mut producer, &one.grant).await.unwrap(), 1);
        assert_eq!(dead(&one.delegate).await, "revoked", "by its owner, and not by itself");
        // By the name of the actor, through the root.
        let two = delegate(&session, &mut producer, named("two")).await.unwrap();
        let mut request = root.revoke_actor_request();
        Producer::new().header(request.get().init_op());
        request.get().set_actor("two");
        assert_eq!(request.send().promise.await.unwrap().get().unwrap().get_cut(), 1);
        assert_eq!(dead(&two.delegate).await, "revoked");
        // With the object's epoch.
        let three = delegate(&session, &mut producer, |mut draft| {
            draft.reborrow().init_narrowing().set_actor("three");
            draft.get_where().set_here(());
        })
        .await
        .unwrap();
        let mut request = as_object(&session).bump_epoch_request();
        producer.header(request.get().init_op());
        request.send().promise.await.unwrap();
        assert_eq!(dead(&three.delegate).await, "epoch-stale");
        // By itself, at a time.
        let soon_ms = now_ms() + 2_500;
        let four = delegate(&session, &mut producer, |draft| {
            let mut narrowing = draft.init_narrowing();
            narrowing.set_actor("four");
            narrowing.set_expires_at_ms(soon_ms);
        })
        .await
        .unwrap();
        ears.heard(|lines| count(lines, "over Expired") == 1).await;
        assert_eq!(dead(&four.delegate).await, "expired");
        // And if its ref is not used in time.
        let soon_ms = now_ms() + 2_500;
        delegate(&session, &mut producer, |draft| {
            let mut narrowing = draft.init_narrowing();
            narrowing.set_actor("unused");
            narrowing.set_expires_if_unused_at_ms(soon_ms);
        })
        .await
        .unwrap();
        ears.heard(|lines| count(lines, "over Expired") == 2).await;
        let want =
            ["one Revoked ", "two Revoked ", "three Revoked ", "four Expired ", "unused Expired "];
        assert_eq!(listed(&session).await, want);

        // Failing is an end like another one.
        let five = delegate(&session, &mut producer, named("five")).await.unwrap();
        let mut request = five.delegate.complete_request();
        Producer::new().header(request.get().init_op());
        request.get().set_failed(true);
        request.get().set_result("no luck");
        request.send().promise.await.unwrap();
        assert_eq!(listed(&session).await.last().unwrap(), "five Failed no luck");

        let error = failure(session.heartbeat_request().send().promise).await;
        assert_eq!(code(&error), "delegation-not-found");
        let error = complete(&session, &mut Producer::new(), "").await.unwrap_err();
        assert_eq!(code(&error), "delegation-not-found");
        for bad in [1, 999, u64::MAX] {
            let error =
                delegate(&session, &mut producer, |mut draft| draft.set_lease_ms(bad)).await;
            assert_eq!(code(&error.err().unwrap()), "narrowing-malformed", "{bad}");
        }
        let error = delegate(&five.session, &mut Producer::new(), |draft| {
            draft.get_where().init_child().set_id("a b");
        })
        .await;
        assert_eq!(code(&error.err().unwrap()), "id-malformed");
        let few =
            |narrowing: narrowing::Builder<'_>| only(&[Right::Read, Right::Delegate])(narrowing);
        let (lesser, _) = crate::grants::attenuate(&session, &mut producer, few).await.unwrap();
        let error = delegate(&lesser, &mut producer, |draft| {
            only(&[Right::Append])(draft.init_narrowing());
        })
        .await
        .err()
        .unwrap();
        assert_eq!(code(&error), "not-permitted");
        assert!(error.extra.contains("\"append\""), "{error}");
        // Who was given a part sees only what was derived from that.
        assert_eq!(listed(&lesser).await, Vec::<String>::new());
    });
}

/// Whoever loses what it was given has lost the turn it began as well, however that came about, and however long
/// the turn's own lease lasts.
#[test]
fn the_turns_of_a_delegate_end_with_its_delegation() {
    let mut server = Server::start();
    let data = server.data.clone();
    local(async {
        let (_, session) = made(&root(&server).await);
        let ears = Rc::new(Ears::default());
        let _feed = feed(&session, &ears, |_| ()).await.unwrap();
        let mut producer = Producer::new();
        let soon_ms = now_ms() + 3_000;
        let silent = delegate(&session, &mut producer, |mut draft| {
            draft.set_lease_ms(1_000);
            draft.get_where().set_here(());
        });
        let silent = silent.await.unwrap();
        let expires = delegate(&session, &mut producer, |mut draft| {
            draft.reborrow().init_narrowing().set_expires_at_ms(soon_ms);
            draft.get_where().set_here(());
        });
        let expires = expires.await.unwrap();
        // No delegation, but a ref with an end.
        let (narrowed, _) = crate::grants::attenuate(&session, &mut producer, |mut narrowing| {
            crate::grants::all(narrowing.reborrow());
            narrowing.set_expires_at_ms(soon_ms);
        })
        .await
        .unwrap();
        let mut numbers = Producer::new();
        for (held, id) in [(&silent.delegate, "t1"), (&expires.delegate, "t2"), (&narrowed, "t3")] {
            let mut request = held.begin_turn_request();
            numbers.header(request.get().init_op());
            let mut draft = request.get().init_turn();
            draft.set_id(id);
            draft.set_lease_ms(3_600_000);
            draft.set_if_busy(bowline::wire::message_capnp::IfBusy::Beside);
            request.send().promise.await.unwrap();
        }
        let over = |id: &str| {
            let line = format!("ended {id} Aborted");
            ears.heard(move |lines| lines.iter().any(|it| it.contains(&line)))
        };
        over("t1").await;
        assert!(now_ms() < soon_ms, "with its delegation, and not with the others");
        over("t2").await;
        over("t3").await;
        assert!(now_ms() >= soon_ms);
        let answer = session.turns_request().send().promise.await.unwrap();
        for turn in answer.get().unwrap().get_turns().unwrap() {
            let reason = turn.get_reason().unwrap().to_string().unwrap();
            assert!(reason.contains("the grant it was begun under"), "{reason}");
        }
        assert_eq!(crate::conversation::Story::new(session).line("status").await, "idle");
    });
    server.signal(rustix::process::Signal::TERM);
    server.ended();
    assert_verified(&data);
}

/// What was handed to one is nothing to another: not its session, and not by its id.
#[test]
fn children_are_found_by_who_delegated_and_by_nobody_beside() {
    let server = Server::start();
    local(async {
        let (_, session) = made(&root(&server).await);
        let mut producer = Producer::new();
        let child = |id: &'static str| {
            move |draft: delegation_draft::Builder<'_>| draft.get_where().init_child().set_id(id)
        };
        delegate(&session, &mut producer, child("one")).await.unwrap();
        let here = delegate(&session, &mut producer, |draft| draft.get_where().set_here(()))
            .await
            .unwrap();
        let own = delegate(&here.delegate, &mut producer, child("two")).await.unwrap();
        let find = async |through: &session::Client, id: &str| {
            let mut request = through.child_request();
            request.get().set_id(id);
            let found = request.send().promise.await;
            found.map(|_| ()).map_err(|error| code(&error).to_owned())
        };
        assert_eq!(find(&session, "one").await, Ok(()));
        assert_eq!(find(&session, "two").await, Ok(()), "derived from its own");
        assert_eq!(find(&here.delegate, "two").await, Ok(()));
        assert_eq!(find(&here.delegate, "one").await, Err("session-not-found".into()));
        drop(own);
    });
}

#[test]
fn a_delegation_handed_over_as_a_claim_is_kept_and_completed_by_who_exchanged_it() {
    let server = Server::start();
    local(async {
        let (_, session) = made(&root(&server).await);
        let done = delegate(&session, &mut Producer::new(), |mut draft| {
            draft.set_lease_ms(60_000);
            let mut narrowing = draft.init_narrowing();
            narrowing.set_claim(true);
            narrowing.set_actor("helper");
        })
        .await
        .unwrap();
        let vat = connect(&server).await;
        // What is derived from it is no delegate, whatever it was derived from.
        let named = |mut narrowing: narrowing::Builder<'_>| narrowing.set_actor("eve");
        let (eve, _) =
            crate::grants::attenuate(&done.delegate, &mut Producer::new(), named).await.unwrap();
        let error = complete(&eve, &mut Producer::new(), "").await.unwrap_err();
        assert_eq!(code(&error), "delegation-not-found");
        put(&eve, &mut Producer::new(), &["by-eve"]).await;
        let answer = done.session.messages_request().send().promise.await.unwrap();
        let message = answer.get().unwrap().get_messages().unwrap().get(0);
        let actors = message.get_author().unwrap().get_actors().unwrap();
        let actors: Vec<_> = actors.iter().map(|it| it.unwrap().to_string().unwrap()).collect();
        assert_eq!(actors, ["eve", "helper"]);
        let mut request = vat.claim_request();
        request.get().set_ref(done.sturdy_ref.as_str());
        request.get().set_seed(&[1; 32]);
        let answer = request.send().promise.await.unwrap();
        let exchanged = answer.get().unwrap().get_ref().unwrap().to_string().unwrap();
        let held: session::Client = redeem(&vat, &exchanged);
        held.heartbeat_request().send().promise.await.unwrap();
        put(&held, &mut Producer::new(), &["m"]).await;
        let answer = held.messages_request().send().promise.await.unwrap();
        let message = answer.get().unwrap().get_messages().unwrap().get(1);
        let actors = message.get_author().unwrap().get_actors().unwrap();
        assert_eq!(actors.len(), 1, "the same actor once");
        complete(&held, &mut Producer::new(), "done").await.unwrap();
        assert_eq!(listed(&session).await, ["helper Completed done"]);
        assert_eq!(dead(&held).await, "delegation-ended");
    });
}

/// It needs no right, so it must not be a way to leave something behind for who has none.
#[test]
fn who_is_no_delegate_leaves_no_trace_by_completing() {
    let server = Server::start();
    local(async {
        let (_, session) = made(&root(&server).await);
        let (reader, _) =
            crate::grants::attenuate(&session, &mut Producer::new(), only(&[Right::Read]))
                .await
                .unwrap();
        let store = rusqlite::Connection::open(server.data.join("bowline.db")).unwrap();
        let producers = || -> i64 {
            store.query_row("SELECT count(*) FROM producers", [], |row| row.get(0)).unwrap()
        };
        let before = producers();
        for _ in 0..5 {
            let error = complete(&reader, &mut Producer::new(), "x").await.unwrap_err();
            assert_eq!(code(&error), "delegation-not-found");
            let long = "x".repeat(RESULT_BYTES_MAX + 1);
            let error = complete(&reader, &mut Producer::new(), &long).await.unwrap_err();
            assert_eq!(code(&error), "op-too-large");
        }
        assert_eq!(producers(), before);
    });
}

const AGENT_SERVER: &str = "BOWLINE_TEST_AGENT_SERVER";
const AGENT_REF: &str = "BOWLINE_TEST_AGENT_REF";

/// A sub-agent: a process that redeems its ref and does what it is told on its input, a line each. Alone it
/// has nothing to do.
#[test]
#[ignore = "a process of its own, for the test below"]
fn the_sub_agent_does_what_it_is_told() {
    let told = [AGENT_SERVER, AGENT_REF].map(|name| std::env::var(name).ok());
    let [Some(server), Some(sturdy_ref)] = told else { return };
    let say = |line: String| println!("\n@{line}");
    local(async {
        let stream =
            tokio::net::TcpStream::connect(server.parse::<SocketAddr>().unwrap()).await.unwrap();
        let (reader, writer) = stream.into_split();
        let session: session::Client = redeem(&client(reader, writer), &sturdy_ref);
        // The same producer in every life of the agent: it is kept with the ref.
        let mut id = [7; 16];
        id[..8].copy_from_slice(&sum_of(&sturdy_ref));
        let mut request = session.register_request();
        let mut registration = request.get().init_registration();
        registration.set_producer(&id);
        let mut instance = [0; 16];
        instance[..4].copy_from_slice(&std::process::id().to_le_bytes());
        registration.set_instance(&instance);
        let answer = request.send().promise.await.unwrap();
        let at = answer.get().unwrap().get_registered().unwrap();
        let next = at.get_next_expected_seq();
        let mut producer = Producer { id, epoch: at.get_epoch(), next, acked_through: next - 1 };
        say(format!("ready {next}"));
        for line in std::io::stdin().lines() {
            match line.unwrap().as_str() {
                "append" => {
                    let sent = producer.batch(&session, &["work"]).send().promise.await;
                    say(sent.map_or_else(|error| code(&error).to_owned(), |_| "done".into()));
                }
                "read" => {
                    let read = session.messages_request().send().promise.await;
                    say(read.map_or_else(|error| code(&error).to_owned(), |_| "read".into()));
                }
                "stream" => {
                    let mut request = session.writer_request();
                    let mut draft = request.get().init_producer();
                    draft.set_producer(&producer.id);
                    draft.set_producer_epoch(producer.epoch);
                    draft.set_first_seq(producer.next);
                    draft.set_acked_through(producer.acked_through);
                    let writer = request.send().pipeline.get_writer();
                    let mut flushed = 0u64;
                    let why = loop {
                        let mut write = writer.write_request();
                        let mut op = write.get().init_op();
                        op.set_op_id(&producer.op_id(producer.next));
                        text_message(op, "streamed");
                        producer.next += 1;
                        if let Err(error) = write.send().await {
                            break error;
                        }
                        if producer.next.is_multiple_of(64) {
                            let mut flush = writer.flush_request();
                            flush.get().set_acked_through(producer.acked_through);
                            match flush.send().promise.await {
                                Err(error) => break error,
                                Ok(answer) => {
                                    let ack = answer.get().unwrap().get_ack().unwrap();
                                    producer.acked_through = ack.get_next_expected_seq() - 1;
                                    flushed = ack.get_cursor();
                                    say(format!("flushed {flushed}"));
                                }
                            }
                        }
                    };
                    say(format!("{} after {flushed}", code(&why)));
                }
                other => say(format!("what is {other}?")),
            }
        }
    });
}

/// Some bytes that differ where the text does.
fn sum_of(text: &str) -> [u8; 8] {
    let mut sum = [0xcb_u8; 8];
    for (at, byte) in text.bytes().enumerate() {
        sum[at % 8] = sum[at % 8].wrapping_mul(31).wrapping_add(byte);
    }
    sum
}

/// The sub-agent as a process.
struct Agent {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Agent {
    fn start(server: &Server, sturdy_ref: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "delegation::the_sub_agent_does_what_it_is_told"])
            .args(["--ignored", "--nocapture"])
            .env(AGENT_SERVER, server.tcp.to_string())
            .env(AGENT_REF, sturdy_ref)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    fn says(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the agent is gone");
            if let Some(said) = line.trim().strip_prefix('@') {
                return said.to_owned();
            }
        }
    }

    fn asked(&mut self, line: &str) -> String {
        self.tell(line);
        self.says()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_sub_agent_in_a_process_of_its_own_works_dies_comes_back_and_is_revoked_in_mid_stream() {
    let server = Server::start();
    let (session, delegated) = local(async {
        let (_, session) = made(&root(&server).await);
        let done = delegate(&session, &mut Producer::new(), |mut draft| {
            draft.set_lease_ms(60_000);
            let mut narrowing = draft.reborrow().init_narrowing();
            narrowing.set_actor("sub-agent");
            only(&[Right::Append])(narrowing);
            draft.get_where().set_here(());
        })
        .await
        .unwrap();
        let answer = session.info_request().send().promise.await.unwrap();
        let id = answer.get().unwrap().get_session().unwrap().get_id().unwrap().to_string();
        (id.unwrap(), (done.sturdy_ref, done.grant))
    });
    let (sturdy_ref, grant) = delegated;
    let mut agent = Agent::start(&server, &sturdy_ref);
    assert_eq!(agent.says(), "ready 1");
    assert_eq!(agent.asked("append"), "done");
    assert_eq!(agent.asked("read"), "not-permitted", "it was given appending alone");
    agent.child.kill().unwrap();
    agent.child.wait().unwrap();

    // It comes back with what it kept: its ref, and the name of its producer.
    let mut agent = Agent::start(&server, &sturdy_ref);
    assert_eq!(agent.says(), "ready 2", "and knows what was done");
    assert_eq!(agent.asked("append"), "done");
    agent.tell("stream");
    for _ in 0..3 {
        assert!(agent.says().starts_with("flushed"));
    }
    let (head, told) = local(async {
        let root = root(&server).await;
        let project = open_project(&root, &mut Producer::new(), "/tree").pipeline.get_project();
        let mut request = project.session_request();
        request.get().set_id(session.as_str());
        let session = request.send().pipeline.get_session();
        assert_eq!(revoke(&session, &mut Producer::new(), &grant).await.unwrap(), 1);
        let answer = session.info_request().send().promise.await.unwrap();
        let head = answer.get().unwrap().get_session().unwrap().get_head();
        (head, listed(&session).await)
    });
    assert_eq!(told, ["sub-agent Revoked "]);
    let last = loop {
        let said = agent.says();
        if !said.starts_with("flushed") {
            break said;
        }
    };
    let flushed: u64 = last.strip_prefix("revoked after ").expect(&last).parse().unwrap();
    assert!(flushed <= head, "nothing was acknowledged that came after the revocation");
    drop(agent);
    local(async {
        let (_, session) = found(&root(&server).await).await;
        let answer = session.info_request().send().promise.await.unwrap();
        assert_eq!(
            answer.get().unwrap().get_session().unwrap().get_head(),
            head,
            "nothing came after"
        );
        assert_eq!(refused(&server, &sturdy_ref).await, "revoked");
    });
}
