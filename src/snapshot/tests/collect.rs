//! What is wanted stays, what is not goes, whoever is at work meanwhile.

use super::*;
use crate::snapshot::collect::{Collected, begin};
use crate::snapshot::pack::Kind;
use crate::snapshot::vault::Error;

fn roots(trees: &[ObjectId]) -> impl Fn() -> Result<HashSet<ObjectId>, Error> + use<> {
    let trees: HashSet<_> = trees.iter().copied().collect();
    move || Ok(trees.clone())
}

fn collect(world: &World, trees: &[ObjectId]) -> Collected {
    let collection = begin(&world.vault, roots(trees)).unwrap();
    assert!(collection.is_settled());
    collection.finish(roots(trees)).unwrap()
}

/// Snapshots of files that change, each with a name in the store.
fn history(world: &World, ground: &mut Ground, count: usize) -> Vec<(ObjectId, Image)> {
    let states = (0..count).map(|n| {
        world.write(&format!("dir/{}", n % 7), format!("state {n} {}", "text ".repeat(200)));
        world.write(&format!("one/{n}"), format!("once {n}"));
        let tree = track(ground).tree;
        world.vault.keep(&[tree]).unwrap();
        (tree, world.image())
    });
    let states = states.collect();
    // What is known of a project is kept as long as it is in use.
    world.write("later", "x");
    track(ground);
    states
}

fn names(trees: &[ObjectId]) -> HashSet<String> {
    trees.iter().map(ObjectId::to_string).collect()
}

#[test]
fn what_is_referenced_stays_and_the_rest_goes() {
    let world = World::new();
    let mut ground = world.ground();
    let history = history(&world, &mut ground, 30);
    let (kept, gone): (Vec<_>, Vec<_>) = history.iter().partition(|(tree, _)| tree.0[0] % 2 == 0);
    let [wanted, unwanted] = [&kept, &gone].map(|it| it.iter().map(|it| it.0).collect::<Vec<_>>());
    assert!(!wanted.is_empty() && !unwanted.is_empty());
    assert_eq!(references(&world.vault).len(), 30);
    let collected = collect(&world, &wanted);
    assert!(collected.objects > 0 && collected.bytes_after < collected.bytes_before);
    assert_eq!(references(&world.vault), names(&wanted));
    let reader = world.vault.reader().unwrap();
    assert!(!unwanted.iter().any(|tree| reader.contains(*tree) || world.vault.contains(tree)));
    store_is_sound(&world.vault);
    fs::remove_file(world.path("later")).unwrap();
    for (tree, image) in kept {
        assert_eq!(back(&mut ground, *tree).conflicts, []);
        same(&world.image(), image, "after the collection");
    }
    // Once more there is nothing to do but for what was tracked on the way.
    drop(ground);
    collect(&world, &wanted);
    assert_eq!(collect(&world, &wanted).objects, 0);
    assert_eq!(leftovers(world.dir.path()), [""; 0]);
}

#[test]
fn what_comes_while_it_is_collected_stays() {
    let world = World::new();
    let over = AtomicBool::new(false);
    let written_down = std::sync::Mutex::new(Vec::<ObjectId>::new());
    std::thread::scope(|scope| {
        let (world, over, written_down) = (&world, &over, &written_down);
        scope.spawn(move || {
            let mut ground = world.ground();
            for n in until(over) {
                // The same few states again and again: what is to go is wanted anew.
                world.write("file", format!("state {}", n % 5));
                world.write("dir/file", format!("state {}", n % 3));
                let tracked = track(&mut ground);
                world.vault.keep(&[tracked.tree]).unwrap();
                let mut trees = written_down.lock().unwrap();
                trees.push(tracked.tree);
                if trees.len() > 2 {
                    trees.remove(0);
                }
                drop((trees, tracked));
            }
        });
        let _end = End(over);
        let roots = || Ok(written_down.lock().unwrap().iter().copied().collect());
        for _ in 0..60 {
            let collection = begin(&world.vault, roots).unwrap();
            while !collection.is_settled() {
                std::thread::yield_now();
            }
            collection.finish(roots).unwrap();
            let alive: HashSet<ObjectId> = roots().unwrap();
            let reader = world.vault.reader().unwrap();
            // Those that are written down now may not have been then, but they were kept all along.
            for tree in alive.intersection(&roots().unwrap()) {
                assert_eq!(reader.tree(*tree).unwrap().len(), 2);
            }
        }
    });
    let trees = written_down.into_inner().unwrap();
    collect(&world, &trees);
    assert_eq!(references(&world.vault), names(&trees));
    store_is_sound(&world.vault);
}

