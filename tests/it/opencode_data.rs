//! OpenCode's data, made up from a seed: the database of 1.18 and the older files, with everything in it that
//! such data holds. And that all of it is read, and goes to the wire and back unchanged.

use crate::support::Random;
use rusqlite::{Connection, params};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;

/// When ids began anew: 2026-08-14T11:19:55.136Z, which is 26 times 2^36 ms.
const ID_WRAP_MS: u64 = 26 << 36;

/// How much to make up.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub projects: usize,
    /// In all projects together.
    pub sessions: usize,
    pub messages_per_session: usize,
    pub seed: u64,
}

/// A session as OpenCode tells it, ids and all.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    pub info: Value,
    /// In order: the message, and its parts.
    pub messages: Vec<(Value, Vec<Value>)>,
    pub todos: Vec<Value>,
}

impl Session {
    pub fn id(&self) -> &str {
        text(&self.info, "id")
    }
}

/// The projects of a shape.
pub fn projects(shape: Shape) -> Vec<Value> {
    (0..shape.projects)
        .map(|at| {
            let mut project = json!({
                "id": project_id(shape, at),
                "worktree": format!("/home/zoë/projekt-{at}"),
                "sandboxes": [],
                "time": {"created": 1_760_000_000_000_u64 + at as u64, "updated": 1_770_000_000_000_u64},
            });
            if at.is_multiple_of(2) {
                project["vcs"] = "git".into();
                project["icon"] = json!({"color": "#12ab34"});
            }
            if at.is_multiple_of(3) {
                project["name"] = format!("Projekt № {at}").into();
                project["sandboxes"] = json!([format!("/home/zoë/sandbox-{at}")]);
            }
            project
        })
        .collect()
}

fn project_id(shape: Shape, at: usize) -> String {
    let mut random = Random(shape.seed ^ (at as u64) << 32);
    (0..5).map(|_| format!("{:08x}", random.next() as u32)).collect()
}

/// The sessions of a shape, one at a time: they may not all fit into memory.
pub fn sessions(shape: Shape) -> impl Iterator<Item = Session> {
    let mut earlier: Vec<Vec<String>> = vec![Vec::new(); shape.projects.max(1)];
    (0..shape.sessions).map(move |at| {
        let project = at % shape.projects.max(1);
        let mut maker = Maker::new(shape, at);
        let parent = match at % 8 {
            3 | 6 => earlier[project].last().cloned(),
            7 => Some("ses_ffffffffffffGoneForEver00".to_owned()),
            _ => None,
        };
        let session = maker.session(project_id(shape, project), project, parent);
        earlier[project].push(session.id().to_owned());
        session
    })
}

/// Makes one session up.
struct Maker {
    random: Random,
    at: usize,
    messages: usize,
    now_ms: u64,
    counter: u64,
    made: u64,
}

impl Maker {
    fn new(shape: Shape, at: usize) -> Self {
        // Every third session runs into new ids half way through.
        let start = match at % 3 {
            0 => ID_WRAP_MS - shape.messages_per_session as u64 * 1_000,
            1 => ID_WRAP_MS - 86_400_000 * (at as u64 + 2),
            _ => ID_WRAP_MS + 86_400_000 * (at as u64 + 2),
        };
        let random = Random(shape.seed.wrapping_mul(31).wrapping_add(at as u64));
        Self {
            random,
            at,
            messages: shape.messages_per_session,
            now_ms: start,
            counter: 0,
            made: 0,
        }
    }

    fn tick(&mut self) -> u64 {
        self.now_ms += 1 + self.random.below(900);
        self.counter = 0;
        self.now_ms
    }

    /// An id as OpenCode makes it: the low 48 bits of the time and a counter, then random characters.
    fn id(&mut self, prefix: &str) -> String {
        const BASE62: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        self.counter += 1;
        let mut value = self.now_ms * 4096 + self.counter;
        if prefix == "ses" {
            value = !value;
        }
        let tail: String = (0..14)
            .map(|_| char::from(BASE62[self.random.below(BASE62.len() as u64) as usize]))
            .collect();
        format!("{prefix}_{:012x}{tail}", value & 0xffff_ffff_ffff)
    }

