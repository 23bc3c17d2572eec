//! Published views of sessions: what they show, who may add to them, and how they end.

use crate::caveats::{outcome_of, told};
use crate::feed::{Ears, Sink, put};
use crate::grants::{all, as_object, attenuate, made, only, save};
use crate::support::*;
use bowline::wire::feed_capnp::{subscription, wish};
use bowline::wire::grant_capnp::Right;
use bowline::wire::message_capnp::{self, Role, part};
use bowline::wire::session_capnp::{session, session_op, share, share_draft, share_info};
use std::rc::Rc;

/// What `Session.share` returned: the view under the owner's authority, a ref to hand out, and its grant.
pub async fn publish(
    of: &session::Client,
    producer: &mut Producer,
    fill: impl FnOnce(share_draft::Builder<'_>),
) -> capnp::Result<(share::Client, String, Vec<u8>)> {
    let mut request = of.share_request();
    request.get().set_seed(&[producer.next as u8; 32]);
    producer.header(request.get().init_op());
    fill(request.get().init_share());
    let answer = request.send().promise.await?;
    let answer = answer.get()?;
    let sturdy_ref = answer.get_ref()?.to_string()?;
    Ok((answer.get_share()?, sturdy_ref, answer.get_grant()?.to_vec()))
}

async fn unpublish(share: &share::Client, producer: &mut Producer) -> capnp::Result<u64> {
    let mut request = share.unpublish_request();
    producer.header(request.get().init_op());
    Ok(request.send().promise.await?.get()?.get_cut())
}

/// What is told about a share, by a function of it.
async fn info<T>(
    share: &share::Client,
    of: impl FnOnce(share_info::Reader<'_>) -> T,
) -> capnp::Result<T> {
    let answer = share.info_request().send().promise.await?;
    Ok(of(answer.get()?.get_share()?))
}

/// What is read through a share: each message as `id: part | part`.
async fn read(share: &share::Client, newest_first: bool) -> capnp::Result<Vec<String>> {
    let mut request = share.read_request();
    request.get().init_page().set_newest_first(newest_first);
    let answer = request.send().promise.await?;
    let mut lines = Vec::new();
    for message in answer.get()?.get_messages()? {
        assert!(!message.has_author(), "who wrote it is not told");
        let parts = message.get_body()?.get_parts()?;
        let parts: Vec<_> = parts
            .iter()
            .map(|part| match part.which().unwrap() {
                part::Text(text) => text.unwrap().to_string().unwrap(),
                part::Json(json) => json.unwrap().to_string().unwrap(),
                _ => panic!("a part of a kind nobody has put"),
            })
            .collect();
        lines.push(format!("{}: {}", message.get_id()?.to_str()?, parts.join(" | ")));
    }
    Ok(lines)
}

async fn follow(
    share: &share::Client,
    ears: &Rc<Ears>,
    fill: impl FnOnce(wish::Builder<'_>),
) -> capnp::Result<subscription::Client> {
    let mut request = share.feed_request();
    fill(request.get().init_wish());
    request.get().set_sink(capnp_rpc::new_client(Sink(ears.clone())));
    request.send().promise.await?.get()?.get_subscription()
}

/// One op through a share; what became of it.
async fn add(
    share: &share::Client,
    producer: &mut Producer,
    fill: impl FnOnce(session_op::Builder<'_>),
) -> capnp::Result<String> {
    let mut request = share.append_ops_request();
    let mut batch = request.get().init_batch();
    batch.set_producer(&producer.id);
    batch.set_producer_epoch(producer.epoch);
    batch.set_first_seq(producer.next);
    let mut op = request.get().init_ops(1).get(0);
    op.set_op_id(&producer.op_id(producer.next));
    producer.next += 1;
    fill(op);
    let answer = request.send().promise.await?;
    let ack = answer.get()?.get_ack()?;
    Ok(told(ack.get_outcomes()?.get(0)))
}

fn said(id: &str) -> impl Fn(session_op::Builder<'_>) {
    move |op| {
        let mut message = op.init_put_message();
        message.set_id(id);
        message.init_parts(1).get(0).set_text(id);
    }
}

async fn as_share(server: &Server, sturdy_ref: &str) -> share::Client {
    redeem(&connect(server).await, sturdy_ref)
}

/// A session with a tool call, a thought and a tool's own message, the secret in all that tools gave.
async fn worked(session: &session::Client, producer: &mut Producer) {
    let tool = r#"{"type":"tool","tool":"bash","state":{"status":"completed","input":"ls","output":"s3cret"}}"#;
    type Parts<'a> = &'a [(&'a str, bool)];
    let ops: [(&str, Role, Parts<'_>); 3] = [
        ("ask", Role::User, &[("question", false)]),
        (
            "do",
            Role::Assistant,
            &[(r#"{"type":"reasoning","text":"hmm"}"#, true), (tool, true), ("answer", false)],
        ),
        ("out", Role::Tool, &[("s3cret", false)]),
    ];
    for (id, role, parts) in ops {
        let applied = outcome_of(session, producer, |op| {
            let mut message = op.init_put_message();
            message.set_id(id);
            message.set_role(role);
            let mut list = message.init_parts(parts.len() as u32);
            for (at, (text, json)) in (0..).zip(parts) {
                match json {
                    true => list.reborrow().get(at).set_json(text),
                    false => list.reborrow().get(at).set_text(text),
                }
            }
        })
        .await;
        assert_eq!(applied, "applied");
    }
}

#[test]
fn a_share_shows_what_it_was_made_to_show_and_nothing_else() {
    let server = Server::start();
    local(async {
        let (_, session) = made(&root(&server).await);
        let mut producer = Producer::new();
        worked(&session, &mut producer).await;
        type Fill = fn(share_draft::Builder<'_>);
        let table: [(Fill, usize, bool, bool); 5] = [
            (|_| (), 3, false, false),
            (|mut draft| draft.set_reasoning(true), 3, true, false),
            (|mut draft| draft.set_tool_outputs(true), 3, false, true),
            (
                |mut draft| {
                    draft.set_tool_outputs(true);
                    draft.set_reasoning(true);
                },
                3,
                true,
                true,
            ),
            (|mut draft| draft.set_up_to("do"), 2, false, false),
        ];
        for (at, (fill, count, reasoning, outputs)) in table.into_iter().enumerate() {
            let (_, sturdy_ref, _) = publish(&session, &mut producer, fill).await.unwrap();
            let held = as_share(&server, &sturdy_ref).await;
            let shown = read(&held, false).await.unwrap();
            assert_eq!(shown.len(), count, "{at}: {shown:?}");
            let all = shown.join("\n");
            assert_eq!(all.contains("hmm"), reasoning, "{at}: {all}");
            assert_eq!(all.contains("s3cret"), outputs, "{at}: {all}");
            assert!(all.contains("question") && all.contains("answer") && all.contains("\"ls\""));
            let mut backwards = read(&held, true).await.unwrap();
            backwards.reverse();
            assert_eq!(backwards, shown, "{at}");
            // The feed shows the same.
            let ears = Rc::new(Ears::default());
            let _feed = follow(&held, &ears, |_| ()).await.unwrap();
            ears.places(count).await;
            let heard = ears.lines();
            let events: Vec<_> = heard.iter().filter(|line| !line.starts_with("caught")).collect();
            assert_eq!(events.len(), count, "grants and shares are not told: {events:?}");
            // And nothing but reading works.
            let mut fresh = Producer::new();
            let error = add(&held, &mut fresh, said("x")).await.unwrap_err();
            assert_eq!(code(&error), "not-permitted");
            let error = unpublish(&held, &mut fresh).await.unwrap_err();
            assert_eq!(code(&error), "not-permitted");
            let error = save(&held, &mut fresh, all_rights).await.unwrap_err();
            assert_eq!(code(&error), "not-permitted");
            let error = failure(as_object(&held).grants_request().send().promise).await;
            assert_eq!(code(&error), "not-permitted");
        }
        // What is taken away is not shown any more, also through a share that ends before that.
        let (_, up_to, _) =
            publish(&session, &mut producer, |mut draft| draft.set_up_to("do")).await.unwrap();
        let held = as_share(&server, &up_to).await;
        let ears = Rc::new(Ears::default());
        let _feed = follow(&held, &ears, |_| ()).await.unwrap();
        ears.places(2).await;
        put(&session, &mut producer, &["later"]).await;
        for id in ["later", "ask"] {
            let remove = |mut op: session_op::Builder<'_>| op.set_remove_message(id);
            assert_eq!(outcome_of(&session, &mut producer, remove).await, "applied");
        }
        ears.places(3).await;
        let heard = ears.lines().join("\n");
        assert!(heard.contains("rm ask") && !heard.contains("later"), "{heard}");
        assert_eq!(read(&held, false).await.unwrap().len(), 1);

        // Wishes that make no sense, or that nobody may have.
        let bad: [(Fill, &str); 4] = [
            (|mut draft| draft.set_up_to("none"), "message-not-found"),
            (|mut draft| draft.set_up_to("a b"), "id-malformed"),
            (
                |mut draft| {
                    draft.set_up_to("do");
                    draft.set_append(true);
                },
                "narrowing-malformed",
            ),
            (|draft| only(&[Right::Read])(draft.init_narrowing()), "narrowing-malformed"),
        ];
        for (fill, want) in bad {
            let error = publish(&session, &mut producer, fill).await.err().unwrap();
            assert_eq!(code(&error), want);
        }
        let few = [Right::Read, Right::Share];
        let (reader, _) = attenuate(&session, &mut producer, only(&few)).await.unwrap();
        let error = publish(&reader, &mut producer, |mut draft| draft.set_append(true)).await;
        assert_eq!(code(&error.err().unwrap()), "not-permitted", "it may not append itself");
        publish(&reader, &mut producer, |_| ()).await.unwrap();
    });
}

fn all_rights(narrowing: bowline::wire::grant_capnp::narrowing::Builder<'_>) {
    all(narrowing);
}

#[test]
fn ops_come_in_through_a_share_once_and_a_reconnect_continues_at_the_same_cursor() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), &[], &[]);
    let mut guests = Producer::new();
    let (sturdy_ref, place) = local(async {
        let (_, session) = made(&root(&server).await);
        let mut producer = Producer::new();
        put(&session, &mut producer, &["mine"]).await;
        let again = producer.clone();
        let (_, sturdy_ref, grant) =
            publish(&session, &mut producer, |mut draft| draft.set_append(true)).await.unwrap();
        // The answer was lost: the repeat returns the same, and publishes nothing twice.
        let repeat =
            publish(&session, &mut again.clone(), |mut draft| draft.set_append(true)).await;
        let (_, same_ref, same_grant) = repeat.unwrap();
        assert_eq!((same_ref, same_grant), (sturdy_ref.clone(), grant));
        let answer = session.shares_request().send().promise.await.unwrap();
        assert_eq!(answer.get().unwrap().get_shares().unwrap().len(), 1);
        let guest = as_share(&server, &sturdy_ref).await;
        assert_eq!(add(&guest, &mut guests, said("guest")).await.unwrap(), "applied");
        let remove =
            |id: &'static str| move |mut op: session_op::Builder<'_>| op.set_remove_message(id);
        assert_eq!(add(&guest, &mut guests, remove("mine")).await.unwrap(), "not-permitted");
        let title = |mut op: session_op::Builder<'_>| op.set_set_title("t");
        assert_eq!(add(&guest, &mut guests, title).await.unwrap(), "not-permitted");
        // A repeat changes nothing and hears the same; another op under the same number is refused.
        let mut again = Producer { next: 1, ..guests.clone() };
        assert_eq!(add(&guest, &mut again, said("guest")).await.unwrap(), "duplicate");
        let ears = Rc::new(Ears::default());
        let named = |mut wish: wish::Builder<'_>| wish.set_name("mirror");
        let feeding = follow(&guest, &ears, named).await.unwrap();
        ears.until("caught-up 3").await;
        // The name is the share's own: the session's subscriptions know nothing of it.
        let mut request = session.forget_subscription_request();
        request.get().set_name("mirror");
        let answer = request.send().promise.await.unwrap();
        assert!(!answer.get().unwrap().get_existed());
        let status = feeding.status_request().send().promise.await.unwrap();
        let place = status.get().unwrap().get_place();
        (sturdy_ref, place)
    });
    server.kill_9();
    let server = Server::start_in(dir.path(), &[], &[]);
    local(async {
        let guest = as_share(&server, &sturdy_ref).await;
        assert_eq!(info(&guest, |info| info.get_cursor()).await.unwrap(), place);
        let mut again = Producer { next: 1, ..guests.clone() };
        assert_eq!(add(&guest, &mut again, said("guest")).await.unwrap(), "duplicate");
        // It stands where it stood, and goes on from there.
        let mut request = guest.register_request();
        let mut registration = request.get().init_registration();
        registration.set_producer(&guests.id);
        registration.set_instance(&[9; 16]);
        let answer = request.send().promise.await.unwrap();
        let at = answer.get().unwrap().get_registered().unwrap();
        assert_eq!((at.get_next_expected_seq(), at.get_epoch()), (4, 2));
        let ears = Rc::new(Ears::default());
        let _feed = follow(&guest, &ears, |mut wish| wish.set_name("mirror")).await.unwrap();
        let mut guests = Producer { epoch: 2, ..guests.clone() };
        assert_eq!(add(&guest, &mut guests, said("more")).await.unwrap(), "applied");
        ears.places(1).await;
        let heard = ears.lines();
        let events: Vec<_> = heard.iter().filter(|line| line.contains("put")).collect();
        assert_eq!(events, ["4 put more"], "nothing twice and nothing missing");
        let mut request = guest.forget_subscription_request();
        request.get().set_name("mirror");
        assert!(request.send().promise.await.unwrap().get().unwrap().get_existed());
        // A guest removes its own.
        let remove = |mut op: session_op::Builder<'_>| op.set_remove_message("guest");
        assert_eq!(add(&guest, &mut guests, remove).await.unwrap(), "applied");
    });
}

#[test]
fn a_shares_refs_grow_stale_with_its_epoch_and_the_owner_makes_new_ones() {
    let server = Server::start();
    local(async {
        let (_, session) = made(&root(&server).await);
        let mut producer = Producer::new();
        let (share, old, _) =
            publish(&session, &mut producer, |mut draft| draft.set_append(true)).await.unwrap();
        let guest = as_share(&server, &old).await;
        assert_eq!(info(&guest, |info| info.get_epoch()).await.unwrap(), 1);
        let mut of_share = Producer::new();
        let mut request = as_object(&share).bump_epoch_request();
        of_share.header(request.get().init_op());
        let answer = request.send().promise.await.unwrap();
        let answer = answer.get().unwrap();
        assert_eq!((answer.get_epoch(), answer.get_cut()), (2, 1));
        assert_eq!(refused(&server, &old).await, "epoch-stale");
        assert_eq!(code(&info(&guest, |_| ()).await.unwrap_err()), "epoch-stale");
        // Through a share nobody hands on more than the share was made for, and without a word just that.
        let error = save(&share, &mut of_share, only(&[Right::Read, Right::Admin])).await;
        assert_eq!(code(&error.unwrap_err()), "not-permitted");
        let (new, _) = save(&share, &mut of_share, all).await.unwrap();
        let described = as_share(&server, &new).await;
        let answer = as_object(&described).describe_request().send().promise.await.unwrap();
        let rights = answer.get().unwrap().get_description().unwrap().get_rights().unwrap();
        let rights: Vec<_> = rights.iter().map(|right| right.unwrap() as u16).collect();
        assert_eq!(rights, [Right::Read as u16, Right::Append as u16]);
        let guest = as_share(&server, &new).await;
        assert_eq!(info(&guest, |info| info.get_epoch()).await.unwrap(), 2);
        // Ops made under the former epoch are refused, by the share's own and not by the session's.
        let mut request = guest.append_ops_request();
        let mut batch = request.get().init_batch();
        batch.set_producer(&producer.id);
        batch.set_producer_epoch(1);
        batch.set_first_seq(producer.next);
        batch.set_capability_epoch(1);
        let op = request.get().init_ops(1).get(0);
        text_message(op, "x");
        request.get().get_ops().unwrap().get(0).set_op_id(&[3; 16]);
        assert_eq!(code(&failure(request.send().promise).await), "epoch-stale");
    });
}

#[test]
fn the_owner_lists_and_ends_every_share_without_its_secret_also_when_the_session_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), &[], &[]);
    let (first, second, second_ref) = local(async {
        let root = root(&server).await;
        let (project, session) = made(&root);
        let mut producer = Producer::new();
        let (share, first_ref, _) = publish(&session, &mut producer, |_| ()).await.unwrap();
        let (other, second_ref, _) = publish(&session, &mut producer, |_| ()).await.unwrap();
        let id = |info: share_info::Reader<'_>| info.get_id().unwrap().to_string().unwrap();
        let (first, second) = (info(&share, id).await.unwrap(), info(&other, id).await.unwrap());
        let guest = as_share(&server, &first_ref).await;
        let ears = Rc::new(Ears::default());
        let _feed = follow(&guest, &ears, |_| ()).await.unwrap();
        ears.until("caught-up 2").await;
        // One that runs under the owner's own authority ends with the share, too.
        let owners = Rc::new(Ears::default());
        let _owners = follow(&share, &owners, |mut wish| wish.set_name("own")).await.unwrap();
        owners.until("caught-up 2").await;
        // Who was given sharing ends what it published, and not what others did.
        let few = [Right::Read, Right::Share];
        let (sharer, _) = attenuate(&session, &mut producer, only(&few)).await.unwrap();
        let mut request = sharer.sharing_request();
        request.get().set_id(first.as_str());
        let not_its_own = request.send().pipeline.get_share();
        let error = unpublish(&not_its_own, &mut Producer::new()).await.unwrap_err();
        assert_eq!(code(&error), "not-permitted");
        let (its_own, _, _) = publish(&sharer, &mut producer, |_| ()).await.unwrap();
        assert_eq!(unpublish(&its_own, &mut Producer::new()).await.unwrap(), 1);

        let mut of_share = Producer::new();
        let again = of_share.clone();
        assert_eq!(unpublish(&share, &mut of_share).await.unwrap(), 1);
        assert_eq!(unpublish(&share, &mut again.clone()).await.unwrap(), 1, "a repeat");
        assert_eq!(unpublish(&share, &mut of_share).await.unwrap(), 0, "it is over already");
        ears.until("ended revoked").await;
        owners.until("ended share-ended").await;
        assert_eq!(refused(&server, &first_ref).await, "revoked");
        assert_eq!(code(&read(&guest, false).await.unwrap_err()), "revoked");
        // Under the owner's own authority it is still to be seen, and shows nothing.
        assert!(info(&share, |info| info.get_ended_at_ms()).await.unwrap() > 0);
        assert_eq!(code(&read(&share, false).await.unwrap_err()), "share-ended");
        let error = follow(&share, &Rc::new(Ears::default()), |_| ()).await.err().unwrap();
        assert_eq!(code(&error), "share-ended");
        let error = add(&share, &mut Producer::new(), said("x")).await.unwrap_err();
        assert_eq!(code(&error), "share-ended");
        let error = add(&other, &mut Producer::new(), said("x")).await.unwrap_err();
        assert_eq!(code(&error), "not-permitted", "it was made for reading, also for its owner");
        let error = publish_again(&share, &mut of_share).await;
        assert_eq!(code(&error), "share-ended", "no new ref for what is over");

        // What was handed out for it, and for nothing else.
        let mut request = as_object(&session).grants_request();
        request.get().set_object_id(second.as_str());
        let answer = request.send().promise.await.unwrap();
        let grants = answer.get().unwrap().get_grants().unwrap();
        assert_eq!(grants.len(), 1);
        assert_eq!(grants.get(0).get_object_id().unwrap().to_str().unwrap(), second);

        // Another project's are not found through this one.
        let elsewhere =
            open_project(&root, &mut Producer::new(), "/elsewhere").pipeline.get_project();
        let mut request = elsewhere.sharing_request();
        request.get().set_id(second.as_str());
        assert_eq!(code(&failure(request.send().promise).await), "share-not-found");
        let mut request = project.sharing_request();
        request.get().set_id(second.as_str());
        request.send().pipeline.get_share().info_request().send().promise.await.unwrap();
        (first, second, second_ref)
    });
    server.kill_9();
    // The session goes, and leaves its shares behind.
    let store = rusqlite::Connection::open(dir.path().join("bowline.db")).unwrap();
    store.execute_batch("DELETE FROM messages; DELETE FROM sessions").unwrap();
    drop(store);
    let server = Server::start_in(dir.path(), &[], &[]);
    local(async {
        let root = root(&server).await;
        let listed = async || {
            let answer = root.shares_request().send().promise.await.unwrap();
            let shares = answer.get().unwrap().get_shares().unwrap();
            let line = |info: share_info::Reader<'_>| {
                let (id, session) = (info.get_id().unwrap(), info.get_session_id().unwrap());
                let ended = info.get_ended_at_ms() > 0;
                assert!(session.to_str().unwrap().starts_with("ses_"));
                (id.to_string().unwrap(), ended)
            };
            shares.iter().map(line).collect::<Vec<_>>()
        };
        let mut shares = listed().await;
        assert!(shares.remove(2).1, "the sharer's own");
        assert_eq!(shares, [(first.clone(), true), (second.clone(), false)]);
        let mut request = root.sharing_request();
        request.get().set_id(second.as_str());
        let share = request.send().pipeline.get_share();
        assert_eq!(unpublish(&share, &mut Producer::new()).await.unwrap(), 1);
        assert_eq!(listed().await[..2], [(first, true), (second, true)]);
        assert_eq!(refused(&server, &second_ref).await, "revoked");
    });
}

async fn publish_again(share: &share::Client, producer: &mut Producer) -> capnp::Error {
    save(share, producer, only(&[Right::Read])).await.unwrap_err()
}

#[test]
fn a_share_ends_with_the_grant_it_was_made_under_and_at_its_own_time() {
    let server = Server::start();
    local(async {
        let (_, session) = made(&root(&server).await);
        let mut producer = Producer::new();
        let (sharer, grant) = attenuate(&session, &mut producer, all).await.unwrap();
        let (_, sturdy_ref, _) = publish(&sharer, &mut producer, |_| ()).await.unwrap();
        let guest = as_share(&server, &sturdy_ref).await;
        read(&guest, false).await.unwrap();
        let cut = crate::grants::revoke(&session, &mut producer, &grant).await.unwrap();
        assert_eq!(cut, 2);
        assert_eq!(code(&read(&guest, false).await.unwrap_err()), "revoked");
        let soon_ms = now_ms() + 5_000;
        let (_, short, _) = publish(&session, &mut producer, |draft| {
            let mut narrowing = draft.init_narrowing();
            narrowing.set_expires_at_ms(soon_ms);
            narrowing.set_uses_max(1);
        })
        .await
        .unwrap();
        let guest = as_share(&server, &short).await;
        let ears = Rc::new(Ears::default());
        let _feed = follow(&guest, &ears, |_| ()).await.unwrap();
        assert_eq!(refused(&server, &short).await, "used-up");
        ears.until("ended expired").await;
        assert_eq!(refused(&server, &short).await, "expired");
    });
}

/// Guests have a part of the places in a session, so that they cannot take the owner's.
#[test]
fn guests_take_only_so_many_places_and_an_op_publishes_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), &[], &[]);
    let mut names = 0;
    let (sturdy_ref, share_log) = local(async {
        let (project, session) = made(&root(&server).await);
        let mut producer = Producer::new();
        let again = producer.clone();
        let (_, sturdy_ref, _) =
            publish(&session, &mut producer, |mut draft| draft.set_append(true)).await.unwrap();
        let guest = as_share(&server, &sturdy_ref).await;
        let error = loop {
            let named = |mut wish: wish::Builder<'_>| wish.set_name(format!("n{names}"));
            match follow(&guest, &Rc::new(Ears::default()), named).await {
                Ok(_) => names += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(code(&error), "too-many-subscriptions");
        let ears = Rc::new(Ears::default());
        let named = |mut wish: wish::Builder<'_>| wish.set_name("of-owner");
        crate::feed::feed(&session, &ears, named).await.expect("the owner's are not taken");
        // The same op in another session would make a share of the same name.
        let other = create_session(&project, &mut Producer::new(), "other").pipeline.get_session();
        let error = publish(&other, &mut again.clone(), |_| ()).await.err().unwrap();
        assert_eq!(code(&error), "op-reused");
        let store = rusqlite::Connection::open(dir.path().join("bowline.db")).unwrap();
        let share: i64 = store.query_row("SELECT log FROM shares", [], |row| row.get(0)).unwrap();
        (sturdy_ref, share)
    });
    assert_eq!(names, bowline::limits::DURABLE_SUBSCRIPTIONS_PER_SHARE_MAX);
    server.kill_9();
    let store = rusqlite::Connection::open(dir.path().join("bowline.db")).unwrap();
    store
        .execute(
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1)
             INSERT INTO producers (log, producer, epoch, high, acked_through, share)
             SELECT (SELECT session FROM shares), randomblob(16), 1, 0, 0, ?2 FROM n",
            [bowline::limits::PRODUCERS_PER_SHARE_MAX as i64, share_log],
        )
        .unwrap();
    drop(store);
    let server = Server::start_in(dir.path(), &[], &[]);
    local(async {
        let guest = as_share(&server, &sturdy_ref).await;
        let error = add(&guest, &mut Producer::new(), said("x")).await.unwrap_err();
        assert_eq!(code(&error), "too-many-producers");
        let root = root(&server).await;
        let project = open_project(&root, &mut Producer::new(), "/tree").pipeline.get_project();
        let mut request = project.session_request();
        request.get().set_id("other");
        put(&request.send().pipeline.get_session(), &mut Producer::new(), &["m"]).await;
    });
}

/// What a share hides is hidden in its feed as in its pages, whatever kind of part it is and whoever says it.
#[test]
fn a_feed_through_a_share_hides_what_its_pages_hide() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut producer = Producer::new();
        let (share, _, _) = publish(&session, &mut producer, |_| {}).await.unwrap();
        let ears = Rc::new(Ears::default());
        let secrets = Rc::new(std::cell::RefCell::new(Vec::new()));
        let _feed = {
            let mut request = share.feed_request();
            request.get().init_wish().set_texts(true);
            request.get().set_sink(capnp_rpc::new_client(Listening(secrets.clone(), ears.clone())));
            request.send().promise.await.unwrap()
        };
        let mut request = producer.batch(&session, &["x"; 7]);
        let mut ops = request.get().get_ops().unwrap();
        let roles = [message_capnp::Role::Assistant, message_capnp::Role::Tool];
        for (at, role) in (0..).zip(roles) {
            let mut body = ops.reborrow().get(at).init_put_message();
            body.set_id(["said", "gave"][at as usize]);
            body.set_role(role);
        }
        fn put<'a>(
            ops: &'a mut capnp::struct_list::Builder<
                '_,
                bowline::wire::session_capnp::session_op::Owned,
            >,
            at: u32,
            message: &str,
        ) -> part::Builder<'a> {
            let mut put = ops.reborrow().get(at).init_put_part();
            put.set_message_id(message);
            put.init_part()
        }
        put(&mut ops, 2, "said")
            .set_json(r#"{"type":"tool","tool":"t","state":{"output":"SECRET"}}"#);
        put(&mut ops, 3, "said").set_reasoning("SECRET");
        let mut tool = put(&mut ops, 4, "said").init_tool();
        tool.set_status(message_capnp::ToolStatus::Completed);
        tool.set_output("SECRET");
        tool.set_metadata(r#"{"x":"SECRET"}"#);
        put(&mut ops, 5, "gave").set_text("SECRET");
        let mut last = put(&mut ops, 6, "said");
        last.set_rest(r#"{"x":"SECRET"}"#);
        last.set_text("shown");
        request.send().promise.await.unwrap();
        ears.heard(|lines| lines.iter().any(|line| line == "shown")).await;
        for told in secrets.borrow().iter() {
            assert!(!told.contains("SECRET"), "{told}");
        }
        let answer = share.read_request().send().promise.await.unwrap();
        for message in answer.get().unwrap().get_messages().unwrap() {
            let told = format!("{:?}", message.get_body().unwrap());
            assert!(!told.contains("SECRET"), "{told}");
        }
    });
}

/// A sink that keeps everything it is told, as text.
struct Listening(Rc<std::cell::RefCell<Vec<String>>>, Rc<Ears>);

impl bowline::wire::feed_capnp::sink::Server for Listening {
    async fn events(
        self: Rc<Self>,
        params: bowline::wire::feed_capnp::sink::EventsParams,
        _: bowline::wire::feed_capnp::sink::EventsResults,
    ) -> capnp::Result<()> {
        for event in params.get()?.get_page()?.get_events()? {
            let told = format!("{event:?}");
            if told.contains("shown") {
                self.1.hear(vec![("shown".into(), None)]).await?;
            }
            self.0.borrow_mut().push(told);
        }
        Ok(())
    }

    async fn caught_up(
        self: Rc<Self>,
        _: bowline::wire::feed_capnp::sink::CaughtUpParams,
        _: bowline::wire::feed_capnp::sink::CaughtUpResults,
    ) -> capnp::Result<()> {
        Ok(())
    }
}
