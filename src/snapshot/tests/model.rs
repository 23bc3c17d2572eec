//! Whatever somebody does to a project, and whenever it is taken down: what comes back is what a model remembers.

use super::*;
use crate::snapshot::tree::Held;
use proptest::prelude::*;
use proptest::test_runner::Config;

#[derive(Debug, Clone)]
enum Op {
    Mkdir(usize),
    Write(usize, u8, usize),
    Append(usize, u8),
    Remove(usize),
    Rename(usize, usize),
    Chmod(usize, u32),
    Link(usize, usize),
    Track,
    Reopen,
    Restore(usize),
    Revert(usize, usize),
}

const NAMES: [&str; 4] = ["a", "b", "\u{e9}\n", "c.d"];

/// Few enough paths for them to get in each other's way, one to three steps long.
fn path(number: usize) -> Vec<u8> {
    let mut steps = vec![NAMES[number % 4]];
    if !number.is_multiple_of(3) {
        steps.push(NAMES[(number / 4) % 4]);
    }
    if number % 3 > 1 {
        steps.push(NAMES[(number / 16) % 4]);
    }
    steps.join("/").into_bytes()
}

fn op() -> impl Strategy<Value = Op> {
    let modes = prop::sample::select(vec![0o644, 0o600, 0o755, 0o711, 0o700]);
    let at = 0..64usize;
    prop_oneof![
        2 => at.clone().prop_map(Op::Mkdir),
        6 => (at.clone(), any::<u8>(), 0..3000usize).prop_map(|(a, b, c)| Op::Write(a, b, c)),
        2 => (at.clone(), any::<u8>()).prop_map(|(a, b)| Op::Append(a, b)),
        3 => at.clone().prop_map(Op::Remove),
        4 => (at.clone(), at.clone()).prop_map(|(a, b)| Op::Rename(a, b)),
        2 => (at.clone(), modes).prop_map(|(a, b)| Op::Chmod(a, b)),
        2 => (at.clone(), at).prop_map(|(a, b)| Op::Link(a, b)),
        4 => Just(Op::Track),
        1 => Just(Op::Reopen),
        2 => (0..100usize).prop_map(Op::Restore),
        1 => (0..100usize, 0..100usize).prop_map(|(a, b)| Op::Revert(a, b)),
    ]
}

fn beneath<'a>(image: &'a Image, top: &[u8]) -> Vec<(&'a Vec<u8>, &'a Thing)> {
    let is = |path: &[u8]| path.strip_prefix(top).is_some_and(|it| matches!(it, [] | [b'/', ..]));
    image.iter().filter(|(path, _)| is(path)).collect()
}

/// Does it to both, if it can be done.
fn edit(world: &World, model: &mut Image, op: &Op) {
    let root = world.root();
    let full = |path: &[u8]| root.join(path_of(path));
    let is_dir = |model: &Image, path: &[u8]| matches!(model.get(path), Some(Thing::Dir(_)));
    let stands = |model: &Image, path: &[u8]| match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => is_dir(model, &path[..slash]),
        None => true,
    };
    match op {
        Op::Mkdir(at) => {
            let path = path(*at);
            if stands(model, &path) && !model.contains_key(&path) {
                fs::create_dir(full(&path)).unwrap();
                model.insert(path, Thing::Dir(0o755));
            }
        }
        Op::Write(at, byte, bytes) => {
            let (path, content) = (path(*at), vec![*byte; *bytes]);
            let mode = match model.get(&path) {
                Some(Thing::File(mode, _)) => *mode,
                None if stands(model, &path) => 0o644,
                _ => return,
            };
            fs::write(full(&path), &content).unwrap();
            model.insert(path, Thing::File(mode, content));
        }
        Op::Append(at, byte) => {
            let path = path(*at);
            if let Some(Thing::File(_, content)) = model.get_mut(&path) {
                content.push(*byte);
                fs::write(full(&path), content).unwrap();
            }
        }
        Op::Remove(at) => {
            let path = path(*at);
            match model.get(&path) {
                Some(Thing::Dir(_)) => fs::remove_dir_all(full(&path)).unwrap(),
                Some(_) => fs::remove_file(full(&path)).unwrap(),
                None => return,
            }
            let gone: Vec<_> = beneath(model, &path).into_iter().map(|it| it.0.clone()).collect();
            gone.iter().for_each(|path| drop(model.remove(path)));
        }
        Op::Rename(from, to) => {
            let (from, to) = (path(*from), path(*to));
            let inside = to.starts_with(&[&from, b"/".as_slice()].concat());
            if !model.contains_key(&from)
                || model.contains_key(&to)
                || inside
                || !stands(model, &to)
            {
                return;
            }
            fs::rename(full(&from), full(&to)).unwrap();
            let moved: Vec<_> = beneath(model, &from)
                .into_iter()
                .map(|(path, thing)| (path.clone(), thing.clone()))
                .collect();
            for (path, thing) in moved {
                model.remove(&path);
                model.insert([&to, &path[from.len()..]].concat(), thing);
            }
        }
        Op::Chmod(at, mode) => {
            let path = path(*at);
            if let Some(Thing::File(old, _) | Thing::Dir(old)) = model.get_mut(&path) {
                *old = *mode;
                chmod(&full(&path), *mode);
            }
        }
        Op::Link(at, to) => {
            let (path, target) = (path(*at), path(*to));
            if stands(model, &path) && !model.contains_key(&path) {
                symlink(path_of(&target), full(&path)).unwrap();
                model.insert(path, Thing::Link(target));
            }
        }
        _ => {}
    }
}

