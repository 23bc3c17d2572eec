//! What the tests share: a project that is a real directory, a store, and an outside nothing may ever touch.
//!
//! `matrix` puts odd things into a project, `model` compares with a model, `escape` tries to get out, `restore` gets
//! into the way, `crash` kills, `collect` lets go, and `regressions` are what once hurt the users of others.

mod collect;
mod crash;
mod escape;
mod matrix;
mod model;
mod regressions;
mod restore;
mod rows;
mod watching;

use super::beneath::Root;
use super::diff;
use super::ground::{Ground, Place, Tracked, Wish};
use super::restore::{Applied, Plan, Step};
use super::vault::Vault;
use super::walk::{Policy, Progress};
use crate::model::ids::ObjectId;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

/// The real time: whatever was changed just now is read again.
fn real_ns() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as i64
}

/// A time at which everything has settled. Between a look and a change there must be a [`tick`].
fn settled_ns() -> i64 {
    real_ns() + 60_000_000_000
}

/// Waits until the file system's clock has gone on.
fn tick(world: &World) {
    let probe = world.dir.path().join("probe");
    let touched = || {
        fs::write(&probe, "x").unwrap();
        fs::metadata(&probe).unwrap().modified().unwrap()
    };
    let before = touched();
    while touched() == before {}
}

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Thing {
    File(u32, Vec<u8>),
    Link(Vec<u8>),
    Dir(u32),
    Special,
}

type Image = BTreeMap<Vec<u8>, Thing>;

fn path_of(path: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(path))
}

/// A directory byte for byte, without the top itself.
fn image(top: &Path) -> Image {
    fn go(dir: &Path, at: &[u8], image: &mut Image) {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let (name, full) = (entry.file_name().into_vec(), entry.path());
            let path = if at.is_empty() { name } else { [at, b"/", &name].concat() };
            let metadata = fs::symlink_metadata(&full).unwrap();
            let mode = metadata.permissions().mode() & 0o7777;
            let thing = match metadata.file_type() {
                kind if kind.is_dir() => {
                    go(&full, &path, image);
                    Thing::Dir(mode)
                }
                kind if kind.is_file() => Thing::File(mode, fs::read(&full).unwrap()),
                kind if kind.is_symlink() => {
                    Thing::Link(fs::read_link(&full).unwrap().into_os_string().into_vec())
                }
                _ => Thing::Special,
            };
            image.insert(path, thing);
        }
    }
    let mut found = Image::new();
    go(top, b"", &mut found);
    found
}

fn same(found: &Image, expected: &Image, when: &str) {
    let paths = found.keys().chain(expected.keys());
    let different: BTreeMap<_, _> = paths
        .filter(|path| found.get(*path) != expected.get(*path))
        .map(|path| (String::from_utf8_lossy(path), [found, expected].map(|it| it.get(path))))
        .collect();
    assert!(different.is_empty(), "{when}: found, expected: {different:?}");
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A project, its store, and what lies outside.
struct World {
    dir: tempfile::TempDir,
    vault: Arc<Vault>,
    threads: Arc<rayon::ThreadPool>,
    policy: Policy,
    watching: bool,
}

const CANARY: &str = "canary: nobody may read this or write it";

impl World {
    fn new() -> Self {
        Self::at(tempfile::tempdir().unwrap())
    }

    fn at(dir: tempfile::TempDir) -> Self {
        for name in ["root", "outside/deep"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        for name in ["outside/canary", "outside/deep/canary", "outside/file"] {
            fs::write(dir.path().join(name), CANARY).unwrap();
        }
        let vault = Arc::new(Vault::open(&dir.path().join("home/vault.git")).unwrap());
        let policy = Policy {
            file_bytes_max: 40 << 20,
            files_max: 1_000_000,
            own: Vec::new(),
            now_ns: real_ns,
        };
        Self { dir, vault, threads: threads(), policy, watching: false }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    fn home(&self) -> PathBuf {
        self.dir.path().join("home/ground")
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    fn write(&self, path: &str, bytes: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), bytes).unwrap();
    }

    fn image(&self) -> Image {
        image(&self.root())
    }

    fn ground(&self) -> Ground {
        self.ground_at(&self.home())
    }

    fn ground_at(&self, home: &Path) -> Ground {
        let root = Root::open(&self.root()).unwrap();
        let (vault, threads) = (self.vault.clone(), self.threads.clone());
        let place = Place { root, home, vault, threads, watching: self.watching };
        Ground::open(place, self.policy.clone()).unwrap()
    }

    /// The tree somebody finds who knows nothing.
    fn scratch(&self) -> Tracked {
        let home = tempfile::tempdir().unwrap();
        let mut ground = self.ground_at(home.path());
        track(&mut ground)
    }

    fn git(&self, args: &[&str]) -> Vec<u8> {
        git(&self.root(), args)
    }

    fn outside_is_untouched(&self) {
        let outside = image(&self.dir.path().join("outside"));
        let names: Vec<_> = outside.keys().map(|name| String::from_utf8_lossy(name)).collect();
        assert_eq!(names, ["canary", "deep", "deep/canary", "file"]);
        let touched = |thing: &Thing| match thing {
            Thing::File(mode, bytes) => *mode != 0o644 || bytes != CANARY.as_bytes(),
            thing => *thing != Thing::Dir(0o755),
        };
        assert!(!outside.values().any(touched), "{outside:?}");
    }
}

/// Ends what other threads do, also when a test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Numbers until a test is over.
fn until(over: &AtomicBool) -> impl Iterator<Item = usize> {
    (0..).take_while(|_| !over.load(Ordering::Relaxed))
}

fn threads() -> Arc<rayon::ThreadPool> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).stack_size(16 << 20);
    Arc::new(pool.build().unwrap())
}

