//! Authority under attack: calls that race a revocation, trees of grants made at random, strangers who guess,
//! and thieves who have the file.

use crate::grants::{all, as_object, attenuate, found, made, only, revoke, save};
use crate::support::*;
use bowline::model::ids::GrantId;
use bowline::model::sturdy_ref::{Secret, SturdyRef, Verifier, VerifierKey};
use bowline::wire::grant_capnp::Right;
use bowline::wire::root_capnp::root;
use bowline::wire::session_capnp::session;
use capnp::capability::FromClientHook;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::Notify;

/// Threads hammer objects on many connections, held under grants that stem from one, while that one is taken
/// back: no call that began after `revoke` had returned succeeds, and no change of theirs is in the log.
#[test]
fn of_a_hundred_thousand_calls_none_that_began_after_the_revocation_succeeds() {
    const THREADS: usize = 4;
    const CONNECTIONS: usize = 16;
    const ROUNDS: u64 = 8;
    const CALLS_A_ROUND: u64 = 13_000;
    let server = Arc::new(Server::start());
    let (all, late) = (AtomicU64::new(0), AtomicU64::new(0));
    for _ in 0..ROUNDS {
        let (calls, revoked, enough) = (AtomicU64::new(0), AtomicBool::new(false), Notify::new());
        let count = |told: u64| {
            let before = calls.fetch_add(told, Ordering::Relaxed);
            if before < CALLS_A_ROUND && before + told >= CALLS_A_ROUND {
                enough.notify_one();
            }
        };
        // owner → parent → a grant for each connection, half of them one deeper
        let (parent, refs, ids) = local(async {
            let (_, session) = made(&root(&server).await);
            let mut producer = Producer::new();
            let few = [Right::Read, Right::Append, Right::Delegate];
            let (held, parent) = attenuate(&session, &mut producer, only(&few)).await.unwrap();
            let (deeper, _) = attenuate(&held, &mut producer, crate::grants::all).await.unwrap();
            let mut refs = Vec::new();
            for n in 0..CONNECTIONS {
                let from = if n % 2 == 0 { &held } else { &deeper };
                refs.push(save(from, &mut producer, crate::grants::all).await.unwrap().0);
            }
            let answer = session.info_request().send().promise.await.unwrap();
            let info = answer.get().unwrap().get_session().unwrap();
            let id =
                |text: capnp::Result<capnp::text::Reader<'_>>| text.unwrap().to_string().unwrap();
            (parent, refs, (id(info.get_project_id()), id(info.get_id())))
        });
        std::thread::scope(|scope| {
            let hammering: Vec<_> =
                refs.chunks(CONNECTIONS / THREADS)
                    .map(|refs| {
                        let (server, revoked, count, late) = (&server, &revoked, &count, &late);
                        scope.spawn(move || {
                            local(futures::future::join_all(refs.iter().map(|sturdy_ref| {
                                hammer(server, sturdy_ref, revoked, count, late)
                            })));
                        })
                    })
                    .collect();
            let head_then = local(async {
                let root = root(&server).await;
                let session = found(&root, &ids.0, &ids.1);
                enough.notified().await;
                let cut = revoke(&session, &mut Producer::new(), &parent).await.unwrap();
                revoked.store(true, Ordering::SeqCst);
                assert_eq!(cut, CONNECTIONS as u64 + 2);
                let answer = session.info_request().send().promise.await.unwrap();
                answer.get().unwrap().get_session().unwrap().get_head()
            });
            for thread in hammering {
                thread.join().unwrap();
            }
            local(async {
                let root = root(&server).await;
                let session = found(&root, &ids.0, &ids.1);
                let answer = session.info_request().send().promise.await.unwrap();
                let head = answer.get().unwrap().get_session().unwrap().get_head();
                assert_eq!(head, head_then, "a change was made after the revocation had returned");
            });
        });
        all.fetch_add(calls.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    let (all, late) = (all.load(Ordering::Relaxed), late.load(Ordering::Relaxed));
    println!("{all} calls, {late} of them begun after");
    assert!(all >= 100_000 && late > 1_000, "{all} calls, {late} of them begun after");
}

/// Calls until the grant falls, and then a few times more.
async fn hammer(
    server: &Server,
    sturdy_ref: &str,
    revoked: &AtomicBool,
    count: &impl Fn(u64),
    late: &AtomicU64,
) {
    let held: session::Client = redeem(&connect(server).await, sturdy_ref);
    let mut producer = Producer::new();
    let mut failed = 0;
    let mut round = 0u64;
    while failed < 20 {
        let began_after = revoked.load(Ordering::SeqCst);
        round += 1;
        let read = held.info_request().send().promise;
        let written = round.is_multiple_of(7).then(|| producer.batch(&held, &["x"]).send().promise);
        let mut told = vec![read.await.map(|_| ())];
        if let Some(written) = written {
            told.push(written.await.map(|_| ()));
        }
        count(told.len() as u64);
        for told in told {
            if began_after {
                late.fetch_add(1, Ordering::Relaxed);
                let error = told.expect_err("it began after the revocation had returned");
                assert_eq!(code(&error), "revoked");
                failed += 1;
            } else if let Err(error) = told {
                assert_eq!(code(&error), "revoked");
                failed += usize::from(revoked.load(Ordering::SeqCst));
            }
        }
        producer.acked_through = producer.next - 1;
    }
}

#[test]
fn what_was_taken_back_stays_so_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), &[], &[]);
    let (sturdy_ref, again, grant) = local(async {
        let (_, session) = made(&root(&server).await);
        let mut producer = Producer::new();
        let (sturdy_ref, grant) = save(&session, &mut producer, all).await.unwrap();
        let again = producer.clone();
        assert_eq!(revoke(&session, &mut producer, &grant).await.unwrap(), 1);
        (sturdy_ref, again, grant)
    });
    // The moment it has returned.
    server.kill_9();
    let server = Server::start_in(dir.path(), &[], &[]);
    local(async {
        let mut request = connect(&server).await.redeem_request();
        request.get().set_ref(sturdy_ref.as_str());
        assert_eq!(code(&failure(request.send().promise).await), "revoked");
        let root = root(&server).await;
        let project = open_project(&root, &mut Producer::new(), "/tree").pipeline.get_project();
        let answer = project.sessions_request().send().promise.await.unwrap();
        let id = answer.get().unwrap().get_sessions().unwrap().get(0).get_id().unwrap();
        let mut request = project.session_request();
        request.get().set_id(id);
        let session = request.send().pipeline.get_session();
        let told = revoke(&session, &mut again.clone(), &grant).await.unwrap();
        assert_eq!(told, 1, "a repeat hears the same");
    });
}

