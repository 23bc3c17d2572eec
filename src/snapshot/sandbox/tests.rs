//! Sandboxes in real repositories, and git's own view of them.

mod loss;

use super::disk::unseal;
use super::place::BEING_MADE;
use super::*;
use proptest::prelude::*;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A repository with one commit of `main`, as git makes it, and a home beside.
struct Scene {
    temp: TempDir,
}

impl Scene {
    fn new() -> Self {
        let scene = Self::empty();
        scene.write("tracked", "one\n");
        scene.write("dir/below", "two\n");
        scene.write(".gitignore", "*.o\n");
        scene.commit("first");
        scene
    }

    fn empty() -> Self {
        let scene = Self { temp: TempDir::new().unwrap() };
        fs::create_dir(scene.repo()).unwrap();
        scene.git(&["init", "-q", "-b", "main"]);
        scene
    }

    fn repo(&self) -> PathBuf {
        fs::canonicalize(self.temp.path()).unwrap().join("repo")
    }

    fn home(&self) -> PathBuf {
        fs::canonicalize(self.temp.path()).unwrap().join("home")
    }

    fn sandboxes(&self) -> Sandboxes {
        Sandboxes::new(&self.repo(), &self.home()).unwrap()
    }

    fn write(&self, path: &str, text: &str) {
        write(&self.repo().join(path), text);
    }

    fn commit(&self, message: &str) {
        commit(&self.repo(), message);
    }

    fn git(&self, args: &[&str]) -> String {
        git(&self.repo(), args)
    }

    fn entry(&self, name: &str) -> PathBuf {
        self.repo().join(format!(".git/worktrees/bowline-{name}"))
    }

    /// What git and the disk have of sandboxes; the directory of our lock aside.
    fn traces(&self) -> Vec<String> {
        let refs = ["for-each-ref", "--format=%(refname)", "refs/bowline", "refs/heads/bowline"];
        let refs = self.git(&refs);
        let mut found: Vec<String> = refs.lines().map(ToOwned::to_owned).collect();
        let own = self.repo().join(".git/bowline");
        for directory in [self.home(), self.repo().join(".git/worktrees"), own] {
            for child in fs::read_dir(&directory).into_iter().flatten() {
                let child = child.unwrap().path();
                if !child.ends_with("bowline/lock") {
                    found.push(child.display().to_string());
                }
            }
        }
        found
    }