fn track(ground: &mut Ground) -> Tracked {
    ground.track(Wish::default(), &Progress::default()).unwrap()
}

fn steps(ground: &Ground, from: ObjectId, to: ObjectId) -> Vec<Step> {
    let store = ground.vault().reader().unwrap();
    let changes = diff::all(&store, Some(from), Some(to)).unwrap();
    changes.into_iter().map(Step::from).collect()
}

fn plan(steps: Vec<Step>) -> Plan {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut name = [7; 16];
    name[..8].copy_from_slice(&number.to_le_bytes());
    Plan { name, at_ns: real_ns(), steps }
}

/// Carries steps out, as one would who wants them to stay.
fn carry_out(ground: &mut Ground, steps: Vec<Step>) -> Applied {
    let plan = plan(steps);
    let sides = ground.trees_of(ground.vault().batch(), &plan.steps).unwrap();
    let applied = ground.apply(&plan, &Progress::default()).unwrap();
    ground.sync().unwrap();
    assert!(Plan::left_behind(&home_of(ground)).unwrap().is_empty());
    drop(sides);
    applied
}

/// The homes of all grounds here stand beside their roots.
fn home_of(ground: &Ground) -> PathBuf {
    ground.root().path().parent().unwrap().join("home/ground")
}

/// Goes back to a tree.
fn back(ground: &mut Ground, tree: ObjectId) -> Applied {
    let now = track(ground);
    let steps = steps(ground, now.tree, tree);
    carry_out(ground, steps)
}

/// Git without anybody's settings.
fn git(dir: &Path, args: &[&str]) -> Vec<u8> {
    let (code, stdout, stderr) = git_says(dir, args);
    assert_eq!(code, Some(0), "git {args:?}: {stderr}");
    stdout
}

fn git_says(dir: &Path, args: &[&str]) -> (Option<i32>, Vec<u8>, String) {
    let mut command = Command::new("git");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"GIT_")) {
        command.env_remove(name);
    }
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    let who = ["-c", "user.name=n", "-c", "user.email=e@e"];
    let output = command.args(who).args(args).current_dir(dir).output().unwrap();
    (output.status.code(), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Git finds nothing missing or damaged in the store.
fn store_is_sound(vault: &Vault) {
    let (_, stdout, stderr) = git_says(vault.directory(), &["fsck", "--full", "--no-progress"]);
    let said = String::from_utf8_lossy(&stdout) + stderr.as_str();
    // What a name may stand for is the business of those who check it out.
    let odd = |line: &&str| line.contains(": gitattributes") || line.contains(": gitmodules");
    let bad = ["missing", "broken", "corrupt", "error", "fatal", "bad ref", "invalid", "Sorted"];
    let said = said.lines().filter(|line| !odd(line));
    let bad: Vec<_> = said.filter(|line| bad.iter().any(|it| line.contains(it))).collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

/// The references of the store, as git reads them.
fn references(vault: &Vault) -> HashSet<String> {
    let said = git(vault.directory(), &["for-each-ref", "--format=%(objectname) %(refname)"]);
    let lines: Vec<_> = String::from_utf8(said).unwrap().lines().map(str::to_owned).collect();
    let expected = |line: &&String| **line == format!("{0} refs/bowline/{0}", &line[..40]);
    assert!(lines.iter().all(|line| expected(&line)), "{lines:?}");
    lines.iter().map(|line| line[..40].to_owned()).collect()
}

/// What a crash could leave behind, anywhere in a directory.
fn leftovers(dir: &Path) -> Vec<String> {
    let is_leftover = |name: &[u8]| {
        name.starts_with(b".bowline-") || name.starts_with(b"tmp_") || name.starts_with(b"plan-")
    };
    let image = image(dir);
    let name = |path: &[u8]| path.rsplit(|byte| *byte == b'/').next().unwrap().to_vec();
    let mut found: Vec<_> = image.keys().filter(|path| is_leftover(&name(path))).cloned().collect();
    // A pack nobody finds.
    found.extend(image.keys().filter(|path| path.ends_with(b".pack")).filter_map(|path| {
        let index = [&path[..path.len() - 5], b".idx"].concat();
        (!image.contains_key(&index)).then(|| path.clone())
    }));
    found.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect()
}
