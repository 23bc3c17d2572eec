//! What an object may be used for within its rights: tools, own messages, seals, time; and who did what on
//! whose behalf.

use crate::feed::{Ears, feed, put};
use crate::grants::{all, as_object, attenuate, made, only, revoke, save};
use crate::support::*;
use bowline::wire::bowline_capnp::{outcome, vat};
use bowline::wire::grant_capnp::{GrantState, Right, narrowing};
use bowline::wire::message_capnp::Role;
use bowline::wire::session_capnp::{session, session_op};
use std::rc::Rc;

/// What became of one op: its code, or `applied`.
pub async fn outcome_of(
    session: &session::Client,
    producer: &mut Producer,
    fill: impl FnOnce(session_op::Builder<'_>),
) -> String {
    let mut request = producer.batch(session, &["x"]);
    fill(request.get().get_ops().unwrap().get(0));
    let answer = request.send().promise.await.unwrap();
    let ack = answer.get().unwrap().get_ack().unwrap();
    told(ack.get_outcomes().unwrap().get(0))
}

pub fn told(outcome: outcome::Reader<'_>) -> String {
    match outcome.which().unwrap() {
        outcome::Applied(()) => "applied".into(),
        outcome::Rejected(refusal) => refusal.unwrap().get_code().unwrap().to_string().unwrap(),
        _ => "duplicate".into(),
    }
}

#[test]
fn only_tools_that_were_allowed_can_be_named_by_append_and_by_stream() {
    let server = Server::start();
    local(async {
        let (_, session) = made(&root(&server).await);
        let (held, _) = attenuate(&session, &mut Producer::new(), |narrowing| {
            let mut tools = narrowing.init_tools(2);
            tools.set(0, "grep");
            tools.set(1, "read");
        })
        .await
        .unwrap();
        let table = [
            (Role::Assistant, r#"{"type":"tool","tool":"grep"}"#, "applied"),
            (Role::Assistant, r#"{"type":"tool","tool":"bash"}"#, "not-permitted"),
            (Role::Assistant, r#"{"type":"text"}"#, "applied"),
            (Role::Tool, r#"{"type":"tool","tool":"read"}"#, "applied"),
            (Role::Tool, r#"{"type":"text"}"#, "not-permitted"),
            // JSON to some readers, and not to the server.
            (Role::Assistant, r#"{"type":"tool","tool":"bash","\ud800":0}"#, "not-permitted"),
        ];
        let mut producer = Producer::new();
        for (role, json, want) in table {
            let got = outcome_of(&held, &mut producer, |op| {
                let mut message = op.init_put_message();
                message.set_role(role);
                message.init_parts(1).get(0).set_json(json);
            })
            .await;
            assert_eq!(got, want, "{role:?} {json}");
        }
        // The same through a stream.
        let streaming = Producer::new();
        let mut request = held.writer_request();
        let mut draft = request.get().init_producer();
        draft.set_producer(&streaming.id);
        draft.set_producer_epoch(1);
        draft.set_first_seq(1);
        let writer = request.send().pipeline.get_writer();
        let mut write = writer.write_request();
        let mut op = write.get().init_op();
        op.set_op_id(&streaming.op_id(1));
        op.init_put_message().init_parts(1).get(0).set_json(r#"{"type":"tool","tool":"bash"}"#);
        write.send().await.unwrap();
        let answer = writer.flush_request().send().promise.await.unwrap();
        let ack = answer.get().unwrap().get_ack().unwrap();
        assert_eq!(told(ack.get_outcomes().unwrap().get(0)), "not-permitted");

        // What is handed on further is less again, or refused with the tool that is missing.
        let mut producer = Producer::new();
        let error = attenuate(&held, &mut producer, |narrowing| {
            narrowing.init_tools(1).set(0, "bash");
        })
        .await
        .err()
        .unwrap();
        assert_eq!(code(&error), "not-permitted");
        assert!(error.extra.contains("\"bash\""), "{error}");
        let (none, _) =
            attenuate(&held, &mut producer, |mut narrowing| narrowing.set_no_tools(true))
                .await
                .unwrap();
        let got = outcome_of(&none, &mut Producer::new(), |op| {
            let mut part = op.init_put_message().init_parts(1).get(0);
            part.set_json(r#"{"type":"tool","tool":"grep"}"#);
        })
        .await;
        assert_eq!(got, "not-permitted");
        let error = attenuate(&held, &mut producer, |mut narrowing| {
            narrowing.set_no_tools(true);
            narrowing.init_tools(1).set(0, "grep");
        })
        .await
        .err()
        .unwrap();
        assert_eq!(code(&error), "narrowing-malformed");
    });
}

#[test]
fn paths_are_only_narrowed_and_everything_is_described() {
    let server = Server::start();
    local(async {
        let (_, session) = made(&root(&server).await);
        let mut producer = Producer::new();
        let (held, _) = attenuate(&session, &mut producer, |mut narrowing| {
            narrowing.set_only_own_messages(true);
            narrowing.reborrow().init_tools(1).set(0, "grep");
            narrowing.init_paths(1).set(0, b"src/");
        })
        .await
        .unwrap();
        let within = |path: &'static [u8]| {
            move |narrowing: narrowing::Builder<'_>| narrowing.init_paths(1).set(0, path)
        };
        let error = attenuate(&held, &mut producer, within(b"docs")).await.err().unwrap();
        assert_eq!(code(&error), "not-permitted");
        assert!(error.extra.contains("docs"), "{error}");
        for bad in [b"/src".as_slice(), b"src/../x", b""] {
            let error = attenuate(&held, &mut producer, within(bad)).await.err().unwrap();
            assert_eq!(code(&error), "narrowing-malformed", "{bad:?}");
        }
        let (lesser, _) = attenuate(&held, &mut producer, within(b"src/a")).await.unwrap();
        let answer = as_object(&lesser).describe_request().send().promise.await.unwrap();
        let caveats = answer.get().unwrap().get_description().unwrap().get_caveats().unwrap();
        assert!(caveats.get_paths_limited() && caveats.get_tools_limited());
        assert_eq!(caveats.get_paths().unwrap().get(0).unwrap(), b"src/a");
        assert_eq!(caveats.get_tools().unwrap().get(0).unwrap().to_str().unwrap(), "grep");
        assert!(caveats.get_only_own_messages(), "what was narrowed above stays narrow below");
    });
}

#[test]
fn who_may_touch_own_messages_only_sees_and_removes_no_others() {
    let server = Server::start();
    local(async {
        let (_, session) = made(&root(&server).await);
        let mut owners = Producer::new();
        put(&session, &mut owners, &["of-owner"]).await;
        let own = |mut narrowing: narrowing::Builder<'_>| narrowing.set_only_own_messages(true);
        let (held, _) = attenuate(&session, &mut owners, own).await.unwrap();
        let ears = Rc::new(Ears::default());
        let _feed = feed(&held, &ears, |_| ()).await.unwrap();
        let mut producer = Producer::new();
        put(&held, &mut producer, &["mine", "mine-too"]).await;
        // What is written under a grant derived from it is its own, too; the other way round it is not.
        let (below, _) = attenuate(&held, &mut producer, all).await.unwrap();
        put(&below, &mut producer, &["of-below"]).await;
        put(&session, &mut owners, &["later"]).await;

        let ids = async |session: &session::Client| {
            let answer = session.messages_request().send().promise.await.unwrap();
            let messages = answer.get().unwrap().get_messages().unwrap();
            let ids = messages.iter().map(|m| m.get_id().unwrap().to_string().unwrap());
            ids.collect::<Vec<_>>()
        };
        assert_eq!(ids(&held).await, ["mine", "mine-too", "of-below"]);
        assert_eq!(ids(&below).await, ["of-below"]);
        assert_eq!(ids(&session).await.len(), 5);

        let remove =
            |id: &'static str| move |mut op: session_op::Builder<'_>| op.set_remove_message(id);
        assert_eq!(outcome_of(&held, &mut producer, remove("of-owner")).await, "not-permitted");
        assert_eq!(outcome_of(&below, &mut producer, remove("mine")).await, "not-permitted");
        assert_eq!(outcome_of(&held, &mut producer, remove("mine")).await, "applied");
        let title = |mut op: session_op::Builder<'_>| op.set_set_title("t");
        assert_eq!(outcome_of(&held, &mut producer, title).await, "not-permitted");
        let history = |op: session_op::Builder<'_>| {
            op.init_set_history();
        };
        assert_eq!(outcome_of(&held, &mut producer, history).await, "not-permitted");
        let mut request = as_object(&held).bump_epoch_request();
        producer.header(request.get().init_op());
        assert_eq!(code(&failure(request.send().promise).await), "not-permitted");
        // The owner takes one of its messages away: it is told of that, and of nobody else's.
        assert_eq!(outcome_of(&session, &mut owners, remove("later")).await, "applied");
        assert_eq!(outcome_of(&session, &mut owners, remove("mine-too")).await, "applied");
        assert_eq!(outcome_of(&session, &mut owners, title).await, "applied");
        ears.heard(|lines| lines.iter().any(|line| line.ends_with("title t"))).await;
        let heard: Vec<_> = ears
            .lines()
            .iter()
            .filter(|line| !line.starts_with("caught-up"))
            .map(|line| line.split_once(' ').unwrap().1.to_owned())
            .collect();
        let want = [
            "put mine",
            "put mine-too",
            "granted",
            "put of-below",
            "rm mine",
            "rm mine-too",
            "title t",
        ];
        assert_eq!(heard, want);
    });
}

/// Redeems a ref, with one of one's own or without; the code if it is refused.
async fn show(vat: &vat::Client, sturdy_ref: &str, own: &str) -> Result<(), String> {
    let mut request = vat.redeem_request();
    request.get().set_ref(sturdy_ref);
    request.get().set_as(own);
    request.send().promise.await.map(|_| ()).map_err(|error| code(&error).to_owned())
}

#[test]
fn a_sealed_ref_is_worth_nothing_without_the_actors_own() {
    let server = Server::start();
    local(async {
        let root = root(&server).await;
        let (project, session) = made(&root);
        let named = |actor: &'static str| {
            move |mut narrowing: narrowing::Builder<'_>| narrowing.set_actor(actor)
        };
        let sealed = |mut narrowing: narrowing::Builder<'_>| narrowing.set_sealed_to("ada");
        // root → maker (may hand on) → the sealed ref; root → thief (may hand on, too).
        let mut of_session = Producer::new();
        let (maker, _) = attenuate(&session, &mut of_session, named("maker")).await.unwrap();
        let (thief, _) = attenuate(&session, &mut of_session, named("thief")).await.unwrap();
        let (sealed_ref, _) = save(&maker, &mut of_session, sealed).await.unwrap();

        let (by_maker, by_maker_grant) = save(&maker, &mut of_session, named("ada")).await.unwrap();
        let (by_owner, _) = save(&project, &mut Producer::new(), named("ada")).await.unwrap();
        let (by_thief, _) = save(&thief, &mut of_session, named("ada")).await.unwrap();
        let (of_eve, _) = save(&maker, &mut of_session, named("eve")).await.unwrap();
        let vat = connect(&server).await;
        let no = Err("sealed".to_owned());
        assert_eq!(show(&vat, &sealed_ref, "").await, no, "a copy alone");
        assert_eq!(show(&vat, &sealed_ref, &sealed_ref).await, no, "it does not open itself");
        assert_eq!(show(&vat, &sealed_ref, &of_eve).await, no, "somebody else's");
        assert_eq!(show(&vat, &sealed_ref, &by_thief).await, no, "a name one gave oneself");
        assert_eq!(show(&vat, &sealed_ref, &by_maker).await, Ok(()));
        assert_eq!(show(&vat, &sealed_ref, &by_owner).await, Ok(()), "named by who stands above");
        assert_eq!(show(&vat, &sealed_ref, "nonsense").await, Err("ref-malformed".into()));
        let damaged = by_maker.replace("bwl1_", "bwl1_0");
        assert_eq!(show(&vat, &sealed_ref, &damaged).await, Err("ref-malformed".into()));
        revoke(&session, &mut of_session, &by_maker_grant).await.unwrap();
        assert_eq!(show(&vat, &sealed_ref, &by_maker).await, no, "hers is dead");

        // A claim that is sealed is exchanged for a ref that is.
        let (claim, _) = save(&maker, &mut of_session, |mut narrowing| {
            narrowing.set_sealed_to("ada");
            narrowing.set_claim(true);
        })
        .await
        .unwrap();
        let mut request = vat.claim_request();
        request.get().set_ref(claim.as_str());
        request.get().set_seed(&[8; 32]);
        let answer = request.send().promise.await.unwrap();
        let exchanged = answer.get().unwrap().get_ref().unwrap().to_string().unwrap();
        assert_eq!(show(&vat, &exchanged, "").await, no);
        assert_eq!(show(&vat, &exchanged, &by_owner).await, Ok(()));
        // And a ref of one's own that came as a claim is one's own.
        let (claim, _) = save(&maker, &mut of_session, |mut narrowing| {
            narrowing.set_actor("ada");
            narrowing.set_claim(true);
        })
        .await
        .unwrap();
        let mut request = vat.claim_request();
        request.get().set_ref(claim.as_str());
        request.get().set_seed(&[9; 32]);
        let answer = request.send().promise.await.unwrap();
        let own = answer.get().unwrap().get_ref().unwrap().to_string().unwrap();
        assert_eq!(show(&vat, &sealed_ref, &own).await, Ok(()));
    });
}

#[test]
fn a_ref_that_nobody_uses_in_time_is_dead_and_one_that_was_used_lives() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), &[], &[]);
    let soon_ms = now_ms() + 6_000;
    let (used, unused, claimed) = local(async {
        let (_, session) = made(&root(&server).await);
        let mut producer = Producer::new();
        let soon = |mut narrowing: narrowing::Builder<'_>| {
            narrowing.set_expires_if_unused_at_ms(soon_ms);
        };
        let (used, _) = save(&session, &mut producer, soon).await.unwrap();
        let (unused, _) = save(&session, &mut producer, soon).await.unwrap();
        let (claim, _) = save(&session, &mut producer, |mut narrowing| {
            narrowing.set_expires_if_unused_at_ms(soon_ms);
            narrowing.set_claim(true);
        })
        .await
        .unwrap();
        let vat = connect(&server).await;
        show(&vat, &used, "").await.unwrap();
        let mut request = vat.claim_request();
        request.get().set_ref(claim.as_str());
        request.get().set_seed(&[8; 32]);
        let answer = request.send().promise.await.unwrap();
        let claimed = answer.get().unwrap().get_ref().unwrap().to_string().unwrap();
        let error = save(&session, &mut producer, |mut narrowing| {
            narrowing.set_expires_if_unused_at_ms(1);
        })
        .await
        .unwrap_err();
        assert_eq!(code(&error), "narrowing-malformed", "that time has passed");
        (used, unused, claimed)
    });
    // That it was used is on disk.
    server.kill_9();
    let server = Server::start_in(dir.path(), &[], &[]);
    local(async {
        until_ms(soon_ms).await;
        let vat = connect(&server).await;
        assert_eq!(show(&vat, &unused, "").await, Err("expired".into()));
        assert_eq!(show(&vat, &used, "").await, Ok(()));
        assert_eq!(show(&vat, &claimed, "").await, Ok(()));
        let answer = as_object(&root(&server).await).grants_request().send().promise.await.unwrap();
        let infos = answer.get().unwrap().get_grants().unwrap();
        let states: Vec<_> = infos.iter().map(|info| info.get_state().unwrap()).collect();
        let want = [GrantState::Live, GrantState::Expired, GrantState::UsedUp, GrantState::Live];
        assert!(states == want, "the claim is used up");
    });
}

#[test]
fn every_op_says_who_did_it_and_on_whose_behalf() {
    let server = Server::start();
    local(async {
        let (_, session) = made(&root(&server).await);
        let mut producer = Producer::new();
        let named = |actor: &'static str| {
            move |mut narrowing: narrowing::Builder<'_>| narrowing.set_actor(actor)
        };
        let (lead, _) = attenuate(&session, &mut producer, named("lead")).await.unwrap();
        let (unnamed, _) = attenuate(&lead, &mut producer, all).await.unwrap();
        let (helper, grant) = attenuate(&unnamed, &mut producer, named("helper")).await.unwrap();
        put(&session, &mut producer, &["m0"]).await;
        put(&helper, &mut producer, &["m1"]).await;
        // What a grant was is told also when it is gone.
        assert_eq!(revoke(&session, &mut producer, &grant).await.unwrap(), 1);

        let (reader, _) = attenuate(&session, &mut producer, only(&[Right::Read])).await.unwrap();
        let ears = Rc::new(Ears::default());
        let _feed = feed(&reader, &ears, |_| ()).await.unwrap();
        ears.places(2).await;
        assert_eq!(*ears.authors.borrow(), ["", "helper,lead"], "events say so, too");
        let answer = as_object(&session).grants_request().send().promise.await.unwrap();
        let tree: Vec<_> = answer
            .get()
            .unwrap()
            .get_grants()
            .unwrap()
            .iter()
            .map(|info| {
                let actor = info.get_actor().unwrap().to_string().unwrap();
                (actor, info.get_depth(), info.get_ended_at_ms() > 0)
            })
            .collect();
        let named = |actor: &str, depth, ended| (actor.to_owned(), depth, ended);
        let want = [
            named("lead", 1, false),
            named("", 2, false),
            named("helper", 3, true),
            named("", 1, false),
        ];
        assert_eq!(tree, want);
        let answer = reader.messages_request().send().promise.await.unwrap();
        let messages = answer.get().unwrap().get_messages().unwrap();
        let authors: Vec<_> = messages
            .iter()
            .map(|message| {
                let author = message.get_author().unwrap();
                let actors = author.get_actors().unwrap();
                let actors = actors.iter().map(|actor| actor.unwrap().to_string().unwrap());
                (author.get_grant().unwrap().to_vec(), actors.collect::<Vec<_>>())
            })
            .collect();
        assert_eq!(authors[0].1, Vec::<String>::new(), "the operator");
        assert_eq!(authors[1], (grant, vec!["helper".to_owned(), "lead".to_owned()]));
    });
}
