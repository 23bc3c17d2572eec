//! The audit trail: what is in it, who sees which part, that nothing can be changed unnoticed, and that old
//! entries may go without that being lost.

use crate::delegation::delegate;
use crate::feed::put;
use crate::grants::{as_object, attenuate, made, only, revoke, save};
use crate::support::*;
use bowline::model::sturdy_ref::{Secret, SturdyRef};
use bowline::wire::audit_capnp::{AuditKind, audit_filter};
use bowline::wire::bowline_capnp::page;
use bowline::wire::grant_capnp::{Right, narrowing};
use bowline::wire::session_capnp::session;
use capnp::capability::FromClientHook;
use std::collections::BTreeSet;
use std::path::Path;

/// An entry as a test looks at it.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    number: u64,
    kind: AuditKind,
    grant: Vec<u8>,
    actors: String,
    object: String,
    subject: Vec<u8>,
    count: u64,
    code: String,
    right: String,
    at_ms: u64,
}

async fn look<T: FromClientHook>(of: &T, filter: impl Fn(audit_filter::Builder<'_>)) -> Vec<Seen> {
    pages(of, filter, |_| ()).await
}

/// All pages of what somebody sees.
async fn pages<T: FromClientHook>(
    of: &T,
    filter: impl Fn(audit_filter::Builder<'_>),
    how: impl Fn(page::Builder<'_>),
) -> Vec<Seen> {
    let mut seen = Vec::new();
    let mut after = 0;
    loop {
        let mut request = as_object(of).audit_request();
        filter(request.get().init_filter());
        let mut page = request.get().init_page();
        how(page.reborrow());
        page.set_after(after);
        let answer = request.send().promise.await.unwrap();
        let answer = answer.get().unwrap();
        let text = |text: capnp::text::Reader<'_>| text.to_string().unwrap();
        for entry in answer.get_entries().unwrap() {
            let actors = entry.get_actors().unwrap();
            let actors: Vec<_> = actors.iter().map(|actor| text(actor.unwrap())).collect();
            assert_eq!(entry.get_hash().unwrap().len(), 32);
            seen.push(Seen {
                number: entry.get_number(),
                kind: entry.get_kind().unwrap(),
                grant: entry.get_grant().unwrap().to_vec(),
                actors: actors.join(","),
                object: text(entry.get_object_id().unwrap()),
                subject: entry.get_subject().unwrap().to_vec(),
                count: entry.get_count(),
                code: text(entry.get_code().unwrap()),
                right: text(entry.get_right().unwrap()),
                at_ms: entry.get_at_ms(),
            });
        }
        let end = answer.get_end().unwrap();
        if !end.get_more() {
            return seen;
        }
        after = end.get_next();
    }
}

fn named(actor: &'static str) -> impl Fn(narrowing::Builder<'_>) {
    move |mut narrowing| narrowing.set_actor(actor)
}

fn audit(data: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output =
        command(data).args(["audit", "--data"]).arg(data).args(arguments).output().unwrap();
    let text =
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (output.status.code(), text)
}

#[test]
fn everything_that_matters_is_written_down_with_who_and_on_whose_behalf() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), &[], &[]);
    local(async {
        let root = root(&server).await;
        let (project, session) = made(&root);
        let mut producer = Producer::new();
        let (lead, _) = attenuate(&session, &mut producer, named("lead")).await.unwrap();
        let (helper_ref, helper_grant) = save(&lead, &mut producer, |mut narrowing| {
            narrowing.set_actor("helper");
            only(&[Right::Append])(narrowing);
        })
        .await
        .unwrap();
        let vat = connect(&server).await;
        let helper: session::Client = redeem(&vat, &helper_ref);
        put(&helper, &mut producer, &["a", "b"]).await;
        put(&helper, &mut producer, &["c"]).await;
        // Widening is refused inside an op, and not at the door.
        let (limited, limited_grant) =
            attenuate(&lead, &mut producer, |mut n| n.set_no_tools(true)).await.unwrap();
        let error = attenuate(&limited, &mut producer, |narrowing| {
            narrowing.init_tools(1).set(0, "bash");
        })
        .await
        .err()
        .unwrap();
        assert_eq!(code(&error), "not-permitted");
        // Denied: a right it was not given, twice; a wrong secret for its ref; and no ref at all.
        for _ in 0..2 {
            let error = failure(helper.info_request().send().promise).await;
            assert_eq!(code(&error), "not-permitted");
        }
        let good = SturdyRef::parse(&helper_ref).unwrap();
        for guess in [
            SturdyRef { secret: Secret::new([7; 32]), ..good.clone() },
            SturdyRef { grant: bowline::model::ids::GrantId([9; 16]), ..good },
        ] {
            let mut request = vat.redeem_request();
            request.get().set_ref(guess.reveal().as_str());
            assert_eq!(code(&failure(request.send().promise).await), "ref-refused");
        }
        let (claim, _) = save(&session, &mut producer, |mut n| n.set_claim(true)).await.unwrap();
        let mut request = vat.claim_request();
        request.get().set_ref(claim.as_str());
        request.get().set_seed(&[3; 32]);
        request.send().promise.await.unwrap();
        let done = delegate(&session, &mut producer, |draft| {
            draft.init_narrowing().set_actor("delegate");
        })
        .await
        .unwrap();
        let mut request = session.share_request();
        producer.header(request.get().init_op());
        request.get().set_seed(&[4; 32]);
        let share = request.send().pipeline.get_share();
        let mut request = share.unpublish_request();
        Producer::new().header(request.get().init_op());
        request.send().promise.await.unwrap();
        assert_eq!(revoke(&session, &mut producer, &helper_grant).await.unwrap(), 1);
        let mut again = vat.redeem_request();
        again.get().set_ref(helper_ref.as_str());
        assert_eq!(code(&failure(again.send().promise).await), "revoked");
        let mut request = root.revoke_actor_request();
        let mut of_root = Producer::new();
        of_root.header(request.get().init_op());
        request.get().set_actor("lead");
        request.send().promise.await.unwrap();
        let mut request = done.delegate.complete_request();
        Producer::new().header(request.get().init_op());
        request.send().promise.await.unwrap();
        let mut request = as_object(&project).bump_epoch_request();
        Producer::new().header(request.get().init_op());
        request.send().promise.await.unwrap();
        let mut request = session.register_request();
        let mut registration = request.get().init_registration();
        registration.set_producer(&[5; 16]);
        registration.set_instance(&[6; 16]);
        request.send().promise.await.unwrap();
        let ears = std::rc::Rc::new(crate::feed::Ears::default());
        let _feed =
            crate::feed::feed(&session, &ears, |mut wish| wish.set_name("n")).await.unwrap();
        let mut request = session.forget_subscription_request();
        request.get().set_name("n");
        request.send().promise.await.unwrap();
        for _ in 0..5 {
            session.info_request().send().promise.await.unwrap();
        }

        let seen = look(&root, |_| ()).await;
        let numbers: Vec<_> = seen.iter().map(|seen| seen.number).collect();
        assert_eq!(numbers, (1..=seen.len() as u64).collect::<Vec<_>>(), "without gaps");
        assert!(seen.is_sorted_by_key(|seen| seen.at_ms));
        let kinds: BTreeSet<_> = seen.iter().map(|seen| seen.kind as u16).collect();
        // Pruning has a test of its own. The root's own ref was made, and may be lost and made again.
        let all_kinds: BTreeSet<_> = (1..=18).collect();
        assert_eq!(kinds, all_kinds);

        // The helper's appends are one entry or two, whichever way they were committed; three ops in all.
        let helpers: Vec<_> = seen.iter().filter(|seen| seen.grant == helper_grant).collect();
        let changed = helpers.iter().filter(|seen| seen.kind == AuditKind::Changed);
        assert_eq!(changed.map(|seen| seen.count).sum::<u64>(), 3);
        assert!(helpers.iter().all(|seen| seen.actors == "helper,lead"), "{helpers:?}");
        let of_kind = |kind| seen.iter().filter(move |seen| seen.kind == kind);
        let redeemed: Vec<_> = of_kind(AuditKind::Redeemed).collect();
        assert!(redeemed.iter().any(|seen| seen.subject == helper_grant));
        let denied: Vec<_> = of_kind(AuditKind::Denied)
            .map(|seen| (seen.code.as_str(), seen.right.as_str(), seen.count, seen.grant.len()))
            .collect();
        assert!(denied.contains(&("not-permitted", "read", 2, 16)), "{denied:?}");
        assert!(denied.contains(&("revoked", "", 1, 16)), "{denied:?}");
        let widening = of_kind(AuditKind::Denied).filter(|seen| seen.grant == limited_grant);
        assert_eq!(widening.map(|seen| seen.code.as_str()).collect::<Vec<_>>(), ["not-permitted"]);
        let guesses: Vec<_> =
            of_kind(AuditKind::Denied).filter(|seen| seen.code == "ref-refused").collect();
        let guessed: Vec<_> = guesses.iter().map(|seen| seen.subject.clone()).collect();
        assert!(guessed.contains(&helper_grant) && guessed.contains(&Vec::new()), "{guesses:?}");
        let revoked: Vec<_> = of_kind(AuditKind::Revoked).map(|seen| &seen.subject).collect();
        assert_eq!(revoked, [&helper_grant]);

        // Reads are counted, and told with the grants.
        let (reader, grant) =
            attenuate(&session, &mut producer, only(&[Right::Read])).await.unwrap();
        for _ in 0..7 {
            reader.info_request().send().promise.await.unwrap();
        }
        look(&root, |_| ()).await; // has them written down
        let answer = as_object(&root).grants_request().send().promise.await.unwrap();
        let infos = answer.get().unwrap().get_grants().unwrap();
        let info = infos.iter().find(|info| info.get_grant().unwrap() == grant).unwrap();
        assert_eq!(info.get_reads(), 7);
        assert!(info.get_last_used_at_ms() > 0);
    });
    server.kill_9();
    std::fs::remove_file(dir.path().join("root.ref")).unwrap();
    drop(Server::start_in(dir.path(), &[], &[]));
    let (code, text) = audit(dir.path(), &["--verify"]);
    assert_eq!(code, Some(0), "{text}");
    let (_, text) = audit(dir.path(), &["--kind", "root-rotated"]);
    assert_eq!(text.lines().count(), 2, "{text}");
}

