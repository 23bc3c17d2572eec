//! What hurt the users of others, and must not hurt ours: the numbers are those of our notes on them.

use super::crash::run_as;
use super::*;
use crate::snapshot::restore::Why;
use crate::snapshot::state::Skipped;

fn collect_all_but(world: &World, trees: &[ObjectId]) {
    let roots = || Ok(trees.iter().copied().collect());
    crate::snapshot::collect::begin(&world.vault, roots).unwrap().finish(roots).unwrap();
}

#[test]
fn w1_a_snapshot_that_is_gone_deletes_nothing() {
    let world = World::new();
    world.write("a", "1");
    let mut ground = world.ground();
    let first = track(&mut ground).tree;
    world.write("a", "2");
    let second = track(&mut ground).tree;
    let plan = plan(steps(&ground, second, first));
    // As long as it has a reference, nobody's collection takes it.
    world.vault.keep(&[first, second]).unwrap();
    git(world.vault.directory(), &["gc", "-q", "--prune=now"]);
    assert_eq!(Vault::open(world.vault.directory()).unwrap().tree(first).unwrap().len(), 1);
    // And when it is gone, that is an error, and the file is as it was.
    collect_all_but(&world, &[second]);
    let store = world.vault.reader().unwrap();
    assert!(diff::all(&store, Some(second), Some(first)).is_err());
    assert!(ground.apply(&plan, &Progress::default()).is_err());
    assert_eq!(fs::read(world.path("a")).unwrap(), b"2");
}

#[test]
fn w2_and_w3_odd_names_come_back() {
    let world = World::new();
    let names = [
        "\u{65e5}\u{672c}\u{8a9e}.txt",
        "\u{e9}",
        "e\u{301}",
        "quo\"te",
        "back\\slash",
        "tab\t",
        "new\nline",
        " before",
        "after ",
        "\"both\"",
    ];
    names.iter().for_each(|name| world.write(name, name));
    let before = world.image();
    let mut ground = world.ground();
    let first = track(&mut ground).tree;
    names.iter().for_each(|name| world.write(name, "changed"));
    let applied = back(&mut ground, first);
    assert_eq!((applied.done.len(), &*applied.conflicts), (names.len(), &[][..]));
    same(&world.image(), &before, "restored");
}

#[test]
fn w4_a_large_file_is_never_deleted_or_overwritten_unkept() {
    let mut world = World::new();
    world.policy.file_bytes_max = 2 << 20;
    let mut ground = world.ground();
    world.write("small", "1");
    let first = track(&mut ground).tree;
    let large = vec![7; (2 << 20) + 1];
    world.write("small", &large);
    world.write("new", &large);
    let second = track(&mut ground);
    assert_eq!(second.totals.skipped[Skipped::TooLarge as usize], 2);
    assert_eq!(ground.is_skipped(b"new"), Some(Skipped::TooLarge));
    let steps = steps(&ground, second.tree, first);
    let applied = carry_out(&mut ground, steps.clone());
    assert_eq!(applied.conflicts.iter().map(|it| it.why).collect::<Vec<_>>(), [Why::Changed]);
    assert!(["small", "new"].iter().all(|name| fs::read(world.path(name)).unwrap() == large));
    // Kept for once, it may be replaced, and can be brought back.
    let batch = world.vault.batch();
    let kept = ground.take(&batch, b"small").unwrap();
    batch.finish().unwrap();
    let steps: Vec<_> = steps.into_iter().map(|step| Step { from: kept, ..step }).collect();
    let plan = plan(steps);
    let applied = ground.apply(&plan, &Progress::default()).unwrap();
    assert_eq!(fs::read(world.path("small")).unwrap(), b"1");
    ground.undo(&plan, applied.done).unwrap();
    assert!(fs::read(world.path("small")).unwrap() == large);
}

#[test]
fn w5_only_what_is_recorded_is_touched() {
    let world = World::new();
    for name in ["agent", "agent's/file", "mine", "sibling/mine"] {
        world.write(name, "1");
    }
    let mut ground = world.ground();
    let first = track(&mut ground).tree;
    world.write("agent", "2");
    world.write("agent's/file", "2");
    let second = track(&mut ground).tree;
    let steps = steps(&ground, second, first);
    let reverted = carry_out(&mut ground, steps.clone());
    assert_eq!(reverted.conflicts, []);
    // Meanwhile somebody goes on, and then the revert is taken back.
    for name in ["mine", "sibling/mine", "sibling/new"] {
        world.write(name, "mine");
    }
    let again = steps.into_iter().map(|it| Step { from: it.to, to: it.from, ..it }).collect();
    assert_eq!(carry_out(&mut ground, again).conflicts, []);
    let expected = [
        ("agent", "2"),
        ("agent's/file", "2"),
        ("mine", "mine"),
        ("sibling/mine", "mine"),
        ("sibling/new", "mine"),
    ];
    for (name, content) in expected {
        assert_eq!(fs::read_to_string(world.path(name)).unwrap(), content, "{name}");
    }
}