#[test]
fn whoever_goes_on_showing_wrong_refs_waits_longer_each_time() {
    let server = Server::start();
    local(async {
        let vat = connect(&server).await;
        let good = SturdyRef::parse(&server.root_ref()).unwrap();
        let wrong = SturdyRef { secret: Secret::new([7; 32]), ..good.clone() }.reveal();
        let show = async || {
            let begun = std::time::Instant::now();
            let mut request = vat.redeem_request();
            request.get().set_ref(wrong.as_str());
            assert_eq!(code(&failure(request.send().promise).await), "ref-refused");
            begun.elapsed().as_millis() as u64
        };
        for _ in 0..bowline::limits::WRONG_REFS_FREE {
            show().await;
        }
        let pause_ms = bowline::limits::WRONG_REF_PAUSE_MS;
        for least_ms in [pause_ms, 2 * pause_ms, 4 * pause_ms] {
            assert!(show().await >= least_ms);
        }
        // Connecting again does not help, and a right ref is answered at once, also to the same peer.
        let again = connect(&server).await;
        let begun = std::time::Instant::now();
        let mut request = again.redeem_request();
        request.get().set_ref(wrong.as_str());
        failure(request.send().promise).await;
        assert!(begun.elapsed().as_millis() as u64 >= 8 * pause_ms);
        let begun = std::time::Instant::now();
        let held: root::Client = redeem(&again, &good.reveal());
        held.projects_request().send().promise.await.unwrap();
        assert!((begun.elapsed().as_millis() as u64) < 16 * pause_ms);
        // Over the other way in there is another peer.
        let begun = std::time::Instant::now();
        let mut request = connect_unix(&server).await.redeem_request();
        request.get().set_ref(wrong.as_str());
        failure(request.send().promise).await;
        assert!((begun.elapsed().as_millis() as u64) < 16 * pause_ms);
    });
}

