//! Handing on less, and taking it back: over the wire, between connections, while calls are under way.

use crate::feed::{Ears, feed, put};
use crate::support::*;
use bowline::limits::GRANT_DEPTH_MAX;
use bowline::wire::bowline_capnp::ObjectKind;
use bowline::wire::grant_capnp::{GrantState, Right, narrowing, object};
use bowline::wire::root_capnp::{project, root};
use bowline::wire::session_capnp::session;
use capnp::capability::FromClientHook;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Any object as what every object is.
pub fn as_object<T: FromClientHook>(client: &T) -> object::Client {
    FromClientHook::new(client.as_client_hook().add_ref())
}

/// Hands on some rights of an object, while the connection lasts; the object, and the name of its grant.
pub async fn attenuate<T: FromClientHook>(
    of: &T,
    producer: &mut Producer,
    fill: impl FnOnce(narrowing::Builder<'_>),
) -> capnp::Result<(T, Vec<u8>)> {
    let mut request = as_object(of).attenuate_request();
    producer.header(request.get().init_op());
    fill(request.get().init_narrowing());
    let answer = request.send().promise.await?;
    let answer = answer.get()?;
    let object = answer.get_object().get_as_capability()?;
    Ok((object, answer.get_grant()?.to_vec()))
}

/// A ref for an object, and the name of its grant.
pub async fn save<T: FromClientHook>(
    of: &T,
    producer: &mut Producer,
    fill: impl FnOnce(narrowing::Builder<'_>),
) -> capnp::Result<(String, Vec<u8>)> {
    let mut request = as_object(of).save_request();
    let seed = producer.next as u8;
    producer.header(request.get().init_op());
    request.get().set_seed(&[seed; 32]);
    fill(request.get().init_narrowing());
    let answer = request.send().promise.await?;
    let answer = answer.get()?;
    Ok((answer.get_ref()?.to_string()?, answer.get_grant()?.to_vec()))
}

pub async fn revoke<T: FromClientHook>(
    of: &T,
    producer: &mut Producer,
    grant: &[u8],
) -> capnp::Result<u64> {
    let mut request = as_object(of).revoke_request();
    producer.header(request.get().init_op());
    request.get().set_grant(grant);
    Ok(request.send().promise.await?.get()?.get_cut())
}

pub fn only(rights: &[Right]) -> impl FnOnce(narrowing::Builder<'_>) {
    move |narrowing| {
        let mut list = narrowing.init_rights(rights.len() as u32);
        for (at, right) in (0..).zip(rights) {
            list.set(at, *right);
        }
    }
}

pub fn all(_: narrowing::Builder<'_>) {}

/// A project and a session in it.
pub fn made(root: &root::Client) -> (project::Client, session::Client) {
    let project = open_project(root, &mut Producer::new(), "/tree").pipeline.get_project();
    let session = create_session(&project, &mut Producer::new(), "").pipeline.get_session();
    (project, session)
}

/// A session by the ids of its project and its own.
pub fn found(root: &root::Client, project: &str, session: &str) -> session::Client {
    let mut find = root.project_request();
    find.get().set_id(project);
    let mut find = find.send().pipeline.get_project().session_request();
    find.get().set_id(session);
    find.send().pipeline.get_session()
}

#[test]
fn what_is_handed_on_is_less_and_never_more() {
    let server = Server::start();
    local(async {
        let (_, session) = made(&root(&server).await);
        let mut producer = Producer::new();
        let few = [Right::Read, Right::Delegate];
        let (reader, _) = attenuate(&session, &mut producer, only(&few)).await.unwrap();
        reader.info_request().send().promise.await.unwrap();
        let error = failure(Producer::new().batch(&reader, &["x"]).send().promise).await;
        assert_eq!(code(&error), "not-permitted");

        let error = attenuate(&reader, &mut producer, only(&[Right::Read, Right::Append])).await;
        let error = error.err().unwrap();
        assert_eq!(code(&error), "not-permitted");
        assert!(error.extra.contains("\"append\""), "it says which right is missing: {error}");
        let (lesser, _) = attenuate(&reader, &mut producer, only(&[Right::Read])).await.unwrap();
        let error = attenuate(&lesser, &mut Producer::new(), all).await.err().unwrap();
        assert_eq!(code(&error), "not-permitted", "it may not be handed on any further");

        let answer = as_object(&lesser).describe_request().send().promise.await.unwrap();
        let description = answer.get().unwrap().get_description().unwrap();
        assert_eq!(description.get_kind().unwrap(), ObjectKind::Session);
        let rights: Vec<_> = description.get_rights().unwrap().iter().map(Result::unwrap).collect();
        assert!(rights == [Right::Read]);
        assert_eq!(description.get_depth(), 2);

        for (what, fill) in [
            ("label", (|mut n| n.set_label("a\nb")) as fn(narrowing::Builder<'_>)),
            ("actor", |mut n| n.set_actor("a b")),
        ] {
            let error = attenuate(&session, &mut Producer::new(), fill).await.err().unwrap();
            assert_eq!(code(&error), "narrowing-malformed", "{what}");
        }
        let (mut held, mut depth) = (session.clone(), 0);
        let error = loop {
            match attenuate(&held, &mut Producer::new(), all).await {
                Ok((lesser, _)) => (held, depth) = (lesser, depth + 1),
                Err(error) => break error,
            }
        };
        assert_eq!((code(&error), depth), ("too-deep", GRANT_DEPTH_MAX));

        let mut request = as_object(&session).save_request();
        Producer::new().header(request.get().init_op());
        request.get().set_seed(&[1; 31]);
        assert_eq!(code(&failure(request.send().promise).await), "narrowing-malformed");
    });
}

/// Whoever knows how an op was named, and repeats it under a lesser grant, gains nothing by it.
#[test]
fn a_repeat_under_a_lesser_grant_does_not_hand_out_what_was_made_for_a_greater_one() {
    let server = Server::start();
    local(async {
        let (_, session) = made(&root(&server).await);
        let few = [Right::Read, Right::Append, Right::Delegate];
        let (lesser, _) = attenuate(&session, &mut Producer::new(), only(&few)).await.unwrap();
        let mut owners = Producer::new();
        let stolen = owners.clone();
        let (all_rights, _) = attenuate(&session, &mut owners, all).await.unwrap();
        as_object(&all_rights).describe_request().send().promise.await.unwrap();
        let error = attenuate(&lesser, &mut stolen.clone(), all).await.err().unwrap();
        assert_eq!(code(&error), "op-reused");
        attenuate(&session, &mut stolen.clone(), all)
            .await
            .expect("its owner's repeat is answered");
        attenuate(&lesser, &mut Producer::new(), |mut narrowing| narrowing.set_expires_at_ms(5))
            .await
            .map(|_| ())
            .map_err(|error| assert_eq!(code(&error), "narrowing-malformed"))
            .unwrap_err();

        // And a feed names producers without giving their ids away, and grants only to who may hand on.
        let ears = Rc::new(Ears::default());
        let (reader, _) = attenuate(&session, &mut owners, only(&[Right::Read])).await.unwrap();
        let _feed = feed(&reader, &ears, |_| ()).await.unwrap();
        put(&session, &mut Producer::new(), &["m"]).await;
        ears.places(1).await;
        assert_eq!(ears.lines().iter().filter(|line| line.contains("granted")).count(), 0);
        let ears = Rc::new(Ears::default());
        let _feed = feed(&session, &ears, |_| ()).await.unwrap();
        ears.places(4).await;
        assert_eq!(ears.lines().iter().filter(|line| line.contains("granted")).count(), 3);
    });
}

#[test]
fn a_ref_survives_restarts_and_a_repeat_returns_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), &[], &[]);
    let mut producer = Producer::new();
    let (sturdy_ref, grant, again) = local(async {
        let (_, session) = made(&root(&server).await);
        put(&session, &mut Producer::new(), &["m"]).await;
        let again = producer.clone();
        let (sturdy_ref, grant) =
            save(&session, &mut producer, only(&[Right::Read])).await.unwrap();
        let repeat = save(&session, &mut again.clone(), only(&[Right::Read])).await.unwrap();
        assert_eq!(repeat, (sturdy_ref.clone(), grant.clone()));
        (sturdy_ref, grant, again)
    });
    server.kill_9();
    let server = Server::start_in(dir.path(), &[], &[]);
    local(async {
        let held: session::Client = redeem(&connect(&server).await, &sturdy_ref);
        let answer = held.messages_request().send().promise.await.unwrap();
        assert_eq!(answer.get().unwrap().get_messages().unwrap().len(), 1);
        let error = failure(Producer::new().batch(&held, &["x"]).send().promise).await;
        assert_eq!(code(&error), "not-permitted");

        // The same op once more, through another connection, after the crash: the same ref.
        let root = root(&server).await;
        let mut find = root.projects_request();
        find.get().init_page();
        let answer = find.send().promise.await.unwrap();
        let id = answer.get().unwrap().get_projects().unwrap().get(0).get_id().unwrap().to_string();
        let project_id = id.unwrap();
        let mut find = root.project_request();
        find.get().set_id(project_id.as_str());
        let sessions = find.send().pipeline.get_project().sessions_request();
        let answer = sessions.send().promise.await.unwrap();
        let id = answer.get().unwrap().get_sessions().unwrap().get(0).get_id().unwrap().to_string();
        let session = found(&root, &project_id, &id.unwrap());
        let repeat = save(&session, &mut again.clone(), only(&[Right::Read])).await.unwrap();
        let after_hash = |text: &str| text.split('/').next_back().unwrap().to_owned();
        assert_eq!((after_hash(&repeat.0), repeat.1), (after_hash(&sturdy_ref), grant));
    });
}

#[test]
fn revoking_cuts_the_subtree_and_nothing_else_on_every_connection() {
    let server = Server::start();
    local(async {
        let root = root(&server).await;
        let (project, session) = made(&root);
        let mut producer = Producer::new();
        // owner → a → b (a ref, redeemed elsewhere), owner → c
        let (a, a_grant) = attenuate(&session, &mut producer, all).await.unwrap();
        let (b_ref, b_grant) = save(&a, &mut producer, only(&[Right::Read])).await.unwrap();
        let (c, _) = attenuate(&session, &mut producer, all).await.unwrap();
        let elsewhere = connect_unix(&server).await;
        let b: session::Client = redeem(&elsewhere, &b_ref);
        b.info_request().send().promise.await.unwrap();
        let ears = Rc::new(Ears::default());
        let running = feed(&b, &ears, |_| ()).await.unwrap();
        ears.until("caught-up 3").await;
        // One whose sink does not return is cut, too, and hears nothing that happens after.
        let stalled = Rc::new(Ears::default());
        stalled.stalled.set(true);
        let _stalled = feed(&b, &stalled, |_| ()).await.unwrap();
        stalled.until("caught-up 3").await;

        // Who is not above it cannot take it back, and does not learn whether it exists.
        for grant in [b_grant.as_slice(), &[1; 16]] {
            let error = revoke(&c, &mut Producer::new(), grant).await.unwrap_err();
            assert_eq!(code(&error), "grant-not-found");
        }
        let mut repeat = producer.clone();
        assert_eq!(revoke(&session, &mut producer, &a_grant).await.unwrap(), 2);
        assert_eq!(
            revoke(&session, &mut repeat, &a_grant).await.unwrap(),
            2,
            "a repeat hears the same"
        );
        assert_eq!(
            revoke(&session, &mut producer, &a_grant).await.unwrap(),
            0,
            "nothing is left to cut"
        );

        let dead = async |session: &session::Client| {
            code(&failure(session.info_request().send().promise).await).to_owned()
        };
        assert_eq!((dead(&a).await, dead(&b).await), ("revoked".into(), "revoked".into()));
        let error = failure(Producer::new().batch(&a, &["x"]).send().promise).await;
        assert_eq!(code(&error), "revoked");
        ears.until("ended revoked").await;
        stalled.until("ended revoked").await;
        let error = failure(running.status_request().send().promise).await;
        assert_eq!(code(&error), "revoked");
        let mut again = elsewhere.redeem_request();
        again.get().set_ref(b_ref.as_str());
        assert_eq!(code(&failure(again.send().promise).await), "revoked");
        c.info_request().send().promise.await.expect("its neighbour stands");

        // What the owner sees, without any secret.
        let answer = as_object(&root).grants_request().send().promise.await.unwrap();
        let mut states = BTreeMap::new();
        for info in answer.get().unwrap().get_grants().unwrap() {
            assert_eq!(info.get_kind().unwrap(), ObjectKind::Session);
            let state = info.get_state().unwrap() == GrantState::Live;
            states.insert(info.get_number(), (info.get_depth(), info.get_saved(), state));
        }
        let states: Vec<_> = states.into_values().collect();
        assert_eq!(states, [(1, false, false), (2, true, false), (1, false, true)]);
        drop(project);
    });
}

#[test]
fn a_grant_ends_when_it_was_made_to_also_for_what_was_derived_from_it() {
    let server = Server::start();
    local(async {
        let (_, session) = made(&root(&server).await);
        let now_ms = || {
            let since = std::time::UNIX_EPOCH.elapsed().unwrap();
            since.as_millis() as u64
        };
        let mut producer = Producer::new();
        let ends_at_ms = now_ms() + 3_000;
        let (short, _) = attenuate(&session, &mut producer, |mut narrowing| {
            narrowing.set_expires_at_ms(ends_at_ms);
        })
        .await
        .unwrap();
        // It asks for longer, and does not get it.
        let (sturdy_ref, _) = save(&short, &mut Producer::new(), |mut narrowing| {
            narrowing.set_expires_at_ms(ends_at_ms + 1_000_000);
        })
        .await
        .unwrap();
        let vat = connect(&server).await;
        let derived: session::Client = redeem(&vat, &sturdy_ref);
        let ears = Rc::new(Ears::default());
        let _feed = feed(&derived, &ears, |_| ()).await.unwrap();
        derived.info_request().send().promise.await.unwrap();
        ears.until("ended expired").await;
        assert!(now_ms() >= ends_at_ms);
        for held in [&short, &derived] {
            let error = failure(held.info_request().send().promise).await;
            assert_eq!(code(&error), "expired");
            let error = failure(Producer::new().batch(held, &["x"]).send().promise).await;
            assert_eq!(code(&error), "expired");
        }
        let mut again = vat.redeem_request();
        again.get().set_ref(sturdy_ref.as_str());
        assert_eq!(code(&failure(again.send().promise).await), "expired");
    });
}

#[test]
fn an_objects_refs_grow_stale_together_and_an_actor_loses_everything() {
    let server = Server::start();
    local(async {
        let root = root(&server).await;
        let (project, session) = made(&root);
        let mut producer = Producer::new();
        let named = |actor: &'static str| {
            move |mut narrowing: narrowing::Builder<'_>| narrowing.set_actor(actor)
        };
        let (one, _) = attenuate(&session, &mut producer, named("ada")).await.unwrap();
        let (below, _) = attenuate(&one, &mut producer, named("eve")).await.unwrap();
        let mut of_project = Producer::new();
        let (wide, _) = attenuate(&project, &mut of_project, named("ada")).await.unwrap();
        let alive = async |client: &object::Client| {
            client
                .describe_request()
                .send()
                .promise
                .await
                .map(|_| ())
                .map_err(|e| code(&e).to_owned())
        };

        let mut request = as_object(&session).bump_epoch_request();
        producer.header(request.get().init_op());
        let answer = request.send().promise.await.unwrap();
        let answer = answer.get().unwrap();
        assert_eq!((answer.get_epoch(), answer.get_cut()), (2, 2), "both grants of the session");
        assert_eq!(alive(&as_object(&one)).await, Err("epoch-stale".into()));
        assert_eq!(alive(&as_object(&below)).await, Err("epoch-stale".into()));
        assert_eq!(
            alive(&as_object(&wide)).await,
            Ok(()),
            "the project's own grant is another object's"
        );
        assert_eq!(alive(&as_object(&session)).await, Ok(()), "and the owner reaches it as before");
        let mut stale = producer.batch(&session, &["x"]);
        stale.get().get_batch().unwrap().set_capability_epoch(1);
        assert_eq!(code(&failure(stale.send().promise).await), "epoch-stale");
        producer.next -= 1;

        let (again, _) = attenuate(&session, &mut producer, named("ada")).await.unwrap();
        let (other, _) = attenuate(&session, &mut producer, named("bob")).await.unwrap();
        let cut = async |actor: &str, producer: &mut Producer| {
            let mut request = root.revoke_actor_request();
            producer.header(request.get().init_op());
            request.get().set_actor(actor);
            request.send().promise.await.map(|answer| answer.get().unwrap().get_cut())
        };
        let mut of_root = Producer::new();
        assert_eq!(cut("ada", &mut of_root).await.unwrap(), 2, "in the session and in the project");
        assert_eq!(cut("ada", &mut of_root).await.unwrap(), 0);
        assert_eq!(code(&cut("", &mut of_root).await.unwrap_err()), "narrowing-malformed");
        assert_eq!(alive(&as_object(&again)).await, Err("revoked".into()));
        assert_eq!(alive(&as_object(&wide)).await, Err("revoked".into()));
        assert_eq!(alive(&as_object(&other)).await, Ok(()));
    });
}

#[test]
fn the_root_is_rotated_the_old_one_dies_at_once_and_what_was_derived_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), &[], &[]);
    let old = server.root_ref();
    let mut producer = Producer::new();
    let (derived_ref, new) = local(async {
        let root = root(&server).await;
        let (_, session) = made(&root);
        let (derived_ref, _) = save(&session, &mut Producer::new(), all).await.unwrap();
        let (lesser, _) = attenuate(&root, &mut Producer::new(), all).await.unwrap();
        let rotate = async |root: &root::Client, producer: &mut Producer| {
            let mut request = root.rotate_request();
            producer.header(request.get().init_op());
            request.get().set_seed(&[5; 32]);
            request
                .send()
                .promise
                .await
                .map(|answer| answer.get().unwrap().get_ref().unwrap().to_string().unwrap())
        };
        let error = rotate(&lesser, &mut Producer::new()).await.unwrap_err();
        assert_eq!(code(&error), "not-permitted", "a derived root is not the operator's");
        let again = producer.clone();
        let new = rotate(&root, &mut producer).await.unwrap();
        assert_eq!(server.root_ref().trim(), new, "it is kept where the old one was");
        let error = failure(root.projects_request().send().promise).await;
        assert_eq!(code(&error), "revoked");
        let vat = connect(&server).await;
        let mut request = vat.redeem_request();
        request.get().set_ref(old.as_str());
        assert_eq!(code(&failure(request.send().promise).await), "revoked");
        let fresh: root::Client = redeem(&vat, &new);
        assert_eq!(
            rotate(&fresh, &mut again.clone()).await.unwrap(),
            new,
            "a repeat, through the new one"
        );
        fresh.projects_request().send().promise.await.expect("it was not rotated twice");
        lesser.projects_request().send().promise.await.expect("what was derived goes on");
        (derived_ref, new)
    });
    server.kill_9();
    // The file is lost: the next start makes another root, and again only the lost one is dead.
    std::fs::remove_file(dir.path().join("root.ref")).unwrap();
    let server = Server::start_in(dir.path(), &[], &[]);
    local(async {
        let vat = connect(&server).await;
        let mut request = vat.redeem_request();
        request.get().set_ref(new.as_str());
        assert_eq!(code(&failure(request.send().promise).await), "revoked");
        let held: session::Client = redeem(&vat, &derived_ref);
        held.info_request().send().promise.await.expect("what was derived goes on");
        let answer = as_object(&root(&server).await).grants_request().send().promise.await.unwrap();
        assert_eq!(
            answer.get().unwrap().get_grants().unwrap().len(),
            2,
            "and the new owner sees it"
        );
    });
}