    fn words(&mut self, count: u64) -> String {
        const WORDS: [&str; 12] = [
            "the",
            "Straße",
            "naïve",
            "日本語",
            "fixes",
            "parser",
            "👩‍💻",
            "\"quoted\"",
            "tab\there",
            "Ω≈ç",
            "line\nbreak",
            "plain",
        ];
        let count = 1 + self.random.below(count.max(1));
        let words: Vec<_> =
            (0..count).map(|_| WORDS[self.random.below(WORDS.len() as u64) as usize]).collect();
        words.join(" ")
    }

    fn session(&mut self, project: String, at: usize, parent: Option<String>) -> Session {
        let created = self.now_ms;
        let id = self.id("ses");
        let messages: Vec<_> = {
            let mut last_user = String::new();
            (0..self.messages).map(|n| self.message(&id, n, &mut last_user)).collect()
        };
        let title = self.words(6);
        let mut info = json!({
            "id": id,
            "slug": format!("calm-wolf-{}", self.at),
            "projectID": project,
            "directory": format!("/home/zoë/projekt-{at}"),
            "title": format!("{} {title}", self.at),
            "version": "1.18.33",
            "cost": 0,
            "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}},
            "time": {"created": created, "updated": self.now_ms},
        });
        if let Some(parent) = parent {
            info["parentID"] = parent.into();
        }
        add_up(&mut info, &messages);
        match self.at % 4 {
            0 => info["path"] = "".into(),
            1 => info["path"] = "crates/kern".into(),
            _ => {}
        }
        if self.at.is_multiple_of(2) {
            info["agent"] = "build".into();
            info["model"] = json!({"id": "claude-x", "providerID": "anthropic", "variant": "high"});
            info["summary"] = json!({"additions": 0, "deletions": 0, "files": 0});
        }
        if self.at % 5 == 1 {
            info["time"]["archived"] = (self.now_ms + 5).into();
            info["metadata"] = json!({"ticket": 42, "nested": {"ünïcode": [1, 2.5, null]}});
            info["permission"] = json!([
                {"permission": "edit", "pattern": "*", "action": "allow"},
                {"permission": "bash", "pattern": "rm *", "action": "deny"},
            ]);
        }
        if self.at % 5 == 2 {
            info["summary"] = json!({"additions": 12, "deletions": 0, "files": 3, "diffs": [
                {"file": "src/ä.rs", "patch": "@@", "additions": 12, "deletions": 0, "status": "added"},
            ]});
            info["share"] = json!({"url": "https://opncd.ai/share/abcd1234"});
        }
        if self.at % 5 == 3 && !messages.is_empty() {
            let message = text(&messages[messages.len() / 2].0, "id");
            info["revert"] =
                json!({"messageID": message, "snapshot": "4b825dc6", "diff": "--- a\n+++ b\n"});
            info["time"]["compacting"] = self.now_ms.into();
        }
        let todos = (0..self.at % 3 * 2).map(|n| {
            let status = ["pending", "in_progress", "completed", "cancelled"][n % 4];
            let priority = ["high", "medium", "low"][n % 3];
            json!({"content": self.words(8), "status": status, "priority": priority})
        });
        let todos = todos.collect();
        Session { info, messages, todos }
    }

