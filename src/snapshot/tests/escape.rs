//! Nothing outside of the project is ever created, changed or read, whoever moves things about meanwhile.

use super::*;
use crate::snapshot::tree::{Held, Mode};
use std::os::fd::AsRawFd;
use std::process::Stdio;

/// Everything the store holds, as git reads it.
fn all_content(world: &World) -> Vec<u8> {
    let store = world.vault.directory();
    let args = ["cat-file", "--batch-all-objects", "--batch"];
    let output = Command::new("git").args(args).current_dir(store).stderr(Stdio::null()).output();
    output.unwrap().stdout
}

fn store_never_saw_the_canary(world: &World) {
    let content = all_content(world);
    assert!(!content.is_empty());
    assert!(!content.windows(CANARY.len()).any(|bytes| bytes == CANARY.as_bytes()));
}

#[test]
fn whatever_moves_about_nothing_leads_outside() {
    let world = World::new();
    let over = AtomicBool::new(false);
    for n in 0..6 {
        world.write(&format!("dir/deep/{n}"), "first");
        world.write(&format!("dir/{n}"), "first");
        world.write(&format!("file{n}"), "first");
    }
    let mut ground = world.ground();
    let first = track(&mut ground);
    for n in 0..6 {
        world.write(&format!("dir/deep/{n}"), "second");
        world.write(&format!("dir/{n}"), "second");
        world.write(&format!("file{n}"), "second");
        // Names that stand outside, too.
        world.write("dir/canary", "mine");
        world.write("dir/deep/canary", "mine");
    }
    let second = track(&mut ground);
    let (there, here) =
        (steps(&ground, first.tree, second.tree), steps(&ground, second.tree, first.tree));
    std::thread::scope(|scope| {
        let (world, over) = (&world, &over);
        // What fails here fails because the other side was quicker.
        let swap = move |place: PathBuf, name: &'static str, target: &'static str| {
            let (path, away) = (place.join(name), place.join(format!("{name}.away")));
            let gone_and_back = || {
                let _ = fs::rename(&path, &away);
                let _ = symlink(target, &path);
                let _ = fs::remove_file(&path);
                let _ = fs::rename(&away, &path);
            };
            until(over).for_each(|_| gone_and_back());
        };
        // Wherever that is later.
        let dir = fs::File::open(world.path("dir")).unwrap();
        scope.spawn(move || swap(world.root(), "dir", "../outside"));
        scope.spawn(move || swap(world.root(), "file0", "../outside/canary"));
        scope.spawn(move || {
            let place = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
            swap(place, "deep", "../../outside/deep");
        });
        let outside = world.dir.path().join("outside/file");
        scope.spawn(move || {
            for _ in until(over) {
                let _ = fs::remove_file(world.path("file1"));
                let _ = symlink(&outside, world.path("file1"));
            }
        });
        let _end = End(over);
        for n in 0..300 {
            let plan = plan(if n % 2 == 0 { here.clone() } else { there.clone() });
            // Where a directory goes away in the middle, it may end early; then it is a plan that was left behind.
            if ground.apply(&plan, &Progress::default()).is_err() {
                plan.forget(&world.home()).unwrap();
            }
            if n % 10 == 0 {
                let _ = ground.track(Wish::default(), &Progress::default());
            }
            if n % 50 == 0 {
                ground.take(&world.vault.batch(), b"dir/canary").unwrap();
                world.outside_is_untouched();
            }
        }
    });
    world.outside_is_untouched();
    store_never_saw_the_canary(&world);
    ground.sync().unwrap();
    assert_eq!(track(&mut ground).tree, world.scratch().tree);
}

#[test]
fn a_walk_is_not_led_outside() {
    let world = World::new();
    let over = AtomicBool::new(false);
    world.write("a/deep/file", "x");
    std::thread::scope(|scope| {
        let (world, over) = (&world, &over);
        scope.spawn(move || {
            for _ in until(over) {
                fs::rename(world.path("a"), world.path("b")).unwrap();
                symlink("../outside", world.path("a")).unwrap();
                fs::remove_file(world.path("a")).unwrap();
                fs::rename(world.path("b"), world.path("a")).unwrap();
                fs::write(world.path("c"), "x").unwrap();
                fs::remove_file(world.path("c")).unwrap();
                symlink("../outside/canary", world.path("c")).unwrap();
                fs::remove_file(world.path("c")).unwrap();
            }
        });
        let _end = End(over);
        for watching in [false, true] {
            let home = world.dir.path().join(format!("home/{watching}"));
            let mut ground = world.ground_at(&home);
            for _ in 0..200 {
                track(&mut ground);
            }
        }
    });
    world.outside_is_untouched();
    store_never_saw_the_canary(&world);
}

#[test]
fn hostile_paths_are_refused_and_write_nothing() {
    let world = World::new();
    world.git(&["init", "-q"]);
    world.write("dir/file", "x");
    world.write("sub/.git/config", "nested");
    symlink("../outside", world.path("link")).unwrap();
    symlink("/", world.path("slash")).unwrap();
    let batch = world.vault.batch();
    let id = batch.put(crate::snapshot::pack::Kind::Blob, b"evil").unwrap();
    let before_id = batch.put(crate::snapshot::pack::Kind::Blob, CANARY.as_bytes()).unwrap();
    let empty = batch.put_tree(std::iter::empty()).unwrap();
    batch.finish().unwrap();
    let before = world.image();
    let mut ground = world.ground();
    let file = |id| Some(Held { mode: Mode::FILE, id });
    let dir = Some(Held { mode: Mode::DIRECTORY, id: empty });
    let paths: [&[u8]; 30] = [
        b"",
        b".",
        b"..",
        b"/",
        b"../x",
        b"../outside/canary",
        b"/etc/x",
        b"/tmp/x",
        b"a/../../x",
        b"dir/../../outside/canary",
        b"dir/..",
        b"dir/.",
        b"dir/",
        b"dir//x",
        b"./x",
        b"link/canary",
        b"link/new",
        b"slash/tmp/x",
        b"slash",
        b"dir/file/x",
        b".git",
        b".git/config",
        b".git/hooks/post-checkout",
        b".git/new",
        b"sub/.git/config",
        b"sub/.git/hooks/x",
        b"sub/.git",
        b"nul\0",
        b"dir/\0/x",
        b"\0",
    ];
    for path in paths {
        for (from, to) in [
            (None, file(id)),
            (None, dir),
            (file(before_id), file(id)),
            (file(before_id), None),
            (dir, None),
            (dir, file(id)),
            (None, Some(Held { mode: Mode::LINK, id })),
            (file(id), Some(Held { mode: Mode::file(0o777), id })),
        ] {
            // Where nothing can stand, nothing has to be taken away; everything else is refused.
            let plan = plan(vec![Step { path: path.to_vec(), from, to }]);
            if let Ok(applied) = ground.apply(&plan, &Progress::default()) {
                assert!(to.is_none() || applied.done.is_empty(), "{path:?} {from:?} {to:?}");
            }
            plan.forget(&world.home()).unwrap();
            let what = format!("{} {from:?} {to:?}", String::from_utf8_lossy(path));
            same(&world.image(), &before, &what);
        }
        let batch = world.vault.batch();
        let taken = ground.take(&batch, path).ok().flatten();
        assert!(taken.is_none_or(|held| held.id != before_id), "{path:?}");
    }
    world.outside_is_untouched();
}
