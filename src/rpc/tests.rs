//! Authority at the door: every method against every right, and the end of a connection's scope.

mod bounds;
mod files;
mod sessions;

use super::scope::Powers;
use super::*;
use crate::clock::SystemClock;
use crate::model::grant::{Authority, Fallen};
use crate::model::ids::{GrantId, OpId, ShareId};
use crate::model::infos::ObjectKind;
use crate::model::rights::Rights;
use crate::model::sturdy_ref::{Secret, SturdyRef};
use crate::queries::{Showing, Shown};
use crate::store::{Store, grants, meta};
use crate::wire::bowline_capnp::{op_header, registration, vat};
use crate::wire::feed_capnp::sink;
use crate::wire::grant_capnp::object;
use crate::wire::root_capnp::{project, root};
use crate::wire::session_capnp::{session, share, turn};
use crate::wire::worktree_capnp::{snapshot, worktree};
use capnp::capability::{FromClientHook, Promise};
use futures::future::LocalBoxFuture;
use sessions::{begin_turn, project_id_of, session_key_of};
use std::cell::RefCell;
use std::sync::Arc;

const KEY: [u8; 32] = [9; 32];

/// A scope without a connection.
struct Alone;

impl Link for Alone {
    fn holding(&self, _: bool) {}
    fn room(&self) -> LocalBoxFuture<'_, ()> {
        Box::pin(async {})
    }
    fn peer(&self) -> Peer {
        Peer::Unknown
    }
}

/// A server without sockets: calls go straight to the objects.
struct Inside {
    house: Rc<House>,
    _dir: tempfile::TempDir,
    granted: Vec<(Rights, SturdyRef)>,
}

/// A store with a grant of the root for every single right, and one for all of them.
fn inside() -> Inside {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bowline.db");
    let mut store = Store::open(&path).unwrap();
    let tx = store.begin().unwrap();
    meta::create(&tx, RealmId([1; 16]), &KEY, 1).unwrap();
    let mut sets: Vec<Rights> = Right::ALL.map(|right| [right].into_iter().collect()).into();
    sets.push(Rights::all());
    let granted = sets
        .into_iter()
        .zip(1u8..)
        .map(|(rights, n)| {
            let secret = Secret::new([n; 32]);
            let sturdy_ref = SturdyRef { address: String::new(), grant: GrantId([n; 16]), secret };
            let grant = grants::NewGrant {
                id: sturdy_ref.grant,
                verifier: Some(sturdy_ref.secret.verifier(&VerifierKey(KEY))),
                kind: ObjectKind::Root,
                log: LogId::ROOT,
                authority: Authority { rights, ..Authority::of_operator() },
                label: "test",
                actor: "",
                parent: None,
                terms: grants::RefTerms::default(),
            };
            grants::create(&tx, &grant, 1).unwrap();
            (rights, sturdy_ref)
        })
        .collect();
    tx.commit().unwrap();
    let limits = Limits::default();
    let (engine, _) = Engine::start(store, &limits, Arc::new(SystemClock), |_| {}).unwrap();
    let readers = Readers::start(&path, 1, 100).unwrap();
    let worktrees = files::worktrees(dir.path(), &engine, &readers);
    let house = House {
        engine,
        readers,
        worktrees,
        realm: RealmId([1; 16]),
        verifier_key: VerifierKey(KEY),
        incarnation: 1,
        limits,
        address: "here:1".into(),
        clock: Arc::new(SystemClock),
        strangers: Arc::default(),
        keep_root_ref: Arc::new(|_| Box::pin(async {})),
    };
    Inside { house: Rc::new(house), _dir: dir, granted }
}

fn powers(rights: Rights, standing: Arc<crate::engine::Standing>) -> Powers {
    Powers::new(&Authority { rights, ..Authority::of_operator() }, standing)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, future)
}