    fn message(&mut self, session: &str, n: usize, last_user: &mut String) -> (Value, Vec<Value>) {
        let created = self.tick();
        let id = self.id("msg");
        let is_user = n.is_multiple_of(3);
        let mut info =
            json!({"id": id, "sessionID": session, "time": {"created": created}, "agent": "build"});
        if is_user {
            *last_user = id.clone();
            info["role"] = "user".into();
            info["model"] = json!({"providerID": "anthropic", "modelID": "claude-x"});
            if n.is_multiple_of(2) {
                info["summary"] = json!({"title": self.words(3), "diffs": []});
                info["tools"] = json!({"bash": false});
            }
        } else {
            info["role"] = "assistant".into();
            info["parentID"] = last_user.clone().into();
            info["providerID"] = "anthropic".into();
            info["modelID"] = "claude-x".into();
            info["mode"] = "build".into();
            info["path"] = json!({"cwd": "/home/zoë", "root": "/"});
            info["cost"] = 0.into();
            info["tokens"] = tokens(0, 0);
        }
        let mut parts = if is_user { self.user_parts(n) } else { self.assistant_parts(n) };
        for part in &mut parts {
            part["sessionID"] = session.into();
            part["messageID"] = id.as_str().into();
        }
        if !is_user && n % 7 != 5 {
            let last = parts.iter().find(|part| part["type"] == "step-finish");
            let last = last.cloned().unwrap_or_default();
            info["cost"] = last["cost"].clone();
            info["tokens"] = last["tokens"].clone();
            info["finish"] = last["reason"].clone();
            info["time"]["completed"] = self.tick().into();
        } else if !is_user {
            info["error"] =
                json!({"name": "MessageAbortedError", "data": {"message": self.words(3)}});
        }
        if n % 11 == 4 {
            info["futureField"] = json!({"kept": [1e-9, -0.5, 12_345_678_901_234_567_890_u64]});
        }
        if n % 13 == 8 && !is_user {
            info["summary"] = true.into();
        }
        parts.sort_by(|a, b| text(a, "id").cmp(text(b, "id")));
        (info, parts)
    }

    fn part(&mut self, kind: &str, fields: Value) -> Value {
        self.made += 1;
        let mut part = fields;
        part["id"] = self.id("prt").into();
        part["type"] = kind.into();
        if self.made.is_multiple_of(17) {
            part["unknownToAnyone"] = json!({"a": {"b": [null, true, "ß"]}});
        }
        part
    }

    fn user_parts(&mut self, n: usize) -> Vec<Value> {
        let text = self.words(40);
        let mut parts = vec![self.part("text", json!({"text": text}))];
        if n % 4 == 3 {
            // Some are long enough to be content of their own.
            let length = if n % 24 == 3 { 150_000 } else { 400 };
            let url = format!("data:image/png;base64,{}", "iVBORw0K".repeat(length / 8));
            let source = json!({"type": "file", "path": "ä.png", "text": {"value": "@ä.png", "start": 0, "end": 6}});
            parts.push(self.part(
                "file",
                json!({"mime": "image/png", "filename": "ä.png", "url": url, "source": source}),
            ));
        }
        match n % 5 {
            0 => parts.push(self.part(
                "agent",
                json!({"name": "plan", "source": {"value": "@plan", "start": 0, "end": 5}}),
            )),
            1 => {
                let prompt = self.words(20);
                parts.push(self.part(
                    "subtask",
                    json!({"prompt": prompt, "description": "d", "agent": "general"}),
                ));
            }
            2 => parts.push(self.part(
                "compaction",
                json!({"auto": n.is_multiple_of(2), "tail_start_id": "msg_000000000000abcdefghijklmn"}),
            )),
            _ => {}
        }
        if n % 2 == 1 {
            let text = self.words(5);
            parts.push(self.part(
                "text",
                json!({"text": text, "synthetic": true, "metadata": {"compaction_continue": true}}),
            ));
        }
        parts
    }