#[test]
fn a_ref_is_redeemed_as_often_as_it_may_be_also_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), &[], &[]);
    let (twice, below) = local(async {
        let (_, session) = made(&root(&server).await);
        let few = |uses| move |mut narrowing: narrowing::Builder<'_>| narrowing.set_uses_max(uses);
        let mut producer = Producer::new();
        let (twice, _) = save(&session, &mut producer, few(2)).await.unwrap();
        let held: session::Client = redeem(&connect(&server).await, &twice);
        held.info_request().send().promise.await.unwrap();
        // Who may be redeemed twice cannot hand on what may be redeemed more often.
        let (below, _) = save(&held, &mut Producer::new(), few(50)).await.unwrap();
        let answer = as_object(&session).grants_request().send().promise.await.unwrap();
        let infos = answer.get().unwrap().get_grants().unwrap();
        let uses: Vec<_> =
            infos.iter().map(|info| (info.get_uses_max(), info.get_uses())).collect();
        assert_eq!(uses, [(2, 1), (2, 0)]);
        assert!(infos.get(0).get_last_used_at_ms() > 0);
        (twice, below)
    });
    server.kill_9();
    let server = Server::start_in(dir.path(), &[], &[]);
    local(async {
        let vat = connect(&server).await;
        let held: session::Client = redeem(&vat, &twice);
        held.info_request().send().promise.await.unwrap();
        let mut request = vat.redeem_request();
        request.get().set_ref(twice.as_str());
        assert_eq!(code(&failure(request.send().promise).await), "used-up");
        held.info_request().send().promise.await.expect("what was redeemed goes on");
        redeem::<session::Client>(&vat, &below).info_request().send().promise.await.unwrap();
    });
}

