//! What is read of OpenCode's data, whichever way it is kept.

use super::*;
use rusqlite::Connection;
use serde_json::value::RawValue;
use tempfile::{TempDir, tempdir};

#[test]
fn parents_come_before_their_children() {
    // A line for each session: its id, its parent; then what is expected.
    let cases = [
        ("a - | b - | c a | d c", "a c d b"),
        ("d c | c a | a - | b -", "a c d b"),
        ("a x | b a", "a? b"),
        ("a b | b a | c a", "a? b c"),
        ("a a", "a?"),
        ("", ""),
    ];
    for (sessions, expected) in cases {
        let found: Vec<_> = sessions
            .split(" | ")
            .filter_map(|line| line.split_once(' '))
            .map(|(id, parent)| Listed {
                id: id.into(),
                project_id: "p".into(),
                parent_id: (parent != "-").then(|| parent.into()),
                parent_known: false,
            })
            .collect();
        let order: Vec<_> = parents_first(found)
            .iter()
            .map(|session| {
                let unknown = session.parent_id.is_some() && !session.parent_known;
                format!("{}{}", session.id, if unknown { "?" } else { "" })
            })
            .collect();
        assert_eq!(order.join(" "), expected, "{sessions}");
    }
}

#[test]
fn what_is_opened_is_told_by_what_it_is() {
    let directory = tempdir().unwrap();
    let path = directory.path();
    let said = |path: &Path| match open(path) {
        Ok(Source { kind: Kind::Database(_), .. }) => "a database".to_owned(),
        Ok(Source { kind: Kind::Files(_), .. }) => "files".to_owned(),
        Err(error) => error.to_string(),
    };
    assert!(said(&path.join("none")).contains("cannot be read"));
    assert!(said(path).contains("neither opencode.db nor"));

    fs::create_dir_all(path.join("storage/session")).unwrap();
    assert_eq!(said(path), "files");
    assert_eq!(said(&path.join("storage")), "files");

    fs::write(path.join("opencode.db"), "text").unwrap();
    assert!(said(&path.join("opencode.db")).contains("no database of SQLite"));
    fs::remove_file(path.join("opencode.db")).unwrap();
    let other = path.join("opencode-beta.db");
    rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
    assert!(said(path).contains("it has no table session"), "{}", said(path));

    for name in ["opencode.db", "opencode.db-wal", "opencoder.db", "opencode-x.db.bak"] {
        fs::write(path.join(name), "").unwrap();
    }
    let several = said(path);
    assert!(several.contains("name one of them") && several.contains("opencode-beta.db"));
    assert_eq!(several.matches(".db").count(), 2, "{several}");
}

/// Writes down what it is given, in short.
#[derive(Default)]
struct Notes(Vec<String>);

impl Notes {
    fn note(&mut self, line: String) -> Result<(), Stop> {
        self.0.push(line);
        Ok(())
    }
}

impl Taker for Notes {
    fn session(&mut self, info: &RawValue) -> Result<(), Stop> {
        self.note(format!("session {info}"))
    }

    fn message(&mut self, info: &RawValue, parts: &[Box<RawValue>]) -> Result<(), Stop> {
        let parts: Vec<_> = parts.iter().map(|part| part.get()).collect();
        self.note(format!("message {info} [{}]", parts.join(",")))
    }

    fn diffs(&mut self, diffs: &[Box<RawValue>]) -> Result<(), Stop> {
        self.note(format!("{} diffs", diffs.len()))
    }

    fn todos(&mut self, todos: &[Box<RawValue>]) -> Result<(), Stop> {
        let todos: Vec<_> = todos.iter().map(|todo| todo.get()).collect();
        self.note(format!("todos {}", todos.join(" ")))
    }

    fn untaken(&mut self, untaken: Untaken) -> Result<(), Stop> {
        self.note(format!("not {} {}: {}", untaken.thing, untaken.id, untaken.reason))
    }
}

/// Everything there is to hear from a source.
fn noted(source: &Source) -> Vec<String> {
    let mut notes = Notes::default();
    let mut untaken = Vec::new();
    for project in source.projects(&mut |it| untaken.push(it)).unwrap() {
        let Project { id, worktree, name, vcs, rest } = project;
        notes.0.push(format!("project {id} {worktree} {name:?} {vcs:?} {rest}"));
    }
    for session in source.sessions().unwrap() {
        source.read(&session, &mut notes).unwrap();
    }
    source.orphans(&mut |it| untaken.push(it)).unwrap();
    untaken.into_iter().for_each(|it| notes.untaken(it).unwrap());
    notes.0
}

