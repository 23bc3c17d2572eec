//! What the kernel tells is only ever less work: the tree is the one somebody finds who looks at everything.

use super::crash::run_as;
use super::*;

fn watched() -> World {
    let mut world = World::new();
    (world.watching, world.policy.now_ns) = (true, settled_ns);
    world
}

/// A look that costs nothing finds what a look at everything does.
fn is_noticed(world: &World, ground: &mut Ground, what: &str) {
    let tracked = track(ground);
    assert!(!tracked.full, "{what}");
    assert_eq!(tracked.tree, world.scratch().tree, "{what}");
    tick(world);
}

#[test]
fn directories_that_change_places_are_noticed() {
    let world = watched();
    for name in ["d/sub/file", "e/sub/file", "f/other"] {
        world.write(name, name);
    }
    let mut ground = world.ground();
    assert!(track(&mut ground).full);
    assert!(ground.is_watched());
    is_noticed(&world, &mut ground, "nothing");
    for (from, to) in [("d", "t"), ("e", "d"), ("t", "e")] {
        fs::rename(world.path(from), world.path(to)).unwrap();
    }
    is_noticed(&world, &mut ground, "two that changed places");
    for name in ["d", "e"] {
        world.write(&format!("{name}/sub/file"), "changed");
        is_noticed(&world, &mut ground, name);
        world.write(&format!("{name}/sub/new/file"), "new");
        is_noticed(&world, &mut ground, name);
    }
    fs::rename(world.path("d/sub"), world.path("f/sub")).unwrap();
    fs::rename(world.path("e/sub"), world.path("d/sub")).unwrap();
    is_noticed(&world, &mut ground, "beneath");
    // Looked at as a whole in between.
    fs::rename(world.path("f"), world.dir.path().join("f")).unwrap();
    world.write("f/sub/file", "another one");
    let wish = Wish { full: true, large: false };
    ground.track(wish, &Progress::default()).unwrap();
    tick(&world);
    world.write("f/sub/file", "changed");
    is_noticed(&world, &mut ground, "one of the same name");
}

#[test]
fn a_directory_made_anew_is_watched_anew() {
    for full in [false, true] {
        let world = watched();
        world.write("d/file", "x");
        world.write("d/sub/file", "x");
        let mut ground = world.ground();
        track(&mut ground);
        tick(&world);
        // File systems like to give the same numbers again.
        for n in 0..8 {
            fs::remove_dir_all(world.path("d")).unwrap();
            world.write("d/sub/file", format!("{n}"));
            let wish = Wish { full, large: false };
            ground.track(wish, &Progress::default()).unwrap();
            tick(&world);
            world.write("d/file", format!("{n}"));
            is_noticed(&world, &mut ground, "in it");
            world.write("d/sub/file", "and");
            is_noticed(&world, &mut ground, "beneath it");
        }
    }
}

#[test]
fn whatever_happens_in_a_directory_is_noticed() {
    let world = watched();
    world.write("dir/file", "x");
    world.git(&["init", "-q"]);
    let mut ground = world.ground();
    track(&mut ground);
    type Do = fn(&World);
    let all: [(&str, Do); 8] = [
        ("chmod", |world| chmod(&world.path("dir/file"), 0o600)),
        ("chmod of a directory", |world| chmod(&world.path("dir"), 0o700)),
        ("new directories", |world| world.write("new/deep/file", "x")),
        ("in new directories", |world| world.write("new/deep/file", "y")),
        ("a link", |world| symlink("x", world.path("new/link")).unwrap()),
        ("rules", |world| world.write(".gitignore", "new\n")),
        ("other rules", |world| world.write(".git/info/exclude", "file\n")),
        ("a directory less", |world| fs::remove_dir_all(world.path("dir")).unwrap()),
    ];
    for (what, happens) in all {
        tick(&world);
        happens(&world);
        is_noticed(&world, &mut ground, what);
    }
}

#[test]
#[ignore = "the body of another test"]
fn few_watches() {
    if std::env::var_os(super::crash::PLACE).is_none() {
        return;
    }
    let world = watched();
    for n in 0..8 {
        world.write(&format!("dir{n}/file"), "x");
    }
    let mut ground = world.ground();
    for n in 0..8 {
        assert!(track(&mut ground).full);
        assert!(!ground.is_watched());
        tick(&world);
        world.write(&format!("dir{n}/file"), "changed");
    }
    assert_eq!(track(&mut ground).tree, world.scratch().tree);
    // There are enough of them again, and all that is trusted has been heard.
    (1..8).for_each(|n| fs::remove_dir_all(world.path(&format!("dir{n}"))).unwrap());
    track(&mut ground);
    tick(&world);
    for n in 0..3 {
        world.write("dir0/file", format!("{n}"));
        assert_eq!(track(&mut ground).tree, world.scratch().tree);
        tick(&world);
    }
    println!("\ndid it");
}

#[test]
fn where_not_everything_can_be_watched_everything_is_looked_at() {
    // A namespace of its own has limits of its own; where none may be made, this cannot be tried.
    let limit = "echo 4 > /proc/sys/user/max_inotify_watches && exec \"$@\"";
    let enter = ["unshare", "--user", "--map-root-user", "sh", "-c", limit, "sh"];
    let may = Command::new(enter[0]).args(&enter[1..]).arg("true").output();
    if may.is_ok_and(|output| output.status.success()) {
        let dir = tempfile::tempdir().unwrap();
        let (mut child, mut did) = run_as(&enter, "watching::few_watches", dir.path());
        assert_eq!(did.next().as_deref(), Some("did it"));
        child.wait().unwrap();
    }
}