    fn assistant_parts(&mut self, n: usize) -> Vec<Value> {
        let mut parts = Vec::new();
        let hash = format!("{:040x}", self.random.next());
        parts.push(self.part("step-start", json!({"snapshot": hash})));
        let (start, thought) = (self.tick(), self.words(30));
        let end = self.tick();
        parts.push(self.part(
            "reasoning",
            json!({"text": thought, "time": {"start": start, "end": end}, "metadata": {"anthropic": {"signature": "c2ln"}}}),
        ));
        let said = if n % 10 == 7 { String::new() } else { self.words(60) };
        parts
            .push(self.part("text", json!({"text": said, "time": {"start": end, "end": end + 4}})));
        let state = self.tool_state(n);
        let call = format!("toolu_{:016x}", self.random.next());
        let name = ["bash", "read", "edit", "task"][n % 4];
        let mut tool = json!({"callID": call, "tool": name, "state": state});
        if n % 6 == 1 {
            tool["metadata"] = json!({"providerExecuted": true});
        }
        parts.push(self.part("tool", tool));
        match n % 5 {
            1 => {
                let error = json!({"name": "APIError", "data": {"message": "overloaded", "statusCode": 529, "isRetryable": true}});
                let created = self.tick();
                parts.push(self.part(
                    "retry",
                    json!({"attempt": 1, "error": error, "time": {"created": created}}),
                ));
            }
            2 => parts.push(self.part("snapshot", json!({"snapshot": hash}))),
            _ => {}
        }
        if n % 7 != 5 {
            let cost = (self.random.below(9_000) + 1) as f64 / 10_000.0;
            let tokens = tokens(self.random.below(50_000), self.random.below(3_000));
            let reason = if n % 3 == 1 { "tool-calls" } else { "stop" };
            parts.push(self.part(
                "step-finish",
                json!({"reason": reason, "snapshot": hash, "cost": cost, "tokens": tokens}),
            ));
            let files = json!(["/home/zoë/a b.rs", "/home/zoë/ü.txt"]);
            parts.push(self.part("patch", json!({"hash": hash, "files": files})));
        }
        parts
    }

    fn tool_state(&mut self, n: usize) -> Value {
        let (start, input) = (
            self.tick(),
            json!({"command": self.words(5), "timeout": 1.5e3, "deep": {"list": [1, [2, {}]]}}),
        );
        let end = self.tick();
        match n % 9 {
            4 => json!({"status": "pending", "input": {}, "raw": ""}),
            5 => {
                json!({"status": "running", "input": input, "title": "runs", "metadata": {"output": ""}, "time": {"start": start}})
            }
            7 => {
                json!({"status": "error", "input": input, "error": self.words(9), "metadata": {"interrupted": true}, "time": {"start": start, "end": end}})
            }
            _ => {
                let output = if n % 8 == 1 { String::new() } else { self.words(200) };
                let mut state = json!({"status": "completed", "input": input, "output": output, "title": self.words(3),
                    "metadata": {"exit": 0, "truncated": false}, "time": {"start": start, "end": end}});
                if n % 4 == 2 {
                    state["time"]["compacted"] = (end + 9).into();
                    state["attachments"] = json!([{"id": "prt_1", "sessionID": "s", "messageID": "m", "type": "file",
                        "mime": "text/plain", "url": "data:,x"}]);
                }
                state
            }
        }
    }
}

fn tokens(input: u64, output: u64) -> Value {
    json!({"input": input, "output": output, "reasoning": output / 3, "cache": {"read": input * 2, "write": 0}})
}

/// The sums OpenCode keeps with a session.
fn add_up(info: &mut Value, messages: &[(Value, Vec<Value>)]) {
    let mut cost = 0; // in ten-thousandths: sums of fractions are not what people expect
    for part in messages.iter().flat_map(|(_, parts)| parts) {
        if part["type"] == "step-finish" {
            cost += (part["cost"].as_f64().unwrap() * 10_000.0).round() as u64;
            for name in ["/input", "/output", "/reasoning", "/cache/read", "/cache/write"] {
                let more = part["tokens"].pointer(name).unwrap().as_u64().unwrap();
                let sum = info["tokens"].pointer_mut(name).unwrap();
                *sum = (sum.as_u64().unwrap() + more).into();
            }
        }
    }
    // A whole number is written as one, as JavaScript does.
    info["cost"] =
        if cost % 10_000 == 0 { (cost / 10_000).into() } else { (cost as f64 / 10_000.0).into() };
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap()
}

