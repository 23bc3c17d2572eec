//! Odd things in a project: each is taken down, laid waste to in every way, and brought back byte for byte.

use super::rows::{ROWS, Row};
use super::*;
use crate::limits::WORKTREE_DEPTH_MAX;
use crate::snapshot::state::Skipped;
use crate::snapshot::walk::Error;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;

/// Which paths a snapshot does not hold, and why; also what is beneath them.
fn skipped(ground: &Ground) -> Vec<(Vec<u8>, Skipped)> {
    let all = ground.skipped(b"", usize::MAX).into_iter();
    all.map(|(path, why, _)| (path, why)).collect()
}

fn is_beneath(path: &[u8], skipped: &[(Vec<u8>, Skipped)]) -> bool {
    let beneath =
        |top: &[u8]| path.strip_prefix(top).is_some_and(|it| matches!(it, [] | [b'/', ..]));
    skipped.iter().any(|(top, _)| beneath(top))
}

/// Changes everything a snapshot holds, each time otherwise.
fn lay_waste(world: &World, image: &Image, skipped: &[(Vec<u8>, Skipped)], round: usize) {
    // Rules say what a snapshot is about; what comes of changing them is a test of its own.
    let taken = image.iter().rev().filter(|(path, _)| !is_beneath(path, skipped));
    let taken = taken.filter(|(path, _)| !path.ends_with(b".gitignore"));
    for (at, (path, thing)) in taken.enumerate() {
        let full = world.root().join(path_of(path));
        match (thing, (at + round) % 4) {
            (Thing::File(mode, bytes), 0) => {
                fs::write(&full, [bytes.as_slice(), b"!"].concat()).unwrap();
                chmod(&full, mode ^ 0o100);
            }
            (Thing::File(mode, _), 1) => chmod(&full, mode ^ 0o111),
            (Thing::File(..), 2) => {
                fs::remove_file(&full).unwrap();
                symlink("../outside/file", &full).unwrap();
            }
            (Thing::File(..) | Thing::Link(_), 3) => {
                fs::remove_file(&full).unwrap();
                fs::create_dir(&full).unwrap();
                fs::write(full.join("in"), "the way").unwrap();
            }
            (Thing::File(..) | Thing::Link(_), _) => fs::remove_file(&full).unwrap(),
            (Thing::Dir(mode), 0) => chmod(&full, mode ^ 0o050),
            (Thing::Dir(_), 1) if fs::remove_dir(&full).is_ok() => {
                fs::write(&full, "a file").unwrap();
            }
            (Thing::Dir(_), 2) if fs::remove_dir(&full).is_ok() => {
                symlink(".", &full).unwrap();
            }
            (Thing::Dir(_), _) => drop(fs::remove_dir(&full)),
            (Thing::Special, _) => {}
        }
    }
}

/// What git reads in a tree is what is there.
fn git_reads(world: &World, tree: ObjectId, image: &Image, skipped: &[(Vec<u8>, Skipped)]) {
    let store = world.vault.directory();
    let said = git(store, &["ls-tree", "-r", "-t", "-z", &tree.to_string()]);
    let mut found = BTreeMap::new();
    for entry in said.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
        let tab = entry.iter().position(|byte| *byte == b'\t').unwrap();
        let head = String::from_utf8(entry[..tab].to_vec()).unwrap();
        found.insert(entry[tab + 1..].to_vec(), head);
    }
    let taken: Vec<_> = image.iter().filter(|(path, _)| !is_beneath(path, skipped)).collect();
    assert_eq!(found.keys().collect::<Vec<_>>(), taken.iter().map(|it| it.0).collect::<Vec<_>>());
    for (path, thing) in taken {
        let head = &found[path];
        let (kind, id) = (&head[..2], head.rsplit(' ').next().unwrap());
        match thing {
            Thing::File(_, bytes) => {
                assert_eq!((kind, git(store, &["cat-file", "blob", id])), ("10", bytes.clone()));
            }
            Thing::Link(target) => {
                assert_eq!((kind, git(store, &["cat-file", "blob", id])), ("12", target.clone()));
            }
            _ => assert_eq!(kind, "04"),
        }
    }
}

