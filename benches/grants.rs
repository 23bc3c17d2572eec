//! What does authority cost: the check of every call, redeeming, taking back, and holding?
//!
//!     cargo bench --bench grants
//!
//! Every figure stands beside a peer or a limit in the same run: an unchecked call to the same server, an
//! append that is as durable as a redemption, raw SQLite doing the same update, and a stock capnp-rpc server
//! that holds as many objects that do nothing.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout
)]

mod common;

use bowline::clock::SystemClock;
use bowline::engine::Engine;
use bowline::limits::Limits;
use bowline::model::ids::GrantKey;
use bowline::store::Store;
use bowline::wire::grant_capnp::object;
use bowline::wire::root_capnp::root;
use capnp::capability::{Client, FromClientHook};
use common::{
    Producer, Server, StockServer, connect, create_session, header, local, middle, open_project,
    per_call,
};
use rusqlite::Connection;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROUND: Duration = Duration::from_millis(1_000);
const ROUNDS: usize = 5;
const TREE: i64 = 10_000;
const HELD: usize = 100_000;
/// As many as can be derived from one directly, but for those made to warm up.
const GRANTS: usize = 9_000;

fn main() {
    if common::is_stock_server() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    checks(dir.path());
    redemptions(dir.path());
    revocation(dir.path());
    holding(dir.path());
}

/// The check by itself, and a call with it beside one without.
fn checks(dir: &Path) {
    let store = Store::open(&dir.join("check.db")).unwrap();
    let (engine, _writer) =
        Engine::start(store, &Limits::default(), Arc::new(SystemClock), |_| {}).unwrap();
    let standing = engine.stand(GrantKey(1));
    let check_ns = || {
        const CHECKS: u32 = 20_000_000;
        let begun = Instant::now();
        for _ in 0..CHECKS {
            black_box(black_box(&standing).check(|| 0)).unwrap();
        }
        begun.elapsed().as_secs_f64() * 1e9 / f64::from(CHECKS)
    };
    let check_ns = middle((0..ROUNDS).map(|_| check_ns()).collect());

    let server = Server::start(&dir.join("checks"));
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let ((bare, bare_many), (checked, checked_many)) = local(async {
            let session = server.session().await;
            let vat = connect(&server.socket).await;
            let bare = per_call(move || {
                let call = vat.hello_request().send().promise;
                async move { call.await.map(|_| ()) }
            })
            .await;
            let checked = per_call(move || {
                let call = session.info_request().send().promise;
                async move { call.await.map(|_| ()) }
            })
            .await;
            (bare, checked)
        });
        without.push((bare, bare_many));
        with.push((checked, checked_many));
    }
    let of =
        |runs: &[(f64, f64)], pick: fn(&(f64, f64)) -> f64| middle(runs.iter().map(pick).collect());
    let (bare, many) = (of(&without, |it| it.0), of(&without, |it| it.1));
    let (checked, checked_many) = (of(&with, |it| it.0), of(&with, |it| it.1));
    println!(
        "the check of one call: {check_ns:.1} ns, {:.3} % of the call\n",
        check_ns / 10.0 / checked_many
    );
    println!("{:>34} {:>10} {:>12}", "µs a call", "in series", "64 in flight");
    println!("{:>34} {bare:>10.1} {many:>12.1}", "Vat.hello, nothing to check");
    println!("{:>34} {checked:>10.1} {checked_many:>12.1}", "Session.info, checked twice");
    println!("{:>34} {:>9.2}x {:>11.2}x\n", "ratio", checked / bare, checked_many / many);
}

