//! Work trees taken down and put back, beside git doing the same in the same run, and beside the floor: an lstat of
//! every file.
//!
//! `cargo bench --bench snapshot` takes trees of 5,000 and 100,000 files; `-- 5000` only those of that size.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout
)]

use bowline::snapshot::beneath::Root;
use bowline::snapshot::collect;
use bowline::snapshot::diff;
use bowline::snapshot::ground::{Ground, Place, Tracked, Wish};
use bowline::snapshot::plan::{Plan, Step};
use bowline::snapshot::vault::Vault;
use bowline::snapshot::walk::{Policy, Progress};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A tree of so many files, as a repository has them: a few directories deep, some kilobytes each.
struct Tree {
    dir: PathBuf,
    files: usize,
}

impl Tree {
    fn new(dir: PathBuf, files: usize) -> Self {
        let tree = Self { dir, files };
        for n in 0..files {
            let path = tree.path(n);
            if n < 2_000 {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
            }
            fs::write(path, tree.text(n, 0)).unwrap();
        }
        git(&tree.dir, &["init", "-q"]);
        tree
    }

    fn path(&self, n: usize) -> PathBuf {
        self.dir.join(format!("crate{}/src/module{}/file{n}.rs", n % 40, (n / 40) % 50))
    }

    fn text(&self, n: usize, version: usize) -> String {
        let line =
            |at: usize| format!("    let value_{at} = compute({}, {version});\n", n * 100 + at);
        (0..60).map(line).collect()
    }

    /// Changes so many of the files, spread over all directories.
    fn change(&self, count: usize, version: usize) {
        let count = count.min(self.files);
        for n in 0..count {
            let n = n * (self.files / count);
            fs::write(self.path(n), self.text(n, version)).unwrap();
        }
    }

    fn lstat(&self, paths: &[PathBuf]) {
        for path in paths {
            fs::symlink_metadata(path).unwrap();
        }
    }
}

fn git(dir: &Path, args: &[&str]) -> String {
    let out = Command::new("git").args(args).current_dir(dir).output().unwrap();
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

/// The way of the reference: a git directory beside, everything added, a tree written.
struct Theirs<'a> {
    tree: &'a Tree,
    git_dir: PathBuf,
}

impl Theirs<'_> {
    fn run(&self, args: &[&str]) -> String {
        let (git_dir, work) = (self.git_dir.to_str().unwrap(), self.tree.dir.to_str().unwrap());
        let all: Vec<_> =
            ["--git-dir", git_dir, "--work-tree", work].iter().chain(args).copied().collect();
        git(&self.tree.dir, &all)
    }

    fn track(&self) -> String {
        if !self.git_dir.exists() {
            git(&self.tree.dir, &["init", "-q", "--bare", self.git_dir.to_str().unwrap()]);
        }
        self.run(&["add", "."]);
        self.run(&["write-tree"])
    }

    fn restore(&self, tree: &str) {
        self.run(&["read-tree", tree]);
        self.run(&["checkout-index", "-a", "-f"]);
    }
}

fn ground(dir: &Path, home: &Path, watching: bool) -> Ground {
    fs::create_dir_all(home).unwrap();
    let vault = Arc::new(Vault::open(&home.join("vault.git")).unwrap());
    let threads = rayon::ThreadPoolBuilder::new().stack_size(16 << 20).build().unwrap();
    let now_ns = bowline::clock::file_time_ns;
    let policy = Policy { file_bytes_max: 10 << 20, files_max: 2_000_000, own: Vec::new(), now_ns };
    let root = Root::open(dir).unwrap();
    let home = home.join("worktree");
    let place = Place { root, home: &home, vault, threads: Arc::new(threads), watching };
    Ground::open(place, policy).unwrap()
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let begun = Instant::now();
    let done = work();
    (begun.elapsed(), done)
}

