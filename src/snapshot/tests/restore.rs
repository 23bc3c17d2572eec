//! What somebody has changed since stays as it is, and the plan says why; also in the very moment it is changed.

use super::*;
use crate::snapshot::pack::Kind;
use crate::snapshot::restore::{Restorer, Why};
use crate::snapshot::tree::{Held, Mode};

/// Both states of a project, what happens after the second, and what going back to the first leaves alone.
struct Row {
    name: &'static str,
    first: fn(&World),
    second: fn(&World),
    since: fn(&World),
    conflicts: &'static [(&'static str, Why)],
}

fn remove(world: &World, path: &str) {
    let path = world.path(path);
    fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path)).unwrap();
}

fn nothing(_: &World) {}

const ROWS: &[Row] = &[
    Row {
        name: "changed since",
        first: |world| world.write("a", "1"),
        second: |world| world.write("a", "2"),
        since: |world| world.write("a", "mine"),
        conflicts: &[("a", Why::Changed)],
    },
    Row {
        name: "changed since, but to what it is to be",
        first: |world| world.write("a", "1"),
        second: |world| world.write("a", "2"),
        since: |world| world.write("a", "1"),
        conflicts: &[],
    },
    Row {
        name: "its mode changed since",
        first: |world| world.write("a", "1"),
        second: |world| world.write("a", "2"),
        since: |world| chmod(&world.path("a"), 0o600),
        conflicts: &[("a", Why::Changed)],
    },
    Row {
        name: "created since",
        first: |world| world.write("a", "1"),
        second: |world| remove(world, "a"),
        since: |world| world.write("a", "mine"),
        conflicts: &[("a", Why::Changed)],
    },
    Row {
        name: "deleted since",
        first: |world| world.write("a", "1"),
        second: |world| world.write("a", "2"),
        since: |world| remove(world, "a"),
        conflicts: &[("a", Why::Changed)],
    },
    Row {
        name: "new, and changed since",
        first: nothing,
        second: |world| world.write("dir/a", "2"),
        since: |world| world.write("dir/a", "mine"),
        conflicts: &[("dir", Why::NotEmpty), ("dir/a", Why::Changed)],
    },
    Row {
        name: "new, and deleted since",
        first: nothing,
        second: |world| world.write("dir/a", "2"),
        since: |world| remove(world, "dir"),
        conflicts: &[],
    },
    Row {
        name: "a directory that holds more",
        first: nothing,
        second: |world| world.write("dir/a", "2"),
        since: |world| world.write("dir/b", "mine"),
        conflicts: &[("dir", Why::NotEmpty)],
    },
    Row {
        name: "a directory that became a file",
        first: |world| world.write("dir/a", "1"),
        second: |world| world.write("dir/a", "2"),
        since: |world| {
            remove(world, "dir");
            world.write("dir", "mine");
        },
        conflicts: &[("dir/a", Why::NoDirectory)],
    },
    Row {
        name: "a directory that is gone",
        first: |world| world.write("dir/a", "1"),
        second: |world| world.write("dir/a", "2"),
        since: |world| remove(world, "dir"),
        conflicts: &[("dir/a", Why::NoDirectory)],
    },
    Row {
        name: "a directory that became a link",
        first: |world| world.write("deep/canary", "1"),
        second: |world| world.write("deep/canary", CANARY),
        since: |world| {
            remove(world, "deep");
            symlink("../outside/deep", world.path("deep")).unwrap();
        },
        conflicts: &[("deep/canary", Why::NoDirectory)],
    },
    Row {
        name: "a directory others may use since",
        first: |world| fs::create_dir(world.path("dir")).unwrap(),
        second: |world| chmod(&world.path("dir"), 0o700),
        since: |world| chmod(&world.path("dir"), 0o750),
        conflicts: &[("dir", Why::Changed)],
    },
    Row {
        name: "a file that became a link",
        first: |world| world.write("a", "1"),
        second: |world| world.write("a", CANARY),
        since: |world| {
            remove(world, "a");
            symlink("../outside/canary", world.path("a")).unwrap();
        },
        conflicts: &[("a", Why::Changed)],
    },
    Row {
        name: "a file that became a directory",
        first: |world| world.write("a", "1"),
        second: |world| world.write("a", "2"),
        since: |world| {
            remove(world, "a");
            world.write("a/b", "mine");
        },
        conflicts: &[("a", Why::Changed)],
    },
    Row {
        name: "a new file that became a directory",
        first: nothing,
        second: |world| world.write("a", "2"),
        since: |world| {
            remove(world, "a");
            world.write("a/b", "mine");
        },
        conflicts: &[("a", Why::Changed)],
    },
    Row {
        name: "a link that leads elsewhere",
        first: |world| symlink("1", world.path("a")).unwrap(),
        second: |world| {
            remove(world, "a");
            symlink("2", world.path("a")).unwrap();
        },
        since: |world| {
            remove(world, "a");
            symlink("mine", world.path("a")).unwrap();
        },
        conflicts: &[("a", Why::Changed)],
    },
    Row {
        name: "what cannot be read",
        first: |world| world.write("a", "1"),
        second: |world| world.write("a", "2"),
        since: |world| {
            remove(world, "a");
            rustix::fs::mkfifoat(rustix::fs::CWD, world.path("a"), 0o644.into()).unwrap();
        },
        conflicts: &[("a", Why::Unreadable)],
    },
];