#[test]
fn a_claim_is_exchanged_once_and_is_worth_nothing_after() {
    let server = Server::start();
    local(async {
        let (_, session) = made(&root(&server).await);
        let mut producer = Producer::new();
        let (claim, grant) =
            save(&session, &mut producer, |mut narrowing| narrowing.set_claim(true)).await.unwrap();
        let vat = connect(&server).await;
        let refused = async |sturdy_ref: &str| {
            let mut request = vat.redeem_request();
            request.get().set_ref(sturdy_ref);
            code(&failure(request.send().promise).await).to_owned()
        };
        assert_eq!(refused(&claim).await, "ref-refused", "it is no ref yet");
        let exchange = async |sturdy_ref: &str, seed: u8| {
            let mut request = vat.claim_request();
            request.get().set_ref(sturdy_ref);
            request.get().set_seed(&[seed; 32]);
            request
                .send()
                .promise
                .await
                .map(|answer| answer.get().unwrap().get_ref().unwrap().to_string().unwrap())
        };
        let durable = exchange(&claim, 1).await.unwrap();
        assert_eq!(exchange(&claim, 1).await.unwrap(), durable, "a repeat hears the same");
        let late = exchange(&claim, 2).await.unwrap_err();
        assert_eq!(code(&late), "used-up", "somebody else's seed");
        let other = exchange(&durable, 1).await.unwrap_err();
        assert_eq!(code(&other), "ref-refused", "a ref is no claim");
        let held: session::Client = redeem(&vat, &durable);
        held.info_request().send().promise.await.unwrap();
        let mut request = vat.claim_request();
        request.get().set_ref(claim.as_str());
        assert_eq!(code(&failure(request.send().promise).await), "narrowing-malformed", "no seed");

        // Taking the claim back takes back what it was exchanged for.
        assert_eq!(revoke(&session, &mut producer, &grant).await.unwrap(), 2);
        assert_eq!(code(&failure(held.info_request().send().promise).await), "revoked");
        assert_eq!(code(&exchange(&claim, 1).await.unwrap_err()), "revoked");
    });
}