/// Everything a tree leads to can be read.
fn is_whole(world: &World, tree: ObjectId) {
    let reader = world.vault.reader().unwrap();
    let mut open = vec![tree];
    while let Some(tree) = open.pop() {
        for item in reader.tree(tree).unwrap() {
            assert_eq!(reader.read(item.held.id).map(|_| ()).map_err(|it| it.to_string()), Ok(()));
            open.extend(item.held.mode.is_directory().then_some(item.held.id));
        }
    }
}

#[test]
fn what_was_to_go_and_is_wanted_again_is_written_again() {
    for (file, bytes) in [("small", 100), ("long", 17 << 20)] {
        for late in [false, true] {
            let world = World::new();
            let mut ground = world.ground();
            world.write("other", "kept");
            let kept = track(&mut ground).tree;
            world.write(file, vec![b'x'; bytes]);
            let dropped = track(&mut ground).tree;
            world.vault.keep(&[dropped]).unwrap();
            ground.save().unwrap();
            ground = world.ground();
            // Nobody wants it any more; and then somebody does, before it has gone or while it goes.
            let mut again = None;
            let mut want = || {
                let tracked = track(&mut ground);
                assert_eq!(tracked.tree, dropped);
                world.vault.keep(&[dropped]).unwrap();
                again = Some(tracked);
            };
            let collection = begin(&world.vault, roots(&[kept])).unwrap();
            assert!(!world.vault.contains(&dropped));
            if !late {
                want();
            }
            assert!(collection.is_settled());
            collection
                .finish(|| {
                    if late {
                        want();
                    }
                    roots(&[kept])()
                })
                .unwrap();
            let again = again.unwrap();
            is_whole(&world, again.tree);
            assert!(references(&world.vault).contains(&again.tree.to_string()), "{file} {late}");
            store_is_sound(&world.vault);
            drop((again, ground));
            collect(&world, &[kept]);
            assert_eq!(references(&world.vault), HashSet::new());
            assert_eq!(world.vault.reader().unwrap().tree(kept).unwrap().len(), 1);
        }
    }
}

#[test]
fn what_is_known_of_a_project_stays_true() {
    let world = World::new();
    let mut ground = world.ground();
    world.write("dir/file", "once wanted");
    track(&mut ground);
    let mut other = world.ground_at(&world.dir.path().join("home/other"));
    // Nobody writes this one down, but what is known rests on it.
    let roots_and_look = || {
        world.write("more", "x");
        track(&mut other);
        Ok(HashSet::new())
    };
    drop(ground);
    begin(&world.vault, roots_and_look).unwrap().finish(roots(&[])).unwrap();
    world.write("more", "y");
    is_whole(&world, track(&mut other).tree);
}

#[test]
fn whoever_began_before_is_waited_for() {
    let world = World::new();
    let batch = world.vault.batch();
    let id = batch.put(Kind::Blob, b"unwanted").unwrap();
    batch.finish().unwrap();
    let before = world.vault.batch();
    assert_eq!(before.put(Kind::Blob, b"unwanted").unwrap(), id);
    let collection = begin(&world.vault, roots(&[])).unwrap();
    assert!(!collection.is_settled());
    let after = world.vault.batch();
    drop(before);
    assert!(collection.is_settled(), "who began later takes care of himself");
    after.put(Kind::Blob, b"unwanted").unwrap();
    assert!(after.finish().unwrap() > 0, "written again");
    collection.finish(roots(&[])).unwrap();
    assert_eq!(world.vault.read(id).unwrap(), b"unwanted");
}