#[test]
fn w11_a_stale_lock_disables_nothing() {
    let world = World::new();
    world.git(&["init", "-q"]);
    world.write("a", "1");
    let store = world.vault.directory();
    let locks = ["index.lock", "packed-refs.lock", "HEAD.lock", "config.lock", "gc.pid"];
    for lock in locks {
        fs::write(world.path(".git").join(lock), "").unwrap();
        fs::write(store.join(lock), "").unwrap();
    }
    let vault = Vault::open(store).unwrap();
    let mut ground = world.ground();
    let first = track(&mut ground).tree;
    vault.keep(&[first]).unwrap();
    world.write("a", "2");
    assert_ne!(track(&mut ground).tree, first);
    assert_eq!(back(&mut ground, first).conflicts, []);
    assert_eq!(fs::read(world.path("a")).unwrap(), b"1");
    assert_eq!(references(&vault), HashSet::from([first.to_string()]));
}

#[test]
fn w13_nested_repositories_plain_and_empty_directories_can_be_undone() {
    let world = World::new();
    world.write("plain/file", "1");
    world.write("nested/file", "1");
    git(&world.path("nested"), &["init", "-q"]);
    fs::create_dir_all(world.path("empty/within")).unwrap();
    let before = world.image();
    let mut ground = world.ground();
    let first = track(&mut ground).tree;
    world.write("plain/file", "2");
    world.write("nested/file", "2");
    fs::remove_dir_all(world.path("empty")).unwrap();
    fs::create_dir(world.path("new")).unwrap();
    assert_eq!(back(&mut ground, first).conflicts, []);
    same(&world.image(), &before, "restored");
}

#[test]
fn w13_what_is_ignored_is_said_to_be_and_left_alone() {
    let world = World::new();
    world.git(&["init", "-q"]);
    world.write(".gitignore", ".env\n");
    world.write(".env", "secret");
    world.write("a", "1");
    let mut ground = world.ground();
    let first = track(&mut ground);
    assert_eq!(ground.is_skipped(b".env"), Some(Skipped::Ignored));
    assert_eq!(first.totals.skipped[Skipped::Ignored as usize], 1);
    world.write("a", "2");
    world.write(".env", "another");
    assert_eq!(back(&mut ground, first.tree).conflicts, []);
    assert_eq!(fs::read(world.path(".env")).unwrap(), b"another");
}

#[test]
#[ignore = "the body of another test"]
fn as_nobody() {
    let Some(dir) = std::env::var_os(super::crash::PLACE) else { return };
    assert_eq!(rustix::process::geteuid().as_raw(), 65534);
    let world = World::at(tempfile::tempdir_in(dir).unwrap());
    for name in ["secret", "locked/file", "closed/file", "plain"] {
        world.write(name, "1");
    }
    let mut ground = world.ground();
    let before = track(&mut ground).tree;
    chmod(&world.path("secret"), 0o000);
    chmod(&world.path("locked"), 0o000);
    chmod(&world.path("closed"), 0o444);
    world.write("plain", "2");
    let now = track(&mut ground);
    // A directory that can be listed but not used, too.
    assert_eq!(now.totals.skipped[Skipped::Unreadable as usize], 3);
    assert!(ground.take(&world.vault.batch(), b"secret").unwrap().is_none());
    // To somebody for whom they are gone, they are not; and they are not replaced.
    for (from, to) in [(before, now.tree), (now.tree, before)] {
        let steps = steps(&ground, from, to);
        carry_out(&mut ground, steps);
    }
    assert_eq!(fs::read(world.path("plain")).unwrap(), b"1");
    for name in ["secret", "locked", "closed"] {
        chmod(&world.path(name), 0o755);
    }
    let content = |name: &str| fs::read_to_string(world.path(name)).unwrap();
    assert_eq!(["secret", "locked/file", "closed/file"].map(content), ["1"; 3]);
    assert_eq!(track(&mut ground).totals.all_skipped(), 0, "readable again");
    println!("\ndid it");
}

#[test]
fn what_cannot_be_read_is_never_deleted() {
    // To root everything is readable.
    let dir = tempfile::tempdir().unwrap();
    chmod(dir.path(), 0o777);
    let drop_rights = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let may = Command::new("setpriv").args(&drop_rights[1..]).arg("true").output();
    if may.is_ok_and(|output| output.status.success()) {
        let (mut child, mut did) = run_as(&drop_rights, "regressions::as_nobody", dir.path());
        assert_eq!(did.next().as_deref(), Some("did it"));
        child.wait().unwrap();
    }
}