/// The tables of 1.18.33, as far as anything is known to be in them.
const TABLES: &str = "
    CREATE TABLE project (id text PRIMARY KEY, worktree text NOT NULL, vcs text, name text, icon_url text,
        icon_url_override text, icon_color text, time_created integer NOT NULL, time_updated integer NOT NULL,
        time_initialized integer, sandboxes text NOT NULL, commands text);
    CREATE TABLE project_directory (project_id text, directory text, type text, strategy text,
        time_created integer, PRIMARY KEY (project_id, directory));
    CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL REFERENCES project(id) ON DELETE CASCADE,
        workspace_id text, parent_id text, slug text NOT NULL, directory text NOT NULL, path text,
        title text NOT NULL, version text NOT NULL, share_url text, summary_additions integer,
        summary_deletions integer, summary_files integer, summary_diffs text, metadata text,
        cost real NOT NULL DEFAULT 0, tokens_input integer NOT NULL DEFAULT 0,
        tokens_output integer NOT NULL DEFAULT 0, tokens_reasoning integer NOT NULL DEFAULT 0,
        tokens_cache_read integer NOT NULL DEFAULT 0, tokens_cache_write integer NOT NULL DEFAULT 0,
        revert text, permission text, agent text, model text, time_created integer NOT NULL,
        time_updated integer NOT NULL, time_compacting integer, time_archived integer);
    CREATE INDEX session_project_idx ON session (project_id);
    CREATE INDEX session_workspace_idx ON session (workspace_id);
    CREATE INDEX session_parent_idx ON session (parent_id);
    CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL REFERENCES session(id) ON DELETE CASCADE,
        time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
    CREATE INDEX message_session_time_created_id_idx ON message (session_id, time_created, id);
    CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL REFERENCES message(id) ON DELETE CASCADE,
        session_id text NOT NULL, time_created integer NOT NULL, time_updated integer NOT NULL,
        data text NOT NULL);
    CREATE INDEX part_message_id_id_idx ON part (message_id, id);
    CREATE INDEX part_session_idx ON part (session_id);
    CREATE TABLE todo (session_id text NOT NULL REFERENCES session(id) ON DELETE CASCADE, content text NOT NULL,
        status text NOT NULL, priority text NOT NULL, position integer NOT NULL,
        time_created integer NOT NULL, time_updated integer NOT NULL, PRIMARY KEY (session_id, position));
    CREATE TABLE session_share (session_id text PRIMARY KEY, id text, secret text, url text,
        time_created integer, time_updated integer);
    CREATE TABLE event_sequence (aggregate_id text PRIMARY KEY, seq integer NOT NULL, owner_id text);
    CREATE TABLE event (id text PRIMARY KEY, aggregate_id text REFERENCES event_sequence(aggregate_id)
        ON DELETE CASCADE, seq integer NOT NULL, type text NOT NULL, data text NOT NULL, UNIQUE (aggregate_id, seq));
    CREATE TABLE permission (id text, project_id text, action text, resource text,
        UNIQUE (project_id, action, resource));
    CREATE TABLE account (id text PRIMARY KEY);
    CREATE TABLE workspace (id text PRIMARY KEY);
    CREATE TABLE migration (id integer PRIMARY KEY, hash text, created_at integer);
";