    /// Nothing of it is amiss, as git sees it.
    fn assert_whole(&self, sandbox: &Sandbox) {
        let directory = &sandbox.directory;
        assert_eq!(git(directory, &["status", "--porcelain", "--ignored"]), "");
        assert_eq!(git(directory, &["symbolic-ref", "--short", "HEAD"]).trim(), sandbox.branch);
        let listed = self.git(&["worktree", "list", "--porcelain"]);
        let line = format!("worktree {}\n", directory.display());
        let block = listed.split("\n\n").find(|block| format!("{block}\n").contains(&line));
        let block = block.unwrap_or_else(|| panic!("{listed}"));
        assert!(block.contains(&format!("branch refs/heads/{}", sandbox.branch)), "{block}");
        assert!(!block.contains("locked") && !block.contains("prunable"), "{block}");
        assert!(!sandbox.missing);
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn commit(directory: &Path, message: &str) -> String {
    git(directory, &["add", "-A"]);
    git(directory, &["commit", "-q", "--allow-empty", "-m", message]);
    git(directory, &["rev-parse", "HEAD"]).trim().to_owned()
}

fn try_git(directory: &Path, args: &[&str]) -> Output {
    Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"])
        .args(args)
        .current_dir(directory)
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn git(directory: &Path, args: &[&str]) -> String {
    let output = try_git(directory, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn names_become_slugs() {
    let long = "x".repeat(NAME_BYTES_MAX);
    let table = [
        ("fix", Some("fix")),
        ("Fix The  Bug!", Some("fix-the-bug")),
        ("--a--b--", Some("a-b")),
        ("../../etc/passwd", Some("etc-passwd")),
        ("a.lock", Some("a-lock")),
        ("-rf", Some("rf")),
        ("a\0b\nc", Some("a-b-c")),
        ("größe", Some("gr-e")),
        ("HEAD", Some("head")),
        ("", None),
        ("...", None),
        ("日本", None),
    ];
    for (name, want) in table {
        assert_eq!(slug(name).as_deref(), want, "{name:?}");
    }
    assert_eq!(slug(&format!("{long}y")), Some(long.clone()));
    assert_eq!(slug(&format!("{}-y", &long[1..])), Some(long[1..].to_owned()));
}

proptest! {
    #[test]
    fn slugs_are_plain_and_stay(name in any::<String>()) {
        if let Some(slugged) = slug(&name) {
            prop_assert!(slugged.len() <= NAME_BYTES_MAX);
            prop_assert!(slugged.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-')));
            prop_assert!(!slugged.starts_with('-') && !slugged.ends_with('-'));
            prop_assert_eq!(slug(&slugged), Some(slugged));
        }
    }
}

#[test]
fn a_sandbox_is_a_work_tree_git_finds_nothing_wrong_with() {
    let scene = Scene::new();
    symlink("tracked", scene.repo().join("link")).unwrap();
    scene.write("odd \n\"name\"/ü", "x");
    scene.write("run", "#!/bin/sh\n");
    fs::set_permissions(scene.repo().join("run"), fs::Permissions::from_mode(0o755)).unwrap();
    scene.write(".gitattributes", "dos eol=crlf\n");
    scene.write("dos", "a\r\nb\r\n");
    scene.commit("odd");
    scene.write("dirty", "of the person");
    fs::write(scene.repo().join(".git/index.lock"), "").unwrap();

    let made = scene.sandboxes().create("My Fix!", None, "op").unwrap();
    let want = (("my-fix", "bowline/my-fix"), scene.home().join("my-fix"));
    assert_eq!(((&*made.name, &*made.branch), made.directory.clone()), want);
    scene.assert_whole(&made);
    assert_eq!(fs::read(made.directory.join("dos")).unwrap(), b"a\r\nb\r\n");
    assert_eq!(fs::read_link(made.directory.join("link")).unwrap(), Path::new("tracked"));
    assert_eq!(
        fs::metadata(made.directory.join("run")).unwrap().permissions().mode() & 0o111,
        0o111
    );
    assert!(!made.directory.join("dirty").exists());
    fs::remove_file(scene.repo().join(".git/index.lock")).unwrap();
    assert_eq!(scene.git(&["status", "--porcelain"]), "?? dirty\n");
    assert_eq!(scene.git(&["fsck", "--strict"]), "");
    assert_eq!(scene.git(&["worktree", "prune", "-v"]), "");
    assert_eq!(scene.sandboxes().list().unwrap(), std::slice::from_ref(&made));

    // Work goes on with git in there.
    write(&made.directory.join("new"), "x");
    commit(&made.directory, "work");
    let state = scene.sandboxes().state("my-fix").unwrap();
    assert_eq!((state.unmerged, state.uncommitted), (1, 0));
}

#[test]
fn the_same_op_finds_its_own_and_another_does_not() {
    let scene = Scene::new();
    let all = scene.sandboxes();
    let made = all.create("a", None, "op \"ü\n").unwrap();
    write(&made.directory.join("tracked"), "changed");
    scene.commit("main moves on");
    assert_eq!(all.create("a", None, "op \"ü\n").unwrap(), made);
    assert_eq!(all.create("A!", Some("no such thing"), "op \"ü\n").unwrap(), made);
    assert_eq!(fs::read(made.directory.join("tracked")).unwrap(), b"changed");
    for other in ["op", "op \"ü", "op \"ü\n\n"] {
        assert!(matches!(all.create("a", None, other), Err(Error::Exists(name)) if name == "a"));
    }
    assert!(matches!(all.create("a", None, ""), Err(Error::BadOp { bytes: 0 })));
    assert!(matches!(all.create("a", None, &"o".repeat(257)), Err(Error::BadOp { bytes: 257 })));
    assert!(matches!(all.create("/", None, "op"), Err(Error::BadName(_))));
    assert_eq!(all.list().unwrap().len(), 1);
}

#[test]
fn it_begins_where_told() {
    let scene = Scene::new();
    let first = scene.git(&["rev-parse", "HEAD"]).trim().to_owned();
    scene.write("tracked", "two\n");
    scene.commit("second");
    scene.git(&["tag", "-a", "v1", "-m", "tag", &first]);
    let all = scene.sandboxes();
    for (name, from) in [("a", "v1"), ("b", "HEAD~1"), ("c", &first[..10]), ("d", "main^{/first}")]
    {
        let made = all.create(name, Some(from), "op").unwrap();
        assert_eq!(made.start.to_string(), first, "{from}");
        assert_eq!(fs::read(made.directory.join("tracked")).unwrap(), b"one\n");
    }
    for bad in ["nope", "", "a\0b", "HEAD:tracked", "HEAD^{tree}", "--all"] {
        let refused = all.create("z", Some(bad), "op");
        assert!(matches!(refused, Err(Error::UnknownRevision(said)) if said == bad), "{bad:?}");
    }
    assert!(!scene.traces().iter().any(|trace| trace.ends_with("/z") || trace.ends_with("-z")));
}

#[test]
fn places_without_a_sandbox_to_make_are_told_apart() {
    let scene = Scene::empty();
    let none = scene.temp.path().join("none");
    fs::create_dir(&none).unwrap();
    assert!(matches!(Sandboxes::new(&none, &scene.home()), Err(Error::NotGit)));
    assert!(matches!(Sandboxes::new(&none.join("gone"), &scene.home()), Err(Error::NotGit)));
    let refused = scene.sandboxes().create("a", None, "op");
    assert!(matches!(refused, Err(Error::Unborn)), "{refused:?}");
    assert_eq!(scene.traces(), [""; 0]);

    scene.write("sub/file", "x");
    scene.commit("first");
    scene.git(&["clone", "-q", "--bare", ".", "../bare"]);
    let bare = scene.temp.path().join("bare");
    assert!(matches!(Sandboxes::new(&bare, &scene.home()), Err(Error::Bare)));
    // A linked work tree of a bare one will do, and any directory in a repository.
    git(&bare, &["worktree", "add", "-q", "../linked"]);
    let linked = scene.temp.path().join("linked");
    let made = Sandboxes::new(&linked, &scene.home()).unwrap().create("a", None, "op").unwrap();
    assert_eq!(git(&made.directory, &["status", "--porcelain"]), "");
    let below = Sandboxes::new(&scene.repo().join("sub"), &scene.home()).unwrap();
    scene.assert_whole(&below.create("b", None, "op").unwrap());
}

#[test]
fn a_linked_work_tree_hands_on_its_head_and_shares_the_rest() {
    let scene = Scene::new();
    scene.git(&["worktree", "add", "-q", "-b", "other", "../linked"]);
    let linked = fs::canonicalize(scene.temp.path().join("linked")).unwrap();
    let there = commit(&linked, "only there");
    let all = Sandboxes::new(&linked, &scene.home()).unwrap();
    let made = all.create("a", None, "op").unwrap();
    assert_eq!(made.start.to_string(), there);
    scene.assert_whole(&made);
    assert_eq!(scene.sandboxes().list().unwrap(), std::slice::from_ref(&made));
    // Even one inside another.
    let inner = Sandboxes::new(&made.directory, &scene.home()).unwrap();
    scene.assert_whole(&inner.create("b", None, "op").unwrap());
    assert!(scene.entry("b").is_dir());
}

#[test]
fn what_is_somebody_elses_is_not_taken() {
    let scene = Scene::new();
    let all = scene.sandboxes();
    scene.git(&["branch", "bowline/branch"]);
    fs::create_dir_all(scene.home().join("directory")).unwrap();
    symlink("/nowhere", scene.home().join("link")).unwrap();
    scene.git(&["worktree", "add", "-q", "--detach", "../bowline-entry"]);
    let before = scene.traces();
    for name in ["branch", "directory", "link", "entry"] {
        assert!(matches!(all.create(name, None, "op"), Err(Error::Exists(_))), "{name}");
        assert!(matches!(all.state(name), Err(Error::NotFound(_))), "{name}");
        assert!(matches!(all.reset(name, None, true), Err(Error::NotFound(_))), "{name}");
        assert_eq!(all.remove(name, true).unwrap(), Removed::default(), "{name}");
    }
    assert_eq!(scene.traces(), before);
    assert_eq!(all.list().unwrap(), []);

    // A person's own work tree of the very name is no hindrance.
    scene.git(&["worktree", "add", "-q", "-b", "free", "../free"]);
    scene.assert_whole(&all.create("free", None, "op").unwrap());
    // Another home is.
    let other = Sandboxes::new(&scene.repo(), &scene.temp.path().join("other")).unwrap();
    assert!(matches!(other.create("free", None, "other"), Err(Error::Exists(_))));
    assert!(matches!(other.create("free", None, "op"), Err(Error::NotOurs(_))));
    assert!(matches!(other.remove("free", true), Err(Error::NotOurs(_))));
    assert_eq!(other.list().unwrap(), []);
}

#[test]
fn a_branch_that_cannot_be_leaves_nothing() {
    let scene = Scene::new();
    scene.git(&["branch", "bowline"]);
    assert!(matches!(scene.sandboxes().create("a", None, "op"), Err(Error::Git(_))));
    assert_eq!(scene.traces(), ["refs/heads/bowline"]);
}

#[test]
fn names_that_are_no_slug_name_nothing() {
    let scene = Scene::new();
    let all = scene.sandboxes();
    all.create("a", None, "op").unwrap();
    for name in ["A", "a/", "./a", "../home/a", "", "a\0", "a ", "*"] {
        assert!(matches!(all.state(name), Err(Error::NotFound(_))), "{name:?}");
        assert!(!all.remove(name, true).unwrap().existed, "{name:?}");
    }
    scene.assert_whole(&all.list().unwrap()[0]);
}

#[test]
fn nothing_the_repository_names_is_run() {
    let scene = Scene::new();
    let marker = scene.temp.path().join("marker");
    let script = scene.temp.path().join("script");
    fs::write(&script, format!("#!/bin/sh\necho $0 $* >> {}\ncat\n", marker.display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    scene.write(".gitattributes", "* filter=evil diff=evil\n");
    scene.commit("attributes");
    let hooks = scene.repo().join(".git/hooks");
    for hook in ["post-checkout", "reference-transaction", "post-index-change", "pre-commit"] {
        fs::copy(&script, hooks.join(hook)).unwrap();
    }
    let script = script.to_str().unwrap();
    let settings = [
        ("filter.evil.smudge", script),
        ("filter.evil.clean", script),
        ("filter.evil.process", script),
        ("filter.evil.required", "true"),
        ("diff.evil.textconv", script),
        ("diff.evil.command", script),
        ("core.fsmonitor", script),
        ("core.hooksPath", hooks.to_str().unwrap()),
        ("core.sshCommand", script),
        ("core.editor", script),
        ("gpg.program", script),
        ("commit.gpgSign", "true"),
        ("tag.gpgSign", "true"),
        ("credential.helper", script),
        ("core.worktree", scene.temp.path().to_str().unwrap()),
    ];
    let config = scene.repo().join(".git/config");
    for (key, value) in settings {
        git(scene.temp.path(), &["config", "-f", config.to_str().unwrap(), key, value]);
    }
    let all = scene.sandboxes();
    let made = all.create("a", None, "op").unwrap();
    assert_eq!(made.directory, scene.home().join("a"));
    assert_eq!(fs::read(made.directory.join("tracked")).unwrap(), b"one\n");
    write(&made.directory.join("tracked"), "changed");
    write(&made.directory.join("new"), "new");
    assert_eq!(all.state("a").unwrap().uncommitted, 2);
    all.reset("a", None, true).unwrap();
    fs::remove_dir_all(&made.directory).unwrap();
    all.create("a", None, "op").unwrap();
    all.remove("a", false).unwrap();
    assert!(!marker.exists(), "{}", fs::read_to_string(&marker).unwrap());
    assert_eq!(fs::read(scene.repo().join("tracked")).unwrap(), b"one\n");
}

#[test]
fn submodules_are_left_out_and_guarded() {
    let scene = Scene::new();
    let library = Scene::new();
    scene.git(&["submodule", "add", "-q", library.repo().to_str().unwrap(), "lib"]);
    scene.commit("submodule");
    let all = scene.sandboxes();
    let made = all.create("a", None, "op").unwrap();
    scene.assert_whole(&made);
    assert_eq!(fs::read_dir(made.directory.join("lib")).unwrap().count(), 0);
    assert_eq!(all.state("a").unwrap().uncommitted, 0);
    // Its commits would go with the entry.
    git(&made.directory, &["submodule", "update", "-q", "--init"]);
    scene.assert_whole(&made);
    assert!(matches!(all.remove("a", false), Err(Error::Uncommitted { files: 1 })));
    all.reset("a", None, false).unwrap();
    assert!(made.directory.join("lib/tracked").exists());
    assert!(all.remove("a", true).unwrap().existed);
    assert_eq!(scene.traces(), [""; 0]);
}

type Crash = (&'static str, fn(&Scene));

/// What a crash can leave of a creation.
fn crashes() -> Vec<Crash> {
    fn no_directory(scene: &Scene) {
        fs::remove_dir_all(scene.home().join("a")).unwrap();
    }
    fn locked(scene: &Scene) {
        fs::write(scene.entry("a").join("locked"), BEING_MADE).unwrap();
    }
    fn no_entry(scene: &Scene) {
        no_directory(scene);
        fs::remove_dir_all(scene.entry("a")).unwrap();
    }
    vec![
        ("claimed", |scene| {
            no_entry(scene);
            scene.git(&["branch", "-q", "-D", "bowline/a"]);
        }),
        ("branch", no_entry),
        ("half an entry", |scene| {
            no_entry(scene);
            write(&scene.repo().join(".git/bowline/a.new/HEAD"), "ref: ");
        }),
        ("entry", |scene| {
            no_directory(scene);
            locked(scene);
            fs::remove_file(scene.entry("a").join("index")).unwrap();
        }),
        ("half an index", |scene| {
            no_directory(scene);
            locked(scene);
            fs::rename(scene.entry("a").join("index"), scene.entry("a").join("index.lock"))
                .unwrap();
        }),
        ("half a directory", |scene| {
            no_directory(scene);
            locked(scene);
            write(&scene.home().join(".a.new/tracked"), "o");
        }),
        ("unlocked", locked),
        ("whole", |_| {}),
    ]
}

#[test]
fn a_creation_that_crashed_is_completed_by_the_same_op() {
    for (step, crash) in crashes() {
        let scene = Scene::new();
        let all = scene.sandboxes();
        let made = all.create("a", None, "op").unwrap();
        crash(&scene);
        scene.commit("main moves on");
        assert!(matches!(all.create("a", None, "other"), Err(Error::Exists(_))), "{step}");
        assert_eq!(all.list().unwrap()[0].missing, !made.directory.exists(), "{step}");
        all.state("a").unwrap();
        assert_eq!(all.create("a", None, "op").unwrap(), made, "{step}");
        scene.assert_whole(&made);
        assert!(!scene.home().join(".a.new").exists(), "{step}");
        assert_eq!(all.list().unwrap(), [made], "{step}");
    }
}

#[test]
fn a_creation_that_crashed_can_be_removed() {
    for (step, crash) in crashes() {
        let scene = Scene::new();
        let all = scene.sandboxes();
        all.create("a", None, "op").unwrap();
        crash(&scene);
        let removed = all.remove("a", false).unwrap();
        assert_eq!(removed, Removed { existed: true, kept: Vec::new() }, "{step}");
        assert_eq!(scene.traces(), [""; 0], "{step}");
        assert!(!all.remove("a", false).unwrap().existed, "{step}");
        scene.assert_whole(&all.create("a", None, "next").unwrap());
    }
}

/// Run by the test below, which kills it.
#[test]
#[ignore = "runs until it is killed"]
fn make_and_remove_for_ever() {
    let Some(root) = std::env::var_os("SANDBOX_ROOT").map(PathBuf::from) else { return };
    let all = Sandboxes::new(&root.join("repo"), &root.join("home")).unwrap();
    loop {
        let made = all.create("a", None, "op").unwrap();
        fs::write(made.directory.join("dir/below"), "change").unwrap();
        all.reset("a", Some("HEAD~1"), true).unwrap();
        all.reset("a", None, false).unwrap();
        all.remove("a", false).unwrap();
    }
}

#[test]
fn a_kill_at_any_time_leaves_nothing_or_what_a_repeat_completes() {
    let scene = Scene::new();
    for i in 0..400 {
        scene.write(&format!("many/{}/{i}", i % 7), &format!("{i}\n").repeat(200));
    }
    scene.commit("many");
    let all = scene.sandboxes();
    let mut whole = 0;
    for round in 0..24 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "snapshot::sandbox::tests::make_and_remove_for_ever", "--ignored"])
            .env("SANDBOX_ROOT", fs::canonicalize(scene.temp.path()).unwrap())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(15 + round * 11));
        child.kill().unwrap();
        child.wait().unwrap();

        whole += all.list().unwrap().len();
        if round % 2 == 0 {
            let made = all.create("a", None, "op").unwrap();
            // A reset that was cut short leaves changes, and locks of git's that somebody must break.
            for entry in fs::read_dir(scene.entry("a")).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|ending| ending == "lock") {
                    fs::remove_file(path).unwrap();
                }
            }
            all.reset("a", None, true).unwrap();
            scene.assert_whole(&made);
        }
        all.remove("a", true).unwrap();
        assert_eq!(scene.traces(), [""; 0], "{round}");
        assert_eq!(scene.git(&["status", "--porcelain"]), "");
    }
    assert!(whole > 0, "nothing was ever interrupted");
}

#[test]
fn those_who_come_together_take_turns() {
    let scene = Scene::new();
    let all = scene.sandboxes();
    let made: Vec<_> = std::thread::scope(|scope| {
        let create = |i: usize| {
            let all = &all;
            scope.spawn(move || all.create("a", None, &format!("op {}", i % 2)))
        };
        let threads: Vec<_> = (0..8).map(create).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 4);
    assert!(made.iter().flat_map(|m| m.as_ref().err()).all(|e| matches!(e, Error::Exists(_))));
    scene.assert_whole(&all.list().unwrap()[0]);
}