/// Redemptions a second, each written down before it is answered, beside appends of one op.
fn redemptions(dir: &Path) {
    println!("{:>11} {:>12} {:>12} {:>7}", "connections", "redeem/s", "append/s", "ratio");
    let server = Server::start(&dir.join("redeem"));
    for connections in [1, 16, 64] {
        let (mut redeems, mut appends) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            redeems.push(local(async {
                let rate = |_| async {
                    let vat = connect(&server.socket).await;
                    rate(async || {
                        let mut request = vat.redeem_request();
                        request.get().set_ref(server.root_ref());
                        request.send().promise.await.map(|_| ())
                    })
                    .await
                };
                futures::future::join_all((0..connections).map(rate)).await.iter().sum()
            }));
            appends.push(local(async {
                let rate = |_| async {
                    let session = server.session().await;
                    let producer = std::cell::RefCell::new(Producer::new());
                    rate(async || {
                        let request = producer.borrow_mut().batch(&session, "x", 1);
                        let answer = request.send().promise.await?;
                        producer.borrow_mut().take(answer.get()?.get_ack()?);
                        Ok(())
                    })
                    .await
                };
                futures::future::join_all((0..connections).map(rate)).await.iter().sum()
            }));
        }
        let (redeems, appends) = (middle(redeems), middle(appends));
        let ratio = redeems / appends * 100.0;
        println!("{connections:>11} {redeems:>12.0} {appends:>12.0} {ratio:>5.0} %");
    }
    println!();
}

/// How often a second something can be done, one after the other.
async fn rate(mut again: impl AsyncFnMut() -> capnp::Result<()>) -> f64 {
    let begun = Instant::now();
    let mut done = 0;
    while begun.elapsed() < ROUND {
        again().await.unwrap();
        done += 1;
    }
    f64::from(done) / begun.elapsed().as_secs_f64()
}

/// A tree of grants is taken back, beside raw SQLite marking as many rows.
fn revocation(dir: &Path) {
    let (mut ours, mut raws) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let data = dir.join(format!("revoke-{round}"));
        let top = local(async {
            let server = Server::start(&data);
            let root = server.root().await;
            let mut request = as_object(&root).attenuate_request();
            header(&mut Producer::new(), request.get().init_op());
            request.send().promise.await.unwrap().get().unwrap().get_grant().unwrap().to_vec()
        });
        let store = Connection::open(data.join("bowline.db")).unwrap();
        plant(&store, &top);
        store.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        std::fs::copy(data.join("bowline.db"), data.join("raw.db")).unwrap();
        drop(store);
        let server = Server::start(&data);
        ours.push(local(async {
            let root = server.root().await;
            root.projects_request().send().promise.await.unwrap();
            let mut request = as_object(&root).revoke_request();
            header(&mut Producer::new(), request.get().init_op());
            request.get().set_grant(&top);
            let begun = Instant::now();
            let answer = request.send().promise.await.unwrap();
            assert_eq!(answer.get().unwrap().get_cut(), TREE as u64 + 1);
            begun.elapsed().as_secs_f64() * 1e3
        }));
        let raw = Connection::open(data.join("raw.db")).unwrap();
        raw.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL").unwrap();
        raw.query_row("SELECT count(*) FROM grants", [], |row| row.get::<_, i64>(0)).unwrap();
        let begun = Instant::now();
        let cut = raw.execute("UPDATE grants SET revoked_at_ms = 1, why = 0 WHERE depth >= 1", []);
        assert_eq!(cut.unwrap() as i64, TREE + 1);
        raws.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    let (ours, raw) = (middle(ours), middle(raws));
    println!("revoking a tree of {TREE} grants: {ours:.1} ms");
    println!("raw SQLite marking as many rows:    {raw:.1} ms ({:.1}x)\n", ours / raw);
}

/// Grants below one, ten to each and five deep at the most.
fn plant(store: &Connection, top: &[u8]) {
    let top: i64 = store
        .query_row("SELECT id FROM grants WHERE public_id = ?", [top], |row| row.get(0))
        .unwrap();
    store.execute_batch("BEGIN").unwrap();
    for n in 0..TREE {
        let parent = if n < 10 { top } else { top + n / 10 };
        store
            .execute(
                "INSERT INTO grants (id, public_id, verifier, object_kind, object_log, rights, label, created_at_ms,
                                     parent, depth)
                 SELECT ?1, randomblob(16), zeroblob(32), 0, 1, 255, '', 1, id, depth + 1 FROM grants WHERE id = ?2",
                [top + 1 + n, parent],
            )
            .unwrap();
    }
    store.execute_batch("COMMIT").unwrap();
}