#[test]
fn what_somebody_has_changed_since_stays() {
    for row in ROWS {
        let world = World::new();
        (row.first)(&world);
        let mut ground = world.ground();
        let first = track(&mut ground);
        (row.second)(&world);
        let second = track(&mut ground);
        (row.since)(&world);
        let before = world.image();
        let steps = steps(&ground, second.tree, first.tree);
        let applied = carry_out(&mut ground, steps.clone());
        let conflicts: Vec<_> = applied.conflicts.iter().map(|it| (&*it.path, it.why)).collect();
        let expected: Vec<_> = row.conflicts.iter().map(|it| (it.0.as_bytes(), it.1)).collect();
        assert_eq!(conflicts, expected, "{}", row.name);
        // What was as it is to be already needed nothing.
        assert!(applied.done.len() + conflicts.len() <= steps.len(), "{}", row.name);
        // What was left alone is as it was, and so is what nobody spoke of.
        let touched: HashSet<_> = applied.done.iter().map(|step| &step.path).collect();
        let rest = |image: Image| -> Image {
            image.into_iter().filter(|(path, _)| !touched.contains(path)).collect()
        };
        same(&rest(world.image()), &rest(before), row.name);
        world.outside_is_untouched();
        assert_eq!(leftovers(world.dir.path()), [""; 0], "{}", row.name);
    }
}

/// Somebody writes once, in the very moment in which a plan is carried out. How often that was lost.
fn lost(write: fn(&Path, &[u8]), rounds: usize, gone: bool) -> usize {
    let world = World::new();
    world.write("a", "what was there 0000");
    let mut ground = world.ground();
    let first = track(&mut ground);
    if gone {
        remove(&world, "a")
    } else {
        world.write("a", "what is to be there")
    }
    let second = track(&mut ground);
    let steps = steps(&ground, first.tree, second.tree);
    let store = world.vault.reader().unwrap();
    let ready = std::sync::Barrier::new(2);
    let mut lost = 0;
    for round in 0..rounds {
        fs::remove_dir_all(world.root()).unwrap();
        fs::create_dir(world.root()).unwrap();
        world.write("a", "what was there 0000");
        let root = Root::open(&world.root()).unwrap();
        let progress = Progress::default();
        let name = [7; 16];
        let restorer =
            Restorer { root: &root, store: &store, name, progress: &progress, again: false };
        let content = format!("somebody's own {round:04}");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                ready.wait();
                (0..(round * 7919) % 10_000).for_each(|_| std::hint::spin_loop());
                write(&world.path("a"), content.as_bytes());
            });
            ready.wait();
            restorer.apply(&steps).unwrap();
        });
        let there = |thing: &Thing| matches!(thing, Thing::File(_, it) if it == content.as_bytes());
        lost += usize::from(!world.image().values().any(there));
        assert_eq!(leftovers(&world.root()), [""; 0]);
    }
    lost
}

#[test]
fn what_is_replaced_in_the_very_moment_is_not_lost() {
    let replace = |path: &Path, bytes: &[u8]| {
        let temporary = path.with_extension("new");
        fs::write(&temporary, bytes).unwrap();
        fs::rename(temporary, path).unwrap();
    };
    let twice = |path: &Path, bytes: &[u8]| {
        for n in 0..20 {
            let temporary = path.with_extension("new");
            fs::write(&temporary, if n < 19 { b"draft" } else { bytes }).unwrap();
            fs::rename(temporary, path).unwrap();
        }
    };
    let anew = |path: &Path, bytes: &[u8]| {
        let _ = fs::remove_file(path);
        fs::write(path, bytes).unwrap();
    };
    for gone in [false, true] {
        for write in [replace, twice, anew] as [fn(&Path, &[u8]); 3] {
            assert_eq!(lost(write, 150, gone), 0);
        }
    }
}

fn blob(world: &World, bytes: &[u8]) -> Option<Held> {
    let batch = world.vault.batch();
    let id = batch.put(Kind::Blob, bytes).unwrap();
    batch.finish().unwrap();
    Some(Held { mode: Mode::FILE, id })
}