#[test]
fn verify_finds_a_grant_with_more_than_the_one_above_it() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), &[], &[]);
    local(async {
        let (_, session) = made(&root(&server).await);
        let few = [Right::Read, Right::Delegate];
        let (a, grant) = attenuate(&session, &mut Producer::new(), only(&few)).await.unwrap();
        save(&a, &mut Producer::new(), only(&[Right::Read])).await.unwrap();
        let (c, _) = attenuate(&session, &mut Producer::new(), all).await.unwrap();
        save(&c, &mut Producer::new(), |mut n| n.set_expires_at_ms(u64::MAX / 4)).await.unwrap();
        assert_eq!(revoke(&session, &mut Producer::new(), &grant).await.unwrap(), 2);
    });
    server.kill_9();
    let verify = || {
        let output =
            command(dir.path()).args(["verify", "--json", "--data"]).arg(dir.path()).output();
        let report: serde_json::Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
        let checks = report["checks"].as_array().unwrap().clone();
        let broken: Vec<_> =
            checks.into_iter().filter(|check| check["problemCount"] != 0).collect();
        broken
            .into_iter()
            .map(|check| check["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(verify(), Vec::<String>::new());
    let damages = [
        ("rights = 255", "rights = 1", "depth = 2 AND rights = 1"),
        ("revoked_at_ms = NULL", "revoked_at_ms = 5", "depth = 2 AND rights = 1"),
        ("depth = 7", "depth = 2", "depth = 2 AND rights = 1"),
        ("expires_at_ms = 5", "expires_at_ms = NULL", "depth = 1 AND rights = 255"),
    ];
    for (damage, mend, which) in damages {
        let store = rusqlite::Connection::open(dir.path().join("bowline.db")).unwrap();
        let id: i64 = store
            .query_row(&format!("SELECT id FROM grants WHERE {which}"), [], |row| row.get(0))
            .unwrap();
        let set =
            |what| store.execute(&format!("UPDATE grants SET {what} WHERE id = ?"), [id]).unwrap();
        set(damage);
        assert_eq!(verify(), ["grants"], "{damage}");
        set(mend);
        assert_eq!(verify(), Vec::<String>::new(), "{mend}");
    }
}

#[test]
fn one_grant_has_only_so_many_others_below_it() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), &[], &[]);
    let (_, grant) = local(async {
        let (_, session) = made(&root(&server).await);
        save(&session, &mut Producer::new(), all).await.unwrap()
    });
    server.kill_9();
    let store = rusqlite::Connection::open(dir.path().join("bowline.db")).unwrap();
    store
        .execute(
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?)
             INSERT INTO grants (public_id, verifier, object_kind, object_log, rights, label, created_at_ms, parent)
             SELECT randomblob(16), zeroblob(32), 0, 1, 1, '', 1, (SELECT id FROM grants WHERE parent IS NULL) FROM n",
            [bowline::limits::GRANTS_PER_GRANT_MAX as i64 - 1],
        )
        .unwrap();
    drop(store);
    let server = Server::start_in(dir.path(), &[], &[]);
    local(async {
        let root = root(&server).await;
        let error = save(&root, &mut Producer::new(), all).await.unwrap_err();
        assert_eq!(code(&error), "too-many-grants");
        assert_eq!(revoke(&root, &mut Producer::new(), &grant).await.unwrap(), 1);
        save(&root, &mut Producer::new(), all).await.expect("there is room again");
    });
}