async fn redeem(scope: &Rc<Scope>, sturdy_ref: &SturdyRef) -> root::Client {
    let vat: vat::Client = FromClientHook::new(bootstrap(scope.clone()).hook);
    let mut request = vat.redeem_request();
    request.get().set_ref(sturdy_ref.reveal());
    let answer = request.send().promise.await.unwrap();
    answer.get().unwrap().get_object().get_as_capability().unwrap()
}

/// A header nobody used before.
fn header(mut header: op_header::Builder<'_>, n: u8) {
    header.set_producer(&[n; 16]);
    header.set_producer_epoch(1);
    header.set_seq(1);
    header.set_op_id(&OpId([n; 16]).0);
}

fn open_project(
    root: &root::Client,
    n: u8,
) -> capnp::capability::Request<root::open_project_params::Owned, root::open_project_results::Owned>
{
    let mut request = root.open_project_request();
    header(request.get().init_op(), n);
    request.get().init_project().set_directory("/w");
    request
}

fn create_session(
    project: &project::Client,
    n: u8,
) -> capnp::capability::Request<
    project::create_session_params::Owned,
    project::create_session_results::Owned,
> {
    let mut request = project.create_session_request();
    header(request.get().init_op(), n);
    request.get().init_session();
    request
}

fn open_share(
    session: &session::Client,
    n: u8,
) -> capnp::capability::Request<session::share_params::Owned, session::share_results::Owned> {
    let mut request = session.share_request();
    header(request.get().init_op(), n);
    request.get().set_seed(&[n; 32]);
    request.get().init_share().set_append(true);
    request
}

/// A claim under the first grant of all.
fn claim_of(inside: &Inside, scope: &Rc<Scope>) -> Claim {
    let standing = inside.house.engine.stand(GrantKey(1));
    Claim::new(scope, GrantKey(1), powers(Rights::all(), standing)).ok().unwrap()
}

/// A claim to everything.
async fn all_claim(inside: &Inside, scope: &Rc<Scope>) -> Claim {
    let sturdy_ref = inside.granted.last().unwrap().1.clone();
    let grant = granted_by(inside, sturdy_ref).await;
    Claim::new(scope, grant, powers(Rights::all(), inside.house.engine.stand(grant))).ok().unwrap()
}

async fn granted_by(inside: &Inside, sturdy_ref: SturdyRef) -> GrantKey {
    let (own_ref, shown_for, key, now_ms) = (None, Shown::Ref, VerifierKey(KEY), 1);
    let showing = Showing { sturdy_ref, own_ref, shown_for, key, now_ms };
    inside.house.readers.redeem(showing).await.unwrap().unwrap().grant
}

type Outcome = Promise<(), capnp::Error>;
type Try = fn(&Held, u8) -> Outcome;

/// One object of each kind, all under the same grant.
struct Held {
    root: root::Client,
    project: project::Client,
    session: session::Client,
    share: share::Client,
    turn: turn::Client,
    worktree: worktree::Client,
    snapshot: snapshot::Client,
}

macro_rules! sent {
    ($request:expr) => {{
        let promise = $request.send().promise;
        Promise::from_future(async move { promise.await.map(|_| ()) })
    }};
}

use sent;

/// Every method of every object with authority, and the right it needs. `Vat` has none to check.
fn methods() -> impl Iterator<Item = &'static (&'static str, Option<Right>, Try)> {
    METHODS.iter().chain(sessions::METHODS).chain(files::METHODS)
}