/// Writes a database as OpenCode 1.18 has it.
pub fn write_database(path: &Path, shape: Shape) {
    let mut database = Connection::open(path).unwrap();
    database.pragma_update(None, "journal_mode", "wal").unwrap();
    database.pragma_update(None, "synchronous", "off").unwrap();
    database.pragma_update(None, "foreign_keys", "on").unwrap();
    database.execute_batch(TABLES).unwrap();
    let writing = database.transaction().unwrap();
    for project in projects(shape) {
        insert_project(&writing, &project);
    }
    for session in sessions(shape) {
        insert_session(&writing, &session.info);
        for (info, parts) in &session.messages {
            insert_message(&writing, info, parts);
        }
        for (position, todo) in session.todos.iter().enumerate() {
            let row = params![
                session.id(),
                text(todo, "content"),
                text(todo, "status"),
                text(todo, "priority"),
                position as i64,
            ];
            let sql = "INSERT INTO todo VALUES (?1, ?2, ?3, ?4, ?5, 1, 1)";
            writing.prepare_cached(sql).unwrap().execute(row).unwrap();
        }
        // What an import has no use for is there as well.
        let row = params![session.id(), session.messages.len() as i64];
        writing.execute("INSERT INTO event_sequence VALUES (?1, ?2, NULL)", row).unwrap();
    }
    writing.commit().unwrap();
}

fn insert_project(database: &Connection, project: &Value) {
    let sql = "INSERT INTO project (id, worktree, vcs, name, icon_color, time_created, time_updated, sandboxes)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let row = params![
        text(project, "id"),
        text(project, "worktree"),
        project["vcs"].as_str(),
        project["name"].as_str(),
        project["icon"]["color"].as_str(),
        project["time"]["created"].as_i64(),
        project["time"]["updated"].as_i64(),
        project["sandboxes"].to_string(),
    ];
    database.execute(sql, row).unwrap();
}

fn insert_session(database: &Connection, info: &Value) {
    let json = |name: &str| info.get(name).map(Value::to_string);
    let sql = "INSERT INTO session VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16,
               ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29)";
    let row = params![
        text(info, "id"),
        text(info, "projectID"),
        info["workspaceID"].as_str(),
        info["parentID"].as_str(),
        text(info, "slug"),
        text(info, "directory"),
        info["path"].as_str(),
        text(info, "title"),
        text(info, "version"),
        info["share"]["url"].as_str(),
        info["summary"]["additions"].as_i64(),
        info["summary"]["deletions"].as_i64(),
        info["summary"]["files"].as_i64(),
        info["summary"].get("diffs").map(Value::to_string),
        json("metadata"),
        info["cost"].as_f64(),
        info["tokens"]["input"].as_i64(),
        info["tokens"]["output"].as_i64(),
        info["tokens"]["reasoning"].as_i64(),
        info["tokens"]["cache"]["read"].as_i64(),
        info["tokens"]["cache"]["write"].as_i64(),
        json("revert"),
        json("permission"),
        info["agent"].as_str(),
        json("model"),
        info["time"]["created"].as_i64(),
        info["time"]["updated"].as_i64(),
        info["time"]["compacting"].as_i64(),
        info["time"]["archived"].as_i64(),
    ];
    database.execute(sql, row).unwrap();
}

fn insert_message(database: &Connection, info: &Value, parts: &[Value]) {
    let data = |value: &Value| {
        let members = value.as_object().unwrap().iter();
        let kept: Map<_, _> = members
            .filter(|(name, _)| !["id", "sessionID", "messageID"].contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        Value::from(kept).to_string()
    };
    let (id, session) = (text(info, "id"), text(info, "sessionID"));
    let created = info["time"]["created"].as_i64();
    let sql = "INSERT INTO message VALUES (?1, ?2, ?3, ?3, ?4)";
    let mut statement = database.prepare_cached(sql).unwrap();
    statement.execute(params![id, session, created, data(info)]).unwrap();
    let sql = "INSERT INTO part VALUES (?1, ?2, ?3, ?4, ?4, ?5)";
    let mut statement = database.prepare_cached(sql).unwrap();
    for part in parts {
        statement.execute(params![text(part, "id"), id, session, created, data(part)]).unwrap();
    }
}

/// Writes the files OpenCode had before: `directory/storage/…`.
pub fn write_files(directory: &Path, shape: Shape) {
    let storage = directory.join("storage");
    let write = |path: String, value: &Value| {
        let path = storage.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, serde_json::to_string_pretty(value).unwrap()).unwrap();
    };
    for project in projects(shape) {
        write(format!("project/{}.json", text(&project, "id")), &project);
    }
    for session in sessions(shape) {
        let id = session.id();
        write(format!("session/{}/{id}.json", text(&session.info, "projectID")), &session.info);
        for (info, parts) in &session.messages {
            let message = text(info, "id");
            write(format!("message/{id}/{message}.json"), info);
            for part in parts {
                write(format!("part/{message}/{}.json", text(part, "id")), part);
            }
        }
        if !session.todos.is_empty() {
            write(format!("todo/{id}.json"), &session.todos.clone().into());
        }
        write(format!("session_diff/{id}.json"), &json!([]));
    }
}