fn check(row: &Row) {
    let mut world = World::new();
    (row.build)(&world);
    let before = world.image();
    let mut ground = world.ground();
    let tree = track(&mut ground).tree;
    let not_taken = skipped(&ground);
    let expected: Vec<_> =
        row.skipped.iter().map(|(path, why)| (path.as_bytes().to_vec(), *why)).collect();
    assert_eq!(not_taken, expected, "{}", row.name);
    git_reads(&world, tree, &before, &not_taken);
    assert_eq!(world.scratch().tree, tree, "{}", row.name);
    for round in 0..8 {
        // The second time what is known is believed, and comes from the disk.
        world.policy.now_ns = if round < 4 { real_ns } else { settled_ns };
        ground.save().unwrap();
        ground = world.ground();
        assert_eq!(track(&mut ground).tree, tree, "{} {round}", row.name);
        tick(&world);
        lay_waste(&world, &before, &not_taken, round);
        world.write("new/file", "new");
        assert_ne!(track(&mut ground).tree, tree, "{} {round}", row.name);
        tick(&world);
        let applied = back(&mut ground, tree);
        assert_eq!(applied.conflicts, [], "{} {round}", row.name);
        same(&world.image(), &before, &format!("{} {round}", row.name));
        world.outside_is_untouched();
    }
    store_is_sound(&world.vault);
    assert_eq!(leftovers(world.dir.path()), [""; 0]);
}

#[test]
fn whatever_a_project_holds_comes_back_as_it_was() {
    ROWS.iter().for_each(check);
}

#[test]
fn a_plain_tree_is_the_one_git_makes() {
    let world = World::new();
    world.git(&["init", "-q"]);
    for name in ["a", "a.b", "a-b", "dir/x", "dir/y/z", "dir0", "é/ü", "ab/1"] {
        world.write(name, name);
    }
    chmod(&world.path("dir/x"), 0o755);
    symlink("dir/x", world.path("link")).unwrap();
    world.git(&["add", "."]);
    let tree = String::from_utf8(world.git(&["write-tree"])).unwrap();
    assert_eq!(tree.trim(), world.scratch().tree.to_string());
}

#[test]
fn whose_rights_a_program_has_is_not_kept() {
    let world = World::new();
    world.write("program", "x");
    chmod(&world.path("program"), 0o4755);
    let mut ground = world.ground();
    let tree = track(&mut ground).tree;
    fs::remove_file(world.path("program")).unwrap();
    back(&mut ground, tree);
    assert_eq!(world.image()[b"program".as_slice()], Thing::File(0o755, b"x".to_vec()));
}