/// Those of the server, its projects, shares, feeds and grants, and a part of those of sessions.
const METHODS: &[(&str, Option<Right>, Try)] = &[
    ("Root.openProject", Some(Right::Append), |Held { root, .. }, n| sent!(open_project(root, n))),
    ("Root.project", Some(Right::Read), |Held { root, .. }, _| {
        let mut request = root.project_request();
        request.get().set_id("p");
        sent!(request)
    }),
    ("Root.projects", Some(Right::Read), |Held { root, .. }, _| sent!(root.projects_request())),
    ("Root.register", Some(Right::Append), |Held { root, .. }, n| {
        let mut request = root.register_request();
        registration(request.get().init_registration(), n);
        sent!(request)
    }),
    ("Root.feed", Some(Right::Read), |Held { root, .. }, _| {
        let mut request = root.feed_request();
        request.get().set_sink(deaf());
        sent!(request)
    }),
    ("Root.forgetSubscription", Some(Right::Read), |Held { root, .. }, _| {
        let mut request = root.forget_subscription_request();
        request.get().set_name("n");
        sent!(request)
    }),
    ("Root.revokeActor", Some(Right::Admin), |Held { root, .. }, n| {
        let mut request = root.revoke_actor_request();
        header(request.get().init_op(), n.wrapping_add(140));
        request.get().set_actor("nobody");
        sent!(request)
    }),
    ("Root.rotate", Some(Right::Admin), |Held { root, .. }, n| {
        let mut request = root.rotate_request();
        header(request.get().init_op(), n.wrapping_add(160));
        // Too short, so that the root the other methods are tried on lives on.
        request.get().set_seed(&[n; 31]);
        sent!(request)
    }),
    ("Root.shares", Some(Right::Share), |Held { root, .. }, _| sent!(root.shares_request())),
    ("Root.sharing", Some(Right::Share), |Held { root, .. }, _| {
        let mut request = root.sharing_request();
        request.get().set_id("s");
        sent!(request)
    }),
    ("Project.info", Some(Right::Read), |Held { project, .. }, _| sent!(project.info_request())),
    ("Project.createSession", Some(Right::Append), |Held { project, .. }, n| {
        sent!(create_session(project, n.wrapping_add(100)))
    }),
    ("Project.session", Some(Right::Read), |Held { project, .. }, _| {
        let mut request = project.session_request();
        request.get().set_id("s");
        sent!(request)
    }),
    ("Project.sessions", Some(Right::Read), |Held { project, .. }, _| {
        sent!(project.sessions_request())
    }),
    ("Project.register", Some(Right::Append), |Held { project, .. }, n| {
        let mut request = project.register_request();
        registration(request.get().init_registration(), n);
        sent!(request)
    }),
    ("Project.feed", Some(Right::Read), |Held { project, .. }, _| {
        let mut request = project.feed_request();
        request.get().set_sink(deaf());
        sent!(request)
    }),
    ("Project.forgetSubscription", Some(Right::Read), |Held { project, .. }, _| {
        let mut request = project.forget_subscription_request();
        request.get().set_name("n");
        sent!(request)
    }),
    ("Project.shares", Some(Right::Share), |Held { project, .. }, _| {
        sent!(project.shares_request())
    }),
    ("Project.sharing", Some(Right::Share), |Held { project, .. }, _| {
        let mut request = project.sharing_request();
        request.get().set_id("s");
        sent!(request)
    }),
    ("Session.info", Some(Right::Read), |Held { session, .. }, _| sent!(session.info_request())),
    ("Session.append", Some(Right::Append), |Held { session, .. }, n| {
        let mut request = session.append_request();
        let mut batch = request.get().init_batch();
        batch.set_producer(&[n; 16]);
        batch.set_producer_epoch(1);
        batch.set_first_seq(1);
        let mut op = request.get().init_ops(1).get(0);
        op.set_op_id(&[n; 16]);
        op.init_put_message();
        sent!(request)
    }),
    ("Session.messages", Some(Right::Read), |Held { session, .. }, _| {
        sent!(session.messages_request())
    }),
    ("Session.register", Some(Right::Append), |Held { session, .. }, n| {
        let mut request = session.register_request();
        registration(request.get().init_registration(), n);
        sent!(request)
    }),
    ("Session.writer", Some(Right::Append), |Held { session, .. }, n| sent!(writer(session, n))),
    ("Session.feed", Some(Right::Read), |Held { session, .. }, _| {
        let mut request = session.feed_request();
        request.get().set_sink(deaf());
        sent!(request)
    }),
    ("Session.forgetSubscription", Some(Right::Read), |Held { session, .. }, _| {
        let mut request = session.forget_subscription_request();
        request.get().set_name("n");
        sent!(request)
    }),
    ("Session.delegate", Some(Right::Delegate), |Held { session, .. }, n| {
        let mut request = session.delegate_request();
        header(request.get().init_op(), n.wrapping_add(20));
        request.get().set_seed(&[n; 32]);
        sent!(request)
    }),
    ("Session.delegations", Some(Right::Delegate), |Held { session, .. }, _| {
        sent!(session.delegations_request())
    }),
    ("Session.child", Some(Right::Read), |Held { session, .. }, _| {
        let mut request = session.child_request();
        request.get().set_id("s");
        sent!(request)
    }),
    ("Session.heartbeat", None, |Held { session, .. }, _| sent!(session.heartbeat_request())),
    ("Session.complete", None, |Held { session, .. }, n| {
        let mut request = session.complete_request();
        header(request.get().init_op(), n.wrapping_add(30));
        sent!(request)
    }),
    ("Session.share", Some(Right::Share), |Held { session, .. }, n| {
        let mut request = session.share_request();
        header(request.get().init_op(), n.wrapping_add(40));
        request.get().set_seed(&[n; 32]);
        // A wish that makes no sense: otherwise the right that is handed on would have to be there, too.
        let mut draft = request.get().init_share();
        draft.set_append(true);
        draft.set_up_to("m");
        sent!(request)
    }),
    ("Session.shares", Some(Right::Share), |Held { session, .. }, _| {
        sent!(session.shares_request())
    }),
    ("Session.sharing", Some(Right::Share), |Held { session, .. }, _| {
        let mut request = session.sharing_request();
        request.get().set_id("s");
        sent!(request)
    }),
    ("Share.info", Some(Right::Read), |Held { share, .. }, _| sent!(share.info_request())),
    ("Share.read", Some(Right::Read), |Held { share, .. }, _| sent!(share.read_request())),
    ("Share.feed", Some(Right::Read), |Held { share, .. }, _| {
        let mut request = share.feed_request();
        request.get().set_sink(deaf());
        sent!(request)
    }),
    ("Share.appendOps", Some(Right::Append), |Held { share, .. }, n| {
        let mut request = share.append_ops_request();
        let mut batch = request.get().init_batch();
        batch.set_producer(&[n.wrapping_add(60); 16]);
        batch.set_producer_epoch(1);
        batch.set_first_seq(1);
        let mut op = request.get().init_ops(1).get(0);
        op.set_op_id(&[n.wrapping_add(60); 16]);
        op.init_put_message();
        sent!(request)
    }),
    ("Share.register", Some(Right::Append), |Held { share, .. }, n| {
        let mut request = share.register_request();
        registration(request.get().init_registration(), n.wrapping_add(70));
        sent!(request)
    }),
    ("Share.forgetSubscription", Some(Right::Read), |Held { share, .. }, _| {
        let mut request = share.forget_subscription_request();
        request.get().set_name("n");
        sent!(request)
    }),
    ("Share.unpublish", Some(Right::Share), |Held { share, .. }, n| {
        let mut request = share.unpublish_request();
        header(request.get().init_op(), n.wrapping_add(80));
        // Under an epoch that never was, so that the share the others are tried on lives on.
        request.get().get_op().unwrap().set_capability_epoch(99);
        sent!(request)
    }),
    // A streaming call says only that more may be sent; the one behind it hears what became of it.
    ("Writer.write", Some(Right::Append), |Held { session, .. }, n| {
        let writer = writer(session, n).send().pipeline.get_writer();
        let mut request = writer.write_request();
        let mut op = request.get().init_op();
        op.set_op_id(&[n; 16]);
        op.init_put_message();
        let written = request.send();
        Promise::from_future(async move {
            written.await?;
            writer.flush_request().send().promise.await.map(|_| ())
        })
    }),
    ("Writer.flush", Some(Right::Append), |Held { session, .. }, n| {
        sent!(writer(session, n).send().pipeline.get_writer().flush_request())
    }),
    ("Subscription.status", Some(Right::Read), |Held { session, .. }, _| {
        let mut request = session.feed_request();
        request.get().set_sink(deaf());
        sent!(request.send().pipeline.get_subscription().status_request())
    }),
    ("Object.describe", None, |Held { session, .. }, _| sent!(object(session).describe_request())),
    ("Object.attenuate", Some(Right::Delegate), |Held { session, .. }, n| {
        let mut request = object(session).attenuate_request();
        header(request.get().init_op(), n.wrapping_add(110));
        sent!(request)
    }),
    ("Object.save", Some(Right::Delegate), |Held { session, .. }, n| {
        let mut request = object(session).save_request();
        header(request.get().init_op(), n.wrapping_add(120));
        request.get().set_seed(&[n; 32]);
        sent!(request)
    }),
    ("Object.grants", Some(Right::Delegate), |Held { session, .. }, _| {
        sent!(object(session).grants_request())
    }),
    ("Object.revoke", Some(Right::Delegate), |Held { session, .. }, n| {
        let mut request = object(session).revoke_request();
        header(request.get().init_op(), n.wrapping_add(130));
        request.get().set_grant(&[99; 16]);
        sent!(request)
    }),
    ("Object.bumpEpoch", Some(Right::Admin), |Held { session, .. }, n| {
        let mut request = object(session).bump_epoch_request();
        header(request.get().init_op(), n.wrapping_add(150));
        sent!(request)
    }),
    ("Object.audit", Some(Right::Delegate), |Held { session, .. }, _| {
        sent!(object(session).audit_request())
    }),
];