#[test]
fn a_stolen_database_redeems_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), &[], &[]);
    let (good, others) = local(async {
        let (_, session) = made(&root(&server).await);
        let mut producer = Producer::new();
        let (good, _) = save(&session, &mut producer, all).await.unwrap();
        let (claim, _) = save(&session, &mut producer, |mut n| n.set_claim(true)).await.unwrap();
        let delegated = crate::delegation::delegate(&session, &mut producer, |_| ()).await.unwrap();
        let (_, share, _) = crate::shares::publish(&session, &mut producer, |_| ()).await.unwrap();
        // Refs that were used leave traces, too.
        redeem::<session::Client>(&connect(&server).await, &good)
            .info_request()
            .send()
            .promise
            .await
            .unwrap();
        (good, [claim, delegated.sturdy_ref, share, server.root_ref()])
    });
    server.kill_9();
    // Every value of every column of every table, tried as the secret of the ref.
    let store = rusqlite::Connection::open(dir.path().join("bowline.db")).unwrap();
    let tables: Vec<String> = store
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let mut guesses = std::collections::BTreeSet::<[u8; 32]>::new();
    for table in tables {
        let mut query = store.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let columns = query.column_count();
        let mut rows = query.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            for column in 0..columns {
                let bytes = match row.get_ref(column).unwrap() {
                    rusqlite::types::ValueRef::Blob(bytes)
                    | rusqlite::types::ValueRef::Text(bytes) => bytes,
                    _ => continue,
                };
                guesses
                    .extend(bytes.windows(32).map(|window| <[u8; 32]>::try_from(window).unwrap()));
            }
        }
    }
    assert!(guesses.len() > 100, "there was something to try");
    // Whoever has the file has the key the hashes are made with, so all of it can be tried at home: as the
    // secret of each ref, and as the seed it was made from.
    let key: [u8; 32] =
        store.query_row("SELECT verifier_key FROM meta", [], |row| row.get(0)).unwrap();
    let key = VerifierKey(key);
    let grants: Vec<(GrantId, Verifier)> = store
        .prepare("SELECT public_id, verifier FROM grants WHERE saved")
        .unwrap()
        .query_map([], |row| Ok((GrantId(row.get(0)?), Verifier::from_bytes(row.get(1)?))))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(grants.len(), 5, "the root's and four that were handed out");
    drop(store);
    for guess in &guesses {
        let verifier = Secret::new(*guess).verifier(&key);
        for (grant, wanted) in &grants {
            assert_ne!(verifier, *wanted, "a secret is in the file");
            let seeded = Secret::from_seed(guess, *grant, &key).verifier(&key);
            assert_ne!(seeded, *wanted, "a seed is in the file");
        }
    }
    // The real ones do fit, so that the comparison can fail; and over the wire guesses fare no better.
    let refs: Vec<_> = [&good]
        .into_iter()
        .chain(&others)
        .map(|sturdy_ref| SturdyRef::parse(sturdy_ref).unwrap())
        .collect();
    for held in &refs {
        let (_, wanted) = grants.iter().find(|(grant, _)| *grant == held.grant).unwrap();
        assert_eq!(held.secret.verifier(&key), *wanted);
    }
    let server = Server::start_in(dir.path(), &[], &[]);
    local(async {
        let vat = connect(&server).await;
        for (held, guess) in refs.iter().zip(guesses.iter().rev()) {
            let guess = SturdyRef { secret: Secret::new(*guess), ..held.clone() };
            let mut request = vat.redeem_request();
            request.get().set_ref(guess.reveal().as_str());
            assert_eq!(code(&failure(request.send().promise).await), "ref-refused");
        }
        redeem::<session::Client>(&vat, &good).info_request().send().promise.await.unwrap();
    });
}