/// The middle one of several, each after something was made ready.
fn median<T>(
    rounds: usize,
    mut ready: impl FnMut(usize),
    mut work: impl FnMut(usize) -> T,
) -> Duration {
    let mut all: Vec<_> = (0..rounds)
        .map(|round| {
            ready(round);
            timed(|| work(round)).0
        })
        .collect();
    all.sort();
    all[rounds / 2]
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn row(what: &str, ours: Duration, theirs: Option<Duration>, floor: Duration) {
    let against = theirs.map_or_else(String::new, |theirs| {
        format!("{:>10.1} {:>7.1} ×", ms(theirs), theirs.as_secs_f64() / ours.as_secs_f64())
    });
    let floor = ours.as_secs_f64() / floor.as_secs_f64();
    println!("{what:<34} {:>10.2} {against:<20} {floor:>7.2} × floor", ms(ours));
}

fn track(ground: &mut Ground) -> Tracked {
    ground.track(Wish::default(), &Progress::default()).unwrap()
}

/// Puts a tree's state back, as a call does: a plan, its two sides kept, carried out.
fn revert(ground: &mut Ground, from: &Tracked, to: &Tracked, name: u64) -> usize {
    let store = ground.vault().reader().unwrap();
    let steps: Vec<Step> = diff::all(&store, Some(from.tree), Some(to.tree))
        .unwrap()
        .into_iter()
        .map(Step::from)
        .collect();
    let mut id = [0; 16];
    id[..8].copy_from_slice(&name.to_le_bytes());
    let plan = Plan { name: id, at_ns: bowline::clock::file_time_ns(), steps };
    let applied = ground.apply(&plan, &Progress::default()).unwrap();
    assert!(applied.conflicts.is_empty());
    let batch = ground.vault().batch();
    let sides = ground.trees_of(batch, &applied.done).unwrap();
    ground.vault().keep(&[sides.before, sides.after]).unwrap();
    applied.done.len()
}

/// Nobody's clock says that what was written a moment ago is settled.
fn rest() {
    std::thread::sleep(Duration::from_millis(2_200));
}

fn one_size(files: usize) {
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::new(dir.path().join("tree"), files);
    let paths: Vec<_> = (0..files).map(|n| tree.path(n)).collect();
    let theirs = Theirs { tree: &tree, git_dir: dir.path().join("theirs.git") };
    rest();
    let floor = median(5, |_| (), |_| tree.lstat(&paths));
    println!("\n{files} files; an lstat of each: {:.1} ms", ms(floor));
    println!("{:<34} {:>10} {:>10} {:>9}", "", "ours, ms", "git, ms", "");
    let (first_git, tree_of_git) = timed(|| theirs.track());
    let mut version = 0;
    for watching in [false, true] {
        let with = if watching { "watched: " } else { "" };
        let mut ground = ground(&tree.dir, &dir.path().join(format!("ours-{watching}")), watching);
        if watching {
            // From here on git has seen all of it, too.
            theirs.track();
        }
        let (first, mut last) = timed(|| track(&mut ground));
        if !watching {
            assert_eq!(last.tree.to_string(), tree_of_git, "any git makes the same tree of it");
        }
        row(&format!("{with}first"), first, (!watching).then_some(first_git), floor);
        track(&mut ground);
        let same_git = median(3, |_| (), |_| theirs.track());
        let same = median(7, |_| (), |_| track(&mut ground));
        row(&format!("{with}no change"), same, Some(same_git), floor);
        for count in [1, 100, 5_000] {
            let rounds = if count < 5_000 { 5 } else { 3 };
            let mut ours = Vec::new();
            let mut git_ms = Vec::new();
            let mut back = Vec::new();
            for round in 0..rounds {
                version += 1;
                tree.change(count, version);
                let (time, now) = timed(|| track(&mut ground));
                ours.push(time);
                git_ms.push(timed(|| theirs.track()).0);
                let (time, done) =
                    timed(|| revert(&mut ground, &now, &last, version as u64 * 10 + round));
                assert_eq!(done, count.min(files));
                back.push(time);
                ground.sync().unwrap();
                last = track(&mut ground);
                theirs.track();
            }
            ours.sort();
            git_ms.sort();
            back.sort();
            let middle = rounds as usize / 2;
            row(&format!("{with}{count} changed"), ours[middle], Some(git_ms[middle]), floor);
            row(&format!("{with}revert of {count}"), back[middle], None, floor);
        }
        if !watching {
            let before = theirs.track();
            let time =
                median(3, |round| tree.change(1, 90_000 + round), |_| theirs.restore(&before));
            println!("{:<34} {:>10} {:>10.1}", "git restores with 1 changed", "", ms(time));
            theirs.track();
            track(&mut ground);
        }
    }
}

/// How much 500 snapshots of five changed files each take up, beside what git makes of the same when it packs it.
fn growth() {
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::new(dir.path().join("tree"), 5_000);
    let mut ground = ground(&tree.dir, &dir.path().join("ours"), true);
    let mut kept = vec![track(&mut ground)];
    let vault = ground.vault().clone();
    let roots = |kept: &[Tracked]| kept.iter().map(|it| it.tree).collect();
    let begun = collect::begin(&vault, || Ok(roots(&kept))).unwrap();
    let first = begun.finish(|| Ok(roots(&kept))).unwrap().bytes_after;
    let mut collecting = Duration::ZERO;
    for round in 1..=500usize {
        for n in 0..5 {
            let n = (round * 37 + n * 911) % tree.files;
            fs::write(tree.path(n), tree.text(n, round)).unwrap();
        }
        let now = track(&mut ground);
        vault.keep(&[now.tree]).unwrap();
        kept.push(now);
        if collect::is_worth_it(&vault).unwrap() {
            let (time, _) = timed(|| {
                let begun = collect::begin(&vault, || Ok(roots(&kept))).unwrap();
                begun.finish(|| Ok(roots(&kept))).unwrap()
            });
            collecting += time;
        }
    }
    let grown = vault.bytes().unwrap();
    let begun = collect::begin(&vault, || Ok(roots(&kept))).unwrap();
    let packed = begun.finish(|| Ok(roots(&kept))).unwrap().bytes_after;
    // What git packs the same objects into.
    let theirs = dir.path().join("theirs.git");
    git(
        dir.path(),
        &[
            "clone",
            "-q",
            "--bare",
            "--no-local",
            vault.directory().to_str().unwrap(),
            theirs.to_str().unwrap(),
        ],
    );
    git(
        &theirs,
        &["fetch", "-q", vault.directory().to_str().unwrap(), "refs/bowline/*:refs/bowline/*"],
    );
    git(&theirs, &["gc", "-q", "--prune=now"]);
    let count = git(&theirs, &["count-objects", "-v"]);
    let kib = count.lines().find_map(|line| line.strip_prefix("size-pack: ")).unwrap();
    let git_bytes = kib.parse::<u64>().unwrap() * 1024;
    println!("\n500 snapshots of 5 changed files of 5,000, in KiB");
    println!("  the first alone, put together    {:>8}", first >> 10);
    println!("  with all 500, as they stand      {:>8}", grown >> 10);
    println!("  with all 500, put together       {:>8}", packed >> 10);
    println!("  git's own pack of all 500        {:>8}", git_bytes >> 10);
    println!(
        "  ours to git's: {:.2} as they stand, {:.2} put together",
        grown as f64 / git_bytes as f64,
        packed as f64 / git_bytes as f64
    );
    println!("  putting together took {:.0} ms in all, beside the work", ms(collecting));
}

fn main() {
    let wanted: Option<usize> = std::env::args().skip(1).find_map(|arg| arg.parse().ok());
    for files in [5_000, 100_000] {
        if wanted.is_none_or(|wanted| wanted == files) {
            one_size(files);
        }
    }
    if wanted.is_none_or(|wanted| wanted == 5_000) {
        growth();
    }
}