/// Objects that are held and not used, beside those of a stock server.
fn holding(dir: &Path) {
    let many = (HELD * 2).to_string();
    let limit = |name: &str| format!("{name}={many}");
    let limits = [limit("objects_max"), limit("answers_unfinished_max")];
    let flags = ["--limit", &limits[0], "--limit", &limits[1]];
    let server = Server::start_with(&dir.join("holding"), &flags);
    let ours = local(async {
        let root = server.root().await;
        let project = open_project(&root, &mut Producer::new());
        let session = create_session(&project, &mut Producer::new(), "held");
        session.info_request().send().promise.await.unwrap();
        grown(
            || server.resident_kib(),
            async || {
                let mut request = project.session_request();
                request.get().set_id("held");
                let answer = request.send().promise.await.unwrap();
                answer.get().unwrap().get_session().unwrap().client
            },
        )
        .await
    });
    drop(server);
    let socket = dir.join("stock.sock");
    let stock = StockServer::start(&socket);
    let theirs = local(async {
        let vat = connect(&socket).await;
        grown(
            || stock.resident_kib(),
            async || {
                let answer = vat.redeem_request().send().promise.await.unwrap();
                answer.get().unwrap().get_object().get_as_capability::<Client>().unwrap()
            },
        )
        .await
    });
    println!(
        "objects held and not used, bytes of the server's memory each (goal: 1024 beyond stock):\n"
    );
    println!("{:>44} {:>6} {:>13}", "", "bytes", "beyond stock");
    println!("{:>44} {theirs:>6.0}", format!("{HELD} of a stock capnp-rpc server"));
    println!("{:>44} {ours:>6.0} {:>13.0}", format!("{HELD} under one grant"), ours - theirs);
    let each = under_grants_of_their_own(dir, &flags);
    println!(
        "{:>44} {each:>6.0} {:>13.0}",
        format!("{GRANTS} under a grant of their own"),
        each - theirs
    );
}

/// The same where every object is held under a grant of its own.
fn under_grants_of_their_own(dir: &Path, flags: &[&str]) -> f64 {
    let server = Server::start_with(&dir.join("grants"), flags);
    local(async {
        let root = server.root().await;
        let mut producer = Producer::new();
        let mut held = Vec::with_capacity(GRANTS);
        let mut before = 0;
        for n in 0..GRANTS + 1_000 {
            // What the server needs for the work itself is not counted.
            if n == 1_000 {
                before = server.resident_kib();
            }
            let mut request = as_object(&root).attenuate_request();
            header(&mut producer, request.get().init_op());
            request.get().get_op().unwrap().set_acked_through(producer.next - 2);
            let answer = request.send().promise.await.unwrap();
            held.push(answer.get().unwrap().get_object().get_as_capability::<Client>().unwrap());
        }
        (server.resident_kib() - before) as f64 * 1024.0 / GRANTS as f64
    })
}

/// How many bytes a server grows by for each object it is asked for.
async fn grown(resident_kib: impl Fn() -> u64, ask: impl AsyncFn() -> Client) -> f64 {
    let mut held = Vec::with_capacity(HELD);
    for _ in 0..1_000 {
        held.push(ask().await);
    }
    let before = resident_kib();
    for _ in 0..HELD {
        held.push(ask().await);
    }
    let bytes = resident_kib().saturating_sub(before) as f64 * 1024.0;
    drop(held);
    bytes / HELD as f64
}

fn as_object(root: &root::Client) -> object::Client {
    FromClientHook::new(root.client.hook.clone())
}
