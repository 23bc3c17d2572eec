//! Files of work trees: taken down, put back, along with conversations and between sessions.

use crate::support::*;
use bowline::wire::message_capnp::{Role, TurnState};
use bowline::wire::root_capnp::project;
use bowline::wire::session_capnp::{session, turn};
use bowline::wire::worktree_capnp::{ConflictReason, move_report, snapshot, worktree};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A server, a project in a directory of its own, and names for whatever a story speaks of.
pub struct Yard {
    server: Option<Server>,
    pub dir: tempfile::TempDir,
    pub producer: Producer,
    of_root: Producer,
    project: Option<project::Client>,
    worktree: Option<worktree::Client>,
    sessions: HashMap<String, (session::Client, Producer)>,
    turns: HashMap<String, turn::Client>,
    snapshots: HashMap<String, (snapshot::Client, String)>,
}

/// The name of a call: 16 bytes from a word.
pub fn call(word: &str) -> [u8; 16] {
    let mut name = [0; 16];
    for (at, byte) in word.bytes().enumerate() {
        name[at % 16] ^= byte.rotate_left((at / 16) as u32);
    }
    name
}

impl Yard {
    pub async fn new() -> Self {
        Self::with(&[]).await
    }

    pub async fn with(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (data, work) = (dir.path().join("data"), dir.path().join("work"));
        fs::create_dir_all(&data).unwrap();
        fs::create_dir_all(&work).unwrap();
        let server = start(dir.path(), flags);
        let mut yard = Self {
            server: Some(server),
            dir,
            producer: Producer::new(),
            of_root: Producer::new(),
            project: None,
            worktree: None,
            sessions: HashMap::new(),
            turns: HashMap::new(),
            snapshots: HashMap::new(),
        };
        yard.connect().await;
        yard
    }

    async fn connect(&mut self) {
        let root = root(self.server()).await;
        let work = self.work();
        let opened = open_project(&root, &mut self.of_root, work.to_str().unwrap());
        let project = opened.pipeline.get_project();
        self.worktree = Some(project.worktree_request().send().pipeline.get_worktree());
        self.project = Some(project);
        let names: Vec<_> = self.sessions.keys().cloned().collect();
        for name in names {
            let mut request = self.project.as_ref().unwrap().session_request();
            request.get().set_id(&name);
            let session = request.send().promise.await.unwrap().get().unwrap().get_session();
            self.sessions.get_mut(&name).unwrap().0 = session.unwrap();
        }
        self.turns.clear();
        let known: Vec<_> = self.snapshots.iter().map(|(n, s)| (n.clone(), s.1.clone())).collect();
        for (name, id) in known {
            let mut request = self.worktree().snapshot_request();
            request.get().set_id(&id);
            let snapshot = request.send().pipeline.get_snapshot();
            self.snapshots.insert(name, (snapshot, id));
        }
    }