/// Whatever is handed on by whom: what an object may do is what all above it may do, and taking any of them
/// back takes back exactly what stems from it. Told to the real server, with trees made at random.
#[test]
fn in_any_tree_authority_is_the_intersection_and_a_cut_is_a_subtree() {
    const TREES: u64 = 12;
    const NODES: u64 = 24;
    const RIGHTS: [Right; 6] =
        [Right::Read, Right::Append, Right::Share, Right::Admin, Right::Turn, Right::Delegate];
    struct Node {
        object: session::Client,
        grant: Vec<u8>,
        parent: Option<usize>,
        rights: Vec<Right>,
        expires_at_ms: u64,
        only_own: bool,
        stands: bool,
    }
    let server = Server::start();
    let mut random = Random::told();
    local(async {
        let root = root(&server).await;
        for _ in 0..TREES {
            let session = fresh_session(&root);
            let mut producer = Producer::new();
            let (top, grant) = attenuate(&session, &mut producer, only(&RIGHTS)).await.unwrap();
            let mut tree = vec![Node {
                object: top,
                grant,
                parent: None,
                rights: RIGHTS.to_vec(),
                expires_at_ms: u64::MAX,
                only_own: false,
                stands: true,
            }];
            while (tree.len() as u64) < NODES {
                let parent = random.below(tree.len() as u64) as usize;
                // Most may hand on again, or the tree would not grow.
                let mask = random.below(32) | if random.below(4) > 0 { 32 } else { 0 };
                let wanted: Vec<_> = RIGHTS
                    .into_iter()
                    .enumerate()
                    .filter_map(|(at, right)| (mask >> at & 1 == 1).then_some(right))
                    .collect();
                let (expires, own) = (random.below(3), random.below(5) == 0);
                let at_ms = if expires == 0 { 5_000_000_000_000 + random.below(1_000) } else { 0 };
                let above = &tree[parent];
                let made = attenuate(&above.object, &mut producer, |mut narrowing| {
                    narrowing.set_expires_at_ms(at_ms);
                    narrowing.set_only_own_messages(own);
                    only(&wanted)(narrowing);
                })
                .await;
                let rights = if wanted.is_empty() { above.rights.clone() } else { wanted };
                let missing = rights.iter().any(|right| !above.rights.contains(right));
                let may = above.rights.contains(&Right::Delegate);
                match made {
                    Err(error) => {
                        assert_eq!(code(&error), "not-permitted");
                        assert!(missing || !may, "{rights:?} of {:?}", above.rights);
                        // What is denied at the door uses up no number.
                        producer.next -= u64::from(!may);
                    }
                    Ok((object, grant)) => {
                        assert!(may && !missing, "{rights:?} of {:?}", above.rights);
                        let wished = if at_ms == 0 { u64::MAX } else { at_ms };
                        let expires_at_ms = above.expires_at_ms.min(wished);
                        let only_own = above.only_own || own;
                        let (parent, stands) = (Some(parent), true);
                        tree.push(Node {
                            object,
                            grant,
                            parent,
                            rights,
                            expires_at_ms,
                            only_own,
                            stands,
                        });
                    }
                }
            }
            for _ in 0..4 {
                for node in &tree {
                    let described = as_object(&node.object).describe_request().send().promise.await;
                    let answer = match described {
                        Err(error) => {
                            assert_eq!(code(&error), "revoked");
                            assert!(!node.stands);
                            continue;
                        }
                        Ok(answer) => answer,
                    };
                    assert!(node.stands);
                    let description = answer.get().unwrap().get_description().unwrap();
                    let rights = description.get_rights().unwrap();
                    let mut rights: Vec<_> =
                        rights.iter().map(|right| right.unwrap() as u16).collect();
                    let mut want: Vec<_> = node.rights.iter().map(|right| *right as u16).collect();
                    rights.sort_unstable();
                    want.sort_unstable();
                    assert_eq!(rights, want);
                    let expires = Some(description.get_expires_at_ms()).filter(|at_ms| *at_ms > 0);
                    assert_eq!(expires.unwrap_or(u64::MAX), node.expires_at_ms);
                    let own = description.get_caveats().unwrap().get_only_own_messages();
                    assert_eq!(own, node.only_own);
                    // Not only what the server says, but what it does.
                    let may = |right: Right| node.rights.contains(&right);
                    let done = |answer: capnp::Result<()>| match answer {
                        Ok(()) => true,
                        Err(error) => {
                            assert_eq!(code(&error), "not-permitted");
                            false
                        }
                    };
                    let read = node.object.info_request().send().promise.await.map(|_| ());
                    assert_eq!(done(read), may(Right::Read));
                    let added = Producer::new().batch(&node.object, &["x"]).send().promise;
                    assert_eq!(done(added.await.map(|_| ())), may(Right::Append));
                    let shares = node.object.shares_request().send().promise.await.map(|_| ());
                    assert_eq!(done(shares), may(Right::Share));
                    let grants = as_object(&node.object).grants_request().send().promise;
                    assert_eq!(done(grants.await.map(|_| ())), may(Right::Delegate));
                }
                let victim = random.below(tree.len() as u64) as usize;
                let below = |mut at: usize| loop {
                    match (at == victim, tree[at].parent) {
                        (true, _) => return true,
                        (false, Some(parent)) => at = parent,
                        (false, None) => return false,
                    }
                };
                let cut: Vec<_> =
                    (0..tree.len()).filter(|at| below(*at) && tree[*at].stands).collect();
                let grant = tree[victim].grant.clone();
                let told = revoke(&session, &mut producer, &grant).await.unwrap();
                assert_eq!(told, cut.len() as u64);
                cut.into_iter().for_each(|at| tree[at].stands = false);
            }
        }
    });
}