fn object(session: &session::Client) -> object::Client {
    FromClientHook::new(session.client.hook.clone())
}

/// Methods of yours, which the server calls.
const OF_CLIENTS: &[&str] =
    &["Sink.events", "Sink.caughtUp", "Sink.gap", "Sink.grown", "Sink.ended", "Watcher.progress"];

/// A sink that hears nothing.
struct Deaf;
impl sink::Server for Deaf {}

fn deaf() -> sink::Client {
    capnp_rpc::new_client(Deaf)
}

fn registration(mut registration: registration::Builder<'_>, n: u8) {
    registration.set_producer(&[n; 16]);
    registration.set_instance(&[n; 16]);
}

fn writer(
    session: &session::Client,
    n: u8,
) -> capnp::capability::Request<session::writer_params::Owned, session::writer_results::Owned> {
    let mut request = session.writer_request();
    let mut draft = request.get().init_producer();
    draft.set_producer(&[n.wrapping_add(50); 16]);
    draft.set_producer_epoch(1);
    draft.set_first_seq(1);
    request
}

#[test]
fn every_method_needs_its_right_and_nothing_else() {
    let inside = inside();
    block_on(async {
        let scope = Scope::new(inside.house.clone(), Alone);
        // The objects themselves are made with every right, and then held with one.
        let all = redeem(&scope, &inside.granted.last().unwrap().1).await;
        let project = open_project(&all, 200).send().pipeline.get_project();
        create_session(&project, 201).send().promise.await.unwrap();
        let found = inside.house.readers.projects(crate::model::page::Page::new(0, 0, false)).await;
        let project_id = found.unwrap().items.remove(0).id;
        let project_key = inside.house.readers.project(project_id).await.unwrap();
        let found = inside
            .house
            .readers
            .sessions(project_key.log, crate::model::page::Page::new(0, 0, false))
            .await;
        let session_id = found.unwrap().items.remove(0).id;
        let session_key = inside.house.readers.session(project_key.log, session_id).await.unwrap();
        let session = super::session::client(all_claim(&inside, &scope).await, session_key.clone());
        open_share(&session, 202).send().promise.await.unwrap();
        let (_, turn_id, turn_cursor) = begin_turn(&session).await;
        let share_id = ShareId::made_by(OpId([202; 16]));
        let share_key = inside.house.readers.sharing(Stretch::Server, share_id).await.unwrap();

        for ((rights, sturdy_ref), n) in inside.granted.iter().zip(1u8..) {
            let grant = granted_by(&inside, sturdy_ref.clone()).await;
            let claim = || {
                let standing = inside.house.engine.stand(grant);
                Claim::new(&scope, grant, powers(*rights, standing)).ok().unwrap()
            };
            let (worktree, snapshot) = files::objects(claim);
            let held = Held {
                worktree,
                snapshot,
                root: super::root::client(claim()),
                project: super::project::client(claim(), project_key.clone()),
                session: super::session::client(claim(), session_key.clone()),
                share: super::share::client(claim(), share_key.clone()),
                turn: super::turn::client(claim(), session_key.log, turn_id.clone(), turn_cursor),
            };
            for (name, right, attempt) in methods() {
                let denied = match attempt(&held, n).await {
                    Ok(()) => false,
                    Err(error) => error.extra.contains("bowline/not-permitted"),
                };
                let needed = right.is_some_and(|right| !rights.contains(right));
                assert_eq!(denied, needed, "{name} with {rights:?}");
            }
        }
    });
}