#[test]
fn each_sees_what_was_done_under_its_own_grant_and_finds_it_by_grant_actor_object_time_and_kind() {
    let server = Server::start();
    local(async {
        let root = root(&server).await;
        let (_, session) = made(&root);
        let other = create_session(
            &open_project(&root, &mut Producer::new(), "/tree").pipeline.get_project(),
            &mut Producer::new(),
            "other",
        )
        .pipeline
        .get_session();
        let mut producer = Producer::new();
        let (ada, ada_grant) = attenuate(&session, &mut producer, named("ada")).await.unwrap();
        let (eve, eve_grant) = attenuate(&ada, &mut producer, named("eve")).await.unwrap();
        let (bob, bob_grant) = attenuate(&session, &mut producer, named("bob")).await.unwrap();
        put(&ada, &mut producer, &["1"]).await;
        put(&eve, &mut producer, &["2"]).await;
        put(&bob, &mut producer, &["3"]).await;
        put(&other, &mut Producer::new(), &["4"]).await;

        let seen = look(&ada, |_| ()).await;
        let grants: BTreeSet<_> = seen.iter().map(|seen| seen.grant.clone()).collect();
        assert!(grants.contains(&ada_grant) && grants.contains(&eve_grant));
        assert!(!grants.contains(&bob_grant), "nothing of its neighbour's");
        assert!(seen.iter().all(|seen| seen.kind != AuditKind::Started), "nor of the server's");
        // Its own making, by somebody above, is about it.
        assert!(seen.iter().any(|seen| seen.subject == ada_grant));
        let (reader, _) = attenuate(&session, &mut producer, only(&[Right::Read])).await.unwrap();
        let error = failure(as_object(&reader).audit_request().send().promise).await;
        assert_eq!(code(&error), "not-permitted");

        let everything = look(&root, |_| ()).await;
        let matching = |fits: &dyn Fn(&Seen) -> bool| {
            everything.iter().filter(|seen| fits(seen)).cloned().collect::<Vec<_>>()
        };
        let by_grant = look(&root, |mut filter| filter.set_grant(&ada_grant)).await;
        assert_eq!(
            by_grant,
            matching(&|seen| seen.grant == ada_grant || seen.subject == ada_grant)
        );
        let derived = look(&root, |mut filter| {
            filter.set_grant(&ada_grant);
            filter.set_derived(true);
        })
        .await;
        let family = [&ada_grant, &eve_grant];
        assert_eq!(
            derived,
            matching(&|seen| family.contains(&&seen.grant) || family.contains(&&seen.subject))
        );
        let by_actor = look(&root, |mut filter| filter.set_actor("eve")).await;
        assert_eq!(by_actor, matching(&|seen| seen.grant == eve_grant));
        let by_object = look(&root, |mut filter| filter.set_object_id("other")).await;
        assert_eq!(by_object, matching(&|seen| seen.object == "other"));
        assert!(!by_object.is_empty());
        let by_kind =
            look(&root, |filter| filter.init_kinds(1).set(0, AuditKind::Attenuated)).await;
        assert_eq!(by_kind, matching(&|seen| seen.kind == AuditKind::Attenuated));
        let middle = everything[everything.len() / 2].at_ms;
        let since = look(&root, |mut filter| filter.set_from_ms(middle)).await;
        assert_eq!(since, matching(&|seen| seen.at_ms >= middle));
        let until = look(&root, |mut filter| filter.set_until_ms(middle)).await;
        assert_eq!(until, matching(&|seen| seen.at_ms < middle));
        let outside = look(&ada, |mut filter| filter.set_grant(&bob_grant)).await;
        assert_eq!(outside, [], "a filter reaches no further than the grant");

        // By pages, forwards and backwards.
        let paged = pages(&root, |_| (), |mut page| page.set_limit(2)).await;
        assert_eq!(paged[..everything.len()], everything[..]);
        let mut backwards = pages(
            &root,
            |_| (),
            |mut page| {
                page.set_limit(3);
                page.set_newest_first(true);
            },
        )
        .await;
        backwards.reverse();
        assert_eq!(backwards[..everything.len()], everything[..]);
    });
}