/// A plan that breaks off in the middle, as a crash would: what it is to write is not there yet. The name of what it
/// left behind.
fn broken_off(world: &World, ground: &mut Ground, path: &str, new: &str) -> (Plan, PathBuf) {
    let from = blob(world, b"old");
    let id = crate::snapshot::pack::name(Kind::Blob, new.as_bytes()).unwrap();
    world.write(path, "old");
    let to = Some(Held { mode: Mode::FILE, id });
    let plan = plan(vec![Step { path: path.into(), from, to }]);
    assert!(ground.apply(&plan, &Progress::default()).is_err());
    blob(world, new.as_bytes());
    let left = leftovers(&world.root());
    assert_eq!(left.len(), 1);
    (plan, world.path(&left[0]))
}

#[test]
fn what_a_crash_leaves_is_cleared_or_kept() {
    type Make = fn(&Path);
    let ours: [Make; 4] = [
        |_| (),
        |left| fs::write(left, "new").unwrap(),
        |left| fs::write(left, "new content ").unwrap(),
        |left| fs::write(left, "old").unwrap(),
    ];
    let others: [Make; 3] = [
        |left| fs::write(left, "somebody else's").unwrap(),
        |left| {
            fs::remove_file(left).unwrap();
            symlink("somebody else's", left).unwrap();
        },
        |left| {
            fs::remove_file(left).unwrap();
            fs::create_dir(left).unwrap();
            fs::write(left.join("file"), "somebody else's").unwrap();
        },
    ];
    let long = "n".repeat(255);
    for name in ["a", "dir/a", &long] {
        for decided in [true, false] {
            let ours = ours.iter().map(|make| (make, 0));
            for (make, kept) in ours.chain(others.iter().map(|make| (make, 1))) {
                let world = World::new();
                let mut ground = world.ground();
                // Twice: what was kept the first time must not be in the way.
                for round in 1..=2 {
                    let new = format!("new content {round}");
                    let (plan, left) = broken_off(&world, &mut ground, name, &new);
                    make(&left);
                    ground = world.ground();
                    let settled = ground.settle(|_| Ok(decided)).unwrap();
                    assert_eq!(settled.len(), 1);
                    let applied = &settled[0].1;
                    assert_eq!((applied.kept.len(), &*applied.conflicts), (kept, &[][..]));
                    for kept in &applied.kept {
                        assert!(world.root().join(path_of(kept)).symlink_metadata().is_ok());
                    }
                    let content = if decided { &new } else { "old" };
                    assert_eq!(fs::read_to_string(world.path(name)).unwrap(), content);
                    assert_eq!(leftovers(world.dir.path()), [""; 0]);
                    let theirs =
                        format!("{:?}", world.image()).matches("115, 111, 109, 101, 98").count();
                    assert_eq!(theirs, kept * round, "{name} {decided} {round}");
                    assert_eq!(plan.name, settled[0].0.name);
                }
            }
        }
    }
}

#[test]
fn an_undo_that_breaks_off_leaves_nothing_either() {
    let world = World::new();
    let mut ground = world.ground();
    world.write("dir/mine", "mine");
    world.write("other/b", "old");
    let old =
        Held { mode: Mode::FILE, id: crate::snapshot::pack::name(Kind::Blob, b"old").unwrap() };
    let steps = vec![
        Step { path: b"dir/mine".to_vec(), from: blob(&world, b"theirs"), to: blob(&world, b"x") },
        Step { path: b"other/b".to_vec(), from: Some(old), to: blob(&world, b"new") },
    ];
    let plan = plan(steps);
    let applied = ground.apply(&plan, &Progress::default()).unwrap();
    assert_eq!((applied.done.len(), applied.conflicts.len()), (1, 1));
    // What stood there is not in the store yet, so this goes no further than a crash would let it.
    assert!(ground.undo(&plan, applied.done).is_err());
    blob(&world, b"old");
    let settled = world.ground().settle(|_| Ok(false)).unwrap();
    assert_eq!(settled.len(), 1);
    assert_eq!(fs::read(world.path("other/b")).unwrap(), b"old");
    assert_eq!(fs::read(world.path("dir/mine")).unwrap(), b"mine");
    assert_eq!(leftovers(world.dir.path()), [""; 0]);
}

#[test]
fn an_undo_brings_back_what_a_plan_has_changed() {
    let world = World::new();
    for n in 0..5 {
        world.write(&format!("dir/{n}"), n.to_string());
    }
    let mut ground = world.ground();
    let first = track(&mut ground);
    remove(&world, "dir");
    world.write("dir", "a file");
    world.write("new/file", "x");
    let second = track(&mut ground);
    let before = world.image();
    let plan = plan(steps(&ground, second.tree, first.tree));
    let applied = ground.apply(&plan, &Progress::default()).unwrap();
    assert_eq!(track(&mut ground).tree, first.tree);
    assert_eq!(ground.undo(&plan, applied.done).unwrap().conflicts, []);
    same(&world.image(), &before, "undone");
    assert_eq!(leftovers(world.dir.path()), [""; 0]);
}