#[test]
fn the_table_of_methods_is_complete() {
    // Whatever is in the directory, so that a new file is noticed, too.
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/schema");
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let schema: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|ending| ending == "capnp"))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    let mut declared = Vec::new();
    let mut interface = String::new();
    for line in schema.iter().flat_map(|text| text.lines()) {
        if let Some(rest) = line.strip_prefix("interface ") {
            interface = rest.split_whitespace().next().unwrap().to_owned();
        } else if line == "}" {
            interface.clear();
        } else if !interface.is_empty() && line.contains(" @") && !line.trim().starts_with('#') {
            declared.push(format!("{interface}.{}", line.split_whitespace().next().unwrap()));
        }
    }
    let mut checked: Vec<_> = methods().map(|(name, _, _)| (*name).to_owned()).collect();
    declared.retain(|method| !OF_CLIENTS.contains(&method.as_str()) && !method.starts_with("Vat."));
    declared.sort();
    checked.sort();
    assert_eq!(declared, checked, "a method without a rule");
}

/// Whatever right it needs, and if it needs none: under a grant that fell no method does anything.
#[test]
fn no_method_works_under_a_grant_that_fell() {
    let inside = inside();
    block_on(async {
        let scope = Scope::new(inside.house.clone(), Alone);
        let all = redeem(&scope, &inside.granted.last().unwrap().1).await;
        let answer = open_project(&all, 200).send().promise.await.unwrap();
        let project = answer.get().unwrap().get_project().unwrap();
        let answer = create_session(&project, 201).send().promise.await.unwrap();
        let session = answer.get().unwrap().get_session().unwrap();
        let answer = open_share(&session, 202).send().promise.await.unwrap();
        let share = answer.get().unwrap().get_share().unwrap();
        let (turn, turn_id, turn_cursor) = begin_turn(&session).await;
        let (worktree, snapshot) = files::objects(|| claim_of(&inside, &scope));
        let held = Held { root: all, project, session, share, turn, worktree, snapshot };
        let grant = granted_by(&inside, inside.granted.last().unwrap().1.clone()).await;
        let fell = [
            (Fallen::Revoked, "bowline/revoked"),
            (Fallen::Stale, "bowline/epoch-stale"),
            (Fallen::Lapsed, "bowline/delegation-ended"),
        ];
        // Only one can be first, so all of them on objects of their own.
        for (why, code) in fell {
            let standing = Arc::new(crate::engine::Standing::fallen(grant, why));
            let claim = || {
                let powers = powers(Rights::all(), standing.clone());
                Claim::new(&scope, grant, powers).ok().unwrap()
            };
            let found = inside.house.readers.project(project_id_of(&held).await).await.unwrap();
            let session_key = session_key_of(&inside, &held, found.log).await;
            let log = session_key.log;
            let share_id = ShareId::made_by(OpId([202; 16]));
            let share_key = inside.house.readers.sharing(Stretch::Server, share_id).await.unwrap();
            let (worktree, snapshot) = files::objects(claim);
            let dead = Held {
                worktree,
                snapshot,
                root: super::root::client(claim()),
                project: super::project::client(claim(), found),
                session: super::session::client(claim(), session_key),
                share: super::share::client(claim(), share_key),
                turn: super::turn::client(claim(), log, turn_id.clone(), turn_cursor),
            };
            for (name, _, attempt) in methods() {
                let error = attempt(&dead, 77).await.err();
                let error = error.unwrap_or_else(|| panic!("{name} worked"));
                // What is wrong with the words is found before anybody asks who says them.
                let malformed = error.extra.contains("malformed");
                assert!(error.extra.contains(code) || malformed, "{name}: {error}");
            }
        }
    });
}