#[test]
fn rules_that_change_are_followed_at_once() {
    let mut world = World::new();
    world.git(&["init", "-q"]);
    world.policy.now_ns = settled_ns;
    for name in ["a.log", "sub/b.log", "sub/deep/c.log", "keep"] {
        world.write(name, name);
    }
    let excludes = world.root().join(".git/global-excludes");
    world.git(&["config", "core.excludesFile", excludes.to_str().unwrap()]);
    let all = ["a.log", "keep", "sub/b.log", "sub/deep/c.log"];
    let mut ground = world.ground();
    let held = |ground: &mut Ground| {
        let tree = track(ground).tree.to_string();
        let said = git(world.vault.directory(), &["ls-tree", "-r", "-z", "--name-only", &tree]);
        let names: Vec<_> = said.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        let mine = |name: &&str| all.contains(name);
        names.iter().map(|name| &**name).filter(mine).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(held(&mut ground), all);
    let steps: [(&str, &str, &[&str]); 9] = [
        ("root/.gitignore", "*.log\n", &["keep"]),
        ("root/.gitignore", "*.log\n!a.log\n", &["a.log", "keep"]),
        ("root/sub/.gitignore", "!b.log\n", &["a.log", "keep", "sub/b.log"]),
        ("root/sub/deep/.gitignore", "!*.log\n", &all),
        ("root/.gitignore", "/sub\n", &["a.log", "keep"]),
        ("root/.gitignore", "", &all),
        ("root/.git/global-excludes", "keep\n", &["a.log", "sub/b.log", "sub/deep/c.log"]),
        ("root/.git/info/exclude", "a.log\n", &["sub/b.log", "sub/deep/c.log"]),
        ("root/.git/global-excludes", "", &["keep", "sub/b.log", "sub/deep/c.log"]),
    ];
    for (file, rules, expected) in steps {
        tick(&world);
        fs::write(world.dir.path().join(file), rules).unwrap();
        assert_eq!(held(&mut ground), expected, "{file} {rules}");
    }
}

#[test]
fn the_servers_own_data_is_never_looked_into() {
    let mut world = World::new();
    world.write("own/data", "x");
    world.write("file", "x");
    let metadata = fs::metadata(world.path("own")).unwrap();
    world.policy.own = vec![(metadata.dev(), metadata.ino())];
    let mut ground = world.ground();
    let tree = track(&mut ground).tree;
    assert_eq!(skipped(&ground), [(b"own".to_vec(), Skipped::Own)]);
    world.write("own/data", "y");
    assert_eq!(track(&mut ground).tree, tree);
}

#[test]
fn a_pipe_or_a_socket_is_said_to_be_one_and_never_waited_for() {
    let world = World::new();
    let pipe = world.path("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o644.into()).unwrap();
    let _socket = UnixListener::bind(world.path("socket")).unwrap();
    let mut ground = world.ground();
    let tracked = track(&mut ground);
    assert_eq!(tracked.totals.skipped[Skipped::Special as usize], 2);
    assert!(ground.take(&world.vault.batch(), b"pipe").unwrap().is_none());
}

#[test]
fn what_is_too_large_is_said_to_be_and_can_be_kept() {
    let mut world = World::new();
    world.policy.file_bytes_max = 10;
    world.write("at", [1; 10]);
    world.write("above", [2; 11]);
    // One that is never held in memory.
    let long: Vec<u8> = (0..17 << 20).map(|n: u32| (n ^ (n >> 8)) as u8).collect();
    world.write("long", &long);
    let mut ground = world.ground();
    let first = track(&mut ground);
    let too_large = |path: &str| (path.as_bytes().to_vec(), Skipped::TooLarge);
    assert_eq!(skipped(&ground), [too_large("above"), too_large("long")]);
    let batch = world.vault.batch();
    let kept = ["above", "long"].map(|path| ground.take(&batch, path.as_bytes()).unwrap().unwrap());
    batch.finish().unwrap();
    assert_eq!(world.vault.read(kept[0].id).unwrap(), [2; 11]);
    let (piece, length) = world.vault.piece(kept[1].id, 16 << 20, 100).unwrap();
    assert_eq!((piece.as_slice(), length), (&long[16 << 20..(16 << 20) + 100], 17 << 20));
    // Wanted for once, it is taken, and comes back.
    let wish = Wish { large: true, full: false };
    let all = ground.track(wish, &Progress::default()).unwrap();
    let before = world.image();
    assert_eq!(all.totals.all_skipped(), 0);
    fs::remove_file(world.path("long")).unwrap();
    world.write("above", "short");
    let now = track(&mut ground).tree;
    let steps = steps(&ground, now, all.tree);
    assert_eq!(carry_out(&mut ground, steps).conflicts, []);
    same(&world.image(), &before, "");
    assert_eq!(track(&mut ground).tree, first.tree, "the limit holds again");
    store_is_sound(&world.vault);
}

#[test]
fn locks_of_git_left_lying_about_are_nobodys_business() {
    let world = World::new();
    world.git(&["init", "-q"]);
    world.write("a", "1");
    for lock in [world.path(".git/index.lock"), world.vault.directory().join("index.lock")] {
        fs::write(lock, "").unwrap();
    }
    let mut ground = world.ground();
    let tree = track(&mut ground).tree;
    world.write("a", "2");
    assert_eq!(back(&mut ground, tree).conflicts, []);
    assert_eq!(fs::read(world.path("a")).unwrap(), b"1");
}

#[test]
fn ten_thousand_files_stand_in_one_directory() {
    let mut world = World::new();
    for n in 0..10_000 {
        world.write(&format!("many/{n}"), n.to_string());
    }
    world.policy.now_ns = settled_ns;
    let before = world.image();
    let mut ground = world.ground();
    let tree = track(&mut ground).tree;
    tick(&world);
    for n in (0..10_000).step_by(7) {
        fs::remove_file(world.path(&format!("many/{n}"))).unwrap();
    }
    assert_eq!(back(&mut ground, tree).done.len(), 10_000_usize.div_ceil(7));
    same(&world.image(), &before, "");
    world.policy.files_max = 9_999;
    let most = world.ground().track(Wish { full: true, large: false }, &Progress::default());
    assert!(matches!(most, Err(Error::TooMany { most: 9_999 })));
}

#[test]
fn depth_has_an_end_and_is_said_to() {
    for watching in [false, true] {
        let mut world = World::new();
        (world.watching, world.policy.now_ns) = (watching, settled_ns);
        let depth = WORKTREE_DEPTH_MAX + 3;
        let mut at = fs::File::open(world.root()).unwrap();
        let mut path = Vec::new();
        for n in 1..=depth {
            rustix::fs::mkdirat(&at, "d", 0o755.into()).unwrap();
            at = fs::File::from(
                crate::snapshot::beneath::directory_in(std::os::fd::AsFd::as_fd(&at), b"d")
                    .unwrap(),
            );
            path.extend_from_slice(if n == 1 { b"d" } else { b"/d" });
            // Within reach, and near the end of it.
            if n == WORKTREE_DEPTH_MAX - 2 {
                let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
                rustix::fs::openat(&at, "file", flags, 0o644.into()).unwrap();
            }
        }
        let mut ground = world.ground();
        let first = track(&mut ground);
        assert_eq!(first.totals.skipped[Skipped::TooDeep as usize], 1);
        assert_eq!(first.totals.files, 1);
        ground.save().unwrap();
        assert_eq!(track(&mut world.ground()).tree, first.tree, "what was saved is read");
        tick(&world);
        let file = [&path[..2 * (WORKTREE_DEPTH_MAX - 2) - 1], b"/file"].concat();
        fs::write(world.root().join(path_of(&file)), "changed").unwrap();
        let second = track(&mut ground);
        assert_eq!(second.full, !watching);
        assert_ne!(second.tree, first.tree);
        let steps = steps(&ground, second.tree, first.tree);
        assert_eq!(steps[0].path, file);
        assert_eq!(carry_out(&mut ground, steps).conflicts, []);
        assert_eq!(track(&mut ground).tree, first.tree);
    }
}

#[test]
fn a_file_that_changes_while_it_is_read_is_one_of_its_states() {
    let world = World::new();
    let states: Vec<Vec<u8>> = (0..26).map(|n| [b'a' + n, b'\n'].repeat(3000)).collect();
    let states = &states;
    let over = AtomicBool::new(false);
    world.write("replaced", &states[0]);
    std::thread::scope(|scope| {
        let (world, over) = (&world, &over);
        // Whoever looks finds one state or the other, or growing, or nothing.
        scope.spawn(move || {
            for n in until(over) {
                let state = &states[n % states.len()];
                fs::write(world.path("temporary"), state).unwrap();
                fs::rename(world.path("temporary"), world.path("replaced")).unwrap();
                fs::write(world.path("vanishes"), state).unwrap();
                fs::remove_file(world.path("vanishes")).unwrap();
                fs::write(world.path("grows"), &state[..n % state.len()]).unwrap();
                fs::create_dir_all(world.path("swaps")).unwrap();
                fs::remove_dir(world.path("swaps")).unwrap();
                fs::write(world.path("swaps"), state).unwrap();
                fs::remove_file(world.path("swaps")).unwrap();
            }
        });
        let _end = End(over);
        let mut ground = world.ground();
        for _ in 0..200 {
            let tree = track(&mut ground).tree;
            let items = world.vault.tree(tree).unwrap();
            let replaced = items.iter().find(|item| *item.name == *b"replaced").unwrap();
            assert!(states.contains(&world.vault.read(replaced.held.id).unwrap()));
        }
    });
    let mut ground = world.ground();
    let tracked = track(&mut ground);
    assert_eq!(tracked.tree, world.scratch().tree);
    store_is_sound(&world.vault);
}