mod tests {
    use super::*;
    use bowline::exchange::opencode::{self, Source};
    use bowline::exchange::{Kept, Stop, Taker, Untaken, json};
    use bowline::wire::message_capnp::{message_body, todo};
    use capnp::message::Builder;
    use serde_json::value::RawValue;
    use std::collections::{BTreeSet, HashMap};
    use tempfile::tempdir;

    const SHAPE: Shape = Shape { projects: 3, sessions: 12, messages_per_session: 30, seed: 7 };

    /// Takes everything to the wire and back, and compares it with what was made up.
    struct Comparing {
        expected: Session,
        messages: usize,
        todos: bool,
    }

    fn value(json: &str) -> Value {
        serde_json::from_str(json).unwrap()
    }

    impl Taker for Comparing {
        fn session(&mut self, info: &RawValue) -> Result<(), Stop> {
            assert_eq!(value(info.get()), self.expected.info);
            let mut draft = Builder::new_default();
            let taken = json::session_from_json(info, true, draft.init_root()).unwrap();
            assert_eq!(taken.untaken, []);
            assert_eq!(taken.reverted.is_some(), self.expected.info.get("revert").is_some());
            Ok(())
        }

        fn message(&mut self, info: &RawValue, parts: &[Box<RawValue>]) -> Result<(), Stop> {
            let mut shelf = HashMap::new();
            let mut body = Builder::new_default();
            let untaken = json::message_from_json(
                info,
                parts,
                &mut |bytes| {
                    shelf.insert(Kept::of(bytes).hash.to_vec(), bytes.to_vec());
                    Kept::of(bytes)
                },
                body.init_root(),
            )?;
            assert_eq!(untaken, []);
            let (expected, expected_parts) = &self.expected.messages[self.messages];
            self.messages += 1;
            let body = body.get_root_as_reader::<message_body::Reader<'_>>()?;
            let place = json::Place {
                session_id: text(expected, "sessionID"),
                message_id: body.get_id()?.to_str()?,
                created_at_ms: 0,
            };
            let mut fetch = |hash: &[u8], _| Ok(shelf[hash].clone());
            let back = json::message_to_json(place, body, body.get_parts()?, &mut fetch)?;
            assert_eq!(value(&back), json!({"info": expected, "parts": expected_parts}));
            Ok(())
        }

        fn todos(&mut self, todos: &[Box<RawValue>]) -> Result<(), Stop> {
            self.todos = true;
            let back = todos.iter().map(|raw| {
                let mut item = Builder::new_default();
                json::todo_from_json(raw, item.init_root()).unwrap();
                let item = item.get_root_as_reader::<todo::Reader<'_>>().unwrap();
                value(&json::todo_to_json(item).unwrap())
            });
            assert_eq!(back.collect::<Vec<_>>(), self.expected.todos);
            Ok(())
        }

        fn untaken(&mut self, untaken: Untaken) -> Result<(), Stop> {
            Err(untaken.into())
        }
    }