#[test]
fn when_the_connection_is_over_every_object_says_so_and_keeps_nothing_alive() {
    let inside = inside();
    block_on(async {
        let scope = Scope::new(inside.house.clone(), Alone);
        let all = &inside.granted.last().unwrap().1;
        let root = redeem(&scope, all).await;
        let answer = open_project(&root, 200).send().promise.await.unwrap();
        let project = answer.get().unwrap().get_project().unwrap();
        let answer = create_session(&project, 201).send().promise.await.unwrap();
        let session = answer.get().unwrap().get_session().unwrap();
        session.info_request().send().promise.await.unwrap();
        let answer = open_share(&session, 202).send().promise.await.unwrap();
        let share = answer.get().unwrap().get_share().unwrap();
        let (turn, ..) = begin_turn(&session).await;
        let (worktree, snapshot) = files::objects(|| claim_of(&inside, &scope));
        let kept = Rc::strong_count(&inside.house);
        scope.close();
        assert_eq!(Rc::strong_count(&inside.house), kept - 1);
        let held = Held { root, project, session, share, turn, worktree, snapshot };
        let over = |name: &str, error: capnp::Error| {
            assert!(error.extra.contains("bowline/connection-over"), "{name}: {error}");
            assert_eq!(error.kind, capnp::ErrorKind::Disconnected);
        };
        for (name, _, attempt) in methods() {
            over(name, attempt(&held, 1).await.unwrap_err());
        }
        let vat: vat::Client = FromClientHook::new(bootstrap(scope.clone()).hook);
        over("Vat.hello", vat.hello_request().send().promise.await.err().unwrap());
        let mut request = vat.redeem_request();
        request.get().set_ref(all.reveal());
        over("Vat.redeem", request.send().promise.await.err().unwrap());
    });
}

