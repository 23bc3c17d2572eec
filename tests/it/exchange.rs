//! Export and import, by the real commands: documents both ways, and OpenCode's data.

use crate::conversation::Story;
use crate::opencode_data::{Shape, write_database, write_files};
use crate::support::*;
use bowline::wire::root_capnp::root;
use serde_json::Value;
use std::path::Path;
use std::process::Output;

fn run(data: &Path, args: &[&str]) -> Output {
    command(data).args(args).arg("--data").arg(data).output().unwrap()
}

/// Runs an import; what it says it did.
fn import(data: &Path, args: &[&str]) -> Value {
    let output = run(data, &[&["import", "--json"], args].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{errors}"))
}

fn export(data: &Path, session: &str, format: &str) -> Vec<u8> {
    let output = run(data, &["export", session, "--format", format]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Every session there is, with where its log ends.
async fn heads(root: &root::Client) -> Vec<(String, u64)> {
    let (mut found, mut token) = (Vec::new(), Vec::new());
    loop {
        let mut request = root.list_sessions_request();
        let archived = bowline::wire::session_capnp::Archived::Include;
        request.get().init_filter().set_archived(archived);
        request.get().set_token(&token);
        let answer = request.send().promise.await.unwrap();
        let answer = answer.get().unwrap();
        for session in answer.get_sessions().unwrap() {
            let id = session.get_id().unwrap().to_string().unwrap();
            found.push((id, session.get_head()));
        }
        if !answer.get_more() {
            found.sort();
            return found;
        }
        token = answer.get_token().unwrap().to_vec();
    }
}

fn all_heads(data: &Path) -> Vec<(String, u64)> {
    let server = Server::start_in(data, &[], &[]);
    local(async { heads(&root(&server).await).await })
}

fn verified(data: &Path) {
    let output = run(data, &["verify"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// 10,000 messages from a generated database; the second run changes nothing.
#[test]
fn an_opencode_database_is_imported_once_however_often() {
    let dir = tempfile::tempdir().unwrap();
    let (data, database) = (dir.path().join("data"), dir.path().join("opencode.db"));
    let shape = Shape { projects: 3, sessions: 40, messages_per_session: 250, seed: 7 };
    write_database(&database, shape);
    let path = database.to_str().unwrap();
    let first = import(&data, &["opencode", path]);
    assert_eq!(first["messagesAdded"], 10_000, "{first}");
    assert_eq!(first["sessionsCreated"], 40, "{first}");
    assert_eq!(first["untaken"], serde_json::json!({}), "{first}");
    let heads = all_heads(&data);
    let second = import(&data, &["opencode", path]);
    assert_eq!(second["messagesSame"], 10_000, "{second}");
    assert_eq!((&second["messagesAdded"], &second["messagesChanged"]), (&0.into(), &0.into()));
    assert_eq!(second["sessionsFound"], 40, "{second}");
    let moved: Vec<_> = all_heads(&data).into_iter().filter(|head| !heads.contains(head)).collect();
    assert_eq!(moved, [], "nothing was written");
    verified(&data);
}

/// Nothing disappears without a word: what is known about a project, and what sessions did to files, is there.
#[test]
fn what_opencode_keeps_beside_sessions_is_kept_too() {
    let dir = tempfile::tempdir().unwrap();
    let shape = Shape { projects: 3, sessions: 3, messages_per_session: 2, seed: 13 };
    let files = dir.path().join("files");
    write_files(&files, shape);
    let made: Vec<_> = crate::opencode_data::sessions(shape).collect();
    let diffs = serde_json::json!([{"file": "ä.rs", "before": "", "after": "x", "additions": 1}]);
    let path = |id: &str| files.join(format!("storage/session_diff/{id}.json"));
    std::fs::write(path(made[0].id()), diffs.to_string()).unwrap();
    let long = serde_json::json!([{"file": "long", "after": "x".repeat(600 << 10)}]);
    std::fs::write(path(made[1].id()), long.to_string()).unwrap();
    let data = dir.path().join("data");
    let done = import(&data, &["opencode", files.to_str().unwrap()]);
    assert_eq!(done["untaken"], serde_json::json!({ "too-large": 1 }), "{done}");
    let heads = all_heads(&data);
    import(&data, &["opencode", files.to_str().unwrap()]);
    assert_eq!(all_heads(&data), heads, "nothing was written");
    let told: Value = serde_json::from_slice(&export(&data, made[0].id(), "json")).unwrap();
    assert_eq!(told["info"]["session_diff"], diffs);
    let server = Server::start_in(&data, &[], &[]);
    local(async {
        let root = root(&server).await;
        for mut project in crate::opencode_data::projects(shape) {
            let mut request = root.project_request();
            request.get().set_id(project["id"].as_str().unwrap());
            let project_client = request.send().pipeline.get_project();
            let answer = project_client.info_request().send().promise.await.unwrap();
            let info = answer.get().unwrap().get_project().unwrap();
            assert_eq!(info.get_directory().unwrap(), project["worktree"].as_str().unwrap());
            let fields = project.as_object_mut().unwrap();
            let name = fields.remove("name").unwrap_or_default();
            assert_eq!(info.get_name().unwrap(), name.as_str().unwrap_or_default());
            fields.retain(|name, _| name != "id" && name != "worktree");
            let rest: Value =
                serde_json::from_str(info.get_rest().unwrap().to_str().unwrap()).unwrap();
            assert_eq!(rest, project);
        }
    });
    drop(server);
    verified(&data);
}

/// The older files hold the same, and give the same.
#[test]
fn older_files_of_opencode_are_imported_too_also_beside_a_running_server() {
    let dir = tempfile::tempdir().unwrap();
    let shape = Shape { projects: 2, sessions: 4, messages_per_session: 30, seed: 11 };
    let (files, database) = (dir.path().join("files"), dir.path().join("opencode.db"));
    write_files(&files, shape);
    write_database(&database, shape);
    let data = dir.path().join("data");
    let server = Server::start_in(&data, &[], &[]);
    let first = import(&data, &["opencode", files.to_str().unwrap()]);
    assert_eq!(first["messagesAdded"], 120, "{first}");
    // What the database says of the same messages is the same.
    let second = import(&data, &["opencode", database.to_str().unwrap()]);
    assert_eq!(second["messagesSame"], 120, "{second}");
    drop(server);
}

/// What was taken in goes out equal, in either form, and comes in again on another server; children before their
/// parents, and cut back where they were.
#[test]
fn a_session_goes_out_and_comes_in_equal() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two, three) =
        (dir.path().join("one"), dir.path().join("two"), dir.path().join("three"));
    let database = dir.path().join("opencode.db");
    let shape = Shape { projects: 2, sessions: 12, messages_per_session: 25, seed: 3 };
    write_database(&database, shape);
    let servers = [&one, &two, &three].map(|data| Server::start_in(data, &[], &[]));
    import(&one, &["opencode", database.to_str().unwrap()]);
    let mut made: Vec<_> = crate::opencode_data::sessions(shape).collect();
    made.reverse();
    let hard = |name: &str| made.iter().any(|session| session.info.get(name).is_some());
    assert!(["parentID", "revert", "permission", "summary", "metadata"].into_iter().all(hard));
    for session in &made {
        let id = session.id();
        let json = export(&one, id, "json");
        let binary = export(&one, id, "binary");
        assert!(binary.len() < json.len(), "{} is not less than {}", binary.len(), json.len());
        let told: Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(told["info"], session.info);
        let messages = session.messages.iter();
        let messages =
            messages.map(|(info, parts)| serde_json::json!({ "info": info, "parts": parts }));
        assert_eq!(told["messages"], Value::from(messages.collect::<Vec<_>>()), "{id}");
        // What is to be done is taken back with what is reverted.
        if session.info.get("revert").is_none() {
            assert_eq!(told["todos"], Value::from(session.todos.clone()), "{id}");
        }
        for (to, document, name) in [(&two, &json, "a.json"), (&three, &binary, "a.bowline")] {
            let file = dir.path().join(name);
            std::fs::write(&file, document).unwrap();
            let path = file.to_str().unwrap();
            let done = import(to, &[path]);
            assert_eq!(done["messagesAdded"], 25, "{done}");
            let again = import(to, &[path]);
            assert_eq!(again["messagesSame"], 25, "{again}");
            let after: Value = serde_json::from_slice(&export(to, id, "json")).unwrap();
            assert_eq!(told, after, "{name}");
        }
    }
    drop(servers);
    for data in [&one, &two, &three] {
        verified(data);
    }
}

/// What is broken is counted, told with its reason, and stops nothing.
#[test]
fn broken_rows_are_counted_and_the_rest_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let (data, database) = (dir.path().join("data"), dir.path().join("opencode.db"));
    let shape = Shape { projects: 1, sessions: 4, messages_per_session: 10, seed: 17 };
    write_database(&database, shape);
    let made: Vec<_> = crate::opencode_data::sessions(shape).collect();
    let message = |session: usize, n: usize| made[session].messages[n].0["id"].as_str().unwrap();
    let broken = rusqlite::Connection::open(&database).unwrap();
    broken.pragma_update(None, "foreign_keys", "off").unwrap();
    let set = "UPDATE message SET data = ?2 WHERE id = ?1";
    broken.execute(set, (message(0, 3), "{\"role\":")).unwrap();
    broken.execute(set, (message(1, 4), "{\"time\":{\"created\":1}}")).unwrap();
    broken.execute(set, (message(1, 5), "{\"role\":\"robot\"}")).unwrap();
    let moved = "UPDATE message SET session_id = 'ses_nowhere' WHERE id = ?1";
    broken.execute(moved, [message(2, 9)]).unwrap();
    let part = made[3].messages[1].1[0]["id"].as_str().unwrap();
    broken.execute("UPDATE part SET data = 'x' WHERE id = ?1", [part]).unwrap();
    drop(broken);
    let output = run(&data, &["import", "--json", "opencode", database.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(4), "{}", String::from_utf8_lossy(&output.stderr));
    let done: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&done["sessionsCreated"], &done["messagesAdded"]),
        (&4.into(), &36.into()),
        "{done}"
    );
    let untaken = &done["untaken"];
    assert_eq!((&untaken["no-role"], &untaken["unknown-role"]), (&1.into(), &1.into()), "{done}");
    // A message that cannot be read, and a part of another one.
    assert_eq!(untaken["not-json"], 2, "{done}");
    assert!(untaken["orphan"].as_u64().is_some_and(|count| count > 0), "{done}");
    let shown = done["untakenShown"].to_string();
    for id in [message(0, 3), message(1, 4), message(1, 5), message(2, 9), part] {
        assert!(shown.contains(id), "{id} is not in {shown}");
    }
    let again = run(&data, &["import", "opencode", database.to_str().unwrap()]);
    assert_eq!(again.status.code(), Some(4));
    verified(&data);
}

/// A session that has changed since is brought back to what its document says, as far as it is a conversation
/// still.
#[test]
fn a_document_that_is_taken_again_sets_right_what_has_changed_since() {
    use bowline::wire::message_capnp::{Action, rule};
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let document = dir.path().join("session.json");
    let rules = serde_json::json!([{"permission": "bash", "pattern": "*", "action": "deny"}]);
    let info = serde_json::json!({
        "id": "ses_1", "title": "one", "directory": "/w", "time": {"created": 1},
        "model": {"providerID": "p", "id": "m"}, "permission": rules,
        "summary": {"additions": 1, "deletions": 2, "files": 3},
    });
    let user = |id: &str| {
        let part = serde_json::json!({"id": format!("p{id}"), "type": "text", "text": id,
            "messageID": id, "sessionID": "ses_1"});
        let info = serde_json::json!({"id": id, "role": "user", "sessionID": "ses_1", "time": {"created": 1}});
        serde_json::json!({"info": info, "parts": [part]})
    };
    let told = serde_json::json!({"info": info, "messages": [user("u1"), user("u2")]});
    std::fs::write(&document, told.to_string()).unwrap();
    let path = document.to_str().unwrap();
    import(&data, &[path]);
    let server = Server::start_in(&data, &[], &[]);
    local(async {
        let mut request = root(&server).await.session_request();
        request.get().set_id("ses_1");
        let mut story = Story::new(request.send().pipeline.get_session());
        let changed = story.op(|op| {
            let mut list = op.init_update(5);
            list.reborrow().get(0).set_title("two");
            list.reborrow().get(1).init_model().set_model_id("other");
            let mut rule: rule::Builder<'_> = list.reborrow().get(2).init_set_rules(1).get(0);
            rule.set_permission("bash");
            rule.set_pattern("*");
            rule.set_action(Action::Allow);
            list.reborrow().get(3).init_summary().set_files(9);
            list.get(4).set_archived_at_ms(5);
        });
        assert_eq!(changed.await, "ok");
    });
    import(&data, &[path]);
    let after: Value = serde_json::from_slice(&export(&data, "ses_1", "json")).unwrap();
    for name in ["title", "model", "permission", "summary"] {
        assert_eq!(after["info"][name], told["info"][name], "{name}");
    }
    assert!(after["info"]["time"].get("archived").is_none());
    // What was left behind for something else stays there, and is told.
    local(async {
        let mut request = root(&server).await.session_request();
        request.get().set_id("ses_1");
        let mut story = Story::new(request.send().pipeline.get_session());
        story.tell("revert u2\nturn t1 u3\nfinish t1 completed\nshow -> u1:u1 u3:u3").await;
    });
    let heads = local(async { heads_of(&server).await });
    let again = import(&data, &[path]);
    assert_eq!(
        (&again["messagesSame"], &again["messagesAdded"]),
        (&1.into(), &0.into()),
        "{again}"
    );
    assert_eq!(again["untaken"], serde_json::json!({ "refused": 1 }), "{again}");
    assert!(again["untakenShown"].to_string().contains("u2"), "{again}");
    assert_eq!(local(async { heads_of(&server).await }), heads, "nothing was written");
    drop(server);
    verified(&data);
}

async fn heads_of(server: &Server) -> Vec<(String, u64)> {
    heads(&root(server).await).await
}

/// A session that was worked in, turns and all, comes back from a binary document as it was cut back.
#[test]
fn a_binary_document_carries_what_is_reverted() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    let server = Server::start_in(&one, &[], &[]);
    local(async {
        let root = root(&server).await;
        let mut story = Story::new(fresh_session(&root));
        story.tell("turn t1 u1\nsay t1 a1\ntext t1 a1 p1 one\ntext t1 a1 p2 two").await;
        story.tell("finish t1 completed\nuser u2 more\nrevert a1 p2\nshow -> u1:u1 a1:one").await;
    });
    drop(server);
    for (id, _) in all_heads(&one) {
        let file = dir.path().join("session.bowline");
        std::fs::write(&file, export(&one, &id, "binary")).unwrap();
        let path = file.to_str().unwrap();
        let done = import(&two, &[path]);
        assert_eq!(done["messagesAdded"], 3, "{done}");
        let heads = all_heads(&two);
        let again = import(&two, &[path]);
        assert_eq!(again["messagesSame"], 3, "{again}");
        assert_eq!(all_heads(&two), heads, "nothing was written");
        let server = Server::start_in(&two, &[], &[]);
        local(async {
            let mut request = root(&server).await.session_request();
            request.get().set_id(&id);
            let mut story = Story::new(request.send().pipeline.get_session());
            story.tell("show -> u1:u1 a1:one\nunrevert\nshow -> u1:u1 a1:one,two u2:more").await;
        });
    }
    verified(&two);
}

/// A child's document can be taken without its parent's, in either form, and says whose it was.
#[test]
fn a_child_comes_in_without_its_parent() {
    let dir = tempfile::tempdir().unwrap();
    let one = dir.path().join("one");
    let server = Server::start_in(&one, &[], &[]);
    local(async {
        let root = root(&server).await;
        let project = open_project(&root, &mut Producer::new(), "/w").pipeline.get_project();
        let mut numbers = Producer::new();
        for (id, parent) in [("above", ""), ("below", "above")] {
            let mut request = project.create_session_request();
            numbers.header(request.get().init_op());
            let mut draft = request.get().init_session();
            draft.set_id(id);
            draft.set_parent_id(parent);
            request.send().promise.await.unwrap();
        }
    });
    drop(server);
    for format in ["json", "binary"] {
        let file = dir.path().join(format);
        std::fs::write(&file, export(&one, "below", format)).unwrap();
        let alone = dir.path().join(format!("alone-{format}"));
        let done = import(&alone, &[file.to_str().unwrap()]);
        assert_eq!(done["sessionsCreated"], 1, "{done}");
        for _ in 0..2 {
            let told: Value = serde_json::from_slice(&export(&alone, "below", "json")).unwrap();
            assert_eq!(told["info"]["parentID"], "above", "{format}");
            import(&alone, &[file.to_str().unwrap()]);
        }
        verified(&alone);
    }
}

/// Mistakes are explained, and nothing is left behind.
#[test]
fn what_is_no_document_is_said_to_be_none() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Server::start_in(&data, &[], &[]);
    local(async {
        let root = root(&server).await;
        Story::new(fresh_session(&root)).tell("user m1 hello").await;
    });
    let odd = dir.path().join("odd");
    std::fs::write(&odd, "something else").unwrap();
    let cut = dir.path().join("cut.json");
    std::fs::write(&cut, r#"{"info":{"id":"ses_x","#).unwrap();
    for (args, exit, says) in [
        (vec!["import", odd.to_str().unwrap()], 1, "neither"),
        (vec!["import", cut.to_str().unwrap()], 1, "cut.json"),
        (vec!["import", "/nowhere"], 1, "/nowhere"),
        (vec!["import", "opencode"], 2, "where"),
        (vec!["import", "a", "b"], 2, "opencode"),
        (vec!["export", "nobody"], 1, "session-not-found"),
    ] {
        let output = run(&data, &args);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(exit), "{args:?}: {errors}");
        assert!(errors.contains(says), "{args:?}: {errors}");
    }
}

/// Killed in the middle, an import goes on where it was: everything is there once.
#[test]
fn an_import_that_was_killed_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (data, database) = (dir.path().join("data"), dir.path().join("opencode.db"));
    let shape = Shape { projects: 2, sessions: 12, messages_per_session: 150, seed: 5 };
    write_database(&database, shape);
    let mut random = Random::told();
    let mut cut = 0;
    for _ in 0..6 {
        let mut child = command(&data)
            .args(["import", "--json", "opencode"])
            .arg(&database)
            .arg("--data")
            .arg(&data)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(60 + random.below(250)));
        cut += u32::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(cut > 0, "none was cut short");
    let last = import(&data, &["opencode", database.to_str().unwrap()]);
    let of = |name: &str| last[name].as_u64().unwrap();
    assert_eq!(of("messagesAdded") + of("messagesSame"), 1_800, "{last}");
    assert_eq!(of("sessionsCreated") + of("sessionsFound"), 12, "{last}");
    assert_eq!(of("messagesChanged"), 0, "{last}");
    let again = import(&data, &["opencode", database.to_str().unwrap()]);
    assert_eq!(again["messagesSame"], 1_800, "{again}");
    verified(&data);
}