/// A data directory with a trail, its server killed; and its head as `bowline audit --verify` tells it.
fn with_trail() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_in(dir.path(), &[], &[]);
    local(async {
        let (_, session) = made(&root(&server).await);
        let mut producer = Producer::new();
        for n in 0..10 {
            // For ever, in as many words.
            let ever =
                |mut narrowing: narrowing::Builder<'_>| narrowing.set_expires_at_ms(u64::MAX);
            let (held, grant) = attenuate(&session, &mut producer, ever).await.unwrap();
            put(&held, &mut producer, &[&format!("m{n}"), &format!("n{n}")]).await;
            revoke(&session, &mut producer, &grant).await.unwrap();
        }
    });
    server.kill_9();
    let (code, text) = audit(dir.path(), &["--verify"]);
    assert_eq!(code, Some(0), "{text}");
    let head = text.lines().last().unwrap().to_owned();
    (dir, head)
}

#[test]
fn whatever_is_changed_afterwards_is_noticed() {
    let (dir, head) = with_trail();
    let damages = [
        "UPDATE audit SET at_ms = at_ms + 1 WHERE number = 7",
        "UPDATE audit SET kind = 3 WHERE number = 7",
        "UPDATE audit SET granted = NULL WHERE number = 7",
        "UPDATE audit SET log = NULL WHERE number = 7",
        "UPDATE audit SET subject = 1 WHERE number = 7",
        "UPDATE audit SET count = count + 1 WHERE number = 7",
        "UPDATE audit SET position = position + 1 WHERE number = 7",
        "UPDATE audit SET code = 'x' WHERE number = 7",
        "UPDATE audit SET missing = 1 WHERE number = 7",
        "UPDATE audit SET digest = x'00' WHERE number = 7",
        "UPDATE audit SET hash = zeroblob(32) WHERE number = 7",
        "DELETE FROM audit WHERE number = 7",
        "DELETE FROM audit WHERE number < 7",
        "DELETE FROM audit WHERE number > 20",
        "UPDATE ops SET payload = x'00' WHERE position = 9",
        "UPDATE ops SET granted = 1 WHERE position = 12",
        "UPDATE ops SET op_id = zeroblob(16) WHERE position = 9",
        "DELETE FROM ops WHERE position = (SELECT max(position) FROM ops)",
        "INSERT INTO ops SELECT position + 100, log, cursor + 100, producer, seq + 100, op_id, granted, at_ms,
           kind, version, payload, project, batch, replaces FROM ops WHERE position = 9",
    ];
    let whole = std::fs::read(dir.path().join("bowline.db")).unwrap();
    let wal = std::fs::read(dir.path().join("bowline.db-wal")).unwrap_or_default();
    for damage in damages {
        let copy = tempfile::tempdir().unwrap();
        std::fs::write(copy.path().join("bowline.db"), &whole).unwrap();
        std::fs::write(copy.path().join("bowline.db-wal"), &wal).unwrap();
        let store = rusqlite::Connection::open(copy.path().join("bowline.db")).unwrap();
        store.pragma_update(None, "foreign_keys", false).unwrap();
        assert!(store.execute(damage, []).unwrap() > 0, "{damage}");
        drop(store);
        let (code, text) = audit(copy.path(), &["--verify"]);
        assert_eq!(code, Some(4), "{damage}: {text}");
    }
    // Grants are held against the history.
    for damage in [
        "UPDATE grants SET actor = 'eve' WHERE depth = 1 AND id = (SELECT max(id) FROM grants)",
        "UPDATE grants SET label = 'x' WHERE id = (SELECT max(id) FROM grants)",
        "UPDATE grants SET rights = 1 WHERE id = (SELECT max(id) FROM grants)",
        "UPDATE grants SET revoked_at_ms = NULL WHERE id = (SELECT max(id) FROM grants)",
        "UPDATE grants SET public_id = randomblob(16) WHERE id = (SELECT max(id) FROM grants)",
        "INSERT INTO grants (public_id, verifier, object_kind, object_log, rights, label, created_at_ms, parent, depth)
         SELECT randomblob(16), zeroblob(32), 0, 1, 255, '', 1, id, 1 FROM grants WHERE parent IS NULL",
        "INSERT INTO grants (public_id, verifier, object_kind, object_log, rights, label, created_at_ms)
         VALUES (randomblob(16), zeroblob(32), 0, 1, 255, '', 9000000000000)",
    ] {
        let copy = tempfile::tempdir().unwrap();
        std::fs::write(copy.path().join("bowline.db"), &whole).unwrap();
        std::fs::write(copy.path().join("bowline.db-wal"), &wal).unwrap();
        let store = rusqlite::Connection::open(copy.path().join("bowline.db")).unwrap();
        assert!(store.execute(damage, []).unwrap() > 0, "{damage}");
        drop(store);
        let verify =
            command(copy.path()).args(["verify", "--data"]).arg(copy.path()).output().unwrap();
        assert_eq!(verify.status.code(), Some(4), "{damage}");
        let report = String::from_utf8_lossy(&verify.stdout).into_owned();
        assert!(report.contains("the database is damaged"), "{damage}: {report}");
    }
    // A head that was written down elsewhere is still there, and another one is not.
    assert_eq!(audit(dir.path(), &["--verify", "--expect", &head]).0, Some(0));
    let (number, _) = head.split_once(':').unwrap();
    let forged = format!("{number}:00000000");
    let (code, text) = audit(dir.path(), &["--verify", "--expect", &forged]);
    assert_eq!(code, Some(4));
    assert!(text.contains("made anew"), "{text}");
    let (code, text) = audit(dir.path(), &["--verify", "--expect", "999999:00000000", "--json"]);
    assert_eq!(code, Some(4));
    let report: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
    assert_eq!((&report["ok"], report["problems"].as_array().unwrap().len()), (&false.into(), 1));
}