#[test]
fn whoever_reads_goes_on_reading() {
    let world = World::new();
    let mut ground = world.ground();
    let trees: Vec<_> = history(&world, &mut ground, 12).into_iter().map(|(it, _)| it).collect();
    let reader = world.vault.reader().unwrap();
    reader.tree(trees[0]).unwrap();
    collect(&world, &trees[..6]);
    for tree in &trees[..6] {
        for item in reader.tree(*tree).unwrap() {
            reader.read(item.held.id).unwrap();
        }
    }
    assert!(world.vault.reader().unwrap().tree(trees[11]).is_err());
}

#[test]
fn gits_own_collections_do_no_harm() {
    let world = World::new();
    world.git(&["init", "-q"]);
    world.write("committed", "x");
    world.git(&["add", "."]);
    world.git(&["commit", "-q", "-m", "first"]);
    let mut ground = world.ground();
    world.write("never added", "only a snapshot knows");
    let tree = track(&mut ground).tree;
    world.vault.keep(&[tree, tree]).unwrap();
    world.vault.keep(&[tree]).unwrap();
    let before = world.image();
    let only_in_store = |world: &World| {
        let vault = World {
            vault: Arc::new(Vault::open(world.vault.directory()).unwrap()),
            ..world_of(world)
        };
        store_is_sound(&vault.vault);
        assert_eq!(references(&vault.vault), names(&[tree]));
        let mut ground = vault.ground();
        for file in ["committed", "never added"] {
            fs::remove_file(world.path(file)).unwrap();
        }
        assert_eq!(back(&mut ground, tree).conflicts, []);
        let taken = |image: Image| -> Image {
            image.into_iter().filter(|(path, _)| !path.starts_with(b".git")).collect()
        };
        same(&taken(world.image()), &taken(before.clone()), "what only the store had");
    };
    world.git(&["gc", "-q", "--prune=now"]);
    only_in_store(&world);
    git(world.vault.directory(), &["gc", "-q", "--prune=now"]);
    only_in_store(&world);
    git(world.vault.directory(), &["pack-refs", "--all"]);
    only_in_store(&world);
    fs::remove_dir_all(world.path(".git")).unwrap();
    only_in_store(&world);
}

/// The same project once more, as another server would see it.
fn world_of(world: &World) -> World {
    let dir = tempfile::tempdir().unwrap();
    // Removed with the first one: only links to its directories.
    for name in ["root", "outside", "home"] {
        symlink(world.dir.path().join(name), dir.path().join(name)).unwrap();
    }
    World {
        dir,
        vault: world.vault.clone(),
        threads: world.threads.clone(),
        policy: world.policy.clone(),
        watching: world.watching,
    }
}

#[test]
fn what_a_kill_leaves_in_the_store_goes() {
    let world = World::new();
    world.write("file", "x");
    let tree = track(&mut world.ground()).tree;
    let store = world.vault.directory();
    let left = [
        "tmp_bowline_packed-refs",
        "objects/tmp_object_git2_a1b2c3",
        "objects/pack/tmp_bowline_0123.pack",
        "objects/pack/tmp_bowline_0123.idx",
        "objects/pack/tmp_bowline_collected/pack-0123.pack",
        "objects/pack/tmp_bowline_collected/pack_git2_a1b2c3",
        // Of two files that come or go together, a kill can leave one.
        "objects/pack/pack-0123456789012345678901234567890123456789.pack",
    ];
    for path in left {
        fs::create_dir_all(store.join(path).parent().unwrap()).unwrap();
        fs::write(store.join(path), "half of").unwrap();
    }
    fs::write(store.join("packed-refs"), format!("{tree} refs/bowline/{tree}\n{tree} refs/bow"))
        .unwrap();
    let vault = Vault::open(store).unwrap();
    assert_eq!(leftovers(store), [""; 0]);
    assert_eq!(references(&vault), names(&[tree]));
    assert_eq!(vault.tree(tree).unwrap().len(), 1);
    store_is_sound(&vault);
}

#[test]
fn several_can_write_the_same_at_the_same_time() {
    let world = World::new();
    for n in 0..50 {
        let bytes = format!("content {n}");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let batch = world.vault.batch();
                    let id = batch.put(Kind::Blob, bytes.as_bytes()).unwrap();
                    batch.finish().unwrap();
                    assert_eq!(world.vault.read(id).unwrap(), bytes.as_bytes());
                });
            }
        });
    }
    assert_eq!(leftovers(world.dir.path()), [""; 0]);
}