    /// Kills the server and starts it again.
    pub async fn crash(&mut self) {
        self.server.take().unwrap().kill_9();
        self.server = Some(start(self.dir.path(), &[]));
        self.connect().await;
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub fn worktree(&self) -> &worktree::Client {
        self.worktree.as_ref().unwrap()
    }

    pub fn project(&self) -> &project::Client {
        self.project.as_ref().unwrap()
    }

    async fn session(&mut self, name: &str) -> (session::Client, &mut Producer) {
        if !self.sessions.contains_key(name) {
            let mut request = self.project().create_session_request();
            self.producer.header(request.get().init_op());
            request.get().init_session().set_id(name);
            let session = request.send().promise.await.unwrap().get().unwrap().get_session();
            self.sessions.insert(name.to_owned(), (session.unwrap(), Producer::new()));
        }
        let (session, producer) = self.sessions.get_mut(name).unwrap();
        (session.clone(), producer)
    }

    /// A session the story has spoken of.
    pub fn known_session(&self, name: &str) -> session::Client {
        self.sessions[name].0.clone()
    }

    fn turn(&self, name: &str) -> turn::Client {
        self.turns[name].clone()
    }

    fn snapshot(&self, name: &str) -> &(snapshot::Client, String) {
        &self.snapshots[name]
    }

    /// Tells a story, line by line: what is done, and what comes of it.
    pub async fn tell(&mut self, story: &str) {
        for line in story.lines() {
            let line = line.split(" // ").next().unwrap().trim();
            if line.is_empty() {
                continue;
            }
            let (what, wanted) = line.split_once(" -> ").unwrap_or((line, ""));
            let words: Vec<_> = what.split_whitespace().collect();
            let found = match self.line(&words).await {
                Ok(_) if wanted.is_empty() => continue,
                Ok(found) => found,
                Err(error) => code(&error).to_owned(),
            };
            assert_eq!(found, wanted, "{line}");
        }
    }

    async fn line(&mut self, words: &[&str]) -> capnp::Result<String> {
        let at = |path: &str| self.work().join(path);
        match words {
            ["write", path, text @ ..] => {
                fs::create_dir_all(at(path).parent().unwrap()).unwrap();
                fs::write(at(path), text.join(" ")).unwrap();
            }
            ["rm", path] if at(path).is_dir() => fs::remove_dir_all(at(path)).unwrap(),
            ["rm", path] => fs::remove_file(at(path)).unwrap(),
            ["mkdir", path] => fs::create_dir_all(at(path)).unwrap(),
            ["file", path] => {
                return Ok(match fs::read(at(path)) {
                    Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                    Err(_) if at(path).is_dir() => "dir".to_owned(),
                    Err(_) => "none".to_owned(),
                });
            }
            ["crash"] => self.crash().await,
            ["track", name] => {
                let mut request = self.worktree().track_request();
                request.get().set_name(&call(name));
                let answer = request.send().promise.await?;
                let id = answer.get()?.get_info()?.get_id()?.to_string()?;
                self.snapshots.insert((*name).to_owned(), (answer.get()?.get_snapshot()?, id));
            }
            ["files", name] => {
                let (snapshot, _) = self.snapshot(name);
                let answer = snapshot.files_request().send().promise.await?;
                let files = answer.get()?.get_files()?.iter();
                let files = files.filter(|file| file.get_mode() & 0o170_000 != 0o040_000);
                let paths: Vec<_> = files
                    .map(|it| String::from_utf8_lossy(it.get_path().unwrap()).into_owned())
                    .collect();
                return Ok(paths.join(" "));
            }
            ["restore", name, as_of, rest @ ..] => {
                let mut request = self.worktree().restore_request();
                request.get().set_name(&call(name));
                request.get().set_snapshot(&self.snapshot(as_of).1);
                let mut wish = request.get().init_wish();
                wish.set_keep_new(rest.contains(&"keep-new"));
                let paths: Vec<_> = rest.iter().filter(|it| **it != "keep-new").collect();
                let mut list = wish.init_paths(paths.len() as u32);
                for (at, path) in (0..).zip(paths) {
                    list.set(at, path.as_bytes());
                }
                return Ok(told(request.send().promise.await?.get()?.get_report()?));
            }
            ["undo", name, from, to, force @ ..] => {
                let mut request = self.worktree().revert_request();
                request.get().set_name(&call(name));
                let mut patch = request.get().init_patches(1).get(0);
                patch.set_from(&self.snapshot(from).1);
                patch.set_to(&self.snapshot(to).1);
                let mut list = request.get().init_force(force.len() as u32);
                for (at, path) in (0..).zip(force) {
                    list.set(at, path.as_bytes());
                }
                return Ok(told(request.send().promise.await?.get()?.get_report()?));
            }
            ["unrevert", name, of] => {
                let mut request = self.worktree().unrevert_request();
                request.get().set_name(&call(name));
                request.get().set_of(&call(of));
                return Ok(told(request.send().promise.await?.get()?.get_report()?));
            }
            ["turn", session, turn, how @ ..] => {
                let (client, producer) = self.session(session).await;
                let mut request = client.begin_turn_request();
                producer.header(request.get().init_op());
                let mut draft = request.get().init_turn();
                draft.set_id(*turn);
                if how.contains(&"short") {
                    draft.set_lease_ms(1000);
                }
                let mut message = draft.init_message();
                message.set_id(format!("u-{turn}"));
                message.set_role(Role::User);
                message.init_parts(1).get(0).set_text(*turn);
                let turn_client = request.send().promise.await?.get()?.get_turn()?;
                self.turns.insert((*turn).to_owned(), turn_client);
            }
            ["say", session, turn, message] => {
                let client = self.turn(turn);
                let mut request = client.add_message_request();
                self.session(session).await.1.header(request.get().init_op());
                let mut body = request.get().init_message();
                body.set_id(*message);
                body.set_role(Role::Assistant);
                request.send().promise.await?;
            }
            // A tool that was given a file.
            ["tool", session, turn, message, part, path] => {
                let client = self.turn(turn);
                let mut request = client.put_part_request();
                self.session(session).await.1.header(request.get().init_op());
                let mut put = request.get().init_part();
                put.set_message_id(*message);
                let mut body = put.init_part();
                body.set_id(*part);
                let mut tool = body.init_tool();
                tool.set_call_id(*part);
                tool.set_name("edit");
                tool.set_input(format!("{{\"filePath\":{path:?}}}"));
                request.send().promise.await?;
            }
            ["snap", turn, name] => {
                let mut request = self.turn(turn).snapshot_request();
                request.get().set_name(&call(name));
                let answer = request.send().promise.await?;
                let id = answer.get()?.get_info()?.get_id()?.to_string()?;
                self.snapshots.insert((*name).to_owned(), (answer.get()?.get_snapshot()?, id));
            }
            ["finish", session, turn] => {
                let client = self.turn(turn);
                let mut request = client.finish_request();
                self.session(session).await.1.header(request.get().init_op());
                request.get().init_end().set_state(TurnState::Completed);
                request.send().promise.await?;
            }
            ["revert", session, name, head, rest @ ..] => {
                let (client, _) = self.session(session).await;
                let mut request = client.revert_request();
                request.get().set_name(&call(name));
                let mut to = request.get().init_head();
                let force = match (*head, rest) {
                    ("undo", force) => {
                        to.set_undo(());
                        force
                    }
                    ("redo", force) => {
                        to.set_redo(());
                        force
                    }
                    ("end", force) => {
                        to.set_end(());
                        force
                    }
                    (_, [message, part, force @ ..]) if part.starts_with("p") => {
                        let mut before = to.init_before();
                        before.set_message_id(*message);
                        before.set_part_id(*part);
                        force
                    }
                    (_, [message, force @ ..]) => {
                        to.init_before().set_message_id(*message);
                        force
                    }
                    _ => panic!("{rest:?}"),
                };
                let mut list = request.get().init_force(force.len() as u32);
                for (at, path) in (0..).zip(force) {
                    list.set(at, path.as_bytes());
                }
                return Ok(told(request.send().promise.await?.get()?.get_report()?));
            }
            // Lets go of a snapshot.
            ["drop", name] => {
                let mut request = self.worktree().remove_snapshot_request();
                request.get().set_id(&self.snapshot(name).1);
                return Ok(request.send().promise.await?.get()?.get_existed().to_string());
            }
            // How many messages are shown.
            ["shown", session] => {
                let (client, _) = self.session(session).await;
                let answer = client.messages_request().send().promise.await?;
                return Ok(answer.get()?.get_messages()?.len().to_string());
            }
            ["fork", session, fork, before @ ..] => {
                let (client, producer) = self.session(session).await;
                let mut request = client.fork_request();
                producer.header(request.get().init_op());
                let mut draft = request.get().init_fork();
                draft.set_id(*fork);
                if let [before] = before {
                    draft.set_before(*before);
                }
                let session = request.send().promise.await?.get()?.get_session()?;
                self.sessions.insert((*fork).to_owned(), (session, Producer::new()));
            }
            ["remove", session] => {
                let mut request = self.project().remove_session_request();
                self.producer.header(request.get().init_op());
                request.get().set_id(*session);
                request.send().promise.await?;
                self.sessions.remove(*session);
            }
            // What the turns of a session did to files, once that is told.
            ["summary", session] => {
                let (client, _) = self.session(session).await;
                for _ in 0..500 {
                    let answer = client.info_request().send().promise.await?;
                    let summary = answer.get()?.get_session()?.get_summary()?;
                    if summary.get_files() > 0 {
                        let (more, less) = (summary.get_additions(), summary.get_deletions());
                        return Ok(format!("{} files +{more} -{less}", summary.get_files()));
                    }
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                }
                return Ok("nothing".to_owned());
            }
            _ => panic!("no such line: {words:?}"),
        }
        Ok(String::new())
    }
}

fn start(dir: &Path, flags: &[&str]) -> Server {
    let root = dir.join("work").display().to_string();
    let all: Vec<&str> =
        ["--worktree-root", root.as_str()].into_iter().chain(flags.to_vec()).collect();
    Server::start_in(&dir.join("data"), &all, &[])
}

/// A report in words: how many were done, and what was not and why.
fn told(report: move_report::Reader<'_>) -> String {
    let mut words = vec![format!("done {}", report.get_done())];
    for conflict in report.get_conflicts().unwrap() {
        let why = match conflict.get_reason().unwrap() {
            ConflictReason::Changed => "changed",
            ConflictReason::Unreadable => "unreadable",
            ConflictReason::NotEmpty => "not-empty",
            ConflictReason::NoDirectory => "no-directory",
            ConflictReason::Forbidden => "forbidden",
            ConflictReason::Shared => "shared",
            ConflictReason::NotTaken => "not-taken",
        };
        words.push(format!("{}:{why}", String::from_utf8_lossy(conflict.get_path().unwrap())));
    }
    words.join(" ")
}

/// Tells a story in a yard of its own, and sees that everything is as it must be behind it.
fn check(story: &str) {
    local(async {
        let mut yard = Yard::new().await;
        yard.tell(story).await;
        let data = yard.dir.path().join("data");
        let verified = command(&data).args(["verify", "--data"]).arg(&data).output().unwrap();
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    });
}

#[test]
fn files_are_taken_down_and_put_back() {
    check(
        "
        write a one
        write d/b two
        track s1
        files s1 -> a d/b
        write a changed
        write new here
        rm d
        track s2
        files s2 -> a new
        restore r1 s1 -> done 4         // d itself is one of them
        file a -> one
        file d/b -> two
        file new -> none
        restore r1 s1 -> done 4         // once
        restore r2 s1 -> done 0
        unrevert r3 r1 -> done 4
        file a -> changed
        file new -> here
        file d -> none
        restore r4 s1 a d/b -> done 3   // with the directory that leads there
        file a -> one
        file new -> here
        ",
    );
}

/// What was there and was not taken is not taken away because a snapshot does not have it.
#[test]
fn what_was_ignored_or_too_large_then_is_left_alone_now() {
    check(
        "
        write .gitignore *.env
        write a.env secret
        write src/b one
        track s1
        turn A t1
        snap t1 a1
        write .gitignore nothing
        write src/b two
        snap t1 a2
        finish A t1
        files a2 -> .gitignore a.env src/b
        revert A r1 undo -> done 2 a.env:not-taken
        file a.env -> secret
        file src/b -> one
        revert A r2 end -> done 2
        restore r3 s1 -> done 2 a.env:not-taken
        file a.env -> secret
        undo r4 s1 a2 a.env -> done 0 a.env:not-taken   // the rest is undone already
        ",
    );
}

#[test]
fn what_somebody_else_has_changed_is_left_alone_unless_one_insists() {
    check(
        "
        write a one
        write b one
        track s1
        write a two
        write b two
        write c two
        track s2
        write b mine
        undo r1 s1 s2 -> done 2 b:changed
        file a -> one
        file b -> mine
        file c -> none
        unrevert r2 r1 -> done 2
        file a -> two
        undo r3 s1 s2 b -> done 3
        file b -> one
        unrevert r4 r3 -> done 3
        file b -> mine                  // and what was overwritten is not lost
        ",
    );
}

/// V3, V5, V9, V14: conversation and files go together, in both directions.
#[test]
fn a_conversation_takes_its_files_along() {
    check(
        "
        write f zero
        turn A t1
        snap t1 a1
        write f one
        write g one
        snap t1 a2
        finish A t1
        turn A t2
        snap t2 b1
        write f two
        snap t2 b2
        finish A t2
        turn A t3
        snap t3 c1
        write f three
        write h three
        snap t3 c2
        finish A t3
        shown A -> 3
        revert A r1 before u-t3 -> done 2
        shown A -> 2
        file f -> two
        file h -> none
        revert A r2 before u-t1 -> done 2
        shown A -> 0
        file f -> zero
        file g -> none
        revert A r3 redo -> done 2
        shown A -> 1
        file f -> one
        file g -> one
        revert A r4 before u-t3 -> done 1
        file f -> two
        revert A r5 end -> done 2
        shown A -> 3
        file f -> three
        file h -> three
        revert A r5 end -> done 2       // the same call again
        revert A r6 end -> done 0
        ",
    );
}

/// W6: two sessions in one work tree do not undo each other's work.
#[test]
fn w6_two_sessions_do_not_undo_each_others_work() {
    check(
        "
        write shared zero
        turn A ta
        snap ta a1
        turn B tb
        snap tb b1
        say A ta am
        tool A ta am p1 fa
        write fa by-a
        say B tb bm
        tool B tb bm p1 fb
        write fb by-b
        write fx by-nobody-knows
        snap ta a2
        snap tb b2
        finish A ta
        finish B tb
        revert A r1 undo -> done 1 fx:shared
        file fa -> none
        file fb -> by-b
        file fx -> by-nobody-knows
        revert B r2 undo fx -> done 2
        file fb -> none
        file fx -> none
        ",
    );
}

/// What changed up to a snapshot is somebody's work, also when the snapshot is let go of.
#[test]
fn letting_go_of_a_snapshot_lets_go_of_nobodys_work() {
    check(
        "
        write f zero
        turn A t1
        snap t1 a1
        write f one
        track s1
        write f two
        snap t1 a2
        finish A t1
        summary A -> 1 files +1 -1
        drop s1 -> true
        drop s1 -> false
        restore r0 s1 -> snapshot-not-found
        revert A r1 undo -> done 1
        file f -> zero
        drop a1 -> not-permitted
        remove A
        drop a1 -> false
        ",
    );
}

/// A session that has touched no files goes back without any, and once for each call.
#[test]
fn a_repeat_goes_back_no_further() {
    check(
        "
        turn A t1
        finish A t1
        turn A t2
        finish A t2
        shown A -> 2
        revert A r1 undo -> done 0
        revert A r1 undo -> done 0
        shown A -> 1
        turn A t3
        revert A r1 undo -> done 0      // also while it could not be
        revert A r2 undo -> session-busy
        ",
    );
}

/// W5: what a person has changed meanwhile stays, and taking back the revert touches only what it touched.
#[test]
fn w5_what_a_person_has_changed_meanwhile_stays() {
    check(
        "
        write f zero
        write mine zero
        turn A t1
        snap t1 a1
        write f one
        snap t1 a2
        finish A t1
        summary A -> 1 files +1 -1      // from here on it is nobody's turn
        write mine edited
        revert A r1 undo -> done 1
        file mine -> edited
        write mine again
        write other new
        revert A r2 end -> done 1
        file f -> one
        file mine -> again
        file other -> new
        write f by-a-person
        revert A r3 undo -> done 0 f:changed
        file f -> by-a-person
        ",
    );
}

#[test]
fn after_going_on_what_was_reverted_stays_so_and_earlier_work_can_be_undone() {
    check(
        "
        write f zero
        turn A t1
        snap t1 a1
        write f one
        snap t1 a2
        finish A t1
        turn A t2
        snap t2 b1
        write f two
        snap t2 b2
        finish A t2
        revert A r1 undo -> done 1
        file f -> one
        turn A t3
        snap t3 c1
        write f three
        snap t3 c2
        finish A t3
        revert A r2 end -> done 0       // nothing is reverted any more
        revert A r3 before u-t1 -> done 1
        file f -> zero
        revert A r4 end -> done 1
        file f -> three
        ",
    );
}

/// Undoing what came after a revert does not bring back what was reverted.
#[test]
fn what_was_reverted_before_stays_reverted() {
    check(
        "
        write f zero
        turn A t1
        snap t1 a1
        write f one
        finish A t1
        summary A -> 1 files +1 -1
        turn A t2
        snap t2 b1
        write f two
        write g two
        snap t2 b2
        finish A t2
        revert A r1 undo -> done 2
        turn A t3
        snap t3 c1
        write f three
        finish A t3
        revert A r2 undo -> done 1      // its last change was taken down first
        file f -> one
        file g -> none
        revert A r3 before u-t1 -> done 1
        file f -> zero
        revert A r4 end -> done 1
        file f -> three
        file g -> none
        ",
    );
}

/// What a turn makes in directories of its own comes and goes with it.
#[test]
fn directories_come_and_go_with_what_is_in_them() {
    check(
        "
        write keep here
        turn A t1
        snap t1 a1
        write d/e/x one
        snap t1 a2
        write d/y two
        finish A t1
        revert A r1 undo -> done 4
        file d -> none
        revert A r2 redo -> done 4
        file d/e/x -> one
        revert A r3 undo -> done 4
        file d -> none
        revert A r4 end -> done 4
        file d/y -> two
        ",
    );
}

/// F6, R5: a fork has what it copied, also when its source is gone.
#[test]
fn forks_share_history_and_diverge() {
    check(
        "
        write f zero
        turn A t1
        snap t1 a1
        write f one
        snap t1 a2
        finish A t1
        summary A -> 1 files +1 -1
        turn A t2
        snap t2 b1
        write f two
        snap t2 b2
        finish A t2
        fork A F
        remove A
        shown F -> 2
        turn F t3
        snap t3 c1
        write f three
        snap t3 c2
        finish F t3
        revert F r1 undo -> done 1
        file f -> two
        revert F r2 end -> done 1
        file f -> three
        ",
    );
}

/// U1, U4: what a turn did is told from its snapshots, also if it wrote at once, and if nobody ended it.
#[test]
fn what_a_turn_did_is_told_from_its_snapshots() {
    check(
        "
        write f one
        turn A t1
        snap t1 a1
        write f two
        write g new
        finish A t1
        summary A -> 2 files +2 -1
        turn B t2 short
        snap t2 b1
        write f three
        summary B -> 1 files +1 -1      // its lease has run out
        revert B r1 undo -> done 1
        file f -> two
        ",
    );
}

/// A crash between any two lines changes nothing.
#[test]
fn what_was_done_stays_done_after_a_crash() {
    check(
        "
        write f zero
        turn A t1
        snap t1 a1
        crash
        write f one
        track s1
        revert A r0 undo -> session-busy
        crash
        restore r1 a1 -> done 1
        crash
        file f -> zero
        restore r1 a1 -> done 1
        unrevert r2 r1 -> done 1
        crash
        file f -> one
        unrevert r2 r1 -> done 1
        unrevert r3 r9 -> snapshot-not-found
        ",
    );
}