    /// All that was made up is found, and nothing else.
    fn compare(source: &Source) {
        let mut made: HashMap<_, _> =
            sessions(SHAPE).map(|session| (session.id().to_owned(), session)).collect();
        let counts = source.counts().unwrap();
        assert_eq!(counts.projects, SHAPE.projects as u64);
        assert_eq!(counts.sessions, SHAPE.sessions as u64);
        assert_eq!(counts.messages, (SHAPE.sessions * SHAPE.messages_per_session) as u64);
        let parts =
            made.values().flat_map(|session| &session.messages).map(|(_, parts)| parts.len());
        assert_eq!(counts.parts, parts.sum::<usize>() as u64);

        let found = source.projects(&mut |untaken| panic!("{untaken}")).unwrap();
        for (found, project) in found.iter().zip({
            let mut all = projects(SHAPE);
            all.sort_by(|a, b| text(a, "id").cmp(text(b, "id")));
            all
        }) {
            let mut told = value(&found.rest);
            told["id"] = found.id.as_str().into();
            told["worktree"] = found.worktree.as_str().into();
            for (name, text) in [("name", &found.name), ("vcs", &found.vcs)] {
                if let Some(text) = text {
                    told[name] = text.as_str().into();
                }
            }
            assert_eq!(told, project);
        }

        let mut seen = BTreeSet::new();
        for session in source.sessions().unwrap() {
            let parent_seen = session.parent_id.as_ref().is_some_and(|id| seen.contains(id));
            assert_eq!(session.parent_known, parent_seen, "parents come first");
            seen.insert(session.id.clone());
            let expected = made.remove(&session.id).unwrap();
            let has_todos = !expected.todos.is_empty();
            let mut taker = Comparing { expected, messages: 0, todos: false };
            source.read(&session, &mut taker).unwrap();
            assert_eq!(taker.messages, SHAPE.messages_per_session);
            assert_eq!(taker.todos, has_todos);
        }
        assert!(made.is_empty());
        source.orphans(&mut |untaken| panic!("{untaken}")).unwrap();
    }

    #[test]
    fn a_whole_database_goes_to_the_wire_and_back() {
        let directory = tempdir().unwrap();
        write_database(&directory.path().join("opencode.db"), SHAPE);
        compare(&opencode::open(directory.path()).unwrap());
    }

    #[test]
    fn the_older_files_do_as_well() {
        let directory = tempdir().unwrap();
        write_files(directory.path(), SHAPE);
        compare(&opencode::open(directory.path()).unwrap());
    }

    #[test]
    fn the_data_is_as_varied_as_it_should_be() {
        let all: Vec<_> = sessions(SHAPE).collect();
        assert_eq!(all, sessions(SHAPE).collect::<Vec<_>>(), "a seed gives the same again");
        assert_ne!(all, sessions(Shape { seed: 8, ..SHAPE }).collect::<Vec<_>>());

        let parts =
            || all.iter().flat_map(|session| &session.messages).flat_map(|(_, parts)| parts);
        let kinds: BTreeSet<_> = parts().map(|part| text(part, "type")).collect();
        assert_eq!(kinds.len(), 12, "{kinds:?}");
        let states = parts().filter_map(|part| part["state"]["status"].as_str());
        assert_eq!(states.collect::<BTreeSet<_>>().len(), 4);
        assert!(parts().any(|part| part["url"].as_str().is_some_and(|url| url.len() > 131_072)));
        assert!(parts().any(|part| part.get("unknownToAnyone").is_some()));
        for name in ["parentID", "summary", "revert", "permission", "metadata", "share", "model"] {
            assert!(all.iter().any(|session| session.info.get(name).is_some()), "{name}");
        }
        // Somewhere a later message has an id that sorts before an earlier one's.
        let wrapped = all.iter().filter(|session| {
            !session.messages.is_sorted_by(|(a, _), (b, _)| text(a, "id") < text(b, "id"))
        });
        assert!(wrapped.count() > 0);
    }
}