#[test]
fn a_lesser_object_cannot_be_cast_to_a_greater_one() {
    let inside = inside();
    block_on(async {
        let scope = Scope::new(inside.house.clone(), Alone);
        let root = redeem(&scope, &inside.granted.last().unwrap().1).await;
        let project = open_project(&root, 200).send().pipeline.get_project();
        let answer = create_session(&project, 201).send().promise.await.unwrap();
        let session = answer.get().unwrap().get_session().unwrap();
        let share = open_share(&session, 202).send().promise.await.unwrap();
        let share = share.get().unwrap().get_share().unwrap();
        let writer = writer(&session, 3).send().pipeline.get_writer();
        let refused = async |error: Option<capnp::Error>| {
            let error = error.unwrap();
            assert_eq!(error.kind, capnp::ErrorKind::Unimplemented, "{error}");
        };
        let as_root: root::Client = session.client.cast_to();
        refused(as_root.projects_request().send().promise.await.err()).await;
        let as_session: session::Client = share.client.cast_to();
        refused(as_session.info_request().send().promise.await.err()).await;
        let as_session: session::Client = writer.client.clone().cast_to();
        refused(as_session.info_request().send().promise.await.err()).await;
        let as_object: object::Client = FromClientHook::new(writer.client.hook);
        refused(as_object.describe_request().send().promise.await.err()).await;
    });
}
