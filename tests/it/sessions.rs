//! Sessions: made, listed, changed, forked and removed; projects by their repositories; long content.

use crate::conversation::Story;
use crate::grants::{all, save};
use crate::shares::publish;
use crate::support::*;
use bowline::wire::message_capnp::{Action, rule, session_change};
use bowline::wire::root_capnp::{project, root};
use bowline::wire::session_capnp::{Archived, session, session_filter};
use sha2::{Digest, Sha256};

async fn info<T>(
    session: &session::Client,
    read: impl FnOnce(bowline::wire::session_capnp::session_info::Reader<'_>) -> T,
) -> T {
    let answer = session.info_request().send().promise.await.unwrap();
    read(answer.get().unwrap().get_session().unwrap())
}

async fn id_of(session: &session::Client) -> String {
    info(session, |info| info.get_id().unwrap().to_string().unwrap()).await
}

fn create(
    project: &project::Client,
    producer: &mut Producer,
    id: &str,
    fill: impl FnOnce(bowline::wire::session_capnp::session_draft::Builder<'_>),
) -> session::Client {
    let mut request = project.create_session_request();
    producer.header(request.get().init_op());
    let mut draft = request.get().init_session();
    draft.set_id(id);
    fill(draft);
    request.send().pipeline.get_session()
}

fn located(
    directory: &str,
    path: &str,
    title: &str,
) -> impl FnOnce(bowline::wire::session_capnp::session_draft::Builder<'_>) {
    move |mut draft| {
        draft.set_title(title);
        let mut changes = draft.init_changes(if path == "-" { 1 } else { 2 });
        changes.reborrow().get(0).set_directory(directory);
        if path != "-" {
            changes.get(1).set_path(path);
        }
    }
}

/// All sessions a filter lets through, by pages of two.
async fn listed(
    project: &project::Client,
    fill: impl Fn(session_filter::Builder<'_>),
) -> Vec<String> {
    let (mut found, mut token) = (Vec::new(), Vec::new());
    loop {
        let mut request = project.list_sessions_request();
        fill(request.get().init_filter());
        request.get().set_token(&token);
        request.get().set_limit(2);
        let answer = request.send().promise.await.unwrap();
        let answer = answer.get().unwrap();
        for session in answer.get_sessions().unwrap() {
            found.push(session.get_id().unwrap().to_string().unwrap());
        }
        if !answer.get_more() {
            return found;
        }
        token = answer.get_token().unwrap().to_vec();
    }
}

async fn change(story: &mut Story, fill: impl FnOnce(session_change::Builder<'_>)) -> String {
    story.op(|op| fill(op.init_update(1).get(0))).await
}

/// S4–S9: newest first, by every filter, and nothing is skipped however sessions move.
#[test]
fn sessions_are_listed_by_what_happened_last_and_by_every_filter() {
    let server = Server::start();
    local(async {
        let root = root(&server).await;
        let mut producer = Producer::new();
        let project = open_project(&root, &mut producer, "/w").pipeline.get_project();
        let mut producer = Producer::new();
        let a = create(&project, &mut producer, "a", located("/w", "", "Fix the Parser"));
        let b = create(&project, &mut producer, "b", located("/w", "src", "100% done_x"));
        let c = create(&project, &mut producer, "c", located("/w", "src/deep", "parser again"));
        let d = create(&project, &mut producer, "d", located("/v", "-", "elsewhere"));
        let e = create(&project, &mut producer, "e", |mut draft| draft.set_parent_id("a"));
        for session in [&a, &b, &c, &d, &e] {
            id_of(session).await;
            Story::new(session.clone()).tell("user m hi").await;
            until_ms(now_ms() + 2).await;
        }
        assert_eq!(listed(&project, |_| {}).await, ["e", "d", "c", "b", "a"]);
        assert_eq!(listed(&project, |mut f| f.set_directory("/w")).await, ["c", "b", "a"]);
        assert_eq!(listed(&project, |mut f| f.set_path("src")).await, ["c", "b"]);
        let fallback = listed(&project, |mut f| {
            f.set_path("src");
            f.set_directory("/v");
        });
        assert_eq!(fallback.await, ["d", "c", "b"], "without a path its directory counts");
        assert_eq!(listed(&project, |mut f| f.set_roots(true)).await, ["d", "c", "b", "a"]);
        assert_eq!(listed(&project, |mut f| f.set_search("PARSER")).await, ["c", "a"]);
        // What is looked for is taken as it is.
        assert_eq!(listed(&project, |mut f| f.set_search("%")).await, ["b"]);
        assert_eq!(listed(&project, |mut f| f.set_search("_")).await, ["b"]);
        let start = info(&d, |info| info.get_updated_at_ms()).await;
        assert_eq!(listed(&project, |mut f| f.set_start(start)).await, ["e", "d"]);

        // S12 turned around: away, and back.
        let mut story = Story::new(b.clone());
        assert_eq!(change(&mut story, |mut c| c.set_archived_at_ms(-7)).await, "ok");
        assert!(info(&b, |info| info.get_archived()).await);
        assert_eq!(listed(&project, |_| {}).await, ["e", "d", "c", "a"]);
        assert_eq!(listed(&project, |mut f| f.set_archived(Archived::Only)).await, ["b"]);
        let all = listed(&project, |mut f| f.set_archived(Archived::Include)).await;
        assert_eq!(all, ["b", "e", "d", "c", "a"]);
        assert_eq!(change(&mut story, |mut c| c.set_unarchive(())).await, "ok");
        assert!(!info(&b, |info| info.get_archived()).await);

        // One that moves while the list is read comes again at the end; none is skipped.
        let mut request = project.list_sessions_request();
        request.get().set_limit(2);
        let answer = request.send().promise.await.unwrap();
        let answer = answer.get().unwrap();
        let mut seen: Vec<String> = Vec::new();
        let ids = |list: capnp::struct_list::Reader<
            '_,
            bowline::wire::session_capnp::session_info::Owned,
        >| {
            list.iter().map(|it| it.get_id().unwrap().to_string().unwrap()).collect::<Vec<_>>()
        };
        seen.extend(ids(answer.get_sessions().unwrap()));
        until_ms(now_ms() + 2).await;
        Story::new(a.clone()).tell("user m2 moves").await;
        let mut token = answer.get_token().unwrap().to_vec();
        loop {
            let mut request = project.list_sessions_request();
            request.get().set_token(&token);
            request.get().set_limit(2);
            let answer = request.send().promise.await.unwrap();
            let answer = answer.get().unwrap();
            seen.extend(ids(answer.get_sessions().unwrap()));
            if !answer.get_more() {
                break;
            }
            token = answer.get_token().unwrap().to_vec();
        }
        for id in ["a", "b", "c", "d", "e"] {
            assert!(seen.iter().any(|it| it == id), "{id} was skipped: {seen:?}");
        }
        let mut request = project.list_sessions_request();
        request.get().set_token(b"nonsense");
        assert_eq!(code(&request.send().promise.await.err().unwrap()), "token-malformed");
        assert_eq!(listed(&project, |mut f| f.set_search("nothing")).await, Vec::<String>::new());
    });
}

/// S1, S10, S11, S14: what is known about a session.
#[test]
fn what_is_known_about_a_session_changes_all_at_once() {
    let server = Server::start();
    local(async {
        let root = root(&server).await;
        let mut producer = Producer::new();
        let project = open_project(&root, &mut producer, "/w").pipeline.get_project();
        let mut producer = Producer::new();
        let plain = create(&project, &mut producer, "", |_| {});
        let title = info(&plain, |info| info.get_title().unwrap().to_string().unwrap()).await;
        assert!(title.starts_with("New session - 20") && title.ends_with('Z'), "{title}");
        let slug = info(&plain, |info| info.get_slug().unwrap().to_string().unwrap()).await;
        assert!(slug.contains('-'), "{slug}");
        let parent = id_of(&plain).await;
        let child = create(&project, &mut producer, "kid", |mut draft| {
            draft.set_parent_id(&parent);
            draft.set_created_at_ms(5);
        });
        let told = info(&child, |info| {
            (info.get_title().unwrap().to_string().unwrap(), info.get_created_at_ms())
        });
        let told = told.await;
        assert!(told.0.starts_with("Child session - ") && told.1 == 5, "{told:?}");
        let answer = plain.children_request().send().promise.await.unwrap();
        let children = answer.get().unwrap().get_sessions().unwrap();
        assert_eq!((children.len(), children.get(0).get_id().unwrap()), (1, "kid".into()));

        let mut story = Story::new(plain.clone());
        let changed = story.op(|op| {
            let mut changes = op.init_update(4);
            changes.reborrow().get(0).set_title("named");
            changes.reborrow().get(1).set_metadata(r#"{"a": 1}"#);
            changes.reborrow().get(2).set_rest(r#"{"odd":[1.50]}"#);
            let mut model = changes.get(3).init_model();
            model.set_provider_id("p");
            model.set_model_id("m");
        });
        assert_eq!(changed.await, "ok");
        info(&plain, |info| {
            assert_eq!(info.get_title().unwrap(), "named");
            assert_eq!(info.get_metadata().unwrap(), r#"{"a": 1}"#);
            assert_eq!(info.get_rest().unwrap(), r#"{"odd":[1.50]}"#, "byte for byte");
            assert_eq!(info.get_model().unwrap().get_model_id().unwrap(), "m");
        })
        .await;
        // One that makes no sense undoes the others of the same op.
        let refused = story.op(|op| {
            let mut changes = op.init_update(2);
            changes.reborrow().get(0).set_title("lost");
            changes.get(1).set_metadata("[1]");
        });
        assert_eq!(refused.await, "op-malformed");
        assert_eq!(info(&plain, |i| i.get_title().unwrap().to_string().unwrap()).await, "named");
    });
}

fn set_rule(mut to: rule::Builder<'_>, permission: &str, pattern: &str, action: Action) {
    to.set_permission(permission);
    to.set_pattern(pattern);
    to.set_action(action);
}

async fn permits(session: &session::Client, permission: &str, patterns: &[&str]) -> Action {
    let mut request = session.permits_request();
    request.get().set_permission(permission);
    let mut list = request.get().init_patterns(patterns.len() as u32);
    for (at, pattern) in (0..).zip(patterns) {
        list.set(at, pattern);
    }
    request.send().promise.await.unwrap().get().unwrap().get_action().unwrap()
}

/// P1, P2: server, project, session; and whoever was made for a session can only be stricter.
#[test]
fn rules_are_merged_and_children_are_only_stricter() {
    let server = Server::start();
    local(async {
        let root = root(&server).await;
        let mut producer = Producer::new();
        let project = open_project(&root, &mut producer, "/w").pipeline.get_project();
        let mut producer = Producer::new();
        let session = create(&project, &mut producer, "s", |_| {});
        assert_eq!(permits(&session, "bash", &["ls"]).await, Action::Ask, "without a rule");
        assert_eq!(permits(&session, "write", &["x"]).await, Action::Ask);
        let mut request = root.set_rules_request();
        Producer::new().header(request.get().init_op());
        set_rule(request.get().init_rules(1).get(0), "bash", "*", Action::Allow);
        request.send().promise.await.unwrap();
        assert_eq!(permits(&session, "bash", &["ls"]).await, Action::Allow);
        let mut request = project.set_rules_request();
        producer.header(request.get().init_op());
        set_rule(request.get().init_rules(1).get(0), "bash", "rm *", Action::Deny);
        request.send().promise.await.unwrap();
        assert_eq!(permits(&session, "bash", &["ls", "rm x"]).await, Action::Deny);
        let mut story = Story::new(session.clone());
        let added = change(&mut story, |c| {
            set_rule(c.init_add_rules(1).get(0), "edit", "src/*", Action::Allow);
        });
        assert_eq!(added.await, "ok");
        assert_eq!(permits(&session, "write", &["src/x"]).await, Action::Allow, "P5");
        assert_eq!(permits(&session, "apply_patch", &["src/x"]).await, Action::Allow);
        assert_eq!(permits(&session, "write", &["doc/x"]).await, Action::Ask);
        let added = change(&mut story, |c| {
            set_rule(c.init_add_rules(1).get(0), "bash", "rm tmp*", Action::Allow);
        });
        assert_eq!(added.await, "ok");
        assert_eq!(permits(&session, "bash", &["rm tmp1"]).await, Action::Allow);
        let child = create(&project, &mut producer, "kid", |mut draft| {
            draft.set_parent_id("s");
            let mut rules = draft.init_changes(1).get(0).init_set_rules(2);
            set_rule(rules.reborrow().get(0), "*", "*", Action::Allow);
            set_rule(rules.get(1), "bash", "ls", Action::Ask);
        });
        assert_eq!(permits(&child, "bash", &["rm x"]).await, Action::Deny, "not looser");
        assert_eq!(permits(&child, "bash", &["ls"]).await, Action::Ask, "but stricter");
        let bad = change(&mut story, |c| {
            let long = "x".repeat(5_000);
            set_rule(c.init_set_rules(1).get(0), "bash", &long, Action::Allow);
        });
        assert_eq!(bad.await, "rules-malformed");
    });
}

/// F1–F7 and R1: a fork is a copy of its own; removing takes everything along, and only that.
#[test]
fn a_fork_is_a_copy_of_its_own_and_removing_takes_all_of_a_session_along() {
    let mut server = Server::start();
    let data = server.data.clone();
    local(async {
        let root = root(&server).await;
        let mut producer = Producer::new();
        let project = open_project(&root, &mut producer, "/w").pipeline.get_project();
        let mut producer = Producer::new();
        let source = create(&project, &mut producer, "s", |mut draft| draft.set_title("X"));
        let mut story = Story::new(source.clone());
        story
            .tell(
                "turn t1 u1\nsay t1 a1\ntext t1 a1 p1 one\ntool t1 a1 p2 running
                 tool t1 a1 p2 completed out\nfinish t1 completed\ntodo x
                 compact c1 u1\nsummary s1 c1 stop\nturn t2 u2\nfinish t2 completed",
            )
            .await;
        let changed = change(&mut story, |mut c| {
            set_rule(c.reborrow().init_add_rules(1).get(0), "bash", "*", Action::Allow);
        });
        assert_eq!(changed.await, "ok");
        assert_eq!(change(&mut story, |mut c| c.set_agent("build")).await, "ok");
        assert_eq!(change(&mut story, |c| c.init_model().set_model_id("m")).await, "ok");
        let fork = |at: &str, story: &mut Story| {
            let mut request = story.session.fork_request();
            story.producer.header(request.get().init_op());
            request.get().init_fork().set_before(at);
            request.send()
        };
        let answer = fork("", &mut story).promise.await.unwrap();
        let copy = answer.get().unwrap().get_session().unwrap();
        let title = info(&copy, |info| info.get_title().unwrap().to_string().unwrap()).await;
        assert_eq!(title, "X (fork #1)");
        info(&copy, |info| {
            let from = info.get_forked_from().unwrap();
            assert_eq!(from.get_session_id().unwrap(), "s");
            assert_eq!(from.get_message_id().unwrap(), "u2");
            assert_eq!(info.get_todo_count(), 0, "not copied");
            assert_eq!(
                (info.get_rules().unwrap().len(), info.get_agent().unwrap()),
                (0, "".into())
            );
            assert_eq!(info.get_model().unwrap().get_model_id().unwrap(), "");
            assert_eq!(info.get_parent_id().unwrap(), "");
        })
        .await;
        let mut copied = Story::new(copy.clone());
        let shown = copied.line("show").await;
        let bodies: Vec<_> = shown.split(' ').map(|m| m.split_once(':').unwrap()).collect();
        let said: Vec<_> = bodies.iter().map(|(_, said)| *said).collect();
        assert_eq!(said, ["u1", "one,completed[out]", "compaction", "", "u2"]);
        assert!(bodies.iter().all(|(id, _)| id.starts_with("msg_")), "ids are new: {shown}");
        // Who answers whom, and where the tail begins, is remapped: the same context, under other ids.
        let (from, to) = (story.line("context").await, copied.line("context").await);
        let place = |context: &str, all: &str| {
            let all: Vec<_> = all.split(' ').map(|m| m.split(':').next().unwrap()).collect();
            context
                .split(' ')
                .map(|id| all.iter().position(|it| *it == id).unwrap())
                .collect::<Vec<_>>()
        };
        let source_shown = story.line("show").await;
        assert_eq!(place(&from, &source_shown), place(&to, &shown));

        let early = fork("c1", &mut story).promise.await.unwrap();
        let early = Story::new(early.get().unwrap().get_session().unwrap()).line("show").await;
        assert_eq!(early.split(' ').count(), 2, "strictly before: {early}");
        let error = fork("nobody", &mut story).promise.await.err().unwrap();
        assert_eq!(code(&error), "message-not-found");
        // They go their own ways.
        copied.tell("turn t1 u9\nfinish t1 completed").await;
        assert!(!story.line("show").await.contains("u9"));

        // A child, a ref and a share go with the session; the fork stays.
        let child = create(&project, &mut producer, "kid", |mut draft| draft.set_parent_id("s"));
        id_of(&child).await;
        let (sturdy_ref, _) = save(&source, &mut story.producer, all).await.unwrap();
        let (_, shared, _) = publish(&source, &mut story.producer, |_| {}).await.unwrap();
        let remove = |producer: &mut Producer, id: &str| {
            let mut request = project.remove_session_request();
            producer.header(request.get().init_op());
            request.get().set_id(id);
            request.send()
        };
        let answer = remove(&mut producer, "s").promise.await.unwrap();
        assert_eq!(answer.get().unwrap().get_removed(), 2);
        assert_eq!(refused(&server, &sturdy_ref).await, "revoked");
        assert_eq!(refused(&server, &shared).await, "revoked");
        for gone in [&source, &child] {
            let error = gone.messages_request().send().promise.await.err().unwrap();
            assert_eq!(code(&error), "session-not-found");
            let mut story = Story::new(gone.clone());
            assert_eq!(story.line("user m x").await, "session-not-found");
        }
        let error = remove(&mut producer, "s").promise.await.err().unwrap();
        assert_eq!(code(&error), "session-not-found");
        assert!(copied.line("show").await.ends_with("u9"));
        let answer = project.info_request().send().promise.await.unwrap();
        assert_eq!(answer.get().unwrap().get_project().unwrap().get_session_count(), 2);
    });
    server.signal(rustix::process::Signal::TERM);
    server.ended();
    let verified = command(&data).args(["verify", "--data"]).arg(&data).output().unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    let rebuilt = command(&data).args(["rebuild", "--data"]).arg(&data).output().unwrap();
    assert!(rebuilt.status.success(), "{}", String::from_utf8_lossy(&rebuilt.stderr));
    let verified = command(&data).args(["verify", "--data"]).arg(&data).output().unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

/// Opens a project; its id, and whether it was made.
async fn open(
    root: &root::Client,
    producer: &mut Producer,
    directory: &str,
    remote: &str,
    commit: &str,
) -> (String, bool) {
    let mut request = root.open_project_request();
    producer.header(request.get().init_op());
    let mut draft = request.get().init_project();
    draft.set_directory(directory);
    draft.set_remote(remote);
    draft.set_root_commit(commit);
    let answer = request.send().promise.await.unwrap();
    let created = answer.get().unwrap().get_created();
    let project = answer.get().unwrap().get_project().unwrap();
    let answer = project.info_request().send().promise.await.unwrap();
    (answer.get().unwrap().get_project().unwrap().get_id().unwrap().to_string().unwrap(), created)
}

/// §1.1: two clones are one project with two worktrees, and it stays the same when a remote appears.
#[test]
fn a_project_is_known_by_its_repository() {
    let server = Server::start();
    let commit = "0123456789abcdef0123456789abcdef01234567";
    local(async {
        let root = root(&server).await;
        let mut producer = Producer::new();
        let p = &mut producer;
        let https = "https://user@Example.com/org/repo.git";
        let (first, made) = open(&root, p, "/one", https, commit).await;
        assert!(made && first.len() == 40, "{first}");
        let (second, made) = open(&root, p, "/two", "git@example.com:org/repo", "").await;
        assert_eq!((second, made), (first.clone(), false), "another clone of the same remote");
        let (other, made) = open(&root, p, "/fork", "git@example.com:me/repo", commit).await;
        assert!(made && other != first, "another remote is another project");
        let (local, made) = open(&root, p, "/local", "", commit).await;
        assert_eq!((local.as_str(), made), (commit, true));
        let (again, made) = open(&root, p, "/local", "https://example.com/new/home", commit).await;
        assert_eq!((again, made), (local.clone(), false), "the same when a remote appears");
        let (clone, made) = open(&root, p, "/clone", "https://example.com/new/home", "").await;
        assert_eq!((clone, made), (local, false), "and known by it from then on");
        let (plain, made) = open(&root, p, "/plain", "file:///srv/git", "").await;
        assert!(made && plain.starts_with("prj_"));
        let mut request = root.project_request();
        request.get().set_id(&first);
        let project = request.send().pipeline.get_project();
        let answer = project.info_request().send().promise.await.unwrap();
        let told = answer.get().unwrap().get_project().unwrap();
        let trees = told.get_worktrees().unwrap();
        let trees: Vec<_> =
            trees.iter().map(|tree| tree.get_directory().unwrap().to_string().unwrap()).collect();
        assert_eq!(trees, ["/one", "/two"]);
        assert_eq!(told.get_remote().unwrap(), "example.com/org/repo");
    });
}

fn bytes_of(length: usize) -> Vec<u8> {
    (0..length).map(|at| b'a' + (at % 23) as u8).collect()
}

/// Uploads; how much is there, or the code of a failure.
async fn upload(session: &session::Client, hash: &[u8], said: u64, data: &[u8]) -> String {
    let mut request = session.upload_request();
    let mut content = request.get().init_content();
    content.set_hash(hash);
    content.set_bytes(said);
    let answer = match request.send().promise.await {
        Ok(answer) => answer,
        Err(error) => return code(&error).to_owned(),
    };
    let (upload, mut offset) =
        (answer.get().unwrap().get_upload().unwrap(), answer.get().unwrap().get_offset());
    while let Some(piece) = data.get(offset as usize..).filter(|rest| !rest.is_empty()) {
        let piece = &piece[..piece.len().min(1 << 20)];
        let mut request = upload.write_request();
        request.get().set_offset(offset);
        request.get().set_data(piece);
        if let Err(error) = request.send().await {
            return code(&error).to_owned();
        }
        offset += piece.len() as u64;
    }
    match upload.finish_request().send().promise.await {
        Ok(answer) => answer.get().unwrap().get_offset().to_string(),
        Err(error) => code(&error).to_owned(),
    }
}

/// Tens of megabytes in one part: uploaded in pieces, resumed, checked, read in pieces, and gone with its part.
#[test]
fn content_of_tens_of_megabytes_is_handed_over_and_read_in_pieces() {
    let server = Server::start();
    let data = bytes_of(30 << 20);
    let hash = Sha256::digest(&data);
    local(async {
        let root = root(&server).await;
        let session = fresh_session(&root);
        let mut story = Story::new(session.clone());
        story.tell("user m1 look").await;
        let name = |op: bowline::wire::session_capnp::session_op::Builder<'_>| {
            let mut put = op.init_put_part();
            put.set_message_id("m1");
            let mut part = put.init_part();
            part.set_id("file");
            let mut content = part.reborrow().init_content();
            content.set_hash(&hash);
            content.set_bytes(30 << 20);
            part.init_file().set_mime("image/png");
        };
        assert_eq!(story.op(name).await, "content-not-found");
        assert_eq!(
            upload(&session, &hash, 30 << 20, &data[..10 << 20]).await,
            (10 << 20).to_string()
        );
        assert_eq!(story.op(name).await, "content-not-found", "not before all of it is there");
        let mut request = session.upload_request();
        let mut content = request.get().init_content();
        content.set_hash(&hash);
        content.set_bytes(30 << 20);
        let answer = request.send().promise.await.unwrap();
        assert_eq!(answer.get().unwrap().get_offset(), 10 << 20, "it goes on where it ended");
        // A streaming call says only that more may be sent; the one behind it hears what became of it.
        let begun = answer.get().unwrap().get_upload().unwrap();
        let mut request = begun.write_request();
        request.get().set_offset(20 << 20);
        request.get().set_data(b"x");
        drop(request.send());
        let error = begun.finish_request().send().promise.await.err().unwrap();
        assert_eq!(code(&error), "content-gap");
        assert_eq!(upload(&session, &hash, 30 << 20, &data).await, (30 << 20).to_string());
        assert_eq!(story.op(name).await, "ok");

        let mut read = Vec::new();
        while read.len() < data.len() {
            let mut request = session.content_request();
            request.get().set_hash(&hash);
            request.get().set_offset(read.len() as u64);
            let answer = request.send().promise.await.unwrap();
            assert_eq!(answer.get().unwrap().get_bytes(), 30 << 20);
            read.extend_from_slice(answer.get().unwrap().get_data().unwrap());
        }
        assert!(read == data, "what was uploaded is what is read");
        // Knowing the hash is no right to read it, nor to name it.
        let other = fresh_session(&root);
        let mut request = other.content_request();
        request.get().set_hash(&hash);
        let error = request.send().promise.await.err().unwrap();
        assert_eq!(code(&error), "content-not-found");
        let mut theirs = Story::new(other.clone());
        theirs.tell("user m1 look").await;
        assert_eq!(theirs.op(name).await, "content-not-found");
        assert_eq!(upload(&other, &[7; 32], 3, b"abc").await, "content-malformed");
        assert_eq!(upload(&other, &[7; 31], 3, b"abc").await, "content-malformed");
        assert_eq!(upload(&other, &[7; 32], 2, b"abc").await, "content-malformed");
        assert_eq!(upload(&other, &[7; 32], 1 << 40, b"abc").await, "content-too-large");
        assert!(server.resident_peak_kib() < 300 << 10, "{} KiB", server.resident_peak_kib());
    });
}

/// A text that grows beyond what is told with its part becomes content, and a message with many parts is told in
/// pieces.
#[test]
fn long_texts_become_content_and_many_parts_are_told_in_pages() {
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut story = Story::new(session.clone());
        story.tell("turn t1 u1\nsay t1 a1\nopen t1 a1 long").await;
        let piece = "0123456789abcdef".repeat(4096);
        for n in 0..5u64 {
            let length = (n + 1) * piece.len() as u64;
            let line = format!("delta long {} {piece}", n * piece.len() as u64);
            assert_eq!(story.line(&line).await, length.to_string());
        }
        story.tell("close t1 a1 long").await;
        for n in 0..6 {
            let said = "y".repeat(100 << 10);
            story.tell(&format!("text t1 a1 p{n} {said}")).await;
        }
        story.tell("finish t1 completed").await;
        let answer = session.messages_request().send().promise.await.unwrap();
        let message = answer.get().unwrap().get_messages().unwrap().get(1);
        let parts = message.get_body().unwrap().get_parts().unwrap();
        let content = parts.get(0).get_content().unwrap();
        assert_eq!(content.get_bytes(), 5 * piece.len() as u64);
        let whole = piece.repeat(5);
        assert_eq!(content.get_hash().unwrap(), &Sha256::digest(&whole)[..]);
        let mut after = message.get_parts_after();
        let mut count = parts.len();
        assert!(after > 0 && count < 7, "they do not fit all");
        while after > 0 {
            let mut request = session.parts_request();
            request.get().set_message_id("a1");
            request.get().set_after(after);
            let answer = request.send().promise.await.unwrap();
            count += answer.get().unwrap().get_parts().unwrap().len();
            after = answer.get().unwrap().get_parts_after();
        }
        assert_eq!(count, 7);
    });
}

/// A message that is more than one op can be is forked part by part, and is the same.
#[test]
fn a_message_too_large_for_one_op_is_forked_whole() {
    let mut server = Server::start();
    let data = server.data.clone();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut story = Story::new(session.clone());
        story.tell("user u1 hello\nuser u2 more").await;
        for n in 0..300 {
            story.tell(&format!("text - u1 p{n} {n}{}", "y".repeat(6_000))).await;
        }
        let mut request = session.fork_request();
        story.producer.header(request.get().init_op());
        request.get().init_fork();
        let answer = request.send().promise.await.unwrap();
        let fork = answer.get().unwrap().get_session().unwrap();
        let (mut texts, mut after) = (Vec::new(), 0);
        let answer = fork.messages_request().send().promise.await.unwrap();
        let messages = answer.get().unwrap().get_messages().unwrap();
        let id = messages.get(0).get_id().unwrap().to_string().unwrap();
        loop {
            let mut request = fork.parts_request();
            request.get().set_message_id(&id);
            request.get().set_after(after);
            let answer = request.send().promise.await.unwrap();
            let answer = answer.get().unwrap();
            for part in answer.get_parts().unwrap() {
                match part.which().unwrap() {
                    bowline::wire::message_capnp::part::Text(text) => {
                        texts.push(text.unwrap().to_string().unwrap());
                    }
                    _ => panic!("no text"),
                }
            }
            after = answer.get_parts_after();
            if after == 0 {
                break;
            }
        }
        assert_eq!(texts.len(), 301);
        assert_eq!((texts[0].as_str(), &texts[300][..5]), ("hello", "299yy"));
        let mut theirs = Story::new(fork);
        assert!(theirs.line("show").await.ends_with(":more"));
    });
    server.signal(rustix::process::Signal::TERM);
    server.ended();
    let verified = command(&data).args(["verify", "--data"]).arg(&data).output().unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

/// A message of many megabytes costs no more memory than a page of it, whatever is asked about it.
#[test]
fn a_large_session_is_never_held_as_a_whole() {
    use crate::feed::{Ears, feed};
    let server = Server::start();
    local(async {
        let session = fresh_session(&root(&server).await);
        let mut story = Story::new(session.clone());
        story.tell("user u1 hello\nuser big x").await;
        let text = "x".repeat(100_000);
        let (batch, batches) = (8u32, 250);
        for at in 0..batches {
            story.producer.acked_through = story.producer.next - 1;
            let texts = vec!["x"; batch as usize];
            let mut request = story.producer.batch(&session, &texts);
            let mut ops = request.get().get_ops().unwrap();
            for n in 0..batch {
                let mut put = ops.reborrow().get(n).init_put_part();
                put.set_message_id("big");
                let mut part = put.init_part();
                part.set_id(format!("p{at}-{n}"));
                part.set_text(&text);
            }
            let answer = request.send().promise.await.unwrap();
            assert!(!answer.get().unwrap().get_ack().unwrap().has_stopped());
        }
        story.tell("user u2 more").await;
        let before_kib = server.resident_peak_kib();

        let mut request = session.plan_request();
        request.get().init_limits().set_context(1_000_000);
        let answer = request.send().promise.await.unwrap();
        let used = answer.get().unwrap().get_plan().unwrap().get_used();
        assert!((50_000_000..50_000_100).contains(&used), "{used}");
        for _ in 0..3 {
            session.context_request().send().promise.await.unwrap();
            session.messages_request().send().promise.await.unwrap();
        }
        let mut request = session.fork_request();
        story.producer.header(request.get().init_op());
        let answer = request.send().promise.await.unwrap();
        let fork = answer.get().unwrap().get_session().unwrap();
        drop(answer);
        let ears = std::rc::Rc::new(Ears::default());
        let _feed = feed(&fork, &ears, |_| {}).await.unwrap();
        ears.heard(|lines| lines.iter().any(|line| line.starts_with("caught-up"))).await;
        let parts = ears.lines().iter().filter(|line| line.contains(" part ")).count();
        assert_eq!(parts as u32, batch * batches + 1, "every part, and in order");

        // Whatever it asked for since, it held a small part of the 200 MB at a time.
        let grown_kib = server.resident_peak_kib() - before_kib;
        println!("{grown_kib} KiB more than before, of {before_kib}");
        assert!(grown_kib < 80 << 10, "{grown_kib} KiB");
    });
}