fn database(script: &str) -> (TempDir, Source) {
    let directory = tempdir().unwrap();
    let path = directory.path().join("opencode.db");
    Connection::open(&path).unwrap().execute_batch(script).unwrap();
    let source = open(directory.path()).unwrap();
    (directory, source)
}

const TABLES: &str = "
    CREATE TABLE project (id TEXT PRIMARY KEY, worktree TEXT, vcs TEXT, name TEXT, icon_url TEXT,
        icon_url_override TEXT, icon_color TEXT, time_created INTEGER, time_updated INTEGER,
        time_initialized INTEGER, sandboxes TEXT, commands TEXT);
    CREATE TABLE session (id TEXT PRIMARY KEY, project_id TEXT, workspace_id TEXT, parent_id TEXT,
        slug TEXT, directory TEXT, path TEXT, title TEXT, version TEXT, share_url TEXT,
        summary_additions INTEGER, summary_deletions INTEGER, summary_files INTEGER,
        summary_diffs TEXT, metadata TEXT, cost REAL, tokens_input INTEGER, tokens_output INTEGER,
        tokens_reasoning INTEGER, tokens_cache_read INTEGER, tokens_cache_write INTEGER,
        revert TEXT, permission TEXT, agent TEXT, model TEXT, time_created INTEGER,
        time_updated INTEGER, time_compacting INTEGER, time_archived INTEGER);
    CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER,
        time_updated INTEGER, data TEXT);
    CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, time_created INTEGER,
        time_updated INTEGER, data TEXT);
    CREATE TABLE todo (session_id TEXT, content TEXT, status TEXT, priority TEXT, position INTEGER);
    CREATE TABLE something_new (id TEXT);
";

#[test]
fn a_database_is_told_in_the_shape_opencode_tells_it_in() {
    let (directory, source) = database(&format!(
        r#"{TABLES}
        INSERT INTO project VALUES ('prj', '/tree', 'git', NULL, 'u', NULL, NULL, 1, 2, NULL, '["/b"]', NULL);
        INSERT INTO session (id, project_id, slug, directory, path, title, version, time_created, time_updated)
            VALUES ('ses_1', 'prj', 'calm-wolf', '/tree', '', 'Grüße', '1.18', 5, 6);
        INSERT INTO session VALUES ('ses_0', 'prj', 'wrk', 'ses_1', 's', '/tree', 'src', 't', '1', 'http://x',
            1, NULL, 2, '[{{}}]', '{{ "m": 1e3 }}', 0.25, 1, 2, 3, 4, 5, '{{"messageID":"m"}}', '[]', 'build',
            '{{"id":"m","providerID":"p"}}', 1, 2, 3, -4.5);
        INSERT INTO message VALUES ('msg_2', 'ses_1', 1, 1, '{{"role":"user"}}'), -- older, though its id is not
            ('msg_1', 'ses_1', 2, 2, '{{"role":"assistant","id":"x"}}');
        INSERT INTO part VALUES ('prt_2', 'msg_1', 'ses_1', 1, 1, '{{"type":"b"}}'),
            ('prt_1', 'msg_1', 'ses_1', 2, 2, '{{"type":"a"}}');
        INSERT INTO todo VALUES ('ses_1', 'second', 'pending', 'low', 1), ('ses_1', 'first', 'done', NULL, 0);
        "#
    ));
    fs::create_dir_all(directory.path().join("storage/session_diff")).unwrap();
    fs::write(directory.path().join("storage/session_diff/ses_1.json"), "[{},{}]").unwrap();
    fs::write(directory.path().join("storage/session_diff/ses_0.json"), "[]").unwrap();

    let counts = Counts { projects: 1, sessions: 2, messages: 2, parts: 2, todos: 2 };
    assert_eq!(source.counts().unwrap(), counts);
    let child = r#"session {"id":"ses_0","slug":"s","projectID":"prj","workspaceID":"wrk","directory":"/tree","path":"src","parentID":"ses_1","title":"t","agent":"build","version":"1","cost":0.25,"model":{"id":"m","providerID":"p"},"metadata":{ "m": 1e3 },"revert":{"messageID":"m"},"permission":[],"summary":{"additions":1,"deletions":0,"files":2,"diffs":[{}]},"tokens":{"input":1,"output":2,"reasoning":3,"cache":{"read":4,"write":5}},"share":{"url":"http://x"},"time":{"created":1,"updated":2,"compacting":3,"archived":-4.5}}"#;
    assert_eq!(
        noted(&source),
        [
            r#"project prj /tree None Some("git") {"icon":{"url":"u"},"sandboxes":["/b"],"time":{"created":1,"updated":2}}"#,
            "2 diffs",
            r#"session {"id":"ses_1","slug":"calm-wolf","projectID":"prj","directory":"/tree","path":"","title":"Grüße","version":"1.18","time":{"created":5,"updated":6}}"#,
            r#"message {"id":"msg_2","sessionID":"ses_1","role":"user"} []"#,
            r#"message {"id":"msg_1","sessionID":"ses_1","role":"assistant"} [{"id":"prt_1","sessionID":"ses_1","messageID":"msg_1","type":"a"},{"id":"prt_2","sessionID":"ses_1","messageID":"msg_1","type":"b"}]"#,
            r#"todos {"content":"first","status":"done"} {"content":"second","status":"pending","priority":"low"}"#,
            child,
        ]
    );
}