/// Whatever is the matter with a ref, a stranger hears one thing, and who shows the right secret hears which.
#[test]
fn to_a_stranger_all_dead_refs_are_alike() {
    let server = Server::start();
    local(async {
        let (_, session) = made(&root(&server).await);
        let soon_ms = now_ms() + 3_000;
        let mut producer = Producer::new();
        let (revoked, grant) = save(&session, &mut producer, all).await.unwrap();
        revoke(&session, &mut producer, &grant).await.unwrap();
        let (sealed, _) =
            save(&session, &mut producer, |mut n| n.set_sealed_to("ada")).await.unwrap();
        let (used_up, _) = save(&session, &mut producer, |mut n| n.set_uses_max(1)).await.unwrap();
        redeem::<session::Client>(&connect(&server).await, &used_up)
            .info_request()
            .send()
            .promise
            .await
            .unwrap();
        let (expired, _) = save(&session, &mut producer, |mut n| {
            n.set_expires_at_ms(soon_ms);
        })
        .await
        .unwrap();
        let (unused, _) = save(&session, &mut producer, |mut n| {
            n.set_expires_if_unused_at_ms(soon_ms);
        })
        .await
        .unwrap();
        let ended = crate::delegation::delegate(&session, &mut producer, |_| ()).await.unwrap();
        let mut request = ended.delegate.complete_request();
        Producer::new().header(request.get().init_op());
        request.send().promise.await.unwrap();
        let other = create_session(
            &open_project(&root(&server).await, &mut Producer::new(), "/w").pipeline.get_project(),
            &mut Producer::new(),
            "",
        )
        .pipeline
        .get_session();
        let mut of_other = Producer::new();
        let (stale, _) = save(&other, &mut of_other, all).await.unwrap();
        let mut request = as_object(&other).bump_epoch_request();
        of_other.header(request.get().init_op());
        request.send().promise.await.unwrap();
        until_ms(soon_ms).await;
        let table = [
            (revoked, "revoked"),
            (sealed, "sealed"),
            (used_up, "used-up"),
            (expired, "expired"),
            (unused, "expired"),
            (ended.sturdy_ref, "delegation-ended"),
            (stale, "epoch-stale"),
        ];
        let mut heard = std::collections::BTreeSet::new();
        for (sturdy_ref, want) in table {
            let vat = connect(&server).await;
            let show = async |shown: &str| {
                let mut request = vat.redeem_request();
                request.get().set_ref(shown);
                failure(request.send().promise).await
            };
            assert_eq!(code(&show(&sturdy_ref).await), want);
            let held = SturdyRef::parse(&sturdy_ref).unwrap();
            let wrong = SturdyRef { secret: Secret::new([7; 32]), ..held.clone() };
            heard.insert(show(&wrong.reveal()).await.extra);
            let unknown = SturdyRef { grant: GrantId([9; 16]), ..held };
            heard.insert(show(&unknown.reveal()).await.extra);
        }
        assert_eq!(heard.len(), 1, "to the letter: {heard:?}");
    });
}