#[test]
fn old_entries_go_by_policy_and_the_chain_stays_whole() {
    let (dir, head) = with_trail();
    let (number, _) = head.split_once(':').unwrap();
    let number: u64 = number.parse().unwrap();
    let compact = |limits: &str| {
        let output = command(dir.path())
            .args(["compact", "--json", "--limit", limits, "--data"])
            .arg(dir.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        report["auditEntriesFreed"].as_u64().unwrap()
    };
    assert_eq!(compact("audit_entries_max=0"), 0, "0 keeps all");
    assert_eq!(compact("audit_entries_max=10"), number - 10);
    let (code, text) = audit(dir.path(), &["--verify", "--expect", &head]);
    assert_eq!(code, Some(0), "what was written down is among those kept: {text}");
    let (code, text) = audit(dir.path(), &["--verify", "--expect", "1:00000000"]);
    assert_eq!(code, Some(4));
    assert!(text.contains("let go of by policy"), "{text}");
    let output = command(dir.path()).args(["verify", "--data"]).arg(dir.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    // It goes on from there, and again; and a running server does it by itself.
    let flags = ["--limit", "history_sweep_ms=1000", "--limit", "audit_entries_max=4"];
    let server = Server::start_in(dir.path(), &flags, &[]);
    local(async {
        let root = root(&server).await;
        let session = fresh_session(&root);
        for n in 0..6 {
            put(&session, &mut Producer::new(), &[&format!("more{n}")]).await;
        }
        let pruned = |mut filter: audit_filter::Builder<'_>| {
            filter.reborrow().init_kinds(1).set(0, AuditKind::Pruned);
        };
        let before = look(&root, pruned).await.last().map_or(0, |seen| seen.number);
        while look(&root, pruned).await.last().is_none_or(|seen| seen.number == before) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
    server.kill_9();
    let (code, text) = audit(dir.path(), &["--verify"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(compact("audit_entries_max=1") > 0);
    let (code, text) = audit(dir.path(), &["--verify"]);
    assert_eq!(code, Some(0), "{text}");
    // Entries that tell of no ops, and nothing else.
    let flags = ["--limit", "audit_entries_max=0"];
    for _ in 0..3 {
        drop(Server::start_in(dir.path(), &flags, &[]));
    }
    assert!(compact("audit_entries_max=1") > 0);
    drop(Server::start_in(dir.path(), &flags, &[]));
    drop(Server::start_in(dir.path(), &flags, &[]));
    drop(Server::start_in(dir.path(), &flags, &[]));
    assert!(compact("audit_entries_max=1") > 0);
    let (code, text) = audit(dir.path(), &["--verify"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(compact("audit_entries_max=1"), 0, "it does not go on for ever");
    // By age: everything but the newest is older than a millisecond by now.
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert!(compact("audit_age_ms_max=1") > 0);
    let (code, text) = audit(dir.path(), &["--verify"]);
    assert_eq!(code, Some(0), "{text}");
    // Without the entry that tells of it, that something is gone is noticed.
    let store = rusqlite::Connection::open(dir.path().join("bowline.db")).unwrap();
    assert!(store.execute("DELETE FROM audit WHERE kind = 19", []).unwrap() > 0);
    drop(store);
    assert_eq!(audit(dir.path(), &["--verify"]).0, Some(4));
}

#[test]
fn people_read_it_as_lines_and_programs_as_json() {
    let (dir, _) = with_trail();
    let (code, text) = audit(dir.path(), &["--kind", "revoked", "--limit", "3"]);
    assert_eq!((code, text.lines().count()), (Some(0), 3), "{text}");
    assert!(
        text.lines().all(|line| line.contains("revoked") && line.contains("session ses_")),
        "{text}"
    );
    let (code, text) = audit(dir.path(), &["--json", "--since", "1h", "--limit", "1000"]);
    assert_eq!(code, Some(0));
    let entries: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(entries.len() > 30);
    assert_eq!(entries[0]["kind"], "started");
    let revoked = entries.iter().find(|entry| entry["kind"] == "revoked").unwrap();
    let grant = revoked["subject"].as_str().unwrap();
    let (_, text) = audit(dir.path(), &["--grant", grant, "--derived", "--json"]);
    assert!(text.lines().count() >= 3, "made, used, revoked: {text}");
    let (_, none) = audit(dir.path(), &["--until", "1h"]);
    assert_eq!(none, "", "nothing is that old");
    for bad in
        [["--kind", "nonsense"], ["--since", "soon"], ["--grant", "x"], ["--expect", "1:00000000"]]
    {
        assert_eq!(audit(dir.path(), &bad).0, Some(2), "{bad:?}");
    }
    let empty = tempfile::tempdir().unwrap();
    let (code, text) = audit(empty.path(), &[]);
    assert_eq!(code, Some(1));
    assert!(text.contains("there is no database"), "{text}");
}