#[test]
fn what_cannot_be_read_of_a_database_is_told_and_stops_nothing() {
    let (_directory, source) = database(&format!(
        r#"{TABLES}
        INSERT INTO session (id, title, metadata, model) VALUES ('ses_1', 't', '{{', 5);
        INSERT INTO message VALUES ('msg_1', 'ses_1', 1, 1, 'no'), ('msg_2', 'ses_1', 2, 2, '{{}}'),
            ('msg_3', 'ses_1', 3, 3, NULL), ('msg_9', 'ses_9', 9, 9, '{{}}');
        INSERT INTO part VALUES ('prt_1', 'msg_1', '', 1, 1, '{{}}'), ('prt_2', 'msg_2', '', 1, 1, '[]'),
            ('prt_3', 'msg_2', '', 1, 1, '{{}}'), ('prt_4', 'msg_2', '', 1, 1, x'ff'),
            ('prt_8', 'msg_8', '', 1, 1, '{{}}'), ('prt_9', 'msg_9', '', 1, 1, '{{}}');
        INSERT INTO todo VALUES ('ses_9', 'a', 'b', 'c', 0);
        "#
    ));
    assert_eq!(
        noted(&source),
        [
            r#"session {"id":"ses_1","title":"t","model":5}"#,
            "not field ses_1 metadata: not-json",
            "not message msg_1: not-json",
            "not part prt_1: orphan",
            r#"message {"id":"msg_2","sessionID":"ses_1"} [{"id":"prt_3","sessionID":"ses_1","messageID":"msg_2"}]"#,
            "not part prt_2: shape",
            "not part prt_4: not-json",
            "not message msg_3: not-json",
            "not message msg_9: orphan",
            "not part prt_8: orphan",
            "not part prt_9: orphan",
            "not todo ses_9: orphan",
        ]
    );
}

#[test]
fn an_older_database_has_fewer_columns_and_tables() {
    let (_directory, source) = database(
        r#"CREATE TABLE session (id TEXT, title TEXT);
        CREATE TABLE message (id TEXT, session_id TEXT, data TEXT);
        CREATE TABLE part (id TEXT, message_id TEXT, data TEXT);
        INSERT INTO session VALUES ('ses_1', 't');
        INSERT INTO message VALUES ('msg_2', 'ses_1', '{}'), ('msg_1', 'ses_1', '{}');"#,
    );
    let counts = Counts { sessions: 1, messages: 2, ..Counts::default() };
    assert_eq!(source.counts().unwrap(), counts);
    assert_eq!(
        noted(&source),
        [
            r#"session {"id":"ses_1","title":"t"}"#,
            r#"message {"id":"msg_1","sessionID":"ses_1"} []"#,
            r#"message {"id":"msg_2","sessionID":"ses_1"} []"#,
        ]
    );
}

#[test]
fn a_database_is_read_beside_a_writer_as_it_was_when_it_was_opened() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("opencode.db");
    let writer = Connection::open(&path).unwrap();
    writer.pragma_update(None, "journal_mode", "wal").unwrap();
    writer.execute_batch(TABLES).unwrap();
    writer.execute("INSERT INTO session (id) VALUES ('ses_1')", []).unwrap();
    let source = open(&path).unwrap();
    assert_eq!(source.counts().unwrap().sessions, 1);
    writer.execute("INSERT INTO session (id) VALUES ('ses_2')", []).unwrap();
    assert_eq!(source.counts().unwrap().sessions, 1);
    assert_eq!(source.sessions().unwrap().len(), 1);
    assert_eq!(open(&path).unwrap().counts().unwrap().sessions, 2);
}