/// Facets of one session, all through one connection: each is what it is, whatever it is called.
#[test]
fn a_lesser_facet_is_not_a_greater_one_by_another_name() {
    let server = Server::start();
    local(async {
        let (_, session) = made(&root(&server).await);
        let mut producer = Producer::new();
        let (reader, _) =
            attenuate(&session, &mut producer, only(&[Right::Read, Right::Append])).await.unwrap();
        let (share, _, _) = crate::shares::publish(&session, &mut producer, |_| ()).await.unwrap();
        let mut request = reader.writer_request();
        let mut draft = request.get().init_producer();
        draft.set_producer(&Producer::new().id);
        draft.set_producer_epoch(1);
        draft.set_first_seq(1);
        let writer = request.send().promise.await.unwrap();
        let writer = writer.get().unwrap().get_writer().unwrap();
        let ears = std::rc::Rc::new(crate::feed::Ears::default());
        let subscription = crate::feed::feed(&reader, &ears, |_| ()).await.unwrap();
        // The greater one is exported beside them, so a mix-up would have something to give away.
        session.info_request().send().promise.await.unwrap();

        let as_session =
            |client: capnp::capability::Client| -> session::Client { client.cast_to() };
        let others = [
            ("share", share.client.clone()),
            ("writer", writer.client.clone()),
            ("subscription", subscription.client.clone()),
        ];
        for (name, client) in others {
            let answer = as_session(client).delegations_request().send().promise.await;
            let error = answer.err().unwrap_or_else(|| panic!("{name} is a session"));
            assert_eq!(error.kind, capnp::ErrorKind::Unimplemented, "{name}: {error}");
        }
        let as_root: root::Client = session.client.clone().cast_to();
        let error = failure(as_root.projects_request().send().promise).await;
        assert_eq!(error.kind, capnp::ErrorKind::Unimplemented);
        for client in [writer.client, subscription.client] {
            let object: bowline::wire::grant_capnp::object::Client = client.cast_to();
            let error = failure(object.describe_request().send().promise).await;
            assert_eq!(error.kind, capnp::ErrorKind::Unimplemented);
        }
        // And the same interface with less stays less.
        let error = failure(reader.delegations_request().send().promise).await;
        assert_eq!(code(&error), "not-permitted");
        session.delegations_request().send().promise.await.unwrap();
    });
}