/// Takes back what happened between two snapshots, to a project that has gone on since.
fn revert(world: &World, ground: &mut Ground, model: &mut Image, old: ObjectId, new: ObjectId) {
    let before = track(ground).tree;
    let plan = plan(steps(ground, new, old));
    let sides = ground.trees_of(ground.vault().batch(), &plan.steps).unwrap();
    let applied = ground.apply(&plan, &Progress::default()).unwrap();
    drop(sides);
    let after = world.image();
    let done: HashSet<_> = applied.done.iter().map(|step| &step.path).collect();
    // What is not said to be done is as it was.
    let rest = |image: &Image| -> Image {
        let rest = image.iter().filter(|(path, _)| !done.contains(path));
        rest.map(|(path, thing)| (path.clone(), thing.clone())).collect()
    };
    same(&rest(&after), &rest(model), "what is not said to be done");
    let reader = world.vault.reader().unwrap();
    let tree = track(ground).tree;
    let is = |held: Option<Held>| {
        held.map(|held| (held.mode, (!held.mode.is_directory()).then_some(held.id)))
    };
    let mut was_expected = true;
    for step in &applied.done {
        let [was, found] = [before, tree].map(|it| diff::at(&reader, it, &step.path).unwrap());
        assert_eq!(is(found), is(step.to), "{:?}", step.path);
        was_expected &= is(was) == is(step.from);
    }
    // What was as it is to be before, was not done by the plan, and is not for it to undo.
    if was_expected && done.len() % 2 == 1 {
        assert_eq!(ground.undo(&plan, applied.done.clone()).unwrap().conflicts, []);
        same(&world.image(), model, "undone");
    } else {
        ground.sync().unwrap();
        *model = after;
    }
}

fn run(ops: &[Op], watching: bool, settled: bool) {
    let mut world = World::new();
    world.watching = watching;
    world.policy.now_ns = if settled { settled_ns } else { real_ns };
    let mut model = Image::new();
    let mut ground = world.ground();
    let mut snapshots = vec![(track(&mut ground).tree, model.clone())];
    for (number, op) in ops.iter().enumerate() {
        match op {
            Op::Track => {
                let tree = track(&mut ground).tree;
                assert_eq!(tree, world.scratch().tree, "{number}");
                snapshots.push((tree, model.clone()));
            }
            Op::Reopen => {
                ground.save().unwrap();
                ground = world.ground();
            }
            Op::Restore(at) => {
                let (tree, image) = snapshots[at % snapshots.len()].clone();
                assert_eq!(back(&mut ground, tree).conflicts, [], "{number}");
                same(&world.image(), &image, &format!("{number}"));
                model = image;
            }
            Op::Revert(old, new) => {
                let [old, new] = [old, new].map(|at| snapshots[at % snapshots.len()].0);
                revert(&world, &mut ground, &mut model, old, new);
            }
            op => {
                if settled {
                    tick(&world);
                }
                edit(&world, &mut model, op);
            }
        }
        if settled {
            tick(&world);
        }
    }
    same(&world.image(), &model, "at the end");
    let tree = track(&mut ground).tree;
    assert_eq!(tree, world.scratch().tree, "at the end");
    for (tree, image) in snapshots.iter().rev() {
        if settled {
            tick(&world);
        }
        assert_eq!(back(&mut ground, *tree).conflicts, []);
        same(&world.image(), image, "one after the other");
    }
    assert_eq!(leftovers(world.dir.path()), [""; 0]);
}

proptest! {
    #![proptest_config(Config { cases: 60, max_shrink_iters: 2000, failure_persistence: None, ..Config::default() })]

    #[test]
    fn what_comes_back_is_what_was(
        ops in prop::collection::vec(op(), 10..50),
        watching in any::<bool>(),
        settled in any::<bool>(),
    ) {
        run(&ops, watching, settled);
    }
}