#[test]
fn files_are_told_like_a_database() {
    let directory = tempdir().unwrap();
    let storage = directory.path().join("storage");
    for (path, text) in [
        ("project/prj.json", r#"{"id":"prj","worktree":"/tree","vcs":"git","time":{"created":1}}"#),
        ("project/bad.json", "{"),
        ("session/prj/ses_2.json", r#"{"id":"ses_2","parentID":"ses_1","time":{"created":1}}"#),
        ("session/prj/ses_1.json", r#"{"id":"ses_1","title":"t","time":{"created":2.5}}"#),
        ("session/prj/ses_3.json", "5"),
        ("message/ses_1/msg_1.json", r#"{"id":"msg_1","time":{"created":9}}"#),
        ("message/ses_1/msg_2.json", "{\n  \"time\": { \"created\": 8 }\n}"),
        ("message/ses_1/msg_3.json", "{"),
        ("message/ses_1/notes.txt", ""),
        ("message/ses_3/msg_4.json", "{}"),
        ("message/ses_9/msg_9.json", "{}"),
        ("part/msg_1/prt_2.json", r#"{"id":"prt_2","type":"b"}"#),
        ("part/msg_1/prt_1.json", r#"{"id":"prt_1","type":"a"}"#),
        ("part/msg_1/prt_0.json", "null"),
        ("part/msg_3/prt_3.json", "{}"),
        ("part/msg_9/prt_9.json", "{}"),
        ("todo/ses_1.json", r#"[{"content":"c"}]"#),
        ("todo/ses_2.json", "{}"),
        ("todo/ses_9.json", "[1,2]"),
        ("session_diff/ses_1.json", "[1]"),
    ] {
        let path = storage.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let source = open(directory.path()).unwrap();
    let counts = Counts { projects: 2, sessions: 3, messages: 5, parts: 5, todos: 4 };
    assert_eq!(source.counts().unwrap(), counts);
    assert_eq!(
        noted(&source),
        [
            r#"project prj /tree None Some("git") {"time":{"created":1}}"#,
            "not session ses_3: shape",
            "not message msg_4: orphan",
            "1 diffs",
            r#"session {"id":"ses_1","title":"t","time":{"created":2.5}}"#,
            "not message msg_3: not-json",
            "not part prt_3: orphan",
            r#"message {"id":"msg_2","sessionID":"ses_1","time":{ "created": 8 }} []"#,
            r#"message {"id":"msg_1","sessionID":"ses_1","time":{"created":9}} [{"id":"prt_1","sessionID":"ses_1","messageID":"msg_1","type":"a"},{"id":"prt_2","sessionID":"ses_1","messageID":"msg_1","type":"b"}]"#,
            "not part prt_0: shape",
            r#"todos {"content":"c"}"#,
            r#"session {"id":"ses_2","parentID":"ses_1","time":{"created":1}}"#,
            "not todo ses_2: shape",
            "not project bad: not-json",
            "not message msg_9: orphan",
            "not part prt_9: orphan",
            "not todo ses_9: orphan",
            "not todo ses_9: orphan",
        ]
    );
}

#[test]
fn an_id_leads_nowhere_else() {
    let (directory, source) = database(&format!(
        "{TABLES} INSERT INTO session (id) VALUES ('../secret'), ('.hidden'), ('a/b');"
    ));
    fs::create_dir_all(directory.path().join("storage/session_diff/a")).unwrap();
    for name in ["secret.json", "session_diff/.hidden.json", "session_diff/a/b.json"] {
        fs::write(directory.path().join("storage").join(name), "[1]").unwrap();
    }
    assert!(!noted(&source).iter().any(|line| line.ends_with("diffs")));
}

#[test]
fn a_taker_that_stops_is_asked_no_more() {
    struct Full;
    impl Taker for Full {
        fn session(&mut self, _: &RawValue) -> Result<(), Stop> {
            Err("full".into())
        }

        fn message(&mut self, _: &RawValue, _: &[Box<RawValue>]) -> Result<(), Stop> {
            panic!("asked again")
        }

        fn todos(&mut self, _: &[Box<RawValue>]) -> Result<(), Stop> {
            panic!("asked again")
        }

        fn untaken(&mut self, _: Untaken) -> Result<(), Stop> {
            panic!("asked again")
        }
    }
    let (_directory, source) = database(&format!(
        "{TABLES} INSERT INTO session (id) VALUES ('ses_1');
        INSERT INTO message VALUES ('msg_1', 'ses_1', 1, 1, '{{}}');"
    ));
    let listed = source.sessions().unwrap();
    let error = source.read(&listed[0], &mut Full).unwrap_err();
    assert_eq!(error.to_string(), "a session could not be taken: full");
}
